//! The arbiter in a simulated world: tenants that work, think, drain slowly, hang on, lie and leave, and
//! memory that comes late or not at all. Every decision is checked against all invariants.

mod allegations;
mod churn;
mod memory;
mod properties;
mod tenants;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use baton_contract::class::Class;
use baton_contract::scheduling::Scheduling;

use memory::Memory;

use super::*;
use crate::dice::Dice;

const MS: Micros = 1_000;
const SECOND: Micros = 1_000 * MS;

/// The frequency of each trouble, in percent.
#[derive(Clone, Copy, Debug, Default)]
struct Trouble {
    busy: u64,
    cannot_arrive: u64,
    lies: u64,
    leave: u64,
    /// The user keeps a tenant off the GPU, or lets it go on.
    suspend: u64,
}

/// The part of an arrival that has to be over before the tenant is let in, in percent: 100 for all.
type Pipelining = u64;

/// A tenant's habit of work.
#[derive(Clone, Copy, Debug)]
struct Habit {
    scheduling: Scheduling,
    /// The amount of work that it has at a time.
    work: Micros,
    /// The time for which it thinks before it has work again.
    think: Micros,
    /// The number of times that it does so.
    times: u32,
    cost: Micros,
}

#[derive(Debug)]
struct Worker {
    habit: Habit,
    left_to_do: Micros,
    times: u32,
    /// The time since which the gate is open.
    open: Option<Micros>,
    /// Told to leave.
    closing: bool,
    /// A counter whose changes make older appointments void.
    version: u32,
    patience: Option<Micros>,
    /// Commands come in order, and reports too.
    last_command: Micros,
    last_report: Micros,
    grants: u64,
    done: Micros,
    /// The number of turns of worse classes that have begun while it waits.
    passed_over: u32,
}

enum Then {
    Report(TenantId, u64, Event),
    Command(TenantId, u64, Decision),
    /// A tenant has work again.
    Wake(TenantId),
    /// A tenant has done its work.
    Done(TenantId, u32),
    /// A tenant has been idle for as long as it was told.
    Bored(TenantId, u32),
    /// A tenant's gate is closed and its work has ended, or not.
    Drained(TenantId),
    /// Enough of its memory is there.
    Enough(u64),
    Brought(u64),
}

struct World {
    arbiter: Arbiter,
    quantum: Micros,
    now: Micros,
    dice: Dice,
    trouble: Trouble,
    /// The time from which all goes well.
    calm_at: Micros,
    workers: BTreeMap<TenantId, Worker>,
    agenda: BinaryHeap<Reverse<(Micros, u64)>>,
    plans: BTreeMap<u64, Then>,
    next_plan: u64,
    /// The holder whose gate is not yet known to be closed, with the number and the time of the grant.
    granted: Option<(TenantId, u64, Micros)>,
    bringing: Option<(TenantId, u64)>,
    pipelining: Pipelining,
    /// Told to leave because its memory cannot come.
    stranded: bool,
    memory: Memory,
    grants: u64,
    /// The time until which the arbiter may leave the holder alone because it was busy.
    busy_until: Micros,
    /// Tenants whose memory never comes.
    barred: Vec<TenantId>,
    /// Tenants that could not arrive when last tried.
    failed: Vec<TenantId>,
    steps: u64,
}

impl World {
    fn new(seed: u64, quantum: Micros, trouble: Trouble, calm_at: Micros, habits: &[Habit]) -> Self {
        let mut world = Self {
            arbiter: Arbiter::new(quantum),
            quantum,
            now: 0,
            dice: Dice(seed),
            trouble,
            calm_at,
            workers: BTreeMap::new(),
            agenda: BinaryHeap::new(),
            plans: BTreeMap::new(),
            next_plan: 0,
            granted: None,
            bringing: None,
            pipelining: 100,
            stranded: false,
            memory: Memory::default(),
            grants: 0,
            busy_until: 0,
            barred: Vec::new(),
            failed: Vec::new(),
            steps: 0,
        };
        for (habit, id) in habits.iter().zip(1..) {
            world.join(TenantId(id), *habit);
        }
        world
    }

    fn join(&mut self, id: TenantId, habit: Habit) {
        let worker = Worker {
            habit,
            left_to_do: 0,
            times: habit.times,
            open: None,
            closing: false,
            version: 0,
            patience: None,
            last_command: 0,
            last_report: 0,
            grants: 0,
            done: 0,
            passed_over: 0,
        };
        self.workers.insert(id, worker);
        self.memory.join(id, habit.cost);
        self.tell(id, Event::Joined { scheduling: habit.scheduling });
        let think = self.dice.roll(habit.think + 1);
        self.plan(think, Then::Wake(id));
    }

