//! Takeover: the tenants of a coordinator that has died go on with this one.
//!
//! The keeper has handed over their sockets, their memory and the table. Each tenant is asked what it has (*Resync*); meanwhile it is in
//! no list of the server, and nothing of its memory is touched. When all have answered, or after [`PATIENCE`], each becomes a tenant
//! again: the tenant is right about its mappings, the table about copies. One whose gate is open goes on as the holder of the baton. The
//! arbiter hears of others that may be at work when they are off the GPU.
//!
//! Tenants that share memory come back together: an extent of one of them may be in the frame of another one's.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use baton_contract::link;
use baton_contract::messages::{
    Answer, FromTenant, GateState, PreemptionCommand, Request, TakeoverCommand, TurnReport,
};
use baton_contract::page::TAKEN;
use baton_contract::wire::{GpuNumber, Malformed, Version};
use baton_messages::Message;

use super::event_loop::{Interest, Source};
use super::machine::Expected;
use super::options::Isolation;
use super::receive::Told;
use super::recorder::event::What;
use super::returning::{Returning, Takeover};
use super::state::Server;
use super::tenants::connection::{Connection, Pages};
use super::tenants::facts::Facts;
use super::tenants::peer::Peer;
use super::tenants::process::{self, Process};
use super::tenants::shared::{Shared, TenantsPage};
use super::tenants::tenant::{Stuck, Tenant, Unsettled};
use crate::device::words::Words;
use crate::keeper::{Inherited, KeptTenant, Key};
use crate::random;
use baton_books::sharing::{Attached, Fact};
use baton_books::table::{Found, Scribe, Table};
use baton_policy::arbiter::{Event, TenantId};

/// The time that tenants have to answer before those that have go on without the others.
const PATIENCE: Duration = Duration::from_millis(500);

/// Tenants that come back together.
pub(super) struct Welcomed {
    pub(super) ready: Vec<TenantId>,
    pub(super) found: Found,
    /// The heirs' hold on what is theirs now.
    heirs: Vec<Attached>,
}

impl Server {
    /// Has all memory written down from now on, and takes over what the coordinator before has left, if that fits this one.
    pub(super) fn inherit(&mut self, inherited: Inherited) -> std::io::Result<()> {
        self.card.seats.expected = self.steering.machine.pauses().expected(self.gpu);
        self.write_down(inherited)?;
        let comes = |id: &TenantId| self.card.takeover.as_ref().is_some_and(|all| all.returning.contains_key(id));
        let gone: Vec<TenantId> = self.card.seats.expected.keys().filter(|id| !comes(id)).copied().collect();
        gone.into_iter().for_each(|id| self.expect_no_more(id));
        Ok(())
    }

    fn write_down(&mut self, mut inherited: Inherited) -> std::io::Result<()> {
        // Also if the keeper has just died: this process has all of it, and the next keeper is to have it too.
        if !self.front.keeper.is_wanted() {
            return Ok(());
        }
        let size = self.card.memory.table_size();
        let left = inherited.table.take().map(|file| Words::open(&file).map(|words| (words, file))).transpose()?;
        let table = left.and_then(|(words, file)| Some((Table::open(words).ok()?, file)));
        match table.filter(|(table, _)| table.size() == size) {
            Some((table, file)) => {
                self.front.table = Some(file);
                let found = table.read();
                self.card.tenants.write_down(Scribe::new(table));
                self.take_over(found, inherited)?;
            }
            None => {
                if !inherited.tenants.is_empty() {
                    baton_messages::warn!(nothing_to_take_over(inherited.tenants.len()));
                }
                self.let_go_of(&inherited);
                let (words, file) = Words::make(size.words())?;
                self.front.keeper.hold(Key::Table, &[], &[file.as_fd()]);
                self.front.table = Some(file);
                let table = Table::make(words, size).map_err(|_| std::io::ErrorKind::InvalidInput)?;
                self.card.tenants.write_down(Scribe::new(table));
            }
        }
        Ok(())
    }

    /// Has the keeper let go of all that another coordinator has left. Its tenants see that it is gone.
    fn let_go_of(&mut self, inherited: &Inherited) {
        let facts = inherited.facts.iter().map(|(kind, number, _)| Key::Fact(*kind, *number));
        facts.for_each(|key| self.front.keeper.forget(key));
        for tenant in &inherited.tenants {
            self.front.keeper.let_go(Key::Tenant(tenant.number));
        }
        self.card.memory.let_go_of_kept(&inherited.frames);
    }

