//! Threads that each drive several streams at once: every stream fills a buffer of its own with a
//! pattern and adds it up, over and over, while the other threads do the same.

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use baton_examples::reference::hash32;
use baton_examples::{Checksum, Failure, Gpu, read_options, run, shape};
use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, DriverError, PushKernelArg};

/// A stream with its buffer and its running sum.
struct Lane {
    stream: Arc<CudaStream>,
    pattern: CudaSlice<u32>,
    sum: CudaSlice<u64>,
}

impl Lane {
    fn new(gpu: &Gpu, elements: usize) -> Result<Self, DriverError> {
        let stream = gpu.context.new_stream()?;
        let (pattern, sum) = (stream.alloc_zeros(elements)?, stream.alloc_zeros(1)?);
        Ok(Self { stream, pattern, sum })
    }

    fn fill_and_add(&mut self, fill: &CudaFunction, add_up: &CudaFunction, seed: u32) -> Result<(), DriverError> {
        let n = self.pattern.len() as u32;
        let mut launch = self.stream.launch_builder(fill);
        launch.arg(&mut self.pattern).arg(&seed).arg(&n);
        // SAFETY: types and order are the kernel's; the buffer has n elements.
        unsafe { launch.launch(shape(n as usize)) }?;
        let mut launch = self.stream.launch_builder(add_up);
        launch.arg(&mut self.sum).arg(&self.pattern).arg(&n);
        // SAFETY: types and order are the kernel's; the buffer has n elements, the sum one.
        unsafe { launch.launch(shape(n as usize)) }.map(drop)
    }
}

/// The seed of one step of one stream of one thread.
fn seed_of(seed: usize, thread: usize, lane: usize, step: usize) -> u32 {
    hash32((seed * 1_000_003 + thread * 10_007 + lane * 101 + step) as u32)
}

fn example() -> Result<Checksum, Failure> {
    let (mut threads, mut streams, mut elements, mut steps, mut seed) = (3, 3, 4000, 5, 1);
    read_options(&mut [
        ("--threads", &mut threads),
        ("--streams", &mut streams),
        ("--elements", &mut elements),
        ("--steps", &mut steps),
        ("--seed", &mut seed),
    ])?;
    if threads == 0 || streams == 0 || elements == 0 {
        return Err("--threads, --streams and --elements must be at least 1".into());
    }
    println!("{threads} threads with {streams} streams each, {steps} times {elements} elements on each");

    let gpu = Gpu::open()?;
    let (fill, add_up) = (gpu.kernel("fill_hash")?, gpu.kernel("sum_u32")?);
    let drive = |thread: usize| -> Result<Vec<u64>, DriverError> {
        gpu.context.bind_to_thread()?;
        let mut lanes = (0..streams).map(|_| Lane::new(&gpu, elements)).collect::<Result<Vec<_>, _>>()?;
        for step in 0..steps {
            for (number, lane) in lanes.iter_mut().enumerate() {
                lane.fill_and_add(&fill, &add_up, seed_of(seed, thread, number, step))?;
            }
        }
        lanes
            .iter()
            .map(|lane| {
                let sum = lane.stream.clone_dtoh(&lane.sum)?;
                lane.stream.synchronize()?;
                Ok(sum[0])
            })
            .collect()
    };
    let results: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || drive(thread))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker panicked")).collect()
    });

    let mut sum = Checksum::default();
    for (thread, result) in results.into_iter().enumerate() {
        for (lane, got) in result?.into_iter().enumerate() {
            let of_step = |step| {
                let seed = seed_of(seed, thread, lane, step);
                (0..elements as u32).map(|i| u64::from(hash32(i.wrapping_add(seed)))).sum::<u64>()
            };
            let want: u64 = (0..steps).map(of_step).sum();
            if got != want {
                return Err(format!("stream {lane} of thread {thread} summed to {got}, not {want}").into());
            }
            sum.integer(got);
        }
    }
    Ok(sum)
}

fn main() -> ExitCode {
    run("many_streams", example)
}
