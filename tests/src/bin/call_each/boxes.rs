//! Copies of boxes: two and three dimensions, between device and host, and between contexts.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use crate::bench::{Handle, NO_STREAM, Stream, Subject, on};
use crate::piece::{Piece, Place, SIZE};

use Place::{Device, Pageable, Pinned};

/// How a piece is seen as rows and layers. A plane is one layer.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) pitch: usize,
    pub(crate) rows: usize,
}

pub(crate) const PLANE: Shape = Shape { pitch: 32, rows: 32 };
pub(crate) const SOLID: Shape = Shape { pitch: 16, rows: 8 };

/// A box to copy: corners and extent in bytes, rows, layers.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    pub(crate) from: [usize; 3],
    pub(crate) to: [usize; 3],
    pub(crate) extent: [usize; 3],
}

/// The names and boxes of cases, in a plane or in a solid. The last one leaves the piece.
pub(crate) fn cuts(shape: Shape) -> [(&'static str, Cut); 4] {
    let layers = SIZE / (shape.pitch * shape.rows);
    let depth = layers.min(3);
    let last = layers - depth;
    let origin = [0; 3];
    let near = [2, 1, last];
    let far = [7, 4, 0];
    [
        ("all", Cut { from: origin, to: origin, extent: [shape.pitch, shape.rows, layers] }),
        ("a box", Cut { from: near, to: far, extent: [5, 3, depth] }),
        ("a box without width", Cut { from: near, to: far, extent: [0, 3, depth] }),
        ("a box past the end", Cut { from: origin, to: [0, shape.rows - 1, layers - 1], extent: [8, 3, 1] }),
    ]
}

/// The contents of `to` after a box was copied: unchanged if a part of it lies outside.
pub(crate) fn pasted(to: &Piece, from: &Piece, shape: Shape, cut: Cut) -> Vec<u8> {
    let mut after = to.before.clone();
    let [width, height, depth] = cut.extent;
    let place = |corner: [usize; 3], row, layer| {
        corner[0] + (corner[1] + row) * shape.pitch + (corner[2] + layer) * shape.pitch * shape.rows
    };
    for (row, layer) in (0..depth).flat_map(|layer| (0..height).map(move |row| (row, layer))) {
        let (target, source) = (place(cut.to, row, layer), place(cut.from, row, layer));
        if target.max(source) + width > SIZE {
            return to.before.clone();
        }
        after[target..target + width].copy_from_slice(&from.before[source..source + width]);
    }
    after
}

/// `CUmemorytype`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const UNIFIED: u32 = 4;

/// One end of a `CUDA_MEMCPY2D_v2`.
#[repr(C)]
struct PlaneEnd {
    x: usize,
    y: usize,
    kind: u32,
    host: *mut c_void,
    device: u64,
    array: Handle,
    pitch: usize,
}

/// `CUDA_MEMCPY2D_v2`.
#[repr(C)]
struct PlaneCopy {
    from: PlaneEnd,
    to: PlaneEnd,
    width: usize,
    height: usize,
}

/// One end of a `CUDA_MEMCPY3D_v2`, or of a `CUDA_MEMCPY3D_PEER`, which has the context.
#[repr(C)]
pub(crate) struct SolidEnd {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    pub(crate) kind: u32,
    host: *mut c_void,
    pub(crate) device: u64,
    array: Handle,
    context: Handle,
    pub(crate) pitch: usize,
    rows: usize,
}

/// `CUDA_MEMCPY3D_v2` or `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
pub(crate) struct SolidCopy {
    pub(crate) from: SolidEnd,
    pub(crate) to: SolidEnd,
    pub(crate) width: usize,
    pub(crate) height: usize,
    depth: usize,
}

/// The kind of an end, its host pointer and its device address.
fn end(piece: &Piece, place: Place, unified: bool) -> (u32, *mut c_void, u64) {
    match place {
        _ if unified => (UNIFIED, null_mut(), piece.at(0)),
        Device => (DEVICE, null_mut(), piece.at(0)),
        Pageable | Pinned => (HOST, piece.pointer(), 0),
    }
}

fn plane_end(piece: &Piece, place: Place, unified: bool, corner: [usize; 3]) -> PlaneEnd {
    let (kind, host, device) = end(piece, place, unified);
    PlaneEnd { x: corner[0], y: corner[1], kind, host, device, array: null_mut(), pitch: PLANE.pitch }
}

fn solid_end(piece: &Piece, place: Place, unified: bool, corner: [usize; 3], context: Handle) -> SolidEnd {
    let (kind, host, device) = end(piece, place, unified);
    let Shape { pitch, rows } = SOLID;
    let [x, y, z] = corner;
    SolidEnd { x, y, z, level: 0, kind, host, device, array: null_mut(), context, pitch, rows }
}

/// A copy of a whole piece in one row, as nodes of graphs have it.
pub(crate) fn line(to: &Piece, to_place: Place, from: &Piece, from_place: Place) -> SolidCopy {
    let end = |piece, place| {
        let end = solid_end(piece, place, false, [0; 3], null_mut());
        SolidEnd { pitch: SIZE, rows: 1, ..end }
    };
    SolidCopy { from: end(from, from_place), to: end(to, to_place), width: SIZE, height: 1, depth: 1 }
}

/// Where a box goes and comes from, and how the description says so.
const ROUTES: [(&str, Place, Place, bool); 4] = [
    ("device to device", Device, Device, false),
    ("host to device", Device, Pinned, false),
    ("device to host", Pageable, Device, false),
    ("device to device, by address", Device, Device, true),
];

/// Runs `one` for every route, box and stream that is worth it. A box past the end only between device
/// memory: the host's is not checked.
fn each(
    subject: &Subject,
    streams: &[Stream],
    shape: Shape,
    one: impl Fn(&Piece, &Piece, (Place, Place, bool), Cut, Handle) -> u32,
) {
    let run = |(name, to_place, from_place, unified), (case, cut), stream: Stream| {
        let (to, from) = (Piece::target(subject.bench, to_place), Piece::source(subject.bench, from_place));
        let result = one(&to, &from, (to_place, from_place, unified), cut, stream.1);
        subject.say(format_args!("{name}, {case}{}", on(stream)), result, to.seen(&pasted(&to, &from, shape, cut)));
    };
    let cuts = cuts(shape);
    for stream in &streams[1..] {
        run(ROUTES[0], cuts[1], *stream);
    }
    for cut in cuts {
        run(ROUTES[0], cut, streams[0]);
    }
    for route in &ROUTES[1..] {
        run(*route, cuts[0], streams[0]);
        run(*route, cuts[1], streams[0]);
    }
}

fn planes(subject: &Subject, streams: &[Stream], copy: impl Fn(*const c_void, Handle) -> u32) {
    let describe = |to: &Piece, from: &Piece, (to_place, from_place, unified), cut: Cut| PlaneCopy {
        from: plane_end(from, from_place, unified, cut.from),
        to: plane_end(to, to_place, unified, cut.to),
        width: cut.extent[0],
        height: cut.extent[1],
    };
    each(subject, streams, PLANE, |to, from, route, cut, stream| {
        let description = describe(to, from, route, cut);
        copy((&raw const description).cast(), stream)
    });
    type Spoil = fn(&mut PlaneCopy);
    let wrong: [(&str, Spoil); 4] = [
        ("unknown kind of memory", |copy| copy.to.kind = 9),
        ("pitch below width", |copy| copy.from.pitch = 3),
        ("to null", |copy| copy.to.device = 0),
        ("from null", |copy| copy.from.device = 0),
    ];
    for (case, spoil) in wrong {
        let (to, from) = (Piece::target(subject.bench, Device), Piece::source(subject.bench, Device));
        let mut description = describe(&to, &from, (Device, Device, false), cuts(PLANE)[1].1);
        spoil(&mut description);
        subject.say(case, copy((&raw const description).cast(), streams[0].1), to.untouched());
    }
}

fn solids(subject: &Subject, streams: &[Stream], context: Handle, copy: impl Fn(*const c_void, Handle) -> u32) {
    let describe = |to: &Piece, from: &Piece, (to_place, from_place, unified), cut: Cut| SolidCopy {
        from: solid_end(from, from_place, unified, cut.from, context),
        to: solid_end(to, to_place, unified, cut.to, context),
        width: cut.extent[0],
        height: cut.extent[1],
        depth: cut.extent[2],
    };
    each(subject, streams, SOLID, |to, from, route, cut, stream| {
        let description = describe(to, from, route, cut);
        copy((&raw const description).cast(), stream)
    });
    type Spoil = fn(&mut SolidCopy);
    let wrong: [(&str, Spoil); 5] = [
        ("unknown kind of memory", |copy| copy.to.kind = 9),
        ("pitch below width", |copy| copy.from.pitch = 3),
        ("too few rows", |copy| copy.from.rows = 1),
        ("to null", |copy| copy.to.device = 0),
        ("from null", |copy| copy.from.device = 0),
    ];
    for (case, spoil) in wrong {
        let (to, from) = (Piece::target(subject.bench, Device), Piece::source(subject.bench, Device));
        let mut description = describe(&to, &from, (Device, Device, false), cuts(SOLID)[1].1);
        spoil(&mut description);
        subject.say(case, copy((&raw const description).cast(), streams[0].1), to.untouched());
    }
}

/// `cuMemcpy2D_v2`.
pub(crate) fn plane(subject: &Subject, copy: extern "C" fn(*const c_void) -> u32) {
    planes(subject, &NO_STREAM, |description, _| copy(description));
    subject.say("no description", copy(null()), "");
}

/// `cuMemcpy2DAsync_v2`.
pub(crate) fn plane_async(subject: &Subject, copy: extern "C" fn(*const c_void, Handle) -> u32) {
    planes(subject, &subject.bench.streams(), |description, stream| copy(description, stream));
    subject.say("no description", copy(null(), subject.bench.own_stream()), "");
}

/// `cuMemcpy3D_v2`.
pub(crate) fn solid(subject: &Subject, copy: extern "C" fn(*const c_void) -> u32) {
    solids(subject, &NO_STREAM, null_mut(), |description, _| copy(description));
    subject.say("no description", copy(null()), "");
}

/// `cuMemcpy3DAsync_v2`.
pub(crate) fn solid_async(subject: &Subject, copy: extern "C" fn(*const c_void, Handle) -> u32) {
    solids(subject, &subject.bench.streams(), null_mut(), |description, stream| copy(description, stream));
    subject.say("no description", copy(null(), subject.bench.own_stream()), "");
}

/// `cuMemcpy3DPeer`, between a context and itself. Without a description NVIDIA's crashes.
pub(crate) fn peers(subject: &Subject, copy: extern "C" fn(*const c_void) -> u32) {
    solids(subject, &NO_STREAM, subject.bench.context, |description, _| copy(description));
}

/// `cuMemcpy3DPeerAsync`.
pub(crate) fn peers_async(subject: &Subject, copy: extern "C" fn(*const c_void, Handle) -> u32) {
    solids(subject, &subject.bench.streams(), subject.bench.context, |description, stream| copy(description, stream));
}
