//! Files that this process may share with others by mappings.

use std::fs::File;
use std::io::{BufRead as _, BufReader};

use baton_contract::messages::FileId;

use super::cancel;

/// The file behind an address, if this process can write to it there and others can have the same mapped. (By `/proc/self/maps`; where there
/// is none, no file is found.)
pub(crate) fn at(address: u64) -> Option<FileId> {
    let _uncancelled = cancel::Off::begin();
    let maps = File::open("/proc/self/maps").ok()?;
    // Paths may have any bytes.
    let lines = BufReader::new(maps).split(b'\n').map_while(Result::ok);
    lines.map(|line| Mapping::of(&line)).find_map(|mapping| mapping.filter(|one| one.has(address)))?.shared_file()
}

/// A line of that list.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    is_shared: bool,
    file: FileId,
}

impl Mapping {
    /// A line such as `7f00-7f10 rw-s 00000000 00:1a 42   /dev/shm/name (deleted)`.
    fn of(line: &[u8]) -> Option<Self> {
        let mut words = line.split(|byte| *byte == b' ').map(|word| str::from_utf8(word).unwrap_or_default());
        let hex = |word: &str| u64::from_str_radix(word, 16).ok();
        let (start, end) = words.next()?.split_once('-')?;
        let rights = words.next()?;
        let _offset = words.next()?;
        let (major, minor) = words.next()?.split_once(':')?;
        let file = FileId { device: hex(major)? << 32 | hex(minor)?, inode: words.next()?.parse().ok()? };
        let is_shared = rights.starts_with("rw") && rights.ends_with('s') && file.inode != 0;
        Some(Self { start: hex(start)?, end: hex(end)?, is_shared, file })
    }

    fn has(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    fn shared_file(&self) -> Option<FileId> {
        self.is_shared.then_some(self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd as _, FromRawFd as _};
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn a_line_is_read_and_only_what_others_may_write_is_shared() {
        let of = |line: &str| Mapping::of(line.as_bytes()).expect("a mapping");
        let file = FileId { device: 0x1a, inode: 42 };
        let shared = of("7f00-7f10 rw-s 00000000 00:1a 42     /dev/shm/na me (deleted)");
        assert_eq!(shared, Mapping { start: 0x7f00, end: 0x7f10, is_shared: true, file });
        assert!(shared.has(0x7f00) && !shared.has(0x7f10));
        assert_eq!(shared.shared_file(), Some(file));
        for not in ["7f00-7f10 rw-p 0 00:1a 42 /a", "7f00-7f10 r--s 0 00:1a 42 /a", "7f00-7f10 rw-s 0 00:00 0 "] {
            assert_eq!(of(not).shared_file(), None, "{not}");
        }
        assert_eq!((Mapping::of(b""), Mapping::of(b"7f00-7f10 rw-s")), (None, None));
    }

    #[test]
    fn the_file_of_a_mapping_is_found() {
        // SAFETY: a C string; the descriptor is new, and owned here.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"shared".as_ptr(), 0)) };
        file.set_len(4096).expect("room");
        let map = |flags| {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new mapping of a file of ours.
            let at = unsafe { libc::mmap(core::ptr::null_mut(), 4096, rights, flags, file.as_raw_fd(), 0) };
            assert_ne!(at, libc::MAP_FAILED);
            at.addr() as u64
        };
        let (shared, own) = (map(libc::MAP_SHARED), map(libc::MAP_PRIVATE));
        let inode = file.metadata().expect("facts").ino();
        assert_eq!(at(shared + 100).map(|file| file.inode), Some(inode));
        assert_eq!((at(own), at(1)), (None, None));
    }
}
