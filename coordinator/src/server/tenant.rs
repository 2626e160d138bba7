//! A tenant as the server knows it: its sockets, and the table of its extents.
//!
//! ```text
//!              lend
//!   (nothing) ──────> Resident <──────────────────────────────────┐
//!                       │                                         │ mapped by it
//!                       │ evict: copy out what changed, unmap     │
//!                       v                                         │
//!                    Leaving ────> Host ──────> Reserved ─────> Arriving ──────> Mapping
//!                        both done    there is a frame    copy in      copied: give access
//! ```
//!
//! A frame that is **reserved** for an extent is behind its addresses already, but without access: what takes longest is
//! done while the contents are still on their way, or before anybody wants them.
//!
//! Beside its place, an extent has a **backing**: room in the pool with its contents as they were when it last left.
//! It stays there while the extent is resident, so that what has not changed needs no copy when it leaves again. At
//! every moment one valid copy of the contents is known: in the frame until the backing is current, in the backing
//! until the tenant may write again.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use baton_contract::class::Class;
use baton_contract::memory::SizeClass;
use baton_contract::messages::{ExtentId, Request};
use baton_contract::page::CoordinatorPage;
use baton_contract::scheduling::Scheduling;

use super::corun::Heartbeat;
use super::delivery::{Delivery, Redelivery};
use super::peer::Peer;
use super::preempt::{Preemptible, Preemption};
use super::process::Process;
use super::shared::{Shared, TenantsPage};
use crate::books::arena::FrameId;
use crate::books::pool::Run;
use crate::device::digest::{Page, ScanId};
use crate::policy::first_use::History;
use crate::policy::planner::Nanos;

/// A pager that has not carried out a command in this time is not waited for: its process was stopped, say.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Where an extent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExtentState {
    /// In a frame that the tenant has mapped.
    Resident { frame: FrameId },
    /// On the way out.
    Leaving { frame: FrameId, copied: bool, unmapped: bool },
    /// In the pool.
    Host,
    /// In the pool; the tenant has a frame for it, or is about to, without access. Perhaps one full of zeros.
    Reserved { frame: FrameId, zeroed: bool, delivery: Delivery },
    /// In the pool, being copied to a frame, which the tenant may not have got.
    Arriving { frame: FrameId, lost: bool },
    /// In the pool and a frame, which the tenant is mapping.
    Mapping { frame: FrameId },
}

impl ExtentState {
    /// The frame, if there is one.
    pub(super) fn frame(&self) -> Option<FrameId> {
        match *self {
            Self::Host => None,
            Self::Resident { frame }
            | Self::Leaving { frame, .. }
            | Self::Reserved { frame, .. }
            | Self::Arriving { frame, .. }
            | Self::Mapping { frame } => Some(frame),
        }
    }

    /// Whether its contents are in the pool only, and nobody copies them.
    pub(super) fn is_away(&self) -> bool {
        matches!(self, Self::Host | Self::Reserved { .. })
    }

    /// Whether that can be changed now, as far as the tenant is concerned.
    pub(super) fn can_come(&self) -> bool {
        matches!(self, Self::Host | Self::Reserved { delivery: Delivery::Sent, .. })
    }

    /// Whether the tenant has it mapped and its contents are there.
    pub(super) fn is_resident(&self) -> bool {
        matches!(self, Self::Resident { .. })
    }
}

/// An extent's room in the pool.
#[derive(Debug)]
pub(super) struct Backing {
    pub(super) runs: Vec<Run>,
    /// What is in it, page by page; empty if nobody has looked.
    pub(super) pages: Vec<Page>,
    /// What was in it before, if it was filled without a look.
    pub(super) before: Vec<Page>,
    /// Whether that is what the extent holds now. If not, it is only good for comparing.
    pub(super) current: bool,
}

/// What the GPU found in an extent's contents, and which still holds.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) pages: Vec<Page>,
    /// Addresses that words in it point to, as multiples of 2 MiB; none if there were too many to list.
    pub(super) pointers: Option<Vec<u64>>,
}

/// A piece of a tenant's memory.
#[derive(Debug)]
pub(super) struct Extent {
    pub(super) class: SizeClass,
    pub(super) state: ExtentState,
    pub(super) backing: Option<Backing>,
    /// Known since the tenant could last write.
    pub(super) contents: Option<Contents>,
    /// How often in a row most of it had changed when it left.
    pub(super) dirty: u8,
    /// Others can reach it: it stays where it is.
    pub(super) immovable: bool,
}

impl Extent {
    /// Whether what is in the pool of it is all there is to know.
    pub(super) fn is_backed(&self) -> bool {
        self.backing.as_ref().is_some_and(|backing| backing.current)
    }

    /// Whether some of it comes in as zeros.
    pub(super) fn has_zeros(&self) -> bool {
        self.backing.as_ref().is_some_and(|backing| backing.pages.iter().any(|page| page.zero))
    }

    /// From here on the tenant may write to it.
    pub(super) fn may_change(&mut self) {
        self.contents = None;
        if let Some(backing) = &mut self.backing {
            backing.current = false;
        }
    }
}

