//! The coordinator's own use of the CUDA driver: the few calls that it makes, checked.
//!
//! # Safety
//!
//! The driver is opened by path and its functions are called with the signatures of `cuda.h`. Memory that is named to it (addresses,
//! handles, host ranges) belongs to the caller of the method. Methods that copy or fill are `unsafe` and state their conditions; the
//! others only make and name things.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use baton_contract::cuda::{
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE,
    CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, CUDA_ERROR_NO_DEVICE, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
    CUDA_ERROR_SYSTEM_NOT_READY, CUcontext, CUdevice, CUdeviceptr, CUmemAccessDesc, CUmemAllocationProp, CUmemLocation,
    CUresult, CUstream,
};
use libloading::Library;

pub use crate::device::error::GpuError;
pub(crate) use crate::device::error::check;
use crate::device::holders::Census;
use crate::device::pauser::Pauser;

impl GpuError {
    /// Returns advice for the user: a clause, if there is any.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Library { .. } | Self::Call { code: CUDA_ERROR_NO_DEVICE, .. } => {
                Some(baton_messages::INSTALL_THE_DRIVER)
            }
            Self::Call { code: CUDA_ERROR_SYSTEM_NOT_READY, .. } => Some(baton_messages::START_THE_FABRIC_MANAGER),
            Self::Call { code: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, .. } => Some(baton_messages::RESTART_THE_MACHINE),
            Self::Call { code: CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, .. } => {
                Some(baton_messages::DROP_THE_COMPATIBILITY_LIBRARY)
            }
            _ => None,
        }
    }
}

type Event = *mut c_void;
type Handle = u64;

const POSIX_DESCRIPTOR: c_int = 1;
const EVENT_DISABLE_TIMING: c_uint = 2;
const STREAM_NON_BLOCKING: c_uint = 1;
const REGISTER_PORTABLE: c_uint = 1;
const HOST_PORTABLE: c_uint = 1;

macro_rules! calls {
    ($($field:ident = $name:literal ($($type:ty),*);)*) => {
        /// The driver's functions.
        struct Calls {
            $($field: unsafe extern "C" fn($($type),*) -> CUresult,)*
        }

        impl Calls {
            /// Finds every function by name.
            ///
            /// # Safety
            ///
            /// The library is a CUDA driver, whose functions have the signatures of `cuda.h`.
            unsafe fn find(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: the signature that cuda.h gives this name, by this function's contract.
                    $($field: *unsafe { library.get($name.as_bytes()) }?,)*
                })
            }
        }
    };
}

calls! {
    init = "cuInit" (c_uint);
    driver_version = "cuDriverGetVersion" (*mut c_int);
    device_count = "cuDeviceGetCount" (*mut c_int);
    device_get = "cuDeviceGet" (*mut CUdevice, c_int);
    device_name = "cuDeviceGetName" (*mut c_char, c_int, CUdevice);
    device_uuid = "cuDeviceGetUuid_v2" (*mut [u8; 16], CUdevice);
    device_memory = "cuDeviceTotalMem_v2" (*mut usize, CUdevice);
    retain = "cuDevicePrimaryCtxRetain" (*mut CUcontext, CUdevice);
    set_current = "cuCtxSetCurrent" (CUcontext);
    memory_info = "cuMemGetInfo_v2" (*mut usize, *mut usize);
    reserve = "cuMemAddressReserve" (*mut CUdeviceptr, usize, usize, CUdeviceptr, u64);
    unreserve = "cuMemAddressFree" (CUdeviceptr, usize);
    create = "cuMemCreate" (*mut Handle, usize, *const CUmemAllocationProp, u64);
    release = "cuMemRelease" (Handle);
    map = "cuMemMap" (CUdeviceptr, usize, usize, Handle, u64);
    unmap = "cuMemUnmap" (CUdeviceptr, usize);
    set_access = "cuMemSetAccess" (CUdeviceptr, usize, *const CUmemAccessDesc, usize);
    export = "cuMemExportToShareableHandle" (*mut c_void, Handle, c_int, u64);
    import = "cuMemImportFromShareableHandle" (*mut Handle, *mut c_void, c_int);
    register = "cuMemHostRegister_v2" (*mut c_void, usize, c_uint);
    stream_create = "cuStreamCreate" (*mut CUstream, c_uint);
    event_create = "cuEventCreate" (*mut Event, c_uint);
    event_record = "cuEventRecord" (Event, CUstream);
    event_wait = "cuEventSynchronize" (Event);
    copy_in = "cuMemcpyHtoDAsync_v2" (CUdeviceptr, *const c_void, usize, CUstream);
    copy_out = "cuMemcpyDtoHAsync_v2" (*mut c_void, CUdeviceptr, usize, CUstream);
    copy_within = "cuMemcpyDtoDAsync_v2" (CUdeviceptr, CUdeviceptr, usize, CUstream);
    fill = "cuMemsetD8Async" (CUdeviceptr, u8, usize, CUstream);
    allocate = "cuMemAlloc_v2" (*mut CUdeviceptr, usize);
    free = "cuMemFree_v2" (CUdeviceptr);
    host_allocate = "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost" (*mut c_void);
    module_load = "cuModuleLoadData" (*mut *mut c_void, *const c_void);
    module_function = "cuModuleGetFunction" (*mut *mut c_void, *mut c_void, *const c_char);
    launch = "cuLaunchKernel" (*mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream,
        *const *mut c_void, *const *mut c_void);
}

