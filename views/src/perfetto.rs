//! A timeline as a trace that [Perfetto](https://ui.perfetto.dev) shows.
//!
//! The form is [Chrome's trace events](https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU), in JSON.
//! Other viewers, `jq` and people read it too, and it needs no library; Perfetto's own protobuf would be smaller. Perfetto calls the
//! form an old one and does not follow all of its rules, so a trace has only its plainest parts: whole slices that never cross,
//! counters, arrows that begin and end inside slices, and names. Times are microseconds since the coordinator began, exact to a
//! nanosecond.
//!
//! | group (`pid`) | track | what it shows |
//! |---|---|---|
//! | the GPU | owner | the owner, and an instant for each time that the GPU changed hands |
//! | | copies to the GPU, to the host | each copy: its program and bytes |
//! | | GB/s to the GPU, to the host | the rate of copies, as counters |
//! | each program | state | the program's state; nothing while it is idle |
//! | | evicting | memory of the program is on its way to the host |
//! | | requests | the program's requests, if its class is latency |
//! | | resident | the program's bytes on the GPU, as a counter |
//!
//! An arrow leads from the moment when a program asks for the GPU to its first launch.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;

use crate::timeline::{Done, Program, State, Switch, Timeline, Wait};

#[cfg(test)]
mod tests;

/// The group of the GPU's tracks. A program's group is its number plus [`FIRST`].
const GPU: u64 = 1;
/// The group of program 0. See [`GPU`].
const FIRST: u64 = 2;

/// Tracks of the GPU.
const OWNER: u64 = 1;
const COPIES_IN: u64 = 10;
const COPIES_OUT: u64 = 1_000_010;
/// Tracks of a program.
const STATE: u64 = 1;
const EVICTING: u64 = 2;
const REQUESTS: u64 = 10;

/// A whole trace, to be written as JSON.
#[derive(Debug, Serialize)]
pub struct Trace<'a> {
    #[serde(rename = "displayTimeUnit")]
    unit: &'static str,
    #[serde(rename = "otherData")]
    about: About<'a>,
    #[serde(rename = "traceEvents")]
    events: Vec<Entry<'a>>,
}

/// The subject of the trace. Its sums are those of `baton status` if the trace covers all time since the coordinator began.
#[derive(Debug, Serialize)]
struct About<'a> {
    gpu: &'a str,
    started_unix_ms: u64,
    from_ns: u64,
    to_ns: u64,
    switches: usize,
    bytes_in: u64,
    bytes_out: u64,
    lost_events: u64,
}

/// One event of a trace. `ph` is its kind; the names are the format's.
#[derive(Debug, Serialize)]
#[serde(tag = "ph")]
enum Entry<'a> {
    /// An event with a duration.
    #[serde(rename = "X")]
    Slice { cat: &'static str, name: &'a str, pid: u64, tid: u64, ts: Micros, dur: Micros, args: SliceArgs },
    /// An event at a moment.
    #[serde(rename = "i")]
    Instant { cat: &'static str, name: &'static str, s: &'static str, pid: u64, tid: u64, ts: Micros, args: Hands<'a> },
    /// An amount from this moment on.
    #[serde(rename = "C")]
    Counter { name: &'static str, pid: u64, ts: Micros, args: Level },
    /// Begins an arrow, in the slice of that moment.
    #[serde(rename = "s")]
    FlowBegin { cat: &'static str, name: &'static str, id: usize, pid: u64, tid: u64, ts: Micros },
    /// Ends the arrow, in the slice of that moment.
    #[serde(rename = "f")]
    FlowEnd { cat: &'static str, name: &'static str, id: usize, bp: &'static str, pid: u64, tid: u64, ts: Micros },
    /// The name or the place of a group or a track.
    #[serde(rename = "M")]
    Metadata { name: &'static str, pid: u64, tid: u64, args: Label },
}

/// Nanoseconds, written as microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Micros(u64);

impl Serialize for Micros {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Exact for a hundred days.
        serializer.serialize_f64(self.0 as f64 / 1e3)
    }
}

#[derive(Debug, Default, Serialize)]
struct SliceArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// True if the slice had not ended when the trace ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    unfinished: bool,
}

