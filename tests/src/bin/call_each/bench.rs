//! The ground of every case: a driver made ready, streams, lines of output.
//!
//! A body gets a [`Subject`], makes fresh memory for each call, calls, and says what came of it.
//! Its lines hold numbers and checksums, never an address.

use std::cell::{OnceCell, RefCell};
use std::collections::HashSet;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Display;
use std::ptr::null_mut;

use crate::driver::{Driver, Signature};

/// A handle of the driver's, opaque to us.
pub(crate) type Handle = *mut c_void;
/// A stream's name in the output, and its handle.
pub(crate) type Stream = (&'static str, Handle);

/// How far the driver is made ready before the cases run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    /// Not even `cuInit` was called.
    Nothing,
    /// Initialised, but no context is current.
    Initialised,
    /// The primary context is current.
    Context,
}

/// Makes one method for each function that prepares or checks cases.
macro_rules! helpers {
    ($(fn $name:ident($($argument:ident: $type:ty),*);)*) => {
        #[allow(non_snake_case, reason = "the driver's own names, so that grep finds them")]
        struct Functions {
            $($name: extern "C" fn($($type),*) -> u32,)*
        }

        impl Functions {
            fn find(driver: &Driver) -> Self {
                // SAFETY: the signatures are cuda.h's. Our modules pass null, or memory that outlives
                // the call; none of these functions keeps a pointer of the host's.
                unsafe { Self { $($name: driver.find(stringify!($name)),)* } }
            }
        }

        /// Functions that prepare and check; the tested function comes to a body from the table.
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's own names and signatures")]
        impl Bench {
            $(pub(crate) fn $name(&self, $($argument: $type),*) -> u32 {
                (self.functions.$name)($($argument),*)
            })*
        }
    };
}

