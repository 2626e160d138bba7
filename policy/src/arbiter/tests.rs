//! The rules one by one, each as a small story.

use baton_contract::class::Class::{self, *};
use baton_contract::scheduling::Scheduling;

use super::Decision::{Contend, Corun, Grant, Revoke, SwapIn};
use super::Event::{
    CannotArrive, Changed, Closed, Demand, DrainTimedOut, Joined, KeepOff, Left, Preempted, Ready, Resident, Rests,
    Stranded,
};
use super::*;

const A: TenantId = TenantId(1);
const B: TenantId = TenantId(2);
const C: TenantId = TenantId(3);
const MS: Micros = 1_000;
const QUANTUM: Micros = 200 * MS;

/// An arbiter with tenants A, B, C … of these classes.
fn arbiter(classes: &[Class]) -> Arbiter {
    let mut arbiter = Arbiter::new(QUANTUM);
    for (class, id) in classes.iter().zip(1..) {
        assert_eq!(arbiter.handle(0, TenantId(id), Joined { scheduling: (*class).into() }), []);
    }
    arbiter
}

/// The same arbiter, whose first tenant has had the baton since 0.
fn running(classes: &[Class]) -> Arbiter {
    let mut arbiter = arbiter(classes);
    assert_eq!(arbiter.handle(0, A, Demand), [SwapIn(A)]);
    assert_eq!(arbiter.handle(0, A, Resident), [Grant(A)]);
    arbiter
}

#[test]
fn who_is_alone_gets_the_baton_and_keeps_it() {
    let mut arbiter = arbiter(&[Batch]);
    assert_eq!(arbiter.handle(10, A, Demand), [SwapIn(A)]);
    assert_eq!((arbiter.state(A), arbiter.holder()), (State::Arriving, None));
    assert_eq!(arbiter.handle(30, A, Resident), [Grant(A)]);
    assert_eq!((arbiter.state(A), arbiter.holder()), (State::Running, Some(A)));
    assert_eq!((arbiter.decided_at(), arbiter.next_timer()), (10, None));
    assert_eq!(arbiter.tick(1_000 * QUANTUM), []);
    assert_eq!(arbiter.gpu_time(A, 1_000 * QUANTUM), 1_000 * QUANTUM - 30);
}

#[test]
fn an_equal_waits_for_the_end_of_the_quantum() {
    let mut arbiter = running(&[Normal, Normal]);
    assert_eq!(arbiter.handle(5 * MS, B, Demand), [Contend(A, Some(500))]);
    assert_eq!(arbiter.next_timer(), Some(QUANTUM));
    assert_eq!(arbiter.tick(QUANTUM - 1), []);
    assert_eq!(arbiter.tick(QUANTUM), [Revoke(A)]);
    assert_eq!((arbiter.state(A), arbiter.holder(), arbiter.next_timer()), (State::Leaving, Some(A), None));
    assert_eq!(arbiter.handle(QUANTUM + 10, A, Demand), []);
    assert_eq!(arbiter.handle(QUANTUM + 20, A, Closed), [SwapIn(B)]);
    assert_eq!(arbiter.state(A), State::Waiting);
    assert_eq!(arbiter.handle(QUANTUM + 30, B, Resident), [Grant(B), Contend(B, Some(500))]);
    assert_eq!(arbiter.decided_at(), QUANTUM);
    assert_eq!((arbiter.switches(A), arbiter.switches(B), arbiter.totals().switches), (0, 1, 1));
    assert_eq!(arbiter.gpu_time(A, 2 * QUANTUM), QUANTUM + 20);
}

#[test]
fn the_time_of_one_that_rests_stands_still_while_nobody_waits_for_it() {
    let mut arbiter = running(&[Normal, Normal]);
    assert_eq!(arbiter.handle(50 * MS, A, Rests(true)), []);
    assert!(arbiter.is_resting(A) && arbiter.state(A) == State::Running);
    assert_eq!(arbiter.gpu_time(A, 90 * MS), 50 * MS);
    assert_eq!(arbiter.handle(1_000 * MS, A, Rests(false)), []);
    assert_eq!((arbiter.is_resting(A), arbiter.gpu_time(A, 1_000 * MS)), (false, 50 * MS));
    assert_eq!(arbiter.handle(1_010 * MS, A, Rests(true)), []);
    // Its quantum goes on where it was.
    assert_eq!(arbiter.handle(2_000 * MS, B, Demand), [Contend(A, Some(500))]);
    assert!(!arbiter.is_resting(A));
    // It reported that before it knew that another tenant waits.
    assert_eq!(arbiter.handle(2_000 * MS, A, Rests(true)), []);
    assert!(!arbiter.is_resting(A));
    assert_eq!(arbiter.next_timer(), Some(2_000 * MS + QUANTUM - 60 * MS));
    assert_eq!(arbiter.handle(2_001 * MS, A, Closed), [SwapIn(B)]);
    assert_eq!(arbiter.gpu_time(A, 3_000 * MS), 61 * MS);
}

#[test]
fn a_turn_under_way_ends_by_the_quantum_that_was_set_meanwhile() {
    let mut arbiter = running(&[Normal, Normal]);
    arbiter.handle(5 * MS, B, Demand);
    arbiter.tune(50 * MS, Micros::MAX);
    assert_eq!(arbiter.next_timer(), Some(50 * MS));
    arbiter.tune(2 * QUANTUM, Micros::MAX);
    assert_eq!(arbiter.tick(QUANTUM), []);
    assert_eq!(arbiter.tick(2 * QUANTUM), [Revoke(A)]);
}

#[test]
fn who_waits_is_let_in_by_the_bound_that_was_set_meanwhile() {
    let mut arbiter = running(&[Normal, Batch]);
    arbiter.handle(5 * MS, B, Demand);
    assert_eq!(arbiter.tick(10 * QUANTUM), [], "a better class has the baton");
    arbiter.tune(QUANTUM, 11 * QUANTUM);
    assert_eq!(arbiter.tick(12 * QUANTUM), [Revoke(A)]);
}

