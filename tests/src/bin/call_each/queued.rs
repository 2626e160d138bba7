//! Other work of a stream: host functions, callbacks, graphs.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::bench::{Bench, Handle, Subject, on};
use crate::kernels::axpy;

/// A host function: adds one to the number it is given.
extern "C" fn count(counter: *mut c_void) {
    // SAFETY: every case passes the address of a counter that outlives the stream's work.
    unsafe { &*counter.cast::<AtomicU32>() }.fetch_add(1, Ordering::SeqCst);
}

/// A callback: adds the status, and a hundred.
extern "C" fn call_back(_stream: Handle, status: u32, counter: *mut c_void) {
    // SAFETY: every case passes the address of a counter that outlives the stream's work.
    unsafe { &*counter.cast::<AtomicU32>() }.fetch_add(100 + status, Ordering::SeqCst);
}

type HostFunction = extern "C" fn(*mut c_void);
type Callback = extern "C" fn(Handle, u32, *mut c_void);

/// Queues something that counts and says how far it came.
fn counting(subject: &Subject, case: impl std::fmt::Display, queue: impl Fn(*mut c_void) -> u32) {
    let counter = AtomicU32::new(0);
    let result = queue((&raw const counter).cast_mut().cast());
    let settled = subject.bench.settle();
    subject.say(case, result, format_args!("{settled}counted {}", counter.load(Ordering::SeqCst)));
}

/// `cuLaunchHostFunc`.
pub(crate) fn host_function(
    subject: &Subject,
    launch: extern "C" fn(Handle, Option<HostFunction>, *mut c_void) -> u32,
) {
    for stream in subject.bench.streams() {
        counting(subject, format_args!("a function{}", on(stream)), |data| launch(stream.1, Some(count), data));
    }
    counting(subject, "no function", |data| launch(subject.bench.own_stream(), None, data));
}

/// `cuLaunchHostFunc_v2`.
pub(crate) fn host_function_2(
    subject: &Subject,
    launch: extern "C" fn(Handle, Option<HostFunction>, *mut c_void, u32) -> u32,
) {
    for stream in subject.bench.streams() {
        counting(subject, format_args!("a function{}", on(stream)), |data| launch(stream.1, Some(count), data, 0));
    }
    let stream = subject.bench.own_stream();
    counting(subject, "a function for which is spun", |data| launch(stream, Some(count), data, 1));
    counting(subject, "in an unknown mode", |data| launch(stream, Some(count), data, 99));
    counting(subject, "no function", |data| launch(stream, None, data, 0));
}

/// `cuStreamAddCallback`.
pub(crate) fn callback(subject: &Subject, add: extern "C" fn(Handle, Option<Callback>, *mut c_void, u32) -> u32) {
    for stream in subject.bench.streams() {
        counting(subject, format_args!("a callback{}", on(stream)), |data| add(stream.1, Some(call_back), data, 0));
    }
    let stream = subject.bench.own_stream();
    counting(subject, "no callback", |data| add(stream, None, data, 0));
    counting(subject, "unknown flags", |data| add(stream, Some(call_back), data, 99));
}

/// A graph of one kernel, recorded from a stream; null where that cannot be done.
fn recorded(bench: &Bench, function: Handle, parameters: *mut *mut c_void) -> Handle {
    const RELAXED: i32 = 2;
    let stream = bench.own_stream();
    let (mut graph, mut exec) = (null_mut(), null_mut());
    bench.note("cuStreamBeginCapture_v2", bench.cuStreamBeginCapture_v2(stream, RELAXED));
    bench.note("cuLaunchKernel", bench.cuLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, stream, parameters, null_mut()));
    bench.note("cuStreamEndCapture", bench.cuStreamEndCapture(stream, &mut graph));
    if !graph.is_null() {
        bench.note("cuGraphInstantiateWithFlags", bench.cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        bench.note("cuGraphDestroy", bench.cuGraphDestroy(graph));
    }
    exec
}

/// The cases of graphs; `times` is how often one case runs the graph's kernel.
fn graphs(subject: &Subject, times: usize, call: impl Fn(Handle, Handle) -> u32) {
    let bench = subject.bench;
    for stream in bench.streams() {
        let mut kernel = axpy(bench, times);
        let exec = recorded(bench, bench.function(kernel.name), kernel.pointers().as_mut_ptr());
        let result = call(exec, stream.1);
        subject.say(format_args!("a kernel{}", on(stream)), result, kernel.seen());
        if !exec.is_null() {
            bench.note("cuGraphExecDestroy", bench.cuGraphExecDestroy(exec));
        }
    }
    subject.say("no graph", call(null_mut(), bench.own_stream()), bench.settle());
}

/// `cuGraphLaunch`, three times.
pub(crate) fn launch_graph(subject: &Subject, launch: extern "C" fn(Handle, Handle) -> u32) {
    graphs(subject, 3, |exec, stream| (0..3).map(|_| launch(exec, stream)).find(|result| *result != 0).unwrap_or(0));
}

/// `cuGraphUpload`, and a launch to see that the graph is still good.
pub(crate) fn upload_graph(subject: &Subject, upload: extern "C" fn(Handle, Handle) -> u32) {
    graphs(subject, 1, |exec, stream| {
        let result = upload(exec, stream);
        if !exec.is_null() {
            subject.bench.note("cuGraphLaunch", subject.bench.cuGraphLaunch(exec, stream));
        }
        result
    });
}
