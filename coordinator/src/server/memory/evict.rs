//! Memory that leaves: of tenants that are off the GPU, just as much as is needed; of idle tenants before waiting ones, of less
//! urgent ones first, of those that ran longest ago first.
//!
//! An eviction's copy and its unmapping run at the same time; the frame is free when both are done. What has not
//! changed since it came in is not copied ([`super::scan`]).

use baton_contract::memory::SizeClass;
use baton_contract::messages::{ExtentId, MAX_LISTED, MemoryCommand};

use super::Access;
use super::frames::SCRUB_BYTES;
use super::transfer::Group;
use crate::device::mover::Lane;
use crate::server::tenants::memory::Batch;
use crate::server::tenants::tenant::Tenant;
use baton_books::extents::{Copies, Extent, ExtentState, Half, Holds};
use baton_books::pool::Run;
use baton_books::sizes::{PerClass, bytes_of, subtract};
use baton_policy::arbiter::TenantId;

/// What became of a tenant's eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Evicted {
    /// All that can move has left.
    Done,
    UnderWay,
    /// There is no room for it in the pool.
    NoRoom,
}

/// What of others is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// What is of the classes that are missing.
    SameClass,
    /// Anything: it is exchanged for these.
    AnyClass,
    /// What cannot be exchanged, of these classes.
    AsItIs,
}

/// What became of an extent that is to leave.
enum Leaves {
    Now,
    /// Its contents have to be looked at first.
    Soon,
    /// There is no room for it in the pool.
    NoRoom,
}

impl Wanted {
    /// Whether a frame does, of a tenant of the same owner or not, that can be exchanged or not.
    fn does(self, is_its_owner: bool, can_be_exchanged: bool) -> bool {
        match self {
            Self::SameClass => is_its_owner || can_be_exchanged,
            Self::AnyClass => can_be_exchanged,
            Self::AsItIs => is_its_owner && !can_be_exchanged,
        }
    }
}

