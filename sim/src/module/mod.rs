//! Modules, libraries and the functions in them.
//!
//! A module belongs to a context, a library to none: it becomes a module in each context that uses it.
//! A `CUfunction` is a module's; a `CUkernel` is a library's and may be given where a `CUfunction` is
//! wanted, but not to everything that asks about one (`cuFuncGetParamInfo` refuses it).

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::ptx::{Entry, Ptx};
use crate::border::{bytes_at, text_at};
use crate::errors::{Outcome, Status};
use crate::exec::context::Context;
use crate::kernels::{self, Body};
use crate::memory::space::ALWAYS_MAPPED;
use crate::state::Driver;

pub(crate) mod launch;
pub(crate) mod link;
pub(crate) mod ptx;

/// A text loaded into a context.
pub(crate) struct Module {
    pub(crate) context_id: u64,
    /// Functions by name.
    functions: BTreeMap<String, usize>,
    /// Variables: address and bytes.
    pub(crate) globals: BTreeMap<String, (u64, usize)>,
}

/// A kernel in a context.
pub(crate) struct Function {
    pub(crate) module: usize,
    pub(crate) context_id: u64,
    /// The device of that context.
    pub(crate) ordinal: usize,
    pub(crate) name: CString,
    pub(crate) entry: Entry,
    pub(crate) ptx_version: u32,
    /// What to run; `None`: the text's instructions are not known here.
    pub(crate) body: Option<&'static Body>,
    settings: Mutex<FunctionSettings>,
}

/// What a program may set on a function.
#[derive(Clone, Default)]
pub(crate) struct FunctionSettings {
    /// Values of settable attributes.
    pub(crate) attributes: BTreeMap<u32, i32>,
    /// For the launches of old: block, dynamic shared memory, parameters.
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) params: Vec<u8>,
}

/// A text loaded for all contexts.
pub(crate) struct Library {
    ptx: Arc<Ptx>,
    /// Kernels by name.
    pub(crate) kernels: BTreeMap<String, usize>,
    /// Its modules, by context.
    modules: Mutex<HashMap<u64, usize>>,
}

/// A kernel of a library.
pub(crate) struct Kernel {
    pub(crate) library: usize,
    pub(crate) name: CString,
    pub(crate) entry: Entry,
}

/// Reads an image as `cuModuleLoadData` gets it: a text that ends with a zero byte.
pub(crate) fn read_image(image: usize) -> Outcome<Ptx> {
    let text = text_at(image);
    // What is not a text is recognised by its first bytes, of which any image has four.
    let first = bytes_at(image, 1)?;
    if first == [0x7F] || first == [0x50] || first == [0xB1] || first == [0x44] {
        let magic: [u8; 4] = bytes_at(image, 4)?.try_into().map_err(|_| Status::INVALID_IMAGE)?;
        if is_binary(magic) {
            return Err(Status::NO_BINARY_FOR_GPU);
        }
    }
    read_text(text.bytes()?)
}

/// Reads a file's or a linker's text.
pub(crate) fn read_text(text: &[u8]) -> Outcome<Ptx> {
    if text.first_chunk().copied().is_some_and(is_binary) {
        return Err(Status::NO_BINARY_FOR_GPU);
    }
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = std::str::from_utf8(text).map_err(|_| Status::INVALID_PTX)?;
    let ptx = Ptx::read(text).map_err(|_| Status::INVALID_PTX)?;
    if ptx.version > NEWEST_VERSION {
        return Err(Status::UNSUPPORTED_PTX_VERSION);
    }
    if ptx.target > DEVICE_TARGET { Err(Status::NO_BINARY_FOR_GPU) } else { Ok(ptx) }
}

/// The newest PTX of the CUDA version that is simulated, as major * 10 + minor.
const NEWEST_VERSION: u32 = 90;

/// The device's own `sm_NN`.
const DEVICE_TARGET: u32 = 90;

/// ELF (a cubin), or one of the two wrappings of a fat binary.
fn is_binary(magic: [u8; 4]) -> bool {
    magic == *b"\x7FELF" || magic == [0x50, 0xED, 0x55, 0xBA] || magic == [0xB1, 0x43, 0x62, 0x46]
}

