//! A stretch of a pool's memory: which pieces of it nobody has, and from when on each of them can be had.
//!
//! Bookkeeping only, by addresses. A piece that a stream frees is there for others when the stream has come so far; who asks
//! says which frees are good enough (`may`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::lease::Lease;
use crate::exec::stream::Ticket;

/// A free that the device had still to come to when the program asked for it.
#[derive(Clone)]
pub(super) struct Freed {
    pub(super) lease: Arc<Lease>,
    /// The point in the stream.
    pub(super) at: Ticket,
}

/// A piece that nobody has.
struct Piece {
    bytes: u64,
    /// The free that it is from; none: it can be had by everyone.
    freed: Option<Freed>,
}

/// One stretch, mapped as a whole.
pub(super) struct Chunk {
    bytes: u64,
    pieces: BTreeMap<u64, Piece>,
}

/// Where there is room: the size of the run of pieces that it is in, and the address.
type Room = (u64, u64);

impl Chunk {
    /// A stretch that is free as a whole.
    pub(super) fn new(start: u64, bytes: u64) -> Chunk {
        Chunk { bytes, pieces: BTreeMap::from([(start, Piece { bytes, freed: None })]) }
    }

    /// How much memory it is.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The smallest run of pieces side by side that is large enough.
    pub(super) fn room(&self, needed: u64, may: &impl Fn(&Freed) -> bool) -> Option<Room> {
        let mut runs: Vec<Room> = Vec::new();
        for (start, piece) in self.pieces.iter().filter(|(_, piece)| piece.freed.as_ref().is_none_or(may)) {
            match runs.last_mut() {
                Some((bytes, begin)) if *begin + *bytes == *start => *bytes += piece.bytes,
                _ => runs.push((piece.bytes, *start)),
            }
        }
        runs.into_iter().filter(|(bytes, _)| *bytes >= needed).min()
    }

    /// Takes memory out, where there is room for it; the frees that it comes after.
    pub(super) fn take(&mut self, start: u64, needed: u64) -> Vec<Freed> {
        let end = start + needed;
        let names: Vec<u64> = self.pieces.range(start..end).map(|(name, _)| *name).collect();
        let mut after = Vec::new();
        for name in names {
            let Some(piece) = self.pieces.remove(&name) else { continue };
            after.extend(piece.freed.clone());
            if name + piece.bytes > end {
                self.pieces.insert(end, Piece { bytes: name + piece.bytes - end, freed: piece.freed });
            }
        }
        after
    }

    /// Puts memory back that was taken.
    pub(super) fn give(&mut self, start: u64, bytes: u64, freed: Option<Freed>) {
        self.pieces.insert(start, Piece { bytes, freed });
        self.join();
    }

    /// Lets everyone have the pieces whose free is good enough.
    pub(super) fn settle(&mut self, may: &impl Fn(&Freed) -> bool) {
        let mut changed = false;
        for piece in self.pieces.values_mut().filter(|piece| piece.freed.as_ref().is_some_and(may)) {
            (piece.freed, changed) = (None, true);
        }
        if changed {
            self.join();
        }
    }

    /// Whether nobody has any of it, as far as these frees are good enough.
    pub(super) fn is_empty(&self, may: &impl Fn(&Freed) -> bool) -> bool {
        let idle = self.pieces.values().filter(|piece| piece.freed.as_ref().is_none_or(may));
        idle.map(|piece| piece.bytes).sum::<u64>() == self.bytes
    }

    /// Makes one piece of those side by side that everyone can have.
    fn join(&mut self) {
        let mut joined: BTreeMap<u64, Piece> = BTreeMap::new();
        for (start, piece) in std::mem::take(&mut self.pieces) {
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
        self.pieces = joined;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_free(_: &Freed) -> bool {
        false
    }

    #[test]
    fn the_smallest_room_is_taken_and_what_comes_back_is_joined() {
        let mut chunk = Chunk::new(1000, 100);
        for at in [1000, 1020, 1050] {
            assert_eq!(chunk.room(10, &no_free), Some((1100 - at, at)));
            chunk.take(at, if at == 1020 { 30 } else { 20 });
        }
        // Two holes, of 20 and of 30 behind all.
        chunk.give(1000, 20, None);
        assert_eq!(chunk.room(10, &no_free), Some((20, 1000)));
        assert_eq!(chunk.room(25, &no_free), Some((30, 1070)));
        assert_eq!(chunk.room(31, &no_free), None);
        assert!(!chunk.is_empty(&no_free));
        chunk.give(1050, 20, None);
        assert_eq!(chunk.room(31, &no_free), Some((50, 1050)));
        chunk.give(1020, 30, None);
        assert_eq!(chunk.room(100, &no_free), Some((100, 1000)));
        assert!(chunk.is_empty(&no_free));
    }
}
