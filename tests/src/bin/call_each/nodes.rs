//! Nodes of graphs that are ready to run, which are given something else to do.
//!
//! In each case a graph of one node is made for a first job and changed to a second one. Then it is launched, and
//! both jobs say whether they were done.

use std::ffi::c_void;
use std::fmt::Display;
use std::ptr::{null, null_mut};

use crate::bench::{Handle, Subject};
use crate::graphs::{Graph, Ready};
use crate::jobs::{AnyNode, ChildJob, CopyJob, FillJob, HostJob, Job, KernelJob, Spoil, WordsJob};
use crate::piece::{Place, SIZE};

/// One case; `set` gets the graph, the node and the second job.
fn changed<J: Job>(
    subject: &Subject,
    case: impl Display,
    new: impl Fn() -> J,
    set: impl FnOnce(Handle, Handle, &mut J) -> u32,
) {
    let bench = subject.bench;
    let (mut first, mut second) = (new(), new());
    let graph = Graph::new(bench);
    let node = graph.add(|out, graph| first.add(out, graph));
    // Nothing is known of a graph without its node: it is not asked about.
    let ready = if node.is_null() { Ready::none(bench) } else { graph.ready() };
    let result = set(ready.handle, node, &mut second);
    ready.launch();
    subject.say(case, result, format_args!("old {}, new {}", first.seen(), second.seen()));
}

/// All cases of one kind of job.
fn changes<J: Job>(
    subject: &Subject,
    what: &str,
    new: impl Fn() -> J,
    spoils: &[Spoil<J>],
    set: impl Fn(Handle, Handle, &mut J) -> u32,
) {
    changed(subject, what, &new, &set);
    for (case, spoil) in spoils {
        changed(subject, format_args!("{what}, {case}"), &new, |graph, node, job| {
            spoil(job);
            set(graph, node, job)
        });
    }
    changed(subject, format_args!("{what}, no graph"), &new, |_, node, job| set(null_mut(), node, job));
    changed(subject, format_args!("{what}, no node"), &new, |graph, _, job| set(graph, null_mut(), job));
}

/// Graph, node, what it shall do.
type Set = extern "C" fn(Handle, Handle, *const c_void) -> u32;
type SetIn = extern "C" fn(Handle, Handle, *const c_void, Handle) -> u32;

/// `cuGraphExecKernelNodeSetParams_v2`.
pub(crate) fn kernel(subject: &Subject, set: Set) {
    let spoils: [Spoil<KernelJob>; 3] = [
        ("in one buffer", KernelJob::use_buffer),
        ("a library's", KernelJob::use_library),
        ("too many threads", KernelJob::spoil),
    ];
    changes(
        subject,
        "a kernel",
        || KernelJob::new(subject.bench),
        &spoils,
        |graph, node, job| set(graph, node, job.description()),
    );
}

/// `cuGraphExecKernelNodeSetParams` of before CUDA 12.
pub(crate) fn old_kernel(subject: &Subject, set: Set) {
    let spoils: [Spoil<KernelJob>; 2] =
        [("in one buffer", KernelJob::use_buffer), ("too many threads", KernelJob::spoil)];
    changes(
        subject,
        "a kernel",
        || KernelJob::new(subject.bench),
        &spoils,
        |graph, node, job| set(graph, node, job.description()),
    );
}

type Add = extern "C" fn(*mut Handle, Handle, *const Handle, usize, *const c_void, Handle) -> u32;

/// Adds a job's node, launches the graph, and says whether the job was done.
fn added<J: Job>(subject: &Subject, case: &str, mut job: J, add: impl FnOnce(*mut Handle, Handle, &mut J) -> u32) {
    let bench = subject.bench;
    let graph = Graph::new(bench);
    let mut result = 0;
    let node = graph.add(|out, graph| {
        result = add(out, graph, &mut job);
        result
    });
    let ready = if node.is_null() { Ready::none(bench) } else { graph.ready() };
    ready.launch();
    subject.say(case, result, job.seen());
}

/// `cuGraphAddMemcpyNode`.
pub(crate) fn add_copy(subject: &Subject, add: Add) {
    let bench = subject.bench;
    let add = |out, graph, job: &mut CopyJob| add(out, graph, null(), 0, job.description(), bench.context);
    added(subject, "device to device", CopyJob::new(bench, Place::Device, Place::Device), add);
    added(subject, "host to device", CopyJob::new(bench, Place::Pinned, Place::Device), add);
    let mut wrong = CopyJob::new(bench, Place::Device, Place::Device);
    wrong.node.to.kind = 9;
    added(subject, "to an unknown kind of memory", wrong, add);
}

