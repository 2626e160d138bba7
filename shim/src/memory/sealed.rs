//! Memory that processes pass on by descriptors (`cuMemExportToShareableHandle`).
//!
//! A descriptor of a handle of ours is a small sealed file: it says which memory it is as a handle of ours does ([`Exported`]), and the
//! properties that the memory was made with. A process that imports it attaches to that memory, which still moves, in as many pieces as it
//! is. Sealed, because every process that has the descriptor could change it otherwise. What it says is an allegation all the same: any
//! process can make such a file, so the coordinator has the last word on which memory a key opens.

use core::ffi::c_int;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use baton_contract::cuda::{
    CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, CUdevice, CUmemAllocationProp, CUmemLocation,
};
use baton_contract::messages::IPC_HANDLE;

use super::ipc::Exported;
use crate::sys::cancel;

/// No process can change such a file.
const SEALS: c_int = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
/// `MFD_NOEXEC_SEAL`, which some systems insist on and those before Linux 6.3 do not know.
const NOT_EXECUTABLE: u32 = 8;
/// The handle, and the flags.
const BYTES: usize = IPC_HANDLE + 8;

/// The contents of a descriptor of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sealed {
    pub(crate) exported: Exported,
    /// The flags that the memory was made with.
    flags: [u8; 8],
}

impl Sealed {
    /// Those of memory with these properties.
    pub(crate) fn of(exported: Exported, properties: &CUmemAllocationProp) -> Self {
        Self { exported, flags: properties.flags }
    }

    /// The properties of the memory, which is of this GPU, as its importers have them.
    pub(crate) fn properties(&self, device: CUdevice) -> CUmemAllocationProp {
        CUmemAllocationProp {
            kind: CU_MEM_ALLOCATION_TYPE_PINNED,
            handle_types: 0,
            location: CUmemLocation { kind: CU_MEM_LOCATION_TYPE_DEVICE, id: device },
            windows: core::ptr::null_mut(),
            flags: self.flags,
        }
    }

    /// A new descriptor; with another one of the same file that tells if anybody [has](is_had) the first, where the system can tell.
    pub(crate) fn descriptors(&self) -> std::io::Result<(OwnedFd, Option<OwnedFd>)> {
        let _uncancelled = cancel::Off::begin();
        let file = File::from(unsealed()?);
        file.write_all_at(&self.encode(), 0)?;
        // SAFETY: changes a file of ours.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // Only files that were opened are counted.
        let watch = again(file.as_fd()).ok().filter(|watch| is_had(watch.as_fd()) == Some(false));
        match watch.and_then(|watch| Some((again(file.as_fd()).ok()?, watch))) {
            Some((given, watch)) => Ok((given, Some(watch))),
            None => Ok((file.into(), None)),
        }
    }

    /// The contents of a descriptor; `None` if it is not one of ours.
    pub(crate) fn read(descriptor: c_int) -> Option<Self> {
        let _uncancelled = cancel::Off::begin();
        // SAFETY: asks about a file that is there, or fails.
        let seals = unsafe { libc::fcntl(descriptor, libc::F_GET_SEALS) };
        if seals < 0 || seals & SEALS != SEALS {
            return None;
        }
        // SAFETY: open, and not closed here.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
        let mut bytes = [0; BYTES];
        (file.metadata().ok()?.len() == BYTES as u64).then_some(())?;
        file.read_exact_at(&mut bytes, 0).ok()?;
        Self::decode(&bytes)
    }

    fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let (handle, rest) = bytes.split_at_mut(IPC_HANDLE);
        handle.copy_from_slice(&self.exported.encode());
        rest.copy_from_slice(&self.flags);
        bytes
    }

    fn decode(bytes: &[u8; BYTES]) -> Option<Self> {
        let (handle, rest) = bytes.split_first_chunk()?;
        Some(Self { exported: Exported::decode(handle)?, flags: *rest.first_chunk()? })
    }
}

