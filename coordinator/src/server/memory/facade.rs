//! The thin front of memory: it passes each request to the owner that answers it.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use baton_contract::memory::GRANULE;
use baton_contract::messages::{ExtentId, HeldExtent, IPC_HANDLE, ProcessId, Request};
use baton_messages::Message;

use super::breach::MemoryBreach;
use super::claims::Claims;
use super::departed::{Departed, Remains};
use super::events::MemoryEvent;
use super::evict::Evicted;
use super::frames::{Frames, SCRUB_BYTES, Scrubbed};
use super::ground::{Ground, Rules, Store};
use super::host::Host;
use super::leases::Leases;
use super::prefetch::Fetched;
use super::residency::Residency;
use super::returned::MemoryLost;
use super::scans::{Looked, Scans};
use super::sharing::Attaching;
use super::transfer::Transfer;
use crate::device::gpu::Gpu;
use crate::device::wake::Waker;
use crate::keeper::{self, Keeper, KeptFrame};
use crate::server::cost_model::CostModel;
use crate::server::options::{Options, ServeError};
use crate::server::recorder::Recorder;
use crate::server::recorder::event::What;
use crate::server::returning::Together;
use crate::server::tenants::table::Tenants;
use baton_books::arena::{Arena, FrameId};
use baton_books::extents::Extents;
use baton_books::ledger::{Account, Lines, Reading};
use baton_books::pool::Pool;
use baton_books::reservations::Need;
use baton_books::sharing::{Attached, Fact, Key, Notes, Sharing};
use baton_books::table::{Found, Size};
use baton_policy::arbiter::{State, TenantId};
use baton_policy::scheduler::Scheduler;

/// The interval at which a new part of the host pool is looked for.
const LOOK: Duration = Duration::from_millis(1);
/// Interval between checks that let a squeezed arena grow back.
const UNSQUEEZE: Duration = Duration::from_millis(500);

/// All memory of the coordinator, on the GPU and on the host.
pub(in crate::server) struct Memory {
    pub(super) store: Store,
    pub(super) residency: Residency,
    pub(super) claims: Claims,
}

/// Memory, with everything needed to manage it.
pub(in crate::server) struct Handle<'a> {
    claims: &'a mut Claims,
    residency: &'a mut Residency,
    ground: Ground<'a>,
}

impl Memory {
    /// Takes a GPU's memory into service.
    ///
    /// Frames of `left` bytes, and the slabs, are those of another coordinator.
    pub(in crate::server) fn new(
        gpu: Gpu,
        options: &Options,
        (keeper, waker): (Keeper, Waker),
        (left, slabs): (u64, BTreeMap<u64, OwnedFd>),
    ) -> Result<Self, ServeError> {
        let Options { headroom, pipeline, hash, isolation, quotas, .. } = *options;
        let transfer = Transfer::new(&gpu, &waker)?;
        let scans = Scans::new(&gpu, &waker)?;
        let host = Host::new(&gpu, options.host_pool, !options.until_idle, slabs, (keeper.clone(), waker.clone()))
            .map_err(|error| ServeError::Told(baton_messages::cannot_reserve(error)))?;
        let own = gpu.memory.saturating_sub(gpu.free_memory().unwrap_or(gpu.memory)).saturating_sub(left);
        let leases = Leases::new(gpu.memory, own);
        let notes = Notes::to({
            let keeper = keeper.clone();
            move |((kind, number), bytes)| match bytes {
                Some(bytes) => keeper.hold(keeper::Key::Fact(kind, number), &bytes, &[]),
                None => keeper.forget(keeper::Key::Fact(kind, number)),
            }
        });
        let store = Store {
            rules: Rules { headroom, pipeline, hash, isolation, quotas },
            frames: Frames::new(gpu, options.arena, options.poison, options.keep, (keeper, &waker))?,
            host,
            transfer,
            departed: Departed::default(),
            scans,
            sharing: Sharing::noted(notes),
            events: VecDeque::new(),
            returning: None,
        };
        Ok(Self { store, residency: Residency::new(waker), claims: Claims::new(leases) })
    }

