//! How a tenant comes in: in the order in which it uses its memory, group by group, and running meanwhile.
//!
//! What is missing is put in the order that its history tells, and cut into groups by the [planner](baton_policy::planner). A
//! group is copied as one job and mapped by one message. As soon as it is known what all of it points to, and sure that
//! there are frames for everything, the arbiter hears that the tenant can run: its gate is opened while the rest
//! streams in behind, and each of its calls waits for what it needs (the shim's part of this).

use std::collections::{HashMap, VecDeque};

use baton_contract::memory::SizeClass;
use baton_contract::messages::{ExtentId, MemoryCommand};
use baton_contract::wire::MAX_DESCRIPTORS;

use super::fit::Fitted;
use super::frames::Found;
use super::transfer::{GROUP_EXTENTS, Group};
use super::{Access, Memory, MemoryEvent};
use crate::device::mover::Lane;
use crate::server::Pipeline;
use crate::server::tenants::memory::Batch;
use crate::server::tenants::peer::Sent;
use crate::server::tenants::tenant::Tenant;
use baton_books::arena::FrameId;
use baton_books::extents::{Arrived, Extent, ExtentState, Holds};
use baton_books::sizes::{PerClass, count};
use baton_policy::arbiter::{State, TenantId};
use baton_policy::planner::{Costs, Item, plan};

/// A unit that comes in: all that its tenants have, for the baton.
#[derive(Debug)]
pub(super) struct SwapIn {
    unit: TenantId,
    /// What comes now, once that is planned.
    now: Option<Coming>,
    /// Extents of its tenants that leave, or have left, so that they can be cut anew with what comes.
    leaves: HashMap<TenantId, Vec<ExtentId>>,
}

/// A tenant's memory that comes.
#[derive(Debug)]
struct Coming {
    tenant: TenantId,
    /// What is not on its way yet, in groups.
    left: VecDeque<Vec<ExtentId>>,
    /// So many of each class come in frames that are had as they are ([`super::fit`]).
    as_it_is: PerClass,
}

impl SwapIn {
    fn new(unit: TenantId) -> Self {
        Self { unit, now: None, leaves: HashMap::new() }
    }
}

/// No group is larger than this, if it is not one extent: a copy of this size is as fast as any (measured), and
/// whoever waits for its first extent waits for no more than 0.3 ms in vain.
const MOST_GROUP_BYTES: u64 = 16 << 20;

impl Memory {
    /// A unit is to be brought in. Only one is at a time: for another, the first goes back to waiting.
    pub(in crate::server) fn swap_in(&mut self, unit: TenantId) {
        self.residency.swap_in = Some(SwapIn::new(unit));
    }

    /// The unit that memory comes in for.
    pub(in crate::server) fn swapping_in(&self) -> Option<TenantId> {
        self.residency.swap_in.as_ref().map(|swap_in| swap_in.unit)
    }
}

