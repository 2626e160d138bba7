//! What the program's threads ask of the coordinator: one request at a time, each answered.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use baton_contract::link;
use baton_contract::memory::SizeClass;
use baton_contract::messages::{Answer, ExtentId, FromCoordinator, Full, MAX_EXTENTS, Message as _, Request};

/// The socket for requests. A thread that waits for its answer keeps the others waiting; nobody calls the
/// driver meanwhile.
#[derive(Debug)]
pub(crate) struct Requests(Mutex<OwnedFd>);

/// Why a request was not served.
#[derive(Debug)]
pub(crate) enum Unserved {
    /// The coordinator says no.
    Denied(#[expect(dead_code, reason = "shown by Debug")] Full),
    /// The gate is being closed: to be asked again when it is open.
    Later,
    /// There is no coordinator any more.
    Gone,
}

impl Requests {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self(Mutex::new(socket))
    }

    pub(super) fn raw(&self) -> RawFd {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_raw_fd()
    }

    /// Asks, and hears answers until `hear` has what it needs.
    fn ask<T>(
        &self,
        request: &Request,
        mut hear: impl FnMut(Answer, Vec<OwnedFd>) -> Option<Result<T, Unserved>>,
    ) -> Result<T, Unserved> {
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        link::send(socket.as_fd(), &request.encode(), &[], false).map_err(|_| Unserved::Gone)?;
        loop {
            let received = link::receive(socket.as_fd(), false).ok().flatten().ok_or(Unserved::Gone)?;
            // A coordinator that talks nonsense is as good as none.
            let Ok(FromCoordinator::Answer(answer)) = FromCoordinator::decode(&received.message) else {
                return Err(Unserved::Gone);
            };
            if answer.descriptors() != received.descriptors.len() {
                return Err(Unserved::Gone);
            }
            if let Some(result) = hear(answer, received.descriptors) {
                return result;
            }
        }
    }

    /// New extents for so many bytes, a multiple of 2 MiB, in the order in which they are to be laid out.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<Vec<(ExtentId, SizeClass, OwnedFd)>, Unserved> {
        let mut lent = Vec::new();
        self.ask(&Request::Allocate { bytes }, |answer, descriptors| match answer {
            Answer::Lent { extents, more } => {
                lent.extend(extents.into_iter().zip(descriptors).map(|((id, class), fd)| (id, class, fd)));
                if more {
                    return None;
                }
                let all: u64 = lent.iter().map(|(_, class, _)| class.bytes()).sum();
                Some(if all == bytes { Ok(std::mem::take(&mut lent)) } else { Err(Unserved::Gone) })
            }
            Answer::Denied { full } => Some(Err(Unserved::Denied(full))),
            Answer::Later => Some(Err(Unserved::Later)),
            _ => Some(Err(Unserved::Gone)),
        })
    }

    /// Gives extents back that are unmapped.
    pub(crate) fn free(&self, extents: Vec<ExtentId>) {
        for extents in extents.chunks(MAX_EXTENTS) {
            // Without a coordinator there is nobody to give them to.
            let _ = self.ask(&Request::Free { extents: extents.to_vec() }, |_, _| Some(Ok(())));
        }
    }

    /// Asks for memory beside the arena; returns when there is some, or cannot be.
    pub(crate) fn room(&self, bytes: u64) {
        let _ = self.ask(&Request::Room { bytes }, |_, _| Some(Ok(())));
    }
}
