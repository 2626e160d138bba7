//! Joining: the steps by which a newcomer becomes a tenant.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;

use baton_contract::link;
use baton_contract::messages::{Admission, Refusal};
use baton_contract::scheduling::Scheduling;
use baton_contract::socket_path;
use baton_contract::text::shown;
use baton_messages::Message;
use baton_report::quota::{Met, Quota};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::lobby::{Lacks, Newcomer, Refused, refuse};
use super::options::{Isolation, Options};
use super::recorder::event::What;
use super::state::Server;
use super::tenants::connection::{Connection, Pages};
use super::tenants::peer::{Peer, Sent};
use super::tenants::process::Process;
use super::tenants::shared::{Shared, TenantsPage};
use super::tenants::table::Tenants;
use super::tenants::tenant::{Stuck, Tenant};
use baton_books::reservations::Need;
use baton_policy::arbiter::Event;
use baton_policy::gangs::GangId;

/// One tenant in this many is reserved for the coordinator's user or root.
const OWN_PART: usize = 8;

/// All that comes with a tenant's welcome.
struct Welcome {
    /// Its slot on the activity page.
    slot: u32,
    files: [Sent; 5],
}

impl Server {
    /// A program wants to be a tenant.
    pub(super) fn greet(
        &mut self,
        mut peer: Peer,
        name: String,
        scheduling: Scheduling,
        (need, gang): (Option<Need>, Option<GangId>),
        gpu: [u8; 16],
        sent: Option<OwnedFd>,
    ) {
        if let Some(closed) = self.front.lobby.closed(Refusal::Failed) {
            return refuse(&mut peer, closed);
        }
        let guest = peer.guest();
        if let Some(kept_out) = self.front.lobby.kept_out(guest) {
            return refuse(&mut peer, kept_out);
        }
        if let Some(never) = need.and_then(|need| self.card.memory.never_has(&self.card.tenants, need)) {
            return refuse(&mut peer, (Refusal::Failed, never));
        }
        let process = match self.process_of(&peer, gpu, sent) {
            Ok(process) => process,
            Err(refused) => return refuse(&mut peer, refused),
        };
        let name = if name.is_empty() { "unnamed".to_owned() } else { shown(&name) };
        let (scheduling, met) = self.options.quotas.bound(guest, scheduling);
        met.iter().for_each(|met| baton_messages::warn!(is_scheduled_otherwise(&name, met)));
        let newcomer = Newcomer { peer, name, process, scheduling, met, need, gang };
        // Others may have come before it, and wait until this round ends.
        let is_behind = self.do_others_return()
            || self.first_newcomer().is_some()
            || need.is_some() && self.front.lobby.waiting().next().is_some();
        let lacks = self.lacks(&newcomer);
        if lacks == Lacks::Nothing && !is_behind {
            return self.welcome(newcomer);
        }
        match self.front.lobby.full(guest) {
            Some(full) => refuse(&mut { newcomer }.peer, full),
            None => self.front.lobby.wait(newcomer, lacks.bytes()),
        }
    }

    /// The obstacle that keeps a newcomer out, for now.
    pub(super) fn lacks(&self, newcomer: &Newcomer) -> Lacks {
        let guest = newcomer.peer.guest();
        if self.front.lobby.kept_out(guest).is_some() || !is_room_for(&self.card.tenants, &self.options, guest) {
            return Lacks::Place;
        }
        match newcomer.need.map_or(0, |need| self.card.memory.lacking(&self.card.tenants, need)) {
            0 => Lacks::Nothing,
            bytes => Lacks::Memory(bytes),
        }
    }

    /// True while those of the coordinator before may come back, which come first: one of them may have the baton.
    fn do_others_return(&self) -> bool {
        let awaits_pages = self.card.memory.awaits_pages();
        self.card.takeover.as_ref().is_some_and(|takeover| takeover.is_early() || awaits_pages)
    }

    /// The place of the waiting newcomer that may come in first.
    fn first_newcomer(&self) -> Option<usize> {
        if self.card.tenants.len() >= self.options.tuning.max_tenants {
            return None;
        }
        self.front.lobby.first(self.options.tuning.max_wait, |newcomer| self.lacks(newcomer))
    }

