//! The driver's functions that we call ourselves, with the C signatures of `cuda.h`.
//!
//! **None of them waits for the GPU**, so that a caller is never kept from doing what the GPU waits for; and none puts anything into the
//! legacy default stream, where it would order streams that the program did not order. A function that queues work takes an [`Ordered`]
//! stream, which the legacy stream is not. A function that is part of the program's own call in a stream takes any [`Stream`], and its doc
//! says so.
//!
//! Some wait for a thread of the program that is stuck in the driver: with a stream whose queue is full, or until a context's work has
//! ended. In debug builds they panic where [a thread must not wait](MustNotWait).

use core::cell::Cell;
use core::ffi::{c_int, c_uint, c_void};
use core::marker::PhantomData;
use core::ptr;
use std::os::fd::{FromRawFd as _, OwnedFd};

use baton_contract::cuda::*;

use super::functions;
use super::symbols::index;

/// An event (`CUevent`).
pub(crate) type CUevent = *mut c_void;

/// A handle of the driver's, as a number.
pub(crate) type Handle = usize;

/// A handle as the driver takes it.
pub(crate) fn handle(number: Handle) -> *mut c_void {
    ptr::with_exposed_provenance_mut(number)
}

/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

/// A stream: the meaning of its handle depends on the function's twin that it is given to, and on the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stream {
    /// The default stream of all threads that do not have their own: ordered with all blocking streams of its context.
    Legacy,
    /// The calling thread's own default stream.
    PerThread,
    /// A stream that the program made.
    Created(Handle),
}

impl Stream {
    /// The stream that a handle means to a function, which may be a per-thread default stream twin (`…_ptds`, `…_ptsz`).
    fn named(stream: CUstream, is_per_thread: bool) -> Self {
        match stream.expose_provenance() {
            0 if is_per_thread => Self::PerThread,
            0 | LEGACY => Self::Legacy,
            PER_THREAD => Self::PerThread,
            made => Self::Created(made),
        }
    }

    /// The stream that a handle means to the function with this index.
    #[inline]
    pub(crate) fn of<const INDEX: usize>(stream: CUstream) -> Self {
        Self::named(stream, const { super::symbols::PER_THREAD[INDEX] })
    }

    /// The stream as one in which work can be queued without ordering other streams.
    pub(crate) fn ordered(self) -> Option<Ordered> {
        match self {
            Self::Legacy => None,
            Self::PerThread => Some(Ordered(PER_THREAD)),
            Self::Created(stream) => Some(Ordered(stream)),
        }
    }

    /// The stream as a handle for questions, which queue no work in it.
    fn asked(self) -> CUstream {
        handle(match self {
            Self::Legacy => LEGACY,
            Self::PerThread => PER_THREAD,
            Self::Created(stream) => stream,
        })
    }
}

/// A stream that orders nothing but itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ordered(Handle);
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const POSIX_DESCRIPTOR: c_int = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub(crate) const CAPTURE_RELAXED: c_int = 2;

/// `CU_STREAM_NON_BLOCKING`.
pub(crate) const NON_BLOCKING: c_uint = 1;
/// `CU_STREAM_CAPTURE_STATUS_NONE`.
pub(crate) const NOT_CAPTURING: c_int = 0;
/// `CU_STREAM_WAIT_VALUE_GEQ`.
const WAIT_VALUE_GEQ: c_uint = 0;
/// `CU_MEMHOSTREGISTER_DEVICEMAP`.
const HOST_REGISTER_DEVICEMAP: c_uint = 2;
/// `CU_EVENT_DISABLE_TIMING`.
pub(crate) const EVENT_DISABLE_TIMING: c_uint = 2;

macro_rules! calls {
    ($($visible:vis $name:ident = $symbol:ident ($($argument:ident: $type:ty),*);)*) => {
        $(
            /// The driver's function.
            ///
            /// # Safety
            ///
            /// As in cuda.h.
            $visible unsafe fn $name($($argument: $type),*) -> CUresult {
                type Function = unsafe extern "C-unwind" fn($($type),*) -> CUresult;
                // SAFETY: a function pointer of the signature that cuda.h gives this symbol.
                let function: Function = unsafe { core::mem::transmute(functions::original(index::$symbol)) };
                // SAFETY: by this function's contract.
                unsafe { function($($argument),*) }
            }
        )*

        /// Finds all of these functions now: later, a thread that waits for this one may hold the loader's lock.
        pub(crate) fn find_all() {
            $(functions::original(index::$symbol);)*
        }
    };
}

