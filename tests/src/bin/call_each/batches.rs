//! Copies in batches: many addresses, or many boxes, in one call.

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::bench::{Handle, Stream, Subject, on};
use crate::boxes::{Cut, SOLID, cuts, pasted};
use crate::piece::{Piece, Place, SIZE};

use Place::Device;

/// `CUmemcpySrcAccessOrder`: in the stream's order.
const IN_ORDER: u32 = 1;

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Location {
    kind: u32,
    id: i32,
}

/// Device 0.
const DEVICE: Location = Location { kind: 1, id: 0 };

/// `CUmemcpyAttributes`.
#[repr(C)]
struct Attributes {
    order: u32,
    from: Location,
    to: Location,
    flags: u32,
}

/// The arguments of a batch, without the place for the index of what failed.
struct Batch {
    to: *mut u64,
    from: *mut u64,
    sizes: *mut usize,
    count: usize,
    attributes: *mut c_void,
    indexes: *mut usize,
    attribute_count: usize,
    stream: Handle,
}

/// The cases of batches of addresses; `copy` may write the index of what failed.
fn batches(subject: &Subject, copy: impl Fn(Batch, *mut usize) -> u32) {
    let bench = subject.bench;
    // Two copies, of which the second one's size is given.
    let run = |case: &str, second: usize, order: u32, attribute_count: usize, stream: Stream| {
        let (to, from) = (Piece::target(bench, Device), Piece::source(bench, Device));
        let mut targets = [to.at(0), to.at(512)];
        let mut sources = [from.at(100), from.at(700)];
        let mut sizes = [300, second];
        let mut attributes = Attributes { order, from: DEVICE, to: DEVICE, flags: 0 };
        let mut first = 0;
        let mut failed = 77;
        let batch = Batch {
            to: targets.as_mut_ptr(),
            from: sources.as_mut_ptr(),
            sizes: sizes.as_mut_ptr(),
            count: 2,
            attributes: (&raw mut attributes).cast(),
            indexes: &mut first,
            attribute_count,
            stream: stream.1,
        };
        let result = copy(batch, &mut failed);
        let mut meant = to.before.clone();
        if order == IN_ORDER && attribute_count == 1 {
            meant[..300].copy_from_slice(&from.before[100..400]);
            // NVIDIA's driver has done the copies before the one that it refuses.
            if second <= SIZE - 700 {
                meant[512..512 + second].copy_from_slice(&from.before[700..700 + second]);
            }
        }
        let seen = to.seen(&meant);
        subject.say(format_args!("{case}{}", on(stream)), result, format_args!("failed {}, {seen}", failed as isize));
    };
    let streams = bench.streams();
    for stream in streams {
        run("two copies", 200, IN_ORDER, 1, stream);
    }
    run("the second one past the end", 500, IN_ORDER, 1, streams[0]);
    run("unknown order", 200, 99, 1, streams[0]);
    run("no attributes", 200, IN_ORDER, 0, streams[0]);
    run("too many attributes", 200, IN_ORDER, 3, streams[0]);
    let mut failed = 77;
    let nothing = Batch {
        to: null_mut(),
        from: null_mut(),
        sizes: null_mut(),
        count: 0,
        attributes: null_mut(),
        indexes: null_mut(),
        attribute_count: 0,
        stream: streams[0].1,
    };
    let result = copy(nothing, &mut failed);
    subject.say("nothing", result, format_args!("{}failed {}", bench.settle(), failed as isize));
}

/// The type of `cuMemcpyBatchAsync_v2`.
type Copies = extern "C" fn(*mut u64, *mut u64, *mut usize, usize, *mut c_void, *mut usize, usize, Handle) -> u32;

/// `cuMemcpyBatchAsync_v2`.
pub(crate) fn copies(subject: &Subject, copy: Copies) {
    batches(subject, |batch, _| {
        let Batch { to, from, sizes, count, attributes, indexes, attribute_count, stream } = batch;
        copy(to, from, sizes, count, attributes, indexes, attribute_count, stream)
    });
}

/// The type of `cuMemcpyBatchAsync`.
type OldCopies =
    extern "C" fn(*mut u64, *mut u64, *mut usize, usize, *mut c_void, *mut usize, usize, *mut usize, Handle) -> u32;

/// `cuMemcpyBatchAsync` of before CUDA 13.
pub(crate) fn old_copies(subject: &Subject, copy: OldCopies) {
    batches(subject, |batch, failed| {
        let Batch { to, from, sizes, count, attributes, indexes, attribute_count, stream } = batch;
        copy(to, from, sizes, count, attributes, indexes, attribute_count, failed, stream)
    });
}

/// One end of a box, as an address (`CUmemcpy3DOperand`).
#[repr(C)]
struct BoxEnd {
    kind: u32,
    address: u64,
    row_length: usize,
    layer_height: usize,
    location: Location,
}

/// `CUDA_MEMCPY3D_BATCH_OP`.
#[repr(C)]
struct BoxCopy {
    from: BoxEnd,
    to: BoxEnd,
    extent: [usize; 3],
    order: u32,
    flags: u32,
}

