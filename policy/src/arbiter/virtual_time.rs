//! What fairness counts: how far each tenant is, and how far its class is.
//!
//! A tenant's **virtual time** goes on with the service that it gets, the slower the larger its weight. A class's virtual
//! time goes on with the service that any of the class gets, divided by the sum of the weights of those that are active:
//! as fast as each of them would if all were served at once. It is the virtual time of EEVDF (Stoica and Abdel-Wahab,
//! "Earliest Eligible Virtual Deadline First", 1995, equation 5). Of those that wait the one with the least virtual time
//! goes first, as in start-time fair queueing (Goyal, Vin and Cheng, 1996) and in Linux's CFS.
//!
//! **Who becomes active** goes on from the class's virtual time, not from the least of those that are active: those would
//! never get ahead of programs that keep coming. Whose own is later keeps it. Who was away for a moment only is behind the
//! class by what it was owed when it stopped, or by one quantum of service if that is more, so that a tenant that often has a
//! little to do goes before those that always do. It cannot starve them by that: it gets further by all that it is served.
//!
//! **Who stops being active** while it is behind has left its service to the others. The class's virtual time is never behind
//! the mean of those that are active, so it goes on by as much as is needed for that. Who stops while it is ahead has taken
//! service from the others: nothing is changed, so that they are behind, and served before newcomers, until they have it
//! back. So who leaves and comes back under another number gains nothing.

use super::Micros;

/// A point in virtual time: service of a tenant of weight 1, in parts of a microsecond.
pub(super) type Virtual = u128;

/// Parts of a microsecond: enough that a microsecond divided among ten thousand tenants of the largest weight is still some.
const PARTS: Virtual = 1 << 30;

/// How far a tenant of this weight gets by so much service.
pub(super) fn progress(service: Micros, weight: u32) -> Virtual {
    Virtual::from(service) * PARTS / Virtual::from(weight.max(1))
}

/// How much service takes a tenant of this weight so far.
pub(super) fn service(progress: Virtual, weight: u32) -> Micros {
    Micros::try_from(progress * Virtual::from(weight) / PARTS).unwrap_or(Micros::MAX)
}

/// The virtual time of one class.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct VirtualTime {
    now: Virtual,
    /// The sum of the weights of those that are active.
    weight: u64,
    /// By how much service they are behind, all together; in parts, and never less than nothing.
    lag: i128,
}

impl VirtualTime {
    pub(super) fn now(&self) -> Virtual {
        self.now
    }

    /// By how much service a tenant of this weight is behind: less than nothing if it is ahead.
    fn lag_of(&self, tenant: Virtual, weight: u32) -> i128 {
        (self.now.cast_signed() - tenant.cast_signed()) * i128::from(weight)
    }

    /// A tenant becomes active.
    pub(super) fn enter(&mut self, tenant: Virtual, weight: u32) {
        self.weight += u64::from(weight);
        self.lag += self.lag_of(tenant, weight);
        self.catch_up();
    }

    /// A tenant is no longer active.
    pub(super) fn leave(&mut self, tenant: Virtual, weight: u32) {
        self.weight -= u64::from(weight);
        self.lag -= self.lag_of(tenant, weight);
        self.catch_up();
    }

    /// An active tenant of this weight has been served for so long. Returns how far that takes it.
    pub(super) fn serve(&mut self, time: Micros, weight: u32) -> Virtual {
        let tenant = progress(time, weight);
        self.go_on((Virtual::from(time) * PARTS).div_ceil(self.sum()));
        self.lag -= tenant.cast_signed() * i128::from(weight);
        tenant
    }

    /// Goes on to the mean of those that are active, if it is behind that.
    fn catch_up(&mut self) {
        if self.lag < 0 && self.weight > 0 {
            self.go_on(self.lag.unsigned_abs().div_ceil(self.sum()));
        }
    }

    fn go_on(&mut self, by: Virtual) {
        self.now += by;
        self.lag += by.cast_signed() * i128::from(self.weight);
    }

    fn sum(&self) -> Virtual {
        Virtual::from(self.weight.max(1))
    }

    /// Whether these, and no others, are active.
    #[cfg(debug_assertions)]
    pub(super) fn is_that_of(&self, active: impl Iterator<Item = (Virtual, u32)>) -> bool {
        let sums = active.fold((0, 0), |(weights, lag), (tenant, weight)| {
            (weights + u64::from(weight), lag + self.lag_of(tenant, weight))
        });
        sums == (self.weight, self.lag) && self.lag >= 0
    }
}
