//! `cuMemcpy*`, the calls with 64-bit addresses. `copy_plan.rs` does the work.

use std::sync::Arc;

use super::abi::{BatchOp3D, Memcpy2D, Memcpy3D, MemcpyAttributes, Operand3D};
use super::arguments::{current, not_legacy, only_flags};
use super::copy_plan::{DEVICE, End, HOST, Side, UNIFIED, When, ends, prepare, run, run_between, stage};
use crate::border::{In, List, Out};
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::context::Context;
use crate::exec::op::Op;
use crate::exec::stream::Stream;
use crate::exec::submit::{self, Default, submit};
use crate::graph::capture;
use crate::memory::view::View;

doors! {
    cuMemcpy / cuMemcpy_ptds: "cuMemcpy" 4000 / 7000 (dst: u64, src: u64, bytes: usize) = plain;
    cuMemcpyAsync / cuMemcpyAsync_ptsz: "cuMemcpyAsync" 4000 / 7000
        (dst: u64, src: u64, bytes: usize, stream: usize) = plain_async;
    cuMemcpyPeer / cuMemcpyPeer_ptds: "cuMemcpyPeer" 4000 / 7000
        (dst: u64, to: usize, src: u64, from: usize, bytes: usize) = peer;
    cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz: "cuMemcpyPeerAsync" 4000 / 7000
        (dst: u64, to: usize, src: u64, from: usize, bytes: usize, stream: usize) = peer_async;
    cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds: "cuMemcpyHtoD" 3020 / 7000
        (dst: u64, src: usize, bytes: usize) = to_device;
    cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds: "cuMemcpyDtoH" 3020 / 7000
        (dst: usize, src: u64, bytes: usize) = to_host;
    cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds: "cuMemcpyDtoD" 3020 / 7000
        (dst: u64, src: u64, bytes: usize) = on_device;
    cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz: "cuMemcpyHtoDAsync" 3020 / 7000
        (dst: u64, src: usize, bytes: usize, stream: usize) = to_device_async;
    cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz: "cuMemcpyDtoHAsync" 3020 / 7000
        (dst: usize, src: u64, bytes: usize, stream: usize) = to_host_async;
    cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz: "cuMemcpyDtoDAsync" 3020 / 7000
        (dst: u64, src: u64, bytes: usize, stream: usize) = on_device_async;
    cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds: "cuMemcpy2D" 3020 / 7000 (copy: In<Memcpy2D>) = flat;
    cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds: "cuMemcpy2DUnaligned" 3020 / 7000
        (copy: In<Memcpy2D>) = flat;
    cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz: "cuMemcpy2DAsync" 3020 / 7000
        (copy: In<Memcpy2D>, stream: usize) = flat_async;
    cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds: "cuMemcpy3D" 3020 / 7000 (copy: In<Memcpy3D>) = solid;
    cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz: "cuMemcpy3DAsync" 3020 / 7000
        (copy: In<Memcpy3D>, stream: usize) = solid_async;
    cuMemcpy3DPeer / cuMemcpy3DPeer_ptds: "cuMemcpy3DPeer" 4000 / 7000 (copy: In<Memcpy3D>) = solid_peer;
    cuMemcpy3DPeerAsync / cuMemcpy3DPeerAsync_ptsz: "cuMemcpy3DPeerAsync" 4000 / 7000
        (copy: In<Memcpy3D>, stream: usize) = solid_peer_async;
    cuMemcpyBatchAsync / cuMemcpyBatchAsync_ptsz: "cuMemcpyBatchAsync" 12080 / 12080
        (dsts: List<u64>, srcs: List<u64>, sizes: List<usize>, count: usize,
         attributes: List<MemcpyAttributes>, indices: List<usize>, attribute_count: usize,
         failed: Out<usize>, stream: usize)
        = batch_old after none_failed(failed, stream);
    cuMemcpyBatchAsync_v2 / cuMemcpyBatchAsync_v2_ptsz: "cuMemcpyBatchAsync" 13000 / 13000
        (dsts: List<u64>, srcs: List<u64>, sizes: List<usize>, count: usize,
         attributes: List<MemcpyAttributes>, indices: List<usize>, attribute_count: usize,
         stream: usize)
        = batch after has_stream(stream);
    cuMemcpy3DBatchAsync / cuMemcpy3DBatchAsync_ptsz: "cuMemcpy3DBatchAsync" 12080 / 12080
        (count: usize, ops: List<BatchOp3D>, failed: Out<usize>, flags: u64, stream: usize)
        = batch_solid_old after none_failed(failed, stream);
    cuMemcpy3DBatchAsync_v2 / cuMemcpy3DBatchAsync_v2_ptsz: "cuMemcpy3DBatchAsync" 13000 / 13000
        (count: usize, ops: List<BatchOp3D>, flags: u64, stream: usize)
        = batch_solid after has_stream(stream);
    cuMemcpyWithAttributesAsync / cuMemcpyWithAttributesAsync_ptsz: "cuMemcpyWithAttributesAsync" 13020 / 13020
        (dst: u64, src: u64, bytes: usize, attributes: In<MemcpyAttributes>, stream: usize) = with_attributes;
    cuMemcpy3DWithAttributesAsync / cuMemcpy3DWithAttributesAsync_ptsz: "cuMemcpy3DWithAttributesAsync" 13020 / 13020
        (op: In<BatchOp3D>, flags: u64, stream: usize) = solid_with_attributes;
}