/// `cuGraphAddMemsetNode`.
pub(crate) fn add_fill(subject: &Subject, add: Add) {
    let bench = subject.bench;
    let add = |out, graph, job: &mut FillJob| add(out, graph, null(), 0, job.description(), bench.context);
    added(subject, "a fill", FillJob::new(bench), add);
    let mut wrong = FillJob::new(bench);
    wrong.node.element = 3;
    added(subject, "elements of 3", wrong, add);
}

/// `cuGraphAddBatchMemOpNode`.
pub(crate) fn add_words(
    subject: &Subject,
    add: extern "C" fn(*mut Handle, Handle, *const Handle, usize, *const c_void) -> u32,
) {
    let bench = subject.bench;
    let add = |out, graph, job: &mut WordsJob| add(out, graph, null(), 0, job.description());
    added(subject, "a word", WordsJob::new(bench), add);
    let mut wrong = WordsJob::new(bench);
    wrong.node.flags = 99;
    added(subject, "unknown flags", wrong, add);
}

/// `cuGraphAddNode`, through what takes the same without edges.
type AddAny = dyn Fn(*mut Handle, Handle, *mut c_void) -> u32;

fn add_any_to(subject: &Subject, add: &AddAny) {
    let bench = subject.bench;
    let add = |out, graph, mut node: AnyNode| add(out, graph, (&raw mut node).cast());
    added(subject, "a kernel", KernelJob::new(bench), |out, graph, job| add(out, graph, AnyNode::new(0, &job.node)));
    added(subject, "a fill", FillJob::new(bench), |out, graph, job| add(out, graph, AnyNode::new(2, &job.node)));
    added(subject, "a word", WordsJob::new(bench), |out, graph, job| add(out, graph, AnyNode::new(12, &job.node)));
    added(subject, "an unknown kind", FillJob::new(bench), |out, graph, job| {
        add(out, graph, AnyNode::new(99, &job.node))
    });
}

/// `cuGraphAddNode`.
pub(crate) fn add_any(
    subject: &Subject,
    add: extern "C" fn(*mut Handle, Handle, *const Handle, usize, *mut c_void) -> u32,
) {
    add_any_to(subject, &move |out, graph, node| add(out, graph, null(), 0, node));
}

/// `cuGraphAddNode_v2`.
pub(crate) fn add_any_2(
    subject: &Subject,
    add: extern "C" fn(*mut Handle, Handle, *const Handle, *const c_void, usize, *mut c_void) -> u32,
) {
    add_any_to(subject, &move |out, graph, node| add(out, graph, null(), null(), 0, node));
}

type Change = extern "C" fn(Handle, *const c_void) -> u32;

/// Makes a graph's node do something else before the graph is made ready.
fn rewritten<J: Job>(subject: &Subject, case: &str, new: impl Fn() -> J, set: impl FnOnce(Handle, &mut J) -> u32) {
    let bench = subject.bench;
    let (mut first, mut second) = (new(), new());
    let graph = Graph::new(bench);
    let node = graph.add(|out, graph| first.add(out, graph));
    let result = set(node, &mut second);
    let ready = if node.is_null() { Ready::none(bench) } else { graph.ready() };
    ready.launch();
    subject.say(case, result, format_args!("old {}, new {}", first.seen(), second.seen()));
}

/// `cuGraphMemcpyNodeSetParams`.
pub(crate) fn rewrite_copy(subject: &Subject, set: Change) {
    let bench = subject.bench;
    let new = || CopyJob::new(bench, Place::Device, Place::Device);
    rewritten(subject, "a copy", new, |node, job| set(node, job.description()));
    rewritten(subject, "to an unknown kind of memory", new, |node, job| {
        job.node.to.kind = 9;
        set(node, job.description())
    });
    rewritten(subject, "no node", new, |_, job| set(null_mut(), job.description()));
}

/// `cuGraphMemsetNodeSetParams`.
pub(crate) fn rewrite_fill(subject: &Subject, set: Change) {
    let new = || FillJob::new(subject.bench);
    rewritten(subject, "a fill", new, |node, job| set(node, job.description()));
    rewritten(subject, "elements of 3", new, |node, job| {
        job.node.element = 3;
        set(node, job.description())
    });
    rewritten(subject, "no node", new, |_, job| set(null_mut(), job.description()));
}

/// `cuGraphBatchMemOpNodeSetParams`.
pub(crate) fn rewrite_words(subject: &Subject, set: Change) {
    let new = || WordsJob::new(subject.bench);
    rewritten(subject, "a word", new, |node, job| set(node, job.description()));
    rewritten(subject, "unknown flags", new, |node, job| {
        job.node.flags = 99;
        set(node, job.description())
    });
    rewritten(subject, "no node", new, |_, job| set(null_mut(), job.description()));
}

