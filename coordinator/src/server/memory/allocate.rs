//! Allocations: the check that a tenant may have more memory, and the frames for it.
//!
//! A tenant that needs frames has a **claim**; claims are served in the order they came, and arrivals after them
//! ([`super::swap_in`]). It first gets free frames, then new ones, then free ones of other sizes are exchanged ([`super::frames`]).
//! When that is not enough, extents of tenants that are off the GPU are evicted ([`super::evict`]).

use std::cmp::Reverse;
use std::time::Instant;

use baton_contract::memory::{GRANULE, SizeClass, size};
use baton_contract::messages::{Answer, ExtentId, Full};
use baton_contract::wire::MAX_DESCRIPTORS;
use baton_report::quota::Quota;

use super::breach::MemoryBreach;
use super::claims::{Allocation, Claim, Claims, Progress};
use super::events::MemoryEvent;
use super::frames::{Found, Promised};
use super::ground::Ground;
use super::residency::Residency;
use crate::server::recorder::event::What;
use crate::server::tenants::memory::Notice;
use crate::server::tenants::tenant::Tenant;
use baton_books::arena::FrameId;
use baton_books::sizes::{PerClass, count};
use baton_policy::arbiter::{State, TenantId};

impl Ground<'_> {
    /// A tenant that is unresponsive now, but may answer again, and has memory that others could use, or is to give it up. It was
    /// stopped, for example, and may go on.
    pub(super) fn who_may_give_back(&self, except: TenantId) -> Option<TenantId> {
        let has_some = |tenant: &Tenant| {
            let counts = tenant.extents().counts();
            counts.here() + counts.reserved > counts.immovable
        };
        let may = |(id, tenant): &(TenantId, &Tenant)| *id != except && tenant.may_answer_again() && has_some(tenant);
        self.tenants.iter().find(may).map(|(id, _)| id)
    }

    /// The limit that denies a tenant this many more bytes, if any does.
    fn what_is_full(&self, id: TenantId, bytes: u64) -> Option<Full> {
        let own = self.tenants.get(id).map_or(0, |tenant| tenant.extents().counts().used()).saturating_add(bytes);
        if own > self.store.offered() {
            Some(Full::Arena)
        } else if own > self.offered_to(id) {
            Some(Full::Held)
        } else if bytes > self.grantable_to(id) {
            Some(Full::HostPool)
        } else {
            None
        }
    }

    /// Takes the frames that exist for an allocation, and makes others leave for the rest. Returns the bytes for which there will
    /// be no frames.
    fn find_frames(&mut self, residency: &mut Residency, allocation: &mut Allocation) -> u64 {
        let Allocation { tenant: id, left, got, as_it_is, .. } = allocation;
        let owner = self.owner_of(*id);
        // Existing frames are taken first. Otherwise they would be given up for missing ones, and made again because they are
        // missing, for ever.
        left.retain(|class| {
            let part = &mut as_it_is[class.index()];
            let held = if *part > 0 { self.store.frames.take_held(*class, true, owner) } else { None };
            *part -= usize::from(held.is_some());
            got.extend(held.map(|frame| (*class, frame)));
            held.is_none()
        });
        let mut others = count(left.iter().copied());
        others.iter_mut().zip(*as_it_is).for_each(|(others, part)| *others = others.saturating_sub(part));
        left.retain(|class| {
            let others = &mut others[class.index()];
            let ready = if *others > 0 { self.store.frames.take(*class, true, owner) } else { None };
            *others -= usize::from(ready.is_some());
            got.extend(ready.map(|frame| (*class, frame)));
            ready.is_none()
        });
        let mut promised = Promised::default();
        let (mut missing, mut missing_as_it_is) = (PerClass::default(), PerClass::default());
        left.retain(|class| {
            let others = &mut others[class.index()];
            if *others == 0 {
                self.store.frames.scrub_held(*class, owner);
                missing_as_it_is[class.index()] += 1;
                return true;
            }
            *others -= 1;
            match self.store.frames.find(*class, true, owner, &mut promised) {
                Found::Frame(frame) => got.push((*class, frame)),
                Found::Soon => return true,
                Found::None => {
                    missing[class.index()] += 1;
                    return true;
                }
            }
            false
        });
        residency.evict_for(self, missing, missing_as_it_is, *id)
    }

    /// Cuts an allocation into the sizes at hand, if there are others than it is cut into.
    fn cut_to_fit(&mut self, allocation: &mut Allocation) -> bool {
        let cut: Vec<SizeClass> =
            allocation.left.iter().chain(allocation.got.iter().map(|(class, _)| class)).copied().collect();
        std::mem::take(&mut allocation.got).into_iter().for_each(|(_, frame)| self.store.frames.give_back(frame));
        let found = self.sizes_at_hand(allocation.tenant, &cut);
        // A tenant that was unresponsive may answer by now, and then its frames can be exchanged.
        let is_other = found.is_some() || allocation.as_it_is != PerClass::default();
        let (sizes, as_it_is) = found.unwrap_or((cut, PerClass::default()));
        (allocation.left, allocation.as_it_is) = (sizes.into(), as_it_is);
        is_other
    }

    /// Lends all frames of a complete allocation to its tenant.
    fn lend(&mut self, allocation: Allocation) {
        let Allocation { tenant: id, mut at, mut got, asked, .. } = allocation;
        // The tenant lays them out in this order: large ones first.
        got.sort_by_key(|(class, _)| Reverse(*class));
        let Some(mut own) = self.tenants.extents(id) else {
            return got.iter().for_each(|(_, frame)| self.store.frames.give_back(*frame));
        };
        let mut extents: Vec<(ExtentId, SizeClass)> = Vec::with_capacity(got.len());
        for (class, frame) in &got {
            extents.push((own.add(at, *class, *frame), *class));
            at += class.bytes();
        }
        let bytes = own.counts().bytes;
        drop(own);
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        tenant.memory.peak_bytes = tenant.memory.peak_bytes.max(bytes);
        tenant.memory.is_over(Notice::PutOff);
        self.tenants.meets_no_more(id, &[Quota::Arena, Quota::HostPool]);
        let resident = self.resident_bytes(id);
        self.recorder.record(id, What::Allocated { asked, resident });
        let first: Vec<FrameId> = got.iter().map(|(_, frame)| *frame).take(MAX_DESCRIPTORS).collect();
        self.answer_with(id, &Answer::Allocated { extents }, &first);
    }

    /// Denies an allocation.
    fn deny(&mut self, id: TenantId, full: Full, bytes: u64) {
        let kept = self.tenants.reservations().of_others(self.tenants.run_of(id));
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        tenant.memory.is_over(Notice::PutOff);
        let why = match full {
            Full::Arena => baton_messages::more_than_the_arena(tenant.extents().counts().bytes >> 20),
            Full::HostPool => {
                let kept = match kept {
                    0 => String::new(),
                    bytes => baton_messages::kept_for_others(size(bytes)),
                };
                baton_messages::no_room(kept)
            }
            Full::Held => baton_messages::MEMORY_IS_HELD.to_owned(),
        };
        baton_messages::warn!(got_no_memory(&tenant.name, bytes >> 20, why));
        self.recorder.record(id, What::Refused { bytes, why: full });
        self.tenants.answer(id, &Answer::Denied { full }, &[]);
    }

    /// Puts off a request that has to wait for memory of an unresponsive tenant.
    pub(super) fn put_off(&mut self, id: TenantId, holder: TenantId, bytes: u64) {
        let holder = self.tenants.get(holder).map_or(String::new(), |tenant| tenant.name.clone());
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        if tenant.memory.is_news(Notice::PutOff) {
            baton_messages::warn!(waits_for_memory_of(&tenant.name, bytes >> 20, holder));
        }
        self.tenants.answer(id, &Answer::TryAgain, &[]);
    }
}

