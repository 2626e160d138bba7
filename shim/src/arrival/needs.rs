//! The memory that a call needs before it goes to the driver.
//!
//! A fault on the GPU ends a context, and cannot be repaired. So a call may run while memory is on its way only if all memory that it can
//! access is known when it is made:
//!
//! - **The memory that it names**: addresses in its arguments, and the words of a kernel's parameters that are addresses of ours.
//! - **The memory that those lead to**: the coordinator has scanned all memory for pointers while it could not be written.
//! - **The data that it brings** to the device ([`super::brings`]): a copy's bytes, a fill's value.
//!
//! A call that does not show one of these in full is **opaque**: a copy from pinned memory into a stream that is not idle, because the
//! program may write that memory until the stream reaches the copy; a kernel that reads host memory, which may change until it has ended;
//! a copy within the device that takes words apart, which may become any address. The work of an opaque call waits for all memory: behind
//! a word in its stream where that is possible ([`super::ahead`]), else its thread waits. So unseen bytes come to the device only when all
//! memory is there, and even a kernel that was running before can do no harm with them.

use baton_contract::cuda::CUdeviceptr;

use crate::memory::space::Space;

/// The memory that a call needs.
#[derive(Clone, Debug)]
pub(crate) enum Needs {
    /// No memory.
    Nothing,
    /// All memory: for calls that cannot be read.
    Everything,
    /// The memory that the call has shown.
    These(Named),
}

/// The memory that a call names, and the data that it brings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    /// Addresses whose allocations are needed, with the memory that they lead to.
    pub(crate) addresses: Vec<CUdeviceptr>,
    /// The addresses in a kernel's parameters: one that lies in no allocation may mean those after it, because kernels add to it.
    pub(crate) parameters: Vec<CUdeviceptr>,
    /// Possible parts of addresses.
    pub(crate) parts: Vec<Part>,
    /// The reason why some of it was not shown.
    pub(crate) opaque: Option<Opaque>,
    /// The driver checks none of the addresses: all of the memory may arrive after the call.
    pub(crate) is_unchecked: bool,
}

/// The reason why a call has not shown everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opaque {
    LateCopy,
    LongCopy,
    HostWords,
    SplitWords,
    Elsewhere,
    Parameters,
    HostParameter,
    Node,
}

impl Opaque {
    /// The call's action, for the user.
    pub(super) fn why(self) -> &'static str {
        match self {
            Self::LateCopy => baton_messages::COPIES_UNFINISHED_MEMORY,
            Self::LongCopy => baton_messages::COPIES_MUCH_MEMORY,
            Self::HostWords => baton_messages::COPIES_UNREADABLE_MEMORY,
            Self::SplitWords => baton_messages::COPIES_PARTS_OF_WORDS,
            Self::Elsewhere => baton_messages::COPIES_FOREIGN_MEMORY,
            Self::Parameters => baton_messages::LAUNCHES_AN_UNKNOWN_KERNEL,
            Self::HostParameter => baton_messages::GIVES_A_HOST_ADDRESS,
            Self::Node => baton_messages::LAUNCHES_AN_UNKNOWN_GRAPH,
        }
    }
}

/// Some bytes of a word that may become an address: the others are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part {
    /// All bits of the known bytes.
    mask: u64,
    /// The known bytes; zero elsewhere.
    value: u64,
}

impl From<Vec<CUdeviceptr>> for Named {
    fn from(addresses: Vec<CUdeviceptr>) -> Self {
        Self { addresses, ..Self::default() }
    }
}

impl Needs {
    /// The allocation at an address, and the memory that it leads to.
    pub(crate) fn at(address: CUdeviceptr) -> Self {
        Self::These(vec![address].into())
    }

    /// True if a call may concern this memory.
    pub(super) fn may_be_of(&self, space: &Space) -> bool {
        let is_its = |address: &CUdeviceptr| space.may_have(*address);
        match self {
            Self::Nothing => false,
            Self::Everything => true,
            Self::These(named) => named.addresses.iter().chain(&named.parameters).any(is_its),
        }
    }
}

impl Named {
    pub(super) fn add(&mut self, other: Self) {
        self.addresses.extend(other.addresses);
        self.parameters.extend(other.parameters);
        self.parts.extend(other.parts);
        self.opaque = self.opaque.or(other.opaque);
        self.is_unchecked &= other.is_unchecked;
        self.settle();
    }

