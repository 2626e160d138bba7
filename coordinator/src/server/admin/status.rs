//! How things stand: what `baton status` shows.

use std::sync::Arc;

use baton_contract::memory::{PerKind, Unmanaged};
use baton_views::quota::Met;
use baton_views::why::{Reason, WaitsFor};
use serde::Serialize;

use crate::server::outsiders::Outsider;
use crate::server::recorder::{
    BOUNDS, Counters, Departed, DepartedTotals, Histograms, PhaseBuckets, Record, Summary, Totals,
};
use crate::server::state::Server;
use crate::server::tenants::peer::Peer;
use crate::server::tenants::tenant::Tenant;
use baton_policy::arbiter::{State, TenantId};

/// Everything at one moment.
#[derive(Debug, Serialize)]
pub struct Status<'a> {
    /// Goes up when a field is removed or comes to mean something else.
    schema: u32,
    version: &'static str,
    started_unix_ms: u64,
    uptime_seconds: f64,
    gpu: GpuStatus,
    /// `system`, `simulated` or `file`: whoever wants to use it finds it by itself.
    driver: &'static str,
    socket: String,
    pid: u32,
    /// It takes no new programs, and ends after the last one.
    ending: bool,
    arena: ArenaStatus,
    ledger: LedgerStatus,
    host_pool: PoolStatus,
    /// Extents of all tenants.
    extents: usize,
    /// Open descriptors of the coordinator.
    descriptors: usize,
    holder: Option<String>,
    switches: u64,
    #[serde(flatten)]
    counters: Counters,
    /// How long things take: how often they were seen, and milliseconds.
    times: &'a Histograms,
    tenants: Vec<TenantStatus<'a>>,
    /// Programs that wait until there are fewer tenants, in this order.
    newcomers: Vec<NewcomerStatus>,
    max_tenants: usize,
    /// Processes on the GPU that are no tenants; none if they are not known.
    outsiders: Option<Vec<Outsider>>,
    /// Why they are not known.
    outsiders_unknown: Option<String>,
    recent: Vec<Record>,
    /// Allocations for which others had to go.
    allocations: Vec<Record>,
    departed: Vec<Departed>,
    /// Of all tenants that have left.
    departed_totals: &'a DepartedTotals,
    /// How long each part of switches takes, in buckets as those of tenants.
    switch_buckets: &'a PhaseBuckets,
    /// What each bucket holds at most. What takes longer is in one more.
    bucket_seconds: [f64; BOUNDS.len()],
}

#[derive(Debug, Serialize)]
struct GpuStatus {
    name: String,
    uuid: Arc<str>,
    memory_bytes: u64,
    driver_version: u32,
}

#[derive(Debug, Serialize)]
struct ArenaStatus {
    gpu: Arc<str>,
    bytes: u64,
    configured_bytes: u64,
    frames: usize,
    frame_bytes: u64,
    lent_bytes: u64,
    headroom_bytes: u64,
    clean_bytes: u64,
    dirty_bytes: u64,
}

/// All of the GPU's memory, in bytes. The lines add up to it.
#[derive(Debug, Serialize)]
struct LedgerStatus {
    gpu: Arc<str>,
    total_bytes: u64,
    /// What is used, as the driver says.
    driver_used_bytes: u64,
    /// What of that is known.
    known_bytes: u64,
    lines: LinesStatus,
}

#[derive(Debug, Serialize)]
struct LinesStatus {
    /// Frames that tenants have.
    lent_bytes: u64,
    /// What of the arena can be lent, whether there are frames of it yet or not.
    free_bytes: u64,
    /// What of the arena is kept free.
    headroom_bytes: u64,
    /// Leased by tenants for what does not move, and not used yet.
    promised_bytes: u64,
    /// Free, and not the arena's.
    beside_bytes: u64,
    /// What of tenants does not move, by kind: as far as the driver says that it is used.
    unmanaged: KindsStatus,
    contexts_bytes: u64,
    /// The coordinator's context, and what was used when the first tenant came.
    own_bytes: u64,
    /// Used, and nobody knows for what: code that was loaded late, local memory, channels.
    hidden_bytes: u64,
}

/// Bytes of each kind of memory that Baton does not move.
#[derive(Debug)]
struct KindsStatus(PerKind);

