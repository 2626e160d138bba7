//! Tenants of a coordinator that has died, until they have told this one what they have.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Instant;

use baton_contract::messages::{
    Channels, FromTenant, GateState, HeldExtent, MemoryReport, Message as _, PreemptionReport, TakeoverReport,
    TurnReport,
};

use super::tenants::connection::Pages;
use super::tenants::facts::Facts;
use super::tenants::peer::Peer;
use super::tenants::process::Process;
use baton_books::table::Found;
use baton_policy::arbiter::TenantId;

/// The most messages of a tenant that are read in a round.
const REPORTS: usize = 64;

/// Tenants that have yet to come back.
#[derive(Debug)]
pub(super) struct Takeover {
    pub(super) found: Found,
    /// The time at which those that have answered go on without the others.
    pub(super) until: Instant,
    pub(super) returning: BTreeMap<TenantId, Returning>,
}

/// A tenant that has yet to come back.
#[derive(Debug)]
pub(super) struct Returning {
    pub(super) facts: Facts,
    pub(super) process: Process,
    pub(super) control: Peer,
    pub(super) requests: Peer,
    pub(super) pages: Pages,
    /// Its answer has begun: what came before was meant for the coordinator before.
    pub(super) answers: bool,
    /// A call has waited at its closed gate since then.
    pub(super) demanded: bool,
    pub(super) extents: Vec<HeldExtent>,
    pub(super) spare: Vec<(u64, u64)>,
    pub(super) channels: Option<(Channels, u32, Option<OwnedFd>)>,
    pub(super) stands: Option<Stands>,
}

/// The end of its answer ([`TakeoverReport::Stands`]).
#[derive(Clone, Copy, Debug)]
pub(super) struct Stands {
    pub(super) gate: GateState,
    pub(super) grant: u64,
    pub(super) demands: bool,
    pub(super) asks: bool,
}

impl Returning {
    /// Reads its messages. False if it cannot come back.
    pub(super) fn hear(&mut self) -> bool {
        for _ in 0..REPORTS {
            let mut received = match self.control.receive() {
                Ok(Some(received)) => received,
                Ok(None) => return true,
                Err(_) => return false,
            };
            let Ok((gpu, message)) = FromTenant::decode(&received.message) else { return false };
            let complete = message.descriptors() == received.descriptors.len();
            if self.control.check(gpu).is_err() || !complete && !received.truncated {
                return false;
            }
            self.note(message, received.descriptors.pop().filter(|_| complete));
        }
        true
    }

    fn note(&mut self, message: FromTenant, descriptor: Option<OwnedFd>) {
        match message {
            FromTenant::Takeover(TakeoverReport::Extents { extents }) => {
                self.answers = true;
                self.extents.extend(extents);
            }
            FromTenant::Takeover(TakeoverReport::Stands { gate, grant, demands, asks }) => {
                // A thread may have demanded after that was looked at, and before it was told.
                let demands = demands || self.demanded;
                self.stands = Some(Stands { gate, grant, demands, asks });
            }
            // All else that is of use was told again.
            _ if !self.answers => {}
            FromTenant::Memory(MemoryReport::Spare { ranges }) => self.spare.extend(ranges),
            FromTenant::Preemption(PreemptionReport::Channels { channels, begun }) => {
                self.channels = Some((channels, begun, descriptor));
            }
            FromTenant::Turn(TurnReport::Demand) => {
                self.demanded = true;
                if let Some(stands) = &mut self.stands {
                    stands.demands = true;
                }
            }
            _ => {}
        }
    }
}

impl Takeover {
    /// The time at which those that have answered go on.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        (!self.returning.is_empty() && self.until > Instant::now()).then_some(self.until)
    }
}
