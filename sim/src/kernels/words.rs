//! Kernels on integers, and those that share words with others at the same time.

use std::sync::atomic::Ordering;

use super::fused::fused;
use super::machine::{Args, Machine};
use crate::errors::Outcome;
use crate::exec::pause::Pause;

/// Elements between two looks at the memory's addresses; few enough for the CPU's first cache.
const PIECE: usize = 4 << 10;

/// Waits until `*flag >= value`, then `out[0] = *flag`.
pub(super) fn spin_on_flag(args: &Args<'_>, machine: &dyn Machine) -> Outcome {
    let (flag, value) = (args.pointer(8), args.u32(16));
    let mut pause = Pause::default();
    loop {
        let seen = machine.memory().word32(flag, false, |word| word.load(Ordering::Acquire))?;
        if seen >= value {
            return machine.memory().write(args.pointer(0), &[seen]);
        }
        machine.wait_a_little(&mut pause)?;
    }
}

/// `out[i] = mix(i + seed)`
pub(super) fn fill_hash(args: &Args<'_>, machine: &dyn Machine) -> Outcome {
    let (out, seed, count) = (args.pointer(0), args.u32(8), args.u32(12) as usize);
    let mut buffer = vec![0u32; PIECE.min(count)];
    let mut done = 0;
    while done < count {
        let piece = buffer.len().min(count - done);
        let first = (done as u32).wrapping_add(seed);
        fused(|| {
            for (at, word) in buffer[..piece].iter_mut().enumerate() {
                *word = mix((at as u32).wrapping_add(first));
            }
        });
        machine.memory().write(out.wrapping_add((done * 4) as u64), &buffer[..piece])?;
        done += piece;
    }
    Ok(())
}

/// MurmurHash3's 32-bit finaliser.
fn mix(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x85EB_CA6B);
    x ^= x >> 13;
    x = x.wrapping_mul(0xC2B2_AE35);
    x ^ (x >> 16)
}

/// Adds the sum of `in[0..n]` to `out[0]`, atomically.
pub(super) fn sum_u32(args: &Args<'_>, machine: &dyn Machine) -> Outcome {
    let (input, count) = (args.pointer(8), args.u32(16) as usize);
    let mut buffer = vec![0u32; PIECE.min(count)];
    let mut sum = 0u64;
    let mut done = 0;
    while done < count {
        let piece = buffer.len().min(count - done);
        machine.memory().read(input.wrapping_add((done * 4) as u64), &mut buffer[..piece])?;
        sum = fused(|| buffer[..piece].iter().fold(sum, |sum, x| sum.wrapping_add(u64::from(*x))));
        done += piece;
    }
    machine.memory().word64(args.pointer(0), true, |word| {
        word.fetch_add(sum, Ordering::Relaxed);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_murmurs() {
        assert_eq!(mix(0), 0);
        assert_eq!(mix(1), 0x514E_28B7);
    }
}
