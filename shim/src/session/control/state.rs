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
use super::super::tenant::{DEMANDED, Session, begins_to_wait};
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

/// The state of this program's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The gate is closed, and memory may be away.
    Away,
    /// The gate was closed with work still queued, which may be paused by now.
    Held {
        grant: u64,
        /// True once the coordinator knows: not while a call that is inside changes what memory there is.
        is_told: bool,
        /// True if memory was still on its way.
        arriving: bool,
    },
    /// The gate is open.
    Here {
        grant: u64,
        /// True while calls wait for memory that is still on its way.
        arriving: bool,
    },
}

impl Turn {
    /// The grant that holds, if the gate is open.
    pub(super) fn grant(self) -> Option<u64> {
        match self {
            Self::Here { grant, .. } => Some(grant),
            _ => None,
        }
    }

    /// True if the gate is open and calls wait for memory.
    pub(super) fn is_arriving(self) -> bool {
        matches!(self, Self::Here { arriving: true, .. })
    }
}

/// The state of the control loop.
pub(super) struct Control {
    pub(super) session: &'static Session,
    pub(super) turn: Turn,
    /// The number of the latest grant; 0 before the first.
    pub(super) last_grant: u64,
    /// How long the program has to be quiet before it yields, while another waits.
    pub(super) patience: Option<Duration>,
    /// How much is kept in flight because a more urgent program may come at any time.
    pub(super) in_flight: limit::InFlight,
    pub(super) watch: Watch,
    pub(super) idle: IdleWatch,
    /// Pointers between extents, for the next grant with memory on its way.
    pub(super) edges: Vec<(ExtentId, u64)>,
    /// How long work may take to end before it is paused.
    pub(super) hold_limit: Duration,
    pub(super) corun: Corun,
    pub(super) rest: Rest,
    pub(super) requests: Requests,
    /// The last try to yield: each try keeps calls off for a moment.
    pub(super) last_try: Option<Instant>,
    /// Extents whose frames did not come, because no more descriptors could be opened.
    pub(super) undelivered: HashSet<ExtentId>,
    /// Made before the first pause; none if that failed.
    pub(super) probe: Option<Probe>,
    pub(super) probe_made: bool,
    /// The number of the probe whose end the coordinator waits for.
    pub(super) asked: Option<u32>,
}

impl Control {
    /// The state before the first grant: the gate is closed.
    pub(super) fn new(session: &'static Session) -> Self {
        Self {
            session,
            turn: Turn::Away,
            last_grant: 0,
            patience: None,
            in_flight: limit::InFlight::Any,
            watch: Watch::new(),
            idle: IdleWatch::default(),
            edges: Vec::new(),
            hold_limit: LONGEST_HOLD / 2,
            corun: Corun::new(session.link),
            rest: Rest::new(session.link),
            requests: Requests::default(),
            last_try: None,
            undelivered: HashSet::new(),
            probe: None,
            probe_made: false,
            asked: None,
        }
    }

    /// The grant of a turn that no other program waits for, with all memory here.
    pub(super) fn turn_alone(&self) -> Option<u64> {
        match self.turn {
            Turn::Here { grant, arriving: false } if self.corun.is_off() && !self.is_contended() => Some(grant),
            _ => None,
        }
    }

    /// Changes how much work is kept in flight.
    pub(super) fn limit_in_flight(&mut self, in_flight: limit::InFlight) {
        self.in_flight = in_flight;
        self.show_contended();
    }

    /// True if another program waits, or may come at any time.
    pub(super) fn is_contended(&self) -> bool {
        self.patience.is_some() || self.in_flight != limit::InFlight::Any
    }

    /// Tells the gate and the limit of work in flight whether the turn is contended.
    pub(super) fn show_contended(&self) {
        // A program that waits has it short in any case.
        limit::set(match self.in_flight {
            limit::InFlight::Watching if self.patience.is_some() => limit::InFlight::Any,
            in_flight => in_flight,
        });
        gate::set_contended(self.is_contended());
    }

