//! A ribbon: the owner of the GPU and each program's state over time, as lanes of marks beside each other.
//!
//! Spans too short to be drawn become one mark with their neighbours, which tells their number. So a ribbon has a bounded size for any
//! history. [`svg`] draws it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::format::{bytes, duration, rate};
use crate::palette::{self, Look};
use crate::summary::{Part, Summary};
use crate::timeline::{Done, State, Timeline};

pub mod svg;
#[cfg(test)]
mod tests;

/// Places for marks in a lane.
const PLACES: u64 = 600;
/// Parts of the time for which rates are computed.
const PARTS: usize = 240;

/// The meaning of a mark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// The program has the GPU.
    Owner,
    /// The program is in this state.
    State(State),
    /// Memory of the program is on its way to the host.
    Evicting,
    /// A request.
    Request,
    /// Copies, with their rate relative to the fastest: from 0 to 1.
    Copies(f64),
}

/// A mark.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// The start: from 0 to 1.
    pub from: f64,
    /// The end, not before the start.
    pub to: f64,
    /// The meaning.
    pub kind: Kind,
    /// The program's number, which gives the mark its colour; none if the program is unknown.
    pub number: Option<usize>,
    /// The meaning in words.
    pub said: String,
}

/// Marks beside each other, and their subject.
#[derive(Clone, Debug)]
pub struct Lane {
    /// The lane's name.
    pub name: String,
    /// A note on the lane.
    pub note: String,
    /// The program's look, if the lane is a program's.
    pub look: Option<Look>,
    /// The marks, in the order of drawing.
    pub marks: Vec<Mark>,
}

/// All lanes.
#[derive(Clone, Debug)]
pub struct Ribbon {
    /// The stretch of time that the ribbon shows.
    pub time: Range<u64>,
    /// The owner, and copies each way.
    pub gpu: Vec<Lane>,
    /// Lanes of programs that were active, by number.
    pub programs: Vec<Lane>,
    /// The numbers of all other programs.
    pub quiet: Vec<u32>,
    /// The looks of the programs that have a number.
    pub looks: Vec<Look>,
}

/// Lays out a stretch of time. At most `most` programs get lanes, those that had the GPU longest; the others are quiet.
pub fn ribbon(timeline: &Timeline, summary: &Summary, time: &Range<u64>, most: usize) -> Ribbon {
    let of = |id: &u32| summary.programs.get(id);
    let scale = Scale { time: time.clone() };
    let owners = timeline.owner.iter().filter_map(|span| Some((span.within(time)?, span.what)));
    let owner = condensed(owners, &scale).into_iter().map(|many| {
        let (name, number) = of(&many.what).map_or(("one that has left", None), |one| (&one.name, Some(one.number)));
        scale.mark(&many, Kind::Owner, number, name)
    });
    let mut gpu = vec![lane("GPU", String::new(), None, owner.collect())];
    let rates = [&timeline.copies_in, &timeline.copies_out].map(|copies| Rates::of(copies, time));
    let peak = rates.iter().map(Rates::peak).fold(0.0, f64::max);
    for (rates, name) in rates.iter().zip(["to the GPU", "to the host"]) {
        let note = if rates.peak() > 0.0 { format!("max {}", rate(rates.peak())) } else { String::new() };
        gpu.push(lane(name, note, None, rates.marks(&scale, peak, summary)));
    }

    let mut shown: Vec<_> = summary.programs.iter().filter(|(_, one)| one.is_active).collect();
    shown.sort_by(|(_, one), (_, other)| {
        other
            .share
            .total_cmp(&one.share)
            .then(other.requests.count().cmp(&one.requests.count()))
            .then(one.number.cmp(&other.number))
    });
    shown.truncate(most);
    shown.sort_by_key(|(_, one)| one.number);
    let mut requests: BTreeMap<u32, Vec<Range<u64>>> = BTreeMap::new();
    for done in &timeline.requests {
        if let (Some(id), Some(part)) = (done.id, scale.part(&done.time)) {
            requests.entry(id).or_default().push(part);
        }
    }
    let programs = shown
        .iter()
        .map(|(id, figures)| program(timeline, &scale, **id, figures, requests.remove(*id).unwrap_or_default()));
    let programs = programs.collect();
    let quiet = summary.programs.keys().filter(|id| !shown.iter().any(|(shown, _)| shown == id));
    let looks = (0..timeline.programs.len()).map(palette::look).collect();
    Ribbon { time: time.clone(), gpu, programs, quiet: quiet.copied().collect(), looks }
}

