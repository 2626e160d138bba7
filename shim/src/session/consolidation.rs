//! Handles whose memory becomes one piece, because they are exported: done by the control loop at a moment when nothing of the program
//! is queued.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use baton_contract::cuda::{CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS, CUresult};

use super::tenant::Session;
use crate::arrival::{self, Needs};
use crate::memory::mappings::HandleNumber;
use crate::sys::futex::{self, Scope};
use crate::sys::user;

/// Work that has not ended by then, at some moment at least, may be waiting for the program.
const LONGEST: Duration = Duration::from_secs(10);
/// How often whoever waits looks whether that is over.
const LOOK: Duration = Duration::from_millis(100);
/// How soon it is tried again.
const BETWEEN_TRIES: Duration = Duration::from_millis(2);

/// No answer of the driver's.
const PENDING: u32 = u32::MAX;

/// A handle of ours, and the memory that its contents are to be in.
pub(super) struct Wanted {
    pub(super) handle: HandleNumber,
    pub(super) piece: u64,
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

fn lock() -> MutexGuard<'static, Vec<Arc<Wanted>>> {
    WANTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is wanted.
pub(super) fn take_all() -> Vec<Arc<Wanted>> {
    std::mem::take(&mut *lock())
}

/// It cannot be done just now.
pub(super) fn put_back(wanted: Vec<Arc<Wanted>>) {
    lock().extend(wanted);
}

/// How soon the control loop is to look again.
pub(super) fn look_again_after() -> Option<Duration> {
    (!lock().is_empty()).then_some(BETWEEN_TRIES)
}

impl Session {
    /// Moves a handle's memory into one piece, and waits for that outside of the gate.
    pub(crate) fn consolidate(&self, handle: HandleNumber, piece: u64) -> Result<(), CUresult> {
        let passage = arrival::pass_here(|| Needs::Nothing)?;
        let wanted = Arc::new(Wanted { handle, piece, answer: AtomicU32::new(PENDING) });
        lock().push(Arc::clone(&wanted));
        self.news.raise();
        let end = Instant::now() + LONGEST;
        loop {
            passage.outside(|| futex::wait(&wanted.answer, PENDING, Some(LOOK), Scope::Process))?;
            match wanted.answer.load(Ordering::Acquire) {
                CUDA_SUCCESS => return Ok(()),
                PENDING if Instant::now() < end => {}
                PENDING => {
                    let mut all = lock();
                    let before = all.len();
                    all.retain(|other| !Arc::ptr_eq(other, &wanted));
                    if all.len() < before {
                        user::warn(format_args!(
                            "memory could not be exported (error 801): this program's work on the GPU does not end"
                        ));
                        return Err(CUDA_ERROR_NOT_SUPPORTED);
                    }
                }
                answer => return Err(answer),
            }
        }
    }
}
