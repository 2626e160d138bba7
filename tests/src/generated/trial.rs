//! Runs a script bare and under Baton, and compares both.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use baton_harness::program::{Heard, Program};
use baton_harness::stop::Stop;

use super::Script;
use super::exchange::Exchange;
use crate::coordinator::{Coordinator, Place, Serving, program};
use crate::running::Running;
use crate::{Driver, Outcome, built};

/// The programs that execute scripts, and exchanges.
const SCRIPTS: &str = "generated_program";
const EXCHANGES: &str = "generated_exchange";

/// How long a program may make no progress before it is hung.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// How long an eviction may take, also on a machine with much else to do: a program that waits for itself is never idle.
const EVICTION: Duration = Duration::from_millis(1200);
/// A run that takes longer than this is ended, whatever it does.
const LIMIT: Duration = Duration::from_secs(1800);

/// The GPU that programs are alone on, and that which they share: the memory of pools and graphs goes by steps of 32 MiB.
const GPU: &str = "1GiB";

/// Of these, the first is shared.
const GPUS: &str = "2";

/// Baton's pressure on a program meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressure {
    /// Whenever the program rests, its memory is moved to the host.
    Evictions,
    /// Its memory is moved to the host whenever it is idle for a moment, and comes back to frames that are as it left them, or are not.
    Moments,
    /// An urgent program needs most of the GPU now and then, and takes it also in the middle of work.
    Preemption,
    /// A program of the same class needs most of the GPU all the time; work is waited for when turns end.
    Turns,
    /// The coordinator dies whenever a program rests, also in the middle of another one's work, while an urgent one takes turns with them.
    Deaths,
}

/// All of them.
pub const PRESSURES: [Pressure; 5] =
    [Pressure::Evictions, Pressure::Moments, Pressure::Preemption, Pressure::Turns, Pressure::Deaths];

/// The life of a coordinator: programs wait for their turns anew with each.
const LIFE: Duration = Duration::from_millis(300);

/// Between two evictions of [`Pressure::Moments`].
const MOMENT: Duration = Duration::from_millis(5);
/// How often a program is evicted like that. On a loaded machine it may come no further between two evictions, but it has to behind the
/// last one.
const MOMENTS: usize = 150;

/// A coordinator under which programs run, one after the other or several at once.
pub struct Arm {
    /// The pressure that its programs have to bear.
    pub pressure: Pressure,
    coordinator: Coordinator,
    rival: Option<Running>,
    evictions: AtomicUsize,
    /// The last death.
    killed: Mutex<Instant>,
}

/// A program, and what it does bare.
pub struct Expected {
    executor: &'static str,
    file: tempfile::NamedTempFile,
    bare: Outcome,
}

impl Expected {
    /// The outcome of a script without Baton.
    ///
    /// # Errors
    ///
    /// When the program itself is wrong.
    pub fn of_script(script: &Script, patience: Duration) -> Result<Self, Box<Fault>> {
        Self::of(SCRIPTS, &script.to_text(), patience)
    }

    /// The outcome of an exchange without Baton.
    ///
    /// # Errors
    ///
    /// When the program itself is wrong.
    pub fn of_exchange(exchange: &Exchange, patience: Duration) -> Result<Self, Box<Fault>> {
        Self::of(EXCHANGES, &exchange.to_text(), patience)
    }

    fn of(executor: &'static str, text: &str, patience: Duration) -> Result<Self, Box<Fault>> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), text).expect("a file of our own");
        let bare = alone(without_baton, executor, file.path(), patience);
        let expected = Self { executor, file, bare };
        if expected.bare.status != "exit status: 0" || !expected.bare.err.is_empty() {
            return Err(expected.fault("the program itself is wrong".to_owned(), None));
        }
        Ok(expected)
    }

    /// Plays it bare once more, to the same end.
    ///
    /// # Errors
    ///
    /// When it does something else.
    pub fn is_the_same_again(&self, patience: Duration) -> Result<(), Box<Fault>> {
        self.is_the_same_with(without_baton, patience)
    }

    /// Plays it with Baton preloaded where no coordinator is, to the same end.
    ///
    /// # Errors
    ///
    /// When it does something else.
    pub fn is_the_same_without_a_coordinator(&self, patience: Duration) -> Result<(), Box<Fault>> {
        let preloaded = |driver: &Driver, program: PathBuf| {
            let mut command = driver.under_baton(program);
            command.env("BATON_SOCKET", "/nowhere");
            command
        };
        self.is_the_same_with(preloaded, patience)
    }

    fn is_the_same_with(
        &self,
        start: impl FnOnce(&Driver, PathBuf) -> Command,
        patience: Duration,
    ) -> Result<(), Box<Fault>> {
        let again = alone(start, self.executor, self.file.path(), patience);
        if again == self.bare {
            return Ok(());
        }
        Err(self.fault(format!("it does not do the same twice: {again:?}"), None))
    }

