//! Memory outside the arena: memory that does not move, and contexts. A tenant that needs some asks before it calls the driver, and
//! the arena gives up the missing bytes ([`Ledger`](baton_books::ledger::Ledger)).

use baton_contract::messages::{Answer, Request};
use baton_report::quota::Quota;

use super::breach::MemoryBreach;
use super::claims::{Claim, Claims, Need, Progress};
use super::ground::{Ground, Store};
use super::leases::{reserve, usual_context};
use super::residency::Residency;
use baton_books::ledger::{Lines, Reading, Verdict};
use baton_books::sizes::at_least;
use baton_policy::arbiter::{State, TenantId};

impl Ground<'_> {
    /// True if the arena is smaller than the user wanted.
    pub(super) fn is_squeezed(&self) -> bool {
        self.store.frames.arena().capacity() < self.store.frames.arena().configured()
    }

    fn say_denied(&self, id: TenantId, need: Need, bytes: u64) {
        if let Need::Lease { .. } = need
            && let Some(tenant) = self.tenants.get(id)
        {
            baton_messages::warn!(got_no_lease(&tenant.name, bytes >> 20));
        }
    }

    /// Lets the arena grow back for a tenant that would be refused otherwise: also into the reserve, and into others' unused
    /// leases. If they need that memory later, their calls make room again.
    pub(super) fn unsqueeze_at_need(&mut self) {
        if self.is_squeezed()
            && let Ok(free) = self.store.frames.gpu().free_memory()
        {
            self.store
                .frames
                .set_capacity(self.store.frames.arena().capacity().max(self.store.frames.arena().bytes().all() + free));
        }
    }
}

impl Claims {
    /// The driver's current reading, and the arena's books.
    fn reading(&self, store: &Store) -> Reading {
        let bytes = store.frames.arena().bytes();
        Reading {
            // Without an answer from the driver no memory is available.
            free: store.frames.gpu().free_memory().unwrap_or(0),
            frames: bytes.all(),
            lent: bytes.lent,
            capacity: store.frames.arena().capacity(),
            headroom: store.rules.headroom,
        }
    }

    /// Resets the ledger before the first tenant comes.
    pub(super) fn nobody_is_here(&mut self, store: &Store) {
        let now = self.reading(store);
        self.leases.ledger.nobody_is_here(&now);
    }

    /// Every line of the ledger, according to the tenants' last reports, and the driver's current reading.
    pub(super) fn lines(&self, store: &Store) -> (Lines, Reading) {
        let now = self.reading(store);
        (self.leases.ledger.lines(&now), now)
    }

    /// Lets the arena grow back into memory that belongs to no tenant, less a reserve.
    pub(super) fn unsqueeze(&self, ground: &mut Ground<'_>) {
        if ground.is_squeezed() {
            self.grow(ground, reserve(self.leases.ledger.total()));
        }
    }

    /// True if this many bytes, and the reserve, belong to no tenant.
    pub(super) fn is_room_left(&self, ground: &Ground<'_>, bytes: u64) -> bool {
        self.leases.ledger.room(&self.reading(ground.store)) >= bytes + reserve(self.leases.ledger.total())
    }

    fn grow(&self, ground: &mut Ground<'_>, reserve: u64) {
        let could = self.leases.ledger.arena_could_be(&self.reading(ground.store), reserve);
        ground.store.frames.set_capacity(ground.store.frames.arena().capacity().max(could));
    }

    /// Queues a tenant's request for memory outside the arena.
    pub(super) fn make_room(&mut self, ground: &mut Ground<'_>, tenant: TenantId, request: &Request) {
        let need = match *request {
            Request::UnmanagedMemory { least, bytes } => Need::Lease { least, welcome: bytes.max(least) },
            Request::Context { again } => Need::Context { again },
            Request::Room { bytes } => Need::Room { bytes },
            _ => return,
        };
        let is_parting = ground.arbiter.is_corunner(tenant) && ground.arbiter.state(tenant) != State::Corunning;
        if is_parting && need.can_wait() {
            // It was told to leave, and cannot while it waits: it asks again when it has the GPU to itself.
            return ground.tenants.answer(tenant, &Answer::TryAgain, &[]);
        }
        self.queue.push_back(Claim::Outside { tenant, need });
    }

    /// Reads how much unmanaged memory this tenant reports.
    fn hear_of_unmanaged(&mut self, ground: &Ground<'_>, id: TenantId) {
        if let Some(tenant) = ground.tenants.get(id) {
            self.leases.ledger.say(id, tenant.connection.theirs.unmanaged());
        }
    }

    /// Reads how much unmanaged memory each tenant reports. This is slow with many tenants, so only rare events use it.
    pub(super) fn hear_of_all_unmanaged(&mut self, ground: &Ground<'_>) {
        for (id, tenant) in ground.tenants.iter() {
            self.leases.ledger.say(id, tenant.connection.theirs.unmanaged());
        }
    }

