//! Copies that go on for a while after their process was killed, as those that a GPU has begun do until the driver has taken the process's
//! channels away (`SIMCUDA_COPIES_OUTLIVE_MS`).
//!
//! Here the process itself copies, and its threads are gone at once. So a helper does the rest: a process of its own, which shares this
//! one's memory. It also keeps this process from ending meanwhile, as the driver does: it traces one thread, and a traced thread that is
//! killed is held at its end. While one thread is there, the process has not ended for anybody: its descriptors are open, its record locks
//! are held, and its pidfd tells nothing.
//!
//! The helper is killed by its own timer when the time is over, so it does not matter if it waits for a lock whose holder is dead. The thread
//! then goes on to its end.
#![allow(unsafe_code, reason = "a process that shares memory, and ptrace")]

use std::io;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicI32, AtomicU64};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::time::{Duration, Instant};

use super::context::Context;
use super::op::Copy;
use crate::errors::Outcome;

/// How long copies go on.
static TIME: OnceLock<Duration> = OnceLock::new();

/// The copies that have begun and are not over.
static BEGUN: Mutex<Vec<Rest>> = Mutex::new(Vec::new());

/// A copy, and how much of it is done.
#[derive(Clone, Copy, PartialEq)]
struct Rest {
    context: *const Context,
    copy: *const Copy,
    done: *const AtomicU64,
}

// SAFETY: what it points to is shared by threads anyway, and is there as long as the value is in the list: see `Begun`.
unsafe impl Send for Rest {}

/// A copy that has begun; the helper finishes it if the process is killed before this is dropped.
pub(super) struct Begun<'a> {
    context: &'a Context,
    copy: &'a Copy,
    done: &'a AtomicU64,
    /// False if copies do not outlive the process.
    is_listed: bool,
}

