//! Messages and descriptors over a Unix `SOCK_SEQPACKET` socket: the one place where both sides call the system.

use alloc::ffi::CString;
use alloc::vec::Vec;
use core::fmt;
use core::mem::{MaybeUninit, size_of};
use core::ptr;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Instant;

use crate::wire::{MAX_DESCRIPTORS, MAX_MESSAGE};

/// Room for the descriptors of one message, aligned as `cmsghdr` wants it.
#[repr(C, align(8))]
struct Control([u8; CONTROL_BYTES]);

/// The most descriptors that the system lets a process send at once (`SCM_MAX_FD`). With room for that many, a descriptor is lost only
/// if this process's table has no place for it.
const MOST_SENT: usize = 253;

const CONTROL_BYTES: usize = {
    // SAFETY: arithmetic only.
    unsafe { libc::CMSG_SPACE((MOST_SENT * size_of::<RawFd>()) as u32) as usize }
};

/// The reason why there is no connection to a coordinator.
#[derive(Debug)]
pub enum Unconnected {
    /// There is no socket, or its listener has gone.
    NobodyListens,
    /// The listener is neither this user nor root, and this process could have put the socket there: so it is not trusted.
    OtherUser(u32),
    /// The path cannot be a socket's, or the system refuses.
    System(io::Error),
}

impl fmt::Display for Unconnected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NobodyListens => baton_messages::no_coordinator_answers().fmt(f),
            Self::OtherUser(user) => baton_messages::other_user_listens(user).fmt(f),
            Self::System(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Unconnected {}

/// The party that chose a socket's place. It decides the trust in the listener there: both sides obey a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// The usual place, chosen by no one: any user may have made its folder. The listener has to be this user or root.
    Usual,
    /// The user's choice. The listener may also appear as another user, because a user namespace can give it another number, if this
    /// process could not have put a socket there itself.
    ByUser,
}

impl Chosen {
    /// Returns the chooser of a path. `usual`: the folder of this user's sockets if they name no other.
    pub fn of(path: &Path, usual: &Path) -> Self {
        if path.parent() == Some(usual) { Self::Usual } else { Self::ByUser }
    }
}

/// Connects to the coordinator at a path, if it is to be trusted. Receiving waits for at most `patience`.
///
/// # Errors
///
/// [`Unconnected`] gives the reason.
pub fn connect(path: &Path, chosen: Chosen, patience: Duration) -> Result<OwnedFd, Unconnected> {
    let refused = || Unconnected::System(io::Error::last_os_error());
    // SAFETY: plain integers; the answer is checked before it is used.
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(refused());
    }
    // SAFETY: the descriptor is new, and owned here.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: zeros are a valid address of no family.
    let mut address: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return Err(Unconnected::System(io::Error::from_raw_os_error(libc::ENAMETOOLONG)));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    set_patience(&socket, Some(patience)).map_err(Unconnected::System)?;
    loop {
        // SAFETY: a structure with its own size; it lives over the call.
        let connected = unsafe {
            libc::connect(socket.as_raw_fd(), ptr::from_ref(&address).cast(), size_of_val(&address) as libc::socklen_t)
        };
        if connected == 0 {
            break;
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ENOENT | libc::ECONNREFUSED) => return Err(Unconnected::NobodyListens),
            _ => return Err(Unconnected::System(error)),
        }
    }
    match peer(socket.as_fd()) {
        Some(peer) if peer.is_trusted() || chosen == Chosen::ByUser && is_out_of_reach(path) => Ok(socket),
        peer => Err(Unconnected::OtherUser(peer.map_or(u32::MAX, |peer| peer.user))),
    }
}

/// True if this process cannot put another socket at a path: its folder belongs to another user, or is mounted read-only.
fn is_out_of_reach(path: &Path) -> bool {
    let Some(folder) = path.parent() else { return false };
    let Ok(folder) = CString::new(folder.as_os_str().as_bytes()) else { return false };
    // SAFETY: a C string.
    let may = unsafe { libc::faccessat(libc::AT_FDCWD, folder.as_ptr(), libc::W_OK, libc::AT_EACCESS) } == 0;
    !may && matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EACCES | libc::EROFS | libc::EPERM))
}

