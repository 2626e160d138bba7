//! The lobby: peers that have connected and are no tenants yet, or never will be.
//!
//! | file | what it does |
//! |---|---|
//! | `mod` | reads first messages, and has programs wait while there are too many tenants |
//! | `debts` | users' debts in time |
//! | `strangers` | peers whose first message has not come, or that have yet to read their answer |

mod debts;
mod strangers;

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_contract::messages::{Admission, FromTenant, Message as _, Opening, Refusal};
use baton_contract::scheduling::Scheduling;
use baton_contract::wire::{GpuNumber, Malformed, Version};
use baton_messages::Message;
use baton_report::quota::Met;

use super::event_loop::{EventLoop, Interest, Source};
use super::tenants::peer::Peer;
use super::tenants::process::Process;
use crate::endpoint::{Closing, Endpoint};
use baton_books::reservations::Need;
use baton_policy::gangs::GangId;
use debts::Debts;
use strangers::{Stage, Strangers};

/// A program that has greeted and waits until there is room for one more tenant.
#[derive(Debug)]
pub(super) struct Newcomer {
    pub(super) peer: Peer,
    pub(super) name: String,
    pub(super) process: Process,
    /// The scheduling that its quotas allow.
    pub(super) scheduling: Scheduling,
    /// The quotas that it has met.
    pub(super) met: Vec<Met>,
    /// The memory that it needs.
    pub(super) need: Option<Need>,
    /// The gang that it is of.
    pub(super) gang: Option<GangId>,
}

/// The obstacle of a waiting newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lacks {
    /// No obstacle: it can come in.
    Nothing,
    /// The number of programs is at its limit, or others of its user have a debt.
    Place,
    /// This many bytes of the memory that it needs are missing.
    Memory(u64),
}

impl Lacks {
    /// The missing memory, in bytes.
    pub(super) fn bytes(self) -> u64 {
        if let Self::Memory(bytes) = self { bytes } else { 0 }
    }
}

/// The most programs of a guest that may wait to become tenants.
const MOST_WAITING: usize = 64;
/// A guest with an unresponsive program is kept out for this many times as long as others had to wait. So the others have nine
/// tenths of the time, however often such programs come.
const TIMES: u32 = 9;

/// The reason why a program is not let in.
pub(super) type Refused = (Refusal, Message);

/// A waiting newcomer.
#[derive(Debug)]
struct Waiting {
    number: u32,
    since: Instant,
    newcomer: Newcomer,
}

/// All of these peers.
#[derive(Debug)]
pub(super) struct Lobby {
    events: Arc<EventLoop>,
    strangers: Strangers,
    waiting: VecDeque<Waiting>,
    /// Users whose programs have kept others waiting.
    kept_out: Debts,
    last: u32,
    /// True if no program becomes a tenant any more while any peer waits for the coordinator's end.
    is_closed: bool,
    /// True if the lobby stays closed even when no peer waits for the end.
    stays_closed: bool,
}

impl Lobby {
    pub(super) fn new(events: Arc<EventLoop>, guests: Vec<RangeInclusive<u32>>) -> Self {
        Self {
            strangers: Strangers::new(Arc::clone(&events), guests),
            events,
            waiting: VecDeque::new(),
            kept_out: Debts::default(),
            last: 0,
            is_closed: false,
            stays_closed: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.strangers.is_empty() && self.waiting.is_empty()
    }

    /// The time of the next check for strangers to send away or to take in.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        let waiting = self.waiting.iter().filter_map(|waiting| waiting.newcomer.peer.guest());
        self.strangers.next_timer().into_iter().chain(self.kept_out.next_end(waiting)).min()
    }

    /// Sends away strangers that take too long.
    pub(super) fn send_away(&mut self, endpoint: &Endpoint) {
        self.strangers.send_away(endpoint);
    }

    /// Takes in all peers that wait at the socket.
    pub(super) fn accept(&mut self, endpoint: &Endpoint) {
        self.strangers.accept(endpoint, self.waiting.len());
    }

    /// Sees to it that newcomers find the socket.
    pub(super) fn look(&mut self, endpoint: &mut Endpoint) {
        let waiting = self.waiting.len();
        match endpoint.look(|socket| self.strangers.take_in(socket, waiting)) {
            Ok(false) => {}
            Ok(true) => {
                baton_messages::warn!(socket_is_there_again(endpoint.path().display()));
                let watched = self.events.ensure(&*endpoint, Source::Listener, Interest::Read);
                let watched =
                    watched.and_then(|()| self.events.ensure(endpoint.watch(), Source::Place, Interest::Read));
                if let Err(error) = watched {
                    baton_messages::error!(no_program_can_join(error));
                }
            }
            Err(error) => baton_messages::error!(cannot_be_found(error)),
        }
    }

