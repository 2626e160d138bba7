//! Preemption: this program's work is about to be taken off the GPU, or has been.

use core::time::Duration;
use std::time::Instant;

use baton_contract::messages::{PreemptionCommand, PreemptionReport};

use super::super::probe::Probe;
use super::super::tenant;
use super::state::{Control, LONGEST_HOLD, Turn};
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
    /// Carries out a command about preemption.
    pub(super) fn on_preemption(&mut self, command: PreemptionCommand) {
        match command {
            PreemptionCommand::Begin { grant } => {
                if self.turn.grant() == Some(grant) {
                    self.hold(grant);
                }
            }
            PreemptionCommand::Probe { number } => self.probe(number),
        }
    }

    /// Closes the gate and lets the coordinator take this program's work off the GPU.
    fn hold(&mut self, grant: u64) {
        if !std::mem::replace(&mut self.probe_made, true) {
            self.probe = Probe::new(self.session.device, &self.session.link.own().probing);
        }
        self.make_probe_ready();
        let start = Instant::now();
        // In this order: every channel made from here on is reported, or paused as soon as it is made.
        channels::pause_what_comes();
        self.session.tell_channels();
        // A refused call would end a capture.
        let limit = if capture::is_any() { LONGEST_HOLD_OF_CAPTURE } else { self.hold_limit };
        self.announce_closing();
        let kept_off = gate::KeptOff::begin();
        let held = gate::hold(start + limit);
        let ended = held == gate::Held::Empty && self.drain(start + limit);
        drop(kept_off);
        let next = if ended { self.hold_limit * 2 } else { self.hold_limit / 2 };
        self.hold_limit = next.clamp(SHORTEST_HOLD, LONGEST_HOLD);
        if ended {
            return self.end_turn(grant, start);
        }
        let arriving = self.turn.is_arriving();
        self.requests.on_goes_on();
        self.on_gate_closed();
        let is_told = held != gate::Held::NotYet;
        self.turn = Turn::Held { grant, is_told, arriving };
        tenant::begins_to_wait(self.session.link);
        if is_told {
            self.report_held(grant);
        }
        self.demand_again();
    }

    /// Prepares the probe for the next pause.
    pub(super) fn make_probe_ready(&mut self) {
        if self.probe.as_ref().is_some_and(|probe| probe.make_ready().is_err()) {
            self.probe = None;
        }
    }

    /// Tests if mappings can be changed while work is paused. The answer comes when that is known.
    fn probe(&mut self, number: u32) {
        self.asked = Some(number);
        match &mut self.probe {
            Some(probe) => probe.begin(),
            None => self.on_probed(0),
        }
    }

    /// The probe took so many milliseconds. The coordinator that asked for it may have died meanwhile.
    pub(super) fn on_probed(&mut self, took_ms: u32) {
        let Some(number) = self.asked.take() else { return };
        // Otherwise its turn has come meanwhile.
        if matches!(self.turn, Turn::Held { is_told: true, .. }) {
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
        self.session.link.tell(&PreemptionReport::Probed { number });
    }

    /// Reports that the gate is closed. Calls still inside find, when they go on, all that was there when they came.
    pub(super) fn report_held(&self, grant: u64) {
        self.session.link.tell(&PreemptionReport::GateClosed { grant });
    }
}
