//! The requests of the program's threads to the coordinator: one at a time, each answered.

use core::sync::atomic::{AtomicU32, Ordering};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use baton_contract::link;
use baton_contract::memory::SizeClass;
use baton_contract::messages::{
    Answer, ExtentId, FromCoordinator, Full, IPC_HANDLE, MAX_LISTED, MAX_RANGES, Message as _, ProcessId, Request,
};
use baton_contract::wire::GpuNumber;

use crate::sys::cancel;

/// Most answers come within this time.
const SOON: Duration = Duration::from_micros(50);

/// The socket for requests. A thread that waits for its answer keeps the others waiting; no thread calls the driver meanwhile.
#[derive(Debug)]
pub(crate) struct Requests {
    socket: Mutex<OwnedFd>,
    gpu: GpuNumber,
    phase: AtomicU32,
    /// Threads that have an answer which this process's books do not show yet.
    applying: AtomicU32,
}

/// No request is under way.
const IDLE: u32 = 0;
/// A thread is about to send a request.
const SENDING: u32 = 1;
/// It waits for its answer.
const WAITING: u32 = 2;
/// A coordinator has taken over since the request was sent: only [`Answer::Again`] counts.
const SUPERSEDED: u32 = 3;

/// The reason why a request was not served.
#[derive(Debug)]
pub(crate) enum Unserved {
    /// The coordinator denies it.
    Denied(#[expect(dead_code, reason = "shown by Debug")] Full),
    /// The gate is being closed, or the coordinator was replaced by another one: the request is to be repeated when the gate is open.
    TryAgain,
    /// The memory to be opened was never exported, or has been freed since.
    NotExported {
        /// The tenant that should have exported it is still there.
        exporter_lives: bool,
    },
    /// The answer's descriptors did not come, because this process can open no more.
    Undelivered,
    /// There is no coordinator any more.
    Gone,
}

/// Memory that was lent.
pub(crate) struct Allocated {
    /// The extents in the order in which they are to be laid out.
    pub(crate) extents: Vec<(ExtentId, SizeClass)>,
    /// The frames of the first of them; empty if they did not come.
    pub(crate) frames: Vec<OwnedFd>,
}

/// Memory that another tenant has exported.
pub(crate) struct Attached {
    /// The extents that it lies in, and their frames.
    pub(crate) lent: Allocated,
    /// The offset in them at which it begins.
    pub(crate) offset: u64,
    /// Its size, as the other tenant's program asked for it.
    pub(crate) bytes: u64,
}

impl Requests {
    pub(super) fn new(socket: OwnedFd, gpu: GpuNumber) -> Self {
        Self { socket: Mutex::new(socket), gpu, phase: AtomicU32::new(IDLE), applying: AtomicU32::new(0) }
    }

    /// Has the request that is under way, if there is one, count for nothing: its thread asks again. True if there is one. From then on
    /// the books of this process show the effects of all answers.
    pub(crate) fn supersede(&self) -> bool {
        // The coordinator that takes over has to find a request that was not read, or none.
        while self.phase.load(Ordering::Acquire) == SENDING {
            std::thread::yield_now();
        }
        let asks = self.phase.compare_exchange(WAITING, SUPERSEDED, Ordering::AcqRel, Ordering::Acquire).is_ok();
        // These threads only enter what they have received: they wait for nothing.
        while self.applying.load(Ordering::Acquire) != 0 {
            std::thread::yield_now();
        }
        asks
    }

    pub(super) fn raw(&self) -> RawFd {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner).as_raw_fd()
    }

    /// Makes a request. The answer comes with all its descriptors, or with none if they did not come.
    fn ask(&self, request: &Request) -> Result<(Answer, Vec<OwnedFd>), Unserved> {
        self.ask_and_apply(request, |_| ())
    }

    /// As [`Requests::ask`], for a request that is served at once, whatever the state of the gate: another coordinator is asked again.
    fn ask_until_served(&self, request: &Request) -> Result<(Answer, Vec<OwnedFd>), Unserved> {
        loop {
            match self.ask(request) {
                Err(Unserved::TryAgain) => {}
                outcome => return outcome,
            }
        }
    }

