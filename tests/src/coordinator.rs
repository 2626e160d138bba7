//! A coordinator of a simulated GPU for one test, in a folder of its own, and programs under it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use baton_client::{self as client, NoAnswer};
use baton_contract::messages::Opening;
use baton_harness::coordinator::{self, Address, Signal};
use baton_harness::stop::Stop;
use serde_json::Value;

use crate::running::{Running, signal};
use crate::{Driver, LIMIT, Outcome, built, clean};

/// Has a coordinator be one process: the one that a test has started.
const NO_KEEPER: &str = "--no-keeper";

/// The settings with which a coordinator is started.
#[derive(Clone, Debug)]
pub struct Serving {
    memory: String,
    options: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Serving {
    /// A GPU of 512 MiB with this arena, a host pool of 192 MiB, a quantum of 5 ms, and no keeper. Freed and
    /// evicted memory is poisoned.
    ///
    /// Each coordinator clears its pool's pages, and the tests start hundreds: those that need more ask for it.
    pub fn arena(arena: &str) -> Self {
        let serving = Self { memory: "512MiB".to_owned(), options: Vec::new(), environment: Vec::new() };
        let serving = serving.option("--arena", arena).option("--host-pool", "192MiB").option("--quantum", "5ms");
        serving.flag("--poison").flag(NO_KEEPER)
    }

    /// The same for programs that take little memory, with a smaller pool.
    pub fn small(arena: &str) -> Self {
        Self::arena(arena).option("--host-pool", "96MiB")
    }

    /// Another value for an option, or one more option.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        let word = |name: &str| format!("{name}=");
        self.options.retain(|option| !option.starts_with(&word(name)));
        self.options.push(word(name) + value);
        self
    }

    /// One more option, without a value.
    #[must_use]
    pub fn flag(mut self, name: &str) -> Self {
        self.options.push(name.to_owned());
        self
    }

    /// With its page and its metrics, on a free port of this machine.
    #[must_use]
    pub fn with_page(self) -> Self {
        self.option("--host-pool", "256MiB").option("--http", "127.0.0.1:0")
    }

    /// Freed and evicted memory stays as it is until another program gets it, as usual.
    #[must_use]
    pub fn unpoisoned(mut self) -> Self {
        self.options.retain(|option| option != "--poison");
        self
    }

    /// With a keeper, which starts the next coordinator however often one dies.
    #[must_use]
    pub fn keeper(mut self) -> Self {
        self.options.retain(|option| option != NO_KEEPER);
        self.option("--restarts", "1000")
    }

    /// The simulated GPU's size.
    #[must_use]
    pub fn memory(mut self, memory: &str) -> Self {
        self.memory = memory.to_owned();
        self
    }

    /// A setting of the simulated driver, for the coordinator and all programs.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    fn place(&self) -> Place {
        let folder = tempfile::tempdir().expect("a temporary folder").keep();
        let mut environment = self.environment.clone();
        environment.push(("SIMCUDA_MEMORY".to_owned(), self.memory.clone()));
        environment.push(("SIMCUDA_GPU_FILE".to_owned(), folder.join("gpu").display().to_string()));
        // Sockets that no option names come here too.
        environment.push(("XDG_RUNTIME_DIR".to_owned(), folder.join("runtime").display().to_string()));
        environment.push(("XDG_STATE_HOME".to_owned(), folder.join("state").display().to_string()));
        let address = Address::in_folder(&folder);
        Place { folder, address, environment, started_coordinator: false }
    }

    /// The folder and environment alone: no coordinator is started.
    pub fn prepare(&self) -> Prepared {
        let place = self.place();
        std::fs::create_dir(place.folder.join("runtime")).expect("a new folder");
        Prepared { place, options: self.options.clone() }
    }

    /// Starts a coordinator and waits until it serves.
    #[track_caller]
    pub fn start(&self) -> Coordinator {
        Coordinator::start(self.prepare().into(), None)
    }

    /// The same, by another command that runs this one, and ends it when it is killed itself.
    #[track_caller]
    pub fn start_as(&self, around: impl Fn(&Command) -> Command) -> Coordinator {
        Coordinator::start(self.prepare().into(), Some(&around))
    }
}

impl Coordinator {
    /// Starts one more in the same place, with the same options, where the first has ended.
    #[track_caller]
    pub fn again(&self) -> Self {
        Self::start(self.prepared.clone(), None)
    }

