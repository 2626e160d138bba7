//! Peers that have connected and are no tenants: tools, programs on their way in, `baton run`'s that wait for theirs.
//!
//! None of them keeps the others out. A silent stranger is sent away after a while. When connections are at their limit, or no
//! descriptor is left, newcomers are told to come again, and programs do so by themselves. Guests have a part of the connections,
//! and each of them a part of that. However fast they come, only a limited number is taken in before all other work has its turn,
//! and only a limited number of each guest's is heard.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_contract::link;
use baton_contract::messages::{Admission, Message as _, Refusal};
use baton_contract::wire::GpuNumber;
use baton_messages::Message;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::debts::Debts;
use crate::endpoint::Endpoint;
use crate::server::event_loop::{EventLoop, Interest, Source};
use crate::server::tenants::guests::OfGuests;
use crate::server::tenants::peer::Peer;

/// The time a stranger may take for the first message, or to read an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time for which no peer is taken in after no descriptor was left.
const BACK_OFF: Duration = Duration::from_millis(50);

/// The longest time for which a guest's program may be expected.
const EXPECTANCY: Duration = Duration::from_secs(600);
/// The most peers taken in at once. Then the tenants have their turn, for at least a minimum time.
const AT_ONCE: usize = 32;
const REST: Duration = Duration::from_millis(1);
/// The divisors for the shares of connections: of all guests together, and of each guest.
const GUESTS_PART: usize = 2;
const GUEST_PART: usize = 8;

/// The rate at which a guest's connections are handled in the long run, and the number handled at once.
const EACH: Duration = Duration::from_millis(5);
const MOST_AT_ONCE: u32 = 256;

/// The stage of a stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has yet to send its first message.
    Silent,
    /// It has yet to read all of its answer.
    Reading,
    /// A program comes for it, or it is a program that has asked: no more messages are expected.
    Expected,
    /// It has asked for the coordinator's end, and waits for that.
    Ending,
}

#[derive(Debug)]
pub(super) struct Stranger {
    pub(super) peer: Peer,
    pub(super) stage: Stage,
    since: Instant,
}

impl Stranger {
    /// The events that its socket is watched for.
    fn interest(&self) -> Interest {
        if self.stage == Stage::Reading { Interest::Write } else { Interest::Read }
    }

    /// The time at which it is sent away.
    fn ends(&self) -> Option<Instant> {
        let patience = match self.stage {
            Stage::Silent | Stage::Reading => PATIENCE,
            Stage::Expected => self.peer.guest().map(|_| EXPECTANCY)?,
            Stage::Ending => return None,
        };
        Some(self.since + patience)
    }
}

impl AsFd for Stranger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.peer.as_fd()
    }
}

/// All of these peers.
#[derive(Debug)]
pub(super) struct Strangers {
    events: Arc<EventLoop>,
    all: BTreeMap<u32, Stranger>,
    last: u32,
    /// The times at which strangers are sent away that owe a message or a read.
    ends: BTreeSet<(Instant, u32)>,
    /// A spare file, given up for a moment to tell a newcomer that no descriptor is left.
    spare: Option<File>,
    /// No peer is taken in before this time.
    rests_until: Option<Instant>,
    /// The most strangers, including those that wait to become tenants.
    most: usize,
    /// Other users whose programs may be tenants.
    guests: Vec<RangeInclusive<u32>>,
    /// The number of connections that guests have.
    of_guests: OfGuests,
    /// The time by which guests have come too early.
    ahead: Debts,
    /// The user that was turned away last, and the message to it.
    turned_away: Option<(u32, Vec<u8>)>,
    is_full: bool,
}

