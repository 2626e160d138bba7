//! Between the driver's blocks about nodes and what a node does.

use std::sync::Arc;

use super::abi::{
    BatchMemOp, BatchMemOpNode, HostNode, KernelNode, KernelNode2, Memcpy3D, MemcpyNode, MemsetNode, NodeParams,
};
use super::arguments::context_or_current;
use super::{copy_plan, fills, graph_memory, stream_words};
use crate::border::{list_at, read_at, write_at};
use crate::errors::{Outcome, Status};
use crate::exec::op::{Fill, HostCall, Op};
use crate::graph::Work;
use crate::memory::traffic::Place;
use crate::module::Function;
use crate::module::launch::{Launch, Shape};
use crate::state;

/// An old block as a new one.
pub(super) fn with_kernel(first: KernelNode) -> KernelNode2 {
    KernelNode2 { first, ..KernelNode2::default() }
}

/// A launch; the values of its parameters are copied now.
pub(super) fn kernel(params: &KernelNode2) -> Outcome<Work> {
    let first = &params.first;
    let handle = if first.function != 0 { first.function } else { params.kernel };
    let function = Function::find(&state::driver()?.code, &*context_or_current(params.context)?, handle)?;
    let shape = Shape { grid: first.grid, block: first.block, shared: first.shared };
    let launch = Launch::new(function, handle, shape, list_at(first.params), list_at(first.extra))?;
    Ok(Work::Op(Op::Kernel(Arc::new(launch))))
}

pub(super) fn tell_kernel(work: &Work) -> Outcome<KernelNode2> {
    let Work::Op(Op::Kernel(launch)) = work else { return Err(Status::INVALID_VALUE) };
    Ok(with_kernel(KernelNode {
        function: launch.handle,
        grid: launch.shape.grid,
        block: launch.shape.block,
        shared: launch.shape.shared,
        params: launch.param_pointers(),
        extra: 0,
    }))
}

pub(super) fn copy(params: &Memcpy3D, context: usize) -> Outcome<Work> {
    let context = context_or_current(context)?;
    Ok(Work::Op(Op::Copy(copy_plan::node(&context.copies_view(None), params)?)))
}

pub(super) fn tell_copy(work: &Work) -> Outcome<Memcpy3D> {
    let Work::Op(Op::Copy(copy)) = work else { return Err(Status::INVALID_VALUE) };
    let mut told = Memcpy3D {
        dst_pitch: copy.dst_pitch as usize,
        src_pitch: copy.src_pitch as usize,
        width: copy.width as usize,
        height: copy.height as usize,
        depth: copy.depth as usize,
        ..Memcpy3D::default()
    };
    const HOST: u32 = 1;
    const UNIFIED: u32 = 4;
    match copy.dst {
        Place::Host(at) => (told.dst_type, told.dst_host) = (HOST, at as usize),
        Place::Device(at) => (told.dst_type, told.dst_device) = (UNIFIED, at),
        Place::Staged(..) => return Err(Status::INVALID_VALUE),
    }
    match copy.src {
        Place::Host(at) => (told.src_type, told.src_host) = (HOST, at as usize),
        Place::Device(at) => (told.src_type, told.src_device) = (UNIFIED, at),
        Place::Staged(..) => return Err(Status::INVALID_VALUE),
    }
    told.dst_height = (copy.dst_slice / copy.dst_pitch.max(1)) as usize;
    told.src_height = (copy.src_slice / copy.src_pitch.max(1)) as usize;
    Ok(told)
}

pub(super) fn fill(params: &MemsetNode, context: usize) -> Outcome<Work> {
    let context = context_or_current(context)?;
    let fill = Fill {
        dst: params.dst,
        pitch: params.pitch as u64,
        value: params.value,
        element: params.element,
        width: params.width as u64,
        height: params.height as u64,
    };
    let fill = fills::prepare(&context.view(), fill)?;
    // The driver does not take a node that fills nothing.
    Ok(Work::Op(Op::Fill(fill.ok_or(Status::INVALID_VALUE)?)))
}

pub(super) fn tell_fill(work: &Work) -> Outcome<MemsetNode> {
    let Work::Op(Op::Fill(fill)) = work else { return Err(Status::INVALID_VALUE) };
    Ok(MemsetNode {
        dst: fill.dst,
        pitch: fill.pitch as usize,
        value: fill.value,
        element: fill.element,
        width: fill.width as usize,
        height: fill.height as usize,
    })
}

#[allow(unsafe_code)]
pub(super) fn host(params: &HostNode) -> Outcome<Work> {
    if params.function == 0 {
        return Err(Status::INVALID_VALUE);
    }
    let pointer = std::ptr::with_exposed_provenance::<()>(params.function);
    // SAFETY: not null, and the block's field is a function of this type by cuda.h.
    let function = unsafe { std::mem::transmute::<*const (), extern "C" fn(usize)>(pointer) };
    Ok(Work::Op(Op::Host(HostCall { function, data: params.data })))
}

