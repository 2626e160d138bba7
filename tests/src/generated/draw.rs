//! Programs by chance.
//!
//! Each draws some *aspects* of the interface at first and leaves out the others: an aspect that always comes with all others has
//! few chances to come in an order of its own.

mod plans;

use std::collections::VecDeque;

use super::dice::Dice;
use super::model::Model;
use super::program::*;
use super::script::{Churn, CopyBy, HostKind, LAUNCHES, PoolFigure, PoolSetting, Question, TOUCHES};

/// A part of the interface that a program may do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aspect {
    /// Streams that wait for flags.
    Waits,
    /// Memory that is freed.
    Frees,
    /// The same in a stream's order.
    FreesInStreams,
    /// Memory of handles that the program maps itself.
    Mappings,
    /// Captures.
    Captures,
    /// Graphs that are built, launched and changed.
    Graphs,
    /// Host memory of all kinds.
    Host,
    /// Addresses in memory.
    Tables,
    /// The legacy default stream.
    Legacy,
    /// Default streams of threads.
    PerThread,
    /// Streams that are destroyed.
    StreamsGo,
    /// Streams and events that are waited for on the host.
    Waiting,
    /// Questions whether streams and events are over, where the answer is certain.
    Queries,
    /// A context that comes and goes.
    Contexts,
    /// Calls that wait for what they do.
    Synchronous,
    /// Many launches in a row.
    Many,
    /// Children.
    Forks,
    /// Few descriptors.
    Descriptors,
    /// Questions about memory.
    Questions,
    /// Memory of pools, in a stream's order.
    Pools,
    /// Host memory that is written when work which reads it is queued already.
    Late,
    /// Words and addresses that streams write, and copies that cut them.
    Words,
    /// Contexts, code and memory that come and go beside everything else.
    Churn,
    /// Children that make calls.
    Touches,
    /// Code that is loaded and unloaded.
    Modules,
    /// Another GPU.
    Gpus,
    /// Chains of addresses, and tables of tables.
    Chains,
    /// Kernels launched by any of the calls that do.
    Launches,
    /// Memory that is a variable of code.
    Variables,
    /// Managed memory.
    Managed,
}

/// All aspects, and how many programs of a hundred have each.
pub const ASPECTS: [(Aspect, usize); 30] = [
    (Aspect::Waits, 60),
    (Aspect::Frees, 60),
    (Aspect::FreesInStreams, 40),
    (Aspect::Mappings, 40),
    (Aspect::Captures, 55),
    (Aspect::Graphs, 45),
    (Aspect::Host, 60),
    (Aspect::Tables, 40),
    (Aspect::Legacy, 35),
    (Aspect::PerThread, 50),
    (Aspect::StreamsGo, 45),
    (Aspect::Waiting, 75),
    (Aspect::Queries, 25),
    (Aspect::Contexts, 15),
    (Aspect::Synchronous, 40),
    (Aspect::Many, 35),
    (Aspect::Forks, 15),
    (Aspect::Descriptors, 12),
    (Aspect::Questions, 6),
    (Aspect::Pools, 40),
    (Aspect::Late, 30),
    (Aspect::Words, 30),
    (Aspect::Churn, 20),
    (Aspect::Touches, 12),
    (Aspect::Modules, 15),
    (Aspect::Gpus, 12),
    (Aspect::Chains, 30),
    (Aspect::Launches, 35),
    (Aspect::Variables, 20),
    (Aspect::Managed, 20),
];

/// Operations of a program, at most and at least.
const LENGTH: std::ops::Range<usize> = 20..88;

/// How often an operation is drawn with other objects if it was not legal.
const TRIES: usize = 12;

/// Draws operations one after the other, each as often as its weight says.
struct Drawer {
    dice: Dice,
    aspects: Vec<Aspect>,
    /// The aspect that the program is mostly about, if it has one.
    focus: Option<Aspect>,
    /// The thread's next operations, as far as they are legal then.
    next: VecDeque<What>,
}

