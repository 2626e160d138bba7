//! Recording what is given to a stream into a graph.
//!
//! Memory is made before a capture and freed after it, and no thread waits in between: all of that could break it.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use crate::bench::{Bench, Handle, Stream, Subject, on};
use crate::piece::{NOWHERE, Piece, Place, SIZE};

/// The other calls that a capture minds: any thread's, the capturing thread's, or none.
const GLOBAL: c_int = 0;
const OF_THE_THREAD: c_int = 1;
pub(crate) const RELAXED: c_int = 2;
const MODES: [(&str, c_int); 3] = [("global", GLOBAL), ("of the thread", OF_THE_THREAD), ("relaxed", RELAXED)];
const UNKNOWN_MODE: c_int = 9;

/// Tells whether a stream is in a capture.
pub(crate) fn status(bench: &Bench, stream: Handle) -> String {
    let mut status = 77;
    let result = bench.cuStreamIsCapturing(stream, &mut status);
    format!("status {result} {status}")
}

/// How much is in a graph, which is destroyed.
fn recorded(bench: &Bench, graph: Handle) -> String {
    if graph.is_null() {
        return "no graph".to_owned();
    }
    let (mut nodes, mut edges) = (0, 0);
    bench.note("cuGraphGetNodes", bench.cuGraphGetNodes(graph, null_mut(), &mut nodes));
    bench.note("cuGraphGetEdges", bench.cuGraphGetEdges(graph, null_mut(), null_mut(), &mut edges));
    bench.note("cuGraphDestroy", bench.cuGraphDestroy(graph));
    format!("{nodes} nodes, {edges} edges")
}

/// Ends a stream's capture and says what it recorded.
pub(crate) fn ended(bench: &Bench, stream: Handle) -> String {
    let mut graph = null_mut();
    let result = bench.cuStreamEndCapture(stream, &mut graph);
    format!("end {result}, {}", recorded(bench, graph))
}

/// Gives a stream two things to do.
fn work(bench: &Bench, target: &Piece, stream: Handle) {
    for byte in [1, 2] {
        bench.note("cuMemsetD8Async", bench.cuMemsetD8Async(target.at(0), byte, SIZE, stream));
    }
}

/// Begins a capture, records work if it has begun, and ends it as `end` does.
fn captured(
    subject: &Subject,
    case: impl std::fmt::Display,
    stream: Stream,
    begin: impl Fn(Handle) -> u32,
    end: impl Fn(Handle) -> String,
) {
    let bench = subject.bench;
    let target = Piece::target(bench, Place::Device);
    let result = begin(stream.1);
    let meant = subject.meant(stream.1);
    let during = status(bench, meant);
    if result == 0 {
        work(bench, &target, meant);
    }
    let end = end(meant);
    let after = status(bench, meant);
    let seen = format!("{during}, {end}, {after}, {}", target.untouched());
    subject.say(format_args!("{case}{}", on(stream)), result, seen);
}

/// Begins a capture that is there already.
fn twice(subject: &Subject, begin: impl Fn(Handle) -> u32) {
    let bench = subject.bench;
    let own = bench.own_stream();
    bench.note("cuStreamBeginCapture_v2", bench.cuStreamBeginCapture_v2(own, RELAXED));
    let result = begin(own);
    let during = status(bench, own);
    let end = ended(bench, own);
    subject.say("in a capture", result, format_args!("{during}, {end}, {}", status(bench, own)));
}

/// Calls a function in a capture that not every capture bears.
fn disturbed(subject: &Subject, case: impl std::fmt::Display, begin: impl Fn(Handle) -> u32) {
    let bench = subject.bench;
    let own = bench.own_stream();
    let result = begin(own);
    let mut address = NOWHERE;
    let given = bench.cuMemAlloc_v2(&mut address, SIZE);
    let during = status(bench, own);
    let end = ended(bench, own);
    if given == 0 {
        bench.note("cuMemFree_v2", bench.cuMemFree_v2(address));
    }
    let after = status(bench, own);
    subject.say(case, result, format_args!("allocation {given}, {during}, {end}, {after}"));
}

/// `cuStreamBeginCapture_v2`.
pub(crate) fn begin(subject: &Subject, begin: extern "C" fn(Handle, c_int) -> u32) {
    let bench = subject.bench;
    let streams = bench.streams();
    for stream in &streams[1..] {
        captured(subject, "relaxed", *stream, |stream| begin(stream, RELAXED), |stream| ended(bench, stream));
    }
    for (name, mode) in MODES {
        captured(subject, name, streams[0], |stream| begin(stream, mode), |stream| ended(bench, stream));
        disturbed(subject, format_args!("{name}, and an allocation"), |stream| begin(stream, mode));
    }
    let unknown = |stream| begin(stream, UNKNOWN_MODE);
    captured(subject, "in an unknown mode", streams[0], unknown, |stream| ended(bench, stream));
    twice(subject, |stream| begin(stream, RELAXED));
}

