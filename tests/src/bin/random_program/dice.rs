//! Chance that is the same in every run, and the digest of what comes of it.

/// A row of numbers that depends on its start alone (splitmix64).
#[derive(Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64, lane: u64) -> Self {
        let mut dice = Self(seed.wrapping_mul(0xA076_1D64_78BD_642F) ^ lane.wrapping_mul(0xE703_7ED1_A0B4_28DB));
        dice.next();
        dice
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// A number below `sides`, which is not 0.
    pub(crate) fn roll(&mut self, sides: usize) -> usize {
        (self.next() % sides as u64) as usize
    }

    /// True once in `sides` times.
    pub(crate) fn once_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }

    /// From `low` to `high`, small ones as often as large ones.
    pub(crate) fn size(&mut self, low: usize, high: usize) -> usize {
        if high <= low {
            return high;
        }
        let doublings = (high / low.max(1)).max(1).ilog2() as usize + 1;
        let base = low.max(1) << self.roll(doublings);
        (base + self.roll(base)).min(high)
    }

    /// Any of a list that is not empty.
    pub(crate) fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.roll(list.len())]
    }
}

/// A running digest: everything that was added counts, and its place.
#[derive(Clone, Copy)]
pub(crate) struct Digest(pub(crate) u64);

impl Digest {
    pub(crate) const START: Self = Self(0xCBF2_9CE4_8422_2325);

    pub(crate) fn word(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9FB2_1C65_1E98_DF25);
        self.0 = mixed ^ (mixed >> 29);
    }

    /// Adds bytes; the last ones as a word that is filled up with zeros.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_ne_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_ne_bytes(last));
    }
}
