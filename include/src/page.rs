//! The two pages that a tenant and the coordinator share, one for each direction, and the activity pages, which many share.
//!
//! Each of the two is written by one side only, and says nothing that the other side must believe: the coordinator
//! shows what a tenant's page says, and decides by its own tables. A page is 4096 bytes of memory that both
//! sides have mapped, so it holds fixed-width integers only, each read and written as a whole.

mod activity;
mod summary;

/// What the summary is made of; of loom's atomics in the model that checks it.
mod sync {
    pub(super) use core::sync::atomic::{AtomicU64, Ordering};
}

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub use activity::{ACTIVITY_SLOTS, ACTIVITY_WORDS, ActivityPage, ElsewherePage};

use crate::memory::{PerKind, Unmanaged};

/// The size of either page, in bytes.
pub const PAGE_BYTES: usize = 4096;

/// Written by the coordinator, read-only in the tenant.
#[repr(C)]
#[derive(Debug, Default)]
pub struct CoordinatorPage {
    /// [`crate::wire::VERSION`].
    pub version: AtomicU32,
    /// What the tenant could have with everybody else evicted, in bytes: the size of "its GPU".
    pub arena_bytes: AtomicU64,
    /// What it could have in arena and host pool beside what others have there, in bytes, or a little more or less than this: what it has
    /// and what would be granted. Its own allocations change nothing about it.
    pub could_have_bytes: AtomicU64,
    /// What is done to a tenant that does not answer: 0, [`PAUSED`] or [`TAKEN`].
    pub taken: AtomicU32,
}

/// Its work is paused, and it has not closed its gate: what it makes that can be paused is paused from the beginning.
pub const PAUSED: u32 = 1;
/// Others may have memory that it has mapped: it must not go on by itself, whatever becomes of the coordinator.
pub const TAKEN: u32 = 2;

/// Written by the tenant.
#[repr(C)]
#[derive(Debug, Default)]
pub struct TenantPage {
    /// Device memory that Baton does not move, in bytes, by kind, in the order of [`Unmanaged::ALL`].
    pub unmanaged_bytes: [AtomicU64; Unmanaged::ALL.len()],
    /// Where the addresses that it gives to allocations begin: a word between here and the end may be a pointer.
    pub window_start: AtomicU64,
    /// Where they end.
    pub window_end: AtomicU64,
    /// Where the host memory begins that its kernels can reach, as far as a word in its memory may tell of it.
    pub host_start: AtomicU64,
    /// Where that ends.
    pub host_end: AtomicU64,
    /// While it is inside of the call that [`Probe`](crate::messages::PreemptionCommand::Probe) asks for:
    /// 1 and the milliseconds in which it was seen to be there. Otherwise 0.
    pub probing: AtomicU32,
    /// Changes again and again while it is at work beside others: it was not stopped.
    /// Also while its gate is closed and it waits for a call that is inside.
    pub heartbeat: AtomicU32,
    /// How often it was about to make something that can be paused: ahead of what it has said last
    /// ([`Channels`](crate::messages::PreemptionReport::Channels)), and there may be something that nobody else knows.
    pub channels_begun: AtomicU32,
    /// Odd while it has its turn and rests: nothing of it runs, and no call has passed its gate since this number was written. The
    /// first call changes it before it passes.
    pub rests: AtomicU32,
    /// When its requests began and ended, if its class is latency.
    pub requests: RequestRing,
}

impl TenantPage {
    /// The bytes of each kind of memory that Baton does not move, as the tenant says.
    pub fn unmanaged(&self) -> PerKind {
        self.unmanaged_bytes.each_ref().map(|bytes| bytes.load(Ordering::Relaxed))
    }
}

/// How many stamps the ring has. All but one of them can be read: the oldest may be just being overwritten.
pub const REQUEST_STAMPS: usize = 128;

