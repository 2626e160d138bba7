//! The recorder: every event, with its time and its tenant. Always on.
//!
//! | file | what it does |
//! |---|---|
//! | `event` | the kinds of events |
//! | `switches` | switches, put together from events |
//! | `histogram` | durations |
//! | `keeper` | writes events to a file as they happen |
//! | `work` | the programs' time on the GPU |
//!
//! There is one way in ([`Recorder::record`]). An event goes into a ring of bounded size, and all displayed figures are derived
//! from it there and then: counters, histograms, switches, and the tenants that have left.

pub(super) mod event;
mod histogram;
pub(super) mod keeper;
mod switches;
mod work;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::Write as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use baton_contract::class::Class;
use baton_contract::messages::Full;
use baton_report::event::{self as shown, History};
use baton_report::status::Counters;
use baton_report::switch::Switch;
use baton_report::tenant::{Departed, DepartedTotals, Totals};
use baton_report::times::{AllTimes, SwitchBuckets, Times};

use crate::records::Book;
use baton_policy::arbiter::TenantId;
use event::{Recorded, Way, What, nanos_since};
use histogram::Histogram;
use keeper::{Kept, Tap};
use switches::{Switches, keep};
use work::Work;

/// The number of events that are kept.
const EVENTS: usize = 64 << 10;
/// The number of departed tenants that are kept.
const DEPARTED: usize = 64;

/// Counts an event.
fn count(counters: &mut Counters, what: &What) {
    match what {
        What::Copied { way: Way::In, bytes, .. } => counters.bytes_in += bytes,
        What::Copied { way: Way::Out, bytes, .. } => counters.bytes_out += bytes,
        What::CopiedAhead { bytes, .. } => counters.bytes_ahead += bytes,
        What::Preempted { took } => {
            counters.preemptions += 1;
            counters.preempt_seconds += took.as_secs_f64();
        }
        What::UnmapTimedOut => counters.unmap_timeouts += 1,
        What::Descheduled => counters.deschedules += 1,
        What::Refused { why: Full::Arena, .. } => counters.refused_arena += 1,
        What::Refused { why: Full::HostPool, .. } => counters.refused_host_pool += 1,
        What::Refused { why: Full::Held, .. } => counters.refused_held += 1,
        What::Scrubbed { bytes, time } => {
            counters.scrubbed_bytes += bytes;
            counters.scrub_seconds += (time.end - time.start).as_secs_f64();
        }
        What::Scanned { bytes, time } => {
            counters.scanned_bytes += bytes;
            counters.scan_seconds += (time.end - time.start).as_secs_f64();
        }
        _ => {}
    }
}

/// Histograms of durations.
#[derive(Debug, Default)]
struct Histograms {
    /// From the decision to the open gate.
    switch: Histogram,
    /// From wanting the GPU to having it.
    wait: Histogram,
    drain: Histogram,
    preempt: Histogram,
    allocate: Histogram,
    /// Requests of tenants of class latency.
    request: Histogram,
    /// From the end of such a request until the work that had made way for it goes on.
    gap: Histogram,
    /// The end of the last request, if work has been off the GPU for it since.
    rested: Option<Instant>,
}

impl Histograms {
    fn summary(&self) -> AllTimes {
        AllTimes {
            switch: self.switch.summary(),
            wait: self.wait.summary(),
            drain: self.drain.summary(),
            preempt: self.preempt.summary(),
            allocate: self.allocate.summary(),
            request: self.request.summary(),
            gap: self.gap.summary(),
        }
    }

    fn see(&mut self, at: Instant, what: &What) {
        match what {
            What::Descheduled => self.rested = None,
            What::Request { time, .. } => self.rested = Some(time.end),
            What::Rescheduled => {
                let rested = self.rested.take().map(|end| at.saturating_duration_since(end));
                rested.into_iter().for_each(|gap| self.gap.add(gap));
            }
            _ => {}
        }
        let Some(took) = what.took(at) else { return };
        match what {
            What::Granted { .. } => self.wait.add(took),
            What::Drained { .. } => self.drain.add(took),
            What::Preempted { .. } => self.preempt.add(took),
            What::Allocated { .. } => self.allocate.add(took),
            What::Request { .. } => self.request.add(took),
            _ => {}
        }
    }
}

