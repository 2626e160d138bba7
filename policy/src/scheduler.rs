//! Tenants that share memory or events are one **unit**: granted, preempted and evicted together. Otherwise a tenant that waits for
//! another's work could wait for ever, and their shared memory could not move.
//!
//! The [arbiter](super::arbiter) knows units only, each by the number of its first tenant; most units are one
//! tenant. A member's events become events of its unit, and a decision about a unit becomes decisions about its members:
//!
//! | what the arbiter hears | when |
//! |---|---|
//! | `Demand` | a member wants the GPU, and the unit does not have it |
//! | `Closed` | the last gate is closed, and none of its members was preempted |
//! | `Preempted` | the last gate is closed, and one of them was |
//! | `DrainTimedOut` | one of them could not be drained: those that were are let in again |
//! | `Left` | the last member has left |
//!
//! A member may close its gate because it has nothing to do, while its unit has the GPU. It is let in again as soon as it wants the
//! GPU ([`Decision::Reopen`]): all its memory is there. So does a unit that is a gang's member on this GPU: the others may be at work.
//!
//! Units of several members never co-run. All their memory is swapped in before any member runs, because one member's launches do
//! not show which memory another is about to use.

use std::collections::{BTreeMap, HashMap};

use baton_contract::scheduling::Scheduling;

use super::arbiter::{Arbiter, Decision, Event, Micros, Pressure, Prospect, State, TenantId, Totals};

#[cfg(test)]
mod tests;

/// The state of a member's gate, as far as it was told and has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Closed,
    Open,
    /// The member was told to close it.
    Leaving,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    gate: Gate,
    /// A call of the member waits, or it was preempted in the middle of its work.
    wants: bool,
    /// The member, and with it its unit, is kept off the GPU.
    kept_off: bool,
    scheduling: Scheduling,
    cost: Micros,
    /// The member, and with it its unit, is of a gang.
    of_gang: bool,
}

/// Tenants that were united.
#[derive(Debug, Default)]
struct Unit {
    members: BTreeMap<TenantId, Member>,
    /// A member was preempted since the unit was told to leave.
    preempted: bool,
    /// All members' memory was resident at the last grant. False once another member has joined since.
    whole: bool,
}

impl Unit {
    /// The member that stands for the unit: its first tenant, or another if that one has left.
    fn first(&self, number: TenantId) -> Option<TenantId> {
        let first = self.members.contains_key(&number).then_some(number);
        first.or_else(|| self.members.keys().next().copied())
    }

    fn is_open(&self) -> bool {
        self.members.values().any(|member| member.gate != Gate::Closed)
    }

    /// The unit is as urgent as its most urgent member. Among the members of that class, the largest weight and the smallest target count.
    fn scheduling(&self) -> Option<Scheduling> {
        let all = || self.members.values().map(|member| member.scheduling);
        let class = all().map(|one| one.class).min()?;
        let weight = all().filter(|one| one.class == class).map(|one| one.weight).max()?;
        let target = all().filter(|one| one.class == class && one.slo_micros > 0).map(|one| one.slo_micros).min();
        Some(Scheduling { weight, slo_micros: target.unwrap_or(0), ..class.into() })
    }

    fn is_kept_off(&self) -> bool {
        self.members.values().any(|member| member.kept_off)
    }

    fn is_of_gang(&self) -> bool {
        self.members.values().any(|member| member.of_gang)
    }

    fn cost(&self) -> Micros {
        self.members.values().map(|member| member.cost).sum()
    }
}

/// The arbiter of one GPU, and its units.
#[derive(Debug)]
pub struct Scheduler {
    arbiter: Arbiter,
    units: HashMap<TenantId, Unit>,
    unit_of: HashMap<TenantId, TenantId>,
}

impl Scheduler {
    /// A scheduler without tenants.
    pub fn new(arbiter: Arbiter) -> Self {
        Self { arbiter, units: HashMap::new(), unit_of: HashMap::new() }
    }

    /// As [`Arbiter::tune`].
    pub fn tune(&mut self, quantum: Micros, max_wait: Micros) {
        self.arbiter.tune(quantum, max_wait);
    }

