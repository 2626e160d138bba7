//! Memory that one tenant has exported and others have opened ([`Sharing`](baton_books::sharing::Sharing)).
//!
//! Shared memory belongs to one tenant, at first to the one that has allocated it, and moves with the rest of that tenant's memory. The
//! others only map and unmap the same frames. While any of them runs, all of the shared memory is on the GPU, and nobody else moves it:
//! - Those of one unit ([`Scheduler`](baton_policy::scheduler::Scheduler)) run at the same time.
//! - Those **apart** take turns. Whichever arrives makes the memory its own first ([`Ground::make_its_own`]), and the owner becomes one of
//!   the others. So a running tenant owns all memory that it can reach, or is united with its owner. Tenants that are apart are united when
//!   both want the GPU: one may wait for the other's work.

use baton_contract::memory::{GRANULE, SizeClass};
use baton_contract::messages::{Answer, ExtentId, Full, IPC_HANDLE, MAX_LISTED, MemoryCommand, ProcessId, Request};
use baton_contract::wire::MAX_DESCRIPTORS;

use super::events::MemoryEvent;
use super::ground::Ground;
use crate::random;
use crate::server::tenants::memory::{Batch, Notice};
use crate::server::tenants::tenant::Tenant;
use baton_books::arena::FrameId;
use baton_books::extents::{Extent, ExtentState};
use baton_books::sharing::{Attachment, Export, Key, Place};
use baton_policy::arbiter::{State, TenantId};

/// A part of memory that a tenant reaches, its own or another one's.
#[derive(Clone, Copy, Debug)]
struct Reached {
    /// Its address there.
    at: u64,
    /// The owner, its number and its address.
    owner: (TenantId, ExtentId),
    owner_at: u64,
    class: SizeClass,
    state: ExtentState,
}