calls! {
    pub(crate) device_count = cuDeviceGetCount(count: *mut c_int);
    raw_device_attribute = cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: CUdevice);
    raw_pointer_attribute = cuPointerGetAttribute(value: *mut c_void, attribute: c_int, address: CUdeviceptr);
    pub(crate) device_uuid = cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: CUdevice);
    pub(crate) primary_retain = cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    pub(crate) primary_release = cuDevicePrimaryCtxRelease_v2(device: CUdevice);
    pub(crate) primary_state = cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int);
    pub(crate) current = cuCtxGetCurrent(context: *mut CUcontext);
    pub(crate) current_device = cuCtxGetDevice(device: *mut CUdevice);
    raw_context_id = cuCtxGetId(context: CUcontext, id: *mut u64);
    pub(crate) push = cuCtxPushCurrent_v2(context: CUcontext);
    pub(crate) pop = cuCtxPopCurrent_v2(context: *mut CUcontext);
    pub(crate) exchange_capture_mode = cuThreadExchangeStreamCaptureMode(mode: *mut c_int);
    raw_is_capturing = cuStreamIsCapturing(stream: CUstream, status: *mut c_int);
    raw_stream_context = cuStreamGetCtx(stream: CUstream, context: *mut CUcontext);
    raw_stream_query = cuStreamQuery(stream: CUstream);
    pub(crate) checkpoint_state = cuCheckpointProcessGetState(process: c_int, state: *mut c_int);
    raw_synchronize = cuStreamSynchronize(stream: CUstream);
    event_create = cuEventCreate(event: *mut CUevent, flags: c_uint);
    raw_event_record = cuEventRecord(event: CUevent, stream: CUstream);
    pub(crate) event_query = cuEventQuery(event: CUevent);
    pub(crate) reserve = cuMemAddressReserve(address: *mut CUdeviceptr, bytes: usize, alignment: usize, wish: CUdeviceptr, flags: u64);
    pub(crate) create = cuMemCreate(handle: *mut u64, bytes: usize, properties: *const CUmemAllocationProp, flags: u64);
    raw_export = cuMemExportToShareableHandle(descriptor: *mut c_void, handle: u64, kind: c_int, flags: u64);
    pub(crate) import = cuMemImportFromShareableHandle(handle: *mut u64, descriptor: *mut c_void, kind: c_int);
    pub(crate) map = cuMemMap(address: CUdeviceptr, bytes: usize, offset: usize, handle: u64, flags: u64);
    pub(crate) unmap = cuMemUnmap(address: CUdeviceptr, bytes: usize);
    pub(crate) get_access = cuMemGetAccess(flags: *mut u64, location: *const CUmemLocation, address: CUdeviceptr);
    pub(crate) set_access = cuMemSetAccess(address: CUdeviceptr, bytes: usize, access: *const CUmemAccessDesc, count: usize);
    pub(crate) release = cuMemRelease(handle: u64);
    pub(crate) function_parameter = cuFuncGetParamInfo(function: CUfunction, at: usize, offset: *mut usize, size: *mut usize);
    pub(crate) kernel_parameter = cuKernelGetParamInfo(kernel: CUfunction, at: usize, offset: *mut usize, size: *mut usize);
    pub(crate) graph_nodes = cuGraphGetNodes(graph: *mut c_void, nodes: *mut *mut c_void, count: *mut usize);
    pub(crate) node_kind = cuGraphNodeGetType(node: *mut c_void, kind: *mut c_int);
    pub(crate) kernel_node = cuGraphKernelNodeGetParams_v2(node: *mut c_void, out: *mut c_void);
    pub(crate) copy_node = cuGraphMemcpyNodeGetParams(node: *mut c_void, out: *mut c_void);
    pub(crate) fill_node = cuGraphMemsetNodeGetParams(node: *mut c_void, out: *mut c_void);
    pub(crate) allocation_node = cuGraphMemAllocNodeGetParams(node: *mut c_void, out: *mut c_void);
    pub(crate) graph_memory = cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: c_int, value: *mut c_void);
    pub(crate) child_graph = cuGraphChildGraphNodeGetGraph(node: *mut c_void, graph: *mut *mut c_void);
    pub(crate) context_record = cuCtxRecordEvent(context: CUcontext, event: CUevent);
    raw_stream_create = cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    raw_copy_out = cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    raw_wait_event = cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    pub(crate) current_pool = cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    pub(crate) default_pool = cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    pub(crate) pool_attribute = cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_int, value: *mut c_void);
    raw_host_alloc = cuMemHostAlloc(out: *mut *mut c_void, bytes: usize, flags: c_uint);
    raw_host_register = cuMemHostRegister_v2(at: *mut c_void, bytes: usize, flags: c_uint);
    raw_host_address = cuMemHostGetDevicePointer_v2(out: *mut CUdeviceptr, at: *mut c_void, flags: c_uint);
    raw_wait_value = cuStreamWaitValue32_v2(stream: CUstream, at: CUdeviceptr, value: u32, flags: c_uint);
}

