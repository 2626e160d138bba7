//! The ground floor: the owners of memory itself, and everything else needed to manage it.
//!
//! The layers above, [`Residency`](super::residency::Residency) and [`Claims`](super::claims::Claims), are passed a [`Ground`]. No
//! code here knows of either.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

use baton_contract::messages::ExtentId;
use baton_contract::page::TAKEN;

use super::departed::{Departed, Remains};
use super::events::MemoryEvent;
use super::frames::Frames;
use super::host::Host;
use super::scans::Scans;
use super::transfer::Transfer;
use crate::server::cost_model::CostModel;
use crate::server::options::Isolation;
use crate::server::recorder::Recorder;
use crate::server::tenants::guests::Quotas;
use crate::server::tenants::table::Tenants;
use crate::server::tenants::tenant::Tenant;
use baton_books::arena::Owner;
use baton_books::extents::Extent;
use baton_books::pool::Run;
use baton_books::sharing::Sharing;
use baton_policy::arbiter::TenantId;
use baton_policy::arrival::Pipeline;
use baton_policy::scheduler::Scheduler;

/// The rules by which memory is managed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) headroom: u64,
    pub(super) pipeline: Pipeline,
    pub(super) hash: bool,
    pub(super) isolation: Isolation,
    pub(super) quotas: Quotas,
}

/// The owners of memory itself.
pub(super) struct Store {
    pub(super) rules: Rules,
    pub(super) frames: Frames,
    pub(super) host: Host,
    pub(super) transfer: Transfer,
    pub(super) departed: Departed,
    pub(super) scans: Scans,
    /// Memory that tenants share with each other.
    pub(super) sharing: Sharing<TenantId>,
    pub(super) events: VecDeque<MemoryEvent>,
    /// Tenants of another coordinator are expected back until then, with memory that they may give to others.
    pub(super) returning: Option<Instant>,
}

/// Memory itself, and everything else needed to manage it.
pub(super) struct Ground<'a> {
    pub(super) store: &'a mut Store,
    pub(super) tenants: &'a mut Tenants,
    /// Read only.
    pub(super) arbiter: &'a Scheduler,
    pub(super) recorder: &'a mut Recorder,
    pub(super) costs: &'a mut CostModel,
}

