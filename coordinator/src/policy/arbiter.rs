//! Who may run: a state machine from (state, event, time) to decisions. No clock, no input or output, no
//! CUDA: the caller brings events and the time, and carries out what is decided.
//!
//! At most one tenant has the **baton**. It has it for a **turn**:
//!
//! ```text
//!             SwapIn              Grant              Revoke
//!   Waiting ────────> Arriving ────────> Running ────────────> Leaving
//!   ^  ^  ^──────────────┘ ^ CannotArrive   │ ^────── DrainTimedOut ───────┘ │ │
//!   │  │     or a better class is brought   │ Closed of itself      │ │
//!   │  └─────────── Demand ──────────── Idle <──────────── Closed ──┘ │
//!   └──────────────────────────── Preempted ─────────────────────────────┘
//! ```
//!
//! **Whose turn is next.** The best class goes first. Within a class the tenant that has had the baton for
//! the least time in proportion to its weight; who comes anew, or after a long absence, starts level with the least of those
//! that are active (see `account`). One exception: who had to make way for a better class in the middle of its
//! quantum is the first of its class to go on, for what was left. Otherwise every request of a latency
//! tenant would make two batch tenants change places, and quanta would not protect from dear switches.
//!
//! **Targets.** Of requests that are to be answered by a time, the one with the earliest goes first among its class, and
//! interrupts others of its class when it has to begin: what bringing it in takes, and what its turns usually take, before.
//!
//! **Waiting for too long.** Who has waited for `max_wait` is next, whatever its class, and nobody interrupts its arrival or
//! its quantum. But nobody of class latency waits for two such turns.
//!
//! **Suspended** tenants ([`Event::Suspended`]) are left out of all this: those that run are revoked, and their calls wait.
//!
//! **When a turn ends.** When the holder is idle and says so (`Closed`): it is *parked*, and gets the baton
//! back when it demands it. At once, when a better class waits. When its quantum is over, if its own class
//! waits: `max(quantum, 4 × cost of the switch)`, and longer while the holder has had less time than
//! the one that waits, so that unequal costs do not make unequal shares; but never more than 10 s, or the
//! user's quantum if that is longer. A worse class waits until the holder is idle or gone. A holder that
//! could not be drained (`DrainTimedOut`) is left alone for 100 ms, then for twice as long, up to 2 s.
//!
//! **Giving up an arrival.** One under way is given up only for a strictly better class, and the tenant
//! goes back to waiting, its place kept. So no circle of tenants can keep each other from arriving: the
//! best class that waits is never given up.
//!
//! **Running while arriving.** `Ready` lets a tenant in before all its memory is there, when that is sure to come. Its
//! quantum begins when all is there (`Resident`): on a slow machine two tenants could otherwise take memory from each
//! other for ever, each before it could use what it got. Should it not come after all, `Stranded` ends the turn.
//!
//! **Running beside others.** While nothing has to move because all fits together ([`Arbiter::set_together`]), tenants of class latency
//! are **corunners**: their gates are open all the time, and they have no turn. Others keep back while a corunner is at work, but that is
//! between the tenants (the activity page). When not all fits any more, corunners are told to leave, and take turns as anybody does; what
//! they did as corunners they did when nobody had to wait for a turn, so it does not count against them.
//!
//! The time in which a holder can do nothing for corunners at work ([`Pressure`]) is no part of its turn. When those who were
//! kept back have waited for too long, everybody who has gets a share, one after the other, the holder first.
//!
//! **Those that cannot arrive** are tried again after a growing pause, at least four times as long as the
//! try that failed, so that the others have most of the time; and at once when any tenant has left, because
//! that may have been what was in the way. Until one has arrived, its class gives it no right to interrupt
//! others: it takes its turn when the baton is free or a quantum is over. Otherwise a tenant that can never
//! arrive could keep a worse class from ever arriving either.
//!
//! **What tenants say is an allegation.** Whatever makes no sense in a state is ignored. One thing only
//! the caller can see: a `Closed` or `DrainTimedOut` that answers to an earlier grant must not be passed on; grants
//! are numbered for that.
//!
//! **What the caller owes.** Every `SwapIn` is answered by `Resident` or `CannotArrive`, or by `Ready` and then, if
//! the turn lasts, `Resident` or `Stranded`; every `Revoke` by `Closed`, `Preempted` or `DrainTimedOut`; or `Left` comes. `SwapIn` of
//! another tenant cancels the one before, and `Suspended` that of its tenant. A corunner's `Grant` comes without a `SwapIn`: if it
//! was `Preempted` it has to be put back first. The arbiter does not watch how long an answer takes.
//!
//! A turn is a value of its own (`turn`), and what ends it asks only about that turn and those who wait.
//! Several tenants at once would be a list of turns.

