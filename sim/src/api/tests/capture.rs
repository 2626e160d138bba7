//! Capturing streams.

use super::super::context::{cuCtxRecordEvent, cuCtxSynchronize, cuCtxWaitEvent};
use super::super::events::*;
use super::super::fills::*;
use super::super::graph_exec::*;
use super::super::graphs::*;
use super::super::memory::cuMemAlloc_v2;
use super::super::stream_capture::*;
use super::super::stream_memory::cuMemFreeAsync;
use super::super::streams::*;
use super::super::vmm::{cuMemMap, cuMemRelease, cuMemUnmap};
use super::vmm::{UNIT, allow, create, reserve};
use super::{Session, alloc, function, get, launch, put};
use crate::border::from_tests::{address, ask, given, no_room, place};
use crate::graph::capture::{MODE_GLOBAL, MODE_RELAXED, MODE_THREAD_LOCAL};

fn streams() -> [usize; 2] {
    [given(|out| cuStreamCreate(out, 1)), given(|out| cuStreamCreate(out, 1))]
}

fn fill_hash(stream: usize, at: u64, seed: u32) {
    let count = 1u32;
    let params = [address(&at), address(&seed), address(&count)];
    assert_eq!(launch(function(c"fill_hash"), stream, &params), 0);
}

#[test]
fn a_fork_and_join_is_captured_and_replayed() {
    let _session = Session::begin();
    let [one, two] = streams();
    let at = alloc(64);
    put(at, &[0; 16]);
    let fork: usize = given(|out| cuEventCreate(out, 2));
    let join: usize = given(|out| cuEventCreate(out, 2));
    assert_eq!(cuStreamBeginCapture_v2(one, MODE_RELAXED), 0);
    assert_eq!(cuMemsetD32Async(at, 0, 4, one), 0);
    assert_eq!(cuEventRecord(fork, one), 0);
    assert_eq!(cuStreamWaitEvent(two, fork, 0), 0);
    fill_hash(two, at, 1);
    fill_hash(one, at + 4, 1);
    assert_eq!(cuEventRecord(join, two), 0);
    assert_eq!(cuStreamWaitEvent(one, join, 0), 0);
    assert_eq!(cuMemsetD32Async(at + 8, 3, 1, one), 0);
    assert_eq!(given(|out| cuStreamIsCapturing(two, out)), 1);
    let graph: usize = given(|out| cuStreamEndCapture(one, out));
    assert_eq!(given(|out| cuStreamIsCapturing(two, out)), 0);
    assert_eq!(get(at, 3), [0; 3]);
    let nodes: usize = given(|count| cuGraphGetNodes(graph, no_room(), count));
    assert_eq!(nodes, 4);
    let exec: usize = given(|out| cuGraphInstantiateWithFlags(out, graph, 0));
    for _ in 0..3 {
        assert_eq!(cuMemsetD32_v2(at, 9, 4), 0);
        assert_eq!(cuCtxSynchronize(), 0);
        assert_eq!(cuGraphLaunch(exec, one), 0);
        assert_eq!(cuStreamSynchronize(one), 0);
        assert_eq!(get(at, 4), [0x514E_28B7, 0x514E_28B7, 3, 0]);
    }
    assert_eq!(cuGraphExecDestroy(exec), 0);
    assert_eq!(cuGraphDestroy(graph), 0);
}

#[test]
fn a_branch_that_was_not_joined_spoils_the_capture() {
    let _session = Session::begin();
    let [one, two] = streams();
    let (at, fork) = (alloc(64), given(|out| cuEventCreate(out, 2)));
    assert_eq!(cuStreamBeginCapture_v2(one, MODE_RELAXED), 0);
    assert_eq!(cuMemsetD32Async(at, 0, 4, one), 0);
    assert_eq!(cuEventRecord(fork, one), 0);
    assert_eq!(cuStreamWaitEvent(two, fork, 0), 0);
    assert_eq!(cuMemsetD32Async(at, 1, 4, two), 0);
    assert_eq!(ask::<usize>(|out| cuStreamEndCapture(two, out)).0, 903);
    assert_eq!(ask::<usize>(|out| cuStreamEndCapture(one, out)).0, 901);
    assert_eq!(cuStreamBeginCapture_v2(one, MODE_RELAXED), 0);
    assert_eq!(cuMemsetD32Async(at, 0, 4, one), 0);
    assert_eq!(cuEventRecord(fork, one), 0);
    assert_eq!(cuStreamWaitEvent(two, fork, 0), 0);
    assert_eq!(cuMemsetD32Async(at, 1, 4, two), 0);
    assert_eq!(ask::<usize>(|out| cuStreamEndCapture(one, out)).0, 904);
    assert_eq!(cuMemsetD32Async(at, 1, 4, two), 0);
}

