//! Memory without addresses: arrays, and memory of other interfaces.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use crate::bench::{Handle, Subject};

const UNSIGNED_INT8: u32 = 1;
const FLOAT: u32 = 0x20;

/// Calls that make something of a description, right and wrong.
fn make(subject: &Subject, cases: &[(&str, *const c_void)], make: impl Fn(*mut Handle, *const c_void) -> u32) {
    let bench = subject.bench;
    for (case, description) in cases {
        let mut made = null_mut();
        let result = make(&mut made, *description);
        subject.say(case, result, if made.is_null() { "untouched" } else { "written" });
        if result == 0 {
            let destroy = if subject.symbol == "cuMipmappedArrayCreate" {
                ("cuMipmappedArrayDestroy", bench.cuMipmappedArrayDestroy(made))
            } else {
                ("cuArrayDestroy", bench.cuArrayDestroy(made))
            };
            bench.note(destroy.0, destroy.1);
        }
    }
    if let Some((_, description)) = cases.first() {
        subject.say("no place for the answer", make(null_mut(), *description), "");
    }
}

/// `cuArrayCreate` and `cuArrayCreate_v2`: their numbers differ in width.
pub(crate) fn array<N: From<u8>>(subject: &Subject, create: extern "C" fn(*mut Handle, *const c_void) -> u32) {
    #[repr(C)]
    struct Description<N>(N, N, u32, u32);
    let described = |sides: [u8; 2], format, channels| {
        let [width, height] = sides.map(N::from);
        Description(width, height, format, channels)
    };
    let (line, plane) = (described([200, 0], UNSIGNED_INT8, 1), described([100, 100], FLOAT, 4));
    let (empty, odd) = (described([0, 0], FLOAT, 1), described([10, 0], 99, 1));
    let cases = [("a line", &line), ("a plane", &plane), ("nothing", &empty), ("of an unknown format", &odd)];
    let cases = cases.map(|(case, description)| (case, (&raw const *description).cast()));
    make(subject, &cases, |out, description| create(out, description));
}

#[repr(C)]
struct Deep<N>(N, N, N, u32, u32, u32);

fn deep<N: From<u8>>(sides: [u8; 3], flags: u32) -> Deep<N> {
    let [width, height, depth] = sides.map(N::from);
    Deep(width, height, depth, FLOAT, 1, flags)
}

/// `cuArray3DCreate` and `cuArray3DCreate_v2`: likewise.
pub(crate) fn deep_array<N: From<u8>>(subject: &Subject, create: extern "C" fn(*mut Handle, *const c_void) -> u32) {
    let (cube, layers, empty): (Deep<N>, Deep<N>, Deep<N>) =
        (deep([16, 16, 16], 0), deep([16, 16, 4], 1), deep([0, 0, 0], 0));
    let cases = [("a cube", &cube), ("layers", &layers), ("nothing", &empty)];
    let cases = cases.map(|(case, description)| (case, (&raw const *description).cast()));
    make(subject, &cases, |out, description| create(out, description));
}

/// `cuMipmappedArrayCreate`.
pub(crate) fn mipmap(subject: &Subject, create: extern "C" fn(*mut Handle, *const c_void, u32) -> u32) {
    let (plane, empty): (Deep<usize>, Deep<usize>) = (deep([64, 64, 0], 0), deep([0, 0, 0], 0));
    let cases = [("a plane", &plane), ("nothing", &empty)];
    let cases = cases.map(|(case, description)| (case, (&raw const *description).cast()));
    for levels in [1, 4] {
        make(subject, &cases, |out, description| create(out, description, levels));
    }
}

/// `cuArrayDestroy` and its kin.
pub(crate) fn destroy(subject: &Subject, destroy: extern "C" fn(Handle) -> u32) {
    subject.say("nothing", destroy(null_mut()), "");
}

/// `cuImportExternalMemory`: other interfaces have to make the memory that is imported.
pub(crate) fn import(subject: &Subject, import: extern "C" fn(*mut Handle, *const c_void) -> u32) {
    let mut made = null_mut();
    let description = [0_u64; 13];
    let result = import(&mut made, description.as_ptr().cast());
    subject.say("of no kind", result, if made.is_null() { "untouched" } else { "written" });
    subject.say("no description", import(&mut made, null()), "");
}

/// `cuDeviceGraphMemTrim`.
pub(crate) fn trim(subject: &Subject, trim: extern "C" fn(c_int) -> u32) {
    subject.say("the device", trim(0), "");
    subject.say("no device", trim(77), "");
}
