//! Finding the coordinator and greeting it.

use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;

use baton_contract::class::Class;
use baton_contract::cuda::CUdevice;
use baton_contract::link::{Chosen, Received, Unconnected};
use baton_contract::memory::size;
use baton_contract::messages::{Admission, FromCoordinator, MAX_NAME, Message as _, Opening, Refusal};
use baton_contract::page::{ACTIVITY_SLOTS, CoordinatorPage, PAGE_BYTES};
use baton_contract::scheduling::Scheduling;
use baton_contract::wire::{GpuNumber, VERSION};
use baton_contract::{link, settings, socket_path};
use baton_messages::Message;

use super::tenant::{self, Session};
use crate::arrival::{gpus, roots};
use crate::channels::{self, Own};
use crate::gate;
use crate::gate::{activity, stamps};
use crate::link::Link;
use crate::memory::space;
use crate::sys::{pages, user};

/// The longest wait for a coordinator's answer to a greeting.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time after which a message tells the user that the program waits.
const SILENCE: Duration = Duration::from_secs(1);
/// How often a coordinator may die before it answers a greeting.
const MOST_DEATHS: u32 = 20;
/// The pause before a program that was told to come again tries once more.
const COME_AGAIN: Duration = Duration::from_millis(100);

/// The reason why there is no session.
pub(super) enum Unjoined {
    /// The user does not want this GPU to be shared, or this program to share it.
    NotAsked,
    /// Joining failed.
    Cannot {
        /// The reason for the failure.
        why: Message,
        /// The user's remedy.
        remedy: &'static str,
    },
}

pub(super) fn cannot(why: Message, remedy: &'static str) -> Unjoined {
    Unjoined::Cannot { why, remedy }
}

/// The socket of this GPU's coordinator, if the user wants the GPU to be shared.
fn place(uuid: [u8; 16]) -> Option<(PathBuf, Chosen)> {
    let is_other = |asked| asked != socket_path::gpu_name(uuid).as_str();
    if user::is_on(settings::DISABLE) || user::setting(settings::GPU).is_some_and(is_other) {
        return None;
    }
    // SAFETY: takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    let usual = socket_path::folder(user::setting(c"XDG_RUNTIME_DIR"), user);
    let path = user::setting(settings::SOCKET).map(PathBuf::from).unwrap_or_else(|| {
        let folder = user::setting(settings::FOLDER).map(PathBuf::from);
        folder.unwrap_or_else(|| usual.clone()).join(socket_path::socket_name(uuid))
    });
    let chosen = Chosen::of(&path, &usual);
    Some((path, chosen))
}

/// True if another GPU has to be shared, and this one only if it has a coordinator.
fn is_only_shared_if_it_can_be(uuid: [u8; 16]) -> bool {
    let required = user::setting(settings::REQUIRE);
    required.is_some_and(|gpu| gpu.as_bytes().starts_with(b"GPU-") && gpu != socket_path::gpu_name(uuid).as_str())
}

/// Becomes a tenant of a GPU's coordinator.
pub(super) fn join(device: CUdevice, uuid: [u8; 16], channels: Own) -> Result<Session, Unjoined> {
    let (path, chosen) = place(uuid).ok_or(Unjoined::NotAsked)?;
    // Other GPUs are used beside the first: those that have no coordinator as they are, and without a need.
    let is_first = !tenant::is_any();
    let (needs, run) = needs()?;
    let needs = if is_first { needs } else { 0 };
    let gang = of(settings::GANG, 0, baton_messages::A_NUMBER)?;
    let hello = Opening::Hello { name: name(), scheduling: scheduling()?, gpu: uuid, needs, run, gang };
    if !gate::prepare() {
        return Err(cannot(baton_messages::no_membarrier(), baton_messages::USE_LINUX_4_14));
    }
    let may_go_without = !is_first || is_only_shared_if_it_can_be(uuid);
    let (socket, received) = greet(&path, chosen, &hello, may_go_without)?;
    let (gpu, tenant, slot) = match FromCoordinator::decode(&received.message) {
        Ok((gpu, FromCoordinator::Admission(Admission::Welcome { tenant, slot }))) => (gpu, tenant, slot),
        // The user has named the coordinator of another GPU.
        Ok((_, FromCoordinator::Admission(Admission::Refused { reason: Refusal::OtherGpu, .. }))) if !is_first => {
            return Err(Unjoined::NotAsked);
        }
        Ok((_, FromCoordinator::Admission(Admission::Refused { text, .. }))) => {
            return Err(cannot(baton_messages::answered(text), baton_messages::SEE_THE_LOG));
        }
        Ok(_) => return Err(cannot(baton_messages::no_welcome(), baton_messages::SEE_THE_LOG)),
        Err(error) => {
            return Err(cannot(baton_messages::answer_is_no_use(error), baton_messages::USE_ONE_BUILD));
        }
    };
    let session = session_of(device, channels, socket, received, (gpu, tenant, slot))?;
    let_go_of_the_connection_that_waited(&path);
    Ok(session)
}

