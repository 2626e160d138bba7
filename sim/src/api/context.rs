//! `cuCtx*` and `cuDevicePrimaryCtx*`.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use super::arguments::{self, PRIORITIES, context_or_current, current, only_flags};
use crate::border::{In, Out};
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::context::{API_VERSION, API_VERSION_OLD, Context};
use crate::exec::event::Stamp;
use crate::exec::stack;

use crate::device::{Device, Primary};
use crate::graph::capture::{self, Capture};
use crate::state::{self, Driver};

doors! {
    cuCtxCreate: "cuCtxCreate" 2000 (out: Out<usize>, flags: u32, device: i32) = create_old;
    cuCtxCreate_v2: "cuCtxCreate" 3020 (out: Out<usize>, flags: u32, device: i32) = create;
    cuCtxCreate_v3: "cuCtxCreate" 11040
        (out: Out<usize>, affinity: usize, count: i32, flags: u32, device: i32) = create_affine;
    cuCtxCreate_v4: "cuCtxCreate" 12050
        (out: Out<usize>, params: In<[usize; 3]>, flags: u32, device: i32) = create_with_params;
    cuCtxDestroy: "cuCtxDestroy" 2000 (context: usize) = destroy;
    cuCtxDestroy_v2: "cuCtxDestroy" 4000 (context: usize) = destroy;
    cuCtxAttach: "cuCtxAttach" 2000 (out: Out<usize>, flags: u32) = attach;
    cuCtxDetach: "cuCtxDetach" 2000 (context: usize) = detach;
    cuCtxPushCurrent: "cuCtxPushCurrent" 2000 (context: usize) = push;
    cuCtxPushCurrent_v2: "cuCtxPushCurrent" 4000 (context: usize) = push;
    cuCtxPopCurrent: "cuCtxPopCurrent" 2000 (out: Out<usize>) = pop;
    cuCtxPopCurrent_v2: "cuCtxPopCurrent" 4000 (out: Out<usize>) = pop;
    cuCtxSetCurrent: "cuCtxSetCurrent" 4000 (context: usize) = set_current;
    cuCtxGetCurrent: "cuCtxGetCurrent" 4000 (out: Out<usize>) = get_current;
    cuCtxGetDevice: "cuCtxGetDevice" 2000 (device: Out<i32>) = get_device;
    cuCtxGetDevice_v2: "cuCtxGetDevice" 13000 (device: Out<i32>, context: usize) = get_device_of;
    cuCtxGetFlags: "cuCtxGetFlags" 7000 (flags: Out<u32>) = get_flags;
    cuCtxSetFlags: "cuCtxSetFlags" 12010 (flags: u32) = set_flags;
    cuCtxGetId: "cuCtxGetId" 12000 (context: usize, id: Out<u64>) = get_id;
    cuCtxGetApiVersion: "cuCtxGetApiVersion" 3020 (context: usize, version: Out<u32>) = api_version;
    cuCtxSynchronize: "cuCtxSynchronize" 2000 () = synchronize;
    cuCtxSynchronize_v2: "cuCtxSynchronize" 13000 (context: usize) = synchronize_one;
    cuCtxSetLimit: "cuCtxSetLimit" 3010 (limit: u32, value: usize) = set_limit;
    cuCtxGetLimit: "cuCtxGetLimit" 3010 (value: Out<usize>, limit: u32) = get_limit;
    cuCtxGetCacheConfig: "cuCtxGetCacheConfig" 3020 (config: Out<u32>) = get_cache_config;
    cuCtxSetCacheConfig: "cuCtxSetCacheConfig" 3020 (config: u32) = set_cache_config;
    cuCtxGetSharedMemConfig: "cuCtxGetSharedMemConfig" 4020 (config: Out<u32>) = get_banks;
    cuCtxSetSharedMemConfig: "cuCtxSetSharedMemConfig" 4020 (config: u32) = set_banks;
    cuCtxGetStreamPriorityRange: "cuCtxGetStreamPriorityRange" 5050
        (least: Out<i32>, greatest: Out<i32>) = priority_range;
    cuCtxResetPersistingL2Cache: "cuCtxResetPersistingL2Cache" 11000 () = reset_l2;
    cuCtxGetExecAffinity: "cuCtxGetExecAffinity" 11040 (affinity: Out<[u32; 2]>, kind: u32) = exec_affinity;
    cuCtxRecordEvent: "cuCtxRecordEvent" 12050 (context: usize, event: usize) = record_event;
    cuCtxWaitEvent: "cuCtxWaitEvent" 12050 (context: usize, event: usize) = wait_event;
    cuCtxEnablePeerAccess: "cuCtxEnablePeerAccess" 4000 (peer: usize, flags: u32) = enable_peer;
    cuCtxDisablePeerAccess: "cuCtxDisablePeerAccess" 4000 (peer: usize) = disable_peer;
    cuDevicePrimaryCtxRetain: "cuDevicePrimaryCtxRetain" 7000 (out: Out<usize>, device: i32) = primary_retain;
    cuDevicePrimaryCtxRelease: "cuDevicePrimaryCtxRelease" 7000 (device: i32) = primary_release;
    cuDevicePrimaryCtxRelease_v2: "cuDevicePrimaryCtxRelease" 11000 (device: i32) = primary_release;
    cuDevicePrimaryCtxReset: "cuDevicePrimaryCtxReset" 7000 (device: i32) = primary_reset;
    cuDevicePrimaryCtxReset_v2: "cuDevicePrimaryCtxReset" 11000 (device: i32) = primary_reset;
    cuDevicePrimaryCtxSetFlags: "cuDevicePrimaryCtxSetFlags" 7000 (device: i32, flags: u32) = primary_set_flags;
    cuDevicePrimaryCtxSetFlags_v2: "cuDevicePrimaryCtxSetFlags" 11000 (device: i32, flags: u32) = primary_set_flags;
    cuDevicePrimaryCtxGetState: "cuDevicePrimaryCtxGetState" 7000
        (device: i32, flags: Out<u32>, active: Out<i32>) = primary_state;
}

