//! A tenant's process, by a descriptor: a number may mean another process, or none, in another PID namespace.

use std::fmt;
use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use baton_contract::link;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::container::Container;
use super::peer::Peer;

/// The user that the system shows for any user missing from this user namespace: it may be any user
/// (`/proc/sys/kernel/overflowuid`).
const UNKNOWN_USER: u32 = 65534;

/// `SO_PEERPIDFD` of Linux 6.5.
const SO_PEERPIDFD: libc::c_int = 77;

/// Processes that belong together: of one user, in one pod or container. The coordinator believes one's reports about another, as
/// they could do worse to each other in other ways.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::server) struct Domain {
    user: u32,
    place: Option<String>,
}

impl Domain {
    /// The domain of a process of this user, in this container; none if one of the two is unknown, because then its fellows are
    /// unknown too.
    fn of(user: Option<u32>, container: Option<&Container>) -> Option<Self> {
        Some(Self { user: user?, place: container?.place().map(str::to_owned) })
    }

    /// The domain of a user's processes in no container.
    #[cfg(test)]
    pub(super) fn of_user(user: u32) -> Self {
        Self { user, place: None }
    }
}

/// A process that has joined.
#[derive(Debug)]
pub(in crate::server) struct Process {
    /// Readable when the process has ended, even if a forked child keeps its sockets open.
    pidfd: OwnedFd,
    /// The process's number here, if it can be seen from here.
    pid: Option<i32>,
    /// The process's user, if known.
    user: Option<u32>,
    /// The process's container, if known.
    container: Option<Container>,
    domain: Option<Domain>,
    /// True if the system identifies the process. Otherwise the process identifies itself, and is sent no signal.
    is_certain: bool,
}

impl Process {
    /// The process at the other end of a connection. On a system that does not know it, the one that it has `sent`.
    pub(in crate::server) fn of_peer(peer: &Peer, sent: OwnedFd) -> io::Result<Self> {
        let known = link::peer(peer.as_fd());
        let user = known.map(|peer| peer.user);
        match peer_pidfd(peer.as_fd()) {
            Ok(pidfd) => Self::of_pidfd(pidfd, user, true),
            // Before Linux 6.5 only its number is available, if it can be seen from here.
            Err(_) => match known.and_then(|peer| Pid::from_raw(peer.process?)) {
                Some(pid) => Self::of_pidfd(pidfd_open(pid, PidfdFlags::empty())?, user, true),
                None => Self::of_sent(sent, user),
            },
        }
    }

    /// The process that a peer invisible from here claims to be. It cannot be a visible process.
    fn of_sent(sent: OwnedFd, user: Option<u32>) -> io::Result<Self> {
        let process = Self::of_pidfd(sent, user, false)?;
        match process.pid {
            None => Ok(process),
            Some(_) => Err(io::Error::new(io::ErrorKind::PermissionDenied, baton_messages::OTHER_PROCESS)),
        }
    }

    fn of_pidfd(pidfd: OwnedFd, user: Option<u32>, is_certain: bool) -> io::Result<Self> {
        let pid = number(pidfd.as_fd())?;
        let user = user.filter(|user| *user != UNKNOWN_USER);
        let container = pid.and_then(Container::of);
        // If it has ended meanwhile, its number may belong to another process.
        let container = container.filter(|_| number(pidfd.as_fd()).is_ok_and(|now| now == pid));
        let domain = Domain::of(user.filter(|_| is_certain), container.as_ref());
        Ok(Self { pidfd, pid, user, container, domain, is_certain })
    }

    /// Its number, for the user's eyes; none if it is of a PID namespace that cannot be seen from here.
    pub(in crate::server) fn pid(&self) -> Option<i32> {
        self.pid
    }

    /// The container it is in, if known.
    pub(in crate::server) fn container(&self) -> Option<&Container> {
        self.container.as_ref()
    }

    /// The process's user, if known.
    pub(in crate::server) fn user(&self) -> Option<u32> {
        self.user
    }

    /// The domain it belongs to, according to the system; none if the system does not say.
    pub(in crate::server) fn domain(&self) -> Option<&Domain> {
        self.domain.as_ref()
    }

    /// True if the coordinator believes its reports about the other process, and the other's about it.
    pub(in crate::server) fn belongs_with(&self, other: &Self) -> bool {
        self.domain.is_some() && self.domain == other.domain
    }

    /// True if both belong to one user.
    pub(in crate::server) fn is_of_user_of(&self, other: &Self) -> bool {
        self.user.is_some() && self.user == other.user
    }