impl Serialize for KindsStatus {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Unmanaged::ALL.into_iter().map(|kind| (kind.word(), self.0[kind.index()])))
    }
}

#[derive(Debug, Serialize)]
struct PoolStatus {
    gpu: Arc<str>,
    bytes: u64,
    ready_bytes: u64,
    used_bytes: u64,
    given_up_bytes: u64,
    slabs: u64,
}

/// A program that waits to become a tenant.
#[derive(Debug, Serialize)]
struct NewcomerStatus {
    name: String,
    gpu: Arc<str>,
    pid: Option<i32>,
    user: Option<u32>,
    quotas: Vec<Met>,
    waited_seconds: f64,
    /// What it needs; none if it takes what there is.
    needs_bytes: Option<u64>,
    /// That it waits to join.
    waits_for: WaitsFor,
}

/// One tenant at one moment.
#[derive(Debug, Serialize)]
pub struct TenantStatus<'a> {
    /// Its number, which no other tenant of this coordinator ever has.
    id: u32,
    name: String,
    /// UUID of the GPU that it is a tenant of.
    gpu: Arc<str>,
    /// None if it is of another PID namespace.
    pid: Option<i32>,
    /// None if that is not known.
    user: Option<u32>,
    /// What another user's program may not have, and has asked for.
    quotas: Vec<Met>,
    class: &'static str,
    weight: u32,
    /// How long its requests may take, if that was said.
    slo_ms: Option<f64>,
    /// The first of the following that applies, in one word.
    state: &'static str,
    #[serde(flatten)]
    standing: Standing,
    bytes: u64,
    resident_bytes: u64,
    evicted_bytes: u64,
    missing_bytes: u64,
    /// What it has freed, and which stays its own until it next leaves the GPU.
    spare_bytes: u64,
    /// Frames that wait for what is evicted, in bytes.
    reserved_bytes: u64,
    /// Device memory of its that Baton does not move, that of the arena included.
    unmanaged_bytes: u64,
    /// What of that is beside the arena, by kind, as the tenant says.
    unmanaged: KindsStatus,
    /// What of that is in the arena: allocations that others can reach.
    immovable_bytes: u64,
    /// What it may use beside the arena without asking again.
    leased_bytes: u64,
    /// What its contexts take, as measured.
    contexts_bytes: u64,
    peak_bytes: u64,
    switches: u64,
    gpu_seconds: f64,
    /// Whether its work can be taken off the GPU in the middle.
    preemptible: bool,
    /// How long its requests take, in milliseconds, if it is of class latency and has made any.
    requests: Option<Summary>,
    /// How long it has waited for its turns, in milliseconds, if it has had any.
    waits: Option<Summary>,
    /// What only goes up.
    #[serde(flatten)]
    totals: Option<&'a Totals>,
    /// In which container it runs, and in which pod of Kubernetes, if that can be seen from here.
    container: Option<&'a str>,
    pod: Option<&'a str>,
    /// Why it does not go on, or that it does.
    waits_for: WaitsFor,
}

/// How a tenant stands, each by itself.
#[derive(Clone, Copy, Debug, Serialize)]
struct Standing {
    /// It does not do what it is told, so its memory stays where it is.
    unresponsive: bool,
    /// Its connection has ended, and its process has not.
    disconnected: bool,
    /// A user keeps it off the GPU.
    suspended: bool,
    /// Its calls go to the GPU; or, when it co-runs, it has work there.
    running: bool,
    /// It goes on, or is about to, while memory of its is still on the way.
    arriving: bool,
    /// It is its turn, and nothing of it runs before its memory has come, and its work is back.
    #[serde(skip)]
    loading: bool,
    /// Its turn is over, and its work is being taken off the GPU.
    #[serde(skip)]
    stopping: bool,
    /// Its work was taken off the GPU in the middle.
    preempted: bool,
    /// A call of its waits for the GPU, or for its memory.
    waiting: bool,
    /// It has memory, and none of that is on the GPU.
    evicted: bool,
}

impl Standing {
    /// In one word.
    fn state(self) -> &'static str {
        let words = [
            (self.unresponsive, "unresponsive"),
            (self.suspended, "suspended"),
            (self.running, "running"),
            (self.loading, "loading"),
            (self.stopping, "stopping"),
            (self.preempted, "preempted"),
            (self.waiting, "waiting"),
            (self.evicted, "evicted"),
        ];
        words.into_iter().find(|(applies, _)| *applies).map_or("idle", |(_, word)| word)
    }
}

