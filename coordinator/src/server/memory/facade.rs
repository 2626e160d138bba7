//! The thin front of memory: who asks for what, and which owner answers.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use baton_contract::messages::{ExtentId, IPC_HANDLE, ProcessId, Request};

use super::claims::{Claim, Claims, Progress};
use super::departed::{Departed, Remains};
use super::events::MemoryEvent;
use super::evict::Evicted;
use super::frames::{Frames, SCRUB_BYTES, Scrubbed};
use super::ground::{Ground, Rules, Store};
use super::host::Host;
use super::leases::Leases;
use super::prefetch::Fetched;
use super::residency::Residency;
use super::scans::{Looked, Scans};
use super::sharing::Attaching;
use super::transfer::Transfer;
use crate::device::gpu::Gpu;
use crate::device::wake::Waker;
use crate::server::cost_model::CostModel;
use crate::server::options::{Options, ServeError};
use crate::server::recorder::Recorder;
use crate::server::recorder::event::What;
use crate::server::tenants::table::Tenants;
use baton_books::arena::Arena;
use baton_books::extents::Extents;
use baton_books::ledger::{Account, Lines, Reading};
use baton_books::pool::Pool;
use baton_books::reservations::Need;
use baton_books::sharing::{Key, Sharing};
use baton_policy::arbiter::TenantId;
use baton_policy::scheduler::Scheduler;

/// How often it is looked whether a squeezed arena can grow back.
const UNSQUEEZE: Duration = Duration::from_millis(500);

/// All memory that the coordinator has, on the GPU and on the host.
pub(in crate::server) struct Memory {
    pub(super) store: Store,
    pub(super) residency: Residency,
    pub(super) claims: Claims,
}

/// Memory, with all that is needed to manage it.
pub(in crate::server) struct Handle<'a> {
    claims: &'a mut Claims,
    residency: &'a mut Residency,
    ground: Ground<'a>,
}

impl Memory {
    /// Takes a GPU's memory into service.
    pub(in crate::server) fn new(gpu: Gpu, options: &Options, waker: Waker) -> Result<Self, ServeError> {
        let Options { headroom, pipeline, hash, isolation, quotas, .. } = *options;
        let transfer = Transfer::new(&gpu, &waker)?;
        let scans = Scans::new(&gpu, &waker)?;
        let host = Host::new(&gpu, options.host_pool, !options.until_idle, waker.clone())
            .map_err(|error| ServeError::System { what: "reserving addresses for the host pool".to_owned(), error })?;
        let own = gpu.memory.saturating_sub(gpu.free_memory().unwrap_or(gpu.memory));
        let leases = Leases::new(gpu.memory, own);
        let store = Store {
            rules: Rules { headroom, pipeline, hash, isolation, quotas },
            frames: Frames::new(gpu, options.arena, options.poison, options.keep, &waker)?,
            host,
            transfer,
            departed: Departed::default(),
            scans,
            sharing: Sharing::default(),
            events: VecDeque::new(),
        };
        Ok(Self { store, residency: Residency::new(waker), claims: Claims::new(leases) })
    }

    /// The same, with what else is needed to manage it.
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

    /// The GPU that it is of.
    pub(in crate::server) fn gpu(&self) -> &Gpu {
        self.store.frames.gpu()
    }

    /// The GPU's part of it.
    pub(in crate::server) fn arena(&self) -> &Arena {
        self.store.frames.arena()
    }

    /// The host's part of it.
    pub(in crate::server) fn pool(&self) -> &Pool {
        self.store.host.pool()
    }

    /// What has lost its place in it and may have to leave the GPU again, in bytes.
    pub(in crate::server) fn given_up(&self) -> u64 {
        self.store.host.given_up()
    }

    /// What has happened, one after the other.
    pub(in crate::server) fn next_event(&mut self) -> Option<MemoryEvent> {
        self.store.events.pop_front()
    }

    /// When something is to be done if nothing happens before.
    pub(in crate::server) fn next_timer(&self) -> Option<Instant> {
        let look = self.store.frames.is_squeezed().then(|| Instant::now() + UNSQUEEZE);
        [look, self.store.departed.next_look()].into_iter().flatten().min()
    }

    /// The unit that memory comes in for.
    pub(in crate::server) fn swapping_in(&self) -> Option<TenantId> {
        self.residency.swapping_in()
    }

