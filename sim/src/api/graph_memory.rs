//! Memory in graphs: nodes that allocate and free it, and how much of it there is. Launches are in `graph/memory.rs`.

use std::sync::Arc;

use super::abi::{AccessDesc, Location, MemAllocNode, PoolProps};
use super::graph_parts::{add, look};
use super::{arguments, pools};
use crate::border::{List, Out, list_at, read_at, write_at};
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::op::Op;
use crate::graph::{Graph, Work};
use crate::memory::space::Access;
use crate::pool::lease::Source;
use crate::pool::slot::Slot;
use crate::settings::MOST_GPUS;
use crate::state;

doors! {
    cuGraphAddMemAllocNode: "cuGraphAddMemAllocNode" 11040
        (out: Out<usize>, graph: usize, after: List<usize>, count: usize, params: Out<MemAllocNode>) = add_alloc;
    cuGraphAddMemFreeNode: "cuGraphAddMemFreeNode" 11040
        (out: Out<usize>, graph: usize, after: List<usize>, count: usize, address: u64) = add_free;
    cuGraphMemAllocNodeGetParams: "cuGraphMemAllocNodeGetParams" 11040
        (node: usize, params: Out<MemAllocNode>) = get_alloc;
    cuGraphMemFreeNodeGetParams: "cuGraphMemFreeNodeGetParams" 11040 (node: usize, address: Out<u64>) = get_free;
    cuDeviceGraphMemTrim: "cuDeviceGraphMemTrim" 11040 (device: i32) = trim;
    cuDeviceGetGraphMemAttribute: "cuDeviceGetGraphMemAttribute" 11040
        (device: i32, attribute: u32, value: usize) = get_attribute;
    cuDeviceSetGraphMemAttribute: "cuDeviceSetGraphMemAttribute" 11040
        (device: i32, attribute: u32, value: usize) = set_attribute;
}

/// `CUgraphMem_attribute`
const USED_CURRENT: u32 = 0;
const USED_HIGH: u32 = 1;
const RESERVED_CURRENT: u32 = 2;
const RESERVED_HIGH: u32 = 3;

/// A slot for an allocation of a graph, as a node asks for it.
fn slot(graph: &Graph, params: &MemAllocNode) -> Outcome<Arc<Slot>> {
    let driver = state::driver()?;
    pools::check(&params.props)?;
    if params.bytes == 0 {
        return Err(Status::INVALID_VALUE);
    }
    if params.props.handle_types != 0 {
        return Err(Status::NOT_SUPPORTED);
    }
    let mut access = [Access::None; MOST_GPUS];
    for one in list_at::<AccessDesc>(params.access).read(params.access_count)? {
        let (ordinal, wished) = pools::access_of(&one)?;
        access[ordinal] = wished;
    }
    let graphs = driver.pools.graphs_of(arguments::device(params.props.location.id)?.ordinal());
    graphs.add(driver.space, params.bytes as u64, access, graph.handle)
}

pub(super) fn add_alloc(
    out: Out<usize>,
    graph: usize,
    after: List<usize>,
    count: usize,
    params: Out<MemAllocNode>,
) -> Outcome {
    let mut told = None;
    add(out, graph, after, count, |graph| {
        let mut asked = params.get()?;
        let slot = slot(graph, &asked)?;
        asked.address = slot.start();
        told = Some(asked);
        Ok(Work::Op(Op::Allocate(slot)))
    })?;
    told.map_or(Ok(()), |told| params.set(told))
}

pub(super) fn add_free(out: Out<usize>, graph: usize, after: List<usize>, count: usize, address: u64) -> Outcome {
    add(out, graph, after, count, |graph| {
        let slot = state::driver()?.pools.slot(address).ok_or(Status::INVALID_VALUE)?;
        slot.free_in(graph.handle)?;
        Ok(Work::Op(Op::Release(slot)))
    })
}

fn get_alloc(node: usize, params: Out<MemAllocNode>) -> Outcome {
    params.required()?;
    let slot = look(node, |work| match work {
        Work::Op(Op::Allocate(slot)) => Ok(slot.clone()),
        _ => Err(Status::INVALID_VALUE),
    })?;
    params.set(tell(&slot))
}

/// A slot as the node that allocates it describes it.
pub(super) fn tell(slot: &Slot) -> MemAllocNode {
    let location = Location { kind: 1, id: slot.gpu().ordinal() as i32 };
    let props = PoolProps { kind: 1, handle_types: 0, location, win32: 0, most: 0, usage: 0, reserved: [0; 54] };
    let bytes = slot.bytes as usize;
    // The list itself is not shown: the driver's copy has no address that a program could use.
    MemAllocNode { props, access: 0, access_count: slot.peers(), bytes, address: slot.start() }
}

fn get_free(node: usize, address: Out<u64>) -> Outcome {
    address.required()?;
    address.set(look(node, |work| match work {
        Work::Op(Op::Release(slot)) => Ok(slot.start()),
        _ => Err(Status::INVALID_VALUE),
    })?)
}

fn trim(device: i32) -> Outcome {
    let ordinal = arguments::device(device)?.ordinal();
    let driver = state::driver()?;
    driver.pools.graphs_of(ordinal).trim(driver.space);
    Ok(())
}

fn get_attribute(device: i32, attribute: u32, value: usize) -> Outcome {
    let ordinal = arguments::device(device)?.ordinal();
    let figures = *state::driver()?.pools.graphs_of(ordinal).figures();
    let figure = match attribute {
        USED_CURRENT => figures.used.current,
        USED_HIGH => figures.used.high,
        RESERVED_CURRENT => figures.reserved.current,
        RESERVED_HIGH => figures.reserved.high,
        _ => return Err(Status::INVALID_VALUE),
    };
    write_at(value, figure)
}

/// The highest figures can be forgotten, and nothing else.
fn set_attribute(device: i32, attribute: u32, value: usize) -> Outcome {
    let ordinal = arguments::device(device)?.ordinal();
    let mut figures = state::driver()?.pools.graphs_of(ordinal).figures();
    match attribute {
        USED_HIGH if read_at::<u64>(value)? == 0 => figures.used.reset(),
        RESERVED_HIGH if read_at::<u64>(value)? == 0 => figures.reserved.reset(),
        _ => return Err(Status::INVALID_VALUE),
    }
    Ok(())
}