impl Server {
    /// Sends a tool how things stand.
    pub(in crate::server) fn answer_status(&mut self, mut peer: Peer) {
        let all: Vec<TenantId> = self.card.tenants.ids().collect();
        all.into_iter().for_each(|id| self.turns().read_requests(id));
        self.memory().hear_of_all_unmanaged();
        self.card.outsiders.look();
        if super::send(&mut peer, &self.status()) {
            self.front.lobby.reads(peer);
        }
    }

    fn standing(&self, id: TenantId, tenant: &Tenant) -> Standing {
        let state = self.card.arbiter.state(id);
        let is_descheduled = tenant.preemption.is_descheduled();
        let has_gate_open = match state {
            State::Running => !self.card.arbiter.is_resting(id),
            // It is told to leave, and has yet to do so.
            State::Leaving => !tenant.preemption.is_under_way(),
            State::Corunning => self.card.corun.is_at_work(id),
            State::Idle | State::Waiting | State::Arriving => false,
        };
        let counts = tenant.extents().counts();
        Standing {
            unresponsive: !tenant.is_movable() || tenant.scheduling.left_out.is_some(),
            disconnected: !tenant.connection.is_open(),
            suspended: self.card.arbiter.is_suspended(id) && self.card.arbiter.state(id).is_off_the_gpu(),
            running: has_gate_open && !is_descheduled,
            arriving: matches!(state, State::Arriving | State::Running) && tenant.extents().counts().missing > 0,
            loading: state == State::Arriving,
            stopping: state == State::Leaving && tenant.preemption.is_under_way(),
            preempted: tenant.preemption.is_under_way() || has_gate_open && is_descheduled,
            waiting: matches!(state, State::Waiting | State::Arriving),
            // What cannot move is always there.
            evicted: counts.bytes > counts.immovable && counts.here() == counts.immovable,
        }
    }

    /// Every byte of the GPU.
    fn ledger_status(&self) -> LedgerStatus {
        let (lines, now) = self.card.memory.lines();
        let total_bytes = self.card.memory.gpu().memory;
        LedgerStatus {
            gpu: Arc::clone(self.card.recorder.gpu()),
            total_bytes,
            driver_used_bytes: total_bytes.saturating_sub(now.free),
            known_bytes: lines.known(now.frames),
            lines: LinesStatus {
                lent_bytes: lines.lent,
                free_bytes: lines.free,
                headroom_bytes: lines.headroom,
                promised_bytes: lines.promised,
                beside_bytes: lines.beside,
                unmanaged: KindsStatus(lines.unmanaged),
                contexts_bytes: lines.contexts,
                own_bytes: lines.own,
                hidden_bytes: lines.hidden,
            },
        }
    }

