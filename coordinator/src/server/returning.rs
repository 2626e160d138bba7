//! Tenants of a coordinator that has died, until they have told this one what they have.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::Instant;

use baton_contract::messages::{
    ExtentId, FromTenant, GateState, HeldExtent, MemoryReport, Message as _, PreemptionReport, TakeoverReport,
    TurnReport,
};

use super::tenants::connection::Pages;
use super::tenants::facts::Facts;
use super::tenants::peer::Peer;
use super::tenants::process::Process;
use baton_books::sharing::Attached;
use baton_books::table::Found;
use baton_policy::arbiter::TenantId;

/// The most messages of a tenant that are read in a round.
const REPORTS: usize = 64;

/// Tenants that come back together.
#[derive(Debug)]
pub(super) struct Together {
    /// All that they have.
    pub(super) held: BTreeMap<TenantId, BTreeMap<ExtentId, HeldExtent>>,
    /// Their hold on each other's extents, and that of those that are absent.
    pub(super) attached: Vec<Attached>,
    /// Tenants whose connection has ended, but not their process: their work may still write to memory.
    pub(super) absent: BTreeSet<TenantId>,
}

/// Tenants that have yet to come back.
#[derive(Debug)]
pub(super) struct Takeover {
    pub(super) found: Found,
    /// The time at which those that have answered go on without the others.
    pub(super) until: Instant,
    pub(super) returning: BTreeMap<TenantId, Returning>,
    /// The tenants' hold on each other's extents.
    pub(super) attached: Vec<Attached>,
    /// Tenants that are gone, of whose memory others may have some.
    pub(super) gone: BTreeSet<TenantId>,
}

/// A tenant that has yet to come back.
#[derive(Debug)]
pub(super) struct Returning {
    pub(super) facts: Facts,
    pub(super) process: Process,
    pub(super) control: Peer,
    pub(super) requests: Peer,
    pub(super) pages: Pages,
    /// The number of the question.
    pub(super) number: u64,
    /// False if its connection has ended, although its process may not have.
    pub(super) is_connected: bool,
    /// Its answer has begun: what came before was meant for the coordinator before.
    pub(super) answers: bool,
    /// A call has waited at its closed gate since then.
    pub(super) demanded: bool,
    pub(super) extents: Vec<HeldExtent>,
    pub(super) spare: Vec<(u64, u64)>,
    /// The report of its channels, and the control device.
    pub(super) channels: Option<(PreemptionReport, Option<OwnedFd>)>,
    /// Reports that are to be handled when it is a tenant again.
    pub(super) later: Vec<(FromTenant, Option<OwnedFd>)>,
    /// The end of its answer: what it tells from then on is read when it is a tenant again.
    pub(super) stands: Option<Stands>,
}

/// The end of its answer ([`TakeoverReport::Stands`]).
#[derive(Clone, Copy, Debug)]
pub(super) struct Stands {
    pub(super) gate: GateState,
    pub(super) grant: u64,
    pub(super) demands: bool,
    pub(super) asks: bool,
    pub(super) leased: u64,
}

impl Returning {
    /// One that has been asked the question of this number, and has told nothing.
    pub(super) fn new(
        facts: Facts,
        process: Process,
        (control, requests): (Peer, Peer),
        pages: Pages,
        number: u64,
    ) -> Self {
        Self {
            facts,
            process,
            control,
            requests,
            pages,
            number,
            is_connected: true,
            answers: false,
            demanded: false,
            extents: Vec::new(),
            spare: Vec::new(),
            channels: None,
            later: Vec::new(),
            stands: None,
        }
    }

    /// Asks what could not be asked before, and reads its messages. False if it cannot come back.
    pub(super) fn hear(&mut self) -> bool {
        if self.control.send_kept().is_err() {
            return false;
        }
        for _ in 0..REPORTS {
            if self.stands.is_some() {
                return true;
            }
            let mut received = match self.control.receive() {
                Ok(Some(received)) => received,
                Ok(None) => return true,
                Err(_) => return false,
            };
            let Ok(message) = self.control.read(&received.message) else { return false };
            let complete = message.descriptors() == received.descriptors.len();
            if !complete && !received.truncated {
                return false;
            }
            baton_faults::reach("coordinator hears of old", &message);
            self.note(message, received.descriptors.pop().filter(|_| complete));
        }
        true
    }

