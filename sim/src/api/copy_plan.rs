//! From a copy as a call gives it to an operation: the kinds of its ends, the check that all of it is there, and when
//! the call may return.
//!
//! A copy from pageable host memory is staged before the call returns, one to pageable host memory is done
//! when it returns, one between pinned memory and the device is left to the stream. Addresses
//! that belong to nothing are `CUDA_ERROR_INVALID_VALUE` at the call.

use std::sync::Arc;

use super::abi::Memcpy3D;
use crate::engine::Way;
use crate::errors::{Outcome, Status};
use crate::exec::context::Context;
use crate::exec::op::{Copy, Op};
use crate::exec::stream::Stream;
use crate::exec::submit::{submit, submit_and_wait};
use crate::graph::capture;
use crate::memory::traffic::Place;
use crate::memory::view::View;

/// `CUmemorytype`
pub(super) const HOST: u32 = 1;
pub(super) const DEVICE: u32 = 2;
const ARRAY: u32 = 3;
pub(super) const UNIFIED: u32 = 4;

/// An address, as a copy sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Device,
    Pinned,
    Pageable,
}

/// One end of a copy, before it is known to be valid: its box of bytes begins at the address.
pub(super) struct End {
    pub(super) at: u64,
    /// `CUmemorytype`; unified means that the address tells.
    pub(super) kind: u32,
    pub(super) pitch: u64,
    pub(super) slice: u64,
}

impl End {
    pub(super) fn line(at: u64, kind: u32) -> End {
        End { at, kind, pitch: 0, slice: 0 }
    }

    /// Bytes from the first to past the last of the box.
    fn extent(&self, [width, height, depth]: [u64; 3]) -> Option<u64> {
        let rows = self.pitch.checked_mul(height - 1)?;
        self.slice.checked_mul(depth - 1)?.checked_add(rows)?.checked_add(width)
    }

    /// Finds out about the address, and checks that all of the box is there.
    fn check(&self, seen: &View<'_>, extent: [u64; 3], write: bool) -> Outcome<Side> {
        let bytes = self.extent(extent).ok_or(Status::INVALID_VALUE)?;
        let table = seen.look();
        let pinned = table.host(self.at).is_some();
        let device = table.mapping(self.at).is_some() || table.reservation(self.at).is_some();
        match self.kind {
            ARRAY => Err(Status::INVALID_HANDLE),
            DEVICE if !device && !pinned => Err(Status::INVALID_VALUE),
            HOST | DEVICE | UNIFIED if self.at == 0 => Err(Status::INVALID_VALUE),
            HOST | DEVICE | UNIFIED if device => {
                let whole = table.is_whole(seen, self.at, bytes, write);
                if whole { Ok(Side::Device) } else { Err(Status::INVALID_VALUE) }
            }
            HOST | DEVICE | UNIFIED if pinned => {
                // Pinned only in part is pageable as far as the host is concerned.
                match table.is_whole(seen, self.at, bytes, write) {
                    true => Ok(Side::Pinned),
                    false if self.kind == DEVICE => Err(Status::INVALID_VALUE),
                    false => Ok(Side::Pageable),
                }
            }
            HOST | UNIFIED => Ok(Side::Pageable),
            _ => Err(Status::INVALID_VALUE),
        }
    }
}

/// When a call returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// When the copy is done as far as the host can tell.
    Done,
    /// When it is submitted.
    Submitted,
}

/// Checks a copy and makes it an operation. `None`: there is nothing to copy.
pub(super) fn prepare(seen: &View<'_>, dst: &End, src: &End, extent: [u64; 3]) -> Outcome<Option<(Copy, Side, Side)>> {
    if extent.contains(&0) {
        return Ok(None);
    }
    let to = dst.check(seen, extent, true)?;
    let from = src.check(seen, extent, false)?;
    let place = |end: &End, side| match side {
        Side::Pageable => Place::Host(end.at),
        _ => Place::Device(end.at),
    };
    let way = match (to, from) {
        (Side::Device, Side::Device) => Way::Within,
        (Side::Device, _) => Way::ToDevice,
        (_, Side::Device) => Way::ToHost,
        _ => Way::Within,
    };
    let mut copy = Copy::line(place(dst, to), place(src, from), extent[0], way);
    copy.height = extent[1];
    copy.depth = extent[2];
    (copy.dst_pitch, copy.dst_slice) = (dst.pitch, dst.slice);
    (copy.src_pitch, copy.src_slice) = (src.pitch, src.slice);
    if copy.height == 1 && copy.depth == 1 {
        (copy.dst_pitch, copy.src_pitch) = (copy.width, copy.width);
    }
    Ok(Some((copy, to, from)))
}

