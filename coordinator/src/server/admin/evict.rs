//! Eviction on request.

use super::set::say;
use crate::server::memory::Evicted;
use crate::server::pending::{Eviction, Stage};
use crate::server::state::Server;
use crate::server::tenants::peer::Peer;
use crate::server::tenants::tenant::Tenant;
use baton_messages::Message;
use baton_policy::arbiter::{State, TenantId};

/// The most requests to evict a tenant that wait: each is a connection.
const MOST: usize = 256;

/// The next step for one of them.
enum Next {
    /// The eviction goes on at a later event.
    Wait(Stage),
    /// The eviction is over.
    Over(Result<(), Message>),
}

fn in_use() -> Next {
    Next::Over(Err(baton_messages::is_in_use_again()))
}

fn has_left() -> Next {
    Next::Over(Err(baton_messages::program_has_left()))
}

impl Server {
    /// Moves all of a tenant's memory to the host, when it is idle.
    pub(in crate::server) fn evict_on_request(&mut self, mut peer: Peer, name: &str) {
        match self.called(name, &peer) {
            Ok(_) if self.pending.evictions.iter().filter(|eviction| eviction.peer.is_some()).count() >= MOST => {
                say(&mut peer, Err(baton_messages::many_evictions(MOST)));
            }
            Ok(tenant) => {
                let grant = self.card.tenants.get(tenant).map_or(0, |tenant| tenant.turn.number());
                self.pending.evictions.push(Eviction { tenant, peer: Some(peer), grant, stage: Stage::Asked });
            }
            Err(error) => say(&mut peer, Err(error)),
        }
    }

    /// The same, for a peer that does not wait.
    pub(in crate::server) fn send_away_on_request(&mut self, mut peer: Peer, name: &str) {
        let tenant = self.called(name, &peer);
        if let Ok(tenant) = tenant {
            let grant = self.card.tenants.get(tenant).map_or(0, |tenant| tenant.turn.number());
            // One for each is enough, and no more than there are tenants.
            self.pending.evictions.retain(|eviction| eviction.tenant != tenant || eviction.peer.is_some());
            self.pending.evictions.push(Eviction { tenant, peer: None, grant, stage: Stage::Asked });
        }
        say(&mut peer, tenant.map(drop));
    }

    pub(in crate::server) fn serve_evictions(&mut self) {
        for eviction in std::mem::take(&mut self.pending.evictions) {
            if eviction.peer.as_ref().is_some_and(|peer| !peer.is_open()) {
                // No peer waits for it any more.
                continue;
            }
            match self.next_of(&eviction) {
                Next::Wait(stage) => self.pending.evictions.push(Eviction { stage, ..eviction }),
                Next::Over(done) => {
                    if let Some(mut peer) = eviction.peer {
                        say(&mut peer, done);
                    }
                }
            }
        }
    }

    fn next_of(&mut self, eviction: &Eviction) -> Next {
        let (id, stage) = (eviction.tenant, eviction.stage);
        let state = self.card.arbiter.state(id);
        let Some(tenant) = self.card.tenants.get(id) else { return has_left() };
        if tenant.turn.number() != eviction.grant {
            return in_use();
        }
        if !tenant.connection.is_open() {
            return has_left();
        }
        if !tenant.makes_room() {
            // Its remaining work is unknown: its memory stays in place.
            return Next::Over(Err(baton_messages::program_does_not_answer()));
        }
        let left_alone = tenant.turn.left_alone().is_some();
        let comes_in = self.memory().brings_in(id);
        if state == State::Arriving || state == State::Running && comes_in || self.card.memory.is_asked_by(id) {
            // This holds even if it was let in before all its memory is there, or waits for more: repeated requests would keep it waiting
            // for ever.
            return in_use();
        }
        if !state.is_off_the_gpu() {
            // Perhaps no other tenant wants the GPU, so that it has kept the baton.
            if stage == Stage::Asked && state != State::Leaving && !left_alone {
                self.ask_to_leave(id);
                return Next::Wait(Stage::Draining);
            }
            return Next::Wait(stage);
        }
        // Those that it runs with come and go with it.
        let members = self.card.arbiter.members(id);
        let in_the_way = |id: &TenantId| self.card.tenants.get(*id).filter(|tenant| !tenant.is_evictable());
        let in_the_way: Vec<&Tenant> = members.iter().filter_map(in_the_way).collect();
        if !in_the_way.is_empty() {
            // One that is neither expected to close its gate, nor can be made to, may have work that is only paused.
            return match in_the_way.iter().all(|tenant| tenant.is_about_to_close()) {
                true => Next::Wait(stage),
                false => Next::Over(Err(baton_messages::program_does_not_answer())),
            };
        }
        let mut next = Next::Over(Ok(()));
        for id in members {
            if let Some(tenant) = self.card.tenants.get_mut(id) {
                tenant.memory.sent_away = true;
            }
            match self.memory().evict_all(id) {
                Evicted::Done => {}
                Evicted::UnderWay => next = Next::Wait(stage),
                Evicted::NoRoom => {
                    baton_messages::warn!(no_room_to_evict());
                    return Next::Over(Err(baton_messages::no_room_on_the_host()));
                }
            }
        }
        next
    }
}
