//! Serves a network of many layers, line by line: `request` on standard input is answered by
//! `answer MICROSECONDS DIGEST`, the time from the upload of the request's rows to the last byte of the answer.
//!
//! `requests COUNT MICROSECONDS SEED` stands for many users: so many requests arrive at random (Poisson), on average
//! every so many microseconds. Each is answered by such a line, with the time from its arrival, so that it includes the
//! wait for those that came before.
//!
//! Each layer's weights are an allocation of their own, and the layers are used one after the other. Every
//! request has other rows, which depend on its number. Before the first request one more is answered, and with
//! `--check 1` compared with the CPU. It ends with its input.

use std::io::BufRead as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_examples::reference::{self, Stored, hash32, random_floats};
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

    let mut numbers = 1..;
    for line in std::io::stdin().lock().lines() {
        let (line, start) = (line?, Instant::now());
        for arrival in read(&line).ok_or_else(|| format!("`{line}` is neither `request` nor `{REQUESTS}`"))? {
            let request = rows(numbers.next().unwrap_or_default());
            let wait = arrival.map(|at| at.saturating_sub(start.elapsed()));
            std::thread::sleep(wait.unwrap_or_default());
            let (answer, took) = server.answer(&request)?;
            let took = arrival.map_or(took, |at| start.elapsed() - at);
            let mut digest = Checksum::default();
            digest.floats(&answer);
            println!("answer {} {digest}", took.as_micros());
            sum.floats(&answer);
        }
    }
    Ok(sum)
}

const REQUESTS: &str = "requests COUNT MICROSECONDS SEED";

/// The requests that a line stands for, and when each arrives; none: as soon as it is read.
fn read(line: &str) -> Option<Vec<Option<Duration>>> {
    match line.split(' ').collect::<Vec<_>>()[..] {
        ["request"] => Some(vec![None]),
        ["requests", count, mean, seed] => {
            let mean = Duration::from_micros(mean.parse().ok()?);
            Some(arrivals(count.parse().ok()?, mean, seed.parse().ok()?).map(Some).collect())
        }
        _ => None,
    }
}

/// When requests arrive that know nothing of each other.
fn arrivals(count: u32, mean: Duration, seed: u32) -> impl Iterator<Item = Duration> {
    let mut at = Duration::ZERO;
    (0..count).map(move |number| {
        let drawn = hash32(seed.wrapping_mul(10_007).wrapping_add(number));
        // Of 0 there is no logarithm.
        let share = (f64::from(drawn) + 1.0) / (f64::from(u32::MAX) + 1.0);
        at += mean.mul_f64(-share.ln());
        at
    })
}

fn main() -> ExitCode {
    run("serve_mlp", example)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_arrive_at_random_but_on_average_as_often_as_told() {
        let (count, mean) = (10_000, Duration::from_millis(3));
        let all: Vec<_> = arrivals(count, mean, 1).collect();
        let last = all.last().copied().unwrap_or_default();
        assert!(last > mean * count * 97 / 100 && last < mean * count * 103 / 100, "{last:?}");
        // Of exponential times a share of 1 - 1/e is shorter than their mean.
        let short = all.windows(2).filter(|pair| pair[1] - pair[0] < mean).count();
        assert!((6_100..6_550).contains(&short), "{short}");
        assert!(arrivals(2, mean, 1).ne(arrivals(2, mean, 2)) && arrivals(2, mean, 1).eq(arrivals(2, mean, 1)));
    }

    #[test]
    fn a_line_stands_for_one_request_or_for_many() {
        assert_eq!(read("request"), Some(vec![None]));
        assert_eq!(read("requests 3 1000 7").map(|all| all.len()), Some(3));
        for line in ["", "requests", "requests 3 x 1", "request 1"] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
