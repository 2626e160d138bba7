//! Memory: whose is what, and how it comes and goes.
//!
//! | file | what it does |
//! |---|---|
//! | `admission` | how much memory there is for those who come, and for more of those who are here |
//! | `allocate` | whether a tenant may have so much more, and frames for it |
//! | `frames` | free ones, new ones, dirty ones |
//! | `host` | the pool on the host |
//! | `quotas` | what a guest's programs may have |
//! | `beside` | memory beside the arena: the ledger's leases, contexts |
//! | `evict` | memory that leaves |
//! | `swap_in` | how a tenant comes in: order, groups, running meanwhile |
//! | `consolidate` | memory that becomes one piece, because other processes are to have it |
//! | `fit` | memory is cut into the sizes at hand |
//! | `recut` | memory on the host is cut into as few extents as possible |
//! | `ahead` | copies of what a program may have to give away, made while it rests |
//! | `prefetch` | what is done before anybody asks |
//! | `scan` | what memory holds: what has changed, what is zero, what points where |
//! | `take` | memory that is taken without asking from a tenant that does not answer |
//! | `transfer` | copies under way |
//! | `reports` | what the end of a copy means, and what tenants have done with their mappings |
//! | `delivery` | frames that do not reach a tenant at its limit of descriptors |
//! | `immovable` | memory that others can reach, and which stays |
//! | `sharing` | memory that several tenants have |
//! | `obstacle` | what memory that somebody waits for waits for itself |
//! | `departed` | memory of tenants that have ended |
//!
//! [`Memory`] is what is known here and nowhere else. Whoever asks for something gets [`Access`] to it, with all else that is
//! needed for the answer: the tenants, to tell them what to map; the arbiter, only to see whose turn it is; the ledger. What
//! others have to act upon comes back as a [`MemoryEvent`].

mod admission;
mod ahead;
mod allocate;
mod beside;
mod consolidate;
mod delivery;
mod departed;
mod evict;
mod fit;
mod frames;
mod host;
mod immovable;
mod obstacle;
mod prefetch;
mod quotas;
mod recut;
mod reports;
mod scan;
mod sharing;
mod swap_in;
mod take;
mod transfer;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use self::ahead::Ahead;
use self::allocate::Claim;
use self::beside::Leases;
use self::departed::Departed;
use self::frames::{Frames, Scrubbed};
use self::host::Host;
use self::scan::{Looked, Scans};
use self::swap_in::SwapIn;
use self::transfer::Transfer;
use super::cost_model::CostModel;
use super::recorder::Recorder;
use super::recorder::event::What;
use super::tenants::guests::Quotas;
use super::tenants::table::Tenants;
use super::{Isolation, Options, Pipeline, ServeError};
use crate::device::gpu::Gpu;
use crate::device::wake::Waker;
use baton_books::arena::{Arena, Owner};
use baton_books::pool::Pool;
use baton_books::sharing::Sharing;
use baton_policy::arbiter::TenantId;
use baton_policy::scheduler::Scheduler;

pub(super) use self::departed::Remains;
pub(super) use self::evict::Evicted;
pub(super) use self::obstacle::Obstacle;
pub(super) use self::prefetch::Fetched;
pub(super) use self::sharing::Attaching;

/// How often it is looked whether a squeezed arena can grow back.
const UNSQUEEZE: Duration = Duration::from_millis(500);

/// What somebody else has to act upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemoryEvent {
    /// All memory is here of the unit that is swapped in.
    AllHere(TenantId),
    /// It can run: what is on its way is known with all that it points to, and there are frames for everything.
    Ready(TenantId),
    /// What it lacks cannot come now.
    CannotArrive(TenantId),
    /// The same, and it runs already.
    Stranded(TenantId),
    /// Memory has to go, and some of it is of tenants that run beside others.
    CorunnersInTheWay,
    /// What is spare of its memory is in the way of what it asks for: it is given back when the tenant leaves the GPU.
    SpareInTheWay(TenantId),
    /// Some of its memory is to become one piece: it has to leave the GPU, and to come in anew.
    Consolidates(TenantId),
    /// Nothing of others is mapped there any more.
    Whole(TenantId),
    /// A copy of its memory failed, so it could only go on with wrong contents.
    Spoiled(TenantId),
}

/// How memory is managed.
#[derive(Clone, Copy, Debug)]
struct Rules {
    headroom: u64,
    pipeline: Pipeline,
    hash: bool,
    isolation: Isolation,
    quotas: Quotas,
}

/// What is brought in, for whom, and what is done ahead of need.
struct Residency {
    waker: Waker,
    swap_in: Option<SwapIn>,
    ahead: Option<Ahead>,
}

