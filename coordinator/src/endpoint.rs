//! The place of a coordinator: folders that no other user can change, two locks, and the socket.
//!
//! | file | held by | so that |
//! |---|---|---|
//! | `GPU-UUID.lock`, in a folder that depends on the user alone | a coordinator, for its whole life | a GPU has one coordinator of this user, with any socket |
//! | `SOCKET.metrics`, beside the socket | a coordinator | a user's monitoring finds its metrics: a socket too |
//! | `SOCKET.token`, beside the socket | no process | its user finds the page's token |
//! | `SOCKET.start`, beside the socket | `baton run` while it searches for a coordinator or starts one; a coordinator while it decides to end | no program is sent to a coordinator that is just ending |
//!
//! The files may lie in a folder like `/tmp`, where other users can put files first. So no file is opened through a symbolic link, and
//! a foreign file is refused, with a sentence.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use baton_contract::link::Chosen;
use baton_contract::socket_path::own_folder;
use baton_contract::{link, socket_path};
use baton_messages::Message;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, getsockname, listen, shutdown,
    socket_with, sockopt,
};
use rustix::process::{Gid, geteuid};

/// Maximum number of pending connections before `connect` waits. A newcomer is behind this many, and behind those that wait in
/// `connect`.
const BACKLOG: i32 = 256;
/// Longest time to wait for a coordinator that is ending.
const ENDING: Duration = Duration::from_secs(60);
/// Time after which the reason of a wait is logged.
const SILENCE: Duration = Duration::from_secs(1);
/// Delay before the check for the socket after a file was removed; and after a failure to put the socket there again.
const GRACE: Duration = Duration::from_millis(100);
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Delay between two attempts.
const PAUSE: Duration = Duration::from_millis(10);
/// Longest time for a coordinator's answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The reason why a place is not used, in the user's words.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Unfit(#[from] Message);

/// Makes the reason why a place is not used.
pub(crate) fn unfit(path: &Path, error: impl std::fmt::Display) -> Unfit {
    Unfit(baton_messages::of_path(path.display(), error))
}

/// A folder, held open, so that it cannot be exchanged for another one.
#[derive(Debug)]
pub struct Folder {
    handle: OwnedFd,
    path: PathBuf,
}

impl Folder {
    /// Opens a folder that only this user can enter, and makes it if it is not there.
    ///
    /// # Errors
    ///
    /// When it cannot be made, is a link, belongs to another user, or can be entered by others.
    pub fn private(path: &Path) -> Result<Self, Unfit> {
        Self::make(path, 0o700)?;
        let folder = Self::open(path, OFlags::NOFOLLOW)?;
        let found = folder.metadata()?;
        if found.uid() != geteuid().as_raw() {
            return Err(baton_messages::folder_of_another(path.display(), found.uid()).into());
        }
        if found.mode() & 0o077 != 0 {
            let mode = found.mode() & 0o7777;
            return Err(baton_messages::folder_is_open(path.display(), format_args!("{mode:o}")).into());
        }
        Ok(folder)
    }

    /// Opens the folder of a socket that the user has named. Others may have files in it, but cannot exchange this user's.
    ///
    /// # Errors
    ///
    /// When it cannot be made, or others can remove its files.
    pub fn of_socket(socket: &Path) -> Result<Self, Unfit> {
        let path = folder_of(socket);
        if !path.exists() || path == own_folder() {
            return Self::private(path);
        }
        let folder = Self::open(path, OFlags::empty())?;
        let found = folder.metadata()?;
        if found.uid() != geteuid().as_raw() && found.uid() != 0 {
            return Err(baton_messages::owner_could_exchange(path.display(), found.uid()).into());
        }
        if found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0 {
            let mode = found.mode() & 0o7777;
            return Err(baton_messages::others_could_exchange(path.display(), format_args!("{mode:o}")).into());
        }
        Ok(folder)
    }

    /// Opens the folder of a socket for other users' programs too, and makes it if it is not there.
    ///
    /// # Errors
    ///
    /// As for [`Folder::of_socket()`], and when others cannot enter it.
    fn of_shared_socket(socket: &Path) -> Result<Self, Unfit> {
        let path = folder_of(socket);
        let remedy = baton_messages::NAME_A_SHARED_FOLDER;
        if path == own_folder() {
            return Err(baton_messages::folder_is_yours_alone(path.display(), remedy).into());
        }
        Self::make(path, 0o755)?;
        let folder = Self::of_socket(socket)?;
        let mode = folder.metadata()?.mode() & 0o7777;
        if mode & 0o001 == 0 {
            let mode = format_args!("{mode:o}");
            return Err(baton_messages::others_cannot_enter(path.display(), mode, remedy).into());
        }
        Ok(folder)
    }

