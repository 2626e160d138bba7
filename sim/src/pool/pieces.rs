//! A pool's memory: which pieces of it are free, and from when on each of them can be had.
//!
//! Bookkeeping only, by addresses. A piece that a stream frees is there for others when the stream has come so far; the caller
//! says which frees are good enough (`may`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::lease::Lease;
use super::steps::STEP;
use crate::exec::stream::Ticket;

/// A free that the device had still to come to when the program asked for it.
#[derive(Clone)]
pub(super) struct Freed {
    pub(super) lease: Arc<Lease>,
    /// The point in the stream.
    pub(super) at: Ticket,
}

/// A free piece.
struct Piece {
    bytes: u64,
    /// The free that it is from; none: it can be had by every stream.
    freed: Option<Freed>,
}

impl Piece {
    fn is_idle(&self, may: &impl Fn(&Freed) -> bool) -> bool {
        self.freed.as_ref().is_none_or(may)
    }
}

/// The pieces of a pool, and the steps of its addresses that memory is behind.
#[derive(Default)]
pub(super) struct Pieces {
    all: BTreeMap<u64, Piece>,
    steps: BTreeSet<u64>,
}

impl Pieces {
    /// True if there is no memory at all.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The addresses that memory is behind, a step each.
    pub(super) fn steps(&self) -> impl Iterator<Item = u64> {
        self.steps.iter().copied()
    }

