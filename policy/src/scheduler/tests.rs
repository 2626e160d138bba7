//! Units: some by hand, and any sequence of members' reports and orders to them.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use baton_contract::class::Class;

const A: TenantId = TenantId(1);
const B: TenantId = TenantId(2);
const C: TenantId = TenantId(3);

fn three() -> Scheduler {
    let mut scheduler = Scheduler::new(Arbiter::new(1_000));
    for id in [A, B, C] {
        assert_eq!(scheduler.handle(0, id, Event::Joined { scheduling: Class::Normal.into() }), []);
    }
    scheduler
}

/// All decisions that are not about contention.
fn deeds(decisions: Vec<Decision>) -> Vec<Decision> {
    decisions.into_iter().filter(|decision| !matches!(decision, Decision::Contend(..))).collect()
}

fn say(scheduler: &mut Scheduler, id: TenantId, event: Event) -> Vec<Decision> {
    deeds(scheduler.handle(1, id, event))
}

/// A and B are one, and have the GPU.
fn together() -> Scheduler {
    let mut scheduler = three();
    assert_eq!(say(&mut scheduler, B, Event::Demand), [Decision::SwapIn(B)]);
    assert_eq!(say(&mut scheduler, B, Event::Resident), [Decision::Grant(B)]);
    assert_eq!(deeds(scheduler.unite(1, B, A)), [Decision::Revoke(B)], "what A has may not be there");
    assert_eq!(say(&mut scheduler, B, Event::Closed), []);
    assert_eq!(say(&mut scheduler, B, Event::Demand), [Decision::SwapIn(B)]);
    assert_eq!(say(&mut scheduler, B, Event::Resident), [Decision::Reopen(A), Decision::Grant(B)]);
    assert_eq!((scheduler.state(A), scheduler.state(B)), (State::Running, State::Running));
    assert_eq!(scheduler.members(A), [A, B]);
    scheduler
}

#[test]
fn a_unit_leaves_when_its_last_gate_is_closed() {
    let mut scheduler = together();
    assert_eq!(say(&mut scheduler, C, Event::Demand), []);
    assert_eq!(say(&mut scheduler, A, Event::Closed), [], "of itself: it has nothing to do");
    assert_eq!(say(&mut scheduler, A, Event::Demand), [Decision::Reopen(A)], "its memory is there");
    assert_eq!(say(&mut scheduler, A, Event::Closed), []);
    assert_eq!(say(&mut scheduler, B, Event::Closed), [Decision::SwapIn(C)]);
}

#[test]
fn a_member_that_has_closed_its_gate_is_not_at_work() {
    let mut scheduler = together();
    assert_eq!(scheduler.holders_at_work(), [A, B]);
    say(&mut scheduler, A, Event::Closed);
    assert_eq!((scheduler.holders_at_work(), scheduler.holders()), (vec![B], vec![A, B]));
    say(&mut scheduler, A, Event::Demand);
    assert_eq!(scheduler.holders_at_work(), [A, B]);
}

#[test]
fn one_of_it_that_is_preempted_wants_the_gpu_again() {
    let mut scheduler = together();
    assert_eq!(say(&mut scheduler, C, Event::Demand), []);
    assert_eq!(deeds(scheduler.tick(1_000_000)), [Decision::Revoke(A), Decision::Revoke(B)]);
    assert_eq!(say(&mut scheduler, A, Event::Preempted), []);
    assert_eq!(scheduler.state(A), State::Leaving, "B may still use what they share");
    assert_eq!(say(&mut scheduler, B, Event::Closed), [Decision::SwapIn(C)]);
    assert_eq!((scheduler.state(A), scheduler.state(B)), (State::Waiting, State::Waiting));
}

