//! The work of graphs' nodes, as `cuda.h` describes it, and a check that it was done.

use std::ffi::c_void;
use std::ptr::{from_mut, from_ref, null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::bench::{Bench, Handle};
use crate::boxes::{SolidCopy, line};
use crate::graphs::{FILLED, Graph};
use crate::kernels::{Kernel, axpy};
use crate::piece::{Piece, Place, SIZE};
use crate::words::{Operation, WRITE_32};

/// A wrong description of a job.
pub(crate) type Spoil<J> = (&'static str, fn(&mut J));

/// Something for a node to do.
pub(crate) trait Job {
    /// Adds a node that does it.
    fn add(&mut self, out: *mut Handle, graph: Handle) -> u32;

    /// `cuda.h`'s description for a node that does it.
    fn description(&mut self) -> *mut c_void;

    /// Waits for all work and says whether it was done.
    fn seen(&self) -> String;
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`; the first version ends before the kernel.
#[repr(C)]
pub(crate) struct KernelNode {
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
    kernel: Handle,
    context: Handle,
}

impl KernelNode {
    /// The parameters must live until the driver has copied them.
    pub(crate) fn new(function: Handle, parameters: *mut *mut c_void) -> Self {
        let (extra, kernel, context) = (null_mut(), null_mut(), null_mut());
        Self { function, grid: [2, 1, 1], block: [64, 1, 1], shared: 0, parameters, extra, kernel, context }
    }

    pub(crate) fn pointer(&self) -> *const c_void {
        from_ref(self).cast()
    }
}

pub(crate) struct KernelJob<'a> {
    bench: &'a Bench,
    kernel: Kernel<'a>,
    /// Arguments that the description points to, in its two ways to give them.
    _pointers: Vec<*mut c_void>,
    _buffer: Vec<u8>,
    _bytes: Box<usize>,
    extra: Vec<*mut c_void>,
    pub(crate) node: KernelNode,
}

impl<'a> KernelJob<'a> {
    pub(crate) fn new(bench: &'a Bench) -> Self {
        const END: Handle = null_mut();
        let [buffer_follows, size_follows] = [1, 2].map(|value: usize| value as Handle);
        let mut kernel = axpy(bench, 1);
        let mut pointers = kernel.pointers();
        let (mut buffer, _) = kernel.buffer();
        let mut bytes = Box::new(buffer.len());
        let extra = vec![buffer_follows, buffer.as_mut_ptr().cast(), size_follows, from_mut(&mut *bytes).cast(), END];
        let node = KernelNode::new(bench.function(kernel.name), pointers.as_mut_ptr());
        Self { bench, kernel, _pointers: pointers, _buffer: buffer, _bytes: bytes, extra, node }
    }

    /// Gives the arguments as one buffer.
    pub(crate) fn use_buffer(&mut self) {
        (self.node.parameters, self.node.extra) = (null_mut(), self.extra.as_mut_ptr());
    }

    /// Names the kernel as a library's.
    pub(crate) fn use_library(&mut self) {
        (self.node.function, self.node.kernel) = (null_mut(), self.bench.kernel(self.kernel.name));
    }

    /// Asks for more threads than a block can have.
    pub(crate) fn spoil(&mut self) {
        self.node.block = [4096, 1, 1];
    }
}

impl Job for KernelJob<'_> {
    fn add(&mut self, out: *mut Handle, graph: Handle) -> u32 {
        self.bench.cuGraphAddKernelNode_v2(out, graph, null(), 0, self.node.pointer())
    }

    fn description(&mut self) -> *mut c_void {
        from_mut(&mut self.node).cast()
    }

    fn seen(&self) -> String {
        self.kernel.seen()
    }
}

/// `CUDA_MEMSET_NODE_PARAMS_v2`; the first version ends before the context.
#[repr(C)]
pub(crate) struct FillNode {
    pub(crate) address: u64,
    pitch: usize,
    value: u32,
    pub(crate) element: u32,
    width: usize,
    height: usize,
    context: Handle,
}

impl FillNode {
    /// Fills all of a piece.
    pub(crate) fn whole(target: &Piece, value: u8) -> Self {
        let (address, value) = (target.at(0), value.into());
        Self { address, pitch: 0, value, element: 1, width: SIZE, height: 1, context: null_mut() }
    }

    pub(crate) fn pointer(&self) -> *const c_void {
        from_ref(self).cast()
    }
}

pub(crate) struct FillJob<'a> {
    bench: &'a Bench,
    target: Piece<'a>,
    pub(crate) node: FillNode,
}

impl<'a> FillJob<'a> {
    const FILLED: u8 = 0x52;

    pub(crate) fn new(bench: &'a Bench) -> Self {
        let target = Piece::target(bench, Place::Device);
        let node = FillNode { context: bench.context, ..FillNode::whole(&target, Self::FILLED) };
        Self { bench, target, node }
    }

    pub(crate) fn spoils() -> [Spoil<Self>; 2] {
        [("elements of 3", |job| job.node.element = 3), ("at null", |job| job.node.address = 0)]
    }
}

impl Job for FillJob<'_> {
    fn add(&mut self, out: *mut Handle, graph: Handle) -> u32 {
        self.bench.cuGraphAddMemsetNode(out, graph, null(), 0, self.node.pointer(), self.bench.context)
    }

    fn description(&mut self) -> *mut c_void {
        from_mut(&mut self.node).cast()
    }

    fn seen(&self) -> String {
        self.target.seen(&[Self::FILLED; SIZE])
    }
}

pub(crate) struct CopyJob<'a> {
    bench: &'a Bench,
    from: Piece<'a>,
    to: Piece<'a>,
    pub(crate) node: SolidCopy,
}

impl<'a> CopyJob<'a> {
    pub(crate) fn new(bench: &'a Bench, from_place: Place, to_place: Place) -> Self {
        let (from, to) = (Piece::source(bench, from_place), Piece::target(bench, to_place));
        let node = line(&to, to_place, &from, from_place);
        Self { bench, from, to, node }
    }
}

impl Job for CopyJob<'_> {
    fn add(&mut self, out: *mut Handle, graph: Handle) -> u32 {
        let copy = from_ref(&self.node).cast();
        self.bench.cuGraphAddMemcpyNode(out, graph, null(), 0, copy, self.bench.context)
    }

    fn description(&mut self) -> *mut c_void {
        from_mut(&mut self.node).cast()
    }

    fn seen(&self) -> String {
        self.to.seen(&self.from.before)
    }
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
pub(crate) struct HostNode {
    function: extern "C" fn(*mut c_void),
    data: *const AtomicU32,
    /// Only `CUgraphNodeParams` has more behind it.
    _rest: [u64; 2],
}

pub(crate) struct HostJob<'a> {
    bench: &'a Bench,
    counter: Box<AtomicU32>,
    pub(crate) node: HostNode,
}

/// A host function: adds one to the number it is given.
extern "C" fn count(counter: *mut c_void) {
    // SAFETY: every job passes the address of its counter, which outlives the graph's work.
    unsafe { &*counter.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

impl<'a> HostJob<'a> {
    pub(crate) fn new(bench: &'a Bench) -> Self {
        let counter = Box::new(AtomicU32::new(0));
        let node = HostNode { function: count, data: from_ref(&*counter), _rest: [0; 2] };
        Self { bench, counter, node }
    }
}

impl Job for HostJob<'_> {
    fn add(&mut self, out: *mut Handle, graph: Handle) -> u32 {
        self.bench.cuGraphAddHostNode(out, graph, null(), 0, from_ref(&self.node).cast())
    }

    fn description(&mut self) -> *mut c_void {
        from_mut(&mut self.node).cast()
    }

    fn seen(&self) -> String {
        format!("{}counted {}", self.bench.settle(), self.counter.load(Ordering::SeqCst))
    }
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`.
#[repr(C)]
pub(crate) struct WordsNode {
    context: Handle,
    count: u32,
    operations: *mut Operation,
    pub(crate) flags: u32,
}

pub(crate) struct WordsJob<'a> {
    bench: &'a Bench,
    target: Piece<'a>,
    _operations: Vec<Operation>,
    pub(crate) node: WordsNode,
}

impl<'a> WordsJob<'a> {
    const WRITTEN: u32 = 0x0102_0304;

    pub(crate) fn new(bench: &'a Bench) -> Self {
        let target = Piece::target(bench, Place::Device);
        let mut operations = vec![Operation::new(WRITE_32, target.at(16), Self::WRITTEN.into())];
        let (context, count) = (bench.context, operations.len() as u32);
        let node = WordsNode { context, count, operations: operations.as_mut_ptr(), flags: 0 };
        Self { bench, target, _operations: operations, node }
    }
}

impl Job for WordsJob<'_> {
    fn add(&mut self, out: *mut Handle, graph: Handle) -> u32 {
        self.bench.cuGraphAddBatchMemOpNode(out, graph, null(), 0, from_ref(&self.node).cast())
    }

    fn description(&mut self) -> *mut c_void {
        from_mut(&mut self.node).cast()
    }

    fn seen(&self) -> String {
        let mut meant = self.target.before.clone();
        meant[16..20].copy_from_slice(&Self::WRITTEN.to_le_bytes());
        self.target.seen(&meant)
    }
}

/// A graph inside of a graph, which fills a piece.
pub(crate) struct ChildJob<'a> {
    bench: &'a Bench,
    target: Piece<'a>,
    pub(crate) graph: Graph<'a>,
    /// The argument that the node is given: the graph, or null.
    pub(crate) given: Handle,
}

