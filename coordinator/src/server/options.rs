//! The server's options, and its errors.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use baton_contract::messages::DriverKind;
use baton_messages::Message;

use super::tenants::guests::Quotas;
use super::tuning::Tuning;
use crate::device::gpu::GpuError;
use baton_policy::arrival::Pipeline;

/// The server's options.
#[derive(Clone, Debug)]
pub struct Options {
    /// The driver's number of the GPU, as users name it.
    pub number: u32,
    /// The most that the arena may take, in bytes.
    pub arena: u64,
    /// The size of the host pool, in bytes.
    pub host_pool: u64,
    /// Settings that can change while it serves.
    pub tuning: Tuning,
    /// The driver that tenants have to use too.
    pub driver: DriverKind,
    /// Bytes of the arena that are kept free, so that a switch can begin to copy at once.
    pub headroom: u64,
    /// The way in which tenants run while their memory comes in, if they do.
    pub pipeline: Pipeline,
    /// True to find unchanged memory by hashing, which need not be copied out.
    pub hash: bool,
    /// True if evicted memory goes back to its frames as they are, if no other tenant has needed them since.
    pub keep: bool,
    /// True to take work off the GPU in the middle, where that is possible, instead of waiting for its end.
    pub pause: bool,
    /// True if tenants that fit together co-run, where they can be paused.
    pub corun: bool,
    /// A file that gets a line for every switch.
    pub trace: Option<PathBuf>,
    /// For tests: freed and evicted frames are filled with this instead of zeros, before they are lent again.
    pub poison: Option<u8>,
    /// Other users whose programs may be tenants, by their numbers. They can steer nothing.
    pub guests: Vec<RangeInclusive<u32>>,
    /// The parties between which physical memory never changes hands.
    pub isolation: Isolation,
    /// The treatment of unresponsive tenants that hold up others all the same.
    pub on_stuck: OnStuck,
    /// The quotas of each of them.
    pub quotas: Quotas,
    /// True to end when the last tenant has left.
    pub until_idle: bool,
}

/// The treatment of unresponsive tenants, if others wait for things that cannot be taken from them: work that cannot be paused,
/// memory that cannot move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnStuck {
    /// Without it guests are killed, and for programs of the coordinator's user others wait.
    pub what: Option<Stuck>,
    /// For how long others wait at least.
    pub after: Duration,
}

/// The treatment of such a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stuck {
    /// Others wait for it.
    Wait,
    /// Its process is killed.
    Kill,
}

impl OnStuck {
    /// After how long a tenant is killed, if it ever is.
    pub(super) fn killed_after(self, is_guest: bool) -> Option<Duration> {
        let usual = if is_guest { Stuck::Kill } else { Stuck::Wait };
        (self.what.unwrap_or(usual) == Stuck::Kill).then_some(self.after)
    }
}

/// The parties between which a piece of physical memory never changes hands: for others it is given back to the driver, and another
/// piece is made. A program that has kept a handle to a piece sees nothing of theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Between users.
    #[default]
    Users,
    /// Between all tenants; no memory is taken from an unresponsive tenant.
    Strict,
}

/// The reason why the server could not start, or had to end.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The GPU or its driver.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// Anything that a message explains.
    #[error(transparent)]
    Told(#[from] Message),
    /// The system.
    #[error("{}", baton_messages::of_path(what, error))]
    System {
        /// The attempted action.
        what: String,
        /// The system's error.
        error: std::io::Error,
    },
}