/// Sets the longest wait for a message; for ever if none is given.
///
/// # Errors
///
/// Errors of `setsockopt`.
pub fn set_patience(socket: &OwnedFd, patience: Option<Duration>) -> io::Result<()> {
    let patience = patience.unwrap_or_default();
    let limit = libc::timeval {
        tv_sec: patience.as_secs() as libc::time_t,
        tv_usec: libc::suseconds_t::from(patience.subsec_micros() as i32),
    };
    // SAFETY: a structure with its size.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            ptr::from_ref(&limit).cast(),
            size_of_val(&limit) as libc::socklen_t,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The process at the other end of a connection, as the system knows it (`SO_PEERCRED`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Its user.
    pub user: u32,
    /// Its number; none if its PID namespace cannot be seen from here.
    pub process: Option<i32>,
}

impl PeerCredentials {
    /// True if its user is this process's user or root.
    pub fn is_trusted(self) -> bool {
        // SAFETY: takes nothing and cannot fail.
        self.user == 0 || self.user == unsafe { libc::geteuid() }
    }
}

/// Returns the process at the other end of a connection, if the system knows it.
pub fn peer(socket: BorrowedFd<'_>) -> Option<PeerCredentials> {
    let mut who = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut size = size_of_val(&who) as libc::socklen_t;
    let place = ptr::from_mut(&mut who).cast();
    // SAFETY: a structure with its size.
    let known = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &mut size) };
    (known == 0).then_some(PeerCredentials { user: who.uid, process: (who.pid > 0).then_some(who.pid) })
}

/// Sends one message with its descriptors. Never raises SIGPIPE.
///
/// # Errors
///
/// Errors of `sendmsg`; with `nowait`, `WouldBlock` when the peer does not read.
pub fn send(socket: BorrowedFd<'_>, message: &[u8], descriptors: &[BorrowedFd<'_>], nowait: bool) -> io::Result<()> {
    assert!(descriptors.len() <= MAX_DESCRIPTORS, "messages are built within their limits");
    let mut part = libc::iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: message.len() };
    let mut control = Control([0; CONTROL_BYTES]);
    // SAFETY: a header of zeros is a valid one that names nothing.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    if !descriptors.is_empty() {
        let bytes = size_of_val(descriptors);
        const { assert!(size_of::<BorrowedFd<'_>>() == size_of::<RawFd>()) };
        header.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: `control` has room for a header and the most descriptors there may be; borrowed descriptors
        // are plain integers by their documented layout.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(bytes as u32) as usize;
            let first = libc::CMSG_FIRSTHDR(&header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(bytes as u32) as usize;
            ptr::copy_nonoverlapping(descriptors.as_ptr().cast::<u8>(), libc::CMSG_DATA(first), bytes);
        }
    }
    let flags = libc::MSG_NOSIGNAL | if nowait { libc::MSG_DONTWAIT } else { 0 };
    loop {
        // SAFETY: the header names memory that lives until the call returns.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &header, flags) };
        if sent >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// A received message.
#[derive(Debug)]
pub struct Received {
    /// Its bytes; one more than [`MAX_MESSAGE`] if it was longer than any message may be.
    pub message: Vec<u8>,
    /// Its descriptors, closed on exec.
    pub descriptors: Vec<OwnedFd>,
    /// It came with more descriptors than this process can open (`RLIMIT_NOFILE`). All of them are lost.
    pub truncated: bool,
}

/// Receives one message; none when the peer has gone.
///
/// # Errors
///
/// Errors of `recvmsg`; with `nowait`, `WouldBlock` when no message has come yet.
pub fn receive(socket: BorrowedFd<'_>, nowait: bool) -> io::Result<Option<Received>> {
    let mut message: Vec<u8> = Vec::with_capacity(MAX_MESSAGE + 1);
    let mut part = libc::iovec { iov_base: message.as_mut_ptr().cast(), iov_len: MAX_MESSAGE + 1 };
    let mut control = Control([0; CONTROL_BYTES]);
    // SAFETY: a header of zeros is a valid one that names nothing.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = &mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_BYTES;
    let flags = libc::MSG_CMSG_CLOEXEC | if nowait { libc::MSG_DONTWAIT } else { 0 };
    let mut is_reset = false;
    let length = loop {
        // SAFETY: the header names memory that lives until the call returns, with its true sizes.
        let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) };
        if length >= 0 {
            break length as usize;
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            // The peer has gone without reading everything. Its own earlier messages can still be read.
            io::ErrorKind::ConnectionReset if !is_reset => is_reset = true,
            io::ErrorKind::ConnectionReset => return Ok(None),
            _ => return Err(error),
        }
    };
    // SAFETY: the system has written this many bytes, no more than there is room for.
    unsafe { message.set_len(length) };
    let mut descriptors = Vec::new();
    // SAFETY: walks the control messages that the system has written; every descriptor in them is new and owned here.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(&header);
        while !at.is_null() {
            if (*at).cmsg_level == libc::SOL_SOCKET && (*at).cmsg_type == libc::SCM_RIGHTS {
                let count = ((*at).cmsg_len - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                let first = libc::CMSG_DATA(at).cast::<RawFd>();
                descriptors.extend((0..count).map(|i| OwnedFd::from_raw_fd(first.add(i).read_unaligned())));
            }
            at = libc::CMSG_NXTHDR(&header, at);
        }
    }
    // The end of the stream looks like an empty message; no real message is empty.
    if length == 0 && descriptors.is_empty() {
        return Ok(None);
    }
    let truncated = header.msg_flags & libc::MSG_CTRUNC != 0;
    if truncated {
        // The system does not tell which of them came.
        descriptors.clear();
    }
    Ok(Some(Received { message, descriptors, truncated }))
}