impl<'a> Begun<'a> {
    /// Of what is copied so far, `done` tells.
    pub(super) fn new(context: &'a Context, copy: &'a Copy, done: &'a AtomicU64) -> Begun<'a> {
        let begun = Begun { context, copy, done, is_listed: is_on() };
        if begun.is_listed {
            list().push(begun.rest());
        }
        begun
    }

    /// Copies what is left.
    pub(super) fn finish(&self) -> Outcome {
        while self.copy.step(self.context, self.done, u64::MAX)? {}
        Ok(())
    }

    fn rest(&self) -> Rest {
        Rest { context: self.context, copy: self.copy, done: self.done }
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if self.is_listed {
            let rest = self.rest();
            list().retain(|other| *other != rest);
        }
    }
}

/// True if copies outlive the process.
pub(super) fn is_on() -> bool {
    TIME.get().is_some()
}

fn list() -> std::sync::MutexGuard<'static, Vec<Rest>> {
    BEGUN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The helper's number; 0: it is not there yet.
static HELPER: AtomicI32 = AtomicI32::new(0);
/// The thread that it holds.
static HELD: AtomicI32 = AtomicI32::new(0);
/// Its answer: 0 as long as there is none, an error's number, or [`TRACES`].
static ANSWER: AtomicI32 = AtomicI32::new(0);
const TRACES: i32 = -1;

/// From now on, copies outlive this process for so long. Once.
pub(crate) fn begin(time: Duration) -> io::Result<()> {
    let _ = TIME.set(time);
    let (tell, hear) = mpsc::channel();
    std::thread::Builder::new().name("simcuda-outlive".to_owned()).spawn(move || {
        // The helper uses this thread's part of the memory for its own thread's, so this one does nothing any more.
        let _ = tell.send(start_helper());
        loop {
            // SAFETY: no memory is involved.
            unsafe { libc::pause() };
        }
    })?;
    hear.recv().unwrap_or_else(|_| Err(io::Error::other("a thread that ended")))
}

/// The helper's own functions need little.
const STACK: usize = 1 << 20;

fn start_helper() -> io::Result<()> {
    let stack: &'static mut [u128] = Box::leak(vec![0; STACK / size_of::<u128>()].into_boxed_slice());
    // SAFETY: a set of signals of our own. Neither the thread nor the helper hears any, but for those that nobody can block.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
    }
    // SAFETY: has no arguments.
    HELD.store(unsafe { libc::gettid() }, SeqCst);
    // No signal tells of its end, and `wait` does not see it, so the program does not notice it.
    // SAFETY: a stack of its own, which is never given back; it begins at its end. What else they share is in this file.
    let helper =
        unsafe { libc::clone(help, stack.as_mut_ptr_range().end.cast(), libc::CLONE_VM, std::ptr::null_mut()) };
    if helper < 0 {
        return Err(io::Error::last_os_error());
    }
    // Where only parents may trace, this one says who else may. Elsewhere the system does not know the call.
    // SAFETY: no memory is involved.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, helper, 0, 0, 0) };
    HELPER.store(helper, SeqCst);
    loop {
        match ANSWER.load(SeqCst) {
            0 => std::thread::sleep(Duration::from_micros(100)),
            TRACES => return Ok(()),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// The helper.
extern "C" fn help(_: *mut libc::c_void) -> libc::c_int {
    while HELPER.load(SeqCst) == 0 {
        std::thread::sleep(Duration::from_micros(100));
    }
    let thread = HELD.load(SeqCst);
    // SAFETY: it has copies of all descriptors, which would keep files and sockets open that the program has closed. None is of use here.
    unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
    let options = libc::PTRACE_O_TRACEEXIT;
    // SAFETY: numbers only.
    if unsafe { libc::ptrace(libc::PTRACE_SEIZE, thread, 0, options) } != 0 {
        ANSWER.store(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EPERM), SeqCst);
        return 1;
    }
    ANSWER.store(TRACES, SeqCst);
    loop {
        let mut status = 0;
        // SAFETY: a number that lives over the call.
        let got = unsafe { libc::waitpid(thread, &mut status, libc::__WALL) };
        if got != thread || !libc::WIFSTOPPED(status) {
            return 0;
        }
        let signal = libc::WSTOPSIG(status);
        let (request, data) = match status >> 16 {
            libc::PTRACE_EVENT_EXIT => {
                if was_killed(thread) {
                    die_after(*TIME.get().unwrap_or(&Duration::ZERO));
                    go_on(*TIME.get().unwrap_or(&Duration::ZERO));
                }
                return 0;
            }
            // Stopped as the whole process is, until that goes on.
            libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => (libc::PTRACE_LISTEN, 0),
            libc::PTRACE_EVENT_STOP => (libc::PTRACE_CONT, 0),
            _ => (libc::PTRACE_CONT, signal),
        };
        // SAFETY: numbers only.
        unsafe { libc::ptrace(request, thread, 0, data) };
    }
}

/// True if a signal ends the thread that is held at its end. Otherwise the program ends by itself, or becomes another one.
fn was_killed(thread: i32) -> bool {
    let mut status: libc::c_ulong = 0;
    // SAFETY: a number that lives over the call.
    let told = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, thread, 0, &mut status) } == 0;
    told && libc::WIFSIGNALED(status as i32)
}

/// Ends the helper when the time is over.
fn die_after(time: Duration) {
    let time = libc::timeval { tv_sec: time.as_secs() as i64, tv_usec: i64::from(time.subsec_micros().max(1)) };
    let timer = libc::itimerval { it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 }, it_value: time };
    // SAFETY: structures that live over the calls. The signal is of this process alone; the program may have a handler for its own.
    unsafe {
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGALRM);
        libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
    }
}

/// The bytes that are copied at a time.
const STEP: u64 = 64 << 10;

/// Finishes all copies, evenly over the time, and waits for its end.
fn go_on(time: Duration) {
    let start = Instant::now();
    let begun = list();
    // SAFETY: the threads that would have ended these copies are dead, so their memory stays as it is.
    let parts = || begun.iter().map(|rest| unsafe { (&*rest.context, &*rest.copy, &*rest.done) });
    let left = |(_, copy, done): (&Context, &Copy, &AtomicU64)| copy.bytes().saturating_sub(done.load(SeqCst));
    let all: u64 = parts().map(left).sum();
    let mut copied = 0;
    loop {
        let mut goes_on = false;
        for (context, copy, done) in parts() {
            goes_on |= copy.step(context, done, STEP).unwrap_or(false);
            copied += STEP;
            let due = time.mul_f64((copied as f64 / all.max(1) as f64).min(1.0));
            std::thread::sleep(due.saturating_sub(start.elapsed()));
        }
        if !goes_on {
            // The timer ends it.
            std::thread::sleep(time);
        }
    }
}
