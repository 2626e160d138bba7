//! Processes that are taken off the GPU.

use std::time::Duration;

use super::super::control::*;
use super::super::fills::cuMemsetD8Async;
use super::super::host_memory::cuMemHostAlloc;
use super::super::streams::{cuStreamCreate, cuStreamQuery};
use super::super::vmm::*;
use super::vmm::{UNIT, allow, create, reserve};
use super::{Session, get, spin, synchronize};
use crate::border::from_tests::{given, place, room};

#[test]
fn a_kernel_is_stopped_wherever_it_is_and_its_memory_can_be_exchanged() {
    let _session = Session::begin();
    let process = given(|out| simcudaGetProcess(out));
    let (at, first, second) = (reserve(1), create(1), create(1));
    assert_eq!(cuMemMap(at, UNIT, 0, first, 0), 0);
    allow(at, 1);
    let flag = given(|out| cuMemHostAlloc(out, 4096, 0));
    crate::border::write_at(flag, 0u32).unwrap();
    let stream = given(|out| cuStreamCreate(out, 1));
    spin(stream, at, flag as u64);
    std::thread::sleep(Duration::from_millis(5));

    assert_eq!(given(|out| simcudaGetProcessId(process, out)), std::process::id());
    assert_eq!(simcudaPauseProcess(process), 0);
    crate::border::write_at(flag, 1u32).unwrap();
    // Nothing of it goes on, neither the kernel nor what comes after it.
    assert_eq!(cuMemsetD8Async(at + 4096, 7, 4, stream), 0);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(cuStreamQuery(stream), 600);
    assert_eq!(cuMemUnmap(at, UNIT), 0);
    assert_eq!(cuMemMap(at, UNIT, 0, second, 0), 0);
    allow(at, 1);
    assert_eq!(simcudaResumeProcess(process), 0);

    synchronize();
    assert_eq!(get(at, 1), [1], "the kernel has written to what is there now");
    assert_eq!(get(at + 4096, 1), [0x0707_0707]);
    assert_eq!(cuMemUnmap(at, UNIT), 0);
    assert_eq!(cuMemMap(at, UNIT, 0, first, 0), 0);
    allow(at, 1);
    assert_eq!(get(at, 1), [0], "and not to what was there before");
    assert_eq!((cuMemUnmap(at, UNIT), cuMemAddressFree(at, UNIT)), (0, 0));
    assert_eq!((cuMemRelease(first), cuMemRelease(second)), (0, 0));
}

#[test]
fn who_uses_the_gpu_is_told_to_those_who_have_room_for_the_answer() {
    let _session = Session::begin();
    let (mut count, mut pids, mut bytes) = (0u32, [0u32; 4], [0u64; 4]);
    let mut ask = |count: &mut u32| simcudaGetComputeProcesses(place(count), room(&mut pids), room(&mut bytes));
    assert_eq!((ask(&mut count), count), (1, 1));
    assert_eq!(ask(&mut count), 0);
    assert_eq!((count, pids[0]), (1, std::process::id()));
}

#[test]
fn who_is_not_there_cannot_be_paused() {
    let _session = Session::begin();
    assert_eq!(simcudaPauseProcess(200), 1);
    assert_eq!(simcudaResumeProcess(70_000), 1);
    assert_eq!(simcudaSetTimeSlice(200, 1), 1);
    assert_eq!(simcudaGetProcess(crate::border::Out::nowhere()), 1);
}

#[test]
fn the_events_of_a_process_are_counted() {
    // Other tests make events too, so this one has a process of its own.
    super::processes::in_a_process_of_its_own("events");
}

pub(super) fn events() {
    use super::super::events::{cuEventCreate, cuEventDestroy_v2};
    let session = Session::begin();
    assert_eq!(given(|out| simcudaCountEvents(out)), 0);
    let [one, _] = [given(|out| cuEventCreate(out, 0)), given(|out| cuEventCreate(out, 0))];
    assert_eq!(given(|out| simcudaCountEvents(out)), 2);
    assert_eq!(cuEventDestroy_v2(one), 0);
    assert_eq!(given(|out| simcudaCountEvents(out)), 1);
    drop(session);
    assert_eq!(given(|out| simcudaCountEvents(out)), 0, "events go with their context");
}
