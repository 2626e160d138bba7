//! A tenant as the server knows it.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use baton_contract::class::Class;
use baton_contract::messages::ProcessId;
use baton_contract::scheduling::Scheduling;

use super::connection::Connection;
use super::limits::ANSWER_LIMIT;
use super::memory::Holdings;
use super::preemption::Preemption;
use super::turn::Turn;
use baton_books::extents::Extents;
use baton_books::reservations::Need;
use baton_policy::arbiter::TenantId;
use baton_policy::bursts::Usual;
use baton_policy::gangs::GangId;

/// A tenant's scheduling.
#[derive(Debug)]
pub(in crate::server) struct Scheduled {
    /// The scheduling that the user wants.
    pub(in crate::server) wanted: Scheduling,
    /// The usual duration of its requests, in microseconds, if it is of class latency.
    pub(in crate::server) requests: Usual,
    /// True if it waits for the GPU, or has it.
    pub(in crate::server) is_waiting: bool,
    /// The time since when a user has kept it off the GPU, if one does.
    pub(in crate::server) suspended: Option<Instant>,
    /// The time since when it has been left out because it is unresponsive.
    pub(in crate::server) left_out: Option<Instant>,
    /// True if the system reported its process as stopped, when that was decided.
    pub(in crate::server) was_stopped: bool,
    /// The number of turns in place since it last answered, and the time from which it may have another one.
    pub(in crate::server) in_place: (u32, Option<Instant>),
    /// The treatment if it is unresponsive and holds up others.
    pub(in crate::server) stuck: Stuck,
    /// The arbiter's counts for it until its connection ended: switches, and microseconds of GPU time.
    pub(in crate::server) counted: (u64, u64),
}

/// One tenant.
#[derive(Debug)]
pub(in crate::server) struct Tenant {
    pub(in crate::server) name: String,
    pub(in crate::server) connection: Connection,
    pub(in crate::server) scheduling: Scheduled,
    pub(in crate::server) memory: Holdings,
    /// The part of it that can be taken off the GPU, and the progress of that.
    pub(in crate::server) preemption: Preemption,
    pub(in crate::server) turn: Turn,
    /// The memory that it has said it needs.
    pub(in crate::server) need: Option<Need>,
    /// The gang that it is of.
    pub(in crate::server) gang: Option<GangId>,
    /// The number of the tenants that it is united with, which they have too.
    pub(in crate::server) unit: Option<u32>,
    /// Owners of memory that it imports, with which it is yet to be united.
    pub(in crate::server) imports_from: Vec<ProcessId>,
    /// Those with which it shares memory, and takes turns until both want the GPU.
    pub(in crate::server) shares_with: BTreeSet<TenantId>,
    /// True if its memory was taken without asking at some time.
    pub(in crate::server) was_taken: bool,
    /// The time at which a coordinator last failed to copy its memory, in seconds of the system's monotonic clock.
    pub(in crate::server) not_copied: Option<i64>,
    /// True if it was another coordinator's before.
    pub(in crate::server) came_back: bool,
    /// Set if it was taken over with its gate open and has yet to close it.
    pub(in crate::server) unsettled: Option<Unsettled>,
}

/// For how long others go on after a turn in which one that waits in the driver did not come back from there. It doubles each time, up
/// to 8 s.
const IN_VAIN: Duration = Duration::from_secs(1);
const MOST_DOUBLINGS: u32 = 3;

/// For how long a guest may show no sign of life that owes an answer, cannot be paused, and is waited for.
const LONGEST_SILENCE: Duration = Duration::from_secs(1);
/// Interval between the checks then. If checks come later, not all the time in between counts: the machine is slow.
const LOOK: Duration = Duration::from_millis(50);

/// A tenant that was taken over and may be at work: the arbiter knows it when its gate is closed and its work paused or over.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct Unsettled {
    /// True if a call waits at its gate already.
    pub(in crate::server) demands: bool,
    /// True if its gate was open: whatever memory it lacks, its work waits for that.
    pub(in crate::server) runs: bool,
}

/// The treatment of an unresponsive tenant.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::server) struct Stuck {
    /// True if its memory is not taken.
    pub(in crate::server) keeps_memory: bool,
    /// The time others wait for memory that cannot be taken from it, before it is killed; none if they wait as long as it takes.
    pub(in crate::server) killed_after: Option<Duration>,
    /// The time of the next check, if no tenant waited for it.
    pub(in crate::server) next_look: Option<Instant>,
    pub(in crate::server) mute: Mute,
}

/// Observations of a tenant that owes an answer, cannot be paused, and may not keep others waiting.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::server) struct Mute {
    /// The time since when others have waited for it.
    since: Option<Instant>,
    looked: Option<Instant>,
    /// The time for which it has shown no sign of life.
    silence: Duration,
}

impl Tenant {
    /// Creates a tenant that has just joined.
    pub(in crate::server) fn new(name: String, connection: Connection, wanted: Scheduling, need: Option<Need>) -> Self {
        Self {
            name,
            connection,
            scheduling: Scheduled {
                wanted,
                requests: Usual::default(),
                is_waiting: false,
                suspended: None,
                left_out: None,
                was_stopped: false,
                in_place: (0, None),
                stuck: Stuck::default(),
                counted: (0, 0),
            },
            memory: Holdings::default(),
            preemption: Preemption::default(),
            turn: Turn::default(),
            need,
            gang: None,
            unit: None,
            imports_from: Vec::new(),
            shares_with: BTreeSet::new(),
            was_taken: false,
            not_copied: None,
            came_back: false,
            unsettled: None,
        }
    }

