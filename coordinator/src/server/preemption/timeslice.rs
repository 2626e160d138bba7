//! Time slices on the GPU, of tenants' compute work while some run beside others.
//!
//! Whoever is urgent has a long one: when it ends, the GPU changes over to others even if those have next to nothing, and
//! that takes time (measured on an H200: with slices of 2 ms instead of 20, requests of 3.8 ms took 0.4 ms longer). Only who is
//! at work for longer than that anyway, while somebody else urgent is too, has usual slices, until it rests.

use std::time::Instant;

use baton_contract::class::Class;

use crate::device::preemptor::{PreemptCommand, PreemptError};
use crate::policy::arbiter::TenantId;
use crate::server::Server;
impl Server {
    /// Sets the time slices that are not as they should be.
    pub(in crate::server) fn set_slices(&mut self) {
        if !(self.options.pause && self.options.corun) {
            return;
        }
        let now = Instant::now();
        let urgent = self.tenants.index().has(Class::Latency);
        let is_news = std::mem::replace(&mut self.is_urgent, urgent) != urgent;
        let mut ids = self.tenants.take_unsliced();
        ids.extend(self.tenants.index().latency());
        if is_news {
            ids.extend(self.tenants.ids());
        }
        for id in ids {
            let Some(tenant) = self.tenants.unindexed(id) else { continue };
            let (class, preemptible) = (tenant.class(), &mut tenant.preemptible);
            let at_work = self.activity.is_taken_by(tenant.slot);
            preemptible.slice.see(now, at_work, self.activity.is_taken_by_others(tenant.slot));
            let can_be_set = preemptible.works && tenant.hold.is_none() && tenant.disconnected.is_none();
            let wanted = preemptible.slice.wanted(class, urgent);
            if can_be_set
                && preemptible.slice.asked != Some(wanted)
                && let Some(target) = preemptible.told.clone()
            {
                preemptible.slice.asked = Some(wanted);
                self.preemptor.submit(id, PreemptCommand::Slice(wanted), target);
            }
        }
    }

    /// A time slice is set, or could not be.
    pub(in crate::server) fn sliced(&mut self, id: TenantId, micros: u64, result: Result<(), PreemptError>) {
        let Some(tenant) = self.tenants.get_mut(id).filter(|tenant| tenant.preemptible.slice.asked == Some(micros))
        else {
            return;
        };
        tenant.preemptible.slice.failed = result.is_err();
        if let Err(error) = result {
            log::warn!("{} cannot run at the same time as others: {error}", tenant.name);
        }
    }
}
