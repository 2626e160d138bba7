//! The table of all tenants: the messages to each, and the sums over them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use baton_contract::messages::{Answer, ExtentId, Message};
use baton_report::quota::{Met, Quota};

use super::connection::Connection;
use super::guests::OfGuests;
use super::index::Index;
use super::peer::{Peer, Sent};
use super::tenant::Tenant;
use crate::device::words::Words;
use crate::server::event_loop::{EventLoop, Interest, Source};
use baton_books::arena::FrameId;
use baton_books::extents::{Counts, Extents, Recut};
use baton_books::pool;
use baton_books::reservations::{Reservations, Run};
use baton_books::table::Scribe;
use baton_policy::arbiter::TenantId;

/// All tenants.
#[derive(Debug)]
pub(in crate::server) struct Tenants {
    events: Arc<EventLoop>,
    all: BTreeMap<TenantId, Tenant>,
    last: u32,
    /// The number of tenants that are guests'.
    guests: OfGuests,
    /// The sums over all tenants' extents.
    totals: Counts,
    /// The same sums for each guest that has a tenant, and for all guests together.
    guest_totals: BTreeMap<u32, Counts>,
    all_guests_total: Counts,
    /// Memory kept for runs that have declared their need.
    reservations: Reservations,
    /// The quotas that deny tenants their requests.
    met: BTreeMap<TenantId, BTreeMap<Quota, Met>>,
    index: Index,
    /// Tenants that may have changed since the index was last brought up to date.
    touched: Vec<TenantId>,
    /// Tenants that may have changed since time slices were last set.
    unsliced: BTreeSet<TenantId>,
    #[cfg(debug_assertions)]
    unchecked: usize,
    /// Tenants whose memory has changed since the last query.
    changed: BTreeSet<TenantId>,
    /// Tenants that have yet to read a message.
    behind: BTreeSet<TenantId>,
    /// Tenants that a message could not be sent to. Their connections have ended, and the server has yet to handle that.
    lost: Vec<TenantId>,
    /// Writes down where their memory is, for a coordinator that takes over.
    scribe: Option<Scribe<Words>>,
}

impl Tenants {
    pub(in crate::server) fn new(events: Arc<EventLoop>) -> Self {
        Self {
            events,
            all: BTreeMap::new(),
            last: 0,
            guests: OfGuests::default(),
            totals: Counts::default(),
            guest_totals: BTreeMap::new(),
            all_guests_total: Counts::default(),
            reservations: Reservations::default(),
            met: BTreeMap::new(),
            index: Index::new(Instant::now()),
            touched: Vec::new(),
            unsliced: BTreeSet::new(),
            #[cfg(debug_assertions)]
            unchecked: 0,
            changed: BTreeSet::new(),
            behind: BTreeSet::new(),
            lost: Vec::new(),
            scribe: None,
        }
    }

    /// Has every change of their memory written down from now on.
    pub(in crate::server) fn write_down(&mut self, scribe: Scribe<Words>) {
        self.scribe = Some(scribe);
    }

    /// Forgets what is written down about memory that is no tenant's.
    pub(in crate::server) fn forget_unclaimed(&mut self, frames: &[FrameId], pages: &[u64]) {
        if let Some(scribe) = &mut self.scribe {
            scribe.clear(frames, pages);
        }
    }

    /// The number of the tenant that comes next.
    pub(in crate::server) fn next_id(&self) -> TenantId {
        TenantId(self.last + 1)
    }

    /// True if there has ever been a tenant.
    pub(in crate::server) fn has_been_any(&self) -> bool {
        self.last > 0
    }

    /// Passes over the numbers of tenants that another coordinator has had.
    pub(in crate::server) fn go_on_after(&mut self, last: TenantId) {
        self.last = self.last.max(last.0);
    }

    /// Adds a new tenant, without memory. The server listens to it from now on.
    pub(in crate::server) fn add(&mut self, tenant: Tenant) -> Result<TenantId, (Peer, io::Error)> {
        let id = self.next_id();
        self.add_as(id, tenant)?;
        self.last = id.0;
        Ok(id)
    }

    /// Adds a tenant that has this number already.
    pub(in crate::server) fn add_as(&mut self, id: TenantId, tenant: Tenant) -> Result<(), (Peer, io::Error)> {
        debug_assert!(tenant.memory.extents.is_empty());
        if let Err(error) = self.watch(id, &tenant.connection) {
            let Connection { process, control, requests, .. } = tenant.connection;
            // Others may have the same descriptors open, so that they would be watched even when they are closed here.
            self.events.remove(&process);
            self.events.remove(&control);
            self.events.remove(&requests);
            return Err((control, error));
        }
        // Its welcome may have to wait.
        if tenant.connection.control.keeps() {
            self.behind.insert(id);
        }
        self.guests.add(tenant.connection.control.guest());
        tenant.need.into_iter().for_each(|need| self.reservations.come(need));
        self.all.insert(id, tenant);
        self.touched.push(id);
        Ok(())
    }

