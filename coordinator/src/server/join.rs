//! Who comes to the socket, and how a stranger becomes a tenant.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use baton_contract::messages::{Admission, FromTenant, MAX_TEXT, Message as _, Opening, Refusal};
use baton_contract::page::ACTIVITY_SLOTS;
use baton_contract::scheduling::Scheduling;
use baton_contract::socket_path;
use baton_contract::wire::{Malformed, VERSION};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::Server;
use super::event_loop::{Interest, Source};
use super::strangers::{FULL, Stage};
use super::tenants::connection::{Connection, Pages};
use super::tenants::peer::Peer;
use super::tenants::process::Process;
use super::tenants::shared::{Shared, TenantsPage};
use super::tenants::tenant::Tenant;
use crate::endpoint::Closing;
use crate::policy::arbiter::Event;

/// Who has greeted and waits until there is room for one more tenant.
#[derive(Debug)]
pub(super) struct Newcomer {
    number: u32,
    pub(super) peer: Peer,
    pub(super) name: String,
    pub(super) process: Process,
    pub(super) since: Instant,
    scheduling: Scheduling,
}

/// Why somebody is not let in.
type Refused = (Refusal, String);

impl Server {
    /// Takes everybody in who waits at the socket.
    pub(super) fn accept(&mut self) {
        self.strangers.accept(&self.endpoint, self.newcomers.len());
    }

    /// With nothing left to do: whether nobody is on the way either, so that the coordinator can end. From then on
    /// nobody finds it any more.
    pub(super) fn close_if_unwanted(&mut self) -> bool {
        let (strangers, newcomers) = (&mut self.strangers, self.newcomers.len());
        let failed = |error: &dyn std::fmt::Display| {
            log::error!("nobody can join any more: {error}");
            true
        };
        match self.endpoint.close_if_unwanted(|socket| strangers.take_in(socket, newcomers)) {
            Ok(Closing::Closed) => true,
            // It may listen by another socket now.
            Ok(Closing::Wanted) => self
                .events
                .ensure(&self.endpoint, Source::Listener, Interest::Read)
                .map_or_else(|error| failed(&error), |()| false),
            Err(error) => failed(&error),
        }
    }

    /// A stranger's first message decides what it is.
    pub(super) fn hear_stranger(&mut self, at: u32) {
        let Some(stranger) = self.strangers.get_mut(at) else { return };
        if stranger.stage == Stage::Reading {
            // A tool that has not read all of its answer yet.
            if stranger.peer.send_kept().is_err() || !stranger.peer.keeps() {
                self.strangers.remove(at);
            }
            return;
        }
        let received = match stranger.peer.receive() {
            Ok(None) => return,
            Ok(Some(received)) => Some(received),
            Err(_) => None,
        };
        let Some(stranger) = self.strangers.remove(at) else { return };
        let mut peer = stranger.peer;
        // Who is expected has nothing more to say.
        let Some(mut received) = received.filter(|_| stranger.stage == Stage::Silent) else { return };
        let decoded = FromTenant::decode(&received.message);
        if received.truncated && matches!(decoded, Ok(FromTenant::Opening(Opening::Hello { .. }))) {
            return refuse(&mut peer, (Refusal::Busy, FULL.to_owned()));
        }
        let refusal = match decoded.and_then(|message| message.expect(received.descriptors.len())) {
            Ok(FromTenant::Opening(Opening::Hello { name, scheduling, gpu })) => {
                let sent = received.descriptors.pop();
                match self.greet(peer, name, scheduling, gpu, sent) {
                    Ok(()) => return,
                    Err((returned, refusal)) => {
                        peer = returned;
                        refusal
                    }
                }
            }
            Ok(FromTenant::Opening(Opening::Expect)) => {
                let bytes = self.memory.offered();
                let offer = Admission::Offer { gpu: self.memory.gpu().uuid, driver: self.options.driver, bytes };
                if peer.send(&offer, &[]).is_ok() {
                    self.strangers.keep(peer, Stage::Expected);
                }
                return;
            }
            Ok(FromTenant::Opening(Opening::Evict { name })) => {
                self.evict_on_request(peer, &name);
                return;
            }
            Ok(FromTenant::Opening(Opening::Set { name, change })) => {
                self.set_on_request(&mut peer, &name, change);
                return;
            }
            Ok(FromTenant::Opening(Opening::Status)) => {
                self.answer_status(&mut peer);
                if peer.keeps() {
                    self.strangers.keep(peer, Stage::Reading);
                }
                return;
            }
            Ok(_) => (Refusal::Malformed, "the first message has to be a greeting".to_owned()),
            Err(error @ Malformed::Version { .. }) => (Refusal::Version, error.to_string()),
            Err(error) => (Refusal::Malformed, error.to_string()),
        };
        refuse(&mut peer, refusal);
    }

