//! Programs that share the GPU, wait for that, or have left; and processes that use it without Baton.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::memory::Kinds;
use crate::quota::Met;
use crate::times::{Buckets, Times};
use crate::waits::WaitsFor;
use crate::words::ClassWord;

words! {
    /// How a program stands, in a word: the first that applies.
    pub enum State = Idle {
        /// It does not carry out the coordinator's commands in time, so its memory stays in place.
        Unresponsive = "unresponsive",
        /// A user keeps it off the GPU.
        Suspended = "suspended",
        /// Its calls go to the GPU; or, when it co-runs, it has work there.
        Running = "running",
        /// It is its turn, and nothing of it runs before its memory has come, and its work is back.
        Loading = "loading",
        /// Its turn is over, and its work is being taken off the GPU.
        Stopping = "stopping",
        /// Its work was taken off the GPU in the middle.
        Preempted = "preempted",
        /// A call of its waits for the GPU, or for its memory.
        Waiting = "waiting",
        /// It has memory, and none of that is on the GPU.
        Evicted = "evicted",
        /// None of these.
        Idle = "idle",
    }
}

/// A program that shares the GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Tenant {
    /// Its number, which no other program of this coordinator ever has.
    pub id: u32,
    /// The program's name, as the user gave it.
    pub name: String,
    /// UUID of the GPU that this is about, as `nvidia-smi -L` prints it.
    pub gpu: Arc<str>,
    /// Its process, as nvidia-smi shows it; null if it is of another PID namespace.
    pub pid: Option<i32>,
    /// The number of its gang, in hexadecimal: programs on several GPUs that have them at the same time. Null if it is of none.
    pub gang: Option<String>,
    /// Its user's number. Null if that is not known.
    pub user: Option<u32>,
    /// The quotas that hold back requests of another user's program (`baton serve --guest-…`); empty if none does.
    pub quotas: Vec<Met>,
    /// How urgent it is.
    #[schemars(with = "ClassWord")]
    pub class: String,
    /// Its share among programs of its class.
    pub weight: u32,
    /// How long its requests may take, in milliseconds; null if that was not said.
    pub slo_ms: Option<f64>,
    /// How it stands, in a word: the first that applies.
    pub state: State,
    /// The same, each by itself.
    #[serde(flatten)]
    pub standing: Standing,
    /// All its memory that moves.
    pub bytes: u64,
    /// The part of its movable memory that is on the GPU.
    pub resident_bytes: u64,
    /// The part of its memory that is on the host.
    pub evicted_bytes: u64,
    /// The part of its memory that the program cannot use yet: it is on the host, or on its way.
    pub missing_bytes: u64,
    /// Memory that the program has freed, and that stays its own until it next leaves the GPU.
    pub spare_bytes: u64,
    /// GPU memory that is reserved for its memory on the host.
    pub reserved_bytes: u64,
    /// Its device memory that does not move.
    pub unmanaged_bytes: u64,
    /// The part of its unmovable memory that is beside the arena, by kind, as the program reports it.
    pub unmanaged: Kinds,
    /// The part of its unmovable memory that is in the arena: allocations that others can reach.
    pub immovable_bytes: u64,
    /// The most that it may use beside the arena without asking again.
    pub leased_bytes: u64,
    /// The measured size of its contexts.
    pub contexts_bytes: u64,
    /// The most memory that it has had.
    pub peak_bytes: u64,
    /// How often it got the GPU after another.
    pub switches: u64,
    /// How long it has had the GPU, or was at work beside others.
    pub gpu_seconds: f64,
    /// True if its work can be taken off the GPU in the middle.
    pub preemptible: bool,
    /// How long its requests take; null if it is not of class latency, or has made none.
    pub requests: Option<Times>,
    /// How long it waited for its turns; null if it has had none.
    pub waits: Option<Times>,
    /// Counts that only go up.
    #[serde(flatten)]
    pub totals: Totals,
    /// The container that it runs in; null if that cannot be seen.
    pub container: Option<String>,
    /// The pod of Kubernetes that it runs in; null if that cannot be seen.
    pub pod: Option<String>,
    /// Why it does not go on, or that it does.
    pub waits_for: WaitsFor,
}

