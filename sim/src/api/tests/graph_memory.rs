//! Memory that graphs allocate and free.

use super::super::abi::{Location, MemAllocNode, NodeParams, PoolProps};
use super::super::copies::cuMemcpyDtoDAsync_v2;
use super::super::fills::*;
use super::super::graph_exec::*;
use super::super::graph_memory::*;
use super::super::graph_nodes::*;
use super::super::graphs::*;
use super::super::host_memory::cuMemHostAlloc;
use super::super::memory::*;
use super::super::pointers::cuPointerGetAttribute;
use super::super::stream_capture::*;
use super::super::stream_memory::*;
use super::super::streams::*;
use super::processes::in_a_process_of_its_own;
use super::{Session, alloc, get, put, synchronize_with};
use crate::border::from_tests::{address, address_mut, ask, given, list, no_list, no_room, place};
use crate::graph::capture::MODE_RELAXED;
use crate::pool::steps::STEP;

const BYTES: usize = 1 << 20;
const AUTO_FREE: u64 = 1;

fn stream() -> usize {
    given(|out| cuStreamCreate(out, 1))
}

/// A graph that allocates, fills with fives, copies a word out, and frees, if that is asked for; and the address.
fn record(stream: usize, copy: u64, with_free: bool) -> (usize, u64) {
    assert_eq!(cuStreamBeginCapture_v2(stream, MODE_RELAXED), 0);
    let at = given(|out| cuMemAllocAsync(out, BYTES, stream));
    assert_eq!(cuMemsetD32Async(at, 5, BYTES / 4, stream), 0);
    assert_eq!(cuMemcpyDtoDAsync_v2(copy, at + BYTES as u64 - 4, 4, stream), 0);
    if with_free {
        assert_eq!((cuMemFreeAsync(at + 512, stream), cuMemFreeAsync(copy, stream)), (1, 1));
        assert_eq!((cuMemFreeAsync(at, stream), cuMemFreeAsync(at, stream)), (0, 1));
    }
    (given(|out| cuStreamEndCapture(stream, out)), at)
}

fn instantiate(graph: usize, flags: u64) -> usize {
    given(|out| cuGraphInstantiateWithFlags(out, graph, flags))
}

fn figures() -> [u64; 4] {
    [0, 1, 2, 3].map(|attribute| {
        let mut value = 0u64;
        assert_eq!(cuDeviceGetGraphMemAttribute(0, attribute, address_mut(&mut value)), 0);
        value
    })
}

/// Launches and waits; the bytes that were copied out.
fn launch(exec: usize, stream: usize, copy: u64) -> Vec<u32> {
    put(copy, &[0]);
    assert_eq!((cuGraphLaunch(exec, stream), cuStreamSynchronize(stream)), (0, 0));
    get(copy, 1)
}

#[test]
fn a_captured_allocation_is_the_graph_s_and_at_the_same_address_in_every_launch() {
    let _session = Session::begin();
    let (stream, copy) = (stream(), alloc(4));
    let (graph, at) = record(stream, copy, true);
    let mut nodes = [0usize; 4];
    let mut count = 4usize;
    assert_eq!(cuGraphGetNodes(graph, crate::border::from_tests::room(&mut nodes), place(&mut count)), 0);
    assert_eq!(nodes.map(|node| given::<u32>(|out| cuGraphNodeGetType(node, out))), [10, 2, 1, 11]);
    assert_eq!(given::<u64>(|out| cuGraphMemFreeNodeGetParams(nodes[3], out)), at);
    let mut told = params(0);
    assert_eq!(cuGraphMemAllocNodeGetParams(nodes[0], place(&mut told)), 0);
    assert_eq!((told.bytes, told.address, told.props.location.kind, told.access_count), (BYTES, at, 1, 0));
    assert_eq!(cuGraphMemAllocNodeGetParams(nodes[1], place(&mut told)), 1);
    let exec = instantiate(graph, 0);
    for _ in 0..2 {
        assert_eq!(launch(exec, stream, copy), [5]);
        // No other allocation has it.
        assert_eq!((cuMemFreeAsync(at, stream), cuMemFree_v2(at)), (1, 1));
    }
    // Such a graph is one, as it is, with one instance.
    assert_eq!(ask::<usize>(|out| cuGraphInstantiateWithFlags(out, graph, 0)).0, 801);
    assert_eq!(ask::<usize>(|out| cuGraphClone(out, graph)).0, 801);
    assert_eq!(
        (cuGraphDestroyNode(nodes[1]), cuGraphRemoveDependencies(graph, list(&nodes), list(&nodes[1..]), 1)),
        (801, 801)
    );
    let parent: usize = given(|out| cuGraphCreate(out, 0));
    assert_eq!(ask::<usize>(|out| cuGraphAddChildGraphNode(out, parent, no_list(), 0, graph)).0, 801);
    assert_eq!(cuStreamBeginCapture_v2(stream, MODE_RELAXED), 0);
    assert_eq!(cuGraphLaunch(exec, stream), 801);
    given::<usize>(|out| cuStreamEndCapture(stream, out));
    assert_eq!(cuGraphExecDestroy(exec), 0);
    let exec = instantiate(graph, 0);
    assert_eq!((launch(exec, stream, copy), cuGraphExecDestroy(exec), cuGraphDestroy(graph)), (vec![5], 0, 0));
}