    fn watch(&self, id: TenantId, connection: &Connection) -> io::Result<()> {
        self.events.add(&connection.process, Source::Process(id), Interest::Read)?;
        self.events.add(&connection.control, Source::Control(id), connection.control.interest())?;
        self.events.add(&connection.requests, Source::Requests(id), Interest::Read)
    }

    /// Removes a tenant that is gone. Returns it with everything that it had, which stays written down until it is [forgotten](Self::forget).
    pub(in crate::server) fn remove(&mut self, id: TenantId) -> Option<(Tenant, Extents)> {
        self.listen_no_more(id);
        let mut tenant = self.all.remove(&id)?;
        self.events.remove(&tenant.connection.process);
        let extents = std::mem::take(&mut tenant.memory.extents);
        self.totals = self.totals.less(extents.counts());
        if let Some(need) = tenant.need {
            self.reservations.go(need.run, extents.counts().used());
        }
        let guest = tenant.connection.control.guest();
        self.guests.remove(guest);
        if let Some(total) = guest.and_then(|user| self.guest_totals.get_mut(&user)) {
            *total = total.less(extents.counts());
            self.all_guests_total = self.all_guests_total.less(extents.counts());
        }
        if let Some(user) = guest.filter(|user| self.guests.of(*user) == 0) {
            self.guest_totals.remove(&user);
        }
        self.met.remove(&id);
        self.changed.remove(&id);
        self.touched.push(id);
        Some((tenant, extents))
    }

    /// Writes down that a tenant that is gone has nothing any more.
    pub(in crate::server) fn forget(&mut self, id: TenantId) {
        if let Some(scribe) = &mut self.scribe {
            scribe.forget(id.0);
        }
    }

    /// Writes down that a tenant does not have an extent any more, which was [removed for an heir](Extents::remove_for_heir).
    pub(in crate::server) fn gone(&mut self, id: TenantId, extent: ExtentId) {
        if let Some(scribe) = &mut self.scribe {
            scribe.gone(id.0, extent);
        }
    }

    /// Notes that two tenants share memory, and take turns until they meet.
    pub(in crate::server) fn are_to_meet(&mut self, one: TenantId, other: TenantId) {
        for (id, with) in [(one, other), (other, one)] {
            if let Some(tenant) = self.get_mut(id) {
                tenant.shares_with.insert(with);
            }
        }
    }

    /// Notes that none of these meets a tenant any more: it has left, or they are united.
    pub(in crate::server) fn is_met_by_none_of(&mut self, id: TenantId, others: impl IntoIterator<Item = TenantId>) {
        for other in others {
            if let Some(tenant) = self.get_mut(other) {
                tenant.shares_with.remove(&id);
            }
        }
    }

    /// Has an extent of the first tenant be written down as the second's from its next change on.
    pub(in crate::server) fn pass_on(&mut self, from: (TenantId, ExtentId), to: (TenantId, ExtentId)) {
        if let Some(scribe) = &mut self.scribe {
            scribe.pass_on((from.0.0, from.1), (to.0.0, to.1));
        }
    }

    pub(in crate::server) fn get(&self, id: TenantId) -> Option<&Tenant> {
        self.all.get(&id)
    }

    pub(in crate::server) fn get_mut(&mut self, id: TenantId) -> Option<&mut Tenant> {
        self.touch(id);
        self.all.get_mut(&id)
    }

    /// The tenant, if this grant is its present turn, or its last one. Messages from an earlier turn are too late.
    pub(in crate::server) fn in_turn(&mut self, id: TenantId, grant: u64) -> Option<&mut Tenant> {
        self.get_mut(id).filter(|tenant| tenant.turn.number() == grant)
    }

    /// A tenant, to change only fields that no index knows: its heartbeat, its time slice.
    pub(in crate::server) fn unindexed(&mut self, id: TenantId) -> Option<&mut Tenant> {
        self.all.get_mut(&id)
    }

    /// Marks a tenant that may have changed, if only because time has passed: its facts are taken anew.
    pub(in crate::server) fn touch(&mut self, id: TenantId) {
        if self.touched.last() != Some(&id) {
            self.touched.push(id);
        }
    }

