//! Frames for whoever needs them: for new allocations, for tenants that get the baton, for memory beside the arena.
//!
//! Whoever needs frames has a **claim**; claims are served in the order they came, and arrivals after them. It first gets free
//! frames, then new ones, then free ones of other sizes are exchanged. When that is not enough, extents of
//! tenants that are off the GPU are evicted, just as much as is needed: of idle tenants before waiting ones, of
//! less urgent ones first, of those that ran longest ago first.
//!
//! An eviction's copy and its unmapping run at the same time; the frame is free when both are done. What has not
//! changed since it came in is not copied ([`super::scan`]). How tenants come in is told in [`super::swap_in`].

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use baton_contract::memory::SizeClass;
use baton_contract::messages::{Answer, ExtentId, Full, MAX_LISTED, MemoryCommand};

use super::tenants::tenant::{Batch, Tenant};
use super::{Server, is_copy};
use crate::books::arena::FrameId;
use crate::books::extents::{Copies, Extent, ExtentState, Half};
use crate::books::pool::Run;
use crate::books::sizes::{PerClass, at_least, bytes_of, subtract};
use crate::device::mover::{Lane, Piece};
use crate::policy::arbiter::{Event, TenantId};

/// Copies are queued in groups of about so much: large enough for full speed, small enough that the other
/// direction can soon use what became free.
pub(super) const GROUP_BYTES: u64 = 64 << 20;
/// And no more extents than this, because unmapping takes time for each.
pub(super) const GROUP_EXTENTS: usize = 64;
/// Free frames are overwritten ahead of need in jobs of about so much.
const SCRUB_BYTES: u64 = 512 << 20;
/// Device memory that is left to contexts when the arena grows back to its size.
pub(super) const LEFT_FREE: u64 = 256 << 20;

/// Somebody who needs frames.
#[derive(Debug)]
pub(super) enum Claim {
    /// A new allocation.
    Allocate { tenant: TenantId, left: VecDeque<SizeClass>, got: Vec<(SizeClass, FrameId)>, asked: Instant },
    /// Memory beside the arena, of which so much is to be free.
    Unmanaged { tenant: TenantId, bytes: u64, asked: Instant },
}

impl Claim {
    /// What of the arena it is about to take.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Allocate { left, got, .. } => {
                left.iter().chain(got.iter().map(|(class, _)| class)).map(|class| class.bytes()).sum()
            }
            Self::Unmanaged { .. } => 0,
        }
    }
}

/// What a lane is working at.
#[derive(Debug)]
pub(super) enum Task {
    /// Copies out of or into these extents' frames.
    Copy { tenant: TenantId, extents: Vec<ExtentId>, bytes: u64 },
    /// Overwriting these frames.
    Scrub { frames: Vec<FrameId>, bytes: u64 },
}

impl Task {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Copy { bytes, .. } | Self::Scrub { bytes, .. } => *bytes,
        }
    }
}

/// What came of looking for a frame.
pub(super) enum Found {
    Frame(FrameId),
    /// One is being overwritten and will do.
    Soon,
    /// Others have to go first.
    None,
}

/// What became of an extent that is to leave.
enum Leaves {
    Now,
    /// Its contents have to be looked at first.
    Soon,
    /// There is no room for it in the pool.
    NoRoom,
}

/// Whether a claim was served.
#[derive(PartialEq, Eq)]
pub(super) enum Progress {
    Done,
    Waits,
}

impl Server {
    /// Serves claims as far as possible, and overwrites free frames when there is nothing more urgent.
    pub(super) fn pump(&mut self) {
        loop {
            while let Some(lost) = self.tenants.take_lost() {
                self.connection_ended(lost);
            }
            for gone in std::mem::take(&mut self.gone) {
                self.tell_arbiter(gone, Event::Left);
            }
            self.welcome_newcomers();
            self.serve_claims();
            // Serving them may have found another tenant gone.
            if self.gone.is_empty() && !self.tenants.has_lost() {
                break;
            }
        }
        self.work_ahead();
        if self.claims.is_empty()
            && self.swap_in.is_none()
            && !self.tasks.values().any(|task| matches!(task, Task::Scrub { .. }))
        {
            self.scrub(None, SCRUB_BYTES);
            self.make_ready();
        }
        self.show_offers();
    }

