//! What captured graphs hold: read when a graph is made ready to run, and at every change.
//!
//! A graph's launch needs what its kernel, copy and fill nodes name. Changes add to that and take nothing away: what
//! is needed in vain costs only time.

use core::ffi::c_void;
use core::ptr;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use baton_contract::cuda::{CUDA_SUCCESS, CUdeviceptr, CUgraphExec};

use super::blocks::Needs;
pub(crate) use super::copies::{CopyNode, FillNode, Handle};
use super::copies::{DEVICE, HOST, UNIFIED, kind};
use super::door::Gpu;
use super::footprint::{self, Reach};
use crate::driver::api;
use crate::memory::space::is_ours;

/// `CUDA_KERNEL_NODE_PARAMS_v2` of `cuda.h`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KernelNode {
    function: Handle,
    sizes: [u32; 7],
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
    kernel: Handle,
    context: Handle,
}

/// How much of a graph is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    /// What memory it names, and what it copies to the device.
    #[default]
    All,
    /// What memory it names: something in it cannot be read.
    Names,
    Nothing,
}

/// What a graph holds.
#[derive(Clone, Debug, Default)]
struct Harvest {
    addresses: Vec<CUdeviceptr>,
    /// Host memory that it copies to the device, read when it is launched.
    sources: Vec<(usize, usize)>,
    known: Known,
}

static GRAPHS: Mutex<Option<HashMap<usize, Harvest>>> = Mutex::new(None);

fn graphs() -> MutexGuard<'static, Option<HashMap<usize, Harvest>>> {
    GRAPHS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a graph's launch needs.
pub(crate) fn needs(gpu: Gpu, graph: CUgraphExec) -> Needs {
    let known = graphs().as_ref().and_then(|all| all.get(&graph.addr()).cloned());
    let enough = match gpu {
        Gpu::Shared => Known::All,
        Gpu::Other => Known::Names,
    };
    let Some(harvest) = known.filter(|harvest| harvest.known <= enough) else { return Needs::Everything };
    // Not under the lock: there may be much to read.
    footprint::ranges(|found| {
        found.extend(&harvest.addresses);
        let mut sources = harvest.sources.iter();
        sources.try_for_each(|(at, bytes)| ptr::with_exposed_provenance::<c_void>(*at).add_to(*bytes, gpu, found))
    })
}

/// A graph was made ready to run, or all of it was replaced.
pub(crate) fn made(ready: CUgraphExec, graph: Handle) {
    let mut harvest = Harvest::default();
    harvest.add_graph(graph);
    graphs().get_or_insert_default().insert(ready.addr(), harvest);
}

/// It is no more.
pub(crate) fn gone(ready: CUgraphExec) {
    if let Some(all) = graphs().as_mut() {
        all.remove(&ready.addr());
    }
}

/// It was changed in a way that is not read.
pub(crate) fn unreadable(ready: CUgraphExec) {
    change(ready, |harvest| harvest.known = Known::Nothing);
}

fn change(ready: CUgraphExec, change: impl FnOnce(&mut Harvest)) {
    if let Some(harvest) = graphs().as_mut().and_then(|all| all.get_mut(&ready.addr())) {
        change(harvest);
    }
}

/// A kernel node of it was changed. In version 1 of the structure nothing follows `extra`.
pub(crate) fn kernel_changed(ready: CUgraphExec, node: *const KernelNode, is_v1: bool) {
    // Read before the books are locked: the driver may be asked.
    let mut harvest = Harvest::default();
    // SAFETY: the driver has just taken it; the first version lacks the last two fields.
    let node = unsafe {
        let (function, parameters, extra) = ((*node).function, (*node).parameters, (*node).extra);
        let kernel = if is_v1 { ptr::null_mut() } else { (*node).kernel };
        KernelNode { function, sizes: [0; 7], parameters, extra, kernel, context: ptr::null_mut() }
    };
    harvest.add_kernel(&node);
    change(ready, |known| known.add(harvest));
}

/// A copy node of it was changed.
pub(crate) fn copy_changed(ready: CUgraphExec, node: *const CopyNode) {
    let mut harvest = Harvest::default();
    // SAFETY: the driver has just taken it.
    harvest.add_copy(unsafe { &*node });
    // Which of the sources that were known before this one replaces is not kept: they must not be read any more.
    harvest.sources.clear();
    change(ready, |known| {
        known.sources.clear();
        known.no_more_than(Known::Names);
        known.add(harvest);
    });
}

