//! Takeover: another coordinator goes on where the last one has ended. It is told everything that it cannot know otherwise.
//!
//! Commands of the last coordinator that were still under way have been carried out by then: they came first on this socket. The answer
//! to a request may be under way on the other one, and counts for nothing from here on.

use core::sync::atomic::Ordering;
use std::os::fd::OwnedFd;

use baton_contract::messages::{GateState, MAX_RANGES, MemoryReport, TakeoverCommand, TakeoverReport};
use baton_contract::page::TAKEN;

use super::super::connect::take_page;
use super::super::consolidation;
use super::state::{Control, End, Gpu, Turn};
use super::{SAYS_OTHERWISE, end_without_memory};
use crate::channels;
use crate::gate::activity;
use crate::memory::unmanaged;
use crate::work::limit;

impl Control {
    /// Tells a GPU's coordinator that takes over what there is. `pages` came with its command.
    pub(super) fn on_takeover(&mut self, at: usize, command: TakeoverCommand, pages: Vec<OwnedFd>) -> Result<(), End> {
        let TakeoverCommand::Resync { number, slot } = command;
        let [coordinators, activity, elsewhere] = <[OwnedFd; 3]>::try_from(pages).map_err(|_| SAYS_OTHERWISE)?;
        let gpu = &mut self.gpus[at];
        let session = gpu.session;
        let is_taken = || session.link.coordinators().taken.load(Ordering::SeqCst) == TAKEN;
        let was_taken = is_taken();
        channels::another_coordinator();
        gpu.corun.set(false, gpu.turn.grant().is_some());
        activity::end();
        let remapped =
            session.link.replace_page(&coordinators) && activity::replace_elsewhere(session.device, &elsewhere);
        if !remapped || !take_page(session.device, &activity, slot) {
            return Err(End::CoordinatorGone(baton_messages::CANNOT_MAP_PAGES));
        }
        if was_taken && !is_taken() {
            // Others have memory that is still mapped here, and this coordinator does not know of that.
            end_without_memory();
        }
        if let Turn::Held { grant, is_told: false, arriving } = gpu.turn
            && !was_taken
        {
            // Nothing of it has been taken away: calls are still inside.
            self.hold_no_more(at, grant, arriving);
        }
        let is_paused = self.gpus.iter().any(|gpu| matches!(gpu.turn, Turn::Held { is_told: true, .. }));
        let gpu = &mut self.gpus[at];
        if let Turn::Here { grant, .. } = gpu.turn
            && is_paused
        {
            // Work is paused for another GPU's sake: it is not for this coordinator to have it go on.
            gpu.hold(grant, true);
        }
        // This coordinator has limited nothing, and asked for nothing.
        gpu.patience = None;
        gpu.asked = None;
        gpu.undelivered.clear();
        self.limit_in_flight(at, limit::InFlight::Any);
        self.gpus[at].tell_all(number);
        Ok(())
    }
}

impl Gpu {
    /// Tells everything, in the order in which it is to be heard, as the answer to the question of this number.
    fn tell_all(&self, number: u64) {
        let (session, link) = (self.session, self.session.link);
        let asks = link.requests.supersede();
        let (extents, spare) = session.space.held();
        // The first message, also if it is empty, ends all that was told before.
        let (first, rest) = extents.split_at(extents.len().min(MAX_RANGES));
        for extents in core::iter::once(first).chain(rest.chunks(MAX_RANGES)) {
            link.tell(&TakeoverReport::Extents { number, extents: extents.to_vec() });
        }
        for ranges in spare.chunks(MAX_RANGES) {
            link.tell(&MemoryReport::Spare { ranges: ranges.to_vec() });
        }
        session.tell_channels_again();
        let gate = match self.turn {
            Turn::Away => GateState::Closed,
            Turn::Held { .. } => GateState::Held,
            Turn::Here { .. } => GateState::Open,
        };
        let demands = session.wants_turn() || consolidation::is_under_way(session.device);
        let leased = unmanaged::leased(session.device);
        link.tell(&TakeoverReport::Stands { number, gate, grant: self.last_grant, demands, asks, leased });
        consolidation::another_coordinator(session.device);
    }
}
