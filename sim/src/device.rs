//! The program's devices.

use std::sync::Mutex;

use crate::engine::Engines;
use crate::gpu_file::Gpu;

/// One of the program's devices.
pub(crate) struct Device {
    pub(crate) gpu: &'static Gpu,
    pub(crate) engines: Engines,
    pub(crate) primary: Mutex<Primary>,
}

impl Device {
    /// As the program numbers it.
    pub(crate) fn ordinal(&self) -> usize {
        self.gpu.ordinal()
    }
}

/// The device's primary context.
#[derive(Default)]
pub(crate) struct Primary {
    /// The handle stays when the context is made again.
    pub(crate) handle: usize,
    pub(crate) retained: u32,
    pub(crate) flags: u32,
}