    /// The up-to-date index of all tenants.
    pub(in crate::server) fn index(&mut self) -> &Index {
        if !self.touched.is_empty() {
            let now = Instant::now();
            for id in self.touched.drain(..) {
                let tenant = self.all.get(&id);
                self.index.enter(id, tenant, now);
                match tenant {
                    Some(_) => self.unsliced.insert(id),
                    None => self.unsliced.remove(&id),
                };
            }
            #[cfg(debug_assertions)]
            self.check_index();
        }
        &self.index
    }

    /// The check runs only now and then, because it is slow with many tenants.
    #[cfg(debug_assertions)]
    fn check_index(&mut self) {
        self.unchecked += 1;
        if self.unchecked >= self.all.len() {
            self.unchecked = 0;
            assert!(self.index.is_complete(self.iter(), Instant::now()), "the index lacks a change");
        }
    }

    /// Takes the tenants that may have changed since the last call.
    pub(in crate::server) fn take_unsliced(&mut self) -> BTreeSet<TenantId> {
        self.index();
        std::mem::take(&mut self.unsliced)
    }

    pub(in crate::server) fn has(&self, id: TenantId) -> bool {
        self.all.contains_key(&id)
    }

    pub(in crate::server) fn len(&self) -> usize {
        self.all.len()
    }

    /// The number of tenants that are guests'.
    pub(in crate::server) fn of_guests(&self) -> &OfGuests {
        &self.guests
    }

    pub(in crate::server) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(in crate::server) fn ids(&self) -> impl Iterator<Item = TenantId> {
        self.all.keys().copied()
    }

    pub(in crate::server) fn iter(&self) -> impl Iterator<Item = (TenantId, &Tenant)> {
        self.all.iter().map(|(id, tenant)| (*id, tenant))
    }

    /// The sums over all tenants' extents.
    pub(in crate::server) fn totals(&self) -> &Counts {
        debug_assert_eq!(
            self.totals,
            self.iter().fold(Counts::default(), |sum, (_, one)| sum.plus(one.extents().counts()))
        );
        &self.totals
    }

    /// A tenant's extents, to change them.
    pub(in crate::server) fn extents(&mut self, id: TenantId) -> Option<Changing<'_>> {
        self.touch(id);
        let tenant = self.all.get_mut(&id)?;
        let guest = tenant.connection.control.guest();
        let reserved = tenant.need.map(|need| (need.run, &mut self.reservations));
        let extents = &mut tenant.memory.extents;
        let before = *extents.counts();
        let totals = [
            Some(&mut self.totals),
            guest.map(|user| self.guest_totals.entry(user).or_default()),
            guest.map(|_| &mut self.all_guests_total),
        ];
        Some(Changing {
            id,
            extents,
            before,
            totals,
            reserved,
            changed: &mut self.changed,
            scribe: self.scribe.as_mut(),
            unheard: Vec::new(),
        })
    }

    /// The sums over the extents of a guest's tenants.
    pub(in crate::server) fn memory_of_guest(&self, user: u32) -> Counts {
        self.guest_totals.get(&user).copied().unwrap_or_default()
    }

    /// The sums over the extents of all guests' tenants.
    pub(in crate::server) fn memory_of_guests(&self) -> &Counts {
        &self.all_guests_total
    }

    /// Memory kept for runs that have declared their need.
    pub(in crate::server) fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// The run of a tenant that has declared its need.
    pub(in crate::server) fn run_of(&self, id: TenantId) -> Option<Run> {
        Some(self.all.get(&id)?.need?.run)
    }

    /// Notes that a quota denies a tenant its request.
    pub(in crate::server) fn record_met(&mut self, id: TenantId, met: Met) {
        self.met.entry(id).or_default().insert(met.quota, met);
    }

    /// Notes that these quotas no longer deny a tenant its request.
    pub(in crate::server) fn meets_no_more(&mut self, id: TenantId, quotas: &[Quota]) {
        if let Some(met) = self.met.get_mut(&id) {
            met.retain(|quota, _| !quotas.contains(quota));
        }
    }

    /// The quotas that deny a tenant its latest request.
    pub(in crate::server) fn quotas_met(&self, id: TenantId) -> impl Iterator<Item = &Met> {
        self.met.get(&id).into_iter().flat_map(BTreeMap::values)
    }

    /// Takes the tenants whose memory has changed since the last call.
    pub(in crate::server) fn take_changed(&mut self) -> BTreeSet<TenantId> {
        std::mem::take(&mut self.changed)
    }

    /// Stops listening to a tenant whose connection has ended.
    pub(in crate::server) fn listen_no_more(&mut self, id: TenantId) {
        self.behind.remove(&id);
        if let Some(tenant) = self.all.get(&id) {
            self.events.remove(&tenant.connection.control);
            self.events.remove(&tenant.connection.requests);
        }
    }

    /// Watches the sockets of tenants that have yet to read a message.
    pub(in crate::server) fn watch_those_behind(&mut self) {
        self.behind.retain(|id| {
            let Some(tenant) = self.all.get(id).filter(|tenant| tenant.connection.is_open()) else { return false };
            let watch = |peer: &Peer, source, interest| self.events.change(peer, source, interest);
            let (control, requests) = (&tenant.connection.control, &tenant.connection.requests);
            watch(control, Source::Control(*id), control.interest());
            watch(requests, Source::Requests(*id), requests.interest_in_turn());
            tenant.connection.control.keeps() || tenant.connection.requests.keeps()
        });
    }

    /// The time of the next attempt to send messages that wait for something no socket shows.
    pub(in crate::server) fn next_try(&self) -> Option<Instant> {
        let behind = self.behind.iter().filter_map(|id| self.all.get(id));
        behind.flat_map(|tenant| tenant.connection.peers()).filter_map(Peer::next_try).min()
    }

    /// Tries again to send those messages.
    pub(in crate::server) fn send_again(&mut self) {
        let now = Instant::now();
        for id in &self.behind {
            let Some(tenant) = self.all.get_mut(id).filter(|tenant| tenant.connection.is_open()) else { continue };
            let due =
                tenant.connection.peers_mut().into_iter().filter(|peer| peer.next_try().is_some_and(|at| at <= now));
            if due.map(Peer::send_kept).any(|sent| sent.is_err()) {
                self.lost.push(*id);
            }
        }
    }

    /// Sends a message to a tenant's control loop.
    pub(in crate::server) fn tell(&mut self, id: TenantId, message: &impl Message) {
        self.tell_with(id, message, &[]);
    }

    /// Sends a message with descriptors to a tenant's control loop.
    pub(in crate::server) fn tell_with(&mut self, id: TenantId, message: &impl Message, with: &[Sent]) {
        let Some(tenant) = self.all.get_mut(&id) else { return };
        if tenant.connection.is_open() && tenant.connection.control.send(message, with).is_err() {
            self.lost.push(id);
        }
        if tenant.connection.control.keeps() {
            self.behind.insert(id);
        }
    }

    /// Answers a tenant's request.
    pub(in crate::server) fn answer(&mut self, id: TenantId, answer: &Answer, with: &[Sent]) {
        let Some(tenant) = self.all.get_mut(&id).filter(|tenant| tenant.connection.is_open()) else { return };
        tenant.connection.on_answered();
        if tenant.connection.requests.send(answer, with).is_err() {
            self.lost.push(id);
        }
        if tenant.connection.requests.keeps() {
            self.behind.insert(id);
        }
    }

    /// Takes a tenant whose connection turned out to have ended when a message was sent to it.
    pub(in crate::server) fn take_lost(&mut self) -> Option<TenantId> {
        self.lost.pop()
    }

    /// True if there are such tenants.
    pub(in crate::server) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }
}

