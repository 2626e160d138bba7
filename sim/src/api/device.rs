//! `cuDevice*`: the simulated GPU's answers about itself.
//!
//! The figures are those of an H200 as far as a program may depend on them; a feature that is not simulated
//! (textures' larger features) is reported as not there.

use super::abi::DeviceProperties;
use super::arguments;
use super::arguments::PRIORITIES;
use crate::border::{List, Out, OutList, Text};
use crate::device::Device;
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::module::launch::{MAX_BLOCK, MAX_GRID, MAX_THREADS, SHARED_BYTES, SHARED_BYTES_OPTED_IN};
use crate::state;

doors! {
    cuDeviceGet: "cuDeviceGet" 2000 (device: Out<i32>, ordinal: i32) = get;
    cuDeviceGetCount: "cuDeviceGetCount" 2000 (count: Out<i32>) = count;
    cuDeviceGetName: "cuDeviceGetName" 2000 (name: OutList<u8>, length: i32, device: i32) = name;
    cuDeviceGetUuid: "cuDeviceGetUuid" 9020 (uuid: Out<[u8; 16]>, device: i32) = uuid;
    cuDeviceGetUuid_v2: "cuDeviceGetUuid" 11040 (uuid: Out<[u8; 16]>, device: i32) = uuid;
    cuDeviceGetLuid: "cuDeviceGetLuid" 10000 (luid: usize, mask: Out<u32>, device: i32) = luid;
    cuDeviceTotalMem: "cuDeviceTotalMem" 2000 (bytes: Out<u32>, device: i32) = total_memory_old;
    cuDeviceTotalMem_v2: "cuDeviceTotalMem" 3020 (bytes: Out<usize>, device: i32) = total_memory;
    cuDeviceGetAttribute: "cuDeviceGetAttribute" 2000 (value: Out<i32>, attribute: u32, device: i32) = attribute;
    cuDeviceGetProperties: "cuDeviceGetProperties" 2000 (out: Out<DeviceProperties>, device: i32) = properties;
    cuDeviceComputeCapability: "cuDeviceComputeCapability" 2000
        (major: Out<i32>, minor: Out<i32>, device: i32) = compute_capability;
    cuDeviceGetPCIBusId: "cuDeviceGetPCIBusId" 4010 (id: OutList<u8>, length: i32, device: i32) = bus_id;
    cuDeviceGetByPCIBusId: "cuDeviceGetByPCIBusId" 4010 (device: Out<i32>, id: Text) = by_bus_id;
    cuDeviceCanAccessPeer: "cuDeviceCanAccessPeer" 4000 (can: Out<i32>, device: i32, peer: i32) = can_access_peer;
    cuDeviceGetP2PAttribute: "cuDeviceGetP2PAttribute" 8000
        (value: Out<i32>, attribute: u32, from: i32, to: i32) = p2p_attribute;
    cuDeviceGetP2PAtomicCapabilities: "cuDeviceGetP2PAtomicCapabilities" 13000
        (out: OutList<u32>, operations: List<u32>, count: u32, from: i32, to: i32) = p2p_atomics;
    cuDeviceGetHostAtomicCapabilities: "cuDeviceGetHostAtomicCapabilities" 13000
        (out: OutList<u32>, operations: List<u32>, count: u32, device: i32) = host_atomics;
    cuDeviceGetTexture1DLinearMaxWidth: "cuDeviceGetTexture1DLinearMaxWidth" 11010
        (width: Out<usize>, format: u32, channels: u32, device: i32) = texture_width;
    cuDeviceGetExecAffinitySupport: "cuDeviceGetExecAffinitySupport" 11040
        (out: Out<i32>, kind: u32, device: i32) = affinity_support;
    cuDeviceGetNvSciSyncAttributes: "cuDeviceGetNvSciSyncAttributes" 10020
        (list: usize, device: i32, flags: i32) = sync_attributes;
    cuDeviceRegisterAsyncNotification: "cuDeviceRegisterAsyncNotification" 12040
        (device: i32, function: usize, data: usize, out: Out<usize>) = notify;
    cuDeviceUnregisterAsyncNotification: "cuDeviceUnregisterAsyncNotification" 12040
        (device: i32, callback: usize) = no_notify;
    cuDeviceGetDevResource: "cuDeviceGetDevResource" 12040
        (device: i32, out: usize, kind: u32) = device_resource;
}

