//! Co-running, on this program's side: others wait while it is at work, and it declares that on a page that they see (`gate::activity`).
//! When it has come to rest, its first call declares it at work again.

use core::time::Duration;
use std::time::Instant;

use baton_contract::messages::CorunReport;

use super::idle::Watch;
use super::requests::Requests;
use crate::gate::{self, activity, stamps};
use crate::link::Link;
use crate::work::drain::IdleWatch;

/// The bounds of the time for which the program has to be quiet before the others go on. The time is learned within these bounds, so that
/// others do not run in the gaps inside the program's requests.
const SHORTEST_REST: Duration = Duration::from_micros(80);
const LONGEST_REST: Duration = Duration::from_millis(1);
/// A program that is at work again so soon was not at rest.
const NO_REST: Duration = Duration::from_micros(200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The program takes turns with the others.
    Off,
    /// It has no turn.
    Away,
    /// It is at work.
    Busy,
    /// It has a turn and is at rest: the gate sees its first call.
    Resting,
}

/// The program's state, and all changes of it.
pub(super) struct Corun {
    link: &'static Link,
    state: State,
    /// The time for which the program has to be quiet before it rests, and the time when it last came to rest.
    rest_after: Duration,
    rested: Instant,
}

impl Corun {
    pub(super) fn new(link: &'static Link) -> Self {
        Self { link, state: State::Off, rest_after: SHORTEST_REST * 2, rested: Instant::now() }
    }

    fn become_(&mut self, state: State) {
        let was_busy = self.is_busy();
        self.state = state;
        match self.is_busy() {
            true => activity::begin(),
            false => activity::end(),
        }
        if was_busy != self.is_busy() {
            self.link.tell(&CorunReport::ActivityChanged);
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.state == State::Busy
    }

    /// True if the program takes turns with the others.
    pub(super) fn is_off(&self) -> bool {
        self.state == State::Off
    }

    /// The time until it is checked again whether the program has come to rest.
    pub(super) fn look_again_after(&self) -> Option<Duration> {
        self.is_busy().then(|| self.rest_after / 2)
    }

    /// Called when the coordinator lets this program co-run, or no longer. A resting program goes on resting.
    pub(super) fn set(&mut self, on: bool, has_turn: bool) {
        match (self.state, on) {
            (State::Off, true) => self.become_(if has_turn { State::Busy } else { State::Away }),
            (_, true) | (State::Off, false) => {}
            (_, false) => {
                self.become_(State::Off);
                gate::work_on();
            }
        }
    }

    /// Called before the gate is opened.
    pub(super) fn on_turn_begins(&mut self) {
        if self.state != State::Off {
            self.become_(State::Busy);
        }
    }

    /// Called after the gate was closed.
    pub(super) fn on_turn_ends(&mut self) {
        if self.state != State::Off {
            self.become_(State::Away);
        }
    }

    /// Called when the page or the slot on it is another one.
    pub(super) fn on_slot_changed(&self) {
        if self.is_busy() {
            activity::begin();
        }
    }

    /// Called when the first call after a rest may have come: the call has declared us at work itself.
    pub(super) fn look_whether_awake(&mut self) {
        if self.state == State::Resting && !gate::is_resting() {
            let rest = self.rested.elapsed();
            let next = if rest < NO_REST { self.rest_after * 3 / 2 } else { self.rest_after * 4 / 5 };
            self.rest_after = next.clamp(SHORTEST_REST, LONGEST_REST);
            self.become_(State::Busy);
        } else if !self.is_busy() {
            // A call may have declared us at work just when the turn ended.
            activity::end();
        }
    }

    /// Lets others go on if the program has been quiet and none of its work is queued.
    pub(super) fn try_to_rest(&mut self, watch: &mut Watch, idle: &mut IdleWatch, requests: &mut Requests) {
        // Declared again: while the program was stopped, the coordinator may have taken its slot.
        activity::begin();
        let calls = gate::activity();
        if watch.quiet() < self.rest_after || !idle.is_idle(calls) {
            return;
        }
        let ended = stamps::now();
        if !gate::rest() {
            return;
        }
        // Calls that came in before the rest did not see it.
        if gate::activity() != calls || gate::inside() != 0 {
            return gate::work_on();
        }
        self.rested = Instant::now();
        requests.end(ended, calls);
        self.become_(State::Resting);
        if !gate::is_resting() {
            // A call has come in since, and has declared us at work before the rest was declared.
            stamps::begin();
            self.become_(State::Busy);
        }
    }
}
