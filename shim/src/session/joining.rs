//! Decides when this process becomes a tenant, or stays without a session.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use baton_contract::cuda::{CUDA_SUCCESS, CUdevice};
use baton_contract::settings;

use super::connect::{self, Unjoined};
use super::tenant::{self, Session, of};
use super::{control, fork, gang, refuse};
use crate::arrival::gpus;
use crate::channels::Own;
use crate::driver::api::{self, bit};
use crate::driver::in_use;
use crate::gate::{self, Keeper};
use crate::link;
use crate::sys::by_device::MOST;
use crate::sys::{cancel, process, reserve, user};
use crate::work::leaving;

/// A bit for each device of which it is settled for good that this process has a session there, or has none.
static DECIDED: AtomicU64 = AtomicU64::new(0);
/// A bit for each device that this process uses without Baton.
static PASSED_OVER: AtomicU64 = AtomicU64::new(0);

fn is_decided(device: CUdevice) -> bool {
    DECIDED.load(Ordering::Acquire) & bit(device) != 0
}

fn is_passed_over(device: CUdevice) -> bool {
    PASSED_OVER.load(Ordering::Acquire) & bit(device) != 0
}

/// Makes calls that cannot simply pass the gate tell the session. `bare` leads calls past us where CUDA does not work any more; it is
/// async-signal-safe.
pub(crate) fn attend(bare: fn()) {
    static KEEPER: Keeper =
        Keeper { decide: join_for_current, demand: tenant::demand, awoke: tenant::wake, begin_work_on };
    static ATTENDED: AtomicBool = AtomicBool::new(false);
    if ATTENDED.swap(true, Ordering::AcqRel) {
        return;
    }
    gate::keep(&KEEPER);
    BARE.store(bare as *mut (), Ordering::Release);
    process::attend(start_anew);
}

/// Leads all calls past us.
static BARE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Runs in a forked copy of this process: there is no session, and if CUDA was used, it does not work there. Async-signal-safe.
fn start_anew() {
    gate::start_anew();
    forget();
    let bare = BARE.load(Ordering::Acquire);
    if process::is_bare() && !bare.is_null() {
        // SAFETY: nothing but such a function is stored there.
        unsafe { core::mem::transmute::<*mut (), fn()>(bare)() };
    }
}

/// Called before the program takes a GPU: it joins that GPU's coordinator first.
pub(crate) fn join(device: CUdevice) {
    if !is_decided(device) {
        decide(device);
    }
}

/// Like [`join`], if the thread has a context that was made in a way that we do not see.
pub(crate) fn join_for_current() {
    let (mut context, mut device) = (core::ptr::null_mut(), -1);
    // SAFETY: out-parameters.
    let known = unsafe {
        api::current(&mut context) == CUDA_SUCCESS
            && !context.is_null()
            && api::current_device(&mut device) == CUDA_SUCCESS
    };
    if !known || is_decided(device) {
        return;
    }
    join(device);
    if let Some(session) = of(device) {
        leaving::adopt(context.expose_provenance(), device);
        session.channels_changed();
    }
}

/// Called before the program's first work or memory on a GPU, when it has taken several. From then on it runs on all of those at the same
/// time, or not at all, so it waits for its first turn there. A GPU with no more than a context keeps no other waiting.
fn begin_work_on(device: CUdevice) {
    let _uncancelled = cancel::Off::begin();
    join(device);
    let Some(session) = of(device) else { return gpus::works_on(device) };
    // A process that was started for a gang has its number already.
    let number = gang::of_this_process();
    let together = |other: &&Session| other.device == device || gpus::is_at_work_on(other.device);
    tenant::all().filter(together).for_each(|other| other.link.requests.join_gang(number));
    session.await_first_turn();
}

