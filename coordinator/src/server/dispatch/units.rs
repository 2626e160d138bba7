//! Tenants that run at the same time: units on this GPU, and gangs on several.

use std::collections::BTreeSet;

use baton_contract::messages::{FileId, ProcessId, Request};

use crate::server::state::Server;
use crate::server::tenants::tenant::Tenant;
use baton_policy::arbiter::{Event, TenantId};
use baton_policy::gangs::{self, GangId};

impl Server {
    /// Unites two tenants: from here on they are scheduled as one. A tenant that asks for the other's memory or event asks again
    /// when all its own memory is here too.
    pub(super) fn unite(&mut self, id: TenantId, other: TenantId) {
        if self.card.arbiter.are_united(id, other) {
            return;
        }
        let now = self.now();
        let decisions = self.decide(|arbiter| arbiter.unite(now, id, other));
        if !self.card.arbiter.are_united(id, other) {
            // The arbiter has yet to hear of one of them, and unites it then, if the keeper knows that it is to.
            return;
        }
        let name = |id: TenantId| self.card.tenants.get(id).map_or("", |tenant| tenant.name.as_str());
        baton_messages::info!(are_united(name(id), name(other)));
        self.card.tenants.is_met_by_none_of(id, [other]);
        self.card.tenants.is_met_by_none_of(other, [id]);
        self.note_unit(id);
        self.note_waiting(id);
        self.carry_out(decisions);
        self.merge_gangs(id);
        for member in self.card.arbiter.members(id) {
            self.memory().show_offer(member);
        }
    }

    /// Unites a tenant that wants the GPU with those that share memory with it and want the GPU too, if there is room for all of them.
    pub(in crate::server) fn meet(&mut self, id: TenantId) {
        for other in self.met_by(id) {
            if self.memory().have_room(id, other) {
                self.unite(id, other);
            }
        }
    }

    /// Unites a tenant with the owner of the descriptors by which it imports memory: now, or when the arbiter knows both.
    pub(super) fn unite_with_owner(&mut self, id: TenantId, owner: ProcessId) {
        let mut is_later = self.is_owner_awaited(id, &Request::ImportDescriptor { owner });
        if let Some(exporter) = self.memory().import_descriptor(id, owner) {
            self.unite(id, exporter);
            is_later |= !self.card.arbiter.are_united(id, exporter);
        }
        let is_new = |tenant: &&mut Tenant| !tenant.imports_from.contains(&owner);
        if is_later && let Some(tenant) = self.card.tenants.get_mut(id).filter(is_new) {
            tenant.imports_from.push(owner);
            self.keep_tenant(id);
        }
    }

    /// Unites those with the owners of what they import that could not be united before.
    pub(super) fn unite_with_owners(&mut self) {
        let waiting: Vec<TenantId> =
            self.card.tenants.iter().filter(|(_, tenant)| !tenant.imports_from.is_empty()).map(|(id, _)| id).collect();
        for id in waiting {
            let Some(tenant) = self.card.tenants.get_mut(id) else { continue };
            let owners = std::mem::take(&mut tenant.imports_from);
            owners.into_iter().for_each(|owner| self.unite_with_owner(id, owner));
            self.keep_tenant(id);
        }
    }

    /// Has the keeper know which tenants are united with this one.
    fn note_unit(&mut self, id: TenantId) {
        let members = self.card.arbiter.members(id);
        let number_of = |id: &TenantId| self.card.tenants.get(*id).and_then(|tenant| tenant.unit);
        // Others go by these numbers that the arbiter has yet to know.
        let numbers: BTreeSet<u32> = members.iter().flat_map(|id| [Some(id.0), number_of(id)]).flatten().collect();
        let Some(unit) = numbers.first().copied() else { return };
        let goes_by_them = |tenant: &Tenant| tenant.unit.is_some_and(|number| numbers.contains(&number));
        let all = self.card.tenants.iter().filter(|(id, tenant)| members.contains(id) || goes_by_them(tenant));
        let renamed = all.filter(|(_, tenant)| tenant.unit != Some(unit)).map(|(id, _)| id);
        for id in renamed.collect::<Vec<_>>() {
            if let Some(tenant) = self.card.tenants.unindexed(id) {
                tenant.unit = Some(unit);
            }
            self.keep_tenant(id);
        }
        if let Some(takeover) = &mut self.card.takeover {
            takeover.rename_units(&numbers, unit);
        }
    }

