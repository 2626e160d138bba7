//! The end on request: of the coordinator as a whole.

use serde_json::json;

use crate::server::Server;
use crate::server::tenants::peer::Peer;

/// So many who have asked for the end are told of it at most: each is a connection.
const MOST: usize = 256;

/// Those who have asked the coordinator to end.
#[derive(Default)]
pub(in crate::server) struct Stopping {
    is_asked: bool,
    /// Their connections end with the coordinator, which is how they hear of it.
    peers: Vec<Peer>,
}

impl Server {
    /// Ends after the last tenant, or now. Says before whom that fails.
    pub(in crate::server) fn stop_on_request(&mut self, mut peer: Peer, now: bool) {
        let (fails, goes_on) = self.if_ended_now();
        let answer = json!({ "fails": fails, "goes_on": goes_on });
        if !super::send(&mut peer, &answer) {
            return;
        }
        log::info!("ends {}, as was asked for (`baton stop`)", if now { "now" } else { "after the last program" });
        self.stopping.is_asked = true;
        self.stopping.peers.retain(Peer::is_open);
        if self.stopping.peers.len() < MOST {
            self.stopping.peers.push(peer);
        }
        self.send_newcomers_away();
        if now {
            self.stop.stop();
        }
    }

    /// Ends if that was asked for and nobody is here any more.
    pub(in crate::server) fn end_if_asked(&mut self) {
        if self.stopping.is_asked && self.tenants.is_empty() {
            self.stop.stop();
        }
    }
}
