//! The kernels that run here, found by the name of their PTX entry.
//!
//! Each is written for a grid-stride loop, so the shape of the launch changes nothing about the result and
//! the body computes all elements at once. Memory is reached through [`Machine`], piece by piece.

use crate::errors::{Outcome, Status};
use crate::exec::context::Context;
use crate::exec::op::Pause;
use crate::memory::view::View;

mod dense;
mod elementwise;
mod fused;
mod pages;
mod pointers;
mod words;

/// What a body runs on.
pub(crate) struct Machine<'a> {
    pub(crate) space: View<'a>,
    /// Where it runs: a body that waits gives up when the context ends.
    pub(crate) context: &'a Context,
    /// The module that it is of.
    pub(crate) module: usize,
}

/// One kernel.
pub(crate) struct Body {
    name: &'static str,
    /// Sizes of the parameters it expects; with another layout it is another kernel.
    pub(crate) params: &'static [usize],
    pub(crate) run: fn(&Args<'_>, &Machine<'_>) -> Outcome,
    /// How many operations that is, for the modelled speed.
    pub(crate) operations: fn(&Args<'_>) -> f64,
}

/// The parameters' bytes, laid out as the entry says.
pub(crate) struct Args<'a>(pub(crate) &'a [u8]);

impl Args<'_> {
    fn bytes<const N: usize>(&self, offset: usize) -> [u8; N] {
        // The layout was checked before the launch, so the range is there.
        self.0[offset..offset + N].try_into().expect("the range is N long")
    }

    pub(crate) fn pointer(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(offset))
    }

    pub(crate) fn u32(&self, offset: usize) -> u32 {
        u32::from_ne_bytes(self.bytes(offset))
    }

    pub(crate) fn f32(&self, offset: usize) -> f32 {
        f32::from_ne_bytes(self.bytes(offset))
    }
}

impl Machine<'_> {
    /// Room for numbers out of the device's memory; more than that has cannot be there.
    pub(crate) fn room(&self, count: usize) -> Outcome<Vec<f32>> {
        let most = self.context.device.gpu.memory() as usize / size_of::<f32>();
        if count > most { Err(Status::ILLEGAL_ADDRESS) } else { Ok(vec![0.0; count]) }
    }

    /// The address of a variable of its module.
    pub(crate) fn variable(&self, name: &str) -> Outcome<u64> {
        let module = self.context.driver.modules.get(self.module)?;
        module.globals.get(name).map(|(at, _)| *at).ok_or(Status::NOT_FOUND)
    }

    /// A step of waiting; fails when the context ends.
    pub(crate) fn wait_a_little(&self, pause: &mut Pause) -> Outcome {
        if self.context.is_ending() {
            return Err(Status::CONTEXT_IS_DESTROYED);
        }
        pause.step();
        Ok(())
    }
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
