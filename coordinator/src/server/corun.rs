//! Tenants that fit together run together: those of class latency at any time, the others in the gaps.
//!
//! Three things keep what is urgent from noticing the others. The others' compute work has a tiny **time slice** on the GPU
//! ([`super::preemption`]), which is set once. Their new launches wait while somebody urgent is at work, as the **activity page** says:
//! the tenants see to that among themselves, and the coordinator has no part in a request. And few of them are in flight
//! (*LimitInFlight*).
//!
//! All this only while nobody's memory has to go for another's. As soon as it has to, those that run beside others leave, and
//! all take turns.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::time::{Duration, Instant};

use baton_contract::class::Class;
use baton_contract::page::{ACTIVITY_WORDS, ActivityPage};
use rustix::thread::futex;

use super::tenants::shared::{Shared, reopened};
use super::tenants::table::Tenants;
use crate::policy::arbiter::{Micros, TenantId};
use crate::policy::bursts::{Bursts, Rules, Verdict};

/// How long all take turns at least when they did not fit together.
const APART: Duration = Duration::from_secs(1);
/// How often it is looked whether who is at work was stopped: the others wait for it meanwhile.
const LOOK: Duration = Duration::from_millis(4);

/// The activity page, who has which slot, and what follows from who is at work.
#[derive(Debug)]
pub(super) struct Corun {
    /// Whether the user allows it.
    is_allowed: bool,
    page: Shared<ActivityPage>,
    writable: OwnedFd,
    readable: OwnedFd,
    /// A bit for each slot that somebody has, as on the page.
    taken: [u64; ACTIVITY_WORDS],
    tenants: BTreeMap<u32, TenantId>,
    /// Who was at work when it was last looked.
    seen: BTreeMap<TenantId, u32>,
    /// Somebody's part of the page was cleared, which nobody has looked at yet.
    cleared: bool,
    /// Before this time all take turns.
    apart_until: Option<Instant>,
    /// When it was last looked for programs that were stopped, or nobody was at work.
    looked: Option<Instant>,
    bursts: Bursts,
}

impl Corun {
    pub(super) fn new(is_allowed: bool, rules: Rules) -> io::Result<Self> {
        let (page, writable) = Shared::written_by_all()?;
        // What is opened only for reading cannot be mapped writable.
        let readable = reopened(&writable)?;
        Ok(Self {
            is_allowed,
            page,
            writable,
            readable,
            taken: [0; ACTIVITY_WORDS],
            tenants: BTreeMap::new(),
            seen: BTreeMap::new(),
            cleared: false,
            apart_until: None,
            looked: None,
            bursts: Bursts::new(rules),
        })
    }

    /// Others make way for bursts by these from now on.
    pub(super) fn set_rules(&mut self, rules: Rules) {
        self.bursts.set_rules(rules);
    }

    /// A slot for a tenant of this class, if it is to have one. There are as many as there can be tenants.
    pub(super) fn give(&mut self, id: TenantId, class: Class) -> Option<u32> {
        let (at, word) = self.taken.iter_mut().enumerate().find(|(_, word)| **word != u64::MAX)?;
        if class != Class::Latency {
            return None;
        }
        let free = word.trailing_ones();
        *word |= 1 << free;
        let slot = at as u32 * u64::BITS + free;
        self.tenants.insert(slot, id);
        Some(slot)
    }