#[derive(Debug, Serialize)]
struct Hands<'a> {
    from: &'a str,
    to: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Level {
    Bytes { bytes: u64 },
    Rate { gigabytes: f64 },
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Label {
    Name { name: String },
    Place { sort_index: u64 },
}

/// Makes a trace of a stretch of a timeline's time, for this GPU, whose coordinator began at the given time.
pub fn trace<'a>(timeline: &'a Timeline, time: &Range<u64>, gpu: &'a str, started_unix_ms: u64) -> Trace<'a> {
    let time = time.start..time.end.max(time.start);
    let mut writer = Writer { timeline, time: time.clone(), events: Vec::new() };
    writer.gpu(gpu);
    timeline.programs.iter().for_each(|(id, program)| writer.program(*id, program));
    writer.residents();
    writer.flows();
    let copied = |copies| known(copies, &time).map(|done| done.bytes).fold(0, u64::saturating_add);
    let about = About {
        gpu,
        started_unix_ms,
        from_ns: time.start,
        to_ns: time.end,
        switches: writer.switched().count(),
        bytes_in: copied(&timeline.copies_in),
        bytes_out: copied(&timeline.copies_out),
        lost_events: timeline.lost,
    };
    Trace { unit: "ms", about, events: writer.events }
}

/// Returns the events that ended at the start of that time or later.
fn known<'a>(all: impl IntoIterator<Item = &'a Done>, time: &Range<u64>) -> impl Iterator<Item = &'a Done> {
    let start = time.start;
    all.into_iter().filter(move |done| done.time.end >= start)
}

/// Returns the part of a time that lies in another one. Its length is never negative, even if a record's is.
fn cut(part: &Range<u64>, time: &Range<u64>) -> Range<u64> {
    let from = part.start.clamp(time.start, time.end);
    from..part.end.clamp(from, time.end)
}

/// Puts each event on the first track where it overlaps none. One track is mostly enough.
fn tracks<'a>(all: impl Iterator<Item = &'a Done>, time: &Range<u64>) -> Vec<(u64, Range<u64>, &'a Done)> {
    let mut all: Vec<_> = all.map(|done| (cut(&done.time, time), done)).collect();
    all.sort_by_key(|(time, _)| (time.start, time.end));
    let mut ends: Vec<u64> = Vec::new();
    let on_track = |(time, done): (Range<u64>, &'a Done)| {
        let free = ends.iter().position(|end| *end <= time.start);
        let track = free.unwrap_or_else(|| {
            ends.push(0);
            ends.len() - 1
        });
        ends[track] = time.end;
        (track as u64, time, done)
    };
    all.into_iter().map(on_track).collect()
}

struct Writer<'a> {
    timeline: &'a Timeline,
    time: Range<u64>,
    events: Vec<Entry<'a>>,
}

impl<'a> Writer<'a> {
    fn group(&mut self, pid: u64, name: String) {
        self.events.push(Entry::Metadata { name: "process_name", pid, tid: 0, args: Label::Name { name } });
        let place = Label::Place { sort_index: pid };
        self.events.push(Entry::Metadata { name: "process_sort_index", pid, tid: 0, args: place });
    }

    fn track(&mut self, pid: u64, tid: u64, name: String) {
        self.events.push(Entry::Metadata { name: "thread_name", pid, tid, args: Label::Name { name } });
        let place = Label::Place { sort_index: tid };
        self.events.push(Entry::Metadata { name: "thread_sort_index", pid, tid, args: place });
    }

