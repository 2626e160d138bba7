//! What tenants say: reports of their pagers, and requests of their programs.
//!
//! A peer's bytes are allegations. What cannot be true costs the tenant its connection, and nothing else.

use std::os::fd::OwnedFd;
use std::time::Duration;

use baton_contract::link::Received;
use baton_contract::messages::{
    Answer, Channels, CorunReport, FromTenant, MemoryReport, Message as _, PreemptionReport, Request,
};

use super::Server;
use crate::policy::arbiter::TenantId;

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
            self.settle();
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
            FromTenant::Preemption(report) => return self.preemptions().heard(id, report, descriptor),
            FromTenant::Corun(CorunReport::ActivityChanged) => {
                if let Some(tenant) = self.tenants.get_mut(id) {
                    tenant.preemption.slice.work_begins();
                }
                self.look_at_activity();
            }
            FromTenant::Opening(_) | FromTenant::Request(_) => {
                return Err("it sent a request where reports belong".to_owned());
            }
        }
        Ok(())
    }

    /// What a tenant reports about its mappings.
    fn hear_of_memory(&mut self, id: TenantId, report: MemoryReport) -> Result<(), String> {
        match report {
            MemoryReport::Done { batch, micros } => self.memory().batch_done(id, batch, Duration::from_micros(micros)),
            MemoryReport::Failed { batch, code } => self.memory().batch_failed(id, batch, code),
            MemoryReport::Undelivered { batch } => self.memory().undelivered(id, batch),
            MemoryReport::Free { extents } => self.memory().free(id, &extents),
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
        if tenant.preemption.has_begun() {
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
            Request::Allocate { bytes } => self.memory().allocate(id, bytes)?,
            Request::Free { extents } => {
                self.memory().free(id, &extents)?;
                self.tenants.answer(id, &Answer::Freed, &[]);
            }
            Request::Frames { extents } => self.memory().give_frames(id, extents)?,
            Request::MakeImmovable { extents } => {
                // It may have mapped them a moment ago, and said so on the other socket.
                self.hear_control(id);
                self.memory().make_immovable(id, &extents);
            }
            Request::UnmanagedMemory { bytes } => self.memory().make_room(id, bytes),
        }
        Ok(())
    }
}
