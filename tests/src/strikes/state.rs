//! The states in which strikes come, and the programs of each.

use std::collections::BTreeMap;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::tally::{End, Tally};
use crate::LIMIT;
use crate::coordinator::{Coordinator, Serving, alone, program};
use crate::generated::exchange;
use crate::generated::trial::{Expected, PATIENCE};
use crate::running::Running;

/// A state of the GPU and its programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Programs take turns, and more than one does not fit; work is waited for.
    Turns,
    /// Programs of three classes, which are paused in the middle of their work.
    Preemption,
    /// Programs of three classes that rest now and then, the urgent one for long, so that others wait for the GPU and no longer wait.
    Rests,
    /// Programs of three classes that fit together, and come and go.
    Together,
    /// Pairs of processes that share memory and events take turns with an urgent program.
    Sharing,
    /// As in `Preemption`, and a coordinator is followed by another one all the time.
    Upgrades,
}

/// Programs of a kind, one after the other.
pub(super) enum Load {
    /// `fill_and_check` of a class, with one of these lists of options after the other.
    Fill(&'static str, &'static [&'static [&'static str]]),
    /// Exchanges between two processes.
    Exchanges,
}

/// Seeds of programs that are played again and again.
const SEEDS: u64 = 5;

impl State {
    /// True if a coordinator is to be followed by another one meanwhile.
    pub(super) fn upgrades(self) -> bool {
        self == Self::Upgrades
    }

    pub(super) fn serving(self) -> Serving {
        let serving = match self {
            Self::Turns => Serving::small("24MiB").flag("--no-preempt"),
            Self::Preemption | Self::Rests | Self::Upgrades => Serving::small("24MiB"),
            Self::Together => Serving::small("64MiB"),
            Self::Sharing => Serving::arena("288MiB").memory("1GiB").option("--host-pool", "512MiB"),
        };
        let serving = if self == Self::Sharing {
            serving.setting("SIMCUDA_GPUS", "2").option("--gpu", "0").option("--quantum", "3ms")
        } else {
            serving
        };
        serving.keeper().option("--restarts", "1000000").option("--max-wait", "1s")
    }

    /// None gets another one's frames.
    pub(super) fn strict(self) -> Serving {
        self.serving().option("--isolation", "strict")
    }

    pub(super) fn loads(self) -> Vec<Load> {
        const LARGE: &[&str] = &["--megabytes", "12", "--small", "2", "--rounds", "40"];
        const RESTS: &[&str] = &["--megabytes", "12", "--small", "2", "--rounds", "30", "--gap-ms", "30"];
        // So long that it is known, if no other waits meanwhile.
        const RESTS_LONG: &[&str] = &["--megabytes", "8", "--small", "2", "--rounds", "8", "--gap-ms", "250"];
        // So seldom that others are meanwhile no longer kept ready for it.
        const SELDOM: &[&str] = &["--megabytes", "8", "--small", "2", "--rounds", "5", "--gap-ms", "1200"];
        const URGENT: &[&str] = &["--megabytes", "8", "--small", "2", "--rounds", "60", "--gap-ms", "8"];
        // The memory that the others share stays on the GPU, and needs the rest of the arena; the longer if one of them was killed.
        const RIVAL: &[&str] = &[
            "--megabytes",
            "160",
            "--small",
            "0",
            "--churn",
            "0",
            "--pieces",
            "1",
            "--rounds",
            "40",
            "--gap-ms",
            "25",
        ];
        // Takes memory from the rival while that is idle, so that it comes back piece by piece.
        const BESIDE: &[&str] =
            &["--megabytes", "160", "--small", "2", "--rounds", "20", "--gap-ms", "60", "--long-ms", "1300"];
        // Comes back in larger pieces than it frees, and asks for others.
        const PIECES: &[&str] =
            &["--megabytes", "100", "--small", "2", "--rounds", "60", "--gap-ms", "20", "--churn", "1"];
        // Its memory is allocated anew all the time.
        const CHURN: &[&str] = &["--megabytes", "12", "--small", "6", "--churn", "1", "--rounds", "40"];
        // Its last work takes longer than it is waited for.
        const LONG: &[&str] = &["--megabytes", "12", "--small", "2", "--rounds", "4", "--long-ms", "1300"];
        match self {
            Self::Turns => (0..3).map(|_| Load::Fill("normal", &[LARGE, CHURN, LONG])).collect(),
            Self::Rests => {
                let batch = Load::Fill("batch", &[RESTS, RESTS_LONG, RESTS_LONG]);
                let normal = Load::Fill("normal", &[RESTS_LONG, RESTS, RESTS_LONG]);
                vec![batch, normal, Load::Fill("latency", &[SELDOM])]
            }
            Self::Preemption | Self::Upgrades | Self::Together => vec![
                Load::Fill("batch", &[LARGE, RESTS_LONG, LONG]),
                Load::Fill("normal", &[LARGE, RESTS_LONG, RESTS_LONG]),
                Load::Fill("latency", &[URGENT, SELDOM]),
            ],
            Self::Sharing => {
                vec![
                    Load::Exchanges,
                    Load::Exchanges,
                    Load::Fill("latency", &[RIVAL]),
                    Load::Fill("normal", &[BESIDE, PIECES, PIECES]),
                ]
            }
        }
    }
}

