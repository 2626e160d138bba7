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
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use baton_contract::cuda::{CUDA_SUCCESS, CUresult};
use baton_contract::messages::{Channels, MAX_CHANNELS};
use baton_contract::resource_manager::USUAL_TIMESLICE;

use crate::driver::find;

pub(crate) use objects::{follow, pause_what_comes, resume_what_came};
pub(crate) use owners::is_another_librarys;

/// The objects to pause, and the way to do it.
#[derive(Clone, Copy)]
pub(crate) enum Own {
    /// A process of the simulated driver.
    Simulated(Simulated),
    /// The objects that NVIDIA's driver has made on the GPU with this UUID.
    ResourceManager([u8; 16]),
}

/// The simulated driver's own functions for it.
#[derive(Clone, Copy)]
pub(crate) struct Simulated {
    process: c_uint,
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
/// True if the coordinator was told anything yet.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

impl Own {
    /// Finds out which driver this is, after `cuInit`.
    pub(crate) fn find(gpu: [u8; 16]) -> Self {
        Simulated::find(gpu).map_or(Self::ResourceManager(gpu), Self::Simulated)
    }

    /// The objects as the coordinator is told.
    fn told(self) -> (Channels, Option<BorrowedFd<'static>>) {
        let gpu = match self {
            Self::Simulated(own) => return (Channels::Simulated { process: own.process }, None),
            Self::ResourceManager(gpu) => gpu,
        };
        TOLD.store(objects::changes(), Ordering::SeqCst);
        match objects::of_gpu(gpu).filter(|(objects, _)| objects.channels.len() <= MAX_CHANNELS) {
            Some((objects, control)) => (Channels::ResourceManager(objects), Some(control)),
            None => (Channels::None, None),
        }
    }

    /// The report to the coordinator, with the count of objects that were about to be made by then: at first, and when that has changed.
    pub(crate) fn news(self) -> Option<(Channels, u32, Option<BorrowedFd<'static>>)> {
        // Read before the objects are: so objects that are made later are not taken for known.
        let begun = objects::begun();
        let has_changed =
            TOLD.load(Ordering::SeqCst) != objects::changes() || TOLD_BEGUN.load(Ordering::SeqCst) != begun;
        let is_first = !IS_TOLD.swap(true, Ordering::Relaxed);
        (is_first || matches!(self, Self::ResourceManager(_)) && has_changed).then(|| self.all_since(begun))
    }

    /// The report to a coordinator that knows nothing yet.
    pub(crate) fn all(self) -> (Channels, u32, Option<BorrowedFd<'static>>) {
        self.all_since(objects::begun())
    }

    fn all_since(self, begun: u32) -> (Channels, u32, Option<BorrowedFd<'static>>) {
        TOLD_BEGUN.store(begun, Ordering::SeqCst);
        let (channels, descriptor) = self.told();
        (channels, begun, descriptor)
    }

    /// Resumes our work, even if another process paused it, with the usual time slice.
    pub(crate) fn resume(self) {
        let coordinators = COORDINATORS.load(Ordering::Relaxed);
        match self {
            // SAFETY: our own number.
            Self::Simulated(own) => unsafe {
                // Each coordinator may have paused and descheduled it, which is one count there.
                for _ in 0..2 * coordinators {
                    (own.resume)(own.process);
                }
                (own.set_slice)(own.process, USUAL_TIMESLICE);
            },
            Self::ResourceManager(gpu) => {
                if let Some((objects, control)) = objects::of_gpu(gpu) {
                    // If this is refused, calls wait for ever, as they do when a GPU is lost.
                    let _ = objects.restore(control, coordinators);
                    let _ = objects.set_timeslice(control, USUAL_TIMESLICE);
                }
            }
        }
    }
}

impl Simulated {
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
        (unsafe { get(&gpu, &mut process) } == CUDA_SUCCESS).then_some(Self { process, resume, set_slice })
    }
}
