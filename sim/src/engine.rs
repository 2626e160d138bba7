//! Modelled time: one engine for copies each way and one for kernels, per process.
//!
//! Work that has a modelled duration takes its turn on its engine: it starts when the engine is free,
//! and its stream goes on when that time is over. Without a speed set there is no model, and work
//! takes as long as it takes here.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::settings::Settings;

/// One engine: how fast it is, and until when it is taken.
struct Engine {
    /// Units (bytes, operations) per second.
    speed: Option<f64>,
    free_at: Mutex<Option<Instant>>,
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
    to_device: Engine,
    to_host: Engine,
    compute: Engine,
}

/// A turn on an engine: when it will be over.
#[must_use]
pub(crate) struct Turn(Option<Instant>);

impl Engines {
    pub(crate) fn new(settings: &Settings) -> Engines {
        Engines {
            to_device: Engine::new(settings.to_device),
            to_host: Engine::new(settings.to_host),
            compute: Engine::new(settings.kernels),
        }
    }

    /// A copy's turn.
    pub(crate) fn copy(&self, way: Way, bytes: u64) -> Turn {
        match way {
            Way::ToDevice => self.to_device.turn(bytes as f64),
            Way::ToHost => self.to_host.turn(bytes as f64),
            Way::Within => Turn(None),
        }
    }

    /// A kernel's turn. One that does no arithmetic worth counting takes none, so that a kernel which
    /// waits for another never keeps the engine from it.
    pub(crate) fn kernel(&self, operations: f64) -> Turn {
        if operations > 0.0 { self.compute.turn(operations) } else { Turn(None) }
    }
}

impl Engine {
    fn new(giga_per_second: Option<f64>) -> Engine {
        Engine { speed: giga_per_second.map(|speed| speed * 1e9), free_at: Mutex::new(None) }
    }

    fn turn(&self, units: f64) -> Turn {
        let Some(speed) = self.speed else { return Turn(None) };
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let start = free_at.map_or(now, |at| at.max(now));
        let over = start + Duration::from_secs_f64(units / speed);
        *free_at = Some(over);
        Turn(Some(over))
    }
}

impl Turn {
    /// Waits until the turn is over.
    pub(crate) fn finish(self) {
        if let Some(over) = self.0 {
            std::thread::sleep(over.saturating_duration_since(Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_on_one_engine_follow_each_other() {
        let engine = Engine::new(Some(1.0));
        let start = Instant::now();
        let first = engine.turn(1e9).0.unwrap();
        let second = engine.turn(1e9).0.unwrap();
        assert!(first >= start + Duration::from_secs(1));
        assert_eq!(second - first, Duration::from_secs(1));
    }

    #[test]
    fn without_a_speed_nothing_is_modelled() {
        assert!(Engine::new(None).turn(1e12).0.is_none());
    }
}
