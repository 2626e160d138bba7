//! The driver's functions that move a process off the GPU.
//!
//! The driver suspends a program under Baton whose memory is on the GPU, but cannot resume it: it does not restore memory that the process
//! has from another one (measured on an H200 with driver 580: restoring answers 801, and the program hangs). So the call is refused, as
//! the driver itself refuses it for programs that it cannot resume. Programs that take no turns are left to the driver.

use core::ffi::{c_int, c_void};

use baton_contract::cuda::{CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS, CUresult};

use crate::driver::api;
use crate::sys::cancel;

type OfProcess = unsafe extern "C-unwind" fn(c_int, *mut c_void) -> CUresult;

/// Hook of the calls that lock or suspend a process.
pub(super) unsafe fn suspend(original: OfProcess, process: c_int, arguments: *mut c_void) -> CUresult {
    if is_under_baton(process) {
        let mut state = 0;
        // The driver's answer to any other error in the call comes first.
        // SAFETY: an out-parameter. The driver has this function if it has the one that is called.
        return match unsafe { api::checkpoint_state(process, &mut state) } {
            CUDA_SUCCESS => CUDA_ERROR_NOT_SUPPORTED,
            answer => answer,
        };
    }
    // SAFETY: the driver's own function with the program's own arguments.
    unsafe { original(process, arguments) }
}

/// True if a process has this library loaded. If its mappings cannot be read, the driver has the answer.
fn is_under_baton(process: c_int) -> bool {
    let _uncancelled = cancel::Off::begin();
    std::fs::read(format!("/proc/{process}/maps")).is_ok_and(|maps| lists_us(&maps))
}

/// True if this library is among a process's mappings (`/proc/PID/maps`).
fn lists_us(maps: &[u8]) -> bool {
    const NAME: &[u8] = b"/libbaton.so";
    maps.split(|byte| *byte == b'\n').any(|line| {
        // The name of a replaced file has a suffix.
        let line = line.strip_suffix(b" (deleted)").unwrap_or(line);
        line.ends_with(NAME)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_under_baton_is_known_by_its_mappings() {
        let other = b"7f00-7f10 r-xp 00000000 08:01 17   /usr/lib/libc.so.6\n7f20-7f30 rw-p 00000000 00:00 0 \n";
        assert!(!lists_us(other));
        let deleted = [&other[..], b"7f40-7f50 r-xp 00000000 08:01 18   /opt/baton/libbaton.so (deleted)\n"].concat();
        assert!(lists_us(&deleted));
        assert!(lists_us(b"7f40-7f50 r-xp 00000000 08:01 18   /opt/baton/libbaton.so"));
        assert!(!lists_us(b"7f40-7f50 r-xp 00000000 08:01 18   /opt/baton/libbaton.so.txt"));
    }

    #[test]
    fn a_process_that_is_none_is_the_drivers_to_refuse() {
        assert!(!is_under_baton(-1) && !is_under_baton(0));
    }
}
