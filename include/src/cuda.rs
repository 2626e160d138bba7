//! The types of the CUDA driver API that Baton reads (source: `cuda.h`, CUDA 13.0).
//!
//! Enumerations of the header are plain integers here: a driver may answer with a value that is newer
//! than this file, and a Rust enum with an unknown value would be undefined behaviour.
//! Handles are opaque pointers that Baton never follows.

use core::ffi::{c_int, c_uint, c_void};

/// A driver call's answer (`CUresult`).
pub type CUresult = c_uint;
/// An address in the device's memory (`CUdeviceptr`).
pub type CUdeviceptr = u64;
/// The 32-bit device address of the API before CUDA 3.2 (`CUdeviceptr_v1`).
pub type CUdeviceptrV1 = c_uint;
/// A device's ordinal (`CUdevice`).
pub type CUdevice = c_int;
/// A context (`CUcontext`).
pub type CUcontext = *mut c_void;
/// A stream (`CUstream`); null is the default stream.
pub type CUstream = *mut c_void;
/// A kernel to launch (`CUfunction`); in launches it may also be a `CUkernel` in disguise.
pub type CUfunction = *mut c_void;
/// An instantiated graph (`CUgraphExec`).
pub type CUgraphExec = *mut c_void;
/// A texture-capable array (`CUarray`).
pub type CUarray = *mut c_void;
/// Another process's allocation (`CUipcMemHandle`), which calls take by value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CUipcMemHandle(pub [u8; 64]);
/// A memory pool (`CUmemoryPool`).
pub type CUmemoryPool = *mut c_void;

/// A place for memory to live (`CUmemLocation`), passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CUmemLocation {
    /// `CUmemLocationType`.
    pub kind: c_int,
    /// Device ordinal or NUMA node, by `kind`.
    pub id: c_int,
}

/// Properties of memory to be made (`CUmemAllocationProp`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUmemAllocationProp {
    /// `CUmemAllocationType`.
    pub kind: c_int,
    /// The ways to hand it to other processes: `CUmemAllocationHandleType`s.
    pub handle_types: c_int,
    /// The place of the memory.
    pub location: CUmemLocation,
    /// For Windows.
    pub windows: *mut c_void,
    /// Compression and the like; zero.
    pub flags: [u8; 8],
}

/// Access rights to memory from a place (`CUmemAccessDesc`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUmemAccessDesc {
    /// The place that gets access.
    pub location: CUmemLocation,
    /// `CUmemAccess_flags`.
    pub flags: c_int,
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
pub const CU_MEM_LOCATION_TYPE_DEVICE: c_int = 1;
/// `CU_MEM_ALLOCATION_TYPE_PINNED`: memory of a device, always there.
pub const CU_MEM_ALLOCATION_TYPE_PINNED: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_NONE`.
pub const CU_MEM_ACCESS_FLAGS_PROT_NONE: c_int = 0;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub const CU_MEM_ACCESS_FLAGS_PROT_READWRITE: c_int = 3;

/// The call worked.
pub const CUDA_SUCCESS: CUresult = 0;
/// An argument is out of range, or null where it must not be.
pub const CUDA_ERROR_INVALID_VALUE: CUresult = 1;
/// The driver was not initialised with `cuInit`.
pub const CUDA_ERROR_NOT_INITIALIZED: CUresult = 3;
/// The device has not enough memory left.
pub const CUDA_ERROR_OUT_OF_MEMORY: CUresult = 2;
/// The device cannot be used now: the answer to calls once the coordinator is gone and took memory with it.
pub const CUDA_ERROR_DEVICE_UNAVAILABLE: CUresult = 46;
/// The driver has shut down: the program is exiting.
pub const CUDA_ERROR_DEINITIALIZED: CUresult = 4;
/// There is no such context, or none is current.
pub const CUDA_ERROR_INVALID_CONTEXT: CUresult = 201;
/// The context has been destroyed, or is just being.
pub const CUDA_ERROR_CONTEXT_IS_DESTROYED: CUresult = 709;
/// There is no CUDA device on this machine.
pub const CUDA_ERROR_NO_DEVICE: CUresult = 100;
/// The work has not ended yet: an answer, not a failure.
pub const CUDA_ERROR_NOT_READY: CUresult = 600;
/// The operating system refused something.
pub const CUDA_ERROR_OPERATING_SYSTEM: CUresult = 304;
/// This device does not support the request, or this memory does not.
pub const CUDA_ERROR_NOT_SUPPORTED: CUresult = 801;
/// `CUDA_ERROR_SYSTEM_NOT_READY`
pub const CUDA_ERROR_SYSTEM_NOT_READY: CUresult = 802;
/// `CUDA_ERROR_SYSTEM_DRIVER_MISMATCH`
pub const CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: CUresult = 803;
/// `CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE`
pub const CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: CUresult = 804;
/// The name does not exist.
pub const CUDA_ERROR_NOT_FOUND: CUresult = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::{align_of, size_of};
    use cudarc::driver::sys;

    #[test]
    fn types_have_the_layout_that_cudarc_reads_from_nvidias_header() {
        assert_eq!(size_of::<CUresult>(), size_of::<sys::CUresult>());
        assert_eq!(size_of::<CUdeviceptr>(), size_of::<sys::CUdeviceptr>());
        assert_eq!(size_of::<CUstream>(), size_of::<sys::CUstream>());
        assert_eq!(size_of::<CUmemLocation>(), size_of::<sys::CUmemLocation>());
        assert_eq!(align_of::<CUmemLocation>(), align_of::<sys::CUmemLocation>());
        assert_eq!(size_of::<CUmemAllocationProp>(), size_of::<sys::CUmemAllocationProp>());
        assert_eq!(size_of::<CUmemAccessDesc>(), size_of::<sys::CUmemAccessDesc>());
        assert_eq!(CUDA_ERROR_NO_DEVICE, sys::CUresult::CUDA_ERROR_NO_DEVICE as u32);
        assert_eq!(CUDA_ERROR_NOT_FOUND, sys::CUresult::CUDA_ERROR_NOT_FOUND as u32);
    }
}
