//! Finding the coordinator and greeting it.

use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use baton_contract::class::Class;
use baton_contract::cuda::{CUDA_SUCCESS, CUdevice};
use baton_contract::messages::{FromCoordinator, FromTenant, MAX_NAME, Refusal};
use baton_contract::page::{BOARD_PLACES, CoordinatorPage, PAGE_BYTES};
use baton_contract::scheduling::Scheduling;
use baton_contract::wire::VERSION;
use baton_contract::{link, settings, socket_path};

use super::requests::Requests;
use super::{Event, Session};
use crate::channels::Own;
use crate::memory::space::Space;
use crate::{board, gate, real, user};

/// A coordinator that does not answer a greeting in this time is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Becomes a tenant; none if there is nobody to be a tenant of.
pub(super) fn connect() -> Option<Session> {
    if user::setting(settings::DISABLE).is_some_and(|value| value != "0") {
        return None;
    }
    let named = user::setting(settings::SOCKET).map(PathBuf::from);
    let mut problem = None;
    for (device, uuid) in devices() {
        let path = named.clone().unwrap_or_else(|| usual_place(uuid));
        let Some(socket) = open(&path) else {
            // Only who asked for a coordinator is told that there is none.
            problem = named.as_ref().map(|path| format!("no coordinator answers at {}", path.display()));
            continue;
        };
        match greet(socket, device, uuid) {
            Ok(session) => return Some(session),
            Err(Declined { reason: Some(Refusal::OtherGpu), text }) => problem = Some(text),
            Err(Declined { text, .. }) => {
                problem = Some(text);
                break;
            }
        }
    }
    if let Some(problem) = problem {
        user::warn(format_args!("{problem}; running without Baton"));
    }
    None
}

struct Declined {
    reason: Option<Refusal>,
    text: String,
}

fn declined(text: impl Into<String>) -> Declined {
    Declined { reason: None, text: text.into() }
}

/// This process's GPUs.
fn devices() -> impl Iterator<Item = (CUdevice, [u8; 16])> {
    let mut count = 0;
    // SAFETY: an out-parameter.
    unsafe { real::device_count(&mut count) };
    (0..count).filter_map(|ordinal| {
        let (mut device, mut uuid) = (0, [0; 16]);
        // SAFETY: out-parameters of the right types.
        let known = unsafe {
            real::device_get(&mut device, ordinal) == CUDA_SUCCESS
                && real::device_uuid(&mut uuid, device) == CUDA_SUCCESS
        };
        known.then_some((device, uuid))
    })
}

fn usual_place(uuid: [u8; 16]) -> PathBuf {
    // SAFETY: takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    socket_path::socket(user::setting(c"XDG_RUNTIME_DIR"), user, uuid)
}

/// Connects to a socket, if somebody listens there and it belongs to this user or root.
fn open(path: &Path) -> Option<OwnedFd> {
    // SAFETY: plain integers; the answer is checked before it is used.
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return None;
    }
    // SAFETY: new, and ours.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: zeros are a valid address of no family.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return None;
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let limit = libc::timeval { tv_sec: PATIENCE.as_secs() as libc::time_t, tv_usec: 0 };
    // SAFETY: structures of the sizes that are said; they live over the calls.
    let connected = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            ptr::from_ref(&limit).cast(),
            size_of_val(&limit) as libc::socklen_t,
        );
        libc::connect(socket.as_raw_fd(), ptr::from_ref(&address).cast(), size_of_val(&address) as libc::socklen_t)
    };
    (connected == 0 && is_trusted(&socket)).then_some(socket)
}

/// Whether whoever listens is this user or root: we are about to do what it says.
fn is_trusted(socket: &OwnedFd) -> bool {
    let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut size = size_of_val(&who) as libc::socklen_t;
    let place = ptr::from_mut(&mut who).cast();
    // SAFETY: a structure with its size.
    let known =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &mut size) } == 0;
    // SAFETY: takes nothing and cannot fail.
    known && (who.uid == unsafe { libc::geteuid() } || who.uid == 0)
}

