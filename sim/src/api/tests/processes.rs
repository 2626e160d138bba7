//! One GPU as several processes see it. A test plays here in processes of its own: this same program,
//! started again for one role.
#![allow(unsafe_code)]

use std::io::{BufRead, BufReader};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::super::context::*;
use super::super::control::*;
use super::super::copies::cuMemcpyHtoDAsync_v2;
use super::super::fills::cuMemsetD8Async;
use super::super::host_memory::*;
use super::super::init::*;
use super::super::memory::*;
use super::super::streams::*;
use super::super::vmm::*;
use super::vmm::{UNIT, allow, create, reserve};
use super::{Session, alloc, get, put};
use crate::border::from_tests::{address_mut, ask, given, place};

const ROLE: &str = "SIMCUDA_TEST_ROLE";
const DESCRIPTOR: &str = "SIMCUDA_TEST_DESCRIPTOR";
/// The number of a process on the GPU.
const PROCESS: &str = "SIMCUDA_TEST_PROCESS";
/// The answer of another process.
const TOLD: &str = "SIMCUDA_TEST_TOLD";
const MEMORY: usize = 256 << 20;

pub(super) fn role(name: &str, gpu: Option<&Path>) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "api::tests::processes::a_role_is_played", "--nocapture"]);
    command.env(ROLE, name).env("SIMCUDA_MEMORY", "256MiB").stdout(Stdio::piped());
    if let Some(gpu) = gpu {
        command.env("SIMCUDA_GPU_FILE", gpu);
    }
    command
}

pub(super) fn in_a_process_of_its_own(name: &str) {
    assert!(role(name, None).output().unwrap().status.success());
}

pub(super) fn in_a_process_with_two_gpus(name: &str) {
    assert!(role(name, None).env("SIMCUDA_GPUS", "2").output().unwrap().status.success());
}

/// Two processes that share two GPUs; the second one sees only some, and is told the answer of the first.
pub(super) fn in_two_processes_of_shared_gpus(names: [&str; 2], sees: &str) {
    let gpu = GpuFile::new(names[0]);
    let _other = GpuFile(PathBuf::from(format!("{}.1", gpu.0.display())));
    let role = |name| {
        let mut role = role(name, Some(&gpu.0));
        role.env("SIMCUDA_GPUS", "2");
        role
    };
    let mut first = role(names[0]).spawn().unwrap();
    let told = answer(&mut first);
    let second = role(names[1]).env("CUDA_VISIBLE_DEVICES", sees).env(TOLD, told).output().unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(second.status.success(), "{second:?}");
}

/// The answer of another process, which this one was told.
pub(super) fn told() -> String {
    std::env::var(TOLD).unwrap()
}

pub(super) fn in_a_process_of_a_shared_gpu(name: &str) {
    let gpu = GpuFile::new(name);
    assert!(role(name, Some(&gpu.0)).output().unwrap().status.success());
}

/// A GPU file in a place of its own, gone with the value.
struct GpuFile(PathBuf);

impl GpuFile {
    fn new(name: &str) -> GpuFile {
        let place = format!("simcuda-test-{name}-{}", std::process::id());
        GpuFile(std::env::temp_dir().join(place))
    }
}

impl Drop for GpuFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Reads a role's answer: the first line with the mark.
fn answer(child: &mut Child) -> String {
    let output = BufReader::new(child.stdout.as_mut().unwrap());
    let lines = output.lines().map_while(Result::ok);
    lines.filter_map(|line| line.strip_prefix("answer ").map(str::to_owned)).next().unwrap()
}

pub(super) fn tell(what: impl std::fmt::Display) {
    // On a line of its own, whatever the test harness wrote before.
    println!("\nanswer {what}");
}

fn free_memory(gpu: &Path) -> usize {
    let mut child = role("ask", Some(gpu)).spawn().unwrap();
    let free = answer(&mut child).parse().unwrap();
    assert!(child.wait().unwrap().success());
    free
}

