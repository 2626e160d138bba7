//! Frames: free ones, new ones, and dirty ones that are overwritten before another owner gets them.
//!
//! [`Frames`] owns the arena's books and the GPU's memory behind them. A frame that its tenant has left stays unchanged while
//! anything still reads it.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use baton_contract::memory::SizeClass;

use crate::device::gpu::{self, Gpu, GpuError};
use crate::device::mover::{End, Finished, JobId, Lane, Mover, Piece};
use crate::device::wake::Waker;
use crate::keeper::{FrameFacts, Keeper, KeptFrame, Key, LetGo, Reach};
use crate::server::tenants::peer::Sent;
use baton_books::arena::{Arena, FrameId, Keepsake, Owner};
use baton_books::sizes::PerClass;

/// Approximate size of the jobs that overwrite free frames ahead of need.
pub(super) const SCRUB_BYTES: u64 = 512 << 20;

/// Result of the search for a frame.
pub(super) enum Found {
    Frame(FrameId),
    /// A suitable frame is being overwritten, or there is room for one when the keeper has let go of others.
    Soon,
    /// Others have to leave first.
    None,
}

/// Frames that come soon and are wanted already.
#[derive(Default)]
pub(super) struct Promised {
    /// Of those that are being overwritten.
    scrubbing: PerClass,
    /// The bytes of those for which there will be room.
    leaving: u64,
}

/// Frames that were overwritten.
pub(super) struct Scrubbed {
    pub(super) bytes: u64,
    pub(super) time: Range<Instant>,
}

/// Frames that are being overwritten, and their bytes.
struct Scrub {
    frames: Vec<FrameId>,
    bytes: u64,
}

/// All memory of the arena.
pub(super) struct Frames {
    gpu: Gpu,
    arena: Arena,
    /// The memory behind each frame.
    made: Vec<Option<gpu::Memory>>,
    filler: Mover,
    filled: Receiver<Finished>,
    scrubs: HashMap<JobId, Scrub>,
    /// Frames that the keeper is to let go of, in this order, and their bytes.
    leaving: VecDeque<(LetGo, u64)>,
    /// The byte that frames are overwritten with instead of zeros, so that a tenant which relies on zeros shows.
    poison: Option<u8>,
    /// True if a tenant may find its contents again in a frame that it has left.
    keeps: bool,
    /// Frames that are being read, with the number of their readers.
    read: HashMap<FrameId, usize>,
    /// Frames being read that their tenants no longer have. They become free when the last reader ends.
    released: Vec<FrameId>,
    /// Frames that others than their tenants may have mapped.
    reachable: HashMap<FrameId, Reach>,
    keeper: Keeper,
}

impl Frames {
    /// Creates an arena of `bytes` bytes, without any frame yet. Frames are overwritten with `poison` instead of zeros, if it is
    /// given.
    pub(super) fn new(
        gpu: Gpu,
        bytes: u64,
        poison: Option<u8>,
        keep: bool,
        (keeper, waker): (Keeper, &Waker),
    ) -> Result<Self, GpuError> {
        let (reports, filled) = channel();
        Ok(Self {
            filler: Mover::start(&gpu, &[Lane::Fill], &reports, waker)?,
            filled,
            gpu,
            arena: Arena::new(bytes),
            made: Vec::new(),
            scrubs: HashMap::new(),
            leaving: VecDeque::new(),
            poison,
            keeps: keep && poison.is_none(),
            read: HashMap::new(),
            released: Vec::new(),
            reachable: HashMap::new(),
            keeper,
        })
    }

    /// Takes over frames that another coordinator has lent, each for the owner that may reuse it. There are no others yet.
    ///
    /// # Errors
    ///
    /// When one of them cannot be had: without it, its tenant would compute something else.
    pub(super) fn adopt(&mut self, frames: Vec<(KeptFrame, Owner)>) -> std::io::Result<()> {
        let mut adopted = Vec::new();
        for (KeptFrame { number, bytes, descriptor, reach }, owner) in frames {
            let frame = FrameId(number);
            let class = SizeClass::ALL.into_iter().find(|class| class.bytes() == bytes);
            let class = class.ok_or(std::io::ErrorKind::InvalidData)?;
            let memory = self.gpu.adopt(descriptor, bytes);
            let memory = memory.map_err(|error| std::io::Error::other(baton_messages::frame_cannot_be_had(error)))?;
            if reach != Reach::Tenants {
                self.reachable.insert(frame, reach);
            }
            self.put(frame, memory);
            adopted.push((frame, class, owner));
        }
        self.arena.restore(&adopted);
        Ok(())
    }

