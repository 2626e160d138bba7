//! Gangs, on this GPU's side: its arbiter's decisions about a gang's members are told to the machine, and what follows from them, and from
//! those of other GPUs, is done here.

use super::state::Server;
use super::tenants::seats::Seat;
use super::tenants::tenant::Tenant;
use baton_policy::arbiter::{Event, State, TenantId};
use baton_policy::gangs::{self, Action, GangId, Told};

/// The states of the gangs' members before a decision.
pub(super) type States = Vec<(GangId, State)>;

impl Server {
    /// The gang of a unit.
    fn gang_of(&self, unit: TenantId) -> Option<GangId> {
        if self.card.seats.of.is_empty() {
            return None;
        }
        let members = self.card.arbiter.members(unit);
        let is_theirs = |seat: &Seat| members.iter().any(|id| seat.members.contains(id));
        self.card.seats.of.iter().find(|(_, seat)| is_theirs(seat)).map(|(gang, _)| *gang)
    }

    /// A tenant is of a gang, which the arbiter is to know. Returns another member on this GPU, with which it is to be one unit.
    pub(super) fn join_gang(&mut self, id: TenantId) -> Option<(GangId, Option<TenantId>)> {
        let tenant = self.card.tenants.get(id)?;
        let (process, asked) = (tenant.connection.process.pid(), tenant.gang?);
        let gang = self.steering.machine.gang_of(process, asked);
        self.steering.machine.note_gang_of(process, Some(gang));
        if let Some(tenant) = self.card.tenants.get_mut(id).filter(|_| gang != asked) {
            tenant.gang = Some(gang);
            self.keep_tenant(id);
        }
        let seat = self.card.seats.of.entry(gang).or_default();
        let other = seat.members.first().copied();
        seat.members.insert(id);
        if other.is_none() {
            self.tell_gangs(gang, gangs::Event::Joined);
        }
        self.expect_no_more(id);
        Some((gang, other))
    }

    /// Others' work was left as the coordinator before had paused it, as long as the memory of a tenant here may have been away. With the last
    /// such tenant of a gang all of it goes on, as far as no server needs it paused.
    pub(super) fn is_absent_no_more(&mut self, id: TenantId) {
        if let Some(gang) = self.steering.machine.pauses().is_back((self.gpu, id)) {
            self.steering.machine.post_to_all(move || move |server: &mut Self| server.put_back_gang(gang));
        }
    }

    fn put_back_gang(&mut self, gang: GangId) {
        let is_of_it =
            |(_, tenant): &(TenantId, &Tenant)| tenant.gang == Some(gang) && !tenant.preemption.is_kept_paused();
        let all: Vec<TenantId> = self.card.tenants.iter().filter(is_of_it).map(|(id, _)| id).collect();
        all.into_iter().for_each(|id| self.preemptions().put_back(id));
    }

    /// A tenant that another coordinator has had is of its gang again, or will not be.
    pub(super) fn expect_no_more(&mut self, id: TenantId) {
        self.is_absent_no_more(id);
        let seats = &mut self.card.seats;
        let Some(gang) = seats.expected.remove(&id) else { return };
        if !seats.of.contains_key(&gang) && !seats.expects(gang) {
            self.tell_gangs(gang, gangs::Event::Left);
        }
    }

    /// The gangs of a unit's members.
    pub(super) fn gangs_of(&self, unit: TenantId) -> Vec<GangId> {
        let members = self.card.arbiter.members(unit);
        let is_theirs = |seat: &Seat| members.iter().any(|id| seat.members.contains(id));
        self.card.seats.of.iter().filter(|(_, seat)| is_theirs(seat)).map(|(gang, _)| *gang).collect()
    }

    /// The members of a gang on this GPU.
    pub(super) fn members_of(&self, gang: GangId) -> Vec<TenantId> {
        self.card.seats.of.get(&gang).into_iter().flat_map(|seat| seat.members.iter().copied()).collect()
    }

    /// Tenants of the first gang are of the second one from now on, also those that have yet to come back.
    pub(super) fn rename_gang(&mut self, from: GangId, into: GangId) {
        let is_of_it = |(_, tenant): &(TenantId, &Tenant)| tenant.gang == Some(from);
        let all: Vec<TenantId> = self.card.tenants.iter().filter(is_of_it).map(|(id, _)| id).collect();
        for id in all {
            if let Some(tenant) = self.card.tenants.get_mut(id) {
                tenant.gang = Some(into);
            }
            self.keep_tenant(id);
        }
        let seats = &mut self.card.seats;
        seats.expected.values_mut().filter(|gang| **gang == from).for_each(|gang| *gang = into);
        if !seats.expects(into) {
            return;
        }
        let (had, has) = (seats.of.contains_key(&from), seats.of.contains_key(&into));
        if !has {
            self.tell_gangs(into, gangs::Event::Joined);
        }
        if !had {
            self.tell_gangs(from, gangs::Event::Left);
        }
    }

