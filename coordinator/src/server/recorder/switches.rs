//! Switches, put together from what happened.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_contract::messages::ArrivalStory;
use serde::Serialize;

use super::event::{Way, What};
use crate::policy::arbiter::TenantId;

/// How many switches are kept.
const RECENT: usize = 256;

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
    /// UUID of the GPU that changed hands, or whose memory it was.
    pub gpu: Arc<str>,
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

/// A switch under way.
#[derive(Debug)]
struct Opening {
    from: Option<Arc<str>>,
    id: TenantId,
    to: Arc<str>,
    demanded: Instant,
    decided: Instant,
    granted: Instant,
    /// Memory is still on its way when the gate opens.
    arriving: bool,
    opened: Option<Instant>,
}

/// What switches are made of, as events say it.
#[derive(Debug)]
pub(super) struct Switches {
    gpu: Arc<str>,
    /// How many there have been.
    pub(super) count: u64,
    recent: VecDeque<Record>,
    allocations: VecDeque<Record>,
    moved: Moved,
    drain: Duration,
    pause: Duration,
    last_holder: Option<(TenantId, Arc<str>)>,
    opening: Option<Opening>,
}

/// Keeps no more than the last ones.
pub(super) fn keep<T>(list: &mut VecDeque<T>, item: T, most: usize) {
    if list.len() == most {
        list.pop_front();
    }
    list.push_back(item);
}

impl Switches {
    /// None yet, of a GPU with this UUID.
    pub(super) fn new(gpu: Arc<str>) -> Self {
        Self {
            gpu,
            count: 0,
            recent: VecDeque::new(),
            allocations: VecDeque::new(),
            moved: Moved::default(),
            drain: Duration::ZERO,
            pause: Duration::ZERO,
            last_holder: None,
            opening: None,
        }
    }

    /// The last ones.
    pub(super) fn recent(&self) -> impl Iterator<Item = &Record> {
        self.recent.iter()
    }

    /// The last allocations for which others had to go.
    pub(super) fn allocations(&self) -> impl Iterator<Item = &Record> {
        self.allocations.iter()
    }

    /// Something has happened. Says which switch is over by that, if one is.
    pub(super) fn see(&mut self, at: Instant, id: TenantId, name: &Arc<str>, what: &What) -> Option<&Record> {
        match what {
            // From here on, what is moved is moved for it.
            What::Chosen => self.moved = Moved::default(),
            What::Granted { demanded, decided, arriving } => {
                let opening = (*demanded, *decided, *arriving);
                return self.granted(at, id, name, opening);
            }
            What::Opened => return self.opened(at, id),
            What::Arrived { story } => {
                if self.opening.as_ref().is_some_and(|opening| opening.id == id && opening.opened.is_some()) {
                    return self.finish(Some(*story));
                }
            }
            What::Drained { took } => self.drain = *took,
            What::Preempted { took } => self.pause = *took,
            What::Leaves { unchanged, .. } => self.moved.bytes_unchanged += unchanged,
            What::Comes { extents, zeros, .. } => {
                self.moved.extents += extents;
                self.moved.bytes_zero += zeros;
            }
            What::Copied { way: Way::In, bytes, time } => {
                self.moved.groups += 1;
                self.moved.bytes_in += bytes;
                extend(&mut self.moved.time_in, time);
            }
            What::Copied { way: Way::Out, bytes, time } => {
                self.moved.bytes_out += bytes;
                extend(&mut self.moved.time_out, time);
            }
            What::Prepared { took } => self.moved.prepare += *took,
            What::Mapped { took, .. } => self.moved.map += *took,
            What::Unmapped { took } => self.moved.unmap += *took,
            What::Allocated { asked } => self.allocated(at, name, *asked),
            What::Joined { .. }
            | What::Departed { .. }
            | What::Asked
            | What::Resumed
            | What::UnmapTimedOut
            | What::Descheduled
            | What::Rescheduled
            | What::Refused { .. }
            | What::Request { .. }
            | What::Scrubbed { .. }
            | What::Scanned { .. } => {}
        }
        None
    }

    /// The baton is given to a tenant.
    fn granted(
        &mut self,
        at: Instant,
        id: TenantId,
        name: &Arc<str>,
        (demanded, decided, arriving): (Instant, Instant, bool),
    ) -> Option<&Record> {
        let last = self.close(None);
        let before = self.last_holder.replace((id, Arc::clone(name)));
        // If nobody else had it in between, it is no switch: what was moved meanwhile was for allocations.
        if before.as_ref().is_none_or(|(before, _)| *before != id) {
            let (from, to) = (before.map(|(_, name)| name), Arc::clone(name));
            self.opening = Some(Opening { from, id, to, demanded, decided, granted: at, arriving, opened: None });
        }
        self.keep(last)
    }

