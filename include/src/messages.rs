//! What tenants and the coordinator say to each other. The two directions are two types, each of a few families by who
//! handles them.
//!
//! A tenant has two sockets. On the one it connected with, the coordinator commands and the tenant reports, at any time.
//! The other one came with [`Admission::Welcome`] and is for requests of the program's own threads: one at a time, each
//! answered. See [`crate::wire`] for the bytes.
//!
//! Each message is declared once, below. From that declaration come the types, the bytes, the numbers of descriptors, and
//! what tests draw. A message that one side does not handle does not compile.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Debug;

#[cfg(test)]
use proptest::prelude::*;
#[cfg(test)]
use proptest::strategy::Union;

use crate::memory::SizeClass;
use crate::resource_manager::Objects;
use crate::scheduling::{Change, Scheduling};
use crate::wire::{GpuNumber, HEADER, MAX_DESCRIPTORS, MAX_MESSAGE, Malformed, Reader, Writer};

mod declare;
mod fields;
#[cfg(test)]
mod tests;

/// The longest name of a tenant, in bytes. A longer one is cut.
pub const MAX_NAME: usize = 64;
/// The longest text for a user, in bytes, and the longest piece of an [`Admission::Text`].
pub const MAX_TEXT: usize = 16 * 1024;
/// The most entries of a list. What comes with a descriptor for each has no more than
/// [`MAX_DESCRIPTORS`].
pub const MAX_LISTED: usize = 2048;
/// In the place of where a pointer leads: to host memory that kernels can reach. A multiple of 2 MiB, and no address.
pub const HOST_MEMORY: u64 = !(crate::memory::GRANULE - 1);
/// The most ranges of addresses in a message.
pub const MAX_RANGES: usize = 1024;
/// The most extents that are cut anew by one [`MemoryCommand::Recut`].
pub const MAX_RECUT: usize = 512;
/// The size of the driver's handles for other processes (`CUipcMemHandle`, `CUipcEventHandle`), in bytes.
pub const IPC_HANDLE: usize = 64;
/// The most channels, of each kind, and the most groups of them, that [`Channels`] names. A context of NVIDIA's driver has 20.
pub const MAX_CHANNELS: usize = 2048;

/// An extent's number: given by the coordinator, unique within its tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentId(pub u32);

/// A process, as those of its PID namespace know it: the coordinator may be of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// The namespace, as the kernel numbers it (the inode of `/proc/PID/ns/pid`).
    pub namespace: u64,
    /// Its number there.
    pub number: u32,
}

/// A message of either direction, or of one family.
pub trait Message: Debug {
    /// The message's bytes.
    fn encode(&self, gpu: GpuNumber) -> Vec<u8>;

    /// How many descriptors come with it.
    fn descriptors(&self) -> usize;

    /// This message, if as many descriptors came with it as have to.
    ///
    /// # Errors
    ///
    /// [`Malformed::Descriptors`] otherwise.
    fn expect(self, came: usize) -> Result<Self, Malformed>
    where
        Self: Sized,
    {
        match self.descriptors() {
            expected if expected == came => Ok(self),
            expected => Err(Malformed::Descriptors { came, expected }),
        }
    }
}