#[test]
fn whoever_waits_can_know_behind_whom_and_until_when() {
    let mut arbiter = running(&[Normal, Normal, Batch]).with_max_wait(10 * QUANTUM);
    assert_eq!(arbiter.prospect(A, MS), None, "it has the baton");
    arbiter.handle(5 * MS, B, Demand);
    arbiter.handle(6 * MS, C, Demand);
    let first = arbiter.prospect(B, 15 * MS).expect("it waits");
    assert_eq!((first.waited, first.ahead, first.failed), (10 * MS, None, false));
    assert_eq!(first.latest, Some((QUANTUM - 15 * MS, Bound::Quantum)));
    let second = arbiter.prospect(C, 16 * MS).expect("it waits");
    assert_eq!((second.waited, second.ahead), (10 * MS, Some(B)));
    assert_eq!(second.latest, Some((10 * QUANTUM - 10 * MS, Bound::MaxWait)));
    assert_eq!(arbiter.unchanged_for(A, 16 * MS), Some(16 * MS));
}

#[test]
fn a_dear_switch_makes_the_quantum_longer_up_to_ten_seconds() {
    let mut arbiter = running(&[Normal, Normal]);
    arbiter.set_cost(B, 300 * MS);
    assert_eq!(arbiter.handle(MS, B, Demand), [Contend(A, Some(50 * MS))]);
    assert_eq!(arbiter.next_timer(), Some(1_200 * MS));
    arbiter.set_cost(B, 300_000 * MS);
    assert_eq!(arbiter.next_timer(), Some(10_000 * MS));
    arbiter.set_cost(B, 0);
    assert_eq!(arbiter.next_timer(), Some(QUANTUM));
}

#[test]
fn a_better_class_interrupts_at_once_and_the_interrupted_goes_on_first() {
    let mut arbiter = running(&[Batch, Batch, Latency]);
    assert_eq!(arbiter.handle(MS, B, Demand), [Contend(A, Some(500))]);
    assert_eq!(arbiter.handle(50 * MS, C, Demand), [Revoke(A)]);
    assert_eq!(arbiter.handle(50 * MS, A, Demand), []);
    assert_eq!(arbiter.handle(50 * MS, A, Closed), [SwapIn(C)]);
    assert_eq!(arbiter.handle(51 * MS, C, Resident), [Grant(C), Contend(C, Some(500))]);
    // B has had less time, but A has a quantum to end.
    assert_eq!(arbiter.handle(60 * MS, C, Closed), [SwapIn(A)]);
    assert_eq!(arbiter.handle(60 * MS, A, Resident), [Grant(A), Contend(A, Some(500))]);
    assert_eq!(arbiter.next_timer(), Some(60 * MS + QUANTUM - 50 * MS));
    assert_eq!(arbiter.tick(60 * MS + QUANTUM - 50 * MS), [Revoke(A)]);
    assert_eq!(arbiter.handle(300 * MS, A, Closed), [SwapIn(B)]);
}

#[test]
fn who_was_interrupted_close_to_the_end_of_its_quantum_does_not_go_on_first() {
    let mut arbiter = running(&[Batch, Batch, Latency]);
    arbiter.handle(MS, B, Demand);
    arbiter.handle(180 * MS, C, Demand);
    arbiter.handle(180 * MS, A, Demand);
    assert_eq!(arbiter.handle(180 * MS, A, Closed), [SwapIn(C)]);
    arbiter.handle(180 * MS, C, Resident);
    assert_eq!(arbiter.handle(190 * MS, C, Closed), [SwapIn(B)]);
}

#[test]
fn a_worse_class_waits_until_the_holder_is_idle() {
    let mut arbiter = running(&[Latency, Batch]);
    arbiter.set_cost(B, 20 * MS);
    assert_eq!(arbiter.handle(MS, B, Demand), [Contend(A, Some(10 * MS))]);
    assert_eq!(arbiter.next_timer(), None);
    assert_eq!(arbiter.tick(100 * QUANTUM), []);
    assert_eq!(arbiter.handle(101 * QUANTUM, A, Closed), [SwapIn(B)]);
    assert_eq!(arbiter.handle(101 * QUANTUM, B, Resident), [Grant(B)]);
    assert_eq!(arbiter.decided_at(), 101 * QUANTUM);
}

#[test]
fn a_parked_tenant_gets_the_baton_back_and_that_is_no_switch() {
    let mut arbiter = running(&[Normal, Normal]);
    assert_eq!(arbiter.handle(MS, A, Closed), []);
    assert_eq!((arbiter.state(A), arbiter.holder()), (State::Idle, None));
    assert_eq!(arbiter.handle(2 * MS, A, Demand), [SwapIn(A)]);
    assert_eq!(arbiter.handle(2 * MS, A, Resident), [Grant(A)]);
    assert_eq!(arbiter.totals(), Totals { grants: 2, ..Totals::default() });
    assert_eq!(arbiter.gpu_time(A, 5 * MS), 4 * MS);
}

#[test]
fn the_one_that_has_had_the_least_time_is_next() {
    let mut arbiter = running(&[Normal, Normal, Normal]);
    arbiter.handle(0, B, Demand);
    arbiter.handle(30 * MS, A, Closed);
    arbiter.handle(30 * MS, B, Resident);
    arbiter.handle(30 * MS, A, Demand);
    arbiter.handle(40 * MS, B, Closed);
    arbiter.handle(40 * MS, A, Resident);
    arbiter.handle(41 * MS, C, Demand);
    arbiter.handle(42 * MS, B, Demand);
    // B has had 10 ms. C started level with A, the only active one when it came, that is at 31 ms.
    arbiter.handle(60 * MS, A, Demand);
    assert_eq!(arbiter.handle(60 * MS, A, Closed), [SwapIn(B)]);
    arbiter.handle(60 * MS, B, Resident);
    arbiter.handle(100 * MS, A, Demand);
    assert_eq!(arbiter.handle(100 * MS, B, Closed), [SwapIn(C)]);
    arbiter.handle(100 * MS, C, Resident);
    assert_eq!(arbiter.handle(101 * MS, C, Closed), [SwapIn(A)]);
}

