//! Properties that hold in every world.

use proptest::prelude::*;

use super::*;

fn class() -> impl Strategy<Value = Class> {
    prop::sample::select(Class::ALL.to_vec())
}

fn habit() -> impl Strategy<Value = Habit> {
    let work = prop_oneof![10..500u64, 1_000..50_000u64, 100_000..2_000_000u64];
    let think = prop_oneof![0..100u64, 100..20_000u64, 100_000..3_000_000u64];
    let cost = prop_oneof![Just(0), 0..2_000u64, 10_000..300_000u64];
    // Some targets cannot be met.
    let slo = prop_oneof![Just(0), 1..1_000_000u64];
    let scheduling = (class(), slo).prop_map(|(class, slo)| match class {
        Class::Latency => Scheduling { slo_micros: slo, ..class.into() },
        Class::Normal | Class::Batch => class.into(),
    });
    (scheduling, work, think, 1..40u32, cost).prop_map(|(scheduling, work, think, times, cost)| Habit {
        scheduling,
        work,
        think,
        times,
        cost,
    })
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let some = |chance| prop_oneof![Just(0), 1..chance];
    (some(80u64), some(80u64), some(30u64), some(20u64), some(10u64))
        .prop_map(|(busy, cannot_arrive, lies, leave, suspend)| Trouble { busy, cannot_arrive, lies, leave, suspend })
}

/// The default of `baton serve`.
const DEFAULT_QUANTUM: Micros = 100 * MS;

/// A tenant that always has work.
fn greedy(class: Class, cost: Micros) -> Habit {
    Habit { scheduling: class.into(), work: 3_600 * SECOND, think: 0, times: u32::MAX, cost }
}

/// The interval at which [`longest_without`] samples.
const LOOK: Micros = 50 * MS;

/// The longest time in a minute for which any of these had nothing.
fn longest_without(world: &mut World, tenants: impl Iterator<Item = u32>) -> Micros {
    let mut last: Vec<_> = tenants.map(|id| (TenantId(id), 0, 0)).collect();
    let mut longest = 0;
    while world.now < 60 * SECOND {
        world.run(world.now + LOOK);
        for (id, had, at) in &mut last {
            let has = world.arbiter.gpu_time(*id, world.now);
            if has > *had {
                (*had, *at) = (has, world.now);
            }
            longest = longest.max(world.now - *at);
        }
    }
    longest
}

/// With unequal costs and turns in the order of waiting, one tenant falls behind. Others wait no longer while it catches up.
#[test]
fn catching_up_keeps_nobody_waiting_beyond_what_the_user_allows() {
    let mut habits = [5 * MS, 39 * MS, 37 * MS].map(|cost| greedy(Class::Latency, cost)).to_vec();
    habits.push(greedy(Class::Batch, 22 * MS));
    let mut world = World::new(15_980_031_498_585_662_618, DEFAULT_QUANTUM, Trouble::default(), 0, &habits);
    world.set_max_wait(369 * MS);
    let longest = longest_without(&mut world, 1..=4);
    assert!(longest <= 1_500 * MS, "a tenant had nothing for {longest}");
}

