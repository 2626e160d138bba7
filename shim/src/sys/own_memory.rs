//! Reads memory of this process that may have gone, or never existed, without a fault.

use core::ffi::c_void;

/// The size of a piece that is read at once.
const PIECE: usize = 64 << 10;
/// The size of the overlap of two pieces.
const OVERLAP: usize = 8;

/// Hands all bytes from an address on to `see`, in pieces. Each begins with the last 8 bytes of the one before, so that no word is cut.
/// False if not all of them can be read. (By `process_vm_readv` on this process; where the system forbids that, nothing can be read.)
pub(crate) fn read(at: usize, bytes: usize, see: impl FnMut(&[u8])) -> bool {
    in_pieces(at, bytes, see, |at, piece| {
        let local = libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() };
        let remote = libc::iovec { iov_base: core::ptr::without_provenance_mut::<c_void>(at), iov_len: piece.len() };
        // SAFETY: writes into the piece; the system checks whether the rest can be read.
        let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        read == piece.len() as isize
    })
}

/// Reads memory that is known to be there: several times as fast.
///
/// # Safety
///
/// So many bytes from `at`, an exposed address, can be read meanwhile. They may change.
pub(crate) unsafe fn read_known(at: usize, bytes: usize, see: impl FnMut(&[u8])) {
    in_pieces(at, bytes, see, |at, piece| {
        // SAFETY: by this function's contract. Bytes that change meanwhile are read before or after the change.
        unsafe {
            core::ptr::copy_nonoverlapping(core::ptr::with_exposed_provenance(at), piece.as_mut_ptr(), piece.len());
        }
        true
    });
}

/// True if any memory is mapped at an address.
pub(crate) fn is_mapped(at: usize) -> bool {
    const PAGE: usize = 4096;
    let mut is_resident = 0;
    let page = core::ptr::without_provenance_mut(at & !(PAGE - 1));
    // SAFETY: reads nothing there, and writes one byte about one page.
    unsafe { libc::mincore(page, PAGE, &mut is_resident) == 0 }
}

fn in_pieces(at: usize, bytes: usize, mut see: impl FnMut(&[u8]), fetch: impl Fn(usize, &mut [u8]) -> bool) -> bool {
    let mut buffer = vec![0u8; bytes.min(PIECE)];
    let mut done = 0;
    while done < bytes {
        let size = buffer.len().min(bytes - done);
        if !fetch(at + done, &mut buffer[..size]) {
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
        let mut again = Vec::new();
        // SAFETY: all of it is there.
        unsafe {
            read_known(bytes.as_ptr().expose_provenance(), bytes.len(), |piece| {
                let known = if again.is_empty() { 0 } else { OVERLAP };
                again.extend_from_slice(&piece[known..]);
            });
        }
        assert_eq!(again, bytes);
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
        assert!(is_mapped(page) && is_mapped(page + 4095) && !is_mapped(page + 4096) && !is_mapped(8));
        assert!(read(page, 4096, |_| ()));
        assert!(!read(page, 4104, |_| ()));
    }
}