fn greet(socket: OwnedFd, device: CUdevice, gpu: [u8; 16]) -> Result<Session, Declined> {
    let hello = FromTenant::Hello { name: name(), scheduling: scheduling()?, gpu };
    let silent = || declined("the coordinator does not answer");
    link::send(socket.as_fd(), &hello.encode(), &[], false).map_err(|_| silent())?;
    let received = link::receive(socket.as_fd(), false).ok().flatten().ok_or_else(silent)?;
    let mut descriptors = received.descriptors.into_iter();
    let place = match FromCoordinator::decode(&received.message) {
        Ok(FromCoordinator::Welcome { place, .. }) => place,
        Ok(FromCoordinator::Refused { reason, text }) => return Err(Declined { reason: Some(reason), text }),
        Ok(_) => return Err(declined("the coordinator answered with something else than a welcome")),
        Err(error) => return Err(declined(format!("the coordinator's answer is no use: {error}"))),
    };
    let mut next = || descriptors.next().ok_or_else(|| declined("the coordinator's welcome lacks descriptors"));
    let (theirs, own, requests, board) = (next()?, next()?, next()?, next()?);
    if !gate::prepare() {
        return Err(declined("this system has no membarrier, so calls cannot be held back"));
    }
    let page = |file: &OwnedFd, writable| map(file, writable).ok_or_else(|| declined("a shared page cannot be mapped"));
    let coordinators: NonNull<CoordinatorPage> = page(&theirs, false)?.cast();
    let own = page(&own, true)?.cast();
    // SAFETY: just mapped, made of atomics.
    let version = unsafe { coordinators.as_ref() }.version.load(Ordering::Acquire);
    if version != VERSION {
        return Err(declined(format!("the coordinator's page is of version {version}, not {VERSION}")));
    }
    if !take_board(&board, place) {
        return Err(declined("a shared page cannot be mapped"));
    }
    // From here on the pager waits for as long as it takes.
    let forever = libc::timeval { tv_sec: 0, tv_usec: 0 };
    // SAFETY: a structure with its size.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            ptr::from_ref(&forever).cast(),
            size_of_val(&forever) as libc::socklen_t,
        )
    };
    real::find_all();
    let_go_of_the_connection_that_waited();
    Ok(Session {
        device,
        control: socket,
        requests: Requests::new(requests),
        coordinators,
        own,
        space: Space::new(device),
        pinned: Default::default(),
        news: Event::new().ok_or_else(|| declined("no descriptor is left for an event"))?,
        channels: Own::find(gpu),
        whole: user::setting(settings::GATE).is_some_and(|value| value == "whole"),
    })
}

/// How the user wants this program to be scheduled.
fn scheduling() -> Result<Scheduling, Declined> {
    fn of<T: FromStr>(name: &CStr, usual: T, what: &str) -> Result<T, Declined> {
        let Some(word) = user::setting(name) else { return Ok(usual) };
        let value = word.to_str().and_then(|word| word.parse().ok());
        value.ok_or_else(|| declined(format!("{}={} is not {what}", name.to_string_lossy(), word.to_string_lossy())))
    }
    let scheduling = Scheduling {
        class: of(settings::CLASS, Class::default(), "latency, normal or batch")?,
        weight: of(settings::WEIGHT, 1, "a number")?,
        slo_micros: of(settings::SLO_MICROS, 0, "a number of microseconds")?,
    };
    scheduling.check().map(|()| scheduling).map_err(declined)
}

/// `baton run` has left a connection open, so that the coordinator waits for this program. The number may
/// mean something else by now, in a program's child: it is closed only if it is such a connection.
fn let_go_of_the_connection_that_waited() {
    let number = user::setting(settings::CONNECTION).and_then(|number| number.to_str()?.parse::<i32>().ok());
    let (Some(number), Some(path)) = (number, user::setting(settings::SOCKET)) else { return };
    // SAFETY: zeros are a valid address of no family.
    let mut peer: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    let mut size = size_of_val(&peer) as libc::socklen_t;
    // SAFETY: a structure with its size; any number may be asked about.
    let known = unsafe { libc::getpeername(number, ptr::from_mut(&mut peer).cast(), &mut size) } == 0;
    let same =
        peer.sun_path.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).eq(path.as_bytes().iter().copied());
    if known && peer.sun_family == libc::AF_UNIX as libc::sa_family_t && same {
        // SAFETY: a connection to our coordinator that nobody else in this process knows of.
        unsafe { libc::close(number) };
    }
}

/// Takes a board into use, with our place on it; false if it cannot be mapped.
pub(super) fn take_board(file: &OwnedFd, place: u32) -> bool {
    let Some(page) = map(file, place < BOARD_PLACES) else { return false };
    board::begin(page.cast().as_ptr(), place);
    true
}

/// Maps a page for ever.
fn map(file: &OwnedFd, writable: bool) -> Option<NonNull<libc::c_void>> {
    let access = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    // SAFETY: a new mapping wherever the system likes.
    let page = unsafe { libc::mmap(ptr::null_mut(), PAGE_BYTES, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if page == libc::MAP_FAILED { None } else { NonNull::new(page) }
}

/// What the user calls this program, or what its file is called.
fn name() -> String {
    let named = user::setting(settings::NAME).map(|name| name.to_string_lossy().into_owned());
    let mut name = named.unwrap_or_else(|| {
        let program = std::fs::read("/proc/self/comm").unwrap_or_default();
        OsStr::from_bytes(program.trim_ascii_end()).to_string_lossy().into_owned()
    });
    name.truncate(name.floor_char_boundary(MAX_NAME));
    name
}
