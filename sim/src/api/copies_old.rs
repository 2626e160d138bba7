//! `cuMemcpy*` with 32-bit addresses, and copies from and to arrays, of which there are none.

use super::abi::{Memcpy2D, Memcpy2DOld, Memcpy3D, Memcpy3DOld};
use super::arguments::current;
use super::copies;
use crate::border::In;
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::submit::{self, Default};

doors! {
    old cuMemcpyHtoD: "cuMemcpyHtoD" 2000 (dst: u32, src: usize, bytes: u32) = to_device;
    old cuMemcpyDtoH: "cuMemcpyDtoH" 2000 (dst: usize, src: u32, bytes: u32) = to_host;
    old cuMemcpyDtoD: "cuMemcpyDtoD" 2000 (dst: u32, src: u32, bytes: u32) = on_device;
    old cuMemcpyHtoDAsync: "cuMemcpyHtoDAsync" 2000 (dst: u32, src: usize, bytes: u32, stream: usize) = to_device_async;
    old cuMemcpyDtoHAsync: "cuMemcpyDtoHAsync" 2000 (dst: usize, src: u32, bytes: u32, stream: usize) = to_host_async;
    old cuMemcpyDtoDAsync: "cuMemcpyDtoDAsync" 3000 (dst: u32, src: u32, bytes: u32, stream: usize) = on_device_async;
    old cuMemcpy2D: "cuMemcpy2D" 2000 (copy: In<Memcpy2DOld>) = flat;
    old cuMemcpy2DUnaligned: "cuMemcpy2DUnaligned" 2000 (copy: In<Memcpy2DOld>) = flat;
    old cuMemcpy2DAsync: "cuMemcpy2DAsync" 2000 (copy: In<Memcpy2DOld>, stream: usize) = flat_async;
    old cuMemcpy3D: "cuMemcpy3D" 2000 (copy: In<Memcpy3DOld>) = solid;
    old cuMemcpy3DAsync: "cuMemcpy3DAsync" 2000 (copy: In<Memcpy3DOld>, stream: usize) = solid_async;
    old cuMemcpyDtoA: "cuMemcpyDtoA" 2000 (array: usize, offset: u32, src: u32, bytes: u32) = array_old_1;
    old cuMemcpyAtoD: "cuMemcpyAtoD" 2000 (dst: u32, array: usize, offset: u32, bytes: u32) = array_old_2;
    old cuMemcpyHtoA: "cuMemcpyHtoA" 2000 (array: usize, offset: u32, src: usize, bytes: u32) = array_old_3;
    old cuMemcpyAtoH: "cuMemcpyAtoH" 2000 (dst: usize, array: usize, offset: u32, bytes: u32) = array_old_4;
    old cuMemcpyAtoA: "cuMemcpyAtoA" 2000
        (dst: usize, dst_offset: u32, src: usize, src_offset: u32, bytes: u32) = array_old_5;
    old cuMemcpyHtoAAsync: "cuMemcpyHtoAAsync" 2000
        (array: usize, offset: u32, src: usize, bytes: u32, stream: usize) = array_old_6;
    old cuMemcpyAtoHAsync: "cuMemcpyAtoHAsync" 2000
        (dst: usize, array: usize, offset: u32, bytes: u32, stream: usize) = array_old_7;
    cuMemcpyDtoA_v2 / cuMemcpyDtoA_v2_ptds: "cuMemcpyDtoA" 3020 / 7000
        (array: usize, offset: usize, src: u64, bytes: usize) = array_1;
    cuMemcpyAtoD_v2 / cuMemcpyAtoD_v2_ptds: "cuMemcpyAtoD" 3020 / 7000
        (dst: u64, array: usize, offset: usize, bytes: usize) = array_2;
    cuMemcpyHtoA_v2 / cuMemcpyHtoA_v2_ptds: "cuMemcpyHtoA" 3020 / 7000
        (array: usize, offset: usize, src: usize, bytes: usize) = array_3;
    cuMemcpyAtoH_v2 / cuMemcpyAtoH_v2_ptds: "cuMemcpyAtoH" 3020 / 7000
        (dst: usize, array: usize, offset: usize, bytes: usize) = array_4;
    cuMemcpyAtoA_v2 / cuMemcpyAtoA_v2_ptds: "cuMemcpyAtoA" 3020 / 7000
        (dst: usize, dst_offset: usize, src: usize, src_offset: usize, bytes: usize) = array_5;
    cuMemcpyHtoAAsync_v2 / cuMemcpyHtoAAsync_v2_ptsz: "cuMemcpyHtoAAsync" 3020 / 7000
        (array: usize, offset: usize, src: usize, bytes: usize, stream: usize) = array_6;
    cuMemcpyAtoHAsync_v2 / cuMemcpyAtoHAsync_v2_ptsz: "cuMemcpyAtoHAsync" 3020 / 7000
        (dst: usize, array: usize, offset: usize, bytes: usize, stream: usize) = array_7;
}

const OLD: Default = Default::Legacy;

fn to_device(dst: u32, src: usize, bytes: u32) -> Outcome {
    copies::to_device(OLD, dst.into(), src, bytes as usize)
}

fn to_host(dst: usize, src: u32, bytes: u32) -> Outcome {
    copies::to_host(OLD, dst, src.into(), bytes as usize)
}

fn on_device(dst: u32, src: u32, bytes: u32) -> Outcome {
    copies::on_device(OLD, dst.into(), src.into(), bytes as usize)
}

