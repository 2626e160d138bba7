//! Makes the management library (NVML) tell a program the same about its GPU's memory as `cuMemGetInfo`.
//!
//! Programs open that library by `dlopen` and look its functions up in it, so no function of ours can stand in front of them by name.
//! Instead the library itself is told that its two functions of memory are ours: the values of these symbols are changed in this process's
//! copy of it. Programs that are linked to the library find ours first, as they find our exports.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use baton_contract::socket_path::gpu_name;

use crate::driver::family;
use crate::hooks;
use crate::sys::cancel;

type Device = *mut c_void;
type Return = c_uint;

const SUCCESS: Return = 0;
const FUNCTION_NOT_FOUND: Return = 13;

/// `nvmlMemory_t`
#[repr(C)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlMemory_v2_t`
#[repr(C)]
struct MemoryV2 {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// A function of the library's own.
struct Real {
    name: &'static CStr,
    function: AtomicPtr<c_void>,
}

impl Real {
    const fn new(name: &'static CStr) -> Self {
        Self { name, function: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The function, or null where there is none: of the library that was opened, or of the one that the program is linked to.
    fn get(&self) -> *mut c_void {
        let known = self.function.load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        // SAFETY: a handle and a string that are valid for dlsym; RTLD_NEXT means the libraries after ours.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.function.store(found, Ordering::Release);
        found
    }
}

static MEMORY: Real = Real::new(c"nvmlDeviceGetMemoryInfo");
static MEMORY_V2: Real = Real::new(c"nvmlDeviceGetMemoryInfo_v2");
static UUID: Real = Real::new(c"nvmlDeviceGetUUID");

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: Device, memory: *mut Memory) -> Return {
    let real = MEMORY.get();
    if real.is_null() {
        return FUNCTION_NOT_FOUND;
    }
    // SAFETY: the library's function of this name, which `nvml.h` gives this signature.
    let real: unsafe extern "C" fn(Device, *mut Memory) -> Return = unsafe { core::mem::transmute(real) };
    // SAFETY: the program's own arguments.
    let answer = unsafe { real(device, memory) };
    if answer == SUCCESS
        // SAFETY: the program's own out-parameter, which the library has just written to.
        && let Some(memory) = unsafe { memory.as_mut() }
        && let Some((total, free)) = told_of(device)
    {
        *memory = Memory { total, free, used: total - free };
    }
    answer
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Device, memory: *mut MemoryV2) -> Return {
    let real = MEMORY_V2.get();
    if real.is_null() {
        return FUNCTION_NOT_FOUND;
    }
    // SAFETY: the library's function of this name, which `nvml.h` gives this signature.
    let real: unsafe extern "C" fn(Device, *mut MemoryV2) -> Return = unsafe { core::mem::transmute(real) };
    // SAFETY: the program's own arguments.
    let answer = unsafe { real(device, memory) };
    if answer == SUCCESS
        // SAFETY: the program's own out-parameter, which the library has just written to.
        && let Some(memory) = unsafe { memory.as_mut() }
        && let Some((total, free)) = told_of(device)
    {
        *memory = MemoryV2 { version: memory.version, total, reserved: 0, free, used: total - free };
    }
    answer
}

/// The total and the free memory, if the library's device is the GPU that this program shares, or will share when it takes it.
fn told_of(device: Device) -> Option<(u64, u64)> {
    let real = UUID.get();
    if real.is_null() {
        return None;
    }
    // SAFETY: the library's function of this name, which `nvml.h` gives this signature.
    let real: unsafe extern "C" fn(Device, *mut c_char, c_uint) -> Return = unsafe { core::mem::transmute(real) };
    let mut text = [0u8; 96];
    // SAFETY: a buffer of the given length.
    if unsafe { real(device, text.as_mut_ptr().cast(), text.len() as c_uint) } != SUCCESS {
        return None;
    }
    let uuid = read_uuid(CStr::from_bytes_until_nul(&text).ok()?.to_str().ok()?)?;
    hooks::memory_of(uuid)
}

/// A GPU's number, as the library writes it; `None` for a part of a GPU.
fn read_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.strip_prefix("GPU-")?.chars().filter(|digit| *digit != '-').collect();
    let uuid = u128::from_str_radix(&digits, 16).ok()?.to_be_bytes();
    (gpu_name(uuid) == text).then_some(uuid)
}

/// Called when a program opens the library: from then on the library's functions are ours.
pub(super) fn stand_in(path: &CStr, flags: c_int) {
    // Kept open: the changes are lost with the library.
    let Some(library) = family::open_as_it_is(path, flags) else { return };
    let found = family::symbol(library, UUID.name);
    UUID.function.store(found, Ordering::Release);
    replace(library, &MEMORY, nvmlDeviceGetMemoryInfo as *const () as usize);
    replace(library, &MEMORY_V2, nvmlDeviceGetMemoryInfo_v2 as *const () as usize);
}

/// Makes a library name our function as one of its own. Where that cannot be done, it stays as it is.
fn replace(library: NonNull<c_void>, real: &Real, ours: usize) {
    let found = family::symbol(library, real.name);
    if found.is_null() || found.expose_provenance() == ours {
        return;
    }
    // SAFETY: zeros are valid where the loader fills in the structure.
    let (mut info, mut entry): (libc::Dl_info, *mut c_void) = unsafe { (core::mem::zeroed(), ptr::null_mut()) };
    // SAFETY: an address of a library, and out-parameters.
    let known = unsafe { libc::dladdr1(found, &mut info, &mut entry, RTLD_DL_SYMENT) } != 0;
    if !known || entry.is_null() || info.dli_sname.is_null() {
        return;
    }
    let (value, base) = (entry.addr() + core::mem::offset_of!(libc::Elf64_Sym, st_value), info.dli_fbase.addr());
    // SAFETY: the loader has found both; the entry is the symbol of that name, in a library that stays open.
    let is_it = unsafe {
        CStr::from_ptr(info.dli_sname) == real.name
            && base.wrapping_add((*entry.cast::<libc::Elf64_Sym>()).st_value as usize) == found.addr()
    };
    if !is_it {
        return;
    }
    real.function.store(found, Ordering::Release);
    // The library's tables are read-only; this way they do not change for any other process.
    let _uncancelled = cancel::Off::begin();
    if let Ok(memory) = File::options().write(true).open("/proc/self/mem") {
        let _ = memory.write_at(&ours.wrapping_sub(base).to_ne_bytes(), value as u64);
    }
}

/// Asks `dladdr1` for the entry in the library's table of symbols (`dlfcn.h`).
const RTLD_DL_SYMENT: c_int = 1;

#[cfg(test)]
mod tests {
    use super::read_uuid;

    #[test]
    fn a_gpus_number_is_read_as_it_is_written() {
        let uuid = *b"\x00\x01\x02\x03\xa4\xa5\xa6\xa7\xf8\xf9\xfa\xfb\x0c\x0d\x0e\x0f";
        assert_eq!(read_uuid(&baton_contract::socket_path::gpu_name(uuid)), Some(uuid));
        for other in ["", "GPU-", "GPU-12", "MIG-00010203-a4a5-a6a7-f8f9-fafb0c0d0e0f", "GPU-zz"] {
            assert_eq!(read_uuid(other), None, "{other}");
        }
    }
}
