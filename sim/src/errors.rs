//! The driver's result codes: number, name, and a sentence of our own.
//!
//! A code is a plain number, because the program at the other side may hold one that is not listed.

use std::ffi::CStr;

/// A failed call's `CUresult`. Never zero: success is `Ok`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("CUDA result {0}")]
pub(crate) struct Status(u32);

/// The result of a call.
pub(crate) type Outcome<T = ()> = Result<T, Status>;

impl Status {
    /// The number the program gets.
    pub(crate) fn code(self) -> u32 {
        self.0
    }

    /// A status by its number; `None` for success.
    pub(crate) fn from_code(code: u32) -> Option<Status> {
        (code != 0).then_some(Status(code))
    }
}

/// One code as `cuGetErrorName` and `cuGetErrorString` tell it.
struct Entry {
    code: u32,
    name: &'static CStr,
    text: &'static CStr,
}

const fn c(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a zero byte inside a text"),
    }
}

macro_rules! codes {
    ($($code:literal $name:ident $text:literal;)*) => {
        #[allow(dead_code, reason = "the list is the driver's, whole, so that every code has its name")]
        impl Status {
            $(pub(crate) const $name: Status = Status($code);)*
        }
        const ENTRIES: &[Entry] = &[
            Entry { code: 0, name: c"CUDA_SUCCESS", text: c"no error" },
            $(Entry {
                code: $code,
                name: c(concat!("CUDA_ERROR_", stringify!($name), "\0")),
                text: c(concat!($text, "\0")),
            },)*
        ];
    };
}