#[test]
fn a_newcomer_and_a_late_returner_do_not_make_up_for_lost_time() {
    for late in [A, C] {
        let mut arbiter = running(&[Normal, Normal, Normal]);
        arbiter.handle(MS, A, Closed);
        arbiter.handle(MS, B, Demand);
        arbiter.handle(MS, B, Resident);
        // B has had the baton for half a minute. The other does not get half a minute before B goes on.
        let start = 30_000 * MS;
        assert_eq!(arbiter.handle(start, late, Demand), [Revoke(B)]);
        arbiter.handle(start, B, Demand);
        assert_eq!(arbiter.handle(start, B, Closed), [SwapIn(late)]);
        arbiter.handle(start, late, Resident);
        assert_eq!(arbiter.next_timer(), Some(start + QUANTUM), "{late:?}");
    }
}

#[test]
fn time_had_while_alone_counts_as_little_as_time_of_absence() {
    let mut arbiter = running(&[Normal, Normal]);
    let end = 30_000 * MS;
    arbiter.handle(end, A, Closed);
    arbiter.handle(end + MS, B, Demand);
    arbiter.handle(end + MS, B, Resident);
    arbiter.handle(end + 2 * MS, A, Demand);
    assert_eq!(arbiter.next_timer(), Some(end + MS + QUANTUM));
}

#[test]
fn a_call_that_a_busy_holder_let_in_after_all_waits_no_more() {
    let mut arbiter = running(&[Normal, Latency]);
    arbiter.handle(MS, B, Demand);
    arbiter.handle(MS, A, Demand);
    arbiter.handle(2 * MS, A, DrainTimedOut);
    arbiter.handle(3 * MS, A, Closed);
    assert_eq!(arbiter.state(A), State::Idle);
}

#[test]
fn a_turn_lasts_until_the_holder_has_caught_up() {
    let mut arbiter = running(&[Normal, Normal]);
    arbiter.set_cost(B, 500 * MS);
    arbiter.handle(0, B, Demand);
    assert_eq!(arbiter.tick(2_000 * MS), [Revoke(A)]);
    arbiter.handle(2_000 * MS, A, Demand);
    arbiter.handle(2_000 * MS, A, Closed);
    arbiter.handle(2_500 * MS, B, Resident);
    assert_eq!(arbiter.next_timer(), Some(4_500 * MS), "A costs nothing, but has had two seconds more");
}

#[test]
fn a_holder_that_cannot_be_drained_is_left_alone_for_longer_and_longer() {
    let mut arbiter = running(&[Batch, Latency]);
    let mut now = MS;
    assert_eq!(arbiter.handle(now, B, Demand), [Revoke(A)]);
    for pause in [100, 200, 400, 800, 1_600, 2_000, 2_000] {
        assert_eq!(arbiter.handle(now, A, DrainTimedOut), [Contend(A, Some(500))]);
        assert_eq!(arbiter.holder(), Some(A));
        assert_eq!(arbiter.next_timer(), Some(now + pause * MS));
        now += pause * MS;
        assert_eq!(arbiter.tick(now - 1), []);
        assert_eq!(arbiter.tick(now), [Revoke(A)]);
    }
    assert_eq!(arbiter.handle(now + 7, A, Closed), [SwapIn(B)]);
    arbiter.handle(now + 8, B, Resident);
    assert_eq!(arbiter.decided_at(), now);
}

#[test]
fn a_holder_that_cannot_be_drained_still_makes_way_when_it_is_idle() {
    let mut arbiter = running(&[Batch, Latency]);
    arbiter.handle(MS, B, Demand);
    arbiter.handle(2 * MS, A, DrainTimedOut);
    assert_eq!(arbiter.handle(3 * MS, A, Closed), [SwapIn(B)]);
}

#[test]
fn who_was_paused_goes_on_without_asking() {
    let mut arbiter = running(&[Batch, Batch, Latency]);
    arbiter.handle(MS, C, Demand);
    assert_eq!(arbiter.handle(2 * MS, A, Preempted), [SwapIn(C)]);
    assert_eq!(arbiter.state(A), State::Waiting);
    arbiter.handle(2 * MS, C, Resident);
    arbiter.handle(3 * MS, B, Demand);
    assert_eq!(arbiter.handle(4 * MS, C, Closed), [SwapIn(A)], "it was interrupted");
    assert_eq!(arbiter.gpu_time(A, 5 * MS), 2 * MS, "not what it was off the GPU");
    assert_eq!(arbiter.handle(5 * MS, A, Preempted), [], "it is not on the GPU");
}

#[test]
fn only_a_strictly_better_class_makes_an_arrival_be_given_up() {
    let mut arbiter = arbiter(&[Normal, Normal, Latency]);
    assert_eq!(arbiter.handle(0, A, Demand), [SwapIn(A)]);
    assert_eq!(arbiter.handle(1, B, Demand), []);
    assert_eq!(arbiter.handle(2, C, Demand), [SwapIn(C)]);
    assert_eq!((arbiter.state(A), arbiter.state(C)), (State::Waiting, State::Arriving));
    assert_eq!(arbiter.handle(3, A, Resident), [], "what was given up does not count");
    assert_eq!(arbiter.handle(4, C, Resident), [Grant(C), Contend(C, Some(500))]);
    assert_eq!(arbiter.handle(5, C, Closed), [SwapIn(A)], "its place is kept");
    assert_eq!(arbiter.totals().given_up, 1);
}

