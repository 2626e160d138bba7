//! Tenants that fit together co-run: those of class latency at any time, the others in the gaps.
//!
//! Three things keep urgent tenants from noticing the others. The others' compute work has a tiny **time slice** on the GPU
//! ([`super::preemption`]), which is set once. Their new launches wait while the **activity page** shows an urgent tenant at work: the
//! tenants see to that among themselves, and the coordinator has no part in a request. And few of them are in flight (*LimitInFlight*).
//!
//! All this holds only while no tenant's memory has to leave for another's. As soon as some has to, co-runners leave, and all take
//! turns.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use baton_contract::class::Class;

use super::tenants::activity::Activity;
use super::tenants::peer::Sent;
use super::tenants::process::Domain;
use super::tenants::table::Tenants;
use baton_policy::arbiter::{Micros, TenantId};
use baton_policy::bursts::{Bursts, Rules, Verdict};

/// The shortest time for which all take turns after they did not fit together.
const APART: Duration = Duration::from_secs(1);
/// Interval between checks that a tenant at work was stopped: the others wait for it meanwhile.
const LOOK: Duration = Duration::from_millis(4);

/// The activity pages, and the consequences of the tenants at work there.
#[derive(Debug)]
pub(super) struct Corun {
    /// True if the user allows it.
    is_allowed: bool,
    activity: Activity,
    /// The tenants at work at the last check.
    seen: BTreeSet<TenantId>,
    /// A tenant's sign was cleared, and `look_at_activity` has yet to act upon that.
    cleared: bool,
    /// Before this time all take turns.
    apart_until: Option<Instant>,
    /// The time of the last check for stopped programs, or when no tenant was at work.
    looked: Option<Instant>,
    bursts: Bursts,
}

impl Corun {
    pub(super) fn new(is_allowed: bool, rules: Rules) -> Self {
        Self {
            is_allowed,
            activity: Activity::default(),
            seen: BTreeSet::new(),
            cleared: false,
            apart_until: None,
            looked: None,
            bursts: Bursts::new(rules),
        }
    }

    /// Others make way for bursts by these from now on.
    pub(super) fn set_rules(&mut self, rules: Rules) {
        self.bursts.set_rules(rules);
    }

    /// Adds a tenant of this domain.
    pub(super) fn join(&mut self, id: TenantId, domain: Option<&Domain>, class: Class) -> io::Result<()> {
        self.activity.join(id, domain, class)
    }

    /// Its slot, and the files of its pages.
    pub(super) fn place(&self, id: TenantId) -> Option<(u32, [Sent; 2])> {
        self.activity.place(id)
    }

    /// Changes a tenant's class: its earlier reports no longer hold.
    pub(super) fn change(&mut self, id: TenantId, class: Class) {
        self.cleared = true;
        self.activity.change(id, class);
    }

    /// Its connection has ended: its reports no longer count.
    pub(super) fn cut_off(&mut self, id: TenantId) {
        self.cleared = true;
        self.activity.ignore(id);
    }

    /// Its process has ended.
    pub(super) fn leave(&mut self, id: TenantId) {
        self.cleared = true;
        self.activity.leave(id);
    }

    /// True if a tenant's sign was cleared since this was asked last.
    pub(super) fn take_cleared(&mut self) -> bool {
        std::mem::take(&mut self.cleared)
    }

    /// True if a tenant reports that it is at work.
    pub(super) fn is_at_work(&self, id: TenantId) -> bool {
        self.activity.is_at_work(id)
    }

    /// True if any tenant reports that it is at work.
    pub(super) fn is_anybody_at_work(&self) -> bool {
        self.activity.is_any_at_work()
    }

    /// The tenants that report that they are at work.
    pub(super) fn who_is_at_work(&self) -> impl Iterator<Item = TenantId> {
        self.activity.at_work()
    }

