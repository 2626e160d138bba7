//! `baton bench switch`: the time until a model server answers whose memory was moved to the host, while a trainer has the GPU. This is
//! the experiment of PipeSwitch (OSDI'20, section 6).
//!
//! Each variant is a coordinator of its own with a way of bringing memory in. Before every request all of the server's memory is
//! evicted, and the trainer gets the GPU and its memory back. The server measures each request by itself, and knows as little of Baton
//! as the trainer. Every answer must be the same as with all memory on the GPU.

mod table;

use std::time::{Duration, Instant};

use baton_client::driver::Choice;
use baton_contract::class::Class;
use baton_contract::memory::size;
use baton_harness::Error;
use baton_harness::coordinator::Coordinator;
use baton_harness::place::{Ground, Place, Setting};
use baton_harness::program::Program;
use baton_harness::stop::Stop;
use baton_report::status::Status;
use baton_report::switch::{Phases, Switch};
use baton_report::tenant::State;
use serde::Serialize;

use crate::asked::{Answer, Asked};
use crate::told;

const SERVER: &str = "server";
const TRAINER: &str = "trainer";
/// Uncounted requests at first: from them the coordinator learns the order in which memory is used.
const UNCOUNTED: u32 = 2;
/// Longest time for steps of the coordinator that should be quick.
const SOON: Duration = Duration::from_secs(60);

/// A way of bringing memory in.
struct Variant {
    name: &'static str,
    /// Options for `baton serve`.
    options: &'static [&'static str],
    /// True if there is a trainer, and the server's memory is evicted before every request.
    evicts: bool,
}

/// The variants. The first gives the answers that all others must give.
const VARIANTS: [Variant; 6] = [
    Variant { name: "ready", options: &[], evicts: false },
    Variant { name: "default", options: &[], evicts: true },
    Variant { name: "extent by extent", options: &["--pipeline", "extents"], evicts: true },
    Variant { name: "one group", options: &["--pipeline", "one"], evicts: true },
    Variant { name: "not pipelined", options: &["--pipeline", "off"], evicts: true },
    Variant { name: "no hash", options: &["--no-hash"], evicts: true },
];

/// The sizes of programs and arena.
struct Sizes {
    arena: u64,
    /// The server: layers of `width` x `width` floats, and rows in a request.
    width: u64,
    layers: u64,
    batch: u64,
    trainer_megabytes: u64,
}

/// With the speeds of [`MODEL`], the server's transfer takes 42 ms, and its computing too. Small, so that this machine copies and
/// computes well within the modelled times. A layer just fits 2 MiB.
const SIMULATED: Sizes = Sizes { arena: 96 << 20, width: 724, layers: 16, batch: 8, trainer_megabytes: 80 };
/// These take about as long on a GPU behind PCIe 5.
const REAL: Sizes = Sizes { arena: 4 << 30, width: 4096, layers: 20, batch: 4, trainer_megabytes: 3 << 10 };

/// The simulated driver's speeds, where the user has set no others.
const MODEL: [Setting; 3] =
    [("SIMCUDA_H2D_GBPS", "0.8"), ("SIMCUDA_D2H_GBPS", "0.8"), ("SIMCUDA_KERNEL_GFLOPS", "3.2")];

impl Sizes {
    fn weights(&self) -> u64 {
        self.layers * self.width * self.width * size_of::<f32>() as u64
    }
}

/// The results.
#[derive(Debug, Serialize)]
pub struct Report {
    /// True if every answer was the same as with all memory on the GPU.
    pub outputs_match: bool,
    /// The name of its device, as the driver gives it.
    pub driver: String,
    /// GPU memory that the programs shared.
    pub arena_bytes: u64,
    /// The server's weights.
    pub server_bytes: u64,
    /// The trainer's memory.
    pub trainer_bytes: u64,
    /// Requests for each variant.
    pub repeat: u32,
    /// The ways of bringing memory in.
    pub variants: Vec<Measured>,
}

/// One variant's figures.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// Its name here.
    pub name: String,
    /// Options of `baton serve`.
    pub options: Vec<String>,
    /// Median time of a request, in milliseconds, as the server measured it.
    pub p50_ms: f64,
    /// The longest time.
    pub max_ms: f64,
    /// All times, in order.
    pub requests_ms: Vec<f64>,
    /// True if its answers were those of the first variant.
    pub outputs_match: bool,
    /// The switches to the server; none if there were no others.
    pub switches: Option<Switches>,
}

/// Medians over the switches to the server.
#[derive(Debug, Serialize)]
pub struct Switches {
    /// Milliseconds since the server wanted the GPU. Null: did not happen.
    pub phases: MedianPhases,
    /// Pieces in which its memory came.
    pub groups: f64,
    /// Extents in these pieces.
    pub extents: f64,
    /// Copied to the device, in bytes.
    pub bytes_in: f64,
    /// Copied to the host meanwhile, in bytes: the trainer's.
    pub bytes_out: f64,
    /// Calls of the server that had to wait for memory.
    pub waits: f64,
    /// Duration of these waits together, in milliseconds.
    pub waited_ms: f64,
    /// Copied to the host at the eviction of the server's memory before, in bytes.
    pub evicted_bytes_out: f64,
}

