//! How things stand: what `baton status` shows.

use std::sync::atomic::Ordering::Relaxed;

use baton_contract::socket_path;
use serde::Serialize;

use super::Server;
use super::ledger::{Departed, Record};
use crate::arbiter::State;

/// Everything at one moment.
#[derive(Debug, Serialize)]
pub struct Status {
    version: &'static str,
    gpu: GpuStatus,
    /// `system`, `simulated` or `file`: whoever wants to use it finds it by itself.
    driver: &'static str,
    socket: String,
    pid: u32,
    arena: ArenaStatus,
    host_pool: PoolStatus,
    /// Extents of all tenants.
    extents: usize,
    /// Open descriptors of the coordinator.
    descriptors: usize,
    holder: Option<String>,
    switches: u64,
    bytes_in: u64,
    bytes_out: u64,
    pauses: u64,
    /// How often work was taken off the GPU because somebody urgent ran beside it.
    set_aside: u64,
    pause_seconds: f64,
    scrubbed_bytes: u64,
    scrub_seconds: f64,
    /// Looked at on the GPU, to find what changed and what points where.
    looked_bytes: u64,
    look_seconds: f64,
    switch_ms_p50: Option<f64>,
    switch_ms_max: Option<f64>,
    tenants: Vec<TenantStatus>,
    /// Programs that wait until there are fewer tenants, in this order.
    newcomers: Vec<NewcomerStatus>,
    max_tenants: usize,
    recent: Vec<Record>,
    /// Allocations for which others had to go.
    allocations: Vec<Record>,
    departed: Vec<Departed>,
}

#[derive(Debug, Serialize)]
struct GpuStatus {
    name: String,
    uuid: String,
    memory_bytes: u64,
    driver_version: u32,
}

#[derive(Debug, Serialize)]
struct ArenaStatus {
    bytes: u64,
    configured_bytes: u64,
    frames: usize,
    frame_bytes: u64,
    lent_bytes: u64,
    headroom_bytes: u64,
    clean_bytes: u64,
    dirty_bytes: u64,
}

#[derive(Debug, Serialize)]
struct PoolStatus {
    bytes: u64,
    ready_bytes: u64,
    used_bytes: u64,
    slabs: u64,
}

/// A program that waits to become a tenant.
#[derive(Debug, Serialize)]
struct NewcomerStatus {
    name: String,
    pid: Option<i32>,
    waited_seconds: f64,
}

/// One tenant at one moment.
#[derive(Debug, Serialize)]
pub struct TenantStatus {
    name: String,
    /// None if it is of another PID namespace.
    pid: Option<i32>,
    class: &'static str,
    weight: u32,
    /// How long its requests may take, if that was said.
    slo_ms: Option<f64>,
    state: &'static str,
    bytes: u64,
    resident_bytes: u64,
    evicted_bytes: u64,
    /// Frames that wait for what is evicted, in bytes.
    reserved_bytes: u64,
    pinned_bytes: u64,
    peak_bytes: u64,
    switches: u64,
    gpu_seconds: f64,
    /// Whether its work can be taken off the GPU in the middle.
    pausable: bool,
}

impl Server {
    /// How things stand now.
    pub(super) fn status(&self) -> Status {
        let bytes = self.arena.bytes();
        let (switch_ms_p50, switch_ms_max) = self.ledger.switch_ms();
        let tenants = self.tenants.iter().map(|(id, tenant)| {
            let state = match self.arbiter.state(*id) {
                _ if !tenant.is_movable() => "stuck",
                _ if self.arbiter.is_suspended(*id) && self.is_off_the_gpu(*id) => "suspended",
                State::Idle => "idle",
                State::Waiting if tenant.hold.is_some() => "paused",
                State::Waiting => "waiting",
                State::Arriving => "arriving",
                State::Running if tenant.missing_bytes() > 0 => "arriving",
                State::Running if tenant.pausable.is_aside() => "paused",
                State::Beside if !self.places.is_taken_by(tenant.place) => "idle",
                State::Running | State::Beside => "running",
                State::Leaving => "leaving",
            };
            TenantStatus {
                name: tenant.name.clone(),
                pid: tenant.process.pid(),
                class: tenant.class().word(),
                weight: tenant.scheduling.weight,
                slo_ms: (tenant.scheduling.slo_micros > 0).then_some(tenant.scheduling.slo_micros as f64 / 1e3),
                state,
                bytes: tenant.bytes(),
                resident_bytes: tenant.resident_bytes(),
                evicted_bytes: tenant.bytes() - tenant.resident_bytes(),
                reserved_bytes: tenant.reserved_bytes(),
                pinned_bytes: tenant.theirs.pinned_bytes.load(Relaxed),
                peak_bytes: tenant.peak_bytes,
                switches: self.arbiter.switches(*id),
                gpu_seconds: self.arbiter.gpu_time(*id, self.now()) as f64 / 1e6,
                pausable: tenant.pausable.works,
            }
        });
        let newcomers = self.newcomers.iter().map(|newcomer| NewcomerStatus {
            name: newcomer.name.clone(),
            pid: newcomer.process.pid(),
            waited_seconds: newcomer.since.elapsed().as_secs_f64(),
        });
        let holder = self.arbiter.holder().and_then(|id| self.tenants.get(&id));
        Status {
            version: env!("CARGO_PKG_VERSION"),
            gpu: GpuStatus {
                name: self.gpu.name.clone(),
                uuid: socket_path::gpu_name(self.gpu.uuid),
                memory_bytes: self.gpu.memory,
                driver_version: self.gpu.driver_version,
            },
            driver: self.options.driver.word(),
            socket: self.endpoint.path().display().to_string(),
            pid: std::process::id(),
            arena: ArenaStatus {
                bytes: self.arena.capacity(),
                configured_bytes: self.arena.configured(),
                frames: self.arena.frames(),
                frame_bytes: bytes.all(),
                lent_bytes: bytes.lent,
                headroom_bytes: self.options.headroom,
                clean_bytes: bytes.clean,
                dirty_bytes: bytes.dirty + bytes.scrubbing,
            },
            host_pool: PoolStatus {
                bytes: self.pool.bytes(),
                ready_bytes: self.pool.ready(),
                used_bytes: self.pool.used(),
                slabs: self.pool.slabs(),
            },
            extents: self.tenants.values().map(|tenant| tenant.extents.len()).sum(),
            descriptors: std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count().saturating_sub(1)),
            holder: holder.map(|tenant| tenant.name.clone()),
            switches: self.ledger.switches,
            bytes_in: self.ledger.bytes_in,
            bytes_out: self.ledger.bytes_out,
            pauses: self.ledger.pauses,
            set_aside: self.ledger.set_aside,
            pause_seconds: self.ledger.pause_seconds,
            scrubbed_bytes: self.ledger.scrubbed_bytes,
            scrub_seconds: self.ledger.scrub_seconds,
            looked_bytes: self.ledger.looked_bytes,
            look_seconds: self.ledger.look_seconds,
            switch_ms_p50,
            switch_ms_max,
            tenants: tenants.collect(),
            newcomers: newcomers.collect(),
            max_tenants: self.options.max_tenants,
            recent: self.ledger.recent.iter().cloned().collect(),
            allocations: self.ledger.allocations.iter().cloned().collect(),
            departed: self.ledger.departed.iter().cloned().collect(),
        }
    }
}
