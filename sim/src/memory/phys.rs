//! A physical handle: memory of the GPU without an address.
//!
//! One that can be exported is a memfd, so that exporting it is handing out a descriptor and its contents outlive the
//! process that made it. Behind the contents there is one page that says what the descriptor is:
//!
//! ```text
//! 0 .. bytes           contents, zero when made unless the settings say otherwise
//! bytes .. + 4096      magic, bytes, UUID of the GPU (2 words), record place, record id; zero if never exported
//! ```

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::fs::{MemfdFlags, SealFlags, SeekFrom};
use rustix::io::Errno;

use crate::errors::{Outcome, Status};
use crate::gpu_file::open_files::FileId;
use crate::gpu_file::{Gpu, Record};
use crate::mapping::SharedBytes;

/// The size that physical memory comes in.
pub(crate) const GRANULARITY: u64 = 2 << 20;

const LABEL_BYTES: u64 = 4096;
const LABEL_MAGIC: u64 = 0x4D45_4D41_4455_434D;

/// How a handle's bytes are accounted for in the shared GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Account {
    Own,
    Shared(Record),
    /// Another process's.
    Others,
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// One physical handle.
pub(crate) struct Phys {
    /// Unique in the process.
    number: u64,
    gpu: &'static Gpu,
    /// For exporting it; one that will never be is no file, and needs no descriptor, not even for a moment.
    file: Option<OwnedFd>,
    /// For processes that open a handle of it, once there is one.
    opened_by: OnceLock<OwnedFd>,
    bytes: u64,
    contents: SharedBytes,
    account: Mutex<Account>,
}

impl Phys {
    /// Makes a handle of `bytes` (a multiple of the granularity), full of what new memory is full of.
    pub(crate) fn create(gpu: &'static Gpu, bytes: u64, exportable: bool) -> Outcome<Phys> {
        gpu.charge(bytes)?;
        let made = match exportable {
            true => memfd(bytes).map(|(file, contents)| (Some(file), contents)),
            false => SharedBytes::anonymous(bytes as usize).map(|contents| (None, contents)),
        };
        match made {
            Ok((file, mut contents)) => {
                contents.begin_with(gpu.new_memory());
                let (number, account) = (next_number(), Mutex::new(Account::Own));
                Ok(Phys { number, gpu, file, opened_by: OnceLock::new(), bytes, contents, account })
            }
            Err(_) => {
                gpu.discharge(bytes);
                Err(Status::OUT_OF_MEMORY)
            }
        }
    }

    /// Makes a handle of something that takes no memory of a GPU.
    pub(crate) fn of_nobody(gpu: &'static Gpu, bytes: u64) -> Outcome<Phys> {
        let contents = SharedBytes::anonymous(bytes as usize).map_err(|_| Status::OUT_OF_MEMORY)?;
        let account = Mutex::new(Account::Others);
        Ok(Phys { number: next_number(), gpu, file: None, opened_by: OnceLock::new(), bytes, contents, account })
    }

    /// Makes a handle of a part of a file, which is of a pool that processes share: with the memory, or with another one's.
    pub(crate) fn part_of(
        gpu: &'static Gpu,
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: u64,
        is_own: bool,
    ) -> Outcome<Phys> {
        if is_own {
            gpu.charge(bytes)?;
        }
        let Ok(mut contents) = SharedBytes::map_from(file, offset, bytes as usize) else {
            if is_own {
                gpu.discharge(bytes);
            }
            return Err(Status::OUT_OF_MEMORY);
        };
        if is_own {
            contents.begin_with(gpu.new_memory());
        }
        let account = Mutex::new(if is_own { Account::Own } else { Account::Others });
        Ok(Phys { number: next_number(), gpu, file: None, opened_by: OnceLock::new(), bytes, contents, account })
    }

