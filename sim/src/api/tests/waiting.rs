//! Which calls wait inside the driver while another thread waits there, and which do not: as measured on an H200.

use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use super::super::context::*;
use super::super::copies::*;
use super::super::events::*;
use super::super::fills::*;
use super::super::host_memory::*;
use super::super::memory::*;
use super::super::modules::*;
use super::super::stream_capture::*;
use super::super::stream_memory::cuMemFreeAsync;
use super::super::streams::*;
use super::super::vmm::*;
use super::vmm::{UNIT, allow, create, reserve};
use super::{PTX, Session, alloc, function, launch, spin, synchronize};
use crate::border::from_tests::{address, ask, given, place, text};

/// The objects that the calls are about.
#[derive(Clone, Copy)]
struct Things {
    context: usize,
    /// The stream that waits, and another one.
    waiting: usize,
    other: usize,
    /// A stream to be destroyed.
    spare: usize,
    /// Complete.
    event: usize,
    memory: [u64; 4],
    mapped: u64,
    pinned: usize,
    module: usize,
    fill_hash: usize,
}

fn things(session: &Session) -> Things {
    let fill_hash = function(c"fill_hash");
    let mapped = reserve(1);
    let handle = create(1);
    assert_eq!((cuMemMap(mapped, UNIT, 0, handle, 0), cuMemRelease(handle)), (0, 0));
    allow(mapped, 1);
    let things = Things {
        context: session.context,
        waiting: given(|out| cuStreamCreate(out, 1)),
        other: given(|out| cuStreamCreate(out, 1)),
        spare: given(|out| cuStreamCreate(out, 1)),
        event: given(|out| cuEventCreate(out, 2)),
        memory: [alloc(512), alloc(4096), alloc(4096), alloc(4 << 20)],
        mapped,
        pinned: given(|out| cuMemHostAlloc(out, 4096, 0)),
        module: super::module(),
        fill_hash,
    };
    assert_eq!(cuEventRecord(things.event, things.other), 0);
    synchronize();
    things
}

/// A call in a thread of its own, and what it answers.
fn aside(things: Things, call: fn(Things) -> u32) -> JoinHandle<u32> {
    spawn(move || {
        assert_eq!(cuCtxSetCurrent(things.context), 0);
        call(things)
    })
}

fn fill(things: Things, stream: usize) -> u32 {
    let (at, seed, count) = (things.memory[1], 1u32, 1u32);
    launch(things.fill_hash, stream, &[address(&at), address(&seed), address(&count)])
}

/// Calls that never wait for others: questions, mappings, and frees and waits in another stream.
const NEVER: [fn(Things) -> u32; 14] = [
    |_| cuStreamQuery(0) & !600,
    |things| cuStreamQuery(things.other),
    |things| cuEventQuery(things.event),
    |things| cuEventSynchronize(things.event),
    |_| ask(|out| cuStreamIsCapturing(1, out)).0,
    |things| ask(|out| cuStreamIsCapturing(things.waiting, out)).0,
    |things| cuStreamWaitEvent(things.other, things.event, 0),
    |things| cuMemFreeAsync(things.memory[2], things.other),
    |_| {
        let mut total = 0usize;
        ask::<usize>(|free| cuMemGetInfo_v2(free, place(&mut total))).0
    },
    |things| ask::<u64>(|base| cuMemGetAddressRange_v2(base, crate::border::from_tests::nowhere(), things.memory[1])).0,
    |things| cuMemUnmap(things.mapped, UNIT),
    |things| cuStreamSynchronize(things.other),
    |things| ask::<usize>(|out| cuStreamGetCtx(things.waiting, out)).0,
    |things| cuEventQuery(things.event),
];

/// Calls that make or end something, or work in the legacy stream.
const OBJECTS: [fn(Things) -> u32; 8] = [
    |_| ask(|out| cuMemAlloc_v2(out, 512)).0,
    |_| ask(|out| cuStreamCreate(out, 1)).0,
    |things| cuStreamDestroy_v2(things.spare),
    |_| ask(|out| cuEventCreate(out, 2)).0,
    |_| ask(|out| cuMemHostAlloc(out, 64, 0)).0,
    |things| ask::<usize>(|out| cuModuleGetFunction(out, things.module, text(c"fill_hash"))).0,
    |things| cuMemsetD8_v2(things.memory[1], 1, 4),
    |things| fill(things, 0),
];

