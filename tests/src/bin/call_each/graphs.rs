//! Graphs: making them ready to run, replacing all of what is ready, and ending it.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use crate::bench::{Bench, Handle, Subject};
use crate::jobs::{FillNode, KernelNode};
use crate::kernels::axpy;
use crate::piece::{NOWHERE, Piece, Place, SIZE};

/// The byte with which graphs fill memory.
pub(crate) const FILLED: u8 = 0x41;

/// A graph. In it nodes come after no other.
pub(crate) struct Graph<'a> {
    bench: &'a Bench,
    /// Null where the driver makes none.
    pub(crate) handle: Handle,
}

impl<'a> Graph<'a> {
    pub(crate) fn new(bench: &'a Bench) -> Self {
        let mut handle = null_mut();
        bench.note("cuGraphCreate", bench.cuGraphCreate(&mut handle, 0));
        Self { bench, handle }
    }

    /// Adds a node as `add` does, which gets the places for the node and the graph.
    pub(crate) fn add(&self, add: impl FnOnce(*mut Handle, Handle) -> u32) -> Handle {
        let mut node = null_mut();
        if !self.handle.is_null() {
            self.bench.note("a new node", add(&mut node, self.handle));
        }
        node
    }

    pub(crate) fn add_fill(&self, target: &Piece) -> Handle {
        let (bench, fill) = (self.bench, FillNode::whole(target, FILLED));
        self.add(|out, graph| bench.cuGraphAddMemsetNode(out, graph, null(), 0, fill.pointer(), bench.context))
    }

    pub(crate) fn add_empty(&self) -> Handle {
        self.add(|out, graph| self.bench.cuGraphAddEmptyNode(out, graph, null(), 0))
    }

    pub(crate) fn ready(&self) -> Ready<'a> {
        let (bench, mut handle) = (self.bench, null_mut());
        if !self.handle.is_null() {
            let result = bench.cuGraphInstantiateWithFlags(&mut handle, self.handle, 0);
            bench.note("cuGraphInstantiateWithFlags", result);
        }
        Ready { bench, handle }
    }
}

impl Drop for Graph<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            self.bench.note("cuGraphDestroy", self.bench.cuGraphDestroy(self.handle));
        }
    }
}

/// A graph that is ready to run.
pub(crate) struct Ready<'a> {
    bench: &'a Bench,
    /// Null where there is none.
    pub(crate) handle: Handle,
}

impl<'a> Ready<'a> {
    /// None; for calls without a graph.
    pub(crate) fn none(bench: &'a Bench) -> Self {
        Self { bench, handle: null_mut() }
    }

    pub(crate) fn launch(&self) {
        if !self.handle.is_null() {
            self.bench.note("cuGraphLaunch", self.bench.cuGraphLaunch(self.handle, self.bench.own_stream()));
        }
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            self.bench.note("cuGraphExecDestroy", self.bench.cuGraphExecDestroy(self.handle));
        }
    }
}

/// Makes a graph of a fill and a kernel ready and runs it. `make` gets the place for the answer and the graph, and
/// adds what else it has seen.
fn instantiated(subject: &Subject, case: &str, make: impl FnOnce(*mut Handle, Handle) -> (u32, String)) {
    let bench = subject.bench;
    let (target, mut kernel) = (Piece::target(bench, Place::Device), axpy(bench, 1));
    let graph = Graph::new(bench);
    graph.add_fill(&target);
    let mut parameters = kernel.pointers();
    let node = KernelNode::new(bench.function(kernel.name), parameters.as_mut_ptr());
    graph.add(|out, graph| bench.cuGraphAddKernelNode_v2(out, graph, null(), 0, node.pointer()));
    let untouched = NOWHERE as Handle;
    let mut out = untouched;
    let (result, more) = make(&mut out, graph.handle);
    if result == 0 {
        let ready = Ready { bench, handle: out };
        ready.launch();
        let seen = format!("{more}{}, {}", target.seen(&[FILLED; SIZE]), kernel.seen());
        return subject.say(case, result, seen);
    }
    let written = if out == untouched { "untouched" } else { "written" };
    subject.say(case, result, format_args!("{more}{written}, {}, {}", target.untouched(), kernel.untouched()));
}

/// The state of a place for a node after the call.
fn node_told(node: Handle) -> &'static str {
    match node as u64 {
        NOWHERE => "untouched",
        0 => "no node",
        _ => "a node",
    }
}

/// `cuGraphInstantiate` of before CUDA 12, and its second version.
pub(crate) fn old_instantiate(
    subject: &Subject,
    make: extern "C" fn(*mut Handle, Handle, *mut Handle, *mut c_char, usize) -> u32,
) {
    let told = |out, graph| {
        const UNTOUCHED: c_char = 0x7e;
        let (mut node, mut text) = (NOWHERE as Handle, [UNTOUCHED; 100]);
        let result = make(out, graph, &mut node, text.as_mut_ptr(), text.len());
        let text = match text[0] {
            0 => "empty",
            UNTOUCHED => "untouched",
            _ => "written",
        };
        (result, format!("{}, text {text}, ", node_told(node)))
    };
    instantiated(subject, "a graph", told);
    instantiated(subject, "a graph, told nothing", |out, graph| {
        (make(out, graph, null_mut(), null_mut(), 0), String::new())
    });
    instantiated(subject, "no graph", |out, _| told(out, null_mut()));
}

