//! Memory that one tenant has exported and others have opened ([`Sharing`](baton_books::sharing::Sharing)).
//!
//! Shared memory belongs to the tenant that has allocated it, and moves with the rest of that tenant's memory. The others only map
//! and unmap the same frames. All of them are of one unit ([`Scheduler`](baton_policy::scheduler::Scheduler)), so while any of them
//! runs, all of the shared memory is on the GPU.

use baton_contract::memory::{GRANULE, SizeClass};
use baton_contract::messages::{Answer, ExtentId, Full, IPC_HANDLE, MAX_LISTED, MemoryCommand, ProcessId, Request};
use baton_contract::wire::MAX_DESCRIPTORS;

use super::breach::MemoryBreach;
use super::ground::Ground;
use crate::random;
use crate::server::tenants::memory::Batch;
use crate::server::tenants::tenant::Tenant;
use baton_books::arena::FrameId;
use baton_books::extents::Extent;
use baton_books::sharing::{Attachment, Export, Key, Place};
use baton_policy::arbiter::{State, TenantId};

/// The next step for a tenant that wants to open another tenant's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Attaching {
    /// The tenant has its answer; no step is left.
    Answered,
    /// The two tenants must first be scheduled as one.
    Unite,
}

/// Other tenants' memory that did not reach a tenant.
#[derive(Debug)]
pub(super) struct Undelivered {
    /// Extents to be sent again.
    pub(super) lost: Vec<ExtentId>,
    /// True if some extents were sent again and have not been confirmed yet.
    pub(super) are_under_way: bool,
}

