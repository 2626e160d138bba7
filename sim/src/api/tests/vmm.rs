//! Virtual memory management.

use super::super::abi::{AccessDesc, AllocationProp, Location};
use super::super::context::cuDevicePrimaryCtxGetState;
use super::super::copies::*;
use super::super::fills::*;
use super::super::init::cuInit;
use super::super::memory::*;
use super::super::vmm::*;
use super::{Session, alloc, function, get, launch, put};
use crate::border::from_tests::{address, address_mut, ask, block, given, list, nowhere, place};

pub(super) const UNIT: usize = 2 << 20;
const DEVICE: Location = Location { kind: 1, id: 0 };

pub(super) fn exportable() -> AllocationProp {
    AllocationProp { kind: 1, handle_types: 1, location: DEVICE, ..AllocationProp::default() }
}

pub(super) fn reserve(units: usize) -> u64 {
    given(|out| cuMemAddressReserve(out, units * UNIT, 0, 0, 0))
}

pub(super) fn create(units: usize) -> u64 {
    given(|out| cuMemCreate(out, units * UNIT, block(&exportable()), 0))
}

pub(super) fn allow(at: u64, units: usize) {
    let access = [AccessDesc { location: DEVICE, flags: 3 }];
    assert_eq!(cuMemSetAccess(at, units * UNIT, list(&access), 1), 0);
}

#[test]
fn contents_stay_with_the_handle_wherever_it_is_mapped() {
    let _session = Session::begin();
    let (at, handle) = (reserve(8), create(2));
    assert_eq!(cuMemMap(at, 2 * UNIT, 0, handle, 0), 0);
    allow(at, 2);
    put(at + 100, &[1, 2, 3]);
    assert_eq!(cuMemUnmap(at, 2 * UNIT), 0);
    let there = at + 4 * UNIT as u64;
    assert_eq!(cuMemMap(there, 2 * UNIT, 0, handle, 0), 0);
    allow(there, 2);
    assert_eq!(get(there + 100, 3), [1, 2, 3]);
    assert_eq!(cuMemUnmap(there, 2 * UNIT), 0);
    assert_eq!(cuMemRelease(handle), 0);
    assert_eq!(cuMemAddressFree(at, 8 * UNIT), 0);
}

#[test]
fn a_handle_is_mapped_whole_and_at_free_addresses_only() {
    let _session = Session::begin();
    let (at, handle) = (reserve(4), create(2));
    assert_eq!(cuMemMap(at, UNIT, 0, handle, 0), 801);
    assert_eq!(cuMemMap(at, UNIT, UNIT, handle, 0), 801);
    assert_eq!(cuMemMap(at + 4096, 2 * UNIT, 0, handle, 0), 1);
    assert_eq!(cuMemMap(at + 3 * UNIT as u64, 2 * UNIT, 0, handle, 0), 1);
    assert_eq!(cuMemMap(at + UNIT as u64, 2 * UNIT, 0, handle, 0), 0);
    assert_eq!(cuMemMap(at, 2 * UNIT, 0, handle, 0), 1);
    assert_eq!(cuMemAddressFree(at, 4 * UNIT), 1);
    assert_eq!(cuMemUnmap(at, 2 * UNIT), 1);
    assert_eq!(cuMemUnmap(at, 4 * UNIT), 0);
    assert_eq!(cuMemAddressFree(at, 4 * UNIT), 0);
    assert_eq!(cuMemRelease(handle), 0);
}

#[test]
fn memory_is_out_of_reach_until_access_is_set() {
    // It ends with a fault.
    super::processes::in_a_process_of_its_own("read-only");
}

