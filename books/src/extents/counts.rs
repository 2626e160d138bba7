//! Sums over extents.

use super::extent::{Delivery, Extent, ExtentState};
use crate::sizes::PerClass;

/// Sums over extents, in bytes unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All extents.
    pub bytes: u64,
    /// Extents that are in the pool only, with no copy under way.
    pub away: u64,
    /// The part of those for which a frame is reserved.
    pub reserved: u64,
    /// Memory that the tenant cannot use yet: all that is not resident.
    pub missing: u64,
    /// Memory that stays where it is.
    pub immovable: u64,
    /// Memory that the tenant has freed, and that stays its own until it next leaves the GPU.
    pub spare: u64,
    /// The number of extents, of each size, that can be evicted if their tenant can be.
    pub evictable: PerClass,
    /// The number of extents, of each size, that are leaving.
    pub leaving: PerClass,
    /// The number of extents whose pointers are unknown.
    pub unread: usize,
    /// The number of frames that did not reach the tenant.
    pub lost: usize,
    /// The number of frames that were sent again, and may not reach it either.
    pub sent_again: usize,
    /// The number of extents at which the tenant still has a lost frame mapped.
    pub left_behind: usize,
}

impl Counts {
    /// Bytes of the extents that are on the GPU, as a whole or in part.
    pub fn here(&self) -> u64 {
        self.bytes - self.away
    }

    /// Bytes that the tenant's program uses.
    pub fn used(&self) -> u64 {
        self.bytes - self.spare
    }

    /// The counts of one extent.
    pub(super) fn of(extent: &Extent) -> Self {
        let (bytes, state) = (extent.class.bytes(), extent.state);
        let if_so = |so: bool| if so { bytes } else { 0 };
        let mut counts = Self {
            bytes,
            away: if_so(state.is_away()),
            reserved: if_so(matches!(state, ExtentState::Reserved { .. })),
            missing: if_so(!state.is_resident()),
            immovable: if_so(extent.immovable),
            spare: extent.spare_bytes(),
            unread: extent.pointers().is_none().into(),
            left_behind: extent.left_behind.is_some().into(),
            ..Self::default()
        };
        counts.evictable[extent.class.index()] = extent.is_evictable().into();
        match state {
            ExtentState::Leaving { .. } => counts.leaving[extent.class.index()] = 1,
            ExtentState::Reserved { delivery: Delivery::Lost, .. } | ExtentState::Arriving { lost: true, .. } => {
                counts.lost = 1;
            }
            ExtentState::Reserved { delivery: Delivery::SentAgain, .. } => counts.sent_again = 1,
            _ => {}
        }
        counts
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.each(other, |a, b| *a += b, |a, b| *a += b);
        self
    }

    /// The counts without a part of them.
    #[must_use]
    pub fn less(mut self, part: &Self) -> Self {
        self.each(part, |a, b| *a -= b, |a, b| *a -= b);
        self
    }

    fn each(&mut self, other: &Self, bytes: fn(&mut u64, u64), numbers: fn(&mut usize, usize)) {
        bytes(&mut self.bytes, other.bytes);
        bytes(&mut self.away, other.away);
        bytes(&mut self.reserved, other.reserved);
        bytes(&mut self.missing, other.missing);
        bytes(&mut self.immovable, other.immovable);
        bytes(&mut self.spare, other.spare);
        for (own, other) in self.evictable.iter_mut().zip(other.evictable) {
            numbers(own, other);
        }
        for (own, other) in self.leaving.iter_mut().zip(other.leaving) {
            numbers(own, other);
        }
        numbers(&mut self.unread, other.unread);
        numbers(&mut self.lost, other.lost);
        numbers(&mut self.sent_again, other.sent_again);
        numbers(&mut self.left_behind, other.left_behind);
    }
}
