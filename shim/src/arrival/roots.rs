//! Memory that kernels can access without being given it: textures, globals of modules, host memory that the device reads, and tensor
//! maps, which hide the address of their memory.

use core::ffi::c_void;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use baton_contract::cuda::{CUDA_SUCCESS, CUdevice, CUdeviceptr, CUresult};

use super::pointers::{TENSOR_MAP, add_window_words, add_words_anywhere};
use crate::driver::api;
use crate::memory::space::{self, is_ours, is_window};
use crate::sys::own_memory;
use crate::work::capture;
use crate::work::reading;

/// The most bytes of all globals together that are read.
const MOST_GLOBALS: u64 = 4 << 20;
/// The number of tensor maps that are remembered, the last ones: about 4 MiB of them.
const MOST_TENSOR_MAPS: usize = 1 << 16;
/// The most words that are checked one by one for addresses of the host.
const MOST_ASKED: usize = 1 << 12;
/// The addresses of a process's pages, on the processors that there are drivers for: mappings, and programs at any address. Below that
/// there are too many numbers that are no addresses.
const PAGES: Range<u64> = 0x5500_0000_0000..1 << 47;

/// A variable of a module or library.
#[derive(Clone, Copy, Debug)]
struct Global {
    bytes: u64,
    context: usize,
    device: CUdevice,
    code: usize,
    /// The host may write it at any time, or may be able to.
    is_managed: bool,
}

/// The owner of host memory that the device can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostOf {
    /// The driver has allocated it, and processors read it through their caches.
    Driver,
    /// The program's own, which it may unmap at any time; or memory that is slow to read.
    Program,
}

#[derive(Clone, Copy, Debug)]
struct Host {
    bytes: u64,
    of: HostOf,
    /// The context that it goes with.
    context: usize,
}

/// The books of all roots. Held for moments only, never while the driver is called.
#[derive(Debug, Default)]
struct Roots {
    /// Textures over plain memory, by object or reference, with the context that they are in.
    textures: HashMap<u64, (CUdeviceptr, usize)>,
    /// Globals whose address the program has asked for.
    globals: BTreeMap<CUdeviceptr, Global>,
    /// Host memory that the device can read, by its start.
    host: BTreeMap<u64, Host>,
    /// Contexts that are being left, each once for every call that does so.
    leaving: Vec<usize>,
    tensor_maps: TensorMaps,
    /// Kernels can access memory that is not recorded here: a graph that kernels launch, or memory that an unknown function remembers.
    lost: bool,
}

/// Tensor maps, by a hash of their contents: two maps are confused only if they agree in 128 bits.
#[derive(Debug, Default)]
struct TensorMaps {
    bases: HashMap<[u64; 2], CUdeviceptr>,
    /// In the order in which they were made.
    order: VecDeque<[u64; 2]>,
    hashers: [RandomState; 2],
}

impl TensorMaps {
    fn hash(&self, map: &[u8; TENSOR_MAP]) -> [u64; 2] {
        self.hashers.each_ref().map(|hasher| hasher.hash_one(map))
    }

    /// Adds a tensor map. True if an older one had to be forgotten for it.
    fn add(&mut self, map: &[u8; TENSOR_MAP], address: CUdeviceptr) -> bool {
        let hash = self.hash(map);
        if self.bases.insert(hash, address).is_none() {
            self.order.push_back(hash);
        }
        let oldest = (self.order.len() > MOST_TENSOR_MAPS).then(|| self.order.pop_front()).flatten();
        oldest.is_some_and(|oldest| self.bases.remove(&oldest).is_some())
    }
}

/// The meaning of 128 bytes of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TensorMap {
    /// No tensor map.
    None,
    /// A tensor map of memory at this address.
    Of(CUdeviceptr),
    /// Perhaps a tensor map that was forgotten.
    Perhaps,
}

static ROOTS: Mutex<Option<Roots>> = Mutex::new(None);
static HAS_TENSOR_MAPS: AtomicBool = AtomicBool::new(false);
/// True if some were forgotten.
static FORGOT_TENSOR_MAPS: AtomicBool = AtomicBool::new(false);
/// The lowest and highest address of host memory that was ever recorded, for a quick check.
static HOST: [AtomicU64; 2] = [AtomicU64::new(u64::MAX), AtomicU64::new(0)];
/// Kernels read all pages of the process (`CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS`).
static READS_PAGES: AtomicBool = AtomicBool::new(false);
/// Held while the driver's host memory is read: forgotten memory is not freed until the reader is done.
static HOST_IS_READ: RwLock<()> = RwLock::new(());

fn lock() -> MutexGuard<'static, Option<Roots>> {
    ROOTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with<T>(what: impl FnOnce(&mut Roots) -> T) -> T {
    what(lock().get_or_insert_default())
}

