//! `cuModule*` and `cuLink*`.

use std::fs;
use std::sync::Arc;

use super::arguments::{clamp32, current};
use crate::border::{Out, OutList, Text, bytes_at};
use crate::door::doors;
use crate::errors::{Outcome, Status};
use crate::exec::context::Context;
use crate::graph::capture;
use crate::module::Module;
use crate::module::image::{read_image, read_text};
use crate::module::link::Link;
use crate::module::ptx::Ptx;
use crate::state;

doors! {
    cuModuleLoad: "cuModuleLoad" 2000 (out: Out<usize>, path: Text) = load;
    cuModuleLoadData: "cuModuleLoadData" 2000 (out: Out<usize>, image: usize) = load_data;
    cuModuleLoadDataEx: "cuModuleLoadDataEx" 2010
        (out: Out<usize>, image: usize, count: u32, options: usize, values: usize) = load_data_with;
    cuModuleLoadFatBinary: "cuModuleLoadFatBinary" 2000 (out: Out<usize>, image: usize) = load_data;
    cuModuleUnload: "cuModuleUnload" 2000 (module: usize) = unload;
    cuModuleGetLoadingMode: "cuModuleGetLoadingMode" 11070 (mode: Out<u32>) = loading_mode;
    cuModuleGetFunction: "cuModuleGetFunction" 2000 (out: Out<usize>, module: usize, name: Text) = function;
    cuModuleGetFunctionCount: "cuModuleGetFunctionCount" 12040 (count: Out<u32>, module: usize) = function_count;
    cuModuleEnumerateFunctions: "cuModuleEnumerateFunctions" 12040
        (out: OutList<usize>, count: u32, module: usize) = enumerate;
    old cuModuleGetGlobal: "cuModuleGetGlobal" 2000
        (address: Out<u32>, bytes: Out<u32>, module: usize, name: Text) = global_old;
    cuModuleGetGlobal_v2: "cuModuleGetGlobal" 3020
        (address: Out<u64>, bytes: Out<usize>, module: usize, name: Text) = global;
    cuModuleGetTexRef: "cuModuleGetTexRef" 2000 (out: Out<usize>, module: usize, name: Text) = reference;
    cuModuleGetSurfRef: "cuModuleGetSurfRef" 3000 (out: Out<usize>, module: usize, name: Text) = reference;
    cuLinkCreate: "cuLinkCreate" 5050 (count: u32, options: usize, values: usize, out: Out<usize>) = link_create;
    cuLinkCreate_v2: "cuLinkCreate" 6050 (count: u32, options: usize, values: usize, out: Out<usize>) = link_create;
    cuLinkAddData: "cuLinkAddData" 5050
        (link: usize, kind: u32, data: usize, bytes: usize, name: usize, count: u32, options: usize, values: usize) = link_data;
    cuLinkAddData_v2: "cuLinkAddData" 6050
        (link: usize, kind: u32, data: usize, bytes: usize, name: usize, count: u32, options: usize, values: usize) = link_data;
    cuLinkAddFile: "cuLinkAddFile" 5050
        (link: usize, kind: u32, path: Text, count: u32, options: usize, values: usize) = link_file;
    cuLinkAddFile_v2: "cuLinkAddFile" 6050
        (link: usize, kind: u32, path: Text, count: u32, options: usize, values: usize) = link_file;
    cuLinkComplete: "cuLinkComplete" 5050 (link: usize, image: Out<usize>, bytes: Out<usize>) = link_complete;
    cuLinkDestroy: "cuLinkDestroy" 5050 (link: usize) = link_destroy;
}

/// Modules are loaded when asked for.
const EAGER_LOADING: u32 = 1;
/// `CUjitInputType` of PTX.
const INPUT_PTX: u32 = 1;

/// Reads a file that holds a PTX text.
pub(super) fn read_file(path: Text) -> Outcome<Ptx> {
    let text = fs::read(path.str()?).map_err(|_| Status::FILE_NOT_FOUND)?;
    read_text(&text)
}

fn load(out: Out<usize>, path: Text) -> Outcome {
    let (context, _) = current()?;
    out.required()?;
    let text = read_file(path)?;
    load_into(&context, out, &text)
}

