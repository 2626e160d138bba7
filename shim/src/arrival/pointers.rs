//! Scans memory for addresses of ours.

use core::ops::Range;

use baton_contract::cuda::CUdeviceptr;

use crate::memory::space::Space;

/// The number of halves of words that are checked at a time.
const RUN: usize = 512;
/// The size of a `CUtensorMap`.
pub(crate) const TENSOR_MAP: usize = 128;
/// The size of an address.
pub(crate) const WORD: usize = 8;
/// The most bytes in which words are scanned at every place: structures may be packed.
const PACKED: usize = 64 << 10;

/// Adds every word that is an address of ours: in large memory at multiples of four bytes.
pub(crate) fn add_window_words(bytes: &[u8], found: &mut Vec<CUdeviceptr>) {
    let (low, high) = Space::window();
    add_words_anywhere(bytes, low..high, found);
}

/// Adds every word that is an address in a range.
pub(super) fn add_words_anywhere(bytes: &[u8], ours: Range<u64>, found: &mut Vec<u64>) {
    let places = if bytes.len() < PACKED { 4 } else { 1 };
    for place in 0..places.min(bytes.len()) {
        add_words_within(&bytes[place..], ours.clone(), found);
    }
}

/// Adds the words at multiples of four bytes. There are millions of them, so a run is first checked for any half that could be the upper
/// half of an address: any processor compares four halves at a time.
fn add_words_within(bytes: &[u8], ours: Range<u64>, found: &mut Vec<u64>) {
    if ours.is_empty() {
        return;
    }
    let upper = |word: u64| (word >> 32) as u32;
    let (first, more) = (upper(ours.start), upper(ours.end - 1) - upper(ours.start));
    let may_be = |half: &[u8; 4]| u32::from_le_bytes(*half).wrapping_sub(first) <= more;
    let halves = bytes.as_chunks::<4>().0;
    for (at, run) in halves.chunks(RUN).enumerate() {
        if !run.iter().fold(false, |any, half| any | may_be(half)) {
            continue;
        }
        // The first half of the run belongs to the last one before.
        let from = (at * RUN).saturating_sub(1);
        let words = halves[from..at * RUN + run.len()].windows(2).map(|pair| {
            let [low, high] = [pair[0], pair[1]].map(u32::from_le_bytes).map(u64::from);
            low | high << 32
        });
        found.extend(words.filter(|word| ours.contains(word)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One word after the other.
    fn plainly(bytes: &[u8], ours: &Range<u64>) -> Vec<u64> {
        let word = |at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        (0..bytes.len().saturating_sub(7)).step_by(4).map(word).filter(|word| ours.contains(word)).collect()
    }

    proptest! {
        /// Addresses anywhere, also where runs meet, in a window that begins and ends in the middle of 4 GiB.
        #[test]
        fn every_address_is_found_once(
            size in 0..5 * RUN * 4,
            start in 1u64 << 40..1 << 44,
            window in 1u64..1 << 34,
            planted in prop::collection::vec((0..5 * RUN, -2i64..1 << 34), 0..20),
        ) {
            let mut bytes: Vec<u8> = (0..size).map(|at| (at * 31 % 251) as u8).collect();
            for (at, offset) in planted {
                if let Some(place) = bytes.get_mut(at * 4..at * 4 + 8) {
                    place.copy_from_slice(&start.wrapping_add_signed(offset).to_le_bytes());
                }
            }
            let ours = start..start + window;
            let mut found = Vec::new();
            add_words_within(&bytes, ours.clone(), &mut found);
            prop_assert_eq!(found, plainly(&bytes, &ours));
        }
    }

    #[test]
    fn without_a_window_nothing_is_ours() {
        let mut found = Vec::new();
        add_words_within(&[0; 64], Range { start: u64::MAX, end: 0 }, &mut found);
        add_words_within(&[0; 64], 0..0, &mut found);
        assert!(found.is_empty());
    }
}