    fn note(&mut self, message: FromTenant, descriptor: Option<OwnedFd>) {
        match message {
            FromTenant::Takeover(TakeoverReport::Extents { number, extents }) if number == self.number => {
                self.answers = true;
                self.extents.extend(extents);
            }
            FromTenant::Takeover(TakeoverReport::Stands { number, gate, grant, demands, asks, leased })
                if number == self.number =>
            {
                // A thread may have demanded after that was looked at, and before it was told.
                let demands = demands || self.demanded;
                self.stands = Some(Stands { gate, grant, demands, asks, leased });
            }
            // The coordinator before has not heard of it, and it is not told again.
            FromTenant::Memory(MemoryReport::ContextMade { .. } | MemoryReport::ContextGone) => {
                self.later.push((message, descriptor));
            }
            // All else that is of use was told again.
            _ if !self.answers => {}
            // It is told with the end of the answer.
            FromTenant::Memory(MemoryReport::Unleased { .. }) => {}
            FromTenant::Memory(MemoryReport::Spare { ranges }) => self.spare.extend(ranges),
            FromTenant::Preemption(report @ PreemptionReport::Channels { .. }) => {
                self.channels = Some((report, descriptor));
            }
            FromTenant::Turn(TurnReport::Demand) => self.demanded = true,
            _ => self.later.push((message, descriptor)),
        }
    }
}

impl Takeover {
    /// True if these have told all, which come back together. One whose connection has ended is waited for only for a while: its process has
    /// probably ended too.
    fn are_ready(&self, together: &[TenantId]) -> bool {
        let is_late = !self.is_early();
        let is_over = |other: &Returning| other.stands.is_some() || is_late && !other.is_connected;
        together.iter().filter_map(|id| self.returning.get(id)).all(is_over)
    }

    /// Those that are united, or share memory, as sets that have nothing to do with each other.
    fn sets(&self) -> Vec<Vec<TenantId>> {
        let mut sets: Vec<(Vec<TenantId>, BTreeSet<u32>)> = Vec::new();
        let shared = self.attached.iter().map(|one| [one.id.0, one.owner.0]);
        let linked: Vec<[u32; 2]> = shared.collect();
        for (id, one) in &self.returning {
            // These numbers bind it to others: theirs, and its unit's, which is one of theirs.
            let links = linked.iter().filter(|link| link.contains(&id.0)).flatten().copied();
            let mut links: BTreeSet<u32> = links.chain(one.facts.unit).chain([id.0]).collect();
            let mut set = vec![*id];
            for (ids, others) in sets.extract_if(.., |(_, others)| !others.is_disjoint(&links)).collect::<Vec<_>>() {
                set.extend(ids);
                links.extend(others);
            }
            sets.push((set, links));
        }
        sets.into_iter().map(|(ids, _)| ids).collect()
    }

    /// Tenants that can come back now: those with an open gate first.
    pub(super) fn ready(&self) -> Vec<TenantId> {
        let ready = self.sets().into_iter().filter(|set| self.are_ready(set)).flatten();
        let ready = ready.filter_map(|id| Some((id, self.returning.get(&id)?)));
        let mut ready: Vec<(bool, TenantId)> =
            ready.filter_map(|(id, one)| Some((one.stands?.gate != GateState::Open, id))).collect();
        ready.sort_unstable();
        ready.into_iter().map(|(_, id)| id).collect()
    }

    /// Has those that were united by these numbers be so by this one.
    pub(super) fn rename_units(&mut self, numbers: &BTreeSet<u32>, unit: u32) {
        let units = self.returning.values_mut().filter_map(|one| one.facts.unit.as_mut());
        units.filter(|number| numbers.contains(number)).for_each(|number| *number = unit);
    }

