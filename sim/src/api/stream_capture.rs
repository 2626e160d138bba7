//! Capturing streams into graphs: the calls. `graph/capture.rs` does the work.

use super::abi::{EdgeData, NodeParams};
use super::arguments::current;
use super::graph_parts::{find_graph, plain_edges};
use super::node_work;
use crate::border::{List, Out};
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::context::Context;
use crate::exec::submit::{self, Default};
use crate::graph::capture::{self, Capture, MODE_GLOBAL};
use crate::graph::{Graph, Work};
use crate::state;

doors! {
    cuStreamBeginCapture / cuStreamBeginCapture_ptsz: "cuStreamBeginCapture" 10000 / 10000
        (stream: usize) = begin_global;
    cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz: "cuStreamBeginCapture" 10010 / 10010
        (stream: usize, mode: u32) = begin;
    cuStreamBeginCaptureToGraph / cuStreamBeginCaptureToGraph_ptsz: "cuStreamBeginCaptureToGraph" 12030 / 12030
        (stream: usize, graph: usize, after: List<usize>, edges: List<EdgeData>, count: usize, mode: u32) = begin_to_graph;
    cuStreamBeginRecaptureToGraph / cuStreamBeginRecaptureToGraph_ptsz: "cuStreamBeginRecaptureToGraph" 13030 / 13030
        (stream: usize, mode: u32, graph: usize, changed: Option<Changed>, data: usize) = begin_again;
    cuStreamEndCapture / cuStreamEndCapture_ptsz: "cuStreamEndCapture" 10000 / 10000
        (stream: usize, graph: Out<usize>) = end;
    cuStreamIsCapturing / cuStreamIsCapturing_ptsz: "cuStreamIsCapturing" 10000 / 10000
        (stream: usize, status: Out<u32>) = is_capturing;
    cuStreamGetCaptureInfo / cuStreamGetCaptureInfo_ptsz: "cuStreamGetCaptureInfo" 10010 / 10010
        (stream: usize, status: Out<u32>, id: Out<u64>) = info;
    cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz: "cuStreamGetCaptureInfo" 11030 / 11030
        (stream: usize, status: Out<u32>, id: Out<u64>, graph: Out<usize>, after: Out<usize>,
         count: Out<usize>) = info_v2;
    cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz: "cuStreamGetCaptureInfo" 12030 / 12030
        (stream: usize, status: Out<u32>, id: Out<u64>, graph: Out<usize>, after: Out<usize>,
         edges: Out<usize>, count: Out<usize>) = info_v3;
    cuStreamUpdateCaptureDependencies / cuStreamUpdateCaptureDependencies_ptsz:
        "cuStreamUpdateCaptureDependencies" 11030 / 11030
        (stream: usize, after: List<usize>, count: usize, flags: u32) = update;
    cuStreamUpdateCaptureDependencies_v2 / cuStreamUpdateCaptureDependencies_v2_ptsz:
        "cuStreamUpdateCaptureDependencies" 12030 / 12030
        (stream: usize, after: List<usize>, edges: List<EdgeData>, count: usize, flags: u32) = update_v2;
    cuThreadExchangeStreamCaptureMode: "cuThreadExchangeStreamCaptureMode" 10010 (mode: Out<u32>) = exchange_mode;
}

/// `CUstreamCaptureStatus`
const NONE: u32 = 0;
const ACTIVE: u32 = 1;
const INVALIDATED: u32 = 2;

fn begin_global(default: Default, stream: usize) -> Outcome {
    begin(default, stream, MODE_GLOBAL)
}

fn begin(default: Default, stream: usize, mode: u32) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    let owner = Context::of(&stream)?;
    owner.pass_objects();
    capture::begin(&stream, mode, Graph::make(&state::driver()?.graphs), Vec::new())
}

fn begin_to_graph(
    default: Default,
    stream: usize,
    graph: usize,
    after: List<usize>,
    edges: List<EdgeData>,
    count: usize,
    mode: u32,
) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    let owner = Context::of(&stream)?;
    owner.pass_objects();
    let graph = state::driver()?.graphs.known.get(graph)?;
    plain_edges(edges, count)?;
    let after = after.read(count)?;
    if after.iter().any(|node| !graph.nodes().contains_key(node)) {
        return Err(Status::INVALID_VALUE);
    }
    capture::begin(&stream, mode, graph, after)
}

