//! Memory that comes back on request, before its program asks for the GPU.

use baton_contract::memory::size;
use baton_messages::Message;
use serde_json::json;

use super::set::say;
use crate::server::memory::Fetched;
use crate::server::pending::Prefetch;
use crate::server::state::Server;
use crate::server::tenants::peer::Peer;
use crate::server::tenants::tenant::Tenant;
use baton_policy::arbiter::State;

/// The most requests that wait: each is a connection.
const MOST: usize = 256;

impl Server {
    /// Brings a tenant's memory to the GPU, as far as no other tenant has to make way for it.
    pub(in crate::server) fn prefetch_on_request(&mut self, mut peer: Peer, name: &str) {
        match self.called(name, &peer) {
            Ok(_) if self.pending.prefetches.len() >= MOST => {
                say(&mut peer, Err(baton_messages::many_prefetches(MOST)));
            }
            Ok(id) => {
                let missing = self.card.tenants.get(id).map_or(0, |tenant| tenant.extents().counts().away);
                if let Some(tenant) = self.card.tenants.get_mut(id) {
                    // The user that sent it away wants it back.
                    tenant.memory.sent_away = false;
                }
                self.pending.prefetches.push(Prefetch { tenant: id, peer, missing });
            }
            Err(error) => say(&mut peer, Err(error)),
        }
    }

    pub(in crate::server) fn serve_prefetches(&mut self) {
        for mut prefetch in std::mem::take(&mut self.pending.prefetches) {
            if !prefetch.peer.is_open() {
                continue;
            }
            match self.fetch_more(&prefetch) {
                None => self.pending.prefetches.push(prefetch),
                Some(Ok(bytes)) => drop(super::send(&mut prefetch.peer, &json!({ "bytes": bytes }))),
                Some(Err(why)) => say(&mut prefetch.peer, Err(why)),
            }
        }
    }

    /// The bytes that have come, or the reason why not all could; none if more are coming.
    fn fetch_more(&mut self, prefetch: &Prefetch) -> Option<Result<u64, Message>> {
        let id = prefetch.tenant;
        let Some(tenant) = self.card.tenants.get(id).filter(|tenant| tenant.connection.is_open()) else {
            return Some(Err(baton_messages::program_has_left()));
        };
        if !tenant.is_responsive() {
            return Some(Err(baton_messages::program_does_not_answer()));
        }
        let counts = tenant.extents().counts();
        if counts.missing == 0 {
            return Some(Ok(prefetch.missing));
        }
        if self.card.arbiter.is_united(id) {
            return Some(Err(baton_messages::comes_in_with_others()));
        }
        match self.card.arbiter.state(id) {
            State::Idle | State::Waiting => {}
            // It has its turn, and all of its memory comes for that.
            State::Arriving | State::Running | State::Leaving | State::Corunning => return None,
        }
        if !self.card.tenants.get(id).is_some_and(Tenant::can_come_ahead) {
            return None;
        }
        match self.memory().fetch(id) {
            Fetched::UnderWay => None,
            Fetched::NoRoom => {
                let left = self.card.tenants.get(id).map_or(0, |tenant| tenant.extents().counts().away);
                let came = size(prefetch.missing.saturating_sub(left));
                Some(Err(baton_messages::no_free_room(came, size(left))))
            }
        }
    }
}
