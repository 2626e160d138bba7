//! Instantiating graphs, launching and updating the instances.

use std::sync::{Arc, PoisonError};

use super::abi::{
    BatchMemOpNode, HostNode, InstantiateParams, KernelNode, KernelNode2, Memcpy3D, MemsetNode, NodeParams,
    UpdateResultInfo,
};
use super::arguments::{current, only_flags};
use super::graph_parts::{find_graph, id_of};
use super::node_work as work;
use crate::border::{In, Out, OutList};
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::op::Op;
use crate::exec::stream::Stream;
use crate::exec::submit::{self, Default, submit};
use crate::graph::Work;
use crate::graph::capture;
use crate::graph::exec::{GraphExec, Mismatch};
use crate::graph::memory::Prepared;
use crate::state;

doors! {
    cuGraphInstantiate: "cuGraphInstantiate" 10000
        (out: Out<usize>, graph: usize, error: Out<usize>, log: OutList<u8>, bytes: usize) = instantiate_old;
    cuGraphInstantiate_v2: "cuGraphInstantiate" 11000
        (out: Out<usize>, graph: usize, error: Out<usize>, log: OutList<u8>, bytes: usize) = instantiate_old;
    cuGraphInstantiateWithFlags: "cuGraphInstantiateWithFlags" 11040
        (out: Out<usize>, graph: usize, flags: u64) = instantiate;
    cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz: "cuGraphInstantiateWithParams" 12000 / 12000
        (out: Out<usize>, graph: usize, params: Out<InstantiateParams>) = instantiate_with_params;
    cuGraphExecGetFlags: "cuGraphExecGetFlags" 12000 (exec: usize, flags: Out<u64>) = get_flags;
    cuGraphExecGetId: "cuGraphExecGetId" 13010 (exec: usize, id: Out<u32>) = get_id;
    cuGraphExecDestroy: "cuGraphExecDestroy" 10000 (exec: usize) = destroy;
    cuGraphUpload / cuGraphUpload_ptsz: "cuGraphUpload" 11010 / 11010 (exec: usize, stream: usize) = upload;
    cuGraphLaunch / cuGraphLaunch_ptsz: "cuGraphLaunch" 10000 / 10000 (exec: usize, stream: usize) = launch;
    cuGraphExecUpdate: "cuGraphExecUpdate" 10020
        (exec: usize, graph: usize, error: Out<usize>, result: Out<u32>) = update_old;
    cuGraphExecUpdate_v2: "cuGraphExecUpdate" 12000
        (exec: usize, graph: usize, info: Out<UpdateResultInfo>) = update;
    cuGraphExecKernelNodeSetParams: "cuGraphExecKernelNodeSetParams" 10010
        (exec: usize, node: usize, params: In<KernelNode>) = set_kernel_old;
    cuGraphExecKernelNodeSetParams_v2: "cuGraphExecKernelNodeSetParams" 12000
        (exec: usize, node: usize, params: In<KernelNode2>) = set_kernel;
    cuGraphExecMemcpyNodeSetParams: "cuGraphExecMemcpyNodeSetParams" 10020
        (exec: usize, node: usize, params: In<Memcpy3D>, context: usize) = set_copy;
    cuGraphExecMemsetNodeSetParams: "cuGraphExecMemsetNodeSetParams" 10020
        (exec: usize, node: usize, params: In<MemsetNode>, context: usize) = set_fill;
    cuGraphExecHostNodeSetParams: "cuGraphExecHostNodeSetParams" 10020
        (exec: usize, node: usize, params: In<HostNode>) = set_host;
    cuGraphExecChildGraphNodeSetParams: "cuGraphExecChildGraphNodeSetParams" 11010
        (exec: usize, node: usize, child: usize) = set_child;
    cuGraphExecEventRecordNodeSetEvent: "cuGraphExecEventRecordNodeSetEvent" 11010
        (exec: usize, node: usize, event: usize) = set_event_record;
    cuGraphExecEventWaitNodeSetEvent: "cuGraphExecEventWaitNodeSetEvent" 11010
        (exec: usize, node: usize, event: usize) = set_event_wait;
    cuGraphExecBatchMemOpNodeSetParams: "cuGraphExecBatchMemOpNodeSetParams" 11070
        (exec: usize, node: usize, params: In<BatchMemOpNode>) = set_words;
    cuGraphExecNodeSetParams: "cuGraphExecNodeSetParams" 12020
        (exec: usize, node: usize, params: In<NodeParams>) = set_any;
    cuGraphNodeSetEnabled: "cuGraphNodeSetEnabled" 11060 (exec: usize, node: usize, enabled: u32) = set_enabled;
    cuGraphNodeGetEnabled: "cuGraphNodeGetEnabled" 11060 (exec: usize, node: usize, enabled: Out<u32>) = get_enabled;
}

