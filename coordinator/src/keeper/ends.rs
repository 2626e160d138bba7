//! The ends of either process, as the other one learns of them.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};

/// The time in which a process is started again only so often: one that dies at once would die for ever.
const WHILE: Duration = Duration::from_secs(60);

/// The times at which a process has died of late.
#[derive(Debug, Default)]
pub(super) struct Deaths(Vec<Instant>);

impl Deaths {
    /// Adds one. Returns the time until there were no more than `most` within a minute: it is started again then.
    pub(super) fn until_next(&mut self, most: usize, now: Instant) -> Duration {
        self.0.retain(|at| now.duration_since(*at) < WHILE);
        self.0.push(now);
        let of_a_minute_ago = self.0.len().checked_sub(most + 1).and_then(|which| self.0.get(which));
        of_a_minute_ago.map_or(Duration::ZERO, |at| WHILE.saturating_sub(now.duration_since(*at)))
    }
}

/// The programs of coordinators that have died since one has served.
#[derive(Debug)]
pub(super) struct Orphans {
    /// The time for which they are kept.
    wait: Duration,
    since: Option<Instant>,
}

impl Orphans {
    pub(super) fn new(wait: Duration) -> Self {
        Self { wait, since: None }
    }

    /// A coordinator has died, and the next one is started after a pause. False if they are not kept for so long.
    pub(super) fn can_wait(&mut self, pause: Duration, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        now.duration_since(since) + pause <= self.wait
    }

    /// A coordinator serves: there are no orphans.
    pub(super) fn are_served(&mut self) {
        self.since = None;
    }

    /// The time until they are not kept any more, if there are any.
    pub(super) fn left(&self) -> Option<Duration> {
        self.since.map(|since| self.wait.saturating_sub(since.elapsed()))
    }
}

/// The time after which something is tried again for which the system had no room.
pub(super) const AGAIN: Duration = Duration::from_millis(10);

/// Waits until a process, by its pidfd, has ended, for as long as it takes.
pub(super) fn await_end(process: impl AsFd) {
    while !has_ended(&process, None).unwrap_or(false) {
        std::thread::sleep(AGAIN);
    }
}

/// Waits until a process, by its pidfd, has ended; for this time at most, or for as long as it takes. False if it has not.
pub(super) fn has_ended(process: impl AsFd, within: Option<Duration>) -> io::Result<bool> {
    is_any_readable(&[process], within)
}

/// Kills a process, by its pidfd, and waits until it has ended; for this time at most.
///
/// # Errors
///
/// When it has not.
pub(super) fn kill(process: impl AsFd, within: Duration) -> io::Result<()> {
    // This fails without harm if it has ended.
    let _ = pidfd_send_signal(&process, Signal::KILL);
    if has_ended(process, Some(within))? { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
}

/// Waits until one of these can be read, which a pidfd can when its process has ended; for this time at most, or for as long as it takes.
/// False if none can.
pub(super) fn is_any_readable(all: &[impl AsFd], within: Option<Duration>) -> io::Result<bool> {
    let end = within.map(|within| Instant::now() + within);
    let mut all: Vec<PollFd<'_>> = all.iter().map(|one| PollFd::new(one, PollFlags::IN)).collect();
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        match poll(&mut all, left.as_ref()) {
            Err(Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_process_that_dies_too_often_is_started_again_later() {
        let (mut deaths, start) = (Deaths::default(), Instant::now());
        let pauses = [0, 1, 2, 3, 60, 61, 119].map(|at| deaths.until_next(3, start + at * SECOND).as_secs());
        // The fourth in a minute waits until the first is a minute old. Each counts for a minute.
        assert_eq!(pauses, [0, 0, 0, 57, 1, 1, 0]);
        assert_eq!(Deaths::default().until_next(0, start), WHILE);
    }

    #[test]
    fn orphans_are_kept_from_the_first_death_on_until_one_serves() {
        let (mut orphans, start) = (Orphans::new(60 * SECOND), Instant::now());
        assert_eq!(orphans.left(), None);
        assert!(orphans.can_wait(Duration::ZERO, start) && orphans.can_wait(50 * SECOND, start + 10 * SECOND));
        assert!(!orphans.can_wait(51 * SECOND, start + 10 * SECOND));
        assert!(orphans.left().is_some_and(|left| left > 50 * SECOND));
        orphans.are_served();
        assert!(orphans.can_wait(60 * SECOND, start + 100 * SECOND));
    }
}
