//! The kernels that run here, found by the name of their PTX entry.
//!
//! Each is written for a grid-stride loop, so the shape of the launch changes nothing about the result and
//! the body computes all elements at once. It reaches memory through its [`Machine`], piece by piece.

use self::machine::{Args, Machine};
use crate::errors::Outcome;

mod dense;
mod elementwise;
mod fused;
pub(crate) mod machine;
mod pages;
mod pointers;
mod words;

/// One kernel.
pub(crate) struct Body {
    name: &'static str,
    /// Sizes of the parameters it expects; with another layout it is another kernel.
    pub(crate) params: &'static [usize],
    pub(crate) run: fn(&Args<'_>, &dyn Machine) -> Outcome,
    /// How many operations that is, for the modelled speed.
    pub(crate) operations: fn(&Args<'_>) -> f64,
}

/// The kernel of that name.
pub(crate) fn find(name: &str) -> Option<&'static Body> {
    BODIES.iter().find(|body| body.name == name)
}

static BODIES: &[Body] = &[
    Body { name: "add", params: &[8, 8, 8, 4], run: elementwise::add, operations: |args| f64::from(args.u32(24)) },
    Body { name: "add_struct", params: &[32], run: elementwise::add, operations: |args| f64::from(args.u32(24)) },
    Body { name: "scale", params: &[8, 8, 4, 4], run: elementwise::scale, operations: |args| f64::from(args.u32(20)) },
    Body {
        name: "axpy",
        params: &[8, 8, 4, 4],
        run: elementwise::axpy,
        operations: |args| 2.0 * f64::from(args.u32(20)),
    },
    Body { name: "relu", params: &[8, 8, 4], run: elementwise::relu, operations: |args| f64::from(args.u32(16)) },
    Body {
        name: "relu_grad",
        params: &[8, 8, 8, 4],
        run: elementwise::relu_grad,
        operations: |args| f64::from(args.u32(24)),
    },
    Body {
        name: "busy",
        params: &[8, 4, 4],
        run: elementwise::busy,
        operations: |args| 2.0 * f64::from(args.u32(8)) * f64::from(args.u32(12)),
    },
    Body { name: "matmul", params: &[8, 8, 8, 4, 4, 4, 4], run: dense::matmul, operations: dense::operations },
    Body { name: "gather", params: &[8, 8, 4, 4], run: pointers::gather, operations: pointers::table_operations },
    Body {
        name: "scatter_table",
        params: &[8, 8, 4, 4],
        run: pointers::scatter_table,
        operations: pointers::table_operations,
    },
    Body {
        name: "gather_packed",
        params: &[25],
        run: pointers::gather_packed,
        operations: |args| f64::from(args.u32(17)) * f64::from(args.u32(21)),
    },
    Body {
        name: "gather_variable",
        params: &[8, 4, 4],
        run: |args, machine| pointers::gather_in(args, machine, "rows_variable"),
        operations: pointers::variable_operations,
    },
    Body {
        name: "gather_managed",
        params: &[8, 4, 4],
        run: |args, machine| pointers::gather_in(args, machine, "rows_managed"),
        operations: pointers::variable_operations,
    },
    Body {
        name: "copy_after",
        params: &[8, 8, 8, 4],
        run: elementwise::copy_after,
        operations: |args| f64::from(args.u32(24)),
    },
    Body { name: "chase", params: &[8, 8, 4], run: pointers::chase, operations: |args| f64::from(args.u32(16)) },
    Body { name: "spin_on_flag", params: &[8, 8, 4], run: words::spin_on_flag, operations: |_| 0.0 },
    Body {
        name: "fill_hash",
        params: &[8, 4, 4],
        run: words::fill_hash,
        operations: |args| 8.0 * f64::from(args.u32(12)),
    },
    Body { name: "sum_u32", params: &[8, 8, 4], run: words::sum_u32, operations: |args| f64::from(args.u32(16)) },
    Body {
        name: "baton_pages",
        params: &[8, 4, 4, 8, 8, 8, 8, 8, 8, 8, 4, 8, 4, 4, 4],
        run: pages::pages,
        operations: pages::operations,
    },
];