/// The times of events, with the names of `baton status --json`.
#[derive(Debug, Serialize)]
#[allow(missing_docs, reason = "they are the coordinator's words")]
pub struct MedianPhases {
    pub decided_ms: Option<f64>,
    pub granted_ms: Option<f64>,
    pub first_extent_ms: Option<f64>,
    pub first_launch_ms: Option<f64>,
    pub all_resident_ms: Option<f64>,
}

/// Measures, and prints a table or one JSON object.
///
/// # Errors
///
/// When a program or a part of Baton is missing, or one of them fails. Differing answers are not an error: the report has them.
pub fn run(choice: &Choice, repeat: u32, json: bool) -> Result<Report, Error> {
    told(json, |say, stop| measure(choice, repeat, say, stop), table::table)
}

fn measure(choice: &Choice, repeat: u32, say: &dyn Fn(&str), stop: &Stop) -> Result<Report, Error> {
    let ground = Ground::new(choice, &MODEL, stop)?;
    let sizes = if ground.simulated { &SIMULATED } else { &REAL };
    let trainer_bytes = sizes.trainer_megabytes << 20;
    say(&format!(
        "on {}: a server of {} and a trainer of {} share {}\n",
        ground.driver.device,
        size(sizes.weights()),
        size(trainer_bytes),
        size(sizes.arena)
    ));

    let mut wanted = Vec::new();
    let mut variants = Vec::new();
    for variant in &VARIANTS {
        say(&format!("{:<17}", variant.name));
        let measuring = Measuring { place: ground.place()?, sizes, stop };
        let requests = measuring.requests(variant, repeat)?;
        let digests: Vec<_> = requests.iter().map(|request| request.answer.digest.clone()).collect();
        if wanted.is_empty() {
            wanted.clone_from(&digests);
        }
        let counted = &requests[UNCOUNTED as usize..];
        let measured = Measured::new(variant, counted, digests == wanted);
        say(&format!("{:>8.1} ms\n", measured.p50_ms));
        variants.push(measured);
    }
    Ok(Report {
        outputs_match: variants.iter().all(|variant| variant.outputs_match),
        driver: ground.driver.device.clone(),
        arena_bytes: sizes.arena,
        server_bytes: sizes.weights(),
        trainer_bytes,
        repeat,
        variants,
    })
}

/// One request, with its costs.
struct Request {
    answer: Answer,
    /// The switch to the server, and the bytes copied out at its eviction before.
    switch: Option<(Switch, u64)>,
}

/// The measurement of one variant.
struct Measuring<'a> {
    place: Place<'a>,
    sizes: &'a Sizes,
    stop: &'a Stop,
}

