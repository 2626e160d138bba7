//! Making way for an urgent tenant's burst ([`baton_policy::bursts`]): a tenant's compute work gets no more time. It keeps its
//! turn, and its gate stays open.
//!
//! That is no promise that none of its work runs, so no memory is moved for it. A tenant that is to leave the GPU for good is put
//! back first, and then paused.

use super::parts::{Access, Next, PreemptEvent};
use crate::device::preemptor::{PreemptCommand, PreemptError};
use crate::server::recorder::event::What;
use crate::server::tenants::preemption::Stage;
use baton_policy::arbiter::TenantId;

impl Access<'_> {
    /// Has a tenant make way, if that can be done now.
    pub(in crate::server) fn deschedule(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        if let Some(target) = tenant.preemption.deschedule() {
            self.submit(id, PreemptCommand::Deschedule, target);
        }
    }

    /// Puts it back, if it is descheduled; if that is still under way, as soon as it is over.
    pub(in crate::server) fn reschedule(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        if let Some(target) = tenant.preemption.reschedule() {
            self.submit(id, PreemptCommand::Reschedule, target);
        }
    }

    /// Notes that a tenant is descheduled (`went`), or rescheduled; or that the attempt failed.
    pub(super) fn on_moved(&mut self, id: TenantId, went: bool, result: Result<(), PreemptError>) -> Next {
        let Some(tenant) = self.tenants.get_mut(id) else { return Next::Nothing };
        let works = result.is_ok();
        if let Err(error) = result {
            baton_messages::warn!(could_not_be_descheduled(&tenant.name, error));
        }
        if !tenant.preemption.on_moved(went, works) {
            self.raise(PreemptEvent::Lost { tenant: id, why: baton_messages::NOT_PUT_BACK });
            return Next::Nothing;
        }
        if works {
            self.recorder.record(id, if went { What::Descheduled } else { What::Rescheduled });
        }
        if !tenant.connection.is_open() {
            // It may have gone on by itself before it was descheduled.
            self.reschedule(id);
            return Next::Nothing;
        }
        match tenant.preemption.progress().map(|progress| progress.stage()) {
            // It has lost its turn meanwhile.
            Some(Stage::Pausing { .. } | Stage::Failed { .. }) => return Next::Pause,
            Some(_) => {}
            None => self.raise(PreemptEvent::Moved),
        }
        Next::Nothing
    }
}
