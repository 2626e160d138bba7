//! The facts about a tenant that a coordinator which takes over needs, and that the tenant does not tell it.

use baton_contract::class::Class;
use baton_contract::messages::ProcessId;
use baton_contract::scheduling::Scheduling;
use serde::{Deserialize, Serialize};

use super::tenant::Tenant;
use baton_books::ledger::Account;
use baton_books::reservations::{Need, Run};
use baton_policy::gangs::GangId;

/// A tenant, as the keeper has it.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::server) struct Facts {
    pub(in crate::server) name: String,
    class: String,
    weight: u32,
    slo_micros: u64,
    /// The user, if it is a guest's.
    pub(in crate::server) guest: Option<u32>,
    /// The number of its GPU in messages.
    pub(in crate::server) gpu: u32,
    /// The number of its run, and the bytes that this needs.
    need: Option<(u64, u64)>,
    /// The number of coordinators that it had before.
    pub(in crate::server) coordinators_before: u32,
    /// False if no coordinator has found that it can be paused: its work is not.
    #[serde(default = "yes")]
    pub(in crate::server) may_be_paused: bool,
    /// The number of the tenants that it is united with, which they have too.
    #[serde(default)]
    pub(in crate::server) unit: Option<u32>,
    /// The number of its gang.
    #[serde(default)]
    gang: Option<u64>,
    /// Owners of memory that it imports, with which it is yet to be united: each a PID namespace, and a number there.
    #[serde(default)]
    imports_from: Vec<(u64, u32)>,
    /// Its contexts, and the bytes that they take.
    #[serde(default)]
    pub(in crate::server) contexts: (u64, u64),
    /// True if a user keeps it off the GPU.
    #[serde(default)]
    pub(in crate::server) suspended: bool,
    /// True if memory was taken from it without asking: it may have others' frames mapped.
    #[serde(default)]
    pub(in crate::server) was_taken: bool,
    /// The time at which a coordinator last failed to copy its memory, in seconds of the system's monotonic clock.
    #[serde(default)]
    pub(in crate::server) not_copied: Option<i64>,
    /// The version of the contract that it speaks. Coordinators of version 19 do not say it.
    #[serde(default = "nineteen")]
    pub(in crate::server) contract: u32,
}

fn nineteen() -> u32 {
    19
}

fn yes() -> bool {
    true
}

impl Facts {
    pub(in crate::server) fn of(tenant: &Tenant, account: Account) -> Self {
        let Scheduling { class, weight, slo_micros } = tenant.scheduling.wanted;
        Self {
            name: tenant.name.clone(),
            class: class.to_string(),
            weight,
            slo_micros,
            guest: tenant.connection.control.guest(),
            gpu: tenant.connection.control.gpu().0,
            need: tenant.need.map(|need| (need.run.number, need.bytes)),
            coordinators_before: tenant.preemption.coordinators_before,
            may_be_paused: tenant.preemption.may_be_paused,
            unit: tenant.unit,
            gang: tenant.gang.map(|gang| gang.number),
            imports_from: tenant.imports_from.iter().map(|owner| (owner.namespace, owner.number)).collect(),
            contexts: (account.contexts, account.context_bytes),
            suspended: tenant.scheduling.suspended.is_some(),
            was_taken: tenant.was_taken,
            not_copied: tenant.not_copied,
            contract: tenant.connection.control.version().number(),
        }
    }

    /// The facts in these bytes, if they are such facts.
    pub(in crate::server) fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub(in crate::server) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(in crate::server) fn scheduling(&self) -> Scheduling {
        let class: Class = self.class.parse().unwrap_or_default();
        Scheduling { class, weight: self.weight, slo_micros: self.slo_micros }
    }

    pub(in crate::server) fn imports_from(&self) -> Vec<ProcessId> {
        let all = self.imports_from.iter();
        all.map(|(namespace, number)| ProcessId { namespace: *namespace, number: *number }).collect()
    }

    pub(in crate::server) fn gang(&self) -> Option<GangId> {
        self.gang.map(|number| GangId { guest: self.guest, number })
    }

    pub(in crate::server) fn need(&self) -> Option<Need> {
        self.need.map(|(number, bytes)| Need { run: Run { guest: self.guest, number }, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_of_a_coordinator_of_version_19_are_read() {
        let kept = br#"{"name":"one","class":"latency","weight":3,"slo_micros":0,"guest":null,"gpu":0,"need":[5,4096],
            "coordinators_before":2,"unit":null,"contexts":[1,300],"suspended":false,"was_taken":false,"not_copied":null}"#;
        let facts = Facts::read(kept).expect("facts");
        assert_eq!((facts.contract, facts.scheduling().class, facts.coordinators_before), (19, Class::Latency, 2));
        assert!(facts.may_be_paused, "not known");
        // Facts that come later are no harm to a version that does not know them.
        let mut later: serde_json::Value = serde_json::from_slice(&facts.bytes()).expect("JSON");
        later["later"] = 1.into();
        later["imports_from"] = serde_json::json!([[4_026_531_836_u64, 7]]);
        let later = Facts::read(later.to_string().as_bytes()).expect("facts");
        assert_eq!(later.imports_from(), [ProcessId { namespace: 4_026_531_836, number: 7 }]);
    }
}
