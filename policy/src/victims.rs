//! The memory that leaves the GPU for other memory: the order of the tenants, and of the extents of each.
//!
//! Idle tenants lose memory before waiting ones, less urgent ones before more urgent ones, and those that ran longest ago
//! first. Of one tenant, zeros go first, since they are copied neither out nor in, then the extents that it uses last: with
//! the rest it can start at once when it runs again.

use std::cmp::Reverse;

use baton_books::sizes::{PerClass, bytes_of, subtract};
use baton_contract::class::Class;
use baton_contract::memory::SizeClass;
use baton_contract::messages::ExtentId;

use crate::arbiter::Micros;
use crate::first_use::History;

/// The facts by which tenants are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// True if the tenant waits for the GPU.
    pub waits: bool,
    /// Its class.
    pub class: Class,
    /// The time when it last held the GPU, or came.
    pub ran: Micros,
}

/// A tenant's place among the victims: the least is evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VictimKey(bool, Reverse<Class>, Micros);

impl From<Standing> for VictimKey {
    fn from(standing: Standing) -> Self {
        Self(standing.waits, Reverse(standing.class), standing.ran)
    }
}

/// The kind of others' extents that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Extents of the missing classes.
    SameClass,
    /// Any extent: its frame is exchanged for the missing classes.
    AnyClass,
    /// Extents of these classes whose frames cannot be exchanged.
    AsItIs,
}

impl Wanted {
    /// True if a frame meets this want. `same_owner`: the frame may be used as it is.
    pub fn is_met_by(self, same_owner: bool, can_be_exchanged: bool) -> bool {
        match self {
            Self::SameClass => same_owner || can_be_exchanged,
            Self::AnyClass => can_be_exchanged,
            Self::AsItIs => same_owner && !can_be_exchanged,
        }
    }

    /// True if a tenant has memory that may meet this want. `taken`: its memory was taken without its answer, and
    /// cannot be exchanged. `evictable` are the numbers of its extents that can leave.
    pub fn is_met_by_tenant(self, same_owner: bool, taken: bool, evictable: &PerClass, missing: &PerClass) -> bool {
        let has_class = || evictable.iter().zip(missing).any(|(has, lacks)| *has.min(lacks) > 0);
        match self {
            Self::SameClass => has_class() && (same_owner || !taken),
            Self::AnyClass => !taken,
            Self::AsItIs => has_class() && same_owner,
        }
    }
}

/// An extent that can leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub extent: ExtentId,
    /// Its size class.
    pub class: SizeClass,
    /// True if it held zeros when last scanned.
    pub zero: bool,
}

/// Sorts the extents of a tenant in the order in which they leave. Those that come at the same place leave in the reverse of
/// the order given.
pub fn order(candidates: &mut [Candidate], history: &History) {
    history.order(candidates, |candidate| candidate.extent);
    candidates.sort_by_key(|candidate| candidate.zero);
    candidates.reverse();
}

