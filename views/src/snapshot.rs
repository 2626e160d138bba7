//! How things stand at a moment: what `baton status --json` says, and every figure and word that views make of it.
//!
//! All views take what they show of a moment from here, so none of them can say anything else than the others. Names are the
//! coordinator's; `docs/status.schema.json` describes every field. What a stretch of time came to is a
//! [`crate::summary::Summary`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::quota::Met;
use crate::why::WaitsFor;

#[cfg(test)]
mod tests;

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the schema has the words")]
pub struct Snapshot {
    pub version: String,
    pub started_unix_ms: u64,
    pub uptime_seconds: f64,
    pub gpu: Gpu,
    pub driver: String,
    pub socket: String,
    pub ending: bool,
    pub arena: Arena,
    pub ledger: Ledger,
    pub host_pool: Pool,
    pub holder: Option<String>,
    pub switches: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub preemptions: u64,
    pub deschedules: u64,
    pub refused_arena: u64,
    pub refused_host_pool: u64,
    pub refused_held: u64,
    pub times: AllTimes,
    pub tenants: Vec<Tenant>,
    pub newcomers: Vec<Newcomer>,
    pub max_tenants: usize,
    pub outsiders: Option<Vec<Outsider>>,
    pub outsiders_unknown: Option<String>,
    pub recent: Vec<Switch>,
    pub departed: Vec<Departed>,
    pub departed_totals: DepartedTotals,
    pub switch_buckets: BTreeMap<String, Buckets>,
    pub bucket_seconds: Vec<f64>,
}

/// The GPU.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
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
    pub configured_bytes: u64,
    pub lent_bytes: u64,
    pub headroom_bytes: u64,
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

impl Lines {
    /// Each line with its name, in the order in which they are shown. They add up to all of the GPU's memory.
    pub fn all(&self) -> [(&'static str, u64); 9] {
        [
            ("lent", self.lent_bytes),
            ("free", self.free_bytes),
            ("headroom", self.headroom_bytes),
            ("unmanaged", self.unmanaged.values().sum()),
            ("contexts", self.contexts_bytes),
            ("own", self.own_bytes),
            ("hidden", self.hidden_bytes),
            ("promised", self.promised_bytes),
            ("beside", self.beside_bytes),
        ]
    }

    /// What lies beside the arena, as a line of text: what is used for what, and what is free.
    pub fn beside(&self) -> String {
        let size = crate::words::bytes;
        let used = [
            (self.unmanaged.values().sum(), "unmanaged"),
            (self.contexts_bytes, "contexts"),
            (self.own_bytes, "the coordinator's"),
            (self.hidden_bytes, "hidden"),
            (self.promised_bytes, "promised"),
        ];
        let used =
            used.iter().filter(|(bytes, _)| *bytes > 0).map(|(bytes, what)| format!("{what} {}, ", size(*bytes)));
        format!("{}free {}", used.collect::<String>(), size(self.beside_bytes))
    }
}

/// Host memory for what is evicted.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the schema has the words")]
pub struct Pool {
    pub bytes: u64,
    pub ready_bytes: u64,
    pub used_bytes: u64,
}

impl Pool {
    /// What of it can be used now.
    pub fn free_bytes(&self) -> u64 {
        self.ready_bytes.saturating_sub(self.used_bytes)
    }

    /// What of it is still being prepared.
    pub fn unprepared_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.ready_bytes)
    }
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
    pub spare_bytes: u64,
    pub unmanaged_bytes: u64,
    pub unmanaged: BTreeMap<String, u64>,
    pub immovable_bytes: u64,
    pub contexts_bytes: u64,
    pub peak_bytes: u64,
    pub switches: u64,
    pub gpu_seconds: f64,
    pub preemptible: bool,
    pub requests: Option<Times>,
    pub waits: Option<Times>,
    pub wait_buckets: Buckets,
    pub request_buckets: Buckets,
    pub slo_misses: u64,
    pub container: Option<String>,
    pub pod: Option<String>,
    pub waits_for: WaitsFor,
    pub quotas: Vec<Met>,
}

/// The words for how a program can stand.
pub const STATES: [&str; 9] =
    ["running", "loading", "stopping", "waiting", "idle", "evicted", "preempted", "suspended", "unresponsive"];

