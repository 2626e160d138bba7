//! Whether a paused tenant's pager can change mappings: the first call that it makes after a pause is watched.
//!
//! The driver may need for it what a thread of the program holds that waits, inside the driver, for work that is paused
//! now. So the first call is for memory that nobody uses ([`PreemptionCommand::Probe`]). If it does not come back, the tenant is
//! resumed, although it is not its turn: that is better than to lose it. Its gate is closed, so its work comes to an end, if it
//! does not wait for the program. It is paused again when it has answered, or after [`ANSWER_LIMIT`]; then its memory stays
//! where it is.

use std::time::{Duration, Instant};

use baton_contract::messages::PreemptionCommand;

use crate::policy::arbiter::TenantId;
use crate::server::Server;
use crate::server::tenants::preemption::{Probe, Stage};
use crate::server::tenants::tenant::{ANSWER_LIMIT, Tenant};
/// When it is looked for the first time whether that is over, and how often then.
const LOOK: Duration = Duration::from_millis(25);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl Server {
    /// Asks a tenant that is paused and has closed its gate, once.
    pub(in crate::server) fn probe(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let Some(hold) = &mut tenant.hold else { return };
        if hold.stage != Stage::Paused || !hold.is_closed() || hold.probe != Probe::No {
            return;
        }
        let since = Instant::now();
        hold.probe = Probe::Asked { since, look: since + LOOK };
        tenant.probes = tenant.probes.wrapping_add(1);
        let number = tenant.probes;
        self.tenants.tell(id, &PreemptionCommand::Probe { number });
    }

    /// It has answered.
    pub(in crate::server) fn probed(&mut self, id: TenantId, number: u32) {
        let Some(tenant) = self.tenants.get_mut(id).filter(|tenant| tenant.probes == number) else { return };
        let Some(hold) = &mut tenant.hold else { return };
        match (hold.stage, hold.probe) {
            (_, Probe::No | Probe::Passed) => {}
            (Stage::Paused, Probe::Asked { .. }) => hold.probe = Probe::Passed,
            (Stage::Answering, _) => self.start_pausing(id),
            // It may have needed to run for that: it is asked again when it is paused again.
            _ => {
                hold.probe = Probe::No;
                self.probe(id);
            }
        }
    }

    /// Resumes one whose call does not come back, and pauses it again if it was resumed in vain.
    pub(in crate::server) fn look_at_probe(&mut self, id: TenantId) {
        let now = Instant::now();
        if self.tenants.get(id).and_then(Tenant::probe_look).is_some_and(|look| look <= now) {
            let Some(tenant) = self.tenants.get_mut(id) else { return };
            let (is_stuck, Some(hold)) = (tenant.is_stuck_in_probe(), &mut tenant.hold) else { return };
            match (hold.stage, &mut hold.probe) {
                (Stage::Answering, _) => self.let_stay(id),
                (_, Probe::Asked { look, .. }) if is_stuck => {
                    *look = now + LOOK;
                    if hold.stuck.is_some_and(|since| now >= since + ANSWER_LIMIT) {
                        return self.let_stay(id);
                    }
                    hold.stuck.get_or_insert(now);
                    if !std::mem::replace(&mut tenant.preemptible.was_stuck, true) {
                        let what = "its driver cannot unmap memory before its work has ended";
                        log::info!("{} goes on for a while: {what}", tenant.name);
                    }
                    // Nothing was moved yet. What is missing was missing when its work ran.
                    self.start_resuming(id);
                }
                (_, Probe::Asked { look, .. }) => *look = now + LOOK_AGAIN,
                _ => {}
            }
        }
    }

    /// It was let go on for long enough.
    fn let_stay(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let Some(hold) = &mut tenant.hold else { return };
        hold.probe = Probe::Late;
        log::warn!("{} still cannot unmap memory, which stays where it is", tenant.name);
        if hold.stage == Stage::Answering {
            self.start_pausing(id);
        }
    }
}
