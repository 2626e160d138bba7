//! Graphs as wholes: making, cloning, looking into them; user objects.

use std::fmt::Write;
use std::fs;
use std::sync::Arc;

use super::abi::EdgeData;
use super::arguments::{current, only_flags};
use super::graph_parts::{find_graph, graph_of, id_of, plain_edges};
use crate::border::{List, Out, OutList, Text};
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::graph::user_object::UserObject;
use crate::graph::{Graph, Work};
use crate::state::{self, Driver};

doors! {
    cuGraphCreate: "cuGraphCreate" 10000 (out: Out<usize>, flags: u32) = create;
    cuGraphDestroy: "cuGraphDestroy" 10000 (graph: usize) = destroy;
    cuGraphClone: "cuGraphClone" 10000 (out: Out<usize>, graph: usize) = clone_graph;
    cuGraphNodeFindInClone: "cuGraphNodeFindInClone" 10000 (out: Out<usize>, node: usize, clone: usize) = find_in_clone;
    cuGraphGetNodes: "cuGraphGetNodes" 10000 (graph: usize, nodes: OutList<usize>, count: Out<usize>) = get_nodes;
    cuGraphGetRootNodes: "cuGraphGetRootNodes" 10000
        (graph: usize, nodes: OutList<usize>, count: Out<usize>) = get_roots;
    cuGraphGetEdges: "cuGraphGetEdges" 10000
        (graph: usize, from: OutList<usize>, to: OutList<usize>, count: Out<usize>) = get_edges;
    cuGraphGetEdges_v2: "cuGraphGetEdges" 12030
        (graph: usize, from: OutList<usize>, to: OutList<usize>, edges: OutList<EdgeData>, count: Out<usize>) = get_edges_v2;
    cuGraphNodeGetDependencies: "cuGraphNodeGetDependencies" 10000
        (node: usize, nodes: OutList<usize>, count: Out<usize>) = dependencies;
    cuGraphNodeGetDependencies_v2: "cuGraphNodeGetDependencies" 12030
        (node: usize, nodes: OutList<usize>, edges: OutList<EdgeData>, count: Out<usize>) = dependencies_v2;
    cuGraphNodeGetDependentNodes: "cuGraphNodeGetDependentNodes" 10000
        (node: usize, nodes: OutList<usize>, count: Out<usize>) = dependents;
    cuGraphNodeGetDependentNodes_v2: "cuGraphNodeGetDependentNodes" 12030
        (node: usize, nodes: OutList<usize>, edges: OutList<EdgeData>, count: Out<usize>) = dependents_v2;
    cuGraphAddDependencies: "cuGraphAddDependencies" 10000
        (graph: usize, from: List<usize>, to: List<usize>, count: usize) = connect;
    cuGraphAddDependencies_v2: "cuGraphAddDependencies" 12030
        (graph: usize, from: List<usize>, to: List<usize>, edges: List<EdgeData>, count: usize) = connect_v2;
    cuGraphRemoveDependencies: "cuGraphRemoveDependencies" 10000
        (graph: usize, from: List<usize>, to: List<usize>, count: usize) = disconnect;
    cuGraphRemoveDependencies_v2: "cuGraphRemoveDependencies" 12030
        (graph: usize, from: List<usize>, to: List<usize>, edges: List<EdgeData>, count: usize) = disconnect_v2;
    cuGraphDestroyNode: "cuGraphDestroyNode" 10000 (node: usize) = destroy_node;
    cuGraphNodeGetType: "cuGraphNodeGetType" 10000 (node: usize, kind: Out<u32>) = get_type;
    cuGraphNodeGetContainingGraph: "cuGraphNodeGetContainingGraph" 13010 (node: usize, graph: Out<usize>) = containing;
    cuGraphNodeGetLocalId: "cuGraphNodeGetLocalId" 13010 (node: usize, id: Out<u32>) = local_id;
    cuGraphNodeGetToolsId: "cuGraphNodeGetToolsId" 13010 (node: usize, id: Out<u64>) = tools_id;
    cuGraphGetId: "cuGraphGetId" 13010 (graph: usize, id: Out<u32>) = get_id;
    cuGraphDebugDotPrint: "cuGraphDebugDotPrint" 11030 (graph: usize, path: Text, flags: u32) = dot_print;
    cuUserObjectCreate: "cuUserObjectCreate" 11030
        (out: Out<usize>, data: usize, destroy: Option<extern "C" fn(usize)>, count: u32, flags: u32) = object_create;
    cuUserObjectRetain: "cuUserObjectRetain" 11030 (object: usize, count: u32) = object_retain;
    cuUserObjectRelease: "cuUserObjectRelease" 11030 (object: usize, count: u32) = object_release;
    cuGraphRetainUserObject: "cuGraphRetainUserObject" 11030
        (graph: usize, object: usize, count: u32, flags: u32) = graph_retain;
    cuGraphReleaseUserObject: "cuGraphReleaseUserObject" 11030
        (graph: usize, object: usize, count: u32) = graph_release;
    cuGraphConditionalHandleCreate: "cuGraphConditionalHandleCreate" 12030
        (out: Out<u64>, graph: usize, context: usize, value: u32, flags: u32) = conditional;
}

