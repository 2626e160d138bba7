//! Multicast objects, as NVIDIA documents them (CUDA 13.0, driver API, multicast object management); nothing here was measured.
//! One is of one process: none can be exported.

use super::abi::MulticastProps;
use super::arguments::{self, only_flags};
use super::vmm;
use crate::border::{In, Out};
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::memory::phys::{GRANULARITY, Phys};
use crate::memory::team::Team;
use crate::state;

doors! {
    cuMulticastCreate: "cuMulticastCreate" 12010 (out: Out<u64>, properties: In<MulticastProps>) = create;
    cuMulticastAddDevice: "cuMulticastAddDevice" 12010 (object: u64, device: i32) = add_device;
    cuMulticastBindMem: "cuMulticastBindMem" 12010
        (object: u64, at: usize, memory: u64, offset: usize, bytes: usize, flags: u64) = bind_memory;
    cuMulticastBindAddr: "cuMulticastBindAddr" 12010
        (object: u64, at: usize, address: u64, bytes: usize, flags: u64) = bind_address;
    cuMulticastBindMem_v2: "cuMulticastBindMem" 13010
        (object: u64, device: i32, at: usize, memory: u64, offset: usize, bytes: usize, flags: u64) = bind_memory_of;
    cuMulticastBindAddr_v2: "cuMulticastBindAddr" 13010
        (object: u64, device: i32, at: usize, address: u64, bytes: usize, flags: u64) = bind_address_of;
    cuMulticastUnbind: "cuMulticastUnbind" 12010 (object: u64, device: i32, at: usize, bytes: usize) = unbind;
    cuMulticastGetGranularity: "cuMulticastGetGranularity" 12010
        (out: Out<usize>, properties: In<MulticastProps>, option: u32) = granularity;
}

fn check(properties: &MulticastProps) -> Outcome {
    if properties.devices == 0 || properties.devices as usize > state::driver()?.devices.len() {
        return Err(Status::INVALID_VALUE);
    }
    only_flags(properties.flags, 0)?;
    if properties.handle_types == 0 { Ok(()) } else { Err(Status::NOT_SUPPORTED) }
}

fn create(out: Out<u64>, properties: In<MulticastProps>) -> Outcome {
    out.required()?;
    let properties = properties.get()?;
    check(&properties)?;
    let bytes = properties.bytes as u64;
    if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
        return Err(Status::INVALID_VALUE);
    }
    let phys = Phys::of_nobody(arguments::device(0)?.gpu, bytes)?;
    let team = Team::new(bytes, properties.devices as usize);
    out.set(vmm::enter(phys, false, [0; 2], Some(team))?)
}

/// Does something with the object that a call names.
fn with_team<R>(object: u64, what: impl FnOnce(&Team) -> Outcome<R>) -> Outcome<R> {
    let handle = vmm::find(object)?;
    what(handle.team.as_ref().ok_or(Status::INVALID_VALUE)?)
}

fn add_device(object: u64, device: i32) -> Outcome {
    let device = arguments::device(device)?.ordinal();
    with_team(object, |team| team.add(device))
}

fn bind_memory(object: u64, at: usize, memory: u64, offset: usize, bytes: usize, flags: u64) -> Outcome {
    only_flags(flags, 0)?;
    let memory = vmm::find(memory)?;
    if memory.team.is_some() {
        return Err(Status::INVALID_VALUE);
    }
    with_team(object, |team| team.bind(team.part(at, bytes)?, memory.phys.clone(), offset as u64))
}

/// Binds what the program has mapped somewhere; of memory that it has allocated there is no handle.
fn bind_address(object: u64, at: usize, address: u64, bytes: usize, flags: u64) -> Outcome {
    only_flags(flags, 0)?;
    let find = || {
        let table = state::driver()?.space.look();
        let (start, mapping) = table.program_mapping(address).ok_or(Status::INVALID_VALUE)?;
        Ok((mapping.phys.clone(), address - start))
    };
    let (memory, offset) = find()?;
    with_team(object, |team| team.bind(team.part(at, bytes)?, memory, offset))
}

/// The same for a GPU that is named; the memory is its own.
#[allow(clippy::too_many_arguments)]
fn bind_memory_of(
    object: u64,
    device: i32,
    at: usize,
    memory: u64,
    offset: usize,
    bytes: usize,
    flags: u64,
) -> Outcome {
    arguments::device(device)?;
    bind_memory(object, at, memory, offset, bytes, flags)
}

fn bind_address_of(object: u64, device: i32, at: usize, address: u64, bytes: usize, flags: u64) -> Outcome {
    arguments::device(device)?;
    bind_address(object, at, address, bytes, flags)
}

/// As it was bound; anything else is undefined.
fn unbind(object: u64, device: i32, at: usize, bytes: usize) -> Outcome {
    let device = arguments::device(device)?.ordinal();
    with_team(object, |team| team.unbind(device, team.part(at, bytes)?))
}

fn granularity(out: Out<usize>, properties: In<MulticastProps>, option: u32) -> Outcome {
    out.required()?;
    check(&properties.get()?)?;
    only_flags(option.into(), 1)?;
    out.set(GRANULARITY as usize)
}
