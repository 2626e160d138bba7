//! The page digest on the CPU: slower, and bit for bit the same as the GPU's.

use std::ops::Range;

use super::{PAGE, Page};
use crate::random;

/// The key that makes digests unpredictable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub [u64; 2]);

impl Key {
    /// Draws a new, unguessable key.
    pub fn draw() -> Self {
        Self([u64::from_ne_bytes(random::bytes()), u64::from_ne_bytes(random::bytes())])
    }

    fn words(self) -> [u32; 4] {
        let [low, high] = self.0;
        [low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32]
    }
}

/// Makes a unit's place part of it: odd, so that no two places are alike.
const PLACE: u32 = 0x9E37_79B1;
/// Philox-4x32's multipliers, and the steps of its keys.
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 8;

/// Mixes a unit, the `place`th of its page.
fn mix([c0, c1, c2, c3]: [u32; 4], place: u32, key: Key) -> [u32; 4] {
    let keys = key.words();
    let placed = keys[0].wrapping_add(place.wrapping_mul(PLACE));
    let start = [c0 ^ placed, c1, c2 ^ keys[2], c3];
    (0..ROUNDS).fold(start, |c, round| {
        let [a, b] = round_keys(keys, placed, round);
        let p = u64::from(c[0]) * u64::from(MULTIPLIERS[0]);
        let q = u64::from(c[2]) * u64::from(MULTIPLIERS[1]);
        [(q >> 32) as u32 ^ c[1] ^ a, q as u32, (p >> 32) as u32 ^ c[3] ^ b, p as u32]
    })
}

fn round_keys(keys: [u32; 4], placed: u32, round: u32) -> [u32; 2] {
    let half = if round.is_multiple_of(2) { [keys[0], keys[1]] } else { [keys[2], keys[3]] };
    let [a, b] = [0, 1].map(|at| half[at].wrapping_add(round.wrapping_mul(STEPS[at])));
    if round == ROUNDS / 2 { [placed, b] } else { [a, b] }
}

/// Returns the page as the GPU would find it for these contents: a multiple of 16 bytes, at most [`PAGE`].
pub fn of_page(page: &[u8], key: Key) -> Page {
    let mut digest = [0u64; 2];
    for (place, unit) in page.chunks_exact(16).enumerate() {
        let words = [0, 4, 8, 12].map(|at| u32::from_le_bytes(unit[at..at + 4].try_into().expect("four bytes")));
        let mixed = mix(words, place as u32, key);
        for (sum, pair) in digest.iter_mut().zip(mixed.chunks_exact(2)) {
            *sum = sum.wrapping_add(u64::from(pair[0]) | u64::from(pair[1]) << 32);
        }
    }
    Page { digest, zero: page.iter().all(|byte| *byte == 0) }
}

/// Returns the granules of the range that the page's words point to: sorted, each once.
pub fn granules_in(page: &[u8], range: &Range<u64>) -> Vec<u32> {
    let words = page.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    let pointers = words.filter(|word| range.contains(word));
    let mut granules: Vec<u32> = pointers.map(|word| ((word - range.start) / PAGE) as u32).collect();
    granules.sort_unstable();
    granules.dedup();
    granules
}