    /// The tenants of gangs in what a coordinator before has left.
    pub fn expected_of(inherited: &Inherited) -> Vec<Expected> {
        let expected = |kept: &KeptTenant| {
            let process = process::number(kept.process.as_fd()).ok().flatten();
            Some(Expected { tenant: TenantId(kept.number), process, gang: Facts::read(&kept.facts)?.gang()? })
        };
        inherited.tenants.iter().filter_map(expected).collect()
    }

    /// Takes over what the coordinator before has left: asks its tenants what they have.
    fn take_over(&mut self, found: Found, inherited: Inherited) -> std::io::Result<()> {
        let facts = |kept: &KeptTenant| Some((kept.number, Facts::read(&kept.facts)?));
        let known: BTreeMap<u32, Facts> = inherited.tenants.iter().filter_map(facts).collect();
        let attached = self.restore_facts(&inherited.facts, &known);
        // Of tenants that are gone, others may have some memory: of the same guest.
        let gone = attached.iter().filter(|one| !known.contains_key(&one.owner.0));
        let gone: BTreeMap<u32, Option<u32>> =
            gone.filter_map(|one| Some((one.owner.0, known.get(&one.id.0)?.guest))).collect();
        let guest_of = |id| known.get(&id).map(|facts| facts.guest).or_else(|| gone.get(&id).copied());
        self.memory().inherit(inherited.frames, &found, guest_of)?;
        let until = Instant::now() + PATIENCE;
        let gone = gone.keys().map(|id| TenantId(*id)).collect();
        self.card.takeover = Some(Takeover { found, until, returning: BTreeMap::new(), attached, gone });
        let last = inherited.tenants.iter().map(|kept| kept.number).max().unwrap_or(0);
        self.card.tenants.go_on_after(TenantId(last));
        for kept in inherited.tenants {
            let id = TenantId(kept.number);
            match self.begin_return(id, kept) {
                Ok(returning) => {
                    if let Some(takeover) = &mut self.card.takeover {
                        takeover.returning.insert(id, returning);
                    }
                }
                // Another coordinator may have the room.
                Err(error) if link::is_want_of_room(&error) => return Err(error),
                Err(error) => {
                    baton_messages::warn!(cannot_come_back(id.0, error));
                    self.front.keeper.let_go(Key::Tenant(id.0));
                    self.card.corun.leave(id);
                }
            }
        }
        Ok(())
    }

    /// Begins with the facts about what is shared. Returns the tenants' hold on each other's extents.
    fn restore_facts(&mut self, facts: &[(u16, u64, Vec<u8>)], known: &BTreeMap<u32, Facts>) -> Vec<Attached> {
        let mut attached = Vec::new();
        for fact in facts.iter().filter_map(|(kind, _, bytes)| Fact::decode(*kind, bytes)) {
            let owner = match &fact {
                Fact::Export { owner, .. } | Fact::Event { owner, .. } | Fact::Process { owner, .. } => *owner,
                Fact::Attached(one) => one.id.0,
            };
            match fact {
                Fact::Attached(one) if known.contains_key(&owner) => attached.push(one),
                _ => self.memory().restore_fact(known.contains_key(&owner).then_some(TenantId(owner)), &fact),
            }
        }
        attached
    }

    fn begin_return(&mut self, id: TenantId, kept: KeptTenant) -> std::io::Result<Returning> {
        let KeptTenant { facts, control, requests, process, page, .. } = kept;
        let facts = Facts::read(&facts).ok_or(std::io::ErrorKind::InvalidData)?;
        let gpu = GpuNumber(facts.gpu);
        let Some(version) = Version::of_number(facts.contract) else {
            return Err(std::io::Error::other(Message::from(Malformed::Version { theirs: facts.contract })));
        };
        let [mut control, requests] =
            [control, requests].map(|socket| Peer::new(socket, gpu, facts.guest).speaking(version));
        let process = Process::of_peer(&control, process)?;
        let (page_of_us, file) = Shared::<baton_contract::page::CoordinatorPage>::written_by_us()?;
        let theirs = TenantsPage::of(page)?;
        page_of_us.version.store(version.number(), Relaxed);
        if facts.was_taken {
            // Until it has unmapped what is no longer its own, it must not go on by itself.
            page_of_us.taken.store(TAKEN, Relaxed);
        }
        let (total, could_have) = self.memory().first_offer(facts.guest);
        page_of_us.arena_bytes.store(total, Relaxed);
        page_of_us.could_have_bytes.store(could_have, Relaxed);
        self.card.corun.join(id, process.domain(), facts.scheduling().class)?;
        let number = u64::from_ne_bytes(random::bytes());
        if let Some((slot, [activity, elsewhere])) = self.card.corun.place(id) {
            // If its connection has ended, its process soon will have too: its memory is kept until then.
            let _ = control.send(&TakeoverCommand::Resync { number, slot }, &[file.into(), activity, elsewhere]);
        }
        self.front.events.add(&control, Source::Control(id), control.interest())?;
        self.front.events.add(&process, Source::Process(id), Interest::Read)?;
        let pages = Pages { coordinators: page_of_us, tenants: theirs };
        Ok(Returning::new(facts, process, (control, requests), pages, number))
    }

