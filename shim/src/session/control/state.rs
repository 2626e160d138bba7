//! The state of the control loop, and the steps that commands of several families share.

use core::time::Duration;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Instant;

use baton_contract::messages::{ExtentId, MAX_LISTED, MemoryReport, TurnReport};

use super::super::consolidation;
use super::super::corun::Corun;
use super::super::idle::Watch;
use super::super::probe::Probe;
use super::super::requests::Requests;
use super::super::rest::Rest;
use super::super::tenant::{DEMANDED, Session};
use crate::arrival::gpus;
use crate::gate::activity;
use crate::link::{self, Link};
use crate::memory::space::{GivenUp, Space};
use crate::work::drain::{IdleWatch, drain};
use crate::work::{frees, limit};
use crate::{arrival, channels, gate};

/// The longest time that calls may take to leave when the gate closes and work is about to be paused, and that queued work
/// may take to end.
pub(super) const LONGEST_HOLD: Duration = Duration::from_millis(1);

/// Why the control loop ends.
pub(super) enum End {
    /// The coordinator is gone, or counts as gone, for this reason.
    CoordinatorGone(&'static str),
    /// The program is exiting and the driver has shut down: no memory is left to move.
    DriverGone,
}

/// The state of this program's turn on a GPU. The gate is open if it has its turn on all that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The gate is closed, and memory there may be away.
    Away,
    /// The gate was closed with work still queued, and the work there may be paused by now.
    Held {
        grant: u64,
        /// True once the coordinator knows: not while a call that is inside changes what memory there is.
        is_told: bool,
        /// True if memory was still on its way.
        arriving: bool,
    },
    /// As far as this GPU is concerned, the gate may be open.
    Here {
        grant: u64,
        /// True while calls wait for memory there that is still on its way.
        arriving: bool,
    },
}

impl Turn {
    /// The grant that holds.
    pub(super) fn grant(self) -> Option<u64> {
        match self {
            Self::Here { grant, .. } => Some(grant),
            _ => None,
        }
    }

    /// True if calls wait for memory.
    pub(super) fn is_arriving(self) -> bool {
        matches!(self, Self::Here { arriving: true, .. })
    }
}

/// A GPU that this program shares.
pub(super) struct Gpu {
    pub(super) session: &'static Session,
    /// False before the first grant on a GPU that this program has joined beside others: until then it counts for nothing.
    pub(super) counts: bool,
    pub(super) turn: Turn,
    /// The number of the latest grant; 0 before the first.
    pub(super) last_grant: u64,
    /// A grant whose calls have yet to pass: the coordinator is told when the gate opens.
    pub(super) unopened: Option<u64>,
    /// The grant came with memory still on its way; and work may wait for that.
    pub(super) brings: bool,
    pub(super) preemptible: bool,
    /// How long the program has to be quiet before it yields, while another waits.
    pub(super) patience: Option<Duration>,
    /// How much is kept in flight because a more urgent program may come at any time.
    pub(super) in_flight: limit::InFlight,
    /// Pointers between extents, for the next grant with memory on its way.
    pub(super) edges: Vec<(ExtentId, u64)>,
    pub(super) corun: Corun,
    /// Extents whose frames did not come, because no more descriptors could be opened.
    pub(super) undelivered: HashSet<ExtentId>,
    /// Made before the first pause; none if that failed.
    pub(super) probe: Option<Probe>,
    pub(super) probe_made: bool,
    /// The number of the probe whose end the coordinator waits for.
    pub(super) asked: Option<u32>,
}

impl Gpu {
    pub(super) fn new(session: &'static Session) -> Self {
        Self {
            session,
            counts: false,
            turn: Turn::Away,
            last_grant: 0,
            unopened: None,
            brings: false,
            preemptible: false,
            patience: None,
            in_flight: limit::InFlight::Any,
            edges: Vec::new(),
            corun: Corun::new(session.link),
            undelivered: HashSet::new(),
            probe: None,
            probe_made: false,
            asked: None,
        }
    }

