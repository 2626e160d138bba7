//! Kernels that compute each element from the elements at its place.

use super::fused::fused;
use super::machine::{Args, Machine};
use crate::errors::Outcome;

/// Elements computed between two looks at the memory's addresses; small enough for the CPU's caches.
const PIECE: usize = 16 << 10;

/// Reads one or two inputs, computes the first from both, and writes it to the output. Piece by piece,
/// so the output may be an input.
fn map(
    machine: &dyn Machine,
    out: u64,
    first: u64,
    second: Option<u64>,
    count: u32,
    compute: impl Fn(&mut [f32], &[f32]),
) -> Outcome {
    let count = count as usize;
    let mut a = vec![0f32; PIECE.min(count)];
    let mut b = vec![0f32; if second.is_some() { a.len() } else { 0 }];
    let mut done = 0;
    while done < count {
        let piece = a.len().min(count - done);
        let offset = (done * 4) as u64;
        machine.memory().read(first.wrapping_add(offset), &mut a[..piece])?;
        if let Some(second) = second {
            machine.memory().read(second.wrapping_add(offset), &mut b[..piece])?;
        }
        let other = &b[..piece.min(b.len())];
        fused(|| compute(&mut a[..piece], other));
        machine.memory().write(out.wrapping_add(offset), &a[..piece])?;
        done += piece;
    }
    Ok(())
}

/// `out[i] = in[first + i]`
pub(super) fn copy_after(args: &Args<'_>, machine: &dyn Machine) -> Outcome {
    let from = args.pointer(8).wrapping_add(args.pointer(16).wrapping_mul(4));
    map(machine, args.pointer(0), from, None, args.u32(24), |_, _| ())
}

/// `out[i] = a[i] + b[i]`; as four parameters or as one struct, the bytes are the same.
pub(super) fn add(args: &Args<'_>, machine: &dyn Machine) -> Outcome {
    let (out, a, b) = (args.pointer(0), args.pointer(8), args.pointer(16));
    map(machine, out, a, Some(b), args.u32(24), |a, b| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
    })
}

/// `out[i] = k * in[i]`
pub(super) fn scale(args: &Args<'_>, machine: &dyn Machine) -> Outcome {
    let k = args.f32(16);
    map(machine, args.pointer(0), args.pointer(8), None, args.u32(20), |x, _| {
        x.iter_mut().for_each(|x| *x *= k);
    })
}

/// `y[i] = fma(a, x[i], y[i])`
pub(super) fn axpy(args: &Args<'_>, machine: &dyn Machine) -> Outcome {
    let (y, x, a) = (args.pointer(0), args.pointer(8), args.f32(16));
    map(machine, y, y, Some(x), args.u32(20), |y, x| {
        y.iter_mut().zip(x).for_each(|(y, x)| *y = a.mul_add(*x, *y));
    })
}

/// `out[i] = max(in[i], 0)`
pub(super) fn relu(args: &Args<'_>, machine: &dyn Machine) -> Outcome {
    map(machine, args.pointer(0), args.pointer(8), None, args.u32(16), |x, _| {
        x.iter_mut().for_each(|x| *x = if *x > 0.0 { *x } else { 0.0 });
    })
}

/// `dx[i] = y[i] > 0 ? dy[i] : 0`
pub(super) fn relu_grad(args: &Args<'_>, machine: &dyn Machine) -> Outcome {
    let (dx, y, dy) = (args.pointer(0), args.pointer(8), args.pointer(16));
    map(machine, dx, y, Some(dy), args.u32(24), |y, dy| {
        y.iter_mut().zip(dy).for_each(|(y, dy)| *y = if *y > 0.0 { *dy } else { 0.0 });
    })
}

/// `x = fma(x, 0.999, 0.5)`, as often as told.
pub(super) fn busy(args: &Args<'_>, machine: &dyn Machine) -> Outcome {
    let (buffer, rounds) = (args.pointer(0), args.u32(12));
    map(machine, buffer, buffer, None, args.u32(8), |x, _| {
        for _ in 0..rounds {
            x.iter_mut().for_each(|x| *x = x.mul_add(0.999, 0.5));
        }
    })
}