    pub(super) fn serve_outside(
        &mut self,
        ground: &mut Ground<'_>,
        residency: &mut Residency,
        id: TenantId,
        need: Need,
    ) -> Progress {
        self.hear_of_unmanaged(ground, id);
        // Each tenant's memory has to fit in the arena beside the others' immovable memory.
        let floor = ground.least_capacity();
        let mut now = self.reading(ground.store);
        let most = self.leases.ledger.could_give(&now, floor);
        let quota = self.leases_left(ground, id);
        let (least, welcome) = match need {
            Need::Lease { least, .. } if least > quota => {
                ground.met_leases(id, least, quota);
                ground.tenants.answer(id, &Answer::UnmanagedMemory { bytes: 0 }, &[]);
                return Progress::Done;
            }
            Need::Lease { least, welcome } => (least, welcome.min(quota)),
            // The context may take less than expected.
            Need::Context { again } => {
                let bytes = self.leases.context_bytes * if again { 2 } else { 1 };
                (bytes.min(most), bytes.min(most))
            }
            Need::Room { bytes } => (bytes.min(most), bytes.min(most)),
        };
        log::debug!("{id:?} asks for {need:?}: {now:?}, floor {floor}, {:?}", self.leases.ledger.account(id));
        let granted = loop {
            match self.leases.ledger.judge(&now, floor, least, welcome) {
                Verdict::Granted(bytes) => break bytes,
                Verdict::Denied => break 0,
                Verdict::Shrink(bytes) => {
                    let capacity = now.frames - bytes;
                    ground.store.frames.set_capacity(capacity.min(ground.store.frames.arena().capacity()));
                    let lacking = bytes.saturating_sub(ground.store.frames.arena().bytes().leaving);
                    if lacking > 0 {
                        if ground.store.frames.unmake_free() {
                            now = self.reading(ground.store);
                            continue;
                        }
                        residency.evict(ground, at_least(lacking), id);
                    }
                    let is_parting = !ground.is_anything_coming() && ground.part_corunners();
                    if ground.is_anything_coming() || is_parting && need.can_wait() {
                        self.queue.push_front(Claim::Outside { tenant: id, need });
                        return Progress::Waits;
                    }
                    if need.can_wait()
                        && let Some(holder) = ground.who_may_give_back(id)
                    {
                        ground.put_off(id, holder, least);
                        return Progress::Done;
                    }
                    // The holder of the memory does not give it back.
                    break 0;
                }
            }
        };
        if granted == 0 && least > 0 {
            ground.say_denied(id, need, least);
        }
        match need {
            Need::Lease { .. } => {
                self.leases.ledger.lease(id, granted);
                ground.tenants.meets_no_more(id, &[Quota::Leases]);
            }
            Need::Context { .. } => {
                self.leases.ledger.promise_context(id, granted);
                self.hear_of_all_unmanaged(ground);
                self.leases.before_context.insert(id, self.leases.ledger.unexplained(&now));
            }
            Need::Room { .. } => {}
        }
        // The arena can no longer make frames of the granted memory.
        let kept = if let Need::Room { .. } = need { granted } else { 0 };
        let left = self.leases.ledger.arena_could_be(&now, kept).max(floor);
        ground.store.frames.set_capacity(left.min(ground.store.frames.arena().capacity()));
        self.show_offer(ground, id);
        ground.tenants.answer(id, &Answer::UnmanagedMemory { bytes: granted }, &[]);
        Progress::Done
    }

    /// Takes back `bytes` of a tenant's lease that it no longer needs.
    pub(super) fn unlease(&mut self, ground: &Ground<'_>, id: TenantId, bytes: u64) -> Result<(), MemoryBreach> {
        self.hear_of_unmanaged(ground, id);
        // One that came back may have counted these bytes as given back when it told of its lease.
        let bytes = if ground.came_back(id) { bytes.min(self.leases.account(id).leased) } else { bytes };
        if !self.leases.ledger.unlease(id, bytes) {
            return Err(MemoryBreach::GaveBackTooMuch { bytes });
        }
        self.show_offer(ground, id);
        Ok(())
    }

    /// Notes that a tenant has made the context for which it asked for room, or has failed to.
    pub(super) fn context_made(&mut self, ground: &Ground<'_>, id: TenantId, made: bool) {
        let before = self.leases.before_context.remove(&id);
        self.hear_of_all_unmanaged(ground);
        let now = self.reading(ground.store);
        // Two contexts made at once are not counted twice: the bytes of the first are known when the second is measured.
        let takes = before.map(|before| self.leases.ledger.unexplained(&now).saturating_sub(before));
        self.leases.ledger.context_made(id, made.then_some(takes.unwrap_or(0)));
        let usual = usual_context(self.leases.ledger.total());
        if let Some(takes) = takes.filter(|takes| made && *takes > 0) {
            // Bytes kept for the next context: never less than one took, and capped in case of a misreading.
            self.leases.context_bytes = self.leases.context_bytes.max(takes).min(2 * usual);
        }
    }

    /// Notes that one of a tenant's contexts is gone.
    pub(super) fn context_gone(&mut self, id: TenantId) {
        self.leases.ledger.context_gone(id);
    }
}
