//! Modelled time: one engine for copies each way and one for kernels, per process.
//!
//! Work that has a modelled duration takes its turn on its engine: it starts when the engine is free,
//! and its stream goes on when that time is over. Time is what the process has been on the GPU: it stands still
//! while it is paused. Without a speed set there is no model, and work takes as long as it takes here.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::gpu_file::Gpu;
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
}

/// A turn on an engine: when it will be over.
#[must_use]
pub(crate) struct Turn(Option<Duration>);

/// How long is slept at a time: the process may be paused meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

impl Engines {
    pub(crate) fn new(gpu: &'static Gpu, settings: &Settings) -> Engines {
        Engines {
            gpu,
            to_device: Engine::new(settings.to_device),
            to_host: Engine::new(settings.to_host),
            compute: Engine::new(settings.kernels),
        }
    }

    /// A copy's turn.
    pub(crate) fn copy(&self, way: Way, bytes: u64) -> Turn {
        match way {
            Way::ToDevice => self.to_device.turn(bytes as f64, self.gpu.time()),
            Way::ToHost => self.to_host.turn(bytes as f64, self.gpu.time()),
            Way::Within => Turn(None),
        }
    }

    /// A kernel's turn. One that does no arithmetic worth counting takes none, so that a kernel which
    /// waits for another never keeps the engine from it.
    pub(crate) fn kernel(&self, operations: f64) -> Turn {
        if operations > 0.0 { self.compute.turn(operations, self.gpu.time()) } else { Turn(None) }
    }
}

impl Engines {
    /// Waits until a turn is over.
    pub(crate) fn finish(&self, turn: Turn) {
        let Some(over) = turn.0 else { return };
        while let Some(left) = over.checked_sub(self.gpu.time()).filter(|left| !left.is_zero()) {
            std::thread::sleep(left.min(LONGEST_SLEEP));
        }
    }
}

impl Engine {
    fn new(giga_per_second: Option<f64>) -> Engine {
        Engine { speed: giga_per_second.map(|speed| speed * 1e9), free_at: Mutex::default() }
    }

    fn turn(&self, units: f64, now: Duration) -> Turn {
        let Some(speed) = self.speed else { return Turn(None) };
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let over = now.max(*free_at) + Duration::from_secs_f64(units / speed);
        *free_at = over;
        Turn(Some(over))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_on_one_engine_follow_each_other() {
        let engine = Engine::new(Some(1.0));
        let start = Duration::from_secs(7);
        let first = engine.turn(1e9, start).0.unwrap();
        let second = engine.turn(1e9, start).0.unwrap();
        assert_eq!(first, start + Duration::from_secs(1));
        assert_eq!(second - first, Duration::from_secs(1));
    }

    #[test]
    fn without_a_speed_nothing_is_modelled() {
        assert!(Engine::new(None).turn(1e12, Duration::ZERO).0.is_none());
    }
}
