//! Memory: whose is what, and how it comes and goes.
//!
//! | file | what it does |
//! |---|---|
//! | `admission` | how much memory there is for those who come, and for more of those who are here |
//! | `allocate` | whether a tenant may have so much more, and frames for it |
//! | `frames` | free ones, new ones, dirty ones |
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
//! | `transfer` | copies under way, and what tenants are told to do with their mappings |
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
mod immovable;
mod obstacle;
mod prefetch;
mod quotas;
mod recut;
mod scan;
mod sharing;
mod swap_in;
mod take;
mod transfer;

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use baton_contract::messages::ExtentId;

use self::allocate::Claim;
use self::departed::Quarantine;
use self::scan::ScanUnderWay;
use self::swap_in::SwapIn;
use self::transfer::Task;
use super::cost_model::CostModel;
use super::recorder::Recorder;
use super::tenants::guests::Quotas;
use super::tenants::peer::Sent;
use super::tenants::table::Tenants;
use super::{Isolation, Options, Pipeline, ServeError};
use crate::device::digest::{ScanId, Scanned, Scanner};
use crate::device::gpu::{self, Gpu};
use crate::device::mover::{Finished, JobId, Mover};
use crate::device::slabs::{Prepared, Slabs};
use crate::device::wake::Waker;
use baton_books::arena::{Arena, FrameId};
use baton_books::ledger::Ledger;
use baton_books::pool::{Pool, Run};
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
    keep: bool,
    poison: Option<u8>,
    isolation: Isolation,
    quotas: Quotas,
}

/// All memory that the coordinator has, on the GPU and on the host.
pub(super) struct Memory {
    rules: Rules,
    gpu: Gpu,
    waker: Waker,
    arena: Arena,
    frames: Vec<Option<gpu::Memory>>,
    ledger: Ledger<TenantId>,
    /// What a context is taken to need, in bytes.
    context_bytes: u64,
    /// What was used and not in the books when room was made for a context that is being made.
    before_context: HashMap<TenantId, u64>,
    pool: Pool,
    /// What has lost its place there though it may have to leave the GPU again, in bytes.
    given_up: u64,
    slabs: Slabs,
    /// The slabs' files, which a successor could be given.
    slab_files: Vec<OwnedFd>,
    /// Slabs are yet to come.
    preparing: bool,
    prepared: Receiver<Prepared>,
    mover: Mover,
    finished: Receiver<Finished>,
    tasks: HashMap<JobId, Task>,
    claims: VecDeque<Claim>,
    swap_in: Option<SwapIn>,
    /// Frames and runs of tenants that ended while a copy was under way.
    orphans: HashMap<(TenantId, ExtentId), (Option<FrameId>, Vec<Run>)>,
    quarantine: VecDeque<Quarantine>,
    scanner: Scanner,
    scanned: Receiver<Scanned>,
    /// Looks at tenants' contents that are under way.
    scans: HashMap<ScanId, ScanUnderWay>,
    /// The same at those of one that rests, and how far that is.
    looks_ahead: HashMap<ScanId, ahead::LookAhead>,
    ahead: Option<ahead::Ahead>,
    /// Frames that are looked at, by how many scans.
    scanning: HashMap<FrameId, usize>,
    /// Those of them that their tenants no longer have: they are free when the look is over.
    released: Vec<FrameId>,
    /// What was last shown to tenants.
    shown: Option<immovable::Shown>,
    /// Frames of which somebody else than their tenants may have mappings.
    reachable: HashSet<FrameId>,
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
        let (reports, finished) = channel();
        let mover = Mover::start(&gpu, &reports, &waker)?;
        let (reports, scanned) = channel();
        let scanner = Scanner::start(&gpu, &reports, &waker)?;
        let (reports, prepared) = channel();
        let slabs = Slabs::prepare(&gpu, options.host_pool, !options.until_idle, reports, waker.clone())
            .map_err(|error| ServeError::System { what: "reserving addresses for the host pool".to_owned(), error })?;
        let Options { headroom, pipeline, hash, keep, poison, isolation, quotas, .. } = *options;
        let own = gpu.memory.saturating_sub(gpu.free_memory().unwrap_or(gpu.memory));
        Ok(Self {
            ledger: Ledger::new(gpu.memory, own),
            context_bytes: beside::usual_context(gpu.memory),
            before_context: HashMap::new(),
            rules: Rules { headroom, pipeline, hash, keep: keep && poison.is_none(), poison, isolation, quotas },
            gpu,
            waker,
            arena: Arena::new(options.arena),
            frames: Vec::new(),
            pool: Pool::new(options.host_pool, slabs.slab),
            given_up: 0,
            preparing: options.host_pool >= slabs.slab,
            slabs,
            slab_files: Vec::new(),
            prepared,
            mover,
            finished,
            tasks: HashMap::new(),
            claims: VecDeque::new(),
            swap_in: None,
            orphans: HashMap::new(),
            quarantine: VecDeque::new(),
            scanner,
            scanned,
            scans: HashMap::new(),
            looks_ahead: HashMap::new(),
            ahead: None,
            scanning: HashMap::new(),
            released: Vec::new(),
            shown: None,
            reachable: HashSet::new(),
            sharing: Sharing::default(),
            events: VecDeque::new(),
        })
    }

    /// The GPU that it is of.
    pub(super) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The GPU's part of it.
    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// What a frame is sent by.
    fn descriptor(&self, frame: FrameId) -> Option<Sent> {
        self.frames[frame.0 as usize].as_ref().map(|memory| Sent::clone(&memory.descriptor))
    }

    /// The host's part of it.
    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// What has lost its place in it and may have to leave the GPU again, in bytes.
    pub(super) fn given_up(&self) -> u64 {
        self.given_up
    }

    /// What has happened, one after the other.
    pub(super) fn next_event(&mut self) -> Option<MemoryEvent> {
        self.events.pop_front()
    }

    /// When something is to be done if nothing happens before.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        let look = self.is_squeezed().then(|| Instant::now() + UNSQUEEZE);
        [look, self.next_look_at_departed()].into_iter().flatten().min()
    }
}

impl Access<'_> {
    /// Hears what the threads report.
    pub(super) fn hear(&mut self) {
        while let Ok(finished) = self.memory.finished.try_recv() {
            self.job_finished(finished);
        }
        while let Ok(scanned) = self.memory.scanned.try_recv() {
            self.scanned(scanned);
        }
        while let Ok(prepared) = self.memory.prepared.try_recv() {
            self.memory.slab_prepared(prepared);
        }
    }

    /// What only time brings.
    pub(super) fn timers(&mut self) {
        for gone in self.memory.end_quarantine() {
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
