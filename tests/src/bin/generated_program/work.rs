//! Work: as calls, and as nodes of graphs.

use std::ffi::CStr;

use baton_tests::generated::script::{Buf, CopyBy, On, Work};

use crate::machine::{Done, Machine, Trouble, call, made};
use crate::objects::{Host, fill};
use baton_tests::driver::{
    AllocNode, Copy3D, FillNode, Handle, HostNode, KernelNode, PoolProperties, WordOp, WordsNode,
};

/// `CUmemorytype`
pub(crate) const HOST: u32 = 1;
pub(crate) const DEVICE: u32 = 2;

const BLOCKS: u32 = 4;
const THREADS: u32 = 256;

/// A kernel's name, and its parameters as words, or all of them as one structure.
struct Kernel {
    name: &'static CStr,
    words: Vec<u64>,
    is_structure: bool,
}

/// A host function's data.
struct Fill {
    host: Host,
    words: usize,
    seed: u32,
}

extern "C" fn fill_host(data: usize) {
    // SAFETY: leaked when it was submitted; a graph may do it again and again.
    let Fill { host, words, seed } = unsafe { &*(data as *const Fill) };
    // SAFETY: host memory of the script's, which by the script no other call uses now.
    fill(unsafe { std::slice::from_raw_parts_mut(host.at as *mut u32, *words) }, *seed);
}

impl Machine {
    /// Where memory is, for the device.
    pub(crate) fn at(&self, buf: Buf) -> u64 {
        match buf {
            Buf::Mem(id) => self.all.address(id),
            Buf::Host(id) => self.all.hosts.get(id).at as u64,
        }
    }

    /// The kernel that work is, if it is one.
    fn kernel(&self, work: &Work) -> Option<Kernel> {
        let at = |buf: Buf| self.at(buf);
        let kernel = |name, words| Some(Kernel { name, words, is_structure: false });
        match *work {
            Work::Hash { out, seed, words } => kernel(c"fill_hash", vec![at(out), seed.into(), words.into()]),
            Work::Sum { out, from, words } => kernel(c"sum_u32", vec![at(out), at(from), words.into()]),
            Work::Axpy { y, x, words } => kernel(c"axpy", vec![at(y), at(x), 0.5_f32.to_bits().into(), words.into()]),
            Work::Add { out, a, b, words } => {
                let words = vec![at(out), at(a), at(b), words.into()];
                Some(Kernel { name: c"add_struct", words, is_structure: true })
            }
            Work::Gather { out, table, rows, words } => {
                kernel(c"gather", vec![at(out), at(table), rows.into(), words.into()])
            }
            Work::Scatter { table, from, rows, words } => {
                kernel(c"scatter_table", vec![at(table), at(from), rows.into(), words.into()])
            }
            _ => None,
        }
    }

    fn function(&self, name: &CStr) -> Done<Handle> {
        made(|out| call!(self.driver, cuLibraryGetKernel(out, self.library, name.as_ptr())))
    }

    pub(crate) fn launch(&self, on: On, name: &'static CStr, words: &[u64]) -> Done {
        self.launch_kernel(on, &Kernel { name, words: words.to_vec(), is_structure: false })
    }

    fn launch_kernel(&self, on: On, kernel: &Kernel) -> Done {
        let (function, parameters) = (self.function(kernel.name)?, kernel.parameters());
        let (stream, list) = (self.stream(on), parameters.as_ptr());
        let (grid, block) = (BLOCKS, THREADS);
        call!(self.driver, cuLaunchKernel(on.twin, function, grid, 1, 1, block, 1, 1, 0, stream, list, 0))
    }

    fn host_data(&self, out: Buf, words: u32, seed: u32) -> usize {
        let Buf::Host(id) = out else { panic!("host functions write host memory") };
        let data = Box::leak(Box::new(Fill { host: self.all.hosts.get(id), words: words as usize, seed }));
        std::ptr::from_mut(data).expose_provenance()
    }

