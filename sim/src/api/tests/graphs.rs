//! Graphs built node by node, instances and their updates.

use std::sync::atomic::{AtomicU32, Ordering};

use super::super::abi::{HostNode, KernelNode, MemsetNode};
use super::super::fills::cuMemsetD32_v2;
use super::super::graph_exec::*;
use super::super::graph_nodes::*;
use super::super::graphs::*;
use super::{Session, alloc, function, get, put, synchronize};
use crate::border::from_tests::{address, ask, block, given, list, no_list, no_room, place};

fn graph() -> usize {
    given(|out| cuGraphCreate(out, 0))
}

fn fill(at: u64, value: u32) -> MemsetNode {
    MemsetNode { dst: at, pitch: 0, value, element: 4, width: 1, height: 1 }
}

fn add_fill(graph: usize, after: &[usize], node: &MemsetNode) -> usize {
    given(|out| cuGraphAddMemsetNode(out, graph, list(after), after.len(), block(node), 0))
}

fn run(exec: usize) {
    assert_eq!(cuGraphLaunch(exec, 0), 0);
    synchronize();
}

#[test]
fn nodes_run_in_the_order_of_their_edges() {
    let _session = Session::begin();
    let (graph, at) = (graph(), alloc(4));
    let last = add_fill(graph, &[], &fill(at, 3));
    let first = add_fill(graph, &[], &fill(at, 1));
    let middle = add_fill(graph, &[first], &fill(at, 2));
    assert_eq!(cuGraphAddDependencies(graph, list(&[middle]), list(&[last]), 1), 0);
    assert_eq!(cuGraphAddDependencies(graph, list(&[middle]), list(&[last]), 1), 1);
    let exec: usize = given(|out| cuGraphInstantiateWithFlags(out, graph, 0));
    run(exec);
    assert_eq!(get(at, 1), [3]);
    assert_eq!(given(|count| cuGraphGetEdges(graph, no_room(), no_room(), count)), 2);
    assert_eq!(cuGraphAddDependencies(graph, list(&[last]), list(&[first]), 1), 0);
    assert_eq!(ask::<usize>(|out| cuGraphInstantiateWithFlags(out, graph, 0)).0, 1);
}

#[test]
fn a_kernel_node_keeps_the_values_of_its_parameters() {
    let _session = Session::begin();
    let (graph, at) = (graph(), alloc(8));
    let (mut seed, count) = (1u32, 1u32);
    let params = [address(&at), address(&seed), address(&count)];
    let node = KernelNode {
        function: function(c"fill_hash"),
        grid: [1; 3],
        block: [1; 3],
        shared: 0,
        params: address(&params),
        extra: 0,
    };
    let name: usize = given(|out| cuGraphAddKernelNode(out, graph, no_list(), 0, block(&node)));
    seed = 0;
    let told: KernelNode = given(|out| cuGraphKernelNodeGetParams(name, out));
    let stored: usize = crate::border::read_at(told.params + 8).unwrap();
    assert_eq!((crate::border::read_at::<u32>(stored).unwrap(), seed), (1, 0));
    let exec: usize = given(|out| cuGraphInstantiateWithFlags(out, graph, 0));
    run(exec);
    assert_eq!(get(at, 1), [0x514E_28B7]);
    let elsewhere = at + 4;
    let params = [address(&elsewhere), address(&count), address(&count)];
    let node = KernelNode { params: address(&params), ..node };
    assert_eq!(cuGraphExecKernelNodeSetParams(exec, name, block(&node)), 0);
    run(exec);
    assert_eq!(get(at + 4, 1), [0x514E_28B7]);
}

#[test]
fn an_instance_is_updated_from_a_graph_of_the_same_shape_only() {
    let _session = Session::begin();
    let at = alloc(8);
    let (first, second, other) = (graph(), graph(), graph());
    add_fill(first, &[], &fill(at, 1));
    add_fill(second, &[], &fill(at, 2));
    let node = add_fill(other, &[], &fill(at, 3));
    add_fill(other, &[node], &fill(at, 4));
    let exec: usize = given(|out| cuGraphInstantiateWithFlags(out, first, 0));
    let mut node = 0usize;
    assert_eq!(ask(|out| cuGraphExecUpdate(exec, second, place(&mut node), out)), (0, 0));
    run(exec);
    assert_eq!(get(at, 1), [2]);
    assert_eq!(ask(|out| cuGraphExecUpdate(exec, other, place(&mut node), out)), (910, 2));
    run(exec);
    assert_eq!(get(at, 1), [2]);
}

