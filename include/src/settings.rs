//! The environment variables a user may set. One constant each, so that a search finds every reader.

/// Absolute path of the CUDA driver to use instead of the one the loader would find.
pub const DRIVER: &core::ffi::CStr = c"BATON_DRIVER";

/// `counts` or `calls`: list the program's driver calls, summed at exit or also one by one.
pub const TRACE: &core::ffi::CStr = c"BATON_TRACE";

/// Where the trace goes instead of standard error; `%p` stands for the process id, and a name that
/// ends in `.json` gets JSON.
pub const TRACE_FILE: &core::ffi::CStr = c"BATON_TRACE_FILE";
