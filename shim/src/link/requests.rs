//! The requests of the program's threads to the coordinator: one at a time, each answered.

use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use baton_contract::link;
use baton_contract::memory::SizeClass;
use baton_contract::messages::{
    Answer, ExtentId, FileId, FromCoordinator, Full, IPC_HANDLE, MAX_LISTED, Message as _, ProcessId, Request,
};
use baton_contract::wire::GpuNumber;

use crate::sys::cancel;
use crate::sys::futex::{self, Scope};

/// Most answers come within this time.
const SOON: Duration = Duration::from_micros(50);
/// The time in which a program is told that the coordinator is gone, if another thread is there to tell it.
const TOLD: Duration = Duration::from_secs(1);

/// The socket for requests. A thread that waits for its answer keeps the others waiting; no thread calls the driver meanwhile.
#[derive(Debug)]
pub(crate) struct Requests {
    socket: OwnedFd,
    gpu: GpuNumber,
    /// Held by the thread that makes a request, until it is answered.
    turn: Mutex<()>,
    /// Held while a message is sent, or received and entered in this process's books, and never for longer.
    request: Mutex<Current>,
    /// 1 when the program has been told that the coordinator is gone.
    is_over: AtomicU32,
}

/// The request that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Current {
    /// There is none.
    Nothing,
    /// A thread waits for its answer.
    Waits,
    /// A coordinator has taken over since it was sent: only [`Answer::Again`] counts.
    Superseded,
}

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
    /// All of it is on the GPU. Otherwise it comes after the gate was closed.
    pub(crate) here: bool,
}

impl Requests {
    pub(super) fn new(socket: OwnedFd, gpu: GpuNumber) -> Self {
        Self { socket, gpu, turn: Mutex::new(()), request: Mutex::new(Current::Nothing), is_over: AtomicU32::new(0) }
    }