    /// The tenants at work, and those that were at the last call and no longer are. Each domain is told of the others.
    pub(super) fn changes(&mut self) -> Vec<(TenantId, bool)> {
        self.activity.tell();
        let now = self.activity.at_work().collect();
        let before = std::mem::replace(&mut self.seen, now);
        let ended = before.difference(&self.seen).map(|id| (*id, false));
        self.seen.iter().map(|id| (*id, true)).chain(ended).collect()
    }

    /// No tenant waits for a program that was stopped while it was at work, nor for a page's report that comes from no tenant. When
    /// one that was stopped goes on, it says so anew.
    pub(super) fn clear_stopped(&mut self, tenants: &mut Tenants) {
        // Not while they come and go: a program that is at work for this long may be stopped.
        let is_new = self.looked.is_some_and(|at| at.elapsed() < LOOK);
        let is_anything_said = self.activity.is_anything_said();
        if is_new && is_anything_said {
            return;
        }
        self.looked = Some(Instant::now());
        if !is_anything_said {
            return;
        }
        self.activity.repair();
        for id in self.activity.at_work().collect::<Vec<_>>() {
            let Some(tenant) = tenants.unindexed(id) else { continue };
            let is_overdue = tenant.connection.heartbeat.is_overdue(tenant.connection.theirs.heartbeat.load(Relaxed));
            if tenant.connection.process.is_stopped().unwrap_or(is_overdue) {
                self.cleared = true;
                self.activity.set_idle(id);
            }
        }
    }

    /// True if tenants may co-run, if they fit.
    pub(super) fn is_allowed_now(&self) -> bool {
        self.is_allowed && self.together_again().is_none()
    }

    /// True if tenants may co-run at some time.
    pub(super) fn is_allowed(&self) -> bool {
        self.is_allowed
    }

    /// Has all tenants take turns for a while, because some tenant's memory has to leave.
    pub(super) fn part(&mut self) {
        self.apart_until = Some(Instant::now() + APART);
    }

    /// The time of the next check that all fit together.
    fn together_again(&self) -> Option<Instant> {
        self.apart_until.filter(|until| *until > Instant::now())
    }

    /// True if those beside a tenant at work are to be off the GPU now. `usual` is how long the requests of those at work usually
    /// take, if that is known.
    pub(super) fn judge(
        &mut self,
        now: Micros,
        together: bool,
        is_anybody_overdue: bool,
        usual: Option<Micros>,
    ) -> Verdict {
        self.bursts.expect(usual);
        self.bursts.look(now, together && self.is_anybody_at_work(), is_anybody_overdue)
    }

    /// Lets the others go on in spite of those at work, or makes them wait again.
    pub(super) fn let_pass(&mut self, pass: bool) {
        self.activity.let_pass(pass);
    }

    /// The time of the next work to do, if no event comes earlier. `at` gives the moment of the arbiter's time.
    pub(super) fn next_timer(&self, at: impl FnOnce(Micros) -> Instant) -> Option<Instant> {
        let look = self.activity.is_anything_said().then(|| Instant::now() + LOOK);
        let burst = self.bursts.next_timer().map(at);
        [self.together_again(), look, burst].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_at_work_is_told_and_who_has_ended_once() {
        let mut corun = Corun::new(true, Rules { burst: 0, slack: 0, max_wait: 0, share: 0 });
        let ids = [1, 2, 100].map(TenantId);
        for id in ids {
            corun.join(id, None, Class::Latency).expect("pages");
        }
        corun.activity.begin(ids[1]);
        corun.activity.begin(ids[2]);
        assert_eq!(corun.changes(), [(ids[1], true), (ids[2], true)]);
        assert_eq!(corun.changes(), [(ids[1], true), (ids[2], true)]);
        corun.activity.set_idle(ids[1]);
        assert_eq!(corun.changes(), [(ids[2], true), (ids[1], false)]);
        corun.leave(ids[2]);
        assert_eq!(corun.changes(), [(ids[2], false)]);
        assert_eq!(corun.changes(), []);
        assert!(!corun.is_anybody_at_work());
    }
}