#[test]
fn who_cannot_arrive_is_tried_again_and_the_others_run() {
    let mut arbiter = arbiter(&[Latency, Batch]);
    arbiter.handle(0, A, Demand);
    assert_eq!(arbiter.handle(0, B, Demand), []);
    assert_eq!(arbiter.handle(MS, A, CannotArrive), [SwapIn(B)]);
    assert_eq!((arbiter.state(A), arbiter.next_timer()), (State::Waiting, None), "an arrival is not disturbed");
    assert_eq!(arbiter.handle(2 * MS, B, Resident), [Grant(B), Contend(B, Some(500))]);
    assert_eq!(arbiter.next_timer(), Some(101 * MS));
    // It has lost the right to interrupt.
    assert_eq!(arbiter.tick(101 * MS), []);
    assert_eq!(arbiter.next_timer(), Some(2 * MS + QUANTUM));
    assert_eq!(arbiter.handle(150 * MS, B, Closed), [SwapIn(A)]);
    assert_eq!(arbiter.handle(250 * MS, B, Demand), []);
    assert_eq!(arbiter.handle(250 * MS, A, CannotArrive), [SwapIn(B)]);
    arbiter.handle(250 * MS, B, Resident);
    // The try took 100 ms: four times as long for the others.
    assert_eq!(arbiter.next_timer(), Some(650 * MS));
    assert_eq!(arbiter.tick(650 * MS), [Revoke(B)]);
    assert_eq!(arbiter.handle(650 * MS, B, Closed), [SwapIn(A)]);
    arbiter.handle(650 * MS, A, Resident);
    // It has arrived, and has its right back.
    arbiter.handle(651 * MS, A, Closed);
    arbiter.handle(652 * MS, B, Demand);
    arbiter.handle(652 * MS, B, Resident);
    assert_eq!(arbiter.handle(653 * MS, A, Demand), [Revoke(B)]);
}

#[test]
fn who_cannot_arrive_is_tried_again_at_once_when_somebody_has_left() {
    let mut arbiter = arbiter(&[Normal, Normal]);
    arbiter.handle(0, A, Demand);
    assert_eq!(arbiter.handle(MS, A, CannotArrive), []);
    assert_eq!(arbiter.next_timer(), Some(101 * MS));
    assert_eq!(arbiter.handle(2 * MS, B, Left), [SwapIn(A)]);
}

#[test]
fn a_tenant_that_cannot_arrive_is_tried_again_when_memory_is_free() {
    let mut arbiter = arbiter(&[Normal, Normal, Normal]);
    arbiter.handle(0, A, Demand);
    assert_eq!(arbiter.handle(MS, A, CannotArrive), []);
    // The memory of one that has left may still be in use.
    assert_eq!(arbiter.handle(2 * MS, B, Left), [SwapIn(A)]);
    assert_eq!(arbiter.handle(3 * MS, A, CannotArrive), []);
    arbiter.end_rests();
    assert_eq!(arbiter.tick(4 * MS), [SwapIn(A)]);
}

#[test]
fn who_may_be_tried_again_is_not_forgotten_because_the_time_was_told_otherwise() {
    let mut arbiter = arbiter(&[Normal, Normal]);
    arbiter.handle(0, A, Demand);
    assert_eq!(arbiter.handle(MS, A, CannotArrive), []);
    arbiter.set_pressure(102 * MS, Pressure::Free);
    arbiter.set_busy(103 * MS, B, false);
    assert!(arbiter.next_timer().is_some_and(|at| at <= 103 * MS), "{:?}", arbiter.next_timer());
    assert_eq!(arbiter.tick(103 * MS), [SwapIn(A)]);
    assert_eq!(arbiter.next_timer(), None);
}

#[test]
fn a_quantum_begins_when_all_memory_is_there() {
    let mut arbiter = arbiter(&[Normal, Normal, Latency]);
    arbiter.handle(0, A, Demand);
    assert_eq!(arbiter.handle(MS, A, Ready), [Grant(A)]);
    arbiter.handle(2 * MS, B, Demand);
    assert_eq!(arbiter.next_timer(), None);
    assert_eq!(arbiter.tick(10 * QUANTUM), [], "it has not had what it would need");
    assert_eq!(arbiter.handle(11 * QUANTUM, A, Resident), []);
    assert_eq!(arbiter.handle(11 * QUANTUM + MS, A, Resident), [], "said twice");
    assert_eq!(arbiter.next_timer(), Some(12 * QUANTUM));
    assert_eq!(arbiter.tick(12 * QUANTUM), [Revoke(A)]);
    assert_eq!(arbiter.handle(12 * QUANTUM, A, Closed), [SwapIn(B)]);
    assert_eq!(arbiter.handle(12 * QUANTUM, B, Ready), [Grant(B)]);
    assert_eq!(arbiter.handle(12 * QUANTUM + MS, C, Demand), [Revoke(B)], "who is more urgent does not wait for that");
}

#[test]
fn who_is_stranded_is_tried_again_after_longer_and_longer_pauses() {
    let mut arbiter = arbiter(&[Normal]);
    arbiter.handle(0, A, Demand);
    let mut now = 0;
    for pause in [100 * MS, 200 * MS, 400 * MS] {
        assert_eq!(arbiter.handle(now, A, Ready), [Grant(A)]);
        assert_eq!(arbiter.handle(now, A, Stranded), [Revoke(A)]);
        arbiter.handle(now, A, Demand);
        assert_eq!(arbiter.handle(now, A, Closed), []);
        assert_eq!(arbiter.next_timer(), Some(now + pause));
        now += pause;
        assert_eq!(arbiter.tick(now), [SwapIn(A)]);
    }
    assert_eq!(arbiter.handle(now, A, Ready), [Grant(A)]);
    assert_eq!(arbiter.handle(now, A, Stranded), [Revoke(A)]);
    arbiter.handle(now, A, DrainTimedOut);
    assert_eq!(arbiter.handle(now + MS, A, Stranded), [], "it could not be drained just now");
    assert_eq!(arbiter.handle(now + 100 * MS, A, Stranded), [Revoke(A)]);
}