/// Counts the durations of the parts that a switch needed.
fn add_phases(buckets: &mut SwitchBuckets, switch: &Switch) {
    buckets.whole.add_seconds(switch.switch_ms / 1e3);
    let needed = [
        (&mut buckets.drain, switch.drain_ms / 1e3),
        (&mut buckets.preempt, switch.pause_ms / 1e3),
        (&mut buckets.unmap, switch.unmap_ms / 1e3),
        (&mut buckets.copy_out, switch.out_seconds),
        (&mut buckets.prepare, switch.prepare_ms / 1e3),
        (&mut buckets.copy_in, switch.in_seconds),
        (&mut buckets.map, switch.map_ms / 1e3),
    ];
    needed.into_iter().filter(|(_, seconds)| *seconds > 0.0).for_each(|(part, seconds)| part.add_seconds(seconds));
    let since = [
        (&mut buckets.first_launch, switch.phases.first_launch_ms),
        (&mut buckets.all_resident, switch.phases.all_resident_ms),
    ];
    since.into_iter().for_each(|(part, ms)| ms.into_iter().for_each(|ms| part.add_seconds(ms / 1e3)));
}

/// A tenant that has joined.
#[derive(Debug)]
struct Known {
    name: Arc<str>,
    class: Class,
    /// Its requests, if it has reported any.
    requests: Option<Box<Histogram>>,
    /// The times it has waited for its turns, if it has had any.
    waits: Option<Box<Histogram>>,
    totals: Box<Totals>,
    work: Work,
}

/// The recorder of one GPU.
#[derive(Debug)]
pub(super) struct Recorder {
    /// The GPU's UUID, as users read it.
    gpu: Arc<str>,
    start: Instant,
    /// The same by the clock on the wall, in milliseconds since 1970.
    start_unix_ms: u64,
    ring: VecDeque<Recorded>,
    /// The number of events so far.
    count: u64,
    known: HashMap<TenantId, Known>,
    counters: Counters,
    histograms: Histograms,
    switches: Switches,
    departed: VecDeque<Departed>,
    departed_totals: DepartedTotals,
    phases: SwitchBuckets,
    /// A file that also receives each switch, as a line of JSON.
    trace: Option<File>,
    /// A tap that also receives each event.
    tap: Option<Tap>,
}

