//! Finds the end of the program's requests (`gate::stamps` has their beginning).
//!
//! The stamp is the time when the request's work was found to have ended. On a machine that is not too busy, that is later than the end
//! by:
//!
//! - **Co-running**: the time that [`Corun`](super::corun::Corun) waits before the program rests (it is learned, 80 µs to 1 ms)
//!   and half of that.
//! - **Taking turns**: at most twice [`LOOK`]; or the time until a drain sees the end, when that closes the gate.
//!
//! A tenant that takes turns has ended a request if no call comes for [`REST`] after that. If one does, the same request goes on: a turn
//! may end between two launches. A request with work left at the end of a turn goes on until the next.

use core::time::Duration;

use super::idle::{Watch, is_in_a_call};
use crate::gate::{self, stamps};
use crate::work::drain::IdleWatch;

/// The interval of checks while there is a request.
const LOOK: Duration = Duration::from_micros(250);
/// A program that makes no call for so long after its work has ended is at rest.
const REST: Duration = Duration::from_millis(1);

/// The state of the present request.
#[derive(Default)]
pub(super) struct Requests {
    /// The time when its work was found to have ended, and the number of calls by then.
    found: Option<(u64, u32)>,
}

impl Requests {
    /// The time until the next check.
    pub(super) fn look_again_after(&self, is_gate_open: bool) -> Option<Duration> {
        // Behind a closed gate only time can pass.
        ((is_gate_open || self.found.is_some()) && stamps::is_any()).then_some(LOOK)
    }

    /// Checks, with the gate open, whether the work has ended, and for how long.
    pub(super) fn look(&mut self, watch: &mut Watch, idle: &mut IdleWatch) {
        if !stamps::is_any() {
            return;
        }
        let calls = gate::activity();
        if is_in_a_call() || self.found.is_some_and(|(_, before)| before != calls) {
            self.on_goes_on();
        }
        match self.found {
            Some(_) => self.end_after_rest(calls),
            None if watch.quiet() >= LOOK && idle.is_idle(calls) => self.found = Some((stamps::now(), calls)),
            None => {}
        }
    }

    /// Like [`Requests::look`], with the gate closed: nothing is queued.
    pub(super) fn look_behind_closed_gate(&mut self) {
        let Some((_, calls)) = self.found else { return };
        if gate::is_waited_at() {
            return self.on_goes_on();
        }
        self.end_after_rest(calls);
        if gate::is_waited_at() {
            // A call has come since, and has begun before the request ended.
            stamps::begin();
        }
    }

    /// Called when the gate is closed, and all work has ended.
    pub(super) fn on_closed(&mut self) {
        let calls = gate::activity();
        if stamps::is_any() && self.found.is_none_or(|(_, before)| before != calls) {
            self.found = Some((stamps::now(), calls));
        }
    }

    /// Called when there may be work left, or a call on its way.
    pub(super) fn on_goes_on(&mut self) {
        self.found = None;
    }

    fn end_after_rest(&mut self, calls: u32) {
        if let Some((at, _)) = self.found
            && u128::from(stamps::now().saturating_sub(at)) >= REST.as_nanos()
        {
            self.end(at, calls);
        }
    }

    /// Ends the request: the program is at rest, and its work had ended at this time, unless the end was found before, after the same
    /// number of calls.
    pub(super) fn end(&mut self, at: u64, calls: u32) {
        let before = self.found.take().filter(|(_, before)| *before == calls);
        stamps::end(before.map_or(at, |(before, _)| before));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::PoisonError;
    use std::thread;

    use super::*;
    use crate::gate::tests::{Stamping, TURN, call};

    fn begin_from_rest() {
        gate::open(false);
        assert!(gate::rest());
        call();
        while !stamps::is_any() {
            thread::yield_now();
        }
    }

    /// Checks until the request has ended, behind a closed gate.
    fn look_until_ended(requests: &mut Requests) {
        while stamps::is_any() {
            assert!(requests.look_again_after(false).is_some(), "nobody would look again");
            requests.look_behind_closed_gate();
        }
    }

    #[test]
    fn a_request_ends_when_its_work_had_ended_and_no_call_came_for_a_while() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let stamping = Stamping::begin();
        let (mut requests, mut watch, mut idle) = (Requests::default(), Watch::new(), IdleWatch::default());
        assert_eq!(requests.look_again_after(true), None);
        begin_from_rest();
        let after = stamps::now();
        while stamps::is_any() {
            assert!(requests.look_again_after(true).is_some());
            requests.look(&mut watch, &mut idle);
        }
        let [request] = stamping.ended()[..] else { panic!("{:?}", stamping.ended()) };
        assert!(request.began <= after && after < request.ended);
        assert!(stamps::now() - request.ended >= REST.as_nanos() as u64);
        assert_eq!(requests.look_again_after(true), None);
    }

    #[test]
    fn a_request_whose_next_call_waits_goes_on_over_the_turns() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let stamping = Stamping::begin();
        let mut requests = Requests::default();
        begin_from_rest();
        let began = stamping.ring.present();
        assert!(gate::prepare() && gate::close(None, || ()));
        requests.on_closed();
        thread::scope(|scope| {
            scope.spawn(call);
            while !gate::is_waited_at() {
                thread::yield_now();
            }
            thread::sleep(REST);
            requests.look_behind_closed_gate();
            assert_eq!(requests.look_again_after(false), None, "it waits for its turn");
            assert_eq!((stamping.ring.present(), stamping.ended()), (began, vec![]));
            gate::open(false);
        });
        let opened = stamps::now();
        assert!(gate::close(None, || ()));
        requests.on_closed();
        look_until_ended(&mut requests);
        let [request] = stamping.ended()[..] else { panic!("{:?}", stamping.ended()) };
        assert!(Some(request.began) == began && request.ended > opened);
        gate::open(false);
    }

    #[test]
    fn a_request_does_not_end_while_work_may_be_queued_behind_the_closed_gate() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let stamping = Stamping::begin();
        let mut requests = Requests::default();
        begin_from_rest();
        assert!(gate::prepare() && gate::close(None, || ()));
        requests.on_closed();
        requests.on_goes_on();
        thread::sleep(REST);
        requests.look_behind_closed_gate();
        assert!(stamps::is_any() && stamping.ended().is_empty());
        gate::open(false);
    }
}