impl Tenant {
    /// Whether its calls go to the GPU now.
    pub fn is_running(&self) -> bool {
        self.state == "running"
    }

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
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the schema has the words")]
pub struct Times {
    pub count: u64,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    pub max: Option<f64>,
}

/// How long different things took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the schema has the words")]
pub struct AllTimes {
    pub switch: Times,
}

/// Times of one kind, by how long they are.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Buckets {
    /// How many are in each bucket, and in no smaller one.
    pub counts: Vec<u64>,
    /// What they add up to.
    pub sum_seconds: f64,
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

/// A process on the GPU that is no program of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the schema has the words")]
pub struct Outsider {
    pub pid: Option<u32>,
    pub name: Option<String>,
    pub bytes: Option<u64>,
    pub from_baton: Option<bool>,
}

/// A program that has left.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the schema has the words")]
pub struct Departed {
    pub name: String,
    pub peak_bytes: u64,
}

/// What only goes up, of all that have left.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the schema has the words")]
pub struct DepartedTotals {
    pub tenants: u64,
    pub gpu_seconds: f64,
    pub wait_buckets: Buckets,
    pub request_buckets: Buckets,
    pub slo_misses: u64,
}

/// One change of who has the GPU.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the schema has the words")]
pub struct Switch {
    pub n: u64,
    pub from: Option<String>,
    pub to: String,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub drain_ms: f64,
    pub pause_ms: f64,
    pub unmap_ms: f64,
    pub prepare_ms: f64,
    pub map_ms: f64,
    pub switch_ms: f64,
    pub out_seconds: f64,
    pub in_seconds: f64,
    pub phases: Phases,
}

/// When what happened in it, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the schema has the words")]
pub struct Phases {
    pub decided_ms: Option<f64>,
    pub granted_ms: Option<f64>,
    pub first_launch_ms: Option<f64>,
    pub all_resident_ms: Option<f64>,
}

/// A rate is believed that was measured over so many bytes.
const MEASURED: u64 = 1 << 28;
/// So many programs are named in a line.
const NAMED: usize = 3;

impl Snapshot {
    /// The program of this name.
    pub fn tenant(&self, name: &str) -> Option<&Tenant> {
        self.tenants.iter().find(|tenant| tenant.name == name)
    }

    /// Which programs have the GPU, in words: those whose calls go to it, which are several where some run beside others; else those
    /// whose memory comes for that, or whose work is being taken off it.
    pub fn on_gpu(&self) -> String {
        let named = |tenants: Vec<&Tenant>, word: fn(&Tenant) -> String| {
            let shown: Vec<String> = tenants.iter().take(NAMED).map(|tenant| word(tenant)).collect();
            let more = tenants.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{}{more}", shown.join(", "))
        };
        let running: Vec<&Tenant> = self.tenants.iter().filter(|tenant| tenant.is_running()).collect();
        let changes = |tenant: &&Tenant| matches!(tenant.state.as_str(), "loading" | "stopping");
        let changing: Vec<&Tenant> = self.tenants.iter().filter(changes).collect();
        match (running.is_empty(), changing.is_empty()) {
            (false, _) => named(running, |tenant| tenant.name.clone()),
            (true, false) => named(changing, |tenant| format!("{} ({})", tenant.name, tenant.standing())),
            (true, true) => "nobody".to_owned(),
        }
    }

    /// How many allocations were refused, for whatever reason.
    pub fn refused(&self) -> u64 {
        self.refused_arena + self.refused_host_pool + self.refused_held
    }

    /// The most memory that a program of this name had; of several the largest.
    pub fn peak(&self, name: &str) -> Option<u64> {
        let here = self.tenants.iter().map(|one| (&one.name, one.peak_bytes));
        let left = self.departed.iter().map(|one| (&one.name, one.peak_bytes));
        here.chain(left).filter(|(its, _)| *its == name).map(|(_, bytes)| bytes).max()
    }

    /// How many bytes a second came to the GPU in the last switches, if much did.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let add = |(bytes, seconds), one: &Switch| (bytes + one.bytes_in, seconds + one.in_seconds);
        let (bytes, seconds) = self.recent.iter().fold((0, 0.0), add);
        (bytes >= MEASURED && seconds > 0.0).then(|| bytes as f64 / seconds)
    }
}
