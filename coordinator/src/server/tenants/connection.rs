//! How a tenant is reached: its process, its sockets, and the pages that it shares with the server.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use baton_contract::messages::Request;
use baton_contract::page::CoordinatorPage;
use rustix::time::{ClockId, clock_gettime};

use super::limits::{ANSWER_LIMIT, PATIENCE};
use super::peer::Peer;
use super::process::Process;
use super::shared::{Shared, TenantsPage};
use super::signs::Heartbeat;

/// The pages that a tenant and the server share.
#[derive(Debug)]
pub(in crate::server) struct Pages {
    pub(in crate::server) coordinators: Shared<CoordinatorPage>,
    pub(in crate::server) tenants: TenantsPage,
}

/// Whether it can be talked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// It ended, the process not yet: so its memory is still mapped there. Work of its may then have been on the GPU.
    Ended {
        may_run: bool,
        since: Instant,
    },
}

/// The request of a tenant that waits for its answer. There is never more than one.
#[derive(Debug)]
enum Asking {
    Nothing,
    Served,
    /// It came from a thread that was inside when the gate closed: for when that one is let in again.
    Deferred(Request),
}

/// A tenant's connection.
#[derive(Debug)]
pub(in crate::server) struct Connection {
    pub(in crate::server) process: Process,
    pub(in crate::server) control: Peer,
    pub(in crate::server) requests: Peer,
    pub(in crate::server) page: Shared<CoordinatorPage>,
    pub(in crate::server) theirs: TenantsPage,
    /// When it last showed that it was not stopped.
    pub(in crate::server) heartbeat: Heartbeat,
    /// When it last said something.
    heard: Instant,
    /// How long it may say nothing when it has been told to do something.
    patience: Duration,
    /// How many of its requests to the GPU have been read.
    requests_read: u64,
    asking: Asking,
    state: State,
}

impl Connection {
    pub(in crate::server) fn new(process: Process, (control, requests): (Peer, Peer), pages: Pages) -> Self {
        Self {
            process,
            control,
            requests,
            page: pages.coordinators,
            theirs: pages.tenants,
            heartbeat: Heartbeat::new(),
            heard: Instant::now(),
            patience: PATIENCE,
            requests_read: 0,
            asking: Asking::Nothing,
            state: State::Open,
        }
    }

    /// Its sockets.
    pub(in crate::server) fn peers(&self) -> [&Peer; 2] {
        [&self.control, &self.requests]
    }

    /// The same, to send something.
    pub(in crate::server) fn peers_mut(&mut self) -> [&mut Peer; 2] {
        [&mut self.control, &mut self.requests]
    }

    pub(in crate::server) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// It has said something.
    pub(in crate::server) fn hear(&mut self) {
        self.heard = Instant::now();
    }

    /// When it has been silent for too long since it was told something.
    pub(in crate::server) fn is_silent_at(&self, told: Instant) -> Instant {
        told.max(self.heard) + self.patience
    }

    /// Whether it has said something since.
    pub(in crate::server) fn was_heard_after(&self, since: Instant) -> bool {
        self.heard > since
    }

    /// It has answered in the end, and was not stopped: the machine is slow, or what it does takes long. A guest could feign that.
    pub(in crate::server) fn be_more_patient(&mut self) {
        if self.control.guest().is_none() {
            self.patience = (2 * self.patience).min(ANSWER_LIMIT);
        }
    }

    /// From now on it shows signs of life.
    pub(in crate::server) fn expect_signs(&mut self) {
        self.heartbeat = Heartbeat { beats: self.theirs.heartbeat.load(Ordering::Relaxed), since: Instant::now() };
    }

    /// Whether its process is stopped; or has shown no sign of life for so long, although it should.
    pub(in crate::server) fn is_silent(&mut self, limit: Duration) -> bool {
        let beats = self.theirs.heartbeat.load(Ordering::Relaxed);
        let is_overdue = self.heartbeat.is_overdue_by(beats, limit);
        is_overdue || self.process.is_stopped() == Some(true)
    }

    /// Whether it has said something or shown a sign of life since it was last looked at, which was then.
    pub(super) fn has_lived_since(&mut self, last: Instant) -> bool {
        let beats = self.theirs.heartbeat.load(Ordering::Relaxed);
        !self.heartbeat.is_overdue_by(beats, last.elapsed()) || self.was_heard_after(last)
    }

    /// It has ended; work of the tenant's may be on the GPU all the same.
    pub(in crate::server) fn end(&mut self, may_run: bool) {
        self.state = State::Ended { may_run, since: Instant::now() };
        for socket in self.peers() {
            // A tenant that lives sees that it is alone.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
        }
    }

    /// Whether work of the tenant's may have been on the GPU when it ended.
    pub(in crate::server) fn ended_at_work(&self) -> bool {
        matches!(self.state, State::Ended { may_run: true, .. })
    }

    /// Since when it is over, if it is.
    pub(in crate::server) fn ended_since(&self) -> Option<Instant> {
        match self.state {
            State::Open => None,
            State::Ended { since, .. } => Some(since),
        }
    }

    /// How long each request of its program took that has ended since this was asked last, as it says.
    pub(in crate::server) fn ended_requests(&mut self) -> Vec<Range<Instant>> {
        let mut ended = Vec::new();
        let ring = &self.theirs.requests;
        // The tenant's clock is this one, unless it is in a time namespace of its own, or lies: nothing ends in the future, and how
        // long it took is what it says in any case.
        let (now, clock) = (Instant::now(), clock_gettime(ClockId::Monotonic));
        let clock =
            u64::try_from(clock.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(clock.tv_nsec).unwrap_or(0);
        self.requests_read = ring.read(self.requests_read, |times| {
            let ago = Duration::from_nanos(clock.saturating_sub(times.ended));
            let end = now.checked_sub(ago).unwrap_or(now);
            let took = Duration::from_nanos(times.nanos());
            ended.push(end.checked_sub(took).map_or_else(|| now..now + took, |start| start..end));
        });
        ended
    }

    /// Whether a request waits for its answer.
    pub(in crate::server) fn is_asking(&self) -> bool {
        !matches!(self.asking, Asking::Nothing)
    }

    /// A request has come. False if the last one was not answered yet.
    pub(in crate::server) fn ask(&mut self) -> bool {
        let is_first = !self.is_asking();
        self.asking = Asking::Served;
        is_first
    }

    /// The request that has just come is served later.
    pub(in crate::server) fn defer(&mut self, request: Request) {
        self.asking = Asking::Deferred(request);
    }

    /// A request that is to be served now.
    pub(in crate::server) fn take_deferred(&mut self) -> Option<Request> {
        match std::mem::replace(&mut self.asking, Asking::Served) {
            Asking::Deferred(request) => Some(request),
            other => {
                self.asking = other;
                None
            }
        }
    }

    /// The request is answered.
    pub(super) fn answered(&mut self) {
        self.asking = Asking::Nothing;
    }
}
