//! One thread of a program that does not go on, while all others do.
//!
//! By ptrace, which is between two threads: so one of ours does all of it. The program has to be a descendant, as far as the system
//! asks for that.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The thread of the shim that hears what the coordinator tells it.
pub const CONTROL: &str = "baton";
/// The one that tries whether mappings can be changed.
pub const PROBE: &str = "baton-probe";

/// For how long a thread is waited for that is about to be there.
const LIMIT: Duration = Duration::from_secs(60);
/// A stop at a call.
const AT_CALL: i32 = libc::SIGTRAP | 0x80;

/// A thread that is held, until this is dropped.
#[must_use]
pub struct Held {
    over: Option<Sender<()>>,
    tracer: Option<JoinHandle<io::Result<()>>>,
    is_inside: std::sync::Arc<AtomicBool>,
}

impl Held {
    /// From now on the thread of this name does nothing; waits until there is one. None if the process has
    /// ended.
    #[track_caller]
    pub fn at_once(pid: i32, name: &str) -> Option<Self> {
        Self::start(pid, name, |thread, over, _| {
            let _ = over.recv();
            thread.let_go()
        })
    }

    /// The same from when it is about to say that it has done what it was told ([`Self::is_inside`]): others see it inside
    /// of a call that does not come back.
    #[track_caller]
    pub fn in_a_call(pid: i32, name: &str) -> Option<Self> {
        Self::start(pid, name, |thread, over, is_inside| thread.follow(over, is_inside))
    }

    /// True if it has come to that call.
    pub fn is_inside(&self) -> bool {
        self.is_inside.load(Ordering::Acquire)
    }

    #[track_caller]
    fn start(
        pid: i32,
        name: &str,
        work: impl FnOnce(&Traced, &Receiver<()>, &AtomicBool) -> io::Result<()> + Send + 'static,
    ) -> Option<Self> {
        let thread = Traced(thread_of(pid, name)?);
        let (over, its_end) = channel();
        let (begun, has_begun) = channel();
        let is_inside = std::sync::Arc::new(AtomicBool::new(false));
        let its_mark = std::sync::Arc::clone(&is_inside);
        let tracer = std::thread::spawn(move || {
            let seized = thread.seize(pid);
            let is_seized = seized.is_ok();
            let _ = begun.send(seized);
            if is_seized { work(&thread, &its_end, &its_mark) } else { Ok(()) }
        });
        let held = Self { over: Some(over), tracer: Some(tracer), is_inside };
        match has_begun.recv().expect("it says so in any case") {
            Ok(()) => Some(held),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => None,
            Err(error) => panic!("thread {name} of {pid} cannot be held: {error}"),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.over.take());
        let ended = self.tracer.take().map(JoinHandle::join);
        if let Some(Ok(Err(error))) = ended
            && error.raw_os_error() != Some(libc::ESRCH)
            && !std::thread::panicking()
        {
            panic!("a thread was not let go: {error}");
        }
    }
}

