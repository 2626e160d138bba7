//! A table that fills much of the GPU's memory and is gone over round by round: every word of it depends on
//! all words of the round before.
//!
//! The table is made of pieces. In a round each piece is added up on the device, and then written anew from
//! a seed made of that sum and its neighbour's. `--rest-ms` rests between rounds, as a program does that
//! waits for requests; with `--queued` it has at most so many pieces' work queued at a time. With `--tell 1` it prints
//! a line after each round, with a checksum of what it has computed so far.

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use baton_examples::reference::hash32;
use baton_examples::{Checksum, Failure, Gpu, read_options, run, shape};
use cudarc::driver::{CudaFunction, CudaSlice, CudaStream, DriverError, PushKernelArg, result};

const PIECE_BYTES: usize = 8 << 20;

/// The pieces, and all that the work on them needs.
struct Table {
    stream: Arc<CudaStream>,
    fill: CudaFunction,
    add_up: CudaFunction,
    pieces: Vec<CudaSlice<u32>>,
    sums: CudaSlice<u64>,
}

impl Table {
    fn new(gpu: &Gpu, count: usize) -> Result<Self, DriverError> {
        let stream = gpu.context.default_stream();
        // Plain allocations, as most programs make for what they keep.
        let piece = |_| {
            // SAFETY: a new allocation of this size, which the slice then owns.
            unsafe { Ok(stream.upgrade_device_ptr::<u32>(result::malloc_sync(PIECE_BYTES)?, PIECE_BYTES / 4)) }
        };
        let pieces = (0..count).map(piece).collect::<Result<Vec<_>, DriverError>>()?;
        // SAFETY: as above.
        let sums = unsafe { stream.upgrade_device_ptr::<u64>(result::malloc_sync(count * 8)?, count) };
        Ok(Self { fill: gpu.kernel("fill_hash")?, add_up: gpu.kernel("sum_u32")?, stream, pieces, sums })
    }

    fn write(&mut self, piece: usize, seed: u32) -> Result<(), DriverError> {
        let words = (PIECE_BYTES / 4) as u32;
        let mut launch = self.stream.launch_builder(&self.fill);
        launch.arg(&mut self.pieces[piece]).arg(&seed).arg(&words);
        // SAFETY: types and order are the kernel's; the piece has so many words.
        unsafe { launch.launch(shape(words as usize)) }.map(drop)
    }

    /// Waits for the work on the pieces so far if `queued` more have been queued; never if that is 0.
    fn keep_short(&self, piece: usize, queued: usize) -> Result<(), DriverError> {
        if queued != 0 && (piece + 1).is_multiple_of(queued) { self.stream.synchronize() } else { Ok(()) }
    }

    fn sums(&mut self, queued: usize) -> Result<Vec<u64>, DriverError> {
        let words = (PIECE_BYTES / 4) as u32;
        self.stream.memset_zeros(&mut self.sums)?;
        for (piece, pattern) in self.pieces.iter().enumerate() {
            let mut sum = self.sums.slice_mut(piece..=piece);
            let mut launch = self.stream.launch_builder(&self.add_up);
            launch.arg(&mut sum).arg(pattern).arg(&words);
            // SAFETY: types and order are the kernel's; the piece has so many words, the sum is one.
            unsafe { launch.launch(shape(words as usize)) }?;
            self.keep_short(piece, queued)?;
        }
        let sums = self.stream.clone_dtoh(&self.sums)?;
        self.stream.synchronize()?;
        Ok(sums)
    }
}

/// The sum of a piece that was written from this seed.
fn expected(seed: u32) -> u64 {
    (0..(PIECE_BYTES / 4) as u32).map(|i| u64::from(hash32(i.wrapping_add(seed)))).sum()
}

fn example() -> Result<Checksum, Failure> {
    let (mut megabytes, mut rounds, mut rest_ms, mut queued, mut tell, mut seed) = (16, 4, 0, 0, 0, 1);
    read_options(&mut [
        ("--megabytes", &mut megabytes),
        ("--rounds", &mut rounds),
        ("--rest-ms", &mut rest_ms),
        ("--queued", &mut queued),
        ("--tell", &mut tell),
        ("--seed", &mut seed),
    ])?;
    let count = (megabytes << 20) / PIECE_BYTES;
    if count == 0 || rounds == 0 {
        return Err("--megabytes must be at least 8, --rounds at least 1".into());
    }
    println!("{count} pieces of {} MiB, {rounds} rounds", PIECE_BYTES >> 20);

    let gpu = Gpu::open()?;
    let mut table = Table::new(&gpu, count)?;
    let mut seeds: Vec<u32> = (0..count).map(|piece| hash32((seed * 10_007 + piece) as u32)).collect();
    let mut sum = Checksum::default();
    for round in 0..rounds {
        for (piece, seed) in seeds.iter().enumerate() {
            table.write(piece, *seed)?;
            table.keep_short(piece, queued)?;
        }
        thread::sleep(Duration::from_millis(rest_ms as u64));
        let sums = table.sums(queued)?;
        // One piece a round is computed on the CPU too; the checksum covers all.
        let checked = round % count;
        let want = expected(seeds[checked]);
        if sums[checked] != want {
            return Err(format!("round {round}: piece {checked} adds up to {}, not {want}", sums[checked]).into());
        }
        sums.iter().for_each(|value| sum.integer(*value));
        if tell != 0 {
            println!("round {}: {sum}", round + 1);
        }
        let of_both = |piece: usize| sums[piece].wrapping_add(sums[(piece + 1) % count].rotate_left(7));
        seeds = (0..count).map(|piece| hash32(of_both(piece) as u32 ^ round as u32)).collect();
    }
    Ok(sum)
}

fn main() -> ExitCode {
    run("large_table", example)
}
