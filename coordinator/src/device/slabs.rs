//! The host pool's memory: memfds, touched in parallel ahead of need, and pinned once.
//!
//! The slabs lie one behind the other in this process, so that an offset of [`baton_books::pool`] is an address. The memory is in files
//! without a name, so that a successor can be given them.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;

use baton_contract::memory::GRANULE;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous};

use crate::device::gpu::{Gpu, GpuError};
use crate::device::wake::Waker;
use baton_books::pool::Run;

/// A slab's size in a large pool.
const SLAB: u64 = 1 << 30;
/// Minimum number of slabs in a smaller pool, so that its first part is ready soon.
const FEWEST: u64 = 16;

/// The pool's memory.
pub struct Slabs {
    base: usize,
    /// The size of each slab.
    pub slab: u64,
    stop: Arc<AtomicBool>,
}

/// A report of the preparing threads.
#[derive(Debug)]
pub enum Prepared {
    /// This slab can be used, and is in this file.
    Slab(u64, OwnedFd),
    /// There will be no more slabs, for this reason.
    Failed(SlabError),
}

/// The reason why a slab cannot be prepared.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SlabError {
    /// The system refused a call.
    #[error("{call}: {why}")]
    System {
        /// The call.
        call: &'static str,
        /// The system's reason.
        why: Errno,
    },
    /// The driver refused to pin it.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The coordinator ends.
    #[error("{}", baton_messages::THE_COORDINATOR_ENDS)]
    Ends,
}

impl Slabs {
    /// Returns the slab size for a pool of this size.
    pub fn size_for(pool: u64) -> u64 {
        (pool / FEWEST).clamp(GRANULE, SLAB) / GRANULE * GRANULE
    }

    /// Reserves addresses and starts to prepare in the background: first the slabs that another coordinator has left. With `bar`, shows the progress on standard error, if that is a
    /// terminal.
    ///
    /// # Errors
    ///
    /// When the system has no addresses left.
    pub fn prepare(
        gpu: &Gpu,
        bytes: u64,
        bar: bool,
        mut left: BTreeMap<u64, OwnedFd>,
        (reports, waker): (Sender<Prepared>, Waker),
    ) -> std::io::Result<Self> {
        let slab = Self::size_for(bytes);
        let count = bytes / slab;
        let base = if count == 0 {
            0
        } else {
            // SAFETY: new addresses of the system's choice, without memory behind them.
            unsafe {
                mmap_anonymous(
                    std::ptr::null_mut(),
                    (count * slab) as usize,
                    ProtFlags::empty(),
                    MapFlags::PRIVATE | MapFlags::NORESERVE,
                )?
            }
            .expose_provenance()
        };
        let stop = Arc::new(AtomicBool::new(false));
        let preparer = Preparer { gpu: gpu.clone(), base, slab, stop: stop.clone() };
        thread::Builder::new().name("slabs".to_owned()).spawn(move || {
            let bar = (bar && std::io::stderr().is_terminal()).then(|| progress(count, slab));
            left.retain(|number, _| *number < count);
            let first: Vec<u64> = left.keys().copied().collect();
            let others = (0..count).filter(|number| !first.contains(number));
            for (done, number) in first.iter().copied().chain(others).enumerate() {
                let prepared = preparer.slab(number, left.remove(&number));
                let report = prepared.map_or_else(Prepared::Failed, |file| Prepared::Slab(number, file));
                let last = matches!(report, Prepared::Failed(_));
                let sent = reports.send(report);
                waker.wake();
                if let Some(bar) = &bar {
                    bar.set_position((done as u64 + 1) * slab);
                }
                if last || sent.is_err() {
                    break;
                }
            }
            if let Some(bar) = bar {
                bar.abandon();
            }
        })?;
        Ok(Self { base, slab, stop })
    }

    /// Returns the address of a run.
    pub fn address(&self, run: Run) -> usize {
        self.base + run.at as usize
    }
}