    /// As [`Requests::ask`]; `apply` enters the answer in this process's books before a coordinator that takes over is told of them. It
    /// waits for nothing.
    fn ask_and_apply(
        &self,
        request: &Request,
        apply: impl FnOnce(&Answer),
    ) -> Result<(Answer, Vec<OwnedFd>), Unserved> {
        // Otherwise the next request would get this one's answer.
        let _uncancelled = cancel::Off::begin();
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        self.phase.store(SENDING, Ordering::Release);
        let answer = self.exchange(&socket, request);
        self.applying.fetch_add(1, Ordering::AcqRel);
        let counts = self.phase.compare_exchange(WAITING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if let (Ok((answer, _)), true) = (&answer, counts) {
            apply(answer);
        }
        self.applying.fetch_sub(1, Ordering::AcqRel);
        if counts {
            return answer;
        }
        // What has come is of the coordinator before, or the first answer of this one.
        let mut last = answer;
        let outcome = loop {
            match last {
                Ok((Answer::Again, _)) => break Err(Unserved::TryAgain),
                Ok(_) => last = self.receive(&socket),
                Err(_) => break Err(Unserved::Gone),
            }
        };
        self.phase.store(IDLE, Ordering::Release);
        outcome
    }

    fn exchange(&self, socket: &OwnedFd, request: &Request) -> Result<(Answer, Vec<OwnedFd>), Unserved> {
        baton_faults::reach("program asks", request);
        let sent = link::send(socket.as_fd(), &request.encode(self.gpu), &[], false);
        self.phase.store(WAITING, Ordering::Release);
        sent.map_err(|_| Unserved::Gone)?;
        link::stay_awake(socket.as_fd(), SOON);
        self.receive(socket)
    }

    fn receive(&self, socket: &OwnedFd) -> Result<(Answer, Vec<OwnedFd>), Unserved> {
        let received = link::receive(socket.as_fd(), false).ok().flatten().ok_or(Unserved::Gone)?;
        // A coordinator that sends invalid answers counts as lost.
        match FromCoordinator::decode(&received.message) {
            Ok((gpu, FromCoordinator::Answer(answer)))
                if gpu == self.gpu && (received.truncated || answer.descriptors() == received.descriptors.len()) =>
            {
                baton_faults::reach("program is answered", &answer);
                Ok((answer, received.descriptors))
            }
            _ => Err(Unserved::Gone),
        }
    }

    /// Asks for new extents for so many bytes, a multiple of 2 MiB, which are to lie at this address. `enter` adds them to this process's
    /// books.
    pub(crate) fn allocate(
        &self,
        at: u64,
        bytes: u64,
        enter: impl FnOnce(&[(ExtentId, SizeClass)]),
    ) -> Result<Allocated, Unserved> {
        let apply = |answer: &Answer| {
            if let Answer::Allocated { extents } = answer {
                enter(extents);
            }
        };
        match self.ask_and_apply(&Request::Allocate { at, bytes }, apply)? {
            (Answer::Allocated { extents }, frames) => {
                let all: u64 = extents.iter().map(|(_, class)| class.bytes()).sum();
                if all == bytes { Ok(Allocated { extents, frames }) } else { Err(Unserved::Gone) }
            }
            (Answer::Denied { full }, _) => Err(Unserved::Denied(full)),
            (Answer::TryAgain, _) => Err(Unserved::TryAgain),
            _ => Err(Unserved::Gone),
        }
    }

    /// Asks for the frames of lent extents, at most [`MAX_DESCRIPTORS`](baton_contract::wire::MAX_DESCRIPTORS).
    pub(crate) fn frames(&self, extents: &[ExtentId]) -> Result<Vec<OwnedFd>, Unserved> {
        match self.ask_until_served(&Request::Frames { extents: extents.to_vec() })? {
            (Answer::Frames { extents: answered }, frames) if answered == extents => {
                if frames.len() == extents.len() {
                    Ok(frames)
                } else {
                    Err(Unserved::Undelivered)
                }
            }
            _ => Err(Unserved::Gone),
        }
    }

    /// Gives unmapped extents back.
    pub(crate) fn free(&self, extents: Vec<ExtentId>) {
        for extents in extents.chunks(MAX_LISTED) {
            // Without a coordinator there is nothing to give back.
            let _ = self.ask(&Request::Free { extents: extents.to_vec() });
        }
    }

    /// Reports that parts of extents are spare.
    pub(crate) fn spare(&self, ranges: &[(u64, u64)]) {
        for ranges in ranges.chunks(MAX_RANGES) {
            // As for `free`.
            let _ = self.ask(&Request::Spare { ranges: ranges.to_vec() });
        }
    }

    /// Reports that spare memory is used again.
    pub(crate) fn reuse(&self, at: u64, bytes: u64) {
        // Without a coordinator there is nothing to report.
        let _ = self.ask(&Request::Reuse { at, bytes });
    }

    /// Reports that others are about to access extents, which have to stay where they are from then on. False if not all of them are
    /// there.
    pub(crate) fn make_immovable(&self, extents: &[ExtentId]) -> Result<bool, Unserved> {
        for extents in extents.chunks(MAX_LISTED) {
            match self.ask_until_served(&Request::MakeImmovable { extents: extents.to_vec() })? {
                (Answer::Immovable, _) => {}
                (Answer::Movable, _) => return Ok(false),
                _ => return Err(Unserved::Gone),
            }
        }
        Ok(true)
    }

    /// Asks for a lease of memory beside the arena: at least `least` bytes, while up to `bytes` are welcome. Returns the leased bytes: 0
    /// if there are not enough.
    pub(crate) fn lease(&self, least: u64, bytes: u64) -> Result<u64, Unserved> {
        self.granted(&Request::UnmanagedMemory { least, bytes })
    }

    /// Asks for room for a context that is about to be made, or for more if that was not enough. To be followed by
    /// [`MemoryReport::ContextMade`](baton_contract::messages::MemoryReport::ContextMade).
    pub(crate) fn room_for_context(&self, again: bool) -> Result<u64, Unserved> {
        self.granted(&Request::Context { again })
    }

    /// Asks for free memory beside the arena; returns when there is some, or cannot be.
    pub(crate) fn room(&self, bytes: u64) {
        let _ = self.granted(&Request::Room { bytes });
    }

    /// Reports that other processes may open this allocation. Returns the key by which they do so: always the same for an allocation.
    pub(crate) fn export(&self, at: u64, bytes: u64) -> Result<[u8; 16], Unserved> {
        match self.ask_until_served(&Request::Export { at, bytes })? {
            (Answer::Exported { key }, _) => Ok(key),
            _ => Err(Unserved::Gone),
        }
    }

    /// Reports that an allocation may no longer be opened.
    pub(crate) fn unexport(&self, at: u64) {
        // Without a coordinator no process could.
        let _ = self.ask_until_served(&Request::Unexport { at });
    }

    /// Attaches an allocation that another tenant has exported. The first of its extents is to lie at this address, the others follow it;
    /// `enter` adds them to this process's books.
    pub(crate) fn attach(
        &self,
        exporter: u32,
        key: [u8; 16],
        at: u64,
        enter: impl FnOnce(&[(ExtentId, SizeClass)]),
    ) -> Result<Attached, Unserved> {
        let apply = |answer: &Answer| {
            if let Answer::Attached { extents, .. } = answer {
                enter(extents);
            }
        };
        match self.ask_and_apply(&Request::Attach { exporter, key, at }, apply)? {
            (Answer::Attached { extents, offset, bytes }, frames) => {
                Ok(Attached { lent: Allocated { extents, frames }, offset, bytes })
            }
            (Answer::NotExported { exporter_lives }, _) => Err(Unserved::NotExported { exporter_lives }),
            (Answer::Denied { full }, _) => Err(Unserved::Denied(full)),
            (Answer::TryAgain, _) => Err(Unserved::TryAgain),
            _ => Err(Unserved::Gone),
        }
    }

    /// Reports that other processes may open an event, by this handle of the driver's.
    pub(crate) fn export_event(&self, handle: [u8; IPC_HANDLE]) {
        // Without a coordinator no tenant takes turns with them.
        let _ = self.ask_until_served(&Request::ExportEvent { handle });
    }

    /// Reports that an event is about to be opened, which another tenant may have exported.
    pub(crate) fn open_event(&self, handle: [u8; IPC_HANDLE]) -> Result<(), Unserved> {
        match self.ask(&Request::OpenEvent { handle })? {
            (Answer::Noted, _) => Ok(()),
            (Answer::TryAgain, _) => Err(Unserved::TryAgain),
            _ => Err(Unserved::Gone),
        }
    }

    /// Reports that other processes may import memory by descriptors that this process owns.
    pub(crate) fn export_descriptors(&self, process: ProcessId) {
        // Without a coordinator no tenant takes turns with them.
        let _ = self.ask_until_served(&Request::ExportDescriptors { process });
    }

    /// Reports that memory is about to be imported by a descriptor of another process, which may be a tenant.
    pub(crate) fn import_descriptor(&self, owner: ProcessId) {
        // As for `export_descriptors`.
        let _ = self.ask_until_served(&Request::ImportDescriptor { owner });
    }

    fn granted(&self, request: &Request) -> Result<u64, Unserved> {
        match self.ask(request)? {
            (Answer::UnmanagedMemory { bytes }, _) => Ok(bytes),
            (Answer::TryAgain, _) => Err(Unserved::TryAgain),
            _ => Err(Unserved::Gone),
        }
    }
}
