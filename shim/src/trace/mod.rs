//! `BATON_TRACE`: which driver calls a program makes, how often, and how long they take.
//!
//! With `counts` or `calls` every door leads through [`begin`] and [`end`] (see `doors::traced_call`),
//! whatever its signature, so all entry points are seen, hooked or not. `counts` keeps sums;
//! `calls` also writes a line per call as it ends. The sums are written when the process ends, by a
//! function in `.fini_array`, which runs after the program's own exit handlers.
//!
//! Not seen: calls that a program makes through the driver's private export tables, and calls of the
//! driver to itself. A process that is killed, or leaves by `_exit`, writes no sums.

mod report;

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::OnceLock;

use baton_contract::settings;

use crate::doors::{self, Function};
use crate::driver::variable;
use crate::symbols::COUNT;

/// What the user asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Off,
    Counts,
    Calls,
}

/// The sums of one symbol.
struct Sums {
    calls: AtomicU64,
    nanoseconds: AtomicU64,
    longest: AtomicU64,
    /// Calls with an answer other than CUDA_SUCCESS.
    errors: AtomicU64,
}

static SUMS: [Sums; COUNT] = [const {
    Sums {
        calls: AtomicU64::new(0),
        nanoseconds: AtomicU64::new(0),
        longest: AtomicU64::new(0),
        errors: AtomicU64::new(0),
    }
}; COUNT];

/// When the first traced call began, on the clock of [`now`].
static FIRST: AtomicU64 = AtomicU64::new(0);

/// 1 once anything was traced: what the process's end looks at first.
static ANY: AtomicU8 = AtomicU8::new(0);

/// Whether doors must lead through the trace.
pub(crate) fn is_on() -> bool {
    mode() != Mode::Off
}

fn mode() -> Mode {
    static MODE: OnceLock<Mode> = OnceLock::new();
    *MODE.get_or_init(|| match variable(settings::TRACE) {
        None => Mode::Off,
        Some(word) if word == "counts" => Mode::Counts,
        Some(word) if word == "calls" => Mode::Calls,
        Some(word) => {
            eprintln!("baton: BATON_TRACE={} is neither `counts` nor `calls`; nothing is traced", word.display());
            Mode::Off
        }
    })
}

/// A call begins: says where it goes, and leaves the time in `start`.
pub(crate) extern "C" fn begin(index: usize, start: &mut u64) -> Function {
    if ANY.swap(1, Ordering::Relaxed) == 0 {
        FIRST.store(now(), Ordering::Relaxed);
        // SAFETY: the handler only stores to atomics.
        unsafe { libc::pthread_atfork(None, None, Some(forget)) };
    }
    let target = doors::target(index);
    *start = now();
    target
}

/// A call has ended with this answer.
pub(crate) extern "C" fn end(index: usize, start: u64, answer: u64) {
    let took = now().saturating_sub(start);
    // A CUresult is the low half of the register; the other half is anything.
    let answer = answer as u32;
    let sums = &SUMS[index];
    sums.calls.fetch_add(1, Ordering::Relaxed);
    sums.nanoseconds.fetch_add(took, Ordering::Relaxed);
    sums.longest.fetch_max(took, Ordering::Relaxed);
    sums.errors.fetch_add(u64::from(answer != 0), Ordering::Relaxed);
    if mode() == Mode::Calls {
        report::line(index, start - FIRST.load(Ordering::Relaxed).min(start), took, answer);
    }
}

/// In a forked child: it is a new process and counts from zero.
extern "C" fn forget() {
    for sums in &SUMS {
        for value in [&sums.calls, &sums.nanoseconds, &sums.longest, &sums.errors] {
            value.store(0, Ordering::Relaxed);
        }
    }
    FIRST.store(now(), Ordering::Relaxed);
    report::forget();
}

/// Nanoseconds on the monotonic clock.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Runs when the process ends or the library is unloaded.
extern "C" fn finish() {
    if ANY.load(Ordering::Relaxed) != 0 && SUMS.iter().any(|sums| sums.calls.load(Ordering::Relaxed) != 0) {
        report::sums();
    }
}

#[used]
#[unsafe(link_section = ".fini_array")]
static FINISH: extern "C" fn() = finish;
