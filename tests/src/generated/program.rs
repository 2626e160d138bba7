//! Programs as they are drawn and made smaller: operations on slots, in one order.

use super::script::{Churn, CopyBy, HostKind, LaunchBy, PoolFigure, PoolSetting, Question, WaitBy, WordsBy};

/// How many objects of each kind there are at once.
pub const STREAMS: u8 = 4;
/// As [`STREAMS`].
pub const EVENTS: u8 = 3;
/// As [`STREAMS`].
pub const MEMS: u8 = 6;
/// As [`STREAMS`].
pub const HOSTS: u8 = 4;
/// As [`STREAMS`].
pub const FLAGS: u8 = 4;
/// As [`STREAMS`].
pub const GRAPHS: u8 = 4;
/// As [`STREAMS`].
pub const EXECS: u8 = 3;
/// As [`STREAMS`]: pools of the program's own.
pub const POOLS: u8 = 2;
/// As [`STREAMS`]: modules beside the one that all kernels are from.
pub const MODULES: u8 = 2;
/// The primary context, one that comes and goes, and one of another GPU.
pub const CONTEXTS: u8 = 3;
/// The flags from here on are in device memory.
pub const FIRST_DEVICE_FLAG: u8 = 3;

/// Bytes of an allocation, by class.
pub const SIZES: [u32; 6] = [512, 16 << 10, 256 << 10, 2 << 20, 5 << 20, 8 << 20];
/// The class of what tables name: those are moved one by one, and take long enough to be missed.
pub const ROW_SIZE: u8 = SIZES.len() as u8 - 1;

/// Bytes of host memory, by class. The last is too long to be read for the names in it.
pub const HOST_SIZES: [u32; 5] = [512, 16 << 10, 256 << 10, 2 << 20, 17 << 20];

/// Bytes of what a pool gives, by class: around what pools round to, and more than the step that they grow by.
pub const POOL_SIZES: [u32; 9] = [1, 511, 1000, 20_484, 256 << 10, 2 << 20, (3 << 20) + 512, 9 << 20, (34 << 20) + 4];

/// Bytes of a variable of a module's.
pub const VARIABLE_BYTES: u32 = 4096;

/// The bytes that a pool is told to keep, by class: as a threshold, and when it is trimmed.
pub const KEEPS: [u64; 4] = [0, 1, 33 << 20, u64::MAX];

/// A program: its threads take turns in this order, as far as the order matters.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// How many threads.
    pub threads: u8,
    /// Their operations.
    pub operations: Vec<Operation>,
}

/// One operation of a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The thread that does it.
    pub thread: u8,
    /// The operation itself.
    pub what: What,
}

/// A stream, and the form of the call's name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct To {
    /// Which one.
    pub stream: Where,
    /// By the form of per-thread default streams.
    pub twin: bool,
}

/// A stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Where {
    /// That in a slot.
    Made(u8),
    /// The legacy default stream of a context.
    Legacy(u8),
    /// The thread's default stream in a context.
    PerThread(u8),
}

/// Memory in a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spot {
    /// Of the device.
    Mem(u8),
    /// Of the host.
    Host(u8),
}

/// A pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum From {
    /// The GPU's default one.
    Default,
    /// That in a slot.
    Own(u8),
}

/// Work for the device. The model decides how much of the memory it uses, and how.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Hash {
        out: Spot,
        seed: u8,
    },
    Sum {
        out: Spot,
        from: Spot,
    },
    Axpy {
        y: Spot,
        x: Spot,
    },
    Add {
        out: Spot,
        a: Spot,
        b: Spot,
    },
    Gather {
        out: Spot,
        table: Spot,
    },
    Fill {
        out: Spot,
        value: u8,
        element: u8,
    },
    Copy {
        to: Spot,
        from: Spot,
        by: CopyBy,
    },
    HostFunction {
        out: Spot,
        seed: u8,
    },
    Scratch {
        out: Spot,
        seed: u8,
    },
    WriteWord {
        out: Spot,
        value: u8,
    },
    Scatter {
        table: Spot,
        from: Spot,
    },
    /// Addresses of the allocations whose bits are set in `rows`, or if that is 0 what depends on a seed.
    Words {
        out: Spot,
        rows: u8,
        seed: u8,
        by: WordsBy,
    },
    /// A chain's node, which leads to that in the next slot, or ends the chain.
    Link {
        out: Spot,
        next: Option<u8>,
        seed: u8,
        by: WordsBy,
    },
    Chase {
        out: Spot,
        from: Spot,
    },
}

