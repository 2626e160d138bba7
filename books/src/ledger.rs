//! The ledger of the GPU's memory: every byte is in exactly one line. Pure: the driver is read elsewhere.
//!
//! ```text
//!            ┌ frames      lent · free                          what the arena has made
//!   used by  ├ contexts    of each tenant, as measured
//!   what the ├ unmanaged   of each tenant and kind
//!   driver   ├ own         the coordinator's context, and what was used when the first tenant came
//!   says     └ hidden      the rest: code that the driver loads late, local memory, channels
//!            ┌ promised    leased, and not yet used
//!   free     ├ unmade      the arena may still make frames of it
//!            └ beside      the arena has no claim to it
//! ```
//!
//! A tenant that wants memory beside the arena asks first. It gets a **lease**, and uses the leased memory as it likes. The ledger
//! believes a tenant's reported use up to the size of its lease. Memory that others have made needs no lease, because it exists
//! already; the ledger believes it as far as the driver's own count has room for it. Managed memory may be on the host, because the
//! driver moves it: the part for which the driver's count has no room counts as promised.

use std::collections::BTreeMap;

use baton_contract::memory::{PerKind, Unmanaged};

/// The driver's count and the arena's books at one moment, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Free memory, as the driver reports it.
    pub free: u64,
    /// All frames.
    pub frames: u64,
    /// Frames that tenants have.
    pub lent: u64,
    /// The most that all frames together may take.
    pub capacity: u64,
    /// The part of the arena to keep free.
    pub headroom: u64,
}

/// All lines, in bytes. Together they are the GPU's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// Frames that tenants have.
    pub lent: u64,
    /// The part of the arena that can be lent, above the headroom.
    pub free: u64,
    /// The part of the arena that is kept free.
    pub headroom: u64,
    /// Leased and not yet used.
    pub promised: u64,
    /// Free, and not the arena's.
    pub beside: u64,
    /// Tenants' memory that does not move, by kind.
    pub unmanaged: PerKind,
    /// Tenants' contexts.
    pub contexts: u64,
    /// The coordinator's own memory, and all that was used when the first tenant came.
    pub own: u64,
    /// Used for an unknown purpose.
    pub hidden: u64,
}

impl Lines {
    /// Bytes used for a known purpose. `frames` is the size of the frames that have been made.
    pub fn known(&self, frames: u64) -> u64 {
        frames + self.unmanaged.iter().sum::<u64>() + self.contexts + self.own
    }

    /// The sum of all lines.
    pub fn sum(&self) -> u64 {
        let arena = self.lent + self.free + self.headroom;
        let used = self.unmanaged.iter().sum::<u64>() + self.contexts + self.own + self.hidden;
        arena + self.promised + self.beside + used
    }
}

/// One tenant's memory beside the arena, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The use that it reports, by kind.
    pub unmanaged: PerKind,
    /// The most that it may use, apart from memory that needs no lease.
    pub leased: u64,
    /// The number of its contexts.
    pub contexts: u64,
    /// The measured size of its contexts.
    pub context_bytes: u64,
    /// Kept free for a context that it is about to make.
    pub context_promised: u64,
}

/// The kinds that need a lease and stay where the driver has put them.
const PLACED: [Unmanaged; 5] =
    [Unmanaged::Array, Unmanaged::Exported, Unmanaged::Graph, Unmanaged::Pool, Unmanaged::Other];
const MANAGED: usize = Unmanaged::Managed.index();
const EXTERNAL: usize = Unmanaged::External.index();

impl Account {
    /// The used part of its lease, as the tenant reports it.
    fn used(&self) -> u64 {
        let placed = PLACED.iter().map(|kind| self.unmanaged[kind.index()]);
        placed.fold(self.unmanaged[MANAGED], u64::saturating_add).min(self.leased)
    }

    /// Bytes that it may still use.
    fn promised(&self) -> u64 {
        self.leased - self.used() + self.context_promised
    }

