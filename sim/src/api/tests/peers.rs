//! Several GPUs. These tests have processes of their own, which have two.

use super::super::abi::{AccessDesc, Location};
use super::super::context::*;
use super::super::control::*;
use super::super::copies::*;
use super::super::device::*;
use super::super::fills::cuMemsetD32_v2;
use super::super::init::cuInit;
use super::super::ipc::{cuIpcGetMemHandle, cuIpcOpenMemHandle_v2};
use super::super::memory::*;
use super::super::pointers::cuPointerGetAttribute;
use super::super::streams::*;
use super::super::vmm::*;
use super::processes::{in_a_process_with_two_gpus, in_two_processes_of_shared_gpus, tell, told};
use super::vmm::{UNIT, create, reserve};
use super::{alloc, function, get, launch, put, synchronize};
use crate::border::from_tests::{address, address_mut, ask, block, given, list, nowhere, place};
use crate::shared_file::IpcHandle;

/// The primary contexts of both; that of the first is current.
fn contexts() -> [usize; 2] {
    assert_eq!(cuInit(0), 0);
    let both = [0, 1].map(|device| given(|out| cuDevicePrimaryCtxRetain(out, device)));
    assert_eq!(cuCtxSetCurrent(both[0]), 0);
    both
}

/// Does something with a context current; then the one of before is again.
fn within<T>(context: usize, what: impl FnOnce() -> T) -> T {
    assert_eq!(cuCtxPushCurrent_v2(context), 0);
    let done = what();
    assert_eq!(given(|out| cuCtxPopCurrent_v2(out)), context);
    done
}

fn device_of(at: u64) -> i32 {
    let mut ordinal = -1i32;
    assert_eq!(cuPointerGetAttribute(address_mut(&mut ordinal), 9, at), 0);
    ordinal
}

/// A kernel that copies one word, in the current context.
fn copy_by_kernel(to: u64, from: u64) -> u32 {
    let (factor, count) = (1.0f32, 1u32);
    let params = [address(&to), address(&from), address(&factor), address(&count)];
    assert_eq!(launch(function(c"scale"), 0, &params), 0);
    cuCtxSynchronize()
}

#[test]
fn each_gpu_has_an_identity_and_memory_of_its_own() {
    in_a_process_with_two_gpus("two-gpus");
}

pub(super) fn identities() {
    let both = contexts();
    assert_eq!(given(|out| cuDeviceGetCount(out)), 2);
    assert_eq!((given(|out| cuDeviceGet(out, 1)), ask(|out| cuDeviceGet(out, 2)).0), (1, 101));
    let uuids = [0, 1].map(|device| given::<[u8; 16]>(|out| cuDeviceGetUuid_v2(out, device)));
    let buses = [0, 1].map(|device| given::<i32>(|out| cuDeviceGetAttribute(out, 33, device)));
    assert!(uuids[0] != uuids[1] && buses[0] != buses[1]);
    assert_eq!(given(|out| cuDeviceGetByPCIBusId(out, crate::border::from_tests::text(c"0000:02:00.0"))), 1);
    assert_eq!(given(|out| cuDeviceCanAccessPeer(out, 0, 1)), 1);
    assert_eq!(given(|out| cuDeviceCanAccessPeer(out, 0, 0)), 0);
    let free = |context| {
        let mut total = 0usize;
        within(context, || given::<usize>(|free| cuMemGetInfo_v2(free, place(&mut total))))
    };
    let before = both.map(free);
    let small = both.map(|context| within(context, || alloc(100)));
    let large = within(both[1], || alloc(20 << 20));
    assert_eq!(both.map(free), [before[0] - UNIT, before[1] - UNIT - (20 << 20)]);
    assert_eq!((small.map(device_of), device_of(large)), ([0, 1], 1));
    assert_eq!(both.map(|context| within(context, || given(|out| cuCtxGetDevice(out)))), [0, 1]);
    let stream: usize = within(both[1], || given(|out| cuStreamCreate(out, 0)));
    assert_eq!(given(|out| cuStreamGetDevice(stream, out)), 1);
    // An address tells which GPU's memory it is, whichever is current; but its range is out of the other one's reach.
    assert_eq!(ask::<u64>(|base| cuMemGetAddressRange_v2(base, nowhere(), large + 5)).0, 500);
    assert_eq!(within(both[1], || given(|base| cuMemGetAddressRange_v2(base, nowhere(), large + 5))), large);
    let attribute = |which| {
        let mut value = 0u64;
        (cuPointerGetAttribute(address_mut(&mut value), which, large), value)
    };
    assert_eq!((attribute(3), attribute(16)), ((1, 0), (0, 3)));
    assert_eq!(cuCtxEnablePeerAccess(both[1], 0), 0);
    assert_eq!((attribute(3), attribute(16)), ((0, large), (0, 3)));
    assert_eq!(given(|base| cuMemGetAddressRange_v2(base, nowhere(), large + 5)), large);
    assert_eq!(cuCtxDisablePeerAccess(both[1]), 0);
    assert_eq!(cuMemFree_v2(large), 0);
    assert_eq!(free(both[1]), before[1] - UNIT);
    // Numbers by which the process is paused there.
    let numbers = uuids.map(|uuid| given(|out| simcudaGetProcessOn(block(&uuid), out)));
    assert_ne!(numbers[0], numbers[1]);
    assert_eq!(both.map(|context| within(context, || given(|out| simcudaGetProcess(out)))), numbers);
    assert_eq!(ask::<u32>(|out| simcudaGetProcessOn(block(&[0; 16]), out)).0, 101);
    assert_eq!(simcudaPauseProcess(numbers[1]), 0);
    let at = alloc(4);
    put(at, &[7]);
    assert_eq!(get(at, 1), [7], "the other GPU goes on");
    assert_eq!(within(both[1], || cuMemsetD32_v2(small[1], 3, 1)), 0);
    assert_eq!(within(both[1], || cuStreamQuery(0)), 600);
    assert_eq!(simcudaResumeProcess(numbers[1]), 0);
    assert_eq!(within(both[1], || cuCtxSynchronize()), 0);
    assert_eq!(simcudaPauseProcess(7 << 29), 1);
}