#[test]
fn memory_that_a_graph_leaves_is_freed_by_somebody_else_before_it_runs_again() {
    let _session = Session::begin();
    let (stream, copy) = (stream(), alloc(4));
    let (graph, at) = record(stream, copy, false);
    let attribute = |attribute: u32| {
        let mut value = 0u64;
        (cuPointerGetAttribute(address_mut(&mut value), attribute, at), value)
    };
    assert_eq!((attribute(12).0, cuMemFreeAsync(at, stream), cuMemFree_v2(at)), (1, 1, 1));
    let exec = instantiate(graph, 0);
    assert_eq!(launch(exec, stream, copy), [5]);
    assert_eq!((attribute(12), attribute(17), attribute(18)), ((0, BYTES as u64), (0, 0), (0, STEP)));
    assert_eq!(get(at, 1), [5]);
    assert_eq!(cuGraphLaunch(exec, stream), 1);
    assert_eq!((cuMemFreeAsync(at, stream), cuMemFreeAsync(at, stream)), (0, 1));
    assert_eq!((launch(exec, stream, copy), cuMemFree_v2(at)), (vec![5], 0));
    // A graph of its own frees it, if there is something; the one that allocates it then does not.
    let other: usize = given(|out| cuGraphCreate(out, 0));
    let free: usize = given(|out| cuGraphAddMemFreeNode(out, other, no_list(), 0, at));
    assert_ne!(free, 0);
    assert_eq!(ask::<usize>(|out| cuGraphAddMemFreeNode(out, graph, no_list(), 0, at)).0, 1);
    let freeing = instantiate(other, 0);
    assert_eq!(cuGraphLaunch(freeing, stream), 1);
    assert_eq!((launch(exec, stream, copy), cuGraphLaunch(freeing, stream), cuMemFree_v2(at)), (vec![5], 0, 1));
    assert_eq!(launch(exec, stream, copy), [5]);
    // It outlives graph and instance.
    assert_eq!((cuGraphExecDestroy(exec), cuGraphExecDestroy(freeing)), (0, 0));
    assert_eq!((cuGraphDestroy(graph), cuGraphDestroy(other), get(at, 1)), (0, 0, vec![5]));
    assert_eq!((cuMemFreeAsync(at, stream), cuStreamSynchronize(stream)), (0, 0));
}

#[test]
fn a_launch_frees_what_the_last_one_left_if_told_so() {
    let _session = Session::begin();
    let (stream, copy) = (stream(), alloc(4));
    let (graph, at) = record(stream, copy, false);
    let exec = instantiate(graph, AUTO_FREE);
    assert_eq!((launch(exec, stream, copy), launch(exec, stream, copy)), (vec![5], vec![5]));
    assert_eq!((get(at, 1), cuMemFreeAsync(at, stream)), (vec![5], 0));
    assert_eq!((launch(exec, stream, copy), cuMemFreeAsync(at, stream)), (vec![5], 0));
    assert_eq!((cuGraphExecDestroy(exec), cuGraphDestroy(graph)), (0, 0));
}

#[test]
fn a_launch_waits_for_the_stream_that_freed_its_memory() {
    let _session = Session::begin();
    let (one, busy, copy) = (stream(), stream(), alloc(4));
    let (graph, at) = record(one, copy, false);
    let exec = instantiate(graph, 0);
    assert_eq!(launch(exec, one, copy), [5]);
    let flag: usize = given(|out| cuMemHostAlloc(out, 4, 0));
    super::spin(busy, alloc(4), flag as u64);
    assert_eq!((cuMemFreeAsync(at, busy), cuGraphLaunch(exec, one), cuStreamQuery(one)), (0, 0, 600));
    synchronize_with(flag);
    assert_eq!((get(at, 1), cuMemFree_v2(at)), (vec![5], 0));
    assert_eq!((cuGraphExecDestroy(exec), cuGraphDestroy(graph)), (0, 0));
}

fn params(device: i32) -> MemAllocNode {
    let location = Location { kind: 1, id: device };
    let props = PoolProps { kind: 1, handle_types: 0, location, win32: 0, most: 0, usage: 0, reserved: [0; 54] };
    MemAllocNode { props, access: 0, access_count: 0, bytes: BYTES, address: 0 }
}