#[test]
fn if_one_of_it_cannot_leave_the_others_go_on() {
    let mut scheduler = together();
    assert_eq!(say(&mut scheduler, C, Event::Demand), []);
    assert_eq!(deeds(scheduler.tick(1_000_000)), [Decision::Revoke(A), Decision::Revoke(B)]);
    assert_eq!(say(&mut scheduler, A, Event::Preempted), []);
    assert_eq!(say(&mut scheduler, B, Event::DrainTimedOut), [Decision::Reopen(A)]);
    assert_eq!(scheduler.state(A), State::Running);
}

#[test]
fn one_that_cannot_leave_is_completed_before_those_are_let_in_that_have_come_to_it() {
    let mut scheduler = three();
    assert_eq!(say(&mut scheduler, B, Event::Demand), [Decision::SwapIn(B)]);
    assert_eq!(say(&mut scheduler, B, Event::Resident), [Decision::Grant(B)]);
    assert_eq!(deeds(scheduler.unite(1, B, A)), [Decision::Revoke(B)]);
    assert_eq!(say(&mut scheduler, A, Event::Demand), []);
    assert_eq!(say(&mut scheduler, B, Event::DrainTimedOut), [Decision::SwapIn(B)], "it may wait for A");
    assert_eq!(say(&mut scheduler, A, Event::Demand), [], "its memory may not be there");
    assert_eq!(say(&mut scheduler, B, Event::Resident), [Decision::Reopen(A)]);
}

#[test]
fn a_unit_lives_as_long_as_one_of_it() {
    let mut scheduler = together();
    assert_eq!(say(&mut scheduler, B, Event::Left), [], "A goes on, under the unit's number");
    assert_eq!((scheduler.state(A), scheduler.is_united(A)), (State::Running, false));
    assert_eq!(say(&mut scheduler, C, Event::Demand), []);
    assert_eq!(say(&mut scheduler, A, Event::Left), [Decision::SwapIn(C)]);
}

#[test]
fn a_unit_is_kept_off_while_one_of_it_is() {
    let mut scheduler = together();
    assert_eq!(say(&mut scheduler, C, Event::KeepOff(true)), []);
    assert_eq!(deeds(scheduler.unite(1, C, A)), [Decision::Revoke(A), Decision::Revoke(B)]);
    assert_eq!(say(&mut scheduler, A, Event::KeepOff(true)), []);
    assert_eq!(say(&mut scheduler, A, Event::Preempted), []);
    assert_eq!(say(&mut scheduler, B, Event::Preempted), []);
    assert_eq!(say(&mut scheduler, A, Event::Left), []);
    assert!(scheduler.is_kept_off(B), "so was C, before they were united");
    let all_go_on = say(&mut scheduler, C, Event::Left);
    assert!(!scheduler.is_kept_off(B));
    assert_eq!(all_go_on, [Decision::SwapIn(B)]);
}

#[test]
fn a_unit_is_kept_off_for_as_long_as_a_member_is() {
    let mut scheduler = together();
    for id in [A, B] {
        say(&mut scheduler, id, Event::KeepOff(true));
    }
    say(&mut scheduler, B, Event::KeepOff(false));
    assert!(scheduler.is_kept_off(B), "A is");
    say(&mut scheduler, A, Event::Left);
    assert!(!scheduler.is_kept_off(B));
}

#[test]
fn who_runs_beside_others_no_longer_does_when_it_is_united() {
    let mut scheduler = Scheduler::new(Arbiter::new(1_000));
    for id in [A, B, C] {
        say(&mut scheduler, id, Event::Joined { scheduling: Class::Latency.into() });
    }
    scheduler.set_together(true);
    for id in [A, B, C] {
        say(&mut scheduler, id, Event::Demand);
        say(&mut scheduler, id, Event::Resident);
    }
    assert!([A, B, C].into_iter().all(|id| scheduler.is_corunner(id)));
    let decisions = deeds(scheduler.unite(2, A, B));
    assert!(decisions.contains(&Decision::Revoke(A)) && decisions.contains(&Decision::Revoke(B)), "{decisions:?}");
    say(&mut scheduler, A, Event::Closed);
    say(&mut scheduler, B, Event::Closed);
    assert_eq!(say(&mut scheduler, A, Event::Demand), [Decision::SwapIn(A)]);
    assert!(!scheduler.is_corunner(A) && scheduler.is_corunner(C));
}

