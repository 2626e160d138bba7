//! The kernels that launches run, with arguments, and what they should compute.

use std::ffi::{CStr, c_void};

use crate::bench::Bench;
use crate::piece::{Piece, Place, SIZE, noise};

/// One kernel ready to be launched once, and the memory it works on.
pub(crate) struct Kernel<'a> {
    pub(crate) name: &'static CStr,
    /// The arguments' bytes, each as long as the parameter.
    pub(crate) arguments: Vec<Vec<u8>>,
    output: Piece<'a>,
    meant: Vec<u8>,
    /// The memory that the arguments and the table point to.
    _inputs: Vec<Piece<'a>>,
}

impl Kernel<'_> {
    /// The arguments as `kernelParams`. The pointers are good as long as the kernel is not changed.
    pub(crate) fn pointers(&mut self) -> Vec<*mut c_void> {
        self.arguments.iter_mut().map(|argument| argument.as_mut_ptr().cast()).collect()
    }

    /// The arguments as one buffer, each at the next place that its size allows, and their places.
    pub(crate) fn buffer(&self) -> (Vec<u8>, Vec<usize>) {
        let mut buffer = Vec::new();
        let mut places = Vec::new();
        for argument in &self.arguments {
            buffer.resize(buffer.len().next_multiple_of(argument.len().min(8)), 0);
            places.push(buffer.len());
            buffer.extend(argument);
        }
        (buffer, places)
    }

    /// Tells whether the kernel did its work.
    pub(crate) fn seen(&self) -> String {
        self.output.seen(&self.meant)
    }

    /// Tells whether it did nothing, as it should.
    pub(crate) fn untouched(&self) -> String {
        self.output.untouched()
    }
}

/// A piece of floating point numbers that are neither all alike nor all positive.
fn floats(seed: u32) -> Vec<f32> {
    noise(seed).iter().take(SIZE / 4).map(|byte| f32::from(*byte) / 2.0 - 60.0).collect()
}

fn bytes_of(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn words(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// The beginning of a piece, and noise behind it.
fn padded(beginning: &[u8]) -> Vec<u8> {
    let mut bytes = noise(9);
    bytes[..beginning.len()].copy_from_slice(beginning);
    bytes
}

/// Collects what a kernel needs.
struct Making<'a> {
    bench: &'a Bench,
    inputs: Vec<Piece<'a>>,
}

impl<'a> Making<'a> {
    fn new(bench: &'a Bench) -> Self {
        Self { bench, inputs: Vec::new() }
    }

    /// Device memory that the kernel reads; its address as an argument.
    fn input(&mut self, contents: &[u8]) -> Vec<u8> {
        self.inputs.push(Piece::new(self.bench, Place::Device, contents));
        self.inputs.last().map(|piece| piece.at(0).to_le_bytes().to_vec()).expect("just pushed")
    }

    /// The kernel; `arguments` gets the address of the output, which changes from `before` to `after`.
    fn kernel(
        self,
        name: &'static CStr,
        before: &[u8],
        after: &[u8],
        arguments: impl FnOnce(u64) -> Vec<Vec<u8>>,
    ) -> Kernel<'a> {
        let output = Piece::new(self.bench, Place::Device, before);
        let arguments = arguments(output.at(0));
        Kernel { name, arguments, output, meant: after.to_vec(), _inputs: self.inputs }
    }
}

/// An argument that is an address.
fn address(address: u64) -> Vec<u8> {
    address.to_le_bytes().to_vec()
}

/// An argument of 32 bits.
fn word(value: u32) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

/// Output numbers of which the first `count` are computed.
fn computed(before: &[f32], count: usize, compute: impl Fn(usize) -> f32) -> Vec<u8> {
    let mut after = before.to_vec();
    (0..count).for_each(|at| after[at] = compute(at));
    bytes_of(&after)
}

pub(crate) fn add(bench: &Bench) -> Kernel<'_> {
    let (a, b, old) = (floats(1), floats(2), floats(3));
    let mut making = Making::new(bench);
    let (left, right) = (making.input(&bytes_of(&a)), making.input(&bytes_of(&b)));
    let after = computed(&old, 200, |at| a[at] + b[at]);
    making.kernel(c"add", &bytes_of(&old), &after, |out| vec![address(out), left, right, word(200)])
}