declare::messages! {
    /// From a tenant, or from a tool that asks.
    FromTenant {
        /// What is said first on a connection, and shows who has come. A tool says nothing else.
        Opening(Opening) {
            /// The first message of a tenant. Carries a pidfd of its process. Answered by [`Admission::Welcome`], perhaps
            /// after an [`Admission::Queued`].
            1 => Hello {
                /// What the user calls it.
                name: String [MAX_NAME],
                /// How it is to be scheduled.
                scheduling: Scheduling,
                /// UUID of the GPU that it is about to use.
                gpu: [u8; 16],
                /// What its run is to be sure of having, in bytes; 0 if it takes what there is.
                needs: u64,
                /// Which programs share that: those of one user that say the same number.
                run: u64,
            } carries 1,
            /// The only message of who will come, or sends somebody: the coordinator is not to end before this connection
            /// does. Answered by [`Admission::Offer`].
            2 => Expect,
            /// The only message of a tool: how do things stand? Answered by [`Admission::Text`].
            3 => Status,
            /// The only message of a tool: move all that this tenant has to the host, when it is idle. Answered by
            /// [`Admission::Text`] when that is done.
            4 => Evict {
                /// The tenant's name.
                name: String [MAX_NAME],
            },
            /// The only message of a tool: this is to be otherwise about a tenant from here on. Answered by
            /// [`Admission::Text`].
            5 => Set {
                /// The tenant's name.
                name: String [MAX_NAME],
                /// What.
                change: Change,
            },
            /// The only message of a tool: what has happened? Answered by [`Admission::Text`].
            6 => Events {
                /// From the event of this number on.
                next: u64,
            },
            /// The only message of a tool: take no new tenants, and end after the last one has left. Answered by
            /// [`Admission::Text`]; the connection ends with the coordinator.
            7 => Stop {
                /// End at once, whoever is there.
                now: bool,
            },
            /// The only message of a tool: bring memory of this tenant back to the GPU, as far as there is free room. Answered by
            /// [`Admission::Text`] when that is done.
            8 => Prefetch {
                /// The tenant's name.
                name: String [MAX_NAME],
            },
            /// The only message of a tool: as [`Opening::Stop`] with `now` unset, also when whoever asked has gone; or no longer, whoever
            /// asked. Answered by [`Admission::Text`].
            9 => Close {
                /// Whether new tenants are no longer taken.
                closed: bool,
            },
            /// The only message of a tool: as [`Opening::Evict`], also when whoever asked has gone. Answered by [`Admission::Text`] at
            /// once.
            10 => SendAway {
                /// The tenant's name.
                name: String [MAX_NAME],
            },
        }
        /// How it fares with its turns.
        Turn(TurnReport) {
            /// A call waits at the closed gate.
            11 => Demand,
            /// The gate was opened, as granted.
            12 => Opened {
                /// The grant's number.
                grant: u64,
            },
            /// The gate is closed and all work has ended: asked for, or because nothing was left to do.
            13 => Closed {
                /// The number of the grant that thereby ends.
                grant: u64,
                /// How long the work took to end, in microseconds.
                drain_micros: u64,
            },
            /// The work did not end in the time given; the gate is open again.
            14 => DrainTimedOut {
                /// The grant that goes on.
                grant: u64,
            },
            /// After a grant with memory still on its way: what the program used first meanwhile, in that order. Several
            /// of these may follow each other.
            15 => Used {
                /// The grant.
                grant: u64,
                /// Which, and when: microseconds since the gate was opened, less those that calls waited for memory.
                extents: Vec<(ExtentId, u32)> [MAX_LISTED],
            },
            /// The gate is open, nobody waits, and the program has nothing to do: its time stands still.
            17 => Rests {
                /// The grant that holds.
                grant: u64,
            },
            /// It has something to do again, or may have.
            18 => Works {
                /// The grant that holds.
                grant: u64,
            },
            /// After a grant with memory still on its way: all of it is mapped, or the gate was closed before.
            16 => Arrived {
                /// The grant.
                grant: u64,
                /// How the program fared meanwhile.
                story: ArrivalStory,
            },
        }
        /// How it fares with its mappings.
        Memory(MemoryReport) {
            /// A command of [`MemoryCommand`] was carried out.
            21 => Done {
                /// The command's number.
                batch: u32,
                /// How long it took, in microseconds.
                micros: u64,
            },
            /// A command could not be carried out.
            22 => Failed {
                /// The command's number.
                batch: u32,
                /// The driver's answer.
                code: u32,
            },
            /// The frames of a [`MemoryCommand::Prepare`] did not arrive, because the process can open no more descriptors; or
            /// a [`MemoryCommand::Map`] is about extents without a frame for that reason. Nothing of it was done. To be sent
            /// again after a while.
            23 => Undelivered {
                /// The command's number.
                batch: u32,
            },
            /// As [`Request::Free`], without an answer.
            24 => Free {
                /// Which.
                extents: Vec<ExtentId> [MAX_LISTED],
            },
            /// As [`Request::Spare`], without an answer.
            25 => Spare {
                /// Address and size of each.
                ranges: Vec<(u64, u64)> [MAX_RANGES],
            },
            /// So much of what was leased by [`Request::UnmanagedMemory`] is no longer needed.
            26 => Unleased {
                /// How much.
                bytes: u64,
            },
            /// The context is made, or could not be, for which [`Request::Context`] has made room.
            27 => ContextMade {
                /// Whether there is one more.
                made: bool,
            },
            /// One of its contexts is no more.
            28 => ContextGone,
            /// The extents of this range are to become one piece, which the tenant has made and of which this carries a descriptor:
            /// their contents are copied there while the tenant is off the GPU. Answered by [`MemoryCommand::Consolidated`].
            29 => Consolidate {
                /// Where the first of them lies.
                at: u64,
                /// What all of them are, in bytes.
                bytes: u64,
                /// Whether the descriptor comes with it.
                piece: bool,
            } carries usize::from(*piece),
        }
        /// How its work can be taken off the GPU.
        Preemption(PreemptionReport) {
            /// How its work can be taken off the GPU, wherever it is. Replaces what was said before. Of
            /// [`Channels::ResourceManager`] it carries the driver's control device.
            31 => Channels {
                /// What there is to be paused.
                channels: Channels,
                /// [`TenantPage::channels_begun`](crate::page::TenantPage::channels_begun) when it was looked what there is.
                begun: u32,
            } carries channels.descriptors(),
            /// Answer to [`PreemptionCommand::Begin`]: the gate is closed, and work goes on.
            32 => GateClosed {
                /// The grant whose gate is closed.
                grant: u64,
            },
            /// Answer to [`PreemptionCommand::Probe`]: it was unmapped.
            33 => Probed {
                /// The number of the question.
                number: u32,
            },
        }
        /// How it fares beside others.
        Corun(CorunReport) {
            /// Whoever runs beside others has just said on the activity page that it is at work, or that it no longer is. The activity page
            /// holds: this only says that it is worth a look. Other domains are told then.
            41 => ActivityChanged,
        }
        /// On the socket for requests: what a thread of the program needs. Each has one answer ([`Answer`]).
        Request(Request) {
            /// This much memory. Answered by [`Answer::Allocated`] or [`Answer::Denied`].
            51 => Allocate {
                /// Where it is to lie: a multiple of 2 MiB.
                at: u64,
                /// Bytes, a multiple of 2 MiB.
                bytes: u64,
            },
            /// These extents are unmapped and no longer needed. Answered by [`Answer::Freed`].
            52 => Free {
                /// Which.
                extents: Vec<ExtentId> [MAX_LISTED],
            },
            /// The frames of extents that were lent and whose frames have not come yet. Answered by [`Answer::Frames`].
            53 => Frames {
                /// Which.
                extents: Vec<ExtentId> [MAX_DESCRIPTORS],
            },
            /// Others are about to be able to reach these extents, which are here: from now on they stay, until they are freed.
            /// Answered by [`Answer::Immovable`] or [`Answer::Movable`]. The coordinator shows them as unmanaged memory, so
            /// the tenant's page does not.
            54 => MakeImmovable {
                /// Which.
                extents: Vec<ExtentId> [MAX_LISTED],
            },
            /// A lease of memory beside the arena, on top of those before. Answered by [`Answer::UnmanagedMemory`]. Given back
            /// with [`MemoryReport::Unleased`].
            55 => UnmanagedMemory {
                /// How much is about to be needed.
                least: u64,
                /// How much is welcome, so that the next calls need not ask.
                bytes: u64,
            },
            /// The program has freed these parts of extents whose other parts it still uses. They stay mapped until the extent
            /// leaves the GPU, and are worth no copy. Answered by [`Answer::Noted`].
            56 => Spare {
                /// Address and size of each.
                ranges: Vec<(u64, u64)> [MAX_RANGES],
            },
            /// The program has been given memory that was spare. Answered by [`Answer::Noted`].
            57 => Reuse {
                /// Its address.
                at: u64,
                /// Its size.
                bytes: u64,
            },
            /// Room beside the arena for what a context takes, or for twice that. Answered by [`Answer::UnmanagedMemory`]. Kept for
            /// this tenant until [`MemoryReport::ContextMade`].
            58 => Context {
                /// It was not enough.
                again: bool,
            },
            /// So much memory is to be free beside the arena, for what nobody could foresee: code, local memory. It is nobody's,
            /// so whoever asked uses it at once. Answered by [`Answer::UnmanagedMemory`].
            59 => Room {
                /// How much.
                bytes: u64,
            },
            /// Other processes are to be able to open this allocation. Answered by [`Answer::Exported`].
            60 => Export {
                /// Its address.
                at: u64,
                /// Its size, as the program asked for it.
                bytes: u64,
            },
            /// An allocation that was exported is freed: nobody opens it any more. Who has it open keeps it. Answered by
            /// [`Answer::Noted`].
            61 => Unexport {
                /// Its address.
                at: u64,
            },
            /// Memory that another tenant has exported. From then on the two are scheduled as one. Answered by
            /// [`Answer::Attached`], [`Answer::NotExported`], [`Answer::Denied`] or [`Answer::TryAgain`]. Given back as extents of the
            /// tenant's own are ([`Request::Free`]).
            62 => Attach {
                /// The tenant that has exported it.
                exporter: u32,
                /// The export's key.
                key: [u8; 16],
                /// Where the first of its extents is to lie; the others follow it.
                at: u64,
            },
            /// Other processes are to be able to open an event. Answered by [`Answer::Noted`].
            63 => ExportEvent {
                /// The handle that the driver gave.
                handle: [u8; IPC_HANDLE],
            },
            /// An event is about to be opened. If a tenant has exported it, the two are scheduled as one from then on. Answered by
            /// [`Answer::Noted`] or [`Answer::TryAgain`].
            64 => OpenEvent {
                /// The handle that it is opened by.
                handle: [u8; IPC_HANDLE],
            },
            /// Other processes are to be able to import memory by descriptors, of whose open files this process is the owner
            /// (`F_SETOWN`). Answered by [`Answer::Noted`].
            65 => ExportDescriptors {
                /// The process itself, as it knows itself.
                process: ProcessId,
            },
            /// Memory is about to be imported by a descriptor that another process owns. If that is a tenant which exports descriptors,
            /// the two are scheduled as one from then on. Answered by [`Answer::Noted`].
            66 => ImportDescriptor {
                /// The owner, as whoever imports it knows it.
                owner: ProcessId,
            },
        }
    }
}