#[test]
fn waiting_for_a_captured_stream_spoils_the_capture() {
    let _session = Session::begin();
    let [one, _] = streams();
    assert_eq!(cuStreamBeginCapture_v2(one, MODE_THREAD_LOCAL), 0);
    assert_eq!(cuStreamBeginCapture_v2(one, MODE_THREAD_LOCAL), 401);
    assert_eq!(cuStreamSynchronize(one), 900);
    assert_eq!(given(|out| cuStreamIsCapturing(one, out)), 2);
    assert_eq!(ask::<usize>(|out| cuStreamEndCapture(one, out)).0, 901);
    assert_eq!(ask::<usize>(|out| cuStreamEndCapture(one, out)).0, 401);
}

#[test]
fn who_minds_a_capture_may_not_allocate_meanwhile() {
    // A global capture concerns all threads, so this test has a process of its own.
    super::processes::in_a_process_of_its_own("global-capture");
}

pub(super) fn global_capture() {
    let session = Session::begin();
    let [one, _] = streams();
    assert_eq!(cuStreamBeginCapture_v2(one, MODE_GLOBAL), 0);
    let context = session.context;
    std::thread::spawn(move || {
        assert_eq!(super::super::context::cuCtxSetCurrent(context), 0);
        let mut mode = MODE_RELAXED;
        assert_eq!(cuThreadExchangeStreamCaptureMode(place(&mut mode)), 0);
        assert_eq!(mode, MODE_GLOBAL);
        alloc(16);
    })
    .join()
    .unwrap();
    assert_eq!(given(|out| cuStreamIsCapturing(one, out)), 1);
    assert_eq!(ask(|out| cuMemAlloc_v2(out, 16)).0, 900);
    assert_eq!(ask::<usize>(|out| cuStreamEndCapture(one, out)).0, 901);
    alloc(16);
    asking_in_captures();
}

/// Only a relaxed thread may ask if other streams and events are done.
fn asking_in_captures() {
    let [captured, other] = streams();
    let event: usize = given(|out| cuEventCreate(out, 2));
    assert_eq!(cuEventRecord(event, other), 0);
    let (module, memory) = (super::module(), std::cell::Cell::new(0));
    let asks: [&dyn Fn() -> u32; 7] = [
        &|| cuStreamQuery(other),
        &|| cuStreamSynchronize(other),
        &|| cuStreamQuery(0),
        &|| cuStreamSynchronize(2),
        &|| cuEventQuery(event),
        &|| cuEventSynchronize(event),
        &|| cuMemFreeAsync(memory.get(), other),
    ];
    assert_eq!(cuStreamSynchronize(other), 0);
    for ask_it in asks {
        for (mode, relaxed) in
            [(MODE_GLOBAL, false), (MODE_THREAD_LOCAL, false), (MODE_RELAXED, false), (MODE_GLOBAL, true)]
        {
            memory.set(alloc(16));
            assert_eq!(cuStreamBeginCapture_v2(captured, mode), 0);
            let mut thread_mode = if relaxed { MODE_RELAXED } else { MODE_GLOBAL };
            assert_eq!(cuThreadExchangeStreamCaptureMode(place(&mut thread_mode)), 0);
            let minds = mode != MODE_RELAXED && !relaxed;
            assert_eq!(ask_it(), if minds { 900 } else { 0 });
            assert_eq!(cuThreadExchangeStreamCaptureMode(place(&mut thread_mode)), 0);
            assert_eq!(ask::<usize>(|out| cuStreamEndCapture(captured, out)).0, if minds { 901 } else { 0 });
        }
    }
    assert_eq!(cuStreamBeginCapture_v2(captured, MODE_GLOBAL), 0);
    assert_eq!(super::super::modules::cuModuleUnload(module), 900);
    assert_eq!(ask::<usize>(|out| cuStreamEndCapture(captured, out)).0, 901);
    // In the stream that is captured nothing can be freed, and its number cannot be asked for.
    assert_eq!(cuStreamBeginCapture_v2(captured, MODE_RELAXED), 0);
    assert_eq!(cuMemFreeAsync(memory.get(), captured), 1);
    assert_eq!(given(|out| cuStreamIsCapturing(captured, out)), 1);
    assert_eq!(ask::<u64>(|out| cuStreamGetId(captured, out)).0, 900);
    assert_eq!(ask::<usize>(|out| cuStreamEndCapture(captured, out)).0, 901);
    // A call that neither waits nor asks is no concern of a capture's: memory in all but `cuMemAlloc`'s ways, records,
    // modules, and copies that are done when they return.
    assert_eq!(cuStreamBeginCapture_v2(captured, MODE_GLOBAL), 0);
    let (at, handle) = (reserve(1), create(1));
    assert_eq!(cuMemMap(at, UNIT, 0, handle, 0), 0);
    allow(at, 1);
    put(at, &[4]);
    assert_eq!(get(at, 1), [4]);
    fill_hash(other, at, 1);
    assert_eq!(cuEventRecord(event, other), 0);
    assert_eq!(cuMemsetD8_v2(at + 8, 1, 4), 0);
    given::<usize>(|out| cuStreamEndCapture(captured, out));
    super::synchronize();
    assert_eq!(cuMemUnmap(at, UNIT), 0);
    assert_eq!(cuMemRelease(handle), 0);
}

