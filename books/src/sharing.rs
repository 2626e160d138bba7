//! The memory that tenants share: allocations that others may open, and the tenants that have another tenant's extents.
//!
//! An extent belongs to one tenant, its **owner**, and moves like all the owner's extents. Others may have it too: each has an
//! **attachment** to it, with a number among its own extents and an address of its own. Owner and others are scheduled as one, so all
//! have it mapped, or none of them runs. Its frame is free when the last of them has unmapped it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

use baton_contract::memory::SizeClass;
use baton_contract::messages::{ExtentId, IPC_HANDLE, ProcessId};

mod facts;

pub use facts::{Attached, Fact, Note, Notes};

/// The secret that opens an allocation to every tenant that knows it.
pub type Key = [u8; 16];

/// An allocation that others may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its address in its owner's process.
    pub at: u64,
    /// Its size, as the program asked for it.
    pub bytes: u64,
}

/// The state of an attached tenant's mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The tenant does not have the extent mapped.
    Away,
    /// The tenant was told to map it.
    Coming,
    /// The tenant has it mapped.
    Mapped,
    /// The tenant was told to unmap it.
    Going,
}

/// A tenant's hold on another tenant's extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment<T> {
    /// The owner, and the extent's number there.
    pub owner: (T, ExtentId),
    /// Its address in the owner's process.
    pub owner_at: u64,
    /// Its address in the attached tenant's process.
    pub at: u64,
    /// Its size.
    pub class: SizeClass,
    /// The state of the mapping there.
    pub place: Place,
    /// Its frame did not reach the attached tenant: it has to be sent again, or was sent again and may not have come.
    pub lost: bool,
}

/// All that is shared among tenants.
#[derive(Debug)]
pub struct Sharing<T> {
    exports: HashMap<Key, (T, Export)>,
    keys: BTreeMap<(T, u64), Key>,
    /// Tenants that claim the event of a handle, the first last, with the numbers of their claims. Any tenant may claim any.
    events: HashMap<[u8; IPC_HANDLE], Vec<(T, u64)>>,
    /// The number of the last claim.
    last_claim: u64,
    /// Tenants that export memory by descriptors and claim to be this process, the latest last.
    processes: HashMap<ProcessId, Vec<T>>,
    /// The number of allocations and events that each tenant has exported.
    numbers: BTreeMap<T, usize>,
    attachments: BTreeMap<(T, ExtentId), Attachment<T>>,
    /// The tenants that are attached to an extent.
    sharers: BTreeMap<(T, ExtentId), BTreeSet<(T, ExtentId)>>,
    /// Each change is written down before anything is done about it.
    notes: Notes,
}

/// The most exports of a tenant. No real program has so many.
const MOST: usize = 1 << 16;

impl<T> Default for Sharing<T> {
    fn default() -> Self {
        Self {
            exports: HashMap::new(),
            keys: BTreeMap::new(),
            events: HashMap::new(),
            last_claim: 0,
            processes: HashMap::new(),
            numbers: BTreeMap::new(),
            attachments: BTreeMap::new(),
            sharers: BTreeMap::new(),
            notes: Notes::default(),
        }
    }
}

impl<T: Copy + Ord + Hash + Into<u32>> Sharing<T> {
    /// Nothing is shared yet. Each change is written down.
    pub fn noted(notes: Notes) -> Self {
        Self { notes, ..Self::default() }
    }

    /// Writes down everything anew.
    pub fn note_all(&self) {
        for (key, (owner, export)) in &self.exports {
            self.notes.hold(&Fact::Export { owner: (*owner).into(), export: *export, key: *key });
        }
        for (handle, owners) in &self.events {
            owners.iter().for_each(|(owner, number)| self.notes.hold(&claim(*owner, *number, handle)));
        }
        for (process, owners) in &self.processes {
            owners.iter().for_each(|owner| self.notes.hold(&is_process(*owner, *process)));
        }
        self.attachments.iter().for_each(|(id, attachment)| self.notes.hold(&attachment.fact(*id)));
    }