    /// Its use of each kind, as far as the ledger believes it without the driver's count.
    pub fn believed(&self) -> PerKind {
        let mut left = self.used();
        let mut believed = self.unmanaged;
        for kind in PLACED.map(Unmanaged::index).into_iter().chain([MANAGED]) {
            let bytes = &mut believed[kind];
            *bytes = (*bytes).min(left);
            left -= *bytes;
        }
        believed
    }
}

/// The answer to a tenant that needs memory beside the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The tenant can have this many bytes.
    Granted(u64),
    /// The arena has to give up this many bytes first.
    Shrink(u64),
    /// No line can give the memory.
    Denied,
}

/// Sums over all accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    believed: PerKind,
    promised: u64,
    context_bytes: u64,
}

/// The ledger of one GPU. An `Id` names a tenant.
#[derive(Debug)]
pub struct Ledger<Id> {
    total: u64,
    own: u64,
    accounts: BTreeMap<Id, Account>,
    sums: Sums,
}

impl<Id: Ord + Copy> Ledger<Id> {
    /// The ledger of a GPU with `total` bytes, of which `own` were used before any tenant came.
    pub fn new(total: u64, own: u64) -> Self {
        Self { total, own: own.min(total), accounts: BTreeMap::new(), sums: Sums::default() }
    }

    /// Counts all used memory outside frames as own if no tenant is here: it is the coordinator's, which may have grown since
    /// it started, or a stranger's.
    pub fn nobody_is_here(&mut self, now: &Reading) {
        // If the driver gave no answer, the reading says that nothing is free.
        if self.accounts.is_empty() && now.free > 0 {
            self.own = self.total.saturating_sub(now.free).saturating_sub(now.frames);
        }
    }

    /// The GPU's memory, in bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// A tenant's account.
    pub fn account(&self, id: Id) -> Account {
        self.accounts.get(&id).copied().unwrap_or_default()
    }

    fn change(&mut self, id: Id, change: impl FnOnce(&mut Account)) {
        let account = self.accounts.entry(id).or_default();
        self.sums.take(account);
        change(account);
        self.sums.add(account);
    }

    /// Removes a tenant that has left.
    pub fn remove(&mut self, id: Id) {
        if let Some(account) = self.accounts.remove(&id) {
            self.sums.take(&account);
        }
    }

    /// Enters the use that a tenant reports.
    pub fn say(&mut self, id: Id, unmanaged: PerKind) {
        if self.account(id).unmanaged != unmanaged {
            // The limit keeps every sum from overflowing.
            self.change(id, |account| account.unmanaged = unmanaged.map(|bytes| bytes.min(1 << 48)));
        }
    }

    /// Adds bytes to a tenant's lease.
    pub fn lease(&mut self, id: Id, bytes: u64) {
        self.change(id, |account| account.leased += bytes);
    }

    /// Enters a tenant that comes from another coordinator, with its lease, its contexts and their bytes, and the use that it reports. What it
    /// uses has counted as own until now.
    pub fn restore(&mut self, id: Id, leased: u64, (contexts, bytes): (u64, u64), unmanaged: PerKind) {
        self.change(id, |account| {
            // The limit keeps every sum from overflowing.
            account.leased = leased.min(1 << 48);
            (account.contexts, account.context_bytes) = (contexts, bytes);
        });
        self.say(id, unmanaged);
        let believed = self.account(id).believed();
        let placed: u64 = PLACED.iter().map(|kind| believed[kind.index()]).sum();
        self.own = self.own.saturating_sub(bytes.saturating_add(placed));
    }

    /// Takes bytes that a tenant no longer needs from its lease. False if its lease is smaller.
    pub fn unlease(&mut self, id: Id, bytes: u64) -> bool {
        let has = self.account(id).leased >= bytes;
        if has {
            self.change(id, |account| account.leased -= bytes);
        }
        has
    }

    /// Keeps bytes free for a context that a tenant is about to make.
    pub fn promise_context(&mut self, id: Id, bytes: u64) {
        self.change(id, |account| account.context_promised = bytes);
    }

    /// Notes that the context was made and takes this many bytes, or that it could not be made.
    pub fn context_made(&mut self, id: Id, bytes: Option<u64>) {
        self.change(id, |account| {
            account.context_promised = 0;
            account.contexts += u64::from(bytes.is_some());
            account.context_bytes += bytes.unwrap_or(0);
        });
    }

