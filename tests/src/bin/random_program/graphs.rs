//! Graphs that a lane keeps: built node by node or captured, launched over and over, and updated between launches.
//!
//! Some begin by copying a table from pinned memory, which the host points to other rows between launches.

use std::ptr::null;

use crate::lane::{Area, Lane, Pinned, Public};
use crate::pointers::Chain;
use crate::work::{Copy, End, Fill, Job, Kernel, Key, Work, with_kernel_node};
use baton_tests::driver::{Handle, Instantiation, Outcome, UpdateTold};

/// A node's work; its memory is decided anew at every update.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Item {
    Hash,
    Fill,
    Copy,
    /// Copies a table from pinned memory to the device.
    Upload(usize),
    Gather(usize),
    Scatter(usize),
    Axpy,
    AddStruct,
    Sum,
    Chase,
}

/// A table of a graph's own: rows that its kernels find in the device's memory.
struct Rows {
    on_device: Area,
    on_host: Area,
    rows: Vec<Public>,
    row_words: usize,
    /// Pieces that cannot be rows, as the kernel uses them otherwise.
    not: Vec<Key>,
    written: bool,
}

/// A graph that is ready to run.
pub(crate) struct Program {
    exec: Handle,
    /// The graph that it was made from, and that one's nodes, if single ones can be updated.
    graph: Handle,
    nodes: Vec<Handle>,
    items: Vec<Item>,
    jobs: Vec<Job>,
    /// Captured: the streams of the jobs.
    sides: Option<Vec<bool>>,
    /// The parity of what it writes.
    parity: usize,
    tables: Vec<Rows>,
    /// A sum and the end of a walk.
    numbers: Area,
    chain: Option<Chain>,
}

impl Program {
    /// The lane's own memory that a launch reads and writes.
    fn uses(&self, lane: &Lane) -> (Vec<Key>, Vec<Key>) {
        let mut reads: Vec<Key> = self.jobs.iter().flat_map(|job| job.reads.iter().copied()).collect();
        let mut writes: Vec<Key> = self.jobs.iter().flat_map(|job| job.writes.iter().copied()).collect();
        for table in &self.tables {
            let rows = lane.own_keys(&table.rows);
            if table.written { writes.extend(rows) } else { reads.extend(rows) }
        }
        for keys in [&mut reads, &mut writes] {
            keys.sort_unstable();
            keys.dedup();
        }
        (reads, writes)
    }
}

const MOST: usize = 4;
/// Bytes of a large table.
const LARGE: usize = 2 << 20;
/// Streams that captures are made in.
const SIDES: [usize; 2] = [4, 5];

