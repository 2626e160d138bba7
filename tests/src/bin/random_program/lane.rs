//! A lane: one thread with its streams and its memory, and the order that its work has to keep.
//!
//! A lane writes to its own memory only. Of its pieces one half can be written in a phase, by parity; the other
//! half is frozen, and all lanes may read it. So what is computed does not depend on how the lanes' work interleaves.
//!
//! A piece begins with room for nodes of chains; the rest is its body. Only bodies are looked at for the
//! digest: addresses differ from run to run.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Mutex;

use crate::dice::{Dice, Digest};
use crate::gpu::{GLOBALS, Gpu};
use crate::graphs::Program;
use crate::pointers::{Chain, Table};
use crate::work::{Code, Copy, End, Fill, Job, Kernel, Key, Work, copy, fill, launch};
use baton_tests::driver::{Access, Failure, Handle, Outcome, Properties};

/// Nodes at the start of a piece, and their bytes.
pub(crate) const NODES: usize = 16;
pub(crate) const HEAD: usize = NODES * 16;

/// Numbers that chases of one round leave behind.
const RESULTS: usize = 64;

const LARGEST: usize = 8 << 20;
const SMALLEST: usize = 512;
/// The unit of memory behind a handle.
const UNIT: usize = 2 << 20;
/// Addresses below those that the system gives out.
const FAR: u64 = 1 << 44;

/// An allocation of a lane's own whose contents count.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) key: Key,
    pub(crate) at: u64,
    pub(crate) bytes: usize,
    pub(crate) parity: usize,
    /// How much memory of handles is mapped there, and once more behind that; 0 if it was allocated.
    mapped: usize,
}

impl Piece {
    pub(crate) fn body(&self) -> u64 {
        self.at + HEAD as u64
    }

    /// Whole words of the body.
    pub(crate) fn words(&self) -> usize {
        (self.bytes - HEAD) / 4
    }
}

/// A frozen piece as all lanes see it.
#[derive(Clone, Copy)]
pub(crate) struct Public {
    pub(crate) lane: usize,
    pub(crate) piece: Piece,
}

/// Memory for tables of pointers, and for numbers that are not part of a piece.
#[derive(Clone, Copy)]
pub(crate) struct Area {
    pub(crate) key: Key,
    pub(crate) at: u64,
    pub(crate) bytes: usize,
    pub(crate) kind: AreaKind,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum AreaKind {
    Device,
    /// A module's or a library's variable.
    Global,
    /// Host memory that the device reaches: where the host sees it, and how it was made.
    Pinned(usize, Pinned),
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Pinned {
    Allocated,
    Registered,
    Managed,
}

/// A stream and an event for what others wait for in it.
struct Stream {
    handle: Handle,
    event: Handle,
}

/// Which streams have used some memory since when.
#[derive(Clone, Copy, Default)]
struct Use {
    writers: u32,
    readers: u32,
}

/// The state that all lanes share.
pub(crate) struct Shared {
    pub(crate) gpu: Gpu,
    pub(crate) kinds: Vec<&'static str>,
    pub(crate) steps: usize,
    pub(crate) verbose: bool,
    /// Waits for the device after each step, so that a failure names its step.
    pub(crate) sync: bool,
    /// After even and after odd phases: per lane, what of it is frozen.
    pub(crate) frozen: Mutex<[Vec<Vec<Piece>>; 2]>,
    /// Per lane, the ends of even and odd phases.
    pub(crate) ends: Vec<[Handle; 2]>,
}

pub(crate) struct Lane<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) gpu: &'a Gpu,
    pub(crate) index: usize,
    pub(crate) dice: Dice,
    pub(crate) code: Code,
    globals: Handle,
    /// The parity of what can be written now.
    pub(crate) parity: usize,
    streams: Vec<Stream>,
    uses: HashMap<Key, Use>,
    next_key: u32,
    budget: usize,
    pub(crate) pieces: Vec<Piece>,
    /// Frozen pieces of other lanes.
    pub(crate) frozen: Vec<Public>,
    pub(crate) areas: Vec<Area>,
    pub(crate) tables: Vec<Table>,
    /// Parts of areas that no new table may lie in.
    pub(crate) held: Vec<Range<u64>>,
    pub(crate) chains: Vec<Chain>,
    pub(crate) graphs: Vec<Program>,
    results: Area,
    sums: Area,
    expected: Vec<u64>,
    pen: Area,
    pen_used: usize,
    /// Host memory that asynchronous calls may still read or write, until the end of the round.
    kept: Vec<Vec<u64>>,
    pub(crate) digest: Digest,
}