/// A long wait that the user is told about, once.
struct Waiting {
    since: Instant,
    is_said: bool,
    /// How often a coordinator has died before it answered.
    deaths: u32,
}

impl Waiting {
    fn new() -> Self {
        Self { since: Instant::now(), is_said: false, deaths: 0 }
    }

    /// True if it died, and another one may take over: that listens at the same socket, and is to be asked.
    fn is_for_another_one(&mut self, received: &std::io::Result<Option<Received>>) -> bool {
        let died = is_end(received);
        self.deaths += u32::from(died);
        died && self.deaths <= MOST_DEATHS
    }

    fn say(&mut self, why: impl core::fmt::Display) {
        if self.since.elapsed() >= SILENCE && !core::mem::replace(&mut self.is_said, true) {
            user::warn(&baton_messages::waits_to_join(why));
        }
    }
}

/// Greets the coordinator at a path, and waits for its answer: even until other tenants have left, if there are too many.
fn greet(path: &Path, chosen: Chosen, hello: &Opening, may_go_without: bool) -> Result<(OwnedFd, Received), Unjoined> {
    let at = &path.display();
    let own = own_process()?;
    let mut waiting = Waiting::new();
    'greet: loop {
        baton_faults::reach("program asks", hello);
        let socket = link::connect(path, chosen, SILENCE).map_err(|error| match error {
            Unconnected::NobodyListens if may_go_without => Unjoined::NotAsked,
            Unconnected::NobodyListens => cannot(baton_messages::no_coordinator_at(at), baton_messages::START_ONE),
            error => cannot(baton_messages::of_path(at, error), baton_messages::SEE_DOCTOR),
        })?;
        let gone = || cannot(baton_messages::connection_ended(at), baton_messages::SEE_THE_LOG);
        // If sending fails, the coordinator may have sent its reason before.
        let _ = link::send(socket.as_fd(), &hello.encode(GpuNumber::ANY), &[own.as_fd()], false);
        let asked = Instant::now();
        let mut queued = None;
        let received = loop {
            match link::receive(socket.as_fd(), false) {
                Ok(Some(received)) => match FromCoordinator::decode(&received.message) {
                    Ok((_, FromCoordinator::Admission(Admission::Queued { ahead, lacking }))) => {
                        queued = Some((ahead, lacking))
                    }
                    _ => break received,
                },
                ended if waiting.is_for_another_one(&ended) => {
                    std::thread::sleep(COME_AGAIN);
                    continue 'greet;
                }
                Ok(None) => return Err(gone()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(cannot(baton_messages::of_path(at, error), baton_messages::SEE_THE_LOG)),
            }
            match queued {
                Some((ahead, lacking @ 1..)) => waiting.say(baton_messages::memory_is_not_free(size(lacking), ahead)),
                Some((ahead, 0)) => waiting.say(baton_messages::all_places_are_taken(ahead)),
                None if asked.elapsed() < PATIENCE => waiting.say(baton_messages::no_answer_yet(at)),
                None => {
                    let why = baton_messages::no_answer_for(at, PATIENCE.as_secs());
                    return Err(cannot(why, baton_messages::LET_IT_GO_ON));
                }
            }
        };
        match FromCoordinator::decode(&received.message) {
            Ok((_, FromCoordinator::Admission(Admission::Refused { reason: Refusal::Busy, text }))) => {
                waiting.say(text);
                std::thread::sleep(COME_AGAIN);
            }
            // It died before it could welcome this program, and another one has taken over.
            Ok((_, FromCoordinator::Takeover(_))) => {}
            _ => return Ok((socket, received)),
        }
    }
}