    /// Returns memory together with everything needed to manage it.
    pub(in crate::server) fn with<'a>(
        &'a mut self,
        tenants: &'a mut Tenants,
        arbiter: &'a Scheduler,
        recorder: &'a mut Recorder,
        costs: &'a mut CostModel,
    ) -> Handle<'a> {
        let Self { store, residency, claims } = self;
        Handle { claims, residency, ground: Ground { store, tenants, arbiter, recorder, costs } }
    }

    /// The GPU that this memory belongs to.
    pub(in crate::server) fn gpu(&self) -> &Gpu {
        self.store.frames.gpu()
    }

    /// The arena, which is the GPU's part of memory.
    pub(in crate::server) fn arena(&self) -> &Arena {
        self.store.frames.arena()
    }

    /// The host pool, which is the host's part of memory.
    pub(in crate::server) fn pool(&self) -> &Pool {
        self.store.host.pool()
    }

    /// Has the keeper let go of frames that another coordinator has left, and that are not taken over.
    pub(in crate::server) fn let_go_of_kept(&mut self, frames: &[KeptFrame]) {
        for frame in frames {
            self.store.frames.let_go_of_kept(FrameId(frame.number), frame.bytes);
        }
    }

    /// Bytes that have lost their place in the host pool and may have to leave the GPU again.
    pub(in crate::server) fn given_up(&self) -> u64 {
        self.store.host.given_up()
    }

    /// Has the keeper hold all memory.
    pub(in crate::server) fn keep_all(&self) {
        self.store.host.keep_all();
        self.store.frames.keep_all();
        self.store.sharing.note_all();
    }

    /// The tenants whose memory a tenant is attached to.
    pub(in crate::server) fn owners_reached_by(&self, id: TenantId) -> BTreeSet<TenantId> {
        self.store.sharing.of(id).map(|(_, one)| one.owner.0).collect()
    }

    /// True if a tenant lacks any memory of others that it is attached to.
    pub(in crate::server) fn lacks_others(&self, id: TenantId) -> bool {
        self.store.sharing.lacks(id)
    }

    /// Takes the oldest event that has not been handled yet.
    pub(in crate::server) fn next_event(&mut self) -> Option<MemoryEvent> {
        self.store.events.pop_front()
    }

    /// True if the host pool is not all there yet.
    pub(in crate::server) fn is_preparing(&self) -> bool {
        self.store.host.is_preparing()
    }

    /// Waits until the host pool is there.
    ///
    /// # Errors
    ///
    /// When a part of it with data cannot be had.
    pub(in crate::server) fn await_pool(&mut self) -> Result<(), Message> {
        while self.store.host.is_preparing() {
            std::thread::sleep(LOOK);
            self.store.host.hear()?;
        }
        Ok(())
    }

    /// Waits until no copy is under way. False if one takes longer.
    pub(in crate::server) fn await_copies(&mut self, end: Instant) -> bool {
        self.store.transfer.await_all(end)
    }

    /// The time at which memory has work to do, if no event comes earlier.
    pub(in crate::server) fn next_timer(&self) -> Option<Instant> {
        let look = self.store.frames.is_squeezed().then(|| Instant::now() + UNSQUEEZE);
        let returning = self.store.returning.filter(|end| *end > Instant::now());
        [look, self.store.departed.next_look(), returning, self.claims.is_stuck_at()].into_iter().flatten().min()
    }

    /// The unit that is being swapped in.
    pub(in crate::server) fn swapping_in(&self) -> Option<TenantId> {
        self.residency.swapping_in()
    }

    /// Starts to swap a unit in. Only one unit is swapped in at a time: if another one is asked for, the first goes back to
    /// waiting.
    pub(in crate::server) fn swap_in(&mut self, unit: TenantId) {
        self.residency.swap_in(unit);
    }

    /// True if memory of another coordinator's tenants is on the host in slabs that are not there yet.
    pub(in crate::server) fn awaits_pages(&self) -> bool {
        self.store.host.awaits_pages()
    }

    /// The size of the table that says where all memory is.
    pub(in crate::server) fn table_size(&self) -> Size {
        let frames = (self.store.frames.arena().configured() / GRANULE) as usize;
        Size { frames, pages: (self.store.host.pool().bytes() / GRANULE) as usize, slab: self.store.host.slab() }
    }

    /// The tenant's account of memory outside the arena.
    pub(in crate::server) fn account(&self, id: TenantId) -> Account {
        self.claims.leases.account(id)
    }

    /// True if a tenant has asked for memory and waits for it.
    pub(in crate::server) fn is_asked_by(&self, id: TenantId) -> bool {
        self.claims.is_asked_by(id)
    }

    /// Notes that the preemptor has closed the control device of a tenant whose process has ended.
    pub(in crate::server) fn let_go(&mut self, id: TenantId) {
        self.store.departed.let_go(id);
    }

    /// Bytes that are missing for a newcomer with this need.
    pub(in crate::server) fn lacking(&self, tenants: &Tenants, need: Need) -> u64 {
        let free = self.store.grantable(tenants, None).saturating_sub(self.claims.claimed_bytes());
        let kept = need.run.guest.map_or(0, |user| tenants.reservations().of_guest(user));
        let left = self.store.quota_left(tenants, need.run.guest).saturating_sub(kept);
        tenants.reservations().lacking(need).saturating_sub(free.min(left))
    }

    /// The reason why a newcomer with this need would wait for ever, if it would.
    pub(in crate::server) fn never_has(&self, tenants: &Tenants, need: Need) -> Option<Message> {
        self.store.never_has(tenants, need)
    }

    /// The most that the programs of this guest can have together, in bytes.
    pub(in crate::server) fn most_of(&self, guest: Option<u32>) -> u64 {
        self.store.most_of(guest)
    }

    /// Every line of the ledger, according to the tenants' last reports, and the driver's current reading.
    pub(in crate::server) fn lines(&self) -> (Lines, Reading) {
        self.claims.lines(&self.store)
    }

    /// Resets the ledger before the first tenant comes.
    pub(in crate::server) fn nobody_is_here(&mut self) {
        self.claims.nobody_is_here(&self.store);
    }
}