    /// A tenant's unit: the tenant itself, if it was never united with another.
    fn unit(&self, id: TenantId) -> TenantId {
        self.unit_of.get(&id).copied().unwrap_or(id)
    }

    /// True if the tenant has joined, and has not left.
    pub fn knows(&self, id: TenantId) -> bool {
        self.arbiter.knows(self.unit(id))
    }

    /// All members of this tenant's unit, or of the unit with this number.
    pub fn members(&self, id: TenantId) -> Vec<TenantId> {
        match self.units.get(&self.unit(id)) {
            Some(unit) => unit.members.keys().copied().collect(),
            None => vec![id],
        }
    }

    /// True if the tenant's unit has other members.
    pub fn is_united(&self, id: TenantId) -> bool {
        self.units.get(&self.unit(id)).is_some_and(|unit| unit.members.len() > 1)
    }

    /// True if the tenant's unit is of a gang.
    pub fn is_of_gang(&self, id: TenantId) -> bool {
        self.arbiter.is_of_gang(self.unit(id))
    }

    /// True if two tenants are of one unit.
    pub fn are_united(&self, one: TenantId, other: TenantId) -> bool {
        self.unit(one) == self.unit(other)
    }

    /// True if a tenant's gate should be open though it may have been preempted before: its work is put back first, and no other
    /// tenant waits for that.
    pub fn is_let_in_at_any_time(&self, id: TenantId) -> bool {
        self.is_corunner(id) || self.state(id) == State::Running && self.gate(id) == Some(Gate::Open)
    }

    /// True if a tenant was told to leave and has not left yet, even if its unit stays.
    pub fn is_to_leave(&self, id: TenantId) -> bool {
        self.state(id) == State::Leaving || self.gate(id) == Some(Gate::Leaving)
    }

    /// True if a tenant was united with others, which may have left by now.
    pub fn is_of_a_unit(&self, id: TenantId) -> bool {
        self.units.contains_key(&self.unit(id))
    }

    /// The gate of a unit's member.
    fn gate(&self, id: TenantId) -> Option<Gate> {
        Some(self.units.get(&self.unit(id))?.members.get(&id)?.gate)
    }

    /// As [`Arbiter::set_cost`], of one tenant.
    pub fn set_cost(&mut self, id: TenantId, cost: Micros) {
        let number = self.unit(id);
        let cost = match self.units.get_mut(&number) {
            Some(unit) => {
                if let Some(member) = unit.members.get_mut(&id) {
                    member.cost = cost;
                }
                unit.cost()
            }
            None => cost,
        };
        self.arbiter.set_cost(number, cost);
    }

    /// As [`Arbiter::set_together`].
    pub fn set_together(&mut self, together: bool) {
        self.arbiter.set_together(together);
    }

    /// As [`Arbiter::set_pressure`].
    pub fn set_pressure(&mut self, now: Micros, pressure: Pressure) {
        self.arbiter.set_pressure(now, pressure);
    }

    /// As [`Arbiter::set_busy`].
    pub fn set_busy(&mut self, now: Micros, id: TenantId, busy: bool) {
        self.arbiter.set_busy(now, self.unit(id), busy);
    }

    /// As [`Arbiter::is_together`].
    pub fn is_together(&self) -> bool {
        self.arbiter.is_together()
    }

    /// The state of a tenant's unit.
    pub fn state(&self, id: TenantId) -> State {
        self.arbiter.state(self.unit(id))
    }

    /// The members of the unit that has the baton.
    pub fn holders(&self) -> Vec<TenantId> {
        self.arbiter.holder().map_or(Vec::new(), |unit| self.members(unit))
    }

    /// The members of the unit that has the baton whose gates are open, or not yet known to be closed. The others have nothing to do, and
    /// show nothing until they want the GPU.
    pub fn holders_at_work(&self) -> Vec<TenantId> {
        self.holders().into_iter().filter(|id| self.gate(*id) != Some(Gate::Closed)).collect()
    }

    /// How long the unit that has the baton may rest, in microseconds, while others wait; none if no other waits.
    pub fn contended(&self) -> Option<Micros> {
        self.arbiter.holder().and_then(|unit| self.arbiter.patience_told(unit))
    }

