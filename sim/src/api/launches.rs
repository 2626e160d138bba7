//! `cuLaunch*`, and `cuParamSet*` for the oldest of them.

use std::collections::HashSet;
use std::sync::Arc;

use super::abi::{LaunchAttribute, LaunchConfig, LaunchParams};
use super::functions::find;
use crate::border::{In, List, bytes_at, list_at};
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::context::Context;
use crate::exec::op::Op;
use crate::exec::stream::Stream;
use crate::exec::submit::{self, Default, submit};
use crate::module::Function;
use crate::module::launch::{Launch, Shape};
use crate::state;

doors! {
    cuLaunchKernel / cuLaunchKernel_ptsz: "cuLaunchKernel" 4000 / 7000
        (function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
         shared: u32, stream: usize, params: List<usize>, extra: List<usize>) = kernel;
    cuLaunchKernelEx / cuLaunchKernelEx_ptsz: "cuLaunchKernelEx" 11060 / 11060
        (config: In<LaunchConfig>, function: usize, params: List<usize>, extra: List<usize>)
        = kernel_ex after has_config(config);
    cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz: "cuLaunchCooperativeKernel" 9000 / 9000
        (function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
         shared: u32, stream: usize, params: List<usize>) = cooperative;
    cuLaunchCooperativeKernelMultiDevice: "cuLaunchCooperativeKernelMultiDevice" 9000
        (launches: List<LaunchParams>, count: u32, flags: u32) = cooperative_multi;
    cuLaunch: "cuLaunch" 2000 (function: usize) = launch;
    cuLaunchGrid: "cuLaunchGrid" 2000 (function: usize, width: i32, height: i32) = launch_grid;
    cuLaunchGridAsync: "cuLaunchGridAsync" 2000
        (function: usize, width: i32, height: i32, stream: usize) = launch_grid_async;
    cuParamSetSize: "cuParamSetSize" 2000 (function: usize, bytes: u32) = param_size;
    cuParamSeti: "cuParamSeti" 2000 (function: usize, offset: i32, value: u32) = param_u32;
    cuParamSetf: "cuParamSetf" 2000 (function: usize, offset: i32, value: f32) = param_f32;
    cuParamSetv: "cuParamSetv" 2000 (function: usize, offset: i32, value: usize, bytes: u32) = param_bytes;
    cuParamSetTexRef: "cuParamSetTexRef" 2000 (function: usize, unit: i32, texture: usize) = param_texture;
}

#[allow(clippy::too_many_arguments)]
fn kernel(
    default: Default,
    function: usize,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: usize,
    params: List<usize>,
    extra: List<usize>,
) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
    start(&stream, Launch::new(function_for(&stream, function)?, function, shape, params, extra)?)
}

/// The function of a handle, which may be a kernel's: then in the stream's context. Code of another device's context does
/// not run there.
fn function_for(stream: &Arc<Stream>, handle: usize) -> Outcome<Arc<Function>> {
    let context = Context::of(stream)?;
    let function = Function::find(&state::driver()?.code, &context, handle)?;
    let ordinal = context.device.ordinal();
    if function.ordinal == ordinal { Ok(function) } else { Err(Status::INVALID_HANDLE) }
}

fn start(stream: &Arc<Stream>, launch: Launch) -> Outcome {
    submit(stream, Op::Kernel(Arc::new(launch))).map(drop)
}

/// `CUlaunchAttributeID`s. Those about caches, clusters and priorities change nothing of a result and are
/// taken without effect; those that make the launch signal something do signal it.
const LAST_ATTRIBUTE: u32 = 16;
const COOPERATIVE: u32 = 2;
const PROGRAMMATIC_EVENT: u32 = 7;
const LAUNCH_COMPLETION_EVENT: u32 = 12;
const DEVICE_UPDATABLE_NODE: u32 = 13;

fn has_config(_: Default, config: In<LaunchConfig>) -> Outcome {
    config.get().map(drop)
}

fn kernel_ex(
    default: Default,
    config: In<LaunchConfig>,
    function: usize,
    params: List<usize>,
    extra: List<usize>,
) -> Outcome {
    let config = config.get()?;
    let stream = submit::resolve(default, config.stream)?;
    let driver = state::driver()?;
    let attributes: List<LaunchAttribute> = list_at(config.attributes);
    let attributes = attributes.read(config.attribute_count as usize)?;
    let mut events = Vec::new();
    let mut cooperative = false;
    for attribute in attributes {
        match attribute.id {
            COOPERATIVE => cooperative = attribute.value[0] as u32 != 0,
            PROGRAMMATIC_EVENT | LAUNCH_COMPLETION_EVENT => {
                events.push(driver.events.get(attribute.value[0] as usize)?);
            }
            DEVICE_UPDATABLE_NODE if attribute.value[0] as u32 != 0 => {
                return Err(Status::NOT_SUPPORTED);
            }
            0..=LAST_ATTRIBUTE => {}
            _ => return Err(Status::INVALID_VALUE),
        }
    }
    let shape = Shape { grid: config.grid, block: config.block, shared: config.shared };
    let found = function_for(&stream, function)?;
    if cooperative {
        fits_at_once(&found, shape)?;
    }
    start(&stream, Launch::new(found, function, shape, params, extra)?)?;
    events.iter().try_for_each(|event| submit::record(&stream, event, false))
}

