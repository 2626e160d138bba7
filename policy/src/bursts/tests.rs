//! Modelled workloads: one urgent program with requests at random times, and work beside it that never ends.

use baton_contract::class::Class;
use proptest::prelude::*;

use super::*;
use crate::arbiter::{Arbiter, Decision, Event, Pressure, SHARE, State, TenantId};
use crate::dice::Dice;

const MS: Micros = 1_000;
const SECOND: Micros = 1_000 * MS;
const RULES: Rules = Rules { burst: MS, slack: 50, max_wait: 2 * SECOND, share: 20 * MS };

/// The results, in microseconds.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// No urgent tenant was at work.
    free: Micros,
    /// The part of that in which the others were not off.
    used: Micros,
    /// They went on in spite of urgent work.
    passed: Micros,
    /// The longest time that the others could do nothing.
    longest_wait: Micros,
    /// The number of times that work began on a GPU that others were on.
    changes: u64,
    /// The number of requests that came when no urgent tenant was at work.
    begun: u64,
    worked: Micros,
    paused: u64,
}

/// Requests of `length` at `load`, one after the other when they come faster.
fn run(rules: Rules, seed: u64, length: Micros, load: f64, duration: Micros) -> Outcome {
    let (mut bursts, mut dice, mut out) = (Bursts::new(rules), Dice(seed), Outcome::default());
    let mean = (length as f64 / load) as Micros;
    let (mut now, mut arrival, mut done) = (0, dice.gap(mean), None);
    let (mut verdict, mut kept_since) = (Verdict::default(), None);
    while now < duration {
        let event = done.unwrap_or(arrival);
        let next = bursts.next_timer().map_or(event, |timer| timer.min(event)).min(duration);
        let at_work = done.is_some();
        let span = next - now;
        match (at_work, verdict) {
            (true, Verdict::PASS) => out.passed += span,
            (false, Verdict { off, .. }) => {
                out.free += span;
                out.used += if off { 0 } else { span };
            }
            _ => {}
        }
        out.worked += if at_work { span } else { 0 };
        let waits = (at_work && verdict != Verdict::PASS) || verdict.off;
        if waits {
            let since = *kept_since.get_or_insert(now);
            out.longest_wait = out.longest_wait.max(next - since);
        } else {
            kept_since = None;
        }
        now = next;
        if now == event && done.take().is_none() {
            out.begun += 1;
            out.changes += u64::from(!verdict.off);
        }
        if done.is_none() && arrival <= now {
            arrival += dice.gap(mean);
            done = Some(now + length);
        }
        let next = bursts.look(now, done.is_some(), false);
        out.paused += u64::from(next.off && !verdict.off);
        verdict = next;
        let timer = bursts.next_timer();
        assert!(timer.is_none_or(|at| at > now), "a timer that has come is asked for again: {bursts:?}");
    }
    out
}

proptest! {
    #[test]
    fn the_others_are_never_kept_off_for_longer_than_the_user_allows(
        seed: u64,
        length in 50..50_000u64,
        load in 0.05..3.0f64,
        burst in 0..5_000u64,
        slack in 0..1_000u64,
        max_wait in 10_000..3_000_000u64,
    ) {
        let rules = Rules { burst, slack, max_wait, share: 20 * MS };
        let out = run(rules, seed, length, load, 10 * SECOND);
        prop_assert!(out.longest_wait <= max_wait, "{out:?}");
        if load > 1.5 {
            // There is hardly a gap, so they get only the shares.
            let due = 10 * SECOND / (max_wait + rules.share) * rules.share;
            prop_assert!(out.passed + out.used + 2 * rules.share >= due, "{due} {out:?}");
        }
    }

    #[test]
    fn the_others_keep_most_of_what_is_free(
        seed: u64,
        length in 200..20_000u64,
        load in 0.1..0.8f64,
        slack in 1..200u64,
    ) {
        let out = run(Rules { slack, ..RULES }, seed, length, load, 20 * SECOND);
        // Gaps vary, and the usual one is only a guess.
        prop_assert!(out.used * 10 >= out.free * 4, "{out:?}");
    }

    #[test]
    fn the_same_workload_has_the_same_outcome(seed: u64, length in 200..20_000u64, load in 0.1..0.9f64) {
        prop_assert_eq!(run(RULES, seed, length, load, SECOND), run(RULES, seed, length, load, SECOND));
    }

    #[test]
    fn any_order_of_looks_is_survived(looks in prop::collection::vec((0..u64::MAX / 2, any::<bool>(), any::<bool>()), 0..200)) {
        let mut bursts = Bursts::new(RULES);
        for (now, at_work, owed) in looks {
            let verdict = bursts.look(now, at_work, owed);
            prop_assert!(!(verdict.off && verdict.pressure == Pressure::Passing));
            bursts.next_timer();
        }
    }
}