pub(super) fn read_only() {
    let _session = Session::begin();
    let (at, handle) = (reserve(1), create(1));
    assert_eq!(cuMemMap(at, UNIT, 0, handle, 0), 0);
    let mut byte = 0u8;
    assert_eq!(cuMemcpyDtoH_v2(address_mut(&mut byte), at, 1), 1);
    let read_only = [AccessDesc { location: DEVICE, flags: 1 }];
    assert_eq!(cuMemSetAccess(at, UNIT, list(&read_only), 1), 0);
    assert_eq!(cuMemcpyDtoH_v2(address_mut(&mut byte), at, 1), 0);
    assert_eq!(given(|out| cuMemGetAccess(out, block(&DEVICE), at)), 1);
    let (seed, count) = (0u32, 1u32);
    assert_eq!(launch(function(c"fill_hash"), 0, &[address(&at), address(&seed), address(&count)]), 0);
    assert_eq!(super::super::context::cuCtxSynchronize(), 700);
    assert_eq!(cuMemUnmap(at, UNIT), 0);
    assert_eq!(cuMemRelease(handle), 0);
}

#[test]
fn a_kernel_reads_over_handles_that_are_mapped_side_by_side() {
    let _session = Session::begin();
    let at = reserve(3);
    for unit in 0..3 {
        let handle = create(1);
        assert_eq!(cuMemMap(at + (unit * UNIT) as u64, UNIT, 0, handle, 0), 0);
        assert_eq!(cuMemRelease(handle), 0);
    }
    allow(at, 3);
    let (seed, count) = (0u32, (3 * UNIT / 4) as u32);
    assert_eq!(launch(function(c"fill_hash"), 0, &[address(&at), address(&seed), address(&count)]), 0);
    let border = get(at + UNIT as u64 - 4, 2);
    let alone = get(at + UNIT as u64, 1);
    assert_eq!(border[1], alone[0]);
    assert_ne!(border[0], border[1]);
    assert_eq!(cuMemUnmap(at, 3 * UNIT), 0);
}

#[test]
fn zeros_are_written_wherever_something_was() {
    let _session = Session::begin();
    let at = reserve(2);
    for unit in 0..2 {
        let handle = create(1);
        assert_eq!(cuMemMap(at + (unit * UNIT) as u64, UNIT, 0, handle, 0), 0);
        assert_eq!(cuMemRelease(handle), 0);
    }
    allow(at, 2);
    let border = at + UNIT as u64;
    let places = [at + 4096 - 4, at + 300_000, border - 4, border, border + UNIT as u64 - 8];
    for place in places {
        put(place, &[7, 8]);
    }
    // All but the first and the last byte of what was written.
    assert_eq!(cuMemsetD8_v2(at + 4096 - 3, 0, 2 * UNIT - 4096 + 3 - 1), 0);
    let found: Vec<Vec<u32>> = places.iter().map(|place| get(*place, 2)).collect();
    assert_eq!(found, [vec![7, 0], vec![0, 0], vec![0, 0], vec![0, 0], vec![0, 0]]);
    put(at + UNIT as u64 / 2, &[9]);
    assert_eq!(cuMemsetD8_v2(at, 0, 2 * UNIT), 0);
    assert_eq!((get(at + 4096 - 4, 1), get(at + UNIT as u64 / 2, 1)), (vec![0], vec![0]));
    assert_eq!(cuMemUnmap(at, 2 * UNIT), 0);
}

#[test]
fn a_released_handle_lives_by_its_mappings_and_can_be_retained_and_mapped_by_its_number() {
    let _session = Session::begin();
    let (at, handle) = (reserve(2), create(1));
    let second = at + UNIT as u64;
    assert_eq!(cuMemMap(at, UNIT, 0, handle, 0), 0);
    assert_eq!(given(|out| cuMemRetainAllocationHandle(out, at)), handle);
    assert_eq!(cuMemRelease(handle), 0);
    assert_eq!(cuMemRelease(handle), 0);
    assert_eq!(cuMemRelease(handle), 1);
    allow(at, 1);
    put(at, &[9]);
    assert_eq!(cuMemMap(second, UNIT, 0, handle, 0), 0);
    assert_eq!(cuMemUnmap(at, UNIT), 0);
    assert_eq!(given(|out| cuMemRetainAllocationHandle(out, second + 100)), handle);
    assert_eq!(cuMemUnmap(second, UNIT), 0);
    assert_eq!(cuMemMap(at, UNIT, 0, handle, 0), 0);
    allow(at, 1);
    assert_eq!(get(at, 1), [9]);
    assert_eq!(cuMemRelease(handle), 0);
    assert_eq!(cuMemUnmap(at, UNIT), 0);
    // Nothing holds it any more.
    assert_eq!(cuMemMap(at, UNIT, 0, handle, 0), 1);
}

