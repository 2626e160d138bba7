//! Who comes to the socket, and how a stranger becomes a tenant.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use baton_contract::messages::{FromCoordinator, FromTenant, MAX_TEXT, Refusal};
use baton_contract::page::BOARD_PLACES;
use baton_contract::wire::{Malformed, VERSION};
use baton_contract::{scheduling::Scheduling, socket_path};
use rustix::net::{AddressFamily, SocketFlags, SocketType, accept_with, socketpair, sockopt::socket_peercred};
use rustix::process::{PidfdFlags, geteuid, pidfd_open};

use super::peer::Peer;
use super::shared::Shared;
use super::tenant::Tenant;
use super::{Server, log};
use crate::arbiter::{Event, TenantId};

/// Strangers that have said nothing yet; when more come, the oldest goes.
const MOST_STRANGERS: usize = 64;
/// More tenants than a GPU has room for contexts of.
const MOST_TENANTS: usize = 256;

impl Server {
    /// Takes everybody in who waits at the socket.
    pub(super) fn accept(&mut self) {
        loop {
            match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    // Only this user, and root, may connect and steer.
                    let ours = socket_peercred(&socket).is_ok_and(|who| who.uid == geteuid() || who.uid.is_root());
                    if !ours {
                        continue;
                    }
                    if self.strangers.len() == MOST_STRANGERS {
                        self.strangers.pop_front();
                    }
                    self.strangers.push_back(Peer::new(socket));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// A stranger's first message decides what it is.
    pub(super) fn hear_stranger(&mut self, at: usize) {
        let Some(peer) = self.strangers.get_mut(at) else { return };
        if peer.keeps() {
            // A tool that has not read all of its answer yet.
            if peer.send_kept().is_err() || !peer.keeps() {
                self.strangers.remove(at);
            }
            return;
        }
        let received = match peer.receive() {
            Ok(None) => return,
            Ok(Some(received)) => Some(received),
            Err(_) => None,
        };
        let Some(mut peer) = self.strangers.remove(at) else { return };
        let Some(received) = received else { return };
        let refusal = match FromTenant::decode(&received.message) {
            Ok(FromTenant::Hello { name, scheduling, gpu }) => match self.welcome(peer, name, scheduling, gpu) {
                Ok(()) => return,
                Err((returned, refusal)) => {
                    peer = returned;
                    refusal
                }
            },
            Ok(FromTenant::Evict { name }) => {
                self.evict_on_request(peer, &name);
                return;
            }
            Ok(FromTenant::Set { name, change }) => {
                self.set_on_request(&mut peer, &name, change);
                return;
            }
            Ok(FromTenant::Status) => {
                self.answer_status(&mut peer);
                if peer.keeps() {
                    self.strangers.push_back(peer);
                }
                return;
            }
            Ok(_) => (Refusal::Malformed, "the first message has to be a greeting".to_owned()),
            Err(error @ Malformed::Version { .. }) => (Refusal::Version, error.to_string()),
            Err(error) => (Refusal::Malformed, error.to_string()),
        };
        log(format_args!("refused a connection: {}", refusal.1));
        // It has only this one answer to get, and goes.
        let _ = peer.send(&FromCoordinator::Refused { reason: refusal.0, text: refusal.1 }, &[]);
    }

    /// Makes a tenant, or says why not.
    fn welcome(
        &mut self,
        peer: Peer,
        name: String,
        scheduling: Scheduling,
        gpu: [u8; 16],
    ) -> Result<(), (Peer, (Refusal, String))> {
        if gpu != self.gpu.uuid {
            let text = format!(
                "this coordinator serves {} ({}), the program uses {}",
                socket_path::gpu_name(self.gpu.uuid),
                self.gpu.name,
                socket_path::gpu_name(gpu)
            );
            return Err((peer, (Refusal::OtherGpu, text)));
        }
        if self.tenants.len() >= MOST_TENANTS {
            return Err((peer, (Refusal::TooMany, format!("there are {MOST_TENANTS} tenants already"))));
        }
        match self.make_tenant(peer, name, scheduling) {
            Ok(tenant) => {
                let id = TenantId(self.next_tenant);
                self.next_tenant += 1;
                log(format_args!("{} ({}, process {}) joined", tenant.name, tenant.class(), tenant.pid));
                self.tenants.insert(id, tenant);
                self.tell_arbiter(id, Event::Joined { scheduling });
                Ok(())
            }
            Err((peer, error)) => Err((peer, (Refusal::Failed, error.to_string()))),
        }
    }

    fn make_tenant(
        &mut self,
        mut control: Peer,
        name: String,
        scheduling: Scheduling,
    ) -> Result<Tenant, (Peer, io::Error)> {
        let prepared = (|| -> io::Result<_> {
            let pid = socket_peercred(control.as_fd())?.pid;
            let process = pidfd_open(pid, PidfdFlags::empty())?;
            let (page, page_file) = Shared::new(self.next_tenant, true)?;
            let (theirs, their_file) = Shared::new(self.next_tenant, false)?;
            let (ours, requests): (OwnedFd, OwnedFd) =
                socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
            Ok((pid, process, page, page_file, theirs, their_file, ours, requests))
        })();
        let (pid, process, page, page_file, theirs, their_file, ours, requests) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Err((control, error)),
        };
        let name = self.free_name(name, pid.as_raw_nonzero().get());
        let page: Shared<baton_contract::page::CoordinatorPage> = page;
        page.version.store(VERSION, Relaxed);
        page.arena_bytes.store(self.offered(), Relaxed);
        let place = self.places.give(scheduling.class);
        let welcome = FromCoordinator::Welcome { tenant: self.next_tenant, place: place.unwrap_or(BOARD_PLACES) };
        let files = [page_file.as_fd(), their_file.as_fd(), requests.as_fd(), self.places.file(place)];
        if control.send(&welcome, &files).is_err() {
            self.places.free(place);
            return Err((control, io::ErrorKind::BrokenPipe.into()));
        }
        Ok(Tenant {
            name,
            scheduling,
            pid: pid.as_raw_nonzero().get(),
            process,
            control,
            requests: Peer::new(ours),
            asking: false,
            page,
            place,
            theirs,
            extents: Default::default(),
            next_extent: 1,
            batches: Default::default(),
            next_batch: 0,
            grant: 0,
            probes: 0,
            short: None,
            ran: Instant::now(),
            busy: 0,
            peak_bytes: 0,
            stuck: false,
            cut_off: None,
            counted: (0, 0),
            revoked: None,
            pausable: Default::default(),
            hold: None,
            deferred: None,
            silent: false,
            demanded: None,
            history: Default::default(),
            used: Vec::new(),
            scan: None,
            reserved: Vec::new(),
            sent_away: false,
        })
    }

    /// A name that tells the tenant from the others: the one it gave, with a number if that is taken.
    fn free_name(&self, name: String, pid: i32) -> String {
        let name: String = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        let name = if name.is_empty() { format!("process-{pid}") } else { name };
        let taken = |name: &str| self.tenants.values().any(|tenant| tenant.name == name);
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
            let message = FromCoordinator::Text { piece: piece.to_vec(), more: at + 1 < pieces };
            if peer.send(&message, &[]).is_err() {
                return;
            }
        }
    }
}
