//! Switches, put together from events.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_contract::messages::ArrivalStats;
use baton_report::switch::{Phases, Switch};

use super::event::{Way, What};
use baton_policy::arbiter::TenantId;

/// The number of switches that are kept.
const RECENT: usize = 256;

/// Memory that came for a tenant since it asked for the GPU, before its turn began or in it.
#[derive(Clone, Debug, Default)]
struct Came {
    bytes: u64,
    zeros: u64,
    groups: u64,
    extents: u64,
    time: Option<Range<Instant>>,
    prepare: Duration,
    map: Duration,
}

/// Memory that had to leave since the last switch or allocation that made memory leave.
#[derive(Clone, Debug, Default)]
struct Went {
    bytes: u64,
    unchanged: u64,
    time: Option<Range<Instant>>,
    unmap: Duration,
}

/// The time that the last holder's work took to end, or to be taken off the GPU.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    drain: Duration,
    pause: Duration,
}

fn ms_of(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn seconds(time: Option<Range<Instant>>) -> f64 {
    time.map_or(0.0, |time| (time.end - time.start).as_secs_f64())
}

/// A switch under way.
#[derive(Debug)]
struct Opening {
    from: Option<Arc<str>>,
    to: Arc<str>,
    demanded: Instant,
    decided: Instant,
    granted: Instant,
    ended: Ended,
    /// Memory is still on its way when the gate opens.
    arriving: bool,
    opened: Option<Opened>,
}

#[derive(Debug)]
struct Opened {
    at: Instant,
    /// Memory that had to leave for it, if another tenant was chosen since.
    went: Option<Went>,
}

/// The parts of switches, according to events.
#[derive(Debug)]
pub(super) struct Switches {
    gpu: Arc<str>,
    /// The number of switches so far.
    pub(super) count: u64,
    /// The number of switches written down.
    written: u64,
    recent: VecDeque<Switch>,
    allocations: VecDeque<Switch>,
    came: HashMap<TenantId, Came>,
    went: Went,
    ended: Ended,
    last_holder: Option<(TenantId, Arc<str>)>,
    /// Switches that are not written down yet. Memory may still be on its way when the next begins.
    opening: HashMap<TenantId, Opening>,
}

/// Keeps no more than the last ones.
pub(super) fn keep<T>(list: &mut VecDeque<T>, item: T, most: usize) {
    if list.len() == most {
        list.pop_front();
    }
    list.push_back(item);
}

impl Switches {
    /// Creates an empty list, for a GPU with this UUID.
    pub(super) fn new(gpu: Arc<str>) -> Self {
        Self {
            gpu,
            count: 0,
            written: 0,
            recent: VecDeque::new(),
            allocations: VecDeque::new(),
            came: HashMap::new(),
            went: Went::default(),
            ended: Ended::default(),
            last_holder: None,
            opening: HashMap::new(),
        }
    }

    /// The last ones.
    pub(super) fn recent(&self) -> impl Iterator<Item = &Switch> {
        self.recent.iter()
    }

    /// The last allocations for which others had to go.
    pub(super) fn allocations(&self) -> impl Iterator<Item = &Switch> {
        self.allocations.iter()
    }

    /// Takes note of an event. Returns the switch that it completes, if any.
    pub(super) fn see(&mut self, at: Instant, id: TenantId, name: &Arc<str>, what: &What) -> Option<&Switch> {
        match what {
            // From here on, memory that leaves does so for this tenant.
            What::Chosen => self.chosen(),
            // Memory that came before was not for this turn.
            What::Asked => drop(self.came.remove(&id)),
            What::Granted { demanded, decided, arriving } => {
                let opening = (*demanded, *decided, *arriving);
                return self.granted(at, id, name, opening);
            }
            What::Opened => return self.on_opened(at, id),
            What::Arrived { stats } if self.opening.get(&id).is_some_and(|opening| opening.opened.is_some()) => {
                return self.finish(id, Some(*stats));
            }
            What::Departed { .. } => {
                let record = self.close(id, None);
                self.came.remove(&id);
                return self.keep(record);
            }
            What::Drained { took } => self.ended.drain = *took,
            What::Preempted { took } => self.ended.pause = *took,
            What::Leaves { unchanged, .. } => self.went.unchanged += unchanged,
            What::Comes { extents, zeros, .. } => {
                let came = self.came(id);
                came.extents += extents;
                came.zeros += zeros;
            }
            What::Copied { way: Way::In, bytes, time } => {
                let came = self.came(id);
                came.groups += 1;
                came.bytes += bytes;
                extend(&mut came.time, time);
            }
            What::Copied { way: Way::Out, bytes, time } => {
                self.went.bytes += bytes;
                extend(&mut self.went.time, time);
            }
            What::Prepared { took } => self.came(id).prepare += *took,
            What::Mapped { took, .. } => self.came(id).map += *took,
            What::Unmapped { took, .. } => self.went.unmap += *took,
            What::Allocated { asked, .. } => self.on_allocated(at, name, *asked),
            _ => {}
        }
        None
    }

    fn came(&mut self, id: TenantId) -> &mut Came {
        self.came.entry(id).or_default()
    }

    fn chosen(&mut self) {
        let went = std::mem::take(&mut self.went);
        let last = self.last_holder.as_ref().and_then(|(last, _)| self.opening.get_mut(last));
        if let Some(opened) = last.and_then(|last| last.opened.as_mut()) {
            opened.went.get_or_insert(went);
        }
    }

    /// The baton is given to a tenant.
    fn granted(
        &mut self,
        at: Instant,
        id: TenantId,
        name: &Arc<str>,
        (demanded, decided, arriving): (Instant, Instant, bool),
    ) -> Option<&Switch> {
        // If the tenant never reported its previous arrival, the record of that switch ends here.
        let last = self.close(id, None);
        let before = self.last_holder.replace((id, Arc::clone(name)));
        // If no other tenant had the GPU in between, it is no switch: memory moved meanwhile was for allocations.
        if before.as_ref().is_none_or(|(before, _)| *before != id) {
            let (from, to) = (before.map(|(_, name)| name), Arc::clone(name));
            let ended = std::mem::take(&mut self.ended);
            let opening = Opening { from, to, demanded, decided, granted: at, ended, arriving, opened: None };
            self.opening.insert(id, opening);
        }
        self.keep(last)
    }

    /// The gate of the tenant that was granted the baton is open.
    fn on_opened(&mut self, at: Instant, id: TenantId) -> Option<&Switch> {
        let opening = self.opening.get_mut(&id).filter(|opening| opening.opened.is_none())?;
        if opening.from.is_none() {
            self.opening.remove(&id);
            self.came.remove(&id);
            self.went = Went::default();
            return None;
        }
        self.count += 1;
        opening.opened = Some(Opened { at, went: None });
        if opening.arriving { None } else { self.finish(id, None) }
    }

    /// Writes a switch down that is under way, if its gate has opened.
    fn finish(&mut self, id: TenantId, stats: Option<ArrivalStats>) -> Option<&Switch> {
        let record = self.close(id, stats);
        self.keep(record)
    }

    fn keep(&mut self, record: Option<Switch>) -> Option<&Switch> {
        keep(&mut self.recent, record?, RECENT);
        self.recent.back()
    }

    fn close(&mut self, id: TenantId, stats: Option<ArrivalStats>) -> Option<Switch> {
        let Opening { from, to, demanded, decided, granted, ended, opened, .. } = self.opening.remove(&id)?;
        let Opened { at: opened, went } = opened?;
        let went = went.unwrap_or_else(|| std::mem::take(&mut self.went));
        let came = self.came.remove(&id).unwrap_or_default();
        self.written += 1;
        let mut record = self.record((self.written, from, &to), came, went, ended, decided..opened);
        let ms = |at: Instant| Some(at.saturating_duration_since(demanded).as_secs_f64() * 1e3);
        let after = |micros: u64| (micros != u64::MAX).then(|| granted + Duration::from_micros(micros)).and_then(ms);
        record.phases = Phases {
            decided_ms: ms(decided),
            granted_ms: ms(granted),
            first_extent_ms: stats.and_then(|stats| after(stats.first_extent_micros)),
            first_launch_ms: stats.and_then(|stats| after(stats.first_call_micros)),
            all_resident_ms: stats.map_or(ms(opened), |stats| after(stats.end_micros)),
        };
        if let Some(stats) = stats {
            record.waits = stats.waits;
            record.waited_ms = stats.waited_micros as f64 / 1e3;
            record.opaque = stats.opaque;
        }
        Some(record)
    }

    /// An allocation was served that was asked for then; kept if others had to go for it.
    fn on_allocated(&mut self, at: Instant, to: &Arc<str>, asked: Instant) {
        let is_switching = self.last_holder.as_ref().is_some_and(|(last, _)| self.opening.contains_key(last));
        if self.went.bytes > 0 && !is_switching {
            let went = std::mem::take(&mut self.went);
            let record = self.record((0, None, to), Came::default(), went, Ended::default(), asked..at);
            keep(&mut self.allocations, record, RECENT);
        }
    }

    fn record(
        &self,
        (n, from, to): (u64, Option<Arc<str>>, &Arc<str>),
        came: Came,
        went: Went,
        ended: Ended,
        time: Range<Instant>,
    ) -> Switch {
        Switch {
            gpu: Arc::clone(&self.gpu),
            n,
            from: from.map(|from| from.to_string()),
            to: to.to_string(),
            bytes_out: went.bytes,
            bytes_in: came.bytes,
            out_seconds: seconds(went.time),
            in_seconds: seconds(came.time),
            drain_ms: ms_of(ended.drain),
            pause_ms: ms_of(ended.pause),
            unmap_ms: ms_of(went.unmap),
            prepare_ms: ms_of(came.prepare),
            map_ms: ms_of(came.map),
            switch_ms: ms_of(time.end.saturating_duration_since(time.start)),
            bytes_unchanged: went.unchanged,
            bytes_zero: came.zeros,
            groups: came.groups,
            extents: came.extents,
            waits: 0,
            waited_ms: 0.0,
            opaque: 0,
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
        let stats = ArrivalStats { first_extent_micros: 1000, first_call_micros: u64::MAX, ..ArrivalStats::default() };
        assert!(told.see(2, What::Arrived { stats }));
        let record = &told.switches.recent[0];
        assert_eq!(record.bytes_in, 3 << 20);
        assert!(record.phases.first_extent_ms.is_some_and(|ms| ms >= 1.0));
        assert_eq!(record.phases.first_launch_ms, None);
        // A switch of a tenant that never reports is written down when it has the baton again.
        told.grant(1, true);
        told.see(1, What::Opened);
        told.grant(2, false);
        assert!(told.grant(1, false));
        assert_eq!((told.switches.count, told.switches.recent.len()), (2, 2));
    }

    #[test]
    fn what_comes_ahead_of_a_turn_and_while_the_next_begins_is_in_its_record() {
        let mut told = Told::new();
        told.grant(1, false);
        told.see(1, What::Opened);
        told.copy_in(2, 8 << 20);
        told.see(2, What::Asked);
        told.copy_in(2, 1 << 20);
        told.see(2, What::Chosen);
        told.grant(2, true);
        told.see(2, What::Opened);
        told.copy_in(2, 2 << 20);
        told.see(1, What::Chosen);
        told.copy_in(1, 5 << 20);
        told.grant(1, false);
        assert!(told.see(1, What::Opened));
        told.copy_in(2, 4 << 20);
        assert!(told.see(2, What::Arrived { stats: ArrivalStats::default() }));
        let told: Vec<_> = told.switches.recent().map(|record| (record.n, record.bytes_in, record.groups)).collect();
        assert_eq!(told, [(1, 5 << 20, 1), (2, 7 << 20, 3)]);
    }

    #[test]
    fn what_goes_belongs_to_whoever_was_chosen_before() {
        let mut told = Told::new();
        let out = |told: &mut Told, bytes| {
            let time = told.now..told.now;
            told.see(9, What::Copied { way: Way::Out, bytes, time });
        };
        told.grant(1, false);
        told.see(1, What::Opened);
        told.see(1, What::Drained { took: Duration::from_millis(7) });
        told.see(2, What::Chosen);
        out(&mut told, 3);
        told.grant(2, true);
        told.see(2, What::Opened);
        out(&mut told, 4);
        told.see(1, What::Chosen);
        out(&mut told, 5);
        told.grant(1, false);
        told.see(1, What::Opened);
        told.see(2, What::Arrived { stats: ArrivalStats::default() });
        let told: Vec<_> = told.switches.recent().map(|record| (record.n, record.bytes_out, record.drain_ms)).collect();
        assert_eq!(told, [(1, 5, 0.0), (2, 7, 7.0)]);
    }
}
