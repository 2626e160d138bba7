//! The session: this process as a tenant of a coordinator.
//!
//! It begins when the program first takes a GPU that is shared: with its first context there, or with device memory before
//! that, at the latest with the first hooked call that finds a context. It ends with the process. A program that only asks
//! what GPUs there are has none, nor has one without a coordinator, and everything passes through. A forked child has
//! none: CUDA does not work there either.
//!
//! - `connect`: finds the coordinator and greets it.
//! - `refuse`: ends a program that has to share the GPU and cannot.
//! - `control`: the thread that does what it says.
//! - `probe`: whether that can be done while our work is paused.
//! - `fork`: what a forked child must not keep.

mod connect;
mod control;
mod fork;
mod probe;
mod refuse;

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use baton_contract::cuda::{CUDA_SUCCESS, CUdevice};
use baton_contract::link;
use baton_contract::messages::FromTenant;
use baton_contract::page::{CoordinatorPage, TenantPage};
use baton_contract::settings;

use crate::channels::Own;
use crate::link::requests::Requests;
use crate::memory::space::Space;
use crate::memory::unmanaged::Pinned;
use crate::sys::once::Once;
use crate::{driver::api, gate, sys::user};
use connect::Unjoined;

/// Something that one thread waits for and others make happen.
struct Event(OwnedFd);

impl Event {
    fn new() -> Option<Self> {
        // SAFETY: plain integers; the answer is checked before it is used.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        // SAFETY: new, and ours.
        (event >= 0).then(|| Self(unsafe { OwnedFd::from_raw_fd(event) }))
    }

    fn raise(&self) {
        // SAFETY: eight bytes that live over the call.
        unsafe { libc::write(self.0.as_raw_fd(), core::ptr::from_ref(&1u64).cast(), size_of::<u64>()) };
    }

    fn lower(&self) {
        let mut count = 0u64;
        // SAFETY: as above.
        unsafe { libc::read(self.0.as_raw_fd(), core::ptr::from_mut(&mut count).cast(), size_of::<u64>()) };
    }
}

/// A tenant's side of its connection.
pub(crate) struct Session {
    /// The GPU that is shared.
    pub(crate) device: CUdevice,
    control: OwnedFd,
    pub(crate) requests: Requests,
    coordinators: NonNull<CoordinatorPage>,
    own: NonNull<TenantPage>,
    pub(crate) space: Space,
    pub(crate) pinned: Pinned,
    /// What of us the coordinator can pause, and that this has changed.
    channels: Own,
    news: Event,
    /// Nothing runs before all memory is back.
    whole: bool,
}

// SAFETY: the two pages are mapped for ever and made of atomics; all else may be shared anyway.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

static SESSION: Once<Option<Session>> = Once::new();
/// Cleared in a forked child. A session whose coordinator is gone stays: its memory is still here.
static LIVE: AtomicBool = AtomicBool::new(false);
/// Somebody has asked for the baton since the gate was closed.
static DEMANDED: AtomicBool = AtomicBool::new(false);
/// The two sockets, for [`forget`], which may touch nothing but plain integers.
static SOCKETS: [AtomicU32; 2] = [const { AtomicU32::new(u32::MAX) }; 2];

/// It is decided for good whether this process has a session.
static DECIDED: AtomicBool = AtomicBool::new(false);
/// A bit for each device that this process uses without Baton.
static PASSED_OVER: AtomicU64 = AtomicU64::new(0);

/// The session, if this process has one.
pub(crate) fn get() -> Option<&'static Session> {
    if !LIVE.load(Ordering::Acquire) {
        return None;
    }
    SESSION.get()?.as_ref()
}

/// Starts a thread of ours. The program's signals are not for it: it is started with all of them blocked.
fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    // SAFETY: signal sets are plain memory; the old one is put back.
    unsafe {
        let (mut all, mut before) = (core::mem::zeroed(), core::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let started = std::thread::Builder::new().name(name.to_owned()).spawn(work).is_ok();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, core::ptr::null_mut());
        started
    }
}

/// The program is about to take a GPU: it joins that GPU's coordinator first.
pub(crate) fn join(device: CUdevice) {
    if !DECIDED.load(Ordering::Acquire) && PASSED_OVER.load(Ordering::Acquire) & bit(device) == 0 {
        decide(device);
    }
}

/// As [`join`], if the thread has a context: one that was made in a way that we do not see.
pub(crate) fn join_for_current() {
    if DECIDED.load(Ordering::Acquire) {
        return;
    }
    let (mut context, mut device) = (core::ptr::null_mut(), -1);
    // SAFETY: out-parameters.
    let known = unsafe {
        api::current(&mut context) == CUDA_SUCCESS
            && !context.is_null()
            && api::current_device(&mut device) == CUDA_SUCCESS
    };
    if !known {
        return;
    }
    join(device);
    if get().is_some_and(|session| session.device == device) {
        crate::hooks::work::adopt(context, device);
    }
}

