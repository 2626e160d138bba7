//! Work ahead of need: memory is kept free, and the tenant that is likely to come next is brought in.
//!
//! This work happens only while there is no claim, in small steps: the running tenant must not notice it.

use baton_contract::memory::SizeClass;

use super::frames::{Found, Promised};
use super::ground::Ground;
use super::residency::Residency;
use super::transfer::GROUP_BYTES;
use baton_books::extents::{ExtentState, Holds};
use baton_books::sizes::PerClass;
use baton_policy::arbiter::{State, TenantId};
use baton_policy::prefetch;
use baton_policy::victims::Wanted;

/// Number of frames reserved in a row before others have their turn.
const AT_ONCE: usize = 8;

/// Progress of a prefetch that a user asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Fetched {
    UnderWay,
    /// No more memory comes until another tenant has left.
    NoRoom,
}

/// The frames that may receive memory ahead of its tenant's turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    /// Clean, free frames.
    Ready,
    /// Also frames that can be made clean and free.
    Made,
}

impl Ground<'_> {
    /// Bytes of the arena that tenants do not have. Reserved frames count as free, since they can be taken back at once.
    fn free_bytes(&self) -> u64 {
        let reserved: u64 = self.tenants.totals().reserved;
        (self.store.frames.arena().capacity() + reserved).saturating_sub(self.store.frames.arena().bytes().lent)
    }

    /// The tenant that is likely to come next, among those with memory on the host: a waiting tenant, or else the more urgent or
    /// the last to run.
    fn likely_next(&mut self) -> Option<TenantId> {
        let arbiter = &self.arbiter;
        self.tenants.index().next().find(|id| matches!(arbiter.state(*id), State::Idle | State::Waiting))
    }

    fn fetched_if_nothing_comes(&mut self) -> Fetched {
        if self.is_anything_coming() { Fetched::UnderWay } else { Fetched::NoRoom }
    }

    /// Starts to bring in one group of the memory that a tenant will use first, up to `spare` bytes. Returns true if any of it
    /// comes, and the size of which a frame was lacking.
    fn bring_some(&mut self, id: TenantId, spare: u64, from: From) -> (bool, Option<SizeClass>) {
        let (mut ready, mut lacks) = (Vec::new(), None);
        let owner = self.owner_of(id);
        let mut promised = Promised::default();
        let mut order = self.order_of(id);
        order.truncate(prefetch::first_group(&order, spare, GROUP_BYTES));
        for (extent, class) in order {
            let entry = self.tenants.get(id).and_then(|tenant| tenant.extents().get(extent));
            let Some(state) = entry.map(|entry| entry.state()) else { continue };
            if state == ExtentState::Host && !self.reserve_kept(id, extent) {
                let found = match from {
                    From::Ready => self.store.frames.take(class, true, owner).map_or(Found::None, Found::Frame),
                    From::Made => self.store.frames.find(class, true, owner, &mut promised),
                };
                match found {
                    Found::Frame(frame) => self.reserve(id, extent, frame, Holds::Zeros),
                    Found::Soon => break,
                    Found::None => {
                        lacks = Some(class);
                        break;
                    }
                }
            }
            ready.push((extent, class));
        }
        self.tell_reserved(id);
        for group in self.in_groups(id, &ready) {
            self.start_copies(id, &group);
        }
        (!ready.is_empty(), lacks)
    }
}

impl Residency {
    /// Makes room, and brings memory in ahead of need.
    pub(super) fn come_ahead(&mut self, ground: &mut Ground<'_>) {
        self.restore_headroom(ground);
        if ground.store.transfer.is_copying() {
            // The copies under way end first.
            return;
        }
        self.bring_ahead(ground);
        self.reserve_ahead(ground);
    }

