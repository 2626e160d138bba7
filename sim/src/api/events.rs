//! `cuEvent*`.

use std::sync::Arc;

use super::arguments::{current, only_flags};
use crate::border::Out;
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::event::Event;
use crate::exec::submit::{self, Default};
use crate::graph::capture;
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
    if flags & INTERPROCESS != 0 {
        // The driver takes it without timing only; here it is not shared at all.
        let timed = flags & DISABLE_TIMING == 0;
        return Err(if timed { Status::INVALID_VALUE } else { Status::NOT_SUPPORTED });
    }
    context.locks.pass_objects();
    let handle = driver.events.draw();
    driver.events.put(handle, Arc::new(Event::new(handle, flags, context.id)));
    out.set(handle)
}

fn destroy(event: usize) -> Outcome {
    let driver = state::driver()?;
    driver.check()?;
    let found = driver.events.get(event)?;
    if let Some((_, context)) = driver.contexts.find(|context| context.id == found.context_id) {
        context.locks.pass_objects();
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
    driver.check()?;
    if let Some(tail) = event.captured() {
        tail.capture.invalidate();
        return Err(Status::CAPTURED_EVENT);
    }
    Ok(event)
}

fn query(event: usize) -> Outcome {
    let event = find(event)?;
    capture::forbid_unsafe_call()?;
    match event.ticket()? {
        Some(ticket) if !ticket.is_done() => Err(Status::NOT_READY),
        _ => state::driver()?.check(),
    }
}

fn synchronize(event: usize) -> Outcome {
    let event = find(event)?;
    capture::forbid_unsafe_call()?;
    let driver = state::driver()?;
    if let Some(ticket) = event.ticket()? {
        ticket.wait();
        driver.observe(&[ticket]);
    }
    driver.check()
}

fn elapsed(out: Out<f32>, start: usize, end: usize) -> Outcome {
    // As the driver has it, which says so of a missing place for the answer too.
    out.required().map_err(|_| Status::INVALID_HANDLE)?;
    let (start, end) = (find(start)?, find(end)?);
    out.set(Event::elapsed(&start, &end)?.milliseconds())
}
