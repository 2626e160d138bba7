//! `baton bench corun`: the time of requests while other work runs on the same GPU, and the progress of that work. This is the
//! experiment of Tally (ASPLOS'25).
//!
//! Requests arrive at random (Poisson), at a share of the rate that their server can answer alone. Each measurement starts its own
//! programs, and is compared with the same program alone and bare, at the start and at the end of the same run. Every answer, and every
//! result of the batch work, must be the same as alone.

mod report;
mod run;
mod table;

use std::path::PathBuf;

use baton_client::driver::Choice;
use baton_contract::class::Class;
use baton_contract::memory::size;
use baton_harness::Error;
use baton_harness::place::{Ground, Setting};
use baton_harness::stop::Stop;
use baton_messages::Message;
use clap::{Args, ValueEnum};

use crate::output::write_file;
use crate::told;
pub use report::{BatchAlone, Cell, Ratios, Report, ServedAlone, Times};
use run::Run;

/// `baton bench corun`.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Write that JSON object to this file too.
    #[arg(long, value_name = "FILE.json")]
    out: Option<PathBuf>,
    /// The driver to run on: `auto` (the GPU if there is one), `gpu`, `sim` (simulated), or a file.
    #[arg(long, default_value = "sim", value_name = "auto|gpu|sim|PATH")]
    driver: Choice,
    /// Requests in each measurement.
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    requests: u32,
    /// Share of the server's rate alone that is asked of it.
    #[arg(long, default_value_t = 0.5, value_name = "SHARE", value_parser = load)]
    load: f64,
    /// Seed of the times at which requests arrive.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u32,
    /// The servers.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Served::Short, Served::Long])]
    served: Vec<Served>,
    /// The batch work.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Batch::Table, Batch::Train])]
    batch: Vec<Batch>,
}

fn load(word: &str) -> Result<f64, Message> {
    let share = word.parse().ok().filter(|share| *share > 0.0 && *share < 1.0);
    share.ok_or_else(baton_messages::no_share)
}

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Served {
    /// Requests of a few milliseconds.
    Short,
    /// Some times longer ones.
    Long,
}

/// Work without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Batch {
    /// Kernels that take long.
    Table,
    /// A training: many kernels, of which most are short.
    Train,
}

/// An example program.
#[derive(Clone, Copy)]
struct Program {
    name: &'static str,
    class: Class,
    example: &'static str,
    options: &'static str,
}

/// The sizes of programs and arena. All programs fit the arena together.
struct Sizes {
    arena: u64,
    pool: u64,
    short: &'static str,
    long: &'static str,
    table: &'static str,
    train: &'static str,
}

/// With the speeds of [`MODEL`], requests of 4 and 13 ms, kernels of 17 ms, and steps of 9 ms.
const SIMULATED: Sizes = Sizes {
    arena: 128 << 20,
    pool: 128 << 20,
    short: "--width 192 --layers 6 --batch 8 --check 0",
    long: "--width 256 --layers 12 --batch 8 --check 0",
    table: "--megabytes 8 --rounds 1000000 --tell 1",
    train: "--batch 64 --inputs 128 --hidden 256 --steps 1000000 --every 2 --verify 0",
};
const REAL: Sizes = Sizes {
    arena: 16 << 30,
    pool: 1 << 30,
    short: "--width 2048 --layers 8 --batch 4 --check 0",
    long: "--width 3072 --layers 16 --batch 4 --check 0",
    table: "--megabytes 8192 --rounds 1000000 --tell 1",
    train: "--batch 2048 --inputs 1024 --hidden 4096 --steps 1000000 --every 2 --verify 0",
};

/// The simulated driver, where the user has set nothing else. It is slow, so that this machine computes everything well within the
/// modelled times; the slice is NVIDIA's.
const MODEL: [Setting; 4] = [
    ("SIMCUDA_H2D_GBPS", "0.8"),
    ("SIMCUDA_D2H_GBPS", "0.8"),
    ("SIMCUDA_KERNEL_GFLOPS", "1"),
    ("SIMCUDA_TIMESLICE_MS", "2"),
];

/// A way in which both run together.
struct Way {
    name: &'static str,
    /// Options for `baton serve`; none: without Baton.
    serve: Option<&'static [&'static str]>,
}

const WAYS: [Way; 4] = [
    Way { name: "baton", serve: Some(&[]) },
    Way { name: "exclusive", serve: Some(&["--mode", "exclusive"]) },
    Way { name: "no preemption", serve: Some(&["--no-preempt"]) },
    Way { name: "bare", serve: None },
];

/// Measures, and prints a table or one JSON object.
///
/// # Errors
///
/// When a program or a part of Baton is missing, or one of them fails. Differing answers are not an error: the report has them.
pub fn run(options: &Options) -> Result<Report, Error> {
    let report = told(options.json, |say, stop| measure(options, say, stop), table::table)?;
    if let Some(file) = &options.out {
        write_file(file, |out| Ok(serde_json::to_writer(out, &report)?))?;
    }
    Ok(report)
}

fn measure(options: &Options, say: &dyn Fn(&str), stop: &Stop) -> Result<Report, Error> {
    let ground = Ground::new(&options.driver, &MODEL, stop)?;
    let sizes = if ground.simulated { &SIMULATED } else { &REAL };
    let served: Vec<Program> = options.served.iter().map(|served| served.program(sizes)).collect();
    let batch: Vec<Program> = options.batch.iter().map(|batch| batch.program(sizes)).collect();
    say(&format!(
        "on {}: servers and batch work share {}; requests come at {:.0} % of what is possible alone\n",
        ground.driver.device,
        size(sizes.arena),
        options.load * 100.0
    ));
    let mut run = Run::new(&ground, options, sizes, say);
    for program in served.iter().chain(&batch) {
        run.alone(program)?;
    }
    for server in &served {
        for work in &batch {
            for way in &WAYS {
                run.together(way, server, work)?;
            }
        }
    }
    for program in served.iter().chain(&batch) {
        run.alone(program)?;
    }
    Ok(run.report())
}

impl Served {
    fn program(self, sizes: &Sizes) -> Program {
        let (name, options) = match self {
            Self::Short => ("short", sizes.short),
            Self::Long => ("long", sizes.long),
        };
        Program { name, class: Class::Latency, example: "serve_mlp", options }
    }
}

impl Batch {
    fn program(self, sizes: &Sizes) -> Program {
        let (name, example, options) = match self {
            Self::Table => ("table", "large_table", sizes.table),
            Self::Train => ("train", "train_mlp", sizes.train),
        };
        Program { name, class: Class::Batch, example, options }
    }
}