    /// The member that stands for the unit that has the baton.
    pub fn holder(&self) -> Option<TenantId> {
        self.arbiter.holder().map(|unit| self.first_of(unit))
    }

    /// True if a tenant stands for its unit.
    pub fn stands_for_its_unit(&self, id: TenantId) -> bool {
        self.first_of(self.unit(id)) == id
    }

    fn first_of(&self, number: TenantId) -> TenantId {
        self.units.get(&number).and_then(|unit| unit.first(number)).unwrap_or(number)
    }

    /// As [`Arbiter::is_resting`].
    pub fn is_resting(&self, id: TenantId) -> bool {
        self.arbiter.is_resting(id)
    }

    /// True if a tenant co-runs with the tenants that have the baton.
    pub fn is_corunner(&self, id: TenantId) -> bool {
        self.arbiter.is_corunner(self.unit(id))
    }

    /// True if a tenant's unit is kept off the GPU.
    pub fn is_kept_off(&self, id: TenantId) -> bool {
        self.arbiter.is_kept_off(self.unit(id))
    }

    /// As [`Arbiter::prospect`], of its unit. The tenant ahead of it is the member that stands for the unit ahead.
    pub fn prospect(&self, id: TenantId, now: Micros) -> Option<Prospect> {
        let prospect = self.arbiter.prospect(self.unit(id), now)?;
        Some(Prospect { ahead: prospect.ahead.map(|unit| self.first_of(unit)), ..prospect })
    }

    /// As [`Arbiter::unchanged_for`], of its unit.
    pub fn unchanged_for(&self, id: TenantId, now: Micros) -> Option<Micros> {
        self.arbiter.unchanged_for(self.unit(id), now)
    }

    /// As [`Arbiter::gpu_time`], of its unit.
    pub fn gpu_time(&self, id: TenantId, now: Micros) -> Micros {
        self.arbiter.gpu_time(self.unit(id), now)
    }

    /// As [`Arbiter::switches`], of its unit.
    pub fn switches(&self, id: TenantId) -> u64 {
        self.arbiter.switches(self.unit(id))
    }

    /// As [`Arbiter::decided_at`].
    pub fn decided_at(&self) -> Micros {
        self.arbiter.decided_at()
    }

    /// As [`Arbiter::totals`]: a switch to a unit counts once.
    pub fn totals(&self) -> Totals {
        self.arbiter.totals()
    }

    /// As [`Arbiter::is_anybody_overdue`].
    pub fn is_anybody_overdue(&self) -> bool {
        self.arbiter.is_anybody_overdue()
    }

    /// As [`Arbiter::next_timer`].
    pub fn next_timer(&self) -> Option<Micros> {
        self.arbiter.next_timer()
    }

    /// As [`Arbiter::tick`].
    pub fn tick(&mut self, now: Micros) -> Vec<Decision> {
        let decisions = self.arbiter.tick(now);
        self.spread(now, decisions)
    }

    /// As [`Arbiter::end_rests`].
    pub fn end_rests(&mut self) {
        self.arbiter.end_rests();
    }

