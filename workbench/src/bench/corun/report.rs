//! The results.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::asked::Answer;

/// The results of one run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// True if every answer, and every result of the batch work, was the same as alone.
    pub outputs_match: bool,
    /// The name of its device, as the driver gives it.
    pub driver: String,
    /// The simulated driver's settings; empty on another driver.
    pub model: BTreeMap<String, String>,
    /// GPU memory that the programs shared.
    pub arena_bytes: u64,
    /// Requests in each measurement.
    pub requests: u32,
    /// The share of the server's rate alone that was asked of it.
    pub load: f64,
    /// The seed of the times at which requests arrived.
    pub seed: u32,
    /// The servers alone.
    pub served: Vec<ServedAlone>,
    /// The batch work alone.
    pub batch: Vec<BatchAlone>,
    /// Both together, in each way.
    pub cells: Vec<Cell>,
}

/// A server alone and bare.
#[derive(Debug, Serialize)]
pub struct ServedAlone {
    /// Its name here.
    pub name: String,
    /// Time of a request if the next one comes only after it.
    pub pace_ms: f64,
    /// Times at the start of the run and at its end. The cells are compared with the mean of both.
    pub alone: Vec<Times>,
}

/// Batch work alone and bare.
#[derive(Debug, Serialize)]
pub struct BatchAlone {
    /// Its name here.
    pub name: String,
    /// Rounds or steps a second, at the start of the run and at its end. The cells are compared with the mean of both.
    pub alone: Vec<f64>,
}

/// A server and batch work on the same GPU.
#[derive(Debug, Serialize)]
pub struct Cell {
    /// The server.
    pub served: String,
    /// The batch work.
    pub batch: String,
    /// The way in which they ran together.
    pub way: String,
    /// Options of `baton serve`; null: they ran without Baton.
    pub options: Option<Vec<String>>,
    /// Times of requests.
    pub times: Times,
    /// Rounds or steps of the batch work a second.
    pub batch_per_second: f64,
    /// All figures relative to those alone.
    pub ratios: Ratios,
    /// Pauses of work; null without Baton.
    pub preemptions: Option<u64>,
    /// True if every answer, and every result of the batch work, was the same as alone.
    pub outputs_match: bool,
}

/// A cell relative to its programs alone.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[allow(missing_docs, reason = "they are the cell's words")]
pub struct Ratios {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub batch: f64,
}

/// Times of requests, from their arrival to their end.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Times {
    /// The shortest time that half of them did not exceed.
    pub p50_ms: f64,
    /// The time that 95 % of them did not exceed.
    pub p95_ms: f64,
    /// The time that 99 % of them did not exceed.
    pub p99_ms: f64,
    /// The longest time.
    pub max_ms: f64,
    /// All times, in order.
    pub requests_ms: Vec<f64>,
}

impl Times {
    pub(crate) fn of(answers: &[Answer]) -> Self {
        let requests_ms: Vec<f64> = answers.iter().map(|answer| answer.took.as_secs_f64() * 1e3).collect();
        let mut sorted = requests_ms.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
            sorted.get(place).copied().unwrap_or_default()
        };
        Self { p50_ms: at(50), p95_ms: at(95), p99_ms: at(99), max_ms: at(100), requests_ms }
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p50 {:.1} ms, p99 {:.1} ms", self.p50_ms, self.p99_ms)
    }
}

impl Report {
    /// Returns the time of a server's request, if it is known yet.
    pub(super) fn pace(&self, server: &str) -> Option<Duration> {
        let alone = self.served.iter().find(|alone| alone.name == server)?;
        Some(Duration::from_secs_f64(alone.pace_ms / 1e3))
    }

    /// Compares the cells with their programs alone.
    pub(super) fn compare(&mut self) {
        for cell in &mut self.cells {
            let served = self.served.iter().filter(|alone| alone.name == cell.served).flat_map(|alone| &alone.alone);
            let times = |of: fn(&Times) -> f64| of(&cell.times) / mean(served.clone().map(of));
            let batch = self.batch.iter().filter(|alone| alone.name == cell.batch).flat_map(|alone| &alone.alone);
            cell.ratios = Ratios {
                p50: times(|times| times.p50_ms),
                p95: times(|times| times.p95_ms),
                p99: times(|times| times.p99_ms),
                batch: cell.batch_per_second / mean(batch.copied()),
            };
        }
        self.outputs_match &= self.cells.iter().all(|cell| cell.outputs_match);
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
    sum / count
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn times(milliseconds: &[u64]) -> Times {
        let answer = |&ms: &u64| Answer { took: Duration::from_millis(ms), digest: String::new() };
        Times::of(&milliseconds.iter().map(answer).collect::<Vec<_>>())
    }

    /// A pair that was measured in one way.
    pub(crate) fn report(outputs_match: bool) -> Report {
        let cell = Cell {
            served: "short".to_owned(),
            batch: "table".to_owned(),
            way: "baton".to_owned(),
            options: Some(Vec::new()),
            times: times(&[6, 8, 12]),
            batch_per_second: 15.0,
            ratios: Ratios::default(),
            preemptions: Some(0),
            outputs_match,
        };
        let alone = vec![times(&[2, 3, 5]), times(&[4, 5, 5])];
        let mut report = Report {
            outputs_match: true,
            driver: "a GPU".to_owned(),
            model: BTreeMap::new(),
            arena_bytes: 1 << 30,
            requests: 3,
            load: 0.5,
            seed: 1,
            served: vec![ServedAlone { name: "short".to_owned(), pace_ms: 2.0, alone }],
            batch: vec![BatchAlone { name: "table".to_owned(), alone: vec![20.0, 30.0] }],
            cells: vec![cell],
        };
        report.compare();
        report
    }

    #[test]
    fn so_many_percent_do_not_exceed_a_quantile() {
        let hundred = times(&(1..=100).rev().collect::<Vec<_>>());
        assert_eq!((hundred.p50_ms, hundred.p95_ms, hundred.p99_ms, hundred.max_ms), (50.0, 95.0, 99.0, 100.0));
        assert_eq!((times(&[7]).p50_ms, times(&[7]).p99_ms), (7.0, 7.0));
        assert_eq!(times(&[1, 2, 3]).p50_ms, 2.0);
    }

    #[test]
    fn a_cell_is_compared_with_the_mean_of_both_times_alone() {
        let ratios = report(true).cells[0].ratios;
        assert_eq!((ratios.p50, ratios.p99, ratios.batch), (2.0, 2.4, 0.6));
        assert!(!report(false).outputs_match);
    }
}
