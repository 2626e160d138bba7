//! The script that `generated_program` executes: for each thread its steps, with names for all objects, as JSON.
//!
//! A script says everything there is to know. Objects have numbers that are used once; a step that has to come after
//! steps of other threads says so. Nothing in it depends on how fast anything is, so that two runs say the same.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// The number of an object of its kind.
pub type Id = u32;

/// True if the handles of memory that a program maps itself are made to be exported: those of every other one are.
pub fn is_exportable(mem: Id) -> bool {
    mem.is_multiple_of(2)
}

/// Bytes of a row that a table names.
pub const ROW_BYTES: u32 = 256;

/// How far behind the beginning of memory of so many bytes its row begins, by which tables name it: of every third, at the end.
pub fn row_offset(mem: Id, bytes: u32) -> u32 {
    if mem % 3 == 2 { (bytes - ROW_BYTES) / 4 * 4 } else { 0 }
}

/// True if the variable that some memory is belongs to a library: those of every other one do, and others to a module.
pub fn is_of_library(mem: Id) -> bool {
    mem.is_multiple_of(2)
}

/// A program that can be executed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Script {
    /// For readers.
    pub about: String,
    /// The steps of each thread.
    pub threads: Vec<Vec<Step>>,
}

/// One call, after steps of other threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Threads, and how many steps they must have made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<(usize, usize)>,
    /// The call that is made then.
    pub call: Call,
}

/// A stream, and by which of a name's two forms a call names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct On {
    /// The stream.
    pub stream: Stream,
    /// By the `_ptsz` or `_ptds` form, in which stream 0 is the thread's own.
    pub twin: bool,
}

/// A stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stream {
    /// One that the program made.
    Made(Id),
    /// The legacy default stream of the current context.
    Legacy,
    /// The calling thread's default stream in the current context.
    PerThread,
}

/// Memory that the device works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Buf {
    /// Device memory.
    Mem(Id),
    /// Host memory.
    Host(Id),
}

/// How host memory is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostKind {
    /// By `cuMemHostAlloc`.
    Pinned,
    /// Mapped, then registered.
    Registered,
    /// Mapped.
    Pageable,
    /// By `cuMemAllocManaged`.
    Managed,
}

/// A word that is waited for; it only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Flag {
    /// In pinned host memory.
    Host(Id),
    /// In device memory.
    Device(Id),
}

/// One piece of work for the device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Work {
    /// Writes all of it with a kernel.
    Hash {
        /// The memory that is written.
        out: Buf,
        /// Decides what it is.
        seed: u32,
        /// How many 32-bit words.
        words: u32,
    },
    /// Adds up words to the first 64 bits of `out`.
    Sum {
        /// Where the sum is.
        out: Buf,
        /// The memory that is added up.
        from: Buf,
        /// How many words.
        words: u32,
    },
    /// `y += 0.5 x`
    Axpy {
        /// Read and written.
        y: Buf,
        /// Read.
        x: Buf,
        /// How many words.
        words: u32,
    },
    /// `out = a + b`, by a structure that is passed by value.
    Add {
        /// Written.
        out: Buf,
        /// Read.
        a: Buf,
        /// Read.
        b: Buf,
        /// How many words.
        words: u32,
    },
    /// Copies rows to `out`, by a table of their addresses.
    Gather {
        /// Written.
        out: Buf,
        /// Holds the addresses.
        table: Buf,
        /// How many.
        rows: u32,
        /// Words of each.
        words: u32,
    },
    /// `cuMemset…`: elements of 1, 2 or 4 bytes.
    Fill {
        /// Written.
        out: Buf,
        /// The element.
        value: u32,
        /// Its bytes.
        element: u32,
        /// How many.
        count: u32,
        /// By `cuMemsetD2D…`, as four rows.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        in_rows: bool,
    },
    /// A copy from the beginning of one to the beginning of the other.
    Copy {
        /// Written.
        to: Buf,
        /// Read.
        from: Buf,
        /// How many bytes.
        bytes: u32,
        /// By which call.
        by: CopyBy,
    },
    /// A host function that writes host memory.
    HostFunction {
        /// Written.
        out: Buf,
        /// Decides what it is.
        seed: u32,
        /// How many words.
        words: u32,
    },
    /// Allocates memory in the stream's order, writes it, copies it to `out` and frees it. In a graph that is a node each.
    Scratch {
        /// Written.
        out: Buf,
        /// Decides what it is.
        seed: u32,
        /// How many words.
        words: u32,
    },
    /// Copies words from behind `from` to rows, by a table of their addresses: no parameter names what is written.
    Scatter {
        /// Holds the addresses.
        table: Buf,
        /// Read.
        from: Buf,
        /// How many.
        rows: u32,
        /// Words of each.
        words: u32,
    },
    /// Follows a chain of [nodes](Wide::Node) and adds up their values to the first 64 bits of `out`.
    Chase {
        /// Where the sum is.
        out: Buf,
        /// Holds the first node.
        from: Buf,
        /// How many nodes, if the chain does not end before.
        hops: u32,
    },
    /// Words of 64 bits at the beginning, of which no call names the memory that they come from.
    Words {
        /// Written.
        out: Buf,
        /// The words.
        words: Wide,
        /// By which calls.
        by: WordsBy,
    },
    /// `cuStreamWriteValue32` to the first word.
    WriteWord {
        /// Written.
        out: Buf,
        /// The word.
        value: u32,
    },
}