/// True if a page holds a word that looks like an address of the host: it lies within 4 GiB of such an address, and not in the range.
pub fn has_host_words(page: &[u8], range: &Range<u64>, host: &Range<u64>) -> bool {
    let near = (host.start >> 32)..=(host.end.wrapping_sub(1) >> 32);
    let mut words = page.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    !host.is_empty() && words.any(|word| near.contains(&(word >> 32)) && !range.contains(&word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    /// The mix's inverse, which exists only if it is a bijection.
    fn unmix(mixed: [u32; 4], place: u32, key: Key) -> [u32; 4] {
        let keys = key.words();
        let placed = keys[0].wrapping_add(place.wrapping_mul(PLACE));
        let inverses = MULTIPLIERS.map(|factor| {
            // Newton's method: each step doubles the number of right bits.
            (0..5).fold(factor, |x, _| x.wrapping_mul(2u32.wrapping_sub(factor.wrapping_mul(x))))
        });
        let c = (0..ROUNDS).rev().fold(mixed, |[c0, c1, c2, c3], round| {
            let [a, b] = round_keys(keys, placed, round);
            let (first, third) = (c3.wrapping_mul(inverses[0]), c1.wrapping_mul(inverses[1]));
            let high = |x: u32, at: usize| ((u64::from(x) * u64::from(MULTIPLIERS[at])) >> 32) as u32;
            [first, c0 ^ a ^ high(third, 1), third, c2 ^ b ^ high(first, 0)]
        });
        [c[0] ^ placed, c[1], c[2] ^ keys[2], c[3]]
    }

    const UNITS: usize = 24;

    fn key() -> impl Strategy<Value = Key> {
        any::<[u64; 2]>().prop_map(Key)
    }

    /// A few units of typical contents of memory: noise, floats, small numbers, one value over and over, zeros.
    fn contents() -> impl Strategy<Value = Vec<u8>> {
        let words = |word: BoxedStrategy<u32>| proptest::collection::vec(word, 4 * UNITS).boxed();
        prop_oneof![
            words(any::<u32>().boxed()),
            words((-2.0f32..2.0).prop_map(f32::to_bits).boxed()),
            words((0u32..100).boxed()),
            any::<u32>().prop_map(|word| vec![word; 4 * UNITS]),
            Just(vec![0; 4 * UNITS]),
        ]
        .prop_map(|words| words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }

    fn flipped(page: &[u8], bits: &[usize]) -> Vec<u8> {
        let mut page = page.to_vec();
        for bit in bits {
            page[bit / 8] ^= 1 << (bit % 8);
        }
        page
    }

    /// Two different bits of a page, of the kinds that a weak mix misses.
    fn two_bits() -> impl Strategy<Value = [usize; 2]> {
        let unit = || 0..UNITS;
        let same_unit =
            (unit(), 0..128usize, 1..128usize).prop_map(|(at, a, more)| [at * 128 + a, at * 128 + (a + more) % 128]);
        let anywhere = (0..UNITS * 128, 1..UNITS * 128).prop_map(|(a, more)| [a, (a + more) % (UNITS * 128)]);
        let signs =
            (0..UNITS * 4, 1..UNITS * 4).prop_map(|(a, more)| [a * 32 + 31, (a + more) % (UNITS * 4) * 32 + 31]);
        let same_bit =
            (unit(), 1..UNITS, 0..128usize).prop_map(|(a, more, bit)| [a * 128 + bit, (a + more) % UNITS * 128 + bit]);
        prop_oneof![same_unit, anywhere, signs, same_bit]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn no_flipped_bit_goes_unnoticed(page in contents(), key in key(), bit in 0..UNITS * 128) {
            prop_assert_ne!(of_page(&page, key).digest, of_page(&flipped(&page, &[bit]), key).digest);
        }

        #[test]
        fn no_pair_of_flipped_bits_goes_unnoticed(page in contents(), key in key(), bits in two_bits()) {
            let (before, after) = (of_page(&page, key).digest, of_page(&flipped(&page, &bits), key).digest);
            prop_assert_ne!(before, after);
            // Each half changes by itself.
            prop_assert!(before[0] != after[0] && before[1] != after[1]);
        }

        #[test]
        fn exchanged_units_do_not_go_unnoticed(page in contents(), key in key(), a in 0..UNITS, more in 1..UNITS) {
            let b = (a + more) % UNITS;
            let mut exchanged = page.clone();
            for byte in 0..16 {
                exchanged.swap(16 * a + byte, 16 * b + byte);
            }
            let same = exchanged == page;
            prop_assert_eq!(of_page(&page, key).digest == of_page(&exchanged, key).digest, same);
        }

        #[test]
        fn another_key_gives_another_digest(page in contents(), key in key(), bit in 0..128usize) {
            let mut other = key;
            other.0[bit / 64] ^= 1 << (bit % 64);
            prop_assert_ne!(of_page(&page, key).digest, of_page(&page, other).digest);
        }

        #[test]
        fn the_mix_loses_nothing(unit in any::<[u32; 4]>(), place in 0..131_072u32, key in key()) {
            prop_assert_eq!(unmix(mix(unit, place, key), place, key), unit);
        }

        #[test]
        fn a_page_is_zero_if_all_its_bits_are(bit in any::<Option<Index>>(), key in key()) {
            let zeros = vec![0; 16 * UNITS];
            let bits: Vec<usize> = bit.iter().map(|bit| bit.index(UNITS * 128)).collect();
            prop_assert_eq!(of_page(&flipped(&zeros, &bits), key).zero, bits.is_empty());
        }
    }

    #[test]
    fn every_bit_of_a_unit_changes_every_bit_of_the_mix_half_of_the_times() {
        const SAMPLES: u32 = 2000;
        let key = Key([0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210]);
        let noise = |n: u32| mix([n, 1, 2, 3], n, Key([4, 5]));
        type Kind = fn(u32, [u32; 4]) -> [u32; 4];
        let kinds: [Kind; 3] =
            [|_, noise| noise, |n, _| [n, 0, 0, 0], |_, noise| noise.map(|word| 0x3F80_0000 | word >> 16)];
        for kind in kinds {
            let mut changed = vec![[0u32; 128]; 128];
            for n in 0..SAMPLES {
                let unit = kind(n, noise(n));
                let before = mix(unit, n, key);
                for (bit, changed) in changed.iter_mut().enumerate() {
                    let mut flipped = unit;
                    flipped[bit / 32] ^= 1 << (bit % 32);
                    let after = mix(flipped, n, key);
                    for (out, count) in changed.iter_mut().enumerate() {
                        *count += (before[out / 32] ^ after[out / 32]) >> (out % 32) & 1;
                    }
                }
            }
            for (bit, changed) in changed.iter().enumerate() {
                for (out, count) in changed.iter().enumerate() {
                    let share = f64::from(*count) / f64::from(SAMPLES);
                    assert!((0.4..=0.6).contains(&share), "bit {bit} changes bit {out} with probability {share}");
                }
            }
        }
    }

    #[test]
    fn drawn_keys_differ() {
        assert_ne!(Key::draw(), Key::draw());
    }

    #[test]
    fn words_that_point_into_the_range_are_found_where_they_are_aligned() {
        let range = 0x7000..0x7000 + 4 * PAGE;
        let mut page = vec![0; 64];
        page[8..16].copy_from_slice(&(range.end - 1).to_le_bytes());
        page[20..28].copy_from_slice(&(range.start + PAGE).to_le_bytes());
        page[32..40].copy_from_slice(&range.start.to_le_bytes());
        page[40..48].copy_from_slice(&(range.start + PAGE - 1).to_le_bytes());
        page[48..56].copy_from_slice(&range.end.to_le_bytes());
        assert_eq!(granules_in(&page, &range), [0, 3]);
    }
}
