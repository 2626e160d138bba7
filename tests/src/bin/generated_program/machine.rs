//! Executes steps.

use std::ffi::CStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use baton_tests::generated::Script;
use baton_tests::generated::script::{
    Call, Flag, HostKind, Id, On, PoolFigure, PoolSetting, Question, ROW_BYTES, Remap, Step, Stream, WaitBy,
    is_exportable, is_of_library, row_offset,
};

use crate::churn::Churns;
use crate::launches;
use crate::objects::{All, Host, Mem, digest, fill};
use baton_tests::driver::{
    Access, Driver, Handle, Instantiation, KERNELS, PoolProperties, Properties, UpdateTold, WordOp,
};

/// A call that failed.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) what: String,
    pub(crate) answer: u32,
}

pub(crate) type Done<T = ()> = Result<T, Trouble>;

/// An answer other than success ends the program.
pub(crate) fn check(what: &str, answer: u32) -> Done {
    if answer == 0 { Ok(()) } else { Err(Trouble { what: what.to_owned(), answer }) }
}

/// Calls a function of the driver's that must succeed.
macro_rules! call {
    ($driver:expr, $name:ident($($argument:expr),* $(,)?)) => {
        $crate::machine::check(stringify!($name), $driver.$name($($argument),*))
    };
}
pub(crate) use call;

/// The program that a script is.
pub(crate) struct Machine {
    pub(crate) script: Script,
    rests: bool,
    pub(crate) driver: Driver,
    pub(crate) device: i32,
    pub(crate) library: Handle,
    /// The kernels once more for each thread, if threads launch functions of their own.
    pub(crate) own: Vec<Handle>,
    pub(crate) all: All,
    /// Flags in pinned host memory, as the host and as the device see them; and those in device memory.
    host_flags: usize,
    seen_flags: u64,
    device_flags: u64,
    /// Where kernels that wait leave what they saw, which is never read.
    seen: u64,
    /// In which flags in device memory are set.
    releasing: Handle,
    /// How many steps each thread has made.
    pub(crate) done: Vec<AtomicUsize>,
    printed: Vec<Mutex<String>>,
    pub(crate) children: Mutex<Vec<libc::pid_t>>,
    pub(crate) churns: Churns,
    files: Mutex<Vec<File>>,
}

const PAGE: usize = 4096;
/// A flag has a word of 32 bits, and above it zeroes for those who look at 64.
const FLAG_BYTES: u64 = 8;
/// The unit of memory behind a handle.
const UNIT: usize = 2 << 20;
const NON_BLOCKING: u32 = 1;
const NO_TIMING: u32 = 2;
/// For all contexts, and reached by the device.
const PORTABLE_AND_MAPPED: u32 = 3;

/// `CU_MEM_ATTACH_GLOBAL`
const FOR_ALL_STREAMS: u32 = 1;

/// Code with nothing but a variable.
const VARIABLE: &CStr = c"
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 8 .b8 variable[4096];
";

/// `CUmemPool_attribute`
const THRESHOLD: u32 = 4;
const RESERVED: u32 = 5;
const RESERVED_HIGH: u32 = 6;
const USED: u32 = 7;
const USED_HIGH: u32 = 8;
/// `CUmemLocation`
const FIRST_GPU: [u32; 2] = [1, 0];

