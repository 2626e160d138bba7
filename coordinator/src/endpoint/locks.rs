//! The two locks that decide which coordinator serves a GPU.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use baton_contract::link::Chosen;
use baton_contract::socket_path::own_folder;
use baton_contract::{link, socket_path};
use rustix::fs::fstat;
use rustix::process::geteuid;

use super::folder::{Folder, Unfit, name, unfit};

/// Longest time to wait for a coordinator that is ending.
const ENDING: Duration = Duration::from_secs(60);
/// Time after which the reason of a wait is logged.
const SILENCE: Duration = Duration::from_secs(1);
/// Delay between two attempts.
const PAUSE: Duration = Duration::from_millis(10);
/// Longest time for a coordinator's answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Opens the lock for deciding whether there is a coordinator at a socket.
///
/// # Errors
///
/// When the file cannot be made.
pub fn start_lock(socket: &Path) -> Result<File, Unfit> {
    Folder::of_socket(socket)?.file(name(&socket.with_extension("start")))
}

/// The lock that makes a coordinator the only one of its GPU and user. Dropping it releases the lock and removes its file.
#[derive(Debug)]
pub(super) struct GpuLock {
    folder: Folder,
    name: PathBuf,
    file: File,
    /// The file's text: the owner's process, and its socket.
    text: String,
    /// True if this process is to give it up when it ends.
    is_own: bool,
}

/// Returns the folders in which such locks may lie. They depend on the user alone, so that programs with and without `XDG_RUNTIME_DIR`
/// meet. The first usable one is taken.
fn lock_folders() -> impl Iterator<Item = PathBuf> {
    let user = geteuid().as_raw();
    let fallback = socket_path::fallback(user);
    socket_path::systems_folder(user).map(|folder| folder.join("baton")).into_iter().chain([fallback, own_folder()])
}

/// Returns the name of a GPU's lock.
fn lock_name(uuid: [u8; 16]) -> PathBuf {
    PathBuf::from(format!("{}.lock", socket_path::gpu_name(uuid)))
}

/// Returns the socket of this user's coordinator of a GPU, if there is one.
pub fn serving_at(uuid: [u8; 16]) -> Option<PathBuf> {
    let name = lock_name(uuid);
    let folders = lock_folders().filter_map(|path| Folder::private(&path).ok());
    folders.filter(|folder| folder.find(&name).is_some()).find_map(|folder| {
        let text = std::io::read_to_string(folder.file(&name).ok()?).ok()?;
        let socket = PathBuf::from(text.lines().nth(1)?);
        link::connect(&socket, Chosen::Usual, PATIENCE).is_ok().then_some(socket)
    })
}

impl GpuLock {
    /// Takes a GPU's lock for a server at this socket, and waits for one that is ending.
    pub(super) fn take(uuid: [u8; 16], socket: &Path) -> Result<Self, Unfit> {
        let mut problem = None;
        for path in lock_folders() {
            match Folder::private(&path) {
                Ok(folder) => return Self::take_in(folder, uuid, socket),
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        Err(problem.unwrap_or_else(|| baton_messages::no_folder_for_locks().into()))
    }

    fn take_in(folder: Folder, uuid: [u8; 16], socket: &Path) -> Result<Self, Unfit> {
        let gpu = socket_path::gpu_name(uuid);
        let name = lock_name(uuid);
        let path = folder.path().join(&name);
        let start = Instant::now();
        let mut is_said = false;
        loop {
            let mut file = folder.file(&name)?;
            match file.try_lock() {
                Ok(()) => {
                    let found = file.metadata().map_err(|error| unfit(&path, error))?;
                    if folder.find(&name) == Some((found.dev(), found.ino())) {
                        let text = format!("{}\n{}\n", std::process::id(), socket.display());
                        file.set_len(0)
                            .and_then(|()| file.write_all(text.as_bytes()))
                            .map_err(|error| unfit(&path, error))?;
                        return Ok(Self { folder, name, file, text, is_own: true });
                    }
                    // The owner before removed it after it was opened here.
                }
                Err(_) => {
                    let mut text = String::new();
                    file.rewind().and_then(|()| file.read_to_string(&mut text)).map_err(|error| unfit(&path, error))?;
                    let mut lines = text.lines();
                    let (process, its) = (lines.next().unwrap_or("?"), lines.next().unwrap_or_default());
                    // A coordinator that is ending, or beginning, does not listen.
                    if link::connect(Path::new(its), Chosen::Usual, PATIENCE).is_ok() {
                        return Err(baton_messages::serves_already(process, gpu, its).into());
                    }
                    if start.elapsed() > ENDING {
                        return Err(baton_messages::neither_serves_nor_ends(gpu, process).into());
                    }
                    if start.elapsed() > SILENCE && !std::mem::replace(&mut is_said, true) {
                        baton_messages::info!(waits_for_the_last(process));
                    }
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Goes on with the lock of another coordinator: it was never given up, and is not until this one [serves](Self::serves).
    pub(super) fn go_on(lock: OwnedFd, uuid: [u8; 16], socket: &Path) -> Result<Self, Unfit> {
        let name = lock_name(uuid);
        let found = fstat(&lock).map_err(|error| unfit(&name, error))?;
        let mut folders = lock_folders().filter_map(|path| Folder::private(&path).ok());
        let is_its = |folder: &Folder| folder.find(&name) == Some((found.st_dev, found.st_ino));
        // It may have been removed.
        let Some(folder) = folders.find(is_its) else { return Self::take(uuid, socket) };
        let text = format!("{}\n{}\n", std::process::id(), socket.display());
        Ok(Self { folder, name, file: File::from(lock), text, is_own: false })
    }

    /// This process is its owner from now on.
    pub(super) fn serves(&mut self) -> std::io::Result<()> {
        if !self.is_own {
            self.file.set_len(0)?;
            self.file.rewind()?;
            self.file.write_all(self.text.as_bytes())?;
            self.is_own = true;
        }
        Ok(())
    }

    /// Puts the file there again if it was removed, unless its place was taken. True if it is another one now.
    pub(super) fn restore(&mut self) -> bool {
        if self.folder.path().join(&self.name).symlink_metadata().is_ok() {
            return false;
        }
        let made = || -> Result<(Folder, File), Unfit> {
            let folder = Folder::private(self.folder.path())?;
            let mut file = folder.file(&self.name)?;
            let path = folder.path().join(&self.name);
            file.try_lock().map_err(|error| unfit(&path, error))?;
            file.write_all(self.text.as_bytes()).map_err(|error| unfit(&path, error))?;
            Ok((folder, file))
        };
        let Ok((folder, file)) = made() else { return false };
        (self.folder, self.file) = (folder, file);
        true
    }
}

impl AsFd for GpuLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for GpuLock {
    fn drop(&mut self) {
        if !self.is_own {
            return;
        }
        // Before the lock goes: a waiting process checks whether the file is still there.
        self.folder.remove(&self.name);
        let _ = self.file.unlock();
    }
}
