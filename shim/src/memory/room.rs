//! A pool's memory: the addresses that have memory, and the parts of it that are free. Pure.
//!
//! Memory comes and goes in **steps** ([`STEP`]); an allocation may span several. Memory that a stream has freed is *pending* until the
//! stream has reached the free: the caller says which frees are good enough. Only a search past frees of other streams checks each of
//! them.

use core::ops::Range;
use std::collections::{BTreeMap, BTreeSet};

use super::order::{Free, StreamNumber};
use super::window::Window;

/// The unit in which memory comes, and by which the driver's own pools grow (measured: `growth-alone` in `bench/results/rules.json`).
pub(crate) const STEP: u64 = 32 << 20;
/// The alignment of every allocation's address and size, as in the driver.
pub(crate) const ALIGNMENT: u64 = 512;

/// A part of the free memory, and the free that it is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pending {
    bytes: u64,
    free: Free,
}

/// A part of the memory that was taken: its address, its size, and the free that it is from.
pub(crate) type Part = (u64, u64, Option<Free>);

/// True if some of it was freed in a stream that may have yet to reach the free.
pub(super) fn is_behind_frees(parts: &[Part]) -> bool {
    parts.iter().any(|(_, _, free)| free.is_some())
}

/// A possible growth of a pool: the memory of an allocation that is there already, and the steps that it lacks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Growth {
    pub(super) at: u64,
    pub(super) bytes: u64,
    pub(super) steps: Vec<u64>,
    /// The parts that were taken of the free memory.
    taken: Vec<Part>,
}

impl Growth {
    /// True if some of it was freed in a stream that may have yet to reach the free.
    pub(super) fn is_behind_frees(&self) -> bool {
        is_behind_frees(&self.taken)
    }

    /// The steps that are lacking, as ranges of addresses.
    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        ranges(&self.steps)
    }
}

/// Steps in order of address, as ranges.
pub(super) fn ranges(steps: &[u64]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for step in steps {
        match ranges.last_mut() {
            Some(last) if last.end == *step => last.end += STEP,
            _ => ranges.push(*step..step + STEP),
        }
    }
    ranges
}

/// All memory and addresses of a pool.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// The pool's addresses.
    areas: Vec<Range<u64>>,
    /// Steps with memory.
    steps: BTreeSet<u64>,
    /// Steps that were given up, and the bytes of each that have yet to be unmapped.
    leaving: BTreeMap<u64, u64>,
    free: Window,
    /// Parts of the free memory that some stream may still use.
    pending: BTreeMap<u64, Pending>,
    by_stream: BTreeSet<(StreamNumber, u64, u64)>,
    /// The number of pending parts that each stream has freed.
    counts: BTreeMap<StreamNumber, usize>,
}

impl Room {
    /// True if there is no memory, and none is still being unmapped.
    pub(super) fn is_gone(&self) -> bool {
        self.steps.is_empty() && self.leaving.is_empty()
    }

    /// The pool's addresses.
    pub(super) fn areas(&self) -> &[Range<u64>] {
        &self.areas
    }

    /// Adds addresses, from a multiple of [`STEP`] on.
    pub(super) fn add_area(&mut self, area: Range<u64>) {
        self.areas.push(area);
    }

    /// The number of free parts that some stream may still use.
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// The streams that have freed those.
    pub(super) fn streams(&self) -> impl Iterator<Item = StreamNumber> {
        self.counts.keys().copied()
    }

    /// The free memory, as ranges.
    pub(super) fn free(&self) -> impl Iterator<Item = Range<u64>> {
        self.free.ranges().map(|(at, bytes)| at..at + bytes)
    }

    /// Takes so many bytes from the smallest run that is large enough.
    pub(super) fn take(
        &mut self,
        bytes: u64,
        own: StreamNumber,
        may: &impl Fn(&Free) -> bool,
    ) -> Option<(u64, Vec<Part>)> {
        let only_own = self.counts.keys().all(|stream| *stream == own);
        let found = self.free.no_smaller_than(bytes).find_map(|(at, length)| match only_own {
            true => Some(at),
            false => self.runs(at..at + length, may).find(|run| run.end - run.start >= bytes).map(|run| run.start),
        });
        let at = found?;
        Some((at, self.carve(at, bytes)))
    }

