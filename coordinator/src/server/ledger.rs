//! What the server has done, for those who ask: switches with their times, bytes, and tenants that left.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write as _;
use std::ops::Range;
use std::time::{Duration, Instant};

use baton_contract::messages::ArrivalStory;
use serde::Serialize;

use crate::device::mover::Lane;
use crate::policy::planner::Nanos;

/// How many switches are kept.
const RECENT: usize = 256;
/// How many tenants that left are kept.
const DEPARTED: usize = 64;

/// What was moved since the last switch or allocation that moved anything.
#[derive(Clone, Debug, Default)]
struct Moved {
    bytes_in: u64,
    bytes_out: u64,
    bytes_unchanged: u64,
    bytes_zero: u64,
    groups: u64,
    extents: u64,
    time_in: Option<Range<Instant>>,
    time_out: Option<Range<Instant>>,
    unmap: Duration,
    prepare: Duration,
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
    /// How long the driver took to take it off the GPU; zero if it was drained.
    pub pause_ms: f64,
    /// Time that tenants spent unmapping.
    pub unmap_ms: f64,
    /// Time that tenants spent putting frames in place, without access yet.
    pub prepare_ms: f64,
    /// Time that the incoming tenant spent mapping.
    pub map_ms: f64,
    /// From the arbiter's decision to the opening of the incoming gate.
    pub switch_ms: f64,
    /// Evicted without a copy, because it had not changed, in bytes.
    pub bytes_unchanged: u64,
    /// Zeros, which were written and not copied, in bytes.
    pub bytes_zero: u64,
    /// In how many pieces the incoming memory came.
    pub groups: u64,
    /// Of how many extents it was.
    pub extents: u64,
    /// How many calls had to wait for memory.
    pub waits: u64,
    /// How long they waited, all together.
    pub waited_ms: f64,
    /// When things happened, since the incoming tenant first wanted the GPU.
    pub phases: Phases,
}

/// What happened when, in milliseconds since a tenant wanted the GPU. Null: it did not happen.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Phases {
    /// The arbiter chose it.
    pub decided_ms: Option<f64>,
    /// It was told to open its gate.
    pub granted_ms: Option<f64>,
    /// The first extent that it lacked was mapped.
    pub first_extent_ms: Option<f64>,
    /// The first call that uses the GPU's memory went to the driver, if some memory was still on its way.
    pub first_launch_ms: Option<f64>,
    /// All its memory was there.
    pub all_resident_ms: Option<f64>,
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
    demanded: Instant,
    decided: Instant,
    granted: Instant,
    /// Memory is still on its way when the gate opens.
    arriving: bool,
    opened: Option<Instant>,
}

/// When and how a tenant was granted the baton.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    /// When it wanted it.
    pub(super) demanded: Instant,
    /// When that was decided.
    pub(super) decided: Instant,
    /// Whether memory is still on its way.
    pub(super) arriving: bool,
}

/// The books.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) switches: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    /// How often work was taken off the GPU, and how long that took the driver.
    pub(super) pauses: u64,
    /// How often somebody was descheduled for a burst.
    pub(super) deschedules: u64,
    pub(super) pause_seconds: f64,
    pub(super) scrubbed_bytes: u64,
    pub(super) scrub_seconds: f64,
    pub(super) recent: VecDeque<Record>,
    pub(super) allocations: VecDeque<Record>,
    pub(super) departed: VecDeque<Departed>,
    moved: Moved,
    drain: Duration,
    pause: Duration,
    last_holder: Option<String>,
    opening: Option<Opening>,
    /// Bytes per second of the last large copies in either direction.
    speed: Option<f64>,
    /// What mapping one extent cost lately.
    map_cost: Option<f64>,
    pub(super) scanned_bytes: u64,
    pub(super) scan_seconds: f64,
    /// Where each record goes too, as a line of JSON.
    trace: Option<File>,
}

fn keep<T>(list: &mut VecDeque<T>, item: T, most: usize) {
    if list.len() == most {
        list.pop_front();
    }
    list.push_back(item);
}

impl Ledger {
    /// Empty books. Each switch is also written to `trace`.
    pub(super) fn new(trace: Option<File>) -> Self {
        Self { trace, ..Self::default() }
    }