    /// Puts work into a stream.
    pub(crate) fn submit(&self, on: On, work: &Work) -> Done {
        if let Some(kernel) = self.kernel(work) {
            return self.launch_kernel(on, &kernel);
        }
        let (driver, stream, twin) = (&self.driver, self.stream(on), on.twin);
        match *work {
            Work::Fill { out, value, element, count } => {
                let (at, count) = (self.at(out), count as usize);
                match element {
                    1 => call!(driver, cuMemsetD8Async(twin, at, value as u8, count, stream)),
                    2 => call!(driver, cuMemsetD16Async(twin, at, value as u16, count, stream)),
                    _ => call!(driver, cuMemsetD32Async(twin, at, value, count, stream)),
                }
            }
            Work::Copy { to, from, bytes, by } if !by.is_one() => self.copy_cut(on, to, from, bytes, by),
            Work::Copy { to, from, bytes, by } => {
                let (to_at, from_at, bytes) = (self.at(to), self.at(from), bytes as usize);
                match (to, from) {
                    _ if by == CopyBy::Plain => call!(driver, cuMemcpyAsync(twin, to_at, from_at, bytes, stream)),
                    _ if by == CopyBy::FromHost || (is_mem(to) && !is_mem(from)) => {
                        call!(driver, cuMemcpyHtoDAsync_v2(twin, to_at, from_at as usize, bytes, stream))
                    }
                    (Buf::Host(_), _) => {
                        call!(driver, cuMemcpyDtoHAsync_v2(twin, to_at as usize, from_at, bytes, stream))
                    }
                    _ => call!(driver, cuMemcpyDtoDAsync_v2(twin, to_at, from_at, bytes, stream)),
                }
            }
            Work::HostFunction { out, seed, words } => {
                call!(driver, cuLaunchHostFunc(twin, stream, fill_host, self.host_data(out, words, seed)))
            }
            Work::Scratch { out, seed, words } => self.scratch(on, self.at(out), seed, words),
            Work::WriteWord { out, value } => {
                call!(driver, cuStreamWriteValue32_v2(twin, stream, self.at(out), value, 0))
            }
            Work::Words { out, ref words, by } => self.write_words(on, out, words, by),
            _ => unreachable!("the rest are kernels"),
        }
    }

    /// Does work by a call that names no stream.
    pub(crate) fn submit_and_wait(&self, work: &Work, twin: bool) -> Done {
        let driver = &self.driver;
        match *work {
            Work::Fill { out, value, element, count } => {
                let (at, count) = (self.at(out), count as usize);
                match element {
                    1 => call!(driver, cuMemsetD8_v2(twin, at, value as u8, count)),
                    2 => call!(driver, cuMemsetD16_v2(twin, at, value as u16, count)),
                    _ => call!(driver, cuMemsetD32_v2(twin, at, value, count)),
                }
            }
            Work::Copy { to, from, bytes, by } => {
                let (to_at, from_at, bytes) = (self.at(to), self.at(from), bytes as usize);
                match (to, from) {
                    _ if by == CopyBy::Plain => call!(driver, cuMemcpy(twin, to_at, from_at, bytes)),
                    _ if by == CopyBy::FromHost || (is_mem(to) && !is_mem(from)) => {
                        call!(driver, cuMemcpyHtoD_v2(twin, to_at, from_at as usize, bytes))
                    }
                    (Buf::Host(_), _) => call!(driver, cuMemcpyDtoH_v2(twin, to_at as usize, from_at, bytes)),
                    _ => call!(driver, cuMemcpyDtoD_v2(twin, to_at, from_at, bytes)),
                }
            }
            _ => unreachable!("only these have such calls"),
        }
    }

    /// Allocates memory in a stream's order, writes it, copies it and frees it.
    fn scratch(&self, on: On, out: u64, seed: u32, words: u32) -> Done {
        let (driver, stream, bytes, mut at) = (&self.driver, self.stream(on), 4 * words as usize, 0);
        call!(driver, cuMemAllocAsync(on.twin, &mut at, bytes, stream))?;
        self.launch(on, c"fill_hash", &[at, seed.into(), words.into()])?;
        call!(driver, cuMemcpyDtoDAsync_v2(on.twin, out, at, bytes, stream))?;
        call!(driver, cuMemFreeAsync(on.twin, at, stream))
    }

    /// The same as nodes; the last of them.
    fn add_scratch(&self, graph: Handle, after: &[Handle], out: u64, seed: u32, words: u32) -> Done<Handle> {
        let (driver, bytes, context) = (&self.driver, 4 * words as usize, self.current()?);
        let mut alloc = AllocNode { pool: PoolProperties::exportable(false), access: 0, access_count: 0, bytes, at: 0 };
        let (list, count) = (after.as_ptr(), after.len());
        let made_here = made(|out| call!(driver, cuGraphAddMemAllocNode(out, graph, list, count, &mut alloc)))?;
        let kernel =
            Kernel { name: c"fill_hash", words: vec![alloc.at, seed.into(), words.into()], is_structure: false };
        let filled = made(|out| {
            self.with_kernel_node(&kernel, |node| {
                call!(driver, cuGraphAddKernelNode_v2(out, graph, &made_here, 1, node))
            })
        })?;
        let (to_type, from_type) = (DEVICE, DEVICE);
        let (to_device, from_device) = (out, alloc.at);
        let sizes = Copy3D { width: bytes, height: 1, depth: 1, ..Copy3D::default() };
        let copy = Copy3D { to_type, from_type, to_device, from_device, ..sizes };
        let copied = made(|out| call!(driver, cuGraphAddMemcpyNode(out, graph, &filled, 1, &copy, context)))?;
        made(|out| call!(driver, cuGraphAddMemFreeNode(out, graph, &copied, 1, alloc.at)))
    }

