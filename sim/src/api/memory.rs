//! `cuMemAlloc*`, `cuMemFree`, `cuMemGetInfo`, `cuMemGetAddressRange`; pools, which are not there.

use super::arguments::{clamp32, current};
use crate::border::Out;
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::context;
use crate::exec::op::Op;
use crate::exec::stream::Kind;
use crate::exec::submit::{self, Default};
use crate::graph::capture;
use crate::memory::space::Access;
use crate::state;

doors! {
    old cuMemAlloc: "cuMemAlloc" 2000 (out: Out<u32>, bytes: u32) = alloc_old after clear(out);
    cuMemAlloc_v2: "cuMemAlloc" 3020 (out: Out<u64>, bytes: usize) = alloc after clear(out);
    old cuMemAllocPitch: "cuMemAllocPitch" 2000
        (out: Out<u32>, pitch: Out<u32>, width: u32, height: u32, element: u32)
        = alloc_pitch_old after clear_both(out, pitch);
    cuMemAllocPitch_v2: "cuMemAllocPitch" 3020
        (out: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32)
        = alloc_pitch after clear_both(out, pitch);
    old cuMemFree: "cuMemFree" 2000 (address: u32) = free_old;
    cuMemFree_v2: "cuMemFree" 3020 (address: u64) = free;
    old cuMemGetInfo: "cuMemGetInfo" 2000 (free: Out<u32>, total: Out<u32>) = info_old;
    cuMemGetInfo_v2: "cuMemGetInfo" 3020 (free: Out<usize>, total: Out<usize>) = info;
    old cuMemGetAddressRange: "cuMemGetAddressRange" 2000 (base: Out<u32>, bytes: Out<u32>, address: u32) = range_old;
    cuMemGetAddressRange_v2: "cuMemGetAddressRange" 3020
        (base: Out<u64>, bytes: Out<usize>, address: u64) = range;
    cuMemAllocAsync / cuMemAllocAsync_ptsz: "cuMemAllocAsync" 11020 / 11020
        (out: Out<u64>, bytes: usize, stream: usize) = alloc_async after clear_async(out);
    cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz: "cuMemAllocFromPoolAsync" 11020 / 11020
        (out: Out<u64>, bytes: usize, pool: usize, stream: usize)
        = alloc_from_pool after clear_async(out);
    cuMemFreeAsync / cuMemFreeAsync_ptsz: "cuMemFreeAsync" 11020 / 11020 (address: u64, stream: usize) = free_async;
    cuMemPoolTrimTo: "cuMemPoolTrimTo" 11020 (pool: usize, keep: usize) = pool_2;
    cuMemPoolSetAttribute: "cuMemPoolSetAttribute" 11020 (pool: usize, attribute: u32, value: usize) = pool_3;
    cuMemPoolGetAttribute: "cuMemPoolGetAttribute" 11020 (pool: usize, attribute: u32, value: usize) = pool_3;
    cuMemPoolSetAccess: "cuMemPoolSetAccess" 11020 (pool: usize, map: usize, count: usize) = pool_of_3;
    cuMemPoolGetAccess: "cuMemPoolGetAccess" 11020 (flags: usize, pool: usize, location: usize) = pool_of_3;
    cuMemPoolCreate: "cuMemPoolCreate" 11020 (out: usize, props: usize) = pool_2;
    cuMemPoolDestroy: "cuMemPoolDestroy" 11020 (pool: usize) = pool_1;
    cuMemPoolExportToShareableHandle: "cuMemPoolExportToShareableHandle" 11020
        (out: usize, pool: usize, kind: u32, flags: u64) = pool_share;
    cuMemPoolImportFromShareableHandle: "cuMemPoolImportFromShareableHandle" 11020
        (out: usize, handle: usize, kind: u32, flags: u64) = pool_share;
    cuMemPoolExportPointer: "cuMemPoolExportPointer" 11020 (out: usize, address: u64) = pool_export;
    cuMemPoolImportPointer: "cuMemPoolImportPointer" 11020 (out: usize, pool: usize, data: usize) = pool_of_3;
    cuMemGetDefaultMemPool: "cuMemGetDefaultMemPool" 13000 (out: usize, location: usize, kind: u32) = pool_get;
    cuMemGetMemPool: "cuMemGetMemPool" 13000 (out: usize, location: usize, kind: u32) = pool_get;
    cuMemSetMemPool: "cuMemSetMemPool" 13000 (location: usize, kind: u32, pool: usize) = pool_set;
}

/// What a row of `cuMemAllocPitch` is a multiple of.
const PITCH: usize = 512;

/// Whatever else is wrong with a call, the driver overwrites its answers.
fn clear<T: std::default::Default>(out: Out<T>) -> Outcome {
    out.offer(T::default());
    Ok(())
}

fn clear_both<A: std::default::Default, P: std::default::Default>(out: Out<A>, pitch: Out<P>) -> Outcome {
    clear(out)?;
    clear(pitch)
}

fn clear_async(_: Default, out: Out<u64>) -> Outcome {
    clear(out)
}

fn allocate(bytes: u64, low: bool) -> Outcome<u64> {
    let (context, driver) = current()?;
    capture::forbid_unsafe_call()?;
    context.locks.pass_objects();
    driver.space.allocate(context.device.gpu, bytes, context.id, low)
}

fn alloc_old(out: Out<u32>, bytes: u32) -> Outcome {
    current()?;
    out.required()?;
    out.set(clamp32(allocate(bytes.into(), true)?))
}

fn alloc(out: Out<u64>, bytes: usize) -> Outcome {
    current()?;
    out.required()?;
    out.set(allocate(bytes as u64, false)?)
}

