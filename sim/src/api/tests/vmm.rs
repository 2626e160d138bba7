//! Virtual memory management.

use super::super::abi::{AccessDesc, AllocationProp, Location};
use super::super::copies::cuMemcpyDtoH_v2;
use super::super::vmm::*;
use super::{Session, function, get, launch, put};
use crate::border::from_tests::{address, address_mut, ask, block, given, list};

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
fn a_released_handle_lives_by_its_mapping_and_can_be_retained_again() {
    let _session = Session::begin();
    let (at, handle) = (reserve(1), create(1));
    assert_eq!(cuMemMap(at, UNIT, 0, handle, 0), 0);
    assert_eq!(given(|out| cuMemRetainAllocationHandle(out, at)), handle);
    assert_eq!(cuMemRelease(handle), 0);
    assert_eq!(cuMemRelease(handle), 0);
    assert_eq!(cuMemRelease(handle), 1);
    allow(at, 1);
    put(at, &[9]);
    let again: u64 = given(|out| cuMemRetainAllocationHandle(out, at));
    assert_eq!(cuMemUnmap(at, UNIT), 0);
    assert_eq!(cuMemMap(at, UNIT, 0, again, 0), 0);
    allow(at, 1);
    assert_eq!(get(at, 1), [9]);
    assert_eq!(cuMemUnmap(at, UNIT), 0);
    assert_eq!(cuMemRelease(again), 0);
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
    assert_eq!(ask::<u64>(|out| cuMemImportFromShareableHandle(out, 0, 1)).0, 1);
}

#[test]
fn what_is_not_simulated_is_refused() {
    let _session = Session::begin();
    let elsewhere = AllocationProp { location: Location { kind: 3, id: 0 }, ..exportable() };
    assert_eq!(ask::<u64>(|out| cuMemCreate(out, UNIT, block(&elsewhere), 0)).0, 801);
    let fabric = AllocationProp { handle_types: 8, ..exportable() };
    assert_eq!(ask::<u64>(|out| cuMemCreate(out, UNIT, block(&fabric), 0)).0, 801);
    assert_eq!(ask::<u64>(|out| cuMemCreate(out, 1000, block(&exportable()), 0)).0, 1);
    assert_eq!(given(|out| cuMemGetAllocationGranularity(out, block(&exportable()), 0)), UNIT);
}
