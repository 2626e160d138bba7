//! One socket to a tenant, which never makes the server wait.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use baton_contract::link;
use baton_contract::messages::Message;
use baton_contract::wire::{GpuNumber, Malformed};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::server::event_loop::Interest;

/// A tenant that reads nothing gets no more than this many messages kept for it.
const MOST_KEPT: usize = 4096;

/// A socket and what could not be sent yet.
#[derive(Debug)]
pub(in crate::server) struct Peer {
    /// The GPU that is talked about.
    gpu: GpuNumber,
    socket: OwnedFd,
    kept: VecDeque<(Vec<u8>, Vec<OwnedFd>)>,
}

/// The connection is of no use any more.
#[derive(Debug)]
pub(in crate::server) struct Lost;

impl Peer {
    pub(in crate::server) fn new(socket: OwnedFd, gpu: GpuNumber) -> Self {
        Self { gpu, socket, kept: VecDeque::new() }
    }

    /// Sends a message, or keeps it while the tenant does not read.
    pub(in crate::server) fn send(&mut self, message: &impl Message, with: &[BorrowedFd<'_>]) -> Result<(), Lost> {
        debug_assert_eq!(message.descriptors(), with.len(), "{message:?}");
        let bytes = message.encode(self.gpu);
        if self.kept.is_empty() {
            match link::send(self.socket.as_fd(), &bytes, with, true) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Err(Lost),
            }
        }
        if self.kept.len() >= MOST_KEPT {
            return Err(Lost);
        }
        let with: Result<Vec<OwnedFd>, _> = with.iter().map(|fd| fd.try_clone_to_owned()).collect();
        self.kept.push_back((bytes, with.map_err(|_| Lost)?));
        Ok(())
    }

    /// Whether something waits for the tenant to read.
    pub(in crate::server) fn keeps(&self) -> bool {
        !self.kept.is_empty()
    }

    /// What it is watched for: to be read, and written to when there is something left to send.
    pub(in crate::server) fn interest(&self) -> Interest {
        if self.keeps() { Interest::Both } else { Interest::Read }
    }

    /// Sends what was kept, as far as the tenant reads it now.
    pub(in crate::server) fn send_kept(&mut self) -> Result<(), Lost> {
        while let Some((bytes, with)) = self.kept.front() {
            let with: Vec<BorrowedFd<'_>> = with.iter().map(AsFd::as_fd).collect();
            match link::send(self.socket.as_fd(), bytes, &with, true) {
                Ok(()) => drop(self.kept.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(_) => return Err(Lost),
            }
        }
        Ok(())
    }

    /// The GPU that is talked about.
    pub(in crate::server) fn gpu(&self) -> GpuNumber {
        self.gpu
    }

    /// Whether a message of the other side is about the GPU that is talked about here.
    pub(in crate::server) fn check(&self, gpu: GpuNumber) -> Result<(), Malformed> {
        if gpu == self.gpu { Ok(()) } else { Err(Malformed::Gpu(gpu.0)) }
    }

    /// Whether anybody holds the other end.
    pub(in crate::server) fn is_open(&self) -> bool {
        let mut watched = [PollFd::new(&self.socket, PollFlags::empty())];
        let polled = poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        polled.is_err() || !watched[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// The next message, if one is there.
    pub(in crate::server) fn receive(&self) -> Result<Option<link::Received>, Lost> {
        match link::receive(self.socket.as_fd(), true) {
            Ok(Some(received)) => Ok(Some(received)),
            Ok(None) => Err(Lost),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(_) => Err(Lost),
        }
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
