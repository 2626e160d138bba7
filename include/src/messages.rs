//! What tenants and the coordinator say to each other. The two directions are two types.
//!
//! A tenant has two sockets. On the one it connected with, the coordinator commands and the tenant reports,
//! at any time. The other one came with [`FromCoordinator::Welcome`] and is for requests of the program's
//! own threads: one at a time, each answered. See [`crate::wire`] for the bytes.

use alloc::string::String;
use alloc::vec::Vec;

use crate::class::Class;
use crate::memory::SizeClass;
use crate::wire::{MAX_DESCRIPTORS, Malformed, Reader, Writer};

/// The longest name of a tenant, in bytes.
pub const MAX_NAME: usize = 64;
/// The longest text of a [`FromCoordinator::Refused`] and the longest piece of a [`FromCoordinator::Text`].
pub const MAX_TEXT: usize = 16 * 1024;
/// The most extents that one message names.
pub const MAX_EXTENTS: usize = MAX_DESCRIPTORS;

/// An extent's number: given by the coordinator, unique within its tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentId(pub u32);

/// From a tenant, or from a tool that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromTenant {
    /// The first message of a tenant.
    Hello {
        /// What the user calls it.
        name: String,
        /// How urgent its work is.
        class: Class,
        /// UUID of the GPU that it is about to use.
        gpu: [u8; 16],
    },
    /// A call waits at the closed gate.
    Demand,
    /// The gate was opened, as granted.
    Opened {
        /// The grant's number.
        grant: u64,
    },
    /// The gate is closed and all work has ended: asked for, or because nothing was left to do.
    Closed {
        /// The number of the grant that thereby ends.
        grant: u64,
        /// How long the work took to end, in microseconds.
        drain_micros: u64,
    },
    /// The work did not end in the time given; the gate is open again.
    Busy {
        /// The grant that goes on.
        grant: u64,
    },
    /// A [`FromCoordinator::Map`] or [`FromCoordinator::Unmap`] was carried out.
    Done {
        /// The command's number.
        batch: u32,
        /// How long it took, in microseconds.
        micros: u64,
    },
    /// A command could not be carried out.
    Failed {
        /// The command's number.
        batch: u32,
        /// The driver's answer.
        code: u32,
    },
    /// Request: this much memory. Answered by [`FromCoordinator::Lent`] or [`FromCoordinator::Denied`].
    Allocate {
        /// Bytes, a multiple of 2 MiB.
        bytes: u64,
    },
    /// Request: these extents are unmapped and no longer needed. Answered by [`FromCoordinator::Freed`].
    Free {
        /// Which.
        extents: Vec<ExtentId>,
    },
    /// Request: memory beside the arena, for a context or code. Answered by [`FromCoordinator::Room`].
    Room {
        /// How much is about to be needed.
        bytes: u64,
    },
    /// The first and only message of a tool: how do things stand? Answered by [`FromCoordinator::Text`].
    Status,
}

/// From the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromCoordinator {
    /// The answer to a [`FromTenant::Hello`]. Carries three descriptors: the coordinator's page (to be mapped
    /// read-only), the tenant's page, and the socket for requests.
    Welcome {
        /// The tenant's number.
        tenant: u32,
    },
    /// No: the connection ends.
    Refused {
        /// Why, for the user.
        reason: Refusal,
        /// More about it, for the user.
        text: String,
    },
    /// Open the gate.
    Grant {
        /// Counts the grants to this tenant.
        grant: u64,
    },
    /// Close the gate and see to it that all work ends.
    Revoke {
        /// The grant that ends.
        grant: u64,
        /// How long to wait for work to end before giving up, in microseconds.
        limit_micros: u64,
    },
    /// Somebody waits: keep the queue short, and close the gate when there has been nothing to do for so long.
    Contend {
        /// How long, in microseconds.
        patience_micros: u64,
    },
    /// Nobody waits any more.
    Alone,
    /// Map these; carries one descriptor for each.
    Map {
        /// The command's number.
        batch: u32,
        /// Which.
        extents: Vec<ExtentId>,
    },
    /// Unmap these and let go of their memory.
    Unmap {
        /// The command's number.
        batch: u32,
        /// Which.
        extents: Vec<ExtentId>,
    },
    /// Answer to [`FromTenant::Allocate`]: new extents, in order of address; carries one descriptor for each.
    Lent {
        /// Number and size of each.
        extents: Vec<(ExtentId, SizeClass)>,
        /// Whether more follow in another message.
        more: bool,
    },
    /// Answer to [`FromTenant::Allocate`]: no.
    Denied {
        /// What is full.
        full: Full,
    },
    /// Answer to [`FromTenant::Free`].
    Freed,
    /// Answer to [`FromTenant::Room`].
    Room {
        /// How much is free beside the arena now.
        bytes: u64,
    },
    /// Answer to [`FromTenant::Status`]: a piece of a JSON text.
    Text {
        /// The piece, cut anywhere.
        piece: Vec<u8>,
        /// Whether more follow.
        more: bool,
    },
}