    /// As [`Arbiter::handle`]. Events about memory (`Ready`, `Resident`, `CannotArrive`, `Stranded`) concern the memory of the whole unit.
    pub fn handle(&mut self, now: Micros, id: TenantId, event: Event) -> Vec<Decision> {
        if event == Event::Gang(true) {
            self.form(id);
        }
        let number = self.unit(id);
        let state = self.arbiter.state(number);
        let Some(unit) = self.units.get_mut(&number) else {
            // A decision about a tenant alone needs no spreading, but some of these decisions may concern other tenants.
            let decisions = self.arbiter.handle(now, id, event);
            return self.spread(now, decisions);
        };
        match event {
            Event::Left => {
                unit.members.remove(&id);
                self.unit_of.remove(&id);
                if unit.members.is_empty() {
                    self.units.remove(&number);
                    return self.tell(now, number, Event::Left);
                }
                self.on_member_left(now, number)
            }
            Event::Changed { scheduling } => {
                let Some(member) = unit.members.get_mut(&id) else { return Vec::new() };
                member.scheduling = scheduling;
                self.reschedule(now, number)
            }
            Event::Demand => {
                let Some(member) = unit.members.get_mut(&id) else { return Vec::new() };
                match (state, member.gate) {
                    (State::Running, Gate::Closed) if unit.whole => {
                        let was_idle = unit.is_of_gang() && !unit.is_open();
                        let mut out = self.reopen(number, id);
                        out.extend(was_idle.then_some(Decision::Idle(number, false)));
                        out
                    }
                    // It waits at a gate that is just being opened, or that it is closing itself.
                    (State::Running | State::Corunning, Gate::Open | Gate::Leaving) => Vec::new(),
                    (State::Running | State::Corunning | State::Leaving, _) => {
                        member.wants = true;
                        Vec::new()
                    }
                    (State::Idle | State::Waiting | State::Arriving, _) => {
                        member.wants = true;
                        self.tell(now, number, Event::Demand)
                    }
                }
            }
            Event::Closed | Event::Preempted => {
                let was_preempted = event == Event::Preempted;
                let Some(member) = unit.members.get_mut(&id) else { return Vec::new() };
                member.gate = Gate::Closed;
                member.wants |= was_preempted;
                if state == State::Running && member.wants && unit.whole {
                    // It was asked to leave with the others, but they could not leave.
                    return self.reopen(number, id);
                }
                unit.preempted |= was_preempted && state == State::Leaving;
                self.end_if_closed(now, number)
            }
            Event::DrainTimedOut => {
                let Some(member) = unit.members.get_mut(&id).filter(|member| member.gate == Gate::Leaving) else {
                    return Vec::new();
                };
                member.gate = Gate::Open;
                unit.preempted = false;
                let is_whole = unit.whole;
                let mut out = self.tell(now, number, Event::DrainTimedOut);
                if self.arbiter.state(number) != State::Running {
                    return out;
                }
                // It may wait for a new member, whose memory has to be swapped in for that.
                if is_whole {
                    out.extend(self.reopen_all(number));
                } else {
                    out.push(Decision::SwapIn(number));
                }
                out
            }
            Event::Resident => {
                unit.whole |= state == State::Running;
                let mut out = self.tell(now, number, event);
                if state == State::Running {
                    out.extend(self.reopen_all(number));
                }
                out
            }
            Event::Joined { .. } => Vec::new(),
            Event::KeepOff(true) => {
                let Some(member) = unit.members.get_mut(&id) else { return Vec::new() };
                member.kept_off = true;
                self.tell(now, number, event)
            }
            Event::KeepOff(false) => {
                let Some(member) = unit.members.get_mut(&id) else { return Vec::new() };
                member.kept_off = false;
                if unit.is_kept_off() { Vec::new() } else { self.tell(now, number, event) }
            }
            // Other members may be at work.
            Event::Rests(_) => Vec::new(),
            Event::Gang(is_of_gang) => {
                let Some(member) = unit.members.get_mut(&id) else { return Vec::new() };
                member.of_gang = is_of_gang;
                let is_of_gang = unit.is_of_gang();
                // Of another one than before, it is claimed anew.
                if self.arbiter.is_of_gang(number) == is_of_gang && event != Event::Gang(true) {
                    return Vec::new();
                }
                self.tell(now, number, Event::Gang(is_of_gang))
            }
            Event::Ready
            | Event::CannotArrive
            | Event::Stranded
            | Event::Grown
            | Event::KeepApart(_)
            | Event::Call
            | Event::Recall
            | Event::WaitsSince(_) => self.tell(now, number, event),
        }
    }

