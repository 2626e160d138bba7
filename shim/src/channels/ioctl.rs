//! The `ioctl` through which the driver makes its channels: checked in passing.
//!
//! The driver calls the C library's `ioctl`, and so finds ours first. Almost no call of a program's is for the driver: the others leave by
//! a tail jump, after two comparisons. Requests to the driver's resource manager are made here. The shim notes the objects that they make
//! and free, and the library that makes them.

use core::ffi::{c_int, c_ulong, c_void};
use core::sync::atomic::AtomicPtr;

use baton_contract::resource_manager::{self as rm, ALLOC, FREE, MAGIC, UVM_INITIALIZE, UVM_MM_INITIALIZE};

use super::{objects, owners};
use crate::sys::process;
use crate::sys::rtld_next::after_ours;

type Ioctl = unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int;

/// The `ioctl` after ours: the C library's, or another preloaded library's. At first, the function that finds it.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(first as *const () as *mut c_void);

/// The exported `ioctl`. The type of its third argument depends on the request, so all registers stay as they are.
#[cfg_attr(test, allow(dead_code))]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
unsafe extern "C" fn ioctl() {
    core::arch::naked_asm!(
        "movzx eax, si",
        "shr eax, 8",
        "cmp eax, {magic}",
        "je 2f",
        "cmp esi, {uvm}",
        "je 2f",
        "cmp esi, {uvm_mm}",
        "je 2f",
        "jmp qword ptr [rip + {next}]",
        "2: mov rcx, [rsp]",
        "jmp {watched}",
        magic = const MAGIC as u32,
        uvm = const UVM_INITIALIZE,
        uvm_mm = const UVM_MM_INITIALIZE,
        watched = sym watched,
        next = sym NEXT,
    )
}

/// Makes a request to the resource manager, for code at `caller`. Requests to other devices may have the same number.
unsafe extern "C" fn watched(descriptor: c_int, request: c_ulong, argument: *mut c_void, caller: usize) -> c_int {
    if process::is_bare() {
        // Objects that are made there belong to no tenant, and are never paused.
        // SAFETY: as below.
        return unsafe { next()(descriptor, request, argument) };
    }
    owners::note(descriptor, caller);
    let makes_or_frees = matches!(request as u8, ALLOC | FREE) && (request >> 8) as u8 == MAGIC;
    let makes_or_frees = makes_or_frees && rm::is_control_device(descriptor);
    // SAFETY: the driver, which has the control device, makes valid calls.
    let asks_for = makes_or_frees.then(|| unsafe { rm::asked_for(request, argument) }).flatten();
    if asks_for.is_some_and(|(wanted, _)| rm::is_channel(wanted.class)) {
        objects::note_begun();
    }
    // SAFETY: a function of this type, called as our caller called us.
    let answer = unsafe { next()(descriptor, request, argument) };
    if answer == 0 && makes_or_frees {
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

/// Takes the calls that come before the next `ioctl` is known.
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

/// The `ioctl` where no library after ours has one (a static C library).
unsafe extern "C" fn system(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { libc::syscall(libc::SYS_ioctl, descriptor, request, argument) as c_int }
}