    /// True if work there may be paused.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.turn, Turn::Held { .. })
    }

    /// Has this GPU count: the program is at work there from now on.
    pub(super) fn count(&mut self) {
        self.counts = true;
        gpus::works_on(self.session.device);
        activity::take_seat(self.session.device);
    }

    /// Prepares the probe for the next pause.
    pub(super) fn make_probe_ready(&mut self) {
        if self.probe.as_ref().is_some_and(|probe| probe.make_ready().is_err()) {
            self.probe = None;
        }
    }

    /// Shows that the control loop was not stopped.
    pub(super) fn beat(&self) {
        self.session.link.own().heartbeat.fetch_add(1, Ordering::Relaxed);
    }

    /// Asks for the GPU for a call that came while the gate closed: it asked before the coordinator knew.
    pub(super) fn demand_again(&self) {
        if self.session.wants_turn() || consolidation::is_under_way(self.session.device) {
            self.session.demand();
        }
    }

    /// Reports how memory arrived: all is here, or the gate is closed.
    pub(super) fn report_arrival(&self, grant: u64) {
        let Some((used, stats)) = arrival::stats(self.session.device) else { return };
        for extents in used.chunks(MAX_LISTED) {
            self.session.link.tell(&TurnReport::Used { grant, extents: extents.to_vec() });
        }
        self.session.link.tell(&TurnReport::Arrived { grant, stats });
    }

    /// The gate is closed over this GPU's turn: it goes on as this one.
    fn end_turn_as(&mut self, next: Turn) {
        self.tell_opened();
        if let Turn::Here { grant, arriving: true } = self.turn {
            self.report_arrival(grant);
            // Calls that wait for memory outside of the gate now wait for the gate. Those inside go on waiting for memory: what
            // they would queue runs until we are paused.
            arrival::wake();
        }
        self.corun.on_turn_ends();
        self.turn = next;
    }

    /// Tells that calls pass in this turn, or that it ends before any could. True if that was not told yet.
    fn tell_opened(&mut self) -> bool {
        let grant = self.unopened.take();
        if let Some(grant) = grant {
            self.session.link.tell(&TurnReport::Opened { grant });
        }
        grant.is_some()
    }

    /// The gate is closed with work still queued there.
    pub(super) fn hold(&mut self, grant: u64, is_told: bool) {
        let arriving = self.turn.is_arriving();
        self.end_turn_as(Turn::Held { grant, is_told, arriving });
    }
}

/// The state of the control loop.
pub(super) struct Control {
    /// In the order in which this program has joined them.
    pub(super) gpus: Vec<Gpu>,
    pub(super) is_open: bool,
    /// Those that have no coordinator any more, and whose work it may have paused.
    pub(super) gone: Vec<&'static Session>,
    pub(super) watch: Watch,
    pub(super) idle: IdleWatch,
    /// How long work may take to end before it is paused.
    pub(super) hold_limit: Duration,
    pub(super) rest: Rest,
    pub(super) requests: Requests,
    /// The last try to yield: each try keeps calls off for a moment.
    pub(super) last_try: Option<Instant>,
}

impl Control {
    /// The state before the first grant. If a loop has run before, the gate is open, for GPUs that are not shared any more; else it is
    /// closed.
    pub(super) fn new(session: &'static Session, is_open: bool) -> Self {
        let mut first = Gpu::new(session);
        if !is_open {
            first.count();
        }
        Self {
            gpus: vec![first],
            is_open,
            gone: Vec::new(),
            watch: Watch::new(),
            idle: IdleWatch::default(),
            hold_limit: LONGEST_HOLD / 2,
            rest: Rest::default(),
            requests: Requests::default(),
            last_try: None,
        }
    }

    /// The GPUs that count.
    fn counting(&self) -> impl Iterator<Item = &Gpu> {
        self.gpus.iter().filter(|gpu| gpu.counts)
    }

    /// True if it is this program's turn on all its GPUs: the gate is open, or can be.
    pub(super) fn is_here(&self) -> bool {
        self.counting().all(|gpu| gpu.turn.grant().is_some())
    }

    /// True if its work may be paused on one of its GPUs.
    pub(super) fn is_held(&self) -> bool {
        self.gpus.iter().any(Gpu::is_held)
    }

    /// The turns that no other program waits for, one on each GPU, with all memory here.
    pub(super) fn turns_alone(&self) -> Option<Vec<(&'static Link, u64)>> {
        if self.is_contended() {
            return None;
        }
        let alone = |gpu: &Gpu| match gpu.turn {
            Turn::Here { grant, arriving: false } if gpu.corun.is_off() => Some((gpu.session.link, grant)),
            _ => None,
        };
        self.counting().map(alone).collect()
    }

    /// How long the program has to be quiet before it yields; none if no other waits, or it has nothing to yield.
    pub(super) fn patience(&self) -> Option<Duration> {
        if self.is_here() { self.counting().filter_map(|gpu| gpu.patience).min() } else { None }
    }

    /// Changes how much work is kept in flight for a GPU's sake.
    pub(super) fn limit_in_flight(&mut self, at: usize, in_flight: limit::InFlight) {
        self.gpus[at].in_flight = in_flight;
        self.show_contended();
    }

    /// True if another program waits, or may come at any time.
    pub(super) fn is_contended(&self) -> bool {
        self.counting().any(|gpu| gpu.patience.is_some() || gpu.in_flight != limit::InFlight::Any)
    }

    /// Tells the gate and the limit of work in flight whether the turn is contended.
    pub(super) fn show_contended(&self) {
        let of_gpu = |gpu: &Gpu| match gpu.in_flight {
            // A program that waits has it short in any case.
            limit::InFlight::Watching if gpu.patience.is_some() => limit::InFlight::Any,
            in_flight => in_flight,
        };
        limit::set(self.counting().map(of_gpu).reduce(limit::InFlight::stricter).unwrap_or(limit::InFlight::Any));
        gate::set_contended(self.is_contended());
    }

