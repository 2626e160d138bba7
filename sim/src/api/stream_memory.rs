//! Memory in a stream's order: allocating from pools, and freeing.

use std::sync::Arc;

use super::memory::clear;
use crate::border::Out;
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::op::Op;
use crate::exec::stream::{Kind, Stream};
use crate::exec::submit::{self, Default};
use crate::graph::capture;
use crate::pool::Pool;
use crate::pool::lease::Lease;
use crate::state::Driver;

doors! {
    cuMemAllocAsync / cuMemAllocAsync_ptsz: "cuMemAllocAsync" 11020 / 11020
        (out: Out<u64>, bytes: usize, stream: usize) = alloc after clear_async(out);
    cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz: "cuMemAllocFromPoolAsync" 11020 / 11020
        (out: Out<u64>, bytes: usize, pool: usize, stream: usize) = alloc_from_pool after clear_async(out);
    cuMemFreeAsync / cuMemFreeAsync_ptsz: "cuMemFreeAsync" 11020 / 11020 (address: u64, stream: usize) = free;
}

/// Whatever else is wrong with a call, the driver overwrites its answer.
fn clear_async(_: Default, out: Out<u64>) -> Outcome {
    clear(out)
}

fn alloc(default: Default, out: Out<u64>, bytes: usize, stream: usize) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    out.required()?;
    let context = submit::owner(&stream)?;
    out.set(allocate(&stream, &context.driver.pools.current_of(context.device.ordinal()), bytes)?)
}

fn alloc_from_pool(default: Default, out: Out<u64>, bytes: usize, pool: usize, stream: usize) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    out.required()?;
    let pool = submit::owner(&stream)?.driver.pools.find(pool)?;
    out.set(allocate(&stream, &pool, bytes)?)
}

fn allocate(stream: &Arc<Stream>, pool: &Arc<Pool>, bytes: usize) -> Outcome<u64> {
    if bytes == 0 {
        return Err(Status::INVALID_VALUE);
    }
    if capture::tail(stream)?.is_some() {
        return Err(Status::NOT_SUPPORTED);
    }
    capture::check_legacy(stream)?;
    let driver = submit::owner(stream)?.driver;
    let behind = submit::known_to(stream)?;
    let make_room = || driver.pools.make_room(&driver.space, pool.gpu());
    let (lease, after) = pool.allocate(&driver.space, bytes as u64, &behind, make_room)?;
    match submit::enqueue_aside(stream, after, Op::Begin(lease.clone())) {
        Ok(_) => Ok(lease.start),
        Err(status) => {
            free_now(driver, &lease);
            Err(status)
        }
    }
}

/// `cuMemFree` of a pool's memory, which waits for nothing: that nobody uses it any more is the program's word.
pub(super) fn free_now(driver: &Driver, lease: &Arc<Lease>) {
    lease.end(&driver.space);
    lease.pool.give_back(&driver.space, lease, None);
}

/// Takes memory of `cuMemAlloc` too.
fn free(default: Default, address: u64, stream: usize) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    if address == 0 {
        return Ok(());
    }
    if capture::tail(&stream)?.is_some() {
        // No node frees such memory. The capture does not suffer.
        return Err(Status::INVALID_VALUE);
    }
    capture::check_legacy(&stream)?;
    let context = submit::owner(&stream)?;
    let space = &context.driver.space;
    let lease = space.look().allocations.starting_at(address).and_then(|one| one.lease.clone());
    if lease.is_none() {
        capture::forbid_unsafe_call()?;
    }
    context.check()?;
    if lease.is_none() && stream.kind == Kind::Legacy {
        context.locks.pass_objects();
    }
    space.change().allocations.leave(address)?;
    let Some(lease) = lease else {
        return submit::enqueue_aside(&stream, Vec::new(), Op::Free(address)).map(drop);
    };
    let point = submit::enqueue_aside(&stream, Vec::new(), Op::End(lease.clone()))?;
    lease.pool.give_back(space, &lease, Some(point));
    Ok(())
}
