//! The items that the keeper holds, and the messages between it and the coordinator.
//!
//! A message is 16 bytes and what belongs to the item: the operation and the GPU's number (`u16` each), the item's kind (`u32`), and its
//! number (`u64`), in little-endian bytes; descriptors come beside. Both ends are of one user, and started from one another, but not
//! always of one version: a keeper never looks into an item's bytes. What belongs to no GPU has the first one's number.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use baton_contract::link;
use baton_contract::wire::GpuNumber;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// The name of an item of a GPU. Items are handed over in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The socket that listens, and the GPU's lock.
    Place,
    /// The table.
    Table,
    /// A slab of the host pool.
    Slab(u64),
    /// A socket on which the coordinator serves the web, by its purpose.
    Listener(u16),
    /// A frame's memory.
    Frame(u32),
    /// A tenant.
    Tenant(u32),
    /// The coordinator's own process: the first that a coordinator tells a keeper that it has started itself.
    Coordinator,
    /// A coordinator that is to follow this one: the program's file, and the successor's end of a line between the two.
    Successor,
    /// A fact that the coordinator has written down, in bytes without descriptors: its kind, and its number there.
    Fact(u16, u64),
}

/// Kinds of facts come behind all others.
const FACTS: u32 = 1 << 16;

impl Key {
    fn words(self) -> (u32, u64) {
        match self {
            Self::Place => (1, 0),
            Self::Table => (2, 0),
            Self::Slab(number) => (3, number),
            Self::Listener(number) => (8, number.into()),
            Self::Frame(number) => (4, number.into()),
            Self::Tenant(number) => (5, number.into()),
            Self::Coordinator => (6, 0),
            Self::Successor => (7, 0),
            Self::Fact(kind, number) => (FACTS | u32::from(kind), number),
        }
    }

    fn of(kind: u32, number: u64) -> Option<Self> {
        Some(match kind {
            1 => Self::Place,
            2 => Self::Table,
            3 => Self::Slab(number),
            4 => Self::Frame(number.try_into().ok()?),
            5 => Self::Tenant(number.try_into().ok()?),
            6 => Self::Coordinator,
            7 => Self::Successor,
            8 => Self::Listener(number.try_into().ok()?),
            kind => Self::Fact(kind.checked_sub(FACTS)?.try_into().ok()?, number),
        })
    }
}

/// A message of either end.
#[derive(Debug)]
pub(super) enum Note {
    /// To the keeper: hold this, in place of what this GPU has of this key. To the coordinator: this is held.
    Hold(GpuNumber, Key, Item),
    /// Let go of it. Answered by [`Note::Done`] when it is closed.
    Drop(GpuNumber, Key),
    /// The keeper's answer to a drop.
    Done,
    /// To the keeper: let go of it, without an answer.
    Forget(GpuNumber, Key),
    /// To the keeper: let go of all that this GPU has, without an answer.
    ForgetAll(GpuNumber),
    /// To the coordinator: this was all that is held.
    All {
        /// True if a coordinator has started this keeper.
        is_coordinators: bool,
    },
    /// To the keeper: the coordinator ends by itself, with this exit code.
    Ends(u8),
    /// To the keeper: the coordinator touches nothing any more, and its successor goes on.
    HandsOver,
    /// To a successor: the rest of what is held comes when the coordinator before has handed over.
    RestLater,
    /// To the keeper: the coordinator serves.
    Serves,
    /// Of another version.
    Unknown,
}