    /// A unit is to be brought in. Only one is at a time: for another, the first goes back to waiting.
    pub(in crate::server) fn swap_in(&mut self, unit: TenantId) {
        self.residency.swap_in(unit);
    }

    /// What a tenant has outside the arena.
    pub(in crate::server) fn account(&self, id: TenantId) -> Account {
        self.claims.leases.account(id)
    }

    /// Whether a tenant has asked for memory and waits for it.
    pub(in crate::server) fn is_asked_by(&self, id: TenantId) -> bool {
        self.claims.is_asked_by(id)
    }

    /// The preemptor has closed the control device of a tenant whose process has ended.
    pub(in crate::server) fn let_go(&mut self, id: TenantId) {
        self.store.departed.let_go(id);
    }

    /// How many bytes there are too few for one that comes and needs so much.
    pub(in crate::server) fn lacking(&self, tenants: &Tenants, need: Need) -> u64 {
        let claimed: u64 = self.claims.queue.iter().map(Claim::bytes).sum();
        let free = self.store.grantable(tenants, None).saturating_sub(claimed);
        let kept = need.run.guest.map_or(0, |user| tenants.reservations().of_guest(user));
        let left = self.store.quota_left(tenants, need.run.guest).saturating_sub(kept);
        tenants.reservations().lacking(need).saturating_sub(free.min(left))
    }

    /// Why one that needs so much would wait for ever, if it would.
    pub(in crate::server) fn never_has(&self, tenants: &Tenants, need: Need) -> Option<String> {
        self.store.never_has(tenants, need)
    }

    /// What the programs of this guest can have at most together, in bytes.
    pub(in crate::server) fn most_of(&self, guest: Option<u32>) -> u64 {
        self.store.most_of(guest)
    }

    /// Every line of the ledger, by what the tenants have last said; and what the driver says now.
    pub(in crate::server) fn lines(&self) -> (Lines, Reading) {
        self.claims.lines(&self.store)
    }

    /// The first tenant is about to come.
    pub(in crate::server) fn nobody_is_here(&mut self) {
        self.claims.nobody_is_here(&self.store);
    }
}