/// `CUgraphRecaptureCallback`. Its arguments: the program's own value, the node, its parameters before and now, and
/// whether the node can be updated.
type Changed = extern "C" fn(usize, usize, *const NodeParams, *const NodeParams, u32) -> u32;

fn begin_again(
    default: Default,
    stream: usize,
    mode: u32,
    graph: usize,
    changed: Option<Changed>,
    data: usize,
) -> Outcome {
    // `CU_GRAPH_RECAPTURE_ELIGIBLE_FOR_UPDATE`
    const ELIGIBLE: u32 = 0;
    let stream = submit::resolve(default, stream)?;
    let owner = Context::of(&stream)?;
    owner.pass_objects();
    let graph = find_graph(graph)?;
    let tell = move |node, before: &Work, now: &Work| {
        let Some(changed) = changed else { return Ok(()) };
        let [before, now] = [node_work::tell(before)?, node_work::tell(now)?];
        Status::from_code(changed(data, node, &before, &now, ELIGIBLE)).map_or(Ok(()), Err)
    };
    capture::begin_again(&stream, mode, graph, Box::new(tell))
}

fn end(default: Default, stream: usize, graph: Out<usize>) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    graph.required()?;
    graph.set(0)?;
    graph.set(capture::end(&stream)?.handle)
}

fn is_capturing(default: Default, stream: usize, status: Out<u32>) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    status.required()?;
    capture::check_legacy_is_free(&stream)?;
    let tail = capture::lock(&stream);
    status.set(tail.as_ref().map_or(NONE, |tail| status_of(Capture::of(tail))))
}

fn status_of(capture: &Capture) -> u32 {
    if capture.is_invalid() { INVALIDATED } else { ACTIVE }
}

fn info(default: Default, stream: usize, status: Out<u32>, id: Out<u64>) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    status.required()?;
    capture::check_legacy_is_free(&stream)?;
    let tail = capture::lock(&stream);
    let Some(tail) = tail.as_ref() else { return status.set(NONE) };
    id.offer(Capture::of(tail).id);
    status.set(status_of(Capture::of(tail)))
}

fn info_v2(
    default: Default,
    stream: usize,
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<usize>,
    after: Out<usize>,
    count: Out<usize>,
) -> Outcome {
    info(default, stream, status, id)?;
    let stream = submit::resolve(default, stream)?;
    let tail = capture::lock(&stream);
    if let Some(tail) = tail.as_ref().filter(|tail| !Capture::of(tail).is_invalid()) {
        graph.offer(Capture::of(tail).graph.handle);
        // Valid until the next call about this stream, as the driver says.
        after.offer(tail.after.as_ptr().expose_provenance());
        count.offer(tail.after.len());
    }
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn info_v3(
    default: Default,
    stream: usize,
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<usize>,
    after: Out<usize>,
    edges: Out<usize>,
    count: Out<usize>,
) -> Outcome {
    // All edges are plain ones, which need no description.
    edges.offer(0);
    info_v2(default, stream, status, id, graph, after, count)
}

fn update(default: Default, stream: usize, after: List<usize>, count: usize, flags: u32) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    let after = after.read(count)?;
    let mut tail = capture::lock(&stream);
    let tail = tail.as_mut().ok_or(Status::ILLEGAL_STATE)?;
    Capture::of(tail).check()?;
    if flags > 1 || after.iter().any(|node| !Capture::of(tail).graph.nodes().contains_key(node)) {
        return Err(Status::INVALID_VALUE);
    }
    const SET: u32 = 1;
    if flags == SET {
        tail.after = after;
    } else {
        tail.after.extend(after);
        tail.after.sort_unstable();
        tail.after.dedup();
    }
    Ok(())
}

fn update_v2(
    default: Default,
    stream: usize,
    after: List<usize>,
    edges: List<EdgeData>,
    count: usize,
    flags: u32,
) -> Outcome {
    current()?;
    plain_edges(edges, count)?;
    update(default, stream, after, count, flags)
}

fn exchange_mode(mode: Out<u32>) -> Outcome {
    mode.set(capture::exchange_mode(mode.get()?)?)
}
