//! Digests of whole pages of memory, and the addresses that they point to.
//!
//! The kernel's own documentation describes the computation; this is for one CPU. Numbers of 32 bits lie in words of 64,
//! so that the CPU multiplies several at once.

use std::collections::HashSet;

use super::fused::fused;
use super::machine::{Args, Machine};
use crate::errors::{Outcome, Status};

const PAGE: usize = 2 << 20;
const UNIT: usize = 16;
/// The number of words of a page that are read at once: few enough to stay in the CPU's first cache for all questions about them.
const PIECE: usize = 2 << 10;
/// Pieces of a page.
const PIECES: usize = PAGE / size_of::<u64>() / PIECE;
/// Units that are mixed beside each other.
const LANES: usize = 4;
/// Words that are looked through for pointers at once.
const GLANCE: usize = 1 << 10;
const GRANULE_BITS: u32 = 21;
const LOW: u64 = 0xFFFF_FFFF;
/// A slot of the table without a pair.
const FREE: u64 = u64::MAX;

/// The number that is added for each place, the two multipliers, and the numbers that are added for each round.
const WEYL: u64 = 0x9E37_79B1;
const TIMES: (u64, u64) = (0xD251_1F53, 0xCD9E_8D57);
const BUMPS: (u64, u64) = (0x9E37_79B9, 0xBB67_AE85);
const ROUNDS: usize = 8;

/// One operation for each unit, as `add` counts one for each 12 bytes: both run at the memory's speed.
pub(super) fn operations(args: &Args<'_>) -> f64 {
    f64::from(args.u32(8)) * (PAGE / UNIT) as f64
}

/// Adds digests to `digests[..count]`, and what points to where to `pairs`.
pub(super) fn pages(args: &Args<'_>, machine: &dyn Machine) -> Outcome {
    let (addresses, count) = (args.pointer(0), args.u32(8) as usize);
    let schedule = Schedule::new(args.pointer(16), args.pointer(24));
    let (start, bytes, digests) = (args.pointer(32), args.pointer(40), args.pointer(48));
    let host = (args.u32(92), args.u32(96));
    let mut pairs = Pairs::new(args);
    // Pieces of zeros are many, and alike where they lie at the same place.
    let mut zeros = [None; PIECES];
    let mut words = vec![0u64; PIECE];
    for page in 0..count {
        let mut address = [0u64];
        machine.memory().read(addresses.wrapping_add(page as u64 * 8), &mut address)?;
        if !address[0].is_multiple_of(UNIT as u64) {
            return Err(Status::MISALIGNED_ADDRESS);
        }
        let at = digests.wrapping_add(page as u64 * 24);
        let mut digest = [0u64; 3];
        machine.memory().read(at, &mut digest)?;
        let mut pointed_to = Vec::new();
        for (piece, zeros) in zeros.iter_mut().enumerate() {
            let offset = piece * size_of_val(&*words);
            machine.memory().read(address[0].wrapping_add(offset as u64), &mut words)?;
            let first = (offset / UNIT) as u64;
            let any = words.iter().fold(0, |any, word| any | word);
            let sums = if any == 0 {
                *zeros.get_or_insert_with(|| schedule.sums(&words, first))
            } else {
                schedule.sums(&words, first)
            };
            digest[0] = digest[0].wrapping_add(sums[0]);
            digest[1] = digest[1].wrapping_add(sums[1]);
            digest[2] |= u64::from(any != 0) | u64::from(has_host_words(&words, (start, bytes), host)) << 1;
            pointed_to.append(&mut granules(&words, start, bytes));
        }
        machine.memory().write(at, &digest)?;
        pointed_to.sort_unstable();
        pointed_to.dedup();
        for granule in pointed_to {
            pairs.add((page as u64) << 32 | granule, machine)?;
        }
    }
    pairs.finish(machine)
}

/// All numbers that depend on the key alone.
struct Schedule {
    place: u64,
    other: u64,
    rounds: [(u64, u64); ROUNDS],
}

impl Schedule {
    fn new(low: u64, high: u64) -> Schedule {
        let mut rounds = [(0, 0); ROUNDS];
        for (round, keys) in rounds.iter_mut().enumerate() {
            let (half, round) = (if round % 2 == 0 { low } else { high }, round as u64);
            *keys = (((half & LOW) + round * BUMPS.0) & LOW, ((half >> 32) + round * BUMPS.1) & LOW);
        }
        Schedule { place: low & LOW, other: high & LOW, rounds }
    }