thread_local! {
    /// The number of [`MustNotWait`] values of this thread.
    static MUST_NOT_WAIT: Cell<u32> = const { Cell::new(0) };
}

fn change_must_not_wait(change: impl Fn(u32) -> u32) {
    if cfg!(debug_assertions) {
        // A thread that is ending makes no more calls.
        let _ = MUST_NOT_WAIT.try_with(|count| count.set(change(count.get())));
    }
}

/// Until this is dropped, its thread makes no call that may wait for another thread: because the program's own call would not, or because
/// others wait for this thread. Only debug builds check that.
#[must_use = "it ends when this is dropped"]
pub(crate) struct MustNotWait(PhantomData<*const ()>);

impl MustNotWait {
    pub(crate) fn begin() -> Self {
        change_must_not_wait(|count| count + 1);
        Self(PhantomData)
    }
}

impl Drop for MustNotWait {
    fn drop(&mut self) {
        change_must_not_wait(|count| count - 1);
    }
}

/// Runs a closure that may wait in other places, but waits for no thread here: no thread is stuck, or the program's own call waits for the
/// same.
pub(crate) fn where_nobody_is_stuck<T>(what: impl FnOnce() -> T) -> T {
    let before = MUST_NOT_WAIT.try_with(Cell::get).unwrap_or(0);
    change_must_not_wait(|_| 0);
    let done = what();
    change_must_not_wait(|_| before);
    done
}

/// Checks that this thread may call a function that may wait for a thread that is stuck in the driver.
#[track_caller]
fn may_wait(function: &str) {
    if cfg!(debug_assertions) {
        let must_not = MUST_NOT_WAIT.try_with(Cell::get).unwrap_or(0) != 0;
        assert!(!must_not, "{function} may wait, and this thread must not");
    }
}

/// Until this is dropped, this thread's captures do not forbid our calls.
pub(crate) struct Relaxed(c_int);

impl Relaxed {
    pub(crate) fn enter() -> Self {
        let mut mode = CAPTURE_RELAXED;
        // SAFETY: exchanges the thread's own setting with the given one.
        unsafe { exchange_capture_mode(&mut mode) };
        Self(mode)
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // SAFETY: as above; the mode is the one that the driver gave.
        unsafe { exchange_capture_mode(&mut self.0) };
    }
}

/// The bit of a GPU in a word that holds a set of GPUs.
pub(crate) fn bit(device: CUdevice) -> u64 {
    1 << (device as u32 % u64::BITS)
}

/// A device's UUID; `None` if CUDA does not work in this process.
pub(crate) fn uuid(device: CUdevice) -> Option<[u8; 16]> {
    let mut uuid = [0; 16];
    // SAFETY: an out-parameter of the right type.
    (unsafe { device_uuid(&mut uuid, device) } == CUDA_SUCCESS).then_some(uuid)
}

/// The thread's context.
pub(crate) fn current_context() -> Handle {
    let mut context = ptr::null_mut();
    // SAFETY: an out-parameter.
    unsafe { current(&mut context) };
    context.expose_provenance()
}

