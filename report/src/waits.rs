//! Why a program does not go on.

use serde::{Deserialize, Serialize};

/// Why a program does not go on, or that it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It wants nothing.
    #[default]
    Idle,
    /// Its calls go to the GPU.
    Running,
    /// It waits for its turn, behind others.
    Turn,
    /// It waits until the work of another ends, which cannot be taken off the GPU in the middle.
    Drain,
    /// It waits for its turn, although its class runs beside others: all together do not fit the GPU.
    TooLargeTogether,
    /// Its memory is on the way.
    OwnMemory,
    /// It waits until memory of others is on the host.
    OthersMemory,
    /// A user keeps it off the GPU.
    Suspended,
    /// A user keeps another off the GPU with which it shares memory.
    UnitSuspended,
    /// Its work makes way for somebody urgent.
    Urgent,
    /// It waits for memory of a program that does not answer.
    Held,
    /// There is no room on the host for what has to go.
    HostPool,
    /// There is no room on the GPU beside what cannot move.
    Arena,
    /// Its process can open no more descriptors.
    Descriptors,
    /// It does not do what it is told.
    Unresponsive,
    /// Its connection has ended, and its process has not.
    Disconnected,
    /// As many programs share the GPU as may.
    Join,
    /// There is less memory left than it has said that it needs.
    Room,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Idle,
        Self::Running,
        Self::Turn,
        Self::Drain,
        Self::TooLargeTogether,
        Self::OwnMemory,
        Self::OthersMemory,
        Self::Suspended,
        Self::UnitSuspended,
        Self::Urgent,
        Self::Held,
        Self::HostPool,
        Self::Arena,
        Self::Descriptors,
        Self::Unresponsive,
        Self::Disconnected,
        Self::Join,
        Self::Room,
    ];

    /// Whether a program does nothing for that reason.
    pub fn is_a_wait(self) -> bool {
        !matches!(self, Self::Idle | Self::Running)
    }
}

/// What brings a program its turn at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Others have had theirs (`--quantum`).
    Quantum,
    /// It has waited for too long (`--max-wait`).
    MaxWait,
}

/// What a program waits for, as the coordinator says it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitsFor {
    /// Why.
    pub reason: Reason,
    /// For how long that has been so, in milliseconds; none if it is not known.
    pub since_ms: Option<f64>,
    /// On whom it depends, by name.
    pub whom: Vec<String>,
    /// How much memory it is about.
    pub bytes: u64,
    /// How fast such memory comes or goes.
    pub bytes_per_second: Option<u64>,
    /// In how long it has its turn at the latest, if nothing else happens.
    pub within_ms: Option<f64>,
    /// By what it has it then.
    pub bound: Option<Bound>,
}
