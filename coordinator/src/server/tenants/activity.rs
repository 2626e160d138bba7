//! Tenants at work beside others: an activity page for each domain, and the news that each domain gets of the others.
//!
//! A program that writes garbage to its domain's page holds up no other program. Only reports of tenants that have a slot and can
//! be talked to count here, and the summary is ignored.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use baton_contract::class::Class;
use baton_contract::page::{ACTIVITY_SLOTS, ACTIVITY_WORDS, ActivityPage, ElsewherePage};
use rustix::thread::futex;

use super::peer::Sent;
use super::process::Domain;
use super::shared::{Shared, reopened};
use baton_policy::arbiter::TenantId;

/// A domain's pages, and the owner of each slot.
#[derive(Debug)]
struct Pages {
    /// None for a tenant whose domain is unknown: it is alone.
    domain: Option<Domain>,
    members: usize,
    page: Shared<ActivityPage>,
    writable: Sent,
    readable: Sent,
    elsewhere: Shared<ElsewherePage>,
    elsewhere_file: Sent,
    /// A bit for each slot that a tenant has, as on the page.
    taken: [u64; ACTIVITY_WORDS],
    /// The slots among them that count.
    counting: [u64; ACTIVITY_WORDS],
    tenants: BTreeMap<u32, TenantId>,
}

/// A slot's word, and its bit there.
fn place(slot: u32) -> (usize, u64) {
    ((slot / u64::BITS) as usize, 1 << (slot % u64::BITS))
}

impl Pages {
    fn new(domain: Option<Domain>) -> io::Result<Self> {
        let (page, writable) = Shared::written_by_all()?;
        let (elsewhere, elsewhere_file) = Shared::written_by_us()?;
        Ok(Self {
            domain,
            members: 0,
            page,
            // A file opened only for reading cannot be mapped writable.
            readable: reopened(&writable)?.into(),
            writable: writable.into(),
            elsewhere,
            elsewhere_file: elsewhere_file.into(),
            taken: [0; ACTIVITY_WORDS],
            counting: [0; ACTIVITY_WORDS],
            tenants: BTreeMap::new(),
        })
    }

    /// Gives a slot to a tenant of this class, if it is to have one. There are as many slots as there can be tenants.
    fn give(&mut self, id: TenantId, class: Class) -> Option<u32> {
        let (at, word) = self.taken.iter_mut().enumerate().find(|(_, word)| **word != u64::MAX)?;
        if class != Class::Latency {
            return None;
        }
        let free = word.trailing_ones();
        *word |= 1 << free;
        self.counting[at] |= 1 << free;
        let slot = at as u32 * u64::BITS + free;
        self.tenants.insert(slot, id);
        Some(slot)
    }

    /// Ignores the reports of the tenant with this slot from now on.
    fn ignore(&mut self, slot: u32) {
        let (at, bit) = place(slot);
        self.counting[at] &= !bit;
        self.tenants.remove(&slot);
        self.repair();
    }

    /// Frees this slot.
    fn free(&mut self, slot: u32) {
        let (at, bit) = place(slot);
        self.taken[at] &= !bit;
        self.ignore(slot);
    }

    /// Clears every report that does not come from a counting tenant, and corrects the summary.
    fn repair(&self) {
        if self.page.repair(&self.counting) {
            self.wake();
        }
    }

    /// The tenants at work.
    fn at_work(&self) -> impl Iterator<Item = TenantId> {
        let last = self.tenants.last_key_value().map(|(slot, _)| place(*slot).0);
        let slots = (0..last.map_or(0, |last| last + 1)).flat_map(|at| {
            let mut left = self.page.word(at) & self.counting[at];
            std::iter::from_fn(move || {
                let next = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(at as u32 * u64::BITS + next)
            })
        });
        slots.filter_map(|slot| self.tenants.get(&slot).copied())
    }

    fn is_any_at_work(&self) -> bool {
        self.at_work().next().is_some()
    }

    /// Wakes the tenants that wait for tenants at work, so that they check again.
    fn wake(&self) {
        self.page.news.fetch_add(1, AcqRel);
        // They check again after a while anyhow.
        let _ = futex::wake(&self.page.news, futex::Flags::empty(), i32::MAX as u32);
    }
}

