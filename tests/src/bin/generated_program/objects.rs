//! The objects of a script, by their numbers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use baton_tests::generated::script::{Id, ROW_BYTES, row_offset};

use baton_tests::driver::Handle;

/// The objects of a kind, by their numbers.
pub(crate) struct Objects<T>(Mutex<HashMap<Id, T>>);

impl<T> Default for Objects<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Copy> Objects<T> {
    pub(crate) fn put(&self, id: Id, what: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, what);
    }

    /// The object that an earlier step made.
    pub(crate) fn get(&self, id: Id) -> T {
        let objects = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *objects.get(&id).unwrap_or_else(|| panic!("the script makes object {id} first"))
    }
}

/// Host memory.
#[derive(Clone, Copy)]
pub(crate) struct Host {
    pub(crate) at: usize,
    pub(crate) bytes: usize,
}

/// Device memory.
#[derive(Clone, Copy)]
pub(crate) struct Mem {
    pub(crate) at: u64,
    /// How far behind that the row begins by which tables name it.
    pub(crate) row: u64,
    /// How many bytes are mapped there, and once more behind that, if the script has mapped it.
    pub(crate) mapped: usize,
    /// The sizes of its handles.
    pub(crate) unit: usize,
}

impl Mem {
    /// One that was allocated.
    pub(crate) fn of(mem: Id, at: u64, bytes: u32) -> Self {
        Self { at, row: row_offset(mem, bytes.max(ROW_BYTES)).into(), mapped: 0, unit: 0 }
    }
}

/// All objects of a script.
#[derive(Default)]
pub(crate) struct All {
    pub(crate) contexts: Objects<Handle>,
    pub(crate) streams: Objects<Handle>,
    pub(crate) events: Objects<Handle>,
    pub(crate) graphs: Objects<Handle>,
    pub(crate) nodes: Objects<Handle>,
    pub(crate) execs: Objects<Handle>,
    pub(crate) modules: Objects<Handle>,
    /// Modules and libraries, by the memory that is a variable of theirs.
    pub(crate) variables: Objects<Handle>,
    pub(crate) mems: Objects<Mem>,
    pub(crate) hosts: Objects<Host>,
    pub(crate) pools: Objects<Handle>,
}

impl All {
    /// The address by which tables name memory.
    pub(crate) fn row(&self, mem: Id) -> u64 {
        self.address(mem) + self.mems.get(mem).row
    }

    /// An address of memory. That of mapped memory is now the one, now the other.
    pub(crate) fn address(&self, mem: Id) -> u64 {
        static TURN: AtomicU64 = AtomicU64::new(0);
        let Mem { at, mapped, .. } = self.mems.get(mem);
        at + TURN.fetch_add(1, Ordering::Relaxed) % 2 * mapped as u64
    }
}

/// A digest of words.
pub(crate) fn digest(words: &[u32]) -> u64 {
    let mut digest = 0xCBF2_9CE4_8422_2325_u64;
    for word in words {
        digest = (digest ^ u64::from(*word)).wrapping_mul(0x9FB2_1C65_1E98_DF25);
        digest ^= digest >> 29;
    }
    digest
}

/// Words that depend on a seed and nothing else.
pub(crate) fn fill(words: &mut [u32], seed: u32) {
    for (at, word) in words.iter_mut().enumerate() {
        *word = (at as u32 ^ seed.wrapping_mul(0x9E37_79B1)).wrapping_mul(0x85EB_CA6B);
    }
}
