//! Answers to queries about all tenants at once: counted and sorted, and kept up to date as each tenant changes.
//!
//! [`Facts`] are the facts of one tenant that count for the others. Code that changes a tenant has it *touched*. Before the next
//! query its facts are taken anew, and only differences are entered. So a query costs the same with two tenants and with a
//! thousand.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use baton_contract::class::Class;

use super::limits::ANSWER_LIMIT;
use super::tenant::Tenant;
use crate::server::tuning::micros;
use baton_policy::arbiter::TenantId;
use baton_policy::prefetch::NextKey;
use baton_policy::victims::{Standing, VictimKey};

/// Interval between checks that the program of a disconnected process was replaced (`exec`).
const REPLACED: Duration = Duration::from_millis(500);

/// The facts of one tenant that count for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Facts {
    /// None if it is disconnected.
    class: Option<Class>,
    /// True if it has memory and cannot co-run with others.
    keeps_apart: bool,
    /// True if it owes an answer, or its gate is about to close.
    answering: bool,
    leaving: bool,
    reserved: bool,
    /// True if others can use its memory, past or present, only as it is.
    as_it_is: bool,
    descheduled: bool,
    victim: Option<VictimKey>,
    next: Option<NextKey>,
    /// The time at which it has to be checked again.
    deadline: Option<Instant>,
}

impl Facts {
    fn of(tenant: &Tenant, start: Instant, now: Instant) -> Self {
        let (counts, class) = (tenant.memory.extents.counts(), tenant.class());
        let is_off = tenant.is_off();
        let can_go = tenant.is_evictable() && counts.here() > counts.immovable;
        let can_come = is_off
            && tenant.is_movable()
            && !tenant.memory.is_taken()
            && tenant.memory.next_redelivery().is_none()
            && counts.away > 0;
        let answers = (tenant.is_movable() && !tenant.memory.is_taken() && tenant.memory.oldest_batch().is_some())
            .then(|| tenant.memory.oldest_batch())
            .flatten();
        let standing = Standing {
            waits: tenant.scheduling.is_waiting,
            class,
            ran: micros(tenant.turn.ran().saturating_duration_since(start)),
        };
        let deadlines = [
            tenant.next_look(now),
            tenant.memory.next_redelivery(),
            tenant.preemption.next_try().filter(|at| *at > now),
            tenant.turn.next_look(),
            answers.map(|since| since + ANSWER_LIMIT).filter(|at| *at > now),
            tenant.killed_at(),
            tenant.next_look_for_life(),
            tenant.meets_at().filter(|at| *at > now),
            (!tenant.connection.is_open()).then_some(now + REPLACED),
        ];
        Self {
            class: tenant.connection.is_open().then_some(class),
            // A tenant whose memory is to become one piece leaves the GPU for that. One that takes turns with others for the same memory
            // runs while they do not. A guest could falsely report that it cannot be paused.
            keeps_apart: !tenant.memory.extents.is_empty()
                && (!tenant.preemption.can_corun() && tenant.connection.control.guest().is_none()
                    || !tenant.memory.consolidations.is_empty()
                    || !tenant.shares_with.is_empty()),
            answering: tenant.memory.oldest_batch().is_some() || !is_off || tenant.turn.is_ending(),
            leaving: counts.leaving.iter().any(|count| *count > 0),
            reserved: counts.reserved > 0,
            as_it_is: tenant.memory.is_taken() || counts.left_behind > 0,
            descheduled: tenant.preemption.is_descheduled(),
            victim: can_go.then(|| standing.into()),
            next: can_come.then(|| standing.into()),
            deadline: deadlines.into_iter().flatten().min(),
        }
    }
}

/// The index.
#[derive(Debug)]
pub(in crate::server) struct Index {
    /// Times are counted from here.
    start: Instant,
    facts: BTreeMap<TenantId, Facts>,
    connected: [usize; Class::ALL.len()],
    apart: usize,
    answering: BTreeSet<TenantId>,
    leaving: BTreeSet<TenantId>,
    reserved: BTreeSet<TenantId>,
    as_it_is: BTreeSet<TenantId>,
    descheduled: BTreeSet<TenantId>,
    disconnected: BTreeSet<TenantId>,
    victims: BTreeSet<(VictimKey, TenantId)>,
    next: BTreeSet<(NextKey, TenantId)>,
    deadlines: BTreeSet<(Instant, TenantId)>,
}

/// Takes an element out and puts another one in.
fn exchange<T: Ord>(set: &mut BTreeSet<T>, before: Option<T>, after: Option<T>) {
    if before != after {
        before.map(|before| set.remove(&before));
        set.extend(after);
    }
}

impl Index {
    /// An index of no tenants. No tenant has run before `start`.
    pub(super) fn new(start: Instant) -> Self {
        Self {
            start,
            facts: BTreeMap::new(),
            connected: Default::default(),
            apart: 0,
            answering: BTreeSet::new(),
            leaving: BTreeSet::new(),
            reserved: BTreeSet::new(),
            as_it_is: BTreeSet::new(),
            descheduled: BTreeSet::new(),
            disconnected: BTreeSet::new(),
            victims: BTreeSet::new(),
            next: BTreeSet::new(),
            deadlines: BTreeSet::new(),
        }
    }

