//! Gangs in a simulated world: several GPUs, each with its arbiter, whose messages take a while; tenants that drain slowly, do not drain,
//! cannot arrive, are suspended, leave and come.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use baton_contract::class::Class;
use baton_contract::scheduling::Scheduling;

use super::*;
use crate::arbiter::{self, Arbiter, Decision, Micros, State, TenantId};
use crate::dice::Dice;
use crate::scheduler::Scheduler;

const MS: Micros = 1_000;
const QUANTUM: Micros = 5 * MS;
/// After this wait, any tenant is next.
const MAX_WAIT: Micros = 200 * MS;
/// The longest time that an arrival and a drain take, and a message between GPUs.
const ARRIVAL: Micros = 2 * MS;
const DRAIN: Micros = MS;
const MESSAGE: Micros = 200;

/// The frequency of each trouble, in percent.
#[derive(Clone, Copy, Default)]
struct Trouble {
    cannot_arrive: u64,
    timed_out: u64,
    suspend: u64,
    leave: u64,
}

/// A tenant on a GPU.
#[derive(Default)]
struct Tenant {
    gang: Option<GangId>,
    claim: u64,
    /// Since when its gate is open, and since when it waits.
    open: Option<Micros>,
    waits: Option<Micros>,
    suspended: bool,
    /// Appointments for earlier turns are void.
    turn: u64,
}

struct Gpu {
    arbiter: Scheduler,
    tenants: BTreeMap<TenantId, Tenant>,
    bringing: u64,
    /// Messages from the gangs, in order, and the time of the last one.
    told: VecDeque<Told>,
    last_told: Micros,
}

enum Then {
    /// Its memory is there, or cannot come.
    Arrived(TenantId, u64, bool),
    Drained(TenantId, u64),
    /// It has nothing to do any more.
    Idle(TenantId, u64),
    Wants(TenantId),
    Tick,
    Told,
    /// The user suspends it, or lets it go on; or it leaves.
    Trouble(TenantId),
}

struct World {
    gpus: Vec<Gpu>,
    gangs: Gangs,
    now: Micros,
    dice: Dice,
    trouble: Trouble,
    plans: BinaryHeap<Reverse<(Micros, u64)>>,
    what: BTreeMap<u64, (usize, Then)>,
    next: u64,
    next_claim: u64,
    /// For each gang, how often all its members ran at the same time.
    ran: BTreeMap<GangId, u64>,
    /// Since when a gang is split: some of its members have their turn.
    split: BTreeMap<GangId, Micros>,
    longest_split: Micros,
    longest_wait: Micros,
    steps: u64,
}

impl World {
    fn new(seed: u64, gpus: usize, trouble: Trouble) -> Self {
        let gpu = |_| Gpu {
            arbiter: Scheduler::new(Arbiter::new(QUANTUM).with_max_wait(MAX_WAIT)),
            tenants: BTreeMap::new(),
            bringing: 0,
            told: VecDeque::new(),
            last_told: 0,
        };
        Self {
            gpus: (0..gpus).map(gpu).collect(),
            gangs: Gangs::default(),
            now: 0,
            dice: Dice(seed),
            trouble,
            plans: BinaryHeap::new(),
            what: BTreeMap::new(),
            next: 0,
            next_claim: 0,
            ran: BTreeMap::new(),
            split: BTreeMap::new(),
            longest_split: 0,
            longest_wait: 0,
            steps: 0,
        }
    }

    fn plan(&mut self, gpu: usize, at: Micros, then: Then) {
        self.plans.push(Reverse((at, self.next)));
        self.what.insert(self.next, (gpu, then));
        self.next += 1;
    }

    fn join(&mut self, gpu: usize, id: u32, class: Class, gang: Option<GangId>) {
        let id = TenantId(id);
        self.gpus[gpu].tenants.insert(id, Tenant { gang, ..Tenant::default() });
        self.tell(gpu, id, arbiter::Event::Joined { scheduling: Scheduling::from(class) });
        if let Some(gang) = gang {
            self.tell(gpu, id, arbiter::Event::Gang(true));
            self.on_gang(gpu, gang, Event::Joined);
        }
        self.want(gpu, id);
    }

