//! The preemptor: takes tenants' work off the GPU, in the middle of a kernel, and puts it back.
//!
//! Each step takes the driver about a millisecond. So they happen in a thread of their own, one after the other in the order of
//! requests.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use baton_contract::cuda::CUdeviceptr;
use baton_contract::messages::Elsewhere;
use baton_contract::resource_manager::{self, Objects};
use baton_contract::wire::GpuNumber;

use crate::device::gpu::{Gpu, GpuError, Stream, check};
use crate::device::pauser::Pauser;
use crate::device::pauses::{Pauses, What};
use crate::device::wake::Waker;
use baton_policy::arbiter::TenantId;
use baton_policy::gangs::GangId;

/// The parts of a tenant that can be taken off its GPUs: first those on this one, which are sliced and descheduled too, then those on others.
#[derive(Clone, Debug)]
pub enum PreemptTarget {
    /// A process of the simulated driver.
    Simulated {
        /// Its number there on each GPU.
        processes: Vec<u32>,
        /// The system's number of the tenant's process: nothing is done if this is another one. A process that cannot be seen from here has
        /// no number.
        pid: Option<i32>,
    },
    /// Objects of the resource manager of NVIDIA's driver.
    ResourceManager {
        /// Those on each GPU.
        objects: Vec<Objects>,
        /// The tenant's control device. The driver refuses objects that do not belong to that, so a tenant can only name its own.
        control: Arc<OwnedFd>,
    },
}

impl PreemptTarget {
    /// Of a tenant of the simulated driver.
    pub fn simulated(process: u32, elsewhere: &Elsewhere, pid: Option<i32>) -> Self {
        let processes =
            std::iter::once(process).chain(elsewhere.channels.iter().map(|(process, _)| *process)).collect();
        Self::Simulated { processes, pid }
    }

    /// Of a tenant of NVIDIA's driver.
    pub fn resource_manager(here: Objects, elsewhere: &Elsewhere, control: OwnedFd) -> Self {
        let client = here.client;
        let mut by_gpu = BTreeMap::<u32, Vec<u32>>::new();
        for (subdevice, channel) in &elsewhere.channels {
            by_gpu.entry(*subdevice).or_default().push(*channel);
        }
        let others = by_gpu.into_iter().map(|(subdevice, channels)| Objects {
            client,
            subdevice,
            channels,
            ..Objects::default()
        });
        Self::ResourceManager { objects: std::iter::once(here).chain(others).collect(), control: Arc::new(control) }
    }

    /// Returns the parts that are not in `other`, which is paused already; none if there are no such parts.
    pub fn beyond(&self, other: Option<&Self>) -> Option<Self> {
        let Some(other) = other else { return Some(self.clone()) };
        let mut rest = self.clone();
        let is_any = match (&mut rest, other) {
            (Self::ResourceManager { objects, .. }, Self::ResourceManager { objects: known, .. }) => {
                let known: BTreeSet<u32> = known.iter().flat_map(|one| one.channels.iter().copied()).collect();
                objects.iter_mut().for_each(|one| one.channels.retain(|channel| !known.contains(channel)));
                objects.iter().any(|one| !one.channels.is_empty())
            }
            (Self::Simulated { processes, .. }, Self::Simulated { processes: known, .. }) => {
                processes.retain(|process| !known.contains(process));
                !processes.is_empty()
            }
            _ => true,
        };
        is_any.then_some(rest)
    }
}

/// Does this with one part after the other. All are paused, or none.
fn each<T, E>(parts: &[T], what: What, carry_out: impl Fn(&T, What) -> Result<(), E>) -> Result<(), E> {
    for (done, part) in parts.iter().enumerate() {
        if let Err(error) = carry_out(part, what) {
            if what == What::Pause {
                parts[..done].iter().for_each(|part| drop(carry_out(part, What::Undo)));
            }
            return Err(error);
        }
    }
    Ok(())
}

