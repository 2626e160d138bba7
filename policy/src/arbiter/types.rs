//! The arbiter's input and output.

use baton_contract::scheduling::Scheduling;

/// Microseconds since the coordinator's start, or a duration.
pub type Micros = u64;

/// A tenant's number. It is never used again for another tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

impl From<TenantId> for u32 {
    fn from(TenantId(number): TenantId) -> Self {
        number
    }
}

/// An event of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The tenant has come, with its gate closed.
    Joined {
        /// Its scheduling.
        scheduling: Scheduling,
    },
    /// Its scheduling changes.
    Changed {
        /// Its new scheduling.
        scheduling: Scheduling,
    },
    /// It is kept off the GPU from now on, because the user has suspended it or it does not answer; or it may have it again.
    KeepOff(bool),
    /// It is gone, from any state.
    Left,
    /// A call waits at its closed gate.
    Demand,
    /// It has waited since this time, if it waits: under another coordinator at first.
    WaitsSince(Micros),
    /// Its gate is closed and its work has ended: the answer to [`Decision::Revoke`], or because it had
    /// nothing left to do.
    Closed,
    /// Its work did not end in time, and its gate is open again.
    DrainTimedOut,
    /// Its work was taken off the GPU, wherever it was: another answer to [`Decision::Revoke`].
    Preempted,
    /// A part of its memory is resident, and the rest is sure to come: it can be let in.
    Ready,
    /// All its memory is resident: it can be let in, if it has not been yet.
    Resident,
    /// Its memory could not be swapped in. It goes on waiting.
    CannotArrive,
    /// It was let in before all its memory was resident, and the rest cannot come.
    Stranded,
    /// It has to leave and to be swapped in anew: it has grown while it has the baton, and its new memory is not resident; or
    /// its memory needs other work.
    Grown,
    /// It has the baton and nothing to do, or may have work again. Its time does not count while it rests.
    Rests(bool),
    /// It never co-runs from now on, or it may again.
    KeepApart(bool),
    /// It is of a gang from now on, which runs on several GPUs at once or not at all; or no longer.
    Gang(bool),
    /// All GPUs of its gang have claimed it: its turn is the next one, now.
    Call,
    /// Its gang does not run, or no longer: its turn ends, and a claim holds no more.
    Recall,
}

/// An action that the arbiter asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Tell this holder that another tenant waits: it should close its gate once it has had nothing to do for this time.
    /// With `None`, no tenant waits any more.
    Contend(TenantId, Option<Micros>),
    /// Close its gate and drain.
    Revoke(TenantId),
    /// Make all its memory resident. Cancels the `SwapIn` before, if that has not ended.
    SwapIn(TenantId),
    /// Open its gate.
    Grant(TenantId),
    /// Let it co-run with the holder of the baton from now on, with its gate open; or no longer: a
    /// [`Decision::Revoke`] follows.
    Corun(TenantId, bool),
    /// Open its gate too: it is a member of a unit that has been granted ([`Scheduler`](crate::scheduler::Scheduler)). If it was
    /// preempted, it has to be put back first.
    Reopen(TenantId),
    /// It would be its turn, were it not of a gang. Nothing is held for it: others have the GPU until [`Event::Call`].
    Claim(TenantId),
    /// Its claim or call holds no more here, or its arrival was given up: its gang is to be told.
    GiveBack(TenantId),
    /// It has its turn and nothing to do, or has work again: its gang is to be told. Its turn goes on, because other members may be at
    /// work.
    Idle(TenantId, bool),
}

impl Decision {
    /// The tenant that the decision is about.
    pub fn tenant(self) -> TenantId {
        match self {
            Self::Contend(id, _)
            | Self::Revoke(id)
            | Self::SwapIn(id)
            | Self::Grant(id)
            | Self::Corun(id, _)
            | Self::Reopen(id)
            | Self::Claim(id)
            | Self::GiveBack(id)
            | Self::Idle(id, _) => id,
        }
    }
}

/// A tenant's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It wants nothing, or may not run, or is not known.
    Idle,
    /// A call of it waits, and it is not its turn.
    Waiting,
    /// It is its turn, and its memory is on the way.
    Arriving,
    /// Its gate is open.
    Running,
    /// Its gate is open, and it co-runs with the holder of the baton.
    Corunning,
    /// It was told to close its gate, and has not reported yet that it did.
    Leaving,
}

impl State {
    /// True if no work of the tenant can run on the GPU: its gate is closed, and its queued work has ended or was taken off.
    pub fn is_off_the_gpu(self) -> bool {
        matches!(self, Self::Idle | Self::Waiting | Self::Arriving)
    }
}

/// The effect of urgent work beside the holder on the holder, if that is not urgent itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pressure {
    /// There is no urgent work.
    #[default]
    Free,
    /// There is urgent work, but the holder has waited for too long, so it runs all the same.
    Passing,
    /// The holder can do nothing: its time stands still.
    KeptBack,
}

/// Counts of all decisions since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Gates opened.
    pub grants: u64,
    /// Grants to a tenant other than the one before.
    pub switches: u64,
    /// Holders told to leave.
    pub revokes: u64,
    /// Holders that could not be drained in time.
    pub busy: u64,
    /// Arrivals given up for a better class, or at the user's request.
    pub given_up: u64,
    /// Arrivals that failed.
    pub failed: u64,
}