fn line(bytes: usize) -> [u64; 3] {
    [bytes as u64, 1, 1]
}

fn copy_line(default: Default, stream: usize, dst: (u64, u32), src: (u64, u32), bytes: usize, when: When) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    run(&stream, &End::line(dst.0, dst.1), &End::line(src.0, src.1), line(bytes), when)
}

fn plain(default: Default, dst: u64, src: u64, bytes: usize) -> Outcome {
    copy_line(default, 0, (dst, UNIFIED), (src, UNIFIED), bytes, When::Done)
}

fn plain_async(default: Default, dst: u64, src: u64, bytes: usize, stream: usize) -> Outcome {
    copy_line(default, stream, (dst, UNIFIED), (src, UNIFIED), bytes, When::Submitted)
}

fn find_contexts(contexts: [usize; 2]) -> Outcome<[Arc<Context>; 2]> {
    let (_, driver) = current()?;
    let [one, two] = contexts.map(|context| driver.contexts.get(context).map_err(|_| Status::INVALID_CONTEXT));
    Ok([one?, two?])
}

/// Puts a copy in the order of all streams of the contexts that it is between.
fn in_order(stream: &Arc<Stream>, contexts: [Arc<Context>; 2], copy: impl FnOnce() -> Outcome) -> Outcome {
    let before = contexts.iter().flat_map(|context| context.everything()).collect();
    submit::enqueue(stream, before, Op::Empty)?;
    copy()?;
    contexts.iter().for_each(|context| context.put_ahead(stream.last()));
    Ok(())
}

fn peer(default: Default, dst: u64, to: usize, src: u64, from: usize, bytes: usize) -> Outcome {
    let contexts = find_contexts([to, from])?;
    let stream = submit::resolve(default, 0)?;
    let between = Some(contexts.each_ref().map(|context| context.device.ordinal()));
    let (to, from) = (End::line(dst, DEVICE), End::line(src, DEVICE));
    let copy = || run_between(&stream, between, &to, &from, line(bytes), When::Done);
    // While it captures, the call is refused as others are.
    if capture::lock(&stream).is_some() { copy() } else { in_order(&stream, contexts, copy) }
}

fn peer_async(default: Default, dst: u64, to: usize, src: u64, from: usize, bytes: usize, stream: usize) -> Outcome {
    let between = find_contexts([to, from])?.map(|context| context.device.ordinal());
    let stream = submit::resolve(default, stream)?;
    let (to, from) = (End::line(dst, DEVICE), End::line(src, DEVICE));
    run_between(&stream, Some(between), &to, &from, line(bytes), When::Submitted)
}

pub(super) fn to_device(default: Default, dst: u64, src: usize, bytes: usize) -> Outcome {
    copy_line(default, 0, (dst, DEVICE), (src as u64, HOST), bytes, When::Done)
}

pub(super) fn to_host(default: Default, dst: usize, src: u64, bytes: usize) -> Outcome {
    copy_line(default, 0, (dst as u64, HOST), (src, DEVICE), bytes, When::Done)
}

pub(super) fn on_device(default: Default, dst: u64, src: u64, bytes: usize) -> Outcome {
    copy_line(default, 0, (dst, DEVICE), (src, DEVICE), bytes, When::Done)
}

pub(super) fn to_device_async(default: Default, dst: u64, src: usize, bytes: usize, stream: usize) -> Outcome {
    copy_line(default, stream, (dst, DEVICE), (src as u64, HOST), bytes, When::Submitted)
}

pub(super) fn to_host_async(default: Default, dst: usize, src: u64, bytes: usize, stream: usize) -> Outcome {
    copy_line(default, stream, (dst as u64, HOST), (src, DEVICE), bytes, When::Submitted)
}

