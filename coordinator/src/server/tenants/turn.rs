//! A tenant's turn: its number, the work in flight during it, and its end.

use std::time::{Duration, Instant};

use baton_contract::messages::ExtentId;

use super::limits::ANSWER_LIMIT;
use baton_policy::arbiter::pause;
use baton_policy::in_flight::InFlight;
use baton_policy::planner::Nanos;

/// The time a tenant's work may take to end before its gate is opened again. It doubles with every try.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
const MOST_DOUBLINGS: u32 = 6;

/// The time at which a tenant was asked to close its gate, and the time its work may take to end.
#[derive(Clone, Copy, Debug)]
struct Asked {
    since: Instant,
    limit: Duration,
}

impl Asked {
    fn now(limit: Duration) -> Self {
        Self { since: Instant::now(), limit }
    }

    /// The time from which the answer is overdue.
    fn ends(self) -> Instant {
        self.since + self.limit + ANSWER_LIMIT
    }
}

/// The stage of a turn's end.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The end has not been requested.
    Open,
    Asked(Asked),
    /// The answer did not come in time, so the state of the gate is unknown. The tenant may have been asked once more.
    Overdue {
        since: Instant,
        again: Option<Asked>,
    },
}

/// The meaning of a closed gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Closed {
    InTime,
    /// The turn was already over for all others.
    Late,
}

/// The next step after a tenant's work did not end in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum TimedOut {
    /// Others go on meanwhile. The tenant is asked again to stop, within this time.
    AskAgain(Duration),
    GoesOn,
}

/// A tenant's present turn, or its last one.
#[derive(Debug)]
pub(in crate::server) struct Turn {
    /// Counts the grants; the last one holds if the arbiter says that the tenant runs.
    number: u64,
    in_flight: InFlight,
    /// The time when it last held the baton, or came.
    ran: Instant,
    /// The number of failures to drain it since it was last closed.
    failures: u32,
    /// The time until which the tenant is left alone because of that.
    left_alone: Option<Instant>,
    end: End,
    /// The time since when it has wanted the next turn.
    demanded: Option<Instant>,
    /// The extents that it has used first, according to its reports.
    used: Vec<(ExtentId, Nanos)>,
}

impl Default for Turn {
    fn default() -> Self {
        Self {
            number: 0,
            in_flight: InFlight::Any,
            ran: Instant::now(),
            failures: 0,
            left_alone: None,
            end: End::Open,
            demanded: None,
            used: Vec::new(),
        }
    }
}

impl Turn {
    /// The turn's number.
    pub(in crate::server) fn number(&self) -> u64 {
        self.number
    }

    /// The time when the tenant last held the baton, or came.
    pub(in crate::server) fn ran(&self) -> Instant {
        self.ran
    }

    /// Notes that the tenant has held the baton until now.
    pub(in crate::server) fn mark_ran(&mut self) {
        self.ran = Instant::now();
    }

    /// Notes that the tenant wants the next turn.
    pub(in crate::server) fn demand(&mut self) {
        self.demanded.get_or_insert_with(Instant::now);
    }

    /// The time since when the tenant wants the next turn, if it does.
    pub(in crate::server) fn demanded(&self) -> Option<Instant> {
        self.demanded
    }

    /// Begins the next turn, which was decided at that time. Returns the time since when the tenant had wanted it.
    pub(in crate::server) fn begin(&mut self, decided: Instant) -> Instant {
        let demanded = self.demanded.take().unwrap_or(decided).min(decided);
        // The owed answer was for an earlier grant; from here on the end of this turn counts.
        *self = Self { number: self.number + 1, ..Self::default() };
        demanded
    }

    /// Goes on with the numbers of another coordinator, whose last grant this was.
    pub(in crate::server) fn go_on_from(&mut self, number: u64) {
        self.number = number;
    }

    /// The amount of work that it may keep in flight, as it was told.
    pub(in crate::server) fn in_flight(&self) -> InFlight {
        self.in_flight
    }

    pub(in crate::server) fn limit(&mut self, in_flight: InFlight) {
        self.in_flight = in_flight;
    }

    /// Notes that the tenant is asked to end the turn. Returns the time its work may take for that.
    pub(in crate::server) fn ask_for_end(&mut self) -> Duration {
        let limit = DRAIN_LIMIT * 2u32.pow(self.failures.min(MOST_DOUBLINGS));
        self.end = End::Asked(Asked::now(limit));
        limit
    }

    /// True if the tenant owes the end of its turn.
    pub(in crate::server) fn is_ending(&self) -> bool {
        matches!(self.end, End::Asked(_) | End::Overdue { again: Some(_), .. })
    }

    /// The time since when it has been asked for the end and has not answered.
    pub(super) fn asked_since(&self) -> Option<Instant> {
        match self.end {
            End::Asked(asked) => Some(asked.since),
            End::Open | End::Overdue { .. } => None,
        }
    }

    /// True if the deadline for the end has passed.
    pub(super) fn is_given_up_now(&self) -> bool {
        matches!(self.end, End::Asked(asked) if asked.ends() <= Instant::now())
    }

    /// True if the tenant did not answer in time, so the state of its gate is unknown.
    pub(in crate::server) fn is_overdue(&self) -> bool {
        self.overdue_since().is_some()
    }

