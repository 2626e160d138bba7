//! A coordinator of several simulated GPUs, and programs under it.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use baton_client as client;
use serde_json::Value;

use crate::coordinator::{Prepared, Serving, program};
use crate::hold;
use crate::running::{Running, signal};
use crate::{LIMIT, Outcome, run};

/// A coordinator that serves all GPUs of a place.
pub struct Machine {
    /// The command that was started: the keeper, if there is one.
    pub serve: Running,
    /// Its place.
    pub prepared: Prepared,
    /// The sockets, by the numbers of the GPUs.
    pub sockets: Vec<PathBuf>,
}

impl Machine {
    /// Starts one on so many GPUs, with these options more.
    #[track_caller]
    pub fn start(serving: &Serving, gpus: usize, options: &[&str]) -> Self {
        Self::start_on(serving, gpus, gpus, options)
    }

    /// Starts one that serves only some of so many GPUs.
    #[track_caller]
    pub fn start_on(serving: &Serving, gpus: usize, served: usize, options: &[&str]) -> Self {
        let prepared = serving.clone().setting("SIMCUDA_GPUS", &gpus.to_string()).prepare();
        let mut serve = Running::start(prepared.serve_all().args(options), false, None);
        let end = Instant::now() + LIMIT;
        let sockets = loop {
            let sockets = sockets(&serve.err());
            if sockets.len() == served {
                break sockets;
            }
            assert!(serve.ended().is_none() && Instant::now() < end, "{}", serve.err());
            std::thread::sleep(Duration::from_millis(5));
        };
        Self { serve, prepared, sockets }
    }

    /// A `baton` command in this place.
    #[track_caller]
    pub fn baton(&self, words: &[&str]) -> Outcome {
        run(&mut self.prepared.place.baton(words))
    }

    /// The status of a GPU.
    #[track_caller]
    pub fn status(&self, gpu: usize) -> Value {
        self.try_status(gpu).unwrap_or_else(|| panic!("GPU {gpu} is not served\n{}", self.serve.err()))
    }

    /// The status of a GPU, if it is served.
    pub fn try_status(&self, gpu: usize) -> Option<Value> {
        serde_json::from_slice(&client::status(&self.sockets[gpu]).ok()?).ok()
    }

    /// Waits until a GPU's status is as wanted.
    #[track_caller]
    pub fn until(&self, gpu: usize, what: &str, mut wanted: impl FnMut(&Value) -> bool) -> Value {
        let end = Instant::now() + LIMIT;
        loop {
            let status = self.try_status(gpu).unwrap_or_default();
            if wanted(&status) {
                return status;
            }
            assert!(Instant::now() < end, "GPU {gpu}: never {what}: {status:#}\n{}", self.serve.err());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the process that serves, and waits until the next one serves all of these GPUs.
    #[track_caller]
    pub fn kill_served(&self, gpus: &[usize]) {
        let before = self.status(gpus[0])["pid"].clone();
        signal(before.as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a process"), libc::SIGKILL);
        for gpu in gpus {
            self.until(*gpu, "another process", |status| !status.is_null() && status["pid"] != before);
        }
    }

    /// A program that finds the GPUs that it takes by this place's folder.
    pub fn joining(&self, name: &str, program: &std::path::Path, arguments: &[&str]) -> Command {
        let mut command = self.prepared.place.joining(name, program, arguments);
        command.env_remove("BATON_SOCKET");
        command
    }

    /// A program with so many megabytes on one GPU, which it sees alone.
    #[track_caller]
    pub fn hold(&self, name: &str, gpu: usize, megabytes: &str) -> Running {
        let mut command = self.joining(name, &program("hold"), &["--megabytes", megabytes]);
        hold::ready(command.env("CUDA_VISIBLE_DEVICES", gpu.to_string()), None)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // One that has outlived the keeper which the test has started, and its keeper.
        let status = (0..self.sockets.len()).find_map(|gpu| self.try_status(gpu)).unwrap_or_default();
        for pid in ["keeper", "pid"].iter().filter_map(|key| status[key].as_i64()) {
            signal(i32::try_from(pid).expect("a process"), libc::SIGKILL);
        }
    }
}

/// The sockets that a log names, by the numbers of the GPUs.
fn sockets(log: &str) -> Vec<PathBuf> {
    let of = |line: &str| {
        let (number, rest) = line.split_once("serving GPU ")?.1.split_once(' ')?;
        let path = rest.split_once(") at ")?.1.split_once(" [")?.0;
        Some((number.parse::<usize>().ok()?, PathBuf::from(path)))
    };
    let mut all: Vec<_> = log.lines().filter_map(of).collect();
    all.sort();
    all.dedup();
    all.into_iter().map(|(_, path)| path).collect()
}