impl Claims {
    /// Handles a tenant's request for `bytes` more at this address. Once accepted, the request only waits for frames.
    pub(super) fn allocate(
        &mut self,
        ground: &mut Ground<'_>,
        id: TenantId,
        at: u64,
        bytes: u64,
    ) -> Result<(), MemoryBreach> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULE) {
            return Err(MemoryBreach::AskedForPartOfAGranule { bytes });
        }
        if !ground.is_room_at(id, at, bytes) {
            return Err(MemoryBreach::AskedWhereNoRoomIs { at, bytes });
        }
        let unresponsive = ground.tenants.get(id).is_some_and(|tenant| tenant.turn.is_overdue());
        if !unresponsive && ground.is_off_the_gpu(id) {
            return Err(MemoryBreach::AskedWithoutTheBaton);
        }
        if self.is_above_quota(ground, id, bytes) {
            return Ok(());
        }
        let mut full = ground.what_is_full(id, bytes);
        if full.is_some() && ground.is_squeezed() {
            // The holder of the arena's memory may have given it back a moment ago.
            ground.unsqueeze_at_need();
            full = ground.what_is_full(id, bytes);
        }
        let fits_beside = self.wanted_bytes(ground).saturating_add(bytes) <= ground.store.frames.arena().capacity()
            && ground.arbiter.state(id) == State::Corunning;
        if full.is_none() && ground.arbiter.is_corunner(id) && !fits_beside {
            // Co-runners would have to leave: the tenant asks again when it has the GPU to itself.
            ground.raise(MemoryEvent::CorunnersInTheWay);
            ground.tenants.answer(id, &Answer::TryAgain, &[]);
            return Ok(());
        }
        match full {
            Some(full) => ground.deny(id, full, bytes),
            None => self.queue.push_back(Claim::Allocate(Allocation {
                tenant: id,
                at,
                left: SizeClass::cut(bytes, ground.store.frames.arena().largest_class()).collect(),
                got: Vec::new(),
                as_it_is: PerClass::default(),
                asked: Instant::now(),
            })),
        }
        Ok(())
    }

    pub(super) fn serve_allocation(
        &mut self,
        ground: &mut Ground<'_>,
        residency: &mut Residency,
        mut allocation: Allocation,
    ) -> Progress {
        let (id, bytes) = (allocation.tenant, allocation.bytes());
        // First with the current cut, then once more, because unchanged memory of an unresponsive tenant leaves at once, and last
        // in the sizes at hand.
        for is_last in [false, false, true] {
            let lacking = ground.find_frames(residency, &mut allocation);
            if allocation.left.is_empty() {
                ground.lend(allocation);
                return Progress::Done;
            }
            if ground.is_anything_coming() || ground.part_corunners() {
                self.queue.push_front(Claim::Allocate(allocation));
                return Progress::Waits;
            }
            if is_last || lacking > 0 && !ground.cut_to_fit(&mut allocation) {
                break;
            }
        }
        allocation.got.into_iter().for_each(|(_, frame)| ground.store.frames.give_back(frame));
        if ground.can_compact(id) {
            ground.raise(MemoryEvent::SpareInTheWay(id));
            ground.tenants.answer(id, &Answer::TryAgain, &[]);
            return Progress::Done;
        }
        match ground.who_may_give_back(id) {
            // The tenant asks again, and others have their turns meanwhile.
            Some(holder) => ground.put_off(id, holder, bytes),
            None => ground.deny(id, Full::Held, bytes),
        }
        Progress::Done
    }

    /// Makes a frame for the next tenant that asks for memory, while all memory fits and some is left. The frame is overwritten
    /// when the next scrub begins.
    pub(super) fn make_ready(&self, ground: &mut Ground<'_>, residency: &Residency) {
        if ground.tenants.is_empty() {
            return;
        }
        let Some(class) = ground.store.frames.arena().lacks_ready() else { return };
        let fits = self.wanted_bytes(ground) + class.bytes() <= ground.store.frames.arena().capacity();
        // Contexts and code beside the arena come first.
        let is_left = || self.is_room_left(ground, class.bytes());
        if !fits || !is_left() {
            return;
        }
        if ground.store.frames.make(class) {
            // More work follows, after all other pending work.
            residency.waker.wake();
        }
    }
}
