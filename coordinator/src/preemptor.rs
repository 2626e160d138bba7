//! The preemptor: takes tenants' work off the GPU, in the middle of a kernel, and puts it back.
//!
//! Each takes the driver about a millisecond, so it happens in a thread of its own, one after the other in the order
//! it was asked for.

use std::ffi::c_uint;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use baton_contract::cuda::{CUDA_ERROR_NOT_SUPPORTED, CUresult};
use baton_contract::messages::Channels;
use libloading::Library;

use crate::arbiter::TenantId;
use crate::gpu::{GpuError, check};
use crate::wake::Waker;

/// How a driver does it. A number that is no process's is the driver's to refuse; that it is the tenant's own is believed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pauser {
    simulated: Option<Simulated>,
}

/// The simulated driver's own functions for it.
#[derive(Clone, Copy, Debug)]
struct Simulated {
    pause: unsafe extern "C" fn(c_uint) -> CUresult,
    resume: unsafe extern "C" fn(c_uint) -> CUresult,
}

/// Work on the GPU, or off it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Off the GPU, wherever it is.
    Pause,
    /// On it again, as if nothing had been.
    Resume,
}

impl Pauser {
    /// What a driver offers.
    pub fn of(driver: &Library) -> Self {
        // SAFETY: the simulated driver gives these names this signature, and no other driver has them.
        let find = |name: &[u8]| unsafe { driver.get(name) }.ok().map(|found| *found);
        let both = find(b"simcudaPauseProcess").zip(find(b"simcudaResumeProcess"));
        Self { simulated: both.map(|(pause, resume)| Simulated { pause, resume }) }
    }

    fn carry_out(self, wish: Wish, channels: &Channels) -> Result<(), GpuError> {
        let Channels::Simulated { process } = *channels;
        let Some(simulated) = self.simulated else {
            return Err(GpuError::Call { call: "pausing", code: CUDA_ERROR_NOT_SUPPORTED });
        };
        // SAFETY: any number may be asked for.
        unsafe {
            match wish {
                Wish::Pause => check("simcudaPauseProcess", (simulated.pause)(process)),
                Wish::Resume => check("simcudaResumeProcess", (simulated.resume)(process)),
            }
        }
    }
}

struct Job {
    tenant: TenantId,
    wish: Wish,
    channels: Channels,
}

/// What became of a wish.
#[derive(Debug)]
pub struct Preempted {
    /// Whose work it was about.
    pub tenant: TenantId,
    /// What was to be done.
    pub wish: Wish,
    /// How long the driver took.
    pub time: Duration,
    /// Whether it is done.
    pub result: Result<(), GpuError>,
}

/// The end that the server holds.
pub struct Preemptor(Sender<Job>);

impl Preemptor {
    /// Starts the thread. Reports go to `reports`, and `waker` is woken for each.
    pub fn start(pauser: Pauser, reports: Sender<Preempted>, waker: Waker) -> Self {
        let (sender, jobs) = channel::<Job>();
        thread::Builder::new()
            .name("preemptor".to_owned())
            .spawn(move || {
                for Job { tenant, wish, channels } in jobs {
                    let start = Instant::now();
                    let result = pauser.carry_out(wish, &channels);
                    // The server is gone only when the process is about to end.
                    let _ = reports.send(Preempted { tenant, wish, time: start.elapsed(), result });
                    waker.wake();
                }
            })
            .expect("a thread can be started while the coordinator starts");
        Self(sender)
    }

    /// Asks for it.
    pub fn submit(&self, tenant: TenantId, wish: Wish, channels: Channels) {
        // The thread lives as long as its sender: it only ends when this value is dropped.
        let _ = self.0.send(Job { tenant, wish, channels });
    }
}
