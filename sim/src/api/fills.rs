//! `cuMemset*`.

use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::context::Context;
use crate::exec::op::{Fill, Op};
use crate::exec::submit::{self, Default, submit, submit_and_wait};
use crate::graph::capture;
use crate::memory::view::View;

doors! {
    old cuMemsetD8: "cuMemsetD8" 2000 (dst: u32, value: u8, count: u32) = old_d8;
    old cuMemsetD16: "cuMemsetD16" 2000 (dst: u32, value: u16, count: u32) = old_d16;
    old cuMemsetD32: "cuMemsetD32" 2000 (dst: u32, value: u32, count: u32) = old_d32;
    old cuMemsetD2D8: "cuMemsetD2D8" 2000 (dst: u32, pitch: u32, value: u8, width: u32, height: u32) = old_2d8;
    old cuMemsetD2D16: "cuMemsetD2D16" 2000 (dst: u32, pitch: u32, value: u16, width: u32, height: u32) = old_2d16;
    old cuMemsetD2D32: "cuMemsetD2D32" 2000 (dst: u32, pitch: u32, value: u32, width: u32, height: u32) = old_2d32;
    cuMemsetD8_v2 / cuMemsetD8_v2_ptds: "cuMemsetD8" 3020 / 7000 (dst: u64, value: u8, count: usize) = d8;
    cuMemsetD16_v2 / cuMemsetD16_v2_ptds: "cuMemsetD16" 3020 / 7000 (dst: u64, value: u16, count: usize) = d16;
    cuMemsetD32_v2 / cuMemsetD32_v2_ptds: "cuMemsetD32" 3020 / 7000 (dst: u64, value: u32, count: usize) = d32;
    cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds: "cuMemsetD2D8" 3020 / 7000
        (dst: u64, pitch: usize, value: u8, width: usize, height: usize) = d2d8;
    cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds: "cuMemsetD2D16" 3020 / 7000
        (dst: u64, pitch: usize, value: u16, width: usize, height: usize) = d2d16;
    cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds: "cuMemsetD2D32" 3020 / 7000
        (dst: u64, pitch: usize, value: u32, width: usize, height: usize) = d2d32;
    cuMemsetD8Async / cuMemsetD8Async_ptsz: "cuMemsetD8Async" 3020 / 7000
        (dst: u64, value: u8, count: usize, stream: usize) = d8_async;
    cuMemsetD16Async / cuMemsetD16Async_ptsz: "cuMemsetD16Async" 3020 / 7000
        (dst: u64, value: u16, count: usize, stream: usize) = d16_async;
    cuMemsetD32Async / cuMemsetD32Async_ptsz: "cuMemsetD32Async" 3020 / 7000
        (dst: u64, value: u32, count: usize, stream: usize) = d32_async;
    cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz: "cuMemsetD2D8Async" 3020 / 7000
        (dst: u64, pitch: usize, value: u8, width: usize, height: usize, stream: usize) = d2d8_async;
    cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz: "cuMemsetD2D16Async" 3020 / 7000
        (dst: u64, pitch: usize, value: u16, width: usize, height: usize, stream: usize) = d2d16_async;
    cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz: "cuMemsetD2D32Async" 3020 / 7000
        (dst: u64, pitch: usize, value: u32, width: usize, height: usize, stream: usize) = d2d32_async;
}

/// A fill as a call gives it.
struct Request {
    dst: u64,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

/// Checks a fill and makes it an operation. `None`: there is nothing to fill.
pub(super) fn prepare(seen: &View<'_>, fill: Fill) -> Outcome<Option<Fill>> {
    let element = u64::from(fill.element);
    if !matches!(element, 1 | 2 | 4) || !fill.dst.is_multiple_of(element) {
        return Err(Status::INVALID_VALUE);
    }
    if fill.width == 0 || fill.height == 0 {
        return Ok(None);
    }
    let row = fill.width.checked_mul(element).ok_or(Status::INVALID_VALUE)?;
    if fill.height > 1 && (fill.pitch < row || !fill.pitch.is_multiple_of(element)) {
        return Err(Status::INVALID_VALUE);
    }
    let bytes = (fill.height - 1).checked_mul(fill.pitch).and_then(|rows| rows.checked_add(row));
    if !seen.look().is_whole(seen, fill.dst, bytes.ok_or(Status::INVALID_VALUE)?, true) {
        return Err(Status::INVALID_VALUE);
    }
    Ok(Some(fill))
}

fn run(default: Default, stream: Option<usize>, request: Request) -> Outcome {
    let is_call = stream.is_none();
    let stream = submit::resolve(default, stream.unwrap_or(0))?;
    if is_call {
        capture::forbid(&stream)?;
    }
    let fill = Fill {
        dst: request.dst,
        pitch: request.pitch as u64,
        value: request.value,
        element: request.element,
        width: request.width as u64,
        height: request.height as u64,
    };
    let context = Context::of(&stream)?;
    let seen = context.view();
    let Some(fill) = prepare(&seen, fill)? else { return Ok(()) };
    // Also without a stream the host does not wait for it, unless it was told to.
    let waits = is_call && seen.look().is_synchronous(request.dst);
    if waits { submit_and_wait(&stream, Op::Fill(fill)) } else { submit(&stream, Op::Fill(fill)).map(drop) }
}

macro_rules! fills {
    ($($old:ident $old_2d:ident $call:ident $call_2d:ident $async_call:ident $async_2d:ident: $type:ty;)*) => {$(
        fn $old(dst: u32, value: $type, count: u32) -> Outcome {
            $call(Default::Legacy, dst.into(), value, count as usize)
        }

        fn $old_2d(dst: u32, pitch: u32, value: $type, width: u32, height: u32) -> Outcome {
            let (width, height) = (width as usize, height as usize);
            $call_2d(Default::Legacy, dst.into(), pitch as usize, value, width, height)
        }

        fn $call(default: Default, dst: u64, value: $type, count: usize) -> Outcome {
            run(default, None, row(dst, value.into(), size_of::<$type>(), count))
        }

        fn $async_call(default: Default, dst: u64, value: $type, count: usize, stream: usize) -> Outcome {
            run(default, Some(stream), row(dst, value.into(), size_of::<$type>(), count))
        }

        fn $call_2d(
            default: Default,
            dst: u64,
            pitch: usize,
            value: $type,
            width: usize,
            height: usize,
        ) -> Outcome {
            let one = row(dst, value.into(), size_of::<$type>(), width);
            run(default, None, Request { pitch, height, ..one })
        }

        fn $async_2d(
            default: Default,
            dst: u64,
            pitch: usize,
            value: $type,
            width: usize,
            height: usize,
            stream: usize,
        ) -> Outcome {
            let one = row(dst, value.into(), size_of::<$type>(), width);
            run(default, Some(stream), Request { pitch, height, ..one })
        }
    )*};
}

fills! {
    old_d8 old_2d8 d8 d2d8 d8_async d2d8_async: u8;
    old_d16 old_2d16 d16 d2d16 d16_async d2d16_async: u16;
    old_d32 old_2d32 d32 d2d32 d32_async d2d32_async: u32;
}

fn row(dst: u64, value: u32, element: usize, width: usize) -> Request {
    Request { dst, pitch: 0, value, element: element as u32, width, height: 1 }
}
