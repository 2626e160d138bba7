//! Memory that tenants of another coordinator share: each has what it had of the others', and heirs get what its owner no longer has.

use std::collections::{BTreeMap, BTreeSet};

use baton_contract::messages::{ExtentId, MAX_LISTED, Mapping};

use super::ground::Ground;
use crate::server::returning::Together;
use baton_books::extents::ExtentState;
use baton_books::sharing::{Attached, Attachment, Fact, Place};
use baton_books::table::Found;
use baton_policy::arbiter::TenantId;

impl Ground<'_> {
    /// Attaches tenants that come back together to each other's extents, before any of them enters its memory. An extent that its owner
    /// does not have any more is passed on to one of those that do. Returns what the heirs were attached to: it is to be forgotten when they
    /// have entered their memory.
    pub(super) fn attach_again(&mut self, together: Together, found: &mut Found) -> Vec<Attached> {
        let Together { held, attached, absent } = together;
        let has = |(tenant, extent): (u32, ExtentId), at: u64| {
            held.get(&TenantId(tenant)).and_then(|all| all.get(&extent)).filter(|one| one.at == at)
        };
        let is_absent = |(tenant, _): (u32, ExtentId)| absent.contains(&TenantId(tenant));
        // An extent that a tenant does not have did not reach it, or was given back.
        let is_had = |one: &Attached| is_absent(one.id) || has(one.id, one.at).is_some();
        let (mut known, gone): (Vec<_>, Vec<_>) = attached.into_iter().partition(is_had);
        gone.into_iter().for_each(|one| self.store.sharing.forget_fact(&Fact::Attached(one)));
        self.end_exchanges(&mut known, found);
        let owners: BTreeSet<_> = known.iter().map(|one| (one.owner, one.owner_at)).collect();
        let mut heirs = Vec::new();
        for (owner, owner_at) in owners.iter().filter(|(owner, at)| has(*owner, *at).is_none()) {
            let sharers = || known.iter().filter(|one| one.owner == *owner && !is_absent(one.id));
            // The coordinator before had begun to attach the others to the heir.
            let chosen = |one: &&Attached| owners.contains(&(one.id, one.at));
            let mapped = |one: &&Attached| has(one.id, one.at).is_some_and(|held| held.mapping == Mapping::Mapped);
            let heir = sharers().find(chosen).or_else(|| sharers().find(mapped)).or_else(|| sharers().next()).copied();
            let Some(heir) = heir else { continue };
            found.pass_on((owner.0, *owner_at), (heir.id.0, heir.at), heir.class);
            known.retain(|one| one.id != heir.id);
            for other in known.iter_mut().filter(|one| one.owner == *owner) {
                (other.owner, other.owner_at) = (heir.id, heir.at);
            }
            if is_absent(*owner) {
                // Its work may still write there.
                known.push(Attached {
                    id: *owner,
                    owner: heir.id,
                    owner_at: heir.at,
                    at: *owner_at,
                    class: heir.class,
                });
            }
            heirs.push(heir);
        }
        for one in known {
            let place = match has(one.id, one.at).map(|held| held.mapping) {
                _ if is_absent(one.id) => Place::Going,
                Some(Mapping::Mapped) => Place::Mapped,
                Some(Mapping::Prepared) => Place::Coming,
                Some(Mapping::Away) | None => Place::Away,
            };
            let [id, owner] = [one.id, one.owner].map(|(tenant, extent)| (TenantId(tenant), extent));
            let Attached { owner_at, at, class, .. } = one;
            self.store.sharing.attach(id, Attachment { owner, owner_at, at, class, place, lost: false });
        }
        heirs
    }

    /// Ends what another coordinator had begun when two tenants were about to change places, the owner of an extent and one that is attached
    /// to it: the owner is the one that the table has written down, and all others are attached to that one.
    fn end_exchanges(&self, known: &mut Vec<Attached>, found: &Found) {
        let all: BTreeSet<_> = known.iter().map(|one| (one.id, one.owner)).collect();
        let is_over = |one: &mut Attached| {
            // Memory of zeros is not written down, and may be either's.
            let is_neithers = || !found.has(one.owner.0, one.owner_at) && one.id < one.owner;
            all.contains(&(one.owner, one.id)) && (found.has(one.id.0, one.at) || is_neithers())
        };
        let over: Vec<Attached> = known.extract_if(.., is_over).collect();
        over.into_iter().for_each(|one| self.store.sharing.forget_fact(&Fact::Attached(one)));
        // One that is attached has others attached to it no more, or not yet.
        let owners: BTreeMap<_, _> = known.iter().map(|one| (one.id, (one.owner, one.owner_at))).collect();
        for one in known {
            if let Some(owner) = owners.get(&one.owner) {
                (one.owner, one.owner_at) = *owner;
            }
        }
    }

    /// Has these tenants' leaving memory unmapped by those that share it, when all of them have come back.
    pub(super) fn have_what_leaves_unmapped(&mut self, id: TenantId) {
        let shared = self.store.sharing.of_owner(id);
        let leaves = |extent: &ExtentId| {
            let entry = self.tenants.get(id).and_then(|tenant| tenant.extents().get(*extent));
            entry.is_some_and(|entry| matches!(entry.state(), ExtentState::Leaving { .. }))
        };
        let leaving: Vec<ExtentId> = shared.into_iter().filter(leaves).collect();
        leaving.chunks(MAX_LISTED).for_each(|leaving| self.have_others_unmap(id, leaving));
    }
}
