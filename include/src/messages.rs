//! What tenants and the coordinator say to each other. The two directions are two types.
//!
//! A tenant has two sockets. On the one it connected with, the coordinator commands and the tenant reports,
//! at any time. The other one came with [`FromCoordinator::Welcome`] and is for requests of the program's
//! own threads: one at a time, each answered. See [`crate::wire`] for the bytes.

use alloc::string::String;
use alloc::vec::Vec;

use crate::class::Class;
use crate::memory::SizeClass;
use crate::resource_manager::Objects;
use crate::scheduling::{Change, Scheduling};
use crate::wire::{MAX_DESCRIPTORS, Malformed, Reader, Writer};

/// The longest name of a tenant, in bytes.
pub const MAX_NAME: usize = 64;
/// The longest text of a [`FromCoordinator::Refused`] and the longest piece of a [`FromCoordinator::Text`].
pub const MAX_TEXT: usize = 16 * 1024;
/// The most extents that one message names.
pub const MAX_EXTENTS: usize = MAX_DESCRIPTORS;
/// The most entries of a message that lists without descriptors.
pub const MAX_LISTED: usize = 2048;
/// The most channels, of each kind, and the most groups of them, that [`Channels`] names. A context of NVIDIA's driver has 20.
pub const MAX_CHANNELS: usize = 2048;

/// An extent's number: given by the coordinator, unique within its tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentId(pub u32);

/// From a tenant, or from a tool that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromTenant {
    /// The first message of a tenant. Carries one descriptor, a pidfd of its process. Answered by
    /// [`FromCoordinator::Welcome`], perhaps after a [`FromCoordinator::Queued`].
    Hello {
        /// What the user calls it.
        name: String,
        /// How it is to be scheduled.
        scheduling: Scheduling,
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
    /// Whoever runs beside others has just said on the board that it is at work, or that it no longer is. The board holds: this
    /// only says that it is worth a look.
    AtWork,
    /// How its work can be taken off the GPU, wherever it is. Replaces what was said before. Of
    /// [`Channels::ResourceManager`] it carries one descriptor, the driver's control device.
    Channels {
        /// What there is to be paused.
        channels: Channels,
    },
    /// Answer to [`FromCoordinator::Hold`]: the gate is closed, and work goes on.
    Held {
        /// The grant whose gate is closed.
        grant: u64,
    },
    /// Answer to [`FromCoordinator::Probe`]: it was unmapped.
    Probed {
        /// The number of the question.
        number: u32,
    },
    /// After a grant with memory still on its way: what the program used first meanwhile, in that order. Several
    /// of these may follow each other.
    Used {
        /// The grant.
        grant: u64,
        /// Which, and when: microseconds since the gate was opened, less those that calls waited for memory.
        extents: Vec<(ExtentId, u32)>,
    },
    /// After a grant with memory still on its way: all of it is mapped, or the gate was closed before.
    Arrived {
        /// The grant.
        grant: u64,
        /// How the program fared meanwhile.
        story: ArrivalStory,
    },
    /// A [`FromCoordinator::Prepare`], [`FromCoordinator::Map`] or [`FromCoordinator::Unmap`] was carried out.
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
    /// The first and only message of who will come, or sends somebody: the coordinator is not to end before this connection
    /// does. Answered by [`FromCoordinator::Offer`].
    Expect,
    /// The first and only message of a tool: how do things stand? Answered by [`FromCoordinator::Text`].
    Status,
    /// The first and only message of a tool: move all that this tenant has to the host, when it is idle. Answered
    /// by [`FromCoordinator::Text`] when that is done.
    Evict {
        /// The tenant's name.
        name: String,
    },
    /// The first and only message of a tool: this is to be otherwise about a tenant from here on. Answered by
    /// [`FromCoordinator::Text`].
    Set {
        /// The tenant's name.
        name: String,
        /// What.
        change: Change,
    },
}

/// What of a process can be taken off the GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Channels {
    /// Nothing, now.
    None,
    /// A process of the simulated driver, by its number on the GPU.
    Simulated {
        /// The number.
        process: u32,
    },
    /// Objects of the resource manager of NVIDIA's driver.
    ResourceManager(Objects),
}

/// Which CUDA driver a coordinator uses. Each side finds it by itself: nobody loads a file because a peer names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverKind {
    /// The one that programs find by themselves.
    System,
    /// Baton's simulated driver.
    Simulated,
    /// A file that the user has named.
    File,
}

impl DriverKind {
    const ALL: [Self; 3] = [Self::System, Self::Simulated, Self::File];

    /// The word that users read.
    pub const fn word(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Simulated => "simulated",
            Self::File => "file",
        }
    }
}