/// The roots when memory begins to arrive.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Addresses that every call needs.
    pub(crate) addresses: Vec<CUdeviceptr>,
    /// Some memory could not be read: every call needs everything.
    pub(crate) unreadable: bool,
}

/// Reads the roots of kernels on all GPUs that are shared. The caller is the control loop, all work has ended, and the gate is closed.
pub(crate) fn read() -> Found {
    let (mut addresses, globals, lost): (Vec<CUdeviceptr>, Vec<(CUdeviceptr, u64, usize)>, bool) = with(|roots| {
        let here = || roots.globals.iter().filter(|(_, global)| space::of(global.device).is_some());
        let globals = here().map(|(at, global)| (*at, global.bytes, global.context));
        let textures = roots.textures.values().map(|(address, _)| *address);
        (textures.collect(), globals.collect(), roots.lost || here().any(|(_, global)| global.is_managed))
    });
    if globals.is_empty() || lost {
        return Found { addresses, unreadable: lost };
    }
    let bytes: u64 = globals.iter().map(|(_, bytes, _)| bytes).sum();
    if capture::is_any() || bytes > MOST_GLOBALS {
        return Found { addresses, unreadable: true };
    }
    let mut unreadable = false;
    for (at, bytes, context) in globals {
        let is_read = reading::read(context, at, bytes as usize, |contents| {
            add_window_words(contents, &mut addresses);
            unreadable |= has_host_words(contents);
        });
        unreadable |= !is_read;
    }
    Found { addresses, unreadable }
}

/// Called before the program uses this device.
pub(crate) fn add_device(device: CUdevice) {
    READS_PAGES.fetch_or(api::reads_pages(device), Ordering::Relaxed);
}

pub(crate) fn texture_made(handle: u64, address: CUdeviceptr) {
    if is_ours(address) {
        let context = api::current_context();
        with(|roots| roots.textures.insert(handle, (address, context)));
    }
}

pub(crate) fn texture_gone(handle: u64) {
    with(|roots| roots.textures.remove(&handle));
}

pub(crate) fn global_found(at: CUdeviceptr, bytes: u64, code: usize) {
    let (context, mut device) = (api::current_context(), -1);
    // SAFETY: an out-parameter.
    unsafe { api::current_device(&mut device) };
    let is_managed = api::is_managed(at) != Some(false);
    with(|roots| roots.globals.insert(at, Global { bytes, context, device, code, is_managed }));
}

/// Unloads code by `unload`. Its globals are removed beforehand, so that the control loop does not read them; if the call fails, they stay.
pub(crate) fn code_goes(code: usize, unload: impl FnOnce() -> CUresult) -> CUresult {
    let going: Vec<(CUdeviceptr, Global)> =
        with(|roots| roots.globals.extract_if(.., |_, global| global.code == code).collect());
    let answer = unload();
    if answer != CUDA_SUCCESS {
        with(|roots| roots.globals.extend(going));
    }
    answer
}

pub(crate) fn host_made(at: u64, bytes: u64, of: HostOf) {
    let context = api::current_context();
    with(|roots| roots.host.insert(at, Host { bytes, of, context }));
    HOST[0].fetch_min(at, Ordering::Relaxed);
    HOST[1].fetch_max(at + bytes, Ordering::Relaxed);
}

/// Frees host memory by `free`. It is removed beforehand, so that it is not read; if the call fails, it stays.
pub(crate) fn host_goes(at: u64, free: impl FnOnce() -> CUresult) -> CUresult {
    let going = with(|roots| roots.host.remove(&at));
    host_is_not_read();
    let answer = free();
    if answer != CUDA_SUCCESS
        && let Some(range) = going
    {
        with(|roots| roots.host.insert(at, range));
    }
    answer
}

/// Called before a call that may end a context: the host memory that the driver would free with it may go at any time from now on.
pub(crate) fn context_may_go(context: usize) {
    with(|roots| roots.leaving.push(context));
    host_is_not_read();
}

/// Called after a call that might have ended a context. Others may be under way.
pub(crate) fn context_stays(context: usize) {
    with(|roots| {
        if let Some(at) = roots.leaving.iter().position(|leaving| *leaving == context) {
            roots.leaving.swap_remove(at);
        }
    });
}

/// Called when a context has ended: its memory is no longer read.
pub(crate) fn context_goes(context: usize) {
    with(|roots| {
        roots.textures.retain(|_, (_, of)| *of != context);
        roots.globals.retain(|_, global| global.context != context);
        roots.host.retain(|_, host| host.context != context);
    });
}

/// Waits until no thread reads memory that the books no longer have.
fn host_is_not_read() {
    drop(HOST_IS_READ.write().unwrap_or_else(PoisonError::into_inner));
}

/// True if a word may be an address of host memory that the device can read.
#[inline]
pub(crate) fn is_pinned_host(word: u64) -> bool {
    word >= HOST[0].load(Ordering::Relaxed) && word < HOST[1].load(Ordering::Relaxed)
}