proptest! {
    // A world lasts for many rounds, so that a few of them do.
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn everyone_gets_its_work_done_in_the_end_whatever_happens_before(
        seed: u64,
        quantum in prop_oneof![Just(0), 1_000..300_000u64],
        trouble in trouble(),
        habits in prop::collection::vec(habit(), 1..8),
        pipelining in prop_oneof![Just(100), 0..100u64],
        max_wait in prop_oneof![Just(Micros::MAX), 0..3_000_000u64],
    ) {
        let mut world = World::new(seed, quantum, trouble, 20 * SECOND, &habits);
        world.pipelining = pipelining;
        world.set_max_wait(max_wait);
        world.run(3_600 * SECOND);
        world.let_all_on();
        world.run(Micros::MAX / 2);
        for (id, worker) in &world.workers {
            assert_eq!((worker.left_to_do, worker.times), (0, 0), "{id:?} was forgotten: {worker:?}");
        }
        prop_assert_eq!(world.waiting().count(), 0);
    }

    #[test]
    fn equals_have_equal_shares(
        seed: u64,
        class in class(),
        costs in prop::collection::vec(prop_oneof![Just(0), 0..200_000u64], 2..6),
        disturbed: bool,
    ) {
        let mut habits: Vec<_> = costs.iter().map(|cost| greedy(class, *cost)).collect();
        let disturbs = Habit { scheduling: Class::Latency.into(), work: 5 * MS, think: 100 * MS, times: u32::MAX, cost: 2 * MS };
        if disturbed && class != Class::Latency {
            habits.push(disturbs);
        }
        let mut world = World::new(seed, 200 * MS, Trouble::default(), 0, &habits);
        let longest = costs.iter().map(|cost| cost * 4).max().unwrap_or(0).max(200 * MS);
        for end in 1..=3 {
            world.run(end * 10 * SECOND);
            let times = (1..=costs.len() as u32).map(|id| world.arbiter.gpu_time(TenantId(id), world.now));
            let (least, most) = (times.clone().min().unwrap_or(0), times.max().unwrap_or(0));
            prop_assert!(most - least <= 2 * longest + 100 * MS, "{least} to {most}, quantum {longest}");
        }
    }

    #[test]
    fn shares_are_in_proportion_to_the_weights_within_two_percent_in_ten_seconds(
        seed: u64,
        weights in prop::collection::vec(1..10u32, 2..5),
        disturbed: bool,
    ) {
        let batch = |weight| Scheduling { weight, ..Class::Batch.into() };
        let mut habits: Vec<_> =
            weights.iter().map(|weight| Habit { scheduling: batch(*weight), ..greedy(Class::Batch, 0) }).collect();
        if disturbed {
            let scheduling = Class::Latency.into();
            habits.push(Habit { scheduling, work: 5 * MS, think: 100 * MS, times: u32::MAX, cost: 0 });
        }
        let mut world = World::new(seed, DEFAULT_QUANTUM, Trouble::default(), 0, &habits);
        let times = |world: &World| -> Vec<Micros> {
            (1..=weights.len() as u32).map(|id| world.arbiter.gpu_time(TenantId(id), world.now)).collect()
        };
        let mut before = times(&world);
        for end in 1..=3 {
            world.run(end * 10 * SECOND);
            let now = times(&world);
            let had: Vec<_> = now.iter().zip(&before).map(|(now, before)| now - before).collect();
            let (all, sum) = (had.iter().sum::<Micros>() as f64, weights.iter().sum::<u32>() as f64);
            for (had, weight) in had.iter().zip(&weights) {
                let (share, due) = (*had as f64 / all, f64::from(*weight) / sum);
                prop_assert!((share - due).abs() <= 0.02, "{share} instead of {due}: {had:?} {weights:?}");
            }
            before = now;
        }
    }

    #[test]
    fn nobody_starves_beyond_what_the_user_allows(
        seed: u64,
        max_wait in 100_000..3_000_000u64,
        others in prop::collection::vec((prop::sample::select(vec![Class::Latency, Class::Normal]), 0..50_000u64), 1..4),
        batch in prop::collection::vec(0..50_000u64, 1..3),
    ) {
        // The others never give way by themselves.
        let mut habits: Vec<_> = others.iter().map(|(class, cost)| greedy(*class, *cost)).collect();
        habits.extend(batch.iter().map(|cost| greedy(Class::Batch, *cost)));
        let mut world = World::new(seed, DEFAULT_QUANTUM, Trouble::default(), 0, &habits);
        world.set_max_wait(max_wait);
        let first = others.len() as u32 + 1;
        // Every tenant that has waited for too long gets its turn, each after a quantum of another tenant.
        let turn = DEFAULT_QUANTUM + 5 * 50 * MS;
        let bound = max_wait + 2 * habits.len() as Micros * turn;
        let longest = longest_without(&mut world, (first..).take(batch.len()));
        prop_assert!(longest <= bound + LOOK, "a tenant had nothing for {longest}");
    }

    #[test]
    fn a_newcomer_gets_as_much_as_each_of_the_others_from_then_on(
        seed: u64,
        class in class(),
        costs in prop::collection::vec(prop_oneof![Just(0), 0..200_000u64], 2..5),
    ) {
        let habits: Vec<_> = costs.iter().skip(1).map(|cost| greedy(class, *cost)).collect();
        let mut world = World::new(seed, 200 * MS, Trouble::default(), 0, &habits);
        world.run(20 * SECOND);
        let times = |world: &World| -> Vec<_> {
            (1..=costs.len() as u32).map(|id| world.arbiter.gpu_time(TenantId(id), world.now)).collect()
        };
        let before = times(&world);
        world.join(TenantId(costs.len() as u32), greedy(class, costs[0]));
        world.run(40 * SECOND);
        let gained = times(&world).into_iter().zip(before).map(|(after, before)| after - before);
        let (least, most) = (gained.clone().min().unwrap_or(0), gained.max().unwrap_or(0));
        let longest = costs.iter().map(|cost| cost * 4).max().unwrap_or(0).max(200 * MS);
        prop_assert!(most - least <= 3 * longest + 100 * MS, "{least} to {most}, quantum {longest}");
    }
}