    /// The GPU that the frames belong to.
    pub(super) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The arena's books.
    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// True if the arena is smaller than the user wanted.
    pub(super) fn is_squeezed(&self) -> bool {
        self.arena.capacity() < self.arena.configured()
    }

    /// Sets the number of bytes that the arena may have from now on.
    pub(super) fn set_capacity(&mut self, bytes: u64) {
        self.arena.set_capacity(bytes);
    }

    /// True if overwritten frames hold something other than zeros, which exposes programs that rely on zeros.
    pub(super) fn is_poisoned(&self) -> bool {
        self.poison.is_some()
    }

    /// The memory behind a frame.
    pub(super) fn memory(&self, frame: FrameId) -> Option<&gpu::Memory> {
        self.made.get(frame.0 as usize)?.as_ref()
    }

    /// The descriptor by which a frame is sent.
    pub(super) fn descriptor(&self, frame: FrameId) -> Option<Sent> {
        self.memory(frame).map(|memory| Sent::clone(&memory.descriptor))
    }

    /// Takes the reports about frames that were overwritten.
    pub(super) fn hear(&mut self) -> Vec<Scrubbed> {
        let mut scrubbed = Vec::new();
        while let Ok(Finished { lane, job, time, result }) = self.filled.try_recv() {
            let Some(Scrub { frames, bytes }) = self.scrubs.remove(&job) else { continue };
            frames.iter().for_each(|frame| self.arena.on_scrubbed(*frame));
            match result {
                Ok(()) => scrubbed.push(Scrubbed { bytes, time }),
                Err(error) => {
                    baton_messages::error!(copy_failed(format_args!("{lane:?}"), error));
                    // These frames must not be lent as they are.
                    for frame in frames {
                        if let Some(frame) = self.arena.withdraw(frame) {
                            self.unmake(frame);
                        }
                    }
                }
            }
        }
        scrubbed
    }

    /// True if any frames are being overwritten.
    pub(super) fn is_scrubbing(&self) -> bool {
        !self.scrubs.is_empty()
    }

    /// Heeds what the keeper has let go of.
    pub(super) fn heed_keeper(&mut self) {
        while let Some((_, bytes)) = self.leaving.pop_front_if(|(number, _)| self.keeper.has_let_go(*number)) {
            self.arena.has_left(bytes);
        }
    }

    /// True if the keeper is to let go of any frames.
    pub(super) fn is_any_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Takes a free frame of this class.
    pub(super) fn take(&mut self, class: SizeClass, clean: bool, owner: Owner) -> Option<FrameId> {
        self.arena.take(class, clean, owner)
    }

    /// Takes a free frame of this class that an unresponsive tenant still has mapped.
    pub(super) fn take_held(&mut self, class: SizeClass, clean: bool, owner: Owner) -> Option<FrameId> {
        self.arena.take_held(class, clean, owner)
    }

    /// Takes the frame that its tenant left last, if no other tenant has needed it since.
    pub(super) fn take_kept(&mut self, frame: FrameId, keepsake: Keepsake) -> bool {
        self.arena.take_kept(frame, keepsake)
    }

    /// Takes this frame, if it is free.
    pub(super) fn take_this(&mut self, frame: FrameId) -> bool {
        self.arena.take_this(frame)
    }

    /// Gives back a frame that is not needed after all.
    pub(super) fn give_back(&mut self, frame: FrameId) {
        self.arena.give_back(frame);
    }

    /// Drops a keepsake: the tenant no longer wants its contents of this frame back.
    pub(super) fn let_go(&mut self, frame: FrameId, keepsake: Keepsake) {
        self.arena.let_go(frame, keepsake);
    }

    /// Holds a frame that an unresponsive tenant still has mapped.
    pub(super) fn hold(&mut self, frame: FrameId) {
        self.arena.hold(frame);
    }

    /// Ends the hold: the tenant no longer has the frame mapped.
    pub(super) fn unhold(&mut self, frame: FrameId) {
        self.arena.unhold(frame);
    }

    /// Marks a frame that others than its tenants may have mapped from now on, even after its tenants have left it.
    pub(super) fn make_reachable(&mut self, frame: FrameId, reach: Reach) {
        let before = self.reachable.entry(frame).or_default();
        if *before < reach {
            *before = reach;
            if let Some(memory) = self.memory(frame) {
                self.keeper.hold(Key::Frame(frame.0), &FrameFacts { bytes: memory.bytes, reach }.encode(), &[]);
            }
        }
    }

