//! Code and its globals: asking for those, and unloading code.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;

use crate::bench::{Bench, Handle, KERNELS, Subject};
use crate::kernels::axpy;
use crate::memory::written;
use crate::piece::{NOWHERE, checksum};

/// Code with nothing but globals.
const GLOBALS: &CStr = c"
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 8 .b8 table[64] = {1, 2, 3, 4};
.visible .const .align 4 .u32 limit = 5;
";
const NO_CODE: Handle = null_mut();

fn module(bench: &Bench, image: *const c_char) -> Handle {
    let mut module = null_mut();
    bench.note("cuModuleLoadData", bench.cuModuleLoadData(&mut module, image));
    module
}

fn library(bench: &Bench, image: *const c_char) -> Handle {
    let (mut library, no) = (null_mut(), null_mut());
    bench.note("cuLibraryLoadData", bench.cuLibraryLoadData(&mut library, image, no, no, 0, no, no, 0));
    library
}

/// Address, size, code, name.
type Global = extern "C" fn(*mut u64, *mut usize, Handle, *const c_char) -> u32;

/// Asks for globals of [`GLOBALS`].
fn globals(subject: &Subject, code: Handle, get: Global) {
    let bench = subject.bench;
    let table = c"table".as_ptr();
    for (case, name) in [("a table", table), ("a constant", c"limit".as_ptr()), ("no such name", c"nothing".as_ptr())] {
        let (mut at, mut bytes) = (NOWHERE, 77);
        let result = get(&mut at, &mut bytes, code, name);
        let seen = if result == 0 { contents(bench, at, bytes) } else { written(at).to_owned() };
        subject.say(case, result, format_args!("size {bytes}, {seen}"));
    }
    let mut bytes = 77;
    subject.say("the size of a table", get(null_mut(), &mut bytes, code, table), bytes);
    let mut at = NOWHERE;
    let result = get(&mut at, null_mut(), code, table);
    let seen = if result == 0 { contents(bench, at, 64) } else { written(at).to_owned() };
    subject.say("the address of a table", result, seen);
    subject.say("neither size nor address", get(null_mut(), null_mut(), code, table), "");
    let (mut at, mut bytes) = (NOWHERE, 77);
    let result = get(&mut at, &mut bytes, NO_CODE, table);
    subject.say("no code", result, format_args!("size {bytes}, {}", written(at)));
}

/// The contents of a global, and whether it can be written.
fn contents(bench: &Bench, at: u64, bytes: usize) -> String {
    let read = |answer: &mut String| {
        let mut back = vec![0; bytes];
        let result = bench.cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), at, bytes);
        *answer += &format!("read {result} {:08x}", checksum(&back));
        back
    };
    let mut answer = String::new();
    let before = read(&mut answer);
    answer += &format!(", fill {}, ", bench.cuMemsetD8_v2(at, 0x21, bytes));
    read(&mut answer);
    bench.note("cuMemcpyHtoD_v2", bench.cuMemcpyHtoD_v2(at, before.as_ptr().cast(), bytes));
    answer
}

/// `cuModuleGetGlobal_v2`.
pub(crate) fn global_of_module(subject: &Subject, get: Global) {
    let bench = subject.bench;
    let code = module(bench, GLOBALS.as_ptr());
    globals(subject, code, get);
    if !code.is_null() {
        bench.note("cuModuleUnload", bench.cuModuleUnload(code));
    }
}

/// `cuLibraryGetGlobal`.
pub(crate) fn global_of_library(subject: &Subject, get: Global) {
    let bench = subject.bench;
    let code = library(bench, GLOBALS.as_ptr());
    globals(subject, code, get);
    if !code.is_null() {
        bench.note("cuLibraryUnload", bench.cuLibraryUnload(code));
    }
}

/// Runs a kernel of some code, or of what the bench has loaded, and waits for it.
fn run(bench: &Bench, function: impl FnOnce(&CStr) -> Handle) -> String {
    let mut kernel = axpy(bench, 1);
    let function = function(kernel.name);
    if function.is_null() {
        return kernel.untouched();
    }
    let mut parameters: Vec<*mut c_void> = kernel.pointers();
    let (stream, pointers) = (bench.own_stream(), parameters.as_mut_ptr());
    bench.note("cuLaunchKernel", bench.cuLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, stream, pointers, null_mut()));
    kernel.seen()
}

