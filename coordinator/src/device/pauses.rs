//! The parts of programs on several GPUs, each of which is paused by the servers of all these GPUs.
//!
//! A program's memory on one GPU may be moved only when none of its work runs, on whichever GPU. So each server pauses all of it, and the
//! driver counts that. But a server that does not know what others before it have done resumes more often than it has paused, and so does one
//! that finds out whether a part can be paused at all. That must not undo what another server has done: here is what each has.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A part of a program, by its numbers for the driver.
pub type Part = (u32, u32);

/// All parts that are paused.
#[derive(Clone, Debug, Default)]
pub struct Pauses(Arc<Mutex<BTreeMap<Part, Arc<Mutex<Held>>>>>);

/// A part that is paused.
#[derive(Debug, Default)]
struct Held {
    /// How often each preemptor has paused a piece of it, by their numbers.
    by: BTreeMap<usize, u32>,
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
    /// Undo the last pause of a piece.
    Undo,
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
                *self.by.entry(own).or_default() += 1;
                Ok(())
            }
            What::Undo => {
                resume()?;
                if let Some(count) = self.by.get_mut(&own) {
                    *count -= 1;
                }
                self.by.retain(|_, count| *count > 0);
                Ok(())
            }
            What::End => {
                *self = Self::default();
                pause()
            }
            What::Resume(before) => {
                let is_last = self.by.keys().all(|other| *other == own);
                if !is_last {
                    if self.by.contains_key(&own) {
                        resume()?;
                    }
                    self.before += before;
                } else {
                    (0..=self.before + before).try_for_each(|_| resume())?;
                    self.before = 0;
                }
                self.by.remove(&own);
                Ok(())
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
        // Of each server before, one pause is left.
        let (driver, pauses) = (Driver(Cell::new(2)), Pauses::default());
        assert_eq!([0, 1].map(|own| driver.has(&pauses, own, What::Pause)), [3, 4]);
        assert_eq!(driver.has(&pauses, 0, What::Resume(1)), 3, "the rest is the other one's to let go on");
        assert_eq!(driver.has(&pauses, 1, What::Resume(1)), 0);
        assert_eq!(driver.has(&pauses, 0, What::Try), 0);
    }

    #[test]
    fn a_piece_that_is_undone_leaves_the_others_paused() {
        let (driver, pauses) = (Driver::default(), Pauses::default());
        assert_eq!(
            [What::Pause, What::Pause, What::Undo, What::Try].map(|what| driver.has(&pauses, 0, what)),
            [1, 2, 1, 1]
        );
    }

    #[test]
    fn a_resume_that_fails_is_none() {
        let (driver, pauses) = (Driver::default(), Pauses::default());
        assert_eq!([0, 1].map(|own| driver.has(&pauses, own, What::Pause)), [1, 2]);
        assert_eq!(pauses.carry_out(0, PART, What::Resume(0), || Ok(()), || Err(5)), Err(5));
        assert_eq!([0, 1].map(|own| driver.has(&pauses, own, What::Resume(0))), [1, 0]);
    }

    #[test]
    fn a_pause_that_fails_is_none() {
        let pauses = Pauses::default();
        assert_eq!(pauses.carry_out(0, PART, What::Pause, || Err(5), || Ok(())), Err(5));
        assert!(pauses.0.lock().expect("not poisoned").is_empty());
    }
}