fn pitched(width: usize, height: usize, element: u32) -> Outcome<(usize, u64)> {
    if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
        return Err(Status::INVALID_VALUE);
    }
    let pitch = width.checked_next_multiple_of(PITCH).ok_or(Status::INVALID_VALUE)?;
    let bytes = pitch.checked_mul(height).ok_or(Status::OUT_OF_MEMORY)?;
    Ok((pitch, bytes as u64))
}

fn alloc_pitch_old(out: Out<u32>, pitch: Out<u32>, width: u32, height: u32, element: u32) -> Outcome {
    current()?;
    out.required()?;
    pitch.required()?;
    let (row, bytes) = pitched(width as usize, height as usize, element)?;
    pitch.set(row as u32)?;
    out.set(clamp32(allocate(bytes, true)?))
}

fn alloc_pitch(out: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32) -> Outcome {
    current()?;
    out.required()?;
    pitch.required()?;
    let (row, bytes) = pitched(width, height, element)?;
    let address = allocate(bytes, false)?;
    pitch.set(row)?;
    out.set(address)
}

fn free_old(address: u32) -> Outcome {
    free(address.into())
}

/// Takes memory of any context, and needs none to be current; but one that is has to be in working order.
fn free(address: u64) -> Outcome {
    let driver = state::driver()?;
    if context::current_handle().is_some() {
        current()?;
    }
    capture::forbid_unsafe_call()?;
    if address == 0 {
        return Ok(());
    }
    let found = driver.space.look().allocations.starting_at(address).map(|one| (one.context, one.is_leaving()));
    let Some((owner, is_leaving)) = found else { return super::host_memory::free_managed(address) };
    // Work that was submitted may still use it.
    driver.synchronize_alone(owner)?;
    // What a stream frees is gone by then.
    if is_leaving { Ok(()) } else { driver.space.free(address) }
}

fn info_old(free: Out<u32>, total: Out<u32>) -> Outcome {
    let gpu = current()?.0.device.gpu;
    free.required()?;
    total.required()?;
    free.set(clamp32(gpu.free()))?;
    total.set(clamp32(gpu.memory()))
}

fn info(free: Out<usize>, total: Out<usize>) -> Outcome {
    let gpu = current()?.0.device.gpu;
    free.required()?;
    total.required()?;
    free.set(gpu.free() as usize)?;
    total.set(gpu.memory() as usize)
}

/// The allocation, mapping or pinned range that an address is in. Of handles side by side it is only the one.
pub(super) fn find_range(address: u64) -> Outcome<(u64, u64)> {
    let (context, driver) = current()?;
    let table = driver.space.look();
    if let Some((base, range)) = table.host(address) {
        return Ok((base, range.bytes));
    }
    let seen = context.view();
    // What is out of the context's reach is nothing to it.
    let reached = table.mapping(address).filter(|(_, mapping)| seen.access(&table, address, mapping) != Access::None);
    let (base, mapping) = reached.ok_or(Status::NOT_FOUND)?;
    match table.allocations.find(address) {
        Some((base, allocation)) => Ok((base, allocation.bytes)),
        None if mapping.handle != 0 => Ok((base, mapping.phys.bytes())),
        None => Err(Status::NOT_FOUND),
    }
}

fn range_old(base: Out<u32>, bytes: Out<u32>, address: u32) -> Outcome {
    let (start, length) = find_range(address.into())?;
    base.offer(clamp32(start));
    bytes.offer(clamp32(length));
    Ok(())
}

fn range(base: Out<u64>, bytes: Out<usize>, address: u64) -> Outcome {
    let (start, length) = find_range(address)?;
    base.offer(start);
    bytes.offer(length as usize);
    Ok(())
}

fn alloc_async(default: Default, out: Out<u64>, _bytes: usize, stream: usize) -> Outcome {
    submit::resolve(default, stream)?;
    out.required()?;
    Err(Status::NOT_SUPPORTED)
}

fn alloc_from_pool(default: Default, out: Out<u64>, bytes: usize, _pool: usize, stream: usize) -> Outcome {
    alloc_async(default, out, bytes, stream)
}

/// There are no pools, but the call takes memory of `cuMemAlloc` too.
fn free_async(default: Default, address: u64, stream: usize) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    if address == 0 {
        return Ok(());
    }
    if capture::tail(&stream)?.is_some() {
        // No node frees such memory. The capture does not suffer.
        return Err(Status::INVALID_VALUE);
    }
    capture::check_legacy(&stream)?;
    capture::forbid_unsafe_call()?;
    let context = submit::owner(&stream)?;
    context.check()?;
    if stream.kind == Kind::Legacy {
        context.locks.pass_objects();
    }
    context.driver.space.change().allocations.leave(address)?;
    submit::enqueue_aside(&stream, Vec::new(), Op::Free(address)).map(drop)
}

/// The device has no pools: attribute 115 says so, and so does every call about one.
fn no_pools() -> Outcome {
    Err(Status::NOT_SUPPORTED)
}

fn pool_1(_pool: usize) -> Outcome {
    no_pools()
}

fn pool_2(_pool: usize, _other: usize) -> Outcome {
    no_pools()
}

fn pool_3(_pool: usize, _attribute: u32, _value: usize) -> Outcome {
    no_pools()
}

fn pool_of_3(_pool: usize, _second: usize, _third: usize) -> Outcome {
    no_pools()
}

fn pool_share(_out: usize, _other: usize, _kind: u32, _flags: u64) -> Outcome {
    no_pools()
}

/// No address is of a pool's memory.
fn pool_export(_out: usize, _address: u64) -> Outcome {
    Err(Status::INVALID_VALUE)
}

fn pool_get(_out: usize, _location: usize, _kind: u32) -> Outcome {
    no_pools()
}

fn pool_set(_location: usize, _kind: u32, _pool: usize) -> Outcome {
    no_pools()
}