    /// Unites the units of two tenants. If the new unit has the baton, it leaves and is granted anew, because
    /// the memory of its new members may not be resident.
    pub fn unite(&mut self, now: Micros, one: TenantId, other: TenantId) -> Vec<Decision> {
        if self.are_united(one, other) {
            return Vec::new();
        }
        let (one, other) = (self.form(one), self.form(other));
        let (Some(one), Some(other)) = (one, other) else { return Vec::new() };
        // The unit that has the baton keeps it, and a unit that co-runs with it runs until it has left.
        let order = |unit: TenantId| match self.arbiter.state(unit) {
            _ if self.arbiter.is_corunner(unit) => 1,
            State::Running | State::Leaving => 0,
            State::Arriving => 2,
            State::Idle | State::Waiting | State::Corunning => 3,
        };
        let (stays, goes) = if order(other) < order(one) { (other, one) } else { (one, other) };
        let (ran_beside, was_kept_off) = (self.arbiter.is_corunner(goes), self.arbiter.is_kept_off(goes));
        let Some(gone) = self.units.remove(&goes) else { return Vec::new() };
        let mut out = self.tell(now, goes, Event::Left);
        let came: Vec<TenantId> = gone.members.keys().copied().collect();
        let Some(unit) = self.units.get_mut(&stays) else { return out };
        for (id, member) in gone.members {
            self.unit_of.insert(id, stays);
            if ran_beside {
                out.push(Decision::Corun(id, false));
            }
            unit.members.insert(id, member);
        }
        unit.whole = false;
        let is_of_gang = unit.is_of_gang();
        let wants = unit.members.values().any(|member| member.wants);
        let cost = unit.cost();
        self.arbiter.set_cost(stays, cost);
        out.extend(self.reschedule(now, stays));
        if was_kept_off {
            out.extend(self.tell(now, stays, Event::KeepOff(true)));
        }
        if is_of_gang && !self.arbiter.is_of_gang(stays) {
            out.extend(self.tell(now, stays, Event::Gang(true)));
        }
        // A co-running unit leaves for that.
        out.extend(self.tell(now, stays, Event::KeepApart(true)));
        match self.arbiter.state(stays) {
            State::Running => out.extend(self.tell(now, stays, Event::Grown)),
            State::Leaving => out.extend(self.revoke(stays, &came)),
            State::Idle if wants => out.extend(self.tell(now, stays, Event::Demand)),
            State::Idle | State::Waiting | State::Arriving | State::Corunning => {}
        }
        out
    }

    /// Finds a tenant's unit, or forms one of the tenant alone. None if the arbiter does not know the tenant.
    fn form(&mut self, id: TenantId) -> Option<TenantId> {
        let number = self.unit(id);
        if !self.units.contains_key(&number) {
            let scheduling = self.arbiter.scheduling(number)?;
            let gate = match self.arbiter.state(number) {
                State::Running | State::Corunning => Gate::Open,
                State::Leaving => Gate::Leaving,
                State::Waiting | State::Arriving | State::Idle => Gate::Closed,
            };
            let wants = gate == Gate::Closed && self.arbiter.wants(number);
            let kept_off = self.arbiter.is_kept_off(number);
            let (cost, of_gang) = (self.arbiter.cost(number), self.arbiter.is_of_gang(number));
            let member = Member { gate, wants, kept_off, scheduling, cost, of_gang };
            let unit = Unit { members: BTreeMap::from([(id, member)]), preempted: false, whole: true };
            self.units.insert(number, unit);
            self.unit_of.insert(id, number);
        }
        Some(number)
    }

    fn tell(&mut self, now: Micros, number: TenantId, event: Event) -> Vec<Decision> {
        let decisions = self.arbiter.handle(now, number, event);
        self.spread(now, decisions)
    }

    fn reschedule(&mut self, now: Micros, number: TenantId) -> Vec<Decision> {
        match self.units.get(&number).and_then(Unit::scheduling) {
            Some(scheduling) => self.tell(now, number, Event::Changed { scheduling }),
            None => Vec::new(),
        }
    }

    /// Updates a unit that one of several members has left.
    fn on_member_left(&mut self, now: Micros, number: TenantId) -> Vec<Decision> {
        let cost = self.units.get(&number).map_or(0, Unit::cost);
        self.arbiter.set_cost(number, cost);
        let mut out = self.end_if_closed(now, number);
        out.extend(self.reschedule(now, number));
        let is_of_gang = self.units.get(&number).is_some_and(Unit::is_of_gang);
        if self.arbiter.is_of_gang(number) && !is_of_gang {
            out.extend(self.tell(now, number, Event::Gang(false)));
        }
        // A gang's member never co-runs either.
        if !is_of_gang {
            out.extend(self.tell(now, number, Event::KeepApart(self.is_united(number))));
        }
        let is_kept_off = self.units.get(&number).is_some_and(Unit::is_kept_off);
        if self.arbiter.is_kept_off(number) && !is_kept_off {
            out.extend(self.tell(now, number, Event::KeepOff(false)));
        }
        out
    }

