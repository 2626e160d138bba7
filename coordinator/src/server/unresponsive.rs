//! Tenants that do not answer: others do not wait for them.
//!
//! A tenant that is off the GPU and does not unmap what it is told to, or is paused and has not closed its gate, was stopped, or one of
//! its calls waits for the work that is paused. After a while its memory is taken without asking ([`super::memory`]), at once if the
//! system says that it is stopped, and it is left out like a suspended one. It is let in again when it answers; or, if it shows that
//! it lives and cannot, in place.

use super::Server;
use crate::policy::arbiter::{Event, State, TenantId};

impl Server {
    /// A tenant's time has come, if it has not answered.
    pub(super) fn look_whether_it_answers(&mut self, id: TenantId) {
        let is_off = self.arbiter.state(id).is_off_the_gpu();
        let Some(tenant) = self.tenants.get(id) else { return };
        if is_off && tenant.is_to_be_taken() {
            log::warn!("{} does not answer; others get its memory until it does", tenant.name);
            self.memory().take(id);
            if self.arbiter.state(id) == State::Arriving {
                self.memory().end_swap_in(id);
            }
            self.will_tell(id, Event::Suspended);
        } else if tenant.lives_on()
            && self.tenants.get_mut(id).is_some_and(|tenant| tenant.memory.return_in_place())
        {
            // Its turns are as anybody's; only its memory has to come back to where it was.
            self.let_in(id);
        }
    }

    /// Something came from a tenant.
    pub(super) fn shows_life(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get(id).filter(|tenant| tenant.memory.is_taken()) else { return };
        if !tenant.preemption.is_under_way() || tenant.preemption.has_passed() {
            log::info!("{} answers again", tenant.name);
            self.memory().untake(id);
            self.let_in(id);
        }
    }

    /// It is left out no longer, unless a user wants that.
    pub(super) fn let_in(&mut self, id: TenantId) {
        let is_out = |id: &TenantId| {
            self.tenants.get(*id).is_some_and(|tenant| {
                let memory = &tenant.memory;
                tenant.scheduling.suspended.is_some() || memory.is_taken() && !memory.returns_in_place()
            })
        };
        if !self.arbiter.members(id).iter().any(is_out) {
            self.will_tell(id, Event::Unsuspended);
        }
    }
}