/// Reads the beginning of the next message, if one has come, which stays there with its descriptors. Returns the number of its bytes.
pub fn peek(socket: BorrowedFd<'_>, message: &mut [u8]) -> usize {
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: room for as many bytes as it says.
    let read = unsafe { libc::recv(socket.as_raw_fd(), message.as_mut_ptr().cast(), message.len(), flags) };
    usize::try_from(read).unwrap_or(0)
}

/// True if the other side has read everything that was sent.
pub fn is_all_read(socket: BorrowedFd<'_>) -> bool {
    // A message is charged to its sender until it is read (`SIOCOUTQ`, which has this number too).
    count(socket, libc::TIOCOUTQ) == Some(0)
}

/// Returns the number of bytes that the other side has sent and this one has not received.
pub fn unheard(socket: BorrowedFd<'_>) -> usize {
    count(socket, libc::FIONREAD).unwrap_or(0)
}

fn count(socket: BorrowedFd<'_>, what: libc::Ioctl) -> Option<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: these write one integer.
    let known = unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut count) };
    usize::try_from(count).ok().filter(|_| known == 0)
}

/// Waits until a message can be received, or the peer has gone; for at most `awake` without sleeping. Sleeping and waking takes longer
/// than most answers.
pub fn await_message(socket: BorrowedFd<'_>, awake: Duration) {
    let end = Instant::now() + awake;
    let mut one = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, which lives over the call.
    let mut poll = |limit| unsafe { libc::poll(&mut one, 1, limit) };
    while poll(0) == 0 {
        if Instant::now() >= end {
            // A signal may end this too.
            poll(-1);
            return;
        }
        // The process that is to answer may have no other processor.
        std::thread::yield_now();
    }
}