    /// True if others may have the frame mapped at any time.
    pub(super) fn is_always_reachable(&self, frame: FrameId) -> bool {
        self.reachable.get(&frame) == Some(&Reach::Always)
    }

    /// Finds a frame of this class: a free one, or a new one. If necessary, the new one replaces free frames of other classes or of
    /// other owners.
    pub(super) fn find(&mut self, class: SizeClass, clean: bool, owner: Owner, promised: &mut Promised) -> Found {
        if let Some(frame) = self.arena.take(class, clean, owner) {
            return Found::Frame(frame);
        }
        let wanted = Some((class, owner));
        let Promised { scrubbing, leaving } = promised;
        let scrubbing = &mut scrubbing[class.index()];
        if *scrubbing < self.arena.scrubbing(class, owner) || (clean && self.scrub(wanted, class.bytes())) {
            *scrubbing += 1;
            return Found::Soon;
        }
        loop {
            if self.arena.fits(class) {
                match self.gpu.make(class.bytes()) {
                    Ok(memory) => {
                        let frame = self.enter(class, memory);
                        if !clean {
                            self.arena.belongs_to(frame, owner);
                            return Found::Frame(frame);
                        }
                        // The driver makes no promise about its contents.
                        self.arena.give_back(frame);
                        self.scrub(wanted, class.bytes());
                        *scrubbing += 1;
                        return Found::Soon;
                    }
                    Err(error) => {
                        // Contexts and code beside the arena have taken memory that was meant for it.
                        baton_messages::warn!(arena_is_smaller(error));
                        self.arena.set_capacity(self.arena.bytes().all());
                    }
                }
            }
            if clean && self.scrub_kept(class, owner) {
                *scrubbing += 1;
                return Found::Soon;
            }
            if self.arena.will_fit(class, *leaving) {
                *leaving += class.bytes();
                return Found::Soon;
            }
            let Some((frame, _)) = self.arena.surplus(Some(class)) else { return Found::None };
            self.unmake(frame);
        }
    }

    /// Makes a free frame of this class in exchange for free ones of classes that have more than wanted. False too if there is room for it
    /// soon.
    pub(super) fn make_in_exchange(&mut self, class: SizeClass, wanted: &PerClass) -> bool {
        while !self.arena.fits(class) {
            if self.arena.will_fit(class, 0) {
                return false;
            }
            let spare = |other: &SizeClass| self.arena.free(*other) > wanted[other.index()];
            let Some(other) = SizeClass::ALL.into_iter().rev().find(spare) else { return false };
            let Some(frame) = self.arena.remove_free_of(other) else { return false };
            self.unmake(frame);
        }
        self.make(class)
    }

    /// Makes a free frame of this class.
    pub(super) fn make(&mut self, class: SizeClass) -> bool {
        let Ok(memory) = self.gpu.make(class.bytes()) else { return false };
        // The driver makes no promise about its contents.
        let frame = self.enter(class, memory);
        self.arena.give_back(frame);
        true
    }

    fn enter(&mut self, class: SizeClass, memory: gpu::Memory) -> FrameId {
        let frame = self.arena.add_lent(class);
        // Before any tenant gets it.
        self.have_kept(frame, &memory);
        self.put(frame, memory);
        frame
    }

    fn have_kept(&self, frame: FrameId, memory: &gpu::Memory) {
        let reach = self.reachable.get(&frame).copied().unwrap_or_default();
        let facts = FrameFacts { bytes: memory.bytes, reach };
        self.keeper.hold(Key::Frame(frame.0), &facts.encode(), &[memory.descriptor.as_fd()]);
    }

    /// Has the keeper hold all frames.
    pub(super) fn keep_all(&self) {
        for (number, memory) in (0..).zip(&self.made) {
            if let Some(memory) = memory {
                self.have_kept(FrameId(number), memory);
            }
        }
    }

    /// Remembers the memory behind a frame.
    fn put(&mut self, frame: FrameId, memory: gpu::Memory) {
        let at = frame.0 as usize;
        if self.made.len() <= at {
            self.made.resize_with(at + 1, || None);
        }
        self.made[at] = Some(memory);
    }

    /// Gives the memory of a free frame back to the driver, if there is one.
    pub(super) fn unmake_free(&mut self) -> bool {
        let frame = self.arena.remove_free();
        frame.map(|(frame, _)| self.unmake(frame)).is_some()
    }

