//! Programs that rest now and then, and whose memory does not fit the GPU together: one after the other, as they have to run without
//! Baton, and at the same time.

use std::time::{Duration, Instant};

use baton_client as client;
use baton_contract::class::Class;
use baton_contract::memory::size;
use baton_harness::Error;
use baton_harness::coordinator::Coordinator;
use baton_harness::place::Ground;
use baton_harness::program::Program;
use baton_harness::stop::Stop;
use baton_views::timeline::Timeline;
use serde::Serialize;

use super::picture;
use super::screen::Screen;

/// Planned duration of each step, in seconds: each program alone, and both together.
pub const PLAN: [f64; 3] = [2.7, 2.7, 3.4];

const PROGRAMS: [Resting; 2] = [
    Resting { name: "train", why: "its data", rounds: 3, rest: 600 },
    Resting { name: "notebook", why: "its user", rounds: 2, rest: 1000 },
];
/// The example that both run.
const EXAMPLE: &str = "large_table";
/// Megabytes of each of its pieces.
const PIECE: u64 = 8;
/// The memory of each, in thirds of the arena.
const THIRDS: u64 = 2;
/// Width of the picture.
const WIDTH: u64 = 60;
/// Delay between two looks at the programs.
const LOOK: Duration = Duration::from_millis(2);

struct Resting {
    name: &'static str,
    /// The reason of its rests.
    why: &'static str,
    rounds: u32,
    /// Length of the rest in the middle of each round, in milliseconds.
    rest: u32,
}

/// The results.
#[derive(Debug, Default, Serialize)]
pub struct Gaps {
    /// True if each program computed the same in both ways.
    pub outputs_match: bool,
    /// GPU memory that the programs shared.
    pub arena_bytes: u64,
    /// Time from each program's start to its end, alone and bare, added up.
    pub one_after_the_other_seconds: f64,
    /// Time from the start of the first to the end of the last.
    pub together_seconds: f64,
    /// The programs.
    pub programs: Vec<Shared>,
    /// Number of times that the GPU changed hands.
    pub switches: u64,
    /// Copied to the device, in bytes.
    pub bytes_in: u64,
    /// Copied to the host, in bytes.
    pub bytes_out: u64,
    /// Time from the first program's joining to the last one's end, by the recorder.
    pub recorded_seconds: f64,
}

/// One program.
#[derive(Debug, Default, Serialize)]
pub struct Shared {
    /// Its name.
    pub name: String,
    /// The most memory that it had.
    pub peak_bytes: u64,
    /// Its run time alone, with the whole GPU.
    pub solo_seconds: f64,
    /// Its run time beside the other.
    pub shared_seconds: f64,
    /// Its last line, alone.
    pub solo_result: String,
    /// Its last line, beside the other.
    pub shared_result: String,
    /// Its time on the GPU, by the recorder.
    pub gpu_seconds: f64,
}

impl Shared {
    /// True if both results are the same, and are results at all.
    fn matches(&self) -> bool {
        self.solo_result == self.shared_result && self.solo_result.ends_with(" ok")
    }
}

impl Gaps {
    /// Returns the result in a sentence.
    pub fn sentence(&self) -> String {
        format!(
            "The two programs together took {:.1} s, against {:.1} s one after the other.",
            self.together_seconds, self.one_after_the_other_seconds
        )
    }
}

/// Runs the programs in both ways.
///
/// # Errors
///
/// When a program or the coordinator fails, or the GPU was not shared.
pub fn run(ground: &Ground<'_>, screen: &Screen<'_>) -> Result<Gaps, Error> {
    let (arena, stop): (u64, &Stop) = (if ground.simulated { 48 << 20 } else { 3 << 30 }, ground.stop);
    let each = arena / 3 * THIRDS;
    screen.line(&format!(
        "\n1  Two programs that rest now and then; {} for each, {} of GPU memory",
        size(each),
        size(arena)
    ));
    let mut gaps = Gaps::default();
    for program in &PROGRAMS {
        let mut command = ground.place()?.bare(EXAMPLE, &program.options(each))?;
        let said = |seconds: f64| format!("   {:<45} {seconds:>4.1} s", program.alone());
        let mut running = Program::start(format!("{} alone", program.name), &mut command)?;
        while running.poll()?.is_none() {
            stop.check()?;
            screen.now(said);
            std::thread::sleep(LOOK);
        }
        let done = running.finish(stop)?;
        screen.over(&said(done.seconds));
        gaps.one_after_the_other_seconds += done.seconds;
        let name = program.name.to_owned();
        gaps.programs.push(Shared { name, solo_seconds: done.seconds, solo_result: done.result, ..Shared::default() });
    }
    together(ground, screen, [arena, each], &mut gaps)?;
    Ok(gaps)
}

impl Resting {
    fn alone(&self) -> String {
        format!("{} alone (waits for {} at times)", self.name, self.why)
    }