/// A fill node of it was changed.
pub(crate) fn fill_changed(ready: CUgraphExec, node: *const FillNode) {
    // SAFETY: the driver has just taken it.
    let target = unsafe { (*node).target };
    change(ready, |known| known.add_address(target));
}

/// A graph in it was replaced by this one.
pub(crate) fn child_changed(ready: CUgraphExec, graph: Handle) {
    let mut harvest = Harvest::default();
    harvest.add_graph(graph);
    change(ready, |known| known.add(harvest));
}

impl Harvest {
    fn add(&mut self, other: Self) {
        self.addresses.extend(other.addresses);
        self.addresses.sort_unstable();
        self.addresses.dedup();
        self.sources.extend(other.sources);
        self.no_more_than(other.known);
    }

    /// No more is known of it.
    fn no_more_than(&mut self, known: Known) {
        self.known = self.known.max(known);
    }

    fn add_address(&mut self, address: CUdeviceptr) {
        if is_ours(address) {
            self.addresses.push(address);
        }
    }

    fn add_graph(&mut self, graph: Handle) {
        let mut count = 0;
        // SAFETY: the program's graph, and an out-parameter.
        let mut answer = unsafe { api::graph_nodes(graph, ptr::null_mut(), &mut count) };
        let mut nodes = vec![ptr::null_mut(); count];
        if answer == CUDA_SUCCESS && count > 0 {
            // SAFETY: room for so many.
            answer = unsafe { api::graph_nodes(graph, nodes.as_mut_ptr(), &mut count) };
        }
        if answer != CUDA_SUCCESS {
            self.known = Known::Nothing;
            return;
        }
        for node in nodes {
            if self.add_node(node).is_none() {
                self.known = Known::Nothing;
                return;
            }
        }
        self.addresses.sort_unstable();
        self.addresses.dedup();
    }

    fn add_node(&mut self, node: Handle) -> Option<()> {
        let mut what = -1;
        let worked = |answer| (answer == CUDA_SUCCESS).then_some(());
        // SAFETY: a node of the program's graph; structures of cuda.h's layouts as out-parameters, zeros to begin with.
        unsafe {
            worked(api::node_kind(node, &mut what))?;
            match what {
                kind::KERNEL => {
                    let mut kernel: KernelNode = core::mem::zeroed();
                    worked(api::kernel_node(node, (&raw mut kernel).cast()))?;
                    self.add_kernel(&kernel);
                }
                kind::COPY => {
                    let mut copy: CopyNode = core::mem::zeroed();
                    worked(api::copy_node(node, (&raw mut copy).cast()))?;
                    self.add_copy(&copy);
                }
                kind::FILL => {
                    let mut fill: FillNode = core::mem::zeroed();
                    worked(api::fill_node(node, (&raw mut fill).cast()))?;
                    self.add_address(fill.target);
                }
                kind::CHILD => {
                    let mut child = ptr::null_mut();
                    worked(api::child_graph(node, &mut child))?;
                    self.add_graph(child);
                }
                kind::EMPTY | kind::WAIT_EVENT | kind::RECORD_EVENT => {}
                // They name no memory of ours.
                kind::HOST_FUNCTION | kind::ALLOCATION | kind::FREE => self.no_more_than(Known::Names),
                _ => return None,
            }
        }
        Some(())
    }

    fn add_kernel(&mut self, node: &KernelNode) {
        let function = if node.function.is_null() { node.kernel } else { node.function };
        // SAFETY: the parameters that the driver keeps for this node, or has just been given.
        let read = unsafe { footprint::add_parameters(function, node.parameters, node.extra, &mut self.addresses) };
        // What host memory holds when the graph is launched is not known now.
        if !matches!(read, Some(footprint::Reads::DeviceOnly)) {
            self.no_more_than(Known::Names);
        }
    }

    fn add_copy(&mut self, node: &CopyNode) {
        match node.to.kind {
            DEVICE | UNIFIED => self.add_address(node.to.device),
            HOST => {}
            // An array is not one of ours, but what is copied there may be pointers.
            _ => self.no_more_than(Known::Names),
        }
        match node.from.kind {
            DEVICE => self.add_address(node.from.device),
            UNIFIED if is_ours(node.from.device) => self.add_address(node.from.device),
            HOST if node.height <= 1 && node.depth <= 1 => {
                self.sources.push((node.from.host.expose_provenance() + node.from.offsets[0], node.width));
            }
            _ => self.no_more_than(Known::Names),
        }
    }
}
