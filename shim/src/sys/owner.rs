//! Finds the process that a descriptor came from, in whichever way it has come.
//!
//! An open file has an owner (`F_SETOWN`): the process that would get signals about it, if the program asked for them (`O_ASYNC`). All
//! descriptors of that file report it, in every process, and the driver neither sets nor reads it (measured with driver 580 on an H100, of
//! handles and of pools). So a process that has a descriptor can find the process that gave it out, and no process has to keep a second
//! one, which would keep the memory of the GPU behind it.

use core::ffi::c_int;

use baton_contract::messages::ProcessId;

/// The file that identifies this process's PID namespace.
const NAMESPACE: &core::ffi::CStr = c"/proc/self/ns/pid";

/// Makes this process the owner of the file behind a descriptor, if the system allows it.
pub(crate) fn own(descriptor: c_int) {
    // SAFETY: sets an attribute of a file that is there, or fails.
    unsafe { libc::fcntl(descriptor, libc::F_SETOWN, libc::getpid()) };
}

/// The process that owns the file behind a descriptor. `None` if there is no such file; if it has no owner; if its owner has ended, or
/// cannot be seen from here; if it is this process.
pub(crate) fn other_owner(descriptor: c_int) -> Option<ProcessId> {
    // SAFETY: asks about a file that is there, or fails.
    let owner = unsafe { libc::fcntl(descriptor, libc::F_GETOWN) };
    let this = this_process()?;
    another(owner, this)
}

/// The process in such an answer, seen from this process: an error or 0 is no process, nor is a group of processes.
fn another(owner: c_int, this: ProcessId) -> Option<ProcessId> {
    let number = u32::try_from(owner).ok().filter(|number| *number != 0 && *number != this.number)?;
    Some(ProcessId { number, ..this })
}

/// This process, as those of its PID namespace know it; `None` if the system does not tell the namespace.
pub(crate) fn this_process() -> Option<ProcessId> {
    // SAFETY: integers.
    let mut file: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: a C string and a structure of ours.
    let found = unsafe { libc::stat(NAMESPACE.as_ptr(), &mut file) } == 0;
    // SAFETY: asks for a number.
    let number = u32::try_from(unsafe { libc::getpid() }).ok()?;
    found.then_some(ProcessId { namespace: file.st_ino, number })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, pipe};
    use std::os::fd::AsRawFd;
    use std::process::{Command, Stdio};

    use super::*;

    const THIS: ProcessId = ProcessId { namespace: 7, number: 100 };

    #[test]
    fn whatever_is_no_other_process_owns_nothing() {
        for none in [-1, 0, -200, 100, c_int::MIN] {
            assert_eq!(another(none, THIS), None, "{none}");
        }
        assert_eq!(another(200, THIS), Some(ProcessId { namespace: 7, number: 200 }));
    }

    #[test]
    fn a_file_says_whose_it_is_by_all_its_descriptors() {
        let (mut here, there) = pipe().expect("a pipe");
        let copy = there.try_clone().expect("a copy");
        assert_eq!(other_owner(copy.as_raw_fd()), None, "nobody's");
        own(there.as_raw_fd());
        assert_eq!(other_owner(copy.as_raw_fd()), None, "our own");
        // A process that lives until its standard input ends.
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(there).spawn().expect("cat");
        let number = child.id();
        // SAFETY: sets an attribute of a file of ours.
        unsafe { libc::fcntl(copy.as_raw_fd(), libc::F_SETOWN, number) };
        let this = this_process().expect("there is a /proc");
        assert_eq!(other_owner(copy.as_raw_fd()), Some(ProcessId { number, ..this }));
        drop((child.stdin.take(), copy));
        assert!(child.wait().expect("our own child").success());
        assert_eq!(here.read(&mut [0]).expect("readable"), 0);
        assert_eq!(other_owner(-1), None);
    }
}
