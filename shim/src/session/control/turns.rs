//! Turns: the gate opens and closes, and the limits of a turn change.

use core::time::Duration;
use std::time::Instant;

use baton_contract::messages::{TurnCommand, TurnReport};

use super::state::{Control, Turn};
use crate::memory::unmanaged;
use crate::sys::user;
use crate::work::{limit, pools};
use crate::{arrival, gate};

/// How long threads that waited at the gate may take to wake up and pass it, before it is closed again.
const LONGEST_WAKE: Duration = Duration::from_millis(20);
/// How long a try to yield without being asked may take.
const LONGEST_TRY: Duration = Duration::from_millis(2);

impl Control {
    /// Carries out a command about this program's turn.
    pub(super) fn on_turn(&mut self, command: TurnCommand) {
        match command {
            TurnCommand::Grant { grant, arriving, preemptible } => {
                self.turn = Turn::Here { grant, arriving: false };
                self.last_grant = grant;
                self.patience = None;
                self.limit_in_flight(limit::InFlight::Any);
                if arriving && !self.session.space.extents.all_mapped() {
                    self.begin_arrival(grant, preemptible);
                }
                self.open();
                self.session.link.tell(&TurnReport::Opened { grant });
                // For the next time, when the program goes on already.
                self.make_probe_ready();
            }
            TurnCommand::Pointers { edges, continues } => {
                if !continues {
                    self.edges.clear();
                }
                self.edges.extend(edges);
            }
            TurnCommand::LimitInFlight { launches } => self.limit_in_flight(limit::InFlight::Launches(launches)),
            TurnCommand::LiftLimit { watch } => {
                self.limit_in_flight(if watch { limit::InFlight::Watching } else { limit::InFlight::Any });
            }
            TurnCommand::Contended { patience_micros } => {
                // It may have been quiet for that long already.
                self.patience = Some(Duration::from_micros(patience_micros));
                self.show_contended();
            }
            TurnCommand::Uncontended => {
                self.patience = None;
                self.show_contended();
            }
            TurnCommand::Revoke { grant, limit_micros } => {
                if let Turn::Held { grant: held, arriving, .. } = self.turn
                    && held == grant
                {
                    // It could not be paused after all.
                    self.hold_no_more(grant, arriving);
                }
                if self.turn.grant() == Some(grant) {
                    self.yield_gpu(grant, Duration::from_micros(limit_micros));
                }
            }
            TurnCommand::End { text } => {
                user::warn(&baton_messages::results_would_be_wrong(text));
                // As the coordinator would, were this process not of another PID namespace.
                // SAFETY: our own process.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
        }
    }

    /// Prepares for the gate to open with memory on its way: calls wait for theirs.
    fn begin_arrival(&mut self, grant: u64, preemptible: bool) {
        let mut roots = arrival::roots::read(self.session.device);
        // Memory that is not ours may hold pointers to what is.
        roots.unreadable |= self.session.whole || unmanaged::is_any() || arrival::elsewhere::is_any();
        let mut layout = self.session.space.layout();
        // An allocation may come to lie there.
        layout.blocks.extend(pools::free_memory());
        arrival::begin(layout, &self.edges, roots, preemptible);
        self.turn = Turn::Here { grant, arriving: true };
    }

    /// Takes up a turn again that was held.
    pub(super) fn hold_no_more(&mut self, grant: u64, arriving: bool) {
        self.turn = Turn::Here { grant, arriving: false };
        if arriving && !self.session.space.extents.all_mapped() {
            // Kernels that were launched ahead before wait for this arrival to end: it has a later number.
            self.begin_arrival(grant, false);
        }
        self.open();
    }

    /// Gives the GPU back if all work ends in time; otherwise the turn goes on.
    fn yield_gpu(&mut self, grant: u64, limit: Duration) {
        let start = Instant::now();
        gate::let_through(start + LONGEST_WAKE, || self.beat());
        let deadline = Instant::now() + limit;
        if !self.end_turn_by(grant, start, deadline) {
            self.session.link.tell(&TurnReport::DrainTimedOut { grant });
        }
    }

    /// Yields if nothing is queued: the program has been quiet while another waits.
    pub(super) fn try_to_yield(&mut self, grant: u64) {
        let start = Instant::now();
        self.end_turn_by(grant, start, start + LONGEST_TRY);
    }

    /// Gives the GPU back if calls leave and work ends by the deadline. Work that waits for something the program has yet to do, or very
    /// long work, goes on otherwise.
    fn end_turn_by(&mut self, grant: u64, start: Instant, deadline: Instant) -> bool {
        let _kept_off = gate::KeptOff::begin();
        let has_ended = self.close(deadline) && self.drain(deadline);
        if has_ended {
            self.end_turn(grant, start);
        } else {
            self.open();
        }
        has_ended
    }
}