#[test]
fn the_holder_is_told_who_waits_only_when_it_changes() {
    let mut arbiter = running(&[Normal, Batch, Batch]);
    arbiter.set_cost(B, 20 * MS);
    arbiter.set_cost(C, 20 * MS);
    assert_eq!(arbiter.handle(MS, B, Demand), [Contend(A, Some(10 * MS))]);
    assert_eq!(arbiter.handle(MS, C, Demand), []);
    arbiter.set_cost(B, 39 * MS);
    assert_eq!(arbiter.tick(2 * MS), []);
    arbiter.set_cost(B, 40 * MS);
    assert_eq!(arbiter.tick(3 * MS), [Contend(A, Some(20 * MS))]);
    assert_eq!(arbiter.handle(4 * MS, B, Left), [Contend(A, Some(10 * MS))]);
    assert_eq!(arbiter.handle(5 * MS, C, Left), [Contend(A, None)]);
    assert_eq!(arbiter.tick(6 * MS), []);
}

#[test]
fn who_was_told_to_make_way_is_told_when_it_comes_back_that_nobody_waits() {
    let mut arbiter = running(&[Normal, Normal]);
    assert_eq!(arbiter.handle(MS, B, Demand), [Contend(A, Some(500))]);
    arbiter.handle(2 * MS, A, Closed);
    arbiter.handle(2 * MS, B, Left);
    arbiter.handle(3 * MS, A, Demand);
    assert_eq!(arbiter.handle(3 * MS, A, Resident), [Grant(A), Contend(A, None)]);
}

#[test]
fn whoever_leaves_in_whatever_state_the_others_go_on() {
    for (state, expected) in [
        (State::Idle, vec![]),
        (State::Waiting, vec![]),
        (State::Arriving, vec![SwapIn(C)]),
        (State::Running, vec![SwapIn(C)]),
        (State::Leaving, vec![SwapIn(C)]),
    ] {
        let mut arbiter = arbiter(&[Normal, Normal, Batch]);
        if matches!(state, State::Idle | State::Waiting) {
            arbiter.handle(0, B, Demand);
        }
        if state != State::Idle {
            arbiter.handle(0, A, Demand);
        }
        if matches!(state, State::Running | State::Leaving) {
            arbiter.handle(0, A, Resident);
        }
        arbiter.handle(0, C, Demand);
        if state == State::Leaving {
            arbiter.handle(0, B, Demand);
            arbiter.tick(QUANTUM);
            arbiter.handle(QUANTUM, B, Left);
        }
        assert_eq!(arbiter.state(A), state);
        assert_eq!(arbiter.handle(QUANTUM, A, Left), expected, "{state:?}");
        assert_eq!(arbiter.state(A), State::Idle);
    }
}

#[test]
fn nonsense_is_ignored() {
    let mut arbiter = running(&[Normal, Normal]);
    for event in [Resident, CannotArrive, DrainTimedOut, Demand, Joined { scheduling: Latency.into() }] {
        assert_eq!(arbiter.handle(MS, A, event), [], "{event:?} while running");
    }
    for event in [Resident, CannotArrive, DrainTimedOut, Closed, Left] {
        assert_eq!(arbiter.handle(MS, B, event), [], "{event:?} while idle");
        assert_eq!(arbiter.handle(MS, TenantId(99), event), [], "{event:?} of a stranger");
    }
    assert_eq!(arbiter.handle(MS, TenantId(99), Demand), []);
    assert_eq!(arbiter.holder(), Some(A));
}

#[test]
fn a_clock_that_goes_back_is_taken_to_stand_still() {
    let mut arbiter = running(&[Normal, Normal]);
    arbiter.handle(QUANTUM / 2, B, Demand);
    assert_eq!(arbiter.tick(1), []);
    assert_eq!(arbiter.gpu_time(A, 1), 1);
    assert_eq!(arbiter.tick(QUANTUM), [Revoke(A)]);
    assert_eq!(arbiter.handle(3, A, Closed), [SwapIn(B)]);
    assert_eq!(arbiter.gpu_time(A, 3), QUANTUM);
}

#[test]
fn who_is_urgent_runs_beside_others_as_long_as_all_fit_together() {
    let mut arbiter = running(&[Batch, Latency, Latency]);
    arbiter.set_together(true);
    assert_eq!(arbiter.handle(MS, B, Demand), [Corun(B, true), Grant(B)]);
    arbiter.set_busy(MS, B, true);
    assert_eq!((arbiter.state(B), arbiter.state(A), arbiter.holder()), (State::Corunning, State::Running, Some(A)));
    assert_eq!(arbiter.handle(2 * MS, C, Demand), [Corun(C, true), Grant(C)]);
    assert_eq!(arbiter.handle(2 * MS, B, Demand), [], "its gate is open");
    assert_eq!(arbiter.tick(20 * MS), []);
    arbiter.set_busy(25 * MS, B, false);
    arbiter.set_together(false);
    assert_eq!(arbiter.tick(30 * MS), [Corun(B, false), Revoke(B), Corun(C, false), Revoke(C)]);
    assert_eq!((arbiter.state(B), arbiter.holder()), (State::Leaving, Some(A)));
    assert_eq!(arbiter.handle(31 * MS, C, Closed), []);
    assert_eq!(arbiter.handle(32 * MS, B, DrainTimedOut), []);
    assert_eq!((arbiter.state(B), arbiter.next_timer()), (State::Corunning, Some(132 * MS)));
    assert_eq!(arbiter.tick(132 * MS), [Corun(B, false), Revoke(B)]);
    assert_eq!(arbiter.handle(133 * MS, B, Preempted), [Revoke(A)], "it has work, and goes first");
    assert_eq!(arbiter.handle(134 * MS, A, Closed), [SwapIn(B)]);
    assert_eq!(arbiter.gpu_time(B, 200 * MS), 24 * MS, "only its work counts");
    assert_eq!(arbiter.gpu_time(A, 200 * MS), 134 * MS);
}