    /// What one tenant may have, in bytes: the arena less the headroom.
    pub(super) fn offered(&self) -> u64 {
        self.arena.capacity().saturating_sub(self.options.headroom)
    }

    /// What this tenant may have, in bytes: nobody has what of others cannot move.
    pub(super) fn offered_to(&self, id: TenantId) -> u64 {
        self.beside_immovable(id).saturating_sub(self.options.headroom)
    }

    /// Makes a free frame of this class, in exchange for free ones of classes of which there are more than wanted.
    pub(super) fn make_free_frame(&mut self, class: SizeClass, wanted: &PerClass) -> bool {
        while !self.arena.fits(class) {
            let spare = |other: &SizeClass| self.arena.free(*other) > wanted[other.index()];
            let Some(other) = SizeClass::ALL.into_iter().rev().find(spare) else { return false };
            let Some(frame) = self.arena.remove_free_of(other) else { return false };
            self.unmake(frame);
        }
        match self.gpu.make(class.bytes()) {
            Ok(memory) => {
                let frame = self.enter_frame(class, memory);
                self.arena.give_back(frame);
                true
            }
            Err(_) => false,
        }
    }

    pub(super) fn enter_frame(&mut self, class: SizeClass, memory: crate::device::gpu::Memory) -> FrameId {
        let frame = self.arena.add_lent(class);
        let at = frame.0 as usize;
        if self.frames.len() <= at {
            self.frames.resize_with(at + 1, || None);
        }
        self.frames[at] = Some(memory);
        frame
    }

    fn serve_claims(&mut self) {
        while let Some(claim) = self.claims.pop_front() {
            let progress = match claim {
                Claim::Allocate { tenant, left, got, asked } => self.serve_allocation(tenant, left, got, asked),
                Claim::Unmanaged { tenant, bytes, asked } => self.serve_room(tenant, bytes, asked),
            };
            if progress == Progress::Waits {
                return;
            }
        }
        // Last: who claims anything has the baton, and is waited for before it can be taken away.
        loop {
            let before = self.swap_in.as_ref().map(|swap_in| swap_in.tenant);
            self.serve_arrival();
            // When one has ended, the next may have been decided upon.
            if self.swap_in.as_ref().map(|swap_in| swap_in.tenant) == before {
                break;
            }
        }
    }

    fn serve_allocation(
        &mut self,
        id: TenantId,
        mut left: VecDeque<SizeClass>,
        mut got: Vec<(SizeClass, FrameId)>,
        asked: Instant,
    ) -> Progress {
        let mut soon = PerClass::default();
        let (mut missing, mut waiting) = (PerClass::default(), VecDeque::new());
        while let Some(class) = left.pop_front() {
            match self.find_frame(class, true, &mut soon) {
                Found::Frame(frame) => got.push((class, frame)),
                Found::Soon => waiting.push_back(class),
                Found::None => {
                    missing[class.index()] += 1;
                    waiting.push_back(class);
                }
            }
        }
        if waiting.is_empty() {
            // The tenant lays them out in this order: large ones first, as they were cut.
            got.sort_by_key(|(class, _)| Reverse(*class));
            self.lend(id, &got, asked);
            return Progress::Done;
        }
        if bytes_of(&missing) > 0 {
            self.evict(missing, id);
            if !self.is_anything_coming() && !self.part_corunners() {
                let bytes = got.iter().map(|(class, _)| class.bytes()).sum::<u64>() + bytes_of(&missing);
                got.into_iter().for_each(|(_, frame)| self.arena.give_back(frame));
                match self.who_may_give_back(id) {
                    // It is to ask again, and lets others have their turns meanwhile.
                    Some(holder) => self.put_off(id, holder, bytes),
                    None => self.deny(id, Full::Held, bytes),
                }
                return Progress::Done;
            }
        }
        self.claims.push_front(Claim::Allocate { tenant: id, left: waiting, got, asked });
        Progress::Waits
    }