/// True if the other end is gone, perhaps before it has read what it was sent.
fn is_end(received: &std::io::Result<Option<Received>>) -> bool {
    match received {
        Ok(received) => received.is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

/// A descriptor of this process, for a coordinator on a system that does not name the peer of a connection.
fn own_process() -> Result<OwnedFd, Unjoined> {
    // SAFETY: plain integers; the answer is checked before it is used.
    let own = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) };
    if own < 0 {
        let error = std::io::Error::last_os_error();
        return Err(cannot(baton_messages::no_pidfd(error), baton_messages::USE_LINUX_5_3));
    }
    // SAFETY: new, and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(own as i32) })
}

/// The memory that a GPU's coordinator offers a program before it has joined.
pub(super) fn offered(uuid: [u8; 16]) -> Option<u64> {
    let (path, chosen) = place(uuid)?;
    let mut waiting = Waiting::new();
    loop {
        let socket = link::connect(&path, chosen, PATIENCE).ok()?;
        // If sending fails, the coordinator may have sent its reason before.
        let _ = link::send(socket.as_fd(), &Opening::Expect.encode(GpuNumber::ANY), &[], false);
        let received = link::receive(socket.as_fd(), false);
        if waiting.is_for_another_one(&received) {
            std::thread::sleep(COME_AGAIN);
            continue;
        }
        let received = received.ok()??;
        match FromCoordinator::decode(&received.message) {
            Ok((_, FromCoordinator::Admission(Admission::Offer { gpu, bytes, .. }))) if gpu == uuid => {
                return Some(bytes);
            }
            Ok((_, FromCoordinator::Admission(Admission::Refused { reason: Refusal::Busy, text })))
                if waiting.since.elapsed() < PATIENCE =>
            {
                waiting.say(text);
                std::thread::sleep(COME_AGAIN);
            }
            _ => return None,
        }
    }
}

/// Makes the session from a welcome.
fn session_of(
    device: CUdevice,
    channels: Own,
    socket: OwnedFd,
    received: Received,
    (gpu, tenant, slot): (GpuNumber, u32, u32),
) -> Result<Session, Unjoined> {
    let mut descriptors = received.descriptors.into_iter();
    let few = || cannot(baton_messages::descriptors_are_missing(), baton_messages::ALLOW_DESCRIPTORS);
    let mut next = || descriptors.next().ok_or_else(few);
    let (theirs, own, requests, activity, elsewhere) = (next()?, next()?, next()?, next()?, next()?);
    let unmapped = || cannot(baton_messages::page_cannot_be_mapped(), baton_messages::CHECK_ADDRESS_SPACE);
    let coordinators: NonNull<CoordinatorPage> = pages::map(&theirs, false).ok_or_else(unmapped)?.cast();
    let own = pages::map(&own, true).ok_or_else(unmapped)?;
    // A forked child has no use for it, and the coordinator is to see when this process no longer has it.
    // SAFETY: the page just mapped.
    unsafe { libc::madvise(own.as_ptr(), PAGE_BYTES, libc::MADV_DONTFORK) };
    // SAFETY: just mapped, made of atomics.
    let version = unsafe { coordinators.as_ref() }.version.load(Ordering::Acquire);
    if version != VERSION {
        let why = baton_messages::other_page_version(version, VERSION);
        return Err(cannot(why, baton_messages::USE_ONE_BUILD));
    }
    activity::use_elsewhere(device, pages::map(&elsewhere, false).ok_or_else(unmapped)?.cast().as_ptr());
    if !take_page(device, &activity, slot) {
        return Err(unmapped());
    }
    // From here on the control loop waits without a limit.
    link::set_patience(&socket, None)
        .map_err(|error| cannot(baton_messages::of_system(error), baton_messages::SEE_THE_LOG))?;
    if !tenant::prepare_news() {
        return Err(few());
    }
    // Before any thread finds the session: if it is not the first, it is to ask which GPU a call is for.
    gpus::note(device, true);
    // SAFETY: both were just mapped, for ever, whole and aligned; our own one writable.
    let link = unsafe { Link::new(device, (socket, requests), (gpu, tenant), coordinators, own.cast()) };
    let link = crate::link::begin(link);
    stamps::use_page(device, link.own());
    channels::another_coordinator();
    channels::follow(device, &link.coordinators().taken, &link.own().channels_begun);
    roots::add_device(device);
    let whole = user::setting(settings::GATE).is_some_and(|value| value == "whole");
    Ok(Session::new((device, link), space::begin(link), channels, whole))
}

