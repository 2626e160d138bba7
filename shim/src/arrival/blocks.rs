//! Memory on its way, in blocks, and the calls that wait for it.

use core::cell::RefCell;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Instant;

use baton_contract::cuda::{CUdevice, CUdeviceptr, CUresult};
use baton_contract::memory::GRANULE;
use baton_contract::messages::{ArrivalStats, ExtentId, HOST_MEMORY};

use super::needs::{Named, Needs};
use super::roots;
use crate::gate::{self, Passage};
use crate::memory::layout::{ExtentLayout, ExtentOf, Layout};
use crate::memory::{space, vmm};
use crate::sys::futex::{self, Scope};
use crate::sys::user;

/// The time for which a call polls before it sleeps: mapping an extent takes about as long.
const SPIN: Duration = Duration::from_micros(40);

/// Memory that calls wait for as a whole.
#[derive(Debug)]
struct Block {
    start: CUdeviceptr,
    end: CUdeviceptr,
    /// The extents behind it, a part of [`Arrival::behind`]. Other blocks may share them.
    extents: Range<u32>,
    /// Those of its extents whose contents point somewhere, a part of [`Arrival::pointing`].
    pointing: Range<u32>,
    /// The number of its extents that are not mapped yet.
    missing: AtomicU32,
    /// A call has needed it.
    used: AtomicBool,
}

/// Memory that arrives as a whole.
#[derive(Debug)]
struct Extent {
    id: ExtentOf,
    bytes: u64,
    is_mapped: AtomicBool,
    /// The blocks that it backs, wholly or in part: a part of [`Arrival::before`].
    blocks: Range<u32>,
    /// Blocks that its contents point to. The pointers may lie in any of its blocks.
    targets: Vec<u32>,
    /// Its contents also point to host memory, where any pointer may lie.
    to_host: bool,
}

/// The memory that is on its way. Made anew for every grant.
#[derive(Debug)]
struct Arrival {
    /// In order of address.
    blocks: Vec<Block>,
    extents: Vec<Extent>,
    /// The extents behind each block, one block after the other; and the blocks of each extent.
    behind: Vec<u32>,
    before: Vec<u32>,
    /// Of the extents behind each block, those whose contents point somewhere.
    pointing: Vec<u32>,
    of_id: HashMap<ExtentOf, u32>,
    /// Blocks that every call needs.
    roots: Vec<u32>,
    /// Kernels can access memory that cannot be read for pointers: then every call needs everything.
    unreadable: bool,
    /// The number of extents that are not mapped yet, and their size in all.
    left: AtomicUsize,
    left_bytes: AtomicU64,
    /// The number by which work may wait for the arrival; `None` if it must not.
    number: Option<u32>,
    began: Instant,
    /// The blocks in the order of their first use, and the time of each.
    order: Mutex<Vec<(u32, u32)>>,
}

/// Only the books are read under this lock, and no thread waits while holding it.
static ARRIVAL: RwLock<Option<Arrival>> = RwLock::new(None);
/// The word that sleepers wait on: it changes with every batch that is mapped.
static MAPPED: AtomicU32 = AtomicU32::new(0);
/// The number of calls that wait at the moment.
static WAITING: AtomicU32 = AtomicU32::new(0);
/// The number of calls that waited since the gate was opened, and their total time.
static WAITS: AtomicU64 = AtomicU64::new(0);
static WAITED: AtomicU64 = AtomicU64::new(0);
/// The number of opaque calls, which had not shown all their memory, and so lacked some.
static OPAQUE: AtomicU64 = AtomicU64::new(0);
/// The reasons that the user was told about, a bit for each.
static NOTED: AtomicU32 = AtomicU32::new(0);
/// The times when the first extent was mapped, and when the first call went to the driver.
static FIRST_EXTENT: AtomicU64 = AtomicU64::new(u64::MAX);
static FIRST_CALL: AtomicU64 = AtomicU64::new(u64::MAX);

fn read() -> RwLockReadGuard<'static, Option<Arrival>> {
    ARRIVAL.read().unwrap_or_else(PoisonError::into_inner)
}

