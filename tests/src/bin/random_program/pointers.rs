//! Pointers in memory: tables of rows and chains of nodes, and the many ways in which pointers get to where kernels
//! find them.

use std::ops::Range;

use crate::lane::{Area, AreaKind, DEFAULT, HEAD, Lane, NODES, Piece, Public};
use crate::work::{Copy, End, Fill, Job, Kernel, Key, Work, copy_batch};
use baton_tests::driver::{Handle, Outcome, WordOp};

/// A table in an area that is still there, for later use. Its rows may have been freed meanwhile.
#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) area: Area,
    pub(crate) at: u64,
    pub(crate) rows: Vec<Public>,
    pub(crate) row_words: usize,
}

/// A chain whose nodes are at the start of pieces, by piece and place there.
#[derive(Clone)]
pub(crate) struct Chain {
    pub(crate) nodes: Vec<(Key, usize)>,
    pub(crate) head: u64,
    pub(crate) sum: u64,
}

/// Where a table is or will be.
#[derive(Clone, Copy)]
pub(crate) struct Spot {
    pub(crate) area: Area,
    pub(crate) at: u64,
}

/// All the ways to write pointers to the device, by their kinds' names.
pub(crate) const WAYS: [&str; 12] = [
    "by-pageable",
    "by-pinned",
    "by-halves",
    "by-device",
    "by-bounce",
    "by-kernel",
    "by-words",
    "by-fills",
    "by-late",
    "by-rows",
    "by-graph",
    "by-batch",
];

/// Numbers that a host function writes to pinned memory.
struct HostWrite {
    to: *mut u64,
    words: Vec<u64>,
}

extern "C" fn write_on_host(data: usize) {
    // SAFETY: each is made for one call, which this is.
    let write = unsafe { Box::from_raw(data as *mut HostWrite) };
    // SAFETY: pinned memory of that size, which the host leaves alone until this has run.
    unsafe { write.to.copy_from_nonoverlapping(write.words.as_ptr(), write.words.len()) };
}