/// How a program fared while its memory arrived. Times are in microseconds since the gate was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrivalStory {
    /// When the first extent was mapped; `u64::MAX` if all were there already.
    pub first_extent_micros: u64,
    /// When the first call that uses the GPU's memory went to the driver; `u64::MAX` if there was none.
    pub first_call_micros: u64,
    /// When it ended.
    pub end_micros: u64,
    /// How many calls had to wait for memory.
    pub waits: u64,
    /// How long they waited in all.
    pub waited_micros: u64,
}

/// From the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromCoordinator {
    /// The answer to a [`FromTenant::Hello`]. Carries four descriptors: the coordinator's page (to be mapped
    /// read-only), the tenant's page, the socket for requests, and the board (to be mapped read-only by who has no place).
    Welcome {
        /// The tenant's number.
        tenant: u32,
        /// Its place on the board; [`BOARD_PLACES`](crate::page::BOARD_PLACES) for none.
        place: u32,
    },
    /// The answer to a [`FromTenant::Hello`] when there are as many tenants as there may be: the welcome comes when one has
    /// left and those before have had theirs.
    Queued {
        /// How many wait before this one.
        ahead: u32,
    },
    /// The answer to a [`FromTenant::Expect`].
    Offer {
        /// UUID of the GPU that is shared.
        gpu: [u8; 16],
        /// Which driver it is reached by.
        driver: DriverKind,
        /// The size of "the GPU" that programs see, in bytes.
        bytes: u64,
    },
    /// The process has to end, because it could only go on with wrong results, and the coordinator cannot end it by itself.
    End {
        /// Why, for the user.
        text: String,
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
        /// Not all of its memory is mapped yet: calls wait for what they need.
        arriving: bool,
    },
    /// Another place on the board, because the tenant's class has changed. Carries the board, as
    /// [`FromCoordinator::Welcome`] does.
    Board {
        /// The place; [`BOARD_PLACES`](crate::page::BOARD_PLACES) for none.
        place: u32,
    },
    /// From here on, while the gate is open, others may run too: to say on the board when there is work, or no longer to.
    Beside {
        /// Which.
        on: bool,
    },
    /// Before a grant with memory on its way: the contents of these extents hold words that look like pointers to
    /// these addresses. Replaces what was said before, unless it `continues` that.
    Pointers {
        /// Which extent, and where to: a multiple of 2 MiB.
        edges: Vec<(ExtentId, u64)>,
        /// Whether what was said just before also holds.
        continues: bool,
    },
    /// Close the gate and see to it that all work ends.
    Revoke {
        /// The grant that ends.
        grant: u64,
        /// How long to wait for work to end before giving up, in microseconds.
        limit_micros: u64,
    },
    /// Close the gate, and say so: answered by [`FromTenant::Closed`] if all work has ended, else by
    /// [`FromTenant::Held`], after which work is about to be taken off the GPU. Calls that are inside stay there.
    Hold {
        /// The grant that ends.
        grant: u64,
    },
    /// Its work is paused: unmap a piece of memory that nobody uses. Whether that waits for the work is to be known before
    /// anything is unmapped that is used.
    Probe {
        /// The question's number.
        number: u32,
    },
    /// Somebody waits: keep the queue short, and close the gate when there has been nothing to do for so long.
    Contend {
        /// How long, in microseconds.
        patience_micros: u64,
    },
    /// Nobody waits any more.
    Alone,
    /// During this grant: keep the queue short, because somebody more urgent may come at any time.
    KeepShort {
        /// How many launches of a thread may be in flight.
        launches: u32,
    },
    /// Put these frames behind these extents, without access yet; carries one descriptor for each.
    Prepare {
        /// The command's number.
        batch: u32,
        /// Which.
        extents: Vec<ExtentId>,
    },
    /// The contents of these are there: give access.
    Map {
        /// The command's number.
        batch: u32,
        /// Which.
        extents: Vec<ExtentId>,
    },
    /// Unmap these, whether there is access or not, and let go of their memory.
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
    /// Answer to [`FromTenant::Allocate`]: not now, because the gate is being closed. To be asked again when it is open.
    Later,
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
    /// The coordinator has as many connections as it can have. To be tried again.
    Busy,
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
    const ALL: [Self; 5] = [Self::Version, Self::OtherGpu, Self::Busy, Self::Failed, Self::Malformed];
}

impl Full {
    const ALL: [Self; 3] = [Self::Arena, Self::HostPool, Self::Held];
}

/// A value of one of the small enumerations above.
fn one_of<T: Copy>(all: &[T], field: &'static str, code: u32) -> Result<T, Malformed> {
    all.get(code as usize).copied().ok_or(Malformed::OutOfRange { field, value: code.into() })
}

