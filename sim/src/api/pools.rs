//! `cuMemPool*`: making pools, their settings and figures, which one a device's allocations are from. Allocations
//! from them are in `stream_memory.rs`.

use std::os::fd::{BorrowedFd, IntoRawFd};
use std::sync::Arc;

use super::abi::{AccessDesc, Location, PoolProps};
use super::arguments::{self, only_flags};
use crate::border::{In, List, Out, read_at, write_at};
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::graph::capture;
use crate::memory::space::Access;
use crate::pool::backing::Backing;
use crate::pool::lease::Source;
use crate::pool::{Policy, Pool, addresses_on};
use crate::state;

doors! {
    cuMemPoolCreate: "cuMemPoolCreate" 11020 (out: Out<usize>, props: In<PoolProps>) = create;
    cuMemPoolDestroy: "cuMemPoolDestroy" 11020 (pool: usize) = destroy;
    cuMemPoolTrimTo: "cuMemPoolTrimTo" 11020 (pool: usize, keep: usize) = trim;
    cuMemPoolSetAttribute: "cuMemPoolSetAttribute" 11020 (pool: usize, attribute: u32, value: usize) = set_attribute;
    cuMemPoolGetAttribute: "cuMemPoolGetAttribute" 11020 (pool: usize, attribute: u32, value: usize) = get_attribute;
    cuMemPoolSetAccess: "cuMemPoolSetAccess" 11020 (pool: usize, list: List<AccessDesc>, count: usize) = set_access;
    cuMemPoolGetAccess: "cuMemPoolGetAccess" 11020
        (flags: Out<u32>, pool: usize, location: In<Location>) = get_access;
    cuMemPoolExportToShareableHandle: "cuMemPoolExportToShareableHandle" 11020
        (out: usize, pool: usize, kind: u32, flags: u64) = share;
    cuMemPoolImportFromShareableHandle: "cuMemPoolImportFromShareableHandle" 11020
        (out: Out<usize>, handle: usize, kind: u32, flags: u64) = take_shared;
    cuMemPoolExportPointer: "cuMemPoolExportPointer" 11020 (out: usize, address: u64) = share_pointer;
    cuMemPoolImportPointer: "cuMemPoolImportPointer" 11020 (out: Out<u64>, pool: usize, data: usize) = take_pointer;
    cuMemGetDefaultMemPool: "cuMemGetDefaultMemPool" 13000
        (out: Out<usize>, location: In<Location>, kind: u32) = get_default_at;
    cuMemGetMemPool: "cuMemGetMemPool" 13000 (out: Out<usize>, location: In<Location>, kind: u32) = get_current_at;
    cuMemSetMemPool: "cuMemSetMemPool" 13000 (location: In<Location>, kind: u32, pool: usize) = set_current_at;
    cuDeviceGetDefaultMemPool: "cuDeviceGetDefaultMemPool" 11020 (out: Out<usize>, device: i32) = get_default;
    cuDeviceGetMemPool: "cuDeviceGetMemPool" 11020 (out: Out<usize>, device: i32) = get_current;
    cuDeviceSetMemPool: "cuDeviceSetMemPool" 11020 (device: i32, pool: usize) = set_current;
}

