//! Trains a small network (one hidden layer, relu) by gradient descent on a fixed batch.
//!
//! The loss must fall, and with `--verify 1` (the default) the whole training is repeated on the CPU
//! and the weights compared bit for bit. For a long run, as the batch work beside a server, raise
//! `--steps` and `--hidden` and give `--verify 0`; with `--every` it tells the loss every so many steps.

use std::process::ExitCode;
use std::sync::Arc;

use baton_examples::reference::{self, Stored, random_floats};
use baton_examples::{Checksum, Failure, Gpu, read_options, require_same, run, shape};
use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, DriverError, PushKernelArg};

/// Sizes of the batch and of the layers, and the number of steps.
struct Task {
    batch: usize,
    inputs: usize,
    hidden: usize,
    outputs: usize,
    steps: usize,
    /// How many steps lie between two losses that are told.
    every: usize,
    seed: u32,
}

/// The change of the weights in a step, per unit of gradient.
const RATE: f32 = 0.05;

impl Task {
    fn x(&self) -> Vec<f32> {
        random_floats(self.seed, self.batch * self.inputs, 1.0)
    }

    fn targets(&self) -> Vec<f32> {
        random_floats(self.seed + 1, self.batch * self.outputs, 1.0)
    }

    fn w1(&self) -> Vec<f32> {
        random_floats(self.seed + 2, self.inputs * self.hidden, (2.0 / self.inputs as f32).sqrt())
    }

    fn w2(&self) -> Vec<f32> {
        random_floats(self.seed + 3, self.hidden * self.outputs, (2.0 / self.hidden as f32).sqrt())
    }

    /// The factor of the loss's gradient: the loss is the mean over the batch of squared errors.
    fn slope(&self) -> f32 {
        2.0 / self.batch as f32
    }

    /// The loss, from its gradient with respect to the outputs.
    fn loss(&self, gradient: &[f32]) -> f64 {
        let errors = gradient.iter().map(|&g| (f64::from(g) / f64::from(self.slope())).powi(2));
        errors.sum::<f64>() / self.batch as f64
    }
}

/// The kernels, and the stream that they run on.
struct Kernels {
    stream: Arc<CudaStream>,
    matmul: CudaFunction,
    relu: CudaFunction,
    relu_grad: CudaFunction,
    scale: CudaFunction,
    axpy: CudaFunction,
}

type Vector = CudaSlice<f32>;

impl Kernels {
    fn load(gpu: &Gpu) -> Result<Self, DriverError> {
        Ok(Self {
            stream: gpu.context.new_stream()?,
            matmul: gpu.kernel("matmul")?,
            relu: gpu.kernel("relu")?,
            relu_grad: gpu.kernel("relu_grad")?,
            scale: gpu.kernel("scale")?,
            axpy: gpu.kernel("axpy")?,
        })
    }

    fn matmul(
        &self,
        c: &mut Vector,
        a: &Vector,
        b: &Vector,
        (m, n, k): (usize, usize, usize),
        stored: Stored,
    ) -> Result<(), DriverError> {
        let (m_, n_, k_, flags) = (m as u32, n as u32, k as u32, stored.flags());
        let mut launch = self.stream.launch_builder(&self.matmul);
        launch.arg(c).arg(a).arg(b).arg(&m_).arg(&n_).arg(&k_).arg(&flags);
        // SAFETY: the kernel takes these types in this order, and the callers pass vectors of m x n,
        // m x k and k x n elements.
        unsafe { launch.launch(shape(m * n)) }.map(drop)
    }

    fn relu(&self, out: &mut Vector, input: &Vector) -> Result<(), DriverError> {
        let n = out.len() as u32;
        let mut launch = self.stream.launch_builder(&self.relu);
        launch.arg(out).arg(input).arg(&n);
        // SAFETY: types and order are the kernel's; both vectors have n elements.
        unsafe { launch.launch(shape(n as usize)) }.map(drop)
    }

    fn relu_grad(&self, dx: &mut Vector, y: &Vector, dy: &Vector) -> Result<(), DriverError> {
        let n = dx.len() as u32;
        let mut launch = self.stream.launch_builder(&self.relu_grad);
        launch.arg(dx).arg(y).arg(dy).arg(&n);
        // SAFETY: types and order are the kernel's; the three vectors have n elements.
        unsafe { launch.launch(shape(n as usize)) }.map(drop)
    }

    fn scale(&self, out: &mut Vector, input: &Vector, k: f32) -> Result<(), DriverError> {
        let n = out.len() as u32;
        let mut launch = self.stream.launch_builder(&self.scale);
        launch.arg(out).arg(input).arg(&k).arg(&n);
        // SAFETY: types and order are the kernel's; both vectors have n elements.
        unsafe { launch.launch(shape(n as usize)) }.map(drop)
    }

    fn axpy(&self, y: &mut Vector, x: &Vector, a: f32) -> Result<(), DriverError> {
        let n = y.len() as u32;
        let mut launch = self.stream.launch_builder(&self.axpy);
        launch.arg(y).arg(x).arg(&a).arg(&n);
        // SAFETY: types and order are the kernel's; both vectors have n elements.
        unsafe { launch.launch(shape(n as usize)) }.map(drop)
    }
}