    /// The time since when the answer is overdue, if it is.
    pub(in crate::server) fn overdue_since(&self) -> Option<Instant> {
        match self.end {
            End::Overdue { since, .. } => Some(since),
            End::Open | End::Asked(_) => None,
        }
    }

    /// The time of the next check for an overdue answer.
    pub(super) fn next_look(&self) -> Option<Instant> {
        match self.end {
            End::Asked(asked) | End::Overdue { again: Some(asked), .. } => Some(asked.ends()),
            End::Open | End::Overdue { again: None, .. } => None,
        }
    }

    /// Notes that the gate is closed and no work is queued.
    pub(in crate::server) fn on_closed(&mut self) -> Closed {
        self.failures = 0;
        self.left_alone = None;
        match std::mem::replace(&mut self.end, End::Open) {
            End::Overdue { .. } => Closed::Late,
            End::Open | End::Asked(_) => Closed::InTime,
        }
    }

    /// Notes that the work did not end in time, and the gate is open again.
    pub(in crate::server) fn on_timed_out(&mut self) -> TimedOut {
        if let End::Overdue { since, .. } = self.end {
            self.end = End::Overdue { since, again: Some(Asked::now(DRAIN_LIMIT)) };
            return TimedOut::AskAgain(DRAIN_LIMIT);
        }
        self.failures += 1;
        self.left_alone = Some(Instant::now() + Duration::from_micros(pause(self.failures)));
        self.end = End::Open;
        TimedOut::GoesOn
    }

    /// The time until which the tenant is left alone because its work did not end in time. The work may wait for a call that was
    /// kept off meanwhile.
    pub(in crate::server) fn left_alone(&self) -> Option<Instant> {
        self.left_alone.filter(|until| *until > Instant::now())
    }

    /// Stops waiting for the answer. Returns true if one was awaited.
    pub(in crate::server) fn give_up(&mut self) -> bool {
        let is_asked = matches!(self.end, End::Asked(_));
        if is_asked {
            self.end = End::Overdue { since: Instant::now(), again: None };
        }
        is_asked
    }

    /// Gives the answer up if it is overdue by now. Returns true if that is news.
    pub(in crate::server) fn give_up_if_overdue(&mut self) -> bool {
        if self.next_look().is_none_or(|at| Instant::now() < at) {
            return false;
        }
        let before = self.overdue_since();
        self.end = End::Overdue { since: before.unwrap_or_else(Instant::now), again: None };
        before.is_none()
    }

    /// Notes that no answer will come.
    pub(in crate::server) fn expect_no_end(&mut self) {
        self.end = match self.end {
            End::Open | End::Asked(_) => End::Open,
            End::Overdue { since, .. } => End::Overdue { since, again: None },
        };
    }

    /// Adds the tenant's report of the extents it has used first. A report of more than `most` extents is not believed.
    pub(in crate::server) fn has_used(&mut self, mut extents: Vec<(ExtentId, Nanos)>, most: usize) {
        if self.used.len() + extents.len() <= most {
            self.used.append(&mut extents);
        }
    }

    /// Takes all reports of the tenant about that.
    pub(in crate::server) fn take_used(&mut self) -> Vec<(ExtentId, Nanos)> {
        std::mem::take(&mut self.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_try_to_end_a_turn_may_take_twice_as_long_until_one_succeeds() {
        let mut turn = Turn::default();
        let tries = std::array::from_fn::<_, 8, _>(|_| {
            let limit = turn.ask_for_end();
            assert!(turn.is_ending());
            assert_eq!(turn.on_timed_out(), TimedOut::GoesOn);
            limit.as_secs()
        });
        assert_eq!(tries, [1, 2, 4, 8, 16, 32, 64, 64]);
        turn.ask_for_end();
        assert_eq!(turn.on_closed(), Closed::InTime);
        assert_eq!(turn.ask_for_end(), DRAIN_LIMIT);
    }

    #[test]
    fn an_answer_that_is_overdue_is_told_once_and_comes_late() {
        let long_ago = Instant::now() - Duration::from_secs(60);
        let mut turn = Turn { end: End::Asked(Asked { since: long_ago, limit: DRAIN_LIMIT }), ..Turn::default() };
        assert!(turn.give_up_if_overdue() && turn.is_overdue() && !turn.is_ending());
        assert_eq!(turn.on_timed_out(), TimedOut::AskAgain(DRAIN_LIMIT));
        let again = Some(Asked { since: long_ago, limit: DRAIN_LIMIT });
        turn.end = End::Overdue { since: long_ago, again };
        assert!(!turn.give_up_if_overdue() && turn.is_overdue());
        assert_eq!(turn.on_closed(), Closed::Late);
        assert!(!turn.is_overdue());
    }

    #[test]
    fn with_the_next_turn_what_was_owed_for_the_last_is_forgotten() {
        let end = End::Overdue { since: Instant::now(), again: None };
        let mut turn = Turn { end, failures: 3, ..Turn::default() };
        turn.demand();
        let (wanted, number) = (turn.demanded, turn.number());
        assert_eq!(Some(turn.begin(Instant::now())), wanted);
        assert_eq!(turn.number(), number + 1);
        assert!(!turn.is_overdue());
        assert_eq!(turn.ask_for_end(), DRAIN_LIMIT);
    }
}