impl ArrivalStory {
    fn fields(&self) -> [u64; 5] {
        [self.first_extent_micros, self.first_call_micros, self.end_micros, self.waits, self.waited_micros]
    }

    fn of_fields([first_extent_micros, first_call_micros, end_micros, waits, waited_micros]: [u64; 5]) -> Self {
        Self { first_extent_micros, first_call_micros, end_micros, waits, waited_micros }
    }
}

fn read_class(reader: &mut Reader<'_>) -> Result<Class, Malformed> {
    let code = reader.u32()?;
    Class::of_code(code).ok_or(Malformed::OutOfRange { field: "class", value: code.into() })
}

fn write_option<T>(writer: &mut Writer, value: Option<T>, write: impl FnOnce(&mut Writer, T)) {
    writer.u32(value.is_some().into());
    if let Some(value) = value {
        write(writer, value);
    }
}

fn read_option<'a, T>(
    reader: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Option<T>, Malformed> {
    if reader.flag("whether there is a value")? { read(reader).map(Some) } else { Ok(None) }
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
            Self::Hello { name, scheduling, gpu } => {
                w = kind(1);
                w.u32(scheduling.class.code());
                w.u32(scheduling.weight);
                w.u64(scheduling.slo_micros);
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
            Self::Used { grant, extents } => {
                w = kind(12);
                w.u64(*grant);
                w.u32(extents.len() as u32);
                for (extent, micros) in extents {
                    w.u32(extent.0);
                    w.u32(*micros);
                }
            }
            Self::Arrived { grant, story } => {
                w = kind(13);
                w.u64(*grant);
                story.fields().into_iter().for_each(|field| w.u64(field));
            }
            Self::Evict { name } => {
                w = kind(14);
                w.sized(name.as_bytes());
            }
            Self::Channels { channels } => {
                w = kind(15);
                match channels {
                    Channels::None => w.u32(0),
                    Channels::Simulated { process } => {
                        w.u32(1);
                        w.u32(*process);
                    }
                    Channels::ResourceManager(Objects { client, subdevice, channels, compute, groups }) => {
                        w.u32(2);
                        w.u32(*client);
                        w.u32(*subdevice);
                        for handles in [channels, compute, groups] {
                            w.u32(handles.len() as u32);
                            handles.iter().for_each(|handle| w.u32(*handle));
                        }
                    }
                }
            }
            Self::Held { grant } => {
                w = kind(16);
                w.u64(*grant);
            }
            Self::AtWork => w = kind(17),
            Self::Set { name, change: Change { class, weight, slo_micros, suspended } } => {
                w = kind(18);
                write_option(&mut w, *class, |w, class| w.u32(class.code()));
                write_option(&mut w, *weight, Writer::u32);
                write_option(&mut w, *slo_micros, Writer::u64);
                write_option(&mut w, *suspended, |w, suspended| w.u32(suspended.into()));
                w.sized(name.as_bytes());
            }
            Self::Probed { number } => {
                w = kind(19);
                w.u32(*number);
            }
            Self::Expect => w = kind(20),
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
                let scheduling = Scheduling { class: read_class(&mut r)?, weight: r.u32()?, slo_micros: r.u64()? };
                if scheduling.check().is_err() {
                    return Err(Malformed::OutOfRange { field: "scheduling", value: scheduling.slo_micros });
                }
                Self::Hello { scheduling, gpu: r.array()?, name: r.text("name", MAX_NAME)? }
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
            12 => {
                let grant = r.u64()?;
                let extents = r.list("number of extents", MAX_LISTED, |r| Ok((ExtentId(r.u32()?), r.u32()?)))?;
                Self::Used { grant, extents }
            }
            13 => {
                let grant = r.u64()?;
                let mut field = || r.u64();
                let story = ArrivalStory::of_fields([field()?, field()?, field()?, field()?, field()?]);
                Self::Arrived { grant, story }
            }
            14 => Self::Evict { name: r.text("name", MAX_NAME)? },
            15 => {
                let channels = match r.u32()? {
                    0 => Channels::None,
                    1 => Channels::Simulated { process: r.u32()? },
                    2 => Channels::ResourceManager(Objects {
                        client: r.u32()?,
                        subdevice: r.u32()?,
                        channels: r.list("number of channels", MAX_CHANNELS, Reader::u32)?,
                        compute: r.list("number of compute channels", MAX_CHANNELS, Reader::u32)?,
                        groups: r.list("number of groups", MAX_CHANNELS, Reader::u32)?,
                    }),
                    value => return Err(Malformed::OutOfRange { field: "kind of channels", value: value.into() }),
                };
                Self::Channels { channels }
            }
            16 => Self::Held { grant: r.u64()? },
            17 => Self::AtWork,
            18 => {
                let change = Change {
                    class: read_option(&mut r, read_class)?,
                    weight: read_option(&mut r, Reader::u32)?,
                    slo_micros: read_option(&mut r, Reader::u64)?,
                    suspended: read_option(&mut r, |r| r.flag("suspended"))?,
                };
                Self::Set { change, name: r.text("name", MAX_NAME)? }
            }
            19 => Self::Probed { number: r.u32()? },
            20 => Self::Expect,
            kind => return Err(Malformed::Kind(kind)),
        };
        r.end()?;
        Ok(decoded)
    }

    /// This message, if as many descriptors came with it as have to.
    ///
    /// # Errors
    ///
    /// [`Malformed::Descriptors`] otherwise.
    pub fn expect(self, came: usize) -> Result<Self, Malformed> {
        match self.descriptors() {
            expected if expected == came => Ok(self),
            expected => Err(Malformed::Descriptors { came, expected }),
        }
    }

    /// How many descriptors come with this message.
    pub fn descriptors(&self) -> usize {
        match self {
            Self::Hello { .. } | Self::Channels { channels: Channels::ResourceManager(_) } => 1,
            _ => 0,
        }
    }
}