    fn copy_node(&self, to: Buf, from: Buf, bytes: u32) -> Copy3D {
        let mut copy = Copy3D { width: bytes as usize, height: 1, depth: 1, ..Copy3D::default() };
        match to {
            Buf::Mem(_) => (copy.to_type, copy.to_device) = (DEVICE, self.at(to)),
            Buf::Host(_) => (copy.to_type, copy.to_host) = (HOST, self.at(to) as usize),
        }
        match from {
            Buf::Mem(_) => (copy.from_type, copy.from_device) = (DEVICE, self.at(from)),
            Buf::Host(_) => (copy.from_type, copy.from_host) = (HOST, self.at(from) as usize),
        }
        copy
    }

    fn fill_node(&self, out: Buf, value: u32, element: u32, count: u32) -> FillNode {
        FillNode {
            at: self.at(out),
            pitch: 0,
            value: masked(value, element),
            element,
            width: count as usize,
            height: 1,
        }
    }

    fn with_kernel_node(&self, kernel: &Kernel, what: impl FnOnce(&KernelNode) -> Done) -> Done {
        let parameters = kernel.parameters();
        what(&KernelNode {
            function: 0,
            grid: [BLOCKS, 1, 1],
            block: [THREADS, 1, 1],
            shared: 0,
            parameters: parameters.as_ptr(),
            extra: 0,
            kernel: self.function(kernel.name)?,
            context: 0,
        })
    }

    pub(crate) fn current(&self) -> Done<Handle> {
        made(|out| call!(self.driver, cuCtxGetCurrent(out)))
    }

    /// Adds a node to a graph.
    pub(crate) fn add_node(&self, graph: Handle, after: &[Handle], work: &Work) -> Done<Handle> {
        let (driver, list, count) = (&self.driver, after.as_ptr(), after.len());
        if let Some(kernel) = self.kernel(work) {
            return made(|out| {
                self.with_kernel_node(&kernel, |node| {
                    call!(driver, cuGraphAddKernelNode_v2(out, graph, list, count, node))
                })
            });
        }
        let context = self.current()?;
        match *work {
            Work::Fill { out, value, element, count: width } => {
                let node = self.fill_node(out, value, element, width);
                made(|out| call!(driver, cuGraphAddMemsetNode(out, graph, list, count, &node, context)))
            }
            Work::Copy { to, from, bytes, by } if !by.is_one() => self.add_copy_cut(graph, after, to, from, bytes, by),
            Work::Words { out, ref words, by } => self.add_words(graph, after, out, words, by),
            Work::Copy { to, from, bytes, .. } => {
                let node = self.copy_node(to, from, bytes);
                made(|out| call!(driver, cuGraphAddMemcpyNode(out, graph, list, count, &node, context)))
            }
            Work::HostFunction { out, seed, words } => {
                let node = HostNode { function: fill_host, data: self.host_data(out, words, seed) };
                made(|out| call!(driver, cuGraphAddHostNode(out, graph, list, count, &node)))
            }
            Work::Scratch { out, seed, words } => self.add_scratch(graph, after, self.at(out), seed, words),
            Work::WriteWord { out, value } => {
                let word = WordOp::new(WordOp::WRITE_32, self.at(out), value.into());
                let node = WordsNode { context, count: 1, words: &word, flags: 0 };
                made(|out| call!(driver, cuGraphAddBatchMemOpNode(out, graph, list, count, &node)))
            }
            _ => unreachable!("the rest are kernels"),
        }
    }

    /// Gives a node of an instance other work of its kind.
    pub(crate) fn set_node(&self, exec: Handle, node: Handle, work: &Work) -> Done {
        let driver = &self.driver;
        if let Some(kernel) = self.kernel(work) {
            return self.with_kernel_node(&kernel, |parameters| {
                call!(driver, cuGraphExecKernelNodeSetParams_v2(exec, node, parameters))
            });
        }
        let context = self.current()?;
        match *work {
            Work::Fill { out, value, element, count } => {
                let parameters = self.fill_node(out, value, element, count);
                call!(driver, cuGraphExecMemsetNodeSetParams(exec, node, &parameters, context))
            }
            Work::Copy { to, from, bytes, .. } => {
                let parameters = self.copy_node(to, from, bytes);
                call!(driver, cuGraphExecMemcpyNodeSetParams(exec, node, &parameters, context))
            }
            _ => Err(Trouble { what: format!("{work:?} of a node"), answer: 0 }),
        }
    }
}

fn is_mem(buf: Buf) -> bool {
    matches!(buf, Buf::Mem(_))
}

/// As much of a value as an element has.
fn masked(value: u32, element: u32) -> u32 {
    match element {
        1 => value & 0xFF,
        2 => value & 0xFFFF,
        _ => value,
    }
}

impl Kernel {
    /// Where each parameter is.
    fn parameters(&self) -> Vec<usize> {
        let count = if self.is_structure { 1 } else { self.words.len() };
        self.words[..count].iter().map(|word| std::ptr::from_ref(word).expose_provenance()).collect()
    }
}