/// Handles of one unit each, side by side.
fn side_by_side(at: u64, units: usize) -> Vec<u64> {
    let handles: Vec<u64> = (0..units).map(|_| create(1)).collect();
    for (unit, handle) in handles.iter().enumerate() {
        assert_eq!(cuMemMap(at + (unit * UNIT) as u64, UNIT, 0, *handle, 0), 0);
    }
    allow(at, units);
    handles
}

#[test]
fn copies_and_fills_cross_the_borders_of_handles_and_not_their_end() {
    let _session = Session::begin();
    let (at, plain, words) = (reserve(4), alloc(3 * UNIT), 3 * UNIT / 4);
    side_by_side(at, 3);
    let data: Vec<u32> = (0..words as u32).collect();
    put(at, &data);
    assert_eq!(get(at, words), data);
    assert_eq!(cuMemcpyDtoD_v2(plain, at, 3 * UNIT), 0);
    assert_eq!(cuMemsetD32_v2(at + UNIT as u64 - 8, 7, 4), 0);
    assert_eq!(get(at + UNIT as u64 - 12, 6)[1..5], [7; 4]);
    assert_eq!(cuMemcpy(at, plain, 3 * UNIT), 0);
    assert_eq!(get(at, words), data);
    assert_eq!(cuMemcpyDtoD_v2(plain, at, 3 * UNIT + 1), 1);
    assert_eq!(cuMemsetD8_v2(at, 1, 3 * UNIT + 1), 1);
    let mut base = 0u64;
    let middle = at + UNIT as u64 + 100;
    assert_eq!(given(|bytes| cuMemGetAddressRange_v2(place(&mut base), bytes, middle)), UNIT);
    assert_eq!(base, at + UNIT as u64);
    assert_eq!(cuMemUnmap(at + UNIT as u64, UNIT), 0);
    assert_eq!(cuMemsetD8_v2(at, 1, 3 * UNIT), 1);
    assert_eq!(ask::<usize>(|bytes| cuMemGetAddressRange_v2(nowhere(), bytes, middle)).0, 500);
    assert_eq!(cuMemUnmap(at, 3 * UNIT), 0);
    super::synchronize();
}

#[test]
fn one_call_unmaps_whole_handles_whatever_lies_between_and_behind_them() {
    let _session = Session::begin();
    // Where no other test is.
    let (at, unit) = (0x3100_0000_0000, UNIT as u64);
    let halves = [at, at + 2 * unit].map(|wish| given(|out| cuMemAddressReserve(out, 2 * UNIT, 0, wish, 0)));
    assert_eq!(halves, [at, at + 2 * unit]);
    let handles = side_by_side(at, 4);
    assert_eq!(cuMemUnmap(at + unit, UNIT), 0);
    // Half a handle, behind a hole: nothing is unmapped.
    assert_eq!(cuMemUnmap(at, 2 * UNIT + UNIT / 2), 1);
    assert_eq!(cuMemsetD8_v2(at, 1, UNIT), 0);
    super::synchronize();
    assert_eq!(cuMemUnmap(at, 4 * UNIT), 0);
    assert_eq!(cuMemsetD8_v2(at, 1, 1), 1);
    assert_eq!(cuMemUnmap(at, 4 * UNIT), 0);
    // A handle over the border of the two reservations.
    let wide = create(2);
    assert_eq!(cuMemMap(at + unit, 2 * UNIT, 0, wide, 0), 0);
    allow(at + unit, 2);
    put(at + 2 * unit - 4, &[1, 2]);
    assert_eq!(cuMemAddressFree(at, 2 * UNIT), 1);
    assert_eq!(cuMemUnmap(at + unit, 2 * UNIT), 0);
    assert_eq!(cuMemUnmap(at, 0), 1);
    for half in halves {
        assert_eq!(cuMemAddressFree(half, 2 * UNIT), 0);
    }
    assert_eq!(cuMemUnmap(at, UNIT), 1);
    handles.iter().chain([&wide]).for_each(|handle| assert_eq!(cuMemRelease(*handle), 0));
}