impl Drop for Slabs {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Shows the ready part of the pool on a terminal.
fn progress(count: u64, slab: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template("host pool [{bar:30}] {bytes} of {total_bytes}").expect("a valid template");
    ProgressBar::new(count * slab).with_style(style.progress_chars("## "))
}

/// Makes an error of a refused call.
fn refused(call: &'static str) -> impl Fn(Errno) -> SlabError {
    move |why| SlabError::System { call, why }
}

struct Preparer {
    gpu: Gpu,
    base: usize,
    slab: u64,
    stop: Arc<AtomicBool>,
}

impl Preparer {
    /// Prepares a slab: the one that was left, as it is, or a new one. Returns its file.
    fn slab(&self, number: u64, left: Option<OwnedFd>) -> Result<OwnedFd, SlabError> {
        let is_new = left.is_none();
        let file = match left {
            Some(file) => file,
            None => memfd_create("baton-pool", MemfdFlags::CLOEXEC).map_err(refused("memfd_create"))?,
        };
        if is_new {
            ftruncate(&file, self.slab).map_err(refused("ftruncate"))?;
        }
        let size = self.slab as usize;
        let address = std::ptr::with_exposed_provenance_mut(self.base + (number * self.slab) as usize);
        // SAFETY: over addresses that `prepare` reserved for this slab, which are not in use yet.
        let mapped = unsafe {
            mmap(address, size, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED, &file, 0)
        };
        let mapped = mapped.map_err(refused("mmap"))?;
        // Where the system gives large pages to shared memory on request, 8 GiB are ready after 2 s instead of 11, and given back in
        // 0.03 s instead of 2.5 (measured on two processors).
        // SAFETY: the mapping of a few lines above; its contents stay as they are.
        let _ = unsafe { madvise(mapped, size, Advice::LinuxHugepage) };
        // A dump of this process contains no tenant's memory.
        // SAFETY: as above.
        let _ = unsafe { madvise(mapped, size, Advice::LinuxDontDump) };
        self.touch(address.expose_provenance(), size)?;
        self.gpu.enter()?;
        // SAFETY: mapped a few lines above, and never unmapped.
        let register = || unsafe { self.gpu.register(address, size) };
        match register().or_else(|_| register()) {
            Ok(()) => {}
            Err(error) if is_new => return Err(error.into()),
            // Its data can be copied all the same.
            Err(error) => baton_messages::warn!(slab_is_not_pinned(size >> 20, error)),
        }
        Ok(file)
    }

    /// Makes the system find memory for the whole range, with several threads: clearing it takes longer than any other step here.
    fn touch(&self, address: usize, size: usize) -> Result<(), SlabError> {
        let threads = thread::available_parallelism().map_or(1, NonZero::get).div_ceil(2).min(8);
        let part = size.div_ceil(threads).next_multiple_of(2 << 20);
        let touch = |start: usize| {
            let end = (start + part).min(size);
            let mut at = start;
            while at < end && !self.stop.load(Ordering::Relaxed) {
                let bytes = (end - at).min(64 << 20);
                let memory = std::ptr::with_exposed_provenance_mut(address + at);
                // SAFETY: within this value's slab; populating changes no contents.
                if unsafe { madvise(memory, bytes, Advice::LinuxPopulateWrite) }.is_err() {
                    // A kernel before 5.14: write to each page.
                    for page in (at..at + bytes).step_by(4096) {
                        let byte = std::ptr::with_exposed_provenance_mut::<u8>(address + page);
                        // The contents stay: another coordinator may have left it.
                        // SAFETY: as above.
                        unsafe { byte.write_volatile(byte.read_volatile()) };
                    }
                }
                at += bytes;
            }
        };
        thread::scope(|scope| (0..size).step_by(part).for_each(|start| drop(scope.spawn(move || touch(start)))));
        if self.stop.load(Ordering::Relaxed) { Err(SlabError::Ends) } else { Ok(()) }
    }
}