#[test]
fn a_role_is_played() {
    match std::env::var(ROLE).as_deref() {
        Ok("ask") => {
            let _session = Session::begin();
            let mut total = 0usize;
            tell(given(|free| cuMemGetInfo_v2(free, place(&mut total))));
        }
        Ok("hold") => {
            let _session = Session::begin();
            alloc(100 << 20);
            tell("ready");
            std::thread::sleep(Duration::from_secs(60));
        }
        Ok("make") => make(),
        Ok("paused") => paused(),
        Ok("pause") => pause(),
        Ok("pin") => pin(),
        Ok("copy") => copy(),
        Ok("take") => {
            take();
            // The output of the test harness has no reader any more.
            std::process::exit(0);
        }
        Ok("uninitialised") => uninitialised(),
        Ok("fork") => fork(),
        Ok("keep") => {
            let _session = Session::begin();
            let _kept: u64 = given(|out| cuMemImportFromShareableHandle(out, 0, 1));
            tell(std::process::id());
            std::thread::sleep(Duration::from_secs(60));
        }
        Ok("share") => share(),
        Ok("global-capture") => super::capture::global_capture(),
        Ok("fault") => super::errors::broken_process(),
        Ok("fault-heard") => super::errors::heard_of(),
        Ok("misaligned") => super::errors::misaligned(),
        Ok("primary") => super::errors::primary(),
        Ok("read-only") => super::vmm::read_only(),
        Ok("events") => super::control::events(),
        Ok("full") => super::errors::at_the_descriptor_limit(),
        Ok("two-gpus") => super::peers::identities(),
        Ok("two-gpus-peers") => super::peers::peers(),
        Ok("two-gpus-mapped") => super::peers::mapped(),
        Ok("pool-give") => super::pools::give(),
        Ok("pool-take") => super::pools::take_shared(),
        Ok("graph-memory") => super::graph_memory::memory_of_the_gpu(),
        Ok("graph-freed") => super::graph_memory::freed(),
        Ok("pool-memory") => super::pools::memory_of_the_gpu(),
        Ok("pool-freed") => super::pools::freed(),
        Ok("pool-early") => super::pools::early(),
        Ok("gives-first") => super::peers::gives(),
        Ok("sees-second") => super::peers::sees_second(),
        Ok("two-gpus-pools") => super::pools::two_gpus(),
        Ok("no-context") => super::vmm::no_context(),
        _ => {}
    }
}

#[test]
fn the_memory_of_a_killed_process_is_free_again() {
    let gpu = GpuFile::new("killed");
    let mut holder = role("hold", Some(&gpu.0)).spawn().unwrap();
    assert_eq!(answer(&mut holder), "ready");
    assert_eq!(free_memory(&gpu.0), MEMORY - (100 << 20));
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(free_memory(&gpu.0), MEMORY);
}