    /// The page's file, for one with that slot.
    pub(super) fn file(&self, slot: Option<u32>) -> BorrowedFd<'_> {
        if slot.is_some() { self.writable.as_fd() } else { self.readable.as_fd() }
    }

    /// A tenant has this slot no longer: what it said there holds no more.
    pub(super) fn free(&mut self, slot: Option<u32>) {
        let Some(slot) = slot else { return };
        self.taken[(slot / u64::BITS) as usize] &= !(1 << (slot % u64::BITS));
        self.tenants.remove(&slot);
        self.clear(slot);
    }

    fn clear(&mut self, slot: u32) {
        self.cleared = true;
        if self.page.set_idle(slot) {
            self.wake();
        }
    }

    /// Whether somebody's part of it was cleared since this was asked last.
    pub(super) fn take_cleared(&mut self) -> bool {
        std::mem::take(&mut self.cleared)
    }

    /// Has those look again who wait for somebody at work.
    fn wake(&self) {
        self.page.news.fetch_add(1, AcqRel);
        // They do so after a while anyhow.
        let _ = futex::wake(&self.page.news, futex::Flags::empty(), i32::MAX as u32);
    }

    /// A tenant that has got another slot may have used the old one once more.
    fn clear_what_is_nobodys(&self) {
        for (at, taken) in self.taken.iter().enumerate() {
            if self.page.word(at) & !taken != 0 && self.page.clear(at, !taken) {
                self.wake();
            }
        }
    }

    /// Whether the tenant with this slot says that it is at work.
    pub(super) fn is_at_work(&self, slot: Option<u32>) -> bool {
        slot.is_some_and(|slot| self.page.is_busy(slot))
    }

    /// Whether anybody does.
    pub(super) fn is_anybody_at_work(&self) -> bool {
        self.page.is_any_busy()
    }

    /// Those who do.
    pub(super) fn who_is_at_work(&self) -> impl Iterator<Item = TenantId> {
        self.at_work().into_keys()
    }

    /// The same, with their slots.
    fn at_work(&self) -> BTreeMap<TenantId, u32> {
        if !self.is_anybody_at_work() {
            return BTreeMap::new();
        }
        let slots = self.taken.iter().enumerate().flat_map(|(at, taken)| {
            let mut left = self.page.word(at) & taken;
            std::iter::from_fn(move || {
                let next = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(at as u32 * u64::BITS + next)
            })
        });
        slots.filter_map(|slot| Some((*self.tenants.get(&slot)?, slot))).collect()
    }

    /// Who is at work, and who was when this was asked last and is not any more.
    pub(super) fn changes(&mut self) -> Vec<(TenantId, bool)> {
        let now = self.at_work();
        let before = std::mem::replace(&mut self.seen, now);
        let ended = before.keys().filter(|id| !self.seen.contains_key(id)).map(|id| (*id, false));
        self.seen.keys().map(|id| (*id, true)).chain(ended).collect()
    }

    /// Nobody waits for a program that was stopped while it was at work. When it goes on, it says so anew.
    pub(super) fn clear_stopped(&mut self, tenants: &mut Tenants) {
        // Not while they come and go: whoever is at work for so long may be stopped.
        let is_new = self.looked.is_some_and(|at| at.elapsed() < LOOK);
        if is_new && self.is_anybody_at_work() {
            return;
        }
        self.looked = Some(Instant::now());
        if !self.is_anybody_at_work() {
            return;
        }
        self.clear_what_is_nobodys();
        for (id, slot) in self.at_work() {
            let Some(tenant) = tenants.unindexed(id) else { continue };
            let is_overdue = tenant.connection.heartbeat.is_overdue(tenant.connection.theirs.heartbeat.load(Relaxed));
            if tenant.connection.process.is_stopped().unwrap_or(is_overdue) {
                self.clear(slot);
            }
        }
    }

    /// Whether tenants may run together, if they fit.
    pub(super) fn is_allowed_now(&self) -> bool {
        self.is_allowed && self.together_again().is_none()
    }

    /// Whether tenants may run together at some time.
    pub(super) fn is_allowed(&self) -> bool {
        self.is_allowed
    }

    /// Somebody's memory has to go: all take turns for a while.
    pub(super) fn part(&mut self) {
        self.apart_until = Some(Instant::now() + APART);
    }

    /// When it is tried again whether all fit together.
    fn together_again(&self) -> Option<Instant> {
        self.apart_until.filter(|until| *until > Instant::now())
    }

    /// Whether those beside somebody at work are to be off the GPU now. `usual` is how long the requests of those at work usually
    /// take, if that is known.
    pub(super) fn judge(
        &mut self,
        now: Micros,
        together: bool,
        is_anybody_overdue: bool,
        usual: Option<Micros>,
    ) -> Verdict {
        self.bursts.expect(usual);
        self.bursts.look(now, together && self.is_anybody_at_work(), is_anybody_overdue)
    }

    /// Whether the others go on in spite of those at work.
    pub(super) fn let_pass(&self, pass: bool) {
        if self.page.pass.swap(pass.into(), Relaxed) == 0 && pass {
            self.wake();
        }
    }

    /// When something is to be done if nothing happens before. `start` is when the arbiter's clock began.
    pub(super) fn next_timer(&self, start: Instant) -> Option<Instant> {
        let look = self.is_anybody_at_work().then(|| Instant::now() + LOOK);
        let burst = self.bursts.next_timer().map(|at| start + Duration::from_micros(at));
        [self.together_again(), look, burst].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corun() -> Corun {
        let rules = Rules { burst: 0, slack: 0, max_wait: 0, share: 0 };
        Corun::new(true, rules).expect("a page")
    }

    #[test]
    fn there_is_a_slot_for_every_latency_tenant() {
        let mut corun = corun();
        let slots: Vec<u32> = (1..=1000).filter_map(|id| corun.give(TenantId(id), Class::Latency)).collect();
        assert_eq!(slots, (0..1000).collect::<Vec<u32>>());
        assert_eq!(corun.give(TenantId(1001), Class::Normal), None);
        corun.free(Some(77));
        assert_eq!(corun.give(TenantId(1002), Class::Latency), Some(77));
    }

    #[test]
    fn who_is_at_work_is_told_and_who_has_ended_once() {
        let mut corun = corun();
        let slots = [1, 2, 100].map(|id| (TenantId(id), corun.give(TenantId(id), Class::Latency).expect("a slot")));
        corun.page.set_busy(slots[1].1);
        corun.page.set_busy(slots[2].1);
        assert_eq!(corun.changes(), [(TenantId(2), true), (TenantId(100), true)]);
        assert_eq!(corun.changes(), [(TenantId(2), true), (TenantId(100), true)]);
        corun.page.set_idle(slots[1].1);
        assert_eq!(corun.changes(), [(TenantId(100), true), (TenantId(2), false)]);
        corun.free(Some(slots[2].1));
        assert_eq!(corun.changes(), [(TenantId(100), false)]);
        assert_eq!(corun.changes(), []);
        assert!(!corun.is_anybody_at_work());
    }
}
