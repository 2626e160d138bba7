//! Whether a paused tenant's pager can change mappings: the first call that it makes after a pause is watched.
//!
//! The driver may need for it what a thread of the program holds that waits, inside the driver, for work that is paused
//! now. So the first call is for memory that nobody uses ([`FromCoordinator::Probe`]). If it does not come back, the tenant is
//! resumed, although it is not its turn: that is better than to lose it. Its gate is closed, so its work comes to an end. It is
//! paused again when it has answered.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use baton_contract::messages::FromCoordinator;

use super::pausing::Stage;
use super::tenant::Tenant;
use super::{Server, log};
use crate::arbiter::TenantId;

/// How long the call may take. It takes 0.03 ms where nothing is in its way.
const LIMIT: Duration = Duration::from_millis(25);

/// How far it is, since the tenant was paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    No,
    /// To be looked at again at some time.
    Asked {
        since: Instant,
        look: Instant,
    },
    Passed,
}

impl Probe {
    /// Whether the answer is yet to come.
    pub(super) fn is_asked(self) -> bool {
        matches!(self, Self::Asked { .. })
    }
}

impl Tenant {
    /// When it is to be looked whether the call has come back.
    pub(super) fn probe_look(&self) -> Option<Instant> {
        match self.hold {
            Some(hold) if hold.stage == Stage::Paused => match hold.probe {
                Probe::Asked { look, .. } => Some(look),
                Probe::No | Probe::Passed => None,
            },
            _ => None,
        }
    }
}

impl Server {
    /// Asks a tenant that is paused and has closed its gate, once.
    pub(super) fn probe(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        let Some(hold) = &mut tenant.hold else { return };
        if hold.stage != Stage::Paused || !hold.is_closed() || hold.probe != Probe::No {
            return;
        }
        let since = Instant::now();
        hold.probe = Probe::Asked { since, look: since + LIMIT };
        tenant.probes = tenant.probes.wrapping_add(1);
        let number = tenant.probes;
        self.command(id, &FromCoordinator::Probe { number });
    }

    /// It has answered.
    pub(super) fn probed(&mut self, id: TenantId, number: u32) {
        let Some(tenant) = self.tenants.get_mut(&id).filter(|tenant| tenant.probes == number) else { return };
        let Some(hold) = tenant.hold.as_mut().filter(|hold| hold.probe.is_asked()) else { return };
        match hold.stage {
            Stage::Paused => hold.probe = Probe::Passed,
            Stage::Answering => self.start_pausing(id),
            // It may have needed that: it is asked again when it is paused again.
            Stage::Asked | Stage::Pausing | Stage::Resuming => hold.probe = Probe::No,
        }
    }

    /// Resumes those whose call does not come back.
    pub(super) fn look_for_stuck_probes(&mut self) {
        let now = Instant::now();
        let mut stuck = Vec::new();
        for (id, tenant) in &mut self.tenants {
            if tenant.probe_look().is_none_or(|look| look > now) {
                continue;
            }
            if let Some(hold) = &mut tenant.hold
                && let Probe::Asked { look, .. } = &mut hold.probe
            {
                *look = now + LIMIT;
            }
            // One that has not begun, because it was stopped, say, waits for nothing on the GPU. And nothing was moved yet.
            if tenant.theirs.probing.load(Relaxed) != 0 && tenant.missing_bytes() == 0 {
                stuck.push(*id);
            }
        }
        for id in stuck {
            let name = self.tenants.get(&id).map_or("", |tenant| &tenant.name);
            log(format_args!("{name} goes on for a while: its driver cannot unmap memory before its work has ended"));
            self.start_resuming(id);
        }
    }
}
