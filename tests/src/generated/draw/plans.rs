//! Sequences of operations that would hardly ever come by chance: addresses that reach the device while memory is on its
//! way, and memory that is freed beside contexts that come and go.
//!
//! Still to come: kernels that find variables of their own module, parameters packed so that addresses lie at odd offsets, and
//! parameters that point before their allocation. `same_as_bare/legal.rs` has a program of each. Each is a [`Kind`] more, whose
//! memory is [made ready](Drawer::have_rows) as it is for tables.

use super::{Aspect, Drawer};
use crate::generated::program::*;
use crate::generated::script::{CopyBy, HostKind, WaitBy, WordsBy};

impl Drawer {
    pub(super) fn copy_by(&mut self) -> CopyBy {
        if self.has(Aspect::Words) && self.dice.percent(70) {
            use CopyBy::{Batch, Flat, Odd, Peer, Solid};
            return self.dice.of(&[Odd, Flat, Solid, Odd, Flat, Solid, Batch, Batch, Peer, Peer]);
        }
        self.dice.of(&[CopyBy::Kind, CopyBy::Kind, CopyBy::Plain])
    }

    pub(super) fn words(&mut self) -> Kind {
        let out = if self.dice.percent(30) { self.host() } else { self.mem() };
        let rows = if self.dice.percent(70) { self.byte() } else { 0 };
        Kind::Words { out, rows, seed: self.byte(), by: self.words_by() }
    }

    pub(super) fn words_by(&mut self) -> WordsBy {
        use WordsBy::{Batch, Fill, Halves, HostFunction, Wide};
        self.dice.of(&[Wide, Halves, Batch, Fill(4), Fill(2), Fill(1), HostFunction])
    }

    pub(super) fn wait_by(&mut self) -> WaitBy {
        use WaitBy::{Batch, HostFunction, Kernel, Value, Wide};
        if self.has(Aspect::Words) || self.has(Aspect::Late) {
            return self.dice.of(&[Value, Wide, Batch, Kernel, HostFunction]);
        }
        self.dice.of(&[Value, Value, Kernel, HostFunction])
    }

    /// Addresses come to be where a kernel looks for them, one way or another, mostly while memory is on its way.
    pub(super) fn addresses(&mut self, late: bool) {
        // Another order of the slots each time: the table, what is computed, and rows.
        let first = self.dice.slot(MEMS);
        let (table, out) = (first, (first + 1 + self.dice.slot(MEMS - 1)) % MEMS);
        let (host, on, flag) = (self.dice.slot(HOSTS), self.stream(), self.dice.slot(FIRST_DEVICE_FLAG));
        let rows = self.byte() & self.byte() & !(1 << table | 1 << out);
        let (seed, by) = (self.byte(), self.wait_by());
        let work = |kind| What::Work { on, kind, times: 1 };
        let is_direct = self.dice.percent(30);
        let table = if is_direct { Spot::Host(host) } else { Spot::Mem(table) };
        let carry = Kind::Copy { to: table, from: Spot::Host(host), by: self.copy_by() };
        let mem = Spot::Mem(out);
        let read = match self.dice.percent(75) {
            true => Kind::Gather { out: mem, table },
            false => Kind::Scatter { table, from: mem },
        };
        // The operations that make the table, and those that release it.
        let (make, release) = match late {
            true => (vec![What::Late { on, host, rows, seed, flag, by }], vec![What::Release { flag }]),
            false => {
                let by = self.words_by();
                let is_there = matches!(by, WordsBy::HostFunction) || (is_direct && !matches!(by, WordsBy::Fill(_)));
                let out = if is_there { Spot::Host(host) } else { table };
                (vec![work(Kind::Words { out, rows, seed, by })], Vec::new())
            }
        };
        let carries =
            !is_direct && (late || matches!(make[0], What::Work { kind: Kind::Words { out: Spot::Host(_), .. }, .. }));
        let kinds: Vec<Kind> = if carries { vec![carry, read] } else { vec![read] };
        self.have_rows(on, rows, [first, out]);
        if late || self.dice.percent(50) {
            let mut kind = self.dice.of(&[HostKind::Pinned, HostKind::Pinned, HostKind::Registered]);
            if self.has(Aspect::Managed) && self.dice.percent(40) {
                kind = HostKind::Managed;
            }
            let size = if self.dice.percent(10) { HOST_SIZES.len() as u8 - 1 } else { self.dice.slot(3) };
            let context = match on.stream {
                Where::Made(_) => 0,
                Where::Legacy(context) | Where::PerThread(context) => context,
            };
            self.next.push_back(What::HostAlloc { host, context, size, kind });
        }
        self.next.push_back(What::Rest { idle: true });
        self.next.extend(make.clone());
        self.next.extend(kinds.iter().map(|kind| work(*kind)));
        if self.dice.percent(30) {
            self.next.push_back(What::Sleep { milliseconds: 1 + self.dice.slot(6) });
        }
        self.next.extend(release.clone());
        if self.dice.percent(40) {
            self.as_a_graph(on, &make, &kinds, &release);
        }
    }