    fn serve_room(&mut self, id: TenantId, bytes: u64, asked: Instant) -> Progress {
        let most = self.least_capacity();
        let mut free = self.gpu.free_memory().unwrap_or(u64::MAX);
        if free < bytes {
            self.part_corunners();
        }
        // Everybody's memory has to fit the arena, beside what cannot move of the others.
        while free < bytes && self.arena.capacity() > most.max(SizeClass::ALL[0].bytes()) {
            if let Some((frame, class)) = self.arena.remove_free() {
                self.unmake(frame);
                self.arena.set_capacity((self.arena.capacity() - class.bytes()).max(most));
                free = self.gpu.free_memory().unwrap_or(u64::MAX);
                continue;
            }
            if asked.elapsed() < Duration::from_secs(5) {
                self.evict(at_least(bytes - free), id);
                if self.is_anything_coming() {
                    self.claims.push_front(Claim::Unmanaged { tenant: id, bytes, asked });
                    return Progress::Waits;
                }
            }
            break;
        }
        self.tenants.answer(id, &Answer::UnmanagedMemory { bytes: free }, &[]);
        Progress::Done
    }

    /// A frame of this class: a free one, or a new one, if need be in exchange for free ones of other classes.
    pub(super) fn find_frame(&mut self, class: SizeClass, clean: bool, soon: &mut PerClass) -> Found {
        if let Some(frame) = self.arena.take(class, clean) {
            return Found::Frame(frame);
        }
        let promised = &mut soon[class.index()];
        if *promised < self.arena.scrubbing(class) || (clean && self.scrub(Some(class), class.bytes())) {
            *promised += 1;
            return Found::Soon;
        }
        loop {
            if self.arena.fits(class) {
                match self.gpu.make(class.bytes()) {
                    Ok(memory) => {
                        let frame = self.enter_frame(class, memory);
                        if !clean {
                            return Found::Frame(frame);
                        }
                        // The driver does not promise what is in it.
                        self.arena.give_back(frame);
                        self.scrub(Some(class), class.bytes());
                        *promised += 1;
                        return Found::Soon;
                    }
                    Err(error) => {
                        // Contexts and code beside the arena have taken what was to be its memory.
                        log::warn!("the arena is smaller for now: {error}");
                        self.arena.set_capacity(self.arena.bytes().all());
                    }
                }
            }
            let Some((frame, _)) = self.arena.surplus(Some(class)) else { return Found::None };
            self.unmake(frame);
        }
    }

    pub(super) fn unmake(&mut self, frame: FrameId) {
        if let Some(memory) = self.frames[frame.0 as usize].take()
            && let Err(error) = self.gpu.unmake(memory)
        {
            log::error!("releasing memory: {error}");
        }
    }

    /// Starts to overwrite dirty frames, of one class or any. Says whether there was one.
    fn scrub(&mut self, class: Option<SizeClass>, most: u64) -> bool {
        let (mut frames, mut pieces, mut bytes) = (Vec::new(), Vec::new(), 0);
        while bytes < most
            && let Some(frame) = self.arena.scrub_next(class)
        {
            let size = self.arena.class(frame).bytes();
            if let Some(memory) = &self.frames[frame.0 as usize] {
                pieces.push(Piece { device: memory.address, host: None, bytes: size });
            }
            frames.push(frame);
            bytes += size;
        }
        if frames.is_empty() {
            return false;
        }
        // SAFETY: the books say that these frames are nobody's until the job's end.
        let job = unsafe { self.mover.fill(pieces, self.options.poison.unwrap_or(0)) };
        self.tasks.insert(job, Task::Scrub { frames, bytes });
        true
    }