codes! {
    1 INVALID_VALUE "invalid argument";
    2 OUT_OF_MEMORY "out of memory";
    3 NOT_INITIALIZED "the driver was not initialised";
    4 DEINITIALIZED "the driver is shutting down";
    5 PROFILER_DISABLED "the profiler is disabled";
    6 PROFILER_NOT_INITIALIZED "the profiler was not initialised";
    7 PROFILER_ALREADY_STARTED "the profiler was already started";
    8 PROFILER_ALREADY_STOPPED "the profiler was already stopped";
    34 STUB_LIBRARY "this is a stub library, not a driver";
    36 CALL_REQUIRES_NEWER_DRIVER "the call needs a newer driver";
    46 DEVICE_UNAVAILABLE "the device is busy or unavailable";
    100 NO_DEVICE "no CUDA device was found";
    101 INVALID_DEVICE "no such device";
    102 DEVICE_NOT_LICENSED "the device has no licence";
    200 INVALID_IMAGE "the image of the kernels is not valid";
    201 INVALID_CONTEXT "no valid context is current";
    202 CONTEXT_ALREADY_CURRENT "the context is already current";
    205 MAP_FAILED "mapping failed";
    206 UNMAP_FAILED "unmapping failed";
    207 ARRAY_IS_MAPPED "the array is mapped";
    208 ALREADY_MAPPED "the resource is already mapped";
    209 NO_BINARY_FOR_GPU "the image has no kernels for this device";
    210 ALREADY_ACQUIRED "the resource was already acquired";
    211 NOT_MAPPED "the resource is not mapped";
    212 NOT_MAPPED_AS_ARRAY "the resource is not mapped as an array";
    213 NOT_MAPPED_AS_POINTER "the resource is not mapped as a pointer";
    214 ECC_UNCORRECTABLE "an uncorrectable memory error was found";
    215 UNSUPPORTED_LIMIT "the device has no such limit";
    216 CONTEXT_ALREADY_IN_USE "the context is in use by another thread";
    217 PEER_ACCESS_UNSUPPORTED "the two devices cannot reach each other";
    218 INVALID_PTX "the PTX text could not be read";
    219 INVALID_GRAPHICS_CONTEXT "the graphics context is not valid";
    220 NVLINK_UNCORRECTABLE "an uncorrectable NVLink error was found";
    221 JIT_COMPILER_NOT_FOUND "the PTX compiler was not found";
    222 UNSUPPORTED_PTX_VERSION "the PTX version is newer than this driver";
    223 JIT_COMPILATION_DISABLED "compiling PTX is disabled";
    224 UNSUPPORTED_EXEC_AFFINITY "the device has no such execution affinity";
    225 UNSUPPORTED_DEVSIDE_SYNC "the kernels synchronise on the device, which is not supported";
    226 CONTAINED "a contained error happened";
    300 INVALID_SOURCE "the kernels' source is not valid";
    301 FILE_NOT_FOUND "the file was not found";
    302 SHARED_OBJECT_SYMBOL_NOT_FOUND "a shared object lacks a symbol";
    303 SHARED_OBJECT_INIT_FAILED "a shared object could not be initialised";
    304 OPERATING_SYSTEM "an operating system call failed";
    400 INVALID_HANDLE "invalid handle";
    401 ILLEGAL_STATE "a resource is in a state that does not allow this";
    402 LOSSY_QUERY "the answer would have lost information";
    500 NOT_FOUND "the name was not found";
    600 NOT_READY "the work is not finished yet";
    700 ILLEGAL_ADDRESS "a kernel or copy touched memory that is not there";
    701 LAUNCH_OUT_OF_RESOURCES "the launch asked for too many resources";
    702 LAUNCH_TIMEOUT "the kernel ran for too long";
    703 LAUNCH_INCOMPATIBLE_TEXTURING "the launch's texturing mode does not fit";
    704 PEER_ACCESS_ALREADY_ENABLED "peer access is already enabled";
    705 PEER_ACCESS_NOT_ENABLED "peer access was not enabled";
    708 PRIMARY_CONTEXT_ACTIVE "the primary context is active";
    709 CONTEXT_IS_DESTROYED "the context is destroyed";
    710 ASSERT "a kernel's assertion failed";
    711 TOO_MANY_PEERS "too many peers";
    712 HOST_MEMORY_ALREADY_REGISTERED "part of this host memory is already registered";
    713 HOST_MEMORY_NOT_REGISTERED "this host memory is not registered";
    714 HARDWARE_STACK_ERROR "a kernel's stack is damaged";
    715 ILLEGAL_INSTRUCTION "a kernel met an illegal instruction";
    716 MISALIGNED_ADDRESS "a kernel used a misaligned address";
    717 INVALID_ADDRESS_SPACE "a kernel used an address of the wrong kind of memory";
    718 INVALID_PC "a kernel's program counter is not valid";
    719 LAUNCH_FAILED "a kernel failed";
    720 COOPERATIVE_LAUNCH_TOO_LARGE "the cooperative launch has more blocks than fit";
    721 TENSOR_MEMORY_LEAK "a kernel left tensor memory allocated";
    800 NOT_PERMITTED "not permitted";
    801 NOT_SUPPORTED "not supported";
    802 SYSTEM_NOT_READY "the system is not ready";
    803 SYSTEM_DRIVER_MISMATCH "driver and display driver do not fit each other";
    804 COMPAT_NOT_SUPPORTED_ON_DEVICE "forward compatibility is not supported on this device";
    805 MPS_CONNECTION_FAILED "the MPS client could not connect";
    806 MPS_RPC_FAILURE "the MPS server could not be reached";
    807 MPS_SERVER_NOT_READY "the MPS server is not ready";
    808 MPS_MAX_CLIENTS_REACHED "MPS has no room for another client";
    809 MPS_MAX_CONNECTIONS_REACHED "MPS has no room for another connection";
    810 MPS_CLIENT_TERMINATED "the MPS client was ended";
    811 CDP_NOT_SUPPORTED "launching from kernels is not supported";
    812 CDP_VERSION_MISMATCH "kernels launch with an interface of another version";
    900 STREAM_CAPTURE_UNSUPPORTED "not allowed while a stream is being captured";
    901 STREAM_CAPTURE_INVALIDATED "the capture was made invalid by an earlier call";
    902 STREAM_CAPTURE_MERGE "the call would have merged two captures";
    903 STREAM_CAPTURE_UNMATCHED "the capture was not begun in this stream";
    904 STREAM_CAPTURE_UNJOINED "a stream of the capture was not joined to its origin";
    905 STREAM_CAPTURE_ISOLATION "a dependency would have crossed the capture's border";
    906 STREAM_CAPTURE_IMPLICIT "the legacy stream would have depended on the capture";
    907 CAPTURED_EVENT "the event was last recorded in a capture";
    908 STREAM_CAPTURE_WRONG_THREAD "the capture was begun by another thread";
    909 TIMEOUT "the wait ran out of time";
    910 GRAPH_EXEC_UPDATE_FAILURE "the graph differs too much for an update";
    911 EXTERNAL_DEVICE "another device of the operation failed";
    912 INVALID_CLUSTER_SIZE "the cluster size is not valid";
    913 FUNCTION_NOT_LOADED "the function is not loaded";
    914 INVALID_RESOURCE_TYPE "the resource is of the wrong type";
    915 INVALID_RESOURCE_CONFIGURATION "the resources are not enough for this";
    916 KEY_ROTATION "the key is being rotated";
    917 STREAM_DETACHED "the stream's green context is gone";
    918 GRAPH_RECAPTURE_FAILURE "what is captured is not what the graph holds";
    919 FABRIC_NOT_READY "the fabric between GPUs is not ready";
    999 UNKNOWN "an unknown error";
}

/// Name and sentence of a code, if the driver knows it.
pub(crate) fn describe(code: u32) -> Option<(&'static CStr, &'static CStr)> {
    let at = ENTRIES.binary_search_by_key(&code, |entry| entry.code).ok()?;
    Some((ENTRIES[at].name, ENTRIES[at].text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_by_its_number_and_named_as_the_driver_names_it() {
        assert!(ENTRIES.is_sorted_by_key(|entry| entry.code));
        assert_eq!(describe(0).unwrap().0, c"CUDA_SUCCESS");
        assert_eq!(describe(700).unwrap().0, c"CUDA_ERROR_ILLEGAL_ADDRESS");
        assert!(describe(12345).is_none());
    }
}
