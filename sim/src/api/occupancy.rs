//! `cuOccupancy*`, for functions that use 32 registers a thread and no static shared memory.

use super::abi::LaunchConfig;
use super::device::MULTIPROCESSORS;
use super::functions::{attribute_value, find};
use crate::border::{In, Out};
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::module::launch::{MAX_THREADS, SHARED_BYTES_OPTED_IN};

doors! {
    cuOccupancyMaxActiveBlocksPerMultiprocessor: "cuOccupancyMaxActiveBlocksPerMultiprocessor" 6050
        (count: Out<i32>, function: usize, block: i32, shared: usize) = active_blocks;
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags:
        "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags" 7000
        (count: Out<i32>, function: usize, block: i32, shared: usize, flags: u32) = active_blocks_with_flags;
    cuOccupancyMaxPotentialBlockSize: "cuOccupancyMaxPotentialBlockSize" 6050
        (grid: Out<i32>, block: Out<i32>, function: usize, shared_of: Option<extern "C" fn(i32) -> usize>,
         shared: usize, limit: i32) = block_size;
    cuOccupancyMaxPotentialBlockSizeWithFlags: "cuOccupancyMaxPotentialBlockSizeWithFlags" 7000
        (grid: Out<i32>, block: Out<i32>, function: usize, shared_of: Option<extern "C" fn(i32) -> usize>,
         shared: usize, limit: i32, flags: u32) = block_size_with_flags;
    cuOccupancyAvailableDynamicSMemPerBlock: "cuOccupancyAvailableDynamicSMemPerBlock" 10020
        (bytes: Out<usize>, function: usize, blocks: i32, block: i32) = available_shared;
    cuOccupancyMaxPotentialClusterSize: "cuOccupancyMaxPotentialClusterSize" 11070
        (size: Out<i32>, function: usize, config: In<LaunchConfig>) = cluster_size;
    cuOccupancyMaxActiveClusters: "cuOccupancyMaxActiveClusters" 11070
        (count: Out<i32>, function: usize, config: In<LaunchConfig>) = active_clusters;
}

const THREADS: u32 = 2048;
const BLOCKS: u32 = 32;
const SHARED: usize = 228 << 10;
/// Every block takes this beside the shared memory that it asks for.
const SHARED_RESERVED: usize = 1024;
const CLUSTER: i32 = 8;

fn per_multiprocessor(block: u32, shared: usize) -> u32 {
    if block == 0 || block > MAX_THREADS || shared > SHARED_BYTES_OPTED_IN as usize {
        return 0;
    }
    let by_threads = THREADS / block.next_multiple_of(32);
    let by_shared = (SHARED / (shared + SHARED_RESERVED)) as u32;
    by_threads.min(by_shared).min(BLOCKS)
}

/// Blocks that are on the device at the same time.
pub(super) fn blocks_at_once(block: u32, shared: usize) -> u64 {
    u64::from(per_multiprocessor(block, shared)) * MULTIPROCESSORS as u64
}

fn active_blocks(count: Out<i32>, function: usize, block: i32, shared: usize) -> Outcome {
    active_blocks_with_flags(count, function, block, shared, 0)
}

fn active_blocks_with_flags(count: Out<i32>, function: usize, block: i32, shared: usize, flags: u32) -> Outcome {
    find(function)?;
    count.required()?;
    let block = u32::try_from(block).ok().filter(|block| *block > 0 && flags <= 1);
    count.set(per_multiprocessor(block.ok_or(Status::INVALID_VALUE)?, shared) as i32)
}

fn block_size(
    grid: Out<i32>,
    block: Out<i32>,
    function: usize,
    shared_of: Option<extern "C" fn(i32) -> usize>,
    shared: usize,
    limit: i32,
) -> Outcome {
    block_size_with_flags(grid, block, function, shared_of, shared, limit, 0)
}

fn block_size_with_flags(
    grid: Out<i32>,
    block: Out<i32>,
    function: usize,
    shared_of: Option<extern "C" fn(i32) -> usize>,
    shared: usize,
    limit: i32,
    flags: u32,
) -> Outcome {
    let function = find(function)?;
    grid.required()?;
    block.required()?;
    if flags > 1 || limit < 0 {
        return Err(Status::INVALID_VALUE);
    }
    let most = attribute_value(&function, 0)?;
    let most = if limit == 0 { most } else { most.min(limit) };
    let sizes = (1..=most / 32).rev().map(|warps| warps * 32).chain([most]);
    let threads = |size: i32| {
        let shared = shared_of.map_or(shared, |shared_of| shared_of(size));
        per_multiprocessor(size as u32, shared) * size as u32
    };
    // The largest of the sizes with the most threads.
    let mut best = (0, 0);
    for size in sizes {
        let threads = threads(size);
        if threads > best.1 {
            best = (size, threads);
        }
    }
    if best.0 == 0 {
        return Err(Status::INVALID_VALUE);
    }
    grid.set(best.1 as i32 / best.0 * MULTIPROCESSORS)?;
    block.set(best.0)
}

fn available_shared(bytes: Out<usize>, function: usize, blocks: i32, block: i32) -> Outcome {
    find(function)?;
    bytes.required()?;
    let (Ok(blocks @ 1..), Ok(block @ 1..)) = (usize::try_from(blocks), u32::try_from(block)) else {
        return Err(Status::INVALID_VALUE);
    };
    if per_multiprocessor(block, 0) < blocks as u32 {
        return bytes.set(0);
    }
    let each = (SHARED / blocks).saturating_sub(SHARED_RESERVED);
    bytes.set(each.min(SHARED_BYTES_OPTED_IN as usize))
}

fn cluster_size(size: Out<i32>, function: usize, config: In<LaunchConfig>) -> Outcome {
    find(function)?;
    size.required()?;
    config.get()?;
    size.set(CLUSTER)
}

fn active_clusters(count: Out<i32>, function: usize, config: In<LaunchConfig>) -> Outcome {
    find(function)?;
    count.required()?;
    let config = config.get()?;
    let blocks = blocks_at_once(config.block.iter().product(), config.shared as usize);
    count.set((blocks / CLUSTER as u64) as i32)
}