/// Begins an arrival, before the gate is opened. `edges` are pointers from an extent's contents to an address, and `number` is the one by
/// which work may wait.
pub(super) fn begin(layout: Layout, edges: &[(ExtentOf, CUdeviceptr)], roots: roots::Found, number: Option<u32>) {
    for counter in [&WAITS, &WAITED, &OPAQUE] {
        counter.store(0, Ordering::Relaxed);
    }
    for first in [&FIRST_EXTENT, &FIRST_CALL] {
        first.store(u64::MAX, Ordering::Relaxed);
    }
    let arrival = Arrival { number, ..Arrival::new(layout, edges, roots) };
    *ARRIVAL.write().unwrap_or_else(PoisonError::into_inner) = Some(arrival);
}

/// Records that extents of a GPU were mapped.
pub(crate) fn mapped(device: CUdevice, extents: &[ExtentId]) {
    if let Some(arrival) = read().as_ref() {
        let _ = FIRST_EXTENT.compare_exchange(u64::MAX, arrival.micros(), Ordering::Relaxed, Ordering::Relaxed);
        let extents: Vec<ExtentOf> = extents.iter().map(|extent| (device, *extent)).collect();
        arrival.mapped(&extents);
    }
    wake();
}

/// Wakes all threads that wait for memory: some has come, or the gate has changed.
pub(crate) fn wake() {
    MAPPED.fetch_add(1, Ordering::AcqRel);
    futex::wake_all(&MAPPED, Scope::Process);
}

/// True if no memory is on its way any more.
pub(crate) fn is_complete() -> bool {
    read().as_ref().is_none_or(|arrival| arrival.left.load(Ordering::Acquire) == 0)
}

/// The extents of a GPU that the program has used so far, and the figures of the arrival.
pub(crate) fn stats(device: CUdevice) -> Option<(Vec<(ExtentId, u32)>, ArrivalStats)> {
    let arrival = read();
    let arrival = arrival.as_ref()?;
    let stats = ArrivalStats {
        first_extent_micros: FIRST_EXTENT.load(Ordering::Relaxed),
        first_call_micros: FIRST_CALL.load(Ordering::Relaxed),
        end_micros: arrival.micros(),
        waits: WAITS.load(Ordering::Relaxed),
        waited_micros: WAITED.load(Ordering::Relaxed),
        opaque: OPAQUE.load(Ordering::Relaxed),
    };
    let here = |((gpu, extent), at): (ExtentOf, u32)| (gpu == device).then_some((extent, at));
    Some((arrival.used().into_iter().filter_map(here).collect(), stats))
}

/// Ends the arrival: all memory is here, or no thread is inside the gate, so that no call has to wait. A gate that was closed over waiting
/// calls keeps them waiting, until it is opened again after more memory has come.
pub(crate) fn end() {
    *ARRIVAL.write().unwrap_or_else(PoisonError::into_inner) = None;
}

/// True if calls wait for memory: then the program is not idle, though no thread is inside the gate.
pub(crate) fn is_waited_for() -> bool {
    WAITING.load(Ordering::Relaxed) != 0
}

/// Waits until the call's memory is here. An error is the call's answer.
#[cold]
pub(crate) fn wait(passage: &Passage, needs: Needs) -> Result<(), CUresult> {
    if matches!(needs, Needs::Nothing) {
        return Ok(());
    }
    if is_lacking(&needs) {
        count(&needs);
        let start = Instant::now();
        WAITS.fetch_add(1, Ordering::Relaxed);
        WAITING.fetch_add(1, Ordering::Relaxed);
        let waited = wait_while(passage, || is_lacking(&needs), start);
        WAITING.fetch_sub(1, Ordering::Relaxed);
        WAITED.fetch_add(start.elapsed().as_micros() as u64, Ordering::Relaxed);
        waited?;
    }
    note_first_call();
    Ok(())
}

