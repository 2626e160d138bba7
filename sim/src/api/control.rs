//! Taking processes off the GPU, and their time slices on it: exports of this driver's own, which no CUDA driver has.
//!
//! On NVIDIA's driver the same is done by control calls to the resource manager.

use std::time::Duration;

use crate::border::Out;
use crate::door::doors_export;
use crate::errors::{Outcome, Status};
use crate::settings::Pausing;
use crate::state::{self, Driver};

doors_export!(Driver, simcudaGetProcess, (out: Out<u32>), self::number(out), Ok(()));
doors_export!(Driver, simcudaPauseProcess, (process: u32), self::pause(process), Ok(()));
doors_export!(Driver, simcudaResumeProcess, (process: u32), self::resume(process), Ok(()));
doors_export!(Driver, simcudaSetTimeSlice, (process: u32, micros: u64), self::set_slice(process, micros), Ok(()));

fn driver() -> Outcome<&'static Driver> {
    let driver = state::driver()?;
    if driver.pausing != Pausing::Off { Ok(driver) } else { Err(Status::NOT_SUPPORTED) }
}

/// The calling process's number, by which others can pause it.
fn number(out: Out<u32>) -> Outcome {
    out.required()?;
    out.set(driver()?.gpu.number())
}

/// Takes a process off the GPU, in the middle of whatever it does.
fn pause(process: u32) -> Outcome {
    driver()?.gpu.pause(process)
}

fn resume(process: u32) -> Outcome {
    driver()?.gpu.resume(process)
}

fn set_slice(process: u32, micros: u64) -> Outcome {
    driver()?.gpu.set_slice(process, Duration::from_micros(micros))
}
