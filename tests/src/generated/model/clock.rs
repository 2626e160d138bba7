//! For each stream that there ever was, how much of its work has ended.

/// The work of one stream is numbered from 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Clock(Vec<u32>);

impl Clock {
    /// True if a piece of work has ended.
    pub(super) fn covers(&self, (timeline, number): Point) -> bool {
        self.0.get(timeline).is_some_and(|ended| *ended >= number)
    }

    /// True if all of it has ended by the other one.
    pub(super) fn is_covered_by(&self, other: &Self) -> bool {
        self.0.iter().enumerate().all(|(timeline, ended)| other.covers((timeline, *ended)) || *ended == 0)
    }

    /// All that has ended in either has ended.
    pub(super) fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, others) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*others);
        }
    }

    /// A piece of work has ended, and all before it in its stream.
    pub(super) fn add(&mut self, (timeline, number): Point) {
        if self.0.len() <= timeline {
            self.0.resize(timeline + 1, 0);
        }
        self.0[timeline] = self.0[timeline].max(number);
    }
}

/// A stream that there is or was, and one piece of its work.
pub(super) type Point = (usize, u32);

/// The work that comes before something: for certain, and perhaps.
#[derive(Clone, Debug, Default)]
pub(super) struct Before {
    /// Relied upon for the order of accesses.
    pub(super) must: Clock,
    /// Relied upon for what may have to be waited for.
    pub(super) may: Clock,
}

impl Before {
    pub(super) fn join(&mut self, other: &Self) {
        self.must.join(&other.must);
        self.may.join(&other.may);
    }

    pub(super) fn add(&mut self, point: Point) {
        self.must.add(point);
        self.may.add(point);
    }
}