#[test]
fn long_requests_are_worth_their_changing_over_and_nobody_lingers() {
    let out = run(RULES, 1, 8 * MS, 0.5, 20 * SECOND);
    assert_eq!(out.used, out.free, "{out:?}");
    assert!(out.paused > 500, "{out:?}");
}

#[test]
fn short_requests_close_to_each_other_change_over_less_often() {
    let (length, load) = (900, 0.5);
    let careful = run(RULES, 1, length, load, 20 * SECOND);
    let careless = run(Rules { slack: 1000, ..RULES }, 1, length, load, 20 * SECOND);
    assert_eq!(careless.changes, careless.begun, "{careless:?}");
    assert!(careful.changes * 10 < careful.begun * 8, "{careful:?}");
    assert!(careful.used * 2 > careful.free, "{careful:?}");
}

#[test]
fn what_is_over_at_once_pauses_nobody() {
    let out = run(Rules { slack: 1000, ..RULES }, 1, 900, 0.001, 200 * SECOND);
    assert_eq!((out.paused, out.used), (0, out.free), "{out:?}");
}

#[test]
fn a_burst_without_end_lets_the_others_go_on_now_and_then() {
    let mut bursts = Bursts::new(RULES);
    assert_eq!(bursts.look(5, true, false), Verdict { off: false, pressure: Pressure::KeptBack });
    assert_eq!(bursts.next_timer(), Some(5 + MS));
    assert_eq!(bursts.look(5 + MS, true, false), Verdict { off: true, pressure: Pressure::KeptBack });
    assert_eq!(bursts.next_timer(), Some(5 + 2 * SECOND));
    assert_eq!(bursts.look(5 + 2 * SECOND, true, false), Verdict { off: false, pressure: Pressure::Passing });
    assert_eq!(bursts.next_timer(), Some(5 + 2 * SECOND + 20 * MS));
    assert_eq!(bursts.look(5 + 2 * SECOND + 20 * MS, true, false), Verdict { off: true, pressure: Pressure::KeptBack });
}

/// Batch tenants beside an urgent one: [`Arbiter`] and [`Bursts`] work together as in the server.
struct Beside {
    arbiter: Arbiter,
    bursts: Bursts,
    now: Micros,
    pressure: Pressure,
    /// For each batch tenant: the time since which it has done nothing, its longest time without work, and its time at work.
    tenants: Vec<(Micros, Micros, Micros)>,
    /// Answers that are still to come.
    answers: Vec<(Micros, TenantId, Event)>,
}

/// The time that it takes to take a tenant off the GPU.
const PAUSING: Micros = 2 * MS;
const QUANTUM: Micros = 100 * MS;

impl Beside {
    fn new(rules: Rules, weights: &[u32]) -> Self {
        let mut arbiter = Arbiter::new(QUANTUM).with_max_wait(rules.max_wait);
        arbiter.set_together(true);
        let tenants = vec![(0, 0, 0); weights.len()];
        let mut new = Self {
            arbiter,
            bursts: Bursts::new(rules),
            now: 0,
            pressure: Pressure::Free,
            tenants,
            answers: Vec::new(),
        };
        for (at, weight) in weights.iter().enumerate() {
            let scheduling = baton_contract::scheduling::Scheduling { weight: *weight, ..Class::Batch.into() };
            new.tell(TenantId(at as u32), Event::Joined { scheduling });
            new.tell(TenantId(at as u32), Event::Demand);
        }
        new
    }

    fn tell(&mut self, id: TenantId, event: Event) {
        let decisions = self.arbiter.handle(self.now, id, event);
        self.carry_out(decisions);
    }

    fn carry_out(&mut self, decisions: Vec<Decision>) {
        for decision in decisions {
            match decision {
                Decision::SwapIn(id) => self.answers.push((self.now, id, Event::Resident)),
                Decision::Revoke(id) => self.answers.push((self.now + PAUSING, id, Event::Preempted)),
                _ => {}
            }
        }
    }