impl Lane<'_> {
    /// A place for so many pointers; tables that were there are forgotten.
    pub(crate) fn spot(&mut self, words: usize, allowed: impl Fn(&Area) -> bool) -> Option<Spot> {
        let areas: Vec<Area> =
            self.areas.iter().filter(|area| area.bytes >= words * 8 && allowed(area)).copied().collect();
        if areas.is_empty() {
            return None;
        }
        for _ in 0..8 {
            let area = self.dice.of(&areas);
            let at = area.at + 8 * self.dice.roll((area.bytes - words * 8) / 8 + 1) as u64;
            let range = at..at + words as u64 * 8;
            if !self.held.iter().any(|held| held.start < range.end && range.start < held.end) {
                self.forget(area.key, range);
                return Some(Spot { area, at });
            }
        }
        None
    }

    fn forget(&mut self, key: Key, range: Range<u64>) {
        self.tables.retain(|table| {
            let end = table.at + table.rows.len() as u64 * 8;
            table.area.key != key || end <= range.start || range.end <= table.at
        });
    }

    /// Writes pointers where a kernel will look for them.
    pub(crate) fn put(&mut self, spot: Spot, words: &[u64]) -> Outcome {
        match spot.area.kind {
            AreaKind::Pinned(host, _) => {
                let to = (host as u64 + (spot.at - spot.area.at)) as *mut u64;
                self.put_on_host(spot.area.key, to, words)
            }
            AreaKind::Device | AreaKind::Global => self.put_on_device(spot.area.key, spot.at, words),
        }
    }

    fn put_on_host(&mut self, key: Key, to: *mut u64, words: &[u64]) -> Outcome {
        if self.has_kind("by-host-function") && self.dice.once_in(3) {
            // Not before the stream gets there.
            let stream = self.any_stream();
            self.order(stream, &[], &[key])?;
            return self.write_later(stream, to, words.to_vec());
        }
        self.settle(&[key])?;
        // SAFETY: pinned memory of the lane's own, which nothing uses any more.
        unsafe { to.copy_from_nonoverlapping(words.as_ptr(), words.len()) };
        Ok(())
    }

    /// Has a host function write to pinned memory.
    fn write_later(&mut self, stream: usize, to: *mut u64, words: Vec<u64>) -> Outcome {
        let write = Box::into_raw(Box::new(HostWrite { to, words }));
        self.gpu.driver.cuLaunchHostFunc(self.stream(stream), write_on_host, write as usize)
    }

    /// Writes words to the device's memory, by any way.
    pub(crate) fn put_on_device(&mut self, key: Key, at: u64, words: &[u64]) -> Outcome {
        let ways: Vec<&str> = WAYS.iter().copied().filter(|way| self.has_kind(way)).collect();
        let mut way = if ways.is_empty() { "by-pageable" } else { self.dice.of(&ways) };
        // A call for each word is for short ones only.
        if matches!(way, "by-words" | "by-fills") && words.len() > 8 {
            way = "by-pinned";
        }
        let (bytes, target, writes) = (words.len() * 8, End::Device(at), [key]);
        match way {
            "by-pageable" => {
                let mut source = words.to_vec();
                let from = End::Host(source.as_ptr() as u64);
                self.submit(Work::Copy(Copy::line(target, from, bytes)), &[], &writes)?;
                // It is the program's again at once.
                source.fill(0xDEAD_BEEF);
                std::hint::black_box(&source);
                Ok(())
            }
            "by-pinned" => {
                let from = self.penned(words)?;
                self.submit(Work::Copy(Copy::line(target, from, bytes)), &[], &writes)
            }
            "by-halves" => {
                // Cut in the middle of a pointer.
                let cut = 8 * self.dice.roll(words.len()) + 1 + self.dice.roll(7);
                let End::Host(from) = self.penned(words)? else { unreachable!("the pen is on the host") };
                let part = |start: usize, end: usize| {
                    let (to, from) = (End::Device(at + start as u64), End::Host(from + start as u64));
                    Work::Copy(Copy::line(to, from, end - start))
                };
                let mut parts = [part(0, cut), part(cut, bytes)];
                if self.dice.once_in(2) {
                    parts.reverse();
                }
                parts.into_iter().try_for_each(|part| self.submit(part, &[], &writes))
            }
            "by-device" => {
                let Some(between) = self.between(key, words)? else { return self.put_plainly(key, at, words) };
                let from = End::Device(between.at);
                self.submit(Work::Copy(Copy::line(target, from, bytes)), &[between.area.key], &writes)
            }
            "by-bounce" => {
                // The host memory's contents at the second call are not those that it will have.
                let Some(between) = self.between(key, words)? else { return self.put_plainly(key, at, words) };
                let pen = End::Host(self.pen(words.len())? as u64);
                let stream = self.any_stream();
                self.order(stream, &[between.area.key], &writes)?;
                self.run(stream, &Work::Copy(Copy::line(pen, End::Device(between.at), bytes)))?;
                self.run(stream, &Work::Copy(Copy::line(target, pen, bytes)))
            }
            "by-kernel" => {
                // A table of one row, which is the words; they move as if they were numbers.
                let Some(between) = self.between(key, words)? else { return self.put_plainly(key, at, words) };
                let other = |area: &Area| area.key != key && area.key != between.area.key;
                let Some(table) = self.spot(1, other) else { return self.put_plainly(key, at, words) };
                let (kernel, row) = if self.dice.once_in(2) {
                    (Kernel::new(c"gather").pointer(at).pointer(table.at), between.at)
                } else {
                    (Kernel::new(c"scatter_table").pointer(table.at).pointer(between.at), at)
                };
                self.put_simply(table, &[row])?;
                let work = Work::Kernel(kernel.number(1).number(words.len() * 2));
                self.submit(work, &[between.area.key, table.area.key], &writes)
            }
            "by-words" => {
                const WRITE_64: u32 = 5;
                let stream = self.any_stream();
                self.order(stream, &[], &writes)?;
                let place = |number: usize| at + number as u64 * 8;
                let handle = self.stream(stream);
                if self.dice.once_in(2) {
                    let each = words.iter().enumerate();
                    let write =
                        |(i, word): (_, &u64)| self.gpu.driver.cuStreamWriteValue64_v2(handle, place(i), *word, 0);
                    return each.into_iter().try_for_each(write);
                }
                let operation = |(i, word): (_, &u64)| WordOp {
                    operation: WRITE_64,
                    at: place(i),
                    value: *word,
                    flags: 0,
                    alias: 0,
                    pad: 0,
                };
                let mut operations: Vec<WordOp> = words.iter().enumerate().map(operation).collect();
                let (list, count) = (operations.as_mut_ptr(), operations.len() as u32);
                self.gpu.driver.cuStreamBatchMemOp_v2(handle, count, list, 0)
            }
            "by-fills" => {
                // Lower halves one by one, equal upper halves at once.
                let upper = (words[0] >> 32) as u32;
                let column = Fill { at: at + 4, pitch: 8, value: upper, element: 4, width: 1, height: words.len() };
                self.submit(Work::Fill(column), &[], &writes)?;
                for (i, word) in words.iter().enumerate() {
                    let place = at + i as u64 * 8;
                    self.submit(Work::Fill(Fill::line(place, 4, *word as u32, 1)), &[], &writes)?;
                    // Addresses differ from run to run, but what is rolled later must not.
                    let dice = self.dice.clone();
                    if (word >> 32) as u32 != upper {
                        self.submit(Work::Fill(Fill::line(place + 4, 4, (word >> 32) as u32, 1)), &[], &writes)?;
                    }
                    self.dice = dice;
                }
                Ok(())
            }
            "by-late" => {
                // The host memory gets them only when the stream comes to it, after the call that copies from it.
                let pen = self.pen(words.len())?;
                // SAFETY: room of that size in the pen, not used by anything else in this round.
                unsafe { pen.write_bytes(0, words.len()) };
                let stream = self.any_stream();
                self.order(stream, &[], &writes)?;
                self.write_later(stream, pen, words.to_vec())?;
                let line = Copy::line(target, End::Host(pen as u64), bytes);
                match stream {
                    DEFAULT => self.gpu.driver.cuMemcpyHtoDAsync_v2(at, pen as usize, bytes, 0),
                    _ => self.run(stream, &Work::Copy(line)),
                }
            }
            "by-rows" => {
                // Every third word of the host's.
                let mut spread = vec![0x1111_1111_1111_1111; words.len() * 3];
                spread.iter_mut().step_by(3).zip(words).for_each(|(to, word)| *to = *word);
                let from =
                    if self.dice.once_in(2) { self.penned(&spread)? } else { End::Host(self.keep(spread) as u64) };
                let height = words.len();
                let rows = Copy { to: target, from, width: 8, height, to_pitch: 8, from_pitch: 24 };
                self.submit(Work::Copy(rows), &[], &writes)
            }
            "by-graph" => {
                let from = self.penned(words)?;
                let stream = self.any_stream();
                self.order(stream, &[], &writes)?;
                self.copy_by_graph(&Copy::line(target, from, bytes), self.stream(stream))
            }
            _ => {
                let End::Host(from) = self.penned(words)? else { unreachable!("the pen is on the host") };
                let half = words.len() / 2 * 8;
                let part = |start: usize, end: usize| {
                    let (to, from) = (End::Device(at + start as u64), End::Host(from + start as u64));
                    Copy::line(to, from, end - start)
                };
                let lines = if half == 0 { vec![part(0, bytes)] } else { vec![part(half, bytes), part(0, half)] };
                let stream = 2 + self.dice.roll(self.stream_count() - 2);
                self.order(stream, &[], &writes)?;
                copy_batch(self.gpu, &lines, self.stream(stream))
            }
        }
    }

    /// By the plainest way; for pointers that another way needs.
    fn put_simply(&mut self, spot: Spot, words: &[u64]) -> Outcome {
        match spot.area.kind {
            AreaKind::Pinned(..) => self.put(spot, words),
            _ => self.put_plainly(spot.area.key, spot.at, words),
        }
    }

    fn put_plainly(&mut self, key: Key, at: u64, words: &[u64]) -> Outcome {
        let from = self.penned(words)?;
        self.submit(Work::Copy(Copy::line(End::Device(at), from, words.len() * 8)), &[], &[key])
    }

    /// Words in some other area of the device, from where they go on.
    fn between(&mut self, key: Key, words: &[u64]) -> Outcome<Option<Spot>> {
        let fits = |area: &Area| area.key != key && matches!(area.kind, AreaKind::Device | AreaKind::Global);
        let Some(spot) = self.spot(words.len(), fits) else { return Ok(None) };
        self.put_plainly(spot.area.key, spot.at, words)?;
        Ok(Some(spot))
    }

    /// Words in pinned memory.
    fn penned(&mut self, words: &[u64]) -> Outcome<End> {
        let pen = self.pen(words.len())?;
        // SAFETY: room of that size in the pen, not used by anything else in this round.
        unsafe { pen.copy_from_nonoverlapping(words.as_ptr(), words.len()) };
        Ok(End::Host(pen as u64))
    }

    /// A graph of one node that is gone as soon as it is launched.
    fn copy_by_graph(&mut self, line: &Copy, stream: Handle) -> Outcome {
        let driver = &self.gpu.driver;
        let [mut graph, mut node, mut exec] = [0; 3];
        driver.cuGraphCreate(&mut graph, 0)?;
        driver.cuGraphAddMemcpyNode(&mut node, graph, std::ptr::null(), 0, &line.solid(), self.gpu.context)?;
        driver.cuGraphInstantiateWithFlags(&mut exec, graph, 0)?;
        driver.cuGraphDestroy(graph)?;
        driver.cuGraphLaunch(exec, stream)?;
        driver.cuGraphExecDestroy(exec)
    }

    // --- rows

    /// Rows for a table and how many words each has room for; none of them is `not`.
    pub(crate) fn rows(&mut self, count: usize, written: bool, not: &[Key]) -> Vec<Public> {
        let mut fit: Vec<Public> = self.readable();
        fit.retain(|row| {
            let own = row.lane == self.index;
            !(own && not.contains(&row.piece.key)) && (!written || own && row.piece.parity == self.parity)
        });
        let mut rows = Vec::new();
        while rows.len() < count && !fit.is_empty() {
            let chosen = self.dice.roll(fit.len());
            rows.push(fit[chosen]);
            // Written memory must not be named twice; memory that is only read may.
            if written {
                fit.swap_remove(chosen);
            }
        }
        rows
    }

    /// Where rows of so many words begin, each somewhere in its piece.
    pub(crate) fn addresses(&mut self, rows: &[Public], row_words: usize) -> Vec<u64> {
        let place = |row: &Public, dice: &mut crate::dice::Dice| {
            row.piece.body() + 4 * dice.roll(row.piece.words() - row_words + 1) as u64
        };
        rows.iter().map(|row| place(row, &mut self.dice)).collect()
    }

    /// A length that all rows have, so that all of them together have at most `most` words.
    pub(crate) fn row_words(&mut self, rows: &[Public], most: usize) -> usize {
        let room = rows.iter().map(|row| row.piece.words()).min().unwrap_or(0);
        let high = room.min(most / rows.len().max(1)).min(1 << 16);
        if high == 0 { 0 } else { self.dice.size(1, high) }
    }

    /// A piece that can be written, with where in it `words` of them would fit.
    pub(crate) fn target(&mut self, words: usize, not: &[Key]) -> Option<(Piece, u64)> {
        let mut own = self.own_writable();
        own.retain(|piece| piece.words() >= words && !not.contains(&piece.key));
        if own.is_empty() {
            return None;
        }
        let piece = self.dice.of(&own);
        Some((piece, piece.body() + 4 * self.dice.roll(piece.words() - words + 1) as u64))
    }

    // --- steps

    /// Gathers rows by a new table, directly or by a table of tables.
    pub(crate) fn gather(&mut self, deep: bool) -> Outcome {
        let Some((out, _)) = self.target(4, &[]) else { return Ok(()) };
        let wanted = 1 + self.dice.roll(12);
        let rows = self.rows(wanted, false, &[out.key]);
        let row_words = self.row_words(&rows, out.words());
        if row_words == 0 {
            return Ok(());
        }
        let addresses = self.addresses(&rows, row_words);
        let spot = if deep { self.deep_table(&addresses)? } else { self.shallow_table(&addresses)? };
        let Some(spot) = spot else { return Ok(()) };
        let table = Table { area: spot.area, at: spot.at, rows, row_words };
        self.gather_by(&table, out)?;
        if self.dice.once_in(2) && self.tables.len() < 24 {
            self.tables.push(table);
        }
        Ok(())
    }

    fn shallow_table(&mut self, addresses: &[u64]) -> Outcome<Option<Spot>> {
        let Some(spot) = self.spot(addresses.len(), |_| true) else { return Ok(None) };
        self.put(spot, addresses)?;
        Ok(Some(spot))
    }

    /// A table that a kernel puts together from others, which it finds by a table.
    fn deep_table(&mut self, addresses: &[u64]) -> Outcome<Option<Spot>> {
        let spot = self.deep_table_holding(addresses);
        self.held.clear();
        match spot? {
            None => self.shallow_table(addresses),
            spot => Ok(spot),
        }
    }

    /// The same; holds the memory that must not be overwritten before it is used.
    fn deep_table_holding(&mut self, addresses: &[u64]) -> Outcome<Option<Spot>> {
        let per_part = 1 + self.dice.roll(addresses.len());
        let mut parts = Vec::new();
        for part in addresses.chunks_exact(per_part) {
            let Some(spot) = self.spot(per_part, |_| true) else { return Ok(None) };
            self.put(spot, part)?;
            self.held.push(spot.at..spot.at + per_part as u64 * 8);
            parts.push(spot);
        }
        let mut reads: Vec<Key> = parts.iter().map(|part| part.area.key).collect();
        let Some(index) = self.spot(parts.len(), |_| true) else { return Ok(None) };
        self.put(index, &parts.iter().map(|part| part.at).collect::<Vec<_>>())?;
        self.held.push(index.at..index.at + parts.len() as u64 * 8);
        reads.push(index.area.key);
        let is_other = |area: &Area| !matches!(area.kind, AreaKind::Pinned(..)) && !reads.contains(&area.key);
        let Some(spot) = self.spot(addresses.len(), is_other) else { return Ok(None) };
        let kernel = Kernel::new(c"gather").pointer(spot.at).pointer(index.at);
        let kernel = kernel.number(parts.len()).number(per_part * 2);
        self.submit(Work::Kernel(kernel), &reads, &[spot.area.key])?;
        // Those that filled no whole part.
        self.held.push(spot.at..spot.at + addresses.len() as u64 * 8);
        let copied = parts.len() * per_part;
        if copied < addresses.len() {
            self.put_on_device(spot.area.key, spot.at + copied as u64 * 8, &addresses[copied..])?;
        }
        Ok(Some(spot))
    }

    fn gather_by(&mut self, table: &Table, out: Piece) -> Outcome {
        let words = table.rows.len() * table.row_words;
        let at = out.body() + 4 * self.dice.roll(out.words() - words + 1) as u64;
        let kernel = Kernel::new(c"gather").pointer(at).pointer(table.at);
        let kernel = kernel.number(table.rows.len()).number(table.row_words);
        let mut reads = self.own_keys(&table.rows);
        reads.push(table.area.key);
        self.submit(Work::Kernel(kernel), &reads, &[out.key])
    }

    /// Uses a table that was left by an earlier step, perhaps rounds ago. Rows of it that are gone are not touched:
    /// the table is cut there.
    pub(crate) fn gather_again(&mut self) -> Outcome {
        if self.tables.is_empty() {
            return Ok(());
        }
        let chosen = self.dice.roll(self.tables.len());
        let mut table = self.tables[chosen].clone();
        let gone = table.rows.iter().position(|row| !self.is_readable(row));
        table.rows.truncate(gone.unwrap_or(table.rows.len()));
        let own = self.own_keys(&table.rows);
        let words = table.rows.len() * table.row_words;
        match self.target(words, &own) {
            Some((out, _)) if words > 0 => self.gather_by(&table, out),
            _ => Ok(()),
        }
    }

    /// Scatters a piece's words over rows that only a table names.
    pub(crate) fn scatter(&mut self) -> Outcome {
        let sources = self.readable();
        let source = self.dice.of(&sources);
        let own_source = self.own_keys(&[source]);
        let wanted = 1 + self.dice.roll(8);
        let rows = self.rows(wanted, true, &own_source);
        let row_words = self.row_words(&rows, source.piece.words());
        if row_words == 0 {
            return Ok(());
        }
        let addresses = self.addresses(&rows, row_words);
        let Some(spot) = self.shallow_table(&addresses)? else { return Ok(()) };
        let words = rows.len() * row_words;
        let from = source.piece.body() + 4 * self.dice.roll(source.piece.words() - words + 1) as u64;
        let kernel = Kernel::new(c"scatter_table").pointer(spot.at).pointer(from);
        let kernel = kernel.number(rows.len()).number(row_words);
        let mut reads = own_source;
        reads.push(spot.area.key);
        let writes = self.own_keys(&rows);
        self.submit(Work::Kernel(kernel), &reads, &writes)
    }

    /// Lays out a chain and walks it. It may go on into an older one.
    pub(crate) fn chase(&mut self) -> Outcome {
        let own = self.own_writable();
        let mut nodes: Vec<(Piece, usize)> = Vec::new();
        for _ in 0..1 + self.dice.roll(10) {
            let node = (self.dice.of(&own), self.dice.roll(NODES));
            if !nodes.iter().any(|(piece, place)| (piece.key, *place) == (node.0.key, node.1)) {
                nodes.push(node);
            }
        }
        let names: Vec<(Key, usize)> = nodes.iter().map(|(piece, place)| (piece.key, *place)).collect();
        let doomed = |chain: &Chain| chain.nodes.iter().any(|node| names.contains(node));
        self.drop_graphs_with_nodes(&names)?;
        self.chains.retain(|chain| !doomed(chain));
        let keys: Vec<Key> = self.pieces.iter().map(|piece| piece.key).collect();
        self.chains.retain(|chain| chain.nodes.iter().all(|node| keys.contains(&node.0)));
        let mut chain = if self.chains.is_empty() || self.dice.once_in(2) {
            Chain { nodes: Vec::new(), head: 0, sum: 0 }
        } else {
            self.chains[self.dice.roll(self.chains.len())].clone()
        };
        for (piece, place) in nodes {
            let at = piece.at + place as u64 * 16;
            let value = self.dice.next();
            self.put_on_device(piece.key, at, &[chain.head, value])?;
            chain.nodes.insert(0, (piece.key, place));
            (chain.head, chain.sum) = (at, chain.sum.wrapping_add(value));
        }
        self.walk(&chain)?;
        if self.chains.len() < 12 && chain.nodes.len() < 40 {
            self.chains.push(chain);
        }
        Ok(())
    }

    /// Walks a chain that is there already.
    pub(crate) fn chase_again(&mut self) -> Outcome {
        let keys: Vec<Key> = self.pieces.iter().map(|piece| piece.key).collect();
        self.chains.retain(|chain| chain.nodes.iter().all(|node| keys.contains(&node.0)));
        if self.chains.is_empty() {
            return Ok(());
        }
        let chain = self.chains[self.dice.roll(self.chains.len())].clone();
        self.walk(&chain)
    }

    fn walk(&mut self, chain: &Chain) -> Outcome {
        let Some((out, key)) = self.result_slot(chain.sum) else { return Ok(()) };
        let job = self.walk_job(chain, out, key);
        let stream = self.any_stream();
        self.submit_to(stream, &job)
    }

    /// The kernel that walks a chain to its end, or knows where that is.
    pub(crate) fn walk_job(&mut self, chain: &Chain, out: u64, key: Key) -> Job {
        let hops = chain.nodes.len() + self.dice.roll(2);
        let work = Work::Kernel(Kernel::new(c"chase").pointer(out).pointer(chain.head).number(hops));
        let mut reads: Vec<Key> = chain.nodes.iter().map(|node| node.0).collect();
        reads.sort_unstable();
        reads.dedup();
        Job { work, reads, writes: vec![key] }
    }
}

const _: () = assert!(HEAD == NODES * 16);