/// Programs that do what they are told, some time later, and a user.
struct World {
    scheduler: Scheduler,
    now: Micros,
    alive: BTreeSet<TenantId>,
    /// Tenants whose gates are open.
    open: BTreeSet<TenantId>,
    /// Tenants that were told to leave, and have not answered.
    owes: BTreeSet<TenantId>,
    /// Tenants that wait at a closed gate, or were preempted.
    wants: BTreeSet<TenantId>,
    corun: BTreeSet<TenantId>,
    /// Tenants that are kept off, and were not let on since.
    kept_off: BTreeSet<TenantId>,
    /// A unit that has the GPU, and some of whose memory is on the way.
    completes: Option<TenantId>,
}

impl World {
    fn see(&mut self, decisions: Vec<Decision>) {
        for decision in decisions {
            match decision {
                // A unit that could not leave has to be completed.
                Decision::SwapIn(unit) if self.scheduler.state(unit) == State::Running => self.completes = Some(unit),
                Decision::SwapIn(unit) => {
                    self.completes = None;
                    let apart: BTreeSet<TenantId> = self.open.difference(&self.corun).copied().collect();
                    assert!(apart.is_empty(), "{decision:?} while {apart:?} run");
                    assert!(self.scheduler.members(unit).iter().all(|id| !self.open.contains(id)), "{decision:?}");
                }
                Decision::Grant(id) | Decision::Reopen(id) => {
                    assert!(self.alive.contains(&id) && self.open.insert(id), "{decision:?} of an open gate");
                    self.wants.remove(&id);
                    self.owes.remove(&id);
                    let others = self.open.iter().filter(|other| !self.corun.contains(other));
                    let strangers: Vec<_> = others.filter(|other| !self.scheduler.are_united(**other, id)).collect();
                    assert!(strangers.is_empty() || self.corun.contains(&id), "{decision:?} beside {strangers:?}");
                }
                Decision::Revoke(id) => {
                    assert!(self.open.contains(&id), "{decision:?} of a closed gate");
                    self.owes.insert(id);
                }
                Decision::Contend(id, _) => assert!(self.alive.contains(&id), "{decision:?}"),
                Decision::Corun(id, true) => {
                    self.corun.insert(id);
                }
                // It runs beside the others until its gate is closed.
                Decision::Corun(id, false) => assert!(self.alive.contains(&id), "{decision:?}"),
                Decision::Claim(_) | Decision::GiveBack(_) | Decision::Idle(..) => unreachable!("nobody is of a gang"),
            }
        }
    }

    fn tell(&mut self, id: TenantId, event: Event) {
        let decisions = self.scheduler.handle(self.now, id, event);
        self.see(decisions);
    }

    fn close(&mut self, id: TenantId, event: Event) {
        if event != Event::DrainTimedOut {
            self.open.remove(&id);
            if event == Event::Preempted {
                self.wants.insert(id);
            }
        }
        self.owes.remove(&id);
        if !self.open.contains(&id) {
            self.corun.remove(&id);
        }
        self.tell(id, event);
    }

    fn complete(&mut self) {
        if let Some(unit) = self.completes.take().filter(|unit| self.scheduler.state(*unit) == State::Running) {
            self.tell(unit, Event::Resident);
        }
    }

