//! The memory of the GPU and of the host, in bytes.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use baton_contract::memory::{PerKind, Unmanaged};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The GPU memory that is lent out. nvidia-smi shows it under the coordinator's process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Arena {
    /// UUID of the GPU that this is about, as `nvidia-smi -L` prints it.
    pub gpu: Arc<str>,
    /// The arena's size now.
    pub bytes: u64,
    /// The arena's size as asked for; it is smaller while others use the GPU's memory.
    pub configured_bytes: u64,
    /// The number of frames that have been made.
    pub frames: usize,
    /// The size of all frames together.
    pub frame_bytes: u64,
    /// The part of the arena that programs have.
    pub lent_bytes: u64,
    /// The part of the arena that is kept free, so that a switch can begin at once.
    pub headroom_bytes: u64,
    /// Free, and overwritten.
    pub clean_bytes: u64,
    /// Free, and to be overwritten before any program gets it.
    pub dirty_bytes: u64,
}

/// All of the GPU's memory. The lines add up to it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Ledger {
    /// UUID of the GPU that this is about, as `nvidia-smi -L` prints it.
    pub gpu: Arc<str>,
    /// The GPU's memory.
    pub total_bytes: u64,
    /// The memory that is used, as the driver reports it.
    pub driver_used_bytes: u64,
    /// The part of the used memory that has a known purpose.
    pub known_bytes: u64,
    /// The lines.
    pub lines: Lines,
}

/// The lines of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Lines {
    /// The part of the arena that programs have.
    pub lent_bytes: u64,
    /// The part of the arena that can be lent, with or without frames so far.
    pub free_bytes: u64,
    /// The part of the arena that is kept free.
    pub headroom_bytes: u64,
    /// Leased by programs for memory that does not move, and not used yet.
    pub promised_bytes: u64,
    /// Free, and not the arena's.
    pub beside_bytes: u64,
    /// Programs' memory that does not move, by kind, as far as the driver reports it as used.
    pub unmanaged: Kinds,
    /// Programs' contexts, as measured.
    pub contexts_bytes: u64,
    /// The coordinator's context, and all that was used when the first program came.
    pub own_bytes: u64,
    /// Used for an unknown purpose: code that was loaded late, local memory, channels.
    pub hidden_bytes: u64,
}

impl Lines {
    /// Returns each line with its name, in the order in which they are shown. They add up to all of the GPU's memory.
    pub fn all(&self) -> [(&'static str, u64); 9] {
        [
            ("lent", self.lent_bytes),
            ("free", self.free_bytes),
            ("headroom", self.headroom_bytes),
            ("unmanaged", self.unmanaged.sum()),
            ("contexts", self.contexts_bytes),
            ("own", self.own_bytes),
            ("hidden", self.hidden_bytes),
            ("promised", self.promised_bytes),
            ("beside", self.beside_bytes),
        ]
    }
}

/// Host memory for evicted memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HostPool {
    /// UUID of the GPU that this is about, as `nvidia-smi -L` prints it.
    pub gpu: Arc<str>,
    /// The host pool's size.
    pub bytes: u64,
    /// The part of the host pool that is prepared.
    pub ready_bytes: u64,
    /// The part of the host pool that is used.
    pub used_bytes: u64,
    /// Bytes that have lost their place in the host pool since the start because other memory needed the room. They are copied again
    /// when they leave the GPU.
    pub given_up_bytes: u64,
    /// The number of files that the host pool consists of.
    pub slabs: u64,
}

impl HostPool {
    /// Returns the part of it that can be used now.
    pub fn free_bytes(&self) -> u64 {
        self.ready_bytes.saturating_sub(self.used_bytes)
    }

    /// Returns the part of it that is still being prepared.
    pub fn unprepared_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.ready_bytes)
    }
}

/// Bytes of each kind of memory that Baton does not move, by the kinds' words. A kind of a newer build counts too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kinds(Vec<(Cow<'static, str>, u64)>);

impl Kinds {
    /// Returns the bytes of one kind.
    pub fn of(&self, kind: Unmanaged) -> u64 {
        self.0.iter().find(|(word, _)| word == kind.word()).map_or(0, |(_, bytes)| *bytes)
    }

    /// Returns the bytes of all kinds.
    pub fn sum(&self) -> u64 {
        self.0.iter().map(|(_, bytes)| bytes).sum()
    }
}

impl From<PerKind> for Kinds {
    fn from(bytes: PerKind) -> Self {
        Self(Unmanaged::ALL.into_iter().map(|kind| (kind.word().into(), bytes[kind.index()])).collect())
    }
}

impl Serialize for Kinds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(word, bytes)| (word, bytes)))
    }
}

impl<'de> Deserialize<'de> for Kinds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;

        impl<'de> Visitor<'de> for Each {
            type Value = Kinds;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes of each kind")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Kinds, A::Error> {
                let mut kinds = Vec::with_capacity(Unmanaged::ALL.len());
                while let Some((word, bytes)) = map.next_entry::<String, u64>()? {
                    kinds.push((word.into(), bytes));
                }
                Ok(Kinds(kinds))
            }
        }

        deserializer.deserialize_map(Each)
    }
}

impl JsonSchema for Kinds {
    fn schema_name() -> Cow<'static, str> {
        "Kinds".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let of = |kind: Unmanaged| {
            let words = format!("Of the kind *{}*: it does not move, because {}.", kind.word(), kind.reason());
            (kind.word().to_owned(), json_schema!({ "description": words, "type": "integer", "minimum": 0 }).to_value())
        };
        json_schema!({
            "description": "Bytes of each kind of memory that Baton does not move.",
            "type": "object",
            "properties": Unmanaged::ALL.into_iter().map(of).collect::<serde_json::Map<_, _>>(),
            "required": Unmanaged::ALL.map(Unmanaged::word),
        })
    }
}
