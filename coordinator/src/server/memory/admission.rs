//! How much memory there is for those who come, and for more of those who are here: arena and host pool together.

use baton_contract::memory::size;

use super::Memory;
use super::allocate::Claim;
use crate::server::tenants::table::Tenants;
use baton_books::reservations::{Need, Run};

/// One of so many bytes is the coordinator's user's and root's alone, however many guests there are.
const OWN_PART: u64 = 8;

impl Memory {
    /// What all tenants together can have, in bytes.
    fn most(&self) -> u64 {
        let (arena, pool) = (self.frames.arena().capacity(), self.host.pool().bytes());
        // As long as everything fits the arena, nothing ever has to move. Beyond that, one extent's room is
        // kept free, so that one can always go where another comes from.
        arena.max((arena + pool).saturating_sub(self.frames.arena().largest_class().bytes()))
    }

    /// What of arena and host pool tenants of this run can have on top of what all have, in bytes: not what is kept for others.
    pub(super) fn grantable(&self, tenants: &Tenants, run: Option<Run>) -> u64 {
        let kept = tenants.reservations().of_others(run);
        self.most().saturating_sub(tenants.totals().used()).saturating_sub(kept)
    }

    /// What the programs of this guest can have at most together, in bytes.
    pub(in crate::server) fn most_of(&self, guest: Option<u32>) -> u64 {
        let all = self.frames.arena().capacity() + self.host.pool().bytes();
        guest.map_or(all, |_| self.rules.quotas.memory().min(all - all / OWN_PART))
    }

    /// How much more the programs of this guest may have together, as far as quotas are concerned.
    pub(super) fn quota_left(&self, tenants: &Tenants, guest: Option<u32>) -> u64 {
        let Some(user) = guest else { return u64::MAX };
        let all = self.frames.arena().capacity() + self.host.pool().bytes();
        let own = self.rules.quotas.memory().saturating_sub(tenants.memory_of_guest(user).used());
        own.min((all - all / OWN_PART).saturating_sub(tenants.memory_of_guests().used()))
    }

    /// How many bytes there are too few for one that comes and needs so much.
    pub(in crate::server) fn lacking(&self, tenants: &Tenants, need: Need) -> u64 {
        let claimed: u64 = self.claims.iter().map(Claim::bytes).sum();
        let free = self.grantable(tenants, None).saturating_sub(claimed);
        let kept = need.run.guest.map_or(0, |user| tenants.reservations().of_guest(user));
        let left = self.quota_left(tenants, need.run.guest).saturating_sub(kept);
        tenants.reservations().lacking(need).saturating_sub(free.min(left))
    }

    /// Why one that needs so much would wait for ever, if it would.
    pub(in crate::server) fn never_has(&self, tenants: &Tenants, need: Need) -> Option<String> {
        let (arena, pool) = (self.frames.arena().configured(), self.host.pool().bytes());
        let limit = match need.run.guest {
            Some(user) if need.bytes > self.most_of(need.run.guest).min(arena + pool) => {
                format!("programs of user {user} may have {} together", size(self.most_of(need.run.guest)))
            }
            _ if need.bytes > arena + pool || tenants.is_empty() && need.bytes > self.most() => {
                format!("arena ({}) and host pool ({}) together are less", size(arena), size(pool))
            }
            _ => return None,
        };
        Some(format!("it needs {} of memory, and {limit}", size(need.bytes)))
    }
}
