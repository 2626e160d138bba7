//! A tenant's process, by a descriptor: a number may mean another process, or none, in another PID namespace.

use std::fmt;
use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use baton_contract::link;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::container::Container;
use super::peer::Peer;

/// `SO_PEERPIDFD` of Linux 6.5.
const SO_PEERPIDFD: libc::c_int = 77;

/// A process that has joined.
#[derive(Debug)]
pub(in crate::server) struct Process {
    /// Readable when the process has ended, even if a forked child keeps its sockets open.
    pidfd: OwnedFd,
    /// Its number here, if it can be seen from here.
    pid: Option<i32>,
    container: Container,
    /// Whether the system says that this is the process. Otherwise it says so itself, and is sent no signal.
    is_certain: bool,
}

impl Process {
    /// The process at the other end of a connection. On a system that does not know it, the one that it has `sent`.
    pub(in crate::server) fn of_peer(peer: &Peer, sent: OwnedFd) -> io::Result<Self> {
        let (pidfd, is_certain) = match peer_pidfd(peer.as_fd()) {
            Ok(pidfd) => (pidfd, true),
            // Before Linux 6.5 there is its number, where it can be seen from here.
            Err(_) => match link::peer(peer.as_fd()).and_then(|peer| Pid::from_raw(peer.process?)) {
                Some(pid) => (pidfd_open(pid, PidfdFlags::empty())?, true),
                None => (sent, false),
            },
        };
        Self::of_pidfd(pidfd, is_certain)
    }

    fn of_pidfd(pidfd: OwnedFd, is_certain: bool) -> io::Result<Self> {
        let pid = number(pidfd.as_fd())?;
        Ok(Self { pidfd, pid, container: pid.map(Container::of).unwrap_or_default(), is_certain })
    }

    /// Its number, for the user's eyes; none if it is of a PID namespace that cannot be seen from here.
    pub(in crate::server) fn pid(&self) -> Option<i32> {
        self.pid
    }

    /// In which container it is.
    pub(in crate::server) fn container(&self) -> &Container {
        &self.container
    }

    /// Ends it; false if it can be sent no signal from here.
    pub(in crate::server) fn kill(&self) -> bool {
        self.is_certain
            && match pidfd_send_signal(&self.pidfd, Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => true,
                Err(_) => false,
            }
    }

    /// Whether it does not run because of a signal or a debugger; none if that cannot be seen from here.
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
            None => f.write_str("a process of another PID namespace"),
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
fn number(pidfd: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()))?;
    let pid = info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse::<i32>().ok());
    match pid {
        Some(pid) => Ok((pid > 0).then_some(pid)),
        None => Err(io::Error::new(io::ErrorKind::InvalidInput, "what it sent is no process's descriptor")),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::getpid;

    use super::*;

    fn process(pid: Pid, is_certain: bool) -> Process {
        Process::of_pidfd(pidfd_open(pid, PidfdFlags::empty()).expect("it lives"), is_certain).expect("a process")
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
        assert!(Process::of_pidfd(file.into(), false).is_err());
    }
}
