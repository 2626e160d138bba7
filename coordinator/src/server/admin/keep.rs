//! `baton serve` that finds a coordinator in its place: its keeper becomes the coordinator's, if that has lost its own.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use baton_contract::messages::Admission;

use super::set::say;
use crate::server::state::Server;
use crate::server::tenants::peer::Peer;

impl Server {
    /// Has another keeper, which is this process, hold everything from now on, on request, if that which the user or a service manager had
    /// started is gone.
    pub(in crate::server) fn keep_on_request(&mut self, mut peer: Peer, process: Option<OwnedFd>) {
        let process = process.ok_or_else(|| std::io::ErrorKind::InvalidInput.into());
        match process.and_then(|process| self.front.keeper.change(process)) {
            Ok(for_keeper) => {
                baton_messages::info!(has_another_keeper());
                // If it does not get them, it ends, and another one takes its place.
                let _ = peer.send(&Admission::Line, &for_keeper.map(Arc::new));
                let _ = self.have_all_kept();
            }
            Err(error) => say(&mut peer, Err(baton_messages::has_its_keeper(error))),
        }
    }
}
