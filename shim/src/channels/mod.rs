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
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use baton_contract::cuda::{CUDA_SUCCESS, CUdevice, CUresult};
use baton_contract::messages::{Channels, Elsewhere, MAX_CHANNELS, MAX_ELSEWHERE, PreemptionReport};
use baton_contract::resource_manager::{Objects, USUAL_TIMESLICE};

use crate::driver::{api, find};

pub(crate) use objects::{follow, pause_what_comes, resume_what_came};
pub(crate) use owners::is_another_librarys;

/// The objects to pause, and the way to do it.
#[derive(Clone, Copy)]
pub(crate) enum Own {
    /// A process of the simulated driver.
    Simulated(Simulated),
    /// The objects that NVIDIA's driver has made; the GPU with this UUID is shared.
    ResourceManager([u8; 16]),
}

/// The simulated driver's own functions for it.
#[derive(Clone, Copy)]
pub(crate) struct Simulated {
    gpu: [u8; 16],
    process: c_uint,
    get: unsafe extern "C" fn(*const [u8; 16], *mut c_uint) -> CUresult,
    resume: unsafe extern "C" fn(c_uint) -> CUresult,
    set_slice: unsafe extern "C" fn(c_uint, u64) -> CUresult,
}

/// The number of coordinators that this process has had: each may have paused it once, and ended before it resumed it. More resumes than
/// pauses do nothing.
static COORDINATORS: AtomicU32 = AtomicU32::new(1);

/// Notes that another coordinator has taken over.
pub(crate) fn another_coordinator() {
    COORDINATORS.fetch_add(1, Ordering::Relaxed);
}

/// The count of changes of these objects when the coordinator was last told.
static TOLD: AtomicU32 = AtomicU32::new(0);
/// The count of objects that were about to be made by then.
static TOLD_BEGUN: AtomicU32 = AtomicU32::new(0);
/// A bit for each GPU that it was told of then.
static TOLD_GPUS: AtomicU64 = AtomicU64::new(0);
/// True if the coordinator was told anything yet.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// The report of the objects, and the control device.
type Report = (PreemptionReport, Option<BorrowedFd<'static>>);

impl Own {
    /// Finds out which driver this is, after `cuInit`.
    pub(crate) fn find(gpu: [u8; 16]) -> Self {
        Simulated::find(gpu).map_or(Self::ResourceManager(gpu), Self::Simulated)
    }

    /// The objects as the coordinator is told.
    fn told(self, gpus: u64) -> (Channels, Elsewhere, Option<BorrowedFd<'static>>) {
        TOLD.store(objects::changes(), Ordering::SeqCst);
        TOLD_GPUS.store(gpus, Ordering::SeqCst);
        let gpu = match self {
            Self::Simulated(own) => {
                let channels = own.elsewhere(gpus).map(|process| (process, 0)).collect();
                return (Channels::Simulated { process: own.process }, Elsewhere { channels }, None);
            }
            Self::ResourceManager(gpu) => gpu,
        };
        let none = (Channels::None, Elsewhere::default(), None);
        let Some((here, others, control)) = objects::of_gpus(gpu) else { return none };
        let of_gpu = |one: &Objects| one.channels.iter().map(|channel| (one.subdevice, *channel)).collect::<Vec<_>>();
        let elsewhere: Vec<(u32, u32)> = others.iter().flat_map(of_gpu).collect();
        if here.channels.len() > MAX_CHANNELS || elsewhere.len() > MAX_ELSEWHERE {
            return none;
        }
        (Channels::ResourceManager(here), Elsewhere { channels: elsewhere }, Some(control))
    }

    /// The report to the coordinator, with the count of objects that were about to be made by then: at first, and when that has changed.
    /// `gpus`: a bit for each GPU that this process uses.
    pub(crate) fn news(self, gpus: u64) -> Option<Report> {
        // Read before the objects are: so objects that are made later are not taken for known.
        let begun = objects::begun();
        let has_changed = match self {
            Self::Simulated(_) => TOLD_GPUS.load(Ordering::SeqCst) != gpus,
            Self::ResourceManager(_) => {
                TOLD.load(Ordering::SeqCst) != objects::changes() || TOLD_BEGUN.load(Ordering::SeqCst) != begun
            }
        };
        let is_first = !IS_TOLD.swap(true, Ordering::Relaxed);
        (is_first || has_changed).then(|| self.all_since(begun, gpus))
    }

    /// The report to a coordinator that knows nothing yet.
    pub(crate) fn all(self, gpus: u64) -> Report {
        self.all_since(objects::begun(), gpus)
    }

    fn all_since(self, begun: u32, gpus: u64) -> Report {
        TOLD_BEGUN.store(begun, Ordering::SeqCst);
        let (channels, elsewhere, descriptor) = self.told(gpus);
        (PreemptionReport::Channels { channels, begun, elsewhere }, descriptor)
    }

    /// Resumes our work on these GPUs, even if another process paused it, with the usual time slice.
    pub(crate) fn resume(self, gpus: u64) {
        let coordinators = COORDINATORS.load(Ordering::Relaxed);
        match self {
            // SAFETY: our own number.
            Self::Simulated(own) => unsafe {
                // Each coordinator may have paused and descheduled it, which is one count there.
                for process in core::iter::once(own.process).chain(own.elsewhere(gpus)) {
                    for _ in 0..2 * coordinators {
                        (own.resume)(process);
                    }
                    (own.set_slice)(process, USUAL_TIMESLICE);
                }
            },
            Self::ResourceManager(_) => {
                // Also if there are some now that cannot be paused together with the others.
                for (objects, control) in objects::all() {
                    // If this is refused, calls wait for ever, as they do when a GPU is lost.
                    let _ = objects.restore(control, coordinators);
                    let _ = objects.set_timeslice(control, USUAL_TIMESLICE);
                }
            }
        }
    }
}

impl Simulated {
    /// The numbers of this process on the others of these GPUs.
    fn elsewhere(self, gpus: u64) -> impl Iterator<Item = u32> {
        let uuids =
            (0..u64::BITS as CUdevice).filter(move |device| gpus & api::bit(*device) != 0).filter_map(api::uuid);
        uuids.filter(move |gpu| *gpu != self.gpu).filter_map(move |gpu| {
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
        (unsafe { get(&gpu, &mut process) } == CUDA_SUCCESS).then_some(Self { gpu, process, get, resume, set_slice })
    }
}