/// Flags for instances.
const FLAGS: [(&str, u64); 6] = [
    ("without flags", 0),
    ("freeing its memory", 1),
    ("uploaded", 2),
    ("for launches by the device", 4),
    ("by the nodes' priorities", 8),
    ("an unknown flag", 0x80),
];

/// `cuGraphInstantiateWithFlags`.
pub(crate) fn instantiate(subject: &Subject, make: extern "C" fn(*mut Handle, Handle, u64) -> u32) {
    for (case, flags) in FLAGS {
        instantiated(subject, case, |out, graph| (make(out, graph, flags), String::new()));
    }
    instantiated(subject, "no graph", |out, _| (make(out, null_mut(), 0), String::new()));
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
struct Parameters {
    flags: u64,
    upload_stream: Handle,
    error_node: Handle,
    result: u32,
}

/// `cuGraphInstantiateWithParams`.
pub(crate) fn instantiate_with_parameters(
    subject: &Subject,
    make: extern "C" fn(*mut Handle, Handle, *mut c_void) -> u32,
) {
    let make = |out, graph, flags, upload_stream| {
        let mut parameters = Parameters { flags, upload_stream, error_node: NOWHERE as Handle, result: 77 };
        let result = make(out, graph, (&raw mut parameters).cast());
        (result, format!("{}, result {}, ", node_told(parameters.error_node), parameters.result))
    };
    let [(_, own), (_, default), ..] = subject.bench.streams();
    for (case, flags) in FLAGS {
        instantiated(subject, case, |out, graph| make(out, graph, flags, own));
    }
    instantiated(subject, "uploaded in the default stream", |out, graph| make(out, graph, 2, default));
    instantiated(subject, "no graph", |out, _| make(out, null_mut(), 0, own));
}

/// `cuGraphExecDestroy`.
pub(crate) fn destroy(subject: &Subject, destroy: extern "C" fn(Handle) -> u32) {
    let bench = subject.bench;
    for (case, launched) in [("one never launched", false), ("one at work", true)] {
        let target = Piece::target(bench, Place::Device);
        let graph = Graph::new(bench);
        graph.add_fill(&target);
        let mut ready = graph.ready();
        if launched {
            ready.launch();
        }
        let result = destroy(std::mem::replace(&mut ready.handle, null_mut()));
        let meant = if launched { vec![FILLED; SIZE] } else { target.before.clone() };
        subject.say(case, result, target.seen(&meant));
    }
    subject.say("no graph", destroy(null_mut()), bench.settle());
}

/// Replaces a graph that fills one piece by others, and runs what there is then. `update` gets the graph that is
/// ready and the new one, and says what it has seen.
fn updated(subject: &Subject, update: impl Fn(Handle, Handle) -> (u32, String)) {
    let bench = subject.bench;
    type Build = fn(&Graph, &Piece);
    let cases: [(&str, bool, bool, Build); 5] = [
        ("one that fills another piece", true, true, |graph, piece| _ = graph.add_fill(piece)),
        ("one of more nodes", true, true, |graph, piece| _ = [graph.add_fill(piece), graph.add_empty()]),
        ("one that does nothing", true, true, |graph, _| _ = graph.add_empty()),
        ("no graph", true, false, |_, _| {}),
        ("nothing is ready", false, true, |graph, piece| _ = graph.add_fill(piece)),
    ];
    for (case, is_ready, is_new, build) in cases {
        let (first, second) = (Piece::target(bench, Place::Device), Piece::target(bench, Place::Device));
        let (old, new) = (Graph::new(bench), Graph::new(bench));
        old.add_fill(&first);
        build(&new, &second);
        let ready = if is_ready { old.ready() } else { Ready::none(bench) };
        let (result, told) = update(ready.handle, if is_new { new.handle } else { null_mut() });
        ready.launch();
        let meant = [FILLED; SIZE];
        let seen = format!("{told}, old {}, new {}", first.seen(&meant), second.seen(&meant));
        subject.say(case, result, seen);
    }
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
struct Told {
    result: u32,
    node: Handle,
    from: Handle,
}

/// `cuGraphExecUpdate_v2`.
pub(crate) fn update(subject: &Subject, update: extern "C" fn(Handle, Handle, *mut c_void) -> u32) {
    updated(subject, |ready, graph| {
        let untouched = NOWHERE as Handle;
        let mut told = Told { result: 77, node: untouched, from: untouched };
        let result = update(ready, graph, (&raw mut told).cast());
        (result, format!("result {}, {}, from {}", told.result, node_told(told.node), node_told(told.from)))
    });
}

/// `cuGraphExecUpdate` of before CUDA 12.
pub(crate) fn old_update(subject: &Subject, update: extern "C" fn(Handle, Handle, *mut Handle, *mut c_int) -> u32) {
    updated(subject, |ready, graph| {
        let (mut node, mut told) = (NOWHERE as Handle, 77);
        let result = update(ready, graph, &mut node, &mut told);
        (result, format!("result {told}, {}", node_told(node)))
    });
}