/// The program of a seed: with the one aspects, and without the others, as far as it has those by chance.
pub fn program(seed: u64, with: &[Aspect], without: &[Aspect]) -> Program {
    let mut dice = Dice::new(seed);
    let mut chance = |aspect, percent| dice.percent(percent) || with.contains(&aspect);
    let chosen = ASPECTS.iter().filter(|(aspect, percent)| chance(*aspect, *percent)).map(|(aspect, _)| *aspect);
    let chosen: Vec<Aspect> = chosen.collect();
    let aspects = chosen.into_iter().filter(|aspect| !without.contains(aspect)).collect();
    let mut drawer = Drawer { dice, aspects, focus: None, next: VecDeque::new() };
    if drawer.dice.percent(50) {
        let all = [Aspect::Waits, Aspect::Captures, Aspect::Graphs, Aspect::Graphs, Aspect::Host, Aspect::Waiting];
        drawer.focus = Some(drawer.dice.of(&all));
    }
    if drawer.has(Aspect::Pools) && drawer.dice.percent(40) {
        drawer.focus = Some(Aspect::Pools);
    }
    for aspect in [Aspect::Late, Aspect::Words, Aspect::Chains] {
        if drawer.has(aspect) && drawer.dice.percent(40) {
            drawer.focus = Some(aspect);
        }
    }
    let threads = drawer.dice.of(&[1, 1, 2, 2, 2, 3]);
    let length = LENGTH.start + drawer.dice.below(LENGTH.len());
    let mut model = Model::new(threads);
    let mut operations = Vec::new();
    for what in drawer.beginning() {
        let operation = Operation { thread: drawer.dice.slot(threads), what };
        if model.apply(&operation) {
            operations.push(operation);
        }
    }
    let mut thread = 0;
    for _ in 0..4 * length {
        if operations.len() >= length {
            break;
        }
        // A thread mostly goes on with what it has begun.
        if drawer.next.is_empty() && drawer.dice.percent(30) {
            thread = drawer.dice.slot(threads);
        }
        if let Some(what) = drawer.next.pop_front() {
            let operation = Operation { thread, what };
            if model.apply(&operation) {
                operations.push(operation);
            }
            continue;
        }
        // The operation's kind is drawn first, and then its arguments, until it is legal.
        let (aspect, branch) = (drawer.aspect(), drawer.dice.below(100));
        for _ in 0..TRIES {
            let operation = Operation { thread, what: drawer.operation(aspect, branch) };
            if model.apply(&operation) {
                drawer.go_on(&operation.what);
                operations.push(operation);
                break;
            }
        }
    }
    Program { threads, operations }
}

impl Drawer {
    fn has(&self, aspect: Aspect) -> bool {
        self.aspects.contains(&aspect)
    }

    /// Something to work with.
    fn beginning(&mut self) -> Vec<What> {
        let mut all = Vec::new();
        for stream in 0..2 {
            let non_blocking = self.dice.percent(50);
            all.push(What::StreamCreate { stream, context: 0, non_blocking });
        }
        for mem in 0..2 {
            let (size, stream) = (self.dice.slot(4), self.dice.slot(2));
            all.push(What::Alloc { mem, context: 0, size, on: To { stream: Where::Made(stream), twin: false } });
        }
        if self.has(Aspect::Launches) {
            all.push(What::LaunchBy { by: self.dice.of(&LAUNCHES) });
        }
        all
    }

    /// A graph that allocates is launched again and again, in whatever streams.
    fn go_on_allocating(&mut self, what: &What) {
        let (graph, exec) = match *what {
            What::BeginCapture { on, .. } => {
                let (graph, out, seed) = (self.dice.slot(GRAPHS), self.mem(), self.byte());
                let kinds = [Kind::Scratch { out, seed }, self.kind()];
                self.next.extend(kinds.map(|kind| What::Work { on, kind, times: 1 }));
                self.next.push_back(What::EndCapture { on, graph });
                (graph, self.dice.slot(EXECS))
            }
            What::Build { graph, .. } => (graph, self.dice.slot(EXECS)),
            _ => return,
        };
        self.next.push_back(What::Instantiate { exec, graph });
        for _ in 0..2 + self.dice.below(3) {
            let (on, other, kind) = (self.stream(), self.stream(), self.kind());
            self.next.extend([What::Launch { exec, on }, What::Work { on: other, kind, times: 1 }]);
        }
    }