    fn want(&mut self, gpu: usize, id: TenantId) {
        let now = self.now;
        let Some(tenant) = self.gpus[gpu].tenants.get_mut(&id) else { return };
        tenant.waits.get_or_insert(now);
        self.tell(gpu, id, arbiter::Event::Demand);
    }

    fn tell(&mut self, gpu: usize, id: TenantId, event: arbiter::Event) {
        let now = self.now;
        self.decide(gpu, |arbiter| arbiter.handle(now, id, event));
    }

    /// Has an arbiter decide, tells the gangs about turns that end by that, and carries the decisions out.
    fn decide(&mut self, gpu: usize, decide: impl FnOnce(&mut Scheduler) -> Vec<Decision>) {
        let states = |gpu: &Gpu| -> Vec<(GangId, State)> {
            gpu.tenants.iter().filter_map(|(id, tenant)| Some((tenant.gang?, gpu.arbiter.state(*id)))).collect()
        };
        let before = states(&self.gpus[gpu]);
        let decisions = decide(&mut self.gpus[gpu].arbiter);
        let after = states(&self.gpus[gpu]);
        for ((gang, before), (_, after)) in before.into_iter().zip(after) {
            for event in Event::of_change(before, after) {
                self.on_gang(gpu, gang, event);
                self.look_at(Some(gang));
            }
        }
        self.obey(gpu, decisions);
        self.plan_tick(gpu);
    }

    fn plan_tick(&mut self, gpu: usize) {
        if let Some(at) = self.gpus[gpu].arbiter.next_timer() {
            self.plan(gpu, at.max(self.now + 1), Then::Tick);
        }
    }

    fn on_gang(&mut self, gpu: usize, gang: GangId, event: Event) {
        for told in self.gangs.handle(GpuNumber(gpu as u32), gang, event) {
            let to = told.gpu.0 as usize;
            // In order, each after a while.
            let at = self.gpus[to].last_told.max(self.now + 1 + self.dice.roll(MESSAGE));
            self.gpus[to].last_told = at;
            self.gpus[to].told.push_back(told);
            self.plan(to, at, Then::Told);
        }
    }

    fn gang_of(&self, gpu: usize, id: TenantId) -> Option<GangId> {
        self.gpus[gpu].tenants.get(&id)?.gang
    }

    fn obey(&mut self, gpu: usize, decisions: Vec<Decision>) {
        for decision in decisions {
            let id = decision.tenant();
            let gang = self.gang_of(gpu, id);
            match decision {
                Decision::SwapIn(_) => {
                    assert!(
                        self.gpus[gpu].tenants.values().all(|tenant| tenant.open.is_none()),
                        "another is on the GPU"
                    );
                    self.gpus[gpu].bringing += 1;
                    let (number, fails) = (self.gpus[gpu].bringing, self.dice.percent(self.trouble.cannot_arrive));
                    let at = self.now + 1 + self.dice.roll(ARRIVAL);
                    self.plan(gpu, at, Then::Arrived(id, number, fails));
                }
                Decision::Grant(_) => self.open(gpu, id),
                Decision::Revoke(_) => {
                    let turn = self.gpus[gpu].tenants[&id].turn;
                    let at = self.now + 1 + self.dice.roll(DRAIN);
                    self.plan(gpu, at, Then::Drained(id, turn));
                }
                Decision::Claim(_) => {
                    self.next_claim += 1;
                    let (number, gang) = (self.next_claim, gang.expect("only gangs are claimed"));
                    self.gpus[gpu].tenants.get_mut(&id).expect("known").claim = number;
                    self.on_gang(gpu, gang, Event::Claimed(number));
                }
                Decision::GiveBack(_) => {
                    if let Some(gang) = gang {
                        self.on_gang(gpu, gang, Event::GivenBack);
                    }
                }
                Decision::Idle(_, is_idle) => self.on_gang(gpu, gang.expect("only gangs"), Event::Idle(is_idle)),
                Decision::Contend(..) => {}
                Decision::Reopen(_) => self.open(gpu, id),
                Decision::Corun(..) => unreachable!("{decision:?}"),
            }
        }
    }

