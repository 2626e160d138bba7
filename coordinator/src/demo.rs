//! `baton demo`: programs that do not fit the GPU together, each alone and then all at once, and whether they
//! compute the same.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use baton_contract::class::Class;
use serde::{Deserialize, Serialize};

use crate::cli::client;
use crate::cli::units::size;
use crate::driver::{self, Choice, Driver};
use crate::install::{Install, Missing};

/// The programs: name, class, what it does, megabytes in units of a sixteenth of the arena, rounds, rest.
const PROGRAMS: [Program; 3] = [
    Program {
        name: "serve",
        class: Class::Latency,
        what: "answers now and then",
        sixteenths: 10,
        rounds: 16,
        rest: 150,
    },
    Program {
        name: "train",
        class: Class::Normal,
        what: "works, with short rests",
        sixteenths: 12,
        rounds: 24,
        rest: 20,
    },
    Program { name: "sweep", class: Class::Batch, what: "works all the time", sixteenths: 12, rounds: 24, rest: 0 },
];

struct Program {
    name: &'static str,
    class: Class,
    what: &'static str,
    sixteenths: u64,
    rounds: u32,
    rest: u32,
}

/// How long anything in the demo may take.
const LIMIT: Duration = Duration::from_secs(300);
/// How often progress is shown.
const PROGRESS: Duration = Duration::from_millis(700);
const QUANTUM: &str = "20ms";

/// What the demo found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether every program computed the same sharing the GPU as alone, and the GPU was shared.
    pub outputs_match: bool,
    /// What the driver calls its device.
    pub driver: String,
    /// How much GPU memory the programs shared.
    pub arena_bytes: u64,
    /// The programs.
    pub tenants: Vec<Tenant>,
    /// How often the GPU changed hands.
    pub switches: u64,
    /// Copied to the device, in bytes.
    pub bytes_in: u64,
    /// Copied to the host, in bytes.
    pub bytes_out: u64,
    /// Median time of a switch, from the decision to the opening of the incoming program's gate.
    pub switch_ms_p50: f64,
    /// The longest of the last 256.
    pub switch_ms_max: f64,
}

/// One program.
#[derive(Debug, Serialize)]
pub struct Tenant {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: String,
    /// The most memory that it had.
    pub peak_bytes: u64,
    /// How long it took alone, with the whole GPU.
    pub solo_seconds: f64,
    /// How long it took among the others.
    pub shared_seconds: f64,
    /// Its last line, alone.
    pub solo_result: String,
    /// Its last line, among the others.
    pub shared_result: String,
}

impl Tenant {
    /// Whether both results are the same, and are results at all.
    fn matches(&self) -> bool {
        self.solo_result == self.shared_result && self.solo_result.ends_with(" ok")
    }
}

/// Why the demo could not be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no driver to run on.
    #[error(transparent)]
    Driver(#[from] driver::Error),
    /// A part of Baton is not there.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A program failed.
    #[error("{program} failed ({status}):\n{output}")]
    Failed {
        /// The program's name, and how it ran.
        program: String,
        /// Its exit status.
        status: String,
        /// All it printed.
        output: String,
    },
    /// The coordinator does not answer.
    #[error("the coordinator: {0}")]
    Coordinator(String),
    /// The programs ran, but did not have to share.
    #[error("nothing was shown: {0} switches, {1} bytes moved; is something else using the GPU?")]
    NothingShown(u64, u64),
    /// The system refused something ordinary.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// What is read of the coordinator's status.
#[derive(Deserialize)]
struct Status {
    arena: Arena,
    host_pool: Pool,
    switches: u64,
    bytes_in: u64,
    bytes_out: u64,
    switch_ms_p50: Option<f64>,
    switch_ms_max: Option<f64>,
    tenants: Vec<Present>,
    departed: Vec<Departed>,
}

#[derive(Deserialize)]
struct Arena {
    bytes: u64,
}

#[derive(Deserialize)]
struct Pool {
    bytes: u64,
    ready_bytes: u64,
}

#[derive(Deserialize)]
struct Present {
    name: String,
    state: String,
}

#[derive(Deserialize)]
struct Departed {
    name: String,
    peak_bytes: u64,
}

/// A coordinator that ends with this value.
struct Coordinator {
    process: Child,
    socket: PathBuf,
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.process),
            rustix::process::Signal::TERM,
        );
        let _ = self.process.wait();
    }
}

