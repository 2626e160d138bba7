//! Running while memory is still on its way: each call waits for the memory that it needs, and for no other.
//!
//! After an eviction the gate may be opened as **arriving**. Extents are mapped one after the other then, each when its contents are
//! there; until all are, every call that touches device memory declares its [needs](footprint) and waits for those. Unmapped memory cannot
//! be touched, so a dependency that we missed is a fault and not a wrong number. When the last extent is mapped the gate is simply open,
//! and calls wait for nothing.
//!
//! - `blocks`: the memory on its way, and waiting for it. [`entry`]: every call for device memory passes it. [`pointers`]: scans memory for addresses.
//! - `ahead`: kernels that are launched before their memory is here, and wait for it on the GPU.
//! - [`footprint`]: the needs of a call: the addresses that it names, and all memory that can be reached from there.
//! - [`copies`]: descriptions of copies and fills.
//! - [`layouts`]: the layouts of functions' parameters. [`graphs`]: the contents of captured graphs.
//! - [`gpus`]: finds the GPU that a call is for.
//! - [`roots`]: memory that kernels can access without being given it.
//!
//! Calls wait for memory in **blocks**: an allocation, or an extent that small ones share. A kernel that is given an address in an
//! allocation may use all of it. Blocks point to blocks: the coordinator has scanned all contents for pointers while they could not be
//! written, and any pointer that a kernel writes since came from memory or parameters that were waited for, with all memory that they
//! point to.

mod ahead;
mod blocks;
pub(crate) mod brings;
pub(crate) mod copies;
mod entry;
pub(crate) mod footprint;
pub(crate) mod gpus;
pub(crate) mod graphs;
pub(crate) mod layouts;
mod needs;
pub(crate) mod pointers;
pub(crate) mod roots;

pub(crate) use ahead::{all_is_here, is_waited_for_on_gpu, prepare, stream_goes};
pub(crate) use blocks::{end, is_complete, is_waited_for, mapped, stats, wake};
pub(crate) use entry::{
    Gpu, ask_about, enter_in_any_state, expose, lock_mappings, pass, pass_ahead, pass_here, pass_into, wait_for,
    with_all_here,
};
pub(crate) use needs::Needs;

use crate::memory::layout::{ExtentOf, Layout};
use baton_contract::cuda::CUdeviceptr;

/// Begins an arrival, before the gate is opened. `edges` are pointers from an extent's contents to an address. Work of a `preemptible`
/// tenant may wait for memory.
pub(crate) fn begin(layout: Layout, edges: &[(ExtentOf, CUdeviceptr)], roots: roots::Found, preemptible: bool) {
    blocks::begin(layout, edges, roots, ahead::begin(preemptible));
}

/// Called when a context has gone, and its code with it: handles of functions and streams may be reused.
pub(crate) fn context_gone() {
    layouts::forget_all();
    ahead::context_gone();
}
