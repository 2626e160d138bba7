//! A thread for tasks that neither a call of the program nor the control loop may wait for: it makes events, and asks about streams that a
//! thread may be stuck with.
//!
//! It is started when it is first needed, and holds no lock while it works. A caller waits for an answer no longer than its limit, and not
//! at all while the thread has not come back from an earlier question.

use core::cell::Cell;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::driver::api::{self, Handle};
use crate::gate::{self, KeptOff};
use crate::sys::thread;

type Task = Box<dyn FnOnce() + Send>;

struct Aside {
    tasks: VecDeque<Task>,
    has_thread: bool,
    /// A caller has given up waiting for the thread, and it has not come back since.
    is_late: bool,
}

static ASIDE: Mutex<Aside> = Mutex::new(Aside { tasks: VecDeque::new(), has_thread: false, is_late: false });
static NEWS: Condvar = Condvar::new();
static DONE: Condvar = Condvar::new();

thread_local! {
    static IS_ASIDE: Cell<bool> = const { Cell::new(false) };
}

fn lock() -> MutexGuard<'static, Aside> {
    ASIDE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Aside {
    /// Queues a task. False if no thread can be started to run it.
    fn add(&mut self, task: Task) -> bool {
        self.has_thread = self.has_thread || thread::start("baton-aside", run);
        if self.has_thread {
            self.tasks.push_back(task);
            NEWS.notify_one();
        }
        self.has_thread
    }
}

/// Runs a task on the aside thread as soon as possible, and does not wait for it.
pub(super) fn soon(what: impl FnOnce() + Send + 'static) {
    lock().add(Box::new(what));
}

/// Runs a task on the aside thread and waits up to `limit` for its result. Returns `None` if it has not ended by then; it still ends
/// later.
pub(super) fn ask<T: Send + 'static>(limit: Duration, what: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if IS_ASIDE.with(Cell::get) {
        return Some(what());
    }
    let place = Arc::new(Mutex::new(None));
    let answer = Arc::clone(&place);
    let mut aside = lock();
    let task = move || {
        let found = what();
        *answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    };
    if aside.is_late || !aside.add(Box::new(task)) {
        return None;
    }
    let take = || place.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (mut aside, waited) = DONE
        .wait_timeout_while(aside, limit, |_| place.lock().unwrap_or_else(PoisonError::into_inner).is_none())
        .unwrap_or_else(PoisonError::into_inner);
    aside.is_late |= waited.timed_out();
    drop(aside);
    take()
}

/// The longest wait for an answer about another call's stream: as long as a busy machine may take to run the task.
const LONG: Duration = Duration::from_millis(200);

/// Runs a task that may have to wait for a thread that is stuck in the driver: on this thread if no other is inside, else on the aside
/// thread. Returns `None` if it takes too long (it still ends later), or if it cannot be run.
pub(super) fn unless_stuck<T: Send + 'static>(context: Handle, what: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    match KeptOff::begin_if_none_is_inside(context) {
        Some(_kept_off) if gate::inside() <= 1 => Some(api::where_nobody_is_stuck(what)),
        _ => ask(LONG, what),
    }
}

fn run() {
    IS_ASIDE.with(|is_aside| is_aside.set(true));
    // Never undone: nothing this thread does disturbs a capture.
    core::mem::forget(api::Relaxed::enter());
    let mut aside = lock();
    loop {
        while let Some(task) = aside.tasks.pop_front() {
            drop(aside);
            task();
            aside = lock();
            aside.is_late = false;
            DONE.notify_all();
        }
        aside = NEWS.wait(aside).unwrap_or_else(PoisonError::into_inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn nobody_waits_for_a_question_that_takes_too_long_nor_for_those_behind_it() {
        const LONG: Duration = Duration::from_secs(60);
        assert_eq!(ask(LONG, || 7), Some(7));
        let (go_on, goes_on) = mpsc::channel::<()>();
        assert_eq!(ask(Duration::from_millis(1), move || goes_on.recv().is_ok()), None);
        assert_eq!(ask(LONG, || 8), None, "it has not come back");
        go_on.send(()).expect("it still waits");
        while ask(LONG, || 9) != Some(9) {
            std::thread::yield_now();
        }
        assert_eq!(ask(LONG, || ask(LONG, || 10)), Some(Some(10)), "it can ask itself");
    }
}
