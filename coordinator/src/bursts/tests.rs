//! Modelled workloads: one urgent program with requests at random times, and work beside it that never ends.

use proptest::prelude::*;

use super::*;

const MS: Micros = 1_000;
const SECOND: Micros = 1_000 * MS;
const RULES: Rules = Rules { burst: MS, slack: 50, max_wait: 2 * SECOND, share: 20 * MS };

/// Numbers that look random, the same for the same seed.
struct Dice(u64);

impl Dice {
    /// With this mean, as gaps between independent arrivals are.
    fn gap(&mut self, mean: Micros) -> Micros {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let uniform = (self.0 >> 11) as f64 / (1u64 << 53) as f64;
        (-(1.0 - uniform).ln() * mean as f64) as Micros
    }
}

/// What came of it, in microseconds.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// Nobody urgent at work.
    free: Micros,
    /// Of that, the others were not off.
    used: Micros,
    /// They went on in spite of urgent work.
    passed: Micros,
    /// The longest time that the others could do nothing.
    longest_wait: Micros,
    /// Work began on a GPU that others were on.
    changes: u64,
    /// Requests came when nobody was at work.
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
            (true, Verdict { pass: true, .. }) => out.passed += span,
            (false, Verdict { off, .. }) => {
                out.free += span;
                out.used += if off { 0 } else { span };
            }
            _ => {}
        }
        out.worked += if at_work { span } else { 0 };
        let waits = (at_work && !verdict.pass) || verdict.off;
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
        let next = bursts.look(now, done.is_some());
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
            // There is hardly a gap: what they get are the shares.
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
    fn any_order_of_looks_is_survived(looks in prop::collection::vec((0..u64::MAX / 2, any::<bool>()), 0..200)) {
        let mut bursts = Bursts::new(RULES);
        for (now, at_work) in looks {
            let verdict = bursts.look(now, at_work);
            prop_assert!(!(verdict.off && verdict.pass));
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
    assert_eq!(bursts.look(5, true), Verdict::default());
    assert_eq!(bursts.next_timer(), Some(5 + MS));
    assert_eq!(bursts.look(5 + MS, true), Verdict { off: true, pass: false });
    assert_eq!(bursts.next_timer(), Some(5 + 2 * SECOND));
    assert_eq!(bursts.look(5 + 2 * SECOND, true), Verdict { off: false, pass: true });
    assert_eq!(bursts.next_timer(), Some(5 + 2 * SECOND + 20 * MS));
    assert_eq!(bursts.look(5 + 2 * SECOND + 20 * MS, true), Verdict { off: true, pass: false });
}