/// Scheduling in the low three bits, host mapping, local memory, core dumps, synchronous memory calls.
const KNOWN_FLAGS: u64 = 0xFF;

fn create_old(out: Out<usize>, flags: u32, device: i32) -> Outcome {
    make(out, flags, device, API_VERSION_OLD)
}

fn create(out: Out<usize>, flags: u32, device: i32) -> Outcome {
    make(out, flags, device, API_VERSION)
}

fn create_affine(out: Out<usize>, _affinity: usize, count: i32, flags: u32, device: i32) -> Outcome {
    if count != 0 {
        // A context limited to some multiprocessors.
        return Err(Status::UNSUPPORTED_EXEC_AFFINITY);
    }
    make(out, flags, device, API_VERSION)
}

fn create_with_params(out: Out<usize>, params: In<[usize; 3]>, flags: u32, device: i32) -> Outcome {
    if params.optional().is_some_and(|[_, affinities, graphics]| affinities as u32 != 0 || graphics != 0) {
        return Err(Status::NOT_SUPPORTED);
    }
    make(out, flags, device, API_VERSION)
}

fn make(out: Out<usize>, flags: u32, device: i32, api_version: u32) -> Outcome {
    out.required()?;
    check_flags(flags)?;
    let device = arguments::device(device)?;
    let driver = state::driver()?;
    driver.common.check()?;
    let handle = driver.contexts.draw();
    driver.contexts.put(handle, Context::new(driver.common, device, handle, flags, api_version, false));
    stack::push_current(handle);
    out.set(handle)
}

fn check_flags(flags: u32) -> Outcome {
    only_flags(flags.into(), KNOWN_FLAGS)?;
    // Spin, yield, block: one of them, or none.
    if (flags & 7).count_ones() > 1 { Err(Status::INVALID_VALUE) } else { Ok(()) }
}

/// The context of a handle, whatever its state; the calls about contexts must work on a failed one.
fn find(handle: usize) -> Outcome<Arc<Context>> {
    state::driver()?.contexts.get(handle).map_err(|_| Status::INVALID_CONTEXT)
}

fn destroy(handle: usize) -> Outcome {
    if handle == 0 {
        return Err(Status::INVALID_VALUE);
    }
    let context = find(handle)?;
    if context.primary {
        return Err(Status::INVALID_VALUE);
    }
    if stack::current_handle() == Some(handle) {
        stack::pop_current();
    }
    state::driver()?.end(&context);
    Ok(())
}

fn attach(out: Out<usize>, flags: u32) -> Outcome {
    only_flags(flags.into(), 0)?;
    out.set(stack::current()?.handle)
}

