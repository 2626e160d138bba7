//! `cuEvent*`.

use std::sync::Arc;

use super::arguments::{current, only_flags};
use crate::border::Out;
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::event::Event;
use crate::exec::shared_event::SharedEvent;
use crate::exec::submit::{self, Default};
use crate::graph::capture::{self, Capture};
use crate::state;

doors! {
    cuEventCreate: "cuEventCreate" 2000 (out: Out<usize>, flags: u32) = create;
    cuEventDestroy: "cuEventDestroy" 2000 (event: usize) = destroy;
    cuEventDestroy_v2: "cuEventDestroy" 4000 (event: usize) = destroy;
    cuEventRecord / cuEventRecord_ptsz: "cuEventRecord" 2000 / 7000 (event: usize, stream: usize) = record;
    cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz: "cuEventRecordWithFlags" 11010 / 11010
        (event: usize, stream: usize, flags: u32) = record_with_flags;
    cuEventQuery: "cuEventQuery" 2000 (event: usize) = query;
    cuEventSynchronize: "cuEventSynchronize" 2000 (event: usize) = synchronize;
    cuEventElapsedTime: "cuEventElapsedTime" 2000 (out: Out<f32>, start: usize, end: usize) = elapsed;
    cuEventElapsedTime_v2: "cuEventElapsedTime" 12080 (out: Out<f32>, start: usize, end: usize) = elapsed;
}

/// Blocking wait, no timing, between processes.
const KNOWN_FLAGS: u64 = 7;
const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;
const EXTERNAL: u32 = 1;

fn create(out: Out<usize>, flags: u32) -> Outcome {
    let (context, driver) = current()?;
    out.required()?;
    only_flags(flags.into(), KNOWN_FLAGS)?;
    let is_shared = flags & INTERPROCESS != 0;
    if is_shared && flags & DISABLE_TIMING == 0 {
        return Err(Status::INVALID_VALUE);
    }
    context.pass_objects();
    let handle = driver.events.draw();
    let event = match is_shared {
        false => Event::new(handle, flags, context.id),
        true => Event::shared(handle, context.id, SharedEvent::make()?),
    };
    driver.events.put(handle, Arc::new(event));
    out.set(handle)
}

fn destroy(event: usize) -> Outcome {
    let driver = state::driver()?;
    driver.common.check()?;
    let found = driver.events.get(event)?;
    if let Some((_, context)) = driver.contexts.find(|context| context.id == found.context_id) {
        context.pass_objects();
    }
    driver.events.remove(event).map(drop)
}

fn record(default: Default, event: usize, stream: usize) -> Outcome {
    record_with_flags(default, event, stream, 0)
}

fn record_with_flags(default: Default, event: usize, stream: usize, flags: u32) -> Outcome {
    let driver = submit::need_context(stream)?;
    only_flags(flags.into(), EXTERNAL.into())?;
    let event = driver.events.get(event)?;
    let stream = submit::resolve(default, stream)?;
    if event.context_id != stream.context_id {
        return Err(Status::INVALID_HANDLE);
    }
    submit::record(&stream, &event, flags & EXTERNAL != 0)
}

fn find(event: usize) -> Outcome<Arc<Event>> {
    // It brings its context: none has to be current.
    let driver = state::driver()?;
    let event = driver.events.get(event)?;
    driver.common.check()?;
    if let Some(tail) = event.captured() {
        Capture::of(&tail).invalidate();
        return Err(Status::CAPTURED_EVENT);
    }
    Ok(event)
}

fn query(event: usize) -> Outcome {
    let event = find(event)?;
    capture::forbid_unsafe_call()?;
    if event.shared.as_ref().is_some_and(|shared| !shared.is_reached(shared.last())) {
        return Err(Status::NOT_READY);
    }
    match event.ticket()? {
        Some(ticket) if !ticket.is_done() => Err(Status::NOT_READY),
        _ => state::driver()?.common.check(),
    }
}

fn synchronize(event: usize) -> Outcome {
    let event = find(event)?;
    capture::forbid_unsafe_call()?;
    let driver = state::driver()?;
    if let Some(shared) = &event.shared {
        shared.wait(shared.last(), || false);
    }
    if let Some(ticket) = event.ticket()? {
        ticket.wait();
        driver.common.observe(&[ticket]);
    }
    driver.common.check()
}

fn elapsed(out: Out<f32>, start: usize, end: usize) -> Outcome {
    // As the driver has it, which says so of a missing place for the answer too.
    out.required().map_err(|_| Status::INVALID_HANDLE)?;
    let (start, end) = (find(start)?, find(end)?);
    out.set(Event::elapsed(&start, &end)?.milliseconds())
}