    /// Adds the operations that often follow on this one.
    fn go_on(&mut self, what: &What) {
        if self.has(Aspect::Pools) && self.dice.percent(60) {
            self.go_on_allocating(what);
        }
        if matches!(what, What::ChurnBegin { .. }) && self.dice.percent(70) {
            self.frees_beside_churn();
        }
        if let What::HostAlloc { host, kind: HostKind::Managed, .. } = *what {
            // Kernels find addresses there that no call brings.
            let (on, out) = (self.stream(), self.dice.slot(MEMS));
            let rows = self.byte() & !(1 << out);
            let read = Kind::Gather { out: Spot::Mem(out), table: Spot::Host(host) };
            self.next.extend([What::HostTable { host, rows }, What::Rest { idle: true }]);
            self.next.push_back(What::Work { on, kind: read, times: 1 });
        }
        if self.dice.percent(60) {
            return;
        }
        let (kind, on) = (self.kind(), self.stream());
        match *what {
            What::ExecSet { exec, .. }
            | What::ExecSetChild { exec, .. }
            | What::ExecEnable { exec, enabled: false, .. } => {
                // The host memory that was named before is not needed any more.
                let host = self.dice.slot(HOSTS);
                let freed = [What::HostFree { host }, What::HostFree { host: (host + 1) % HOSTS }];
                self.next.extend(freed.into_iter().chain([What::Rest { idle: true }, What::Launch { exec, on }]));
            }
            What::Wait { .. } => {
                let times = self.times();
                self.next.extend([What::Work { on, kind, times }, What::StreamSynchronize { on }]);
            }
            What::Instantiate { exec, .. } => self.next.extend([What::Upload { exec, on }, What::Launch { exec, on }]),
            What::BeginCapture { on: captured, .. } => {
                let (graph, exec) = (self.dice.slot(GRAPHS), self.dice.slot(EXECS));
                self.next.push_back(What::Work { on: captured, kind, times: 1 });
                if self.dice.percent(50) {
                    self.next.extend([What::EndCapture { on: captured, graph }, What::Instantiate { exec, graph }]);
                    self.next.extend([What::Rest { idle: true }, What::Launch { exec, on }]);
                }
            }
            What::HostTable { host, .. } => {
                let (table, out) = (self.mem(), self.mem());
                let copy = Kind::Copy { to: table, from: Spot::Host(host), by: CopyBy::Kind };
                self.next.extend([What::Work { on, kind: copy, times: 1 }, What::Rest { idle: true }]);
                self.next.push_back(What::Work { on, kind: Kind::Gather { out, table }, times: 1 });
            }
            What::Variable { mem, .. } => {
                let (table, out, by) = (Spot::Mem(mem), self.dice.slot(MEMS), self.words_by_device());
                let rows = self.byte() & !(1 << mem | 1 << out);
                let read = Kind::Gather { out: Spot::Mem(out), table };
                let kinds = [Kind::Words { out: table, rows, seed: 1, by }, read];
                let [write, read] = kinds.map(|kind| What::Work { on, kind, times: 1 });
                self.next.extend([write, What::Rest { idle: true }, read]);
            }
            What::PoolAlloc { mem, .. } => {
                let then = What::FreeAsync { mem, on };
                let again = self.pool_alloc(Some(mem));
                self.next.extend([What::Work { on, kind, times: 1 }, then, again]);
            }
            What::PoolSelect { .. } => {
                let alloc = self.pool_alloc(None);
                self.next.push_back(alloc);
            }
            What::PoolDestroy { .. } => {
                let (mem, twin) = (self.dice.slot(MEMS), self.dice.percent(50));
                self.next.extend([What::Read { mem, twin }, What::FreeAsync { mem, on }]);
            }
            What::ContextRetain => {
                // Something to work with there.
                let (stream, mem, non_blocking) =
                    (self.dice.slot(STREAMS), self.dice.slot(MEMS), self.dice.percent(50));
                let on = To { stream: Where::Made(stream), twin: false };
                self.next.push_back(What::StreamCreate { stream, context: 2, non_blocking });
                let size = self.dice.slot(4);
                self.next.push_back(What::Alloc { mem, context: 2, size, on });
            }
            What::TakeDescriptors { .. } => {
                let mem = self.dice.slot(MEMS);
                self.next.extend([What::Rest { idle: true }, What::Read { mem, twin: false }]);
            }
            _ => {}
        }
    }

    fn context(&mut self) -> u8 {
        match () {
            () if self.has(Aspect::Gpus) && self.dice.percent(35) => 2,
            () => u8::from(self.has(Aspect::Contexts) && self.dice.percent(40)),
        }
    }

