//! The connection to a tenant: its process, its sockets, and the pages that it shares with the server.

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

/// The time of the system's clock by which tenants stamp, in nanoseconds.
fn monotonic_nanos() -> u64 {
    let clock = clock_gettime(ClockId::Monotonic);
    u64::try_from(clock.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(clock.tv_nsec).unwrap_or(0)
}

/// The state of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The connection ended before the process, so the tenant's memory is still mapped there. Its work may have been on the GPU
    /// then.
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
    /// The request came from a thread that was inside when the gate closed. It is served when that thread is let in again.
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
    /// The time when it last showed that it was not stopped.
    pub(in crate::server) heartbeat: Heartbeat,
    /// The time of its last message.
    heard: Instant,
    /// The time it may stay silent after a command.
    patience: Duration,
    /// The number of its requests to the GPU that have been read.
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

    /// Its sockets, to send on them.
    pub(in crate::server) fn peers_mut(&mut self) -> [&mut Peer; 2] {
        [&mut self.control, &mut self.requests]
    }

    pub(in crate::server) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Notes that it has sent a message.
    pub(in crate::server) fn hear(&mut self) {
        self.heard = Instant::now();
    }

    /// The time from which its silence after a command at `told` is too long.
    pub(in crate::server) fn unresponsive_at(&self, told: Instant) -> Instant {
        told.max(self.heard) + self.patience
    }

    /// True if it has sent a message since then.
    pub(in crate::server) fn was_heard_after(&self, since: Instant) -> bool {
        self.heard > since
    }

    /// Raises the patience for a tenant that has answered late and was not stopped: the machine is slow, or its work takes long. A
    /// guest could feign that.
    pub(in crate::server) fn be_more_patient(&mut self) {
        if self.control.guest().is_none() {
            self.patience = (2 * self.patience).min(ANSWER_LIMIT);
        }
    }

    /// Expects signs of life from now on.
    pub(in crate::server) fn expect_signs(&mut self) {
        self.heartbeat = Heartbeat { beats: self.theirs.heartbeat.load(Ordering::Relaxed), since: Instant::now() };
    }

    /// True if its process is stopped, or has shown no sign of life for `limit` although it should.
    pub(in crate::server) fn is_unresponsive(&mut self, limit: Duration) -> bool {
        let beats = self.theirs.heartbeat.load(Ordering::Relaxed);
        let is_overdue = self.heartbeat.is_overdue_by(beats, limit);
        is_overdue || self.process.is_stopped() == Some(true)
    }

    /// True if it has sent a message or shown a sign of life since the last check at `last`.
    pub(super) fn has_lived_since(&mut self, last: Instant) -> bool {
        let beats = self.theirs.heartbeat.load(Ordering::Relaxed);
        !self.heartbeat.is_overdue_by(beats, last.elapsed()) || self.was_heard_after(last)
    }

    /// Ends the connection. The tenant's work may still be on the GPU.
    pub(in crate::server) fn end(&mut self, may_run: bool) {
        self.state = State::Ended { may_run, since: Instant::now() };
        for socket in self.peers() {
            // A tenant that lives sees that it is alone.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
        }
    }

    /// True if the tenant's work may have been on the GPU when the connection ended.
    pub(in crate::server) fn ended_at_work(&self) -> bool {
        matches!(self.state, State::Ended { may_run: true, .. })
    }

    /// The time at which the connection ended, if it has.
    pub(in crate::server) fn ended_since(&self) -> Option<Instant> {
        match self.state {
            State::Open => None,
            State::Ended { since, .. } => Some(since),
        }
    }

    /// The times of its program's requests that have ended since the last call, as it reports them.
    pub(in crate::server) fn ended_requests(&mut self) -> Vec<Range<Instant>> {
        let mut ended = Vec::new();
        let ring = &self.theirs.requests;
        // The tenant's clock is this one, unless it is in a time namespace of its own, or lies: no request ends in the future, and
        // its duration is the reported one in any case.
        let (now, clock) = (Instant::now(), monotonic_nanos());
        self.requests_read = ring.read(self.requests_read, |times| {
            let ago = Duration::from_nanos(clock.saturating_sub(times.ended));
            let end = now.checked_sub(ago).unwrap_or(now);
            let took = Duration::from_nanos(times.nanos());
            ended.push(end.checked_sub(took).map_or_else(|| now..now + took, |start| start..end));
        });
        ended
    }

    /// The time for which it has waited for its turn, by its own account.
    pub(in crate::server) fn waits_for(&self) -> Option<Duration> {
        let since = self.theirs.waits_since.load(Ordering::Relaxed);
        (since > 0).then(|| Duration::from_nanos(monotonic_nanos().saturating_sub(since)))
    }

    /// True if a request waits for its answer.
    pub(in crate::server) fn is_asking(&self) -> bool {
        !matches!(self.asking, Asking::Nothing)
    }

    /// Notes that a request has come. Returns false if the last one was not answered yet.
    pub(in crate::server) fn ask(&mut self) -> bool {
        let is_first = !self.is_asking();
        self.asking = Asking::Served;
        is_first
    }

    /// Defers the request that has just come.
    pub(in crate::server) fn defer(&mut self, request: Request) {
        self.asking = Asking::Deferred(request);
    }

    /// Takes the deferred request, to serve it now.
    pub(in crate::server) fn take_deferred(&mut self) -> Option<Request> {
        match std::mem::replace(&mut self.asking, Asking::Served) {
            Asking::Deferred(request) => Some(request),
            other => {
                self.asking = other;
                None
            }
        }
    }

    /// Notes that the request is answered.
    pub(super) fn on_answered(&mut self) {
        self.asking = Asking::Nothing;
    }
}