/// Why a tenant is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another version of the contract.
    Version,
    /// The coordinator serves another GPU.
    OtherGpu,
    /// The coordinator has no room for another tenant.
    TooMany,
    /// The coordinator could not prepare what a tenant needs.
    Failed,
    /// What was said first is not how a tenant begins.
    Malformed,
}

/// What is full when an allocation is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The arena, for this tenant alone.
    Arena,
    /// Arena and host pool together, for all tenants.
    HostPool,
    /// The memory is there, but held by a program that does not give it back.
    Held,
}

impl Refusal {
    const ALL: [Self; 5] = [Self::Version, Self::OtherGpu, Self::TooMany, Self::Failed, Self::Malformed];
}

impl Full {
    const ALL: [Self; 3] = [Self::Arena, Self::HostPool, Self::Held];
}

/// A value of one of the small enumerations above.
fn one_of<T: Copy>(all: &[T], field: &'static str, code: u32) -> Result<T, Malformed> {
    all.get(code as usize).copied().ok_or(Malformed::OutOfRange { field, value: code.into() })
}

fn write_extents(writer: &mut Writer, extents: &[ExtentId]) {
    writer.u32(extents.len() as u32);
    extents.iter().for_each(|extent| writer.u32(extent.0));
}

fn read_extents(reader: &mut Reader<'_>) -> Result<Vec<ExtentId>, Malformed> {
    reader.list("number of extents", MAX_EXTENTS, |reader| reader.u32().map(ExtentId))
}

impl FromTenant {
    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let kind = |kind| Writer::new(kind);
        let mut w;
        match self {
            Self::Hello { name, class, gpu } => {
                w = kind(1);
                w.u32(class.code());
                w.bytes(gpu);
                w.sized(name.as_bytes());
            }
            Self::Demand => w = kind(2),
            Self::Opened { grant } => {
                w = kind(3);
                w.u64(*grant);
            }
            Self::Closed { grant, drain_micros } => {
                w = kind(4);
                w.u64(*grant);
                w.u64(*drain_micros);
            }
            Self::Busy { grant } => {
                w = kind(5);
                w.u64(*grant);
            }
            Self::Done { batch, micros } => {
                w = kind(6);
                w.u32(*batch);
                w.u64(*micros);
            }
            Self::Failed { batch, code } => {
                w = kind(7);
                w.u32(*batch);
                w.u32(*code);
            }
            Self::Allocate { bytes } => {
                w = kind(8);
                w.u64(*bytes);
            }
            Self::Free { extents } => {
                w = kind(9);
                write_extents(&mut w, extents);
            }
            Self::Room { bytes } => {
                w = kind(10);
                w.u64(*bytes);
            }
            Self::Status => w = kind(11),
        }
        w.finish()
    }

    /// Reads a message.
    ///
    /// # Errors
    ///
    /// [`Malformed`] says what is wrong with it.
    pub fn decode(message: &[u8]) -> Result<Self, Malformed> {
        let (kind, mut r) = Reader::new(message)?;
        let decoded = match kind {
            1 => {
                let code = r.u32()?;
                let class = Class::of_code(code).ok_or(Malformed::OutOfRange { field: "class", value: code.into() })?;
                Self::Hello { class, gpu: r.array()?, name: r.text("name", MAX_NAME)? }
            }
            2 => Self::Demand,
            3 => Self::Opened { grant: r.u64()? },
            4 => Self::Closed { grant: r.u64()?, drain_micros: r.u64()? },
            5 => Self::Busy { grant: r.u64()? },
            6 => Self::Done { batch: r.u32()?, micros: r.u64()? },
            7 => Self::Failed { batch: r.u32()?, code: r.u32()? },
            8 => Self::Allocate { bytes: r.u64()? },
            9 => Self::Free { extents: read_extents(&mut r)? },
            10 => Self::Room { bytes: r.u64()? },
            11 => Self::Status,
            kind => return Err(Malformed::Kind(kind)),
        };
        r.end()?;
        Ok(decoded)
    }
}