    fn open(&mut self, gpu: usize, id: TenantId) {
        let now = self.now;
        let tenant = self.gpus[gpu].tenants.get_mut(&id).expect("known");
        assert!(tenant.open.replace(now).is_none());
        tenant.turn += 1;
        if let Some(since) = tenant.waits.take() {
            self.longest_wait = self.longest_wait.max(now - since);
        }
        let (turn, gang) = (tenant.turn, tenant.gang);
        if self.dice.percent(20) {
            let at = self.now + 1 + self.dice.roll(4 * QUANTUM);
            self.plan(gpu, at, Then::Idle(id, turn));
        }
        self.look_at(gang);
    }

    fn close(&mut self, gpu: usize, id: TenantId, event: arbiter::Event) {
        let tenant = self.gpus[gpu].tenants.get_mut(&id).expect("known");
        tenant.open = None;
        tenant.turn += 1;
        self.tell(gpu, id, event);
    }

    /// Sees if a gang runs, or is split.
    fn look_at(&mut self, gang: Option<GangId>) {
        let Some(id) = gang else { return };
        let (mut open, mut all) = (0, 0);
        for gpu in &self.gpus {
            for (id, _) in gpu.tenants.iter().filter(|(_, tenant)| tenant.gang == gang) {
                all += 1;
                open += usize::from(matches!(gpu.arbiter.state(*id), State::Running | State::Leaving));
            }
        }
        if open == all && all > 0 {
            *self.ran.entry(id).or_default() += 1;
        }
        if open == 0 || open == all {
            if let Some(since) = self.split.remove(&id) {
                self.longest_split = self.longest_split.max(self.now - since);
            }
        } else {
            self.split.entry(id).or_insert(self.now);
        }
    }

    fn step(&mut self) -> bool {
        let Some(Reverse((at, number))) = self.plans.pop() else { return false };
        let (gpu, then) = self.what.remove(&number).expect("planned");
        self.now = self.now.max(at);
        self.steps += 1;
        let is_turn = |world: &Self, id: &TenantId, turn: u64| {
            world.gpus[gpu].tenants.get(id).is_some_and(|tenant| tenant.turn == turn && tenant.open.is_some())
        };
        match then {
            Then::Arrived(id, bringing, fails) => {
                let gpu_ = &self.gpus[gpu];
                if gpu_.bringing != bringing || gpu_.arbiter.state(id) != State::Arriving {
                    return true;
                }
                match self.gang_of(gpu, id) {
                    _ if fails => self.tell(gpu, id, arbiter::Event::CannotArrive),
                    Some(gang) => self.on_gang(gpu, gang, Event::Ready),
                    None => self.tell(gpu, id, arbiter::Event::Resident),
                }
            }
            Then::Drained(id, turn) if is_turn(self, &id, turn) => {
                if self.gpus[gpu].arbiter.state(id) != State::Leaving {
                    return true;
                }
                if self.dice.percent(self.trouble.timed_out) {
                    self.tell(gpu, id, arbiter::Event::DrainTimedOut);
                } else {
                    let now = self.now;
                    self.gpus[gpu].tenants.get_mut(&id).expect("known").waits = Some(now);
                    self.close(gpu, id, arbiter::Event::Preempted);
                }
            }
            Then::Idle(id, turn) if is_turn(self, &id, turn) => {
                // A gang's member keeps its turn while others are at work.
                self.close(gpu, id, arbiter::Event::Closed);
                let at = self.now + 1 + self.dice.roll(QUANTUM);
                self.plan(gpu, at, Then::Wants(id));
            }
            Then::Drained(..) | Then::Idle(..) => {}
            Then::Wants(id) => self.want(gpu, id),
            Then::Tick => {
                if self.gpus[gpu].arbiter.next_timer().is_some_and(|at| at <= self.now) {
                    let now = self.now;
                    self.decide(gpu, |arbiter| arbiter.tick(now));
                }
            }
            Then::Told => {
                let told = self.gpus[gpu].told.pop_front().expect("one for each plan");
                let found = self.gpus[gpu]
                    .tenants
                    .iter()
                    .find(|(_, tenant)| tenant.gang == Some(told.gang) && tenant.claim == told.claim);
                let by_claim = found.map(|(id, _)| *id);
                if told.action == Action::Want {
                    let any = self.gpus[gpu].tenants.iter().find(|(_, tenant)| tenant.gang == Some(told.gang));
                    let is_idle = |id: &TenantId| self.gpus[gpu].arbiter.state(*id) == State::Idle;
                    if let Some(id) = any.map(|(id, _)| *id).filter(is_idle) {
                        self.tell(gpu, id, arbiter::Event::Demand);
                    }
                    return true;
                }
                let Some(id) = by_claim else { return true };
                match told.action {
                    Action::Want => {}
                    Action::Call => self.tell(gpu, id, arbiter::Event::Call),
                    Action::Recall => self.tell(gpu, id, arbiter::Event::Recall),
                    Action::Admit if self.gpus[gpu].arbiter.state(id) == State::Arriving => {
                        self.tell(gpu, id, arbiter::Event::Resident);
                    }
                    Action::Admit => {}
                }
            }
            Then::Trouble(id) => self.trouble(gpu, id),
        }
        true
    }

