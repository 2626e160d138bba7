//! A tenant as the server knows it: its sockets, and the table of its extents.
//!
//! ```text
//!              lend                         baton granted
//!   (nothing) ──────> Device <────────────────────────────────────────── Both
//!                       │                                                 ^  │
//!                       │ evict: copy out, unmap             mapped by it │  │ evict: unmap
//!                       v                                                 │  v
//!                    Leaving ──> Host ──> Arriving ──> Mapping ───────────┘  Leaving
//!                    both done     bring: copy in   copied; late mapping
//! ```
//!
//! At every moment one valid copy of the contents is known: in the frame until the copy out has ended, in
//! the pool until the tenant may write again.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use baton_contract::class::Class;
use baton_contract::memory::SizeClass;
use baton_contract::messages::ExtentId;
use baton_contract::page::{CoordinatorPage, TenantPage};

use super::peer::Peer;
use super::shared::Shared;
use crate::arena::FrameId;
use crate::pool::Run;

/// A pager that has not carried out a command in this time is not waited for: its process was stopped, say.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Where an extent's contents are.
#[derive(Debug)]
pub(super) enum Place {
    /// In a frame that the tenant has mapped and may have written.
    Device { frame: FrameId },
    /// In a frame that the tenant has mapped, and in the pool: it came in and its gate is still closed.
    Both { frame: FrameId, runs: Vec<Run> },
    /// On the way out.
    Leaving { frame: FrameId, runs: Vec<Run>, copied: bool, unmapped: bool },
    /// In the pool.
    Host { runs: Vec<Run> },
    /// In the pool, being copied to a frame.
    Arriving { frame: FrameId, runs: Vec<Run> },
    /// In the pool and a frame, which the tenant is mapping.
    Mapping { frame: FrameId, runs: Vec<Run> },
}

impl Place {
    /// The frame, if there is one.
    pub(super) fn frame(&self) -> Option<FrameId> {
        match self {
            Self::Host { .. } => None,
            Self::Device { frame }
            | Self::Both { frame, .. }
            | Self::Leaving { frame, .. }
            | Self::Arriving { frame, .. }
            | Self::Mapping { frame, .. } => Some(*frame),
        }
    }

    /// Takes the runs out of it.
    pub(super) fn into_runs(self) -> Vec<Run> {
        match self {
            Self::Device { .. } => Vec::new(),
            Self::Both { runs, .. }
            | Self::Leaving { runs, .. }
            | Self::Host { runs }
            | Self::Arriving { runs, .. }
            | Self::Mapping { runs, .. } => runs,
        }
    }

    /// Whether the tenant has it mapped and its contents are there.
    pub(super) fn is_resident(&self) -> bool {
        matches!(self, Self::Device { .. } | Self::Both { .. })
    }
}

/// A piece of a tenant's memory.
#[derive(Debug)]
pub(super) struct Extent {
    pub(super) class: SizeClass,
    pub(super) place: Place,
}

/// A command to the tenant's pager that is under way.
#[derive(Debug)]
pub(super) enum Batch {
    Map(Vec<ExtentId>),
    Unmap(Vec<ExtentId>),
}

/// One tenant.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) name: String,
    pub(super) class: Class,
    pub(super) pid: i32,
    /// Readable when the process has ended, even if a forked child keeps its sockets open.
    pub(super) process: OwnedFd,
    pub(super) control: Peer,
    pub(super) requests: Peer,
    /// Whether a request waits for its answer: there is never more than one.
    pub(super) asking: bool,
    pub(super) page: Shared<CoordinatorPage>,
    pub(super) theirs: Shared<TenantPage>,
    pub(super) extents: BTreeMap<ExtentId, Extent>,
    pub(super) next_extent: u32,
    pub(super) batches: HashMap<u32, (Instant, Batch)>,
    pub(super) next_batch: u32,
    /// Counts the grants; the last one holds if the arbiter says that this tenant runs.
    pub(super) grant: u64,
    /// When it last held the baton, or came.
    pub(super) ran: Instant,
    /// How often it could not be drained since it was last closed.
    pub(super) busy: u32,
    pub(super) peak_bytes: u64,
    /// A command failed: its memory stays where it is until it ends.
    pub(super) stuck: bool,
    /// The connection has ended, the process not yet: so its memory is still mapped there. Says whether work of
    /// its may then have been on the GPU.
    pub(super) cut_off: Option<bool>,
    /// What the arbiter counted for it until it was cut off: switches, and microseconds of GPU time.
    pub(super) counted: (u64, u64),
    /// Since when it owes the end of its turn, and how long its work may take to end.
    pub(super) revoked: Option<(Instant, Duration)>,
    /// It did not answer in time: nobody knows whether its gate is closed.
    pub(super) silent: bool,
}

impl Tenant {
    /// All its memory, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.extents.values().map(|extent| extent.class.bytes()).sum()
    }

    /// What of it is in the arena, in bytes.
    pub(super) fn resident_bytes(&self) -> u64 {
        self.extents.values().filter(|extent| extent.place.frame().is_some()).map(|extent| extent.class.bytes()).sum()
    }

    /// What has to be copied before it can run, in bytes.
    pub(super) fn missing_bytes(&self) -> u64 {
        let missing = |extent: &&Extent| !extent.place.is_resident();
        self.extents.values().filter(missing).map(|extent| extent.class.bytes()).sum()
    }

    /// Whether its memory can be moved, as far as it itself is concerned.
    pub(super) fn is_movable(&self) -> bool {
        !self.stuck && !self.silent && self.cut_off.is_none()
    }

    /// Whether it owes an answer for too long.
    pub(super) fn is_late(&self) -> bool {
        self.batches.values().any(|(since, _)| since.elapsed() >= ANSWER_LIMIT)
    }

    /// Whether commands to it are under way that it can be expected to carry out.
    pub(super) fn is_about_to_answer(&self) -> bool {
        self.is_movable() && !self.batches.is_empty() && !self.is_late()
    }

    /// Enters a new extent.
    pub(super) fn add_extent(&mut self, class: SizeClass, frame: FrameId) -> ExtentId {
        // Numbers go up, so that the table is in order of allocation; they start again in 4 billion.
        while self.extents.contains_key(&ExtentId(self.next_extent)) {
            self.next_extent = self.next_extent.wrapping_add(1);
        }
        let id = ExtentId(self.next_extent);
        self.next_extent = self.next_extent.wrapping_add(1);
        self.extents.insert(id, Extent { class, place: Place::Device { frame } });
        self.peak_bytes = self.peak_bytes.max(self.bytes());
        id
    }

    /// Remembers a command and numbers it.
    pub(super) fn add_batch(&mut self, batch: Batch) -> u32 {
        self.next_batch = self.next_batch.wrapping_add(1);
        self.batches.insert(self.next_batch, (Instant::now(), batch));
        self.next_batch
    }
}
