//! Hints about managed memory, which is always in the host here: checked, and without effect.

use super::abi::Location;
use super::arguments::{self, current};
use crate::border::{List, Out, OutList, write_at};
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::op::Op;
use crate::exec::submit::{self, Default, submit};

doors! {
    cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz: "cuMemPrefetchAsync" 8000 / 8000
        (start: u64, bytes: usize, device: i32, stream: usize) = prefetch_to_device;
    cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz: "cuMemPrefetchAsync" 12020 / 12020
        (start: u64, bytes: usize, location: Location, flags: u32, stream: usize)
        = prefetch after can_go(location, flags);
    cuMemPrefetchBatchAsync / cuMemPrefetchBatchAsync_ptsz: "cuMemPrefetchBatchAsync" 13000 / 13000
        (starts: List<u64>, sizes: List<usize>, count: usize, locations: List<Location>,
         indices: List<usize>, location_count: usize, flags: u64, stream: usize)
        = prefetch_batch after can_batch(flags, stream);
    cuMemDiscardBatchAsync / cuMemDiscardBatchAsync_ptsz: "cuMemDiscardBatchAsync" 13000 / 13000
        (starts: List<u64>, sizes: List<usize>, count: usize, flags: u64, stream: usize)
        = discard_batch after can_batch(flags, stream);
    cuMemDiscardAndPrefetchBatchAsync / cuMemDiscardAndPrefetchBatchAsync_ptsz:
        "cuMemDiscardAndPrefetchBatchAsync" 13000 / 13000
        (starts: List<u64>, sizes: List<usize>, count: usize, locations: List<Location>,
         indices: List<usize>, location_count: usize, flags: u64, stream: usize)
        = prefetch_batch after can_batch(flags, stream);
    cuMemAdvise: "cuMemAdvise" 8000 (start: u64, bytes: usize, advice: u32, device: i32) = advise_device;
    cuMemAdvise_v2: "cuMemAdvise" 12020 (start: u64, bytes: usize, advice: u32, location: Location) = advise;
    cuMemRangeGetAttribute: "cuMemRangeGetAttribute" 8000
        (data: usize, bytes: usize, attribute: u32, start: u64, count: usize) = attribute;
    cuMemRangeGetAttributes: "cuMemRangeGetAttributes" 8000
        (data: List<usize>, sizes: List<usize>, attributes: List<u32>, attribute_count: usize,
         start: u64, count: usize) = attributes;
    cuMemGetLocationInfo: "cuMemGetLocationInfo" 13040
        (start: u64, bytes: usize, region: usize, sample: usize, locations: OutList<Location>) = locations;
    cuMemBatchDecompressAsync / cuMemBatchDecompressAsync_ptsz: "cuMemBatchDecompressAsync" 12060 / 12060
        (list: usize, count: usize, flags: u32, failed: Out<usize>, stream: usize) = decompress;
}

/// The host, as a device number; and no place at all.
const HOST: i32 = -1;
const NOWHERE: i32 = -2;

/// Fails unless all of the range is managed memory.
fn managed(start: u64, bytes: usize) -> Outcome {
    let (_, driver) = current()?;
    let table = driver.space.look();
    let inside =
        table.host(start).is_some_and(|(base, range)| range.managed && bytes as u64 <= range.bytes - (start - base));
    if bytes == 0 || !inside { Err(Status::INVALID_VALUE) } else { Ok(()) }
}

/// Where parts of managed memory are: all of it in the host.
fn locations(start: u64, bytes: usize, region: usize, sample: usize, locations: OutList<Location>) -> Outcome {
    managed(start, bytes)?;
    if !(1..=bytes).contains(&region) || sample > region {
        return Err(Status::INVALID_VALUE);
    }
    locations.write(&vec![from_device(HOST); bytes.div_ceil(region)])
}

/// `CUmemLocationType`: a device, and the last of the host's.
const LOCATION_DEVICE: u32 = 1;
const LOCATION_LAST: u32 = 4;

fn location(location: Location) -> Outcome {
    match location.kind {
        LOCATION_DEVICE => arguments::device(location.id).map(drop),
        2..=LOCATION_LAST => Ok(()),
        _ => Err(Status::INVALID_VALUE),
    }
}

