//! `cuMemAlloc*`, `cuMemFree`, `cuMemGetInfo`, `cuMemGetAddressRange`.

use super::arguments::{clamp32, current};
use crate::border::Out;
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::stack;
use crate::graph::capture;
use crate::memory::allocations::Allocation;
use crate::memory::space::Access;
use crate::pool::lease::Lease;
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
}

/// A row of `cuMemAllocPitch` is a multiple of this.
const PITCH: usize = 512;

/// Overwrites an answer with zeros, as the driver does even if something else is wrong with the call.
pub(super) fn clear<T: std::default::Default>(out: Out<T>) -> Outcome {
    out.offer(T::default());
    Ok(())
}

fn clear_both<A: std::default::Default, P: std::default::Default>(out: Out<A>, pitch: Out<P>) -> Outcome {
    clear(out)?;
    clear(pitch)
}

fn allocate(bytes: u64, low: bool) -> Outcome<u64> {
    let (context, driver) = current()?;
    capture::forbid_unsafe_call()?;
    context.pass_objects();
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
    if stack::current_handle().is_some() {
        current()?;
    }
    capture::forbid_unsafe_call()?;
    if address == 0 {
        return Ok(());
    }
    if driver.space.look().allocations.starting_at(address).is_some_and(|one| one.opened.is_some()) {
        // It is another process's.
        return Err(Status::INVALID_VALUE);
    }
    let of = |one: &Allocation| (one.context, one.is_leaving());
    let found = driver.space.look().allocations.starting_at(address).map(of);
    if let Some((0, _)) = found {
        // It was allocated in a stream's order, and nothing waits for that.
        let lease = Lease::take(driver.space, address)?;
        lease.free_now(driver.space);
        return Ok(());
    }
    let Some((owner, is_leaving)) = found else { return super::host_memory::free_managed(address) };
    // Work that was submitted may still use it.
    driver.synchronize_alone(owner)?;
    // Memory that a stream frees is gone by then.
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
    // Memory out of the context's reach is nothing to it.
    let reached = table.mapping(address).filter(|(_, mapping)| seen.access(&table, address, mapping) != Access::None);
    let (base, mapping) = reached.ok_or(Status::NOT_FOUND)?;
    match table.allocations.find(address).filter(|(_, allocation)| allocation.is_somebodys()) {
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
