//! What is done before anybody asks: memory is kept free, and who is likely to come next is brought in.
//!
//! All this happens only while nobody has a claim, in small steps: the tenant that runs must not feel it.

use std::time::{Duration, Instant};

use baton_contract::class::Class;
use baton_contract::memory::SizeClass;
use baton_contract::messages::TurnCommand;

use super::frames::{GROUP_BYTES, LEFT_FREE};
use super::set::say;
use super::tenants::peer::Peer;
use super::{Server, Task};
use crate::books::extents::ExtentState;
use crate::books::sizes::PerClass;
use crate::policy::arbiter::{State, TenantId};

/// So many frames are reserved in a row; then others have their turn.
const AT_ONCE: usize = 8;

/// An urgent tenant has the GPU to itself at first for so long.
const HASTE: Duration = Duration::from_millis(50);

/// Somebody waits until a tenant has been evicted.
pub(super) struct Eviction {
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
    /// While nobody has a claim.
    pub(super) fn work_ahead(&mut self) {
        self.serve_evictions();
        if !self.claims.is_empty() || self.swap_in.is_some() {
            return;
        }
        if self.is_in_haste() {
            return;
        }
        self.restore_headroom();
        if self.tasks.values().any(|task| matches!(task, Task::Copy { .. })) {
            // One thing after the other.
            return;
        }
        self.bring_ahead();
        self.reserve_ahead();
    }

    /// Whether somebody urgent has just got the GPU. Looking at memory and overwriting it are kernels, which take turns
    /// with the tenant's: a request of 8 ms took 22 that way.
    pub(super) fn is_in_haste(&self) -> bool {
        self.activity.is_taken() || self.haste_ends().is_some_and(|end| Instant::now() < end)
    }

    /// Until when nothing is done ahead.
    pub(super) fn haste_ends(&self) -> Option<Instant> {
        let holder = self.tenants.get(self.arbiter.holder()?)?;
        (holder.class() == Class::Latency).then(|| holder.ran + HASTE)
    }

    /// Who is likely to come next: who waits, and else who is more urgent or ran last; with memory on the host.
    fn likely_next(&mut self) -> Option<TenantId> {
        let arbiter = &self.arbiter;
        self.tenants.index().next().find(|id| matches!(arbiter.state(*id), State::Idle | State::Waiting))
    }

    /// Brings some of the likely next tenant in, if there are frames for it that nobody else needs. In groups as if it had
    /// its turn: when that comes, what it uses first is mapped already and not waiting for the rest of this.
    fn bring_ahead(&mut self) {
        if self.arbiter.holder().is_none() {
            return;
        }
        let Some(id) = self.likely_next().filter(|id| !self.tenants[*id].sent_away) else { return };
        let waits = self.arbiter.state(id) == State::Waiting;
        // For one that may come, the headroom stays as it is.
        let mut spare = if waits { u64::MAX } else { self.free_bytes().saturating_sub(self.options.headroom) };
        let (mut ready, mut bytes) = (Vec::new(), 0);
        for (extent, class) in self.order_of(id) {
            let entry = self.tenants.get(id).and_then(|tenant| tenant.extents().get(extent));
            let Some(state) = entry.map(|entry| entry.state()) else { continue };
            if bytes > 0 && bytes + class.bytes() > GROUP_BYTES {
                break;
            }
            if class.bytes() > spare {
                break;
            }
            spare -= class.bytes();
            if state == ExtentState::Host {
                let Some(frame) = self.arena.take(class, true) else { break };
                self.reserve(id, extent, frame, true);
            }
            bytes += class.bytes();
            ready.push((extent, class));
        }
        self.tell_reserved(id);
        for group in self.in_groups(id, &ready) {
            self.start_copies(id, &group);
        }
    }

    /// What tenants do not have of the arena, in bytes. What is only reserved can be taken back at once.
    fn free_bytes(&self) -> u64 {
        let reserved: u64 = self.tenants.totals().reserved;
        (self.arena.capacity() + reserved).saturating_sub(self.arena.bytes().lent)
    }

    /// Makes room as large as the headroom, if anybody could need it: somebody whose memory is on the host.
    fn restore_headroom(&mut self) {
        let free = self.free_bytes();
        if free >= self.options.headroom {
            return;
        }
        let Some(next) = self.likely_next() else { return };
        // Who waits gets memory ahead; to take it away again for somebody who may come would go round in circles.
        if self.arbiter.state(next) == State::Waiting {
            return;
        }
        let mut missing = PerClass::default();
        missing[0] = ((self.options.headroom - free) / SizeClass::ALL[0].bytes()) as usize;
        self.evict(missing, next);
    }

