//! A launch: a function, a shape, and the values of its parameters at the time of the call.

use std::sync::{Arc, OnceLock};

use super::Function;
use crate::border::{List, bytes_at, read_at};
use crate::errors::{Outcome, Status};
use crate::kernels::machine::{Args, Machine};

/// Marks in the `extra` list of a launch.
const EXTRA_END: usize = 0;
const EXTRA_BUFFER: usize = 1;
const EXTRA_SIZE: usize = 2;
/// Bytes of parameters that a kernel may have.
const MOST_PARAMS: usize = 32764;

/// The device's limits of a launch.
pub(crate) const MAX_THREADS: u32 = 1024;
pub(crate) const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
pub(crate) const MAX_GRID: [u32; 3] = [0x7FFF_FFFF, 65535, 65535];
/// Dynamic shared memory without and with a function's leave.
pub(crate) const SHARED_BYTES: u32 = 48 << 10;
pub(crate) const SHARED_BYTES_OPTED_IN: u32 = 227 << 10;

/// The attribute with which a function gives leave for more dynamic shared memory.
pub(crate) const MAX_DYNAMIC_SHARED: u32 = 8;

/// Blocks and threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
}

/// A launch, ready to run any number of times.
pub(crate) struct Launch {
    pub(crate) function: Arc<Function>,
    /// The handle that the program launched: the function's or a kernel's.
    pub(crate) handle: usize,
    pub(crate) shape: Shape,
    params: Box<[u8]>,
    /// The addresses of the parameters in `params`, as a program reads them back.
    pointers: OnceLock<Box<[usize]>>,
}

impl Launch {
    /// Takes a launch's arguments as the program gives them, in one list or the other.
    pub(crate) fn new(
        function: Arc<Function>,
        handle: usize,
        shape: Shape,
        kernel_params: List<usize>,
        extra: List<usize>,
    ) -> Outcome<Launch> {
        let params = match from_extra(extra)? {
            Some(_) if !kernel_params.is_null() => return Err(Status::INVALID_VALUE),
            Some(params) => params,
            None => from_pointers(&function, kernel_params)?,
        };
        Launch::with_params(function, handle, shape, params)
    }

    /// A launch with its parameters in one buffer.
    pub(crate) fn with_params(
        function: Arc<Function>,
        handle: usize,
        shape: Shape,
        mut params: Vec<u8>,
    ) -> Outcome<Launch> {
        shape.check(&function)?;
        let needed = function.entry.params.last().map_or(0, |last| last.offset + last.size);
        if params.len() < needed {
            return Err(Status::INVALID_VALUE);
        }
        params.truncate(needed);
        let body = function.body.ok_or(Status::NOT_SUPPORTED)?;
        let sizes = function.entry.params.iter().map(|param| param.size);
        if !sizes.eq(body.params.iter().copied()) {
            return Err(Status::NOT_SUPPORTED);
        }
        Ok(Launch { function, handle, shape, params: params.into_boxed_slice(), pointers: OnceLock::new() })
    }

    /// The same launch with other parameters or another shape is a new one; this is how to see them.
    pub(crate) fn param_pointers(&self) -> usize {
        let start = self.params.as_ptr().expose_provenance();
        let made = || self.function.entry.params.iter().map(|param| start + param.offset).collect();
        self.pointers.get_or_init(made).as_ptr().expose_provenance()
    }

    /// True if the other launches the same function in the same way.
    pub(crate) fn is_like(&self, other: &Launch) -> bool {
        (self.handle, self.shape, &self.params) == (other.handle, other.shape, &other.params)
    }

    /// How much arithmetic it is.
    pub(crate) fn operations(&self) -> f64 {
        self.function.body.map_or(0.0, |body| (body.operations)(&Args(&self.params)))
    }

    /// Runs it.
    pub(crate) fn run(&self, machine: &dyn Machine) -> Outcome {
        let body = self.function.body.ok_or(Status::NOT_SUPPORTED)?;
        (body.run)(&Args(&self.params), machine)
    }
}

impl Shape {
    /// Fails if the device has no room for that many blocks and threads.
    pub(crate) fn check_sizes(&self, function: &Function) -> Outcome {
        let within = |shape: &[u32; 3], limits: &[u32; 3]| {
            shape.iter().zip(limits).all(|(size, limit)| (1..=*limit).contains(size))
        };
        let threads = self.block.iter().map(|size| u64::from(*size)).product::<u64>();
        if !within(&self.grid, &MAX_GRID) || !within(&self.block, &MAX_BLOCK) || threads > u64::from(MAX_THREADS) {
            return Err(Status::INVALID_VALUE);
        }
        if function.entry.max_threads.is_some_and(|most| threads > u64::from(most)) {
            return Err(Status::INVALID_VALUE);
        }
        Ok(())
    }

    /// Fails if the device cannot run it.
    fn check(&self, function: &Function) -> Outcome {
        self.check_sizes(function)?;
        let allowed = function.settings().attributes.get(&MAX_DYNAMIC_SHARED).copied();
        let allowed = allowed.map_or(SHARED_BYTES, |bytes| (bytes as u32).max(SHARED_BYTES));
        if self.shared > allowed { Err(Status::INVALID_VALUE) } else { Ok(()) }
    }
}

fn from_pointers(function: &Function, kernel_params: List<usize>) -> Outcome<Vec<u8>> {
    let params = &function.entry.params;
    let mut buffer = vec![0; params.last().map_or(0, |last| last.offset + last.size)];
    for (param, pointer) in params.iter().zip(kernel_params.read(params.len())?) {
        let value = bytes_at(pointer, param.size)?;
        buffer[param.offset..param.offset + param.size].copy_from_slice(&value);
    }
    Ok(buffer)
}

/// The buffer of an `extra` list. `None`: there is no list, or nothing in it.
fn from_extra(extra: List<usize>) -> Outcome<Option<Vec<u8>>> {
    if extra.is_null() {
        return Ok(None);
    }
    let (mut buffer, mut size) = (None, None);
    let mut at = 0;
    loop {
        match extra.item(at)? {
            EXTRA_END => break,
            EXTRA_BUFFER => buffer = Some(extra.item(at + 1)?),
            EXTRA_SIZE => size = Some(read_at::<usize>(extra.item(at + 1)?)?),
            _ => return Err(Status::INVALID_VALUE),
        }
        at += 2;
    }
    match (buffer, size) {
        (None, None) => Ok(None),
        (Some(buffer), Some(size)) if size <= MOST_PARAMS => bytes_at(buffer, size).map(Some),
        _ => Err(Status::INVALID_VALUE),
    }
}
