//! The needs of captured graphs: read when a graph is instantiated, and at every change.
//!
//! A graph's launch needs the memory that its kernel, copy and fill nodes name, and the data that they bring. Changes add to that and take
//! nothing away: needless memory costs only time. Host memory that a node reads is read when the graph runs, after any function of the
//! host that the graph has called before.

use core::ffi::c_void;
use core::ptr;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use baton_contract::cuda::{CUDA_SUCCESS, CUgraphExec};

use super::copies::kind;
pub(crate) use super::copies::{CopyNode, FillNode, Handle};
use super::entry::Gpu;
use super::footprint::{self, Reach};
use super::needs::{Named, Needs, Opaque};
use crate::driver::api;
use crate::work::idle;

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

/// The needs of a graph, as read from its nodes.
#[derive(Clone, Debug)]
struct Harvest {
    /// The memory that its nodes name, and the data that they bring. Host memory that they read is opaque: it is read when the graph runs.
    named: Named,
    /// All memory that it names could be read.
    is_known: bool,
}

static GRAPHS: Mutex<Option<HashMap<usize, Harvest>>> = Mutex::new(None);

fn graphs() -> MutexGuard<'static, Option<HashMap<usize, Harvest>>> {
    GRAPHS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The needs of a graph's launch.
pub(crate) fn needs(_: Gpu, graph: CUgraphExec) -> Needs {
    idle::note_waiting();
    let known = graphs().as_ref().and_then(|all| all.get(&graph.addr()).cloned());
    known.filter(|harvest| harvest.is_known).map_or(Needs::Everything, |harvest| Needs::These(harvest.named))
}

/// Reads a graph that was instantiated, or whose contents were replaced.
pub(crate) fn made(ready: CUgraphExec, graph: Handle) {
    let mut harvest = Harvest::default();
    harvest.add_graph(graph);
    graphs().get_or_insert_default().insert(ready.addr(), harvest);
}

/// Forgets a destroyed graph.
pub(crate) fn gone(ready: CUgraphExec) {
    if let Some(all) = graphs().as_mut() {
        all.remove(&ready.addr());
    }
}

/// Records a change of a graph by a structure that is not read.
pub(crate) fn unreadable(ready: CUgraphExec) {
    change(ready, Harvest::lose);
}

fn change(ready: CUgraphExec, change: impl FnOnce(&mut Harvest)) {
    if let Some(harvest) = graphs().as_mut().and_then(|all| all.get_mut(&ready.addr())) {
        change(harvest);
    }
}

/// Records a change of a kernel node. In version 1 of the structure nothing follows `extra`.
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

/// Records a change of a copy node.
pub(crate) fn copy_changed(ready: CUgraphExec, node: *const CopyNode) {
    // SAFETY: the driver has just taken it.
    let node = unsafe { *node };
    change(ready, |known| known.add_copy(&node));
}

/// Records a change of a fill node.
pub(crate) fn fill_changed(ready: CUgraphExec, node: *const FillNode) {
    // SAFETY: the driver has just taken it.
    let node = unsafe { *node };
    change(ready, |known| known.add_fill(&node));
}

/// Records that a child graph was replaced by this one.
pub(crate) fn child_changed(ready: CUgraphExec, graph: Handle) {
    let mut harvest = Harvest::default();
    harvest.add_graph(graph);
    change(ready, |known| known.add(harvest));
}

impl Default for Harvest {
    fn default() -> Self {
        // Only kernels are launched before their memory.
        Self { named: Named { is_unchecked: true, ..Named::default() }, is_known: true }
    }
}

impl Harvest {
    fn add(&mut self, other: Self) {
        self.named.add(other.named);
        self.is_known &= other.is_known;
    }

    /// Marks it as unreadable.
    fn lose(&mut self) {
        self.is_known = false;
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
        if answer != CUDA_SUCCESS || nodes.into_iter().any(|node| self.add_node(node).is_none()) {
            return self.lose();
        }
        self.named.settle();
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
                    self.add_fill(&fill);
                }
                kind::CHILD => {
                    let mut child = ptr::null_mut();
                    worked(api::child_graph(node, &mut child))?;
                    self.add_graph(child);
                }
                // They name no memory of ours, and bring no data to it.
                kind::EMPTY | kind::WAIT_EVENT | kind::RECORD_EVENT | kind::HOST_FUNCTION => {}
                // Nor do these; the memory that they allocate, and its contents, are not known.
                kind::ALLOCATION | kind::FREE => self.named.hide(true, Opaque::Node),
                _ => return None,
            }
        }
        Some(())
    }

    fn add_kernel(&mut self, node: &KernelNode) {
        let function = if node.function.is_null() { node.kernel } else { node.function };
        // SAFETY: the parameters that the driver keeps for this node, or has just been given.
        let read = unsafe { footprint::add_parameters(function, node.parameters, node.extra, &mut self.named) };
        self.named.hide(read.is_none(), Opaque::Parameters);
    }

    fn add_copy(&mut self, node: &CopyNode) {
        self.named.is_unchecked = false;
        node.add_to(&mut self.named.addresses);
        self.named.hide(!node.keeps_words(), Opaque::Node);
    }

    fn add_fill(&mut self, node: &FillNode) {
        self.named.is_unchecked = false;
        node.target.add_to(&mut self.named.addresses);
        node.filled().add_words(&mut self.named);
    }
}