    /// Takes a descriptor that another process (or this one) exported, of memory of one of these GPUs. It is not kept.
    pub(crate) fn import(mut gpus: impl Iterator<Item = &'static Gpu>, descriptor: BorrowedFd<'_>) -> Outcome<Phys> {
        let refused = |_| Status::INVALID_VALUE;
        let size = rustix::fs::fstat(descriptor).map_err(refused)?.st_size as u64;
        let bytes = size.checked_sub(LABEL_BYTES).filter(|bytes| *bytes > 0);
        let bytes = bytes.ok_or(Status::INVALID_VALUE)?;
        let mut label = [0; 48];
        if rustix::io::pread(descriptor, &mut label, bytes).map_err(refused)? != label.len() {
            return Err(Status::INVALID_VALUE);
        }
        let word = |at: usize| u64::from_ne_bytes(label[at * 8..at * 8 + 8].try_into().expect("a word is 8 bytes"));
        if word(0) != LABEL_MAGIC || word(1) != bytes {
            return Err(Status::INVALID_VALUE);
        }
        let gpu = gpus.find(|gpu| label[16..32] == gpu.uuid()).ok_or(Status::INVALID_DEVICE)?;
        let record = gpu.hold(Record { at: word(4) as usize, id: word(5) }, bytes, descriptor)?;
        let contents = SharedBytes::map(descriptor, bytes as usize).map_err(|_| {
            gpu.let_go(record);
            Status::OUT_OF_MEMORY
        })?;
        let account = Mutex::new(Account::Shared(record));
        Ok(Phys { number: next_number(), gpu, file: None, opened_by: OnceLock::new(), bytes, contents, account })
    }

    /// A descriptor of this handle, for another process. An imported handle gives none, as measured on
    /// the real driver.
    pub(crate) fn export(&self) -> Outcome<OwnedFd> {
        let file = self.file.as_ref().ok_or(Status::INVALID_VALUE)?;
        self.label(file)?;
        rustix::io::fcntl_dupfd_cloexec(file, 0).map_err(|_| Status::OPERATING_SYSTEM)
    }

    /// A file of this memory for processes that open it, and the record's number that they know it by. The memory has been of no
    /// file until then; no work may touch it meanwhile.
    pub(crate) fn for_processes(&self) -> Outcome<(BorrowedFd<'_>, u64)> {
        if self.opened_by.get().is_none() {
            let (file, copy) = memfd(self.bytes).map_err(|_| Status::OUT_OF_MEMORY)?;
            self.contents.become_file(&file, copy).map_err(|_| Status::OUT_OF_MEMORY)?;
            let _ = self.opened_by.set(file);
        }
        let file = self.opened_by.get().ok_or(Status::UNKNOWN)?;
        let number = self.label(file)?;
        Ok((file.as_fd(), number))
    }

    /// The number of the record by which processes share it, if they do.
    pub(crate) fn record(&self) -> Option<u64> {
        match *self.account.lock().unwrap_or_else(PoisonError::into_inner) {
            Account::Shared(record) => Some(record.id),
            Account::Own | Account::Others => None,
        }
    }

    /// Says behind the contents what the file is; the number of its record.
    fn label(&self, file: &OwnedFd) -> Outcome<u64> {
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        if *account == Account::Own {
            let record = self.gpu.share(self.bytes, FileId::mark(file))?;
            *account = Account::Shared(record);
            let mut label = Vec::with_capacity(48);
            label.extend(LABEL_MAGIC.to_ne_bytes());
            label.extend(self.bytes.to_ne_bytes());
            label.extend(self.gpu.uuid());
            label.extend((record.at as u64).to_ne_bytes());
            label.extend(record.id.to_ne_bytes());
            rustix::io::pwrite(file, &label, self.bytes).map_err(|_| Status::OPERATING_SYSTEM)?;
        }
        match *account {
            Account::Shared(record) => Ok(record.id),
            Account::Own | Account::Others => Err(Status::INVALID_VALUE),
        }
    }

    /// The GPU whose memory it is.
    pub(crate) fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// How much memory it is.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if this process can export it: an imported one it cannot.
    pub(crate) fn can_export(&self) -> bool {
        self.file.is_some()
    }

    /// A number that no other handle of the process ever has.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// From where on something was written, at this offset or behind it; none if nothing was. Not known of an imported one.
    pub(crate) fn next_written(&self, offset: u64) -> Option<u64> {
        let Some(file) = &self.file else { return Some(offset) };
        // Also if the system cannot tell.
        let found = rustix::fs::seek(file, SeekFrom::Data(offset));
        let at = found.map_or_else(|error| (error != Errno::NXIO).then_some(offset), Some)?;
        (at < self.bytes).then_some(at)
    }

    /// Where its contents are in this process. Valid for [`Phys::bytes`] as long as `self` lives.
    pub(crate) fn contents(&self) -> *mut u8 {
        self.contents.start()
    }
}

impl Drop for Phys {
    fn drop(&mut self) {
        match *self.account.get_mut().unwrap_or_else(PoisonError::into_inner) {
            Account::Own => self.gpu.discharge(self.bytes),
            Account::Shared(record) => self.gpu.let_go(record),
            Account::Others => {}
        }
    }
}

