//! Time slices on the GPU, of tenants' compute work while some run beside others.

use std::time::Instant;

use baton_contract::class::Class;

use super::parts::Access;
use crate::device::preemptor::{PreemptCommand, PreemptError};
use baton_policy::arbiter::TenantId;

impl Access<'_> {
    /// Sets the time slices that are out of date. `activity`: the tenants at work, and those that were until a moment ago.
    pub(in crate::server) fn set_slices(&mut self, activity: &[(TenantId, bool)]) {
        let now = Instant::now();
        let urgent = self.tenants.index().has(Class::Latency);
        let is_news = std::mem::replace(&mut self.preemptions.is_urgent, urgent) != urgent;
        let mut ids = self.tenants.take_unsliced();
        if is_news {
            ids.extend(self.tenants.ids());
        }
        let at_work = activity.iter().filter(|(_, busy)| *busy).count();
        for (id, busy) in activity {
            if let Some(tenant) = self.tenants.unindexed(*id) {
                tenant.preemption.slice.see(now, *busy, at_work > usize::from(*busy));
                ids.insert(*id);
            }
        }
        for id in ids {
            let Some(tenant) = self.tenants.unindexed(id) else { continue };
            let (class, preemption) = (tenant.class(), &mut tenant.preemption);
            let can_be_set = preemption.works() && !preemption.is_under_way() && tenant.connection.is_open();
            let Some(target) = preemption.target().filter(|_| can_be_set).cloned() else { continue };
            if let Some(micros) = preemption.slice.set(class, urgent) {
                self.submit(id, PreemptCommand::Slice(micros), target);
            }
        }
    }

    /// A time slice is set, or could not be.
    pub(super) fn on_sliced(&mut self, id: TenantId, micros: u64, result: Result<(), PreemptError>) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        if tenant.preemption.slice.was_set(micros, result.is_ok())
            && let Err(error) = result
        {
            baton_messages::warn!(cannot_run_beside_others(&tenant.name, error));
        }
    }
}