    fn stream(&mut self) -> To {
        let twin = self.has(Aspect::PerThread) && self.dice.percent(60);
        let context = self.context();
        let stream = match self.dice.below(10) {
            0 | 1 if self.has(Aspect::Legacy) => Where::Legacy(context),
            2..=4 if self.has(Aspect::PerThread) => Where::PerThread(context),
            _ => Where::Made(self.dice.slot(STREAMS)),
        };
        To { stream, twin }
    }

    fn mem(&mut self) -> Spot {
        Spot::Mem(self.dice.slot(MEMS))
    }

    fn host(&mut self) -> Spot {
        Spot::Host(self.dice.slot(HOSTS))
    }

    /// Mostly device memory.
    fn spot(&mut self) -> Spot {
        if self.has(Aspect::Host) && self.dice.percent(25) { self.host() } else { self.mem() }
    }

    fn byte(&mut self) -> u8 {
        self.dice.next() as u8
    }

    fn kind(&mut self) -> Kind {
        let seed = self.byte();
        let value = seed;
        let by = self.copy_by();
        if self.has(Aspect::Words) && self.dice.percent(12) {
            return self.words();
        }
        if self.has(Aspect::Chains) && self.dice.percent(8) {
            return if self.dice.percent(40) {
                self.link()
            } else {
                Kind::Chase { out: self.mem(), from: self.spot() }
            };
        }
        if self.has(Aspect::Pools) && self.dice.percent(8) {
            return Kind::Scratch { out: self.mem(), seed };
        }
        match self.dice.below(20) {
            0..=2 => Kind::Hash { out: self.spot(), seed },
            3 | 4 => Kind::Sum { out: self.spot(), from: self.spot() },
            5 | 6 => Kind::Axpy { y: self.mem(), x: self.mem() },
            7 | 8 => Kind::Add { out: self.mem(), a: self.spot(), b: self.mem() },
            9 => Kind::Fill { out: self.mem(), value, element: self.dice.slot(6) },
            10 => Kind::Copy { to: self.mem(), from: self.mem(), by: self.dice.of(&[by, by, CopyBy::FromHost]) },
            11..=13 if self.has(Aspect::Host) => Kind::Copy { to: self.mem(), from: self.host(), by },
            14 | 15 if self.has(Aspect::Host) => Kind::Copy { to: self.host(), from: self.mem(), by },
            16 if self.has(Aspect::Host) => Kind::HostFunction { out: self.host(), seed },
            17 => Kind::WriteWord { out: self.spot(), value },
            18 if self.has(Aspect::Tables) => Kind::Gather { out: self.mem(), table: self.spot() },
            19 if self.has(Aspect::Tables) => Kind::Scatter { table: self.spot(), from: self.mem() },
            _ => Kind::Hash { out: self.mem(), seed },
        }
    }

    fn times(&mut self) -> u8 {
        if self.has(Aspect::Many) && self.dice.percent(40) { 2 + self.dice.slot(40) } else { 1 }
    }

    /// The part of the interface that the next operation is of. None stands for the operations of all programs.
    fn aspect(&mut self) -> Option<Aspect> {
        let aspects = [
            (None, 20),
            (Some(Aspect::Waits), 10),
            (Some(Aspect::Frees), 4),
            (Some(Aspect::FreesInStreams), 3),
            (Some(Aspect::Mappings), 8),
            (Some(Aspect::Captures), 9),
            (Some(Aspect::Graphs), 20),
            (Some(Aspect::Host), 10),
            (Some(Aspect::Tables), 4),
            (Some(Aspect::StreamsGo), 4),
            (Some(Aspect::Waiting), 12),
            (Some(Aspect::Queries), 3),
            (Some(Aspect::Contexts), 3),
            (Some(Aspect::Synchronous), 4),
            (Some(Aspect::Forks), 2),
            (Some(Aspect::Descriptors), 3),
            (Some(Aspect::Questions), 3),
            (Some(Aspect::Pools), 20),
            (Some(Aspect::Late), 10),
            (Some(Aspect::Words), 10),
            (Some(Aspect::Churn), 6),
            (Some(Aspect::Touches), 5),
            (Some(Aspect::Modules), 6),
            (Some(Aspect::Gpus), 4),
            (Some(Aspect::Chains), 8),
            (Some(Aspect::Launches), 5),
            (Some(Aspect::Variables), 6),
        ];
        let there = aspects.into_iter().filter(|(aspect, _)| aspect.is_none_or(|aspect| self.has(aspect)));
        let often = |aspect: Option<Aspect>| if aspect.is_some() && aspect == self.focus { 4 } else { 1 };
        let there: Vec<_> = there.map(|(aspect, weight)| (aspect, weight * often(aspect))).collect();
        let mut at = self.dice.below(there.iter().map(|(_, weight)| weight).sum());
        for (aspect, weight) in there {
            if at < weight {
                return aspect;
            }
            at -= weight;
        }
        None
    }

