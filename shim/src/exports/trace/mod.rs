//! `BATON_TRACE`: a program's driver calls, their number, and their time.
//!
//! With `counts` or `calls` every export leads through [`begin`] and [`end`] (see `symbols::traced_call`), for any signature, so all entry
//! points are seen, hooked or not. `counts` keeps sums; `calls` also writes a line per call as it ends. The sums are written when the
//! process ends, by a function in `.fini_array`, which runs after the program's own exit handlers.
//!
//! Not seen: calls that a program makes through the driver's private export tables, calls of the driver to itself, and calls that other
//! libraries make from their own destructors after ours. A process that is killed, or leaves by `_exit`, writes no sums.

mod report;
mod sums;

use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::OsStr;

use baton_contract::cuda::{CUDA_ERROR_NOT_READY, CUDA_SUCCESS};
use baton_contract::settings;

use crate::driver::symbols::Function;
use crate::hooks;
use crate::sys::once::Once;
use crate::sys::{cancel, user};
use report::Output;
use sums::SUMS;

/// The user's choice.
struct Tracing {
    /// A line per call, beside the sums.
    calls: bool,
    output: Output,
    /// When tracing began, on the clock of [`now`].
    since: u64,
}

static TRACING: Once<Option<Tracing>> = Once::new();

/// True if the sums were written: later calls are left out, so that the sums stay the last line.
static FINISHED: AtomicBool = AtomicBool::new(false);

/// True if exports must lead through the trace.
pub(crate) fn is_on() -> bool {
    tracing().is_some()
}

/// True if tracing has begun. Async-signal-safe.
pub(crate) fn has_begun() -> bool {
    matches!(TRACING.get(), Some(Some(_)))
}

fn tracing() -> Option<&'static Tracing> {
    if let Some(known) = TRACING.get() {
        return known.as_ref();
    }
    let word = user::setting(settings::TRACE);
    let wanted = match word.as_deref().and_then(OsStr::to_str) {
        Some("counts") => Some(false),
        Some("calls") => Some(true),
        _ => None,
    };
    let tracing = wanted.map(|calls| Tracing { calls, output: Output::from_settings(), since: now() });
    let (kept, ours) = TRACING.keep(tracing);
    match (kept, ours, word) {
        (Some(_), true, _) => {
            // SAFETY: the handler only stores to atomics and closes a descriptor of ours.
            unsafe { libc::pthread_atfork(None, None, Some(forget)) };
        }
        (None, true, Some(word)) => user::warn(&baton_messages::no_such_trace(word.display())),
        _ => {}
    }
    kept.as_ref()
}

/// Begins a call: returns its target, and leaves the time in `start`.
pub(crate) extern "C-unwind" fn begin(index: usize, start: &mut u64) -> Function {
    let target = hooks::target(index);
    *start = now();
    target
}

/// Ends a call with this answer.
pub(crate) extern "C-unwind" fn end(index: usize, start: u64, answer: u64) {
    let took = now().saturating_sub(start);
    // A CUresult is the low half of the register; the other half may hold any value.
    let answer = answer as u32;
    let sums = &SUMS[index];
    sums.calls.fetch_add(1, Ordering::Relaxed);
    sums.nanoseconds.fetch_add(took, Ordering::Relaxed);
    sums.longest.fetch_max(took, Ordering::Relaxed);
    let failed = !matches!(answer, CUDA_SUCCESS | CUDA_ERROR_NOT_READY);
    sums.errors.fetch_add(u64::from(failed), Ordering::Relaxed);
    if let Some(Tracing { calls: true, output, since }) = tracing()
        && !FINISHED.load(Ordering::Relaxed)
    {
        let _uncancelled = cancel::Off::begin();
        output.line(index, start.saturating_sub(*since), took, answer);
    }
}

/// Forgets the sums in a forked child: it is a new process and counts from zero.
extern "C" fn forget() {
    for sums in &SUMS {
        for value in [&sums.calls, &sums.nanoseconds, &sums.longest, &sums.errors] {
            value.store(0, Ordering::Relaxed);
        }
    }
    if let Some(Some(tracing)) = TRACING.get() {
        let _uncancelled = cancel::Off::begin();
        tracing.output.forget();
    }
}

/// Nanoseconds on the monotonic clock.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Runs when the process ends or the library is unloaded. In a program that never called the driver, not even the settings were read.
extern "C" fn finish() {
    if let Some(Some(tracing)) = TRACING.get()
        && !FINISHED.swap(true, Ordering::Relaxed)
    {
        tracing.output.sums();
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static FINISH: extern "C" fn() = finish;
