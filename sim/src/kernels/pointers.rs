//! Kernels that follow pointers stored in the device's memory.

use super::machine::{Args, Machine};
use crate::errors::Outcome;

/// `out[r * row_len + j] = rows[r][j]`
pub(super) fn gather(args: &Args<'_>, machine: &dyn Machine) -> Outcome {
    gather_rows(machine, args.pointer(0), args.pointer(8), shape(args, 16))
}

/// The same, with parameters that lie without room behind a byte.
pub(super) fn gather_packed(args: &Args<'_>, machine: &dyn Machine) -> Outcome {
    gather_rows(machine, args.pointer(1), args.pointer(9), shape(args, 17))
}

/// The same, with the table that a variable of the module points to.
pub(super) fn gather_in(args: &Args<'_>, machine: &dyn Machine, variable: &str) -> Outcome {
    let mut rows = [0u64];
    machine.memory().read(machine.variable(variable)?, &mut rows)?;
    gather_rows(machine, args.pointer(0), rows[0], shape(args, 8))
}

/// One operation per element moved.
pub(super) fn variable_operations(args: &Args<'_>) -> f64 {
    f64::from(args.u32(8)) * f64::from(args.u32(12))
}

fn gather_rows(machine: &dyn Machine, out: u64, rows: u64, shape: [u64; 2]) -> Outcome {
    each_row(machine, rows, shape, |row, at, buffer| {
        machine.memory().read(row, buffer)?;
        machine.memory().write(out.wrapping_add(at), buffer)
    })
}

/// How many rows there are, and how long each is.
fn shape(args: &Args<'_>, offset: usize) -> [u64; 2] {
    [args.u32(offset).into(), args.u32(offset + 4).into()]
}

/// `table[r][j] = in[r * row_len + j]`
pub(super) fn scatter_table(args: &Args<'_>, machine: &dyn Machine) -> Outcome {
    let (table, input) = (args.pointer(0), args.pointer(8));
    each_row(machine, table, shape(args, 16), |row, at, buffer| {
        machine.memory().read(input.wrapping_add(at), buffer)?;
        machine.memory().write(row, buffer)
    })
}

/// One operation per element moved.
pub(super) fn table_operations(args: &Args<'_>) -> f64 {
    f64::from(args.u32(16)) * f64::from(args.u32(20))
}

/// Calls for each row with its stored pointer, its place in the flat matrix, and room for it.
fn each_row(
    machine: &dyn Machine,
    table: u64,
    [count, length]: [u64; 2],
    mut row: impl FnMut(u64, u64, &mut [f32]) -> Outcome,
) -> Outcome {
    let mut buffer = machine.room(length as usize)?;
    for at in 0..if length == 0 { 0 } else { count } {
        let mut pointer = [0u64];
        machine.memory().read(table.wrapping_add(at * 8), &mut pointer)?;
        row(pointer[0], at * length * 4, &mut buffer)?;
    }
    Ok(())
}

/// `out[0]` = sum of the values of `hops` nodes, or fewer if the chain ends.
pub(super) fn chase(args: &Args<'_>, machine: &dyn Machine) -> Outcome {
    let mut next = args.pointer(8);
    let mut sum = 0u64;
    for _ in 0..args.u32(16) {
        if next == 0 {
            break;
        }
        let mut node = [0u64; 2];
        machine.memory().read(next, &mut node)?;
        next = node[0];
        sum = sum.wrapping_add(node[1]);
    }
    machine.memory().write(args.pointer(0), &[sum])
}
