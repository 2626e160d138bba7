//! What tenants say: reports of their pagers, and requests of their programs.
//!
//! A peer's bytes are allegations. What cannot be true costs the tenant its connection, and nothing else.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use baton_contract::link::Received;
use baton_contract::memory::{GRANULE, SizeClass};
use baton_contract::messages::{
    Answer, Channels, ExtentId, FromTenant, Full, MemoryReport, Message as _, PreemptionReport, Request,
};
use baton_contract::wire::MAX_DESCRIPTORS;

use super::Server;
use super::frames::Claim;
use super::tenants::tenant::Batch;
use crate::books::arena::FrameId;
use crate::books::extents::{Extent, ExtentState, Half};
use crate::policy::arbiter::{State, TenantId};

impl Server {
    /// Reports of the pager.
    pub(super) fn hear_control(&mut self, id: TenantId) {
        self.hear(id, |tenant| &mut tenant.control, Self::report);
    }

    /// Requests of the program's threads.
    pub(super) fn hear_request(&mut self, id: TenantId) {
        self.hear(id, |tenant| &mut tenant.requests, Self::request);
    }

    fn hear(
        &mut self,
        id: TenantId,
        socket: fn(&mut super::tenants::tenant::Tenant) -> &mut super::tenants::peer::Peer,
        act: fn(&mut Self, TenantId, FromTenant, Option<OwnedFd>) -> Result<(), String>,
    ) {
        loop {
            let Some(tenant) = self.tenants.get_mut(id).filter(|tenant| tenant.disconnected.is_none()) else { return };
            let peer = socket(tenant);
            let heard = peer.send_kept().and_then(|()| peer.receive());
            let Received { message, mut descriptors, truncated } = match heard {
                Ok(Some(received)) => received,
                Ok(None) => return,
                Err(_) => return self.connection_ended(id),
            };
            let came = descriptors.len();
            let decoded = FromTenant::decode(&message);
            let decoded =
                if truncated { decoded.map(|message| self.without_descriptors(id, message)) } else { decoded };
            let done = decoded.and_then(|message| message.expect(came));
            let done = done.map_err(|error| error.to_string());
            if let Err(why) = done.and_then(|message| act(self, id, message, descriptors.pop())) {
                return self.cut_off(id, &why);
            }
        }
    }

    /// What a message means whose descriptors had no place in our own table.
    fn without_descriptors(&self, id: TenantId, message: FromTenant) -> FromTenant {
        match message {
            FromTenant::Preemption(PreemptionReport::Channels { .. }) => {
                let name = self.tenants.get(id).map_or("", |tenant| &tenant.name);
                log::warn!(
                    "{name} cannot be preempted, because the coordinator can open no more descriptors: start it with a \
                     higher `ulimit -n`"
                );
                PreemptionReport::Channels { channels: Channels::None }.into()
            }
            other => other,
        }
    }

    /// Each family of reports goes to who handles it.
    fn report(&mut self, id: TenantId, message: FromTenant, descriptor: Option<OwnedFd>) -> Result<(), String> {
        match message {
            FromTenant::Turn(report) => self.hear_of_turn(id, report),
            FromTenant::Memory(report) => return self.hear_of_memory(id, report),
            FromTenant::Preemption(report) => return self.hear_of_preemption(id, report, descriptor),
            FromTenant::Corun(report) => self.hear_of_corun(id, report),
            FromTenant::Opening(_) | FromTenant::Request(_) => {
                return Err("it sent a request where reports belong".to_owned());
            }
        }
        Ok(())
    }

    /// What a tenant reports about its mappings.
    fn hear_of_memory(&mut self, id: TenantId, report: MemoryReport) -> Result<(), String> {
        match report {
            MemoryReport::Done { batch, micros } => self.batch_done(id, batch, Duration::from_micros(micros)),
            MemoryReport::Failed { batch, code } => self.batch_failed(id, batch, code),
            MemoryReport::Undelivered { batch } => self.undelivered(id, batch),
            MemoryReport::Free { extents } => self.free(id, &extents),
        }
    }