mod account;
mod corunners;
mod rules;
mod turn;
mod words;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;

use std::collections::BTreeMap;

use baton_contract::class::Class;
use baton_contract::scheduling::Scheduling;

use account::{Account, Floors, level};
use corunners::Corunners;
use rules::{LONGEST_QUANTUM, SHORTEST_QUANTUM, patience, pause};
use turn::{Stage, Turn};

pub use rules::SHARE;
pub use words::{Decision, Event, Micros, Pressure, State, TenantId, Totals};

#[derive(Debug)]
struct Tenant {
    scheduling: Scheduling,
    /// The user keeps it off the GPU.
    suspended: bool,
    /// While it waits, one of a worse class has had a turn because that had waited for too long.
    passed_over: bool,
    /// How long it usually has the baton until it is idle.
    service: Micros,
    /// Since when a call of it waits.
    waiting: Option<Micros>,
    account: Account,
    cost: Micros,
    switches: u64,
    /// The patience that it was told last; none if it was told that nobody waits.
    told: Option<Micros>,
    /// How often it could not arrive since it last did, and when it may be tried again.
    failures: u32,
    retry_at: Micros,
}

impl Tenant {
    fn class(&self) -> Class {
        self.scheduling.class
    }

    fn charge(&mut self, held: Micros) {
        self.account.charge(held, self.scheduling.weight);
    }

    fn succeeded(&mut self) {
        self.failures = 0;
        self.retry_at = 0;
    }
}

/// One tenant's claim to go on first among its class.
#[derive(Clone, Copy, Debug)]
struct Interrupted {
    tenant: TenantId,
    /// How much of its quantum it has had.
    used: Micros,
}

/// The arbiter of one GPU.
#[derive(Debug)]
pub struct Arbiter {
    quantum: Micros,
    max_wait: Micros,
    now: Micros,
    tenants: BTreeMap<TenantId, Tenant>,
    turn: Option<Turn>,
    corunners: Corunners,
    pressure: Pressure,
    floors: Floors,
    interrupted: [Option<Interrupted>; Class::ALL.len()],
    /// Who had the baton last, or has it.
    last: Option<TenantId>,
    decided_at: Micros,
    totals: Totals,
}

impl Arbiter {
    /// An arbiter without tenants. `quantum`: how long a turn is at least while others of its class wait.
    pub fn new(quantum: Micros) -> Self {
        Self {
            quantum: quantum.max(SHORTEST_QUANTUM),
            max_wait: Micros::MAX,
            now: 0,
            tenants: BTreeMap::new(),
            turn: None,
            corunners: Corunners::default(),
            pressure: Pressure::Free,
            floors: Floors::default(),
            interrupted: [None; Class::ALL.len()],
            last: None,
            decided_at: 0,
            totals: Totals::default(),
        }
    }

    /// The same, in which whoever has waited for so long gets a turn, whatever its class.
    #[must_use]
    pub fn with_max_wait(self, max_wait: Micros) -> Self {
        Self { max_wait, ..self }
    }

    /// What it would take to bring this tenant in now: what would have to be moved for that, in and out, over
    /// the measured bandwidth. Counts from the next event or tick on.
    pub fn set_cost(&mut self, tenant: TenantId, cost: Micros) {
        if let Some(tenant) = self.tenants.get_mut(&tenant) {
            tenant.cost = cost;
        }
    }