    fn trouble(&mut self, gpu: usize, id: TenantId) {
        let Some(tenant) = self.gpus[gpu].tenants.get_mut(&id) else { return };
        if self.trouble.suspend > 0 || tenant.suspended {
            tenant.suspended ^= true;
            let suspended = tenant.suspended;
            if suspended {
                let at = self.now + 1 + self.dice.roll(20 * QUANTUM);
                self.plan(gpu, at, Then::Trouble(id));
            }
            self.tell(gpu, id, arbiter::Event::KeepOff(suspended));
        }
        if self.dice.percent(self.trouble.leave) {
            let tenant = self.gpus[gpu].tenants.remove(&id).expect("known");
            if let Some(gang) = tenant.gang {
                self.on_gang(gpu, gang, Event::Left);
            }
            self.tell(gpu, id, arbiter::Event::Left);
            self.look_at(tenant.gang);
            // Another one comes in its place.
            let number = id.0 + 1000;
            self.join(gpu, number, Class::Normal, tenant.gang);
        }
    }

    fn run(&mut self, time: Micros) {
        let end = self.now + time;
        while self.now < end && self.step() {
            let is_trouble = self.trouble.suspend + self.trouble.leave;
            if self.steps.is_multiple_of(50) && is_trouble > 0 && self.dice.percent(is_trouble) {
                let gpu = self.dice.roll(self.gpus.len() as u64) as usize;
                let at = self.dice.roll(self.gpus[gpu].tenants.len() as u64) as usize;
                let id = *self.gpus[gpu].tenants.keys().nth(at).expect("some");
                self.plan(gpu, self.now, Then::Trouble(id));
            }
        }
    }
}

fn gang(number: u64) -> GangId {
    GangId { guest: None, number }
}

/// Gangs of two and four on overlapping GPUs, beside tenants of single GPUs.
fn crowd(seed: u64, trouble: Trouble) -> World {
    let mut world = World::new(seed, 4, trouble);
    let gangs: [&[usize]; 4] = [&[0, 1], &[1, 2], &[2, 0], &[0, 1, 2, 3]];
    for (number, gpus) in gangs.into_iter().enumerate() {
        for gpu in gpus {
            world.join(*gpu, number as u32 + 1, Class::Normal, Some(gang(number as u64)));
        }
    }
    for gpu in 0..4 {
        for number in 0..2 {
            world.join(gpu, 100 + number, if number == 0 { Class::Normal } else { Class::Batch }, None);
        }
    }
    world
}

#[test]
fn gangs_run_at_the_same_time_or_not_at_all_and_none_waits_for_ever() {
    for seed in 0..8 {
        let mut world = crowd(seed, Trouble::default());
        world.run(10_000 * MS);
        assert_eq!(world.ran.len(), 4, "{:?}", world.ran);
        // In ten seconds, with turns of five milliseconds.
        assert!(world.ran.values().all(|times| *times >= 100), "seed {seed}: {:?}", world.ran);
        // The messages by which all are let in, and by which all leave, and the slowest drain.
        assert!(world.longest_split <= 3 * MESSAGE + DRAIN + MS, "seed {seed}: {}", world.longest_split);
        // At most six others of each GPU, batch programs among them, have a turn before one that has waited for long enough, and
        // gangs wait for the slowest of their GPUs.
        let bound = MAX_WAIT + 2 * 6 * (4 * QUANTUM + ARRIVAL + DRAIN + 2 * MESSAGE);
        assert!(world.longest_wait <= bound, "seed {seed}: {} of {bound}", world.longest_wait);
    }
}