fn detach(handle: usize) -> Outcome {
    find(handle).map(drop)
}

fn push(handle: usize) -> Outcome {
    find(handle)?;
    stack::push_current(handle);
    Ok(())
}

fn pop(out: Out<usize>) -> Outcome {
    let handle = stack::pop_current().ok_or(Status::INVALID_CONTEXT)?;
    out.offer(handle);
    Ok(())
}

fn set_current(handle: usize) -> Outcome {
    if handle != 0 {
        find(handle)?;
    }
    stack::set_current(handle);
    Ok(())
}

fn get_current(out: Out<usize>) -> Outcome {
    out.set(stack::current_handle().unwrap_or(0))
}

fn get_device(device: Out<i32>) -> Outcome {
    device.set(stack::current_any()?.device.ordinal() as i32)
}

fn get_device_of(device: Out<i32>, context: usize) -> Outcome {
    if context == 0 {
        return get_device(device);
    }
    device.set(find(context)?.device.ordinal() as i32)
}

fn get_flags(flags: Out<u32>) -> Outcome {
    flags.set(stack::current()?.flags.load(Ordering::Relaxed))
}

fn set_flags(flags: u32) -> Outcome {
    let context = stack::current()?;
    check_flags(flags)?;
    context.flags.store(flags, Ordering::Relaxed);
    Ok(())
}

fn get_id(handle: usize, id: Out<u64>) -> Outcome {
    id.required()?;
    id.set(context_or_current(handle)?.id)
}

fn api_version(handle: usize, version: Out<u32>) -> Outcome {
    version.required()?;
    version.set(context_or_current(handle)?.api_version)
}

fn synchronize() -> Outcome {
    synchronize_context(&stack::current()?)
}

fn synchronize_one(handle: usize) -> Outcome {
    synchronize_context(&context_or_current(handle)?)
}

fn synchronize_context(context: &Arc<Context>) -> Outcome {
    capture::forbid_in_context(context)?;
    context.synchronize()
}

/// Limits that the device has; the rest are those of features that are not simulated.
const LIMITS: u32 = 7;

fn set_limit(limit: u32, value: usize) -> Outcome {
    let context = stack::current()?;
    match limit {
        0..LIMITS => context.settings().limits[limit as usize] = value,
        LIMITS..10 => return Err(Status::UNSUPPORTED_LIMIT),
        _ => return Err(Status::INVALID_VALUE),
    }
    Ok(())
}

fn get_limit(value: Out<usize>, limit: u32) -> Outcome {
    let context = stack::current()?;
    value.required()?;
    match limit {
        0..LIMITS => value.set(context.settings().limits[limit as usize]),
        LIMITS..10 => Err(Status::UNSUPPORTED_LIMIT),
        _ => Err(Status::INVALID_VALUE),
    }
}

fn get_cache_config(config: Out<u32>) -> Outcome {
    config.set(stack::current()?.settings().cache)
}

fn set_cache_config(config: u32) -> Outcome {
    let context = stack::current()?;
    if config > 3 {
        return Err(Status::INVALID_VALUE);
    }
    context.settings().cache = config;
    Ok(())
}

fn get_banks(config: Out<u32>) -> Outcome {
    config.set(stack::current()?.settings().shared_banks)
}

fn set_banks(config: u32) -> Outcome {
    let context = stack::current()?;
    if config > 2 {
        return Err(Status::INVALID_VALUE);
    }
    context.settings().shared_banks = config;
    Ok(())
}

fn priority_range(least: Out<i32>, greatest: Out<i32>) -> Outcome {
    stack::current()?;
    least.offer(PRIORITIES.0);
    greatest.offer(PRIORITIES.1);
    Ok(())
}

fn reset_l2() -> Outcome {
    stack::current().map(drop)
}

/// The only affinity there is: all multiprocessors.
fn exec_affinity(affinity: Out<[u32; 2]>, kind: u32) -> Outcome {
    stack::current()?;
    if kind != 0 {
        return Err(Status::UNSUPPORTED_EXEC_AFFINITY);
    }
    affinity.set([0, super::device::MULTIPROCESSORS as u32])
}