    /// An operation: which one, the branch says, from 0 to 99.
    fn operation(&mut self, aspect: Option<Aspect>, branch: usize) -> What {
        let mode = self.dice.of(&[0, 1, 2, 2]);
        let Some(aspect) = aspect else { return self.common(branch) };
        match aspect {
            Aspect::Waits if branch < 70 => {
                What::Wait { on: self.stream(), flag: self.dice.slot(FLAGS), by: self.wait_by() }
            }
            Aspect::Waits => What::Release { flag: self.dice.slot(FLAGS) },
            Aspect::Frees => What::Free { mem: self.dice.slot(MEMS) },
            Aspect::FreesInStreams => What::FreeAsync { mem: self.dice.slot(MEMS), on: self.stream() },
            Aspect::Mappings => match branch {
                0..45 => self.mapping(),
                45..85 => What::Remap { mem: self.dice.slot(MEMS), how: self.byte() },
                _ => What::Free { mem: self.dice.slot(MEMS) },
            },
            Aspect::Captures => match branch {
                0..45 => What::BeginCapture { on: self.stream(), mode },
                45..90 => What::EndCapture { on: self.stream(), graph: self.dice.slot(GRAPHS) },
                _ => What::ThreadMode { mode },
            },
            Aspect::Graphs => self.graph(branch),
            Aspect::Host => self.host_operation(branch),
            Aspect::Tables if branch < 50 => What::HostTable { host: self.dice.slot(HOSTS), rows: self.byte() },
            Aspect::Tables => {
                let kind = match branch < 75 {
                    true => Kind::Copy { to: self.mem(), from: self.host(), by: CopyBy::Kind },
                    false => Kind::Gather { out: self.mem(), table: self.spot() },
                };
                What::Work { on: self.stream(), kind, times: 1 }
            }
            Aspect::StreamsGo => What::StreamDestroy { stream: self.dice.slot(STREAMS) },
            Aspect::Waiting => match branch {
                0..60 => What::StreamSynchronize { on: self.stream() },
                60..70 => What::ContextSynchronize { context: self.context() },
                _ => What::EventSynchronize { event: self.dice.slot(EVENTS) },
            },
            Aspect::Queries if branch < 60 => What::StreamQuery { on: self.stream() },
            Aspect::Queries => What::EventQuery { event: self.dice.slot(EVENTS) },
            Aspect::Contexts if branch < 70 => What::ContextCreate,
            Aspect::Contexts => What::ContextDestroy,
            Aspect::Synchronous => What::WorkAndWait { kind: self.kind(), twin: self.dice.percent(60) },
            Aspect::Forks => What::Fork { milliseconds: self.dice.slot(30) },
            Aspect::Descriptors if branch < 70 => What::TakeDescriptors { spare: 4 + self.dice.slot(3) },
            Aspect::Descriptors => What::GiveDescriptors,
            Aspect::Questions => {
                let all = [Question::RetainHandle, Question::AddressRange, Question::Attribute];
                What::Ask { mem: self.dice.slot(MEMS), question: self.dice.of(&all) }
            }
            Aspect::Pools => self.pool_operation(branch),
            Aspect::Late if branch < 70 => {
                self.addresses(true);
                self.next.pop_front().expect("something was planned")
            }
            Aspect::Late => What::Late {
                on: self.stream(),
                host: self.dice.slot(HOSTS),
                rows: if self.dice.percent(50) { self.byte() } else { 0 },
                seed: self.byte(),
                flag: self.dice.slot(FIRST_DEVICE_FLAG),
                by: self.wait_by(),
            },
            Aspect::Words if branch < 60 => {
                self.addresses(false);
                self.next.pop_front().expect("something was planned")
            }
            Aspect::Words => {
                let copy = Kind::Copy { to: self.mem(), from: self.mem(), by: self.copy_by() };
                let kind = if branch < 80 { self.words() } else { copy };
                What::Work { on: self.stream(), kind, times: 1 }
            }
            Aspect::Churn => {
                let churn =
                    self.dice.of(&[Churn::Primary, Churn::Primary, Churn::Contexts, Churn::Modules, Churn::Frees]);
                if branch < 80 { What::ChurnBegin { churn } } else { What::ChurnEnd { churn } }
            }
            Aspect::Touches => {
                let touches = self.dice.next() as u32 & self.dice.next() as u32 & ((1 << TOUCHES.len()) - 1);
                What::ForkTouch { mem: self.dice.slot(MEMS), host: self.dice.slot(HOSTS), touches }
            }
            Aspect::Modules if branch < 60 => {
                What::ModuleLoad { module: self.dice.slot(MODULES), context: self.context() }
            }
            Aspect::Modules => What::ModuleUnload { module: self.dice.slot(MODULES) },
            Aspect::Gpus if branch < 40 => What::ContextRetain,
            Aspect::Gpus => self.on_the_other_gpu(branch),
            Aspect::Chains if branch < 35 => {
                self.chain();
                self.next.pop_front().expect("something was planned")
            }
            Aspect::Chains if branch < 60 => {
                self.table_of_tables();
                self.next.pop_front().expect("something was planned")
            }
            Aspect::Chains => {
                let kind = if branch < 75 { self.link() } else { Kind::Chase { out: self.mem(), from: self.spot() } };
                What::Work { on: self.stream(), kind, times: 1 }
            }
            Aspect::Launches => What::LaunchBy { by: self.dice.of(&LAUNCHES) },
            Aspect::Variables if branch < 70 => {
                What::Variable { mem: self.dice.slot(MEMS), context: self.context(), on: self.stream() }
            }
            Aspect::Variables => What::Free { mem: self.dice.slot(MEMS) },
            Aspect::Legacy | Aspect::PerThread | Aspect::Many | Aspect::Managed => self.common(branch),
        }
    }

