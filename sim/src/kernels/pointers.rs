//! Kernels that follow pointers stored in the device's memory.

use super::{Args, Machine};
use crate::errors::Outcome;

/// `out[r * row_len + j] = rows[r][j]`
pub(super) fn gather(args: &Args<'_>, machine: &Machine<'_>) -> Outcome {
    let (out, rows) = (args.pointer(0), args.pointer(8));
    each_row(args, machine, rows, |row, at, buffer| {
        machine.space.read(row, buffer)?;
        machine.space.write(out.wrapping_add(at), buffer)
    })
}

/// `table[r][j] = in[r * row_len + j]`
pub(super) fn scatter_table(args: &Args<'_>, machine: &Machine<'_>) -> Outcome {
    let (table, input) = (args.pointer(0), args.pointer(8));
    each_row(args, machine, table, |row, at, buffer| {
        machine.space.read(input.wrapping_add(at), buffer)?;
        machine.space.write(row, buffer)
    })
}

/// One operation per element moved.
pub(super) fn table_operations(args: &Args<'_>) -> f64 {
    f64::from(args.u32(16)) * f64::from(args.u32(20))
}

/// Calls for each row with its stored pointer, its place in the flat matrix, and room for it.
fn each_row(
    args: &Args<'_>,
    machine: &Machine<'_>,
    table: u64,
    mut row: impl FnMut(u64, u64, &mut [f32]) -> Outcome,
) -> Outcome {
    let (count, length) = (u64::from(args.u32(16)), u64::from(args.u32(20)));
    let mut buffer = machine.room(length as usize)?;
    for at in 0..if length == 0 { 0 } else { count } {
        let mut pointer = [0u64];
        machine.space.read(table.wrapping_add(at * 8), &mut pointer)?;
        row(pointer[0], at * length * 4, &mut buffer)?;
    }
    Ok(())
}

/// `out[0]` = sum of the values of `hops` nodes, or fewer if the chain ends.
pub(super) fn chase(args: &Args<'_>, machine: &Machine<'_>) -> Outcome {
    let mut next = args.pointer(8);
    let mut sum = 0u64;
    for _ in 0..args.u32(16) {
        if next == 0 {
            break;
        }
        let mut node = [0u64; 2];
        machine.space.read(next, &mut node)?;
        next = node[0];
        sum = sum.wrapping_add(node[1]);
    }
    machine.space.write(args.pointer(0), &[sum])
}