/// Streams by what they are. Captures are made in the last two.
pub(crate) const DEFAULT: usize = 0;
const PER_THREAD: Handle = 2;
const NON_BLOCKING: u32 = 1;
const NO_TIMING: u32 = 2;

impl<'a> Lane<'a> {
    pub(crate) fn new(shared: &'a Shared, index: usize, seed: u64, bytes: usize) -> Outcome<Self> {
        let gpu = &shared.gpu;
        let driver = &gpu.driver;
        driver.cuCtxSetCurrent(gpu.context)?;
        let code = Code::load(gpu)?;
        let mut globals = 0;
        driver.cuModuleLoadData(&mut globals, GLOBALS.as_ptr().cast())?;
        let mut handles = vec![0, PER_THREAD];
        for (flags, priority) in [(0, None), (NON_BLOCKING, Some(-1)), (NON_BLOCKING, None), (NON_BLOCKING, None)] {
            let mut handle = 0;
            match priority {
                Some(priority) => driver.cuStreamCreateWithPriority(&mut handle, flags, priority)?,
                None => driver.cuStreamCreate(&mut handle, flags)?,
            }
            handles.push(handle);
        }
        let mut streams = Vec::new();
        for handle in handles {
            let mut event = 0;
            driver.cuEventCreate(&mut event, NO_TIMING)?;
            streams.push(Stream { handle, event });
        }
        let nothing = Area { key: Key(0), at: 0, bytes: 0, kind: AreaKind::Device };
        let mut lane = Self {
            shared,
            gpu,
            index,
            dice: Dice::new(seed, index as u64),
            code,
            globals,
            parity: 0,
            streams,
            uses: HashMap::new(),
            next_key: 0,
            budget: bytes,
            pieces: Vec::new(),
            frozen: Vec::new(),
            areas: Vec::new(),
            tables: Vec::new(),
            held: Vec::new(),
            chains: Vec::new(),
            graphs: Vec::new(),
            results: nothing,
            sums: nothing,
            expected: Vec::new(),
            pen: nothing,
            pen_used: 0,
            kept: Vec::new(),
            digest: Digest::START,
        };
        lane.furnish()?;
        Ok(lane)
    }

    /// Makes the areas and the first pieces.
    fn furnish(&mut self) -> Outcome {
        self.results = self.new_area(RESULTS * 8)?;
        self.sums = self.new_area(1 << 12)?;
        self.pen = self.pinned_area(1 << 20, Pinned::Allocated)?;
        for bytes in [512, 4096, 3 << 20, 16 << 10] {
            let area = self.new_area(bytes)?;
            self.areas.push(area);
        }
        if self.has_kind("in-pinned") {
            for how in [Pinned::Allocated, Pinned::Registered, Pinned::Managed] {
                let area = self.pinned_area(8192, how)?;
                self.areas.push(area);
            }
        }
        if self.has_kind("in-global") {
            let (mut at, mut bytes) = (0, 0);
            self.gpu.driver.cuModuleGetGlobal_v2(&mut at, &mut bytes, self.globals, c"table".as_ptr())?;
            let key = self.key();
            self.areas.push(Area { key, at, bytes, kind: AreaKind::Global });
        }
        let mut left = self.budget.saturating_sub(6 << 20);
        // The library's variable is one for all lanes.
        if self.index == 0 && self.has_kind("in-global") {
            let (at, bytes) = self.gpu.library_global()?;
            let key = self.key();
            self.areas.push(Area { key, at, bytes, kind: AreaKind::Global });
        }
        for number in 0.. {
            let parity = number % 2;
            // Always some that are small and share their extent.
            let most = if number < 12 { 32 << 10 } else { LARGEST };
            let bytes = self.dice.size(SMALLEST, most.min(left));
            if bytes < SMALLEST || number == 40 {
                break;
            }
            left = left.saturating_sub(bytes);
            self.new_piece(bytes, parity)?;
        }
        Ok(())
    }

