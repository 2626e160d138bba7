//! The program `hold`, which obeys lines.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::coordinator::{Coordinator, Place, program};
use crate::running::Running;
use crate::{Driver, LIMIT};

/// Starts it, ready for its first line.
#[track_caller]
pub fn ready(command: &mut Command, place: Option<Place>) -> Running {
    let mut running = Running::start(command, true, place);
    assert!(running.line(LIMIT).starts_with("ready "));
    running
}

/// A tenant of this class, on a GPU that computes so fast for it alone.
#[track_caller]
pub fn joined(coordinator: &Coordinator, name: &str, class: &str, megabytes: &str, speed: Option<&str>) -> Running {
    let mut command = coordinator.place.joining(name, &program("hold"), &["--megabytes", megabytes]);
    command.env("BATON_CLASS", class);
    if let Some(speed) = speed {
        command.env("SIMCUDA_KERNEL_GFLOPS", speed);
    }
    ready(&mut command, Some(coordinator.place.clone()))
}

/// Its answers to these lines when it has a GPU to itself; the last answer is its result.
#[track_caller]
pub fn alone(megabytes: &str, lines: &[&str]) -> Vec<String> {
    let mut command = Driver::simulated().bare(program("hold"));
    command.args(["--megabytes", megabytes]).env("SIMCUDA_MEMORY", "512MiB");
    let mut running = ready(&mut command, None);
    let mut answers: Vec<_> = lines.iter().map(|line| running.ask(line, LIMIT)).collect();
    answers.push(running.ask("quit", LIMIT));
    answers
}

/// A program that keeps the GPU busy until it is told to end that.
#[must_use]
pub struct Busy {
    file: PathBuf,
}

impl Busy {
    /// Tells it to. It does not answer yet.
    #[track_caller]
    pub fn start(running: &mut Running, place: &Place) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let file = place.folder().join(format!("enough-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
        running.say(&format!("busy {}", file.display()));
        Self { file }
    }

    /// Enough: its program will say that it has ended.
    #[track_caller]
    pub fn is_enough(&self) {
        File::create(&self.file).expect("a writable folder");
    }

    /// Enough: waits until its program says that it has ended.
    #[track_caller]
    pub fn end(self, running: &mut Running) {
        self.is_enough();
        assert_eq!(running.line(LIMIT), "spun");
    }
}
