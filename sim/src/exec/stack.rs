//! The contexts that are current in a thread, one on top of the other.

use std::cell::RefCell;
use std::sync::Arc;

use super::context::{API_VERSION, Context};
use crate::errors::{Outcome, Status};
use crate::state;

thread_local! {
    static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The current context, in working order.
pub(crate) fn current() -> Outcome<Arc<Context>> {
    let context = current_any()?;
    context.check()?;
    Ok(context)
}

/// The current context, whatever its state.
pub(crate) fn current_any() -> Outcome<Arc<Context>> {
    let handle = current_handle().ok_or(Status::INVALID_CONTEXT)?;
    let driver = state::driver()?;
    driver.contexts.get(handle).map_err(|_| Status::CONTEXT_IS_DESTROYED)
}

/// Fails if the current context is of the 64-bit API: that one's contexts do not take 32-bit calls.
pub(crate) fn forbid_new() -> Outcome {
    match current_any() {
        Ok(context) if context.api_version >= API_VERSION => Err(Status::INVALID_CONTEXT),
        _ => Ok(()),
    }
}

/// The handle of the current context, destroyed or not.
pub(crate) fn current_handle() -> Option<usize> {
    CURRENT.with_borrow(|stack| stack.last().copied())
}

/// Puts a context on top of the thread's stack.
pub(crate) fn push_current(handle: usize) {
    CURRENT.with_borrow_mut(|stack| stack.push(handle));
}

/// Takes the top off the thread's stack.
pub(crate) fn pop_current() -> Option<usize> {
    CURRENT.with_borrow_mut(Vec::pop)
}

/// Replaces the top of the thread's stack; 0 only takes it off.
pub(crate) fn set_current(handle: usize) {
    CURRENT.with_borrow_mut(|stack| {
        stack.pop();
        if handle != 0 {
            stack.push(handle);
        }
    });
}