    /// Where the smallest run of pieces side by side is that is large enough.
    pub(super) fn room(&self, needed: u64, may: &impl Fn(&Freed) -> bool) -> Option<u64> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (start, piece) in self.all.iter().filter(|(_, piece)| piece.is_idle(may)) {
            match runs.last_mut() {
                Some((bytes, begin)) if *begin + *bytes == *start => *bytes += piece.bytes,
                _ => runs.push((piece.bytes, *start)),
            }
        }
        runs.into_iter().filter(|(bytes, _)| *bytes >= needed).min().map(|(_, begin)| begin)
    }

    /// Where there is room with as few more steps as possible, between these addresses, and those steps.
    pub(super) fn room_with_more(
        &self,
        needed: u64,
        may: &impl Fn(&Freed) -> bool,
        (first, end): (u64, u64),
    ) -> Option<(u64, Vec<u64>)> {
        let idle = self.all.iter().filter(|(_, piece)| piece.is_idle(may)).map(|(start, _)| *start);
        let behind_all = self.steps.last().map_or(first, |last| last + STEP);
        let missing = (first..=behind_all).step_by(STEP as usize).filter(|step| !self.steps.contains(step));
        let ways = idle.chain(missing).filter(|start| start.checked_add(needed).is_some_and(|last| last <= end));
        let ways = ways.filter_map(|start| Some((self.missing(start, needed, may)?, start)));
        ways.min_by_key(|(steps, start)| (steps.len(), *start)).map(|(steps, start)| (start, steps))
    }

    /// The steps that have to be there for a range to be had; none if an allocation has something of it.
    fn missing(&self, start: u64, needed: u64, may: &impl Fn(&Freed) -> bool) -> Option<Vec<u64>> {
        let (mut at, mut steps) = (start, Vec::new());
        while at < start + needed {
            match self.all.get(&at).filter(|piece| piece.is_idle(may)) {
                Some(piece) => at += piece.bytes,
                None if at.is_multiple_of(STEP) && !self.steps.contains(&at) => {
                    steps.push(at);
                    at += STEP;
                }
                None => return None,
            }
        }
        Some(steps)
    }

    /// Adds a free step.
    pub(super) fn add(&mut self, step: u64) {
        self.steps.insert(step);
        self.give(step, STEP, None);
    }

    /// True if memory is behind a step of the addresses.
    pub(super) fn has(&self, step: u64) -> bool {
        self.steps.contains(&step)
    }

    /// Adds a step that is not to be had.
    pub(super) fn add_taken(&mut self, step: u64) {
        self.steps.insert(step);
    }

    /// Lets all steps be had.
    pub(super) fn give_all(&mut self) {
        for step in self.steps.clone() {
            self.all.insert(step, Piece { bytes: STEP, freed: None });
        }
    }

    /// Takes memory out, where there is room for it; the frees that it comes after.
    pub(super) fn take(&mut self, start: u64, needed: u64) -> Vec<Freed> {
        let end = start + needed;
        let before = self.all.range(..start).next_back().filter(|(name, piece)| *name + piece.bytes > start);
        let inside = self.all.range(start..end);
        let names: Vec<u64> = before.into_iter().chain(inside).map(|(name, _)| *name).collect();
        let mut after = Vec::new();
        for name in names {
            let Some(piece) = self.all.remove(&name) else { continue };
            let last = name + piece.bytes;
            after.extend(piece.freed.clone());
            if last > end {
                self.all.insert(end, Piece { bytes: last - end, freed: piece.freed.clone() });
            }
            if name < start {
                self.all.insert(name, Piece { bytes: start - name, freed: piece.freed });
            }
        }
        after
    }

    /// Puts memory back that was taken.
    pub(super) fn give(&mut self, start: u64, bytes: u64, freed: Option<Freed>) {
        self.all.insert(start, Piece { bytes, freed });
        self.join();
    }

    /// Lets all streams have the pieces whose free is good enough.
    pub(super) fn settle(&mut self, may: &impl Fn(&Freed) -> bool) {
        let mut changed = false;
        for piece in self.all.values_mut().filter(|piece| piece.freed.as_ref().is_some_and(may)) {
            (piece.freed, changed) = (None, true);
        }
        if changed {
            self.join();
        }
    }

    /// Takes out the last step that is free as a whole.
    pub(super) fn remove_idle(&mut self, may: &impl Fn(&Freed) -> bool) -> Option<u64> {
        let step = self.steps.iter().copied().rfind(|step| {
            let mut at = *step;
            while at < step + STEP {
                // The piece may begin before the step.
                let Some((start, piece)) = self.all.range(..=at).next_back() else { return false };
                if start + piece.bytes <= at || !piece.is_idle(may) {
                    return false;
                }
                at = start + piece.bytes;
            }
            true
        })?;
        self.take(step, STEP);
        self.steps.remove(&step);
        Some(step)
    }

    /// Makes one piece of those side by side that all streams can have.
    fn join(&mut self) {
        let mut joined: BTreeMap<u64, Piece> = BTreeMap::new();
        for (start, piece) in std::mem::take(&mut self.all) {
            if let Some(mut last) = joined.last_entry()
                && *last.key() + last.get().bytes == start
                && last.get().freed.is_none()
                && piece.freed.is_none()
            {
                last.get_mut().bytes += piece.bytes;
                continue;
            }
            joined.insert(start, piece);
        }
        self.all = joined;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: (u64, u64) = (STEP, 5 * STEP);

    fn none(_: &Freed) -> bool {
        false
    }

    fn pieces(steps: &[u64]) -> Pieces {
        let mut pieces = Pieces::default();
        steps.iter().for_each(|step| pieces.add(*step * STEP));
        pieces
    }

    #[test]
    fn the_smallest_room_is_taken_and_what_comes_back_is_joined() {
        let mut pieces = pieces(&[1]);
        for (at, bytes) in [(STEP, 20), (STEP + 20, 30), (STEP + 50, 20)] {
            assert_eq!(pieces.room(10, &none), Some(at));
            pieces.take(at, bytes);
        }
        // A hole, and what is behind all.
        pieces.give(STEP, 20, None);
        assert_eq!((pieces.room(10, &none), pieces.room(25, &none)), (Some(STEP), Some(STEP + 70)));
        assert_eq!(pieces.room(STEP, &none), None);
        assert_eq!(pieces.remove_idle(&none), None);
        pieces.give(STEP + 50, 20, None);
        pieces.give(STEP + 20, 30, None);
        assert_eq!(pieces.room(STEP, &none), Some(STEP));
        assert_eq!(pieces.remove_idle(&none), Some(STEP));
        assert!(pieces.is_empty());
    }

    #[test]
    fn more_steps_come_behind_room_that_is_there_and_into_holes() {
        let mut empty = Pieces::default();
        assert_eq!(empty.room_with_more(10, &none, ALL), Some((STEP, vec![STEP])));
        empty = pieces(&[1, 3]);
        empty.take(STEP, 100);
        // The rest of the first step, the hole, and the beginning of the third one.
        assert_eq!(empty.room_with_more(STEP + 1, &none, ALL), Some((STEP + 100, vec![2 * STEP])));
        assert_eq!(empty.room_with_more(3 * STEP - 100, &none, ALL), Some((STEP + 100, vec![2 * STEP])));
        assert_eq!(empty.room_with_more(4 * STEP, &none, ALL), None);
        empty.take(3 * STEP, 1);
        assert_eq!(empty.room_with_more(2 * STEP - 1, &none, ALL), Some((3 * STEP + 1, vec![4 * STEP])));
    }

    #[test]
    fn the_last_idle_step_goes_also_if_a_piece_lies_over_its_borders() {
        let mut pieces = pieces(&[1, 2, 3]);
        assert_eq!(pieces.room(3 * STEP, &none), Some(STEP));
        pieces.take(3 * STEP + 5, 10);
        assert_eq!(pieces.remove_idle(&none), Some(2 * STEP));
        assert_eq!(pieces.room(STEP + 1, &none), None);
        assert_eq!(pieces.remove_idle(&none), Some(STEP));
        assert_eq!(pieces.remove_idle(&none), None);
        assert_eq!(pieces.room(5, &none), Some(3 * STEP));
    }
}