impl Recorder {
    /// Creates an empty recorder of a GPU with this UUID. Each switch is also written to `trace`.
    pub(super) fn new(gpu: Arc<str>, trace: Option<File>) -> Self {
        Self {
            switches: Switches::new(Arc::clone(&gpu)),
            gpu,
            start: Instant::now(),
            start_unix_ms: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64),
            ring: VecDeque::new(),
            count: 0,
            known: HashMap::new(),
            counters: Counters::default(),
            histograms: Histograms::default(),
            departed: VecDeque::new(),
            departed_totals: DepartedTotals::default(),
            phases: SwitchBuckets::default(),
            trace,
            tap: None,
        }
    }

    /// Records an event that has just happened to a tenant.
    pub(super) fn record(&mut self, tenant: TenantId, what: What) {
        self.add(Instant::now(), Some(tenant), what);
    }

    /// Records an event that has just happened and concerns no tenant.
    pub(super) fn record_of_gpu(&mut self, what: What) {
        self.add(Instant::now(), None, what);
    }

    /// Records the time for which a tenant has had the GPU by now.
    pub(super) fn add_gpu_time(&mut self, id: TenantId, all: Duration) {
        let now = Instant::now();
        let told = self.known.get_mut(&id).and_then(|known| known.work.see(now, all));
        self.tell_work(now, id, told);
    }

    /// Records all GPU time that a tenant has had until now.
    pub(super) fn complete(&mut self, id: TenantId) {
        let told = self.known.get_mut(&id).and_then(|known| known.work.take());
        self.tell_work(Instant::now(), id, told);
    }

    fn tell_work(&mut self, now: Instant, id: TenantId, told: Option<(Range<Instant>, Duration)>) {
        if let Some((time, gpu_time)) = told {
            self.add(now, Some(id), What::Worked { time, gpu_time });
        }
    }

    fn add(&mut self, at: Instant, tenant: Option<TenantId>, what: What) {
        if let (Some(id), What::Joined { name, class }) = (tenant, &what) {
            let (name, totals) = (Arc::clone(name), Box::default());
            self.known
                .insert(id, Known { name, class: *class, requests: None, waits: None, totals, work: Work::new(at) });
        }
        let name = tenant.and_then(|id| self.known.get(&id)).map(|known| Arc::clone(&known.name));
        count(&mut self.counters, &what);
        self.histograms.see(at, &what);
        if let Some(id) = tenant
            && let Some(known) = self.known.get_mut(&id)
        {
            match &what {
                What::Request { time, late } => {
                    known.requests.get_or_insert_default().add(time.end - time.start);
                    known.totals.request_buckets.add(time.end - time.start);
                    known.totals.slo_misses += u64::from(*late);
                }
                What::Granted { demanded, .. } => {
                    let waited = at.saturating_duration_since(*demanded);
                    known.waits.get_or_insert_default().add(waited);
                    known.totals.wait_buckets.add(waited);
                }
                _ => {}
            }
            let ended = self.switches.see(at, id, &known.name, &what);
            if let Some(record) = ended {
                self.histograms.switch.add_ms(record.switch_ms);
                add_phases(&mut self.phases, record);
                trace(&mut self.trace, record);
            }
            if let What::Departed { peak_bytes, switches, gpu_time } = &what {
                let departed = Departed {
                    name: known.name.to_string(),
                    gpu: Arc::clone(&self.gpu),
                    class: known.class.word().to_owned(),
                    peak_bytes: *peak_bytes,
                    switches: *switches,
                    gpu_seconds: gpu_time.as_secs_f64(),
                };
                self.departed_totals.add(&known.totals, departed.gpu_seconds);
                keep(&mut self.departed, departed, DEPARTED);
                self.known.remove(&id);
            }
        }
        let recorded = Recorded { at, id: tenant, tenant: name, what };
        if let Some(tap) = &self.tap {
            tap.give(self.count, &recorded);
        }
        self.count += 1;
        keep(&mut self.ring, recorded, EVENTS);
    }

    /// Has each event written to a book from now on, by a thread of its own.
    pub(super) fn keep(&mut self, book: Book) -> std::io::Result<Kept> {
        let (tap, kept) = keeper::start(book, self.start)?;
        self.tap = Some(tap);
        Ok(kept)
    }

    /// Writes no more events: those so far can be waited for.
    pub(super) fn end(&mut self) {
        self.tap = None;
    }

    /// The GPU's UUID, as users read it.
    pub(super) fn gpu(&self) -> &Arc<str> {
        &self.gpu
    }

    /// The number of switches so far.
    pub(super) fn switches(&self) -> u64 {
        self.switches.count
    }

    /// The last switches.
    pub(super) fn recent(&self) -> impl Iterator<Item = &Switch> {
        self.switches.recent()
    }

    /// The last allocations for which others had to go.
    pub(super) fn allocations(&self) -> impl Iterator<Item = &Switch> {
        self.switches.allocations()
    }

    /// The tenants that left last.
    pub(super) fn departed(&self) -> impl Iterator<Item = &Departed> {
        self.departed.iter()
    }

    /// The durations of a tenant's requests, if it has reported any.
    pub(super) fn requests(&self, id: TenantId) -> Option<Times> {
        Some(self.known.get(&id)?.requests.as_ref()?.summary())
    }

    /// The times that a tenant has waited for its turns, if it has had any.
    pub(super) fn waits(&self, id: TenantId) -> Option<Times> {
        Some(self.known.get(&id)?.waits.as_ref()?.summary())
    }

    /// A tenant's counters that only go up.
    pub(super) fn totals(&self, id: TenantId) -> Option<&Totals> {
        Some(&self.known.get(&id)?.totals)
    }

    /// The same of those that have left.
    pub(super) fn departed_totals(&self) -> &DepartedTotals {
        &self.departed_totals
    }

    /// The durations of each part of switches.
    pub(super) fn phases(&self) -> &SwitchBuckets {
        &self.phases
    }

    /// The time at which the coordinator began.
    pub(super) fn start(&self) -> Instant {
        self.start
    }

    /// The same in milliseconds since 1970.
    pub(super) fn started_unix_ms(&self) -> u64 {
        self.start_unix_ms
    }

    /// The counters of all events.
    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Histograms of durations.
    pub(super) fn times(&self) -> AllTimes {
        self.histograms.summary()
    }

    /// Events from this number on, in the form that tools get: the oldest first, and not all at once.
    pub(super) fn history(&self, next: u64) -> History {
        let oldest = self.count - self.ring.len() as u64;
        // A number of another coordinator's, before or to come, means all that there is.
        let first = if next > self.count { oldest } else { next.max(oldest) };
        let events: Vec<_> = (first..).zip(self.ring.range((first - oldest) as usize..)).take(shown::MOST).collect();
        let next = first + events.len() as u64;
        History {
            schema: shown::SCHEMA,
            gpu: self.gpu.to_string(),
            started_unix_ms: self.start_unix_ms,
            now_ns: nanos_since(self.start, Instant::now()),
            oldest,
            next,
            more: next < self.count,
            events: events.into_iter().map(|(n, event)| event.shown(n, self.start)).collect(),
        }
    }
}

