//! Pausing: a process's work is taken off the GPU, wherever it is, and goes on later as if nothing had been.
//!
//! Work touches memory in short accesses, each inside an [`AtWork`]. A paused process begins none; the process that pauses it
//! waits for those that are under way. Modelled time stands still meanwhile.
//!
//! Pauses are counted, in the table. So they outlive the process that made them: whoever lets the paused process go on has to do that as
//! often as all have paused it. Once more does nothing. (All of that is measured on NVIDIA's driver.)
//!
//! A GPU does its work also while the process is stopped that has queued it; here the process does that itself. So an access in which
//! a process was stopped is let end: the process goes on for that long, and is stopped again.

use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use super::byte_lock::holder;
use super::stopped::{PAUSE, SHORT_ACCESS, Stopped};
use super::table::now;
use super::{Gpu, byte_of};
use crate::errors::{Outcome, Status};

/// An access that takes longer than this is not waited for.
const LONGEST_ACCESS: Duration = Duration::from_secs(1);

/// The right to touch memory on behalf of the GPU's work.
pub(crate) struct AtWork<'a>(&'a Gpu);

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.table.at_work(self.0.slot).fetch_sub(1, SeqCst);
    }
}

impl Gpu {
    /// Waits while this process is paused. It cannot be paused then until the access has ended.
    pub(crate) fn at_work(&self) -> AtWork<'_> {
        loop {
            self.table.at_work(self.slot).fetch_add(1, SeqCst);
            let access = AtWork(self);
            // A process that pauses this one writes first and looks for accesses then; here it is the other way round.
            if !self.is_paused() {
                return access;
            }
            drop(access);
            while self.is_paused() {
                std::thread::sleep(PAUSE);
            }
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.table.is_paused(self.slot)
    }

    /// The time that this process has been on the GPU.
    pub(crate) fn time(&self) -> Duration {
        loop {
            let before = self.table.paused_before(self.slot).load(SeqCst);
            let since = self.table.paused_since(self.slot).load(SeqCst);
            let end = if since == 0 { now() } else { since };
            if self.table.paused_before(self.slot).load(SeqCst) == before {
                return Duration::from_nanos(end.saturating_sub(before));
            }
        }
    }

    /// Takes a process off the GPU. When this returns, nothing of it touches memory.
    pub(crate) fn pause(&self, number: u32) -> Outcome {
        let slot = self.settled(number, |slot| {
            if self.table.pauses(slot).fetch_add(1, SeqCst) == 0 {
                self.table.paused_since(slot).store(now().max(1), SeqCst);
            }
            slot
        })?;
        if self.ends_its_accesses(slot, SHORT_ACCESS) {
            return Ok(());
        }
        let stopped = holder(&self.file, byte_of(slot)).and_then(Stopped::of);
        if self.ends_its_accesses(slot, LONGEST_ACCESS) {
            return Ok(());
        }
        drop(stopped);
        self.resume(number)?;
        Err(Status::NOT_READY)
    }

    /// True if the accesses of a process that begins none end in this time.
    fn ends_its_accesses(&self, slot: usize, limit: Duration) -> bool {
        let start = Instant::now();
        while self.table.at_work(slot).load(SeqCst) != 0 {
            if start.elapsed() > limit {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }

    /// Takes one pause of a process back. With the last one it goes on.
    pub(crate) fn resume(&self, number: u32) -> Outcome {
        self.settled(number, |slot| {
            let pauses = self.table.pauses(slot).load(SeqCst);
            self.table.pauses(slot).store(pauses.saturating_sub(1), SeqCst);
            if pauses == 1 {
                let since = self.table.paused_since(slot).load(SeqCst);
                // The time first: it may stand still for a moment longer, but never jump.
                self.table.paused_before(slot).fetch_add(now().saturating_sub(since), SeqCst);
                self.table.paused_since(slot).store(0, SeqCst);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn nothing_is_at_work_while_a_process_is_paused_and_its_time_stands_still() {
        let gpu = Gpu::open(None, 64 << 20, None).unwrap();
        let (accesses, inside) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                while accesses.load(SeqCst) < 10_000 {
                    let access = gpu.at_work();
                    inside.store(1, SeqCst);
                    accesses.fetch_add(1, SeqCst);
                    inside.store(0, SeqCst);
                    drop(access);
                }
            });
            for _ in 0..50 {
                gpu.pause(gpu.number()).unwrap();
                assert_eq!(inside.load(SeqCst), 0);
                let (before, time) = (accesses.load(SeqCst), gpu.time());
                std::thread::sleep(Duration::from_millis(1));
                assert_eq!(accesses.load(SeqCst), before);
                assert_eq!(gpu.time(), time);
                gpu.resume(gpu.number()).unwrap();
                assert!(gpu.time() >= time);
            }
            worker.join().unwrap();
        });
    }

    #[test]
    fn a_process_goes_on_when_all_pauses_are_taken_back_and_once_more_does_nothing() {
        let gpu = Gpu::open(None, 64 << 20, None).unwrap();
        let (other, third) = (gpu.once_more(None), gpu.once_more(None));
        let number = gpu.number();
        for _ in 0..2 {
            other.pause(number).unwrap();
            third.pause(number).unwrap();
            let time = gpu.time();
            // By whoever it is.
            other.resume(number).unwrap();
            assert!(gpu.is_paused());
            assert_eq!(gpu.time(), time);
            other.resume(number).unwrap();
            assert!(!gpu.is_paused());
            // No pause is taken back that is yet to come.
            third.resume(number).unwrap();
            assert!(!gpu.is_paused());
        }
        drop(gpu.at_work());
        assert!(!other.is_paused() && !third.is_paused());
    }

    #[test]
    fn a_process_that_is_not_there_cannot_be_paused() {
        let gpu = Gpu::open(None, 64 << 20, None).unwrap();
        assert_eq!(gpu.pause(gpu.number() + 1), Err(Status::INVALID_VALUE));
        assert_eq!(gpu.resume(10_000), Err(Status::INVALID_VALUE));
    }

    #[test]
    fn an_access_that_does_not_end_is_not_waited_for_and_the_process_goes_on() {
        let gpu = Gpu::open(None, 64 << 20, None).unwrap();
        let access = gpu.at_work();
        assert_eq!(gpu.pause(gpu.number()), Err(Status::NOT_READY));
        assert!(!gpu.is_paused());
        drop(access);
        drop(gpu.at_work());
        gpu.pause(gpu.number()).unwrap();
        let access = AtWork(&gpu);
        gpu.table.at_work(gpu.slot).fetch_add(1, SeqCst);
        assert_eq!(gpu.pause(gpu.number()), Err(Status::NOT_READY));
        assert!(gpu.is_paused(), "by the pause before it");
        drop(access);
        gpu.resume(gpu.number()).unwrap();
        drop(gpu.at_work());
    }
}
