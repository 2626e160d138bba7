//! Reads traces of `baton trace` more strictly than any viewer: anything that a viewer would drop or guess is an error here.
//!
//! Also the unit tests of the views have this file, as a module of their own.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Something that takes a while, on a track.
#[derive(Clone, Debug)]
pub struct Slice {
    /// The name that it shows.
    pub name: String,
    /// Of which kind it is.
    pub kind: String,
    /// From when to when, in nanoseconds.
    pub time: (u64, u64),
    /// All else that is said of it.
    pub args: Value,
}

/// A trace, as it was read.
#[derive(Debug, Default)]
pub struct TraceFile {
    /// Remarks about the whole.
    pub about: Value,
    /// The names of groups.
    pub groups: BTreeMap<u64, String>,
    /// The names of tracks.
    pub tracks: BTreeMap<(u64, u64), String>,
    /// By track, in order.
    pub slices: BTreeMap<(u64, u64), Vec<Slice>>,
    /// Where arrows begin and end: group, track and nanoseconds.
    pub flows: Vec<[(u64, u64, u64); 2]>,
    /// By group and name: the time in nanoseconds, and how much there is from then on.
    pub counters: BTreeMap<(u64, String), Vec<(u64, f64)>>,
    /// Instants: name, track and time.
    pub instants: Vec<(String, (u64, u64), u64)>,
}

/// Reads a trace.
///
/// # Errors
///
/// The first thing that is not as it should be.
pub fn read(text: &str) -> Result<TraceFile, String> {
    let whole: Value = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
    only(&whole, &["displayTimeUnit", "otherData", "traceEvents"])?;
    let mut read = TraceFile { about: whole["otherData"].clone(), ..TraceFile::default() };
    let mut begun: BTreeMap<u64, (u64, u64, u64)> = BTreeMap::new();
    for event in whole["traceEvents"].as_array().ok_or("no list of events")? {
        read.event(event, &mut begun).map_err(|why| format!("{why}: {event}"))?;
    }
    if !begun.is_empty() {
        return Err(format!("arrows that never end: {begun:?}"));
    }
    read.check()?;
    Ok(read)
}

/// An object with these fields, and no other.
fn only(object: &Value, fields: &[&str]) -> Result<(), String> {
    let found: BTreeSet<&str> = object.as_object().ok_or("no object")?.keys().map(String::as_str).collect();
    let wanted: BTreeSet<&str> = fields.iter().copied().collect();
    if found == wanted { Ok(()) } else { Err(format!("the fields {found:?} are not {wanted:?}")) }
}

fn number(event: &Value, field: &str) -> Result<u64, String> {
    event[field].as_u64().ok_or_else(|| format!("{field} is no whole number"))
}

fn text(event: &Value, field: &str) -> Result<String, String> {
    event[field].as_str().map(str::to_owned).ok_or_else(|| format!("{field} is no text"))
}

/// Microseconds, which have to be whole nanoseconds.
fn nanos(event: &Value, field: &str) -> Result<u64, String> {
    let micros = event[field].as_f64().filter(|micros| *micros >= 0.0).ok_or_else(|| format!("{field} is no time"))?;
    let nanos = micros * 1e3;
    if (nanos - nanos.round()).abs() > 0.01 {
        return Err(format!("{field} is between two nanoseconds"));
    }
    Ok(nanos.round() as u64)
}

