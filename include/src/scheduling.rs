//! What a user says about how a tenant is to be scheduled.

use crate::class::Class;

/// The largest weight.
pub const MAX_WEIGHT: u32 = 1000;
/// The longest target of a request, in microseconds: an hour.
pub const MAX_SLO_MICROS: u64 = 3_600_000_000;

/// How a tenant is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// How urgent its work is.
    pub class: Class,
    /// Its share of the GPU's time among its class, in proportion: 1 to [`MAX_WEIGHT`].
    pub weight: u32,
    /// How long its requests may take, in microseconds, from the first call that waits to the end of the work; 0 if it
    /// has no such target.
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
    /// Why these cannot be.
    ///
    /// # Errors
    ///
    /// In a user's words.
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

    /// These, with what a user wants to be otherwise. Another class takes a weight or a target with it that only the old
    /// one can have.
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

/// What is to be otherwise about a tenant, while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Another class.
    pub class: Option<Class>,
    /// Another weight.
    pub weight: Option<u32>,
    /// Another target; 0 for none from here on.
    pub slo_micros: Option<u64>,
    /// Whether it is kept off the GPU until it is said otherwise.
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