#[test]
fn nodes_that_allocate_and_free_are_added_by_hand() {
    let _session = Session::begin();
    let graph: usize = given(|out| cuGraphCreate(out, 0));
    let add =
        |params: &mut MemAllocNode| ask::<usize>(|out| cuGraphAddMemAllocNode(out, graph, no_list(), 0, place(params)));
    let mut asked = params(0);
    let (code, node) = add(&mut asked);
    assert!(code == 0 && asked.address != 0);
    let mut wrong = [params(0), params(99), params(0)];
    wrong[0].bytes = 0;
    wrong[2].props.handle_types = 1;
    assert_eq!(wrong.each_mut().map(|params| add(params).0), [1, 1, 801]);
    let free = |at: u64| ask::<usize>(|out| cuGraphAddMemFreeNode(out, graph, list(&[node]), 1, at)).0;
    assert_eq!((free(asked.address + 512), free(asked.address), free(asked.address), free(0)), (1, 0, 1, 1));
    // The same in the block that says of itself what it is.
    let mut block = NodeParams { kind: 10, reserved: [0; 3], block: [0; 29], reserved2: 0 };
    let words = address(&asked);
    for (at, word) in block.block.iter_mut().take(15).enumerate() {
        *word = crate::border::read_at(words + at * 8).unwrap();
    }
    block.block[14] = 0;
    let node: usize = given(|out| cuGraphAddNode(out, graph, no_list(), 0, place(&mut block)));
    let second = block.block[14];
    assert_eq!(second - asked.address, BYTES as u64);
    let mut freeing = NodeParams { kind: 11, reserved: [0; 3], block: [0; 29], reserved2: 0 };
    freeing.block[0] = second;
    let freed: usize = given(|out| cuGraphAddNode(out, graph, list(&[node]), 1, place(&mut freeing)));
    assert_eq!(given::<u64>(|out| cuGraphMemFreeNodeGetParams(freed, out)), second);
    let exec = instantiate(graph, 0);
    assert_eq!((cuGraphLaunch(exec, 0), cuStreamSynchronize(0)), (0, 0));
    assert_eq!(given::<usize>(|count| cuGraphGetNodes(graph, no_room(), count)), 4);
    assert_eq!((cuGraphExecDestroy(exec), cuGraphDestroy(graph)), (0, 0));
}

/// In a process of its own: other tests' graphs have memory too.
pub(super) fn memory_of_the_gpu() {
    let _session = Session::begin();
    let (stream, copy) = (stream(), alloc(4));
    let (graph, at) = record(stream, copy, false);
    let exec = instantiate(graph, 0);
    assert_eq!(figures(), [0; 4]);
    assert_eq!(launch(exec, stream, copy), [5]);
    assert_eq!(figures(), [STEP; 4]);
    // The graph keeps it as long as there is the instance, and longer if the program has an allocation of it.
    assert_eq!((cuDeviceGraphMemTrim(0), cuGraphExecDestroy(exec), cuDeviceGraphMemTrim(0)), (0, 0, 0));
    assert_eq!((figures(), get(at, 1)), ([STEP; 4], vec![5]));
    assert_eq!((cuMemFreeAsync(at, stream), cuStreamSynchronize(stream)), (0, 0));
    assert_eq!(figures(), [0, STEP, STEP, STEP]);
    let zero = 0u64;
    let set = |attribute| cuDeviceSetGraphMemAttribute(0, attribute, address(&zero));
    assert_eq!([0, 1, 2, 3, 4].map(set), [1, 0, 1, 0, 1]);
    assert_eq!((figures(), cuDeviceGraphMemTrim(0), figures()), ([0, 0, STEP, STEP], 0, [0, 0, 0, STEP]));
    assert_eq!((cuDeviceGraphMemTrim(1), cuDeviceGetGraphMemAttribute(1, 0, 0)), (101, 101));
    let exec = instantiate(graph, 0);
    assert_eq!((launch(exec, stream, copy), figures()), (vec![5], [STEP; 4]));
    // Others' memory is made of what graphs do not use, and without room there is no launch.
    assert_eq!((cuMemFree_v2(at), cuGraphExecDestroy(exec)), (0, 0));
    let large = given(|out| cuMemAllocAsync(out, 224 << 20, stream));
    assert_eq!(figures(), [0, STEP, 0, STEP]);
    let exec = instantiate(graph, 0);
    assert_eq!(cuGraphLaunch(exec, stream), 2);
    assert_eq!((cuMemFree_v2(large), launch(exec, stream, copy)), (0, vec![5]));
}

/// Work that comes to a graph's memory behind its free finds nothing there.
pub(super) fn freed() {
    let _session = Session::begin();
    let (stream, copy) = (stream(), alloc(4));
    assert_eq!(cuStreamBeginCapture_v2(stream, MODE_RELAXED), 0);
    let at = given(|out| cuMemAllocAsync(out, BYTES, stream));
    assert_eq!((cuMemFreeAsync(at, stream), cuMemsetD32Async(at, 5, 1, stream)), (0, 0));
    let exec = instantiate(given(|out| cuStreamEndCapture(stream, out)), 0);
    assert_eq!((cuGraphLaunch(exec, stream), cuStreamSynchronize(stream)), (0, 700));
    assert_ne!(copy, 0);
}

#[test]
fn the_memory_of_graphs_is_the_gpu_s_and_there_in_their_order_only() {
    in_a_process_of_its_own("graph-memory");
    in_a_process_of_its_own("graph-freed");
}