/// The number of a context, which is never reused (since CUDA 12.0). An error is the driver's; for a context that has gone it is [one of
/// these](is_of_no_context).
pub(crate) fn context_number(context: Handle) -> Result<u64, CUresult> {
    let mut number = 0;
    // SAFETY: a handle, which the driver refuses if it is no context's, and an out-parameter.
    let answer = unsafe { raw_context_id(handle(context), &mut number) };
    if answer == CUDA_SUCCESS { Ok(number) } else { Err(answer) }
}

/// True if this is the driver's answer about a context that has gone, or of a driver that has shut down.
pub(crate) fn is_of_no_context(answer: CUresult) -> bool {
    matches!(answer, CUDA_ERROR_INVALID_CONTEXT | CUDA_ERROR_CONTEXT_IS_DESTROYED | CUDA_ERROR_DEINITIALIZED)
}

/// The context and the GPU of a stream that has a handle of its own, as the driver answers.
///
/// # Safety
///
/// A stream of the program's.
pub(crate) unsafe fn place_of_stream(stream: CUstream) -> Option<(Handle, CUdevice)> {
    if !matches!(Stream::named(stream, false), Stream::Created(_)) {
        return None;
    }
    let mut device = -1;
    // SAFETY: by this function's contract.
    let context = unsafe { context_of_stream(stream) }?;
    // SAFETY: an out-parameter.
    let answer = within(context, || unsafe { current_device(&mut device) });
    (answer == Some(CUDA_SUCCESS)).then_some((context, device))
}

/// The context of a stream that has a handle of its own, as the driver answers.
unsafe fn context_of_stream(stream: CUstream) -> Option<Handle> {
    let mut context = ptr::null_mut();
    // SAFETY: a stream of the program's, by the callers' contracts; an out-parameter.
    let answer = unsafe { raw_stream_context(stream, &mut context) };
    (answer == CUDA_SUCCESS).then(|| context.expose_provenance())
}

/// True if a stream certainly belongs to the current context. Default streams do; for a stream of a green context the driver names another
/// context, or none.
///
/// # Safety
///
/// A stream of the program's.
pub(crate) unsafe fn is_of_current_context(stream: Stream) -> bool {
    // SAFETY: by this function's contract.
    let of = || unsafe { context_of_stream(stream.asked()) };
    !matches!(stream, Stream::Created(_)) || of() == Some(current_context())
}

/// Runs a closure with a context current, if that still works.
pub(crate) fn within<T>(context: Handle, what: impl FnOnce() -> T) -> Option<T> {
    if context != 0 && current_context() == context {
        return Some(what());
    }
    // SAFETY: a context of the program's, which the driver refuses if it is gone.
    if unsafe { push(handle(context)) } != CUDA_SUCCESS {
        return None;
    }
    let done = what();
    let mut popped = ptr::null_mut();
    // SAFETY: an out-parameter.
    unsafe { pop(&mut popped) };
    Some(done)
}

/// Makes an event without times in the current context.
pub(crate) fn new_event() -> Option<Handle> {
    may_wait("cuEventCreate");
    let mut event = ptr::null_mut();
    // SAFETY: an out-parameter.
    let answer = unsafe { event_create(&mut event, EVENT_DISABLE_TIMING) };
    (answer == CUDA_SUCCESS).then(|| event.expose_provenance())
}

/// Makes a stream in the current context.
pub(crate) fn new_stream(flags: c_uint) -> Option<Handle> {
    may_wait("cuStreamCreate");
    let mut stream = ptr::null_mut();
    // SAFETY: an out-parameter.
    let answer = unsafe { raw_stream_create(&mut stream, flags) };
    (answer == CUDA_SUCCESS).then(|| stream.expose_provenance())
}

/// Allocates pinned host memory in the current context, and returns its address.
pub(crate) fn new_host_memory(bytes: usize, flags: c_uint) -> Option<Handle> {
    may_wait("cuMemHostAlloc");
    let mut at = ptr::null_mut();
    // SAFETY: an out-parameter.
    let answer = unsafe { raw_host_alloc(&mut at, bytes, flags) };
    (answer == CUDA_SUCCESS).then(|| at.expose_provenance())
}

