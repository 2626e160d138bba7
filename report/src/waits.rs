//! The reasons why a program does not go on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

words! {
    /// The reason why a program does not go on. `Idle` and `Running` are no waits.
    pub enum Reason = Idle {
        /// It has no work for the GPU.
        Idle = "idle",
        /// Its calls go to the GPU.
        Running = "running",
        /// It waits for its turn, behind others.
        Turn = "turn",
        /// It waits until the work of another ends, which cannot be taken off the GPU in the middle.
        Drain = "drain",
        /// It waits for its turn, although its class runs beside others: all together do not fit the GPU.
        TooLargeTogether = "too_large_together",
        /// Its memory is on the way.
        OwnMemory = "own_memory",
        /// It waits until memory of others is on the host.
        OthersMemory = "others_memory",
        /// A user keeps it off the GPU.
        Suspended = "suspended",
        /// A user keeps another off the GPU with which it shares memory.
        UnitSuspended = "unit_suspended",
        /// Its turn has come here, and not yet on all GPUs of its gang.
        Gang = "gang",
        /// Its work makes way for an urgent program.
        Urgent = "urgent",
        /// It waits for memory of an unresponsive program.
        Held = "held",
        /// There is no room on the host for the memory that has to go.
        HostPool = "host_pool",
        /// There is no room on the GPU beside memory that cannot move.
        Arena = "arena",
        /// Its process can open no more descriptors.
        Descriptors = "descriptors",
        /// It does not carry out the coordinator's commands in time.
        Unresponsive = "unresponsive",
        /// Its connection has ended, and its process has not.
        Disconnected = "disconnected",
        /// It has not joined: as many programs share the GPU as may.
        Join = "join",
        /// It has not joined: less memory is left than it has said that it needs.
        Room = "room",
    }
}

impl Reason {
    /// True if a program does nothing for that reason.
    pub fn is_a_wait(&self) -> bool {
        !matches!(self, Self::Idle | Self::Running)
    }
}

words! {
    /// The event that brings a program its turn at the latest.
    pub enum Bound = Quantum {
        /// Others have had theirs (`--quantum`).
        Quantum = "quantum",
        /// It has waited for too long (`--max-wait`).
        MaxWait = "max_wait",
    }
}

/// The reason why a program does not go on, with its figures. `baton why` makes sentences of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct WaitsFor {
    /// The reason for the wait. `idle` and `running` are no waits; docs/observe.md explains each.
    pub reason: Reason,
    /// How long the reason has held, in milliseconds; null if it is not known.
    pub since_ms: Option<f64>,
    /// The programs on which it depends, by name.
    pub whom: Vec<String>,
    /// The GPUs on which its gang has yet to have its turn, by their numbers.
    pub gpus: Vec<u32>,
    /// How much memory it is about, in bytes.
    pub bytes: u64,
    /// How fast memory was copied lately; null if it is not about memory, or none was copied.
    pub bytes_per_second: Option<u64>,
    /// In how long it has its turn at the latest, in milliseconds, if nothing else happens; null if that is not known.
    pub within_ms: Option<f64>,
    /// By what it has its turn then: the others' quantum is over, or it has waited for --max-wait.
    pub bound: Option<Bound>,
}
