//! Kernels that compute each element from the elements at its place.

use super::{Args, Machine};
use crate::errors::Outcome;

/// Elements computed between two looks at the memory's addresses.
const PIECE: usize = 32 << 10;

/// Reads up to two inputs, computes, writes the output; piece by piece, so in place is fine.
fn map(
    machine: &Machine<'_>,
    out: u64,
    inputs: [u64; 2],
    count: u32,
    compute: impl Fn(f32, f32) -> f32,
) -> Outcome {
    let mut first = vec![0f32; PIECE.min(count as usize)];
    let mut second = first.clone();
    let mut done = 0;
    while done < count as usize {
        let piece = first.len().min(count as usize - done);
        let offset = (done * 4) as u64;
        machine.space.read(inputs[0].wrapping_add(offset), &mut first[..piece])?;
        if inputs[1] != inputs[0] {
            machine.space.read(inputs[1].wrapping_add(offset), &mut second[..piece])?;
        } else {
            second[..piece].copy_from_slice(&first[..piece]);
        }
        for (a, b) in first[..piece].iter_mut().zip(&second[..piece]) {
            *a = compute(*a, *b);
        }
        machine.space.write(out.wrapping_add(offset), &first[..piece])?;
        done += piece;
    }
    Ok(())
}

/// `out[i] = a[i] + b[i]`; as four parameters or as one struct, the bytes are the same.
pub(super) fn add(args: &Args<'_>, machine: &Machine<'_>) -> Outcome {
    let inputs = [args.pointer(8), args.pointer(16)];
    map(machine, args.pointer(0), inputs, args.u32(24), |a, b| a + b)
}

/// `out[i] = k * in[i]`
pub(super) fn scale(args: &Args<'_>, machine: &Machine<'_>) -> Outcome {
    let (input, k) = (args.pointer(8), args.f32(16));
    map(machine, args.pointer(0), [input, input], args.u32(20), |x, _| k * x)
}

/// `y[i] = fma(a, x[i], y[i])`
pub(super) fn axpy(args: &Args<'_>, machine: &Machine<'_>) -> Outcome {
    let (y, x, a) = (args.pointer(0), args.pointer(8), args.f32(16));
    map(machine, y, [y, x], args.u32(20), |y, x| a.mul_add(x, y))
}

/// `out[i] = max(in[i], 0)`
pub(super) fn relu(args: &Args<'_>, machine: &Machine<'_>) -> Outcome {
    let input = args.pointer(8);
    let positive = |x: f32, _| if x > 0.0 { x } else { 0.0 };
    map(machine, args.pointer(0), [input, input], args.u32(16), positive)
}

/// `dx[i] = y[i] > 0 ? dy[i] : 0`
pub(super) fn relu_grad(args: &Args<'_>, machine: &Machine<'_>) -> Outcome {
    let inputs = [args.pointer(8), args.pointer(16)];
    let masked = |y: f32, dy: f32| if y > 0.0 { dy } else { 0.0 };
    map(machine, args.pointer(0), inputs, args.u32(24), masked)
}

/// `x = fma(x, 0.999, 0.5)`, as often as told.
pub(super) fn busy(args: &Args<'_>, machine: &Machine<'_>) -> Outcome {
    let (buffer, rounds) = (args.pointer(0), args.u32(12));
    map(machine, buffer, [buffer, buffer], args.u32(8), |x, _| {
        (0..rounds).fold(x, |x, _| x.mul_add(0.999, 0.5))
    })
}
