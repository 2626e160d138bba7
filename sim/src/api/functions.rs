//! `cuFunc*`: asking about functions and setting what a launch of old takes.

use std::sync::Arc;

use super::arguments::current;
use crate::border::Out;
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::module::Function;
use crate::module::launch::{MAX_DYNAMIC_SHARED, MAX_THREADS, SHARED_BYTES_OPTED_IN};
use crate::module::ptx::Entry;
use crate::state;

doors! {
    cuFuncGetAttribute: "cuFuncGetAttribute" 2020 (value: Out<i32>, attribute: u32, function: usize) = get_attribute;
    cuFuncSetAttribute: "cuFuncSetAttribute" 9000 (function: usize, attribute: u32, value: i32) = set_attribute;
    cuFuncSetCacheConfig: "cuFuncSetCacheConfig" 3000 (function: usize, config: u32) = set_cache;
    cuFuncSetSharedMemConfig: "cuFuncSetSharedMemConfig" 4020 (function: usize, config: u32) = set_banks;
    cuFuncGetModule: "cuFuncGetModule" 11000 (module: Out<usize>, function: usize) = get_module;
    cuFuncGetName: "cuFuncGetName" 12030 (name: Out<usize>, function: usize) = get_name;
    cuFuncGetParamInfo: "cuFuncGetParamInfo" 12040
        (function: usize, index: usize, offset: Out<usize>, bytes: Out<usize>) = param_info;
    cuFuncGetParamCount: "cuFuncGetParamCount" 13020 (function: usize, count: Out<usize>) = param_count;
    cuFuncIsLoaded: "cuFuncIsLoaded" 12040 (state: Out<u32>, function: usize) = is_loaded;
    cuFuncLoad: "cuFuncLoad" 12040 (function: usize) = load;
    cuFuncSetBlockShape: "cuFuncSetBlockShape" 2000 (function: usize, x: i32, y: i32, z: i32) = set_block;
    cuFuncSetSharedSize: "cuFuncSetSharedSize" 2000 (function: usize, bytes: u32) = set_shared;
}

/// The function of a handle, which may be a kernel's: then in the current context.
pub(super) fn find(handle: usize) -> Outcome<Arc<Function>> {
    let (context, _) = current()?;
    Function::find(&state::driver()?.code, &context, handle)
}

/// The same for calls that need a context only for a kernel: a function has its own.
fn find_anywhere(handle: usize) -> Outcome<Arc<Function>> {
    let driver = state::driver()?;
    match driver.code.functions.get(handle) {
        Ok(function) => driver.common.check().map(|()| function),
        Err(_) => find(handle),
    }
}

/// A `CUfunction_attribute`.
pub(super) fn attribute_value(function: &Function, attribute: u32) -> Outcome<i32> {
    let set = function.settings().attributes.get(&attribute).copied();
    Ok(match attribute {
        0 => function.entry.max_threads.unwrap_or(MAX_THREADS) as i32,
        // No static shared, constant or local memory.
        1..=3 => 0,
        4 => 32,
        5 => function.ptx_version as i32,
        6 => 90,
        7 => 0,
        MAX_DYNAMIC_SHARED => set.unwrap_or(48 << 10),
        9 => set.unwrap_or(-1),
        10..=15 => set.unwrap_or(0),
        _ => return Err(Status::INVALID_VALUE),
    })
}

/// Sets an attribute that can be set.
pub(super) fn change_attribute(function: &Function, attribute: u32, value: i32) -> Outcome {
    let valid = match attribute {
        MAX_DYNAMIC_SHARED => (0..=SHARED_BYTES_OPTED_IN as i32).contains(&value),
        9 => (-1..=100).contains(&value),
        11..=13 => value >= 0,
        14 => matches!(value, 0 | 1),
        15 => (0..=2).contains(&value),
        _ => false,
    };
    if !valid {
        return Err(Status::INVALID_VALUE);
    }
    function.settings().attributes.insert(attribute, value);
    Ok(())
}

fn get_attribute(value: Out<i32>, attribute: u32, function: usize) -> Outcome {
    let found = find_anywhere(function)?;
    value.required()?;
    value.set(attribute_value(&found, attribute)?)
}

fn set_attribute(function: usize, attribute: u32, value: i32) -> Outcome {
    change_attribute(&*find(function)?, attribute, value)
}

/// How a cache is split makes no difference here.
fn set_cache(function: usize, config: u32) -> Outcome {
    find(function)?;
    if config > 3 { Err(Status::INVALID_VALUE) } else { Ok(()) }
}

fn set_banks(function: usize, config: u32) -> Outcome {
    find(function)?;
    if config > 2 { Err(Status::INVALID_VALUE) } else { Ok(()) }
}

fn get_module(module: Out<usize>, function: usize) -> Outcome {
    let (_, driver) = current()?;
    module.required()?;
    module.set(driver.code.functions.get(function)?.module)
}

fn get_name(name: Out<usize>, function: usize) -> Outcome {
    current()?;
    name.required()?;
    // The text belongs to the function, which lives as long as its module.
    name.set(find(function)?.name.as_ptr().expose_provenance())
}

/// Where a parameter is and how large; past the last one there is none.
pub(super) fn tell_param(entry: &Entry, index: usize, offset: Out<usize>, bytes: Out<usize>) -> Outcome {
    let param = entry.params.get(index).ok_or(Status::INVALID_VALUE)?;
    offset.set(param.offset)?;
    bytes.offer(param.size);
    Ok(())
}

/// A kernel's handle is refused: `cuKernelGetParamInfo` is for those.
fn param_info(function: usize, index: usize, offset: Out<usize>, bytes: Out<usize>) -> Outcome {
    let (_, driver) = current()?;
    offset.required()?;
    tell_param(&driver.code.functions.get(function)?.entry, index, offset, bytes)
}

fn param_count(function: usize, count: Out<usize>) -> Outcome {
    let (_, driver) = current()?;
    count.required()?;
    count.set(driver.code.functions.get(function)?.entry.params.len())
}

/// `CU_FUNCTION_LOADING_STATE_LOADED`
const LOADED: u32 = 1;

fn is_loaded(state: Out<u32>, function: usize) -> Outcome {
    current()?;
    state.required()?;
    find(function)?;
    state.set(LOADED)
}

fn load(function: usize) -> Outcome {
    find(function).map(drop)
}

fn set_block(function: usize, x: i32, y: i32, z: i32) -> Outcome {
    let function = find(function)?;
    let side = |size| u32::try_from(size).ok().filter(|size| *size > 0);
    match (side(x), side(y), side(z)) {
        (Some(x), Some(y), Some(z)) => function.settings().block = [x, y, z],
        _ => return Err(Status::INVALID_VALUE),
    }
    Ok(())
}

fn set_shared(function: usize, bytes: u32) -> Outcome {
    find(function)?.settings().shared = bytes;
    Ok(())
}
