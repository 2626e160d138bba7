//! Files that are open somewhere: by a descriptor of some process, by one on its way in a socket, by a mapping.
//!
//! No process sees all of them. But a lock of an open file description lasts as long as that does, and the kernel lists all locks, with
//! the files that they are on, to everybody.
#![allow(unsafe_code, reason = "fcntl with a structure")]

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd};

/// A file, as the kernel tells files apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Marks a file, so that it is listed as long as any copy of this descriptor is open, or mapped. No file if it cannot be marked.
    pub(crate) fn mark(file: impl AsFd) -> FileId {
        let file = file.as_fd();
        // SAFETY: zeros are a valid value of this structure of integers.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        // A lock that all can have at once.
        (lock.l_type, lock.l_whence, lock.l_len) = (libc::F_RDLCK as _, libc::SEEK_SET as _, 1);
        // SAFETY: an open file, and a structure that lives over the call.
        let is_marked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) } == 0;
        match rustix::fs::fstat(file) {
            Ok(stat) if is_marked => FileId { device: stat.st_dev, inode: stat.st_ino },
            _ => FileId::default(),
        }
    }

    /// From the table's words, and for them; zeros are no file.
    pub(super) fn from_words([device, inode]: [u64; 2]) -> FileId {
        FileId { device, inode }
    }

    pub(super) fn words(self) -> [u64; 2] {
        [self.device, self.inode]
    }

    pub(super) fn is_some(self) -> bool {
        self.inode != 0
    }
}

/// Those of these files that are not open any more.
pub(super) fn closed(files: impl Iterator<Item = FileId>) -> BTreeSet<FileId> {
    let mut closed: BTreeSet<FileId> = files.collect();
    // The kernel tells the list page by page, and may skip one between two pages if a lock before it goes meanwhile.
    for _ in 0..LOOKS {
        if closed.is_empty() {
            break;
        }
        // Without a list, none is known to be open.
        let Ok(list) = std::fs::read_to_string("/proc/locks") else { break };
        for file in list.lines().filter_map(marked) {
            closed.remove(&file);
        }
    }
    closed
}

const LOOKS: usize = 4;

/// The file of a line with a mark: `12: OFDLCK ADVISORY  READ -1 00:01:1234 0 0`.
fn marked(line: &str) -> Option<FileId> {
    let mut words = line.split_ascii_whitespace().skip(1);
    if words.next() != Some("OFDLCK") {
        return None;
    }
    let mut place = words.nth(3)?.split(':');
    let mut number = |radix| u64::from_str_radix(place.next()?, radix).ok();
    let (major, minor, inode) = (number(16)?, number(16)?, number(10)?);
    Some(FileId { device: libc::makedev(major as u32, minor as u32), inode })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};

    #[test]
    fn a_file_is_open_until_its_last_descriptor_and_mapping_are_gone() {
        let file = memfd_create("marked", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        let id = FileId::mark(&file);
        let is_open = || closed([id].into_iter()).is_empty();
        assert!(id.is_some() && is_open());
        let copy = file.try_clone().unwrap();
        let mapping = crate::mapping::SharedBytes::map(&file, 4096).unwrap();
        drop(file);
        assert!(is_open());
        drop(copy);
        assert!(is_open());
        drop(mapping);
        // A process that another test starts has all descriptors for a moment.
        while is_open() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn lines_about_other_locks_name_no_file() {
        assert_eq!(marked("7: OFDLCK ADVISORY  READ -1 00:1f:1234 0 0").unwrap().inode, 1234);
        for line in ["1: POSIX  ADVISORY  WRITE 77 00:01:1234 0 EOF", "2: -> OFDLCK ADVISORY  WRITE 7 00:01:5 0 0", ""]
        {
            assert_eq!(marked(line), None, "{line}");
        }
    }
}