    /// Whether all tenants' memory fits together, and they can run at the same time. Counts from the next event or tick on.
    pub fn set_together(&mut self, together: bool) {
        self.corunners.welcome = together;
    }

    /// How urgent work bears on the holder from now on. Counts from the next event or tick on.
    pub fn set_pressure(&mut self, now: Micros, pressure: Pressure) {
        self.advance(now);
        let before = std::mem::replace(&mut self.pressure, pressure);
        if let Some(turn) = self.turn.as_mut().filter(|_| pressure == Pressure::Passing && before != pressure) {
            // Also the holder has waited: it has its share first.
            turn.lasts_until(self.now.saturating_add(SHARE));
        }
    }

    /// Which corunners are at work from now on.
    pub fn set_at_work(&mut self, now: Micros, is_at_work: impl Fn(TenantId) -> bool) {
        self.advance(now);
        self.corunners.set_at_work(self.now, is_at_work);
    }

    /// Whether they were said to.
    pub fn is_together(&self) -> bool {
        self.corunners.welcome
    }

    /// Takes note of an event, and says what is to be done, in this order.
    pub fn handle(&mut self, now: Micros, id: TenantId, event: Event) -> Vec<Decision> {
        let mut out = Vec::new();
        self.advance(now);
        // When what happens next was decided: by this event, unless it ends what a revoke began.
        let mut decided = self.now;
        match event {
            Event::Joined { scheduling } => self.join(id, scheduling),
            Event::Changed { scheduling } => self.change(id, scheduling),
            Event::Suspended => self.set_suspended(id, true),
            Event::Unsuspended => self.set_suspended(id, false),
            Event::Left => decided = self.leave(id),
            Event::Demand => self.demand(id),
            Event::Closed | Event::Preempted | Event::DrainTimedOut if self.corunners.has(id) => {
                self.corunner_answers(id, event)
            }
            Event::Closed if self.holder() == Some(id) => decided = self.end_turn(),
            Event::DrainTimedOut if self.state(id) == State::Leaving => self.busy(id),
            Event::Preempted if self.state(id) == State::Leaving => decided = self.pause(id),
            Event::Ready if self.state(id) == State::Arriving => self.grant(id, &mut out),
            Event::Resident => self.resident(id, &mut out),
            Event::CannotArrive if self.state(id) == State::Arriving => self.fail(id),
            Event::Stranded if self.state(id) == State::Running => self.strand(id, &mut out),
            Event::Closed
            | Event::DrainTimedOut
            | Event::Preempted
            | Event::Ready
            | Event::CannotArrive
            | Event::Stranded => {}
        }
        self.decide(decided, &mut out);
        out
    }

    /// The time that [`Arbiter::next_timer`] named has come. At other times it does no harm.
    pub fn tick(&mut self, now: Micros) -> Vec<Decision> {
        let mut out = Vec::new();
        self.advance(now);
        self.decide(self.now, &mut out);
        out
    }

    /// When [`Arbiter::tick`] is to be called, if nothing happens before.
    pub fn next_timer(&self) -> Option<Micros> {
        let corunners = self.next_try_of_corunners();
        let end = match &self.turn {
            Some(turn) if turn.stage != Stage::Running => return corunners,
            Some(turn) if self.stands_still(turn) => self.end_of(turn).or_else(|| self.next_to_be_overdue()),
            Some(turn) => self.end_of(turn),
            None => None,
        };
        let retries = self.waiters().map(|(_, tenant)| tenant.retry_at).filter(|at| *at > self.now);
        corunners.into_iter().chain(end).chain(retries).min()
    }

    /// Who has the baton: its gate is open, or not yet known to be closed.
    pub fn holder(&self) -> Option<TenantId> {
        self.turn.as_ref().filter(|turn| turn.is_held()).map(|turn| turn.tenant)
    }