    /// Notes that one of a tenant's contexts is gone.
    pub fn context_gone(&mut self, id: Id) {
        self.change(id, |account| {
            account.context_bytes -= account.context_bytes.checked_div(account.contexts).unwrap_or(0);
            account.contexts = account.contexts.saturating_sub(1);
        });
    }

    /// Bytes that are used and not in the books. While a context is made, this grows by the size of that context. Managed memory is not
    /// counted as in the books, because no program knows how much of it is on the GPU; neither is memory that others have made, of which
    /// only tenants know.
    pub fn unexplained(&self, now: &Reading) -> u64 {
        let placed = PLACED.iter().map(|kind| self.sums.believed[kind.index()]).sum::<u64>();
        let books = placed + self.sums.context_bytes + self.own;
        self.total.saturating_sub(now.free).saturating_sub(books.saturating_add(now.frames))
    }

    /// Bytes that are leased or kept for contexts, and not used yet.
    fn promised(&self, now: &Reading) -> u64 {
        let managed = self.sums.believed[MANAGED];
        self.sums.promised + managed.saturating_sub(self.unexplained(now))
    }

    /// Computes all lines. The known use never exceeds the use that the driver reports.
    pub fn lines(&self, now: &Reading) -> Lines {
        let free = now.free.min(self.total);
        let mut left = self.total - free;
        let mut of_used = |bytes: u64| {
            let bytes = bytes.min(left);
            left -= bytes;
            bytes
        };
        let frames = of_used(now.frames);
        let contexts = of_used(self.sums.context_bytes);
        let mut unmanaged = PerKind::default();
        for kind in PLACED.map(Unmanaged::index) {
            unmanaged[kind] = of_used(self.sums.believed[kind]);
        }
        let own = of_used(self.own);
        for kind in [MANAGED, EXTERNAL] {
            unmanaged[kind] = of_used(self.sums.believed[kind]);
        }
        let hidden = left;

        let promised = self.promised(now).min(free);
        let unmade = now.capacity.saturating_sub(now.frames).min(free - promised);
        let beside = free - promised - unmade;
        let lent = now.lent.min(frames);
        let in_arena = frames - lent + unmade;
        let headroom = now.headroom.min(in_arena);
        Lines { lent, free: in_arena - headroom, headroom, promised, beside, unmanaged, contexts, own, hidden }
    }

    /// Free bytes that are promised to no tenant.
    pub fn room(&self, now: &Reading) -> u64 {
        now.free.saturating_sub(self.promised(now))
    }

    /// Bytes that would be available if the arena's frames shrank to `floor`.
    pub fn could_give(&self, now: &Reading, floor: u64) -> u64 {
        now.free.saturating_add(now.frames.saturating_sub(floor)).saturating_sub(self.promised(now))
    }

    /// Judges a request for at least `least` bytes beside the arena, where up to `welcome` bytes are welcome. The arena keeps at least
    /// `floor`, and gives up nothing for bytes that are only welcome.
    pub fn judge(&self, now: &Reading, floor: u64, least: u64, welcome: u64) -> Verdict {
        let room = self.room(now);
        if least <= room {
            Verdict::Granted(welcome.clamp(least, room))
        } else if least <= self.could_give(now, floor) {
            Verdict::Shrink(least + self.promised(now) - now.free)
        } else {
            Verdict::Denied
        }
    }

    /// The largest possible size of the arena, in bytes, with `reserve` left for unforeseeable needs.
    pub fn arena_could_be(&self, now: &Reading, reserve: u64) -> u64 {
        now.frames + self.room(now).saturating_sub(reserve)
    }
}

impl Sums {
    fn each(&mut self, account: &Account, change: impl Fn(u64, u64) -> u64) {
        for (sum, bytes) in self.believed.iter_mut().zip(account.believed()) {
            *sum = change(*sum, bytes);
        }
        self.promised = change(self.promised, account.promised());
        self.context_bytes = change(self.context_bytes, account.context_bytes);
    }

    fn add(&mut self, account: &Account) {
        self.each(account, |sum, bytes| sum + bytes);
    }