    /// A step's name and what it does, by chance among those asked for.
    pub(crate) fn has_kind(&self, kind: &str) -> bool {
        self.shared.kinds.contains(&kind)
    }

    pub(crate) fn key(&mut self) -> Key {
        self.next_key += 1;
        Key(self.next_key)
    }

    pub(crate) fn stream_count(&self) -> usize {
        self.streams.len()
    }

    pub(crate) fn stream(&self, stream: usize) -> Handle {
        self.streams[stream].handle
    }

    pub(crate) fn event(&self, stream: usize) -> Handle {
        self.streams[stream].event
    }

    pub(crate) fn any_stream(&mut self) -> usize {
        self.dice.roll(self.streams.len())
    }

    // --- memory

    pub(crate) fn new_area(&mut self, bytes: usize) -> Outcome<Area> {
        let mut at = 0;
        self.gpu.driver.cuMemAlloc_v2(&mut at, bytes)?;
        Ok(Area { key: self.key(), at, bytes, kind: AreaKind::Device })
    }

    pub(crate) fn pinned_area(&mut self, bytes: usize, how: Pinned) -> Outcome<Area> {
        let driver = &self.gpu.driver;
        let (mut host, mut at) = (0, 0);
        match how {
            Pinned::Allocated if self.dice.once_in(2) => driver.cuMemHostAlloc(&mut host, bytes, 3)?,
            Pinned::Allocated => driver.cuMemAllocHost_v2(&mut host, bytes)?,
            Pinned::Registered => {
                const PAGE: usize = 4096;
                let pages = vec![[0u8; PAGE]; bytes / PAGE + 1];
                let pages = Vec::leak(pages);
                host = (pages.as_ptr() as usize).next_multiple_of(PAGE);
                driver.cuMemHostRegister_v2(host, bytes, 3)?;
            }
            Pinned::Managed => {
                driver.cuMemAllocManaged(&mut at, bytes, 1)?;
                host = at as usize;
            }
        }
        if how != Pinned::Managed {
            driver.cuMemHostGetDevicePointer_v2(&mut at, host, 0)?;
        }
        Ok(Area { key: self.key(), at, bytes, kind: AreaKind::Pinned(host, how) })
    }

    /// Gives back an area; nothing in flight may use it.
    pub(crate) fn free_area(&mut self, area: Area) -> Outcome {
        let driver = &self.gpu.driver;
        self.uses.remove(&area.key);
        self.tables.retain(|table| table.area.key != area.key);
        match area.kind {
            AreaKind::Device => driver.cuMemFree_v2(area.at),
            AreaKind::Global => Ok(()),
            AreaKind::Pinned(host, Pinned::Allocated) => driver.cuMemFreeHost(host),
            AreaKind::Pinned(host, Pinned::Registered) => driver.cuMemHostUnregister(host),
            AreaKind::Pinned(_, Pinned::Managed) => driver.cuMemFree_v2(area.at),
        }
    }

