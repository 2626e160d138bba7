//! Nodes: adding them, reading and changing what they do.

use super::abi::{BatchMemOpNode, EdgeData, HostNode, KernelNode, KernelNode2, Memcpy3D, MemsetNode, NodeParams};
use super::arguments::current;
use super::graph_memory::{add_alloc, add_free};
use super::graph_parts::{add, graph_of, look, plain_edges, set};
use super::node_work as work;
use crate::border::{In, List, Out};
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::op::Op;
use crate::graph::Work;

doors! {
    cuGraphAddKernelNode: "cuGraphAddKernelNode" 10000
        (out: Out<usize>, graph: usize, after: List<usize>, count: usize, params: In<KernelNode>) = add_kernel_old;
    cuGraphAddKernelNode_v2: "cuGraphAddKernelNode" 12000
        (out: Out<usize>, graph: usize, after: List<usize>, count: usize, params: In<KernelNode2>) = add_kernel;
    cuGraphAddMemcpyNode: "cuGraphAddMemcpyNode" 10000
        (out: Out<usize>, graph: usize, after: List<usize>, count: usize, params: In<Memcpy3D>, context: usize) = add_copy;
    cuGraphAddMemsetNode: "cuGraphAddMemsetNode" 10000
        (out: Out<usize>, graph: usize, after: List<usize>, count: usize, params: In<MemsetNode>, context: usize) = add_fill;
    cuGraphAddHostNode: "cuGraphAddHostNode" 10000
        (out: Out<usize>, graph: usize, after: List<usize>, count: usize, params: In<HostNode>) = add_host;
    cuGraphAddChildGraphNode: "cuGraphAddChildGraphNode" 10000
        (out: Out<usize>, graph: usize, after: List<usize>, count: usize, child: usize) = add_child;
    cuGraphAddEmptyNode: "cuGraphAddEmptyNode" 10000
        (out: Out<usize>, graph: usize, after: List<usize>, count: usize) = add_empty;
    cuGraphAddEventRecordNode: "cuGraphAddEventRecordNode" 11010
        (out: Out<usize>, graph: usize, after: List<usize>, count: usize, event: usize) = add_event_record;
    cuGraphAddEventWaitNode: "cuGraphAddEventWaitNode" 11010
        (out: Out<usize>, graph: usize, after: List<usize>, count: usize, event: usize) = add_event_wait;
    cuGraphAddBatchMemOpNode: "cuGraphAddBatchMemOpNode" 11070
        (out: Out<usize>, graph: usize, after: List<usize>, count: usize, params: In<BatchMemOpNode>) = add_words;
    cuGraphAddNode: "cuGraphAddNode" 12020
        (out: Out<usize>, graph: usize, after: List<usize>, count: usize, params: Out<NodeParams>) = add_any;
    cuGraphAddNode_v2: "cuGraphAddNode" 12030
        (out: Out<usize>, graph: usize, after: List<usize>, edges: List<EdgeData>, count: usize,
         params: Out<NodeParams>) = add_any_v2;
    cuGraphAddNode_v3: "cuGraphAddNode" 13040
        (out: Out<usize>, graph: usize, after: List<usize>, edges: List<EdgeData>, count: usize,
         params: Out<NodeParams>) = add_any_v2;
    cuGraphKernelNodeGetParams: "cuGraphKernelNodeGetParams" 10000 (node: usize, params: Out<KernelNode>) = get_kernel_old;
    cuGraphKernelNodeGetParams_v2: "cuGraphKernelNodeGetParams" 12000
        (node: usize, params: Out<KernelNode2>) = get_kernel;
    cuGraphKernelNodeSetParams: "cuGraphKernelNodeSetParams" 10000 (node: usize, params: In<KernelNode>) = set_kernel_old;
    cuGraphKernelNodeSetParams_v2: "cuGraphKernelNodeSetParams" 12000
        (node: usize, params: In<KernelNode2>) = set_kernel;
    cuGraphMemcpyNodeGetParams: "cuGraphMemcpyNodeGetParams" 10000 (node: usize, params: Out<Memcpy3D>) = get_copy;
    cuGraphMemcpyNodeSetParams: "cuGraphMemcpyNodeSetParams" 10000 (node: usize, params: In<Memcpy3D>) = set_copy;
    cuGraphMemsetNodeGetParams: "cuGraphMemsetNodeGetParams" 10000 (node: usize, params: Out<MemsetNode>) = get_fill;
    cuGraphMemsetNodeSetParams: "cuGraphMemsetNodeSetParams" 10000 (node: usize, params: In<MemsetNode>) = set_fill;
    cuGraphHostNodeGetParams: "cuGraphHostNodeGetParams" 10000 (node: usize, params: Out<HostNode>) = get_host;
    cuGraphHostNodeSetParams: "cuGraphHostNodeSetParams" 10000 (node: usize, params: In<HostNode>) = set_host;
    cuGraphChildGraphNodeGetGraph: "cuGraphChildGraphNodeGetGraph" 10000 (node: usize, graph: Out<usize>) = get_child;
    cuGraphEventRecordNodeGetEvent: "cuGraphEventRecordNodeGetEvent" 11010
        (node: usize, event: Out<usize>) = get_event_record;
    cuGraphEventRecordNodeSetEvent: "cuGraphEventRecordNodeSetEvent" 11010 (node: usize, event: usize) = set_event_record;
    cuGraphEventWaitNodeGetEvent: "cuGraphEventWaitNodeGetEvent" 11010 (node: usize, event: Out<usize>) = get_event_wait;
    cuGraphEventWaitNodeSetEvent: "cuGraphEventWaitNodeSetEvent" 11010 (node: usize, event: usize) = set_event_wait;
    cuGraphBatchMemOpNodeGetParams: "cuGraphBatchMemOpNodeGetParams" 11070
        (node: usize, params: Out<BatchMemOpNode>) = get_words;
    cuGraphBatchMemOpNodeSetParams: "cuGraphBatchMemOpNodeSetParams" 11070
        (node: usize, params: In<BatchMemOpNode>) = set_words;
    cuGraphNodeSetParams: "cuGraphNodeSetParams" 12020 (node: usize, params: In<NodeParams>) = set_any;
    cuGraphNodeSetParams_v2: "cuGraphNodeSetParams" 13040 (node: usize, params: In<NodeParams>) = set_any;
    cuGraphNodeGetParams: "cuGraphNodeGetParams" 13020 (node: usize, params: Out<NodeParams>) = get_any;
    cuGraphKernelNodeCopyAttributes: "cuGraphKernelNodeCopyAttributes" 11000 (to: usize, from: usize) = copy_attributes;
    cuGraphKernelNodeGetAttribute: "cuGraphKernelNodeGetAttribute" 11000
        (node: usize, attribute: u32, value: Out<[u64; 8]>) = get_attribute;
    cuGraphKernelNodeSetAttribute: "cuGraphKernelNodeSetAttribute" 11000
        (node: usize, attribute: u32, value: In<[u64; 8]>) = set_attribute;
}