    fn set_max_wait(&mut self, max_wait: Micros) {
        self.arbiter.max_wait = max_wait;
    }

    fn plan(&mut self, delay: Micros, then: Then) {
        self.agenda.push(Reverse((self.now + delay, self.next_plan)));
        self.plans.insert(self.next_plan, then);
        self.next_plan += 1;
    }

    fn is_calm(&self) -> bool {
        self.now >= self.calm_at
    }

    fn chance(&mut self, chance: u64) -> bool {
        !self.is_calm() && self.dice.percent(chance)
    }

    /// Suspends a tenant, or lets it go on.
    fn suspend(&mut self) {
        let id = TenantId(self.dice.roll(8) as u32);
        if self.workers.contains_key(&id) {
            let event = Event::KeepOff(!self.arbiter.is_kept_off(id));
            if let Some(worker) = self.workers.get_mut(&id) {
                worker.passed_over = 0;
            }
            if self.arbiter.state(id) == State::Arriving {
                self.bringing = None;
            }
            self.tell(id, event);
        }
    }

    /// Lets all tenants go on that are kept off.
    fn let_all_on(&mut self) {
        let all: Vec<TenantId> = self.workers.keys().copied().collect();
        all.into_iter().for_each(|id| self.tell(id, Event::KeepOff(false)));
    }

    /// Runs until there is nothing to do or the time has come.
    fn run(&mut self, until: Micros) {
        while let Some(next) = self.next_time().filter(|next| *next <= until) {
            self.steps += 1;
            self.now = self.now.max(next);
            if self.arbiter.next_timer().is_some_and(|at| at <= self.now) {
                let decisions = self.arbiter.tick(self.now);
                self.carry_out(decisions);
                let timer = self.arbiter.next_timer();
                assert!(timer.is_none_or(|at| at > self.now), "a timer that has come is asked for again");
            } else if let Some(Reverse((_, plan))) = self.agenda.pop()
                && let Some(then) = self.plans.remove(&plan)
            {
                self.happen(then);
            }
            self.check();
        }
        self.now = self.now.max(until);
    }

    fn next_time(&self) -> Option<Micros> {
        let planned = self.agenda.peek().map(|Reverse((at, _))| *at);
        planned.into_iter().chain(self.arbiter.next_timer()).min()
    }

    fn set_costs(&mut self) {
        for id in self.workers.keys() {
            self.arbiter.set_cost(*id, self.cost(*id));
        }
    }

    fn tell(&mut self, id: TenantId, event: Event) {
        self.set_costs();
        let decisions = self.arbiter.handle(self.now, id, event);
        self.carry_out(decisions);
    }

    fn happen(&mut self, then: Then) {
        if self.chance(self.trouble.lies) {
            self.lie();
        }
        if self.chance(self.trouble.suspend) {
            self.suspend();
        }
        match then {
            Then::Report(id, grant, event) => self.hear(id, grant, event),
            Then::Command(id, grant, decision) => self.obey(id, grant, decision),
            Then::Wake(id) => self.wake(id),
            Then::Done(id, version) => self.done(id, version),
            Then::Bored(id, version) => self.bored(id, version),
            Then::Drained(id) => self.drained(id),
            Then::Enough(number) => self.enough(number),
            Then::Brought(number) => self.brought(number),
        }
    }

    /// Reports an event that makes no sense in the tenant's state. (The caller has to keep away a false `Closed` of
    /// the holder.)
    fn lie(&mut self) {
        // All due decisions come first, so that nothing else happens at the same time.
        self.set_costs();
        let decisions = self.arbiter.tick(self.now);
        self.carry_out(decisions);
        let id = TenantId(self.dice.roll(8) as u32);
        let state = self.arbiter.state(id);
        let event = match self.dice.roll(6) {
            0 if !matches!(state, State::Arriving | State::Running) => Event::Resident,
            5 if state != State::Arriving => Event::Ready,
            1 if state != State::Arriving => Event::CannotArrive,
            2 if state != State::Leaving => Event::DrainTimedOut,
            3 if !matches!(state, State::Running | State::Leaving) => Event::Closed,
            4 => Event::Demand,
            _ => return,
        };
        let (before, switches) = (self.arbiter.state(id), self.arbiter.totals().switches);
        self.tell(id, event);
        if event != Event::Demand {
            assert_eq!((self.arbiter.state(id), self.arbiter.totals().switches), (before, switches), "{event:?}");
        }
    }

