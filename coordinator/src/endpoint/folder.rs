//! A folder that no other user can change, and files in it.

use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use baton_contract::socket_path::own_folder;
use baton_messages::Message;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

/// The reason why a place is not used, in the user's words.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Unfit(#[from] Message);

/// Makes the reason why a place is not used.
pub(crate) fn unfit(path: &Path, error: impl std::fmt::Display) -> Unfit {
    Unfit(baton_messages::of_path(path.display(), error))
}

/// A file's identity in the system: its device and its number there.
pub(super) type FileId = (u64, u64);

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
    pub(super) fn of_shared_socket(socket: &Path) -> Result<Self, Unfit> {
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
    pub(super) fn watch(&self) -> Result<OwnedFd, Unfit> {
        let told = |error| unfit(&self.path, error);
        let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(told)?;
        // This opens the folder itself, even if its path names another one by now.
        let path = format!("/proc/self/fd/{}/.", self.handle.as_raw_fd());
        let what = WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        inotify::add_watch(&watch, path, what | WatchFlags::ONLYDIR).map_err(told)?;
        Ok(watch)
    }

    /// Returns the identity of the file of this name in the folder.
    pub(super) fn find(&self, name: &Path) -> Option<FileId> {
        let found = rustix::fs::statat(&self.handle, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        found.ok().map(|found| file_id(&found))
    }

    /// The path of the folder, by which it was opened.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives a file in the folder another name there.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> Result<(), Unfit> {
        let told = |error| unfit(&self.path.join(from), error);
        rustix::fs::renameat(&self.handle, from, &self.handle, to).map_err(told)
    }

    /// Removes a file in the folder, if it is there.
    pub(super) fn remove(&self, name: &Path) {
        let _ = rustix::fs::unlinkat(&self.handle, name, rustix::fs::AtFlags::empty());
    }
}

pub(super) fn file_id(found: &rustix::fs::Stat) -> FileId {
    (found.st_dev, found.st_ino)
}

/// Returns the folder of a socket.
fn folder_of(socket: &Path) -> &Path {
    socket.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the name of a path's file.
pub(super) fn name(path: &Path) -> &Path {
    path.file_name().map_or(path, Path::new)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::endpoint::tests::says;

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
}
