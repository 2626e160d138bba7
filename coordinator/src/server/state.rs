//! All that the server's thread owns.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use super::corun::Corun;
use super::cost_model::CostModel;
use super::event_loop::EventLoop;
use super::lobby::Lobby;
use super::machine::{Handle, Machine, Post};
use super::memory::Memory;
use super::options::Options;
use super::outsiders::Outsiders;
use super::pending::Pending;
use super::preemption::Preemptions;
use super::recorder::Recorder;
use super::returning::Takeover;
use super::tenants::peer::Peer;
use super::tenants::seats::Seats;
use super::tenants::table::Tenants;
use super::turns::Turns;
use crate::endpoint::Endpoint;
use crate::keeper::Keeper;
use baton_contract::wire::GpuNumber;
use baton_messages::Message;
use baton_policy::arbiter::{Event, Micros, TenantId};
use baton_policy::scheduler::Scheduler;

/// The means by which other threads steer the server.
pub(super) struct Steering {
    /// This server's own.
    pub(super) handle: Handle<Server>,
    pub(super) posts: Receiver<Post<Server>>,
    /// The servers of the other GPUs too.
    pub(super) machine: Machine<Server>,
    /// True if it is to end.
    pub(super) is_stopped: bool,
}

/// The server's times.
pub(super) struct Clock {
    pub(super) start: Instant,
    /// Until then another request is likely.
    pub(super) awake_until: Instant,
    pub(super) looked_at_holders: Instant,
}

/// The arbiter's time when the server starts. A program may have waited for so long by then, under another coordinator.
const BEFORE: Micros = 86_400_000_000;

impl Clock {
    /// The arbiter's time now.
    pub(super) fn now(&self) -> Micros {
        BEFORE + self.start.elapsed().as_micros() as Micros
    }

    /// The moment of the arbiter's time.
    pub(super) fn at(&self, time: Micros) -> Instant {
        self.start + Duration::from_micros(time.saturating_sub(BEFORE))
    }
}

/// The entrance of programs and users.
pub(super) struct Front {
    pub(super) events: Arc<EventLoop>,
    pub(super) lobby: Lobby,
    pub(super) keeper: Keeper,
    /// The number of the keeper that has all.
    pub(super) kept: u64,
    /// The file of the table that the keeper holds.
    pub(super) table: Option<OwnedFd>,
    /// Given up last: the next coordinator takes the GPU then.
    pub(super) endpoint: Endpoint,
}

/// All that belongs to one GPU.
pub(super) struct Card {
    pub(super) tenants: Tenants,
    pub(super) arbiter: Scheduler,
    /// Events that the arbiter has yet to hear.
    pub(super) untold: VecDeque<(TenantId, Event)>,
    pub(super) seats: Seats,
    pub(super) turns: Turns,
    pub(super) memory: Memory,
    pub(super) costs: CostModel,
    pub(super) preemptions: Preemptions,
    pub(super) corun: Corun,
    pub(super) outsiders: Outsiders,
    pub(super) recorder: Recorder,
    /// Tenants of another coordinator that have yet to come back.
    pub(super) takeover: Option<Takeover>,
}

/// A successor that is wanted.
pub(super) struct Upgrade {
    /// The user who wants it.
    pub(super) peer: Peer,
    /// The path of its program.
    pub(super) file: String,
    /// The versions of the contract that it speaks.
    pub(super) speaks: RangeInclusive<u32>,
    /// The line to the successor, which says when it is ready, and ends with it; none until it is started.
    pub(super) line: Option<OwnedFd>,
    /// The time at which it is not wanted any more.
    pub(super) until: Instant,
}

/// The coordinator of one GPU.
pub struct Server {
    /// The number of the GPU among those of this process.
    pub(super) gpu: GpuNumber,
    pub(super) options: Options,
    pub(super) clock: Clock,
    pub(super) steering: Steering,
    pub(super) pending: Pending,
    pub(super) card: Card,
    /// A successor that prepares itself.
    pub(super) upgrade: Option<Upgrade>,
    /// It goes on.
    pub(super) hands_over: bool,
    /// The reason why this coordinator cannot go on, and another one may.
    pub(super) fails: Option<Message>,
    /// Dropped last.
    pub(super) front: Front,
}