/// Writes a switch to the trace.
fn trace(file: &mut Option<File>, record: &Switch) {
    if let Some(file) = file
        && let Ok(mut line) = serde_json::to_vec(record)
    {
        line.push(b'\n');
        // A trace that cannot be written must not stop the server.
        let _ = file.write_all(&line);
    }
}

#[cfg(test)]
mod tests {
    use baton_contract::messages::ArrivalStats;

    use super::*;

    fn joined(recorder: &mut Recorder, id: u32) {
        recorder.record(TenantId(id), What::Joined { name: format!("tenant {id}").into(), class: Class::Batch });
    }

    #[test]
    fn only_the_last_events_are_kept_and_all_are_counted() {
        let mut recorder = Recorder::new("GPU-0".into(), None);
        joined(&mut recorder, 1);
        let many = EVENTS as u64 + 100;
        for _ in 0..many {
            recorder.record(TenantId(1), What::Preempted { took: Duration::from_millis(2) });
        }
        assert_eq!(recorder.ring.len(), EVENTS);
        assert_eq!(recorder.counters.preemptions, many);
        let preempt = recorder.times().preempt;
        assert_eq!(preempt.count, many);
        assert!(preempt.p50.is_some_and(|ms| (1.98..2.02).contains(&ms)));
    }

    #[test]
    fn a_gap_is_from_the_end_of_a_request_until_what_made_way_for_it_goes_on() {
        let mut recorder = Recorder::new("GPU-0".into(), None);
        let (served, other, now) = (TenantId(1), TenantId(2), Instant::now());
        [1, 2].into_iter().for_each(|id| joined(&mut recorder, id));
        let request = |recorder: &mut Recorder| {
            recorder.record(served, What::Request { time: now..Instant::now(), late: false });
        };
        // A request for which no tenant had to make way.
        request(&mut recorder);
        recorder.record(other, What::Descheduled);
        request(&mut recorder);
        recorder.record(other, What::Rescheduled);
        // In the middle of a request, because it has waited for too long.
        recorder.record(other, What::Descheduled);
        recorder.record(other, What::Rescheduled);
        assert_eq!(recorder.times().gap.count, 1);
    }

