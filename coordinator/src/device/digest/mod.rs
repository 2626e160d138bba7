//! The page digest: the facts about pages of device memory, computed on the GPU in one pass at the memory's own speed.
//!
//! A scan gives a digest of 128 bits for every page, the same for the same contents at any address, and tells whether it is all zeros.
//! For all pages together it lists those that point into a range of addresses, with their targets, and those that hold words that look
//! like addresses of the host.
//!
//! - `pages.cu`: the computation on the GPU. `pages.ptx` is made from it.
//! - `mix`: the same on the CPU, as [`of_page`], [`granules_in`] and [`has_host_words`].
//! - `pass`: one pass on the device.
//!
//! Digests are keyed: those of different [`Scanner`]s are unrelated.

mod found;
mod mix;
mod pass;

use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

pub use self::found::{Scan, TO_HOST};
pub use self::mix::{Key, granules_in, has_host_words, of_page};
use self::pass::Pass;
use crate::device::gpu::{Gpu, GpuError};
use crate::device::wake::Waker;
pub use baton_books::extents::{PAGE, Page};

/// A scan's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScanId(pub u64);

/// The outcome of a scan.
#[derive(Debug)]
pub struct Scanned {
    /// The scan.
    pub id: ScanId,
    /// The time from its submission to its end.
    pub time: Range<Instant>,
    /// Its findings.
    pub result: Result<Scan, GpuError>,
}

struct Job {
    id: ScanId,
    pages: Vec<u64>,
    range: Range<u64>,
    host: Range<u64>,
}

/// Scans pages, in a queue and a thread of its own, in the order of requests.
pub struct Scanner {
    jobs: Sender<Job>,
    next: u64,
    key: Key,
}

impl Scanner {
    /// Draws a key and starts the thread. Reports go to `reports`, and `waker` is woken for each.
    ///
    /// # Errors
    ///
    /// When the driver does not take the kernel, or has no queue or memory left.
    pub fn start(gpu: &Gpu, reports: &Sender<Scanned>, waker: &Waker) -> Result<Self, GpuError> {
        let key = Key::draw();
        let pass = Pass::new(gpu, key)?;
        let (sender, jobs) = channel();
        let worker = Worker { gpu: gpu.clone(), reports: reports.clone(), waker: waker.clone() };
        thread::Builder::new()
            .name("scanner".to_owned())
            .spawn(move || worker.run(pass, &jobs))
            .expect("a thread can be started while the coordinator starts");
        Ok(Self { jobs: sender, next: 0, key })
    }

    /// Queues a scan of pages, given by their addresses in the coordinator's context. A word in `range` counts as a pointer; an empty
    /// range has none. Any other word within 4 GiB of an address in `host` counts as an address of the host.
    ///
    /// # Safety
    ///
    /// Every address is that of [`PAGE`] bytes of device memory, aligned to 16 bytes, that stay mapped in the
    /// coordinator's context until the report.
    pub unsafe fn scan(&mut self, pages: Vec<u64>, range: Range<u64>, host: Range<u64>) -> ScanId {
        self.next += 1;
        let id = ScanId(self.next);
        // The thread lives as long as this sender.
        let _ = self.jobs.send(Job { id, pages, range, host });
        id
    }

    /// The key of the digests.
    pub fn key(&self) -> Key {
        self.key
    }
}

struct Worker {
    gpu: Gpu,
    reports: Sender<Scanned>,
    waker: Waker,
}

impl Worker {
    fn run(self, mut pass: Pass, jobs: &Receiver<Job>) {
        let entered = self.gpu.enter();
        for Job { id, pages, range, host } in jobs {
            let start = Instant::now();
            // SAFETY: by the contract of `Scanner::scan`.
            let result = entered.clone().and_then(|()| unsafe { pass.run(&pages, &range, &host) });
            let time = start..Instant::now();
            // The server is gone only when the process is about to end.
            let _ = self.reports.send(Scanned { id, time, result });
            self.waker.wake();
        }
    }
}