    /// Closes the socket of an idle coordinator. Returns true if no newcomer is on the way, so that the coordinator can end. From
    /// then on no program finds it any more.
    pub(super) fn close_if_unwanted(&mut self, endpoint: &mut Endpoint) -> bool {
        let failed = |error: &dyn std::fmt::Display| {
            baton_messages::error!(no_program_can_join(error));
            true
        };
        let waiting = self.waiting.len();
        match endpoint.close_if_unwanted(|socket| self.strangers.take_in(socket, waiting)) {
            Ok(Closing::Closed) => true,
            // It may listen by another socket now.
            Ok(Closing::Wanted) => self
                .events
                .ensure(endpoint, Source::Listener, Interest::Read)
                .map_or_else(|error| failed(&error), |()| false),
            Err(error) => failed(&error),
        }
    }

    /// Keeps the connection of a peer that waits for the end: its connection ends with the coordinator.
    pub(super) fn awaits_end(&mut self, peer: Peer) {
        self.strangers.keep(peer, Stage::Ending);
    }

    /// Keeps the connection of a peer from which no more messages are expected.
    pub(super) fn stays(&mut self, peer: Peer) {
        self.strangers.keep(peer, Stage::Expected);
    }

    /// The number of programs that are about to come.
    pub(super) fn expected(&self) -> usize {
        self.strangers.expected()
    }

    /// Keeps the connection of a peer that may have yet to read some of its answer.
    pub(super) fn reads(&mut self, peer: Peer) {
        if peer.keeps() {
            self.strangers.keep(peer, Stage::Reading);
        }
    }

    /// Reads a stranger's first message, which decides its kind. Returns the peer, its request, and the descriptor that came with it.
    pub(super) fn hear(&mut self, at: u32) -> Option<(Peer, Opening, Option<OwnedFd>)> {
        let stranger = self.strangers.get_mut(at)?;
        if stranger.stage == Stage::Reading {
            // A tool that has not read all of its answer yet.
            if stranger.peer.send_kept().is_err() || !stranger.peer.keeps() {
                self.strangers.remove(at);
            }
            return None;
        }
        let received = match stranger.peer.receive() {
            Ok(None) => return None,
            Ok(Some(received)) => Some(received),
            Err(_) => None,
        };
        let stranger = self.strangers.remove(at)?;
        let mut peer = stranger.peer;
        if stranger.stage == Stage::Ending && self.is_closed && !self.stays_closed && !self.strangers.is_end_awaited() {
            baton_messages::info!(end_is_taken_back());
            self.is_closed = false;
        }
        // An expected peer has no more messages to send.
        if stranger.stage != Stage::Silent {
            return None;
        }
        let is_guest = peer.guest().is_some();
        let mut received = received?;
        let version = Version::of(&received.message);
        if let Ok(version) = version {
            peer = peer.speaking(version);
        }
        let decoded = version.and_then(|version| FromTenant::decode_in(&received.message, version));
        // A greeting peer does not know the GPU's number yet.
        let decoded = decoded.and_then(|(gpu, message)| match gpu {
            GpuNumber::ANY => Ok(message),
            gpu => peer.check(gpu).map(|()| message),
        });
        let refusal = match decoded {
            Ok(FromTenant::Opening(Opening::Hello { .. })) if received.truncated => {
                (Refusal::Busy, baton_messages::no_more_connections())
            }
            decoded => match decoded.and_then(|message| message.expect(received.descriptors.len())) {
                Ok(FromTenant::Opening(opening)) if is_guest && !is_for_guests(&opening) => {
                    (Refusal::Failed, baton_messages::not_for_guests())
                }
                Ok(FromTenant::Opening(opening)) => return Some((peer, opening, received.descriptors.pop())),
                Ok(_) => (Refusal::Malformed, baton_messages::no_greeting()),
                Err(error @ Malformed::Version { .. }) => (Refusal::Version, error.into()),
                Err(error) => (Refusal::Malformed, error.into()),
            },
        };
        refuse(&mut peer, refusal);
        None
    }

    /// Closes the lobby: from here on no program becomes a tenant.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Keeps the lobby closed even after the peer that asked for it has gone.
    pub(super) fn stays_closed(&mut self) {
        self.stays_closed = true;
    }

    /// Opens the lobby again. Returns the peers that wait for the end in vain.
    pub(super) fn open(&mut self) -> Vec<Peer> {
        (self.is_closed, self.stays_closed) = (false, false);
        self.strangers.who_await_the_end()
    }

    /// The reason why no program becomes a tenant, if the lobby is closed.
    pub(super) fn closed(&self, reason: Refusal) -> Option<Refused> {
        self.is_closed.then(|| (reason, baton_messages::lobby_is_closed()))
    }

