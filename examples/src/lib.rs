//! The common part of the Rust examples: options, the kernels, reference results, the line each ends with.
//!
//! An example prints what it does, checks its results against the CPU, and ends with
//! `result NAME CHECKSUM ok` and exit code 0. Otherwise it says what is wrong and exits with 1. The
//! checksum covers results that came from the GPU, so that two runs can be compared.
//!
//! The examples use cudarc as any program does, and know of no other CUDA library but the driver.

pub mod reference;

use std::error::Error;
use std::fmt;
use std::process::ExitCode;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaModule, DriverError, LaunchConfig};
use cudarc::nvrtc::Ptx;

/// Why an example ended early, in words.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Runs an example and prints its last line; the example gives the checksum of its results.
pub fn run(name: &str, example: impl FnOnce() -> Result<Checksum, Failure>) -> ExitCode {
    match example() {
        Ok(sum) => {
            println!("result {name} {sum} ok");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("{name}: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Reads `--name number` pairs from the command line into the values beside the names.
pub fn read_options(options: &mut [(&str, &mut usize)]) -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().and_then(|text| text.parse().ok());
        match (options.iter_mut().find(|(name, _)| *name == word), value) {
            (Some((_, option)), Some(value)) => **option = value,
            _ => {
                let known: Vec<_> = options.iter().map(|(name, value)| format!("[{name} {value}]")).collect();
                return Err(format!("options: {}", known.join(" ")).into());
            }
        }
    }
    Ok(())
}

/// The first device, with the kernels of `kernels/kernels.cu` loaded.
pub struct Gpu {
    /// The device's primary context, current on the thread that opened it.
    pub context: Arc<CudaContext>,
    module: Arc<CudaModule>,
}

impl Gpu {
    /// Opens the driver's first device and loads the kernels.
    pub fn open() -> Result<Self, DriverError> {
        let context = CudaContext::new(0)?;
        let module = context.load_module(Ptx::from_src(include_str!("../kernels/kernels.ptx")))?;
        Ok(Self { context, module })
    }

    /// A kernel by the name it has in `kernels.cu`.
    pub fn kernel(&self, name: &str) -> Result<CudaFunction, DriverError> {
        self.module.load_function(name)
    }
}

/// Blocks of 256 threads for so many elements, at most 1,024 of them: kernels walk in grid strides.
pub fn shape(elements: usize) -> LaunchConfig {
    let blocks = elements.div_ceil(256).clamp(1, 1024) as u32;
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 }
}

/// FNV-1a, 64 bits, over the bytes of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum(u64);

impl Default for Checksum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Checksum {
    /// Adds bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    /// Adds floats, by their bits.
    pub fn floats(&mut self, values: &[f32]) {
        for value in values {
            self.bytes(&value.to_le_bytes());
        }
    }

    /// Adds an integer.
    pub fn integer(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Compares bit for bit and names the first element that differs.
pub fn require_same(what: &str, got: &[f32], want: &[f32]) -> Result<(), Failure> {
    if got.len() != want.len() {
        return Err(format!("{what} has {} elements, not {}", got.len(), want.len()).into());
    }
    match got.iter().zip(want).position(|(a, b)| a.to_bits() != b.to_bits()) {
        None => Ok(()),
        Some(at) => Err(format!("{what} differs at {at}: got {}, the CPU computed {}", got[at], want[at]).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_fnv_1a() {
        let mut sum = Checksum::default();
        sum.bytes(b"foobar");
        assert_eq!(sum, Checksum(0x85944171f73967e8));
    }

    #[test]
    fn a_difference_in_sign_of_zero_is_found() {
        assert!(require_same("zero", &[0.0, 0.0], &[0.0, 0.0]).is_ok());
        let failure = require_same("zero", &[0.0, -0.0], &[0.0, 0.0]).unwrap_err();
        assert!(failure.to_string().contains("differs at 1"), "{failure}");
    }

    #[test]
    fn a_shape_covers_its_elements_or_fills_the_largest_grid() {
        assert_eq!(shape(0).grid_dim.0, 1);
        assert_eq!(shape(256).grid_dim.0, 1);
        assert_eq!(shape(257).grid_dim.0, 2);
        assert_eq!(shape(1 << 30).grid_dim.0, 1024);
    }
}