/// A command for these parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreemptCommand {
    /// Finds out whether those here can be paused, without pausing them.
    Try,
    /// Takes them off the GPU, at any point of their work.
    Preempt,
    /// Puts them on the GPU again, with no trace of the pause.
    Resume,
    /// As [`PreemptCommand::Resume`], for parts that so many coordinators before may have paused or descheduled too. More resumes than pauses
    /// do nothing.
    ResumeOfAll(u32),
    /// The same, for parts that this server has not touched yet.
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

/// The driver's means, and what the preemptors of other GPUs have done.
struct Means {
    pauser: Pauser,
    pauses: Pauses,
    /// The number of the GPU whose server this preemptor belongs to.
    own: GpuNumber,
}

impl Means {
    fn carry_out(
        &self,
        gang: Option<GangId>,
        command: PreemptCommand,
        target: &PreemptTarget,
    ) -> Result<(), PreemptError> {
        let whose = (self.own, gang);
        match target {
            PreemptTarget::Simulated { processes, pid } => {
                let simulated = self.pauser.simulated.ok_or(PreemptError::Unknown)?;
                if command == PreemptCommand::End {
                    // The process and all its memory are gone already.
                    let none =
                        |process: &u32, what| self.pauses.carry_out(whose, (0, *process), what, || Ok(()), || Ok(()));
                    return each(processes, What::End, none);
                }
                for process in processes {
                    match simulated.pid(*process)? {
                        found if found == *pid => (),
                        // It was there when this was tried first: the process has just ended, and all its work with it.
                        None if command != PreemptCommand::Try => return Ok(()),
                        _ => return Err(PreemptError::OtherProcess),
                    }
                }
                // SAFETY: any number may be asked for.
                let pause = |process: &u32| unsafe { check("simcudaPauseProcess", (simulated.pause)(*process)) };
                // SAFETY: as above.
                let resume = |process: &u32| unsafe { check("simcudaResumeProcess", (simulated.resume)(*process)) };
                let carry_out = |process: &u32, what| {
                    self.pauses.carry_out(whose, (0, *process), what, || pause(process), || resume(process))
                };
                let here = processes.first();
                Ok(match command {
                    PreemptCommand::Deschedule => here.map_or(Ok(()), pause),
                    PreemptCommand::Reschedule => here.map_or(Ok(()), resume),
                    // It counts pauses and deschedulings in one.
                    PreemptCommand::ResumeOfAll(before) | PreemptCommand::PutBack(before) => {
                        each(processes, What::Resume(2 * before), carry_out)
                    }
                    PreemptCommand::Preempt => each(processes, What::Pause, carry_out),
                    PreemptCommand::Try => here.map_or(Ok(()), |here| carry_out(here, What::Try)),
                    PreemptCommand::Resume => each(processes, What::Resume(0), carry_out),
                    PreemptCommand::Slice(micros) => here.map_or(Ok(()), |process| {
                        // SAFETY: as above.
                        check("simcudaSetTimeSlice", unsafe { (simulated.set_slice)(*process, micros) })
                    }),
                    PreemptCommand::End => Ok(()),
                }?)
            }
            PreemptTarget::ResourceManager { objects, control } => {
                let control = control.as_fd();
                let Some(here) = objects.first() else { return Ok(()) };
                if command == PreemptCommand::Try && here.gpu(control)? != self.pauser.gpu {
                    return Err(PreemptError::OtherGpu);
                }
                let carry_out = |one: &Objects, what| {
                    let part = (one.client, one.subdevice);
                    self.pauses.carry_out(whose, part, what, || one.pause(control), || one.resume(control))
                };
                Ok(match command {
                    PreemptCommand::Preempt => each(objects, What::Pause, carry_out),
                    PreemptCommand::End => each(objects, What::End, carry_out),
                    PreemptCommand::Try => carry_out(here, What::Try),
                    PreemptCommand::Resume => each(objects, What::Resume(0), carry_out),
                    PreemptCommand::ResumeOfAll(before) | PreemptCommand::PutBack(before) => {
                        each(objects, What::Resume(before), carry_out).and_then(|()| here.reschedule(control))
                    }
                    PreemptCommand::Deschedule => here.deschedule(control),
                    PreemptCommand::Reschedule => here.reschedule(control),
                    PreemptCommand::Slice(micros) => here.set_timeslice(control, micros),
                }?)
            }
        }
    }
}

