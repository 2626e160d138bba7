//! The messages between tenants and the coordinator. Each direction is a type, made of a few families by the part that handles them.
//!
//! A tenant has two sockets. On its first connection, the coordinator commands and the tenant reports, at any time. The other came with
//! [`Admission::Welcome`] and is for requests of the program's own threads: one at a time, each answered. See [`crate::wire`] for the
//! bytes.
//!
//! Each message is declared once, below. From that declaration come the types, the bytes, the numbers of descriptors, and the random
//! messages of tests. A message that one side does not handle does not compile.

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
use crate::wire::{GpuNumber, HEADER, MAX_DESCRIPTORS, MAX_MESSAGE, Malformed, Reader, Version, Writer};

mod declare;
mod fields;
#[cfg(test)]
mod tests;

/// The longest name of a tenant, in bytes. A longer name is cut.
pub const MAX_NAME: usize = 64;
/// The longest text for a user, in bytes, and the longest piece of an [`Admission::Text`].
pub const MAX_TEXT: usize = 16 * 1024;
/// The most entries of a list. A list with a descriptor for each entry has at most [`MAX_DESCRIPTORS`].
pub const MAX_LISTED: usize = 2048;
/// Stands for a pointer's target in host memory that kernels can reach. A multiple of 2 MiB, and no address.
pub const HOST_MEMORY: u64 = !(crate::memory::GRANULE - 1);
/// The most ranges of addresses in a message.
pub const MAX_RANGES: usize = 1024;
/// The most extents that are cut anew by one [`MemoryCommand::Recut`].
pub const MAX_RECUT: usize = 512;
/// The size of the driver's handles for other processes (`CUipcMemHandle`, `CUipcEventHandle`), in bytes.
pub const IPC_HANDLE: usize = 64;
/// The most channels, of each kind, and the most groups, in [`Channels`]. A context of NVIDIA's driver has 20 channels.
pub const MAX_CHANNELS: usize = 2048;
/// The most channels in [`Elsewhere`].
pub const MAX_ELSEWHERE: usize = 960;

/// An extent's number: given by the coordinator, unique within its tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentId(pub u32);

/// A process by its number in its PID namespace; the coordinator may be in another namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// The namespace, as the kernel numbers it (the inode of `/proc/PID/ns/pid`).
    pub namespace: u64,
    /// Its number there.
    pub number: u32,
}

/// A file, as this machine numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// Its device.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

/// A message of either direction, or of one family.
pub trait Message: Debug {
    /// The message's bytes.
    fn encode(&self, gpu: GpuNumber) -> Vec<u8> {
        self.encode_in(gpu, Version::NOW)
    }

    /// The same for a peer that speaks this version.
    fn encode_in(&self, gpu: GpuNumber, version: Version) -> Vec<u8>;

    /// Returns the number of descriptors that come with it.
    fn descriptors(&self) -> usize;