pub(crate) fn add_struct(bench: &Bench) -> Kernel<'_> {
    let mut kernel = add(bench);
    let mut argument = kernel.arguments.concat();
    argument.resize(32, 0);
    kernel.arguments = vec![argument];
    kernel.name = c"add_struct";
    kernel
}

fn scale(bench: &Bench) -> Kernel<'_> {
    let (a, old) = (floats(1), floats(3));
    let mut making = Making::new(bench);
    let input = making.input(&bytes_of(&a));
    let after = computed(&old, 200, |at| 1.25 * a[at]);
    making.kernel(c"scale", &bytes_of(&old), &after, |out| {
        vec![address(out), input, 1.25_f32.to_le_bytes().to_vec(), word(200)]
    })
}

/// `axpy`, of which the result of `times` runs is known.
pub(crate) fn axpy(bench: &Bench, times: usize) -> Kernel<'_> {
    let (x, y) = (floats(1), floats(2));
    let mut making = Making::new(bench);
    let input = making.input(&bytes_of(&x));
    let after = computed(&y, 200, |at| (0..times).fold(y[at], |sum, _| 0.75_f32.mul_add(x[at], sum)));
    making
        .kernel(c"axpy", &bytes_of(&y), &after, |y| vec![address(y), input, 0.75_f32.to_le_bytes().to_vec(), word(200)])
}

/// A product of 8 x 10 and 10 x 8, or of the transposed matrices.
fn matmul(bench: &Bench, flags: u32) -> Kernel<'_> {
    const M: usize = 8;
    const N: usize = 8;
    const K: usize = 10;
    let (a, b, old) = (floats(1), floats(2), floats(3));
    let mut making = Making::new(bench);
    let (left, right) = (making.input(&bytes_of(&a)), making.input(&bytes_of(&b)));
    let after = computed(&old, M * N, |at| {
        let (i, j) = (at / N, at % N);
        (0..K).fold(0.0, |sum, p| {
            let left = if flags & 1 == 0 { a[i * K + p] } else { a[p * M + i] };
            let right = if flags & 2 == 0 { b[p * N + j] } else { b[j * K + p] };
            left.mul_add(right, sum)
        })
    });
    making.kernel(c"matmul", &bytes_of(&old), &after, |out| {
        let sizes = [M as u32, N as u32, K as u32, flags];
        [vec![address(out), left, right], sizes.map(word).to_vec()].concat()
    })
}

fn relu(bench: &Bench) -> Kernel<'_> {
    let (a, old) = (floats(1), floats(3));
    let mut making = Making::new(bench);
    let input = making.input(&bytes_of(&a));
    let after = computed(&old, 200, |at| if a[at] > 0.0 { a[at] } else { 0.0 });
    making.kernel(c"relu", &bytes_of(&old), &after, |out| vec![address(out), input, word(200)])
}

fn relu_grad(bench: &Bench) -> Kernel<'_> {
    let (y, dy, old) = (floats(1), floats(2), floats(3));
    let mut making = Making::new(bench);
    let (value, gradient) = (making.input(&bytes_of(&y)), making.input(&bytes_of(&dy)));
    let after = computed(&old, 200, |at| if y[at] > 0.0 { dy[at] } else { 0.0 });
    making.kernel(c"relu_grad", &bytes_of(&old), &after, |out| vec![address(out), value, gradient, word(200)])
}

fn gather(bench: &Bench) -> Kernel<'_> {
    let rows = [floats(1), floats(2)];
    let old = floats(3);
    let mut making = Making::new(bench);
    let addresses: Vec<_> = rows.iter().flat_map(|row| making.input(&bytes_of(row))).collect();
    let table = making.input(&padded(&addresses));
    let after = computed(&old, 100, |at| rows[at / 50][at % 50]);
    making.kernel(c"gather", &bytes_of(&old), &after, |out| vec![address(out), table, word(2), word(50)])
}

