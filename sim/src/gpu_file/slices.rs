//! Time slices: the GPU runs the kernels of one process at a time.
//!
//! A process keeps the GPU while no other one has a kernel to run, then for a time slice more; it loses it earlier
//! when it has nothing to run, or is paused. Then the next one has it, in the order of their places. A change takes
//! [`CHANGE`], in which no process computes.
//!
//! No thread hands the GPU over: each process computes, under the table's lock, which ones had it until now. So
//! it does not matter when threads wake up, and a process that is stopped or has died keeps the GPU from others
//! only until the kernels that it has begun are over. Times are nanoseconds of the system's monotonic clock.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::Gpu;
use super::table::{Table, now};
use crate::errors::{Outcome, Status};

/// The time in which no process computes when the GPU changes from one process to another (measured on an H200: a lone kernel beside
/// a neighbour with the shortest slice).
const CHANGE: u64 = 200_000;
/// A process keeps the GPU so long after its last kernel, within its slice. The device knows what is queued behind a
/// kernel and begins it at once; here a thread has to wake up for that.
const LINGER: u64 = 200_000;

/// A point in the time that the process's kernels have had.
#[derive(Debug)]
pub(crate) struct KernelTime(u64);

/// One process's part.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// The time that all kernels take that the process has begun, and the part of this time that it has had already.
    begun: u64,
    had: u64,
    slice: u64,
    paused: bool,
}

impl Share {
    fn left(&self) -> u64 {
        self.begun.saturating_sub(self.had)
    }

    fn can_run(&self) -> bool {
        self.left() > 0 && !self.paused
    }
}

/// All of it, as it was at a time.
#[derive(Debug, Default)]
struct Books {
    at: u64,
    /// The process that has the GPU, or had it last.
    owner: usize,
    /// Its slice begins here, and it computes from here on.
    since: u64,
    /// When it had nothing to run any more.
    ended: u64,
    shares: Vec<Share>,
}

impl Books {
    /// Brings them up to a time.
    fn advance(&mut self, now: u64) {
        while self.at < now {
            let next = self.next();
            let owner = &mut self.shares[self.owner];
            let slice_end = self.since + owner.slice;
            let until = match next {
                None => now,
                Some(_) if owner.paused => self.at,
                Some(_) if owner.can_run() => slice_end,
                Some(_) => slice_end.min(self.ended + LINGER),
            };
            if let Some(next) = next.filter(|_| until <= self.at) {
                (self.owner, self.since) = (next, self.at + CHANGE);
                continue;
            }
            let mut end = until.min(now);
            if owner.can_run() {
                let start = self.at.max(self.since);
                end = end.min(start + owner.left());
                owner.had += end.saturating_sub(start);
                self.ended = end;
            }
            self.at = end;
            if next.is_none() {
                self.since = self.since.max(end);
            }
        }
    }

    /// The process that has it next: none if no other one has anything to run.
    fn next(&self) -> Option<usize> {
        let count = self.shares.len();
        (1..count).map(|step| (self.owner + step) % count).find(|slot| self.shares[*slot].can_run())
    }
}

impl Table {
    fn books(&self) -> Books {
        let [at, owner, since, ended] = self.slices().map(|word| word.load(Relaxed));
        let share = |slot| {
            let [begun, had] = self.kernel_time(slot).map(|word| word.load(Relaxed));
            Share { begun, had, slice: self.slice(slot).load(Relaxed), paused: self.is_paused(slot) }
        };
        let shares: Vec<Share> = self.used_slots().map(share).collect();
        Books { at, owner: owner as usize % shares.len().max(1), since, ended, shares }
    }

    fn keep(&self, books: &Books) {
        let values = [books.at, books.owner as u64, books.since, books.ended];
        self.slices().iter().zip(values).for_each(|(word, value)| word.store(value, Relaxed));
        for (slot, share) in books.shares.iter().enumerate() {
            self.kernel_time(slot)[1].store(share.had, Relaxed);
        }
    }
}

impl Gpu {
    /// A kernel that takes so long begins: the point at which it is over.
    pub(crate) fn begin_kernel(&self, time: Duration) -> KernelTime {
        let _locked = self.lock();
        self.advance();
        let time = time.as_nanos() as u64;
        KernelTime(self.table.kernel_time(self.slot)[0].fetch_add(time, Relaxed) + time)
    }

    /// The time that this process has to have the GPU yet until that point.
    pub(crate) fn kernel_time_left(&self, point: &KernelTime) -> Duration {
        let _locked = self.lock();
        self.advance();
        let had = self.table.kernel_time(self.slot)[1].load(Relaxed);
        Duration::from_nanos(point.0.saturating_sub(had))
    }