    /// The process that greets, or why it is not let in.
    fn process_of(&self, peer: &Peer, gpu: [u8; 16], sent: Option<OwnedFd>) -> Result<Process, Refused> {
        let ours = self.card.memory.gpu();
        if gpu != ours.uuid {
            let (serves, asked) = (socket_path::gpu_name(ours.uuid), socket_path::gpu_name(gpu));
            return Err((Refusal::OtherGpu, baton_messages::other_gpu(serves, &ours.name, asked)));
        }
        let failed = |error: &dyn std::fmt::Display| (Refusal::Failed, baton_messages::unknown_process(error));
        let sent = sent.ok_or_else(|| failed(&baton_messages::NO_DESCRIPTOR))?;
        Process::of_peer(peer, sent).map_err(|error| busy(&error).unwrap_or_else(|| failed(&error)))
    }

    /// Lets in the programs that have waited the longest, as far as there is room.
    pub(super) fn welcome_newcomers(&mut self) {
        if self.do_others_return() {
            return;
        }
        while let Some(at) = self.first_newcomer() {
            let Some(newcomer) = self.front.lobby.take(at) else { return };
            self.welcome(newcomer);
        }
        if self.card.tenants.is_empty() {
            self.refuse_those_in_vain();
        }
    }

    /// Without tenants there is as much memory as there can be.
    fn refuse_those_in_vain(&mut self) {
        let never_has = |newcomer: &Newcomer| self.card.memory.never_has(&self.card.tenants, newcomer.need?);
        let refused = |(at, (newcomer, _))| Some((at, never_has(newcomer)?));
        let all: Vec<(usize, Message)> = self.front.lobby.waiting().enumerate().filter_map(refused).collect();
        for (at, why) in all.into_iter().rev() {
            if let Some(mut newcomer) = self.front.lobby.take(at) {
                refuse(&mut newcomer.peer, (Refusal::Failed, why));
            }
        }
    }

    /// From here on no program is let in, not even one that already waits.
    pub(super) fn send_newcomers_away(&mut self) {
        self.front.lobby.close();
        while let (Some(mut newcomer), Some(closed)) =
            (self.front.lobby.take(0), self.front.lobby.closed(Refusal::Failed))
        {
            refuse(&mut newcomer.peer, closed);
        }
    }

    /// Tells a peer, for a program that is about to come, the offer that the program will find.
    pub(super) fn answer_expect(&mut self, mut peer: Peer) {
        // A program that comes again then finds no coordinator, and starts another one.
        if let Some(closed) = self.front.lobby.closed(Refusal::Busy) {
            return refuse(&mut peer, closed);
        }
        let guest = peer.guest();
        let (bytes, all) = (self.memory().offer_of_later(guest), self.card.memory.most_of(guest));
        let offer = Admission::Offer { gpu: self.card.memory.gpu().uuid, driver: self.options.driver, bytes, all };
        // Before the answer, after which it may have ended, and others go on for it.
        self.card.outsiders.expect(link::peer(peer.as_fd()).and_then(|peer| peer.process));
        if peer.send(&offer, &[]).is_ok() {
            self.front.lobby.stays(peer);
        }
    }

    fn welcome(&mut self, mut newcomer: Newcomer) {
        let met = std::mem::take(&mut newcomer.met);
        let unwelcome = match self.make_tenant(newcomer) {
            Ok((tenant, Welcome { slot, files })) => {
                let scheduling = tenant.scheduling.wanted;
                let joined = What::Joined { name: tenant.name.as_str().into(), class: tenant.class() };
                baton_messages::info!(joined(&tenant.name, tenant.class(), &tenant.connection.process));
                self.card.outsiders.expect(tenant.connection.process.pid());
                if self.card.tenants.is_empty() {
                    self.card.memory.nobody_is_here();
                }
                match self.card.tenants.add(tenant) {
                    Ok(id) => {
                        met.into_iter().for_each(|met| self.card.tenants.record_met(id, met));
                        self.card.recorder.record(id, joined);
                        self.keep_tenant(id);
                        // From here on it counts upon being a tenant, also the next coordinator's.
                        self.card.tenants.tell_with(id, &Admission::Welcome { tenant: id.0, slot }, &files);
                        return self.will_tell(id, Event::Joined { scheduling });
                    }
                    Err(unwelcome) => {
                        self.card.corun.leave(self.card.tenants.next_id());
                        unwelcome
                    }
                }
            }
            Err(unwelcome) => unwelcome,
        };
        let (mut peer, error) = unwelcome;
        refuse(&mut peer, busy(&error).unwrap_or_else(|| (Refusal::Failed, baton_messages::of_system(error))));
    }