proptest! {
    #[test]
    fn nonsense_makes_neither_panics_nor_two_holders(
        steps in prop::collection::vec((0..6u32, 0..11u8, any::<u8>(), class()), 0..400),
        quantum: u64,
        far: bool,
    ) {
        let mut arbiter = Arbiter::new(quantum);
        let (mut known, mut open) = (Vec::new(), None);
        let mut latest = 0;
        let mut now: Micros = if far { Micros::MAX - 1_000_000 } else { 0 };
        for (id, what, time, class) in steps {
            let id = TenantId(id);
            // Mostly on, sometimes back.
            now = if time == 0 { now / 2 } else { now.saturating_add(u64::from(time) * u64::from(time) * 10) };
            latest = now.max(latest);
            let event = match what {
                0 => Event::Joined { scheduling: class.into() },
                1 => Event::Left,
                2 | 3 => Event::Demand,
                4 => Event::Closed,
                5 => Event::DrainTimedOut,
                6 => Event::CannotArrive,
                7 => Event::Ready,
                8 => Event::Stranded,
                _ => Event::Resident,
            };
            match event {
                Event::Joined { .. } => known.push(id),
                Event::Left => {
                    known.retain(|known| *known != id);
                    open = open.filter(|open| *open != id);
                }
                Event::Closed => open = open.filter(|open| *open != id),
                _ => {}
            }
            arbiter.set_cost(id, u64::from(time) << (time % 60));
            let mut decisions = arbiter.handle(now, id, event);
            decisions.extend(arbiter.tick(now));
            for decision in decisions {
                let id = decision.tenant();
                prop_assert!(known.contains(&id));
                match decision {
                    Decision::Grant(_) => {
                        prop_assert_eq!(open, None);
                        open = Some(id);
                    }
                    Decision::SwapIn(_) => prop_assert_eq!(open, None),
                    Decision::Revoke(_) | Decision::Contend(..) => prop_assert_eq!(open, Some(id)),
                    Decision::Corun(..) => prop_assert!(false, "nobody has said that they fit together"),
                    Decision::Reopen(..) => prop_assert!(false, "nobody is of a unit"),
                    Decision::Claim(_) | Decision::GiveBack(_) | Decision::Idle(..) => prop_assert!(false, "nobody is of a gang"),
                }
            }
            prop_assert_eq!(arbiter.holder(), open);
            prop_assert!(arbiter.gpu_time(id, now) <= latest);
        }
    }
}

#[test]
fn a_latency_tenants_requests_do_not_make_dear_batch_tenants_change_places() {
    let batch = greedy(Class::Batch, 250 * MS);
    let latency = Habit { scheduling: Class::Latency.into(), work: 5 * MS, think: 300 * MS, times: u32::MAX, cost: 0 };
    let mut world = World::new(1, 200 * MS, Trouble::default(), 0, &[batch, batch, latency]);
    let (mut last, mut changes) = (None, 0);
    while world.now < 60 * SECOND {
        world.run(world.now + MS);
        if let Some(holder) = world.arbiter.holder().filter(|holder| holder.0 != 3)
            && last.replace(holder).is_some_and(|last| last != holder)
        {
            changes += 1;
        }
    }
    // A quantum is a second long, of which a part goes by in the other's favour.
    let times: Vec<_> = (1..=3).map(|id| world.arbiter.gpu_time(TenantId(id), world.now)).collect();
    assert!((10..=60).contains(&changes), "{changes} changes in a minute {times:?} {:?}", world.arbiter.totals());
}

#[test]
fn one_that_can_never_arrive_does_not_keep_a_worse_class_from_its_work() {
    let batch = Habit { scheduling: Class::Batch.into(), work: SECOND, think: MS, times: 50, cost: 3 * SECOND };
    let latency = Habit { scheduling: Class::Latency.into(), cost: 2 * SECOND, ..batch };
    for cost in [0, 50 * MS, 3 * SECOND] {
        let mut world = World::new(1, 200 * MS, Trouble::default(), 0, &[batch, Habit { cost, ..latency }]);
        world.barred.push(TenantId(2));
        world.run(300 * SECOND);
        assert_eq!(world.workers[&TenantId(1)].times, 0);
        let tries = world.arbiter.totals().failed;
        assert!((10..=160).contains(&tries), "{tries} tries in five minutes");
    }
}

/// A quantum is interrupted while a tenant with much memory is next, and goes on when a tenant without memory is next, whose quantum is
/// shorter. It does not end as soon as its memory has come.
#[test]
fn a_quantum_that_goes_on_is_worth_its_switch() {
    let habit = |class: Class, work, think, times, cost| Habit { scheduling: class.into(), work, think, times, cost };
    let habits = [
        habit(Class::Batch, 1_704_288, 51, 2, 0),
        habit(Class::Latency, 1_233_818, 290_894, 13, 1_099),
        habit(Class::Normal, 56, 1_073_171, 8, 123_689),
        habit(Class::Batch, 12_566, 210_502, 7, 0),
        habit(Class::Batch, 12_192, 2_924_845, 3, 86_503),
    ];
    let mut world = World::new(5_233_115_640_779_998_640, 8_177, Trouble::default(), 20 * SECOND, &habits);
    world.run(3_600 * SECOND);
    assert_eq!(world.waiting().count(), 0);
}