/// The thread of that name, which is not the first one: a launcher may be called as a thread of ours. None if the process has ended.
#[track_caller]
fn thread_of(pid: i32, name: &str) -> Option<i32> {
    let end = Instant::now() + LIMIT;
    loop {
        for entry in std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
            let thread = entry.file_name().to_string_lossy().parse().expect("a number");
            let its_name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            if thread != pid && its_name.trim_end() == name {
                return Some(thread);
            }
        }
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        if status.contains("\nState:\tZ") {
            return None;
        }
        assert!(Instant::now() < end, "{pid} has no thread {name}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// True if a process has the first byte of a file locked: the simulated driver locks the table of its GPU so (`sim/src/gpu_file`).
fn has_the_gpus_table(pid: i32) -> io::Result<bool> {
    let locks = std::fs::read_to_string("/proc/locks")?;
    // NUMBER: POSIX ADVISORY WRITE PID FILE FIRST LAST
    Ok(locks.lines().any(|lock| {
        let words: Vec<_> = lock.split_whitespace().collect();
        matches!(words[..], [_, "POSIX", _, _, its_pid, _, "0", "0"] if its_pid.parse() == Ok(pid))
    }))
}

/// A thread that is traced by the one that uses this.
struct Traced(i32);

impl Traced {
    fn request(&self, request: u32, address: usize, data: usize) -> io::Result<()> {
        // SAFETY: requests that take numbers, and one that is given a buffer of the size that it is told.
        let answer = unsafe { libc::ptrace(request as _, self.0, address, data) };
        if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Stops it, but not while its process has the simulated GPU's table: all processes that share the GPU would wait for it. A real
    /// driver's locks are the kernel's, where no thread stops.
    fn seize(&self, pid: i32) -> io::Result<()> {
        self.request(libc::PTRACE_SEIZE, 0, libc::PTRACE_O_TRACESYSGOOD as usize)?;
        loop {
            self.request(libc::PTRACE_INTERRUPT, 0, 0)?;
            self.wait(0)?;
            if !has_the_gpus_table(pid)? {
                return Ok(());
            }
            self.request(libc::PTRACE_CONT, 0, 0)?;
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn let_go(&self) -> io::Result<()> {
        self.request(libc::PTRACE_DETACH, 0, 0)
    }

    /// Its next stop; None if there was none yet, or it has ended.
    fn wait(&self, flags: i32) -> io::Result<Option<i32>> {
        let mut status = 0;
        // SAFETY: writes a number that lives over the call.
        match unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL | flags) } {
            0 => Ok(None),
            found if found < 0 => Err(io::Error::last_os_error()),
            _ if libc::WIFSTOPPED(status) => Ok(Some(status)),
            _ => Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    }

    /// From call to call, until it is about to make the one by which it says that it is done; there it stays.
    fn follow(&self, over: &Receiver<()>, is_inside: &AtomicBool) -> io::Result<()> {
        let is_over = || matches!(over.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected));
        self.request(libc::PTRACE_SYSCALL, 0, 0)?;
        loop {
            let Some(status) = self.wait(libc::WNOHANG)? else {
                if is_over() {
                    self.request(libc::PTRACE_INTERRUPT, 0, 0)?;
                    self.wait(0)?;
                    return self.let_go();
                }
                std::thread::sleep(Duration::from_micros(200));
                continue;
            };
            let is_call = libc::WSTOPSIG(status) == AT_CALL;
            if is_call && self.is_about_to_write()? {
                is_inside.store(true, Ordering::Release);
                let _ = over.recv();
                return self.let_go();
            }
            let signal = if is_call || status >> 16 != 0 { 0 } else { libc::WSTOPSIG(status) };
            self.request(libc::PTRACE_SYSCALL, 0, signal as usize)?;
        }
    }

    fn is_about_to_write(&self) -> io::Result<bool> {
        // SAFETY: numbers, for which zero is a value.
        let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
        self.request(libc::PTRACE_GET_SYSCALL_INFO, size_of_val(&info), (&raw mut info).addr())?;
        // SAFETY: this is the part that such a stop has.
        Ok(info.op == libc::PTRACE_SYSCALL_INFO_ENTRY && unsafe { info.u.entry.nr } == libc::SYS_write as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_the_table_while_it_has_its_byte() {
        let (file, own) = (tempfile::tempfile().expect("a file"), std::process::id().cast_signed());
        let lock = |kind: i32| {
            // SAFETY: numbers, for which zero is a value: the first byte, once there is a length.
            let mut lock: libc::flock = unsafe { std::mem::zeroed() };
            (lock.l_type, lock.l_len) = (kind as _, 1);
            // SAFETY: an open file, and a structure that lives over the call.
            assert_eq!(unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&file), libc::F_SETLK, &lock) }, 0);
            has_the_gpus_table(own).expect("a list of locks")
        };
        assert!(lock(libc::F_WRLCK) && !lock(libc::F_UNLCK));
    }
}
