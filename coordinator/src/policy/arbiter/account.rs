//! How much of the GPU's time a tenant has had, as fairness counts it.
//!
//! The **level** is what tenants of a class are compared by. It rises with the time the baton is held, the slower the
//! larger the tenant's weight: equal levels are shares in proportion to the weights. Who does nothing does not save up
//! time by that: on its return it is lifted to the class's **floor**, the lowest level among those that were active in the
//! meantime. After a short absence it may stay one quantum (of a tenant of weight 1, which rises fastest) below the floor,
//! so that a tenant that often has a little to do is served before those that always do.

use baton_contract::class::Class;
use baton_contract::scheduling::MAX_WEIGHT;

use super::Micros;

/// An absence is short if it is not longer.
const SHORT_ABSENCE: Micros = 1_000_000;

/// Time the baton was held, for a tenant of weight 1: in parts of a microsecond.
pub(super) type Level = u128;

/// Parts of a microsecond in a [`Level`]: what the largest weight makes of one is still a whole number.
const PARTS: Level = MAX_WEIGHT as Level;

/// By how much the level rises over this time.
pub(super) fn level(held: Micros, weight: u32) -> Level {
    Level::from(held) * PARTS / Level::from(weight.max(1))
}

/// How long a tenant takes to rise so far.
pub(super) fn time(level: Level, weight: u32) -> Micros {
    Micros::try_from(level * Level::from(weight) / PARTS).unwrap_or(Micros::MAX)
}

#[derive(Debug, Default)]
pub(super) struct Account {
    /// How long it has had the baton.
    pub(super) used: Micros,
    /// What it is compared by.
    pub(super) level: Level,
    /// When it was last active; none if it never was.
    pub(super) idle_since: Option<Micros>,
}

impl Account {
    pub(super) fn charge(&mut self, held: Micros, weight: u32) {
        self.used += held;
        self.level += level(held, weight);
    }

    /// The tenant wants something again, or for the first time.
    pub(super) fn wake(&mut self, now: Micros, floor: Level, quantum: Micros) {
        let short = self.idle_since.is_some_and(|since| now.saturating_sub(since) <= SHORT_ABSENCE);
        let credit = if short { level(quantum, 1) } else { 0 };
        self.level = self.level.max(floor.saturating_sub(credit));
    }
}

/// The floor of each class. It never sinks, so that it holds also when nobody has been active for a while.
#[derive(Debug, Default)]
pub(super) struct Floors([Level; Class::ALL.len()]);

impl Floors {
    pub(super) fn of(&self, class: Class) -> Level {
        self.0[class as usize]
    }

    pub(super) fn raise(&mut self, class: Class, lowest_active: Option<Level>) {
        let floor = &mut self.0[class as usize];
        *floor = (*floor).max(lowest_active.unwrap_or(0));
    }
}
