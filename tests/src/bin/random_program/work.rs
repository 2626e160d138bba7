//! Things for the device to do: kernels, copies, fills. Each can be submitted to a stream, in one of the many ways
//! that the driver has for it, or be a graph's node.

use std::ffi::{CStr, c_int};
use std::ptr::null;

use crate::dice::Dice;
use crate::gpu::Gpu;
use baton_tests::driver::{
    Copy2D, Copy3D, CopyAttributes, DEVICE, FillNode, HOST, Handle, KERNELS, KernelNode, LaunchAttribute, LaunchConfig,
    Outcome,
};

/// Names an allocation of a lane's own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Key(pub(crate) u32);

/// Something to do, and whose memory it reads and writes.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) work: Work,
    pub(crate) reads: Vec<Key>,
    pub(crate) writes: Vec<Key>,
}

#[derive(Clone)]
pub(crate) enum Work {
    Kernel(Kernel),
    Copy(Copy),
    Fill(Fill),
}

/// A kernel with its arguments, laid out as one buffer.
#[derive(Clone)]
pub(crate) struct Kernel {
    name: &'static CStr,
    buffer: Vec<u8>,
    places: Vec<usize>,
}

impl Kernel {
    pub(crate) fn new(name: &'static CStr) -> Self {
        Self { name, buffer: Vec::new(), places: Vec::new() }
    }

    fn argument(mut self, bytes: &[u8], align: usize) -> Self {
        self.buffer.resize(self.buffer.len().next_multiple_of(align), 0xA5);
        self.places.push(self.buffer.len());
        self.buffer.extend_from_slice(bytes);
        self
    }

    pub(crate) fn pointer(self, at: u64) -> Self {
        self.argument(&at.to_ne_bytes(), 8)
    }

    pub(crate) fn number(self, number: usize) -> Self {
        self.argument(&(number as u32).to_ne_bytes(), 4)
    }

    pub(crate) fn float(self, number: f32) -> Self {
        self.argument(&number.to_ne_bytes(), 4)
    }

    /// A struct by value.
    pub(crate) fn block(self, words: &[u64]) -> Self {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.argument(&bytes, 8)
    }

    /// Addresses of the arguments, valid as long as the kernel stays where it is.
    fn pointers(&self) -> Vec<usize> {
        self.places.iter().map(|place| self.buffer.as_ptr() as usize + place).collect()
    }
}

/// One end of a copy.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Device(u64),
    /// Pinned memory, or pageable memory that lives until the call returns.
    Host(u64),
}

impl End {
    fn at(self) -> u64 {
        match self {
            End::Device(at) | End::Host(at) => at,
        }
    }