    pub(super) fn link(&mut self) -> Kind {
        let next = if self.dice.percent(75) { Some(self.dice.slot(MEMS)) } else { None };
        Kind::Link { out: self.spot(), next, seed: self.byte(), by: self.words_by() }
    }

    /// A way to write words into device memory.
    pub(super) fn words_by_device(&mut self) -> WordsBy {
        use WordsBy::{Batch, Fill, Halves, Wide};
        self.dice.of(&[Wide, Halves, Batch, Fill(4), Fill(2), Fill(1)])
    }

    /// A chain through memory that is moved one by one, followed while that is on its way.
    pub(super) fn chain(&mut self) {
        let (first, on) = (self.dice.slot(MEMS), self.stream());
        let out = (first + 1) % MEMS;
        let nodes: Vec<u8> = (2..3 + self.dice.slot(3)).map(|step| (first + step) % MEMS).collect();
        let rows = nodes.iter().fold(0, |rows, node| rows | 1 << node);
        self.have_rows(on, rows, [first, out]);
        let mut next = None;
        for mem in nodes.into_iter().chain([first]) {
            let kind = Kind::Link { out: Spot::Mem(mem), next, seed: self.byte(), by: self.words_by_device() };
            self.next.push_back(What::Work { on, kind, times: 1 });
            next = Some(mem);
        }
        let chase = Kind::Chase { out: Spot::Mem(out), from: Spot::Mem(first) };
        self.next.extend([What::Rest { idle: true }, What::Work { on, kind: chase, times: 1 }]);
        if self.dice.percent(40) {
            self.as_a_graph(on, &[], &[chase], &[]);
        }
    }

    /// A kernel puts a table together from another one, which it finds by a table; and another kernel follows it.
    pub(super) fn table_of_tables(&mut self) {
        let (first, on) = (self.dice.slot(MEMS), self.stream());
        let [table, tables, made, out, one, other] = [0, 1, 2, 3, 4, 5].map(|step| (first + step) % MEMS);
        let rows = 1 << one | if self.dice.percent(50) { 1 << other } else { 0 };
        self.have_rows(on, rows, [table, out]);
        self.have_rows(on, 0, [tables, made]);
        // One of them has its row at its end, where no table is.
        for mem in [tables, made] {
            self.next.push_back(What::Work { on, kind: Kind::Hash { out: Spot::Mem(mem), seed: mem }, times: 1 });
        }
        let by = [self.words_by_device(), self.words_by_device()];
        let (seed, spot) = (self.byte(), Spot::Mem);
        let kinds = [
            Kind::Words { out: spot(table), rows, seed, by: by[0] },
            Kind::Words { out: spot(tables), rows: 1 << table, seed, by: by[1] },
            Kind::Gather { out: spot(made), table: spot(tables) },
            Kind::Gather { out: spot(out), table: spot(made) },
        ];
        let at = self.dice.below(kinds.len());
        for (number, kind) in kinds.into_iter().enumerate() {
            if number == at || self.dice.percent(25) {
                self.next.push_back(What::Rest { idle: true });
            }
            self.next.push_back(What::Work { on, kind, times: 1 });
        }
        if self.dice.percent(40) {
            self.as_a_graph(on, &[], &kinds[2..], &[]);
        }
    }

