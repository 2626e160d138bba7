//! Swapping a tenant in: in the order in which it uses its memory, group by group, while it already runs.
//!
//! Missing extents are sorted in the order of the tenant's history, and cut into groups by the [planner](baton_policy::planner). A
//! group is copied as one job and mapped by one message. As soon as all pointers in the memory are known, and there are certainly
//! frames for everything, the arbiter hears that the tenant can run. Its gate is opened while the rest streams in behind, and each
//! of its calls waits for the memory that it needs (the shim's part of this).

use std::collections::{HashMap, HashSet, VecDeque};

use baton_contract::messages::ExtentId;

use super::events::MemoryEvent;
use super::fit::Fitted;
use super::frames::{Found, Promised};
use super::ground::Ground;
use super::residency::{Coming, Residency, SwapIn};
use crate::server::tenants::tenant::Tenant;
use baton_books::arena::FrameId;
use baton_books::extents::{ExtentState, Holds};
use baton_books::sizes::{PerClass, count};
use baton_policy::arbiter::{State, TenantId};
use baton_policy::arrival::Pipeline;

impl Ground<'_> {
    /// Lets the tenant run before all is there, if everything that it may reach is known.
    fn let_it_run(&mut self, id: TenantId) {
        let Some(tenant) = self.tenants.get(id).filter(|tenant| !tenant.preemption.is_under_way()) else { return };
        if tenant.extents().counts().unread > 0 {
            // Part of its memory stayed when it was last here, and was used since the last scan.
            if tenant.memory.scan.is_none() {
                self.scan(id, &[]);
            }
            return;
        }
        if self.tell_pointers(id) {
            self.raise(MemoryEvent::Ready(id));
        }
    }

    /// Reserves the frames that already exist for extents that are to come. Returns how many extents of each class may have any
    /// frame, not counting those that come as they are.
    fn reserve_at_hand(&mut self, id: TenantId, groups: &VecDeque<Vec<ExtentId>>, as_it_is: &mut PerClass) -> PerClass {
        let (clean, owner) = (self.store.frames.is_poisoned(), self.owner_of(id));
        let class_of = |ground: &Self, extent| {
            let entry = ground.tenants.get(id)?.extents().get(extent)?;
            (entry.state() == ExtentState::Host).then(|| entry.class())
        };
        let mut others = count(groups.iter().flatten().filter_map(|extent| class_of(self, *extent)));
        others.iter_mut().zip(as_it_is.iter_mut()).for_each(|(all, part)| {
            *part = (*part).min(*all);
            *all -= *part;
        });
        // Kept frames come before any search: otherwise one extent would take a frame kept for the next.
        for extent in groups.iter().flatten() {
            let Some(class) = class_of(self, *extent) else { continue };
            let others = &mut others[class.index()];
            *others -= usize::from(*others > 0 && self.reserve_kept(id, *extent));
        }
        for extent in groups.iter().flatten() {
            let Some(class) = class_of(self, *extent).filter(|class| as_it_is[class.index()] > 0) else { continue };
            if let Some(frame) = self.store.frames.take_held(class, clean, owner) {
                as_it_is[class.index()] -= 1;
                self.reserve(id, *extent, frame, Holds::Nothing);
            } else if clean {
                // The frame is clean the next time.
                self.store.frames.scrub_held(class, owner);
            }
        }
        // Otherwise a clean frame would be given up for another size, then made and overwritten again because it is missing, for
        // ever.
        for extent in groups.iter().flatten().filter(|_| clean) {
            let Some(class) = class_of(self, *extent).filter(|class| others[class.index()] > 0) else { continue };
            if let Some(frame) = self.store.frames.take(class, clean, owner) {
                others[class.index()] -= 1;
                self.reserve(id, *extent, frame, Holds::Nothing);
            }
        }
        others
    }
}