    /// Makes a tenant, has it wait for that, or says why not.
    fn greet(
        &mut self,
        peer: Peer,
        name: String,
        scheduling: Scheduling,
        gpu: [u8; 16],
        sent: Option<OwnedFd>,
    ) -> Result<(), (Peer, Refused)> {
        if gpu != self.memory.gpu().uuid {
            let text = format!(
                "this coordinator serves {} ({}), the program uses {}",
                socket_path::gpu_name(self.memory.gpu().uuid),
                self.memory.gpu().name,
                socket_path::gpu_name(gpu)
            );
            return Err((peer, (Refusal::OtherGpu, text)));
        }
        let failed =
            |error: &dyn std::fmt::Display| (Refusal::Failed, format!("nobody knows which process this is: {error}"));
        let Some(sent) = sent else { return Err((peer, failed(&"no descriptor came"))) };
        let process = match Process::of_peer(&peer, sent) {
            Ok(process) => process,
            Err(error) => return Err((peer, failed(&error))),
        };
        let number = self.last_newcomer.wrapping_add(1);
        let mut newcomer = Newcomer { number, peer, name, process, since: Instant::now(), scheduling };
        if self.tenants.len() >= self.options.max_tenants || !self.newcomers.is_empty() {
            let ahead = self.newcomers.len() as u32;
            self.last_newcomer = number;
            let watched = self.events.add(&newcomer.peer, Source::Newcomer(number), Interest::Read);
            if watched.is_ok() && newcomer.peer.send(&Admission::Queued { ahead }, &[]).is_ok() {
                self.newcomers.push_back(newcomer);
            }
            return Ok(());
        }
        self.welcome(newcomer);
        Ok(())
    }

    /// Lets those in who have waited for the longest, as many as there is room for.
    pub(super) fn welcome_newcomers(&mut self) {
        while self.tenants.len() < self.options.max_tenants
            && let Some(newcomer) = self.newcomers.pop_front()
        {
            self.events.remove(&newcomer.peer);
            self.welcome(newcomer);
        }
    }

    /// One that waits has nothing to say: it has gone.
    pub(super) fn hear_newcomer(&mut self, number: u32) {
        let is_gone = |newcomer: &Newcomer| !matches!(newcomer.peer.receive(), Ok(None));
        let at = self.newcomers.iter().position(|newcomer| newcomer.number == number);
        if let Some(newcomer) = at.and_then(|at| self.newcomers.get(at)).filter(|newcomer| is_gone(newcomer)) {
            self.events.remove(&newcomer.peer);
            at.map(|at| self.newcomers.remove(at));
        }
    }

    fn welcome(&mut self, newcomer: Newcomer) {
        match self.make_tenant(newcomer) {
            Ok(tenant) => {
                let scheduling = tenant.scheduling.wanted;
                log::info!("{} ({}, {}) joined", tenant.name, tenant.class(), tenant.connection.process);
                match self.tenants.add(tenant) {
                    Ok(id) => self.tell_arbiter(id, Event::Joined { scheduling }),
                    Err(error) => log::error!("a connection cannot be watched: {error}"),
                }
            }
            Err((mut peer, error)) => refuse(&mut peer, (Refusal::Failed, error.to_string())),
        }
    }

    fn make_tenant(&mut self, newcomer: Newcomer) -> Result<Tenant, (Peer, io::Error)> {
        let Newcomer { peer: mut control, name, process, scheduling, .. } = newcomer;
        let prepared = (|| -> io::Result<_> {
            let (page, page_file) = Shared::written_by_us()?;
            let theirs = TenantsPage::new()?;
            let (ours, requests): (OwnedFd, OwnedFd) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
            Ok((page, page_file, theirs, ours, requests))
        })();
        let (page, page_file, theirs, ours, requests) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Err((control, error)),
        };
        let name = self.free_name(name);
        let page: Shared<baton_contract::page::CoordinatorPage> = page;
        page.version.store(VERSION, Relaxed);
        page.arena_bytes.store(self.memory.offered().saturating_sub(self.tenants.totals().immovable), Relaxed);
        let slot = self.corun.give(self.tenants.next_id(), scheduling.class);
        let welcome = Admission::Welcome { tenant: self.tenants.next_id().0, slot: slot.unwrap_or(ACTIVITY_SLOTS) };
        let files = [page_file.as_fd(), theirs.file().as_fd(), requests.as_fd(), self.corun.file(slot)];
        if control.send(&welcome, &files).is_err() {
            self.corun.free(slot);
            return Err((control, io::ErrorKind::BrokenPipe.into()));
        }
        let pages = Pages { coordinators: page, tenants: theirs };
        let connection = Connection::new(process, (control, Peer::new(ours)), pages);
        Ok(Tenant::new(name, connection, scheduling, slot))
    }

    /// A name that tells the tenant from the others: the one it gave, with a number if that is taken.
    fn free_name(&self, name: String) -> String {
        let name: String = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let name = if name.is_empty() { "unnamed".to_owned() } else { name };
        let taken = |name: &str| self.tenants.iter().any(|(_, tenant)| tenant.name == name);
        if !taken(&name) {
            return name;
        }
        (2..).map(|n| format!("{name}-{n}")).find(|name| !taken(name)).unwrap_or(name)
    }

    /// Sends a tool how things stand.
    fn answer_status(&self, peer: &mut Peer) {
        let text = serde_json::to_vec(&self.status()).unwrap_or_default();
        let pieces = text.chunks(MAX_TEXT).count();
        for (at, piece) in text.chunks(MAX_TEXT).enumerate() {
            let message = Admission::Text { piece: piece.to_vec(), more: at + 1 < pieces };
            if peer.send(&message, &[]).is_err() {
                return;
            }
        }
    }
}

/// It has only this one answer to get, and goes.
fn refuse(peer: &mut Peer, (reason, text): Refused) {
    log::warn!("refused a connection: {text}");
    let _ = peer.send(&Admission::Refused { reason, text }, &[]);
}
