//! `baton demo`: programs that do not fit the GPU together, each alone and then all at once, and whether they
//! compute the same.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use baton_contract::class::Class;
use baton_contract::memory::size;
pub use baton_harness::Error;
use baton_harness::coordinator::Coordinator;
use baton_harness::driver::Choice;
use baton_harness::place::Ground;
use baton_harness::program;
use baton_harness::stop::Stop;
use serde::Serialize;

use crate::table::{plain_table, trimmed};
use crate::told;

/// The programs. A real GPU is faster than the simulated one, so it gets more rounds for the same time.
const PROGRAMS: [Program; 3] = [
    Program {
        name: "serve",
        class: Class::Latency,
        what: "answers now and then",
        sixteenths: 10,
        rounds: [16, 16],
        rest: 150,
    },
    Program {
        name: "train",
        class: Class::Normal,
        what: "works, with short rests",
        sixteenths: 12,
        rounds: [24, 150],
        rest: 20,
    },
    Program {
        name: "sweep",
        class: Class::Batch,
        what: "works all the time",
        sixteenths: 12,
        rounds: [24, 600],
        rest: 0,
    },
];

struct Program {
    name: &'static str,
    class: Class,
    what: &'static str,
    /// Its memory, in sixteenths of the arena.
    sixteenths: u64,
    /// On the simulated driver, and on a GPU.
    rounds: [u32; 2],
    /// After each round, in milliseconds.
    rest: u32,
}

/// How often progress is shown.
const PROGRESS: Duration = Duration::from_millis(700);
const QUANTUM: &str = "20ms";
/// What all of them are.
const EXAMPLE: &str = "large_table";

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

/// Runs the demo and prints its table, or one JSON object.
///
/// # Errors
///
/// When a program or a part of Baton is missing, a program fails, or the GPU was not shared. Differing results
/// are no error here: the report says so.
pub fn run(choice: &Choice, json: bool) -> Result<Report, Error> {
    told(json, |say, stop| show(choice, say, stop), table)
}

fn show(choice: &Choice, say: &dyn Fn(&str), stop: &Stop) -> Result<Report, Error> {
    let ground = Ground::new(choice, &[], stop)?;
    let real = !ground.simulated;
    let arena = if real { 2 << 30 } else { 96 << 20 };

    let needed: u64 = PROGRAMS.iter().map(|program| program.megabytes(arena) << 20).sum();
    say(&format!(
        "on {}: three programs with {} together, alone and then sharing {}\n",
        ground.driver.device,
        size(needed),
        size(arena)
    ));
    let mut tenants = Vec::new();
    for each in &PROGRAMS {
        say(&format!("{:<6} alone …", each.name));
        let mut command = ground.place()?.bare(EXAMPLE, &each.arguments(arena, real))?;
        let done = program::Program::start(format!("{} alone", each.name), &mut command)?.finish(stop)?;
        say(&format!(" {:.1} s ({})\n", done.seconds, each.what));
        tenants.push(Tenant {
            name: each.name.to_owned(),
            class: each.class.word().to_owned(),
            peak_bytes: 0,
            solo_seconds: done.seconds,
            shared_seconds: 0.0,
            solo_result: done.result,
            shared_result: String::new(),
        });
    }

    let place = ground.place()?;
    let coordinator = place.coordinator([arena, 2 * arena], &["--quantum", QUANTUM])?;
    let mut running = Vec::new();
    for each in &PROGRAMS {
        let options = each.arguments(arena, real);
        let mut command = place.tenant(&coordinator, each.name, each.class, EXAMPLE, &options)?;
        running.push(program::Program::start(format!("{} among the others", each.name), &mut command)?);
    }
    watch(&coordinator, &mut running, say, stop)?;
    for (ran, tenant) in running.into_iter().zip(&mut tenants) {
        let done = ran.finish(stop)?;
        (tenant.shared_result, tenant.shared_seconds) = (done.result, done.seconds);
    }
    let status = coordinator.settled(&PROGRAMS.map(|program| program.name), stop)?;
    drop(coordinator);

    for tenant in &mut tenants {
        tenant.peak_bytes = status.peak_bytes(&tenant.name).unwrap_or(0);
    }
    let together: u64 = tenants.iter().map(|tenant| tenant.peak_bytes).sum();
    if status.switches == 0 || status.bytes_in == 0 || status.bytes_out == 0 || together <= status.arena.bytes {
        return Err(Error::NothingShown(status.switches, status.bytes_in + status.bytes_out));
    }
    Ok(Report {
        outputs_match: tenants.iter().all(Tenant::matches),
        driver: ground.driver.device.clone(),
        arena_bytes: status.arena.bytes,
        tenants,
        switches: status.switches,
        bytes_in: status.bytes_in,
        bytes_out: status.bytes_out,
        switch_ms_p50: status.times.switch.p50.unwrap_or(0.0),
        switch_ms_max: status.times.switch.max.unwrap_or(0.0),
    })
}

impl Program {
    fn megabytes(&self, arena: u64) -> u64 {
        (arena >> 20) * self.sixteenths / 16
    }

    fn arguments(&self, arena: u64, real: bool) -> String {
        let (megabytes, rounds, rest) = (self.megabytes(arena), self.rounds[usize::from(real)], self.rest);
        let seed: u32 = self.name.bytes().map(u32::from).sum();
        format!("--megabytes {megabytes} --rounds {rounds} --rest-ms {rest} --seed {seed}")
    }
}

/// Shows how things go until all have ended, or one has failed.
fn watch(
    coordinator: &Coordinator,
    running: &mut [program::Program],
    say: &dyn Fn(&str),
    stop: &Stop,
) -> Result<(), Error> {
    let mut next = Instant::now() + PROGRESS;
    loop {
        let mut all = true;
        for program in running.iter_mut() {
            all &= program.poll()?.is_some();
        }
        if all {
            return Ok(());
        }
        stop.check()?;
        if Instant::now() > next {
            next += PROGRESS;
            let status = coordinator.status()?;
            let states: Vec<_> = status.tenants.iter().map(|t| format!("{} {}", t.name, t.state)).collect();
            say(&format!("       {:<54} {} switches\n", states.join(", "), status.switches));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn table(report: &Report) -> String {
    let mut rows = plain_table(&["program", "class", ">memory", ">alone s", ">sharing s", "result"]);
    for tenant in &report.tenants {
        let result = tenant.shared_result.trim_start_matches("result large_table ");
        rows.add_row([
            tenant.name.to_string(),
            tenant.class.to_string(),
            size(tenant.peak_bytes),
            format!("{:.2}", tenant.solo_seconds),
            format!("{:.2}", tenant.shared_seconds),
            format!("{result}{}", if tenant.matches() { "" } else { "  DIFFERS FROM ALONE" }),
        ]);
    }
    let mut text = format!("\n{}\n", trimmed(&rows));
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