    /// Starts one in a place that was prepared.
    #[track_caller]
    pub fn of(prepared: Prepared) -> Self {
        Self::start(prepared.into(), None)
    }

    /// The same, by another command that becomes this one.
    #[track_caller]
    pub fn of_as(prepared: Prepared, around: impl Fn(&Command) -> Command) -> Self {
        Self::start(prepared.into(), Some(&around))
    }

    /// The place in which it was started.
    pub fn prepared(&self) -> &Prepared {
        &self.prepared
    }

    #[track_caller]
    fn start(prepared: Arc<Prepared>, around: Option<&dyn Fn(&Command) -> Command>) -> Self {
        let mut place = prepared.place.clone();
        place.started_coordinator = true;
        let (address, stop) = (place.address.clone(), Stop::never());
        let started = match around {
            Some(around) => coordinator::Coordinator::start_wrapped(&mut around(&prepared.serve()), address, &stop),
            None => coordinator::Coordinator::start(&mut prepared.serve(), address, &stop),
        };
        let process = started.unwrap_or_else(|error| panic!("{error}\n{}", place.address.said()));
        Self { process, place, prepared }
    }
}

/// Folder and environment for a coordinator; both are gone when this is.
pub struct Prepared {
    /// Where everything lies.
    pub place: Place,
    options: Vec<String>,
}

impl Prepared {
    /// The `baton serve` command, not yet run.
    pub fn serve(&self) -> Command {
        let mut command = self.place.baton(&["serve", "--driver", "sim"]);
        command.arg("--socket").arg(self.place.socket()).args(&self.options);
        command
    }

    /// The same, for all GPUs, at their usual sockets.
    pub fn serve_all(&self) -> Command {
        let mut command = self.place.baton(&["serve", "--driver", "sim"]);
        command.args(&self.options);
        command
    }

    /// Runs `baton serve` that should not get far.
    #[track_caller]
    pub fn serve_in_vain(&self) -> Outcome {
        let mut served = Running::start(&mut self.serve(), false, None);
        let status = served.end(LIMIT);
        assert_eq!(status.code(), Some(1), "{}", served.err());
        served.finish(LIMIT)
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.place.folder);
    }
}

/// Where a coordinator lies, and how its programs find it.
#[derive(Clone, Debug)]
pub struct Place {
    folder: PathBuf,
    address: Address,
    environment: Vec<(String, String)>,
    started_coordinator: bool,
}

impl Place {
    /// The folder of this test.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The coordinator's socket.
    pub fn socket(&self) -> PathBuf {
        self.address.socket.clone()
    }

    /// A `baton` command, in the environment of this place.
    pub fn baton(&self, words: &[&str]) -> Command {
        let mut command = clean(built().bin.join("baton"));
        command.args(words).envs(self.environment.iter().cloned());
        command
    }

    /// A command that has the version that is built follow the coordinator, if it is ready within this time.
    pub fn upgrade(&self, within: &str) -> Command {
        let mut command = self.baton(&["upgrade", "--timeout", within, "--socket"]);
        command.arg(self.socket());
        command
    }

    /// A program under this driver with Baton preloaded and this place's environment; it finds the coordinator by
    /// `BATON_SOCKET`.
    pub fn joining(&self, name: &str, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Driver::simulated().under_baton(program);
        command.args(arguments).envs(self.environment.iter().cloned());
        command.env("BATON_SOCKET", self.socket()).env("BATON_NAME", name).env_remove("BATON_LOG");
        command
    }

    /// How things stand, if a coordinator answers.
    ///
    /// # Errors
    ///
    /// When none does.
    pub fn try_status(&self) -> Result<Value, NoAnswer> {
        self.address.status()
    }

    /// All that may help to understand what went wrong.
    pub fn story(&self) -> String {
        let mut story = String::new();
        if !self.started_coordinator {
            return story;
        }
        match self.try_status() {
            Ok(mut status) => {
                // The last few are enough.
                for list in ["recent", "allocations"] {
                    if let Some(records) = status.get_mut(list).and_then(Value::as_array_mut) {
                        records.drain(..records.len().saturating_sub(4));
                    }
                }
                let _ = write!(story, "\n--- status\n{status:#}");
                for tenant in status["tenants"].as_array().into_iter().flatten() {
                    let pid = tenant["pid"].as_i64().unwrap_or(0) as i32;
                    let _ = write!(story, "\n--- threads of {}\n{}", tenant["name"], crate::running::threads(pid));
                }
            }
            Err(error) => {
                let _ = write!(story, "\n--- status\n{error}");
                for pid in crate::running::processes_that_know_of(&self.folder) {
                    let _ = write!(story, "\n--- threads of process {pid}\n{}", crate::running::threads(pid));
                }
            }
        }
        let log = self.address.said();
        let lines: Vec<_> = log.lines().collect();
        let _ = write!(story, "\n--- the coordinator's log\n{}", lines[lines.len().saturating_sub(60)..].join("\n"));
        story
    }
}

