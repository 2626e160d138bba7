//! Kernels and their parameters, launched in any of the ways there are.

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::ptr::null;

use baton_tests::generated::script::{LaunchBy, On};

use crate::machine::{Done, Machine, call, made};
use baton_tests::driver::{Handle, KernelNode, LaunchAttribute, LaunchConfig};

const BLOCKS: u32 = 4;
const THREADS: u32 = 256;

/// The keys of a list of parameters in one buffer.
const END: usize = 0;
const BUFFER: usize = 1;
const SIZE: usize = 2;

/// What a program leaves where nothing of its is.
const PADDING: u32 = 0xA5A5_A5A5;

thread_local! {
    /// The thread's call, and its own library.
    static WAY: Cell<(LaunchBy, Option<Handle>)> = const { Cell::new((LaunchBy::Pointers, None)) };
}

/// Lets this thread launch functions of a library of its own: another thread does not change what old launches leave in them.
pub(crate) fn begin(library: Option<Handle>) {
    WAY.set((LaunchBy::Pointers, library));
}

/// From now on the thread launches kernels by this call.
pub(crate) fn set(by: LaunchBy) {
    WAY.set((by, WAY.get().1));
}

fn by() -> LaunchBy {
    WAY.get().0
}

/// A kernel with its parameters, as one buffer.
pub(crate) struct Kernel {
    name: &'static CStr,
    buffer: Vec<u64>,
    bytes: usize,
    /// Where in it each parameter is.
    places: Vec<usize>,
}

impl Kernel {
    /// One that is given pointers, and numbers behind them.
    pub(crate) fn new(name: &'static CStr, pointers: &[u64], numbers: &[u32]) -> Self {
        let halves = numbers.chunks(2).map(|two| u64::from(two[0]) | u64::from(*two.get(1).unwrap_or(&PADDING)) << 32);
        let buffer: Vec<u64> = pointers.iter().copied().chain(halves).collect();
        let first = 8 * pointers.len();
        let bytes = first + 4 * numbers.len();
        let places = (0..first).step_by(8).chain((first..bytes).step_by(4)).collect();
        Self { name, buffer, bytes, places }
    }

    /// One that is given all of it as one structure, with anything behind the number.
    pub(crate) fn of_structure(name: &'static CStr, pointers: &[u64], number: u32) -> Self {
        let kernel = Self::new(name, pointers, &[number, PADDING]);
        Self { places: vec![0], ..kernel }
    }

    /// Where each parameter is.
    fn parameters(&self) -> Vec<usize> {
        let start = self.buffer.as_ptr().expose_provenance();
        self.places.iter().map(|place| start + place).collect()
    }

    fn size(&self) -> usize {
        std::ptr::from_ref(&self.bytes).expose_provenance()
    }

    /// The list that names the buffer.
    fn extra(&self) -> [usize; 5] {
        [BUFFER, self.buffer.as_ptr().expose_provenance(), SIZE, self.size(), END]
    }
}

impl Machine {
    /// A kernel of the library, or its function.
    fn kernel_named(&self, name: &CStr) -> Done<Handle> {
        made(|out| call!(self.driver, cuLibraryGetKernel(out, self.library, name.as_ptr())))
    }

    fn function_named(&self, name: &CStr) -> Done<Handle> {
        let library = WAY.get().1.unwrap_or(self.library);
        let kernel = made(|out| call!(self.driver, cuLibraryGetKernel(out, library, name.as_ptr())))?;
        made(|out| call!(self.driver, cuKernelGetFunction(out, kernel)))
    }

    pub(crate) fn launch(&self, on: On, name: &'static CStr, pointers: &[u64], numbers: &[u32]) -> Done {
        self.launch_kernel(on, &Kernel::new(name, pointers, numbers))
    }

    pub(crate) fn launch_kernel(&self, on: On, kernel: &Kernel) -> Done {
        let (driver, by, parameters, extra) = (&self.driver, by(), kernel.parameters(), kernel.extra());
        let function = match by {
            LaunchBy::Function | LaunchBy::Old => self.function_named(kernel.name)?,
            _ => self.kernel_named(kernel.name)?,
        };
        // Only one of these calls has two forms.
        let (either, stream) = (self.stream(on), self.stream(On { twin: false, ..on }));
        let (list, buffer) = (parameters.as_ptr(), extra.as_ptr().expose_provenance());
        let (grid, block) = (BLOCKS, THREADS);
        let attribute = LaunchAttribute { id: 0, pad: 0, value: [0; 8] };
        let config = LaunchConfig {
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            shared: 0,
            stream,
            attributes: &attribute,
            attribute_count: 1,
        };
        match by {
            LaunchBy::Pointers | LaunchBy::Function => {
                call!(driver, cuLaunchKernel(on.twin, function, grid, 1, 1, block, 1, 1, 0, either, list, 0))
            }
            LaunchBy::Buffer => {
                call!(driver, cuLaunchKernel(on.twin, function, grid, 1, 1, block, 1, 1, 0, either, null(), buffer))
            }
            LaunchBy::Config => call!(driver, cuLaunchKernelEx(&config, function, list, 0)),
            LaunchBy::ConfigBuffer => call!(driver, cuLaunchKernelEx(&config, function, null(), buffer)),
            LaunchBy::Cooperative => {
                call!(driver, cuLaunchCooperativeKernel(function, grid, 1, 1, block, 1, 1, 0, stream, list))
            }
            LaunchBy::Old => {
                let values = kernel.buffer.as_ptr().expose_provenance();
                call!(driver, cuFuncSetBlockShape(function, block as c_int, 1, 1))?;
                call!(driver, cuParamSetSize(function, kernel.bytes as u32))?;
                call!(driver, cuParamSetv(function, 0, values, kernel.bytes as u32))?;
                call!(driver, cuLaunchGridAsync(function, grid as c_int, 1, stream))
            }
        }
    }

    /// Describes a kernel for a graph's node.
    pub(crate) fn with_kernel_node(&self, kernel: &Kernel, what: impl FnOnce(&KernelNode) -> Done) -> Done {
        let (by, parameters, extra) = (by(), kernel.parameters(), kernel.extra());
        let mut node = KernelNode {
            function: 0,
            grid: [BLOCKS, 1, 1],
            block: [THREADS, 1, 1],
            shared: 0,
            parameters: parameters.as_ptr(),
            extra: 0,
            kernel: 0,
            context: 0,
        };
        match by {
            LaunchBy::Function | LaunchBy::Old => node.function = self.function_named(kernel.name)?,
            _ => node.kernel = self.kernel_named(kernel.name)?,
        }
        if matches!(by, LaunchBy::Buffer | LaunchBy::ConfigBuffer | LaunchBy::Old) {
            (node.parameters, node.extra) = (null(), extra.as_ptr().expose_provenance());
        }
        what(&node)
    }
}