    /// Returns this message, if the right number of descriptors came with it.
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
    /// Messages from a tenant, or from a tool.
    FromTenant {
        /// The first message on a connection, which shows the peer's kind. A tool sends no other.
        Opening(Opening) {
            /// The first message of a tenant. Carries a pidfd of its process. Answered by [`Admission::Welcome`], perhaps after an
            /// [`Admission::Queued`].
            1 => Hello {
                /// Its name from the user.
                name: String [MAX_NAME],
                /// Its scheduling.
                scheduling: Scheduling,
                /// UUID of the GPU that it is about to use.
                gpu: [u8; 16],
                /// Memory that its run needs for certain, in bytes; 0 if it takes any.
                needs: u64,
                /// The run that shares this memory: programs of one user that send the same number.
                run: u64,
                /// Its gang: programs of one user that send the same number have the GPU at the same time, on all GPUs; 0 for none.
                gang: u64 = since 22 or 0,
            } carries 1,
            /// The only message of a process that will join, or that starts one: the coordinator is not to end before this connection
            /// does. Answered by [`Admission::Offer`].
            2 => Expect,
            /// The only message of a tool: asks for the status. Answered by [`Admission::Text`].
            3 => Status,
            /// The only message of a tool: moves all of a tenant's memory to the host, when it is idle. Answered by [`Admission::Text`]
            /// when that is done.
            4 => Evict {
                /// The tenant's name.
                name: String [MAX_NAME],
            },
            /// The only message of a tool: changes a tenant's scheduling from here on. Answered by [`Admission::Text`].
            5 => Set {
                /// The tenant's name.
                name: String [MAX_NAME],
                /// The change.
                change: Change,
            },
            /// The only message of a tool: asks for events. Answered by [`Admission::Text`].
            6 => Events {
                /// The number of the first event.
                next: u64,
            },
            /// The only message of a tool: the coordinator takes no new tenants, and ends after the last one has left. Answered by
            /// [`Admission::Text`]; the connection ends with the coordinator.
            7 => Stop {
                /// True: it ends at once, even if tenants are there.
                now: bool,
            },
            /// The only message of a tool: brings memory of a tenant back to the GPU, as far as there is free room. Answered by
            /// [`Admission::Text`] when that is done.
            8 => Prefetch {
                /// The tenant's name.
                name: String [MAX_NAME],
            },
            /// The only message of a tool: as [`Opening::Stop`] with `now` unset, but it holds after the tool has gone; or it cancels
            /// the end, even if another tool asked for it. Answered by [`Admission::Text`].
            9 => Close {
                /// True: no new tenants are taken.
                closed: bool,
            },
            /// The only message of a tool: as [`Opening::Evict`], but it holds after the tool has gone. Answered by [`Admission::Text`]
            /// at once.
            10 => SendAway {
                /// The tenant's name.
                name: String [MAX_NAME],
            },
            /// The only message of a process that was to become a coordinator of the same user, and found this one: its keeper is to be
            /// this one's, which has lost its own. Carries a pidfd of that keeper. Answered by [`Admission::Line`], or by
            /// [`Admission::Text`] with the reason why not.
            19 => Keep carries 1,
            /// The only message of a tool: another version is to follow this coordinator while its programs go on. Answered by
            /// [`Admission::Text`], at last when this coordinator touches nothing any more, or with the reason why not.
            20 => Upgrade {
                /// The path of the program that is to follow.
                file: String [MAX_TEXT],
                /// True: nothing is done, and the answer says what would happen.
                check: bool,
                /// The time that the other one may take until it is ready, in milliseconds.
                within_ms: u32,
                /// The oldest version of the contract that the other one speaks; the newest is the message's own.
                oldest: u32,
                /// True: programs with which the other one cannot speak are ended. Otherwise they are in the way.
                leave_behind: bool,
            },
        }
        /// Reports about a tenant's turns.
        Turn(TurnReport) {
            /// A call waits at the closed gate.
            11 => Demand,
            /// The gate was opened, as granted.
            12 => Opened {
                /// The grant's number.
                grant: u64,
            },
            /// The gate is closed and all work has ended: on request, or because no work was left.
            13 => Closed {
                /// The number of the grant that thereby ends.
                grant: u64,
                /// Time until the work ended, in microseconds.
                drain_micros: u64,
            },
            /// The work did not end in the time given; the gate is open again.
            14 => DrainTimedOut {
                /// The grant that goes on.
                grant: u64,
            },
            /// After a grant with memory still on its way: the memory that the program used first meanwhile, in that order. Several of
            /// these may follow each other.
            15 => Used {
                /// The grant.
                grant: u64,
                /// Extents and times: microseconds since the gate was opened, less the waits of calls for memory.
                extents: Vec<(ExtentId, u32)> [MAX_LISTED],
            },
            /// The gate is open, no call waits, and the program has no work: its time stands still.
            17 => Rests {
                /// The grant that holds.
                grant: u64,
            },
            /// The program has work again, or may have.
            18 => Works {
                /// The grant that holds.
                grant: u64,
            },
            /// After a grant with memory still on its way: all of it is mapped, or the gate was closed before.
            16 => Arrived {
                /// The grant.
                grant: u64,
                /// The program's progress meanwhile.
                stats: ArrivalStats,
            },
        }
        /// Reports about a tenant's mappings.
        Memory(MemoryReport) {
            /// A command of [`MemoryCommand`] was carried out.
            21 => Done {
                /// The command's number.
                batch: u32,
                /// Duration, in microseconds.
                micros: u64,
            },
            /// A command could not be carried out.
            22 => Failed {
                /// The command's number.
                batch: u32,
                /// The driver's answer.
                code: u32,
            },
            /// The frames of a [`MemoryCommand::Prepare`] did not arrive, because the process can open no more descriptors; or a
            /// [`MemoryCommand::Map`] names extents without a frame for that reason. The command has no effect, and is to be sent again
            /// after a while.
            23 => Undelivered {
                /// The command's number.
                batch: u32,
            },
            /// As [`Request::Free`], without an answer.
            24 => Free {
                /// The extents.
                extents: Vec<ExtentId> [MAX_LISTED],
            },
            /// As [`Request::Spare`], without an answer.
            25 => Spare {
                /// Address and size of each.
                ranges: Vec<(u64, u64)> [MAX_RANGES],
            },
            /// Part of a lease of [`Request::UnmanagedMemory`] is no longer needed.
            26 => Unleased {
                /// Bytes given back.
                bytes: u64,
            },
            /// A context for which [`Request::Context`] has made room exists, or could not be made.
            27 => ContextMade {
                /// True if there is one more.
                made: bool,
            },
            /// One of its contexts is destroyed.
            28 => ContextGone,
            /// The extents of this range are to become one piece, which the tenant has made and of which this carries a descriptor:
            /// their contents are copied there while the tenant is off the GPU. Answered by [`MemoryCommand::Consolidated`].
            29 => Consolidate {
                /// Address of the first extent.
                at: u64,
                /// Size of all extents together, in bytes.
                bytes: u64,
                /// True if the descriptor comes with it.
                piece: bool,
            } carries usize::from(*piece),
        }
        /// Reports about taking a tenant's work off the GPU.
        Preemption(PreemptionReport) {
            /// The ways to take its work off the GPU at any point, and with it its work on other GPUs. Replaces the previous report.
            /// With [`Channels::ResourceManager`] it carries the driver's control device.
            31 => Channels {
                /// The channels that can be paused.
                channels: Channels,
                /// [`TenantPage::channels_begun`](crate::page::TenantPage::channels_begun) at the time of the scan.
                begun: u32,
                /// Those on other GPUs.
                elsewhere: Elsewhere,
            } carries channels.descriptors(),
            /// Answer to [`PreemptionCommand::Begin`]: the gate is closed, and work goes on.
            32 => GateClosed {
                /// The grant whose gate is closed.
                grant: u64,
            },
            /// Answer to [`PreemptionCommand::Probe`]: the piece was unmapped.
            33 => Probed {
                /// The number of the question.
                number: u32,
            },
        }
        /// Reports about co-running.
        Corun(CorunReport) {
            /// A tenant that runs beside others has just written on the activity page that it is at work, or no longer is. The activity
            /// page holds: this only says that a scan is worthwhile. Other domains are told then.
            41 => ActivityChanged,
        }
        /// Answers to a coordinator that has taken over from another one ([`TakeoverCommand`]).
        Takeover(TakeoverReport) {
            /// All extents that the tenant has, in several messages if there are many.
            71 => Extents {
                /// The number of the question.
                number: u64,
                /// The extents.
                extents: Vec<HeldExtent> [MAX_RANGES],
            },
            /// The end of the answer: what the tenant has told before holds no more, except in messages since
            /// [`TakeoverCommand::Resync`] came.
            72 => Stands {
                /// The number of the question.
                number: u64,
                /// The state of its gate.
                gate: GateState,
                /// The number of its latest grant.
                grant: u64,
                /// A call waits at the closed gate.
                demands: bool,
                /// A request was under way whose answer is not used: [`Answer::Again`] is to come.
                asks: bool,
                /// Bytes beside the arena that it has leased.
                leased: u64,
            },
        }
        /// Messages on the socket for requests, from threads of the program. Each has one answer ([`Answer`]).
        Request(Request) {
            /// Asks for memory. Answered by [`Answer::Allocated`] or [`Answer::Denied`].
            51 => Allocate {
                /// Its address: a multiple of 2 MiB.
                at: u64,
                /// Bytes, a multiple of 2 MiB.
                bytes: u64,
            },
            /// These extents are unmapped and no longer needed. Answered by [`Answer::Freed`].
            52 => Free {
                /// The extents.
                extents: Vec<ExtentId> [MAX_LISTED],
            },
            /// Asks for frames of extents that were lent and whose frames have not come yet. Answered by [`Answer::Frames`].
            53 => Frames {
                /// The extents.
                extents: Vec<ExtentId> [MAX_DESCRIPTORS],
            },
            /// Other processes are about to get access to these extents, which are on the GPU: from now on they stay, until they are
            /// freed. Answered by [`Answer::Immovable`] or [`Answer::Movable`]. The coordinator shows them as unmanaged memory, so the
            /// tenant's page does not.
            54 => MakeImmovable {
                /// The extents.
                extents: Vec<ExtentId> [MAX_LISTED],
            },
            /// Asks for a lease of memory beside the arena, on top of earlier ones. Answered by [`Answer::UnmanagedMemory`]. Given back
            /// with [`MemoryReport::Unleased`].
            55 => UnmanagedMemory {
                /// Bytes that are needed now.
                least: u64,
                /// Bytes that are welcome, so that the next calls need not ask.
                bytes: u64,
            },
            /// The program has freed these parts of extents whose other parts it still uses. They stay mapped until the extent leaves
            /// the GPU, but need no copy. Answered by [`Answer::Noted`].
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
            /// Asks for room beside the arena for a context, or for twice that. Answered by [`Answer::UnmanagedMemory`]. Kept for this
            /// tenant until [`MemoryReport::ContextMade`].
            58 => Context {
                /// True if the first room was too small.
                again: bool,
            },
            /// Asks for free memory beside the arena for unforeseeable uses: code, local memory. The memory is not reserved, so the
            /// tenant uses it at once. Answered by [`Answer::UnmanagedMemory`].
            59 => Room {
                /// Bytes that have to be free.
                bytes: u64,
            },
            /// Exports an allocation to other processes. Answered by [`Answer::Exported`].
            60 => Export {
                /// Its address.
                at: u64,
                /// Its size, as the program asked for it.
                bytes: u64,
            },
            /// An exported allocation is freed: it cannot be opened any more. Processes that have it open keep it. Answered by
            /// [`Answer::Noted`].
            61 => Unexport {
                /// Its address.
                at: u64,
            },
            /// Asks for memory that another tenant has exported. From then on the two are scheduled as one, unless they may be apart. Answered by
            /// [`Answer::Attached`], [`Answer::NotExported`], [`Answer::Denied`] or [`Answer::TryAgain`]. Given back as extents of the
            /// tenant's own are ([`Request::Free`]).
            62 => Attach {
                /// The tenant that has exported it.
                exporter: u32,
                /// The export's key.
                key: [u8; 16],
                /// Address for the first of its extents; the others follow it.
                at: u64,
                /// The two may take turns, until both want the GPU at once.
                apart: bool = since 22 or false,
            },
            /// Exports an event to other processes. Answered by [`Answer::Noted`].
            63 => ExportEvent {
                /// The driver's handle.
                handle: [u8; IPC_HANDLE],
            },
            /// Announces that an event is about to be opened. If a tenant has exported it, the two are scheduled as one from then on.
            /// Answered by [`Answer::Noted`] or [`Answer::TryAgain`].
            64 => OpenEvent {
                /// The handle with which it is opened.
                handle: [u8; IPC_HANDLE],
            },
            /// Exports memory by descriptors, of whose open files this process is the owner (`F_SETOWN`). Answered by
            /// [`Answer::Noted`].
            65 => ExportDescriptors {
                /// The process, in its own namespace.
                process: ProcessId,
            },
            /// Announces that memory is about to be imported by a descriptor that another process owns. If that is a tenant which
            /// exports descriptors, the two are scheduled as one from then on. Answered by [`Answer::Noted`].
            66 => ImportDescriptor {
                /// The owner's number, in the importer's namespace.
                owner: ProcessId,
            },
            /// The program is about to use another GPU too: from now on this tenant is of a gang, unless it is of one already. Answered
            /// by [`Answer::Noted`].
            67 => JoinGang {
                /// The gang's number; not 0.
                gang: u64,
            },
            /// Announces that memory is about to be attached which another tenant has exported, from outside the gate: the other one may have
            /// the GPU, and keep it until this one has written to that memory. Answered by [`Answer::Noted`].
            68 => Meet {
                /// The tenant that has exported it.
                exporter: u32,
                /// The export's key.
                key: [u8; 16],
            },
            /// The program has pinned host memory that others can have too: those that have pinned the same file are one unit, or one gang on
            /// several GPUs. Answered by [`Answer::Noted`].
            69 => PinsFile {
                /// The file.
                file: FileId,
            },
        }
    }
}