/// An operation.
#[allow(missing_docs)]
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    ContextCreate,
    ContextDestroy,
    /// That of another GPU.
    ContextRetain,
    ContextSynchronize {
        context: u8,
    },
    StreamCreate {
        stream: u8,
        context: u8,
        non_blocking: bool,
    },
    StreamDestroy {
        stream: u8,
    },
    StreamSynchronize {
        on: To,
    },
    StreamQuery {
        on: To,
    },
    EventCreate {
        event: u8,
        context: u8,
    },
    EventDestroy {
        event: u8,
    },
    EventRecord {
        event: u8,
        on: To,
    },
    EventWait {
        on: To,
        event: u8,
    },
    EventSynchronize {
        event: u8,
    },
    EventQuery {
        event: u8,
    },
    /// And fills it in a stream, so that it has contents.
    Alloc {
        mem: u8,
        context: u8,
        size: u8,
        on: To,
    },
    /// As [`What::Alloc`], of handles side by side that are mapped at two places.
    Map {
        mem: u8,
        context: u8,
        size: u8,
        parts: u8,
        on: To,
    },
    /// As [`What::Alloc`], a variable of code that is loaded for it.
    Variable {
        mem: u8,
        context: u8,
        on: To,
    },
    /// Maps such memory anew where it was, in one of a few ways.
    Remap {
        mem: u8,
        how: u8,
    },
    Free {
        mem: u8,
    },
    FreeAsync {
        mem: u8,
        on: To,
    },
    Read {
        mem: u8,
        twin: bool,
    },
    PoolCreate {
        pool: u8,
    },
    PoolDestroy {
        pool: u8,
    },
    /// Makes it the pool that allocations are from that name none.
    PoolSelect {
        pool: From,
    },
    /// As [`What::Alloc`], in a stream's order; by the call that names no pool if `pool` is none.
    PoolAlloc {
        mem: u8,
        pool: Option<From>,
        size: u8,
        on: To,
    },
    PoolTrim {
        pool: From,
        keep: u8,
    },
    PoolSet {
        pool: From,
        setting: PoolSetting,
    },
    PoolAsk {
        pool: From,
        figure: PoolFigure,
    },
    HostAlloc {
        host: u8,
        context: u8,
        size: u8,
        kind: HostKind,
    },
    HostFree {
        host: u8,
    },
    HostFill {
        host: u8,
        seed: u8,
    },
    /// Writes the addresses of the allocations whose bits are set.
    HostTable {
        host: u8,
        rows: u8,
    },
    HostRead {
        host: u8,
    },
    /// A stream waits for a flag, and the thread that releases that writes to host memory before: addresses, as [`What::HostTable`],
    /// or if there are none, what depends on a seed. For the device, that is there behind the wait.
    Late {
        on: To,
        host: u8,
        rows: u8,
        seed: u8,
        flag: u8,
        by: WaitBy,
    },
    LaunchBy {
        by: LaunchBy,
    },
    Work {
        on: To,
        kind: Kind,
        times: u8,
    },
    /// In a default stream, by a call that waits.
    WorkAndWait {
        kind: Kind,
        twin: bool,
    },
    Wait {
        on: To,
        flag: u8,
        by: WaitBy,
    },
    Release {
        flag: u8,
    },
    BeginCapture {
        on: To,
        mode: u8,
    },
    EndCapture {
        on: To,
        graph: u8,
    },
    ThreadMode {
        mode: u8,
    },
    /// A graph of such nodes, one after the other, the first of which may be a child graph.
    Build {
        graph: u8,
        child: Option<u8>,
        kinds: Vec<Kind>,
    },
    GraphClone {
        graph: u8,
        from: u8,
    },
    GraphDestroy {
        graph: u8,
    },
    Instantiate {
        exec: u8,
        graph: u8,
    },
    ExecDestroy {
        exec: u8,
    },
    ExecUpdate {
        exec: u8,
        graph: u8,
    },
    ExecSet {
        exec: u8,
        node: u8,
        kind: Kind,
    },
    ExecSetChild {
        exec: u8,
        graph: u8,
    },
    ExecEnable {
        exec: u8,
        node: u8,
        enabled: bool,
    },
    Upload {
        exec: u8,
        on: To,
    },
    Launch {
        exec: u8,
        on: To,
    },
    Ask {
        mem: u8,
        question: Question,
    },
    Fork {
        milliseconds: u8,
    },
    /// With the calls whose bits are set.
    ForkTouch {
        mem: u8,
        host: u8,
        touches: u32,
    },
    ModuleLoad {
        module: u8,
        context: u8,
    },
    ModuleUnload {
        module: u8,
    },
    ChurnBegin {
        churn: Churn,
    },
    ChurnEnd {
        churn: Churn,
    },
    TakeDescriptors {
        spare: u8,
    },
    GiveDescriptors,
    Sleep {
        milliseconds: u8,
    },
    /// Waits for the context first if `idle`.
    Rest {
        idle: bool,
    },
}
