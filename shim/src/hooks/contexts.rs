//! The driver's functions that make and end contexts: with its first one a program becomes a tenant.

use core::ffi::{c_int, c_uint, c_void};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use baton_contract::cuda::{CUDA_SUCCESS, CUcontext, CUdevice, CUresult};

use super::retry::{context_gone, with_room};
use crate::arrival::{self, Needs, roots};
use crate::driver::api::{self, Handle};
use crate::gate;
use crate::gate::Passage;
use crate::memory::space;
use crate::session::{self, Session};
use crate::work::leaving::{self, Left, Way};
use crate::work::{contexts, pools};

/// The session for a GPU; or, for one that is not shared, that for a GPU which is.
fn session_beside(device: CUdevice) -> Option<&'static Session> {
    session::of(device).or_else(|| session::all().next())
}

/// Enters a context that was made.
///
/// # Safety
///
/// On success, `out` was written by the driver.
unsafe fn made(answer: CUresult, out: *mut CUcontext, device: CUdevice) -> CUresult {
    if answer == CUDA_SUCCESS
        && !out.is_null()
        && let Some(session) = session_beside(device)
    {
        // SAFETY: by this function's contract.
        let context = unsafe { *out }.expose_provenance();
        if contexts::add(context, device) {
            forget(context, device, None);
        }
        session.channels_changed();
    }
    answer
}

type Create = unsafe extern "C-unwind" fn(*mut CUcontext, c_uint, CUdevice) -> CUresult;
type CreateV3 = unsafe extern "C-unwind" fn(*mut CUcontext, *mut c_void, c_int, c_uint, CUdevice) -> CUresult;
type CreateV4 = unsafe extern "C-unwind" fn(*mut CUcontext, *mut c_void, c_uint, CUdevice) -> CUresult;
type Retain = unsafe extern "C-unwind" fn(*mut CUcontext, CUdevice) -> CUresult;
type GreenCreate = unsafe extern "C-unwind" fn(*mut *mut c_void, *mut c_void, CUdevice, c_uint) -> CUresult;
type FromGreen = unsafe extern "C-unwind" fn(*mut CUcontext, *mut c_void) -> CUresult;
type OfGreen = unsafe extern "C-unwind" fn(*mut c_void) -> CUresult;
type OfContext = unsafe extern "C-unwind" fn(CUcontext) -> CUresult;
type OfDevice = unsafe extern "C-unwind" fn(CUdevice) -> CUresult;

pub(super) unsafe fn create(original: Create, out: *mut CUcontext, flags: c_uint, device: CUdevice) -> CUresult {
    session::join(device);
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = with_room(device, || unsafe { original(out, flags, device) });
    // SAFETY: the driver has written it.
    unsafe { made(answer, out, device) }
}

pub(super) unsafe fn create_v3(
    original: CreateV3,
    out: *mut CUcontext,
    affinity: *mut c_void,
    count: c_int,
    flags: c_uint,
    device: CUdevice,
) -> CUresult {
    session::join(device);
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = with_room(device, || unsafe { original(out, affinity, count, flags, device) });
    // SAFETY: the driver has written it.
    unsafe { made(answer, out, device) }
}

pub(super) unsafe fn create_v4(
    original: CreateV4,
    out: *mut CUcontext,
    parameters: *mut c_void,
    flags: c_uint,
    device: CUdevice,
) -> CUresult {
    session::join(device);
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = with_room(device, || unsafe { original(out, parameters, flags, device) });
    // SAFETY: the driver has written it.
    unsafe { made(answer, out, device) }
}

/// The contexts that were made from green contexts: each goes with its green context.
static GREEN: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn green() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    GREEN.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) unsafe fn from_green(original: FromGreen, out: *mut CUcontext, green_context: *mut c_void) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { original(out, green_context) };
    if answer != CUDA_SUCCESS || out.is_null() || !session::is_any() {
        return answer;
    }
    // SAFETY: the driver has written it.
    let context = unsafe { *out }.expose_provenance();
    let device = device_of(context).unwrap_or(-1);
    green().insert(green_context.addr(), context);
    // SAFETY: as above.
    unsafe { made(answer, out, device) }
}

pub(super) unsafe fn green_destroy(original: OfGreen, green_context: *mut c_void) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let call = || unsafe { original(green_context) };
    let context = green().get(&green_context.addr()).copied();
    let Some(context) = context.filter(|_| session::is_any()) else {
        let answer = call();
        if answer == CUDA_SUCCESS {
            // No context that could be current was made of it, but it was a context.
            if let Some(session) = session::current() {
                context_gone(session.link, 0);
            }
        }
        return answer;
    };
    let answer = end(context, device_of(context), Way::Destroyed, call);
    if answer == CUDA_SUCCESS {
        green().remove(&green_context.addr());
    }
    answer
}

pub(super) unsafe fn green_create(
    original: GreenCreate,
    out: *mut *mut c_void,
    description: *mut c_void,
    device: CUdevice,
    flags: c_uint,
) -> CUresult {
    session::join(device);
    // SAFETY: the driver's own function with the program's own arguments.
    with_room(device, || unsafe { original(out, description, device, flags) })
}

