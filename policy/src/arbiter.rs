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
//! **Whose turn is next.** The best class goes first. Within a class the tenant with the least *virtual time*, which goes on
//! with the service that it gets in proportion to its weight; who comes anew, or after a long absence, starts at the class's
//! (see `virtual_time`). One exception: who had to make way for a better class in the middle of its
//! quantum is the first of its class to go on, for what was left. Otherwise every request of a latency
//! tenant would make two batch tenants change places, and quanta would not protect from dear switches.
//!
//! **How long anybody waits.** While better classes and requests with targets leave time, and all can arrive and be drained,
//! others of its class are served for no longer than
//!
//! ```text
//!   T · (W/w + W/v + 4·n) + Λ
//! ```
//!
//! while a tenant of weight `w` waits. `T` is the longest quantum (`max(quantum, 4 × largest cost)`) and what draining takes, `n` the
//! number of tenants of its class that want something meanwhile and were there before, or are at the same time; `W` the greatest
//! sum of their weights at a time and `v` the least of these; `Λ` what those were owed that come back after a moment. For:
//!
//! 1. Whoever has had a turn is ahead of the class by no more than `T` of service: it had the least virtual time, which is
//!    never more than the class's, and a turn goes on after its quantum only to catch up with the next one.
//! 2. Until the class's virtual time has reached that of the tenant, others are served for `T·W/w` at most: that is how fast
//!    it goes on. Who comes from then on goes after it.
//! 3. Those that were there have virtual times that are less by `D` of service altogether, and are ahead by `n·T` at most; each
//!    has one turn that goes beyond: `D + 2·n·T`. A moment's credit is a quantum each: `n·T`.
//! 4. `D` grows only when somebody leaves that is ahead, by `s`. It had a turn when it was first, so the least is behind the
//!    class by `(T - s)/v` at most, and all of the others together by `W·(T - s)/v`: `D ≤ T·W/v + n·T`.
//!
//! Switches come on top of that. Whoever ends its turn itself is counted at least as much as its switch took, and a failed try
//! as much as it took: with a cost of `c`, the wait is at most `1 + max(1, c/quantum)` times as long.
//!
//! **Targets.** Of requests that are to be answered by a time, the one with the *least slack* goes first among its class: that
//! has to be begun first, what bringing it in takes, and what its turns usually take, before its time. It interrupts others of its class
//! when it has to begin. Requests that can no longer be met go after those that can, and interrupt nobody: one that is late would
//! make the next one late too (Gujarati et al., "Serving DNNs like Clockwork", OSDI 2020). They have their turns by virtual time.
//!
//! **Waiting for too long.** Who has waited for `max_wait` is next, whatever its class, and nobody interrupts its arrival or
//! its quantum. But nobody of class latency waits for two such turns.
//!
//! **What it costs.** Every question is answered from an index or a counter (`waiting`, `virtual_time`) that the transition keeps
//! that changes it (`tenants`); debug builds compare each with what follows from looking at all tenants (`check`). An event
//! costs the same however many tenants there are, but for what it decides about each, and the depth of a tree.
//!
//! **Suspended** tenants ([`Event::Suspended`]) are left out of all this: those that run are revoked, and their calls wait.
//!
//! **When a turn ends.** When the holder is idle and says so (`Closed`): it is *parked*, and gets the baton
//! back when it demands it. At once, when a better class waits. When its quantum is over, if its own class
//! waits: `max(quantum, 4 × cost of the switch)`, and longer while the holder has had less time than
//! the one that waits, so that unequal costs do not make unequal shares; but then not beyond that one's `max_wait`, and never
//! more than 10 s, or the user's quantum if that is longer. A worse class waits until the holder is idle or gone. A holder that
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
//! between the tenants (the activity page). One that has come in by a turn ends its request before others are put on the GPU beside it,
//! but nobody is kept waiting for too long by that. When not all fits any more, corunners are told to leave, and take turns as anybody does; what
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

#[cfg(debug_assertions)]
mod check;
mod corunners;
mod decide;
mod events;
mod prospects;
mod rules;
mod tenant;
mod tenants;
mod turn;
mod virtual_time;
mod waiting;
mod words;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;

use baton_contract::class::Class;
use baton_contract::scheduling::Scheduling;

use corunners::Corunners;
use rules::SHORTEST_QUANTUM;
use tenants::Tenants;
use turn::{Stage, Turn};

pub use prospects::{Bound, Prospect};
pub use rules::{SHARE, pause};
pub use words::{Decision, Event, Micros, Pressure, State, TenantId, Totals};

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
    tenants: Tenants,
    turn: Option<Turn>,
    corunners: Corunners,
    pressure: Pressure,
    interrupted: [Option<Interrupted>; Class::ALL.len()],
    /// Who had the baton last, or has it.
    last: Option<TenantId>,
    /// Waits with smaller numbers have lasted through the turn of one that had waited for too long.
    passed_over: u64,
    decided_at: Micros,
    totals: Totals,
}

impl Arbiter {
    /// An arbiter without tenants. `quantum`: how long a turn is at least while others of its class wait.
    pub fn new(quantum: Micros) -> Self {
        let quantum = quantum.max(SHORTEST_QUANTUM);
        Self {
            quantum,
            max_wait: Micros::MAX,
            now: 0,
            tenants: Tenants::new(quantum),
            turn: None,
            corunners: Corunners::default(),
            pressure: Pressure::Free,
            interrupted: [None; Class::ALL.len()],
            last: None,
            passed_over: 0,
            decided_at: 0,
            totals: Totals::default(),
        }
    }

