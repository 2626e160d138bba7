//! A user's choice of a tenant's scheduling.

use crate::class::Class;

/// The largest weight.
pub const MAX_WEIGHT: u32 = 1000;
/// The longest target of a request, in microseconds: an hour.
pub const MAX_SLO_MICROS: u64 = 3_600_000_000;

/// A tenant's scheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// The urgency of its work.
    pub class: Class,
    /// Its share of the GPU's time among its class, in proportion: 1 to [`MAX_WEIGHT`].
    pub weight: u32,
    /// Target for its requests, in microseconds, from the first call that waits to the end of the work; 0 if it has none.
    pub slo_micros: u64,
}

impl Default for Scheduling {
    fn default() -> Self {
        Self { class: Class::default(), weight: 1, slo_micros: 0 }
    }
}

impl From<Class> for Scheduling {
    fn from(class: Class) -> Self {
        Self { class, ..Self::default() }
    }
}

impl Scheduling {
    /// Checks that the values are possible together.
    ///
    /// # Errors
    ///
    /// The reason, in a user's words.
    pub fn check(&self) -> Result<(), baton_messages::Message> {
        match self {
            Self { weight, .. } if !(1..=MAX_WEIGHT).contains(weight) => Err(baton_messages::no_such_weight()),
            Self { slo_micros, .. } if *slo_micros > MAX_SLO_MICROS => Err(baton_messages::target_is_too_long()),
            Self { class, slo_micros, .. } if *slo_micros > 0 && *class != Class::Latency => {
                Err(baton_messages::target_without_latency())
            }
            Self { class: Class::Latency, weight, .. } if *weight != 1 => Err(baton_messages::weight_with_latency()),
            _ => Ok(()),
        }
    }

    /// Returns these with a user's changes. A new class drops a weight or a target that only the old class can have.
    pub fn changed(self, change: Change) -> Self {
        let class = change.class.unwrap_or(self.class);
        let (mut weight, mut slo_micros) = (self.weight, self.slo_micros);
        if class == Class::Latency {
            weight = 1
        } else {
            slo_micros = 0
        }
        Self { class, weight: change.weight.unwrap_or(weight), slo_micros: change.slo_micros.unwrap_or(slo_micros) }
    }
}

/// Changes of a tenant while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Another class.
    pub class: Option<Class>,
    /// Another weight.
    pub weight: Option<u32>,
    /// Another target; 0 for none from here on.
    pub slo_micros: Option<u64>,
    /// True to keep it off the GPU until a later change.
    pub suspended: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_class_takes_along_what_only_the_old_one_can_have() {
        let served = Scheduling { class: Class::Latency, weight: 1, slo_micros: 20_000 };
        let to = |class| Change { class: Some(class), ..Change::default() };
        let trained = served.changed(to(Class::Batch));
        assert_eq!(trained, Scheduling { class: Class::Batch, weight: 1, slo_micros: 0 });
        let heavy = trained.changed(Change { weight: Some(3), ..Change::default() });
        assert_eq!((heavy.weight, heavy.changed(to(Class::Normal)).weight), (3, 3));
        assert_eq!(heavy.changed(to(Class::Latency)), Scheduling { class: Class::Latency, weight: 1, slo_micros: 0 });
        assert!([served, trained, heavy].iter().all(|scheduling| scheduling.check().is_ok()));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let usual = Scheduling::default();
        for wrong in [
            Scheduling { weight: 0, ..usual },
            Scheduling { weight: MAX_WEIGHT + 1, ..usual },
            Scheduling { slo_micros: 1, ..usual },
            Scheduling { class: Class::Latency, weight: 2, ..usual },
            Scheduling { class: Class::Latency, slo_micros: MAX_SLO_MICROS + 1, ..usual },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