    /// Tells whether it does the same under a coordinator.
    ///
    /// # Errors
    ///
    /// The difference.
    pub fn is_the_same_at(&self, place: &Place, name: &str, patience: Duration) -> Result<(), Box<Fault>> {
        self.is_met_by(obeyed(&mut self.joining(place, name, patience), || {}), place)
    }

    fn joining(&self, place: &Place, name: &str, patience: Duration) -> Command {
        let patience = patience.as_secs().to_string();
        let words = [self.file.path().to_str().expect("UTF-8"), "--rests", "--patience", &patience];
        let mut command = place.joining(name, &built().bin.join(self.executor), &words);
        command.env("BATON_REQUIRE", "1").env("BATON_CLASS", "normal");
        command
    }

    fn is_met_by(&self, baton: Outcome, place: &Place) -> Result<(), Box<Fault>> {
        if baton == self.bare {
            return Ok(());
        }
        let fault = self.fault(kind(&self.bare, &baton), Some(baton));
        Err(Box::new(Fault { story: place.story(), ..*fault }))
    }

    fn fault(&self, kind: String, baton: Option<Outcome>) -> Box<Fault> {
        Box::new(Fault { kind, bare: self.bare.clone(), baton, story: String::new() })
    }
}

/// A difference.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Its kind, in a word or a few.
    pub kind: String,
    bare: Outcome,
    baton: Option<Outcome>,
    /// The state of the coordinator, and what it has logged.
    story: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n--- bare: {:?}", self.kind, self.bare)?;
        self.baton.as_ref().map_or(Ok(()), |baton| write!(f, "\n--- under Baton: {baton:?}{}", self.story))
    }
}

impl Arm {
    /// Starts the coordinator, and the program that competes.
    #[track_caller]
    pub fn start(pressure: Pressure) -> Self {
        let serving = Serving::arena("224MiB").memory(GPU).setting("SIMCUDA_GPUS", GPUS).option("--gpu", "0");
        let serving = serving.option("--max-wait", "1s").option("--quantum", "3ms").option("--host-pool", "512MiB");
        let serving = of_driver().into_iter().fold(serving, |serving, (name, value)| serving.setting(&name, &value));
        let serving = match pressure {
            // A slow bus: kernels are launched while their memory comes in.
            Pressure::Evictions => serving.setting("SIMCUDA_H2D_GBPS", "0.05"),
            Pressure::Moments => {
                let slow = serving.setting("SIMCUDA_H2D_GBPS", "0.6").setting("SIMCUDA_D2H_GBPS", "6");
                // Of two that are never paused, the one could have the GPU for longer than the other has patience.
                slow.unpoisoned()
            }
            Pressure::Preemption => serving,
            Pressure::Turns => serving.flag("--no-preempt"),
            Pressure::Deaths => serving.keeper(),
        };
        let coordinator = serving.start();
        let rival = |class: &str, gap: &str| {
            let rounds = ["--rounds", "100000000", "--check", "100000000", "--gap-ms", gap];
            let memory = ["--megabytes", "200", "--small", "0", "--churn", "0", "--pieces", "1"];
            coordinator.run("rival", class, &program("fill_and_check"), &[rounds.as_slice(), &memory].concat())
        };
        let rival = match pressure {
            Pressure::Evictions | Pressure::Moments => None,
            Pressure::Preemption | Pressure::Deaths => Some(rival("latency", "25")),
            Pressure::Turns => Some(rival("normal", "2")),
        };
        if rival.is_some() {
            coordinator.until("the rival has its memory", |status| {
                crate::coordinator::tenant(status, "rival")["resident_bytes"].as_u64() > Some(196 << 20)
            });
        }
        Self { pressure, coordinator, rival, evictions: AtomicUsize::new(0), killed: Mutex::new(Instant::now()) }
    }

    /// Tells whether a program does under Baton what it does bare.
    ///
    /// # Errors
    ///
    /// The difference.
    pub fn compare(&self, expected: &Expected, patience: Duration) -> Result<(), Box<Fault>> {
        expected.is_met_by(self.run(expected, patience), &self.coordinator.place)
    }