fn can_go(_: Default, to: Location, flags: u32) -> Outcome {
    arguments::only_flags(flags.into(), 0)?;
    if (LOCATION_DEVICE..=LOCATION_LAST).contains(&to.kind) { Ok(()) } else { Err(Status::INVALID_VALUE) }
}

fn can_batch(default: Default, flags: u64, stream: usize) -> Outcome {
    arguments::only_flags(flags, 0)?;
    arguments::not_legacy(default, stream)
}

fn from_device(device: i32) -> Location {
    if device == HOST { Location { kind: 2, id: 0 } } else { Location { kind: LOCATION_DEVICE, id: device } }
}

fn prefetch_to_device(default: Default, start: u64, bytes: usize, device: i32, stream: usize) -> Outcome {
    prefetch(default, start, bytes, from_device(device), 0, stream)
}

fn prefetch(default: Default, start: u64, bytes: usize, to: Location, _flags: u32, stream: usize) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    managed(start, bytes)?;
    location(to)?;
    submit(&stream, Op::Empty).map(drop)
}

#[allow(clippy::too_many_arguments)]
fn prefetch_batch(
    default: Default,
    starts: List<u64>,
    sizes: List<usize>,
    count: usize,
    locations: List<Location>,
    indices: List<usize>,
    location_count: usize,
    flags: u64,
    stream: usize,
) -> Outcome {
    current()?;
    let places = locations.read(location_count)?;
    // In a batch a device that is not there is one more wrong value.
    places.into_iter().try_for_each(location).map_err(|_| Status::INVALID_VALUE)?;
    if location_count == 0 || indices.read(location_count)?.first() != Some(&0) {
        return Err(Status::INVALID_VALUE);
    }
    discard_batch(default, starts, sizes, count, flags, stream)
}

fn discard_batch(
    default: Default,
    starts: List<u64>,
    sizes: List<usize>,
    count: usize,
    _flags: u64,
    stream: usize,
) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    if count == 0 {
        return Err(Status::INVALID_VALUE);
    }
    for (start, bytes) in starts.read(count)?.into_iter().zip(sizes.read(count)?) {
        managed(start, bytes)?;
    }
    submit(&stream, Op::Empty).map(drop)
}

fn advise_device(start: u64, bytes: usize, advice: u32, device: i32) -> Outcome {
    advise(start, bytes, advice, from_device(device))
}

fn advise(start: u64, bytes: usize, advice: u32, to: Location) -> Outcome {
    managed(start, bytes)?;
    match advice {
        // Mostly read or not: the place is ignored.
        1 | 2 => Ok(()),
        3..=6 => location(to),
        _ => Err(Status::INVALID_VALUE),
    }
}

/// No advice is kept: no place is preferred, none was prefetched to.
fn attribute(data: usize, bytes: usize, attribute: u32, start: u64, count: usize) -> Outcome {
    managed(start, count)?;
    if data == 0 || bytes == 0 || !bytes.is_multiple_of(4) {
        return Err(Status::INVALID_VALUE);
    }
    let words = bytes / 4;
    let value = match attribute {
        1 | 5..=8 if words == 1 => 0,
        2 | 4 if words == 1 => NOWHERE,
        3 => NOWHERE,
        _ => return Err(Status::INVALID_VALUE),
    };
    (0..words).try_for_each(|word| write_at(data + word * 4, value))
}

fn attributes(
    data: List<usize>,
    sizes: List<usize>,
    attributes: List<u32>,
    attribute_count: usize,
    start: u64,
    count: usize,
) -> Outcome {
    managed(start, count)?;
    if attribute_count == 0 {
        return Err(Status::INVALID_VALUE);
    }
    let places = data.read(attribute_count)?.into_iter().zip(sizes.read(attribute_count)?);
    for ((data, bytes), kind) in places.zip(attributes.read(attribute_count)?) {
        attribute(data, bytes, kind, start, count)?;
    }
    Ok(())
}

fn decompress(
    default: Default,
    _list: usize,
    _count: usize,
    _flags: u32,
    _failed: Out<usize>,
    stream: usize,
) -> Outcome {
    submit::resolve(default, stream)?;
    Err(Status::NOT_SUPPORTED)
}