#[test]
fn what_was_done_beside_others_does_not_count_against_anybody_later() {
    let mut arbiter = arbiter(&[Latency, Latency]);
    arbiter.set_together(true);
    assert_eq!(arbiter.handle(0, A, Demand), [Corun(A, true), Grant(A)]);
    arbiter.set_busy(0, A, true);
    let hour = 3_600_000 * MS;
    arbiter.set_together(false);
    assert_eq!(arbiter.tick(hour), [Corun(A, false), Revoke(A)]);
    assert_eq!(arbiter.handle(hour, A, Preempted), [SwapIn(A)]);
    assert_eq!(arbiter.handle(hour, A, Resident), [Grant(A)]);
    assert_eq!(arbiter.handle(hour, B, Demand), [Contend(A, Some(500))]);
    let before = [A, B].map(|id| arbiter.gpu_time(id, hour));
    let (mut now, mut holder) = (hour, A);
    for _ in 0..20 {
        now = arbiter.next_timer().expect("the other one waits");
        assert_eq!(arbiter.tick(now), [Revoke(holder)]);
        let next = if holder == A { B } else { A };
        assert_eq!(arbiter.handle(now, holder, Preempted), [SwapIn(next)]);
        arbiter.handle(now, next, Resident);
        holder = next;
    }
    let had = [(A, before[0]), (B, before[1])].map(|(id, before)| arbiter.gpu_time(id, now) - before);
    assert!(had[0].abs_diff(had[1]) <= QUANTUM, "{had:?}");
}

#[test]
fn time_in_which_a_holder_can_do_nothing_is_no_part_of_its_turn() {
    let mut arbiter = running(&[Batch, Batch]);
    assert_eq!(arbiter.handle(MS, B, Demand), [Contend(A, Some(500))]);
    arbiter.set_pressure(50 * MS, Pressure::KeptBack);
    assert_eq!(arbiter.next_timer(), None);
    assert_eq!(arbiter.tick(5 * QUANTUM), []);
    arbiter.set_pressure(5 * QUANTUM, Pressure::Free);
    assert_eq!(arbiter.gpu_time(A, 5 * QUANTUM), 50 * MS);
    assert_eq!(arbiter.next_timer(), Some(6 * QUANTUM - 50 * MS));
    assert_eq!(arbiter.tick(6 * QUANTUM - 50 * MS), [Revoke(A)]);
}

#[test]
fn a_guest_that_leaves_has_left_before_it_gets_the_baton() {
    let mut arbiter = arbiter(&[Latency, Latency]);
    arbiter.set_together(true);
    assert_eq!(arbiter.handle(0, A, Demand), [Corun(A, true), Grant(A)]);
    arbiter.set_together(false);
    assert_eq!(arbiter.tick(MS), [Corun(A, false), Revoke(A)]);
    assert_eq!(arbiter.handle(2 * MS, A, Demand), []);
    assert_eq!(arbiter.handle(3 * MS, A, Closed), [SwapIn(A)]);
    assert_eq!(arbiter.handle(4 * MS, A, Resident), [Grant(A)]);
    assert!(!arbiter.is_corunner(A));
}

#[test]
fn an_urgent_holder_makes_way_without_leaving_when_all_fit_together() {
    let mut arbiter = running(&[Latency, Batch]);
    arbiter.set_together(true);
    assert_eq!(arbiter.tick(2 * MS), [Corun(A, true)]);
    assert_eq!(arbiter.handle(2 * MS, B, Demand), [SwapIn(B)]);
    assert_eq!(arbiter.handle(2 * MS, B, Resident), [Grant(B)]);
    assert_eq!((arbiter.state(A), arbiter.holder()), (State::Corunning, Some(B)));
    assert_eq!(arbiter.handle(3 * MS, A, Left), []);
    assert_eq!(arbiter.holder(), Some(B));
}

#[test]
fn an_urgent_holder_that_others_wait_for_ends_its_request_first() {
    let mut arbiter = running(&[Latency, Batch]).with_max_wait(10 * QUANTUM);
    assert_eq!(arbiter.handle(MS, B, Demand), [Contend(A, Some(500))]);
    arbiter.set_together(true);
    assert_eq!(arbiter.tick(2 * MS), []);
    assert_eq!(arbiter.handle(3 * MS, A, Closed), [SwapIn(B)]);
    assert_eq!(arbiter.handle(4 * MS, B, Resident), [Grant(B)]);
    // It co-runs with the other from its next request on.
    assert_eq!(arbiter.handle(5 * MS, A, Demand), [Corun(A, true), Grant(A)]);
}

#[test]
fn nobody_waits_longer_than_max_wait_for_the_end_of_a_request() {
    let mut arbiter = running(&[Latency, Batch]).with_max_wait(10 * QUANTUM);
    arbiter.handle(MS, B, Demand);
    arbiter.set_together(true);
    assert_eq!(arbiter.next_timer(), Some(MS + 10 * QUANTUM));
    assert_eq!(arbiter.tick(MS + 10 * QUANTUM), [Corun(A, true), SwapIn(B)]);
}

#[test]
fn one_that_is_urgent_too_does_not_wait_for_the_end_of_a_request() {
    let mut arbiter = running(&[Latency, Latency]);
    arbiter.set_cost(B, MS);
    arbiter.handle(MS, B, Demand);
    arbiter.set_together(true);
    assert_eq!(arbiter.tick(2 * MS), [Corun(A, true), SwapIn(B)]);
}