struct Job {
    tenant: TenantId,
    gang: Option<GangId>,
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
    /// Starts the thread of the GPU with this number, one of those that share `pauses`. Reports go to `reports`, and `waker` is woken for each.
    ///
    /// # Errors
    ///
    /// When the GPU has no resources left for it.
    pub fn start(
        (gpu, own): (&Gpu, GpuNumber),
        pauses: Pauses,
        reports: Sender<Preempted>,
        waker: Waker,
    ) -> Result<Self, GpuError> {
        let (sender, jobs) = channel::<Job>();
        let (means, nudge) = (Means { pauser: gpu.pauser, pauses, own }, Nudge::new(gpu)?);
        let under_way = Arc::new(AtomicUsize::new(0));
        let done = Arc::clone(&under_way);
        thread::Builder::new()
            .name("preemptor".to_owned())
            .spawn(move || {
                let entered = nudge.gpu.enter();
                for Job { tenant, gang, command, target } in jobs {
                    let start = Instant::now();
                    baton_faults::reach("coordinator carries out", &command);
                    let carry_out = || means.carry_out(gang, command, &target);
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

    /// Submits a command for a tenant in this gang.
    pub fn submit(&self, (tenant, gang): (TenantId, Option<GangId>), command: PreemptCommand, target: PreemptTarget) {
        // The thread lives as long as its sender: it only ends when this value is dropped.
        self.under_way.fetch_add(1, Ordering::Relaxed);
        let _ = self.jobs.send(Job { tenant, gang, command, target });
    }

    /// True if no command is under way.
    pub fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn all_parts_are_paused_or_none() {
        let paused = RefCell::new(BTreeSet::new());
        let carry_out = |part: &u32, what| {
            match what {
                What::Undo => paused.borrow_mut().remove(part),
                _ => paused.borrow_mut().insert(*part),
            };
            if *part < 3 { Ok(()) } else { Err(*part) }
        };
        assert_eq!(each(&[1, 2], What::Pause, carry_out), Ok(()));
        assert_eq!(*paused.borrow(), BTreeSet::from([1, 2]));
        paused.borrow_mut().clear();
        assert_eq!(each(&[1, 2, 3], What::Pause, carry_out), Err(3));
        assert_eq!(*paused.borrow(), BTreeSet::from([3]), "those that were paused before it go on");
    }

    #[test]
    fn channels_on_other_gpus_are_grouped_and_those_that_are_paused_are_left_out() {
        let here = Objects { client: 1, subdevice: 2, channels: vec![10, 11], ..Objects::default() };
        let control = || OwnedFd::from(std::fs::File::open("/dev/null").expect("it is there"));
        let elsewhere = |channels: &[(u32, u32)]| Elsewhere { channels: channels.to_vec() };
        let known = PreemptTarget::resource_manager(here.clone(), &elsewhere(&[(5, 20), (6, 30), (5, 21)]), control());
        let channels = |target: &PreemptTarget| match target {
            PreemptTarget::ResourceManager { objects, .. } => {
                objects.iter().map(|one| (one.subdevice, one.channels.clone())).collect::<Vec<_>>()
            }
            PreemptTarget::Simulated { .. } => Vec::new(),
        };
        assert_eq!(channels(&known), [(2, vec![10, 11]), (5, vec![20, 21]), (6, vec![30])]);
        let now = PreemptTarget::resource_manager(here, &elsewhere(&[(5, 20), (5, 22)]), control());
        let rest = now.beyond(Some(&known)).expect("one has come");
        assert_eq!(channels(&rest), [(2, vec![]), (5, vec![22])]);
        assert!(known.beyond(Some(&known)).is_none());
        let simulated = |others: &[(u32, u32)]| PreemptTarget::simulated(1, &elsewhere(others), None);
        assert!(simulated(&[(2, 0)]).beyond(Some(&simulated(&[(2, 0), (3, 0)]))).is_none());
        assert!(simulated(&[(2, 0)]).beyond(Some(&simulated(&[]))).is_some());
    }
}