    /// How things stand now.
    pub(in crate::server) fn status(&self) -> Status<'_> {
        let gpu = || Arc::clone(self.card.recorder.gpu());
        let bytes = self.card.memory.arena().bytes();
        let tenants = self.card.tenants.iter().map(|(id, tenant)| {
            let standing = self.standing(id, tenant);
            let counts = tenant.extents().counts();
            let immovable = counts.immovable;
            let beside = self.card.memory.account(id);
            // The arbiter knows nobody whose connection has ended.
            let (switches, gpu_micros) = match tenant.connection.is_open() {
                true => (self.card.arbiter.switches(id), self.card.arbiter.gpu_time(id, self.now())),
                false => tenant.scheduling.counted,
            };
            let container = tenant.connection.process.container();
            TenantStatus {
                id: id.0,
                name: tenant.name.clone(),
                gpu: gpu(),
                pid: tenant.connection.process.pid(),
                user: tenant.connection.process.user(),
                quotas: self.card.tenants.quotas_met(id).cloned().collect(),
                class: tenant.class().word(),
                weight: tenant.scheduling.wanted.weight,
                slo_ms: (tenant.scheduling.wanted.slo_micros > 0)
                    .then_some(tenant.scheduling.wanted.slo_micros as f64 / 1e3),
                state: standing.state(),
                standing,
                bytes: counts.bytes - immovable,
                resident_bytes: counts.here() - immovable,
                evicted_bytes: counts.away,
                missing_bytes: counts.missing,
                spare_bytes: counts.spare,
                reserved_bytes: counts.reserved,
                unmanaged_bytes: beside.unmanaged.into_iter().fold(immovable, u64::saturating_add),
                unmanaged: KindsStatus(beside.unmanaged),
                immovable_bytes: immovable,
                leased_bytes: beside.leased,
                contexts_bytes: beside.context_bytes,
                peak_bytes: tenant.memory.peak_bytes,
                switches,
                gpu_seconds: gpu_micros as f64 / 1e6,
                preemptible: tenant.preemption.works(),
                requests: self.card.recorder.requests(id),
                waits: self.card.recorder.waits(id),
                totals: self.card.recorder.totals(id),
                container: container.and_then(|container| container.id.as_deref()),
                pod: container.and_then(|container| container.pod.as_deref()),
                waits_for: self.waits_for(id, tenant),
            }
        });
        let newcomers = self.front.lobby.waiting().map(|(newcomer, since)| NewcomerStatus {
            name: newcomer.name.clone(),
            gpu: gpu(),
            pid: newcomer.process.pid(),
            user: newcomer.process.user(),
            quotas: self.quota_in_the_way_of(newcomer).into_iter().chain(newcomer.met.iter().cloned()).collect(),
            waited_seconds: since.elapsed().as_secs_f64(),
            needs_bytes: newcomer.need.map(|need| need.bytes),
            waits_for: WaitsFor {
                reason: if newcomer.need.is_some() { Reason::Room } else { Reason::Join },
                bytes: self.lacks(newcomer).bytes(),
                since_ms: Some(since.elapsed().as_secs_f64() * 1e3),
                ..WaitsFor::default()
            },
        });
        let holder = self.card.arbiter.holder().and_then(|id| self.card.tenants.get(id));
        let outsiders = self.card.outsiders.list(&self.card.tenants);
        Status {
            schema: baton_views::event::SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            started_unix_ms: self.card.recorder.started_unix_ms(),
            uptime_seconds: self.clock.start.elapsed().as_secs_f64(),
            gpu: GpuStatus {
                name: self.card.memory.gpu().name.clone(),
                uuid: gpu(),
                memory_bytes: self.card.memory.gpu().memory,
                driver_version: self.card.memory.gpu().driver_version,
            },
            driver: self.options.driver.word(),
            socket: self.front.endpoint.path().display().to_string(),
            pid: std::process::id(),
            ending: self.front.lobby.is_closed(),
            arena: ArenaStatus {
                gpu: gpu(),
                bytes: self.card.memory.arena().capacity(),
                configured_bytes: self.card.memory.arena().configured(),
                frames: self.card.memory.arena().frames(),
                frame_bytes: bytes.all(),
                lent_bytes: bytes.lent,
                headroom_bytes: self.options.headroom,
                clean_bytes: bytes.clean,
                dirty_bytes: bytes.dirty + bytes.scrubbing,
            },
            ledger: self.ledger_status(),
            host_pool: PoolStatus {
                gpu: gpu(),
                bytes: self.card.memory.pool().bytes(),
                ready_bytes: self.card.memory.pool().ready(),
                used_bytes: self.card.memory.pool().used(),
                given_up_bytes: self.card.memory.given_up(),
                slabs: self.card.memory.pool().slabs(),
            },
            extents: self.card.tenants.iter().map(|(_, tenant)| tenant.extents().len()).sum(),
            descriptors: std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count().saturating_sub(1)),
            holder: holder.map(|tenant| tenant.name.clone()),
            switches: self.card.recorder.switches(),
            counters: self.card.recorder.counters().clone(),
            times: self.card.recorder.times(),
            tenants: tenants.collect(),
            newcomers: newcomers.collect(),
            max_tenants: self.options.tuning.max_tenants,
            outsiders_unknown: outsiders.as_ref().err().cloned(),
            outsiders: outsiders.ok(),
            recent: self.card.recorder.recent().cloned().collect(),
            allocations: self.card.recorder.allocations().cloned().collect(),
            departed: self.card.recorder.departed().cloned().collect(),
            departed_totals: self.card.recorder.departed_totals(),
            switch_buckets: self.card.recorder.phases(),
            bucket_seconds: BOUNDS,
        }
    }
}