#[test]
fn who_is_alone_has_the_baton_and_is_nobodys_guest() {
    let mut arbiter = arbiter(&[Latency]);
    arbiter.set_together(true);
    assert_eq!(arbiter.handle(0, A, Demand), [SwapIn(A)]);
    assert_eq!(arbiter.handle(0, A, Resident), [Grant(A)]);
    assert_eq!(arbiter.handle(MS, B, Joined { scheduling: Batch.into() }), [Corun(A, true)]);
}

#[test]
fn only_who_is_urgent_and_has_all_its_memory_runs_beside_others() {
    let mut arbiter = running(&[Batch, Latency, Batch]);
    arbiter.set_together(true);
    arbiter.set_cost(B, MS);
    assert_eq!(arbiter.handle(MS, C, Demand), [Contend(A, Some(500))]);
    assert_eq!(arbiter.handle(2 * MS, B, Demand), [Revoke(A)]);
    assert_eq!(arbiter.handle(3 * MS, A, Preempted), [SwapIn(B)]);
    assert_eq!(arbiter.handle(4 * MS, B, Ready), [Grant(B), Contend(B, Some(500))]);
    assert_eq!(arbiter.handle(5 * MS, B, Resident), []);
    arbiter.set_cost(B, 0);
    assert_eq!(arbiter.handle(6 * MS, B, Closed), [SwapIn(A)]);
    assert_eq!(arbiter.handle(7 * MS, B, Demand), [Corun(B, true), Grant(B)]);
}

fn slo(micros: Micros) -> Scheduling {
    Scheduling { slo_micros: micros, ..Latency.into() }
}

#[test]
fn a_request_with_a_target_is_begun_in_time_to_meet_it() {
    let mut arbiter = running(&[Latency, Latency]);
    arbiter.handle(0, B, Changed { scheduling: slo(20 * MS) });
    arbiter.set_cost(B, 4 * MS);
    assert_eq!(arbiter.handle(5 * MS, B, Demand), [Contend(A, Some(2 * MS))]);
    // It is due at 25 ms, and the swap-in takes 4 ms.
    assert_eq!(arbiter.next_timer(), Some(21 * MS));
    assert_eq!(arbiter.tick(21 * MS), [Revoke(A)]);
    assert_eq!(arbiter.handle(22 * MS, A, Preempted), [SwapIn(B)]);
    assert_eq!(arbiter.handle(26 * MS, B, Resident), [Grant(B), Contend(B, Some(500))]);
    assert_eq!(arbiter.next_timer(), Some(26 * MS + QUANTUM), "one without a target does not interrupt it");
    // From now on it is known to take 2 ms.
    arbiter.set_cost(B, 0);
    arbiter.handle(34 * MS, B, Closed);
    arbiter.handle(34 * MS, A, Resident);
    arbiter.handle(40 * MS, B, Demand);
    assert_eq!(arbiter.next_timer(), Some(58 * MS));
}

#[test]
fn of_two_targets_the_first_goes_first() {
    let mut arbiter = running(&[Latency, Latency, Latency]);
    arbiter.handle(0, B, Changed { scheduling: slo(50 * MS) });
    arbiter.handle(0, C, Changed { scheduling: slo(20 * MS) });
    arbiter.handle(MS, B, Demand);
    arbiter.handle(2 * MS, C, Demand);
    assert_eq!(arbiter.handle(3 * MS, A, Closed), [SwapIn(C)]);
}

#[test]
fn of_two_targets_the_one_with_the_least_slack_goes_first() {
    let mut arbiter = running(&[Latency, Latency, Latency]);
    arbiter.handle(0, B, Changed { scheduling: slo(20 * MS) });
    arbiter.handle(0, C, Changed { scheduling: slo(30 * MS) });
    // It is due later, but its memory takes longer to come.
    arbiter.set_cost(C, 25 * MS);
    arbiter.handle(MS, B, Demand);
    assert_eq!(arbiter.next_timer(), Some(21 * MS));
    arbiter.handle(MS, C, Demand);
    assert_eq!(arbiter.next_timer(), Some(6 * MS));
    assert_eq!(arbiter.handle(3 * MS, A, Closed), [SwapIn(C)]);
    // The memory that has come in the meantime counts.
    let mut arbiter = running(&[Latency, Latency, Latency]);
    arbiter.handle(0, B, Changed { scheduling: slo(20 * MS) });
    arbiter.handle(0, C, Changed { scheduling: slo(30 * MS) });
    arbiter.set_cost(C, 25 * MS);
    arbiter.handle(MS, B, Demand);
    arbiter.handle(MS, C, Demand);
    arbiter.set_cost(C, 5 * MS);
    assert_eq!(arbiter.handle(3 * MS, A, Closed), [SwapIn(B)]);
}

#[test]
fn a_target_that_can_no_longer_be_met_pushes_nobody_over() {
    let mut arbiter = running(&[Latency, Latency, Latency]);
    arbiter.handle(0, B, Changed { scheduling: slo(5 * MS) });
    arbiter.set_cost(B, 20 * MS);
    arbiter.handle(MS, B, Demand);
    assert_eq!(arbiter.next_timer(), Some(QUANTUM), "it interrupts nobody");
    arbiter.handle(2 * MS, C, Changed { scheduling: slo(50 * MS) });
    arbiter.handle(2 * MS, C, Demand);
    assert_eq!(arbiter.next_timer(), Some(52 * MS));
    assert_eq!(arbiter.handle(3 * MS, A, Closed), [SwapIn(C)], "it goes after one that can be met");
    arbiter.handle(4 * MS, C, Resident);
    assert_eq!(arbiter.handle(8 * MS, C, Closed), [SwapIn(B)], "but it goes");
}