/// The scheduling that the user wants for this program.
fn scheduling() -> Result<Scheduling, Unjoined> {
    let scheduling = Scheduling {
        class: of(settings::CLASS, Class::default(), baton_messages::A_CLASS)?,
        weight: of(settings::WEIGHT, 1, baton_messages::A_WEIGHT)?,
        slo_micros: of(settings::SLO_MICROS, 0, baton_messages::A_TIME)?,
    };
    scheduling.check().map(|()| scheduling).map_err(|why| cannot(why, baton_messages::CORRECT_THE_SCHEDULING))
}

/// The value of a setting, or the default.
fn of<T: FromStr>(name: &CStr, usual: T, what: &str) -> Result<T, Unjoined> {
    let Some(word) = user::setting(name) else { return Ok(usual) };
    let value = word.to_str().and_then(|word| word.parse().ok());
    let name = name.to_string_lossy();
    let wrong = || baton_messages::variable_is_wrong(name, word.to_string_lossy(), what);
    value.ok_or_else(|| cannot(wrong(), baton_messages::CORRECT_IT))
}

/// The memory that this program needs, and the number of the run that shares the need; its own if it was started alone.
fn needs() -> Result<(u64, u64), Unjoined> {
    let needs = of(settings::NEEDS, 0, baton_messages::AN_AMOUNT)?;
    let alone = u64::from(std::process::id());
    Ok((needs, of(settings::RUN, alone, baton_messages::A_NUMBER)?))
}

/// Closes the connection that `baton run` has left open so that a coordinator waits for this program, which has joined the coordinator at
/// this path: the connection leads to that one, or to another in its folder. In a child of the program, the number may mean another file
/// by now: it is closed only if it is such a connection.
fn let_go_of_the_connection_that_waited(joined: &Path) {
    let number = user::setting(settings::CONNECTION).and_then(|number| number.to_str()?.parse::<i32>().ok());
    let Some(number) = number else { return };
    // SAFETY: zeros are a valid address of no family.
    let mut peer: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    let mut size = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: a structure with its size; any number may be asked about.
    let known = unsafe { libc::getpeername(number, ptr::from_mut(&mut peer).cast(), &mut size) } == 0;
    if !known || peer.sun_family != libc::AF_UNIX as libc::sa_family_t {
        return;
    }
    let bytes: Vec<u8> = peer.sun_path.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    let waiting = Path::new(OsStr::from_bytes(&bytes));
    let folder = user::setting(settings::FOLDER).map(PathBuf::from);
    if waiting == joined || folder.is_some_and(|folder| waiting.parent() == Some(&folder)) {
        // SAFETY: a connection to a coordinator that is used nowhere else in this process.
        unsafe { libc::close(number) };
    }
}

/// Maps an activity page of a GPU, with our slot on it, for the gate; false if it cannot be mapped.
pub(super) fn take_page(device: CUdevice, file: &OwnedFd, slot: u32) -> bool {
    let Some(page) = pages::map(file, slot < ACTIVITY_SLOTS) else { return false };
    activity::use_page(device, page.cast().as_ptr(), slot);
    true
}

/// The user's name for this program, or the name of its file.
fn name() -> String {
    let named = user::setting(settings::NAME).map(|name| name.to_string_lossy().into_owned());
    let mut name = named.unwrap_or_else(user::program);
    name.truncate(name.floor_char_boundary(MAX_NAME));
    name
}
