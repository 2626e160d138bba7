//! The preemptor: takes tenants' work off the GPU, in the middle of a kernel, and puts it back.
//!
//! Each takes the driver about a millisecond, so it happens in a thread of its own, one after the other in the order
//! it was asked for.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use baton_contract::cuda::CUdeviceptr;
use baton_contract::resource_manager::{self, Objects};

use crate::device::gpu::{Gpu, GpuError, Stream, check};
use crate::device::pauser::Pauser;
use crate::device::wake::Waker;
use baton_policy::arbiter::TenantId;

/// What of a tenant can be taken off the GPU.
#[derive(Clone, Debug)]
pub enum PreemptTarget {
    /// A process of the simulated driver by its number there, and by that which the system has for the tenant's: nothing is done if these
    /// are two processes. One that cannot be seen from here has no number.
    Simulated(u32, Option<i32>),
    /// Objects of the resource manager of NVIDIA's driver, and the tenant's control device. The driver refuses objects
    /// that do not belong to that, so a tenant can only name its own.
    ResourceManager(Objects, Arc<OwnedFd>),
}

impl PreemptTarget {
    /// What of this is not in another one, which is paused already; none if that is nothing.
    pub fn beyond(&self, other: Option<&Self>) -> Option<Self> {
        match (self, other) {
            (Self::ResourceManager(objects, control), Some(Self::ResourceManager(known, _))) => {
                let mut rest = objects.clone();
                rest.channels.retain(|channel| !known.channels.contains(channel));
                (!rest.channels.is_empty()).then(|| Self::ResourceManager(rest, Arc::clone(control)))
            }
            (Self::Simulated(process, _), Some(Self::Simulated(known, _))) if process == known => None,
            _ => Some(self.clone()),
        }
    }
}

/// What is to be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreemptCommand {
    /// To find out whether it can be paused. It is not.
    Try,
    /// Off the GPU, wherever it is.
    Preempt,
    /// On it again, as if nothing had been.
    Resume,
    /// No more time for its compute work. Not as sure as [`PreemptCommand::Preempt`], and easier on others.
    Deschedule,
    /// The end of that.
    Reschedule,
    /// So many microseconds in a row for its compute work, while other processes have work too.
    Slice(u64),
    /// The tenant's process has ended: off the GPU for good, and nothing of it is kept alive by us.
    End,
}

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
pub enum PreemptError {
    /// The simulated driver's answer.
    #[error(transparent)]
    Simulated(#[from] GpuError),
    /// NVIDIA's.
    #[error(transparent)]
    ResourceManager(#[from] resource_manager::Error),
    /// Nothing can be paused with this driver.
    #[error("{}", baton_messages::driver_cannot_pause())]
    Unknown,
    /// The tenant offers what is not on this GPU.
    #[error("{}", baton_messages::work_on_another_gpu())]
    OtherGpu,
    /// Or another process's.
    #[error("{}", baton_messages::work_of_another_process())]
    OtherProcess,
}

impl Pauser {
    fn carry_out(self, command: PreemptCommand, target: &PreemptTarget) -> Result<(), PreemptError> {
        match target {
            PreemptTarget::Simulated(process, pid) => {
                let simulated = self.simulated.ok_or(PreemptError::Unknown)?;
                if command == PreemptCommand::End {
                    // It is gone already, and all that it had.
                    return Ok(());
                }
                if !simulated.is(*process, *pid)? {
                    return Err(PreemptError::OtherProcess);
                }
                // SAFETY: any number may be asked for.
                Ok(unsafe {
                    match command {
                        PreemptCommand::Preempt | PreemptCommand::Deschedule => {
                            check("simcudaPauseProcess", (simulated.pause)(*process))
                        }
                        PreemptCommand::Try | PreemptCommand::Resume | PreemptCommand::Reschedule => {
                            check("simcudaResumeProcess", (simulated.resume)(*process))
                        }
                        PreemptCommand::Slice(micros) => {
                            check("simcudaSetTimeSlice", (simulated.set_slice)(*process, micros))
                        }
                        PreemptCommand::End => Ok(()),
                    }
                }?)
            }
            PreemptTarget::ResourceManager(objects, control) => {
                if command == PreemptCommand::Try && objects.gpu(control.as_fd())? != self.gpu {
                    return Err(PreemptError::OtherGpu);
                }
                Ok(match command {
                    PreemptCommand::Preempt | PreemptCommand::End => objects.pause(control.as_fd()),
                    PreemptCommand::Try | PreemptCommand::Resume => objects.resume(control.as_fd()),
                    PreemptCommand::Deschedule => objects.deschedule(control.as_fd()),
                    PreemptCommand::Reschedule => objects.reschedule(control.as_fd()),
                    PreemptCommand::Slice(micros) => objects.set_timeslice(control.as_fd(), micros),
                }?)
            }
        }
    }
}

struct Job {
    tenant: TenantId,
    command: PreemptCommand,
    target: PreemptTarget,
}

/// What became of a command.
#[derive(Debug)]
pub struct Preempted {
    /// Whose work it was about.
    pub tenant: TenantId,
    /// What was to be done.
    pub command: PreemptCommand,
    /// How long the driver took.
    pub time: Duration,
    /// Whether it is done.
    pub result: Result<(), PreemptError>,
}

/// The end that the server holds.
pub struct Preemptor(Sender<Job>);

/// Work of our own, as little as there can be.
struct Nudge {
    gpu: Gpu,
    stream: Stream,
    at: CUdeviceptr,
}

/// How much [`Nudge`] writes.
const NUDGE: u64 = 16;

impl Nudge {
    fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        Ok(Self { gpu: gpu.clone(), stream: gpu.stream()?, at: gpu.allocate(NUDGE)? })
    }

    /// Has the GPU look who may run: what was descheduled does not go on by itself ([`Objects::reschedule`]).
    fn give(&self) {
        // SAFETY: our own memory, of this size, that nobody reads.
        let _ = unsafe { self.gpu.fill(self.at, 0, NUDGE, self.stream) };
    }
}

impl Preemptor {
    /// Starts the thread. Reports go to `reports`, and `waker` is woken for each.
    ///
    /// # Errors
    ///
    /// When the GPU has nothing left for it.
    pub fn start(gpu: &Gpu, reports: Sender<Preempted>, waker: Waker) -> Result<Self, GpuError> {
        let (sender, jobs) = channel::<Job>();
        let (pauser, nudge) = (gpu.pauser, Nudge::new(gpu)?);
        thread::Builder::new()
            .name("preemptor".to_owned())
            .spawn(move || {
                let entered = nudge.gpu.enter();
                for Job { tenant, command, target } in jobs {
                    let start = Instant::now();
                    let result = pauser.carry_out(command, &target);
                    if command == PreemptCommand::Reschedule && entered.is_ok() {
                        nudge.give();
                    }
                    // Before the report: the last one to have the control device open lets go of all that the process had.
                    drop(target);
                    // The server is gone only when the process is about to end.
                    let _ = reports.send(Preempted { tenant, command, time: start.elapsed(), result });
                    waker.wake();
                }
            })
            .expect("a thread can be started while the coordinator starts");
        Ok(Self(sender))
    }

    /// Asks for it.
    pub fn submit(&self, tenant: TenantId, command: PreemptCommand, target: PreemptTarget) {
        // The thread lives as long as its sender: it only ends when this value is dropped.
        let _ = self.0.send(Job { tenant, command, target });
    }
}