    /// Makes a tenant of a newcomer. Returns its welcome too.
    fn make_tenant(&mut self, newcomer: Newcomer) -> Result<(Tenant, Welcome), (Peer, io::Error)> {
        let Newcomer { peer: control, name, process, scheduling, need, gang, .. } = newcomer;
        let prepared = (|| -> io::Result<_> {
            let (page, page_file) = Shared::written_by_us()?;
            let theirs = TenantsPage::new()?;
            let (ours, requests): (OwnedFd, OwnedFd) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
            let sent = theirs.file().as_fd().try_clone_to_owned()?;
            Ok((page, page_file, theirs, sent, ours, requests))
        })();
        let (page, page_file, theirs, sent, ours, requests) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Err((control, error)),
        };
        let name = self.free_name(name);
        let page: Shared<baton_contract::page::CoordinatorPage> = page;
        page.version.store(control.version().number(), Relaxed);
        let (total, could_have) = self.memory().first_offer(control.guest());
        page.arena_bytes.store(total, Relaxed);
        page.could_have_bytes.store(could_have, Relaxed);
        let id = self.card.tenants.next_id();
        if let Err(error) = self.card.corun.join(id, process.domain(), scheduling.class) {
            return Err((control, error));
        }
        let Some((slot, [activity, elsewhere])) = self.card.corun.place(id) else {
            self.card.corun.leave(id);
            return Err((control, io::ErrorKind::NotFound.into()));
        };
        let files = [page_file.into(), sent.into(), requests.into(), activity, elsewhere];
        let pages = Pages { coordinators: page, tenants: theirs };
        let requests = Peer::new(ours, control.gpu(), control.guest()).speaking(control.version());
        let connection = Connection::new(process, (control, requests), pages);
        let mut tenant = Tenant::new(name, connection, scheduling, need);
        tenant.gang = gang;
        tenant.scheduling.stuck = Stuck {
            keeps_memory: self.options.isolation == Isolation::Strict,
            killed_after: self.options.on_stuck.killed_after(tenant.connection.control.guest().is_some()),
            ..Stuck::default()
        };
        Ok((tenant, Welcome { slot, files }))
    }

    /// The quota that keeps a guest's program waiting, if it is one that does.
    pub(super) fn quota_in_the_way_of(&self, newcomer: &Newcomer) -> Option<Met> {
        let most = self.options.quotas.tenants(self.options.tuning.max_tenants);
        let has = self.card.tenants.of_guests().of(newcomer.peer.guest()?);
        (has >= most).then(|| Met { quota: Quota::Tenants, most: most.to_string(), asked: (has + 1).to_string() })
    }

    /// A name that tells the tenant from the others: the one it gave, with a number if that is taken.
    fn free_name(&self, name: String) -> String {
        let taken = |name: &str| self.card.tenants.iter().any(|(_, tenant)| tenant.name == name);
        if !taken(&name) {
            return name;
        }
        (2..).map(|n| format!("{name}-{n}")).find(|name| !taken(name)).unwrap_or(name)
    }
}

/// True if there is room for one more tenant: of this guest, or of the coordinator's user or root.
fn is_room_for(tenants: &Tenants, options: &Options, guest: Option<u32>) -> bool {
    let most = options.tuning.max_tenants;
    let has_part_left = |guest: u32| {
        let (own, all) = (tenants.of_guests().of(guest), tenants.of_guests().all());
        own < options.quotas.tenants(most) && (all == 0 || all < most - (most / OWN_PART).max(1))
    };
    tenants.len() < most && guest.is_none_or(has_part_left)
}

/// The refusal for a peer for which the system has no room now. The peer is to come again.
fn busy(error: &io::Error) -> Option<Refused> {
    link::is_want_of_room(error).then(|| (Refusal::Busy, baton_messages::no_more_connections()))
}