impl Strangers {
    pub(super) fn new(events: Arc<EventLoop>, guests: Vec<RangeInclusive<u32>>) -> Self {
        // The others are for frames and tenants.
        let most = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| most as usize) / 4;
        let (all, ends) = (BTreeMap::new(), BTreeSet::new());
        let most = most.clamp(16, 16 << 10);
        Self {
            events,
            all,
            last: 0,
            ends,
            spare: spare(),
            rests_until: None,
            most,
            guests,
            of_guests: OfGuests::default(),
            ahead: Debts::default(),
            turned_away: None,
            is_full: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Stranger> {
        self.all.get_mut(&number)
    }

    /// Removes a stranger that becomes something else, or goes.
    pub(super) fn remove(&mut self, number: u32) -> Option<Stranger> {
        let stranger = self.all.remove(&number)?;
        self.events.remove(&stranger);
        self.of_guests.remove(stranger.peer.guest());
        if let Some(end) = stranger.ends() {
            self.ends.remove(&(end, number));
        }
        Some(stranger)
    }

    fn add(&mut self, stranger: Stranger) {
        while self.all.contains_key(&self.last) {
            self.last = self.last.wrapping_add(1);
        }
        let number = self.last;
        self.last = self.last.wrapping_add(1);
        if let Err(error) = self.events.add(&stranger, Source::Stranger(number), stranger.interest()) {
            return baton_messages::error!(cannot_watch(error));
        }
        self.ends.extend(stranger.ends().map(|end| (end, number)));
        self.of_guests.add(stranger.peer.guest());
        self.all.insert(number, stranger);
    }

    /// Takes a stranger in again, for its remaining steps.
    pub(super) fn keep(&mut self, peer: Peer, stage: Stage) {
        self.add(Stranger { peer, stage, since: Instant::now() });
    }

    /// The time of the next check for strangers to send away or to take in.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.ends.first().map(|(end, _)| *end).into_iter().chain(self.rests_until).min()
    }

    /// True if any peer waits for the coordinator's end.
    pub(super) fn is_end_awaited(&self) -> bool {
        self.all.values().any(|stranger| stranger.stage == Stage::Ending)
    }

    /// Removes the strangers that wait for the end: they become something else, or go.
    pub(super) fn who_await_the_end(&mut self) -> Vec<Peer> {
        let ending = self.all.iter().filter(|(_, stranger)| stranger.stage == Stage::Ending);
        let numbers: Vec<u32> = ending.map(|(number, _)| *number).collect();
        numbers.into_iter().filter_map(|number| self.remove(number)).map(|stranger| stranger.peer).collect()
    }

    /// The number of those for which programs are about to come.
    pub(super) fn expected(&self) -> usize {
        self.all.values().filter(|stranger| stranger.stage == Stage::Expected).count()
    }

    /// Takes in waiting peers, in addition to `others`. If there are many, the rest has to wait for a moment.
    pub(super) fn accept(&mut self, endpoint: &Endpoint, others: usize) {
        for _ in 0..AT_ONCE {
            match endpoint.accept() {
                Ok(socket) => self.take_in(socket, others),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(error) => {
                    self.say_full(&baton_messages::cannot_take_in(error));
                    // The first peer learns the reason. The others wait, and no peer is asked again at once.
                    self.spare = None;
                    if let Ok(socket) = endpoint.accept() {
                        refuse(Peer::new(socket, THIS_GPU, None), baton_messages::no_more_connections());
                    }
                    self.spare = spare();
                    return self.rest(endpoint, BACK_OFF);
                }
            }
        }
        self.rest(endpoint, REST);
    }

    /// Takes in no peer for this time.
    fn rest(&mut self, endpoint: &Endpoint, pause: Duration) {
        self.rests_until = Some(Instant::now() + pause);
        self.events.change(endpoint, Source::Listener, Interest::None);
    }