    /// The parts of a free range that may be taken.
    fn runs(&self, range: Range<u64>, may: &impl Fn(&Free) -> bool) -> impl Iterator<Item = Range<u64>> {
        let taken = self.pending.range(range.clone()).filter(|(_, pending)| !may(&pending.free));
        let ends = taken.map(|(at, pending)| *at..at + pending.bytes).chain(core::iter::once(range.end..range.end));
        let mut start = range.start;
        ends.filter_map(move |other| {
            let run = start..other.start;
            start = other.end;
            (!run.is_empty()).then_some(run)
        })
    }

    /// Takes a range out of the free memory. Returns its parts, and the frees that they are from.
    fn carve(&mut self, at: u64, bytes: u64) -> Vec<Part> {
        let end = at + bytes;
        self.free.take_at(at, bytes);
        let before = self.pending.range(..at).next_back().filter(|(start, part)| *start + part.bytes > at);
        let parts: Vec<u64> = before.into_iter().chain(self.pending.range(at..end)).map(|(start, _)| *start).collect();
        let mut taken = Vec::with_capacity(1);
        let mut known = at;
        for start in parts {
            let Some(part) = self.remove_pending(start) else { continue };
            let last = start + part.bytes;
            if start < at {
                self.insert_pending(start, Pending { bytes: at - start, ..part });
            }
            if last > end {
                self.insert_pending(end, Pending { bytes: last - end, ..part });
            }
            let (from, to) = (start.max(at), last.min(end));
            if from > known {
                taken.push((known, from - known, None));
            }
            taken.push((from, to - from, Some(part.free)));
            known = to;
        }
        if known < end {
            taken.push((known, end - known, None));
        }
        taken
    }

    /// Gives back memory: at a free in a stream, or free for all streams.
    pub(super) fn give(&mut self, at: u64, bytes: u64, free: Option<Free>) {
        self.free.give_back(at, bytes);
        let Some(mut free) = free else { return };
        let (mut at, mut bytes) = (at, bytes);
        // Neighbours that one stream has freed become one part: any state after the later free holds for both.
        if let Some((&before, part)) = self.pending.range(..at).next_back()
            && before + part.bytes == at
            && part.free.stream == free.stream
        {
            (at, bytes) = (before, part.bytes + bytes);
            free.number = free.number.max(part.free.number);
            self.remove_pending(before);
        }
        if self.pending.get(&(at + bytes)).is_some_and(|part| part.free.stream == free.stream)
            && let Some(part) = self.remove_pending(at + bytes)
        {
            bytes += part.bytes;
            free.number = free.number.max(part.free.number);
        }
        self.insert_pending(at, Pending { bytes, free });
    }

    /// Gives back memory as it was, except for frees that are settled by now.
    pub(super) fn give_parts(&mut self, parts: Vec<Part>, is_settled: impl Fn(&Free) -> bool) {
        for (at, bytes, free) in parts {
            self.give(at, bytes, free.filter(|free| !is_settled(free)));
        }
    }

    fn insert_pending(&mut self, at: u64, part: Pending) {
        self.by_stream.insert((part.free.stream, part.free.number, at));
        *self.counts.entry(part.free.stream).or_default() += 1;
        self.pending.insert(at, part);
    }