    /// Plays the server's part: it drops reports about an earlier grant.
    fn hear(&mut self, id: TenantId, grant: u64, event: Event) {
        let Some(worker) = self.workers.get(&id) else { return };
        if matches!(event, Event::Closed | Event::DrainTimedOut) && worker.grants != grant {
            return;
        }
        match event {
            Event::Closed => {
                self.granted = self.granted.filter(|(holder, ..)| *holder != id);
                self.bringing = self.bringing.filter(|(tenant, _)| *tenant != id);
            }
            Event::DrainTimedOut => self.busy_until = self.now + 2 * SECOND,
            _ => {}
        }
        self.tell(id, event);
        if event == Event::Closed && self.chance(self.trouble.leave) {
            self.leave(id);
        }
    }

    fn leave(&mut self, id: TenantId) {
        self.workers.remove(&id);
        self.granted = self.granted.filter(|(holder, ..)| *holder != id);
        self.bringing = self.bringing.filter(|(tenant, _)| *tenant != id);
        self.memory.leave(self.now, id);
        self.tell(id, Event::Left);
    }

    fn report(&mut self, id: TenantId, event: Event) {
        let delay = self.dice.roll(50);
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.last_report = worker.last_report.max(self.now + delay);
        let (delay, grant) = (worker.last_report - self.now, worker.grants);
        self.plan(delay, Then::Report(id, grant, event));
    }

    fn carry_out(&mut self, decisions: Vec<Decision>) {
        for decision in decisions {
            let id = decision.tenant();
            assert!(self.workers.contains_key(&id), "{decision:?} of a stranger");
            match decision {
                Decision::SwapIn(_) => self.bring(id),
                Decision::Grant(_) => {
                    assert_eq!(self.granted, None, "{decision:?}: two have the baton");
                    let ready = self.bringing.is_some_and(|(tenant, _)| tenant == id);
                    assert!(ready, "{decision:?}: it is not arriving");
                    self.count_passed_over(id);
                    self.grants += 1;
                    self.granted = Some((id, self.grants, self.now));
                    self.busy_until = 0;
                }
                Decision::Revoke(_) => self.check_revoke(id),
                Decision::Corun(..) => unreachable!("nobody has said that they fit together"),
                Decision::Reopen(..) => unreachable!("nobody is of a unit"),
                Decision::Claim(_) | Decision::GiveBack(_) | Decision::Idle(..) => unreachable!("nobody is of a gang"),
                Decision::Contend(..) => assert!(self.granted.is_some_and(|(holder, ..)| holder == id)),
            }
            if !matches!(decision, Decision::SwapIn(_)) {
                let delay = self.dice.roll(50);
                let grant = self.grants;
                let Some(worker) = self.workers.get_mut(&id) else { continue };
                worker.last_command = worker.last_command.max(self.now + delay);
                let delay = worker.last_command - self.now;
                self.plan(delay, Then::Command(id, grant, decision));
                // Mostly a tenant leaves when it has closed its gate; sometimes in any state.
                if self.trouble.leave > 0 && self.chance(1) {
                    self.leave(id);
                    // The other decisions were made before it left.
                    return;
                }
            }
        }
    }

    /// Checks that no urgent tenant that is able to arrive waits for more than one turn of a worse class.
    fn count_passed_over(&mut self, granted: TenantId) {
        let (class, failed) = (self.class(granted), self.failed.clone());
        let waiting: Vec<_> = self.waiting().collect();
        let urgent = |(id, better): &(TenantId, Class)| *better == Class::Latency && !failed.contains(id);
        for (id, _) in waiting.into_iter().filter(|waiter| class != Class::Latency && urgent(waiter)) {
            let worker = self.workers.get_mut(&id).expect("it waits");
            worker.passed_over += 1;
            assert!(worker.passed_over <= 1, "{id:?} waits for more than one turn of worse classes");
        }
        if let Some(worker) = self.workers.get_mut(&granted) {
            worker.passed_over = 0;
        }
    }

    /// True if the holder got the present turn because it had waited for too long.
    fn is_overdue(&self) -> bool {
        self.arbiter.turn.as_ref().is_some_and(|turn| turn.overdue)
    }

