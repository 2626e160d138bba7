//! The primary context: holding it, letting go of it, and resetting it.

use std::ffi::c_int;
use std::ptr::null_mut;

use crate::bench::{Bench, Handle, Subject};
use crate::memory::usable;
use crate::piece::NOWHERE;

/// Devices that there are not.
const NO_DEVICES: [c_int; 2] = [-1, 1000];

/// Tells whether the primary context is there.
fn state(bench: &Bench) -> String {
    let (mut flags, mut active) = (77, 77);
    let result = bench.cuDevicePrimaryCtxGetState(0, &mut flags, &mut active);
    format!("state {result}, flags {flags}, active {active}")
}

/// Holds the primary context once more; null where that fails.
fn retained(bench: &Bench) -> Handle {
    let mut context = null_mut();
    bench.note("cuDevicePrimaryCtxRetain", bench.cuDevicePrimaryCtxRetain(&mut context, 0));
    context
}

/// Lets go of what [`retained`] gave.
fn let_go(bench: &Bench, context: Handle) {
    if !context.is_null() {
        bench.note("cuDevicePrimaryCtxRelease_v2", bench.cuDevicePrimaryCtxRelease_v2(0));
    }
}

/// `cuDevicePrimaryCtxRetain`.
pub(crate) fn retain(subject: &Subject, retain: extern "C" fn(*mut Handle, c_int) -> u32) {
    let bench = subject.bench;
    let untouched = NOWHERE as Handle;
    let (mut first, mut second) = (untouched, untouched);
    let result = retain(&mut first, 0);
    let is_ours = first == bench.context;
    subject.say("the device", result, format_args!("as before {is_ours}, {}", state(bench)));
    let again = retain(&mut second, 0);
    subject.say("the device, again", again, format_args!("the same {}, {}", first == second, state(bench)));
    for result in [result, again] {
        if result == 0 {
            bench.note("cuDevicePrimaryCtxRelease_v2", bench.cuDevicePrimaryCtxRelease_v2(0));
        }
    }
    for device in NO_DEVICES {
        let mut context = untouched;
        let result = retain(&mut context, device);
        let written = if context == untouched { "untouched" } else { "written" };
        subject.say(format_args!("device {device}"), result, format_args!("{written}, {}", state(bench)));
    }
}

/// `cuDevicePrimaryCtxRelease` and its second version.
pub(crate) fn release(subject: &Subject, release: extern "C" fn(c_int) -> u32) {
    let bench = subject.bench;
    for device in NO_DEVICES {
        subject.say(format_args!("device {device}"), release(device), state(bench));
    }
    retained(bench);
    subject.say("retained once more", release(0), state(bench));
    retained(bench);
    retained(bench);
    subject.say("retained twice more", release(0), state(bench));
    subject.say("retained twice more, the second time", release(0), state(bench));
    if bench.context.is_null() {
        subject.say("retained by nobody", release(0), state(bench));
    }
}

/// `cuDevicePrimaryCtxReset` and its second version. After it nothing may use what the context held, the
/// bench's own streams and kernels too.
pub(crate) fn reset(subject: &Subject, reset: extern "C" fn(c_int) -> u32) {
    let bench = subject.bench;
    for device in NO_DEVICES {
        subject.say(format_args!("device {device}"), reset(device), state(bench));
    }

    let context = retained(bench);
    bench.note("cuCtxSetCurrent", bench.cuCtxSetCurrent(context));
    let mut old = NOWHERE;
    bench.note("cuMemAlloc_v2", bench.cuMemAlloc_v2(&mut old, 1 << 20));
    let result = reset(0);
    let range = || bench.cuMemGetAddressRange_v2(null_mut(), null_mut(), old);
    let after = format!("{}, memory {}", state(bench), range());
    // Only now may the context be made again: it has the same handle.
    bench.note("cuCtxSetCurrent", bench.cuCtxSetCurrent(null_mut()));
    let again = retained(bench);
    bench.note("cuCtxSetCurrent", bench.cuCtxSetCurrent(again));
    let same = again == context;
    let gone = range();
    let mut new = NOWHERE;
    let seen = match bench.cuMemAlloc_v2(&mut new, 1 << 20) {
        0 => usable(bench, new, 1 << 20),
        answer => format!("no new memory: {answer}"),
    };
    subject.say("in use", result, format_args!("{after}; made again, the same {same}, old memory {gone}; {seen}"));

    bench.note("cuCtxSetCurrent", bench.cuCtxSetCurrent(null_mut()));
    subject.say("not current", reset(0), state(bench));
    subject.say("not there", reset(0), state(bench));
    let_go(bench, again);
    let_go(bench, context);
}
