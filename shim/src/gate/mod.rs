//! The gate: every call that touches device memory passes it, and it can be closed.
//!
//! A call costs the program a store and a load. Each thread has an **in-call word**, which counts the calls that the thread is inside of.
//! To pass, a thread raises its word and then reads the gate. A nested call (from a thread that is inside already) never waits; only a
//! thread whose thread-locals are gone already cannot tell, and waits. A forked child is a new process: its gate is open, and only the
//! thread that forked can be inside.
//!
//! - [`protocol`]: the states, and how the two sides see each other.
//! - `word`: finds a thread's word. `passage`: the program's side. `closing`: the session's.
//! - `exclusive`: calls that keep others out of their context.
//! - `activity`: declares to other processes that we are at work, and waits while they are.
//! - `stamps`: the times when requests begin and end.

pub(crate) mod activity;
mod closing;
mod exclusive;
mod passage;
pub(crate) mod protocol;
pub(crate) mod stamps;
mod sync;
mod word;

pub(crate) use closing::{
    Held, activity, all_here, arriving, close, decided, finish_holding, hold, inside, is_resting, let_through, open,
    prepare, rest, rest_alone, set_broken, set_contended, work_on,
};
pub(crate) use exclusive::KeptOff;
pub(crate) use passage::{
    Exclusive, Keeper, MappingGuard, Passage, begin_work_on, check, checked, enter_in_any_state, is_contended,
    is_waited_at, keep, lock_mappings, lock_mappings_if_open, may_lack, pass, pass_if_open, start_anew,
};

#[cfg(test)]
pub(crate) mod tests;