    /// Makes the folder, if it is not there.
    fn make(path: &Path, mode: u32) -> Result<(), Unfit> {
        match std::fs::DirBuilder::new().recursive(true).mode(mode).create(path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(unfit(path, error)),
            _ => Ok(()),
        }
    }

    fn open(path: &Path, flags: OFlags) -> Result<Self, Unfit> {
        let opened =
            rustix::fs::open(path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | flags, Mode::empty());
        let handle = opened.map_err(|error| match error {
            Errno::NOTDIR | Errno::LOOP => baton_messages::is_no_folder(path.display()).into(),
            error => unfit(path, error),
        })?;
        Ok(Self { handle, path: path.to_path_buf() })
    }

    fn metadata(&self) -> Result<std::fs::Metadata, Unfit> {
        let handle = self.handle.try_clone().map_err(|error| unfit(&self.path, error))?;
        File::from(handle).metadata().map_err(|error| unfit(&self.path, error))
    }

    /// Opens a file of this user in the folder for reading and writing, and makes it if it is not there.
    ///
    /// # Errors
    ///
    /// When it is a link, not a regular file, or belongs to another user.
    pub fn file(&self, name: &Path) -> Result<File, Unfit> {
        let path = self.path.join(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = rustix::fs::openat(&self.handle, name, flags, Mode::RUSR | Mode::WUSR);
        let file = File::from(opened.map_err(|error| match error {
            Errno::LOOP => baton_messages::is_a_link(path.display()).into(),
            error => unfit(&path, error),
        })?);
        let found = file.metadata().map_err(|error| unfit(&path, error))?;
        if !found.is_file() || found.uid() != geteuid().as_raw() || found.nlink() > 1 {
            return Err(baton_messages::is_no_own_file(path.display()).into());
        }
        Ok(file)
    }

    /// Makes a symbolic link in the folder, in place of any file of that name.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn link(&self, name: &Path, target: &Path) -> Result<(), Unfit> {
        let told = |error| unfit(&self.path.join(name), error);
        let there = rustix::fs::readlinkat(&self.handle, name, Vec::new());
        if there.is_ok_and(|there| there.as_bytes() == target.as_os_str().as_encoded_bytes()) {
            return Ok(());
        }
        // In one step: others may be using the name.
        let fresh = PathBuf::from(format!(".{}-{}", std::process::id(), name.display()));
        self.remove(&fresh);
        rustix::fs::symlinkat(target, &self.handle, &fresh).map_err(told)?;
        rustix::fs::renameat(&self.handle, &fresh, &self.handle, name).map_err(told)
    }

    /// Returns a descriptor that reports removals of the folder and of files in it.
    fn watch(&self) -> Result<OwnedFd, Unfit> {
        let told = |error| unfit(&self.path, error);
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(told)?;
        // This opens the folder itself, even if its path names another one by now.
        let path = format!("/proc/self/fd/{}/.", self.handle.as_raw_fd());
        let what = WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        inotify::add_watch(&watch, path, what | WatchFlags::ONLYDIR).map_err(told)?;
        Ok(watch)
    }