fn add_kernel_old(out: Out<usize>, graph: usize, after: List<usize>, count: usize, params: In<KernelNode>) -> Outcome {
    add(out, graph, after, count, |_| work::kernel(&work::with_kernel(params.get()?)))
}

fn add_kernel(out: Out<usize>, graph: usize, after: List<usize>, count: usize, params: In<KernelNode2>) -> Outcome {
    add(out, graph, after, count, |_| work::kernel(&params.get()?))
}

fn add_copy(
    out: Out<usize>,
    graph: usize,
    after: List<usize>,
    count: usize,
    params: In<Memcpy3D>,
    context: usize,
) -> Outcome {
    add(out, graph, after, count, |_| work::copy(&params.get()?, context))
}

fn add_fill(
    out: Out<usize>,
    graph: usize,
    after: List<usize>,
    count: usize,
    params: In<MemsetNode>,
    context: usize,
) -> Outcome {
    add(out, graph, after, count, |_| work::fill(&params.get()?, context))
}

fn add_host(out: Out<usize>, graph: usize, after: List<usize>, count: usize, params: In<HostNode>) -> Outcome {
    add(out, graph, after, count, |_| work::host(&params.get()?))
}

fn add_child(out: Out<usize>, graph: usize, after: List<usize>, count: usize, child: usize) -> Outcome {
    add(out, graph, after, count, |graph| work::child(child, Some(graph.handle)))
}

fn add_empty(out: Out<usize>, graph: usize, after: List<usize>, count: usize) -> Outcome {
    add(out, graph, after, count, |_| Ok(Work::Op(Op::Empty)))
}

fn add_event_record(out: Out<usize>, graph: usize, after: List<usize>, count: usize, event: usize) -> Outcome {
    add(out, graph, after, count, |_| work::event_record(event))
}

fn add_event_wait(out: Out<usize>, graph: usize, after: List<usize>, count: usize, event: usize) -> Outcome {
    add(out, graph, after, count, |_| work::event_wait(event))
}

fn add_words(out: Out<usize>, graph: usize, after: List<usize>, count: usize, params: In<BatchMemOpNode>) -> Outcome {
    add(out, graph, after, count, |_| work::words(&params.get()?))
}

/// `CU_GRAPH_NODE_TYPE_MEM_ALLOC` and `_MEM_FREE`
const MEM_ALLOC: u32 = 10;
const MEM_FREE: u32 = 11;

fn add_any(out: Out<usize>, graph: usize, after: List<usize>, count: usize, params: Out<NodeParams>) -> Outcome {
    match params.get() {
        // The address is told in the block.
        Ok(NodeParams { kind: MEM_ALLOC, .. }) => {
            add_alloc(out, graph, after, count, params.part(std::mem::offset_of!(NodeParams, block)))
        }
        Ok(NodeParams { kind: MEM_FREE, block, .. }) => add_free(out, graph, after, count, block[0]),
        _ => add(out, graph, after, count, |graph| work::any(&params.get()?, Some(graph.handle))),
    }
}