    pub(super) fn take_in(&mut self, socket: OwnedFd, others: usize) {
        let guest = match link::peer(socket.as_fd()) {
            Some(peer) if peer.is_trusted() => None,
            Some(peer) if self.guests.iter().any(|users| users.contains(&peer.user)) => Some(peer.user),
            Some(who) => return self.turn_away(&socket, who.user),
            None => return,
        };
        let peer = Peer::new(socket, THIS_GPU, guest);
        if let Some(user) = guest.filter(|user| self.comes_too_fast(*user)) {
            // Its message is not even read: reading would cost the others.
            return refuse(peer, baton_messages::user_connects_often(user));
        }
        if self.all.len() + others >= self.most {
            self.say_full(&baton_messages::connections_are_full());
            return refuse(peer, baton_messages::no_more_connections());
        }
        let is_much =
            |user| self.of_guests.of(user) >= self.most / GUEST_PART || self.of_guests.all() >= self.most / GUESTS_PART;
        if let Some(user) = guest.filter(|user| is_much(*user)) {
            return refuse(peer, baton_messages::user_has_many_connections(user));
        }
        self.is_full = false;
        self.keep(peer, Stage::Silent);
    }

    /// True if a user has come more often lately than it may.
    fn comes_too_fast(&mut self, user: u32) -> bool {
        let is_ahead = self.ahead.of(Some(user)) > Some(MOST_AT_ONCE * EACH);
        if !is_ahead {
            self.ahead.add(user, EACH);
        }
        is_ahead
    }

    /// A user's program is not taken in. It costs as little as possible: there may be no end of them.
    fn turn_away(&mut self, socket: &OwnedFd, user: u32) {
        if self.turned_away.as_ref().is_none_or(|(last, _)| *last != user) {
            let text = baton_messages::not_for_this_user(user).into();
            self.turned_away = Some((user, Admission::Refused { reason: Refusal::Failed, text }.encode(THIS_GPU)));
        }
        if let Some((_, message)) = &self.turned_away {
            let _ = link::send(socket.as_fd(), message, &[], true);
        }
        baton_messages::warn!(refused_a_connection(baton_messages::not_for_this_user(user)));
    }

    fn say_full(&mut self, why: &Message) {
        if !std::mem::replace(&mut self.is_full, true) {
            baton_messages::warn!(newcomers_wait(why));
        }
    }

    /// Sends away strangers that take too long.
    pub(super) fn send_away(&mut self, endpoint: &Endpoint) {
        let now = Instant::now();
        if self.rests_until.take_if(|until| *until <= now).is_some() {
            self.events.change(endpoint, Source::Listener, Interest::Read);
        }
        while let Some((_, number)) = self.ends.first().copied().filter(|(end, _)| *end <= now)
            && let Some(mut late) = self.remove(number)
        {
            if late.stage == Stage::Silent {
                let text = baton_messages::said_nothing_for(PATIENCE.as_secs()).into();
                let _ = late.peer.send(&Admission::Refused { reason: Refusal::Malformed, text }, &[]);
            }
        }
    }
}

/// Each socket is one GPU's.
const THIS_GPU: GpuNumber = GpuNumber::FIRST;

/// The reason why a user's programs are not taken in.
fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

/// The peer comes again by itself.
fn refuse(mut peer: Peer, why: Message) {
    let _ = peer.send(&Admission::Refused { reason: Refusal::Busy, text: why.into() }, &[]);
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn a_guests_program_is_not_expected_for_ever_and_nobody_may_be_silent_for_long() {
        let ends = |stage: Stage, guest: Option<u32>| {
            let made = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
            let (socket, _theirs) = made.expect("sockets");
            let stranger = Stranger { peer: Peer::new(socket, THIS_GPU, guest), stage, since: Instant::now() };
            stranger.ends().map(|end| end - stranger.since)
        };
        assert_eq!(ends(Stage::Expected, Some(7)), Some(EXPECTANCY));
        assert_eq!(ends(Stage::Expected, None), None, "it may take as long as it likes to start");
        for guest in [None, Some(7)] {
            assert_eq!(ends(Stage::Silent, guest), Some(PATIENCE));
            assert_eq!(ends(Stage::Reading, guest), Some(PATIENCE));
        }
    }
}
