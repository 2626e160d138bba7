//! Co-running: this program may work beside a more urgent one.

use std::os::fd::OwnedFd;

use baton_contract::messages::CorunCommand;
use baton_contract::page::ACTIVITY_SLOTS;

use super::super::connect::take_page;
use super::state::{Control, End};
use crate::gate::activity;
use crate::work::limit;

impl Control {
    /// Carries out a command about co-running, with the page that came with it.
    pub(super) fn on_corun(&mut self, command: CorunCommand, descriptors: &[OwnedFd]) -> Result<(), End> {
        match command {
            CorunCommand::Corun { on } => {
                if on && self.turn.grant().is_some() {
                    // No program waits for it any more: a gate that is contended never comes to rest.
                    self.patience = None;
                    self.limit_in_flight(limit::InFlight::Any);
                }
                self.corun.set(on, self.turn.grant().is_some());
                self.show_contended();
            }
            CorunCommand::Slot { slot } => {
                if slot == ACTIVITY_SLOTS {
                    self.give_up_slot();
                    return Ok(());
                }
                activity::end();
                if let [page] = descriptors
                    && !take_page(page, slot)
                {
                    return Err(End::CoordinatorGone(baton_messages::CANNOT_MAP_PAGES));
                }
                self.corun.on_slot_changed();
            }
        }
        Ok(())
    }

    /// Gives up the slot, also if its page did not come: others do not see when this program is at work, which is worse for it than
    /// for them.
    pub(super) fn give_up_slot(&mut self) {
        activity::end();
        activity::give_up_slot();
        self.corun.on_slot_changed();
    }
}
