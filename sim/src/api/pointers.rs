//! `cuPointer*`: facts about an address. As on the device the answers need no current context and go on after
//! a failure.

use crate::border::{List, read_at, write_at};
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::stack;
use crate::memory::phys::GRANULARITY;
use crate::memory::space::{Access, Table};
use crate::pool::Pool;
use crate::state::{self, Driver};

doors! {
    cuPointerGetAttribute: "cuPointerGetAttribute" 4000 (data: usize, attribute: u32, address: u64) = get;
    cuPointerGetAttributes: "cuPointerGetAttributes" 7000
        (count: u32, attributes: List<u32>, data: List<usize>, address: u64) = get_many;
    cuPointerSetAttribute: "cuPointerSetAttribute" 6000 (value: usize, attribute: u32, address: u64) = set;
}

const MEMORY_HOST: u32 = 1;
const MEMORY_DEVICE: u32 = 2;
const HOST_POINTER: u32 = 4;
const TOKENS: u32 = 5;
const SYNC_MEMOPS: u32 = 6;
const DEVICE_ORDINAL: u32 = 9;
const RANGE_START: u32 = 11;
const RANGE_SIZE: u32 = 12;
const LAST_ATTRIBUTE: u32 = 21;

/// The kinds of memory at an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Of `cuMemAlloc`.
    Allocated,
    /// Of a pool.
    Pooled,
    /// Mapped by the program itself.
    Mapped,
    /// The host's, pinned.
    Pinned,
    Managed,
}

/// Facts about an address.
struct Known {
    kind: Kind,
    /// The context's id; memory of a pool and what the program mapped itself belong to none.
    context: u64,
    /// The allocation; for memory that the program mapped itself, the reservation.
    range: (u64, u64),
    /// The range that is mapped there as one.
    mapping: (u64, u64),
    buffer_id: u64,
    block_id: u64,
    /// The pool's handle.
    pool: usize,
    /// True if another process has made it.
    opened: bool,
    /// True if this process can export its handle as a descriptor.
    exportable: bool,
    /// True if the host waits for copies and fills of it.
    synchronous: bool,
    /// True if a program's own handle was to be open to devices on the bus.
    rdma: bool,
    /// The device that it was made for; host memory has that of its context.
    ordinal: usize,
    /// The access of the current context, or of its own GPU.
    access: Access,
}

/// A value of an attribute, in the size that the driver writes it.
enum Value {
    Word(u32),
    Long(u64),
    /// There is none: all zero is written, and the call fails.
    None,
    /// The two tokens for other drivers to reach the memory by. The host's memory has none.
    Tokens(Option<[u32; 3]>),
}

fn find(driver: &Driver, table: &Table, address: u64) -> Option<Known> {
    let here = stack::current_any().ok();
    let mapping = table.mapping(address);
    let whole = mapping.map(|(base, mapping)| (base, mapping.phys.bytes()));
    if let Some((base, one)) = table.allocations.find(address).filter(|(_, one)| one.is_somebodys()) {
        let pool = one.lent.as_ref().and_then(Pool::of);
        return Some(Known {
            kind: if one.context == 0 { Kind::Pooled } else { Kind::Allocated },
            context: one.context,
            range: (base, one.bytes),
            mapping: whole?,
            buffer_id: one.buffer_id,
            block_id: mapping?.1.phys.number(),
            pool: pool.map_or(0, |pool| pool.handle),
            opened: one.opened.is_some(),
            exportable: pool.is_some_and(|pool| pool.exportable().is_some()),
            synchronous: one.synchronous,
            rdma: false,
            ordinal: mapping?.1.home,
            access: here.map_or(Access::ReadWrite, |here| {
                mapping.map_or(Access::None, |(_, mapping)| here.view().access(table, address, mapping))
            }),
        });
    }
    if let Some((base, range)) = table.host(address) {
        let context = driver.contexts.find(|context| context.id == range.context);
        // Pinned memory is made in units as large as the device's.
        let made = if range.pages.is_some() { range.bytes.next_multiple_of(GRANULARITY) } else { range.bytes };
        return Some(Known {
            kind: if range.managed { Kind::Managed } else { Kind::Pinned },
            context: range.context,
            range: (base, range.bytes),
            mapping: (base, made),
            buffer_id: range.buffer_id,
            block_id: range.buffer_id,
            pool: 0,
            opened: false,
            exportable: false,
            synchronous: range.synchronous,
            rdma: false,
            ordinal: context.map_or(0, |(_, context)| context.device.ordinal()),
            access: Access::ReadWrite,
        });
    }
    let (_, mapping) = table.program_mapping(address)?;
    let (start, bytes, _) = table.reservation(address)?;
    Some(Known {
        kind: Kind::Mapped,
        context: 0,
        range: (start, bytes),
        mapping: whole?,
        buffer_id: mapping.buffer_id,
        block_id: mapping.phys.number(),
        pool: 0,
        opened: false,
        exportable: mapping.phys.can_export(),
        synchronous: mapping.synchronous,
        rdma: driver.handles.get(mapping.handle as usize).is_ok_and(|handle| handle.flags[1] != 0),
        ordinal: mapping.phys.gpu().ordinal(),
        access: mapping.access_of(here.map_or(mapping.phys.gpu().ordinal(), |here| here.device.ordinal())),
    })
}

