//! Memory in streams' order. Tests that look at all of the GPU's memory, or break something, have processes of their own.

use std::os::fd::{FromRawFd, OwnedFd};

use super::super::abi::{AccessDesc, Location, PoolProps};
use super::super::context::*;
use super::super::events::*;
use super::super::fills::*;
use super::super::host_memory::cuMemHostAlloc;
use super::super::ipc::cuIpcGetMemHandle;
use super::super::memory::*;
use super::super::pointers::cuPointerGetAttribute;
use super::super::pools::*;
use super::super::stream_capture::*;
use super::super::stream_memory::*;
use super::super::streams::*;
use super::super::vmm::{cuMemGetAccess, cuMemGetHandleForAddressRange, cuMemRetainAllocationHandle};
use super::processes::{in_a_process_of_a_shared_gpu, in_a_process_of_its_own, in_a_process_with_two_gpus, role};
use super::{Session, alloc, function, get, launch, put, spin, synchronize, synchronize_with};
use crate::border::from_tests::{address, address_mut, ask, block, given, list, no_list, nowhere, place};
use crate::graph::capture::MODE_THREAD_LOCAL;
use crate::pool::steps::STEP;
use crate::shared_file::IpcHandle;

const FOLLOW_EVENTS: u32 = 1;
const OPPORTUNISTIC: u32 = 2;
const INTERNAL: u32 = 3;
const THRESHOLD: u32 = 4;
const RESERVED: u32 = 5;
const RESERVED_HIGH: u32 = 6;
const USED: u32 = 7;
const USED_HIGH: u32 = 8;
const MIB: usize = 1 << 20;
const SMALL: usize = 1000;
/// As taken from a pool.
const SMALL_TAKEN: u64 = 1024;

fn props(most: usize) -> PoolProps {
    let location = Location { kind: 1, id: 0 };
    PoolProps { kind: 1, handle_types: 0, location, win32: 0, most, usage: 0, reserved: [0; 54] }
}

fn pool(most: usize) -> usize {
    given(|out| cuMemPoolCreate(out, block(&props(most))))
}

fn stream() -> usize {
    given(|out| cuStreamCreate(out, 1))
}

fn figure(pool: usize, attribute: u32) -> u64 {
    let mut value = 0u64;
    assert_eq!(cuMemPoolGetAttribute(pool, attribute, address_mut(&mut value)), 0);
    value
}

fn set(pool: usize, attribute: u32, value: u64) -> u32 {
    cuMemPoolSetAttribute(pool, attribute, address(&value))
}

/// A pool that only ever uses memory again in the ways given.
fn pool_with(policies: &[u32], most: usize) -> usize {
    let made = pool(most);
    for policy in [FOLLOW_EVENTS, OPPORTUNISTIC, INTERNAL] {
        assert_eq!(set(made, policy, policies.contains(&policy).into()), 0);
    }
    made
}

fn take(pool: usize, bytes: usize, stream: usize) -> u64 {
    given(|out| cuMemAllocFromPoolAsync(out, bytes, pool, stream))
}

/// A stream that has something to do until the flag is raised.
struct Busy {
    stream: usize,
    flag: usize,
}

impl Busy {
    fn new() -> Busy {
        let busy = Busy { stream: stream(), flag: given(|out| cuMemHostAlloc(out, 4, 0)) };
        spin(busy.stream, alloc(4), busy.flag as u64);
        busy
    }