/// How a program stands. Several of these may apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Standing {
    /// It does not carry out the coordinator's commands in time, so its memory stays in place.
    pub unresponsive: bool,
    /// Its connection has ended, and its process has not.
    pub disconnected: bool,
    /// A user keeps it off the GPU.
    pub suspended: bool,
    /// Its calls go to the GPU; or, when it co-runs, it has work there.
    pub running: bool,
    /// It goes on, or is about to, while memory of its is still on the way.
    pub arriving: bool,
    /// Its work was taken off the GPU in the middle.
    pub preempted: bool,
    /// A call of its waits for the GPU, or for its memory.
    pub waiting: bool,
    /// It has memory, and none of that is on the GPU.
    pub evicted: bool,
}

/// Counts that only go up, of a program or of several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Totals {
    /// How long turns were waited for, in buckets.
    pub wait_buckets: Buckets,
    /// How long requests took, in buckets.
    pub request_buckets: Buckets,
    /// How many requests took longer than their program's target.
    pub slo_misses: u64,
}

/// A program that waits until there are fewer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Newcomer {
    /// The program's name, as the user gave it.
    pub name: String,
    /// UUID of the GPU that this is about, as `nvidia-smi -L` prints it.
    pub gpu: Arc<str>,
    /// Its process; null if it is of another PID namespace.
    pub pid: Option<i32>,
    /// Its user's number. Null if that is not known.
    pub user: Option<u32>,
    /// The quotas that hold back requests of another user's program (`baton serve --guest-…`); empty if none does.
    pub quotas: Vec<Met>,
    /// How long it has waited.
    pub waited_seconds: f64,
    /// The memory that it needs, of arena and host pool together (`baton run --needs`). Null if any amount will do.
    pub needs_bytes: Option<u64>,
    /// The reason why it waits to join: for its place, or for memory.
    pub waits_for: WaitsFor,
}

/// A process that uses the GPU's compute engines and is no tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Outsider {
    /// Its process. Null if it cannot be seen from here.
    pub pid: Option<i32>,
    /// The name of its program, if that can be seen from here.
    pub name: Option<String>,
    /// The memory of the GPU that it holds, if the driver says so.
    pub bytes: Option<u64>,
    /// True if a program under Baton has started it, by the chain of parents, its process group or its session. A program that has left
    /// all of them is not recognised. Null if it cannot be seen from here.
    pub from_baton: Option<bool>,
}

/// A program that has left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Departed {
    /// The program's name, as the user gave it.
    pub name: String,
    /// UUID of the GPU that this is about, as `nvidia-smi -L` prints it.
    pub gpu: Arc<str>,
    /// Its class.
    #[schemars(with = "ClassWord")]
    pub class: String,
    /// The most memory that it had.
    pub peak_bytes: u64,
    /// How often it got the GPU after another.
    pub switches: u64,
    /// How long it had the GPU.
    pub gpu_seconds: f64,
}

/// Totals of all programs that have left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DepartedTotals {
    /// The number of programs that have left.
    pub tenants: u64,
    /// How long they had the GPU.
    pub gpu_seconds: f64,
    /// Other counts that only go up.
    #[serde(flatten)]
    pub totals: Totals,
}

impl DepartedTotals {
    /// Adds a program that has left.
    pub fn add(&mut self, totals: &Totals, gpu_seconds: f64) {
        self.tenants += 1;
        self.gpu_seconds += gpu_seconds;
        self.totals.wait_buckets.add_all(&totals.wait_buckets);
        self.totals.request_buckets.add_all(&totals.request_buckets);
        self.totals.slo_misses += totals.slo_misses;
    }
}