    fn slice(&mut self, (pid, tid, cat): (u64, u64, &'static str), name: &'a str, part: &Range<u64>, args: SliceArgs) {
        let (ts, dur) = (Micros(part.start), Micros(part.end - part.start));
        self.events.push(Entry::Slice { cat, name, pid, tid, ts, dur, args });
    }

    fn name(&self, id: u32) -> &'a str {
        self.timeline.programs.get(&id).map_or("one that has left", |program| &program.name)
    }

    fn gpu(&mut self, gpu: &str) {
        let timeline = self.timeline;
        self.group(GPU, gpu.to_owned());
        self.track(GPU, OWNER, "owner".to_owned());
        for span in timeline.owner.iter() {
            if let Some(part) = span.within(&self.time) {
                let args = SliceArgs { tenant: Some(span.what), bytes: None, unfinished: span.to.is_none() };
                self.slice((GPU, OWNER, "owner"), self.name(span.what), &part, args);
            }
        }
        for switch in self.switched() {
            let args = Hands { from: self.name(switch.from), to: self.name(switch.to) };
            let ts = Micros(switch.at);
            let (cat, name) = ("switch", "switch");
            self.events.push(Entry::Instant { cat, name, s: "t", pid: GPU, tid: OWNER, ts, args });
        }
        self.copies(COPIES_IN, "copy_in", "copies to the GPU", "GB/s to the GPU", timeline.copies_in.iter());
        self.copies(COPIES_OUT, "copy_out", "copies to the host", "GB/s to the host", timeline.copies_out.iter());
    }

    fn switched(&self) -> impl Iterator<Item = &'a Switch> + use<'a> {
        let start = self.time.start;
        self.timeline.switched.iter().filter(move |switch| switch.at >= start)
    }

    fn copies(
        &mut self,
        first: u64,
        cat: &'static str,
        track: &str,
        counter: &'static str,
        copies: impl Iterator<Item = &'a Done>,
    ) {
        self.track(GPU, first, track.to_owned());
        let mut rates: BTreeMap<u64, (u128, u128)> = BTreeMap::new();
        let mut most = 0;
        for (track, part, done) in tracks(known(copies, &self.time.clone()), &self.time) {
            most = most.max(track);
            let name = done.id.map_or("", |id| self.name(id));
            let args = SliceArgs { tenant: done.id, bytes: Some(done.bytes), unfinished: false };
            self.slice((GPU, first + track, cat), name, &part, args);
            let took = done.time.end.saturating_sub(done.time.start).max(1);
            // Bytes a second, as whole numbers: each rate that is added is taken away again exactly.
            let rate = u128::from(done.bytes) * 1_000_000_000 / u128::from(took);
            if part.start < part.end {
                rates.entry(part.start).or_default().0 += rate;
                rates.entry(part.end).or_default().1 += rate;
            }
        }
        (1..=most).for_each(|extra| self.track(GPU, first + extra, format!("{track} ({})", extra + 1)));
        let mut now = 0u128;
        for (at, (more, less)) in rates {
            now = now + more - less;
            let args = Level::Rate { gigabytes: now as f64 / 1e9 };
            self.events.push(Entry::Counter { name: counter, pid: GPU, ts: Micros(at), args });
        }
    }

    fn program(&mut self, id: u32, program: &'a Program) {
        let pid = FIRST + u64::from(id);
        let class = program.class.as_ref().map_or(String::new(), |class| format!(" ({class})"));
        self.group(pid, format!("{}{class}", program.name));
        self.track(pid, STATE, "state".to_owned());
        for span in program.states.iter().filter(|span| span.what != State::Idle) {
            if let Some(part) = span.within(&self.time) {
                let args = SliceArgs { unfinished: span.to.is_none(), ..SliceArgs::default() };
                self.slice((pid, STATE, "state"), span.what.word(), &part, args);
            }
        }
        let leaving: Vec<_> =
            program.evicting.iter().filter_map(|span| Some((span.within(&self.time)?, span.to.is_none()))).collect();
        if !leaving.is_empty() {
            self.track(pid, EVICTING, "evicting".to_owned());
        }
        for (part, unfinished) in leaving {
            let args = SliceArgs { unfinished, ..SliceArgs::default() };
            self.slice((pid, EVICTING, "evicting"), "evicting", &part, args);
        }
    }