pub(super) fn tell_host(work: &Work) -> Outcome<HostNode> {
    let Work::Op(Op::Host(call)) = work else { return Err(Status::INVALID_VALUE) };
    Ok(HostNode { function: call.function as *const () as usize, data: call.data })
}

/// Any node, as a block that says of itself what it is.
pub(super) fn tell(work: &Work) -> Outcome<NodeParams> {
    let mut told = NodeParams { kind: work.kind(), reserved: [0; 3], block: [0; 29], reserved2: 0 };
    let block = told.block.as_mut_ptr().expose_provenance();
    match work {
        Work::Op(Op::Kernel(_)) => {
            let mut kernel = tell_kernel(work)?;
            tell_kernels_handle(&mut kernel)?;
            write_at(block, kernel)?;
        }
        Work::Op(Op::Copy(_)) => {
            write_at(block, MemcpyNode { flags: 0, reserved: 0, context: 0, copy: tell_copy(work)? })?;
        }
        Work::Op(Op::Fill(_)) => write_at(block, tell_fill(work)?)?,
        Work::Op(Op::Host(_)) => write_at(block, tell_host(work)?)?,
        Work::Op(Op::EventRecord(event) | Op::EventWait(event)) => told.block[0] = event.handle as u64,
        Work::Op(Op::Words(_)) => write_at(block, tell_words(work)?)?,
        Work::Op(Op::Allocate(slot)) => write_at(block, graph_memory::tell(slot))?,
        Work::Op(Op::Release(slot)) => told.block[0] = slot.start(),
        Work::Op(_) => {}
        Work::Child(child) => told.block[0] = child.handle as u64,
    }
    Ok(told)
}

/// Of a node that launches a library's kernel, that kernel's handle has a place of its own.
pub(super) fn tell_kernels_handle(told: &mut KernelNode2) -> Outcome {
    if state::driver()?.code.kernels.get(told.first.function).is_ok() {
        told.kernel = std::mem::take(&mut told.first.function);
    }
    Ok(())
}

/// The list itself is not shown: the driver's copy has no address that a program could use.
pub(super) fn tell_words(work: &Work) -> Outcome<BatchMemOpNode> {
    match work {
        Work::Op(Op::Words(words)) => Ok(BatchMemOpNode { count: words.len() as u32, ..BatchMemOpNode::default() }),
        _ => Err(Status::INVALID_VALUE),
    }
}

/// A copy of another graph, as it is now; a graph cannot be inside itself.
pub(super) fn child(graph: usize, parent: Option<usize>) -> Outcome<Work> {
    let driver = state::driver()?;
    let graph = driver.graphs.known.get(graph)?;
    if parent == Some(graph.handle) {
        return Err(Status::INVALID_VALUE);
    }
    if graph.has_memory() {
        // It may only be moved into another, which is not simulated.
        return Err(Status::NOT_SUPPORTED);
    }
    Ok(Work::Child(graph.copy(&driver.graphs)))
}

pub(super) fn event_record(event: usize) -> Outcome<Work> {
    Ok(Work::Op(Op::EventRecord(state::driver()?.events.get(event)?)))
}

pub(super) fn event_wait(event: usize) -> Outcome<Work> {
    Ok(Work::Op(Op::EventWait(state::driver()?.events.get(event)?)))
}

pub(super) fn words(params: &BatchMemOpNode) -> Outcome<Work> {
    let context = context_or_current(params.context)?;
    let ops = list_at::<BatchMemOp>(params.ops).read(params.count as usize)?;
    if ops.is_empty() || params.flags != 0 {
        return Err(Status::INVALID_VALUE);
    }
    Ok(Work::Op(Op::Words(stream_words::words(&context.view(), &ops)?)))
}

/// Any node, by the block that says of itself what it is.
pub(super) fn any(params: &NodeParams, parent: Option<usize>) -> Outcome<Work> {
    let block = params.block.as_ptr().expose_provenance();
    match params.kind {
        0 => kernel(&read_at::<KernelNode2>(block)?),
        1 => {
            let node = read_at::<MemcpyNode>(block)?;
            copy(&node.copy, node.context)
        }
        // The context is the word behind the old block.
        2 => fill(&read_at::<MemsetNode>(block)?, params.block[5] as usize),
        3 => host(&read_at::<HostNode>(block)?),
        4 => child(params.block[0] as usize, parent),
        5 => Ok(Work::Op(Op::Empty)),
        6 => event_wait(params.block[0] as usize),
        7 => event_record(params.block[0] as usize),
        12 => words(&read_at::<BatchMemOpNode>(block)?),
        8..=13 => Err(Status::NOT_SUPPORTED),
        _ => Err(Status::INVALID_VALUE),
    }
}