    fn step(&mut self, what: u8, id: TenantId, other: TenantId) {
        self.now += 500;
        match what {
            0 if !self.alive.contains(&id) && self.scheduler.scheduling_is_unknown(id) => {
                self.alive.insert(id);
                let scheduling = Class::ALL[other.0 as usize % 3].into();
                self.tell(id, Event::Joined { scheduling });
            }
            1..=3 if self.alive.contains(&id) && !self.open.contains(&id) => {
                self.wants.insert(id);
                self.tell(id, Event::Demand);
            }
            4 if self.open.contains(&id) && !self.owes.contains(&id) => self.close(id, Event::Closed),
            5..=7 if self.owes.contains(&id) => {
                self.close(id, [Event::Closed, Event::Preempted, Event::DrainTimedOut][what as usize - 5]);
            }
            8 if self.alive.contains(&id) && self.alive.contains(&other) => {
                let decisions = self.scheduler.unite(self.now, id, other);
                self.see(decisions);
            }
            9 if self.alive.remove(&id) => {
                self.open.remove(&id);
                self.owes.remove(&id);
                self.wants.remove(&id);
                self.corun.remove(&id);
                self.kept_off.remove(&id);
                self.tell(id, Event::Left);
            }
            10 => self.scheduler.set_together(other.0.is_multiple_of(2)),
            11 if self.alive.contains(&id) => {
                if other.0.is_multiple_of(2) {
                    self.kept_off.insert(id);
                    self.tell(id, Event::KeepOff(true));
                } else {
                    self.kept_off.remove(&id);
                    self.tell(id, Event::KeepOff(false));
                }
            }
            12.. if self.alive.contains(&id) && self.scheduler.state(id) == State::Arriving => {
                let event = if what == 12 { Event::CannotArrive } else { Event::Resident };
                self.tell(id, event);
            }
            13.. => self.complete(),
            _ => {}
        }
        let decisions = self.scheduler.tick(self.now);
        self.see(decisions);
        for id in &self.alive {
            let is_any = self.scheduler.members(*id).iter().any(|member| self.kept_off.contains(member));
            assert_eq!(self.scheduler.is_kept_off(*id), is_any, "{id:?}");
        }
    }

    /// Lets all tenants answer, while none comes or goes: each gets the GPU if it wants it.
    fn end_well(&mut self) {
        self.scheduler.set_together(false);
        let all: Vec<TenantId> = self.alive.iter().copied().collect();
        all.iter().for_each(|id| self.tell(*id, Event::KeepOff(false)));
        for _ in 0..100 {
            self.complete();
            for id in &all {
                if self.open.contains(id) {
                    self.close(*id, Event::Closed);
                } else if self.scheduler.state(*id) == State::Arriving {
                    self.tell(*id, Event::Resident);
                }
            }
            self.now = self.scheduler.next_timer().unwrap_or(self.now).max(self.now);
            let decisions = self.scheduler.tick(self.now);
            self.see(decisions);
        }
        assert_eq!(self.wants, BTreeSet::new(), "somebody was forgotten");
        for id in all {
            assert_eq!(self.scheduler.state(id), State::Idle, "{id:?}");
        }
        assert_eq!(self.scheduler.units.values().map(|unit| unit.members.len()).sum::<usize>(), {
            let united: BTreeMap<_, _> = self.scheduler.unit_of.iter().collect();
            united.len()
        });
    }
}

impl Scheduler {
    /// Numbers are never used again.
    fn scheduling_is_unknown(&self, id: TenantId) -> bool {
        self.arbiter.scheduling(id).is_none() && !self.units.contains_key(&id)
    }
}

proptest! {
    #[test]
    fn members_of_a_unit_run_together_and_nobody_is_forgotten(
        steps in prop::collection::vec((0..16u8, 0..6u32, 0..6u32), 0..300),
    ) {
        let mut world = World {
            scheduler: Scheduler::new(Arbiter::new(1_000)),
            now: 0,
            alive: BTreeSet::new(),
            open: BTreeSet::new(),
            owes: BTreeSet::new(),
            wants: BTreeSet::new(),
            corun: BTreeSet::new(),
            kept_off: BTreeSet::new(),
            completes: None,
        };
        for (what, id, other) in steps {
            world.step(what, TenantId(id), TenantId(other));
        }
        world.end_well();
    }
}
