//! The preemptor: takes tenants' work off the GPU, in the middle of a kernel, and puts it back.
//!
//! Each step takes the driver about a millisecond. So they happen in a thread of their own, one after the other in the order of
//! requests.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use baton_contract::cuda::CUdeviceptr;
use baton_contract::resource_manager::{self, Objects};

use crate::device::gpu::{Gpu, GpuError, Stream, check};
use crate::device::pauser::Pauser;
use crate::device::wake::Waker;
use baton_policy::arbiter::TenantId;

/// The parts of a tenant that can be taken off the GPU.
#[derive(Clone, Debug)]
pub enum PreemptTarget {
    /// A process of the simulated driver, by its number there and by the system's number of the tenant's process: nothing is done if
    /// these are two processes. A process that cannot be seen from here has no number.
    Simulated(u32, Option<i32>),
    /// Objects of the resource manager of NVIDIA's driver, and the tenant's control device. The driver refuses objects
    /// that do not belong to that, so a tenant can only name its own.
    ResourceManager(Objects, Arc<OwnedFd>),
}

impl PreemptTarget {
    /// Returns the parts that are not in `other`, which is paused already; none if there are no such parts.
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

/// A command for these parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreemptCommand {
    /// Finds out whether they can be paused, without pausing them.
    Try,
    /// Takes them off the GPU, at any point of their work.
    Preempt,
    /// Puts them on the GPU again, with no trace of the pause.
    Resume,
    /// As [`PreemptCommand::Resume`], for parts that so many coordinators before may have paused or descheduled too. More resumes than pauses
    /// do nothing.
    ResumeOfAll(u32),
    /// The same, for parts that this coordinator has not touched yet.
    PutBack(u32),
    /// Gives the compute work no more time. Less certain than [`PreemptCommand::Preempt`], and easier on others.
    Deschedule,
    /// Ends a descheduling.
    Reschedule,
    /// Sets the microseconds in a row for the compute work while other processes have work too.
    Slice(u64),
    /// The tenant's process has ended: takes its parts off the GPU for good, and keeps none of them alive here.
    End,
}

impl PreemptCommand {
    /// True if work goes on that may have been off the GPU. It does no harm to carry that out twice, and without it the work never goes on.
    fn puts_back(self) -> bool {
        matches!(self, Self::Resume | Self::ResumeOfAll(_) | Self::PutBack(_) | Self::Reschedule)
    }
}

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum PreemptError {
    /// The simulated driver's answer.
    #[error(transparent)]
    Simulated(#[from] GpuError),
    /// The answer of NVIDIA's resource manager.
    #[error(transparent)]
    ResourceManager(#[from] resource_manager::Error),
    /// Nothing can be paused with this driver.
    #[error("{}", baton_messages::driver_cannot_pause())]
    Unknown,
    /// The tenant names parts on another GPU.
    #[error("{}", baton_messages::work_on_another_gpu())]
    OtherGpu,
    /// The tenant names parts of another process.
    #[error("{}", baton_messages::work_of_another_process())]
    OtherProcess,
}

impl Pauser {
    fn carry_out(self, command: PreemptCommand, target: &PreemptTarget) -> Result<(), PreemptError> {
        match target {
            PreemptTarget::Simulated(process, pid) => {
                let simulated = self.simulated.ok_or(PreemptError::Unknown)?;
                if command == PreemptCommand::End {
                    // The process and all its memory are gone already.
                    return Ok(());
                }
                match simulated.pid(*process)? {
                    found if found == *pid => (),
                    // It was there when this was tried first: the process has just ended, and all its work with it.
                    None if command != PreemptCommand::Try => return Ok(()),
                    _ => return Err(PreemptError::OtherProcess),
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
                        PreemptCommand::ResumeOfAll(before) | PreemptCommand::PutBack(before) => {
                            // It counts both in one.
                            let resume = || check("simcudaResumeProcess", (simulated.resume)(*process));
                            (0..=2 * before).try_for_each(|_| resume())
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
                    PreemptCommand::ResumeOfAll(before) | PreemptCommand::PutBack(before) => (0..=before)
                        .try_for_each(|_| objects.resume(control.as_fd()))
                        .and_then(|()| objects.reschedule(control.as_fd())),
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

/// The outcome of a command.
#[derive(Debug)]
pub struct Preempted {
    /// The tenant.
    pub tenant: TenantId,
    /// The command.
    pub command: PreemptCommand,
    /// The driver's time for it.
    pub time: Duration,
    /// Its success or error.
    pub result: Result<(), PreemptError>,
}

/// The server's end of the thread.
pub struct Preemptor {
    jobs: Sender<Job>,
    /// Commands that are not carried out yet.
    under_way: Arc<AtomicUsize>,
}

/// Work of the coordinator's own, as little as possible.
struct Nudge {
    gpu: Gpu,
    stream: Stream,
    at: CUdeviceptr,
}

/// Bytes that [`Nudge`] writes.
const NUDGE: u64 = 16;

impl Nudge {
    fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        Ok(Self { gpu: gpu.clone(), stream: gpu.stream()?, at: gpu.allocate(NUDGE)? })
    }

    /// Makes the GPU choose anew: descheduled work does not go on by itself ([`Objects::reschedule`]).
    fn give(&self) {
        // SAFETY: memory of this value, of this size, that is never read.
        let _ = unsafe { self.gpu.fill(self.at, 0, NUDGE, self.stream) };
    }
}

impl Preemptor {
    /// Starts the thread. Reports go to `reports`, and `waker` is woken for each.
    ///
    /// # Errors
    ///
    /// When the GPU has no resources left for it.
    pub fn start(gpu: &Gpu, reports: Sender<Preempted>, waker: Waker) -> Result<Self, GpuError> {
        let (sender, jobs) = channel::<Job>();
        let (pauser, nudge) = (gpu.pauser, Nudge::new(gpu)?);
        let under_way = Arc::new(AtomicUsize::new(0));
        let done = Arc::clone(&under_way);
        thread::Builder::new()
            .name("preemptor".to_owned())
            .spawn(move || {
                let entered = nudge.gpu.enter();
                for Job { tenant, command, target } in jobs {
                    let start = Instant::now();
                    baton_faults::reach("coordinator carries out", &command);
                    let carry_out = || pauser.carry_out(command, &target);
                    let result =
                        carry_out().or_else(|error| if command.puts_back() { carry_out() } else { Err(error) });
                    baton_faults::reach("coordinator carried out", &command);
                    if command == PreemptCommand::Reschedule && entered.is_ok() {
                        nudge.give();
                    }
                    // Before the report: the last process to have the control device open lets go of everything that the tenant's
                    // process had.
                    drop(target);
                    // The server is gone only when the process is about to end.
                    let _ = reports.send(Preempted { tenant, command, time: start.elapsed(), result });
                    done.fetch_sub(1, Ordering::Release);
                    waker.wake();
                }
            })
            .expect("a thread can be started while the coordinator starts");
        Ok(Self { jobs: sender, under_way })
    }

    /// Submits a command.
    pub fn submit(&self, tenant: TenantId, command: PreemptCommand, target: PreemptTarget) {
        // The thread lives as long as its sender: it only ends when this value is dropped.
        self.under_way.fetch_add(1, Ordering::Relaxed);
        let _ = self.jobs.send(Job { tenant, command, target });
    }

    /// True if no command is under way.
    pub fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == 0
    }
}
