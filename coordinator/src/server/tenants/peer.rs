//! One socket to a tenant, which never makes the server wait.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_contract::link;
use baton_contract::messages::{FromTenant, Message};
use baton_contract::wire::{GpuNumber, Malformed, Version};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::descriptors;
use crate::server::event_loop::Interest;

/// The most messages kept for a tenant that reads none.
const MOST_KEPT: usize = 4096;

/// The most descriptors on their way to a peer that does not read. The system counts them for the sending user, and when there are
/// too many, it lets none of that user's processes send more.
const MOST_UNREAD: usize = 64;

/// The pause before a message is tried again that the system had no room for, or whose predecessors the peer had not read.
const SOON: Duration = Duration::from_millis(1);
/// The pause after many tries.
const LATER: Duration = Duration::from_millis(100);

/// A descriptor that is sent. Kept messages share it and take no further descriptor.
pub(in crate::server) type Sent = Arc<OwnedFd>;

/// A socket, and the messages that could not be sent yet.
#[derive(Debug)]
pub(in crate::server) struct Peer {
    /// The GPU that the messages are about.
    gpu: GpuNumber,
    /// The version of the contract that it speaks.
    version: Version,
    /// The peer's user, if it is neither the coordinator's nor root.
    guest: Option<u32>,
    socket: OwnedFd,
    kept: VecDeque<(Vec<u8>, Vec<Sent>)>,
    /// The reason why messages are kept, if it does not show at the socket.
    held: Option<Held>,
    /// Descriptors sent since the peer had last read all earlier ones.
    unread: usize,
    /// The number of bytes received from the peer.
    heard: u64,
}

/// The schedule by which kept messages are tried again.
#[derive(Clone, Copy, Debug)]
struct Held {
    pause: Duration,
    next: Instant,
}

/// The error of a connection that is no longer usable.
#[derive(Debug)]
pub(in crate::server) struct Lost;

/// The result of sending a message.
enum Outcome {
    Sent,
    /// The socket is full. The socket itself shows when it no longer is.
    Full,
    /// The message is tried again after a while.
    Later,
}

impl Peer {
    pub(in crate::server) fn new(socket: OwnedFd, gpu: GpuNumber, guest: Option<u32>) -> Self {
        let version = Version::NOW;
        Self { gpu, version, guest, socket, kept: VecDeque::new(), held: None, unread: 0, heard: 0 }
    }

    /// The same, of a program that speaks this version of the contract.
    pub(in crate::server) fn speaking(self, version: Version) -> Self {
        Self { version, ..self }
    }

    /// The version of the contract that it speaks.
    pub(in crate::server) fn version(&self) -> Version {
        self.version
    }

    /// Its user, if that is neither the coordinator's nor root.
    pub(in crate::server) fn guest(&self) -> Option<u32> {
        self.guest
    }

    /// Sends a message, or keeps it while the tenant does not read or the system has no room for its descriptors.
    pub(in crate::server) fn send(&mut self, message: &impl Message, with: &[Sent]) -> Result<(), Lost> {
        debug_assert_eq!(message.descriptors(), with.len(), "{message:?}");
        let bytes = message.encode_in(self.gpu, self.version);
        baton_faults::reach("coordinator tells", message);
        if self.kept.is_empty() && self.is_sent(&bytes, with)? {
            baton_faults::reach("coordinator told", message);
            return Ok(());
        }
        if self.kept.len() >= MOST_KEPT {
            return Err(Lost);
        }
        self.kept.push_back((bytes, with.to_vec()));
        Ok(())
    }