/// Returns a descriptor by which others can have a handle's memory.
pub(crate) fn descriptor_of(handle: u64) -> Result<OwnedFd, CUresult> {
    let mut descriptor: c_int = -1;
    // SAFETY: an out-parameter of the right type; a handle that the driver refuses if there is none such.
    match unsafe { raw_export((&raw mut descriptor).cast(), handle, POSIX_DESCRIPTOR, 0) } {
        // SAFETY: the driver has just opened it for us.
        CUDA_SUCCESS => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        answer => Err(answer),
    }
}

/// Puts an event behind a stream's work.
///
/// # Safety
///
/// An event and a stream of the current context.
pub(crate) unsafe fn event_record(event: Handle, stream: Ordered) -> CUresult {
    may_wait("cuEventRecord");
    // SAFETY: by this function's contract.
    unsafe { raw_event_record(handle(event), handle(stream.0)) }
}

/// Puts an event behind the legacy stream's work, in place of a call of the program that orders all blocking streams so.
///
/// # Safety
///
/// An event of the current context.
pub(crate) unsafe fn event_record_in_legacy(event: Handle) -> CUresult {
    may_wait("cuEventRecord");
    // SAFETY: by this function's contract.
    unsafe { raw_event_record(handle(event), handle(LEGACY)) }
}

/// Makes a stream of the program's wait for an event, as a part of a call that the program makes in that stream: in place of the order
/// that the driver would make. No thread waits here.
///
/// # Safety
///
/// A stream of the current context, and an event.
pub(crate) unsafe fn wait_event(stream: Stream, event: Handle) -> CUresult {
    // SAFETY: by this function's contract.
    unsafe { raw_wait_event(stream.asked(), handle(event), 0) }
}

/// Makes a stream wait until a word is not behind a value, counting cyclically: **only directly before a launch** that the program makes
/// in the same stream, by the same thread.
///
/// That may be the legacy stream. There it is a barrier between all blocking streams; but so is the launch, which comes behind the same
/// work and before the same work as this. Work that others queue between the two waits for the word without need, and would have waited
/// for the launch. If the driver then refuses the launch, the barrier is needless, and lasts until the word is written. No thread waits
/// here, except for room in a full queue, as the launch would.
///
/// # Safety
///
/// A stream of the current context that does not capture, and a word that this context can access for as long as work of it can run.
pub(crate) unsafe fn wait_before_launch(stream: Stream, word: CUdeviceptr, value: u32) -> CUresult {
    // SAFETY: by this function's contract.
    unsafe { raw_wait_value(stream.asked(), word, value, WAIT_VALUE_GEQ) }
}

/// Gives the current context access to host memory, and returns the address for that. The memory has to stay for as long as the context.
///
/// # Safety
///
/// Host memory of this size.
pub(crate) unsafe fn register_host(at: *mut c_void, bytes: usize) -> Option<CUdeviceptr> {
    may_wait("cuMemHostRegister");
    let mut address = 0;
    // SAFETY: by this function's contract, and an out-parameter.
    let done = unsafe {
        raw_host_register(at, bytes, HOST_REGISTER_DEVICEMAP) == CUDA_SUCCESS
            && raw_host_address(&mut address, at, 0) == CUDA_SUCCESS
    };
    done.then_some(address)
}

/// The driver's answer to a stream that the program names, which may not exist.
///
/// # Safety
///
/// A stream as the driver takes it.
pub(crate) unsafe fn check_stream(stream: Stream) -> CUresult {
    let mut status = NOT_CAPTURING;
    // SAFETY: by this function's contract, and an out-parameter. The question disturbs nothing.
    unsafe { raw_is_capturing(stream.asked(), &mut status) }
}

/// Copies from the device, in a stream's order. Does not wait, if `to` is pinned.
///
/// # Safety
///
/// As in cuda.h for `cuMemcpyDtoHAsync`.
pub(crate) unsafe fn copy_out(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: Ordered) -> CUresult {
    may_wait("cuMemcpyDtoHAsync");
    // SAFETY: by this function's contract.
    unsafe { raw_copy_out(to, from, bytes, handle(stream.0)) }
}

