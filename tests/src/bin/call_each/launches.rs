//! Launches of kernels, in every form that takes a kernel's shape with the call.

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::bench::{Handle, Stream, Subject, on};
use crate::kernels::{ALL, Kernel, add, add_struct};

/// The arguments of a launch.
#[derive(Clone, Copy)]
struct Launch {
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Handle,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
}

/// The change that makes a launch wrong.
type Spoil = fn(&mut Launch);

/// Launches that are wrong before anything runs. They have a function and arguments otherwise.
const WRONG: [(&str, Spoil); 8] = [
    ("no function", |launch| launch.function = null_mut()),
    ("no blocks", |launch| launch.grid = [0, 1, 1]),
    ("no layers of blocks", |launch| launch.grid = [1, 1, 0]),
    ("no threads", |launch| launch.block = [0, 1, 1]),
    ("2048 threads", |launch| launch.block = [2048, 1, 1]),
    ("65 layers of threads", |launch| launch.block = [1, 1, 65]),
    ("1 MiB of shared memory", |launch| launch.shared = 1 << 20),
    ("no arguments", |launch| launch.parameters = null_mut()),
];

/// Runs the cases that every form of launch shares.
fn cases(subject: &Subject, streams: &[Stream], launch: impl Fn(Launch) -> u32) {
    let bench = subject.bench;
    let usual = |kernel: &Kernel, pointers: &mut [*mut c_void], stream: Stream| Launch {
        function: bench.function(kernel.name),
        grid: [2, 1, 1],
        block: [64, 1, 1],
        shared: 0,
        stream: stream.1,
        parameters: pointers.as_mut_ptr(),
        extra: null_mut(),
    };
    let run = |case: &str, mut kernel: Kernel, stream: Stream, change: &dyn Fn(&mut Launch)| {
        let mut pointers = kernel.pointers();
        let mut given = usual(&kernel, &mut pointers, stream);
        change(&mut given);
        subject.say(format_args!("{case}{}", on(stream)), launch(given), kernel.seen());
    };
    for stream in &streams[1..] {
        run("add", add(bench), *stream, &|_| ());
    }
    for (case, make) in ALL {
        run(case, make(bench), streams[0], &|_| ());
    }
    for (case, make) in ALL {
        let kernel = make(bench);
        let handle = bench.kernel(kernel.name);
        run(&format!("{case} by CUkernel"), kernel, streams[0], &|launch| launch.function = handle);
    }
    run("add in three blocks", add(bench), streams[0], &|launch| launch.grid = [3, 1, 1]);
    run("add with shared memory", add(bench), streams[0], &|launch| launch.shared = 4096);
    for (case, spoil) in WRONG {
        let mut kernel = add(bench);
        let mut pointers = kernel.pointers();
        let mut given = usual(&kernel, &mut pointers, streams[0]);
        spoil(&mut given);
        subject.say(case, launch(given), kernel.untouched());
    }
}

/// The cases of arguments in one buffer, in the forms that take one. A buffer that is too short is not
/// tried: NVIDIA's driver launches the kernel with what lies behind it.
fn buffers(subject: &Subject, stream: Stream, launch: impl Fn(Launch) -> u32) {
    const BUFFER: usize = 1;
    const SIZE: usize = 2;
    let bench = subject.bench;
    let run = |case: &str, mut kernel: Kernel, by_kernel: bool, also_pointers: bool| {
        let (mut buffer, _) = kernel.buffer();
        let mut size = buffer.len();
        let mut extra = [
            BUFFER as *mut c_void,
            buffer.as_mut_ptr().cast(),
            SIZE as *mut c_void,
            (&raw mut size).cast(),
            null_mut(),
        ];
        let mut pointers = kernel.pointers();
        let result = launch(Launch {
            function: if by_kernel { bench.kernel(kernel.name) } else { bench.function(kernel.name) },
            grid: [2, 1, 1],
            block: [64, 1, 1],
            shared: 0,
            stream: stream.1,
            parameters: if also_pointers { pointers.as_mut_ptr() } else { null_mut() },
            extra: extra.as_mut_ptr(),
        });
        subject.say(case, result, if also_pointers { kernel.untouched() } else { kernel.seen() });
    };
    for (case, make) in ALL {
        run(&format!("{case}, arguments in a buffer"), make(bench), false, false);
    }
    run("add by CUkernel, arguments in a buffer", add(bench), true, false);
    run("add_struct by CUkernel, arguments in a buffer", add_struct(bench), true, false);
    run("arguments twice", add(bench), false, true);
}

/// The type of `cuLaunchKernel`.
type LaunchKernel =
    extern "C" fn(Handle, u32, u32, u32, u32, u32, u32, u32, Handle, *mut *mut c_void, *mut *mut c_void) -> u32;

