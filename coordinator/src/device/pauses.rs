//! The parts of programs on several GPUs, each of which is paused by the servers of all these GPUs.
//!
//! A program's memory on one GPU may be moved only when none of its work runs, on whichever GPU. So each server pauses all of it, and the
//! driver counts that. But a server that does not know what others before it have done resumes more often than it has paused, and so does one
//! that finds out whether a part can be paused at all. That must not undo what another server has done: here is what each has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// A part of a program, by its numbers for the driver.
pub type Part = (u32, u32);

/// All parts that are paused.
#[derive(Clone, Debug, Default)]
pub struct Pauses(Arc<Mutex<BTreeMap<Part, Arc<Mutex<Held>>>>>);

/// A part that is paused.
#[derive(Debug, Default)]
struct Held {
    /// The preemptors that have paused it, by their numbers.
    by: BTreeSet<usize>,
    /// How often others may have paused it that are no more.
    before: u32,
}

/// What a server is about to do with a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Have the driver find out whether it can be paused.
    Try,
    /// Pause it.
    Pause,
    /// Resume it, and undo so many pauses of servers that are no more.
    Resume(u32),
    /// Pause it for good: its process has ended, and another one may have its numbers one day.
    End,
}

impl Pauses {
    /// Has the driver pause or resume a part, as far as no other server needs it paused. Only servers of GPUs of one program wait for each
    /// other here.
    ///
    /// # Errors
    ///
    /// The driver's. Then the part is as before.
    pub fn carry_out<E>(
        &self,
        own: usize,
        part: Part,
        what: What,
        pause: impl FnOnce() -> Result<(), E>,
        resume: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        let known = Arc::clone(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(part).or_default());
        let mut held = known.lock().unwrap_or_else(PoisonError::into_inner);
        let result = held.carry_out(own, what, pause, resume);
        let is_over = held.by.is_empty() && held.before == 0;
        drop(held);
        if is_over {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // This one, and the map's: no other has it at the moment.
            if Arc::strong_count(&known) == 2 {
                all.remove(&part);
            }
        }
        result
    }
}

impl Held {
    fn carry_out<E>(
        &mut self,
        own: usize,
        what: What,
        pause: impl FnOnce() -> Result<(), E>,
        resume: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        match what {
            // Another one has found out.
            What::Try if !self.by.is_empty() => Ok(()),
            What::Try => resume(),
            What::Pause => {
                pause()?;
                self.by.insert(own);
                Ok(())
            }
            What::End => {
                *self = Self::default();
                pause()
            }
            What::Resume(before) => {
                let was_own = self.by.remove(&own);
                self.before = self.before.max(before);
                if self.by.is_empty() {
                    (0..=std::mem::take(&mut self.before)).try_for_each(|_| resume())
                } else if was_own {
                    resume()
                } else {
                    Ok(())
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const PART: Part = (0, 7);

    /// The driver, which counts.
    #[derive(Default)]
    struct Driver(Cell<u32>);

    impl Driver {
        fn has(&self, pauses: &Pauses, own: usize, what: What) -> u32 {
            let done: Result<(), ()> = pauses.carry_out(
                own,
                PART,
                what,
                || {
                    self.0.set(self.0.get() + 1);
                    Ok(())
                },
                || {
                    self.0.set(self.0.get().saturating_sub(1));
                    Ok(())
                },
            );
            assert_eq!(done, Ok(()));
            self.0.get()
        }
    }

    #[test]
    fn a_part_goes_on_when_all_have_resumed_it() {
        let (driver, pauses) = (Driver::default(), Pauses::default());
        assert_eq!([0, 1].map(|own| driver.has(&pauses, own, What::Pause)), [1, 2]);
        assert_eq!(
            [What::Try, What::Resume(0)].map(|what| driver.has(&pauses, 2, what)),
            [2, 2],
            "it has not paused it"
        );
        assert_eq!([0, 1].map(|own| driver.has(&pauses, own, What::Resume(0))), [1, 0]);
        assert!(pauses.0.lock().expect("not poisoned").is_empty());
    }

    #[test]
    fn what_others_before_have_done_is_undone_when_none_needs_it() {
        let (driver, pauses) = (Driver(Cell::new(2)), Pauses::default());
        assert_eq!(driver.has(&pauses, 1, What::Pause), 3);
        assert_eq!(driver.has(&pauses, 0, What::Resume(2)), 3, "it is another one's to let go on");
        assert_eq!(driver.has(&pauses, 1, What::Resume(2)), 0);
        assert_eq!(driver.has(&pauses, 0, What::Try), 0);
    }

    #[test]
    fn a_pause_that_fails_is_none() {
        let pauses = Pauses::default();
        assert_eq!(pauses.carry_out(0, PART, What::Pause, || Err(5), || Ok(())), Err(5));
        assert!(pauses.0.lock().expect("not poisoned").is_empty());
    }
}
