//! Placement: the GPU for a program that may use any.

use std::cmp::Reverse;

/// A GPU that is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// Bytes that its programs can have there at the same time.
    pub arena: u64,
    /// Bytes that its programs have, wherever those are, or that are promised to them.
    pub taken: u64,
    /// The number of programs that are about to come, which may take all that is free.
    pub expected: usize,
    /// The number of programs that are at work there, or wait for it.
    pub at_work: usize,
    /// The number of all its programs.
    pub programs: usize,
}

/// The place in this list of the GPU for a program that needs so many bytes, 0 if that is not known: none if the list is empty.
///
/// It is the one with the most room, if there is room beside all other programs' memory; and otherwise the one where the fewest programs are
/// at work or wait. A GPU that is too small for the program is the last choice. Of several that are equal it is the first one.
pub fn choose(gpus: &[Gpu], needs: u64) -> Option<usize> {
    let key = |gpu: &Gpu| {
        let room = gpu.arena.saturating_sub(gpu.taken);
        let lacks_room = room < needs.max(1);
        let waits = if lacks_room { gpu.at_work } else { 0 };
        (gpu.arena < needs, lacks_room, waits, gpu.expected, Reverse(room), gpu.at_work, gpu.programs)
    };
    (0..gpus.len()).min_by_key(|at| key(&gpus[*at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(taken: u64, at_work: usize) -> Gpu {
        Gpu { arena: 100, taken, at_work, programs: at_work, ..Gpu::default() }
    }

    #[test]
    fn the_most_room_counts_while_there_is_room_and_the_least_waiting_otherwise() {
        assert_eq!(choose(&[], 10), None);
        assert_eq!(choose(&[gpu(60, 0), gpu(40, 3)], 50), Some(1), "it fits beside them");
        assert_eq!(choose(&[gpu(60, 0), gpu(40, 3)], 70), Some(0), "it fits beside none");
        assert_eq!(choose(&[gpu(60, 0), gpu(40, 3)], 0), Some(1), "its need is not known");
        assert_eq!(choose(&[gpu(150, 2), gpu(300, 1)], 0), Some(1), "nothing is free");
        assert_eq!(choose(&[gpu(100, 1), gpu(30, 0), gpu(20, 0)], 80), Some(2));
    }

    #[test]
    fn a_gpu_that_is_too_small_is_the_last_choice() {
        let small = Gpu { arena: 40, ..Gpu::default() };
        assert_eq!(choose(&[small, gpu(90, 4)], 50), Some(1));
        assert_eq!(choose(&[small, gpu(90, 4)], 30), Some(0));
        assert_eq!(choose(&[small], 50), Some(0));
    }

    #[test]
    fn programs_that_come_one_after_the_other_are_spread() {
        let expected = Gpu { expected: 1, ..gpu(0, 0) };
        assert_eq!(choose(&[expected, gpu(50, 1)], 0), Some(1), "it may take all");
        assert_eq!(choose(&[gpu(10, 1), gpu(0, 0), gpu(0, 0)], 0), Some(1));
        // Each goes where fewer have gone, with equal needs as without them.
        let mut gpus = [gpu(0, 0); 3];
        for _ in 0..9 {
            let at = choose(&gpus, 20).expect("several");
            (gpus[at].taken, gpus[at].programs) = (gpus[at].taken + 20, gpus[at].programs + 1);
        }
        assert!(gpus.iter().all(|gpu| gpu.programs == 3), "{gpus:?}");
    }
}