    fn request(&mut self, id: TenantId, message: FromTenant, _: Option<OwnedFd>) -> Result<(), String> {
        let FromTenant::Request(request) = message else {
            return Err("it sent a report where requests belong".to_owned());
        };
        let Some(tenant) = self.tenants.get_mut(id) else { return Ok(()) };
        if std::mem::replace(&mut tenant.asking, true) {
            return Err("it sent a request before the last one was answered".to_owned());
        }
        if tenant.hold.is_some_and(|hold| hold.has_begun()) {
            match request {
                // Whoever asks for memory keeps the gate from closing.
                Request::Allocate { .. } => {
                    self.tenants.answer(id, &Answer::TryAgain, &[]);
                    return Ok(());
                }
                Request::UnmanagedMemory { .. } => {
                    tenant.deferred = Some(request);
                    return Ok(());
                }
                Request::Free { .. } | Request::Frames { .. } | Request::MakeImmovable { .. } => {}
            }
        }
        self.serve_request(id, request)
    }

    /// What was asked for while the gate was closed already.
    pub(super) fn serve_deferred(&mut self, id: TenantId) {
        let Some(request) = self.tenants.get_mut(id).and_then(|tenant| tenant.deferred.take()) else { return };
        if let Err(why) = self.serve_request(id, request) {
            self.cut_off(id, &why);
        }
    }

    fn serve_request(&mut self, id: TenantId, request: Request) -> Result<(), String> {
        match request {
            Request::Allocate { bytes } => self.allocate(id, bytes)?,
            Request::Free { extents } => {
                self.free(id, &extents)?;
                self.tenants.answer(id, &Answer::Freed, &[]);
            }
            Request::Frames { extents } => {
                let frames = self.frames_of(id, &extents)?;
                self.answer_with(id, &Answer::Frames { extents }, &frames);
            }
            Request::MakeImmovable { extents } => self.make_immovable(id, &extents),
            Request::UnmanagedMemory { bytes } => {
                let bytes = bytes.min(self.gpu.memory / 4);
                self.claims.push_back(Claim::Unmanaged { tenant: id, bytes, asked: Instant::now() })
            }
        }
        Ok(())
    }

    /// Answers a tenant's request with frames.
    pub(super) fn answer_with(&mut self, id: TenantId, message: &Answer, frames: &[FrameId]) {
        let descriptors: Vec<BorrowedFd<'_>> =
            frames.iter().filter_map(|frame| self.frames[frame.0 as usize].as_ref().map(AsFd::as_fd)).collect();
        self.tenants.answer(id, message, &descriptors);
    }

    /// Whether a tenant may have so much more; then the rest is waiting for frames.
    fn allocate(&mut self, id: TenantId, bytes: u64) -> Result<(), String> {
        if bytes == 0 || !bytes.is_multiple_of(GRANULE) {
            return Err(format!("it asked for {bytes} bytes, which is no multiple of 2 MiB"));
        }
        let unresponsive = self.tenants.get(id).is_some_and(|tenant| tenant.unresponsive);
        if !unresponsive && self.is_off_the_gpu(id) {
            return Err("it asked for memory without the baton".to_owned());
        }
        let own: u64 = self.tenants.get(id).map_or(0, |tenant| tenant.extents().counts().bytes);
        let all: u64 = self.tenants.totals().bytes;
        let spare = self.arena.largest_class().bytes();
        // As long as everything fits the arena, nothing ever has to move. Beyond that, one extent's room is
        // kept free, so that one can always go where another comes from.
        let fits_arena = all.saturating_add(bytes) <= self.arena.capacity();
        let fits =
            fits_arena || all.saturating_add(bytes).saturating_add(spare) <= self.arena.capacity() + self.pool.bytes();
        let full = if own.saturating_add(bytes) > self.offered() {
            Some(Full::Arena)
        } else if own.saturating_add(bytes) > self.offered_to(id) {
            Some(Full::Held)
        } else if !fits {
            Some(Full::HostPool)
        } else {
            None
        };
        let fits_beside = self.wanted_bytes().saturating_add(bytes) <= self.arena.capacity()
            && self.arbiter.state(id) == State::Corunning;
        if full.is_none() && self.arbiter.is_corunner(id) && !fits_beside {
            // Others would have to go, which run too: it is to ask again when it has the GPU to itself.
            self.part();
            self.tenants.answer(id, &Answer::TryAgain, &[]);
            return Ok(());
        }
        match full {
            Some(full) => self.deny(id, full, bytes),
            None => self.claims.push_back(Claim::Allocate {
                tenant: id,
                left: SizeClass::cut(bytes, self.arena.largest_class()).collect(),
                got: Vec::new(),
                asked: Instant::now(),
            }),
        }
        Ok(())
    }

