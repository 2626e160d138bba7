//! The coordinator's end of its keeper.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use baton_contract::link;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use super::held::{Item, Key, Note, receive, send_drop, send_item};

/// A keeper that does not take or answer anything for so long is done without.
const PATIENCE: Duration = Duration::from_secs(1);

/// The place of a tenant's process among its descriptors: after its two sockets, and before its page.
pub(super) const PROCESS: usize = 2;

/// The keeper, if there is one.
#[derive(Clone, Debug, Default)]
pub struct Keeper(Option<Arc<Mutex<Option<OwnedFd>>>>);

/// A frame that the coordinator before has left.
#[derive(Debug)]
pub struct KeptFrame {
    /// Its number.
    pub number: u32,
    /// Its size, in bytes.
    pub bytes: u64,
    /// Its memory.
    pub descriptor: OwnedFd,
}

/// A tenant that the coordinator before has left.
#[derive(Debug)]
pub struct KeptTenant {
    /// Its number.
    pub number: u32,
    /// The facts that this coordinator knew of it.
    pub facts: Vec<u8>,
    /// The socket for commands and reports.
    pub control: OwnedFd,
    /// The socket for requests.
    pub requests: OwnedFd,
    /// Its process.
    pub process: OwnedFd,
    /// The page that it writes.
    pub page: OwnedFd,
}

/// Everything that the coordinator before has left.
#[derive(Debug, Default)]
pub struct Inherited {
    /// The socket that listens, and the GPU's lock.
    pub place: Option<[OwnedFd; 2]>,
    /// The table.
    pub table: Option<OwnedFd>,
    /// The host pool's slabs.
    pub slabs: BTreeMap<u64, OwnedFd>,
    /// The frames.
    pub frames: Vec<KeptFrame>,
    /// The tenants.
    pub tenants: Vec<KeptTenant>,
}

impl Inherited {
    fn add(&mut self, key: Key, Item { bytes, descriptors }: Item) {
        let mut with = descriptors.into_iter();
        match key {
            Key::Place => self.place = with.next().zip(with.next()).map(|(listener, lock)| [listener, lock]),
            Key::Table => self.table = with.next(),
            Key::Slab(number) => self.slabs.extend(with.next().map(|slab| (number, slab))),
            Key::Frame(number) => {
                let bytes = bytes.try_into().map(u64::from_le_bytes);
                if let (Some(descriptor), Ok(bytes)) = (with.next(), bytes) {
                    self.frames.push(KeptFrame { number, bytes, descriptor });
                }
            }
            Key::Tenant(number) => {
                if let (Some(control), Some(requests), Some(process), Some(page)) =
                    (with.next(), with.next(), with.next(), with.next())
                {
                    self.tenants.push(KeptTenant { number, facts: bytes, control, requests, process, page });
                }
            }
        }
    }
}

impl Keeper {
    /// The keeper at this socket, and what it has of the coordinator before.
    ///
    /// # Errors
    ///
    /// When it does not say what it has.
    pub fn at(socket: OwnedFd) -> io::Result<(Self, Inherited)> {
        link::set_patience(&socket, Some(PATIENCE))?;
        set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
        let mut inherited = Inherited::default();
        loop {
            match receive(socket.as_fd())? {
                Some(Note::Hold(key, item)) => inherited.add(key, item),
                Some(Note::Done) => break,
                Some(Note::Drop(_)) | None => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        Ok((Self(Some(Arc::new(Mutex::new(Some(socket))))), inherited))
    }

    /// True if there is a keeper, so that another coordinator can take over.
    pub fn is_any(&self) -> bool {
        self.0.as_ref().is_some_and(|socket| socket.lock().unwrap_or_else(PoisonError::into_inner).is_some())
    }

    fn tell(&self, tell: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>) {
        let Some(socket) = &self.0 else { return };
        let mut socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = socket.as_ref().and_then(|socket| tell(socket.as_fd()).err()) {
            baton_messages::error!(keeper_is_gone(error));
            *socket = None;
        }
    }

    /// Has the keeper hold this, in place of what has this key. Without descriptors, only the bytes change.
    pub fn hold(&self, key: Key, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        self.tell(|socket| send_item(socket, key, bytes, descriptors));
    }

    /// Has the keeper let go of this, and waits until it has: memory is free only then.
    pub fn let_go(&self, key: Key) {
        self.tell(|socket| {
            send_drop(socket, key)?;
            match receive(socket)? {
                Some(Note::Done) => Ok(()),
                _ => Err(io::ErrorKind::InvalidData.into()),
            }
        });
    }
}