#[cold]
fn decide(device: CUdevice) {
    /// Others wait until it is decided: whatever they call may need the answer.
    static DECIDING: Mutex<()> = Mutex::new(());
    // Before anybody waits for us: this needs the loader's lock.
    api::find_all();
    // Where CUDA does not work, as in the forked child of a program that uses it, the call says so itself.
    let Some(uuid) = connect::uuid(device) else { return };
    let channels = Own::find(uuid);
    let _deciding = DECIDING.lock().unwrap_or_else(PoisonError::into_inner);
    if DECIDED.load(Ordering::Acquire) || PASSED_OVER.load(Ordering::Acquire) & bit(device) != 0 {
        return;
    }
    match connect::join(device, uuid, channels).and_then(begin) {
        Ok(()) => DECIDED.store(true, Ordering::Release),
        Err(Unjoined::NotAsked) => pass_over(device),
        Err(Unjoined::Cannot { why, remedy }) if user::is_on(settings::REQUIRE) => refuse::end(&why, &remedy),
        Err(Unjoined::Cannot { why, remedy }) => {
            user::warn(format_args!("{why}; {remedy}; running without Baton"));
            pass_over(device);
        }
    }
}

fn bit(device: CUdevice) -> u64 {
    1 << (device as u32 % u64::BITS)
}

/// This device is used without Baton. When all are, nobody has to ask any more.
fn pass_over(device: CUdevice) {
    let passed = PASSED_OVER.fetch_or(bit(device), Ordering::AcqRel) | bit(device);
    let mut count = 0;
    // SAFETY: an out-parameter.
    unsafe { api::device_count(&mut count) };
    if (0..count).all(|device| passed & bit(device) != 0) {
        DECIDED.store(true, Ordering::Release);
        gate::decided();
    }
}

fn begin(session: Session) -> Result<(), Unjoined> {
    SOCKETS[0].store(session.control.as_raw_fd() as u32, Ordering::Relaxed);
    SOCKETS[1].store(session.requests.raw() as u32, Ordering::Relaxed);
    let (session, _) = SESSION.keep(Some(session));
    let Some(session) = session.as_ref() else { return Ok(()) };
    LIVE.store(true, Ordering::Release);
    if control::start(session) {
        return Ok(());
    }
    LIVE.store(false, Ordering::Release);
    Err(connect::cannot("no thread can be started", "allow the program more threads (`ulimit -u`)"))
}

/// The size of "the GPU" that the program sees, now or when it will have joined; none if that is the GPU itself.
pub(crate) fn total_of(device: CUdevice) -> Option<u64> {
    match get() {
        Some(session) => (session.device == device).then(|| session.total()),
        None if DECIDED.load(Ordering::Acquire) || PASSED_OVER.load(Ordering::Acquire) & bit(device) != 0 => None,
        None => connect::offered(connect::uuid(device)?),
    }
}

/// In a forked child: there is no session, and what the parent holds must not live on here. Async-signal-safe.
pub(crate) fn forget() {
    if LIVE.swap(false, Ordering::AcqRel) {
        // The GPU first: the coordinator takes the end of the connection for a sign that nobody holds either.
        fork::let_go_of_the_gpu();
        for socket in &SOCKETS {
            // SAFETY: a descriptor of the session, which the child does not have.
            unsafe { libc::close(socket.load(Ordering::Relaxed) as i32) };
        }
    }
}

/// The program is at work again: its pager has to look when it comes to rest.
pub(crate) fn wake_pager() {
    if let Some(session) = get() {
        session.news.raise();
    }
}

/// A call waits at the closed gate.
pub(crate) fn demand() {
    if let Some(session) = get()
        && !DEMANDED.swap(true, Ordering::AcqRel)
    {
        session.tell(&FromTenant::Demand);
    }
}

impl Session {
    /// Sends a report. A coordinator that is gone is noticed by the pager.
    fn tell(&self, message: &FromTenant) {
        self.tell_with(message, None);
    }

    fn tell_with(&self, message: &FromTenant, descriptor: Option<BorrowedFd<'_>>) {
        let _ = link::send(self.control.as_fd(), &message.encode(), descriptor.as_slice(), false);
    }

    /// Says what of us can be paused, if that has changed. Only the pager does, so that the last word is the last one sent.
    fn tell_channels(&self) {
        if let Some((channels, descriptor)) = self.channels.news() {
            self.tell_with(&FromTenant::Channels { channels }, descriptor);
        }
    }

    /// A context came or went: the pager has something to tell.
    pub(crate) fn channels_changed(&self) {
        self.news.raise();
    }

    /// The size of "the GPU" that this program sees, in bytes.
    pub(crate) fn total(&self) -> u64 {
        self.coordinators().arena_bytes.load(Ordering::Relaxed)
    }

    fn coordinators(&self) -> &CoordinatorPage {
        // SAFETY: mapped for ever by `connect`, page-aligned, made of atomics that are only read.
        unsafe { self.coordinators.as_ref() }
    }

    fn own(&self) -> &TenantPage {
        // SAFETY: mapped for ever by `connect`, page-aligned, made of atomics.
        unsafe { self.own.as_ref() }
    }

    /// Shows what the program has.
    pub(crate) fn show_taken(&self) {
        self.own().allocated_bytes.store(self.space.taken(), Ordering::Relaxed);
    }

    /// Shows what is not virtualised.
    pub(crate) fn show_unmanaged(&self, bytes: u64) {
        self.own().unmanaged_bytes.store(bytes, Ordering::Relaxed);
    }
}
