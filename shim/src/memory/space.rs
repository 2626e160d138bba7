//! The process's memory on a GPU that it shares: allocates it and takes it back, with the coordinator behind it.
//!
//! Locks are held for the books only, never while the driver or the coordinator is asked. That is sound because a thread that maps, unmaps
//! or frees holds a passage through the gate, and the control loop does so only while the gate is closed and no thread is inside. While memory
//! arrives, the control loop also gives access with threads inside: to extents that every call waits for before it uses or frees them.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use baton_contract::cuda::{
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUdevice, CUdeviceptr, CUresult,
};
use baton_contract::memory::{GRANULE, SizeClass};
use baton_contract::messages::{ExtentId, HeldExtent, MAX_RANGES};
use baton_contract::wire::MAX_DESCRIPTORS;

use super::extents::Extents;
use super::layout::{ExtentLayout, Layout};
use super::mappings::{self, HandleNumber};
use super::order::StreamNumber;
use super::pools::{PoolNumber, STEP};
use super::spare::Spare;
use super::table::{Facts, Pooled, Released, SMALL, Table};
use super::window::Window;
use crate::driver::api;
use crate::gate::{self, Passage};
use crate::link::Link;
use crate::link::requests::{Allocated, Requests, Unserved};
use crate::sys::by_device::ByDevice;
use crate::sys::{process, reserve, thread, user};

/// The number of addresses that are reserved at a time. They cost nothing; a program that needs more gets more.
const WINDOW: u64 = 1 << 40;
/// The number of addresses reserved before them, which stay empty: kernels are given addresses from before their memory, and those must be
/// recognised as ours.
const GUARD: u64 = 1 << 30;
/// Freed memory that is kept for the next allocation of its size, in bytes; less in a small arena.
const MOST_CACHED: u64 = 512 << 20;

/// The lowest and highest address that was ever reserved, for a quick check without a lock.
static WINDOWS: [AtomicU64; 2] = [AtomicU64::new(u64::MAX), AtomicU64::new(0)];

/// Up to this size, allocations are placed beside each other: the coordinator may make one extent of them.
const BESIDE: u64 = 32 << 20;

/// Memory that the program no longer needs.
pub(crate) enum GivenUp<'a> {
    /// These extents, which are unmapped.
    Extents(Vec<ExtentId>),
    /// Parts of extents which have others that it needs: address and size of each, at most [`MAX_RANGES`]. The coordinator is told, and
    /// then the second is called, which adds them to the books: another thread finds the parts spare from then on, and may use them
    /// again, or free the rest of their extent.
    Parts(&'a [(CUdeviceptr, u64)], &'a mut dyn FnMut()),
}

/// Memory that the program no longer needs: whole extents, and parts of extents that are still in use.
struct SetApart {
    /// Extents that the program needs no part of.
    whole: Vec<(ExtentId, Range<CUdeviceptr>)>,
    /// Parts of others, each with its extent.
    parts: Vec<(Range<CUdeviceptr>, Range<CUdeviceptr>)>,
}

/// The ranges of addresses that the program has reserved itself: sizes by start.
static PROGRAMS: Mutex<BTreeMap<CUdeviceptr, u64>> = Mutex::new(BTreeMap::new());

fn programs() -> MutexGuard<'static, BTreeMap<CUdeviceptr, u64>> {
    PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The range that the program has reserved at an address.
fn reservation_at(address: CUdeviceptr) -> Option<(CUdeviceptr, u64)> {
    let found = programs().range(..=address).next_back().map(|(at, size)| (*at, *size));
    found.filter(|(at, size)| address < at + size)
}

/// Adds addresses that the program has reserved.
pub(crate) fn add_reservation(at: CUdeviceptr, bytes: u64) {
    programs().insert(at, bytes);
    widen_window(at, bytes);
}

/// Removes addresses that the program has given back.
pub(crate) fn remove_reservation(at: CUdeviceptr) {
    programs().remove(&at);
}

/// Adds addresses that the program maps memory at, if it reserved them before it was a tenant.
pub(super) fn know_reservation(at: CUdeviceptr, bytes: u64) {
    if !is_ours(at) {
        add_reservation(at, bytes);
    }
}

/// True if an address belongs to an allocation of ours, or to a range that the program has reserved for mappings of its own. The check is
/// exact: between the two there may be any memory, even the host's.
pub(crate) fn is_ours(address: CUdeviceptr) -> bool {
    is_window(address) && (at(address).is_some() || reservation_at(address).is_some())
}

