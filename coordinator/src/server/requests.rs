//! Hears tenants: reports of their control loops, and requests of their programs.
//!
//! A peer's bytes are allegations. What cannot be true costs the tenant its connection, and nothing else.

use std::os::fd::OwnedFd;

use baton_contract::link::Received;
use baton_contract::messages::{Answer, Channels, FromTenant, Message as _, PreemptionReport, Request};

use super::Server;
use crate::policy::arbiter::TenantId;

impl Server {
    /// Reports of the pager.
    pub(super) fn hear_control(&mut self, id: TenantId) {
        self.hear(id, |tenant| &mut tenant.connection.control, Self::report);
    }

    /// Requests of the program's threads.
    pub(super) fn hear_request(&mut self, id: TenantId) {
        self.hear(id, |tenant| &mut tenant.connection.requests, Self::request);
    }

    fn hear(
        &mut self,
        id: TenantId,
        socket: fn(&mut super::tenants::tenant::Tenant) -> &mut super::tenants::peer::Peer,
        act: fn(&mut Self, TenantId, FromTenant, Option<OwnedFd>) -> Result<(), String>,
    ) {
        loop {
            let Some(tenant) = self.tenants.get_mut(id).filter(|tenant| tenant.connection.is_open()) else { return };
            let peer = socket(tenant);
            let heard = peer.send_kept().and_then(|()| peer.receive());
            let Received { message, mut descriptors, truncated } = match heard {
                Ok(Some(received)) => received,
                Ok(None) => return,
                Err(_) => return self.connection_ended(id),
            };
            let came = descriptors.len();
            let decoded = FromTenant::decode(&message).and_then(|(gpu, message)| peer.check(gpu).map(|()| message));
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

    fn request(&mut self, id: TenantId, message: FromTenant, _: Option<OwnedFd>) -> Result<(), String> {
        let FromTenant::Request(request) = message else {
            return Err("it sent a report where requests belong".to_owned());
        };
        let Some(tenant) = self.tenants.get_mut(id) else { return Ok(()) };
        if !tenant.connection.ask() {
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
                    tenant.connection.defer(request);
                    return Ok(());
                }
                Request::Free { .. } | Request::Frames { .. } | Request::MakeImmovable { .. } => {}
            }
        }
        self.serve_request(id, request)
    }
}
