//! Totals of a stretch of time, for each program and for the GPU, computed from events.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::timeline::{Done, Program, State, Timeline};

#[cfg(test)]
mod tests;

/// Durations, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Took(Vec<u64>);

impl Took {
    /// Makes a set of these durations.
    fn of(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// The number of durations.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The duration that this percentage of them do not exceed; none if there are no durations.
    pub fn percentile(&self, percent: u32) -> Option<u64> {
        let rank = (self.0.len() * percent as usize).div_ceil(100);
        self.0.get(rank.saturating_sub(1)).copied()
    }

    /// The longest duration.
    pub fn longest(&self) -> Option<u64> {
        self.0.last().copied()
    }
}

/// Durations, of all programs together and of each.
#[derive(Default)]
struct Times {
    all: Vec<u64>,
    each: BTreeMap<u32, Vec<u64>>,
}

impl Times {
    fn add(&mut self, id: Option<u32>, took: u64) {
        self.all.push(took);
        if let Some(id) = id {
            self.each.entry(id).or_default().push(took);
        }
    }
}

/// Totals of a program, or of the GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// The program's name; empty for the GPU.
    pub name: String,
    /// Its class, if known.
    pub class: Option<String>,
    /// The program's number, counted from 0.
    pub number: usize,
    /// The part of the time with the GPU, as the status counts GPU time: from 0 to 1. Programs that run beside others have it at the
    /// same time; the GPU's part is at most 1.
    pub share: f64,
    /// The number of times that it got the GPU from another program.
    pub switches: u64,
    /// Bytes copied to the GPU for it.
    pub bytes_in: u64,
    /// Bytes copied to the host for it.
    pub bytes_out: u64,
    /// Its waits for turns.
    pub waits: Took,
    /// Its requests.
    pub requests: Took,
    /// Bytes of its memory on the GPU, if known.
    pub resident: Option<u64>,
    /// Its state, if known; an ended program has none.
    pub state: Option<State>,
    /// True if it has ended.
    pub is_over: bool,
    /// True if it was not idle all the time.
    pub is_active: bool,
}

/// The totals of a stretch of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// The stretch of time, in nanoseconds since the coordinator began.
    pub time: Range<u64>,
    /// The programs of that time, by number.
    pub programs: BTreeMap<u32, Part>,
    /// The sum over all programs, including their waits and requests.
    pub gpu: Part,
}

impl Summary {
    /// Sums up the last `last` nanoseconds of a timeline, as far as it reaches back.
    pub fn of(timeline: &Timeline, last: u64) -> Self {
        Self::within(timeline, timeline.now.saturating_sub(last).max(timeline.since)..timeline.now)
    }

    /// Sums up a stretch of time.
    pub fn within(timeline: &Timeline, time: Range<u64>) -> Self {
        let is_within = |at: u64| time.start <= at && at <= time.end;
        let mut programs: BTreeMap<u32, Part> = BTreeMap::new();
        for (number, (id, program)) in timeline.programs.iter().enumerate() {
            // A program of which only the number is known had ended before the timeline begins.
            if !program.name.is_empty() && program.ended.is_none_or(|ended| ended >= time.start) {
                programs.insert(*id, part(program, number, &time));
            }
        }
        let add = |id: Option<u32>, tell: &dyn Fn(&mut Part), programs: &mut BTreeMap<u32, Part>| {
            if let Some(part) = id.and_then(|id| programs.get_mut(&id)) {
                tell(part);
            }
        };
        for (id, share) in timeline.shares(&time) {
            add(Some(id), &|part| part.share = share, &mut programs);
        }
        for switch in timeline.switched.iter().filter(|switch| is_within(switch.at)) {
            add(Some(switch.to), &|part| part.switches += 1, &mut programs);
        }
        let ended = |done: &&Done| is_within(done.time.end);
        for copy in timeline.copies_in.iter().filter(ended) {
            add(copy.id, &|part| part.bytes_in = part.bytes_in.saturating_add(copy.bytes), &mut programs);
        }
        for copy in timeline.copies_out.iter().filter(ended) {
            add(copy.id, &|part| part.bytes_out = part.bytes_out.saturating_add(copy.bytes), &mut programs);
        }
        for (_, id, bytes) in &timeline.resident {
            add(Some(*id), &|part| part.resident = Some(*bytes), &mut programs);
        }
        let (mut waits, mut requests): (Times, Times) = Default::default();
        for wait in timeline.waits.iter().filter(|wait| is_within(wait.granted)) {
            waits.add(Some(wait.id), wait.granted.saturating_sub(wait.asked));
        }
        for request in timeline.requests.iter().filter(ended) {
            requests.add(request.id, request.time.end.saturating_sub(request.time.start));
        }
        let mut gpu = Part { waits: Took::of(waits.all), requests: Took::of(requests.all), ..Part::default() };
        for (id, part) in &mut programs {
            part.waits = Took::of(waits.each.remove(id).unwrap_or_default());
            part.requests = Took::of(requests.each.remove(id).unwrap_or_default());
            part.is_active |= part.requests.count() > 0;
        }
        for part in programs.values() {
            gpu.share = (gpu.share + part.share).min(1.0);
            gpu.switches += part.switches;
            gpu.bytes_in = gpu.bytes_in.saturating_add(part.bytes_in);
            gpu.bytes_out = gpu.bytes_out.saturating_add(part.bytes_out);
        }
        Self { time, programs, gpu }
    }
}

/// Returns the totals that a program's own timeline gives.
fn part(program: &Program, number: usize, time: &Range<u64>) -> Part {
    let is_seen = |state: State, part: Option<Range<u64>>| state != State::Idle && part.is_some();
    let was_active = program.states.iter().any(|span| is_seen(span.what, span.within(time)));
    let was_evicted = program.evicting.iter().any(|span| span.within(time).is_some());
    Part {
        name: program.name.clone(),
        class: program.class.clone(),
        number,
        resident: program.resident_before,
        state: program.states.now(),
        is_over: program.ended.is_some(),
        is_active: was_active || was_evicted,
        ..Part::default()
    }
}
