//! Orders between streams, events, host functions.

use std::sync::atomic::{AtomicU32, Ordering};

use super::super::context::*;
use super::super::events::*;
use super::super::fills::*;
use super::super::host_memory::cuMemHostAlloc;
use super::super::stream_capture::cuStreamIsCapturing;
use super::super::stream_words::*;
use super::super::streams::*;
use super::{Session, alloc, get, put, spin, synchronize};
use crate::border::from_tests::{address, ask, given};

fn pinned_flag() -> u64 {
    given(|out| cuMemHostAlloc(out, 4, 0)) as u64
}

/// Sets a flag as the host does: not in any stream.
fn raise(flag: u64) {
    crate::border::write_at(flag as usize, 1u32).unwrap();
}

#[test]
fn a_stream_works_in_order() {
    let _session = Session::begin();
    let stream: usize = given(|out| cuStreamCreate(out, 0));
    let at = alloc(4 << 20);
    for value in 0..50 {
        assert_eq!(cuMemsetD32Async(at, value, 1 << 20, stream), 0);
    }
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(get(at + (4 << 20) - 8, 2), [49, 49]);
}

#[test]
fn blocking_streams_wait_for_the_legacy_stream_and_others_do_not() {
    let _session = Session::begin();
    let blocking: usize = given(|out| cuStreamCreate(out, 0));
    let free: usize = given(|out| cuStreamCreate(out, 1));
    let (flag, done, at) = (pinned_flag(), alloc(4), alloc(8));
    spin(1, done, flag);
    assert_eq!(cuMemsetD32Async(at, 1, 1, blocking), 0);
    assert_eq!(cuMemsetD32Async(at + 4, 2, 1, free), 0);
    assert_eq!(cuStreamSynchronize(free), 0);
    assert_eq!(cuStreamQuery(blocking), 600);
    assert_eq!(cuStreamQuery(0), 600);
    raise(flag);
    assert_eq!(cuStreamSynchronize(blocking), 0);
    assert_eq!(get(at, 2), [1, 2]);
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams() {
    let _session = Session::begin();
    let blocking: usize = given(|out| cuStreamCreate(out, 0));
    let (flag, done, at) = (pinned_flag(), alloc(4), alloc(4));
    spin(blocking, done, flag);
    assert_eq!(cuMemsetD32_v2(at, 3, 1), 0);
    assert_eq!(cuStreamQuery(1), 600);
    raise(flag);
    assert_eq!(cuStreamSynchronize(1), 0);
    assert_eq!(get(done, 1), [1]);
}

#[test]
fn every_thread_has_a_default_stream_of_its_own() {
    let session = Session::begin();
    let (flag, done, context) = (pinned_flag(), alloc(4), session.context);
    spin(2, done, flag);
    let id: u64 = given(|out| cuStreamGetId(2, out));
    std::thread::spawn(move || {
        assert_eq!(cuCtxSetCurrent(context), 0);
        assert_ne!(given(|out| cuStreamGetId_ptsz(0, out)), id);
        assert_eq!(cuStreamSynchronize_ptsz(0), 0);
    })
    .join()
    .unwrap();
    assert_eq!(cuStreamQuery_ptsz(0), 600);
    raise(flag);
    assert_eq!(cuStreamSynchronize_ptsz(0), 0);
}

#[test]
fn an_event_orders_one_stream_after_another() {
    let _session = Session::begin();
    let first: usize = given(|out| cuStreamCreate(out, 1));
    let second: usize = given(|out| cuStreamCreate(out, 1));
    let event: usize = given(|out| cuEventCreate(out, 0));
    let (flag, done, at) = (pinned_flag(), alloc(4), alloc(4));
    spin(first, done, flag);
    assert_eq!(cuMemsetD32Async(at, 1, 1, first), 0);
    assert_eq!(cuEventRecord(event, first), 0);
    assert_eq!(cuStreamWaitEvent(second, event, 0), 0);
    assert_eq!(cuMemsetD32Async(at, 2, 1, second), 0);
    assert_eq!(cuEventQuery(event), 600);
    assert_eq!(cuStreamQuery(second), 600);
    raise(flag);
    assert_eq!(cuStreamSynchronize(second), 0);
    assert_eq!(cuEventQuery(event), 0);
    assert_eq!(get(at, 1), [2]);
}

#[test]
fn events_tell_the_time_between_them() {
    let _session = Session::begin();
    let start: usize = given(|out| cuEventCreate(out, 0));
    let end: usize = given(|out| cuEventCreate(out, 0));
    let untimed: usize = given(|out| cuEventCreate(out, 2));
    assert_eq!(ask(|out| cuEventElapsedTime(out, start, end)).0, 400);
    extern "C" fn nap(_: usize) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(cuEventRecord(start, 0), 0);
    assert_eq!(cuLaunchHostFunc(0, Some(nap), 0), 0);
    assert_eq!(cuEventRecord(end, 0), 0);
    assert_eq!(cuEventRecord(untimed, 0), 0);
    assert_eq!(ask(|out| cuEventElapsedTime(out, start, end)).0, 600);
    assert_eq!(cuEventSynchronize(untimed), 0);
    let milliseconds: f32 = given(|out| cuEventElapsedTime(out, start, end));
    assert!(milliseconds >= 5.0);
    assert_eq!(ask(|out| cuEventElapsedTime(out, start, untimed)).0, 400);
}

static CALLS: AtomicU32 = AtomicU32::new(0);

#[test]
fn callbacks_run_in_the_streams_order_and_may_make_no_calls() {
    extern "C" fn call(_stream: usize, status: u32, expected: usize) {
        assert_eq!(status, 0);
        assert_eq!(CALLS.fetch_add(1, Ordering::SeqCst), expected as u32);
        assert_eq!(cuCtxSynchronize(), 800);
    }
    let _session = Session::begin();
    for expected in 0..10 {
        assert_eq!(cuStreamAddCallback(0, Some(call), expected, 0), 0);
    }
    synchronize();
    assert_eq!(CALLS.load(Ordering::SeqCst), 10);
}

#[test]
fn streams_wait_for_and_write_words() {
    let _session = Session::begin();
    let first: usize = given(|out| cuStreamCreate(out, 1));
    let second: usize = given(|out| cuStreamCreate(out, 1));
    let at = alloc(16);
    put(at, &[0, 0, 0, 0]);
    assert_eq!(cuStreamWaitValue32_v2(first, at, 5, 1), 0);
    assert_eq!(cuStreamWriteValue64_v2(first, at + 8, 1 << 40, 0), 0);
    assert_eq!(cuStreamQuery(first), 600);
    assert_eq!(cuStreamWriteValue32_v2(second, at, 5, 0), 0);
    assert_eq!(cuStreamSynchronize(first), 0);
    assert_eq!(get(at, 4), [5, 0, 0, 256]);
    assert_eq!(cuStreamWaitValue32_v2(first, at + 2, 5, 1), 1);
    assert_eq!(cuStreamWaitValue32_v2(first, 16, 5, 1), 1);
}

#[test]
fn words_in_streams_are_not_for_the_calls_of_old_nor_without_a_barrier() {
    let _session = Session::begin();
    let stream: usize = given(|out| cuStreamCreate(out, 1));
    let at = alloc(8);
    put(at, &[0, 0]);
    assert_eq!(cuStreamWriteValue32(stream, at, 5, 0), 801);
    assert_eq!(cuStreamWaitValue64(stream, at, 5, 0), 801);
    assert_eq!(cuStreamWriteValue32_v2(stream, at, 5, 1), 1);
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(get(at, 2), [0, 0]);
}

#[test]
fn a_context_that_ends_does_not_wait_for_a_kernel_that_never_would() {
    let session = Session::begin();
    spin(0, alloc(4), pinned_flag());
    drop(session);
}

#[test]
fn a_destroyed_stream_still_does_its_work() {
    let _session = Session::begin();
    let stream: usize = given(|out| cuStreamCreate(out, 0));
    let (flag, done) = (pinned_flag(), alloc(4));
    spin(stream, done, flag);
    assert_eq!(cuStreamDestroy_v2(stream), 0);
    assert_eq!(cuStreamQuery(stream), 400);
    raise(flag);
    synchronize();
    assert_eq!(get(done, 1), [1]);
}

#[test]
fn a_stream_that_was_made_brings_its_context() {
    let session = Session::begin();
    let stream: usize = given(|out| cuStreamCreate(out, 1));
    let event: usize = given(|out| cuEventCreate(out, 2));
    let (at, flag) = (alloc(8), pinned_flag());
    let fill_hash = super::function(c"fill_hash");
    spin(stream, at, flag);
    let elsewhere = move || {
        assert_eq!(cuStreamQuery(stream), 600);
        assert_eq!(given(|out| cuStreamIsCapturing(stream, out)), 0);
        assert_eq!(cuMemsetD32Async(at, 3, 2, stream), 0);
        assert_eq!(cuEventRecord(event, stream), 0);
        assert_eq!(cuStreamWaitEvent(stream, event, 0), 0);
        assert_eq!(cuEventQuery(event), 600);
        raise(flag);
        assert_eq!(cuEventSynchronize(event), 0);
        let (seed, count) = (1u32, 1u32);
        assert_eq!(super::launch(fill_hash, stream, &[address(&at), address(&seed), address(&count)]), 0);
        assert_eq!(cuStreamSynchronize(stream), 0);
    };
    std::thread::spawn(move || {
        elsewhere();
        // A default stream does not, nor does what no handle is.
        assert_eq!((cuStreamQuery(0), cuStreamQuery(1), cuStreamQuery(2), cuStreamQuery(12345)), (201, 201, 201, 201));
        assert_eq!((cuEventRecord(event, 0), cuMemsetD8_v2(at, 1, 1)), (201, 201));
    })
    .join()
    .unwrap();
    assert_eq!(get(at, 2), [0x514E_28B7, 3]);
    // The same with another context current.
    let other = Session::begin();
    assert_eq!((cuStreamQuery(stream), cuEventQuery(event)), (0, 0));
    assert_eq!(cuMemsetD32Async(at, 4, 2, stream), 0);
    assert_eq!(cuStreamSynchronize(stream), 0);
    drop(other);
    assert_eq!(get(at, 2), [4, 4]);
    drop(session);
}

#[test]
fn an_event_of_a_context_is_behind_all_of_its_work_and_orders_nothing() {
    let session = Session::begin();
    let [first, second] = [given(|out| cuStreamCreate(out, 0)), given(|out| cuStreamCreate(out, 0))];
    let free: usize = given(|out| cuStreamCreate(out, 1));
    let event: usize = given(|out| cuEventCreate(out, 0));
    let (flags, done, at) = ([pinned_flag(), pinned_flag()], alloc(8), alloc(8));
    spin(first, done, flags[0]);
    spin(free, done + 4, flags[1]);
    assert_eq!(cuCtxRecordEvent(session.context, event), 0);
    // Later work in other streams waits for nothing, and the event not for it.
    for stream in [second, free, 2] {
        assert_eq!(cuStreamWriteValue32_v2(stream, at, 1, 0), 0);
    }
    assert_eq!((cuStreamSynchronize(second), cuStreamSynchronize(2)), (0, 0));
    let late: usize = given(|out| cuStreamCreate(out, 1));
    let never = pinned_flag();
    spin(late, done, never);
    raise(flags[0]);
    assert_eq!(cuStreamSynchronize(first), 0);
    assert_eq!(cuEventQuery(event), 600);
    raise(flags[1]);
    assert_eq!(cuEventSynchronize(event), 0);
    raise(never);
    // One that was recorded when nothing was there to do is over.
    synchronize();
    assert_eq!(cuCtxRecordEvent(session.context, event), 0);
    assert_eq!(cuEventSynchronize(event), 0);
    let other = Session::begin();
    assert_eq!((cuCtxRecordEvent(other.context, event), cuCtxRecordEvent(other.context, 0)), (400, 400));
    assert_eq!(cuCtxRecordEvent(0, event), 201);
    let gone = other.context;
    drop(other);
    assert_eq!(cuCtxRecordEvent(gone, event), 709);
}

#[test]
fn later_work_of_a_context_waits_for_an_event_and_earlier_work_does_not() {
    let session = Session::begin();
    let [one, two] = [given(|out| cuStreamCreate(out, 1)), given(|out| cuStreamCreate(out, 1))];
    let event: usize = given(|out| cuEventCreate(out, 2));
    let (flags, done, at) = ([pinned_flag(), pinned_flag()], alloc(8), alloc(8));
    put(at, &[0, 0]);
    spin(one, done, flags[0]);
    spin(two, done + 4, flags[1]);
    assert_eq!(cuEventRecord(event, one), 0);
    assert_eq!(cuCtxWaitEvent(session.context, event), 0);
    let late: usize = given(|out| cuStreamCreate(out, 1));
    assert_eq!(cuStreamWriteValue32_v2(two, at, 1, 0), 0);
    assert_eq!(cuStreamWriteValue32_v2(late, at + 4, 1, 0), 0);
    raise(flags[1]);
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!((cuStreamQuery(two), cuStreamQuery(late)), (600, 600));
    raise(flags[0]);
    assert_eq!((cuStreamSynchronize(two), cuStreamSynchronize(late)), (0, 0));
    assert_eq!((get(at, 2), get(done, 2)), (vec![1, 1], vec![1, 1]));
}
