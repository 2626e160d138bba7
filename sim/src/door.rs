//! The door: how every call of the program comes in and goes out, and the table that exports are made from.
//!
//! ```text
//! doors! {
//!     //  symbol               entry of the driver's list   parameters                        function
//!     cuMemAlloc_v2:           "cuMemAlloc" 3020            (out: Out<u64>, bytes: usize)     = alloc;
//!     //  with the twin for per-thread default streams; the function gets a `Default` first
//!     cuMemcpy / cuMemcpy_ptds: "cuMemcpy" 4000 / 7000      (dst: u64, src: u64, bytes: usize) = copy;
//!     //  works before `cuInit`
//!     early cuDriverGetVersion: "cuDriverGetVersion" 2020   (out: Out<i32>)                   = version;
//! }
//! ```
//!
//! From one row come the exported functions and their lines in the table that `cuGetProcAddress` reads.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::errors::{Outcome, Status};
use crate::exec::stream::is_stream_thread;
use crate::state;

/// One exported entry point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// The name that `cuGetProcAddress` is asked for.
    pub(crate) base: &'static str,
    /// The exported name.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the tests that compare it with the driver's list"))]
    pub(crate) symbol: &'static str,
    /// The first CUDA version that has it.
    pub(crate) version: u32,
    /// Whether stream 0 is the thread's own here.
    pub(crate) twin: bool,
    pub(crate) address: usize,
}

/// Runs a call; its result as the program gets it.
pub(crate) fn enter(early: bool, call: impl FnOnce() -> Outcome) -> u32 {
    let guarded = AssertUnwindSafe(|| {
        if !early {
            state::driver()?;
            if is_stream_thread() {
                // A host function or a callback: it may make no calls, since its stream waits for it.
                return Err(Status::NOT_PERMITTED);
            }
        }
        call()
    });
    // The message of a panic went to standard error; the program sees a driver that failed.
    match catch_unwind(guarded).unwrap_or(Err(Status::UNKNOWN)) {
        Ok(()) => 0,
        Err(status) => status.code(),
    }
}

/// Makes exports from rows; see the module's description.
macro_rules! doors {
    ($($rows:tt)*) => {
        /// This file's rows of the table of exports.
        pub(super) fn rows(table: &mut Vec<$crate::door::Row>) {
            $crate::door::doors_table!(table; $($rows)*);
        }
        $crate::door::doors_exports!($($rows)*);
    };
}

macro_rules! doors_table {
    ($table:ident;) => {};
    ($table:ident; early $($rest:tt)*) => {
        $crate::door::doors_table!($table; $($rest)*);
    };
    ($table:ident; $symbol:ident: $base:literal $version:literal ($($args:tt)*) = $f:ident; $($rest:tt)*) => {
        $table.push($crate::door::Row {
            base: $base,
            symbol: stringify!($symbol),
            version: $version,
            twin: false,
            address: $symbol as *const () as usize,
        });
        $crate::door::doors_table!($table; $($rest)*);
    };
    ($table:ident; $symbol:ident / $twin:ident: $base:literal $version:literal / $twin_version:literal
     ($($args:tt)*) = $f:ident; $($rest:tt)*) => {
        $crate::door::doors_table!($table; $symbol: $base $version ($($args)*) = $f;);
        $table.push($crate::door::Row {
            base: $base,
            symbol: stringify!($twin),
            version: $twin_version,
            twin: true,
            address: $twin as *const () as usize,
        });
        $crate::door::doors_table!($table; $($rest)*);
    };
}

macro_rules! doors_exports {
    () => {};
    (early $symbol:ident: $base:literal $version:literal ($($arg:ident: $type:ty),* $(,)?) = $f:ident;
     $($rest:tt)*) => {
        $crate::door::doors_export!(true, $symbol, ($($arg: $type),*), self::$f($($arg),*));
        $crate::door::doors_exports!($($rest)*);
    };
    ($symbol:ident: $base:literal $version:literal ($($arg:ident: $type:ty),* $(,)?) = $f:ident;
     $($rest:tt)*) => {
        $crate::door::doors_export!(false, $symbol, ($($arg: $type),*), self::$f($($arg),*));
        $crate::door::doors_exports!($($rest)*);
    };
    ($symbol:ident / $twin:ident: $base:literal $version:literal / $twin_version:literal
     ($($arg:ident: $type:ty),* $(,)?) = $f:ident; $($rest:tt)*) => {
        $crate::door::doors_export!(
            false, $symbol, ($($arg: $type),*),
            self::$f($crate::exec::submit::Default::Legacy, $($arg),*)
        );
        $crate::door::doors_export!(
            false, $twin, ($($arg: $type),*),
            self::$f($crate::exec::submit::Default::PerThread, $($arg),*)
        );
        $crate::door::doors_exports!($($rest)*);
    };
}

macro_rules! doors_export {
    ($early:literal, $symbol:ident, ($($arg:ident: $type:ty),*), $call:expr) => {
        #[allow(non_snake_case, clippy::too_many_arguments)]
        #[allow(unsafe_code, reason = "the name is the driver's, which is the point of this library")]
        // In the unit tests the names stay the tests' own: a test may have a real driver beside it.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) extern "C" fn $symbol($($arg: $type),*) -> u32 {
            $crate::door::enter($early, || $call)
        }
    };
}

pub(crate) use {doors, doors_export, doors_exports, doors_table};
