//! Virtual memory management: addresses, physical handles, mapping one to the other, sharing handles.
//!
//! As measured on the device (`bench/results/rules.json`): handles come in units of 2 MiB and are mapped whole; contents stay over
//! unmapping and mapping elsewhere; an imported handle cannot be exported again. Memory of the host is not simulated.

use std::os::fd::{BorrowedFd, IntoRawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::abi::{AccessDesc, AllocationProp, Location};
use super::arguments::{self, current, only_flags};
use crate::border::{In, List, Out, write_at};
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::context::Context;
use crate::exec::submit::{self, Default};
use crate::gpu_file::Gpu;
use crate::memory::phys::{GRANULARITY, Phys};
use crate::memory::space::Access;
use crate::memory::team::Team;
use crate::settings::Pausing;
use crate::state::{self, Handle, Uses};

/// How often a process that was paused looks whether it can go on ([`Pausing::Stuck`]).
const LOOK: Duration = Duration::from_millis(1);

doors! {
    cuMemAddressReserve: "cuMemAddressReserve" 10020
        (out: Out<u64>, bytes: usize, alignment: usize, wish: u64, flags: u64) = reserve;
    cuMemAddressFree: "cuMemAddressFree" 10020 (start: u64, bytes: usize) = unreserve;
    cuMemCreate: "cuMemCreate" 10020
        (out: Out<u64>, bytes: usize, prop: In<AllocationProp>, flags: u64) = create;
    cuMemRelease: "cuMemRelease" 10020 (handle: u64) = release;
    cuMemMap: "cuMemMap" 10020 (start: u64, bytes: usize, offset: usize, handle: u64, flags: u64) = map;
    cuMemUnmap: "cuMemUnmap" 10020 (start: u64, bytes: usize) = unmap;
    cuMemSetAccess: "cuMemSetAccess" 10020
        (start: u64, bytes: usize, list: List<AccessDesc>, count: usize) = set_access;
    cuMemGetAccess: "cuMemGetAccess" 10020 (flags: Out<u64>, location: In<Location>, address: u64) = get_access;
    cuMemExportToShareableHandle: "cuMemExportToShareableHandle" 10020
        (out: usize, handle: u64, kind: u32, flags: u64) = export;
    cuMemImportFromShareableHandle: "cuMemImportFromShareableHandle" 10020
        (out: Out<u64>, shared: usize, kind: u32) = import;
    cuMemGetAllocationGranularity: "cuMemGetAllocationGranularity" 10020
        (out: Out<usize>, prop: In<AllocationProp>, option: u32) = granularity;
    cuMemGetAllocationPropertiesFromHandle: "cuMemGetAllocationPropertiesFromHandle" 10020
        (out: Out<AllocationProp>, handle: u64) = properties;
    cuMemRetainAllocationHandle: "cuMemRetainAllocationHandle" 11000 (out: Out<u64>, address: u64) = retain;
    cuFlushGPUDirectRDMAWrites: "cuFlushGPUDirectRDMAWrites" 11030 (target: u32, scope: u32) = flush_writes;
    cuMemGetHandleForAddressRange: "cuMemGetHandleForAddressRange" 11070
        (out: usize, start: u64, bytes: usize, kind: u32, flags: u64) = range_handle;
    cuMemMapArrayAsync / cuMemMapArrayAsync_ptsz: "cuMemMapArrayAsync" 11010 / 11010
        (list: List<ArrayMapInfo>, count: u32, stream: usize)
        = map_array after has_entries(list, count);
}

/// `CU_MEM_ALLOCATION_TYPE_PINNED`
const PINNED: u32 = 1;
/// `CU_MEM_LOCATION_TYPE_…`: a device, the host, a node of it.
const LOCATION_DEVICE: u32 = 1;
const LOCATION_HOST: u32 = 2;
const LOCATION_HOST_NUMA: u32 = 3;
/// `CU_MEM_HANDLE_TYPE_…`: a file descriptor, Windows' two, and one for a fabric that this machine is not part of.
const FILE_DESCRIPTOR: u32 = 1;
const OF_WINDOWS: u32 = 2 | 4;
const FABRIC: u32 = 8;

fn reserve(out: Out<u64>, bytes: usize, alignment: usize, wish: u64, flags: u64) -> Outcome {
    out.required()?;
    only_flags(flags, 0)?;
    let bytes = whole_granules(bytes)?;
    let alignment = alignment as u64;
    if !wish.is_multiple_of(GRANULARITY) || alignment != 0 && !alignment.is_power_of_two() {
        return Err(Status::INVALID_VALUE);
    }
    let mut table = state::driver()?.space.change();
    out.set(table.reserve(bytes, alignment.max(GRANULARITY), wish, true)?)
}

fn whole_granules(bytes: usize) -> Outcome<u64> {
    let bytes = bytes as u64;
    let valid = bytes != 0 && bytes.is_multiple_of(GRANULARITY);
    if valid { Ok(bytes) } else { Err(Status::INVALID_VALUE) }
}

fn unreserve(start: u64, bytes: usize) -> Outcome {
    state::driver()?.space.change().unreserve(start, bytes as u64)
}

/// Refuses properties of a handle that are not simulated, instead of ignoring them.
fn check(prop: &AllocationProp) -> Outcome {
    if prop.kind != PINNED || !(LOCATION_DEVICE..=LOCATION_HOST_NUMA).contains(&prop.location.kind) {
        return Err(Status::INVALID_VALUE);
    }
    // Bits that mean nothing are not looked at.
    if prop.handle_types & OF_WINDOWS != 0 || prop.win32 != 0 || prop.compression > 1 || prop.reserved != [0; 4] {
        return Err(Status::INVALID_VALUE);
    }
    if prop.handle_types & FABRIC != 0 {
        return Err(Status::NOT_PERMITTED);
    }
    if prop.location.kind != LOCATION_DEVICE {
        return Err(Status::NOT_SUPPORTED);
    }
    arguments::device(prop.location.id).map(drop)
}

fn create(out: Out<u64>, bytes: usize, prop: In<AllocationProp>, flags: u64) -> Outcome {
    out.required()?;
    let prop = prop.get()?;
    only_flags(flags, 0)?;
    check(&prop)?;
    let bytes = whole_granules(bytes)?;
    let exportable = prop.handle_types & FILE_DESCRIPTOR != 0;
    let phys = Phys::create(arguments::device(prop.location.id)?.gpu, bytes, exportable)?;
    out.set(enter(phys, exportable, [prop.compression, (prop.rdma != 0).into()], None)?)
}

/// A new handle, of memory or of a multicast object.
pub(super) fn enter(phys: Phys, exportable: bool, flags: [u8; 2], team: Option<Team>) -> Outcome<u64> {
    let uses = Mutex::new(Uses { held: 1, mapped: 0 });
    let handle = Handle { phys: Arc::new(phys), exportable, flags, team, uses };
    Ok(state::driver()?.handles.add(Arc::new(handle)) as u64)
}

/// The handle with this number.
pub(super) fn find(handle: u64) -> Outcome<Arc<Handle>> {
    state::driver()?.handles.get(handle as usize).map_err(|_| Status::INVALID_VALUE)
}

/// Changes what keeps a handle, which must be kept by something; one that nothing keeps any more is gone.
fn use_handle<R>(handle: u64, change: impl FnOnce(&mut Uses) -> Outcome<R>) -> Outcome<R> {
    let found = find(handle)?;
    let mut uses = found.uses.lock().unwrap_or_else(PoisonError::into_inner);
    let is_kept = |uses: &Uses| uses.held > 0 || uses.mapped > 0;
    if !is_kept(&uses) {
        return Err(Status::INVALID_VALUE);
    }
    let result = change(&mut uses)?;
    if !is_kept(&uses) {
        state::driver()?.handles.remove(handle as usize)?;
    }
    Ok(result)
}

/// The memory stays while it is mapped, and so long its number is good for mapping it elsewhere.
fn release(handle: u64) -> Outcome {
    use_handle(handle, |uses| {
        uses.held = uses.held.checked_sub(1).ok_or(Status::INVALID_VALUE)?;
        Ok(())
    })
}

fn map(start: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> Outcome {
    only_flags(flags, 0)?;
    let found = find(handle)?;
    if bytes == 0 {
        return Err(Status::INVALID_VALUE);
    }
    if offset != 0 || bytes as u64 != found.phys.bytes() {
        return Err(Status::NOT_SUPPORTED);
    }
    if let Some(team) = &found.team {
        team.wait();
    }
    use_handle(handle, |uses| {
        state::driver()?.space.change().map_for_program(start, found.phys.clone(), handle)?;
        uses.mapped += 1;
        Ok(())
    })
}

fn unmap(start: u64, bytes: usize) -> Outcome {
    let driver = state::driver()?;
    if driver.pausing == Pausing::Stuck {
        let works = |context: &Context| !context.everything().is_empty();
        while driver.gpus().any(Gpu::is_paused) && driver.contexts.find(works).is_some() {
            std::thread::sleep(LOOK);
        }
    }
    let gone = driver.space.change().unmap_for_program(start, bytes as u64)?;
    // Memory without another holder goes back to the GPU, now that the table is free again.
    gone.iter().try_for_each(|mapping| {
        use_handle(mapping.handle, |uses| {
            uses.mapped -= 1;
            Ok(())
        })
    })
}

fn set_access(start: u64, bytes: usize, list: List<AccessDesc>, count: usize) -> Outcome {
    let list = list.read(count)?;
    if list.is_empty() {
        return Err(Status::INVALID_VALUE);
    }
    // All of the list is looked at before any of it is done.
    let all: Vec<(usize, Access)> = list.iter().map(of_access).collect::<Outcome<_>>()?;
    let mut table = state::driver()?.space.change();
    if table.program_mapping(start).is_none() {
        return Err(Status::INVALID_VALUE);
    }
    all.into_iter().try_for_each(|(ordinal, access)| table.set_access(start, bytes as u64, ordinal, access))
}

/// Which device is to have which access.
fn of_access(one: &AccessDesc) -> Outcome<(usize, Access)> {
    match one.location.kind {
        LOCATION_DEVICE => {}
        LOCATION_HOST | LOCATION_HOST_NUMA => return Err(Status::NOT_SUPPORTED),
        _ => return Err(Status::INVALID_VALUE),
    }
    let device = arguments::device(one.location.id).map_err(|_| Status::INVALID_VALUE)?;
    let access = match one.flags {
        0 => Access::None,
        1 => Access::Read,
        3 => Access::ReadWrite,
        _ => return Err(Status::INVALID_VALUE),
    };
    Ok((device.ordinal(), access))
}

fn get_access(flags: Out<u64>, location: In<Location>, address: u64) -> Outcome {
    flags.required()?;
    let location = location.get()?;
    let ordinal = match location.kind {
        LOCATION_DEVICE => Some(arguments::device(location.id)?.ordinal()),
        LOCATION_HOST | LOCATION_HOST_NUMA => None,
        _ => return Err(Status::INVALID_DEVICE),
    };
    flags.offer(0);
    let table = state::driver()?.space.look();
    let (_, mapping) = table.mapping(address).ok_or(Status::INVALID_VALUE)?;
    // The host reaches none, and for what `cuMemAlloc` gave nothing was set.
    let set = ordinal
        .filter(|_| mapping.handle != 0 || mapping.pooled)
        .map_or(Access::None, |ordinal| mapping.access[ordinal]);
    flags.set(set.flags())
}

fn export(out: usize, handle: u64, kind: u32, flags: u64) -> Outcome {
    only_flags(flags, 0)?;
    let found = find(handle)?;
    if out == 0 || kind != FILE_DESCRIPTOR {
        return Err(Status::INVALID_VALUE);
    }
    write_at::<i32>(out, found.phys.export()?.into_raw_fd())
}

#[allow(unsafe_code)]
fn import(out: Out<u64>, shared: usize, kind: u32) -> Outcome {
    out.required()?;
    if kind == 0 || kind & !(FILE_DESCRIPTOR | OF_WINDOWS | FABRIC) != 0 {
        return Err(Status::INVALID_VALUE);
    }
    if kind != FILE_DESCRIPTOR {
        return Err(Status::NOT_SUPPORTED);
    }
    // The descriptor comes in the place of a pointer.
    let descriptor = i32::try_from(shared).map_err(|_| Status::UNKNOWN)?;
    // SAFETY: the program lends the descriptor for this call. If it is none, the kernel says so.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let phys = Phys::import(state::driver()?.gpus(), descriptor)
        .map_err(|why| if why == Status::INVALID_VALUE { Status::UNKNOWN } else { why })?;
    out.set(enter(phys, false, [0; 2], None)?)
}

fn granularity(out: Out<usize>, prop: In<AllocationProp>, option: u32) -> Outcome {
    out.required()?;
    prop.get()?;
    only_flags(option.into(), 1)?;
    out.set(GRANULARITY as usize)
}

fn properties(out: Out<AllocationProp>, handle: u64) -> Outcome {
    out.required()?;
    let found = find(handle)?;
    out.set(AllocationProp {
        kind: PINNED,
        handle_types: if found.exportable { FILE_DESCRIPTOR } else { 0 },
        compression: found.flags[0],
        rdma: found.flags[1],
        location: Location { kind: LOCATION_DEVICE, id: found.phys.gpu().ordinal() as i32 },
        ..AllocationProp::default()
    })
}

/// The handle that is mapped at an address, once more.
fn retain(out: Out<u64>, address: u64) -> Outcome {
    out.required()?;
    let mapped = state::driver()?.space.look().program_mapping(address).map(|(_, mapping)| mapping.handle);
    let handle = mapped.ok_or(Status::INVALID_VALUE)?;
    use_handle(handle, |uses| {
        uses.held += 1;
        Ok(())
    })?;
    out.set(handle)
}

/// A range for other devices on the bus is a multiple of this.
const BUS_PAGE: u64 = 4096;
/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`, and the flag that asks for it by PCIe.
const DMA_BUF: u32 = 1;
const BY_PCIE: u64 = 1;

/// A descriptor by which other devices on the bus reach a range, of whatever memory on the device.
fn range_handle(out: usize, start: u64, bytes: usize, kind: u32, flags: u64) -> Outcome {
    let (context, driver) = current()?;
    only_flags(flags, BY_PCIE)?;
    let (seen, bytes) = (context.view(), bytes as u64);
    let table = seen.look();
    let aligned = start.is_multiple_of(BUS_PAGE) && bytes.is_multiple_of(BUS_PAGE) && bytes != 0;
    if out == 0 || kind != DMA_BUF || !aligned || !table.is_whole(&seen, start, bytes, true) {
        return Err(Status::INVALID_VALUE);
    }
    let pieces = table.pieces(start, bytes);
    let opened = table.allocations.find(start).is_some_and(|(_, one)| one.opened.is_some());
    if pieces.is_empty() || opened {
        // The host's memory, or another process's.
        return Err(Status::INVALID_VALUE);
    }
    if flags == BY_PCIE {
        return Err(Status::NOT_SUPPORTED);
    }
    write_at::<i32>(out, driver.bus.give(pieces)?.into_raw_fd())
}

/// There is nothing to do: data that other devices write is there at once.
fn flush_writes(target: u32, scope: u32) -> Outcome {
    /// `CUflushGPUDirectRDMAWritesTarget` and `…Scope`: the current context; to its GPU, and to all.
    const CURRENT: u32 = 0;
    const SCOPES: [u32; 2] = [100, 200];
    current()?;
    if target == CURRENT && SCOPES.contains(&scope) { Ok(()) } else { Err(Status::INVALID_VALUE) }
}

/// `CUarrayMapInfo` as far as it is looked at: in the second word is the array.
type ArrayMapInfo = [usize; 12];

fn has_entries(_: Default, list: List<ArrayMapInfo>, count: u32) -> Outcome {
    if list.is_null() || count == 0 { Err(Status::INVALID_VALUE) } else { Ok(()) }
}

fn map_array(default: Default, list: List<ArrayMapInfo>, count: u32, stream: usize) -> Outcome {
    submit::resolve(default, stream)?;
    let no_array = list.read(count as usize)?.iter().any(|entry| entry[1] == 0);
    if no_array { Err(Status::INVALID_VALUE) } else { Err(Status::NOT_SUPPORTED) }
}