    /// Lets go of a frame of so many bytes that another coordinator has left, and that is not in the books.
    pub(super) fn let_go_of_kept(&mut self, frame: FrameId, bytes: u64) {
        let number = self.keeper.let_go(Key::Frame(frame.0));
        if !self.keeper.has_let_go(number) {
            self.arena.is_leaving(bytes);
            self.leaving.push_back((number, bytes));
        }
    }

    fn unmake(&mut self, frame: FrameId) {
        let Some(memory) = self.made[frame.0 as usize].take() else { return };
        let bytes = memory.bytes;
        if let Err(error) = self.gpu.unmake(memory) {
            baton_messages::error!(release_failed(error));
        }
        self.let_go_of_kept(frame, bytes);
    }

    /// Starts to overwrite dirty frames, of one class for an owner, or any. Returns true if there was one.
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

    /// Starts to overwrite a kept frame, for an owner that needs a clean one.
    pub(super) fn scrub_kept(&mut self, class: SizeClass, owner: Owner) -> bool {
        let frame = self.arena.scrub_kept(class, owner);
        self.overwrite(frame.into_iter().collect())
    }

    /// Starts to overwrite a held frame, which its former tenant still has mapped.
    pub(super) fn scrub_held(&mut self, class: SizeClass, owner: Owner) -> bool {
        let frame = self.arena.scrub_held(class, owner);
        self.overwrite(frame.into_iter().collect())
    }

    fn overwrite(&mut self, frames: Vec<FrameId>) -> bool {
        if frames.is_empty() {
            return false;
        }
        let (mut pieces, mut bytes) = (Vec::new(), 0);
        for frame in &frames {
            let size = self.arena.class(*frame).bytes();
            if let Some(memory) = self.memory(*frame) {
                pieces.push(Piece { device: memory.address, other: End::Bytes(self.poison.unwrap_or(0)), bytes: size });
            }
            bytes += size;
        }
        // SAFETY: the books say that these frames belong to no tenant until the job's end.
        let job = unsafe { self.filler.submit(Lane::Fill, pieces) };
        self.scrubs.insert(job, Scrub { frames, bytes });
        true
    }

    /// Marks frames as being read, or written by work of a tenant that has ended, until [`Self::end_reading`], even if their tenant
    /// ends.
    pub(super) fn begin_reading(&mut self, frames: &[FrameId]) {
        for frame in frames {
            *self.read.entry(*frame).or_default() += 1;
        }
    }

    /// Ends a read that [`Self::begin_reading`] began.
    pub(super) fn end_reading(&mut self, frames: &[FrameId]) {
        for frame in frames {
            let left = self.read.entry(*frame).or_insert(1);
            *left -= 1;
            if *left == 0 {
                self.read.remove(frame);
                if let Some(at) = self.released.iter().position(|released| released == frame) {
                    self.released.swap_remove(at);
                    self.free(*frame);
                }
            }
        }
    }

    /// Frees a frame that its tenant no longer has. A frame that is being read becomes free when the read ends.
    pub(super) fn release(&mut self, frame: FrameId) {
        if self.read.contains_key(&frame) {
            self.released.push(frame);
        } else {
            self.free(frame);
        }
    }

    /// Keeps a frame whose contents its tenant may want back. Returns None and releases the frame if that is impossible.
    pub(super) fn keep(&mut self, frame: FrameId) -> Option<Keepsake> {
        let can_be = self.keeps && !self.is_in_use(frame);
        if !can_be {
            self.release(frame);
        }
        can_be.then(|| self.arena.keep(frame))
    }

    /// Releases a frame that a scan has found to hold only zeros. Its next owner does not have to write them again.
    pub(super) fn release_zeros(&mut self, frame: FrameId) {
        // Clean ones are poisoned.
        if self.is_poisoned() || self.is_in_use(frame) {
            return self.release(frame);
        }
        self.arena.give_back_zeros(frame);
    }

    /// True if others may still read a frame, or write to it.
    fn is_in_use(&self, frame: FrameId) -> bool {
        self.read.contains_key(&frame) || self.reachable.contains_key(&frame)
    }

    /// Frees a frame that no longer belongs to any tenant.
    fn free(&mut self, frame: FrameId) {
        if self.reachable.remove(&frame).is_some() {
            self.arena.remove_lent(frame);
            self.unmake(frame);
        } else {
            self.arena.give_back(frame);
        }
    }
}
