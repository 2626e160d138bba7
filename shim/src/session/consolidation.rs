//! Handles whose memory becomes one piece, because they are exported: done by the control loop at a moment when nothing of the program
//! is queued.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use baton_contract::cuda::{CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS, CUresult};

use super::tenant::Session;
use crate::arrival::{self, Needs};
use crate::memory::mappings::HandleNumber;
use crate::sys::futex::{self, Scope};
use crate::sys::user;

/// How long work may take to end in the first try; twice as long in each next one, up to the longest. Work that has not ended in the
/// last may be waiting for the program.
const FIRST_TRY: Duration = Duration::from_millis(20);
const LONGEST_TRY: Duration = Duration::from_secs(1);
const MOST_TRIES: u32 = 10;
/// How often whoever waits looks whether there is still somebody who tries.
const LOOK: Duration = Duration::from_millis(100);
/// How soon it is tried again.
const BETWEEN_TRIES: Duration = Duration::from_millis(2);

/// No answer of the driver's.
const PENDING: u32 = u32::MAX;

/// A handle of ours, and the memory that its contents are to be in.
pub(super) struct Wanted {
    pub(super) handle: HandleNumber,
    pub(super) piece: u64,
    tries: AtomicU32,
    answer: AtomicU32,
}

impl Wanted {
    /// It was done, or could not be.
    pub(super) fn answer(&self, answer: Result<(), CUresult>) {
        self.answer.store(answer.err().unwrap_or(CUDA_SUCCESS), Ordering::Release);
        futex::wake_all(&self.answer, Scope::Process);
    }
}

static WANTED: Mutex<Vec<Arc<Wanted>>> = Mutex::new(Vec::new());
/// Nobody tries any more: the control loop has ended.
static ENDED: AtomicBool = AtomicBool::new(false);

fn lock() -> MutexGuard<'static, Vec<Arc<Wanted>>> {
    WANTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is wanted.
pub(super) fn take_all() -> Vec<Arc<Wanted>> {
    std::mem::take(&mut *lock())
}

/// How long the next try for all of these may take.
pub(super) fn limit(wanted: &[Arc<Wanted>]) -> Duration {
    let fewest = wanted.iter().map(|one| one.tries.load(Ordering::Relaxed)).min().unwrap_or(0);
    (FIRST_TRY * (1 << fewest.min(MOST_TRIES))).min(LONGEST_TRY)
}

/// A try has failed, because work did not end.
pub(super) fn put_back(wanted: Vec<Arc<Wanted>>) {
    for one in wanted {
        if one.tries.fetch_add(1, Ordering::Relaxed) + 1 < MOST_TRIES {
            lock().push(one);
        } else {
            user::warn(format_args!(
                "memory could not be exported (error 801): this program's work on the GPU does not end"
            ));
            one.answer(Err(CUDA_ERROR_NOT_SUPPORTED));
        }
    }
}

/// The control loop ends.
pub(super) fn end() {
    ENDED.store(true, Ordering::Release);
}

/// How soon the control loop is to look again.
pub(super) fn look_again_after() -> Option<Duration> {
    (!lock().is_empty()).then_some(BETWEEN_TRIES)
}

impl Session {
    /// Moves a handle's memory into one piece, and waits for that outside of the gate.
    pub(crate) fn consolidate(&self, handle: HandleNumber, piece: u64) -> Result<(), CUresult> {
        let passage = arrival::pass_here(|| Needs::Nothing)?;
        let (tries, answer) = (AtomicU32::new(0), AtomicU32::new(PENDING));
        let wanted = Arc::new(Wanted { handle, piece, tries, answer });
        lock().push(Arc::clone(&wanted));
        self.news.raise();
        loop {
            passage.outside(|| futex::wait(&wanted.answer, PENDING, Some(LOOK), Scope::Process))?;
            match wanted.answer.load(Ordering::Acquire) {
                CUDA_SUCCESS => return Ok(()),
                PENDING if ENDED.load(Ordering::Acquire) => return Err(CUDA_ERROR_NOT_SUPPORTED),
                PENDING => {}
                answer => return Err(answer),
            }
        }
    }
}