#[test]
fn a_process_opens_memory_of_a_gpu_that_it_does_not_see() {
    in_two_processes_of_shared_gpus(["gives-first", "sees-second"], "1");
}

/// Tells the GPUs' UUIDs, and a handle of memory on the first.
pub(super) fn gives() {
    contexts();
    let at = alloc(4);
    put(at, &[7.0f32.to_bits()]);
    let mut handle = IpcHandle::nothing();
    assert_eq!(cuIpcGetMemHandle(place(&mut handle), at), 0);
    let uuids = [0, 1].map(|device| given::<[u8; 16]>(|out| cuDeviceGetUuid_v2(out, device)));
    tell(format!("{uuids:?} {:?}", handle.numbers()));
    std::thread::sleep(std::time::Duration::from_secs(60));
}

/// A process that sees the second GPU alone opens that memory.
pub(super) fn sees_second() {
    let numbers: Vec<u64> = told().split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
    let (uuids, handle) = numbers.split_at(32);
    assert_eq!(cuInit(0), 0);
    assert_eq!(given(|out| cuDeviceGetCount(out)), 1);
    let uuid: [u8; 16] = given(|out| cuDeviceGetUuid_v2(out, 0));
    assert_eq!(uuid.map(u64::from), uuids[16..]);
    assert_eq!(given(|out| cuDeviceGetByPCIBusId(out, crate::border::from_tests::text(c"0000:02:00.0"))), 0);
    let context: usize = given(|out| cuDevicePrimaryCtxRetain(out, 0));
    assert_eq!(cuCtxSetCurrent(context), 0);
    let handle = IpcHandle::of_numbers(handle);
    let opened: u64 = given(|out| cuIpcOpenMemHandle_v2(out, handle, 1));
    let own = alloc(4);
    // To the program it is its own GPU's memory.
    assert_eq!([own, opened].map(device_of), [0, 0]);
    assert_eq!(copy_by_kernel(own, opened), 0);
    assert_eq!(get(own, 1), [7.0f32.to_bits()]);
}

#[test]
fn copies_go_between_gpus_and_kernels_reach_what_they_were_given_access_to() {
    in_a_process_with_two_gpus("two-gpus-peers");
}

