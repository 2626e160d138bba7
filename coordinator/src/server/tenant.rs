//! A tenant as the server knows it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use baton_contract::class::Class;
use baton_contract::messages::{ExtentId, Request};
use baton_contract::page::CoordinatorPage;
use baton_contract::scheduling::Scheduling;

use super::corun::Heartbeat;
use super::delivery::Redelivery;
use super::peer::Peer;
use super::preempt::{Preemptible, Preemption};
use super::process::Process;
use super::shared::{Shared, TenantsPage};
use crate::books::extents::Extents;
use crate::device::digest::ScanId;
use crate::policy::first_use::History;
use crate::policy::planner::Nanos;

/// A pager that has not carried out a command in this time is not waited for: its process was stopped, say.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(5);

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
    pub(super) extents: Extents,
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

    /// Remembers a command and numbers it.
    pub(super) fn add_batch(&mut self, batch: Batch) -> u32 {
        self.next_batch = self.next_batch.wrapping_add(1);
        self.batches.insert(self.next_batch, (Instant::now(), batch));
        self.next_batch
    }
}