    /// All that these tenants have, and their hold on each other's extents, which is theirs from now on.
    pub(super) fn take_attached(&mut self, ids: &[TenantId]) -> Together {
        let held = ids.iter().filter_map(|id| {
            let extents = self.returning.get(id)?.extents.iter().map(|held| (held.id, *held));
            Some((*id, extents.collect()))
        });
        let held = held.collect();
        let absent: BTreeSet<TenantId> =
            self.returning.iter().filter(|(_, one)| !one.is_connected).map(|(id, _)| *id).collect();
        let is_back = |(id, _): (u32, ExtentId)| ids.contains(&TenantId(id));
        let mut attached: Vec<Attached> = self.attached.extract_if(.., |one| is_back(one.id)).collect();
        // One of those that are back may get what is an absent one's.
        let owners: BTreeSet<(u32, ExtentId)> = attached.iter().map(|one| one.owner).collect();
        let is_theirs = |one: &mut Attached| {
            absent.contains(&TenantId(one.id.0)) && (is_back(one.owner) || owners.contains(&one.owner))
        };
        attached.extend(self.attached.extract_if(.., is_theirs));
        Together { held, attached, absent }
    }

    /// True while all may yet answer in time.
    pub(super) fn is_early(&self) -> bool {
        self.until > Instant::now()
    }

    /// The time at which those that have answered go on, or one is asked again.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        let until = (!self.returning.is_empty() && self.is_early()).then_some(self.until);
        self.tries().map(|(_, at)| at).chain(until).min()
    }

    /// Those that are to be asked again, because the system had no room for the question, and when.
    fn tries(&self) -> impl Iterator<Item = (TenantId, Instant)> {
        let connected = self.returning.iter().filter(|(_, one)| one.is_connected);
        connected.filter_map(|(id, one)| Some((*id, one.control.next_try()?)))
    }

    /// Those that are to be asked again by now.
    pub(super) fn to_be_asked(&self) -> Vec<TenantId> {
        let now = Instant::now();
        self.tries().filter(|(_, at)| *at <= now).map(|(id, _)| id).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::sync::Arc;

    use baton_contract::link;
    use baton_contract::messages::TakeoverCommand;
    use baton_contract::wire::GpuNumber;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use rustix::process::{PidfdFlags, getpid, pidfd_open};

    use super::*;
    use crate::server::event_loop::Interest;
    use crate::server::tenants::shared::{Shared, TenantsPage};

    fn returning(control: OwnedFd, requests: OwnedFd) -> Returning {
        let facts = br#"{"name":"one","class":"normal","weight":1,"slo_micros":0,"guest":null,"gpu":0,"need":null,
            "coordinators_before":0}"#;
        let [control, requests] = [control, requests].map(|socket| Peer::new(socket, GpuNumber(0), None));
        let own = pidfd_open(getpid(), PidfdFlags::empty()).expect("a pidfd");
        let (coordinators, _) = Shared::written_by_us().expect("a page");
        let pages = Pages { coordinators, tenants: TenantsPage::new().expect("a page") };
        let process = Process::of_peer(&control, own).expect("a process");
        Returning::new(Facts::read(facts).expect("facts"), process, (control, requests), pages, 1)
    }

    #[test]
    fn one_that_has_many_unread_messages_is_asked_when_it_has_read_them() {
        let pair =
            || socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair");
        let ((ours, theirs), (requests, _their_requests)) = (pair(), pair());
        while link::send(ours.as_fd(), b"of the one before", &[], true).is_ok() {}
        let mut returning = returning(ours, requests);
        let files: Vec<_> = (0..3).map(|_| std::fs::File::open("/dev/null").expect("it is there").into()).collect();
        let with: Vec<Arc<OwnedFd>> = files.into_iter().map(Arc::new).collect();
        returning.control.send(&TakeoverCommand::Resync { number: 1, slot: 0 }, &with).expect("it lives");
        assert_eq!(returning.control.interest(), Interest::Both);
        let read = || link::receive(theirs.as_fd(), true).ok().flatten();
        while read().is_some() {}
        assert!(returning.hear());
        assert_eq!(read().expect("the question").descriptors.len(), 3);
        assert_eq!(returning.control.interest(), Interest::Read);
    }
}
