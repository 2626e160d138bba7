//! `cuStream*`: making, ordering, asking; capture and memory words have files of their own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::arguments::{PRIORITIES, current, only_flags};
use crate::border::{In, Out};
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::context::Context;
use crate::exec::context::{STREAM_LEGACY, STREAM_PER_THREAD};
use crate::exec::op::{Callback, HostCall, Op};
use crate::exec::stream::{Kind, Stream};
use crate::exec::submit::{self, Default, submit};
use crate::memory::space::HostRange;
use crate::state;

doors! {
    cuStreamCreate: "cuStreamCreate" 2000 (out: Out<usize>, flags: u32) = create;
    cuStreamCreateWithPriority: "cuStreamCreateWithPriority" 5050
        (out: Out<usize>, flags: u32, priority: i32) = create_with_priority;
    cuStreamDestroy: "cuStreamDestroy" 2000 (stream: usize) = destroy;
    cuStreamDestroy_v2: "cuStreamDestroy" 4000 (stream: usize) = destroy;
    cuStreamSynchronize / cuStreamSynchronize_ptsz: "cuStreamSynchronize" 2000 / 7000 (stream: usize) = synchronize;
    cuStreamQuery / cuStreamQuery_ptsz: "cuStreamQuery" 2000 / 7000 (stream: usize) = query;
    cuStreamWaitEvent / cuStreamWaitEvent_ptsz: "cuStreamWaitEvent" 3020 / 7000
        (stream: usize, event: usize, flags: u32) = wait_event;
    cuStreamAddCallback / cuStreamAddCallback_ptsz: "cuStreamAddCallback" 5000 / 7000
        (stream: usize, function: Option<extern "C" fn(usize, u32, usize)>, data: usize, flags: u32)
        = add_callback after has_callback(function, flags);
    cuLaunchHostFunc / cuLaunchHostFunc_ptsz: "cuLaunchHostFunc" 10000 / 10000
        (stream: usize, function: Option<extern "C" fn(usize)>, data: usize)
        = host_function after is_there(function);
    cuLaunchHostFunc_v2 / cuLaunchHostFunc_v2_ptsz: "cuLaunchHostFunc" 13010 / 13010
        (stream: usize, function: Option<extern "C" fn(usize)>, data: usize, mode: u32)
        = host_function_v2 after is_there(function);
    cuStreamGetPriority / cuStreamGetPriority_ptsz: "cuStreamGetPriority" 5050 / 7000
        (stream: usize, priority: Out<i32>) = get_priority;
    cuStreamGetFlags / cuStreamGetFlags_ptsz: "cuStreamGetFlags" 5050 / 7000
        (stream: usize, flags: Out<u32>) = get_flags;
    cuStreamGetId / cuStreamGetId_ptsz: "cuStreamGetId" 12000 / 12000 (stream: usize, id: Out<u64>) = get_id;
    cuStreamGetCtx / cuStreamGetCtx_ptsz: "cuStreamGetCtx" 9020 / 9020
        (stream: usize, context: Out<usize>) = get_context;
    cuStreamGetCtx_v2 / cuStreamGetCtx_v2_ptsz: "cuStreamGetCtx" 12050 / 12050
        (stream: usize, context: Out<usize>, green: Out<usize>) = get_context_or_green;
    cuStreamGetGreenCtx: "cuStreamGetGreenCtx" 12040 (stream: usize, green: Out<usize>) = get_green;
    cuStreamGetDevice / cuStreamGetDevice_ptsz: "cuStreamGetDevice" 12080 / 12080
        (stream: usize, device: Out<i32>) = get_device;
    cuStreamAttachMemAsync / cuStreamAttachMemAsync_ptsz: "cuStreamAttachMemAsync" 6000 / 7000
        (stream: usize, address: u64, bytes: usize, flags: u32) = attach_memory;
    cuStreamCopyAttributes / cuStreamCopyAttributes_ptsz: "cuStreamCopyAttributes" 11000 / 11000
        (to: usize, from: usize) = copy_attributes;
    cuStreamGetAttribute / cuStreamGetAttribute_ptsz: "cuStreamGetAttribute" 11000 / 11000
        (stream: usize, attribute: u32, value: Out<[u64; 8]>) = get_attribute;
    cuStreamSetAttribute / cuStreamSetAttribute_ptsz: "cuStreamSetAttribute" 11000 / 11000
        (stream: usize, attribute: u32, value: In<[u64; 8]>) = set_attribute;
}