/// The context of a handle, in working order: none stands for the current one here.
fn meant(handle: usize) -> Outcome<Arc<Context>> {
    if handle == 0 {
        return Err(Status::INVALID_CONTEXT);
    }
    let context = state::driver()?.contexts.get(handle).map_err(|_| Status::CONTEXT_IS_DESTROYED)?;
    context.check()?;
    Ok(context)
}

/// Makes everything that the context has to do now the event's. Only a wait for the event waits for that.
fn record_event(handle: usize, event: usize) -> Outcome {
    let context = meant(handle)?;
    let event = state::driver()?.events.get(event)?;
    if event.context_id != context.id {
        return Err(Status::INVALID_HANDLE);
    }
    capture::forbid_in_context(&context)?;
    let stamp = Arc::new(Stamp::default());
    event.record(context.mark(stamp.clone()), stamp);
    Ok(())
}

/// All later work of the context waits for the event, which may be another context's.
fn wait_event(handle: usize, event: usize) -> Outcome {
    let context = meant(handle)?;
    let event = state::driver()?.events.get(event)?;
    if let Some(tail) = event.captured() {
        Capture::of(&tail).invalidate();
        return Err(Status::STREAM_CAPTURE_UNSUPPORTED);
    }
    capture::forbid_in_context(&context)?;
    if let Some(point) = event.ticket()? {
        context.put_ahead(point);
    }
    Ok(())
}

/// The context's kernels can reach what was allocated, and will be, in a context of another GPU.
fn enable_peer(peer: usize, flags: u32) -> Outcome {
    let (context, _) = current()?;
    only_flags(flags.into(), 0)?;
    let peer = find(peer)?;
    if peer.device.ordinal() == context.device.ordinal() {
        // A context of the same device is no peer.
        return Err(Status::PEER_ACCESS_UNSUPPORTED);
    }
    if context.peers.add(peer.id) { Ok(()) } else { Err(Status::PEER_ACCESS_ALREADY_ENABLED) }
}

fn disable_peer(peer: usize) -> Outcome {
    let (context, _) = current()?;
    let peer = find(peer)?;
    if context.peers.remove(peer.id) { Ok(()) } else { Err(Status::PEER_ACCESS_NOT_ENABLED) }
}

fn primary(device: &Device) -> MutexGuard<'_, Primary> {
    device.primary.lock().unwrap_or_else(PoisonError::into_inner)
}

fn primary_retain(out: Out<usize>, device: i32) -> Outcome {
    out.required()?;
    let device = arguments::device(device)?;
    let driver = state::driver()?;
    let mut primary = primary(device);
    if primary.handle == 0 {
        primary.handle = driver.contexts.draw();
    }
    let handle = primary.handle;
    if driver.contexts.get(handle).is_err() {
        driver.common.check()?;
        let context = Context::new(driver.common, device, handle, primary.flags, API_VERSION, true);
        driver.contexts.put(handle, context);
    }
    primary.retained += 1;
    out.set(handle)
}

fn primary_release(device: i32) -> Outcome {
    let device = arguments::device(device)?;
    let driver = state::driver()?;
    let mut primary = primary(device);
    if primary.retained == 0 {
        return Err(Status::INVALID_CONTEXT);
    }
    primary.retained -= 1;
    if primary.retained == 0 {
        end_primary(driver, &primary);
    }
    Ok(())
}

/// Ends the primary context, retained or not; the next use makes it anew.
fn primary_reset(device: i32) -> Outcome {
    let device = arguments::device(device)?;
    end_primary(state::driver()?, &primary(device));
    Ok(())
}

fn end_primary(driver: &Driver, primary: &Primary) {
    if let Ok(context) = driver.contexts.get(primary.handle) {
        driver.end(&context);
    }
}

fn primary_set_flags(device: i32, flags: u32) -> Outcome {
    let device = arguments::device(device)?;
    check_flags(flags)?;
    let driver = state::driver()?;
    let mut primary = primary(device);
    primary.flags = flags;
    if let Ok(context) = driver.contexts.get(primary.handle) {
        context.flags.store(flags, Ordering::Relaxed);
    }
    Ok(())
}

fn primary_state(device: i32, flags: Out<u32>, active: Out<i32>) -> Outcome {
    flags.required()?;
    active.required()?;
    let device = arguments::device(device)?;
    let driver = state::driver()?;
    let primary = primary(device);
    flags.set(primary.flags)?;
    active.set(i32::from(driver.contexts.get(primary.handle).is_ok()))
}
