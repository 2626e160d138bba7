//! Eviction of memory of tenants that are off the GPU, only as much as is needed, in the order of [`victims`].
//!
//! An eviction's copy and its unmapping run at the same time; the frame is free when both are done. Memory that has not changed
//! since it came in is not copied ([`super::scan`]).

use baton_contract::memory::SizeClass;
use baton_contract::messages::ExtentId;

use super::ground::Ground;
use super::leaving::Leaves;
use super::residency::Residency;
use super::transfer::Group;
use crate::server::tenants::tenant::Tenant;
use baton_books::extents::{Extent, ExtentState};
use baton_books::sizes::{PerClass, bytes_of, subtract};
use baton_policy::arbiter::TenantId;
use baton_policy::victims::{self, Candidate, Wanted};

/// Result of a tenant's eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Evicted {
    /// All that can move has left.
    Done,
    UnderWay,
    /// There is no room for it in the pool.
    NoRoom,
}

impl Residency {
    /// Evicts all movable memory of a tenant that is off the GPU.
    pub(super) fn evict_all(&mut self, ground: &mut Ground<'_>, id: TenantId) -> Evicted {
        let Some(tenant) = ground.tenants.get(id) else { return Evicted::Done };
        let counts = tenant.extents().counts();
        if counts.here() == counts.immovable {
            return Evicted::Done;
        }
        let mut all = PerClass::default();
        let movable = tenant.extents().iter().filter(|(_, extent)| !extent.is_immovable());
        movable.for_each(|(_, extent)| all[extent.class().index()] += 1);
        self.evict_from(ground, id, &mut all, Wanted::AnyClass, id);
        if ground.is_anything_coming() { Evicted::UnderWay } else { Evicted::NoRoom }
    }

    /// Evicts these extents of a tenant that is off the GPU, if they can move and are not already on their way.
    pub(super) fn evict_these(&mut self, ground: &mut Ground<'_>, id: TenantId, mut extents: Vec<ExtentId>) -> Evicted {
        let Some(tenant) = ground.tenants.get(id).filter(|_| !extents.is_empty()) else { return Evicted::Done };
        extents.retain(|extent| {
            tenant.extents().get(*extent).is_some_and(Extent::is_evictable) && ground.is_let_go(id, *extent)
        });
        self.send_out(ground, id, &extents, id);
        if ground.is_anything_coming() { Evicted::UnderWay } else { Evicted::NoRoom }
    }

    /// Evicts extents of others: for frames of any kind, and for frames that are used as they are. Returns the bytes that are still
    /// missing then.
    pub(super) fn evict_for(
        &mut self,
        ground: &mut Ground<'_>,
        missing: PerClass,
        as_it_is: PerClass,
        except: TenantId,
    ) -> u64 {
        let lacking = if bytes_of(&as_it_is) > 0 { self.evict_as_it_is(ground, as_it_is, except) } else { 0 };
        lacking + if bytes_of(&missing) > 0 { self.evict(ground, missing, except) } else { 0 }
    }

