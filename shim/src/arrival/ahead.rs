//! Launching ahead of memory: a kernel whose memory arrives as one piece waits for it on the GPU, and its program goes on.
//!
//! Memory that a program has mapped side by side is one block. If that is most of its memory, its first launch lacks nearly everything,
//! and waiting for it here would delay all other launches until the last byte has come. So a wait for a word of host memory is put into
//! the launch's own stream, and the launch goes behind it. The control loop writes the word when **all** memory has come. An evicted model
//! of 7 B in one segment of 13 GB makes launches for 40 ms: with them behind its memory it answers after 1.20 times the copy time of its
//! bytes on an H200 (measured), ahead of it after 1.08. A program that waits for its first kernel gains nothing.
//!
//! - **Only kernels** are launched ahead. For copies and fills the driver checks the addresses, and a graph may hold any kind of call.
//! - **Only preemptible tenants** launch ahead: otherwise a switch drains, and would wait for memory that has yet to come. And none does
//!   while a more urgent tenant may come at any time, when little is to be in flight. Tenants that wait for a turn of their own wait for
//!   the end of the arrival in any case, which is when this turn begins to count; so launches that went ahead are not counted.
//! - **Opaque launches too** go ahead, and launches that must not run before all is here (`BATON_GATE=whole`): they lack all missing
//!   memory, and their stream waits for that.
//! - **The word** holds the number of the last arrival that was completed. An arrival that is broken off does not change it. Work that was
//!   paused goes on only when all memory is back, and the grant that follows writes it.
//! - Mappings can be changed while such work waits: measured beside a full queue, freeing, loading code, and waiting for the context
//!   (`bench/results/driver_facts.json`). So a thread that waits in the driver for such work waits no longer than the memory takes.
//! - But such a thread may keep others from recording events. So while any work waits, the check for idleness is skipped: the program is
//!   not idle.
//!
//! If the coordinator dies before all memory has come, and none follows, the word is written all the same: such work faults, and the calls
//! that wait for it return.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use baton_contract::cuda::{CUDA_SUCCESS, CUdevice, CUdeviceptr, CUresult};

use super::blocks::{self, Lack};
use super::needs::{Named, Needs};
use crate::driver::api::{self, Handle, Stream};
use crate::gate::Passage;
use crate::work::capture;
use crate::work::contexts::{self, ContextId};
use crate::work::limit;

/// The word's address in a context.
#[derive(Clone, Copy, Debug)]
struct Word {
    context: ContextId,
    at: CUdeviceptr,
}

/// The streams in which work waits for an arrival. They belong to the context of the word, so a stream has one key.
#[derive(Debug, Default)]
struct Waiting {
    arrival: u32,
    streams: BTreeSet<Handle>,
}

#[derive(Debug)]
struct Ahead {
    word: Option<Word>,
    waiting: Waiting,
}

/// Held for moments only, never while the driver is called.
static AHEAD: Mutex<Ahead> =
    Mutex::new(Ahead { word: None, waiting: Waiting { arrival: 0, streams: BTreeSet::new() } });
/// The word itself, on a page of its own; null until it is made. The page stays: contexts come and go.
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());
/// The last arrival that has begun, the last that work was launched ahead of, and the last that was completed. The numbers go on for ever,
/// and wrap around.
static BEGUN: AtomicU32 = AtomicU32::new(0);
static LAUNCHED: AtomicU32 = AtomicU32::new(0);
static HERE: AtomicU32 = AtomicU32::new(0);
/// The driver has refused such a wait.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);

/// The legacy stream in a list of streams. No handle has this value.
const LEGACY: Handle = 0;

fn lock() -> MutexGuard<'static, Ahead> {
    AHEAD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if one arrival has begun after another one.
fn is_after(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() > 0
}

/// True if a call lacks most of the missing memory: then there is little that it could begin with before all is here.
fn is_most(lacking: u64, missing: u64) -> bool {
    lacking >= missing.saturating_sub(lacking)
}

