//! The arbiter decides which tenant may run. It is a state machine from (state, event, time) to decisions. It has no clock, no
//! input or output, and no CUDA: the caller brings events and the time, and carries out the decisions.
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
//! **The next turn.** The best class goes first. Within a class, the tenant with the least *virtual time* goes first. Virtual time
//! advances with the service that a tenant gets, in inverse proportion to its weight; a new tenant, or one that returns after a long
//! absence, starts at the class's (see `virtual_time`). There is one exception: a tenant that had to make way for a better class in
//! the middle of its quantum is the first of its class to go on, for the rest of that quantum. Otherwise every request of a latency
//! tenant would make two batch tenants change places, and quanta would not protect against expensive switches.
//!
//! **The longest wait.** While better classes and requests with targets leave time, and all tenants can arrive and be drained,
//! other tenants of the class are served for no longer than
//!
//! ```text
//!   T · (W/w + W/v + 4·n) + Λ
//! ```
//!
//! while a tenant of weight `w` waits. `T` is the longest quantum (`max(quantum, 4 × largest cost)`) plus the time to drain. `n` is the
//! number of tenants of its class that want the GPU meanwhile and were there before, or are there at the same time. `W` is the greatest
//! sum of their weights at a time, and `v` the least of these weights. `Λ` is the service owed to those that return after a short
//! absence. The proof:
//!
//! 1. A tenant that has had a turn is ahead of the class by no more than `T` of service: it had the least virtual time, which is
//!    never more than the class's, and a turn goes on after its quantum only to catch up with the next tenant.
//! 2. Until the class's virtual time has reached that of the tenant, others are served for `T·W/w` at most, because the class's
//!    virtual time advances at that rate. Tenants that come after that moment go after it.
//! 3. The tenants that were there are behind by `D` of service altogether, and end up ahead by `n·T` at most; each
//!    has one turn that goes beyond: `D + 2·n·T`. The credit for a short absence is a quantum each: `n·T`.
//! 4. `D` grows only when a tenant leaves that is ahead, by `s`. It had a turn when it was first, so the least is behind the
//!    class by `(T - s)/v` at most, and all the others together by `W·(T - s)/v`: `D ≤ T·W/v + n·T`.
//!
//! Switches add to that. A tenant that ends its turn itself is charged at least the time of its switch, and a failed try
//! is charged its own time: with a cost of `c`, the wait is at most `1 + max(1, c/quantum)` times as long.
//!
//! **Targets.** Among requests with a deadline, the one with the *least slack* goes first in its class. Its latest start is its
//! deadline minus the time to swap it in and the usual length of its turns. It interrupts others of its class
//! when it has to begin. Requests that can no longer be met go after those that can, and interrupt no tenant: a late request would
//! make the next one late too (Gujarati et al., "Serving DNNs like Clockwork", OSDI 2020). They have their turns by virtual time.
//!
//! **Waiting for too long.** A tenant of any class that has waited for `max_wait` is next, and no tenant interrupts its arrival
//! or its quantum. But no tenant of class latency waits for two such turns.
//!
//! **Costs.** An index or a counter answers every question (`waiting`, `virtual_time`), and the transitions keep it up to date
//! (`tenants`). Debug builds compare each with a scan of all tenants (`check`). The cost of an event does not depend on the number of
//! tenants, apart from its decisions about each of them and the depth of a tree.
//!
//! **Suspended** tenants, and those that do not answer, take no part in this ([`Event::KeepOff`]): running ones are revoked, and their
//! calls wait.
//!
//! **The end of a turn.** A turn ends when the holder is idle and reports it (`Closed`): the holder is *parked*, and gets the baton
//! back when it demands it. A turn ends at once when a better class waits. It ends with its quantum if its own class
//! waits. The quantum is `max(quantum, 4 × cost of the switch)`, and longer while the holder has had less time than
//! the tenant that waits, so that unequal costs do not make unequal shares; but then it does not exceed that tenant's `max_wait`,
//! nor 10 s, or the user's quantum if that is longer. A worse class waits until the holder is idle or gone. A holder that
//! could not be drained (`DrainTimedOut`) is left alone for 100 ms, then for twice as long, up to 2 s.
//!
//! **Giving up an arrival.** The arbiter gives up an arrival only for a strictly better class, and the tenant
//! goes back to waiting and keeps its place. So no circle of tenants can keep each other from arriving: the
//! best waiting class is never given up.
//!
//! **Running while arriving.** `Ready` lets a tenant in before all its memory is resident, if the rest is sure to come. Its
//! quantum begins when all its memory is resident (`Resident`): on a slow machine, two tenants could otherwise take memory from each
//! other for ever, each before it could use any. If the rest does not come after all, `Stranded` ends the turn.
//!
//! **Co-running.** While all tenants' memory fits together and nothing has to move ([`Arbiter::set_together`]), tenants of class latency
//! are **corunners**: their gates are open all the time, and they have no turn. Other tenants keep back while a corunner is at work, but
//! they arrange that among themselves (the activity page). A tenant that came in by a turn ends its request before others co-run
//! with it, but no tenant waits too long because of that. When not all memory fits any more, corunners are told to leave, and take
//! turns as every tenant does. Their time as corunners does not count against them, because no tenant had to wait for a turn then.
//!
//! The time in which corunners at work keep a holder from working ([`Pressure`]) is no part of its turn. When tenants that were
//! kept back have waited for too long, each of them gets a share, one after the other, the holder first.
//!
//! **Gangs.** A member of a gang ([`gangs`](crate::gangs)) has its turn when all other members on other GPUs have theirs. When it would be
//! its turn, the arbiter *claims* it instead: that holds nothing, so the holder goes on, and others have their turns, as if the member
//! did not wait; but it keeps its virtual time, and with that its place. When it is *called*, its turn is the next one, and begins as soon
//! as the holder has left. If the holder cannot be drained, or it cannot arrive, it is given back, and claimed anew later.
//!
//! **Tenants that cannot arrive** are tried again after a growing pause, at least four times as long as the failed try, so
//! that the others have most of the time. They are tried at once when any tenant has left, because that tenant may have
//! been in the way, and once more when its memory is free ([`Arbiter::end_rests`]). Until such a tenant has arrived,
//! its class gives it no right to interrupt others: it takes its turn when the baton is free or a quantum is over.
//! Otherwise a tenant that can never arrive could keep a worse class from ever arriving either.
//!
//! **A tenant's report is an allegation.** The arbiter ignores every report that makes no sense in a state. Only
//! the caller can see that a `Closed` or `DrainTimedOut` answers an earlier grant, and must not pass it on; grants
//! are numbered for that.
//!
//! **The caller's duties.** The caller answers every `SwapIn` by `Resident` or `CannotArrive`, or by `Ready` and then, if
//! the turn lasts, `Resident` or `Stranded`; every `Revoke` by `Closed`, `Preempted` or `DrainTimedOut`; or `Left` comes. `SwapIn` of
//! another tenant cancels the one before, and `KeepOff` cancels that of its tenant. A corunner's `Grant` comes without a `SwapIn`: if
//! the corunner was `Preempted`, it has to be put back first. The arbiter does not watch how long an answer takes.
//!
//! A turn is a value of its own (`turn`). The rules that end it use only that turn and the tenants that wait.
//! A list of turns would allow several tenants at once.

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
mod types;
mod virtual_time;
mod waiting;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use baton_contract::class::Class;
use baton_contract::scheduling::Scheduling;