helpers! {
    fn cuInit(flags: u32);
    fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: c_int);
    fn cuCtxSetCurrent(context: Handle);
    fn cuCtxGetCurrent(out: *mut Handle);
    fn cuCtxSynchronize();
    fn cuStreamCreate(out: *mut Handle, flags: u32);
    fn cuStreamDestroy_v2(stream: Handle);
    fn cuStreamQuery(stream: Handle);
    fn cuStreamGetFlags(stream: Handle, flags: *mut u32);
    fn cuStreamGetPriority(stream: Handle, priority: *mut c_int);
    fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32);
    fn cuEventCreate(out: *mut Handle, flags: u32);
    fn cuEventDestroy_v2(event: Handle);
    fn cuEventRecord(event: Handle, stream: Handle);
    fn cuEventSynchronize(event: Handle);
    fn cuLaunchHostFunc(stream: Handle, function: Option<extern "C" fn(*mut c_void)>, data: *mut c_void);

    fn cuDevicePrimaryCtxRelease_v2(device: c_int);
    fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut u32, active: *mut c_int);
    fn cuCtxCreate_v2(out: *mut Handle, flags: u32, device: c_int);
    fn cuCtxDestroy_v2(context: Handle);
    fn cuCtxAttach(out: *mut Handle, flags: u32);
    fn cuCtxPopCurrent_v2(out: *mut Handle);
    fn cuCtxGetApiVersion(context: Handle, version: *mut u32);
    fn cuCtxGetFlags(flags: *mut u32);
    fn cuDeviceGetDevResource(device: c_int, resource: *mut c_void, kind: u32);
    fn cuDevResourceGenerateDesc(out: *mut Handle, resources: *mut c_void, count: u32);
    fn cuGreenCtxCreate(out: *mut Handle, description: Handle, device: c_int, flags: u32);
    fn cuGreenCtxDestroy(green: Handle);
    fn cuCtxFromGreenCtx(out: *mut Handle, green: Handle);

    fn cuMemAlloc_v2(out: *mut u64, bytes: usize);
    fn cuMemFree_v2(address: u64);
    fn cuMemAllocHost_v2(out: *mut Handle, bytes: usize);
    fn cuMemFreeHost(address: Handle);
    fn cuMemHostRegister_v2(address: Handle, bytes: usize, flags: u32);
    fn cuMemHostUnregister(address: Handle);
    fn cuMemHostGetFlags(flags: *mut u32, address: Handle);
    fn cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64);
    fn cuMemAllocManaged(out: *mut u64, bytes: usize, flags: u32);
    fn cuMemAllocAsync(out: *mut u64, bytes: usize, stream: Handle);
    fn cuMemFreeAsync(address: u64, stream: Handle);
    fn cuDeviceGetDefaultMemPool(out: *mut Handle, device: c_int);
    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize);
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize);
    fn cuMemsetD8_v2(address: u64, value: u8, bytes: usize);
    fn cuMemsetD8Async(address: u64, value: u8, bytes: usize, stream: Handle);
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle);
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize);

    fn cuMemAddressReserve(out: *mut u64, bytes: usize, alignment: usize, wish: u64, flags: u64);
    fn cuMemAddressFree(address: u64, bytes: usize);
    fn cuMemPoolCreate(out: *mut Handle, properties: *const c_void);
    fn cuMemPoolDestroy(pool: Handle);
    fn cuMemPoolExportToShareableHandle(out: *mut c_void, pool: Handle, kind: c_int, flags: u64);
    fn cuMemPoolGetAttribute(pool: Handle, attribute: c_int, value: *mut c_void);
    fn cuMemPoolSetAttribute(pool: Handle, attribute: c_int, value: *mut c_void);
    fn cuMemAllocFromPoolAsync(out: *mut u64, bytes: usize, pool: Handle, stream: Handle);
    fn cuMemCreate(out: *mut u64, bytes: usize, properties: *const c_void, flags: u64);
    fn cuMemRelease(handle: u64);
    fn cuMemExportToShareableHandle(out: *mut c_void, handle: u64, kind: c_int, flags: u64);
    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64);
    fn cuMemSetAccess(address: u64, bytes: usize, list: *const c_void, count: usize);
    fn cuMemUnmap(address: u64, bytes: usize);

    fn cuArrayCreate_v2(out: *mut Handle, description: *const c_void);
    fn cuArrayDestroy(array: Handle);
    fn cuMipmappedArrayDestroy(mipmap: Handle);
    fn cuMemcpyHtoA_v2(to: Handle, offset: usize, from: *const c_void, bytes: usize);
    fn cuMemcpyAtoH_v2(to: *mut c_void, from: Handle, offset: usize, bytes: usize);

    fn cuTexObjectCreate(out: *mut u64, resource: *const c_void, texture: *const c_void, view: *const c_void);
    fn cuTexObjectDestroy(texture: u64);
    fn cuTexObjectGetResourceDesc(resource: *mut c_void, texture: u64);
    fn cuTexRefCreate(out: *mut Handle);
    fn cuTexRefSetFormat(texture: Handle, format: u32, channels: c_int);
    fn cuTexRefDestroy(texture: Handle);

    fn cuModuleLoadData(out: *mut Handle, image: *const c_char);
    fn cuModuleUnload(module: Handle);
    fn cuModuleGetFunction(out: *mut Handle, module: Handle, name: *const c_char);
    fn cuLibraryLoadData(out: *mut Handle, image: *const c_char, options: *mut c_void, values: *mut c_void, count: u32,
        library_options: *mut c_void, library_values: *mut c_void, library_count: u32);
    fn cuLibraryUnload(library: Handle);
    fn cuLibraryGetKernel(out: *mut Handle, library: Handle, name: *const c_char);
    fn cuLaunchKernel(function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: Handle, parameters: *mut *mut c_void, extra: *mut *mut c_void);
    fn cuFuncSetBlockShape(function: Handle, x: c_int, y: c_int, z: c_int);
    fn cuFuncSetSharedSize(function: Handle, bytes: u32);
    fn cuParamSetSize(function: Handle, bytes: u32);
    fn cuParamSeti(function: Handle, offset: c_int, value: u32);
    fn cuParamSetf(function: Handle, offset: c_int, value: f32);
    fn cuParamSetv(function: Handle, offset: c_int, value: *const c_void, bytes: u32);

    fn cuStreamBeginCapture_v2(stream: Handle, mode: c_int);
    fn cuStreamEndCapture(stream: Handle, graph: *mut Handle);
    fn cuStreamIsCapturing(stream: Handle, status: *mut u32);
    fn cuGraphCreate(out: *mut Handle, flags: u32);
    fn cuGraphAddEmptyNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize);
    fn cuGraphAddKernelNode_v2(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, node: *const c_void);
    fn cuGraphAddMemcpyNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, node: *const c_void,
        context: Handle);
    fn cuGraphAddMemsetNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, node: *const c_void,
        context: Handle);
    fn cuGraphAddHostNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, node: *const c_void);
    fn cuGraphAddBatchMemOpNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize,
        node: *const c_void);
    fn cuGraphAddChildGraphNode(out: *mut Handle, graph: Handle, after: *const Handle, count: usize, child: Handle);
    fn cuGraphGetNodes(graph: Handle, nodes: *mut Handle, count: *mut usize);
    fn cuGraphGetEdges(graph: Handle, from: *mut Handle, to: *mut Handle, count: *mut usize);
    fn cuGraphInstantiateWithFlags(out: *mut Handle, graph: Handle, flags: u64);
    fn cuGraphLaunch(graph: Handle, stream: Handle);
    fn cuGraphExecDestroy(graph: Handle);
    fn cuGraphDestroy(graph: Handle);
}

/// The kernels that all of the project's programs share, as a C string.
pub(crate) const KERNELS: &str = concat!(include_str!("../../../../examples/kernels/kernels.ptx"), "\0");

/// The driver, made ready as far as the stage asks.
pub(crate) struct Bench {
    pub(crate) driver: Driver,
    functions: Functions,
    pub(crate) ready: Ready,
    /// The current context, or null.
    pub(crate) context: Handle,
    own_stream: Handle,
    /// The lines about calls that prepare and check.
    notes: RefCell<HashSet<String>>,
    /// The kernels as a module and as a library.
    loaded: OnceCell<(Handle, Handle)>,
}

