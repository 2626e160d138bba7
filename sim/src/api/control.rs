//! Taking processes off the GPU, their time slices on it, and what there is of a process: exports of this driver's own,
//! which no CUDA driver has.
//!
//! On NVIDIA's driver the first two are done by control calls to the resource manager.

use std::time::Duration;

use crate::border::{Out, OutList};
use crate::door::doors_export;
use crate::errors::{Outcome, Status};
use crate::settings::Pausing;
use crate::state::{self, Driver};

doors_export!(Driver, simcudaGetProcess, (out: Out<u32>), self::number(out), Ok(()));
doors_export!(Driver, simcudaPauseProcess, (process: u32), self::pause(process), Ok(()));
doors_export!(Driver, simcudaResumeProcess, (process: u32), self::resume(process), Ok(()));
doors_export!(
    Driver,
    simcudaGetComputeProcesses,
    (count: Out<u32>, pids: OutList<u32>, bytes: OutList<u64>),
    self::processes(count, pids, bytes),
    Ok(())
);
doors_export!(Driver, simcudaCountEvents, (count: Out<usize>), self::events(count), Ok(()));
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

/// How many events of this process there are, in all contexts.
fn events(count: Out<usize>) -> Outcome {
    count.set(state::driver()?.events.count())
}

/// Who uses the GPU and how much of it, as NVML's `nvmlDeviceGetComputeRunningProcesses` tells it: `count` is the room in
/// both lists, and then how many there are. A process that cannot be seen from here has the number 0.
fn processes(count: Out<u32>, pids: OutList<u32>, bytes: OutList<u64>) -> Outcome {
    let room = count.get()? as usize;
    let all = state::driver()?.gpu.processes();
    count.set(all.len() as u32)?;
    if all.len() > room {
        return Err(Status::INVALID_VALUE);
    }
    let (all_pids, all_bytes): (Vec<u32>, Vec<u64>) = all.into_iter().unzip();
    pids.write(&all_pids)?;
    bytes.write(&all_bytes)
}