/// A running coordinator.
pub struct Coordinator {
    process: coordinator::Coordinator,
    /// Where it lies.
    pub place: Place,
    prepared: Arc<Prepared>,
}

impl Coordinator {
    /// Its process.
    pub fn pid(&self) -> i32 {
        self.process.pid() as i32
    }

    /// Its log.
    pub fn log(&self) -> String {
        self.place.address.said()
    }

    /// How things stand.
    #[track_caller]
    pub fn status(&self) -> Value {
        self.place.try_status().unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// Waits until the status is as wanted, and gives it.
    #[track_caller]
    pub fn until(&self, what: &str, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        let end = Instant::now() + LIMIT;
        loop {
            let status = self.status();
            if wanted(&status) {
                return status;
            }
            assert!(Instant::now() < end, "never: {what}{}", self.place.story());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Moves all memory of an idle tenant to the host, as `baton evict` does; false if it came into use again meanwhile, or has
    /// left.
    #[track_caller]
    pub fn evict(&self, name: &str) -> bool {
        // Asked from here: tests do this by the thousand, and a process for each takes longer than what it asks for.
        let request = Opening::Evict { name: name.to_owned() };
        let end = Instant::now() + LIMIT;
        let answer = client::ask_patiently(&self.place.socket(), &request, None, &mut || {
            assert!(Instant::now() < end, "evicting {name} never ends{}", self.place.story());
        });
        let answer = answer.unwrap_or_else(|error| panic!("evicting {name}: {error}\n{}", self.log()));
        let answer = answer.expect("there is no other end");
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        let error = answer["error"].as_str();
        let expected = ["in use again", "has left", "no program called"];
        if let Some(error) = error.filter(|error| !expected.iter().any(|reason| error.contains(reason))) {
            panic!("evicting {name}: {error}{}", self.place.story());
        }
        error.is_none()
    }

    /// Evicts these tenants again and again, with such pauses, while something else happens. Returns its result, and how often
    /// they were evicted.
    pub fn evicting<T>(&self, names: &[String], pause: Duration, meanwhile: impl FnOnce() -> T) -> (T, usize) {
        let (over, evictions) = (AtomicBool::new(false), AtomicUsize::new(0));
        let gave = std::thread::scope(|scope| {
            // However this ends: a program that fails must not leave the evictions going on for ever.
            let _end = SetAtEnd(&over);
            for name in names {
                let (over, evictions) = (&over, &evictions);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        evictions.fetch_add(usize::from(self.evict(name)), Ordering::Relaxed);
                        std::thread::sleep(pause);
                    }
                });
            }
            meanwhile()
        });
        (gave, evictions.into_inner())
    }

    /// Waits until the host pool is ready: from then on open descriptors can be compared.
    #[track_caller]
    pub fn until_ready(&self) -> Value {
        self.until("the host pool is ready", |status| {
            status["host_pool"]["ready_bytes"] == status["host_pool"]["bytes"]
        })
    }

    /// Waits until a tenant is in a state.
    #[track_caller]
    pub fn until_tenant_is(&self, name: &str, state: &str) -> Value {
        self.until(&format!("{name} is {state}"), |status| tenant(status, name)["state"] == state)
    }

    /// Waits until a tenant's memory is on its way in.
    #[track_caller]
    pub fn until_arriving(&self, name: &str) -> Value {
        self.until(&format!("{name}'s memory comes in"), |status| tenant(status, name)["arriving"] == true)
    }

    /// Starts a program with `baton run`.
    #[track_caller]
    pub fn run(&self, name: &str, class: &str, program: &Path, arguments: &[&str]) -> Running {
        let mut command = self.place.baton(&["run", "--name", name, "--class", class, "--driver", "sim", "--socket"]);
        command.arg(self.place.socket()).arg("--").arg(program).args(arguments);
        Running::start(&mut command, false, Some(self.place.clone()))
    }

    /// Starts a program that joins by its environment alone, and obeys lines.
    #[track_caller]
    pub fn join(&self, name: &str, program: &Path, arguments: &[&str]) -> Running {
        let mut command = self.place.joining(name, program, arguments);
        Running::start(&mut command, true, Some(self.place.clone()))
    }

