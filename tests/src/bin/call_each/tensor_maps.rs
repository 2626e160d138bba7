//! Tensor maps. They are only written here: no kernel reads one.
//!
//! Most are about an address that is always the same, so that all of what is written can be compared; the
//! driver does not go there.

use std::ffi::{c_int, c_void};

use crate::bench::{Bench, Subject};
use crate::piece::{Piece, Place, checksum};

/// `CUtensorMap`.
#[repr(C, align(64))]
struct Map([u8; 128]);

const UNTOUCHED: u8 = 0x5a;
/// An address of no allocation.
const SOMEWHERE: u64 = 0x7000_0000_0000;

/// `CUtensorMapDataType`.
const FLOAT16: c_int = 6;
const FLOAT32: c_int = 7;

/// The fields that all three kinds of maps have. The lists are longer than any rank.
#[derive(Clone, Copy)]
struct Tensor {
    kind: c_int,
    rank: u32,
    address: u64,
    sizes: [u64; 8],
    strides: [u64; 8],
    steps: [u32; 8],
    swizzle: c_int,
}

impl Tensor {
    fn address(&self) -> *mut c_void {
        self.address as *mut c_void
    }
}

/// 32 rows of 64 numbers.
const PLANE: Tensor = Tensor {
    kind: FLOAT32,
    rank: 2,
    address: SOMEWHERE,
    sizes: [64, 32, 0, 0, 0, 0, 0, 0],
    strides: [256, 0, 0, 0, 0, 0, 0, 0],
    steps: [1; 8],
    swizzle: 2,
};

/// 2 pictures of 16 by 16 pixels with 64 channels.
const PICTURES: Tensor = Tensor {
    kind: FLOAT16,
    rank: 4,
    address: SOMEWHERE,
    sizes: [64, 16, 16, 2, 0, 0, 0, 0],
    strides: [128, 2048, 32768, 0, 0, 0, 0, 0],
    steps: [1; 8],
    swizzle: 3,
};

fn written(map: &Map) -> String {
    if map.0.iter().all(|byte| *byte == UNTOUCHED) {
        "untouched".to_owned()
    } else {
        format!("{:08x}", checksum(&map.0))
    }
}

/// Writes maps, right and wrong ones.
fn maps(subject: &Subject, tensor: Tensor, encode: impl Fn(*mut c_void, &Tensor) -> u32) {
    type Change = fn(&mut Tensor);
    let cases: [(&str, Change); 8] = [
        ("a map", |_| {}),
        ("at null", |tensor| tensor.address = 0),
        ("at an odd place", |tensor| tensor.address += 1),
        ("of no rank", |tensor| tensor.rank = 0),
        ("of a rank too high", |tensor| tensor.rank = 6),
        ("of an unknown kind", |tensor| tensor.kind = 99),
        ("with odd strides", |tensor| tensor.strides[0] += 1),
        ("in steps of nothing", |tensor| tensor.steps = [0; 8]),
    ];
    for (case, change) in cases {
        let (mut tensor, mut map) = (tensor, Map([UNTOUCHED; 128]));
        change(&mut tensor);
        let result = encode((&raw mut map).cast(), &tensor);
        subject.say(case, result, written(&map));
    }
    let memory = Piece::source(subject.bench, Place::Device);
    let (tensor, mut map) = (Tensor { address: memory.at(0), ..tensor }, Map([UNTOUCHED; 128]));
    let result = encode((&raw mut map).cast(), &tensor);
    let seen = if written(&map) == "untouched" { "untouched" } else { "written" };
    subject.say("over memory", result, format_args!("{seen}, {}", memory.untouched()));
}

/// `cuTensorMapEncodeTiled`.
pub(crate) type Tiled = extern "C" fn(
    *mut c_void,
    c_int,
    u32,
    *mut c_void,
    *const u64,
    *const u64,
    *const u32,
    *const u32,
    c_int,
    c_int,
    c_int,
    c_int,
) -> u32;

/// Encodes 16 by 8 numbers as a window, with a promotion and a fill that are not the first ones.
fn plane(encode: Tiled, map: *mut c_void, tensor: &Tensor) -> u32 {
    let window = [16, 8, 1, 1, 1, 1, 1, 1];
    let (sizes, strides, steps) = (tensor.sizes.as_ptr(), tensor.strides.as_ptr(), tensor.steps.as_ptr());
    let (kind, rank, address) = (tensor.kind, tensor.rank, tensor.address());
    encode(map, kind, rank, address, sizes, strides, window.as_ptr(), steps, 0, tensor.swizzle, 3, 1)
}