/// The next number of a program.
fn next() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    COUNT.fetch_add(1, Ordering::Relaxed)
}

impl Load {
    /// Plays programs until it is over.
    pub(super) fn play(&self, coordinator: &Coordinator, tally: &Tally, over: &AtomicBool) {
        let mut expected: BTreeMap<(&[&str], u64), Alone> = BTreeMap::new();
        for played in 0.. {
            if over.load(Ordering::Relaxed) {
                return;
            }
            let number = next();
            let seed = number % SEEDS;
            let name = format!("program-{number}");
            let options: &[&str] = match self {
                Self::Fill(_, lists) => lists[played % lists.len()],
                Self::Exchanges => &[],
            };
            let alone = expected.entry((options, seed)).or_insert_with(|| self.alone(options, seed));
            let run = tally.begins(&name);
            let end = match (self, &*alone) {
                (Self::Fill(class, _), Alone::Says(wanted)) => {
                    let mut command = coordinator.place.joining(&name, &program("fill_and_check"), options);
                    command.args(["--seed", &seed.to_string()]);
                    command.env("BATON_CLASS", class).env("BATON_REQUIRE", "1");
                    let outcome = Running::start(&mut command, false, Some(coordinator.place.clone())).finish(LIMIT);
                    match outcome.status == "exit status: 0"
                        && outcome.out.trim_end() == wanted
                        && outcome.said().is_empty()
                    {
                        true => End::Well,
                        false => End::Otherwise(format!("{outcome:?}")),
                    }
                }
                (_, Alone::Does(expected)) => match expected.is_the_same_at(&coordinator.place, &name, PATIENCE) {
                    Ok(()) => End::Well,
                    Err(fault) => End::Otherwise(fault.to_string()),
                },
                _ => unreachable!("of one kind"),
            };
            tally.ends(run, end);
        }
    }

    fn alone(&self, options: &[&str], seed: u64) -> Alone {
        match self {
            Self::Fill(..) => {
                let seed = seed.to_string();
                let options: Vec<&str> = options.iter().copied().chain(["--seed", seed.as_str()]).collect();
                Alone::Says(alone("fill_and_check", &options).trim_end().to_owned())
            }
            Self::Exchanges => {
                let expected = Expected::of_exchange(&exchange::exchange(seed), PATIENCE);
                Alone::Does(expected.unwrap_or_else(|fault| panic!("exchange {seed}: {fault}")))
            }
        }
    }
}

/// A program's effect when it has the GPU to itself.
enum Alone {
    Says(String),
    Does(Expected),
}

/// An upgrade under way; what becomes of it is not asked.
pub(super) struct Upgrade(Child);

impl Upgrade {
    pub(super) fn start(coordinator: &Coordinator) -> Self {
        let mut command = coordinator.place.upgrade("5s");
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("baton can be started"))
    }
}

impl Drop for Upgrade {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
