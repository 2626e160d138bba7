//! Copies between addresses: any mix of device and host memory, waiting and queued.

use std::ffi::c_void;

use crate::bench::{Handle, NO_STREAM, Stream, Subject, on};
use crate::piece::{NOWHERE, Piece, Place, copied};

use Place::{Device, Pageable, Pinned};

/// True if an address of no allocation may be tried: where the call says that the end is the device's,
/// the driver refuses it; elsewhere it would be taken for the host's, and read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Typed {
    Yes,
    No,
}

/// Runs the cases of one way to copy; `copy` gets the target's and the source's address.
fn copies(
    subject: &Subject,
    streams: &[Stream],
    (to_place, from_place): (Place, Place),
    typed: Typed,
    copy: impl Fn(u64, u64, usize, Handle) -> u32,
) {
    let name = |place| match place {
        Device => "device",
        Pageable => "pageable",
        Pinned => "pinned",
    };
    let run = |case: &str, stream: Stream, bytes, ends: &dyn Fn(&Piece, &Piece) -> (u64, u64)| {
        let (to, from) = (Piece::target(subject.bench, to_place), Piece::source(subject.bench, from_place));
        let (to_address, from_address) = ends(&to, &from);
        let result = copy(to_address, from_address, bytes, stream.1);
        let seen = to.seen(&copied(&to, to_address, &from, from_address, bytes));
        subject.say(format_args!("{} to {}, {case}{}", name(from_place), name(to_place), on(stream)), result, seen);
    };
    for stream in streams {
        run("all", *stream, 1024, &|to, from| (to.at(0), from.at(0)));
    }
    let stream = streams[0];
    run("77 bytes at odd places", stream, 77, &|to, from| (to.at(3), from.at(5)));
    run("nothing", stream, 0, &|to, from| (to.at(0), from.at(0)));
    run("to null", stream, 8, &|_, from| (0, from.at(0)));
    run("from null", stream, 8, &|to, _| (to.at(0), 0));
    if to_place == Device {
        run("past the target's end", stream, 100, &|to, from| (to.at(1000), from.at(0)));
    }
    if from_place == Device {
        run("past the source's end", stream, 100, &|to, from| (to.at(0), from.at(1000)));
    }
    if to_place == Device && typed == Typed::Yes {
        run("to nowhere", stream, 8, &|_, from| (NOWHERE, from.at(0)));
    }
    if from_place == Device && typed == Typed::Yes {
        run("from nowhere", stream, 8, &|to, _| (to.at(0), NOWHERE));
    }
}

/// `cuMemcpy`: the addresses say where they are.
pub(crate) fn any(subject: &Subject, copy: extern "C" fn(u64, u64, usize) -> u32) {
    for ends in [(Device, Device), (Device, Pageable), (Pageable, Device), (Device, Pinned), (Pinned, Device)] {
        copies(subject, &NO_STREAM, ends, Typed::No, |to, from, bytes, _| copy(to, from, bytes));
    }
}

/// `cuMemcpyAsync`.
pub(crate) fn any_async(subject: &Subject, copy: extern "C" fn(u64, u64, usize, Handle) -> u32) {
    for ends in [(Device, Device), (Device, Pageable), (Pageable, Device), (Device, Pinned), (Pinned, Device)] {
        copies(subject, &subject.bench.streams(), ends, Typed::No, |to, from, bytes, stream| {
            copy(to, from, bytes, stream)
        });
    }
}

/// `cuMemcpyDtoD_v2`.
pub(crate) fn devices(subject: &Subject, copy: extern "C" fn(u64, u64, usize) -> u32) {
    copies(subject, &NO_STREAM, (Device, Device), Typed::Yes, |to, from, bytes, _| copy(to, from, bytes));
}

/// `cuMemcpyDtoDAsync_v2`.
pub(crate) fn devices_async(subject: &Subject, copy: extern "C" fn(u64, u64, usize, Handle) -> u32) {
    copies(subject, &subject.bench.streams(), (Device, Device), Typed::Yes, |to, from, bytes, stream| {
        copy(to, from, bytes, stream)
    });
}

/// `cuMemcpyPeer`, between a context and itself.
pub(crate) fn peers(subject: &Subject, copy: extern "C" fn(u64, Handle, u64, Handle, usize) -> u32) {
    let context = subject.bench.context;
    copies(subject, &NO_STREAM, (Device, Device), Typed::No, |to, from, bytes, _| {
        copy(to, context, from, context, bytes)
    });
}