    /// Hears a tenant that has yet to come back, or of its end. False if it is none of those.
    pub(super) fn hear_returning(&mut self, source: Source) -> bool {
        let Some(takeover) = &mut self.card.takeover else { return false };
        let (Source::Control(id) | Source::Process(id)) = source else { return false };
        let Some(returning) = takeover.returning.get_mut(&id) else { return false };
        let has_process_ended = matches!(source, Source::Process(_));
        let is_connected = !has_process_ended && returning.hear();
        // Without any memory, it may never have known that it was a tenant. Or its program has been replaced by another one.
        let has_none = || !takeover.found.has_any(id.0) || returning.pages.tenants.is_let_go();
        let has_ended = has_process_ended || !is_connected && has_none();
        returning.is_connected &= is_connected;
        if !is_connected || returning.stands.is_some() {
            // If only its connection has ended, its memory stays as it is until its process has. If it has told all, the rest is heard
            // when it is a tenant again.
            self.front.events.remove(&returning.control);
            if !is_connected {
                // Its memory here stays.
                self.expect_no_more(id);
            }
            if has_ended {
                self.abandon(id);
            }
        } else {
            self.front.events.change(&returning.control, Source::Control(id), returning.control.interest());
        }
        true
    }

    /// Asks those again for whose question the system had no room.
    pub(super) fn ask_again(&mut self) {
        let due = self.card.takeover.as_ref().map(Takeover::to_be_asked).unwrap_or_default();
        for id in due {
            self.hear_returning(Source::Control(id));
        }
    }

    /// A tenant's process has ended before it could come back.
    fn abandon(&mut self, id: TenantId) {
        let Some(takeover) = &mut self.card.takeover else { return };
        if let Some(gone) = takeover.returning.remove(&id) {
            self.front.events.remove(&gone.process);
            self.front.keeper.let_go(Key::Tenant(id.0));
            takeover.gone.insert(id);
            self.steering.machine.note_gang_of(gone.process.pid(), None);
            let had: Vec<Attached> = takeover.attached.extract_if(.., |one| one.id.0 == id.0).collect();
            self.card.corun.leave(id);
            self.memory().drop_attachments(id);
            had.into_iter().for_each(|one| self.memory().restore_fact(None, &Fact::Attached(one)));
        }
    }

    /// Those that have answered and become tenants again now: one with an open gate first, because it has the baton.
    pub(super) fn ready_to_return(&self) -> Vec<TenantId> {
        let Some(takeover) = &self.card.takeover else { return Vec::new() };
        let all = takeover.returning.values().all(|one| one.stands.is_some());
        if !all && takeover.is_early() || self.card.memory.awaits_pages() {
            return Vec::new();
        }
        takeover.ready()
    }

    /// Those that come back now, attached to each other's memory again; none if nothing has come of the takeover since.
    pub(super) fn begin_to_welcome(&mut self) -> Option<Welcomed> {
        let ready = self.ready_to_return();
        let takeover = self.card.takeover.as_mut()?;
        if ready.is_empty() && takeover.gone.is_empty() && !takeover.returning.is_empty() {
            return None;
        }
        let together = takeover.take_attached(&ready);
        let mut found = std::mem::take(&mut takeover.found);
        let heirs = self.memory().attach_again(together, &mut found);
        Some(Welcomed { ready, found, heirs })
    }