impl Coordinator {
    fn start(mut command: Command, socket: PathBuf) -> Result<Self, Error> {
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut started = Self { process, socket };
        let end = Instant::now() + LIMIT;
        loop {
            match started.status() {
                Ok(status) if status.host_pool.ready_bytes == status.host_pool.bytes => return Ok(started),
                Err(Error::Coordinator(_)) if started.process.try_wait()?.is_some() => {
                    let mut said = String::new();
                    if let Some(mut output) = started.process.stderr.take() {
                        std::io::Read::read_to_string(&mut output, &mut said)?;
                    }
                    return Err(Error::Coordinator(said.lines().last().unwrap_or("it ended").to_owned()));
                }
                Err(error) if Instant::now() > end => return Err(error),
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn status(&self) -> Result<Status, Error> {
        let text = client::status(&self.socket).map_err(|error| Error::Coordinator(error.to_string()))?;
        serde_json::from_slice(&text).map_err(|error| Error::Coordinator(error.to_string()))
    }
}

/// Runs the demo and prints its table, or one JSON object.
///
/// # Errors
///
/// When a program or a part of Baton is missing, a program fails, or the GPU was not shared. Differing results
/// are no error here: the report says so.
pub fn run(choice: &Choice, json: bool) -> Result<Report, Error> {
    let install = Install::of_this_program()?;
    install.shim()?;
    let program = install.example("large_table")?;
    let driver = Driver::choose(choice, &install)?;
    let scratch = tempfile::tempdir()?;
    let arena = if driver.is(&install.simulated_driver().ok()) { 96 << 20 } else { 2 << 30 };
    let say = |text: &str| {
        if !json {
            print!("{text}");
            let _ = std::io::stdout().flush();
        }
    };

    let needed: u64 = PROGRAMS.iter().map(|program| program.megabytes(arena) << 20).sum();
    say(&format!(
        "on {}: three programs with {} together, alone and then sharing {}\n",
        driver.device,
        size(needed),
        size(arena)
    ));
    let mut tenants = Vec::new();
    for each in &PROGRAMS {
        say(&format!("{:<6} alone …", each.name));
        let mut command = driver.bare(&program, scratch.path())?;
        command.args(each.arguments(arena));
        let (result, seconds) = finish(&format!("{} alone", each.name), spawn(command)?)?;
        say(&format!(" {seconds:.1} s ({})\n", each.what));
        tenants.push(Tenant {
            name: each.name.to_owned(),
            class: each.class.word().to_owned(),
            peak_bytes: 0,
            solo_seconds: seconds,
            shared_seconds: 0.0,
            solo_result: result,
            shared_result: String::new(),
        });
    }

    let socket = scratch.path().join("baton.sock");
    let mut serve = driver.quiet(&install.command());
    serve.arg("serve").args(driver.option()).args(["--arena", &arena.to_string(), "--quantum", QUANTUM]);
    serve.args(["--host-pool", &(2 * arena).to_string()]).arg("--socket").arg(&socket);
    serve.env("SIMCUDA_GPU_FILE", scratch.path().join("gpu"));
    let coordinator = Coordinator::start(serve, socket)?;
    let mut running = Vec::new();
    for each in &PROGRAMS {
        let mut command = driver.quiet(&install.command());
        command.arg("run").arg("--socket").arg(&coordinator.socket);
        command
            .args(["--name", each.name, "--class", each.class.word(), "--"])
            .arg(&program)
            .args(each.arguments(arena));
        command.env("SIMCUDA_GPU_FILE", scratch.path().join("gpu"));
        running.push((each.name, spawn(command)?));
    }
    watch(&coordinator, &mut running, &say)?;
    for ((name, ran), tenant) in running.into_iter().zip(&mut tenants) {
        (tenant.shared_result, tenant.shared_seconds) = finish(&format!("{name} among the others"), ran)?;
    }
    let status = settled(&coordinator)?;
    drop(coordinator);

    for tenant in &mut tenants {
        let departed = status.departed.iter().find(|departed| departed.name == tenant.name);
        tenant.peak_bytes = departed.map_or(0, |departed| departed.peak_bytes);
    }
    if status.switches == 0 || status.bytes_in == 0 || status.bytes_out == 0 {
        return Err(Error::NothingShown(status.switches, status.bytes_in + status.bytes_out));
    }
    let report = Report {
        outputs_match: tenants.iter().all(Tenant::matches),
        driver: driver.device,
        arena_bytes: status.arena.bytes,
        tenants,
        switches: status.switches,
        bytes_in: status.bytes_in,
        bytes_out: status.bytes_out,
        switch_ms_p50: status.switch_ms_p50.unwrap_or(0.0),
        switch_ms_max: status.switch_ms_max.unwrap_or(0.0),
    };
    if json {
        println!("{}", serde_json::to_string(&report).map_err(std::io::Error::from)?);
    } else {
        print!("{}", table(&report));
    }
    Ok(report)
}

impl Program {
    fn megabytes(&self, arena: u64) -> u64 {
        (arena >> 20) * self.sixteenths / 16
    }

    fn arguments(&self, arena: u64) -> Vec<String> {
        let seed: u32 = self.name.bytes().map(u32::from).sum();
        let numbers = [
            ("--megabytes", self.megabytes(arena).to_string()),
            ("--rounds", self.rounds.to_string()),
            ("--rest-ms", self.rest.to_string()),
            ("--seed", seed.to_string()),
        ];
        numbers.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }
}

/// A program that runs, and since when; ended with this value.
struct Running {
    process: Child,
    start: Instant,
    seconds: Option<f64>,
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.seconds.is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

impl Running {
    /// Whether it has ended.
    fn ended(&mut self) -> std::io::Result<bool> {
        if self.seconds.is_none() && self.process.try_wait()?.is_some() {
            self.seconds = Some(self.start.elapsed().as_secs_f64());
        }
        Ok(self.seconds.is_some())
    }
}

fn spawn(mut command: Command) -> Result<Running, Error> {
    let process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    Ok(Running { process, start: Instant::now(), seconds: None })
}

/// Waits for a program: its last line, and how long it ran.
fn finish(program: &str, mut running: Running) -> Result<(String, f64), Error> {
    // Its few lines fit the pipes, so it never waits for us to read them.
    while !running.ended()? {
        if running.start.elapsed() > LIMIT {
            return Err(Error::Failed {
                program: program.to_owned(),
                status: "no end in sight".to_owned(),
                output: String::new(),
            });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let status = running.process.wait()?;
    let mut text = String::new();
    if let Some(mut output) = running.process.stdout.take() {
        std::io::Read::read_to_string(&mut output, &mut text)?;
    }
    if !status.success() {
        if let Some(mut output) = running.process.stderr.take() {
            std::io::Read::read_to_string(&mut output, &mut text)?;
        }
        return Err(Error::Failed { program: program.to_owned(), status: status.to_string(), output: text });
    }
    let seconds = running.seconds.unwrap_or_default();
    Ok((text.lines().last().unwrap_or_default().to_owned(), seconds))
}

/// Shows how things go until all have ended.
fn watch(coordinator: &Coordinator, running: &mut [(&str, Running)], say: &dyn Fn(&str)) -> Result<(), Error> {
    let mut next = Instant::now() + PROGRESS;
    loop {
        let mut all = true;
        for (_, program) in running.iter_mut() {
            all &= program.ended()?;
            if program.start.elapsed() > LIMIT {
                return Ok(());
            }
        }
        if all {
            return Ok(());
        }
        if Instant::now() > next {
            next += PROGRESS;
            let status = coordinator.status()?;
            let states: Vec<_> = status.tenants.iter().map(|t| format!("{} {}", t.name, t.state)).collect();
            say(&format!("       {:<54} {} switches\n", states.join(", "), status.switches));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// How things stand when the coordinator has noticed that all have ended.
fn settled(coordinator: &Coordinator) -> Result<Status, Error> {
    let end = Instant::now() + LIMIT;
    loop {
        let status = coordinator.status()?;
        if status.tenants.is_empty() && status.departed.len() >= PROGRAMS.len() {
            return Ok(status);
        }
        if Instant::now() > end {
            return Err(Error::Coordinator("it does not notice that programs have ended".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn table(report: &Report) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "\n{:<8} {:<8} {:>10} {:>9} {:>10}  result",
        "program", "class", "memory", "alone s", "sharing s"
    );
    for tenant in &report.tenants {
        let _ = writeln!(
            text,
            "{:<8} {:<8} {:>10} {:>9.2} {:>10.2}  {}{}",
            tenant.name,
            tenant.class,
            size(tenant.peak_bytes),
            tenant.solo_seconds,
            tenant.shared_seconds,
            tenant.shared_result.trim_start_matches("result large_table "),
            if tenant.matches() { "" } else { "  DIFFERS FROM ALONE" }
        );
    }
    let _ = writeln!(
        text,
        "{} of GPU memory; {} switches, median {:.1} ms, longest {:.1} ms; {} in, {} out",
        size(report.arena_bytes),
        report.switches,
        report.switch_ms_p50,
        report.switch_ms_max,
        size(report.bytes_in),
        size(report.bytes_out)
    );
    let verdict = if report.outputs_match { "every result is the same" } else { "results differ: this is a bug" };
    let _ = writeln!(text, "{verdict}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(solo: &str, shared: &str) -> Tenant {
        Tenant {
            name: "t".to_owned(),
            class: "normal".to_owned(),
            peak_bytes: 1,
            solo_seconds: 1.0,
            shared_seconds: 2.0,
            solo_result: solo.to_owned(),
            shared_result: shared.to_owned(),
        }
    }

    #[test]
    fn only_equal_results_that_the_program_found_right_match() {
        assert!(tenant("result p 1 ok", "result p 1 ok").matches());
        assert!(!tenant("result p 1 ok", "result p 2 ok").matches());
        assert!(!tenant("", "").matches());
    }

    #[test]
    fn the_programs_fit_the_arena_alone_and_not_together() {
        for arena in [96 << 20, 2 << 30] {
            let sizes: Vec<u64> = PROGRAMS.iter().map(|program| program.megabytes(arena) << 20).collect();
            // Each has a few small allocations besides.
            assert!(sizes.iter().all(|bytes| bytes + (4 << 20) <= arena));
            assert!(sizes.iter().sum::<u64>() > 2 * arena);
        }
    }

    #[test]
    fn the_table_names_a_program_whose_result_differs() {
        let report = Report {
            outputs_match: false,
            driver: "a GPU".to_owned(),
            arena_bytes: 1 << 30,
            tenants: vec![tenant("result p 1 ok", "result p 2 ok")],
            switches: 3,
            bytes_in: 1,
            bytes_out: 1,
            switch_ms_p50: 1.0,
            switch_ms_max: 2.0,
        };
        let text = table(&report);
        assert!(text.contains("DIFFERS FROM ALONE") && text.contains("this is a bug"), "{text}");
    }
}
