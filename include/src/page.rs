//! The two pages that a tenant and the coordinator share, one for each direction, and the activity pages, which many share.
//!
//! Each of the two is written by one side only, and the other side never has to trust it: the coordinator shows a tenant's page, and
//! decides by its own tables. A page is 4096 bytes of memory that both sides have mapped, so it holds fixed-width integers only, each
//! read and written as a whole.

mod activity;
mod summary;

/// The atomics of the summary; loom's in the model that checks it.
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
    /// The version of the contract that the tenant speaks ([`crate::wire::Version`]).
    pub version: AtomicU32,
    /// Memory that the tenant could have with all others evicted, in bytes: the size of "its GPU".
    pub arena_bytes: AtomicU64,
    /// Memory that it could have in arena and host pool beside the others' memory there, in bytes, approximately: the memory that it
    /// has and the memory that would be granted. Its own allocations do not change it.
    pub could_have_bytes: AtomicU64,
    /// Measure against an unresponsive tenant: 0, [`PAUSED`] or [`TAKEN`].
    pub taken: AtomicU32,
}

/// Its work is paused, and it has not closed its gate: new objects of it that can be paused are paused from the beginning.
pub const PAUSED: u32 = 1;
/// Other tenants may have memory that it has mapped: it must not go on by itself, even if the coordinator ends.
pub const TAKEN: u32 = 2;

/// Written by the tenant.
#[repr(C)]
#[derive(Debug, Default)]
pub struct TenantPage {
    /// Device memory that Baton does not move, in bytes, by kind, in the order of [`Unmanaged::ALL`].
    pub unmanaged_bytes: [AtomicU64; Unmanaged::ALL.len()],
    /// Start of the addresses of its allocations: a word between here and the end may be a pointer.
    pub window_start: AtomicU64,
    /// End of these addresses.
    pub window_end: AtomicU64,
    /// Start of the host memory that its kernels can reach, as far as a word in its memory may point there.
    pub host_start: AtomicU64,
    /// End of this host memory.
    pub host_end: AtomicU64,
    /// Set while it is inside of the call that [`Probe`](crate::messages::PreemptionCommand::Probe) asks for: 1 and the milliseconds in
    /// which it was seen to be there. Otherwise 0.
    pub probing: AtomicU32,
    /// Changes again and again while it is at work beside others: it was not stopped. Also while its gate is closed and it waits for a
    /// call that is inside.
    pub heartbeat: AtomicU32,
    /// Number of times that it was about to make something that can be paused. If this is ahead of its last report
    /// ([`Channels`](crate::messages::PreemptionReport::Channels)), there may be channels that only it knows.
    pub channels_begun: AtomicU32,
    /// Odd while it has its turn and rests: none of its work runs, and no call has passed its gate since this number was written. The
    /// first call changes it before it passes.
    pub rests: AtomicU32,
    /// Times at which its requests began and ended, if its class is latency.
    pub requests: RequestRing,
    /// The time since when it waits for its turn, in nanoseconds of `CLOCK_MONOTONIC`, for a coordinator that takes over; 0 if it does not
    /// wait, or its library does not tell. Counts only while it wants its turn.
    pub waits_since: AtomicU64,
}

impl TenantPage {
    /// Returns the bytes of each kind of memory that Baton does not move, as the tenant reports them.
    pub fn unmanaged(&self) -> PerKind {
        self.unmanaged_bytes.each_ref().map(|bytes| bytes.load(Ordering::Relaxed))
    }
}

/// The number of stamps in the ring. All but one of them can be read: the oldest may be just being overwritten.
pub const REQUEST_STAMPS: usize = 128;

/// Times at which a tenant's latest requests began and ended. A *request* goes from the first call after rest until its work is found
/// to have ended, with any preemption in between.
///
/// The tenant writes: any of its threads records that a request begins, and one thread records that it has ended. The coordinator reads
/// at any time, and neither waits. Times are nanoseconds of the tenant's `CLOCK_MONOTONIC`, never 0. If the reader is in another time
/// namespace, that clock has an offset: then only differences of times have a meaning.
///
/// Request number `n`, counted from 0, has the stamp `n % REQUEST_STAMPS`. The count goes up when a stamp is complete.
#[repr(C)]
#[derive(Debug)]
pub struct RequestRing {
    /// Start of the present request; 0 if there is none.
    begun: AtomicU64,
    /// Number of requests that have ended.
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

/// Times at which a request began and ended, in nanoseconds of the tenant's `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTimes {
    /// Time of its first call.
    pub began: u64,
    /// Time at which its work was found to have ended: never before it began.
    pub ended: u64,
}

impl RequestTimes {
    /// Returns its duration, in nanoseconds. A tenant that lies can make it anything.
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
    /// The tenant's side: begins a request. Changes nothing if there is one already. Several threads may call it at once.
    pub fn begin(&self, now: u64) {
        let _ = self.begun.compare_exchange(0, now.max(1), Ordering::AcqRel, Ordering::Relaxed);
    }

    /// The tenant's side: ends the present request, whose work has ended. Changes nothing if there is none. One thread at a time calls
    /// it.
    pub fn end(&self, now: u64) {
        let began = self.begun.swap(0, Ordering::AcqRel);
        if began == 0 {
            return;
        }
        let number = self.count.load(Ordering::Relaxed);
        let stamp = self.stamp(number);
        // Release, each: a reader of either also finds the count that the request before has left.
        stamp.began.store(began, Ordering::Release);
        stamp.ended.store(now, Ordering::Release);
        self.count.store(number.wrapping_add(1), Ordering::Release);
    }

    /// Returns the start of the present request; none if there is no request.
    pub fn present(&self) -> Option<u64> {
        Some(self.begun.load(Ordering::Relaxed)).filter(|began| *began != 0)
    }

    /// The coordinator's side: calls `each` for the requests that have ended since `seen` of them had, oldest first, and returns their
    /// number by now. That is `seen` for the next time; it is 0 for the first. Requests with a stamp that was overwritten, or may be
    /// just now, are left out.
    ///
    /// Reads fewer than [`REQUEST_STAMPS`] stamps for any values that the tenant writes. For a tenant that writes nonsense, a request
    /// may be left out or shown again: requests that end before they begin are left out, and so are all if the count has gone back.
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
            // The next request to use this stamp writes it once the count is this far on.
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
