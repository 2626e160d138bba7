//! The driver's answers about addresses.

use super::super::host_memory::*;
use super::super::memory::cuMemGetAddressRange_v2;
use super::super::pointers::*;
use super::super::vmm::*;
use super::vmm::{UNIT, allow, create, reserve};
use super::{Session, alloc};
use crate::border::from_tests::{address, address_mut, ask, given, list, nowhere};

/// An attribute of an address, and the code.
fn attribute(attribute: u32, at: u64) -> (u32, u64) {
    let mut value = [0u64; 2];
    let code = cuPointerGetAttribute(address_mut(&mut value), attribute, at);
    (code, value[0])
}

#[test]
fn mapped_memory_has_attributes_of_its_handle_and_of_its_reservation() {
    let session = Session::begin();
    let (at, plain) = (reserve(4), alloc(2 * UNIT + 1000));
    let handles = [create(1), create(1)];
    for (unit, handle) in handles.iter().enumerate() {
        assert_eq!(cuMemMap(at + (unit * UNIT) as u64, UNIT, 0, *handle, 0), 0);
    }
    allow(at, 2);
    let (second, middle) = (at + UNIT as u64 + 100, plain + UNIT as u64 + 100);
    // By attribute: of the mapping, of the allocation.
    let both = [
        (1, (0, 0), (0, session.context as u64)),
        (2, (0, 2), (0, 2)),
        (3, (0, second), (0, middle)),
        (4, (1, 0), (1, 0)),
        (5, (0, 0), (0, 0)),
        (6, (0, 1), (0, 1)),
        (8, (0, 0), (0, 0)),
        (9, (0, 0), (0, 0)),
        (10, (0, 0), (0, 1)),
        (11, (0, at), (0, plain)),
        (12, (0, 4 * UNIT as u64), (0, 2 * UNIT as u64 + 1000)),
        (13, (0, 1), (0, 1)),
        (14, (0, 1), (0, 0)),
        (15, (0, 0), (0, 1)),
        (16, (0, 3), (0, 3)),
        (17, (0, 0), (0, 0)),
        (18, (0, UNIT as u64), (0, 3 * UNIT as u64)),
        (19, (0, at + UNIT as u64), (0, plain)),
        (21, (0, 0), (0, 1)),
        (22, (1, 0), (1, 0)),
    ];
    for (number, mapped, allocated) in both {
        assert_eq!((number, attribute(number, second)), (number, mapped));
        assert_eq!((number, attribute(number, middle)), (number, allocated));
    }
    // The mapping's and the handle's numbers.
    assert_ne!(attribute(7, at), attribute(7, second));
    assert_ne!(attribute(20, at), attribute(20, second));
    let block = attribute(20, at);
    assert_eq!(cuMemUnmap(at, UNIT), 0);
    assert_eq!(cuMemMap(at, UNIT, 0, handles[0], 0), 0);
    assert_eq!(attribute(20, at), block);
    // The device cannot reach it until access is set.
    assert_eq!((attribute(3, at), attribute(16, at), attribute(13, at)), ((1, 0), (0, 0), (0, 1)));
    assert_eq!(ask::<usize>(|bytes| cuMemGetAddressRange_v2(nowhere(), bytes, at)).0, 500);
    assert_eq!(cuMemUnmap(at, 2 * UNIT), 0);
    assert_eq!((attribute(2, at).0, attribute(11, at).0), (1, 1));
}

#[test]
fn an_imported_handle_is_said_not_to_be_for_export() {
    let _session = Session::begin();
    let (at, made) = (reserve(1), create(1));
    let mut descriptor = -1i32;
    assert_eq!(cuMemExportToShareableHandle(address_mut(&mut descriptor), made, 1, 0), 0);
    let taken: u64 = given(|out| cuMemImportFromShareableHandle(out, descriptor as usize, 1));
    assert_eq!(cuMemMap(at, UNIT, 0, taken, 0), 0);
    assert_eq!(attribute(14, at), (0, 0));
    assert_eq!(cuMemUnmap(at, UNIT), 0);
}

#[test]
fn attributes_are_told_without_a_context() {
    let _session = Session::begin();
    let at = alloc(64);
    std::thread::spawn(move || {
        assert_eq!((attribute(2, at), attribute(11, at)), ((0, 2), (0, at)));
        let attributes = [2u32, 3, 11];
        let (mut kind, mut device, mut start) = (0u32, 7u64, 0u64);
        let places = [address_mut(&mut kind), address_mut(&mut device), address_mut(&mut start)];
        assert_eq!(cuPointerGetAttributes(3, list(&attributes), list(&places), at), 0);
        // There is no context to have an address in.
        assert_eq!((kind, device, start), (2, 0, at));
    })
    .join()
    .unwrap();
}

#[test]
fn an_address_that_is_nothing_has_what_is_reserved_there() {
    let _session = Session::begin();
    let at = reserve(2);
    let attributes = [2u32, 4, 9, 11, 12, 13];
    let told = |at: u64| {
        let (mut words, mut longs) = ([7u32; 3], [7u64; 3]);
        let [kind, ordinal, mapped] = &mut words;
        let [host, start, bytes] = &mut longs;
        let places = [
            address_mut(kind),
            address_mut(host),
            address_mut(ordinal),
            address_mut(start),
            address_mut(bytes),
            address_mut(mapped),
        ];
        assert_eq!(cuPointerGetAttributes(6, list(&attributes), list(&places), at), 0);
        (words, longs)
    };
    let nothing = [0, -2i32 as u32, 0];
    assert_eq!(told(at + 100), (nothing, [at + 100, at, 2 * UNIT as u64]));
    let local = 0u8;
    let here = address(&local) as u64;
    assert_eq!(told(here), (nothing, [here, 7, 7]));
}

#[test]
fn mapped_memory_passes_for_host_memory_in_two_calls_and_not_in_others() {
    let _session = Session::begin();
    let (at, plain) = (reserve(1), alloc(64));
    assert_eq!(cuMemMap(at, UNIT, 0, create(1), 0), 0);
    allow(at, 1);
    assert_eq!(given(|out| cuMemHostGetDevicePointer_v2(out, at as usize + 100, 0)), at);
    assert_eq!(given(|out| cuMemHostGetFlags(out, at as usize + 100)), 3);
    assert_eq!(ask::<u32>(|out| cuMemHostGetFlags(out, plain as usize)).0, 1);
    assert_eq!((cuMemHostUnregister(at as usize), cuMemHostUnregister(plain as usize)), (1, 1));
    let yes = 1u32;
    let synchronous = |at| cuPointerSetAttribute(address(&yes), 6, at);
    assert_eq!((synchronous(at), synchronous(plain)), (801, 0));
    assert_eq!(cuMemUnmap(at, UNIT), 0);
}