    /// Begins with a fact that another coordinator has written down, about a tenant that lives. Attachments are
    /// [entered](Self::attach) when it is known which of them there are.
    pub fn restore(&mut self, owner: T, fact: &Fact) {
        match fact {
            Fact::Export { export, key, .. } if self.count(owner) => {
                self.keys.insert((owner, export.at), *key);
                self.exports.insert(*key, (owner, *export));
            }
            Fact::Event { number, handle, .. } if self.count(owner) => {
                self.last_claim = self.last_claim.max(*number);
                let owners = self.events.entry(*handle).or_default();
                owners.push((owner, *number));
                owners.sort_unstable_by_key(|(_, number)| std::cmp::Reverse(*number));
            }
            Fact::Process { process, .. } => self.processes.entry(*process).or_default().push(owner),
            Fact::Export { .. } | Fact::Event { .. } | Fact::Attached(_) => {}
        }
    }

    /// Forgets a fact that does not hold any more.
    pub fn forget_fact(&self, fact: &Fact) {
        self.notes.forget(fact);
    }

    /// True if no tenant has another tenant's extent.
    pub fn is_empty(&self) -> bool {
        self.attachments.is_empty()
    }

    /// Counts one more export of this owner, if it may have more.
    fn count(&mut self, owner: T) -> bool {
        let number = self.numbers.entry(owner).or_default();
        let may = *number < MOST;
        *number += usize::from(may);
        may
    }

    /// Lets others open this allocation. Returns its key: the one that it had, or this one; none if the owner has too many exports.
    pub fn export(&mut self, owner: T, export: Export, key: Key) -> Option<Key> {
        let known = self.keys.get(&(owner, export.at)).copied();
        if known.is_none() && !self.count(owner) {
            return None;
        }
        let key = known.unwrap_or(key);
        self.keys.insert((owner, export.at), key);
        if self.exports.insert(key, (owner, export)) != Some((owner, export)) {
            self.notes.hold(&Fact::Export { owner: owner.into(), export, key });
        }
        Some(key)
    }

    /// Lets no tenant open the allocation any longer.
    pub fn unexport(&mut self, owner: T, at: u64) {
        if let Some(key) = self.keys.remove(&(owner, at)) {
            if let Some((_, export)) = self.exports.remove(&key) {
                self.notes.forget(&Fact::Export { owner: owner.into(), export, key });
            }
            self.numbers.entry(owner).and_modify(|number| *number -= 1);
        }
    }

    /// The allocation of this owner that the key opens.
    pub fn exported(&self, owner: T, key: &Key) -> Option<Export> {
        self.exports.get(key).filter(|(whose, _)| *whose == owner).map(|(_, export)| *export)
    }

    /// Lets others open an event by this handle.
    pub fn export_event(&mut self, owner: T, handle: [u8; IPC_HANDLE]) {
        let is_known = self.events.get(&handle).is_some_and(|owners| owners.iter().any(|(one, _)| *one == owner));
        if !is_known && self.count(owner) {
            self.last_claim += 1;
            self.events.entry(handle).or_default().insert(0, (owner, self.last_claim));
            self.notes.hold(&claim(owner, self.last_claim, &handle));
        }
    }

    /// Tenants that claim the event of this handle, the likeliest first.
    pub fn owners_of_event(&self, handle: &[u8; IPC_HANDLE]) -> impl Iterator<Item = T> {
        self.events.get(handle).into_iter().flatten().rev().map(|(owner, _)| *owner)
    }

    /// Lets others import memory by descriptors that this process of the tenant owns. The tenant's earlier claim is dropped.
    /// Another tenant's claim to this process counts for less: the process may have replaced that tenant.
    pub fn export_descriptors(&mut self, owner: T, process: ProcessId) {
        forget(&mut self.processes, |one| *one == owner, |_, _| ());
        self.processes.entry(process).or_default().push(owner);
        self.notes.hold(&is_process(owner, process));
    }

    /// Tenants that claim to be the process which owns the descriptors, the likeliest first.
    pub fn owners_of_descriptors(&self, process: ProcessId) -> impl Iterator<Item = T> {
        self.processes.get(&process).into_iter().flatten().rev().copied()
    }

    /// Attaches a tenant to another tenant's extent.
    pub fn attach(&mut self, id: (T, ExtentId), attachment: Attachment<T>) {
        self.sharers.entry(attachment.owner).or_default().insert(id);
        self.notes.hold(&attachment.fact(id));
        self.attachments.insert(id, attachment);
    }

    /// A tenant's attachment with this number.
    pub fn get(&self, id: (T, ExtentId)) -> Option<&Attachment<T>> {
        self.attachments.get(&id)
    }

