//! The preemptor, its pending reports, and the other parts needed to take tenants off the GPU.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::device::gpu::{Gpu, GpuError};
use crate::device::pauses::Pauses;
use crate::device::preemptor::{PreemptCommand, PreemptTarget, Preempted, Preemptor};
use crate::device::wake::Waker;
use crate::server::recorder::Recorder;
use crate::server::tenants::table::Tenants;
use baton_contract::wire::GpuNumber;
use baton_policy::arbiter::TenantId;
use baton_policy::scheduler::Scheduler;

/// The interval at which commands' ends are looked for.
const LOOK: Duration = Duration::from_micros(200);

/// An event of preemption that another module has to act upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum PreemptEvent {
    /// The tenant was found to be one that can be paused.
    Works(TenantId),
    /// A tenant that the arbiter does not know yet is paused.
    Settled(TenantId),
    /// Such a tenant cannot be paused; `is_last` if that is not tried again.
    CannotSettle { tenant: TenantId, is_last: bool },
    /// A tenant that was to leave is off the GPU; `drained` if there was nothing to pause.
    Off { tenant: TenantId, drained: bool },
    /// The tenant is off the GPU again, and cannot answer before its work goes on.
    Late(TenantId),
    /// The tenant cannot be paused, so others wait for its work, unless its gate was closed with no work queued.
    Impossible { tenant: TenantId, drained: bool },
    /// A tenant that was paused with no work queued is on the GPU again. It may not have been given a turn.
    Back(TenantId),
    /// A tenant that is let in at any time is on the GPU again: it runs beside others, or with them.
    BackAmongOthers(TenantId),
    /// A tenant is on the GPU again, and runs, with all its memory.
    Running(TenantId),
    /// A tenant was descheduled or rescheduled, or the attempt failed.
    Moved,
    /// The coordinator no longer holds anything of a tenant that has ended.
    LetGo(TenantId),
    /// The tenant can neither be taken off the GPU nor put back on it.
    Lost { tenant: TenantId, why: &'static str },
}

/// The preemptor, and its pending reports.
pub(in crate::server) struct Preemptions {
    pub(super) preemptor: Preemptor,
    reports: Receiver<Preempted>,
    events: VecDeque<PreemptEvent>,
    /// True if the user allows it.
    pub(super) is_allowed: bool,
    /// True if a tenant of class latency was connected when time slices were last set.
    pub(super) is_urgent: bool,
}

impl Preemptions {
    /// Waits until no command is being carried out. False if one takes longer.
    pub(in crate::server) fn await_calls(&self, end: Instant) -> bool {
        while !self.preemptor.is_idle() && Instant::now() < end {
            std::thread::sleep(LOOK);
        }
        self.preemptor.is_idle()
    }
}

/// Preemptions, and the other parts needed to carry them out.
pub(in crate::server) struct Access<'a> {
    pub(in crate::server) preemptions: &'a mut Preemptions,
    pub(in crate::server) tenants: &'a mut Tenants,
    /// Only to be asked.
    pub(in crate::server) arbiter: &'a Scheduler,
    pub(in crate::server) recorder: &'a mut Recorder,
}

/// The next step with a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Nothing,
    /// Take it off the GPU, including every part that is not off yet.
    Pause,
    /// Let it go on.
    Resume,
}

impl Preemptions {
    pub(in crate::server) fn new(
        gpu: (&Gpu, GpuNumber),
        pauses: Pauses,
        is_allowed: bool,
        waker: Waker,
    ) -> Result<Self, GpuError> {
        let (sender, reports) = channel();
        let preemptor = Preemptor::start(gpu, pauses, sender, waker)?;
        Ok(Self { preemptor, reports, events: VecDeque::new(), is_allowed, is_urgent: false })
    }

    /// Takes the oldest event that has not been handled yet.
    pub(in crate::server) fn next_event(&mut self) -> Option<PreemptEvent> {
        self.events.pop_front()
    }

    /// Takes the preemptor's oldest report, of success or failure.
    pub(in crate::server) fn next_report(&self) -> Option<Preempted> {
        self.reports.try_recv().ok()
    }

    /// A tenant has ended: nothing of it is held any more when that is told ([`PreemptEvent::LetGo`]).
    pub(in crate::server) fn let_go(&self, id: TenantId, target: PreemptTarget) {
        self.preemptor.submit((id, None), PreemptCommand::End, target);
    }
}

impl Access<'_> {
    pub(super) fn raise(&mut self, event: PreemptEvent) {
        self.preemptions.events.push_back(event);
    }

    /// Has the preemptor do something with a tenant.
    pub(super) fn submit(&self, id: TenantId, command: PreemptCommand, target: PreemptTarget) {
        let gang = self.tenants.get(id).and_then(|tenant| tenant.gang);
        self.preemptions.preemptor.submit((id, gang), command, target);
    }
}