impl Waiting {
    fn has(&self, arrival: u32, stream: Handle) -> bool {
        self.arrival == arrival && self.streams.contains(&stream)
    }

    /// Adds a stream whose work waits for this arrival. An earlier arrival is over, and needs no entry.
    fn add(&mut self, arrival: u32, stream: Handle) {
        if self.arrival != arrival {
            if !is_after(arrival, self.arrival) {
                return;
            }
            *self = Self { arrival, streams: BTreeSet::new() };
        }
        self.streams.insert(stream);
    }
}

/// Makes the word, if there is none: nothing is queued, and no thread is inside the gate. Otherwise the driver might make this thread
/// wait.
pub(crate) fn prepare(device: CUdevice) {
    let word = lock().word;
    if word.is_some_and(|word| is_current(word.context)) || IS_REFUSED.load(Ordering::Relaxed) {
        return;
    }
    let Some(context) = contexts::main_of(device) else { return };
    let Some(page) = page() else { return };
    // SAFETY: a page that stays.
    let register = || api::where_nobody_is_stuck(|| unsafe { api::register_host(page.cast(), PAGE_BYTES) });
    let at = contexts::within(context, register).ok().flatten();
    lock().word = at.map(|at| Word { context, at });
}

const PAGE_BYTES: usize = 4096;