    /// Has those know each other again that share memory and take turns.
    fn know_those_apart(&mut self, ready: &[TenantId]) {
        for id in ready {
            let unit = |id: TenantId| self.card.tenants.get(id).and_then(|tenant| tenant.unit);
            let owners = self.card.memory.owners_reached_by(*id).into_iter();
            let apart: Vec<TenantId> =
                owners.filter(|owner| unit(*id).is_none() || unit(*owner) != unit(*id)).collect();
            apart.into_iter().for_each(|owner| self.card.tenants.are_to_meet(*id, owner));
        }
    }

    /// Does what is left to do when they are back.
    pub(super) fn end_welcome(&mut self, Welcomed { ready, found, heirs }: Welcomed) {
        self.know_those_apart(&ready);
        ready.iter().for_each(|id| self.memory().have_what_leaves_unmapped(*id));
        heirs.into_iter().for_each(|one| self.memory().restore_fact(None, &Fact::Attached(one)));
        let Some(takeover) = &mut self.card.takeover else { return };
        // The rest of those that are gone belongs to nobody when nobody may be attached to it.
        let attached: BTreeSet<u32> = takeover.attached.iter().map(|one| one.owner.0).collect();
        let over = takeover.returning.is_empty();
        let gone: Vec<TenantId> = takeover.gone.extract_if(.., |id| over || !attached.contains(&id.0)).collect();
        gone.into_iter().for_each(|id| self.memory().let_go_of_unclaimed(id, &found));
        if over {
            self.card.takeover = None;
            self.memory().all_are_back();
        } else if let Some(takeover) = &mut self.card.takeover {
            takeover.found = found;
        }
    }

    /// Makes a tenant again of one that has answered. Returns true if its gate is open, so that the arbiter does not know it yet, and the
    /// reports that are to be handled.
    pub(super) fn come_back(&mut self, id: TenantId, found: &Found) -> Option<(bool, Vec<Told>)> {
        let returning = self.card.takeover.as_mut()?.returning.remove(&id)?;
        let Returning { facts, process, control, requests, pages, extents, spare, channels, later, stands, .. } =
            returning;
        let stands = stands?;
        self.front.events.remove(&control);
        self.front.events.remove(&process);
        let scheduling = facts.scheduling();
        let mut tenant = Tenant::new(
            facts.name.clone(),
            Connection::new(process, (control, requests), pages),
            scheduling,
            facts.need(),
        );
        tenant.scheduling.stuck = Stuck {
            keeps_memory: self.options.isolation == Isolation::Strict,
            killed_after: self.options.on_stuck.killed_after(facts.guest.is_some()),
            ..Stuck::default()
        };
        tenant.scheduling.suspended = facts.suspended.then(Instant::now);
        tenant.came_back = true;
        tenant.was_taken = facts.was_taken;
        tenant.not_copied = facts.not_copied;
        tenant.unit = facts.unit;
        let pid = tenant.connection.process.pid();
        tenant.gang = facts.gang().map(|gang| self.steering.machine.gang_of(pid, gang));
        tenant.imports_from = facts.imports_from();
        tenant.preemption.coordinators_before = facts.coordinators_before + 1;
        tenant.turn.go_on_from(stands.grant);
        if stands.asks {
            // A request that nobody has read, and whose answer is not waited for.
            let _ = link::receive(tenant.connection.requests.as_fd(), true);
        }
        tenant.preemption.may_be_paused = facts.may_be_paused;
        if stands.gate == GateState::Held {
            tenant.preemption.take_over();
        }
        self.card.outsiders.expect(tenant.connection.process.pid());
        let joined = What::Joined { name: facts.name.as_str().into(), class: scheduling.class };
        baton_messages::info!(came_back(&facts.name));
        if let Err((_, error)) = self.card.tenants.add_as(id, tenant) {
            self.fails = Some(baton_messages::cannot_watch(error));
            return None;
        }
        self.card.recorder.record(id, joined);
        self.memory().restore_account(id, stands.leased, facts.contexts);
        self.keep_tenant(id);
        let is_left_behind = match self.memory().take_over(id, &extents, &spare, found) {
            Ok(is_left_behind) => is_left_behind,
            Err(_) => {
                self.kill(id, baton_messages::NOT_FOUND_AGAIN);
                false
            }
        };
        if let Some((report, descriptor)) = channels {
            // A report that makes no sense leaves it as one that cannot be paused.
            let _ = self.preemptions().heard(id, report, descriptor);
        }
        if stands.asks {
            self.card.tenants.answer(id, &Answer::Again, &[]);
        }
        match stands.gate {
            GateState::Closed => {
                self.preemptions().put_back(id);
                self.enter(id, stands.demands);
            }
            GateState::Held => {
                self.unsettle(id, true);
                self.preemptions().take_over(id);
            }
            // Its work is paused, and stays so until its memory is back.
            GateState::Open if is_left_behind => self.unsettle(id, false),
            GateState::Open => self.preemptions().put_back(id),
        }
        Some((stands.gate == GateState::Open, later))
    }