impl Reached {
    fn frame(&self) -> Option<FrameId> {
        self.state.frame().filter(|_| self.state.is_resident())
    }
}

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
        let parts = self.reached(id, at, bytes).into_iter().map(|part| {
            let end = part.at.saturating_add(part.class.bytes()).min(at.saturating_add(bytes));
            end - part.at.max(at)
        });
        let covered: u64 = parts.sum();
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

    /// The extents in a range of a tenant's addresses, in order of address.
    fn reached(&self, id: TenantId, at: u64, bytes: u64) -> Vec<Reached> {
        let Some(tenant) = self.tenants.get(id) else { return Vec::new() };
        let own = tenant.extents().within(at, bytes).map(|(extent, entry)| {
            let (at, class, state) = (entry.at(), entry.class(), entry.state());
            Reached { at, owner: (id, extent), owner_at: at, class, state }
        });
        let is_within = |one: &Attachment<TenantId>| {
            one.at < at.saturating_add(bytes) && at < one.at.saturating_add(one.class.bytes())
        };
        let others = self.store.sharing.of(id).filter(|(_, one)| is_within(one)).filter_map(|(_, one)| {
            let (owner, extent) = one.owner;
            let state = self.tenants.get(owner)?.extents().get(extent)?.state();
            Some(Reached { at: one.at, owner: one.owner, owner_at: one.owner_at, class: one.class, state })
        });
        let mut all: Vec<Reached> = own.chain(others).collect();
        all.sort_unstable_by_key(|part| part.at);
        all
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
    pub(super) fn is_believed(&self, id: TenantId, of: TenantId) -> bool {
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
    pub(super) fn fits_with(&self, id: TenantId, other: TenantId) -> bool {
        let fits = self.have_room(id, other);
        if !fits {
            let name = |id| self.tenants.get(id).map_or("", |tenant| tenant.name.as_str());
            let mib = (self.bytes_of_unit(id) + self.bytes_of_unit(other)) >> 20;
            baton_messages::warn!(cannot_be_united(name(id), name(other), mib));
        }
        fits
    }

    /// The same. The user is told nothing: it is asked again and again.
    pub(super) fn have_room(&self, id: TenantId, other: TenantId) -> bool {
        let together = self.bytes_of_unit(id) + self.bytes_of_unit(other);
        let room = self.capacity_without_immovable(id).min(self.capacity_without_immovable(other));
        together <= room.saturating_sub(self.store.rules.headroom)
    }

    /// True if a tenant may open the memory that another one has exported by this key.
    pub(super) fn may_share(&self, id: TenantId, exporter: TenantId, key: &Key) -> bool {
        let lives = self.tenants.get(exporter).is_some_and(|tenant| tenant.connection.is_open());
        lives && exporter != id && self.may_attach(id, exporter) && self.store.sharing.exported(exporter, key).is_some()
    }

    /// True if two tenants that share memory may take turns.
    pub(super) fn may_be_apart(&self, id: TenantId, exporter: TenantId) -> bool {
        // Frames that both have had go to no other user, and on several GPUs both may wait for each other from their first work on.
        let is_gang = [id, exporter].iter().any(|id| self.arbiter.is_of_gang(*id));
        !is_gang && self.owner_of(id) == self.owner_of(exporter)
    }

    /// Attaches a tenant to memory that another one has exported. The two may be `apart`, if they are on this GPU only.
    pub(super) fn attach(&mut self, id: TenantId, exporter: TenantId, key: &Key, at: u64, apart: bool) -> Attaching {
        let may = self.may_share(id, exporter, key);
        let Some(export) = self.store.sharing.exported(exporter, key).filter(|_| may) else {
            let exporter_lives = self.tenants.get(exporter).is_some_and(|tenant| tenant.connection.is_open());
            self.tenants.answer(id, &Answer::NotExported { exporter_lives }, &[]);
            return Attaching::Answered;
        };
        if self.is_off_the_gpu(id) {
            // It was told to leave, and has not noticed that yet.
            return self.attach_later(id);
        }
        let reached = self.reached(exporter, export.at, export.bytes);
        // The export must be complete and without gaps: its owner may have freed some of it without saying so.
        let mut end = reached.first().map_or(0, |part| part.at);
        let starts_inside = !reached.is_empty() && end <= export.at;
        let next = |part: &Reached| std::mem::replace(&mut end, part.at.saturating_add(part.class.bytes())) == part.at;
        let is_gapless = reached.iter().all(next);
        if !starts_inside || !is_gapless || end < export.at.saturating_add(export.bytes) {
            self.refuse_export(id);
            return Attaching::Answered;
        }
        if reached.len() > MAX_LISTED {
            self.tenants.answer(id, &Answer::Denied { full: Full::Held }, &[]);
            return Attaching::Answered;
        }
        // The opener may have been told too few bytes by the one that has passed the handle on.
        if !self.is_room_at(id, at, reached.iter().map(|part| part.class.bytes()).sum()) {
            self.refuse_export(id);
            return Attaching::Answered;
        }
        if self.arbiter.are_united(id, exporter) {
            return self.attach_to(id, (&reached, export), at);
        }
        if !apart || !self.may_be_apart(id, exporter) {
            if !self.fits_with(id, exporter) {
                self.tenants.answer(id, &Answer::Denied { full: Full::Arena }, &[]);
                return Attaching::Answered;
            }
            return Attaching::Unite;
        }
        self.attach_apart(id, (&reached, exporter, export), at)
    }

    /// Has a tenant ask again: first it may have to leave the GPU, or another one.
    fn attach_later(&mut self, id: TenantId) -> Attaching {
        self.tenants.answer(id, &Answer::TryAgain, &[]);
        Attaching::Answered
    }

    /// Attaches a tenant to memory of another one that it is scheduled with.
    fn attach_to(&mut self, id: TenantId, (reached, export): (&[Reached], Export), at: u64) -> Attaching {
        let frames: Option<Vec<FrameId>> = reached.iter().map(Reached::frame).collect();
        // While the unit has the GPU all its memory is there.
        let (Some(frames), State::Running) = (frames, self.arbiter.state(id)) else { return self.attach_later(id) };
        let numbers = self.enter_attached(id, reached, at, Place::Mapped);
        self.answer_attached(id, &numbers, (reached, export), Some(&frames))
    }

    /// Attaches a tenant to memory of another one that takes turns with it.
    fn attach_apart(
        &mut self,
        id: TenantId,
        (reached, exporter, export): (&[Reached], TenantId, Export),
        at: u64,
    ) -> Attaching {
        if !self.is_off_the_gpu(exporter) {
            // Both want it.
            if self.have_room(id, exporter) {
                return Attaching::Unite;
            }
            self.part_corunners();
            return self.attach_later(id);
        }
        if reached.iter().any(|part| !self.can_be_passed_on(part.owner, id)) {
            self.part_corunners();
            return self.attach_later(id);
        }
        let room = self.capacity_without_immovable(id).saturating_sub(self.store.rules.headroom);
        if self.bytes_of_unit(id) + export.bytes > room {
            self.tenants.answer(id, &Answer::Denied { full: Full::Arena }, &[]);
            return Attaching::Answered;
        }
        let frames: Option<Vec<FrameId>> = reached.iter().map(Reached::frame).collect();
        if frames.is_none() && self.arbiter.state(id) != State::Running {
            // It runs beside others, and arrives by itself first.
            self.part_corunners();
            return self.attach_later(id);
        }
        self.tenants.are_to_meet(id, exporter);
        let Some(frames) = frames else {
            // When it knows what it has, it leaves, and has all of it when it comes back.
            let numbers = self.enter_attached(id, reached, at, Place::Away);
            if let Some(tenant) = self.tenants.get_mut(id) {
                tenant.memory.knows_later = true;
            }
            return self.answer_attached(id, &numbers, (reached, export), None);
        };
        let numbers = self.enter_attached(id, reached, at, Place::Mapped);
        numbers.iter().for_each(|number| self.make_its_own((id, *number)));
        self.may_be_written(id);
        self.answer_attached(id, &numbers, (reached, export), Some(&frames))
    }

    /// Enters a tenant's hold on memory that it reaches from this address on. Returns its numbers for the extents.
    fn enter_attached(&mut self, id: TenantId, reached: &[Reached], at: u64, place: Place) -> Vec<ExtentId> {
        let mut numbers = Vec::with_capacity(reached.len());
        let start = reached.first().map_or(0, |part| part.at);
        for &Reached { at: there, owner, owner_at, class, .. } in reached {
            // The others may write to the owner's memory from here on.
            self.may_be_written(owner.0);
            let Some(mut own) = self.tenants.extents(id) else { break };
            let number = own.borrow_number();
            drop(own);
            let attachment = Attachment { owner, owner_at, at: at + (there - start), class, place, lost: false };
            self.store.sharing.attach((id, number), attachment);
            if let Some(mut theirs) = self.tenants.extents(owner.0) {
                theirs.set_shared(owner.1, true);
            }
            numbers.push(number);
        }
        numbers
    }

    /// Answers a tenant that is attached to memory now, with the first of the frames if all are there.
    fn answer_attached(
        &mut self,
        id: TenantId,
        numbers: &[ExtentId],
        (reached, export): (&[Reached], Export),
        frames: Option<&[FrameId]>,
    ) -> Attaching {
        let extents = numbers.iter().zip(reached).map(|(number, part)| (*number, part.class)).collect();
        let offset = export.at - reached.first().map_or(export.at, |part| part.at);
        let answer = Answer::Attached { extents, offset, bytes: export.bytes, here: frames.is_some() };
        let first = frames.unwrap_or_default();
        self.answer_with(id, &answer, &first[..first.len().min(MAX_DESCRIPTORS)]);
        Attaching::Answered
    }

    /// True if an extent can become the own one of a tenant that takes turns with its owner: it is not on its way, and its owner is off the
    /// GPU, and answers.
    fn can_be_passed_on(&self, (owner, extent): (TenantId, ExtentId), to: TenantId) -> bool {
        // The arbiter has yet to hear of one that another coordinator has had, and whose work may go on.
        let is_off = self.arbiter.knows(owner) && self.is_off_the_gpu(owner);
        let Some(tenant) = self.tenants.get(owner).filter(|tenant| owner != to && is_off && tenant.unsettled.is_none())
        else {
            return false;
        };
        let is_settled = |entry: &Extent| {
            matches!(entry.state(), ExtentState::Resident { .. } | ExtentState::Host) && entry.left_behind().is_none()
        };
        !tenant.memory.is_taken() && tenant.extents().get(extent).is_some_and(is_settled)
    }

    /// Makes an extent that a tenant is attached to its own; the owner, with which it takes turns, is attached to it instead.
    fn make_its_own(&mut self, (id, number): (TenantId, ExtentId)) {
        let Some((owner, extent)) = self.store.sharing.get((id, number)).map(|one| one.owner) else { return };
        let Some(entry) = self.tenants.extents(owner).and_then(|mut theirs| theirs.pass_on(extent)) else { return };
        if let Some(tenant) = self.tenants.get_mut(owner) {
            tenant.memory.history.forget(extent);
        }
        let place = if entry.state().is_resident() { Place::Mapped } else { Place::Away };
        let Some(had) = self.store.sharing.exchange((id, number), place) else { return };
        self.give_to((owner, extent), (id, number), &had, entry);
    }

    /// Notes that a tenant has had all answers to its earlier requests: it asks for something else.
    pub(super) fn has_heard_all(&mut self, id: TenantId) {
        if let Some(tenant) = self.tenants.get_mut(id)
            && std::mem::take(&mut tenant.memory.knows_later)
        {
            self.raise(MemoryEvent::ComesAnew(id));
        }
    }

    /// True if a tenant may not know yet that it has others' memory which is not here: no command can be about it.
    fn knows_later(&self, id: TenantId) -> bool {
        self.tenants.get(id).is_some_and(|tenant| tenant.memory.knows_later)
    }

    /// Makes all memory that a tenant shares with those that it takes turns with its own, because it is about to run. False if some of it is
    /// on its way.
    pub(super) fn own_all_it_reaches(&mut self, id: TenantId) -> bool {
        if self.knows_later(id) {
            return true;
        }
        let unit = |id| self.tenants.get(id).and_then(|tenant| tenant.unit);
        // Those of another coordinator are united as soon as the arbiter knows both.
        let is_apart =
            |owner: TenantId| !self.arbiter.are_united(owner, id) && (unit(id).is_none() || unit(id) != unit(owner));
        let others = self.store.sharing.of(id).filter(|(_, one)| is_apart(one.owner.0));
        let others: Vec<(ExtentId, (TenantId, ExtentId))> = others.map(|(number, one)| (number, one.owner)).collect();
        let mut all = true;
        for (number, owner) in others {
            match self.can_be_passed_on(owner, id) {
                true => self.make_its_own((id, number)),
                false => {
                    let entry = self.tenants.get(owner.0).and_then(|tenant| tenant.extents().get(owner.1));
                    log::debug!("{id:?} waits for {owner:?}: {:?}", entry.map(Extent::state));
                    all = false;
                }
            }
        }
        all
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
        if !self.store.sharing.lacks(id) || self.knows_later(id) {
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
        if self.tenants.get(heir).is_none() {
            return Some(entry);
        }
        self.give_to((id, extent), (heir, number), &had, entry);
        if let Some(tenant) = self.tenants.get_mut(heir)
            && tenant.memory.is_news(Notice::Heir)
        {
            baton_messages::info!(keeps_shared_memory(&tenant.name));
        }
        None
    }

    /// Makes an extent that was another tenant's the own one of a tenant that was attached to it.
    fn give_to(
        &mut self,
        (id, extent): (TenantId, ExtentId),
        (heir, number): (TenantId, ExtentId),
        had: &Attachment<TenantId>,
        entry: Extent,
    ) {
        self.tenants.pass_on((id, extent), (heir, number));
        let held = self.store.sharing.is_held((heir, number));
        let comes = entry.state().is_resident() && had.place == Place::Away;
        let Some(mut theirs) = self.tenants.extents(heir) else { return };
        let spare = theirs.adopt(number, (had.at, had.place), entry, held);
        let is_shared = self.store.sharing.is_shared((heir, number));
        theirs.set_shared(number, is_shared);
        let is_lost = theirs.counts().lost > 0;
        drop(theirs);
        self.store.sharing.is_its_own((heir, number), had);
        self.store.transfer.inherit((id, extent), (heir, number));
        if let Some(frame) = spare {
            self.store.frames.release(frame);
        }
        if comes {
            self.send_frames(heir, &[number], 1);
            self.map(heir, vec![number]);
        }
        if let Some(tenant) = self.tenants.get_mut(heir).filter(|_| is_lost) {
            tenant.memory.redeliver();
        }
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