    /// True if the end was requested and a peer waits for it.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// A guest's program did not answer, and others had to wait for it for so long: others of that user have to wait too.
    pub(super) fn keep_out(&mut self, user: u32, waited: Duration) {
        let left = self.kept_out.add(user, TIMES * waited).as_secs_f64();
        baton_messages::warn!(user_is_kept_out(user, format_args!("{left:.1}")));
    }

    /// The reason why no program of a guest is let in now, if there is one.
    pub(super) fn kept_out(&self, guest: Option<u32>) -> Option<Refused> {
        let (user, left) = (guest?, self.kept_out.of(guest)?.as_secs_f64());
        Some((Refusal::Busy, baton_messages::is_kept_out(user, format_args!("{left:.1}"))))
    }

    /// The reason why no further program of a guest can wait, if there is one.
    pub(super) fn full(&self, guest: Option<u32>) -> Option<Refused> {
        let user = guest?;
        let is_its = |waiting: &&Waiting| waiting.newcomer.peer.guest() == guest;
        let is_full = self.waiting.iter().filter(is_its).count() >= MOST_WAITING;
        is_full.then(|| (Refusal::Busy, baton_messages::user_waits_often(MOST_WAITING, user)))
    }

    /// Has a newcomer wait until it is its turn.
    pub(super) fn wait(&mut self, mut newcomer: Newcomer, lacking: u64) {
        let ahead = self.waiting.len() as u32;
        self.last = self.last.wrapping_add(1);
        let number = self.last;
        let is_watched = self.events.add(&newcomer.peer, Source::Newcomer(number), Interest::Read).is_ok();
        if is_watched && newcomer.peer.send(&Admission::Queued { ahead, lacking }, &[]).is_ok() {
            self.waiting.push_back(Waiting { number, since: Instant::now(), newcomer });
        }
    }

    /// The place of the waiting newcomer that may come in first: the one that has waited longest and lacks no memory or place.
    /// Newcomers that need memory come in in order. But one that lacks memory holds up the others for no longer than `most`.
    pub(super) fn first(&self, most: Duration, lacks: impl Fn(&Newcomer) -> Lacks) -> Option<usize> {
        let mut is_held_up = false;
        self.waiting.iter().position(|Waiting { since, newcomer, .. }| match lacks(newcomer) {
            Lacks::Nothing => newcomer.need.is_none() || !is_held_up || since.elapsed() >= most,
            Lacks::Place => false,
            Lacks::Memory(_) => {
                is_held_up = true;
                false
            }
        })
    }

    /// The time at which a newcomer that needs memory has waited for `most`.
    pub(super) fn next_held_up(&self, most: Duration) -> Option<Instant> {
        let needing = self.waiting.iter().filter(|waiting| waiting.newcomer.need.is_some());
        needing.map(|waiting| waiting.since + most).filter(|at| *at > Instant::now()).min()
    }

    /// Takes the newcomer at this place out of the queue.
    pub(super) fn take(&mut self, at: usize) -> Option<Newcomer> {
        let newcomer = self.waiting.remove(at)?.newcomer;
        self.events.remove(&newcomer.peer);
        Some(newcomer)
    }

    /// Removes a waiting newcomer whose socket shows an event: it has no message to send, so it has gone.
    pub(super) fn hear_newcomer(&mut self, number: u32) {
        let is_it = |waiting: &Waiting| waiting.number == number;
        if let Some(at) = self.waiting.iter().position(is_it)
            && let Some(waiting) = self.waiting.get_mut(at)
            && !matches!(waiting.newcomer.peer.receive(), Ok(None))
        {
            self.events.remove(&waiting.newcomer.peer);
            self.waiting.remove(at);
        }
    }

    /// The waiting newcomers, the next one first, each with the time since when it has waited.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (&Newcomer, Instant)> {
        self.waiting.iter().map(|waiting| (&waiting.newcomer, waiting.since))
    }
}

/// True if guests may send this: messages of a program that wants to be a tenant, or of `baton run` for it, and messages about a
/// single tenant. The tenant's owner is checked later.
fn is_for_guests(opening: &Opening) -> bool {
    match opening {
        Opening::Hello { .. } | Opening::Expect => true,
        Opening::Set { .. } | Opening::Evict { .. } | Opening::SendAway { .. } | Opening::Prefetch { .. } => true,
        Opening::Status | Opening::Events { .. } | Opening::Stop { .. } | Opening::Close { .. } => false,
        Opening::Keep | Opening::Upgrade { .. } => false,
    }
}

/// Refuses a peer: it gets only this one answer, and goes.
pub(super) fn refuse(peer: &mut Peer, (reason, why): Refused) {
    // A program that may come again does so, many times a second.
    if reason != Refusal::Busy {
        baton_messages::warn!(refused_a_connection(&why));
    }
    let _ = peer.send(&Admission::Refused { reason, text: why.into() }, &[]);
}
