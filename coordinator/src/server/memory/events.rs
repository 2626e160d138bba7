//! Events of memory that other modules act upon.

use baton_policy::arbiter::TenantId;

/// An event of memory that another module has to act upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum MemoryEvent {
    /// All memory of the unit that is swapped in is on the GPU.
    AllHere(TenantId),
    /// The tenant can run: all pointers in its arriving memory are known, and there are frames for everything.
    Ready(TenantId),
    /// The tenant's missing memory cannot come now.
    CannotArrive(TenantId),
    /// The tenant's missing memory cannot come now, and the tenant already runs.
    Stranded(TenantId),
    /// Memory is free that belonged to tenants which have ended.
    Free,
    /// Memory has to leave, and some of it belongs to co-runners.
    CorunnersInTheWay,
    /// The tenant's spare memory is in the way of the memory it asks for. The spare memory is given back when the tenant leaves the
    /// GPU.
    SpareInTheWay(TenantId),
    /// The tenant has to leave the GPU, and to come in anew: some of its memory is to become one piece, or is shared from now on and not here.
    ComesAnew(TenantId),
    /// The tenant has none of others' frames mapped any more.
    Whole(TenantId),
    /// A copy of the tenant's memory failed, so with this coordinator it could only go on with wrong contents.
    NotCopied(TenantId),
}
