//! Messages and descriptors over a Unix `SOCK_SEQPACKET` socket: the one place where both sides call the system.

use alloc::vec::Vec;
use core::mem::{MaybeUninit, size_of};
use core::ptr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::wire::{MAX_DESCRIPTORS, MAX_MESSAGE};

/// Room for the descriptors of one message, aligned as `cmsghdr` wants it.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

const CONTROL_BYTES: usize = {
    // SAFETY: arithmetic only.
    unsafe { libc::CMSG_SPACE((MAX_DESCRIPTORS * size_of::<RawFd>()) as u32) as usize }
};

/// Sends one message with its descriptors. Never raises SIGPIPE.
///
/// # Errors
///
/// As `sendmsg`; with `nowait`, `WouldBlock` when the peer does not read.
pub fn send(socket: BorrowedFd<'_>, message: &[u8], descriptors: &[BorrowedFd<'_>], nowait: bool) -> io::Result<()> {
    assert!(descriptors.len() <= MAX_DESCRIPTORS, "messages are built within their limits");
    let mut part = libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: message.len() };
    let mut control = Control([0; CONTROL_BYTES]);
    // SAFETY: a header of zeros is a valid one that names nothing.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    if !descriptors.is_empty() {
        let bytes = size_of_val(descriptors);
        const { assert!(size_of::<BorrowedFd<'_>>() == size_of::<RawFd>()) };
        header.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: `control` has room for a header and the most descriptors there may be; borrowed descriptors
        // are plain integers by their documented layout.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(bytes as u32) as usize;
            let first = libc::CMSG_FIRSTHDR(&header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(bytes as u32) as usize;
            ptr::copy_nonoverlapping(descriptors.as_ptr().cast::<u8>(), libc::CMSG_DATA(first), bytes);
        }
    }
    let flags = libc::MSG_NOSIGNAL | if nowait { libc::MSG_DONTWAIT } else { 0 };
    loop {
        // SAFETY: the header names memory that lives until the call returns.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &header, flags) };
        if sent >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// A message as it came.
#[derive(Debug)]
pub struct Received {
    /// Its bytes; one more than [`MAX_MESSAGE`] if it was longer than any message is.
    pub message: Vec<u8>,
    /// Its descriptors, closed on exec.
    pub descriptors: Vec<OwnedFd>,
}

/// Receives one message; none when the peer has gone.
///
/// # Errors
///
/// As `recvmsg`; with `nowait`, `WouldBlock` when there is none yet.
pub fn receive(socket: BorrowedFd<'_>, nowait: bool) -> io::Result<Option<Received>> {
    let mut message: Vec<u8> = Vec::with_capacity(MAX_MESSAGE + 1);
    let mut part = libc::iovec { iov_base: message.as_mut_ptr().cast(), iov_len: MAX_MESSAGE + 1 };
    let mut control = Control([0; CONTROL_BYTES]);
    // SAFETY: a header of zeros is a valid one that names nothing.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_BYTES;
    let flags = libc::MSG_CMSG_CLOEXEC | if nowait { libc::MSG_DONTWAIT } else { 0 };
    let length = loop {
        // SAFETY: the header names memory that lives until the call returns, with its true sizes.
        let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) };
        if length >= 0 {
            break length as usize;
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::ConnectionReset => return Ok(None),
            _ => return Err(error),
        }
    };
    // SAFETY: the system has written so many bytes, no more than there is room for.
    unsafe { message.set_len(length) };
    let mut descriptors = Vec::new();
    // SAFETY: walks the control messages that the system has written; every descriptor in them is new and ours.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(&header);
        while !at.is_null() {
            if (*at).cmsg_level == libc::SOL_SOCKET && (*at).cmsg_type == libc::SCM_RIGHTS {
                let count = ((*at).cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                let first = libc::CMSG_DATA(at).cast::<RawFd>();
                descriptors.extend((0..count).map(|i| OwnedFd::from_raw_fd(first.add(i).read_unaligned())));
            }
            at = libc::CMSG_NXTHDR(&header, at);
        }
    }
    // An empty message is how the end of the stream looks; no message of ours is empty.
    if length == 0 && descriptors.is_empty() {
        return Ok(None);
    }
    Ok(Some(Received { message, descriptors }))
}
