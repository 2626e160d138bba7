//! The table of hooks: every function that Baton intercepts, with its C signature and its [effects](super::effects).
//!
//! Names are the driver's own. The driver chooses the version that a program asks for (see [`crate::hooks::procaddress`]); the name of
//! each version is in `symbols/cuda.json`.
//!
//! - `launched in stream`: a gated call that queues work in that stream (or the one that a launch's `config` names): while
//!   another tenant waits for the GPU, such calls are counted. For its memory the stream may wait in place of the call.
//! - `gated over [address => bytes]`: a gated call that needs these ranges, and fails if one of ours is not inside an
//!   allocation.
//!   `bringing` names the data that comes to the device by it ([`crate::arrival::brings`]), or `Nothing`.
//! - `gated over all [address => bytes]`: a gated call that accesses these ranges, and may need more.
//! - `copied over …`: such a call, which the program may have asked to be complete when it returns.
//! - `gated into stream …`: the stream may be another GPU's than the current one.
//! - `… typed stream`: the hook is told whether a default stream is the thread's own.
//! - `refused over [address => bytes]`: goes to the driver, unless such a range touches addresses of ours.
//! - `inside`: the driver may wait for all of the context's work, and keep all others from queueing any meanwhile; so the gate
//!   has to know that the call is inside.
//! - `foreign`: the call brings in memory that is not ours to move. `allocates`: a graph does when it runs.
//!
//! While memory is on its way, a call that names the memory that it is `of` or `over` waits for that, and every other gated call waits for
//! all memory. Signatures are those of `cuda.h`, with structures that no hook reads as plain pointers.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr;

use baton_contract::cuda::*;

#[cfg(test)]
use super::effects::Declared;
use super::effects::{
    Allocates, Asks, Changes, Escapes, Frees, HostOnly, Imports, Keeps, Queues, Reads, Tells, Uses, Writes,
};
use super::ipc::CUipcEventHandle;
use super::{
    checkpoint, contexts, descriptors, escapes, init, ipc, memory, pools, procaddress, reachable, retry, streams,
    synchronous, unmanaged, vmm,
};
use crate::arrival::brings::{Filled, Into, Moved, Nothing, Upload, Value, bring, filled};
use crate::arrival::copies::{Batch, Copy2d, Copy3d, Fill, Node, Words, rows};
use crate::arrival::footprint::{self, Reach};
use crate::arrival::{self, Gpu, Needs, graphs};
use crate::driver::api::Stream;
use crate::driver::symbols::index;
use crate::driver::{functions, in_use};
use crate::gate;
use crate::memory::unmanaged::{foreign_made, graph_allocates};
use crate::sys::process;
use crate::work::limit;

/// Makes the hook functions of the rows, generic over the symbol so that twins share a body.
///
/// "C-unwind", because a thread may be cancelled inside the driver: its stack is then unwound through
/// the hook, and the passage through the gate must end.
macro_rules! hooks {
    ($( $($symbol:ident),+ =>
        $($body:ident)::+ $(typed $typed:tt)? $(in $stream:ident of $($needs:ident)::+ [$($of:expr),*])? $(into $into:ident)? $(over $($all:ident)? [$($over:tt)*])? $(bringing [$($brings:tt)*])? ($($argument:ident: $type:ty),* $(,)?); )*) => {
        pub(super) const ROWS: &[&[(usize, *const ())]] = &[$({
            unsafe extern "C-unwind" fn hook<const INDEX: usize>($($argument: $type),*) -> CUresult {
                type Original = unsafe extern "C-unwind" fn($($type),*) -> CUresult;
                // SAFETY: the row spells the signature that cuda.h gives its symbols.
                let original: Original = unsafe { functions::original_as(INDEX) };
                hooks!(@body original, $($body)::+ $(typed $typed)? $(in $stream of $($needs)::+ [$($of),*])? $(into $into)? $(over $($all)? [$($over)*])? $(bringing [$($brings)*])? ($($argument),*))
            }
            &[$((index::$symbol, hook::<{ index::$symbol }> as *const ())),+]
        }),*];

        /// The rows, as they are written.
        #[cfg(test)]
        pub(super) const DECLARED: &[Declared] = &[$(Declared {
            symbols: &[$(stringify!($symbol)),+],
            body: concat!($(stringify!($body), " "),+),
            arguments: &[$(stringify!($type)),*],
        }),*];
    };
    (@body $original:ident, gated $(into $into:ident)? ($($argument:ident),*)) => {
        gate::checked(
            || hooks!(@entry [$($into)?] |_| Needs::Everything),
            // SAFETY: the driver's own function with the program's own arguments.
            || unsafe { $original($($argument),*) },
        )
    };
    (@body $original:ident, gated $(into $into:ident)? over [$($at:expr => $bytes:expr),*] bringing [$brings:expr] ($($argument:ident),*)) => {{
        gate::checked(
            || {
                let passage = hooks!(@entry [$($into)?] |gpu| footprint::ranges_and(
                    |_found| {
                        $($at.add_to(_found)?;)*
                        Some(())
                    },
                    |found| if gpu == Gpu::Shared { bring($brings, hooks!(@into [$($into)?]), found) },
                ))?;
                if false $(|| $at.is_wild($bytes))* { Err(CUDA_ERROR_INVALID_VALUE) } else { Ok(passage) }
            },
            // SAFETY: the driver's own function with the program's own arguments.
            || unsafe { $original($($argument),*) },
        )
    }};
    (@body $original:ident, copied over $($all:ident)? [$($at:expr => $bytes:expr),*] $(bringing [$brings:expr])? ($($argument:ident),*)) => {{
        let answer = hooks!(@body $original, gated over $($all)? [$($at => $bytes),*] $(bringing [$brings])? ($($argument),*));
        if answer == CUDA_SUCCESS && synchronous::is_any() {
            synchronous::wait::<INDEX>(footprint::ranges(|_found| {
                $($at.add_to(_found)?;)*
                Some(())
            }))
        } else {
            answer
        }
    }};
    (@body $original:ident, gated $(into $into:ident)? over all [$($at:expr => $bytes:expr),*] ($($argument:ident),*)) => {{
        gate::checked(
            || hooks!(@entry [$($into)?] |gpu| match gpu {
                Gpu::Shared => Needs::Everything,
                Gpu::Other => footprint::ranges(|_found| {
                    $($at.add_to(_found)?;)*
                    Some(())
                }),
            }),
            // SAFETY: the driver's own function with the program's own arguments.
            || unsafe { $original($($argument),*) },
        )
    }};
    (@entry [] $needs:expr) => { arrival::pass($needs) };
    (@entry [$stream:ident] $needs:expr) => {
        arrival::pass_ahead(|| $stream, || Stream::of::<INDEX>($stream), $needs)
    };
    (@into []) => { Into::Synchronous(Stream::of::<INDEX>(ptr::null_mut())) };
    (@into [$stream:ident]) => { Into::Stream(Stream::of::<INDEX>($stream)) };
    // Where the driver refuses everything, no code of ours runs: before `cuInit`, and in forked copies of a process that has called it.
    (@unless_refusing $original:ident ($($argument:ident),*)) => {
        if in_use::is_refusing() {
            // SAFETY: the driver's own function with the program's own arguments.
            return unsafe { $original($($argument),*) };
        }
    };
    (@body $original:ident, inside ($($argument:ident),*)) => {{
        hooks!(@unless_refusing $original ($($argument),*));
        let _passage = arrival::enter_in_any_state();
        // A call that fails for lack of memory has done nothing.
        // SAFETY: the driver's own function with the program's own arguments.
        retry::retried(|| unsafe { $original($($argument),*) })
    }};
    (@body $original:ident, refused over [$at:expr => $bytes:expr] ($($argument:ident),*)) => {{
        hooks!(@unless_refusing $original ($($argument),*));
        if escapes::is_ours($at, $bytes) {
            escapes::REFUSED
        } else {
            // SAFETY: the driver's own function with the program's own arguments.
            unsafe { $original($($argument),*) }
        }
    }};
    (@body $original:ident, launched in $stream:ident of $($needs:ident)::+ [$($of:expr),*] ($($argument:ident),*)) => {{
        let stream = || Stream::of::<INDEX>($stream.stream());
        let passage = match arrival::pass_ahead(|| $stream.stream(), stream, |gpu| $($needs)::+(gpu, $($of),*)) {
            Ok(passage) => passage,
            Err(answer) => return answer,
        };
        // SAFETY: the driver's own function with the program's own arguments.
        let answer = unsafe { $original($($argument),*) };
        if answer == CUDA_ERROR_OUT_OF_MEMORY {
            // A launch that failed has done nothing; it may have needed memory for code or local variables.
            // SAFETY: as above.
            return retry::retried(|| unsafe { $original($($argument),*) });
        }
        if gate::is_contended() && !passage.is_ungated() && !arrival::is_waited_for_on_gpu() {
            limit::launched(answer, stream());
        }
        answer
    }};
    (@body $original:ident, foreign ($($argument:ident),*)) => {
        hooks!(@made foreign_made, $original ($($argument),*))
    };
    (@body $original:ident, allocates ($($argument:ident),*)) => {
        hooks!(@made graph_allocates, $original ($($argument),*))
    };
    (@made $made:ident, $original:ident ($($argument:ident),*)) => {{
        // SAFETY: the driver's own function with the program's own arguments.
        let answer = unsafe { $original($($argument),*) };
        if answer == CUDA_SUCCESS {
            $made();
        }
        answer
    }};
    (@body $original:ident, $($body:ident)::+ typed stream ($($argument:ident),*)) => {{
        hooks!(@unless_refusing $original ($($argument),*));
        // SAFETY: the hook keeps the contract of the driver's own function for the same arguments.
        unsafe { $($body)::+::<INDEX>($original, $($argument),*) }
    }};
    // These two are for programs that have yet to begin.
    (@body $original:ident, init::$body:ident ($($argument:ident),*)) => {
        hooks!(@unless_bare init::$body $original ($($argument),*))
    };
    (@body $original:ident, procaddress::$body:ident ($($argument:ident),*)) => {
        hooks!(@unless_bare procaddress::$body $original ($($argument),*))
    };
    (@unless_bare $($body:ident)::+ $original:ident ($($argument:ident),*)) => {
        if process::settle_if_bare() {
            // SAFETY: the driver's own function with the program's own arguments.
            unsafe { $original($($argument),*) }
        } else {
            // SAFETY: the hook keeps the contract of the driver's own function for the same arguments.
            unsafe { $($body)::+($original, $($argument),*) }
        }
    };
    (@body $original:ident, $($body:ident)::+ ($($argument:ident),*)) => {{
        hooks!(@unless_refusing $original ($($argument),*));
        // SAFETY: the hook keeps the contract of the driver's own function for the same arguments.
        unsafe { $($body)::+($original, $($argument),*) }
    }};
}

