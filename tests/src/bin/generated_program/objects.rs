//! The objects of a script, by their numbers.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use baton_tests::generated::script::Id;

use crate::driver::Handle;

/// What the numbers of a kind of objects stand for.
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

    /// What a step has made before.
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

/// All objects of a script.
#[derive(Default)]
pub(crate) struct All {
    pub(crate) contexts: Objects<Handle>,
    pub(crate) streams: Objects<Handle>,
    pub(crate) events: Objects<Handle>,
    pub(crate) graphs: Objects<Handle>,
    pub(crate) nodes: Objects<Handle>,
    pub(crate) execs: Objects<Handle>,
    pub(crate) mems: Objects<u64>,
    pub(crate) hosts: Objects<Host>,
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