/// A program with tokens has the memory reached by others, and relies on the order of copies and fills.
fn has_told(driver: &Driver, value: &Value, address: u64) {
    if matches!(value, Value::Tokens(Some(_))) {
        driver.space.change().set_synchronous(address, true);
    }
}

fn value(driver: &Driver, known: &Known, attribute: u32, address: u64) -> Outcome<Value> {
    let allocated = known.kind == Kind::Allocated;
    let on_device = matches!(known.kind, Kind::Allocated | Kind::Pooled | Kind::Mapped);
    Ok(match attribute {
        1 => {
            let context = driver.contexts.find(|context| context.id == known.context);
            Value::Long(context.map_or(0, |(handle, _)| handle as u64))
        }
        2 => Value::Word(if known.kind == Kind::Pinned { MEMORY_HOST } else { MEMORY_DEVICE }),
        // To the current context, if that can reach it.
        3 if known.access == Access::None || stack::current_handle().is_none() => Value::None,
        3 => Value::Long(address),
        HOST_POINTER if on_device => Value::None,
        HOST_POINTER => Value::Long(address),
        TOKENS => Value::Tokens(on_device.then_some([0, 0, 0xFE00])),
        SYNC_MEMOPS => Value::Word(known.synchronous.into()),
        7 => Value::Long(known.buffer_id),
        8 => Value::Word((known.kind == Kind::Managed).into()),
        DEVICE_ORDINAL => Value::Word(known.ordinal as u32),
        // It can be shared by IPC handles, reached by other devices on the bus, decompressed into.
        10 => Value::Word((allocated && !known.opened).into()),
        15 => Value::Word((allocated && !known.opened || known.rdma).into()),
        21 => Value::Word(allocated.into()),
        RANGE_START => Value::Long(known.range.0),
        RANGE_SIZE => Value::Long(known.range.1),
        13 => Value::Word(1),
        14 => Value::Long(known.exportable.into()),
        // Of what was allocated all GPUs are told the same.
        16 if allocated => Value::Word(Access::ReadWrite.flags() as u32),
        16 => Value::Word(known.access.flags() as u32),
        17 => Value::Long(known.pool as u64),
        18 => Value::Long(known.mapping.1),
        19 => Value::Long(known.mapping.0),
        20 => Value::Long(known.block_id),
        _ => return Err(Status::INVALID_VALUE),
    })
}

fn put(data: usize, value: &Value) -> Outcome {
    match value {
        Value::Word(value) => write_at(data, *value),
        Value::Long(value) => write_at(data, *value),
        Value::None => write_at(data, 0u64),
        Value::Tokens(tokens) => write_at(data, tokens.unwrap_or_default()),
    }
}

fn get(data: usize, attribute: u32, address: u64) -> Outcome {
    let driver = state::driver()?;
    if data == 0 {
        return Err(Status::INVALID_VALUE);
    }
    let known = find(driver, &driver.space.look(), address).ok_or(Status::INVALID_VALUE)?;
    let value = value(driver, &known, attribute, address)?;
    put(data, &value)?;
    has_told(driver, &value, address);
    if matches!(value, Value::None | Value::Tokens(None)) { Err(Status::INVALID_VALUE) } else { Ok(()) }
}

/// The attributes of an address that is no memory of the device's. `None`: nothing is written.
fn nothing(table: &Table, attribute: u32, address: u64) -> Option<Value> {
    Some(match attribute {
        HOST_POINTER => Value::Long(address),
        // No device has this ordinal.
        DEVICE_ORDINAL => Value::Word(-2i32 as u32),
        RANGE_START => Value::Long(table.reservation(address)?.0),
        RANGE_SIZE => Value::Long(table.reservation(address)?.1),
        2 | SYNC_MEMOPS | 8 | 10 | 13 | 15 | 16 | 21 => Value::Word(0),
        _ => Value::Long(0),
    })
}

/// Tells of an unknown address too: that it is nothing.
fn get_many(count: u32, attributes: List<u32>, data: List<usize>, address: u64) -> Outcome {
    let driver = state::driver()?;
    let attributes = attributes.read(count as usize)?;
    let data = data.read(count as usize)?;
    // Tokens are given alone.
    if attributes.is_empty() || attributes.iter().any(|attribute| *attribute > LAST_ATTRIBUTE || *attribute == TOKENS) {
        return Err(Status::INVALID_VALUE);
    }
    let table = driver.space.look();
    let known = find(driver, &table, address);
    for (attribute, data) in attributes.into_iter().zip(data) {
        let value = match &known {
            Some(known) => Some(value(driver, known, attribute, address).unwrap_or(Value::None)),
            None => nothing(&table, attribute, address),
        };
        value.map_or(Ok(()), |value| put(data, &value))?;
    }
    Ok(())
}

/// The only attribute that can be set has the host wait for copies and fills that no stream is named for.
fn set(data: usize, attribute: u32, address: u64) -> Outcome {
    let driver = state::driver()?;
    let value = read_at::<u32>(data)?;
    let known = find(driver, &driver.space.look(), address).ok_or(Status::INVALID_VALUE)?;
    if known.kind == Kind::Mapped {
        return Err(Status::NOT_SUPPORTED);
    }
    let is_set = attribute == SYNC_MEMOPS && driver.space.change().set_synchronous(address, value != 0);
    if is_set { Ok(()) } else { Err(Status::INVALID_VALUE) }
}