    fn options(&self, bytes: u64) -> String {
        let Self { name, rounds, rest, .. } = self;
        let seed: u32 = name.bytes().map(u32::from).sum();
        let megabytes = bytes >> 20;
        // It waits for all of its pieces before it rests, so nothing runs meanwhile.
        let pieces = megabytes / PIECE;
        format!("--megabytes {megabytes} --rounds {rounds} --rest-ms {rest} --queued {pieces} --seed {seed}")
    }
}

fn together(ground: &Ground<'_>, screen: &Screen<'_>, [arena, each]: [u64; 2], gaps: &mut Gaps) -> Result<(), Error> {
    let stop = ground.stop;
    let place = ground.place()?;
    let coordinator = place.coordinator([arena, arena], &[])?;
    let start = Instant::now();
    let mut running = Vec::new();
    for program in &PROGRAMS {
        let options = program.options(each);
        let mut command = place.tenant(&coordinator, program.name, Class::Normal, EXAMPLE, &options)?;
        running.push(Program::start(format!("{} beside the other", program.name), &mut command)?);
    }
    watch(&coordinator, &mut running, screen, stop)?;
    gaps.together_seconds = start.elapsed().as_secs_f64();
    for (ran, shared) in running.into_iter().zip(&mut gaps.programs) {
        let done = ran.finish(stop)?;
        (shared.shared_result, shared.shared_seconds) = (done.result, done.seconds);
    }
    screen.over(&format!("   {:<45} {:>4.1} s", BOTH, gaps.together_seconds));
    let status = coordinator.settled(&PROGRAMS.map(|program| program.name), stop)?;
    for shared in &mut gaps.programs {
        shared.peak_bytes = status.departed_peak(&shared.name).unwrap_or(0);
    }
    let mut timeline = Timeline::default();
    client::see(&coordinator.address.socket, &mut timeline)?;
    drop(coordinator);
    recorded(&timeline, gaps, screen);
    (gaps.arena_bytes, gaps.switches) = (status.arena.bytes, status.switches);
    (gaps.bytes_in, gaps.bytes_out) = (status.counters.bytes_in, status.counters.bytes_out);
    let needed: u64 = gaps.programs.iter().map(|shared| shared.peak_bytes).sum();
    if status.switches == 0
        || status.counters.bytes_in == 0
        || status.counters.bytes_out == 0
        || needed <= status.arena.bytes
    {
        return Err(Error::NothingShown(status.switches, status.counters.bytes_in + status.counters.bytes_out));
    }
    gaps.outputs_match = gaps.programs.iter().all(Shared::matches);
    Ok(())
}

const BOTH: &str = "both at the same time, with Baton";

/// Adds the recorder's figures, and shows a picture of them.
fn recorded(timeline: &Timeline, gaps: &mut Gaps, screen: &Screen<'_>) {
    let found: Vec<_> = gaps.programs.iter().filter_map(|shared| picture::program(timeline, &shared.name)).collect();
    let joined = found.iter().filter_map(|(_, program)| program.states.iter().next()).map(|span| span.from).min();
    let ended = found.iter().filter_map(|(_, program)| program.ended).max();
    let time = joined.unwrap_or(0)..ended.unwrap_or(timeline.now);
    let (shares, seconds) = (timeline.shares(&time), time.end.saturating_sub(time.start) as f64 / 1e9);
    gaps.recorded_seconds = seconds;
    for shared in &mut gaps.programs {
        let Some((id, program)) = picture::program(timeline, &shared.name) else { continue };
        shared.gpu_seconds = shares.get(&id).copied().unwrap_or(0.0) * seconds;
        screen.line(&format!("   {:<9} {}", shared.name, picture::line(program, &time, WIDTH)));
    }
    screen.line(&format!("   {:<9} {}", "", picture::LEGEND));
}

/// Shows the progress until all programs have ended, or one has failed.
fn watch(coordinator: &Coordinator, running: &mut [Program], screen: &Screen<'_>, stop: &Stop) -> Result<(), Error> {
    loop {
        let mut all = true;
        for program in running.iter_mut() {
            all &= program.poll()?.is_some();
        }
        if all {
            return Ok(());
        }
        stop.check()?;
        screen.now(|seconds| {
            let states = coordinator.status().map(|status| status.tenants).unwrap_or_default();
            let states: Vec<_> = states.iter().map(|tenant| format!("{} {}", tenant.name, tenant.state)).collect();
            format!("   both {seconds:.1} s: {}", states.join(", "))
        });
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(solo: &str, shared: &str) -> Shared {
        Shared { solo_result: solo.to_owned(), shared_result: shared.to_owned(), ..Shared::default() }
    }

    #[test]
    fn only_equal_results_that_the_program_found_right_match() {
        assert!(shared("result p 1 ok", "result p 1 ok").matches());
        assert!(!shared("result p 1 ok", "result p 2 ok").matches());
        assert!(!shared("", "").matches());
    }
}