impl Bench {
    pub(crate) fn new(driver: Driver, ready: Ready) -> Self {
        let functions = Functions::find(&driver);
        let mut bench = Self {
            driver,
            functions,
            ready,
            context: null_mut(),
            own_stream: null_mut(),
            notes: RefCell::default(),
            loaded: OnceCell::new(),
        };
        if ready != Ready::Nothing {
            bench.note("cuInit", bench.cuInit(0));
        }
        if ready == Ready::Context {
            let mut made = null_mut();
            bench.note("cuDevicePrimaryCtxRetain", bench.cuDevicePrimaryCtxRetain(&mut made, 0));
            bench.context = made;
            bench.note("cuCtxSetCurrent", bench.cuCtxSetCurrent(made));
            let mut stream = null_mut();
            bench.note("cuStreamCreate", bench.cuStreamCreate(&mut stream, 0));
            bench.own_stream = stream;
        }
        bench
    }

    /// Says once that something beside the cases does not work; where nothing is ready, nothing does.
    pub(crate) fn note(&self, what: &str, result: u32) {
        let note = format!("  ({what}: {result})");
        if result != 0 && self.ready == Ready::Context && self.notes.borrow_mut().insert(note.clone()) {
            println!("{note}");
        }
    }

    /// A stream of our own first, then every way to name a default stream.
    pub(crate) fn streams(&self) -> [Stream; 4] {
        let named = |value: usize| value as Handle;
        [
            ("own stream", self.own_stream),
            ("default stream", null_mut()),
            ("legacy stream", named(1)),
            ("per-thread stream", named(2)),
        ]
    }

    /// The stream that [`Bench::streams`] names first.
    pub(crate) fn own_stream(&self) -> Handle {
        self.own_stream
    }

    /// Waits for all work, and says so if that fails.
    pub(crate) fn settle(&self) -> String {
        match self.cuCtxSynchronize() {
            0 => String::new(),
            result => format!("synchronize {result}, "),
        }
    }

    fn loaded(&self) -> (Handle, Handle) {
        *self.loaded.get_or_init(|| {
            let (mut module, mut library) = (null_mut(), null_mut());
            let image = KERNELS.as_ptr().cast();
            self.note("cuModuleLoadData", self.cuModuleLoadData(&mut module, image));
            let no = null_mut();
            self.note("cuLibraryLoadData", self.cuLibraryLoadData(&mut library, image, no, no, 0, no, no, 0));
            (module, library)
        })
    }

    /// A kernel of ours as a `CUfunction`, or null.
    pub(crate) fn function(&self, name: &CStr) -> Handle {
        let mut function = null_mut();
        if self.ready == Ready::Context {
            self.note("cuModuleGetFunction", self.cuModuleGetFunction(&mut function, self.loaded().0, name.as_ptr()));
        }
        function
    }

    /// A kernel of ours as a `CUkernel`, or null.
    pub(crate) fn kernel(&self, name: &CStr) -> Handle {
        let mut kernel = null_mut();
        if self.ready == Ready::Context {
            self.note("cuLibraryGetKernel", self.cuLibraryGetKernel(&mut kernel, self.loaded().1, name.as_ptr()));
        }
        kernel
    }
}

/// One symbol, to be called in several cases.
pub(crate) struct Subject<'a> {
    pub(crate) bench: &'a Bench,
    pub(crate) symbol: &'static str,
    /// Stands before each case's name.
    pub(crate) stage: &'static str,
}

impl Subject<'_> {
    /// The subject itself.
    ///
    /// # Safety
    /// As [`Driver::find`].
    pub(crate) unsafe fn function<F: Signature>(&self) -> F {
        // SAFETY: the caller's promise.
        unsafe { self.bench.driver.find(self.symbol) }
    }

    /// The stream that the subject takes a handle for: a twin's null is the thread's own default stream.
    pub(crate) fn meant(&self, stream: Handle) -> Handle {
        let is_twin = self.symbol.ends_with("_ptsz") || self.symbol.ends_with("_ptds");
        if is_twin && stream.is_null() { self.bench.streams()[3].1 } else { stream }
    }

    /// Writes the line of one call.
    pub(crate) fn say(&self, case: impl Display, result: u32, seen: impl Display) {
        let seen = seen.to_string();
        let (open, close) = if seen.is_empty() { ("", "") } else { (" [", "]") };
        println!("{} {}{case} -> {result}{open}{seen}{close}", self.symbol, self.stage);
    }
}

/// `", NAME"` for a stream, nothing for a call without one.
pub(crate) fn on((name, _): Stream) -> String {
    if name.is_empty() { String::new() } else { format!(", {name}") }
}

/// The stream of calls that take none.
pub(crate) const NO_STREAM: [Stream; 1] = [("", null_mut())];