    /// Changes the slot of a process, under the table's lock. The books are brought up to the present before a change of a pause or a slice,
    /// so that the time until now counts by the old one.
    pub(super) fn settled<T>(&self, number: u32, change: impl FnOnce(usize) -> T) -> Outcome<T> {
        let _locked = self.lock();
        let slot = self.slot_of(number)?;
        self.advance();
        Ok(change(slot))
    }

    /// Sets how long a process's kernels have the GPU in a row while others wait.
    pub(crate) fn set_slice(&self, number: u32, slice: Duration) -> Outcome {
        if slice.is_zero() {
            return Err(Status::INVALID_VALUE);
        }
        self.settled(number, |slot| self.table.slice(slot).store(slice.as_nanos() as u64, Relaxed))
    }

    /// The lock is held.
    fn advance(&self) {
        let mut books = self.table.books();
        books.advance(now());
        self.table.keep(&books);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Processes with these time slices, and nothing to run.
    fn books(slices: &[u64]) -> Books {
        let share = |slice: &u64| Share { slice: *slice, ..Share::default() };
        Books { shares: slices.iter().map(share).collect(), ..Books::default() }
    }

    /// When a process has had all that it has begun, looking every microsecond.
    fn over(books: &mut Books, slot: usize) -> u64 {
        while books.shares[slot].left() > 0 {
            books.advance(books.at + 1000);
        }
        books.at
    }

    #[test]
    fn who_is_alone_has_all_the_time() {
        let mut books = books(&[2 * MS, 2 * MS]);
        books.advance(7 * MS);
        books.shares[0].begun = 30 * MS;
        assert_eq!(over(&mut books, 0), 37 * MS);
    }

    #[test]
    fn a_lone_kernel_waits_for_the_neighbours_slice_and_the_change() {
        for slice in [1000, 2 * MS, 10 * MS] {
            let mut books = books(&[slice, 2 * MS]);
            books.shares[0].begun = 100 * MS;
            books.advance(7 * MS);
            books.shares[1].begun = MS;
            assert_eq!(over(&mut books, 1), 7 * MS + slice + CHANGE + MS);
        }
    }

    #[test]
    fn two_that_always_have_work_share_what_the_changes_leave_by_their_slices() {
        let mut books = books(&[3 * MS, MS]);
        books.shares.iter_mut().for_each(|share| share.begun = 10_000 * MS);
        books.advance(4400 * MS);
        assert_eq!([books.shares[0].had, books.shares[1].had], [3000 * MS, 1000 * MS]);
        // In one step or in many.
        let mut again = self::books(&[3 * MS, MS]);
        again.shares.iter_mut().for_each(|share| share.begun = 10_000 * MS);
        (0..=4400 * MS).step_by(777_777).for_each(|at| again.advance(at));
        again.advance(4400 * MS);
        assert_eq!(again.shares[0].had, books.shares[0].had);
    }

    #[test]
    fn between_two_kernels_of_one_process_the_gpu_does_not_change_but_after_the_last_it_does() {
        let mut books = books(&[20 * MS, 20 * MS]);
        books.shares[0].begun = MS;
        books.shares[1].begun = 2 * MS;
        assert_eq!(over(&mut books, 0), MS);
        books.advance(MS + LINGER / 2);
        books.shares[0].begun += MS;
        assert_eq!(over(&mut books, 0), 2 * MS + LINGER / 2);
        assert_eq!(over(&mut books, 1), 2 * MS + LINGER / 2 + LINGER + CHANGE + 2 * MS);
    }

    #[test]
    fn who_is_paused_gives_way_at_once_and_goes_on_where_it_was() {
        let mut books = books(&[20 * MS, 2 * MS]);
        books.shares.iter_mut().for_each(|share| share.begun = 5 * MS);
        books.advance(MS);
        books.shares[0].paused = true;
        assert_eq!(over(&mut books, 1), MS + CHANGE + 5 * MS);
        books.advance(50 * MS);
        assert_eq!(books.shares[0].had, MS);
        books.shares[0].paused = false;
        assert_eq!(over(&mut books, 0), 50 * MS + CHANGE + 4 * MS);
    }

    #[test]
    fn processes_of_one_gpu_wait_for_each_other() {
        let slice = Some(Duration::from_millis(2));
        let first = Gpu::open(None, 64 << 20, slice).unwrap();
        let second = first.once_more(slice);
        let long = first.begin_kernel(Duration::from_secs(1000));
        let short = second.begin_kernel(Duration::from_millis(1));
        while !second.kernel_time_left(&short).is_zero() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!first.kernel_time_left(&long).is_zero());
        assert_eq!(first.set_slice(second.number(), Duration::ZERO), Err(Status::INVALID_VALUE));
        assert_eq!(first.set_slice(10_000, Duration::from_millis(1)), Err(Status::INVALID_VALUE));
        assert_eq!(first.set_slice(second.number(), Duration::from_millis(1)), Ok(()));
    }
}