    /// Evicts extents of others until as many of each class are on their way out as are missing, or as many bytes where there are
    /// too few of a class. Returns the bytes that are still missing then.
    pub(super) fn evict(&mut self, ground: &mut Ground<'_>, mut missing: PerClass, except: TenantId) -> u64 {
        // An unresponsive tenant is not expected to free anything.
        let (leaving, owner): (Vec<TenantId>, _) =
            (ground.tenants.index().leaving().collect(), ground.owner_of(except));
        for (id, tenant) in leaving.into_iter().filter_map(|id| Some((id, ground.tenants.get(id)?))) {
            if !tenant.makes_room() {
                continue;
            }
            let leaving = ground.store.leaving_soon(id, tenant, ground.tenants);
            for (class, count) in SizeClass::ALL.into_iter().zip(leaving) {
                match tenant.memory.is_taken() {
                    false => subtract(&mut missing, class, count),
                    true if ground.owner_of(id) == owner => {
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
            self.take_reserved(ground, &mut missing, wanted, except);
        }
        if bytes_of(&missing) == 0 {
            return 0;
        }
        // Frames of the wrong size, or of another owner, do as well, but have to be exchanged for others first.
        for wanted in [Wanted::SameClass, Wanted::AnyClass] {
            self.evict_from_all(ground, &mut missing, wanted, except);
        }
        bytes_of(&missing)
    }

    /// Evicts extents of these classes whose frames can be used only as they are. Returns the bytes that are still missing then.
    fn evict_as_it_is(&mut self, ground: &mut Ground<'_>, mut missing: PerClass, except: TenantId) -> u64 {
        let owner = ground.owner_of(except);
        for class in SizeClass::ALL {
            let comes = ground.store.frames.arena().scrubbing_held(class, owner);
            missing[class.index()] = missing[class.index()].saturating_sub(comes);
        }
        if bytes_of(&missing) == 0 {
            return 0;
        }
        let leaving: Vec<TenantId> = ground.tenants.index().leaving().collect();
        for id in leaving {
            let Some(tenant) = ground.tenants.get(id).filter(|tenant| !tenant.memory.is_late()) else { continue };
            let leaves = |extent: &Extent| matches!(extent.state(), ExtentState::Leaving { .. });
            if ground.owner_of(id) == owner && tenant.is_movable() {
                let leaving = tenant.extents().iter().filter(|(_, extent)| leaves(extent));
                let comes = |(number, extent): &(ExtentId, &Extent)| {
                    !ground.can_be_exchanged(tenant, extent) && !ground.store.is_stuck((id, *number), ground.tenants)
                };
                for (_, extent) in leaving.filter(comes) {
                    let missing = &mut missing[extent.class().index()];
                    *missing = missing.saturating_sub(1);
                }
            }
        }
        self.take_reserved(ground, &mut missing, Wanted::AsItIs, except);
        self.evict_from_all(ground, &mut missing, Wanted::AsItIs, except);
        bytes_of(&missing)
    }

    /// Evicts the wanted extents of others until as much is on its way out as is missing.
    fn evict_from_all(&mut self, ground: &mut Ground<'_>, missing: &mut PerClass, wanted: Wanted, except: TenantId) {
        let owner = ground.owner_of(except);
        let mut last = None;
        while bytes_of(missing) > 0
            && let Some(victim) = ground.tenants.index().victim_after(last)
        {
            last = Some(victim);
            let id = victim.1;
            let is_its_owner = ground.owner_of(id) == owner;
            let has_any = |tenant: &Tenant| {
                let (is_taken, evictable) = (tenant.memory.is_taken(), &tenant.extents().counts().evictable);
                wanted.is_met_by_tenant(is_its_owner, is_taken, evictable, missing) && !tenant.memory.is_late()
            };
            if !ground.arbiter.are_united(id, except)
                && ground.is_off_the_gpu(id)
                && ground.tenants.get(id).is_some_and(has_any)
            {
                self.evict_from(ground, id, missing, wanted, except);
            }
        }
    }

    /// Takes back frames that were reserved for tenants that are not on the GPU. No copy is needed for that.
    pub(super) fn take_reserved(
        &mut self,
        ground: &mut Ground<'_>,
        missing: &mut PerClass,
        wanted: Wanted,
        except: TenantId,
    ) {
        let (ids, owner) = (ground.tenants.index().reserved(), ground.owner_of(except));
        for id in ids.into_iter().filter(|id| !ground.arbiter.are_united(*id, except)) {
            let Some(tenant) = ground.tenants.get(id).filter(|tenant| tenant.is_evictable()) else { continue };
            if !ground.is_off_the_gpu(id) {
                continue;
            }
            let is_its_owner = ground.owner_of(id) == owner;
            let does = |extent: &Extent| {
                let is_reserved = matches!(extent.state(), ExtentState::Reserved { .. });
                is_reserved && wanted.is_met_by(is_its_owner, ground.can_be_exchanged(tenant, extent))
            };
            // Here too, the memory used last goes first: it was reserved last.
            let reserved = tenant.extents().iter().rev().filter(|(_, extent)| does(extent));
            let reserved: Vec<(ExtentId, SizeClass)> = reserved.map(|(id, extent)| (id, extent.class())).collect();
            let chosen = victims::choose(reserved, wanted, missing);
            let mut group = Group::default();
            let Some(mut extents) = ground.tenants.extents(id) else { continue };
            group.leaving.extend(
                chosen.into_iter().map(|(extent, _)| extent).filter(|extent| extents.give_up_reserved(*extent)),
            );
            drop(extents);
            self.submit_leaving(ground, id, group);
        }
    }

    fn evict_from(
        &mut self,
        ground: &mut Ground<'_>,
        victim: TenantId,
        missing: &mut PerClass,
        wanted: Wanted,
        except: TenantId,
    ) {
        let tenant = &ground.tenants[victim];
        let is_its_owner = ground.owner_of(victim) == ground.owner_of(except);
        let can_go = |id: ExtentId, extent: &Extent| {
            let does = victim == except || wanted.is_met_by(is_its_owner, ground.can_be_exchanged(tenant, extent));
            does && extent.is_evictable() && ground.is_let_go(victim, id)
        };
        let candidate = |(id, extent): (ExtentId, &Extent)| {
            can_go(id, extent).then(|| Candidate { extent: id, class: extent.class(), zero: extent.was_zero() })
        };
        let mut candidates: Vec<Candidate> = tenant.extents().iter().filter_map(candidate).collect();
        victims::order(&mut candidates, &tenant.memory.history);
        let mut lacking = *missing;
        let in_order = candidates.iter().map(|candidate| (candidate.extent, candidate.class));
        let (extents, classes): (Vec<_>, Vec<_>) = victims::choose(in_order, wanted, &mut lacking).into_iter().unzip();
        let count = self.send_out(ground, victim, &extents, except);
        classes[..count].iter().for_each(|class| subtract(missing, *class, 1));
    }

    /// Sends extents on their way out, in this order, until there is no room for one. Returns how many leave, now or soon.
    fn send_out(&mut self, ground: &mut Ground<'_>, id: TenantId, extents: &[ExtentId], except: TenantId) -> usize {
        if !ground.store.rules.hash {
            // No work waits for this scan, but the pointers in the memory must be known when it comes in again.
            ground.scan(id, extents);
        }
        let mut group = Group::default();
        let mut count = 0;
        for extent in extents {
            match ground.start_leaving(id, *extent, except, &mut group) {
                Leaves::Now => {}
                Leaves::Soon => ground.scan(id, extents),
                Leaves::NoRoom => break,
            }
            count += 1;
            if group.is_full() {
                self.submit_leaving(ground, id, std::mem::take(&mut group));
            }
        }
        self.submit_leaving(ground, id, group);
        count
    }
}