fn to_device_async(dst: u32, src: usize, bytes: u32, stream: usize) -> Outcome {
    copies::to_device_async(OLD, dst.into(), src, bytes as usize, stream)
}

fn to_host_async(dst: usize, src: u32, bytes: u32, stream: usize) -> Outcome {
    copies::to_host_async(OLD, dst, src.into(), bytes as usize, stream)
}

fn on_device_async(dst: u32, src: u32, bytes: u32, stream: usize) -> Outcome {
    copies::on_device_async(OLD, dst.into(), src.into(), bytes as usize, stream)
}

fn widen(old: &Memcpy2DOld) -> Memcpy3D {
    copies::deepen(Memcpy2D {
        src_x: old.src_x as usize,
        src_y: old.src_y as usize,
        src_type: old.src_type,
        src_host: old.src_host,
        src_device: old.src_device.into(),
        src_array: old.src_array,
        src_pitch: old.src_pitch as usize,
        dst_x: old.dst_x as usize,
        dst_y: old.dst_y as usize,
        dst_type: old.dst_type,
        dst_host: old.dst_host,
        dst_device: old.dst_device.into(),
        dst_array: old.dst_array,
        dst_pitch: old.dst_pitch as usize,
        width: old.width as usize,
        height: old.height as usize,
    })
}

fn widen_solid(old: &Memcpy3DOld) -> Memcpy3D {
    Memcpy3D {
        src_x: old.src_x as usize,
        src_y: old.src_y as usize,
        src_z: old.src_z as usize,
        src_lod: old.src_lod as usize,
        src_type: old.src_type,
        src_host: old.src_host,
        src_device: old.src_device.into(),
        src_array: old.src_array,
        src_context: old.reserved0,
        src_pitch: old.src_pitch as usize,
        src_height: old.src_height as usize,
        dst_x: old.dst_x as usize,
        dst_y: old.dst_y as usize,
        dst_z: old.dst_z as usize,
        dst_lod: old.dst_lod as usize,
        dst_type: old.dst_type,
        dst_host: old.dst_host,
        dst_device: old.dst_device.into(),
        dst_array: old.dst_array,
        dst_context: old.reserved1,
        dst_pitch: old.dst_pitch as usize,
        dst_height: old.dst_height as usize,
        width: old.width as usize,
        height: old.height as usize,
        depth: old.depth as usize,
    }
}

fn flat(copy: In<Memcpy2DOld>) -> Outcome {
    current()?;
    copies::copy_box(OLD, 0, &widen(&copy.get()?), true)
}

fn flat_async(copy: In<Memcpy2DOld>, stream: usize) -> Outcome {
    current()?;
    copies::copy_box(OLD, stream, &widen(&copy.get()?), false)
}

fn solid(copy: In<Memcpy3DOld>) -> Outcome {
    current()?;
    copies::copy_box(OLD, 0, &widen_solid(&copy.get()?), true)
}

fn solid_async(copy: In<Memcpy3DOld>, stream: usize) -> Outcome {
    current()?;
    copies::copy_box(OLD, stream, &widen_solid(&copy.get()?), false)
}

/// No array was ever made, so every handle of one is wrong.
fn no_array(default: Default, stream: usize, arrays: &[usize]) -> Outcome {
    submit::resolve(default, stream)?;
    if arrays.contains(&0) { Err(Status::INVALID_VALUE) } else { Err(Status::INVALID_HANDLE) }
}

fn array_old_1(array: usize, _: u32, _: u32, _: u32) -> Outcome {
    no_array(OLD, 0, &[array])
}

fn array_old_2(_: u32, array: usize, _: u32, _: u32) -> Outcome {
    no_array(OLD, 0, &[array])
}

fn array_old_3(array: usize, _: u32, _: usize, _: u32) -> Outcome {
    no_array(OLD, 0, &[array])
}

fn array_old_4(_: usize, array: usize, _: u32, _: u32) -> Outcome {
    no_array(OLD, 0, &[array])
}

fn array_old_5(dst: usize, _: u32, src: usize, _: u32, _: u32) -> Outcome {
    no_array(OLD, 0, &[dst, src])
}

fn array_old_6(array: usize, _: u32, _: usize, _: u32, stream: usize) -> Outcome {
    no_array(OLD, stream, &[array])
}

fn array_old_7(_: usize, array: usize, _: u32, _: u32, stream: usize) -> Outcome {
    no_array(OLD, stream, &[array])
}

fn array_1(default: Default, array: usize, _: usize, _: u64, _: usize) -> Outcome {
    no_array(default, 0, &[array])
}

fn array_2(default: Default, _: u64, array: usize, _: usize, _: usize) -> Outcome {
    no_array(default, 0, &[array])
}

fn array_3(default: Default, array: usize, _: usize, _: usize, _: usize) -> Outcome {
    no_array(default, 0, &[array])
}

fn array_4(default: Default, _: usize, array: usize, _: usize, _: usize) -> Outcome {
    no_array(default, 0, &[array])
}

fn array_5(default: Default, dst: usize, _: usize, src: usize, _: usize, _: usize) -> Outcome {
    no_array(default, 0, &[dst, src])
}

fn array_6(default: Default, array: usize, _: usize, _: usize, _: usize, stream: usize) -> Outcome {
    no_array(default, stream, &[array])
}

fn array_7(default: Default, _: usize, array: usize, _: usize, _: usize, stream: usize) -> Outcome {
    no_array(default, stream, &[array])
}