/// A command to the tenant's pager that is under way.
#[derive(Debug)]
pub(super) enum Batch {
    Prepare(Vec<ExtentId>),
    Map(Vec<ExtentId>),
    Unmap(Vec<ExtentId>),
}

/// One tenant.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) name: String,
    /// How the user wants it to be scheduled.
    pub(super) scheduling: Scheduling,
    pub(super) process: Process,
    pub(super) control: Peer,
    pub(super) requests: Peer,
    /// Whether a request waits for its answer: there is never more than one.
    pub(super) asking: bool,
    pub(super) page: Shared<CoordinatorPage>,
    pub(super) theirs: TenantsPage,
    /// When it last showed that it was not stopped.
    pub(super) heartbeat: Heartbeat,
    /// Its slot on the activity page.
    pub(super) slot: Option<u32>,
    pub(super) extents: BTreeMap<ExtentId, Extent>,
    pub(super) next_extent: u32,
    pub(super) batches: HashMap<u32, (Instant, Batch)>,
    pub(super) next_batch: u32,
    /// Counts the grants; the last one holds if the arbiter says that this tenant runs.
    pub(super) grant: u64,
    /// Counts the questions whether mappings can be changed.
    pub(super) probes: u32,
    /// How many launches it keeps in flight during this one, if it was told.
    pub(super) short: Option<u32>,
    /// When it last held the baton, or came.
    pub(super) ran: Instant,
    /// How often it could not be drained since it was last closed.
    pub(super) busy: u32,
    pub(super) peak_bytes: u64,
    /// A command failed: its memory stays where it is until it ends.
    pub(super) stuck: bool,
    /// The connection has ended, the process not yet: so its memory is still mapped there. Says whether work of
    /// its may then have been on the GPU.
    pub(super) disconnected: Option<bool>,
    /// What the arbiter counted for it until it was cut off: switches, and microseconds of GPU time.
    pub(super) counted: (u64, u64),
    /// Since when it owes the end of its turn, and how long its work may take to end.
    pub(super) revoked: Option<(Instant, Duration)>,
    /// What of it can be taken off the GPU.
    pub(super) preemptible: Preemptible,
    /// It is being taken off the GPU, or is off it.
    pub(super) hold: Option<Preemption>,
    /// What a thread has asked for that was inside when the gate closed: for when it is let in again.
    pub(super) deferred: Option<Request>,
    /// It did not answer in time: nobody knows whether its gate is closed.
    pub(super) unresponsive: bool,
    /// Since when it has wanted the GPU.
    pub(super) demanded: Option<Instant>,
    /// In which order it uses its memory.
    pub(super) history: History,
    /// What it has said of that in this grant so far.
    pub(super) used: Vec<(ExtentId, Nanos)>,
    /// A look at its contents that is under way.
    pub(super) scan: Option<ScanId>,
    /// Extents that have got a frame, of which it is to be told.
    pub(super) reserved: Vec<ExtentId>,
    /// Frames that did not reach it.
    pub(super) redelivery: Option<Redelivery>,
    /// It was said that it can open no more descriptors.
    pub(super) lacked_descriptors: bool,
    /// What of its memory cannot move, in bytes.
    pub(super) immovable_bytes: u64,
    /// It was said that some of its memory cannot move.
    pub(super) is_known_to_stay: bool,
    /// It was said that it does not fit beside what cannot move of others.
    pub(super) lacks_room: bool,
    /// It was evicted on request: it is not brought in ahead before it has run again.
    pub(super) sent_away: bool,
}

impl Tenant {
    /// How urgent its work is.
    pub(super) fn class(&self) -> Class {
        self.scheduling.class
    }

    /// All its memory, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.extents.values().map(|extent| extent.class.bytes()).sum()
    }

    /// What of it is in the arena, in bytes.
    pub(super) fn resident_bytes(&self) -> u64 {
        let here = |extent: &&Extent| !extent.state.is_away();
        self.extents.values().filter(here).map(|extent| extent.class.bytes()).sum()
    }

    /// Frames that wait for its contents, in bytes.
    pub(super) fn reserved_bytes(&self) -> u64 {
        let reserved = |extent: &&Extent| matches!(extent.state, ExtentState::Reserved { .. });
        self.extents.values().filter(reserved).map(|extent| extent.class.bytes()).sum()
    }

    /// What has to be copied before it can run, in bytes.
    pub(super) fn missing_bytes(&self) -> u64 {
        let missing = |extent: &&Extent| !extent.state.is_resident();
        self.extents.values().filter(missing).map(|extent| extent.class.bytes()).sum()
    }

    /// Whether all that its contents point to is known.
    pub(super) fn is_read(&self) -> bool {
        self.extents.values().all(|extent| extent.contents.as_ref().is_some_and(|contents| contents.pointers.is_some()))
    }

    /// Whether its memory can be moved, as far as it itself is concerned.
    pub(super) fn is_movable(&self) -> bool {
        !self.stuck && !self.unresponsive && self.disconnected.is_none()
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
        let state = ExtentState::Resident { frame };
        self.extents.insert(id, Extent { class, state, backing: None, contents: None, dirty: 0, immovable: false });
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