    fn take(&mut self, account: &Account) {
        self.each(account, |sum, bytes| sum - bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;
    const TOTAL: u64 = 512 * MIB;
    const FLOOR: u64 = 64 * MIB;

    fn one(kind: Unmanaged, bytes: u64) -> PerKind {
        let mut all = PerKind::default();
        all[kind.index()] = bytes;
        all
    }

    /// A ledger, a driver, and an arena whose contents can all move.
    struct World {
        ledger: Ledger<u8>,
        now: Reading,
        /// The part of its lease that each tenant really uses.
        uses: BTreeMap<u8, u64>,
    }

    #[derive(Clone, Debug)]
    enum Step {
        Ask { who: u8, least: u64, welcome: u64 },
        Use { who: u8, part: u64 },
        GiveBack { who: u8 },
        Lie { who: u8, says: PerKind },
        Context { who: u8, promised: u64, takes: u64 },
        ContextGone { who: u8 },
        Leave { who: u8 },
        Hide(u64),
        Lend(u64),
        Grow { reserve: u64 },
    }

    impl World {
        fn new() -> Self {
            let own = 16 * MIB;
            let now = Reading { free: TOTAL - own, capacity: 400 * MIB, headroom: 8 * MIB, ..Reading::default() };
            Self { ledger: Ledger::new(TOTAL, own), now, uses: BTreeMap::new() }
        }

        fn used(&self, who: u8) -> u64 {
            self.uses.get(&who).copied().unwrap_or(0)
        }

        fn set_used(&mut self, who: u8, bytes: u64) {
            let before = self.uses.insert(who, bytes).unwrap_or(0);
            self.now.free = self.now.free + before - bytes;
            self.ledger.say(who, one(Unmanaged::Array, bytes));
        }

        fn ask(&mut self, who: u8, least: u64, welcome: u64) {
            let before = self.ledger.could_give(&self.now, FLOOR);
            loop {
                match self.ledger.judge(&self.now, FLOOR, least, welcome) {
                    Verdict::Granted(bytes) => {
                        assert!(bytes >= least && bytes <= before, "{bytes} of {before}");
                        self.ledger.lease(who, bytes);
                        break;
                    }
                    Verdict::Shrink(bytes) => {
                        assert!(bytes > 0 && bytes <= self.now.frames.saturating_sub(FLOOR));
                        self.now.frames -= bytes;
                        self.now.free += bytes;
                        self.now.lent = self.now.lent.min(self.now.frames);
                        self.now.capacity = self.now.capacity.min(self.now.frames);
                    }
                    Verdict::Denied => {
                        assert!(least > before, "{least} was denied, and there was {before}");
                        break;
                    }
                }
            }
        }

        fn step(&mut self, step: Step) {
            match step {
                Step::Ask { who, least, welcome } => self.ask(who, least, welcome),
                Step::Use { who, part } => {
                    // An honest tenant uses no more than it has leased. Hidden memory of others may be in its way.
                    let leased = self.ledger.account(who).leased;
                    let most = leased.min(self.used(who) + self.now.free);
                    self.set_used(who, most * part / 100);
                }
                Step::GiveBack { who } => {
                    let spare = self.ledger.account(who).leased - self.used(who);
                    assert!(self.ledger.unlease(who, spare) && !self.ledger.unlease(who, TOTAL * 2));
                }
                Step::Lie { who, says } => self.ledger.say(who, says),
                Step::Context { who, promised, takes } => {
                    self.ledger.promise_context(who, promised.min(self.ledger.room(&self.now)));
                    let before = self.ledger.unexplained(&self.now);
                    let takes = takes.min(self.now.free);
                    self.now.free -= takes;
                    let measured = self.ledger.unexplained(&self.now) - before;
                    assert!(measured <= takes);
                    self.ledger.context_made(who, Some(measured));
                }
                Step::ContextGone { who } => self.ledger.context_gone(who),
                Step::Leave { who } => {
                    self.set_used(who, 0);
                    self.ledger.remove(who);
                }
                Step::Hide(bytes) => self.now.free -= bytes.min(self.now.free),
                Step::Lend(bytes) => {
                    let room = self.now.capacity.saturating_sub(self.now.frames);
                    let made = bytes.saturating_sub(self.now.frames - self.now.lent).min(room).min(self.now.free);
                    self.now.frames += made;
                    self.now.free -= made;
                    self.now.lent = bytes.min(self.now.frames);
                }
                Step::Grow { reserve } => {
                    let could = self.ledger.arena_could_be(&self.now, reserve);
                    assert!(could <= self.now.frames + self.now.free);
                    self.now.capacity = self.now.capacity.max(could).min(400 * MIB);
                }
            }
        }

        fn check(&self) {
            let lines = self.ledger.lines(&self.now);
            assert_eq!(lines.sum(), TOTAL, "{lines:?} {:?}", self.now);
            assert_eq!(lines.known(self.now.frames) + lines.hidden, TOTAL - self.now.free, "what the driver says");
            assert_eq!(
                lines.promised + lines.beside,
                self.now.free - (lines.free + lines.headroom + lines.lent - self.now.frames)
            );
            let mut sums = Sums::default();
            self.ledger.accounts.values().for_each(|account| sums.add(account));
            assert_eq!(sums, self.ledger.sums, "a recount");
        }
    }

    fn step() -> impl Strategy<Value = Step> {
        let who = 0u8..4;
        let bytes = 0u64..200 * MIB;
        prop_oneof![
            (who.clone(), bytes.clone(), bytes.clone()).prop_map(|(who, least, more)| Step::Ask {
                who,
                least,
                welcome: least + more
            }),
            (who.clone(), 0u64..=100).prop_map(|(who, part)| Step::Use { who, part }),
            who.clone().prop_map(|who| Step::GiveBack { who }),
            (who.clone(), prop::array::uniform7(prop_oneof![bytes.clone(), Just(u64::MAX)]))
                .prop_map(|(who, says)| Step::Lie { who, says }),
            (who.clone(), bytes.clone(), bytes.clone()).prop_map(|(who, promised, takes)| Step::Context {
                who,
                promised,
                takes
            }),
            who.clone().prop_map(|who| Step::ContextGone { who }),
            who.prop_map(|who| Step::Leave { who }),
            (0u64..8 * MIB).prop_map(Step::Hide),
            bytes.clone().prop_map(Step::Lend),
            bytes.prop_map(|reserve| Step::Grow { reserve }),
        ]
    }

    proptest! {
        #[test]
        fn every_byte_is_in_one_line_and_no_grant_is_more_than_others_can_give(
            steps in prop::collection::vec(step(), 0..60),
        ) {
            let mut world = World::new();
            world.check();
            for step in steps {
                world.step(step);
                world.check();
            }
        }

        #[test]
        fn the_lines_add_up_whatever_the_driver_and_the_tenants_say(
            own in any::<u64>(),
            says in prop::array::uniform7(any::<u64>()),
            numbers in prop::array::uniform5(0u64..2 * TOTAL),
            leased in 0u64..2 * TOTAL,
        ) {
            let mut ledger = Ledger::new(TOTAL, own);
            ledger.lease(1, leased);
            ledger.say(1, says);
            let [free, frames, lent, capacity, headroom] = numbers;
            let now = Reading { free, frames, lent, capacity, headroom };
            prop_assert_eq!(ledger.lines(&now).sum(), TOTAL);
        }
    }

    #[test]
    fn what_a_tenant_says_is_believed_as_far_as_it_has_leased_it() {
        let mut ledger = Ledger::new(TOTAL, 0);
        ledger.lease(1, 10 * MIB);
        ledger.say(1, one(Unmanaged::Array, 100 * MIB));
        let now = Reading { free: TOTAL - 50 * MIB, ..Reading::default() };
        let lines = ledger.lines(&now);
        assert_eq!((lines.unmanaged[Unmanaged::Array.index()], lines.hidden), (10 * MIB, 40 * MIB));
        // Memory that others have made needs no lease, but has to exist.
        ledger.say(1, one(Unmanaged::External, 100 * MIB));
        let lines = ledger.lines(&now);
        assert_eq!((lines.unmanaged[EXTERNAL], lines.hidden, lines.promised), (50 * MIB, 0, 10 * MIB));
    }

    #[test]
    fn managed_memory_that_is_on_the_host_has_its_place_kept() {
        let mut ledger = Ledger::new(TOTAL, 0);
        ledger.lease(1, 100 * MIB);
        ledger.say(1, one(Unmanaged::Managed, 90 * MIB));
        let mut now = Reading { free: TOTAL - 30 * MIB, ..Reading::default() };
        let lines = ledger.lines(&now);
        assert_eq!((lines.unmanaged[MANAGED], lines.promised, lines.hidden), (30 * MIB, 70 * MIB, 0));
        assert_eq!(ledger.room(&now), TOTAL - 100 * MIB);
        now.free = TOTAL - 95 * MIB;
        let lines = ledger.lines(&now);
        assert_eq!((lines.unmanaged[MANAGED], lines.promised, lines.hidden), (90 * MIB, 10 * MIB, 5 * MIB));
    }

    #[test]
    fn what_is_used_before_anybody_comes_and_goes_later_hides_nothing() {
        let mut ledger = Ledger::new(TOTAL, 100 * MIB);
        ledger.lease(1, 30 * MIB);
        ledger.say(1, one(Unmanaged::Pool, 30 * MIB));
        let lines = ledger.lines(&Reading { free: TOTAL - 40 * MIB, ..Reading::default() });
        assert_eq!((lines.unmanaged[Unmanaged::Pool.index()], lines.own, lines.hidden), (30 * MIB, 10 * MIB, 0));
    }

    #[test]
    fn what_the_coordinator_has_taken_before_the_first_tenant_comes_is_its_own() {
        let mut ledger = Ledger::<u8>::new(TOTAL, 10 * MIB);
        let mut now = Reading { free: TOTAL - 50 * MIB, frames: 20 * MIB, ..Reading::default() };
        assert_eq!(ledger.lines(&now).hidden, 20 * MIB);
        ledger.nobody_is_here(&now);
        assert_eq!((ledger.lines(&now).own, ledger.lines(&now).hidden), (30 * MIB, 0));
        ledger.say(1, one(Unmanaged::Array, 8 * MIB));
        now.free -= 8 * MIB;
        ledger.nobody_is_here(&now);
        assert_eq!(ledger.lines(&now).own, 30 * MIB, "somebody is here");
    }

    #[test]
    fn a_context_takes_what_is_used_more_once_it_is_made() {
        let mut ledger = Ledger::new(TOTAL, 16 * MIB);
        let mut now = Reading { free: TOTAL - 20 * MIB, ..Reading::default() };
        ledger.promise_context(1, 64 * MIB);
        assert_eq!(ledger.room(&now), now.free - 64 * MIB);
        let before = ledger.unexplained(&now);
        now.free -= 40 * MIB;
        ledger.context_made(1, Some(ledger.unexplained(&now) - before));
        let lines = ledger.lines(&now);
        assert_eq!((lines.contexts, lines.hidden, lines.promised), (40 * MIB, 4 * MIB, 0));
        ledger.context_gone(1);
        assert_eq!(ledger.account(1), Account::default());
        // One too many changes nothing.
        ledger.context_gone(1);
    }

    #[test]
    fn the_arena_gives_what_is_needed_and_nothing_of_what_is_welcome() {
        let ledger = Ledger::<u8>::new(TOTAL, 0);
        let now = Reading { free: 40 * MIB, frames: 472 * MIB, ..Reading::default() };
        assert_eq!(ledger.judge(&now, FLOOR, MIB, 32 * MIB), Verdict::Granted(32 * MIB));
        assert_eq!(ledger.judge(&now, FLOOR, 10 * MIB, 64 * MIB), Verdict::Granted(40 * MIB));
        assert_eq!(ledger.judge(&now, FLOOR, 60 * MIB, 64 * MIB), Verdict::Shrink(20 * MIB));
        assert_eq!(ledger.judge(&now, FLOOR, 449 * MIB, 449 * MIB), Verdict::Denied);
    }
}
