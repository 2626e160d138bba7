//! The event loop: the server waits for descriptors by epoll, so that a wait costs the same with three of them and with three
//! thousand.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;

use baton_policy::arbiter::TenantId;

/// The most events taken at once; the rest stays for the next time, and comes first then.
const AT_ONCE: usize = 256;
/// The most of them that are strangers', each of which may cost as much as a new tenant.
const STRANGERS_AT_ONCE: usize = 16;

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Waker,
    Listener,
    /// The folder of the socket, of which something was removed.
    Place,
    /// A peer that has connected, by its number.
    Stranger(u32),
    /// A program that waits to become a tenant, by its number.
    Newcomer(u32),
    Control(TenantId),
    Requests(TenantId),
    Process(TenantId),
    /// The keeper, at its end.
    Keeper,
    /// A coordinator that is to follow this one.
    Successor,
}

impl Source {
    /// The word that epoll keeps: the kind in the upper half, the number in the lower.
    fn word(self) -> u64 {
        let (kind, number) = match self {
            Self::Waker => (0, 0),
            Self::Listener => (1, 0),
            Self::Stranger(number) => (2, number),
            Self::Newcomer(number) => (3, number),
            Self::Control(id) => (4, id.0),
            Self::Requests(id) => (5, id.0),
            Self::Process(id) => (6, id.0),
            Self::Place => (7, 0),
            Self::Keeper => (8, 0),
            Self::Successor => (9, 0),
        };
        kind << 32 | u64::from(number)
    }

    fn of(word: u64) -> Self {
        let number = word as u32;
        match word >> 32 {
            0 => Self::Waker,
            1 => Self::Listener,
            2 => Self::Stranger(number),
            3 => Self::Newcomer(number),
            4 => Self::Control(TenantId(number)),
            5 => Self::Requests(TenantId(number)),
            6 => Self::Process(TenantId(number)),
            7 => Self::Place,
            8 => Self::Keeper,
            9 => Self::Successor,
            kind => unreachable!("only our own words are entered, not of kind {kind}"),
        }
    }
}

/// The events that a descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    /// Something can be read.
    Read,
    /// Something can be written.
    Write,
    /// Either.
    Both,
    /// Nothing but its end.
    None,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Self::Read => EventFlags::IN,
            Self::Write => EventFlags::OUT,
            Self::Both => EventFlags::IN | EventFlags::OUT,
            Self::None => EventFlags::empty(),
        }
    }
}

/// The descriptors that are watched.
#[derive(Debug)]
pub(super) struct EventLoop {
    epoll: OwnedFd,
}

impl EventLoop {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Watches a descriptor from now on, until [`EventLoop::remove`].
    pub(super) fn add(&self, descriptor: impl AsFd, source: Source, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor, EventData::new_u64(source.word()), interest.flags())?)
    }

    /// Watches a descriptor, if it is not watched already.
    pub(super) fn ensure(&self, descriptor: impl AsFd, source: Source, interest: Interest) -> io::Result<()> {
        match self.add(descriptor, source, interest) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            result => result,
        }
    }

    /// Watches one for something else.
    pub(super) fn change(&self, descriptor: impl AsFd, source: Source, interest: Interest) {
        let changed = epoll::modify(&self.epoll, descriptor, EventData::new_u64(source.word()), interest.flags());
        debug_assert!(changed.is_ok(), "{source:?}: {changed:?}");
    }

    /// Stops watching a descriptor, if it was watched.
    pub(super) fn remove(&self, descriptor: impl AsFd) {
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Waits until something happens or the time is over, and returns the sources of the events. Until `awake` this thread does not
    /// sleep, because waking it up takes as long as a short request.
    pub(super) fn wait_awake(&self, timeout: Option<Duration>, awake: Instant) -> io::Result<Vec<Source>> {
        let start = Instant::now();
        let asleep = timeout.map_or(awake, |timeout| awake.min(start + timeout));
        while Instant::now() < asleep {
            let sources = self.wait(Some(Duration::ZERO))?;
            if !sources.is_empty() {
                return Ok(sources);
            }
            // The program that is to ask may have no other processor.
            std::thread::yield_now();
        }
        self.wait(timeout.map(|timeout| timeout.saturating_sub(start.elapsed())))
    }

    /// Waits until something happens or the time is over, and returns the sources of the events.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> io::Result<Vec<Source>> {
        let timeout =
            timeout.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        let mut events: Vec<Event> = Vec::with_capacity(AT_ONCE);
        match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) => {
                let mut sources: Vec<Source> = events.iter().map(|event| Source::of(event.data.u64())).collect();
                // Tenants that go make room for those that come.
                sources.sort_by_key(|source| *source == Source::Listener);
                let mut strangers = 0;
                sources.retain(|source| {
                    strangers += usize::from(matches!(source, Source::Stranger(_)));
                    !matches!(source, Source::Stranger(_)) || strangers <= STRANGERS_AT_ONCE
                });
                Ok(sources)
            }
            Err(Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_what_its_word_says() {
        let tenant = TenantId(u32::MAX);
        let all = [
            Source::Waker,
            Source::Listener,
            Source::Place,
            Source::Keeper,
            Source::Successor,
            Source::Stranger(7),
            Source::Newcomer(u32::MAX),
            Source::Control(tenant),
            Source::Requests(TenantId(1)),
            Source::Process(tenant),
        ];
        for source in all {
            assert_eq!(Source::of(source.word()), source);
        }
    }

    #[test]
    fn what_is_removed_is_heard_of_no_more() {
        let events = EventLoop::new().expect("epoll");
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
        events.add(&ours, Source::Stranger(1), Interest::Read).expect("a socket can be watched");
        drop(theirs);
        assert_eq!(events.wait(None).expect("it waits"), [Source::Stranger(1)]);
        events.remove(&ours);
        assert_eq!(events.wait(Some(Duration::ZERO)).expect("it waits"), []);
    }
}
