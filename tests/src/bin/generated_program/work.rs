//! Work: as calls, and as nodes of graphs.

use baton_tests::generated::script::{Buf, CopyBy, On, Work};

use crate::launches::Kernel;
use crate::machine::{Done, Machine, Trouble, call, check, made};
use crate::objects::{Host, fill};
use baton_tests::driver::{
    AllocNode, Copy3D, CopyAttributes, FillNode, Handle, HostNode, PoolProperties, WordOp, WordsNode,
};

/// `CUmemorytype`
pub(crate) const HOST: u32 = 1;
pub(crate) const DEVICE: u32 = 2;

/// The driver has no such function.
const NOT_FOUND: u32 = 500;

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
        let kernel = |name, pointers: &[u64], numbers: &[u32]| Some(Kernel::new(name, pointers, numbers));
        match *work {
            Work::Hash { out, seed, words } => kernel(c"fill_hash", &[at(out)], &[seed, words]),
            Work::Sum { out, from, words } => kernel(c"sum_u32", &[at(out), at(from)], &[words]),
            Work::Axpy { y, x, words } => kernel(c"axpy", &[at(y), at(x)], &[0.5_f32.to_bits(), words]),
            Work::Add { out, a, b, words } => {
                Some(Kernel::of_structure(c"add_struct", &[at(out), at(a), at(b)], words))
            }
            Work::Gather { out, table, rows, words } => kernel(c"gather", &[at(out), at(table)], &[rows, words]),
            Work::Scatter { table, from, rows, words } => {
                kernel(c"scatter_table", &[at(table), at(from)], &[rows, words])
            }
            Work::Chase { out, from, hops } => kernel(c"chase", &[at(out), at(from)], &[hops]),
            _ => None,
        }
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
            Work::Fill { out, value, element, count, in_rows: true } => {
                let (at, (pitch, width)) = (self.at(out), rows_of(element, count));
                let stream = self.stream(On { twin: false, ..on });
                match element {
                    1 => call!(driver, cuMemsetD2D8Async(at, pitch, value as u8, width, ROWS, stream)),
                    2 => call!(driver, cuMemsetD2D16Async(at, pitch, value as u16, width, ROWS, stream)),
                    _ => call!(driver, cuMemsetD2D32Async(at, pitch, value, width, ROWS, stream)),
                }
            }
            Work::Fill { out, value, element, count, .. } => {
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
                    _ if by == CopyBy::Batch => self.copy_halves(on, to_at, from_at, bytes),
                    _ if by == CopyBy::Peer => {
                        let (context, stream) = (self.current()?, self.stream(On { twin: false, ..on }));
                        call!(driver, cuMemcpyPeerAsync(to_at, context, from_at, context, bytes, stream))
                    }
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
            Work::Fill { out, value, element, count, in_rows: true } if !twin => {
                let (at, (pitch, width)) = (self.at(out), rows_of(element, count));
                match element {
                    1 => call!(driver, cuMemsetD2D8_v2(at, pitch, value as u8, width, ROWS)),
                    2 => call!(driver, cuMemsetD2D16_v2(at, pitch, value as u16, width, ROWS)),
                    _ => call!(driver, cuMemsetD2D32_v2(at, pitch, value, width, ROWS)),
                }
            }
            Work::Fill { out, value, element, count, .. } => {
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

    /// Copies the second half and the first, by one call where the driver has it.
    fn copy_halves(&self, on: On, to: u64, from: u64, bytes: usize) -> Done {
        let (driver, stream, cut) = (&self.driver, self.stream(on), bytes / 2);
        let (tos, froms, sizes) = ([to + cut as u64, to], [from + cut as u64, from], [bytes - cut, cut]);
        let in_stream_order = CopyAttributes { order: 1, hints: [0; 4], flags: 0 };
        let (to_list, from_list, size_list) = (tos.as_ptr(), froms.as_ptr(), sizes.as_ptr());
        match driver.cuMemcpyBatchAsync_v2(to_list, from_list, size_list, 2, &in_stream_order, &0, 1, stream) {
            NOT_FOUND => call!(driver, cuMemcpyAsync(on.twin, to, from, bytes, stream)),
            answer => check("cuMemcpyBatchAsync", answer),
        }
    }

    /// Allocates memory in a stream's order, writes it, copies it and frees it.
    fn scratch(&self, on: On, out: u64, seed: u32, words: u32) -> Done {
        let (driver, stream, bytes, mut at) = (&self.driver, self.stream(on), 4 * words as usize, 0);
        call!(driver, cuMemAllocAsync(on.twin, &mut at, bytes, stream))?;
        self.launch(on, c"fill_hash", &[at], &[seed, words])?;
        call!(driver, cuMemcpyDtoDAsync_v2(on.twin, out, at, bytes, stream))?;
        call!(driver, cuMemFreeAsync(on.twin, at, stream))
    }

    /// The same as nodes; the last of them.
    fn add_scratch(&self, graph: Handle, after: &[Handle], out: u64, seed: u32, words: u32) -> Done<Handle> {
        let (driver, bytes, context) = (&self.driver, 4 * words as usize, self.current()?);
        let mut alloc = AllocNode { pool: PoolProperties::exportable(false), access: 0, access_count: 0, bytes, at: 0 };
        let (list, count) = (after.as_ptr(), after.len());
        let made_here = made(|out| call!(driver, cuGraphAddMemAllocNode(out, graph, list, count, &mut alloc)))?;
        let kernel = Kernel::new(c"fill_hash", &[alloc.at], &[seed, words]);
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

    fn fill_node(&self, out: Buf, value: u32, element: u32, count: u32, in_rows: bool) -> FillNode {
        let (at, value) = (self.at(out), masked(value, element));
        let ((pitch, width), height) = match in_rows {
            true => (rows_of(element, count), ROWS),
            false => ((0, count as usize), 1),
        };
        FillNode { at, pitch, value, element, width, height }
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
            Work::Fill { out, value, element, count: width, in_rows } => {
                let node = self.fill_node(out, value, element, width, in_rows);
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
            Work::Fill { out, value, element, count, in_rows } => {
                let parameters = self.fill_node(out, value, element, count, in_rows);
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

/// Rows of a fill.
const ROWS: usize = 4;

/// The distance between rows in bytes, and the width of each in elements, of a fill of so many elements.
fn rows_of(element: u32, count: u32) -> (usize, usize) {
    let width = count as usize / ROWS;
    (width * element as usize, width)
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