/// Words of 64 bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Wide {
    /// The addresses of these allocations.
    Addresses(Vec<Id>),
    /// So many that depend on a seed.
    Data(u32, u32),
    /// A chain's node: the address of the next one's memory, or 0, and a value.
    Node(Option<Id>, u32),
}

impl Wide {
    /// How many.
    pub fn count(&self) -> u32 {
        match self {
            Self::Addresses(mems) => mems.len() as u32,
            Self::Data(_, count) => *count,
            Self::Node(..) => 2,
        }
    }
}

/// How words of 64 bits come to be where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WordsBy {
    /// `cuStreamWriteValue64`, for each.
    Wide,
    /// `cuStreamWriteValue32`, for each half.
    Halves,
    /// One `cuStreamBatchMemOp` for all halves.
    Batch,
    /// `cuMemsetD32` and its like, for each half, quarter or byte: so many bytes at once.
    Fill(u32),
    /// A host function, after a while.
    HostFunction,
}

/// The call that copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyBy {
    /// That for these kinds of memory.
    Kind,
    /// `cuMemcpy`, which takes any address.
    Plain,
    /// `cuMemcpyHtoD`, also where it is device memory that is read.
    FromHost,
    /// Several calls, which cut the first words in odd places.
    Odd,
    /// `cuMemcpy2D`, with rows that end within words; and a call for the rest.
    Flat,
    /// `cuMemcpy3D`, with planes that end within words; and a call for the rest.
    Solid,
    /// `cuMemcpyBatchAsync`, the second half first.
    Batch,
    /// `cuMemcpyPeerAsync`, where both are device memory.
    Peer,
}

impl CopyBy {
    /// True if that is one call, and one node of a graph.
    pub fn is_one(self) -> bool {
        !matches!(self, Self::Odd | Self::Flat | Self::Solid)
    }
}

/// The call that launches kernels, and how it is given their parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LaunchBy {
    /// `cuLaunchKernel`, with a pointer to each.
    #[default]
    Pointers,
    /// `cuLaunchKernel`, with all of them in one buffer.
    Buffer,
    /// `cuLaunchKernelEx`, with a pointer to each.
    Config,
    /// `cuLaunchKernelEx`, with one buffer.
    ConfigBuffer,
    /// `cuLaunchCooperativeKernel`
    Cooperative,
    /// `cuLaunchKernel` of a function, not of a library's kernel.
    Function,
    /// `cuLaunchGridAsync`, behind `cuParamSetv`: shape and parameters are the function's own.
    Old,
}

/// All of them.
pub const LAUNCHES: [LaunchBy; 7] = [
    LaunchBy::Pointers,
    LaunchBy::Buffer,
    LaunchBy::Config,
    LaunchBy::ConfigBuffer,
    LaunchBy::Cooperative,
    LaunchBy::Function,
    LaunchBy::Old,
];

/// How a stream waits for a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitBy {
    /// `cuStreamWaitValue32`
    Value,
    /// `cuStreamWaitValue64`
    Wide,
    /// `cuStreamBatchMemOp`, which waits and then writes a word that is never read.
    Batch,
    /// A kernel that reads it over and over.
    Kernel,
    /// A host function that does.
    HostFunction,
}

/// Calls that a thread of its own makes over and over, beside the script's threads. No thread waits for it, and it waits for no work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Churn {
    /// Retains the primary context, which others have too, and releases it.
    Primary,
    /// Makes a context, with memory and work there, and destroys it.
    Contexts,
    /// Loads code in a context of its own, and unloads it.
    Modules,
    /// Allocates in the primary context, and frees in the order of a stream of its own.
    Frees,
}