    /// Tries to send a message. Any obstacle is noted.
    fn is_sent(&mut self, bytes: &[u8], with: &[Sent]) -> Result<bool, Lost> {
        match self.try_send(bytes, with)? {
            Outcome::Sent => self.held = None,
            Outcome::Full => {
                self.held = None;
                return Ok(false);
            }
            Outcome::Later => {
                let pause = self.held.map_or(SOON, |held| LATER.min(2 * held.pause));
                self.held = Some(Held { pause, next: Instant::now() + pause });
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn try_send(&mut self, bytes: &[u8], with: &[Sent]) -> Result<Outcome, Lost> {
        if !with.is_empty() && self.unread + with.len() > MOST_UNREAD {
            if !link::is_all_read(self.socket.as_fd()) {
                return if self.is_open() { Ok(Outcome::Later) } else { Err(Lost) };
            }
            self.unread = 0;
        }
        let descriptors: Vec<BorrowedFd<'_>> = with.iter().map(|one| one.as_fd()).collect();
        match link::send(self.socket.as_fd(), bytes, &descriptors, true) {
            Ok(()) => {
                self.unread += with.len();
                Ok(Outcome::Sent)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Outcome::Full),
            Err(error) if link::is_want_of_room(&error) && self.is_open() => Ok(Outcome::Later),
            Err(_) => Err(Lost),
        }
    }

    /// True if any message waits to be sent.
    pub(in crate::server) fn keeps(&self) -> bool {
        !self.kept.is_empty()
    }

    /// The time of the next attempt to send waiting messages, if the socket does not show it.
    pub(in crate::server) fn next_try(&self) -> Option<Instant> {
        self.held.map(|held| held.next)
    }

    /// The events to watch the socket for: reading, and writing if messages wait for that.
    pub(in crate::server) fn interest(&self) -> Interest {
        if self.keeps() && self.held.is_none() { Interest::Both } else { Interest::Read }
    }

    /// The events to watch for on a socket that is read only after all messages are sent.
    pub(in crate::server) fn interest_in_turn(&self) -> Interest {
        match (self.keeps(), self.held.is_some()) {
            (false, _) => Interest::Read,
            (true, false) => Interest::Write,
            (true, true) => Interest::None,
        }
    }

    /// Sends the kept messages, as far as possible now.
    pub(in crate::server) fn send_kept(&mut self) -> Result<(), Lost> {
        while let Some((bytes, with)) = self.kept.pop_front() {
            match self.is_sent(&bytes, &with) {
                Ok(true) => {}
                kept => {
                    self.kept.push_front((bytes, with));
                    return kept.map(drop);
                }
            }
        }
        Ok(())
    }

    /// The GPU that the messages are about.
    pub(in crate::server) fn gpu(&self) -> GpuNumber {
        self.gpu
    }

    /// The meaning of a message of its.
    pub(in crate::server) fn read(&self, message: &[u8]) -> Result<FromTenant, Malformed> {
        let (gpu, message) = FromTenant::decode_in(message, self.version)?;
        self.check(gpu).map(|()| message)
    }

    /// Checks that a message of the other side is about this connection's GPU.
    pub(in crate::server) fn check(&self, gpu: GpuNumber) -> Result<(), Malformed> {
        if gpu == self.gpu { Ok(()) } else { Err(Malformed::Gpu(gpu.0)) }
    }

    /// True if any process holds the other end.
    pub(in crate::server) fn is_open(&self) -> bool {
        let mut watched = [PollFd::new(&self.socket, PollFlags::empty())];
        let polled = poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        polled.is_err() || !watched[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// The next message, if one is there.
    pub(in crate::server) fn receive(&mut self) -> Result<Option<link::Received>, Lost> {
        if !descriptors::are_taken_from(self.guest) {
            return Err(Lost);
        }
        match link::receive(self.socket.as_fd(), true) {
            Ok(Some(mut received)) => {
                self.heard += received.message.len() as u64;
                let descriptors = descriptors::harmless(std::mem::take(&mut received.descriptors), self.guest);
                received.truncated |= descriptors.is_none();
                received.descriptors = descriptors.unwrap_or_default();
                Ok(Some(received))
            }
            Ok(None) => Err(Lost),
            // The message is still there.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock || link::is_want_of_room(&error) => Ok(None),
            Err(_) => Err(Lost),
        }
    }

    /// The number of bytes received from the peer.
    pub(in crate::server) fn heard(&self) -> u64 {
        self.heard
    }

    /// The number of bytes received, once all bytes that are there now are counted.
    pub(in crate::server) fn heard_by_now(&self) -> u64 {
        self.heard + link::unheard(self.socket.as_fd()) as u64
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::Command;

    use baton_contract::messages::{Answer, ExtentId};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    const FRAMES: usize = 16;

    fn pair() -> (Peer, OwnedFd) {
        let made = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (ours, theirs) = made.expect("sockets");
        (Peer::new(ours, GpuNumber::FIRST, None), theirs)
    }

    fn frames() -> (Answer, Vec<Sent>) {
        let null: Sent = Arc::new(File::open("/dev/null").expect("there").into());
        (Answer::Frames { extents: (0..FRAMES as u32).map(ExtentId).collect() }, vec![null; FRAMES])
    }

    /// Reads all descriptors that are there, and returns their number.
    fn read(socket: &OwnedFd) -> usize {
        let heard = || link::receive(socket.as_fd(), true).ok().flatten();
        std::iter::from_fn(heard).map(|received| received.descriptors.len()).sum()
    }

    #[test]
    fn descriptors_that_nobody_reads_wait_and_come_when_those_before_are_read() {
        let (mut peer, theirs) = pair();
        let (answer, with) = frames();
        for _ in 0..10 {
            peer.send(&answer, &with).expect("it lives");
        }
        assert!(peer.keeps() && peer.next_try().is_some() && peer.interest_in_turn() == Interest::None);
        let mut came = 0;
        while peer.keeps() {
            let now = read(&theirs);
            assert!((1..=MOST_UNREAD).contains(&now), "{now} descriptors at once");
            came += now;
            peer.send_kept().expect("it lives");
        }
        assert_eq!((came + read(&theirs), peer.next_try()), (10 * FRAMES, None));
        // The server notices a peer that goes while messages wait.
        for _ in 0..10 {
            peer.send(&answer, &with).expect("it lives");
        }
        drop(theirs);
        // A child that another test starts has it too, until it executes its program.
        while peer.send_kept().is_ok() {
            std::thread::yield_now();
        }
    }

    mod root {
        use super::*;

        /// The system counts descriptors on their way for their user: this test is one of its own, in a process of its own.
        #[test]
        #[ignore = "root: there are several users"]
        fn a_send_that_the_system_has_no_room_for_is_made_later() {
            const NAME: &str = "a_send_that_the_system_has_no_room_for_is_made_later";
            if std::env::var_os("BATON_TEST_ALONE").is_none() {
                let mut command = Command::new(std::env::current_exe().expect("a running test has a file"));
                let name = format!("server::tenants::peer::tests::root::{NAME}");
                let output =
                    command.args(["--exact", &name, "--nocapture", "--ignored"]).env("BATON_TEST_ALONE", "1").output();
                let output = output.expect("it can be run");
                let said = String::from_utf8_lossy(&output.stdout);
                assert!(output.status.success() && said.contains("1 passed"), "{said}{output:?}");
                return;
            }
            let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
            // SAFETY: a structure that lives over the call; a number.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) | libc::setuid(0x7eab_1e00) }, 0);
            let (answer, with) = frames();
            let mut floods = Vec::new();
            let stuck = loop {
                assert!(floods.len() < 10, "there is a limit");
                let (mut flood, unread) = pair();
                flood.send(&answer, &with).expect("it lives");
                flood.send(&answer, &with).expect("it lives");
                let is_stuck = flood.keeps();
                floods.push((flood, unread));
                if is_stuck {
                    break floods.len();
                }
            };
            let (mut innocent, theirs) = pair();
            innocent.send(&answer, &with).expect("only the others' descriptors are in the way");
            assert!(innocent.keeps() && innocent.next_try().is_some(), "after {stuck}");
            innocent.send_kept().expect("and they still are");
            assert_eq!(read(&theirs), 0);
            for (_, unread) in &floods {
                read(unread);
            }
            innocent.send_kept().expect("they are no more");
            assert_eq!((innocent.keeps(), read(&theirs)), (false, FRAMES));
        }
    }
}