use corunners::Corunners;
use rules::SHORTEST_QUANTUM;
use tenant::Tenant;
use tenants::Tenants;
use turn::{Stage, Turn};

pub use prospects::{Bound, Prospect};
pub use rules::{SHARE, pause};
pub use types::{Decision, Event, Micros, Pressure, State, TenantId, Totals};

/// One tenant's claim to go on first among its class.
#[derive(Clone, Copy, Debug)]
struct Interrupted {
    tenant: TenantId,
    /// The part of its quantum that it has had.
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
    /// The gang's member whose turn is the next one.
    called: Option<TenantId>,
    pressure: Pressure,
    interrupted: [Option<Interrupted>; Class::ALL.len()],
    /// The tenant that has the baton, or had it last.
    last: Option<TenantId>,
    /// Waits with smaller numbers have lasted through the turn of a tenant that had waited for too long.
    passed_over: u64,
    decided_at: Micros,
    totals: Totals,
}

impl Arbiter {
    /// An arbiter without tenants. `quantum` is the least length of a turn while others of its class wait.
    pub fn new(quantum: Micros) -> Self {
        let quantum = quantum.max(SHORTEST_QUANTUM);
        Self {
            quantum,
            max_wait: Micros::MAX,
            now: 0,
            tenants: Tenants::new(quantum),
            turn: None,
            corunners: Corunners::default(),
            called: None,
            pressure: Pressure::Free,
            interrupted: [None; Class::ALL.len()],
            last: None,
            passed_over: 0,
            decided_at: 0,
            totals: Totals::default(),
        }
    }

