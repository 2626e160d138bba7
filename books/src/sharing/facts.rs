//! Shared memory and events, as facts that are written down one by one: another coordinator begins with them.
//!
//! A fact has a kind, a number that no other of its kind has, and words of 64 bits, in little-endian bytes.

use std::fmt;

use baton_contract::memory::SizeClass;
use baton_contract::messages::{ExtentId, IPC_HANDLE, ProcessId};

use super::{Export, Key};

/// A fact about memory or events that tenants share. Tenants are named by their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A tenant lets others open this allocation.
    Export {
        /// The tenant.
        owner: u32,
        /// The allocation.
        export: Export,
        /// Its key.
        key: Key,
    },
    /// A tenant claims the event of a handle.
    Event {
        /// The tenant.
        owner: u32,
        /// The number of the claim: those with higher numbers came later.
        number: u64,
        /// The handle.
        handle: [u8; IPC_HANDLE],
    },
    /// A tenant exports memory by descriptors, and claims to be this process.
    Process {
        /// The tenant.
        owner: u32,
        /// The process.
        process: ProcessId,
    },
    /// A tenant has another one's extent.
    Attached(Attached),
}

/// A tenant's hold on another one's extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attached {
    /// The tenant, and its number for the extent.
    pub id: (u32, ExtentId),
    /// The owner, and its number for the extent.
    pub owner: (u32, ExtentId),
    /// The extent's address in the owner's process.
    pub owner_at: u64,
    /// Its address in the attached tenant's process.
    pub at: u64,
    /// Its size.
    pub class: SizeClass,
}

impl Fact {
    /// Its kind and number.
    pub fn name(&self) -> (u16, u64) {
        match self {
            Self::Export { key, .. } => (1, first_word(key)),
            Self::Event { number, .. } => (2, *number),
            Self::Process { owner, .. } => (3, u64::from(*owner)),
            Self::Attached(Attached { id, .. }) => (4, u64::from(id.0) << 32 | u64::from(id.1.0)),
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let words = match *self {
            Self::Export { owner, export, key } => {
                let (words, _) = key.as_chunks();
                [[u64::from(owner), export.at, export.bytes].as_slice(), &words_of(words)].concat()
            }
            Self::Event { owner, number, handle } => {
                let (words, _) = handle.as_chunks();
                [[u64::from(owner), number].as_slice(), &words_of(words)].concat()
            }
            Self::Process { owner, process } => vec![owner.into(), process.namespace, process.number.into()],
            Self::Attached(Attached { id, owner, owner_at, at, class }) => {
                let [id, owner] = [id, owner].map(|(tenant, extent)| u64::from(tenant) << 32 | u64::from(extent.0));
                vec![id, owner, owner_at, at, class.index() as u64]
            }
        };
        words.into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// The fact of this kind in these bytes, if there is one.
    pub fn decode(kind: u16, bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks() else { return None };
        let words = words_of(words);
        let tenant = |word: u64| u32::try_from(word).ok();
        Some(match (kind, words.as_slice()) {
            (1, [owner, at, bytes, key @ ..]) => {
                let export = Export { at: *at, bytes: *bytes };
                Self::Export { owner: tenant(*owner)?, export, key: bytes_of(key)? }
            }
            (2, [owner, number, handle @ ..]) => {
                Self::Event { owner: tenant(*owner)?, number: *number, handle: bytes_of(handle)? }
            }
            (3, [owner, namespace, number]) => {
                let process = ProcessId { namespace: *namespace, number: tenant(*number)? };
                Self::Process { owner: tenant(*owner)?, process }
            }
            (4, [id, owner, owner_at, at, class]) => {
                let [id, owner] = [id, owner].map(|word| ((word >> 32) as u32, ExtentId(*word as u32)));
                let class = SizeClass::of_index((*class).try_into().ok()?)?;
                Self::Attached(Attached { id, owner, owner_at: *owner_at, at: *at, class })
            }
            _ => return None,
        })
    }
}

fn first_word(key: &Key) -> u64 {
    key.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

fn words_of(bytes: &[[u8; 8]]) -> Vec<u64> {
    bytes.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

fn bytes_of<const N: usize>(words: &[u64]) -> Option<[u8; N]> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.try_into().ok()
}

/// A change of a fact: its kind and number, and its bytes, or none if it holds no more.
pub type Note = ((u16, u64), Option<Vec<u8>>);

/// Writes facts down.
#[derive(Default)]
pub struct Notes(Option<Box<dyn Fn(Note) + Send>>);

impl Notes {
    /// Calls this at each change.
    pub fn to(write: impl Fn(Note) + Send + 'static) -> Self {
        Self(Some(Box::new(write)))
    }

    pub(super) fn hold(&self, fact: &Fact) {
        if let Some(write) = &self.0 {
            write((fact.name(), Some(fact.encode())));
        }
    }

    pub(super) fn forget(&self, fact: &Fact) {
        if let Some(write) = &self.0 {
            write((fact.name(), None));
        }
    }
}

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Notes").field(&self.0.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn facts() -> impl Strategy<Value = Fact> {
        let extent = || (any::<u32>(), any::<u32>().prop_map(ExtentId));
        prop_oneof![
            (any::<u32>(), any::<(u64, u64)>(), any::<Key>()).prop_map(|(owner, (at, bytes), key)| Fact::Export {
                owner,
                export: Export { at, bytes },
                key
            }),
            (any::<u32>(), any::<u64>(), any::<u8>()).prop_map(|(owner, number, byte)| Fact::Event {
                owner,
                number,
                handle: [byte; IPC_HANDLE]
            }),
            (any::<u32>(), any::<u64>(), any::<u32>()).prop_map(|(owner, namespace, number)| Fact::Process {
                owner,
                process: ProcessId { namespace, number }
            }),
            (extent(), extent(), any::<(u64, u64)>(), 0..SizeClass::ALL.len()).prop_map(
                |(id, owner, (owner_at, at), class)| {
                    Fact::Attached(Attached { id, owner, owner_at, at, class: SizeClass::ALL[class] })
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn a_fact_is_read_as_it_was_written(fact in facts()) {
            prop_assert_eq!(Fact::decode(fact.name().0, &fact.encode()), Some(fact));
        }

        #[test]
        fn any_bytes_are_a_fact_or_none(kind in 0..6u16, words in prop::collection::vec(any::<u64>(), 0..12)) {
            let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
            if let Some(fact) = Fact::decode(kind, &bytes) {
                prop_assert_eq!(fact.encode().len(), bytes.len());
            }
        }
    }
}