    /// Adds the requests of all programs, and the bytes of each program on the GPU: both are recorded in the order of events.
    fn residents(&mut self) {
        let mut requests: BTreeMap<u32, Vec<&'a Done>> = BTreeMap::new();
        for done in known(&self.timeline.requests, &self.time) {
            if let Some(id) = done.id.filter(|id| self.timeline.programs.contains_key(id)) {
                requests.entry(id).or_default().push(done);
            }
        }
        for (id, requests) in requests {
            let pid = FIRST + u64::from(id);
            let mut most = None;
            for (track, part, _) in tracks(requests.into_iter(), &self.time) {
                most = most.max(Some(track));
                self.slice((pid, REQUESTS + track, "request"), "request", &part, SliceArgs::default());
            }
            for track in most.map_or(0..0, |most| 0..most + 1) {
                let name = if track == 0 { "requests".to_owned() } else { format!("requests ({})", track + 1) };
                self.track(pid, REQUESTS + track, name);
            }
        }
        let timeline = self.timeline;
        let level = |id: u32, at: u64, bytes: u64| {
            let args = Level::Bytes { bytes };
            Entry::Counter { name: "resident", pid: FIRST + u64::from(id), ts: Micros(at), args }
        };
        let start = self.time.start;
        let before = timeline.programs.iter().filter_map(|(id, program)| Some((*id, program.resident_before?)));
        self.events.extend(before.map(|(id, bytes)| level(id, start, bytes)));
        let known = timeline.resident.iter().filter(|(at, id, _)| *at >= start && timeline.programs.contains_key(id));
        self.events.extend(known.map(|(at, id, bytes)| level(*id, *at, *bytes)));
        let gone = timeline.programs.iter().filter_map(|(id, program)| Some((*id, program.ended?.max(start))));
        self.events.extend(gone.map(|(id, at)| level(id, at, 0)));
    }

    fn flows(&mut self) {
        let mut count = 0;
        let mut states: BTreeMap<u32, Vec<(Range<u64>, State)>> = BTreeMap::new();
        for wait in &self.timeline.waits {
            let states = states.entry(wait.id).or_insert_with(|| self.states_of(wait.id));
            let Some((begin, end)) = ends(states, wait) else { continue };
            let (pid, tid, cat, name) = (FIRST + u64::from(wait.id), STATE, "turn", "asked until first launch");
            count += 1;
            self.events.push(Entry::FlowBegin { cat, name, id: count, pid, tid, ts: Micros(begin) });
            self.events.push(Entry::FlowEnd { cat, name, id: count, bp: "e", pid, tid, ts: Micros(end) });
        }
    }

    fn states_of(&self, id: u32) -> Vec<(Range<u64>, State)> {
        let spans = self.timeline.programs.get(&id).map(|program| program.states.iter());
        let shown = spans.into_iter().flatten().filter(|span| span.what != State::Idle);
        shown.filter_map(|span| Some((span.within(&self.time)?, span.what))).collect()
    }
}

/// Returns the start and the end of a wait's arrow, on slices of its program: the first slice in which the program waits after it
/// asked, and the slice in which it first launches. None if one of them is not known.
fn ends(states: &[(Range<u64>, State)], wait: &Wait) -> Option<(u64, u64)> {
    let launched = wait.launched?;
    let runs = |state: State| matches!(state, State::Running | State::RunningArriving);
    let from = |ns: u64| &states[states.partition_point(|(part, _)| part.end <= ns)..];
    let (asked, _) = from(wait.asked).iter().find(|(_, state)| !runs(*state))?;
    let (first, _) = from(launched.max(asked.end)).iter().find(|(_, state)| runs(*state))?;
    (asked.start <= wait.granted).then(|| (asked.start.max(wait.asked), first.start.max(launched)))
}