const NON_BLOCKING: u32 = 1;
const WAIT_EXTERNAL: u32 = 1;

fn create(out: Out<usize>, flags: u32) -> Outcome {
    create_with_priority(out, flags, 0)
}

fn create_with_priority(out: Out<usize>, flags: u32, priority: i32) -> Outcome {
    let (context, driver) = current()?;
    out.required()?;
    only_flags(flags.into(), NON_BLOCKING.into())?;
    context.pass_objects();
    let handle = driver.streams.draw();
    let kind = Kind::Made { non_blocking: flags & NON_BLOCKING != 0 };
    // The smaller number is the greater priority; one out of range is taken as the nearest.
    let priority = priority.clamp(PRIORITIES.1, PRIORITIES.0);
    driver.streams.put(handle, context.add_stream(kind, priority));
    out.set(handle)
}

fn destroy(handle: usize) -> Outcome {
    let (_, driver) = current()?;
    if matches!(handle, 0 | STREAM_LEGACY | STREAM_PER_THREAD) {
        return Err(Status::INVALID_HANDLE);
    }
    let stream = driver.streams.get(handle)?;
    crate::graph::capture::forbid(&stream)?;
    let context = Context::of(&stream)?;
    context.pass_objects();
    driver.streams.remove(handle)?;
    context.forget(&stream);
    Ok(())
}

fn synchronize(default: Default, stream: usize) -> Outcome {
    submit::synchronize(&submit::resolve(default, stream)?)
}

fn query(default: Default, stream: usize) -> Outcome {
    submit::query(&submit::resolve(default, stream)?)
}

fn wait_event(default: Default, stream: usize, event: usize, flags: u32) -> Outcome {
    let driver = submit::need_context(stream)?;
    only_flags(flags.into(), WAIT_EXTERNAL.into())?;
    let stream = submit::resolve(default, stream)?;
    let event = driver.events.get(event)?;
    submit::wait_event(&stream, &event, flags & WAIT_EXTERNAL != 0)
}

fn has_callback(default: Default, function: Option<extern "C" fn(usize, u32, usize)>, flags: u32) -> Outcome {
    only_flags(flags.into(), 0)?;
    is_there(default, function)
}

/// A function to call is looked at before everything else.
fn is_there<F>(_: Default, function: Option<F>) -> Outcome {
    function.map(drop).ok_or(Status::INVALID_VALUE)
}

fn add_callback(
    default: Default,
    stream: usize,
    function: Option<extern "C" fn(usize, u32, usize)>,
    data: usize,
    _flags: u32,
) -> Outcome {
    let handle = stream;
    let stream = submit::resolve(default, stream)?;
    let function = function.ok_or(Status::INVALID_VALUE)?;
    submit(&stream, Op::Callback(Callback { function, stream: handle, data })).map(drop)
}

fn host_function(default: Default, stream: usize, function: Option<extern "C" fn(usize)>, data: usize) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    let function = function.ok_or(Status::INVALID_VALUE)?;
    Context::of(&stream)?.pass_objects();
    submit(&stream, Op::Host(HostCall { function, data })).map(drop)
}

/// How the stream's thread waits for its next host function makes no difference here.
fn host_function_v2(
    default: Default,
    stream: usize,
    function: Option<extern "C" fn(usize)>,
    data: usize,
    mode: u32,
) -> Outcome {
    // `CUhostTaskSyncMode`: blocking, or spinning.
    const SPINNING: u64 = 1;
    submit::need_context(stream)?;
    only_flags(mode.into(), SPINNING)?;
    host_function(default, stream, function, data)
}

fn get_priority(default: Default, stream: usize, priority: Out<i32>) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    priority.set(stream.priority.load(Ordering::Relaxed))
}

