//! Handles whose memory becomes one piece, because they are exported. The coordinator copies the memory while this program is off the GPU;
//! then the control loop maps the piece in its place.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use baton_contract::cuda::{
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS, CUdevice, CUdeviceptr, CUresult,
};
use baton_contract::messages::MemoryReport;

use super::tenant::Session;
use crate::driver::api::bit;
use crate::memory::mappings::HandleNumber;
use crate::memory::space::GivenUp;
use crate::sys::futex::{self, Scope};
use crate::sys::user;

/// The interval at which a waiting thread checks that the control loop still runs.
const LOOK: Duration = Duration::from_millis(100);

/// No answer of the driver's has these values.
const PENDING: u32 = u32::MAX;
/// Another coordinator is there, which has to be asked again.
const AGAIN: u32 = u32::MAX - 1;

/// A handle of ours, and the memory that is to take its contents.
struct Wanted {
    device: CUdevice,
    handle: HandleNumber,
    /// The address by which the coordinator knows the handle's memory.
    home: CUdeviceptr,
    piece: u64,
    answer: AtomicU32,
}

impl Wanted {
    /// Waits for the answer. `ask_again` asks another coordinator.
    fn wait(&self, ask_again: impl Fn()) -> Result<(), CUresult> {
        loop {
            let answer = self.answer.load(Ordering::Acquire);
            match answer {
                CUDA_SUCCESS => return Ok(()),
                PENDING | AGAIN if ENDED.load(Ordering::Acquire) & bit(self.device) != 0 => {
                    return Err(CUDA_ERROR_NOT_SUPPORTED);
                }
                AGAIN => ask_again(),
                PENDING => {}
                answer => return Err(answer),
            }
            futex::wait(&self.answer, answer, Some(LOOK), Scope::Process);
        }
    }
}

static WANTED: Mutex<Vec<Arc<Wanted>>> = Mutex::new(Vec::new());
/// The GPUs that have no coordinator any more: a bit for each.
static ENDED: AtomicU64 = AtomicU64::new(0);

fn lock() -> MutexGuard<'static, Vec<Arc<Wanted>>> {
    WANTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if a thread waits for a consolidation on a GPU: this program then wants its next turn there, even if it is otherwise idle.
pub(super) fn is_under_way(device: CUdevice) -> bool {
    lock().iter().any(|wanted| wanted.device == device)
}

/// Called when another coordinator of a GPU has been told everything: it knows of no consolidation.
pub(super) fn another_coordinator(device: CUdevice) {
    answer_all(device, AGAIN);
}

/// Called when a GPU has no coordinator any more.
pub(super) fn no_coordinator(device: CUdevice) {
    ENDED.fetch_or(bit(device), Ordering::AcqRel);
    answer_all(device, CUDA_ERROR_NOT_SUPPORTED);
}

fn answer_all(device: CUdevice, answer: u32) {
    for wanted in lock().iter().filter(|wanted| wanted.device == device) {
        wanted.answer.store(answer, Ordering::Release);
        futex::wake_all(&wanted.answer, Scope::Process);
    }
}

impl Session {
    /// Moves a handle's memory into one piece, of which this is a descriptor, and waits for that. The caller has not passed the gate.
    pub(crate) fn consolidate(
        &self,
        handle: HandleNumber,
        piece: u64,
        descriptor: BorrowedFd<'_>,
    ) -> Result<(), CUresult> {
        let (home, bytes) = self.space.home(handle).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let wanted = Arc::new(Wanted { device: self.device, handle, home, piece, answer: AtomicU32::new(PENDING) });
        let before = {
            let mut all = lock();
            let before = all.iter().find(|one| one.home == home).cloned();
            if before.is_none() {
                all.push(Arc::clone(&wanted));
            }
            before
        };
        if let Some(before) = before {
            // Another thread exports the same handle: it has its piece by then, and not this one.
            return before.wait(|| ()).and(Err(CUDA_ERROR_INVALID_VALUE));
        }
        let ask = || {
            self.link.tell_with(&MemoryReport::Consolidate { at: home, bytes, piece: true }, Some(descriptor));
            self.demand();
        };
        ask();
        wanted.wait(|| {
            // It may have been answered since.
            if wanted.answer.compare_exchange(AGAIN, PENDING, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                ask();
            }
        })
    }

    /// Called after the coordinator has copied a handle's memory into its piece, or could not. The gate is closed, and nothing runs.
    pub(super) fn consolidated(&self, home: CUdeviceptr, copied: bool, tell: impl FnMut(GivenUp<'_>)) {
        let wanted = {
            let mut all = lock();
            let Some(at) = all.iter().position(|one| one.home == home) else { return };
            all.swap_remove(at)
        };
        let answer = if copied {
            self.space.consolidate(wanted.handle, home, wanted.piece, tell)
        } else {
            user::warn(&baton_messages::cannot_export());
            Err(CUDA_ERROR_NOT_SUPPORTED)
        };
        wanted.answer.store(answer.err().unwrap_or(CUDA_SUCCESS), Ordering::Release);
        futex::wake_all(&wanted.answer, Scope::Process);
    }
}