    /// Kind, host address, device address.
    fn split(self) -> (u32, usize, u64) {
        match self {
            End::Device(at) => (DEVICE, 0, at),
            End::Host(at) => (HOST, at as usize, 0),
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Copy {
    pub(crate) to: End,
    pub(crate) from: End,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) to_pitch: usize,
    pub(crate) from_pitch: usize,
}

impl Copy {
    pub(crate) fn line(to: End, from: End, bytes: usize) -> Self {
        Self { to, from, width: bytes, height: 1, to_pitch: bytes, from_pitch: bytes }
    }

    fn flat(&self) -> Copy2D {
        let (to_type, to_host, to_device) = self.to.split();
        let (from_type, from_host, from_device) = self.from.split();
        let (to_pitch, from_pitch, width, height) = (self.to_pitch, self.from_pitch, self.width, self.height);
        Copy2D {
            to_type,
            to_host,
            to_device,
            to_pitch,
            from_type,
            from_host,
            from_device,
            from_pitch,
            width,
            height,
            ..Copy2D::default()
        }
    }

    pub(crate) fn solid(&self) -> Copy3D {
        let (to_type, to_host, to_device) = self.to.split();
        let (from_type, from_host, from_device) = self.from.split();
        let (to_pitch, from_pitch, width, height) = (self.to_pitch, self.from_pitch, self.width, self.height);
        Copy3D {
            to_type,
            to_host,
            to_device,
            to_pitch,
            to_height: height,
            from_type,
            from_host,
            from_device,
            from_pitch,
            from_height: height,
            width,
            height,
            depth: 1,
            ..Copy3D::default()
        }
    }
}

/// A pattern of 1, 2 or 4 bytes; width in patterns.
#[derive(Clone, Copy)]
pub(crate) struct Fill {
    pub(crate) at: u64,
    pub(crate) pitch: usize,
    pub(crate) value: u32,
    pub(crate) element: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

impl Fill {
    pub(crate) fn line(at: u64, element: usize, value: u32, width: usize) -> Self {
        Self { at, pitch: element * width, value, element, width, height: 1 }
    }

    pub(crate) fn node(&self) -> FillNode {
        let Self { at, pitch, value, element, width, height } = *self;
        let value = if element == 4 { value } else { value & ((1 << (8 * element)) - 1) };
        FillNode { at, pitch, value, element: element as u32, width, height }
    }
}

/// The kernels as one lane has them: as functions of a module, as a library's kernels, and as their functions.
pub(crate) struct Code {
    pub(crate) module: Handle,
    rows: Vec<(&'static CStr, [Handle; 3])>,
}

const NAMES: [&CStr; 12] = [
    c"add",
    c"add_struct",
    c"scale",
    c"axpy",
    c"relu",
    c"relu_grad",
    c"matmul",
    c"gather",
    c"scatter_table",
    c"chase",
    c"fill_hash",
    c"sum_u32",
];

impl Code {
    pub(crate) fn load(gpu: &Gpu) -> Outcome<Self> {
        let driver = &gpu.driver;
        let mut module = 0;
        driver.cuModuleLoadData(&mut module, KERNELS.as_ptr())?;
        let mut rows = Vec::new();
        for name in NAMES {
            let [mut function, mut kernel, mut of_kernel] = [0; 3];
            driver.cuModuleGetFunction(&mut function, module, name.as_ptr())?;
            driver.cuLibraryGetKernel(&mut kernel, gpu.library, name.as_ptr())?;
            driver.cuKernelGetFunction(&mut of_kernel, kernel)?;
            rows.push((name, [function, kernel, of_kernel]));
        }
        Ok(Self { module, rows })
    }

    fn handles(&self, name: &CStr) -> [Handle; 3] {
        self.rows.iter().find(|row| row.0 == name).expect("every kernel used is in the list").1
    }
}

const BLOCK: u32 = 64;
const EXTRA_BUFFER: usize = 1;
const EXTRA_SIZE: usize = 2;

/// Launches a kernel in any of the ways there are.
pub(crate) fn launch(gpu: &Gpu, code: &Code, dice: &mut Dice, kernel: &Kernel, stream: Handle) -> Outcome {
    let driver = &gpu.driver;
    let handles = code.handles(kernel.name);
    let function = dice.of(&handles);
    let grid = 1 + dice.roll(8) as u32;
    let pointers = kernel.pointers();
    let size = kernel.buffer.len();
    let extra = [EXTRA_BUFFER, kernel.buffer.as_ptr() as usize, EXTRA_SIZE, &raw const size as usize, 0];
    let cooperative = LaunchAttribute { id: 2, pad: 0, value: [1, 0, 0, 0, 0, 0, 0, 0] };
    let ignored = LaunchAttribute { id: 0, pad: 0, value: [0; 8] };
    let attributes = [ignored, cooperative];
    let mut config = LaunchConfig {
        grid: [grid, 1, 1],
        block: [BLOCK, 1, 1],
        shared: 0,
        stream,
        attributes: attributes.as_ptr(),
        attribute_count: dice.roll(3) as u32,
    };
    if config.attribute_count == 0 {
        config.attributes = std::ptr::null();
    }
    let (by_pointers, by_buffer) = (pointers.as_ptr(), extra.as_ptr() as usize);
    match dice.roll(8) {
        0 | 1 => driver.cuLaunchKernel(function, grid, 1, 1, BLOCK, 1, 1, 0, stream, by_pointers, 0),
        2 | 3 => driver.cuLaunchKernel(function, grid, 1, 1, BLOCK, 1, 1, 0, stream, null(), by_buffer),
        4 => driver.cuLaunchKernelEx(&config, function, by_pointers, 0),
        5 => driver.cuLaunchKernelEx(&config, function, null(), by_buffer),
        6 => driver.cuLaunchCooperativeKernel(function, grid, 1, 1, BLOCK, 1, 1, 0, stream, by_pointers),
        _ => {
            // Shape and arguments are the function's own: the lane's module has this one to itself.
            let function = handles[0];
            driver.cuFuncSetBlockShape(function, BLOCK as c_int, 1, 1)?;
            driver.cuParamSetSize(function, size as u32)?;
            driver.cuParamSetv(function, 0, kernel.buffer.as_ptr() as usize, size as u32)?;
            driver.cuLaunchGridAsync(function, grid as c_int, 1, stream)
        }
    }
}

/// Copies in any of the ways there are. The default stream has more of them.
pub(crate) fn copy(gpu: &Gpu, dice: &mut Dice, copy: &Copy, stream: Handle) -> Outcome {
    let driver = &gpu.driver;
    let (to, from, bytes) = (copy.to.at(), copy.from.at(), copy.width);
    let waits = stream == 0 && dice.once_in(2);
    if copy.height > 1 {
        return match (waits, dice.roll(3)) {
            (true, 0) => driver.cuMemcpy2D_v2(&copy.flat()),
            (true, 1) => driver.cuMemcpy2DUnaligned_v2(&copy.flat()),
            (true, _) => driver.cuMemcpy3D_v2(&copy.solid()),
            (false, 0) => driver.cuMemcpy3DAsync_v2(&copy.solid(), stream),
            (false, _) => driver.cuMemcpy2DAsync_v2(&copy.flat(), stream),
        };
    }
    // The same bytes as rows side by side.
    let rows = if bytes.is_multiple_of(4) { 4 } else { 1 };
    let row = bytes / rows;
    let folded = Copy { width: row, height: rows, to_pitch: row, from_pitch: row, ..*copy };
    match (waits, dice.roll(6)) {
        (true, 0) => driver.cuMemcpy(to, from, bytes),
        (true, 1) => driver.cuMemcpy2D_v2(&folded.flat()),
        (true, 2) => driver.cuMemcpy3D_v2(&folded.solid()),
        (false, 0) => driver.cuMemcpyAsync(to, from, bytes, stream),
        (false, 1) => driver.cuMemcpy2DAsync_v2(&folded.flat(), stream),
        (false, 2) => driver.cuMemcpy3DAsync_v2(&folded.solid(), stream),
        (waits, _) => match (copy.to, copy.from, waits) {
            (End::Device(_), End::Host(_), true) => driver.cuMemcpyHtoD_v2(to, from as usize, bytes),
            (End::Device(_), End::Host(_), false) => driver.cuMemcpyHtoDAsync_v2(to, from as usize, bytes, stream),
            (End::Host(_), End::Device(_), true) => driver.cuMemcpyDtoH_v2(to as usize, from, bytes),
            (End::Host(_), End::Device(_), false) => driver.cuMemcpyDtoHAsync_v2(to as usize, from, bytes, stream),
            (End::Device(_), End::Device(_), true) => driver.cuMemcpyDtoD_v2(to, from, bytes),
            (End::Device(_), End::Device(_), false) if dice.once_in(3) => {
                driver.cuMemcpyPeerAsync(to, gpu.context, from, gpu.context, bytes, stream)
            }
            (End::Device(_), End::Device(_), false) => driver.cuMemcpyDtoDAsync_v2(to, from, bytes, stream),
            (End::Host(_), End::Host(_), _) => driver.cuMemcpyAsync(to, from, bytes, stream),
        },
    }
}

/// Copies several lines in one call, which the default stream does not take.
pub(crate) fn copy_batch(gpu: &Gpu, lines: &[Copy], stream: Handle) -> Outcome {
    let to: Vec<u64> = lines.iter().map(|line| line.to.at()).collect();
    let from: Vec<u64> = lines.iter().map(|line| line.from.at()).collect();
    let sizes: Vec<usize> = lines.iter().map(|line| line.width).collect();
    let in_stream_order = CopyAttributes { order: 1, hints: [0; 4], flags: 0 };
    let (first, count) = (0, lines.len());
    gpu.driver.cuMemcpyBatchAsync_v2(
        to.as_ptr(),
        from.as_ptr(),
        sizes.as_ptr(),
        count,
        &in_stream_order,
        &first,
        1,
        stream,
    )
}

/// Fills in any of the ways there are.
pub(crate) fn fill(gpu: &Gpu, dice: &mut Dice, fill: &Fill, stream: Handle) -> Outcome {
    let driver = &gpu.driver;
    let Fill { at, pitch, value, element, width, height } = *fill;
    let (byte, half) = (value as u8, value as u16);
    let flat = height > 1 || dice.once_in(3);
    let waits = stream == 0 && dice.once_in(2);
    match (element, flat, waits) {
        (1, false, false) => driver.cuMemsetD8Async(at, byte, width, stream),
        (2, false, false) => driver.cuMemsetD16Async(at, half, width, stream),
        (_, false, false) => driver.cuMemsetD32Async(at, value, width, stream),
        (1, true, false) => driver.cuMemsetD2D8Async(at, pitch, byte, width, height, stream),
        (2, true, false) => driver.cuMemsetD2D16Async(at, pitch, half, width, height, stream),
        (_, true, false) => driver.cuMemsetD2D32Async(at, pitch, value, width, height, stream),
        (1, false, true) => driver.cuMemsetD8_v2(at, byte, width),
        (2, false, true) => driver.cuMemsetD16_v2(at, half, width),
        (_, false, true) => driver.cuMemsetD32_v2(at, value, width),
        (1, true, true) => driver.cuMemsetD2D8_v2(at, pitch, byte, width, height),
        (2, true, true) => driver.cuMemsetD2D16_v2(at, pitch, half, width, height),
        (_, true, true) => driver.cuMemsetD2D32_v2(at, pitch, value, width, height),
    }
}

/// Describes a kernel for a graph's node, and passes the description to `with`.
pub(crate) fn with_kernel_node<R>(
    gpu: &Gpu,
    code: &Code,
    dice: &mut Dice,
    kernel: &Kernel,
    with: impl FnOnce(&KernelNode) -> R,
) -> R {
    let handles = code.handles(kernel.name);
    let pointers = kernel.pointers();
    let size = kernel.buffer.len();
    let extra = [EXTRA_BUFFER, kernel.buffer.as_ptr() as usize, EXTRA_SIZE, &raw const size as usize, 0];
    let mut node = KernelNode {
        function: handles[0],
        grid: [1 + dice.roll(8) as u32, 1, 1],
        block: [BLOCK, 1, 1],
        shared: 0,
        parameters: pointers.as_ptr(),
        extra: 0,
        kernel: 0,
        context: 0,
    };
    if dice.once_in(2) {
        (node.parameters, node.extra) = (null(), extra.as_ptr() as usize);
    }
    if dice.once_in(2) {
        (node.function, node.kernel, node.context) = (0, handles[1], gpu.context);
    }
    with(&node)
}