/// A call of a forked child with the handles that it has inherited.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Touch {
    Free,
    FreeAsync,
    Range,
    Attribute,
    CopyOut,
    CopyIn,
    Fill,
    FillAsync,
    Alloc,
    AllocAsync,
    HostAlloc,
    HostFree,
    ContextSynchronize,
    SetCurrent,
    StreamCreate,
    StreamQuery,
    EventCreate,
    Retain,
    GraphCreate,
    PoolCreate,
    Info,
    Init,
}

/// All of them.
pub const TOUCHES: [Touch; 22] = [
    Touch::Free,
    Touch::FreeAsync,
    Touch::Range,
    Touch::Attribute,
    Touch::CopyOut,
    Touch::CopyIn,
    Touch::Fill,
    Touch::FillAsync,
    Touch::Alloc,
    Touch::AllocAsync,
    Touch::HostAlloc,
    Touch::HostFree,
    Touch::ContextSynchronize,
    Touch::SetCurrent,
    Touch::StreamCreate,
    Touch::StreamQuery,
    Touch::EventCreate,
    Touch::Retain,
    Touch::GraphCreate,
    Touch::PoolCreate,
    Touch::Info,
    Touch::Init,
];

/// Something asked about memory, whose answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// Its handle, if there is one, and whether that can be mapped and written.
    RetainHandle,
    /// Where it begins and ends.
    AddressRange,
    /// Of what kind it is.
    Attribute,
}

/// A setting of a pool that is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolSetting {
    /// How many unused bytes it keeps.
    Threshold(u64),
    /// Allows or forbids to use memory again that another stream has freed, in one of three ways: by events, by chance, by waiting.
    Reuse(u8, bool),
    /// The most bytes that were used are forgotten.
    UsedHigh,
    /// The most bytes that were reserved are forgotten.
    ReservedHigh,
}

/// A figure of a pool that is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PoolFigure {
    /// The bytes that the program has of it.
    Used,
    /// The most that it ever had.
    UsedHigh,
    /// The bytes that it has of the GPU's memory.
    Reserved,
    /// The threshold.
    Threshold,
    /// One of its ways to use memory again.
    Reuse(u8),
    /// The access that its GPU has to it.
    Access,
}

/// How mappings are made anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Remap {
    /// The first place is unmapped and mapped again.
    First,
    /// Both are, one after the other, so that the memory is always mapped once.
    Both,
    /// The whole is unmapped while the program holds its handles.
    Whole,
    /// No GPU has access for a while.
    Access,
}

