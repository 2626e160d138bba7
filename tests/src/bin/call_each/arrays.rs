//! Copies to and from arrays. A driver without arrays is called with a null one.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::null_mut;

use crate::bench::{Bench, Handle, NO_STREAM, Stream, Subject, on};
use crate::piece::{NOWHERE, Piece, Place, SIZE, noise, verdict};

use Place::{Device, Pageable, Pinned};

/// A one-dimensional array of [`SIZE`] bytes with known contents.
struct Array<'a> {
    bench: &'a Bench,
    handle: Handle,
    before: Vec<u8>,
}

/// `CUDA_ARRAY_DESCRIPTOR_v2`.
#[repr(C)]
struct Description {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

impl<'a> Array<'a> {
    fn new(bench: &'a Bench) -> Self {
        const UNSIGNED_INT8: u32 = 1;
        let description = Description { width: SIZE, height: 0, format: UNSIGNED_INT8, channels: 1 };
        let mut handle = null_mut();
        bench.note("cuArrayCreate_v2", bench.cuArrayCreate_v2(&mut handle, (&raw const description).cast()));
        let before = noise(3);
        if !handle.is_null() {
            bench.note("cuMemcpyHtoA_v2", bench.cuMemcpyHtoA_v2(handle, 0, before.as_ptr().cast(), SIZE));
            bench.note("cuCtxSynchronize", bench.cuCtxSynchronize());
        }
        Self { bench, handle, before }
    }

    /// Compares the array with what it should hold after `bytes` were copied to `offset`.
    fn seen(&self, offset: usize, bytes: Option<&[u8]>) -> String {
        let settled = self.bench.settle();
        let mut now = vec![0; SIZE];
        let result = self.bench.cuMemcpyAtoH_v2(now.as_mut_ptr().cast(), self.handle, 0, SIZE);
        if result != 0 {
            return format!("{settled}no array");
        }
        let mut meant = self.before.clone();
        if let Some(bytes) = bytes {
            meant[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        format!("{settled}{}", verdict(&now, &self.before, &meant))
    }
}

impl Drop for Array<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            self.bench.note("cuArrayDestroy", self.bench.cuArrayDestroy(self.handle));
        }
    }
}

/// An offset in the array and a number of bytes.
const PARTS: [(&str, usize, usize); 4] =
    [("all", 0, SIZE), ("77 bytes at an odd place", 5, 77), ("nothing", 0, 0), ("past the array's end", 1000, 100)];

fn inside(offset: usize, bytes: usize) -> Option<Range<usize>> {
    (offset + bytes <= SIZE).then_some(offset..offset + bytes)
}

/// Copies into an array; `copy` gets the array, the offset, the source's address, bytes, stream.
fn into(
    subject: &Subject,
    streams: &[Stream],
    from_place: Place,
    copy: impl Fn(Handle, usize, u64, usize, Handle) -> u32,
) {
    let run = |case: &str, offset, bytes, stream: Stream| {
        let array = Array::new(subject.bench);
        let from = Piece::source(subject.bench, from_place);
        let result = copy(array.handle, offset, from.at(0), bytes, stream.1);
        let meant = inside(offset, bytes).map(|_| &from.before[..bytes]);
        subject.say(format_args!("{case}{}", on(stream)), result, array.seen(offset, meant));
    };
    for stream in streams {
        run("all", 0, SIZE, *stream);
    }
    for (case, offset, bytes) in &PARTS[1..] {
        run(case, *offset, *bytes, streams[0]);
    }
    let from = Piece::source(subject.bench, from_place);
    subject.say("no array", copy(null_mut(), 0, from.at(0), 8, streams[0].1), subject.bench.settle());
}

/// Copies out of an array; `copy` gets the target's address, the array, the offset, bytes, stream.
fn out_of(
    subject: &Subject,
    streams: &[Stream],
    to_place: Place,
    copy: impl Fn(u64, Handle, usize, usize, Handle) -> u32,
) {
    let run = |case: &str, offset, bytes, stream: Stream| {
        let array = Array::new(subject.bench);
        let to = Piece::target(subject.bench, to_place);
        let result = copy(to.at(0), array.handle, offset, bytes, stream.1);
        let mut meant = to.before.clone();
        if let Some(span) = inside(offset, bytes).filter(|_| !array.handle.is_null()) {
            meant[..bytes].copy_from_slice(&array.before[span]);
        }
        subject.say(format_args!("{case}{}", on(stream)), result, to.seen(&meant));
    };
    for stream in streams {
        run("all", 0, SIZE, *stream);
    }
    for (case, offset, bytes) in &PARTS[1..] {
        run(case, *offset, *bytes, streams[0]);
    }
    let to = Piece::target(subject.bench, to_place);
    subject.say("no array", copy(to.at(0), null_mut(), 0, 8, streams[0].1), to.untouched());
}

/// Copies between two arrays; `copy` gets target, offset, source, offset, bytes.
fn between(subject: &Subject, copy: impl Fn(Handle, usize, Handle, usize, usize) -> u32) {
    for (case, offset, bytes) in PARTS {
        let (to, from) = (Array::new(subject.bench), Array::new(subject.bench));
        let result = copy(to.handle, 0, from.handle, offset, bytes);
        let meant = inside(offset, bytes).map(|span| &from.before[span]);
        subject.say(case, result, to.seen(0, meant));
    }
    let array = Array::new(subject.bench);
    subject.say("to no array", copy(null_mut(), 0, array.handle, 0, 8), "");
    subject.say("from no array", copy(array.handle, 0, null_mut(), 0, 8), array.seen(0, None));
}