declare::messages! {
    /// From the coordinator.
    FromCoordinator {
        /// The answers to an [`Opening`].
        Admission(Admission) {
            /// The answer to an [`Opening::Hello`]. Carries the coordinator's page (to be mapped read-only), the tenant's
            /// page, the socket for requests, the activity page (to be mapped read-only by who has no slot), and what its domain is
            /// told of others ([`ElsewherePage`](crate::page::ElsewherePage), read-only).
            1 => Welcome {
                /// The tenant's number.
                tenant: u32,
                /// Its slot on the activity page; [`ACTIVITY_SLOTS`](crate::page::ACTIVITY_SLOTS) for none.
                slot: u32,
            } carries 5,
            /// The answer to an [`Opening::Hello`] when there are as many tenants as there may be, or less memory than it needs: the
            /// welcome comes when there is room, and those before have had theirs.
            2 => Queued {
                /// How many wait before this one.
                ahead: u32,
                /// How many bytes there are too few; 0 if it waits for its place alone.
                lacking: u64,
            },
            /// No: the connection ends.
            3 => Refused {
                /// Why, for the program.
                reason: Refusal,
                /// Why, for the user.
                text: String [MAX_TEXT],
            },
            /// The answer to an [`Opening::Expect`].
            4 => Offer {
                /// UUID of the GPU that is shared.
                gpu: [u8; 16],
                /// Which driver it is reached by.
                driver: DriverKind,
                /// The size of "the GPU" that programs see, in bytes.
                bytes: u64,
                /// What all programs together can have, in bytes, on the GPU and on the host.
                all: u64,
            },
            /// The answer to a tool: a piece of a JSON text.
            5 => Text {
                /// The piece, cut anywhere.
                piece: Vec<u8> [MAX_TEXT],
                /// Whether more follow.
                more: bool,
            },
        }
        /// When the tenant may use the GPU.
        Turn(TurnCommand) {
            /// Open the gate.
            11 => Grant {
                /// Counts the grants to this tenant.
                grant: u64,
                /// Not all of its memory is mapped yet: calls wait for what they need.
                arriving: bool,
                /// Its work can be taken off the GPU wherever it is. So it may queue work that ends only when all memory is
                /// there: nobody will have to wait for that.
                preemptible: bool,
            },
            /// Close the gate and see to it that all work ends.
            12 => Revoke {
                /// The grant that ends.
                grant: u64,
                /// How long to wait for work to end before giving up, in microseconds.
                limit_micros: u64,
            },
            /// Somebody waits: keep the queue short, and close the gate when there has been nothing to do for so long.
            13 => Contended {
                /// How long, in microseconds.
                patience_micros: u64,
            },
            /// Nobody waits any more.
            14 => Uncontended,
            /// During this grant: keep the queue short, because somebody more urgent is at work now and then.
            15 => LimitInFlight {
                /// How many launches of a thread may be in flight.
                launches: u32,
            },
            /// Before a grant with memory on its way: the contents of these extents hold words that look like pointers to
            /// these addresses. Replaces what was said before, unless it `continues` that.
            16 => Pointers {
                /// Which extent, and where to: a multiple of 2 MiB, or [`HOST_MEMORY`].
                edges: Vec<(ExtentId, u64)> [MAX_LISTED],
                /// Whether what was said just before also holds.
                continues: bool,
            },
            /// During this grant: keep as much in flight as is useful again.
            18 => LiftLimit {
                /// Whether somebody more urgent may all the same run beside it at any time: then calls look at the activity page.
                watch: bool,
            },
            /// The process has to end, because it could only go on with wrong results, and the coordinator cannot end it by
            /// itself.
            17 => End {
                /// Why, for the user.
                text: String [MAX_TEXT],
            },
        }
        /// What the tenant is to map and unmap. Each with a `batch` is answered by [`MemoryReport::Done`],
        /// [`MemoryReport::Failed`] or [`MemoryReport::Undelivered`].
        Memory(MemoryCommand) {
            /// Put these frames behind these extents, without access yet. Carries a frame for each.
            21 => Prepare {
                /// The command's number.
                batch: u32,
                /// Which.
                extents: Vec<ExtentId> [MAX_DESCRIPTORS],
            } carries extents.len(),
            /// The contents of these are there: give access.
            22 => Map {
                /// The command's number.
                batch: u32,
                /// Which.
                extents: Vec<ExtentId> [MAX_LISTED],
            },
            /// Unmap these, whether there is access or not, and let go of their memory.
            23 => Unmap {
                /// The command's number.
                batch: u32,
                /// Which.
                extents: Vec<ExtentId> [MAX_LISTED],
            },
            /// Memory that the tenant has without any frames is cut into extents anew; its gate is closed. What lay in those
            /// that are gone, and lies in none of these, was spare: its addresses are free.
            24 => Recut {
                /// Extents that are no more.
                gone: Vec<ExtentId> [MAX_RECUT],
                /// Those that take their place, with their addresses.
                extents: Vec<(ExtentId, u64, SizeClass)> [MAX_RECUT],
            },
            /// To [`MemoryReport::Consolidate`]: map the piece in their place, and give the extents back. The gate is closed.
            25 => Consolidated {
                /// The command's number.
                batch: u32,
                /// Where the first of them lies.
                at: u64,
                /// Whether the piece has their contents. If not, all stays as it is: the tenant cannot be taken off the GPU.
                copied: bool,
            },
        }
        /// Taking the tenant's work off the GPU.
        Preemption(PreemptionCommand) {
            /// Close the gate, and say so: answered by [`TurnReport::Closed`] if all work has ended, else by
            /// [`PreemptionReport::GateClosed`], after which work is about to be taken off the GPU. Calls that are inside stay there.
            31 => Begin {
                /// The grant that ends.
                grant: u64,
            },
            /// Its work is paused: unmap a piece of memory that nobody uses. Whether that waits for the work is to be known
            /// before anything is unmapped that is used.
            32 => Probe {
                /// The question's number.
                number: u32,
            },
        }
        /// Running beside others.
        Corun(CorunCommand) {
            /// Another slot on the activity page, because the tenant's class has changed. Carries the activity page, as
            /// [`Admission::Welcome`] does.
            41 => Slot {
                /// The slot; [`ACTIVITY_SLOTS`](crate::page::ACTIVITY_SLOTS) for none.
                slot: u32,
            } carries 1,
            /// From here on, while the gate is open, others may run too: to say on the activity page when there is work, or no
            /// longer to.
            42 => Corun {
                /// Which.
                on: bool,
            },
        }
        /// On the socket for requests: the answers.
        Answer(Answer) {
            /// To [`Request::Allocate`]: new extents, in order of address. Carries the frames of the first; the others are to
            /// be asked for.
            51 => Allocated {
                /// Number and size of each.
                extents: Vec<(ExtentId, SizeClass)> [MAX_LISTED],
            } carries extents.len().min(MAX_DESCRIPTORS),
            /// To [`Request::Allocate`] and [`Request::Attach`]: no.
            52 => Denied {
                /// What is full.
                full: Full,
            },
            /// To [`Request::Allocate`], [`Request::Attach`] and [`Request::OpenEvent`]: not now, because the gate is being closed. To be asked again when it is open.
            53 => TryAgain,
            /// To [`Request::Free`].
            54 => Freed,
            /// To [`Request::Frames`]. Carries a frame for each.
            55 => Frames {
                /// Those that were asked for.
                extents: Vec<ExtentId> [MAX_DESCRIPTORS],
            } carries extents.len(),
            /// To [`Request::MakeImmovable`]: all of them stay.
            56 => Immovable,
            /// To [`Request::MakeImmovable`]: no, because not all of them are there. Those that could move before still can.
            57 => Movable,
            /// To [`Request::UnmanagedMemory`], [`Request::Context`] and [`Request::Room`].
            58 => UnmanagedMemory {
                /// How much the tenant may have of what it asked for: at least what it needs, or nothing.
                bytes: u64,
            },
            /// To [`Request::Spare`], [`Request::Reuse`], [`Request::Unexport`], [`Request::ExportEvent`], [`Request::OpenEvent`],
            /// [`Request::ExportDescriptors`] and [`Request::ImportDescriptor`].
            59 => Noted,
            /// To [`Request::Export`].
            60 => Exported {
                /// Whoever knows it can open the allocation. The same for the same allocation.
                key: [u8; 16],
            },
            /// To [`Request::Attach`]: the extents that the allocation lies in, in order of address. Carries the frames of the
            /// first; the others are to be asked for.
            61 => Attached {
                /// Number and size of each.
                extents: Vec<(ExtentId, SizeClass)> [MAX_LISTED],
                /// Where in them the allocation begins.
                offset: u64,
                /// Its size, as its program asked for it.
                bytes: u64,
            } carries extents.len().min(MAX_DESCRIPTORS),
            /// To [`Request::Attach`]: there is no such export.
            62 => NotExported {
                /// The tenant that is said to have exported it is still there.
                exporter_lives: bool,
            },
        }
    }
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

impl Channels {
    fn descriptors(&self) -> usize {
        match self {
            Self::None | Self::Simulated { .. } => 0,
            Self::ResourceManager(_) => 1,
        }
    }
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
    /// All of them.
    pub const ALL: [Self; 3] = [Self::System, Self::Simulated, Self::File];

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
    /// How many calls needed all memory because they had not shown what they would reach.
    pub opaque: u64,
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
