//! Events, as a coordinator tells them: one JSON object for each.
//!
//! Times are nanoseconds since the coordinator began, by the system's steady clock.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::ClassWord;

/// The version of these objects. It goes up when a field is removed or comes to mean something else, not when one is added.
pub const SCHEMA: u32 = 1;

/// Maximum number of events in one answer: a coordinator makes that many in less than a millisecond.
pub const MOST: usize = 1024;

words! {
    /// The kind of an event. Where a duration is named, it runs from `from_ns` to `to_ns`.
    pub enum Kind = Asked {
        /// A program has become a tenant.
        Joined = "joined",
        /// Its process has ended.
        Departed = "departed",
        /// It wants the GPU.
        Asked = "asked",
        /// It is to have the GPU next, and its memory is to come.
        Chosen = "chosen",
        /// Its turn begins; memory may still be on its way (`arriving`). The time is that since it was wanted.
        Granted = "granted",
        /// Its gate is open.
        Opened = "opened",
        /// All its memory is there; `first_launch_ns` says when it first launched.
        Arrived = "arrived",
        /// Its turn is over, and its work has ended. The time is that of ending it.
        Drained = "drained",
        /// Its turn is over, and its work was taken off the GPU in the middle. The time is that of taking it off.
        Preempted = "preempted",
        /// Its work is back.
        Resumed = "resumed",
        /// Its driver did not unmap memory before its work had ended.
        UnmapTimedOut = "unmap_timed_out",
        /// Its work makes way for an urgent program that co-runs.
        Descheduled = "descheduled",
        /// Its work goes on beside urgent programs.
        Rescheduled = "rescheduled",
        /// A user keeps it off the GPU.
        Suspended = "suspended",
        /// A user lets it go on.
        Unsuspended = "unsuspended",
        /// Memory begins to leave: `bytes` in `extents`, `uncopied_bytes` of it without a copy.
        Leaves = "leaves",
        /// Memory begins to come: `bytes` in `extents`, `uncopied_bytes` of it without a copy.
        Comes = "comes",
        /// `bytes` were copied to the GPU in that time.
        CopiedIn = "copied_in",
        /// `bytes` were copied to the host in that time.
        CopiedOut = "copied_out",
        /// `bytes` were copied to the host in that time while it rests, and stay where they are.
        CopiedAhead = "copied_ahead",
        /// Frames are in place behind its memory, without access yet. The time is that of the work in its process.
        Prepared = "prepared",
        /// It has access to more memory. The time is that of the work in its process.
        Mapped = "mapped",
        /// It has access to less memory. The time is that of the work in its process.
        Unmapped = "unmapped",
        /// It got memory that it asked for. The time is that since it asked.
        Allocated = "allocated",
        /// It gave memory back.
        Freed = "freed",
        /// It did not get memory that it asked for.
        Refused = "refused",
        /// A request of its has ended, which took that time.
        Request = "request",
        /// It had the GPU for `gpu_ns` of that time.
        Worked = "worked",
        /// The GPU has read its memory in that time.
        Scanned = "scanned",
        /// The GPU has overwritten free memory in that time.
        Scrubbed = "scrubbed",
    }
}

/// An event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Counts all events since the coordinator began, from 0.
    pub n: u64,
    /// When it was written down, in nanoseconds since the coordinator began.
    pub ns: u64,
    /// The number of the program that it is about, which no other program ever has; absent if it is about the GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// The program's name, as the user gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The kind of the event.
    pub what: Kind,
    /// When the operation that has now ended began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_ns: Option<u64>,
    /// When the operation ended, if that was not just now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_ns: Option<u64>,
    /// How much memory it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The number of extents that this memory consists of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents: Option<u64>,
    /// Of `leaves`, `comes`: how much of it needs no copy: it has not changed, or is zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncopied_bytes: Option<u64>,
    /// How much of the program's memory is on the GPU from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// Of `granted`: memory is still on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arriving: Option<bool>,
    /// Of `arrived`: when the first call went to the GPU, if one did before all was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_launch_ns: Option<u64>,
    /// Of `worked`: for how much of the time the program had the GPU, or was at work beside the program that had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_ns: Option<u64>,
    /// Of `departed`: the most memory that it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<u64>,
    /// Of `joined`: its class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ClassWord")]
    pub class: Option<String>,
}

/// Some of the events: the answer to Events, which traces, `baton logs`, `stats` and `top` are made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "What has happened", extend("$id" = "https://baton.invalid/events.schema.json"))]
pub struct History {
    /// The version of this description, as in the status.
    pub schema: u32,
    /// UUID of the GPU that this is about, as `nvidia-smi -L` prints it.
    pub gpu: String,
    /// When the coordinator began, in milliseconds since 1970.
    pub started_unix_ms: u64,
    /// When this answer was given, in nanoseconds since the coordinator began.
    pub now_ns: u64,
    /// The number of the oldest event that is still known.
    pub oldest: u64,
    /// The number to ask for next: events that came after these have this number or a higher one.
    pub next: u64,
    /// True if more events are there already.
    pub more: bool,
    /// The events, in the order in which they were written down.
    pub events: Vec<Event>,
}
