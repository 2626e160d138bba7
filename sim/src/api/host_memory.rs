//! Pinned host memory, and managed memory, which here is pinned memory as well: one address for host and
//! device, always in the host.

use std::time::Duration;

use super::arguments::{clamp32, current, only_flags};
use crate::border::Out;
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::graph::capture;
use crate::mapping::is_host_memory;
use crate::memory::space::{ALWAYS_MAPPED, HostRange};
use crate::state;

doors! {
    old cuMemAllocHost: "cuMemAllocHost" 2000 (out: Out<usize>, bytes: u32) = alloc_old;
    cuMemAllocHost_v2: "cuMemAllocHost" 3020 (out: Out<usize>, bytes: usize) = alloc_plain;
    cuMemHostAlloc: "cuMemHostAlloc" 2020 (out: Out<usize>, bytes: usize, flags: u32) = alloc;
    cuMemFreeHost: "cuMemFreeHost" 2000 (start: usize) = free;
    cuMemHostRegister: "cuMemHostRegister" 4000 (start: usize, bytes: usize, flags: u32) = register;
    cuMemHostRegister_v2: "cuMemHostRegister" 6050 (start: usize, bytes: usize, flags: u32) = register;
    cuMemHostUnregister: "cuMemHostUnregister" 4000 (start: usize) = unregister;
    old cuMemHostGetDevicePointer: "cuMemHostGetDevicePointer" 2020
        (out: Out<u32>, start: usize, flags: u32) = device_pointer_old;
    cuMemHostGetDevicePointer_v2: "cuMemHostGetDevicePointer" 3020
        (out: Out<u64>, start: usize, flags: u32) = device_pointer;
    cuMemHostGetFlags: "cuMemHostGetFlags" 2030 (flags: Out<u32>, start: usize) = get_flags;
    cuMemAllocManaged: "cuMemAllocManaged" 6000 (out: Out<u64>, bytes: usize, flags: u32)
        = alloc_managed after can_be_managed(out, bytes, flags);
}

/// Portable, device-mapped, write-combined.
const ALLOC_FLAGS: u64 = 7;
/// Portable, device-mapped, memory of a device, read-only.
const REGISTER_FLAGS: u64 = 15;
const DEVICE_MAPPED: u32 = 2;

fn make(bytes: usize, flags: u32, managed: bool) -> Outcome<u64> {
    let (context, driver) = current()?;
    capture::forbid_unsafe_call()?;
    if bytes == 0 {
        return Err(Status::INVALID_VALUE);
    }
    context.pass_objects();
    driver.space.change().add_host(context.id, bytes, flags, managed)
}

fn alloc_old(out: Out<usize>, bytes: u32) -> Outcome {
    alloc(out, bytes as usize, 0)
}

fn alloc_plain(out: Out<usize>, bytes: usize) -> Outcome {
    alloc(out, bytes, 0)
}

fn alloc(out: Out<usize>, bytes: usize, flags: u32) -> Outcome {
    current()?;
    out.required()?;
    only_flags(flags.into(), ALLOC_FLAGS)?;
    out.set(make(bytes, flags | ALWAYS_MAPPED, false)? as usize)
}

fn can_be_managed(out: Out<u64>, bytes: usize, flags: u32) -> Outcome {
    out.required()?;
    // Attached to all, or to the host.
    if bytes == 0 || !matches!(flags, 1 | 2) { Err(Status::INVALID_VALUE) } else { Ok(()) }
}

fn alloc_managed(out: Out<u64>, bytes: usize, _flags: u32) -> Outcome {
    out.set(make(bytes, ALWAYS_MAPPED, true)?)
}

fn free(start: usize) -> Outcome {
    let (context, driver) = current()?;
    capture::forbid_unsafe_call()?;
    if start == 0 {
        return Ok(());
    }
    let ours = |range: &HostRange| range.pages.is_some() && !range.managed;
    if !driver.space.look().hosts.get(&(start as u64)).is_some_and(ours) {
        return Err(Status::INVALID_VALUE);
    }
    context.synchronize_alone()?;
    driver.space.change().hosts.remove(&(start as u64));
    Ok(())
}