impl Residency {
    /// Continues the swap-in under way.
    pub(super) fn serve_swap_in(&mut self, ground: &mut Ground<'_>) {
        let Some(SwapIn { unit, now, mut leaves }) = self.swap_in.take() else { return };
        let is_open = |id: &TenantId| ground.tenants.get(*id).is_some_and(|tenant| tenant.connection.is_open());
        let members: Vec<TenantId> = ground.arbiter.members(unit).into_iter().filter(is_open).collect();
        if members.is_empty() {
            return;
        }
        match ground.arbiter.state(unit) {
            State::Arriving | State::Running => {}
            // The unit may go on after all; until then no more work is begun.
            State::Leaving => {
                self.swap_in = Some(SwapIn { unit, now, leaves });
                return;
            }
            // It has given the baton back before all was there.
            State::Idle | State::Waiting | State::Corunning => return,
        }
        for id in &members {
            let Some(tenant) = ground.tenants.get(*id).filter(|tenant| tenant.memory.is_taken()) else { continue };
            if !tenant.memory.returns_in_place() {
                // It cannot come before it answers.
                return self.give_up_arrival(ground, *id);
            }
            self.return_in_place(ground, *id);
        }
        let mut owns_all = true;
        for id in &members {
            owns_all &= ground.own_all_it_reaches(*id);
        }
        if !owns_all {
            if !ground.is_anything_coming() && !ground.part_corunners() {
                return self.give_up_arrival(ground, unit);
            }
            self.swap_in = Some(SwapIn { unit, now: None, leaves });
            return;
        }
        let mut compacts = false;
        for id in &members {
            compacts |= self.compacts(ground, *id);
        }
        if compacts {
            self.swap_in = Some(SwapIn { unit, now: None, leaves });
            return;
        }
        let lacks = |id: &TenantId| ground.tenants.get(*id).is_some_and(|tenant| tenant.extents().counts().missing > 0);
        // The members come one after the other; memory that they share comes when all else is there.
        let before = now.as_ref().map(|now| now.tenant).filter(|id| members.contains(id) && lacks(id));
        let Some(id) = before.or_else(|| members.iter().copied().find(lacks)) else {
            return self.bring_what_is_shared(ground, unit, &members);
        };
        if ground.is_undeliverable(id) {
            return self.give_up_arrival(ground, id);
        }
        if self.leaves_first(ground, id, &mut leaves) {
            self.swap_in = Some(SwapIn { unit, now: None, leaves });
            return;
        }
        let mut coming = now.filter(|now| now.tenant == id).unwrap_or_else(|| {
            self.recut(ground, id);
            Coming { tenant: id, left: VecDeque::new(), as_it_is: PerClass::default() }
        });
        let mut lacking = 0;
        // If no memory comes with the current cut, it is cut anew.
        for (is_planned, is_again) in [(!coming.left.is_empty(), false), (false, true)] {
            if !is_planned {
                // Extents make way only once: otherwise this could go on for ever.
                coming.as_it_is = match self.fit(ground, id, !(is_again && leaves.contains_key(&id))) {
                    Fitted::AsItIs(as_it_is) => as_it_is,
                    Fitted::Not => PerClass::default(),
                    Fitted::Leaves(extents) => {
                        leaves.insert(id, extents);
                        self.leaves_first(ground, id, &mut leaves);
                        self.swap_in = Some(SwapIn { unit, now: None, leaves });
                        return;
                    }
                };
                // The new plan also covers extents that were still on their way out at the first one.
                coming.left = ground.groups_of(id);
            }
            lacking = self.start_groups(ground, id, &mut coming);
            if lacking == 0 && !ground.is_anything_coming() {
                // Unchanged extents of an unresponsive tenant have left at once.
                lacking = self.start_groups(ground, id, &mut coming);
            }
            if ground.is_anything_coming() || ground.awaits_delivery(id) {
                break;
            }
        }
        if !ground.is_anything_coming() && !ground.awaits_delivery(id) && !ground.part_corunners() {
            return self.give_up_arrival(ground, id);
        }
        self.swap_in = Some(SwapIn { unit, now: Some(coming), leaves });
        let is_left = |tenant: &Tenant| tenant.extents().counts().left_behind > 0;
        let is_certain = lacking == 0 && !ground.awaits_delivery(id) && !ground.tenants.get(id).is_some_and(is_left);
        // The launches of one member do not tell which memory another member is about to use.
        let can_run =
            members.len() == 1 && ground.store.sharing.of(id).next().is_none() && !ground.is_consolidating(id);
        let is_pipelined = can_run && ground.store.rules.pipeline != Pipeline::Off;
        if ground.arbiter.state(id) == State::Arriving && is_certain && is_pipelined {
            ground.let_it_run(id);
        }
    }