impl Calls {
    /// Opens a driver and starts it.
    fn open(library: &Path) -> Result<(Self, ManuallyDrop<Library>), GpuError> {
        let fault = |error: &libloading::Error| {
            let said = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
            // The loader's message mostly begins with the library's name.
            let why = said.strip_prefix(&format!("{}: ", library.display())).unwrap_or(&said).to_owned();
            GpuError::Library { library: library.to_path_buf(), why }
        };
        // SAFETY: opening a driver runs its own start-up code, as it does in every CUDA program.
        let opened = unsafe { Library::new(library) }.map_err(|error| fault(&error))?;
        // A driver that was opened is never closed.
        let opened = ManuallyDrop::new(opened);
        // SAFETY: the user names this library as a CUDA driver.
        let calls = unsafe { Self::find(&opened) }.map_err(|error| fault(&error))?;
        // SAFETY: takes a number.
        check("cuInit", unsafe { (calls.init)(0) })?;
        Ok((calls, opened))
    }

    /// Returns the number of devices.
    fn count(&self) -> Result<usize, GpuError> {
        let mut count = 0;
        // SAFETY: an out-parameter.
        check("cuDeviceGetCount", unsafe { (self.device_count)(&mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Returns one of the devices, counted from 0.
    fn device(&self, number: usize) -> Result<CUdevice, GpuError> {
        let (count, mut device) = (self.count()?, 0);
        if number >= count {
            return Err(GpuError::NoSuchGpu { asked: number, count });
        }
        // SAFETY: an out-parameter.
        check("cuDeviceGet", unsafe { (self.device_get)(&mut device, number as c_int) })?;
        Ok(device)
    }

    fn uuid(&self, device: CUdevice) -> Result<[u8; 16], GpuError> {
        let mut uuid = [0; 16];
        // SAFETY: an out-parameter of the right size.
        check("cuDeviceGetUuid_v2", unsafe { (self.device_uuid)(&mut uuid, device) })?;
        Ok(uuid)
    }
}

/// A GPU, with the coordinator's context on it.
#[derive(Clone)]
pub struct Gpu {
    calls: Arc<Calls>,
    device: CUdevice,
    context: usize,
    /// Finds the processes that have memory of it.
    pub census: Census,
    /// Takes work off it.
    pub pauser: Pauser,
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: [u8; 16],
    /// All its memory, in bytes.
    pub memory: u64,
    /// The driver's version, as 1000 x major + 10 x minor of CUDA.
    pub driver_version: u32,
}

/// A piece of physical memory: mapped for ever in this process, and exported.
#[derive(Debug)]
pub struct Memory {
    handle: Handle,
    /// Its address in this process.
    pub address: CUdeviceptr,
    /// Its size.
    pub bytes: u64,
    /// The descriptor with which another process can import it.
    pub descriptor: Arc<OwnedFd>,
}

/// Another process's memory, for as long as this value lives.
pub struct Imported {
    gpu: Gpu,
    memory: Option<Memory>,
}

impl Imported {
    /// Returns its address in this process.
    pub fn address(&self) -> CUdeviceptr {
        self.memory.as_ref().map_or(0, |memory| memory.address)
    }
}

impl std::fmt::Debug for Imported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.memory.fmt(f)
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take()
            && let Err(error) = self.gpu.unmake(memory)
        {
            baton_messages::error!(release_failed(error));
        }
    }
}

/// A queue of copies or fills.
#[derive(Clone, Copy)]
pub struct Stream(CUstream);

// SAFETY: the driver's handles may be used from every thread.
unsafe impl Send for Stream {}

/// A mark in a queue.
pub struct Mark(Event);

// SAFETY: the driver's handles may be used from every thread.
unsafe impl Send for Mark {}

/// A function that runs on the device.
#[derive(Clone, Copy)]
pub struct Kernel(*mut c_void);

// SAFETY: the driver's handles may be used from every thread.
unsafe impl Send for Kernel {}

impl Gpu {
    /// Opens a driver and takes one of its GPUs into use.
    ///
    /// # Errors
    ///
    /// When the library is not a driver, or has no such GPU, or the GPU does not work.
    pub fn open(library: &Path, number: usize) -> Result<Self, GpuError> {
        let (calls, opened) = Calls::open(library)?;
        let device = calls.device(number)?;
        let (mut version, mut memory) = (0, 0);
        let (mut name, mut context) = ([0u8; 256], ptr::null_mut());
        let uuid = calls.uuid(device)?;
        // SAFETY: out-parameters of the right types that live over the calls; a buffer with its length.
        unsafe {
            check("cuDeviceGetName", (calls.device_name)(name.as_mut_ptr().cast(), name.len() as c_int, device))?;
            check("cuDriverGetVersion", (calls.driver_version)(&mut version))?;
            check("cuDeviceTotalMem_v2", (calls.device_memory)(&mut memory, device))?;
            check("cuDevicePrimaryCtxRetain", (calls.retain)(&mut context, device))?;
        }
        let name = String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
        let gpu = Self {
            calls: Arc::new(calls),
            device,
            context: context.expose_provenance(),
            census: Census::of(&opened),
            pauser: Pauser::of(uuid, &opened),
            name,
            uuid,
            memory: memory as u64,
            driver_version: u32::try_from(version).unwrap_or(0),
        };
        gpu.enter()?;
        Ok(gpu)
    }

    /// Returns the UUID of a driver's GPU, and the number of its GPUs. It takes none of them into use.
    ///
    /// # Errors
    ///
    /// When the library is not a driver, or has no such GPU.
    pub fn uuid_of(library: &Path, number: usize) -> Result<([u8; 16], usize), GpuError> {
        let (calls, _) = Calls::open(library)?;
        Ok((calls.uuid(calls.device(number)?)?, calls.count()?))
    }

    /// Makes this context the thread's. Every thread that uses the GPU calls it once.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub fn enter(&self) -> Result<(), GpuError> {
        // SAFETY: the context that `open` retained.
        check("cuCtxSetCurrent", unsafe { (self.calls.set_current)(ptr::with_exposed_provenance_mut(self.context)) })
    }

    /// Returns the unused device memory, in bytes.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub fn free_memory(&self) -> Result<u64, GpuError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: two out-parameters.
        check("cuMemGetInfo_v2", unsafe { (self.calls.memory_info)(&mut free, &mut total) })?;
        Ok(free as u64)
    }

