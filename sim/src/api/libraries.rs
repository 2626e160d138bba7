//! `cuLibrary*` and `cuKernel*`.

use std::sync::Arc;

use super::arguments::{self, current};
use super::functions::{attribute_value, change_attribute, tell_param};
use super::modules::read_file;
use crate::border::{Out, OutList, Text};
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::module::image::read_image;
use crate::module::{Function, Kernel, Library};
use crate::state;

doors! {
    cuLibraryLoadData: "cuLibraryLoadData" 12000
        (out: Out<usize>, code: usize, jit: usize, jit_values: usize, jit_count: u32,
         options: usize, values: usize, count: u32) = load_data;
    cuLibraryLoadFromFile: "cuLibraryLoadFromFile" 12000
        (out: Out<usize>, path: Text, jit: usize, jit_values: usize, jit_count: u32,
         options: usize, values: usize, count: u32) = load_file;
    cuLibraryUnload: "cuLibraryUnload" 12000 (library: usize) = unload;
    cuLibraryGetKernel: "cuLibraryGetKernel" 12000 (out: Out<usize>, library: usize, name: Text) = kernel;
    cuLibraryGetKernelCount: "cuLibraryGetKernelCount" 12040 (count: Out<u32>, library: usize) = kernel_count;
    cuLibraryEnumerateKernels: "cuLibraryEnumerateKernels" 12040
        (out: OutList<usize>, count: u32, library: usize) = enumerate;
    cuLibraryGetModule: "cuLibraryGetModule" 12000 (out: Out<usize>, library: usize) = module;
    cuLibraryGetGlobal: "cuLibraryGetGlobal" 12000
        (address: Out<u64>, bytes: Out<usize>, library: usize, name: Text) = global;
    cuLibraryGetManaged: "cuLibraryGetManaged" 12000
        (address: Out<u64>, bytes: Out<usize>, library: usize, name: Text) = managed;
    cuLibraryGetUnifiedFunction: "cuLibraryGetUnifiedFunction" 12000
        (out: Out<usize>, library: usize, name: Text) = unified_function;
    cuKernelGetFunction: "cuKernelGetFunction" 12000 (out: Out<usize>, kernel: usize) = kernel_function;
    cuKernelGetLibrary: "cuKernelGetLibrary" 12050 (out: Out<usize>, kernel: usize) = kernel_library;
    cuKernelGetAttribute: "cuKernelGetAttribute" 12000
        (value: Out<i32>, attribute: u32, kernel: usize, device: i32) = get_attribute;
    cuKernelSetAttribute: "cuKernelSetAttribute" 12000
        (attribute: u32, value: i32, kernel: usize, device: i32) = set_attribute;
    cuKernelSetCacheConfig: "cuKernelSetCacheConfig" 12000 (kernel: usize, config: u32, device: i32) = set_cache;
    cuKernelGetName: "cuKernelGetName" 12030 (name: Out<usize>, kernel: usize) = get_name;
    cuKernelGetParamInfo: "cuKernelGetParamInfo" 12040
        (kernel: usize, index: usize, offset: Out<usize>, bytes: Out<usize>) = param_info;
    cuKernelGetParamCount: "cuKernelGetParamCount" 13020 (kernel: usize, count: Out<usize>) = param_count;
}

#[allow(clippy::too_many_arguments)]
fn load_data(
    out: Out<usize>,
    code: usize,
    _jit: usize,
    _jit_values: usize,
    _jit_count: u32,
    _options: usize,
    _values: usize,
    _count: u32,
) -> Outcome {
    out.required()?;
    out.set(Library::load(&state::driver()?.code, read_image(code)?)?)
}

#[allow(clippy::too_many_arguments)]
fn load_file(
    out: Out<usize>,
    path: Text,
    _jit: usize,
    _jit_values: usize,
    _jit_count: u32,
    _options: usize,
    _values: usize,
    _count: u32,
) -> Outcome {
    out.required()?;
    out.set(Library::load(&state::driver()?.code, read_file(path)?)?)
}

fn find(library: usize) -> Outcome<Arc<Library>> {
    state::driver()?.code.libraries.get(library)
}

