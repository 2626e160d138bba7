//! What the server has done, for those who ask: switches with their times, bytes, and tenants that left.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::mover::Lane;

/// How many switches are kept.
const RECENT: usize = 256;
/// How many tenants that left are kept.
const DEPARTED: usize = 64;

/// What was moved since the last switch or allocation that moved anything.
#[derive(Clone, Debug, Default)]
struct Moved {
    bytes_in: u64,
    bytes_out: u64,
    time_in: Option<Range<Instant>>,
    time_out: Option<Range<Instant>>,
    unmap: Duration,
    map: Duration,
}

impl Moved {
    fn seconds(time: &Option<Range<Instant>>) -> f64 {
        time.as_ref().map_or(0.0, |time| (time.end - time.start).as_secs_f64())
    }
}

/// One change of the baton's holder, or one allocation that made others go.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Counts all switches since the start; 0 for an allocation.
    pub n: u64,
    /// Who had the baton before.
    pub from: Option<String>,
    /// Who got it, or the memory.
    pub to: String,
    /// Copied to the host, in bytes.
    pub bytes_out: u64,
    /// Copied to the device, in bytes.
    pub bytes_in: u64,
    /// First copy to the host submitted, to last one completed.
    pub out_seconds: f64,
    /// First copy to the device submitted, to last one completed.
    pub in_seconds: f64,
    /// How long the outgoing tenant's work took to end.
    pub drain_ms: f64,
    /// Time that tenants spent unmapping.
    pub unmap_ms: f64,
    /// Time that the incoming tenant spent mapping.
    pub map_ms: f64,
    /// From the arbiter's decision to the opening of the incoming gate.
    pub switch_ms: f64,
}

/// A tenant that ended.
#[derive(Clone, Debug, Serialize)]
pub struct Departed {
    /// What the user called it.
    pub name: String,
    /// Its class.
    pub class: &'static str,
    /// The most memory that it had.
    pub peak_bytes: u64,
    /// How often it got the baton from another.
    pub switches: u64,
    /// How long it had the baton.
    pub gpu_seconds: f64,
}

/// A switch under way.
#[derive(Debug)]
struct Opening {
    from: Option<String>,
    to: String,
    decided: Instant,
}

/// The books.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) switches: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) scrubbed_bytes: u64,
    pub(super) scrub_seconds: f64,
    pub(super) recent: VecDeque<Record>,
    pub(super) allocations: VecDeque<Record>,
    pub(super) departed: VecDeque<Departed>,
    moved: Moved,
    drain: Duration,
    last_holder: Option<String>,
    opening: Option<Opening>,
    /// Bytes per second of the last large copies in either direction.
    speed: Option<f64>,
}

fn keep<T>(list: &mut VecDeque<T>, item: T, most: usize) {
    if list.len() == most {
        list.pop_front();
    }
    list.push_back(item);
}

impl Ledger {
    /// A lane has moved so many bytes.
    pub(super) fn moved(&mut self, lane: Lane, bytes: u64, time: Range<Instant>) {
        let (sum, all, range) = match lane {
            Lane::In => (&mut self.moved.bytes_in, &mut self.bytes_in, &mut self.moved.time_in),
            Lane::Out => (&mut self.moved.bytes_out, &mut self.bytes_out, &mut self.moved.time_out),
            Lane::Fill => {
                self.scrubbed_bytes += bytes;
                self.scrub_seconds += (time.end - time.start).as_secs_f64();
                return;
            }
        };
        *sum += bytes;
        *all += bytes;
        let seconds = (time.end - time.start).as_secs_f64();
        if bytes >= 1 << 20 && seconds > 0.0 {
            let now = bytes as f64 / seconds;
            self.speed = Some(self.speed.map_or(now, |before| 0.8 * before + 0.2 * now));
        }
        let start = range.as_ref().map_or(time.start, |range| range.start.min(time.start));
        let end = range.as_ref().map_or(time.end, |range| range.end.max(time.end));
        *range = Some(start..end);
    }