/// Calls that submit work to another stream, or record events.
const SUBMISSIONS: [fn(Things) -> u32; 5] = [
    |things| cuCtxRecordEvent(things.context, things.event),
    |things| cuEventRecord(things.event, things.other),
    |things| fill(things, things.other),
    |things| cuMemcpyDtoHAsync_v2(things.pinned, things.memory[1], 4, things.other),
    |things| fill(things, 2),
];

/// Makes calls beside a thread that waits in the driver until a flag is raised: some return, and some only then.
fn beside(session: &Session, stuck: fn(Things) -> u32, returns: &[fn(Things) -> u32], waits: &[fn(Things) -> u32]) {
    let things = things(session);
    let flag = given(|out| cuMemHostAlloc(out, 4, 0));
    spin(things.waiting, things.memory[0], flag as u64);
    let stuck = aside(things, stuck);
    sleep(Duration::from_millis(30));
    assert!(!stuck.is_finished());
    for (at, call) in returns.iter().enumerate() {
        assert_eq!(aside(things, *call).join().unwrap(), 0, "call {at} that returns");
    }
    let waiting: Vec<_> = waits.iter().map(|call| aside(things, *call)).collect();
    sleep(Duration::from_millis(30));
    let back: Vec<usize> = (0..waiting.len()).filter(|at| waiting[*at].is_finished()).collect();
    assert!(!stuck.is_finished() && back.is_empty(), "calls {back:?} did not wait");
    crate::border::write_at(flag, 1u32).unwrap();
    for (at, call) in waiting.into_iter().chain([stuck]).enumerate() {
        assert_eq!(call.join().unwrap(), 0, "call {at} that waits");
    }
    synchronize();
}

#[test]
fn freeing_memory_keeps_others_out_of_the_context_until_all_its_work_has_ended() {
    let session = Session::begin();
    let waits: Vec<_> = OBJECTS.into_iter().chain(SUBMISSIONS).collect();
    beside(&session, |things| cuMemFree_v2(things.memory[3]), &NEVER, &waits);
    // A wait for the context alone keeps no call out.
    let session = Session::begin();
    let returns: Vec<_> = NEVER.into_iter().chain(SUBMISSIONS).chain(OBJECTS).collect();
    let not_the_legacy_streams: Vec<_> = returns[..returns.len() - 2].to_vec();
    beside(&session, |_| cuCtxSynchronize(), &not_the_legacy_streams, &[]);
}

#[test]
fn a_capture_does_not_begin_while_memory_is_freed() {
    let capture = |things: Things| {
        let begun = cuStreamBeginCapture_v2(things.other, 2);
        begun | ask::<usize>(|graph| cuStreamEndCapture(things.other, graph)).0
    };
    beside(&Session::begin(), |things| cuMemFree_v2(things.memory[3]), &[], &[capture]);
}

#[test]
fn freeing_pinned_memory_and_loading_code_do_so_too() {
    let stuck: [fn(Things) -> u32; 3] = [
        |things| cuMemFreeHost(things.pinned),
        |_| ask::<usize>(|out| cuModuleLoadData(out, address(&PTX[0]))).0,
        |things| cuModuleUnload(things.module),
    ];
    for call in stuck {
        beside(&Session::begin(), call, &NEVER, &[|_| ask(|out| cuMemAlloc_v2(out, 512)).0, |things| fill(things, 2)]);
    }
}

#[test]
fn a_launch_into_a_full_queue_waits_and_keeps_others_from_making_objects() {
    let session = Session::begin();
    let fill_the_queue = |things: Things| (0..1022).map(|_| fill(things, things.waiting)).max().unwrap();
    let own: [fn(Things) -> u32; 4] = [
        |things| cuEventRecord(things.event, things.waiting),
        |things| cuStreamWaitEvent(things.waiting, things.event, 0),
        |things| cuCtxWaitEvent(things.context, things.event),
        |things| cuStreamQuery(things.waiting) & !600,
    ];
    let waits: Vec<_> = OBJECTS.into_iter().chain(own).collect();
    let returns: Vec<_> = NEVER.into_iter().chain(SUBMISSIONS).collect();
    beside(&session, fill_the_queue, &returns, &waits);
    // As many as there is room for wait for nothing.
    let things = things(&session);
    let flag = given(|out| cuMemHostAlloc(out, 4, 0));
    spin(things.waiting, things.memory[0], flag as u64);
    assert_eq!((0..1021).map(|_| fill(things, things.waiting)).max(), Some(0));
    super::synchronize_with(flag);
}