/// True if an address may be one of ours, by a quick check.
#[inline]
pub(crate) fn is_window(address: CUdeviceptr) -> bool {
    address >= WINDOWS[0].load(Ordering::Relaxed) && address < WINDOWS[1].load(Ordering::Relaxed)
}

/// Adds addresses to those that may be ours.
fn widen_window(at: CUdeviceptr, bytes: u64) {
    WINDOWS[0].fetch_min(at, Ordering::Relaxed);
    WINDOWS[1].fetch_max(at + bytes, Ordering::Relaxed);
}

/// The time that the control loop takes to close the gate after it is told to.
const SOON: Duration = Duration::from_micros(100);

/// The number of tries to get frames for which there was no descriptor left.
const MOST_TRIES: u32 = 32;

/// The reason for a lack of memory.
#[derive(Debug)]
pub(crate) enum NoMemory {
    /// The answer of the program's call.
    Answer(CUresult),
    /// The gate is being closed.
    TryAgain,
    /// There is no coordinator any more: the driver is to be asked.
    Alone,
}

/// `CUDA_ERROR_INVALID_HANDLE`.
const INVALID_HANDLE: CUresult = 400;

impl From<Unserved> for NoMemory {
    fn from(error: Unserved) -> Self {
        match error {
            Unserved::Denied(_) | Unserved::Undelivered => Self::Answer(CUDA_ERROR_OUT_OF_MEMORY),
            // The driver's answers when the process has gone, and when only the memory has.
            Unserved::NotExported { exporter_lives: false } => Self::Answer(INVALID_HANDLE),
            Unserved::NotExported { exporter_lives: true } => Self::Answer(CUDA_ERROR_INVALID_VALUE),
            Unserved::TryAgain => Self::TryAgain,
            Unserved::Gone => Self::Alone,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Books {
    pub(super) table: Table,
    spare: Spare,
    /// Free addresses for allocations up to [`BESIDE`], and for larger ones.
    beside: Window,
    window: Window,
    /// All ranges that were ever reserved: start and size.
    reserved: Vec<(CUdeviceptr, u64)>,
    /// Addresses of pools, and those of them that are unmapped again.
    areas: BTreeMap<CUdeviceptr, u64>,
    returned: Vec<Range<CUdeviceptr>>,
}

impl Books {
    fn take_addresses(&mut self, bytes: u64) -> Option<CUdeviceptr> {
        if bytes <= BESIDE { self.beside.take(bytes) } else { self.window.take(bytes) }
    }

    pub(super) fn give_addresses_back(&mut self, at: CUdeviceptr, bytes: u64) {
        if self.areas.range(..=at).next_back().is_some_and(|(start, size)| at < start + size) {
            self.returned.push(at..at + bytes);
            return;
        }
        let is_beside = |(start, size): &(CUdeviceptr, u64)| (*start..start + GUARD + beside_of(*size)).contains(&at);
        if self.reserved.iter().any(is_beside) {
            self.beside.give_back(at, bytes);
        } else {
            self.window.give_back(at, bytes);
        }
    }
}

/// The number of addresses of one reservation that are for allocations up to [`BESIDE`].
fn beside_of(reserved: u64) -> u64 {
    if reserved == GUARD + WINDOW { WINDOW / 4 } else { 0 }
}

/// The process's memory on a GPU.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) device: CUdevice,
    /// None in tests.
    link: Option<&'static Link>,
    books: Mutex<Books>,
    pub(crate) extents: Extents,
    /// The other GPUs that can access all memory, and those that are about to: a bit for each.
    pub(super) exposed: AtomicU64,
    pub(super) exposing: AtomicU64,
}

static SPACES: ByDevice<Space> = ByDevice::new();

/// The memory of this process on a GPU, if it is or was a tenant there. `None` in its forked copies, where another thread may have been
/// changing the books.
#[inline]
pub(crate) fn of(device: CUdevice) -> Option<&'static Space> {
    if process::is_bare() { None } else { SPACES.get(device) }
}

/// The memory of this process on each of its GPUs. As for [`of`].
pub(crate) fn all() -> impl Iterator<Item = &'static Space> {
    (!process::is_bare()).then(|| SPACES.all()).into_iter().flatten()
}

