//! Taking processes off the GPU: exports of this driver's own, which no CUDA driver has.
//!
//! On NVIDIA's driver the same is done by control calls to the resource manager.

use crate::border::Out;
use crate::door::doors_export;
use crate::errors::{Outcome, Status};
use crate::state::{self, Driver};

doors_export!(Driver, simcudaGetProcess, (out: Out<u32>), self::number(out), Ok(()));
doors_export!(Driver, simcudaPauseProcess, (process: u32), self::pause(process), Ok(()));
doors_export!(Driver, simcudaResumeProcess, (process: u32), self::resume(process), Ok(()));

fn driver() -> Outcome<&'static Driver> {
    let driver = state::driver()?;
    if driver.pausing { Ok(driver) } else { Err(Status::NOT_SUPPORTED) }
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
