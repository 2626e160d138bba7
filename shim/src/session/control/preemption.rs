//! Preemption: this program's work is about to be taken off the GPU, or has been.

use core::time::Duration;
use std::time::Instant;

use baton_contract::messages::{PreemptionCommand, PreemptionReport};

use super::super::probe::Probe;
use super::state::{Control, Gpu, LONGEST_HOLD, Turn};
use crate::work::capture;
use crate::{arrival, channels, gate};

/// The bounds within which the wait for calls to leave and work to end is learned. Work that has ended is worth some waiting:
/// after a pause nothing runs before all memory is back.
const SHORTEST_HOLD: Duration = Duration::from_micros(100);
const LONGEST_HOLD_OF_CAPTURE: Duration = Duration::from_millis(5);
/// A program that took longer than this to unmap memory while its work was paused waited for that work.
const PROBE_LIMIT_MS: u32 = 20;
/// How long it then drains before it is paused again.
const LONGEST_DRAIN: Duration = Duration::from_millis(100);
/// How often it looks meanwhile whether the work has ended.
const BETWEEN_LOOKS: Duration = Duration::from_micros(250);

impl Control {
    /// Carries out a command about preemption on a GPU.
    pub(super) fn on_preemption(&mut self, at: usize, command: PreemptionCommand) {
        match command {
            PreemptionCommand::Begin { grant } => {
                if self.gpus[at].turn.grant() == Some(grant) {
                    self.hold(at, grant);
                }
            }
            PreemptionCommand::Probe { number } => self.probe(at, number),
        }
    }

    /// Closes the gate and lets the coordinator take this program's work off the GPU.
    fn hold(&mut self, at: usize, grant: u64) {
        if !self.is_here() && !self.is_held() {
            // It is not this program's turn on another GPU: the gate is closed, and all work has ended.
            return self.end_turn(Instant::now());
        }
        let gpu = &mut self.gpus[at];
        if !std::mem::replace(&mut gpu.probe_made, true) {
            gpu.probe = Probe::new(gpu.session.device, &gpu.session.link.own().probing);
        }
        gpu.make_probe_ready();
        let start = Instant::now();
        // In this order: every channel made from here on is reported, or paused as soon as it is made.
        channels::pause_what_comes();
        gpu.session.tell_channels();
        // A refused call would end a capture.
        let limit = if capture::is_any() { LONGEST_HOLD_OF_CAPTURE } else { self.hold_limit };
        let held = if self.is_held() {
            // Work is paused on another GPU, so the gate is closed, and this work may not end.
            gate::finish_holding()
        } else {
            self.announce_closing();
            let kept_off = gate::KeptOff::begin();
            let held = gate::hold(start + limit);
            let ended = held == gate::Held::Empty && self.drain(start + limit);
            drop(kept_off);
            let next = if ended { self.hold_limit * 2 } else { self.hold_limit / 2 };
            self.hold_limit = next.clamp(SHORTEST_HOLD, LONGEST_HOLD);
            if ended {
                return self.end_turn(start);
            }
            held
        };
        self.requests.on_goes_on();
        let is_told = held != gate::Held::NotYet;
        let gpu = &mut self.gpus[at];
        gpu.hold(grant, is_told);
        gpu.session.begins_to_wait();
        if is_told {
            gpu.report_held(grant);
        }
        gpu.demand_again();
    }

    /// Tests if mappings can be changed while work is paused. The answer comes when that is known.
    fn probe(&mut self, at: usize, number: u32) {
        let gpu = &mut self.gpus[at];
        gpu.asked = Some(number);
        match &mut gpu.probe {
            Some(probe) => probe.begin(),
            None => self.on_probed(at, 0),
        }
    }

    /// The probe took so many milliseconds. The coordinator that asked for it may have died meanwhile.
    pub(super) fn on_probed(&mut self, at: usize, took_ms: u32) {
        let Some(number) = self.gpus[at].asked.take() else { return };
        // Otherwise its turn has come meanwhile.
        if matches!(self.gpus[at].turn, Turn::Held { is_told: true, .. }) {
            if took_ms > PROBE_LIMIT_MS {
                // It had to wait, and we were let go on for that. The work that it waited for ends first.
                let end = Instant::now() + LONGEST_DRAIN;
                while (arrival::is_waited_for_on_gpu() || !self.idle.is_idle(gate::activity())) && Instant::now() < end
                {
                    std::thread::sleep(BETWEEN_LOOKS);
                }
            }
            // Not before: this unmaps memory too, and would keep us from hearing of another coordinator.
            self.release_cached();
        }
        self.gpus[at].session.link.tell(&PreemptionReport::Probed { number });
    }
}

impl Gpu {
    /// Reports that the gate is closed. Calls still inside find, when they go on, all that was there when they came.
    pub(super) fn report_held(&self, grant: u64) {
        self.session.link.tell(&PreemptionReport::GateClosed { grant });
    }
}
