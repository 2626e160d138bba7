//! Functions of a newer driver that Baton does not know: they may do anything with memory, so programs are told that they do not exist, as
//! an older driver would tell them. `BATON_LOG` gets a line with their names.
//!
//! With `BATON_UNKNOWN=whole` programs get a stub instead (`symbols::unknown_call`). All memory is here while such a function runs, and none
//! of it moves. The function may remember addresses; so from then on no call goes on before all memory is back.

use core::ffi::{CStr, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::ffi::CString;

use baton_contract::cuda::{CUDA_ERROR_DEVICE_UNAVAILABLE, CUresult};
use baton_contract::settings;

use crate::arrival::{self, Needs, roots};
use crate::driver::symbols::{self, Function, UNKNOWN};
use crate::gate::{MappingGuard, Passage};
use crate::session;
use crate::sys::once::Once;
use crate::sys::{cancel, process, user};
use crate::work::contexts;

/// The handling of such functions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    /// Programs are told that they do not exist.
    Hidden,
    /// They run while all memory is here.
    Whole,
    /// They are left to the driver: this program does not become a tenant.
    TheDrivers,
}

/// The functions that programs have asked for, in that order. An entry is written once.
static FUNCTIONS: [AtomicPtr<c_void>; UNKNOWN] = [const { AtomicPtr::new(ptr::null_mut()) }; UNKNOWN];
static NAMES: [Once<CString>; UNKNOWN] = [const { Once::new() }; UNKNOWN];

/// The function that a program gets for such a function of the driver's; `None` if it is to get none.
pub(super) fn export(name: &CStr, function: Function) -> Option<Function> {
    let policy = policy();
    if policy == Policy::TheDrivers {
        return Some(function);
    }
    let number = number_of(name, function)?;
    if policy == Policy::Hidden {
        return None;
    }
    roots::unknown_function_found();
    contexts::note_per_thread_streams();
    Some(symbols::unknown_stub(number))
}

fn policy() -> Policy {
    static POLICY: Once<Policy> = Once::new();
    if let Some(known) = POLICY.get() {
        return *known;
    }
    let word = user::setting(settings::UNKNOWN);
    let policy = match word.as_deref() {
        _ if user::is_on(settings::DISABLE) => Policy::TheDrivers,
        Some(word) if word == "whole" => Policy::Whole,
        _ => Policy::Hidden,
    };
    let (kept, ours) = POLICY.keep(policy);
    if let (Policy::Hidden, true, Some(word)) = (*kept, ours, word) {
        user::warn(&baton_messages::no_such_policy(word.display()));
    }
    *kept
}

/// The number of such a function; `None` if there are too many.
fn number_of(name: &CStr, function: Function) -> Option<usize> {
    for (number, place) in FUNCTIONS.iter().enumerate() {
        match place.compare_exchange(ptr::null_mut(), function, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                NAMES[number].keep(name.to_owned());
                tell();
                return Some(number);
            }
            Err(known) if known == function => return Some(number),
            Err(_) => {}
        }
    }
    None
}

/// Logs the names of all such functions, once more for each new one.
fn tell() {
    let names: Vec<_> = NAMES.iter().filter_map(Once::get).map(|name| name.to_string_lossy()).collect();
    let fate = match policy() {
        Policy::Whole => baton_messages::THEY_RUN_WHOLE,
        _ => baton_messages::THERE_ARE_NONE,
    };
    user::note(&baton_messages::asked_for_unknown_functions(names.len(), fate, names.join(", ")));
}

/// The state that is held during such a call. It is released in this order.
struct Inside {
    /// `None` for a call of a process that has not joined.
    _guard: Option<MappingGuard>,
    _passage: Passage,
    /// A thread that is cancelled in the driver would be unwound past the end of the call.
    _uncancelled: cancel::Off,
}

fn enter() -> Result<(Option<MappingGuard>, Passage), CUresult> {
    let passage = arrival::pass(|_| Needs::Everything)?;
    // Other calls inside may lose their memory, and are repeated then; this one may not be repeatable.
    let guard = match session::is_any() && !passage.is_ungated() {
        true => Some(arrival::lock_mappings(&passage, Needs::Everything)?),
        false => None,
    };
    Ok((guard, passage))
}

/// Begins a call of such a function: returns its target, and leaves the held state in `inside`.
pub(crate) extern "C" fn begin(number: usize, inside: &mut *mut c_void) -> Function {
    extern "C" fn unavailable() -> CUresult {
        CUDA_ERROR_DEVICE_UNAVAILABLE
    }
    if process::settle_if_bare() {
        *inside = ptr::null_mut();
        return FUNCTIONS[number].load(Ordering::Acquire);
    }
    let uncancelled = cancel::Off::begin();
    match enter() {
        Ok((guard, passage)) => {
            let held = Inside { _guard: guard, _passage: passage, _uncancelled: uncancelled };
            *inside = Box::into_raw(Box::new(held)).cast();
            FUNCTIONS[number].load(Ordering::Acquire)
        }
        Err(_) => {
            *inside = ptr::null_mut();
            unavailable as *const () as Function
        }
    }
}

/// Ends such a call.
pub(crate) extern "C" fn end(_number: usize, inside: *mut c_void, _answer: u64) {
    if !inside.is_null() {
        // SAFETY: the state that `begin` has left for this call.
        drop(unsafe { Box::from_raw(inside.cast::<Inside>()) });
    }
}