fn next_number() -> u64 {
    NEXT_NUMBER.fetch_add(1, Ordering::Relaxed)
}

fn memfd(bytes: u64) -> rustix::io::Result<(OwnedFd, SharedBytes)> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create("simcuda", flags)?;
    rustix::fs::ftruncate(&file, bytes + LABEL_BYTES)?;
    // A peer that shortened it would crash us at the next access.
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
    let contents = SharedBytes::map(file.as_fd(), bytes as usize)?;
    Ok((file, contents))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::os::fd::AsFd;

    fn gpu() -> &'static Gpu {
        Box::leak(Box::new(Gpu::open(None, 64 << 20, None).unwrap()))
    }

    #[test]
    fn what_was_written_is_known_by_pages_and_what_an_import_wrote_too() {
        let gpu = gpu();
        let made = Phys::create(gpu, GRANULARITY, true).unwrap();
        assert_eq!(made.next_written(0), None);
        let descriptor = made.export().unwrap();
        assert_eq!(made.next_written(0), None, "what the descriptor is stands behind the contents");
        let taken = Phys::import([gpu].into_iter(), descriptor.as_fd()).unwrap();
        rustix::io::pwrite(&descriptor, &[0], 3 * 4096 + 5).unwrap();
        assert_eq!(made.next_written(0), Some(3 * 4096), "zeros too");
        assert_eq!((made.next_written(3 * 4096 + 9), made.next_written(4 * 4096)), (Some(3 * 4096 + 9), None));
        assert_eq!(taken.next_written(7), Some(7), "who has no file cannot tell");
    }

    #[test]
    fn an_import_sees_the_same_memory_and_cannot_be_exported_again() {
        let gpu = gpu();
        let made = Phys::create(gpu, GRANULARITY, true).unwrap();
        let descriptor = made.export().unwrap();
        // On its way it is the maker's.
        assert_eq!(gpu.free(), (64 << 20) - GRANULARITY);
        let taken = Phys::import([gpu].into_iter(), descriptor.as_fd()).unwrap();
        assert_eq!(taken.bytes(), GRANULARITY);
        assert_eq!(taken.export().err(), Some(Status::INVALID_VALUE));
        assert!(made.can_export() && !taken.can_export());
        assert_eq!(gpu.free(), (64 << 20) - GRANULARITY);
        drop(made);
        assert_eq!(gpu.free(), (64 << 20) - GRANULARITY);
        drop(descriptor);
        assert_eq!(gpu.free(), (64 << 20) - GRANULARITY);
        drop(taken);
        until_all_is_free(gpu);
    }

    #[test]
    fn memory_that_only_a_descriptor_holds_stays_used_and_can_be_imported_wherever_that_is() {
        let gpu = gpu();
        let descriptor = Phys::create(gpu, GRANULARITY, true).unwrap().export().unwrap();
        assert_eq!(gpu.free(), (64 << 20) - GRANULARITY);
        // On its way between processes.
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut sent = SendAncillaryBuffer::new(&mut room);
        let descriptors = [descriptor.as_fd()];
        assert!(sent.push(SendAncillaryMessage::ScmRights(&descriptors)));
        sendmsg(&here, &[std::io::IoSlice::new(&[0])], &mut sent, SendFlags::empty()).unwrap();
        let taken = Phys::import([gpu].into_iter(), descriptor.as_fd()).unwrap();
        drop(descriptor);
        drop(taken);
        assert_eq!(gpu.free(), (64 << 20) - GRANULARITY);
        // No room is made of it.
        assert_eq!(gpu.charge(64 << 20), Err(Status::OUT_OF_MEMORY));
        drop(there);
        until_all_is_free(gpu);
        gpu.charge(64 << 20).unwrap();
    }

    /// A process that another test starts has all descriptors for a moment.
    fn until_all_is_free(gpu: &Gpu) {
        while gpu.free() != gpu.memory() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_descriptor_that_is_no_handle_is_refused() {
        let gpu = gpu();
        let file = rustix::fs::memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(Phys::import([gpu].into_iter(), file.as_fd()).err(), Some(Status::INVALID_VALUE));
        rustix::fs::ftruncate(&file, 3 << 20).unwrap();
        assert_eq!(Phys::import([gpu].into_iter(), file.as_fd()).err(), Some(Status::INVALID_VALUE));
    }

    #[test]
    fn a_handle_made_to_stay_gives_no_descriptor() {
        let made = Phys::create(gpu(), GRANULARITY, false).unwrap();
        assert_eq!(made.export().err(), Some(Status::INVALID_VALUE));
    }
}