/// The call of a step. The names are those of the driver's calls, shortened.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Call {
    SetCurrent {
        context: Id,
    },
    ContextCreate {
        context: Id,
    },
    ContextDestroy {
        context: Id,
    },
    /// The second GPU's primary one; of the first GPU one more, if there is no second.
    ContextRetain {
        context: Id,
    },
    ModuleLoad {
        module: Id,
    },
    ModuleUnload {
        module: Id,
    },
    ChurnBegin {
        churn: Churn,
    },
    /// It may do what it has begun.
    ChurnEnd {
        churn: Churn,
    },
    ContextSynchronize,
    StreamCreate {
        stream: Id,
        non_blocking: bool,
    },
    StreamDestroy {
        stream: Id,
    },
    StreamSynchronize {
        on: On,
    },
    StreamQuery {
        on: On,
    },
    EventCreate {
        event: Id,
    },
    EventDestroy {
        event: Id,
    },
    EventRecord {
        event: Id,
        on: On,
    },
    EventWait {
        on: On,
        event: Id,
    },
    EventSynchronize {
        event: Id,
    },
    EventQuery {
        event: Id,
    },
    MemAlloc {
        mem: Id,
        bytes: u32,
    },
    /// Memory of several handles, each mapped at two places, where all are side by side. Calls name either. [`is_exportable`]
    /// says of what kind they are.
    MemMap {
        mem: Id,
        bytes: u32,
        parts: u32,
    },
    /// Takes some of those mappings away, and makes them again.
    MemRemap {
        mem: Id,
        how: Remap,
    },
    MemUnmap {
        mem: Id,
    },
    /// Loads code with a variable, which is the memory. [`is_of_library`] says how.
    VariableLoad {
        mem: Id,
        bytes: u32,
    },
    /// Unloads it.
    VariableUnload {
        mem: Id,
    },
    MemFree {
        mem: Id,
    },
    MemFreeAsync {
        mem: Id,
        on: On,
    },
    /// Reads it back by a copy that is waited for, and prints a digest.
    MemRead {
        mem: Id,
        bytes: u32,
        twin: bool,
    },
    PoolCreate {
        pool: Id,
    },
    PoolDestroy {
        pool: Id,
    },
    /// Makes it the current pool of the GPU.
    PoolSelect {
        pool: Id,
    },
    /// From a pool, or from the current one.
    PoolAlloc {
        mem: Id,
        bytes: u32,
        pool: Option<Id>,
        on: On,
    },
    /// `cuMemFree` of a pool's memory.
    PoolFree {
        mem: Id,
    },
    PoolFreeAsync {
        mem: Id,
        on: On,
    },
    PoolTrim {
        pool: Id,
        keep: u64,
    },
    PoolSet {
        pool: Id,
        setting: PoolSetting,
    },
    /// Prints a figure.
    PoolAsk {
        pool: Id,
        figure: PoolFigure,
    },
    HostAlloc {
        host: Id,
        bytes: u32,
        kind: HostKind,
    },
    HostFree {
        host: Id,
        kind: HostKind,
    },
    HostFill {
        host: Id,
        bytes: u32,
        seed: u32,
    },
    HostTable {
        host: Id,
        rows: Vec<Id>,
    },
    /// Prints a digest of what the host sees there.
    HostRead {
        host: Id,
        bytes: u32,
    },
    /// From now on the thread's kernels are launched by this call, and the nodes of graphs are given parameters like that.
    LaunchBy {
        by: LaunchBy,
    },
    Submit {
        on: On,
        work: Work,
        times: u32,
    },
    /// By the call without a stream, which is that of the legacy stream or, as a twin, of the thread's own.
    SubmitAndWait {
        work: Work,
        twin: bool,
    },
    WaitFlag {
        on: On,
        flag: Flag,
        value: u32,
        by: WaitBy,
    },
    /// Sets the flag: by a store, or for one in device memory in a stream that does nothing else.
    Release {
        flag: Flag,
        value: u32,
    },
    BeginCapture {
        on: On,
        mode: u32,
    },
    EndCapture {
        on: On,
        graph: Id,
    },
    ThreadMode {
        mode: u32,
    },
    GraphCreate {
        graph: Id,
    },
    GraphAdd {
        graph: Id,
        node: Id,
        after: Vec<Id>,
        work: Work,
    },
    GraphAddChild {
        graph: Id,
        node: Id,
        after: Vec<Id>,
        child: Id,
    },
    /// A copy of a graph.
    GraphClone {
        graph: Id,
        from: Id,
    },
    GraphDestroy {
        graph: Id,
    },
    Instantiate {
        exec: Id,
        graph: Id,
    },
    ExecDestroy {
        exec: Id,
    },
    ExecUpdate {
        exec: Id,
        graph: Id,
    },
    ExecSet {
        exec: Id,
        node: Id,
        work: Work,
    },
    ExecSetChild {
        exec: Id,
        node: Id,
        child: Id,
    },
    ExecEnable {
        exec: Id,
        node: Id,
        enabled: bool,
    },
    /// Makes the next launch quick.
    Upload {
        exec: Id,
        on: On,
    },
    Launch {
        exec: Id,
        on: On,
    },
    Ask {
        mem: Id,
        question: Question,
    },
    /// A child that exits after so long.
    Fork {
        milliseconds: u32,
    },
    /// A child that makes calls with what it has inherited, and whose answers are printed.
    ForkTouch {
        mem: Id,
        host: Option<Id>,
        touches: Vec<Touch>,
    },
    /// Waits for all children.
    Reap,
    /// Opens so many files that only `spare` more can be opened.
    TakeDescriptors {
        spare: u32,
    },
    /// Closes them.
    GiveDescriptors,
    Sleep {
        milliseconds: u32,
    },
    /// Says `rest` and waits for a line.
    Rest,
}

impl Script {
    /// As JSON, with a line for each step.
    pub fn to_text(&self) -> String {
        let mut text = format!("{{\"about\": {},\n \"threads\": [", json(&self.about));
        for (thread, steps) in self.threads.iter().enumerate() {
            let _ = write!(text, "{}[", if thread == 0 { "" } else { ", " });
            for (number, step) in steps.iter().enumerate() {
                let _ = write!(text, "{}\n  {}", if number == 0 { "" } else { "," }, json(step));
            }
            text += "\n ]";
        }
        text + "]}\n"
    }

    /// From JSON.
    ///
    /// # Errors
    ///
    /// The fault of the text.
    pub fn from_text(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// How many steps there are.
    pub fn steps(&self) -> usize {
        self.threads.iter().map(Vec::len).sum()
    }
}

pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data")
}
