//! Fills, of 8, 16 and 32 bit elements, in lines and in pitched rows, waiting and queued.

use std::fmt::Debug;

use crate::bench::{Handle, NO_STREAM, Stream, Subject, on};
use crate::piece::{NOWHERE, Piece, Place, SIZE};

/// A value that memory can be filled with.
pub(crate) trait Element: Copy + Debug {
    const VALUE: Self;
    fn bytes(self) -> Vec<u8>;
}

impl Element for u8 {
    const VALUE: Self = 0xa5;
    fn bytes(self) -> Vec<u8> {
        vec![self]
    }
}

impl Element for u16 {
    const VALUE: Self = 0xa51b;
    fn bytes(self) -> Vec<u8> {
        self.to_le_bytes().to_vec()
    }
}

impl Element for u32 {
    const VALUE: Self = 0xa51b_3cd7;
    fn bytes(self) -> Vec<u8> {
        self.to_le_bytes().to_vec()
    }
}

/// Rows to fill: `pitch` in bytes, `width` in elements.
#[derive(Clone, Copy)]
struct Rows {
    pitch: usize,
    width: usize,
    height: usize,
}

/// The contents of the target after a fill: unchanged if a part of it lies outside, or the call is a wrong one.
fn filled<T: Element>(target: &Piece, address: u64, rows: Rows) -> Vec<u8> {
    let value = T::VALUE.bytes();
    let mut after = target.before.clone();
    let row_bytes = rows.width * value.len();
    let aligned = address.is_multiple_of(value.len() as u64);
    for row in 0..rows.height {
        let span = target.span(address + (row * rows.pitch) as u64, row_bytes);
        match span.filter(|_| aligned && (rows.height < 2 || row_bytes <= rows.pitch)) {
            Some(span) => after[span].copy_from_slice(&value.repeat(rows.width)),
            None => return target.before.clone(),
        }
    }
    after
}

fn run<T: Element>(
    subject: &Subject,
    (case, at, rows): (&str, impl Fn(&Piece) -> u64, Rows),
    stream: Stream,
    fill: &impl Fn(u64, T, Rows, Handle) -> u32,
) {
    let target = Piece::target(subject.bench, Place::Device);
    let address = at(&target);
    let result = fill(address, T::VALUE, rows, stream.1);
    subject.say(format_args!("{case}{}", on(stream)), result, target.seen(&filled::<T>(&target, address, rows)));
}

/// The cases of one row of elements.
fn lines<T: Element>(subject: &Subject, streams: &[Stream], fill: impl Fn(u64, T, usize, Handle) -> u32) {
    let fill = |address, value, rows: Rows, stream| fill(address, value, rows.width, stream);
    let rows = |width| Rows { pitch: 0, width, height: 1 };
    let all = SIZE / size_of::<T>();
    for stream in streams {
        run::<T>(subject, ("all", |target: &Piece| target.at(0), rows(all)), *stream, &fill);
    }
    let stream = streams[0];
    run::<T>(subject, ("77 elements from the 12th byte", |target: &Piece| target.at(12), rows(77)), stream, &fill);
    run::<T>(subject, ("from the 3rd byte", |target: &Piece| target.at(3), rows(9)), stream, &fill);
    run::<T>(subject, ("one too many", |target: &Piece| target.at(0), rows(all + 1)), stream, &fill);
    run::<T>(subject, ("nothing", |target: &Piece| target.at(0), rows(0)), stream, &fill);
    run::<T>(subject, ("nothing at null", |_: &Piece| 0, rows(0)), stream, &fill);
    run::<T>(subject, ("at null", |_: &Piece| 0, rows(4)), stream, &fill);
    run::<T>(subject, ("nowhere", |_: &Piece| NOWHERE, rows(4)), stream, &fill);
}

