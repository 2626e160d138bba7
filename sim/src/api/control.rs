//! Taking processes off the GPU, their time slices on it, and what there is of a process: exports of this driver's own,
//! which no CUDA driver has.
//!
//! On NVIDIA's driver the first two are done by control calls to the resource manager.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::border::{In, List, Out, OutList};
use crate::door::doors_export;
use crate::errors::{Outcome, Status};
use crate::exec::stack;
use crate::gpu_file::{Gpu, NUMBERS};
use crate::settings::Pausing;
use crate::state::{self, Driver};

doors_export!(Driver, simcudaGetProcess, (out: Out<u32>), self::number(out), Ok(()));
doors_export!(Driver, simcudaGetProcessOn, (gpu: In<[u8; 16]>, out: Out<u32>), self::number_on(gpu, out), Ok(()));
doors_export!(Driver, simcudaGetProcessId, (process: u32, out: Out<u32>), self::process_id(process, out), Ok(()));
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
doors_export!(
    Driver,
    simcudaReadBuffer,
    (descriptor: i32, offset: usize, to: OutList<u8>, bytes: usize),
    self::read_buffer(descriptor, offset, to, bytes),
    Ok(())
);
doors_export!(
    Driver,
    simcudaWriteBuffer,
    (descriptor: i32, offset: usize, from: List<u8>, bytes: usize),
    self::write_buffer(descriptor, offset, from, bytes),
    Ok(())
);
doors_export!(Driver, simcudaSetTimeSlice, (process: u32, micros: u64), self::set_slice(process, micros), Ok(()));

/// The GPU of the current context, or the first one.
fn current_gpu(driver: &Driver) -> Outcome<&'static Gpu> {
    match stack::current_any() {
        Ok(context) => Ok(context.device.gpu),
        Err(_) => driver.device(0).map(|device| device.gpu),
    }
}

fn can_pause() -> Outcome<&'static Driver> {
    let driver = state::driver()?;
    if driver.pausing != Pausing::Off { Ok(driver) } else { Err(Status::NOT_SUPPORTED) }
}

/// A process's number on a GPU, as all processes of the machine call it.
fn named(gpu: &Gpu) -> u32 {
    gpu.number_in_machine() as u32 * NUMBERS + gpu.number()
}

/// The GPU that a number is about, and the process's number there.
fn meant(process: u32) -> Outcome<(&'static Gpu, u32)> {
    let gpu = can_pause()?.gpus().find(|gpu| gpu.number_in_machine() == (process / NUMBERS) as usize);
    Ok((gpu.ok_or(Status::INVALID_VALUE)?, process % NUMBERS))
}

/// The calling process's number on the current context's GPU, by which others can pause it there.
fn number(out: Out<u32>) -> Outcome {
    out.required()?;
    out.set(named(current_gpu(can_pause()?)?))
}

/// The same on the GPU with this UUID.
fn number_on(gpu: In<[u8; 16]>, out: Out<u32>) -> Outcome {
    out.required()?;
    let uuid = gpu.get()?;
    let gpu = can_pause()?.gpus().find(|gpu| gpu.uuid() == uuid);
    out.set(named(gpu.ok_or(Status::INVALID_DEVICE)?))
}

/// The process that has a number, as the calling process numbers processes; 0 if it cannot see it.
fn process_id(process: u32, out: Out<u32>) -> Outcome {
    out.required()?;
    let (gpu, process) = meant(process)?;
    out.set(gpu.process_id(process))
}

/// Takes a process off the GPU, in the middle of whatever it does.
fn pause(process: u32) -> Outcome {
    let (gpu, process) = meant(process)?;
    gpu.pause(process)
}

fn resume(process: u32) -> Outcome {
    let (gpu, process) = meant(process)?;
    gpu.resume(process)
}

fn set_slice(process: u32, micros: u64) -> Outcome {
    let (gpu, process) = meant(process)?;
    gpu.set_slice(process, Duration::from_micros(micros))
}

/// Reads as another device on the bus does, through a descriptor of `cuMemGetHandleForAddressRange`.
#[allow(unsafe_code)]
fn read_buffer(descriptor: i32, offset: usize, to: OutList<u8>, bytes: usize) -> Outcome {
    // SAFETY: the program lends the descriptor for this call. If it is none, the kernel says so.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    to.write(&state::driver()?.bus.read(descriptor, offset, bytes)?)
}

/// Writes so.
#[allow(unsafe_code)]
fn write_buffer(descriptor: i32, offset: usize, from: List<u8>, bytes: usize) -> Outcome {
    // SAFETY: as above.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    state::driver()?.bus.write(descriptor, offset, &from.read(bytes)?)
}

/// How many events of this process there are, in all contexts.
fn events(count: Out<usize>) -> Outcome {
    count.set(state::driver()?.events.count())
}

/// The processes that use the current context's GPU, or the first one, and how much of it each uses, as NVML's
/// `nvmlDeviceGetComputeRunningProcesses` tells it: `count` is the room in both lists, and then how many
/// there are. A process that cannot be seen from here has the number 0.
fn processes(count: Out<u32>, pids: OutList<u32>, bytes: OutList<u64>) -> Outcome {
    let room = count.get()? as usize;
    let all = current_gpu(state::driver()?)?.processes();
    count.set(all.len() as u32)?;
    if all.len() > room {
        return Err(Status::INVALID_VALUE);
    }
    let (all_pids, all_bytes): (Vec<u32>, Vec<u64>) = all.into_iter().unzip();
    pids.write(&all_pids)?;
    bytes.write(&all_bytes)
}