    /// Decides by another quantum and bound on waiting from now on, also about the turn that is under way.
    pub fn tune(&mut self, quantum: Micros, max_wait: Micros) {
        self.quantum = quantum.max(SHORTEST_QUANTUM);
        self.max_wait = max_wait;
        self.tenants.set_credit(self.quantum);
    }

    /// The same, in which whoever has waited for so long gets a turn, whatever its class.
    #[must_use]
    pub fn with_max_wait(self, max_wait: Micros) -> Self {
        Self { max_wait, ..self }
    }

    /// What it would take to bring this tenant in now: what would have to be moved for that, in and out, over
    /// the measured bandwidth. Counts from the next event or tick on.
    pub fn set_cost(&mut self, tenant: TenantId, cost: Micros) {
        self.tenants.set_cost(tenant, cost);
    }

    /// Whether all tenants' memory fits together, and they can run at the same time. Counts from the next event or tick on.
    pub fn set_together(&mut self, together: bool) {
        self.corunners.set_welcome(together);
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

    /// Whether a corunner is at work from now on.
    pub fn set_busy(&mut self, now: Micros, id: TenantId, busy: bool) {
        self.advance(now);
        self.corunners.set_busy(self.now, id, busy);
    }

    /// Whether they were said to.
    pub fn is_together(&self) -> bool {
        self.corunners.are_welcome()
    }

    /// Takes note of an event, and says what is to be done, in this order.
    pub fn handle(&mut self, now: Micros, id: TenantId, event: Event) -> Vec<Decision> {
        let mut out = Vec::new();
        self.advance(now);
        // When what happens next was decided: by this event, unless it ends what a revoke began.
        let mut decided = self.now;
        match event {
            Event::Joined { scheduling } => self.tenants.join(id, scheduling),
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
            Event::Grown if self.state(id) == State::Running => self.call_back(id, &mut out),
            Event::Rests(rests) => self.set_resting(id, rests),
            Event::KeepApart(apart) => self.keep_apart(id, apart),
            Event::Closed
            | Event::DrainTimedOut
            | Event::Preempted
            | Event::Ready
            | Event::CannotArrive
            | Event::Stranded
            | Event::Grown => {}
        }
        self.decide(decided, &mut out);
        #[cfg(debug_assertions)]
        self.check();
        out
    }

    /// The time that [`Arbiter::next_timer`] named has come. At other times it does no harm.
    pub fn tick(&mut self, now: Micros) -> Vec<Decision> {
        let mut out = Vec::new();
        self.advance(now);
        self.decide(self.now, &mut out);
        #[cfg(debug_assertions)]
        self.check();
        out
    }

    /// When [`Arbiter::tick`] is to be called, if nothing happens before.
    pub fn next_timer(&self) -> Option<Micros> {
        let corunners = self.corunners.next_timer(self.now);
        let end = match &self.turn {
            Some(turn) if turn.stage != Stage::Running => return corunners,
            Some(turn) if self.stands_still(turn) => self.end_of(turn).or_else(|| self.next_to_be_overdue()),
            Some(turn) => self.end_of(turn),
            // One that rested may have become a candidate when the time was told with something else.
            None => self.next().map(|_| self.now),
        };
        corunners.into_iter().chain(end).chain(self.tenants.waiting().next_retry()).min()
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
            _ if self.tenants.entry(id).is_some() => State::Waiting,
            _ => State::Idle,
        }
    }

    /// Whether a tenant has the baton, and has said that it has nothing to do.
    pub fn is_resting(&self, id: TenantId) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.tenant == id && turn.resting)
    }

    /// Whether a tenant runs beside the one that has the baton.
    pub fn is_corunner(&self, id: TenantId) -> bool {
        self.corunners.has(id)
    }

    /// Whether the user keeps a tenant off the GPU.
    pub fn is_suspended(&self, id: TenantId) -> bool {
        self.tenants.get(id).is_some_and(|tenant| tenant.suspended)
    }

    /// How a tenant is scheduled, if it is known.
    pub fn scheduling(&self, id: TenantId) -> Option<Scheduling> {
        self.tenants.get(id).map(|tenant| tenant.scheduling)
    }

    /// Whether a call of a tenant waits, or it was preempted, also while the user keeps it off the GPU.
    pub fn wants(&self, id: TenantId) -> bool {
        self.tenants.get(id).is_some_and(|tenant| tenant.waiting.is_some())
    }

    /// What bringing it in is said to take ([`Arbiter::set_cost`]).
    pub fn cost(&self, id: TenantId) -> Micros {
        self.tenants.get(id).map_or(0, |tenant| tenant.cost)
    }

    /// The patience that a tenant was last told ([`Decision::Contend`]).
    pub fn patience_told(&self, id: TenantId) -> Option<Micros> {
        self.tenants.get(id).and_then(|tenant| tenant.told)
    }

    /// How long a tenant has had the baton, from grants to the closing of its gate, without the time in which it could do
    /// nothing; or was at work beside the one that had it.
    pub fn gpu_time(&self, id: TenantId, now: Micros) -> Micros {
        let until = |turn: &Turn| if self.stands_still(turn) { self.now } else { now };
        let held = self.turn.as_ref().filter(|turn| turn.tenant == id).map_or(0, |turn| turn.held(until(turn)));
        let held = held + self.corunners.held(id, now);
        self.tenants.get(id).map_or(0, |tenant| tenant.used + held)
    }

    /// How often a tenant got the baton after another had had it.
    pub fn switches(&self, id: TenantId) -> u64 {
        self.tenants.get(id).map_or(0, |tenant| tenant.switches)
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
        if let Some(turn) = &mut self.turn {
            let served = turn.count(self.now);
            self.tenants.serve(turn.tenant, served);
        }
        self.tenants.advance(self.now);
    }
}
