//! Allocations: whether a tenant may have so much more, and frames for it.
//!
//! Whoever needs frames has a **claim**; claims are served in the order they came, and arrivals after them ([`super::swap_in`]). It
//! first gets free frames, then new ones, then free ones of other sizes are exchanged ([`super::frames`]). When that is not enough,
//! extents of tenants that are off the GPU are evicted ([`super::evict`]).

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::Instant;

use baton_contract::memory::{GRANULE, SizeClass, size};
use baton_contract::messages::{Answer, ExtentId, Full};
use baton_contract::wire::MAX_DESCRIPTORS;
use baton_views::quota::Quota;

use super::beside::Need;
use super::frames::Found;
use super::{Access, MemoryEvent};
use crate::server::recorder::event::What;
use crate::server::tenants::memory::Notice;
use crate::server::tenants::peer::Sent;
use crate::server::tenants::tenant::Tenant;
use baton_books::arena::FrameId;
use baton_books::extents::{Extent, ExtentState};
use baton_books::sizes::{PerClass, count};
use baton_policy::arbiter::{State, TenantId};

/// What a tenant asks for.
#[derive(Debug)]
pub(super) struct Allocation {
    tenant: TenantId,
    /// The address at which it is to lie.
    at: u64,
    left: VecDeque<SizeClass>,
    got: Vec<(SizeClass, FrameId)>,
    /// So many of each class are to be frames that are had as they are ([`super::fit`]).
    as_it_is: PerClass,
    asked: Instant,
}

impl Allocation {
    /// What has yet to come, in bytes.
    pub(super) fn left(&self) -> u64 {
        self.left.iter().map(|class| class.bytes()).sum()
    }

    fn bytes(&self) -> u64 {
        self.left() + self.got.iter().map(|(class, _)| class.bytes()).sum::<u64>()
    }
}

/// Somebody who needs frames.
#[derive(Debug)]
pub(super) enum Claim {
    /// A new allocation.
    Allocate(Allocation),
    /// Memory beside the arena.
    Beside { tenant: TenantId, need: Need },
}

impl Claim {
    /// Whose it is.
    pub(super) fn tenant(&self) -> TenantId {
        match self {
            Self::Allocate(Allocation { tenant, .. }) | Self::Beside { tenant, .. } => *tenant,
        }
    }

    /// What of the arena it is about to take.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Allocate(allocation) => allocation.bytes(),
            Self::Beside { .. } => 0,
        }
    }
}

/// Whether a claim was served.
#[derive(PartialEq, Eq)]
pub(super) enum Progress {
    Done,
    Waits,
}

