//! The invariants hold for all reports about tenants, in any order, at any time.
//!
//! In debug builds the arbiter itself compares its indices with a scan of every tenant, after each event.

use std::collections::BTreeSet;

use super::*;

const TENANTS: u64 = 12;

/// A caller that reports anything about any tenant, and sees the results.
struct Liar {
    arbiter: Arbiter,
    dice: Dice,
    now: Micros,
    known: BTreeSet<TenantId>,
    holder: Option<TenantId>,
    /// Tenants, other than the holder, whose gates are open or not yet known to be closed.
    beside: BTreeSet<TenantId>,
}

impl Liar {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let max_wait = [Micros::MAX, 0, 50 * MS, 2 * SECOND][dice.roll(4) as usize];
        let arbiter = Arbiter::new(dice.roll(200) * MS).with_max_wait(max_wait);
        Self { arbiter, dice, now: 0, known: BTreeSet::new(), holder: None, beside: BTreeSet::new() }
    }

    fn scheduling(&mut self) -> Scheduling {
        let class = Class::ALL[self.dice.roll(3) as usize];
        let weight = if self.dice.percent(50) { 1 } else { 1 + self.dice.roll(1_000) as u32 };
        let slo_micros = if self.dice.percent(50) { 0 } else { self.dice.roll(100 * MS) };
        match class {
            Class::Latency => Scheduling { slo_micros, ..class.into() },
            Class::Normal | Class::Batch => Scheduling { weight, ..class.into() },
        }
    }

    /// Picks an event: mostly one that suits the state, else any.
    fn event(&mut self, id: TenantId) -> Event {
        let scheduling = self.scheduling();
        if !self.known.contains(&id) && self.dice.percent(80) {
            return Event::Joined { scheduling };
        }
        let expected = match self.arbiter.state(id) {
            State::Idle => [Event::Demand, Event::Demand],
            State::Waiting => [Event::Demand, Event::Left],
            State::Arriving => [Event::Ready, Event::Resident],
            State::Running => [Event::Resident, Event::Closed],
            State::Corunning => [Event::Demand, Event::Closed],
            State::Leaving => [Event::Closed, Event::Preempted],
        };
        match self.dice.roll(32) {
            0 => Event::Joined { scheduling },
            1 => Event::Changed { scheduling },
            2 => Event::KeepOff(true),
            3 | 4 => Event::KeepOff(false),
            5 => Event::Left,
            6 => Event::Demand,
            7 => Event::Closed,
            8 | 9 => Event::DrainTimedOut,
            10 => Event::Preempted,
            11 => Event::Ready,
            12 => Event::Resident,
            13 | 14 => Event::CannotArrive,
            15 => Event::Stranded,
            16 => Event::Grown,
            17 => Event::KeepApart(self.dice.percent(50)),
            18..22 => Event::WaitsSince(self.now.saturating_sub(self.dice.roll(5) * SECOND)),
            either => expected[(either % 2) as usize],
        }
    }

    /// Reports one event, and may let one timer come.
    fn step(&mut self) {
        self.now += [0, 10, MS, 30 * MS, 3 * SECOND][self.dice.roll(5) as usize];
        let id = TenantId(self.dice.roll(TENANTS) as u32);
        let is_due = |world: &Self| world.arbiter.next_timer().is_some_and(|at| at <= world.now);
        let was_due = is_due(self);
        match self.dice.roll(12) {
            0 => self.arbiter.set_together(self.dice.percent(50)),
            1 => {
                let pressure = [Pressure::Free, Pressure::Passing, Pressure::KeptBack][self.dice.roll(3) as usize];
                self.arbiter.set_pressure(self.now, pressure);
            }
            2 => self.arbiter.set_busy(self.now, id, self.dice.percent(50)),
            3 | 4 => self.arbiter.set_cost(id, self.dice.roll(3) * self.dice.roll(100 * MS)),
            5 => {
                self.now = self.arbiter.next_timer().map_or(self.now, |at| at.max(self.now).min(self.now + 20 * SECOND))
            }
            6 => self.arbiter.end_rests(),
            _ => {}
        }
        // Time that stands still puts off the end of a turn, but not the beginning of any.
        assert!(self.holder.is_some() || !was_due || is_due(self), "a timer that had come is forgotten");
        let event = self.event(id);
        self.tell(id, event);
        self.tick();
    }

    fn tick(&mut self) {
        let decisions = self.arbiter.tick(self.now);
        self.see(decisions);
        assert!(self.arbiter.next_timer().is_none_or(|at| at > self.now), "a timer that has come is asked for again");
        assert_eq!(self.arbiter.holder(), self.holder);
    }

    fn tell(&mut self, id: TenantId, event: Event) {
        let is_closed = match event {
            Event::Closed | Event::Left => true,
            Event::Preempted => self.arbiter.state(id) == State::Leaving,
            _ => false,
        };
        if is_closed && !self.beside.remove(&id) {
            self.holder = self.holder.filter(|holder| *holder != id);
        }
        match event {
            Event::Joined { .. } => {
                self.known.insert(id);
            }
            Event::Left => {
                self.known.remove(&id);
            }
            _ => {}
        }
        let decisions = self.arbiter.handle(self.now, id, event);
        self.see(decisions);
    }

    fn see(&mut self, decisions: Vec<Decision>) {
        for decision in decisions {
            let id = decision.tenant();
            assert!(self.known.contains(&id), "{decision:?} of a stranger");
            match decision {
                Decision::SwapIn(_) => assert_eq!(self.holder, None, "{decision:?} while another may run"),
                Decision::Grant(_) if self.beside.contains(&id) => {}
                Decision::Grant(_) => assert_eq!(self.holder.replace(id), None, "{decision:?}: two have the baton"),
                Decision::Contend(..) => assert_eq!(self.holder, Some(id), "{decision:?}"),
                Decision::Revoke(_) => assert!(self.holder == Some(id) || self.beside.contains(&id), "{decision:?}"),
                Decision::Corun(_, true) => {
                    self.beside.insert(id);
                    self.holder = self.holder.filter(|holder| *holder != id);
                }
                Decision::Corun(_, false) => assert!(self.beside.contains(&id), "{decision:?}"),
                Decision::Reopen(_) => unreachable!("nobody is of a unit"),
                Decision::Claim(_) | Decision::GiveBack(_) | Decision::Idle(..) => unreachable!("nobody is of a gang"),
            }
        }
    }

    /// Lets all go well from now on: every waiting tenant gets its turn, and ends it.
    fn end_well(&mut self) {
        self.arbiter.set_together(false);
        self.arbiter.set_pressure(self.now, Pressure::Free);
        let all: Vec<TenantId> = self.known.iter().copied().collect();
        for id in &all {
            self.arbiter.set_cost(*id, 0);
            self.tell(*id, Event::KeepOff(false));
        }
        self.tick();
        for _ in 0..200 {
            for id in &all {
                match self.arbiter.state(*id) {
                    State::Arriving => self.tell(*id, Event::Resident),
                    State::Leaving | State::Running => self.tell(*id, Event::Closed),
                    State::Idle | State::Waiting | State::Corunning => {}
                }
            }
            self.now = self.arbiter.next_timer().unwrap_or(self.now).max(self.now);
            self.tick();
        }
        for id in &all {
            assert_eq!(self.arbiter.state(*id), State::Idle, "{id:?}");
        }
        assert_eq!(self.arbiter.next_timer(), None);
    }
}

fn lie(seeds: std::ops::Range<u64>, events: u64) {
    for seed in seeds {
        let mut liar = Liar::new(seed);
        (0..events).for_each(|_| liar.step());
        liar.end_well();
    }
}

#[test]
fn no_sequence_of_allegations_breaks_anything() {
    lie(0..40, 500);
}

#[test]
#[ignore = "takes minutes: the same, with a million events"]
fn no_sequence_of_a_million_allegations_breaks_anything() {
    lie(1_000..2_000, 1_000);
}