impl Machine {
    pub(crate) fn start(script: Script, rests: bool) -> Done<Self> {
        let driver = Driver::open().map_err(|error| Trouble { what: error.to_string(), answer: 0 })?;
        let (mut device, mut context, mut library, mut releasing) = (0, 0, 0, 0);
        let (mut host_flags, mut seen_flags, mut device_flags) = (0, 0, 0);
        call!(driver, cuInit(0))?;
        call!(driver, cuDeviceGet(&mut device, 0))?;
        call!(driver, cuDevicePrimaryCtxRetain(&mut context, device))?;
        call!(driver, cuCtxSetCurrent(context))?;
        call!(driver, cuLibraryLoadData(&mut library, KERNELS.as_ptr(), 0, 0, 0, 0, 0, 0))?;
        let mut own = Vec::new();
        if script.threads.iter().flatten().any(|step| matches!(step.call, Call::LaunchBy { .. })) {
            for _ in &script.threads {
                own.push(made(|out| call!(driver, cuLibraryLoadData(out, KERNELS.as_ptr(), 0, 0, 0, 0, 0, 0)))?);
            }
        }
        call!(driver, cuMemHostAlloc(&mut host_flags, PAGE, PORTABLE_AND_MAPPED))?;
        call!(driver, cuMemHostGetDevicePointer_v2(&mut seen_flags, host_flags, 0))?;
        // SAFETY: pinned memory of this size, which no other code knows yet.
        unsafe { (host_flags as *mut u8).write_bytes(0, PAGE) };
        call!(driver, cuMemAlloc_v2(&mut device_flags, 2 * PAGE))?;
        call!(driver, cuStreamCreate(&mut releasing, NON_BLOCKING))?;
        call!(driver, cuMemsetD8Async(false, device_flags, 0, 2 * PAGE, releasing))?;
        call!(driver, cuStreamSynchronize(false, releasing))?;
        let threads = script.threads.len();
        let all = All::default();
        all.contexts.put(0, context);
        all.pools.put(0, made(|out| call!(driver, cuDeviceGetDefaultMemPool(out, device)))?);
        Ok(Self {
            rests,
            driver,
            device,
            library,
            own,
            all,
            host_flags,
            seen_flags,
            device_flags,
            seen: device_flags + PAGE as u64,
            releasing,
            done: (0..threads).map(|_| AtomicUsize::new(0)).collect(),
            printed: (0..threads).map(|_| Mutex::default()).collect(),
            children: Mutex::default(),
            churns: Churns::default(),
            files: Mutex::default(),
            script,
        })
    }

    /// How far all threads have come.
    pub(crate) fn progress(&self) -> usize {
        self.done.iter().map(|done| done.load(Ordering::Acquire)).sum()
    }

    /// The output of all threads, one after the other.
    pub(crate) fn printed(&self) -> String {
        let texts = self.printed.iter().enumerate();
        texts.fold(String::new(), |mut all, (number, text)| {
            let _ = write!(all, "thread {number}\n{}", text.lock().unwrap_or_else(PoisonError::into_inner));
            all
        })
    }

    /// True if steps of other threads come before a step.
    pub(crate) fn is_waiting(&self, step: &Step) -> bool {
        step.after.iter().any(|(other, count)| self.done[*other].load(Ordering::Acquire) < *count)
    }

