//! Serves a network of many layers to whoever writes lines: `request` on standard input is answered by
//! `answer MICROSECONDS DIGEST`, the time from the upload of the request's rows to the last byte of the answer.
//!
//! Each layer's weights are an allocation of their own, and the layers are used one after the other. Every
//! request has other rows, which depend on its number. Before the first request one more is answered, and with
//! `--check 1` compared with the CPU. It ends with its input.

use std::io::BufRead as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_examples::reference::{self, Stored, random_floats};
use baton_examples::{Checksum, Failure, Gpu, read_options, require_same, run, shape};
use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, DriverError, PushKernelArg, result};

/// The network on the GPU, with room for one request.
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
    fn new(
        gpu: &Gpu,
        weights: impl Iterator<Item = Vec<f32>>,
        width: usize,
        batch: usize,
    ) -> Result<Self, DriverError> {
        let stream = gpu.context.default_stream();
        // Plain allocations, as most programs make for what they keep.
        let room = |count: usize| {
            // SAFETY: a new allocation of this size, which the slice then owns.
            unsafe { Ok::<_, DriverError>(stream.upgrade_device_ptr::<f32>(result::malloc_sync(count * 4)?, count)) }
        };
        let layer = |weights: Vec<f32>| {
            let mut layer = room(width * width)?;
            stream.memcpy_htod(&weights, &mut layer)?;
            Ok(layer)
        };
        Ok(Self {
            matmul: gpu.kernel("matmul")?,
            relu: gpu.kernel("relu")?,
            width,
            batch,
            layers: weights.map(layer).collect::<Result<_, DriverError>>()?,
            rows: room(batch * width)?,
            product: room(batch * width)?,
            stream,
        })
    }

    /// Answers one request, and says how long that took.
    fn answer(&mut self, request: &[f32]) -> Result<(Vec<f32>, Duration), DriverError> {
        let start = Instant::now();
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
        Ok((answer, start.elapsed()))
    }
}

fn answer_on_cpu(weights: impl Iterator<Item = Vec<f32>>, request: &[f32], width: usize, batch: usize) -> Vec<f32> {
    weights.fold(request.to_vec(), |rows, layer| {
        reference::relu(&reference::matmul(&rows, &layer, (batch, width, width), Stored::ROWS))
    })
}

fn example() -> Result<Checksum, Failure> {
    let (mut width, mut layers, mut batch, mut check, mut seed) = (64, 4, 4, 1, 1);
    read_options(&mut [
        ("--width", &mut width),
        ("--layers", &mut layers),
        ("--batch", &mut batch),
        ("--check", &mut check),
        ("--seed", &mut seed),
    ])?;
    if width == 0 || layers == 0 || batch == 0 {
        return Err("sizes must be at least 1".into());
    }
    let seed = seed as u32;
    let scale = (6.0 / width as f32).sqrt();
    let weights = || (0..layers as u32).map(|layer| random_floats(seed + layer, width * width, scale));
    let rows = |number: u32| random_floats(seed + 1000 + number, batch * width, 1.0);

    let gpu = Gpu::open()?;
    let mut server = Server::new(&gpu, weights(), width, batch)?;
    let (answer, _) = server.answer(&rows(0))?;
    if check != 0 {
        require_same("an answer", &answer, &answer_on_cpu(weights(), &rows(0), width, batch))?;
    }
    let mut sum = Checksum::default();
    sum.floats(&answer);
    println!("serving {batch} rows a request through {layers} layers of {width} x {width}");

    for (number, line) in (1..).zip(std::io::stdin().lock().lines()) {
        let line = line?;
        if line != "request" {
            return Err(format!("`{line}`: the only line to write here is `request`").into());
        }
        let (answer, took) = server.answer(&rows(number))?;
        let mut digest = Checksum::default();
        digest.floats(&answer);
        println!("answer {} {digest}", took.as_micros());
        sum.floats(&answer);
    }
    Ok(sum)
}

fn main() -> ExitCode {
    run("serve_mlp", example)
}
