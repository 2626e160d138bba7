//! The driver as a program sees it: through its exports.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::context::{cuCtxCreate_v2, cuCtxDestroy_v2, cuCtxSynchronize};
use super::copies::{cuMemcpyDtoH_v2, cuMemcpyHtoD_v2};
use super::init::cuInit;
use super::launches::cuLaunchKernel;
use super::memory::cuMemAlloc_v2;
use super::modules::{cuModuleGetFunction, cuModuleLoadData};
use crate::border::from_tests::{address, given, list, no_list, text};
use crate::exec::context::Context;
use crate::exec::stack;

mod capture;
mod control;
mod errors;
mod functions;
mod graph_memory;
mod graphs;
mod memory;
mod peers;
mod pointers;
mod pools;
mod processes;
mod streams;
mod vmm;
mod waiting;

/// The kernels that the tests use.
const PTX: &[u8] = b"
.version 7.0
.target sm_75
.address_size 64
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 d) { ret; }
.visible .entry add_struct(.param .align 8 .b8 a[32]) { ret; }
.visible .entry scale(.param .u64 a, .param .u64 b, .param .f32 c, .param .u32 d) { ret; }
.visible .entry spin_on_flag(.param .u64 a, .param .u64 b, .param .u32 c) { ret; }
.visible .entry fill_hash(.param .u64 a, .param .u32 b, .param .u32 c) { ret; }
.visible .entry unheard_of(.param .u64 a) { ret; }
.visible .entry relu(.param .u64 a, .param .u32 b) { ret; }
.visible .global .align 4 .u32 counter = 5;
\0";

/// A context of the test's own, current in its thread.
struct Session {
    context: usize,
}

impl Session {
    fn begin() -> Session {
        assert_eq!(cuInit(0), 0);
        Session { context: given(|out| cuCtxCreate_v2(out, 0, 0)) }
    }

    fn inner(&self) -> Arc<Context> {
        stack::current_any().unwrap()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        assert_eq!(cuCtxDestroy_v2(self.context), 0);
    }
}

/// The kernels, loaded into the current context once: loading waits for all that runs there.
fn module() -> usize {
    static LOADED: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());
    let context = stack::current_any().unwrap().id;
    let load = || given(|out| cuModuleLoadData(out, address(&PTX[0])));
    *LOADED.lock().unwrap().entry(context).or_insert_with(load)
}

fn function(name: &std::ffi::CStr) -> usize {
    given(|out| cuModuleGetFunction(out, module(), text(name)))
}

fn alloc(bytes: usize) -> u64 {
    given(|out| cuMemAlloc_v2(out, bytes))
}

fn put(at: u64, values: &[u32]) {
    assert_eq!(cuMemcpyHtoD_v2(at, address(&values[0]), values.len() * 4), 0);
}

fn get(at: u64, count: usize) -> Vec<u32> {
    let mut values = vec![0u32; count];
    let place = crate::border::from_tests::address_mut(&mut values[..]);
    assert_eq!(cuMemcpyDtoH_v2(place, at, count * 4), 0);
    values
}

/// Launches with one block of one thread.
fn launch(function: usize, stream: usize, params: &[usize]) -> u32 {
    cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, list(params), no_list())
}

/// A launch that waits in a stream until the flag is set.
fn spin(stream: usize, out: u64, flag: u64) {
    let value = 1u32;
    let params = [address(&out), address(&flag), address(&value)];
    assert_eq!(launch(function(c"spin_on_flag"), stream, &params), 0);
}

/// Raises the flag that a launch waits for, as the host does, and waits for everything.
fn synchronize_with(flag: usize) {
    crate::border::write_at(flag, 1u32).unwrap();
    synchronize();
}

fn synchronize() {
    assert_eq!(cuCtxSynchronize(), 0);
}