    /// The sums over units that lie side by side from a place on.
    fn sums(&self, words: &[u64], first: u64) -> [u64; 2] {
        fused(
            #[inline(always)]
            || {
                let (mut low, mut high) = ([0u64; LANES], [0u64; LANES]);
                for (group, units) in words.chunks_exact(2 * LANES).enumerate() {
                    let mixed = self.mix(units, first + (group * LANES) as u64);
                    for lane in 0..LANES {
                        low[lane] = low[lane].wrapping_add(mixed[0][lane]);
                        high[lane] = high[lane].wrapping_add(mixed[1][lane]);
                    }
                }
                [low, high].map(|sums| sums.iter().fold(0u64, |sum, lane| sum.wrapping_add(*lane)))
            },
        )
    }

    /// Mixes units that lie side by side from a place on: their lower and their upper halves.
    #[inline(always)]
    fn mix(&self, units: &[u64], first: u64) -> [[u64; LANES]; 2] {
        let place = lanes(|lane| first.wrapping_add(lane as u64).wrapping_mul(WEYL).wrapping_add(self.place) & LOW);
        // Of these words only the lower halves count.
        let mut c = [
            lanes(|lane| units[2 * lane] ^ place[lane]),
            lanes(|lane| units[2 * lane] >> 32),
            lanes(|lane| units[2 * lane + 1] ^ self.other),
            lanes(|lane| units[2 * lane + 1] >> 32),
        ];
        let mut round = |a: [u64; LANES], b: u64| {
            let p = lanes(|lane| (c[0][lane] & LOW).wrapping_mul(TIMES.0));
            let q = lanes(|lane| (c[2][lane] & LOW).wrapping_mul(TIMES.1));
            let even = lanes(|lane| q[lane] >> 32 ^ c[1][lane] ^ a[lane]);
            let odd = lanes(|lane| p[lane] >> 32 ^ c[3][lane] ^ b);
            c = [even, q, odd, p];
        };
        // Written out: of a loop the compiler makes one number at a time.
        let k = &self.rounds;
        round([k[0].0; LANES], k[0].1);
        round([k[1].0; LANES], k[1].1);
        round([k[2].0; LANES], k[2].1);
        round([k[3].0; LANES], k[3].1);
        // The place comes in again.
        round(place, k[4].1);
        round([k[5].0; LANES], k[5].1);
        round([k[6].0; LANES], k[6].1);
        round([k[7].0; LANES], k[7].1);
        [lanes(|lane| c[0][lane] & LOW | c[1][lane] << 32), lanes(|lane| c[2][lane] & LOW | c[3][lane] << 32)]
    }
}

/// A number for each lane.
#[inline(always)]
fn lanes(number: impl FnMut(usize) -> u64) -> [u64; LANES] {
    std::array::from_fn(number)
}

/// True if a word has an upper half of so many from the first on, and is no address in the range.
fn has_host_words(words: &[u64], (start, bytes): (u64, u64), (first, span): (u32, u32)) -> bool {
    let upper = |word: u64| (word >> 32) as u32;
    let is_host = |word: &u64| upper(*word).wrapping_sub(first) < span && word.wrapping_sub(start) >= bytes;
    span > 0 && words.iter().any(is_host)
}

