//! The owners of the server's state, each with its needs of the others for its work.

use super::state::Server;
use super::tenants::peer::Peer;
use super::tenants::tenant::Tenant;
use super::{memory, preemption, turns};
use baton_messages::Message;
use baton_policy::arbiter::{Event, TenantId};

impl Server {
    /// The arbiter's clock: microseconds since the start.
    pub(super) fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Memory, with all that is needed to manage it.
    pub(super) fn memory(&mut self) -> memory::Handle<'_> {
        self.card.memory.with(&mut self.card.tenants, &self.card.arbiter, &mut self.card.recorder, &mut self.card.costs)
    }

    /// Preemptions, with all that is needed to carry them out.
    pub(super) fn preemptions(&mut self) -> preemption::Access<'_> {
        preemption::Access {
            preemptions: &mut self.card.preemptions,
            tenants: &mut self.card.tenants,
            arbiter: &self.card.arbiter,
            recorder: &mut self.card.recorder,
        }
    }

    /// Turns, with all that is needed for them.
    pub(super) fn turns(&mut self) -> turns::Access<'_> {
        turns::Access {
            turns: &mut self.card.turns,
            tenants: &mut self.card.tenants,
            arbiter: &self.card.arbiter,
            recorder: &mut self.card.recorder,
        }
    }

    /// The tenant with this name, for a peer that asks for something to be done about it. A guest may ask that for its user's own
    /// programs, as far as no others go with them, and learns nothing of others.
    pub(super) fn called(&self, name: &str, by: &Peer) -> Result<TenantId, Message> {
        let found = self.card.tenants.iter().find(|(_, tenant)| tenant.name == name && tenant.connection.is_open());
        let found = found.map(|(id, _)| id);
        if let Some(user) = by.guest() {
            let is_its = |id: &TenantId| {
                self.card.tenants.get(*id).is_some_and(|one| one.connection.control.guest() == Some(user))
            };
            let none = || baton_messages::may_not_steer(user, name.escape_default());
            let mine = found.filter(is_its).ok_or_else(none)?;
            return match self.card.arbiter.members(mine).iter().all(is_its) {
                true => Ok(mine),
                false => Err(baton_messages::would_steer_others(name)),
            };
        }
        found.ok_or_else(|| baton_messages::no_such_program(name.escape_default()))
    }

    /// A tenant that no other tenant waits for is to leave the GPU all the same, with all that it runs with.
    pub(super) fn ask_to_leave(&mut self, id: TenantId) {
        // The turn of those that run with others goes on if only one closes its gate.
        if self.card.arbiter.is_united(id) || self.card.arbiter.is_of_gang(id) {
            self.will_tell(id, Event::Grown);
        } else {
            self.turns().ask_to_leave(id);
        }
    }

    /// Notes a fact about a tenant that another coordinator would have to know, before anything follows from it.
    pub(super) fn note_fact(&mut self, id: TenantId, fact: impl FnOnce(&mut Tenant) -> &mut bool) {
        let Some(tenant) = self.card.tenants.unindexed(id) else { return };
        if !std::mem::replace(fact(tenant), true) {
            self.keep_tenant(id);
        }
    }

    /// The arbiter is to hear this, before anything else is done.
    pub(super) fn will_tell(&mut self, id: TenantId, event: Event) {
        self.card.untold.push_back((id, event));
    }
}
