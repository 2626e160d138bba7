//! The sizes in which GPU memory is lent, the kinds of memory that are not lent, and the spelling of sizes.

use alloc::format;
use alloc::string::String;

/// The unit of all GPU memory that is lent: the granularity of the driver's handles.
pub const GRANULE: u64 = 2 << 20;

/// An extent's size. A handle of the driver is mapped whole, and mapping costs per handle. So there are a few sizes, each about four
/// times the one before, which make up any multiple of 2 MiB in few pieces. One of them is the size that PyTorch asks for most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SizeClass(u8);

impl SizeClass {
    /// All classes, smallest first: 2, 8, 20, 32, 128 and 512 MiB.
    pub const ALL: [Self; 6] = [Self(0), Self(1), Self(2), Self(3), Self(4), Self(5)];
    /// Their sizes in units of 2 MiB.
    const GRANULES: [u64; 6] = [1, 4, 10, 16, 64, 256];

    /// Returns the size in bytes.
    pub const fn bytes(self) -> u64 {
        GRANULE * Self::GRANULES[self.0 as usize]
    }

    /// Returns the index in [`SizeClass::ALL`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the class at an index in [`SizeClass::ALL`].
    pub fn of_index(index: usize) -> Option<Self> {
        Self::ALL.get(index).copied()
    }

    /// Returns the largest class that is no larger than `bytes`; the smallest class if all are larger.
    pub fn within(bytes: u64) -> Self {
        *Self::ALL.iter().rev().find(|class| class.bytes() <= bytes).unwrap_or(&Self::ALL[0])
    }

    /// Returns the pieces that make up `bytes` (a multiple of 2 MiB; a rest is cut off), none larger than `largest`, largest first.
    pub fn cut(bytes: u64, largest: Self) -> impl Iterator<Item = Self> {
        let mut left = bytes;
        let mut at = largest;
        core::iter::from_fn(move || {
            while left < at.bytes() {
                at = Self(at.0.checked_sub(1)?);
            }
            left -= at.bytes();
            Some(at)
        })
    }
}

/// The reason why device memory of a program stays in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Unmanaged {
    /// Arrays and mipmapped arrays: they have no addresses.
    Array,
    /// Managed memory: the driver moves it.
    Managed,
    /// Handles that were exported in one piece: other processes have them mapped.
    Exported,
    /// Memory imported from another interface or process, which owns it.
    External,
    /// Allocations of graphs: the driver makes them when graphs run.
    Graph,
    /// Memory held by pools of the driver's own.
    Pool,
    /// Handles that could not be made from the arena.
    Other,
}

impl Unmanaged {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 7] =
        [Self::Array, Self::Managed, Self::Exported, Self::External, Self::Graph, Self::Pool, Self::Other];

    /// Returns the index in [`Unmanaged::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the word for users.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Managed => "managed",
            Self::Exported => "exported",
            Self::External => "external",
            Self::Graph => "graph",
            Self::Pool => "pool",
            Self::Other => "other",
        }
    }

    /// Returns the reason why Baton does not move it, for users.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Array => baton_messages::ARRAY_MEMORY,
            Self::Managed => baton_messages::MANAGED_MEMORY,
            Self::Exported => baton_messages::EXPORTED_MEMORY,
            Self::External => baton_messages::FOREIGN_MEMORY,
            Self::Graph => baton_messages::GRAPH_MEMORY,
            Self::Pool => baton_messages::POOL_MEMORY,
            Self::Other => baton_messages::OTHER_MEMORY,
        }
    }
}

/// A number of bytes for each kind, in the order of [`Unmanaged::ALL`].
pub type PerKind = [u64; Unmanaged::ALL.len()];

/// Returns a size for people to read: `1.5 GiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 6] = [(60, "EiB"), (50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match UNITS.iter().find(|(shift, _)| bytes >> shift != 0) {
        Some((shift, unit)) => {
            let number = format!("{:.1}", bytes as f64 / (1u64 << shift) as f64);
            format!("{} {unit}", number.strip_suffix(".0").unwrap_or(&number))
        }
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_pieces_of_a_size_add_up_to_it(granules in 0u64..100_000, largest in prop::sample::select(&SizeClass::ALL[..])) {
            let pieces: Vec<SizeClass> = SizeClass::cut(granules * GRANULE, largest).collect();
            prop_assert_eq!(pieces.iter().map(|piece| piece.bytes()).sum::<u64>(), granules * GRANULE);
            prop_assert!(pieces.is_sorted_by(|a, b| a >= b) && pieces.iter().all(|piece| *piece <= largest));
            for smaller in SizeClass::ALL.into_iter().filter(|class| *class < largest) {
                prop_assert!(pieces.iter().filter(|piece| **piece == smaller).count() < 4);
            }
        }
    }
    #[test]
    fn kinds_have_the_numbers_of_their_places() {
        assert!(Unmanaged::ALL.iter().enumerate().all(|(at, kind)| kind.index() == at));
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(size(3 << 29), "1.5 GiB");
        assert_eq!(size(2 << 20), "2 MiB");
        assert_eq!(size(7), "7 B");
        assert_eq!([size(0), size(1023), size(1024), size(u64::MAX)], ["0 B", "1023 B", "1 KiB", "16 EiB"]);
    }
}