/// The cases of pitched rows.
fn planes<T: Element>(
    subject: &Subject,
    streams: &[Stream],
    fill: impl Fn(u64, usize, T, usize, usize, Handle) -> u32,
) {
    let fill = |address, value, rows: Rows, stream| fill(address, rows.pitch, value, rows.width, rows.height, stream);
    let rows = |pitch, width, height| Rows { pitch, width, height };
    for stream in streams {
        run::<T>(subject, ("7 by 5", |target: &Piece| target.at(0), rows(64, 7, 5)), *stream, &fill);
    }
    let stream = streams[0];
    run::<T>(
        subject,
        ("rows that touch", |target: &Piece| target.at(8), rows(32, 32 / size_of::<T>(), 9)),
        stream,
        &fill,
    );
    run::<T>(subject, ("one row, pitch 0", |target: &Piece| target.at(0), rows(0, 7, 1)), stream, &fill);
    run::<T>(subject, ("pitch below width", |target: &Piece| target.at(0), rows(16, 32, 3)), stream, &fill);
    run::<T>(subject, ("from the 3rd byte", |target: &Piece| target.at(3), rows(64, 7, 5)), stream, &fill);
    run::<T>(subject, ("one row too many", |target: &Piece| target.at(0), rows(64, 7, 17)), stream, &fill);
    run::<T>(subject, ("no rows", |target: &Piece| target.at(0), rows(64, 7, 0)), stream, &fill);
    run::<T>(subject, ("no columns", |target: &Piece| target.at(0), rows(64, 0, 5)), stream, &fill);
    run::<T>(subject, ("at null", |_: &Piece| 0, rows(64, 7, 5)), stream, &fill);
    run::<T>(subject, ("nowhere", |_: &Piece| NOWHERE, rows(64, 7, 5)), stream, &fill);
}

/// `cuMemsetD8_v2` and its kind.
pub(crate) fn line<T: Element>(subject: &Subject, fill: extern "C" fn(u64, T, usize) -> u32) {
    lines(subject, &NO_STREAM, |address, value, count, _| fill(address, value, count));
}

/// `cuMemsetD8Async` and its kind.
pub(crate) fn line_async<T: Element>(subject: &Subject, fill: extern "C" fn(u64, T, usize, Handle) -> u32) {
    lines(subject, &subject.bench.streams(), |address, value, count, stream| fill(address, value, count, stream));
}

/// `cuMemsetD2D8_v2` and its kind.
pub(crate) fn plane<T: Element>(subject: &Subject, fill: extern "C" fn(u64, usize, T, usize, usize) -> u32) {
    planes(subject, &NO_STREAM, |address, pitch, value, width, height, _| fill(address, pitch, value, width, height));
}

/// `cuMemsetD2D8Async` and its kind.
pub(crate) fn plane_async<T: Element>(
    subject: &Subject,
    fill: extern "C" fn(u64, usize, T, usize, usize, Handle) -> u32,
) {
    planes(subject, &subject.bench.streams(), |address, pitch, value, width, height, stream| {
        fill(address, pitch, value, width, height, stream)
    });
}

/// `cuMemsetD8` of before CUDA 3.2 and its kind: 32-bit addresses reach no allocation of ours.
pub(crate) fn old_line<T: Element>(subject: &Subject, fill: extern "C" fn(u32, T, u32) -> u32) {
    for (case, address, count) in
        [("4 elements nowhere", NOWHERE as u32, 4), ("4 elements at null", 0, 4), ("nothing at null", 0, 0)]
    {
        subject.say(case, fill(address, T::VALUE, count), subject.bench.settle());
    }
}

/// `cuMemsetD2D8` of before CUDA 3.2 and its kind.
pub(crate) fn old_plane<T: Element>(subject: &Subject, fill: extern "C" fn(u32, u32, T, u32, u32) -> u32) {
    for (case, address, width) in
        [("4 by 2 nowhere", NOWHERE as u32, 4), ("4 by 2 at null", 0, 4), ("0 by 2 at null", 0, 0)]
    {
        subject.say(case, fill(address, 64, T::VALUE, width, 2), subject.bench.settle());
    }
}