    /// Makes a piece of memory of this size, a multiple of 2 MiB.
    ///
    /// # Errors
    ///
    /// The driver's errors; no memory is left behind.
    pub fn make(&self, bytes: u64) -> Result<Memory, GpuError> {
        let size = bytes as usize;
        let location = CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: self.device };
        let properties = CUmemAllocationProp {
            kind: CU_MEM_ALLOCATION_TYPE_PINNED,
            handle_types: POSIX_DESCRIPTOR,
            location,
            windows: ptr::null_mut(),
            flags: [0; 8],
        };
        let (mut handle, mut descriptor) = (0, -1);
        // SAFETY: structures of cuda.h's layout that live over the calls; a descriptor that the driver has just opened for this call.
        let descriptor = unsafe {
            check("cuMemCreate", (self.calls.create)(&mut handle, size, &properties, 0))?;
            let export = (self.calls.export)((&raw mut descriptor).cast(), handle, POSIX_DESCRIPTOR, 0);
            if let Err(error) = check("cuMemExportToShareableHandle", export) {
                (self.calls.release)(handle);
                return Err(error);
            }
            OwnedFd::from_raw_fd(descriptor)
        };
        let _ = rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::CLOEXEC);
        self.mapped(handle, bytes, descriptor)
    }

    /// Imports memory that another process has made and handed over by its descriptor.
    ///
    /// # Errors
    ///
    /// The driver's errors: the size, and that it is memory at all, are only the other process's claims.
    pub fn import(&self, descriptor: OwnedFd, bytes: u64) -> Result<Imported, GpuError> {
        Ok(Imported { gpu: self.clone(), memory: Some(self.adopt(descriptor, bytes)?) })
    }

    /// Takes over memory that another coordinator has made. It can be handed on by its descriptor, as before.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub fn adopt(&self, descriptor: OwnedFd, bytes: u64) -> Result<Memory, GpuError> {
        let mut handle = 0;
        let number = ptr::without_provenance_mut(descriptor.as_raw_fd() as usize);
        // SAFETY: an out-parameter, and a descriptor in place of a pointer, as cuda.h wants it.
        check("cuMemImportFromShareableHandle", unsafe { (self.calls.import)(&mut handle, number, POSIX_DESCRIPTOR) })?;
        self.mapped(handle, bytes, descriptor)
    }

    /// Maps a handle. This value then owns it; on a failure it is released.
    fn mapped(&self, handle: Handle, bytes: u64, descriptor: OwnedFd) -> Result<Memory, GpuError> {
        let size = bytes as usize;
        let location = CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: self.device };
        let access = CUmemAccessDesc { location, flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        let mut address = 0;
        // SAFETY: structures of cuda.h's layout that live over the calls; on a failure, the steps before are undone in reverse order.
        unsafe {
            if let Err(error) = check("cuMemAddressReserve", (self.calls.reserve)(&mut address, size, 0, 0, 0)) {
                (self.calls.release)(handle);
                return Err(error);
            }
            let mapped = check("cuMemMap", (self.calls.map)(address, size, 0, handle, 0)).and_then(|()| {
                check("cuMemSetAccess", (self.calls.set_access)(address, size, &access, 1)).inspect_err(|_| {
                    (self.calls.unmap)(address, size);
                })
            });
            if let Err(error) = mapped {
                (self.calls.unreserve)(address, size);
                (self.calls.release)(handle);
                return Err(error);
            }
            Ok(Memory { handle, address, bytes, descriptor: descriptor.into() })
        }
    }

    /// Gives a piece of memory back to the device. Other processes that still have it mapped keep it.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub fn unmake(&self, memory: Memory) -> Result<(), GpuError> {
        let size = memory.bytes as usize;
        // SAFETY: made by `mapped`, and passed by value: it is used nowhere else.
        unsafe {
            check("cuMemUnmap", (self.calls.unmap)(memory.address, size))?;
            check("cuMemAddressFree", (self.calls.unreserve)(memory.address, size))?;
            check("cuMemRelease", (self.calls.release)(memory.handle))
        }
    }

    /// Registers host memory with the device, so that copies run at full speed and asynchronously.
    ///
    /// # Safety
    ///
    /// The range is mapped and stays so for as long as the process lives.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub unsafe fn register(&self, address: *mut c_void, bytes: usize) -> Result<(), GpuError> {
        // SAFETY: by this function's contract.
        check("cuMemHostRegister_v2", unsafe { (self.calls.register)(address, bytes, REGISTER_PORTABLE) })
    }

    /// Makes a queue.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub fn stream(&self) -> Result<Stream, GpuError> {
        let mut stream = ptr::null_mut();
        // SAFETY: an out-parameter.
        check("cuStreamCreate", unsafe { (self.calls.stream_create)(&mut stream, STREAM_NON_BLOCKING) })?;
        Ok(Stream(stream))
    }

    /// Makes a mark.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub fn mark(&self) -> Result<Mark, GpuError> {
        let mut event = ptr::null_mut();
        // SAFETY: an out-parameter.
        check("cuEventCreate", unsafe { (self.calls.event_create)(&mut event, EVENT_DISABLE_TIMING) })?;
        Ok(Mark(event))
    }

    /// Sets the mark behind all work that is in the queue now.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub fn set(&self, mark: &Mark, stream: Stream) -> Result<(), GpuError> {
        // SAFETY: an event and a stream of this driver.
        check("cuEventRecord", unsafe { (self.calls.event_record)(mark.0, stream.0) })
    }

    /// Waits until the queue has passed the mark.
    ///
    /// # Errors
    ///
    /// The driver's errors, including those of earlier work in the queue.
    pub fn wait(&self, mark: &Mark) -> Result<(), GpuError> {
        // SAFETY: an event of this driver.
        check("cuEventSynchronize", unsafe { (self.calls.event_wait)(mark.0) })
    }

    /// Queues a copy to the device.
    ///
    /// # Safety
    ///
    /// Both ranges are valid, and no other code writes either, or reads the target, until the queue has passed it.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub unsafe fn copy_in(&self, to: CUdeviceptr, from: *const c_void, bytes: u64, s: Stream) -> Result<(), GpuError> {
        // SAFETY: by this function's contract.
        check("cuMemcpyHtoDAsync_v2", unsafe { (self.calls.copy_in)(to, from, bytes as usize, s.0) })
    }

    /// Queues a copy to the host.
    ///
    /// # Safety
    ///
    /// As for [`Gpu::copy_in`].
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub unsafe fn copy_out(&self, to: *mut c_void, from: CUdeviceptr, bytes: u64, s: Stream) -> Result<(), GpuError> {
        // SAFETY: by this function's contract.
        check("cuMemcpyDtoHAsync_v2", unsafe { (self.calls.copy_out)(to, from, bytes as usize, s.0) })
    }

    /// Queues a copy within the device's memory.
    ///
    /// # Safety
    ///
    /// As for [`Gpu::copy_in`].
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub unsafe fn copy_within(
        &self,
        to: CUdeviceptr,
        from: CUdeviceptr,
        bytes: u64,
        s: Stream,
    ) -> Result<(), GpuError> {
        // SAFETY: by this function's contract.
        check("cuMemcpyDtoDAsync_v2", unsafe { (self.calls.copy_within)(to, from, bytes as usize, s.0) })
    }

    /// Queues a fill.
    ///
    /// # Safety
    ///
    /// As for [`Gpu::copy_in`]: no other code uses the memory until the queue has passed it.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub unsafe fn fill(&self, at: CUdeviceptr, value: u8, bytes: u64, s: Stream) -> Result<(), GpuError> {
        // SAFETY: by this function's contract.
        check("cuMemsetD8Async", unsafe { (self.calls.fill)(at, value, bytes as usize, s.0) })
    }
}