impl std::ops::Index<TenantId> for Tenants {
    type Output = Tenant;

    fn index(&self, id: TenantId) -> &Tenant {
        &self.all[&id]
    }
}

/// A tenant's extents while they are changed. The sums over all tenants are kept up.
#[derive(Debug)]
pub(in crate::server) struct Changing<'a> {
    id: TenantId,
    extents: &'a mut Extents,
    before: Counts,
    /// All sums that include this tenant.
    totals: [Option<&'a mut Counts>; 3],
    /// Its run's reservations, if it has declared its need.
    reserved: Option<(Run, &'a mut Reservations)>,
    changed: &'a mut BTreeSet<TenantId>,
    scribe: Option<&'a mut Scribe<Words>>,
    /// Parts of the pool that stay written down until its program knows that it has them no more.
    unheard: Vec<pool::Run>,
}

impl Changing<'_> {
    /// Has the room that was freed stay written down: [`Tenants::forget_unclaimed`] follows when the program has been told.
    pub(in crate::server) fn frees_unheard(&mut self, recuts: &[Recut]) {
        self.unheard.extend(recuts.iter().flat_map(|recut| recut.freed.iter().cloned()));
    }
}

impl Deref for Changing<'_> {
    type Target = Extents;

    fn deref(&self) -> &Extents {
        self.extents
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut Extents {
        self.extents
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        match &mut self.scribe {
            Some(scribe) => scribe.note_touched_but(self.id.0, self.extents, &self.unheard),
            None => drop(self.extents.take_touched()),
        }
        let after = self.extents.counts();
        if *after != self.before {
            for total in self.totals.iter_mut().flatten() {
                **total = total.less(&self.before).plus(after);
            }
            if let Some((run, reservations)) = &mut self.reserved {
                reservations.has(*run, self.before.used(), after.used());
            }
            self.changed.insert(self.id);
        }
    }
}