    /// All attachments of a tenant.
    pub fn of(&self, id: T) -> impl Iterator<Item = (ExtentId, &Attachment<T>)> {
        let all = self.attachments.range((id, ExtentId(0))..=(id, ExtentId(u32::MAX)));
        all.map(|((_, extent), attachment)| (*extent, attachment))
    }

    /// True if any attachment of a tenant lies in this range of its addresses.
    pub fn has_any_at(&self, id: T, at: u64, bytes: u64) -> bool {
        self.of(id).any(|(_, one)| one.at < at.saturating_add(bytes) && at < one.at + one.class.bytes())
    }

    /// True if a tenant lacks any extent that it is attached to.
    pub fn lacks(&self, id: T) -> bool {
        self.of(id).any(|(_, attachment)| attachment.place != Place::Mapped)
    }

    /// The tenants that are attached to an extent.
    pub fn sharers(&self, owner: (T, ExtentId)) -> Vec<(T, ExtentId)> {
        self.sharers.get(&owner).map_or(Vec::new(), |all| all.iter().copied().collect())
    }

    /// A tenant's own extents that others share.
    pub fn of_owner(&self, owner: T) -> Vec<ExtentId> {
        let all = self.sharers.range((owner, ExtentId(0))..=(owner, ExtentId(u32::MAX)));
        all.map(|((_, extent), _)| *extent).collect()
    }

    /// True if a tenant is attached to the extent.
    pub fn is_shared(&self, owner: (T, ExtentId)) -> bool {
        self.sharers.contains_key(&owner)
    }

    /// The attached tenants that may have the extent mapped.
    pub fn holders(&self, owner: (T, ExtentId)) -> impl Iterator<Item = T> {
        let holds = |id: &&(T, ExtentId)| self.attachments.get(id).is_some_and(|one| one.place != Place::Away);
        self.sharers.get(&owner).into_iter().flatten().filter(holds).map(|(id, _)| *id)
    }

    /// True if an attached tenant may have the extent mapped.
    pub fn is_held(&self, owner: (T, ExtentId)) -> bool {
        self.holders(owner).next().is_some()
    }

    /// True if a tenant may have any other tenant's extent mapped.
    pub fn holds_any(&self, id: T) -> bool {
        self.of(id).any(|(_, attachment)| attachment.place != Place::Away)
    }

    /// Changes the state of a mapping, if it is in one of the states in `from`. False if it is in another state, or gone.
    pub fn set_place(&mut self, id: (T, ExtentId), from: &[Place], to: Place) -> bool {
        let found = self.attachments.get_mut(&id).filter(|attachment| from.contains(&attachment.place));
        found.map(|attachment| attachment.place = to).is_some()
    }

    /// Notes that a frame did not reach the tenant that was told to map it.
    pub fn lose(&mut self, id: (T, ExtentId)) {
        if let Some(attachment) = self.attachments.get_mut(&id).filter(|attachment| attachment.place == Place::Coming) {
            (attachment.place, attachment.lost) = (Place::Away, true);
        }
    }

    /// Notes that the frame has come, or is not sent again.
    pub fn end_loss(&mut self, id: (T, ExtentId)) {
        if let Some(attachment) = self.attachments.get_mut(&id) {
            attachment.lost = false;
        }
    }

    /// Attachments whose frames did not reach a tenant: those to send again, and those sent again.
    pub fn lost(&self, id: T) -> (Vec<ExtentId>, Vec<ExtentId>) {
        let lost = self.of(id).filter(|(_, attachment)| attachment.lost);
        let (waiting, sent): (Vec<_>, Vec<_>) = lost.partition(|(_, attachment)| attachment.place == Place::Away);
        let ids = |all: Vec<(ExtentId, &Attachment<T>)>| all.into_iter().map(|(extent, _)| extent).collect();
        (ids(waiting), ids(sent))
    }

    /// Detaches a tenant from an extent. Returns the owner and its number for the extent.
    pub fn detach(&mut self, id: (T, ExtentId)) -> Option<(T, ExtentId)> {
        let attachment = self.attachments.remove(&id)?;
        self.notes.forget(&attachment.fact(id));
        let owner = attachment.owner;
        if let Some(sharers) = self.sharers.get_mut(&owner) {
            sharers.remove(&id);
            if sharers.is_empty() {
                self.sharers.remove(&owner);
            }
        }
        Some(owner)
    }

