//! Fairness compares the progress of each tenant with the progress of its class.
//!
//! A tenant's **virtual time** advances with the service that it gets, the slower the larger its weight. A class's virtual
//! time advances with the service that any of its tenants gets, divided by the sum of the weights of its active tenants:
//! as fast as each of them would advance if all were served at once. It is the virtual time of EEVDF (Stoica and Abdel-Wahab,
//! "Earliest Eligible Virtual Deadline First", 1995, equation 5). The waiting tenant with the least virtual time
//! goes first, as in start-time fair queueing (Goyal, Vin and Cheng, 1996) and in Linux's CFS.
//!
//! **A tenant that becomes active** starts from the class's virtual time, not from the least of the active tenants: those would
//! never get ahead of programs that keep coming. A tenant whose own virtual time is later keeps it. After a short absence, a tenant is
//! behind the class by the service that it was owed when it stopped, or by one quantum of service if that is more, so that a tenant
//! that often has a little to do goes before those that always have. It cannot starve them, because all its service advances it.
//!
//! **A tenant that stops being active** while it is behind has left its service to the others. The class's virtual time is never behind
//! the mean of the active tenants, so it advances as far as that needs. A tenant that stops while it is ahead has taken
//! service from the others: nothing changes, so that they are behind, and served before newcomers, until they have it
//! back. So a tenant that leaves and comes back under another number gains nothing.

use super::Micros;

/// A point in virtual time: service of a tenant of weight 1, in parts of a microsecond.
pub(super) type Virtual = u128;

/// Parts of a microsecond: enough that a microsecond divided among ten thousand tenants of the largest weight is not zero.
const PARTS: Virtual = 1 << 30;

/// Converts service to virtual time, for a tenant of this weight.
pub(super) fn progress(service: Micros, weight: u32) -> Virtual {
    Virtual::from(service) * PARTS / Virtual::from(weight.max(1))
}

/// Converts virtual time to service, for a tenant of this weight.
pub(super) fn service(progress: Virtual, weight: u32) -> Micros {
    Micros::try_from(progress * Virtual::from(weight) / PARTS).unwrap_or(Micros::MAX)
}

/// The virtual time of one class.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct VirtualTime {
    now: Virtual,
    /// The sum of the weights of the active tenants.
    weight: u64,
    /// The service by which they are behind, all together; in parts, and never negative.
    lag: i128,
}

impl VirtualTime {
    pub(super) fn now(&self) -> Virtual {
        self.now
    }

    /// The service by which a tenant of this weight is behind: negative if it is ahead.
    fn lag_of(&self, tenant: Virtual, weight: u32) -> i128 {
        (self.now.cast_signed() - tenant.cast_signed()) * i128::from(weight)
    }

    /// Enters a tenant that becomes active.
    pub(super) fn enter(&mut self, tenant: Virtual, weight: u32) {
        self.weight += u64::from(weight);
        self.lag += self.lag_of(tenant, weight);
        self.catch_up();
    }

    /// Removes a tenant that is no longer active.
    pub(super) fn leave(&mut self, tenant: Virtual, weight: u32) {
        self.weight -= u64::from(weight);
        self.lag -= self.lag_of(tenant, weight);
        self.catch_up();
    }

    /// Counts the service of an active tenant of this weight. Returns its progress by that.
    pub(super) fn serve(&mut self, time: Micros, weight: u32) -> Virtual {
        let tenant = progress(time, weight);
        self.go_on((Virtual::from(time) * PARTS).div_ceil(self.sum()));
        self.lag -= tenant.cast_signed() * i128::from(weight);
        tenant
    }

    /// Advances to the mean of the active tenants, if it is behind that.
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

    /// True if these tenants, and no others, are active.
    #[cfg(debug_assertions)]
    pub(super) fn is_that_of(&self, active: impl Iterator<Item = (Virtual, u32)>) -> bool {
        let sums = active.fold((0, 0), |(weights, lag), (tenant, weight)| {
            (weights + u64::from(weight), lag + self.lag_of(tenant, weight))
        });
        sums == (self.weight, self.lag) && self.lag >= 0
    }
}
