//! From a program to a script: a driver's permissions, waits and orders, by the books.
//!
//! - `clock`: the work that has ended
//! - `threads`: steps, the order between those of several threads, and the blocked ones
//! - `streams`: streams, events, contexts, and work in them
//! - `memory`: memory, its contents, and its users
//! - `late`: host memory that is written when a flag is released
//! - `modules`: code that comes and goes, and threads that do something over and over
//! - `pools`: pools, and memory in a stream's order
//! - `captures` and `graphs`

mod captures;
mod clock;
mod graphs;
mod late;
mod memory;
mod modules;
mod pools;
mod process;
mod streams;
mod threads;
mod work;

use std::collections::BTreeMap;

use self::captures::Capture;
use self::graphs::{Exec, Graph};
use self::late::Late;
use self::memory::Memory;
use self::modules::Module;
use self::pools::Pool;
use self::streams::{Event, Key, StreamState, Timeline};
use self::threads::{Resource, Thread, Uses, Wait};
use super::program::{
    CONTEXTS, EVENTS, EXECS, FLAGS, GRAPHS, HOSTS, MEMS, MODULES, Operation, POOLS, Program, STREAMS, What,
};
use super::script::{Call, Churn, Id, Script};

/// An operation that is not legal where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skip;

type Done<T = ()> = Result<T, Skip>;

/// Everything that is known of a program at some point of its order.
#[derive(Clone, Debug)]
pub struct Model {
    threads: Vec<Thread>,
    /// The thread that does the present operation.
    me: usize,
    uses: BTreeMap<Resource, Uses>,
    timelines: Vec<Timeline>,
    streams: BTreeMap<Key, StreamState>,
    waits: Vec<Wait>,
    /// The object in each slot.
    contexts: Vec<Option<Id>>,
    made: Vec<Option<Id>>,
    events: Vec<Option<Event>>,
    mems: Vec<Option<Id>>,
    hosts: Vec<Option<Id>>,
    pools: Vec<Option<Id>>,
    graphs: Vec<Option<Graph>>,
    execs: Vec<Option<Exec>>,
    flags: Vec<u32>,
    /// Writes that happen when flags are released.
    late: Vec<Late>,
    modules: Vec<Option<Module>>,
    /// Calls that go on beside all threads.
    churns: Vec<Churn>,
    memory: BTreeMap<memory::Name, Memory>,
    captures: BTreeMap<usize, Capture>,
    /// All pools that there are; 0 is the GPU's default one.
    known_pools: BTreeMap<Id, Pool>,
    current_pool: Id,
    /// Bytes that pools may still give.
    pool_bytes: u32,
    /// Pools that may still be made.
    pools_left: u8,
    next_id: Id,
    launches: u32,
    children: bool,
    /// How many more files can be opened, if there is a limit.
    descriptors: Option<u8>,
}

impl Model {
    /// At the beginning of a program.
    pub fn new(threads: u8) -> Self {
        let slots = |count: u8| vec![None; count as usize];
        let mut contexts = slots(CONTEXTS);
        contexts[0] = Some(0);
        Self {
            threads: vec![Thread::default(); threads as usize],
            me: 0,
            uses: BTreeMap::new(),
            timelines: Vec::new(),
            streams: BTreeMap::new(),
            waits: Vec::new(),
            contexts,
            made: slots(STREAMS),
            events: vec![None; EVENTS as usize],
            mems: slots(MEMS),
            hosts: slots(HOSTS),
            pools: slots(POOLS),
            graphs: vec![None; GRAPHS as usize],
            execs: vec![None; EXECS as usize],
            flags: vec![0; FLAGS as usize],
            late: Vec::new(),
            modules: vec![None; MODULES as usize],
            churns: Vec::new(),
            memory: BTreeMap::new(),
            captures: BTreeMap::new(),
            known_pools: BTreeMap::from([(pools::DEFAULT, Pool::default())]),
            current_pool: pools::DEFAULT,
            pool_bytes: pools::MOST_BYTES,
            pools_left: pools::MOST_POOLS,
            // The primary context has 0.
            next_id: 1,
            launches: 0,
            children: false,
            descriptors: None,
        }
    }

    fn new_id(&mut self) -> Id {
        self.next_id += 1;
        self.next_id - 1
    }

    /// Does an operation, or leaves everything as it is if it is not legal now. Returns true if it was legal.
    pub fn apply(&mut self, operation: &Operation) -> bool {
        let me = operation.thread as usize;
        if me >= self.threads.len() || self.threads[me].blocked.is_some() {
            return false;
        }
        let before = self.clone();
        self.me = me;
        let done = self.act(&operation.what);
        if done.is_err() {
            *self = before;
        }
        done.is_ok()
    }