/// True if a word is an address of host memory that kernels read: memory that the driver knows, or any page, if the device reads those.
pub(crate) fn is_host(word: u64) -> bool {
    is_known_host(word) || is_pageable(word)
}

/// True if a word is an address of host memory that the driver knows.
pub(super) fn is_known_host(word: u64) -> bool {
    let holds = |(at, host): (&u64, &Host)| word < at + host.bytes;
    is_pinned_host(word) && with(|roots| roots.host.range(..=word).next_back().is_some_and(holds))
}

/// The range of addresses of host memory that kernels read.
pub(crate) fn host_range() -> Range<u64> {
    let [start, end] = HOST.each_ref().map(|at| at.load(Ordering::Relaxed));
    match READS_PAGES.load(Ordering::Relaxed) {
        true => start.min(PAGES.start)..PAGES.end,
        false if end == 0 => 0..0,
        false => start..end,
    }
}

/// True if kernels read this address by themselves, on a device that reads the program's pages.
fn is_pageable(word: u64) -> bool {
    READS_PAGES.load(Ordering::Relaxed)
        && PAGES.contains(&word)
        && !is_window(word)
        && own_memory::is_mapped(word as usize)
}

/// True if any word is, or may be, an address of host memory that kernels read.
pub(super) fn has_host_words(bytes: &[u8]) -> bool {
    let mut found = Vec::new();
    add_words_anywhere(bytes, host_range(), &mut found);
    found.len() > MOST_ASKED || found.into_iter().any(is_host)
}

/// Reads host memory in pieces that have a word in common. False if it has gone, or never existed.
pub(super) fn read_host(at: usize, bytes: usize, see: impl FnMut(&[u8])) -> bool {
    if !is_pinned_host(at as u64) {
        return own_memory::read(at, bytes, see);
    }
    let reading = HOST_IS_READ.read().unwrap_or_else(PoisonError::into_inner);
    if is_drivers_host(at as u64, bytes as u64) {
        // SAFETY: the driver has allocated it, and a thread that frees it waits for `reading` first.
        unsafe { own_memory::read_known(at, bytes, see) };
        return true;
    }
    drop(reading);
    own_memory::read(at, bytes, see)
}

fn is_drivers_host(at: u64, bytes: u64) -> bool {
    let holds = |(start, host): (&u64, &Host)| {
        host.of == HostOf::Driver && at.checked_add(bytes).is_some_and(|end| end <= start + host.bytes)
    };
    with(|roots| {
        let found = roots.host.range(..=at).next_back();
        found.is_some_and(|found| holds(found) && !roots.leaving.contains(&found.1.context))
    })
}

/// # Safety
///
/// `map` is a tensor map that the driver has just written.
pub(crate) unsafe fn tensor_map_made(map: *const c_void, address: CUdeviceptr) {
    // SAFETY: by this function's contract.
    let contents: [u8; TENSOR_MAP] = unsafe { map.cast::<[u8; TENSOR_MAP]>().read_unaligned() };
    if with(|roots| roots.tensor_maps.add(&contents, address)) {
        FORGOT_TENSOR_MAPS.store(true, Ordering::Release);
    }
    HAS_TENSOR_MAPS.store(true, Ordering::Release);
}

/// The address of a tensor map's memory, if it is known.
///
/// # Safety
///
/// As many bytes can be read as a tensor map has.
pub(crate) unsafe fn tensor_map_base(map: *const c_void) -> Option<CUdeviceptr> {
    // SAFETY: by this function's contract.
    let contents: [u8; TENSOR_MAP] = unsafe { map.cast::<[u8; TENSOR_MAP]>().read_unaligned() };
    match tensor_map(&contents) {
        TensorMap::Of(base) => Some(base),
        TensorMap::None | TensorMap::Perhaps => None,
    }
}

/// Records that a graph was made that kernels can launch.
pub(crate) fn device_graph_made() {
    with(|roots| roots.lost = true);
}

/// Records that a program got an unknown function, which may make any memory accessible.
pub(crate) fn unknown_function_found() {
    with(|roots| roots.lost = true);
}

pub(crate) fn has_tensor_maps() -> bool {
    HAS_TENSOR_MAPS.load(Ordering::Acquire)
}

/// The address of a tensor map's memory, if these bytes are one.
pub(super) fn tensor_map(bytes: &[u8; TENSOR_MAP]) -> TensorMap {
    let known = with(|roots| roots.tensor_maps.bases.get(&roots.tensor_maps.hash(bytes)).copied());
    match known {
        Some(base) => TensorMap::Of(base),
        None if FORGOT_TENSOR_MAPS.load(Ordering::Acquire) => TensorMap::Perhaps,
        None => TensorMap::None,
    }
}
