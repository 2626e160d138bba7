//! Checks that many calls share.

use std::sync::Arc;

use crate::device::Device;
use crate::errors::{Outcome, Status};
use crate::exec::context::{Context, STREAM_LEGACY};
use crate::exec::stack;
use crate::exec::submit::Default;
use crate::state::{self, Driver};

/// The device of that ordinal.
pub(super) fn device(ordinal: i32) -> Outcome<&'static Device> {
    state::driver()?.device(ordinal)
}

/// The current context, in working order, and the driver.
pub(super) fn current() -> Outcome<(Arc<Context>, &'static Driver)> {
    let context = stack::current()?;
    Ok((context, state::driver()?))
}

/// The context of a handle, or the current one for 0.
pub(super) fn context_or_current(handle: usize) -> Outcome<Arc<Context>> {
    if handle == 0 {
        return stack::current();
    }
    let driver = crate::state::driver()?;
    let context = driver.contexts.get(handle).map_err(|_| Status::INVALID_CONTEXT)?;
    context.check()?;
    Ok(context)
}

/// Fails if flags other than the known ones are set.
pub(super) fn only_flags(flags: u64, known: u64) -> Outcome {
    if flags & !known == 0 { Ok(()) } else { Err(Status::INVALID_VALUE) }
}

/// Fails if that is the legacy default stream by one of its names: it takes no batches.
pub(super) fn not_legacy(default: Default, stream: usize) -> Outcome {
    match (stream, default) {
        (STREAM_LEGACY, _) | (0, Default::Legacy) => Err(Status::INVALID_VALUE),
        _ => Ok(()),
    }
}

/// A count that has to fit an old call's 32 bits; more than that is shown as all of them.
pub(super) fn clamp32(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// Streams' priorities, from least to greatest.
pub(super) const PRIORITIES: (i32, i32) = (0, -5);