    /// Memory is freed while the device has still to use it, a few times. It is so large that it is given back at once.
    pub(super) fn frees_beside_churn(&mut self) {
        let (stream, non_blocking) = (self.dice.slot(STREAMS), self.dice.percent(60));
        self.next.push_back(What::StreamCreate { stream, context: 0, non_blocking });
        let on = To { stream: Where::Made(stream), twin: false };
        for _ in 0..3 {
            let (mem, flag, by) = (self.dice.slot(MEMS), self.dice.slot(FIRST_DEVICE_FLAG), self.wait_by());
            let work = Kind::Hash { out: Spot::Mem(mem), seed: self.byte() };
            let free = if self.dice.percent(30) { What::Free { mem } } else { What::FreeAsync { mem, on } };
            self.next.push_back(What::Alloc { mem, context: 0, size: ROW_SIZE, on });
            self.next.extend([What::Wait { on, flag, by }, What::Work { on, kind: work, times: 1 }, free]);
            let milliseconds = 1 + self.dice.slot(3);
            self.next.extend([What::Sleep { milliseconds }, What::Release { flag }]);
        }
    }

    /// Memory in these slots that there is none in yet, the last two small, and with contents that can be computed with.
    fn have_rows(&mut self, on: To, rows: u8, [table, out]: [u8; 2]) {
        if let Where::Made(stream) = on.stream {
            self.next.push_back(What::StreamCreate { stream, context: 0, non_blocking: self.dice.percent(60) });
        }
        let context = match on.stream {
            Where::Made(_) => 0,
            Where::Legacy(context) | Where::PerThread(context) => context,
        };
        for mem in (0..MEMS).filter(|mem| rows & 1 << mem != 0 || [table, out].contains(mem)) {
            let size = if rows & 1 << mem != 0 { ROW_SIZE } else { self.dice.slot(3) };
            self.next.push_back(What::Alloc { mem, context, size, on });
            if mem != table {
                let (kind, times) = (Kind::Hash { out: Spot::Mem(mem), seed: self.byte() }, 1);
                self.next.push_back(What::Work { on, kind, times });
            }
        }
    }

    /// The same work once more, as a graph that is launched again and again.
    fn as_a_graph(&mut self, on: To, make: &[What], kinds: &[Kind], release: &[What]) {
        let (graph, exec) = (self.dice.slot(GRAPHS), self.dice.slot(EXECS));
        let mut nodes = kinds.to_vec();
        let mut before = make.to_vec();
        // A stream's write can be a node too.
        if let [What::Work { kind, .. }] = make {
            nodes.insert(0, *kind);
            before.clear();
        }
        if self.dice.percent(50) {
            self.next.push_back(What::Build { graph, child: None, kinds: nodes });
        } else {
            self.next.push_back(What::BeginCapture { on, mode: 2 });
            self.next.extend(nodes.iter().map(|kind| What::Work { on, kind: *kind, times: 1 }));
            self.next.push_back(What::EndCapture { on, graph });
        }
        self.next.push_back(What::Instantiate { exec, graph });
        for _ in 0..2 + self.dice.below(2) {
            self.next.push_back(What::Rest { idle: true });
            self.next.extend(before.iter().cloned());
            self.next.push_back(What::Launch { exec, on });
            self.next.extend(release.iter().cloned());
        }
    }

    pub(super) fn on_the_other_gpu(&mut self, branch: usize) -> What {
        let on = To { stream: Where::PerThread(2), twin: true };
        match branch {
            40..65 => What::Wait { on, flag: self.dice.slot(FIRST_DEVICE_FLAG), by: WaitBy::Value },
            65..85 => What::Alloc { mem: self.dice.slot(MEMS), context: 2, size: self.dice.slot(4), on },
            _ => What::ContextSynchronize { context: 2 },
        }
    }
}