#[test]
fn a_node_can_be_left_out_of_launches() {
    let _session = Session::begin();
    let (graph, at) = (graph(), alloc(8));
    put(at, &[0]);
    let node = add_fill(graph, &[], &fill(at, 1));
    let exec: usize = given(|out| cuGraphInstantiateWithFlags(out, graph, 0));
    assert_eq!(cuGraphNodeSetEnabled(exec, node, 0), 0);
    assert_eq!(given(|out| cuGraphNodeGetEnabled(exec, node, out)), 0);
    run(exec);
    assert_eq!(get(at, 1), [0]);
    assert_eq!(cuGraphNodeSetEnabled(exec, node, 1), 0);
    run(exec);
    assert_eq!(get(at, 1), [1]);
}

#[test]
fn a_child_and_a_clone_are_copies() {
    let _session = Session::begin();
    let (parent, child, at) = (graph(), graph(), alloc(8));
    let inner = add_fill(child, &[], &fill(at, 1));
    let node: usize = given(|out| cuGraphAddChildGraphNode(out, parent, no_list(), 0, child));
    let clone: usize = given(|out| cuGraphClone(out, child));
    let cloned: usize = given(|out| cuGraphNodeFindInClone(out, inner, clone));
    assert_eq!(cuGraphMemsetNodeSetParams(inner, block(&fill(at, 9))), 0);
    let exec: usize = given(|out| cuGraphInstantiateWithFlags(out, parent, 0));
    run(exec);
    assert_eq!(get(at, 1), [1]);
    let told: MemsetNode = given(|out| cuGraphMemsetNodeGetParams(cloned, out));
    assert_eq!(told.value, 1);
    let of_node: usize = given(|out| cuGraphChildGraphNodeGetGraph(node, out));
    assert_eq!(given(|count| cuGraphGetNodes(of_node, no_room(), count)), 1);
    assert_eq!(ask::<usize>(|out| cuGraphAddChildGraphNode(out, parent, no_list(), 0, parent)).0, 1);
    assert_eq!(cuGraphDestroy(parent), 0);
    assert_eq!(cuGraphDestroy(of_node), 1);
    assert_eq!(ask::<u32>(|out| cuGraphNodeGetType(node, out)).0, 1);
}

static HOST_CALLS: AtomicU32 = AtomicU32::new(0);
static DESTROYED: AtomicU32 = AtomicU32::new(0);

#[test]
fn host_nodes_are_called_at_each_launch_and_objects_live_as_long_as_their_graphs() {
    extern "C" fn count(_: usize) {
        HOST_CALLS.fetch_add(1, Ordering::SeqCst);
    }
    extern "C" fn destroy(_: usize) {
        DESTROYED.fetch_add(1, Ordering::SeqCst);
    }
    let _session = Session::begin();
    let graph = graph();
    let node = HostNode { function: count as *const () as usize, data: 0 };
    given::<usize>(|out| cuGraphAddHostNode(out, graph, no_list(), 0, block(&node)));
    let object: usize = given(|out| cuUserObjectCreate(out, 0, Some(destroy), 1, 1));
    assert_eq!(cuGraphRetainUserObject(graph, object, 1, 1), 0);
    let exec: usize = given(|out| cuGraphInstantiateWithFlags(out, graph, 0));
    assert_eq!(cuGraphDestroy(graph), 0);
    run(exec);
    run(exec);
    assert_eq!(HOST_CALLS.load(Ordering::SeqCst), 2);
    assert_eq!(DESTROYED.load(Ordering::SeqCst), 0);
    assert_eq!(cuGraphExecDestroy(exec), 0);
    assert_eq!(DESTROYED.load(Ordering::SeqCst), 1);
    assert_eq!(cuMemsetD32_v2(alloc(4), 0, 1), 0);
}
