//! Tries whether work can be taken off a GPU in the middle of a kernel: a coordinator of its own has two small programs of class batch
//! and latency take turns.

use std::ffi::{CStr, c_void};
use std::io::Write as _;
use std::ptr;
use std::time::{Duration, Instant};

use baton_client::driver::Choice;
use baton_contract::class::Class;
use baton_harness::Error;
use baton_harness::coordinator::Coordinator;
use baton_harness::place::Ground;
use baton_harness::program::Program;
use baton_harness::stop::Stop;
use clap::{Args, ValueEnum};

use crate::{CliError, open_gpu};

/// Arena and host pool. The programs use next to nothing.
const MEMORY: u64 = 64 << 20;
/// Longest time for any step; contexts are made in it.
const LIMIT: Duration = Duration::from_secs(30);
/// Longest time until the coordinator knows the parts of a working program that can be paused.
const SOON: Duration = Duration::from_secs(2);

/// `baton trial`: one of the two programs. They know nothing of Baton.
#[derive(Clone, Debug, Args)]
pub struct Trial {
    /// The part of this program.
    part: Part,
    /// The GPU, counted from 0.
    #[arg(long, default_value_t = 0)]
    gpu: usize,
}

/// The work of a program in the trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// A kernel of a few tenths of a second, on the simulated driver too.
    Long,
    /// As good as nothing.
    Short,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Long => "long",
            Self::Short => "short",
        }
    }

    fn class(self) -> Class {
        match self {
            Self::Long => Class::Batch,
            Self::Short => Class::Latency,
        }
    }

    fn rounds(self) -> u32 {
        match self {
            Self::Long => 1 << 27,
            Self::Short => 1,
        }
    }
}

/// Kernels that the simulated driver knows.
const PTX: &CStr =
    match CStr::from_bytes_with_nul(concat!(include_str!("../../../examples/kernels/kernels.ptx"), "\0").as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("the text has a zero inside"),
    };
const FLOATS: u32 = 8;

/// Tries it. Returns the reason why work cannot be paused, or none if it can.
pub(super) fn why_not(driver: &Choice, gpu: usize) -> Result<Option<String>, Error> {
    let stop = Stop::on_signals()?;
    let ground = Ground::new(driver, &[], &stop)?;
    let place = ground.place()?;
    let number = gpu.to_string();
    // One at a time: if both ran at once, nothing would have to be paused.
    let coordinator = place.coordinator([MEMORY; 2], &["--mode", "exclusive", "--gpu", &number])?;
    let start = |part: Part| {
        let options = format!("trial {} --gpu {gpu}", part.name());
        let mut command = place.tenant(&coordinator, part.name(), part.class(), "baton", &options)?;
        let mut program = Program::start_told(part.name(), &mut command)?;
        program.line(LIMIT, &stop)?;
        Ok::<_, Error>(program)
    };
    let (mut long, mut short) = (start(Part::Long)?, start(Part::Short)?);
    let end = Instant::now() + SOON;
    while !coordinator.status()?.tenant(Part::Long.name()).is_some_and(|tenant| tenant.preemptible) {
        stop.check()?;
        if Instant::now() > end {
            return Ok(Some(why(&coordinator, baton_messages::NOTHING_TO_PAUSE)));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    for program in [&mut long, &mut short] {
        // If it has ended, its last words explain more than an error here.
        let _ = program.say("go");
        program.line(LIMIT, &stop)?;
    }
    // The short program's end.
    short.line(LIMIT, &stop)?;
    let pauses = coordinator.status()?.counters.preemptions;
    long.line(LIMIT, &stop)?;
    Ok((pauses == 0).then(|| why(&coordinator, baton_messages::KERNEL_HAD_ENDED)))
}

/// Returns the driver's answer to the coordinator, if the log has it.
fn why(coordinator: &Coordinator, otherwise: &str) -> String {
    let said = coordinator.address.said();
    let refused = said.lines().find_map(|line| line.split_once("its work: "));
    refused.map_or(otherwise, |(_, answer)| answer).to_owned()
}

/// Plays one of the programs: it reports that it is ready, that it has begun, and that all its work has ended.
///
/// # Errors
///
/// The driver's errors.
pub fn play(trial: &Trial) -> Result<(), CliError> {
    let gpu = open_gpu(None, trial.gpu)?;
    let (kernel, stream, mark) = (gpu.kernel(PTX, c"busy")?, gpu.stream()?, gpu.mark()?);
    let bytes = u64::from(FLOATS) * size_of::<f32>() as u64;
    let buffer = gpu.allocate(bytes)?;
    // SAFETY: the buffer is ours alone.
    unsafe { gpu.fill(buffer, 0, bytes, stream) }?;
    gpu.set(&mark, stream)?;
    gpu.wait(&mark)?;
    let mut output = std::io::stdout();
    writeln!(output, "ready")?;
    std::io::stdin().read_line(&mut String::new())?;
    let rounds = trial.part.rounds();
    let arguments: [*const c_void; 3] =
        [ptr::from_ref(&buffer).cast(), ptr::from_ref(&FLOATS).cast(), ptr::from_ref(&rounds).cast()];
    // SAFETY: types and order are the kernel's, and the buffer has so many floats.
    unsafe { gpu.launch(kernel, 1, 32, &arguments.map(<*const c_void>::cast_mut), stream) }?;
    gpu.set(&mark, stream)?;
    writeln!(output, "begun")?;
    gpu.wait(&mark)?;
    writeln!(output, "ended")?;
    Ok(())
}