impl Measuring<'_> {
    fn requests(&self, variant: &Variant, repeat: u32) -> Result<Vec<Request>, Error> {
        // Memory that no program displaced would come back without a copy, and less would be measured.
        let serving = [variant.options, &["--no-keep"]].concat();
        let coordinator = self.place.coordinator([self.sizes.arena; 2], &serving)?;

        let Sizes { width, layers, batch, .. } = self.sizes;
        let options = format!("--width {width} --layers {layers} --batch {batch} --check 0");
        let mut server = self.place.tenant(&coordinator, SERVER, Class::Latency, "serve_mlp", &options)?;
        let mut server = Asked::start(SERVER, &mut server, self.stop)?;
        let mut trainer = if variant.evicts { Some(self.trainer(&coordinator)?) } else { None };

        let mut requests = Vec::new();
        for number in 0..UNCOUNTED + repeat {
            let Some(trainer) = trainer.as_mut() else {
                requests.push(Request { answer: server.ask(self.stop)?, switch: None });
                continue;
            };
            let before = coordinator.status()?;
            self.evict(&coordinator)?;
            let status = self.until(&coordinator, trainer, "the trainer has the GPU", |status| {
                let here = |tenant: &str| status.tenant(tenant).map(|tenant| (tenant.bytes, tenant.evicted_bytes));
                let (there, has) = (here(SERVER), here(TRAINER));
                let runs = status.tenant(TRAINER).is_some_and(|trainer| trainer.state == State::Running);
                runs && there.is_some_and(|(bytes, evicted)| bytes == evicted) && has.is_some_and(|(_, out)| out == 0)
            })?;
            // The request comes at varying places in the trainer's work.
            std::thread::sleep(Duration::from_millis(u64::from(number) * 7 % 20));
            let answer = server.ask(self.stop)?;
            let last = status.recent.last().map_or(0, |switch| switch.n);
            let new =
                |status: &Status| status.recent.iter().find(|switch| switch.n > last && switch.to == SERVER).cloned();
            let after =
                self.until(&coordinator, trainer, "the switch is written down", |status| new(status).is_some())?;
            let evicted = status.counters.bytes_out - before.counters.bytes_out;
            requests.push(Request { answer, switch: new(&after).map(|switch| (switch, evicted)) });
        }
        server.end(self.stop)?;
        Ok(requests)
    }

    /// Starts a trainer and waits until it has all its memory.
    fn trainer(&self, coordinator: &Coordinator) -> Result<Program, Error> {
        let megabytes = self.sizes.trainer_megabytes;
        // Little work is queued: the time until queued work ends is another question.
        let options = format!("--megabytes {megabytes} --rounds 1000000 --queued 1");
        let mut command = self.place.tenant(coordinator, TRAINER, Class::Batch, "large_table", &options)?;
        let mut trainer = Program::start(TRAINER, &mut command)?;
        self.until(coordinator, &mut trainer, "the trainer has its memory", |status| {
            status.tenant(TRAINER).is_some_and(|trainer| trainer.bytes >= megabytes << 20)
        })?;
        Ok(trainer)
    }

    /// Runs `baton evict`, which returns when all the server's memory is on the host.
    fn evict(&self, coordinator: &Coordinator) -> Result<(), Error> {
        let end = Instant::now() + SOON;
        loop {
            let mut command = self.place.ours("evict");
            command.arg("--socket").arg(&coordinator.address.socket).arg(SERVER);
            match Program::start("baton evict", &mut command)?.finish(self.stop) {
                // On a busy machine the coordinator may not have seen the end of the last request.
                Err(Error::Failed { output, .. }) if output.contains("in use again") && Instant::now() < end => {}
                done => return done.map(drop),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for a status that is wanted, while the trainer works.
    fn until(
        &self,
        coordinator: &Coordinator,
        trainer: &mut Program,
        what: &str,
        wanted: impl Fn(&Status) -> bool,
    ) -> Result<Status, Error> {
        let end = Instant::now() + SOON;
        loop {
            let status = coordinator.status()?;
            if wanted(&status) {
                return Ok(status);
            }
            self.stop.check()?;
            trainer.poll()?;
            if Instant::now() > end {
                return Err(Error::Coordinator(baton_messages::did_not_happen(what)));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Measured {
    fn new(variant: &Variant, requests: &[Request], outputs_match: bool) -> Self {
        let requests_ms: Vec<f64> = requests.iter().map(|request| request.answer.took.as_secs_f64() * 1e3).collect();
        let switches: Vec<_> = requests.iter().filter_map(|request| request.switch.as_ref()).collect();
        Self {
            name: variant.name.to_owned(),
            options: variant.options.iter().map(|&option| option.to_owned()).collect(),
            p50_ms: median(requests_ms.iter().copied()).unwrap_or(0.0),
            max_ms: requests_ms.iter().copied().fold(0.0, f64::max),
            requests_ms,
            outputs_match,
            switches: (!switches.is_empty()).then(|| Switches::of(&switches)),
        }
    }
}

impl Switches {
    fn of(switches: &[&(Switch, u64)]) -> Self {
        let number = |of: fn(&Switch) -> f64| median(switches.iter().map(|(switch, _)| of(switch))).unwrap_or(0.0);
        let phase =
            |of: fn(&Phases) -> Option<f64>| median(switches.iter().filter_map(|(switch, _)| of(&switch.phases)));
        Self {
            phases: MedianPhases {
                decided_ms: phase(|phases| phases.decided_ms),
                granted_ms: phase(|phases| phases.granted_ms),
                first_extent_ms: phase(|phases| phases.first_extent_ms),
                first_launch_ms: phase(|phases| phases.first_launch_ms),
                all_resident_ms: phase(|phases| phases.all_resident_ms),
            },
            groups: number(|switch| switch.groups as f64),
            extents: number(|switch| switch.extents as f64),
            bytes_in: number(|switch| switch.bytes_in as f64),
            bytes_out: number(|switch| switch.bytes_out as f64),
            waits: number(|switch| switch.waits as f64),
            waited_ms: number(|switch| switch.waited_ms),
            evicted_bytes_out: median(switches.iter().map(|(_, evicted)| *evicted as f64)).unwrap_or(0.0),
        }
    }
}

/// The median: the middle value, or the mean of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some((low + high) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median(std::iter::empty()), None);
    }

    #[test]
    fn server_and_trainer_fit_the_arena_alone_and_not_together() {
        for sizes in [SIMULATED, REAL] {
            let trainer = sizes.trainer_megabytes << 20;
            assert!(sizes.weights() < sizes.arena && trainer < sizes.arena);
            assert!(trainer > sizes.arena / 2 && trainer + sizes.weights() > sizes.arena);
            assert!(trainer + sizes.weights() + (16 << 20) < 2 * sizes.arena, "the host pool is as large as the arena");
        }
    }

    #[test]
    fn the_first_variant_is_the_one_that_others_are_compared_with() {
        assert!(!VARIANTS[0].evicts && VARIANTS[1..].iter().all(|variant| variant.evicts));
    }
}
