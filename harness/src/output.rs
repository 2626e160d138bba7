//! A program's standard output, as it comes.
//!
//! A thread reads it, so that each line has the time of its arrival and the program never waits for a reader. To get the output of a
//! program that has ended, the caller reads the rest itself. The end of the pipe would be no sign: a surviving child keeps it open.

use std::process::ChildStdout;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, ioctl_fionbio, read};

/// A line, and the time of its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The time when its line break came.
    pub when: Instant,
    /// The text without the line break.
    pub text: String,
}

#[derive(Default)]
struct Taken {
    bytes: Vec<u8>,
    /// The ends of whole lines, with their times.
    ends: Vec<(Instant, usize)>,
    is_over: bool,
}

pub(crate) struct Output {
    /// The pipe, set to not block.
    pipe: ChildStdout,
    taken: Mutex<Taken>,
    more: Condvar,
}

impl Output {
    pub(crate) fn of(pipe: ChildStdout) -> std::io::Result<Arc<Self>> {
        ioctl_fionbio(&pipe, true)?;
        let output = Arc::new(Self { pipe, taken: Mutex::default(), more: Condvar::new() });
        let follower = output.clone();
        std::thread::Builder::new().name("output".to_owned()).spawn(move || follower.follow())?;
        Ok(output)
    }

    /// Reads until the last writer has closed the pipe.
    fn follow(&self) {
        while !self.take().is_over {
            // After an interruption, the loop reads once more.
            let _ = poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], None);
        }
    }

    /// Reads all pending output. The pipe is only read under the lock, so every byte taken from it is in here.
    fn take(&self) -> MutexGuard<'_, Taken> {
        // No change is left half done where a thread could panic.
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffer = [0; 4096];
        while !taken.is_over {
            match read(&self.pipe, &mut buffer) {
                Ok(0) => taken.is_over = true,
                Ok(count) => taken.add(&buffer[..count]),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(_) => taken.is_over = true,
            }
            self.more.notify_all();
        }
        taken
    }

    /// Returns all output so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.take().bytes).into_owned()
    }

    /// Returns the whole line with this number, if it has come.
    pub(crate) fn line(&self, number: usize) -> Option<Line> {
        let taken = self.take();
        let (when, end) = *taken.ends.get(number)?;
        let start = number.checked_sub(1).map_or(0, |before| taken.ends[before].1 + 1);
        Some(Line { when, text: String::from_utf8_lossy(&taken.bytes[start..end]).into_owned() })
    }

    /// Waits until the line with this number has come, for at most `limit`.
    pub(crate) fn wait(&self, number: usize, limit: Duration) {
        let is_missing = |taken: &mut Taken| taken.ends.len() <= number;
        // If a thread has panicked, the wait ends.
        let _ = self.more.wait_timeout_while(self.take(), limit, is_missing);
    }
}

impl Taken {
    fn add(&mut self, bytes: &[u8]) {
        let (start, now) = (self.bytes.len(), Instant::now());
        let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| (now, start + at));
        self.ends.extend(ends);
        self.bytes.extend_from_slice(bytes);
    }
}