    /// Brings in some memory of the likely next tenant, if there are frames for it that no other tenant needs. The memory comes in
    /// groups, as in the tenant's turn: when the turn comes, the memory used first is already mapped and does not wait for the
    /// rest.
    fn bring_ahead(&self, ground: &mut Ground<'_>) {
        if ground.arbiter.holder().is_none() {
            return;
        }
        let Some(id) = ground.likely_next().filter(|id| !ground.tenants[*id].memory.sent_away) else { return };
        self.recut(ground, id);
        let waits = ground.arbiter.state(id) == State::Waiting;
        let spare = prefetch::spare(waits, ground.free_bytes(), ground.store.rules.headroom);
        ground.bring_some(id, spare, From::Ready);
    }

    /// Prefetches, at a user's request, the memory of a tenant that is off the GPU. The headroom stays free, and no other tenant is
    /// evicted. The caller repeats the call until no more memory comes.
    pub(super) fn fetch(&mut self, ground: &mut Ground<'_>, is_claimed: bool, id: TenantId) -> Fetched {
        if is_claimed || ground.store.transfer.is_copying() {
            // Tenants that need memory now come first.
            return Fetched::UnderWay;
        }
        self.recut(ground, id);
        let spare = prefetch::spare(false, ground.free_bytes(), ground.store.rules.headroom);
        let (starts, lacks) = ground.bring_some(id, spare, From::Made);
        if starts {
            return Fetched::UnderWay;
        }
        // Frames that are only reserved for others are not in use yet.
        let Some(class) = lacks else { return ground.fetched_if_nothing_comes() };
        let mut missing = PerClass::default();
        missing[class.index()] = 1;
        for wanted in [Wanted::SameClass, Wanted::AnyClass] {
            self.take_reserved(ground, &mut missing, wanted, id);
        }
        ground.fetched_if_nothing_comes()
    }

    /// Makes room as large as the headroom, if some tenant has memory on the host and so could need it.
    fn restore_headroom(&mut self, ground: &mut Ground<'_>) {
        let (free, headroom) = (ground.free_bytes(), ground.store.rules.headroom);
        if free >= headroom {
            return;
        }
        let Some(next) = ground.likely_next() else { return };
        let lacking = prefetch::lacking_headroom(ground.arbiter.state(next) == State::Waiting, free, headroom);
        if lacking == 0 {
            return;
        }
        let mut missing = PerClass::default();
        missing[0] = (lacking / SizeClass::ALL[0].bytes()) as usize;
        self.evict(ground, missing, next);
    }

    /// Reserves frames for the memory that the likely next tenant will use first. Making frames and putting them in place takes as long as filling them.
    fn reserve_ahead(&self, ground: &mut Ground<'_>) {
        let Some(id) = ground.likely_next() else { return };
        self.recut(ground, id);
        let most = prefetch::most_reserved(ground.store.rules.headroom);
        let (mut bytes, mut count) = (0, 0);
        let (order, owner) = (ground.order_of(id), ground.owner_of(id));
        // Kept frames come first, before another extent takes them.
        for (extent, _) in &order {
            count += usize::from(ground.reserve_kept(id, *extent));
            if count == AT_ONCE {
                self.waker.wake();
                return ground.tell_reserved(id);
            }
        }
        for (extent, class) in order {
            let entry = ground.tenants.get(id).and_then(|tenant| tenant.extents().get(extent));
            let Some(state) = entry.map(|entry| entry.state()) else { continue };
            bytes += class.bytes();
            if bytes > most {
                break;
            }
            if state != ExtentState::Host {
                continue;
            }
            if count == AT_ONCE {
                // More work follows, after all other pending work.
                self.waker.wake();
                break;
            }
            if !ground.store.frames.arena().is_any_free_for(class, owner)
                && !ground.store.frames.make_in_exchange(class, &PerClass::default())
            {
                break;
            }
            // Dirty frames are overwritten first: then they also serve the extents that hold zeros.
            let Some(frame) = ground.store.frames.take(class, true, owner) else {
                if ground.store.frames.arena().scrubbing(class, owner) == 0
                    && !ground.store.frames.scrub(Some((class, owner)), class.bytes())
                {
                    ground.store.frames.scrub_kept(class, owner);
                }
                continue;
            };
            ground.reserve(id, extent, frame, Holds::Zeros);
            count += 1;
        }
        ground.tell_reserved(id);
    }
}