const NAME: &[u8] = b"Simulated GPU";
pub(super) const MULTIPROCESSORS: i32 = 132;
const CAPABILITY: (i32, i32) = (9, 0);
const WARP: i32 = 32;
const REGISTERS: i32 = 65536;
const CLOCK_KHZ: i32 = 1_980_000;
const MAX_PITCH: i32 = i32::MAX;
/// Domain, the first GPU's bus, device.
const PCI: (i32, i32, i32) = (0, 1, 0);
const PCI_BUS: u32 = 33;
const PAGEABLE_ACCESS: u32 = 88;

/// The bus of the machine's GPU of this number.
fn bus(number: usize) -> i32 {
    PCI.1 + number as i32
}

fn get(device: Out<i32>, ordinal: i32) -> Outcome {
    device.required()?;
    arguments::device(ordinal)?;
    device.set(ordinal)
}

fn count(count: Out<i32>) -> Outcome {
    count.required()?;
    count.set(state::driver()?.devices.len() as i32)
}

fn name(name: OutList<u8>, length: i32, device: i32) -> Outcome {
    text(name, length, NAME, device)
}

/// Puts as much of a text as there is room for, and a zero byte.
fn text(out: OutList<u8>, length: i32, text: &[u8], device: i32) -> Outcome {
    if !out.wanted() || length <= 0 {
        return Err(Status::INVALID_VALUE);
    }
    arguments::device(device)?;
    let mut bytes = text[..text.len().min(length as usize - 1)].to_vec();
    bytes.push(0);
    out.write(&bytes)
}

fn uuid(uuid: Out<[u8; 16]>, device: i32) -> Outcome {
    uuid.required()?;
    uuid.set(arguments::device(device)?.gpu.uuid())
}

fn luid(_luid: usize, _mask: Out<u32>, device: i32) -> Outcome {
    arguments::device(device)?;
    // Only Windows has them.
    Err(Status::NOT_SUPPORTED)
}

fn total_memory_old(bytes: Out<u32>, device: i32) -> Outcome {
    bytes.required()?;
    bytes.set(arguments::clamp32(arguments::device(device)?.gpu.memory()))
}

fn total_memory(bytes: Out<usize>, device: i32) -> Outcome {
    bytes.required()?;
    bytes.set(arguments::device(device)?.gpu.memory() as usize)
}

fn compute_capability(major: Out<i32>, minor: Out<i32>, device: i32) -> Outcome {
    arguments::device(device)?;
    major.set(CAPABILITY.0)?;
    minor.set(CAPABILITY.1)
}

fn properties(out: Out<DeviceProperties>, device: i32) -> Outcome {
    out.required()?;
    arguments::device(device)?;
    out.set(DeviceProperties {
        max_threads_per_block: MAX_THREADS as i32,
        max_block: MAX_BLOCK.map(|size| size as i32),
        max_grid: MAX_GRID.map(|size| size as i32),
        shared_per_block: SHARED_BYTES as i32,
        constant_memory: 65536,
        warp: WARP,
        max_pitch: MAX_PITCH,
        registers_per_block: REGISTERS,
        clock_khz: CLOCK_KHZ,
        texture_alignment: 512,
    })
}

fn attribute(value: Out<i32>, attribute: u32, device: i32) -> Outcome {
    value.required()?;
    let device = arguments::device(device)?;
    let answer = match attribute {
        PCI_BUS => Some(bus(device.gpu.number_in_machine())),
        // 1 if kernels reach pageable host memory.
        PAGEABLE_ACCESS => Some(state::driver()?.space.look().reaches_pages.into()),
        _ => attribute_value(attribute),
    };
    value.set(answer.ok_or(Status::INVALID_VALUE)?)
}