    /// Brings in the memory that members share, once all their own memory is here.
    fn bring_what_is_shared(&mut self, ground: &mut Ground<'_>, unit: TenantId, members: &[TenantId]) {
        let mut all_here = true;
        for id in members {
            all_here &= ground.bring_attachments(*id);
        }
        if !all_here && !ground.is_anything_coming() && !members.iter().any(|id| ground.awaits_delivery(*id)) {
            // The memory belongs to a tenant that can no longer bring it in.
            return self.give_up_arrival(ground, members[0]);
        }
        if let Some(id) = members.iter().find(|id| ground.is_undeliverable(**id)) {
            return self.give_up_arrival(ground, *id);
        }
        self.swap_in = Some(SwapIn::new(unit));
        if all_here && !ground.consolidate_all(members) {
            ground.raise(MemoryEvent::AllHere(unit));
        }
    }

    /// Gives up a tenant's arrival because its missing memory cannot come now.
    fn give_up_arrival(&mut self, ground: &mut Ground<'_>, id: TenantId) {
        if ground.arbiter.state(id) == State::Running {
            // Should its work not end now, it goes on, and then the rest has to come after all.
            self.swap_in = Some(SwapIn::new(id));
            return ground.raise(MemoryEvent::Stranded(id));
        }
        ground.raise(MemoryEvent::CannotArrive(id));
    }

    /// Starts the groups for which there are frames, and makes other extents leave for the rest. Returns the bytes for which there
    /// will be no frames.
    fn start_groups(&mut self, ground: &mut Ground<'_>, id: TenantId, coming: &mut Coming) -> u64 {
        let (mut promised, mut missing, mut missing_as_it_is) =
            (Promised::default(), PerClass::default(), PerClass::default());
        // A frame is overwritten completely, for any contents; poison shows if it is not.
        let clean = ground.store.frames.is_poisoned();
        let owner = ground.owner_of(id);
        let groups = std::mem::take(&mut coming.left);
        let mut others = ground.reserve_at_hand(id, &groups, &mut coming.as_it_is);
        for extents in groups {
            let mut waiting = Vec::new();
            let mut ready = Vec::new();
            for extent in extents {
                let entry = ground.tenants.get(id).and_then(|tenant| tenant.extents().get(extent));
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
                        let zeroed = if has_zeros { ground.store.frames.take(class, true, owner) } else { None };
                        match zeroed
                            .map_or_else(|| ground.store.frames.find(class, clean, owner, &mut promised), Found::Frame)
                        {
                            Found::Frame(frame) => {
                                let holds = if zeroed.is_some() { Holds::Zeros } else { Holds::Nothing };
                                ground.reserve(id, extent, frame, holds);
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
            ground.tell_reserved(id);
            ground.start_copies(id, &ready);
            if !waiting.is_empty() {
                coming.left.push_back(waiting);
            }
        }
        self.evict_for(ground, missing, missing_as_it_is, id)
    }

    /// Brings a tenant's taken memory back to where it was. The tenant is arriving, so others are off the GPU, or leave it.
    pub(super) fn return_in_place(&mut self, ground: &mut Ground<'_>, id: TenantId) {
        let Some(tenant) = ground.tenants.get(id) else { return };
        let away = tenant.extents().iter().filter(|(_, extent)| extent.state() == ExtentState::Host);
        let away: Vec<(ExtentId, FrameId)> =
            away.filter_map(|(number, extent)| Some((number, extent.left_behind()?))).collect();
        if away.is_empty() {
            return;
        }
        let (mut ready, mut lent) = (Vec::new(), HashSet::new());
        for (extent, frame) in away {
            let kept = ground.tenants.get(id).and_then(|tenant| tenant.extents().get(extent)?.kept());
            let holds = match kept {
                Some((kept, keepsake)) if kept == frame && ground.store.frames.take_kept(frame, keepsake) => {
                    Holds::Contents
                }
                _ if ground.store.frames.take_this(frame) => Holds::Nothing,
                _ => {
                    lent.insert(frame);
                    continue;
                }
            };
            if ground.tenants.extents(id).is_some_and(|mut own| own.reserve_in_place(extent, holds)) {
                ready.push(extent);
            }
        }
        log::debug!("{id:?} returns in place: {} extents come, others leave {}", ready.len(), lent.len());
        ground.start_copies(id, &ready);
        if lent.is_empty() {
            return;
        }
        // The tenants that have these frames now leave them.
        let mut theirs: HashMap<TenantId, Vec<ExtentId>> = HashMap::new();
        for (other, tenant) in ground.tenants.iter().filter(|(other, _)| *other != id) {
            for (extent, entry) in tenant.extents().iter() {
                if entry.state().frame().is_some_and(|frame| lent.contains(&frame)) {
                    theirs.entry(other).or_default().push(extent);
                }
            }
        }
        for (other, extents) in theirs {
            self.make_leave(ground, other, extents);
        }
    }
}
