//! The gate and the activity page's summary under loom: every order of the steps of a few threads, and every value that a load may see.
//!
//! In the model `membarrier` is a sequentially consistent fence in every thread. The assembly that finds a thread's word, the
//! mapping of memory and forks have ordinary tests.

#![cfg(test)]

#[path = "../../src/gate/protocol.rs"]
#[allow(dead_code, reason = "the model has no use for some of it")]
mod protocol;
#[path = "../../../include/src/page/summary.rs"]
#[allow(dead_code, reason = "as above")]
mod summary;

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

    pub(crate) fn light_fence() {
        fence(Ordering::SeqCst);
    }
}

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;
use protocol::{CLOSED, Gate, InCall, OPEN, RESTING, passes, state};

/// The GPU's memory: loom finds every access to it during a change.
struct Memory(UnsafeCell<u32>);

// SAFETY: loom watches every access.
unsafe impl Sync for Memory {}
// SAFETY: as above.
unsafe impl Send for Memory {}

struct World {
    gate: Gate,
    words: [InCall; 2],
    memory: Memory,
}

impl World {
    fn new(state: u32) -> Arc<Self> {
        Arc::new(Self {
            gate: Gate::new(state),
            words: [InCall::new(), InCall::new()],
            memory: Memory(UnsafeCell::new(0)),
        })
    }

    /// A call: passes, or steps back from a gate that does not let it.
    fn call(&self, thread: usize) -> bool {
        let word = &self.words[thread];
        word.enter();
        if !passes(self.gate.load()) {
            word.step_back();
            return false;
        }
        self.memory.0.with(|memory| {
            // SAFETY: loom checks that no thread writes meanwhile.
            unsafe { memory.read() }
        });
        word.leave();
        true
    }

    /// Closes the gate and waits until no call is inside.
    fn close(&self) {
        self.gate.close();
        fence(Ordering::SeqCst);
        while self.words.iter().any(|word| word.depth() != 0) {
            thread::yield_now();
        }
    }

    fn change_memory(&self) {
        self.memory.0.with_mut(|memory| {
            // SAFETY: loom checks that no other thread is there.
            unsafe { *memory += 1 }
        });
    }
}

/// All orders of steps; or, if there is a bound, those in which a thread is interrupted no more often than that where it would not
/// wait.
fn model(preemptions: Option<usize>, test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    let states = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = states.clone();
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        test();
    });
    println!("{} executions", states.load(std::sync::atomic::Ordering::Relaxed));
}

#[test]
fn nobody_is_inside_once_the_gate_is_closed() {
    model(None, || {
        let world = World::new(OPEN);
        let callers = [0, 1].map(|thread| {
            let world = world.clone();
            thread::spawn(move || {
                world.call(thread);
            })
        });
        world.close();
        world.change_memory();
        world.gate.set(OPEN);
        for caller in callers {
            caller.join().expect("the model's thread");
        }
    });
}

#[test]
fn a_call_that_passes_an_opened_gate_finds_the_memory_that_was_put_there_before() {
    model(None, || {
        let world = World::new(CLOSED);
        let caller = {
            let world = world.clone();
            thread::spawn(move || {
                while !world.call(0) {
                    thread::yield_now();
                }
            })
        };
        world.change_memory();
        world.gate.set(OPEN);
        caller.join().expect("the model's thread");
        world.close();
        world.change_memory();
    });
}

#[test]
fn calls_are_left_inside_only_when_nobody_changes_what_memory_there_is() {
    model(None, || {
        let world = World::new(OPEN);
        let mapper = {
            let world = world.clone();
            thread::spawn(move || {
                if world.gate.begin_mapping() {
                    world.change_memory();
                    world.gate.end_mapping();
                }
            })
        };
        world.gate.close();
        fence(Ordering::SeqCst);
        while !world.gate.leave_calls_inside() {
            thread::yield_now();
        }
        world.change_memory();
        world.gate.set(OPEN);
        mapper.join().expect("the model's thread");
    });
}

/// Beside others: a program that has come to rest is seen at work again by its first call, or did not come to rest.
#[test]
fn a_call_that_comes_as_the_program_comes_to_rest_is_not_overlooked() {
    model(None, || {
        let world = World::new(OPEN);
        // 1 if others wait for us.
        let at_work = Arc::new(AtomicU32::new(1));
        let caller = {
            let (world, at_work) = (world.clone(), at_work.clone());
            thread::spawn(move || {
                let word = &world.words[0];
                word.enter();
                if state(world.gate.load()) == RESTING {
                    world.gate.change(RESTING, OPEN);
                    // As `activity::begin`, which writes to a page that others look at only if it has to.
                    fence(Ordering::SeqCst);
                    if at_work.load(Ordering::Relaxed) == 0 {
                        at_work.fetch_or(1, Ordering::AcqRel);
                    }
                }
                // In here, and still in here when the others look.
            })
        };
        let activity = world.words[0].passed();
        let rests = world.gate.change(OPEN, RESTING) && {
            fence(Ordering::SeqCst);
            world.words[0].passed() == activity && world.words[0].depth() == 0
        };
        if rests {
            // As `activity::end`, and the look after it.
            at_work.fetch_and(0, Ordering::AcqRel);
            fence(Ordering::SeqCst);
            if world.gate.load() != RESTING {
                at_work.fetch_or(1, Ordering::AcqRel);
            }
        }
        caller.join().expect("the model's thread");
        assert_eq!(at_work.load(Ordering::SeqCst), 1, "a call is inside, and others do not wait for it");
    });
}

/// The activity page: the summary tells if any program is at work, once all have written their words.
#[test]
fn the_summary_of_the_activity_page_is_right_whoever_begins_and_ends_at_once() {
    const PREEMPTIONS: usize = 3;
    const OTHERS: [u64; 2] = [1, 2];
    for (at_first, ending, beginning) in [(3, 3, 0), (1, 1, 2), (7, 3, 0), (3, 3, 4)] {
        model(Some(PREEMPTIONS), move || {
            let (word, summary) = (Arc::new(AtomicU64::new(at_first)), Arc::new(AtomicU64::new(1)));
            let change = |bits: u64, sets: bool| {
                let (word, summary) = (word.clone(), summary.clone());
                move || {
                    let word = summary::Word { word: &word, summary: &summary, in_summary: 1 };
                    match sets {
                        true => word.set(bits),
                        false => assert_eq!(word.clear(bits), bits),
                    }
                }
            };
            let mut threads: Vec<_> = OTHERS
                .into_iter()
                .filter(|bit| ending & bit != 0)
                .map(|bit| thread::spawn(change(bit, false)))
                .collect();
            if beginning != 0 {
                threads.push(thread::spawn(change(beginning, true)));
            }
            for thread in threads {
                thread.join().expect("the model's thread");
            }
            let is_busy = word.load(Ordering::SeqCst) != 0;
            assert_eq!(word.load(Ordering::SeqCst), at_first & !ending | beginning);
            assert_eq!(summary.load(Ordering::SeqCst) != 0, is_busy, "{at_first}, {ending} ends, {beginning} begins");
        });
    }
}