declare::messages! {
    /// Messages from the coordinator.
    FromCoordinator {
        /// The answers to an [`Opening`].
        Admission(Admission) {
            /// The answer to an [`Opening::Hello`]. Carries the coordinator's page (to be mapped read-only), the tenant's page, the
            /// socket for requests, the activity page (to be mapped read-only by a tenant without a slot), and the page on which its
            /// domain learns of others ([`ElsewherePage`](crate::page::ElsewherePage), read-only).
            1 => Welcome {
                /// The tenant's number.
                tenant: u32,
                /// Its slot on the activity page; [`ACTIVITY_SLOTS`](crate::page::ACTIVITY_SLOTS) for none.
                slot: u32,
            } carries 5,
            /// The answer to an [`Opening::Hello`] when there are as many tenants as there may be, or less memory than it needs. The
            /// welcome comes when there is room, after those of earlier tenants.
            2 => Queued {
                /// Tenants that wait before this one.
                ahead: u32,
                /// Bytes that are lacking; 0 if it only waits for its place.
                lacking: u64,
            },
            /// A refusal: the connection ends.
            3 => Refused {
                /// The reason, for the program.
                reason: Refusal,
                /// The reason, for the user.
                text: String [MAX_TEXT],
            },
            /// The answer to an [`Opening::Expect`].
            4 => Offer {
                /// UUID of the GPU that is shared.
                gpu: [u8; 16],
                /// The driver by which it is reached.
                driver: DriverKind,
                /// The size of "the GPU" that programs see, in bytes.
                bytes: u64,
                /// Memory that all programs together can have, in bytes, on the GPU and on the host.
                all: u64,
            },
            /// The answer to an [`Opening::Keep`]. Carries the socket that leads to this coordinator, for its keeper, and a pidfd of it.
            6 => Line carries 2,
            /// The answer to a tool: a piece of a JSON text.
            5 => Text {
                /// The piece, cut anywhere.
                piece: Vec<u8> [MAX_TEXT],
                /// True if more pieces follow.
                more: bool,
            },
        }
        /// Commands about the times when the tenant may use the GPU.
        Turn(TurnCommand) {
            /// Open the gate.
            11 => Grant {
                /// The number of the grant to this tenant.
                grant: u64,
                /// Not all of its memory is mapped yet: calls wait for the memory that they need.
                arriving: bool,
                /// Its work can be taken off the GPU at any point. So it may queue work that ends only when all memory is there: other
                /// tenants never have to wait for that.
                preemptible: bool,
            },
            /// Close the gate and make all work end.
            12 => Revoke {
                /// The grant that ends.
                grant: u64,
                /// Time to wait for work to end before giving up, in microseconds.
                limit_micros: u64,
            },
            /// Another tenant waits: keep the queue short, and close the gate after this time without work.
            13 => Contended {
                /// The time, in microseconds.
                patience_micros: u64,
            },
            /// No other tenant waits any more.
            14 => Uncontended,
            /// During this grant: keep the queue short, because a more urgent tenant is at work now and then.
            15 => LimitInFlight {
                /// Launches of a thread that may be in flight.
                launches: u32,
            },
            /// Before a grant with memory on its way: the contents of these extents hold words that look like pointers to these
            /// addresses. Replaces earlier lists, unless it `continues` them.
            16 => Pointers {
                /// Extents and targets: multiples of 2 MiB, or [`HOST_MEMORY`].
                edges: Vec<(ExtentId, u64)> [MAX_LISTED],
                /// True if the list just before also holds.
                continues: bool,
            },
            /// During this grant: keep as much in flight as is useful again.
            18 => LiftLimit {
                /// True if a more urgent tenant may still run beside it at any time: then calls read the activity page.
                watch: bool,
            },
            /// The process has to end, because it could only go on with wrong results, and the coordinator cannot end it by itself.
            17 => End {
                /// The reason, for the user.
                text: String [MAX_TEXT],
            },
        }
        /// Commands about the tenant's mappings. Each with a `batch` is answered by [`MemoryReport::Done`], [`MemoryReport::Failed`] or
        /// [`MemoryReport::Undelivered`].
        Memory(MemoryCommand) {
            /// Put these frames behind these extents, without access yet. Carries a frame for each.
            21 => Prepare {
                /// The command's number.
                batch: u32,
                /// The extents.
                extents: Vec<ExtentId> [MAX_DESCRIPTORS],
            } carries extents.len(),
            /// The contents of these extents are there: give access.
            22 => Map {
                /// The command's number.
                batch: u32,
                /// The extents.
                extents: Vec<ExtentId> [MAX_LISTED],
            },
            /// Unmap these extents, with or without access, and let go of their memory.
            23 => Unmap {
                /// The command's number.
                batch: u32,
                /// The extents.
                extents: Vec<ExtentId> [MAX_LISTED],
            },
            /// Memory that the tenant has without any frames is cut into new extents; its gate is closed. Parts of the old extents
            /// outside the new ones were spare: their addresses are free.
            24 => Recut {
                /// The extents that end.
                gone: Vec<ExtentId> [MAX_RECUT],
                /// The extents that take their place, with their addresses.
                extents: Vec<(ExtentId, u64, SizeClass)> [MAX_RECUT],
            },
            /// Answer to [`MemoryReport::Consolidate`]: map the piece in their place, and give the extents back. The gate is closed.
            25 => Consolidated {
                /// The command's number.
                batch: u32,
                /// Address of the first extent.
                at: u64,
                /// True if the piece has their contents. If not, everything stays as it is: the tenant cannot be taken off the GPU.
                copied: bool,
            },
        }
        /// Commands that take the tenant's work off the GPU.
        Preemption(PreemptionCommand) {
            /// Close the gate, and report it: answered by [`TurnReport::Closed`] if all work has ended, else by
            /// [`PreemptionReport::GateClosed`], after which work is about to be taken off the GPU. Calls that are inside stay there.
            31 => Begin {
                /// The grant that ends.
                grant: u64,
            },
            /// Its work is paused: unmap an unused piece of memory. This shows, before any used memory is unmapped, whether unmapping waits
            /// for the work.
            32 => Probe {
                /// The question's number.
                number: u32,
            },
        }
        /// Commands about co-running.
        Corun(CorunCommand) {
            /// Another slot on the activity page, because the tenant's class has changed. Carries the activity page, as
            /// [`Admission::Welcome`] does.
            41 => Slot {
                /// The slot; [`ACTIVITY_SLOTS`](crate::page::ACTIVITY_SLOTS) for none.
                slot: u32,
            } carries 1,
            /// Co-running begins or ends. While it lasts and the gate is open, others may run too, and the tenant writes on the
            /// activity page when it has work.
            42 => Corun {
                /// True if it begins.
                on: bool,
            },
        }
        /// Commands of a coordinator that takes over from one that has ended.
        Takeover(TakeoverCommand) {
            /// Tell everything that the one before may have known. Answered by [`TakeoverReport::Extents`], [`MemoryReport::Spare`],
            /// [`PreemptionReport::Channels`] and at last [`TakeoverReport::Stands`]. Carries the coordinator's page, the activity page,
            /// and the page on which the tenant's domain learns of others, in place of those of [`Admission::Welcome`].
            71 => Resync {
                /// A number that no other coordinator uses: the answer has it. One to a coordinator that has died since may be under way.
                number: u64,
                /// The tenant's slot on the activity page; [`ACTIVITY_SLOTS`](crate::page::ACTIVITY_SLOTS) for none.
                slot: u32,
            } carries 3,
        }
        /// Answers on the socket for requests.
        Answer(Answer) {
            /// To [`Request::Allocate`]: new extents, in order of address. Carries the frames of the first ones; the tenant asks for
            /// the others.
            51 => Allocated {
                /// Number and size of each.
                extents: Vec<(ExtentId, SizeClass)> [MAX_LISTED],
            } carries extents.len().min(MAX_DESCRIPTORS),
            /// To [`Request::Allocate`] and [`Request::Attach`]: the memory is denied.
            52 => Denied {
                /// The part that is full.
                full: Full,
            },
            /// To [`Request::Allocate`], [`Request::Attach`] and [`Request::OpenEvent`]: not now, because the gate is being closed. The
            /// tenant asks again when it is open.
            53 => TryAgain,
            /// To [`Request::Free`].
            54 => Freed,
            /// To [`Request::Frames`]. Carries a frame for each.
            55 => Frames {
                /// The extents that were asked for.
                extents: Vec<ExtentId> [MAX_DESCRIPTORS],
            } carries extents.len(),
            /// To [`Request::MakeImmovable`]: all extents stay.
            56 => Immovable,
            /// To [`Request::MakeImmovable`]: denied, because not all extents are on the GPU. Those that could move before still can.
            57 => Movable,
            /// To [`Request::UnmanagedMemory`], [`Request::Context`] and [`Request::Room`].
            58 => UnmanagedMemory {
                /// Bytes that the tenant may have: at least those that it needs, or none.
                bytes: u64,
            },
            /// To [`Request::Spare`], [`Request::Reuse`], [`Request::Unexport`], [`Request::ExportEvent`], [`Request::OpenEvent`],
            /// [`Request::ExportDescriptors`] and [`Request::ImportDescriptor`].
            59 => Noted,
            /// To [`Request::Export`].
            60 => Exported {
                /// The key with which the allocation can be opened. An allocation always has the same key.
                key: [u8; 16],
            },
            /// To [`Request::Attach`]: the extents of the allocation, in order of address. Carries the frames of the first ones; the
            /// tenant asks for the others. If not all of them are on the GPU, it carries none: when the tenant has asked for anything else, its
            /// gate is closed, and they come before it is opened again.
            61 => Attached {
                /// Number and size of each.
                extents: Vec<(ExtentId, SizeClass)> [MAX_LISTED],
                /// Offset of the allocation in them.
                offset: u64,
                /// Its size, as its program asked for it.
                bytes: u64,
                /// All of them are on the GPU.
                here: bool = since 22 or true,
            } carries if *here { extents.len().min(MAX_DESCRIPTORS) } else { 0 },
            /// To a request that another coordinator may have answered before it ended: that answer does not count, and the tenant asks
            /// again.
            63 => Again,
            /// To [`Request::Attach`]: there is no such export.
            62 => NotExported {
                /// True if the tenant that is said to have exported it is still there.
                exporter_lives: bool,
            },
        }
    }
}