impl FromCoordinator {
    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let kind = |kind| Writer::new(kind);
        let mut w;
        match self {
            Self::Welcome { tenant } => {
                w = kind(1);
                w.u32(*tenant);
            }
            Self::Refused { reason, text } => {
                w = kind(2);
                w.u32(*reason as u32);
                w.sized(&text.as_bytes()[..text.floor_char_boundary(MAX_TEXT)]);
            }
            Self::Grant { grant } => {
                w = kind(3);
                w.u64(*grant);
            }
            Self::Revoke { grant, limit_micros } => {
                w = kind(4);
                w.u64(*grant);
                w.u64(*limit_micros);
            }
            Self::Contend { patience_micros } => {
                w = kind(5);
                w.u64(*patience_micros);
            }
            Self::Alone => w = kind(6),
            Self::Map { batch, extents } => {
                w = kind(7);
                w.u32(*batch);
                write_extents(&mut w, extents);
            }
            Self::Unmap { batch, extents } => {
                w = kind(8);
                w.u32(*batch);
                write_extents(&mut w, extents);
            }
            Self::Lent { extents, more } => {
                w = kind(9);
                w.u32((*more).into());
                w.u32(extents.len() as u32);
                for (extent, size) in extents {
                    w.u32(extent.0);
                    w.u32(size.index() as u32);
                }
            }
            Self::Denied { full } => {
                w = kind(10);
                w.u32(*full as u32);
            }
            Self::Freed => w = kind(11),
            Self::Room { bytes } => {
                w = kind(12);
                w.u64(*bytes);
            }
            Self::Text { piece, more } => {
                w = kind(13);
                w.u32((*more).into());
                w.sized(piece);
            }
        }
        w.finish()
    }

    /// Reads a message.
    ///
    /// # Errors
    ///
    /// [`Malformed`] says what is wrong with it.
    pub fn decode(message: &[u8]) -> Result<Self, Malformed> {
        let (kind, mut r) = Reader::new(message)?;
        let decoded = match kind {
            1 => Self::Welcome { tenant: r.u32()? },
            2 => {
                let reason = one_of(&Refusal::ALL, "reason", r.u32()?)?;
                Self::Refused { reason, text: r.text("text", MAX_TEXT)? }
            }
            3 => Self::Grant { grant: r.u64()? },
            4 => Self::Revoke { grant: r.u64()?, limit_micros: r.u64()? },
            5 => Self::Contend { patience_micros: r.u64()? },
            6 => Self::Alone,
            7 => Self::Map { batch: r.u32()?, extents: read_extents(&mut r)? },
            8 => Self::Unmap { batch: r.u32()?, extents: read_extents(&mut r)? },
            9 => {
                let more = r.flag("more")?;
                let extents = r.list("number of extents", MAX_EXTENTS, |r| {
                    let extent = ExtentId(r.u32()?);
                    let index = r.u32()?;
                    let size = SizeClass::of_index(index as usize)
                        .ok_or(Malformed::OutOfRange { field: "size class", value: index.into() })?;
                    Ok((extent, size))
                })?;
                Self::Lent { extents, more }
            }
            10 => Self::Denied { full: one_of(&Full::ALL, "what is full", r.u32()?)? },
            11 => Self::Freed,
            12 => Self::Room { bytes: r.u64()? },
            13 => {
                let more = r.flag("more")?;
                let length = r.length("length", MAX_TEXT)?;
                Self::Text { piece: r.take(length)?.to_vec(), more }
            }
            kind => return Err(Malformed::Kind(kind)),
        };
        r.end()?;
        Ok(decoded)
    }

    /// How many descriptors come with this message.
    pub fn descriptors(&self) -> usize {
        match self {
            Self::Welcome { .. } => 3,
            Self::Map { extents, .. } => extents.len(),
            Self::Lent { extents, .. } => extents.len(),
            _ => 0,
        }
    }
}