impl Access<'_> {
    /// Whether memory comes in for a tenant.
    pub(in crate::server) fn brings_in(&self, id: TenantId) -> bool {
        self.memory.swapping_in().is_some_and(|unit| self.arbiter.are_united(unit, id))
    }

    /// That is over, or given up.
    pub(in crate::server) fn end_swap_in(&mut self, id: TenantId) {
        self.memory.residency.swap_in.take_if(|swap_in| self.arbiter.are_united(swap_in.unit, id));
    }

    /// Goes on with the arrival under way.
    pub(super) fn serve_swap_in(&mut self) {
        let Some(SwapIn { unit, now, mut leaves }) = self.memory.residency.swap_in.take() else { return };
        let is_open = |id: &TenantId| self.tenants.get(*id).is_some_and(|tenant| tenant.connection.is_open());
        let members: Vec<TenantId> = self.arbiter.members(unit).into_iter().filter(is_open).collect();
        if members.is_empty() {
            return;
        }
        match self.arbiter.state(unit) {
            State::Arriving | State::Running => {}
            // It may go on after all; until then nothing more is begun.
            State::Leaving => {
                self.memory.residency.swap_in = Some(SwapIn { unit, now, leaves });
                return;
            }
            // It has given the baton back before all was there.
            State::Idle | State::Waiting | State::Corunning => return,
        }
        for id in &members {
            let Some(tenant) = self.tenants.get(*id).filter(|tenant| tenant.memory.is_taken()) else { continue };
            if !tenant.memory.returns_in_place() {
                // It cannot come before it answers.
                return self.give_up_arrival(*id);
            }
            self.return_in_place(*id);
        }
        let mut compacts = false;
        for id in &members {
            compacts |= self.compacts(*id);
        }
        if compacts {
            self.memory.residency.swap_in = Some(SwapIn { unit, now: None, leaves });
            return;
        }
        let lacks = |id: &TenantId| self.tenants.get(*id).is_some_and(|tenant| tenant.extents().counts().missing > 0);
        // One after the other; what they have of each other comes when all else is there.
        let before = now.as_ref().map(|now| now.tenant).filter(|id| members.contains(id) && lacks(id));
        let Some(id) = before.or_else(|| members.iter().copied().find(lacks)) else {
            return self.bring_what_is_shared(unit, &members);
        };
        if self.is_undeliverable(id) {
            return self.give_up_arrival(id);
        }
        if self.leaves_first(id, &mut leaves) {
            self.memory.residency.swap_in = Some(SwapIn { unit, now: None, leaves });
            return;
        }
        let mut coming = now.filter(|now| now.tenant == id).unwrap_or_else(|| {
            self.recut(id);
            Coming { tenant: id, left: VecDeque::new(), as_it_is: PerClass::default() }
        });
        let mut lacking = 0;
        // If nothing comes as it is cut, it is cut anew.
        for (is_planned, is_again) in [(!coming.left.is_empty(), false), (false, true)] {
            if !is_planned {
                // Once something was to come, no more leaves a second time: else that could go on for ever.
                coming.as_it_is = match self.fit(id, !(is_again && leaves.contains_key(&id))) {
                    Fitted::AsItIs(as_it_is) => as_it_is,
                    Fitted::Not => PerClass::default(),
                    Fitted::Leaves(extents) => {
                        leaves.insert(id, extents);
                        self.leaves_first(id, &mut leaves);
                        self.memory.residency.swap_in = Some(SwapIn { unit, now: None, leaves });
                        return;
                    }
                };
                // Planned anew also for what was still on its way out when that was done first.
                coming.left = self.groups_of(id);
            }
            lacking = self.start_groups(id, &mut coming);
            if lacking == 0 && !self.is_anything_coming() {
                // What has not changed of one that does not answer has left at once.
                lacking = self.start_groups(id, &mut coming);
            }
            if self.is_anything_coming() || self.awaits_delivery(id) {
                break;
            }
        }
        if !self.is_anything_coming() && !self.awaits_delivery(id) && !self.part_corunners() {
            return self.give_up_arrival(id);
        }
        self.memory.residency.swap_in = Some(SwapIn { unit, now: Some(coming), leaves });
        let is_left = |tenant: &Tenant| tenant.extents().counts().left_behind > 0;
        let is_certain = lacking == 0 && !self.awaits_delivery(id) && !self.tenants.get(id).is_some_and(is_left);
        // What one of several is about to use is not known from what another one launches.
        let can_run = members.len() == 1 && self.memory.sharing.of(id).next().is_none() && !self.is_consolidating(id);
        let is_pipelined = can_run && self.memory.rules.pipeline != Pipeline::Off;
        if self.arbiter.state(id) == State::Arriving && is_certain && is_pipelined {
            self.let_it_run(id);
        }
    }

    /// All that the members have of their own is here.
    fn bring_what_is_shared(&mut self, unit: TenantId, members: &[TenantId]) {
        let mut all_here = true;
        for id in members {
            all_here &= self.bring_attachments(*id);
        }
        if !all_here && !self.is_anything_coming() && !members.iter().any(|id| self.awaits_delivery(*id)) {
            // It is of somebody who cannot bring it in any more.
            return self.give_up_arrival(members[0]);
        }
        if let Some(id) = members.iter().find(|id| self.is_undeliverable(**id)) {
            return self.give_up_arrival(*id);
        }
        self.memory.residency.swap_in = Some(SwapIn::new(unit));
        if all_here && !self.consolidate_all(members) {
            self.happened(MemoryEvent::AllHere(unit));
        }
    }

    /// What is missing of a tenant does not come now.
    fn give_up_arrival(&mut self, id: TenantId) {
        if self.arbiter.state(id) == State::Running {
            // Should its work not end now, it goes on, and then the rest has to come after all.
            self.memory.residency.swap_in = Some(SwapIn::new(id));
            return self.happened(MemoryEvent::Stranded(id));
        }
        self.happened(MemoryEvent::CannotArrive(id));
    }

    /// Starts what there are frames for; makes others leave for the rest. Says how many bytes there will be no frames for.
    fn start_groups(&mut self, id: TenantId, coming: &mut Coming) -> u64 {
        let (mut soon, mut missing, mut missing_as_it_is) =
            (PerClass::default(), PerClass::default(), PerClass::default());
        // Whatever was in a frame, all of it is overwritten; a poisoned one shows if not.
        let clean = self.memory.frames.is_poisoned();
        let owner = self.owner_of(id);
        let groups = std::mem::take(&mut coming.left);
        let mut others = self.reserve_at_hand(id, &groups, &mut coming.as_it_is);
        for extents in groups {
            let mut waiting = Vec::new();
            let mut ready = Vec::new();
            for extent in extents {
                let entry = self.tenants.get(id).and_then(|tenant| tenant.extents().get(extent));
                match entry.map(|entry| (entry.state(), entry.class(), entry.has_zeros())) {
                    Some((ExtentState::Reserved { .. }, _, _)) => ready.push(extent),
                    Some((ExtentState::Host, class, _)) if others[class.index()] == 0 => {
                        missing_as_it_is[class.index()] += 1;
                        waiting.push(extent);
                    }
                    Some((ExtentState::Host, class, has_zeros)) => {
                        others[class.index()] -= 1;
                        // A frame of zeros, if there is one, saves writing them: a kernel of ours would take turns with
                        // the tenant's.
                        let zeroed = if has_zeros { self.memory.frames.take(class, true, owner) } else { None };
                        match zeroed
                            .map_or_else(|| self.memory.frames.find(class, clean, owner, &mut soon), Found::Frame)
                        {
                            Found::Frame(frame) => {
                                let holds = if zeroed.is_some() { Holds::Zeros } else { Holds::Nothing };
                                self.reserve(id, extent, frame, holds);
                                ready.push(extent);
                            }
                            Found::Soon => waiting.push(extent),
                            Found::None => {
                                missing[class.index()] += 1;
                                waiting.push(extent);
                            }
                        }
                    }
                    _ => {}
                }
            }
            self.tell_reserved(id);
            self.start_copies(id, &ready);
            if !waiting.is_empty() {
                coming.left.push_back(waiting);
            }
        }
        self.evict_for(missing, missing_as_it_is, id)
    }

    /// Gives extents that are to come what is there for them already. Says how many of each class may have any frame beside those that
    /// are to come as they are.
    fn reserve_at_hand(&mut self, id: TenantId, groups: &VecDeque<Vec<ExtentId>>, as_it_is: &mut PerClass) -> PerClass {
        let (clean, owner) = (self.memory.frames.is_poisoned(), self.owner_of(id));
        let class_of = |access: &Self, extent| {
            let entry = access.tenants.get(id)?.extents().get(extent)?;
            (entry.state() == ExtentState::Host).then(|| entry.class())
        };
        let mut others = count(groups.iter().flatten().filter_map(|extent| class_of(self, *extent)));
        others.iter_mut().zip(as_it_is.iter_mut()).for_each(|(all, part)| {
            *part = (*part).min(*all);
            *all -= *part;
        });
        // Before any frame is looked for: else one extent would take what is kept for the next.
        for extent in groups.iter().flatten() {
            let Some(class) = class_of(self, *extent) else { continue };
            let others = &mut others[class.index()];
            *others -= usize::from(*others > 0 && self.reserve_kept(id, *extent));
        }
        for extent in groups.iter().flatten() {
            let Some(class) = class_of(self, *extent).filter(|class| as_it_is[class.index()] > 0) else { continue };
            if let Some(frame) = self.memory.frames.take_held(class, clean, owner) {
                as_it_is[class.index()] -= 1;
                self.reserve(id, *extent, frame, Holds::Nothing);
            } else if clean {
                // It is clean the next time.
                self.memory.frames.scrub_held(class, owner);
            }
        }
        // One that is clean would be given up for another size, and made and overwritten again for want of it, for ever.
        for extent in groups.iter().flatten().filter(|_| clean) {
            let Some(class) = class_of(self, *extent).filter(|class| others[class.index()] > 0) else { continue };
            if let Some(frame) = self.memory.frames.take(class, clean, owner) {
                others[class.index()] -= 1;
                self.reserve(id, *extent, frame, Holds::Nothing);
            }
        }
        others
    }

    /// Gives an extent that is in the pool a frame. The tenant hears of it by [`Access::tell_reserved`].
    pub(super) fn reserve(&mut self, id: TenantId, extent: ExtentId, frame: FrameId, holds: Holds) {
        // Clean ones are poisoned.
        let holds = if holds == Holds::Zeros && self.memory.frames.is_poisoned() { Holds::Nothing } else { holds };
        if !self.tenants.extents(id).is_some_and(|mut extents| extents.reserve(extent, frame, holds)) {
            return self.memory.frames.give_back(frame);
        }
        if let Some(tenant) = self.tenants.get_mut(id) {
            tenant.memory.reserved.push(extent);
        }
    }

    /// Gives an extent the frame back that it has left last, if nobody else has needed it since: then nothing has to be copied.
    pub(super) fn reserve_kept(&mut self, id: TenantId, extent: ExtentId) -> bool {
        let entry = self.tenants.get(id).and_then(|tenant| tenant.extents().get(extent));
        let Some((frame, keepsake)) = entry.and_then(Extent::kept) else { return false };
        let is_kept = self.memory.frames.take_kept(frame, keepsake);
        if is_kept {
            self.reserve(id, extent, frame, Holds::Contents);
        }
        is_kept
    }

    /// Has the tenant put the new frames behind its extents.
    pub(super) fn tell_reserved(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        let reserved = std::mem::take(&mut tenant.memory.reserved);
        self.send_frames(id, &reserved, MAX_DESCRIPTORS);
    }

    /// Sends a tenant the frames that are reserved for these extents, so many in a message.
    pub(super) fn send_frames(&mut self, id: TenantId, extents: &[ExtentId], at_once: usize) {
        for extents in extents.chunks(at_once) {
            let frames: Vec<FrameId> = extents.iter().filter_map(|extent| self.frame_to_send(id, *extent)).collect();
            let Some(tenant) = self.tenants.get_mut(id) else { return };
            let descriptors: Vec<Sent> =
                frames.into_iter().filter_map(|frame| self.memory.frames.descriptor(frame)).collect();
            let batch = tenant.memory.add_batch(Batch::Prepare(extents.to_vec()));
            let message = MemoryCommand::Prepare { batch, extents: extents.to_vec() };
            self.tenants.tell_with(id, &message, &descriptors);
        }
    }

    /// Starts the copies into reserved frames, as one job or, if there are very many, several.
    pub(super) fn start_copies(&mut self, id: TenantId, extents: &[ExtentId]) {
        let mut job = Group::default();
        for extent in extents {
            self.start_arrival(id, *extent, &mut job);
            if job.extents.len() >= GROUP_EXTENTS {
                self.submit(Lane::In, id, std::mem::take(&mut job));
            }
        }
        self.submit(Lane::In, id, job);
    }

    fn start_arrival(&mut self, id: TenantId, extent: ExtentId, job: &mut Group) {
        let Some(mut extents) = self.tenants.extents(id) else { return };
        let Some((frame, holds)) = extents.arrive(extent) else { return };
        let Some(entry) = extents.get(extent) else { return };
        let address = self.memory.frames.memory(frame).map_or(0, |memory| memory.address);
        let (arrival, runs) = (entry.arrival(), entry.runs().unwrap_or_default());
        job.extents.push(extent);
        job.whole += entry.class().bytes();
        if holds == Holds::Contents {
            return;
        }
        for part in arrival.copied {
            job.add_part(address, runs, part, |run| self.memory.host.address(run));
        }
        for part in arrival.zeros {
            job.zeros += part.end - part.start;
            if holds != Holds::Zeros {
                job.add_zeros(address, part);
            }
        }
    }

    /// What is missing of a tenant, in the order in which it will be used.
    pub(super) fn order_of(&self, id: TenantId) -> Vec<(ExtentId, SizeClass)> {
        let Some(tenant) = self.tenants.get(id) else { return Vec::new() };
        let can_come = |extent: &Extent| extent.state().can_come() && extent.left_behind().is_none();
        let missing = tenant.extents().iter().filter(|(_, extent)| can_come(extent));
        let mut wanted: Vec<(ExtentId, SizeClass)> = missing.map(|(id, extent)| (id, extent.class())).collect();
        tenant.memory.history.order(&mut wanted, |(id, _)| *id);
        wanted
    }

    /// The same, in groups.
    fn groups_of(&self, id: TenantId) -> VecDeque<Vec<ExtentId>> {
        self.in_groups(id, &self.order_of(id))
    }

    /// Extents that are to come in this order, in groups.
    pub(super) fn in_groups(&self, id: TenantId, wanted: &[(ExtentId, SizeClass)]) -> VecDeque<Vec<ExtentId>> {
        let Some(tenant) = self.tenants.get(id) else { return VecDeque::new() };
        let items: Vec<Item> = wanted
            .iter()
            .map(|(id, class)| Item {
                bytes: if tenant.extents().get(*id).is_some_and(Extent::is_in_frame) { 0 } else { class.bytes() },
                extents: 1,
                first_use: tenant.memory.history.first_use(*id).unwrap_or(u64::MAX),
            })
            .collect();
        let ends = match self.memory.rules.pipeline {
            Pipeline::One => vec![wanted.len()],
            Pipeline::Extents => (1..=wanted.len()).collect(),
            Pipeline::Groups | Pipeline::Off => self.ends(&items),
        };
        let mut groups = VecDeque::new();
        let mut start = 0;
        for end in ends {
            groups.push_back(wanted[start..end].iter().map(|(id, _)| *id).collect());
            start = end;
        }
        groups
    }

    /// Where groups end. The plan's are cut finer where they are larger than a copy needs to be for full speed: the
    /// program's own clock, by which they were planned, knows nothing of what the GPU does meanwhile.
    fn ends(&self, items: &[Item]) -> Vec<usize> {
        let costs = self.costs();
        let mut ends = plan(items, &costs).ends;
        let (mut bytes, mut extents) = (0, 0);
        for (at, item) in items.iter().enumerate() {
            if bytes + item.bytes > MOST_GROUP_BYTES || extents == GROUP_EXTENTS {
                ends.push(at);
                (bytes, extents) = (0, 0);
            }
            bytes += item.bytes;
            extents += 1;
        }
        ends.sort_unstable();
        ends.dedup();
        ends.retain(|end| *end > 0);
        ends
    }

    fn costs(&self) -> Costs {
        self.costs.costs()
    }

    /// Lets the tenant run before all is there, if everything that it may reach is known.
    fn let_it_run(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get(id).filter(|tenant| !tenant.preemption.is_under_way()) else { return };
        if tenant.extents().counts().unread > 0 {
            // Part of it stayed when it was last here, and was used since the last look.
            if tenant.memory.scan.is_none() {
                self.scan(id, &[]);
            }
            return;
        }
        if self.tell_pointers(id) {
            self.happened(MemoryEvent::Ready(id));
        }
    }

    /// Contents have arrived: the tenant may map them.
    pub(super) fn arrived(&mut self, id: TenantId, extents: Vec<ExtentId>) {
        let Some(mut own) = self.tenants.extents(id) else { return };
        let (mut came, mut in_place) = (Vec::new(), Vec::new());
        for extent in extents {
            match own.arrived(extent) {
                Arrived::Map => came.push(extent),
                Arrived::InPlace(frame) => in_place.push(frame),
                Arrived::Lost => {}
            }
        }
        drop(own);
        in_place.into_iter().for_each(|frame| self.memory.frames.unhold(frame));
        self.map(id, came);
    }

    /// Has the tenant give access to extents whose contents are there.
    pub(super) fn map(&mut self, id: TenantId, extents: Vec<ExtentId>) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        if extents.is_empty() || !tenant.connection.is_open() {
            return;
        }
        let batch = tenant.memory.add_batch(Batch::Map(extents.clone()));
        self.tenants.tell(id, &MemoryCommand::Map { batch, extents });
    }

    /// The tenant has mapped them.
    pub(super) fn mapped(&mut self, id: TenantId, extents: Vec<ExtentId>) {
        let may_write = !self.is_off_the_gpu(id);
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        // Before it has closed its gate it may have used it already.
        let may_write = may_write || tenant.turn.is_overdue() || tenant.preemption.is_gate_open();
        let Some(mut own) = self.tenants.extents(id) else { return };
        for extent in extents {
            own.mapped(extent, may_write);
        }
    }
}
