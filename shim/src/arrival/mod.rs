//! Running while memory is still on its way: each call waits for what it needs, and for nothing else.
//!
//! After an eviction the gate may be opened as **arriving**. Extents are mapped one after the other then, each when its
//! contents are there; until all are, every call that touches device memory says what it [needs](footprint) and
//! waits for that. What is not mapped cannot be touched, so a dependency that we missed is a fault and not a wrong
//! number. When the last extent is mapped the gate is simply open, and nobody asks any more.
//!
//! - `blocks`: what is on its way, and waiting for it. `door`: where calls come in. [`words`]: looking for addresses in memory.
//! - `ahead`: kernels that are launched before their memory is here, and wait for it on the GPU.
//! - [`footprint`]: what a call needs: the addresses that it names, and whatever can be reached from there.
//! - [`copies`]: descriptions of copies and fills.
//! - [`layouts`]: where a function's parameters lie. [`graphs`]: what captured graphs hold.
//! - [`elsewhere`]: calls for other GPUs.
//! - [`roots`]: what kernels can reach without being given it.
//!
//! Memory is waited for in **blocks**: an allocation, or an extent that small ones share. A kernel that is given an
//! address in an allocation may use all of it. Blocks point to blocks: the coordinator has looked for pointers in
//! all contents while nobody could write them, and whatever a kernel writes since, it had from memory or parameters
//! that were waited for, with all that they point to.

mod ahead;
mod blocks;
pub(crate) mod brings;
pub(crate) mod copies;
mod door;
pub(crate) mod elsewhere;
pub(crate) mod footprint;
pub(crate) mod graphs;
pub(crate) mod layouts;
mod needs;
pub(crate) mod roots;
pub(crate) mod words;

pub(crate) use ahead::{all_is_here, is_waited_for_on_gpu, prepare, stream_goes};
pub(crate) use blocks::{end, is_complete, is_waited_for, mapped, story, wake};
pub(crate) use door::{
    Gpu, ask_about, enter_in_any_state, expose, is_here, lock_mappings, pass, pass_ahead, pass_here, pass_into,
    wait_for, with_all_here,
};
pub(crate) use needs::Needs;

use baton_contract::cuda::CUdeviceptr;
use baton_contract::messages::ExtentId;

use crate::memory::layout::Layout;

/// Memory begins to arrive: before the gate is opened. `edges` are pointers from an extent's contents to an address. Of what is
/// `preemptible`, work may wait for memory.
pub(crate) fn begin(layout: Layout, edges: &[(ExtentId, CUdeviceptr)], roots: roots::Found, preemptible: bool) {
    blocks::begin(layout, edges, roots, ahead::begin(preemptible));
}

/// A context has gone, and its code with it: handles may come to mean other functions, and other streams.
pub(crate) fn context_gone() {
    layouts::forget_all();
    ahead::context_gone();
}