/// `cuStreamBeginCapture` of before CUDA 10.1, which knew one mode.
pub(crate) fn old_begin(subject: &Subject, begin: extern "C" fn(Handle) -> u32) {
    let bench = subject.bench;
    for stream in bench.streams() {
        captured(subject, "global", stream, |stream| begin(stream), |stream| ended(bench, stream));
    }
    disturbed(subject, "global, and an allocation", |stream| begin(stream));
    twice(subject, |stream| begin(stream));
}

/// Stream, graph, nodes to come after, kinds of edges to them, how many, mode.
type BeginToGraph = extern "C" fn(Handle, Handle, *const Handle, *const c_void, usize, c_int) -> u32;

/// `cuStreamBeginCaptureToGraph`.
pub(crate) fn begin_to_graph(subject: &Subject, begin: BeginToGraph) {
    let bench = subject.bench;
    let streams = bench.streams();
    let new = || {
        let (mut graph, mut node) = (null_mut(), null_mut());
        bench.note("cuGraphCreate", bench.cuGraphCreate(&mut graph, 0));
        if !graph.is_null() {
            bench.note("cuGraphAddEmptyNode", bench.cuGraphAddEmptyNode(&mut node, graph, null(), 0));
        }
        (graph, node)
    };
    // Gives the graph that was captured to, or else ours, which must not be destroyed twice.
    let end = |stream, graph: Handle| {
        let mut captured = null_mut();
        let result = bench.cuStreamEndCapture(stream, &mut captured);
        let same = captured == graph;
        format!("end {result}, the same graph {same}, {}", recorded(bench, graph))
    };
    for stream in streams {
        let (graph, _) = new();
        let begin = |stream| begin(stream, graph, null(), null(), 0, RELAXED);
        captured(subject, "beside a node", stream, begin, |stream| end(stream, graph));
    }
    for (name, mode) in MODES {
        let (graph, node) = new();
        let begin = |stream| begin(stream, graph, &node, null(), 1, mode);
        captured(subject, format_args!("after a node, {name}"), streams[0], begin, |stream| end(stream, graph));
    }
    let (graph, _) = new();
    let unknown = |stream| begin(stream, graph, null(), null(), 0, UNKNOWN_MODE);
    captured(subject, "in an unknown mode", streams[0], unknown, |stream| end(stream, graph));
    let (graph, _) = new();
    twice(subject, |stream| begin(stream, graph, null(), null(), 0, RELAXED));
    recorded(bench, graph);
}

/// Told of a node whose parameters differ: its own argument, the node, the parameters before and now, and if they can be changed.
pub(crate) type Changed = Option<extern "C" fn(*mut c_void, Handle, *const c_void, *const c_void, c_int) -> u32>;

/// Counts how often it was called, by the number of a node's kind.
extern "C" fn allow(kinds: *mut c_void, _: Handle, before: *const c_void, now: *const c_void, _: c_int) -> u32 {
    // SAFETY: a number of ours, and two structures that begin with what kind of node it is.
    let (kinds, before, now) = unsafe { (&mut *kinds.cast::<c_int>(), *before.cast::<c_int>(), *now.cast::<c_int>()) };
    *kinds += 1000 + 10 * before + now;
    0
}

extern "C" fn refuse(_: *mut c_void, _: Handle, _: *const c_void, _: *const c_void, _: c_int) -> u32 {
    1
}

type BeginAgain = extern "C" fn(Handle, c_int, Handle, Changed, *mut c_void) -> u32;

/// `cuStreamBeginRecaptureToGraph`: of a graph with a fill by one byte, as which another byte is recorded.
pub(crate) fn begin_again(subject: &Subject, begin: BeginAgain) {
    let bench = subject.bench;
    let own = bench.own_stream();
    let (old, new) = (17, 34);
    let run = |case: &str, changed: Changed, mode: c_int, times: usize, stream: Stream| {
        let target = Piece::target(bench, Place::Device);
        let (mut graph, mut again, mut exec) = (null_mut(), null_mut(), null_mut());
        bench.note("cuStreamBeginCapture_v2", bench.cuStreamBeginCapture_v2(own, RELAXED));
        bench.note("cuMemsetD8Async", bench.cuMemsetD8Async(target.at(0), old, SIZE, own));
        bench.note("cuStreamEndCapture", bench.cuStreamEndCapture(own, &mut graph));
        let mut kinds: c_int = 0;
        let result = begin(stream.1, mode, graph, changed, (&raw mut kinds).cast());
        let meant = subject.meant(stream.1);
        let mut filled = Vec::new();
        if result == 0 {
            filled = (0..times).map(|_| bench.cuMemsetD8Async(target.at(0), new, SIZE, meant)).collect();
        }
        let end = bench.cuStreamEndCapture(meant, &mut again);
        let seen = if end == 0 && again == graph && !graph.is_null() {
            bench.note("cuGraphInstantiateWithFlags", bench.cuGraphInstantiateWithFlags(&mut exec, again, 0));
            bench.note("cuGraphLaunch", bench.cuGraphLaunch(exec, own));
            let seen = target.seen(&vec![new; SIZE]);
            bench.note("cuGraphExecDestroy", bench.cuGraphExecDestroy(exec));
            seen
        } else {
            target.untouched()
        };
        if !graph.is_null() {
            bench.note("cuGraphDestroy", bench.cuGraphDestroy(graph));
        }
        subject.say(
            format_args!("{case}{}", on(stream)),
            result,
            format_args!("fills {filled:?}, end {end}, kinds {kinds}, {seen}"),
        );
    };
    let streams = bench.streams();
    for stream in streams {
        run("a fill as another", Some(allow), RELAXED, 1, stream);
    }
    run("nobody asks", None, RELAXED, 1, streams[0]);
    run("what is refused", Some(refuse), RELAXED, 1, streams[0]);
    run("nothing of it", Some(allow), RELAXED, 0, streams[0]);
    run("more than there was", Some(allow), RELAXED, 2, streams[0]);
    run("in an unknown mode", Some(allow), UNKNOWN_MODE, 1, streams[0]);
    let result = begin(own, RELAXED, null_mut(), None, null_mut());
    subject.say("no graph", result, status(bench, own));
}