    /// A lane has moved so many bytes.
    pub(super) fn moved(&mut self, lane: Lane, bytes: u64, time: Range<Instant>) {
        let (sum, all, range) = match lane {
            Lane::In => {
                self.moved.groups += 1;
                (&mut self.moved.bytes_in, &mut self.bytes_in, &mut self.moved.time_in)
            }
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
        Duration::from_secs_f64(bytes as f64 / self.copy_speed() as f64)
    }

    /// Bytes per second.
    pub(super) fn copy_speed(&self) -> u64 {
        // Before anything was measured: a PCIe 4 link.
        self.speed.unwrap_or(20e9) as u64
    }

    /// What a group costs beside its bytes: submitting, reporting, and a message.
    pub(super) fn group_cost(&self) -> Nanos {
        60_000
    }

    /// What an extent costs beside its bytes. Before anything was measured: what giving access took on an H200.
    pub(super) fn extent_cost(&self) -> Nanos {
        (self.map_cost.unwrap_or(30e-6) * 1e9) as Nanos
    }

    /// Memory was looked at.
    pub(super) fn scanned(&mut self, bytes: u64, time: Range<Instant>) {
        self.scanned_bytes += bytes;
        self.scan_seconds += (time.end - time.start).as_secs_f64();
    }

    /// An extent of so many bytes leaves, of which so many are copied.
    pub(super) fn left(&mut self, bytes: u64, copied: u64) {
        self.moved.bytes_unchanged += bytes - copied;
    }

    /// So much comes in as zeros.
    pub(super) fn zeros(&mut self, bytes: u64) {
        self.moved.bytes_zero += bytes;
    }

    /// An extent comes in.
    pub(super) fn arriving(&mut self) {
        self.moved.extents += 1;
    }

    pub(super) fn unmapped(&mut self, took: Duration) {
        self.moved.unmap += took;
    }

    pub(super) fn prepared(&mut self, took: Duration) {
        self.moved.prepare += took;
    }

    pub(super) fn mapped(&mut self, took: Duration, extents: usize) {
        self.moved.map += took;
        let now = took.as_secs_f64() / extents.max(1) as f64;
        self.map_cost = Some(self.map_cost.map_or(now, |before| 0.8 * before + 0.2 * now));
    }

    /// A tenant is to be brought in: from here on, what is moved is moved for it.
    pub(super) fn begin(&mut self) {
        self.moved = Moved::default();
    }

    pub(super) fn paused(&mut self, took: Duration) {
        self.pauses += 1;
        self.pause = took;
        self.pause_seconds += took.as_secs_f64();
    }

    pub(super) fn drained(&mut self, took: Duration) {
        self.drain = took;
    }

    /// The baton is given to `to`.
    pub(super) fn granted(&mut self, to: &str, how: Granted) {
        self.finish(None);
        let before = self.last_holder.replace(to.to_owned());
        if before.as_deref() == Some(to) {
            // Nobody else had it in between: no switch. What was moved meanwhile was for allocations.
            return;
        }
        self.opening = Some(Opening {
            from: before,
            to: to.to_owned(),
            demanded: how.demanded,
            decided: how.decided,
            granted: Instant::now(),
            arriving: how.arriving,
            opened: None,
        });
    }

    /// The gate of the tenant that was granted the baton is open. Says whether that was a switch.
    pub(super) fn opened(&mut self, tenant: &str) -> bool {
        let Some(opening) = self.opening.as_mut().filter(|opening| opening.to == tenant && opening.opened.is_none())
        else {
            return false;
        };
        opening.opened = Some(Instant::now());
        if opening.from.is_none() {
            self.opening = None;
            self.moved = Moved::default();
            return false;
        }
        self.switches += 1;
        if !opening.arriving {
            self.finish(None);
        }
        true
    }

    /// All memory of the tenant is there, or its gate was closed before that.
    pub(super) fn arrived(&mut self, tenant: &str, story: ArrivalStory) {
        if self.opening.as_ref().is_some_and(|opening| opening.to == tenant && opening.opened.is_some()) {
            self.finish(Some(story));
        }
    }

    /// Writes the switch down that is under way, if its gate has opened.
    fn finish(&mut self, story: Option<ArrivalStory>) {
        let Some(Opening { from, to, demanded, decided, granted, opened: Some(opened), .. }) = self.opening.take()
        else {
            return;
        };
        let mut record = self.record(self.switches, from, to, decided, opened);
        let ms = |at: Instant| Some(at.saturating_duration_since(demanded).as_secs_f64() * 1e3);
        let after = |micros: u64| (micros != u64::MAX).then(|| granted + Duration::from_micros(micros)).and_then(ms);
        record.phases = Phases {
            decided_ms: ms(decided),
            granted_ms: ms(granted),
            first_extent_ms: story.and_then(|story| after(story.first_extent_micros)),
            first_launch_ms: story.and_then(|story| after(story.first_call_micros)),
            all_resident_ms: story.map_or(ms(opened), |story| after(story.end_micros)),
        };
        if let Some(story) = story {
            record.waits = story.waits;
            record.waited_ms = story.waited_micros as f64 / 1e3;
        }
        if let Some(trace) = &mut self.trace
            && let Ok(mut line) = serde_json::to_vec(&record)
        {
            line.push(b'\n');
            // A trace that cannot be written must not stop the server.
            let _ = trace.write_all(&line);
        }
        keep(&mut self.recent, record, RECENT);
    }

    /// An allocation for `to` was served that was asked for then; kept if others had to go for it.
    pub(super) fn allocated(&mut self, to: &str, asked: Instant) {
        if self.moved.bytes_out > 0 && self.opening.is_none() {
            let record = self.record(0, None, to.to_owned(), asked, Instant::now());
            keep(&mut self.allocations, record, RECENT);
        }
    }

    fn record(&mut self, n: u64, from: Option<String>, to: String, since: Instant, end: Instant) -> Record {
        let moved = std::mem::take(&mut self.moved);
        let (drain, pause) = (std::mem::take(&mut self.drain), std::mem::take(&mut self.pause));
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
            pause_ms: ms(pause),
            unmap_ms: ms(moved.unmap),
            prepare_ms: ms(moved.prepare),
            map_ms: ms(moved.map),
            switch_ms: ms(end.saturating_duration_since(since)),
            bytes_unchanged: moved.bytes_unchanged,
            bytes_zero: moved.bytes_zero,
            groups: moved.groups,
            extents: moved.extents,
            waits: 0,
            waited_ms: 0.0,
            phases: Phases::default(),
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
            ledger.granted(tenant, Granted { demanded: now, decided: now, arriving: false });
            assert_eq!(ledger.opened(tenant), is_switch, "{tenant}");
        }
        assert_eq!(ledger.switches, 2);
        assert_eq!(ledger.recent[0].from.as_deref(), Some("a"));
        assert_eq!(ledger.recent[1].to, "a");
        assert!(ledger.recent[0].bytes_in >= 1 << 20);
    }

    #[test]
    fn a_switch_with_memory_on_its_way_is_written_down_when_that_has_come() {
        let mut ledger = Ledger::default();
        let now = Instant::now();
        let how = |arriving| Granted { demanded: now, decided: now, arriving };
        ledger.granted("a", how(false));
        ledger.opened("a");
        ledger.begin();
        ledger.granted("b", how(true));
        assert!(ledger.opened("b") && ledger.recent.is_empty());
        ledger.moved(Lane::In, 3 << 20, now..now + Duration::from_millis(1));
        let story = ArrivalStory { first_extent_micros: 1000, first_call_micros: u64::MAX, ..ArrivalStory::default() };
        ledger.arrived("b", story);
        let record = &ledger.recent[0];
        assert_eq!(record.bytes_in, 3 << 20);
        assert!(record.phases.first_extent_ms.is_some_and(|ms| ms >= 1.0));
        assert_eq!(record.phases.first_launch_ms, None);
        // One that never tells is written down when the next begins.
        ledger.granted("a", how(true));
        ledger.opened("a");
        ledger.granted("b", how(false));
        assert_eq!((ledger.switches, ledger.recent.len()), (2, 2));
    }
}
