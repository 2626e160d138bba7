//! A tenant as the server knows it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use baton_contract::class::Class;
use baton_contract::messages::{ExtentId, Request};
use baton_contract::page::CoordinatorPage;
use baton_contract::scheduling::Scheduling;

use super::peer::Peer;
use super::preemption::Preemption;
use super::process::Process;
use super::shared::{Shared, TenantsPage};
use super::signs::Heartbeat;
use crate::books::extents::Extents;
use crate::device::digest::ScanId;
use crate::policy::first_use::History;
use crate::policy::in_flight::InFlight;
use crate::policy::planner::Nanos;

/// A pager that has not carried out a command in this time is not waited for: its process was stopped, say.
pub(in crate::server) const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// A command to the tenant's pager that is under way.
#[derive(Debug)]
pub(in crate::server) enum Batch {
    Prepare(Vec<ExtentId>),
    Map(Vec<ExtentId>),
    Unmap(Vec<ExtentId>),
}

/// What a tenant is yet to get.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Redelivery {
    pub(in crate::server) since: Instant,
    /// When it is sent again.
    pub(in crate::server) at: Instant,
    pub(in crate::server) pause: Duration,
}

/// One tenant.
#[derive(Debug)]
pub(in crate::server) struct Tenant {
    pub(in crate::server) name: String,
    /// How the user wants it to be scheduled.
    pub(in crate::server) scheduling: Scheduling,
    pub(in crate::server) process: Process,
    pub(in crate::server) control: Peer,
    pub(in crate::server) requests: Peer,
    /// Whether a request waits for its answer: there is never more than one.
    pub(in crate::server) asking: bool,
    pub(in crate::server) page: Shared<CoordinatorPage>,
    pub(in crate::server) theirs: TenantsPage,
    /// When it last showed that it was not stopped.
    pub(in crate::server) heartbeat: Heartbeat,
    /// Its slot on the activity page.
    pub(in crate::server) slot: Option<u32>,
    /// Changed by [`Tenants::extents`](super::table::Tenants::extents) only.
    pub(super) extents: Extents,
    pub(in crate::server) batches: HashMap<u32, (Instant, Batch)>,
    pub(in crate::server) next_batch: u32,
    /// Counts the grants; the last one holds if the arbiter says that this tenant runs.
    pub(in crate::server) grant: u64,
    /// How much it keeps in flight during this one, as it was told.
    pub(in crate::server) in_flight: InFlight,
    /// When it last held the baton, or came.
    pub(in crate::server) ran: Instant,
    /// How often it could not be drained since it was last closed.
    pub(in crate::server) busy: u32,
    pub(in crate::server) peak_bytes: u64,
    /// A command failed: its memory stays where it is until it ends.
    pub(in crate::server) stuck: bool,
    /// The connection has ended, the process not yet: so its memory is still mapped there. Says whether work of
    /// its may then have been on the GPU.
    pub(in crate::server) disconnected: Option<bool>,
    /// What the arbiter counted for it until it was cut off: switches, and microseconds of GPU time.
    pub(in crate::server) counted: (u64, u64),
    /// Since when it owes the end of its turn, and how long its work may take to end.
    pub(in crate::server) revoked: Option<(Instant, Duration)>,
    /// What of it can be taken off the GPU, and how far that is.
    pub(in crate::server) preemption: Preemption,
    /// What a thread has asked for that was inside when the gate closed: for when it is let in again.
    pub(in crate::server) deferred: Option<Request>,
    /// It did not answer in time: nobody knows whether its gate is closed.
    pub(in crate::server) unresponsive: bool,
    /// It waits for the GPU, or has it.
    pub(in crate::server) is_waiting: bool,
    /// Since when it has wanted the GPU.
    pub(in crate::server) demanded: Option<Instant>,
    /// In which order it uses its memory.
    pub(in crate::server) history: History,
    /// What it has said of that in this grant so far.
    pub(in crate::server) used: Vec<(ExtentId, Nanos)>,
    /// A look at its contents that is under way.
    pub(in crate::server) scan: Option<ScanId>,
    /// Extents that have got a frame, of which it is to be told.
    pub(in crate::server) reserved: Vec<ExtentId>,
    /// Frames that did not reach it.
    pub(in crate::server) redelivery: Option<Redelivery>,
    /// It was said that it can open no more descriptors.
    pub(in crate::server) lacked_descriptors: bool,
    /// It was said that some of its memory cannot move.
    pub(in crate::server) is_known_to_stay: bool,
    /// It was said that it waits for memory of somebody who does not answer, since it last got any.
    pub(in crate::server) is_put_off: bool,
    /// It was said that it does not fit beside what cannot move of others.
    pub(in crate::server) lacks_room: bool,
    /// It was evicted on request: it is not brought in ahead before it has run again.
    pub(in crate::server) sent_away: bool,
}