pub(super) fn peers() {
    let both = contexts();
    let here = alloc(3 << 20);
    let there = within(both[1], || alloc(3 << 20));
    put(here, &[1.5f32.to_bits()]);
    assert_eq!(cuMemcpyDtoD_v2(there, here, 4), 0);
    synchronize();
    // In the order of both contexts' streams.
    assert_eq!(cuMemcpyPeer(there + 4, both[1], here, both[0], 4), 0);
    assert_eq!(within(both[1], || get(there, 2)), [1.5f32.to_bits(); 2]);
    assert_eq!(get(there, 2), [1.5f32.to_bits(); 2], "the host copies from wherever it is");
    // A fill works on its own GPU's memory.
    assert_eq!(cuMemsetD32_v2(there, 0, 1), 1);
    assert_eq!(cuCtxEnablePeerAccess(both[0], 0), 217);
    assert_eq!(cuCtxDisablePeerAccess(both[1]), 705);
    assert_eq!((cuCtxEnablePeerAccess(both[1], 1), cuCtxEnablePeerAccess(both[1], 0)), (1, 0));
    assert_eq!(cuCtxEnablePeerAccess(both[1], 0), 704);
    assert_eq!(copy_by_kernel(here + 64, there), 0);
    assert_eq!(cuMemsetD32_v2(there + 8, 9, 1), 0);
    synchronize();
    assert_eq!((get(here + 64, 1), get(there + 8, 1)), (vec![1.5f32.to_bits()], vec![9]));
    // Later allocations too, and not in the other direction.
    let later = within(both[1], || alloc(64));
    assert_eq!(copy_by_kernel(later, here), 0);
    assert_eq!(within(both[1], || cuMemsetD32_v2(here, 1, 1)), 1);
    assert_eq!((cuCtxDisablePeerAccess(both[1]), cuMemsetD32_v2(there, 0, 1)), (0, 1));
    assert_eq!(copy_by_kernel(here, there), 700);
}

#[test]
fn memory_that_the_program_maps_is_for_the_gpus_that_it_says() {
    in_a_process_with_two_gpus("two-gpus-mapped");
}

pub(super) fn mapped() {
    let both = contexts();
    let devices = [0, 1].map(|id| Location { kind: 1, id });
    let (at, handle) = (reserve(1), create(1));
    assert_eq!(cuMemMap(at, UNIT, 0, handle, 0), 0);
    let allow = |device: usize, flags| {
        let access = [AccessDesc { location: devices[device], flags }];
        assert_eq!(cuMemSetAccess(at, UNIT, list(&access), 1), 0);
    };
    let told = || devices.map(|device| given::<u64>(|out| cuMemGetAccess(out, block(&device), at)));
    let beyond = [AccessDesc { location: Location { kind: 1, id: 2 }, flags: 3 }];
    assert_eq!(cuMemSetAccess(at, UNIT, list(&beyond), 1), 1);
    allow(0, 3);
    assert_eq!(told(), [3, 0]);
    put(at, &[5]);
    // Copies and fills of the other GPU do not reach it, but those that say which GPU's memory it is.
    let there = within(both[1], || alloc(64));
    let refused =
        || within(both[1], || (cuMemcpyDtoD_v2(there, at, 4), cuMemcpyDtoD_v2(at, there, 4), cuMemsetD32_v2(at, 0, 1)));
    assert_eq!(refused(), (1, 1, 1));
    assert_eq!(cuMemcpyDtoD_v2(there, at, 4), 0);
    let peer = |to, from| within(both[1], || cuMemcpyPeer(there, both[to], at, both[from], 4));
    assert_eq!((peer(1, 0), peer(0, 1)), (0, 1));
    assert_eq!(within(both[1], || get(there, 1)), [5]);
    // Peers change nothing about it.
    assert_eq!(within(both[1], || cuCtxEnablePeerAccess(both[0], 0)), 0);
    assert_eq!(refused(), (1, 1, 1));
    let (seed, count) = (1u32, 1u32);
    let write = || {
        let params = [address(&at), address(&seed), address(&count)];
        launch(function(c"fill_hash"), 0, &params)
    };
    assert_eq!(within(both[1], || cuMemsetD32_v2(at, 0, 1)), 1);
    allow(1, 3);
    assert_eq!(told(), [3, 3]);
    assert_eq!(within(both[1], || (write(), cuCtxSynchronize())), (0, 0));
    assert_eq!(get(at, 1), [0x514E_28B7]);
    let mut made = super::super::abi::AllocationProp::default();
    assert_eq!(cuMemGetAllocationPropertiesFromHandle(place(&mut made), handle), 0);
    assert_eq!((made.location.id, device_of(at)), (0, 0));
    allow(1, 0);
    assert_eq!(within(both[1], || (write(), cuCtxSynchronize())), (0, 700));
}
