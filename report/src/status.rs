//! The state at a moment.

use std::sync::Arc;

use baton_contract::messages::DriverKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::memory::{Arena, HostPool, Ledger};
use crate::switch::Switch;
use crate::tenant::{Departed, DepartedTotals, Newcomer, Outsider, Tenant};
use crate::times::{AllTimes, SwitchBuckets};

/// The state of a coordinator and its programs, as `baton status --json` prints it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(title = "baton status --json", extend("$id" = "https://baton.invalid/status.schema.json"))]
pub struct Status {
    /// The version of this description. It goes up when a field is removed or comes to mean something else, not when one is added.
    pub schema: u32,
    /// Baton's version.
    pub version: String,
    /// When the coordinator began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// How long the coordinator has run.
    pub uptime_seconds: f64,
    /// The GPU.
    pub gpu: Gpu,
    /// The driver that is used.
    #[schemars(extend("enum" = DriverKind::ALL.map(DriverKind::word)))]
    pub driver: String,
    /// The coordinator's socket.
    pub socket: String,
    /// The coordinator's process.
    pub pid: u32,
    /// The keeper's process, which starts the next coordinator if this one dies; null if there is none.
    pub keeper: Option<u32>,
    /// True if the coordinator takes no new programs, and ends after the last one (`baton stop`).
    pub ending: bool,
    /// The GPU memory that is lent out. nvidia-smi shows it under the coordinator's process.
    pub arena: Arena,
    /// All of the GPU's memory. The lines add up to it.
    pub ledger: Ledger,
    /// Host memory for evicted memory.
    pub host_pool: HostPool,
    /// The number of extents that all programs' memory consists of.
    pub extents: usize,
    /// Open descriptors of the coordinator.
    pub descriptors: usize,
    /// The program that has the GPU; null if no program has it.
    pub holder: Option<String>,
    /// How often the GPU changed hands.
    pub switches: u64,
    /// How much of everything there has been.
    #[serde(flatten)]
    pub counters: Counters,
    /// How long things take.
    pub times: AllTimes,
    /// The programs that share the GPU.
    pub tenants: Vec<Tenant>,
    /// Programs that wait until there are fewer, in this order.
    pub newcomers: Vec<Newcomer>,
    /// The number of programs that `baton run` has started and that are about to come.
    pub expected: usize,
    /// How many programs may share the GPU at once.
    pub max_tenants: usize,
    /// Processes that use the GPU's compute engines and are no tenants. Null if they are not known, for the reason that
    /// `outsiders_unknown` gives.
    pub outsiders: Option<Vec<Outsider>>,
    /// The reason why other users of the GPU are not known; null if they are.
    pub outsiders_unknown: Option<String>,
    /// The last changes of the GPU's holder, oldest first.
    pub recent: Vec<Switch>,
    /// The last allocations for which other memory had to go.
    pub allocations: Vec<Switch>,
    /// The programs that left last.
    pub departed: Vec<Departed>,
    /// Totals of all programs that have left.
    pub departed_totals: DepartedTotals,
    /// How long each part of switches takes, in buckets. A part that a switch did not need is not counted.
    pub switch_buckets: SwitchBuckets,
    /// The longest duration of each bucket, in seconds. One more bucket holds longer durations.
    pub bucket_seconds: Vec<f64>,
}

/// The GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Gpu {
    /// The number by which its coordinator's driver knows it, from 0, as `baton serve --gpu` counts.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: Arc<str>,
    /// Its memory.
    pub memory_bytes: u64,
    /// The driver's version, as CUDA counts: 13000 is 13.0.
    pub driver_version: u32,
}

/// How much of everything there has been since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Counters {
    /// Bytes copied to the GPU.
    pub bytes_in: u64,
    /// Bytes copied to the host.
    pub bytes_out: u64,
    /// Bytes copied to the host while their program rested, so that they need no copy when it has to leave.
    pub bytes_ahead: u64,
    /// How often work was taken off the GPU in the middle.
    pub preemptions: u64,
    /// How long it took to take work off the GPU, all together.
    pub preempt_seconds: f64,
    /// How often work was taken off the GPU for a moment, for an urgent program beside it.
    pub deschedules: u64,
    /// How often work was put back because its driver did not unmap memory before its end.
    pub unmap_timeouts: u64,
    /// Allocations that were refused because their program cannot have so much memory.
    pub refused_arena: u64,
    /// Allocations that were refused because there is no room on the host.
    pub refused_host_pool: u64,
    /// Allocations that were refused because other programs do not give memory back.
    pub refused_held: u64,
    /// Bytes overwritten, because another program had used them.
    pub scrubbed_bytes: u64,
    /// How long it took to overwrite memory.
    pub scrub_seconds: f64,
    /// Bytes read on the GPU, to find changed memory and pointers.
    pub scanned_bytes: u64,
    /// How long it took to read memory on the GPU.
    pub scan_seconds: f64,
}

impl Counters {
    /// Returns the number of refused allocations, for all reasons together.
    pub fn refused(&self) -> u64 {
        self.refused_arena + self.refused_host_pool + self.refused_held
    }
}

/// Bytes over which a rate must have been measured to be used.
const MEASURED: u64 = 1 << 28;

impl Status {
    /// Returns the program of this name.
    pub fn tenant(&self, name: &str) -> Option<&Tenant> {
        self.tenants.iter().find(|tenant| tenant.name == name)
    }

    /// Returns the most memory that a program of this name had; if there were several, the largest.
    pub fn peak(&self, name: &str) -> Option<u64> {
        let here = self.tenants.iter().map(|one| (&one.name, one.peak_bytes));
        let left = self.departed.iter().map(|one| (&one.name, one.peak_bytes));
        here.chain(left).filter(|(its, _)| *its == name).map(|(_, bytes)| bytes).max()
    }

    /// Returns the most memory that a departed program of this name had; none if there is none.
    pub fn departed_peak(&self, name: &str) -> Option<u64> {
        self.departed.iter().find(|departed| departed.name == name).map(|departed| departed.peak_bytes)
    }

    /// Returns the rate of copies to the GPU in the last switches, in bytes a second, if enough was copied.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let add = |(bytes, seconds), one: &Switch| (bytes + one.bytes_in, seconds + one.in_seconds);
        let (bytes, seconds) = self.recent.iter().fold((0, 0.0), add);
        (bytes >= MEASURED && seconds > 0.0).then(|| bytes as f64 / seconds)
    }
}
