//! What is done before anybody asks: memory is kept free, and who is likely to come next is brought in.
//!
//! All this happens only while nobody has a claim, in small steps: the tenant that runs must not feel it.

use baton_contract::memory::SizeClass;

use super::Access;
use super::evict::Wanted;
use super::frames::{Found, SCRUB_BYTES};
use super::transfer::GROUP_BYTES;
use baton_books::extents::{ExtentState, Holds};
use baton_books::sizes::PerClass;
use baton_policy::arbiter::{State, TenantId};

/// So many frames are reserved in a row; then others have their turn.
const AT_ONCE: usize = 8;

/// How far it is that a tenant's memory comes because a user wants so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Fetched {
    UnderWay,
    /// No more comes before somebody else has gone.
    NoRoom,
}

/// Whose frames memory comes into ahead of its tenant's turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    /// Those that are clean and free.
    Ready,
    /// Those that can be made so, too.
    Made,
}

impl Access<'_> {
    /// While nobody has a claim. In `haste`, whoever has the GPU must not feel anything of it.
    pub(in crate::server) fn work_ahead(&mut self, haste: bool) {
        if self.is_claimed() {
            return;
        }
        if !haste {
            self.come_ahead();
            self.copy_ahead();
        }
        if !self.is_claimed() && !self.memory.frames.is_scrubbing() {
            self.memory.frames.scrub(None, SCRUB_BYTES);
            if !haste {
                self.make_ready();
            }
        }
    }

    /// Whether somebody waits for memory.
    pub(in crate::server) fn is_claimed(&self) -> bool {
        !self.memory.claims.is_empty() || self.memory.residency.swap_in.is_some()
    }

    /// Makes room, and brings memory in.
    fn come_ahead(&mut self) {
        self.restore_headroom();
        if self.memory.transfer.is_copying() {
            // One thing after the other.
            return;
        }
        self.bring_ahead();
        self.reserve_ahead();
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
        let Some(id) = self.likely_next().filter(|id| !self.tenants[*id].memory.sent_away) else { return };
        self.recut(id);
        let waits = self.arbiter.state(id) == State::Waiting;
        // For one that may come, the headroom stays as it is.
        let spare = if waits { u64::MAX } else { self.free_bytes().saturating_sub(self.memory.rules.headroom) };
        self.bring_some(id, spare, From::Ready);
    }

    /// Brings a tenant's memory in that is off the GPU, because a user wants so, as far as the headroom stays free and nobody has to
    /// go. To be asked for until it says that no more comes.
    pub(in crate::server) fn fetch(&mut self, id: TenantId) -> Fetched {
        if self.is_claimed() || self.memory.transfer.is_copying() {
            // Whoever needs memory now comes first.
            return Fetched::UnderWay;
        }
        self.recut(id);
        let spare = self.free_bytes().saturating_sub(self.memory.rules.headroom);
        let (starts, lacks) = self.bring_some(id, spare, From::Made);
        if starts {
            return Fetched::UnderWay;
        }
        // What is only reserved for others, nobody uses yet.
        let Some(class) = lacks else { return self.fetched_if_nothing_comes() };
        let mut missing = PerClass::default();
        missing[class.index()] = 1;
        for wanted in [Wanted::SameClass, Wanted::AnyClass] {
            self.take_reserved(&mut missing, wanted, id);
        }
        self.fetched_if_nothing_comes()
    }

    fn fetched_if_nothing_comes(&mut self) -> Fetched {
        if self.is_anything_coming() { Fetched::UnderWay } else { Fetched::NoRoom }
    }

    /// Starts to bring in what a tenant will use first, a group of it, if that is no more than `spare` bytes. Says whether any of it
    /// comes, and of which size a frame was lacking.
    fn bring_some(&mut self, id: TenantId, mut spare: u64, from: From) -> (bool, Option<SizeClass>) {
        let (mut ready, mut bytes, mut lacks) = (Vec::new(), 0, None);
        let owner = self.owner_of(id);
        let mut soon = PerClass::default();
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
            if state == ExtentState::Host && !self.reserve_kept(id, extent) {
                let found = match from {
                    From::Ready => self.memory.frames.take(class, true, owner).map_or(Found::None, Found::Frame),
                    From::Made => self.memory.frames.find(class, true, owner, &mut soon),
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
            bytes += class.bytes();
            ready.push((extent, class));
        }
        self.tell_reserved(id);
        for group in self.in_groups(id, &ready) {
            self.start_copies(id, &group);
        }
        (!ready.is_empty(), lacks)
    }

    /// What tenants do not have of the arena, in bytes. What is only reserved can be taken back at once.
    fn free_bytes(&self) -> u64 {
        let reserved: u64 = self.tenants.totals().reserved;
        (self.memory.frames.arena().capacity() + reserved).saturating_sub(self.memory.frames.arena().bytes().lent)
    }

    /// Makes room as large as the headroom, if anybody could need it: somebody whose memory is on the host.
    fn restore_headroom(&mut self) {
        let free = self.free_bytes();
        if free >= self.memory.rules.headroom {
            return;
        }
        let Some(next) = self.likely_next() else { return };
        // Who waits gets memory ahead; to take it away again for somebody who may come would go round in circles.
        if self.arbiter.state(next) == State::Waiting {
            return;
        }
        let mut missing = PerClass::default();
        missing[0] = ((self.memory.rules.headroom - free) / SizeClass::ALL[0].bytes()) as usize;
        self.evict(missing, next);
    }

    /// Gives the likely next tenant frames for what it will use first, as far as the headroom goes, and some less, for
    /// somebody else may come after all. Making frames and putting them in place takes as long as filling them.
    fn reserve_ahead(&mut self) {
        let Some(id) = self.likely_next() else { return };
        self.recut(id);
        let most = self.memory.rules.headroom / 4 * 3;
        let (mut bytes, mut count) = (0, 0);
        let (order, owner) = (self.order_of(id), self.owner_of(id));
        // First what is kept for it, before another extent takes it.
        for (extent, _) in &order {
            count += usize::from(self.reserve_kept(id, *extent));
            if count == AT_ONCE {
                self.memory.residency.waker.wake();
                return self.tell_reserved(id);
            }
        }
        for (extent, class) in order {
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
                self.memory.residency.waker.wake();
                break;
            }
            if !self.memory.frames.arena().is_any_free_for(class, owner)
                && !self.memory.frames.make_in_exchange(class, &PerClass::default())
            {
                break;
            }
            // Dirty ones are overwritten first: then they are as good as the zeros that some of it will be.
            let Some(frame) = self.memory.frames.take(class, true, owner) else {
                if self.memory.frames.arena().scrubbing(class, owner) == 0
                    && !self.memory.frames.scrub(Some((class, owner)), class.bytes())
                {
                    self.memory.frames.scrub_kept(class, owner);
                }
                continue;
            };
            self.reserve(id, extent, frame, Holds::Zeros);
            count += 1;
        }
        self.tell_reserved(id);
    }

    /// Makes a frame for whoever asks for memory next, while all memory that there is fits and some is left. It is overwritten
    /// when the next scrub begins.
    fn make_ready(&mut self) {
        if self.tenants.is_empty() {
            return;
        }
        let Some(class) = self.memory.frames.arena().lacks_ready() else { return };
        let fits = self.wanted_bytes() + class.bytes() <= self.memory.frames.arena().capacity();
        // Contexts and code beside the arena come first.
        let is_left = || self.memory.is_room_left(class.bytes());
        if !fits || !is_left() {
            return;
        }
        if self.memory.frames.make(class) {
            // There is more to do, after whatever else there is.
            self.memory.residency.waker.wake();
        }
    }
}