    /// Opens the gate for a turn that begins or goes on, if it is this program's turn on all its GPUs.
    pub(super) fn open_if_here(&mut self) {
        if !self.is_here() {
            return;
        }
        let is_on_its_way =
            |gpu: &Gpu| (gpu.brings || gpu.turn.is_arriving()) && !gpu.session.space.extents.all_mapped();
        if self.counting().any(is_on_its_way) {
            self.begin_arrival();
        }
        self.open();
        self.note_opened();
    }

    /// The gate is open, for all GPUs that count.
    pub(super) fn note_opened(&mut self) {
        for gpu in self.gpus.iter_mut().filter(|gpu| gpu.counts) {
            gpu.brings = false;
            if gpu.tell_opened() {
                // For the next time, when the program goes on already.
                gpu.make_probe_ready();
            }
            gpu.session.begin();
        }
    }

    /// Opens the gate.
    pub(super) fn open(&mut self) {
        self.is_open = true;
        self.resume_for_gone();
        channels::resume_what_came();
        self.gpus.iter_mut().filter(|gpu| gpu.counts).for_each(|gpu| gpu.corun.on_turn_begins());
        self.watch = Watch::new();
        self.requests.on_goes_on();
        if self.counting().any(|gpu| gpu.turn.is_arriving()) {
            gate::arriving(self.is_contended());
        } else {
            // Calls over which the gate was closed may wait for what has come since, and so may work.
            arrival::end();
            arrival::all_is_here();
            gate::open(self.is_contended());
        }
        arrival::wake();
    }

    /// Closes the gate; false if a call is still inside at the deadline.
    pub(super) fn close(&mut self, deadline: Instant) -> bool {
        self.announce_closing();
        gate::close(Some(deadline), || self.beat())
    }

    /// Shows that this thread was not stopped.
    pub(super) fn beat(&self) {
        self.gpus.iter().for_each(Gpu::beat);
    }

    /// Publishes what the coordinators read once the gate is closed.
    pub(super) fn announce_closing(&mut self) {
        self.is_open = false;
        // Before the gate: a call that finds it closed from here on asks anew.
        self.counting().for_each(|gpu| gpu.session.link.own().waits_since.store(0, Ordering::Relaxed));
        DEMANDED.store(false, Ordering::Release);
        let (start, end) = Space::window();
        let host = arrival::roots::host_range();
        for page in self.gpus.iter().map(|gpu| gpu.session.link.own()) {
            page.window_start.store(start, Ordering::Relaxed);
            page.window_end.store(end, Ordering::Relaxed);
            page.host_start.store(host.start, Ordering::Relaxed);
            page.host_end.store(host.end, Ordering::Relaxed);
        }
    }

    /// True if all work ends by then, with the gate closed. Work that waits for memory does not end: this thread maps it. Nor does work that
    /// is paused.
    pub(super) fn drain(&self, deadline: Instant) -> bool {
        crate::work::idle::about_to_drain();
        !self.is_held() && !arrival::is_waited_for_on_gpu() && drain(deadline, || self.beat())
    }

    /// The gate is closed and all work has ended: gives the GPUs back.
    pub(super) fn end_turn(&mut self, start: Instant) {
        let grants: Vec<Option<u64>> = self.gpus.iter().map(|gpu| gpu.turn.grant()).collect();
        self.gpus.iter_mut().filter(|gpu| gpu.counts).for_each(|gpu| gpu.end_turn_as(Turn::Away));
        self.requests.on_closed();
        let drain_micros = start.elapsed().as_micros() as u64;
        self.release_cached();
        for (gpu, grant) in self.gpus.iter().zip(grants) {
            if let Some(grant) = grant {
                gpu.session.link.tell(&TurnReport::Closed { grant, drain_micros });
                gpu.demand_again();
            }
        }
        // For the next time memory arrives. Now no program waits for us, and we for none.
        if let Some(first) = self.gpus.first() {
            arrival::prepare(first.session.device);
        }
    }

    /// Gives up memory that the program has freed: it is worth no copy.
    pub(super) fn release_cached(&self) {
        frees::collect(|space, given_up| {
            if let Some(link) = link::of(space.device) {
                report_given_up(link, given_up);
            }
        });
        for gpu in &self.gpus {
            gpu.session.space.release_cached(|given_up| report_given_up(gpu.session.link, given_up));
        }
    }
}

/// Reports memory given up by a message, not by a request: a call that makes a request now may wait for this thread.
pub(super) fn report_given_up(link: &Link, given_up: GivenUp<'_>) {
    match given_up {
        GivenUp::Extents(extents) => {
            for extents in extents.chunks(MAX_LISTED) {
                link.tell(&MemoryReport::Free { extents: extents.to_vec() });
            }
        }
        GivenUp::Parts(ranges, enter) => {
            link.tell(&MemoryReport::Spare { ranges: ranges.to_vec() });
            enter();
        }
    }
}