fn create(out: Out<usize>, flags: u32) -> Outcome {
    out.required()?;
    only_flags(flags.into(), 0)?;
    out.set(Graph::make(&state::driver()?.graphs).handle)
}

fn destroy(graph: usize) -> Outcome {
    find_graph(graph)?.forget(&state::driver()?.graphs)
}

fn clone_graph(out: Out<usize>, graph: usize) -> Outcome {
    out.required()?;
    let graph = find_graph(graph)?;
    if graph.has_memory() {
        return Err(Status::NOT_SUPPORTED);
    }
    out.set(graph.copy(&state::driver()?.graphs).handle)
}

fn find_in_clone(out: Out<usize>, node: usize, clone: usize) -> Outcome {
    out.required()?;
    out.set(find_graph(clone)?.copy_of(node).ok_or(Status::INVALID_VALUE)?)
}

/// Tells how many items there are, and as many of them as the program has room for.
fn tell<T: Copy + Default>(items: &[T], list: OutList<T>, count: Out<usize>) -> Outcome {
    if list.wanted() {
        let room = count.get()?;
        let mut told: Vec<T> = items.iter().copied().take(room).collect();
        let some = told.len();
        // Room that is left is emptied, as the driver does.
        told.resize(room, T::default());
        list.write(&told)?;
        return count.set(some);
    }
    count.set(items.len())
}

fn get_nodes(graph: usize, nodes: OutList<usize>, count: Out<usize>) -> Outcome {
    let names: Vec<usize> = find_graph(graph)?.nodes().keys().copied().collect();
    tell(&names, nodes, count)
}

fn get_roots(graph: usize, nodes: OutList<usize>, count: Out<usize>) -> Outcome {
    let graph = find_graph(graph)?;
    let roots: Vec<usize> = {
        let all = graph.nodes();
        all.iter().filter(|(_, node)| node.after.is_empty()).map(|(name, _)| *name).collect()
    };
    tell(&roots, nodes, count)
}

fn get_edges(graph: usize, from: OutList<usize>, to: OutList<usize>, count: Out<usize>) -> Outcome {
    let edges = find_graph(graph)?.edges();
    if from.wanted() != to.wanted() {
        return Err(Status::INVALID_VALUE);
    }
    let starts: Vec<usize> = edges.iter().map(|edge| edge.0).collect();
    let ends: Vec<usize> = edges.iter().map(|edge| edge.1).collect();
    if !from.wanted() {
        return count.set(edges.len());
    }
    let room = count.get()?;
    tell(&starts, from, count)?;
    count.set(room)?;
    tell(&ends, to, count)
}

/// Describes plain edges, which all are, for as many as were told.
fn tell_plain(edges: OutList<EdgeData>, count: Out<usize>) -> Outcome {
    if edges.wanted() {
        edges.write(&vec![EdgeData::default(); count.get()?])?;
    }
    Ok(())
}

fn get_edges_v2(
    graph: usize,
    from: OutList<usize>,
    to: OutList<usize>,
    edges: OutList<EdgeData>,
    count: Out<usize>,
) -> Outcome {
    get_edges(graph, from, to, count)?;
    tell_plain(edges, count)
}

fn dependencies(node: usize, nodes: OutList<usize>, count: Out<usize>) -> Outcome {
    let graph = graph_of(node)?;
    let before: Vec<usize> = {
        let all = graph.nodes();
        all.get(&node).ok_or(Status::INVALID_VALUE)?.after.iter().copied().collect()
    };
    tell(&before, nodes, count)
}

fn dependencies_v2(node: usize, nodes: OutList<usize>, edges: OutList<EdgeData>, count: Out<usize>) -> Outcome {
    dependencies(node, nodes, count)?;
    tell_plain(edges, count)
}

fn dependents(node: usize, nodes: OutList<usize>, count: Out<usize>) -> Outcome {
    let edges = graph_of(node)?.edges();
    let after: Vec<usize> = edges.into_iter().filter(|(from, _)| *from == node).map(|(_, to)| to).collect();
    tell(&after, nodes, count)
}

fn dependents_v2(node: usize, nodes: OutList<usize>, edges: OutList<EdgeData>, count: Out<usize>) -> Outcome {
    dependents(node, nodes, count)?;
    tell_plain(edges, count)
}

fn connect(graph: usize, from: List<usize>, to: List<usize>, count: usize) -> Outcome {
    find_graph(graph)?.connect(&from.read(count)?, &to.read(count)?, true)
}

fn connect_v2(graph: usize, from: List<usize>, to: List<usize>, edges: List<EdgeData>, count: usize) -> Outcome {
    plain_edges(edges, count)?;
    connect(graph, from, to, count)
}

fn disconnect(graph: usize, from: List<usize>, to: List<usize>, count: usize) -> Outcome {
    find_graph(graph)?.connect(&from.read(count)?, &to.read(count)?, false)
}

fn disconnect_v2(graph: usize, from: List<usize>, to: List<usize>, edges: List<EdgeData>, count: usize) -> Outcome {
    plain_edges(edges, count)?;
    disconnect(graph, from, to, count)
}