impl Handle<'_> {
    /// Takes over frames of another coordinator, and its tenants' room in the host pool. `guest_of` knows the tenants, and of which guest
    /// each is, if it is a guest's.
    pub(in crate::server) fn inherit(
        &mut self,
        frames: Vec<KeptFrame>,
        found: &Found,
        guest_of: impl Fn(u32) -> Option<Option<u32>>,
    ) -> std::io::Result<()> {
        self.ground.inherit(frames, found, guest_of)
    }

    /// Begins with a fact of another coordinator about what a tenant shares, or forgets one about a tenant that is gone.
    pub(in crate::server) fn restore_fact(&mut self, owner: Option<TenantId>, fact: &Fact) {
        match owner {
            Some(owner) => self.ground.store.sharing.restore(owner, fact),
            None => self.ground.store.sharing.forget_fact(fact),
        }
    }

    /// Enters the memory beside the arena that another coordinator's tenant has: its lease, and its contexts with their bytes.
    pub(in crate::server) fn restore_account(&mut self, id: TenantId, leased: u64, contexts: (u64, u64)) {
        if let Some(tenant) = self.ground.tenants.get(id) {
            let unmanaged = tenant.connection.theirs.unmanaged();
            self.claims.leases.ledger.restore(id, leased, contexts, unmanaged);
        }
    }

    /// Attaches tenants that come back together to each other's memory. What the heirs of others were attached to comes back.
    pub(in crate::server) fn attach_again(&mut self, together: Together, found: &mut Found) -> Vec<Attached> {
        self.ground.attach_again(together, found)
    }

    /// Drops the hold of a tenant on others' memory: nothing of it can touch memory any more.
    pub(in crate::server) fn drop_attachments(&mut self, id: TenantId) {
        self.residency.drop_attachments(&mut self.ground, id);
    }

    /// Has a tenant's leaving memory unmapped by those that share it.
    pub(in crate::server) fn have_what_leaves_unmapped(&mut self, id: TenantId) {
        self.ground.have_what_leaves_unmapped(id);
    }

    /// Notes that all tenants of another coordinator are back, or gone.
    pub(in crate::server) fn all_are_back(&mut self) {
        self.ground.store.returning = None;
    }

    /// Enters the memory of another coordinator's tenant where it is found. Returns true if the tenant has others' frames mapped.
    pub(in crate::server) fn take_over(
        &mut self,
        id: TenantId,
        extents: &[HeldExtent],
        spare: &[(u64, u64)],
        found: &Found,
    ) -> Result<bool, MemoryLost> {
        self.ground.take_over(id, extents, spare, found)
    }

    /// Frees all memory that another coordinator's tenant had.
    pub(in crate::server) fn let_go_of_unclaimed(&mut self, id: TenantId, found: &Found) {
        self.ground.let_go_of_unclaimed(id, found, &HashSet::new(), &HashSet::new());
    }

    /// Handles a tenant's request for `bytes` more at this address. Once accepted, the request only waits for frames.
    pub(in crate::server) fn allocate(&mut self, id: TenantId, at: u64, bytes: u64) -> Result<(), MemoryBreach> {
        self.claims.allocate(&mut self.ground, id, at, bytes)
    }

    /// Queues a tenant's request for memory beside the arena.
    pub(in crate::server) fn make_room(&mut self, tenant: TenantId, request: &Request) {
        self.claims.make_room(&mut self.ground, tenant, request);
    }

    /// Reads how much unmanaged memory each tenant reports. This is slow with many tenants, so only rare events use it.
    pub(in crate::server) fn hear_of_all_unmanaged(&mut self) {
        self.claims.hear_of_all_unmanaged(&self.ground);
    }

    /// Takes back `bytes` of a tenant's lease that it no longer needs.
    pub(in crate::server) fn unlease(&mut self, id: TenantId, bytes: u64) -> Result<(), MemoryBreach> {
        self.claims.unlease(&self.ground, id, bytes)
    }

    /// Notes that a tenant has made the context for which it asked for room, or has failed to.
    pub(in crate::server) fn context_made(&mut self, id: TenantId, made: bool) {
        self.claims.context_made(&self.ground, id, made);
    }

    /// Notes that one of a tenant's contexts is gone.
    pub(in crate::server) fn context_gone(&mut self, id: TenantId) {
        self.claims.context_gone(id);
    }

    /// Bytes that all tenants have, and that they have asked for.
    pub(in crate::server) fn wanted_bytes(&self) -> u64 {
        self.claims.wanted_bytes(&self.ground)
    }

    /// Drops the claims of a tenant that is told to leave the GPU. It cannot leave while it waits for memory, and others may wait
    /// for its memory: it asks again when it has the GPU to itself.
    pub(in crate::server) fn turn_away(&mut self, id: TenantId) {
        self.claims.turn_away(&mut self.ground, id);
    }

    /// Drops the claims of a tenant whose connection has ended.
    pub(in crate::server) fn drop_claims(&mut self, id: TenantId) {
        self.claims.drop_claims(&mut self.ground, self.residency, id);
    }

    /// Sends a tenant the frames behind extents that it has mapped.
    pub(in crate::server) fn give_frames(&mut self, id: TenantId, extents: Vec<ExtentId>) -> Result<(), MemoryBreach> {
        self.ground.give_frames(id, extents)
    }

    /// Starts to consolidate a row of a tenant's extents into one piece of its own.
    pub(in crate::server) fn consolidate(
        &mut self,
        id: TenantId,
        at: u64,
        bytes: u64,
        piece: Option<OwnedFd>,
    ) -> Result<(), MemoryBreach> {
        self.ground.consolidate(id, at, bytes, piece)
    }

    /// Gives up consolidating because the tenant's work goes on.
    pub(in crate::server) fn give_up_consolidating(&mut self, id: TenantId) {
        self.ground.give_up_consolidating(id);
    }

    /// Notes that the frames for a batch did not reach the tenant.
    pub(in crate::server) fn on_undelivered(&mut self, id: TenantId, batch: u32) -> Result<(), MemoryBreach> {
        self.ground.on_undelivered(id, batch)
    }

    /// Sends frames again that are due for another try.
    pub(in crate::server) fn deliver_again(&mut self, id: TenantId) {
        self.ground.deliver_again(id);
    }

    /// Evicts all movable memory of a tenant that is off the GPU.
    pub(in crate::server) fn evict_all(&mut self, id: TenantId) -> Evicted {
        self.residency.evict_all(&mut self.ground, id)
    }

    /// Notes that the tenant has freed parts of extents that it goes on using.
    pub(in crate::server) fn spare(&mut self, id: TenantId, ranges: &[(u64, u64)]) -> Result<(), MemoryBreach> {
        self.ground.spare(id, ranges)
    }

    /// Notes that the tenant uses a spare range again.
    pub(in crate::server) fn reuse(&mut self, id: TenantId, at: u64, bytes: u64) -> Result<(), MemoryBreach> {
        self.ground.reuse(id, at, bytes)
    }

    /// Frees extents that the tenant has unmapped and released.
    pub(in crate::server) fn free(&mut self, id: TenantId, extents: &[ExtentId]) -> Result<(), MemoryBreach> {
        self.residency.free(&mut self.ground, id, extents)
    }

    /// Makes extents immovable, of this tenant or of another one, because the tenant is about to let others reach them.
    pub(in crate::server) fn make_immovable(&mut self, id: TenantId, extents: &[ExtentId]) {
        self.claims.make_immovable(&mut self.ground, id, extents);
    }

    /// Tells each tenant how much it may have, if that has changed.
    pub(in crate::server) fn show_offers(&mut self) {
        self.claims.show_offers(&self.ground);
    }

    /// Tells one tenant how much it may have.
    pub(in crate::server) fn show_offer(&self, id: TenantId) {
        self.claims.show_offer(&self.ground, id);
    }

    /// The offer shown to a tenant that has just come, for this guest if it is a guest's.
    pub(in crate::server) fn first_offer(&self, guest: Option<u32>) -> (u64, u64) {
        self.ground.first_offer(guest)
    }

    /// Prefetches, at a user's request, the memory of a tenant that is off the GPU. The headroom stays free, and no other tenant is
    /// evicted. The caller repeats the call until no more memory comes.
    pub(in crate::server) fn fetch(&mut self, id: TenantId) -> Fetched {
        let is_claimed = self.is_claimed();
        self.residency.fetch(&mut self.ground, is_claimed, id)
    }

    /// Handles a tenant's report that it has carried out a batch of commands.
    pub(in crate::server) fn batch_done(
        &mut self,
        id: TenantId,
        batch: u32,
        took: Duration,
    ) -> Result<(), MemoryBreach> {
        self.residency.batch_done(&mut self.ground, id, batch, took)
    }

    /// Handles a tenant's report that it could not.
    pub(in crate::server) fn batch_failed(&mut self, id: TenantId, batch: u32, code: u32) -> Result<(), MemoryBreach> {
        self.ground.batch_failed(id, batch, code)
    }

    /// True if memory is coming in for a tenant.
    pub(in crate::server) fn brings_in(&self, id: TenantId) -> bool {
        self.residency.brings_in(&self.ground, id)
    }

    /// Ends a swap-in that is complete or given up.
    pub(in crate::server) fn end_swap_in(&mut self, id: TenantId) {
        self.residency.end_swap_in(&self.ground, id);
    }

    /// The offer shown to a tenant that comes later, if it ever does.
    pub(in crate::server) fn offer_of_later(&self, guest: Option<u32>) -> u64 {
        self.ground.offer_of_later(guest)
    }

    /// Exports an allocation of a tenant, so that others can open it.
    pub(in crate::server) fn export(&mut self, id: TenantId, at: u64, bytes: u64) {
        self.ground.export(id, at, bytes);
    }

    /// Withdraws the export of an allocation that the tenant has freed.
    pub(in crate::server) fn unexport(&mut self, id: TenantId, at: u64) {
        self.ground.unexport(id, at);
    }

    /// Exports an event of a tenant, so that others can open it.
    pub(in crate::server) fn export_event(&mut self, id: TenantId, handle: [u8; IPC_HANDLE]) {
        self.ground.export_event(id, handle);
    }

    /// Handles a tenant that is about to open an event. Returns the tenant with which it must first be scheduled as one; otherwise
    /// the tenant gets its answer at once.
    pub(in crate::server) fn open_event(&mut self, id: TenantId, handle: [u8; IPC_HANDLE]) -> Option<TenantId> {
        self.ground.open_event(id, handle)
    }

    /// Notes that a tenant lets others import its memory by descriptors that its process owns.
    pub(in crate::server) fn export_descriptors(&mut self, id: TenantId, process: ProcessId) {
        self.ground.export_descriptors(id, process);
    }

    /// True if all memory that a tenant reaches is there, its own and others'.
    pub(in crate::server) fn is_all_mapped(&self, id: TenantId) -> bool {
        self.ground.is_all_mapped(id)
    }

    /// The tenants that may own what another one asks to share, as they say themselves; the likeliest first.
    pub(in crate::server) fn owners_of_shared(&self, request: &Request) -> Vec<TenantId> {
        self.ground.owners_of_shared(request)
    }

    /// Handles a tenant that is about to import memory by a descriptor that another process owns. Returns the tenant with which it
    /// must be scheduled as one. The importing tenant is answered at once in any case: it asks from outside the gate, because the
    /// other tenant may keep the GPU until it has written there.
    pub(in crate::server) fn import_descriptor(&self, id: TenantId, owner: ProcessId) -> Option<TenantId> {
        self.ground.import_descriptor(id, owner)
    }

    /// Attaches a tenant to memory that another one has exported.
    pub(in crate::server) fn attach(
        &mut self,
        id: TenantId,
        exporter: TenantId,
        key: &Key,
        at: u64,
        apart: bool,
    ) -> Attaching {
        self.ground.attach(id, exporter, key, at, apart)
    }

    /// As [`Self::fits_with`]. The user is told nothing: it is asked again and again.
    pub(in crate::server) fn have_room(&self, id: TenantId, other: TenantId) -> bool {
        self.ground.have_room(id, other)
    }

    /// True if a tenant may open the memory that another one has exported by this key.
    pub(in crate::server) fn may_share(&self, id: TenantId, exporter: TenantId, key: &Key) -> bool {
        self.ground.may_share(id, exporter, key)
    }

    /// Notes that a tenant has had all answers to its earlier requests: it asks for something else.
    pub(in crate::server) fn has_heard_all(&mut self, id: TenantId) {
        self.ground.has_heard_all(id);
    }

    /// True if two tenants' word is enough to believe that they share something.
    pub(in crate::server) fn is_believed(&self, id: TenantId, of: TenantId) -> bool {
        self.ground.is_believed(id, of)
    }

    /// True if two tenants that share memory may take turns.
    pub(in crate::server) fn may_be_apart(&self, id: TenantId, exporter: TenantId) -> bool {
        self.ground.may_be_apart(id, exporter)
    }

    /// True if there is room for everything that two tenants and those that they run with have. If not, the user is told.
    pub(in crate::server) fn fits_with(&self, id: TenantId, other: TenantId) -> bool {
        self.ground.fits_with(id, other)
    }

    /// Notes that tenants which run with this one may write to its memory from now on.
    pub(in crate::server) fn may_be_written(&mut self, id: TenantId) {
        self.ground.may_be_written(id);
    }

    /// Takes the memory of an unresponsive tenant that is off the GPU: from now on it leaves without being unmapped there.
    pub(in crate::server) fn take(&mut self, id: TenantId) {
        self.residency.take(&mut self.ground, id);
    }

    /// Ends the taking of a tenant that answers again and can change mappings, or that is let in. The tenant unmaps the memory it
    /// was left with, except for memory on its way back there.
    pub(in crate::server) fn untake(&mut self, id: TenantId) {
        self.ground.untake(id);
    }

    /// Handles the reports of the threads.
    ///
    /// # Errors
    ///
    /// When memory of another coordinator cannot be had.
    pub(in crate::server) fn hear(&mut self) -> Result<(), Message> {
        while let Some(ended) = self.ground.store.transfer.next_ended() {
            self.residency.on_job_ended(&mut self.ground, ended);
        }
        while let Some((looked, scanned)) = self.ground.store.scans.next_over() {
            match looked {
                Looked::Leaving(look) => {
                    if let Some(tenant) = self.ground.on_scanned(&look, scanned) {
                        self.residency.drop_spare(&mut self.ground, tenant);
                    }
                }
                Looked::Ahead(look) => self.residency.on_scanned_ahead(&mut self.ground, look, scanned),
            }
        }
        for Scrubbed { bytes, time } in self.ground.store.frames.hear() {
            self.ground.recorder.record_of_gpu(What::Scrubbed { bytes, time });
        }
        self.ground.store.host.hear()
    }

    /// Heeds what the keeper has let go of: that memory is free to the driver.
    pub(in crate::server) fn heed_keeper(&mut self) {
        self.ground.store.frames.heed_keeper();
    }

    /// Does the work that only the passage of time makes due.
    pub(in crate::server) fn timers(&mut self) {
        let store = &mut *self.ground.store;
        for gone in store.departed.end_quarantine(&mut store.frames) {
            self.residency.drop_attachments(&mut self.ground, gone);
        }
        self.claims.unsqueeze(&mut self.ground);
    }

    /// Serves claims as far as possible, then the unit that is swapped in. A unit that arrives does not wait for claims: they may be of
    /// programs that start, or that run beside others. The rest of one that runs already comes after what it claims.
    pub(in crate::server) fn serve(&mut self) {
        self.claims.serve(&mut self.ground, self.residency);
        let arrives = |unit| self.ground.arbiter.state(unit) == State::Arriving;
        if self.claims.queue.is_empty() || self.residency.swapping_in().is_some_and(arrives) {
            self.residency.serve_swap_in(&mut self.ground);
        }
    }

    /// True if any tenant waits for memory.
    pub(in crate::server) fn is_claimed(&self) -> bool {
        !self.claims.queue.is_empty() || self.residency.swap_in.is_some()
    }

    /// Works ahead of need while there is no claim. In `haste`, the tenant that has the GPU must not notice anything of this work.
    pub(in crate::server) fn work_ahead(&mut self, haste: bool) {
        if self.is_claimed() {
            return;
        }
        if !haste {
            self.residency.come_ahead(&mut self.ground);
            let wanted = self.wanted_bytes();
            self.residency.copy_ahead(&mut self.ground, wanted);
        }
        if !self.is_claimed() && !self.ground.store.frames.is_scrubbing() {
            self.ground.store.frames.scrub(None, SCRUB_BYTES);
            if !haste {
                self.claims.make_ready(&mut self.ground, self.residency);
            }
        }
    }

    /// Takes back all memory of a process that has ended, except memory that it shares with others. If its work may still have been
    /// on the GPU, the memory comes back only when none of that work is left.
    pub(in crate::server) fn depart(&mut self, id: TenantId, extents: Extents, remains: Option<Remains>) {
        self.claims.leases.remove(id);
        self.residency.depart(&mut self.ground, id, extents, remains);
    }
}