    /// Ends the unit's turn if none of its gates is open any more.
    fn end_if_closed(&mut self, now: Micros, number: TenantId) -> Vec<Decision> {
        let is_on = matches!(self.arbiter.state(number), State::Running | State::Corunning | State::Leaving);
        let Some(unit) = self.units.get_mut(&number).filter(|unit| is_on && !unit.is_open()) else { return Vec::new() };
        if unit.is_of_gang() && self.arbiter.state(number) == State::Running {
            return vec![Decision::Idle(number, true)];
        }
        let event = if std::mem::take(&mut unit.preempted) { Event::Preempted } else { Event::Closed };
        let wants = unit.members.values().any(|member| member.wants);
        let mut out = self.tell(now, number, event);
        if wants && event == Event::Closed {
            out.extend(self.tell(now, number, Event::Demand));
        }
        out
    }

    /// Lets a member in while its unit has the GPU.
    fn reopen(&mut self, number: TenantId, id: TenantId) -> Vec<Decision> {
        let Some(member) = self.units.get_mut(&number).and_then(|unit| unit.members.get_mut(&id)) else {
            return Vec::new();
        };
        (member.gate, member.wants) = (Gate::Open, false);
        vec![Decision::Reopen(id), Decision::Contend(id, self.arbiter.patience_told(number))]
    }

    /// Lets in all members that want the GPU, while their unit has it.
    fn reopen_all(&mut self, number: TenantId) -> Vec<Decision> {
        let Some(unit) = self.units.get(&number) else { return Vec::new() };
        let waiting = unit.members.iter().filter(|(_, member)| member.gate == Gate::Closed && member.wants);
        let waiting: Vec<TenantId> = waiting.map(|(id, _)| *id).collect();
        waiting.into_iter().flat_map(|id| self.reopen(number, id)).collect()
    }

    /// Tells these members to leave, unless they were told already.
    fn revoke(&mut self, number: TenantId, ids: &[TenantId]) -> Vec<Decision> {
        let Some(unit) = self.units.get_mut(&number) else { return Vec::new() };
        let members = unit.members.iter_mut().filter(|(id, member)| ids.contains(id) && member.gate == Gate::Open);
        members
            .map(|(id, member)| {
                member.gate = Gate::Leaving;
                Decision::Revoke(*id)
            })
            .collect()
    }

    /// Turns decisions about units into decisions about their members.
    fn spread(&mut self, now: Micros, decisions: Vec<Decision>) -> Vec<Decision> {
        if self.units.is_empty() {
            return decisions;
        }
        let mut out = Vec::with_capacity(decisions.len());
        for decision in decisions {
            let number = decision.tenant();
            let Some(unit) = self.units.get_mut(&number) else {
                out.push(decision);
                continue;
            };
            match decision {
                Decision::Contend(_, patience) => {
                    let open = unit.members.iter().filter(|(_, member)| member.gate == Gate::Open);
                    out.extend(open.map(|(id, _)| Decision::Contend(*id, patience)));
                }
                Decision::Corun(_, on) => out.extend(unit.members.keys().map(|id| Decision::Corun(*id, on))),
                Decision::SwapIn(_)
                | Decision::Reopen(_)
                | Decision::Claim(_)
                | Decision::GiveBack(_)
                | Decision::Idle(..) => out.push(decision),
                Decision::Revoke(_) => {
                    if unit.is_open() {
                        let all: Vec<TenantId> = unit.members.keys().copied().collect();
                        out.extend(self.revoke(number, &all));
                    } else {
                        out.extend(self.end_if_closed(now, number));
                    }
                }
                Decision::Grant(_) => {
                    (unit.preempted, unit.whole) = (false, true);
                    let told = self.arbiter.patience_told(number);
                    let first = unit.first(number);
                    for (id, member) in &mut unit.members {
                        (member.gate, member.wants) = (Gate::Open, false);
                        out.push(if first == Some(*id) { Decision::Grant(*id) } else { Decision::Reopen(*id) });
                        out.push(Decision::Contend(*id, told));
                    }
                }
            }
        }
        out
    }
}