/// Submits a copy so that it is done by the time the call may return.
pub(super) fn run(stream: &Arc<Stream>, dst: &End, src: &End, extent: [u64; 3], when: When) -> Outcome {
    run_between(stream, None, dst, src, extent, when)
}

/// The same between these GPUs, the target's and the source's.
pub(super) fn run_between(
    stream: &Arc<Stream>,
    between: Option<[usize; 2]>,
    dst: &End,
    src: &End,
    extent: [u64; 3],
    when: When,
) -> Outcome {
    let context = Context::of(stream)?;
    let seen = context.copies_view(between);
    if when == When::Done {
        capture::forbid(stream)?;
        capture::check_legacy(stream)?;
    }
    let Some((mut copy, to, from)) = prepare(&seen, dst, src, extent)? else { return Ok(()) };
    copy.between = between;
    // In a graph nothing is staged: the copy reads and writes what is there at the launch.
    let captured = capture::tail(stream)?.is_some();
    let waits = match (when, to) {
        _ if captured => false,
        (_, Side::Pageable) => true,
        // The host does not wait for what stays on the device, unless it was told to.
        (When::Done, Side::Device) => {
            from != Side::Device || [dst, src].iter().any(|end| seen.look().is_synchronous(end.at))
        }
        (When::Done, Side::Pinned) => true,
        (When::Submitted, _) => false,
    };
    if waits {
        return submit_and_wait(stream, Op::Copy(copy));
    }
    if from == Side::Pageable && !captured {
        stage(&seen, &mut copy)?;
    }
    submit(stream, Op::Copy(copy)).map(drop)
}

/// Copies the source into the operation, so that the program may change it at once.
pub(super) fn stage(seen: &View<'_>, copy: &mut Copy) -> Outcome {
    let Place::Host(start) = copy.src else { return Ok(()) };
    let mut staged = Vec::with_capacity(copy.bytes() as usize);
    for slice in 0..copy.depth {
        for row in 0..copy.height {
            let at = start + slice * copy.src_slice + row * copy.src_pitch;
            staged.extend(seen.host_bytes(at, copy.width as usize));
        }
    }
    copy.src = Place::Staged(Arc::new(staged), 0);
    copy.src_pitch = copy.width;
    copy.src_slice = copy.width * copy.height;
    Ok(())
}

/// The two ends and the extent of a 3D copy.
pub(super) fn ends(copy: &Memcpy3D) -> Outcome<(End, End, [u64; 3])> {
    let wrong = Status::INVALID_VALUE;
    let base = |kind, host: usize, device| match kind {
        HOST => host as u64,
        _ => device,
    };
    let end = |kind, base: u64, [x, y, z]: [usize; 3], pitch: usize, height: usize| {
        // A pitch that is not given is that of rows side by side.
        let pitch = if pitch == 0 { copy.width } else { pitch };
        let height = if height == 0 { copy.height } else { height };
        if pitch < copy.width || (copy.depth > 1 && height < copy.height) {
            return Err(wrong);
        }
        let slice = pitch.checked_mul(height).ok_or(wrong)?;
        let offset = z.checked_mul(slice).zip(y.checked_mul(pitch));
        let offset = offset.and_then(|(z, y)| z.checked_add(y)?.checked_add(x)).ok_or(wrong)?;
        let at = base.checked_add(offset as u64).ok_or(wrong)?;
        Ok(End { at, kind, pitch: pitch as u64, slice: slice as u64 })
    };
    let dst_base = base(copy.dst_type, copy.dst_host, copy.dst_device);
    let src_base = base(copy.src_type, copy.src_host, copy.src_device);
    let dst_at = [copy.dst_x, copy.dst_y, copy.dst_z];
    let src_at = [copy.src_x, copy.src_y, copy.src_z];
    let dst = end(copy.dst_type, dst_base, dst_at, copy.dst_pitch, copy.dst_height)?;
    let src = end(copy.src_type, src_base, src_at, copy.src_pitch, copy.src_height)?;
    Ok((dst, src, [copy.width as u64, copy.height as u64, copy.depth as u64]))
}

/// The operation of a 3D copy as a graph's node has it.
pub(super) fn node(seen: &View<'_>, copy: &Memcpy3D) -> Outcome<Copy> {
    let (dst, src, extent) = ends(copy)?;
    let prepared = prepare(seen, &dst, &src, extent)?;
    // The driver does not take a node that copies nothing.
    prepared.map(|(copy, _, _)| copy).ok_or(Status::INVALID_VALUE)
}