/// The memory that has this address among those for allocations, even if it has none there now.
pub(crate) fn at(address: CUdeviceptr) -> Option<&'static Space> {
    all().find(|space| space.reserves_any(address, 1))
}

/// The memory of a handle of the program's own, living or not.
pub(crate) fn of_handle(handle: HandleNumber) -> Option<&'static Space> {
    mappings::device_of(handle).and_then(of)
}

/// True if any address of a range is one of those for allocations.
pub(crate) fn reserves_any(address: CUdeviceptr, bytes: u64) -> bool {
    all().any(|space| space.reserves_any(address, bytes))
}

/// True if a range has any part of a mapping of the program's own.
pub(crate) fn has_mapped(at: CUdeviceptr, bytes: u64) -> bool {
    all().any(|space| space.has_mapped(at, bytes))
}

/// Makes this process a tenant of a GPU.
pub(crate) fn begin(link: &'static Link) -> &'static Space {
    let space = Box::leak(Box::new(Space::new(link.device, Some(link))));
    SPACES.set(link.device, space);
    space
}

/// The memory of all GPUs, as the calls that wait for it see it.
pub(crate) fn layout() -> Layout {
    let mut layout = Layout::default();
    for space in all() {
        layout.blocks.extend(space.lock().table.places().map(|(at, bytes)| at..at + bytes));
        layout.mapped.extend(space.extents.lock().mappings.runs());
        layout.extents.extend(space.extents.layout());
    }
    layout.extents.sort_unstable_by_key(|extent| extent.addresses.start);
    // Of different GPUs, too, mappings side by side are one range.
    layout.mapped.sort_unstable_by_key(|(addresses, _)| addresses.start);
    layout.mapped.dedup_by(|(next, homes), (before, all)| {
        let follows = before.end == next.start;
        if follows {
            before.end = next.end;
            all.append(homes);
        }
        follows
    });
    layout
}

impl Space {
    fn new(device: CUdevice, link: Option<&'static Link>) -> Self {
        let (exposed, exposing) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { device, link, books: Mutex::default(), extents: Extents::of(device), exposed, exposing }
    }

    /// The size of "the GPU" that the program sees, in bytes.
    pub(crate) fn total(&self) -> u64 {
        self.link.map_or(0, Link::total)
    }

    /// Tells the coordinator about memory that is no longer needed, and waits until it knows.
    pub(crate) fn give_to_coordinator(&self, given_up: GivenUp<'_>) {
        // Without a coordinator there is nothing to tell.
        match (given_up, self.link) {
            (GivenUp::Extents(extents), Some(link)) => link.requests.free(extents),
            (GivenUp::Extents(_), None) => {}
            (GivenUp::Parts(parts, enter), Some(link)) => link.requests.spare(parts, enter),
            (GivenUp::Parts(_, enter), None) => enter(),
        }
    }

    /// Tells the coordinator that an allocation can no longer be opened, and waits until it knows.
    pub(super) fn unexport(&self, at: CUdeviceptr) {
        if let Some(link) = self.link {
            link.requests.unexport(at);
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that the program's allocations and handles take.
    pub(crate) fn taken(&self) -> u64 {
        self.lock().table.taken() + self.extents.lock().mappings.taken()
    }

    /// Allocates memory for the program.
    pub(crate) fn allocate(
        &self,
        passage: &Passage,
        requests: &Requests,
        bytes: u64,
        context: usize,
    ) -> Result<CUdeviceptr, NoMemory> {
        self.with_guard(passage, || self.take(requests, bytes, context))
    }

    /// Runs a closure that changes mappings, and repeats it until the coordinator has an answer.
    pub(super) fn with_guard<T>(
        &self,
        passage: &Passage,
        what: impl Fn() -> Result<T, NoMemory>,
    ) -> Result<T, NoMemory> {
        loop {
            let _guard = gate::lock_mappings(passage).map_err(NoMemory::Answer)?;
            match what() {
                // The gate is about to be closed, and has to be found closed.
                Err(NoMemory::TryAgain) => thread::sleep(SOON),
                answer => return answer,
            }
        }
    }

    fn take(&self, requests: &Requests, bytes: u64, context: usize) -> Result<CUdeviceptr, NoMemory> {
        if bytes <= SMALL {
            if let Some(at) = self.lock().table.take_small(bytes, context) {
                return Ok(at);
            }
            let memory = self.memory(requests, GRANULE)?;
            let mut books = self.lock();
            books.table.add_shared(memory.at);
            return books.table.take_small(bytes, context).ok_or(NoMemory::Answer(CUDA_ERROR_OUT_OF_MEMORY));
        }
        let size = bytes.checked_next_multiple_of(GRANULE).ok_or(NoMemory::Answer(CUDA_ERROR_OUT_OF_MEMORY))?;
        let memory = self.memory(requests, size)?;
        self.lock().table.add_large(&memory, bytes, context);
        Ok(memory.at)
    }

    /// Takes memory for an allocation: lately freed, spare, or new.
    fn memory(&self, requests: &Requests, bytes: u64) -> Result<Released, NoMemory> {
        let cached = self.lock().table.take_cached(bytes);
        if let Some(memory) = cached {
            return Ok(memory);
        }
        let spare = self.lock().spare.take(bytes);
        let Some(at) = spare else { return self.acquire(requests, bytes) };
        let extents = self.extents.within(at, bytes);
        if extents.iter().all(|extent| extent.is_mapped) {
            requests.reuse(at, bytes);
            return Ok(Released { at, bytes, is_reusable: true });
        }
        // It is on its way, with the rest of its extent.
        let mut books = self.lock();
        extents.iter().for_each(|extent| books.spare.add(at..at + bytes, &extent.addresses, true));
        drop(books);
        self.acquire(requests, bytes)
    }

    /// Takes addresses for a pool, at least so many, from a multiple of [`STEP`] on.
    pub(crate) fn take_area(&self, bytes: u64) -> Option<Range<CUdeviceptr>> {
        // They touch no other allocation: the coordinator makes one extent of neighbours.
        let size = bytes.checked_next_multiple_of(STEP)?.checked_add(2 * STEP)?;
        let at = self.addresses(size).ok()?;
        self.lock().areas.insert(at, size);
        let start = (at + 1).next_multiple_of(STEP);
        Some(start..start + size - 2 * STEP)
    }

    /// Gives back the addresses of a pool that has gone; nothing is left there.
    pub(crate) fn give_area_back(&self, area: &Range<CUdeviceptr>) {
        let mut books = self.lock();
        let Some((at, size)) = books.areas.range(..=area.start).next_back().map(|(at, size)| (*at, *size)) else {
            return;
        };
        books.areas.remove(&at);
        books.give_addresses_back(at, size);
    }

    /// Gets memory for a pool, at addresses of its own: all of it or nothing.
    pub(crate) fn grow_area(
        &self,
        passage: &Passage,
        requests: &Requests,
        ranges: &[Range<CUdeviceptr>],
    ) -> Result<(), NoMemory> {
        self.with_guard(passage, || {
            for (n, range) in ranges.iter().enumerate() {
                if let Err(error) = self.acquire_at(requests, range.start, range.end - range.start) {
                    let came = ranges[..n].iter().map(Released::of_pool).collect();
                    // A broken context keeps its memory until the process ends.
                    let _ = self.release(came, |given_up| self.give_to_coordinator(given_up));
                    // The pool has never had them.
                    let is_of = |back: &Range<CUdeviceptr>| {
                        ranges[..n].iter().any(|range| range.start <= back.start && back.end <= range.end)
                    };
                    self.lock().returned.retain(|back| !is_of(back));
                    return Err(error);
                }
            }
            Ok(())
        })?;
        self.lock().table.add_taken(ranges.iter().map(|range| range.end - range.start).sum());
        Ok(())
    }

    /// Gives back memory that pools have given up. As for [`Self::finish_free`].
    pub(crate) fn shrink_areas(&self, ranges: &[Range<CUdeviceptr>], tell: impl FnMut(GivenUp<'_>)) {
        self.lock().table.subtract_taken(ranges.iter().map(|range| range.end - range.start).sum());
        // A broken context keeps its memory until the process ends.
        let _ = self.release(ranges.iter().map(Released::of_pool).collect(), tell);
    }

    /// True if all memory at these addresses is here.
    pub(crate) fn is_all_mapped(&self, range: &Range<CUdeviceptr>) -> bool {
        self.extents.within(range.start, range.end - range.start).iter().all(|extent| extent.is_mapped)
    }

    /// Takes the addresses of pools that are unmapped again.
    pub(crate) fn take_returned(&self) -> Vec<Range<CUdeviceptr>> {
        core::mem::take(&mut self.lock().returned)
    }

    /// Adds an allocation of a pool, which the program knows by `handle`.
    pub(crate) fn add_pooled(
        &self,
        at: CUdeviceptr,
        bytes: u64,
        pool: (PoolNumber, usize),
        behind: Option<StreamNumber>,
    ) {
        self.lock().table.add_pooled(at, bytes, pool, behind);
    }

    /// Removes an allocation of a pool that is freed. `None` if there is none here.
    pub(crate) fn remove_pooled(&self, at: CUdeviceptr) -> Option<Pooled> {
        self.lock().table.remove_pooled(at)
    }

    /// The allocation that this address lies in, and where it begins.
    pub(crate) fn find(&self, address: CUdeviceptr) -> Option<(CUdeviceptr, Facts)> {
        self.lock().table.find(address).map(|(at, found)| (at, found.facts))
    }

    /// The number of bytes from this address to the end of the allocation that it lies in.
    pub(crate) fn bytes_from(&self, address: CUdeviceptr) -> Option<u64> {
        self.lock().table.find(address).map(|(at, found)| at + found.facts.bytes - address)
    }

    /// True if any address of a range is one of those for allocations.
    pub(crate) fn reserves_any(&self, address: CUdeviceptr, bytes: u64) -> bool {
        let end = address.saturating_add(bytes);
        self.lock().reserved.iter().any(|(at, size)| address < at + size && *at < end)
    }

    /// True if an address may lead to this memory: the program may use mappings side by side as one.
    pub(crate) fn may_have(&self, address: CUdeviceptr) -> bool {
        self.reserves_any(address, 1) || reservation_at(address).is_some_and(|(at, size)| self.has_mapped(at, size))
    }

    /// True if a range has any part of a mapping of the program's own.
    pub(crate) fn has_mapped(&self, at: CUdeviceptr, bytes: u64) -> bool {
        self.extents.lock().mappings.within(at, bytes).next().is_some()
    }

    /// The best place for the program's next reservation: beside our own, so that a search for addresses in memory has one narrow range to
    /// check.
    pub(crate) fn beside(&self, alignment: u64) -> Option<CUdeviceptr> {
        if self.lock().reserved.is_empty() {
            self.reserve_more(WINDOW).ok()?;
        }
        WINDOWS[1].load(Ordering::Relaxed).checked_next_multiple_of(alignment.max(GRANULE))
    }

    /// The allocation that begins here.
    pub(crate) fn get(&self, at: CUdeviceptr) -> Option<Facts> {
        self.lock().table.get(at).map(|found| found.facts)
    }

    /// Begins to free an allocation. Its memory stays until [`Self::finish_free`], because earlier work may use it. Returns its number;
    /// `None` if none begins here. From here on no other process can open it.
    pub(crate) fn begin_free(&self, at: CUdeviceptr) -> Option<u64> {
        let freed = self.lock().table.begin_free(at)?;
        if freed.is_exported {
            self.unexport(at);
        }
        Some(freed.number)
    }

    /// True if an allocation that began here is being freed.
    pub(crate) fn is_freeing(&self, at: CUdeviceptr) -> bool {
        self.lock().table.is_freeing(at)
    }

    /// Takes back the memory of the freed allocation with this number, once all work that may use it has ended. The caller may change
    /// mappings: it has a guard, or has closed the gate.
    pub(crate) fn finish_free(&self, at: CUdeviceptr, number: u64, tell: impl FnMut(GivenUp<'_>)) -> CUresult {
        let most_cached = MOST_CACHED.min(self.total() / 16);
        let gone = {
            let mut books = self.lock();
            match books.table.finish(at, number) {
                Some(memory) => books.table.keep(memory, most_cached),
                None => Vec::new(),
            }
        };
        self.release(gone, tell)
    }

    /// Takes back all allocations of a context that has gone. As for [`Self::finish_free`]; or there is no coordinator any more.
    pub(crate) fn free_context(&self, context: usize) {
        let mut exported = Vec::new();
        let gone = {
            let mut books = self.lock();
            let allocations = books.table.of_context(context);
            let finish = |(at, number)| {
                exported.extend(books.table.let_go(at).filter(|freed| freed.is_exported).map(|_| at));
                books.table.finish(at, number)
            };
            allocations.into_iter().filter_map(finish).collect()
        };
        exported.into_iter().for_each(|at| self.unexport(at));
        self.release(gone, |given_up| self.give_to_coordinator(given_up));
    }

    /// Gives back the memory that is kept for later allocations. `tell` tells the coordinator.
    pub(crate) fn release_cached(&self, tell: impl FnMut(GivenUp<'_>)) -> CUresult {
        let gone = self.lock().table.take_all_cached();
        self.release(gone, tell)
    }

    pub(super) fn release(&self, gone: Vec<Released>, mut tell: impl FnMut(GivenUp<'_>)) -> CUresult {
        if gone.is_empty() {
            return CUDA_SUCCESS;
        }
        let _relaxed = api::Relaxed::enter();
        for memory in gone {
            let SetApart { whole, parts } = self.set_apart(&memory);
            for parts in parts.chunks(MAX_RANGES) {
                let ranges: Vec<_> = parts.iter().map(|(part, _)| (part.start, part.end - part.start)).collect();
                tell(GivenUp::Parts(&ranges, &mut || {
                    let mut books = self.lock();
                    parts.iter().for_each(|(part, extent)| books.spare.add(part.clone(), extent, memory.is_reusable));
                }));
            }
            let ids: Vec<ExtentId> = whole.iter().map(|(id, _)| *id).collect();
            if let Err(code) = self.extents.discard(&ids) {
                // The context is broken: the memory stays mapped until the process ends, and its addresses stay in use.
                return code;
            }
            if !ids.is_empty() {
                tell(GivenUp::Extents(ids));
            }
            let mut books = self.lock();
            whole.iter().for_each(|(_, place)| books.give_addresses_back(place.start, place.end - place.start));
        }
        CUDA_SUCCESS
    }

    /// Sorts memory that the program no longer needs.
    fn set_apart(&self, memory: &Released) -> SetApart {
        let (mut whole, mut parts) = (Vec::new(), Vec::new());
        let extents = self.extents.within(memory.at, memory.bytes);
        let mut books = self.lock();
        for ExtentLayout { id: (_, id), addresses: extent, .. } in extents {
            let part = memory.at.max(extent.start)..(memory.at + memory.bytes).min(extent.end);
            let bytes = part.end - part.start;
            if bytes + books.spare.bytes_of(&extent) == extent.end - extent.start {
                books.spare.forget(&extent);
                whole.push((id, extent));
            } else {
                parts.push((part, extent));
            }
        }
        SetApart { whole, parts }
    }

    /// Records that memory of this process without frames is cut into other extents. The spare parts of the old ones are forgotten.
    pub(crate) fn recut(&self, gone: &[ExtentId], now: &[(ExtentId, CUdeviceptr, SizeClass)]) {
        let gone = self.extents.recut(gone, now);
        let mut books = self.lock();
        for extent in gone {
            for (at, bytes) in books.spare.forget(&extent) {
                books.give_addresses_back(at, bytes);
            }
        }
    }

    /// Gets new memory at new addresses, mapped.
    fn acquire(&self, requests: &Requests, bytes: u64) -> Result<Released, NoMemory> {
        let at = self.addresses(bytes).map_err(NoMemory::Answer)?;
        self.acquire_at(requests, at, bytes).inspect_err(|_| self.lock().give_addresses_back(at, bytes))?;
        Ok(Released { at, bytes, is_reusable: true })
    }

    pub(super) fn acquire_at(&self, requests: &Requests, at: CUdeviceptr, bytes: u64) -> Result<(), NoMemory> {
        let lent = self.ask(|| requests.allocate(at, bytes, |extents| self.extents.add(at, extents, true)))?;
        self.map_lent(requests, lent)
    }

    /// Asks for memory. If it is denied, gives back the memory that is kept for later allocations, and asks once more.
    pub(super) fn ask<T>(&self, ask: impl Fn() -> Result<T, Unserved>) -> Result<T, NoMemory> {
        let answer = match ask() {
            Err(Unserved::Denied(_)) => {
                self.release_cached(|given_up| self.give_to_coordinator(given_up));
                self.end_unreachable();
                ask()
            }
            answer => answer,
        };
        answer.map_err(NoMemory::from)
    }

    /// Maps lent extents, which are in the books; on an error they go back.
    pub(super) fn map_lent(&self, requests: &Requests, lent: Allocated) -> Result<(), NoMemory> {
        let ids: Vec<ExtentId> = lent.extents.iter().map(|(id, _)| *id).collect();
        let _relaxed = api::Relaxed::enter();
        self.map(requests, &ids, lent.frames).map_err(|code| {
            self.extents.discard_any(&ids);
            requests.free(ids);
            NoMemory::Answer(code)
        })
    }

    fn map(&self, requests: &Requests, ids: &[ExtentId], frames: Vec<OwnedFd>) -> Result<(), CUresult> {
        // The first descriptors are closed before the next are asked for.
        let (first, rest) = ids.split_at(frames.len());
        self.extents.place(first, frames)?;
        self.place_rest(requests, rest)?;
        self.map_arrived(ids)
    }

    /// Asks for the frames that did not come with the lent extents, and puts them in place.
    fn place_rest(&self, requests: &Requests, mut rest: &[ExtentId]) -> Result<(), CUresult> {
        let (mut at_once, mut tries) = (MAX_DESCRIPTORS, 0);
        let mut spare = None;
        while !rest.is_empty() {
            let (next, later) = rest.split_at(rest.len().min(at_once));
            match requests.frames(next) {
                Ok(frames) => {
                    self.extents.place(next, frames)?;
                    rest = later;
                }
                Err(Unserved::Undelivered) if tries < MOST_TRIES => {
                    tries += 1;
                    if spare.is_some() {
                        // Others have taken the descriptors: ask one by one.
                        at_once = 1;
                        thread::sleep(SOON * tries);
                    }
                    spare.get_or_insert_with(reserve::let_go);
                }
                Err(Unserved::Undelivered) => {
                    user::warn(&baton_messages::gets_no_more_memory());
                    return Err(CUDA_ERROR_OUT_OF_MEMORY);
                }
                // Without a coordinator there is no memory to get.
                Err(_) => return Err(CUDA_ERROR_OUT_OF_MEMORY),
            }
        }
        Ok(())
    }

    pub(super) fn addresses(&self, bytes: u64) -> Result<CUdeviceptr, CUresult> {
        if let Some(at) = self.lock().take_addresses(bytes) {
            return Ok(at);
        }
        self.reserve_more(WINDOW.max(bytes))?;
        self.lock().take_addresses(bytes).ok_or(CUDA_ERROR_OUT_OF_MEMORY)
    }

    fn reserve_more(&self, size: u64) -> Result<(), CUresult> {
        let size = GUARD + size;
        let mut at = 0;
        // SAFETY: an out-parameter; a range wherever the driver likes.
        match unsafe { api::reserve(&mut at, size as usize, GRANULE as usize, 0, 0) } {
            CUDA_SUCCESS => {}
            code => return Err(code),
        }
        let mut books = self.lock();
        books.reserved.push((at, size));
        let beside = beside_of(size);
        if beside > 0 {
            books.beside.give_back(at + GUARD, beside);
        }
        books.window.give_back(at + GUARD + beside, size - GUARD - beside);
        widen_window(at, size);
        Ok(())
    }

    /// All extents, and the parts of them that are spare, as a coordinator that takes over is told.
    pub(crate) fn held(&self) -> (Vec<HeldExtent>, Vec<(u64, u64)>) {
        // In this order: memory that is spare no more is not told as spare.
        let extents = self.extents.held();
        (extents, self.lock().spare.parts())
    }

    /// The bounds of allocations' addresses: all that were ever reserved, and the range between them.
    pub(crate) fn window() -> (u64, u64) {
        let [start, end] = &WINDOWS;
        (start.load(Ordering::Relaxed), end.load(Ordering::Relaxed))
    }

    /// Maps memory whose contents are there, for all GPUs that have access to memory of ours.
    pub(crate) fn map_arrived(&self, ids: &[ExtentId]) -> Result<(), CUresult> {
        loop {
            let others = self.exposing.load(Ordering::SeqCst);
            self.extents.map(ids, others)?;
            // Another thread may have let a GPU access all that was mapped before this was.
            if self.exposing.load(Ordering::SeqCst) == others {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_only_reaches_into_reserved_addresses_is_known() {
        let space = Space::new(0, None);
        space.lock().reserved = vec![(1000, 100), (3000, 100)];
        for (at, bytes, reaches) in [
            (1000, 1, true),
            (900, 100, false),
            (900, 101, true),
            (1099, 1, true),
            (1100, 1900, false),
            (1100, 1901, true),
            (0, u64::MAX, true),
            (3100, u64::MAX, false),
        ] {
            assert_eq!(space.reserves_any(at, bytes), reaches, "{bytes} bytes at {at}");
        }
    }
}
