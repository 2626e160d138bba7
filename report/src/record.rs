//! The record that a coordinator leaves behind: all events, as lines of JSON, which can be read when it has ended.
//!
//! A record is one text after the other, each of which begins with a line about its coordinator ([`Head`]); every other line is an
//! [`Event`]. The last line of a coordinator that was killed may be cut: unreadable lines are left out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::event::{Event, History, Kind};

/// The coordinator of a record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Head {
    /// [`crate::event::SCHEMA`].
    pub schema: u32,
    /// UUID of the GPU.
    pub gpu: String,
    /// The GPU's name.
    pub gpu_name: String,
    /// The coordinator's socket.
    pub socket: String,
    /// The coordinator's process.
    pub pid: u32,
    /// Time of the coordinator's start, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// The programs that were there when the text began, by number: name and class of each.
    pub programs: BTreeMap<u32, (String, String)>,
}

impl Head {
    /// Notes the programs that come and go.
    pub fn see(&mut self, event: &Event) {
        let Some(id) = event.id else { return };
        match (&event.what, &event.tenant, &event.class) {
            (Kind::Joined, Some(name), Some(class)) => drop(self.programs.insert(id, (name.clone(), class.clone()))),
            (Kind::Departed, ..) => drop(self.programs.remove(&id)),
            _ => {}
        }
    }
}

/// The whole record of a coordinator.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// The coordinator, as the first text names it.
    pub head: Head,
    /// The events, in pieces between which events are missing.
    pub histories: Vec<History>,
}

impl Record {
    /// Reads texts, oldest first; none if no text begins as a record does.
    pub fn of(texts: &[String]) -> Option<Self> {
        let mut record: Option<Self> = None;
        for text in texts {
            let mut lines = text.lines();
            let Some(head) = lines.next().and_then(|line| serde_json::from_str::<Head>(line).ok()) else { continue };
            let record = record.get_or_insert_with(|| Self { head, ..Self::default() });
            lines.filter_map(|line| serde_json::from_str(line).ok()).for_each(|event| record.add(event));
        }
        record
    }

    fn add(&mut self, event: Event) {
        let is_next = self.histories.last().is_some_and(|history| history.next == event.n);
        if !is_next {
            let Head { schema, gpu, started_unix_ms, .. } = &self.head;
            let (schema, gpu, started_unix_ms) = (*schema, gpu.clone(), *started_unix_ms);
            self.histories.push(History { schema, gpu, started_unix_ms, oldest: event.n, ..History::default() });
        }
        let Some(history) = self.histories.last_mut() else { return };
        (history.now_ns, history.next) = (event.ns, event.n + 1);
        history.events.push(event);
    }

    /// Returns the time of the last recorded event, in milliseconds since 1970.
    pub fn end_unix_ms(&self) -> u64 {
        let end = self.histories.last().map_or(0, |history| history.now_ns);
        self.head.started_unix_ms.saturating_add(end / 1_000_000)
    }
}

/// Maximum number of a program's runs that are remembered.
const RUNS: usize = 8;
/// Maximum number of programs that are remembered.
const PROGRAMS: usize = 256;

/// Memory that programs were seen to use, by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seen {
    programs: BTreeMap<String, Runs>,
}

/// The last runs of a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Runs {
    /// The most memory of each run, the last at the end.
    peak_bytes: Vec<u64>,
    /// Time of the last run's end, in milliseconds since 1970.
    ended_unix_ms: u64,
}

impl Seen {
    /// Adds the run of a program that has ended, with the most memory that it had.
    pub fn add(&mut self, name: &str, peak_bytes: u64, ended_unix_ms: u64) {
        let runs = self.programs.entry(name.to_owned()).or_default();
        runs.peak_bytes.push(peak_bytes);
        let most = runs.peak_bytes.len().saturating_sub(RUNS);
        runs.peak_bytes.drain(..most);
        runs.ended_unix_ms = runs.ended_unix_ms.max(ended_unix_ms);
        while self.programs.len() > PROGRAMS {
            let oldest = self.programs.iter().min_by_key(|(_, runs)| runs.ended_unix_ms).map(|(name, _)| name.clone());
            let Some(oldest) = oldest else { return };
            self.programs.remove(&oldest);
        }
    }

    /// Returns the most memory that a program had in its last runs.
    pub fn peak(&self, name: &str) -> Option<u64> {
        self.programs.get(name)?.peak_bytes.iter().max().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(n: u64, what: &str) -> String {
        let event =
            Event { n, ns: n * 10, id: Some(1), tenant: Some("a".to_owned()), what: what.into(), ..Event::default() };
        serde_json::to_string(&event).expect("JSON")
    }

    #[test]
    fn a_record_is_read_as_far_as_it_was_written_and_says_what_is_missing() {
        let head = Head {
            started_unix_ms: 1000,
            programs: [(1, ("a".to_owned(), "batch".to_owned()))].into(),
            ..Head::default()
        };
        let head = serde_json::to_string(&head).expect("JSON");
        let first = [head.clone(), event(7, "granted"), event(8, "opened")].join("\n");
        let cut = &event(12, "departed")[..20];
        let second = [head.as_str(), &event(9, "arrived"), &event(11, "preempted"), cut].join("\n");
        let record = Record::of(&[first, second]).expect("a record");
        let numbers: Vec<(u64, u64, usize)> =
            record.histories.iter().map(|one| (one.oldest, one.next, one.events.len())).collect();
        assert_eq!(numbers, [(7, 10, 3), (11, 12, 1)]);
        assert!(Record::of(&["no record\n".to_owned()]).is_none() && Record::of(&[]).is_none());
    }

    #[test]
    fn programs_are_remembered_with_the_most_of_their_last_runs_and_no_more_than_so_many() {
        let mut seen = Seen::default();
        (0..20).for_each(|run| seen.add("a", if run == 3 { 900 } else { 10 + run }, run));
        assert_eq!((seen.peak("a"), seen.peak("b")), (Some(29), None));
        (0..2 * PROGRAMS as u64).for_each(|at| seen.add(&format!("p{at}"), at, 100 + at));
        assert_eq!((seen.programs.len(), seen.peak("a"), seen.peak("p511")), (PROGRAMS, None, Some(511)));
    }
}