    /// Has the request that is under way, if there is one, count for nothing: its thread asks again when the coordinator that takes over
    /// says so. True if there is one. From then on the books of this process show the effects of all answers.
    pub(crate) fn supersede(&self) -> bool {
        let mut current = self.current();
        if *current == Current::Nothing {
            return false;
        }
        // All of it is of coordinators before. One of them may have had it asked again already: that would count in place of this one's.
        while matches!(link::receive(self.socket.as_fd(), true), Ok(Some(_))) {}
        *current = Current::Superseded;
        true
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn raw(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Called when the program has been told that the coordinator is gone.
    pub(crate) fn end(&self) {
        self.is_over.store(1, Ordering::Release);
        futex::wake_all(&self.is_over, Scope::Process);
    }

    /// The coordinator is gone. The call that asks for something may fail, and the program is told why before that.
    fn gone(&self) -> Unserved {
        futex::wait(&self.is_over, 0, Some(TOLD), Scope::Process);
        Unserved::Gone
    }

    /// Makes a request. The answer comes with all its descriptors, or with none if they did not come.
    fn ask(&self, request: &Request) -> Result<(Answer, Vec<OwnedFd>), Unserved> {
        self.ask_and_apply(request, |_| ())
    }

    /// As [`Requests::ask`], for a request that may be made in any state of the gate: another coordinator is asked again.
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
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        baton_faults::reach("program asks", request);
        let mut current = self.current();
        let sent = link::send(self.socket.as_fd(), &request.encode(self.gpu), &[], false);
        if sent.is_ok() {
            *current = Current::Waits;
        }
        drop(current);
        sent.map_err(|_| self.gone())?;
        loop {
            link::await_message(self.socket.as_fd(), SOON);
            let mut current = self.current();
            let Some(outcome) = self.receive() else { continue };
            let counts = match &outcome {
                Ok((answer, _)) => (*current == Current::Superseded) == matches!(answer, Answer::Again),
                Err(_) => true,
            };
            if !counts {
                continue;
            }
            *current = Current::Nothing;
            let Ok((answer, descriptors)) = outcome else {
                drop(current);
                return Err(self.gone());
            };
            apply(&answer);
            drop(current);
            baton_faults::reach("program is answered", &answer);
            return if matches!(answer, Answer::Again) { Err(Unserved::TryAgain) } else { Ok((answer, descriptors)) };
        }
    }

    /// The next answer; none if none has come.
    fn receive(&self) -> Option<Result<(Answer, Vec<OwnedFd>), Unserved>> {
        let received = match link::receive(self.socket.as_fd(), true) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            received => received.ok().flatten(),
        };
        let Some(received) = received else { return Some(Err(Unserved::Gone)) };
        // A coordinator that sends invalid answers counts as lost.
        Some(match FromCoordinator::decode(&received.message) {
            Ok((gpu, FromCoordinator::Answer(answer)))
                if gpu == self.gpu && (received.truncated || answer.descriptors() == received.descriptors.len()) =>
            {
                Ok((answer, received.descriptors))
            }
            _ => Err(Unserved::Gone),
        })
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

    /// Reports that parts of extents are spare, at most [`MAX_RANGES`](baton_contract::messages::MAX_RANGES). `enter` adds them to this process's books: later than the
    /// coordinator knows, and before another one asks which are spare.
    pub(crate) fn spare(&self, ranges: &[(u64, u64)], enter: &mut dyn FnMut()) {
        let request = Request::Spare { ranges: ranges.to_vec() };
        loop {
            let apply = |answer: &Answer| {
                if !matches!(answer, Answer::Again) {
                    enter();
                }
            };
            match self.ask_and_apply(&request, apply) {
                Err(Unserved::TryAgain) => {}
                Err(_) => return enter(),
                Ok(_) => return,
            }
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
    /// `enter` adds them to this process's books, and hears if they are here. The two may be `apart`: they take turns, until both want the GPU.
    pub(crate) fn attach(
        &self,
        exporter: u32,
        key: [u8; 16],
        at: u64,
        apart: bool,
        enter: impl FnOnce(&[(ExtentId, SizeClass)], bool),
    ) -> Result<Attached, Unserved> {
        let apply = |answer: &Answer| {
            if let Answer::Attached { extents, here, .. } = answer {
                enter(extents, *here);
            }
        };
        match self.ask_and_apply(&Request::Attach { exporter, key, at, apart }, apply)? {
            (Answer::Attached { extents, offset, bytes, here }, frames) => {
                Ok(Attached { lent: Allocated { extents, frames }, offset, bytes, here })
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

    /// Reports that memory is about to be attached which another tenant has exported.
    pub(crate) fn meet(&self, exporter: u32, key: [u8; 16]) {
        // As for `export_descriptors`.
        let _ = self.ask_until_served(&Request::Meet { exporter, key });
    }

    /// Reports that this program has pinned memory of a file that others can have too.
    pub(crate) fn pins_file(&self, file: FileId) {
        // As for `export_descriptors`.
        let _ = self.ask_until_served(&Request::PinsFile { file });
    }

    /// Reports that this program is of a gang from now on: it is about to use another GPU too.
    pub(crate) fn join_gang(&self, gang: u64) {
        // Without a coordinator there are no turns.
        let _ = self.ask_until_served(&Request::JoinGang { gang });
    }

    fn granted(&self, request: &Request) -> Result<u64, Unserved> {
        match self.ask_until_served(request)? {
            (Answer::UnmanagedMemory { bytes }, _) => Ok(bytes),
            (Answer::TryAgain, _) => Err(Unserved::TryAgain),
            _ => Err(Unserved::Gone),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    use baton_contract::messages::FromTenant;

    const GPU: GpuNumber = GpuNumber(0);
    /// Requests that are not answered by then hang.
    const LIMIT: Duration = Duration::from_secs(300);

    fn pair() -> [OwnedFd; 2] {
        let mut ends = [-1; 2];
        // SAFETY: room for two numbers.
        let made = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, ends.as_mut_ptr()) };
        assert_eq!(made, 0, "{}", io::Error::last_os_error());
        // SAFETY: the descriptors are new, and owned here.
        ends.map(|end| unsafe { std::os::fd::FromRawFd::from_raw_fd(end) })
    }

    /// A coordinator that dies and takes over at any moment; it answers with the bytes that it was asked for.
    fn coordinate(socket: &OwnedFd, requests: &Requests, may_end: impl Fn() -> bool) {
        let next =
            || match link::receive(socket.as_fd(), true).ok().flatten().map(|one| FromTenant::decode(&one.message)) {
                Some(Ok((_, FromTenant::Request(Request::UnmanagedMemory { bytes, .. })))) => Some(bytes),
                other => other.map(|_| unreachable!("nothing else is asked for")),
            };
        let answer = |answer: Answer| link::send(socket.as_fd(), &answer.encode(GPU), &[], false).expect("it is read");
        let mut chance = 1_u32;
        let mut one_in = |most: u32| {
            chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (chance >> 16).is_multiple_of(most)
        };
        while !may_end() {
            // It may die with a request that it has read.
            if let Some(bytes) = next().filter(|_| !one_in(8)) {
                answer(Answer::UnmanagedMemory { bytes });
            }
            if !one_in(4) {
                continue;
            }
            // Perhaps each dies before it can have anything asked again, or after that.
            while one_in(2) {
                if requests.supersede() && one_in(2) {
                    next();
                    answer(Answer::Again);
                }
            }
            if requests.supersede() {
                next();
                answer(Answer::Again);
            }
        }
    }

    #[test]
    fn each_request_is_answered_once_by_whichever_coordinator_comes() {
        let [ours, theirs] = pair();
        let requests = Requests::new(ours, GPU);
        let start = Instant::now();
        std::thread::scope(|scope| {
            let program = scope.spawn(|| {
                for bytes in 1..=10_000 {
                    let leased = requests.lease(1, bytes).expect("there is a coordinator");
                    assert_eq!(leased, bytes, "the answer of another request");
                }
            });
            coordinate(&theirs, &requests, || {
                // A request that is never answered would keep the test waiting for ever.
                assert!(start.elapsed() < LIMIT || program.is_finished(), "a request hangs");
                program.is_finished()
            });
        });
    }
}