    /// Makes extents of others go, until as many of each class are on their way out as are missing, or, where
    /// there are not so many, as many bytes. Says how many bytes are still missing then.
    pub(super) fn evict(&mut self, mut missing: PerClass, except: TenantId) -> u64 {
        // Of who does not answer, nothing can be expected.
        let leaving: Vec<TenantId> = self.tenants.index().leaving().collect();
        for tenant in leaving.into_iter().filter_map(|id| self.tenants.get(id)) {
            if !tenant.is_movable() || tenant.is_late() {
                continue;
            }
            for (class, count) in SizeClass::ALL.into_iter().zip(tenant.extents().counts().leaving) {
                subtract(&mut missing, class, count);
            }
        }
        if bytes_of(&missing) == 0 {
            return 0;
        }
        for same_class in [true, false] {
            self.take_reserved(&mut missing, same_class, except);
        }
        if bytes_of(&missing) == 0 {
            return 0;
        }
        // Frames of the wrong size do as well, but have to be exchanged for others first.
        for same_class in [true, false] {
            let mut last = None;
            while bytes_of(&missing) > 0
                && let Some(victim) = self.tenants.index().victim_after(last)
            {
                last = Some(victim);
                let id = victim.1;
                let has_any = |tenant: &Tenant| {
                    let evictable = &tenant.extents().counts().evictable;
                    !tenant.is_late()
                        && (!same_class || evictable.iter().zip(&missing).any(|(has, lacks)| *has.min(lacks) > 0))
                };
                if id != except && self.is_off_the_gpu(id) && self.tenants.get(id).is_some_and(has_any) {
                    self.evict_from(id, &mut missing, same_class, except);
                }
            }
        }
        bytes_of(&missing)
    }