    /// Sets the quantum and the bound on waiting from now on, also for the present turn.
    pub fn tune(&mut self, quantum: Micros, max_wait: Micros) {
        self.quantum = quantum.max(SHORTEST_QUANTUM);
        self.max_wait = max_wait;
        self.tenants.set_credit(self.quantum);
    }

    /// Sets the wait after which a tenant of any class gets a turn.
    #[must_use]
    pub fn with_max_wait(self, max_wait: Micros) -> Self {
        Self { max_wait, ..self }
    }

    /// Sets the time that it would take to swap this tenant in now: the bytes to move for that, in and out, divided by
    /// the measured bandwidth. Counts from the next event or tick on.
    pub fn set_cost(&mut self, tenant: TenantId, cost: Micros) {
        self.tenants.set_cost(tenant, cost);
    }

    /// Tells the arbiter whether all tenants' memory fits together, so that they can co-run. Counts from the next event or tick on.
    pub fn set_together(&mut self, together: bool) {
        self.corunners.set_welcome(together);
    }

    /// Sets how urgent work affects the holder from now on. Counts from the next event or tick on.
    pub fn set_pressure(&mut self, now: Micros, pressure: Pressure) {
        self.advance(now);
        let before = std::mem::replace(&mut self.pressure, pressure);
        if let Some(turn) = self.turn.as_mut().filter(|_| pressure == Pressure::Passing && before != pressure) {
            // The holder has waited too, and has its share first.
            turn.lasts_until(self.now.saturating_add(SHARE));
        }
    }

    /// Tells the arbiter whether a corunner is at work from now on.
    pub fn set_busy(&mut self, now: Micros, id: TenantId, busy: bool) {
        self.advance(now);
        self.corunners.set_busy(self.now, id, busy);
    }

    /// True if the caller last said that all tenants' memory fits together.
    pub fn is_together(&self) -> bool {
        self.corunners.are_welcome()
    }

    /// Enters an event, and returns the actions to take, in this order.
    pub fn handle(&mut self, now: Micros, id: TenantId, event: Event) -> Vec<Decision> {
        let mut out = Vec::new();
        self.advance(now);
        // The time of the decision for the next turn: now, unless this event ends a turn that was revoked earlier.
        let mut decided = self.now;
        match event {
            Event::Joined { scheduling } => self.tenants.join(id, scheduling),
            Event::Changed { scheduling } => self.change(id, scheduling),
            Event::KeepOff(off) => self.keep_off(id, off, &mut out),
            Event::Left => decided = self.leave(id, &mut out),
            Event::Demand => self.demand(id),
            Event::WaitsSince(at) => self.tenants.backdate(id, at),
            Event::Closed | Event::Preempted | Event::DrainTimedOut if self.corunners.has(id) => {
                self.corunner_answers(id, event)
            }
            Event::Closed if self.holder() == Some(id) => decided = self.end_turn(),
            Event::DrainTimedOut if self.state(id) == State::Leaving => self.busy(id, &mut out),
            Event::Preempted if self.state(id) == State::Leaving => decided = self.pause(id),
            Event::Ready if self.state(id) == State::Arriving => self.grant(id, &mut out),
            Event::Resident => self.resident(id, &mut out),
            Event::CannotArrive if self.state(id) == State::Arriving => self.fail(id, &mut out),
            Event::Stranded if self.state(id) == State::Running => self.strand(id, &mut out),
            Event::Grown if self.state(id) == State::Running => self.call_back(id, &mut out),
            Event::Rests(rests) => self.set_resting(id, rests),
            Event::KeepApart(apart) => self.keep_apart(id, apart),
            Event::Gang(is_of_gang) => self.set_gang(id, is_of_gang),
            Event::Call => self.call(id, &mut out),
            Event::Recall => self.recall(id, &mut out),
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

    /// Decides again at the time that [`Arbiter::next_timer`] named. At other times it does no harm.
    pub fn tick(&mut self, now: Micros) -> Vec<Decision> {
        let mut out = Vec::new();
        self.advance(now);
        self.decide(self.now, &mut out);
        #[cfg(debug_assertions)]
        self.check();
        out
    }

    /// Lets the next decision be about tenants too that could not arrive: memory is free that belonged to one that has left.
    pub fn end_rests(&mut self) {
        self.tenants.end_rests();
    }

    /// The time at which to call [`Arbiter::tick`], if nothing happens before.
    pub fn next_timer(&self) -> Option<Micros> {
        let corunners = self.corunners.next_timer(self.now);
        let end = match &self.turn {
            Some(turn) if turn.stage != Stage::Running => return corunners,
            Some(turn) if self.stands_still(turn) => self.end_of(turn).or_else(|| self.next_to_be_overdue()),
            Some(turn) => self.end_of(turn),
            // A resting tenant may have become a candidate when another call brought the time.
            None => self.next().map(|_| self.now),
        };
        corunners.into_iter().chain(end).chain(self.tenants.waiting().next_retry()).min()
    }

    /// The tenant that has the baton: its gate is open, or not yet known to be closed.
    pub fn holder(&self) -> Option<TenantId> {
        self.turn.as_ref().filter(|turn| turn.is_held()).map(|turn| turn.tenant)
    }

    /// A tenant's state.
    pub fn state(&self, id: TenantId) -> State {
        match &self.turn {
            Some(turn) if turn.tenant == id => match turn.stage {
                Stage::Arriving => State::Arriving,
                Stage::Running => State::Running,
                Stage::Leaving { .. } => State::Leaving,
            },
            _ if self.corunners.has(id) => self.corunners.state(id),
            _ if self.tenants.get(id).is_some_and(Tenant::is_in_line) => State::Waiting,
            _ => State::Idle,
        }
    }

    /// True if a tenant has the baton, and has reported that it has nothing to do.
    pub fn is_resting(&self, id: TenantId) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.tenant == id && turn.resting)
    }

