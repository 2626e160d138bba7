//! Programs come and go for hours while coordinators, keepers and programs die and upgrades happen: nothing grows.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Field, State, Tally, Victim, in_state};

/// Time between two samples.
const SAMPLE: Duration = Duration::from_secs(5);
/// Time between two lines about how it goes, which cost more the more there was. Programs are left alone then until they have ended.
const SAY: Duration = Duration::from_secs(60);
/// A coordinator is young for so long.
const YOUNG: Duration = Duration::from_secs(2);
/// A figure may vary by this part of it, and by this much.
const VARIES: (f64, f64) = (0.15, 4.0);

/// Figures by their names, from time to time.
#[derive(Default)]
pub struct Samples(BTreeMap<&'static str, Vec<f64>>);

impl Samples {
    fn take(&mut self, status: &Value) {
        let mut add = |name, value: Option<f64>| {
            if let Some(value) = value {
                self.0.entry(name).or_default().push(value);
            }
        };
        // Its buffers fill in its first seconds, and how long one lives depends on the machine.
        let is_young = status["uptime_seconds"].as_f64() < Some(YOUNG.as_secs_f64());
        let young_or_old = if is_young { "coordinator, young: resident MiB" } else { "coordinator: resident MiB" };
        for (process, memory, descriptors) in [
            ("pid", young_or_old, "coordinator: descriptors"),
            ("keeper", "keeper: resident MiB", "keeper: descriptors"),
        ] {
            let Some(process) = status[process].as_i64() else { continue };
            add(memory, resident_mebibytes(process));
            add(descriptors, std::fs::read_dir(format!("/proc/{process}/fd")).ok().map(|all| all.count() as f64));
        }
        for (name, path) in [
            ("frames", "/arena/frames"),
            ("slabs", "/host_pool/slabs"),
            ("extents", "/extents"),
            ("programs", "/tenants"),
        ] {
            let value = status.pointer(path);
            add(name, value.and_then(|value| value.as_f64().or(value.as_array().map(|all| all.len() as f64))));
        }
    }

    /// The medians of the second and the last quarter of each figure.
    fn quarters(&self) -> impl Iterator<Item = (&'static str, f64, f64)> {
        self.0.iter().map(|(name, values)| {
            let quarter = |from, to| median(&values[values.len() * from / 4..values.len() * to / 4]);
            (*name, quarter(1, 2), quarter(3, 4))
        })
    }

    /// A line for each figure.
    pub fn table(&self) -> String {
        let mut table = String::new();
        for (name, second, last) in self.quarters() {
            let _ = writeln!(table, "  {name}: {second:.1} in the second quarter, {last:.1} in the last (medians)");
        }
        table
    }

    /// The figures that have grown.
    pub fn grown(&self) -> Vec<&'static str> {
        let (part, plus) = VARIES;
        let has_grown = |second: f64, last: f64| last > second * (1.0 + part) + plus;
        self.quarters().filter(|(_, second, last)| has_grown(*second, *last)).map(|(name, ..)| name).collect()
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Memory that belongs to this process alone: what is mapped of files, slabs and frames among it, is others' too.
fn resident_mebibytes(process: i64) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
}

/// Has programs of a state come and go for so long; every few seconds something dies or is upgraded.
pub fn churn(state: State, time: Duration, seed: u64) -> (Tally, Samples) {
    let mut samples = Samples::default();
    let tally = Tally::default();
    in_state(state.serving(), (state, seed), &tally, |field| {
        let begun = Instant::now();
        let (mut sampled, mut said) = (begun, begun);
        while begun.elapsed() < time && !field.over.load(Relaxed) {
            field.something_happens();
            if sampled.elapsed() > SAMPLE {
                samples.take(&field.look().1);
                sampled = Instant::now();
            }
            if said.elapsed() > SAY {
                field.say("churn");
                field.settle();
                said = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(200 + field.dice.below(3000) as u64));
        }
    });
    (tally, samples)
}

impl Field<'_> {
    fn something_happens(&mut self) {
        match self.dice.below(64) {
            0 => self.kill_now(Victim::Keeper),
            1..22 => self.kill_now(Victim::Coordinator),
            22..40 => self.kill_now(Victim::Program),
            _ => self.upgrade(),
        }
    }

    /// Has another coordinator follow, to the end.
    fn upgrade(&mut self) {
        crate::run(&mut self.coordinator.place.upgrade("60s")).succeeded();
    }
}