    /// Its memory.
    pub(in crate::server) fn extents(&self) -> &Extents {
        self.memory.extents()
    }

    /// The urgency of its work.
    pub(in crate::server) fn class(&self) -> Class {
        self.scheduling.wanted.class
    }

    /// True if others do not wait for it, because it is unresponsive.
    pub(in crate::server) fn is_left_out(&self) -> bool {
        self.scheduling.left_out.is_some() || self.memory.is_taken()
    }

    /// The time at which it is killed, if others wait for memory that cannot be taken from it.
    pub(in crate::server) fn killed_at(&self) -> Option<Instant> {
        let after = self.scheduling.stuck.killed_after?;
        let is_taken = self.memory.is_taken();
        let late = self.memory.oldest_batch().filter(|_| !is_taken).map(|since| since + ANSWER_LIMIT);
        let late = late.filter(|at| *at <= Instant::now());
        let left_out = self.scheduling.left_out;
        let since =
            [self.turn.overdue_since(), late, left_out, self.connection.ended_since()].into_iter().flatten().min()?;
        Some((since + after).max(self.scheduling.stuck.next_look.unwrap_or(since)))
    }

    /// The time since when it has owed an answer, if others do not wait for it for long.
    fn owes_since(&self) -> Option<Instant> {
        let is_bound = self.connection.control.guest().is_some() && self.scheduling.stuck.killed_after.is_some();
        if !is_bound || !self.connection.is_open() || !self.preemption.is_impossible() {
            return None;
        }
        [self.turn.asked_since(), self.memory.oldest_batch()].into_iter().flatten().min()
    }

    /// The time of the next check that it is mute.
    pub(in crate::server) fn next_look_for_life(&self) -> Option<Instant> {
        let since = self.owes_since()?;
        Some(since.max(self.scheduling.stuck.mute.looked.unwrap_or(since)) + LOOK)
    }

    /// Observes a guest that owes an answer while others wait for it. Returns the time since the first such observation once the guest
    /// is **mute**: its turn has not ended by its deadline, or it has shown no sign of life for [`LONGEST_SILENCE`] (or for the time after
    /// which it is killed, if that is shorter). Its silence starts again at zero with every sign of life, and when nothing is owed or no
    /// tenant waits.
    pub(in crate::server) fn mute_for(&mut self, is_waited_for: bool) -> Option<Duration> {
        let (now, mut mute) = (Instant::now(), self.scheduling.stuck.mute);
        let owes = self.owes_since().filter(|_| is_waited_for);
        let last = mute.looked.replace(now).filter(|_| mute.since.is_some());
        if let (Some(_), Some(last)) = (owes, last) {
            let has_lived = self.connection.has_lived_since(last);
            mute.silence = if has_lived { Duration::ZERO } else { mute.silence + (now - last).min(2 * LOOK) };
        } else {
            (mute.since, mute.silence) = (owes.map(|_| now), Duration::ZERO);
        }
        self.scheduling.stuck.mute = mute;
        let limit = self.scheduling.stuck.killed_after?.min(LONGEST_SILENCE);
        let is_mute = owes.is_some() && (mute.silence >= limit || self.turn.is_given_up_now());
        mute.since.filter(|_| is_mute).map(|since| now - since)
    }

    /// Its signs of life while it cannot answer: these numbers change.
    pub(in crate::server) fn signs_of_life(&self) -> [u32; 2] {
        let theirs = &self.connection.theirs;
        [theirs.heartbeat.load(Relaxed), theirs.probing.load(Relaxed)]
    }

    /// True if its memory was taken, yet it lives and waits for paused work.
    pub(in crate::server) fn lives_on(&self) -> bool {
        self.memory.has_shown_life(self.signs_of_life()) && self.connection.process.is_stopped() != Some(true)
    }

    /// True if it may have a turn in place. After one in vain, others go first, for longer each time.
    pub(in crate::server) fn may_return_in_place(&mut self) -> bool {
        let now = Instant::now();
        let (turns, next) = self.scheduling.in_place;
        let may = next.is_none_or(|next| now >= next);
        if may {
            let pause = IN_VAIN * 2u32.pow(turns.min(MOST_DOUBLINGS));
            self.scheduling.in_place = (turns + 1, Some(now + pause));
        }
        may
    }

    /// Notes that it answers: its turns in place were not in vain.
    pub(in crate::server) fn has_answered(&mut self) {
        self.scheduling.in_place = (0, None);
    }

    /// True if the tenant's own state allows its memory to move.
    pub(in crate::server) fn is_movable(&self) -> bool {
        !self.memory.stays() && !self.turn.is_overdue() && self.connection.is_open() && self.unsettled.is_none()
    }

    /// True if it is expected to carry out commands eventually.
    pub(in crate::server) fn may_answer_again(&self) -> bool {
        !self.memory.stays() && self.connection.is_open()
    }

    /// True if its memory can be expected to leave the GPU, with its help or without it.
    pub(in crate::server) fn makes_room(&self) -> bool {
        self.is_movable() && !self.memory.is_late()
    }

    /// True if it is expected to carry out commands in a short time.
    pub(in crate::server) fn is_responsive(&self) -> bool {
        self.makes_room() && !self.memory.is_taken()
    }

    /// True if commands to it are under way that it is expected to carry out.
    pub(in crate::server) fn is_about_to_answer(&self) -> bool {
        self.is_responsive() && self.memory.oldest_batch().is_some()
    }
}