#[cold]
fn decide(device: CUdevice) {
    let _uncancelled = cancel::Off::begin();
    /// Other threads wait until it is decided: their calls may need the answer.
    static DECIDING: Mutex<()> = Mutex::new(());
    // Before any thread waits for this one, because it needs the loader's lock.
    api::find_all();
    // Where CUDA does not work, as in the forked child of a program that uses it, the call itself returns that error.
    if in_use::is_refusing() {
        return;
    }
    let Some(uuid) = api::uuid(device) else { return };
    let channels = Own::find(uuid);
    let _deciding = DECIDING.lock().unwrap_or_else(PoisonError::into_inner);
    if is_decided(device) {
        return;
    }
    if gate::check().is_err() {
        // The memory of another GPU is lost, and no call passes any more.
        return pass_over(device);
    }
    match connect::join(device, uuid, channels).and_then(begin) {
        Ok(()) => drop(DECIDED.fetch_or(bit(device), Ordering::AcqRel)),
        Err(Unjoined::NotAsked) => pass_over(device),
        Err(Unjoined::Cannot { why, remedy }) if user::is_on(settings::REQUIRE) => refuse::end(&why, remedy),
        Err(Unjoined::Cannot { why, remedy }) => {
            user::warn(&baton_messages::goes_without(why, remedy));
            pass_over(device);
        }
    }
}

/// Notes that this device is used without Baton. When all devices are, no call has to ask any more.
fn pass_over(device: CUdevice) {
    gpus::note(device, false);
    let passed = PASSED_OVER.fetch_or(bit(device), Ordering::AcqRel) | bit(device);
    DECIDED.fetch_or(bit(device), Ordering::AcqRel);
    let mut count = 0;
    // SAFETY: an out-parameter.
    unsafe { api::device_count(&mut count) };
    if (0..count).all(|device| passed & bit(device) != 0) {
        gate::decided();
    }
}

fn begin(session: Session) -> Result<(), Unjoined> {
    reserve::keep();
    let session = tenant::keep(session);
    if control::begin(session) {
        return Ok(());
    }
    tenant::give_up(session);
    Err(connect::cannot(baton_messages::no_thread(), baton_messages::ALLOW_THREADS))
}

/// Joins the coordinator of the GPU with this UUID, for memory there that other processes have exported. `None` if this process does not
/// see that GPU, or it is not shared.
pub(crate) fn join_for_memory(uuid: [u8; 16]) -> Option<&'static Session> {
    let is_it = |device: &CUdevice| api::uuid(*device) == Some(uuid);
    let device = (0..MOST as CUdevice).take_while(|device| api::uuid(*device).is_some()).find(is_it)?;
    join(device);
    if gpus::are_several() {
        gpus::begin_work_on(device);
    }
    of(device)
}

/// The size of "the GPU" that the program sees, now or once it has joined; `None` if that is the GPU itself.
pub(crate) fn total_of(device: CUdevice) -> Option<u64> {
    if let Some(session) = of(device) {
        return Some(session.link.total());
    }
    if is_decided(device) {
        return None;
    }
    let _uncancelled = cancel::Off::begin();
    connect::offered(api::uuid(device)?)
}

/// A GPU's relation to this program.
pub(crate) enum Relation {
    /// The program shares it.
    Session(&'static Session),
    /// The program would share it, and would have so many bytes of it.
    Offer(u64),
}

/// The relation of a GPU, by its UUID, to this program, if the GPU is shared.
pub(crate) fn relation_to(uuid: [u8; 16]) -> Option<Relation> {
    let is_it = |device: CUdevice| api::uuid(device) == Some(uuid);
    if let Some(session) = tenant::all().find(|session| is_it(session.device)) {
        return Some(Relation::Session(session));
    }
    if (0..MOST as CUdevice).any(|device| is_passed_over(device) && is_it(device)) {
        return None;
    }
    connect::offered(uuid).map(Relation::Offer)
}

/// Forgets the sessions in a forked child: the parent's descriptors must not stay open here. Async-signal-safe.
fn forget() {
    if link::forget() {
        // The GPU first: to the coordinator, the end of the connection means that the process no longer holds the GPU either.
        fork::let_go_of_the_gpu();
        link::close_sockets();
        reserve::forget();
    }
}
