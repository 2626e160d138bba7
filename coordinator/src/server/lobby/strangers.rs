//! Those who have connected and are no tenants: tools, programs on their way in, `baton run`'s that wait for theirs.
//!
//! None of them keeps the others out. Who says nothing is sent away after a while. When there are as many connections as
//! there may be, or no descriptor is left, who comes is told to come again, and programs do so by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_contract::link;
use baton_contract::messages::{Admission, Refusal};
use baton_contract::wire::GpuNumber;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::endpoint::Endpoint;
use crate::server::event_loop::{EventLoop, Interest, Source};
use crate::server::tenants::peer::Peer;

/// How long somebody may take for the first message, or to read an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// For how long nobody is taken in when no descriptor was left.
const BACK_OFF: Duration = Duration::from_millis(50);

/// What is expected of a stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has yet to say what it wants. A guest can become a tenant, and steer nothing.
    Silent { is_guest: bool },
    /// It has yet to read all of its answer.
    Reading,
    /// A program comes for it, or it is a program that has asked: nothing more is expected.
    Expected,
}

#[derive(Debug)]
pub(super) struct Stranger {
    pub(super) peer: Peer,
    pub(super) stage: Stage,
    since: Instant,
}

impl Stranger {
    /// What it is watched for.
    fn interest(&self) -> Interest {
        if self.stage == Stage::Reading { Interest::Write } else { Interest::Read }
    }

    /// When it is sent away.
    fn ends(&self) -> Option<Instant> {
        (self.stage != Stage::Expected).then(|| self.since + PATIENCE)
    }
}

impl AsFd for Stranger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.peer.as_fd()
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Strangers {
    events: Arc<EventLoop>,
    all: BTreeMap<u32, Stranger>,
    last: u32,
    /// When those of whom something is expected are sent away.
    ends: BTreeSet<(Instant, u32)>,
    /// Given up for a moment to tell somebody that no descriptor is left.
    spare: Option<File>,
    /// Nobody is taken in before.
    rests_until: Option<Instant>,
    /// As many as there may be, with those who wait to become tenants.
    most: usize,
    /// Other users whose programs may be tenants.
    guests: Vec<RangeInclusive<u32>>,
    is_full: bool,
}

impl Strangers {
    pub(super) fn new(events: Arc<EventLoop>, guests: Vec<RangeInclusive<u32>>) -> Self {
        // The others are for frames and tenants.
        let most = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| most as usize) / 4;
        let (all, ends) = (BTreeMap::new(), BTreeSet::new());
        let most = most.clamp(16, 16 << 10);
        Self { events, all, last: 0, ends, spare: spare(), rests_until: None, most, guests, is_full: false }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Stranger> {
        self.all.get_mut(&number)
    }

    /// It becomes something else, or goes.
    pub(super) fn remove(&mut self, number: u32) -> Option<Stranger> {
        let stranger = self.all.remove(&number)?;
        self.events.remove(&stranger);
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
            return log::error!("a connection cannot be watched: {error}");
        }
        self.ends.extend(stranger.ends().map(|end| (end, number)));
        self.all.insert(number, stranger);
    }

    /// Takes one in again, for what it has yet to do.
    pub(super) fn keep(&mut self, peer: Peer, stage: Stage) {
        self.add(Stranger { peer, stage, since: Instant::now() });
    }

    /// When it is to be looked again whether somebody is to be sent away, or can be taken in.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.ends.first().map(|(end, _)| *end).into_iter().chain(self.rests_until).min()
    }

    /// Takes everybody in who waits, beside so many others.
    pub(super) fn accept(&mut self, endpoint: &Endpoint, others: usize) {
        loop {
            match endpoint.accept() {
                Ok(socket) => self.take_in(socket, others),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(error) => {
                    self.say_full(&format!("no connection can be taken in: {error}"));
                    // Whoever it is learns why. The others wait, and nobody is asked again at once.
                    self.spare = None;
                    if let Ok(socket) = endpoint.accept() {
                        refuse(peer(socket));
                    }
                    self.spare = spare();
                    self.rests_until = Some(Instant::now() + BACK_OFF);
                    self.events.change(endpoint, Source::Listener, Interest::None);
                    return;
                }
            }
        }
    }

    pub(super) fn take_in(&mut self, socket: OwnedFd, others: usize) {
        let is_guest = match link::peer(socket.as_fd()) {
            Some(peer) if peer.is_trusted() => false,
            Some(peer) if self.guests.iter().any(|users| users.contains(&peer.user)) => true,
            Some(who) => {
                let text =
                    format!("this coordinator takes in no programs of user {} (`baton serve --allow-uid`)", who.user);
                log::warn!("refused a connection: {text}");
                let _ = peer(socket).send(&Admission::Refused { reason: Refusal::Failed, text }, &[]);
                return;
            }
            None => return,
        };
        if self.all.len() + others >= self.most {
            self.say_full("there are as many connections as the limit on descriptors allows");
            return refuse(peer(socket));
        }
        self.is_full = false;
        self.keep(peer(socket), Stage::Silent { is_guest });
    }

    fn say_full(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_full, true) {
            log::warn!("{why}; who comes has to wait. A higher limit (`ulimit -n`) would help");
        }
    }

    /// Sends those away who take too long.
    pub(super) fn send_away(&mut self, endpoint: &Endpoint) {
        let now = Instant::now();
        if self.rests_until.take_if(|until| *until <= now).is_some() {
            self.events.change(endpoint, Source::Listener, Interest::Read);
        }
        while let Some((_, number)) = self.ends.first().copied().filter(|(end, _)| *end <= now)
            && let Some(mut late) = self.remove(number)
        {
            if let Stage::Silent { .. } = late.stage {
                let text = format!("nothing was said for {} s", PATIENCE.as_secs());
                let _ = late.peer.send(&Admission::Refused { reason: Refusal::Malformed, text }, &[]);
            }
        }
    }
}

/// This coordinator has one GPU.
fn peer(socket: OwnedFd) -> Peer {
    Peer::new(socket, GpuNumber::FIRST)
}

fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

/// What somebody is told for whom there is no room.
pub(super) const FULL: &str =
    "the coordinator has as many connections as it can have; try again, or start it with a higher `ulimit -n`";

fn refuse(mut peer: Peer) {
    let _ = peer.send(&Admission::Refused { reason: Refusal::Busy, text: FULL.to_owned() }, &[]);
}
