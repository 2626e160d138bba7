//! What is read of a coordinator's status: the names are those of `baton status --json`.

use std::collections::BTreeMap;

use baton_kubernetes::pods::Pod;
use serde::{Deserialize, Serialize};

/// How things stand.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub(crate) version: String,
    pub(crate) started_unix_ms: u64,
    pub(crate) uptime_seconds: f64,
    pub(crate) gpu: Gpu,
    pub(crate) driver: String,
    pub(crate) arena: Arena,
    pub(crate) ledger: Ledger,
    pub(crate) host_pool: Pool,
    pub(crate) holder: Option<String>,
    pub(crate) switches: u64,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) preemptions: u64,
    pub(crate) deschedules: u64,
    pub(crate) refused_arena: u64,
    pub(crate) refused_host_pool: u64,
    pub(crate) refused_held: u64,
    pub(crate) tenants: Vec<Tenant>,
    pub(crate) newcomers: Vec<Newcomer>,
    pub(crate) max_tenants: u64,
    pub(crate) recent: Vec<Switch>,
    pub(crate) departed_totals: DepartedTotals,
    pub(crate) switch_buckets: BTreeMap<String, Buckets>,
    pub(crate) bucket_seconds: Vec<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Gpu {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) memory_bytes: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Arena {
    pub(crate) bytes: u64,
    pub(crate) lent_bytes: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Ledger {
    pub(crate) total_bytes: u64,
    pub(crate) lines: Lines,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Lines {
    pub(crate) lent_bytes: u64,
    pub(crate) free_bytes: u64,
    pub(crate) headroom_bytes: u64,
    pub(crate) promised_bytes: u64,
    pub(crate) beside_bytes: u64,
    pub(crate) unmanaged: BTreeMap<String, u64>,
    pub(crate) contexts_bytes: u64,
    pub(crate) own_bytes: u64,
    pub(crate) hidden_bytes: u64,
}

impl Lines {
    /// Each line with its name, in the order in which they are shown. They add up to all of the GPU's memory.
    pub(crate) fn all(&self) -> [(&'static str, u64); 9] {
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
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pool {
    pub(crate) bytes: u64,
    pub(crate) ready_bytes: u64,
    pub(crate) used_bytes: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Newcomer {
    pub(crate) name: String,
    pub(crate) waited_seconds: f64,
}

/// A program.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Tenant {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) class: String,
    pub(crate) weight: u32,
    pub(crate) slo_ms: Option<f64>,
    pub(crate) state: String,
    pub(crate) suspended: bool,
    pub(crate) resident_bytes: u64,
    pub(crate) evicted_bytes: u64,
    pub(crate) unmanaged_bytes: u64,
    pub(crate) contexts_bytes: u64,
    pub(crate) switches: u64,
    pub(crate) gpu_seconds: f64,
    pub(crate) requests: Option<Summary>,
    pub(crate) waits: Option<Summary>,
    pub(crate) wait_buckets: Buckets,
    pub(crate) request_buckets: Buckets,
    pub(crate) slo_misses: u64,
    pub(crate) container: Option<String>,
    pub(crate) pod: Option<String>,
    /// Its pod as kubelet names it: the status does not know.
    #[serde(skip)]
    pub(crate) named_pod: Option<Pod>,
}

/// Times of one kind, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct Summary {
    pub(crate) count: u64,
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    pub(crate) max: Option<f64>,
}

/// Times of one kind, by how long they are.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Buckets {
    /// How many are in each bucket, and in no smaller one.
    pub(crate) counts: Vec<u64>,
    pub(crate) sum_seconds: f64,
}

/// What only goes up, of all that have left.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DepartedTotals {
    pub(crate) tenants: u64,
    pub(crate) gpu_seconds: f64,
    pub(crate) wait_buckets: Buckets,
    pub(crate) request_buckets: Buckets,
    pub(crate) slo_misses: u64,
}

/// One change of the baton's holder.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Switch {
    pub(crate) n: u64,
    pub(crate) from: Option<String>,
    pub(crate) to: String,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) drain_ms: f64,
    pub(crate) pause_ms: f64,
    pub(crate) unmap_ms: f64,
    pub(crate) prepare_ms: f64,
    pub(crate) map_ms: f64,
    pub(crate) switch_ms: f64,
    pub(crate) out_seconds: f64,
    pub(crate) in_seconds: f64,
    pub(crate) phases: Phases,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Phases {
    pub(crate) decided_ms: Option<f64>,
    pub(crate) granted_ms: Option<f64>,
    pub(crate) first_launch_ms: Option<f64>,
    pub(crate) all_resident_ms: Option<f64>,
}
