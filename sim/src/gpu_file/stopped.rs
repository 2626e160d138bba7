//! Processes that were stopped in the middle of an access to the GPU's memory or its table.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// An access that takes longer than this may be of a process that is stopped.
pub(super) const SHORT_ACCESS: Duration = Duration::from_millis(2);
/// Waits look again after so long.
pub(super) const PAUSE: Duration = Duration::from_micros(50);

/// A process that was stopped, and goes on until this value is dropped.
pub(super) struct Stopped(Pid);

impl Stopped {
    /// None if it is not stopped, or that cannot be seen.
    pub(super) fn of(pid: u32) -> Option<Self> {
        // `PID (NAME) STATE …`, and a name may hold anything.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, rest) = stat.rsplit_once(") ")?;
        let pid = Pid::from_raw(i32::try_from(pid).ok()?).filter(|_| rest.starts_with('T'))?;
        kill_process(pid, Signal::CONT).ok()?;
        Some(Self(pid))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::STOP);
    }
}