impl Module {
    /// Loads a text into a context; the handle.
    pub(crate) fn load(context: &Context, ptx: &Ptx) -> Outcome<usize> {
        let driver = context.driver;
        let handle = driver.modules.draw();
        let mut globals = BTreeMap::new();
        for (name, global) in &ptx.globals {
            let bytes = global.size.max(1) as u64;
            let at = match global.managed {
                true => driver.space.change().add_host(context.id, global.size.max(1), ALWAYS_MAPPED, true)?,
                false => driver.space.allocate(context.device.gpu, bytes, context.id, false)?,
            };
            context.view().fill(at, &[0], global.size)?;
            context.view().write(at, &global.initial)?;
            globals.insert(name.clone(), (at, global.size));
        }
        let mut functions = BTreeMap::new();
        for (name, entry) in &ptx.entries {
            let function = driver.functions.draw();
            let made = Function {
                module: handle,
                context_id: context.id,
                ordinal: context.device.ordinal(),
                name: CString::new(name.as_str()).map_err(|_| Status::INVALID_PTX)?,
                entry: entry.clone(),
                ptx_version: ptx.version,
                body: kernels::find(name),
                settings: Mutex::default(),
            };
            driver.functions.put(function, Arc::new(made));
            functions.insert(name.clone(), function);
        }
        let module = Module { context_id: context.id, functions, globals };
        driver.modules.put(handle, Arc::new(module));
        Ok(handle)
    }

    /// Unloads it: its functions and variables go.
    pub(crate) fn unload(driver: &Driver, handle: usize) -> Outcome {
        let module = driver.modules.remove(handle)?;
        driver.functions.remove_if(|function| function.module == handle);
        for (at, _) in module.globals.values() {
            if driver.space.change().hosts.remove(at).is_none() {
                driver.space.free(*at)?;
            }
        }
        Ok(())
    }

    /// A function by its name.
    pub(crate) fn function(&self, name: &str) -> Outcome<usize> {
        self.functions.get(name).copied().ok_or(Status::NOT_FOUND)
    }

    /// All functions.
    pub(crate) fn functions(&self) -> Vec<usize> {
        self.functions.values().copied().collect()
    }
}

impl Function {
    /// What the program set on it.
    pub(crate) fn settings(&self) -> MutexGuard<'_, FunctionSettings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The function behind a handle that may be a kernel's.
    pub(crate) fn find(context: &Context, handle: usize) -> Outcome<Arc<Function>> {
        if let Ok(function) = context.driver.functions.get(handle) {
            return Ok(function);
        }
        let kernel = context.driver.kernels.get(handle)?;
        context.driver.functions.get(kernel.function(context)?)
    }
}

impl Library {
    /// Loads a text; the handle.
    pub(crate) fn load(driver: &Driver, ptx: Ptx) -> Outcome<usize> {
        let handle = driver.libraries.draw();
        let mut kernels = BTreeMap::new();
        for (name, entry) in &ptx.entries {
            let kernel = Kernel {
                library: handle,
                name: CString::new(name.as_str()).map_err(|_| Status::INVALID_PTX)?,
                entry: entry.clone(),
            };
            kernels.insert(name.clone(), driver.kernels.add(Arc::new(kernel)));
        }
        let library = Library { ptx: Arc::new(ptx), kernels, modules: Mutex::default() };
        driver.libraries.put(handle, Arc::new(library));
        Ok(handle)
    }

    /// Unloads it, and its modules in all contexts.
    pub(crate) fn unload(driver: &Driver, handle: usize) -> Outcome {
        let library = driver.libraries.remove(handle)?;
        driver.kernels.remove_if(|kernel| kernel.library == handle);
        for module in library.modules().values() {
            // A module may have gone with its context.
            let _ = Module::unload(driver, *module);
        }
        Ok(())
    }

    /// Its module in a context, made on first use.
    pub(crate) fn module(&self, context: &Context) -> Outcome<usize> {
        let mut modules = self.modules();
        if let Some(module) = modules.get(&context.id) {
            return Ok(*module);
        }
        let module = Module::load(context, &self.ptx)?;
        modules.insert(context.id, module);
        Ok(module)
    }

    fn modules(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kernel {
    /// Its function in a context.
    pub(crate) fn function(&self, context: &Context) -> Outcome<usize> {
        let library = context.driver.libraries.get(self.library)?;
        let module = context.driver.modules.get(library.module(context)?)?;
        let name = self.name.to_str().map_err(|_| Status::NOT_FOUND)?;
        module.function(name)
    }
}
