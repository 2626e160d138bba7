//! Tests of the shared GPU, and of its locks.
#![allow(unsafe_code, reason = "fork")]

use std::os::fd::AsFd as _;
use std::time::Instant;

use super::*;

fn gpu() -> Gpu {
    Gpu::open(None, 100 << 20, None).unwrap()
}

fn file() -> OwnedFd {
    rustix::fs::memfd_create("handle", MemfdFlags::CLOEXEC).unwrap()
}

impl Table {
    /// As if a process had been killed after the first store of a change by so much.
    fn drift(&self, bytes: u64) {
        self.private_in_all().fetch_add(bytes, Relaxed);
        self.shared_bytes().fetch_add(bytes, Relaxed);
    }
}

impl Gpu {
    /// The same private GPU as a second process would see it.
    pub(super) fn once_more(&self, slice: Option<Duration>) -> Gpu {
        let file = self.file.try_clone().unwrap();
        let table = Table(SharedWords::map(&file, WORDS).unwrap());
        let mut gpu = Gpu {
            file,
            table,
            slot: usize::MAX,
            held: Mutex::default(),
            private: true,
            number: 0,
            ordinal: 0,
            new_memory: 0,
        };
        gpu.slot = gpu.enter(slice).unwrap();
        gpu
    }
}

#[test]
fn memory_is_charged_and_given_back() {
    let gpu = gpu();
    gpu.charge(60 << 20).unwrap();
    assert_eq!(gpu.free(), 40 << 20);
    assert_eq!(gpu.charge(41 << 20), Err(Status::OUT_OF_MEMORY));
    gpu.discharge(60 << 20);
    assert_eq!(gpu.free(), 100 << 20);
}

#[test]
fn memory_is_counted_right_although_a_process_was_killed_between_two_stores() {
    let (gpu, file) = (gpu(), file());
    gpu.charge(30 << 20).unwrap();
    let record = gpu.share(10 << 20, FileId::default()).unwrap();
    gpu.hold(record, 10 << 20, file.as_fd()).unwrap();
    for drift in [40u64 << 20, (40u64 << 20).wrapping_neg()] {
        gpu.table.drift(drift);
        assert_ne!(gpu.free(), 70 << 20);
        gpu.table.recount();
        assert_eq!(gpu.free(), 70 << 20);
    }
}

#[test]
fn shared_memory_counts_once_until_its_last_holder_lets_go() {
    let (gpu, file) = (gpu(), file());
    gpu.charge(10 << 20).unwrap();
    let record = gpu.share(10 << 20, FileId::default()).unwrap();
    let again = gpu.hold(record, 10 << 20, file.as_fd()).unwrap();
    assert_eq!(again, record);
    assert_eq!(gpu.free(), 90 << 20);
    gpu.let_go(record);
    assert_eq!(gpu.free(), 90 << 20);
    gpu.let_go(again);
    assert_eq!(gpu.free(), 100 << 20);
}

#[test]
fn memory_that_nobody_held_for_a_while_is_charged_again_to_who_takes_it() {
    let (gpu, file) = (gpu(), file());
    gpu.charge(10 << 20).unwrap();
    let record = gpu.share(10 << 20, FileId::default()).unwrap();
    gpu.let_go(record);
    assert_eq!(gpu.free(), 100 << 20);
    let revived = gpu.hold(record, 10 << 20, file.as_fd()).unwrap();
    assert_eq!(revived.id, record.id);
    assert_eq!(gpu.free(), 90 << 20);
}

#[test]
fn memory_taken_up_again_counts_once_however_many_take_it() {
    let (gpu, file) = (gpu(), file());
    gpu.charge(10 << 20).unwrap();
    let record = gpu.share(10 << 20, FileId::default()).unwrap();
    gpu.let_go(record);
    // Its old place is taken meanwhile.
    gpu.charge(10 << 20).unwrap();
    let other = gpu.share(10 << 20, FileId::default()).unwrap();
    assert_eq!(other.at, record.at);
    let first = gpu.hold(record, 10 << 20, file.as_fd()).unwrap();
    assert_eq!(gpu.hold(record, 10 << 20, file.as_fd()).unwrap(), first);
    assert_eq!(gpu.free(), 80 << 20);
    gpu.let_go(first);
    gpu.let_go(first);
    assert_eq!(gpu.free(), 80 << 20, "its descriptor is known now");
    drop(file);
    // A process that another test starts has all descriptors for a moment.
    while gpu.free() != 90 << 20 {
        std::thread::yield_now();
    }
}

#[test]
fn each_process_has_a_number_of_its_own_and_is_listed_with_what_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let gpu = Gpu::open(Some(&folder.path().join("gpu")), 100 << 20, None).unwrap();
    gpu.charge(30 << 20).unwrap();
    gpu.share(10 << 20, FileId::default()).unwrap();
    assert_ne!(gpu.number(), 0);
    assert_eq!(gpu.processes(), [(std::process::id(), 30 << 20)]);
}

#[test]
fn one_that_is_stopped_in_the_middle_of_a_change_holds_up_nobody() {
    let path = std::env::temp_dir().join(format!("simcuda-stopped-{}", std::process::id()));
    let gpu = Gpu::open(Some(&path), 64 << 20, None).unwrap();
    let file = rustix::fs::open(&path, rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).unwrap();
    // SAFETY: the child makes system calls only, and ends by one.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let locked = lock(&file, TABLE_BYTE, Lock::Take);
        // SAFETY: of this process alone.
        unsafe { libc::raise(libc::SIGSTOP) };
        let unlocked = lock(&file, TABLE_BYTE, Lock::Release);
        // SAFETY: as above.
        unsafe { libc::pause() };
        // SAFETY: ends without what the parent would do at its end.
        unsafe { libc::_exit(i32::from(locked.and(unlocked).is_err())) };
    }
    let mut status = 0;
    // SAFETY: our own child, and a number that lives over the call.
    unsafe { libc::waitpid(child, &mut status, libc::WUNTRACED) };
    assert!(libc::WIFSTOPPED(status));
    let start = Instant::now();
    assert_eq!(gpu.free(), 64 << 20);
    assert!(start.elapsed() < Duration::from_secs(60));
    // SAFETY: as above. It is stopped again, though it has gone on meanwhile.
    unsafe { libc::waitpid(child, &mut status, libc::WUNTRACED) };
    assert!(libc::WIFSTOPPED(status));
    // SAFETY: as above.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, &mut status, 0);
    }
    let _ = std::fs::remove_file(&path);
}