    /// What a tenant is doing.
    pub fn state(&self, id: TenantId) -> State {
        match &self.turn {
            Some(turn) if turn.tenant == id => match turn.stage {
                Stage::Arriving => State::Arriving,
                Stage::Running => State::Running,
                Stage::Leaving { .. } => State::Leaving,
            },
            _ if self.corunners.has(id) => self.corunners.state(id),
            _ if self.tenants.get(&id).is_some_and(|tenant| tenant.waiting.is_some() && !tenant.suspended) => {
                State::Waiting
            }
            _ => State::Idle,
        }
    }

    /// Whether a tenant runs beside the one that has the baton.
    pub fn is_corunner(&self, id: TenantId) -> bool {
        self.corunners.has(id)
    }

    /// Whether the user keeps a tenant off the GPU.
    pub fn is_suspended(&self, id: TenantId) -> bool {
        self.tenants.get(&id).is_some_and(|tenant| tenant.suspended)
    }

    /// How long a tenant has had the baton, from grants to the closing of its gate, without the time in which it could do
    /// nothing; or was at work beside the one that had it.
    pub fn gpu_time(&self, id: TenantId, now: Micros) -> Micros {
        let held = self.turn.as_ref().filter(|turn| turn.tenant == id).map_or(0, |turn| turn.held(now));
        let held = held + self.corunners.held(id, now);
        self.tenants.get(&id).map_or(0, |tenant| tenant.account.used + held)
    }

    /// How often a tenant got the baton after another had had it.
    pub fn switches(&self, id: TenantId) -> u64 {
        self.tenants.get(&id).map_or(0, |tenant| tenant.switches)
    }

    /// When the last grant was decided upon: when the holder before was told to leave, or when the tenant was
    /// to be brought in, if nobody had to leave for it.
    pub fn decided_at(&self) -> Micros {
        self.decided_at
    }