/// The place where a tenant reports that it is at work.
#[derive(Clone, Copy, Debug)]
struct Member {
    domain: u32,
    slot: Option<u32>,
}

/// All domains.
#[derive(Debug, Default)]
pub(in crate::server) struct Activity {
    /// The pages of each domain, by its number.
    domains: BTreeMap<u32, Pages>,
    last: u32,
    members: BTreeMap<TenantId, Member>,
    /// True if no tenant waits for those at work.
    passing: bool,
}

impl Activity {
    /// Adds a tenant, which gets a slot if it is of class latency. Tenants without a domain have one of their own.
    pub(in crate::server) fn join(&mut self, id: TenantId, domain: Option<&Domain>, class: Class) -> io::Result<()> {
        let known = domain.and_then(|domain| {
            self.domains.iter().find(|(_, pages)| pages.domain.as_ref() == Some(domain)).map(|(number, _)| *number)
        });
        let number = match known {
            Some(number) => number,
            None => {
                let pages = Pages::new(domain.cloned())?;
                pages.elsewhere.pass.store(self.passing.into(), Relaxed);
                self.last += 1;
                self.domains.insert(self.last, pages);
                self.last
            }
        };
        let Some(pages) = self.domains.get_mut(&number) else { return Ok(()) };
        pages.members += 1;
        let slot = pages.give(id, class);
        self.members.insert(id, Member { domain: number, slot });
        self.tell();
        Ok(())
    }

    /// A tenant's slot, or [`ACTIVITY_SLOTS`], and the pages' files for a tenant with a slot: its domain's own page, and the page
    /// with the news of others.
    pub(in crate::server) fn place(&self, id: TenantId) -> Option<(u32, [Sent; 2])> {
        let Member { domain, slot } = self.members.get(&id)?;
        let pages = self.domains.get(domain)?;
        let page = if slot.is_some() { &pages.writable } else { &pages.readable };
        Some((slot.unwrap_or(ACTIVITY_SLOTS), [page, &pages.elsewhere_file].map(Sent::clone)))
    }

    /// Changes a tenant's class. The tenant never gets its old slot again, because it may use that once more.
    pub(in crate::server) fn change(&mut self, id: TenantId, class: Class) {
        let Some(member) = self.members.get_mut(&id) else { return };
        let Some(pages) = self.domains.get_mut(&member.domain) else { return };
        let old = std::mem::replace(&mut member.slot, pages.give(id, class));
        old.into_iter().for_each(|slot| pages.free(slot));
    }

    /// Ignores a tenant that can no longer be talked to: its reports count for no other tenant.
    pub(in crate::server) fn ignore(&mut self, id: TenantId) {
        let Some(Member { domain, slot: Some(slot) }) = self.members.get(&id) else { return };
        if let Some(pages) = self.domains.get_mut(domain) {
            pages.ignore(*slot);
        }
    }

    /// Removes a tenant whose process has ended. Its old reports hold up no other tenant.
    pub(in crate::server) fn leave(&mut self, id: TenantId) {
        let Some(Member { domain, slot }) = self.members.remove(&id) else { return };
        let Some(pages) = self.domains.get_mut(&domain) else { return };
        pages.members -= 1;
        if pages.members == 0 {
            self.domains.remove(&domain);
            return;
        }
        match slot {
            Some(slot) => pages.free(slot),
            // The tenant may have written to the page all the same.
            None => pages.repair(),
        }
    }

    /// Marks a tenant as idle until it reports work again.
    pub(in crate::server) fn set_idle(&self, id: TenantId) {
        let Some(Member { domain, slot: Some(slot) }) = self.members.get(&id) else { return };
        if let Some(pages) = self.domains.get(domain).filter(|pages| pages.page.set_idle(*slot)) {
            pages.wake();
        }
    }

    /// True if a tenant reports that it is at work.
    pub(in crate::server) fn is_at_work(&self, id: TenantId) -> bool {
        let Some(Member { domain, slot: Some(slot) }) = self.members.get(&id) else { return false };
        let (at, bit) = place(*slot);
        self.domains.get(domain).is_some_and(|pages| pages.page.word(at) & pages.counting[at] & bit != 0)
    }

