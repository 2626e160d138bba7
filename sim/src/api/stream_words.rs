//! `cuStreamWaitValue*`, `cuStreamWriteValue*`, `cuStreamBatchMemOp`: streams that wait for and write words.

use super::abi::BatchMemOp;
use crate::border::List;
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::context::Context;
use crate::exec::op::{Condition, Op, WordOp};
use crate::exec::submit::{self, Default, submit};
use crate::memory::view::View;
use crate::pool::Pool;

doors! {
    cuStreamWaitValue32 / cuStreamWaitValue32_ptsz: "cuStreamWaitValue32" 8000 / 8000
        (stream: usize, address: u64, value: u32, flags: u32) = old;
    cuStreamWaitValue32_v2 / cuStreamWaitValue32_v2_ptsz: "cuStreamWaitValue32" 11070 / 11070
        (stream: usize, address: u64, value: u32, flags: u32) = wait32;
    cuStreamWaitValue64 / cuStreamWaitValue64_ptsz: "cuStreamWaitValue64" 9000 / 9000
        (stream: usize, address: u64, value: u64, flags: u32) = old_wide;
    cuStreamWaitValue64_v2 / cuStreamWaitValue64_v2_ptsz: "cuStreamWaitValue64" 11070 / 11070
        (stream: usize, address: u64, value: u64, flags: u32) = wait64;
    cuStreamWriteValue32 / cuStreamWriteValue32_ptsz: "cuStreamWriteValue32" 8000 / 8000
        (stream: usize, address: u64, value: u32, flags: u32) = old;
    cuStreamWriteValue32_v2 / cuStreamWriteValue32_v2_ptsz: "cuStreamWriteValue32" 11070 / 11070
        (stream: usize, address: u64, value: u32, flags: u32) = write32;
    cuStreamWriteValue64 / cuStreamWriteValue64_ptsz: "cuStreamWriteValue64" 9000 / 9000
        (stream: usize, address: u64, value: u64, flags: u32) = old_wide;
    cuStreamWriteValue64_v2 / cuStreamWriteValue64_v2_ptsz: "cuStreamWriteValue64" 11070 / 11070
        (stream: usize, address: u64, value: u64, flags: u32) = write64;
    cuStreamBatchMemOp / cuStreamBatchMemOp_ptsz: "cuStreamBatchMemOp" 8000 / 8000
        (stream: usize, count: u32, ops: List<BatchMemOp>, flags: u32) = old_batch;
    cuStreamBatchMemOp_v2 / cuStreamBatchMemOp_v2_ptsz: "cuStreamBatchMemOp" 11070 / 11070
        (stream: usize, count: u32, ops: List<BatchMemOp>, flags: u32) = batch;
}

/// `CUstreamBatchMemOpType`
const WAIT_32: u32 = 1;
const WRITE_32: u32 = 2;
const FLUSH: u32 = 3;
const WAIT_64: u32 = 4;
const WRITE_64: u32 = 5;
const BARRIER: u32 = 6;

/// Asks for what other devices wrote to be seen, which it always is.
const WAIT_FLUSH: u32 = 1 << 30;
const MOST_OPS: u32 = 256;

fn wait_op(seen: &View<'_>, address: u64, value: u64, flags: u32, wide: bool) -> Outcome<WordOp> {
    let condition = match flags & !WAIT_FLUSH {
        0 => Condition::AtLeast,
        1 => Condition::Equal,
        2 => Condition::AnyBit,
        3 => Condition::NotAllBits,
        _ => return Err(Status::INVALID_VALUE),
    };
    check(seen, address, wide, false)?;
    Ok(WordOp { address, value, wide, wait: Some(condition) })
}

fn write_op(seen: &View<'_>, address: u64, value: u64, flags: u32, wide: bool) -> Outcome<WordOp> {
    // The flag for a write without a barrier is one of the calls of old.
    if flags != 0 {
        return Err(Status::INVALID_VALUE);
    }
    check(seen, address, wide, true)?;
    Ok(WordOp { address, value, wide, wait: None })
}

fn check(seen: &View<'_>, address: u64, wide: bool, write: bool) -> Outcome {
    let bytes = if wide { 8 } else { 4 };
    let table = seen.look();
    // The driver takes no word of a pool's memory (measured, but not for pools that processes share).
    let lent = table.allocations.find(address).and_then(|(_, allocation)| allocation.lent.as_ref());
    let is_pooled = lent.and_then(Pool::of).is_some_and(|pool| !pool.can_be_shared());
    let valid = address.is_multiple_of(bytes) && !is_pooled && table.is_whole(seen, address, bytes, write);
    if valid { Ok(()) } else { Err(Status::INVALID_VALUE) }
}

/// The words of a list of operations; fences among them need nothing here, where writes are in order.
pub(super) fn words(seen: &View<'_>, ops: &[BatchMemOp]) -> Outcome<Vec<WordOp>> {
    let mut words = Vec::new();
    for op in ops {
        match op.operation {
            WAIT_32 | WAIT_64 => {
                let wide = op.operation == WAIT_64;
                words.push(wait_op(seen, op.address, op.value, op.flags, wide)?);
            }
            WRITE_32 | WRITE_64 => {
                let wide = op.operation == WRITE_64;
                words.push(write_op(seen, op.address, op.value, op.flags, wide)?);
            }
            FLUSH | BARRIER => {}
            _ => return Err(Status::INVALID_VALUE),
        }
    }
    Ok(words)
}

fn one(default: Default, stream: usize, make: impl FnOnce(&View<'_>) -> Outcome<WordOp>) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    let word = make(&Context::of(&stream)?.view())?;
    submit(&stream, Op::Words(vec![word])).map(drop)
}

fn wait32(default: Default, stream: usize, address: u64, value: u32, flags: u32) -> Outcome {
    one(default, stream, |seen| wait_op(seen, address, value.into(), flags, false))
}

fn wait64(default: Default, stream: usize, address: u64, value: u64, flags: u32) -> Outcome {
    one(default, stream, |seen| wait_op(seen, address, value, flags, true))
}

fn write32(default: Default, stream: usize, address: u64, value: u32, flags: u32) -> Outcome {
    one(default, stream, |seen| write_op(seen, address, value.into(), flags, false))
}

fn write64(default: Default, stream: usize, address: u64, value: u64, flags: u32) -> Outcome {
    one(default, stream, |seen| write_op(seen, address, value, flags, true))
}

/// The driver has kept the calls of before CUDA 11.7 but does not serve them, and attributes 92 to 94 say so.
fn not_served(default: Default, stream: usize, count: u32) -> Outcome {
    submit::resolve(default, stream)?;
    if count > MOST_OPS { Err(Status::INVALID_VALUE) } else { Err(Status::NOT_SUPPORTED) }
}

fn old(default: Default, stream: usize, _address: u64, _value: u32, _flags: u32) -> Outcome {
    not_served(default, stream, 1)
}

fn old_wide(default: Default, stream: usize, _address: u64, _value: u64, _flags: u32) -> Outcome {
    not_served(default, stream, 1)
}

fn old_batch(default: Default, stream: usize, count: u32, _ops: List<BatchMemOp>, _flags: u32) -> Outcome {
    not_served(default, stream, count)
}

fn batch(default: Default, stream: usize, count: u32, ops: List<BatchMemOp>, flags: u32) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    if count > MOST_OPS || flags != 0 {
        return Err(Status::INVALID_VALUE);
    }
    let ops = ops.read(count as usize)?;
    let words = words(&Context::of(&stream)?.view(), &ops)?;
    submit(&stream, Op::Words(words)).map(drop)
}