    /// An operation that all programs have.
    fn common(&mut self, branch: usize) -> What {
        let context = self.context();
        match branch {
            0..40 => What::Work { on: self.stream(), kind: self.kind(), times: self.times() },
            40..50 if self.has(Aspect::Mappings) && self.dice.percent(50) => self.mapping(),
            40..50 if self.has(Aspect::Pools) && self.dice.percent(50) => self.pool_alloc(None),
            40..50 => {
                let (mem, size, on) = (self.dice.slot(MEMS), self.dice.slot(ROW_SIZE), self.stream());
                What::Alloc { mem, context, size, on }
            }
            50..58 => {
                let (stream, non_blocking) = (self.dice.slot(STREAMS), self.dice.percent(50));
                What::StreamCreate { stream, context, non_blocking }
            }
            58..63 => What::EventCreate { event: self.dice.slot(EVENTS), context },
            63..69 => What::EventRecord { event: self.dice.slot(EVENTS), on: self.stream() },
            69..75 => What::EventWait { on: self.stream(), event: self.dice.slot(EVENTS) },
            75..81 => {
                What::Read { mem: self.dice.slot(MEMS), twin: self.has(Aspect::PerThread) || self.dice.percent(50) }
            }
            81..95 => What::Rest { idle: self.dice.percent(60) },
            _ => What::Sleep { milliseconds: 1 + self.dice.slot(12) },
        }
    }

    fn mapping(&mut self) -> What {
        let (mem, context, size) = (self.dice.slot(MEMS), self.context(), self.dice.slot(ROW_SIZE));
        What::Map { mem, context, size, parts: self.byte(), on: self.stream() }
    }

    /// One in a slot, or in whichever.
    fn pool_alloc(&mut self, mem: Option<u8>) -> What {
        let drawn = self.dice.slot(MEMS);
        let pool = if self.dice.percent(60) { Some(self.pool()) } else { None };
        // Now and then much.
        let most = if self.dice.percent(15) { POOL_SIZES.len() } else { POOL_SIZES.len() - 2 };
        What::PoolAlloc { mem: mem.unwrap_or(drawn), pool, size: self.dice.slot(most as u8), on: self.stream() }
    }