/// The pages that a tenant and the server share.
#[derive(Debug)]
pub(in crate::server) struct Pages {
    pub(in crate::server) coordinators: Shared<CoordinatorPage>,
    pub(in crate::server) tenants: TenantsPage,
}

impl Tenant {
    /// One that has just joined, with its sockets for control and for requests.
    pub(in crate::server) fn new(
        name: String,
        scheduling: Scheduling,
        process: Process,
        (control, requests): (Peer, Peer),
        pages: Pages,
        slot: Option<u32>,
    ) -> Self {
        Self {
            name,
            scheduling,
            process,
            control,
            requests,
            asking: false,
            page: pages.coordinators,
            slot,
            theirs: pages.tenants,
            heartbeat: Heartbeat::new(),
            extents: Default::default(),
            batches: Default::default(),
            next_batch: 0,
            grant: 0,
            in_flight: Default::default(),
            ran: Instant::now(),
            busy: 0,
            peak_bytes: 0,
            stuck: false,
            disconnected: None,
            counted: (0, 0),
            revoked: None,
            preemption: Default::default(),
            deferred: None,
            unresponsive: false,
            is_waiting: false,
            demanded: None,
            history: Default::default(),
            used: Vec::new(),
            scan: None,
            reserved: Vec::new(),
            redelivery: None,
            lacked_descriptors: false,
            is_known_to_stay: false,
            is_put_off: false,
            lacks_room: false,
            sent_away: false,
        }
    }

    /// Its memory.
    pub(in crate::server) fn extents(&self) -> &Extents {
        &self.extents
    }

    /// How urgent its work is.
    pub(in crate::server) fn class(&self) -> Class {
        self.scheduling.class
    }

    /// Whether its memory can be moved, as far as it itself is concerned.
    pub(in crate::server) fn is_movable(&self) -> bool {
        !self.stuck && !self.unresponsive && self.disconnected.is_none()
    }

    /// Whether it can be expected to carry out commands at some time, be it late.
    pub(in crate::server) fn may_answer_again(&self) -> bool {
        !self.stuck && self.disconnected.is_none()
    }

    /// Since when it has owed the answer that it has owed for longest.
    pub(super) fn oldest_batch(&self) -> Option<Instant> {
        self.batches.values().map(|(since, _)| *since).min()
    }

    /// Whether it owes an answer for too long.
    pub(in crate::server) fn is_late(&self) -> bool {
        self.oldest_batch().is_some_and(|since| since.elapsed() >= ANSWER_LIMIT)
    }

    /// Whether commands to it are under way that it can be expected to carry out.
    pub(in crate::server) fn is_about_to_answer(&self) -> bool {
        self.is_movable() && !self.batches.is_empty() && !self.is_late()
    }

    /// Remembers a command and numbers it.
    pub(in crate::server) fn add_batch(&mut self, batch: Batch) -> u32 {
        self.next_batch = self.next_batch.wrapping_add(1);
        self.batches.insert(self.next_batch, (Instant::now(), batch));
        self.next_batch
    }
}
