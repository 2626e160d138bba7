//! The parts of programs on several GPUs, each of which is paused by the servers of all these GPUs.
//!
//! A program's memory on one GPU may be moved only when none of its work runs, on whichever GPU. So each server pauses all of it, and the
//! driver counts that. But a server that does not know what others before it have done resumes more often than it has paused, and so does one
//! that finds out whether a part can be paused at all. That must not undo what another server has done: here is what each has.
//!
//! Nor must it undo what the server before has done for a GPU whose server does not know the program yet: its memory may be away there. Such
//! programs are **absent** until that server has them back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use baton_contract::wire::GpuNumber;
use baton_policy::arbiter::TenantId;
use baton_policy::gangs::GangId;

/// A part of a program, by its numbers for the driver.
pub type Part = (u32, u32);

/// All parts that are paused, and programs that are absent.
#[derive(Clone, Debug, Default)]
pub struct Pauses {
    parts: Arc<Mutex<BTreeMap<Part, Arc<Mutex<Held>>>>>,
    absent: Arc<Mutex<BTreeMap<GangId, Absent>>>,
}

/// The tenants of a gang that are yet to come back, on their GPUs.
type Absent = BTreeSet<(GpuNumber, TenantId)>;

/// A part that is paused.
#[derive(Debug, Default)]
struct Held {
    /// How often each server has paused a piece of it.
    by: BTreeMap<GpuNumber, u32>,
    /// How often others may have paused it that are no more, as each server knows.
    before: BTreeMap<GpuNumber, u32>,
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
    fn absent(&self) -> MutexGuard<'_, BTreeMap<GangId, Absent>> {
        self.absent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a gang's tenant is to come back on a GPU.
    pub fn expect(&self, gang: GangId, tenant: (GpuNumber, TenantId)) {
        self.absent().entry(gang).or_default().insert(tenant);
    }

    /// Notes that a tenant has come back, or never will. Returns its gang if it was the last one: what was left paused for its sake can be put
    /// back now.
    pub fn is_back(&self, tenant: (GpuNumber, TenantId)) -> Option<GangId> {
        let mut absent = self.absent();
        let gang = absent.iter_mut().find_map(|(gang, all)| all.remove(&tenant).then_some(*gang))?;
        absent.get(&gang).is_some_and(Absent::is_empty).then(|| absent.remove(&gang))?;
        Some(gang)
    }

    /// The tenants that are to come back on a GPU, with their gangs.
    pub fn expected(&self, gpu: GpuNumber) -> BTreeMap<TenantId, GangId> {
        let absent = self.absent();
        let all = absent.iter().flat_map(|(gang, absent)| absent.iter().map(|tenant| (*tenant, *gang)));
        all.filter(|((on, _), _)| *on == gpu).map(|((_, id), gang)| (id, gang)).collect()
    }

    /// Notes that a gang is part of another one from now on.
    pub fn merge(&self, from: GangId, into: GangId) {
        let mut all = self.absent();
        if let Some(absent) = all.remove(&from) {
            all.entry(into).or_default().extend(absent);
        }
    }

    /// True if some of a gang are to come back on other GPUs than this one.
    fn is_absent_elsewhere(&self, gang: Option<GangId>, own: GpuNumber) -> bool {
        let absent = self.absent();
        gang.and_then(|gang| absent.get(&gang)).is_some_and(|absent| absent.iter().any(|(gpu, _)| *gpu != own))
    }