    /// What was decided since the start.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    fn advance(&mut self, now: Micros) {
        let before = self.now;
        self.now = before.max(now);
        let stands_still = self.turn.as_ref().is_some_and(|turn| self.stands_still(turn));
        if let Some(turn) = self.turn.as_mut().filter(|_| stands_still) {
            turn.stand_still(self.now - before);
        }
        for class in Class::ALL {
            let of_class = self.tenants.iter().filter(|(_, tenant)| tenant.class() == class);
            let active = of_class.filter_map(|(id, tenant)| match &self.turn {
                Some(turn) if turn.tenant == *id => {
                    Some(tenant.account.level + level(turn.held(self.now), tenant.scheduling.weight))
                }
                // Who is kept off the GPU does not keep the others' time from going on.
                _ => tenant.waiting.filter(|_| !tenant.suspended).map(|_| tenant.account.level),
            });
            self.floors.raise(class, active.min());
        }
    }

    fn join(&mut self, id: TenantId, scheduling: Scheduling) {
        self.tenants.entry(id).or_insert(Tenant {
            scheduling,
            suspended: false,
            passed_over: false,
            service: 0,
            waiting: None,
            account: Account::default(),
            cost: 0,
            switches: 0,
            told: None,
            failures: 0,
            retry_at: 0,
        });
    }

    fn change(&mut self, id: TenantId, scheduling: Scheduling) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        let before = std::mem::replace(&mut tenant.scheduling, scheduling);
        if before.class == scheduling.class {
            return;
        }
        // Among others of its kind it starts level with them.
        tenant.account.level = self.floors.of(scheduling.class);
        self.interrupted[before.class as usize].take_if(|interrupted| interrupted.tenant == id);
    }

    fn set_suspended(&mut self, id: TenantId, suspended: bool) {
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        if tenant.suspended && !suspended {
            tenant.account.wake(self.now, self.floors.of(tenant.class()), self.quantum);
            // It was not kept waiting by the others.
            tenant.waiting = tenant.waiting.map(|_| self.now);
            tenant.passed_over = false;
        }
        tenant.suspended = suspended;
    }

    fn leave(&mut self, id: TenantId) -> Micros {
        let its_turn = self.turn.as_ref().is_some_and(|turn| turn.tenant == id);
        let decided = if its_turn { self.end_turn() } else { self.now };
        self.corunners.remove(id);
        if self.tenants.remove(&id).is_some() {
            for tenant in self.tenants.values_mut() {
                tenant.retry_at = self.now;
            }
        }
        for interrupted in &mut self.interrupted {
            interrupted.take_if(|interrupted| interrupted.tenant == id);
        }
        decided
    }

    fn demand(&mut self, id: TenantId) {
        let state = self.state(id);
        let Some(tenant) = self.tenants.get_mut(&id) else { return };
        if state == State::Idle {
            tenant.account.wake(self.now, self.floors.of(tenant.class()), self.quantum);
        }
        // While it runs its gate is open: nothing can be waiting there.
        if !matches!(state, State::Running | State::Corunning) {
            tenant.waiting.get_or_insert(self.now);
        }
    }

    /// The turn is over; when that was decided.
    fn end_turn(&mut self) -> Micros {
        let Some(turn) = self.turn.take() else { return self.now };
        let Some(tenant) = self.tenants.get(&turn.tenant) else { return self.now };
        let held = turn.held(self.now);
        let class = tenant.class();
        if let Stage::Leaving { for_better: true, .. } = turn.stage {
            let used = turn.used_before + held;
            let next =
                self.waiters().filter(|(_, tenant)| tenant.class() == class).map(|(_, tenant)| tenant.cost).min();
            // A short rest is not worth coming back for.
            if used < self.quantum_for(next.unwrap_or(0)) / 4 * 3 {
                self.interrupted[class as usize] = Some(Interrupted { tenant: turn.tenant, used });
            }
        }
        if let Some(tenant) = self.tenants.get_mut(&turn.tenant) {
            if turn.stage == Stage::Running {
                // It has done what it wanted to do, with what was there.
                tenant.succeeded();
                tenant.service = (tenant.service * 3 + held) / 4;
            }
            tenant.charge(held);
            tenant.account.idle_since = Some(self.now);
        }
        match turn.stage {
            Stage::Leaving { since, .. } => since,
            Stage::Arriving | Stage::Running => self.now,
        }
    }

    fn busy(&mut self, id: TenantId) {
        if let (Some(turn), Some(tenant)) = (&mut self.turn, self.tenants.get_mut(&id)) {
            turn.busy(self.now);
            tenant.waiting = None;
            self.totals.busy += 1;
        }
    }

    /// It has work to go on with, whatever its program does meanwhile.
    fn pause(&mut self, id: TenantId) -> Micros {
        let decided = self.end_turn();
        if let Some(tenant) = self.tenants.get_mut(&id) {
            tenant.waiting.get_or_insert(self.now);
        }
        decided
    }

    fn grant(&mut self, id: TenantId, out: &mut Vec<Decision>) {
        let (Some(turn), Some(tenant)) = (&mut self.turn, self.tenants.get_mut(&id)) else { return };
        let interrupted =
            self.interrupted[tenant.class() as usize].take().filter(|interrupted| interrupted.tenant == id);
        turn.grant(self.now, interrupted.map_or(0, |interrupted| interrupted.used));
        self.decided_at = turn.decided_at;
        tenant.waiting = None;
        self.totals.grants += 1;
        if self.last.is_some_and(|last| last != id) {
            tenant.switches += 1;
            self.totals.switches += 1;
        }
        self.last = Some(id);
        tenant.passed_over = false;
        let class = tenant.class();
        if turn.overdue {
            let better = |(other, tenant): &(&TenantId, &mut Tenant)| tenant.class() < class && **other != id;
            let waiting = self.tenants.iter_mut().filter(better).filter(|(_, tenant)| tenant.waiting.is_some());
            waiting.for_each(|(_, tenant)| tenant.passed_over = true);
        }
        out.push(Decision::Grant(id));
    }

    /// All of its memory is there. If it has been let in already, its quantum begins now.
    fn resident(&mut self, id: TenantId, out: &mut Vec<Decision>) {
        match self.state(id) {
            State::Arriving => self.grant(id, out),
            // Also if it is to leave before it has had anything of that.
            State::Running | State::Leaving => {}
            State::Idle | State::Waiting | State::Corunning => return,
        }
        if let (Some(turn), Some(tenant)) =
            (self.turn.as_mut().filter(|turn| turn.tenant == id), self.tenants.get_mut(&id))
        {
            turn.resident(self.now);
            tenant.succeeded();
        }
    }

    /// It was let in before all its memory was there, and the rest cannot come.
    fn strand(&mut self, id: TenantId, out: &mut Vec<Decision>) {
        let (Some(turn), Some(tenant)) = (&mut self.turn, self.tenants.get_mut(&id)) else { return };
        if self.now < turn.not_before {
            return;
        }
        tenant.failures = tenant.failures.saturating_add(1);
        tenant.retry_at = self.now.saturating_add(pause(tenant.failures));
        self.totals.failed += 1;
        turn.revoke(self.now, false);
        self.totals.revokes += 1;
        out.push(Decision::Revoke(id));
    }

    fn fail(&mut self, id: TenantId) {
        let (Some(turn), Some(tenant)) = (self.turn.take(), self.tenants.get_mut(&id)) else { return };
        let took = self.now.saturating_sub(turn.since);
        tenant.failures = tenant.failures.saturating_add(1);
        tenant.retry_at =
            self.now.saturating_add(pause(tenant.failures).max(took.saturating_mul(4).min(LONGEST_QUANTUM)));
        self.totals.failed += 1;
    }
}

