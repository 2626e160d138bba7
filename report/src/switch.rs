//! One change of the GPU's owner.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A change of the GPU's holder, or an allocation for which other memory had to go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Switch {
    /// UUID of the GPU that this is about, as `nvidia-smi -L` prints it.
    pub gpu: Arc<str>,
    /// Counts the changes that were written down; 0 for an allocation.
    pub n: u64,
    /// The program that had the GPU before.
    pub from: Option<String>,
    /// The program that has the GPU afterwards, or has got memory.
    pub to: String,
    /// Copied to the host for it, in bytes.
    pub bytes_out: u64,
    /// Copied to the GPU for it, in bytes.
    pub bytes_in: u64,
    /// From the beginning of the first copy to the host to the end of the last.
    pub out_seconds: f64,
    /// From the beginning of the first copy to the GPU to the end of the last.
    pub in_seconds: f64,
    /// How long the work before it took to end.
    pub drain_ms: f64,
    /// How long it took to take the work before off the GPU in the middle; 0 if it ended by itself.
    pub pause_ms: f64,
    /// How long programs took to unmap memory.
    pub unmap_ms: f64,
    /// How long putting frames in place took, without access yet.
    pub prepare_ms: f64,
    /// How long giving access took.
    pub map_ms: f64,
    /// From the decision to the open gate.
    pub switch_ms: f64,
    /// Bytes that left without a copy, because they had not changed.
    pub bytes_unchanged: u64,
    /// Bytes that came without a copy, because they are zeros.
    pub bytes_zero: u64,
    /// In how many groups memory came.
    pub groups: u64,
    /// The number of extents that came.
    pub extents: u64,
    /// Calls that waited for memory meanwhile.
    pub waits: u64,
    /// How long these calls waited for memory, all together.
    pub waited_ms: f64,
    /// Calls that needed all memory because they had not shown what they would reach.
    pub opaque: u64,
    /// The times of the switch's phases.
    pub phases: Phases,
}

/// The times of a switch's phases, in milliseconds since the program wanted the GPU. A phase that did not happen is null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Phases {
    /// The coordinator chose it.
    pub decided_ms: Option<f64>,
    /// It was told to open its gate.
    pub granted_ms: Option<f64>,
    /// The first memory that it lacked was there.
    pub first_extent_ms: Option<f64>,
    /// Its first call went to the GPU, if memory was still on its way.
    pub first_launch_ms: Option<f64>,
    /// All its memory was there.
    pub all_resident_ms: Option<f64>,
}
