//! `cuTensorMap*`: descriptions of tensors that kernels take as parameters. They are made and checked as on the device;
//! no built-in kernel reads one.

use crate::border::{List, Out};
use crate::door::doors;
use crate::errors::{Outcome, Status};

doors! {
    cuTensorMapEncodeTiled: "cuTensorMapEncodeTiled" 12000
        (map: Out<TensorMap>, kind: u32, rank: u32, address: u64, sizes: List<u64>, strides: List<u64>, window: List<u32>,
         steps: List<u32>, interleave: u32, swizzle: u32, promotion: u32, fill: u32) = tiled after is_place(map);
    cuTensorMapReplaceAddress: "cuTensorMapReplaceAddress" 12000 (map: Out<TensorMap>, address: u64)
        = replace after is_place(map);
    cuTensorMapSetAllocationClass: "cuTensorMapSetAllocationClass" 13050
        (map: Out<TensorMap>, class: u32, now: Out<u32>) = set_class after starts_small(map, now);
}

/// `CUtensorMap`, whose contents are the driver's own: here the address, and then everything else in the order of the call.
pub(super) type TensorMap = [u64; 16];

/// The word of a map in which its allocation class is.
const CLASS: usize = 15;

const MAP_ALIGNMENT: usize = 64;
const ADDRESS_ALIGNMENT: u64 = 16;
const MOST_RANK: u32 = 5;
const MOST_SIZE: u64 = 1 << 32;
const STRIDE_UNIT: u64 = 16;
const STRIDE_END: u64 = 1 << 40;
const MOST_WINDOW: u32 = 256;
const MOST_STEP: u32 = 8;
/// `CUtensorMapDataType`, `…Interleave`, `…Swizzle`, `…L2promotion`, `…FloatOOBfill`: the last of each.
const LAST: [u32; 5] = [15, 2, 6, 3, 1];

fn is_place(map: Out<TensorMap>) -> Outcome {
    map.required()?;
    if map.is_aligned(MAP_ALIGNMENT) { Ok(()) } else { Err(Status::INVALID_VALUE) }
}

/// Fails unless all of a list are as they should be.
fn check<T: Copy>(list: &[T], is_right: impl Fn(T) -> bool) -> Outcome {
    if list.iter().all(|item| is_right(*item)) { Ok(()) } else { Err(Status::INVALID_VALUE) }
}

fn can_be_address(address: u64) -> Outcome {
    check(&[address], |address| address != 0 && address.is_multiple_of(ADDRESS_ALIGNMENT))
}

#[allow(clippy::too_many_arguments)]
fn tiled(
    map: Out<TensorMap>,
    kind: u32,
    rank: u32,
    address: u64,
    sizes: List<u64>,
    strides: List<u64>,
    window: List<u32>,
    steps: List<u32>,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
) -> Outcome {
    can_be_address(address)?;
    check(&[rank], |rank| (1..=MOST_RANK).contains(&rank))?;
    let words = [kind, interleave, swizzle, promotion, fill];
    check(&[0, 1, 2, 3, 4], |at: usize| words[at] <= LAST[at])?;
    let dimensions = rank as usize;
    let sizes = sizes.read(dimensions)?;
    check(&sizes, |size| (1..=MOST_SIZE).contains(&size))?;
    // Elements of the first dimension are side by side.
    let strides = strides.read(dimensions - 1)?;
    check(&strides, |stride| stride.is_multiple_of(STRIDE_UNIT) && stride < STRIDE_END)?;
    let window = window.read(dimensions)?;
    check(&window, |size| (1..=MOST_WINDOW).contains(&size))?;
    let steps = steps.read(dimensions)?;
    check(&steps, |step| (1..=MOST_STEP).contains(&step))?;
    let packed = words.iter().chain([&rank]).fold(0, |sum, word| sum << 8 | u64::from(*word));
    let windows = window.iter().zip(&steps).map(|(size, step)| u64::from(*size) << 32 | u64::from(*step));
    let mut made = TensorMap::default();
    let contents = [address, packed].into_iter().chain(sizes).chain(strides).chain(windows);
    made.iter_mut().zip(contents).for_each(|(word, value)| *word = value);
    map.set(made)
}

fn replace(map: Out<TensorMap>, address: u64) -> Outcome {
    can_be_address(address)?;
    let mut made = map.get()?;
    made[0] = address;
    map.set(made)
}

/// `CUtensorMapAllocClass`: the first class of a map, and the last one; 0 is the driver's choice.
const SMALL: u32 = 1;
const LARGE: u32 = 2;

fn starts_small(map: Out<TensorMap>, now: Out<u32>) -> Outcome {
    now.offer(SMALL);
    is_place(map)
}

fn set_class(map: Out<TensorMap>, class: u32, now: Out<u32>) -> Outcome {
    const RANK: u64 = 0xFF;
    check(&[class], |class| class <= LARGE)?;
    let mut made = map.get()?;
    if made[1] & RANK == MOST_RANK.into() {
        // It has no word to spare, and stays small.
        return Ok(());
    }
    made[CLASS] = u64::from(class == LARGE);
    if class == LARGE {
        now.offer(LARGE);
    }
    map.set(made)
}