/// All memory that the coordinator has, on the GPU and on the host.
pub(super) struct Memory {
    rules: Rules,
    frames: Frames,
    host: Host,
    leases: Leases,
    transfer: Transfer,
    departed: Departed,
    claims: VecDeque<Claim>,
    scans: Scans,
    residency: Residency,
    /// What was last shown to tenants.
    shown: Option<immovable::Shown>,
    /// What tenants have of each other's.
    sharing: Sharing<TenantId>,
    events: VecDeque<MemoryEvent>,
}

/// Memory, and what else is needed to manage it.
pub(super) struct Access<'a> {
    pub(super) memory: &'a mut Memory,
    pub(super) tenants: &'a mut Tenants,
    /// Only to be asked.
    pub(super) arbiter: &'a Scheduler,
    pub(super) recorder: &'a mut Recorder,
    pub(super) costs: &'a mut CostModel,
}

impl Memory {
    /// Takes a GPU's memory into service.
    pub(super) fn new(gpu: Gpu, options: &Options, waker: Waker) -> Result<Self, ServeError> {
        let transfer = Transfer::new(&gpu, &waker)?;
        let scans = Scans::new(&gpu, &waker)?;
        let host = Host::new(&gpu, options.host_pool, !options.until_idle, waker.clone())
            .map_err(|error| ServeError::System { what: "reserving addresses for the host pool".to_owned(), error })?;
        let frames = Frames::new(gpu.clone(), options.arena, options.poison, options.keep, &waker)?;
        let Options { headroom, pipeline, hash, isolation, quotas, .. } = *options;
        let own = gpu.memory.saturating_sub(gpu.free_memory().unwrap_or(gpu.memory));
        Ok(Self {
            leases: Leases::new(gpu.memory, own),
            rules: Rules { headroom, pipeline, hash, isolation, quotas },
            frames,
            host,
            transfer,
            departed: Departed::default(),
            claims: VecDeque::new(),
            scans,
            residency: Residency { waker, swap_in: None, ahead: None },
            shown: None,
            sharing: Sharing::default(),
            events: VecDeque::new(),
        })
    }

    /// The GPU that it is of.
    pub(super) fn gpu(&self) -> &Gpu {
        self.frames.gpu()
    }

    /// The GPU's part of it.
    pub(super) fn arena(&self) -> &Arena {
        self.frames.arena()
    }

    /// The host's part of it.
    pub(super) fn pool(&self) -> &Pool {
        self.host.pool()
    }

    /// What has lost its place in it and may have to leave the GPU again, in bytes.
    pub(super) fn given_up(&self) -> u64 {
        self.host.given_up()
    }

    /// What has happened, one after the other.
    pub(super) fn next_event(&mut self) -> Option<MemoryEvent> {
        self.events.pop_front()
    }

    /// What one tenant may have, in bytes: the arena less the headroom.
    pub(super) fn offered(&self) -> u64 {
        self.frames.arena().capacity().saturating_sub(self.rules.headroom)
    }

    /// When something is to be done if nothing happens before.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        let look = self.is_squeezed().then(|| Instant::now() + UNSQUEEZE);
        [look, self.departed.next_look()].into_iter().flatten().min()
    }
}

impl Access<'_> {
    /// Who may have the frames that a tenant has had.
    fn owner_of(&self, id: TenantId) -> Owner {
        match self.memory.rules.isolation {
            Isolation::Users => {
                Owner::of_user(self.tenants.get(id).and_then(|tenant| tenant.connection.control.guest()))
            }
            Isolation::Strict => Owner::of_tenant(id.0),
        }
    }

    /// Hears what the threads report.
    pub(super) fn hear(&mut self) {
        while let Some(ended) = self.memory.transfer.next_ended() {
            self.job_ended(ended);
        }
        while let Some((looked, scanned)) = self.memory.scans.next_over() {
            match looked {
                Looked::Leaving(look) => self.scanned(&look, scanned),
                Looked::Ahead(look) => self.looked_ahead(look, scanned),
            }
        }
        for Scrubbed { bytes, time } in self.memory.frames.hear() {
            self.recorder.record_of_gpu(What::Scrubbed { bytes, time });
        }
        self.memory.host.hear();
    }

    /// What only time brings.
    pub(super) fn timers(&mut self) {
        for gone in self.memory.departed.end_quarantine(&mut self.memory.frames) {
            self.drop_attachments(gone);
        }
        self.memory.unsqueeze();
    }

    /// Whether nothing of the tenant's can run on the GPU now: only then may its memory be touched.
    fn is_off_the_gpu(&self, id: TenantId) -> bool {
        self.arbiter.state(id).is_off_the_gpu()
    }

    fn happened(&mut self, event: MemoryEvent) {
        self.memory.events.push_back(event);
    }

    fn is_anybody_corunning(&self) -> bool {
        self.tenants.ids().any(|id| self.arbiter.is_corunner(id))
    }

    /// If some run beside others, they are to leave. Says whether there are any.
    fn part_corunners(&mut self) -> bool {
        let any = self.is_anybody_corunning();
        if any {
            self.happened(MemoryEvent::CorunnersInTheWay);
        }
        any
    }
}