/// Counts a call that lacks memory, for which it or its stream waits.
pub(super) fn count(needs: &Needs) {
    if let Needs::These(Named { opaque: Some(opaque), .. }) = needs {
        OPAQUE.fetch_add(1, Ordering::Relaxed);
        let bit = 1 << *opaque as u32;
        if NOTED.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            user::note(&baton_messages::call_waits_for_all(opaque.why()));
        }
    }
}

/// Notes that a call goes to the driver, and that its work can begin.
pub(super) fn note_first_call() {
    if FIRST_CALL.load(Ordering::Relaxed) == u64::MAX
        && let Some(arrival) = read().as_ref()
    {
        let _ = FIRST_CALL.compare_exchange(u64::MAX, arrival.micros(), Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Waits until memory that is in no block is here.
pub(super) fn wait_until(passage: &Passage, is_here: impl Fn() -> bool) -> Result<(), CUresult> {
    WAITING.fetch_add(1, Ordering::Relaxed);
    let waited = wait_while(passage, || !is_here(), Instant::now());
    WAITING.fetch_sub(1, Ordering::Relaxed);
    waited
}

fn wait_while(passage: &Passage, lacks: impl Fn() -> bool, start: Instant) -> Result<(), CUresult> {
    loop {
        let mapped = MAPPED.load(Ordering::Acquire);
        // The gate is broken before this thread is woken for the last time.
        gate::check()?;
        if !lacks() {
            return Ok(());
        }
        if start.elapsed() < SPIN {
            std::thread::yield_now();
            continue;
        }
        // The thread leaves the gate: the coordinator may want it closed before all memory has come.
        passage.outside(|| futex::wait(&MAPPED, mapped, None, Scope::Process))?;
    }
}

/// True if memory of the call is still missing; remembers the memory that was asked for. The gate's state does not count: it may be about
/// to close, and waits for this call to step out.
pub(super) fn is_lacking(needs: &Needs) -> bool {
    read().as_ref().is_some_and(|arrival| arrival.lacks(needs))
}

/// The memory that a call has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lack {
    /// Its size, and the size of all missing memory.
    pub(super) bytes: u64,
    pub(super) missing: u64,
    /// The number by which work may wait for all of it; `None` if it must not.
    pub(super) arrival: Option<u32>,
}

/// Like [`is_lacking`], but returns the missing memory.
pub(super) fn lack(needs: &Needs) -> Option<Lack> {
    read().as_ref().and_then(|arrival| arrival.lack(needs))
}

fn find(blocks: &[Block], address: CUdeviceptr) -> Option<u32> {
    let at = blocks.partition_point(|block| block.start <= address).checked_sub(1)?;
    (address < blocks[at].end).then_some(at as u32)
}

/// The distance before memory at which an address may still mean it: kernels count rows and planes from one, and columns.
const NEAR: u64 = 256 << 10;
/// The same distance for an address that lies in no other memory. It is limited: two numbers side by side may look like such an address.
const FAR: u64 = 1 << 30;

/// The block at an address, the one that ends there, as some programs go backwards from an end, and those that begin within `near` after
/// it, as some count from one. The first value is the block that the address lies in.
fn find_around(blocks: &[Block], address: CUdeviceptr, near: u64) -> (Option<&Block>, impl Iterator<Item = u32>) {
    let after = blocks.partition_point(|block| block.start <= address);
    let last = after.checked_sub(1);
    let here = last.filter(|at| address <= blocks[*at].end);
    // Where one block begins, another may end.
    let before = last.filter(|at| blocks[*at].start == address).and_then(|at| at.checked_sub(1));
    let before = before.filter(|at| blocks[*at].end == address);
    let next = (after..blocks.len()).take_while(move |at| blocks[*at].start - address <= near);
    let found = here.into_iter().chain(before).chain(next).map(|at| at as u32);
    (last.map(|at| &blocks[at]).filter(|block| address < block.end), found)
}

/// The blocks that a call has visited, and the visited extents whose contents point somewhere, in that order. Kept from call to call, so
/// that most calls allocate nothing.
#[derive(Debug, Default)]
struct Visited {
    order: Vec<u32>,
    /// For each extent, and for each block, the last call that visited it.
    last: Vec<u32>,
    last_blocks: Vec<u32>,
    call: u32,
}

impl Visited {
    fn with<T>(extents: usize, blocks: usize, what: impl FnOnce(&mut Self) -> T) -> T {
        thread_local! {
            static VISITED: RefCell<Visited> = RefCell::default();
        }
        // A thread that is ending no longer has its own.
        let mut visited = VISITED.try_with(RefCell::take).unwrap_or_default();
        visited.begin(extents, blocks);
        let done = what(&mut visited);
        let _ = VISITED.try_with(|kept| kept.replace(visited));
        done
    }

    fn begin(&mut self, extents: usize, blocks: usize) {
        self.order.clear();
        self.call = self.call.wrapping_add(1);
        if self.call == 0 || self.last.len() < extents || self.last_blocks.len() < blocks {
            (self.last, self.last_blocks, self.call) = (vec![0; extents], vec![0; blocks], 1);
        }
    }

    /// True if the call visits this block for the first time.
    fn is_new(&mut self, block: u32) -> bool {
        std::mem::replace(&mut self.last_blocks[block as usize], self.call) != self.call
    }

    fn add(&mut self, at: u32) {
        if std::mem::replace(&mut self.last[at as usize], self.call) != self.call {
            self.order.push(at);
        }
    }
}

impl Extent {
    fn leads_somewhere(&self) -> bool {
        !self.targets.is_empty() || self.to_host
    }
}

impl Arrival {
    fn new(layout: Layout, edges: &[(ExtentOf, CUdeviceptr)], roots: roots::Found) -> Self {
        let Layout { blocks, mapped, extents } = layout;
        let allocated = blocks.iter().map(|block| (block, core::slice::from_ref(block)));
        let mapped = mapped.iter().map(|(addresses, homes)| (addresses, &homes[..]));
        let mut places: Vec<(&Range<CUdeviceptr>, &[Range<CUdeviceptr>])> = allocated.chain(mapped).collect();
        places.sort_unstable_by_key(|(addresses, _)| addresses.start);
        let missing = || extents.iter().filter(|extent| !extent.is_mapped);
        let (left, left_bytes) = (missing().count(), missing().map(ExtentLayout::bytes).sum());
        let (mut behind, mut blocks): (Vec<u32>, Vec<Block>) = (Vec::new(), Vec::with_capacity(places.len()));
        // The number of blocks that each extent is behind.
        let mut counts = vec![0; extents.len()];
        for (addresses, homes) in places {
            let start = behind.len();
            for home in homes {
                let first = extents.partition_point(|extent| extent.addresses.end <= home.start);
                let end = extents.partition_point(|extent| extent.addresses.start < home.end).max(first);
                behind.extend(first as u32..end as u32);
            }
            if homes.len() > 1 {
                // One handle may be mapped several times.
                let mut unique: Vec<u32> = behind.drain(start..).collect();
                unique.sort_unstable();
                unique.dedup();
                behind.extend(unique);
            }
            behind[start..].iter().for_each(|at| counts[*at as usize] += 1);
            let missing = behind[start..].iter().filter(|at| !extents[**at as usize].is_mapped).count();
            blocks.push(Block {
                start: addresses.start,
                end: addresses.end,
                extents: start as u32..behind.len() as u32,
                pointing: 0..0,
                missing: AtomicU32::new(missing as u32),
                used: AtomicBool::new(false),
            });
        }
        let mut next = 0;
        let extent = |(extent, count): (&ExtentLayout, &u32)| {
            let first = next;
            next += count;
            let is_mapped = AtomicBool::new(extent.is_mapped);
            Extent {
                id: extent.id,
                bytes: extent.bytes(),
                is_mapped,
                blocks: first..first,
                targets: Vec::new(),
                to_host: false,
            }
        };
        let mut extents: Vec<Extent> = extents.iter().zip(&counts).map(extent).collect();
        let mut before = vec![0; behind.len()];
        for (at, block) in (0..).zip(&blocks) {
            for extent in &behind[block.extents.start as usize..block.extents.end as usize] {
                let blocks = &mut extents[*extent as usize].blocks;
                before[blocks.end as usize] = at;
                blocks.end += 1;
            }
        }
        let of_id: HashMap<ExtentOf, u32> = (0..).zip(&extents).map(|(at, extent)| (extent.id, at)).collect();
        for (extent, address) in edges {
            // A pointer is known by the granule that it lies in: it may mean any block that begins or lies there, or begins right behind
            // it.
            let Some(from) = of_id.get(extent) else { continue };
            extents[*from as usize].to_host |= *address == HOST_MEMORY;
            extents[*from as usize].targets.extend(find_around(&blocks, *address, GRANULE).1);
        }
        for extent in &mut extents {
            extent.targets.sort_unstable();
            extent.targets.dedup();
        }
        let mut pointing = Vec::new();
        for block in &mut blocks {
            let start = pointing.len() as u32;
            let all = &behind[block.extents.start as usize..block.extents.end as usize];
            pointing.extend(all.iter().filter(|at| extents[**at as usize].leads_somewhere()));
            block.pointing = start..pointing.len() as u32;
        }
        let mut root_blocks: Vec<u32> = roots.addresses.iter().filter_map(|address| find(&blocks, *address)).collect();
        root_blocks.sort_unstable();
        root_blocks.dedup();
        Self {
            blocks,
            extents,
            behind,
            before,
            pointing,
            of_id,
            roots: root_blocks,
            unreadable: roots.unreadable,
            left: AtomicUsize::new(left),
            left_bytes: AtomicU64::new(left_bytes),
            number: None,
            began: Instant::now(),
            order: Mutex::default(),
        }
    }

    fn blocks_of(&self, extent: &Extent) -> impl Iterator<Item = &Block> {
        let blocks = &self.before[extent.blocks.start as usize..extent.blocks.end as usize];
        blocks.iter().map(|at| &self.blocks[*at as usize])
    }

    fn pointing_of(&self, block: &Block) -> &[u32] {
        &self.pointing[block.pointing.start as usize..block.pointing.end as usize]
    }

    fn extents_of(&self, block: &Block) -> &[u32] {
        &self.behind[block.extents.start as usize..block.extents.end as usize]
    }

    fn mapped(&self, extents: &[ExtentOf]) {
        for extent in extents {
            let Some(extent) = self.of_id.get(extent).map(|at| &self.extents[*at as usize]) else { continue };
            for block in self.blocks_of(extent) {
                // Release: a thread that sees none missing may use them.
                block.missing.fetch_sub(1, Ordering::AcqRel);
            }
            extent.is_mapped.store(true, Ordering::Relaxed);
            self.left_bytes.fetch_sub(extent.bytes, Ordering::Relaxed);
        }
        self.left.fetch_sub(extents.len(), Ordering::AcqRel);
    }

    /// The extents in the order of their first use, and the time of each.
    fn used(&self) -> Vec<(ExtentOf, u32)> {
        let order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let extents = |(block, micros): &(u32, u32)| {
            let micros = *micros;
            let extents = self.extents_of(&self.blocks[*block as usize]);
            extents.iter().map(move |extent| (self.extents[*extent as usize].id, micros))
        };
        // An extent counts with the first of its blocks.
        let mut known = HashSet::new();
        order.iter().flat_map(extents).filter(|(extent, _)| known.insert(*extent)).collect()
    }

    fn micros(&self) -> u64 {
        self.began.elapsed().as_micros() as u64
    }

    fn lacks(&self, needs: &Needs) -> bool {
        let mut lacks = false;
        self.for_lacking(needs, |_| lacks = true) || lacks
    }

    /// The memory that the call lacks; `None` if it lacks none.
    fn lack(&self, needs: &Needs) -> Option<Lack> {
        let mut blocks = Vec::new();
        let all = self.for_lacking(needs, |at| blocks.push(at));
        if !all && blocks.is_empty() {
            return None;
        }
        let missing = self.left_bytes.load(Ordering::Relaxed);
        let bytes = if all { missing } else { self.missing_bytes(&blocks) };
        Some(Lack { bytes, missing, arrival: self.number })
    }

    /// The size of the unmapped extents behind these blocks.
    fn missing_bytes(&self, blocks: &[u32]) -> u64 {
        let extents = blocks.iter().flat_map(|at| self.extents_of(&self.blocks[*at as usize]));
        // Several blocks may lie in one extent.
        let mut extents: Vec<u32> = extents.copied().collect();
        extents.sort_unstable();
        extents.dedup();
        let extents = extents.iter().map(|at| &self.extents[*at as usize]);
        extents.filter(|extent| !extent.is_mapped.load(Ordering::Relaxed)).map(|extent| extent.bytes).sum()
    }

    /// The largest distance from a kernel's parameter to the memory that it means.
    fn reach_of(&self, address: CUdeviceptr) -> u64 {
        // Memory that was allocated since is in no block.
        let is_allocated = || space::at(address).is_some_and(|space| space.find(address).is_some());
        let is_in_nothing = || !is_allocated() && vmm::mapping(address).is_none();
        if find(&self.blocks, address).is_none() && is_in_nothing() { FAR } else { NEAR }
    }

    /// Calls `what` for each block that a call needs and that is not all here. Returns true if the call needs everything, and not
    /// everything is here: then perhaps not for all blocks. Remembers the memory that was asked for.
    fn for_lacking(&self, needs: &Needs, mut what: impl FnMut(u32)) -> bool {
        let named = match needs {
            Needs::Nothing => return false,
            Needs::These(named) if !self.unreadable && named.opaque.is_none() => named,
            _ => return self.lacks_any(),
        };
        Visited::with(self.extents.len(), self.blocks.len(), |visited| {
            let mut visit = |at: u32, visited: &mut Visited| {
                if !visited.is_new(at) {
                    return;
                }
                let block = &self.blocks[at as usize];
                self.note(at);
                if block.missing.load(Ordering::Acquire) != 0 {
                    what(at);
                }
                // Most memory points nowhere, so most calls have nothing to follow.
                self.pointing_of(block).iter().for_each(|at| visited.add(*at));
            };
            // Many addresses lie in the same block as the one before.
            let mut inside = 0..0;
            let addresses = named.addresses.iter().map(|address| (address, false));
            for (address, is_parameter) in addresses.chain(named.parameters.iter().map(|address| (address, true))) {
                if inside.contains(address) {
                    continue;
                }
                let near = if is_parameter { self.reach_of(*address) } else { NEAR };
                let (block, blocks) = find_around(&self.blocks, *address, near);
                blocks.for_each(|at| visit(at, visited));
                inside = block.map_or(0..0, |block| block.start + 1..(block.end - NEAR).max(block.start + 1));
            }
            for part in &named.parts {
                let may_be = |block: &Block| part.lies_between(block.start.saturating_sub(NEAR), block.end);
                let blocks = (0..).zip(&self.blocks).filter(|(_, block)| may_be(block));
                blocks.for_each(|(at, _)| visit(at, visited));
            }
            self.roots.iter().for_each(|at| visit(*at, visited));
            let mut next = 0;
            while let Some(&at) = visited.order.get(next) {
                let extent = &self.extents[at as usize];
                if extent.to_host {
                    return self.lacks_any();
                }
                extent.targets.iter().for_each(|target| visit(*target, visited));
                next += 1;
            }
            false
        })
    }

    /// True if anything is missing, for a call that needs everything.
    fn lacks_any(&self) -> bool {
        for at in 0..self.blocks.len() as u32 {
            self.note(at);
        }
        self.left.load(Ordering::Acquire) != 0
    }

    /// Remembers the first use of a block, on the program's own clock: without the time that calls have waited so far.
    fn note(&self, at: u32) {
        let block = &self.blocks[at as usize];
        if !block.used.load(Ordering::Relaxed) && !block.used.swap(true, Ordering::Relaxed) {
            let micros = self.micros().saturating_sub(WAITED.load(Ordering::Relaxed));
            let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
            order.push((at, u32::try_from(micros).unwrap_or(u32::MAX)));
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