    /// Lets it end, without waiting for it in the driver.
    fn end(&self) {
        crate::border::write_at(self.flag, 1u32).unwrap();
        while cuStreamQuery(self.stream) == 600 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn every_device_has_a_pool_and_another_can_take_its_place() {
    let _session = Session::begin();
    let default: usize = given(|out| cuDeviceGetDefaultMemPool(out, 0));
    assert_eq!(given::<usize>(|out| cuDeviceGetMemPool(out, 0)), default);
    let here = Location { kind: 1, id: 0 };
    assert_eq!(given::<usize>(|out| cuMemGetDefaultMemPool(out, block(&here), 1)), default);
    assert_eq!(ask::<usize>(|out| cuDeviceGetDefaultMemPool(out, 1)).0, 101);
    assert_eq!(cuDeviceGetDefaultMemPool(nowhere(), 0), 1);
    assert_eq!(cuMemPoolDestroy(default), 1);
    assert_eq!((cuDeviceSetMemPool(0, 0), cuDeviceSetMemPool(1, default)), (1, 1));
    // Managed memory has no pools here, nor has the host.
    let host = Location { kind: 2, id: 0 };
    assert_eq!(ask::<usize>(|out| cuMemGetMemPool(out, block(&here), 2)).0, 801);
    assert_eq!(ask::<usize>(|out| cuMemGetMemPool(out, block(&host), 1)).0, 801);
    assert_eq!(ask::<usize>(|out| cuMemGetMemPool(out, block(&here), 0)).0, 1);
}

/// In a process of its own: other tests' allocations are from the default pool.
pub(super) fn memory_of_the_gpu() {
    let session = Session::begin();
    let free = || {
        let mut total = 0usize;
        given::<usize>(|free| cuMemGetInfo_v2(free, place(&mut total)))
    };
    let stream = stream();
    let default: usize = given(|out| cuDeviceGetDefaultMemPool(out, 0));
    let before = free();
    // From the pool that is current, and this is its device's until it is destroyed.
    let made = pool(0);
    assert_eq!(free(), before);
    assert_eq!(cuDeviceSetMemPool(0, made), 0);
    assert_eq!(given::<usize>(|out| cuDeviceGetMemPool(out, 0)), made);
    let at = given(|out| cuMemAllocAsync(out, SMALL, stream));
    assert_eq!((figure(made, USED), figure(default, USED)), (SMALL as u64, 0));
    assert_eq!(free(), before - STEP as usize);
    // It goes, but not what was allocated from it.
    assert_eq!(cuMemPoolDestroy(made), 0);
    assert_eq!((cuMemPoolDestroy(made), cuMemPoolTrimTo(made, 0)), (1, 1));
    assert_eq!(given::<usize>(|out| cuDeviceGetMemPool(out, 0)), default);
    assert_eq!(cuStreamSynchronize(stream), 0);
    put(at, &[1, 2, 3]);
    assert_eq!((get(at, 3), free()), (vec![1, 2, 3], before - STEP as usize));
    assert_eq!(cuMemFreeAsync(at, stream), 0);
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(free(), before);
    // A large one takes what it needs, one that is too large nothing.
    let large = given(|out| cuMemAllocAsync(out, 100 * MIB + 1, stream));
    assert_eq!(free(), before - 128 * MIB);
    assert_eq!(ask(|out| cuMemAllocAsync(out, 157 * MIB, stream)), (2, 0));
    assert_eq!(ask(|out| cuMemAllocAsync(out, 1 << 60, stream)), (2, 0));
    assert_eq!(ask(|out| cuMemAllocAsync(out, usize::MAX, stream)), (2, 0));
    // Other pools get the memory that a pool keeps without need, if there is nothing else.
    assert_eq!(set(default, THRESHOLD, u64::MAX), 0);
    assert_eq!((cuMemFreeAsync(large, stream), cuStreamSynchronize(stream)), (0, 0));
    assert_eq!((free(), figure(default, RESERVED)), (before - 128 * MIB, 128 << 20));
    let other = pool(0);
    let at = take(other, 200 * MIB, stream);
    assert_eq!((free(), figure(default, RESERVED)), (before - 224 * MIB, 0));
    // The rest of the last step counts, and the memory outlives its context.
    let last = take(other, 25 * MIB, stream);
    assert_eq!(free(), before - 256 * MIB);
    let rest = take(other, 30 * MIB, stream);
    assert_eq!(ask(|out| cuMemAllocFromPoolAsync(out, 2 * MIB, other, stream)), (2, 0));
    assert_eq!(cuStreamSynchronize(stream), 0);
    drop(session);
    let _session = Session::begin();
    put(at, &[9]);
    assert_eq!(get(at, 1), [9]);
    assert_eq!((cuMemFree_v2(at), cuMemFree_v2(last), cuMemFree_v2(rest), cuMemPoolDestroy(other)), (0, 0, 0, 0));
    assert_eq!(free(), before);
}

#[test]
fn pools_take_the_gpu_s_memory_in_steps_and_give_it_back() {
    in_a_process_of_its_own("pool-memory");
}

#[test]
fn a_pool_that_is_not_simulated_is_refused() {
    let _session = Session::begin();
    let make = |props: PoolProps| ask::<usize>(|out| cuMemPoolCreate(out, block(&props))).0;
    let fine = props(0);
    assert_eq!(make(PoolProps { kind: 0, ..fine }), 1);
    assert_eq!(make(PoolProps { handle_types: 16, ..fine }), 1);
    assert_eq!((make(PoolProps { handle_types: 2, ..fine }), make(PoolProps { handle_types: 8, ..fine })), (1, 801));
    assert_eq!(make(PoolProps { location: Location { kind: 0, id: 0 }, ..fine }), 1);
    assert_eq!(make(PoolProps { location: Location { kind: 2, id: 0 }, ..fine }), 801);
    assert_eq!(make(PoolProps { location: Location { kind: 1, id: 9 }, ..fine }), 1);
    assert_eq!(make(PoolProps { reserved: [1; 54], ..fine }), 1);
    assert_eq!(cuMemPoolCreate(nowhere(), block(&fine)), 1);
    let made = pool(0);
    let stream = stream();
    assert_eq!(ask(|out| cuMemAllocFromPoolAsync(out, 0, made, stream)), (0, 0));
    assert_eq!(ask(|out| cuMemAllocFromPoolAsync(out, 16, 0, stream)).0, 1);
    assert_eq!(ask(|out| cuMemAllocFromPoolAsync(out, 16, made, 77)).0, 400);
    assert_eq!(cuMemAllocFromPoolAsync(nowhere(), 16, made, stream), 1);
    assert_eq!(figure(made, USED), 0);
    assert_eq!(cuMemPoolDestroy(made), 0);
}

#[test]
fn a_pool_has_settings_and_figures() {
    let _session = Session::begin();
    let (made, stream) = (pool(0), stream());
    let told: Vec<u64> = (1..=8).map(|attribute| figure(made, attribute)).collect();
    assert_eq!(told, [1, 1, 1, 0, 0, 0, 0, 0]);
    assert_eq!((set(made, OPPORTUNISTIC, 0), set(made, THRESHOLD, 5 << 33)), (0, 0));
    assert_eq!((figure(made, OPPORTUNISTIC), figure(made, THRESHOLD)), (0, 5 << 33));
    for attribute in [0, RESERVED, USED, 9] {
        assert_eq!(set(made, attribute, 0), 1);
    }
    assert_eq!(cuMemPoolSetAttribute(made, THRESHOLD, 0), 1);
    assert_eq!(cuMemPoolGetAttribute(made, THRESHOLD, 0), 1);
    let first = take(made, SMALL, stream);
    let second = take(made, 40 * MIB, stream);
    let figures = || [RESERVED, RESERVED_HIGH, USED, USED_HIGH].map(|attribute| figure(made, attribute));
    let (reserved, used) = (2 * STEP, SMALL as u64 + (40 << 20));
    assert_eq!(figures(), [reserved, reserved, used, used]);
    assert_eq!(cuMemFreeAsync(second, stream), 0);
    assert_eq!(figures(), [reserved, reserved, SMALL as u64, used]);
    assert_eq!((set(made, USED_HIGH, 1), set(made, USED_HIGH, 0)), (1, 0));
    assert_eq!(figures(), [reserved, reserved, SMALL as u64, SMALL as u64]);
    assert_eq!((set(made, THRESHOLD, 0), cuStreamSynchronize(stream)), (0, 0));
    assert_eq!(figures(), [STEP, reserved, SMALL as u64, SMALL as u64]);
    assert_eq!(set(made, RESERVED_HIGH, 0), 0);
    assert_eq!(figures(), [STEP, STEP, SMALL as u64, SMALL as u64]);
    assert_eq!((cuMemFreeAsync(first, stream), cuMemPoolDestroy(made)), (0, 0));
}

#[test]
fn memory_that_nobody_has_goes_back_down_to_the_threshold() {
    let _session = Session::begin();
    let (made, stream) = (pool(0), stream());
    assert_eq!(set(made, THRESHOLD, STEP + 1), 0);
    let all: Vec<u64> = (0..3).map(|_| take(made, STEP as usize, stream)).collect();
    assert_eq!(figure(made, RESERVED), 3 * STEP);
    assert_eq!(cuMemPoolTrimTo(made, 0), 0);
    assert_eq!(figure(made, RESERVED), 3 * STEP, "all of it is somebody's");
    all.iter().for_each(|at| assert_eq!(cuMemFreeAsync(*at, stream), 0));
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(figure(made, RESERVED), 2 * STEP);
    assert_eq!(cuMemPoolTrimTo(made, 2 * STEP as usize), 0);
    assert_eq!(figure(made, RESERVED), 2 * STEP);
    assert_eq!(cuMemPoolTrimTo(made, STEP as usize), 0);
    assert_eq!(figure(made, RESERVED), STEP);
    // The other ways to wait.
    for wait in 0..2 {
        assert_eq!(set(made, THRESHOLD, 0), 0);
        let (at, event) = (take(made, SMALL, stream), given(|out| cuEventCreate(out, 2)));
        assert_eq!((cuMemFreeAsync(at, stream), cuEventRecord(event, stream)), (0, 0));
        assert_eq!(figure(made, RESERVED), STEP);
        assert_eq!(if wait == 0 { cuEventSynchronize(event) } else { cuCtxSynchronize() }, 0);
        assert_eq!(figure(made, RESERVED), 0);
    }
    assert_eq!(cuMemPoolDestroy(made), 0);
}

#[test]
fn a_stream_has_what_it_freed_at_once_and_others_do_not() {
    let _session = Session::begin();
    let (made, busy, other) = (pool(0), Busy::new(), stream());
    let at = take(made, SMALL, busy.stream);
    assert_eq!(cuMemsetD32Async(at, 5, 4, busy.stream), 0);
    assert_eq!((cuMemFreeAsync(at, busy.stream), cuMemFreeAsync(at, busy.stream)), (0, 1));
    assert_ne!(take(made, SMALL, other), at);
    assert_eq!(take(made, SMALL, busy.stream), at);
    assert_eq!(figure(made, USED), 2 * SMALL as u64);
    // The pieces on both sides of what another stream has are one again when all are freed.
    assert_eq!(cuMemFreeAsync(at, busy.stream), 0);
    busy.end();
    assert_eq!(cuStreamSynchronize(busy.stream), 0);
    assert_eq!(take(made, SMALL, other), at);
    assert_eq!(cuMemPoolDestroy(made), 0);
}

#[test]
fn memory_of_another_stream_is_known_to_be_free_behind_its_event() {
    let _session = Session::begin();
    for (policies, again) in [(&[FOLLOW_EVENTS][..], true), (&[OPPORTUNISTIC, INTERNAL], false)] {
        let (made, busy, middle, other) = (pool_with(policies, 0), Busy::new(), stream(), stream());
        let event: usize = given(|out| cuEventCreate(out, 2));
        let at = take(made, SMALL, busy.stream);
        assert_eq!(cuMemFreeAsync(at, busy.stream), 0);
        // By way of a third stream.
        assert_eq!((cuEventRecord(event, busy.stream), cuStreamWaitEvent(middle, event, 0)), (0, 0));
        assert_eq!((cuEventRecord(event, middle), cuStreamWaitEvent(other, event, 0)), (0, 0));
        assert_eq!(take(made, SMALL, other) == at, again);
        busy.end();
        synchronize();
        assert_eq!(cuMemPoolDestroy(made), 0);
    }
}

#[test]
fn default_streams_order_memory_too() {
    let _session = Session::begin();
    let (made, blocking) = (pool_with(&[FOLLOW_EVENTS], 0), given(|out| cuStreamCreate(out, 0)));
    let flag: usize = given(|out| cuMemHostAlloc(out, 4, 0));
    spin(0, alloc(4), flag as u64);
    let at = take(made, SMALL, 0);
    assert_eq!(cuMemFreeAsync(at, 0), 0);
    assert_ne!(take(made, SMALL, stream()), at);
    assert_eq!(take(made, SMALL, blocking), at);
    assert_eq!(cuMemFreeAsync(at, blocking), 0);
    assert_eq!(take(made, SMALL, 0), at);
    synchronize_with(flag);
    assert_eq!(cuMemPoolDestroy(made), 0);
}

#[test]
fn what_is_over_is_anybody_s_if_the_pool_may_look() {
    let _session = Session::begin();
    for (policies, again) in [(&[OPPORTUNISTIC][..], true), (&[FOLLOW_EVENTS, INTERNAL], false)] {
        let (made, busy, other) = (pool_with(policies, 0), Busy::new(), stream());
        let at = take(made, SMALL, busy.stream);
        assert_eq!(cuMemFreeAsync(at, busy.stream), 0);
        let second = take(made, SMALL, other);
        assert_ne!(second, at);
        busy.end();
        assert_eq!(take(made, SMALL, other) == at, again);
        // Waiting makes it free for all streams, whatever the policies are.
        assert_eq!((cuMemFreeAsync(second, other), cuStreamSynchronize(other)), (0, 0));
        assert_eq!(take(made, SMALL, stream()), second);
        assert_eq!(cuMemPoolDestroy(made), 0);
    }
}

#[test]
fn a_stream_is_made_to_wait_for_memory_when_there_is_no_other() {
    let _session = Session::begin();
    let (busy, other) = (Busy::new(), stream());
    let never = pool_with(&[FOLLOW_EVENTS, OPPORTUNISTIC], 20 * MIB);
    let made = pool_with(&[INTERNAL], 20 * MIB);
    for pool in [never, made] {
        let at = take(pool, 20 * MIB, busy.stream);
        assert_eq!(figure(pool, RESERVED), STEP);
        assert_eq!(cuMemFreeAsync(at, busy.stream), 0);
    }
    assert_eq!(ask(|out| cuMemAllocFromPoolAsync(out, 13 * MIB, never, other)), (2, 0));
    assert_eq!(cuStreamSynchronize(other), 0);
    let at = take(made, 13 * MIB, other);
    assert_eq!(cuMemsetD32Async(at, 1, 1, other), 0);
    // Long enough for a stream that does not wait.
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(cuStreamQuery(other), 600);
    synchronize_with(busy.flag);
    assert_eq!((get(at, 1), figure(made, RESERVED)), (vec![1], STEP));
    assert_eq!((cuMemPoolDestroy(made), cuMemPoolDestroy(never)), (0, 0));
}

#[test]
fn a_pool_at_its_own_limit_takes_nothing_from_other_pools() {
    let _session = Session::begin();
    let (limited, other, stream) = (pool(20 * MIB), pool(0), stream());
    assert_eq!(set(other, THRESHOLD, u64::MAX), 0);
    let kept = take(other, SMALL, stream);
    assert_eq!((cuMemFreeAsync(kept, stream), cuStreamSynchronize(stream)), (0, 0));
    let at = take(limited, 20 * MIB, stream);
    assert_eq!(ask(|out| cuMemAllocFromPoolAsync(out, 20 * MIB, limited, stream)), (2, 0));
    assert_eq!(figure(other, RESERVED), STEP);
    assert_eq!(cuMemFreeAsync(at, stream), 0);
    assert_eq!((cuMemPoolDestroy(limited), cuMemPoolDestroy(other)), (0, 0));
}

#[test]
fn a_free_that_the_program_vouches_for_waits_for_nothing() {
    let session = Session::begin();
    let (made, busy, other) = (pool_with(&[], 0), Busy::new(), stream());
    let (never, used) = (take(made, SMALL, busy.stream), take(made, SMALL, other));
    assert_eq!(set(made, THRESHOLD, u64::MAX), 0);
    assert_eq!(cuStreamSynchronize(other), 0);
    put(used, &[3]);
    assert_eq!((cuMemFree_v2(used), cuMemFree_v2(used), cuMemFree_v2(never)), (0, 1, 0));
    assert_eq!(figure(made, USED), 0);
    assert_eq!((take(made, SMALL, other), take(made, SMALL, other)), (never, used));
    assert_eq!(cuStreamSynchronize(other), 0);
    // Memory that the busy stream comes to only now belongs to no stream.
    busy.end();
    assert_eq!(cuStreamSynchronize(busy.stream), 0);
    put(never, &[4]);
    assert_eq!((get(never, 1), get(used, 1)), (vec![4], vec![0xF5F5_F5F5]));
    // No context is needed.
    assert_eq!(given(|out| cuCtxPopCurrent_v2(out)), session.context);
    assert_eq!((cuMemFree_v2(used), cuMemFree_v2(never)), (0, 0));
    assert_eq!(cuCtxPushCurrent_v2(session.context), 0);
    assert_eq!(cuMemPoolDestroy(made), 0);
}

#[test]
fn memory_is_checked_at_calls_as_other_memory_is() {
    let _session = Session::begin();
    let (made, stream) = (pool(0), stream());
    let (at, next) = (take(made, SMALL, stream), take(made, SMALL, stream));
    assert_eq!(next - at, SMALL_TAKEN);
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!((cuMemsetD8_v2(at + 990, 1, 10), cuMemsetD8_v2(at + 990, 1, 11)), (0, 1));
    let mut bytes = 0usize;
    assert_eq!(given(|base| cuMemGetAddressRange_v2(base, place(&mut bytes), at + 9)), at);
    assert_eq!(bytes, SMALL);
    assert_eq!((cuMemFreeAsync(at + 512, stream), cuMemFree_v2(at + 512)), (1, 1));
    // The fills are in the legacy stream, which this one takes no notice of.
    synchronize();
    assert_eq!((cuMemFreeAsync(at, stream), cuStreamSynchronize(stream)), (0, 0));
    assert_eq!((cuMemsetD8_v2(at, 1, 1), cuMemFreeAsync(at, stream), cuMemFree_v2(at)), (1, 1, 1));
    assert_eq!(cuMemPoolDestroy(made), 0);
}

#[test]
fn memory_of_a_pool_has_attributes_of_its_own() {
    let _session = Session::begin();
    let (made, stream) = (pool(0), stream());
    let at = take(made, SMALL, stream);
    let attribute = |attribute: u32| {
        let mut value = 0u64;
        (cuPointerGetAttribute(address_mut(&mut value), attribute, at + 5), value)
    };
    // By attribute: of the device, of no context, of this pool, in an allocation that is in a stretch.
    let told = [
        (1, (0, 0)),
        (2, (0, 2)),
        (3, (0, at + 5)),
        (4, (1, 0)),
        (8, (0, 0)),
        (9, (0, 0)),
        (10, (0, 0)),
        (11, (0, at)),
        (12, (0, SMALL as u64)),
        (13, (0, 1)),
        (14, (0, 0)),
        (16, (0, 3)),
        (17, (0, made as u64)),
        (18, (0, STEP)),
    ];
    for (number, expected) in told {
        assert_eq!((number, attribute(number)), (number, expected));
    }
    let id = attribute(7).1;
    assert_eq!((cuMemFreeAsync(at, stream), take(made, SMALL, stream)), (0, at));
    assert_ne!(attribute(7).1, id);
    // It is shared in no other way than with its pool.
    let mut handle = IpcHandle::nothing();
    assert_eq!((cuIpcGetMemHandle(place(&mut handle), at), cuIpcGetMemHandle(place(&mut handle), alloc(4))), (1, 0));
    assert_eq!(ask(|out| cuMemRetainAllocationHandle(out, at)).0, 1);
    let mut descriptor = -1i32;
    let stretch = attribute(19).1;
    assert_eq!(cuMemGetHandleForAddressRange(address_mut(&mut descriptor), stretch, 4096, 1, 0), 1);
    assert_eq!(given::<u64>(|out| cuMemGetAccess(out, block(&Location { kind: 1, id: 0 }), at)), 3);
    assert_eq!(cuMemPoolDestroy(made), 0);
}

#[test]
fn memory_that_lies_over_several_steps_is_one() {
    let _session = Session::begin();
    let (made, stream) = (pool(0), stream());
    let first = take(made, 30 * MIB, stream);
    let at = take(made, 40 * MIB, stream);
    assert_eq!((at - first, figure(made, RESERVED)), (30 << 20, 3 * STEP));
    assert_eq!(cuStreamSynchronize(stream), 0);
    let values: Vec<u32> = (0..1000).collect();
    let border = at + (2 << 20) - 2000;
    put(border, &values);
    assert_eq!(get(border, 1000), values);
    assert_eq!((cuMemsetD8_v2(at + 1, 7, 40 * MIB - 1), cuMemsetD8_v2(at + 1, 7, 40 * MIB)), (0, 1));
    synchronize();
    assert_eq!(get(border, 1000), [0x0707_0707; 1000]);
    // The step between two that are used goes, and comes back.
    let last = take(made, 20 * MIB, stream);
    assert_eq!((last - at, cuMemFreeAsync(at, stream), cuStreamSynchronize(stream)), (40 << 20, 0, 0));
    assert_eq!(figure(made, RESERVED), 2 * STEP);
    assert_eq!((take(made, 38 * MIB, stream), figure(made, RESERVED)), (at, 3 * STEP));
    assert_eq!(cuMemPoolDestroy(made), 0);
}

#[test]
fn a_capture_is_spoilt_by_calls_about_pools() {
    let _session = Session::begin();
    let (made, stream, other) = (pool(0), stream(), stream());
    let mut value = 0u64;
    let props = props(0);
    let mut place_for_one = 0usize;
    let (at, one) = (take(made, SMALL, other), address_mut(&mut value));
    let calls: [&dyn Fn(&mut usize) -> u32; 6] = [
        &|out| cuMemPoolCreate(place(out), block(&props)),
        &|_| cuMemPoolDestroy(made),
        &|_| cuMemPoolTrimTo(made, 0),
        &|_| cuMemPoolGetAttribute(made, THRESHOLD, one),
        &|_| cuMemPoolSetAttribute(made, THRESHOLD, one),
        &|_| cuMemFreeAsync(at, other),
    ];
    for call in calls {
        assert_eq!(cuStreamBeginCapture_v2(stream, MODE_THREAD_LOCAL), 0);
        assert_eq!(call(&mut place_for_one), 900);
        assert_eq!(ask::<usize>(|out| cuStreamEndCapture(stream, out)).0, 901);
    }
    assert_eq!(cuStreamBeginCapture_v2(stream, MODE_THREAD_LOCAL), 0);
    assert_eq!(ask(|out| cuMemAllocFromPoolAsync(out, SMALL, made, other)), (900, 0));
    assert_eq!(ask::<usize>(|out| cuStreamEndCapture(stream, out)).0, 901);
    assert_eq!((cuMemFreeAsync(at, other), cuMemPoolDestroy(made)), (0, 0));
}

/// Work that comes to memory behind its free finds nothing there.
pub(super) fn freed() {
    let _session = Session::begin();
    let (made, stream) = (pool(0), stream());
    let (at, _kept) = (take(made, SMALL, stream), take(made, SMALL, stream));
    let (seed, count) = (3u32, 1u32);
    assert_eq!(launch(function(c"fill_hash"), stream, &[address(&at), address(&seed), address(&count)]), 0);
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_ne!(get(at, 1), [0xF5F5_F5F5]);
    assert_eq!(cuMemFreeAsync(at, stream), 0);
    assert_eq!(launch(function(c"fill_hash"), stream, &[address(&at), address(&seed), address(&count)]), 0);
    assert_eq!(cuStreamSynchronize(stream), 700);
}

/// So does work that comes to it before its allocation.
pub(super) fn early() {
    let _session = Session::begin();
    let (made, busy, other) = (pool(0), Busy::new(), stream());
    let at = take(made, SMALL, busy.stream);
    assert_eq!(cuMemsetD32Async(at, 1, 1, other), 0);
    while cuStreamQuery(other) == 600 {
        std::thread::yield_now();
    }
    crate::border::write_at(busy.flag, 1u32).unwrap();
    assert_eq!(cuStreamSynchronize(other), 700);
}

#[test]
fn memory_out_of_its_streams_order_is_not_there() {
    in_a_process_of_its_own("pool-freed");
    in_a_process_of_its_own("pool-early");
}

#[test]
fn the_access_of_a_pool_s_own_gpu_stays() {
    let _session = Session::begin();
    let made = pool(0);
    let here = Location { kind: 1, id: 0 };
    let asked = |location: Location, flags| cuMemPoolSetAccess(made, list(&[AccessDesc { location, flags }]), 1);
    assert_eq!((asked(here, 3), asked(here, 0), asked(here, 1), asked(here, 2)), (0, 101, 801, 1));
    assert_eq!(asked(Location { kind: 1, id: 5 }, 3), 101);
    assert_eq!(asked(Location { kind: 2, id: 0 }, 3), 801);
    assert_eq!(cuMemPoolSetAccess(made, no_list(), 1), 1);
    assert_eq!(given::<u32>(|out| cuMemPoolGetAccess(out, made, block(&here))), 3);
    assert_eq!(ask::<u32>(|out| cuMemPoolGetAccess(out, made, block(&Location { kind: 1, id: 5 }))).0, 1);
    assert_eq!(cuMemPoolDestroy(made), 0);
}

pub(super) fn two_gpus() {
    let _session = Session::begin();
    let there = Location { kind: 1, id: 1 };
    let second: usize = given(|out| cuDevicePrimaryCtxRetain(out, 1));
    let made = pool(0);
    let (stream, other) = (stream(), given::<usize>(|out| cuDeviceGetDefaultMemPool(out, 1)));
    assert_ne!(other, given(|out| cuDeviceGetDefaultMemPool(out, 0)));
    assert_eq!((cuDeviceSetMemPool(0, other), cuDeviceSetMemPool(1, made)), (1, 1));
    let at = take(made, SMALL, stream);
    assert_eq!(cuStreamSynchronize(stream), 0);
    let fill = || {
        assert_eq!(cuCtxPushCurrent_v2(second), 0);
        let filled = cuMemsetD32_v2(at, 7, 1);
        given::<usize>(|out| cuCtxPopCurrent_v2(out));
        filled
    };
    assert_eq!((given::<u32>(|out| cuMemPoolGetAccess(out, made, block(&there))), fill()), (0, 1));
    let asked = |flags| cuMemPoolSetAccess(made, list(&[AccessDesc { location: there, flags }]), 1);
    // For what is allocated already, and what is allocated later.
    assert_eq!((asked(3), fill()), (0, 0));
    assert_eq!(given::<u32>(|out| cuMemPoolGetAccess(out, made, block(&there))), 3);
    let large = take(made, 40 * MIB, stream);
    let access = |at| given::<u64>(|out| cuMemGetAccess(out, block(&there), at));
    assert_eq!((access(at), access(large)), (3, 3));
    assert_eq!((asked(0), fill(), access(large)), (0, 1, 0));
    // Memory of the second GPU, in a stream of the first.
    let at = take(other, SMALL, stream);
    let mut ordinal = -1i32;
    assert_eq!((cuPointerGetAttribute(address_mut(&mut ordinal), 9, at), ordinal), (0, 1));
}

fn shared_pool() -> usize {
    given(|out| cuMemPoolCreate(out, block(&PoolProps { handle_types: 1, ..props(0) })))
}

fn export(pool: usize) -> (u32, i32) {
    let mut descriptor = -1i32;
    (cuMemPoolExportToShareableHandle(address_mut(&mut descriptor), pool, 1, 0), descriptor)
}

fn import(descriptor: i32) -> (u32, usize) {
    ask(|out| cuMemPoolImportFromShareableHandle(out, descriptor as isize as usize, 1, 0))
}

#[test]
fn a_shared_pool_and_its_memory_are_known_elsewhere() {
    let _session = Session::begin();
    let (made, plain, stream) = (shared_pool(), pool(0), stream());
    let (at, kept) = (take(made, 40 * MIB, stream), take(plain, SMALL, stream));
    let mut data = [0u64; 8];
    let place_for_data = address_mut(&mut data);
    assert_eq!((export(plain).0, cuMemPoolExportPointer(place_for_data, kept)), (1, 1));
    assert_eq!((import(-1).0, import(1 << 20).0), (999, 999));
    let (code, descriptor) = export(made);
    assert!(code == 0 && descriptor >= 0);
    assert_eq!(cuMemPoolExportPointer(place_for_data, at), 0);
    let (code, imported) = import(descriptor);
    assert!(code == 0 && imported != made);
    // All that can be done with it is to take what is exported, once.
    assert_eq!(ask(|out| cuMemAllocFromPoolAsync(out, SMALL, imported, stream)), (1, 0));
    let mut value = 0u64;
    assert_eq!(cuMemPoolGetAttribute(imported, USED, address_mut(&mut value)), 1);
    assert_eq!((set(imported, THRESHOLD, 0), cuDeviceSetMemPool(0, imported), export(imported).0), (1, 1, 1));
    assert_eq!(ask(|out| cuMemPoolImportPointer(out, made, place_for_data)).0, 1);
    let here = given(|out| cuMemPoolImportPointer(out, imported, place_for_data));
    assert_ne!(here, at);
    assert_eq!(ask(|out| cuMemPoolImportPointer(out, imported, place_for_data)).0, 1);
    assert_eq!(cuStreamSynchronize(stream), 0);
    let border = (STEP - 8) as usize as u64;
    put(at + border, &[1, 2, 3, 4]);
    assert_eq!(get(here + border, 4), [1, 2, 3, 4]);
    put(here + border, &[5, 6, 7, 8]);
    assert_eq!(get(at + border, 4), [5, 6, 7, 8]);
    let attribute = |attribute: u32| {
        let mut value = 0u64;
        assert_eq!(cuPointerGetAttribute(address_mut(&mut value), attribute, here), 0);
        value
    };
    assert_eq!([12, 14, 17, 18].map(attribute), [40 << 20, 0, imported as u64, STEP]);
    // Freeing it here changes nothing there, and the pool keeps its memory as long as it is.
    assert_eq!((cuMemFreeAsync(here, stream), cuMemsetD8_v2(here, 0, 1), cuMemPoolDestroy(imported)), (0, 1, 0));
    assert_eq!((cuStreamSynchronize(stream), get(at + border, 2)), (0, vec![5, 6]));
    assert_eq!((cuMemFreeAsync(at, stream), cuStreamSynchronize(stream), cuMemPoolTrimTo(made, 0)), (0, 0, 0));
    assert_eq!(figure(made, RESERVED), 2 * STEP);
    assert_eq!((cuMemPoolDestroy(made), cuMemPoolDestroy(plain)), (0, 0));
    close(descriptor);
}

#[allow(unsafe_code)]
fn close(descriptor: i32) {
    // SAFETY: the driver gave the descriptor to us.
    drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
}

const DATA: &str = "SIMCUDA_TEST_DATA";

#[allow(unsafe_code)]
pub(super) fn give() {
    let _session = Session::begin();
    let (made, stream) = (shared_pool(), stream());
    let (_other, at) = (take(made, SMALL, stream), take(made, SMALL, stream));
    assert_eq!(cuStreamSynchronize(stream), 0);
    put(at, &[1, 2, 3]);
    let mut data = [0u64; 8];
    assert_eq!(cuMemPoolExportPointer(address_mut(&mut data), at), 0);
    // SAFETY: the driver gave the descriptor to us.
    let descriptor = unsafe { OwnedFd::from_raw_fd(export(made).1) };
    let gpu = std::env::var_os("SIMCUDA_GPU_FILE").unwrap();
    let mut taker = role("pool-take", Some(std::path::Path::new(&gpu)));
    // As the taker's standard input it has a number that both know.
    taker.stdin(std::process::Stdio::from(descriptor)).env(DATA, data.map(|word| word.to_string()).join(" "));
    assert!(taker.status().unwrap().success());
    assert_eq!(get(at, 3), [4, 2, 3]);
}

pub(super) fn take_shared() {
    let _session = Session::begin();
    let words = std::env::var(DATA).unwrap();
    let mut data: Vec<u64> = words.split(' ').map(|word| word.parse().unwrap()).collect();
    let free = || {
        let mut total = 0usize;
        given::<usize>(|free| cuMemGetInfo_v2(free, place(&mut total)))
    };
    let (before, (code, pool)) = (free(), import(0));
    assert_eq!(code, 0);
    let at = given(|out| cuMemPoolImportPointer(out, pool, address_mut(&mut data[..])));
    assert_eq!((get(at, 3), free()), (vec![1, 2, 3], before));
    put(at, &[4]);
    assert_eq!(cuMemFree_v2(at), 0);
    data[0] += 1;
    assert_eq!(ask(|out| cuMemPoolImportPointer(out, pool, address_mut(&mut data[..]))).0, 1);
}

#[test]
fn a_pool_is_shared_with_another_process() {
    in_a_process_of_a_shared_gpu("pool-give");
}

#[test]
fn a_pool_is_for_the_gpus_that_it_was_told() {
    in_a_process_with_two_gpus("two-gpus-pools");
}