/// The page with the word on it. Only one thread makes it.
fn page() -> Option<*mut c_void> {
    let made = PAGE.load(Ordering::Acquire);
    if !made.is_null() {
        return Some(made.cast());
    }
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // Shared: memory that the GPU reads must not be copied to another place when the program forks.
    // SAFETY: a new mapping wherever the system likes.
    let page =
        unsafe { libc::mmap(ptr::null_mut(), PAGE_BYTES, access, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the page just mapped. A forked child has no use for it.
    unsafe { libc::madvise(page, PAGE_BYTES, libc::MADV_DONTFORK) };
    PAGE.store(page.cast(), Ordering::Release);
    Some(page)
}

/// True if this context still exists.
fn is_current(context: ContextId) -> bool {
    contexts::id_of(context.handle()) == Some(context)
}

/// Begins an arrival. Returns the number by which work may wait for it; `None` if work must not.
pub(crate) fn begin(preemptible: bool) -> Option<u32> {
    let arrival = BEGUN.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
    preemptible.then_some(arrival)
}

/// Ends every arrival so far: all memory is here, or none will come any more, and work that waits for it goes on. Never called when a gate
/// is merely closed.
pub(crate) fn all_is_here() {
    let arrival = BEGUN.load(Ordering::Acquire);
    // SAFETY: null, or a page that stays.
    if let Some(word) = unsafe { PAGE.load(Ordering::Acquire).as_ref() } {
        word.store(arrival, Ordering::Release);
    }
    let was_waited_for = is_waited_for_on_gpu();
    HERE.store(arrival, Ordering::Release);
    if was_waited_for {
        // The first of that work begins now.
        blocks::note_first_call();
    }
}

/// True if work may be waiting for memory.
pub(crate) fn is_waited_for_on_gpu() -> bool {
    is_after(LAUNCHED.load(Ordering::Acquire), HERE.load(Ordering::Acquire))
}

/// Called before a stream is destroyed: its handle may be reused.
pub(crate) fn stream_goes(stream: Handle) {
    lock().waiting.streams.remove(&stream);
}

/// Called when a context has gone, and its streams with it.
pub(crate) fn context_gone() {
    lock().waiting.streams.clear();
}

/// Waits until the call's memory is here; or makes the stream wait for it, and then the call has to follow at once. An error is the call's
/// answer.
///
/// If the driver checks none of the call's memory, the stream waits for all of it; else only for the memory that an opaque call has not
/// shown.
#[cold]
pub(super) fn wait(passage: &Passage, mut needs: Needs, stream: Stream) -> Result<(), CUresult> {
    let Some(lack) = blocks::lack(&needs) else {
        blocks::note_first_call();
        return Ok(());
    };
    match needs {
        Needs::These(Named { is_unchecked: true, .. }) if goes_ahead(&lack, stream) => {
            blocks::count(&needs);
            Ok(())
        }
        Needs::These(Named { ref mut addresses, opaque: Some(_), is_unchecked: false, .. }) => {
            let addresses = core::mem::take(addresses);
            blocks::count(&needs);
            blocks::wait(passage, Needs::These(addresses.into()))?;
            match blocks::lack(&Needs::Everything) {
                Some(lack) if !goes_ahead(&lack, stream) => blocks::wait(passage, Needs::Everything),
                _ => Ok(()),
            }
        }
        needs => blocks::wait(passage, needs),
    }
}

/// Makes the stream wait for memory, if a launch in it may go ahead of that.
fn goes_ahead(lack: &Lack, stream: Stream) -> bool {
    let Some(arrival) = lack.arrival else { return false };
    if IS_REFUSED.load(Ordering::Relaxed) || limit::is_for_somebody_urgent() {
        return false;
    }
    let Some(key) = (if stream == Stream::Legacy { Some(LEGACY) } else { capture::key(stream) }) else { return false };
    let (word, waits) = {
        let ahead = lock();
        (ahead.word, ahead.waiting.has(arrival, key))
    };
    let Some(word) = word.filter(|word| contexts::id_of(api::current_context()) == Some(word.context)) else {
        return false;
    };
    // A captured launch runs at another time, and is not ordered behind the stream's work.
    // SAFETY: the stream of the program's call.
    if unsafe { api::is_capturing(stream) } {
        return false;
    }
    if waits {
        return true;
    }
    // SAFETY: as above.
    if !is_most(lack.bytes, lack.missing) || !unsafe { api::is_of_current_context(stream) } {
        return false;
    }
    // Noted before there is such work, so that a program that has some is never taken for idle.
    note_launched(arrival);
    // SAFETY: a stream of the current context, which does not capture, as was checked; and a word that this context can access until it
    // ends, with all its work.
    if unsafe { api::wait_before_launch(stream, word.at, arrival) } != CUDA_SUCCESS {
        IS_REFUSED.store(true, Ordering::Relaxed);
        return false;
    }
    lock().waiting.add(arrival, key);
    true
}

/// Notes that work is launched ahead of this arrival; for a slow thread it may be over.
fn note_launched(arrival: u32) {
    let newer = |last| is_after(arrival, last).then_some(arrival);
    let _ = LAUNCHED.fetch_update(Ordering::AcqRel, Ordering::Acquire, newer);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_is_half_or_more() {
        assert!(is_most(5, 10) && is_most(10, 10) && is_most(0, 0));
        assert!(!is_most(4, 10) && !is_most(0, 1));
        assert!(is_most(u64::MAX, 1), "what has come meanwhile counts no more");
    }

    #[test]
    fn arrivals_count_on_past_the_highest_number() {
        assert!(is_after(1, 0) && is_after(0, u32::MAX) && is_after(5, u32::MAX - 5));
        assert!(!is_after(7, 7) && !is_after(u32::MAX, 0));
    }

    #[test]
    fn a_stream_waits_for_the_arrival_that_it_was_last_told_of() {
        let mut waiting = Waiting { arrival: u32::MAX - 1, streams: BTreeSet::new() };
        waiting.add(u32::MAX, 8);
        assert!(waiting.has(u32::MAX, 8) && !waiting.has(u32::MAX, 16) && !waiting.has(0, 8));
        waiting.add(0, 16);
        assert!(waiting.has(0, 16) && !waiting.has(0, 8), "it waits for an arrival that is over");
        waiting.add(u32::MAX, 24);
        assert!(waiting.has(0, 16) && !waiting.has(0, 24), "a thread was slow");
    }
}