impl Access<'_> {
    /// What all tenants have, and what they have asked for.
    pub(in crate::server) fn wanted_bytes(&self) -> u64 {
        self.tenants.totals().bytes + self.memory.claims.iter().map(Claim::bytes).sum::<u64>()
    }

    /// One that is told to leave the GPU cannot as long as it waits for memory, and others may wait for its: it is to ask again
    /// when it has the GPU to itself.
    pub(in crate::server) fn turn_away(&mut self, id: TenantId) {
        let is_its = |claim: &Claim| match claim {
            Claim::Allocate(allocation) => allocation.tenant == id,
            Claim::Beside { tenant, need } => *tenant == id && need.can_wait(),
        };
        let Some(at) = self.memory.claims.iter().position(is_its) else { return };
        if let Some(Claim::Allocate(allocation)) = self.memory.claims.remove(at) {
            allocation.got.into_iter().for_each(|(_, frame)| self.memory.frames.give_back(frame));
        }
        self.tenants.answer(id, &Answer::TryAgain, &[]);
    }

    /// A tenant's connection has ended: it gets nothing any more.
    pub(in crate::server) fn drop_claims(&mut self, id: TenantId) {
        let mut kept = VecDeque::new();
        for claim in std::mem::take(&mut self.memory.claims) {
            match claim {
                Claim::Allocate(allocation) if allocation.tenant == id => {
                    allocation.got.into_iter().for_each(|(_, frame)| self.memory.frames.give_back(frame));
                }
                Claim::Beside { tenant, .. } if tenant == id => {}
                other => kept.push_back(other),
            }
        }
        self.memory.claims = kept;
        if !self.arbiter.is_united(id) {
            self.end_swap_in(id);
        }
    }

    /// Whether a tenant has nothing there yet, neither of its own nor of another's, and could have something.
    pub(super) fn is_room_at(&self, id: TenantId, at: u64, bytes: u64) -> bool {
        let is_taken = |tenant: &Tenant| tenant.extents().within(at, bytes).next().is_some();
        at.is_multiple_of(GRANULE)
            && at.checked_add(bytes).is_some()
            && !self.memory.sharing.has_any_at(id, at, bytes)
            && !self.tenants.get(id).is_some_and(is_taken)
    }

    /// A tenant asks for so much more at this address. The rest is waiting for frames.
    pub(in crate::server) fn allocate(&mut self, id: TenantId, at: u64, bytes: u64) -> Result<(), String> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULE) {
            return Err(format!("it asked for {bytes} bytes, which is no multiple of 2 MiB"));
        }
        if !self.is_room_at(id, at, bytes) {
            return Err(format!("it asked for {bytes} bytes at {at:#x}, where there is no room"));
        }
        let unresponsive = self.tenants.get(id).is_some_and(|tenant| tenant.turn.is_overdue());
        if !unresponsive && self.is_off_the_gpu(id) {
            return Err("it asked for memory without the baton".to_owned());
        }
        if self.is_above_quota(id, bytes) {
            return Ok(());
        }
        let mut full = self.what_is_full(id, bytes);
        if full.is_some() && self.memory.is_squeezed() {
            // Whoever had the arena's memory may have given it back a moment ago.
            self.memory.unsqueeze_at_need();
            full = self.what_is_full(id, bytes);
        }
        let fits_beside = self.wanted_bytes().saturating_add(bytes) <= self.memory.frames.arena().capacity()
            && self.arbiter.state(id) == State::Corunning;
        if full.is_none() && self.arbiter.is_corunner(id) && !fits_beside {
            // Others would have to go, which run too: it is to ask again when it has the GPU to itself.
            self.happened(MemoryEvent::CorunnersInTheWay);
            self.tenants.answer(id, &Answer::TryAgain, &[]);
            return Ok(());
        }
        match full {
            Some(full) => self.deny(id, full, bytes),
            None => self.memory.claims.push_back(Claim::Allocate(Allocation {
                tenant: id,
                at,
                left: SizeClass::cut(bytes, self.memory.frames.arena().largest_class()).collect(),
                got: Vec::new(),
                as_it_is: PerClass::default(),
                asked: Instant::now(),
            })),
        }
        Ok(())
    }

    /// What stands in the way of so much more for a tenant, if anything does.
    fn what_is_full(&self, id: TenantId, bytes: u64) -> Option<Full> {
        let own = self.tenants.get(id).map_or(0, |tenant| tenant.extents().counts().used()).saturating_add(bytes);
        if own > self.memory.offered() {
            Some(Full::Arena)
        } else if own > self.offered_to(id) {
            Some(Full::Held)
        } else if bytes > self.grantable_to(id) {
            Some(Full::HostPool)
        } else {
            None
        }
    }

    /// What of arena and host pool a tenant can have on top of what all have, in bytes.
    pub(super) fn grantable_to(&self, id: TenantId) -> u64 {
        self.memory.grantable(self.tenants, self.tenants.run_of(id))
    }

    /// Serves claims as far as possible, then who is swapped in: whoever claims anything has the baton, and is waited for before it
    /// can be taken away.
    pub(in crate::server) fn serve(&mut self) {
        while let Some(claim) = self.memory.claims.pop_front() {
            let progress = match claim {
                Claim::Allocate(allocation) => self.serve_allocation(allocation),
                Claim::Beside { tenant, need } => self.serve_beside(tenant, need),
            };
            if progress == Progress::Waits {
                return;
            }
        }
        self.serve_swap_in();
    }

    fn serve_allocation(&mut self, mut allocation: Allocation) -> Progress {
        let (id, bytes) = (allocation.tenant, allocation.bytes());
        // As it is cut; once more, for what has not changed of one that does not answer leaves at once; and then in the sizes at hand.
        for is_last in [false, false, true] {
            let lacking = self.find_frames(&mut allocation);
            if allocation.left.is_empty() {
                self.lend(allocation);
                return Progress::Done;
            }
            if self.is_anything_coming() || self.part_corunners() {
                self.memory.claims.push_front(Claim::Allocate(allocation));
                return Progress::Waits;
            }
            if is_last || lacking > 0 && !self.cut_to_fit(&mut allocation) {
                break;
            }
        }
        allocation.got.into_iter().for_each(|(_, frame)| self.memory.frames.give_back(frame));
        if self.can_compact(id) {
            self.happened(MemoryEvent::SpareInTheWay(id));
            self.tenants.answer(id, &Answer::TryAgain, &[]);
            return Progress::Done;
        }
        match self.who_may_give_back(id) {
            // It is to ask again, and lets others have their turns meanwhile.
            Some(holder) => self.put_off(id, holder, bytes),
            None => self.deny(id, Full::Held, bytes),
        }
        Progress::Done
    }

    /// Takes what frames there are for an allocation, and makes others leave for the rest. Says how many bytes there will be no frames
    /// for.
    fn find_frames(&mut self, allocation: &mut Allocation) -> u64 {
        let Allocation { tenant: id, left, got, as_it_is, .. } = allocation;
        let owner = self.owner_of(*id);
        // What is there is taken first. Else it would be given up for what is missing, and made again for want of it, for ever.
        left.retain(|class| {
            let part = &mut as_it_is[class.index()];
            let held = if *part > 0 { self.memory.frames.take_held(*class, true, owner) } else { None };
            *part -= usize::from(held.is_some());
            got.extend(held.map(|frame| (*class, frame)));
            held.is_none()
        });
        let mut others = count(left.iter().copied());
        others.iter_mut().zip(*as_it_is).for_each(|(others, part)| *others = others.saturating_sub(part));
        left.retain(|class| {
            let others = &mut others[class.index()];
            let ready = if *others > 0 { self.memory.frames.take(*class, true, owner) } else { None };
            *others -= usize::from(ready.is_some());
            got.extend(ready.map(|frame| (*class, frame)));
            ready.is_none()
        });
        let mut soon = PerClass::default();
        let (mut missing, mut missing_as_it_is) = (PerClass::default(), PerClass::default());
        left.retain(|class| {
            let others = &mut others[class.index()];
            if *others == 0 {
                self.memory.frames.scrub_held(*class, owner);
                missing_as_it_is[class.index()] += 1;
                return true;
            }
            *others -= 1;
            match self.memory.frames.find(*class, true, owner, &mut soon) {
                Found::Frame(frame) => got.push((*class, frame)),
                Found::Soon => return true,
                Found::None => {
                    missing[class.index()] += 1;
                    return true;
                }
            }
            false
        });
        self.evict_for(missing, missing_as_it_is, *id)
    }

    /// Cuts an allocation into the sizes at hand, if there are others than it is cut into.
    fn cut_to_fit(&mut self, allocation: &mut Allocation) -> bool {
        let cut: Vec<SizeClass> =
            allocation.left.iter().chain(allocation.got.iter().map(|(class, _)| class)).copied().collect();
        std::mem::take(&mut allocation.got).into_iter().for_each(|(_, frame)| self.memory.frames.give_back(frame));
        let found = self.sizes_at_hand(allocation.tenant, &cut);
        // Who did not answer may do so by now, and then what it had can be exchanged.
        let is_other = found.is_some() || allocation.as_it_is != PerClass::default();
        let (sizes, as_it_is) = found.unwrap_or((cut, PerClass::default()));
        (allocation.left, allocation.as_it_is) = (sizes.into(), as_it_is);
        is_other
    }

    /// All frames for an allocation are there.
    fn lend(&mut self, allocation: Allocation) {
        let Allocation { tenant: id, mut at, mut got, asked, .. } = allocation;
        // The tenant lays them out in this order: large ones first.
        got.sort_by_key(|(class, _)| Reverse(*class));
        let Some(mut own) = self.tenants.extents(id) else {
            return got.iter().for_each(|(_, frame)| self.memory.frames.give_back(*frame));
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

    /// Says no to an allocation.
    fn deny(&mut self, id: TenantId, full: Full, bytes: u64) {
        let kept = self.tenants.reservations().of_others(self.tenants.run_of(id));
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        tenant.memory.is_over(Notice::PutOff);
        let why = match full {
            Full::Arena => {
                format!("with its {} MiB that is more than the arena", tenant.extents().counts().bytes >> 20)
            }
            Full::HostPool => {
                let kept = match kept {
                    0 => String::new(),
                    bytes => format!(", with {} that are kept for others (`baton run --needs`)", size(bytes)),
                };
                format!("arena and host pool together have no room{kept}; a larger --host-pool would help")
            }
            Full::Held => "the memory for it is held by a program that does not give it back".to_owned(),
        };
        log::warn!("{} asked for {} MiB and got none: {why}", tenant.name, bytes >> 20);
        self.recorder.record(id, What::Refused { bytes, why: full });
        self.tenants.answer(id, &Answer::Denied { full }, &[]);
    }

    /// Somebody who does not answer now, and has memory that others could have: it was stopped, say, and may go on.
    fn who_may_give_back(&self, except: TenantId) -> Option<TenantId> {
        let has_some = |tenant: &Tenant| tenant.extents().counts().evictable.iter().any(|count| *count > 0);
        let may = |(id, tenant): &(TenantId, &Tenant)| *id != except && tenant.may_answer_again() && has_some(tenant);
        self.tenants.iter().find(may).map(|(id, _)| id)
    }

    /// An allocation has to wait for memory that a tenant has which does not answer.
    fn put_off(&mut self, id: TenantId, holder: TenantId, bytes: u64) {
        let holder = self.tenants.get(holder).map_or(String::new(), |tenant| tenant.name.clone());
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        if tenant.memory.is_news(Notice::PutOff) {
            log::warn!("{} waits for {} MiB that {holder} has, which does not answer", tenant.name, bytes >> 20);
        }
        self.tenants.answer(id, &Answer::TryAgain, &[]);
    }

    /// A tenant asks for the frames behind extents that it has mapped.
    pub(in crate::server) fn give_frames(&mut self, id: TenantId, extents: Vec<ExtentId>) -> Result<(), String> {
        let frames = self.frames_of(id, &extents)?;
        self.answer_with(id, &Answer::Frames { extents }, &frames);
        Ok(())
    }

    /// Answers a tenant's request with frames.
    pub(super) fn answer_with(&mut self, id: TenantId, message: &Answer, frames: &[FrameId]) {
        let descriptors: Vec<Sent> = frames.iter().filter_map(|frame| self.memory.frames.descriptor(*frame)).collect();
        self.tenants.answer(id, message, &descriptors);
    }

    /// The frames behind extents that a tenant has.
    fn frames_of(&self, id: TenantId, extents: &[ExtentId]) -> Result<Vec<FrameId>, String> {
        let Some(tenant) = self.tenants.get(id) else { return Ok(Vec::new()) };
        let resident = |extent: &ExtentId| match tenant.extents().get(*extent).map(Extent::state) {
            Some(ExtentState::Resident { frame }) => Ok(frame),
            _ if let Some(frame) = self.frame_of_attachment((id, *extent)) => Ok(frame),
            _ => Err(format!("it asked for the frame of extent {}, which it does not have mapped", extent.0)),
        };
        extents.iter().map(resident).collect()
    }

    /// The tenant has freed parts of extents that it goes on using.
    pub(in crate::server) fn spare(&mut self, id: TenantId, ranges: &[(u64, u64)]) -> Result<(), String> {
        if let Some(tenant) = self.tenants.unindexed(id) {
            tenant.memory.may_compact_again();
        }
        let Some(mut own) = self.tenants.extents(id) else { return Ok(()) };
        match ranges.iter().find(|(at, bytes)| !own.set_spare(*at, *bytes, true)) {
            Some((at, bytes)) => Err(format!("it freed {bytes} bytes at {at:#x}, which it does not have mapped")),
            None => Ok(()),
        }
    }

    /// The tenant uses what was spare.
    pub(in crate::server) fn reuse(&mut self, id: TenantId, at: u64, bytes: u64) -> Result<(), String> {
        let Some(mut own) = self.tenants.extents(id) else { return Ok(()) };
        if own.set_spare(at, bytes, false) {
            Ok(())
        } else {
            Err(format!("it uses {bytes} bytes at {at:#x} again, which were not spare"))
        }
    }

    /// The tenant has unmapped these and let go of them.
    pub(in crate::server) fn free(&mut self, id: TenantId, extents: &[ExtentId]) -> Result<(), String> {
        if let Some(tenant) = self.tenants.unindexed(id) {
            tenant.memory.may_compact_again();
        }
        for extent in extents {
            if self.detach(id, *extent) {
                continue;
            }
            let Some(mut own) = self.tenants.extents(id) else { return Ok(()) };
            let freed = own.remove(*extent);
            drop(own);
            let (Some(freed), Some(tenant)) = (freed, self.tenants.get_mut(id)) else {
                return Err(format!("it freed extent {}, which it does not have mapped", extent.0));
            };
            tenant.memory.history.forget(*extent);
            if let Some(frame) = freed.left_behind() {
                self.memory.frames.unhold(frame);
                self.is_whole_again(id);
            }
            if matches!(freed.state(), ExtentState::Leaving { .. }) {
                // It was taken, and is still being copied.
                self.memory.departed.add_orphan((id, *extent), freed);
                continue;
            }
            let Some(freed) = self.hand_over(id, *extent, freed) else { continue };
            if let Some(frame) = freed.state().frame() {
                self.memory.frames.release(frame);
            }
            self.memory.host.give_back(freed.into_runs());
        }
        let resident = self.resident_bytes(id);
        self.recorder.record(id, What::Freed { resident });
        Ok(())
    }

    /// How much of a tenant's memory that can move is on the GPU, in bytes.
    pub(super) fn resident_bytes(&self, id: TenantId) -> u64 {
        let resident = |tenant: &Tenant| {
            let counts = tenant.extents().counts();
            counts.here() - counts.immovable
        };
        self.tenants.get(id).map_or(0, resident)
    }
}