impl Ground<'_> {
    /// True if a tenant could have memory in this range and has none there yet, neither its own nor another's.
    pub(super) fn is_room_at(&self, id: TenantId, at: u64, bytes: u64) -> bool {
        let is_taken = |tenant: &Tenant| tenant.extents().within(at, bytes).next().is_some();
        at.is_multiple_of(GRANULE)
            && at.checked_add(bytes).is_some()
            && !self.store.sharing.has_any_at(id, at, bytes)
            && !self.tenants.get(id).is_some_and(is_taken)
    }

    /// Exports an allocation of a tenant, so that others can open it.
    pub(super) fn export(&mut self, id: TenantId, at: u64, bytes: u64) {
        let covered = self.tenants.get(id).map_or(0, |tenant| {
            let parts = tenant.extents().within(at, bytes).map(|(_, extent)| {
                let end = extent.at().saturating_add(extent.class().bytes()).min(at.saturating_add(bytes));
                end - extent.at().max(at)
            });
            parts.sum()
        });
        if bytes == 0 || covered != bytes {
            // Another thread has freed the allocation meanwhile.
            return self.refuse_export(id);
        }
        // Every tenant that knows the key can open the memory.
        match self.store.sharing.export(id, Export { at, bytes }, random::bytes()) {
            Some(key) => self.tenants.answer(id, &Answer::Exported { key }, &[]),
            None => self.refuse_export(id),
        }
    }

    fn refuse_export(&mut self, id: TenantId) {
        self.tenants.answer(id, &Answer::NotExported { exporter_lives: true }, &[]);
    }

    /// Withdraws the export of an allocation that the tenant has freed.
    pub(super) fn unexport(&mut self, id: TenantId, at: u64) {
        self.store.sharing.unexport(id, at);
        self.tenants.answer(id, &Answer::Noted, &[]);
    }

    /// Exports an event of a tenant, so that others can open it.
    pub(super) fn export_event(&mut self, id: TenantId, handle: [u8; IPC_HANDLE]) {
        self.store.sharing.export_event(id, handle);
        self.tenants.answer(id, &Answer::Noted, &[]);
    }

    /// Handles a tenant that is about to open an event. Returns the tenant with which it must first be scheduled as one; otherwise
    /// the tenant gets its answer at once.
    pub(super) fn open_event(&mut self, id: TenantId, handle: [u8; IPC_HANDLE]) -> Option<TenantId> {
        // The event of a stranger, or of a tenant that has ended, concerns only the program and the driver.
        let owner = self.store.sharing.owners_of_event(&handle).find(|owner| self.is_believed(id, *owner));
        let Some(owner) = self.apart_from(id, owner) else {
            self.tenants.answer(id, &Answer::Noted, &[]);
            return None;
        };
        if self.is_off_the_gpu(id) {
            self.tenants.answer(id, &Answer::TryAgain, &[]);
            return None;
        }
        self.fits_with(id, owner).then_some(owner).or_else(|| {
            // They take turns, and a tenant that waits for the other one is taken off the GPU for it.
            self.tenants.answer(id, &Answer::Noted, &[]);
            None
        })
    }

    /// The tenants that may own what another one asks to share, as they say themselves; the likeliest first.
    pub(super) fn owners_of_shared(&self, request: &Request) -> Vec<TenantId> {
        match request {
            Request::Attach { exporter, .. } => vec![TenantId(*exporter)],
            Request::OpenEvent { handle } => self.store.sharing.owners_of_event(handle).collect(),
            Request::ImportDescriptor { owner } => self.store.sharing.owners_of_descriptors(*owner).collect(),
            _ => Vec::new(),
        }
    }

    /// Notes that a tenant lets others import its memory by descriptors that its process owns.
    pub(super) fn export_descriptors(&mut self, id: TenantId, process: ProcessId) {
        self.store.sharing.export_descriptors(id, process);
        self.tenants.answer(id, &Answer::Noted, &[]);
    }

    /// Handles a tenant that is about to import memory by a descriptor that another process owns. Returns the tenant with which it
    /// must be scheduled as one. The importing tenant is answered at once in any case: it asks from outside the gate, because the
    /// other tenant may keep the GPU until it has written there.
    pub(super) fn import_descriptor(&self, id: TenantId, owner: ProcessId) -> Option<TenantId> {
        let owner = self.store.sharing.owners_of_descriptors(owner).find(|owner| self.is_believed(id, *owner));
        self.apart_from(id, owner).filter(|owner| self.fits_with(id, *owner))
    }

    /// The owner of the memory or event that a tenant is about to share, if the two are not scheduled as one.
    fn apart_from(&self, id: TenantId, owner: Option<TenantId>) -> Option<TenantId> {
        owner.filter(|owner| !self.arbiter.are_united(id, *owner))
    }

    /// True if two tenants' word is enough to believe that they share something. They only name a number or a name that any program
    /// may name, so the coordinator believes it only of processes that belong together according to the system.
    fn is_believed(&self, id: TenantId, of: TenantId) -> bool {
        let (Some(tenant), Some(owner)) = (self.tenants.get(id), self.tenants.get(of)) else { return false };
        let is_other = id != of && owner.connection.is_open();
        is_other && tenant.connection.process.belongs_with(&owner.connection.process)
    }

    /// True if a tenant may open another tenant's memory for which it has the key. The system says which process each of them is,
    /// so no process uses the key in another's name.
    fn may_attach(&self, id: TenantId, exporter: TenantId) -> bool {
        let (Some(tenant), Some(exporter)) = (self.tenants.get(id), self.tenants.get(exporter)) else { return false };
        let (one, other) = (&tenant.connection.process, &exporter.connection.process);
        one.is_certain() && other.is_certain() || one.is_of_user_of(other)
    }

    /// True if the arena has room for everything that two tenants and the tenants they run with have. If not, the user is told.
    fn fits_with(&self, id: TenantId, other: TenantId) -> bool {
        let together = self.bytes_of_unit(id) + self.bytes_of_unit(other);
        let room = self.capacity_without_immovable(id).min(self.capacity_without_immovable(other));
        let fits = together <= room.saturating_sub(self.store.rules.headroom);
        if !fits {
            let name = |id| self.tenants.get(id).map_or("", |tenant| tenant.name.as_str());
            let (one, other, mib) = (name(id), name(other), together >> 20);
            baton_messages::warn!(cannot_be_united(one, other, mib));
        }
        fits
    }

    /// Attaches a tenant to memory that another one has exported.
    pub(super) fn attach(
        &mut self,
        id: TenantId,
        exporter: TenantId,
        key: &Key,
        at: u64,
    ) -> Result<Attaching, MemoryBreach> {
        let exporter_lives = self.tenants.get(exporter).is_some_and(|tenant| tenant.connection.is_open());
        let may = exporter_lives && exporter != id && self.may_attach(id, exporter);
        let export = self.store.sharing.exported(exporter, key).filter(|_| may);
        let Some(export) = export else {
            self.tenants.answer(id, &Answer::NotExported { exporter_lives }, &[]);
            return Ok(Attaching::Answered);
        };
        if self.is_off_the_gpu(id) {
            // It was told to leave, and has not noticed that yet.
            self.tenants.answer(id, &Answer::TryAgain, &[]);
            return Ok(Attaching::Answered);
        }
        if !self.arbiter.are_united(id, exporter) {
            if !self.fits_with(id, exporter) {
                self.tenants.answer(id, &Answer::Denied { full: Full::Arena }, &[]);
                return Ok(Attaching::Answered);
            }
            return Ok(Attaching::Unite);
        }
        self.attach_to(id, exporter, export, at)?;
        Ok(Attaching::Answered)
    }

    /// Attaches a tenant to memory of another one that it is scheduled with.
    fn attach_to(&mut self, id: TenantId, exporter: TenantId, export: Export, at: u64) -> Result<(), MemoryBreach> {
        let Some(tenant) = self.tenants.get(exporter) else { return Ok(()) };
        let found = tenant.extents().within(export.at, export.bytes);
        let found: Vec<(ExtentId, u64, SizeClass, Option<FrameId>)> = found
            .map(|(extent, entry)| {
                let frame = entry.state().frame().filter(|_| entry.state().is_resident());
                (extent, entry.at(), entry.class(), frame)
            })
            .collect();
        // The export must be complete and without gaps: its owner may have freed some of it without saying so.
        let mut end = found.first().map_or(0, |(_, at, ..)| *at);
        let starts_inside = !found.is_empty() && end <= export.at;
        let is_gapless = found.iter().all(|(_, at, class, _)| std::mem::replace(&mut end, at + class.bytes()) == *at);
        if !starts_inside || !is_gapless || end < export.at.saturating_add(export.bytes) {
            self.refuse_export(id);
            return Ok(());
        }
        let frames: Option<Vec<FrameId>> = found.iter().map(|(.., frame)| *frame).collect();
        // While the unit has the GPU all its memory is there.
        let (Some(frames), State::Running) = (frames.filter(|frames| !frames.is_empty()), self.arbiter.state(id))
        else {
            self.tenants.answer(id, &Answer::TryAgain, &[]);
            return Ok(());
        };
        if found.len() > MAX_LISTED {
            self.tenants.answer(id, &Answer::Denied { full: Full::Held }, &[]);
            return Ok(());
        }
        // The others may write to the exporter's memory from here on.
        self.may_be_written(exporter);
        let start = found[0].1;
        let size: u64 = found.iter().map(|(_, _, class, _)| class.bytes()).sum();
        if !self.is_room_at(id, at, size) {
            return Err(MemoryBreach::OpenedWhereNoRoomIs { at, bytes: size });
        }
        let mut extents = Vec::with_capacity(found.len());
        for (extent, address, class, _) in found {
            let Some(mut own) = self.tenants.extents(id) else { return Ok(()) };
            let number = own.borrow_number();
            drop(own);
            let owner = (exporter, extent);
            let (owner_at, at) = (address, at + (address - start));
            let attachment = Attachment { owner, owner_at, at, class, place: Place::Mapped, lost: false };
            self.store.sharing.attach((id, number), attachment);
            if let Some(mut theirs) = self.tenants.extents(exporter) {
                theirs.set_shared(extent, true);
            }
            extents.push((number, class));
        }
        let first = &frames[..frames.len().min(MAX_DESCRIPTORS)];
        let answer = Answer::Attached { extents, offset: export.at - start, bytes: export.bytes };
        self.answer_with(id, &answer, first);
        Ok(())
    }

    /// Notes that tenants which run with this one may write to its memory from now on.
    pub(super) fn may_be_written(&mut self, id: TenantId) {
        if let Some(tenant) = self.tenants.get_mut(id) {
            tenant.memory.scan = None;
        }
        if let Some(mut extents) = self.tenants.extents(id) {
            extents.may_change();
        }
    }

    /// True if no tenant that shares an extent keeps it from leaving.
    pub(super) fn is_let_go_by_others(&self, id: TenantId, extent: ExtentId) -> bool {
        let can_unmap = |other| {
            let can = |tenant: &Tenant| tenant.is_evictable() && tenant.is_responsive();
            self.is_off_the_gpu(other) && self.tenants.get(other).is_some_and(can)
        };
        self.store.sharing.holders((id, extent)).all(can_unmap)
    }

    /// Has the tenants that share a tenant's leaving extents unmap them.
    pub(super) fn have_others_unmap(&mut self, id: TenantId, extents: &[ExtentId]) {
        if self.store.sharing.is_empty() {
            return;
        }
        let mut theirs: Vec<(TenantId, ExtentId)> = Vec::new();
        for extent in extents {
            for other in self.store.sharing.sharers((id, *extent)) {
                if self.store.sharing.set_place(other, &[Place::Coming, Place::Mapped], Place::Going) {
                    theirs.push(other);
                }
            }
        }
        theirs.sort_unstable();
        for theirs in theirs.chunk_by(|one, next| one.0 == next.0) {
            let other = theirs[0].0;
            for theirs in theirs.chunks(MAX_LISTED) {
                let extents: Vec<ExtentId> = theirs.iter().map(|(_, extent)| *extent).collect();
                let Some(tenant) = self.tenants.get_mut(other) else { break };
                let batch = tenant.memory.add_batch(Batch::Unmap(extents.clone()));
                self.tenants.tell(other, &MemoryCommand::Unmap { batch, extents });
            }
        }
    }

    /// Notes which of these extents belong to others and are now mapped by the tenant.
    pub(super) fn on_mapped_of_others(&mut self, id: TenantId, extents: &[ExtentId]) {
        for extent in extents {
            self.store.sharing.set_place((id, *extent), &[Place::Coming], Place::Mapped);
        }
    }

    /// Notes that the frames for these extents did not reach the tenant. Some of the extents are others'.
    pub(super) fn on_lost_of_others(&mut self, id: TenantId, extents: &[ExtentId]) {
        extents.iter().for_each(|extent| self.store.sharing.lose((id, *extent)));
    }

    /// Notes that the frames for these extents have reached the tenant.
    pub(super) fn on_delivered_of_others(&mut self, id: TenantId, extents: &[ExtentId]) {
        extents.iter().for_each(|extent| self.store.sharing.end_loss((id, *extent)));
    }

    /// Other tenants' memory that did not reach a tenant and is on the GPU, to be sent again. Memory that is not on the GPU comes
    /// with the rest when it is.
    pub(super) fn on_undelivered_of_others(&mut self, id: TenantId) -> Undelivered {
        let (waiting, sent) = self.store.sharing.lost(id);
        let is_there = |extent: &ExtentId| {
            let attachment = self.store.sharing.get((id, *extent));
            attachment.is_some_and(|one| self.frame_of_owner(one).is_some())
        };
        let (lost, gone): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_there);
        self.on_delivered_of_others(id, &gone);
        Undelivered { lost, are_under_way: !sent.is_empty() }
    }

    /// Sends frames of others' memory again that did not reach a tenant, each by itself, and has it map them.
    pub(super) fn bring_again(&mut self, id: TenantId, extents: Vec<ExtentId>) {
        for extent in &extents {
            self.store.sharing.set_place((id, *extent), &[Place::Away], Place::Coming);
        }
        self.send_frames(id, &extents, 1);
        self.map(id, extents);
    }

    /// True if all memory that a tenant reaches is there, its own and others'.
    pub(super) fn is_all_mapped(&self, id: TenantId) -> bool {
        let is_whole = |tenant: &Tenant| {
            let counts = tenant.extents().counts();
            counts.missing == 0 && counts.left_behind == 0
        };
        self.tenants.get(id).is_some_and(is_whole) && !self.store.sharing.lacks(id)
    }

    /// Has a tenant that comes in map its share of others' memory, all of which is there. Returns true if all of it is mapped.
    pub(super) fn bring_attachments(&mut self, id: TenantId) -> bool {
        if !self.store.sharing.lacks(id) {
            return true;
        }
        if self.awaits_delivery(id) {
            return false;
        }
        let away = self.store.sharing.of(id).filter(|(_, one)| one.place == Place::Away);
        let ready: Vec<ExtentId> =
            away.filter(|(_, one)| self.frame_of_owner(one).is_some()).map(|(extent, _)| extent).collect();
        for extent in &ready {
            self.store.sharing.set_place((id, *extent), &[Place::Away], Place::Coming);
        }
        self.send_frames(id, &ready, MAX_DESCRIPTORS);
        for extents in ready.chunks(MAX_LISTED) {
            self.map(id, extents.to_vec());
        }
        false
    }

    /// Hands an extent that a tenant no longer has to one of the tenants that share it. Until that one has it, it is written down as the
    /// tenant's. Returns the extent if no tenant takes it.
    pub(super) fn hand_over(&mut self, id: TenantId, extent: ExtentId, entry: Extent) -> Option<Extent> {
        self.keep_from_others((id, extent), &entry);
        let lives = |id: TenantId| self.tenants.get(id).is_some_and(|tenant| tenant.connection.is_open());
        let inherited = self.store.sharing.inherit((id, extent), lives);
        let Some(((heir, number), had)) = inherited else {
            self.tenants.gone(id, extent);
            return Some(entry);
        };
        self.tenants.pass_on((id, extent), (heir, number));
        let held = self.store.sharing.is_held((heir, number));
        let comes = entry.state().is_resident() && had.place == Place::Away;
        let Some(mut theirs) = self.tenants.extents(heir) else { return Some(entry) };
        let spare = theirs.adopt(number, (had.at, had.place), entry, held);
        let is_shared = self.store.sharing.is_shared((heir, number));
        theirs.set_shared(number, is_shared);
        let is_lost = theirs.counts().lost > 0;
        drop(theirs);
        self.store.sharing.is_its_own((heir, number), &had);
        self.store.transfer.inherit((id, extent), (heir, number));
        if let Some(frame) = spare {
            self.store.frames.release(frame);
        }
        if comes {
            self.send_frames(heir, &[number], 1);
            self.map(heir, vec![number]);
        }
        if let Some(tenant) = self.tenants.get_mut(heir) {
            if is_lost {
                tenant.memory.redeliver();
            }
            baton_messages::info!(keeps_shared_memory(&tenant.name));
        }
        None
    }

    /// Keeps the frame of an extent that its tenant no longer has from others, for as long as tenants that have ended may write to it.
    pub(super) fn keep_from_others(&mut self, extent: (TenantId, ExtentId), entry: &Extent) {
        let Some(frame) = entry.state().frame() else { return };
        let has_ended = |id: &TenantId| !self.tenants.get(*id).is_some_and(|tenant| tenant.connection.is_open());
        for writer in self.store.sharing.holders(extent).filter(has_ended) {
            self.store.departed.keep_from_others(frame, writer, &mut self.store.frames);
        }
    }

    /// Holds the attachments of a tenant that has ended: its work may still write to others' memory, so that memory is not free
    /// yet.
    pub(super) fn hold_attachments(&mut self, id: TenantId) {
        let had: Vec<ExtentId> = self.store.sharing.of(id).map(|(extent, _)| extent).collect();
        for extent in had {
            self.store.sharing.set_place((id, extent), &[Place::Coming, Place::Mapped], Place::Going);
        }
    }
}