    fn new_piece(&mut self, bytes: usize, parity: usize) -> Outcome {
        let bytes = bytes.max(SMALLEST).next_multiple_of(4);
        let (mut at, mut pitch, mut mapped) = (0, 0, 0);
        match self.dice.roll(5) {
            0 => self.gpu.driver.cuMemAllocPitch_v2(&mut at, &mut pitch, bytes, 1, 4)?,
            1 | 2 if bytes >= UNIT / 2 && self.has_kind("in-mapping") => {
                mapped = bytes.next_multiple_of(UNIT);
                at = self.map_twice(mapped)?;
            }
            _ => self.gpu.driver.cuMemAlloc_v2(&mut at, bytes)?,
        }
        let piece = Piece { key: self.key(), at, bytes, parity, mapped };
        self.pieces.push(piece);
        let value = self.dice.next() as u32;
        let work = match self.dice.roll(3) {
            0 => Work::Fill(Fill::line(piece.body(), 4, value, piece.words())),
            _ => {
                let kernel = Kernel::new(c"fill_hash").pointer(piece.body()).number(value as usize);
                Work::Kernel(kernel.number(piece.words()))
            }
        };
        self.submit(work, &[], &[piece.key])
    }

    /// Memory of one handle or of several side by side, at two places; gives the first.
    fn map_twice(&mut self, bytes: usize) -> Outcome<u64> {
        // Where the driver likes, or far from all else, so that memory of the host lies in between.
        let wish = if self.dice.once_in(2) { 0 } else { FAR + self.key().0 as u64 * (1 << 30) };
        let (driver, mut at) = (&self.gpu.driver, 0);
        driver.cuMemAddressReserve(&mut at, 2 * bytes, 0, wish, 0)?;
        let unit = if self.dice.once_in(2) { UNIT } else { bytes };
        for offset in (0..bytes).step_by(unit) {
            let mut handle = 0;
            driver.cuMemCreate(&mut handle, unit, &Properties::exportable(false), 0)?;
            for place in [at, at + bytes as u64] {
                driver.cuMemMap(place + offset as u64, unit, 0, handle, 0)?;
            }
            driver.cuMemRelease(handle)?;
        }
        driver.cuMemSetAccess(at, 2 * bytes, &Access::FULL, 1)?;
        Ok(at)
    }

    /// Frees a piece; work on it may be in flight, unless it is one that was mapped.
    fn free_piece(&self, piece: &Piece) -> Outcome {
        let driver = &self.gpu.driver;
        if piece.mapped == 0 {
            return driver.cuMemFree_v2(piece.at);
        }
        driver.cuMemUnmap(piece.at, 2 * piece.mapped)?;
        driver.cuMemAddressFree(piece.at, 2 * piece.mapped)
    }

