//! Copies of boxes in the forms of before CUDA 3.2. Their device addresses have 32 bits and reach no
//! allocation of ours, but they can copy from host to host.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use crate::bench::{Handle, Subject};
use crate::boxes::{Cut, PLANE, SOLID, Shape, cuts, pasted};
use crate::piece::{NOWHERE, Piece, Place};

/// `CUmemorytype`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// `CUDA_MEMCPY2D_v1`.
#[repr(C)]
struct PlaneCopy {
    from_x: u32,
    from_y: u32,
    from_kind: u32,
    from_host: *mut c_void,
    from_device: u32,
    from_array: Handle,
    from_pitch: u32,
    to_x: u32,
    to_y: u32,
    to_kind: u32,
    to_host: *mut c_void,
    to_device: u32,
    to_array: Handle,
    to_pitch: u32,
    width: u32,
    height: u32,
}

/// `CUDA_MEMCPY3D_v1`.
#[repr(C)]
struct SolidCopy {
    from_x: u32,
    from_y: u32,
    from_z: u32,
    from_level: u32,
    from_kind: u32,
    from_host: *mut c_void,
    from_device: u32,
    from_array: Handle,
    from_reserved: Handle,
    from_pitch: u32,
    from_rows: u32,
    to_x: u32,
    to_y: u32,
    to_z: u32,
    to_level: u32,
    to_kind: u32,
    to_host: *mut c_void,
    to_device: u32,
    to_array: Handle,
    to_reserved: Handle,
    to_pitch: u32,
    to_rows: u32,
    width: u32,
    height: u32,
    depth: u32,
}

/// The kind, host pointer and device address of the target.
type Target = (u32, *mut c_void, u32);

fn plane_copy(target: Target, from: &Piece, cut: Cut) -> PlaneCopy {
    let word = |value: usize| value as u32;
    PlaneCopy {
        from_x: word(cut.from[0]),
        from_y: word(cut.from[1]),
        from_kind: HOST,
        from_host: from.pointer(),
        from_device: 0,
        from_array: null_mut(),
        from_pitch: word(PLANE.pitch),
        to_x: word(cut.to[0]),
        to_y: word(cut.to[1]),
        to_kind: target.0,
        to_host: target.1,
        to_device: target.2,
        to_array: null_mut(),
        to_pitch: word(PLANE.pitch),
        width: word(cut.extent[0]),
        height: word(cut.extent[1]),
    }
}

fn solid_copy(target: Target, from: &Piece, cut: Cut) -> SolidCopy {
    let word = |value: usize| value as u32;
    SolidCopy {
        from_x: word(cut.from[0]),
        from_y: word(cut.from[1]),
        from_z: word(cut.from[2]),
        from_level: 0,
        from_kind: HOST,
        from_host: from.pointer(),
        from_device: 0,
        from_array: null_mut(),
        from_reserved: null_mut(),
        from_pitch: word(SOLID.pitch),
        from_rows: word(SOLID.rows),
        to_x: word(cut.to[0]),
        to_y: word(cut.to[1]),
        to_z: word(cut.to[2]),
        to_level: 0,
        to_kind: target.0,
        to_host: target.1,
        to_device: target.2,
        to_array: null_mut(),
        to_reserved: null_mut(),
        to_pitch: word(SOLID.pitch),
        to_rows: word(SOLID.rows),
        width: word(cut.extent[0]),
        height: word(cut.extent[1]),
        depth: word(cut.extent[2]),
    }
}

fn cases<T>(
    subject: &Subject,
    shape: Shape,
    describe: fn(Target, &Piece, Cut) -> T,
    copy: impl Fn(*const c_void) -> u32,
) {
    // The last box leaves the piece, which is not checked on the host.
    for (case, cut) in &cuts(shape)[..3] {
        let (to, from) = (Piece::target(subject.bench, Place::Pageable), Piece::source(subject.bench, Place::Pageable));
        let description = describe((HOST, to.pointer(), 0), &from, *cut);
        let result = copy((&raw const description).cast());
        subject.say(format_args!("host to host, {case}"), result, to.seen(&pasted(&to, &from, shape, *cut)));
    }
    let cut = cuts(shape)[1].1;
    for (case, target) in [
        ("host to nowhere", (DEVICE, null_mut(), NOWHERE as u32)),
        ("host to null", (DEVICE, null_mut(), 0)),
        ("unknown kind of memory", (9, null_mut(), 0)),
    ] {
        let from = Piece::source(subject.bench, Place::Pageable);
        let description = describe(target, &from, cut);
        let result = copy((&raw const description).cast());
        subject.say(case, result, from.untouched());
    }
    subject.say("no description", copy(null()), "");
}

/// `cuMemcpy2D` and `cuMemcpy2DUnaligned`.
pub(crate) fn plane(subject: &Subject, copy: extern "C" fn(*const c_void) -> u32) {
    cases(subject, PLANE, plane_copy, |description| copy(description));
}

/// `cuMemcpy2DAsync`.
pub(crate) fn plane_async(subject: &Subject, copy: extern "C" fn(*const c_void, Handle) -> u32) {
    cases(subject, PLANE, plane_copy, |description| copy(description, subject.bench.own_stream()));
}

/// `cuMemcpy3D`.
pub(crate) fn solid(subject: &Subject, copy: extern "C" fn(*const c_void) -> u32) {
    cases(subject, SOLID, solid_copy, |description| copy(description));
}

/// `cuMemcpy3DAsync`.
pub(crate) fn solid_async(subject: &Subject, copy: extern "C" fn(*const c_void, Handle) -> u32) {
    cases(subject, SOLID, solid_copy, |description| copy(description, subject.bench.own_stream()));
}
