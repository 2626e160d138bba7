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
//!     //  of the 32-bit API: refused in a context of the 64-bit one
//!     old cuMemFree:           "cuMemFree" 2000             (address: u32)                    = free_old;
//!     //  with arguments that are looked at before all else, even before `cuInit` was called
//!     cuLaunchHostFunc:        "cuLaunchHostFunc" 10000     (stream: usize, f: usize) = host after is_there(f);
//! }
//! ```
//!
//! From one row come the exported functions and their lines in the table that `cuGetProcAddress` reads.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::errors::{Outcome, Status};
use crate::exec::stack;
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
    /// True if stream 0 is the thread's own here.
    pub(crate) twin: bool,
    pub(crate) address: usize,
}

/// A call's conditions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    Nothing,
    /// `cuInit` was called.
    Driver,
    /// Also: the current context, if there is one, is of the 32-bit API.
    OldContext,
}

impl Needs {
    fn check(self) -> Outcome {
        if self == Needs::Nothing {
            return Ok(());
        }
        state::driver()?;
        if is_stream_thread() {
            // A host function or a callback: it may make no calls, since its stream waits for it.
            return Err(Status::NOT_PERMITTED);
        }
        if self == Needs::OldContext { stack::forbid_new() } else { Ok(()) }
    }
}

/// While this lives, its thread is not cancelled: no call of this driver is a cancellation point. (A thread that ends cannot be unwound
/// through [`catch_unwind`].)
struct Uncancelled(i32);

impl Uncancelled {
    #[allow(unsafe_code, reason = "the C library's function")]
    fn set(state: i32) -> i32 {
        unsafe extern "C" {
            fn pthread_setcancelstate(state: i32, before: *mut i32) -> i32;
        }
        let mut before = state;
        // SAFETY: a state, and a place for the one before.
        unsafe { pthread_setcancelstate(state, &mut before) };
        before
    }

    fn begin() -> Uncancelled {
        const DISABLE: i32 = 1;
        Uncancelled(Self::set(DISABLE))
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        Self::set(self.0);
    }
}

/// Runs a call, after its look at the arguments; its result as the program gets it.
pub(crate) fn enter(
    symbol: &'static str,
    needs: Needs,
    first: impl FnOnce() -> Outcome,
    call: impl FnOnce() -> Outcome,
) -> u32 {
    let _uncancelled = Uncancelled::begin();
    let fails = baton_faults::fails(symbol);
    if fails != 0 {
        return fails;
    }
    let guarded = AssertUnwindSafe(|| {
        first()?;
        needs.check()?;
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
    ($table:ident; old $($rest:tt)*) => {
        $crate::door::doors_table!($table; $($rest)*);
    };
    ($table:ident; $symbol:ident: $base:literal $version:literal ($($args:tt)*) = $f:ident $(after $first:ident $look:tt)?;
     $($rest:tt)*) => {
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
     ($($args:tt)*) = $f:ident $(after $first:ident $look:tt)?; $($rest:tt)*) => {
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
    (early $($rest:tt)*) => {
        $crate::door::doors_exports!(Nothing $($rest)*);
    };
    (old $($rest:tt)*) => {
        $crate::door::doors_exports!(OldContext $($rest)*);
    };
    ($needs:ident $symbol:ident: $base:literal $version:literal ($($arg:ident: $type:ty),* $(,)?)
     = $f:ident $(after $first:ident ($($look:ident),*))?; $($rest:tt)*) => {
        $crate::door::doors_export!(
            $needs, $symbol, ($($arg: $type),*), $f, [$($first ($($look),*))?], ($($arg),*)
        );
        $crate::door::doors_exports!($($rest)*);
    };
    ($symbol:ident: $($rest:tt)*) => {
        $crate::door::doors_exports!(Driver $symbol: $($rest)*);
    };
    ($symbol:ident / $twin:ident: $base:literal $version:literal / $twin_version:literal
     ($($arg:ident: $type:ty),* $(,)?) = $f:ident $(after $first:ident ($($look:ident),*))?;
     $($rest:tt)*) => {
        $crate::door::doors_export!(
            Driver, $symbol, ($($arg: $type),*), $f,
            [$($first ($crate::exec::submit::Default::Legacy, $($look),*))?],
            ($crate::exec::submit::Default::Legacy, $($arg),*)
        );
        $crate::door::doors_export!(
            Driver, $twin, ($($arg: $type),*), $f,
            [$($first ($crate::exec::submit::Default::PerThread, $($look),*))?],
            ($crate::exec::submit::Default::PerThread, $($arg),*)
        );
        $crate::door::doors_exports!($($rest)*);
    };
}

macro_rules! doors_export {
    ($needs:ident, $symbol:ident, $declared:tt, $f:ident, [], $given:tt) => {
        $crate::door::doors_export!($needs, $symbol, $declared, self::$f $given, Ok(()));
    };
    ($needs:ident, $symbol:ident, $declared:tt, $f:ident, [$first:ident $look:tt], $given:tt) => {
        $crate::door::doors_export!($needs, $symbol, $declared, self::$f $given, self::$first $look);
    };
    ($needs:ident, $symbol:ident, ($($arg:ident: $type:ty),*), $call:expr, $first:expr) => {
        #[allow(non_snake_case, clippy::too_many_arguments)]
        #[allow(unsafe_code, reason = "the name is the driver's, which is the point of this library")]
        // In the unit tests the names stay the tests' own: a test may have a real driver beside it.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) extern "C" fn $symbol($($arg: $type),*) -> u32 {
            $crate::door::enter(stringify!($symbol), $crate::door::Needs::$needs, || $first, || $call)
        }
    };
}

pub(crate) use {doors, doors_export, doors_exports, doors_table};