fn lane(name: &str, note: String, look: Option<Look>, marks: Vec<Mark>) -> Lane {
    Lane { name: name.to_owned(), note, look, marks }
}

fn program(timeline: &Timeline, scale: &Scale, id: u32, figures: &Part, mut requests: Vec<Range<u64>>) -> Lane {
    let program = &timeline.programs[&id];
    let number = Some(figures.number);
    let states = program.states.iter().filter_map(|span| Some((span.within(&scale.time)?, span.what)));
    let states = condensed(states.filter(|(_, state)| *state != State::Idle), scale);
    let mut marks: Vec<Mark> =
        states.iter().map(|many| scale.mark(many, Kind::State(many.what), number, many.what.word())).collect();
    let evicting = program.evicting.iter().filter_map(|span| Some((span.within(&scale.time)?, ())));
    let evicting = condensed(evicting, scale);
    marks.extend(evicting.iter().map(|many| scale.mark(many, Kind::Evicting, number, "evicting")));
    requests.sort_by_key(|part| (part.start, part.end));
    let requests = condensed(requests.into_iter().map(|part| (part, ())), scale);
    marks.extend(requests.iter().map(|many| scale.mark(many, Kind::Request, number, "request")));
    lane(&figures.name, figures.class.clone().unwrap_or_default(), Some(palette::look(figures.number)), marks)
}

/// The stretch of time that a ribbon shows.
struct Scale {
    time: Range<u64>,
}

impl Scale {
    fn length(&self) -> u64 {
        self.time.end.saturating_sub(self.time.start).max(1)
    }

    fn at(&self, ns: u64) -> f64 {
        (ns.saturating_sub(self.time.start) as f64 / self.length() as f64).min(1.0)
    }

    /// Returns the visible part of a time; a time of no length is a moment.
    fn part(&self, time: &Range<u64>) -> Option<Range<u64>> {
        let (from, to) = (time.start.max(self.time.start), time.end.min(self.time.end));
        (from <= to).then_some(from..to)
    }

    fn mark<T>(&self, many: &Many<T>, kind: Kind, number: Option<usize>, what: &str) -> Mark {
        let Range { start, end } = many.time;
        let since = duration(start - self.time.start);
        let said = match many.count {
            1 => format!("{what} for {}, from {since}", duration(end - start)),
            count => format!("{what} for most of {}, from {since}, {count} changes", duration(end - start)),
        };
        Mark { from: self.at(start), to: self.at(end).max(self.at(start)), kind, number, said }
    }
}

/// One or more spans that make one mark.
struct Many<T> {
    time: Range<u64>,
    /// The subject that took the most time of them.
    what: T,
    count: usize,
}

/// Joins spans that are too short to be seen with their neighbours.
fn condensed<T: Copy + PartialEq>(spans: impl Iterator<Item = (Range<u64>, T)>, scale: &Scale) -> Vec<Many<T>> {
    let place = scale.length().div_ceil(PLACES);
    let place_of = |ns: u64| ns.saturating_sub(scale.time.start) / place;
    let mut all: Vec<Many<T>> = Vec::new();
    let mut sums: Vec<(T, u64)> = Vec::new();
    for (time, what) in spans {
        let length = time.end - time.start;
        let last = all.last_mut().filter(|last| {
            length < place
                && last.time.end - last.time.start < place
                && place_of(last.time.start) == place_of(time.start)
        });
        let Some(last) = last else {
            sums = vec![(what, length)];
            all.push(Many { time, what, count: 1 });
            continue;
        };
        match sums.iter_mut().find(|(known, _)| *known == what) {
            Some((_, sum)) => *sum += length,
            None => sums.push((what, length)),
        }
        last.time.end = last.time.end.max(time.end);
        last.count += 1;
        last.what = sums.iter().max_by_key(|(_, sum)| *sum).map_or(what, |(what, _)| *what);
    }
    all
}

