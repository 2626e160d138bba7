//! Events: the source of traces, live views and logs.

use crate::server::state::Server;
use crate::server::tenants::peer::Peer;
use baton_policy::arbiter::TenantId;

impl Server {
    /// Sends a tool the events from this number on.
    pub(in crate::server) fn answer_events(&mut self, mut peer: Peer, next: u64) {
        let (all, now): (Vec<TenantId>, _) = (self.card.tenants.ids().collect(), self.now());
        for id in all {
            self.turns().read_requests(id);
            self.turns().count(id, now);
            self.card.recorder.complete(id);
        }
        if super::send(&mut peer, &self.card.recorder.history(next)) {
            self.front.lobby.reads(peer);
        }
    }
}
