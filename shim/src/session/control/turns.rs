//! Turns: the gate opens and closes, and the limits of a turn change.

use core::time::Duration;
use std::time::Instant;

use baton_contract::messages::{TurnCommand, TurnReport};

use super::state::{Control, Gpu, Turn};
use crate::memory::layout::ExtentOf;
use crate::memory::{space, unmanaged};
use crate::sys::{thread, user};
use crate::work::{limit, pools};
use crate::{arrival, gate};

/// How long threads that waited at the gate may take to wake up and pass it, before it is closed again.
const LONGEST_WAKE: Duration = Duration::from_millis(20);
/// How long it takes at least to find that work which is paused for another GPU's sake does not end.
const PAUSE: Duration = Duration::from_millis(1);
/// How long a try to yield without being asked may take.
const LONGEST_TRY: Duration = Duration::from_millis(2);

impl Control {
    /// Carries out a command about this program's turn on a GPU.
    pub(super) fn on_turn(&mut self, at: usize, command: TurnCommand) {
        let gpu = &mut self.gpus[at];
        match command {
            TurnCommand::Grant { grant, arriving, preemptible } => {
                gpu.turn = Turn::Here { grant, arriving: false };
                (gpu.last_grant, gpu.unopened) = (grant, Some(grant));
                (gpu.brings, gpu.preemptible) = (arriving, preemptible);
                gpu.patience = None;
                let comes_beside = !gpu.counts && self.is_open;
                gpu.count();
                self.limit_in_flight(at, limit::InFlight::Any);
                match comes_beside {
                    // It brings no memory, and that of the others is here, or on its way.
                    true => self.note_opened(),
                    false => self.open_if_here(),
                }
            }
            TurnCommand::Pointers { edges, continues } => {
                if !continues {
                    gpu.edges.clear();
                }
                gpu.edges.extend(edges);
            }
            TurnCommand::LimitInFlight { launches } => self.limit_in_flight(at, limit::InFlight::Launches(launches)),
            TurnCommand::LiftLimit { watch } => {
                self.limit_in_flight(at, if watch { limit::InFlight::Watching } else { limit::InFlight::Any });
            }
            TurnCommand::Contended { patience_micros } => {
                // It may have been quiet for that long already.
                gpu.patience = Some(Duration::from_micros(patience_micros));
                self.show_contended();
            }
            TurnCommand::Uncontended => {
                gpu.patience = None;
                self.show_contended();
            }
            TurnCommand::Revoke { grant, limit_micros } => {
                if let Turn::Held { grant: held, arriving, .. } = gpu.turn
                    && held == grant
                {
                    // It could not be paused after all.
                    self.hold_no_more(at, grant, arriving);
                }
                if self.gpus[at].turn.grant() == Some(grant) {
                    self.yield_gpu(at, grant, Duration::from_micros(limit_micros));
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
    pub(super) fn begin_arrival(&mut self) {
        let mut roots = arrival::roots::read();
        // Memory that is not ours may hold pointers to what is.
        roots.unreadable |=
            self.gpus.iter().any(|gpu| gpu.session.whole) || unmanaged::is_any() || arrival::gpus::are_any_not_shared();
        let mut layout = space::layout();
        // An allocation may come to lie there.
        layout.blocks.extend(pools::free_memory());
        let of_gpu = |gpu: &Gpu| {
            let device = gpu.session.device;
            gpu.edges.iter().map(move |(extent, to)| ((device, *extent), *to)).collect::<Vec<_>>()
        };
        let edges: Vec<(ExtentOf, u64)> = self.gpus.iter().flat_map(of_gpu).collect();
        let preemptible = self.gpus.iter().all(|gpu| gpu.preemptible);
        arrival::begin(layout, &edges, roots, preemptible);
        for gpu in &mut self.gpus {
            if let Turn::Here { grant, .. } = gpu.turn {
                gpu.turn = Turn::Here { grant, arriving: !gpu.session.space.extents.all_mapped() };
            }
        }
    }

    /// Takes up a turn again that was held.
    pub(super) fn hold_no_more(&mut self, at: usize, grant: u64, arriving: bool) {
        let gpu = &mut self.gpus[at];
        gpu.turn = Turn::Here { grant, arriving: false };
        // Kernels that were launched ahead before wait for the next arrival to end: it has a later number.
        (gpu.brings, gpu.preemptible) = (arriving, false);
        self.open_if_here();
    }

    /// Gives the GPUs back if all work ends in time; otherwise the turn goes on.
    fn yield_gpu(&mut self, at: usize, grant: u64, limit: Duration) {
        let start = Instant::now();
        gate::let_through(start + LONGEST_WAKE, || self.beat());
        let deadline = Instant::now() + limit;
        if !self.end_turn_by(start, deadline) {
            self.gpus[at].session.link.tell(&TurnReport::DrainTimedOut { grant });
        }
    }

    /// Yields if nothing is queued: the program has been quiet while another waits.
    pub(super) fn try_to_yield(&mut self) {
        let start = Instant::now();
        self.end_turn_by(start, start + LONGEST_TRY);
    }

    /// Gives the GPUs back if calls leave and work ends by the deadline. Work that waits for something the program has yet to do, or very
    /// long work, goes on otherwise.
    fn end_turn_by(&mut self, start: Instant, deadline: Instant) -> bool {
        let _kept_off = gate::KeptOff::begin();
        // If it is not this program's turn on another GPU, the gate is closed, and all work has ended; unless some is paused there.
        let has_ended = match self.is_here() {
            true => self.close(deadline) && self.drain(deadline),
            false => !self.is_held(),
        };
        if has_ended {
            self.end_turn(start);
        } else if self.is_here() {
            self.open();
        } else {
            // It will be asked again.
            thread::sleep(PAUSE);
        }
        has_ended
    }
}
