//! The tenants that wait for their turn, in the orders in which the rules ask for them.
//!
//! Each question costs a few steps down a tree, however many wait. Only [`Tenants`](super::tenants::Tenants) enters and removes.

use std::collections::BTreeSet;

use baton_contract::class::Class;

use super::tenant::{Target, Wait};
use super::virtual_time::Virtual;
use super::{Micros, TenantId};

/// The prospects of a try of a waiting tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It can arrive, as far as is known.
    Able,
    /// It could not arrive when last tried, and may be tried again.
    Retriable,
    /// It could not arrive, and is not tried before this time.
    Resting(Micros),
}

/// A waiting tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: TenantId,
    pub(super) class: Class,
    pub(super) standing: Standing,
    pub(super) virtual_time: Virtual,
    pub(super) wait: Wait,
    /// Its target, if it is able.
    pub(super) target: Option<Target>,
    /// All its memory is on the GPU.
    pub(super) is_resident: bool,
}

impl Entry {
    fn key(&self) -> Key {
        (self.virtual_time, self.wait, self.id)
    }
}

/// The least key is first: the least virtual time, then the longest wait.
type Key = (Virtual, Wait, TenantId);

/// A choice among the waiting tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    /// Tenants that can arrive, as far as is known.
    Able,
    /// Tenants that may be tried now.
    Candidates,
    /// Tenants that are not tried before some time.
    Resting,
}

impl Which {
    pub(super) fn includes(self, standing: Standing) -> bool {
        match standing {
            Standing::Able => self != Self::Resting,
            Standing::Retriable => self == Self::Candidates,
            Standing::Resting(_) => self == Self::Resting,
        }
    }
}

/// An ordered set that has its first element at hand: callers ask for it many times as often as it changes.
#[derive(Debug, PartialEq, Eq)]
struct Queue<K> {
    set: BTreeSet<K>,
    first: Option<K>,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self { set: BTreeSet::new(), first: None }
    }
}

impl<K: Ord + Copy> Queue<K> {
    fn insert(&mut self, key: K) {
        self.set.insert(key);
        self.first = Some(self.first.map_or(key, |first| first.min(key)));
    }

    fn remove(&mut self, key: &K) {
        self.set.remove(key);
        if self.first.as_ref() == Some(key) {
            self.first = self.set.first().copied();
        }
    }

    fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    fn first(&self) -> Option<K> {
        self.first
    }

    /// The first element for which `holds` is true.
    fn first_that(&self, holds: impl Fn(&K) -> bool) -> Option<K> {
        self.first.filter(&holds).or_else(|| self.set.iter().find(|key| holds(key)).copied())
    }

    /// The first element that is not less than `least`.
    fn first_from(&self, least: K) -> Option<K> {
        self.first.filter(|first| *first >= least).or_else(|| self.set.range(least..).next().copied())
    }

    fn iter(&self) -> impl Iterator<Item = K> {
        self.set.iter().copied()
    }
}

/// The waiting tenants of one class.
#[derive(Debug, Default, PartialEq, Eq)]
struct Line {
    able: Queue<Key>,
    retriable: Queue<Key>,
    resting: Queue<Key>,
    /// Able tenants, the longest wait first.
    ages: Queue<(Wait, TenantId)>,
    /// Tenants whose targets can be met, by their latest start.
    starts: Queue<(Micros, Wait, TenantId)>,
    /// Tenants with all their memory on the GPU.
    resident: Queue<TenantId>,
}

impl Line {
    fn queue(&mut self, standing: Standing) -> &mut Queue<Key> {
        match standing {
            Standing::Able => &mut self.able,
            Standing::Retriable => &mut self.retriable,
            Standing::Resting(_) => &mut self.resting,
        }
    }
}

/// All waiting tenants.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    lines: [Line; Class::ALL.len()],
    /// The times at which resting tenants may be tried again.
    retries: Queue<(Micros, TenantId)>,
    /// The times from which targets can no longer be met.
    given_up: Queue<(Micros, TenantId)>,
}