/// A cooperative launch needs all its blocks on the device at the same time. That comes before other
/// questions about its shared memory: of blocks that want too much not even one fits.
fn fits_at_once(function: &Function, shape: Shape) -> Outcome {
    shape.check_sizes(function)?;
    let blocks: u64 = shape.grid.iter().map(|size| u64::from(*size)).product();
    let most = super::occupancy::blocks_at_once(shape.block.iter().product(), shape.shared as usize);
    if blocks > most { Err(Status::COOPERATIVE_LAUNCH_TOO_LARGE) } else { Ok(()) }
}

#[allow(clippy::too_many_arguments)]
fn cooperative(
    default: Default,
    function: usize,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared: u32,
    stream: usize,
    params: List<usize>,
) -> Outcome {
    let stream = submit::resolve(default, stream)?;
    let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
    let found = function_for(&stream, function)?;
    fits_at_once(&found, shape)?;
    start(&stream, Launch::new(found, function, shape, params, list_at(0))?)
}

fn cooperative_multi(launches: List<LaunchParams>, count: u32, flags: u32) -> Outcome {
    let driver = state::driver()?;
    if count == 0 || count as usize > driver.devices.len() || flags > 3 {
        return Err(Status::INVALID_VALUE);
    }
    let mut ready = Vec::new();
    let mut devices = HashSet::new();
    for one in launches.read(count as usize)? {
        let stream = driver.streams.get(one.stream)?;
        let context = Context::of(&stream)?;
        context.check()?;
        if !devices.insert(context.device.ordinal()) {
            return Err(Status::INVALID_VALUE);
        }
        let shape = Shape { grid: one.grid, block: one.block, shared: one.shared };
        let found = function_for(&stream, one.function)?;
        fits_at_once(&found, shape)?;
        ready.push((stream, Launch::new(found, one.function, shape, list_at(one.params), list_at(0))?));
    }
    ready.into_iter().try_for_each(|(stream, launch)| start(&stream, launch))
}

fn launch(function: usize) -> Outcome {
    launch_grid(function, 1, 1)
}

fn launch_grid(function: usize, width: i32, height: i32) -> Outcome {
    launch_grid_async(function, width, height, 0)
}

fn launch_grid_async(function: usize, width: i32, height: i32, stream: usize) -> Outcome {
    let stream = submit::resolve(Default::Legacy, stream)?;
    let handle = function;
    let function = function_for(&stream, handle)?;
    let side = |size| u32::try_from(size).map_err(|_| Status::INVALID_VALUE);
    let settings = function.settings().clone();
    let grid = [side(width)?, side(height)?, 1];
    let shape = Shape { grid, block: settings.block, shared: settings.shared };
    start(&stream, Launch::with_params(function, handle, shape, settings.params)?)
}

/// Parameters of a launch of old are at most this many bytes.
const MOST_PARAMS: usize = 4096;

fn param_size(function: usize, bytes: u32) -> Outcome {
    let function = find(function)?;
    if bytes as usize > MOST_PARAMS {
        return Err(Status::INVALID_VALUE);
    }
    function.settings().params.resize(bytes as usize, 0);
    Ok(())
}

fn put(function: &Function, offset: i32, value: &[u8]) -> Outcome {
    let start = usize::try_from(offset).map_err(|_| Status::INVALID_VALUE)?;
    let end = start.checked_add(value.len()).filter(|end| *end <= MOST_PARAMS);
    let end = end.ok_or(Status::INVALID_VALUE)?;
    let mut settings = function.settings();
    if settings.params.len() < end {
        settings.params.resize(end, 0);
    }
    settings.params[start..end].copy_from_slice(value);
    Ok(())
}

fn param_u32(function: usize, offset: i32, value: u32) -> Outcome {
    put(&*find(function)?, offset, &value.to_ne_bytes())
}

fn param_f32(function: usize, offset: i32, value: f32) -> Outcome {
    put(&*find(function)?, offset, &value.to_ne_bytes())
}

fn param_bytes(function: usize, offset: i32, value: usize, bytes: u32) -> Outcome {
    let function = find(function)?;
    put(&function, offset, &bytes_at(value, (bytes as usize).min(MOST_PARAMS + 1))?)
}

fn param_texture(function: usize, _unit: i32, _texture: usize) -> Outcome {
    find(function)?;
    Err(Status::INVALID_VALUE)
}
