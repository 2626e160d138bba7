//! The `ioctl` through which the driver makes its channels: looked at in passing.
//!
//! The driver calls the C library's, and so finds ours first. Almost every call of a program is none of the driver's: those
//! leave by a tail jump, after a few comparisons. Requests that make or free objects of the driver's resource manager are made here,
//! and what they did is noted; also the first requests on a device that was opened, because they tell whose it is.

use core::ffi::{c_int, c_ulong, c_void};
use core::sync::atomic::AtomicPtr;

use baton_contract::resource_manager::{
    self as rm, ALLOC, CHECK_VERSION, FREE, MAGIC, REGISTER_DESCRIPTOR, UVM_INITIALIZE, UVM_MM_INITIALIZE,
};

use super::{objects, owners};
use crate::sys::rtld_next::after_ours;

type Ioctl = unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int;

/// The `ioctl` after ours: the C library's, or another preloaded library's. At first, what finds that.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(first as *const () as *mut c_void);

/// The exported `ioctl`. Its third argument is whatever the request takes, so all registers stay as they are.
#[cfg_attr(test, allow(dead_code))]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn ioctl() {
    core::arch::naked_asm!(
        "movzx eax, si",
        "cmp eax, {made}",
        "je {watched}",
        "cmp eax, {freed}",
        "je {watched}",
        "mov rcx, [rsp]",
        "cmp eax, {version}",
        "je {opened}",
        "cmp eax, {registered}",
        "je {opened}",
        "cmp esi, {uvm}",
        "je {opened}",
        "cmp esi, {uvm_mm}",
        "je {opened}",
        "jmp qword ptr [rip + {next}]",
        made = const (MAGIC as u32) << 8 | ALLOC as u32,
        freed = const (MAGIC as u32) << 8 | FREE as u32,
        version = const (MAGIC as u32) << 8 | CHECK_VERSION as u32,
        registered = const (MAGIC as u32) << 8 | REGISTER_DESCRIPTOR as u32,
        uvm = const UVM_INITIALIZE,
        uvm_mm = const UVM_MM_INITIALIZE,
        watched = sym watched,
        opened = sym opened,
        next = sym NEXT,
    )
}

/// A request that may make or free an object. Others may have the same number on another device.
unsafe extern "C" fn watched(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: a function of this type, called as our caller called us.
    let answer = unsafe { next()(descriptor, request, argument) };
    if answer == 0 && rm::is_control_device(descriptor) {
        // SAFETY: the control device has answered this call.
        unsafe {
            if let Some(made) = rm::made(request, argument) {
                objects::note_made(descriptor, &made);
            } else if let Some(freed) = rm::freed(request, argument) {
                objects::note_freed(&freed);
            }
        }
    }
    answer
}

/// The first request on a device, made from `caller`. Others may have the same number on another device; then it says nothing.
unsafe extern "C" fn opened(descriptor: c_int, request: c_ulong, argument: *mut c_void, caller: usize) -> c_int {
    owners::note(descriptor, caller);
    // SAFETY: a function of this type, called as our caller called us.
    unsafe { next()(descriptor, request, argument) }
}

/// Where calls go that come before the next `ioctl` is known.
unsafe extern "C" fn first(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: as in `watched`.
    unsafe { next()(descriptor, request, argument) }
}

/// The next `ioctl`.
fn next() -> Ioctl {
    let (unset, nobody) = (first as *const () as *mut c_void, system as *const () as *mut c_void);
    let found = after_ours(&NEXT, unset, c"ioctl", nobody);
    // SAFETY: all that is stored there is a function of this type.
    unsafe { core::mem::transmute::<*mut c_void, Ioctl>(found) }
}

/// Where no library after ours has one (a static C library).
unsafe extern "C" fn system(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { libc::syscall(libc::SYS_ioctl, descriptor, request, argument) as c_int }
}
