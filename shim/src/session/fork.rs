//! Forked children: CUDA does not work there, and a child must not keep the parent's GPU memory alive.
//!
//! The driver's descriptors hold their process's GPU memory for as long as any process has them open (measured: with a living child,
//! nothing of a killed parent comes back; with its descriptors replaced, all of it in 50 ms). A child that calls `exec` closes them by
//! itself. One that lives on, as a data loader's worker does, is given `/dev/null` in their place, under the same numbers, so that no
//! other file gets those. Devices that another library has opened stay: NVML works again in a child that initialises it again, and never
//! without its own (measured).
//!
//! This runs between fork and the child's next call, when other threads' locks may be held for ever: only system calls, no allocation.

use core::ffi::{CStr, c_int};

use crate::channels;

/// The names of the driver's devices, and of those among them that hold no memory.
const DEVICES: &[u8] = b"/dev/nvidia";
const CAPABILITIES: &[u8] = b"/dev/nvidia-caps";

/// Replaces every descriptor of a GPU.
pub(super) fn let_go_of_the_gpu() {
    // SAFETY: constant paths and flags.
    let (list, null) = unsafe {
        let list = libc::open(c"/proc/self/fd".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
        (list, libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC))
    };
    if list >= 0 && null >= 0 {
        for_each_number(list, |number| {
            let is_cudas = || is_a_gpu(number) && !channels::is_another_librarys(number);
            if number != list && number != null && is_cudas() {
                // SAFETY: both are open; the driver's state in this process is of no use any more.
                unsafe { libc::dup3(null, number, libc::O_CLOEXEC) };
            }
        });
    }
    for descriptor in [list, null] {
        if descriptor >= 0 {
            // SAFETY: opened above.
            unsafe { libc::close(descriptor) };
        }
    }
}

/// Walks a directory whose names are numbers.
fn for_each_number(directory: c_int, mut each: impl FnMut(c_int)) {
    // Offsets of the length and the name in a `linux_dirent64`.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    #[repr(align(8))]
    struct Buffer([u8; 4096]);
    let mut buffer = Buffer([0; 4096]);
    loop {
        // SAFETY: a buffer with its size.
        let read = unsafe { libc::syscall(libc::SYS_getdents64, directory, buffer.0.as_mut_ptr(), buffer.0.len()) };
        let Some(mut entries) = usize::try_from(read).ok().filter(|read| *read > 0).and_then(|n| buffer.0.get(..n))
        else {
            return;
        };
        while let Some(&[low, high]) = entries.get(LENGTH..LENGTH + 2) {
            let length = usize::from(u16::from_le_bytes([low, high]));
            let name = entries.get(NAME..length).and_then(|name| CStr::from_bytes_until_nul(name).ok());
            if let Some(number) = name.and_then(number) {
                each(number);
            }
            let Some(rest) = entries.get(length..).filter(|_| length > 0) else { return };
            entries = rest;
        }
    }
}

fn number(name: &CStr) -> Option<c_int> {
    name.to_str().ok()?.parse().ok()
}

/// True if a descriptor is one of the driver's devices.
fn is_a_gpu(number: c_int) -> bool {
    // "/proc/self/fd/" and up to ten digits.
    let mut path = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0";
    let (mut digits, mut left, mut count) = ([0u8; 10], number, 0);
    while count == 0 || left > 0 {
        digits[count] = b'0' + (left % 10) as u8;
        left /= 10;
        count += 1;
    }
    for (at, digit) in digits[..count].iter().rev().enumerate() {
        path[14 + at] = *digit;
    }
    let mut target = [0u8; 16];
    // SAFETY: a C string, and a buffer with its size.
    let read = unsafe { libc::readlink(path.as_ptr().cast(), target.as_mut_ptr().cast(), target.len()) };
    usize::try_from(read)
        .is_ok_and(|read| target[..read].starts_with(DEVICES) && !target[..read].starts_with(CAPABILITIES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn every_open_descriptor_is_found() {
        let files: Vec<_> = (0..300).map(|_| std::fs::File::open("/dev/null").expect("there")).collect();
        let list = std::fs::File::open("/proc/self/fd").expect("there");
        let mut found = Vec::new();
        for_each_number(list.as_raw_fd(), |number| found.push(number));
        assert!(files.iter().all(|file| found.contains(&file.as_raw_fd())));
        assert!(files.iter().all(|file| !is_a_gpu(file.as_raw_fd())));
    }
}