/// `CUmemAllocationType`: pinned, managed.
const PINNED: u32 = 1;
const MANAGED: u32 = 2;
/// `CUmemLocationType`: a device, the host, a part of the host.
const LOCATION_DEVICE: u32 = 1;
const HOST: u32 = 2;
const HOST_NUMA: u32 = 3;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR` and `_FABRIC`: the handles that the driver shares pools by.
const FILE_DESCRIPTOR: u32 = 1;
const HANDLE_TYPES: u32 = 9;

/// `CUmemPool_attribute`
const REUSE: std::ops::RangeInclusive<u32> = 1..=3;
const RELEASE_THRESHOLD: u32 = 4;
const RESERVED_CURRENT: u32 = 5;
const RESERVED_HIGH: u32 = 6;
const USED_CURRENT: u32 = 7;
const USED_HIGH: u32 = 8;

fn find(pool: usize) -> Outcome<Arc<Pool>> {
    state::driver()?.pools.find(pool)
}

/// The same for what a capture does not allow.
fn find_uncaptured(pool: usize) -> Outcome<Arc<Pool>> {
    let pool = find(pool)?;
    capture::forbid_unsafe_call()?;
    Ok(pool)
}

/// Refuses properties of a pool that are not simulated, instead of ignoring them. (The driver too ignores a pool's purpose, and
/// attributes of another system.)
pub(super) fn check(props: &PoolProps) -> Outcome {
    let known = matches!(props.kind, PINNED | MANAGED) && (LOCATION_DEVICE..=HOST_NUMA).contains(&props.location.kind);
    if !known || props.handle_types & !HANDLE_TYPES != 0 || props.reserved != [0; 54] {
        return Err(Status::INVALID_VALUE);
    }
    if props.location.kind == HOST_NUMA && props.location.id != 0 {
        // There is one part of the host.
        return Err(Status::INVALID_VALUE);
    }
    let simulated = props.kind == PINNED && props.location.kind == LOCATION_DEVICE;
    if !simulated || props.handle_types & !FILE_DESCRIPTOR != 0 {
        return Err(Status::NOT_SUPPORTED);
    }
    arguments::device(props.location.id).map(drop).map_err(|_| Status::INVALID_VALUE)
}

/// The same for what only a pool of this process's has.
fn find_own(pool: usize) -> Outcome<Arc<Pool>> {
    let pool = find_uncaptured(pool)?;
    if pool.is_imported() { Err(Status::INVALID_VALUE) } else { Ok(pool) }
}

fn create(out: Out<usize>, props: In<PoolProps>) -> Outcome {
    out.required()?;
    let props = props.get()?;
    capture::forbid_unsafe_call()?;
    check(&props)?;
    let gpu = arguments::device(props.location.id)?.gpu;
    let exportable = props.handle_types & FILE_DESCRIPTOR != 0;
    let backing = exportable.then(|| Backing::make(gpu, addresses_on(gpu))).transpose()?;
    out.set(state::driver()?.pools.make(gpu, backing, props.most as u64).handle)
}

fn destroy(pool: usize) -> Outcome {
    let driver = state::driver()?;
    find_uncaptured(pool)?;
    driver.pools.destroy(driver.space, pool)
}

fn trim(pool: usize, keep: usize) -> Outcome {
    find_uncaptured(pool)?.trim(state::driver()?.space, keep as u64);
    Ok(())
}

fn set_attribute(pool: usize, attribute: u32, value: usize) -> Outcome {
    let pool = find_own(pool)?;
    let mut state = pool.state();
    match attribute {
        number if REUSE.contains(&number) => state.policies[policy(number) as usize] = read_at::<i32>(value)? != 0,
        RELEASE_THRESHOLD => state.threshold = read_at(value)?,
        // The highest figures can be forgotten, and nothing else.
        RESERVED_HIGH if read_at::<u64>(value)? == 0 => state.reserved.reset(),
        USED_HIGH if read_at::<u64>(value)? == 0 => state.used.reset(),
        _ => return Err(Status::INVALID_VALUE),
    }
    Ok(())
}

fn policy(attribute: u32) -> Policy {
    match attribute {
        1 => Policy::FollowEvents,
        2 => Policy::Opportunistic,
        _ => Policy::InternalDependencies,
    }
}

fn get_attribute(pool: usize, attribute: u32, value: usize) -> Outcome {
    let pool = find_own(pool)?;
    let state = pool.state();
    let figure = match attribute {
        number if REUSE.contains(&number) => {
            return write_at(value, i32::from(state.policies[policy(number) as usize]));
        }
        RELEASE_THRESHOLD => state.threshold,
        RESERVED_CURRENT => state.reserved.current,
        RESERVED_HIGH => state.reserved.high,
        USED_CURRENT => state.used.current,
        USED_HIGH => state.used.high,
        _ => return Err(Status::INVALID_VALUE),
    };
    write_at(value, figure)
}

fn set_access(pool: usize, list: List<AccessDesc>, count: usize) -> Outcome {
    let pool = find_uncaptured(pool)?;
    let asked = list.read(count)?.into_iter().map(|one| wish(&pool, &one)).collect::<Outcome<Vec<_>>>()?;
    let space = &state::driver()?.space;
    asked.into_iter().try_for_each(|(ordinal, access)| pool.set_access(space, ordinal, access))
}

/// One GPU's access that is asked for, and the answers as measured. The pool's own has all of it, always.
fn wish(pool: &Pool, one: &AccessDesc) -> Outcome<(usize, Access)> {
    let (ordinal, access) = access_of(one)?;
    if ordinal == pool.gpu().ordinal() && access != Access::ReadWrite {
        return Err(Status::INVALID_DEVICE);
    }
    Ok((ordinal, access))
}

/// A GPU and what it is to be allowed: all or nothing.
pub(super) fn access_of(one: &AccessDesc) -> Outcome<(usize, Access)> {
    if one.location.kind != LOCATION_DEVICE || one.flags == 1 {
        return Err(Status::NOT_SUPPORTED);
    }
    let ordinal = arguments::device(one.location.id)?.ordinal();
    match one.flags {
        0 => Ok((ordinal, Access::None)),
        3 => Ok((ordinal, Access::ReadWrite)),
        _ => Err(Status::INVALID_VALUE),
    }
}

fn get_access(flags: Out<u32>, pool: usize, location: In<Location>) -> Outcome {
    flags.required()?;
    let pool = find(pool)?;
    let location = location.get()?;
    let ordinal = match location.kind {
        LOCATION_DEVICE => arguments::device(location.id).map_err(|_| Status::INVALID_VALUE)?.ordinal(),
        HOST | HOST_NUMA => return flags.set(0),
        _ => return Err(Status::INVALID_VALUE),
    };
    let access = pool.state().access[ordinal];
    flags.set(access.flags() as u32)
}

/// Fails if that is no kind of handle that pools are shared by.
fn shared_as(kind: u32, flags: u64) -> Outcome {
    only_flags(flags, 0)?;
    if kind == FILE_DESCRIPTOR { Ok(()) } else { Err(Status::INVALID_VALUE) }
}

fn share(out: usize, pool: usize, kind: u32, flags: u64) -> Outcome {
    let pool = find(pool)?;
    shared_as(kind, flags)?;
    let backing = pool.exportable().filter(|_| out != 0).ok_or(Status::INVALID_VALUE)?;
    write_at::<i32>(out, backing.export()?.into_raw_fd())
}

#[allow(unsafe_code)]
fn take_shared(out: Out<usize>, shared: usize, kind: u32, flags: u64) -> Outcome {
    out.required()?;
    shared_as(kind, flags)?;
    // The descriptor comes in the place of a pointer.
    let descriptor =
        i32::try_from(shared as isize).ok().filter(|descriptor| *descriptor >= 0).ok_or(Status::UNKNOWN)?;
    // SAFETY: the program lends the descriptor for this call. If it is none, the kernel says so.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let driver = state::driver()?;
    let (gpu, backing) = Backing::import(driver.gpus(), descriptor)?;
    out.set(driver.pools.make(gpu, Some(backing), 0).handle)
}

/// `CUmemPoolPtrExportData`: the pool's number, where in it, and how many bytes.
#[derive(Clone, Copy)]
#[repr(C)]
struct Exported {
    number: u64,
    offset: u64,
    bytes: u64,
    rest: [u64; 5],
}

fn share_pointer(out: usize, address: u64) -> Outcome {
    let table = state::driver()?.space.look();
    let lent = table.allocations.starting_at(address).and_then(|one| one.lent.clone());
    drop(table);
    let lent = lent.filter(|_| out != 0).ok_or(Status::INVALID_VALUE)?;
    let pool = Pool::of(&lent).ok_or(Status::INVALID_VALUE)?;
    let number = pool.exportable().ok_or(Status::INVALID_VALUE)?.number;
    let (offset, bytes) = pool.place_of(&lent).ok_or(Status::INVALID_VALUE)?;
    write_at(out, Exported { number, offset, bytes, rest: [0; 5] })
}

fn take_pointer(out: Out<u64>, pool: usize, data: usize) -> Outcome {
    out.required()?;
    let pool = find(pool)?;
    let data = read_at::<Exported>(data)?;
    if pool.number() != Some(data.number) {
        return Err(Status::INVALID_VALUE);
    }
    out.set(pool.import(state::driver()?.space, data.offset, data.bytes)?)
}

fn get_default(out: Out<usize>, device: i32) -> Outcome {
    out.required()?;
    let ordinal = arguments::device(device)?.ordinal();
    out.set(state::driver()?.pools.default_of(ordinal).handle)
}

fn get_current(out: Out<usize>, device: i32) -> Outcome {
    out.required()?;
    let ordinal = arguments::device(device).map_err(|_| Status::INVALID_VALUE)?.ordinal();
    out.set(state::driver()?.pools.current_of(ordinal).handle)
}

fn set_current(device: i32, pool: usize) -> Outcome {
    let ordinal = arguments::device(device).map_err(|_| Status::INVALID_VALUE)?.ordinal();
    let pool = find(pool)?;
    if pool.gpu().ordinal() != ordinal || pool.is_imported() {
        return Err(Status::INVALID_VALUE);
    }
    state::driver()?.pools.set_current(pool);
    Ok(())
}

/// The device that a place is, for pinned memory; there are no other pools.
fn device_at(location: In<Location>, kind: u32) -> Outcome<i32> {
    let location = location.get()?;
    match (kind, location.kind) {
        (PINNED, LOCATION_DEVICE) => {
            arguments::device(location.id).map_or(Err(Status::INVALID_VALUE), |_| Ok(location.id))
        }
        (PINNED, 0) => Err(Status::INVALID_VALUE),
        (PINNED | MANAGED, _) => Err(Status::NOT_SUPPORTED),
        _ => Err(Status::INVALID_VALUE),
    }
}

fn get_default_at(out: Out<usize>, location: In<Location>, kind: u32) -> Outcome {
    out.required()?;
    get_default(out, device_at(location, kind)?)
}

fn get_current_at(out: Out<usize>, location: In<Location>, kind: u32) -> Outcome {
    out.required()?;
    get_current(out, device_at(location, kind)?)
}

fn set_current_at(location: In<Location>, kind: u32, pool: usize) -> Outcome {
    find(pool)?;
    set_current(device_at(location, kind)?, pool)
}
