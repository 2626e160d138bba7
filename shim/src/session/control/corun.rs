//! Co-running: this program may work beside a more urgent one.

use std::os::fd::OwnedFd;

use baton_contract::messages::CorunCommand;
use baton_contract::page::ACTIVITY_SLOTS;

use super::super::connect::take_page;
use super::state::{Control, End, Gpu};
use crate::gate::activity;
use crate::work::limit;

impl Control {
    /// Carries out a command about co-running on a GPU, with the page that came with it.
    pub(super) fn on_corun(&mut self, at: usize, command: CorunCommand, descriptors: &[OwnedFd]) -> Result<(), End> {
        let gpu = &mut self.gpus[at];
        match command {
            CorunCommand::Corun { on } => {
                let has_turn = gpu.turn.grant().is_some();
                if on && has_turn {
                    // No program waits for it any more: a gate that is contended never comes to rest.
                    gpu.patience = None;
                    self.limit_in_flight(at, limit::InFlight::Any);
                }
                self.gpus[at].corun.set(on, has_turn);
                self.show_contended();
            }
            CorunCommand::Slot { slot } => {
                if slot == ACTIVITY_SLOTS {
                    gpu.give_up_slot();
                    return Ok(());
                }
                activity::end();
                if let [page] = descriptors
                    && !take_page(gpu.session.device, page, slot)
                {
                    return Err(End::CoordinatorGone(baton_messages::CANNOT_MAP_PAGES));
                }
                gpu.corun.on_slot_changed();
            }
        }
        Ok(())
    }
}

impl Gpu {
    /// Gives up the slot, also if its page did not come: others do not see when this program is at work, which is worse for it than
    /// for them.
    pub(super) fn give_up_slot(&mut self) {
        activity::end();
        activity::give_up_slot(self.session.device);
        self.corun.on_slot_changed();
    }
}