    /// Takes frames back that were reserved for tenants which are not on the GPU: nothing has to be copied for that.
    fn take_reserved(&mut self, missing: &mut PerClass, same_class: bool, except: TenantId) {
        let ids = self.tenants.index().reserved();
        for id in ids.into_iter().filter(|id| *id != except) {
            if !self.is_off_the_gpu(id) {
                continue;
            }
            let mut group = Group::default();
            let has_some = |tenant: &Tenant| tenant.is_evictable() && tenant.extents().counts().reserved > 0;
            if !self.tenants.get(id).is_some_and(has_some) {
                continue;
            }
            let is_reserved = |extent: &Extent| matches!(extent.state(), ExtentState::Reserved { .. });
            let Some(mut extents) = self.tenants.extents(id) else { continue };
            // What is used last goes first here too: it was reserved last.
            let reserved = extents.iter().rev().filter(|(_, entry)| is_reserved(entry));
            let reserved: Vec<(ExtentId, SizeClass)> = reserved.map(|(id, entry)| (id, entry.class())).collect();
            for (extent, class) in reserved {
                if bytes_of(missing) == 0 || (same_class && missing[class.index()] == 0) {
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

    pub(super) fn evict_from(&mut self, victim: TenantId, missing: &mut PerClass, same_class: bool, except: TenantId) {
        if !self.options.hash {
            // Nothing waits for that, but what its memory points to has to be known when it comes again.
            self.scan(victim);
        }
        // What is used last goes first: what stays can be used at once when the tenant runs again.
        let tenant = &self.tenants[victim];
        let resident = |(id, extent): (ExtentId, &Extent)| extent.is_evictable().then_some((id, extent.class()));
        let mut order: Vec<(ExtentId, SizeClass)> = tenant.extents().iter().filter_map(resident).collect();
        tenant.history.order(&mut order, |(id, _)| *id);
        let mut group = Group::default();
        for (extent, class) in order.into_iter().rev() {
            if same_class && missing[class.index()] == 0 {
                continue;
            }
            if bytes_of(missing) == 0 {
                break;
            }
            match self.start_leaving(victim, extent, except, &mut group) {
                Leaves::Now => {}
                Leaves::Soon => self.scan(victim),
                Leaves::NoRoom => break,
            }
            subtract(missing, class, 1);
            if group.is_full() {
                self.submit_leaving(victim, std::mem::take(&mut group));
            }
        }
        self.submit_leaving(victim, group);
    }

    /// Sends one extent on its way out.
    fn start_leaving(&mut self, id: TenantId, extent: ExtentId, except: TenantId, group: &mut Group) -> Leaves {
        let Some(entry) = self.tenants.get(id).and_then(|tenant| tenant.extents().get(extent)) else {
            return Leaves::NoRoom;
        };
        let parts = match entry.copies(self.options.hash) {
            Copies::Unknown => return Leaves::Soon,
            Copies::Nothing => Vec::new(),
            Copies::Parts(parts) => parts,
        };
        let bytes = entry.class().bytes();
        let new_runs = match entry.runs() {
            Some(_) => None,
            None => match self.room_in_pool(bytes, (id, extent), except) {
                Some(runs) => Some(runs),
                None => return Leaves::NoRoom,
            },
        };
        let Some(mut extents) = self.tenants.extents(id) else { return Leaves::NoRoom };
        let Some(frame) = extents.leave(extent, new_runs, parts.is_empty()) else { return Leaves::NoRoom };
        let address = self.frames[frame.0 as usize].as_ref().map_or(0, |memory| memory.address);
        group.leaving.push(extent);
        if !parts.is_empty() {
            group.extents.push(extent);
            let runs = extents.get(extent).and_then(Extent::runs).unwrap_or_default();
            for part in &parts {
                group.add_part(address, runs, part.clone(), |run| self.slabs.address(run));
            }
        }
        self.ledger.left(bytes, parts.iter().map(|part| part.end - part.start).sum());
        Leaves::Now
    }

    /// Room in the pool. If there is none, what is in the arena too loses its place there: first what the arriving
    /// tenant has, because it is about to write to it.
    fn room_in_pool(
        &mut self,
        bytes: u64,
        (leaving, extent): (TenantId, ExtentId),
        arriving: TenantId,
    ) -> Option<Vec<Run>> {
        if let Some(runs) = self.pool.take(bytes) {
            return Some(runs);
        }
        let mut order: Vec<TenantId> = self.tenants.ids().collect();
        order.sort_by_key(|id| (*id != arriving, *id == leaving));
        for id in order {
            let Some(mut extents) = self.tenants.extents(id) else { continue };
            let backed = extents.iter().filter(|(_, entry)| entry.state().is_resident() && entry.runs().is_some());
            let backed: Vec<ExtentId> = backed.map(|(number, _)| number).collect();
            for number in backed {
                if (id, number) != (leaving, extent)
                    && let Some(runs) = extents.give_up_backing(number)
                {
                    self.pool.give_back(runs);
                    if let Some(runs) = self.pool.take(bytes) {
                        return Some(runs);
                    }
                }
            }
        }
        None
    }

    /// Queues a group's copies.
    pub(super) fn submit(&mut self, lane: Lane, tenant: TenantId, group: Group) {
        if group.extents.is_empty() {
            return;
        }
        // SAFETY: the extents' table says that these frames and runs belong to these extents until the job has
        // ended; what leaves is not written, because its tenant is off the GPU, and what arrives is not mapped.
        let job = unsafe { self.mover.copy(lane, group.pieces) };
        self.tasks.insert(job, Task::Copy { tenant, extents: group.extents, bytes: group.bytes });
    }

    /// Queues a group's copies out, and has the tenant unmap it.
    fn submit_leaving(&mut self, id: TenantId, group: Group) {
        if group.leaving.is_empty() {
            return;
        }
        let leaving = group.leaving.clone();
        self.submit(Lane::Out, id, group);
        for extents in leaving.chunks(MAX_LISTED) {
            let Some(tenant) = self.tenants.get_mut(id) else { return };
            let (batch, extents) = (tenant.add_batch(Batch::Unmap(extents.to_vec())), extents.to_vec());
            self.tenants.tell(id, &MemoryCommand::Unmap { batch, extents });
        }
    }

    /// A job has ended, well or not.
    pub(super) fn task_ended(&mut self, lane: Lane, task: Task, well: bool) {
        match task {
            Task::Scrub { frames, .. } => {
                debug_assert!(!is_copy(lane));
                for frame in frames {
                    self.arena.scrubbed(frame);
                    if !well {
                        // Not overwritten after all: it must not be lent as it is.
                        if let Some(frame) = self.arena.withdraw(frame) {
                            self.unmake(frame);
                        }
                    }
                }
            }
            Task::Copy { tenant, extents, .. } if !self.tenants.has(tenant) => {
                extents.into_iter().for_each(|extent| self.release_orphan(tenant, extent));
            }
            Task::Copy { tenant, extents, .. } if !well => {
                // Its contents cannot be trusted any more: a tenant must never go on with wrong ones.
                let _ = extents;
                self.kill(tenant, "its memory could not be copied");
            }
            Task::Copy { tenant, extents, .. } if lane == Lane::Out => {
                for extent in extents {
                    self.half_left(tenant, extent, Half::Copied);
                }
            }
            Task::Copy { tenant, extents, .. } => self.arrived(tenant, extents),
        }
    }

    /// Half of an eviction is done; when both are, the frame is free.
    pub(super) fn half_left(&mut self, id: TenantId, extent: ExtentId, half: Half) {
        let free = self.tenants.extents(id).and_then(|mut extents| extents.left(extent, half));
        if let Some(frame) = free {
            self.release(frame);
            if self.options.poison.is_some() {
                self.scrub(None, SCRUB_BYTES);
            }
        }
    }

    /// Whether anything under way will change what claims find: otherwise waiting is of no use.
    pub(super) fn is_anything_coming(&mut self) -> bool {
        let answering: Vec<TenantId> = self.tenants.index().answering().collect();
        let answers = |tenant: &Tenant| tenant.is_about_to_answer() || tenant.is_about_to_close();
        let answers = answering.into_iter().filter_map(|id| self.tenants.get(id)).any(answers);
        answers
            || !self.tasks.is_empty()
            || !self.scans.is_empty()
            || self.quarantine.iter().any(|quarantine| quarantine.is_fresh())
            || self.preparing
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
        if !std::mem::replace(&mut tenant.is_put_off, true) {
            log::warn!("{} waits for {} MiB that {holder} has, which does not answer", tenant.name, bytes >> 20);
        }
        self.tenants.answer(id, &Answer::TryAgain, &[]);
    }

    /// Whether the arena is smaller than the user wanted.
    pub(super) fn is_squeezed(&self) -> bool {
        self.arena.capacity() < self.arena.configured()
    }

    /// Lets the arena grow back as far as there is memory.
    pub(super) fn unsqueeze(&mut self) {
        if self.is_squeezed()
            && let Ok(free) = self.gpu.free_memory()
        {
            let could = self.arena.bytes().all() + free.saturating_sub(LEFT_FREE);
            self.arena.set_capacity(self.arena.capacity().max(could));
        }
    }
}

/// Extents whose copies are queued as one job.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) extents: Vec<ExtentId>,
    /// All that leave, also those that need no copy.
    leaving: Vec<ExtentId>,
    pieces: Vec<Piece>,
    /// What is copied over the bus.
    bytes: u64,
    /// What that is of memory.
    size: u64,
}

impl Group {
    /// Adds the copy of a part of an extent, between its frame and its runs.
    pub(super) fn add_part(&mut self, frame: u64, runs: &[Run], part: Range<u64>, address: impl Fn(Run) -> usize) {
        let mut at = 0;
        for run in runs {
            let (start, end) = (part.start.max(at), part.end.min(at + run.bytes));
            if start < end {
                let host = address(Run { at: run.at + (start - at), bytes: end - start });
                self.pieces.push(Piece { device: frame + start, host: Some(host), bytes: end - start });
            }
            at += run.bytes;
        }
        self.bytes += part.end - part.start;
        self.size += part.end - part.start;
    }

    /// Adds zeros in a part of a frame.
    pub(super) fn add_zeros(&mut self, frame: u64, part: Range<u64>) {
        self.pieces.push(Piece { device: frame + part.start, host: None, bytes: part.end - part.start });
        self.size += part.end - part.start;
    }

    pub(super) fn is_full(&self) -> bool {
        self.size >= GROUP_BYTES || self.extents.len().max(self.leaving.len()) >= GROUP_EXTENTS
    }
}