#[test]
fn the_legacy_stream_may_not_be_used_while_a_blocking_one_is_captured() {
    let _session = Session::begin();
    let (blocking, at) = (given(|out| cuStreamCreate(out, 0)), alloc(16));
    assert_eq!(cuStreamBeginCapture_v2(blocking, MODE_RELAXED), 0);
    // Asking about it does no harm.
    assert_eq!(ask::<u32>(|out| cuStreamIsCapturing(0, out)).0, 906);
    assert_eq!(given(|out| cuStreamIsCapturing(blocking, out)), 1);
    assert_eq!(cuMemsetD32Async(at, 1, 1, 0), 906);
    assert_eq!(ask::<usize>(|out| cuStreamEndCapture(blocking, out)).0, 901);
    assert_eq!(cuStreamBeginCapture_v2(0, MODE_RELAXED), 900);
    assert_eq!(cuMemsetD32Async(at, 1, 1, 0), 0);
}

#[test]
fn an_event_of_a_capture_is_no_event_outside() {
    let _session = Session::begin();
    let [one, two] = streams();
    let inside: usize = given(|out| cuEventCreate(out, 0));
    let outside: usize = given(|out| cuEventCreate(out, 0));
    assert_eq!(cuEventRecord(outside, two), 0);
    assert_eq!(cuStreamBeginCapture_v2(one, MODE_RELAXED), 0);
    assert_eq!(cuEventRecord(inside, one), 0);
    assert_eq!(cuStreamWaitEvent(one, outside, 0), 905);
    assert_eq!(ask::<usize>(|out| cuStreamEndCapture(one, out)).0, 901);
    assert_eq!(cuEventQuery(inside), 907);
}

#[test]
fn the_events_of_a_context_are_not_for_one_that_captures() {
    let session = Session::begin();
    let [one, two] = streams();
    let event: usize = given(|out| cuEventCreate(out, 2));
    let whole: [&dyn Fn() -> u32; 2] =
        [&|| cuCtxRecordEvent(session.context, event), &|| cuCtxWaitEvent(session.context, event)];
    for call in whole {
        // All captures of the context suffer, in every mode and every stream.
        assert_eq!((cuStreamBeginCapture_v2(one, MODE_RELAXED), cuStreamBeginCapture_v2(two, MODE_RELAXED)), (0, 0));
        assert_eq!(call(), 900);
        for stream in [one, two] {
            assert_eq!(given(|out| cuStreamIsCapturing(stream, out)), 2);
            assert_eq!(ask::<usize>(|out| cuStreamEndCapture(stream, out)).0, 901);
        }
        assert_eq!(call(), 0);
    }
    // Another context may, but it cannot wait for what is being captured.
    assert_eq!(cuStreamBeginCapture_v2(one, MODE_RELAXED), 0);
    let other = Session::begin();
    let others: usize = given(|out| cuEventCreate(out, 2));
    assert_eq!((cuCtxRecordEvent(other.context, others), cuCtxWaitEvent(other.context, others)), (0, 0));
    assert_eq!(given(|out| cuStreamIsCapturing(one, out)), 1);
    assert_eq!(cuEventRecord(event, one), 0);
    assert_eq!(cuCtxWaitEvent(other.context, event), 900);
    assert_eq!(ask::<usize>(|out| cuStreamEndCapture(one, out)).0, 901);
}
