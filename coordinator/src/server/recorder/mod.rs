//! The recorder: what happened, when, and to whom. Always on.
//!
//! | file | what it does |
//! |---|---|
//! | `event` | what can happen |
//! | `switches` | switches, put together from events |
//! | `histogram` | how long things take |
//!
//! There is one way in ([`Recorder::record`]). An event goes into a ring of bounded size, and everything that is shown is derived
//! from it there and then: counters, histograms, switches, and the tenants that have left.

pub(super) mod event;
mod histogram;
mod switches;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Instant;

use baton_contract::class::Class;
use baton_contract::messages::Full;
use serde::Serialize;

use crate::policy::arbiter::TenantId;
use event::{Recorded, Way, What};
use histogram::Histogram;
use switches::{Switches, keep};

pub(super) use histogram::Summary;
pub use switches::{Phases, Record};

/// How many events are kept.
const EVENTS: usize = 16 << 10;
/// How many of them a status shows.
const SHOWN: usize = 64;
/// How many tenants that left are kept.
const DEPARTED: usize = 64;

/// A tenant that ended.
#[derive(Clone, Debug, Serialize)]
pub struct Departed {
    /// What the user called it.
    pub name: String,
    /// UUID of the GPU that it was a tenant of.
    pub gpu: Arc<str>,
    /// Its class.
    pub class: &'static str,
    /// The most memory that it had.
    pub peak_bytes: u64,
    /// How often it got the baton from another.
    pub switches: u64,
    /// How long it had the baton.
    pub gpu_seconds: f64,
}

/// How much of everything there has been since the start.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Counters {
    bytes_in: u64,
    bytes_out: u64,
    /// How often work was taken off the GPU in the middle, and how long that took.
    preemptions: u64,
    preempt_seconds: f64,
    /// How often that was done for a moment, for a latency program that co-runs.
    deschedules: u64,
    /// How often work was put back because its driver did not unmap memory before its end.
    unmap_timeouts: u64,
    /// Allocations that were refused: because their tenant cannot have so much, because there is no room on the host, because
    /// others do not give it back.
    refused_arena: u64,
    refused_host_pool: u64,
    refused_held: u64,
    /// Overwritten, because it was somebody else's.
    scrubbed_bytes: u64,
    scrub_seconds: f64,
    /// Read on the GPU, to find what has changed and what points where.
    scanned_bytes: u64,
    scan_seconds: f64,
}

impl Counters {
    fn see(&mut self, what: &What) {
        match what {
            What::Copied { way: Way::In, bytes, .. } => self.bytes_in += bytes,
            What::Copied { way: Way::Out, bytes, .. } => self.bytes_out += bytes,
            What::Preempted { took } => {
                self.preemptions += 1;
                self.preempt_seconds += took.as_secs_f64();
            }
            What::UnmapTimedOut => self.unmap_timeouts += 1,
            What::Descheduled => self.deschedules += 1,
            What::Refused { why: Full::Arena, .. } => self.refused_arena += 1,
            What::Refused { why: Full::HostPool, .. } => self.refused_host_pool += 1,
            What::Refused { why: Full::Held, .. } => self.refused_held += 1,
            What::Scrubbed { bytes, time } => {
                self.scrubbed_bytes += bytes;
                self.scrub_seconds += (time.end - time.start).as_secs_f64();
            }
            What::Scanned { bytes, time } => {
                self.scanned_bytes += bytes;
                self.scan_seconds += (time.end - time.start).as_secs_f64();
            }
            _ => {}
        }
    }
}

/// How long things take.
#[derive(Debug, Default, Serialize)]
pub(super) struct Histograms {
    /// From the decision to the open gate.
    switch: Histogram,
    /// From wanting the GPU to having it.
    wait: Histogram,
    drain: Histogram,
    preempt: Histogram,
    allocate: Histogram,
    /// Requests of tenants of class latency.
    request: Histogram,
}

impl Histograms {
    fn see(&mut self, at: Instant, what: &What) {
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

/// An event, as it is shown.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    gpu: Arc<str>,
    /// Seconds since the coordinator began.
    seconds: f64,
    tenant: Option<String>,
    what: &'static str,
    bytes: Option<u64>,
    extents: Option<u64>,
    took_ms: Option<f64>,
}

/// Who has joined.
#[derive(Debug)]
struct Known {
    name: Arc<str>,
    class: Class,
    /// Its requests, if it has said anything of them.
    requests: Option<Box<Histogram>>,
}

/// The recorder of one GPU.
#[derive(Debug)]
pub(super) struct Recorder {
    /// The GPU's UUID, as users read it.
    gpu: Arc<str>,
    start: Instant,
    ring: VecDeque<Recorded>,
    known: HashMap<TenantId, Known>,
    counters: Counters,
    histograms: Histograms,
    switches: Switches,
    departed: VecDeque<Departed>,
    /// Where each switch goes too, as a line of JSON.
    trace: Option<File>,
}

impl Recorder {
    /// One that has seen nothing, of a GPU with this UUID. Each switch is also written to `trace`.
    pub(super) fn new(gpu: Arc<str>, trace: Option<File>) -> Self {
        Self {
            switches: Switches::new(Arc::clone(&gpu)),
            gpu,
            start: Instant::now(),
            ring: VecDeque::new(),
            known: HashMap::new(),
            counters: Counters::default(),
            histograms: Histograms::default(),
            departed: VecDeque::new(),
            trace,
        }
    }