    /// True if any tenant reports that it is at work.
    pub(in crate::server) fn is_any_at_work(&self) -> bool {
        self.domains.values().any(Pages::is_any_at_work)
    }

    /// The tenants that report that they are at work, each once.
    pub(in crate::server) fn at_work(&self) -> impl Iterator<Item = TenantId> {
        self.domains.values().flat_map(Pages::at_work)
    }

    /// True if any tenant waits, or may wait, because of a report on one of the pages.
    pub(in crate::server) fn is_anything_said(&self) -> bool {
        self.domains.values().any(|pages| pages.page.is_any_busy() || pages.is_any_at_work())
    }

    /// Corrects the pages, with any contents, so that only counting tenants are at work there.
    pub(in crate::server) fn repair(&self) {
        self.domains.values().for_each(Pages::repair);
    }

    /// Tells each domain if any tenant of another domain is at work.
    pub(in crate::server) fn tell(&self) {
        let at_work: Vec<u32> =
            self.domains.iter().filter(|(_, pages)| pages.is_any_at_work()).map(|(number, _)| *number).collect();
        for (number, pages) in &self.domains {
            let is_any = at_work.len() > usize::from(at_work.binary_search(number).is_ok());
            if is_any == (pages.elsewhere.busy.load(Relaxed) != 0) {
                continue;
            }
            pages.elsewhere.busy.store(is_any.into(), Release);
            if !is_any {
                pages.wake();
            }
        }
    }

    /// Does the same as a tenant with a slot when it has work.
    #[cfg(test)]
    pub(in crate::server) fn begin(&self, id: TenantId) {
        let Member { domain, slot } = self.members[&id];
        self.domains[&domain].page.set_busy(slot.expect("it is of class latency"));
    }

