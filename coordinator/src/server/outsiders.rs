//! Processes on the GPU that are no tenants, and those among them that a program under Baton has started.
//!
//! A program that loses its environment on the way (`ssh`, `sudo`, `env -i`) runs beside Baton, unnoticed: its memory is only missing.
//! The system tells each process's parent. It no longer does when a program has put itself in the background and left its group, so
//! such a program counts as having no known parent.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use baton_report::tenant as shown;

use super::tenants::table::Tenants;
use crate::device::gpu::Gpu;
use crate::device::holders::{CensusError, Holder};
use crate::device::lookout::{Identity, Kin, Lookout, Seen, Sighting, lives};
use crate::device::wake::Waker;

/// The most programs under Baton that are remembered, living ones first.
const MOST_ROOTS: usize = 1024;

/// Age at which an observation no longer counts: the driver answers in milliseconds, and is asked again and again.
const OUTDATED: Duration = Duration::from_secs(60);

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Outsider {
    /// The kind of the event in the form that tools get.
    pub(super) shown: shown::Outsider,
    holder: Holder,
    identity: Option<Identity>,
    is_settled: bool,
}

impl fmt::Display for Outsider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.holder.fmt(f)
    }
}

/// The reason why the outsiders are not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unlisted {
    /// The first scan has not ended yet.
    #[error("{}", baton_messages::NO_LOOK_YET)]
    NoLookYet,
    /// The last scan is too old.
    #[error("{}", baton_messages::NO_LOOK_LATELY)]
    NoLookLately,
    /// The numbers of some tenants' processes cannot be seen from here.
    #[error("{}", baton_messages::OTHER_NAMESPACES)]
    OtherNamespaces,
    /// The last scan failed.
    #[error(transparent)]
    Census(#[from] CensusError),
}

/// The known outsiders.
#[derive(Debug)]
pub(super) struct Outsiders {
    lookout: Lookout,
    reports: Receiver<Seen>,
    seen: Option<Seen>,
    /// Programs of `baton run`, and tenants.
    roots: Vec<Identity>,
    /// True if there were some that cannot be seen from here.
    has_unseen_roots: bool,
    /// Tenants that have ended since it was looked.
    left: Vec<(i32, Instant)>,
    told: BTreeSet<Identity>,
    has_told_why: bool,
}

impl Outsiders {
    pub(super) fn new(gpu: &Gpu, waker: Waker) -> std::io::Result<Self> {
        let (sender, reports) = channel();
        Ok(Self {
            lookout: Lookout::start(gpu, sender, waker)?,
            reports,
            seen: None,
            roots: Vec::new(),
            has_unseen_roots: false,
            left: Vec::new(),
            told: BTreeSet::new(),
            has_told_why: false,
        })
    }

    /// Schedules another scan soon.
    pub(super) fn look(&self) {
        self.lookout.look();
    }

    /// A program is under Baton; none if it is of a PID namespace that cannot be seen from here.
    pub(super) fn expect(&mut self, pid: Option<i32>) {
        self.has_unseen_roots |= pid.is_none();
        // It may have ended already.
        let root = pid.and_then(Identity::of).filter(|root| !self.roots.contains(root));
        let Some(root) = root else { return };
        if self.roots.len() >= MOST_ROOTS {
            self.roots.retain(|root| lives(root.pid));
            let spare = (self.roots.len() + 1).saturating_sub(MOST_ROOTS);
            self.roots.drain(..spare);
        }
        self.roots.push(root);
    }

    /// Notes that a tenant has left. Earlier observations of it no longer count.
    pub(super) fn on_left(&mut self, pid: Option<i32>) {
        self.left.extend(pid.map(|pid| (pid, Instant::now())));
        self.look();
    }

    /// Takes in the last scan, and logs new programs.
    pub(super) fn hear(&mut self, tenants: &Tenants) {
        let Some(seen) = self.reports.try_iter().last() else { return };
        self.left.retain(|(_, since)| *since >= seen.at);
        self.seen = Some(seen);
        match self.list(tenants) {
            Ok(all) => {
                for outsider in all.into_iter().filter(|outsider| outsider.is_settled) {
                    if outsider.identity.is_none_or(|identity| !self.told.insert(identity)) {
                        continue;
                    }
                    if outsider.shown.from_baton == Some(true) {
                        baton_messages::warn!(is_lost(outsider));
                    } else {
                        baton_messages::info!(uses_the_gpu_without_baton(outsider));
                    }
                }
                self.told.retain(|identity| lives(identity.pid));
            }
            Err(why) if !self.has_told_why => {
                baton_messages::info!(others_are_not_known(why));
                self.has_told_why = true;
            }
            Err(_) => {}
        }
    }

    /// All outsiders, or the reason why they are not known.
    pub(super) fn list(&self, tenants: &Tenants) -> Result<Vec<Outsider>, Unlisted> {
        let seen = self.seen.as_ref().ok_or(Unlisted::NoLookYet)?;
        let all = seen.all.as_ref().map_err(Clone::clone)?;
        if seen.at.elapsed() > OUTDATED {
            return Err(Unlisted::NoLookLately);
        }
        let numbers: Vec<Option<i32>> = tenants.iter().map(|(_, tenant)| tenant.connection.process.pid()).collect();
        if numbers.contains(&None) {
            return Err(Unlisted::OtherNamespaces);
        }
        let is_one = |sighting: &&Sighting| {
            let pid = sighting.holder.pid as i32;
            let is_gone = || match &sighting.kin {
                Some(kin) => Identity::of(pid) != kin.line.first().copied(),
                None => pid != 0 && !lives(pid),
            };
            let has_left = || self.left.iter().any(|(left, since)| *left == pid && *since >= seen.at);
            !numbers.contains(&Some(pid)) && !has_left() && !is_gone()
        };
        Ok(all.iter().filter(is_one).map(|sighting| self.outsider(sighting)).collect())
    }

    fn outsider(&self, sighting: &Sighting) -> Outsider {
        let Sighting { holder, name, kin, is_settled } = sighting;
        Outsider {
            shown: shown::Outsider {
                pid: (holder.pid != 0).then_some(holder.pid as i32),
                name: name.clone(),
                bytes: holder.bytes,
                from_baton: kin.as_ref().and_then(|kin| self.descends(kin)),
            },
            holder: *holder,
            identity: kin.as_ref().and_then(|kin| kin.line.first().copied()),
            is_settled: *is_settled,
        }
    }

    fn descends(&self, kin: &Kin) -> Option<bool> {
        // The process that began a group may have ended; no other process gets its number while the group exists.
        let began =
            |root: &Identity| kin.groups.contains(&root.pid) && Identity::of(root.pid).is_none_or(|now| now == *root);
        let descends = self.roots.iter().any(|root| kin.line.contains(root) || began(root));
        (descends || !self.has_unseen_roots).then_some(descends)
    }
}
