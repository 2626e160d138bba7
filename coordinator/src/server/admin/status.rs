//! Status: the data that `baton status` shows.

use std::sync::Arc;

use baton_policy::arbiter::{self, TenantId};
use baton_report::event::SCHEMA;
use baton_report::memory::{Arena, HostPool, Ledger, Lines};
use baton_report::status::{Gpu, Status};
use baton_report::tenant::{self as shown, Newcomer, Standing, State};
use baton_report::times::BOUNDS;
use baton_report::waits::{Reason, WaitsFor};

use crate::server::outsiders::Outsider;
use crate::server::state::Server;
use crate::server::tenants::peer::Peer;
use crate::server::tenants::tenant::Tenant;

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

    /// The first standing that applies to a tenant, and the tenant's state.
    fn standing(&self, id: TenantId, tenant: &Tenant) -> (Standing, State) {
        use arbiter::State as Turn;

        let turn = self.card.arbiter.state(id);
        let is_descheduled = tenant.preemption.is_descheduled();
        let has_gate_open = match turn {
            Turn::Running => !self.card.arbiter.is_resting(id),
            // It is told to leave, and has yet to do so.
            Turn::Leaving => !tenant.preemption.is_under_way(),
            Turn::Corunning => self.card.corun.is_at_work(id),
            Turn::Idle | Turn::Waiting | Turn::Arriving => false,
        };
        let counts = tenant.extents().counts();
        let standing = Standing {
            unresponsive: !tenant.is_movable() || tenant.scheduling.left_out.is_some(),
            disconnected: !tenant.connection.is_open(),
            suspended: self.is_suspended(id),
            running: has_gate_open && !is_descheduled,
            arriving: matches!(turn, Turn::Arriving | Turn::Running) && tenant.extents().counts().missing > 0,
            preempted: tenant.preemption.is_under_way() || has_gate_open && is_descheduled,
            waiting: matches!(turn, Turn::Waiting | Turn::Arriving),
            // Immovable memory is always there.
            evicted: counts.bytes > counts.immovable && counts.here() == counts.immovable,
        };
        let states = [
            (standing.unresponsive, State::Unresponsive),
            (standing.suspended, State::Suspended),
            (standing.running, State::Running),
            (turn == Turn::Arriving, State::Loading),
            (turn == Turn::Leaving && tenant.preemption.is_under_way(), State::Stopping),
            (standing.preempted, State::Preempted),
            (standing.waiting, State::Waiting),
            (standing.evicted, State::Evicted),
        ];
        let state = states.into_iter().find(|(applies, _)| *applies).map_or(State::Idle, |(_, state)| state);
        (standing, state)
    }

    /// Every byte of the GPU.
    fn ledger_status(&self) -> Ledger {
        let (lines, now) = self.card.memory.lines();
        let total_bytes = self.card.memory.gpu().memory;
        Ledger {
            gpu: Arc::clone(self.card.recorder.gpu()),
            total_bytes,
            driver_used_bytes: total_bytes.saturating_sub(now.free),
            known_bytes: lines.known(now.frames),
            lines: Lines {
                lent_bytes: lines.lent,
                free_bytes: lines.free,
                headroom_bytes: lines.headroom,
                promised_bytes: lines.promised,
                beside_bytes: lines.beside,
                unmanaged: lines.unmanaged.into(),
                contexts_bytes: lines.contexts,
                own_bytes: lines.own,
                hidden_bytes: lines.hidden,
            },
        }
    }

    /// The status now.
    pub(in crate::server) fn status(&self) -> Status {
        let gpu = || Arc::clone(self.card.recorder.gpu());
        let bytes = self.card.memory.arena().bytes();
        let tenants = self.card.tenants.iter().map(|(id, tenant)| {
            let (standing, state) = self.standing(id, tenant);
            let counts = tenant.extents().counts();
            let immovable = counts.immovable;
            let beside = self.card.memory.account(id);
            // The arbiter knows no tenant whose connection has ended.
            let (switches, gpu_micros) = match tenant.connection.is_open() {
                true => (self.card.arbiter.switches(id), self.card.arbiter.gpu_time(id, self.now())),
                false => tenant.scheduling.counted,
            };
            let container = tenant.connection.process.container();
            shown::Tenant {
                id: id.0,
                name: tenant.name.clone(),
                gpu: gpu(),
                pid: tenant.connection.process.pid(),
                gang: tenant.gang.map(|gang| format!("{:x}", gang.number)),
                user: tenant.connection.process.user(),
                quotas: self.card.tenants.quotas_met(id).cloned().collect(),
                class: tenant.class().word().to_owned(),
                weight: tenant.scheduling.wanted.weight,
                slo_ms: (tenant.scheduling.wanted.slo_micros > 0)
                    .then_some(tenant.scheduling.wanted.slo_micros as f64 / 1e3),
                state,
                standing,
                bytes: counts.bytes - immovable,
                resident_bytes: counts.here() - immovable,
                evicted_bytes: counts.away,
                missing_bytes: counts.missing,
                spare_bytes: counts.spare,
                reserved_bytes: counts.reserved,
                unmanaged_bytes: beside.unmanaged.into_iter().fold(immovable, u64::saturating_add),
                unmanaged: beside.unmanaged.into(),
                immovable_bytes: immovable,
                leased_bytes: beside.leased,
                contexts_bytes: beside.context_bytes,
                peak_bytes: tenant.memory.peak_bytes,
                switches,
                gpu_seconds: gpu_micros as f64 / 1e6,
                preemptible: tenant.preemption.works(),
                requests: self.card.recorder.requests(id),
                waits: self.card.recorder.waits(id),
                // Each that is there has joined.
                totals: self.card.recorder.totals(id).cloned().unwrap_or_default(),
                container: container.and_then(|container| container.id.clone()),
                pod: container.and_then(|container| container.pod.clone()),
                waits_for: self.waits_for(id, tenant),
            }
        });
        let newcomers = self.front.lobby.waiting().map(|(newcomer, since)| Newcomer {
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
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_ms: self.card.recorder.started_unix_ms(),
            uptime_seconds: self.clock.start.elapsed().as_secs_f64(),
            gpu: Gpu {
                number: self.options.number,
                name: self.card.memory.gpu().name.clone(),
                uuid: gpu(),
                memory_bytes: self.card.memory.gpu().memory,
                driver_version: self.card.memory.gpu().driver_version,
            },
            driver: self.options.driver.word().to_owned(),
            socket: self.front.endpoint.path().display().to_string(),
            pid: std::process::id(),
            keeper: self.front.keeper.pid(),
            ending: self.front.lobby.is_closed(),
            arena: Arena {
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
            host_pool: HostPool {
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
            expected: self.front.lobby.expected(),
            max_tenants: self.options.tuning.max_tenants,
            outsiders_unknown: outsiders.as_ref().err().map(ToString::to_string),
            outsiders: outsiders.ok().map(|all| all.into_iter().map(|one: Outsider| one.shown).collect()),
            recent: self.card.recorder.recent().cloned().collect(),
            allocations: self.card.recorder.allocations().cloned().collect(),
            departed: self.card.recorder.departed().cloned().collect(),
            departed_totals: self.card.recorder.departed_totals().clone(),
            switch_buckets: self.card.recorder.phases().clone(),
            bucket_seconds: BOUNDS.to_vec(),
        }
    }
}
