//! Matrix multiplication.

use super::fused::fused;
use super::machine::{Args, Machine};
use crate::errors::Outcome;

/// Flag bits: which operand is stored transposed.
const A_TRANSPOSED: u32 = 1;
const B_TRANSPOSED: u32 = 2;

/// Rows of the result between two looks at the memory's addresses.
const ROWS: usize = 64;

/// `c (m x n) = a (m x k) * b (k x n)`, each element summed over k in order, with fused steps.
pub(super) fn matmul(args: &Args<'_>, machine: &dyn Machine) -> Outcome {
    let (c, a, b) = (args.pointer(0), args.pointer(8), args.pointer(16));
    let (m, n, k) = (args.u32(24) as usize, args.u32(28) as usize, args.u32(32) as usize);
    let flags = args.u32(36);
    let mut left = machine.room(m * k)?;
    machine.memory().read(a, &mut left)?;
    if flags & A_TRANSPOSED != 0 {
        left = transposed(&left, k, m);
    }
    let mut right = machine.room(k * n)?;
    machine.memory().read(b, &mut right)?;
    if flags & B_TRANSPOSED != 0 {
        right = transposed(&right, n, k);
    }
    let mut rows = machine.room(ROWS.min(m) * n)?;
    for first in (0..m).step_by(ROWS) {
        let count = ROWS.min(m - first);
        let rows = &mut rows[..count * n];
        rows.fill(0.0);
        fused(|| {
            for (row, out) in rows.chunks_exact_mut(n.max(1)).enumerate() {
                multiply_row(out, &left[(first + row) * k..(first + row + 1) * k], &right, n);
            }
        });
        machine.memory().write(c.wrapping_add((first * n * 4) as u64), rows)?;
    }
    Ok(())
}

/// Two operations for each step of each sum.
pub(super) fn operations(args: &Args<'_>) -> f64 {
    2.0 * f64::from(args.u32(24)) * f64::from(args.u32(28)) * f64::from(args.u32(32))
}

/// Adds `left * right` to a row of the result, whole rows of `right` at a time: every element still
/// sums in order.
#[inline(always)]
fn multiply_row(out: &mut [f32], left: &[f32], right: &[f32], n: usize) {
    for (factor, row) in left.iter().zip(right.chunks_exact(n.max(1))) {
        for (sum, value) in out.iter_mut().zip(row) {
            *sum = factor.mul_add(*value, *sum);
        }
    }
}

fn transposed(stored: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut turned = vec![0f32; stored.len()];
    for row in 0..rows {
        for column in 0..columns {
            turned[column * rows + row] = stored[row * columns + column];
        }
    }
    turned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transposed_matrix_has_rows_for_columns() {
        assert_eq!(transposed(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, 3), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }

    #[test]
    fn a_row_sums_its_products_in_order() {
        let mut out = [0.0; 2];
        multiply_row(&mut out, &[2.0, 3.0], &[1.0, 10.0, 100.0, 1000.0], 2);
        assert_eq!(out, [302.0, 3020.0]);
    }
}