    /// The gate of the tenant that was granted the baton is open.
    fn opened(&mut self, at: Instant, id: TenantId) -> Option<&Record> {
        let opening = self.opening.as_mut().filter(|opening| opening.id == id && opening.opened.is_none())?;
        opening.opened = Some(at);
        if opening.from.is_none() {
            self.opening = None;
            self.moved = Moved::default();
            return None;
        }
        self.count += 1;
        if opening.arriving { None } else { self.finish(None) }
    }

    /// Writes the switch down that is under way, if its gate has opened.
    fn finish(&mut self, story: Option<ArrivalStory>) -> Option<&Record> {
        let record = self.close(story);
        self.keep(record)
    }

    fn keep(&mut self, record: Option<Record>) -> Option<&Record> {
        keep(&mut self.recent, record?, RECENT);
        self.recent.back()
    }

    fn close(&mut self, story: Option<ArrivalStory>) -> Option<Record> {
        let Opening { from, to, demanded, decided, granted, opened, .. } = self.opening.take()?;
        let opened = opened?;
        let mut record = self.record(self.count, from, &to, decided, opened);
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
        Some(record)
    }

    /// An allocation was served that was asked for then; kept if others had to go for it.
    fn allocated(&mut self, at: Instant, to: &Arc<str>, asked: Instant) {
        if self.moved.bytes_out > 0 && self.opening.is_none() {
            let record = self.record(0, None, to, asked, at);
            keep(&mut self.allocations, record, RECENT);
        }
    }

    fn record(&mut self, n: u64, from: Option<Arc<str>>, to: &Arc<str>, since: Instant, end: Instant) -> Record {
        let moved = std::mem::take(&mut self.moved);
        let (drain, pause) = (std::mem::take(&mut self.drain), std::mem::take(&mut self.pause));
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        Record {
            gpu: Arc::clone(&self.gpu),
            n,
            from: from.map(|from| from.to_string()),
            to: to.to_string(),
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
}

/// Makes a span of time contain another one.
fn extend(span: &mut Option<Range<Instant>>, time: &Range<Instant>) {
    let start = span.as_ref().map_or(time.start, |span| span.start.min(time.start));
    let end = span.as_ref().map_or(time.end, |span| span.end.max(time.end));
    *span = Some(start..end);
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Told {
        switches: Switches,
        now: Instant,
    }

    impl Told {
        fn new() -> Self {
            Self { switches: Switches::new("GPU-0".into()), now: Instant::now() }
        }

        fn see(&mut self, tenant: u32, what: What) -> bool {
            let name: Arc<str> = format!("tenant {tenant}").into();
            self.switches.see(self.now, TenantId(tenant), &name, &what).is_some()
        }

        fn grant(&mut self, tenant: u32, arriving: bool) -> bool {
            self.see(tenant, What::Granted { demanded: self.now, decided: self.now, arriving })
        }

        fn copy_in(&mut self, tenant: u32, bytes: u64) {
            let time = self.now..self.now + Duration::from_millis(1);
            self.see(tenant, What::Copied { way: Way::In, bytes, time });
        }
    }

    #[test]
    fn a_switch_is_counted_when_the_gate_of_another_tenant_opens() {
        let mut told = Told::new();
        for (tenant, is_switch) in [(1, false), (1, false), (2, true), (2, false), (1, true)] {
            told.copy_in(tenant, 1 << 20);
            told.grant(tenant, false);
            assert_eq!(told.see(tenant, What::Opened), is_switch, "{tenant}");
        }
        assert_eq!(told.switches.count, 2);
        assert_eq!(told.switches.recent[0].from.as_deref(), Some("tenant 1"));
        assert_eq!(told.switches.recent[1].to, "tenant 1");
        assert!(told.switches.recent[0].bytes_in >= 1 << 20);
    }

    #[test]
    fn a_switch_with_memory_on_its_way_is_written_down_when_that_has_come() {
        let mut told = Told::new();
        told.grant(1, false);
        told.see(1, What::Opened);
        told.see(2, What::Chosen);
        told.grant(2, true);
        assert!(!told.see(2, What::Opened) && told.switches.count == 1);
        told.copy_in(2, 3 << 20);
        let story = ArrivalStory { first_extent_micros: 1000, first_call_micros: u64::MAX, ..ArrivalStory::default() };
        assert!(told.see(2, What::Arrived { story }));
        let record = &told.switches.recent[0];
        assert_eq!(record.bytes_in, 3 << 20);
        assert!(record.phases.first_extent_ms.is_some_and(|ms| ms >= 1.0));
        assert_eq!(record.phases.first_launch_ms, None);
        // One that never tells is written down when the next begins.
        told.grant(1, true);
        told.see(1, What::Opened);
        assert!(told.grant(2, false));
        assert_eq!((told.switches.count, told.switches.recent.len()), (2, 2));
    }
}
