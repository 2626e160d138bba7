//! This process's work that can be taken off the GPU at any point.
//!
//! The coordinator is told, and pauses and resumes it. The shim does so itself in two cases: channels that are made while the coordinator
//! may have paused this process are paused at once, and when there is no coordinator any more they are resumed.
//!
//! - `ioctl`: sees the objects that NVIDIA's driver makes and opens. `objects`, `owners`: remember them.

mod ioctl;
mod objects;
mod owners;

use core::ffi::{c_uint, c_void};
use core::sync::atomic::{AtomicU32, Ordering};
use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use baton_contract::cuda::{CUDA_SUCCESS, CUdevice, CUresult};
use baton_contract::messages::{Channels, Elsewhere, MAX_CHANNELS, MAX_ELSEWHERE, PreemptionReport};
use baton_contract::resource_manager::{Objects, USUAL_TIMESLICE};

use crate::driver::{api, find};
use crate::sys::by_device::places;

pub(crate) use objects::{follow, pause_what_comes, resume_what_came};
pub(crate) use owners::is_another_librarys;

/// Our objects on a GPU, and what its coordinator was told of them.
pub(crate) struct Own {
    gpu: [u8; 16],
    driver: Driver,
    told: Mutex<Option<Told>>,
}

/// What a coordinator was told.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Told {
    /// The count of changes of these objects.
    changes: u32,
    /// The count of objects that were about to be made.
    begun: u32,
    /// The other GPUs: a bit for each.
    others: u64,
}

/// The way to pause objects.
#[derive(Clone, Copy)]
enum Driver {
    /// A process of the simulated driver.
    Simulated(Simulated),
    /// The objects that NVIDIA's driver has made.
    ResourceManager,
}

/// The simulated driver's own functions for it.
#[derive(Clone, Copy)]
struct Simulated {
    process: c_uint,
    get: unsafe extern "C" fn(*const [u8; 16], *mut c_uint) -> CUresult,
    resume: unsafe extern "C" fn(c_uint) -> CUresult,
    set_slice: unsafe extern "C" fn(c_uint, u64) -> CUresult,
}

/// The number of coordinators that this process has had, of all its GPUs: each may have paused it once, and ended before it resumed it.
/// More resumes than pauses do nothing.
static COORDINATORS: AtomicU32 = AtomicU32::new(0);

/// Notes that a GPU has a coordinator, the first or another one.
pub(crate) fn another_coordinator() {
    COORDINATORS.fetch_add(1, Ordering::Relaxed);
}

