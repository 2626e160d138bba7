//! Tells when everything that the program has queued on its GPUs has ended. The driver is only asked, and no thread waits in it: work may
//! wait for something that the program has yet to do, and then the gate has to be opened again.

use std::time::{Duration, Instant};

use super::contexts;
use super::mark::Mark;
use crate::sys::thread;

/// The first and the longest pause between two questions.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_micros(500);

/// The pauses between questions, which get longer and longer.
pub(crate) struct Pauses(Duration);

impl Pauses {
    pub(crate) fn new() -> Self {
        Self(FIRST_PAUSE)
    }

    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST_PAUSE);
        pause
    }
}

/// All work that is queued at some moment.
struct Queued(Vec<Mark>);

impl Queued {
    fn now() -> Self {
        Self(contexts::all().into_iter().map(Mark::of_context).collect())
    }

    fn has_ended(&mut self) -> bool {
        // A broken context runs nothing.
        self.0.retain_mut(|mark| !mark.look().is_over());
        self.0.is_empty()
    }
}

/// Waits until all work has ended; gives up at the deadline. The gate is closed and no thread is inside, so nothing is added
/// meanwhile. `beat` is called now and then.
pub(crate) fn drain(deadline: Instant, beat: impl Fn()) -> bool {
    let (mut queued, mut pauses) = (Queued::now(), Pauses::new());
    loop {
        if queued.has_ended() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        beat();
        thread::sleep(pauses.next());
    }
}

/// Watches for the end of all work, while calls may come in.
#[derive(Default)]
pub(crate) struct IdleWatch {
    /// The queued work, and the number of calls that the program had made by then.
    queued: Option<(u32, Queued)>,
}

impl IdleWatch {
    /// True if all work has ended that the program had queued after this many calls.
    pub(crate) fn is_idle(&mut self, calls: u32) -> bool {
        let (_, queued) = match self.queued.take() {
            Some(known) if known.0 == calls => self.queued.insert(known),
            _ => self.queued.insert((calls, Queued::now())),
        };
        queued.has_ended()
    }
}