fn add_any_v2(
    out: Out<usize>,
    graph: usize,
    after: List<usize>,
    edges: List<EdgeData>,
    count: usize,
    params: Out<NodeParams>,
) -> Outcome {
    plain_edges(edges, count)?;
    add_any(out, graph, after, count, params)
}

fn get_kernel_old(node: usize, params: Out<KernelNode>) -> Outcome {
    params.required()?;
    params.set(look(node, work::tell_kernel)?.first)
}

fn get_kernel(node: usize, params: Out<KernelNode2>) -> Outcome {
    params.required()?;
    let mut told = look(node, work::tell_kernel)?;
    work::tell_kernels_handle(&mut told)?;
    params.set(told)
}

fn set_kernel_old(node: usize, params: In<KernelNode>) -> Outcome {
    set(node, || work::kernel(&work::with_kernel(params.get()?)))
}

fn set_kernel(node: usize, params: In<KernelNode2>) -> Outcome {
    set(node, || work::kernel(&params.get()?))
}

fn get_copy(node: usize, params: Out<Memcpy3D>) -> Outcome {
    params.required()?;
    params.set(look(node, work::tell_copy)?)
}

fn set_copy(node: usize, params: In<Memcpy3D>) -> Outcome {
    set(node, || work::copy(&params.get()?, 0))
}

fn get_fill(node: usize, params: Out<MemsetNode>) -> Outcome {
    params.required()?;
    params.set(look(node, work::tell_fill)?)
}

fn set_fill(node: usize, params: In<MemsetNode>) -> Outcome {
    set(node, || work::fill(&params.get()?, 0))
}

fn get_host(node: usize, params: Out<HostNode>) -> Outcome {
    params.required()?;
    params.set(look(node, work::tell_host)?)
}

fn set_host(node: usize, params: In<HostNode>) -> Outcome {
    set(node, || work::host(&params.get()?))
}

fn get_child(node: usize, graph: Out<usize>) -> Outcome {
    graph.required()?;
    graph.set(look(node, |work| match work {
        Work::Child(child) => Ok(child.handle),
        Work::Op(_) => Err(Status::INVALID_VALUE),
    })?)
}

fn get_event_record(node: usize, event: Out<usize>) -> Outcome {
    event.required()?;
    event.set(look(node, |work| match work {
        Work::Op(Op::EventRecord(event)) => Ok(event.handle),
        _ => Err(Status::INVALID_VALUE),
    })?)
}

fn set_event_record(node: usize, event: usize) -> Outcome {
    set(node, || work::event_record(event))
}

fn get_event_wait(node: usize, event: Out<usize>) -> Outcome {
    event.required()?;
    event.set(look(node, |work| match work {
        Work::Op(Op::EventWait(event)) => Ok(event.handle),
        _ => Err(Status::INVALID_VALUE),
    })?)
}

fn set_event_wait(node: usize, event: usize) -> Outcome {
    set(node, || work::event_wait(event))
}

fn get_words(node: usize, params: Out<BatchMemOpNode>) -> Outcome {
    params.required()?;
    params.set(look(node, work::tell_words)?)
}

fn set_words(node: usize, params: In<BatchMemOpNode>) -> Outcome {
    set(node, || work::words(&params.get()?))
}

fn set_any(node: usize, params: In<NodeParams>) -> Outcome {
    set(node, || work::any(&params.get()?, None))
}

fn get_any(node: usize, params: Out<NodeParams>) -> Outcome {
    params.required()?;
    params.set(look(node, work::tell)?)
}

/// The last `CUlaunchAttributeID`.
const LAST_ATTRIBUTE: u32 = 16;

fn attributes<R>(node: usize, with: impl FnOnce(&mut std::collections::BTreeMap<u32, [u64; 8]>) -> R) -> Outcome<R> {
    current()?;
    let graph = graph_of(node)?;
    let mut nodes = graph.nodes();
    let node = nodes.get_mut(&node).ok_or(Status::INVALID_VALUE)?;
    match node.work {
        Work::Op(Op::Kernel(_)) => Ok(with(&mut node.attributes)),
        _ => Err(Status::INVALID_VALUE),
    }
}

fn copy_attributes(to: usize, from: usize) -> Outcome {
    let source = attributes(from, |attributes| attributes.clone())?;
    attributes(to, |attributes| *attributes = source)
}

fn get_attribute(node: usize, attribute: u32, value: Out<[u64; 8]>) -> Outcome {
    value.required()?;
    if attribute > LAST_ATTRIBUTE {
        return Err(Status::INVALID_VALUE);
    }
    let set = attributes(node, |attributes| attributes.get(&attribute).copied())?;
    value.set(set.unwrap_or_default())
}

fn set_attribute(node: usize, attribute: u32, value: In<[u64; 8]>) -> Outcome {
    let value = value.get()?;
    if attribute > LAST_ATTRIBUTE {
        return Err(Status::INVALID_VALUE);
    }
    attributes(node, |attributes| attributes.insert(attribute, value)).map(drop)
}