    /// Lets the others go on in spite of those at work, or makes them wait again.
    pub(in crate::server) fn let_pass(&mut self, pass: bool) {
        if std::mem::replace(&mut self.passing, pass) == pass {
            return;
        }
        for pages in self.domains.values() {
            pages.elsewhere.pass.store(pass.into(), Release);
            if pass {
                pages.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    use super::*;

    fn domain(user: u32) -> Domain {
        Domain::of_user(user)
    }

    fn join(activity: &mut Activity, id: u32, user: Option<u32>, class: Class) {
        activity.join(TenantId(id), user.map(domain).as_ref(), class).expect("pages");
    }

    fn slot(activity: &Activity, id: u32) -> u32 {
        activity.place(TenantId(id)).expect("it has joined").0
    }

    fn pages(activity: &Activity, id: u32) -> &Pages {
        &activity.domains[&activity.members[&TenantId(id)].domain]
    }

    fn begin(activity: &Activity, id: u32) {
        activity.begin(TenantId(id));
    }

    /// Writes to a page as a program can that has it open for writing: the summary is the first eight bytes.
    fn scribble(activity: &Activity, id: u32, summary: u64) {
        let file = File::from(pages(activity, id).writable.try_clone().expect("a descriptor"));
        file.write_all_at(&summary.to_ne_bytes(), 0).expect("written");
    }

    /// True if a program of this tenant has to wait, judging by the page that it sees.
    fn waits(activity: &Activity, id: u32) -> bool {
        let pages = pages(activity, id);
        pages.page.is_any_busy() || pages.elsewhere.busy.load(Relaxed) != 0
    }

    #[test]
    fn there_is_a_slot_for_every_latency_tenant_of_a_domain() {
        let mut activity = Activity::default();
        for id in 1..=1000 {
            join(&mut activity, id, Some(7), Class::Latency);
        }
        assert!((1..=1000).all(|id| slot(&activity, id) == id - 1));
        join(&mut activity, 1001, Some(7), Class::Normal);
        assert_eq!(slot(&activity, 1001), ACTIVITY_SLOTS);
        activity.leave(TenantId(78));
        join(&mut activity, 1002, Some(7), Class::Latency);
        assert_eq!(slot(&activity, 1002), 77);
        activity.change(TenantId(1002), Class::Latency);
        assert_ne!(slot(&activity, 1002), 77, "it may use that once more");
        join(&mut activity, 1003, Some(8), Class::Latency);
        assert_eq!(slot(&activity, 1003), 0, "on another page");
    }

    #[test]
    fn what_a_program_that_has_died_wrote_into_the_summary_holds_up_nobody() {
        for class in [Class::Latency, Class::Batch] {
            let mut activity = Activity::default();
            join(&mut activity, 1, Some(7), class);
            join(&mut activity, 2, Some(7), Class::Normal);
            scribble(&activity, 1, 1 << 5);
            assert!(waits(&activity, 2) && activity.is_anything_said() && !activity.is_any_at_work());
            activity.leave(TenantId(1));
            assert!(!waits(&activity, 2));
            scribble(&activity, 2, 1 << 5);
            activity.repair();
            assert!(!waits(&activity, 2), "nor what one wrote that lives, once it was looked at");
        }
    }

    #[test]
    fn a_domain_hears_of_others_from_the_coordinator_alone() {
        let mut activity = Activity::default();
        join(&mut activity, 1, Some(7), Class::Latency);
        join(&mut activity, 2, Some(7), Class::Normal);
        join(&mut activity, 3, Some(8), Class::Normal);
        join(&mut activity, 4, None, Class::Normal);
        scribble(&activity, 1, u64::MAX);
        activity.tell();
        assert_eq!([2, 3, 4].map(|id| waits(&activity, id)), [true, false, false], "of user 7 that was");
        begin(&activity, 1);
        activity.tell();
        assert_eq!([2, 3, 4].map(|id| waits(&activity, id)), [true; 3]);
        assert_eq!(activity.at_work().collect::<Vec<_>>(), [TenantId(1)]);
        activity.set_idle(TenantId(1));
        activity.repair();
        activity.tell();
        assert_eq!([2, 3, 4].map(|id| waits(&activity, id)), [false; 3]);
    }

    #[test]
    fn tenants_of_which_nobody_knows_where_they_belong_share_no_page() {
        let mut activity = Activity::default();
        join(&mut activity, 1, None, Class::Latency);
        join(&mut activity, 2, None, Class::Normal);
        scribble(&activity, 1, 1);
        assert!(!waits(&activity, 2));
        begin(&activity, 1);
        activity.tell();
        assert!(waits(&activity, 2));
        activity.leave(TenantId(1));
        activity.tell();
        assert!(!waits(&activity, 2));
    }

    #[test]
    fn one_that_can_be_talked_to_no_more_counts_for_nobody() {
        let mut activity = Activity::default();
        join(&mut activity, 1, Some(7), Class::Latency);
        join(&mut activity, 2, Some(7), Class::Normal);
        join(&mut activity, 3, Some(8), Class::Normal);
        begin(&activity, 1);
        activity.ignore(TenantId(1));
        activity.tell();
        assert_eq!([2, 3].map(|id| waits(&activity, id)), [false; 2]);
        begin(&activity, 1);
        activity.tell();
        assert!(!activity.is_any_at_work() && !activity.is_at_work(TenantId(1)) && !waits(&activity, 3));
        activity.repair();
        assert!(!waits(&activity, 2));
        join(&mut activity, 4, Some(7), Class::Latency);
        assert_ne!(slot(&activity, 4), slot(&activity, 1), "it may still write there");
    }

    #[test]
    fn whoever_comes_is_told_whether_the_others_wait() {
        let mut activity = Activity::default();
        join(&mut activity, 1, Some(7), Class::Latency);
        begin(&activity, 1);
        activity.let_pass(true);
        join(&mut activity, 2, Some(8), Class::Normal);
        let elsewhere = &pages(&activity, 2).elsewhere;
        assert_eq!((elsewhere.busy.load(Relaxed), elsewhere.pass.load(Relaxed)), (1, 1));
        activity.let_pass(false);
        assert!([1, 2].into_iter().all(|id| pages(&activity, id).elsewhere.pass.load(Relaxed) == 0));
    }
}