/// True if the system has no room for something now, and may have it later. A message that could not be received for that is still there.
pub fn is_want_of_room(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ETOOMANYREFS | libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM | libc::ENOSPC)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::process::Command;

    /// Makes the two ends of a connection.
    fn pair() -> [OwnedFd; 2] {
        let mut ends = [-1; 2];
        // SAFETY: room for two numbers.
        let made = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, ends.as_mut_ptr()) };
        assert_eq!(made, 0, "{}", io::Error::last_os_error());
        // SAFETY: the descriptors are new, and owned here.
        ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) })
    }

    /// Returns the number of open descriptors of this process.
    fn open() -> usize {
        std::fs::read_dir("/proc/self/fd").expect("there").count()
    }

    /// Opens files until the system refuses.
    fn use_up() -> Vec<File> {
        std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
    }

    /// Runs this test again, alone in a process of its own: limits are a process's.
    #[track_caller]
    fn alone(name: &str) {
        let this = std::env::current_exe().expect("a running test has a file");
        let mut command = Command::new(this);
        let output = command.args(["--exact", name, "--nocapture"]).env("BATON_TEST_ALONE", "1").output();
        let output = output.expect("it can be run");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn is_alone() -> bool {
        std::env::var_os("BATON_TEST_ALONE").is_some()
    }

    #[test]
    fn what_was_sent_and_not_read_is_known_on_both_sides() {
        let [ours, theirs] = pair();
        let null = File::open("/dev/null").expect("there");
        assert!(is_all_read(ours.as_fd()));
        for (message, sum) in [(&b"one"[..], 3), (b"three", 8)] {
            send(ours.as_fd(), message, &[null.as_fd()], false).expect("a message");
            assert_eq!((is_all_read(ours.as_fd()), unheard(theirs.as_fd())), (false, sum));
        }
        receive(theirs.as_fd(), false).expect("a message");
        assert_eq!((is_all_read(ours.as_fd()), unheard(theirs.as_fd())), (false, 5));
        receive(theirs.as_fd(), false).expect("a message");
        assert_eq!((is_all_read(ours.as_fd()), unheard(theirs.as_fd())), (true, 0));
        send(ours.as_fd(), b"lost", &[], false).expect("a message");
        drop(theirs);
        // It will never be read. A child that another test starts has it too, until it executes its program.
        while !is_all_read(ours.as_fd()) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn descriptors_for_which_there_is_no_room_are_known_to_be_lost_and_none_is_kept() {
        if !is_alone() {
            return alone("link::tests::descriptors_for_which_there_is_no_room_are_known_to_be_lost_and_none_is_kept");
        }
        let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
        // SAFETY: a structure that lives over the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
        let [ours, theirs] = pair();
        let null = File::open("/dev/null").expect("there");
        let all = [null.as_fd(); MAX_DESCRIPTORS];
        for free in [0, 1, MAX_DESCRIPTORS - 1, MAX_DESCRIPTORS] {
            let mut taken = use_up();
            taken.truncate(taken.len() - free);
            send(ours.as_fd(), b"with descriptors", &all, false).expect("a message");
            send(ours.as_fd(), b"next", &[], false).expect("a message");
            let received = receive(theirs.as_fd(), false).expect("a message").expect("a message");
            assert_eq!(received.message, b"with descriptors");
            assert_eq!(received.truncated, free < MAX_DESCRIPTORS, "{free} could be opened");
            assert_eq!(received.descriptors.len(), if received.truncated { 0 } else { MAX_DESCRIPTORS });
            drop(received);
            assert_eq!(use_up().len(), free, "none is left open");
            // The next message comes whole.
            let next = receive(theirs.as_fd(), false).expect("a message").expect("a message");
            assert_eq!((next.message, next.truncated), (b"next".to_vec(), false));
        }
    }

    #[test]
    fn more_descriptors_than_any_message_has_come_whole_where_there_is_room() {
        if !is_alone() {
            return alone("link::tests::more_descriptors_than_any_message_has_come_whole_where_there_is_room");
        }
        let [ours, theirs] = pair();
        let before = open();
        let null = File::open("/dev/null").expect("there");
        let mut part = libc::iovec { iov_base: b"x".as_ptr().cast_mut().cast(), iov_len: 1 };
        let numbers = [null.as_raw_fd(); MOST_SENT];
        let mut control = Control([0; CONTROL_BYTES]);
        // SAFETY: a header of zeros names no memory; then it names memory that lives over the call, and has room for all.
        unsafe {
            let mut header: libc::msghdr = MaybeUninit::zeroed().assume_init();
            (header.msg_iov, header.msg_iovlen) = (&mut part, 1);
            (header.msg_control, header.msg_controllen) = (control.0.as_mut_ptr().cast(), CONTROL_BYTES);
            let first = libc::CMSG_FIRSTHDR(&header);
            ((*first).cmsg_level, (*first).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
            (*first).cmsg_len = libc::CMSG_LEN(size_of_val(&numbers) as u32) as usize;
            ptr::copy_nonoverlapping(numbers.as_ptr().cast::<u8>(), libc::CMSG_DATA(first), size_of_val(&numbers));
            assert_eq!(libc::sendmsg(ours.as_raw_fd(), &header, 0), 1, "{}", io::Error::last_os_error());
        }
        let received = receive(theirs.as_fd(), false).expect("a message").expect("a message");
        assert_eq!((received.descriptors.len(), received.truncated), (MOST_SENT, false));
        drop(received);
        assert_eq!(open(), before + 1);
    }
}
