//! The table of all tenants: what is said to each, and what they add up to.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut, Index};
use std::os::fd::BorrowedFd;

use baton_contract::messages::{Answer, Message};

use super::tenant::Tenant;
use crate::books::extents::{Counts, Extents};
use crate::policy::arbiter::TenantId;

/// All tenants.
#[derive(Debug, Default)]
pub(in crate::server) struct Tenants {
    all: BTreeMap<TenantId, Tenant>,
    last: u32,
    /// What all tenants' extents add up to.
    totals: Counts,
    /// Whose memory has changed since anybody asked.
    changed: Vec<TenantId>,
    /// Whom something could not be said to: their connections have ended, which is yet to be dealt with.
    lost: Vec<TenantId>,
}

impl Tenants {
    /// The number of the tenant that comes next.
    pub(in crate::server) fn next_id(&self) -> TenantId {
        TenantId(self.last + 1)
    }

    /// Whether there has ever been one.
    pub(in crate::server) fn has_been_any(&self) -> bool {
        self.last > 0
    }

    /// A new one, without memory.
    pub(in crate::server) fn add(&mut self, tenant: Tenant) -> TenantId {
        debug_assert!(tenant.extents.is_empty());
        let id = self.next_id();
        self.last = id.0;
        self.all.insert(id, tenant);
        id
    }

    /// One that is no more, with all that it had.
    pub(in crate::server) fn remove(&mut self, id: TenantId) -> Option<(Tenant, Extents)> {
        let mut tenant = self.all.remove(&id)?;
        let extents = std::mem::take(&mut tenant.extents);
        self.totals = self.totals.less(extents.counts());
        Some((tenant, extents))
    }

    pub(in crate::server) fn get(&self, id: TenantId) -> Option<&Tenant> {
        self.all.get(&id)
    }

    pub(in crate::server) fn get_mut(&mut self, id: TenantId) -> Option<&mut Tenant> {
        self.all.get_mut(&id)
    }

    pub(in crate::server) fn has(&self, id: TenantId) -> bool {
        self.all.contains_key(&id)
    }

    pub(in crate::server) fn len(&self) -> usize {
        self.all.len()
    }

    pub(in crate::server) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(in crate::server) fn ids(&self) -> impl Iterator<Item = TenantId> {
        self.all.keys().copied()
    }

    pub(in crate::server) fn iter(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        self.all.iter().map(|(id, tenant)| (*id, tenant))
    }

    pub(in crate::server) fn iter_mut(&mut self) -> impl Iterator<Item = (TenantId, &mut Tenant)> {
        self.all.iter_mut().map(|(id, tenant)| (*id, tenant))
    }

    /// What all of them have.
    pub(in crate::server) fn totals(&self) -> &Counts {
        debug_assert_eq!(
            self.totals,
            self.iter().fold(Counts::default(), |sum, (_, one)| sum.plus(one.extents.counts()))
        );
        &self.totals
    }

    /// A tenant's extents, to change them.
    pub(in crate::server) fn extents(&mut self, id: TenantId) -> Option<Changing<'_>> {
        let extents = &mut self.all.get_mut(&id)?.extents;
        let before = *extents.counts();
        Some(Changing { id, extents, before, totals: &mut self.totals, changed: &mut self.changed })
    }

    /// Whose memory has changed since this was asked last, some perhaps more than once.
    pub(in crate::server) fn take_changed(&mut self) -> Vec<TenantId> {
        std::mem::take(&mut self.changed)
    }

    /// Says something to a tenant's control loop.
    pub(in crate::server) fn tell(&mut self, id: TenantId, message: &impl Message) {
        self.tell_with(id, message, &[]);
    }

    /// The same, with descriptors.
    pub(in crate::server) fn tell_with(&mut self, id: TenantId, message: &impl Message, with: &[BorrowedFd<'_>]) {
        let Some(tenant) = self.all.get_mut(&id) else { return };
        if tenant.disconnected.is_none() && tenant.control.send(message, with).is_err() {
            self.lost.push(id);
        }
    }

    /// Answers a tenant's request.
    pub(in crate::server) fn answer(&mut self, id: TenantId, answer: &Answer, with: &[BorrowedFd<'_>]) {
        let Some(tenant) = self.all.get_mut(&id).filter(|tenant| tenant.disconnected.is_none()) else { return };
        tenant.asking = false;
        if tenant.requests.send(answer, with).is_err() {
            self.lost.push(id);
        }
    }

    /// A tenant whose connection was found to have ended when something was said to it.
    pub(in crate::server) fn take_lost(&mut self) -> Option<TenantId> {
        self.lost.pop()
    }

    /// Whether there are any.
    pub(in crate::server) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }
}

impl Index<TenantId> for Tenants {
    type Output = Tenant;

    fn index(&self, id: TenantId) -> &Tenant {
        &self.all[&id]
    }
}

/// A tenant's extents while they are changed. What all tenants have is kept.
#[derive(Debug)]
pub(in crate::server) struct Changing<'a> {
    id: TenantId,
    extents: &'a mut Extents,
    before: Counts,
    totals: &'a mut Counts,
    changed: &'a mut Vec<TenantId>,
}

impl Deref for Changing<'_> {
    type Target = Extents;

    fn deref(&self) -> &Extents {
        self.extents
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut Extents {
        self.extents
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let after = self.extents.counts();
        if *after != self.before {
            *self.totals = self.totals.less(&self.before).plus(after);
            if self.changed.last() != Some(&self.id) {
                self.changed.push(self.id);
            }
        }
    }
}