impl FromCoordinator {
    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let kind = |kind| Writer::new(kind);
        let mut w;
        match self {
            Self::Welcome { tenant, place } => {
                w = kind(1);
                w.u32(*tenant);
                w.u32(*place);
            }
            Self::Refused { reason, text } => {
                w = kind(2);
                w.u32(*reason as u32);
                w.sized(&text.as_bytes()[..text.floor_char_boundary(MAX_TEXT)]);
            }
            Self::Grant { grant, arriving } => {
                w = kind(3);
                w.u64(*grant);
                w.u32((*arriving).into());
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
            Self::Pointers { edges, continues } => {
                w = kind(14);
                w.u32((*continues).into());
                w.u32(edges.len() as u32);
                for (extent, address) in edges {
                    w.u32(extent.0);
                    w.u64(*address);
                }
            }
            Self::KeepShort { launches } => {
                w = kind(15);
                w.u32(*launches);
            }
            Self::Prepare { batch, extents } => {
                w = kind(16);
                w.u32(*batch);
                write_extents(&mut w, extents);
            }
            Self::Hold { grant } => {
                w = kind(17);
                w.u64(*grant);
            }
            Self::Later => w = kind(18),
            Self::Beside { on } => {
                w = kind(19);
                w.u32((*on).into());
            }
            Self::Board { place } => {
                w = kind(20);
                w.u32(*place);
            }
            Self::Probe { number } => {
                w = kind(21);
                w.u32(*number);
            }
            Self::Queued { ahead } => {
                w = kind(22);
                w.u32(*ahead);
            }
            Self::Offer { gpu, driver, bytes } => {
                w = kind(23);
                w.bytes(gpu);
                w.u32(*driver as u32);
                w.u64(*bytes);
            }
            Self::End { text } => {
                w = kind(24);
                w.sized(text.as_bytes());
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
            1 => Self::Welcome { tenant: r.u32()?, place: r.u32()? },
            2 => {
                let reason = one_of(&Refusal::ALL, "reason", r.u32()?)?;
                Self::Refused { reason, text: r.text("text", MAX_TEXT)? }
            }
            3 => Self::Grant { grant: r.u64()?, arriving: r.flag("arriving")? },
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
            14 => {
                let continues = r.flag("continues")?;
                let edges = r.list("number of pointers", MAX_LISTED, |r| Ok((ExtentId(r.u32()?), r.u64()?)))?;
                Self::Pointers { edges, continues }
            }
            15 => Self::KeepShort { launches: r.u32()? },
            16 => Self::Prepare { batch: r.u32()?, extents: read_extents(&mut r)? },
            17 => Self::Hold { grant: r.u64()? },
            18 => Self::Later,
            19 => Self::Beside { on: r.flag("beside others")? },
            20 => Self::Board { place: r.u32()? },
            21 => Self::Probe { number: r.u32()? },
            22 => Self::Queued { ahead: r.u32()? },
            23 => {
                Self::Offer { gpu: r.array()?, driver: one_of(&DriverKind::ALL, "driver", r.u32()?)?, bytes: r.u64()? }
            }
            24 => Self::End { text: r.text("text", MAX_TEXT)? },
            kind => return Err(Malformed::Kind(kind)),
        };
        r.end()?;
        Ok(decoded)
    }

    /// How many descriptors come with this message.
    pub fn descriptors(&self) -> usize {
        match self {
            Self::Welcome { .. } => 4,
            Self::Board { .. } => 1,
            Self::Prepare { extents, .. } => extents.len(),
            Self::Lent { extents, .. } => extents.len(),
            _ => 0,
        }
    }
}