pub(super) fn on_device_async(default: Default, dst: u64, src: u64, bytes: usize, stream: usize) -> Outcome {
    copy_line(default, stream, (dst, DEVICE), (src, DEVICE), bytes, When::Submitted)
}

/// The same copy as a 3D copy of one slice.
pub(super) fn deepen(copy: Memcpy2D) -> Memcpy3D {
    Memcpy3D {
        src_x: copy.src_x,
        src_y: copy.src_y,
        src_type: copy.src_type,
        src_host: copy.src_host,
        src_device: copy.src_device,
        src_array: copy.src_array,
        src_pitch: copy.src_pitch,
        dst_x: copy.dst_x,
        dst_y: copy.dst_y,
        dst_type: copy.dst_type,
        dst_host: copy.dst_host,
        dst_device: copy.dst_device,
        dst_array: copy.dst_array,
        dst_pitch: copy.dst_pitch,
        width: copy.width,
        height: copy.height,
        depth: 1,
        ..Memcpy3D::default()
    }
}

pub(super) fn copy_box(default: Default, stream: usize, copy: &Memcpy3D, wait: bool) -> Outcome {
    copy_box_between(default, stream, None, copy, wait)
}

fn copy_box_between(
    default: Default,
    stream: usize,
    between: Option<[usize; 2]>,
    copy: &Memcpy3D,
    wait: bool,
) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    let (dst, src, extent) = ends(copy)?;
    run_between(&stream, between, &dst, &src, extent, if wait { When::Done } else { When::Submitted })
}

fn flat(default: Default, copy: In<Memcpy2D>) -> Outcome {
    current()?;
    copy_box(default, 0, &deepen(copy.get()?), true)
}

fn flat_async(default: Default, copy: In<Memcpy2D>, stream: usize) -> Outcome {
    submit::need_context(stream)?;
    copy_box(default, stream, &deepen(copy.get()?), false)
}

fn solid(default: Default, copy: In<Memcpy3D>) -> Outcome {
    current()?;
    copy_box(default, 0, &copy.get()?, true)
}

fn solid_async(default: Default, copy: In<Memcpy3D>, stream: usize) -> Outcome {
    submit::need_context(stream)?;
    copy_box(default, stream, &copy.get()?, false)
}

fn solid_peer(default: Default, copy: In<Memcpy3D>) -> Outcome {
    current()?;
    let copy = copy.get()?;
    let contexts = find_contexts([copy.dst_context, copy.src_context])?;
    let stream = submit::resolve(default, 0)?;
    let between = Some(contexts.each_ref().map(|context| context.device.ordinal()));
    let submitted = || copy_box_between(default, 0, between, &copy, true);
    if capture::lock(&stream).is_some() { submitted() } else { in_order(&stream, contexts, submitted) }
}

fn solid_peer_async(default: Default, copy: In<Memcpy3D>, stream: usize) -> Outcome {
    current()?;
    let copy = copy.get()?;
    let between = find_contexts([copy.dst_context, copy.src_context])?.map(|context| context.device.ordinal());
    copy_box_between(default, stream, Some(between), &copy, false)
}

/// `CUmemcpySrcAccessOrder`
const ORDERS: std::ops::RangeInclusive<u32> = 1..=3;

fn check_order(order: u32) -> Outcome {
    if ORDERS.contains(&order) { Ok(()) } else { Err(Status::INVALID_VALUE) }
}

/// The calls of CUDA 13 take no default stream by the name 0, the ones of before only the thread's own.
fn has_stream(default: Default, stream: usize) -> Outcome {
    if stream == 0 { Err(Status::INVALID_VALUE) } else { not_legacy(default, stream) }
}

/// Answers that no single copy is wrong, before anything is found to be; a stream 0 that is refused
/// leaves even that place alone.
fn none_failed(default: Default, failed: Out<usize>, stream: usize) -> Outcome {
    if stream == 0 {
        not_legacy(default, stream)?;
    }
    failed.offer(usize::MAX);
    not_legacy(default, stream)
}

#[allow(clippy::too_many_arguments)]
fn batch_old(
    default: Default,
    dsts: List<u64>,
    srcs: List<u64>,
    sizes: List<usize>,
    count: usize,
    attributes: List<MemcpyAttributes>,
    indices: List<usize>,
    attribute_count: usize,
    failed: Out<usize>,
    stream: usize,
) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    let attributes = attributes.read(attribute_count)?;
    let indices = indices.read(attribute_count)?;
    attributes.iter().try_for_each(|attribute| check_order(attribute.order))?;
    if count == 0 || attribute_count == 0 || indices.first() != Some(&0) {
        return Err(Status::INVALID_VALUE);
    }
    let pairs = dsts.read(count)?.into_iter().zip(srcs.read(count)?).zip(sizes.read(count)?);
    let ends = pairs.map(|((dst, src), bytes)| Ok((End::line(dst, UNIFIED), End::line(src, UNIFIED), line(bytes))));
    run_batch(&stream, ends, failed)
}

