//! The ends of either process, as the other one learns of them.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// The time in which a process is started again only so often: one that dies at once would die for ever.
const WHILE: Duration = Duration::from_secs(60);

/// The times at which a process has died of late.
#[derive(Debug, Default)]
pub(super) struct Deaths(Vec<Instant>);

impl Deaths {
    /// Adds one of now. True if there were more than `most` in a minute.
    pub(super) fn are_too_many(&mut self, most: usize) -> bool {
        self.0.retain(|at| at.elapsed() < WHILE);
        self.0.push(Instant::now());
        self.0.len() > most
    }
}

/// Waits until a process, by its pidfd, has ended; for this time at most, or for as long as it takes. False if it has not.
pub(super) fn has_ended(process: impl AsFd, within: Option<Duration>) -> io::Result<bool> {
    let end = within.map(|within| Instant::now() + within);
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        match poll(&mut [PollFd::new(&process, PollFlags::IN)], left.as_ref()) {
            Err(Errno::INTR) => {}
            ended => return Ok(ended? > 0),
        }
    }
}