/// `cuGraphNodeSetParams`.
pub(crate) fn rewrite_any(subject: &Subject, set: extern "C" fn(Handle, *mut c_void) -> u32) {
    let bench = subject.bench;
    let set = |node, mut to: AnyNode| set(node, (&raw mut to).cast());
    rewritten(subject, "a kernel", || KernelJob::new(bench), |node, job| set(node, AnyNode::new(0, &job.node)));
    rewritten(subject, "a fill", || FillJob::new(bench), |node, job| set(node, AnyNode::new(2, &job.node)));
    rewritten(subject, "an unknown kind", || FillJob::new(bench), |node, job| set(node, AnyNode::new(99, &job.node)));
}

/// `cuGraphExecMemcpyNodeSetParams`.
pub(crate) fn copy(subject: &Subject, set: SetIn) {
    let bench = subject.bench;
    let spoils: [Spoil<CopyJob>; 3] = [
        ("to null", |job| job.node.to.device = 0),
        ("to an unknown kind of memory", |job| job.node.to.kind = 9),
        ("of two rows", |job| {
            (job.node.width, job.node.height) = (SIZE / 2, 2);
            (job.node.from.pitch, job.node.to.pitch) = (SIZE / 2, SIZE / 2);
        }),
    ];
    let routes = [
        ("device to device", Place::Device, Place::Device, &spoils[..]),
        ("host to device", Place::Pinned, Place::Device, &[]),
        ("device to host", Place::Device, Place::Pinned, &[]),
    ];
    for (what, from, to, spoils) in routes {
        changes(
            subject,
            what,
            || CopyJob::new(bench, from, to),
            spoils,
            |graph, node, job| set(graph, node, job.description(), bench.context),
        );
    }
}

/// `cuGraphExecMemsetNodeSetParams`.
pub(crate) fn fill(subject: &Subject, set: SetIn) {
    let bench = subject.bench;
    changes(
        subject,
        "a fill",
        || FillJob::new(bench),
        &FillJob::spoils(),
        |graph, node, job| set(graph, node, job.description(), bench.context),
    );
}

/// `cuGraphExecHostNodeSetParams`.
pub(crate) fn host(subject: &Subject, set: Set) {
    changes(
        subject,
        "a function",
        || HostJob::new(subject.bench),
        &[],
        |graph, node, job| set(graph, node, job.description()),
    );
}

/// `cuGraphExecBatchMemOpNodeSetParams`.
pub(crate) fn words(subject: &Subject, set: Set) {
    let spoils: [Spoil<WordsJob>; 1] = [("unknown flags", |job| job.node.flags = 99)];
    changes(
        subject,
        "a word",
        || WordsJob::new(subject.bench),
        &spoils,
        |graph, node, job| set(graph, node, job.description()),
    );
}

/// `cuGraphExecChildGraphNodeSetParams`.
pub(crate) fn child(subject: &Subject, set: extern "C" fn(Handle, Handle, Handle) -> u32) {
    let spoils: [Spoil<ChildJob>; 2] =
        [("of more nodes", |job| _ = job.graph.add_empty()), ("null", |job| job.given = null_mut())];
    changes(
        subject,
        "a graph",
        || ChildJob::new(subject.bench),
        &spoils,
        |graph, node, job| set(graph, node, job.description()),
    );
}

/// `cuGraphExecNodeSetParams`.
pub(crate) fn any(subject: &Subject, set: extern "C" fn(Handle, Handle, *mut c_void) -> u32) {
    let bench = subject.bench;
    let set = |graph, node, mut to: AnyNode| set(graph, node, (&raw mut to).cast());
    let spoils: [Spoil<KernelJob>; 2] =
        [("a library's", KernelJob::use_library), ("too many threads", KernelJob::spoil)];
    changes(
        subject,
        "a kernel",
        || KernelJob::new(bench),
        &spoils,
        |graph, node, job| set(graph, node, AnyNode::new(0, &job.node)),
    );
    changes(
        subject,
        "a fill",
        || FillJob::new(bench),
        &FillJob::spoils(),
        |graph, node, job| set(graph, node, AnyNode::new(2, &job.node)),
    );
    changes(
        subject,
        "a function",
        || HostJob::new(bench),
        &[],
        |graph, node, job| set(graph, node, AnyNode::new(3, &job.node)),
    );
    changes(
        subject,
        "a word",
        || WordsJob::new(bench),
        &[],
        |graph, node, job| set(graph, node, AnyNode::new(12, &job.node)),
    );
    changed(
        subject,
        "an unknown kind",
        || FillJob::new(bench),
        |graph, node, job| set(graph, node, AnyNode::new(99, &job.node)),
    );
}