/// `cuTensorMapEncodeTiled`.
pub(crate) fn tiled(subject: &Subject, encode: Tiled) {
    maps(subject, PLANE, |map, tensor| plane(encode, map, tensor));
}

/// `cuTensorMapEncodeIm2col`.
pub(crate) fn columns(
    subject: &Subject,
    encode: extern "C" fn(
        *mut c_void,
        c_int,
        u32,
        *mut c_void,
        *const u64,
        *const u64,
        *const c_int,
        *const c_int,
        u32,
        u32,
        *const u32,
        c_int,
        c_int,
        c_int,
        c_int,
    ) -> u32,
) {
    maps(subject, PICTURES, |map, tensor| {
        let (lower, upper) = ([-1; 8], [0; 8]);
        let (sizes, strides, steps) = (tensor.sizes.as_ptr(), tensor.strides.as_ptr(), tensor.steps.as_ptr());
        let (kind, rank, address) = (tensor.kind, tensor.rank, tensor.address());
        let (lower, upper) = (lower.as_ptr(), upper.as_ptr());
        encode(map, kind, rank, address, sizes, strides, lower, upper, 64, 32, steps, 0, tensor.swizzle, 2, 1)
    });
}

/// `cuTensorMapEncodeIm2colWide`.
pub(crate) fn wide_columns(
    subject: &Subject,
    encode: extern "C" fn(
        *mut c_void,
        c_int,
        u32,
        *mut c_void,
        *const u64,
        *const u64,
        c_int,
        c_int,
        u32,
        u32,
        *const u32,
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
    ) -> u32,
) {
    maps(subject, PICTURES, |map, tensor| {
        let (sizes, strides, steps) = (tensor.sizes.as_ptr(), tensor.strides.as_ptr(), tensor.steps.as_ptr());
        let (kind, rank, address) = (tensor.kind, tensor.rank, tensor.address());
        encode(map, kind, rank, address, sizes, strides, -1, 0, 64, 32, steps, 0, 1, tensor.swizzle, 2, 1)
    });
}

/// A map that the driver has made, or zeros.
fn made(bench: &Bench) -> Map {
    // SAFETY: cuda.h's signature; it gets lists that are long enough.
    let encode: Tiled = unsafe { bench.driver.find("cuTensorMapEncodeTiled") };
    let mut map = Map([0; 128]);
    bench.note("cuTensorMapEncodeTiled", plane(encode, (&raw mut map).cast(), &PLANE));
    map
}

/// `cuTensorMapSetAllocationClass`.
pub(crate) fn set_class(subject: &Subject, set: extern "C" fn(*mut c_void, c_int, *mut c_int) -> u32) {
    for (case, class) in [("as is best", 0), ("small", 1), ("large", 2), ("of an unknown class", 99)] {
        let (mut map, mut now) = (made(subject.bench), 77);
        let result = set((&raw mut map).cast(), class, &mut now);
        subject.say(case, result, format_args!("now {now}, {}", written(&map)));
    }
    let mut map = made(subject.bench);
    let result = set((&raw mut map).cast(), 2, std::ptr::null_mut());
    subject.say("large, and nobody asks", result, written(&map));
    let mut now = 77;
    let result = set(std::ptr::null_mut(), 2, &mut now);
    subject.say("no map", result, format_args!("now {now}"));
}

/// `cuTensorMapReplaceAddress`, of a map that the driver has made, or of zeros.
pub(crate) fn replace(subject: &Subject, replace: extern "C" fn(*mut c_void, *mut c_void) -> u32) {
    let bench = subject.bench;
    let made = || made(bench);
    for (case, address) in [("another place", 2 * SOMEWHERE), ("the same place", SOMEWHERE), ("an odd place", 3)] {
        let mut map = made();
        let result = replace((&raw mut map).cast(), address as *mut c_void);
        subject.say(case, result, written(&map));
    }
    let (mut map, memory) = (made(), Piece::source(bench, Place::Device));
    let result = replace((&raw mut map).cast(), memory.at(0) as *mut c_void);
    subject.say("memory", result, memory.untouched());
}