/// Free memory at launch, upload now, launch from the device, use nodes' priorities.
const FLAGS: u64 = 15;
const AUTO_FREE: u64 = 1;
const UPLOAD: u64 = 2;
const DEVICE_LAUNCH: u64 = 4;

fn make(graph: usize, flags: u64) -> Outcome<usize> {
    current()?;
    only_flags(flags, FLAGS)?;
    let graph = find_graph(graph)?;
    if flags & DEVICE_LAUNCH != 0 {
        return Err(Status::NOT_SUPPORTED);
    }
    let mut instance = graph.instance.lock().unwrap_or_else(PoisonError::into_inner);
    if graph.has_memory() && instance.strong_count() > 0 {
        return Err(Status::NOT_SUPPORTED);
    }
    let made = Arc::new(GraphExec::new(&graph, flags)?);
    *instance = Arc::downgrade(&made.alive);
    Ok(state::driver()?.execs.add(made))
}

fn instantiate_old(out: Out<usize>, graph: usize, error: Out<usize>, log: OutList<u8>, bytes: usize) -> Outcome {
    out.required()?;
    error.offer(0);
    if log.wanted() && bytes > 0 {
        log.write(&[0])?;
    }
    out.set(make(graph, 0)?)
}

fn instantiate(out: Out<usize>, graph: usize, flags: u64) -> Outcome {
    out.required()?;
    out.set(make(graph, flags)?)
}

fn instantiate_with_params(default: Default, out: Out<usize>, graph: usize, params: Out<InstantiateParams>) -> Outcome {
    out.required()?;
    let mut told = params.get()?;
    if told.flags & UPLOAD != 0 {
        submit::resolve(default, told.upload_stream)?;
    }
    let made = make(graph, told.flags);
    // `CUDA_GRAPH_INSTANTIATE_SUCCESS` or `_ERROR`
    (told.error_node, told.result) = (0, u32::from(made.is_err()));
    params.set(told)?;
    out.set(made?)
}

fn find(exec: usize) -> Outcome<Arc<GraphExec>> {
    state::driver()?.execs.get(exec).map_err(|_| Status::INVALID_VALUE)
}

fn get_flags(exec: usize, flags: Out<u64>) -> Outcome {
    flags.required()?;
    flags.set(find(exec)?.flags)
}

fn get_id(exec: usize, id: Out<u32>) -> Outcome {
    id.required()?;
    find(exec)?;
    id.set(id_of(exec))
}

fn destroy(exec: usize) -> Outcome {
    find(exec)?.let_go();
    state::driver()?.execs.remove(exec).map(drop)
}

/// There is nothing to bring to the device ahead of a launch.
fn upload(default: Default, exec: usize, stream: usize) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    find(exec)?;
    submit(&stream, Op::Empty).map(drop)
}

fn launch(default: Default, exec: usize, stream: usize) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    let exec = find(exec)?;
    if exec.has_memory() {
        return launch_with_memory(&stream, &exec);
    }
    submit(&stream, Op::Graph(Arc::new(exec.plan()))).map(drop)
}

