//! Fault points: named places in shim, coordinator and keeper where a test kills, stops or delays a process.
//!
//! A process tells the board that it has reached a point ([`reach`]). The board is a file that all processes of a test share; the variable
//! [`BOARD`] names it. It counts how often each point was reached, and has one strike at a time: the next process that reaches the
//! strike's point kills or stops itself or another process, or waits.
//!
//! Only debug builds have points. In a release build [`reach`] is empty.

// In a release build no process reaches a point; tests still compile.
#[cfg_attr(not(debug_assertions), allow(dead_code))]
mod board;
#[cfg_attr(not(debug_assertions), allow(dead_code))]
mod point;

pub use board::{Board, By, Strike, Victim};

/// The variable that names the board's file.
pub const BOARD: &str = "BATON_TEST_FAULTS";

/// A role that one process has at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It serves.
    Coordinator,
    /// It holds what the next coordinator needs.
    Keeper,
    /// It is about to serve.
    Starting,
}

/// This process has a role from now on.
#[inline]
pub fn begin_as(role: Role) {
    #[cfg(debug_assertions)]
    if let Some(board) = board::of_this_process() {
        board.is(role);
    }
    #[cfg(not(debug_assertions))]
    let _ = role;
}

/// This process is at a point: `doing` something with a thing whose `Debug` form begins with its kind.
#[inline]
pub fn reach(doing: &'static str, thing: &dyn core::fmt::Debug) {
    #[cfg(debug_assertions)]
    if let Some(board) = board::of_this_process() {
        board.reached(&point::Name::of(doing, thing));
    }
    #[cfg(not(debug_assertions))]
    let _ = (doing, thing);
}

/// A coordinator is about to make a call, which is to fail with this error if it is not 0.
#[inline]
pub fn fails(call: &'static str) -> u32 {
    #[cfg(debug_assertions)]
    if let Some(board) = board::of_this_process().filter(|board| board.is_of_coordinator()) {
        return board.reached(&point::Name::of("coordinator calls", &format_args!("{call}")));
    }
    let _ = call;
    0
}

/// The kind of a thing that is gone when a point is reached.
#[derive(Clone, Copy)]
pub struct Kind(#[cfg(debug_assertions)] point::Name);

impl Kind {
    /// The kind of this.
    #[inline]
    pub fn of(thing: &dyn core::fmt::Debug) -> Self {
        #[cfg(debug_assertions)]
        return Self(point::Name::of("", thing));
        #[cfg(not(debug_assertions))]
        {
            let _ = thing;
            Self()
        }
    }
}

impl core::fmt::Debug for Kind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        #[cfg(debug_assertions)]
        f.write_str(&String::from_utf8_lossy(self.0.as_bytes().trim_ascii()))?;
        let _ = f;
        Ok(())
    }
}
