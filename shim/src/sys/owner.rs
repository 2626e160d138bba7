//! Which process a descriptor came from, however it has come.
//!
//! An open file has an owner (`F_SETOWN`): the process that would be sent signals about it, if anybody asked for them (`O_ASYNC`). All
//! descriptors of that file say so, in whichever process, and the driver neither sets it nor looks at it (measured with driver 580 on an
//! H100, of handles and of pools). So whoever gives out a descriptor can be found by whoever has it, and nobody has to keep a second
//! one, which would keep what is behind it: memory of the GPU.

use core::ffi::c_int;

use baton_contract::messages::ProcessId;

/// What names this process's PID namespace.
const NAMESPACE: &core::ffi::CStr = c"/proc/self/ns/pid";

/// This process becomes the owner of the file behind a descriptor, if the system lets it.
pub(crate) fn own(descriptor: c_int) {
    // SAFETY: sets an attribute of a file that is there, or fails.
    unsafe { libc::fcntl(descriptor, libc::F_SETOWN, libc::getpid()) };
}

/// The process that owns the file behind a descriptor. None if there is no such file; if nobody owns it; if its owner has ended, or
/// cannot be seen from here; if it is this process.
pub(crate) fn other_owner(descriptor: c_int) -> Option<ProcessId> {
    // SAFETY: asks about a file that is there, or fails.
    let owner = unsafe { libc::fcntl(descriptor, libc::F_GETOWN) };
    let this = this_process()?;
    another(owner, this)
}

/// Such an answer, seen from this process: an error and nobody are no process, nor is a group of them.
fn another(owner: c_int, this: ProcessId) -> Option<ProcessId> {
    let number = u32::try_from(owner).ok().filter(|number| *number != 0 && *number != this.number)?;
    Some(ProcessId { number, ..this })
}

/// This process, as those of its PID namespace know it; none if the system does not say which one that is.
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
