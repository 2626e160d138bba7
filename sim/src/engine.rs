//! Modelled time: one engine for copies each way and one for kernels, per process.
//!
//! Work that has a modelled duration takes its turn on its engine: it starts when the engine is free,
//! and its stream goes on when that time is over. Time is what the process has been on the GPU: it stands still
//! while it is paused. Without a speed set there is no model, and work takes as long as it takes here.
//!
//! With a time slice set, kernels also take turns with those of other processes ([`crate::gpu_file`]).

use std::fs::File;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::gpu_file::Gpu;
use crate::gpu_file::slices::KernelTime;
use crate::settings::Settings;

/// One engine: how fast it is, and until when it is taken.
struct Engine {
    /// Units (bytes, operations) per second.
    speed: Option<f64>,
    free_at: Mutex<Duration>,
}

/// Which way bytes go, as far as an engine is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToDevice,
    ToHost,
    /// On the device, or on the host: no link between them is used.
    Within,
}

/// The engines of one process.
pub(crate) struct Engines {
    gpu: &'static Gpu,
    to_device: Engine,
    to_host: Engine,
    compute: Engine,
    /// True if the compute engine is shared with other processes.
    shared: bool,
    /// Where copies over the link are written down.
    log: Option<File>,
}

/// A turn on an engine: when it will be over.
#[must_use]
pub(crate) enum Turn {
    /// No time is modelled.
    None,
    /// At this time of the process's.
    At(Duration),
    /// When the process's kernels have had so much time.
    After(KernelTime),
}

/// How long is slept at a time: the process may be paused meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

impl Engines {
    pub(crate) fn new(gpu: &'static Gpu, settings: &Settings) -> Engines {
        Engines {
            gpu,
            to_device: Engine::new(settings.to_device),
            to_host: Engine::new(settings.to_host),
            compute: Engine::new(settings.kernels),
            shared: settings.slice.is_some(),
            // A file that cannot be written has no lines, which its reader sees.
            log: settings.copy_log.as_ref().and_then(|path| File::options().append(true).create(true).open(path).ok()),
        }
    }

    /// Writes down that so much was copied, if that is wanted: the process, which way, and how many bytes.
    pub(crate) fn copied(&self, way: Way, bytes: u64) {
        let word = match way {
            Way::ToDevice => "in",
            Way::ToHost => "out",
            Way::Within => return,
        };
        if let Some(mut log) = self.log.as_ref() {
            // In one piece, so that lines of several processes do not mix.
            let _ = log.write_all(format!("{} {word} {bytes}\n", std::process::id()).as_bytes());
        }
    }

    /// A copy's turn.
    pub(crate) fn copy(&self, way: Way, bytes: u64) -> Turn {
        let engine = match way {
            Way::ToDevice => &self.to_device,
            Way::ToHost => &self.to_host,
            Way::Within => return Turn::None,
        };
        engine.time(bytes as f64).map_or(Turn::None, |time| engine.turn(time, self.gpu.time()))
    }

    /// A kernel's turn. One that does no arithmetic worth counting takes none, so that a kernel which
    /// waits for another never keeps the engine from it.
    pub(crate) fn kernel(&self, operations: f64) -> Turn {
        match self.compute.time(operations).filter(|_| operations > 0.0) {
            None => Turn::None,
            Some(time) if self.shared => Turn::After(self.gpu.begin_kernel(time)),
            Some(time) => self.compute.turn(time, self.gpu.time()),
        }
    }

    /// Waits until a turn is over.
    pub(crate) fn finish(&self, turn: Turn) {
        loop {
            let left = match &turn {
                Turn::None => return,
                Turn::At(over) => over.saturating_sub(self.gpu.time()),
                // At least so long: others may have the GPU meanwhile.
                Turn::After(time) => self.gpu.kernel_time_left(time),
            };
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(LONGEST_SLEEP));
        }
    }
}

impl Engine {
    fn new(giga_per_second: Option<f64>) -> Engine {
        Engine { speed: giga_per_second.map(|speed| speed * 1e9), free_at: Mutex::default() }
    }

    /// How long so much takes; none: that is not modelled.
    fn time(&self, units: f64) -> Option<Duration> {
        Some(Duration::from_secs_f64(units / self.speed?))
    }

    fn turn(&self, time: Duration, now: Duration) -> Turn {
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        *free_at = now.max(*free_at) + time;
        Turn::At(*free_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_on_one_engine_follow_each_other() {
        let engine = Engine::new(Some(1.0));
        let (start, second) = (Duration::from_secs(7), Duration::from_secs(1));
        assert_eq!(engine.time(1e9), Some(second));
        for number in 1..3 {
            let Turn::At(over) = engine.turn(second, start) else { panic!("its time is modelled") };
            assert_eq!(over, start + number * second);
        }
    }

    #[test]
    fn without_a_speed_nothing_is_modelled() {
        assert_eq!(Engine::new(None).time(1e12), None);
    }
}
