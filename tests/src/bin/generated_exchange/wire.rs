//! Messages between the two processes: a descriptor or none, eight words, the length of a text and the text, which is JSON.

use std::io::{self, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use baton_tests::generated::exchange::Act;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::side::{Done, Passed};
use baton_tests::driver::Data;

/// The result of a step.
#[derive(Serialize, Deserialize)]
pub(crate) enum Answer {
    Said(String),
    Failed(String),
}

/// A socket to the other process.
pub(crate) struct Wire(UnixStream);

/// Room for one descriptor.
#[repr(align(8))]
struct Room([u8; 32]);

impl Wire {
    pub(crate) fn new(socket: UnixStream) -> Self {
        Self(socket)
    }

    /// Has the other process do a step.
    pub(crate) fn ask(&mut self, act: &Act, passed: Passed) -> Done<(Passed, String)> {
        self.send(act, passed).map_err(|error| error.to_string())?;
        match self.receive() {
            Some((Answer::Said(said), passed)) => Ok((passed, said)),
            Some((Answer::Failed(why), _)) => Err(why),
            None => Err("the other process is gone".to_owned()),
        }
    }

    pub(crate) fn send(&mut self, what: &impl Serialize, passed: Passed) -> io::Result<()> {
        let text = serde_json::to_vec(what)?;
        self.send_descriptor(passed.descriptor.as_ref())?;
        let words = passed.data.into_iter().chain([text.len() as u64]).flat_map(|word| word.to_ne_bytes());
        self.0.write_all(&words.collect::<Vec<u8>>())?;
        self.0.write_all(&text)
    }

    /// Nothing once the other one is gone.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> Option<(T, Passed)> {
        let descriptor = self.receive_descriptor()?;
        let mut words = [0; 72];
        self.0.read_exact(&mut words).ok()?;
        let mut words = words.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")));
        let data: Data = std::array::from_fn(|_| words.next().unwrap_or(0));
        let mut text = vec![0; words.next()? as usize];
        self.0.read_exact(&mut text).ok()?;
        Some((serde_json::from_slice(&text).ok()?, Passed { data, descriptor }))
    }

    /// As one byte, which says whether there is one.
    fn send_descriptor(&self, descriptor: Option<&OwnedFd>) -> io::Result<()> {
        let (mut byte, mut room) = ([u8::from(descriptor.is_some())], Room([0; 32]));
        let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let mut header = message(&mut part);
        if let Some(descriptor) = descriptor {
            header.msg_control = room.0.as_mut_ptr().cast();
            // SAFETY: the room is aligned and large enough for a header and one descriptor.
            unsafe {
                header.msg_controllen = libc::CMSG_SPACE(4) as usize;
                let with = libc::CMSG_FIRSTHDR(&header);
                ((*with).cmsg_level, (*with).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
                (*with).cmsg_len = libc::CMSG_LEN(4) as usize;
                libc::CMSG_DATA(with).cast::<i32>().write_unaligned(descriptor.as_raw_fd());
            }
        }
        // SAFETY: the header names a byte and a room that live until the call returns.
        let sent = unsafe { libc::sendmsg(self.0.as_raw_fd(), &header, libc::MSG_NOSIGNAL) };
        if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn receive_descriptor(&self) -> Option<Option<OwnedFd>> {
        let (mut byte, mut room) = ([0_u8], Room([0; 32]));
        let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let mut header = message(&mut part);
        (header.msg_control, header.msg_controllen) = (room.0.as_mut_ptr().cast(), room.0.len());
        // SAFETY: as above.
        let got = unsafe { libc::recvmsg(self.0.as_raw_fd(), &mut header, libc::MSG_CMSG_CLOEXEC) };
        if got != 1 {
            return None;
        }
        // SAFETY: the kernel has filled in the header; one descriptor comes with it, ours from now on.
        let descriptor = unsafe {
            let with = libc::CMSG_FIRSTHDR(&header);
            let is_there = !with.is_null() && (*with).cmsg_type == libc::SCM_RIGHTS;
            is_there.then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(with).cast::<i32>().read_unaligned()))
        };
        (descriptor.is_some() == (byte[0] == 1)).then_some(descriptor)
    }
}

fn message(part: &mut libc::iovec) -> libc::msghdr {
    // SAFETY: all zeros are a header of nothing.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    (header.msg_iov, header.msg_iovlen) = (part, 1);
    header
}