    fn run(&self, expected: &Expected, patience: Duration) -> Outcome {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("generated-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let mut command = expected.joining(&self.coordinator.place, &name, patience);
        let mut at_rest = || match self.pressure {
            Pressure::Evictions => self.evict(&name),
            Pressure::Deaths => self.kill_coordinator(),
            // The others come by themselves.
            _ => std::thread::sleep(Duration::from_millis(4)),
        };
        if self.pressure != Pressure::Moments {
            return obeyed(&mut command, at_rest);
        }
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in (0..MOMENTS).take_while(|_| !over.load(Ordering::Relaxed)) {
                    self.evictions.fetch_add(self.coordinator.evict(&name).into(), Ordering::Relaxed);
                    std::thread::sleep(MOMENT);
                }
            });
            let outcome = obeyed(&mut command, &mut at_rest);
            over.store(true, Ordering::Relaxed);
            outcome
        })
    }

    /// Moves a program's memory to the host, if it becomes idle soon.
    fn evict(&self, name: &str) {
        let mut command = self.coordinator.place.baton(&["evict", "--socket"]);
        command.arg(self.coordinator.place.socket()).arg(name).stdout(Stdio::null()).stderr(Stdio::null());
        let mut evicting = command.spawn().expect("baton can be started");
        let end = Instant::now() + EVICTION;
        while evicting.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = evicting.kill();
        let has_moved = evicting.wait().is_ok_and(|status| status.success());
        self.evictions.fetch_add(has_moved.into(), Ordering::Relaxed);
    }

    /// Has the next coordinator go on with all programs, if the last one has had the time to do something.
    fn kill_coordinator(&self) {
        let mut killed = self.killed.lock().expect("no thread panics with it");
        if killed.elapsed() > LIFE {
            self.coordinator.kill_served();
            *killed = Instant::now();
        }
    }

    /// Ends it; the competing program must have done well. Gives how often programs' memory was moved to the host when this asked for it.
    #[track_caller]
    pub fn end(mut self) -> usize {
        if let Some(mut rival) = self.rival.take() {
            assert!(rival.ended().is_none(), "the rival has ended: {} {}", rival.out(), rival.err());
        }
        self.evictions.into_inner()
    }
}

/// The fault in a line that is the same for faults of what is likely the same defect.
fn kind(bare: &Outcome, baton: &Outcome) -> String {
    match baton.status.as_str() {
        "exit status: 0" if baton.out != bare.out => {
            let differs = bare.out.lines().zip(baton.out.lines()).find(|(bare, baton)| bare != baton);
            let what = differs.and_then(|(bare, _)| bare.split_whitespace().nth(1)).unwrap_or("its output");
            format!("{what} differs")
        }
        "exit status: 0" => "it says something".to_owned(),
        "exit status: 3" => {
            let hung = baton.err.lines().filter_map(|line| line.split_once(" is in ")).map(|(_, call)| call);
            let names = hung.filter_map(|call| call.split(|letter: char| !letter.is_alphanumeric()).next());
            format!("hangs in {}", names.collect::<Vec<_>>().join(" and "))
        }
        "exit status: 4" => {
            let why = baton.err.lines().rev().find_map(|line| line.split_once(": ")).map_or("", |(_, why)| why);
            // Whichever call is made next says so.
            if why.ends_with("answered 700") {
                "work touches memory that is not there".to_owned()
            } else {
                format!("fails: {why}")
            }
        }
        status => status.to_owned(),
    }
}

/// Settings of the simulated driver that `GENERATE_DRIVER` lists: `SIMCUDA_WAITING=on SIMCUDA_VERSION=12040`.
fn of_driver() -> Vec<(String, String)> {
    let listed = std::env::var("GENERATE_DRIVER").unwrap_or_default();
    let pairs = listed.split_whitespace().filter_map(|setting| setting.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn without_baton(driver: &Driver, program: PathBuf) -> Command {
    driver.bare(program)
}

/// The outcome of a program that has the GPU to itself.
fn alone(
    start: impl FnOnce(&Driver, PathBuf) -> Command,
    executor: &str,
    script: &Path,
    patience: Duration,
) -> Outcome {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = start(&Driver::simulated(), built().bin.join(executor));
    // If there are two processes, both have this one.
    command.env("SIMCUDA_GPU_FILE", folder.path().join("gpu"));
    command.arg(script).args(["--rests", "--patience", &patience.as_secs().to_string()]);
    command.env("SIMCUDA_MEMORY", GPU).env("SIMCUDA_GPUS", GPUS).envs(of_driver());
    obeyed(&mut command, || {})
}

/// Runs a program to its end, and does something whenever it rests.
fn obeyed(command: &mut Command, mut at_rest: impl FnMut()) -> Outcome {
    let mut program = Program::start_told("a script", command).unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let end = Instant::now() + LIMIT;
    let mut said = String::new();
    let status = loop {
        let left = end.saturating_duration_since(Instant::now());
        match program.hear(left, &Stop::never()).expect("our own child") {
            Heard::Line(line) if line.text == "rest" => {
                at_rest();
                // If it has ended, that is heard next.
                let _ = program.say("");
            }
            Heard::Line(line) => said = said + &line.text + "\n",
            Heard::End(status) => break status.to_string(),
            Heard::Nothing => break "it takes too long".to_owned(),
        }
    };
    Outcome { status, out: said, err: program.errors().expect("a file of our own") }
}
