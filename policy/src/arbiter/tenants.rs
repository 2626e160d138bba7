//! All tenants. Every change of a tenant goes through here, so that the waiting lists and the classes' virtual times follow.

use std::collections::HashMap;

use baton_contract::class::Class;
use baton_contract::scheduling::Scheduling;

use super::tenant::{Role, Tenant, Wait};
use super::virtual_time::{VirtualTime, progress};
use super::waiting::{Entry, Standing, Waiting};
use super::{Micros, TenantId};

#[derive(Debug)]
struct Record {
    tenant: Tenant,
    /// Its entry among the waiting tenants.
    entry: Option<Entry>,
    /// The class and weight with which it is active.
    active: Option<(Class, u32)>,
}

#[derive(Debug, Default)]
pub(super) struct Tenants {
    /// The service by which a tenant may be behind its class after a short absence.
    credit: Micros,
    now: Micros,
    records: HashMap<TenantId, Record>,
    waiting: Waiting,
    times: [VirtualTime; Class::ALL.len()],
    /// The number of waits that have begun.
    waits: u64,
    /// How often there was a reason to try those again that could not arrive.
    changes: u64,
}

impl Tenants {
    pub(super) fn new(credit: Micros) -> Self {
        Self { credit, ..Self::default() }
    }

    pub(super) fn set_credit(&mut self, credit: Micros) {
        self.credit = credit;
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn get(&self, id: TenantId) -> Option<&Tenant> {
        self.records.get(&id).map(|record| &record.tenant)
    }

    /// Its entry, if it waits.
    pub(super) fn entry(&self, id: TenantId) -> Option<&Entry> {
        self.records.get(&id)?.entry.as_ref()
    }

    pub(super) fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    /// The number of waits that have begun: later waits have larger numbers.
    pub(super) fn waits(&self) -> u64 {
        self.waits
    }

    /// Sets the time, which must not go back, and updates the waiting tenants whose rest has ended by then.
    pub(super) fn advance(&mut self, now: Micros) {
        self.now = now;
        while let Some(id) = self.waiting.outdated(now) {
            self.follow(id);
        }
    }

    pub(super) fn join(&mut self, id: TenantId, scheduling: Scheduling) {
        self.records.entry(id).or_insert_with(|| Record { tenant: Tenant::new(scheduling), entry: None, active: None });
    }

    pub(super) fn leave(&mut self, id: TenantId) {
        self.update(id, |tenant| (tenant.waiting, tenant.role) = (None, Role::Parked));
        if self.records.remove(&id).is_none() {
            return;
        }
        // This tenant may have been in the way of those that could not arrive.
        self.end_rests();
    }

    /// Lets those that could not arrive be tried again at once.
    pub(super) fn end_rests(&mut self) {
        self.changes += 1;
        while let Some(id) = self.waiting.any_resting() {
            self.follow(id);
        }
    }

    /// Changes a tenant, and all that follows from the change.
    pub(super) fn update(&mut self, id: TenantId, change: impl FnOnce(&mut Tenant)) {
        if let Some(record) = self.records.get_mut(&id) {
            change(&mut record.tenant);
            self.follow(id);
        }
    }

    pub(super) fn set_cost(&mut self, id: TenantId, cost: Micros) {
        let Some(record) = self.records.get_mut(&id).filter(|record| record.tenant.cost != cost) else { return };
        record.tenant.cost = cost;
        if record.entry.is_some() {
            self.follow(id);
        }
    }

    /// Changes a tenant's scheduling. In a new class it starts from the class's virtual time.
    pub(super) fn change(&mut self, id: TenantId, scheduling: Scheduling) {
        let Some(record) = self.records.get(&id) else { return };
        let changes_class = record.tenant.class() != scheduling.class;
        let start = self.times[scheduling.class as usize].now();
        if changes_class {
            self.set_inactive(id);
        }
        self.update(id, |tenant| {
            tenant.scheduling = scheduling;
            if changes_class {
                (tenant.virtual_time, tenant.owed) = (start, 0);
            }
        });
    }

    /// Begins the wait of a tenant's call, if none waits.
    pub(super) fn begin_wait(&mut self, id: TenantId) {
        let wait = Wait { since: self.now, number: self.waits };
        self.waits += 1;
        self.update(id, |tenant| {
            tenant.waiting.get_or_insert(wait);
        });
    }

    /// Begins its wait anew, because only the user kept it waiting until now.
    pub(super) fn begin_wait_anew(&mut self, id: TenantId) {
        let wait = Wait { since: self.now, number: self.waits };
        self.waits += 1;
        self.update(id, |tenant| tenant.waiting = tenant.waiting.map(|_| wait));
    }

    /// Notes that its wait began at this time already.
    pub(super) fn backdate(&mut self, id: TenantId, at: Micros) {
        self.update(id, |tenant| {
            if let Some(wait) = &mut tenant.waiting {
                wait.since = wait.since.min(at);
            }
        });
    }

    /// Notes that it could not arrive. It rests for at least `rest`.
    pub(super) fn fail(&mut self, id: TenantId, rest: Micros) {
        let (now, changes) = (self.now, self.changes);
        self.update(id, |tenant| tenant.on_failure(now, rest, changes));
    }

    /// Counts the service of the tenant that has the turn.
    pub(super) fn serve(&mut self, id: TenantId, time: Micros) {
        if let Some(record) = self.records.get_mut(&id)
            && let Some((class, weight)) = record.active
            && time > 0
        {
            record.tenant.virtual_time += self.times[class as usize].serve(time, weight);
            debug_assert!(record.entry.is_none(), "{id:?} is served while it waits");
        }
    }

    fn set_inactive(&mut self, id: TenantId) {
        let Some(record) = self.records.get_mut(&id) else { return };
        if let Some((class, weight)) = record.active.take() {
            self.times[class as usize].leave(record.tenant.virtual_time, weight);
        }
    }

    /// Updates a tenant's entry and activity after a change.
    fn follow(&mut self, id: TenantId) {
        let Some(record) = self.records.get_mut(&id) else { return };
        let Record { tenant, entry, active } = record;
        let is = tenant.is_active().then_some((tenant.class(), tenant.scheduling.weight));
        if *active != is {
            let before = active.take();
            if let Some((class, weight)) = before {
                let time = &mut self.times[class as usize];
                time.leave(tenant.virtual_time, weight);
                tenant.owed = time.now().saturating_sub(tenant.virtual_time);
            }
            if let Some((class, weight)) = is {
                let time = &mut self.times[class as usize];
                if before.is_none() {
                    let credit = progress(self.credit, weight).max(tenant.owed);
                    let credit = if tenant.was_here(self.now) { credit } else { 0 };
                    tenant.virtual_time = tenant.virtual_time.max(time.now().saturating_sub(credit));
                }
                time.enter(tenant.virtual_time, weight);
            }
            *active = is;
        }
        let stands = entry_of(id, tenant, self.now, self.changes);
        if *entry != stands {
            entry.take().iter().for_each(|entry| self.waiting.remove(entry));
            stands.iter().for_each(|entry| self.waiting.insert(entry));
            *entry = stands;
        }
    }
}

/// A tenant's entry, if it waits.
fn entry_of(id: TenantId, tenant: &Tenant, now: Micros, changes: u64) -> Option<Entry> {
    let wait = tenant.waiting.filter(|_| tenant.waits())?;
    let standing = match tenant.retry_at(changes) {
        Some(at) if at > now => Standing::Resting(at),
        _ if tenant.failures > 0 => Standing::Retriable,
        _ => Standing::Able,
    };
    let target = tenant.target(now).filter(|_| standing == Standing::Able);
    let (class, virtual_time, is_resident) = (tenant.class(), tenant.virtual_time, tenant.cost == 0);
    Some(Entry { id, class, standing, virtual_time, wait, target, is_resident })
}

/// For comparison: the same answers by a scan.
#[cfg(debug_assertions)]
impl Tenants {
    pub(super) fn iter(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        self.records.iter().map(|(id, record)| (*id, &record.tenant))
    }

    /// The entries of all waiting tenants.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.iter().filter_map(|(id, tenant)| entry_of(id, tenant, self.now, self.changes))
    }

    pub(super) fn check(&self) {
        let mut waiting = Waiting::default();
        self.entries().for_each(|entry| waiting.insert(&entry));
        assert_eq!(waiting, self.waiting);
        for class in Class::ALL {
            let active =
                self.iter().map(|(_, tenant)| tenant).filter(|tenant| tenant.is_active() && tenant.class() == class);
            let active = active.map(|tenant| (tenant.virtual_time, tenant.scheduling.weight));
            assert!(self.times[class as usize].is_that_of(active), "{class}: {:?}", self.times[class as usize]);
        }
    }
}