/// Trains on the GPU: both weights, and the losses before the first and after the last step.
fn train(task: &Task, kernels: &Kernels) -> Result<(Vec<f32>, Vec<f32>, f64, f64), DriverError> {
    let Task { batch, inputs, hidden, outputs, .. } = *task;
    let stream = &kernels.stream;
    let x = stream.clone_htod(&task.x())?;
    let targets = stream.clone_htod(&task.targets())?;
    let mut w1 = stream.clone_htod(&task.w1())?;
    let mut w2 = stream.clone_htod(&task.w2())?;
    let mut pre = stream.alloc_zeros(batch * hidden)?;
    let mut h = stream.alloc_zeros(batch * hidden)?;
    let mut y = stream.alloc_zeros(batch * outputs)?;
    let mut dy = stream.alloc_zeros(batch * outputs)?;
    let mut dh = stream.alloc_zeros(batch * hidden)?;
    let mut dpre = stream.alloc_zeros(batch * hidden)?;
    let mut dw1 = stream.alloc_zeros(inputs * hidden)?;
    let mut dw2 = stream.alloc_zeros(hidden * outputs)?;
    let (mut first, mut last) = (f64::NAN, f64::NAN);

    for step in 0..=task.steps {
        kernels.matmul(&mut pre, &x, &w1, (batch, hidden, inputs), Stored::ROWS)?;
        kernels.relu(&mut h, &pre)?;
        kernels.matmul(&mut y, &h, &w2, (batch, outputs, hidden), Stored::ROWS)?;
        kernels.scale(&mut dy, &y, task.slope())?;
        kernels.axpy(&mut dy, &targets, -task.slope())?;
        if step % task.every == 0 || step == task.steps {
            last = task.loss(&stream.clone_dtoh(&dy)?);
            if step == 0 {
                first = last;
            }
            println!("step {step}: loss {last:.6e}");
        }
        if step == task.steps {
            break;
        }
        kernels.matmul(&mut dw2, &h, &dy, (hidden, outputs, batch), Stored::LEFT)?;
        kernels.matmul(&mut dh, &dy, &w2, (batch, hidden, outputs), Stored::RIGHT)?;
        kernels.relu_grad(&mut dpre, &h, &dh)?;
        kernels.matmul(&mut dw1, &x, &dpre, (inputs, hidden, batch), Stored::LEFT)?;
        kernels.axpy(&mut w1, &dw1, -RATE)?;
        kernels.axpy(&mut w2, &dw2, -RATE)?;
    }
    let weights = (stream.clone_dtoh(&w1)?, stream.clone_dtoh(&w2)?);
    stream.synchronize()?;
    Ok((weights.0, weights.1, first, last))
}

/// The same training on the CPU.
fn train_on_cpu(task: &Task) -> (Vec<f32>, Vec<f32>) {
    let Task { batch, inputs, hidden, outputs, .. } = *task;
    let (x, targets) = (task.x(), task.targets());
    let (mut w1, mut w2) = (task.w1(), task.w2());
    for _ in 0..task.steps {
        let h = reference::relu(&reference::matmul(&x, &w1, (batch, hidden, inputs), Stored::ROWS));
        let y = reference::matmul(&h, &w2, (batch, outputs, hidden), Stored::ROWS);
        let mut dy: Vec<f32> = y.iter().map(|y| task.slope() * y).collect();
        reference::axpy(&mut dy, &targets, -task.slope());
        let dw2 = reference::matmul(&h, &dy, (hidden, outputs, batch), Stored::LEFT);
        let dh = reference::matmul(&dy, &w2, (batch, hidden, outputs), Stored::RIGHT);
        let dw1 = reference::matmul(&x, &reference::relu_grad(&h, &dh), (inputs, hidden, batch), Stored::LEFT);
        reference::axpy(&mut w1, &dw1, -RATE);
        reference::axpy(&mut w2, &dw2, -RATE);
    }
    (w1, w2)
}

fn example() -> Result<Checksum, Failure> {
    let (mut batch, mut inputs, mut hidden, mut steps, mut every) = (32, 16, 24, 40, 0);
    let (mut seed, mut verify) = (1, 1);
    read_options(&mut [
        ("--batch", &mut batch),
        ("--inputs", &mut inputs),
        ("--hidden", &mut hidden),
        ("--steps", &mut steps),
        ("--every", &mut every),
        ("--seed", &mut seed),
        ("--verify", &mut verify),
    ])?;
    if batch == 0 || inputs == 0 || hidden == 0 || steps == 0 {
        return Err("sizes and steps must be at least 1".into());
    }
    if every == 0 {
        every = steps.div_ceil(5);
    }
    let task = Task { batch, inputs, hidden, outputs: 4, steps, every, seed: seed as u32 };
    println!("training {inputs} x {hidden} x {} on {batch} rows for {steps} steps", task.outputs);

    let gpu = Gpu::open()?;
    let (w1, w2, first, last) = train(&task, &Kernels::load(&gpu)?)?;
    if last.is_nan() || last >= first {
        return Err(format!("the loss did not fall: {first} before, {last} after").into());
    }
    if verify != 0 {
        let (want_w1, want_w2) = train_on_cpu(&task);
        require_same("the first layer", &w1, &want_w1)?;
        require_same("the second layer", &w2, &want_w2)?;
    }
    let mut sum = Checksum::default();
    sum.floats(&w1);
    sum.floats(&w2);
    Ok(sum)
}

fn main() -> ExitCode {
    run("train_mlp", example)
}