    /// Opens the gate for a turn that begins or goes on.
    pub(super) fn open(&mut self) {
        channels::resume_what_came();
        self.corun.on_turn_begins();
        self.watch = Watch::new();
        self.requests.on_goes_on();
        if self.turn.is_arriving() {
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
    pub(super) fn close(&self, deadline: Instant) -> bool {
        self.announce_closing();
        gate::close(Some(deadline), || self.beat())
    }

    /// Shows that this thread was not stopped.
    pub(super) fn beat(&self) {
        self.session.link.own().heartbeat.fetch_add(1, Ordering::Relaxed);
    }

    /// Publishes what the coordinator reads once the gate is closed.
    pub(super) fn announce_closing(&self) {
        // Before the gate: a call that finds it closed from here on asks anew.
        self.session.link.own().waits_since.store(0, Ordering::Relaxed);
        DEMANDED.store(false, Ordering::Release);
        let (start, end) = Space::window();
        self.session.link.own().window_start.store(start, Ordering::Relaxed);
        self.session.link.own().window_end.store(end, Ordering::Relaxed);
        let host = arrival::roots::host_range();
        self.session.link.own().host_start.store(host.start, Ordering::Relaxed);
        self.session.link.own().host_end.store(host.end, Ordering::Relaxed);
    }

    /// True if all work ends by then, with the gate closed. Work that waits for memory does not end: this thread maps it.
    pub(super) fn drain(&self, deadline: Instant) -> bool {
        crate::work::idle::about_to_drain();
        !arrival::is_waited_for_on_gpu() && drain(deadline, || self.beat())
    }

    /// The gate has closed: the turn is over for calls.
    pub(super) fn on_gate_closed(&mut self) {
        if let Turn::Here { grant, arriving: true } = self.turn {
            self.report_arrival(grant);
            // Calls that wait for memory outside of the gate now wait for the gate. Those inside go on waiting for memory: what
            // they would queue runs until we are paused.
            arrival::wake();
        }
        self.corun.on_turn_ends();
        self.turn = Turn::Away;
    }

    /// The gate is closed and all work has ended: gives the GPU back.
    pub(super) fn end_turn(&mut self, grant: u64, start: Instant) {
        self.on_gate_closed();
        self.requests.on_closed();
        let drain_micros = start.elapsed().as_micros() as u64;
        self.release_cached();
        self.session.link.tell(&TurnReport::Closed { grant, drain_micros });
        self.demand_again();
        // For the next time memory arrives. Now no program waits for us, and we for none.
        arrival::prepare(self.session.device);
    }

    /// Reports how memory arrived: all is here, or the gate is closed.
    pub(super) fn report_arrival(&self, grant: u64) {
        let Some((used, stats)) = arrival::stats() else { return };
        for extents in used.chunks(MAX_LISTED) {
            self.session.link.tell(&TurnReport::Used { grant, extents: extents.to_vec() });
        }
        self.session.link.tell(&TurnReport::Arrived { grant, stats });
    }

    /// Gives up memory that the program has freed: it is worth no copy.
    pub(super) fn release_cached(&self) {
        let space = self.session.space;
        frees::collect(space, |given_up| self.report_given_up(given_up));
        space.release_cached(|given_up| self.report_given_up(given_up));
    }

    /// Reports memory given up by a message, not by a request: a call that makes a request now may wait for this thread.
    pub(super) fn report_given_up(&self, given_up: GivenUp<'_>) {
        match given_up {
            GivenUp::Extents(extents) => {
                for extents in extents.chunks(MAX_LISTED) {
                    self.session.link.tell(&MemoryReport::Free { extents: extents.to_vec() });
                }
            }
            GivenUp::Parts(ranges, enter) => {
                self.session.link.tell(&MemoryReport::Spare { ranges: ranges.to_vec() });
                enter();
            }
        }
    }

    /// Asks for the GPU for a call that came while the gate closed: it asked before the coordinator knew.
    pub(super) fn demand_again(&self) {
        if DEMANDED.load(Ordering::Acquire) || consolidation::is_under_way() {
            begins_to_wait(self.session.link);
            self.session.link.tell(&TurnReport::Demand);
        }
    }
}