/// `cuMemcpyAtoA_v2`.
pub(crate) fn arrays(subject: &Subject, copy: extern "C" fn(Handle, usize, Handle, usize, usize) -> u32) {
    between(subject, |to, to_offset, from, from_offset, bytes| copy(to, to_offset, from, from_offset, bytes));
}

/// `cuMemcpyAtoA` of before CUDA 3.2: it has no addresses, so it can do its work.
pub(crate) fn old_arrays(subject: &Subject, copy: extern "C" fn(Handle, u32, Handle, u32, u32) -> u32) {
    between(subject, |to, to_offset, from, from_offset, bytes| {
        copy(to, to_offset as u32, from, from_offset as u32, bytes as u32)
    });
}

/// `cuMemcpyAtoD_v2`.
pub(crate) fn to_device(subject: &Subject, copy: extern "C" fn(u64, Handle, usize, usize) -> u32) {
    out_of(subject, &NO_STREAM, Device, |to, array, offset, bytes, _| copy(to, array, offset, bytes));
}

/// `cuMemcpyDtoA_v2`.
pub(crate) fn from_device(subject: &Subject, copy: extern "C" fn(Handle, usize, u64, usize) -> u32) {
    into(subject, &NO_STREAM, Device, |array, offset, from, bytes, _| copy(array, offset, from, bytes));
}

/// `cuMemcpyAtoD` of before CUDA 3.2: 32-bit addresses reach no allocation of ours.
pub(crate) fn old_to_device(subject: &Subject, copy: extern "C" fn(u32, Handle, u32, u32) -> u32) {
    let array = Array::new(subject.bench);
    for (case, address) in [("nowhere", NOWHERE as u32), ("null", 0)] {
        subject.say(format_args!("8 bytes to {case}"), copy(address, array.handle, 0, 8), array.seen(0, None));
    }
    subject.say("no array", copy(NOWHERE as u32, null_mut(), 0, 8), "");
}

/// `cuMemcpyDtoA` of before CUDA 3.2.
pub(crate) fn old_from_device(subject: &Subject, copy: extern "C" fn(Handle, u32, u32, u32) -> u32) {
    let array = Array::new(subject.bench);
    for (case, address) in [("nowhere", NOWHERE as u32), ("null", 0)] {
        subject.say(format_args!("8 bytes from {case}"), copy(array.handle, 0, address, 8), array.seen(0, None));
    }
    subject.say("no array", copy(null_mut(), 0, NOWHERE as u32, 8), "");
}

/// `cuMemcpyAtoH_v2`.
pub(crate) fn to_host(subject: &Subject, copy: extern "C" fn(*mut c_void, Handle, usize, usize) -> u32) {
    out_of(subject, &NO_STREAM, Pageable, |to, array, offset, bytes, _| copy(to as _, array, offset, bytes));
}

/// `cuMemcpyAtoH` of before CUDA 3.2.
pub(crate) fn old_to_host(subject: &Subject, copy: extern "C" fn(*mut c_void, Handle, u32, u32) -> u32) {
    out_of(subject, &NO_STREAM, Pageable, |to, array, offset, bytes, _| {
        copy(to as _, array, offset as u32, bytes as u32)
    });
}

/// `cuMemcpyAtoHAsync_v2`.
pub(crate) fn to_host_async(subject: &Subject, copy: extern "C" fn(*mut c_void, Handle, usize, usize, Handle) -> u32) {
    out_of(subject, &subject.bench.streams(), Pinned, |to, array, offset, bytes, stream| {
        copy(to as _, array, offset, bytes, stream)
    });
}

/// `cuMemcpyAtoHAsync` of before CUDA 3.2.
pub(crate) fn old_to_host_async(subject: &Subject, copy: extern "C" fn(*mut c_void, Handle, u32, u32, Handle) -> u32) {
    out_of(subject, &subject.bench.streams(), Pinned, |to, array, offset, bytes, stream| {
        copy(to as _, array, offset as u32, bytes as u32, stream)
    });
}

/// `cuMemcpyHtoA_v2`.
pub(crate) fn from_host(subject: &Subject, copy: extern "C" fn(Handle, usize, *const c_void, usize) -> u32) {
    into(subject, &NO_STREAM, Pageable, |array, offset, from, bytes, _| copy(array, offset, from as _, bytes));
}

/// `cuMemcpyHtoA` of before CUDA 3.2.
pub(crate) fn old_from_host(subject: &Subject, copy: extern "C" fn(Handle, u32, *const c_void, u32) -> u32) {
    into(subject, &NO_STREAM, Pageable, |array, offset, from, bytes, _| {
        copy(array, offset as u32, from as _, bytes as u32)
    });
}

/// `cuMemcpyHtoAAsync_v2`.
pub(crate) fn from_host_async(
    subject: &Subject,
    copy: extern "C" fn(Handle, usize, *const c_void, usize, Handle) -> u32,
) {
    into(subject, &subject.bench.streams(), Pinned, |array, offset, from, bytes, stream| {
        copy(array, offset, from as _, bytes, stream)
    });
}

/// `cuMemcpyHtoAAsync` of before CUDA 3.2.
pub(crate) fn old_from_host_async(
    subject: &Subject,
    copy: extern "C" fn(Handle, u32, *const c_void, u32, Handle) -> u32,
) {
    into(subject, &subject.bench.streams(), Pinned, |array, offset, from, bytes, stream| {
        copy(array, offset as u32, from as _, bytes as u32, stream)
    });
}
