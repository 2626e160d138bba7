//! Numbers for tests that look random, the same for the same seed.

use crate::arbiter::Micros;

/// A generator good enough for delays.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0
    }

    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        (self.next() >> 33) % sides.max(1)
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.roll(100) < chance
    }

    /// A gap with this mean, as between independent arrivals.
    pub(crate) fn gap(&mut self, mean: Micros) -> Micros {
        let uniform = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        (-(1.0 - uniform).ln() * mean as f64) as Micros
    }
}