    /// Says no to an allocation.
    pub(super) fn deny(&mut self, id: TenantId, full: Full, bytes: u64) {
        let Some(tenant) = self.tenants.get(id) else { return };
        let why = match full {
            Full::Arena => {
                format!("with its {} MiB that is more than the arena", tenant.extents().counts().bytes >> 20)
            }
            Full::HostPool => "arena and host pool together have no room; a larger --host-pool would help".to_owned(),
            Full::Held => "the memory for it is held by a program that does not give it back".to_owned(),
        };
        log::warn!("{} asked for {} MiB and got none: {why}", tenant.name, bytes >> 20);
        self.tenants.answer(id, &Answer::Denied { full }, &[]);
    }

    /// All frames for an allocation are there.
    pub(super) fn lend(&mut self, id: TenantId, got: &[(SizeClass, FrameId)], asked: Instant) {
        let Some(mut own) = self.tenants.extents(id) else { return };
        let extents: Vec<(ExtentId, SizeClass)> =
            got.iter().map(|(class, frame)| (own.add(*class, *frame), *class)).collect();
        let bytes = own.counts().bytes;
        drop(own);
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        tenant.peak_bytes = tenant.peak_bytes.max(bytes);
        tenant.is_put_off = false;
        self.ledger.allocated(&tenant.name, asked);
        let first: Vec<FrameId> = got.iter().map(|(_, frame)| *frame).take(MAX_DESCRIPTORS).collect();
        self.answer_with(id, &Answer::Allocated { extents }, &first);
    }

    /// The frames behind extents that a tenant has.
    fn frames_of(&self, id: TenantId, extents: &[ExtentId]) -> Result<Vec<FrameId>, String> {
        let Some(tenant) = self.tenants.get(id) else { return Ok(Vec::new()) };
        let resident = |extent: &ExtentId| match tenant.extents().get(*extent).map(Extent::state) {
            Some(ExtentState::Resident { frame }) => Ok(frame),
            _ => Err(format!("it asked for the frame of extent {}, which it does not have mapped", extent.0)),
        };
        extents.iter().map(resident).collect()
    }

    /// The tenant has unmapped these and let go of them.
    fn free(&mut self, id: TenantId, extents: &[ExtentId]) -> Result<(), String> {
        for extent in extents {
            let Some(mut own) = self.tenants.extents(id) else { return Ok(()) };
            let freed = own.remove(*extent);
            drop(own);
            let (Some(freed), Some(tenant)) = (freed, self.tenants.get_mut(id)) else {
                return Err(format!("it freed extent {}, which it does not have mapped", extent.0));
            };
            tenant.history.forget(*extent);
            if let Some(frame) = freed.state().frame() {
                self.release(frame);
            }
            self.pool.give_back(freed.into_runs());
        }
        Ok(())
    }

    fn batch_done(&mut self, id: TenantId, batch: u32, took: Duration) -> Result<(), String> {
        let Some(tenant) = self.tenants.get_mut(id) else { return Ok(()) };
        match tenant.batches.remove(&batch).map(|(_, batch)| batch) {
            Some(Batch::Map(extents)) => {
                let count = extents.len();
                self.mapped(id, extents);
                self.ledger.mapped(took, count);
            }
            Some(Batch::Prepare(extents)) => {
                self.ledger.prepared(took);
                self.delivered(id, &extents);
            }
            Some(Batch::Unmap(extents)) => {
                for extent in extents {
                    self.half_left(id, extent, Half::Unmapped);
                }
                self.ledger.unmapped(took);
            }
            None => return Err(format!("it reports command {batch}, which it was not given")),
        }
        Ok(())
    }

    fn batch_failed(&mut self, id: TenantId, batch: u32, code: u32) -> Result<(), String> {
        let Some(tenant) = self.tenants.get_mut(id) else { return Ok(()) };
        if !tenant.batches.contains_key(&batch) {
            return Err(format!("it reports command {batch}, which it was not given"));
        }
        // After an error that breaks a context, as a kernel's wild access does, the driver maps and unmaps nothing
        // any more in that process. Its memory comes back when it ends.
        log::error!("{} cannot map or unmap (CUDA error {code}): its memory stays until it ends", tenant.name);
        tenant.stuck = true;
        // Its calls fail from here on, and say why.
        Err("it cannot carry out what it is told".to_owned())
    }
}