    fn act(&mut self, what: &What) -> Done {
        match what {
            What::ContextCreate => self.context_create(),
            What::ContextDestroy => self.context_destroy(),
            What::ContextRetain => self.context_retain(),
            What::ContextSynchronize { context } => self.context_synchronize(*context),
            What::StreamCreate { stream, context, non_blocking } => {
                self.stream_create(*stream, *context, *non_blocking)
            }
            What::StreamDestroy { stream } => self.stream_destroy(*stream),
            What::StreamSynchronize { on } => self.stream_synchronize(*on),
            What::StreamQuery { on } => self.stream_query(*on),
            What::EventCreate { event, context } => self.event_create(*event, *context),
            What::EventDestroy { event } => self.event_destroy(*event),
            What::EventRecord { event, on } => self.event_record(*event, *on),
            What::EventWait { on, event } => self.event_wait(*on, *event),
            What::EventSynchronize { event } => self.event_synchronize(*event),
            What::EventQuery { event } => self.event_query(*event),
            What::Alloc { mem, context, size, on } => self.alloc(*mem, *context, *size, *on),
            What::Map { mem, context, size, parts, on } => self.map(*mem, *context, *size, *parts, *on),
            What::Variable { mem, context, on } => self.variable(*mem, *context, *on),
            What::Remap { mem, how } => self.remap(*mem, *how),
            What::Free { mem } => self.free(*mem),
            What::FreeAsync { mem, on } => self.free_async(*mem, *on),
            What::Read { mem, twin } => self.read(*mem, *twin),
            What::PoolCreate { pool } => self.pool_create(*pool),
            What::PoolDestroy { pool } => self.pool_destroy(*pool),
            What::PoolSelect { pool } => self.pool_select(*pool),
            What::PoolAlloc { mem, pool, size, on } => self.pool_alloc(*mem, *pool, *size, *on),
            What::PoolTrim { pool, keep } => self.pool_trim(*pool, *keep),
            What::PoolSet { pool, setting } => self.pool_set(*pool, *setting),
            What::PoolAsk { pool, figure } => self.pool_ask(*pool, *figure),
            What::HostAlloc { host, context, size, kind } => self.host_alloc(*host, *context, *size, *kind),
            What::HostFree { host } => self.host_free(*host),
            What::HostFill { host, seed } => self.host_fill(*host, *seed),
            What::HostTable { host, rows } => self.host_table(*host, *rows),
            What::HostRead { host } => self.host_read(*host),
            What::Late { on, host, rows, seed, flag, by } => self.write_late(*on, *host, *rows, *seed, *flag, *by),
            What::LaunchBy { by } => self.step(Call::LaunchBy { by: *by }, &[]),
            What::Work { on, kind, times } => self.work(*on, *kind, *times),
            What::WorkAndWait { kind, twin } => self.work_and_wait(*kind, *twin),
            What::Wait { on, flag, by } => self.wait(*on, *flag, *by),
            What::Release { flag } => self.release(*flag),
            What::BeginCapture { on, mode } => self.begin_capture(*on, *mode),
            What::EndCapture { on, graph } => self.end_capture(*on, *graph),
            What::ThreadMode { mode } => self.thread_mode(*mode),
            What::Build { graph, child, kinds } => self.build(*graph, *child, kinds),
            What::GraphClone { graph, from } => self.graph_clone(*graph, *from),
            What::GraphDestroy { graph } => self.graph_destroy(*graph),
            What::Instantiate { exec, graph } => self.instantiate(*exec, *graph),
            What::ExecDestroy { exec } => self.exec_destroy(*exec),
            What::ExecUpdate { exec, graph } => self.exec_update(*exec, *graph),
            What::ExecSet { exec, node, kind } => self.exec_set(*exec, *node, *kind),
            What::ExecSetChild { exec, graph } => self.exec_set_child(*exec, *graph),
            What::ExecEnable { exec, node, enabled } => self.exec_enable(*exec, *node, *enabled),
            What::Upload { exec, on } => self.upload(*exec, *on),
            What::Launch { exec, on } => self.launch(*exec, *on),
            What::Ask { mem, question } => self.ask(*mem, *question),
            What::Fork { milliseconds } => self.fork(*milliseconds),
            What::ForkTouch { mem, host, touches } => self.fork_touch(*mem, *host, *touches),
            What::ModuleLoad { module, context } => self.module_load(*module, *context),
            What::ModuleUnload { module } => self.module_unload(*module),
            What::ChurnBegin { churn } => self.churn_begin(*churn),
            What::ChurnEnd { churn } => self.churn_end(*churn),
            What::TakeDescriptors { spare } => self.take_descriptors(*spare),
            What::GiveDescriptors => self.give_descriptors(),
            What::Sleep { milliseconds } => self.step(Call::Sleep { milliseconds: (*milliseconds).into() }, &[]),
            What::Rest { idle } => self.rest(*idle),
        }
    }

    /// The rest of the program: all flags are released, all captures ended, everything is waited for and read.
    pub fn finish(mut self, about: String) -> Script {
        self.end_everything();
        Script { about, threads: self.threads.into_iter().map(|thread| thread.steps).collect() }
    }
}

impl Program {
    /// The program as it is executed; and without the operations that are not legal.
    pub fn script(&self, about: &str) -> (Script, Self) {
        let mut model = Model::new(self.threads);
        let operations = self.operations.iter().filter(|operation| model.apply(operation)).cloned().collect();
        (model.finish(about.to_owned()), Self { threads: self.threads, operations })
    }
}

/// The item in a slot that holds one.
fn held<T>(slots: &[Option<T>], slot: u8) -> Done<&T> {
    slots.get(slot as usize).and_then(Option::as_ref).ok_or(Skip)
}

/// A slot that is there and holds nothing.
fn vacant<T>(slots: &[Option<T>], slot: u8) -> Done {
    slots.get(slot as usize).is_some_and(Option::is_none).then_some(()).ok_or(Skip)
}

/// Fails unless it holds.
fn only_if(holds: bool) -> Done {
    holds.then_some(()).ok_or(Skip)
}