    /// Ends it with a signal; how it ended.
    #[track_caller]
    pub fn end(&mut self, number: i32) -> ExitStatus {
        let signal = Signal::from_named_raw(number).expect("a signal");
        let ended = self.process.end(signal, LIMIT).expect("our own child");
        ended.unwrap_or_else(|| panic!("the coordinator does not end\n{}", self.log()))
    }

    /// Kills the process that serves, but not its keeper, and waits until the next one serves.
    #[track_caller]
    pub fn kill_served(&self) {
        let before = self.served();
        signal(before, libc::SIGKILL);
        self.until_next(before);
    }

    /// Has the process that serves die after something that it did not hear, and waits until the next one serves.
    #[track_caller]
    pub fn kill_served_after(&self, unheard: impl FnOnce()) {
        let before = self.served();
        signal(before, libc::SIGSTOP);
        unheard();
        signal(before, libc::SIGKILL);
        self.until_next(before);
    }

    /// Runs a command about one program, `baton suspend` for example.
    pub fn asked(&self, word: &str, name: &str) -> Outcome {
        crate::run(self.place.baton(&[word, name, "--socket"]).arg(self.place.socket()))
    }

    /// The process that serves now.
    #[track_caller]
    pub fn served(&self) -> i32 {
        self.status()["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a process")
    }

    /// Waits until another process serves in place of this one, which has died.
    #[track_caller]
    pub fn until_next(&self, before: i32) {
        let end = Instant::now() + LIMIT;
        let serves = |status: &Value| status["pid"].as_i64().is_some_and(|pid| pid != i64::from(before));
        while !self.place.try_status().as_ref().is_ok_and(serves) {
            assert!(Instant::now() < end, "none takes over{}", self.place.story());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until it has ended by itself.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.process.ended().expect("our own child") {
                return status;
            }
            assert!(Instant::now() < end, "the coordinator does not end\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until no program has anything any more.
    #[track_caller]
    pub fn until_empty(&self) -> Value {
        self.until("nothing is left over", |status| {
            status["tenants"].as_array().is_some_and(Vec::is_empty)
                && status["extents"] == 0
                && status["arena"]["lent_bytes"] == 0
                && status["host_pool"]["used_bytes"] == 0
        })
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.place.story());
        }
    }
}

/// Ends a coordinator that has outlived the keeper which the test has started, and its keeper with it.
pub struct EndsWhatServes<'a>(pub &'a Coordinator);

impl Drop for EndsWhatServes<'_> {
    fn drop(&mut self) {
        if let Some(pid) = self.0.place.try_status().ok().and_then(|status| status["pid"].as_i64()) {
            signal(pid as i32, libc::SIGTERM);
        }
    }
}

/// Something is over, however the part of a test ends that this lives in: threads that go on until then must not go on for ever.
pub struct SetAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Has a program use a driver of the tests' own in place of the simulated one, which has what that one does not.
pub fn with_driver(command: &mut Command, library: &str) {
    command.env("BATON_DRIVER", built().programs.join(library)).env("LD_LIBRARY_PATH", &built().bin);
}

/// The open descriptors that a coordinator's frames and slabs do not explain. A frame has two: the one that is
/// lent, and one of the simulated driver's own for its memory.
pub fn other_descriptors(status: &Value) -> i64 {
    let number = |value: &Value| value.as_i64().expect("a number");
    number(&status["descriptors"]) - 2 * number(&status["arena"]["frames"]) - number(&status["host_pool"]["slabs"])
}

/// A tenant's part of a status; null if there is none of that name.
pub fn tenant<'a>(status: &'a Value, name: &str) -> &'a Value {
    let tenants = status["tenants"].as_array();
    tenants.and_then(|tenants| tenants.iter().find(|tenant| tenant["name"] == name)).unwrap_or(&Value::Null)
}

/// A program of `tests/c/sharing`.
pub fn program(name: &str) -> PathBuf {
    built().programs.join("sharing").join(name)
}

/// The result of a program of `tests/c/sharing` that has a GPU of 512 MiB to itself.
#[track_caller]
pub fn alone(name: &str, arguments: &[&str]) -> String {
    let mut command = Driver::simulated().bare(program(name));
    command.args(arguments).env("SIMCUDA_MEMORY", "512MiB");
    Running::start(&mut command, false, None).result(LIMIT)
}