    /// True if the owner of what a tenant asks to share has yet to come back. Of those that only say that they own it, it is one that belongs
    /// with the tenant.
    pub(super) fn is_owner_awaited(&mut self, id: TenantId, request: &Request) -> bool {
        if self.card.takeover.is_none() {
            return false;
        }
        let owners = self.memory().owners_of_shared(request);
        let (Some(takeover), Some(tenant)) = (&self.card.takeover, self.card.tenants.get(id)) else { return false };
        let is_proven = matches!(request, Request::Attach { .. });
        let belongs = |one: &Returning| is_proven || tenant.connection.process.belongs_with(&one.process);
        let may_come = |one: &Returning| one.is_connected && belongs(one);
        owners.iter().any(|owner| takeover.returning.get(owner).is_some_and(may_come))
    }

    /// True if a tenant was taken over and may be at work, so that the arbiter does not know it yet.
    pub(super) fn is_unsettled(&self, id: TenantId) -> bool {
        self.card.tenants.get(id).is_some_and(|tenant| tenant.unsettled.is_some())
    }

    /// Has a tenant be one that the arbiter does not know yet, although its gate was closed.
    fn unsettle(&mut self, id: TenantId, demands: bool) {
        if let Some(tenant) = self.card.tenants.get_mut(id) {
            tenant.unsettled = Some(Unsettled { demands, runs: false });
        }
    }

    /// Has the arbiter know a tenant that is off the GPU, with its gate closed.
    pub(super) fn enter(&mut self, id: TenantId, demands: bool) {
        let Some(tenant) = self.card.tenants.get_mut(id) else { return };
        let demands = demands | tenant.unsettled.take().is_some_and(|unsettled| unsettled.demands);
        let scheduling = tenant.scheduling.wanted;
        let suspended = tenant.scheduling.suspended.is_some();
        // A guest could say anything.
        let waited = tenant.connection.waits_for().filter(|_| tenant.connection.control.guest().is_none());
        self.is_absent_no_more(id);
        self.will_tell(id, Event::Joined { scheduling });
        if suspended {
            self.will_tell(id, Event::KeepOff(true));
        }
        if demands {
            self.will_tell(id, Event::Demand);
            if let Some(waited) = waited {
                let since = self.now().saturating_sub(waited.as_micros() as u64);
                self.will_tell(id, Event::WaitsSince(since));
            }
        }
    }

    /// Has a tenant close its gate, before the arbiter hears of it.
    pub(super) fn have_close(&mut self, id: TenantId) {
        let Some(tenant) = self.card.tenants.get_mut(id) else { return };
        let grant = tenant.turn.number();
        tenant.unsettled.get_or_insert(Unsettled { demands: false, runs: true });
        if tenant.preemption.is_impossible() {
            return self.turns().drain(id);
        }
        tenant.preemption.ask();
        self.card.tenants.tell(id, &PreemptionCommand::Begin { grant });
    }

    /// A tenant that was taken over with its gate open tells of it.
    pub(super) fn hear_unsettled(&mut self, id: TenantId, report: &FromTenant) -> bool {
        let Some(tenant) = self.card.tenants.get_mut(id) else { return false };
        if tenant.unsettled.is_none() {
            return false;
        }
        match report {
            FromTenant::Turn(TurnReport::Closed { .. }) => {
                tenant.turn.on_closed();
                if self.preemptions().on_drained(id) {
                    self.enter(id, false);
                }
                true
            }
            FromTenant::Turn(TurnReport::DrainTimedOut { .. }) => {
                // Its work may wait for others of its gang, which wait for it: they go on without it, as it does.
                self.expect_no_more(id);
                self.turns().drain(id);
                true
            }
            _ => false,
        }
    }
}
