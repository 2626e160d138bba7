//! The form of messages on the socket, and the checks of every byte of a peer.
//!
//! ```text
//! byte 0        4        8        12
//!      version  kind     GPU      fields of this kind, one after the other
//! ```
//!
//! The GPU is the number that the coordinator gives it ([`GpuNumber`]).
//!
//! Everything is little-endian and of fixed width: `u32`, `u64`, 16 bytes for a GPU's UUID. A text is its length (`u32`) and its UTF-8
//! bytes, a list its length (`u32`) and its items; an optional value is 0, or 1 and the value. One datagram of a `SOCK_SEQPACKET`
//! socket is one message; nothing may follow its last field. The version comes first, and stays there in every later version, so that
//! peers of different age can recognise each other. A coordinator speaks the version before too ([`Version`]): a message of that lacks the
//! fields that came since.
//!
//! A peer's bytes are allegations: decoding checks every length before it reads and every value before it
//! becomes a type, never panics, and allocates no more than the datagram's own size.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use baton_messages::Message;

/// The version of the contract: messages and shared pages. It is in `baton_status.h`, `status.py` and the fuzzer's corpus too.
pub const VERSION: u32 = 22;

/// The oldest version that a coordinator speaks with programs: they go on when it is upgraded.
pub const OLDEST: u32 = VERSION - 1;

/// A version of the contract that this build speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u32);

impl Version {
    /// This build's own.
    pub const NOW: Self = Self(VERSION);
    /// The version before.
    pub const BEFORE: Self = Self(OLDEST);

    /// The version with this number, if this build speaks it.
    pub fn of_number(number: u32) -> Option<Self> {
        (OLDEST..=VERSION).contains(&number).then_some(Self(number))
    }

    /// The version that a message is in.
    ///
    /// # Errors
    ///
    /// When it is too short to have one, or this build does not speak it.
    pub fn of(message: &[u8]) -> Result<Self, Malformed> {
        let theirs = message.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)).ok_or(Malformed::Short)?;
        Self::of_number(theirs).ok_or(Malformed::Version { theirs })
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// Maximum size of a message, in bytes.
pub const MAX_MESSAGE: usize = 32 * 1024;

/// Bytes before the fields.
pub(crate) const HEADER: usize = 12;

/// The most descriptors that a message carries. Few: a process close to its limit has to have room for all of them.
pub const MAX_DESCRIPTORS: usize = 16;

/// The number of the coordinator's GPU that a message concerns. The coordinator counts them from 0, and a tenant learns the number of
/// its own from the header of [`Admission::Welcome`](crate::messages::Admission::Welcome).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpuNumber(pub u32);

impl GpuNumber {
    /// The first GPU.
    pub const FIRST: Self = Self(0);
    /// The number in messages of a peer that has not learnt one: the coordinator's only GPU.
    pub const ANY: Self = Self(u32::MAX);
}

/// The reason why a peer's bytes were refused. The fault is always the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Another version of the contract.
    Version {
        /// The peer's version.
        theirs: u32,
    },
    /// No such message in this direction.
    Kind(u32),
    /// A GPU that the other side does not have, or not in common with this one.
    Gpu(u32),
    /// The message ends before its last field.
    Short,
    /// Something follows the last field.
    Long,
    /// A field has a value that it cannot have.
    OutOfRange {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A text or a list is longer than it may be.
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length.
        length: u32,
    },
    /// A text is not UTF-8.
    Text {
        /// The field.
        field: &'static str,
    },
    /// The number of descriptors is not the message's.
    Descriptors {
        /// Descriptors that came.
        came: usize,
        /// Descriptors that should have come.
        expected: usize,
    },
}

impl From<Malformed> for Message {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Version { theirs } => baton_messages::other_version(theirs, VERSION),
            Malformed::Kind(kind) => baton_messages::unknown_kind(kind),
            Malformed::Gpu(gpu) => baton_messages::foreign_gpu(gpu),
            Malformed::Short => baton_messages::ends_too_early(),
            Malformed::Long => baton_messages::goes_on_after_its_end(),
            Malformed::OutOfRange { field, value } => baton_messages::field_out_of_range(field, value),
            Malformed::TooLong { field, length } => baton_messages::field_is_too_long(field, length),
            Malformed::Text { field } => baton_messages::field_is_no_text(field),
            Malformed::Descriptors { came, expected } => baton_messages::other_descriptors(came, expected),
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Message::from(*self).fmt(f)
    }
}

impl core::error::Error for Malformed {}

/// A message under construction.
pub(crate) struct Writer {
    version: Version,
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn new(kind: u32, gpu: GpuNumber, version: Version) -> Self {
        let mut writer = Self { version, bytes: Vec::with_capacity(64) };
        writer.u32(version.0);
        writer.u32(kind);
        writer.u32(gpu.0);
        writer
    }

    /// True if the message has fields that came with this version.
    pub(crate) fn is_since(&self, version: u32) -> bool {
        self.version.0 >= version
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
    }

    pub(crate) fn sized(&mut self, value: &[u8]) {
        self.u32(value.len() as u32);
        self.bytes(value);
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        debug_assert!(self.bytes.len() <= MAX_MESSAGE, "messages are built within their limits");
        self.bytes
    }
}

/// A peer's message, read field by field.
pub(crate) struct Reader<'a> {
    version: Version,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Checks length and version, and reads the kind and the GPU.
    pub(crate) fn new(message: &'a [u8], version: Version) -> Result<(u32, GpuNumber, Self), Malformed> {
        let mut reader = Self { version, rest: message };
        let theirs = reader.u32()?;
        if theirs != version.0 {
            return Err(Malformed::Version { theirs });
        }
        if message.len() > MAX_MESSAGE {
            return Err(Malformed::Long);
        }
        Ok((reader.u32()?, GpuNumber(reader.u32()?), reader))
    }

    /// True if the message has fields that came with this version.
    pub(crate) fn is_since(&self, version: u32) -> bool {
        self.version.0 >= version
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed::Short)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a length of at most `limit`.
    fn length(&mut self, field: &'static str, limit: usize) -> Result<usize, Malformed> {
        let length = self.u32()?;
        let is_short = |length: &usize| *length <= limit;
        usize::try_from(length).ok().filter(is_short).ok_or(Malformed::TooLong { field, length })
    }

    pub(crate) fn text(&mut self, field: &'static str, limit: usize) -> Result<String, Malformed> {
        let length = self.length(field, limit)?;
        let text = core::str::from_utf8(self.take(length)?).map_err(|_| Malformed::Text { field })?;
        Ok(String::from(text))
    }

    /// Reads a list of at most `limit` items, with at least `least` bytes each.
    pub(crate) fn list<T>(
        &mut self,
        field: &'static str,
        limit: usize,
        least: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let length = self.length(field, limit)?;
        if length > self.rest.len() / least {
            return Err(Malformed::Short);
        }
        (0..length).map(|_| item(self)).collect()
    }

    /// Checks that nothing is left.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::Long) }
    }
}