    /// How long copying so many bytes takes here.
    pub(super) fn copy_time(&self, bytes: u64) -> Duration {
        // Before anything was measured: a PCIe 4 link.
        Duration::from_secs_f64(bytes as f64 / self.speed.unwrap_or(20e9))
    }

    pub(super) fn unmapped(&mut self, took: Duration) {
        self.moved.unmap += took;
    }

    pub(super) fn mapped(&mut self, took: Duration) {
        self.moved.map += took;
    }

    /// A tenant is to be brought in: from here on, what is moved is moved for it.
    pub(super) fn begin(&mut self) {
        self.moved = Moved::default();
    }

    pub(super) fn drained(&mut self, took: Duration) {
        self.drain = took;
    }

    /// The baton is given to `to`, as was decided then.
    pub(super) fn granted(&mut self, to: &str, decided: Instant) {
        if self.last_holder.as_deref() == Some(to) {
            // Nobody else had it in between: no switch. What was moved meanwhile was for allocations.
            self.opening = None;
            return;
        }
        let from = self.last_holder.replace(to.to_owned());
        self.opening = Some(Opening { from, to: to.to_owned(), decided });
    }

    /// The gate of the tenant that was granted the baton is open. Says whether that was a switch.
    pub(super) fn opened(&mut self, tenant: &str) -> bool {
        let Some(Opening { from, to, decided }) = self.opening.take_if(|opening| opening.to == tenant) else {
            return false;
        };
        if from.is_none() {
            self.moved = Moved::default();
            return false;
        }
        self.switches += 1;
        let record = self.record(self.switches, from, to, decided);
        keep(&mut self.recent, record, RECENT);
        true
    }

    /// An allocation for `to` was served that was asked for then; kept if others had to go for it.
    pub(super) fn allocated(&mut self, to: &str, asked: Instant) {
        if self.moved.bytes_out > 0 && self.opening.is_none() {
            let record = self.record(0, None, to.to_owned(), asked);
            keep(&mut self.allocations, record, RECENT);
        }
    }

    fn record(&mut self, n: u64, from: Option<String>, to: String, since: Instant) -> Record {
        let moved = std::mem::take(&mut self.moved);
        let drain = std::mem::take(&mut self.drain);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        Record {
            n,
            from,
            to,
            bytes_out: moved.bytes_out,
            bytes_in: moved.bytes_in,
            out_seconds: Moved::seconds(&moved.time_out),
            in_seconds: Moved::seconds(&moved.time_in),
            drain_ms: ms(drain),
            unmap_ms: ms(moved.unmap),
            map_ms: ms(moved.map),
            switch_ms: ms(since.elapsed()),
        }
    }

    pub(super) fn departed(&mut self, tenant: Departed) {
        keep(&mut self.departed, tenant, DEPARTED);
    }

    /// Median and longest of the kept switches, in milliseconds.
    pub(super) fn switch_ms(&self) -> (Option<f64>, Option<f64>) {
        let mut times: Vec<f64> = self.recent.iter().map(|record| record.switch_ms).collect();
        times.sort_by(f64::total_cmp);
        (times.get(times.len() / 2).copied(), times.last().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_is_counted_when_the_gate_of_another_tenant_opens() {
        let mut ledger = Ledger::default();
        let now = Instant::now();
        for (tenant, is_switch) in [("a", false), ("a", false), ("b", true), ("b", false), ("a", true)] {
            ledger.moved(Lane::In, 1 << 20, now..now + Duration::from_millis(1));
            ledger.granted(tenant, now);
            assert_eq!(ledger.opened(tenant), is_switch, "{tenant}");
        }
        assert_eq!(ledger.switches, 2);
        assert_eq!(ledger.recent[0].from.as_deref(), Some("a"));
        assert_eq!(ledger.recent[1].to, "a");
        assert!(ledger.recent[0].bytes_in >= 1 << 20);
    }
}