    /// Has the driver pause or resume a part of a program in this gang, as far as no other server needs it paused. Only servers of GPUs of
    /// one program wait for each other here.
    ///
    /// # Errors
    ///
    /// The driver's. Then the part is as before.
    pub fn carry_out<E>(
        &self,
        (own, gang): (GpuNumber, Option<GangId>),
        part: Part,
        what: What,
        pause: impl FnOnce() -> Result<(), E>,
        resume: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        let known = Arc::clone(self.parts.lock().unwrap_or_else(PoisonError::into_inner).entry(part).or_default());
        let mut held = known.lock().unwrap_or_else(PoisonError::into_inner);
        // With the lock: a server that has it back after this look finds what is left to be undone.
        let is_absent = self.is_absent_elsewhere(gang, own);
        let result = held.carry_out(own, is_absent, what, pause, resume);
        let is_over = held.by.is_empty() && held.before.is_empty();
        drop(held);
        if is_over {
            let mut all = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
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
        own: GpuNumber,
        is_absent: bool,
        what: What,
        pause: impl FnOnce() -> Result<(), E>,
        resume: impl Fn() -> Result<(), E>,
    ) -> Result<(), E> {
        match what {
            // Another one has found out.
            What::Try if !self.by.is_empty() || is_absent => Ok(()),
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
                let is_last = !is_absent && self.by.keys().all(|other| *other == own);
                if !is_last {
                    if self.by.contains_key(&own) {
                        resume()?;
                    }
                    if before > 0 {
                        self.before.insert(own, before);
                    }
                } else {
                    let others: u32 =
                        self.before.iter().filter(|(other, _)| **other != own).map(|(_, count)| count).sum();
                    (0..=others + before).try_for_each(|_| resume())?;
                    self.before.clear();
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
    const GANG: GangId = GangId { guest: None, number: 3 };

    /// The driver, which counts.
    #[derive(Default)]
    struct Driver(Cell<u32>);

    impl Driver {
        fn has(&self, pauses: &Pauses, own: u32, what: What) -> u32 {
            let done: Result<(), ()> = pauses.carry_out(
                (GpuNumber(own), Some(GANG)),
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
        assert!(pauses.parts.lock().expect("not poisoned").is_empty());
    }

    #[test]
    fn nothing_goes_on_before_all_servers_have_the_gang_back() {
        // The server before has paused it for the sake of GPU 2, whose server does not know it yet.
        let (driver, pauses) = (Driver(Cell::new(1)), Pauses::default());
        let absent = (GpuNumber(2), TenantId(4));
        let before = GangId { number: 5, ..GANG };
        pauses.expect(before, absent);
        pauses.merge(before, GANG);
        assert_eq!(pauses.expected(GpuNumber(2)), BTreeMap::from([(TenantId(4), GANG)]));
        assert_eq!(driver.has(&pauses, 0, What::Try), 1);
        assert_eq!([What::Pause, What::Resume(1)].map(|what| driver.has(&pauses, 0, what)), [2, 1]);
        assert_eq!(driver.has(&pauses, 2, What::Pause), 2, "its own server may do as it needs");
        let other = (GpuNumber(1), TenantId(5));
        pauses.expect(GANG, other);
        assert_eq!([absent, absent, other, other].map(|one| pauses.is_back(one)), [None, None, Some(GANG), None]);
        assert_eq!(driver.has(&pauses, 0, What::Resume(1)), 2, "now that one needs it paused");
        assert_eq!(driver.has(&pauses, 2, What::Resume(1)), 0);
        // One that comes back and needs nothing lets all go on.
        driver.0.set(1);
        pauses.expect(GANG, absent);
        assert_eq!(driver.has(&pauses, 1, What::Resume(1)), 1);
        assert_eq!(pauses.is_back(absent), Some(GANG));
        assert_eq!(driver.has(&pauses, 2, What::Resume(1)), 0);
        assert!(pauses.parts.lock().expect("not poisoned").is_empty());
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
        assert_eq!(pauses.carry_out((GpuNumber(0), None), PART, What::Resume(0), || Ok(()), || Err(5)), Err(5));
        assert_eq!([0, 1].map(|own| driver.has(&pauses, own, What::Resume(0))), [1, 0]);
    }

    #[test]
    fn a_pause_that_fails_is_none() {
        let pauses = Pauses::default();
        assert_eq!(pauses.carry_out((GpuNumber(0), None), PART, What::Pause, || Err(5), || Ok(())), Err(5));
        assert!(pauses.parts.lock().expect("not poisoned").is_empty());
    }
}
