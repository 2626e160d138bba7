//! Pausing: a process's work is taken off the GPU, wherever it is, and goes on later as if nothing had been.
//!
//! Work touches memory in short accesses, each inside an [`AtWork`]. A paused process begins none; the process that pauses it
//! waits for those that are under way. Modelled time stands still meanwhile.
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
        let slot = self.slot_of(number)?;
        self.settle();
        let fresh = self.table.paused_since(slot).compare_exchange(0, now().max(1), SeqCst, SeqCst).is_ok();
        if let Err(gone) = self.slot_of(number) {
            // Another process has got its place just now.
            self.table.paused_since(slot).store(0, SeqCst);
            return Err(gone);
        }
        if self.ends_its_accesses(slot, SHORT_ACCESS) {
            return Ok(());
        }
        let stopped = holder(&self.file, byte_of(slot)).and_then(Stopped::of);
        if self.ends_its_accesses(slot, LONGEST_ACCESS) {
            return Ok(());
        }
        drop(stopped);
        if fresh {
            self.resume(number)?;
        }
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

    /// Lets a process go on.
    pub(crate) fn resume(&self, number: u32) -> Outcome {
        let slot = self.slot_of(number)?;
        self.settle();
        let since = self.table.paused_since(slot).load(SeqCst);
        if since != 0 {
            // The time first: it may stand still for a moment longer, but never jump.
            self.table.paused_before(slot).fetch_add(now().saturating_sub(since), SeqCst);
            self.table.paused_since(slot).store(0, SeqCst);
        }
        Ok(())
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
                gpu.pause(gpu.number()).unwrap();
                gpu.resume(gpu.number()).unwrap();
                gpu.resume(gpu.number()).unwrap();
                assert!(gpu.time() >= time);
            }
            worker.join().unwrap();
        });
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
        drop(access);
        drop(gpu.at_work());
    }
}