fn destroy_node(node: usize) -> Outcome {
    graph_of(node)?.remove(&state::driver()?.graphs, node)
}

fn get_type(node: usize, kind: Out<u32>) -> Outcome {
    kind.required()?;
    let graph = graph_of(node)?;
    let found = graph.nodes().get(&node).map(|node| node.work.kind());
    kind.set(found.ok_or(Status::INVALID_VALUE)?)
}

fn containing(node: usize, graph: Out<usize>) -> Outcome {
    graph.required()?;
    graph.set(graph_of(node)?.handle)
}

fn local_id(node: usize, id: Out<u32>) -> Outcome {
    id.required()?;
    graph_of(node)?;
    id.set(id_of(node))
}

fn tools_id(node: usize, id: Out<u64>) -> Outcome {
    id.required()?;
    let graph = graph_of(node)?;
    id.set(u64::from(id_of(graph.handle)) << 32 | u64::from(id_of(node)))
}

fn get_id(graph: usize, id: Out<u32>) -> Outcome {
    id.required()?;
    id.set(id_of(find_graph(graph)?.handle))
}

/// The names of the kinds of nodes, by their number.
const KINDS: [&str; 13] = [
    "kernel",
    "memcpy",
    "memset",
    "host",
    "child graph",
    "empty",
    "wait event",
    "event record",
    "semaphore signal",
    "semaphore wait",
    "memory alloc",
    "memory free",
    "batch memory op",
];

fn dot_print(graph: usize, path: Text, flags: u32) -> Outcome {
    let graph = find_graph(graph)?;
    only_flags(flags.into(), 0xFFFF)?;
    let path = path.str()?;
    fs::write(path, dot(&graph)).map_err(|_| Status::OPERATING_SYSTEM)
}

fn dot(graph: &Graph) -> String {
    let mut text = String::from("digraph graph_1 {\n");
    for (name, node) in graph.nodes().iter() {
        let kind = KINDS[node.work.kind() as usize];
        let label = match &node.work {
            Work::Op(crate::exec::op::Op::Kernel(launch)) => {
                format!("{kind}\\n{}", launch.function.name.to_string_lossy())
            }
            _ => kind.to_owned(),
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "  node_{name} [label=\"{label}\"];");
    }
    for (from, to) in graph.edges() {
        let _ = writeln!(text, "  node_{from} -> node_{to};");
    }
    text + "}\n"
}

const NO_DESTRUCTOR_SYNC: u32 = 1;
const MOVE: u32 = 1;

fn object_create(
    out: Out<usize>,
    data: usize,
    destroy: Option<extern "C" fn(usize)>,
    count: u32,
    flags: u32,
) -> Outcome {
    out.required()?;
    let destroy = destroy.ok_or(Status::INVALID_VALUE)?;
    if count == 0 || flags != NO_DESTRUCTOR_SYNC {
        return Err(Status::INVALID_VALUE);
    }
    let object = UserObject::new(destroy, data, count);
    out.set(state::driver()?.user_objects.add(Arc::new(object)))
}

fn object_retain(object: usize, count: u32) -> Outcome {
    let object = state::driver()?.user_objects.get(object)?;
    if count == 0 {
        return Err(Status::INVALID_VALUE);
    }
    object.retain(count);
    Ok(())
}

fn object_release(object: usize, count: u32) -> Outcome {
    let driver = state::driver()?;
    if count == 0 {
        return Err(Status::INVALID_VALUE);
    }
    release(driver, object, count)
}

fn release(driver: &Driver, handle: usize, count: u32) -> Outcome {
    if driver.user_objects.get(handle)?.release(count)? {
        driver.user_objects.remove(handle)?;
    }
    Ok(())
}

fn graph_retain(graph: usize, object: usize, count: u32, flags: u32) -> Outcome {
    let driver = state::driver()?;
    let graph = find_graph(graph)?;
    let found = driver.user_objects.get(object)?;
    only_flags(flags.into(), MOVE.into())?;
    if count == 0 {
        return Err(Status::INVALID_VALUE);
    }
    graph.objects().extend((0..count).map(|_| found.clone()));
    if flags & MOVE != 0 { release(driver, object, count) } else { Ok(()) }
}

fn graph_release(graph: usize, object: usize, count: u32) -> Outcome {
    let driver = state::driver()?;
    let graph = find_graph(graph)?;
    let found = driver.user_objects.get(object)?;
    let mut objects = graph.objects();
    let held = objects.iter().filter(|held| Arc::ptr_eq(held, &found)).count();
    if count == 0 || held < count as usize {
        return Err(Status::INVALID_VALUE);
    }
    let mut left = count;
    objects.retain(|held| {
        let goes = left > 0 && Arc::ptr_eq(held, &found);
        left -= u32::from(goes);
        !goes
    });
    Ok(())
}

fn conditional(out: Out<u64>, graph: usize, _context: usize, _value: u32, _flags: u32) -> Outcome {
    current()?;
    out.required()?;
    find_graph(graph)?;
    Err(Status::NOT_SUPPORTED)
}
