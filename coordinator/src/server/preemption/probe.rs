//! The probe of a paused tenant: the first call that its control loop makes after a pause is watched, to learn whether it can change mappings.
//!
//! For that call the driver may need a lock of a thread of the program that waits, inside the driver, for work that is paused now. So
//! the first call is for memory that no program uses ([`PreemptionCommand::Probe`]). If it does not come back, the tenant is resumed,
//! although it is not its turn: that is better than to lose it. Its gate is closed, so its work comes to an end, if it does not wait
//! for the program. It is paused again when it has answered, or when it was let go on for long enough; then its memory stays where it
//! is.

use baton_contract::messages::PreemptionCommand;

use super::parts::{Access, Next};
use crate::server::recorder::event::What;
use crate::server::tenants::preemption::{Looked, Probed};
use baton_policy::arbiter::TenantId;

impl Access<'_> {
    /// Asks a tenant that is paused and has closed its gate, once.
    pub(super) fn probe(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        if let Some(number) = tenant.preemption.probe() {
            self.tenants.tell(id, &PreemptionCommand::Probe { number });
        }
    }

    /// Handles the answer of the tenant to its probe.
    pub(super) fn on_probed(&mut self, id: TenantId, number: u32) -> Next {
        let Some(tenant) = self.tenants.get_mut(id) else { return Next::Nothing };
        tenant.has_answered();
        match tenant.preemption.on_probed(number) {
            Probed::Nothing => Next::Nothing,
            Probed::Pause => Next::Pause,
            Probed::AskAgain => {
                self.probe(id);
                Next::Nothing
            }
        }
    }

    /// Resumes one whose call does not come back, and pauses it again if it was resumed in vain.
    pub(super) fn check_probe(&mut self, id: TenantId) -> Next {
        // A tenant whose memory was taken is not resumed for that: others may have the memory.
        let Some(tenant) = self.tenants.get_mut(id).filter(|tenant| !tenant.memory.is_taken()) else {
            return Next::Nothing;
        };
        match tenant.check_probe() {
            Looked::Nothing => Next::Nothing,
            Looked::Resume { first } => {
                if first {
                    baton_messages::info!(is_resumed_for_a_while(&tenant.name));
                }
                self.recorder.record(id, What::UnmapTimedOut);
                // Nothing was moved yet. Missing memory was missing when its work ran.
                Next::Resume
            }
            Looked::Late { runs: true } => Next::Pause,
            Looked::Late { runs: false } => Next::Nothing,
        }
    }
}