    /// True if a tenant co-runs with the holder of the baton.
    pub fn is_corunner(&self, id: TenantId) -> bool {
        self.corunners.has(id)
    }

    /// True if a tenant is kept off the GPU, whatever it wants.
    pub fn is_kept_off(&self, id: TenantId) -> bool {
        self.tenants.get(id).is_some_and(|tenant| tenant.kept_off)
    }

    /// True if the tenant has joined, and has not left.
    pub fn knows(&self, id: TenantId) -> bool {
        self.tenants.get(id).is_some()
    }

    /// True if a tenant is of a gang.
    pub fn is_of_gang(&self, id: TenantId) -> bool {
        self.tenants.get(id).is_some_and(|tenant| tenant.gang.is_some())
    }

    /// A tenant's scheduling, if the tenant is known.
    pub fn scheduling(&self, id: TenantId) -> Option<Scheduling> {
        self.tenants.get(id).map(|tenant| tenant.scheduling)
    }

    /// True if a call of a tenant waits, or the tenant was preempted, even while the user keeps it off the GPU.
    pub fn wants(&self, id: TenantId) -> bool {
        self.tenants.get(id).is_some_and(|tenant| tenant.waiting.is_some())
    }

    /// The time to swap a tenant in, as set by [`Arbiter::set_cost`].
    pub fn cost(&self, id: TenantId) -> Micros {
        self.tenants.get(id).map_or(0, |tenant| tenant.cost)
    }

    /// The patience that a tenant was last told ([`Decision::Contend`]).
    pub fn patience_told(&self, id: TenantId) -> Option<Micros> {
        self.tenants.get(id).and_then(|tenant| tenant.told)
    }

    /// The time for which a tenant has had the baton, from each grant until its gate closed, without the time in which it could do
    /// nothing; plus the time for which it was at work as a corunner.
    pub fn gpu_time(&self, id: TenantId, now: Micros) -> Micros {
        let until = |turn: &Turn| if self.stands_still(turn) { self.now } else { now };
        let held = self.turn.as_ref().filter(|turn| turn.tenant == id).map_or(0, |turn| turn.held(until(turn)));
        let held = held + self.corunners.held(id, now);
        self.tenants.get(id).map_or(0, |tenant| tenant.used + held)
    }

    /// The number of times that a tenant got the baton after another tenant.
    pub fn switches(&self, id: TenantId) -> u64 {
        self.tenants.get(id).map_or(0, |tenant| tenant.switches)
    }

    /// The time at which the last grant was decided: when the holder before was told to leave, or when the swap-in of the tenant
    /// was decided, if no tenant had to leave for it.
    pub fn decided_at(&self) -> Micros {
        self.decided_at
    }

    /// Counts of all decisions since the start.
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