/// `cuMemFree` of an address that is no allocation of device memory.
pub(super) fn free_managed(start: u64) -> Outcome {
    let driver = state::driver()?;
    let owner = driver.space.look().hosts.get(&start).filter(|range| range.managed).map(|range| range.context);
    driver.synchronize_alone(owner.ok_or(Status::INVALID_VALUE)?)?;
    driver.space.change().hosts.remove(&start);
    Ok(())
}

fn register(start: usize, bytes: usize, flags: u32) -> Outcome {
    let (context, driver) = current()?;
    capture::forbid_unsafe_call()?;
    only_flags(flags.into(), REGISTER_FLAGS)?;
    if start == 0 || bytes == 0 || start.checked_add(bytes).is_none() {
        return Err(Status::INVALID_VALUE);
    }
    if !is_host_memory(start, bytes) {
        return Err(Status::INVALID_VALUE);
    }
    context.pass_objects();
    let mut table = driver.space.change();
    let (first, last) = (start as u64, (start + bytes) as u64 - 1);
    if table.reservation(first).is_some() {
        return Err(Status::INVALID_VALUE);
    }
    let taken = table.host(first).is_some() || table.hosts.range(first..=last).next().is_some();
    if taken {
        return Err(Status::HOST_MEMORY_ALREADY_REGISTERED);
    }
    let range = HostRange {
        bytes: bytes as u64,
        flags: flags | DEVICE_MAPPED,
        context: context.id,
        buffer_id: table.next_buffer_id(),
        pages: None,
        managed: false,
        synchronous: false,
    };
    table.hosts.insert(first, range);
    drop(table);
    pin(driver.pinning, bytes);
    Ok(())
}

/// Takes the time that it takes to pin so much, by the time for a GiB.
fn pin(of_a_gib: Duration, bytes: usize) {
    if !of_a_gib.is_zero() {
        std::thread::sleep(of_a_gib.mul_f64(bytes as f64 / (1u64 << 30) as f64));
    }
}

fn unregister(start: usize) -> Outcome {
    let (context, driver) = current()?;
    capture::forbid_unsafe_call()?;
    let table = driver.space.look();
    match table.hosts.get(&(start as u64)) {
        Some(range) if range.pages.is_none() => {}
        None if table.mapping(start as u64).is_some() => return Err(Status::INVALID_VALUE),
        _ => return Err(Status::HOST_MEMORY_NOT_REGISTERED),
    }
    drop(table);
    context.synchronize_alone()?;
    driver.space.change().hosts.remove(&(start as u64));
    Ok(())
}

/// The device's address for one of the host's, and the memory's flags. Memory that the program mapped itself
/// passes for memory of the host, by its handle's start.
fn find(start: usize) -> Outcome<(u64, u32)> {
    let (_, driver) = current()?;
    let table = driver.space.look();
    if let Some((base, _)) = table.program_mapping(start as u64) {
        return Ok((base, ALWAYS_MAPPED));
    }
    let (_, range) = table.host(start as u64).ok_or(Status::INVALID_VALUE)?;
    Ok((start as u64, range.flags))
}

fn device_pointer_old(out: Out<u32>, start: usize, flags: u32) -> Outcome {
    current()?;
    out.required()?;
    only_flags(flags.into(), 0)?;
    out.set(clamp32(find(start)?.0))
}

fn device_pointer(out: Out<u64>, start: usize, flags: u32) -> Outcome {
    current()?;
    out.required()?;
    only_flags(flags.into(), 0)?;
    out.set(find(start)?.0)
}

fn get_flags(flags: Out<u32>, start: usize) -> Outcome {
    current()?;
    flags.required()?;
    flags.set(find(start)?.1)
}
