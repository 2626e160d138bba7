//! Sockets that listen, and the users who can connect to them.

use std::ffi::{CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname, listen, socket_with, sockopt,
};
use rustix::process::Gid;

use super::folder::{Unfit, unfit};

/// Maximum number of pending connections before `connect` waits. A newcomer is behind this many, and behind those that wait in
/// `connect`.
pub(super) const BACKLOG: i32 = 256;

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

/// A listening socket that a service manager has passed on.
#[derive(Debug)]
pub struct Passed {
    pub(super) listener: OwnedFd,
    pub(super) path: PathBuf,
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

/// Makes a socket that listens at this path, for these users.
pub(super) fn listen_at(path: &Path, kind: SocketType, visitors: Visitors) -> Result<OwnedFd, Unfit> {
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
