//! Launches in the forms of before CUDA 4: shape and arguments are set on the function first.

use std::ffi::c_int;
use std::ptr::null_mut;

use crate::bench::{Bench, Handle, Stream, Subject, on};
use crate::kernels::{ALL, Kernel, axpy};

/// Sets shape and arguments on the kernel's function.
fn prepared(bench: &Bench, kernel: &Kernel) -> Handle {
    let function = bench.function(kernel.name);
    let (buffer, places) = kernel.buffer();
    bench.note("cuFuncSetBlockShape", bench.cuFuncSetBlockShape(function, 64, 1, 1));
    bench.note("cuFuncSetSharedSize", bench.cuFuncSetSharedSize(function, 0));
    bench.note("cuParamSetSize", bench.cuParamSetSize(function, buffer.len() as u32));
    for (argument, place) in kernel.arguments.iter().zip(places) {
        let result = bench.cuParamSetv(function, place as c_int, argument.as_ptr().cast(), argument.len() as u32);
        bench.note("cuParamSetv", result);
    }
    function
}

/// The cases of one way to launch what is prepared. A grid of no width can be asked for only where the
/// call has a grid.
fn cases(subject: &Subject, streams: &[Stream], has_grid: bool, launch: impl Fn(Handle, c_int, c_int, Handle) -> u32) {
    let bench = subject.bench;
    let run = |case: &str, kernel: Kernel, (width, height), right: bool, stream: Stream| {
        let result = launch(prepared(bench, &kernel), width, height, stream.1);
        let seen = if right { kernel.seen() } else { kernel.untouched() };
        subject.say(format_args!("{case}{}", on(stream)), result, seen);
    };
    for stream in &streams[1..] {
        run("axpy", axpy(bench, 1), (2, 1), true, *stream);
    }
    for (case, make) in ALL {
        run(case, make(bench), (1, 1), true, streams[0]);
    }
    if has_grid {
        run("no width", axpy(bench, 1), (0, 1), false, streams[0]);
        run("negative height", axpy(bench, 1), (1, -1), false, streams[0]);
    }

    let kernel = axpy(bench, 1);
    let function = prepared(bench, &kernel);
    // The number a by itself, and the count.
    bench.note("cuParamSetf", bench.cuParamSetf(function, 16, 0.75));
    bench.note("cuParamSeti", bench.cuParamSeti(function, 20, 200));
    subject.say("axpy, numbers set by kind", launch(function, 1, 1, streams[0].1), kernel.seen());
    subject.say("no function", launch(null_mut(), 1, 1, streams[0].1), bench.settle());
}

/// `cuLaunch`.
pub(crate) fn one_block(subject: &Subject, launch: extern "C" fn(Handle) -> u32) {
    cases(subject, &crate::bench::NO_STREAM, false, |function, _, _, _| launch(function));
}

/// `cuLaunchGrid`.
pub(crate) fn grid(subject: &Subject, launch: extern "C" fn(Handle, c_int, c_int) -> u32) {
    cases(subject, &crate::bench::NO_STREAM, true, |function, width, height, _| launch(function, width, height));
}

/// `cuLaunchGridAsync`.
pub(crate) fn grid_async(subject: &Subject, launch: extern "C" fn(Handle, c_int, c_int, Handle) -> u32) {
    cases(subject, &subject.bench.streams(), true, |function, width, height, stream| {
        launch(function, width, height, stream)
    });
}
