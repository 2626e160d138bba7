//! Generated programs: random, legal, and the same in every run.
//!
//! A [`Program`] is a list of operations on numbered slots, each by one of several threads, in one order. The
//! [`model`] walks through that order as a driver would, leaves out what is not legal where it stands (a stream that is not
//! there, an allocation while another thread captures), adds the events that keep accesses to the same memory in order, and
//! writes down a [`Script`]: for each thread its calls, and which calls of other threads they must come after. Between those
//! the threads run as they like.
//!
//! A script ends, however its threads interleave: a call may wait only for steps that come earlier in the program's order. That
//! is what the model keeps books for: which waits for flags each stream, event and context may still be behind, and who is
//! left to release them. It computes the same in every run: accesses that conflict are ordered, and all that is printed is
//! known by then.
//!
//! Leaving out an operation leaves a program as legal as before, so programs shrink by leaving out operations.
//!
//! - [`program`]: programs, and [`draw`]: drawing them by chance
//! - [`model`]: from a program to a script
//! - [`script`]: scripts, which the program `generated_program` executes
//! - [`shrink`]: the strategy, whose failing programs become small
//! - [`exchange`]: programs of two processes that share memory, which are drawn as they are executed
//! - [`trial`]: a script bare and under Baton
//! - [`hunt`]: many of them, in search of one that fails

mod dice;
pub mod draw;
pub mod exchange;
pub mod hunt;
pub mod model;
pub mod program;
pub mod script;
pub mod shrink;
pub mod trial;

pub(crate) use dice::Dice;
pub use program::Program;
pub use script::Script;