pub(super) unsafe fn retain(original: Retain, out: *mut CUcontext, device: CUdevice) -> CUresult {
    session::join(device);
    // Most calls find that the context exists already.
    let call = || {
        let retaining = session::is_any().then(|| leaving::begin_retain(device));
        // SAFETY: the driver's own function with the program's own arguments.
        let answer = unsafe { original(out, device) };
        if let Some(retaining) = retaining {
            retaining.done(answer == CUDA_SUCCESS);
        }
        answer
    };
    let known = api::primary_is_active(device);
    let answer = if known { call() } else { with_room(device, call) };
    if answer == CUDA_SUCCESS
        && !out.is_null()
        && let Some(session) = session_beside(device)
    {
        // SAFETY: the driver has written it.
        let context = unsafe { *out }.expose_provenance();
        if contexts::add_primary(context, device) {
            forget(context, device, None);
        }
        if !known {
            session.channels_changed();
        }
    }
    answer
}

/// Makes `call`, which may end a context and its memory with it.
///
/// This holds a passage: while the driver waits for the context's work, that work must not count as ended. And all memory has to be here,
/// because the coordinator takes back only memory that is. Behind a broken gate there is no coordinator to tell.
fn end(context: Handle, device: Option<CUdevice>, way: Way, call: impl FnOnce() -> CUresult) -> CUresult {
    let passage = arrival::pass_here(|| Needs::Everything).ok();
    // A context that is not known has none of our objects.
    let Some(leaving) = leaving::begin(context) else {
        let answer = call();
        if answer == CUDA_SUCCESS {
            leaving::count(way);
        }
        return answer;
    };
    roots::context_may_go(context);
    let answer = call();
    let left = leaving.done(way, answer == CUDA_SUCCESS);
    if let (Left::Gone(gone), Some(device)) = (&left, device) {
        forget(gone.handle(), device, passage.as_ref());
    }
    roots::context_stays(context);
    answer
}

/// Forgets the objects of a context that has ended, and takes its memory back.
fn forget(context: Handle, device: CUdevice, passage: Option<&Passage>) {
    arrival::context_gone();
    roots::context_goes(context);
    let Some(session) = session_beside(device) else { return };
    if session.device == device {
        context_gone(session.link, context);
    }
    let guard = passage.and_then(|passage| gate::lock_mappings(passage).ok());
    space::all().for_each(|space| space.free_context(context));
    drop(guard);
    pools::context_gone(context);
    session.channels_changed();
}

/// The GPU of a context; `None` if there is no such context.
fn device_of(context: Handle) -> Option<CUdevice> {
    contexts::device_of(context).or_else(|| {
        let mut device = -1;
        // SAFETY: an out-parameter.
        let answer = api::within(context, || unsafe { api::current_device(&mut device) });
        (answer == Some(CUDA_SUCCESS)).then_some(device)
    })
}

pub(super) unsafe fn destroy(original: OfContext, context: CUcontext) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let call = || unsafe { original(context) };
    if !session::is_any() {
        return call();
    }
    let context = context.expose_provenance();
    end(context, device_of(context), Way::Destroyed, call)
}

/// `cuCtxDetach`: ends a context only if no other user is attached to it.
pub(super) unsafe fn detach(original: OfContext, context: CUcontext) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let call = || unsafe { original(context) };
    if !session::is_any() {
        return call();
    }
    let context = context.expose_provenance();
    end(context, device_of(context), Way::Detached, call)
}

/// `cuDevicePrimaryCtxRelease`: the context ends with its last release.
pub(super) unsafe fn release_primary(original: OfDevice, device: CUdevice) -> CUresult {
    if let Some(passing) = session::is_any().then(|| leaving::begin_release(device)).flatten() {
        // SAFETY: the driver's own function with the program's own arguments.
        let answer = unsafe { original(device) };
        passing.done(answer == CUDA_SUCCESS);
        return answer;
    }
    // SAFETY: as this function's.
    unsafe { leave_primary(original, device, Way::Released(device)) }
}

/// `cuDevicePrimaryCtxReset`: the context ends, even if others retain it.
pub(super) unsafe fn reset_primary(original: OfDevice, device: CUdevice) -> CUresult {
    // SAFETY: as this function's.
    unsafe { leave_primary(original, device, Way::Reset(device)) }
}

unsafe fn leave_primary(original: OfDevice, device: CUdevice, way: Way) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let call = || unsafe { original(device) };
    if !session::is_any() {
        return call();
    }
    // A context that is in no books has no handle.
    end(contexts::primary(device).unwrap_or(0), Some(device), way, call)
}

type EnablePeer = unsafe extern "C-unwind" fn(CUcontext, c_uint) -> CUresult;

/// `cuCtxEnablePeerAccess`: the current context is to access another one's allocations.
pub(super) unsafe fn enable_peer(original: EnablePeer, peer: CUcontext, flags: c_uint) -> CUresult {
    let of_peer = contexts::device_of(peer.expose_provenance());
    if let Some(space) = of_peer.and_then(space::of)
        && let Some(device) = arrival::gpus::current()
        && let Err(answer) = arrival::expose(space, device)
    {
        return answer;
    }
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { original(peer, flags) };
    if answer == CUDA_SUCCESS {
        contexts::let_reach(api::current_context(), peer.expose_provenance(), true);
    }
    answer
}

/// `cuCtxDisablePeerAccess`: it no longer is. Its GPU keeps the access, which does no harm.
pub(super) unsafe fn disable_peer(original: OfContext, peer: CUcontext) -> CUresult {
    // SAFETY: the driver's own function with the program's own arguments.
    let answer = unsafe { original(peer) };
    if answer == CUDA_SUCCESS {
        contexts::let_reach(api::current_context(), peer.expose_provenance(), false);
    }
    answer
}
