//! The two pages that a tenant and the coordinator share, one for each direction, and the activity page, which all share.
//!
//! Each of the two is written by one side only, and says nothing that the other side must believe: the coordinator
//! shows what a tenant's page says, and decides by its own tables. A page is 4096 bytes of memory that both
//! sides have mapped, so it holds fixed-width integers only, each read and written as a whole.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The size of either page, in bytes.
pub const PAGE_BYTES: usize = 4096;

/// Written by the coordinator, read-only in the tenant.
#[repr(C)]
#[derive(Debug, Default)]
pub struct CoordinatorPage {
    /// [`crate::wire::VERSION`].
    pub version: AtomicU32,
    /// What the tenant may have at most, in bytes: the size of "its GPU".
    pub arena_bytes: AtomicU64,
}

/// Written by the tenant.
#[repr(C)]
#[derive(Debug, Default)]
pub struct TenantPage {
    /// Device memory that is not virtualised, in bytes.
    pub unmanaged_bytes: AtomicU64,
    /// Where the addresses that it gives to allocations begin: a word between here and the end may be a pointer.
    pub window_start: AtomicU64,
    /// Where they end.
    pub window_end: AtomicU64,
    /// While it is inside of the call that [`Probe`](crate::messages::PreemptionCommand::Probe) asks for:
    /// 1 and the milliseconds in which it was seen to be there. Otherwise 0.
    pub probing: AtomicU32,
    /// Changes again and again while it is at work beside others: it was not stopped.
    pub heartbeat: AtomicU32,
}

/// On which tenants that run beside others say that they are at work: written by tenants of class latency and the coordinator,
/// read by all. Nothing but the pace of others depends on it.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ActivityPage {
    /// A bit for each of them that is at work. Who waits for it to be 0 waits with a (shared) futex.
    pub busy: AtomicU32,
    /// Nobody waits for those at work while this is 1: the others have waited for so long that it is their turn, or their work
    /// is descheduled and disturbs nobody.
    pub pass: AtomicU32,
}

/// How many tenants can be on the activity page.
pub const ACTIVITY_SLOTS: u32 = u32::BITS;

const _: () = assert!(size_of::<ActivityPage>() <= PAGE_BYTES);
const _: () = assert!(size_of::<CoordinatorPage>() <= PAGE_BYTES && size_of::<TenantPage>() <= PAGE_BYTES);
const _: () = assert!(core::mem::offset_of!(CoordinatorPage, arena_bytes) == 8);