/// When a tenant's latest requests began and ended. A *request* goes from the first call after rest until its work is found to
/// have ended, whatever preempts it meanwhile.
///
/// The tenant writes: any of its threads says that a request begins, and one thread says that it has ended. The coordinator reads at
/// any time, and nobody waits. Times are nanoseconds of the tenant's `CLOCK_MONOTONIC`, never 0. In another time namespace than the
/// reader's that clock has an offset: then only the difference of two times means anything.
///
/// Request number `n`, counted from 0, has the stamp `n % REQUEST_STAMPS`. The count goes up when a stamp is complete.
#[repr(C)]
#[derive(Debug)]
pub struct RequestRing {
    /// When the present one began; 0 if there is none.
    begun: AtomicU64,
    /// How many have ended.
    count: AtomicU64,
    stamps: [RequestStamp; REQUEST_STAMPS],
}

/// A request that has ended.
#[repr(C)]
#[derive(Debug)]
struct RequestStamp {
    began: AtomicU64,
    ended: AtomicU64,
}

/// When a request began and ended, in nanoseconds of the tenant's `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTimes {
    /// When its first call came.
    pub began: u64,
    /// When its work was found to have ended: never before it began.
    pub ended: u64,
}

impl RequestTimes {
    /// How long it took, in nanoseconds. A tenant that lies can have it be anything.
    pub const fn nanos(self) -> u64 {
        self.ended.saturating_sub(self.began)
    }
}

impl Default for RequestRing {
    fn default() -> Self {
        let stamps = [const { RequestStamp { began: AtomicU64::new(0), ended: AtomicU64::new(0) } }; REQUEST_STAMPS];
        Self { begun: AtomicU64::new(0), count: AtomicU64::new(0), stamps }
    }
}