/// An extent as its tenant has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldExtent {
    /// Its number.
    pub id: ExtentId,
    /// Its address.
    pub at: u64,
    /// Its size.
    pub class: SizeClass,
    /// The tenant's mapping of it.
    pub mapping: Mapping,
}

/// A tenant's mapping of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// No memory lies there.
    Away,
    /// Memory lies there, without access.
    Prepared,
    /// Memory lies there, and can be used.
    Mapped,
}

/// The state of a tenant's gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateState {
    /// Closed, and all work has ended.
    Closed,
    /// Closed, with work that may have been taken off the GPU.
    Held,
    /// Open. Calls may wait for memory that is on its way.
    Open,
}

/// The parts of a process that can be taken off the GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Channels {
    /// No part, now.
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

/// The parts of a process that can be taken off other GPUs than the one that it shares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// Channels of the same client, each behind the subdevice of its GPU. For the simulated driver the number of the process on that GPU,
    /// and 0.
    pub channels: Vec<(u32, u32)>,
}

/// The CUDA driver that a coordinator uses. Each side finds it by itself: no process loads a file because a peer names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverKind {
    /// The driver that programs find by themselves.
    System,
    /// Baton's simulated driver.
    Simulated,
    /// A file that the user has named.
    File,
}

impl DriverKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::System, Self::Simulated, Self::File];

    /// Returns the word for users.
    pub const fn word(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Simulated => "simulated",
            Self::File => "file",
        }
    }
}

/// A program's progress while its memory arrived. Times are in microseconds since the gate was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArrivalStats {
    /// Time when the first extent was mapped; `u64::MAX` if all were there already.
    pub first_extent_micros: u64,
    /// Time when the first call that uses the GPU's memory went to the driver; `u64::MAX` if there was none.
    pub first_call_micros: u64,
    /// Time when the arrival ended.
    pub end_micros: u64,
    /// Calls that had to wait for memory.
    pub waits: u64,
    /// Duration of these waits together.
    pub waited_micros: u64,
    /// Calls that needed all memory because they had not shown the memory that they would reach.
    pub opaque: u64,
}

/// The reason why a tenant is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The tenant has another version of the contract.
    Version,
    /// The coordinator serves another GPU.
    OtherGpu,
    /// The coordinator has as many connections as it can have. The tenant tries again.
    Busy,
    /// The coordinator could not prepare the tenant's resources.
    Failed,
    /// The first message is not a tenant's.
    Malformed,
}

/// The resource that is full when an allocation is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The arena, for this tenant alone.
    Arena,
    /// Arena and host pool together, for all tenants.
    HostPool,
    /// The memory exists, but is held by a program that does not give it back.
    Held,
}
