//! How many extents or frames of each size class: what is missing, what is on the way.

use baton_contract::memory::SizeClass;

/// A number for each size class, in the order of [`SizeClass::ALL`].
pub type PerClass = [usize; SizeClass::ALL.len()];

/// What so many of each class take, in bytes.
pub fn bytes_of(counts: &PerClass) -> u64 {
    SizeClass::ALL.iter().map(|class| class.bytes() * counts[class.index()] as u64).sum()
}

/// Small ones that make up at least so many bytes.
pub fn at_least(bytes: u64) -> PerClass {
    let mut counts = PerClass::default();
    counts[0] = bytes.div_ceil(SizeClass::ALL[0].bytes()) as usize;
    counts
}

/// So many of this class come: so many less are missing, of their class or else in bytes.
pub fn subtract(missing: &mut PerClass, class: SizeClass, count: usize) {
    let same = &mut missing[class.index()];
    let of_class = count.min(*same);
    *same -= of_class;
    for _ in of_class..count {
        if !subtract_bytes(missing, class.bytes()) {
            return;
        }
    }
}

/// Says whether anything was missing.
fn subtract_bytes(missing: &mut PerClass, mut bytes: u64) -> bool {
    let before = bytes;
    // The largest first: what is left over is wanted in small pieces.
    for other in SizeClass::ALL.into_iter().rev() {
        let count = &mut missing[other.index()];
        let covered = (bytes / other.bytes()).min(*count as u64);
        *count -= covered as usize;
        bytes -= covered * other.bytes();
    }
    if bytes > 0
        && let Some(larger) = SizeClass::ALL.into_iter().find(|other| missing[other.index()] > 0)
    {
        // Only larger ones are still missing: one of those becomes the rest of it.
        missing[larger.index()] -= 1;
        for piece in SizeClass::cut(larger.bytes() - bytes, larger) {
            missing[piece.index()] += 1;
        }
        return true;
    }
    bytes < before
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_comes_is_subtracted_from_what_is_missing(
            missing in prop::array::uniform6(0usize..4),
            coming in prop::collection::vec((prop::sample::select(&SizeClass::ALL[..]), 1usize..4), 0..20),
        ) {
            let mut left: PerClass = missing;
            for (class, count) in coming {
                let before = bytes_of(&left);
                subtract(&mut left, class, count);
                let all = class.bytes() * count as u64;
                prop_assert_eq!(bytes_of(&left), before.saturating_sub(all), "{:?} {:?} {}", missing, class, count);
            }
        }
    }
}
