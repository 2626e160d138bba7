//! A file to which runs add their strikes: rare points get theirs in many runs, and in several processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::tally::Survivors;
use super::{Cells, Outcome, State, Victim};

/// The variable that names the file.
const RECORD: &str = "STRIKES_RECORD";
/// The variable that names the version that is struck, as `git describe` does.
const VERSION: &str = "STRIKES_VERSION";
/// The kind of result.
const KIND: &str = "strikes";

/// All victims of strikes at points.
const ALL: [Victim; 6] = {
    let [coordinator, keeper, program, stopped, late] = super::VICTIMS;
    [coordinator, keeper, program, stopped, late, Victim::Call]
};

/// The file, if there is one.
pub struct Record(Option<PathBuf>);

#[derive(Default, Serialize, Deserialize)]
struct Contents {
    kind: String,
    runs: Vec<OfState>,
}

/// All strikes in a state.
#[derive(Serialize, Deserialize)]
struct OfState {
    kind: String,
    state: State,
    driver: String,
    command: String,
    /// The versions that were struck.
    versions: BTreeSet<String>,
    strikes: usize,
    /// Programs that lived at a strike, summed over the strikes, and those with memory on the host.
    survivors: Survivors,
    partly_evicted: Survivors,
    /// Strikes by point, then by victim.
    cells: BTreeMap<String, BTreeMap<Victim, usize>>,
}

impl OfState {
    fn new(state: State) -> Self {
        Self {
            kind: KIND.to_owned(),
            state,
            driver: "simulated".to_owned(),
            command: "tests/strikes".to_owned(),
            versions: BTreeSet::new(),
            strikes: 0,
            survivors: Survivors::default(),
            partly_evicted: Survivors::default(),
            cells: BTreeMap::new(),
        }
    }
}

impl Record {
    /// The file that the environment names.
    pub fn of_environment() -> Self {
        Self(std::env::var_os(RECORD).map(PathBuf::from))
    }

    /// The strikes of a state so far.
    pub fn cells(&self, state: State) -> Cells {
        let Some(contents) = self.0.as_ref().and_then(|path| File::open(path).ok()).map(|file| read(&file)) else {
            return Cells::new();
        };
        let of_state = contents.runs.into_iter().filter(|run| run.state == state);
        let points = of_state.flat_map(|run| run.cells);
        points
            .flat_map(|(point, victims)| {
                victims.into_iter().map(move |(victim, count)| ((point.clone(), victim), count))
            })
            .collect()
    }

    /// Adds the strikes of a run.
    pub fn add(&self, outcome: &Outcome) {
        let Some(path) = &self.0 else { return };
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        // Other processes add theirs.
        file.lock().expect("a file of our own");
        let mut contents = read(&file);
        KIND.clone_into(&mut contents.kind);
        let all = &mut contents.runs;
        let place = all.iter().position(|run| run.state == outcome.state).unwrap_or_else(|| {
            all.push(OfState::new(outcome.state));
            all.len() - 1
        });
        let run = &mut all[place];
        run.versions.insert(std::env::var(VERSION).unwrap_or_else(|_| "unknown".to_owned()));
        run.strikes += outcome.tally.strikes();
        let [survivors, partly_evicted] = outcome.tally.survivors(&ALL);
        run.survivors += survivors;
        run.partly_evicted += partly_evicted;
        for ((point, victim), count) in &outcome.cells {
            *run.cells.entry(point.clone()).or_default().entry(*victim).or_default() += count;
        }
        // A line for each point.
        let text = serde_json::to_string(&contents).expect("plain data").replace("},\"", "},\n\"") + "\n";
        file.rewind().and_then(|()| file.set_len(0)).and_then(|()| file.write_all(text.as_bytes())).expect("written");
    }
}

fn read(mut file: &File) -> Contents {
    let mut text = String::new();
    file.read_to_string(&mut text).expect("a text");
    if text.is_empty() { Contents::default() } else { serde_json::from_str(&text).expect("a record of strikes") }
}
