//! Serves a small network as a server would: the weights stay on the GPU, requests come one after
//! the other, each with a batch of rows, and every so often an answer is checked on the CPU.
//!
//! The latencies it prints are the client's: from the upload of a request to the last byte of its
//! answer. For a server of some size raise `--width` and `--layers`; `--gap-us` is the pause between
//! requests, `--check-every 0` leaves out the CPU.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_examples::reference::{self, Stored, random_floats};
use baton_examples::{Checksum, Failure, Gpu, read_options, require_same, run, shape};
use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, DriverError, PushKernelArg};

/// The network on the GPU, with room for one batch.
struct Server {
    stream: Arc<CudaStream>,
    matmul: CudaFunction,
    relu: CudaFunction,
    width: usize,
    batch: usize,
    layers: Vec<CudaSlice<f32>>,
    rows: CudaSlice<f32>,
    product: CudaSlice<f32>,
}

impl Server {
    fn new(gpu: &Gpu, weights: &[Vec<f32>], width: usize, batch: usize) -> Result<Self, DriverError> {
        let stream = gpu.context.new_stream()?;
        Ok(Self {
            matmul: gpu.kernel("matmul")?,
            relu: gpu.kernel("relu")?,
            width,
            batch,
            layers: weights.iter().map(|layer| stream.clone_htod(layer)).collect::<Result<_, _>>()?,
            rows: stream.alloc_zeros(batch * width)?,
            product: stream.alloc_zeros(batch * width)?,
            stream,
        })
    }

    /// Answers one request: `batch` rows in, `batch` rows out.
    fn answer(&mut self, request: &[f32]) -> Result<Vec<f32>, DriverError> {
        self.stream.memcpy_htod(request, &mut self.rows)?;
        let (m, n) = (self.batch as u32, self.width as u32);
        let (count, flags) = (m * n, Stored::ROWS.flags());
        for layer in &self.layers {
            let mut launch = self.stream.launch_builder(&self.matmul);
            launch.arg(&mut self.product).arg(&self.rows).arg(layer).arg(&m).arg(&n).arg(&n).arg(&flags);
            // SAFETY: types and order are the kernel's; product and rows have batch x width elements,
            // a layer has width x width.
            unsafe { launch.launch(shape(count as usize)) }?;
            let mut launch = self.stream.launch_builder(&self.relu);
            launch.arg(&mut self.rows).arg(&self.product).arg(&count);
            // SAFETY: types and order are the kernel's; both vectors have `count` elements.
            unsafe { launch.launch(shape(count as usize)) }?;
        }
        let answer = self.stream.clone_dtoh(&self.rows)?;
        self.stream.synchronize()?;
        Ok(answer)
    }
}

fn answer_on_cpu(weights: &[Vec<f32>], request: &[f32], width: usize, batch: usize) -> Vec<f32> {
    weights.iter().fold(request.to_vec(), |rows, layer| {
        reference::relu(&reference::matmul(&rows, layer, (batch, width, width), Stored::ROWS))
    })
}

fn example() -> Result<Checksum, Failure> {
    let (mut width, mut layers, mut batch, mut requests) = (32, 3, 8, 50);
    let (mut gap_us, mut check_every, mut seed) = (0, 5, 1);
    read_options(&mut [
        ("--width", &mut width),
        ("--layers", &mut layers),
        ("--batch", &mut batch),
        ("--requests", &mut requests),
        ("--gap-us", &mut gap_us),
        ("--check-every", &mut check_every),
        ("--seed", &mut seed),
    ])?;
    if width == 0 || layers == 0 || batch == 0 || requests == 0 {
        return Err("sizes and requests must be at least 1".into());
    }
    println!("serving {requests} requests of {batch} rows through {layers} layers of {width} x {width}");

    let scale = (6.0 / width as f32).sqrt();
    let seed = seed as u32;
    let weights: Vec<_> = (0..layers as u32).map(|layer| random_floats(seed + layer, width * width, scale)).collect();
    let gpu = Gpu::open()?;
    let mut server = Server::new(&gpu, &weights, width, batch)?;
    let mut sum = Checksum::default();
    let mut latencies = Vec::with_capacity(requests);
    for number in 0..requests {
        let request = random_floats(seed + 1000 + number as u32, batch * width, 1.0);
        let sent = Instant::now();
        let answer = server.answer(&request)?;
        latencies.push(sent.elapsed());
        if check_every != 0 && number % check_every == 0 {
            require_same("an answer", &answer, &answer_on_cpu(&weights, &request, width, batch))?;
        }
        sum.floats(&answer);
        std::thread::sleep(Duration::from_micros(gap_us as u64));
    }
    latencies.sort();
    let at = |share: f64| latencies[((requests - 1) as f64 * share).round() as usize].as_secs_f64() * 1e3;
    println!("latency in ms: p50 {:.3}, p99 {:.3}, worst {:.3}", at(0.5), at(0.99), at(1.0));
    Ok(sum)
}

fn main() -> ExitCode {
    run("infer_mlp", example)
}