#[test]
fn the_program_cannot_unmap_what_was_allocated() {
    let _session = Session::begin();
    let (at, plain) = (reserve(1), alloc(UNIT));
    assert_eq!(cuMemUnmap(plain, UNIT), 1);
    let (low, high) = (at.min(plain), at.max(plain) + UNIT as u64);
    assert_eq!(cuMemUnmap(low, (high - low) as usize), 1);
    put(plain, &[1]);
    assert_eq!(cuMemAddressFree(at, UNIT), 0);
}

#[test]
fn a_handle_can_be_mapped_at_several_addresses() {
    let _session = Session::begin();
    let (at, handle) = (reserve(3), create(1));
    for unit in 0..3 {
        assert_eq!(cuMemMap(at + (unit * UNIT) as u64, UNIT, 0, handle, 0), 0);
    }
    allow(at, 3);
    put(at + 2 * UNIT as u64 + 8, &[5]);
    assert_eq!((get(at + 8, 1), get(at + UNIT as u64 + 8, 1)), (vec![5], vec![5]));
    assert_eq!(cuMemUnmap(at, 3 * UNIT), 0);
    assert_eq!(cuMemRelease(handle), 0);
}

#[test]
fn memory_is_made_and_mapped_without_a_context() {
    super::processes::in_a_process_of_its_own("no-context");
}

pub(super) fn no_context() {
    assert_eq!(cuInit(0), 0);
    let at = reserve(2);
    let (first, second) = (create(1), create(1));
    assert_eq!(cuMemMap(at, UNIT, 0, first, 0), 0);
    assert_eq!(cuMemMap(at + UNIT as u64, UNIT, 0, second, 0), 0);
    allow(at, 2);
    assert_eq!(given(|out| cuMemGetAccess(out, block(&DEVICE), at)), 3);
    let mut descriptor = -1i32;
    assert_eq!(cuMemExportToShareableHandle(address_mut(&mut descriptor), first, 1, 0), 0);
    let taken: u64 = given(|out| cuMemImportFromShareableHandle(out, descriptor as usize, 1));
    assert_eq!(cuMemRelease(taken), 0);
    let mut active = 9;
    assert_eq!(given::<u32>(|flags| cuDevicePrimaryCtxGetState(0, flags, place(&mut active))), 0);
    assert_eq!(active, 0);
    let mut total = 0usize;
    assert_eq!(ask::<usize>(|free| cuMemGetInfo_v2(free, place(&mut total))).0, 201);
    assert_eq!(ask::<usize>(|bytes| cuMemGetAddressRange_v2(nowhere(), bytes, at)).0, 201);
    assert_eq!(cuMemsetD8_v2(at, 1, 1), 201);
    // It is all contexts' that come.
    for value in 1..3 {
        let _session = Session::begin();
        assert_eq!(get(at, 1), [value - 1]);
        put(at, &[value]);
    }
    assert_eq!(cuMemUnmap(at, 2 * UNIT), 0);
}

#[test]
fn an_imported_handle_shares_its_contents_and_is_not_exported_again() {
    let _session = Session::begin();
    let (at, made) = (reserve(2), create(1));
    let mut descriptor = -1i32;
    assert_eq!(cuMemExportToShareableHandle(address_mut(&mut descriptor), made, 1, 0), 0);
    let taken: u64 = given(|out| cuMemImportFromShareableHandle(out, descriptor as usize, 1));
    let mut second = -1i32;
    assert_eq!(cuMemExportToShareableHandle(address_mut(&mut second), taken, 1, 0), 1);
    assert_eq!(cuMemMap(at, UNIT, 0, made, 0), 0);
    assert_eq!(cuMemMap(at + UNIT as u64, UNIT, 0, taken, 0), 0);
    allow(at, 2);
    put(at + 8, &[77]);
    assert_eq!(get(at + UNIT as u64 + 8, 1), [77]);
    assert_eq!(cuMemUnmap(at, 2 * UNIT), 0);
    assert_eq!(cuMemRelease(made), 0);
    assert_eq!(cuMemRelease(taken), 0);
    assert_eq!(ask::<u64>(|out| cuMemImportFromShareableHandle(out, 0, 1)).0, 999);
}

