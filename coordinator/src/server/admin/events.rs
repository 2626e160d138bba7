//! What has happened: what traces, live views and logs are made of.

use crate::policy::arbiter::TenantId;
use crate::server::Server;
use crate::server::tenants::peer::Peer;

impl Server {
    /// Sends a tool what has happened, from the event of this number on.
    pub(in crate::server) fn answer_events(&mut self, mut peer: Peer, next: u64) {
        let all: Vec<TenantId> = self.tenants.ids().collect();
        all.into_iter().for_each(|id| self.turns().read_requests(id));
        if super::send(&mut peer, &self.recorder.history(next)) {
            self.lobby.reads(peer);
        }
    }
}
