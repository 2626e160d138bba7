//! Receives tenants' messages: reports of their control loops, and requests of their programs.
//!
//! A peer's bytes are allegations. An impossible one costs the tenant its connection, and nothing else.

use std::os::fd::OwnedFd;

use baton_contract::link::Received;
use baton_contract::messages::{Channels, Elsewhere, FromTenant, MemoryReport, Message as _, PreemptionReport};
use baton_contract::wire::Malformed;

use super::memory::MemoryBreach;
use super::preemption::NoControlDevice;
use super::state::Server;
use baton_policy::arbiter::TenantId;

/// One of a tenant's two sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Socket {
    /// Reports of the control loop.
    Control,
    /// Requests of the program's threads.
    Requests,
}

/// The reason why a tenant's message is impossible. The tenant loses its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Breach {
    /// Its bytes are no message of a tenant.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A request came over the socket of reports.
    #[error("{}", baton_messages::request_instead_of_report())]
    RequestInsteadOfReport,
    /// A report came over the socket of requests.
    #[error("{}", baton_messages::report_instead_of_request())]
    ReportInsteadOfRequest,
    /// A request came before the answer to the last one.
    #[error("{}", baton_messages::request_before_an_answer())]
    RequestBeforeAnAnswer,
    /// It is impossible for this tenant's memory.
    #[error(transparent)]
    Memory(#[from] MemoryBreach),
    /// It shows no way to preempt the tenant.
    #[error(transparent)]
    Preemption(#[from] NoControlDevice),
}

/// A message, and the descriptor that came with it.
pub(super) type Told = (FromTenant, Option<OwnedFd>);

impl Server {
    /// The next message of a tenant, or the reason why it makes no sense; none if there is none.
    pub(super) fn receive(&mut self, id: TenantId, socket: Socket) -> Option<Result<Told, Breach>> {
        let tenant = self.card.tenants.get_mut(id).filter(|tenant| tenant.connection.is_open())?;
        let peer = match socket {
            Socket::Control => &mut tenant.connection.control,
            Socket::Requests => &mut tenant.connection.requests,
        };
        let sent = peer.send_kept();
        // The next request is heard when the last one's answer is on its way.
        if socket == Socket::Requests && sent.is_ok() && peer.keeps() {
            return None;
        }
        let heard = sent.and_then(|()| peer.receive());
        let Received { message, mut descriptors, truncated } = match heard {
            Ok(received) => received?,
            Err(_) => {
                self.on_connection_ended(id);
                return None;
            }
        };
        let came = descriptors.len();
        let decoded = peer.read(&message);
        let decoded = if truncated { decoded.map(|message| self.without_descriptors(id, message)) } else { decoded };
        if let Some(tenant) = self.card.tenants.get_mut(id) {
            tenant.connection.hear();
        }
        let message = decoded.and_then(|message| message.expect(came)).map_err(Breach::from);
        if let Ok(message) = &message {
            baton_faults::reach("coordinator hears", message);
        }
        Some(message.map(|message| (message, descriptors.pop())))
    }

    /// The meaning of a message whose descriptors had no place in the coordinator's own table.
    fn without_descriptors(&self, id: TenantId, message: FromTenant) -> FromTenant {
        match message {
            FromTenant::Preemption(PreemptionReport::Channels { begun, .. }) => {
                let name = self.card.tenants.get(id).map_or("", |tenant| &tenant.name);
                baton_messages::warn!(too_few_descriptors_to_preempt(name));
                PreemptionReport::Channels { channels: Channels::None, begun, elsewhere: Elsewhere::default() }.into()
            }
            FromTenant::Memory(MemoryReport::Consolidate { at, bytes, .. }) => {
                MemoryReport::Consolidate { at, bytes, piece: false }.into()
            }
            other => other,
        }
    }
}
