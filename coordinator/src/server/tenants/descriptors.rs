//! Descriptors that peers send, which may be of anything.
//!
//! Querying some files, or only closing them, may take for ever: a file of a file system in user space (FUSE) is flushed when it is
//! closed, and a socket may linger. So this module makes no query that a file system answers, and closes descriptors of unexpected
//! kinds in a thread of its own. The receiver gets a device in their place, and can only see that it is not the expected file.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use rustix::fs::{AtFlags, FileType, MemfdFlags, StatxFlags, memfd_create, statx};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

/// The major number of NVIDIA's devices.
const NVIDIA: u32 = 195;
/// The most descriptors of a guest that are not closed yet. Beyond that, no more are taken from it.
const MOST_UNCLOSED: usize = 16;

/// The number of descriptors being closed for each user that sent them.
static UNCLOSED: Mutex<BTreeMap<u32, usize>> = Mutex::new(BTreeMap::new());

fn unclosed() -> MutexGuard<'static, BTreeMap<u32, usize>> {
    UNCLOSED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The mount of a descriptor's file, as the system itself knows it.
fn mount(descriptor: BorrowedFd<'_>) -> Option<u64> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd())).ok()?;
    info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim().parse().ok()
}

/// The mounts of memory files and of processes, into which no user can put a file.
fn safe_mounts() -> &'static [u64] {
    static SAFE: OnceLock<Vec<u64>> = OnceLock::new();
    SAFE.get_or_init(|| {
        let memory = memfd_create("baton-kind", MemfdFlags::CLOEXEC).ok();
        let process = pidfd_open(getpid(), PidfdFlags::empty()).ok();
        [memory, process].iter().flatten().filter_map(|one| mount(one.as_fd())).collect()
    })
}

/// True if the descriptor can be queried and closed at once, whichever process has sent it.
fn is_safe(descriptor: BorrowedFd<'_>) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let Ok(found) = statx(descriptor, "", flags, StatxFlags::TYPE) else { return false };
    match FileType::from_raw_mode(found.stx_mode.into()) {
        FileType::CharacterDevice => found.stx_rdev_major == NVIDIA,
        FileType::Socket | FileType::Directory | FileType::BlockDevice => false,
        // The same goes for a file without a type.
        _ => mount(descriptor).is_some_and(|mount| safe_mounts().contains(&mount)),
    }
}

/// True if a guest's descriptors are taken now.
pub(super) fn are_taken_from(guest: Option<u32>) -> bool {
    guest.is_none_or(|user| unclosed().get(&user).is_none_or(|count| *count < MOST_UNCLOSED))
}

/// The descriptors that a user has sent, with a harmless one in place of each that is not. None if no harmless one is available.
pub(super) fn harmless(sent: Vec<OwnedFd>, guest: Option<u32>) -> Option<Vec<OwnedFd>> {
    let (mut all, mut is_whole) = (Vec::new(), true);
    for one in sent {
        if is_safe(one.as_fd()) {
            all.push(one);
            continue;
        }
        close_elsewhere(one, guest);
        match File::open("/dev/null") {
            Ok(nothing) => all.push(nothing.into()),
            Err(_) => is_whole = false,
        }
    }
    is_whole.then_some(all)
}

fn close_elsewhere(odd: OwnedFd, guest: Option<u32>) {
    if let Some(user) = guest {
        *unclosed().entry(user).or_default() += 1;
    }
    // If there can be no thread, it is closed here, and may take its time.
    let _ = thread::Builder::new().name("closer".to_owned()).spawn(move || {
        drop(odd);
        let Some(user) = guest else { return };
        let mut all = unclosed();
        match all.get_mut(&user) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(all.remove(&user)),
        }
    });
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn memory_and_processes_are_known_and_all_else_is_neither_asked_nor_closed_here() {
        let memory = memfd_create("one", MemfdFlags::CLOEXEC).expect("a file");
        let process = pidfd_open(getpid(), PidfdFlags::empty()).expect("this one");
        assert!([&memory, &process].iter().all(|one| is_safe(one.as_fd())));
        let (one_end, other_end) = std::io::pipe().expect("a pipe");
        let (socket, _) = UnixStream::pair().expect("sockets");
        let named = tempfile::tempfile().expect("a file");
        let [null, folder] = ["/dev/null", "/"].map(|path| OwnedFd::from(File::open(path).expect("there")));
        let odd: Vec<OwnedFd> = vec![one_end.into(), other_end.into(), socket.into(), named.into(), null, folder];
        assert!(odd.iter().all(|one| !is_safe(one.as_fd())));
        let count = odd.len();
        let got = harmless(odd, None).expect("descriptors are left");
        assert_eq!(got.len(), count);
        let is_null = |one: &OwnedFd| {
            statx(one, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE)
                .is_ok_and(|one| (one.stx_rdev_major, one.stx_rdev_minor) == (1, 3))
        };
        assert!(got.iter().all(is_null));
        assert_eq!(harmless(vec![memory, process], None).map(|all| all.len()), Some(2));
    }
}