impl Ground<'_> {
    /// Bytes of a tenant's movable memory that are on the GPU.
    pub(super) fn resident_bytes(&self, id: TenantId) -> u64 {
        let resident = |tenant: &Tenant| {
            let counts = tenant.extents().counts();
            counts.here() - counts.immovable
        };
        self.tenants.get(id).map_or(0, resident)
    }

    /// Releases an extent that its tenant no longer has, once its copy is over.
    pub(super) fn release_orphan(&mut self, tenant: TenantId, extent: ExtentId) {
        if let Some((frame, runs)) = self.store.departed.take_orphan(tenant, extent) {
            if let Some(frame) = frame {
                self.store.frames.release(frame);
            }
            self.store.host.give_back(runs);
        }
    }

    /// Frees a resident extent's place in the pool.
    pub(super) fn give_up_room(&mut self, id: TenantId, extent: ExtentId) {
        let runs = self.tenants.extents(id).and_then(|mut extents| extents.give_up_backing(extent));
        self.store.host.give_back(runs.unwrap_or_default());
    }

    /// Takes room in the pool. If there is none, extents that are also in the arena lose their place in the pool: first the
    /// arriving tenant's, because it is about to write to them, and within each tenant those that save the least.
    pub(super) fn room_in_pool(
        &mut self,
        bytes: u64,
        (leaving, extent): (TenantId, ExtentId),
        arriving: TenantId,
    ) -> Option<Vec<Run>> {
        if let Some(runs) = self.store.host.take(bytes) {
            return Some(runs);
        }
        let mut order: Vec<TenantId> = self.tenants.ids().collect();
        order.sort_by_key(|id| (*id != arriving, *id == leaving));
        for id in order {
            let Some(mut extents) = self.tenants.extents(id) else { continue };
            let has_room = |entry: &Extent| entry.runs().is_some_and(|runs| !runs.is_empty());
            let backed = extents.iter().filter(|(_, entry)| entry.state().is_resident() && has_room(entry));
            let mut backed: Vec<(u8, ExtentId)> =
                backed.map(|(number, entry)| (entry.saved_by_backing(), number)).collect();
            backed.sort_unstable();
            for (_, number) in backed {
                if (id, number) != (leaving, extent)
                    && let Some(runs) = extents.give_up_backing(number)
                {
                    self.store.host.give_up(runs);
                    if let Some(runs) = self.store.host.take(bytes) {
                        return Some(runs);
                    }
                }
            }
        }
        None
    }

    /// Lets a responsive tenant that has none of others' frames mapped any more go on, with or without the coordinator.
    pub(super) fn is_whole_again(&mut self, id: TenantId) {
        if let Some(tenant) = self.tenants.get(id)
            && !tenant.memory.is_taken()
            && tenant.extents().counts().left_behind == 0
            && tenant.memory.to_be_unmapped().is_empty()
            && tenant.connection.page.taken.swap(0, SeqCst) == TAKEN
        {
            self.raise(MemoryEvent::Whole(id));
        }
    }

    /// The owner that may reuse a tenant's frames.
    pub(super) fn owner_of(&self, id: TenantId) -> Owner {
        self.owner_of_number(id.0, self.tenants.get(id).and_then(|tenant| tenant.connection.control.guest()))
    }

    /// The owner that may reuse the frames of the tenant with this number, which is this guest's if it is a guest's.
    pub(super) fn owner_of_number(&self, number: u32, guest: Option<u32>) -> Owner {
        match self.store.rules.isolation {
            Isolation::Users => Owner::of_user(guest),
            Isolation::Strict => Owner::of_tenant(number),
        }
    }

    /// True if none of the tenant's work can run on the GPU now. Only then may its memory be touched.
    pub(super) fn is_off_the_gpu(&self, id: TenantId) -> bool {
        self.arbiter.state(id).is_off_the_gpu()
    }

    pub(super) fn raise(&mut self, event: MemoryEvent) {
        self.store.events.push_back(event);
    }

    pub(super) fn is_anybody_corunning(&self) -> bool {
        self.tenants.ids().any(|id| self.arbiter.is_corunner(id))
    }

    /// Makes co-runners leave. Returns true if there are any.
    pub(super) fn part_corunners(&mut self) -> bool {
        let any = self.is_anybody_corunning();
        if any {
            self.raise(MemoryEvent::CorunnersInTheWay);
        }
        any
    }

    /// True if frames sent to this tenant have not reached it yet.
    pub(super) fn awaits_delivery(&self, id: TenantId) -> bool {
        self.undelivered_since(id).is_some()
    }

    pub(super) fn undelivered_since(&self, id: TenantId) -> Option<Instant> {
        self.tenants.get(id)?.memory.undelivered_since()
    }
}

impl Store {
    /// Hands the own memory of a tenant that has ended to the departed.
    pub(super) fn bury(&mut self, id: TenantId, extents: Vec<(ExtentId, Extent)>, remains: Option<Remains>) {
        let copied = self.transfer.copied_of(id);
        let (mut own, mut held) = (Vec::new(), Vec::new());
        for (extent, entry) in extents {
            held.extend(entry.left_behind());
            if let Some((frame, keepsake)) = entry.kept() {
                self.frames.let_go(frame, keepsake);
            }
            if copied.contains(&extent) {
                self.departed.add_orphan((id, extent), entry);
            } else {
                own.extend(entry.state().frame());
                self.host.give_back(entry.into_runs());
            }
        }
        self.departed.bury(id, (own, held), remains, &mut self.frames);
    }
}