impl Access<'_> {
    /// Makes all of a tenant go that can move. It is off the GPU.
    pub(in crate::server) fn evict_all(&mut self, id: TenantId) -> Evicted {
        let Some(tenant) = self.tenants.get(id) else { return Evicted::Done };
        let counts = tenant.extents().counts();
        if counts.here() == counts.immovable {
            return Evicted::Done;
        }
        let mut all = PerClass::default();
        let movable = tenant.extents().iter().filter(|(_, extent)| !extent.is_immovable());
        movable.for_each(|(_, extent)| all[extent.class().index()] += 1);
        self.evict_from(id, &mut all, Wanted::AnyClass, id);
        if self.is_anything_coming() { Evicted::UnderWay } else { Evicted::NoRoom }
    }

    /// Makes these extents of a tenant go, which is off the GPU, as far as they can move and are not on their way.
    pub(super) fn evict_these(&mut self, id: TenantId, mut extents: Vec<ExtentId>) -> Evicted {
        let Some(tenant) = self.tenants.get(id).filter(|_| !extents.is_empty()) else { return Evicted::Done };
        extents.retain(|extent| {
            tenant.extents().get(*extent).is_some_and(Extent::is_evictable) && self.is_let_go(id, *extent)
        });
        self.send_out(id, &extents, id);
        if self.is_anything_coming() { Evicted::UnderWay } else { Evicted::NoRoom }
    }

    /// Makes extents of others go: for frames of any kind, and for some that are had as they are. Says how many bytes are still missing
    /// then.
    pub(super) fn evict_for(&mut self, missing: PerClass, as_it_is: PerClass, except: TenantId) -> u64 {
        let lacking = if bytes_of(&as_it_is) > 0 { self.evict_as_it_is(as_it_is, except) } else { 0 };
        lacking + if bytes_of(&missing) > 0 { self.evict(missing, except) } else { 0 }
    }

    /// Makes extents of others go, until as many of each class are on their way out as are missing, or, where
    /// there are not so many, as many bytes. Says how many bytes are still missing then.
    pub(super) fn evict(&mut self, mut missing: PerClass, except: TenantId) -> u64 {
        // Of who does not answer, nothing can be expected.
        let (leaving, owner): (Vec<TenantId>, _) = (self.tenants.index().leaving().collect(), self.owner_of(except));
        for (id, tenant) in leaving.into_iter().filter_map(|id| Some((id, self.tenants.get(id)?))) {
            if !tenant.is_movable() || tenant.memory.is_late() {
                continue;
            }
            for (class, count) in SizeClass::ALL.into_iter().zip(tenant.extents().counts().leaving) {
                match tenant.memory.is_taken() {
                    false => subtract(&mut missing, class, count),
                    true if self.owner_of(id) == owner => {
                        let missing = &mut missing[class.index()];
                        *missing = missing.saturating_sub(count);
                    }
                    true => {}
                }
            }
        }
        if bytes_of(&missing) == 0 {
            return 0;
        }
        for wanted in [Wanted::SameClass, Wanted::AnyClass] {
            self.take_reserved(&mut missing, wanted, except);
        }
        if bytes_of(&missing) == 0 {
            return 0;
        }
        // Frames of the wrong size, or of another owner, do as well, but have to be exchanged for others first.
        for wanted in [Wanted::SameClass, Wanted::AnyClass] {
            self.evict_from_all(&mut missing, wanted, except);
        }
        bytes_of(&missing)
    }

    /// The same with what can be had only as it is, of these classes.
    fn evict_as_it_is(&mut self, mut missing: PerClass, except: TenantId) -> u64 {
        let owner = self.owner_of(except);
        for class in SizeClass::ALL {
            let comes = self.memory.frames.arena().scrubbing_held(class, owner);
            missing[class.index()] = missing[class.index()].saturating_sub(comes);
        }
        if bytes_of(&missing) == 0 {
            return 0;
        }
        let leaving: Vec<TenantId> = self.tenants.index().leaving().collect();
        for id in leaving {
            let Some(tenant) = self.tenants.get(id).filter(|tenant| !tenant.memory.is_late()) else { continue };
            let leaves = |extent: &Extent| matches!(extent.state(), ExtentState::Leaving { .. });
            if self.owner_of(id) == owner && tenant.is_movable() {
                let leaving = tenant.extents().iter().filter(|(_, extent)| leaves(extent));
                for (_, extent) in leaving.filter(|(_, extent)| !self.can_be_exchanged(tenant, extent)) {
                    let missing = &mut missing[extent.class().index()];
                    *missing = missing.saturating_sub(1);
                }
            }
        }
        self.take_reserved(&mut missing, Wanted::AsItIs, except);
        self.evict_from_all(&mut missing, Wanted::AsItIs, except);
        bytes_of(&missing)
    }

    /// Makes what is wanted of others go, until as much is on its way as is missing.
    fn evict_from_all(&mut self, missing: &mut PerClass, wanted: Wanted, except: TenantId) {
        let owner = self.owner_of(except);
        let mut last = None;
        while bytes_of(missing) > 0
            && let Some(victim) = self.tenants.index().victim_after(last)
        {
            last = Some(victim);
            let id = victim.1;
            let is_its_owner = self.owner_of(id) == owner;
            let has_any = |tenant: &Tenant| {
                let evictable = &tenant.extents().counts().evictable;
                let has_class = || evictable.iter().zip(&*missing).any(|(has, lacks)| *has.min(lacks) > 0);
                // What is taken cannot be exchanged.
                let does = match wanted {
                    Wanted::SameClass => has_class() && (is_its_owner || !tenant.memory.is_taken()),
                    Wanted::AnyClass => !tenant.memory.is_taken(),
                    Wanted::AsItIs => has_class() && is_its_owner,
                };
                does && !tenant.memory.is_late()
            };
            if !self.arbiter.are_united(id, except)
                && self.is_off_the_gpu(id)
                && self.tenants.get(id).is_some_and(has_any)
            {
                self.evict_from(id, missing, wanted, except);
            }
        }
    }

    /// Takes frames back that were reserved for tenants which are not on the GPU: nothing has to be copied for that.
    pub(super) fn take_reserved(&mut self, missing: &mut PerClass, wanted: Wanted, except: TenantId) {
        let (ids, owner) = (self.tenants.index().reserved(), self.owner_of(except));
        for id in ids.into_iter().filter(|id| !self.arbiter.are_united(*id, except)) {
            let Some(tenant) = self.tenants.get(id).filter(|tenant| tenant.is_evictable()) else { continue };
            if !self.is_off_the_gpu(id) {
                continue;
            }
            let is_its_owner = self.owner_of(id) == owner;
            let does = |extent: &Extent| {
                let is_reserved = matches!(extent.state(), ExtentState::Reserved { .. });
                is_reserved && wanted.does(is_its_owner, self.can_be_exchanged(tenant, extent))
            };
            // What is used last goes first here too: it was reserved last.
            let reserved = tenant.extents().iter().rev().filter(|(_, extent)| does(extent));
            let reserved: Vec<(ExtentId, SizeClass)> = reserved.map(|(id, extent)| (id, extent.class())).collect();
            let mut group = Group::default();
            let Some(mut extents) = self.tenants.extents(id) else { continue };
            for (extent, class) in reserved {
                if bytes_of(missing) == 0 || (wanted != Wanted::AnyClass && missing[class.index()] == 0) {
                    continue;
                }
                if extents.give_up_reserved(extent) {
                    group.leaving.push(extent);
                    subtract(missing, class, 1);
                }
            }
            drop(extents);
            self.submit_leaving(id, group);
        }
    }

    /// Whether nobody else has it, and no copy of it is being made.
    pub(super) fn is_let_go(&self, id: TenantId, extent: ExtentId) -> bool {
        let is_taken = |tenant: &Tenant| tenant.memory.is_taken() && self.memory.sharing.is_shared((id, extent));
        // What a tenant shares that does not answer stays: others have it too.
        self.is_let_go_by_others(id, extent)
            && !self.is_consolidated(id, extent)
            && !self.tenants.get(id).is_some_and(is_taken)
    }

    fn evict_from(&mut self, victim: TenantId, missing: &mut PerClass, wanted: Wanted, except: TenantId) {
        // What is used last goes first: what stays can be used at once when the tenant runs again. Before all else goes what holds zeros:
        // it is not copied, neither out nor in.
        let tenant = &self.tenants[victim];
        let is_its_owner = self.owner_of(victim) == self.owner_of(except);
        let can_go = |id: ExtentId, extent: &Extent| {
            let does = victim == except || wanted.does(is_its_owner, self.can_be_exchanged(tenant, extent));
            does && extent.is_evictable() && self.is_let_go(victim, id)
        };
        let resident = |(id, extent): (ExtentId, &Extent)| can_go(id, extent).then_some((id, extent.class()));
        let mut order: Vec<(ExtentId, SizeClass)> = tenant.extents().iter().filter_map(resident).collect();
        tenant.memory.history.order(&mut order, |(id, _)| *id);
        order.sort_by_key(|(id, _)| tenant.extents().get(*id).is_some_and(Extent::was_zero));
        let (mut chosen, mut classes, mut lacking) = (Vec::new(), Vec::new(), *missing);
        for (extent, class) in order.into_iter().rev() {
            if wanted != Wanted::AnyClass && lacking[class.index()] == 0 {
                continue;
            }
            if bytes_of(&lacking) == 0 {
                break;
            }
            subtract(&mut lacking, class, 1);
            chosen.push(extent);
            classes.push(class);
        }
        let count = self.send_out(victim, &chosen, except);
        classes[..count].iter().for_each(|class| subtract(missing, *class, 1));
    }

    /// Sends extents on their way out, in this order, until there is no room for one. Says how many leave, now or soon.
    fn send_out(&mut self, id: TenantId, extents: &[ExtentId], except: TenantId) -> usize {
        if !self.memory.rules.hash {
            // Nothing waits for that, but what its memory points to has to be known when it comes again.
            self.scan(id, extents);
        }
        let mut group = Group::default();
        let mut count = 0;
        for extent in extents {
            match self.start_leaving(id, *extent, except, &mut group) {
                Leaves::Now => {}
                Leaves::Soon => self.scan(id, extents),
                Leaves::NoRoom => break,
            }
            count += 1;
            if group.is_full() {
                self.submit_leaving(id, std::mem::take(&mut group));
            }
        }
        self.submit_leaving(id, group);
        count
    }

    /// Sends one extent on its way out.
    fn start_leaving(&mut self, id: TenantId, extent: ExtentId, except: TenantId, group: &mut Group) -> Leaves {
        let Some(entry) = self.tenants.get(id).and_then(|tenant| tenant.extents().get(extent)) else {
            return Leaves::NoRoom;
        };
        let parts = match entry.copies(self.memory.rules.hash) {
            Copies::Unknown => return Leaves::Soon,
            Copies::Nothing => Vec::new(),
            Copies::Parts(parts) => parts,
        };
        let bytes = entry.class().bytes();
        if parts.is_empty() && entry.is_zero() {
            // Zeros need no room, also where there was something before.
            self.give_up_room(id, extent);
        }
        let Some(entry) = self.tenants.get(id).and_then(|tenant| tenant.extents().get(extent)) else {
            return Leaves::NoRoom;
        };
        let new_runs = match entry.runs() {
            None if parts.is_empty() => Some(Vec::new()),
            Some(runs) if parts.is_empty() || !runs.is_empty() => None,
            _ => match self.room_in_pool(bytes, (id, extent), except) {
                Some(runs) => Some(runs),
                None => return Leaves::NoRoom,
            },
        };
        let Some(mut extents) = self.tenants.extents(id) else { return Leaves::NoRoom };
        let Some(frame) = extents.leave(extent, new_runs, parts.is_empty()) else { return Leaves::NoRoom };
        let address = self.memory.frames.memory(frame).map_or(0, |memory| memory.address);
        group.leaving.push(extent);
        if !parts.is_empty() {
            group.extents.push(extent);
            let runs = extents.get(extent).and_then(Extent::runs).unwrap_or_default();
            for part in &parts {
                group.add_part(address, runs, part.clone(), |run| self.memory.host.address(run));
            }
        }
        group.whole += bytes;
        Leaves::Now
    }

    /// A resident extent loses its place in the pool.
    fn give_up_room(&mut self, id: TenantId, extent: ExtentId) {
        let runs = self.tenants.extents(id).and_then(|mut extents| extents.give_up_backing(extent));
        self.memory.host.give_back(runs.unwrap_or_default());
    }

    /// Room in the pool. If there is none, what is in the arena too loses its place there: first what the arriving
    /// tenant has, because it is about to write to it; of each tenant's first what saves the least.
    fn room_in_pool(
        &mut self,
        bytes: u64,
        (leaving, extent): (TenantId, ExtentId),
        arriving: TenantId,
    ) -> Option<Vec<Run>> {
        if let Some(runs) = self.memory.host.take(bytes) {
            return Some(runs);
        }
        let mut order: Vec<TenantId> = self.tenants.ids().collect();
        order.sort_by_key(|id| (*id != arriving, *id == leaving));
        for id in order {
            let Some(mut extents) = self.tenants.extents(id) else { continue };
            let has_room = |entry: &Extent| entry.runs().is_some_and(|runs| !runs.is_empty());
            let backed = extents.iter().filter(|(_, entry)| entry.state().is_resident() && has_room(entry));
            let mut backed: Vec<(u8, ExtentId)> =
                backed.map(|(number, entry)| (entry.saved_by_backing(), number)).collect();
            backed.sort_unstable();
            for (_, number) in backed {
                if (id, number) != (leaving, extent)
                    && let Some(runs) = extents.give_up_backing(number)
                {
                    self.memory.host.give_up(runs);
                    if let Some(runs) = self.memory.host.take(bytes) {
                        return Some(runs);
                    }
                }
            }
        }
        None
    }

    /// Queues a group's copies out, and has the tenant unmap it.
    pub(super) fn submit_leaving(&mut self, id: TenantId, group: Group) {
        if group.leaving.is_empty() {
            return;
        }
        let leaving = group.leaving.clone();
        self.have_others_unmap(id, &leaving);
        self.submit(Lane::Out, id, group);
        if self.tenants.get(id).is_some_and(|tenant| tenant.memory.is_taken()) {
            return self.leave_behind(id, &leaving);
        }
        for extents in leaving.chunks(MAX_LISTED) {
            let Some(tenant) = self.tenants.get_mut(id) else { return };
            let (batch, extents) = (tenant.memory.add_batch(Batch::Unmap(extents.to_vec())), extents.to_vec());
            self.tenants.tell(id, &MemoryCommand::Unmap { batch, extents });
        }
    }

    /// A part of an eviction is done; when all are, the frame is free.
    pub(super) fn half_left(&mut self, id: TenantId, extent: ExtentId, half: Half) {
        let held = self.memory.sharing.is_held((id, extent));
        let free = self.tenants.extents(id).and_then(|mut extents| extents.left(extent, half, held));
        if half == Half::Copied {
            // It may have been freed meanwhile.
            self.memory.release_orphan(id, extent);
        }
        if let Some((frame, holds)) = free {
            match holds {
                Holds::Nothing => self.memory.frames.release(frame),
                Holds::Zeros => self.memory.frames.release_zeros(frame),
                Holds::Contents => {
                    if let Some(keepsake) = self.memory.frames.keep(frame)
                        && let Some(mut extents) = self.tenants.extents(id)
                    {
                        extents.kept(extent, frame, keepsake);
                    }
                }
            }
            self.can_be_recut(id);
            if self.memory.frames.is_poisoned() {
                self.memory.frames.scrub(None, SCRUB_BYTES);
            }
        }
    }

    /// Whether anything under way will change what claims find: otherwise waiting is of no use.
    pub(super) fn is_anything_coming(&mut self) -> bool {
        let answering: Vec<TenantId> = self.tenants.index().answering().collect();
        let answers = |tenant: &Tenant| tenant.is_about_to_answer() || tenant.is_about_to_close();
        let answers = answering.into_iter().filter_map(|id| self.tenants.get(id)).any(answers);
        answers
            || !self.memory.transfer.is_idle()
            || !self.memory.scans.is_idle()
            || self.memory.departed.is_any_fresh()
            || self.memory.host.is_preparing()
    }
}