/// Bytes copied in each part of the time, by program.
struct Rates {
    parts: Vec<BTreeMap<Option<u32>, f64>>,
    seconds: f64,
}

impl Rates {
    fn of(copies: &VecDeque<Done>, time: &Range<u64>) -> Self {
        let scale = Scale { time: time.clone() };
        let mut parts = vec![BTreeMap::new(); PARTS];
        for done in copies {
            let Some(part) = scale.part(&done.time) else { continue };
            let whole = done.time.end.saturating_sub(done.time.start).max(1) as f64;
            let (from, to) = (scale.at(part.start) * PARTS as f64, scale.at(part.end) * PARTS as f64);
            let shown = done.bytes as f64 * ((part.end - part.start) as f64 / whole).min(1.0);
            for (at, sums) in parts.iter_mut().enumerate().take(PARTS.min(to as usize + 1)).skip(from as usize) {
                let here = (to.min(at as f64 + 1.0) - from.max(at as f64)).max(0.0);
                if here > 0.0 {
                    *sums.entry(done.id).or_insert(0.0) += shown * here / (to - from);
                }
            }
        }
        Self { parts, seconds: scale.length() as f64 / 1e9 / PARTS as f64 }
    }

    fn per_second(&self, part: &BTreeMap<Option<u32>, f64>) -> f64 {
        part.values().sum::<f64>() / self.seconds
    }

    fn peak(&self) -> f64 {
        self.parts.iter().map(|part| self.per_second(part)).fold(0.0, f64::max)
    }

    fn marks(&self, scale: &Scale, peak: f64, summary: &Summary) -> Vec<Mark> {
        let mut marks = Vec::new();
        for (at, part) in self.parts.iter().enumerate().filter(|(_, part)| !part.is_empty()) {
            let per_second = self.per_second(part);
            let mut whose: Vec<_> =
                part.iter().map(|(id, bytes)| (*bytes, id.and_then(|id| summary.programs.get(&id)))).collect();
            whose.sort_by(|(one, _), (other, _)| other.total_cmp(one));
            let names: Vec<_> = whose
                .iter()
                .take(3)
                .map(|(copied, one)| format!("{} {}", one.map_or("", |one| &one.name), bytes(*copied as u64)))
                .collect();
            let from = at as f64 / PARTS as f64;
            let since = duration((from * scale.length() as f64) as u64);
            marks.push(Mark {
                from,
                to: from + 1.0 / PARTS as f64,
                kind: Kind::Copies((per_second / peak).clamp(0.0, 1.0)),
                number: whose.first().and_then(|(_, one)| Some((*one)?.number)),
                said: format!("{}, from {since}: {}", rate(per_second), names.join(", ")),
            });
        }
        marks
    }
}

/// Returns round times for an axis with at most `most` steps: positions from 0 to 1, and their labels.
pub fn ticks(time: &Range<u64>, most: u64) -> Vec<(f64, String)> {
    let length = time.end.saturating_sub(time.start).max(1);
    let mut power = 1u64;
    let step = loop {
        if let Some(by) = [1, 2, 5].into_iter().find(|by| length / (power * by) <= most) {
            break power * by;
        }
        power *= 10;
    };
    let unit = match step {
        1_000_000_000.. => (1e9, "s"),
        1_000_000.. => (1e6, "ms"),
        1_000.. => (1e3, "µs"),
        _ => (1.0, "ns"),
    };
    let all = (0..=length / step).map(|n| n * step);
    all.map(|at| (at as f64 / length as f64, format!("{} {}", at as f64 / unit.0, unit.1))).collect()
}
