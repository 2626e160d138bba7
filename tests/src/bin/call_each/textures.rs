//! Textures over device memory. A driver without references to textures is called with a null one.

use std::ffi::c_void;
use std::ptr::{from_ref, null, null_mut};

use crate::bench::{Bench, Handle, Subject};
use crate::piece::{NOWHERE, Piece, Place, SIZE};

/// `CU_AD_FORMAT_FLOAT`.
const FLOAT: u32 = 0x20;

/// `CUDA_RESOURCE_DESC` of plain memory: in a line, or in rows.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
struct Resource {
    kind: u32,
    _pad: u32,
    address: u64,
    format: u32,
    channels: u32,
    /// Bytes in a line; or width, height and bytes between rows.
    sizes: [usize; 3],
    _rest: [u64; 11],
    flags: u32,
    _end: u32,
}
const _: () = assert!(size_of::<Resource>() == 144);

/// `CUresourcetype`.
const LINEAR: u32 = 2;
const PITCHED: u32 = 3;

/// `CUDA_TEXTURE_DESC`, of which zeros will do.
type Texture = [u32; 26];

fn resource(kind: u32, address: u64) -> Resource {
    let sizes = if kind == PITCHED { [16, 8, 128] } else { [SIZE, 0, 0] };
    Resource { kind, _pad: 0, address, format: FLOAT, channels: 1, sizes, _rest: [0; 11], flags: 0, _end: 0 }
}

fn pointer<T>(to: &T) -> *const c_void {
    from_ref(to).cast()
}

/// `cuTexObjectCreate`.
pub(crate) fn create(
    subject: &Subject,
    create: extern "C" fn(*mut u64, *const c_void, *const c_void, *const c_void) -> u32,
) {
    type Spoil = fn(&mut Resource);
    let bench = subject.bench;
    let cases: [(&str, u32, Spoil); 6] = [
        ("a line", LINEAR, |_| {}),
        ("rows", PITCHED, |_| {}),
        ("an unknown kind", LINEAR, |resource| resource.kind = 9),
        ("an unknown flag", LINEAR, |resource| resource.flags = 0x80),
        ("of three channels", LINEAR, |resource| resource.channels = 3),
        ("at an odd place", LINEAR, |resource| resource.address += 1),
    ];
    for (case, kind, spoil) in cases {
        let memory = Piece::source(bench, Place::Device);
        let (mut resource, texture): (_, Texture) = (resource(kind, memory.at(0)), [0; 26]);
        spoil(&mut resource);
        let mut made = NOWHERE;
        let result = create(&mut made, pointer(&resource), pointer(&texture), null());
        if result != 0 {
            let seen = if made == NOWHERE { "untouched" } else { "written" };
            subject.say(case, result, format_args!("{seen}, {}", memory.untouched()));
            continue;
        }
        let mut told = self::resource(kind, 0);
        let answer = bench.cuTexObjectGetResourceDesc((&raw mut told).cast(), made);
        let same = told.kind == resource.kind && told.address == resource.address;
        subject.say(case, result, format_args!("told {answer}, the same {same}"));
        bench.note("cuTexObjectDestroy", bench.cuTexObjectDestroy(made));
    }
}

/// `cuTexObjectDestroy`.
pub(crate) fn destroy(subject: &Subject, destroy: extern "C" fn(u64) -> u32) {
    let bench = subject.bench;
    let memory = Piece::source(bench, Place::Device);
    let (resource, texture): (_, Texture) = (resource(LINEAR, memory.at(0)), [0; 26]);
    let mut made = 0;
    let result = bench.cuTexObjectCreate(&mut made, pointer(&resource), pointer(&texture), null());
    bench.note("cuTexObjectCreate", result);
    if made != 0 {
        subject.say("a texture", destroy(made), memory.untouched());
    }
    subject.say("null", destroy(0), memory.untouched());
}

/// A reference to a texture; null where the driver makes none.
struct Reference<'a> {
    bench: &'a Bench,
    handle: Handle,
}

impl<'a> Reference<'a> {
    fn new(bench: &'a Bench) -> Self {
        let mut handle = null_mut();
        bench.note("cuTexRefCreate", bench.cuTexRefCreate(&mut handle));
        if !handle.is_null() {
            bench.note("cuTexRefSetFormat", bench.cuTexRefSetFormat(handle, FLOAT, 1));
        }
        Self { bench, handle }
    }
}

impl Drop for Reference<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            self.bench.note("cuTexRefDestroy", self.bench.cuTexRefDestroy(self.handle));
        }
    }
}

/// `cuTexRefDestroy`.
pub(crate) fn destroy_reference(subject: &Subject, destroy: extern "C" fn(Handle) -> u32) {
    let bench = subject.bench;
    let mut handle = null_mut();
    bench.note("cuTexRefCreate", bench.cuTexRefCreate(&mut handle));
    subject.say("a reference", destroy(handle), "");
}

/// `cuTexRefSetAddress_v2`.
pub(crate) fn line(subject: &Subject, set: extern "C" fn(*mut usize, Handle, u64, usize) -> u32) {
    let memory = Piece::source(subject.bench, Place::Device);
    let run = |case, to: &Reference, address, bytes| {
        let mut offset = 77;
        let result = set(&mut offset, to.handle, address, bytes);
        subject.say(case, result, format_args!("offset {offset}, {}", memory.untouched()));
    };
    let reference = Reference::new(subject.bench);
    run("a line", &reference, memory.at(0), SIZE);
    run("a part of it", &reference, memory.at(512), SIZE / 4);
    run("at an odd place", &reference, memory.at(3), SIZE / 4);
    run("null", &reference, 0, 0);
    let result = set(null_mut(), reference.handle, memory.at(0), SIZE);
    subject.say("no place for the offset", result, memory.untouched());
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
struct Format {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

/// `cuTexRefSetAddress2D` of versions 2 and 3.
pub(crate) fn rows(subject: &Subject, set: extern "C" fn(Handle, *const c_void, u64, usize) -> u32) {
    let memory = Piece::source(subject.bench, Place::Device);
    let reference = Reference::new(subject.bench);
    let run = |case, channels, address, pitch| {
        let format = Format { width: 16, height: 8, format: FLOAT, channels };
        subject.say(case, set(reference.handle, pointer(&format), address, pitch), memory.untouched());
    };
    run("rows", 1, memory.at(0), 128);
    run("rows of three channels", 3, memory.at(0), 128);
    run("rows shorter than they are wide", 1, memory.at(0), 32);
    run("rows at an odd place", 1, memory.at(3), 128);
}
