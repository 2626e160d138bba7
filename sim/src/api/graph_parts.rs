//! Graphs and nodes by their handles, for all calls about them.

use std::sync::Arc;

use super::abi::EdgeData;
use crate::border::{List, Out};
use crate::errors::{Outcome, Status};
use crate::graph::{Graph, Work};
use crate::state;

/// A graph; in this family a wrong handle is a wrong value.
pub(super) fn find_graph(graph: usize) -> Outcome<Arc<Graph>> {
    state::driver()?.graphs.known.get(graph).map_err(|_| Status::INVALID_VALUE)
}

/// The graph that a node is in.
pub(super) fn graph_of(node: usize) -> Outcome<Arc<Graph>> {
    let found = state::driver()?.graphs.nodes.get(node).map_err(|_| Status::INVALID_VALUE)?;
    found.graph.upgrade().ok_or(Status::INVALID_VALUE)
}

/// The part of a handle that is never drawn again; the rest says only of what kind it is.
pub(super) fn id_of(handle: usize) -> u32 {
    (handle >> 4) as u32
}

/// Adds a node whose work is made when graph and neighbours are known to be valid.
pub(super) fn add(
    out: Out<usize>,
    graph: usize,
    after: List<usize>,
    count: usize,
    work: impl FnOnce(&Arc<Graph>) -> Outcome<Work>,
) -> Outcome {
    out.required()?;
    let graph = find_graph(graph)?;
    let after = after.read(count)?;
    let work = work(&graph)?;
    out.set(graph.add(&state::driver()?.graphs, work, after)?)
}

/// Looks at a node.
pub(super) fn look<R>(node: usize, at: impl FnOnce(&Work) -> Outcome<R>) -> Outcome<R> {
    let graph = graph_of(node)?;
    let nodes = graph.nodes();
    at(&nodes.get(&node).ok_or(Status::INVALID_VALUE)?.work)
}

/// Gives a node other work of the same kind.
pub(super) fn set(node: usize, work: impl FnOnce() -> Outcome<Work>) -> Outcome {
    let graph = graph_of(node)?;
    let fresh = work()?;
    let mut nodes = graph.nodes();
    let node = nodes.get_mut(&node).ok_or(Status::INVALID_VALUE)?;
    if node.work.kind() != fresh.kind() {
        return Err(Status::INVALID_VALUE);
    }
    node.work = fresh;
    Ok(())
}

/// Edges between parts of kernels are not simulated: if edges are described, then as plain ones.
pub(super) fn plain_edges(edges: List<EdgeData>, count: usize) -> Outcome {
    if edges.is_null() {
        return Ok(());
    }
    let special = |edge: &EdgeData| edge.from_port != 0 || edge.to_port != 0 || edge.kind != 0;
    if edges.read(count)?.iter().any(special) { Err(Status::NOT_SUPPORTED) } else { Ok(()) }
}