/// Chooses, in the order given, the extents that leave for the missing pieces, and subtracts them. An extent that covers none
/// of them stays.
pub fn choose(
    candidates: impl IntoIterator<Item = (ExtentId, SizeClass)>,
    wanted: Wanted,
    missing: &mut PerClass,
) -> Vec<(ExtentId, SizeClass)> {
    let mut chosen = Vec::new();
    for (extent, class) in candidates {
        if bytes_of(missing) == 0 {
            break;
        }
        if wanted == Wanted::AnyClass || missing[class.index()] > 0 {
            subtract(missing, class, 1);
            chosen.push((extent, class));
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use baton_books::sizes::count;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const SMALL: SizeClass = SizeClass::ALL[0];
    const LARGE: SizeClass = SizeClass::ALL[3];

    fn key(waits: bool, class: Class, ran: Micros) -> VictimKey {
        Standing { waits, class, ran }.into()
    }

    #[test]
    fn idle_tenants_go_before_waiting_ones_and_less_urgent_ones_first() {
        let order = [
            key(false, Class::Batch, 9),
            key(false, Class::Normal, 1),
            key(false, Class::Normal, 2),
            key(false, Class::Latency, 0),
            key(true, Class::Batch, 0),
        ];
        assert!(order.is_sorted());
    }

    #[test]
    fn zeros_go_first_and_then_the_memory_used_last() {
        let mut history = History::default();
        history.record(vec![(ExtentId(1), 10), (ExtentId(2), 20), (ExtentId(3), 30)]);
        let candidate = |extent, zero| Candidate { extent: ExtentId(extent), class: SMALL, zero };
        let mut all = [candidate(1, true), candidate(2, false), candidate(3, false), candidate(4, false)];
        order(&mut all, &history);
        assert_eq!(all.map(|candidate| candidate.extent.0), [1, 4, 3, 2]);
    }

    #[test]
    fn an_extent_of_another_class_leaves_only_if_its_frame_can_be_exchanged() {
        let candidates = [(ExtentId(1), LARGE), (ExtentId(2), SMALL), (ExtentId(3), SMALL)];
        let chosen = |wanted| {
            let mut missing = count([SMALL]);
            choose(candidates, wanted, &mut missing).iter().map(|(extent, _)| extent.0).collect::<Vec<_>>()
        };
        assert_eq!((chosen(Wanted::SameClass), chosen(Wanted::AnyClass)), (vec![2], vec![1]));
    }

    #[test]
    fn a_tenant_is_searched_if_one_of_its_frames_can_serve_and_never_if_none_can() {
        const BOTH: [bool; 2] = [false, true];
        for wanted in [Wanted::SameClass, Wanted::AnyClass, Wanted::AsItIs] {
            assert!(!wanted.is_met_by(false, false), "{wanted:?} takes a frame of another owner as it is");
            for (same_owner, taken) in BOTH.into_iter().flat_map(|owner| BOTH.map(|taken| (owner, taken))) {
                for class in [SMALL, LARGE] {
                    let is_searched = wanted.is_met_by_tenant(same_owner, taken, &count([class]), &count([SMALL]));
                    let can_serve = |can_be_exchanged| {
                        wanted.is_met_by(same_owner, can_be_exchanged) && (class == SMALL || wanted == Wanted::AnyClass)
                    };
                    // Frames of a tenant whose memory was taken cannot be exchanged.
                    let serves = can_serve(false) || !taken && can_serve(true);
                    let case = (wanted, same_owner, taken, class);
                    assert!(is_searched || !serves, "{case:?} is left out");
                    assert!(!is_searched || same_owner || !taken, "{case:?} is searched in vain");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn no_chosen_extent_is_needless_and_none_is_left_that_is_needed(
            classes in vec(prop::sample::select(&SizeClass::ALL[..]), 0..30),
            missing in prop::array::uniform6(0usize..4),
            any in any::<bool>(),
        ) {
            let wanted = if any { Wanted::AnyClass } else { Wanted::SameClass };
            let all: Vec<_> = classes.iter().enumerate().map(|(at, class)| (ExtentId(at as u32), *class)).collect();
            let mut left = missing;
            let chosen = choose(all.iter().copied(), wanted, &mut left);
            let bytes: u64 = chosen.iter().map(|(_, class)| class.bytes()).sum();
            prop_assert_eq!(bytes_of(&left), bytes_of(&missing).saturating_sub(bytes));
            if let Some(((_, last), _)) = chosen.split_last() {
                prop_assert!(bytes - last.bytes() < bytes_of(&missing));
            }
            let is_left = |(extent, class): &&(ExtentId, SizeClass)| {
                !chosen.iter().any(|(one, _)| one == extent) && (any || left[class.index()] > 0)
            };
            prop_assert!(bytes_of(&left) == 0 || all.iter().find(is_left).is_none());
        }
    }
}