/// A `CUdevice_attribute` by its number.
fn attribute_value(attribute: u32) -> Option<i32> {
    Some(match attribute {
        1 => MAX_THREADS as i32,
        2..=4 => MAX_BLOCK[attribute as usize - 2] as i32,
        5..=7 => MAX_GRID[attribute as usize - 5] as i32,
        8 => SHARED_BYTES as i32,
        9 => 65536,
        10 => WARP,
        11 => MAX_PITCH,
        12 | 82 => REGISTERS,
        13 => CLOCK_KHZ,
        14 => 512,
        15 => 1,
        16 => MULTIPROCESSORS,
        // Timeouts, integrated.
        17 | 18 => 0,
        // Mapped host memory; compute mode; texture and surface extents, 21 to 30 and on.
        19 => 1,
        20 => 0,
        21 | 22 | 52 | 55 | 56 | 66 | 70 | 73 | 74 | 77 => 32768,
        23 | 57 => 65536,
        24..=26 | 58..=60 => 16384,
        27 | 28 | 42 | 45 | 46 | 53 | 61 | 63 | 64 | 67 => 32768,
        29 | 43 | 62 | 65 => 2048,
        30 => 512,
        31 => 1,
        32 => 0,
        PCI_BUS => bus(0),
        34 => PCI.2,
        35 => 0,
        36 => 3_201_000,
        37 => 6144,
        38 => 60 << 20,
        39 => 2048,
        // Two copy engines are simulated, one each way.
        40 => 2,
        41 => 1,
        44 => 1,
        47..=49 => 16384,
        50 => PCI.0,
        51 => 32,
        54 | 68 => 2046,
        69 => 1 << 28,
        71 => 65000,
        72 => 2_097_120,
        75 => CAPABILITY.0,
        76 => CAPABILITY.1,
        78 => i32::from(PRIORITIES.0 != PRIORITIES.1),
        79 | 80 => 1,
        81 => 228 << 10,
        83 => 1,
        84 | 85 => 0,
        86 => 0,
        87 => 2,
        // Otherwise if it is set so.
        PAGEABLE_ACCESS => 0,
        89 => 1,
        90 => 1,
        91 => 1,
        // Memory words in streams: not by the calls of before CUDA 11.7.
        92..=94 => 0,
        95 => 1,
        96 => 0,
        97 => SHARED_BYTES_OPTED_IN as i32,
        98 => 0,
        99 => 1,
        100 | 101 => 0,
        // Virtual memory management, with handles as file descriptors.
        102 | 103 => 1,
        104 | 105 => 0,
        106 => 32,
        107 => 0,
        108 => 0,
        109 => 128 << 20,
        110 => 0,
        111 => 1024,
        // Sparse arrays, read-only registration, timeline semaphores.
        112..=114 => 0,
        // Memory pools.
        115 => 1,
        // GPUDirect RDMA, and how its writes are flushed and ordered.
        116..=118 => 0,
        // Pools are shared as file descriptors.
        119 => 1,
        120 => 1,
        121 => 0,
        122 | 123 => 1,
        // Buffers for other devices on the bus.
        124 => 1,
        125 => 0,
        126 => 4,
        127 => 0,
        128 => 0,
        129 => 0,
        130 => 0,
        131 => -1,
        // Multicast objects.
        132 => 1,
        133 => 0,
        134 => 0,
        135..=138 => 0,
        139 => 0x2335_10DE,
        140 => 0x18BE_10DE,
        141..=147 => 0,
        _ => return None,
    })
}

fn bus_id(id: OutList<u8>, length: i32, device: i32) -> Outcome {
    let name = arguments::device(device).map(bus_name).unwrap_or_default();
    text(id, length, name.as_bytes(), device)
}