#[allow(clippy::too_many_arguments)]
fn batch(
    default: Default,
    dsts: List<u64>,
    srcs: List<u64>,
    sizes: List<usize>,
    count: usize,
    attributes: List<MemcpyAttributes>,
    indices: List<usize>,
    attribute_count: usize,
    stream: usize,
) -> Outcome {
    batch_old(default, dsts, srcs, sizes, count, attributes, indices, attribute_count, Out::nowhere(), stream)
}

fn batch_solid_old(
    default: Default,
    count: usize,
    ops: List<BatchOp3D>,
    failed: Out<usize>,
    flags: u64,
    stream: usize,
) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    if count == 0 || flags != 0 {
        return Err(Status::INVALID_VALUE);
    }
    run_batch(&stream, ops.read(count)?.iter().map(solid_ends), failed)
}

/// Where a box of a batch goes and comes from, and its size.
fn solid_ends(op: &BatchOp3D) -> Outcome<(End, End, [u64; 3])> {
    check_order(op.order)?;
    let extent = op.extent.map(|size| size as u64);
    Ok((operand(&op.dst, extent)?, operand(&op.src, extent)?, extent))
}

fn batch_solid(default: Default, count: usize, ops: List<BatchOp3D>, flags: u64, stream: usize) -> Outcome {
    batch_solid_old(default, count, ops, Out::nowhere(), flags, stream)
}

/// Unlike the batches, a single copy goes into any stream.
fn with_attributes(
    default: Default,
    dst: u64,
    src: u64,
    bytes: usize,
    attributes: In<MemcpyAttributes>,
    stream: usize,
) -> Outcome {
    submit::need_context(stream)?;
    check_order(attributes.get()?.order)?;
    plain_async(default, dst, src, bytes, stream)
}

fn solid_with_attributes(default: Default, op: In<BatchOp3D>, flags: u64, stream: usize) -> Outcome {
    submit::need_context(stream)?;
    only_flags(flags, 0)?;
    let (dst, src, extent) = solid_ends(&op.get()?)?;
    run(&submit::resolve(default, stream)?, &dst, &src, extent, When::Submitted)
}

fn operand(operand: &Operand3D, [width, height, _]: [u64; 3]) -> Outcome<End> {
    // `CUmemcpy3DOperandType`
    const POINTER: u32 = 1;
    const ARRAY: u32 = 2;
    match operand.kind {
        POINTER => {}
        ARRAY => return Err(Status::NOT_SUPPORTED),
        _ => return Err(Status::INVALID_VALUE),
    }
    let pitch = if operand.row == 0 { width } else { operand.row as u64 };
    let rows = if operand.layer == 0 { height } else { operand.layer as u64 };
    let slice = pitch.checked_mul(rows).ok_or(Status::INVALID_VALUE)?;
    Ok(End { at: operand.pointer, kind: UNIFIED, pitch, slice })
}

/// Submits the copies as one, up to the first that is wrong: that one's index is told.
fn run_batch(
    stream: &Arc<Stream>,
    ends: impl Iterator<Item = Outcome<(End, End, [u64; 3])>>,
    failed: Out<usize>,
) -> Outcome {
    let context = Context::of(stream)?;
    let seen = context.copies_view(None);
    let captured = capture::tail(stream)?.is_some();
    let mut ops = Vec::new();
    let outcome = ends.enumerate().try_for_each(|(index, end)| {
        let op = end.and_then(|(dst, src, extent)| batched(&seen, &dst, &src, extent, captured));
        ops.extend(op.inspect_err(|_| failed.offer(index))?);
        Ok(())
    });
    if outcome.is_ok() || !ops.is_empty() {
        submit(stream, Op::Batch(Arc::new(ops)))?;
    }
    outcome
}

/// One copy of a batch. `None`: there is nothing to copy.
fn batched(seen: &View<'_>, dst: &End, src: &End, extent: [u64; 3], captured: bool) -> Outcome<Option<Op>> {
    let Some((mut copy, _, from)) = prepare(seen, dst, src, extent)? else { return Ok(None) };
    if from == Side::Pageable && !captured {
        stage(seen, &mut copy)?;
    }
    Ok(Some(Op::Copy(copy)))
}