impl Handle<'_> {
    /// A tenant asks for so much more at this address. The rest is waiting for frames.
    pub(in crate::server) fn allocate(&mut self, id: TenantId, at: u64, bytes: u64) -> Result<(), String> {
        self.claims.allocate(&mut self.ground, id, at, bytes)
    }

    /// A tenant asks for memory beside the arena.
    pub(in crate::server) fn make_room(&mut self, tenant: TenantId, request: &Request) {
        self.claims.make_room(tenant, request);
    }

    /// What each says. With many tenants this takes a while: it is for what happens rarely.
    pub(in crate::server) fn hear_of_all_unmanaged(&mut self) {
        self.claims.hear_of_all_unmanaged(&mut self.ground);
    }

    /// A tenant no longer needs so much of what it has leased.
    pub(in crate::server) fn unlease(&mut self, id: TenantId, bytes: u64) -> Result<(), String> {
        self.claims.unlease(&mut self.ground, id, bytes)
    }

    /// A tenant has made the context for which it has asked for room, or could not.
    pub(in crate::server) fn context_made(&mut self, id: TenantId, made: bool) {
        self.claims.context_made(&mut self.ground, id, made);
    }

    /// One of a tenant's contexts is no more.
    pub(in crate::server) fn context_gone(&mut self, id: TenantId) {
        self.claims.context_gone(id);
    }

    /// What all tenants have, and what they have asked for.
    pub(in crate::server) fn wanted_bytes(&self) -> u64 {
        self.claims.wanted_bytes(&self.ground)
    }

    /// One that is told to leave the GPU cannot as long as it waits for memory, and others may wait for its: it is to ask again
    /// when it has the GPU to itself.
    pub(in crate::server) fn turn_away(&mut self, id: TenantId) {
        self.claims.turn_away(&mut self.ground, id);
    }

    /// A tenant's connection has ended: it gets nothing any more.
    pub(in crate::server) fn drop_claims(&mut self, id: TenantId) {
        self.claims.drop_claims(&mut self.ground, self.residency, id);
    }

    /// A tenant asks for the frames behind extents that it has mapped.
    pub(in crate::server) fn give_frames(&mut self, id: TenantId, extents: Vec<ExtentId>) -> Result<(), String> {
        self.ground.give_frames(id, extents)
    }

    /// A tenant wants to have a row of its extents in a piece of its own.
    pub(in crate::server) fn consolidate(
        &mut self,
        id: TenantId,
        at: u64,
        bytes: u64,
        piece: Option<OwnedFd>,
    ) -> Result<(), String> {
        self.ground.consolidate(id, at, bytes, piece)
    }

    /// A tenant's work goes on: what is to become one piece cannot.
    pub(in crate::server) fn give_up_consolidating(&mut self, id: TenantId) {
        self.ground.give_up_consolidating(id);
    }

    /// A tenant was told something for which it has not got the frames.
    pub(in crate::server) fn undelivered(&mut self, id: TenantId, batch: u32) -> Result<(), String> {
        self.ground.undelivered(id, batch)
    }

    /// Sends frames again whose time has come.
    pub(in crate::server) fn deliver_again(&mut self, id: TenantId) {
        self.ground.deliver_again(id);
    }

    /// Makes all of a tenant go that can move. It is off the GPU.
    pub(in crate::server) fn evict_all(&mut self, id: TenantId) -> Evicted {
        self.residency.evict_all(&mut self.ground, id)
    }

    /// The tenant has freed parts of extents that it goes on using.
    pub(in crate::server) fn spare(&mut self, id: TenantId, ranges: &[(u64, u64)]) -> Result<(), String> {
        self.ground.spare(id, ranges)
    }

    /// The tenant uses what was spare.
    pub(in crate::server) fn reuse(&mut self, id: TenantId, at: u64, bytes: u64) -> Result<(), String> {
        self.ground.reuse(id, at, bytes)
    }

    /// The tenant has unmapped these and let go of them.
    pub(in crate::server) fn free(&mut self, id: TenantId, extents: &[ExtentId]) -> Result<(), String> {
        self.residency.free(&mut self.ground, id, extents)
    }

    /// A tenant is about to let others reach these extents, of its own or of another's.
    pub(in crate::server) fn make_immovable(&mut self, id: TenantId, extents: &[ExtentId]) {
        self.claims.make_immovable(&mut self.ground, id, extents);
    }

    /// Lets tenants know how much each may have, if that has changed.
    pub(in crate::server) fn show_offers(&mut self) {
        self.claims.show_offers(&mut self.ground);
    }

    /// Lets one know.
    pub(in crate::server) fn show_offer(&self, id: TenantId) {
        self.claims.show_offer(&self.ground, id);
    }

    /// What is shown to one that has just come, of this guest's if it is one's.
    pub(in crate::server) fn first_offer(&self, guest: Option<u32>) -> (u64, u64) {
        self.claims.first_offer(&self.ground, guest)
    }

    /// Brings a tenant's memory in that is off the GPU, because a user wants so, as far as the headroom stays free and nobody has to
    /// go. To be asked for until it says that no more comes.
    pub(in crate::server) fn fetch(&mut self, id: TenantId) -> Fetched {
        let is_claimed = self.is_claimed();
        self.residency.fetch(&mut self.ground, is_claimed, id)
    }

    pub(in crate::server) fn batch_done(&mut self, id: TenantId, batch: u32, took: Duration) -> Result<(), String> {
        self.residency.batch_done(&mut self.ground, id, batch, took)
    }

    pub(in crate::server) fn batch_failed(&mut self, id: TenantId, batch: u32, code: u32) -> Result<(), String> {
        self.residency.batch_failed(&mut self.ground, id, batch, code)
    }

    /// Whether memory comes in for a tenant.
    pub(in crate::server) fn brings_in(&self, id: TenantId) -> bool {
        self.residency.brings_in(&self.ground, id)
    }

    /// That is over, or given up.
    pub(in crate::server) fn end_swap_in(&mut self, id: TenantId) {
        self.residency.end_swap_in(&mut self.ground, id);
    }

    /// What is shown to one that comes later, or never.
    pub(in crate::server) fn offer_of_later(&self, guest: Option<u32>) -> u64 {
        self.ground.offer_of_later(guest)
    }

    /// A tenant lets others open an allocation of its.
    pub(in crate::server) fn export(&mut self, id: TenantId, at: u64, bytes: u64) {
        self.ground.export(id, at, bytes);
    }

    /// It has freed that allocation.
    pub(in crate::server) fn unexport(&mut self, id: TenantId, at: u64) {
        self.ground.unexport(id, at);
    }

    /// A tenant lets others open an event of its.
    pub(in crate::server) fn export_event(&mut self, id: TenantId, handle: [u8; IPC_HANDLE]) {
        self.ground.export_event(id, handle);
    }

    /// A tenant is about to open an event. Says with whom it is to be scheduled as one first; that one has its answer.
    pub(in crate::server) fn open_event(&mut self, id: TenantId, handle: [u8; IPC_HANDLE]) -> Option<TenantId> {
        self.ground.open_event(id, handle)
    }

    /// A tenant lets others import memory of its by descriptors, which its process owns.
    pub(in crate::server) fn export_descriptors(&mut self, id: TenantId, process: ProcessId) {
        self.ground.export_descriptors(id, process);
    }

    /// A tenant is about to import memory by a descriptor that another process owns. Says with whom it is to be scheduled as one; it is
    /// answered in any case, at once: it asks from outside of the gate, as the other one may keep the GPU until it has written there.
    pub(in crate::server) fn import_descriptor(&self, id: TenantId, owner: ProcessId) -> Option<TenantId> {
        self.ground.import_descriptor(id, owner)
    }

    /// A tenant wants to open memory that another one has exported.
    pub(in crate::server) fn attach(
        &mut self,
        id: TenantId,
        exporter: TenantId,
        key: &Key,
        at: u64,
    ) -> Result<Attaching, String> {
        self.ground.attach(id, exporter, key, at)
    }

    /// From here on what a tenant has may be written by those that it runs with.
    pub(in crate::server) fn may_be_written(&mut self, id: TenantId) {
        self.ground.may_be_written(id);
    }

    /// A tenant that is off the GPU does not answer: from now on its memory leaves without being unmapped there.
    pub(in crate::server) fn take(&mut self, id: TenantId) {
        self.residency.take(&mut self.ground, id);
    }

    /// A tenant answers again, and can change mappings, or is let in: it unmaps what it was left with, but for what is on its way back
    /// there.
    pub(in crate::server) fn untake(&mut self, id: TenantId) {
        self.residency.untake(&mut self.ground, id);
    }

    /// Hears what the threads report.
    pub(in crate::server) fn hear(&mut self) {
        while let Some(ended) = self.ground.store.transfer.next_ended() {
            self.residency.job_ended(&mut self.ground, ended);
        }
        while let Some((looked, scanned)) = self.ground.store.scans.next_over() {
            match looked {
                Looked::Leaving(look) => {
                    if let Some(tenant) = self.ground.scanned(&look, scanned) {
                        self.residency.drop_spare(&mut self.ground, tenant);
                    }
                }
                Looked::Ahead(look) => self.residency.looked_ahead(&mut self.ground, look, scanned),
            }
        }
        for Scrubbed { bytes, time } in self.ground.store.frames.hear() {
            self.ground.recorder.record_of_gpu(What::Scrubbed { bytes, time });
        }
        self.ground.store.host.hear();
    }

    /// What only time brings.
    pub(in crate::server) fn timers(&mut self) {
        let store = &mut *self.ground.store;
        for gone in store.departed.end_quarantine(&mut store.frames) {
            self.residency.drop_attachments(&mut self.ground, gone);
        }
        self.claims.unsqueeze(&mut self.ground);
    }

    /// Serves claims as far as possible, then who is swapped in: whoever claims anything has the baton, and is waited for before it
    /// can be taken away.
    pub(in crate::server) fn serve(&mut self) {
        while let Some(claim) = self.claims.queue.pop_front() {
            let progress = match claim {
                Claim::Allocate(allocation) => {
                    self.claims.serve_allocation(&mut self.ground, self.residency, allocation)
                }
                Claim::Beside { tenant, need } => {
                    self.claims.serve_beside(&mut self.ground, self.residency, tenant, need)
                }
            };
            if progress == Progress::Waits {
                return;
            }
        }
        self.residency.serve_swap_in(&mut self.ground);
    }

    /// Whether somebody waits for memory.
    pub(in crate::server) fn is_claimed(&self) -> bool {
        !self.claims.queue.is_empty() || self.residency.swap_in.is_some()
    }

    /// While nobody has a claim. In `haste`, whoever has the GPU must not feel anything of it.
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

    /// A process has ended: all that it had and shares with nobody comes back. If work of its may have been on the GPU then, not
    /// before nothing is left of it.
    pub(in crate::server) fn depart(&mut self, id: TenantId, extents: Extents, remains: Option<Remains>) {
        self.claims.leases.remove(id);
        self.residency.depart(&mut self.ground, id, extents, remains);
    }
}
