//! Memory that is kept for programs that have declared their need. Pure.
//!
//! Programs of one **run** need it together: programs of one user that give the same number. A run is sure of its memory from the
//! coming of its first program to the leaving of its last. The part that its programs have already is no longer *outstanding*.

use std::collections::BTreeMap;

/// A run: its guest, if it has one, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// The guest.
    pub guest: Option<u32>,
    /// The run's number, which it has chosen.
    pub number: u64,
}

/// A program's need, and the run that shares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The program's run.
    pub run: Run,
    /// The need of all programs of the run together, in bytes.
    pub bytes: u64,
}

/// The known facts about one run, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Reserved {
    needs: u64,
    has: u64,
    programs: usize,
}

impl Reserved {
    fn outstanding(&self) -> u64 {
        self.needs.saturating_sub(self.has)
    }
}

/// All runs that have a program here.
#[derive(Debug, Default)]
pub struct Reservations {
    runs: BTreeMap<Run, Reserved>,
    outstanding: u64,
}

impl Reservations {
    fn change(&mut self, run: Run, change: impl FnOnce(&mut Reserved)) {
        let reserved = self.runs.entry(run).or_default();
        let before = reserved.outstanding();
        change(reserved);
        // Each run's part is no more than the room that there was when it came.
        self.outstanding = self.outstanding - before + reserved.outstanding();
        if reserved.programs == 0 {
            self.runs.remove(&run);
        }
    }

    /// Enters a program that has come, without memory. The largest need that a program of the run has declared holds for all.
    pub fn come(&mut self, need: Need) {
        self.change(need.run, |reserved| {
            reserved.needs = reserved.needs.max(need.bytes);
            reserved.programs += 1;
        });
    }

    /// Notes that a program's memory has changed from `before` to `after` bytes.
    pub fn has(&mut self, run: Run, before: u64, after: u64) {
        self.change(run, |reserved| reserved.has = reserved.has - before + after);
    }

    /// Removes a program that had this many bytes.
    pub fn go(&mut self, run: Run, had: u64) {
        self.change(run, |reserved| {
            reserved.has -= had;
            reserved.programs -= 1;
            if reserved.programs == 0 {
                reserved.needs = 0;
            }
        });
    }

    /// Further bytes that a program's run needs before the program can come in.
    pub fn lacking(&self, need: Need) -> u64 {
        need.bytes - self.runs.get(&need.run).map_or(0, |reserved| reserved.needs).min(need.bytes)
    }

    /// Bytes that are kept for runs other than this one.
    pub fn of_others(&self, run: Option<Run>) -> u64 {
        let own = run.and_then(|run| self.runs.get(&run)).map_or(0, Reserved::outstanding);
        self.outstanding - own
    }

    /// Bytes that are kept for a guest's programs.
    pub fn of_guest(&self, user: u32) -> u64 {
        let first = Run { guest: Some(user), number: 0 };
        let last = Run { guest: Some(user), number: u64::MAX };
        self.runs.range(first..=last).map(|(_, reserved)| reserved.outstanding()).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GUESTS: [Option<u32>; 3] = [None, Some(1), Some(2)];

    proptest! {
        /// The sums equal a recount however programs come, grow, shrink and go, and nothing stays of runs that have gone.
        #[test]
        fn what_is_outstanding_is_what_each_run_lacks(
            steps in prop::collection::vec((0..3usize, 0..3u64, 0..100u64, 0..3u8), 1..200)
        ) {
            let mut books = Reservations::default();
            // The run and the memory of each program.
            let mut programs: Vec<(Run, u64)> = Vec::new();
            let mut needs: BTreeMap<Run, u64> = BTreeMap::new();
            for (guest, number, bytes, what) in steps {
                let run = Run { guest: GUESTS[guest], number };
                let at = programs.iter().position(|(other, _)| *other == run);
                match (what, at) {
                    (1, Some(at)) => {
                        books.has(run, programs[at].1, bytes);
                        programs[at].1 = bytes;
                    }
                    (2, Some(at)) => {
                        let (_, had) = programs.swap_remove(at);
                        books.go(run, had);
                        if !programs.iter().any(|(other, _)| *other == run) {
                            needs.remove(&run);
                        }
                    }
                    _ => {
                        let known = needs.get(&run).copied().unwrap_or(0);
                        prop_assert_eq!(books.lacking(Need { run, bytes }), bytes.saturating_sub(known));
                        books.come(Need { run, bytes });
                        programs.push((run, 0));
                        needs.insert(run, known.max(bytes));
                    }
                }
                let outstanding = |run: &Run| {
                    let has: u64 = programs.iter().filter(|(other, _)| other == run).map(|(_, has)| has).sum();
                    needs[run].saturating_sub(has)
                };
                let all: u64 = needs.keys().map(outstanding).sum();
                prop_assert_eq!(books.of_others(None), all);
                for run in needs.keys() {
                    prop_assert_eq!(books.of_others(Some(*run)), all - outstanding(run));
                }
                let of_first: u64 = needs.keys().filter(|run| run.guest == Some(1)).map(outstanding).sum();
                prop_assert_eq!(books.of_guest(1), of_first);
            }
            prop_assert_eq!(books.runs.len(), needs.len());
        }
    }
}