    /// This has just happened to a tenant.
    pub(super) fn record(&mut self, tenant: TenantId, what: What) {
        self.add(Instant::now(), Some(tenant), what);
    }

    /// This has just happened, and concerns no tenant.
    pub(super) fn record_of_gpu(&mut self, what: What) {
        self.add(Instant::now(), None, what);
    }

    fn add(&mut self, at: Instant, tenant: Option<TenantId>, what: What) {
        if let (Some(id), What::Joined { name, class }) = (tenant, &what) {
            self.known.insert(id, Known { name: Arc::clone(name), class: *class, requests: None });
        }
        let name = tenant.and_then(|id| self.known.get(&id)).map(|known| Arc::clone(&known.name));
        self.counters.see(&what);
        self.histograms.see(at, &what);
        if let Some(id) = tenant
            && let Some(known) = self.known.get_mut(&id)
        {
            if let What::Request { took } = &what {
                known.requests.get_or_insert_default().add(*took);
            }
            let ended = self.switches.see(at, id, &known.name, &what);
            if let Some(record) = ended {
                self.histograms.switch.add_ms(record.switch_ms);
                trace(&mut self.trace, record);
            }
            if let What::Departed { peak_bytes, switches, gpu_time } = &what {
                let departed = Departed {
                    name: known.name.to_string(),
                    gpu: Arc::clone(&self.gpu),
                    class: known.class.word(),
                    peak_bytes: *peak_bytes,
                    switches: *switches,
                    gpu_seconds: gpu_time.as_secs_f64(),
                };
                keep(&mut self.departed, departed, DEPARTED);
                self.known.remove(&id);
            }
        }
        keep(&mut self.ring, Recorded { at, tenant: name, what }, EVENTS);
    }

    /// The GPU's UUID, as users read it.
    pub(super) fn gpu(&self) -> &Arc<str> {
        &self.gpu
    }

    /// How many switches there have been.
    pub(super) fn switches(&self) -> u64 {
        self.switches.count
    }

    /// The last switches.
    pub(super) fn recent(&self) -> impl Iterator<Item = &Record> {
        self.switches.recent()
    }

    /// The last allocations for which others had to go.
    pub(super) fn allocations(&self) -> impl Iterator<Item = &Record> {
        self.switches.allocations()
    }

    /// The tenants that left last.
    pub(super) fn departed(&self) -> impl Iterator<Item = &Departed> {
        self.departed.iter()
    }

    /// How long a tenant's requests take, if it has said.
    pub(super) fn requests(&self, id: TenantId) -> Option<Summary> {
        Some(self.known.get(&id)?.requests.as_ref()?.summary())
    }

    /// How much of everything there has been.
    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How long things take.
    pub(super) fn times(&self) -> &Histograms {
        &self.histograms
    }

    /// The last events, the newest last.
    pub(super) fn shown(&self) -> impl Iterator<Item = Shown> {
        self.ring.iter().skip(self.ring.len().saturating_sub(SHOWN)).map(|event| Shown {
            gpu: Arc::clone(&self.gpu),
            seconds: event.at.saturating_duration_since(self.start).as_secs_f64(),
            tenant: event.tenant.as_deref().map(str::to_owned),
            what: event.what.word(),
            bytes: event.what.bytes(),
            extents: event.what.extents(),
            took_ms: event.what.took(event.at).map(|took| took.as_secs_f64() * 1e3),
        })
    }
}

/// Writes a switch to the trace.
fn trace(file: &mut Option<File>, record: &Record) {
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
    use std::time::Duration;

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
        let preempt = recorder.times().preempt.summary();
        assert_eq!(preempt.count, many);
        assert!(preempt.p50.is_some_and(|ms| (1.98..2.02).contains(&ms)));
        let last = recorder.shown().last().expect("events");
        assert_eq!((last.tenant.as_deref(), last.what), (Some("tenant 1"), "preempted"));
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
        // What comes afterwards, as a copy that was under way, is counted, and harms nothing.
        let now = Instant::now();
        recorder.record(TenantId(1), What::Copied { way: Way::Out, bytes: 7, time: now..now });
        assert_eq!(recorder.counters.bytes_out, 7);
    }
}
