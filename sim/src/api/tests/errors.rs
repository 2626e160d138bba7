//! Faults of the device, and what calls answer when something is missing. A fault is the end of a process's
//! work, so the tests of faults have processes of their own.

use super::super::context::*;
use super::super::events::*;
use super::super::fills::cuMemsetD8_v2;
use super::super::memory::*;
use super::super::pointers::cuPointerGetAttribute;
use super::super::streams::*;
use super::super::vmm::{cuMemMap, cuMemUnmap};
use super::processes::in_a_process_of_its_own;
use super::vmm::{UNIT, allow, create, reserve};
use super::{Session, alloc, function, get, launch, put};
use crate::border::from_tests::{address, address_mut, ask, block, given, nowhere};

/// A kernel that writes where nothing is.
fn fault() {
    let (nowhere, seed, count) = (4096u64, 1u32, 1u32);
    let params = [address(&nowhere), address(&seed), address(&count)];
    assert_eq!(launch(function(c"fill_hash"), 0, &params), 0);
}

#[test]
fn a_kernel_that_touches_nothing_breaks_all_contexts_of_its_process_for_good() {
    in_a_process_of_its_own("fault");
}

pub(super) fn broken_process() {
    let other = Session::begin();
    let stream: usize = given(|out| cuStreamCreate(out, 0));
    let event: usize = given(|out| cuEventCreate(out, 2));
    let primary: usize = given(|out| cuDevicePrimaryCtxRetain(out, 0));
    let (at, plain) = (reserve(2), alloc(16));
    let handle = create(1);
    let _session = Session::begin();
    fault();
    assert_eq!((cuCtxSynchronize(), cuCtxSynchronize()), (700, 700));
    assert_eq!(ask(|out| cuMemAlloc_v2(out, 16)).0, 700);
    assert_eq!(ask(|out| cuStreamCreate(out, 0)).0, 700);
    assert_eq!(ask(|out| cuEventCreate(out, 0)).0, 700);
    // The other context too, and what is asked without one.
    assert_eq!(cuCtxPushCurrent_v2(other.context), 0);
    assert_eq!((cuCtxSynchronize(), cuMemFree_v2(plain), cuMemFree_v2(0)), (700, 700, 700));
    let asked = std::thread::spawn(move || (cuStreamQuery(stream), cuEventQuery(event), cuEventDestroy_v2(event)));
    assert_eq!(asked.join().unwrap(), (700, 700, 700));
    // Memory can still be moved, and what an address is can be asked, but nothing can touch it.
    assert_eq!(cuMemMap(at, UNIT, 0, handle, 0), 0);
    allow(at, 1);
    let mut kind = 0u32;
    assert_eq!(cuPointerGetAttribute(address_mut(&mut kind), 2, at), 0);
    assert_eq!(ask::<u64>(|base| cuMemGetAddressRange_v2(base, nowhere(), at)).0, 700);
    assert_eq!(cuMemsetD8_v2(at, 1, 4), 700);
    assert_eq!(cuMemUnmap(at, UNIT), 0);
    // No context that works can be made any more.
    assert_eq!(ask::<usize>(|out| cuCtxCreate_v2(out, 0, 0)).0, 700);
    assert_eq!(given(|out| cuDevicePrimaryCtxRetain(out, 0)), primary);
    assert_eq!(cuDevicePrimaryCtxReset_v2(0), 0);
    assert_eq!(ask::<usize>(|out| cuDevicePrimaryCtxRetain(out, 0)).0, 700);
}

#[test]
fn a_callback_hears_of_the_fault_and_a_host_function_is_not_called() {
    in_a_process_of_its_own("fault-heard");
}

pub(super) fn heard_of() {
    static HEARD: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    extern "C" fn hear(_: usize, status: u32, _: usize) {
        HEARD.store(status, std::sync::atomic::Ordering::SeqCst);
    }
    extern "C" fn never(_: usize) {
        HEARD.store(1, std::sync::atomic::Ordering::SeqCst);
    }
    let _session = Session::begin();
    let flag = given(|out| super::super::host_memory::cuMemHostAlloc(out, 4, 0)) as u64;
    super::spin(0, alloc(4), flag);
    fault();
    assert_eq!(cuStreamAddCallback(0, Some(hear), 0, 0), 0);
    assert_eq!(cuLaunchHostFunc(0, Some(never), 0), 0);
    crate::border::write_at(flag as usize, 1u32).unwrap();
    assert_eq!(cuCtxSynchronize(), 700);
    assert_eq!(HEARD.load(std::sync::atomic::Ordering::SeqCst), 700);
}

#[test]
fn a_misaligned_address_is_told_from_one_that_is_not_there() {
    in_a_process_of_its_own("misaligned");
}

pub(super) fn misaligned() {
    let _session = Session::begin();
    let (at, seed, count) = (alloc(64) + 2, 1u32, 1u32);
    let params = [address(&at), address(&seed), address(&count)];
    assert_eq!(launch(function(c"fill_hash"), 0, &params), 0);
    assert_eq!(cuCtxSynchronize(), 716);
}

