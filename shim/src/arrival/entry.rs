//! The entry of every call that touches device memory.
//!
//! A call passes the gate when its memory is here, for whichever GPU it is: a program is on all its GPUs, or on none. If a call for one GPU
//! may access memory of another one, that GPU gets access to all of the process's memory there first, now and whenever it comes back.

use baton_contract::cuda::{CUdevice, CUdeviceptr, CUresult, CUstream};
use baton_contract::memory::GRANULE;

use super::blocks::{is_lacking, wait, wait_until};
use super::needs::Needs;
use super::{ahead, gpus};
use crate::driver::api::{self, Stream};
use crate::gate::{self, Exclusive, MappingGuard, Passage};
use crate::memory::space::{self, Space};

/// The GPU that a call is for, as to memory of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gpu {
    /// It has access: the call's memory has to be here, with all memory that it leads to.
    Shared,
    /// It has none: the question is which memory of ours the call itself accesses. A kernel accesses none that its GPU has no access to.
    Other,
}

/// Passes the gate. An error is the answer to the program's call.
#[inline(always)]
pub(crate) fn pass(needs: impl Fn(Gpu) -> Needs) -> Result<Passage, CUresult> {
    if gpus::are_several() {
        return pass_among(None, &needs);
    }
    pass_here(|| needs(Gpu::Shared))
}

/// Passes the gate for a call that puts work into a stream, which may be another GPU's.
#[inline(always)]
pub(crate) fn pass_into(stream: impl FnOnce() -> CUstream, needs: impl Fn(Gpu) -> Needs) -> Result<Passage, CUresult> {
    if gpus::are_several() {
        return pass_among(Some(stream()), &needs);
    }
    pass_here(|| needs(Gpu::Shared))
}

/// Passes the gate for a call in `stream`, which `handle` names: the stream may wait in its place. So the call has to be the next thing
/// that this thread does.
#[inline(always)]
pub(crate) fn pass_ahead(
    handle: impl FnOnce() -> CUstream,
    stream: impl FnOnce() -> Stream,
    needs: impl Fn(Gpu) -> Needs,
) -> Result<Passage, CUresult> {
    if gpus::are_several() {
        return pass_among(Some(handle()), &needs);
    }
    let passage = gate::pass()?;
    if gate::may_lack() {
        ahead::wait(&passage, needs(Gpu::Shared), stream())?;
    }
    Ok(passage)
}

/// Passes the gate for a call about memory of ours, whichever GPU is current.
#[inline(always)]
pub(crate) fn pass_here(needs: impl Fn() -> Needs) -> Result<Passage, CUresult> {
    let passage = gate::pass()?;
    if gate::may_lack() {
        wait(&passage, needs())?;
    }
    Ok(passage)
}

/// Asks the driver about an address of ours, which it does not know while that memory is away.
pub(crate) fn ask_about(address: CUdeviceptr, call: impl Fn() -> CUresult) -> CUresult {
    gate::checked(|| pass_here(|| Needs::at(address)), call)
}

/// Enters the gate for a call that touches no memory of ours, and may keep others out of its context while it waits in the driver.
pub(crate) fn enter_in_any_state() -> Exclusive {
    gate::enter_in_any_state(api::current_context())
}

/// Passes for a call of a program that uses several GPUs, perhaps into a stream of another one than the current.
#[cold]
fn pass_among(stream: Option<CUstream>, needs: &impl Fn(Gpu) -> Needs) -> Result<Passage, CUresult> {
    let current = gpus::current();
    let of_stream = stream.and_then(gpus::of_stream).or(current);
    let mut has_access = true;
    for device in current.into_iter().chain(of_stream.filter(|_| of_stream != current)) {
        gpus::begin_work_on(device);
        has_access = let_access(device, needs)?;
    }
    // Without access to allocations, a kernel there may yet have some to mappings of the program's own.
    pass_here(|| if has_access { needs(Gpu::Shared) } else { Needs::Everything })
}

/// Lets a GPU access the memory of others if a call there may. False if it has access to no memory of ours.
fn let_access(device: CUdevice, needs: &impl Fn(Gpu) -> Needs) -> Result<bool, CUresult> {
    let (mut has_access, mut named) = (false, None);
    for space in space::all() {
        if space.device != device && !space.is_exposed_to(device) {
            if !named.get_or_insert_with(|| needs(Gpu::Other)).may_be_of(space) {
                continue;
            }
            expose(space, device)?;
        }
        has_access = true;
    }
    Ok(has_access)
}

/// Gives a GPU access to all memory of another one.
#[cold]
pub(crate) fn expose(space: &Space, device: CUdevice) -> Result<(), CUresult> {
    if space.device == device || space.is_exposed_to(device) {
        return Ok(());
    }
    let passage = pass_here(|| Needs::Everything)?;
    let guard = lock_mappings(&passage, Needs::Everything)?;
    space.expose(device, &guard)
}

/// Waits for a range of memory of ours, which may span several earlier allocations.
#[inline]
pub(crate) fn wait_for(passage: &Passage, at: CUdeviceptr, bytes: u64) -> Result<(), CUresult> {
    if !gate::may_lack() {
        return Ok(());
    }
    // Memory that arrives as a whole begins and ends at multiples of this.
    let places = (at..at + bytes).step_by(GRANULE as usize).chain([at + bytes - 1]);
    wait(passage, Needs::These(places.collect::<Vec<_>>().into()))?;
    // Memory that was being allocated when the gate was closed is in no block.
    match space::at(at) {
        Some(space) => wait_until(passage, || space.is_all_mapped(&(at..at + bytes))),
        None => Ok(()),
    }
}

/// Runs a closure while all memory is here and the coordinator moves none. An error is the answer to the program's call.
pub(crate) fn with_all_here<T>(what: impl FnOnce(&MappingGuard) -> T) -> Result<T, CUresult> {
    let passage = pass_here(|| Needs::Everything)?;
    let guard = lock_mappings(&passage, Needs::Everything)?;
    let _relaxed = api::Relaxed::enter();
    Ok(what(&guard))
}

/// Gets the right to change mappings, while some memory is here: it may have gone since the caller passed.
pub(crate) fn lock_mappings(passage: &Passage, needs: Needs) -> Result<MappingGuard, CUresult> {
    loop {
        let guard = gate::lock_mappings(passage)?;
        if !gate::may_lack() || !is_lacking(&needs) {
            return Ok(guard);
        }
        drop(guard);
        wait(passage, needs.clone())?;
    }
}
