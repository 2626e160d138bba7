//! The driver's functions, found by their names.

use std::ffi::{c_char, c_int};

use libloading::Library;

/// A context, stream, event, function, pool …
pub(crate) type Handle = usize;
/// `CUipcMemHandle`, `CUipcEventHandle`, `CUmemPoolPtrExportData`
pub(crate) type Data = [u64; 8];

macro_rules! driver {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        /// The driver's entry points.
        #[allow(non_snake_case)]
        pub(crate) struct Driver {
            $($name: extern "C" fn($($type),*) -> u32,)*
            _library: Library,
        }

        #[allow(non_snake_case, clippy::too_many_arguments)]
        impl Driver {
            /// Opens `libcuda.so.1` and finds them all.
            pub(crate) fn open() -> Result<Self, libloading::Error> {
                // SAFETY: a CUDA driver library runs nothing of ours when it is loaded.
                let library = unsafe { Library::new("libcuda.so.1") }?;
                Ok(Self {
                    $(
                        // SAFETY: the signature that cuda.h gives this symbol; the library stays open.
                        $name: *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }?,
                    )*
                    _library: library,
                })
            }

            $(pub(crate) fn $name(&self, $($argument: $type),*) -> u32 {
                (self.$name)($($argument),*)
            })*
        }
    };
}

driver! {
    cuInit(flags: u32);
    cuDeviceGet(out: *mut c_int, index: c_int);
    cuDevicePrimaryCtxRetain(out: *mut Handle, device: c_int);
    cuCtxSetCurrent(context: Handle);
    cuLibraryLoadData(out: *mut Handle, image: *const u8, jit: usize, jit_values: usize, jit_count: u32,
        options: usize, option_values: usize, option_count: u32);
    cuLibraryGetKernel(out: *mut Handle, library: Handle, name: *const c_char);
    cuLaunchKernel(function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Handle, parameters: *const usize, extra: usize);
    cuMemAlloc_v2(out: *mut u64, bytes: usize);
    cuMemFree_v2(at: u64);
    cuMemFreeAsync(at: u64, stream: Handle);
    cuMemAllocFromPoolAsync(out: *mut u64, bytes: usize, pool: Handle, stream: Handle);
    cuMemcpyDtoHAsync_v2(to: usize, from: u64, bytes: usize, stream: Handle);
    cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, at: u64);
    cuMemCreate(out: *mut u64, bytes: usize, properties: *const Properties, flags: u64);
    cuMemRelease(handle: u64);
    cuMemAddressReserve(out: *mut u64, bytes: usize, alignment: usize, wish: u64, flags: u64);
    cuMemAddressFree(at: u64, bytes: usize);
    cuMemMap(at: u64, bytes: usize, offset: usize, handle: u64, flags: u64);
    cuMemUnmap(at: u64, bytes: usize);
    cuMemSetAccess(at: u64, bytes: usize, access: *const Access, count: usize);
    cuMemExportToShareableHandle(out: *mut c_int, handle: u64, kind: u32, flags: u64);
    cuMemImportFromShareableHandle(out: *mut u64, shared: usize, kind: u32);
    cuMemPoolCreate(out: *mut Handle, properties: *const PoolProperties);
    cuMemPoolDestroy(pool: Handle);
    cuMemPoolExportToShareableHandle(out: *mut c_int, pool: Handle, kind: u32, flags: u64);
    cuMemPoolImportFromShareableHandle(out: *mut Handle, shared: usize, kind: u32, flags: u64);
    cuMemPoolExportPointer(out: *mut Data, at: u64);
    cuMemPoolImportPointer(out: *mut u64, pool: Handle, data: *const Data);
    cuIpcGetMemHandle(out: *mut Data, at: u64);
    cuIpcOpenMemHandle_v2(out: *mut u64, handle: Data, flags: u32);
    cuIpcCloseMemHandle(at: u64);
    cuIpcGetEventHandle(out: *mut Data, event: Handle);
    cuIpcOpenEventHandle(out: *mut Handle, handle: Data);
    cuStreamCreate(out: *mut Handle, flags: u32);
    cuStreamSynchronize(stream: Handle);
    cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32);
    cuEventCreate(out: *mut Handle, flags: u32);
    cuEventDestroy_v2(event: Handle);
    cuEventRecord(event: Handle, stream: Handle);
    cuEventSynchronize(event: Handle);
}

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
pub(crate) const DESCRIPTOR: u32 = 1;

/// `CUmemAllocationProp`
#[repr(C)]
pub(crate) struct Properties {
    kind: u32,
    handle_types: u32,
    location: [u32; 2],
    more: [u64; 2],
}

/// `CUmemPoolProps`
#[repr(C)]
pub(crate) struct PoolProperties {
    kind: u32,
    handle_types: u32,
    location: [u32; 2],
    more: [u64; 9],
}

/// `CUmemAccessDesc`
#[repr(C)]
pub(crate) struct Access {
    location: [u32; 2],
    flags: u32,
}

/// Memory, a pool of the first GPU that can be exported as descriptors; and its access.
pub(crate) const MEMORY: Properties = Properties { kind: 1, handle_types: DESCRIPTOR, location: [1, 0], more: [0; 2] };
pub(crate) const POOL: PoolProperties =
    PoolProperties { kind: 1, handle_types: DESCRIPTOR, location: [1, 0], more: [0; 9] };
pub(crate) const FULL: Access = Access { location: [1, 0], flags: 3 };

const _: () = {
    assert!(size_of::<Properties>() == 32);
    assert!(size_of::<PoolProperties>() == 88);
    assert!(size_of::<Access>() == 12);
};

/// The kernels' text, with the zero byte that ends it.
pub(crate) const KERNELS: &str = concat!(include_str!("../../../../examples/kernels/kernels.ptx"), "\0");