#[test]
fn what_is_not_simulated_is_refused() {
    let _session = Session::begin();
    let elsewhere = AllocationProp { location: Location { kind: 3, id: 0 }, ..exportable() };
    assert_eq!(ask::<u64>(|out| cuMemCreate(out, UNIT, block(&elsewhere), 0)).0, 801);
    let fabric = AllocationProp { handle_types: 8, ..exportable() };
    assert_eq!(ask::<u64>(|out| cuMemCreate(out, UNIT, block(&fabric), 0)).0, 800);
    assert_eq!(ask::<u64>(|out| cuMemCreate(out, 1000, block(&exportable()), 0)).0, 1);
    assert_eq!(given(|out| cuMemGetAllocationGranularity(out, block(&exportable()), 0)), UNIT);
}

#[test]
#[allow(unsafe_code)]
fn another_device_reaches_the_memory_that_was_there_when_its_descriptor_was_made() {
    use super::super::control::{simcudaReadBuffer, simcudaWriteBuffer};
    use crate::border::from_tests::room;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    let _session = Session::begin();
    let (at, first, second) = (reserve(2), create(1), create(1));
    for (which, handle) in [first, second].into_iter().enumerate() {
        assert_eq!(cuMemMap(at + (which * UNIT) as u64, UNIT, 0, handle, 0), 0);
    }
    allow(at, 2);
    let border = at + UNIT as u64 - 4096;
    let range = |start, bytes, kind, flags| {
        let mut descriptor = -1i32;
        let answer = cuMemGetHandleForAddressRange(address_mut(&mut descriptor), start, bytes, kind, flags);
        // SAFETY: the driver gave it to us.
        (answer, (answer == 0).then(|| unsafe { OwnedFd::from_raw_fd(descriptor) }))
    };
    for (start, bytes, kind, flags, answer) in [
        (border + 100, 8192, 1, 0, 1),
        (border, 100, 1, 0, 1),
        (border, 1 << 30, 1, 0, 1),
        (border, 8192, 2, 0, 1),
        (border, 8192, 1, 2, 1),
        (border, 8192, 1, 1, 801),
    ] {
        assert_eq!(range(start, bytes, kind, flags).0, answer);
    }
    let (answer, buffer) = range(border, 8192, 1, 0);
    assert_eq!(answer, 0);
    let number = buffer.as_ref().unwrap().as_raw_fd();
    put(border + 4092, &[1, 2]);
    let read = |offset| {
        let mut bytes = [0u8; 8];
        assert_eq!(simcudaReadBuffer(number, offset, room(&mut bytes), 8), 0);
        bytes
    };
    assert_eq!(read(4092), [1, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(simcudaWriteBuffer(number, 4096, list(&[7u8, 8]), 2), 0);
    assert_eq!(get(border + 4096, 1), [0x0807]);
    assert_eq!(simcudaReadBuffer(number, 8190, room(&mut [0u8; 4]), 4), 1);
    assert_eq!(simcudaReadBuffer(0, 0, room(&mut [0u8; 4]), 4), 1);
    // It stays so when something else is mapped there.
    assert_eq!(cuMemUnmap(at, 2 * UNIT), 0);
    let third = create(1);
    assert_eq!(cuMemMap(at + UNIT as u64, UNIT, 0, third, 0), 0);
    assert_eq!(read(4092), [1, 0, 0, 0, 7, 8, 0, 0]);
    assert_eq!(cuMemUnmap(at, 2 * UNIT), 0);
    // The memory goes with the last descriptor.
    assert_eq!((cuMemRelease(first), cuMemRelease(second), cuMemRelease(third)), (0, 0, 0));
    let copy = buffer.as_ref().unwrap().try_clone().unwrap();
    drop(buffer);
    assert_eq!(simcudaReadBuffer(copy.as_raw_fd(), 4096, room(&mut [0u8; 1]), 1), 0);
    // Memory that the driver allocated has such a descriptor too.
    let allocated = super::alloc(1 << 20);
    assert_eq!(range(allocated, 4096, 1, 0).0, 0);
}