/// The granules that words point to, each once.
fn granules(words: &[u64], start: u64, bytes: u64) -> Vec<u64> {
    let mut found = Vec::new();
    for piece in words.chunks(GLANCE) {
        let hits = fused(
            #[inline(always)]
            || piece.iter().fold(0u64, |hits, word| hits | u64::from(word.wrapping_sub(start) < bytes)),
        );
        if hits > 0 {
            let offsets = piece.iter().map(|word| word.wrapping_sub(start)).filter(|offset| *offset < bytes);
            // Most words of a piece point to the same few places.
            let mut here: Vec<u64> = offsets.map(|offset| offset >> GRANULE_BITS).collect();
            here.sort_unstable();
            here.dedup();
            found.append(&mut here);
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The list of pairs, and the table of those that are in it.
struct Pairs {
    found: u64,
    list: u64,
    room: u32,
    table: u64,
    slots: u32,
    /// The table's slots and the pairs in them. Not looked at before there is a pair.
    known: Option<(Vec<u64>, HashSet<u64>)>,
    fresh: Vec<u64>,
}

impl Pairs {
    fn new(args: &Args<'_>) -> Pairs {
        Pairs {
            found: args.pointer(56),
            list: args.pointer(64),
            room: args.u32(72),
            table: args.pointer(80),
            slots: args.u32(88),
            known: None,
            fresh: Vec::new(),
        }
    }

    fn add(&mut self, pair: u64, machine: &dyn Machine) -> Outcome {
        // With more than there is room for, which they are does not matter any more.
        if self.fresh.len() > self.room as usize {
            return Ok(());
        }
        if self.known.is_none() {
            let mut slots = vec![0; self.slots as usize];
            machine.memory().read(self.table, &mut slots)?;
            let known = slots.iter().copied().filter(|slot| *slot != FREE).collect();
            self.known = Some((slots, known));
        }
        if self.known.as_mut().is_some_and(|(_, known)| known.insert(pair)) {
            self.fresh.push(pair);
        }
        Ok(())
    }

    /// Writes down what was added.
    fn finish(self, machine: &dyn Machine) -> Outcome {
        let Some((mut slots, _)) = self.known else { return Ok(()) };
        let mut head = [0u32; 2];
        machine.memory().read(self.found, &mut head)?;
        let first = head[0].min(self.room) as usize;
        let listed = self.fresh.len().min(self.room as usize - first);
        machine.memory().write(self.list.wrapping_add(first as u64 * 8), &self.fresh[..listed])?;
        head[0] = head[0].wrapping_add(self.fresh.len() as u32);
        let mut free = slots.iter_mut().filter(|slot| **slot == FREE);
        let kept = self.fresh.iter().zip(&mut free).map(|(pair, slot)| *slot = *pair).count();
        if listed < self.fresh.len() || kept < self.fresh.len() {
            head[1] = 1;
        }
        machine.memory().write(self.table, &slots)?;
        machine.memory().write(self.found, &head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documentation's lines as they stand, one unit at a time.
    fn by_the_book(words: &[u64], k: [u32; 4]) -> [u64; 2] {
        let mut sums = [0u64; 2];
        for (i, unit) in words.chunks_exact(2).enumerate() {
            let t = k[0].wrapping_add((i as u32).wrapping_mul(0x9E37_79B1));
            let mut c = [unit[0] as u32 ^ t, (unit[0] >> 32) as u32, unit[1] as u32 ^ k[2], (unit[1] >> 32) as u32];
            for r in 0..8u32 {
                let (ka, kb) = if r % 2 == 0 { (k[0], k[1]) } else { (k[2], k[3]) };
                let a = if r == 4 { t } else { ka.wrapping_add(r.wrapping_mul(0x9E37_79B9)) };
                let b = kb.wrapping_add(r.wrapping_mul(0xBB67_AE85));
                let (p, q) = (u64::from(c[0]) * 0xD251_1F53, u64::from(c[2]) * 0xCD9E_8D57);
                c = [(q >> 32) as u32 ^ c[1] ^ a, q as u32, (p >> 32) as u32 ^ c[3] ^ b, p as u32];
            }
            sums[0] = sums[0].wrapping_add(u64::from(c[0]) | u64::from(c[1]) << 32);
            sums[1] = sums[1].wrapping_add(u64::from(c[2]) | u64::from(c[3]) << 32);
        }
        sums
    }

    fn some_words(count: usize) -> Vec<u64> {
        (1..=count as u64).map(|i| i.wrapping_mul(0xFF51_AFD7_ED55_8CCD) ^ i << 40).collect()
    }

    #[test]
    fn many_units_at_once_sum_to_the_same() {
        for key in [[0; 4], [u32::MAX; 4], [1, 0x8000_0000, 0xDEAD_BEEF, 77]] {
            let schedule =
                Schedule::new(u64::from(key[0]) | u64::from(key[1]) << 32, u64::from(key[2]) | u64::from(key[3]) << 32);
            let words = some_words(16 * LANES);
            assert_eq!(schedule.sums(&words, 0), by_the_book(&words, key));
            // In two parts, the second one from its place on.
            let (front, back) = words.split_at(2 * LANES);
            let parts = [schedule.sums(front, 0), schedule.sums(back, LANES as u64)];
            let both = [0, 1].map(|half| parts[0][half].wrapping_add(parts[1][half]));
            assert_eq!(both, by_the_book(&words, key));
        }
    }

    #[test]
    fn only_words_inside_the_range_are_pointers() {
        let start = 0x7F00_0000_0000 + 5;
        let bytes = 8 << GRANULE_BITS;
        let mut words = some_words(3 * GLANCE);
        words[7] = start - 1;
        words[8] = start + bytes;
        assert!(granules(&words, start, bytes).is_empty());
        words[9] = start + bytes - 1;
        words[2 * GLANCE] = start;
        words[2 * GLANCE + 5] = start + (1 << GRANULE_BITS) - 1;
        assert_eq!(granules(&words, start, bytes), [0, 7]);
        assert!(granules(&words, start, 0).is_empty());
    }
}