    /// Enters a tenant as it is now; none if it is gone.
    pub(super) fn enter(&mut self, id: TenantId, tenant: Option<&Tenant>, now: Instant) {
        let after = tenant.map(|tenant| Facts::of(tenant, self.start, now));
        let before = match after {
            Some(facts) => self.facts.insert(id, facts),
            None => self.facts.remove(&id),
        };
        if before == after {
            return;
        }
        let flag = |set: &mut BTreeSet<TenantId>, what: fn(&Facts) -> bool| {
            let id_if = |facts: Option<Facts>| facts.filter(what).map(|_| id);
            exchange(set, id_if(before), id_if(after));
        };
        flag(&mut self.answering, |facts| facts.answering);
        flag(&mut self.leaving, |facts| facts.leaving);
        flag(&mut self.reserved, |facts| facts.reserved);
        flag(&mut self.as_it_is, |facts| facts.as_it_is);
        flag(&mut self.descheduled, |facts| facts.descheduled);
        flag(&mut self.disconnected, |facts| facts.class.is_none());
        let keyed = |facts: Option<Facts>| facts.and_then(|facts| facts.victim).map(|key| (key, id));
        exchange(&mut self.victims, keyed(before), keyed(after));
        let keyed = |facts: Option<Facts>| facts.and_then(|facts| facts.next).map(|key| (key, id));
        exchange(&mut self.next, keyed(before), keyed(after));
        let keyed = |facts: Option<Facts>| facts.and_then(|facts| facts.deadline).map(|at| (at, id));
        exchange(&mut self.deadlines, keyed(before), keyed(after));
        for (facts, is_new) in [(before, false), (after, true)] {
            let Some(facts) = facts else { continue };
            let count = |number: &mut usize, counts: bool| match (counts, is_new) {
                (true, true) => *number += 1,
                (true, false) => *number -= 1,
                (false, _) => {}
            };
            count(&mut self.apart, facts.keeps_apart);
            if let Some(class) = facts.class {
                count(&mut self.connected[class as usize], true);
            }
        }
    }

    /// True if there is a tenant of this class.
    pub(in crate::server) fn has(&self, class: Class) -> bool {
        self.connected[class as usize] > 0
    }

    /// True if all tenants with memory can co-run with others.
    pub(in crate::server) fn can_all_corun(&self) -> bool {
        self.apart == 0
    }

    /// The tenants that owe an answer, or whose gates are about to close.
    pub(in crate::server) fn answering(&self) -> impl Iterator<Item = TenantId> {
        self.answering.iter().copied()
    }

    /// The tenants that have extents on the way out.
    pub(in crate::server) fn leaving(&self) -> impl Iterator<Item = TenantId> {
        self.leaving.iter().copied()
    }

    /// The tenants that have frames waiting for contents.
    pub(in crate::server) fn reserved(&self) -> Vec<TenantId> {
        self.reserved.iter().copied().collect()
    }

    /// True if a tenant other than this one has or had memory that can be used only as it is.
    pub(in crate::server) fn is_any_had_as_it_is(&self, except: TenantId) -> bool {
        self.as_it_is.iter().any(|id| *id != except)
    }

    /// The tenants that are descheduled.
    pub(in crate::server) fn descheduled(&self) -> Vec<TenantId> {
        self.descheduled.iter().copied().collect()
    }

    /// The tenants whose connection has ended, but not their process.
    pub(in crate::server) fn disconnected(&self) -> Vec<TenantId> {
        self.disconnected.iter().copied().collect()
    }

    /// The tenant that loses memory next, after this one, with its place in that order.
    pub(in crate::server) fn victim_after(&self, after: Option<Victim>) -> Option<Victim> {
        match after {
            Some(Victim(key, id)) => {
                self.victims.range((std::ops::Bound::Excluded((key, id)), std::ops::Bound::Unbounded)).next()
            }
            None => self.victims.first(),
        }
        .map(|(key, id)| Victim(*key, *id))
    }

    /// The tenants whose memory comes in ahead of need, the likeliest first.
    pub(in crate::server) fn next(&self) -> impl Iterator<Item = TenantId> {
        self.next.iter().map(|(_, id)| *id)
    }

    /// The earliest time at which a tenant has to be checked.
    pub(in crate::server) fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// The tenants that have to be checked by now.
    pub(in crate::server) fn due(&self, now: Instant) -> Vec<TenantId> {
        self.deadlines.iter().take_while(|(at, _)| *at <= now).map(|(_, id)| *id).collect()
    }

    /// True if the index is complete: it equals one with all tenants entered anew.
    #[cfg(debug_assertions)]
    pub(super) fn is_complete<'a>(&self, all: impl Iterator<Item = (TenantId, &'a Tenant)>, now: Instant) -> bool {
        // Deadlines depend on the time.
        let timeless = |facts: Facts| Facts { deadline: None, ..facts };
        let all: BTreeMap<_, _> = all.map(|(id, tenant)| (id, timeless(Facts::of(tenant, self.start, now)))).collect();
        let known: BTreeMap<_, _> = self.facts.iter().map(|(id, facts)| (*id, timeless(*facts))).collect();
        all == known
    }
}

/// A tenant that can lose memory, and its place in the order of such tenants.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Victim(VictimKey, pub(in crate::server) TenantId);