/// What follows from how things stand.
impl Arbiter {
    fn decide(&mut self, decided: Micros, out: &mut Vec<Decision>) {
        self.decide_corunners(out);
        let Some(turn) = &self.turn else {
            if let Some(next) = self.next() {
                self.bring(next, decided, out);
            }
            return;
        };
        match turn.stage {
            Stage::Leaving { .. } => {}
            Stage::Arriving if self.tenants.get(&turn.tenant).is_some_and(|tenant| tenant.suspended) => {
                self.totals.given_up += 1;
                self.turn = None;
                self.decide(decided, out);
            }
            Stage::Arriving => {
                if let Some(better) = self.better_than(turn.tenant).filter(|_| !turn.overdue) {
                    self.totals.given_up += 1;
                    self.bring(better, decided, out);
                }
            }
            Stage::Running if self.end_of(turn).is_some_and(|end| end <= self.now) => {
                let (id, for_better) = (turn.tenant, self.better_than(turn.tenant).is_some());
                if let Some(turn) = &mut self.turn {
                    turn.revoke(self.now, for_better);
                }
                self.totals.revokes += 1;
                out.push(Decision::Revoke(id));
            }
            Stage::Running => {
                let patience = self.first_waiter().map(|(_, tenant)| patience(tenant.cost));
                self.contend(patience, out);
            }
        }
    }

    /// Tells the holder about those who wait, if that is news: patience that changed by less than half or
    /// double is not. After the gate was opened it is said again in any case.
    fn contend(&mut self, patience: Option<Micros>, out: &mut Vec<Decision>) {
        let Some(turn) = &mut self.turn else { return };
        let Some(tenant) = self.tenants.get_mut(&turn.tenant) else { return };
        let news = match (tenant.told, patience) {
            (None, None) => false,
            (Some(old), Some(new)) => new >= old * 2 || old >= new * 2 || turn.opened,
            _ => true,
        };
        turn.opened = false;
        if news {
            tenant.told = patience;
            out.push(Decision::Contend(turn.tenant, patience));
        }
    }

    fn bring(&mut self, id: TenantId, decided: Micros, out: &mut Vec<Decision>) {
        let mut turn = Turn::new(id, self.now, decided);
        if let Some(tenant) = self.tenants.get(&id) {
            (turn.overdue, turn.deadline) = (self.is_overdue(tenant), tenant.deadline());
        }
        self.turn = Some(turn);
        out.push(Decision::SwapIn(id));
    }
}
