//! What extents add up to.

use super::extent::{Delivery, Extent, ExtentState};
use crate::sizes::PerClass;

/// What extents add up to. In bytes, where nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All of them.
    pub bytes: u64,
    /// What is in the pool only, and nobody copies it.
    pub away: u64,
    /// Of that, what has a frame that waits for it.
    pub reserved: u64,
    /// What the tenant cannot use yet: all that is not resident.
    pub missing: u64,
    /// What stays where it is.
    pub immovable: u64,
    /// What the tenant has freed, and which is its own until it next leaves the GPU.
    pub spare: u64,
    /// How many extents, of each size, can be evicted if their tenant can be.
    pub evictable: PerClass,
    /// How many, of each size, are on the way out.
    pub leaving: PerClass,
    /// Of how many extents it is not known what they point to.
    pub unread: usize,
    /// How many frames did not reach the tenant.
    pub lost: usize,
    /// How many were sent again, and may not reach it either.
    pub sent_again: usize,
    /// Of how many the tenant still has a frame mapped that is not its own any more.
    pub left_behind: usize,
}

impl Counts {
    /// What is on the GPU, whole or in part, in bytes.
    pub fn here(&self) -> u64 {
        self.bytes - self.away
    }

    /// What the tenant's program uses, in bytes.
    pub fn used(&self) -> u64 {
        self.bytes - self.spare
    }

    /// What one extent counts for.
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

    /// Both together.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.each(other, |a, b| *a += b, |a, b| *a += b);
        self
    }

    /// Without what was part of it.
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
