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
//! - `corun`: where this program stands when it runs at the same time as others.
//! - `probe`: whether that can be done while our work is paused.
//! - `fork`: what a forked child must not keep.

mod connect;
mod control;
mod corun;
mod fork;
mod probe;
mod refuse;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use baton_contract::cuda::{CUDA_SUCCESS, CUdevice};
use baton_contract::messages::{PreemptionReport, TurnReport};
use baton_contract::settings;

use crate::channels::Own;
use crate::driver::api;
use crate::gate::{self, Keeper};
use crate::link::{self, Link};
use crate::memory::space::Space;
use crate::sys::event::Event;
use crate::sys::once::Once;
use crate::sys::user;
use crate::work::{self, contexts};
use connect::Unjoined;

/// This process as a tenant.
pub(crate) struct Session {
    /// The GPU that is shared.
    pub(crate) device: CUdevice,
    pub(crate) link: &'static Link,
    space: &'static Space,
    /// What of us the coordinator can pause, and that this has changed.
    channels: Own,
    news: Event,
    /// Nothing runs before all memory is back.
    whole: bool,
}

static SESSION: Once<Session> = Once::new();
/// Somebody has asked for the baton since the gate was closed.
static DEMANDED: AtomicBool = AtomicBool::new(false);

/// It is decided for good whether this process has a session.
static DECIDED: AtomicBool = AtomicBool::new(false);
/// A bit for each device that this process uses without Baton.
static PASSED_OVER: AtomicU64 = AtomicU64::new(0);

/// The session, if this process has one.
pub(crate) fn get() -> Option<&'static Session> {
    link::get().and_then(|_| SESSION.get())
}

/// From here on calls that cannot simply pass the gate tell the session.
pub(crate) fn attend() {
    static KEEPER: Keeper = Keeper { decide: join_for_current, demand, awoke: wake };
    static ATTENDED: AtomicBool = AtomicBool::new(false);
    if ATTENDED.swap(true, Ordering::AcqRel) {
        return;
    }
    gate::keep(&KEEPER);
    extern "C" fn start_anew() {
        gate::start_anew();
        work::start_anew();
        forget();
    }
    // SAFETY: the handler makes system calls and stores to atomics that live for ever, nothing else.
    unsafe { libc::pthread_atfork(None, None, Some(start_anew)) };
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
        contexts::adopt(context.expose_provenance(), device);
        if let Some(session) = get() {
            session.channels_changed();
        }
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
    let (session, _) = SESSION.keep(session);
    if control::start(session) {
        return Ok(());
    }
    link::give_up();
    Err(connect::cannot("no thread can be started", "allow the program more threads (`ulimit -u`)"))
}

/// The size of "the GPU" that the program sees, now or when it will have joined; none if that is the GPU itself.
pub(crate) fn total_of(device: CUdevice) -> Option<u64> {
    match get() {
        Some(session) => (session.device == device).then(|| session.link.total()),
        None if DECIDED.load(Ordering::Acquire) || PASSED_OVER.load(Ordering::Acquire) & bit(device) != 0 => None,
        None => connect::offered(connect::uuid(device)?),
    }
}

/// In a forked child: there is no session, and what the parent holds must not live on here. Async-signal-safe.
fn forget() {
    if link::forget() {
        // The GPU first: the coordinator takes the end of the connection for a sign that nobody holds either.
        fork::let_go_of_the_gpu();
        link::close_sockets();
    }
}

/// The program is at work again: it has to be looked when it comes to rest.
fn wake() {
    if let Some(session) = get() {
        session.news.raise();
    }
}

/// A call waits at the closed gate.
fn demand() {
    if let Some(link) = link::get()
        && !DEMANDED.swap(true, Ordering::AcqRel)
    {
        link.tell(&TurnReport::Demand);
    }
}

impl Session {
    /// Says what of us can be paused, if that has changed. Only one thread does, so that the last word is the last one sent.
    fn tell_channels(&self) {
        if let Some((channels, descriptor)) = self.channels.news() {
            self.link.tell_with(&PreemptionReport::Channels { channels }, descriptor);
        }
    }

    /// A context came or went: there is something to tell.
    pub(crate) fn channels_changed(&self) {
        self.news.raise();
    }
}
