//! Waiting for memory that others change.

use std::time::Duration;

/// Waiting for memory to change: quick at first, then without burning the host's cores.
#[derive(Default)]
pub(crate) struct Pause(u32);

impl Pause {
    /// Waits a little, longer with every step.
    pub(crate) fn step(&mut self) {
        self.0 += 1;
        match self.0 {
            0..100 => std::thread::yield_now(),
            100..1000 => std::thread::sleep(Duration::from_micros(20)),
            _ => std::thread::sleep(Duration::from_micros(200)),
        }
    }
}