    /// Unites a tenant that the arbiter has just got to know with those that it was united with by another coordinator.
    pub(super) fn unite_again(&mut self, id: TenantId) {
        let Some(unit) = self.card.tenants.get(id).and_then(|tenant| tenant.unit) else { return };
        let others = self.card.tenants.iter().filter(|(other, tenant)| *other != id && tenant.unit == Some(unit));
        let others: Vec<TenantId> = others
            .filter(|(_, tenant)| tenant.unsettled.is_none() && tenant.connection.is_open())
            .map(|(other, _)| other)
            .collect();
        others.into_iter().for_each(|other| self.unite(id, other));
    }

    /// A tenant has pinned memory of a file. It runs with those that have pinned the same one: as a unit with those on this GPU, if there is
    /// room for all, and as a gang with those on others.
    pub(super) fn pins_file(&mut self, id: TenantId, file: FileId) {
        let Some(guest) = self.card.tenants.get(id).map(|tenant| tenant.connection.control.guest()) else { return };
        let gang = GangId { guest, number: number_of(file) };
        for (gpu, other) in self.steering.machine.pins((guest, file), (self.gpu, id)) {
            if gpu != self.gpu {
                self.is_of_one_gang(id, gang);
                self.steering.machine.post(gpu, move |server: &mut Self| server.is_of_one_gang(other, gang));
            } else if self.memory().is_believed(id, other) && self.memory().fits_with(id, other) {
                self.unite(id, other);
            }
        }
    }

    /// A tenant's gang, if it has one, is this one from now on.
    fn is_of_one_gang(&mut self, id: TenantId, gang: GangId) {
        match self.card.tenants.get(id).map(|tenant| tenant.gang) {
            Some(None) => self.is_of_gang_from_now_on(id, gang.number),
            Some(Some(before)) => self.make_one_gang(before, gang),
            None => {}
        }
        self.settle();
    }

    /// A program that was on this GPU alone runs on several from now on.
    pub(super) fn is_of_gang_from_now_on(&mut self, id: TenantId, number: u64) {
        let Some(tenant) = self.card.tenants.get_mut(id).filter(|tenant| tenant.gang.is_none() && number > 0) else {
            return;
        };
        tenant.gang = Some(GangId { guest: tenant.connection.control.guest(), number });
        self.keep_tenant(id);
        // Otherwise the arbiter hears of both at once.
        if self.card.arbiter.knows(id) {
            self.join_its_gang(id);
        }
    }

    /// Has the gangs that meet in a unit be one: each would wait for the other one's other GPUs. It is claimed anew: before, a claim may have
    /// been for another one.
    fn merge_gangs(&mut self, unit: TenantId) {
        let gangs = self.gangs_of(unit);
        let Some((first, others)) = gangs.split_first() else { return };
        others.iter().for_each(|other| self.make_one_gang(*first, *other));
        if let Some(member) = self.members_of(*first).first() {
            // In this order: the arbiter claims it at once.
            self.tell_gang_of(*member, gangs::Event::GivenBack);
            self.tell_arbiter(*member, Event::Gang(true));
        }
    }

    fn make_one_gang(&self, one: GangId, other: GangId) {
        self.steering.machine.merge(one, other, |from, into| move |server: &mut Self| server.on_merged(from, into));
    }

    /// One gang is a part of another one from now on.
    fn on_merged(&mut self, from: GangId, into: GangId) {
        let members = self.members_of(from);
        self.rename_gang(from, into);
        for id in &members {
            self.leave_gang(*id);
            self.tell_arbiter(*id, Event::Gang(false));
        }
        members.into_iter().for_each(|id| self.join_its_gang(id));
    }

    /// Has a tenant that the arbiter knows run with its gang.
    pub(super) fn join_its_gang(&mut self, id: TenantId) {
        let Some((gang, other)) = self.join_gang(id) else { return };
        self.tell_arbiter(id, Event::Gang(true));
        if let Some(tenant) = self.card.tenants.get(id) {
            baton_messages::info!(is_of_a_gang(&tenant.name, format_args!("{:x}", gang.number)));
        }
        match other {
            Some(other) => self.unite(id, other),
            // It may be united with members of another one.
            None => self.merge_gangs(id),
        }
    }
}

/// The number of the gang of those that share a file: the same on all GPUs. (By the constant of `FxHash`.)
fn number_of(file: FileId) -> u64 {
    const SPREAD: u64 = 0x51_7C_C1_B7_27_22_0A_95;
    let mixed = (file.device.wrapping_mul(SPREAD).rotate_left(5) ^ file.inode).wrapping_mul(SPREAD);
    mixed.max(1)
}