/// The report of the objects, and the control device.
type Report = (PreemptionReport, Option<BorrowedFd<'static>>);

impl Own {
    /// Finds out which driver this is, after `cuInit`.
    pub(crate) fn find(gpu: [u8; 16]) -> Self {
        let driver = Simulated::find(gpu).map_or(Driver::ResourceManager, Driver::Simulated);
        Self { gpu, driver, told: Mutex::new(None) }
    }

    /// The objects as the coordinator is told, with those on the `others`.
    fn objects(&self, others: u64) -> (Channels, Elsewhere, Option<BorrowedFd<'static>>) {
        if let Driver::Simulated(own) = self.driver {
            let channels = own.on(others).map(|process| (process, 0)).collect();
            return (Channels::Simulated { process: own.process }, Elsewhere { channels }, None);
        }
        let none = (Channels::None, Elsewhere::default(), None);
        let Some((here, others, control)) = objects::of_gpus(self.gpu, &uuids(others)) else { return none };
        let of_gpu = |one: &Objects| one.channels.iter().map(|channel| (one.subdevice, *channel)).collect::<Vec<_>>();
        let elsewhere: Vec<(u32, u32)> = others.iter().flat_map(of_gpu).collect();
        if here.channels.len() > MAX_CHANNELS || elsewhere.len() > MAX_ELSEWHERE {
            return none;
        }
        (Channels::ResourceManager(here), Elsewhere { channels: elsewhere }, Some(control))
    }

    /// The report to the coordinator, with the count of objects that were about to be made by then: at first, and when that has changed.
    /// `begun` is that count, and `others` has a bit for each other GPU that this process uses.
    pub(crate) fn news(&self, begun: u32, others: u64) -> Option<Report> {
        let known = *self.told();
        let has_changed = known.is_none_or(|known| match self.driver {
            Driver::Simulated(_) => known.others != others,
            Driver::ResourceManager => known != Told { changes: objects::changes(), begun, others },
        });
        has_changed.then(|| self.all(begun, others))
    }

    /// The report to a coordinator that knows nothing yet. `begun` was read before: so objects that are made later are not taken for
    /// known.
    pub(crate) fn all(&self, begun: u32, others: u64) -> Report {
        *self.told() = Some(Told { changes: objects::changes(), begun, others });
        let (channels, elsewhere, descriptor) = self.objects(others);
        (PreemptionReport::Channels { channels, begun, elsewhere }, descriptor)
    }

    fn told(&self) -> MutexGuard<'_, Option<Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resumes our work here and on the `others`, even if another process paused it, with the usual time slice.
    pub(crate) fn resume(&self, others: u64) {
        let coordinators = COORDINATORS.load(Ordering::Relaxed);
        match self.driver {
            // SAFETY: our own number.
            Driver::Simulated(own) => unsafe {
                // Each coordinator may have paused and descheduled it, which is one count there.
                for process in core::iter::once(own.process).chain(own.on(others)) {
                    for _ in 0..2 * coordinators {
                        (own.resume)(process);
                    }
                    (own.set_slice)(process, USUAL_TIMESLICE);
                }
            },
            Driver::ResourceManager => {
                // Also if there are some now that cannot be paused together with the others.
                for (objects, control) in objects::of_any(self.gpu, &uuids(others)) {
                    // If this is refused, calls wait for ever, as they do when a GPU is lost.
                    let _ = objects.restore(control, coordinators);
                    let _ = objects.set_timeslice(control, USUAL_TIMESLICE);
                }
            }
        }
    }
}

/// The UUIDs of these GPUs.
fn uuids(gpus: u64) -> Vec<[u8; 16]> {
    places(gpus).filter_map(|device| api::uuid(device as CUdevice)).collect()
}

impl Simulated {
    /// The numbers of this process on these GPUs.
    fn on(self, gpus: u64) -> impl Iterator<Item = u32> {
        uuids(gpus).into_iter().filter_map(move |gpu| {
            let mut process = 0;
            // SAFETY: a UUID and an out-parameter.
            (unsafe { (self.get)(&gpu, &mut process) } == CUDA_SUCCESS).then_some(process)
        })
    }

    /// Finds the simulated driver's functions. `None` if this is another driver.
    fn find(gpu: [u8; 16]) -> Option<Self> {
        type Get = unsafe extern "C" fn(*const [u8; 16], *mut c_uint) -> CUresult;
        type Resume = unsafe extern "C" fn(c_uint) -> CUresult;
        type SetSlice = unsafe extern "C" fn(c_uint, u64) -> CUresult;
        let symbol = |name: &CStr| find::get()?.symbol(name);
        let [get, resume] = [symbol(c"simcudaGetProcessOn")?, symbol(c"simcudaResumeProcess")?];
        let set_slice = symbol(c"simcudaSetTimeSlice")?;
        // SAFETY: the simulated driver gives these names these signatures, and no other driver has them.
        let (get, resume, set_slice) = unsafe {
            (
                core::mem::transmute::<*mut c_void, Get>(get),
                core::mem::transmute::<*mut c_void, Resume>(resume),
                core::mem::transmute::<*mut c_void, SetSlice>(set_slice),
            )
        };
        let mut process = 0;
        // SAFETY: a UUID and an out-parameter.
        (unsafe { get(&gpu, &mut process) } == CUDA_SUCCESS).then_some(Self { process, get, resume, set_slice })
    }
}
