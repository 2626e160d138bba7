//! One tenant, as the arbiter knows it.

use baton_contract::class::Class;
use baton_contract::scheduling::Scheduling;

use super::Micros;
use super::account::Account;

#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) scheduling: Scheduling,
    /// The user keeps it off the GPU.
    pub(super) suspended: bool,
    /// While it waits, one of a worse class has had a turn because that had waited for too long.
    pub(super) passed_over: bool,
    /// How long it usually has the baton until it is idle.
    pub(super) service: Micros,
    /// Since when a call of it waits.
    pub(super) waiting: Option<Micros>,
    pub(super) account: Account,
    pub(super) cost: Micros,
    pub(super) switches: u64,
    /// The patience that it was told last; none if it was told that nobody waits.
    pub(super) told: Option<Micros>,
    /// How often it could not arrive since it last did, and when it may be tried again.
    pub(super) failures: u32,
    pub(super) retry_at: Micros,
}

impl Tenant {
    pub(super) fn class(&self) -> Class {
        self.scheduling.class
    }

    pub(super) fn charge(&mut self, held: Micros) {
        self.account.charge(held, self.scheduling.weight);
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
        self.retry_at = 0;
    }
}