/// Tells whether all work in a stream has ended, as the driver answers.
///
/// # Safety
///
/// A stream of the current context, which does not capture.
pub(crate) unsafe fn stream_query(stream: Stream) -> CUresult {
    may_wait("cuStreamQuery");
    // SAFETY: by this function's contract.
    unsafe { raw_stream_query(stream.asked()) }
}

/// Waits until all work in a stream has ended, as the program would.
///
/// # Safety
///
/// A stream of the current context, which does not capture.
pub(crate) unsafe fn synchronize(stream: Stream) -> CUresult {
    may_wait("cuStreamSynchronize");
    // SAFETY: by this function's contract.
    unsafe { raw_synchronize(stream.asked()) }
}

/// True if a stream captures; for the legacy stream, true if it must not be asked about, because a blocking stream captures.
///
/// # Safety
///
/// A stream of the current context.
pub(crate) unsafe fn is_capturing(stream: Stream) -> bool {
    // SAFETY: by this function's contract.
    let captures = unsafe { captures(stream) };
    captures != Some(false)
}

/// True if a stream captures, also if the capture is invalidated; none if the driver does not say.
///
/// # Safety
///
/// A stream of the program's own call: the driver answers for a wrong one as that call would.
pub(crate) unsafe fn captures(stream: Stream) -> Option<bool> {
    let mut status = NOT_CAPTURING;
    // SAFETY: by this function's contract, and an out-parameter. The question disturbs nothing.
    let answer = unsafe { raw_is_capturing(stream.asked(), &mut status) };
    (answer == CUDA_SUCCESS).then_some(status != NOT_CAPTURING)
}

/// True if kernels on a device read all memory of the process by themselves, memory of `malloc` too; false if the driver does not say.
pub(crate) fn reads_pages(device: CUdevice) -> bool {
    /// `CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS`.
    const PAGEABLE_MEMORY_ACCESS: c_int = 88;
    let mut does = 0;
    // SAFETY: an out-parameter.
    unsafe { raw_device_attribute(&mut does, PAGEABLE_MEMORY_ACCESS, device) == CUDA_SUCCESS && does != 0 }
}

/// True if memory is managed; `None` if the driver does not say.
pub(crate) fn is_managed(address: CUdeviceptr) -> Option<bool> {
    /// `CU_POINTER_ATTRIBUTE_IS_MANAGED`.
    const IS_MANAGED: c_int = 8;
    let mut is = 0u32;
    // SAFETY: an out-parameter, of which the driver writes no more than this.
    let answer = unsafe { raw_pointer_attribute((&raw mut is).cast(), IS_MANAGED, address) };
    (answer == CUDA_SUCCESS).then_some(is != 0)
}

/// True if events can be put behind all work of a context (since CUDA 12.5).
pub(crate) fn has_context_events() -> bool {
    functions::exists(index::cuCtxRecordEvent)
}

/// True if a device's primary context is active.
pub(crate) fn primary_is_active(device: CUdevice) -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: two out-parameters.
    unsafe { primary_state(device, &mut flags, &mut active) == CUDA_SUCCESS && active != 0 }
}

/// A device's primary context, if it is active.
pub(crate) fn primary_of(device: CUdevice) -> Option<Handle> {
    may_wait("cuDevicePrimaryCtxRetain");
    let mut context = ptr::null_mut();
    // SAFETY: an out-parameter; the context is released after it was retained.
    unsafe {
        if !primary_is_active(device) || primary_retain(&mut context, device) != CUDA_SUCCESS {
            return None;
        }
        primary_release(device);
    }
    Some(context.expose_provenance())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    fn what_may_wait_panics_where_nobody_must() {
        let panics = |what: fn()| std::panic::catch_unwind(what).is_err();
        let waits = || may_wait("cuEventCreate");
        assert!(!panics(waits));
        let must_not_wait = MustNotWait::begin();
        assert!(panics(waits));
        assert!(!panics(|| where_nobody_is_stuck(|| may_wait("cuEventCreate"))));
        assert!(panics(waits), "only there");
        drop(must_not_wait);
        assert!(!panics(waits));
    }
}