impl RequestRing {
    /// The tenant: a request begins. Nothing changes if there is one already. Several threads may say so at once.
    pub fn begin(&self, now: u64) {
        let _ = self.begun.compare_exchange(0, now.max(1), Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The tenant: the work of the present request has ended. Nothing changes if there is none. One thread at a time says so.
    pub fn end(&self, now: u64) {
        let began = self.begun.swap(0, Ordering::AcqRel);
        if began == 0 {
            return;
        }
        let number = self.count.load(Ordering::Relaxed);
        let stamp = self.stamp(number);
        // Release, each: whoever reads one of them also finds the count that the request before has left.
        stamp.began.store(began, Ordering::Release);
        stamp.ended.store(now, Ordering::Release);
        self.count.store(number.wrapping_add(1), Ordering::Release);
    }

    /// When the present request began; none if there is no request.
    pub fn present(&self) -> Option<u64> {
        Some(self.begun.load(Ordering::Relaxed)).filter(|began| *began != 0)
    }

    /// The coordinator: gives `each` the requests that have ended since `seen` of them had, the oldest first, and says how many
    /// have by now: `seen` for the next time, and 0 for the first. Those of which the stamp was overwritten, or may be just
    /// now, are left out.
    ///
    /// Looks at fewer than [`REQUEST_STAMPS`] stamps, whatever the tenant writes. One that writes nonsense gets a request left
    /// out or shown again: those that end before they begin are left out, and so is everything if the count has gone back.
    pub fn read(&self, seen: u64, mut each: impl FnMut(RequestTimes)) -> u64 {
        let count = self.count.load(Ordering::Acquire);
        let since = count.wrapping_sub(seen);
        if since > u64::MAX / 2 {
            return count;
        }
        for before in (1..=since.min(REQUEST_STAMPS as u64 - 1)).rev() {
            let number = count.wrapping_sub(before);
            let stamp = self.stamp(number);
            let (began, ended) = (stamp.began.load(Ordering::Acquire), stamp.ended.load(Ordering::Acquire));
            // The next to use this stamp writes it while the count is so far on.
            let is_overwritten = self.count.load(Ordering::Relaxed).wrapping_sub(number) >= REQUEST_STAMPS as u64;
            if !is_overwritten && began != 0 && ended >= began {
                each(RequestTimes { began, ended });
            }
        }
        count
    }

    fn stamp(&self, number: u64) -> &RequestStamp {
        &self.stamps[(number % REQUEST_STAMPS as u64) as usize]
    }
}

const _: () = assert!(size_of::<CoordinatorPage>() <= PAGE_BYTES && size_of::<TenantPage>() <= PAGE_BYTES);
const _: () = assert!(core::mem::offset_of!(CoordinatorPage, arena_bytes) == 8);
const _: () = assert!(core::mem::offset_of!(TenantPage, requests) == 104);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(ring: &RequestRing, seen: u64) -> (u64, Vec<(u64, u64)>) {
        let mut times = Vec::new();
        let count = ring.read(seen, |request| times.push((request.began, request.ended)));
        (count, times)
    }

    #[test]
    fn a_request_goes_from_the_first_beginning_to_the_end() {
        let ring = RequestRing::default();
        assert_eq!((read(&ring, 0), ring.present()), ((0, vec![]), None));
        ring.end(5);
        assert_eq!(read(&ring, 0), (0, vec![]), "there was none");
        ring.begin(10);
        ring.begin(11);
        assert_eq!((read(&ring, 0), ring.present()), ((0, vec![]), Some(10)));
        ring.end(12);
        ring.end(13);
        assert_eq!((read(&ring, 0), ring.present()), ((1, vec![(10, 12)]), None));
        ring.begin(20);
        ring.end(20);
        assert_eq!(read(&ring, 1), (2, vec![(20, 20)]), "only what is new");
        assert_eq!(read(&ring, 2), (2, vec![]));
        assert_eq!(RequestTimes { began: 10, ended: 12 }.nanos(), 2);
    }

    #[test]
    fn who_reads_too_late_gets_the_latest() {
        let ring = RequestRing::default();
        let (all, kept) = (3 * REQUEST_STAMPS as u64 + 7, REQUEST_STAMPS as u64 - 1);
        for number in 1..=all {
            ring.begin(number * 10);
            ring.end(number * 10 + 1);
        }
        let (count, times) = read(&ring, 2);
        assert_eq!(count, all);
        let latest: Vec<_> = (all - kept + 1..=all).map(|number| (number * 10, number * 10 + 1)).collect();
        assert_eq!(times, latest);
        assert_eq!(read(&ring, all - 1).1, [(all * 10, all * 10 + 1)]);
    }

    #[test]
    fn whoever_reads_meanwhile_gets_whole_requests_in_order_and_once() {
        let ring = RequestRing::default();
        let requests = if cfg!(miri) { 300 } else { 300_000 };
        let mut last = 0;
        let mut check = |request: RequestTimes| {
            assert_eq!(request.ended, request.began * 3, "half of it is another's");
            assert!(request.began > last, "{} after {last}", request.began);
            last = request.began;
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1..=requests {
                    ring.begin(number);
                    ring.end(number * 3);
                }
            });
            let mut seen = 0;
            while seen < requests {
                let count = ring.read(seen, &mut check);
                assert!(count >= seen);
                seen = count;
                std::hint::spin_loop();
            }
        });
        assert_eq!(read(&ring, 0).1.len(), REQUEST_STAMPS - 1);
        assert_eq!(last, requests, "nothing overwrites the last");
    }

    #[test]
    fn only_one_of_several_that_begin_at_once_counts() {
        let ring = RequestRing::default();
        for round in 1..=if cfg!(miri) { 5 } else { 500 } {
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let ring = &ring;
                    scope.spawn(move || ring.begin(round * 10 + thread));
                }
            });
            ring.end(round * 10 + 5);
            let (count, times) = read(&ring, round - 1);
            assert_eq!((count, times.len()), (round, 1));
            assert!((round * 10..round * 10 + 3).contains(&times[0].0));
        }
    }

    #[test]
    fn nonsense_by_the_tenant_does_no_harm() {
        let ring = RequestRing::default();
        ring.begin(10);
        ring.end(9);
        assert_eq!(read(&ring, 0), (1, vec![]), "it ended before it began");
        ring.begin(1);
        ring.end(u64::MAX);
        assert_eq!(read(&ring, 1), (2, vec![(1, u64::MAX)]));
        for wild in [u64::MAX, u64::MAX / 2, 1 << 40] {
            ring.count.store(wild, Ordering::Relaxed);
            let (count, times) = read(&ring, 2);
            assert_eq!(count, wild);
            assert!(times.len() < REQUEST_STAMPS && times.iter().all(|(began, ended)| *began != 0 && ended >= began));
        }
        ring.count.store(1, Ordering::Relaxed);
        assert_eq!(read(&ring, 1 << 40), (1, vec![]), "the count has gone back");
        ring.count.store(0, Ordering::Relaxed);
        ring.begin(0);
        assert_eq!(ring.present(), Some(1), "0 is none");
    }
}