/// Descriptors, and bytes that belong to them.
#[derive(Debug, Default)]
pub(super) struct Item {
    pub(super) bytes: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// The two ends of a socket between a coordinator and its keeper.
pub(super) fn line() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Bounds the time that each message to and from the other end takes; without a limit, it takes as long as it does.
pub(super) fn set_limits(line: &OwnedFd, limit: Option<Duration>) -> io::Result<()> {
    // Zero would be none.
    let limit = limit.map(|limit| limit.max(Duration::from_millis(1)));
    link::set_patience(line, limit)?;
    Ok(set_socket_timeout(line, Timeout::Send, limit)?)
}

const HOLD: u32 = 1;
const DROP: u32 = 2;
const DONE: u32 = 3;
const ENDS: u32 = 4;
const ALL: u32 = 5;
const FORGET: u32 = 6;
const HANDS_OVER: u32 = 7;
const REST_LATER: u32 = 8;
const FORGET_ALL: u32 = 9;

/// The place of the GPU's number in the first word.
const GPU: u32 = 16;

fn header(operation: u32, (kind, number): (u32, u64)) -> Vec<u8> {
    [operation.to_le_bytes().as_slice(), &kind.to_le_bytes(), &number.to_le_bytes()].concat()
}

fn header_of(operation: u32, gpu: GpuNumber, key: Key) -> Vec<u8> {
    header(operation | gpu.0 << GPU, key.words())
}

pub(super) fn send_item(
    socket: BorrowedFd<'_>,
    (gpu, key): (GpuNumber, Key),
    bytes: &[u8],
    with: &[BorrowedFd<'_>],
) -> io::Result<()> {
    link::send(socket, &[&header_of(HOLD, gpu, key), bytes].concat(), with, false)
}

pub(super) fn send_drop(socket: BorrowedFd<'_>, gpu: GpuNumber, key: Key) -> io::Result<()> {
    link::send(socket, &header_of(DROP, gpu, key), &[], false)
}

pub(super) fn send_forget(socket: BorrowedFd<'_>, gpu: GpuNumber, key: Key) -> io::Result<()> {
    link::send(socket, &header_of(FORGET, gpu, key), &[], false)
}

pub(super) fn send_forget_all(socket: BorrowedFd<'_>, gpu: GpuNumber) -> io::Result<()> {
    link::send(socket, &header_of(FORGET_ALL, gpu, Key::Place), &[], false)
}

pub(super) fn send_hand_over(socket: BorrowedFd<'_>) -> io::Result<()> {
    link::send(socket, &header(HANDS_OVER, (0, 0)), &[], false)
}

/// A keeper of a version that does not know this forgets an item that it does not hold.
pub(super) fn send_serves(socket: BorrowedFd<'_>) -> io::Result<()> {
    send_forget(socket, GpuNumber::FIRST, Key::Coordinator)
}

pub(super) fn send_done(socket: BorrowedFd<'_>) -> io::Result<()> {
    link::send(socket, &header(DONE, (0, 0)), &[], false)
}

pub(super) fn send_end(socket: BorrowedFd<'_>, code: u8) -> io::Result<()> {
    link::send(socket, &header(ENDS, (0, code.into())), &[], false)
}

/// Receives the next message; none when the other end has gone, or talks nonsense.
pub(super) fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<Note>> {
    receive_if(socket, false)
}

/// The same; with `nowait`, only a message that is there.
pub(super) fn receive_if(socket: BorrowedFd<'_>, nowait: bool) -> io::Result<Option<Note>> {
    let Some(received) = link::receive(socket, nowait)? else { return Ok(None) };
    let (Some((header, bytes)), false) = (received.message.split_first_chunk::<16>(), received.truncated) else {
        return Ok(None);
    };
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let number = u64::from(word(8)) | u64::from(word(12)) << 32;
    let gpu = GpuNumber(word(0) >> GPU);
    Ok(match (word(0) & ((1 << GPU) - 1), Key::of(word(4), number)) {
        (HOLD, Some(key)) => {
            Some(Note::Hold(gpu, key, Item { bytes: bytes.to_vec(), descriptors: received.descriptors }))
        }
        (DROP, Some(key)) => Some(Note::Drop(gpu, key)),
        (FORGET, Some(Key::Coordinator)) => Some(Note::Serves),
        (FORGET, Some(key)) => Some(Note::Forget(gpu, key)),
        (FORGET_ALL, _) => Some(Note::ForgetAll(gpu)),
        (DONE, _) => Some(Note::Done),
        (ALL, _) => Some(Note::All { is_coordinators: number != 0 }),
        (HANDS_OVER, _) => Some(Note::HandsOver),
        (REST_LATER, _) => Some(Note::RestLater),
        (ENDS, _) => u8::try_from(number).ok().map(Note::Ends),
        _ => Some(Note::Unknown),
    })
}

/// Everything that is held.
#[derive(Debug, Default)]
pub(super) struct Held(BTreeMap<(GpuNumber, Key), Item>);

impl Held {
    /// Holds an item of a GPU, in place of what had its key. Without descriptors, only the bytes change.
    pub(super) fn hold(&mut self, gpu: GpuNumber, key: Key, mut item: Item) {
        if item.descriptors.is_empty()
            && let Some(before) = self.0.remove(&(gpu, key))
        {
            item.descriptors = before.descriptors;
        }
        self.0.insert((gpu, key), item);
    }

    /// Lets go of an item.
    pub(super) fn let_go(&mut self, gpu: GpuNumber, key: Key) {
        self.0.remove(&(gpu, key));
    }

    /// True if there is any program that waits for a coordinator.
    pub(super) fn has_tenants(&self) -> bool {
        self.0.keys().any(|(_, key)| matches!(key, Key::Tenant(_)))
    }

    /// True if there is any program of this GPU that waits for a coordinator.
    pub(super) fn has_tenants_of(&self, gpu: GpuNumber) -> bool {
        self.0.range((gpu, Key::Tenant(0))..=(gpu, Key::Tenant(u32::MAX))).next().is_some()
    }

    /// Lets go of the items for which this is false.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(GpuNumber, Key, &Item) -> bool) {
        self.0.retain(|(gpu, key), item| is_wanted(*gpu, *key, item));
    }

    /// Sends a successor what it can prepare with: all that does not change while another coordinator serves.
    pub(super) fn send_first(&self, socket: BorrowedFd<'_>, line: &OwnedFd) -> io::Result<()> {
        for (name, item) in self.0.iter().filter(|((_, key), _)| *key < Key::Frame(0)) {
            let with: Vec<BorrowedFd<'_>> = item.descriptors.iter().map(AsFd::as_fd).collect();
            send_item(socket, *name, &item.bytes, &with)?;
        }
        send_item(socket, (GpuNumber::FIRST, Key::Successor), &[], &[line.as_fd()])?;
        link::send(socket, &header(REST_LATER, (0, 0)), &[], false)
    }

    /// Sends all items, and says that these are all, and if a coordinator has started this keeper.
    pub(super) fn send_all(&self, socket: BorrowedFd<'_>, is_coordinators: bool) -> io::Result<()> {
        for (name, item) in &self.0 {
            let with: Vec<BorrowedFd<'_>> = item.descriptors.iter().map(AsFd::as_fd).collect();
            send_item(socket, *name, &item.bytes, &with)?;
        }
        link::send(socket, &header(ALL, (0, is_coordinators.into())), &[], false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> OwnedFd {
        std::fs::File::open("/dev/null").expect("there").into()
    }

    #[test]
    fn what_is_held_arrives_whole_and_in_order() {
        let mut held = Held::default();
        let fact = Key::Fact(u16::MAX, u64::MAX);
        let (first, last) = (GpuNumber::FIRST, GpuNumber(u16::MAX.into()));
        let item = |key: Key| Item { bytes: format!("{key:?}").into_bytes(), descriptors: vec![file(), file()] };
        held.hold(last, Key::Table, item(Key::Table));
        for key in [fact, Key::Tenant(7), Key::Frame(u32::MAX), Key::Slab(1 << 40), Key::Table, Key::Place] {
            held.hold(first, key, item(key));
        }
        // Other bytes for the same descriptors.
        held.hold(first, Key::Tenant(7), Item { bytes: b"new".to_vec(), descriptors: Vec::new() });
        held.let_go(first, Key::Slab(1 << 40));
        held.let_go(last, Key::Place);
        assert_eq!([first, last].map(|gpu| held.has_tenants_of(gpu)), [true, false]);
        let (ours, theirs) = line().expect("sockets");
        held.send_all(ours.as_fd(), true).expect("it is read later");
        drop(ours);
        let mut came = Vec::new();
        while let Some(note) = receive(theirs.as_fd()).expect("it was sent") {
            came.push(match note {
                Note::Hold(gpu, key, item) => (Some((gpu, key)), item.bytes, item.descriptors.len()),
                Note::All { is_coordinators } => {
                    assert!(is_coordinators);
                    (None, Vec::new(), 0)
                }
                other => unreachable!("nobody says {other:?}"),
            });
        }
        let text = |text: &str| text.as_bytes().to_vec();
        assert_eq!(
            came,
            [
                (Some((first, Key::Place)), text("Place"), 2),
                (Some((first, Key::Table)), text("Table"), 2),
                (Some((first, Key::Frame(u32::MAX))), text("Frame(4294967295)"), 2),
                (Some((first, Key::Tenant(7))), text("new"), 2),
                (Some((first, fact)), text("Fact(65535, 18446744073709551615)"), 2),
                (Some((last, Key::Table)), text("Table"), 2),
                (None, Vec::new(), 0),
            ]
        );
    }
}