#[test]
fn a_call_says_first_that_there_is_no_context_and_then_what_is_wrong_with_it() {
    let session = Session::begin();
    let popped: usize = given(|out| cuCtxPopCurrent_v2(out));
    assert_eq!(popped, session.context);
    assert_eq!(cuMemAlloc_v2(nowhere(), 16), 201);
    assert_eq!(cuStreamSynchronize(12345), 201);
    assert_eq!(cuCtxPushCurrent_v2(popped), 0);
    assert_eq!(cuMemAlloc_v2(nowhere(), 16), 1);
    assert_eq!(cuStreamSynchronize(12345), 400);
}

#[test]
fn a_missing_function_a_flag_or_a_size_is_told_before_a_missing_context() {
    extern "C" fn nothing(_: usize) {}
    let session = Session::begin();
    let popped: usize = given(|out| cuCtxPopCurrent_v2(out));
    assert_eq!(popped, session.context);
    assert_eq!(cuLaunchHostFunc(0, None, 0), 1);
    assert_eq!(cuLaunchHostFunc(0, Some(nothing), 0), 201);
    assert_eq!(cuStreamAddCallback(0, None, 0, 0), 1);
    let managed = |bytes, flags| ask(|out| super::super::host_memory::cuMemAllocManaged(out, bytes, flags)).0;
    assert_eq!((managed(0, 1), managed(16, 99), managed(16, 1)), (1, 1, 201));
    assert_eq!(cuCtxPushCurrent_v2(popped), 0);
}

#[test]
fn a_context_that_was_destroyed_elsewhere_is_told_so() {
    let session = Session::begin();
    let other: usize = given(|out| cuCtxCreate_v2(out, 0, 0));
    std::thread::spawn(move || assert_eq!(cuCtxDestroy_v2(other), 0)).join().unwrap();
    assert_eq!(ask(|out| cuMemAlloc_v2(out, 16)).0, 709);
    assert_eq!(given(|out| cuCtxPopCurrent_v2(out)), other);
    assert_eq!(given(|out| cuCtxGetCurrent(out)), session.context);
}

#[test]
fn destroying_a_context_gives_its_memory_back() {
    let outer = Session::begin();
    let inner = Session::begin();
    let id = inner.inner().id;
    alloc(3 << 20);
    let owned = || outer.inner().common.space.look().allocations.of_context(id).len();
    assert_eq!(owned(), 1);
    drop(inner);
    assert_eq!(owned(), 0);
}

#[test]
fn what_does_not_fit_is_out_of_memory() {
    let _session = Session::begin();
    let total: usize = given(|out| super::super::device::cuDeviceTotalMem_v2(out, 0));
    assert_eq!(ask(|out| cuMemAlloc_v2(out, total + 1)).0, 2);
    assert_eq!(ask(|out| cuMemAlloc_v2(out, usize::MAX)).0, 2);
}

#[test]
fn the_primary_context_lives_while_it_is_retained() {
    // The device has one primary context for all of a process, and other tests could use it.
    in_a_process_of_its_own("primary");
}

pub(super) fn primary() {
    let _session = Session::begin();
    let first: usize = given(|out| cuDevicePrimaryCtxRetain(out, 0));
    let again: usize = given(|out| cuDevicePrimaryCtxRetain(out, 0));
    assert_eq!(first, again);
    assert_eq!(cuDevicePrimaryCtxRelease_v2(0), 0);
    assert_eq!(cuCtxPushCurrent_v2(first), 0);
    let (plain, mapped) = (alloc(16), reserve(1));
    assert_eq!(cuMemMap(mapped, UNIT, 0, create(1), 0), 0);
    allow(mapped, 1);
    put(mapped, &[1, 2, 3]);
    assert_eq!(cuDevicePrimaryCtxReset_v2(0), 0);
    assert_eq!(ask(|out| cuMemAlloc_v2(out, 16)).0, 709);
    assert_eq!(given(|out| cuDevicePrimaryCtxRetain(out, 0)), first);
    // Allocations went with the context; mappings belong to none.
    assert_eq!(cuMemFree_v2(plain), 1);
    alloc(16);
    assert_eq!(get(mapped, 3), [1, 2, 3]);
    assert_eq!(cuDevicePrimaryCtxRelease_v2(0), 0);
    assert_eq!(cuDevicePrimaryCtxRelease_v2(0), 0);
    assert_eq!(cuDevicePrimaryCtxRelease_v2(0), 201);
    assert_eq!(given(|out| cuCtxPopCurrent_v2(out)), first);
}

#[test]
fn allocating_needs_no_descriptor() {
    in_a_process_of_its_own("full");
}

#[allow(unsafe_code)]
pub(super) fn at_the_descriptor_limit() {
    let _session = Session::begin();
    // SAFETY: zeros are a valid value; the process is this test's own.
    unsafe {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none), 0);
    }
    assert!(std::fs::File::open("/dev/null").is_err());
    let at = [alloc(100), alloc(5 << 20)];
    at.into_iter().for_each(|at| put(at, &[1, 2]));
    assert_eq!(at.map(|at| get(at, 2)), [[1, 2], [1, 2]]);
    assert_eq!(at.map(|at| cuMemFree_v2(at)), [0, 0]);
    // A handle that can be exported is a descriptor.
    let made = ask(|out| super::super::vmm::cuMemCreate(out, UNIT, block(&super::vmm::exportable()), 0));
    assert_eq!(made.0, 2);
}