fn scatter_table(bench: &Bench) -> Kernel<'_> {
    let (input, old) = (floats(1), floats(3));
    let mut making = Making::new(bench);
    let values = making.input(&bytes_of(&input));
    let output = Piece::new(bench, Place::Device, &bytes_of(&old));
    // Both rows lie in the output, the second one 60 numbers further.
    let rows = [address(output.at(0)), address(output.at(240))].concat();
    let table = making.input(&padded(&rows));
    let mut after = old.clone();
    after[..50].copy_from_slice(&input[..50]);
    after[60..110].copy_from_slice(&input[50..100]);
    let arguments = vec![table, values, word(2), word(50)];
    Kernel { name: c"scatter_table", arguments, output, meant: bytes_of(&after), _inputs: making.inputs }
}

fn chase(bench: &Bench) -> Kernel<'_> {
    let mut making = Making::new(bench);
    let node = |next: &[u8], value: u64| padded(&[next, &value.to_le_bytes()].concat());
    let last = making.input(&node(&[0; 8], 3));
    let middle = making.input(&node(&last, 50));
    let head = making.input(&node(&middle, 700));
    let old = noise(3);
    let mut after = old.clone();
    after[..8].copy_from_slice(&753_u64.to_le_bytes());
    making.kernel(c"chase", &old, &after, |out| vec![address(out), head, word(9)])
}

/// The flag is up from the beginning.
fn spin_on_flag(bench: &Bench) -> Kernel<'_> {
    let mut making = Making::new(bench);
    let flag = making.input(&padded(&words(&[5])));
    let old = noise(3);
    let mut after = old.clone();
    after[..4].copy_from_slice(&words(&[5]));
    making.kernel(c"spin_on_flag", &old, &after, |out| vec![address(out), flag, word(3)])
}

fn busy(bench: &Bench) -> Kernel<'_> {
    let old = floats(3);
    let after = computed(&old, 100, |at| (0..7).fold(old[at], |x, _| x.mul_add(0.999, 0.5)));
    Making::new(bench).kernel(c"busy", &bytes_of(&old), &after, |buffer| vec![address(buffer), word(100), word(7)])
}

fn fill_hash(bench: &Bench) -> Kernel<'_> {
    let hash = |at: u32| {
        let mut x = at.wrapping_add(77);
        x = (x ^ x >> 16).wrapping_mul(0x85eb_ca6b);
        x = (x ^ x >> 13).wrapping_mul(0xc2b2_ae35);
        x ^ x >> 16
    };
    let old = noise(3);
    let mut after = old.clone();
    after[..800].copy_from_slice(&words(&(0..200).map(hash).collect::<Vec<_>>()));
    Making::new(bench).kernel(c"fill_hash", &old, &after, |out| vec![address(out), word(77), word(200)])
}

fn sum_u32(bench: &Bench) -> Kernel<'_> {
    let numbers: Vec<u32> = (0..256).map(|at: u32| at.wrapping_mul(0x9e37_79b9)).collect();
    let mut making = Making::new(bench);
    let input = making.input(&words(&numbers));
    let old = padded(&1000_u64.to_le_bytes());
    let mut after = old.clone();
    let sum = 1000 + numbers[..200].iter().map(|number| u64::from(*number)).sum::<u64>();
    after[..8].copy_from_slice(&sum.to_le_bytes());
    making.kernel(c"sum_u32", &old, &after, |out| vec![address(out), input, word(200)])
}

/// Makes a kernel ready.
type Make = for<'a> fn(&'a Bench) -> Kernel<'a>;

/// Every kernel, with a case's name.
pub(crate) const ALL: [(&str, Make); 15] = [
    ("add", add),
    ("add_struct", add_struct),
    ("scale", scale),
    ("axpy", |bench| axpy(bench, 1)),
    ("matmul", |bench| matmul(bench, 0)),
    ("matmul of transposed", |bench| matmul(bench, 3)),
    ("relu", relu),
    ("relu_grad", relu_grad),
    ("gather", gather),
    ("scatter_table", scatter_table),
    ("chase", chase),
    ("spin_on_flag", spin_on_flag),
    ("busy", busy),
    ("fill_hash", fill_hash),
    ("sum_u32", sum_u32),
];
