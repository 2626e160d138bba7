//! The end on request: of the coordinator as a whole.

use serde_json::json;

use crate::server::state::Server;
use crate::server::tenants::peer::Peer;

impl Server {
    /// Ends after the last tenant, or now. Tells the peer first which programs would fail. Until the end the asking peer waits, and
    /// may change its mind.
    pub(in crate::server) fn stop_on_request(&mut self, mut peer: Peer, now: bool) {
        let (fails, goes_on) = self.if_ended_now();
        let answer = json!({ "fails": fails, "goes_on": goes_on });
        if !super::send(&mut peer, &answer) {
            return;
        }
        match now {
            true => baton_messages::info!(ends_now()),
            false => baton_messages::info!(ends_after_the_last()),
        }
        self.send_newcomers_away();
        self.front.lobby.awaits_end(peer);
        if now {
            self.steering.is_stopped = true;
        }
    }

    /// Ends after the last tenant, even if no peer waits for that; or lets tenants come again.
    pub(in crate::server) fn close_on_request(&mut self, mut peer: Peer, closed: bool) {
        if closed {
            let (fails, goes_on) = self.if_ended_now();
            super::send(&mut peer, &json!({ "fails": fails, "goes_on": goes_on }));
            baton_messages::info!(ends_after_the_last());
            self.send_newcomers_away();
            self.front.lobby.stays_closed();
        } else {
            let was_closed = self.front.lobby.is_closed();
            for mut waits in self.front.lobby.open() {
                super::send(&mut waits, &json!({ "cancelled": true }));
            }
            super::send(&mut peer, &json!({ "was_closed": was_closed }));
            if was_closed {
                baton_messages::info!(may_join_again());
            }
        }
    }

    /// Ends if that was requested and no tenant is left.
    pub(in crate::server) fn end_if_asked(&mut self) {
        if self.front.lobby.is_closed() && self.card.tenants.is_empty() {
            self.steering.is_stopped = true;
        }
    }
}
