//! How things stand at a moment, as far as views show it: what is read of `baton status --json`.
//!
//! Names are the coordinator's; `docs/status.schema.json` describes every field.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::quota::Met;
use crate::why::WaitsFor;

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the schema has the words")]
pub struct Snapshot {
    pub version: String,
    pub uptime_seconds: f64,
    pub gpu: Gpu,
    pub socket: String,
    pub arena: Arena,
    pub ledger: Ledger,
    pub host_pool: Pool,
    pub holder: Option<String>,
    pub switches: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub tenants: Vec<Tenant>,
    pub newcomers: Vec<Newcomer>,
    pub max_tenants: usize,
}

/// The GPU.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the schema has the words")]
pub struct Gpu {
    pub name: String,
    pub uuid: String,
    pub memory_bytes: u64,
}

/// The GPU memory that is lent out.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the schema has the words")]
pub struct Arena {
    pub bytes: u64,
    pub lent_bytes: u64,
}

/// All of the GPU's memory, line by line.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the schema has the words")]
pub struct Ledger {
    pub total_bytes: u64,
    pub lines: Lines,
}

/// The lines. They add up to the GPU's memory.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the schema has the words")]
pub struct Lines {
    pub lent_bytes: u64,
    pub free_bytes: u64,
    pub headroom_bytes: u64,
    pub promised_bytes: u64,
    pub beside_bytes: u64,
    pub unmanaged: BTreeMap<String, u64>,
    pub contexts_bytes: u64,
    pub own_bytes: u64,
    pub hidden_bytes: u64,
}

/// Host memory for what is evicted.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the schema has the words")]
pub struct Pool {
    pub bytes: u64,
    pub ready_bytes: u64,
    pub used_bytes: u64,
}

/// A program that shares the GPU.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the schema has the words")]
pub struct Tenant {
    pub id: u32,
    pub name: String,
    pub pid: Option<i32>,
    pub class: String,
    pub weight: u32,
    pub slo_ms: Option<f64>,
    pub state: String,
    pub suspended: bool,
    pub disconnected: bool,
    pub bytes: u64,
    pub resident_bytes: u64,
    pub evicted_bytes: u64,
    pub missing_bytes: u64,
    pub unmanaged_bytes: u64,
    pub switches: u64,
    pub gpu_seconds: f64,
    pub preemptible: bool,
    pub requests: Option<Times>,
    pub waits: Option<Times>,
    pub waits_for: WaitsFor,
    pub quotas: Vec<Met>,
}

impl Tenant {
    /// Its state in words, with how much of its memory is there if that is on its way.
    pub fn standing(&self) -> String {
        let all = self.resident_bytes + self.evicted_bytes;
        match self.state.as_str() {
            "loading" if all > 0 => format!("loading {} %", 100 * all.saturating_sub(self.missing_bytes) / all),
            state => state.to_owned(),
        }
    }
}

/// How long something took since the beginning, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the schema has the words")]
pub struct Times {
    pub count: u64,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    pub max: Option<f64>,
}

/// A program that waits until there are fewer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the schema has the words")]
pub struct Newcomer {
    pub name: String,
    pub pid: Option<i32>,
    pub waited_seconds: f64,
    pub needs_bytes: Option<u64>,
    pub waits_for: WaitsFor,
    pub quotas: Vec<Met>,
}

impl Snapshot {
    /// The program of this name.
    pub fn tenant(&self, name: &str) -> Option<&Tenant> {
        self.tenants.iter().find(|tenant| tenant.name == name)
    }
}