impl Lane<'_> {
    /// Makes a graph, launches, updates or ends one.
    pub(crate) fn graph_step(&mut self) -> Outcome {
        let current: Vec<usize> =
            (0..self.graphs.len()).filter(|number| self.graphs[*number].parity == self.parity).collect();
        if current.is_empty() || (self.graphs.len() < MOST && self.dice.once_in(4)) {
            return self.new_graph();
        }
        let mut program = self.graphs.swap_remove(self.dice.of(&current));
        match self.dice.roll(8) {
            0 => return self.end_program(program),
            1..=3 => self.update(&mut program)?,
            _ => {}
        }
        for _ in 0..1 + self.dice.roll(3) {
            self.point_elsewhere(&mut program)?;
            self.launch_graph(&program)?;
        }
        self.graphs.push(program);
        Ok(())
    }

    fn new_graph(&mut self) -> Outcome {
        let parity = self.parity;
        let numbers = self.new_area(512)?;
        let chains: Vec<Chain> = self.chains.clone();
        let keys: Vec<Key> = self.pieces.iter().map(|piece| piece.key).collect();
        let mut chain = if chains.is_empty() { None } else { Some(chains[self.dice.roll(chains.len())].clone()) };
        chain = chain.filter(|chain| chain.nodes.iter().all(|node| keys.contains(&node.0)));
        self.submit(Work::Fill(Fill::line(numbers.at, 1, 0, 512)), &[], &[numbers.key])?;
        let mut program = Program {
            exec: 0,
            graph: 0,
            nodes: Vec::new(),
            items: Vec::new(),
            jobs: Vec::new(),
            sides: None,
            parity,
            tables: Vec::new(),
            numbers,
            chain,
        };
        for _ in 0..2 + self.dice.roll(6) {
            self.add_item(&mut program)?;
        }
        if program.jobs.is_empty() {
            return self.end_program(program);
        }
        if self.dice.once_in(2) {
            program.sides = Some(program.jobs.iter().map(|_| self.dice.once_in(3)).collect());
        }
        let (graph, nodes) = self.record(&program)?;
        self.make_ready(&mut program, graph, nodes)?;
        self.launch_graph(&program)?;
        self.graphs.push(program);
        Ok(())
    }

    /// One more thing to do, by chance; nothing if there is no memory that it fits to.
    fn add_item(&mut self, program: &mut Program) -> Outcome {
        let item = match self.dice.roll(10) {
            0 => Item::Hash,
            1 => Item::Fill,
            2 => Item::Copy,
            3 => Item::Axpy,
            4 => Item::AddStruct,
            5 => Item::Sum,
            6 if program.chain.is_some() => Item::Chase,
            number => return self.add_table(program, number % 2 == 1),
        };
        if let Some(job) = self.job(program, item) {
            program.items.push(item);
            program.jobs.push(job);
        }
        Ok(())
    }

    /// A kernel that finds its rows by a table, and perhaps the copy that brings the table.
    fn add_table(&mut self, program: &mut Program, written: bool) -> Outcome {
        let Some((other, _)) = self.target(8, &[]) else { return Ok(()) };
        let wanted = 1 + self.dice.roll(8);
        let rows = self.own_rows(wanted, written, &[other.key]);
        let row_words = self.row_words(&rows, other.words());
        if row_words == 0 {
            return Ok(());
        }
        // Now and then a large one, which has an extent to itself; but not many of them.
        let all = self.graphs.iter().flat_map(|graph| &graph.tables).chain(&program.tables);
        let has_large = all.into_iter().any(|table| table.on_device.bytes == LARGE);
        let bytes = if self.dice.once_in(6) && !has_large { LARGE } else { 512 };
        let on_device = self.new_area(bytes)?;
        let on_host = self.pinned_area(4096, Pinned::Allocated)?;
        let addresses = self.addresses(&rows, row_words);
        self.put(crate::pointers::Spot { area: on_host, at: on_host.at }, &addresses)?;
        let number = program.tables.len();
        program.tables.push(Rows { on_device, on_host, rows, row_words, not: vec![other.key], written });
        let item = if written { Item::Scatter(number) } else { Item::Gather(number) };
        for item in [Item::Upload(number), item] {
            let job = self.job(program, item).expect("it fits the piece that was chosen");
            program.items.push(item);
            program.jobs.push(job);
        }
        Ok(())
    }

    /// Rows of the lane's own: others' may be gone by the next launch.
    fn own_rows(&mut self, count: usize, written: bool, not: &[Key]) -> Vec<Public> {
        let mut rows = self.rows(count, written, not);
        rows.retain(|row| row.lane == self.index);
        rows
    }

    /// The work of an item this time. `None`: no memory fits.
    fn job(&mut self, program: &mut Program, item: Item) -> Option<Job> {
        let rolled = 1 + self.dice.roll(64);
        let words = self.dice.size(rolled, 1 << 15);
        let kernel = |kernel: Kernel| Work::Kernel(kernel);
        match item {
            Item::Hash => {
                let (out, at) = self.target(words, &[])?;
                let work =
                    kernel(Kernel::new(c"fill_hash").pointer(at).number(self.dice.next() as usize).number(words));
                Some(Job { work, reads: vec![], writes: vec![out.key] })
            }
            Item::Fill => {
                let (out, at) = self.target(words, &[])?;
                let work = Work::Fill(Fill::line(at, 1 << self.dice.roll(3), self.dice.next() as u32, words));
                Some(Job { work, reads: vec![], writes: vec![out.key] })
            }
            Item::Copy | Item::Axpy | Item::Sum => {
                let (out, at) = self.target(words, &[])?;
                let source = self.own_rows(1, false, &[out.key]);
                let source = source.into_iter().find(|source| source.piece.words() >= words)?;
                let from = source.piece.body() + 4 * self.dice.roll(source.piece.words() - words + 1) as u64;
                let (reads, writes) = (vec![source.piece.key], vec![out.key]);
                match item {
                    Item::Copy => {
                        let work = Work::Copy(Copy::line(End::Device(at), End::Device(from), words * 4));
                        Some(Job { work, reads, writes })
                    }
                    Item::Axpy => {
                        let axpy = Kernel::new(c"axpy").pointer(at).pointer(from).float(-0.5).number(words);
                        Some(Job { work: kernel(axpy), reads, writes })
                    }
                    _ => {
                        let sum = Kernel::new(c"sum_u32").pointer(program.numbers.at).pointer(from).number(words);
                        Some(Job { work: kernel(sum), reads, writes: vec![program.numbers.key] })
                    }
                }
            }
            Item::AddStruct => {
                let (out, at) = self.target(words, &[])?;
                let mut sources = self.own_rows(2, false, &[out.key]);
                sources.retain(|source| source.piece.words() >= words);
                let [a, b] = sources[..] else { return None };
                // The words after the count are padding, which may hold anything.
                let count = words as u64 | (self.dice.next() << 32);
                let block = [at, a.piece.body(), b.piece.body(), count];
                let work = kernel(Kernel::new(c"add_struct").block(&block));
                Some(Job { work, reads: self.own_keys(&sources), writes: vec![out.key] })
            }
            Item::Chase => {
                let chain = program.chain.clone()?;
                Some(self.walk_job(&chain, program.numbers.at + 8, program.numbers.key))
            }
            Item::Upload(table) => {
                let table = &program.tables[table];
                let crate::lane::AreaKind::Pinned(host, _) = table.on_host.kind else { return None };
                let line = Copy::line(End::Device(table.on_device.at), End::Host(host as u64), table.rows.len() * 8);
                Some(Job { work: Work::Copy(line), reads: vec![table.on_host.key], writes: vec![table.on_device.key] })
            }
            Item::Gather(table) | Item::Scatter(table) => {
                let rows = &program.tables[table];
                let (words, row_keys) = (rows.rows.len() * rows.row_words, self.own_keys(&rows.rows));
                let known = rows.not.clone();
                // The piece that was chosen first fits in any case.
                let others: Vec<Key> =
                    self.pieces.iter().map(|piece| piece.key).filter(|key| !known.contains(key)).collect();
                let (other, at) = match self.target(words, &row_keys) {
                    Some(found) if self.dice.once_in(2) => found,
                    _ => self.target(words, &others)?,
                };
                let rows = &mut program.tables[table];
                rows.not = vec![other.key];
                let (count, row_words, table_at) = (rows.rows.len(), rows.row_words, rows.on_device.at);
                let table_key = rows.on_device.key;
                if rows.written {
                    let scatter = Kernel::new(c"scatter_table").pointer(table_at).pointer(at);
                    let work = kernel(scatter.number(count).number(row_words));
                    Some(Job { work, reads: vec![table_key, other.key], writes: vec![] })
                } else {
                    let gather = Kernel::new(c"gather").pointer(at).pointer(table_at);
                    let work = kernel(gather.number(count).number(row_words));
                    Some(Job { work, reads: vec![table_key], writes: vec![other.key] })
                }
            }
        }
    }

    /// Makes a graph of jobs, one after the other. The nodes are known only if it was not captured.
    fn record(&mut self, program: &Program) -> Outcome<(Handle, Vec<Handle>)> {
        match &program.sides {
            Some(sides) => Ok((self.capture(&program.jobs, sides)?, Vec::new())),
            None => self.build(&program.jobs),
        }
    }

    fn build(&mut self, jobs: &[Job]) -> Outcome<(Handle, Vec<Handle>)> {
        let (gpu, driver) = (self.gpu, &self.gpu.driver);
        let mut graph = 0;
        driver.cuGraphCreate(&mut graph, 0)?;
        let mut nodes: Vec<Handle> = Vec::new();
        for job in jobs {
            let mut node = 0;
            let before = if nodes.is_empty() { &nodes[..] } else { &nodes[nodes.len() - 1..] };
            let (after, count) = if before.is_empty() { (null(), 0) } else { (before.as_ptr(), 1) };
            match &job.work {
                Work::Kernel(kernel) => with_kernel_node(gpu, &self.code, &mut self.dice, kernel, |block| {
                    driver.cuGraphAddKernelNode_v2(&mut node, graph, after, count, block)
                })?,
                Work::Copy(copy) => {
                    driver.cuGraphAddMemcpyNode(&mut node, graph, after, count, &copy.solid(), gpu.context)?;
                }
                Work::Fill(fill) => {
                    driver.cuGraphAddMemsetNode(&mut node, graph, after, count, &fill.node(), gpu.context)?;
                }
            }
            nodes.push(node);
        }
        Ok((graph, nodes))
    }

    /// Records jobs in two streams, in the order of their list.
    fn capture(&mut self, jobs: &[Job], sides: &[bool]) -> Outcome<Handle> {
        let driver = &self.gpu.driver;
        let [main, side] = SIDES.map(|stream| self.stream(stream));
        let [main_event, side_event] = SIDES.map(|stream| self.event(stream));
        const THREAD_LOCAL: u32 = 1;
        driver.cuStreamBeginCapture_v2(main, THREAD_LOCAL + self.dice.roll(2) as u32)?;
        let mut was_aside = false;
        for (job, aside) in jobs.iter().zip(sides) {
            match (was_aside, *aside) {
                (false, true) => {
                    driver.cuEventRecord(main_event, main)?;
                    driver.cuStreamWaitEvent(side, main_event, 0)?;
                }
                (true, false) => {
                    driver.cuEventRecord(side_event, side)?;
                    driver.cuStreamWaitEvent(main, side_event, 0)?;
                }
                _ => {}
            }
            was_aside = *aside;
            self.run(SIDES[usize::from(was_aside)], &job.work)?;
        }
        if sides.contains(&true) {
            driver.cuEventRecord(side_event, side)?;
            driver.cuStreamWaitEvent(main, side_event, 0)?;
        }
        let mut graph = 0;
        driver.cuStreamEndCapture(main, &mut graph)?;
        Ok(graph)
    }

    /// Instantiates a graph in any of the ways there are.
    fn make_ready(&mut self, program: &mut Program, graph: Handle, nodes: Vec<Handle>) -> Outcome {
        let driver = &self.gpu.driver;
        let exec = &mut program.exec;
        match self.dice.roll(5) {
            0 => {
                let mut other = 0;
                driver.cuGraphClone(&mut other, graph)?;
                driver.cuGraphInstantiateWithFlags(exec, other, 0)?;
                driver.cuGraphDestroy(other)?;
                driver.cuGraphDestroy(graph)
            }
            1 => {
                let [mut parent, mut node] = [0; 2];
                driver.cuGraphCreate(&mut parent, 0)?;
                driver.cuGraphAddChildGraphNode(&mut node, parent, null(), 0, graph)?;
                driver.cuGraphInstantiateWithFlags(exec, parent, 0)?;
                driver.cuGraphDestroy(parent)?;
                driver.cuGraphDestroy(graph)?;
                // It has another shape than what is recorded.
                program.sides = None;
                program.items.clear();
                Ok(())
            }
            2 => {
                const UPLOAD: u64 = 2;
                let upload_stream = self.streams_for_upload();
                let mut parameters = Instantiation { flags: UPLOAD, upload_stream, error_node: 0, result: 0 };
                self.gpu.driver.cuGraphInstantiateWithParams(&mut program.exec, graph, &mut parameters)?;
                (program.graph, program.nodes) = (graph, nodes);
                Ok(())
            }
            _ => {
                driver.cuGraphInstantiateWithFlags(exec, graph, 0)?;
                (program.graph, program.nodes) = (graph, nodes);
                Ok(())
            }
        }
    }

    fn streams_for_upload(&mut self) -> Handle {
        let stream = 2 + self.dice.roll(self.stream_count() - 2);
        self.stream(stream)
    }

    fn launch_graph(&mut self, program: &Program) -> Outcome {
        let (reads, writes) = program.uses(self);
        let stream = self.any_stream();
        self.order(stream, &reads, &writes)?;
        let handle = self.stream(stream);
        if self.dice.once_in(6) {
            self.gpu.driver.cuGraphUpload(program.exec, handle)?;
        }
        self.gpu.driver.cuGraphLaunch(program.exec, handle)?;
        // A walk's end is looked at like that of others.
        let walks = program.items.contains(&Item::Chase);
        if let Some(chain) = program.chain.as_ref().filter(|_| walks)
            && let Some((slot, key)) = self.result_slot(chain.sum)
        {
            let line = Copy::line(End::Device(slot), End::Device(program.numbers.at + 8), 8);
            self.submit(Work::Copy(line), &[program.numbers.key], &[key])?;
        }
        Ok(())
    }

    /// Points the tables of a graph to other rows, as the host does it.
    fn point_elsewhere(&mut self, program: &mut Program) -> Outcome {
        for number in 0..program.tables.len() {
            let table = &program.tables[number];
            if !self.dice.once_in(2) {
                continue;
            }
            let (count, row_words, written) = (table.rows.len(), table.row_words, table.written);
            let (not, area) = (table.not.clone(), table.on_host);
            let mut rows = self.own_rows(3 * count, written, &not);
            rows.retain(|row| row.piece.words() >= row_words);
            rows.truncate(count);
            if rows.len() == count {
                let addresses = self.addresses(&rows, row_words);
                self.put(crate::pointers::Spot { area, at: area.at }, &addresses)?;
                program.tables[number].rows = rows;
            }
        }
        Ok(())
    }

    /// Gives single nodes, or all of them, something else to work on.
    fn update(&mut self, program: &mut Program) -> Outcome {
        if program.items.is_empty() {
            return Ok(());
        }
        let driver = &self.gpu.driver;
        if program.nodes.is_empty() || self.dice.once_in(3) {
            for number in 0..program.items.len() {
                let item = program.items[number];
                if let Some(job) = self.job(program, item) {
                    program.jobs[number] = job;
                }
            }
            let (graph, _) = self.record(program)?;
            let mut told = UpdateTold { result: 0, node: 0, from: 0 };
            driver.cuGraphExecUpdate_v2(program.exec, graph, &mut told)?;
            return driver.cuGraphDestroy(graph);
        }
        for _ in 0..1 + self.dice.roll(3) {
            let number = self.dice.roll(program.items.len());
            let (item, node) = (program.items[number], program.nodes[number]);
            // A node that is left out comes back; no other node needs one that is left out.
            if matches!(item, Item::Hash | Item::Fill | Item::Axpy) && self.dice.once_in(3) {
                let enabled = self.dice.roll(2) as u32;
                driver.cuGraphNodeSetEnabled(program.exec, node, enabled)?;
                continue;
            }
            let Some(job) = self.job(program, item) else { continue };
            match &job.work {
                Work::Kernel(kernel) => with_kernel_node(self.gpu, &self.code, &mut self.dice, kernel, |block| {
                    driver.cuGraphExecKernelNodeSetParams_v2(program.exec, node, block)
                })?,
                Work::Copy(copy) => {
                    let block = copy.solid();
                    driver.cuGraphExecMemcpyNodeSetParams(program.exec, node, &block, self.gpu.context)?;
                }
                Work::Fill(fill) => {
                    driver.cuGraphExecMemsetNodeSetParams(program.exec, node, &fill.node(), self.gpu.context)?;
                }
            }
            program.jobs[number] = job;
        }
        Ok(())
    }

    /// Ends a graph, perhaps while it runs, and gives back its memory.
    pub(crate) fn end_program(&mut self, program: Program) -> Outcome {
        let driver = &self.gpu.driver;
        if program.exec != 0 {
            driver.cuGraphExecDestroy(program.exec)?;
        }
        if program.graph != 0 {
            driver.cuGraphDestroy(program.graph)?;
        }
        let mut areas = vec![program.numbers];
        areas.extend(program.tables.iter().flat_map(|table| [table.on_device, table.on_host]));
        self.settle(&areas.iter().map(|area| area.key).collect::<Vec<_>>())?;
        areas.into_iter().try_for_each(|area| self.free_area(area))
    }

    /// Ends the graphs that use a piece.
    pub(crate) fn drop_graphs_with(&mut self, key: Key) -> Outcome {
        self.drop_graphs(|lane, program| {
            let (reads, writes) = program.uses(lane);
            reads.contains(&key) || writes.contains(&key)
        })
    }

    /// Ends the graphs that walk over any of some nodes.
    pub(crate) fn drop_graphs_with_nodes(&mut self, nodes: &[(Key, usize)]) -> Outcome {
        self.drop_graphs(|_, program| {
            let chain = program.chain.iter().flat_map(|chain| &chain.nodes);
            chain.into_iter().any(|node| nodes.contains(node))
        })
    }

    fn drop_graphs(&mut self, doomed: impl Fn(&Self, &Program) -> bool) -> Outcome {
        for number in (0..self.graphs.len()).rev() {
            if doomed(self, &self.graphs[number]) {
                let program = self.graphs.swap_remove(number);
                self.end_program(program)?;
            }
        }
        Ok(())
    }
}