    /// A tenant is of its gang no more.
    pub(super) fn leave_gang(&mut self, id: TenantId) {
        self.expect_no_more(id);
        let gang = self.card.seats.of.iter().find(|(_, seat)| seat.members.contains(&id)).map(|(gang, _)| *gang);
        let Some(gang) = gang else { return };
        if let Some(seat) = self.card.seats.of.get_mut(&gang) {
            seat.members.remove(&id);
            if seat.members.is_empty() {
                self.card.seats.of.remove(&gang);
                let is_expected = self.card.seats.expects(gang);
                self.tell_gangs(gang, if is_expected { gangs::Event::Joined } else { gangs::Event::Left });
            }
        }
    }

    /// The states of all gangs' members, to be compared after a decision.
    pub(super) fn gang_states(&self) -> States {
        let state = |seat: &Seat| seat.members.first().map_or(State::Idle, |id| self.card.arbiter.state(*id));
        self.card.seats.of.iter().map(|(gang, seat)| (*gang, state(seat))).collect()
    }

    /// Tells the machine what a decision has changed. That comes before the decision is carried out: the member may be claimed again.
    pub(super) fn tell_gang_changes(&mut self, before: &States) {
        if before.is_empty() {
            return;
        }
        let after = self.gang_states();
        for (gang, before) in before {
            let Some((_, after)) = after.iter().find(|(other, _)| other == gang) else { continue };
            gangs::Event::of_change(*before, *after).for_each(|event| self.tell_gangs(*gang, event));
        }
    }

    /// It would be this unit's turn, if all its gang could run.
    pub(super) fn claimed(&mut self, unit: TenantId) {
        let Some(gang) = self.gang_of(unit) else { return };
        let claim = self.card.seats.next_claim();
        if let Some(seat) = self.card.seats.of.get_mut(&gang) {
            (seat.claim, seat.is_ready, seat.is_admitted) = (claim, false, false);
            // The arbiter must not hear now of calls of an earlier claim: it would take them for this one's.
            let is_stale = |event: &Event| matches!(event, Event::Call | Event::Recall);
            self.card.untold.retain(|(id, event)| !(is_stale(event) && seat.members.contains(id)));
        }
        self.tell_gangs(gang, gangs::Event::Claimed(claim));
    }

    /// Tells the unit's gang of it.
    pub(super) fn tell_gang_of(&mut self, unit: TenantId, event: gangs::Event) {
        if let Some(gang) = self.gang_of(unit) {
            self.tell_gangs(gang, event);
        }
    }

    /// True if a unit whose memory is here may be let in now. Otherwise it is when the others of its gang can be.
    pub(super) fn is_admitted(&mut self, unit: TenantId) -> bool {
        let Some(gang) = self.gang_of(unit).filter(|_| self.card.arbiter.state(unit) == State::Arriving) else {
            return true;
        };
        let Some(seat) = self.card.seats.of.get_mut(&gang) else { return true };
        if !seat.is_admitted && !std::mem::replace(&mut seat.is_ready, true) {
            self.tell_gangs(gang, gangs::Event::Ready);
        }
        self.card.seats.of.get(&gang).is_none_or(|seat| seat.is_admitted)
    }

    /// The GPUs that a unit's gang waits for, by their numbers for users, if its turn has come here.
    pub(super) fn gang_waits_for(&self, unit: TenantId) -> Option<Vec<u32>> {
        self.steering.machine.gang_waits_for(self.gpu, self.gang_of(unit)?)
    }

    /// This GPU is served no more.
    pub(super) fn leave_gangs(&mut self) {
        let expected: Vec<TenantId> = self.card.seats.expected.keys().copied().collect();
        expected.into_iter().for_each(|id| self.expect_no_more(id));
        for gang in std::mem::take(&mut self.card.seats.of).into_keys() {
            self.tell_gangs(gang, gangs::Event::Left);
        }
    }

    fn tell_gangs(&self, gang: GangId, event: gangs::Event) {
        log::debug!("{gang:?} {event:?}");
        self.steering.machine.tell_gangs(self.gpu, gang, event, |told| move |server: &mut Self| server.on_told(told));
    }

    /// Does what follows from the decisions of all GPUs.
    fn on_told(&mut self, told: Told) {
        log::debug!("{told:?}");
        let Some(seat) = self.card.seats.of.get_mut(&told.gang) else { return };
        let Some(id) = seat.members.first().copied() else { return };
        match told.action {
            Action::Want => self.will_tell(id, Event::Demand),
            // It has been given back since.
            _ if told.claim != seat.claim => {}
            Action::Call => self.will_tell(id, Event::Call),
            Action::Recall => self.will_tell(id, Event::Recall),
            // Its memory says again that it is here.
            Action::Admit => seat.is_admitted = true,
        }
    }
}