    fn waiting(&self) -> impl Iterator<Item = (TenantId, Class)> {
        let waits = |id| self.arbiter.state(id) == State::Waiting && !self.arbiter.is_kept_off(id);
        let waiting = self.workers.iter().filter(move |(id, _)| waits(**id));
        waiting.map(|(id, worker)| (*id, worker.habit.scheduling.class))
    }

    fn class(&self, id: TenantId) -> Class {
        self.workers[&id].habit.scheduling.class
    }

    fn check_revoke(&self, id: TenantId) {
        let (holder, _, since) = self.granted.expect("somebody has the baton");
        assert_eq!(holder, id);
        let class = self.class(id);
        if self.stranded || self.arbiter.is_kept_off(id) {
            return;
        }
        let better = self.waiting().any(|(_, waiting)| waiting < class);
        let there = self.bringing.is_none() || self.busy_until > 0;
        assert!(better || there, "revoked for an equal before its memory was there");
        let equal = self.waiting().any(|(_, waiting)| waiting == class);
        // An interrupted quantum may go on, and then less than a quarter of one is never left.
        let had = self.now - since >= self.quantum / 4;
        let worse = self.waiting().any(|(id, _)| self.arbiter.is_overdue(id));
        let has_target = |id| self.workers[&id].habit.scheduling.slo_micros > 0;
        let target = self.waiting().any(|(id, waiting)| waiting == class && has_target(id));
        assert!(better || (equal || worse) && had || target, "revoked for nobody, or too early");
    }

    fn cost(&self, id: TenantId) -> Micros {
        self.memory.missing(id, self.workers[&id].habit.cost)
    }

    fn bring(&mut self, id: TenantId) {
        assert_eq!(self.granted, None, "SwapIn while another may run");
        if let Some((before, _)) = self.bringing {
            assert!(self.class(id) < self.class(before), "an arrival is given up for no better class");
        }
        self.bringing = Some((id, self.next_plan));
        self.memory.bring(self.now, id, self.workers[&id].habit.cost);
        let (number, delay) = (self.next_plan, self.dice.roll(100) + self.cost(id));
        self.plan(delay, Then::Brought(number));
        if self.pipelining < 100 {
            self.plan(delay * self.pipelining / 100, Then::Enough(number));
        }
    }

    fn enough(&mut self, number: u64) {
        let Some((id, _)) = self.bringing.filter(|(_, current)| *current == number) else { return };
        if !self.barred.contains(&id) {
            self.tell(id, Event::Ready);
        }
    }

    fn brought(&mut self, number: u64) {
        let Some((id, _)) = self.bringing.filter(|(_, current)| *current == number) else { return };
        self.memory.stop(self.now);
        let well = !self.barred.contains(&id) && !self.chance(self.trouble.cannot_arrive);
        match (self.arbiter.state(id), well) {
            (State::Arriving, false) => {
                self.bringing = None;
                self.failed.push(id);
                self.tell(id, Event::CannotArrive);
            }
            (State::Arriving, true) => {
                self.failed.retain(|failed| *failed != id);
                self.tell(id, Event::Resident);
                self.bringing = self.bringing.filter(|(_, current)| *current != number);
            }
            (_, false) => {
                self.failed.push(id);
                self.stranded = true;
                self.tell(id, Event::Stranded);
                self.stranded = false;
            }
            (_, true) => {
                self.bringing = None;
                self.failed.retain(|failed| *failed != id);
                self.tell(id, Event::Resident);
            }
        }
    }

    fn check(&self) {
        let holder = self.granted.map(|(holder, ..)| holder);
        assert_eq!(self.arbiter.holder(), holder);
        let busy_with =
            self.workers.keys().find(|id| !matches!(self.arbiter.state(**id), State::Idle | State::Waiting));
        let able = |(id, _): &(TenantId, Class)| !self.failed.contains(id);
        if busy_with.is_none() {
            assert_eq!(self.waiting().find(able), None, "it waits, and nobody is in its way");
        }
        if let Some(turn) = busy_with
            && self.arbiter.state(*turn) != State::Leaving
            && (self.arbiter.state(*turn) != State::Running || self.now >= self.busy_until)
        {
            let class = self.class(*turn);
            let better = self.waiting().filter(able).find(|(_, waiting)| *waiting < class);
            assert!(better.is_none() || self.is_overdue(), "{better:?} waits behind {turn:?} of a worse class");
        }
        // Waiting costs nothing: a step is a message, a timer or a change in a tenant's work.
        assert!(self.steps < 1_000_000, "it spins");
    }
}