    /// Does all that a thread does; the step that failed.
    pub(crate) fn run(&'static self, thread: usize) -> Result<(), (usize, Trouble)> {
        launches::begin(self.own.get(thread).copied());
        for (number, step) in self.script.threads[thread].iter().enumerate() {
            let mut pause = Duration::from_micros(20);
            while self.is_waiting(step) {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_micros(500));
            }
            let mut said = String::new();
            self.act(&step.call, &mut said).map_err(|trouble| (number, trouble))?;
            if !said.is_empty() {
                let mut printed = self.printed[thread].lock().unwrap_or_else(PoisonError::into_inner);
                let _ = writeln!(printed, "{number} {said}");
            }
            self.done[thread].store(number + 1, Ordering::Release);
        }
        Ok(())
    }

    /// A stream's name for a call in this form.
    pub(crate) fn stream(&self, on: On) -> Handle {
        const LEGACY: Handle = 1;
        const PER_THREAD: Handle = 2;
        match (on.stream, on.twin) {
            (Stream::Made(id), _) => self.all.streams.get(id),
            (Stream::Legacy, true) => LEGACY,
            (Stream::PerThread, false) => PER_THREAD,
            (Stream::Legacy, false) | (Stream::PerThread, true) => 0,
        }
    }

    /// Does a step; `said` is what of it is printed.
    fn act(&'static self, call: &Call, said: &mut String) -> Done {
        let (driver, all) = (&self.driver, &self.all);
        match call {
            Call::SetCurrent { context } => call!(driver, cuCtxSetCurrent(all.contexts.get(*context))),
            Call::ContextCreate { context } => {
                all.contexts.put(*context, made(|out| call!(driver, cuCtxCreate_v2(out, 0, self.device)))?);
                Ok(())
            }
            Call::ContextDestroy { context } => call!(driver, cuCtxDestroy_v2(all.contexts.get(*context))),
            Call::ContextRetain { context } => {
                let context = (*context, self.another_gpus_context()?);
                all.contexts.put(context.0, context.1);
                call!(driver, cuCtxSetCurrent(context.1))
            }
            Call::ModuleLoad { module } => {
                all.modules.put(*module, made(|out| call!(driver, cuModuleLoadData(out, KERNELS.as_ptr())))?);
                Ok(())
            }
            Call::ModuleUnload { module } => call!(driver, cuModuleUnload(all.modules.get(*module))),
            Call::ChurnBegin { churn } => {
                self.churns.begin(self, *churn);
                Ok(())
            }
            Call::ChurnEnd { churn } => {
                self.churns.end(*churn);
                Ok(())
            }
            Call::ContextSynchronize => call!(driver, cuCtxSynchronize()),
            Call::StreamCreate { stream, non_blocking } => {
                let flags = if *non_blocking { NON_BLOCKING } else { 0 };
                all.streams.put(*stream, made(|out| call!(driver, cuStreamCreate(out, flags)))?);
                Ok(())
            }
            Call::StreamDestroy { stream } => call!(driver, cuStreamDestroy_v2(all.streams.get(*stream))),
            Call::StreamSynchronize { on } => call!(driver, cuStreamSynchronize(on.twin, self.stream(*on))),
            Call::StreamQuery { on } => {
                let _ = write!(said, "stream {}", driver.cuStreamQuery(on.twin, self.stream(*on)));
                Ok(())
            }
            Call::EventCreate { event } => {
                all.events.put(*event, made(|out| call!(driver, cuEventCreate(out, NO_TIMING)))?);
                Ok(())
            }
            Call::EventDestroy { event } => call!(driver, cuEventDestroy_v2(all.events.get(*event))),
            Call::EventRecord { event, on } => {
                call!(driver, cuEventRecord(on.twin, all.events.get(*event), self.stream(*on)))
            }
            Call::EventWait { on, event } => {
                call!(driver, cuStreamWaitEvent(on.twin, self.stream(*on), all.events.get(*event), 0))
            }
            Call::EventSynchronize { event } => call!(driver, cuEventSynchronize(all.events.get(*event))),
            Call::EventQuery { event } => {
                let _ = write!(said, "event {}", driver.cuEventQuery(all.events.get(*event)));
                Ok(())
            }
            Call::MemAlloc { mem, bytes } => {
                let mut at = 0;
                call!(driver, cuMemAlloc_v2(&mut at, *bytes as usize))?;
                all.mems.put(*mem, Mem::of(*mem, at, *bytes));
                Ok(())
            }
            Call::MemMap { mem, bytes, parts } => self.map(*mem, *bytes, *parts as usize),
            Call::VariableLoad { mem, bytes } => self.load_variable(*mem, *bytes),
            Call::VariableUnload { mem } => {
                let code = all.variables.get(*mem);
                match is_of_library(*mem) {
                    true => call!(driver, cuLibraryUnload(code)),
                    false => call!(driver, cuModuleUnload(code)),
                }
            }
            Call::MemRemap { mem, how } => self.remap(all.mems.get(*mem), *how),
            Call::MemUnmap { mem } => {
                let Mem { at, mapped, .. } = all.mems.get(*mem);
                call!(driver, cuMemUnmap(at, 2 * mapped))?;
                call!(driver, cuMemAddressFree(at, 2 * mapped))
            }
            Call::MemFree { mem } => call!(driver, cuMemFree_v2(all.mems.get(*mem).at)),
            Call::MemFreeAsync { mem, on } => {
                call!(driver, cuMemFreeAsync(on.twin, all.mems.get(*mem).at, self.stream(*on)))
            }
            Call::MemRead { mem, bytes, twin } => {
                // The words have to come from the device, not be there by chance.
                let mut words = vec![0x5555_5555_u32; bytes.div_ceil(4) as usize];
                let to = words.as_mut_ptr().expose_provenance();
                call!(driver, cuMemcpyDtoH_v2(*twin, to, all.address(*mem), *bytes as usize))?;
                let _ = write!(said, "memory {mem} {:016x}", digest(&words));
                Ok(())
            }
            Call::PoolCreate { pool } => {
                all.pools
                    .put(*pool, made(|out| call!(driver, cuMemPoolCreate(out, &PoolProperties::exportable(false))))?);
                Ok(())
            }
            Call::PoolDestroy { pool } => call!(driver, cuMemPoolDestroy(all.pools.get(*pool))),
            Call::PoolSelect { pool } => call!(driver, cuDeviceSetMemPool(self.device, all.pools.get(*pool))),
            Call::PoolAlloc { mem, bytes, pool, on } => {
                let (mut at, bytes, stream) = (0, *bytes as usize, self.stream(*on));
                match pool.map(|pool| all.pools.get(pool)) {
                    Some(pool) => call!(driver, cuMemAllocFromPoolAsync(on.twin, &mut at, bytes, pool, stream))?,
                    None => call!(driver, cuMemAllocAsync(on.twin, &mut at, bytes, stream))?,
                }
                all.mems.put(*mem, Mem::of(*mem, at, bytes as u32));
                Ok(())
            }
            Call::PoolFree { mem } => call!(driver, cuMemFree_v2(all.mems.get(*mem).at)),
            Call::PoolFreeAsync { mem, on } => {
                call!(driver, cuMemFreeAsync(on.twin, all.mems.get(*mem).at, self.stream(*on)))
            }
            Call::PoolTrim { pool, keep } => call!(driver, cuMemPoolTrimTo(all.pools.get(*pool), *keep as usize)),
            Call::PoolSet { pool, setting } => self.set_pool(all.pools.get(*pool), *setting),
            Call::PoolAsk { pool, figure } => {
                let _ = write!(said, "{figure:?} {}", self.ask_pool(all.pools.get(*pool), *figure)?);
                Ok(())
            }
            Call::HostAlloc { host, bytes, kind } => self.host_alloc(*host, *bytes as usize, *kind),
            Call::HostFree { host, kind } => self.host_free(*host, *kind),
            Call::HostFill { host, seed, .. } => {
                fill(words(all.hosts.get(*host)), *seed);
                Ok(())
            }
            Call::HostTable { host, rows } => {
                let Host { at, bytes } = all.hosts.get(*host);
                for (number, row) in rows.iter().enumerate().take(bytes / 8) {
                    // SAFETY: host memory of the script's, which no other call uses now; a page is aligned for this.
                    unsafe { (at as *mut u64).add(number).write(all.row(*row)) };
                }
                Ok(())
            }
            Call::HostRead { host, .. } => {
                let _ = write!(said, "host {host} {:016x}", digest(words(all.hosts.get(*host))));
                Ok(())
            }
            Call::LaunchBy { by } => {
                launches::set(*by);
                Ok(())
            }
            Call::Submit { on, work, times } => (0..*times).try_for_each(|_| self.submit(*on, work)),
            Call::SubmitAndWait { work, twin } => self.submit_and_wait(work, *twin),
            Call::WaitFlag { on, flag, value, by } => self.wait_flag(*on, *flag, *value, *by),
            Call::Release { flag, value } => self.release(*flag, *value),
            Call::BeginCapture { on, mode } => {
                call!(driver, cuStreamBeginCapture_v2(on.twin, self.stream(*on), *mode))
            }
            Call::EndCapture { on, graph } => {
                let ended = made(|out| call!(driver, cuStreamEndCapture(on.twin, self.stream(*on), out)))?;
                all.graphs.put(*graph, ended);
                Ok(())
            }
            Call::ThreadMode { mode } => {
                let mut mode = *mode;
                call!(driver, cuThreadExchangeStreamCaptureMode(&mut mode))
            }
            Call::GraphCreate { graph } => {
                all.graphs.put(*graph, made(|out| call!(driver, cuGraphCreate(out, 0)))?);
                Ok(())
            }
            Call::GraphAdd { graph, node, after, work } => {
                let after: Vec<Handle> = after.iter().map(|node| all.nodes.get(*node)).collect();
                all.nodes.put(*node, self.add_node(all.graphs.get(*graph), &after, work)?);
                Ok(())
            }
            Call::GraphAddChild { graph, node, after, child } => {
                let after: Vec<Handle> = after.iter().map(|node| all.nodes.get(*node)).collect();
                let (graph, child) = (all.graphs.get(*graph), all.graphs.get(*child));
                let (list, count) = (after.as_ptr(), after.len());
                all.nodes
                    .put(*node, made(|out| call!(driver, cuGraphAddChildGraphNode(out, graph, list, count, child)))?);
                Ok(())
            }
            Call::GraphClone { graph, from } => {
                let from = all.graphs.get(*from);
                all.graphs.put(*graph, made(|out| call!(driver, cuGraphClone(out, from)))?);
                Ok(())
            }
            Call::GraphDestroy { graph } => call!(driver, cuGraphDestroy(all.graphs.get(*graph))),
            Call::Instantiate { exec, graph } => {
                let graph = all.graphs.get(*graph);
                let instance = made(|out| match exec % 2 {
                    0 => call!(driver, cuGraphInstantiateWithFlags(out, graph, 0)),
                    _ => {
                        let mut plain = Instantiation { flags: 0, upload_stream: 0, error_node: 0, result: 0 };
                        call!(driver, cuGraphInstantiateWithParams(out, graph, &mut plain))
                    }
                })?;
                all.execs.put(*exec, instance);
                Ok(())
            }
            Call::ExecDestroy { exec } => call!(driver, cuGraphExecDestroy(all.execs.get(*exec))),
            Call::ExecUpdate { exec, graph } => {
                let mut told = UpdateTold { result: 0, node: 0, from: 0 };
                call!(driver, cuGraphExecUpdate_v2(all.execs.get(*exec), all.graphs.get(*graph), &mut told))
            }
            Call::ExecSet { exec, node, work } => self.set_node(all.execs.get(*exec), all.nodes.get(*node), work),
            Call::ExecSetChild { exec, node, child } => {
                let (exec, node, child) = (all.execs.get(*exec), all.nodes.get(*node), all.graphs.get(*child));
                call!(driver, cuGraphExecChildGraphNodeSetParams(exec, node, child))
            }
            Call::ExecEnable { exec, node, enabled } => {
                let (exec, node) = (all.execs.get(*exec), all.nodes.get(*node));
                call!(driver, cuGraphNodeSetEnabled(exec, node, (*enabled).into()))
            }
            Call::Upload { exec, on } => {
                let on = On { twin: false, ..*on };
                call!(driver, cuGraphUpload(all.execs.get(*exec), self.stream(on)))
            }
            Call::Launch { exec, on } => {
                call!(driver, cuGraphLaunch(on.twin, all.execs.get(*exec), self.stream(*on)))
            }
            Call::Ask { mem, question } => {
                let _ = write!(said, "{question:?} {}", self.ask(all.mems.get(*mem).at, *question));
                Ok(())
            }
            Call::Fork { milliseconds } => self.fork(*milliseconds),
            Call::ForkTouch { mem, host, touches } => self.fork_touch(*mem, *host, touches, said),
            Call::Reap => {
                for child in self.children.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
                    let mut status = 0;
                    // SAFETY: a child of ours, and an out-parameter.
                    unsafe { libc::waitpid(child, &mut status, 0) };
                    let _ = write!(said, "child {status} ");
                }
                Ok(())
            }
            Call::TakeDescriptors { spare } => self.take_descriptors(*spare as usize),
            Call::GiveDescriptors => {
                self.files.lock().unwrap_or_else(PoisonError::into_inner).clear();
                Ok(())
            }
            Call::Sleep { milliseconds } => {
                std::thread::sleep(Duration::from_millis((*milliseconds).into()));
                Ok(())
            }
            Call::Rest => {
                self.rest();
                Ok(())
            }
        }
    }

    /// The primary context of the second GPU, or one more of the first if that is alone.
    fn another_gpus_context(&self) -> Done<Handle> {
        let (driver, mut count, mut device) = (&self.driver, 0, 0);
        call!(driver, cuDeviceGetCount(&mut count))?;
        if count < 2 {
            return made(|out| call!(driver, cuCtxCreate_v2(out, 0, self.device)));
        }
        call!(driver, cuDeviceGet(&mut device, 1))?;
        made(|out| call!(driver, cuDevicePrimaryCtxRetain(out, device)))
    }

    /// Maps handles side by side, and all of them once more behind that.
    fn map(&self, mem: Id, bytes: u32, parts: usize) -> Done {
        let row = row_offset(mem, bytes.max(ROW_BYTES)).into();
        let bytes = bytes as usize;
        let unit = bytes.div_ceil(parts).next_multiple_of(UNIT);
        let (mapped, mut at) = (bytes.next_multiple_of(unit), 0);
        call!(self.driver, cuMemAddressReserve(&mut at, 2 * mapped, 0, 0, 0))?;
        for offset in (0..mapped).step_by(unit) {
            let (mut handle, properties) = (0, Properties::exportable(is_exportable(mem)));
            call!(self.driver, cuMemCreate(&mut handle, unit, &properties, 0))?;
            for place in [at, at + mapped as u64] {
                call!(self.driver, cuMemMap(place + offset as u64, unit, 0, handle, 0))?;
            }
            call!(self.driver, cuMemRelease(handle))?;
        }
        self.all.mems.put(mem, Mem { at, row, mapped, unit });
        call!(self.driver, cuMemSetAccess(at, 2 * mapped, &Access::FULL, 1))
    }

    /// Code with a variable.
    fn load_variable(&self, mem: Id, bytes: u32) -> Done {
        let (driver, name, mut at, mut size) = (&self.driver, c"variable", 0, 0);
        let code = made(|out| match is_of_library(mem) {
            true => call!(driver, cuLibraryLoadData(out, VARIABLE.as_ptr().cast(), 0, 0, 0, 0, 0, 0)),
            false => call!(driver, cuModuleLoadData(out, VARIABLE.as_ptr().cast())),
        })?;
        match is_of_library(mem) {
            true => call!(driver, cuLibraryGetGlobal(&mut at, &mut size, code, name.as_ptr()))?,
            false => call!(driver, cuModuleGetGlobal_v2(&mut at, &mut size, code, name.as_ptr()))?,
        }
        assert_eq!(size, bytes as usize, "the variable's size");
        self.all.variables.put(mem, code);
        self.all.mems.put(mem, Mem::of(mem, at, bytes));
        Ok(())
    }

    fn remap(&self, mem: Mem, how: Remap) -> Done {
        let Mem { at, mapped, unit, .. } = mem;
        let places = match how {
            Remap::First => vec![(at, mapped)],
            Remap::Both => vec![(at, mapped), (at + mapped as u64, mapped)],
            Remap::Whole => vec![(at, 2 * mapped)],
            Remap::Access => {
                call!(self.driver, cuMemSetAccess(at, 2 * mapped, &Access::NONE, 1))?;
                return call!(self.driver, cuMemSetAccess(at, 2 * mapped, &Access::FULL, 1));
            }
        };
        for (place, bytes) in places {
            let mut handles = Vec::new();
            for part in (place..place + bytes as u64).step_by(unit) {
                let mut handle = 0;
                call!(self.driver, cuMemRetainAllocationHandle(&mut handle, part + 5))?;
                handles.push((part, handle));
            }
            call!(self.driver, cuMemUnmap(place, bytes))?;
            for (part, handle) in handles {
                call!(self.driver, cuMemMap(part, unit, 0, handle, 0))?;
                call!(self.driver, cuMemRelease(handle))?;
            }
            call!(self.driver, cuMemSetAccess(place, bytes, &Access::FULL, 1))?;
        }
        Ok(())
    }

    fn set_pool(&self, pool: Handle, setting: PoolSetting) -> Done {
        let (attribute, value) = match setting {
            PoolSetting::Reuse(way, on) => (u32::from(way), on.into()),
            PoolSetting::Threshold(keep) => (THRESHOLD, keep),
            PoolSetting::ReservedHigh => (RESERVED_HIGH, 0),
            PoolSetting::UsedHigh => (USED_HIGH, 0),
        };
        call!(self.driver, cuMemPoolSetAttribute(pool, attribute, &value))
    }

    fn ask_pool(&self, pool: Handle, figure: PoolFigure) -> Done<u64> {
        let attribute = match figure {
            PoolFigure::Reuse(way) => way.into(),
            PoolFigure::Threshold => THRESHOLD,
            PoolFigure::Reserved => RESERVED,
            PoolFigure::Used => USED,
            PoolFigure::UsedHigh => USED_HIGH,
            PoolFigure::Access => {
                let mut flags = 77;
                call!(self.driver, cuMemPoolGetAccess(&mut flags, pool, &FIRST_GPU))?;
                return Ok(flags.into());
            }
        };
        // Of some, only the lower half is written.
        let mut value = 0;
        call!(self.driver, cuMemPoolGetAttribute(pool, attribute, &mut value))?;
        Ok(value)
    }

    fn host_alloc(&self, host: Id, bytes: usize, kind: HostKind) -> Done {
        let mut at = 0;
        if kind == HostKind::Pinned {
            call!(self.driver, cuMemHostAlloc(&mut at, bytes, 0))?;
        } else if kind == HostKind::Managed {
            let mut managed = 0;
            call!(self.driver, cuMemAllocManaged(&mut managed, bytes, FOR_ALL_STREAMS))?;
            at = managed as usize;
        } else {
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: new pages, wherever there is room.
            let pages = unsafe { libc::mmap(null_mut(), bytes, prot, flags, -1, 0) };
            assert!(pages != libc::MAP_FAILED, "no host memory");
            at = pages.expose_provenance();
        }
        if kind == HostKind::Registered {
            call!(self.driver, cuMemHostRegister_v2(at, bytes.next_multiple_of(PAGE), 0))?;
        }
        self.all.hosts.put(host, Host { at, bytes });
        Ok(())
    }

    fn host_free(&self, host: Id, kind: HostKind) -> Done {
        let Host { at, bytes } = self.all.hosts.get(host);
        match kind {
            HostKind::Pinned => return call!(self.driver, cuMemFreeHost(at)),
            HostKind::Managed => return call!(self.driver, cuMemFree_v2(at as u64)),
            HostKind::Registered => call!(self.driver, cuMemHostUnregister(at))?,
            HostKind::Pageable => {}
        }
        // SAFETY: the pages that were mapped for it; the script uses them no more.
        unsafe { libc::munmap(at as *mut libc::c_void, bytes) };
        Ok(())
    }

    /// A flag's word as the host sees it.
    fn host_flag(&self, number: Id) -> &'static AtomicU32 {
        // SAFETY: a word of the page of flags, which lives as long as the process and is only used as atomics.
        unsafe { AtomicU32::from_ptr((self.host_flags as *mut u32).add(FLAG_BYTES as usize / 4 * number as usize)) }
    }

    fn wait_flag(&self, on: On, flag: Flag, value: u32, by: WaitBy) -> Done {
        let stream = self.stream(on);
        let at = match flag {
            Flag::Host(number) => self.seen_flags + FLAG_BYTES * u64::from(number),
            Flag::Device(number) => self.device_flags + FLAG_BYTES * u64::from(number),
        };
        match (by, flag) {
            (WaitBy::HostFunction, Flag::Host(number)) => {
                let wait = Box::leak(Box::new((self.host_flag(number), value)));
                let data = std::ptr::from_mut(wait).expose_provenance();
                call!(self.driver, cuLaunchHostFunc(on.twin, stream, wait_for_word, data))
            }
            (WaitBy::Kernel, _) => self.launch(on, c"spin_on_flag", &[self.seen, at], &[value]),
            (WaitBy::Wide, _) => call!(self.driver, cuStreamWaitValue64_v2(on.twin, stream, at, value.into(), 0)),
            (WaitBy::Batch, _) => {
                let words = [
                    WordOp::new(WordOp::WAIT_32, at, value.into()),
                    WordOp::new(WordOp::WRITE_32, self.seen + FLAG_BYTES, value.into()),
                ];
                call!(self.driver, cuStreamBatchMemOp_v2(on.twin, stream, words.len() as u32, words.as_ptr(), 0))
            }
            _ => call!(self.driver, cuStreamWaitValue32_v2(on.twin, stream, at, value, 0)),
        }
    }

    fn release(&self, flag: Flag, value: u32) -> Done {
        match flag {
            Flag::Host(number) => {
                self.host_flag(number).store(value, Ordering::Release);
                Ok(())
            }
            Flag::Device(number) => {
                let at = self.device_flags + FLAG_BYTES * u64::from(number);
                call!(self.driver, cuStreamWriteValue32_v2(false, self.releasing, at, value, 0))
            }
        }
    }

    fn ask(&self, at: u64, question: Question) -> String {
        let driver = &self.driver;
        match question {
            Question::RetainHandle => {
                let mut handle = 0;
                let answer = driver.cuMemRetainAllocationHandle(&mut handle, at);
                if answer == 0 {
                    driver.cuMemRelease(handle);
                }
                format!("{answer}")
            }
            Question::AddressRange => {
                let (mut base, mut bytes) = (0, 0);
                let answer = driver.cuMemGetAddressRange_v2(&mut base, &mut bytes, at);
                format!("{answer} {} {bytes}", base.wrapping_sub(at))
            }
            Question::Attribute => {
                const MEMORY_TYPE: i32 = 2;
                let mut kind = 0;
                let answer = driver.cuPointerGetAttribute(&mut kind, MEMORY_TYPE, at);
                format!("{answer} {}", kind as u32)
            }
        }
    }

    fn take_descriptors(&self, spare: usize) -> Done {
        const MOST: u64 = 256;
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: an out-parameter, and a limit that is lower than it was.
        unsafe {
            libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
            limit.rlim_cur = limit.rlim_cur.min(MOST);
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(file) = File::open("/dev/null") {
            files.push(file);
        }
        let left = files.len().saturating_sub(spare);
        files.truncate(left);
        Ok(())
    }

    fn rest(&self) {
        static TURN: Mutex<()> = Mutex::new(());
        if !self.rests {
            std::thread::sleep(Duration::from_millis(5));
            return;
        }
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        println!("rest");
        let _ = std::io::stdout().flush();
        let mut line = String::new();
        let _ = std::io::stdin().read_line(&mut line);
    }
}

/// An object that a call makes.
pub(crate) fn made(make: impl FnOnce(&mut Handle) -> Done) -> Done<Handle> {
    let mut handle = 0;
    make(&mut handle)?;
    Ok(handle)
}

/// Host memory as words.
fn words(Host { at, bytes }: Host) -> &'static mut [u32] {
    // SAFETY: host memory of the script's; by the script no other call uses it at the same time.
    unsafe { std::slice::from_raw_parts_mut(at as *mut u32, bytes / 4) }
}

extern "C" fn wait_for_word(data: usize) {
    // SAFETY: leaked for this call, which happens once.
    let (word, value) = unsafe { &*(data as *const (&AtomicU32, u32)) };
    while word.load(Ordering::Acquire) < *value {
        std::thread::sleep(Duration::from_micros(100));
    }
}