    fn pool(&mut self) -> From {
        if self.dice.percent(75) { From::Own(self.dice.slot(POOLS)) } else { From::Default }
    }

    fn pool_operation(&mut self, branch: usize) -> What {
        let keep = self.dice.slot(KEEPS.len() as u8);
        let way = 1 + self.dice.slot(3);
        match branch {
            0..26 => self.pool_alloc(None),
            26..29 => What::BeginCapture { on: self.stream(), mode: self.dice.of(&[0, 1, 2]) },
            29..32 => {
                let kinds = vec![Kind::Scratch { out: self.mem(), seed: self.byte() }, self.kind()];
                What::Build { graph: self.dice.slot(GRAPHS), child: None, kinds }
            }
            32..48 => What::FreeAsync { mem: self.dice.slot(MEMS), on: self.stream() },
            48..54 => What::Free { mem: self.dice.slot(MEMS) },
            54..64 => What::PoolCreate { pool: self.dice.slot(POOLS) },
            64..68 => What::PoolDestroy { pool: self.dice.slot(POOLS) },
            68..74 => What::PoolSelect { pool: self.pool() },
            74..79 => What::PoolTrim { pool: self.pool(), keep },
            79..87 => {
                let reuse = PoolSetting::Reuse(way, self.dice.percent(40));
                let threshold = PoolSetting::Threshold(KEEPS[keep as usize]);
                let all = [reuse, reuse, threshold, threshold, PoolSetting::UsedHigh, PoolSetting::ReservedHigh];
                What::PoolSet { pool: self.pool(), setting: self.dice.of(&all) }
            }
            _ => {
                use PoolFigure::{Access, Reserved, Reuse, Threshold, Used, UsedHigh};
                let all = [Used, Used, UsedHigh, Reserved, Reserved, Threshold, Reuse(way), Access];
                What::PoolAsk { pool: self.pool(), figure: self.dice.of(&all) }
            }
        }
    }

    fn host_operation(&mut self, branch: usize) -> What {
        match branch {
            0..40 => {
                let mut kind = self.dice.of(&[HostKind::Pinned, HostKind::Registered, HostKind::Pageable]);
                if self.has(Aspect::Managed) && self.dice.percent(50) {
                    kind = HostKind::Managed;
                }
                let (host, size, context) = (self.dice.slot(HOSTS), self.dice.slot(4), self.context());
                What::HostAlloc { host, context, size, kind }
            }
            40..70 => What::HostFree { host: self.dice.slot(HOSTS) },
            70..90 => What::HostFill { host: self.dice.slot(HOSTS), seed: self.byte() },
            _ => What::HostRead { host: self.dice.slot(HOSTS) },
        }
    }

    fn graph(&mut self, branch: usize) -> What {
        let (graph, exec, node) = (self.dice.slot(GRAPHS), self.dice.slot(EXECS), self.dice.slot(4));
        // Graphs of one copy each can take each other's places.
        let by = self.dice.of(&[CopyBy::Kind, CopyBy::Kind, CopyBy::Plain]);
        let from = if self.has(Aspect::Host) { self.host() } else { self.mem() };
        let copy = Kind::Copy { to: self.mem(), from, by };
        match branch {
            0..12 => What::Build { graph, child: None, kinds: vec![copy] },
            12..22 => {
                let (child, kinds) = (Some(self.dice.slot(GRAPHS)), vec![self.kind()]);
                What::Build { graph, child, kinds }
            }
            22..27 => {
                let kinds = (0..2 + self.dice.below(2)).map(|_| self.kind()).collect();
                What::Build { graph, child: None, kinds }
            }
            27..29 => What::GraphDestroy { graph },
            29..31 => What::GraphClone { graph, from: self.dice.slot(GRAPHS) },
            31..41 => What::Instantiate { exec, graph },
            41..43 => What::ExecDestroy { exec },
            43..47 => What::ExecUpdate { exec, graph },
            47..55 => {
                let kind = if self.dice.percent(50) { copy } else { self.kind() };
                What::ExecSet { exec, node, kind }
            }
            55..64 => What::ExecSetChild { exec, graph },
            64..71 => What::ExecEnable { exec, node, enabled: self.dice.percent(30) },
            71..75 => What::Upload { exec, on: self.stream() },
            _ => What::Launch { exec, on: self.stream() },
        }
    }
}

#[cfg(test)]
mod tests;