    /// Passes on an extent that its owner no longer has: one attached tenant that lives gets it, and the others are attached to that
    /// tenant. Returns the heir and its attachment, which is written down until it [is its own](Self::is_its_own); none if there is no heir.
    pub fn inherit(
        &mut self,
        owner: (T, ExtentId),
        lives: impl Fn(T) -> bool,
    ) -> Option<((T, ExtentId), Attachment<T>)> {
        let mut sharers = self.sharers.remove(&owner)?;
        // A tenant that has it mapped has all of it.
        let mapped = |id: &(T, ExtentId)| self.attachments.get(id).is_some_and(|one| one.place == Place::Mapped);
        let living = || sharers.iter().filter(|id| lives(id.0));
        let Some(heir) = living().find(|id| mapped(id)).or_else(|| living().next()).copied() else {
            for id in sharers {
                if let Some(attachment) = self.attachments.remove(&id) {
                    self.notes.forget(&attachment.fact(id));
                }
            }
            return None;
        };
        let attachment = self.attachments.remove(&heir)?;
        sharers.remove(&heir);
        self.attach_all_to(&sharers, (heir, attachment.at));
        if !sharers.is_empty() {
            self.sharers.insert(heir, sharers);
        }
        Some((heir, attachment))
    }

    /// Makes an extent the attached tenant's own; the owner is attached to it instead, with its mapping in this state, and so are the others.
    /// Returns the attachment, which is written down until it [is its own](Self::is_its_own).
    pub fn exchange(&mut self, id: (T, ExtentId), owners: Place) -> Option<Attachment<T>> {
        let had = self.attachments.remove(&id)?;
        let mut sharers = self.sharers.remove(&had.owner).unwrap_or_default();
        sharers.remove(&id);
        self.attach_all_to(&sharers, (id, had.at));
        self.sharers.insert(id, sharers);
        let (at, owner_at) = (had.owner_at, had.at);
        self.attach(had.owner, Attachment { owner: id, owner_at, at, place: owners, lost: false, ..had });
        Some(had)
    }

    /// Has these be attached to another owner's extent, which is at this address there.
    fn attach_all_to(&mut self, sharers: &BTreeSet<(T, ExtentId)>, owner: ((T, ExtentId), u64)) {
        for id in sharers {
            if let Some(one) = self.attachments.get_mut(id) {
                (one.owner, one.owner_at) = owner;
                self.notes.hold(&one.fact(*id));
            }
        }
    }

    /// Notes that an heir has an extent as its own: its attachment is written down no more.
    pub fn is_its_own(&self, heir: (T, ExtentId), attachment: &Attachment<T>) {
        self.notes.forget(&attachment.fact(heir));
    }

    /// Removes all exports of a tenant that has ended.
    pub fn forget_exports(&mut self, id: T) {
        let keys: Vec<(T, u64)> = self.keys.range((id, 0)..=(id, u64::MAX)).map(|(of, _)| *of).collect();
        for (owner, at) in keys {
            self.unexport(owner, at);
        }
        let notes = &self.notes;
        forget(
            &mut self.events,
            |(owner, _)| *owner == id,
            |handle, (owner, number)| notes.forget(&claim(*owner, *number, handle)),
        );
        forget(&mut self.processes, |owner| *owner == id, |process, owner| notes.forget(&is_process(*owner, *process)));
        self.numbers.remove(&id);
    }
}

impl<T: Copy + Into<u32>> Attachment<T> {
    fn fact(&self, id: (T, ExtentId)) -> Fact {
        let [id, owner] = [id, self.owner].map(|(tenant, extent)| (tenant.into(), extent));
        Fact::Attached(Attached { id, owner, owner_at: self.owner_at, at: self.at, class: self.class })
    }
}

fn claim<T: Into<u32>>(owner: T, number: u64, handle: &[u8; IPC_HANDLE]) -> Fact {
    Fact::Event { owner: owner.into(), number, handle: *handle }
}

fn is_process<T: Into<u32>>(owner: T, process: ProcessId) -> Fact {
    Fact::Process { owner: owner.into(), process }
}