    /// Marks the call as opaque for this reason, if `is_so`.
    pub(super) fn hide(&mut self, is_so: bool, why: Opaque) {
        self.opaque = self.opaque.or(is_so.then_some(why));
    }

    /// Removes duplicates.
    pub(super) fn settle(&mut self) {
        for list in [&mut self.addresses, &mut self.parameters] {
            list.sort_unstable();
            list.dedup();
        }
        self.parts.sort_unstable();
        self.parts.dedup();
    }

    /// Adds a word that is brought to the device, of which only these bytes are known, from the `first` on.
    pub(super) fn add_part(&mut self, first: usize, bytes: &[u8]) {
        if leads_where_it_led(first as u64, bytes.len()) {
            return;
        }
        let (start, end) = Space::window();
        let part = Part::new(first, bytes);
        if part.lies_between(start, end) {
            self.parts.push(part);
        }
    }
}

/// True if this many bytes, brought to an address, leave every word as it was: an address in the same allocation, or none. That holds for a
/// word's lowest byte, because allocations begin and end at multiples of 256.
pub(super) fn leads_where_it_led(to: CUdeviceptr, bytes: usize) -> bool {
    bytes == 0 || bytes == 1 && to.is_multiple_of(size_of::<u64>() as u64)
}

impl Part {
    pub(super) fn new(first: usize, bytes: &[u8]) -> Self {
        let (mut mask, mut value) = ([0; 8], [0; 8]);
        for (at, byte) in (first..8).zip(bytes) {
            (mask[at], value[at]) = (0xFF, *byte);
        }
        Self { mask: u64::from_le_bytes(mask), value: u64::from_le_bytes(value) }
    }

    /// True if an address from `start` up to and with `end` has these bytes.
    pub(super) fn lies_between(&self, start: u64, end: u64) -> bool {
        self.next(start).is_some_and(|first| first <= end)
    }

    /// The lowest address from `start` on that has these bytes.
    fn next(&self, start: u64) -> Option<u64> {
        let near = start & !self.mask | self.value;
        let differing = near ^ start;
        if differing == 0 {
            return Some(start);
        }
        // Below the highest bit that differs, unknown bits may have any value.
        let below = u64::MAX >> differing.leading_zeros();
        if near > start {
            return Some(near & !(below & !self.mask));
        }
        let above = (start | self.mask | below).checked_add(1)?;
        Some(above & !self.mask & !below | self.value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_part_of_an_address_may_be_one_wherever_the_rest_allows() {
        // The upper half of addresses from 0xA_0000_0000 on, and the lower half of some.
        let upper = Part::new(4, &0xAu32.to_le_bytes());
        assert!(upper.lies_between(0xA_0000_0000, 0xA_0020_0000) && upper.lies_between(0x9_FFFF_0000, 0xA_0000_0000));
        assert!(!upper.lies_between(0x9_0000_0000, 0x9_FFFF_FFFF) && !upper.lies_between(0xB_0000_0000, u64::MAX));
        let lower = Part::new(0, &0x4000_0010u32.to_le_bytes());
        assert!(lower.lies_between(0xA_4000_0000, 0xA_4020_0000) && !lower.lies_between(0xA_4020_0000, 0xB_3FFF_FFFF));
        assert!(!Part::new(4, &[0; 4]).lies_between(0xA_0000_0000, 0xFFF_0000_0000), "zeros above are no address");
        assert!(Part::new(1, &[]).lies_between(7, 7), "nothing is known");
    }

    #[test]
    fn the_lowest_byte_of_a_word_leads_nowhere_else() {
        assert!(leads_where_it_led(0x1000, 1) && leads_where_it_led(0x1008, 1) && leads_where_it_led(0x1003, 0));
        for (to, bytes) in [(0x1000, 2), (0x1000, 8), (0x1001, 1), (0x1007, 1), (0x1007, 2)] {
            assert!(!leads_where_it_led(to, bytes), "{bytes} bytes at {to:#x}");
        }
    }

    proptest! {
        #[test]
        fn the_next_word_with_given_bytes_is_the_lowest(
            start in 0u64..1 << 20, first in 0usize..3, bytes in prop::collection::vec(any::<u8>(), 0..3),
        ) {
            let part = Part::new(first, &bytes);
            let slowly = (start..1 << 24).find(|word| word & part.mask == part.value);
            prop_assert_eq!(part.next(start).filter(|word| *word < 1 << 24), slowly);
        }
    }
}
