//! Frames: free ones, new ones, and dirty ones that are overwritten before somebody else gets them.

use baton_contract::memory::SizeClass;

use super::transfer::Task;
use super::{Access, Memory};
use crate::device::gpu;
use crate::device::mover::{End, Lane, Piece};
use crate::device::slabs::Prepared;
use crate::server::Isolation;
use baton_books::arena::{FrameId, Keepsake, Owner};
use baton_books::sizes::PerClass;
use baton_policy::arbiter::TenantId;

/// Free frames are overwritten ahead of need in jobs of about so much.
pub(super) const SCRUB_BYTES: u64 = 512 << 20;

/// What came of looking for a frame.
pub(super) enum Found {
    Frame(FrameId),
    /// One is being overwritten and will do.
    Soon,
    /// Others have to go first.
    None,
}

impl Access<'_> {
    /// Who may have the frames that a tenant has had.
    pub(super) fn owner_of(&self, id: TenantId) -> Owner {
        match self.memory.rules.isolation {
            Isolation::Users => {
                Owner::of_user(self.tenants.get(id).and_then(|tenant| tenant.connection.control.guest()))
            }
            Isolation::Strict => Owner::of_tenant(id.0),
        }
    }
}

impl Memory {
    /// What one tenant may have, in bytes: the arena less the headroom.
    pub(in crate::server) fn offered(&self) -> u64 {
        self.arena.capacity().saturating_sub(self.rules.headroom)
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

    pub(super) fn enter_frame(&mut self, class: SizeClass, memory: gpu::Memory) -> FrameId {
        let frame = self.arena.add_lent(class);
        let at = frame.0 as usize;
        if self.frames.len() <= at {
            self.frames.resize_with(at + 1, || None);
        }
        self.frames[at] = Some(memory);
        frame
    }

    /// A frame of this class: a free one, or a new one, if need be in exchange for free ones of other classes or that were others'.
    pub(super) fn find_frame(&mut self, class: SizeClass, clean: bool, owner: Owner, soon: &mut PerClass) -> Found {
        if let Some(frame) = self.arena.take(class, clean, owner) {
            return Found::Frame(frame);
        }
        let wanted = Some((class, owner));
        let promised = &mut soon[class.index()];
        if *promised < self.arena.scrubbing(class, owner) || (clean && self.scrub(wanted, class.bytes())) {
            *promised += 1;
            return Found::Soon;
        }
        loop {
            if self.arena.fits(class) {
                match self.gpu.make(class.bytes()) {
                    Ok(memory) => {
                        let frame = self.enter_frame(class, memory);
                        if !clean {
                            self.arena.belongs_to(frame, owner);
                            return Found::Frame(frame);
                        }
                        // The driver does not promise what is in it.
                        self.arena.give_back(frame);
                        self.scrub(wanted, class.bytes());
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
            if clean && self.scrub_kept(class, owner) {
                *promised += 1;
                return Found::Soon;
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

    /// Starts to overwrite dirty frames, of one class for an owner, or any. Says whether there was one.
    pub(super) fn scrub(&mut self, wanted: Option<(SizeClass, Owner)>, most: u64) -> bool {
        let (mut frames, mut bytes) = (Vec::new(), 0);
        while bytes < most
            && let Some(frame) = self.arena.scrub_next(wanted)
        {
            frames.push(frame);
            bytes += self.arena.class(frame).bytes();
        }
        self.overwrite(frames)
    }

    /// The same with one that was kept, for somebody who needs a clean one.
    pub(super) fn scrub_kept(&mut self, class: SizeClass, owner: Owner) -> bool {
        let frame = self.arena.scrub_kept(class, owner);
        self.overwrite(frame.into_iter().collect())
    }

    /// The same with one that somebody has mapped whose it is no more.
    pub(super) fn scrub_held(&mut self, class: SizeClass, owner: Owner) -> bool {
        let frame = self.arena.scrub_held(class, owner);
        self.overwrite(frame.into_iter().collect())
    }

    fn overwrite(&mut self, frames: Vec<FrameId>) -> bool {
        if frames.is_empty() {
            return false;
        }
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        let other = End::Bytes(self.rules.poison.unwrap_or(0));
        for frame in &frames {
            let size = self.arena.class(*frame).bytes();
            if let Some(memory) = &self.frames[frame.0 as usize] {
                pieces.push(Piece { device: memory.address, other, bytes: size });
            }
            bytes += size;
        }
        // SAFETY: the books say that these frames are nobody's until the job's end.
        let job = unsafe { self.mover.submit(Lane::Fill, pieces) };
        self.tasks.insert(job, Task::Scrub { frames, bytes });
        true
    }

    pub(super) fn slab_prepared(&mut self, prepared: Prepared) {
        match prepared {
            Prepared::Slab(number, file) => {
                self.pool.slab_ready(number);
                self.slab_files.push(file);
            }
            Prepared::Failed(why) => {
                log::warn!("the host pool ends at {} MiB: {why}", self.pool.ready() >> 20);
                self.pool.no_more();
            }
        }
        self.preparing = self.pool.ready() < self.pool.bytes();
        if !self.preparing {
            log::info!("host pool of {} MiB is ready", self.pool.ready() >> 20);
        }
    }

    /// These frames are read until the look ends, whatever becomes of their tenant.
    pub(super) fn begin_look(&mut self, frames: &[FrameId]) {
        for frame in frames {
            *self.scanning.entry(*frame).or_default() += 1;
        }
    }

    /// That is over.
    pub(super) fn end_look(&mut self, frames: &[FrameId]) {
        for frame in frames {
            let left = self.scanning.entry(*frame).or_insert(1);
            *left -= 1;
            if *left == 0 {
                self.scanning.remove(frame);
                if let Some(at) = self.released.iter().position(|released| released == frame) {
                    self.released.swap_remove(at);
                    self.free_frame(*frame);
                }
            }
        }
    }

    /// A frame that its tenant no longer has. One that is being looked at is free when that is over.
    pub(super) fn release(&mut self, frame: FrameId) {
        if self.scanning.contains_key(&frame) {
            self.released.push(frame);
        } else {
            self.free_frame(frame);
        }
    }

    /// A frame whose contents its tenant may want back. None if that cannot be.
    pub(super) fn keep(&mut self, frame: FrameId) -> Option<Keepsake> {
        let can_be = self.rules.keep && !self.is_in_use(frame);
        if !can_be {
            self.release(frame);
        }
        can_be.then(|| self.arena.keep(frame))
    }

    /// A frame that its tenant has left, and a scan has found to hold zeros only: the next one need not write them again.
    pub(super) fn release_zeros(&mut self, frame: FrameId) {
        // Clean ones are poisoned.
        if self.rules.poison.is_some() || self.is_in_use(frame) {
            return self.release(frame);
        }
        self.arena.give_back_zeros(frame);
    }

    /// Whether others may still look at a frame, or write to it.
    fn is_in_use(&self, frame: FrameId) -> bool {
        self.scanning.contains_key(&frame) || self.reachable.contains(&frame)
    }

    /// A frame is nobody's any more.
    pub(super) fn free_frame(&mut self, frame: FrameId) {
        if self.reachable.remove(&frame) {
            self.arena.remove_lent(frame);
            self.unmake(frame);
        } else {
            self.arena.give_back(frame);
        }
    }
}