    /// Runs until `end`. An urgent tenant is at work if `at_work`.
    fn until(&mut self, end: Micros, at_work: bool) {
        loop {
            self.look(at_work);
            let answer = self.answers.iter().map(|(at, ..)| *at).min();
            let timers = [self.bursts.next_timer(), self.arbiter.next_timer(), answer];
            let next = timers.into_iter().flatten().min().unwrap_or(end).clamp(self.now, end);
            for (at, (since, longest, had)) in self.tenants.iter_mut().enumerate() {
                let runs = self.arbiter.state(TenantId(at as u32)) == State::Running;
                if runs && self.pressure != Pressure::KeptBack && next > self.now {
                    *longest = (*longest).max(self.now - *since);
                    *had += next - self.now;
                    *since = next;
                }
                *longest = (*longest).max(next - *since);
            }
            self.now = next;
            if let Some(at) = self.answers.iter().position(|(at, ..)| *at <= self.now) {
                let (_, id, event) = self.answers.remove(at);
                self.tell(id, event);
            } else if self.arbiter.next_timer().is_some_and(|at| at <= self.now) {
                let decisions = self.arbiter.tick(self.now);
                self.carry_out(decisions);
            } else if self.now == end {
                return;
            }
        }
    }

    fn look(&mut self, at_work: bool) {
        let verdict = self.bursts.look(self.now, at_work, self.arbiter.is_anybody_overdue());
        self.pressure = verdict.pressure;
        self.arbiter.set_pressure(self.now, self.pressure);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn of_many_that_wait_for_urgent_work_nobody_waits_for_longer_than_the_user_allows(
        count in 1..6usize,
        max_wait in 500_000..3_000_000u64,
        length in 1_000..50_000u64,
        gap in 0..2_000u64,
    ) {
        let mut world = Beside::new(Rules { max_wait, ..RULES }, &vec![1; count]);
        while world.now < 20 * SECOND {
            world.until(world.now + length, true);
            world.until(world.now + gap, false);
        }
        // Then every tenant has a share, and the last one waits for those of the others too. In a gap the holder goes on.
        let turns = count as u64 * (SHARE + 2 * PAUSING + COME_BACK);
        let bound = max_wait + turns + gap;
        for (_, longest, had) in &world.tenants {
            prop_assert!(*longest <= bound, "{longest} of {bound}: {:?}", world.tenants);
            prop_assert!(*had > 0);
        }
    }

    #[test]
    fn weights_are_shares_of_the_time_in_which_something_can_be_done(
        weights in prop::collection::vec(1..5u32, 2..4),
        length in 1_000..20_000u64,
        gap in 5_000..20_000u64,
    ) {
        let mut world = Beside::new(Rules { max_wait: 1_000 * SECOND, ..RULES }, &weights);
        while world.now < 50 * SECOND {
            world.until(world.now + length, true);
            world.until(world.now + gap, false);
        }
        let all: u64 = world.tenants.iter().map(|(_, _, had)| had).sum();
        let sum: u32 = weights.iter().sum();
        for ((_, _, had), weight) in world.tenants.iter().zip(&weights) {
            let (share, due) = (*had as f64 / all as f64, f64::from(*weight) / f64::from(sum));
            prop_assert!((share - due).abs() < 0.03, "{share} {due} {:?}", world.tenants);
        }
    }
}

#[test]
fn work_that_is_known_to_be_long_has_the_others_off_from_its_beginning() {
    let off_after = |usual| {
        let mut bursts = Bursts::new(RULES);
        bursts.expect(usual);
        let begin = 10 * SECOND;
        match bursts.look(begin, true, false) {
            Verdict { off: true, .. } => 0,
            _ => bursts.next_timer().expect("it is looked again") - begin,
        }
    };
    assert_eq!(off_after(None), RULES.burst);
    assert_eq!(off_after(Some(RULES.burst)), RULES.burst, "it may be over at once");
    assert_eq!(off_after(Some(2 * RULES.burst)), 0);
    assert_eq!(off_after(Some(SECOND)), 0);
}

#[test]
fn what_is_usual_follows_the_latest_values() {
    let mut usual = Usual::default();
    assert_eq!(usual.get(), None);
    usual.see(Micros::MAX);
    assert_eq!(usual.get(), Some(LONGEST), "whatever a peer says");
    (0..100).for_each(|_| usual.see(800));
    assert!(usual.get().is_some_and(|value| value < 820));
}
