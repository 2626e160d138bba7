//! Eviction on request.

use super::set::say;
use crate::policy::arbiter::{State, TenantId};
use crate::server::Server;
use crate::server::memory::Evicted;
use crate::server::tenants::peer::Peer;

/// Somebody waits until a tenant has been evicted.
pub(in crate::server) struct Eviction {
    tenant: TenantId,
    peer: Peer,
    /// The tenant's last grant when that was asked for: with another one, it is in use again.
    grant: u64,
    /// Its gate was asked to close.
    revoked: bool,
}

/// So many requests to evict a tenant wait at most: each is a connection.
const MOST_EVICTIONS: usize = 256;

impl Server {
    /// Moves all of a tenant's memory to the host, when it is idle.
    pub(in crate::server) fn evict_on_request(&mut self, mut peer: Peer, name: &str) {
        match self.called(name) {
            Ok(_) if self.evictions.len() >= MOST_EVICTIONS => {
                say(&mut peer, Err(format!("{MOST_EVICTIONS} evictions wait already; try again when one is over")));
            }
            Ok(tenant) => {
                let grant = self.tenants.get(tenant).map_or(0, |tenant| tenant.turn.number());
                self.evictions.push(Eviction { tenant, peer, grant, revoked: false });
            }
            Err(error) => say(&mut peer, Err(error)),
        }
    }

    pub(in crate::server) fn serve_evictions(&mut self) {
        for mut eviction in std::mem::take(&mut self.evictions) {
            let id = eviction.tenant;
            if !eviction.peer.is_open() {
                // Nobody waits for it any more.
                continue;
            }
            let is_off = self.arbiter.state(id).is_off_the_gpu();
            let Some(tenant) = self.tenants.get_mut(id) else {
                eviction.answer(Err("the tenant has left"));
                continue;
            };
            if tenant.turn.number() != eviction.grant {
                eviction.answer(Err("the tenant is in use again; `baton suspend` it first"));
                continue;
            }
            if !tenant.connection.is_open() {
                eviction.answer(Err("the tenant has left"));
                continue;
            }
            if !tenant.is_movable() || tenant.memory.is_late() {
                // Nobody knows what it still does: its memory stays as it is.
                eviction.answer(Err("the tenant does not answer"));
                continue;
            }
            let comes_in = self.memory.swapping_in() == Some(id);
            let state = self.arbiter.state(id);
            if state == State::Arriving || state == State::Running && comes_in {
                // Also if it was let in before all is there: whoever asks again and again would keep it waiting for ever.
                eviction.answer(Err("the tenant is in use again; `baton suspend` it first"));
                continue;
            }
            if is_off && !tenant.is_evictable() {
                self.evictions.push(eviction);
                continue;
            }
            if !is_off {
                // Nobody else may want the GPU, so that it has kept the baton.
                if !eviction.revoked && self.arbiter.state(id) != State::Leaving {
                    self.turns().ask_to_leave(id);
                    eviction.revoked = true;
                }
                self.evictions.push(eviction);
                continue;
            }
            let Some(tenant) = self.tenants.get_mut(id) else { continue };
            tenant.memory.sent_away = true;
            match self.memory().evict_all(id) {
                Evicted::Done => eviction.answer(Ok(())),
                Evicted::UnderWay => self.evictions.push(eviction),
                Evicted::NoRoom => {
                    log::warn!("an eviction on request has no room on the host");
                    eviction.answer(Err("there is no room on the host; a larger --host-pool would help"));
                }
            }
        }
    }
}

impl Eviction {
    /// The tenant's work did not end in time: it is asked again.
    pub(in crate::server) fn could_not_close(&mut self, tenant: TenantId) {
        self.revoked &= self.tenant != tenant;
    }

    /// Whether this tenant was asked to drain for it.
    pub(in crate::server) fn is_draining(&self, id: TenantId) -> bool {
        self.revoked && self.tenant == id
    }

    fn answer(mut self, done: Result<(), &str>) {
        say(&mut self.peer, done.map_err(str::to_owned));
    }
}