    /// Frees some pieces that can be written and makes others. Only in the first phase of a round: in later ones
    /// another lane's work on them may be in flight.
    pub(crate) fn replace_pieces(&mut self) -> Outcome {
        let mut freed = 0;
        for _ in 0..1 + self.dice.roll(3) {
            let own = self.own_writable();
            if own.len() <= 4 {
                break;
            }
            let piece = self.dice.of(&own);
            self.drop_graphs_with(piece.key)?;
            match self.dice.roll(4) {
                _ if piece.mapped != 0 => {
                    self.settle(&[piece.key])?;
                    self.free_piece(&piece)?;
                }
                0 => {
                    // In a stream's order.
                    let stream = self.any_stream();
                    self.order(stream, &[], &[piece.key])?;
                    self.gpu.driver.cuMemFreeAsync(piece.at, self.stream(stream))?;
                }
                1 => {
                    self.settle(&[piece.key])?;
                    self.free_piece(&piece)?;
                }
                // The call itself waits for what is in flight.
                _ => self.free_piece(&piece)?,
            }
            self.uses.remove(&piece.key);
            self.pieces.retain(|other| other.key != piece.key);
            freed += piece.bytes;
        }
        while freed >= SMALLEST {
            let bytes = self.dice.size(SMALLEST, freed.min(LARGEST));
            self.new_piece(bytes, self.parity)?;
            freed = freed.saturating_sub(bytes.next_multiple_of(4));
            if self.pieces.len() > 60 {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn own_writable(&self) -> Vec<Piece> {
        self.pieces.iter().filter(|piece| piece.parity == self.parity).copied().collect()
    }

    /// All that can be read now.
    pub(crate) fn readable(&self) -> Vec<Public> {
        let own = self.pieces.iter().map(|piece| Public { lane: self.index, piece: *piece });
        own.chain(self.frozen.iter().copied()).collect()
    }

    pub(crate) fn is_readable(&self, row: &Public) -> bool {
        let (lane, key) = (row.lane, row.piece.key);
        if lane == self.index {
            self.pieces.iter().any(|piece| piece.key == key)
        } else {
            self.frozen.iter().any(|frozen| frozen.lane == lane && frozen.piece.key == key)
        }
    }

    /// The keys of those that are the lane's own.
    pub(crate) fn own_keys(&self, rows: &[Public]) -> Vec<Key> {
        rows.iter().filter(|row| row.lane == self.index).map(|row| row.piece.key).collect()
    }

    /// Pinned room that is the caller's until the end of the round. It starts over when it is full, after a wait.
    pub(crate) fn pen(&mut self, words: usize) -> Outcome<*mut u64> {
        if self.pen_used + words * 8 > self.pen.bytes {
            self.wait_for_all()?;
            self.pen_used = 0;
        }
        let AreaKind::Pinned(host, _) = self.pen.kind else { unreachable!("the pen is pinned") };
        let at = host + self.pen_used;
        self.pen_used += (words * 8).next_multiple_of(64);
        Ok(at as *mut u64)
    }

    /// Keeps host memory until the end of the round.
    pub(crate) fn keep(&mut self, words: Vec<u64>) -> *mut u64 {
        self.kept.push(words);
        self.kept.last_mut().expect("just pushed").as_mut_ptr()
    }

    // --- order

    /// Lets a stream's next work come after whatever conflicts with it.
    pub(crate) fn order(&mut self, stream: usize, reads: &[Key], writes: &[Key]) -> Outcome {
        let this = 1 << stream;
        let mut after = 0;
        for key in reads {
            let uses = self.uses.entry(*key).or_default();
            after |= uses.writers;
            uses.readers |= this;
        }
        for key in writes {
            let uses = self.uses.entry(*key).or_default();
            after |= uses.writers | uses.readers;
            *uses = Use { writers: this, readers: 0 };
        }
        for other in (0..self.streams.len()).filter(|other| *other != stream && after & (1 << other) != 0) {
            self.wait_in(stream, other, self.streams[other].event)?;
        }
        Ok(())
    }

    fn wait_in(&self, stream: usize, other: usize, event: Handle) -> Outcome {
        self.gpu.driver.cuEventRecord(event, self.streams[other].handle)?;
        self.gpu.driver.cuStreamWaitEvent(self.streams[stream].handle, event, 0)
    }

    /// Waits on the host until nothing uses some memory any more.
    pub(crate) fn settle(&mut self, keys: &[Key]) -> Outcome {
        let uses: Vec<Use> = keys.iter().filter_map(|key| self.uses.remove(key)).collect();
        let streams = uses.iter().fold(0, |streams, uses| streams | uses.writers | uses.readers);
        for stream in (0..self.streams.len()).filter(|stream| streams & (1 << stream) != 0) {
            self.wait_for(stream)?;
        }
        Ok(())
    }

    fn wait_for(&mut self, stream: usize) -> Outcome {
        let (handle, event) = (self.stream(stream), self.event(stream));
        let driver = &self.gpu.driver;
        if self.dice.once_in(2) {
            return driver.cuStreamSynchronize(handle);
        }
        driver.cuEventRecord(event, handle)?;
        driver.cuEventSynchronize(event)
    }

    fn wait_for_all(&mut self) -> Outcome {
        for stream in 0..self.streams.len() {
            self.wait_for(stream)?;
        }
        self.uses.clear();
        Ok(())
    }

    /// Waits for the lane's streams. Not for the context: others may be capturing. Nothing is rolled for it.
    pub(crate) fn wait_plainly(&self) -> Outcome {
        self.streams.iter().try_for_each(|stream| self.gpu.driver.cuStreamSynchronize(stream.handle))
    }

    /// Submits work to some stream.
    pub(crate) fn submit(&mut self, work: Work, reads: &[Key], writes: &[Key]) -> Outcome {
        let stream = self.any_stream();
        self.submit_to(stream, &Job { work, reads: reads.to_vec(), writes: writes.to_vec() })
    }

    pub(crate) fn submit_to(&mut self, stream: usize, job: &Job) -> Outcome {
        self.order(stream, &job.reads, &job.writes)?;
        self.run(stream, &job.work)
    }

    /// Submits work without a thought for order.
    pub(crate) fn run(&mut self, stream: usize, work: &Work) -> Outcome {
        let handle = self.stream(stream);
        match work {
            Work::Kernel(work) => launch(self.gpu, &self.code, &mut self.dice, work, handle),
            Work::Copy(work) => copy(self.gpu, &mut self.dice, work, handle),
            Work::Fill(work) => fill(self.gpu, &mut self.dice, work, handle),
        }
    }

    // --- results

    /// Where a kernel may leave one number that has to be `expected`. `None`: there is no room left in this round.
    pub(crate) fn result_slot(&mut self, expected: u64) -> Option<(u64, Key)> {
        let slot = self.expected.len();
        if slot == RESULTS {
            return None;
        }
        self.expected.push(expected);
        Some((self.results.at + slot as u64 * 8, self.results.key))
    }

    /// Adds up and looks at pieces, at some or at all, waits for everything, and mixes the results into the digest.
    pub(crate) fn finish_round(&mut self, every: bool, last: bool) -> Outcome<Digest> {
        let chosen: Vec<Piece> =
            self.pieces.clone().into_iter().filter(|_| every || last || self.dice.once_in(2)).collect();
        let (sums, count) = (self.sums, chosen.len().max(1));
        self.submit(Work::Fill(Fill::line(sums.at, 4, 0, count * 2)), &[], &[sums.key])?;
        for (number, piece) in chosen.iter().enumerate() {
            let out = sums.at + number as u64 * 8;
            let kernel = Kernel::new(c"sum_u32").pointer(out).pointer(piece.body()).number(piece.words());
            self.submit(Work::Kernel(kernel), &[piece.key], &[sums.key])?;
        }
        let mut seen = Vec::new();
        seen.push(self.download(sums.at, count, sums.key)?);
        for piece in chosen {
            if last || self.dice.once_in(3) {
                let words = piece.words() / 2;
                let part = if last { words } else { words.min(8192) };
                let from = self.dice.roll(words - part + 1);
                seen.push(self.download(piece.body() + from as u64 * 8, part, piece.key)?);
            }
        }
        let results = self.results;
        let chased = self.download(results.at, RESULTS, results.key)?;
        self.wait_for_all()?;
        for (at, words) in seen {
            // SAFETY: host memory of the round, with so many words; nothing writes to it any more.
            let bytes = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), words * 8) };
            self.digest.bytes(bytes);
        }
        // SAFETY: as above.
        let found = unsafe { std::slice::from_raw_parts(chased.0, RESULTS) };
        for (number, (found, expected)) in found.iter().zip(&self.expected).enumerate() {
            if found != expected {
                let lane = self.index;
                return Err(Failure(format!("lane {lane}: chase {number} gave {found:#x}, not {expected:#x}")));
            }
            self.digest.word(*found);
        }
        self.expected.clear();
        self.kept.clear();
        if self.has_kind("clean") && self.dice.once_in(2) {
            self.clean()?;
        }
        self.pen_used = 0;
        Ok(self.digest)
    }