/// `cuMemcpyPeerAsync`.
pub(crate) fn peers_async(subject: &Subject, copy: extern "C" fn(u64, Handle, u64, Handle, usize, Handle) -> u32) {
    let context = subject.bench.context;
    copies(subject, &subject.bench.streams(), (Device, Device), Typed::No, |to, from, bytes, stream| {
        copy(to, context, from, context, bytes, stream)
    });
}

/// `cuMemcpyHtoD_v2`.
pub(crate) fn to_device(subject: &Subject, copy: extern "C" fn(u64, *const c_void, usize) -> u32) {
    for from in [Pageable, Pinned] {
        copies(subject, &NO_STREAM, (Device, from), Typed::Yes, |to, from, bytes, _| copy(to, from as _, bytes));
    }
}

/// `cuMemcpyHtoDAsync_v2`.
pub(crate) fn to_device_async(subject: &Subject, copy: extern "C" fn(u64, *const c_void, usize, Handle) -> u32) {
    for from in [Pageable, Pinned] {
        copies(subject, &subject.bench.streams(), (Device, from), Typed::Yes, |to, from, bytes, stream| {
            copy(to, from as _, bytes, stream)
        });
    }
}

/// `cuMemcpyDtoH_v2`.
pub(crate) fn from_device(subject: &Subject, copy: extern "C" fn(*mut c_void, u64, usize) -> u32) {
    for to in [Pageable, Pinned] {
        copies(subject, &NO_STREAM, (to, Device), Typed::Yes, |to, from, bytes, _| copy(to as _, from, bytes));
    }
}

/// `cuMemcpyDtoHAsync_v2`.
pub(crate) fn from_device_async(subject: &Subject, copy: extern "C" fn(*mut c_void, u64, usize, Handle) -> u32) {
    for to in [Pageable, Pinned] {
        copies(subject, &subject.bench.streams(), (to, Device), Typed::Yes, |to, from, bytes, stream| {
            copy(to as _, from, bytes, stream)
        });
    }
}

/// Where the forms of before CUDA 3.2 are called: their 32-bit addresses reach no allocation of ours.
const OLD_ADDRESSES: [(&str, u32, u32); 3] =
    [("8 bytes nowhere", NOWHERE as u32, 8), ("8 bytes at null", 0, 8), ("nothing at null", 0, 0)];

/// `cuMemcpyDtoD` of before CUDA 3.2.
pub(crate) fn old_devices(subject: &Subject, copy: extern "C" fn(u32, u32, u32) -> u32) {
    for (case, address, bytes) in OLD_ADDRESSES {
        subject.say(case, copy(address, address, bytes), subject.bench.settle());
    }
}

/// `cuMemcpyDtoDAsync` of before CUDA 3.2.
pub(crate) fn old_devices_async(subject: &Subject, copy: extern "C" fn(u32, u32, u32, Handle) -> u32) {
    for (case, address, bytes) in OLD_ADDRESSES {
        subject.say(case, copy(address, address, bytes, subject.bench.own_stream()), subject.bench.settle());
    }
}

/// `cuMemcpyHtoD` of before CUDA 3.2.
pub(crate) fn old_to_device(subject: &Subject, copy: extern "C" fn(u32, *const c_void, u32) -> u32) {
    for (case, address, bytes) in OLD_ADDRESSES {
        let from = Piece::source(subject.bench, Pageable);
        subject.say(case, copy(address, from.pointer(), bytes), from.untouched());
    }
}

/// `cuMemcpyHtoDAsync` of before CUDA 3.2.
pub(crate) fn old_to_device_async(subject: &Subject, copy: extern "C" fn(u32, *const c_void, u32, Handle) -> u32) {
    for (case, address, bytes) in OLD_ADDRESSES {
        let from = Piece::source(subject.bench, Pageable);
        subject.say(case, copy(address, from.pointer(), bytes, subject.bench.own_stream()), from.untouched());
    }
}

/// `cuMemcpyDtoH` of before CUDA 3.2.
pub(crate) fn old_from_device(subject: &Subject, copy: extern "C" fn(*mut c_void, u32, u32) -> u32) {
    for (case, address, bytes) in OLD_ADDRESSES {
        let to = Piece::target(subject.bench, Pageable);
        subject.say(case, copy(to.pointer(), address, bytes), to.untouched());
    }
}

/// `cuMemcpyDtoHAsync` of before CUDA 3.2.
pub(crate) fn old_from_device_async(subject: &Subject, copy: extern "C" fn(*mut c_void, u32, u32, Handle) -> u32) {
    for (case, address, bytes) in OLD_ADDRESSES {
        let to = Piece::target(subject.bench, Pageable);
        subject.say(case, copy(to.pointer(), address, bytes, subject.bench.own_stream()), to.untouched());
    }
}