fn unload(library: usize) -> Outcome {
    find(library)?;
    if let Ok((context, _)) = current() {
        context.synchronize()?;
    }
    let driver = state::driver()?;
    Library::unload(&driver.code, driver.space, library)
}

fn kernel(out: Out<usize>, library: usize, name: Text) -> Outcome {
    out.required()?;
    let name = name.bytes()?;
    let library = find(library)?;
    let name = std::str::from_utf8(name).map_err(|_| Status::NOT_FOUND)?;
    out.set(*library.kernels.get(name).ok_or(Status::NOT_FOUND)?)
}

fn kernel_count(count: Out<u32>, library: usize) -> Outcome {
    count.required()?;
    count.set(find(library)?.kernels.len() as u32)
}

fn enumerate(out: OutList<usize>, count: u32, library: usize) -> Outcome {
    let library = find(library)?;
    let kernels: Vec<usize> = library.kernels.values().copied().take(count as usize).collect();
    out.write(&kernels)
}

fn module(out: Out<usize>, library: usize) -> Outcome {
    let (context, _) = current()?;
    out.required()?;
    out.set(find(library)?.module(&state::driver()?.code, &context)?)
}

fn global(address: Out<u64>, bytes: Out<usize>, library: usize, name: Text) -> Outcome {
    let (context, driver) = current()?;
    let module = driver.code.modules.get(find(library)?.module(&driver.code, &context)?)?;
    let (start, length) = *module.globals.get(name.str()?).ok_or(Status::NOT_FOUND)?;
    address.offer(start);
    bytes.offer(length);
    Ok(())
}

/// No variable is managed here.
fn managed(_address: Out<u64>, _bytes: Out<usize>, library: usize, name: Text) -> Outcome {
    find(library)?;
    name.bytes()?;
    Err(Status::NOT_FOUND)
}

fn unified_function(out: Out<usize>, library: usize, name: Text) -> Outcome {
    out.required()?;
    find(library)?;
    name.bytes()?;
    Err(Status::NOT_FOUND)
}

fn find_kernel(kernel: usize) -> Outcome<Arc<Kernel>> {
    state::driver()?.code.kernels.get(kernel)
}

fn kernel_function(out: Out<usize>, kernel: usize) -> Outcome {
    let (context, _) = current()?;
    out.required()?;
    out.set(find_kernel(kernel)?.function(&state::driver()?.code, &context)?)
}

fn kernel_library(out: Out<usize>, kernel: usize) -> Outcome {
    out.required()?;
    out.set(find_kernel(kernel)?.library)
}

fn function_of(kernel: usize, device: i32) -> Outcome<Arc<Function>> {
    let (context, _) = current()?;
    find_kernel(kernel)?;
    arguments::device(device)?;
    Function::find(&state::driver()?.code, &context, kernel)
}

fn get_attribute(value: Out<i32>, attribute: u32, kernel: usize, device: i32) -> Outcome {
    value.required()?;
    value.set(attribute_value(&*function_of(kernel, device)?, attribute)?)
}

fn set_attribute(attribute: u32, value: i32, kernel: usize, device: i32) -> Outcome {
    change_attribute(&*function_of(kernel, device)?, attribute, value)
}

fn set_cache(kernel: usize, config: u32, device: i32) -> Outcome {
    function_of(kernel, device)?;
    if config > 3 { Err(Status::INVALID_VALUE) } else { Ok(()) }
}

fn get_name(name: Out<usize>, kernel: usize) -> Outcome {
    name.required()?;
    // The text belongs to the kernel, which lives as long as its library.
    name.set(find_kernel(kernel)?.name.as_ptr().expose_provenance())
}

fn param_count(kernel: usize, count: Out<usize>) -> Outcome {
    count.required()?;
    count.set(find_kernel(kernel)?.entry.params.len())
}

/// A function's handle is refused: `cuFuncGetParamInfo` is for those.
fn param_info(kernel: usize, index: usize, offset: Out<usize>, bytes: Out<usize>) -> Outcome {
    offset.required()?;
    tell_param(&find_kernel(kernel)?.entry, index, offset, bytes)
}