fn get_flags(default: Default, stream: usize, flags: Out<u32>) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    let non_blocking = stream.kind == Kind::Made { non_blocking: true };
    flags.set(if non_blocking { NON_BLOCKING } else { 0 })
}

fn get_id(default: Default, stream: usize, id: Out<u64>) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    crate::graph::capture::forbid(&stream)?;
    id.set(stream.id)
}

fn get_context(default: Default, stream: usize, context: Out<usize>) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    context.set(Context::of(&stream)?.handle)
}

fn get_context_or_green(default: Default, stream: usize, context: Out<usize>, green: Out<usize>) -> Outcome {
    get_context(default, stream, context)?;
    green.offer(0);
    Ok(())
}

fn get_green(stream: usize, green: Out<usize>) -> Outcome {
    submit::resolve(Default::Legacy, stream)?;
    green.set(0)
}

fn get_device(default: Default, stream: usize, device: Out<i32>) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    device.set(Context::of(&stream)?.device.ordinal() as i32)
}

/// Managed memory is always reachable by all streams and the host here; attaching it is an order at most.
fn attach_memory(default: Default, stream: usize, address: u64, bytes: usize, flags: u32) -> Outcome {
    // `CUmemAttach_flags`: for all streams, for the host, for this stream alone.
    const GLOBAL: u32 = 1;
    const HOST: u32 = 2;
    const SINGLE: u32 = 4;
    let stream = submit::resolve(default, stream)?;
    let driver = state::driver()?;
    // All of an allocation is attached, which 0 bytes mean as well.
    let whole = |range: &HostRange| range.managed && (bytes == 0 || bytes as u64 == range.bytes);
    let fits = match flags {
        GLOBAL | HOST => true,
        SINGLE => stream.kind != Kind::Legacy,
        _ => false,
    };
    if !fits || !driver.space.look().host(address).is_some_and(|(_, range)| whole(range)) {
        return Err(Status::INVALID_VALUE);
    }
    submit(&stream, Op::Empty).map(drop)
}

/// `CUlaunchAttributeID`s of streams.
const ACCESS_POLICY_WINDOW: u32 = 1;
const SYNCHRONIZATION_POLICY: u32 = 3;
const PRIORITY: u32 = 8;
const SYNC_DOMAIN_MAP: u32 = 9;
const SYNC_DOMAIN: u32 = 10;

fn copy_attributes(default: Default, to: usize, from: usize) -> Outcome {
    let (to, from) = (submit::resolve(default, to)?, submit::resolve(default, from)?);
    to.priority.store(from.priority.load(Ordering::Relaxed), Ordering::Relaxed);
    Ok(())
}

/// Only the priority is kept; the others are about caches and waiting that are not simulated, and read
/// as the driver has them at first.
fn get_attribute(default: Default, stream: usize, attribute: u32, value: Out<[u64; 8]>) -> Outcome {
    let stream: Arc<Stream> = submit::resolve(default, stream)?;
    value.required()?;
    let mut answer = [0; 8];
    match attribute {
        ACCESS_POLICY_WINDOW | SYNC_DOMAIN => {}
        SYNCHRONIZATION_POLICY => answer[0] = 1,
        PRIORITY => answer[0] = u64::from(stream.priority.load(Ordering::Relaxed) as u32),
        SYNC_DOMAIN_MAP => answer[0] = 0x0100,
        _ => return Err(Status::INVALID_VALUE),
    }
    value.set(answer)
}

fn set_attribute(default: Default, stream: usize, attribute: u32, value: In<[u64; 8]>) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    let value = value.get()?;
    match attribute {
        ACCESS_POLICY_WINDOW | SYNCHRONIZATION_POLICY | SYNC_DOMAIN_MAP | SYNC_DOMAIN => Ok(()),
        PRIORITY => {
            let priority = (value[0] as u32 as i32).clamp(PRIORITIES.1, PRIORITIES.0);
            stream.priority.store(priority, Ordering::Relaxed);
            Ok(())
        }
        _ => Err(Status::INVALID_VALUE),
    }
}
