//! Tests whether mappings can be changed while our work is paused.
//!
//! To change them the driver may need a lock that a thread of the program holds inside it while the thread waits for work, and paused work
//! does not end. If that were found out with memory that the program uses, its work could not be resumed: its memory might be half gone.
//! So the first memory that is unmapped after a pause is an unused piece.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use baton_contract::cuda::{
    CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, CUdevice, CUdeviceptr, CUmemAllocationProp,
    CUmemLocation, CUresult,
};
use baton_contract::memory::GRANULE;

use crate::arrival::gpus;
use crate::driver::api;
use crate::memory::access::{Access, give};
use crate::memory::extents::check;
use crate::sys::event::Event;
use crate::sys::thread;

/// The least time between two counts of `ticks` while the call has not come back.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// The piece, and a thread that unmaps it: the control loop has to be left to hear of another coordinator, or that there is none any more.
pub(super) struct Probe {
    piece: Arc<Mutex<Piece>>,
    asked: Sender<()>,
    done: Arc<Event>,
    ticks: &'static AtomicU32,
    /// The time of the last count while the thread unmaps; none if it does not.
    counted: Option<Instant>,
    /// It was to begin while it was under way: that end may be of before the latest pause.
    again: bool,
    /// The milliseconds that the call before took, if it began again after that.
    took_before: u32,
}

impl Probe {
    /// Makes the piece and its thread. `None` if there is no memory left for them. While the call is made, `ticks` counts up the
    /// milliseconds in which it was seen not to come back, from 1. On a busy machine the count stands still whenever the control loop
    /// gets no processor, as the unmapping thread may then get none, and before that thread has begun: so the count tells a call that
    /// waits from one that has yet to be made.
    pub(super) fn new(device: CUdevice, ticks: &'static AtomicU32) -> Option<Self> {
        let (piece, done) = (Arc::new(Mutex::new(Piece::new(device)?)), Arc::new(Event::new()?));
        let (its_piece, its_end) = (Arc::clone(&piece), Arc::clone(&done));
        let (asked, asks) = channel();
        let started = thread::start("baton-probe", move || {
            // Never undone, as in the control loop.
            core::mem::forget(api::Relaxed::enter());
            for () in asks {
                ticks.store(1, Ordering::Release);
                // A refused call did not wait either.
                let _ = lock(&its_piece).unmap();
                its_end.raise();
            }
        });
        started.then_some(Self { piece, asked, done, ticks, counted: None, again: false, took_before: 0 })
    }

    /// True while the piece is being unmapped.
    pub(super) fn is_under_way(&self) -> bool {
        self.counted.is_some()
    }

    /// Maps the piece, if it is not mapped: then there is less to do when our work is paused.
    pub(super) fn make_ready(&self) -> Result<(), CUresult> {
        if self.is_under_way() {
            return Ok(());
        }
        lock(&self.piece).map()
    }

    /// Begins to unmap the piece, now or when an earlier call has come back. Each end can be read at this probe's descriptor.
    pub(super) fn begin(&mut self) {
        self.again = self.is_under_way();
        if !self.again {
            self.counted = Some(Instant::now());
            let _ = self.asked.send(());
        }
    }

    /// Counts the time for which the call has not come back.
    pub(super) fn tick(&mut self) {
        if self.counted.is_some_and(|counted| counted.elapsed() >= TICK) {
            self.counted = Some(Instant::now());
            if self.ticks.load(Ordering::Acquire) != 0 {
                self.ticks.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// The piece is unmapped. Returns the milliseconds that this took; `None` if it begins again.
    pub(super) fn end(&mut self) -> Option<u32> {
        self.done.lower();
        self.counted = None;
        let took = self.ticks.swap(0, Ordering::AcqRel).saturating_sub(1);
        let took = took.max(core::mem::take(&mut self.took_before));
        if self.again {
            self.took_before = took;
            self.begin();
            return None;
        }
        Some(took)
    }
}

impl AsRawFd for Probe {
    fn as_raw_fd(&self) -> RawFd {
        self.done.as_raw_fd()
    }
}

fn lock(piece: &Mutex<Piece>) -> MutexGuard<'_, Piece> {
    piece.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory of the GPU that does not belong to the coordinator.
struct Piece {
    device: CUdevice,
    address: CUdeviceptr,
    memory: u64,
    mapped: bool,
    /// The GPUs that have access, as they have to memory of the program's: a bit for each that the process has taken by then.
    gpus: u64,
}

impl Piece {
    fn new(device: CUdevice) -> Option<Self> {
        let bytes = GRANULE as usize;
        let properties = CUmemAllocationProp {
            kind: CU_MEM_ALLOCATION_TYPE_PINNED,
            handle_types: 0,
            location: CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: device },
            windows: core::ptr::null_mut(),
            flags: [0; 8],
        };
        let (mut address, mut memory) = (0, 0);
        // SAFETY: out-parameters, and a structure of cuda.h's layout that lives over the call.
        unsafe {
            check(api::create(&mut memory, bytes, &properties, 0)).ok()?;
            if check(api::reserve(&mut address, bytes, bytes, 0, 0)).is_err() {
                api::release(memory);
                return None;
            }
        }
        Some(Self { device, address, memory, mapped: false, gpus: 0 })
    }

    fn map(&mut self) -> Result<(), CUresult> {
        if !self.mapped {
            // SAFETY: addresses that were reserved for this, where nothing is mapped.
            check(unsafe { api::map(self.address, GRANULE as usize, 0, self.memory, 0) })?;
            (self.mapped, self.gpus) = (true, 0);
        }
        let (own, all) = (api::bit(self.device), gpus::taken() | api::bit(self.device));
        if self.gpus != all {
            // Not all GPUs can access each other.
            give(self.address, GRANULE, Access::of(all)).or_else(|_| give(self.address, GRANULE, Access::of(own)))?;
            self.gpus = all;
        }
        Ok(())
    }

    fn unmap(&mut self) -> Result<(), CUresult> {
        self.map()?;
        self.mapped = false;
        // SAFETY: mapped as a whole, and the address is used nowhere else.
        check(unsafe { api::unmap(self.address, GRANULE as usize) })
    }
}
