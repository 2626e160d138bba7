//! `cuIpc*`: memory of `cuMemAlloc` and events that other processes open.

use std::os::fd::AsFd;
use std::sync::Arc;

use super::arguments::current;
use crate::border::Out;
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::event::Event;
use crate::exec::shared_event::SharedEvent;
use crate::memory::phys::Phys;
use crate::shared_file::IpcHandle;

doors! {
    cuIpcGetMemHandle: "cuIpcGetMemHandle" 4010 (out: Out<IpcHandle>, address: u64) = get;
    cuIpcOpenMemHandle: "cuIpcOpenMemHandle" 4010 (out: Out<u64>, handle: IpcHandle, flags: u32) = open;
    cuIpcOpenMemHandle_v2: "cuIpcOpenMemHandle" 11000 (out: Out<u64>, handle: IpcHandle, flags: u32) = open;
    cuIpcCloseMemHandle: "cuIpcCloseMemHandle" 4010 (address: u64) = close;
    cuIpcGetEventHandle: "cuIpcGetEventHandle" 4010 (out: Out<IpcHandle>, event: usize) = get_event;
    cuIpcOpenEventHandle: "cuIpcOpenEventHandle" 4010 (out: Out<usize>, handle: IpcHandle) = open_event;
}

const MEMORY: u64 = 0x4D45_4D53_4955_4344;
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`; other flags are not looked at.
const LAZY: u32 = 1;

/// A handle of the whole allocation, wherever in it the address is.
fn get(out: Out<IpcHandle>, address: u64) -> Outcome {
    out.required()?;
    let (_, driver) = current()?;
    // While its memory changes places no work reaches it.
    let table = driver.space.change();
    let (start, one) = table.allocations.find(address).ok_or(Status::INVALID_VALUE)?;
    // A pool's memory is shared with its pool, and another process's by that one.
    if one.context == 0 || one.opened.is_some() {
        return Err(Status::INVALID_VALUE);
    }
    let (base, mapping) = table.mapping(start).ok_or(Status::INVALID_VALUE)?;
    let (file, number) = mapping.phys.for_processes()?;
    out.set(IpcHandle::new(MEMORY, file.as_fd(), number, [start - base, one.bytes, one.buffer_id, 0, 0]))
}

fn open(out: Out<u64>, handle: IpcHandle, flags: u32) -> Outcome {
    let (context, driver) = current()?;
    out.required()?;
    if flags & LAZY == 0 || !handle.is(MEMORY) {
        return Err(Status::INVALID_VALUE);
    }
    if handle.is_own() {
        return Err(Status::INVALID_CONTEXT);
    }
    if let Some(start) = driver.space.change().allocations.open_again(&handle) {
        return out.set(start);
    }
    let file = handle.open()?;
    let phys = Phys::import(driver.gpus(), file.as_fd())?;
    let [offset, bytes, ..] = handle.words;
    let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= phys.bytes());
    if phys.record() != Some(handle.number) || !is_inside {
        return Err(Status::INVALID_VALUE);
    }
    out.set(driver.space.open(phys, handle, context.id, context.device.ordinal())?)
}

fn close(address: u64) -> Outcome {
    let (_, driver) = current()?;
    driver.space.close(address)
}

fn get_event(out: Out<IpcHandle>, event: usize) -> Outcome {
    let (_, driver) = current()?;
    out.required()?;
    if event == 0 {
        return Err(Status::INVALID_VALUE);
    }
    let event = driver.events.get(event)?;
    out.set(event.shared.as_ref().ok_or(Status::INVALID_HANDLE)?.handle()?)
}

fn open_event(out: Out<usize>, handle: IpcHandle) -> Outcome {
    let (context, driver) = current()?;
    out.required()?;
    let shared = SharedEvent::open(&handle)?;
    let handle = driver.events.draw();
    driver.events.put(handle, Arc::new(Event::shared(handle, context.id, shared)));
    out.set(handle)
}