/// `cuStreamBeginCaptureToCig`: no context of ours can.
pub(crate) fn begin_to_list(subject: &Subject, begin: extern "C" fn(Handle, *mut c_void) -> u32) {
    let bench = subject.bench;
    subject.say("no list", begin(bench.own_stream(), null_mut()), status(bench, bench.own_stream()));
}

type End = extern "C" fn(Handle, *mut Handle) -> u32;

/// The result of the subject's end of a capture; the answer comes first.
fn told(bench: &Bench, end: End, stream: Handle) -> (u32, String) {
    let untouched = NOWHERE as Handle;
    let mut graph = untouched;
    let result = end(stream, &mut graph);
    let seen = if graph == untouched { "untouched".to_owned() } else { recorded(bench, graph) };
    (result, format!("{seen}, {}", status(bench, stream)))
}

/// `cuStreamEndCapture`.
pub(crate) fn end(subject: &Subject, end: End) {
    let bench = subject.bench;
    let streams = bench.streams();
    let begin = |stream, mode| {
        let result = bench.cuStreamBeginCapture_v2(stream, mode);
        bench.note("cuStreamBeginCapture_v2", result);
        result == 0
    };
    for stream in streams {
        let (result, seen) = told(bench, end, stream.1);
        subject.say(format_args!("no capture{}", on(stream)), result, seen);

        let target = Piece::target(bench, Place::Device);
        let meant = subject.meant(stream.1);
        if begin(meant, RELAXED) {
            work(bench, &target, meant);
        }
        let (result, seen) = told(bench, end, stream.1);
        subject.say(format_args!("a capture{}", on(stream)), result, format_args!("{seen}, {}", target.untouched()));
    }
    let own = bench.own_stream();
    begin(own, RELAXED);
    let (result, seen) = told(bench, end, own);
    subject.say("an empty capture", result, seen);

    begin(own, RELAXED);
    let broken = bench.cuStreamQuery(own);
    let (result, seen) = told(bench, end, own);
    subject.say("a broken capture", result, format_args!("broken by {broken}, {seen}"));

    for (name, mode) in MODES {
        begin(own, mode);
        let elsewhere = in_another_thread(end, own);
        let rest = ended(bench, own);
        subject.say(format_args!("in another thread, {name}"), elsewhere, format_args!("{}{rest}", bench.settle()));
    }
    forked(subject, end);
}

/// Ends a capture in a thread that has no context.
fn in_another_thread(end: End, stream: Handle) -> u32 {
    let stream = stream as usize;
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let mut graph = null_mut();
            end(stream as Handle, &mut graph)
        });
        thread.join().expect("nothing panics there")
    })
}

/// Ends captures that have spread to a second stream: in that one, and before it has come back.
fn forked(subject: &Subject, end: End) {
    const NON_BLOCKING: u32 = 1;
    let bench = subject.bench;
    let own = bench.own_stream();
    for (case, in_the_second) in [("in a stream that has joined", true), ("before a stream has come back", false)] {
        let target = Piece::target(bench, Place::Device);
        let (mut event, mut second) = (null_mut(), null_mut());
        bench.note("cuEventCreate", bench.cuEventCreate(&mut event, 0));
        bench.note("cuStreamCreate", bench.cuStreamCreate(&mut second, NON_BLOCKING));
        bench.note("cuStreamBeginCapture_v2", bench.cuStreamBeginCapture_v2(own, RELAXED));
        bench.note("cuEventRecord", bench.cuEventRecord(event, own));
        bench.note("cuStreamWaitEvent", bench.cuStreamWaitEvent(second, event, 0));
        if !second.is_null() {
            work(bench, &target, second);
        }
        let (result, seen) = told(bench, end, if in_the_second { second } else { own });
        let rest = if in_the_second { format!("{}, ", ended(bench, own)) } else { String::new() };
        let after = format!("{}, {}", status(bench, own), status(bench, second));
        subject.say(case, result, format_args!("{seen}; {rest}{after}, {}", target.untouched()));
        if !second.is_null() {
            bench.note("cuStreamDestroy_v2", bench.cuStreamDestroy_v2(second));
            bench.note("cuEventDestroy_v2", bench.cuEventDestroy_v2(event));
        }
    }
}