#[test]
fn a_handle_and_its_contents_outlive_the_process_that_made_it() {
    let gpu = GpuFile::new("handle");
    let mut maker = role("make", Some(&gpu.0)).spawn().unwrap();
    // The taker writes to the maker's output and tells when it is through.
    assert_eq!(answer(&mut maker), "taken");
    maker.wait().unwrap();
    while free_memory(&gpu.0) != MEMORY {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn memory_that_another_process_imported_stays_used_when_its_maker_is_killed() {
    let gpu = GpuFile::new("shared");
    let mut maker = role("share", Some(&gpu.0)).spawn().unwrap();
    let keeper: i32 = answer(&mut maker).parse().unwrap();
    assert_eq!(free_memory(&gpu.0), MEMORY - UNIT);
    maker.kill().unwrap();
    maker.wait().unwrap();
    assert_eq!(free_memory(&gpu.0), MEMORY - UNIT);
    // SAFETY: the keeper is a process of this test's.
    assert_eq!(unsafe { libc::kill(keeper, libc::SIGKILL) }, 0);
    while free_memory(&gpu.0) != MEMORY {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Makes a handle and starts another process that imports it and goes on without us.
fn share() {
    let _session = Session::begin();
    let (_, descriptor) = exported();
    let gpu = std::env::var_os("SIMCUDA_GPU_FILE").unwrap();
    let mut keeper = role("keep", Some(Path::new(&gpu)));
    keeper.stdin(Stdio::from(descriptor)).stdout(Stdio::inherit());
    keeper.spawn().unwrap().wait().unwrap();
}

/// A handle of one unit, and a descriptor of it.
fn exported() -> (u64, OwnedFd) {
    let handle = create(1);
    let mut descriptor = -1i32;
    assert_eq!(cuMemExportToShareableHandle(address_mut(&mut descriptor), handle, 1, 0), 0);
    // SAFETY: the driver gave the descriptor to us.
    (handle, unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn make() {
    let _session = Session::begin();
    let at = reserve(1);
    let (handle, descriptor) = exported();
    assert_eq!(cuMemMap(at, UNIT, 0, handle, 0), 0);
    allow(at, 1);
    put(at, &[1, 2, 3]);
    // As the taker's standard input it has a number that both know.
    let gpu = std::env::var_os("SIMCUDA_GPU_FILE").unwrap();
    let mut taker = role("take", Some(Path::new(&gpu)));
    taker.stdin(Stdio::from(descriptor)).stdout(Stdio::inherit()).env(DESCRIPTOR, "0");
    taker.spawn().unwrap();
    std::process::exit(0);
}

fn take() {
    let parent = std::os::unix::process::parent_id();
    while parent != 1 && std::os::unix::process::parent_id() == parent {
        std::thread::sleep(Duration::from_millis(1));
    }
    let _session = Session::begin();
    let mut total = 0usize;
    assert_eq!(given(|free| cuMemGetInfo_v2(free, place(&mut total))), MEMORY - UNIT, "its descriptor is here");
    let descriptor: usize = std::env::var(DESCRIPTOR).unwrap().parse().unwrap();
    let handle: u64 = given(|out| cuMemImportFromShareableHandle(out, descriptor, 1));
    let at = reserve(1);
    assert_eq!(cuMemMap(at, UNIT, 0, handle, 0), 0);
    allow(at, 1);
    assert_eq!(get(at, 3), [1, 2, 3]);
    assert_eq!(given(|free| cuMemGetInfo_v2(free, place(&mut total))), MEMORY - UNIT);
    tell("taken");
}

#[test]
fn a_pause_outlives_the_process_that_made_it() {
    in_a_process_of_a_shared_gpu("paused");
}

/// Is paused three times by a process that is killed then.
fn paused() {
    let _session = Session::begin();
    let (at, process) = (alloc(4096), given(|out| simcudaGetProcess(out)));
    let gpu = std::env::var_os("SIMCUDA_GPU_FILE").unwrap();
    let mut pauser = role("pause", Some(Path::new(&gpu))).env(PROCESS, process.to_string()).spawn().unwrap();
    assert_eq!(answer(&mut pauser), "paused");
    pauser.kill().unwrap();
    pauser.wait().unwrap();
    let stream = given(|out| cuStreamCreate(out, 1));
    assert_eq!(cuMemsetD8Async(at, 7, 4, stream), 0);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(cuStreamQuery(stream), 600);
        assert_eq!(simcudaResumeProcess(process), 0);
    }
    assert_eq!(cuStreamSynchronize(stream), 0);
    assert_eq!(get(at, 1), [0x0707_0707]);
}

fn pause() {
    let _session = Session::begin();
    let process = std::env::var(PROCESS).unwrap().parse().unwrap();
    for _ in 0..3 {
        assert_eq!(simcudaPauseProcess(process), 0);
    }
    tell("paused");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn pinning_takes_as_long_as_it_is_said_to() {
    assert!(role("pin", None).env("SIMCUDA_PIN_MS_PER_GIB", "12800").output().unwrap().status.success());
}

fn pin() {
    let _session = Session::begin();
    let memory = vec![0u8; 16 << 20];
    let start = Instant::now();
    assert_eq!(cuMemHostRegister(memory.as_ptr().addr(), memory.len(), 0), 0);
    assert!(start.elapsed() >= Duration::from_millis(200), "{:?}", start.elapsed());
    assert_eq!(cuMemHostUnregister(memory.as_ptr().addr()), 0);
}

/// Bytes that a process copies which is killed meanwhile.
const COPIED: usize = 8 << 20;

#[test]
fn copies_outlive_a_killed_process_for_as_long_as_it_is_not_known_to_have_ended() {
    let gpu = GpuFile::new("outlive");
    // That it is seen in the middle is likely, but no more.
    assert!((0..30).any(|_| is_seen_in_the_middle(&gpu.0)));
}

/// Kills a process that copies; true if after that something was there of the copy, and not all, before the process had ended.
fn is_seen_in_the_middle(gpu: &Path) -> bool {
    let mut command = role("copy", Some(gpu));
    command.env("SIMCUDA_COPIES_OUTLIVE_MS", "1000").env("SIMCUDA_H2D_GBPS", "0.00001");
    let mut process = command.spawn().unwrap();
    let path = format!("/proc/{}/fd/{}", process.id(), answer(&mut process));
    let memory = std::fs::File::open(path).unwrap();
    let word = |at: usize| {
        let mut word = [0; 4];
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut word, at as u64).unwrap();
        u32::from_ne_bytes(word)
    };
    assert_eq!(word(0), 0, "its time has not come");
    let pid = rustix::process::Pid::from_child(&process);
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    let mut middle = false;
    process.kill().unwrap();
    loop {
        let seen = [word(0), word(COPIED - 4)];
        let mut ended = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        if rustix::event::poll(&mut ended, Some(&now)).unwrap() > 0 {
            break;
        }
        middle |= seen == [7, 0];
    }
    process.wait().unwrap();
    let all = || (0..COPIED).step_by(4096).map(word).collect::<Vec<_>>();
    let end = all();
    std::thread::sleep(Duration::from_millis(50));
    assert!(all() == end, "nothing is written when it has ended");
    assert_eq!(free_memory(gpu), MEMORY);
    middle
}

fn copy() {
    let _session = Session::begin();
    let units = COPIED.div_ceil(UNIT);
    let at = reserve(units);
    let handle = create(units);
    let mut descriptor = -1i32;
    assert_eq!(cuMemExportToShareableHandle(address_mut(&mut descriptor), handle, 1, 0), 0);
    assert_eq!(cuMemMap(at, units * UNIT, 0, handle, 0), 0);
    allow(at, units);
    let from = vec![7u32; COPIED / 4];
    assert_eq!(cuMemHostRegister(from.as_ptr().addr(), COPIED, 0), 0);
    let stream = given(|out| cuStreamCreate(out, 1));
    assert_eq!(cuMemcpyHtoDAsync_v2(at, from.as_ptr().addr(), COPIED, stream), 0);
    // Its thread may have to begin first. If that takes longer, the test tries again.
    std::thread::sleep(Duration::from_millis(50));
    tell(descriptor);
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn who_ends_by_itself_is_not_kept_for_its_copies() {
    let gpu = GpuFile::new("ends");
    let mut command = role("ask", Some(&gpu.0));
    // Longer than any test is waited for.
    assert!(command.env("SIMCUDA_COPIES_OUTLIVE_MS", "1000000").output().unwrap().status.success());
}

#[test]
fn before_initialisation_little_works() {
    in_a_process_of_its_own("uninitialised");
}

fn uninitialised() {
    assert_eq!(ask(|out| cuMemAlloc_v2(out, 16)).0, 3);
    assert_eq!(cuCtxSynchronize(), 3);
    assert_eq!(given(|out| cuDriverGetVersion(out)), 13050);
    assert_eq!(ask::<usize>(|out| cuGetErrorName(700, out)).0, 0);
    assert_eq!(ask::<usize>(|out| cuGetErrorName(12345, out)).0, 1);
    assert_eq!(cuInit(1), 1);
    assert_eq!(cuInit(0), 0);
    assert_eq!(cuCtxSynchronize(), 201);
}

#[test]
fn a_forked_child_has_no_driver() {
    in_a_process_of_its_own("fork");
}

fn fork() {
    let _session = Session::begin();
    // SAFETY: the child only makes calls that answer from one flag, and ends at once.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = cuCtxSynchronize() == 3 && cuInit(0) == 3;
        // SAFETY: ends the child without anything of the parent's being run.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: `status` is a place for the answer.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    alloc(16);
}
