//! Reading the loader's cache, `/etc/ld.so.cache`, as `ldconfig -p` does.
//!
//! We cannot ask the loader itself: by its rules this library *is* `libcuda.so.1`. The layout is glibc's `struct cache_file_new`
//! (`sysdeps/generic/dl-cache.h`): a header of 48 bytes that starts with the magic, then entries of 24 bytes (flags, offset of the name,
//! offset of the path, two fields that are skipped), then the strings; offsets count from the header. Old caches carry another format in
//! front, so the magic is searched for.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER: usize = 48;
const ENTRY: usize = 24;
/// `FLAG_ELF_LIBC6 | FLAG_X8664_LIB64`: libraries for this architecture.
const X86_64: u32 = 0x0303;

/// The files that the cache lists for a library, in its order.
pub(crate) fn paths_of(name: &str) -> Vec<PathBuf> {
    std::fs::read("/etc/ld.so.cache").map(|bytes| search(&bytes, name)).unwrap_or_default()
}

fn search(bytes: &[u8], name: &str) -> Vec<PathBuf> {
    let Some(start) = bytes.windows(MAGIC.len()).position(|window| window == MAGIC) else {
        return Vec::new();
    };
    let cache = &bytes[start..];
    let Some(count) = word(cache, 20) else { return Vec::new() };
    let entry = |i: usize| -> Option<(u32, &[u8], &[u8])> {
        let at = HEADER + i * ENTRY;
        Some((word(cache, at)?, string(cache, word(cache, at + 4)?)?, string(cache, word(cache, at + 8)?)?))
    };
    // `map_while` ends at the first entry that lies outside the file, even if the count claims more.
    (0..count as usize)
        .map_while(entry)
        .filter(|(flags, key, _)| *flags == X86_64 && *key == name.as_bytes())
        .map(|(_, _, path)| PathBuf::from(OsStr::from_bytes(path)))
        .collect()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn string(bytes: &[u8], at: u32) -> Option<&[u8]> {
    bytes.get(at as usize..)?.split(|b| *b == 0).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: &[(u32, &str, &str)]) -> Vec<u8> {
        let mut head = MAGIC.to_vec();
        head.extend((entries.len() as u32).to_le_bytes());
        head.resize(HEADER, 0);
        let mut strings = Vec::new();
        let base = HEADER + entries.len() * ENTRY;
        for (flags, name, path) in entries {
            let mut offsets = [0u32; 2];
            for (offset, text) in offsets.iter_mut().zip([name, path]) {
                *offset = (base + strings.len()) as u32;
                strings.extend(text.as_bytes());
                strings.push(0);
            }
            head.extend(flags.to_le_bytes());
            head.extend(offsets.iter().flat_map(|o| o.to_le_bytes()));
            head.extend([0; 12]);
        }
        head.extend(strings);
        head
    }

    #[test]
    fn the_library_is_found_among_others_and_in_this_architecture_only() {
        let bytes = cache(&[
            (X86_64, "libc.so.6", "/lib/libc.so.6"),
            (0x0003, "libcuda.so.1", "/lib32/libcuda.so.1"),
            (X86_64, "libcuda.so.1", "/opt/driver/libcuda.so.1"),
        ]);
        assert_eq!(search(&bytes, "libcuda.so.1"), [PathBuf::from("/opt/driver/libcuda.so.1")]);
    }

    #[test]
    fn a_cache_that_is_cut_short_anywhere_finds_less_and_does_no_harm() {
        let bytes = cache(&[(X86_64, "libc.so.6", "/lib/libc.so.6"), (X86_64, "libcuda.so.1", "/d/libcuda.so.1")]);
        for end in 0..bytes.len() {
            search(&bytes[..end], "libcuda.so.1");
        }
    }

    #[test]
    fn this_machines_own_cache_lists_the_c_library() {
        if std::path::Path::new("/etc/ld.so.cache").exists() {
            assert!(paths_of("libc.so.6").iter().any(|path| path.exists()));
        }
    }
}
