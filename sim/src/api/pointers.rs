//! `cuPointer*`: what an address is.

use super::arguments::current;
use crate::border::{List, read_at, write_at};
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::memory::space::{Access, Table};
use crate::state::Driver;

doors! {
    cuPointerGetAttribute: "cuPointerGetAttribute" 4000 (data: usize, attribute: u32, address: u64) = get;
    cuPointerGetAttributes: "cuPointerGetAttributes" 7000
        (count: u32, attributes: List<u32>, data: List<usize>, address: u64) = get_many;
    cuPointerSetAttribute: "cuPointerSetAttribute" 6000 (value: usize, attribute: u32, address: u64) = set;
}

const MEMORY_HOST: u32 = 1;
const MEMORY_DEVICE: u32 = 2;
const SYNC_MEMOPS: u32 = 6;
const LAST_ATTRIBUTE: u32 = 21;

/// What is known about an address.
struct Known {
    context: u64,
    memory: u32,
    host: bool,
    managed: bool,
    base: u64,
    bytes: u64,
    buffer_id: u64,
    mapped: bool,
    /// Whether its handle may be exported as a descriptor.
    exportable: bool,
    access: u32,
}

/// A value of an attribute, in the size that the driver writes it.
enum Value {
    Word(u32),
    Long(u64),
}

fn find(table: &Table, address: u64) -> Option<Known> {
    if let Some((base, one)) = table.allocations.find(address) {
        return Some(Known {
            context: one.context,
            memory: MEMORY_DEVICE,
            host: false,
            managed: false,
            base,
            bytes: one.bytes,
            buffer_id: one.buffer_id,
            mapped: true,
            exportable: false,
            access: 3,
        });
    }
    if let Some((base, range)) = table.host(address) {
        return Some(Known {
            context: range.context,
            memory: if range.managed { MEMORY_DEVICE } else { MEMORY_HOST },
            host: true,
            managed: range.managed,
            base,
            bytes: range.bytes,
            buffer_id: range.buffer_id,
            mapped: true,
            exportable: false,
            access: 3,
        });
    }
    let (start, bytes, by_program) = table.reservation(address)?;
    let mapping = table.mapping(address);
    by_program.then(|| Known {
        context: 0,
        memory: MEMORY_DEVICE,
        host: false,
        managed: false,
        base: mapping.map_or(start, |(base, _)| base),
        bytes: mapping.map_or(bytes, |(_, mapping)| mapping.phys.bytes()),
        buffer_id: 0,
        mapped: mapping.is_some(),
        exportable: mapping.is_some_and(|(_, mapping)| mapping.phys.exportable()),
        access: mapping.map_or(0, |(_, mapping)| match mapping.access {
            Access::None => 0,
            Access::Read => 1,
            Access::ReadWrite => 3,
        }),
    })
}

fn value(driver: &Driver, known: &Known, attribute: u32, address: u64) -> Outcome<Value> {
    if !known.mapped && !matches!(attribute, 11..=13) {
        return Err(Status::INVALID_VALUE);
    }
    Ok(match attribute {
        1 => {
            let context = driver.contexts.find(|context| context.id == known.context);
            Value::Long(context.map_or(0, |(handle, _)| handle as u64))
        }
        2 => Value::Word(known.memory),
        3 => Value::Long(address),
        4 if known.host => Value::Long(address),
        4 => return Err(Status::INVALID_VALUE),
        5 => return Err(Status::NOT_SUPPORTED),
        SYNC_MEMOPS => Value::Word(0),
        7 => Value::Long(known.buffer_id),
        8 => Value::Word(known.managed.into()),
        // The ordinal of the device that it was made for; host memory has that of its context.
        9 => Value::Word(0),
        10 | 15 | 21 => Value::Word(0),
        11 => Value::Long(known.base),
        12 => Value::Long(known.bytes),
        13 => Value::Word(known.mapped.into()),
        14 => Value::Long(known.exportable.into()),
        16 => Value::Word(known.access),
        17 => Value::Long(0),
        18 => Value::Long(known.bytes),
        19 => Value::Long(known.base),
        20 => Value::Long(known.buffer_id),
        _ => return Err(Status::INVALID_VALUE),
    })
}

fn put(data: usize, value: &Value) -> Outcome {
    match value {
        Value::Word(value) => write_at(data, *value),
        Value::Long(value) => write_at(data, *value),
    }
}

fn get(data: usize, attribute: u32, address: u64) -> Outcome {
    let (_, driver) = current()?;
    if data == 0 {
        return Err(Status::INVALID_VALUE);
    }
    let known = find(&driver.space.look(), address).ok_or(Status::INVALID_VALUE)?;
    put(data, &value(driver, &known, attribute, address)?)
}

/// Tells of an unknown address too: that it is nothing.
fn get_many(count: u32, attributes: List<u32>, data: List<usize>, address: u64) -> Outcome {
    let (_, driver) = current()?;
    let attributes = attributes.read(count as usize)?;
    let data = data.read(count as usize)?;
    if attributes.is_empty() || attributes.iter().any(|attribute| *attribute > LAST_ATTRIBUTE) {
        return Err(Status::INVALID_VALUE);
    }
    let known = find(&driver.space.look(), address);
    for (attribute, data) in attributes.into_iter().zip(data) {
        let nothing = match attribute {
            // No device has this ordinal.
            9 => Value::Word(-2i32 as u32),
            2 | SYNC_MEMOPS | 8 | 10 | 13 | 15 | 16 | 21 => Value::Word(0),
            _ => Value::Long(0),
        };
        let found = known.as_ref().map(|known| value(driver, known, attribute, address));
        put(data, &found.and_then(Result::ok).unwrap_or(nothing))?;
    }
    Ok(())
}

/// The only attribute that can be set asks for copies to be synchronous with the host, which changes
/// nothing of their results.
fn set(data: usize, attribute: u32, address: u64) -> Outcome {
    let (_, driver) = current()?;
    if attribute != SYNC_MEMOPS {
        return Err(Status::INVALID_VALUE);
    }
    read_at::<u32>(data)?;
    let known = find(&driver.space.look(), address);
    match known {
        Some(known) if !known.managed => Ok(()),
        _ => Err(Status::INVALID_VALUE),
    }
}