impl<'a> ChildJob<'a> {
    pub(crate) fn new(bench: &'a Bench) -> Self {
        let (target, graph) = (Piece::target(bench, Place::Device), Graph::new(bench));
        graph.add_fill(&target);
        let given = graph.handle;
        Self { bench, target, graph, given }
    }
}

impl Job for ChildJob<'_> {
    fn add(&mut self, out: *mut Handle, graph: Handle) -> u32 {
        self.bench.cuGraphAddChildGraphNode(out, graph, null(), 0, self.given)
    }

    fn description(&mut self) -> *mut c_void {
        self.given
    }

    fn seen(&self) -> String {
        self.target.seen(&[FILLED; SIZE])
    }
}

/// `CUgraphNodeParams`.
#[repr(C)]
pub(crate) struct AnyNode {
    kind: u32,
    _reserved: [u32; 3],
    block: [u64; 29],
    _reserved2: u64,
}
const _: () = assert!(size_of::<AnyNode>() == 256);

impl AnyNode {
    pub(crate) fn new<T>(kind: u32, description: &T) -> Self {
        let mut node = Self { kind, _reserved: [0; 3], block: [0; 29], _reserved2: 0 };
        assert!(size_of::<T>() <= size_of_val(&node.block));
        let block = (&raw mut node.block).cast::<T>();
        // SAFETY: there is room, for words as the descriptions are; none of them owns anything.
        unsafe { block.copy_from_nonoverlapping(description, 1) };
        node
    }
}
