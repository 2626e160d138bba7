//! A stretch of a timeline in a few numbers, for the table under a ribbon.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::palette::{self, Look};
use crate::timeline::{Done, State, Timeline};

/// All of it.
#[derive(Clone, Debug)]
pub struct Summary {
    /// How often the GPU changed hands.
    pub switches: usize,
    /// Copied to the GPU.
    pub bytes_in: u64,
    /// Copied to the host.
    pub bytes_out: u64,
    /// Which part of the time somebody had the GPU, not counting co-runners: from 0 to 1.
    pub used: f64,
    /// Each program, by number.
    pub programs: BTreeMap<u32, Figures>,
}

/// One program.
#[derive(Clone, Debug)]
pub struct Figures {
    /// What the user called it.
    pub name: String,
    /// Its class, if known.
    pub class: Option<String>,
    /// How it is drawn.
    pub look: Look,
    /// Counts the programs, from 0.
    pub number: usize,
    /// Which part of the time it had the GPU: from 0 to 1.
    pub share: f64,
    /// How long it waited for each of its turns until the gate was open or the first launch, in nanoseconds, in order of length.
    pub waits: Vec<u64>,
    /// How long its requests took, likewise.
    pub requests: Vec<u64>,
    /// Copied to the GPU, and to the host.
    pub copied: (u64, u64),
    /// How much of its memory is on the GPU, if that is known.
    pub resident: Option<u64>,
    /// How it stands, if that is known; an ended one does not.
    pub state: Option<State>,
    /// It has ended.
    pub is_over: bool,
    /// Something is to be seen of it: it was not idle all the time.
    pub is_active: bool,
}

impl Figures {
    /// Of times in order: the one in the middle, and the longest.
    pub fn middle_and_longest(times: &[u64]) -> Option<(u64, u64)> {
        Some((*times.get(times.len() / 2)?, *times.last()?))
    }
}

/// Sums a stretch of time up.
pub fn summary(timeline: &Timeline, time: &Range<u64>) -> Summary {
    let shares = timeline.shares(time);
    let mut programs: BTreeMap<u32, Figures> = BTreeMap::new();
    for (number, (id, program)) in timeline.programs.iter().enumerate() {
        let is_seen = |state: State, part: Option<Range<u64>>| state != State::Idle && part.is_some();
        let was_active = program.states.iter().any(|span| is_seen(span.what, span.within(time)));
        let was_evicted = program.evicting.iter().any(|span| span.within(time).is_some());
        let figures = Figures {
            name: program.name.clone(),
            class: program.class.clone(),
            look: palette::look(number),
            number,
            share: shares.get(id).copied().unwrap_or(0.0),
            waits: Vec::new(),
            requests: Vec::new(),
            copied: (0, 0),
            resident: program.resident_before,
            state: program.states.now(),
            is_over: program.ended.is_some(),
            is_active: was_active || was_evicted,
        };
        programs.insert(*id, figures);
    }
    let is_in = |done: &&Done| done.time.end >= time.start;
    let sum = |copies: &std::collections::VecDeque<Done>| {
        copies.iter().filter(is_in).fold(0, |sum: u64, done| sum.saturating_add(done.bytes))
    };
    let mut of = |id: Option<u32>, tell: &mut dyn FnMut(&mut Figures)| {
        if let Some(figures) = id.and_then(|id| programs.get_mut(&id)) {
            tell(figures);
        }
    };
    for done in timeline.copies_in.iter().filter(is_in) {
        of(done.id, &mut |figures| figures.copied.0 = figures.copied.0.saturating_add(done.bytes));
    }
    for done in timeline.copies_out.iter().filter(is_in) {
        of(done.id, &mut |figures| figures.copied.1 = figures.copied.1.saturating_add(done.bytes));
    }
    for done in timeline.requests.iter().filter(is_in) {
        of(done.id, &mut |figures| {
            figures.requests.push(done.time.end.saturating_sub(done.time.start));
            figures.is_active = true;
        });
    }
    for wait in timeline.waits.iter().filter(|wait| wait.granted >= time.start) {
        if let Some(launched) = wait.launched {
            of(Some(wait.id), &mut |figures| figures.waits.push(launched.saturating_sub(wait.asked)));
        }
    }
    for (_, id, bytes) in &timeline.resident {
        of(Some(*id), &mut |figures| figures.resident = Some(*bytes));
    }
    for figures in programs.values_mut() {
        figures.waits.sort_unstable();
        figures.requests.sort_unstable();
    }
    Summary {
        switches: timeline.switched.iter().filter(|switch| switch.at >= time.start).count(),
        bytes_in: sum(&timeline.copies_in),
        bytes_out: sum(&timeline.copies_out),
        used: shares.values().fold(0.0, |sum, share| sum + share),
        programs,
    }
}
