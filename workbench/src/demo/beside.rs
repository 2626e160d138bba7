//! A server whose requests come at random times, beside a training that fits the GPU with it: with Baton and without.

use std::time::Duration;

use baton_contract::class::Class;
use baton_harness::Error;
use baton_harness::place::Ground;
use serde::Serialize;

use super::screen::Screen;
use crate::asked::{Answer, Asked};
use crate::bench::corun::Times;
use crate::known::Known;
use crate::working::Working;

/// Planned duration of each step, in seconds: each program alone, and both with Baton and without.
pub const PLAN: [f64; 3] = [3.2, 3.0, 3.4];

/// Uncounted requests at first, one after the other: they measure the time of one.
const PACE: u32 = 11;
/// The share of the server's rate alone that is asked of it.
const LOAD: f64 = 0.3;
/// The time in which requests come.
const WINDOW: Duration = Duration::from_millis(2300);
/// Minimum number of requests, so that one in a hundred is one.
const FEWEST: u32 = 100;
const MOST: u32 = 2000;
/// The seed of the times at which they come.
const SEED: u32 = 1;
/// Duration of the training's measurement alone.
const ALONE: Duration = Duration::from_millis(700);

/// An arena that both fit together.
const ARENA: [u64; 2] = [64 << 20, 2 << 30];
/// The programs' options on the simulated driver, and on a GPU.
const SERVER: [&str; 2] = ["--width 96 --layers 8 --batch 8 --check 0", "--width 2048 --layers 8 --batch 4 --check 0"];
const TRAINING: [&str; 2] = [
    "--batch 64 --inputs 128 --hidden 64 --steps 1000000 --every 1 --verify 0",
    "--batch 2048 --inputs 1024 --hidden 4096 --steps 1000000 --every 2 --verify 0",
];

/// The results.
#[derive(Debug, Default, Serialize)]
pub struct Beside {
    /// True if every answer, and every result of the training, was the same in each way.
    pub outputs_match: bool,
    /// Requests in each measurement.
    pub requests: u32,
    /// Average time between two requests, in milliseconds.
    pub mean_ms: f64,
    /// The server alone, without Baton.
    pub alone: Times,
    /// Steps of the training a second, alone and without Baton.
    pub training_alone: f64,
    /// Both, with Baton.
    pub with_baton: Both,
    /// Both, without it.
    pub without_baton: Both,
}

/// A server and a training on the same GPU.
#[derive(Debug, Default, Serialize)]
pub struct Both {
    /// Times of requests.
    pub times: Times,
    /// Steps of the training a second.
    pub steps_per_second: f64,
}

impl Beside {
    /// Returns the result in a sentence.
    pub fn sentence(&self) -> String {
        let [with, without] = [&self.with_baton, &self.without_baton].map(|both| both.times.p99_ms);
        format!("The server's P99 beside the training is {with:.0} ms, against {without:.0} ms without Baton.")
    }
}

/// Measures each way.
///
/// # Errors
///
/// When a program or the coordinator fails.
pub fn run(ground: &Ground<'_>, screen: &Screen<'_>) -> Result<Beside, Error> {
    let mut run =
        Run { ground, screen, known: Known::default(), found: Beside { outputs_match: true, ..Beside::default() } };
    run.screen.line("\n2  A server with requests at random times, and a training; both fit the GPU");
    run.alone()?;
    run.found.with_baton = run.both(true)?;
    run.found.without_baton = run.both(false)?;
    Ok(run.found)
}

struct Run<'a> {
    ground: &'a Ground<'a>,
    screen: &'a Screen<'a>,
    known: Known,
    found: Beside,
}

impl Run<'_> {
    fn alone(&mut self) -> Result<(), Error> {
        let stop = self.ground.stop;
        let mut command = self.ground.place()?.bare("serve_mlp", self.option(SERVER))?;
        let mut server = Asked::start("the server alone", &mut command, stop)?;
        let first = self.first(&mut server)?;
        let mean = Duration::from_secs_f64(Times::of(&first).p50_ms / 1e3 / LOAD);
        self.found.mean_ms = mean.as_secs_f64() * 1e3;
        self.found.requests = (WINDOW.div_duration_f64(mean) as u32).clamp(FEWEST, MOST);
        self.found.alone = self.requests("the server alone", first, server)?;
        let mut command = self.ground.place()?.bare("train_mlp", self.option(TRAINING))?;
        let mut training = Working::start("the training alone", &mut command, stop)?;
        let wait = || {
            std::thread::sleep(ALONE);
            stop.check()
        };
        (self.found.training_alone, ()) = training.rate(stop, wait)?;
        self.found.outputs_match &= self.known.agrees("training", training.computed());
        self.screen.over(&line("each alone", &self.found.alone, self.found.training_alone));
        Ok(())
    }

    fn both(&mut self, with: bool) -> Result<Both, Error> {
        let (ground, stop) = (self.ground, self.ground.stop);
        let what = if with { "both with Baton" } else { "both without Baton" };
        let place = ground.place()?;
        let arena = ARENA[usize::from(!ground.simulated)];
        let coordinator = with.then(|| place.coordinator([arena, arena], &[])).transpose()?;
        let command = |name, class, example, options| match &coordinator {
            Some(one) => place.tenant(one, name, class, example, options),
            None => place.bare(example, options),
        };
        let mut command_of_training = command("train", Class::Batch, "train_mlp", self.option(TRAINING))?;
        let mut training = Working::start("the training", &mut command_of_training, stop)?;
        let mut command = command("serve", Class::Latency, "serve_mlp", self.option(SERVER))?;
        let mut server = Asked::start("the server", &mut command, stop)?;
        let first = self.first(&mut server)?;
        let (steps_per_second, times) = training.rate(stop, || self.requests(what, first, server))?;
        self.found.outputs_match &= self.known.agrees("training", training.computed());
        self.screen.over(&line(what, &times, steps_per_second));
        Ok(Both { times, steps_per_second })
    }

    fn option(&self, of: [&'static str; 2]) -> &'static str {
        of[usize::from(!self.ground.simulated)]
    }

    /// Makes requests one after the other.
    fn first(&self, server: &mut Asked) -> Result<Vec<Answer>, Error> {
        (0..PACE).map(|_| server.ask(self.ground.stop)).collect()
    }

    /// Makes the counted requests and ends the server.
    fn requests(&mut self, what: &str, first: Vec<Answer>, mut server: Asked) -> Result<Times, Error> {
        let (stop, count) = (self.ground.stop, self.found.requests);
        let mean = Duration::from_secs_f64(self.found.mean_ms / 1e3);
        let mut answered = 0;
        let counted = server.ask_many(count, mean, SEED, stop, || {
            answered += 1;
            self.screen.now(|_| format!("   {what}: {answered} of {count} requests"));
        })?;
        server.end(stop)?;
        let times = Times::of(&counted);
        let digests = first.into_iter().chain(counted).map(|answer| answer.digest);
        self.found.outputs_match &= self.known.agrees("server", (0..).zip(digests));
        Ok(times)
    }
}

/// Returns a line of the table.
fn line(what: &str, times: &Times, steps: f64) -> String {
    let Times { p50_ms, p99_ms, .. } = times;
    format!("   {what:<20} P50 {p50_ms:>5.1} ms   P99 {p99_ms:>6.1} ms   training {steps:>6.1} steps/s")
}
