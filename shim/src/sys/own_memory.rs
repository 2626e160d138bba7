//! Reading memory of this process that may not be there any more, or never was: without a fault.

use core::ffi::c_void;

/// How much is read at a time.
const PIECE: usize = 64 << 10;
/// How much of each piece the next one has too.
const OVERLAP: usize = 8;

/// Hands all bytes from an address on to `see`, in pieces. Each begins with the last 8 bytes of the one before, so that no
/// word is cut. False if not all of them can be read. (`process_vm_readv` on ourselves; where the system forbids that, nothing
/// can.)
pub(crate) fn read(at: usize, bytes: usize, mut see: impl FnMut(&[u8])) -> bool {
    let mut buffer = vec![0u8; bytes.min(PIECE)];
    let mut done = 0;
    while done < bytes {
        let size = buffer.len().min(bytes - done);
        let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: size };
        let remote = libc::iovec { iov_base: core::ptr::without_provenance_mut::<c_void>(at + done), iov_len: size };
        // SAFETY: writes into the buffer, which has this size; whether the rest can be read is for the system to say.
        let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        if read != size as isize {
            return false;
        }
        see(&buffer[..size]);
        done += size;
        if done < bytes {
            done -= OVERLAP;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_read_in_pieces_and_what_is_not_is_no_fault() {
        let bytes: Vec<u8> = (0..3 * PIECE + 5).map(|n| (n % 251) as u8).collect();
        let mut seen = Vec::new();
        assert!(read(bytes.as_ptr().addr(), bytes.len(), |piece| {
            let known = if seen.is_empty() { 0 } else { OVERLAP };
            assert!(seen.ends_with(&piece[..known]));
            seen.extend_from_slice(&piece[known..]);
        }));
        assert_eq!(seen, bytes);
        assert!(!read(8, 16, |_| panic!("nothing is there")));
        // SAFETY: a new mapping wherever the system likes, of which the second half is given back.
        let page = unsafe {
            let at = libc::mmap(
                core::ptr::null_mut(),
                8192,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_eq!(libc::munmap(at.byte_add(4096), 4096), 0);
            at.addr()
        };
        assert!(read(page, 4096, |_| ()));
        assert!(!read(page, 4104, |_| ()));
    }
}
