//! What goes in and comes out of the arbiter.

use baton_contract::scheduling::Scheduling;

/// Microseconds since the coordinator's start, or a duration.
pub type Micros = u64;

/// A tenant's number: never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

/// What has happened to a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is there, with its gate closed.
    Joined {
        /// How it is to be scheduled.
        scheduling: Scheduling,
    },
    /// It is to be scheduled otherwise from here on.
    Changed {
        /// How.
        scheduling: Scheduling,
    },
    /// The user keeps it off the GPU from here on.
    Suspended,
    /// The user lets it go on.
    Unsuspended,
    /// It is gone, in whatever state it was.
    Left,
    /// A call waits at its closed gate.
    Demand,
    /// Its gate is closed and its work has ended: the answer to [`Decision::Revoke`], or because it had
    /// nothing left to do.
    Closed,
    /// Its work did not end in time, and its gate is open again.
    DrainTimedOut,
    /// Its work was taken off the GPU, wherever it was: another answer to [`Decision::Revoke`].
    Preempted,
    /// What it has is there in part, and the rest is sure to come: it can be let in.
    Ready,
    /// All that it has is there: it can be let in, if it has not been yet.
    Resident,
    /// Its memory could not be brought in. It goes on waiting.
    CannotArrive,
    /// It was let in before all its memory was there, and the rest cannot come.
    Stranded,
    /// It is to leave, and to be brought in anew: it has become more while it has the baton, and what has come to it is not there; or
    /// something is to be done with its memory.
    Grown,
    /// It has the baton, and nothing to do; or may have something again. While it rests its time does not count.
    Rests(bool),
    /// From here on it never runs beside others, or it may again.
    KeepApart(bool),
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Somebody waits for this holder: it is to close its gate after having had nothing to do for so long.
    /// With `None`, nobody waits any more.
    Contend(TenantId, Option<Micros>),
    /// Close its gate and drain.
    Revoke(TenantId),
    /// Make all that it has resident. Cancels the `SwapIn` before, if that has not ended.
    SwapIn(TenantId),
    /// Open its gate.
    Grant(TenantId),
    /// From here on it runs beside the one that has the baton, with its gate open; or no longer: a
    /// [`Decision::Revoke`] follows.
    Corun(TenantId, bool),
    /// Open its gate too: it is of a unit that has been granted ([`Scheduler`](crate::scheduler::Scheduler)). If it was
    /// preempted it has to be put back first.
    Reopen(TenantId),
}

impl Decision {
    /// Whom it is about.
    pub fn tenant(self) -> TenantId {
        match self {
            Self::Contend(id, _)
            | Self::Revoke(id)
            | Self::SwapIn(id)
            | Self::Grant(id)
            | Self::Corun(id, _)
            | Self::Reopen(id) => id,
        }
    }
}

/// What a tenant is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It wants nothing, or may not; or is not known.
    Idle,
    /// A call of it waits, and it is not its turn.
    Waiting,
    /// It is its turn, and its memory is on the way.
    Arriving,
    /// Its gate is open.
    Running,
    /// Its gate is open, beside the one that has the baton.
    Corunning,
    /// Its gate is to be closed, and it has not said yet that it is.
    Leaving,
}

impl State {
    /// Whether nothing of the tenant's can run on the GPU: its gate is closed, and what it had queued has ended or was taken off.
    pub fn is_off_the_gpu(self) -> bool {
        matches!(self, Self::Idle | Self::Waiting | Self::Arriving)
    }
}

/// How urgent work beside the holder bears on it, if it is not urgent itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pressure {
    /// There is none.
    #[default]
    Free,
    /// There is, and the holder has waited for so long that it goes on all the same.
    Passing,
    /// The holder can do nothing: its time stands still.
    KeptBack,
}

/// What was decided since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Gates opened.
    pub grants: u64,
    /// Grants to another tenant than the one before.
    pub switches: u64,
    /// Holders told to leave.
    pub revokes: u64,
    /// Holders that could not be drained in time.
    pub busy: u64,
    /// Arrivals given up for a better class, or because the user wants so.
    pub given_up: u64,
    /// Arrivals that failed.
    pub failed: u64,
}
