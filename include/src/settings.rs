//! The environment variables that a user may set. One constant each, so that a search finds every reader.

/// Absolute path of the CUDA driver to use instead of the one the loader would find.
pub const DRIVER: &core::ffi::CStr = c"BATON_DRIVER";

/// `counts` or `calls`: list the program's driver calls, summed at exit or also one by one.
pub const TRACE: &core::ffi::CStr = c"BATON_TRACE";

/// File of the trace instead of standard error; `%p` stands for the process id, and a name that ends in `.json` gets JSON.
pub const TRACE_FILE: &core::ffi::CStr = c"BATON_TRACE_FILE";

/// Socket of the coordinator to join, instead of the one at the usual place.
pub const SOCKET: &core::ffi::CStr = c"BATON_SOCKET";

/// Folder with a socket for each GPU's coordinator, instead of the usual folder. `baton run` sets it on a machine with several
/// GPUs, so that a program finds the coordinator of the GPU that it takes.
pub const FOLDER: &core::ffi::CStr = c"BATON_FOLDER";

/// The tenant's name; the program's own name if not set.
pub const NAME: &core::ffi::CStr = c"BATON_NAME";

/// The tenant's class: `latency`, `normal` or `batch`.
pub const CLASS: &core::ffi::CStr = c"BATON_CLASS";

/// Its weight among its class, 1 to 1000, for `normal` and `batch`.
pub const WEIGHT: &core::ffi::CStr = c"BATON_WEIGHT";

/// Target for its requests, in microseconds, for `latency`.
pub const SLO_MICROS: &core::ffi::CStr = c"BATON_SLO_MICROS";

/// Memory that the program needs in arena and host pool together, in bytes: it joins when this is free, and it is then kept for it.
pub const NEEDS: &core::ffi::CStr = c"BATON_NEEDS";

/// Set by `baton run --needs`: a number that all processes of one run have in common, so that they share what the run needs.
pub const RUN: &core::ffi::CStr = c"BATON_RUN";

/// Set by `baton run --gang`: the number of the program's gang, whose programs have the GPU at the same time, on all GPUs.
pub const GANG: &core::ffi::CStr = c"BATON_GANG";

/// `whole`: no call of this program runs before all its memory is back after an eviction. For programs that reach memory in
/// ways that cannot be seen, such as pointers that kernels hide in a module's variables.
pub const GATE: &core::ffi::CStr = c"BATON_GATE";

/// `whole`: functions of the driver that are newer than this library run while all of the program's memory is on the GPU. Otherwise the
/// program is told that there are none.
pub const UNKNOWN: &core::ffi::CStr = c"BATON_UNKNOWN";

/// `driver`: memory that the program exports by descriptors becomes the driver's own, in one piece that stays where it is. Programs outside
/// of Baton can import that, and nothing else.
pub const EXPORT: &core::ffi::CStr = c"BATON_EXPORT";

/// A file for the library's messages, instead of standard error.
pub const LOG: &core::ffi::CStr = c"BATON_LOG";

/// `1`: join no coordinator; every call goes to the driver.
pub const DISABLE: &core::ffi::CStr = c"BATON_DISABLE";

/// `1`: a program that takes the GPU and cannot join a coordinator ends, with exit code 125, instead of going on without. With
/// a GPU's UUID, in the spelling of [`crate::socket_path::gpu_name`], instead of `1`: the same, but other GPUs for which there
/// is no coordinator are used as if Baton were not there.
pub const REQUIRE: &core::ffi::CStr = c"BATON_REQUIRE";

/// UUID of the GPU that is shared, in the spelling of [`crate::socket_path::gpu_name`]. Programs use other GPUs as if Baton
/// were not there.
pub const GPU: &core::ffi::CStr = c"BATON_GPU";

/// Set by `baton run` for the library: a descriptor that makes the coordinator wait for this program, to be closed once it has joined.
pub const CONNECTION: &core::ffi::CStr = c"BATON_CONNECTION";