#[test]
fn a_target_is_given_up_when_the_time_to_begin_is_well_past() {
    for (late, decided) in [(0, true), (900, true), (2 * MS, true), (2 * MS + 1, false)] {
        let mut arbiter = running(&[Latency, Latency]);
        arbiter.handle(0, B, Changed { scheduling: slo(20 * MS) });
        arbiter.handle(5 * MS, B, Demand);
        assert_eq!(arbiter.next_timer(), Some(25 * MS));
        let expected = if decided { vec![Revoke(A)] } else { vec![] };
        assert_eq!(arbiter.tick(25 * MS + late), expected, "{late} too late");
    }
}

#[test]
fn a_turn_in_which_nobody_waited_does_not_say_how_long_turns_take() {
    let mut arbiter = running(&[Latency, Batch, Latency]);
    arbiter.handle(0, A, Changed { scheduling: slo(20 * MS) });
    let minute = 60_000 * MS;
    arbiter.handle(minute, B, Demand);
    assert_eq!(arbiter.handle(minute + MS, A, Closed), [SwapIn(B)]);
    assert_eq!(arbiter.handle(minute + MS, C, Demand), [SwapIn(C)]);
    arbiter.handle(minute + 2 * MS, C, Resident);
    arbiter.handle(minute + 3 * MS, A, Demand);
    assert_eq!(arbiter.next_timer(), Some(minute + 23 * MS));
}

#[test]
fn whoever_has_waited_for_too_long_gets_one_turn_whatever_its_class() {
    let mut arbiter = Arbiter::new(QUANTUM).with_max_wait(1_000 * MS);
    for (class, id) in [Latency, Batch, Batch].into_iter().zip(1..) {
        arbiter.handle(0, TenantId(id), Joined { scheduling: class.into() });
    }
    arbiter.handle(0, A, Demand);
    arbiter.handle(0, A, Resident);
    arbiter.handle(0, B, Demand);
    arbiter.handle(0, C, Demand);
    assert_eq!(arbiter.next_timer(), Some(1_000 * MS));
    assert_eq!(arbiter.tick(1_000 * MS), [Revoke(A)]);
    assert_eq!(arbiter.handle(1_001 * MS, A, Preempted), [SwapIn(B)], "no better class makes it wait");
    assert_eq!(arbiter.handle(1_002 * MS, B, Resident), [Grant(B), Contend(B, Some(500))]);
    assert_eq!(arbiter.tick(1_002 * MS + QUANTUM - 1), []);
    assert_eq!(arbiter.tick(1_002 * MS + QUANTUM), [Revoke(B)]);
    assert_eq!(arbiter.handle(1_203 * MS, B, Preempted), [SwapIn(A)], "nobody urgent waits for two such turns");
    arbiter.handle(1_203 * MS, A, Resident);
    assert_eq!(arbiter.next_timer(), Some(1_203 * MS + QUANTUM));
    assert_eq!(arbiter.tick(1_203 * MS + QUANTUM), [Revoke(A)]);
    assert_eq!(arbiter.handle(1_404 * MS, A, Preempted), [SwapIn(C)]);
}

#[test]
fn whom_the_user_keeps_off_the_gpu_gets_it_when_it_may_go_on() {
    let mut arbiter = running(&[Normal, Batch]);
    assert_eq!(arbiter.handle(MS, A, KeepOff(true)), [Revoke(A)]);
    assert_eq!(arbiter.handle(2 * MS, A, Preempted), []);
    assert_eq!((arbiter.holder(), arbiter.next_timer()), (None, None));
    assert_eq!(arbiter.handle(3 * MS, B, Demand), [SwapIn(B)], "nobody waits for it");
    assert_eq!(arbiter.handle(4 * MS, B, Resident), [Grant(B)]);
    assert_eq!(arbiter.handle(5 * MS, A, KeepOff(false)), [Revoke(B)]);
    assert_eq!(arbiter.handle(6 * MS, B, Closed), [SwapIn(A)]);
    assert_eq!(arbiter.handle(7 * MS, A, KeepOff(true)), [], "its arrival is given up");
    assert_eq!(arbiter.state(A), State::Idle);
    assert_eq!(arbiter.handle(8 * MS, A, Resident), []);
    assert_eq!(arbiter.handle(9 * MS, A, KeepOff(false)), [SwapIn(A)]);
}

#[test]
fn a_guest_leaves_when_it_is_kept_off_or_is_no_longer_urgent() {
    let mut arbiter = running(&[Batch, Latency, Latency]);
    arbiter.set_together(true);
    arbiter.handle(MS, B, Demand);
    arbiter.handle(MS, C, Demand);
    assert_eq!(arbiter.handle(2 * MS, B, KeepOff(true)), [Corun(B, false), Revoke(B)]);
    assert_eq!(arbiter.handle(3 * MS, B, Preempted), []);
    assert_eq!(arbiter.handle(4 * MS, C, Changed { scheduling: Normal.into() }), [Corun(C, false), Revoke(C)]);
    assert_eq!(arbiter.handle(5 * MS, C, Preempted), [Revoke(A)]);
    assert_eq!(arbiter.handle(6 * MS, A, Closed), [SwapIn(C)]);
    assert_eq!(arbiter.handle(7 * MS, B, KeepOff(false)), [Corun(B, true), Grant(B)]);
}

#[test]
fn a_weight_counts_from_when_it_is_set() {
    let mut arbiter = running(&[Batch, Batch]);
    arbiter.handle(0, A, Changed { scheduling: Scheduling { weight: 3, ..Batch.into() } });
    arbiter.handle(0, B, Demand);
    assert_eq!(arbiter.tick(QUANTUM), [Revoke(A)]);
    arbiter.handle(QUANTUM, A, Preempted);
    arbiter.handle(QUANTUM, B, Resident);
    assert_eq!(arbiter.tick(2 * QUANTUM), [Revoke(B)]);
    arbiter.handle(2 * QUANTUM, B, Preempted);
    arbiter.handle(2 * QUANTUM, A, Resident);
    // It has had a third of its share by now.
    assert_eq!(arbiter.next_timer(), Some(4 * QUANTUM));
}
