//! The coordinator's client: the connection and the shared pages, for each GPU that is shared. `requests` has the requests of the program's
//! threads, one at a time for each GPU, each answered.

pub(crate) mod requests;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use baton_contract::cuda::CUdevice;
use baton_contract::link;
use baton_contract::messages::{MemoryReport, Message};
use baton_contract::page::{CoordinatorPage, TenantPage};
use baton_contract::wire::GpuNumber;

use crate::sys::by_device::{ByDevice, MOST, place};
use crate::sys::{cancel, pages, process};
use requests::Requests;

/// A tenant's side of its connection.
#[derive(Debug)]
pub(crate) struct Link {
    /// The GPU that is shared by it.
    pub(crate) device: CUdevice,
    /// The socket for the coordinator's commands and this process's reports.
    pub(crate) control: OwnedFd,
    pub(crate) requests: Requests,
    /// The number by which the coordinator knows the GPU.
    pub(crate) gpu: GpuNumber,
    /// The number by which the coordinator knows this process.
    pub(crate) tenant: u32,
    coordinators: NonNull<CoordinatorPage>,
    own: NonNull<TenantPage>,
}

// SAFETY: the two pages are mapped for ever and made of atomics; all other fields may be shared anyway.
unsafe impl Send for Link {}
// SAFETY: as above.
unsafe impl Sync for Link {}

static LINKS: ByDevice<Link> = ByDevice::new();
/// The process that is a tenant, by its [number](process::number); 0 if none is. A link whose coordinator is gone stays: its memory is
/// still here.
static TENANT: AtomicU32 = AtomicU32::new(0);
/// The two sockets of each link, for [`forget`], which may touch only plain integers.
static SOCKETS: [[AtomicU32; 2]; MOST] = [const { [const { AtomicU32::new(NONE) }; 2] }; MOST];
const NONE: u32 = u32::MAX;

/// True if this process is a tenant.
#[inline]
pub(crate) fn is_any() -> bool {
    TENANT.load(Ordering::Acquire) == process::number()
}

/// The link for a GPU, if this process is a tenant there.
#[inline]
pub(crate) fn of(device: CUdevice) -> Option<&'static Link> {
    if is_any() { LINKS.get(device) } else { None }
}

/// Makes this process a tenant of a GPU.
pub(crate) fn begin(link: Link) -> &'static Link {
    let link: &'static Link = Box::leak(Box::new(link));
    let sockets = &SOCKETS[place(link.device)];
    sockets[0].store(link.control.as_raw_fd() as u32, Ordering::Relaxed);
    sockets[1].store(link.requests.raw() as u32, Ordering::Relaxed);
    LINKS.set(link.device, link);
    TENANT.store(process::number(), Ordering::Release);
    link
}

/// Undoes [`begin`].
pub(crate) fn give_up(device: CUdevice) {
    LINKS.remove(device);
    if !LINKS.is_any() {
        TENANT.store(0, Ordering::Release);
    }
}

/// Makes a forked child no tenant. True if its parent was one. Async-signal-safe.
pub(crate) fn forget() -> bool {
    LINKS.clear();
    TENANT.swap(0, Ordering::AcqRel) != 0
}

/// Closes the parent's sockets, in a forked child that has forgotten them. Async-signal-safe.
pub(crate) fn close_sockets() {
    for socket in SOCKETS.iter().flatten() {
        let number = socket.load(Ordering::Relaxed);
        if number != NONE {
            // SAFETY: a descriptor of a link, which the child does not have.
            unsafe { libc::close(number as i32) };
        }
    }
}

impl Link {
    /// # Safety
    ///
    /// Both pages are mapped for ever, whole and aligned; its own one writable.
    pub(crate) unsafe fn new(
        device: CUdevice,
        (control, requests): (OwnedFd, OwnedFd),
        (gpu, tenant): (GpuNumber, u32),
        coordinators: NonNull<CoordinatorPage>,
        own: NonNull<TenantPage>,
    ) -> Self {
        Self { device, control, requests: Requests::new(requests, gpu), gpu, tenant, coordinators, own }
    }

    /// Sends a report. A lost coordinator is noticed by the thread that reads its commands.
    pub(crate) fn tell(&self, message: &impl Message) {
        self.tell_with(message, None);
    }

    pub(crate) fn tell_with(&self, message: &impl Message, descriptor: Option<BorrowedFd<'_>>) {
        let _uncancelled = cancel::Off::begin();
        baton_faults::reach("program tells", message);
        let _ = link::send(self.control.as_fd(), &message.encode(self.gpu), descriptor.as_slice(), false);
        baton_faults::reach("program told", message);
    }

    /// Reports that so many leased bytes are no longer needed.
    pub(crate) fn unlease(&self, bytes: u64) {
        self.tell(&MemoryReport::Unleased { bytes });
    }

    /// Reports that the context for which there was room was made, or could not be.
    pub(crate) fn context_made(&self, made: bool) {
        self.tell(&MemoryReport::ContextMade { made });
    }

    /// Reports that a context has gone.
    pub(crate) fn context_gone(&self) {
        self.tell(&MemoryReport::ContextGone);
    }

    /// The memory that this program could have beside the others', in bytes: its own movable memory, and the memory that would be granted.
    pub(crate) fn could_have(&self) -> u64 {
        self.coordinators().could_have_bytes.load(Ordering::Relaxed)
    }

    /// The size of "the GPU" that this program sees, in bytes.
    pub(crate) fn total(&self) -> u64 {
        self.coordinators().arena_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn coordinators(&self) -> &CoordinatorPage {
        // SAFETY: by the contract of `new`; made of atomics that are only read.
        unsafe { self.coordinators.as_ref() }
    }

    /// Has another coordinator's page take the place of the last one's. False if it cannot be mapped.
    pub(crate) fn replace_page(&self, file: &OwnedFd) -> bool {
        pages::replace(self.coordinators, file)
    }

    /// The page that this process shows.
    pub(crate) fn own(&self) -> &TenantPage {
        // SAFETY: by the contract of `new`; made of atomics.
        unsafe { self.own.as_ref() }
    }
}
