//! How much of the GPU's time a tenant has had, as fairness counts it.
//!
//! The **level** is what tenants of a class are compared by. It rises with the time the baton is held. Who
//! does nothing does not save up time by that: on its return it is lifted to the class's **floor**, the
//! lowest level among those that were active in the meantime. After a short absence it may stay one quantum
//! below the floor, so that a tenant that often has a little to do is served before those that always do.

use baton_contract::class::Class;

use super::Micros;

/// An absence is short if it is not longer.
const SHORT_ABSENCE: Micros = 1_000_000;

#[derive(Debug, Default)]
pub(super) struct Account {
    /// How long it has had the baton.
    pub(super) used: Micros,
    /// What it is compared by.
    pub(super) level: Micros,
    /// When it was last active; none if it never was.
    pub(super) idle_since: Option<Micros>,
}

impl Account {
    pub(super) fn charge(&mut self, held: Micros) {
        self.used += held;
        self.level += held;
    }

    /// The tenant wants something again, or for the first time.
    pub(super) fn wake(&mut self, now: Micros, floor: Micros, quantum: Micros) {
        let short = self.idle_since.is_some_and(|since| now.saturating_sub(since) <= SHORT_ABSENCE);
        let credit = if short { quantum } else { 0 };
        self.level = self.level.max(floor.saturating_sub(credit));
    }
}

/// The floor of each class. It never sinks, so that it holds also when nobody has been active for a while.
#[derive(Debug, Default)]
pub(super) struct Floors([Micros; Class::ALL.len()]);

impl Floors {
    pub(super) fn of(&self, class: Class) -> Micros {
        self.0[class as usize]
    }

    pub(super) fn raise(&mut self, class: Class, lowest_active: Option<Micros>) {
        let floor = &mut self.0[class as usize];
        *floor = (*floor).max(lowest_active.unwrap_or(0));
    }
}