/// Loads code with nothing but globals, and what is none.
fn loaded(subject: &Subject, load: impl Fn(*mut Handle, *const c_char) -> u32, unload: impl Fn(&Bench, Handle)) {
    for (case, image) in [("globals", GLOBALS), ("no code", c"nothing of the kind")] {
        let mut code = null_mut();
        let result = load(&mut code, image.as_ptr());
        subject.say(case, result, format_args!("something {}", result == 0 && !code.is_null()));
        if result == 0 {
            unload(subject.bench, code);
        }
    }
}

fn unload_a_module(bench: &Bench, module: Handle) {
    bench.note("cuModuleUnload", bench.cuModuleUnload(module));
}

fn unload_a_library(bench: &Bench, library: Handle) {
    bench.note("cuLibraryUnload", bench.cuLibraryUnload(library));
}

/// `cuModuleLoadData`, `cuModuleLoadFatBinary`.
pub(crate) fn load(subject: &Subject, load: extern "C" fn(*mut Handle, *const c_char) -> u32) {
    loaded(subject, |out, image| load(out, image), unload_a_module);
}

/// `cuModuleLoadDataEx`.
pub(crate) fn load_with_options(
    subject: &Subject,
    load: extern "C" fn(*mut Handle, *const c_char, u32, Handle, Handle) -> u32,
) {
    loaded(subject, |out, image| load(out, image, 0, null_mut(), null_mut()), unload_a_module);
}

/// `cuModuleLoad`.
pub(crate) fn load_file(subject: &Subject, load: extern "C" fn(*mut Handle, *const c_char) -> u32) {
    let mut code = null_mut();
    subject.say("no such file", load(&mut code, c"/nowhere/kernels.ptx".as_ptr()), code.is_null());
}

type LoadLibrary = extern "C" fn(*mut Handle, *const c_char, Handle, Handle, u32, Handle, Handle, u32) -> u32;

/// `cuLibraryLoadData`.
pub(crate) fn load_library(subject: &Subject, load: LoadLibrary) {
    let no = null_mut();
    loaded(subject, |out, image| load(out, image, no, no, 0, no, no, 0), unload_a_library);
}

/// `cuLibraryLoadFromFile`.
pub(crate) fn load_library_file(subject: &Subject, load: LoadLibrary) {
    let (mut code, no) = (null_mut(), null_mut());
    let result = load(&mut code, c"/nowhere/kernels.ptx".as_ptr(), no, no, 0, no, no, 0);
    subject.say("no such file", result, code.is_null());
}

/// Unloads code that was never used, and code of which a kernel has run and a global was asked for. Other code
/// has to go on.
fn unloaded(
    subject: &Subject,
    load: impl Fn(&Bench, *const c_char) -> Handle,
    find: impl Fn(*mut Handle, Handle, *const c_char) -> u32,
    unload: extern "C" fn(Handle) -> u32,
) {
    let bench = subject.bench;
    let others = || format!("other code {}", run(bench, |name| bench.function(name)));
    subject.say("globals", unload(load(bench, GLOBALS.as_ptr())), others());
    let code = load(bench, KERNELS.as_ptr().cast());
    subject.say("kernels", unload(code), others());
    let code = load(bench, KERNELS.as_ptr().cast());
    let ran = run(bench, |name| {
        let mut function = null_mut();
        if !code.is_null() {
            bench.note("its function", find(&mut function, code, name.as_ptr()));
        }
        function
    });
    subject.say("kernels that have run", unload(code), format_args!("{ran}, {}", others()));
    subject.say("no code", unload(NO_CODE), others());
}

/// `cuModuleUnload`.
pub(crate) fn unload_module(subject: &Subject, unload: extern "C" fn(Handle) -> u32) {
    let bench = subject.bench;
    unloaded(subject, module, |out, module, name| bench.cuModuleGetFunction(out, module, name), unload);
}

/// `cuLibraryUnload`.
pub(crate) fn unload_library(subject: &Subject, unload: extern "C" fn(Handle) -> u32) {
    let bench = subject.bench;
    unloaded(subject, library, |out, library, name| bench.cuLibraryGetKernel(out, library, name), unload);
}
