//! Memory that comes in before its tenant's turn: whose, and how much.

use std::cmp::Reverse;

use baton_contract::class::Class;
use baton_contract::memory::SizeClass;
use baton_contract::messages::ExtentId;

use crate::arbiter::Micros;
use crate::victims::Standing;

/// A tenant's place among those whose memory comes ahead of need: the least comes first. Waiting tenants come before idle ones, more
/// urgent ones first, then the last to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NextKey(bool, Class, Reverse<Micros>);

impl From<Standing> for NextKey {
    fn from(standing: Standing) -> Self {
        Self(!standing.waits, standing.class, Reverse(standing.ran))
    }
}

/// Returns the bytes that may come in ahead for the next tenant, with `free` bytes free: no limit for a tenant that waits. A tenant that
/// only may come leaves the headroom free.
pub fn spare(waits: bool, free: u64, headroom: u64) -> u64 {
    if waits { u64::MAX } else { free.saturating_sub(headroom) }
}

/// Bytes to evict so that the headroom is free. None for a waiting tenant: it gets memory ahead, and taking that away again for a
/// tenant that only may come would go round in circles.
pub fn lacking_headroom(waits: bool, free: u64, headroom: u64) -> u64 {
    if waits { 0 } else { headroom.saturating_sub(free) }
}

/// Bytes of frames reserved ahead for a tenant that may come: less than the headroom, since another tenant may come after all.
pub fn most_reserved(headroom: u64) -> u64 {
    headroom / 4 * 3
}

/// The first group of extents in this order: no larger than a group may be, unless its first extent is, and within `spare` bytes.
/// Returns their number.
pub fn first_group(order: &[(ExtentId, SizeClass)], spare: u64, group: u64) -> usize {
    let mut bytes = 0;
    let fits = |(_, class): &&(ExtentId, SizeClass)| {
        let is_first = bytes == 0;
        bytes += class.bytes();
        bytes <= spare && (is_first || bytes <= group)
    };
    order.iter().take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn waiting_tenants_come_first_then_urgent_ones_then_the_last_to_run() {
        let key = |waits, class, ran| NextKey::from(Standing { waits, class, ran });
        let order = [
            key(true, Class::Batch, 0),
            key(false, Class::Latency, 0),
            key(false, Class::Normal, 9),
            key(false, Class::Normal, 8),
        ];
        assert!(order.is_sorted());
    }

    #[test]
    fn the_headroom_is_for_tenants_that_only_may_come() {
        assert_eq!((spare(false, 10, 4), spare(false, 3, 4), spare(true, 3, 4)), (6, 0, u64::MAX));
        assert_eq!(
            (lacking_headroom(false, 3, 4), lacking_headroom(false, 9, 4), lacking_headroom(true, 0, 4)),
            (1, 0, 0)
        );
    }

    #[test]
    fn a_group_ends_before_it_is_too_large_unless_its_first_extent_is() {
        let small = SizeClass::ALL[0];
        let large = SizeClass::ALL[SizeClass::ALL.len() - 1];
        let order = [(ExtentId(1), large), (ExtentId(2), small), (ExtentId(3), small)];
        assert_eq!(first_group(&order, u64::MAX, large.bytes() + small.bytes()), 2);
        assert_eq!(first_group(&order, u64::MAX, MIB), 1);
        assert_eq!(first_group(&order, small.bytes(), u64::MAX), 0);
        assert_eq!(first_group(&order[1..], small.bytes(), u64::MAX), 1);
        assert_eq!(first_group(&[], u64::MAX, u64::MAX), 0);
    }
}
