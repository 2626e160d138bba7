//! What holds in every world.

use proptest::prelude::*;

use super::*;

fn class() -> impl Strategy<Value = Class> {
    prop::sample::select(Class::ALL.to_vec())
}

fn habit() -> impl Strategy<Value = Habit> {
    let work = prop_oneof![10..500u64, 1_000..50_000u64, 100_000..2_000_000u64];
    let think = prop_oneof![0..100u64, 100..20_000u64, 100_000..3_000_000u64];
    let cost = prop_oneof![Just(0), 0..2_000u64, 10_000..300_000u64];
    (class(), work, think, 1..40u32, cost).prop_map(|(class, work, think, times, cost)| Habit {
        class,
        work,
        think,
        times,
        cost,
    })
}

fn trouble() -> impl Strategy<Value = Trouble> {
    let some = |chance| prop_oneof![Just(0), 1..chance];
    (some(80u64), some(80u64), some(30u64), some(20u64)).prop_map(|(busy, cannot_arrive, lies, leave)| Trouble {
        busy,
        cannot_arrive,
        lies,
        leave,
    })
}

/// A tenant that always has something to do.
fn greedy(class: Class, cost: Micros) -> Habit {
    Habit { class, work: 3_600 * SECOND, think: 0, times: u32::MAX, cost }
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
    ) {
        let mut world = World::new(seed, quantum, trouble, 20 * SECOND, &habits);
        world.pipelining = pipelining;
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
        let disturbs = Habit { class: Class::Latency, work: 5 * MS, think: 100 * MS, times: u32::MAX, cost: 2 * MS };
        if disturbed && class != Class::Latency {
            habits.push(disturbs);
        }
        let mut world = World::new(seed, 200 * MS, Trouble::default(), 0, &habits);
        let longest = costs.iter().map(|cost| cost * 4).max().unwrap_or(0).max(200 * MS);
        for end in 1..=6 {
            world.run(end * 10 * SECOND);
            let times = (1..=costs.len() as u32).map(|id| world.arbiter.gpu_time(TenantId(id), world.now));
            let (least, most) = (times.clone().min().unwrap_or(0), times.max().unwrap_or(0));
            prop_assert!(most - least <= 2 * longest + 100 * MS, "{least} to {most}, quantum {longest}");
        }
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
                0 => Event::Joined { class },
                1 => Event::Left,
                2 | 3 => Event::Demand,
                4 => Event::Closed,
                5 => Event::Busy,
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
                let id = tenant_of(decision);
                prop_assert!(known.contains(&id));
                match decision {
                    Decision::Grant(_) => {
                        prop_assert_eq!(open, None);
                        open = Some(id);
                    }
                    Decision::Bring(_) => prop_assert_eq!(open, None),
                    Decision::Revoke(_) | Decision::Contend(..) => prop_assert_eq!(open, Some(id)),
                    Decision::Beside(..) => prop_assert!(false, "nobody has said that they fit together"),
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
    let latency = Habit { class: Class::Latency, work: 5 * MS, think: 300 * MS, times: u32::MAX, cost: 0 };
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
    let batch = Habit { class: Class::Batch, work: SECOND, think: MS, times: 50, cost: 3 * SECOND };
    let latency = Habit { class: Class::Latency, cost: 2 * SECOND, ..batch };
    for cost in [0, 50 * MS, 3 * SECOND] {
        let mut world = World::new(1, 200 * MS, Trouble::default(), 0, &[batch, Habit { cost, ..latency }]);
        world.barred.push(TenantId(2));
        world.run(300 * SECOND);
        assert_eq!(world.workers[&TenantId(1)].times, 0);
        let tries = world.arbiter.totals().failed;
        assert!((10..=160).contains(&tries), "{tries} tries in five minutes");
    }
}
