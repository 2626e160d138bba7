//! What others have to act upon.

use baton_policy::arbiter::TenantId;

/// What somebody else has to act upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum MemoryEvent {
    /// All memory is here of the unit that is swapped in.
    AllHere(TenantId),
    /// It can run: what is on its way is known with all that it points to, and there are frames for everything.
    Ready(TenantId),
    /// What it lacks cannot come now.
    CannotArrive(TenantId),
    /// The same, and it runs already.
    Stranded(TenantId),
    /// Memory has to go, and some of it is of tenants that run beside others.
    CorunnersInTheWay,
    /// What is spare of its memory is in the way of what it asks for: it is given back when the tenant leaves the GPU.
    SpareInTheWay(TenantId),
    /// Some of its memory is to become one piece: it has to leave the GPU, and to come in anew.
    Consolidates(TenantId),
    /// Nothing of others is mapped there any more.
    Whole(TenantId),
    /// A copy of its memory failed, so it could only go on with wrong contents.
    Spoiled(TenantId),
}