    /// Records the events of a tenant that comes, has a turn with memory that moves, and goes.
    fn lives(recorder: &mut Recorder, id: u32) {
        let (id, now, took) = (TenantId(id), Instant::now(), Duration::from_micros(7));
        let (bytes, time) = (2 << 20, now..now + took);
        let copied = |way| What::Copied { way, bytes, time: time.clone() };
        let stats = ArrivalStats::default();
        let (peak_bytes, switches, gpu_time) = (bytes, 1, took);
        recorder.record(id, What::Joined { name: format!("tenant {}", id.0).into(), class: Class::Latency });
        for what in [
            What::Asked,
            What::Chosen,
            What::Comes { extents: 1, bytes, zeros: 0 },
            What::Granted { demanded: now, decided: now, arriving: true },
            What::Opened,
            copied(Way::In),
            What::Mapped { took, extents: 1, resident: bytes },
            What::Arrived { stats },
            What::Request { time: time.clone(), late: true },
            What::Preempted { took },
            What::Leaves { extents: 1, bytes, unchanged: 0 },
            copied(Way::Out),
            What::Unmapped { took, resident: 0 },
            What::Departed { peak_bytes, switches, gpu_time },
        ] {
            recorder.record(id, what);
        }
    }

    /// Checks that a recorder holds no more after this many events than after a hundred thousand.
    fn is_bounded(events: u64) {
        let mut recorder = Recorder::new("GPU-0".into(), None);
        let mut after = |events: u64| {
            for id in 0.. {
                if recorder.count >= events {
                    break;
                }
                lives(&mut recorder, id % 1000);
            }
            // All its contents, written out: only numbers become longer.
            format!("{recorder:?}").len()
        };
        let (some, many) = (after(100_000), after(events));
        assert!(many * 10 < some * 11, "{some} letters, then {many}");
    }

    #[test]
    fn a_million_events_take_no_more_memory_than_a_hundred_thousand() {
        is_bounded(1_000_000);
    }

    #[test]
    #[ignore = "takes a while: cargo test --release -p baton-coordinator -- --ignored million"]
    fn ten_million_events_take_no_more_memory_either() {
        is_bounded(10_000_000);
    }

    #[test]
    fn events_are_told_from_any_number_on_until_there_are_no_more() {
        let mut recorder = Recorder::new("GPU-0".into(), None);
        joined(&mut recorder, 1);
        let many = (EVENTS + 500) as u64;
        for _ in 1..many {
            recorder.record(TenantId(1), What::Asked);
        }
        let (mut next, mut numbers) = (0, Vec::new());
        loop {
            let told = recorder.history(next);
            assert_eq!((told.oldest, told.events.len() <= shown::MOST), (500, true));
            numbers.extend(told.events.iter().map(|event| event.n));
            next = told.next;
            if !told.more {
                break;
            }
        }
        assert_eq!(numbers, (500..many).collect::<Vec<_>>());
        assert!(recorder.history(next).events.is_empty());
        // Another coordinator may have had more events.
        assert_eq!(recorder.history(many + 1).events[0].n, 500);
        recorder.record(TenantId(1), What::Preempted { took: Duration::from_millis(2) });
        let told = recorder.history(next).events.pop().expect("one more");
        assert_eq!((told.what.word(), told.id, told.tenant.as_deref()), ("preempted", Some(1), Some("tenant 1")));
        assert!(told.from_ns.is_some_and(|from| from <= told.ns) && told.to_ns.is_none());
    }

    #[test]
    fn one_that_has_left_is_remembered_and_no_longer_known() {
        let mut recorder = Recorder::new("GPU-0".into(), None);
        joined(&mut recorder, 1);
        let gpu_time = Duration::from_millis(1500);
        recorder.record(TenantId(1), What::Departed { peak_bytes: 5, switches: 2, gpu_time });
        assert!(recorder.known.is_empty());
        let departed = recorder.departed().next().expect("one");
        assert_eq!((departed.name.as_str(), departed.switches, departed.gpu_seconds), ("tenant 1", 2, 1.5));
        // A later event, such as a copy that was under way, is counted, and does no harm.
        let now = Instant::now();
        recorder.record(TenantId(1), What::Copied { way: Way::Out, bytes: 7, time: now..now });
        assert_eq!(recorder.counters.bytes_out, 7);
    }
}