/// Another descriptor of the same file, as if the file had been opened anew.
pub(crate) fn again(descriptor: BorrowedFd<'_>) -> std::io::Result<OwnedFd> {
    let _uncancelled = cancel::Off::begin();
    File::open(format!("/proc/self/fd/{}", descriptor.as_raw_fd())).map(OwnedFd::from)
}

/// True if any process has a file open beside this descriptor of it, or has one on its way. `None` if the system does not tell. (A lease of
/// the file, `F_SETLEASE`, is had only while nobody else has the file open.)
pub(crate) fn is_had(watch: BorrowedFd<'_>) -> Option<bool> {
    // SAFETY: asks for a lease of a file of ours, and gives it back.
    let lease = |kind: c_int| unsafe { libc::fcntl(watch.as_raw_fd(), libc::F_SETLEASE, kind) };
    if lease(libc::F_WRLCK) == 0 {
        lease(libc::F_UNLCK);
        return Some(false);
    }
    (std::io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)).then_some(true)
}

/// A new file in memory that can be sealed.
fn unsealed() -> std::io::Result<OwnedFd> {
    let make = |flags| {
        // SAFETY: a C string.
        let made = unsafe {
            libc::memfd_create(c"baton-memory".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | flags)
        };
        if made < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: new, and owned here.
        Ok(unsafe { OwnedFd::from_raw_fd(made) })
    };
    make(NOT_EXECUTABLE).or_else(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => make(0),
        _ => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed() -> Sealed {
        let handle = core::array::from_fn(|at| if at < 8 { b"BatonMem"[at] } else { at as u8 });
        let exported = Exported::decode(&handle).expect("a handle of ours");
        Sealed { exported, flags: [0, 1, 0, 0, 0, 0, 0, 0] }
    }

    #[test]
    fn a_descriptor_says_what_was_put_into_it_and_nobody_can_change_it() {
        let (descriptor, _) = sealed().descriptors().expect("a file");
        let copy = descriptor.try_clone().expect("a copy");
        drop(descriptor);
        assert_eq!(Sealed::read(copy.as_raw_fd()), Some(sealed()));
        let file = File::from(copy);
        assert!(file.write_all_at(&[0], 0).is_err() && file.set_len(0).is_err() && file.set_len(1 << 20).is_err());
    }

    #[test]
    fn a_descriptor_is_had_until_its_last_copy_is_closed_even_if_that_is_on_its_way() {
        let (descriptor, watch) = sealed().descriptors().expect("a file");
        let Some(watch) = watch else { return eprintln!("this system does not tell") };
        let had = || is_had(watch.as_fd());
        let copy = descriptor.try_clone().expect("a copy");
        drop(descriptor);
        assert_eq!(had(), Some(true));
        let (here, there) = std::os::unix::net::UnixStream::pair().expect("a pair");
        baton_contract::link::send(here.as_fd(), b"one", &[copy.as_fd()], false).expect("room");
        drop(copy);
        assert_eq!(had(), Some(true), "nobody has received it yet");
        drop((here, there));
        assert_eq!(had(), Some(false));
    }

    #[test]
    fn any_other_file_is_none_of_ours() {
        let of_ours = sealed().encode();
        let made = |bytes: &[u8], seals: c_int| {
            let file = File::from(unsealed().expect("a file"));
            file.write_all_at(bytes, 0).expect("room");
            // SAFETY: changes a file of ours.
            assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
            Sealed::read(file.as_raw_fd())
        };
        assert_eq!(made(&of_ours, SEALS), Some(sealed()));
        assert_eq!(made(&of_ours, SEALS & !libc::F_SEAL_WRITE), None, "it can be changed");
        assert_eq!(made(&[&of_ours[..], &[0]].concat(), SEALS), None, "it is longer");
        assert_eq!(made(&[0; BYTES], SEALS), None, "it says something else");
        let (pipe, _end) = std::io::pipe().expect("a pipe");
        assert_eq!((Sealed::read(pipe.as_raw_fd()), Sealed::read(-1)), (None, None));
    }
}