    /// Leaves no pointers behind, but for those in chains and graphs: pointers that are found later were put there later. Nothing
    /// is in flight.
    fn clean(&mut self) -> Outcome {
        self.tables.clear();
        for area in self.areas.iter().chain([&self.pen]) {
            match area.kind {
                // SAFETY: pinned memory of the lane's own, which nothing uses.
                AreaKind::Pinned(host, _) => unsafe { (host as *mut u8).write_bytes(0, area.bytes) },
                _ => self.gpu.driver.cuMemsetD8_v2(area.at, 0, area.bytes)?,
            }
        }
        self.wait_plainly()
    }

    /// Begins to copy words to the host; where they will be at the end of the round.
    pub(crate) fn download(&mut self, at: u64, words: usize, key: Key) -> Outcome<(*const u64, usize)> {
        let to = if words <= 1 << 14 && self.pen_used + words * 8 <= self.pen.bytes && self.dice.once_in(2) {
            self.pen(words)?
        } else {
            // The words have to come from the device, not be there by chance.
            self.keep(vec![0x5555_5555_5555_5555; words])
        };
        if words > 0 {
            let line = Copy::line(End::Host(to as u64), End::Device(at), words * 8);
            self.submit(Work::Copy(line), &[key], &[])?;
        }
        Ok((to, words))
    }