    /// Returns the identity of the file of this name in the folder.
    fn find(&self, name: &Path) -> Option<FileId> {
        let found = rustix::fs::statat(&self.handle, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        found.ok().map(|found| file_id(&found))
    }

    /// Removes a file in the folder, if it is there.
    fn remove(&self, name: &Path) {
        let _ = rustix::fs::unlinkat(&self.handle, name, rustix::fs::AtFlags::empty());
    }
}

fn file_id(found: &rustix::fs::Stat) -> FileId {
    (found.st_dev, found.st_ino)
}

/// Returns the folder of a socket.
fn folder_of(socket: &Path) -> &Path {
    socket.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the name of a path's file.
fn name(path: &Path) -> &Path {
    path.file_name().map_or(path, Path::new)
}

/// Returns the path of the metrics of a socket's coordinator.
pub fn metrics_socket(socket: &Path) -> PathBuf {
    socket.with_extension("metrics")
}

/// Opens the lock for deciding whether there is a coordinator at a socket.
///
/// # Errors
///
/// When the file cannot be made.
pub fn start_lock(socket: &Path) -> Result<File, Unfit> {
    Folder::of_socket(socket)?.file(name(&socket.with_extension("start")))
}

/// Opens the log file of a coordinator without a terminal.
///
/// # Errors
///
/// When the file cannot be made.
pub fn log_file(socket: &Path) -> Result<(File, PathBuf), Unfit> {
    let path = socket.with_extension("log");
    let mut file = Folder::of_socket(socket)?.file(name(&path))?;
    file.seek(std::io::SeekFrom::End(0)).map_err(|error| unfit(&path, error))?;
    // A process that inherits it appends, even beside others.
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND).map_err(|error| unfit(&path, error))?;
    Ok((file, path))
}

/// Sets the file of standard error aside, if it is the log of a coordinator at this socket, and large. Standard error is a new file
/// from then on. If that is not possible, the file is emptied.
pub fn put_large_log_aside(socket: &Path, large: u64) {
    let path = socket.with_extension("log");
    let error = std::io::stderr();
    let (Ok(found), Ok(named)) = (rustix::fs::fstat(&error), rustix::fs::lstat(&path)) else { return };
    let is_it = (found.st_dev, found.st_ino) == (named.st_dev, named.st_ino);
    if !is_it || u64::try_from(found.st_size).unwrap_or(0) < large {
        return;
    }
    let put_aside = || -> Result<(), Unfit> {
        let folder = Folder::of_socket(socket)?;
        let told = |error| unfit(&path, error);
        rustix::fs::renameat(&folder.handle, name(&path), &folder.handle, name(&socket.with_extension("log.1")))
            .map_err(told)?;
        let (file, _) = log_file(socket)?;
        let is_output = rustix::fs::fstat(std::io::stdout()).is_ok_and(|output| output.st_ino == found.st_ino);
        if is_output {
            rustix::stdio::dup2_stdout(&file).map_err(told)?;
        }
        rustix::stdio::dup2_stderr(&file).map_err(told)
    };
    if put_aside().is_err() {
        let _ = rustix::fs::ftruncate(&error, 0);
    }
}

/// The lock that makes a coordinator the only one of its GPU and user. Dropping it releases the lock and removes its file.
#[derive(Debug)]
struct GpuLock {
    folder: Folder,
    name: PathBuf,
    file: File,
    /// The file's text: the owner's process, and its socket.
    text: String,
}

/// Returns the folders in which such locks may lie. They depend on the user alone, so that programs with and without `XDG_RUNTIME_DIR`
/// meet. The first usable one is taken.
fn lock_folders() -> impl Iterator<Item = PathBuf> {
    let user = geteuid().as_raw();
    let fallback = socket_path::fallback(user);
    socket_path::systems_folder(user).map(|folder| folder.join("baton")).into_iter().chain([fallback, own_folder()])
}

impl GpuLock {
    /// Takes a GPU's lock for a server at this socket, and waits for one that is ending.
    fn take(uuid: [u8; 16], socket: &Path) -> Result<Self, Unfit> {
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
        let name = PathBuf::from(format!("{gpu}.lock"));
        let path = folder.path.join(&name);
        let start = Instant::now();
        let mut is_said = false;
        loop {
            let mut file = folder.file(&name)?;
            match file.try_lock() {
                Ok(()) => {
                    let there = rustix::fs::statat(&folder.handle, &name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
                    let inode = file.metadata().map_err(|error| unfit(&path, error))?.ino();
                    if there.is_ok_and(|there| there.st_ino == inode) {
                        let text = format!("{}\n{}\n", std::process::id(), socket.display());
                        file.set_len(0)
                            .and_then(|()| file.write_all(text.as_bytes()))
                            .map_err(|error| unfit(&path, error))?;
                        return Ok(Self { folder, name, file, text });
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
}

impl GpuLock {
    /// Goes on with a lock that another process has taken.
    fn go_on(lock: OwnedFd, uuid: [u8; 16], socket: &Path) -> Result<Self, Unfit> {
        let name = PathBuf::from(format!("{}.lock", socket_path::gpu_name(uuid)));
        let mut file = File::from(lock);
        let inode = file.metadata().map_err(|error| unfit(&name, error))?.ino();
        let mut folders = lock_folders().filter_map(|path| Folder::private(&path).ok());
        let is_its = |folder: &Folder| folder.find(&name).is_some_and(|(_, found)| found == inode);
        let folder = folders.find(is_its).ok_or_else(|| Unfit(baton_messages::no_folder_for_locks()))?;
        let text = format!("{}\n{}\n", std::process::id(), socket.display());
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(text.as_bytes()))
            .map_err(|error| unfit(&name, error))?;
        Ok(Self { folder, name, file, text })
    }

    /// Puts the file there again if it was removed, unless its place was taken.
    fn restore(&mut self) {
        if self.folder.path.join(&self.name).symlink_metadata().is_ok() {
            return;
        }
        let made = || -> Result<(Folder, File), Unfit> {
            let folder = Folder::private(&self.folder.path)?;
            let mut file = folder.file(&self.name)?;
            let path = folder.path.join(&self.name);
            file.try_lock().map_err(|error| unfit(&path, error))?;
            file.write_all(self.text.as_bytes()).map_err(|error| unfit(&path, error))?;
            Ok((folder, file))
        };
        if let Ok((folder, file)) = made() {
            (self.folder, self.file) = (folder, file);
        }
    }
}

impl Drop for GpuLock {
    fn drop(&mut self) {
        // Before the lock goes: a waiting process checks whether the file is still there.
        self.folder.remove(&self.name);
        let _ = self.file.unlock();
    }
}

/// A socket that listens, and the right to serve a GPU there.
#[derive(Debug)]
pub struct Endpoint {
    listener: OwnedFd,
    path: PathBuf,
    folder: Folder,
    visitors: Visitors,
    /// Reports removals of files in the folder.
    watch: OwnedFd,
    /// The identity of the socket's file.
    file: Option<FileId>,
    /// The time of the next check for the socket.
    look: Option<Instant>,
    /// True if a service manager keeps the socket: after this coordinator's end it starts another one at the next connection.
    is_passed: bool,
    gpu: GpuLock,
}

/// A file's identity in the system: its device and its number there.
type FileId = (u64, u64);

/// A listening socket that a service manager has passed on.
#[derive(Debug)]
pub struct Passed {
    listener: OwnedFd,
    path: PathBuf,
}

impl Passed {
    /// Checks a socket that was passed on.
    ///
    /// # Errors
    ///
    /// When a coordinator cannot listen on it.
    pub fn new(listener: OwnedFd) -> Result<Self, Unfit> {
        let is_fit = sockopt::socket_type(&listener).is_ok_and(|kind| kind == SocketType::SEQPACKET)
            && sockopt::socket_acceptconn(&listener).unwrap_or(false);
        let address = getsockname(&listener).ok().and_then(|address| SocketAddrUnix::try_from(address).ok());
        let path = address.and_then(|address| Some(PathBuf::from(OsStr::from_bytes(address.path_bytes()?))));
        let (true, Some(path)) = (is_fit, path) else {
            return Err(baton_messages::unfit_socket().into());
        };
        let set = rustix::fs::fcntl_setfl(&listener, OFlags::NONBLOCK)
            .and_then(|()| rustix::io::fcntl_setfd(&listener, FdFlags::CLOEXEC));
        set.map_err(|error| unfit(&path, error))?;
        Ok(Self { listener, path })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The users whose programs may connect to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visitors {
    /// This user, and root.
    Own,
    /// Other users too; the server admits those that its settings name.
    Guests,
    /// The members of this group, with the same condition.
    Group(u32),
}

impl Visitors {
    /// Returns the permissions that a new socket lacks. A user who may write a socket can connect to it (`unix(7)`).
    fn umask(self) -> u32 {
        match self {
            Self::Own => 0o077,
            Self::Guests => 0o111,
            Self::Group(_) => 0o117,
        }
    }
}

/// Returns the number of a group with this name or number.
///
/// # Errors
///
/// When there is no such group.
pub fn group(name: &str) -> Result<u32, Unfit> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let found = || {
        let name = CString::new(name).ok()?;
        let (mut group, mut words, mut found) =
            (MaybeUninit::<libc::group>::uninit(), vec![0; 64 << 10], std::ptr::null_mut());
        // SAFETY: a text, a place for the answer, and one for the words that it points to, with its length; they live over the call.
        let failed = unsafe {
            libc::getgrnam_r(name.as_ptr(), group.as_mut_ptr(), words.as_mut_ptr(), words.len(), &raw mut found)
        };
        // SAFETY: filled in, as a group was found.
        (failed == 0 && !found.is_null()).then(|| unsafe { group.assume_init() }.gr_gid)
    };
    found().ok_or_else(|| baton_messages::no_such_group(name).into())
}

/// The outcome of an attempt to close.
pub enum Closing {
    /// No one can connect any more.
    Closed,
    /// A program is about to connect: the caller tries again later.
    Wanted,
}

impl Endpoint {
    /// Takes a GPU and a socket's place for this process.
    ///
    /// # Errors
    ///
    /// When another process has either, or the place is unfit.
    pub fn claim(path: &Path, uuid: [u8; 16], visitors: Visitors) -> Result<Self, Unfit> {
        let folder = match visitors {
            Visitors::Own => Folder::of_socket(path)?,
            Visitors::Guests | Visitors::Group(_) => Folder::of_shared_socket(path)?,
        };
        let gpu = GpuLock::take(uuid, path)?;
        match rustix::fs::statat(&folder.handle, name(path), rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
            Err(_) => {}
            Ok(_) => {
                let found = std::fs::symlink_metadata(path).map_err(|error| unfit(path, error))?;
                if !found.file_type().is_socket() {
                    return Err(baton_messages::is_no_socket(path.display()).into());
                }
                if link::connect(path, Chosen::Usual, PATIENCE).is_ok() {
                    return Err(baton_messages::other_gpu_is_served_here(path.display()).into());
                }
                // A coordinator that was killed has left it behind.
                folder.remove(name(path));
            }
        }
        let listener = Self::listen(path, SocketType::SEQPACKET, visitors)?;
        let watch = folder.watch()?;
        let (file, path) = (folder.find(name(path)), path.to_path_buf());
        Ok(Self { listener, path, folder, visitors, watch, file, look: None, is_passed: false, gpu })
    }

    /// Takes a GPU for this process, at a socket that was passed on.
    ///
    /// # Errors
    ///
    /// When another process has the GPU, or others could exchange the socket.
    pub fn claim_passed(Passed { listener, path }: Passed, uuid: [u8; 16]) -> Result<Self, Unfit> {
        let folder = Folder::of_socket(&path)?;
        let gpu = GpuLock::take(uuid, &path)?;
        // Its unit tells the users who can connect (`SocketMode=`).
        let (watch, file) = (folder.watch()?, folder.find(name(&path)));
        Ok(Self { listener, path, folder, visitors: Visitors::Own, watch, file, look: None, is_passed: true, gpu })
    }

    /// The socket that listens, and the GPU's lock: with these another process goes on at this place.
    pub fn parts(&self) -> [BorrowedFd<'_>; 2] {
        [self.listener.as_fd(), self.gpu.file.as_fd()]
    }

    /// Goes on at the place of a coordinator that has died, with its socket and its lock.
    ///
    /// # Errors
    ///
    /// When these are no such things, or others could exchange the socket.
    pub fn go_on([listener, lock]: [OwnedFd; 2], uuid: [u8; 16], visitors: Visitors) -> Result<Self, Unfit> {
        let Passed { listener, path } = Passed::new(listener)?;
        let folder = Folder::of_socket(&path)?;
        let (watch, file) = (folder.watch()?, folder.find(name(&path)));
        let gpu = GpuLock::go_on(lock, uuid, &path)?;
        Ok(Self { listener, path, folder, visitors, watch, file, look: None, is_passed: false, gpu })
    }

    /// Opens a socket for metrics beside this one, which only this user can reach. It replaces one that a dead coordinator has left.
    ///
    /// # Errors
    ///
    /// When another file has its name, or it cannot be made.
    pub fn listen_beside(&self) -> Result<UnixListener, Unfit> {
        let path = metrics_socket(&self.path);
        if let Ok(found) = std::fs::symlink_metadata(&path) {
            if !found.file_type().is_socket() || found.uid() != geteuid().as_raw() {
                return Err(baton_messages::is_no_own_socket(path.display()).into());
            }
            self.folder.remove(name(&path));
        }
        Self::listen(&path, SocketType::STREAM, Visitors::Own).map(UnixListener::from)
    }

    /// Keeps the page's token in a file that only this user can read, for the life of this coordinator.
    ///
    /// # Errors
    ///
    /// When another file has its name, or it cannot be written.
    pub fn keep_token(&self, token: &str) -> Result<PathBuf, Unfit> {
        let path = self.path.with_extension("token");
        let told = |error| unfit(&path, error);
        let mut file = self.folder.file(name(&path))?;
        file.set_len(0).and_then(|()| file.write_all(token.as_bytes())).map_err(told)?;
        Ok(path)
    }

    fn listen(path: &Path, kind: SocketType, visitors: Visitors) -> Result<OwnedFd, Unfit> {
        let told = |error: Errno| unfit(path, error);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, kind, flags, None).map_err(told)?;
        let address = SocketAddrUnix::new(path).map_err(told)?;
        let before = rustix::process::umask(Mode::from_raw_mode(visitors.umask()));
        let bound = bind(&listener, &address);
        rustix::process::umask(before);
        bound.map_err(|error| match error {
            Errno::ADDRINUSE => baton_messages::belongs_to_another(path.display()).into(),
            error => told(error),
        })?;
        if let Visitors::Group(group) = visitors {
            // No one can connect yet.
            let owned = rustix::fs::chownat(
                rustix::fs::CWD,
                path,
                None,
                Some(Gid::from_raw(group)),
                rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
            );
            if let Err(error) = owned {
                let _ = rustix::fs::unlink(path);
                return Err(baton_messages::cannot_give_to_group(path.display(), group, error).into());
            }
        }
        listen(&listener, BACKLOG).map_err(told)?;
        Ok(listener)
    }

    /// Returns the socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Accepts the next connection; `AGAIN` if there is none.
    ///
    /// # Errors
    ///
    /// Errors of `accept`.
    pub fn accept(&self) -> Result<OwnedFd, Errno> {
        accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
    }

    /// Closes the socket, unless a program is about to connect or `baton run` is just searching for a coordinator.
    ///
    /// # Errors
    ///
    /// When the socket cannot be made anew for the programs that were about to connect.
    pub fn close_if_unwanted(&mut self, mut take_in: impl FnMut(OwnedFd)) -> Result<Closing, Unfit> {
        let start = self.folder.file(name(&self.path.with_extension("start")))?;
        if start.try_lock().is_err() {
            return Ok(Closing::Wanted);
        }
        if !self.is_passed {
            // From here on no one can connect; earlier connections can still be accepted.
            let _ = shutdown(&self.listener, Shutdown::Both);
        }
        let mut closing = Closing::Closed;
        // At most a full backlog: at a socket that was passed on, connections may come for ever.
        for _ in 0..BACKLOG {
            let Ok(socket) = self.accept() else { break };
            take_in(socket);
            closing = Closing::Wanted;
        }
        if self.is_passed {
            // A program that connects from here on waits for the next coordinator.
            return Ok(closing);
        }
        self.folder.remove(name(&self.path));
        if matches!(closing, Closing::Wanted) {
            self.listen_anew()?;
        }
        Ok(closing)
    }

    fn listen_anew(&mut self) -> Result<(), Unfit> {
        self.listener = Self::listen(&self.path, SocketType::SEQPACKET, self.visitors)?;
        self.file = self.folder.find(name(&self.path));
        Ok(())
    }

    /// The descriptor that shows removals.
    pub fn watch(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Notes that a file was removed.
    pub fn heed_watch(&mut self) {
        let mut told = [0; 4096];
        while rustix::io::read(&self.watch, &mut told).is_ok_and(|count| count > 0) {}
        // The delay gives the remover time to remove the folder too.
        self.look.get_or_insert_with(|| Instant::now() + GRACE);
    }

    /// The time of the next check for the socket.
    pub fn next_look(&self) -> Option<Instant> {
        self.look
    }

    /// Puts the socket there again if it was removed, with its folder and the GPU's lock. Pending connections are taken in. True if it
    /// had been removed.
    ///
    /// # Errors
    ///
    /// When it is gone, and cannot be put there. The next check tries again.
    pub fn look(&mut self, mut take_in: impl FnMut(OwnedFd)) -> Result<bool, Unfit> {
        if self.look.take_if(|at| *at <= Instant::now()).is_none() || self.is_passed {
            return Ok(false);
        }
        self.gpu.restore();
        let found = rustix::fs::lstat(&self.path).ok().map(|found| file_id(&found));
        if found.is_some() && found == self.file {
            return Ok(false);
        }
        // Set first, so that it holds after a failure too.
        self.look = Some(Instant::now() + LOOK_AGAIN);
        if found.is_some() {
            return Err(baton_messages::place_is_taken(self.path.display()).into());
        }
        self.folder = match self.visitors {
            Visitors::Own => Folder::of_socket(&self.path)?,
            Visitors::Guests | Visitors::Group(_) => Folder::of_shared_socket(&self.path)?,
        };
        while let Ok(socket) = self.accept() {
            take_in(socket);
        }
        self.listen_anew()?;
        self.watch = self.folder.watch()?;
        self.look = None;
        Ok(true)
    }

    /// Leaves the place, even if programs are about to connect.
    pub fn leave(&self) {
        if !self.is_passed {
            let _ = shutdown(&self.listener, Shutdown::Both);
            self.folder.remove(name(&self.path));
        }
        self.folder.remove(name(&metrics_socket(&self.path)));
        self.folder.remove(name(&self.path.with_extension("token")));
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn uuid() -> [u8; 16] {
        let mut uuid = [0; 16];
        rustix::rand::getrandom(&mut uuid, rustix::rand::GetRandomFlags::empty()).expect("random bytes");
        uuid
    }

    #[track_caller]
    fn says<T: std::fmt::Debug>(found: Result<T, Unfit>, words: &[&str]) {
        let said = found.expect_err("refused").to_string();
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }

    #[test]
    fn a_gpu_has_one_coordinator_wherever_its_socket_is_and_a_dead_ones_place_is_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let [here, there] = ["a.sock", "b.sock"].map(|name| folder.path().join(name));
        let gpu = uuid();
        let first = Endpoint::claim(&here, gpu, Visitors::Own).expect("free");
        says(Endpoint::claim(&there, gpu, Visitors::Own), &[&format!("process {}", std::process::id()), "a.sock"]);
        says(Endpoint::claim(&here, uuid(), Visitors::Own), &["another GPU"]);
        let another = Endpoint::claim(&there, uuid(), Visitors::Own).expect("another GPU, another place");
        // The socket stays, as after a kill.
        drop((first, another));
        Endpoint::claim(&here, gpu, Visitors::Own).expect("left behind");
    }

    #[test]
    fn who_is_on_the_way_when_a_coordinator_wants_to_end_is_taken_in_and_the_next_one_finds_it_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.sock");
        let mut endpoint = Endpoint::claim(&path, uuid(), Visitors::Own).expect("free");
        let on_the_way = link::connect(&path, Chosen::ByUser, PATIENCE).expect("it listens");
        let mut came = Vec::new();
        assert!(matches!(endpoint.close_if_unwanted(|socket| came.push(socket)), Ok(Closing::Wanted)));
        assert_eq!(came.len(), 1);
        link::send(on_the_way.as_fd(), b"hello", &[], false).expect("the other end is held");
        let _next = link::connect(&path, Chosen::ByUser, PATIENCE).expect("it listens again");
        endpoint.accept().expect("the next one");

        let start = start_lock(&path).expect("a lock");
        start.lock().expect("free");
        assert!(matches!(endpoint.close_if_unwanted(|_| panic!("nobody came")), Ok(Closing::Wanted)));
        drop(start);
        assert!(matches!(endpoint.close_if_unwanted(|_| panic!("nobody came")), Ok(Closing::Closed)));
        assert!(matches!(link::connect(&path, Chosen::ByUser, PATIENCE), Err(link::Unconnected::NobodyListens)));
    }

    /// Standard error belongs to a process: the other half of this test is a process that has its log there.
    #[test]
    fn a_log_that_is_large_is_put_aside_and_what_is_said_from_then_on_is_in_a_new_one() {
        const LARGE: u64 = 10_000;
        const LINES: usize = 300;
        if let Some(socket) = std::env::var_os("BATON_TEST_SOCKET") {
            for number in 0..LINES {
                put_large_log_aside(Path::new(&socket), LARGE);
                eprintln!("line {number} {}", "x".repeat(90));
            }
            return;
        }
        let name = "endpoint::tests::a_log_that_is_large_is_put_aside_and_what_is_said_from_then_on_is_in_a_new_one";
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("s.sock");
        let (file, path) = log_file(&socket).expect("a file");
        let mut command = std::process::Command::new(std::env::current_exe().expect("a running test has a file"));
        command.args(["--exact", name, "--nocapture"]).env("BATON_TEST_SOCKET", &socket);
        let ended = command.stdout(std::process::Stdio::null()).stderr(file).status().expect("it can be run");
        assert!(ended.success());
        let numbers = |path: &Path| -> Vec<usize> {
            let found = std::fs::metadata(path).expect("a file");
            assert!(found.size() < LARGE + 200 && found.mode() & 0o077 == 0, "{found:?}");
            let text = std::fs::read_to_string(path).expect("a file");
            let number = |line: &str| line.split(' ').nth(1)?.parse().ok();
            text.lines().filter_map(number).collect()
        };
        let mut last = numbers(&socket.with_extension("log.1"));
        last.extend(numbers(&path));
        assert!(last.len() > 100, "{last:?}");
        assert_eq!(last, (LINES - last.len()..LINES).collect::<Vec<_>>(), "all of the last, in order");
        assert_eq!(folder.path().read_dir().expect("a folder").count(), 2);
    }

    #[test]
    fn a_socket_that_somebody_removes_is_put_there_again_with_its_folder_and_nobody_on_the_way_is_lost() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run").join("s.sock");
        let mut endpoint = Endpoint::claim(&path, uuid(), Visitors::Own).expect("free");
        let look = |endpoint: &mut Endpoint| {
            let mut watched = [rustix::event::PollFd::new(&endpoint.watch, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut watched, None).expect("it can be waited for");
            endpoint.heed_watch();
            std::thread::sleep(GRACE);
            let mut came = 0;
            let is_anew = endpoint.look(|_| came += 1);
            (is_anew.map_err(|error| error.to_string()), came)
        };
        std::fs::write(folder.path().join("run").join("other"), "").expect("a file");
        std::fs::remove_file(folder.path().join("run").join("other")).expect("a file");
        assert_eq!(look(&mut endpoint), (Ok(false), 0), "that was another file");
        for is_folder in [false, true] {
            let on_the_way = link::connect(&path, Chosen::ByUser, PATIENCE).expect("it listens");
            match is_folder {
                true => std::fs::remove_dir_all(folder.path().join("run")).expect("ours"),
                false => std::fs::remove_file(&path).expect("ours"),
            }
            assert_eq!(look(&mut endpoint), (Ok(true), 1));
            link::connect(&path, Chosen::ByUser, PATIENCE).expect("it listens again");
            endpoint.accept().expect("who has just come");
            drop(on_the_way);
        }
        std::fs::remove_file(&path).expect("ours");
        std::fs::write(&path, "precious").expect("a file");
        assert!(look(&mut endpoint).0.is_err_and(|error| error.contains("in the place")));
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "precious");
    }

    #[test]
    fn a_socket_for_metrics_is_ours_alone_and_takes_the_place_of_one_that_was_left() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s.sock");
        let endpoint = Endpoint::claim(&path, uuid(), Visitors::Own).expect("free");
        let beside = metrics_socket(&path);
        for _ in 0..2 {
            drop(endpoint.listen_beside().expect("free, or left behind"));
            assert_eq!(std::fs::metadata(&beside).expect("a socket").mode() & 0o077, 0);
        }
        endpoint.leave();
        assert!(!beside.exists());
        std::fs::write(&beside, "precious").expect("a file");
        says(endpoint.listen_beside(), &["no socket of yours"]);
        assert_eq!(std::fs::read_to_string(&beside).expect("there"), "precious");
    }

    #[test]
    fn a_folder_that_others_can_enter_or_that_is_a_link_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (open, link) = (folder.path().join("open"), folder.path().join("link"));
        std::fs::create_dir(&open).expect("a folder");
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o755)).expect("ours");
        says(Folder::private(&open), &["755", "chmod 700"]);
        symlink(folder.path(), &link).expect("a link");
        says(Folder::private(&link), &["link"]);
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).expect("ours");
        says(Folder::of_socket(&open.join("s.sock")), &["777"]);
        // The permissions of `/tmp`.
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o1777)).expect("ours");
        Folder::of_socket(&open.join("s.sock")).expect("sticky");
    }

    #[test]
    fn files_that_somebody_has_put_there_are_refused_and_stay_as_they_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "precious").expect("a file");
        let socket = folder.path().join("s.sock");
        let open = |extension: &str| match extension {
            "start" => start_lock(&socket).map(drop),
            _ => log_file(&socket).map(drop),
        };
        for extension in ["start", "log"] {
            let planted = socket.with_extension(extension);
            for plant in [symlink::<&Path, &Path>, std::fs::hard_link::<&Path, &Path>] {
                plant(&victim, &planted).expect("planted");
                says(open(extension), &["remove it", extension]);
                std::fs::remove_file(&planted).expect("ours");
            }
        }
        symlink(&victim, &socket).expect("planted");
        says(Endpoint::claim(&socket, uuid(), Visitors::Own), &["no socket"]);
        assert_eq!(std::fs::read_to_string(victim).expect("there"), "precious");
    }
}