    /// True if the system identifies the process.
    pub(in crate::server) fn is_certain(&self) -> bool {
        self.is_certain
    }

    /// Ends it; false if it can be sent no signal from here.
    pub(in crate::server) fn kill(&self) -> bool {
        self.is_certain
            && match pidfd_send_signal(&self.pidfd, Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => true,
                Err(_) => false,
            }
    }

    /// True if a signal or a debugger keeps it from running; none if that cannot be seen from here.
    pub(in crate::server) fn is_stopped(&self) -> Option<bool> {
        // `PID (NAME) STATE …`, and a name may hold anything.
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid?)).ok()?;
        stat.rsplit_once(") ").map(|(_, rest)| rest.starts_with(['T', 't']))
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "process {pid}"),
            None => f.write_str(baton_messages::OTHER_NAMESPACE),
        }
    }
}

fn peer_pidfd(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut pidfd: RawFd = -1;
    let mut size = size_of_val(&pidfd) as libc::socklen_t;
    let place = (&raw mut pidfd).cast();
    // SAFETY: an integer with its size.
    match unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PEERPIDFD, place, &mut size) } {
        // SAFETY: new, and ours.
        0 => Ok(unsafe { OwnedFd::from_raw_fd(pidfd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A pidfd's process as this process numbers it; none if it is of a namespace that cannot be seen from here, or has ended.
pub(in crate::server) fn number(pidfd: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()))?;
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse::<i32>().ok());
    match pid {
        Some(pid) => Ok((pid > 0).then_some(pid)),
        None => Err(io::Error::new(io::ErrorKind::InvalidInput, baton_messages::NO_PROCESS)),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::getpid;

    use super::*;

    fn process(pid: Pid, is_certain: bool) -> Process {
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).expect("it lives");
        Process::of_pidfd(pidfd, Some(1000), is_certain).expect("a process")
    }

    #[test]
    fn a_process_has_the_number_that_it_has_here_and_is_killed_if_it_is_certain_who_it_is() {
        assert_eq!(process(getpid(), true).pid(), Some(getpid().as_raw_nonzero().get()));
        assert_eq!(process(getpid(), true).is_stopped(), Some(false));
        let mut child = Command::new("sleep").arg("1000").spawn().expect("sleep");
        let pid = Pid::from_child(&child);
        assert!(!process(pid, false).kill(), "anybody may have sent this");
        assert!(process(pid, true).kill());
        assert!(!child.wait().expect("our own child").success());
    }

    #[test]
    fn a_descriptor_that_is_no_process_is_refused() {
        let file = std::fs::File::open("/dev/null").expect("there");
        assert!(Process::of_pidfd(file.into(), None, false).is_err());
    }

    #[test]
    fn one_that_cannot_be_seen_is_none_that_can_be() {
        let seen = pidfd_open(getpid(), PidfdFlags::empty()).expect("it lives");
        let refused = Process::of_sent(seen, Some(1000)).expect_err("it is another one's");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn processes_belong_together_that_the_system_says_are_of_one_user_in_one_place() {
        let one = getpid();
        assert!(process(one, true).belongs_with(&process(one, true)));
        assert!(!process(one, false).belongs_with(&process(one, true)), "nobody knows who it is");
        assert!(!process(one, false).belongs_with(&process(one, false)));
        let in_pod = |pod: &str, id: &str| Some(Container { id: Some(id.to_owned()), pod: Some(pod.to_owned()) });
        let in_container = |id: &str| Some(Container { id: Some(id.to_owned()), pod: None });
        let of = |user, container: Option<Container>| Domain::of(user, container.as_ref());
        assert_eq!(of(Some(7), in_pod("a", "x")), of(Some(7), in_pod("a", "y")), "containers of a pod");
        assert!(of(Some(7), in_pod("a", "x")).is_some());
        assert_ne!(of(Some(0), in_pod("a", "x")), of(Some(0), in_pod("b", "x")));
        assert_ne!(of(Some(0), in_container("x")), of(Some(0), in_container("y")));
        assert_ne!(of(Some(0), in_container("x")), of(Some(0), Some(Container::default())));
        assert_ne!(of(Some(7), Some(Container::default())), of(Some(8), Some(Container::default())));
        assert_eq!((of(None, in_container("x")), of(Some(7), None)), (None, None));
        let pidfd = pidfd_open(one, PidfdFlags::empty()).expect("it lives");
        let nobodys = Process::of_pidfd(pidfd, Some(UNKNOWN_USER), true).expect("a process");
        assert!(nobodys.domain().is_none() && !nobodys.is_of_user_of(&nobodys));
    }
}