fn bus_name(device: &Device) -> String {
    format!("{:08X}:{:02X}:{:02X}.0", PCI.0, bus(device.gpu.number_in_machine()), PCI.2)
}

fn by_bus_id(device: Out<i32>, id: Text) -> Outcome {
    device.required()?;
    let wanted = id.str()?.to_ascii_uppercase();
    let is_meant = |device: &'static Device| {
        // The domain may be given with four digits or not at all, the function not at all.
        let full = bus_name(device);
        let short = full.trim_end_matches(".0");
        [&full[..], short, &full[4..], &short[4..], &full[9..], &short[9..]].contains(&wanted.as_str())
    };
    let found = state::driver()?.devices.iter().copied().position(is_meant);
    device.set(found.ok_or(Status::INVALID_DEVICE)? as i32)
}

fn can_access_peer(can: Out<i32>, device: i32, peer: i32) -> Outcome {
    can.required()?;
    arguments::device(device)?;
    arguments::device(peer)?;
    // A device is no peer of itself.
    can.set((device != peer).into())
}

/// Fails unless these are two devices.
fn are_peers(from: i32, to: i32) -> Outcome {
    arguments::device(from)?;
    arguments::device(to)?;
    if from == to { Err(Status::INVALID_DEVICE) } else { Ok(()) }
}

fn p2p_attribute(value: Out<i32>, attribute: u32, from: i32, to: i32) -> Outcome {
    value.required()?;
    are_peers(from, to)?;
    value.set(match attribute {
        // The best there is; reached; with atomic operations; with arrays; with some atomic operations alone.
        1 => 0,
        2..=4 => 1,
        5 => 0,
        _ => return Err(Status::INVALID_VALUE),
    })
}

/// No operation is said to be atomic between two devices.
fn p2p_atomics(out: OutList<u32>, operations: List<u32>, count: u32, from: i32, to: i32) -> Outcome {
    are_peers(from, to)?;
    let operations = operations.read(count as usize)?;
    out.write(&vec![0; operations.len()])
}

/// No operation is atomic between host and device.
fn host_atomics(out: OutList<u32>, operations: List<u32>, count: u32, device: i32) -> Outcome {
    arguments::device(device)?;
    let operations = operations.read(count as usize)?;
    out.write(&vec![0; operations.len()])
}

fn texture_width(width: Out<usize>, _format: u32, channels: u32, device: i32) -> Outcome {
    width.required()?;
    arguments::device(device)?;
    if !matches!(channels, 1 | 2 | 4) {
        return Err(Status::INVALID_VALUE);
    }
    width.set(1 << 28)
}

fn affinity_support(out: Out<i32>, kind: u32, device: i32) -> Outcome {
    out.required()?;
    arguments::device(device)?;
    if kind != 0 {
        return Err(Status::INVALID_VALUE);
    }
    out.set(0)
}

fn sync_attributes(_list: usize, device: i32, _flags: i32) -> Outcome {
    arguments::device(device)?;
    Err(Status::NOT_SUPPORTED)
}

fn notify(device: i32, _function: usize, _data: usize, _out: Out<usize>) -> Outcome {
    arguments::device(device)?;
    Err(Status::NOT_SUPPORTED)
}

fn no_notify(device: i32, _callback: usize) -> Outcome {
    arguments::device(device)?;
    Err(Status::INVALID_VALUE)
}

fn device_resource(device: i32, _out: usize, _kind: u32) -> Outcome {
    arguments::device(device)?;
    Err(Status::NOT_SUPPORTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attribute_of_the_driver_has_a_value_and_no_other() {
        assert!((1..=147).all(|attribute| attribute_value(attribute).is_some()));
        assert_eq!(attribute_value(0), None);
        assert_eq!(attribute_value(148), None);
        assert_eq!(attribute_value(115), Some(1));
        assert_eq!(attribute_value(102), Some(1));
    }
}