/// Loads code when the context has nothing else to do.
fn load_into(context: &Arc<Context>, out: Out<usize>, text: &Ptx) -> Outcome {
    context.synchronize_alone()?;
    out.set(Module::load(&state::driver()?.code, context, text)?)
}

fn load_data(out: Out<usize>, image: usize) -> Outcome {
    let (context, _) = current()?;
    out.required()?;
    let text = read_image(image)?;
    load_into(&context, out, &text)
}

/// The compiler's options change nothing: there is no compiler.
fn load_data_with(out: Out<usize>, image: usize, _count: u32, _options: usize, _values: usize) -> Outcome {
    load_data(out, image)
}

fn unload(module: usize) -> Outcome {
    let (context, driver) = current()?;
    driver.code.modules.get(module)?;
    capture::forbid_unsafe_call()?;
    context.synchronize_alone()?;
    Module::unload(&driver.code, driver.space, module)
}

fn loading_mode(mode: Out<u32>) -> Outcome {
    mode.set(EAGER_LOADING)
}

fn find(module: usize) -> Outcome<Arc<Module>> {
    current()?.1.code.modules.get(module)
}

fn function(out: Out<usize>, module: usize, name: Text) -> Outcome {
    current()?;
    out.required()?;
    let name = name.bytes()?;
    let module = find(module)?;
    current()?.0.pass_objects();
    out.set(module.function(std::str::from_utf8(name).map_err(|_| Status::NOT_FOUND)?)?)
}

fn function_count(count: Out<u32>, module: usize) -> Outcome {
    current()?;
    count.required()?;
    count.set(find(module)?.functions().len() as u32)
}

fn enumerate(out: OutList<usize>, count: u32, module: usize) -> Outcome {
    let mut functions = find(module)?.functions();
    functions.truncate(count as usize);
    out.write(&functions)
}

fn find_global(module: usize, name: Text) -> Outcome<(u64, usize)> {
    let module = find(module)?;
    module.globals.get(name.str()?).copied().ok_or(Status::NOT_FOUND)
}

fn global_old(address: Out<u32>, bytes: Out<u32>, module: usize, name: Text) -> Outcome {
    let (start, length) = find_global(module, name)?;
    address.offer(clamp32(start));
    bytes.offer(clamp32(length as u64));
    Ok(())
}

fn global(address: Out<u64>, bytes: Out<usize>, module: usize, name: Text) -> Outcome {
    let (start, length) = find_global(module, name)?;
    address.offer(start);
    bytes.offer(length);
    Ok(())
}

/// No PTX text has texture or surface references that this driver knows.
fn reference(out: Out<usize>, module: usize, name: Text) -> Outcome {
    find(module)?;
    out.required()?;
    name.bytes()?;
    Err(Status::NOT_FOUND)
}

fn link_create(_count: u32, _options: usize, _values: usize, out: Out<usize>) -> Outcome {
    let (_, driver) = current()?;
    out.required()?;
    out.set(driver.links.add(Arc::new(Link::default())))
}

fn input(kind: u32) -> Outcome {
    match kind {
        INPUT_PTX => Ok(()),
        0..=5 => Err(Status::NO_BINARY_FOR_GPU),
        _ => Err(Status::INVALID_VALUE),
    }
}

#[allow(clippy::too_many_arguments)]
fn link_data(
    link: usize,
    kind: u32,
    data: usize,
    bytes: usize,
    _name: usize,
    _count: u32,
    _options: usize,
    _values: usize,
) -> Outcome {
    let link = current()?.1.links.get(link)?;
    input(kind)?;
    link.add(&bytes_at(data, bytes)?)
}

fn link_file(link: usize, kind: u32, path: Text, _count: u32, _options: usize, _values: usize) -> Outcome {
    let link = current()?.1.links.get(link)?;
    input(kind)?;
    link.add(&fs::read(path.str()?).map_err(|_| Status::FILE_NOT_FOUND)?)
}

fn link_complete(link: usize, image: Out<usize>, bytes: Out<usize>) -> Outcome {
    let link = current()?.1.links.get(link)?;
    image.required()?;
    let (start, length) = link.complete()?;
    image.set(start)?;
    bytes.offer(length);
    Ok(())
}

fn link_destroy(link: usize) -> Outcome {
    crate::state::driver()?.links.remove(link).map(drop)
}