/// Drops these claims.
fn forget<K: Eq + Hash, C>(said: &mut HashMap<K, Vec<C>>, is_one: impl Fn(&C) -> bool, drop: impl Fn(&K, &C)) {
    said.retain(|key, claims| {
        claims.retain(|claim| {
            let goes = is_one(claim);
            if goes {
                drop(key, claim);
            }
            !goes
        });
        !claims.is_empty()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: u8 = 1;
    const B: u8 = 2;
    const C: u8 = 3;

    fn of(owner: (u8, u32)) -> Attachment<u8> {
        let owner = (owner.0, ExtentId(owner.1));
        Attachment { owner, owner_at: 0, at: 0, class: SizeClass::ALL[0], place: Place::Mapped, lost: false }
    }

    #[test]
    fn an_allocation_has_one_key_until_it_is_freed() {
        let mut sharing = Sharing::default();
        let export = Export { at: 7, bytes: 100 };
        let (first, second) = ([1; 16], [2; 16]);
        assert_eq!(sharing.export(A, export, first), Some(first));
        assert_eq!(sharing.export(A, export, second), Some(first));
        assert_eq!(sharing.exported(A, &first), Some(export));
        assert_eq!((sharing.exported(B, &first), sharing.exported(A, &second)), (None, None));
        sharing.unexport(A, 7);
        assert_eq!(sharing.exported(A, &first), None);
        assert_eq!(sharing.export(A, export, second), Some(second));
        sharing.forget_exports(A);
        assert_eq!(sharing.exported(A, &second), None);
    }

    #[test]
    fn descriptors_are_first_those_of_the_last_tenant_that_a_process_was() {
        let mut sharing = Sharing::default();
        let process = |namespace, number| ProcessId { namespace, number };
        let owners = |sharing: &Sharing<u8>, of| sharing.owners_of_descriptors(of).collect::<Vec<_>>();
        sharing.export_descriptors(A, process(1, 10));
        sharing.export_descriptors(B, process(2, 10));
        assert_eq!(owners(&sharing, process(1, 10)), [A]);
        assert_eq!(owners(&sharing, process(2, 10)), [B], "of another namespace");
        assert_eq!(owners(&sharing, process(1, 11)), [0; 0], "of a stranger");
        sharing.export_descriptors(A, process(1, 12));
        assert_eq!(owners(&sharing, process(1, 10)), [0; 0], "a tenant is one process");
        sharing.export_descriptors(C, process(1, 12));
        assert_eq!(owners(&sharing, process(1, 12)), [C, A], "one of them has replaced the other, or lies");
        sharing.forget_exports(A);
        assert_eq!(owners(&sharing, process(1, 12)), [C]);
        sharing.forget_exports(B);
        sharing.forget_exports(C);
        assert_eq!(owners(&sharing, process(1, 12)), [0; 0]);
        assert!(sharing.processes.is_empty());
    }

    #[test]
    fn an_event_is_first_that_of_the_first_who_said_so() {
        let mut sharing = Sharing::default();
        let owners = |sharing: &Sharing<u8>| sharing.owners_of_event(&[7; IPC_HANDLE]).collect::<Vec<_>>();
        for owner in [A, B, A, C] {
            sharing.export_event(owner, [7; IPC_HANDLE]);
        }
        assert_eq!(owners(&sharing), [A, B, C]);
        sharing.forget_exports(A);
        assert_eq!(owners(&sharing), [B, C]);
    }

    #[test]
    fn an_extent_is_held_until_the_last_has_unmapped_it() {
        let mut sharing = Sharing::default();
        let extent = (A, ExtentId(1));
        sharing.attach((B, ExtentId(5)), of((A, 1)));
        sharing.attach((C, ExtentId(6)), of((A, 1)));
        assert!(sharing.is_held(extent) && !sharing.lacks(B));
        assert!(sharing.set_place((B, ExtentId(5)), &[Place::Mapped], Place::Going));
        assert!(!sharing.set_place((B, ExtentId(5)), &[Place::Mapped], Place::Going));
        assert!(sharing.set_place((B, ExtentId(5)), &[Place::Going], Place::Away) && sharing.lacks(B));
        assert!(sharing.is_held(extent));
        assert_eq!(sharing.detach((C, ExtentId(6))), Some(extent));
        assert!(!sharing.is_held(extent) && sharing.is_shared(extent));
    }

    #[test]
    fn what_did_not_come_is_lost_until_it_has() {
        let mut sharing = Sharing::default();
        let (one, two) = ((B, ExtentId(5)), (B, ExtentId(6)));
        sharing.attach(one, of((A, 1)));
        sharing.attach(two, Attachment { place: Place::Coming, ..of((A, 2)) });
        sharing.lose(one);
        sharing.lose(two);
        assert_eq!(sharing.lost(B), (vec![two.1], vec![]), "the other one is mapped");
        assert!(sharing.set_place(two, &[Place::Away], Place::Coming));
        assert_eq!(sharing.lost(B), (vec![], vec![two.1]));
        sharing.lose(two);
        assert_eq!(sharing.lost(B), (vec![two.1], vec![]), "once more");
        sharing.end_loss(two);
        assert_eq!(sharing.lost(B), (vec![], vec![]));
    }

    #[test]
    fn what_its_owner_has_no_longer_goes_to_one_who_has_it_mapped() {
        let mut sharing = Sharing::default();
        sharing.attach((B, ExtentId(5)), Attachment { place: Place::Away, ..of((A, 1)) });
        sharing.attach((C, ExtentId(6)), of((A, 1)));
        let (heir, had) = sharing.inherit((A, ExtentId(1)), |_| true).expect("two are attached");
        assert_eq!((heir, had.place), ((C, ExtentId(6)), Place::Mapped));
        assert_eq!(sharing.get((B, ExtentId(5))).map(|other| other.owner), Some(heir));
        assert_eq!(sharing.of(C).count(), 0, "it is its own now");
        assert_eq!(sharing.detach((B, ExtentId(5))), Some(heir));
        assert!(sharing.inherit(heir, |_| true).is_none() && sharing.is_empty());
    }

    #[test]
    fn owner_and_sharer_change_places() {
        let mut sharing = Sharing::default();
        let (owner, sharer, third) = ((A, ExtentId(1)), (B, ExtentId(5)), (C, ExtentId(6)));
        sharing.attach(sharer, Attachment { owner_at: 10, at: 50, place: Place::Away, ..of((A, 1)) });
        sharing.attach(third, Attachment { owner_at: 10, at: 60, ..of((A, 1)) });
        let had = sharing.exchange(sharer, Place::Mapped).expect("it is attached");
        assert_eq!((had.owner, had.place), (owner, Place::Away));
        assert!(sharing.get(sharer).is_none() && sharing.exchange(sharer, Place::Mapped).is_none());
        for (id, at, place) in [(owner, 10, Place::Mapped), (third, 60, Place::Mapped)] {
            let one = sharing.get(id).expect("attached to the new owner");
            assert_eq!((one.owner, one.owner_at, one.at, one.place), (sharer, 50, at, place));
        }
        assert_eq!(sharing.exchange(owner, Place::Away).map(|had| had.owner), Some(sharer));
        assert_eq!(sharing.sharers(owner), [sharer, third]);
    }

    proptest! {
        #[test]
        fn whoever_is_attached_is_known_both_ways(
            steps in prop::collection::vec((0..6u8, 0..4u8, 0..6u32, 0..4u8, 0..6u32), 0..80),
        ) {
            let mut sharing = Sharing::default();
            for (what, id, extent, owner, other) in steps {
                // A number is that of an extent of a tenant's own, or of another's, never both.
                let borrowed = (id, ExtentId(100 + extent));
                match what {
                    0 if id != owner
                        && sharing.get(borrowed).is_none()
                        && !sharing.is_shared(borrowed)
                        && sharing.get((owner, ExtentId(other))).is_none() => {
                        sharing.attach(borrowed, of((owner, other)));
                    }
                    1 => drop(sharing.detach(borrowed)),
                    2 => drop(sharing.inherit((owner, ExtentId(other)), |id| id != 2)),
                    3 => drop(sharing.inherit(borrowed, |_| true)),
                    4 => drop(sharing.exchange(borrowed, Place::Away)),
                    _ => drop(sharing.set_place(borrowed, &[Place::Mapped, Place::Away], Place::Going)),
                }
                for (id, attachment) in &sharing.attachments {
                    prop_assert!(sharing.sharers(attachment.owner).contains(id));
                }
                for (owner, sharers) in &sharing.sharers {
                    prop_assert!(!sharers.is_empty());
                    prop_assert!(sharers.iter().all(|id| sharing.get(*id).is_some_and(|one| one.owner == *owner)));
                }
            }
        }
    }
}