impl TraceFile {
    fn event(&mut self, event: &Value, begun: &mut BTreeMap<u64, (u64, u64, u64)>) -> Result<(), String> {
        let (pid, name) = (number(event, "pid")?, text(event, "name")?);
        match text(event, "ph")?.as_str() {
            "M" => {
                only(event, &["ph", "name", "pid", "tid", "args"])?;
                let track = (pid, number(event, "tid")?);
                let args = &event["args"];
                let twice = match name.as_str() {
                    "process_name" => self.groups.insert(pid, text(args, "name")?).is_some(),
                    "thread_name" => self.tracks.insert(track, text(args, "name")?).is_some(),
                    "process_sort_index" | "thread_sort_index" => number(args, "sort_index").map(|_| false)?,
                    _ => return Err("nobody knows this metadata".to_owned()),
                };
                if twice {
                    return Err("it has a name already".to_owned());
                }
            }
            "X" => {
                only(event, &["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"])?;
                let (from, dur) = (nanos(event, "ts")?, nanos(event, "dur")?);
                let slice =
                    Slice { name, kind: text(event, "cat")?, time: (from, from + dur), args: event["args"].clone() };
                self.slices.entry((pid, number(event, "tid")?)).or_default().push(slice);
            }
            "i" => {
                only(event, &["ph", "cat", "name", "s", "pid", "tid", "ts", "args"])?;
                self.instants.push((name, (pid, number(event, "tid")?), nanos(event, "ts")?));
            }
            "C" => {
                only(event, &["ph", "name", "pid", "ts", "args"])?;
                let args = event["args"].as_object().filter(|args| args.len() == 1).ok_or("not one number")?;
                let level = args.values().next().and_then(Value::as_f64).ok_or("no number")?;
                let levels = self.counters.entry((pid, name)).or_default();
                let at = nanos(event, "ts")?;
                if !level.is_finite() || level < 0.0 || levels.last().is_some_and(|(last, _)| *last > at) {
                    return Err("a counter is below nothing, or goes back in time".to_owned());
                }
                levels.push((at, level));
            }
            "s" => {
                only(event, &["ph", "cat", "name", "id", "pid", "tid", "ts"])?;
                let at = (pid, number(event, "tid")?, nanos(event, "ts")?);
                if begun.insert(number(event, "id")?, at).is_some() {
                    return Err("an arrow begins twice".to_owned());
                }
            }
            "f" => {
                only(event, &["ph", "cat", "name", "id", "bp", "pid", "tid", "ts"])?;
                let begin = begun.remove(&number(event, "id")?).ok_or("an arrow ends that has not begun")?;
                let end = (pid, number(event, "tid")?, nanos(event, "ts")?);
                if event["bp"] != "e" || end.2 < begin.2 {
                    return Err("an arrow ends before it begins, or in no slice".to_owned());
                }
                self.flows.push([begin, end]);
            }
            _ => return Err("nobody knows this kind".to_owned()),
        }
        Ok(())
    }

    /// Checks the properties of the whole.
    fn check(&mut self) -> Result<(), String> {
        for (track, slices) in &mut self.slices {
            if !self.tracks.contains_key(track) || !self.groups.contains_key(&track.0) {
                return Err(format!("track {track:?} has no name"));
            }
            slices.sort_by_key(|slice| (slice.time.0, std::cmp::Reverse(slice.time.1)));
            let mut open: Vec<u64> = Vec::new();
            for Slice { time: (from, to), .. } in &*slices {
                open.retain(|end| end > from);
                if open.last().is_some_and(|end| end < to) {
                    return Err(format!("slices of track {track:?} cross at {from}"));
                }
                open.push(*to);
            }
        }
        for (group, name) in self.counters.keys() {
            if !self.groups.contains_key(group) {
                return Err(format!("counter {name} is of no group"));
            }
        }
        for flow in &self.flows {
            let [begin, end] = flow.map(|(pid, tid, at)| self.at((pid, tid), at).map(|slice| slice.time));
            if begin.is_none() || end.is_none() || begin == end {
                return Err(format!("arrow {flow:?} does not lead from a slice to another"));
            }
        }
        if let Some(instant) = self.instants.iter().find(|(_, track, _)| !self.tracks.contains_key(track)) {
            return Err(format!("{instant:?} is on no track"));
        }
        Ok(())
    }

    /// The slice of a track that there is at that time; it ends later.
    pub fn at(&self, track: (u64, u64), at: u64) -> Option<&Slice> {
        let slices = self.slices.get(&track)?;
        slices.iter().rev().find(|slice| slice.time.0 <= at && (at < slice.time.1 || slice.time == (at, at)))
    }

    /// All slices of a kind.
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Slice> {
        self.slices.values().flatten().filter(move |slice| slice.kind == kind)
    }

    /// All bytes that slices of a kind are about.
    pub fn bytes(&self, kind: &str) -> u64 {
        self.of_kind(kind).map(|slice| slice.args["bytes"].as_u64().unwrap_or(0)).sum()
    }

    /// The names of a program's states, in their order: of the group whose name begins so.
    pub fn states(&self, program: &str) -> Vec<&str> {
        let groups = self.groups.iter().filter(|(_, name)| name.as_str().starts_with(program)).map(|(pid, _)| *pid);
        let slices = groups.flat_map(|group| self.slices.range((group, 0)..(group + 1, 0)));
        let states = slices.flat_map(|(_, slices)| slices).filter(|slice| slice.kind == "state");
        states.map(|slice| slice.name.as_str()).collect()
    }
}