/// Memory and kernels of the coordinator's own.
impl Gpu {
    /// Allocates device memory that no other process sees.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub fn allocate(&self, bytes: u64) -> Result<CUdeviceptr, GpuError> {
        let mut address = 0;
        // SAFETY: an out-parameter.
        check("cuMemAlloc_v2", unsafe { (self.calls.allocate)(&mut address, bytes as usize) })?;
        Ok(address)
    }

    /// Frees memory of [`Gpu::allocate`]. The driver waits for work that uses it.
    ///
    /// # Safety
    ///
    /// It is [`Gpu::allocate`]'s, and is not used from now on.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub unsafe fn free(&self, address: CUdeviceptr) -> Result<(), GpuError> {
        // SAFETY: by this function's contract.
        check("cuMemFree_v2", unsafe { (self.calls.free)(address) })
    }

    /// Allocates pinned host memory, aligned to a page.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub fn allocate_host(&self, bytes: usize) -> Result<*mut c_void, GpuError> {
        let mut address = ptr::null_mut();
        // SAFETY: an out-parameter.
        check("cuMemHostAlloc", unsafe { (self.calls.host_allocate)(&mut address, bytes, HOST_PORTABLE) })?;
        Ok(address)
    }

    /// Frees memory of [`Gpu::allocate_host`].
    ///
    /// # Safety
    ///
    /// It is [`Gpu::allocate_host`]'s, and is not used from now on.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub unsafe fn free_host(&self, address: *mut c_void) -> Result<(), GpuError> {
        // SAFETY: by this function's contract.
        check("cuMemFreeHost", unsafe { (self.calls.host_free)(address) })
    }

    /// Loads a PTX text for good and finds a kernel in it.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub fn kernel(&self, ptx: &CStr, name: &CStr) -> Result<Kernel, GpuError> {
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: out-parameters, and texts that end with a zero.
        unsafe {
            check("cuModuleLoadData", (self.calls.module_load)(&mut module, ptx.as_ptr().cast()))?;
            check("cuModuleGetFunction", (self.calls.module_function)(&mut function, module, name.as_ptr()))?;
        }
        Ok(Kernel(function))
    }

    /// Queues a kernel, in a row of blocks of `threads` threads.
    ///
    /// # Safety
    ///
    /// The arguments point to values of the types of the kernel's parameters, and the kernel's use of them is sound until the queue has
    /// passed it.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub unsafe fn launch(
        &self,
        kernel: Kernel,
        blocks: u32,
        threads: u32,
        arguments: &[*mut c_void],
        s: Stream,
    ) -> Result<(), GpuError> {
        let list = arguments.as_ptr();
        // SAFETY: by this function's contract; the driver copies the arguments before it returns.
        check("cuLaunchKernel", unsafe {
            (self.calls.launch)(kernel.0, blocks, 1, 1, threads, 1, 1, 0, s.0, list, ptr::null())
        })
    }
}