    /// Ends a phase: all streams come together in an event, and what can be read next is told.
    pub(crate) fn end_phase(&mut self, number: usize) -> Outcome {
        let end = self.shared.ends[self.index][number % 2];
        let gathering = 1 + self.dice.roll(self.streams.len() - 1);
        for other in (0..self.streams.len()).filter(|other| *other != gathering) {
            self.wait_in(gathering, other, self.streams[other].event)?;
        }
        self.gpu.driver.cuEventRecord(end, self.streams[gathering].handle)?;
        let frozen = self.pieces.iter().filter(|piece| piece.parity == self.parity).copied().collect();
        self.shared.frozen.lock().expect("no lane panics with it")[number % 2][self.index] = frozen;
        Ok(())
    }

    /// Begins a phase, after what all lanes did in the one before if that may still be going on.
    pub(crate) fn begin_phase(&mut self, number: usize, waits: bool) -> Outcome {
        if waits {
            for ends in &self.shared.ends {
                for stream in &self.streams {
                    self.gpu.driver.cuStreamWaitEvent(stream.handle, ends[(number + 1) % 2], 0)?;
                }
            }
        }
        self.parity = number % 2;
        let frozen = self.shared.frozen.lock().expect("no lane panics with it");
        let others = frozen[(number + 1) % 2].iter().enumerate().filter(|(lane, _)| *lane != self.index);
        self.frozen =
            others.flat_map(|(lane, pieces)| pieces.iter().map(move |piece| Public { lane, piece: *piece })).collect();
        Ok(())
    }

    /// Gives everything back.
    pub(crate) fn close(mut self) -> Outcome {
        while let Some(program) = self.graphs.pop() {
            self.end_program(program)?;
        }
        let pieces = std::mem::take(&mut self.pieces);
        for piece in pieces {
            if piece.mapped != 0 {
                self.settle(&[piece.key])?;
            }
            self.free_piece(&piece)?;
        }
        let keys: HashSet<Key> = self.uses.keys().copied().collect();
        self.settle(&keys.into_iter().collect::<Vec<_>>())?;
        for area in std::mem::take(&mut self.areas).into_iter().chain([self.results, self.sums, self.pen]) {
            self.free_area(area)?;
        }
        for stream in &self.streams {
            self.gpu.driver.cuEventDestroy_v2(stream.event)?;
            if stream.handle > PER_THREAD {
                self.gpu.driver.cuStreamDestroy_v2(stream.handle)?;
            }
        }
        self.gpu.driver.cuModuleUnload(self.globals)?;
        self.gpu.driver.cuModuleUnload(self.code.module)
    }
}