fn box_copy(to: &Piece, from: &Piece, cut: Cut) -> BoxCopy {
    const POINTER: u32 = 1;
    let place = |[x, y, z]: [usize; 3]| x + y * SOLID.pitch + z * SOLID.pitch * SOLID.rows;
    let end = |address| BoxEnd {
        kind: POINTER,
        address,
        row_length: SOLID.pitch,
        layer_height: SOLID.rows,
        location: DEVICE,
    };
    BoxCopy {
        from: end(from.at(place(cut.from))),
        to: end(to.at(place(cut.to))),
        extent: cut.extent,
        order: IN_ORDER,
        flags: 0,
    }
}

/// The cases of batches of boxes; `copy` gets count, boxes, place for the index of what failed, flags, stream.
fn box_batches(subject: &Subject, copy: impl Fn(usize, *mut c_void, *mut usize, u64, Handle) -> u32) {
    let bench = subject.bench;
    let streams = bench.streams();
    let run = |case: &str, cut: Cut, spoil: fn(&mut BoxCopy), flags, stream: Stream| {
        let (to, from) = (Piece::target(bench, Device), Piece::source(bench, Device));
        let mut description = box_copy(&to, &from, cut);
        spoil(&mut description);
        let right = description.order == IN_ORDER && description.from.kind == 1 && flags == 0;
        let mut failed = 77;
        let result = copy(1, (&raw mut description).cast(), &mut failed, flags, stream.1);
        let seen = to.seen(&if right { pasted(&to, &from, SOLID, cut) } else { to.before.clone() });
        subject.say(format_args!("{case}{}", on(stream)), result, format_args!("failed {}, {seen}", failed as isize));
    };
    let cuts = cuts(SOLID);
    for stream in streams {
        run("a box", cuts[1].1, |_| (), 0, stream);
    }
    run("all", cuts[0].1, |_| (), 0, streams[0]);
    run("unknown order", cuts[1].1, |description| description.order = 99, 0, streams[0]);
    run("unknown kind of end", cuts[1].1, |description| description.from.kind = 9, 0, streams[0]);
    run("unknown flags", cuts[1].1, |_| (), 99, streams[0]);
    let mut failed = 77;
    let result = copy(0, null_mut(), &mut failed, 0, streams[0].1);
    subject.say("nothing", result, format_args!("{}failed {}", bench.settle(), failed as isize));
}

/// `cuMemcpy3DBatchAsync_v2`.
pub(crate) fn boxes(subject: &Subject, copy: extern "C" fn(usize, *mut c_void, u64, Handle) -> u32) {
    box_batches(subject, |count, boxes, _, flags, stream| copy(count, boxes, flags, stream));
}

/// `cuMemcpy3DBatchAsync` of before CUDA 13.
pub(crate) fn old_boxes(subject: &Subject, copy: extern "C" fn(usize, *mut c_void, *mut usize, u64, Handle) -> u32) {
    box_batches(subject, |count, boxes, failed, flags, stream| copy(count, boxes, failed, flags, stream));
}

/// `cuMemcpyWithAttributesAsync`.
pub(crate) fn with_attributes(subject: &Subject, copy: extern "C" fn(u64, u64, usize, *mut c_void, Handle) -> u32) {
    let bench = subject.bench;
    let run = |case: &str, bytes: usize, order: u32, places: (Place, Place), stream: Stream| {
        let (to, from) = (Piece::target(bench, places.1), Piece::source(bench, places.0));
        let mut attributes = Attributes { order, from: DEVICE, to: DEVICE, flags: 0 };
        let result = copy(to.at(3), from.at(5), bytes, (&raw mut attributes).cast(), stream.1);
        let is_right = order == IN_ORDER && bytes <= SIZE - 5;
        let mut meant = to.before.clone();
        if is_right {
            meant[3..3 + bytes].copy_from_slice(&from.before[5..5 + bytes]);
        }
        subject.say(format_args!("{case}{}", on(stream)), result, to.seen(&meant));
    };
    let streams = bench.streams();
    for stream in streams {
        run("some bytes", 500, IN_ORDER, (Device, Device), stream);
    }
    run("from the host", 500, IN_ORDER, (Place::Pinned, Device), streams[0]);
    run("to the host", 500, IN_ORDER, (Device, Place::Pinned), streams[0]);
    run("past the end", SIZE, IN_ORDER, (Device, Device), streams[0]);
    run("unknown order", 500, 99, (Device, Device), streams[0]);
    let (to, from) = (Piece::target(bench, Device), Piece::source(bench, Device));
    let result = copy(to.at(0), from.at(0), 8, null_mut(), streams[0].1);
    subject.say("no attributes", result, to.untouched());
}

/// `cuMemcpy3DWithAttributesAsync`.
pub(crate) fn one_box(subject: &Subject, copy: extern "C" fn(*mut c_void, u64, Handle) -> u32) {
    box_batches(subject, |count, boxes, _, flags, stream| {
        assert!(count < 2, "one box is a case");
        copy(boxes, flags, stream)
    });
}

/// `cuFabricCpyBatchAsync`, of nothing: no machine of ours has a fabric.
pub(crate) fn by_fabric(subject: &Subject, copy: extern "C" fn(usize, *mut c_void, u64, Handle) -> u32) {
    subject.say("nothing", copy(0, null_mut(), 0, subject.bench.own_stream()), subject.bench.settle());
}