    /// Gives the likely next tenant frames for what it will use first, as far as the headroom goes, and some less, for
    /// somebody else may come after all. Making frames and putting them in place takes as long as filling them.
    fn reserve_ahead(&mut self) {
        let Some(id) = self.likely_next() else { return };
        let most = self.options.headroom / 4 * 3;
        let (mut bytes, mut count) = (0, 0);
        for (extent, class) in self.order_of(id) {
            let entry = self.tenants.get(id).and_then(|tenant| tenant.extents().get(extent));
            let Some(state) = entry.map(|entry| entry.state()) else { continue };
            bytes += class.bytes();
            if bytes > most {
                break;
            }
            if state != ExtentState::Host {
                continue;
            }
            if count == AT_ONCE {
                // There is more to do, after whatever else there is.
                self.stop.wake();
                break;
            }
            if self.arena.free(class) == 0 && !self.make_free_frame(class, &PerClass::default()) {
                break;
            }
            // Dirty ones are being overwritten soon: then they are as good as the zeros that some of it will be.
            let Some(frame) = self.arena.take(class, true) else { continue };
            self.reserve(id, extent, frame, true);
            count += 1;
        }
        self.tell_reserved(id);
    }

    /// Makes a frame for whoever asks for memory next, while all memory that there is fits and some is left. It is overwritten
    /// when the next scrub begins.
    pub(super) fn make_ready(&mut self) {
        if self.tenants.is_empty() || self.is_in_haste() {
            return;
        }
        let Some(class) = self.arena.lacks_ready() else { return };
        let fits = self.wanted_bytes() + class.bytes() <= self.arena.capacity();
        // Contexts and code beside the arena come first.
        let is_left = || self.gpu.free_memory().is_ok_and(|free| free >= LEFT_FREE + class.bytes());
        if !fits || !is_left() {
            return;
        }
        if let Ok(memory) = self.gpu.make(class.bytes()) {
            // The driver does not promise what is in it.
            let frame = self.enter_frame(class, memory);
            self.arena.give_back(frame);
            // There is more to do, after whatever else there is.
            self.stop.wake();
        }
    }

    /// Moves all of a tenant's memory to the host, when it is idle.
    pub(super) fn evict_on_request(&mut self, mut peer: Peer, name: &str) {
        match self.called(name) {
            Ok(_) if self.evictions.len() >= MOST_EVICTIONS => {
                say(&mut peer, Err(format!("{MOST_EVICTIONS} evictions wait already; try again when one is over")));
            }
            Ok(tenant) => {
                let grant = self.tenants.get(tenant).map_or(0, |tenant| tenant.grant);
                self.evictions.push(Eviction { tenant, peer, grant, revoked: false });
            }
            Err(error) => say(&mut peer, Err(error)),
        }
    }

    fn serve_evictions(&mut self) {
        for mut eviction in std::mem::take(&mut self.evictions) {
            let id = eviction.tenant;
            if !eviction.peer.is_open() {
                // Nobody waits for it any more.
                continue;
            }
            let is_off = self.is_off_the_gpu(id);
            let Some(tenant) = self.tenants.get_mut(id) else {
                eviction.answer(Err("the tenant has left"));
                continue;
            };
            if tenant.grant != eviction.grant {
                eviction.answer(Err("the tenant is in use again; `baton suspend` it first"));
                continue;
            }
            if tenant.disconnected.is_some() {
                eviction.answer(Err("the tenant has left"));
                continue;
            }
            if !tenant.is_movable() || tenant.is_late() {
                // Nobody knows what it still does: its memory stays as it is.
                eviction.answer(Err("the tenant does not answer"));
                continue;
            }
            let comes_in = self.swap_in.as_ref().is_some_and(|swap_in| swap_in.tenant == id);
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
                    let limit_micros = 1_000_000;
                    self.tenants.tell(id, &TurnCommand::Revoke { grant: eviction.grant, limit_micros });
                    eviction.revoked = true;
                }
                self.evictions.push(eviction);
                continue;
            }
            let Some(tenant) = self.tenants.get_mut(id) else { continue };
            tenant.sent_away = true;
            let mut all = PerClass::default();
            let movable = tenant.extents().iter().filter(|(_, extent)| !extent.is_immovable());
            movable.for_each(|(_, extent)| all[extent.class().index()] += 1);
            let counts = tenant.extents().counts();
            if counts.here() == counts.immovable {
                eviction.answer(Ok(()));
                continue;
            }
            self.evict_from(id, &mut all, false, id);
            if self.is_anything_coming() {
                self.evictions.push(eviction);
            } else {
                log::warn!("an eviction on request has no room on the host");
                eviction.answer(Err("there is no room on the host; a larger --host-pool would help"));
            }
        }
    }
}

impl Eviction {
    /// The tenant's work did not end in time: it is asked again.
    pub(super) fn could_not_close(&mut self, tenant: TenantId) {
        self.revoked &= self.tenant != tenant;
    }

    /// Whether this tenant was asked to drain for it.
    pub(super) fn is_draining(&self, id: TenantId) -> bool {
        self.revoked && self.tenant == id
    }

    fn answer(mut self, done: Result<(), &str>) {
        say(&mut self.peer, done.map_err(str::to_owned));
    }
}