/// Without others, each arbiter claims all that wait, at once.
#[test]
fn gangs_alone_take_turns_too() {
    for seed in 0..20 {
        let mut world = World::new(seed, 3, Trouble::default());
        for (number, gpus) in [[0, 1], [1, 2], [2, 0]].into_iter().enumerate() {
            for gpu in gpus {
                world.join(gpu, number as u32 + 1, Class::Normal, Some(gang(number as u64)));
            }
        }
        world.run(3_000 * MS);
        assert!(world.ran.len() == 3 && world.ran.values().all(|times| *times >= 50), "seed {seed}: {:?}", world.ran);
    }
}

#[test]
fn whatever_goes_wrong_all_go_on_when_it_does_not_any_more() {
    let mut steps = 0;
    let troubles = [
        Trouble { cannot_arrive: 20, ..Trouble::default() },
        Trouble { timed_out: 30, ..Trouble::default() },
        Trouble { suspend: 30, ..Trouble::default() },
        Trouble { leave: 30, suspend: 10, ..Trouble::default() },
        Trouble { cannot_arrive: 10, timed_out: 10, suspend: 10, leave: 10 },
    ];
    for (seed, trouble) in (100..115).flat_map(|seed| troubles.map(|trouble| (seed, trouble))) {
        let mut world = crowd(seed, trouble);
        world.run(2_000 * MS);
        world.trouble = Trouble::default();
        // Pauses after failures, and suspensions, are over.
        world.run(5_000 * MS);
        world.ran.clear();
        world.run(3_000 * MS);
        let all: Vec<_> = (0..4).map(|number| world.ran.get(&gang(number)).copied().unwrap_or(0)).collect();
        // Those that were served less for all that time catch up first, for no longer than this.
        assert!(all.iter().all(|times| *times >= 5), "seed {seed}: {all:?} {:#?}", world.gangs);
        steps += world.steps;
    }
    assert!(steps >= 1_000_000, "{steps}");
    println!("{steps}");
}

#[test]
fn members_without_work_leave_when_others_wait_for_one_of_their_gpus() {
    let (id, gpus) = (gang(1), [GpuNumber(0), GpuNumber(1)]);
    let mut gangs = Gangs::default();
    let mut tell = |gpu: GpuNumber, event| -> Vec<Action> {
        gangs.handle(gpu, id, event).into_iter().map(|told| told.action).collect()
    };
    for event in [Event::Joined, Event::Claimed(1), Event::Ready] {
        gpus.iter().for_each(|gpu| drop(tell(*gpu, event)));
    }
    // None waits: they stay.
    assert_eq!([tell(gpus[0], Event::Rests(true)), tell(gpus[1], Event::Rests(true))].concat(), []);
    assert_eq!(tell(gpus[1], Event::Rests(false)), []);
    assert_eq!(tell(gpus[0], Event::Idle(true)), [], "the other is at work");
    assert_eq!(tell(gpus[1], Event::Rests(true)), [Action::Recall, Action::Recall]);
}

#[test]
fn what_is_given_up_here_is_told_and_what_becomes_a_gangs_waits_for_that() {
    let mut arbiter = Scheduler::new(Arbiter::new(QUANTUM));
    let id = TenantId(1);
    let mut tell = |event| arbiter.handle(0, id, event);
    tell(arbiter::Event::Joined { scheduling: Scheduling::default() });
    assert_eq!(tell(arbiter::Event::Demand), [Decision::SwapIn(id)]);
    // It has its turn without the others: it is claimed anew.
    assert_eq!(tell(arbiter::Event::Gang(true)), [Decision::Claim(id)]);
    assert_eq!(tell(arbiter::Event::Gang(true)), [Decision::Claim(id)], "of another one");
    assert_eq!(tell(arbiter::Event::Call), [Decision::SwapIn(id)]);
    // The machine may have admitted it just now, and counts upon its end.
    assert_eq!(tell(arbiter::Event::Recall), [Decision::GiveBack(id), Decision::Claim(id)]);
    assert_eq!(tell(arbiter::Event::Gang(false)), [Decision::SwapIn(id)]);
}