    fn remove_pending(&mut self, at: u64) -> Option<Pending> {
        let part = self.pending.remove(&at)?;
        self.by_stream.remove(&(part.free.stream, part.free.number, at));
        if let Some(count) = self.counts.get_mut(&part.free.stream) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&part.free.stream);
            }
        }
        Some(part)
    }

    /// Settles a stream's frees up to this one: their memory is free for all streams.
    pub(super) fn settle(&mut self, upto: Free) {
        let passed = self.by_stream.range((upto.stream, 0, 0)..=(upto.stream, upto.number, u64::MAX));
        let passed: Vec<u64> = passed.map(|(_, _, at)| *at).collect();
        for at in passed {
            self.remove_pending(at);
        }
    }

    /// Finds room for so many bytes with as few more steps as possible, and takes the part of it that is there. `None` if there are too
    /// few addresses.
    pub(super) fn grow(&mut self, bytes: u64, may: &impl Fn(&Free) -> bool) -> Option<Growth> {
        let starts = self.starts(bytes, may);
        let ways = starts.into_iter().filter_map(|at| Some((self.lacking(at, bytes, may)?, at)));
        let (steps, at) = ways.min_by_key(|(steps, at)| (steps.len(), *at))?;
        let mut taken = Vec::new();
        let mut from = at;
        for range in ranges(&steps) {
            if range.start > from {
                taken.extend(self.carve(from, range.start - from));
            }
            from = range.end;
        }
        if from < at + bytes {
            taken.extend(self.carve(from, at + bytes - from));
        }
        self.steps.extend(&steps);
        Some(Growth { at, bytes, steps, taken })
    }

    /// Adds a growth's steps: the rest of the last one is free.
    pub(super) fn grown(&mut self, growth: &Growth) {
        let (end, last) = (growth.at + growth.bytes, growth.steps.last().map_or(0, |step| step + STEP));
        if last > end {
            self.give(end, last - end, None);
        }
    }

    /// Undoes a growth. The memory that was taken is as it was, except for frees that are settled by now.
    pub(super) fn not_grown(&mut self, growth: Growth, is_settled: impl Fn(&Free) -> bool) {
        self.steps.retain(|step| !growth.steps.contains(step));
        self.give_parts(growth.taken, is_settled);
    }

    /// The addresses where an allocation that lacks memory could begin: in free memory before a missing step, and at the edges of steps.
    fn starts(&self, bytes: u64, may: &impl Fn(&Free) -> bool) -> Vec<u64> {
        let mut starts = Vec::new();
        let is_lacking = |at: u64| self.is_lacking(at);
        for (at, length) in self.free.ranges().filter(|(at, length)| is_lacking(at + length)) {
            starts.extend(
                self.runs(at..at + length, may).last().filter(|run| run.end == at + length).map(|run| run.start),
            );
        }
        let behind = self.steps.iter().chain(self.leaving.keys()).map(|step| step + STEP);
        let gaps = behind.chain(self.areas.iter().map(|area| area.start)).filter(|at| is_lacking(*at));
        for gap in gaps {
            starts.push(gap);
            let Some(end) = self.steps.range(gap..).next().copied().filter(|end| self.is_one_area(gap, *end)) else {
                continue;
            };
            // Free memory behind the gap is used as far as possible.
            let first = self.free.containing(end).and_then(|(_, length)| self.runs(end..end + length, may).next());
            let there = first.filter(|run| run.start == end).map_or(0, |run| run.end - run.start);
            let back = bytes.saturating_sub(there).next_multiple_of(STEP).max(STEP);
            starts.extend(end.checked_sub(back).filter(|start| *start > gap));
        }
        starts
    }

    fn is_one_area(&self, at: u64, other: u64) -> bool {
        self.areas.iter().any(|area| area.contains(&at) && area.contains(&other))
    }

    /// True if a step begins here that has no memory, and could get some.
    fn is_lacking(&self, at: u64) -> bool {
        let area = self.areas.iter().find(|area| area.contains(&at));
        area.is_some_and(|area| (at - area.start).is_multiple_of(STEP))
            && !self.steps.contains(&at)
            && !self.leaving.contains_key(&at)
    }

    /// The steps that have to come before a range can be taken; `None` if a part of it is in use.
    fn lacking(&self, at: u64, bytes: u64, may: &impl Fn(&Free) -> bool) -> Option<Vec<u64>> {
        let end = at.checked_add(bytes)?;
        let (mut at, mut steps) = (at, Vec::new());
        while at < end {
            if let Some((start, length)) = self.free.containing(at) {
                let run = self.runs(start..start + length, may).find(|run| run.contains(&at))?;
                at = run.end;
            } else if self.is_lacking(at) {
                steps.push(at);
                at += STEP;
            } else {
                return None;
            }
        }
        Some(steps)
    }

    /// Takes out up to `most` unused steps, the last first. They are to be given up.
    pub(super) fn take_idle(&mut self, most: usize) -> Vec<u64> {
        let mut runs: Vec<(u64, u64)> = self.free.no_smaller_than(STEP).collect();
        runs.sort_unstable_by(|a, b| b.cmp(a));
        let mut idle = Vec::new();
        'all: for (at, bytes) in runs {
            let area = self.areas.iter().find(|area| area.contains(&at)).map_or(0, |area| area.start);
            let first = area + (at - area).next_multiple_of(STEP);
            let mut step = area + (at + bytes - area) / STEP * STEP;
            while step > first {
                step -= STEP;
                if idle.len() == most {
                    break 'all;
                }
                let is_used = self
                    .pending
                    .range(..step + STEP)
                    .next_back()
                    .is_some_and(|(start, part)| start + part.bytes > step);
                if !is_used {
                    idle.push(step);
                }
            }
        }
        for step in &idle {
            self.free.take_at(*step, STEP);
            self.steps.remove(step);
            self.leaving.insert(*step, STEP);
        }
        idle
    }

    /// Records that addresses of steps that were given up are unmapped.
    pub(super) fn on_returned(&mut self, range: Range<u64>) {
        let steps: Vec<u64> = self.leaving.range(..range.end).map(|(step, _)| *step).collect();
        for step in steps.into_iter().rev().take_while(|step| step + STEP > range.start) {
            let bytes = range.end.min(step + STEP) - range.start.max(step);
            if let Some(left) = self.leaving.get_mut(&step) {
                *left = left.saturating_sub(bytes);
                if *left == 0 {
                    self.leaving.remove(&step);
                }
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges are what is compared")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OWN: StreamNumber = StreamNumber(1);
    const OTHER: StreamNumber = StreamNumber(2);

    fn all(_: &Free) -> bool {
        true
    }

    fn own(free: &Free) -> bool {
        free.stream == OWN
    }

    fn room() -> Room {
        let mut room = Room::default();
        room.add_area(STEP..9 * STEP);
        room
    }

    fn grown(room: &mut Room, bytes: u64) -> (u64, usize) {
        let growth = room.grow(bytes, &own).expect("there are addresses");
        room.grown(&growth);
        (growth.at, growth.steps.len())
    }

    fn freed(stream: StreamNumber, number: u64) -> Option<Free> {
        Some(Free { stream, number })
    }

    #[test]
    fn it_grows_behind_what_is_free_and_into_gaps() {
        let mut room = room();
        assert_eq!(grown(&mut room, 100), (STEP, 1));
        assert_eq!(grown(&mut room, STEP), (STEP + 100, 1), "the rest of the first step, and a second");
        assert_eq!(grown(&mut room, 2 * STEP), (2 * STEP + 100, 2));
        room.give(2 * STEP + 100, 2 * STEP, None);
        assert_eq!(room.take_idle(1), [4 * STEP], "the last one");
        assert_eq!(room.grow(9 * STEP, &own), None, "too few addresses");
    }

    #[test]
    fn a_stream_has_its_own_frees_at_once_and_others_not_before_they_are_settled() {
        let mut room = room();
        let (at, _) = grown(&mut room, STEP);
        room.give(at, STEP, freed(OTHER, 7));
        assert_eq!(room.take(512, OWN, &own), None);
        assert_eq!(room.take(512, OTHER, &|free| free.stream == OTHER), Some((at, vec![(at, 512, freed(OTHER, 7))])));
        room.settle(Free { stream: OTHER, number: 6 });
        assert_eq!(room.take(512, OWN, &own), None);
        room.settle(Free { stream: OTHER, number: 7 });
        assert_eq!((room.pending(), room.take(512, OWN, &own)), (0, Some((at + 512, vec![(at + 512, 512, None)]))));
    }

    #[test]
    fn room_is_found_between_what_others_have_freed() {
        let mut room = room();
        let (at, _) = grown(&mut room, STEP);
        room.give(at, 4096, freed(OWN, 1));
        room.give(at + 4096, 512, freed(OTHER, 2));
        room.give(at + 4608, STEP - 4608, freed(OWN, 3));
        assert_eq!(room.take(8192, OWN, &own).map(|(at, _)| at), Some(at + 4608));
        assert_eq!(room.take(4096, OWN, &own).map(|(at, _)| at), Some(at));
        let taken = room.take(512, OWN, &all).map(|(_, parts)| parts);
        assert_eq!(taken, Some(vec![(at + 4096, 512, freed(OTHER, 2))]));
    }

    #[test]
    fn neighbours_are_one_behind_the_later_of_their_frees() {
        let mut room = room();
        let (at, _) = grown(&mut room, STEP);
        room.give(at + 512, 512, freed(OWN, 9));
        room.give(at, 512, freed(OWN, 5));
        room.settle(Free { stream: OWN, number: 5 });
        assert_eq!((room.pending(), room.take(1024, OTHER, &|_| false)), (1, None));
        room.settle(Free { stream: OWN, number: 9 });
        assert_eq!(room.take(1024, OTHER, &|_| false).map(|(at, _)| at), Some(at));
    }

    #[test]
    fn what_did_not_come_leaves_all_as_it_was() {
        let mut room = room();
        let (at, _) = grown(&mut room, STEP);
        room.give(at, STEP, freed(OWN, 1));
        let growth = room.grow(2 * STEP, &own).expect("there are addresses");
        assert_eq!((growth.at, growth.ranges()), (at, vec![2 * STEP..3 * STEP]));
        room.not_grown(growth, |_| false);
        assert_eq!((room.pending(), room.free().collect::<Vec<_>>()), (1, vec![at..at + STEP]));
    }

    #[test]
    fn addresses_of_a_step_that_was_given_up_come_back_when_all_of_it_has() {
        let mut room = room();
        let (at, _) = grown(&mut room, 2 * STEP);
        room.give(at, 2 * STEP, None);
        assert_eq!(room.take_idle(9), [2 * STEP, STEP]);
        assert!(room.steps.is_empty() && !room.is_gone());
        room.on_returned(STEP..STEP + 512);
        assert_eq!(grown(&mut room, 1), (3 * STEP, 1));
        room.on_returned(STEP + 512..2 * STEP);
        assert_eq!(grown(&mut room, STEP), (STEP, 1));
    }

    proptest! {
        #[test]
        fn nobody_has_what_another_has(calls in prop::collection::vec((0u8..5, 1u64..3 * STEP, 0usize..64), 1..60)) {
            let mut room = Room::default();
            room.add_area(STEP..40 * STEP);
            let mut live: Vec<(u64, u64)> = Vec::new();
            let mut number = 0;
            for (call, bytes, which) in calls {
                let bytes = bytes.next_multiple_of(ALIGNMENT);
                match call {
                    0 | 1 => {
                        let found = room.take(bytes, OWN, &own).map(|(at, _)| at);
                        let at = found.or_else(|| {
                            let growth = room.grow(bytes, &own)?;
                            room.grown(&growth);
                            Some(growth.at)
                        });
                        let Some(at) = at else { continue };
                        prop_assert!(live.iter().all(|(other, size)| at + bytes <= *other || other + size <= at));
                        live.push((at, bytes));
                    }
                    2 | 3 if !live.is_empty() => {
                        let (at, bytes) = live.swap_remove(which % live.len());
                        number += 1;
                        room.give(at, bytes, freed(if call == 2 { OWN } else { OTHER }, number));
                    }
                    4 => {
                        room.settle(Free { stream: OTHER, number: number.saturating_sub(which as u64) });
                        for step in room.take_idle(which) {
                            prop_assert!(live.iter().all(|(at, size)| step + STEP <= *at || at + size <= step));
                            room.on_returned(step..step + STEP);
                        }
                    }
                    _ => {}
                }
                let (used, free): (u64, u64) =
                    (live.iter().map(|(_, bytes)| bytes).sum(), room.free().map(|run| run.end - run.start).sum());
                prop_assert_eq!(used + free, room.steps.len() as u64 * STEP);
                let pending: usize = room.counts.values().sum();
                prop_assert_eq!((pending, room.by_stream.len()), (room.pending.len(), room.pending.len()));
            }
        }
    }
}