/// `cuLaunchKernel`.
pub(crate) fn kernel(subject: &Subject, launch: LaunchKernel) {
    let launch = |given: Launch| {
        let Launch { function, grid, block, shared, stream, parameters, extra } = given;
        let ([x, y, z], [i, j, k]) = (grid, block);
        launch(function, x, y, z, i, j, k, shared, stream, parameters, extra)
    };
    cases(subject, &subject.bench.streams(), launch);
    buffers(subject, subject.bench.streams()[0], launch);
}

/// `CUlaunchAttribute`: a number, and a value whose first words are set.
#[repr(C)]
#[derive(Clone, Copy)]
struct Attribute {
    id: u32,
    padding: u32,
    value: [u32; 16],
}

fn attribute(id: u32, first: [u32; 3]) -> Attribute {
    let mut value = [0; 16];
    value[..3].copy_from_slice(&first);
    Attribute { id, padding: 0, value }
}

/// `CUlaunchConfig`.
#[repr(C)]
struct Configuration {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Handle,
    attributes: *mut Attribute,
    count: u32,
}

/// `cuLaunchKernelEx`.
pub(crate) fn extended(
    subject: &Subject,
    launch: extern "C" fn(*const c_void, Handle, *mut *mut c_void, *mut *mut c_void) -> u32,
) {
    let with = |given: Launch, attributes: &mut [Attribute]| {
        let Launch { function, grid, block, shared, stream, parameters, extra } = given;
        let count = attributes.len() as u32;
        let configuration = Configuration { grid, block, shared, stream, attributes: attributes.as_mut_ptr(), count };
        launch((&raw const configuration).cast(), function, parameters, extra)
    };
    let bench = subject.bench;
    cases(subject, &bench.streams(), |given| with(given, &mut []));
    buffers(subject, bench.streams()[0], |given| with(given, &mut []));

    const IGNORE: u32 = 0;
    const COOPERATIVE: u32 = 2;
    const CLUSTER: u32 = 4;
    const SERIAL: u32 = 6;
    const PRIORITY: u32 = 8;
    for (case, mut attributes) in [
        ("ignored attribute", vec![attribute(IGNORE, [0; 3])]),
        ("cooperative", vec![attribute(COOPERATIVE, [1, 0, 0])]),
        ("clusters of one", vec![attribute(CLUSTER, [1, 1, 1])]),
        ("programmatic serialization", vec![attribute(SERIAL, [1, 0, 0])]),
        ("two attributes", vec![attribute(COOPERATIVE, [0, 0, 0]), attribute(PRIORITY, [0, 0, 0])]),
    ] {
        let mut kernel = add(bench);
        let mut pointers = kernel.pointers();
        let given = Launch {
            function: bench.function(kernel.name),
            grid: [2, 1, 1],
            block: [64, 1, 1],
            shared: 0,
            stream: bench.own_stream(),
            parameters: pointers.as_mut_ptr(),
            extra: null_mut(),
        };
        subject.say(format_args!("add, {case}"), with(given, &mut attributes), kernel.seen());
    }
    let mut kernel = add(bench);
    let function = bench.function(kernel.name);
    let result = launch(std::ptr::null(), function, kernel.pointers().as_mut_ptr(), null_mut());
    subject.say("no configuration", result, kernel.untouched());
}

/// The type of `cuLaunchCooperativeKernel`.
type LaunchCooperative = extern "C" fn(Handle, u32, u32, u32, u32, u32, u32, u32, Handle, *mut *mut c_void) -> u32;

/// `cuLaunchCooperativeKernel`.
pub(crate) fn cooperative(subject: &Subject, launch: LaunchCooperative) {
    let bench = subject.bench;
    let launch = |given: Launch| {
        let Launch { function, grid, block, shared, stream, parameters, .. } = given;
        let ([x, y, z], [i, j, k]) = (grid, block);
        launch(function, x, y, z, i, j, k, shared, stream, parameters)
    };
    cases(subject, &bench.streams(), launch);
    let mut kernel = add(bench);
    let result = launch(Launch {
        function: bench.function(kernel.name),
        grid: [1 << 20, 1, 1],
        block: [1024, 1, 1],
        shared: 0,
        stream: bench.own_stream(),
        parameters: kernel.pointers().as_mut_ptr(),
        extra: null_mut(),
    });
    subject.say("more blocks than fit", result, kernel.untouched());
}

/// `CUDA_LAUNCH_PARAMS`.
#[repr(C)]
struct DeviceLaunch {
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Handle,
    parameters: *mut *mut c_void,
}

/// `cuLaunchCooperativeKernelMultiDevice`, for one device. It takes no default stream.
pub(crate) fn cooperative_devices(subject: &Subject, launch: extern "C" fn(*mut c_void, u32, u32) -> u32) {
    let streams = &subject.bench.streams()[..1];
    cases(subject, streams, |given| {
        let Launch { function, grid, block, shared, stream, parameters, .. } = given;
        let mut one = DeviceLaunch { function, grid, block, shared, stream, parameters };
        launch((&raw mut one).cast(), 1, 0)
    });
    subject.say("no devices", launch(null_mut(), 0, 0), subject.bench.settle());
}
