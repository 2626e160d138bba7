//! Memory in a stream's order: allocating from pools, and freeing.

use std::sync::Arc;

use super::memory::clear;
use crate::border::Out;
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::context::Context;
use crate::exec::op::Op;
use crate::exec::stream::{Kind, Stream, Ticket};
use crate::exec::submit::{self, Default};
use crate::graph::capture::{self, Capture};
use crate::pool::Pool;
use crate::pool::lease::{Lease, Source};
use crate::state;

doors! {
    cuMemAllocAsync / cuMemAllocAsync_ptsz: "cuMemAllocAsync" 11020 / 11020
        (out: Out<u64>, bytes: usize, stream: usize) = alloc after clear_async(out);
    cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz: "cuMemAllocFromPoolAsync" 11020 / 11020
        (out: Out<u64>, bytes: usize, pool: usize, stream: usize) = alloc_from_pool after clear_async(out);
    cuMemFreeAsync / cuMemFreeAsync_ptsz: "cuMemFreeAsync" 11020 / 11020 (address: u64, stream: usize) = free;
}

/// Overwrites the answer with zero, as the driver does even if something else is wrong with the call.
fn clear_async(_: Default, out: Out<u64>) -> Outcome {
    clear(out)
}

fn alloc(default: Default, out: Out<u64>, bytes: usize, stream: usize) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    out.required()?;
    let context = Context::of(&stream)?;
    out.set(allocate(&stream, &state::driver()?.pools.current_of(context.device.ordinal()), bytes)?)
}

fn alloc_from_pool(default: Default, out: Out<u64>, bytes: usize, pool: usize, stream: usize) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    out.required()?;
    let pool = state::driver()?.pools.find(pool)?;
    out.set(allocate(&stream, &pool, bytes)?)
}

fn allocate(stream: &Arc<Stream>, pool: &Arc<Pool>, bytes: usize) -> Outcome<u64> {
    if bytes == 0 {
        // As measured: that is no failure, and no memory.
        return Ok(0);
    }
    let driver = state::driver()?;
    if let Some(tail) = capture::tail(stream)? {
        // The graph's, not the pool's, but as the pool's.
        let graphs = driver.pools.graphs_of(pool.gpu().ordinal());
        let access = pool.peers();
        let slot = graphs.add(driver.space, bytes as u64, access, Capture::of(&tail).graph.handle)?;
        capture::append(stream, &Op::Allocate(slot.clone()))?;
        return Ok(slot.start());
    }
    capture::check_legacy(stream)?;
    capture::forbid_unsafe_call()?;
    let behind = submit::known_to(stream)?;
    let make_room = || driver.pools.make_room(driver.space, pool.gpu());
    let (lease, after) = pool.allocate(driver.space, bytes as u64, &behind, make_room)?;
    if after.iter().chain(&behind).all(Ticket::is_done) {
        // The stream is there already.
        lease.begin(driver.space);
        return Ok(lease.start);
    }
    match submit::enqueue_aside(stream, after, Op::Begin(lease.clone())) {
        Ok(_) => Ok(lease.start),
        Err(status) => {
            lease.free_now(driver.space);
            Err(status)
        }
    }
}

/// Takes memory of `cuMemAlloc` too.
fn free(default: Default, address: u64, stream: usize) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    if address == 0 {
        return Ok(());
    }
    let context = Context::of(&stream)?;
    if let Some(tail) = capture::tail(&stream)? {
        // No node frees memory of others than graphs. The capture does not suffer.
        let slot = state::driver()?.pools.slot(address).ok_or(Status::INVALID_VALUE)?;
        slot.free_in(Capture::of(&tail).graph.handle)?;
        return capture::append(&stream, &Op::Release(slot)).map(drop);
    }
    capture::check_legacy(&stream)?;
    let space = state::driver()?.space;
    capture::forbid_unsafe_call()?;
    context.check()?;
    if space.look().allocations.starting_at(address).is_some_and(|one| one.context == 0) {
        let lease = Lease::take(space, address)?;
        let point = submit::enqueue_aside(&stream, Vec::new(), Op::End(lease.clone()))?;
        lease.give_back(space, Some(point));
        return Ok(());
    }
    if stream.kind == Kind::Legacy {
        context.locks.pass_objects();
    }
    space.change().allocations.leave(address)?;
    submit::enqueue_aside(&stream, Vec::new(), Op::Free(address)).map(drop)
}
