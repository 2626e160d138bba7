//! What has happened, as a coordinator tells it: one JSON object for each event.
//!
//! Times are nanoseconds since the coordinator began, by the system's steady clock.

use serde::{Deserialize, Serialize};

/// The version of these objects. It goes up when a field is removed or comes to mean something else, not when one is added.
pub const SCHEMA: u32 = 1;

/// How many events one answer has at most: a coordinator makes so many in less than a millisecond.
pub const MOST: usize = 1024;

/// The kinds of event, as [`Event::what`] has them.
///
/// | kind | about | `from_ns` to `to_ns` |
/// |---|---|---|
/// | `joined`, `departed` | a program has become a tenant; its process has ended | |
/// | `asked` | it wants the GPU | |
/// | `chosen` | it is to have the GPU next, and its memory is to come | |
/// | `granted` | its turn begins; memory may still be on its way (`arriving`) | since it was wanted |
/// | `opened` | its gate is open | |
/// | `arrived` | all its memory is there; `first_launch_ns` says when it first launched | |
/// | `drained`, `preempted` | its turn is over: its work has ended, or was taken off the GPU in the middle | the work of ending it |
/// | `resumed` | its work is back | |
/// | `unmap_timed_out` | its driver did not unmap memory before its work had ended | |
/// | `descheduled`, `rescheduled` | its work makes way for somebody urgent that co-runs, and goes on | |
/// | `suspended`, `unsuspended` | a user keeps it off the GPU, and no longer does | |
/// | `leaves`, `comes` | memory begins to leave or to come: `bytes` in `extents`, `uncopied_bytes` of it without a copy | |
/// | `copied_in`, `copied_out` | `bytes` were copied over the bus | the copy |
/// | `copied_ahead` | `bytes` were copied to the host while it rests, and stay where they are | the copy |
/// | `prepared`, `mapped`, `unmapped` | mappings were changed | the work in its process |
/// | `allocated`, `freed`, `refused` | memory that it asked for, gave back, did not get | since it was asked for |
/// | `request` | a request of its has ended | the request |
/// | `worked` | it had the GPU for `gpu_ns` of that time | the time |
/// | `scanned`, `scrubbed` | the GPU has read its memory; has overwritten memory that was nobody's | the work |
pub const KINDS: [&str; 30] = [
    "joined",
    "departed",
    "asked",
    "chosen",
    "granted",
    "opened",
    "arrived",
    "drained",
    "preempted",
    "resumed",
    "unmap_timed_out",
    "descheduled",
    "rescheduled",
    "suspended",
    "unsuspended",
    "leaves",
    "comes",
    "copied_in",
    "copied_out",
    "copied_ahead",
    "prepared",
    "mapped",
    "unmapped",
    "allocated",
    "freed",
    "refused",
    "request",
    "worked",
    "scanned",
    "scrubbed",
];

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Counts all events since the coordinator began, from 0.
    pub n: u64,
    /// When it was written down.
    pub ns: u64,
    /// The tenant's number, which no other tenant ever has; none if it is about the GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// What the user called that tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// What has happened: one of [`KINDS`].
    pub what: String,
    /// When what has ended now had begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_ns: Option<u64>,
    /// When it ended, if that was not just now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_ns: Option<u64>,
    /// How much memory it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// In how many pieces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<u64>,
    /// Of `leaves`, `comes`: how much of it is not copied, because it has not changed, or is zeros.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncopied_bytes: Option<u64>,
    /// How much of the tenant's memory is on the GPU from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// Of `granted`: memory is still on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arriving: Option<bool>,
    /// Of `arrived`: when the first call went to the GPU, if one did before all was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_launch_ns: Option<u64>,
    /// Of `worked`: for how much of the time it had the GPU, or was at work beside whoever had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_ns: Option<u64>,
    /// Of `departed`: the most memory that it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// Of `joined`: its class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
}

/// Some of what has happened: the answer to `Opening::Events`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// [`SCHEMA`].
    pub schema: u32,
    /// UUID of the GPU.
    pub gpu: String,
    /// When the coordinator began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// When this was said.
    pub now_ns: u64,
    /// The number of the oldest event that is still known.
    pub oldest: u64,
    /// What to ask for next: events that came after these have this number or a higher one.
    pub next: u64,
    /// Whether there are more already.
    pub more: bool,
    /// In the order in which they were written down, [`MOST`] at most.
    pub events: Vec<Event>,
}