fn launch_with_memory(stream: &Arc<Stream>, exec: &GraphExec) -> Outcome {
    if capture::tail(stream)?.is_some() {
        // It would be part of another graph.
        return Err(Status::NOT_SUPPORTED);
    }
    capture::check_legacy(stream)?;
    let driver = state::driver()?;
    let space = driver.space;
    let make_room = |gpu| driver.pools.make_room(space, gpu);
    let mut prepared = Prepared::new(space, exec.plan().ops, exec.flags & AUTO_FREE != 0, make_room)?;
    let (plan, after) = (std::mem::take(&mut prepared.plan), std::mem::take(&mut prepared.after));
    match submit::enqueue(stream, after, Op::Graph(Arc::new(plan))) {
        Ok(at) => prepared.submitted(space, &at),
        Err(status) => {
            prepared.undo(space);
            return Err(status);
        }
    }
    Ok(())
}

fn try_update(exec: usize, graph: usize) -> Outcome<Result<(), Mismatch>> {
    current()?;
    find(exec)?.update(&*find_graph(graph)?)
}

fn update_old(exec: usize, graph: usize, error: Out<usize>, result: Out<u32>) -> Outcome {
    let updated = try_update(exec, graph)?;
    let mismatch = updated.err();
    error.offer(mismatch.as_ref().map_or(0, |mismatch| mismatch.node));
    result.set(mismatch.as_ref().map_or(0, |mismatch| mismatch.result))?;
    if mismatch.is_some() { Err(Status::GRAPH_EXEC_UPDATE_FAILURE) } else { Ok(()) }
}

fn update(exec: usize, graph: usize, info: Out<UpdateResultInfo>) -> Outcome {
    info.required()?;
    let updated = try_update(exec, graph)?;
    let mismatch = updated.err();
    info.set(UpdateResultInfo {
        result: mismatch.as_ref().map_or(0, |mismatch| mismatch.result),
        error_node: mismatch.as_ref().map_or(0, |mismatch| mismatch.node),
        error_from: 0,
    })?;
    if mismatch.is_some() { Err(Status::GRAPH_EXEC_UPDATE_FAILURE) } else { Ok(()) }
}

fn set(exec: usize, node: usize, work: impl FnOnce() -> Outcome<Work>) -> Outcome {
    let exec = find(exec)?;
    exec.set(node, &work()?)
}

fn set_kernel_old(exec: usize, node: usize, params: In<KernelNode>) -> Outcome {
    set(exec, node, || work::kernel(&work::with_kernel(params.get()?)))
}

fn set_kernel(exec: usize, node: usize, params: In<KernelNode2>) -> Outcome {
    set(exec, node, || work::kernel(&params.get()?))
}

fn set_copy(exec: usize, node: usize, params: In<Memcpy3D>, context: usize) -> Outcome {
    set(exec, node, || work::copy(&params.get()?, context))
}

fn set_fill(exec: usize, node: usize, params: In<MemsetNode>, context: usize) -> Outcome {
    set(exec, node, || work::fill(&params.get()?, context))
}

fn set_host(exec: usize, node: usize, params: In<HostNode>) -> Outcome {
    set(exec, node, || work::host(&params.get()?))
}

fn set_child(exec: usize, node: usize, child: usize) -> Outcome {
    let copy = work::child(child, None)?;
    let exec = find(exec)?;
    let outcome = exec.set(node, &copy);
    // The instance has the operations; the copy's handles are not needed any more.
    if let Work::Child(copy) = copy {
        copy.forget(&state::driver()?.graphs)?;
    }
    outcome
}

fn set_event_record(exec: usize, node: usize, event: usize) -> Outcome {
    set(exec, node, || work::event_record(event))
}

fn set_event_wait(exec: usize, node: usize, event: usize) -> Outcome {
    set(exec, node, || work::event_wait(event))
}

fn set_words(exec: usize, node: usize, params: In<BatchMemOpNode>) -> Outcome {
    set(exec, node, || work::words(&params.get()?))
}

fn set_any(exec: usize, node: usize, params: In<NodeParams>) -> Outcome {
    set(exec, node, || work::any(&params.get()?, None))
}

fn set_enabled(exec: usize, node: usize, enabled: u32) -> Outcome {
    find(exec)?.enable(node, enabled != 0)
}

fn get_enabled(exec: usize, node: usize, enabled: Out<u32>) -> Outcome {
    enabled.required()?;
    enabled.set(find(exec)?.is_enabled(node)?.into())
}