impl Waiting {
    pub(super) fn insert(&mut self, entry: &Entry) {
        let line = &mut self.lines[entry.class as usize];
        line.queue(entry.standing).insert(entry.key());
        match entry.standing {
            Standing::Able => {
                line.ages.insert((entry.wait, entry.id));
            }
            Standing::Resting(until) => {
                self.retries.insert((until, entry.id));
            }
            Standing::Retriable => {}
        }
        if let Some(target) = entry.target {
            line.starts.insert((target.latest_start, entry.wait, entry.id));
            self.given_up.insert((target.given_up_at, entry.id));
        }
        if entry.is_resident {
            line.resident.insert(entry.id);
        }
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        let line = &mut self.lines[entry.class as usize];
        line.queue(entry.standing).remove(&entry.key());
        match entry.standing {
            Standing::Able => {
                line.ages.remove(&(entry.wait, entry.id));
            }
            Standing::Resting(until) => {
                self.retries.remove(&(until, entry.id));
            }
            Standing::Retriable => {}
        }
        if let Some(target) = entry.target {
            line.starts.remove(&(target.latest_start, entry.wait, entry.id));
            self.given_up.remove(&(target.given_up_at, entry.id));
        }
        if entry.is_resident {
            line.resident.remove(&entry.id);
        }
    }

    /// The tenant of a class with the least virtual time; `last` comes after all others.
    pub(super) fn first(&self, class: Class, which: Which, last: Option<TenantId>) -> Option<TenantId> {
        let line = &self.lines[class as usize];
        let (queue, more) = match which {
            Which::Able => (&line.able, None),
            Which::Candidates => (&line.able, Some(&line.retriable)),
            Which::Resting => (&line.resting, None),
        };
        let queues = || [Some(queue), more].into_iter().flatten();
        let others = queues().filter_map(|queue| queue.first_that(|key| Some(key.2) != last)).min();
        others.or_else(|| queues().filter_map(Queue::first).min()).map(|key| key.2)
    }

    pub(super) fn is_any_able(&self, class: Class) -> bool {
        !self.lines[class as usize].able.is_empty()
    }

    /// The tenant of a class that has to begin first to meet its target, and the latest time for that.
    pub(super) fn first_to_start(&self, class: Class) -> Option<(Micros, TenantId)> {
        self.lines[class as usize].starts.first().map(|(at, _, id)| (at, id))
    }

    /// The able tenant of a class that has waited longest.
    pub(super) fn oldest(&self, class: Class) -> Option<(Wait, TenantId)> {
        self.lines[class as usize].ages.first()
    }

    /// The longest wait of a class's able tenants that began at this time or later.
    pub(super) fn oldest_since(&self, class: Class, since: Micros) -> Option<Wait> {
        let from = (Wait { since, number: 0 }, TenantId(0));
        self.lines[class as usize].ages.first_from(from).map(|(wait, _)| wait)
    }

    /// The tenants of a class with all their memory on the GPU.
    pub(super) fn resident(&self, class: Class) -> impl Iterator<Item = TenantId> {
        self.lines[class as usize].resident.iter()
    }

    /// The time at which the first resting tenant may be tried again.
    pub(super) fn next_retry(&self) -> Option<Micros> {
        self.retries.first().map(|(at, _)| at)
    }

    /// A tenant whose entry is out of date by now.
    pub(super) fn outdated(&self, now: Micros) -> Option<TenantId> {
        let retry = self.retries.first().filter(|(at, _)| *at <= now);
        retry.or_else(|| self.given_up.first().filter(|(at, _)| *at < now)).map(|(_, id)| id)
    }

    /// A resting tenant.
    pub(super) fn any_resting(&self) -> Option<TenantId> {
        self.retries.first().map(|(_, id)| id)
    }
}