hooks! {
    // Finding functions: answered with our exports.
    cuGetProcAddress =>
        procaddress::v1(symbol: *const c_char, function: HostOnly<*mut *mut c_void>, version: c_int, flags: u64);
    cuGetProcAddress_v2 =>
        procaddress::v2(symbol: *const c_char, function: HostOnly<*mut *mut c_void>, version: c_int, flags: u64, status: *mut c_int);

    // From here on CUDA works in this process, and in no forked copy of it.
    cuInit => init::init(flags: c_uint);

    // Contexts: with its first one a program becomes a tenant. They need room beside the arena, and own allocations and streams.
    cuCtxCreate_v2, cuCtxCreate => contexts::create(out: *mut CUcontext, flags: c_uint, device: CUdevice);
    cuCtxCreate_v3 =>
        contexts::create_v3(out: *mut CUcontext, affinity: *mut c_void, count: c_int, flags: c_uint, device: CUdevice);
    cuCtxCreate_v4 =>
        contexts::create_v4(out: *mut CUcontext, parameters: *mut c_void, flags: c_uint, device: CUdevice);
    cuGreenCtxCreate =>
        contexts::green_create(out: *mut *mut c_void, description: *mut c_void, device: CUdevice, flags: c_uint);
    cuCtxFromGreenCtx => contexts::from_green(out: *mut CUcontext, green: *mut c_void);
    cuDevicePrimaryCtxRetain => contexts::retain(out: *mut CUcontext, device: CUdevice);
    cuGreenCtxDestroy => contexts::green_destroy(green: *mut c_void);
    cuCtxDestroy_v2, cuCtxDestroy => contexts::destroy(context: CUcontext);
    cuCtxDetach => contexts::detach(context: CUcontext);
    cuCtxEnablePeerAccess => contexts::enable_peer(peer: CUcontext, flags: c_uint);
    cuCtxDisablePeerAccess => contexts::disable_peer(peer: CUcontext);
    cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease => contexts::release_primary(device: CUdevice);
    cuDevicePrimaryCtxReset_v2, cuDevicePrimaryCtxReset => contexts::reset_primary(device: CUdevice);

    // Processes that are moved off the GPU.
    cuCheckpointProcessLock, cuCheckpointProcessCheckpoint =>
        checkpoint::suspend(process: c_int, arguments: *mut c_void);

    // Streams and captures: their work has to end before the GPU changes hands.
    cuStreamCreate => streams::stream_create(out: Tells<*mut CUstream>, flags: c_uint);
    cuStreamCreateWithPriority =>
        streams::stream_with_priority(out: Tells<*mut CUstream>, flags: c_uint, priority: c_int);
    cuGreenCtxStreamCreate =>
        streams::green_stream(out: Tells<*mut CUstream>, green: *mut c_void, flags: c_uint, priority: c_int);
    cuStreamDestroy_v2, cuStreamDestroy => streams::stream_destroy(stream: Frees<CUstream>);
    cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz =>
        streams::begin_capture typed stream(stream: Changes<CUstream>, mode: c_int);
    cuStreamBeginCapture, cuStreamBeginCapture_ptsz => streams::begin_capture_v1 typed stream(stream: Changes<CUstream>);
    cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz =>
        streams::begin_capture_to_graph typed stream(stream: Changes<CUstream>, graph: *mut c_void, dependencies: *const *mut c_void, edges: *const c_void, count: usize, mode: c_int);
    cuStreamBeginRecaptureToGraph, cuStreamBeginRecaptureToGraph_ptsz =>
        streams::begin_recapture typed stream(stream: Changes<CUstream>, mode: c_int, graph: *mut c_void, changed: *const c_void, data: HostOnly<*mut c_void>);
    cuStreamBeginCaptureToCig, cuStreamBeginCaptureToCig_ptsz =>
        streams::begin_capture_to_cig(stream: Changes<CUstream>, parameters: *mut c_void);
    cuStreamEndCapture, cuStreamEndCapture_ptsz =>
        streams::end_capture(stream: Changes<CUstream>, graph: *mut *mut c_void);
    cuStreamWaitEvent, cuStreamWaitEvent_ptsz =>
        streams::wait_event typed stream(stream: Queues<CUstream>, event: *mut c_void, flags: c_uint);

    // Memory: questions about it.
    cuDeviceTotalMem_v2 => memory::total_memory(bytes: *mut usize, device: CUdevice);
    cuMemGetInfo_v2 => memory::get_info(free: *mut usize, total: *mut usize);
    cuMemGetAddressRange_v2 =>
        memory::address_range(base: Tells<*mut CUdeviceptr>, size: *mut usize, address: Asks<CUdeviceptr>);
    cuPointerGetAttribute =>
        synchronous::pointer_attribute(out: Tells<*mut c_void>, attribute: c_int, address: Asks<CUdeviceptr>);
    cuPointerGetAttributes =>
        memory::pointer_attributes(count: c_uint, attributes: *mut c_int, out: Tells<*mut *mut c_void>, address: Asks<CUdeviceptr>);

    cuMemGetAccess =>
        escapes::access(flags: *mut u64, location: *const CUmemLocation, address: Asks<CUdeviceptr>);
    cuMemHostGetDevicePointer_v2 =>
        refused over [at.addr() as CUdeviceptr => 1](out: Tells<*mut CUdeviceptr>, at: Asks<*mut c_void>, flags: c_uint);
    cuMemHostGetFlags => refused over [at.addr() as CUdeviceptr => 1](flags: *mut c_uint, at: Asks<*mut c_void>);

    // Memory: allocating and freeing it.
    cuMemCreate => vmm::create(out: Allocates<*mut u64>, bytes: usize, properties: Asks<*const c_void>, flags: u64);
    cuMemRelease => vmm::release(handle: Frees<u64>);
    cuMemAlloc_v2 => memory::alloc(out: Allocates<*mut CUdeviceptr>, bytes: usize);
    cuMemAlloc => gated(out: Allocates<*mut CUdeviceptrV1>, bytes: c_uint);
    cuMemAllocPitch_v2 =>
        memory::alloc_pitch(out: Allocates<*mut CUdeviceptr>, pitch: *mut usize, width: usize, height: usize, element: c_uint);
    cuMemAllocPitch =>
        gated(out: Allocates<*mut CUdeviceptrV1>, pitch: *mut c_uint, width: c_uint, height: c_uint, element: c_uint);
    cuMemAllocManaged => unmanaged::alloc_managed(out: Allocates<*mut CUdeviceptr>, bytes: usize, flags: c_uint);
    cuMemFree_v2 => pools::free(address: Frees<CUdeviceptr>);
    cuMemFree => gated(address: Frees<CUdeviceptrV1>);
    cuMemAllocAsync, cuMemAllocAsync_ptsz =>
        pools::alloc_async typed stream(out: Allocates<*mut CUdeviceptr>, bytes: usize, stream: Queues<CUstream>);
    cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz =>
        pools::alloc_from_pool typed stream(out: Allocates<*mut CUdeviceptr>, bytes: usize, pool: Asks<CUmemoryPool>, stream: Queues<CUstream>);
    cuMemFreeAsync, cuMemFreeAsync_ptsz => pools::free_async typed stream(address: Frees<CUdeviceptr>, stream: Queues<CUstream>);

    // Pools, and the calls that they depend on: waiting, and events.
    cuMemPoolCreate => pools::create(out: Allocates<*mut CUmemoryPool>, properties: Asks<*const c_void>);
    cuMemPoolDestroy => pools::destroy(pool: Frees<CUmemoryPool>);
    cuMemPoolTrimTo => pools::trim(pool: Frees<CUmemoryPool>, bytes: usize);
    cuMemPoolGetAttribute =>
        pools::attribute(pool: Asks<CUmemoryPool>, attribute: c_int, value: HostOnly<*mut c_void>);
    cuMemPoolSetAttribute =>
        pools::set_attribute(pool: Changes<CUmemoryPool>, attribute: c_int, value: HostOnly<*mut c_void>);
    cuMemPoolSetAccess =>
        pools::set_access(pool: Escapes<CUmemoryPool>, access: *const CUmemAccessDesc, count: usize);
    cuDeviceSetMemPool => pools::set_device_pool(device: CUdevice, pool: Keeps<CUmemoryPool>);
    cuMemSetMemPool => pools::set_pool(location: *mut CUmemLocation, kind: c_int, pool: Keeps<CUmemoryPool>);
    cuStreamSynchronize, cuStreamSynchronize_ptsz =>
        pools::stream_synchronize typed stream(stream: Asks<CUstream>);
    cuEventSynchronize => pools::event_synchronize(event: *mut c_void);
    cuCtxSynchronize => pools::synchronize();
    cuCtxSynchronize_v2 => pools::synchronize_context(context: CUcontext);
    cuEventRecord, cuEventRecord_ptsz =>
        pools::event_record typed stream(event: *mut c_void, stream: Queues<CUstream>);
    cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz =>
        pools::event_record_with_flags typed stream(event: *mut c_void, stream: Queues<CUstream>, flags: c_uint);
    cuEventDestroy_v2, cuEventDestroy => pools::event_destroy(event: *mut c_void);

    // Memory that has no addresses of ours: asked for first, and counted.
    cuArrayCreate_v2 => unmanaged::array(out: Allocates<*mut CUarray>, shape: *const c_void);
    cuArrayCreate => unmanaged::array_v1(out: Allocates<*mut CUarray>, shape: *const c_void);
    cuArray3DCreate_v2 => unmanaged::array_3d(out: Allocates<*mut CUarray>, shape: *const c_void);
    cuArray3DCreate => unmanaged::array_3d_v1(out: Allocates<*mut CUarray>, shape: *const c_void);
    cuArrayDestroy => unmanaged::destroy(array: Frees<CUarray>);
    cuMipmappedArrayCreate =>
        unmanaged::mipmap(out: Allocates<*mut *mut c_void>, shape: *const c_void, levels: c_uint);
    cuMipmappedArrayDestroy => unmanaged::destroy(mipmap: Frees<*mut c_void>);
    cuImportExternalMemory => unmanaged::import_external(out: Imports<*mut *mut c_void>, handle: *const c_void);
    cuDestroyExternalMemory => unmanaged::destroy(memory: Frees<*mut c_void>);
    cuDeviceGraphMemTrim => unmanaged::trim_graphs(device: CUdevice);

    // Mappings, and ways to memory past its addresses: of the program's own memory.
    cuMemAddressReserve =>
        vmm::reserve(out: Tells<*mut CUdeviceptr>, bytes: usize, alignment: usize, wish: Asks<CUdeviceptr>, flags: u64);
    cuMemMap =>
        vmm::map(address: Changes<CUdeviceptr>, bytes: usize, offset: usize, handle: Keeps<u64>, flags: u64);
    cuMemUnmap => vmm::unmap(address: Changes<CUdeviceptr>, bytes: usize);
    cuMemSetAccess =>
        vmm::set_access(address: Changes<CUdeviceptr>, bytes: usize, access: *const CUmemAccessDesc, count: usize);
    cuMemAddressFree => vmm::address_free(address: Frees<CUdeviceptr>, bytes: usize);
    cuMemAdvise =>
        refused over [address => bytes](address: Changes<CUdeviceptr>, bytes: usize, advice: c_int, device: CUdevice);
    cuMemAdvise_v2 =>
        refused over [address => bytes](address: Changes<CUdeviceptr>, bytes: usize, advice: c_int, location: CUmemLocation);
    cuMemRetainAllocationHandle =>
        vmm::retain(handle: Tells<*mut u64>, address: Escapes<*mut c_void>);
    cuMemGetAllocationPropertiesFromHandle => vmm::properties(properties: Tells<*mut c_void>, handle: Asks<u64>);
    cuMemExportToShareableHandle =>
        vmm::export(out: Tells<*mut c_void>, handle: Escapes<u64>, kind: c_int, flags: u64);
    cuMemPoolExportPointer => refused over [address => 1](data: Tells<*mut c_void>, address: Escapes<CUdeviceptr>);
    cuMulticastBindMem =>
        vmm::bind(object: Changes<u64>, at: usize, handle: Escapes<u64>, offset: usize, bytes: usize, flags: u64);
    cuMulticastBindAddr =>
        vmm::bind_address(object: Changes<u64>, at: usize, address: Escapes<CUdeviceptr>, bytes: usize, flags: u64);
    cuMulticastBindMem_v2 =>
        vmm::bind_for(object: Changes<u64>, device: CUdevice, at: usize, handle: Escapes<u64>, offset: usize, bytes: usize, flags: u64);
    cuMulticastBindAddr_v2 =>
        vmm::bind_address_for(object: Changes<u64>, device: CUdevice, at: usize, address: Escapes<CUdeviceptr>, bytes: usize, flags: u64);
    cuLogicalEndpointBindMem =>
        vmm::bind_endpoint(endpoint: u32, device: CUdevice, at: u64, handle: Escapes<u64>, offset: u64, bytes: u64, flags: u64);
    cuLogicalEndpointBindAddr =>
        vmm::bind_endpoint_address(endpoint: u32, device: CUdevice, at: u64, address: Escapes<*mut c_void>, bytes: u64, flags: u64);
    cuMemGetHandleForAddressRange =>
        vmm::to_a_handle(handle: Tells<*mut c_void>, address: Escapes<CUdeviceptr>, bytes: usize, kind: c_int, flags: u64);
    cuPointerSetAttribute =>
        synchronous::set_attribute(value: HostOnly<*const c_void>, attribute: c_int, address: Escapes<CUdeviceptr>);

    // Memory and events that processes let each other open: memory of ours by handles of our own.
    cuIpcGetMemHandle => ipc::memory_handle(out: Tells<*mut CUipcMemHandle>, address: Escapes<CUdeviceptr>);
    cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle =>
        ipc::open_memory(out: Imports<*mut CUdeviceptr>, handle: Asks<CUipcMemHandle>, flags: c_uint);
    cuIpcCloseMemHandle => ipc::close_memory(address: Frees<CUdeviceptr>);
    cuIpcGetEventHandle => ipc::event_handle(out: *mut CUipcEventHandle, event: *mut c_void);
    cuIpcOpenEventHandle => ipc::open_event(out: *mut *mut c_void, handle: CUipcEventHandle);

    // Memory that processes share by descriptors.
    cuMemImportFromShareableHandle =>
        descriptors::import(out: Imports<*mut u64>, handle: HostOnly<*mut c_void>, kind: c_int);
    cuMemPoolExportToShareableHandle =>
        descriptors::export_pool(out: Tells<*mut c_void>, pool: Escapes<CUmemoryPool>, kind: c_int, flags: u64);
    cuMemPoolImportFromShareableHandle =>
        descriptors::import_pool(out: Imports<*mut CUmemoryPool>, handle: HostOnly<*mut c_void>, kind: c_int, flags: u64);

    // Memory that comes from elsewhere: it is not scanned for pointers.
    cuMemPoolImportPointer => foreign(out: Imports<*mut CUdeviceptr>, pool: Asks<CUmemoryPool>, data: Asks<*mut c_void>);
    cuExternalMemoryGetMappedBuffer => foreign(out: Imports<*mut CUdeviceptr>, memory: Asks<*mut c_void>, buffer: *const c_void);
    cuGraphicsResourceGetMappedPointer_v2 =>
        foreign(out: Imports<*mut CUdeviceptr>, bytes: *mut usize, resource: Asks<*mut c_void>);
    cuGraphAddMemAllocNode =>
        allocates(node: *mut *mut c_void, graph: *mut c_void, dependencies: *const *mut c_void, count: usize, parameters: Allocates<*mut c_void>);

    // Copies between addresses.
    cuMemcpy, cuMemcpy_ptds => copied over [dst => bytes, src => bytes] bringing [Moved(dst, src, bytes)](dst: Writes<CUdeviceptr>, src: Reads<CUdeviceptr>, bytes: usize);
    cuMemcpyAsync, cuMemcpyAsync_ptsz => gated into stream over [dst => bytes, src => bytes] bringing [Moved(dst, src, bytes)](dst: Writes<CUdeviceptr>, src: Reads<CUdeviceptr>, bytes: usize, stream: Queues<CUstream>);
    cuMemcpyPeer, cuMemcpyPeer_ptds =>
        copied over [dst => bytes, src => bytes] bringing [Moved(dst, src, bytes)](dst: Writes<CUdeviceptr>, dst_context: CUcontext, src: Reads<CUdeviceptr>, src_context: CUcontext, bytes: usize);
    cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz =>
        gated into stream over [dst => bytes, src => bytes] bringing [Moved(dst, src, bytes)](dst: Writes<CUdeviceptr>, dst_context: CUcontext, src: Reads<CUdeviceptr>, src_context: CUcontext, bytes: usize, stream: Queues<CUstream>);
    cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds => copied over [dst => bytes, src => bytes] bringing [Upload(dst, src, bytes)](dst: Writes<CUdeviceptr>, src: Reads<*const c_void>, bytes: usize);
    cuMemcpyHtoD => gated(dst: Writes<CUdeviceptrV1>, src: Reads<*const c_void>, bytes: c_uint);
    cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz =>
        gated into stream over [dst => bytes, src => bytes] bringing [Upload(dst, src, bytes)](dst: Writes<CUdeviceptr>, src: Reads<*const c_void>, bytes: usize, stream: Queues<CUstream>);
    cuMemcpyHtoDAsync => gated into stream(dst: Writes<CUdeviceptrV1>, src: Reads<*const c_void>, bytes: c_uint, stream: Queues<CUstream>);
    cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds => copied over [dst => bytes, src => bytes] bringing [Nothing](dst: Writes<*mut c_void>, src: Reads<CUdeviceptr>, bytes: usize);
    cuMemcpyDtoH => gated(dst: Writes<*mut c_void>, src: Reads<CUdeviceptrV1>, bytes: c_uint);
    cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz =>
        gated into stream over [dst => bytes, src => bytes] bringing [Nothing](dst: Writes<*mut c_void>, src: Reads<CUdeviceptr>, bytes: usize, stream: Queues<CUstream>);
    cuMemcpyDtoHAsync => gated into stream(dst: Writes<*mut c_void>, src: Reads<CUdeviceptrV1>, bytes: c_uint, stream: Queues<CUstream>);
    cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds => copied over [dst => bytes, src => bytes] bringing [Moved(dst, src, bytes)](dst: Writes<CUdeviceptr>, src: Reads<CUdeviceptr>, bytes: usize);
    cuMemcpyDtoD => gated(dst: Writes<CUdeviceptrV1>, src: Reads<CUdeviceptrV1>, bytes: c_uint);
    cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz =>
        gated into stream over [dst => bytes, src => bytes] bringing [Moved(dst, src, bytes)](dst: Writes<CUdeviceptr>, src: Reads<CUdeviceptr>, bytes: usize, stream: Queues<CUstream>);
    cuMemcpyDtoDAsync => gated into stream(dst: Writes<CUdeviceptrV1>, src: Reads<CUdeviceptrV1>, bytes: c_uint, stream: Queues<CUstream>);
    cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz =>
        gated into stream over [Batch(dsts, srcs, sizes, count) => 0] bringing [Batch(dsts, srcs, sizes, count)](dsts: Writes<*mut CUdeviceptr>, srcs: Reads<*mut CUdeviceptr>, sizes: *mut usize, count: usize, attributes: *mut c_void, attribute_indexes: *mut usize, attribute_count: usize, stream: Queues<CUstream>);
    cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz =>
        gated into stream over [Batch(dsts, srcs, sizes, count) => 0] bringing [Batch(dsts, srcs, sizes, count)](dsts: Writes<*mut CUdeviceptr>, srcs: Reads<*mut CUdeviceptr>, sizes: *mut usize, count: usize, attributes: *mut c_void, attribute_indexes: *mut usize, attribute_count: usize, fail_index: *mut usize, stream: Queues<CUstream>);

    // Copies to and from arrays.
    cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds =>
        copied over all [](dst: Writes<CUarray>, dst_offset: usize, src: Reads<CUarray>, src_offset: usize, bytes: usize);
    cuMemcpyAtoA => copied over all [](dst: Writes<CUarray>, dst_offset: c_uint, src: Reads<CUarray>, src_offset: c_uint, bytes: c_uint);
    cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds => copied over all [dst => bytes](dst: Writes<CUdeviceptr>, src: Reads<CUarray>, src_offset: usize, bytes: usize);
    cuMemcpyAtoD => gated(dst: Writes<CUdeviceptrV1>, src: Reads<CUarray>, src_offset: c_uint, bytes: c_uint);
    cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds => copied over all [src => bytes](dst: Writes<CUarray>, dst_offset: usize, src: Reads<CUdeviceptr>, bytes: usize);
    cuMemcpyDtoA => gated(dst: Writes<CUarray>, dst_offset: c_uint, src: Reads<CUdeviceptrV1>, bytes: c_uint);
    cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds => copied over all [dst => 0](dst: Writes<*mut c_void>, src: Reads<CUarray>, src_offset: usize, bytes: usize);
    cuMemcpyAtoH => copied over all [dst => 0](dst: Writes<*mut c_void>, src: Reads<CUarray>, src_offset: c_uint, bytes: c_uint);
    cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2_ptsz =>
        gated into stream over all [dst => 0](dst: Writes<*mut c_void>, src: Reads<CUarray>, src_offset: usize, bytes: usize, stream: Queues<CUstream>);
    cuMemcpyAtoHAsync => gated into stream over all [dst => 0](dst: Writes<*mut c_void>, src: Reads<CUarray>, src_offset: c_uint, bytes: c_uint, stream: Queues<CUstream>);
    cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds => copied over all [](dst: Writes<CUarray>, dst_offset: usize, src: Reads<*const c_void>, bytes: usize);
    cuMemcpyHtoA => copied over all [](dst: Writes<CUarray>, dst_offset: c_uint, src: Reads<*const c_void>, bytes: c_uint);
    cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz =>
        gated into stream over all [](dst: Writes<CUarray>, dst_offset: usize, src: Reads<*const c_void>, bytes: usize, stream: Queues<CUstream>);
    cuMemcpyHtoAAsync => gated into stream over all [](dst: Writes<CUarray>, dst_offset: c_uint, src: Reads<*const c_void>, bytes: c_uint, stream: Queues<CUstream>);

    // Copies of two and three dimensions; both versions take one pointer to a description.
    cuMemcpy2D_v2, cuMemcpy2D_v2_ptds => copied over [Copy2d(copy) => 0] bringing [Copy2d(copy)](copy: Uses<*const c_void>);
    cuMemcpy2D => gated(copy: Uses<*const c_void>);
    cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds => copied over [Copy2d(copy) => 0] bringing [Copy2d(copy)](copy: Uses<*const c_void>);
    cuMemcpy2DUnaligned => gated(copy: Uses<*const c_void>);
    cuMemcpy3D_v2, cuMemcpy3D_v2_ptds => copied over [Copy3d(copy) => 0] bringing [Copy3d(copy)](copy: Uses<*const c_void>);
    cuMemcpy3D => gated(copy: Uses<*const c_void>);
    cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz => gated into stream over [Copy2d(copy) => 0] bringing [Copy2d(copy)](copy: Uses<*const c_void>, stream: Queues<CUstream>);
    cuMemcpy2DAsync => gated into stream(copy: Uses<*const c_void>, stream: Queues<CUstream>);
    cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz => gated into stream over [Copy3d(copy) => 0] bringing [Copy3d(copy)](copy: Uses<*const c_void>, stream: Queues<CUstream>);
    cuMemcpy3DAsync => gated into stream(copy: Uses<*const c_void>, stream: Queues<CUstream>);
    cuMemcpy3DPeer, cuMemcpy3DPeer_ptds => copied over [Copy3d(copy) => 0] bringing [Copy3d(copy)](copy: Uses<*const c_void>);
    cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz => gated into stream over [Copy3d(copy) => 0] bringing [Copy3d(copy)](copy: Uses<*const c_void>, stream: Queues<CUstream>);
    cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync_v2_ptsz =>
        gated into stream(count: usize, operations: Uses<*mut c_void>, flags: u64, stream: Queues<CUstream>);
    cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_ptsz =>
        gated into stream(count: usize, operations: Uses<*mut c_void>, fail_index: *mut usize, flags: u64, stream: Queues<CUstream>);

    cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync_ptsz =>
        gated into stream over [dst => bytes, src => bytes] bringing [Moved(dst, src, bytes)](dst: Writes<CUdeviceptr>, src: Reads<CUdeviceptr>, bytes: usize, attributes: *mut c_void, stream: Queues<CUstream>);
    cuMemcpy3DWithAttributesAsync, cuMemcpy3DWithAttributesAsync_ptsz =>
        gated into stream(operation: Uses<*mut c_void>, flags: u64, stream: Queues<CUstream>);
    cuFabricCpyBatchAsync, cuFabricCpyBatchAsync_ptsz =>
        gated into stream(count: usize, operations: Uses<*mut c_void>, flags: u64, stream: Queues<CUstream>);

    // Fills.
    cuMemsetD8_v2, cuMemsetD8_v2_ptds => copied over [dst => count] bringing [filled(dst, value, 1, count)](dst: Writes<CUdeviceptr>, value: u8, count: usize);
    cuMemsetD8 => gated(dst: Writes<CUdeviceptrV1>, value: u8, count: c_uint);
    cuMemsetD8Async, cuMemsetD8Async_ptsz => gated into stream over [dst => count] bringing [filled(dst, value, 1, count)](dst: Writes<CUdeviceptr>, value: u8, count: usize, stream: Queues<CUstream>);
    cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds =>
        copied over [dst => rows(pitch, width, height, 1)] bringing [Filled { at: dst, pitch, value: value.into(), element: 1, width, height }](dst: Writes<CUdeviceptr>, pitch: usize, value: u8, width: usize, height: usize);
    cuMemsetD2D8 => gated(dst: Writes<CUdeviceptrV1>, pitch: c_uint, value: u8, width: c_uint, height: c_uint);
    cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz =>
        gated into stream over [dst => rows(pitch, width, height, 1)] bringing [Filled { at: dst, pitch, value: value.into(), element: 1, width, height }](dst: Writes<CUdeviceptr>, pitch: usize, value: u8, width: usize, height: usize, stream: Queues<CUstream>);
    cuMemsetD16_v2, cuMemsetD16_v2_ptds => copied over [dst => count.saturating_mul(2)] bringing [filled(dst, value, 2, count)](dst: Writes<CUdeviceptr>, value: u16, count: usize);
    cuMemsetD16 => gated(dst: Writes<CUdeviceptrV1>, value: u16, count: c_uint);
    cuMemsetD16Async, cuMemsetD16Async_ptsz => gated into stream over [dst => count.saturating_mul(2)] bringing [filled(dst, value, 2, count)](dst: Writes<CUdeviceptr>, value: u16, count: usize, stream: Queues<CUstream>);
    cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds =>
        copied over [dst => rows(pitch, width, height, 2)] bringing [Filled { at: dst, pitch, value: value.into(), element: 2, width, height }](dst: Writes<CUdeviceptr>, pitch: usize, value: u16, width: usize, height: usize);
    cuMemsetD2D16 => gated(dst: Writes<CUdeviceptrV1>, pitch: c_uint, value: u16, width: c_uint, height: c_uint);
    cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz =>
        gated into stream over [dst => rows(pitch, width, height, 2)] bringing [Filled { at: dst, pitch, value: value.into(), element: 2, width, height }](dst: Writes<CUdeviceptr>, pitch: usize, value: u16, width: usize, height: usize, stream: Queues<CUstream>);
    cuMemsetD32_v2, cuMemsetD32_v2_ptds => copied over [dst => count.saturating_mul(4)] bringing [filled(dst, value, 4, count)](dst: Writes<CUdeviceptr>, value: u32, count: usize);
    cuMemsetD32 => gated(dst: Writes<CUdeviceptrV1>, value: u32, count: c_uint);
    cuMemsetD32Async, cuMemsetD32Async_ptsz => gated into stream over [dst => count.saturating_mul(4)] bringing [filled(dst, value, 4, count)](dst: Writes<CUdeviceptr>, value: u32, count: usize, stream: Queues<CUstream>);
    cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds =>
        copied over [dst => rows(pitch, width, height, 4)] bringing [Filled { at: dst, pitch, value, element: 4, width, height }](dst: Writes<CUdeviceptr>, pitch: usize, value: u32, width: usize, height: usize);
    cuMemsetD2D32 => gated(dst: Writes<CUdeviceptrV1>, pitch: c_uint, value: u32, width: c_uint, height: c_uint);
    cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz =>
        gated into stream over [dst => rows(pitch, width, height, 4)] bringing [Filled { at: dst, pitch, value, element: 4, width, height }](dst: Writes<CUdeviceptr>, pitch: usize, value: u32, width: usize, height: usize, stream: Queues<CUstream>);

    // Moving memory that is already there.
    cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz =>
        gated into stream over all [address => 0](address: Uses<CUdeviceptr>, bytes: usize, device: CUdevice, stream: Queues<CUstream>);
    cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz =>
        gated into stream over all [address => 0](address: Uses<CUdeviceptr>, bytes: usize, location: CUmemLocation, flags: c_uint, stream: Queues<CUstream>);
    cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync_ptsz =>
        gated into stream(addresses: Uses<*mut CUdeviceptr>, sizes: *mut usize, count: usize, locations: *mut CUmemLocation, location_indexes: *mut usize, location_count: usize, flags: u64, stream: Queues<CUstream>);
    cuMemDiscardBatchAsync, cuMemDiscardBatchAsync_ptsz =>
        gated into stream(addresses: Writes<*mut CUdeviceptr>, sizes: *mut usize, count: usize, flags: u64, stream: Queues<CUstream>);
    cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync_ptsz =>
        gated into stream(addresses: Writes<*mut CUdeviceptr>, sizes: *mut usize, count: usize, locations: *mut CUmemLocation, location_indexes: *mut usize, location_count: usize, flags: u64, stream: Queues<CUstream>);
    cuMemBatchDecompressAsync, cuMemBatchDecompressAsync_ptsz =>
        gated into stream(operations: Uses<*mut c_void>, count: usize, flags: c_uint, error_index: *mut usize, stream: Queues<CUstream>);
    cuMemMapArrayAsync, cuMemMapArrayAsync_ptsz => gated into stream(maps: Changes<*mut c_void>, count: c_uint, stream: Queues<CUstream>);
    cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz =>
        gated into stream over all [address => 0](stream: Queues<CUstream>, address: Keeps<CUdeviceptr>, bytes: usize, flags: c_uint);

    // Launches.
    cuLaunchKernel, cuLaunchKernel_ptsz =>
        launched in stream of footprint::kernel [function, parameters, extra](function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: Queues<CUstream>, parameters: Uses<*mut *mut c_void>, extra: Uses<*mut *mut c_void>);
    cuLaunchKernelEx, cuLaunchKernelEx_ptsz =>
        launched in config of footprint::kernel [function, parameters, extra](config: Queues<*const c_void>, function: CUfunction, parameters: Uses<*mut *mut c_void>, extra: Uses<*mut *mut c_void>);
    cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz =>
        launched in stream of footprint::kernel [function, parameters, ptr::null_mut()](function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint, shared: c_uint, stream: Queues<CUstream>, parameters: Uses<*mut *mut c_void>);
    cuLaunchCooperativeKernelMultiDevice => gated(launches: Uses<*mut c_void>, count: c_uint, flags: c_uint);
    cuLaunch => gated(function: CUfunction);
    cuLaunchGrid => gated(function: CUfunction, width: c_int, height: c_int);
    cuLaunchGridAsync => gated into stream(function: CUfunction, width: c_int, height: c_int, stream: Queues<CUstream>);
    cuLaunchHostFunc, cuLaunchHostFunc_ptsz => gated into stream over [] bringing [Nothing](stream: Queues<CUstream>, function: *const c_void, data: HostOnly<*mut c_void>);
    cuLaunchHostFunc_v2, cuLaunchHostFunc_v2_ptsz =>
        gated into stream over [] bringing [Nothing](stream: Queues<CUstream>, function: *const c_void, data: HostOnly<*mut c_void>, mode: c_uint);
    cuStreamAddCallback, cuStreamAddCallback_ptsz =>
        gated into stream over [] bringing [Nothing](stream: Queues<CUstream>, callback: *const c_void, data: HostOnly<*mut c_void>, flags: c_uint);
    cuGraphLaunch, cuGraphLaunch_ptsz => launched in stream of graphs::needs [graph](graph: Uses<CUgraphExec>, stream: Queues<CUstream>);
    cuGraphUpload, cuGraphUpload_ptsz => gated into stream over all [](graph: Uses<CUgraphExec>, stream: Queues<CUstream>);

    // Order with other interfaces, and their memory, which changes hands.
    cuSignalExternalSemaphoresAsync, cuSignalExternalSemaphoresAsync_ptsz,
    cuWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync_ptsz =>
        gated into stream over [] bringing [Nothing](semaphores: *const *mut c_void, parameters: *const c_void, count: c_uint, stream: Queues<CUstream>);
    cuGraphicsMapResources, cuGraphicsMapResources_ptsz, cuGraphicsUnmapResources, cuGraphicsUnmapResources_ptsz =>
        gated into stream over [] bringing [Nothing](count: c_uint, resources: Changes<*mut *mut c_void>, stream: Queues<CUstream>);

    // Calls by which a stream writes to memory, or waits for a value there.
    cuStreamWaitValue32, cuStreamWaitValue32_ptsz =>
        gated into stream over [address => 4] bringing [Nothing](stream: Queues<CUstream>, address: Reads<CUdeviceptr>, value: u32, flags: c_uint);
    cuStreamWriteValue32, cuStreamWriteValue32_ptsz =>
        gated into stream over [address => 4] bringing [Value(address, value.into(), 4)](stream: Queues<CUstream>, address: Writes<CUdeviceptr>, value: u32, flags: c_uint);
    cuStreamWaitValue64, cuStreamWaitValue64_ptsz =>
        gated into stream over [address => 8] bringing [Nothing](stream: Queues<CUstream>, address: Reads<CUdeviceptr>, value: u64, flags: c_uint);
    cuStreamWriteValue64, cuStreamWriteValue64_ptsz =>
        gated into stream over [address => 8] bringing [Value(address, value, 8)](stream: Queues<CUstream>, address: Writes<CUdeviceptr>, value: u64, flags: c_uint);
    cuStreamBatchMemOp, cuStreamBatchMemOp_ptsz =>
        gated into stream over all [Words(operations, count as usize) => 0](stream: Queues<CUstream>, count: c_uint, operations: Uses<*mut c_void>, flags: c_uint);
    cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz =>
        gated into stream over [address => 4] bringing [Nothing](stream: Queues<CUstream>, address: Reads<CUdeviceptr>, value: u32, flags: c_uint);
    cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz =>
        gated into stream over [address => 4] bringing [Value(address, value.into(), 4)](stream: Queues<CUstream>, address: Writes<CUdeviceptr>, value: u32, flags: c_uint);
    cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz =>
        gated into stream over [address => 8] bringing [Nothing](stream: Queues<CUstream>, address: Reads<CUdeviceptr>, value: u64, flags: c_uint);
    cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz =>
        gated into stream over [address => 8] bringing [Value(address, value, 8)](stream: Queues<CUstream>, address: Writes<CUdeviceptr>, value: u64, flags: c_uint);
    cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz =>
        gated into stream over all [Words(operations, count as usize) => 0](stream: Queues<CUstream>, count: c_uint, operations: Uses<*mut c_void>, flags: c_uint);

    // Memory that kernels can access without being given it, and the layout of their parameters.
    cuTexObjectCreate =>
        reachable::texture_create(out: Tells<*mut u64>, resource: Keeps<*const c_void>, texture: *const c_void, view: *const c_void);
    cuTexObjectDestroy => reachable::texture_destroy(texture: Frees<u64>);
    cuTexRefDestroy => reachable::reference_destroy(texture: Frees<*mut c_void>);
    cuTexRefSetAddress_v2 =>
        reachable::texture_address(offset: *mut usize, texture: Changes<*mut c_void>, address: Keeps<CUdeviceptr>, bytes: usize);
    cuTexRefSetAddress2D_v2, cuTexRefSetAddress2D_v3 =>
        reachable::texture_address_2d(texture: Changes<*mut c_void>, format: *const c_void, address: Keeps<CUdeviceptr>, pitch: usize);
    cuModuleGetGlobal_v2, cuLibraryGetGlobal, cuLibraryGetManaged =>
        reachable::global(at: Tells<*mut CUdeviceptr>, bytes: *mut usize, code: *mut c_void, name: *const c_char);
    cuModuleLoad => inside(module: *mut *mut c_void, name: *const c_char);
    cuModuleLoadData, cuModuleLoadFatBinary => inside(module: *mut *mut c_void, image: HostOnly<*const c_void>);
    cuModuleLoadDataEx =>
        inside(module: *mut *mut c_void, image: HostOnly<*const c_void>, count: c_uint, options: *mut c_int, values: HostOnly<*mut *mut c_void>);
    cuLibraryLoadData =>
        inside(library: *mut *mut c_void, code: HostOnly<*const c_void>, options: *mut c_int, values: HostOnly<*mut *mut c_void>, count: c_uint, library_options: *mut c_int, library_values: HostOnly<*mut *mut c_void>, library_count: c_uint);
    cuLibraryLoadFromFile =>
        inside(library: *mut *mut c_void, name: *const c_char, options: *mut c_int, values: HostOnly<*mut *mut c_void>, count: c_uint, library_options: *mut c_int, library_values: HostOnly<*mut *mut c_void>, library_count: c_uint);
    cuModuleUnload, cuLibraryUnload => reachable::unload(code: *mut c_void);
    cuMemHostAlloc => reachable::host_alloc(out: Allocates<*mut *mut c_void>, bytes: usize, flags: c_uint);
    cuMemAllocHost => reachable::alloc_host_v1(out: Allocates<*mut *mut c_void>, bytes: c_uint);
    cuMemAllocHost_v2 => reachable::alloc_host(out: Allocates<*mut *mut c_void>, bytes: usize);
    cuMemHostRegister_v2, cuMemHostRegister =>
        reachable::host_register(at: Keeps<*mut c_void>, bytes: usize, flags: c_uint);
    cuMemFreeHost, cuMemHostUnregister => reachable::host_free(at: Frees<*mut c_void>);
    cuTensorMapEncodeTiled =>
        reachable::tiled(map: Tells<*mut c_void>, kind: c_int, rank: c_uint, address: Keeps<*mut c_void>, sizes: *const u64, strides: *const u64, window: *const c_uint, steps: *const c_uint, interleave: c_int, swizzle: c_int, promotion: c_int, fill: c_int);
    cuTensorMapEncodeIm2col =>
        reachable::im2col(map: Tells<*mut c_void>, kind: c_int, rank: c_uint, address: Keeps<*mut c_void>, sizes: *const u64, strides: *const u64, lower: *const c_int, upper: *const c_int, channels: c_uint, pixels: c_uint, steps: *const c_uint, interleave: c_int, swizzle: c_int, promotion: c_int, fill: c_int);
    cuTensorMapEncodeIm2colWide =>
        reachable::im2col_wide(map: Tells<*mut c_void>, kind: c_int, rank: c_uint, address: Keeps<*mut c_void>, sizes: *const u64, strides: *const u64, lower: c_int, upper: c_int, channels: c_uint, pixels: c_uint, steps: *const c_uint, interleave: c_int, mode: c_int, swizzle: c_int, promotion: c_int, fill: c_int);
    cuTensorMapSetAllocationClass =>
        reachable::set_class(map: Changes<*mut c_void>, class: c_int, now: *mut c_int);
    cuTensorMapReplaceAddress => reachable::replace_address(map: Changes<*mut c_void>, address: Keeps<*mut c_void>);

    // The driver checks the addresses of copies, fills and words in a graph: their memory has to be there.
    cuGraphAddBatchMemOpNode =>
        gated(node: *mut *mut c_void, graph: *mut c_void, dependencies: *const *mut c_void, count: usize, parameters: Keeps<*const c_void>);
    cuGraphAddMemFreeNode =>
        refused over [address => 1](node: *mut *mut c_void, graph: *mut c_void, dependencies: *const *mut c_void, count: usize, address: Frees<CUdeviceptr>);
    cuGraphAddMemcpyNode =>
        gated over all [Copy3d(parameters) => 0](node: *mut *mut c_void, graph: *mut c_void, dependencies: *const *mut c_void, count: usize, parameters: Keeps<*const c_void>, context: CUcontext);
    cuGraphAddMemsetNode =>
        gated over all [Fill(parameters) => 0](node: *mut *mut c_void, graph: *mut c_void, dependencies: *const *mut c_void, count: usize, parameters: Keeps<*const c_void>, context: CUcontext);
    cuGraphAddNode =>
        reachable::add_node(node: *mut *mut c_void, graph: *mut c_void, dependencies: *const *mut c_void, count: usize, parameters: Keeps<*mut c_void>);
    cuGraphAddNode_v2, cuGraphAddNode_v3 =>
        reachable::add_node_v2(node: *mut *mut c_void, graph: *mut c_void, dependencies: *const *mut c_void, edges: *const c_void, count: usize, parameters: Keeps<*mut c_void>);
    cuGraphMemcpyNodeSetParams =>
        gated over all [Copy3d(parameters) => 0](node: *mut c_void, parameters: Keeps<*const c_void>);
    cuGraphMemsetNodeSetParams => gated over all [Fill(parameters) => 0](node: *mut c_void, parameters: Keeps<*const c_void>);
    cuGraphNodeSetParams, cuGraphNodeSetParams_v2 =>
        gated over all [Node(parameters) => 0](node: *mut c_void, parameters: Keeps<*const c_void>);
    cuGraphBatchMemOpNodeSetParams =>
        gated(node: *mut c_void, parameters: Keeps<*const c_void>);

    // Graphs: the memory that a launch needs is read when the graph is instantiated, and at every change.
    cuGraphInstantiate, cuGraphInstantiate_v2 =>
        reachable::instantiate(out: Tells<*mut CUgraphExec>, graph: *mut c_void, node: *mut *mut c_void, text: *mut c_char, size: usize);
    cuGraphInstantiateWithFlags =>
        reachable::instantiate_with_flags(out: Tells<*mut CUgraphExec>, graph: *mut c_void, flags: u64);
    cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz =>
        reachable::instantiate_with_parameters(out: Tells<*mut CUgraphExec>, graph: *mut c_void, parameters: Queues<*mut c_void>);
    cuGraphExecDestroy => reachable::graph_destroy(graph: Frees<CUgraphExec>);
    cuGraphExecKernelNodeSetParams_v2 =>
        reachable::set_kernel(graph: Changes<CUgraphExec>, node: *mut c_void, to: Keeps<*const c_void>);
    cuGraphExecKernelNodeSetParams =>
        reachable::set_kernel_v1(graph: Changes<CUgraphExec>, node: *mut c_void, to: Keeps<*const c_void>);
    cuGraphExecMemcpyNodeSetParams =>
        reachable::set_copy(graph: Changes<CUgraphExec>, node: *mut c_void, to: Keeps<*const c_void>, context: CUcontext);
    cuGraphExecMemsetNodeSetParams =>
        reachable::set_fill(graph: Changes<CUgraphExec>, node: *mut c_void, to: Keeps<*const c_void>, context: CUcontext);
    cuGraphExecChildGraphNodeSetParams =>
        reachable::set_child(graph: Changes<CUgraphExec>, node: *mut c_void, child: *const c_void);
    cuGraphExecBatchMemOpNodeSetParams, cuGraphExecNodeSetParams =>
        reachable::set_other(graph: Changes<CUgraphExec>, node: *mut c_void, to: Keeps<*const c_void>);
    cuGraphExecHostNodeSetParams =>
        reachable::set_other(graph: Changes<CUgraphExec>, node: *mut c_void, to: *const c_void);
    cuGraphExecUpdate_v2 => reachable::update(graph: Changes<CUgraphExec>, to: *mut c_void, result: *mut c_void);
    cuGraphExecUpdate =>
        reachable::update_v1(graph: Changes<CUgraphExec>, to: *mut c_void, node: *mut *mut c_void, result: *mut c_int);
}

/// An argument that names the stream of a launch.
trait InStream {
    /// The stream.
    fn stream(self) -> CUstream;
}

impl InStream for CUstream {
    fn stream(self) -> CUstream {
        self
    }
}

/// A `CUlaunchConfig`: seven 32-bit sizes, then the stream.
impl InStream for *const c_void {
    fn stream(self) -> CUstream {
        if self.is_null() {
            return ptr::null_mut();
        }
        // SAFETY: the configuration of a launch, which the driver reads too.
        unsafe { self.byte_add(32).cast::<CUstream>().read() }
    }
}
