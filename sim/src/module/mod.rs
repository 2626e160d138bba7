//! Modules, libraries and the functions in them.
//!
//! A module belongs to a context, a library to none: it becomes a module in each context that uses it.
//! A `CUfunction` is a module's; a `CUkernel` is a library's and may be given where a `CUfunction` is
//! wanted, but not to everything that asks about one (`cuFuncGetParamInfo` refuses it).

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use self::ptx::{Entry, Ptx};
use crate::errors::{Outcome, Status};
use crate::exec::context::Context;
use crate::kernels::{self, Body};
use crate::memory::space::{ALWAYS_MAPPED, Space};
use crate::registry::Registry;

pub(crate) mod image;
pub(crate) mod launch;
pub(crate) mod link;
pub(crate) mod ptx;

/// All code of the process.
pub(crate) struct Code {
    pub(crate) modules: Registry<Module>,
    pub(crate) functions: Registry<Function>,
    pub(crate) libraries: Registry<Library>,
    pub(crate) kernels: Registry<Kernel>,
}

/// A text loaded into a context.
pub(crate) struct Module {
    pub(crate) context_id: u64,
    /// Functions by name.
    functions: BTreeMap<String, usize>,
    pub(crate) globals: Arc<Globals>,
}

/// A module's variables: address and bytes.
type Globals = BTreeMap<String, (u64, usize)>;

/// A kernel in a context.
pub(crate) struct Function {
    pub(crate) module: usize,
    pub(crate) context_id: u64,
    /// The device of that context.
    pub(crate) ordinal: usize,
    pub(crate) name: CString,
    pub(crate) entry: Entry,
    pub(crate) ptx_version: u32,
    /// The kernel to run; `None`: the text's instructions are not known here.
    pub(crate) body: Option<&'static Body>,
    /// The variables of its module, as long as that is loaded.
    globals: Weak<Globals>,
    settings: Mutex<FunctionSettings>,
}

/// A program may set these on a function.
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

impl Code {
    /// No code yet; `kinds` keep the handles of modules, functions, libraries and kernels apart.
    pub(crate) fn new(kinds: [u8; 4]) -> Code {
        Code {
            modules: Registry::new(kinds[0]),
            functions: Registry::new(kinds[1]),
            libraries: Registry::new(kinds[2]),
            kernels: Registry::new(kinds[3]),
        }
    }

    /// Ends all modules of a context.
    pub(crate) fn forget_context(&self, context: u64) {
        self.modules.remove_if(|module| module.context_id == context);
        self.functions.remove_if(|function| function.context_id == context);
    }
}

impl Module {
    /// Loads a text into a context; the handle.
    pub(crate) fn load(code: &Code, context: &Context, ptx: &Ptx) -> Outcome<usize> {
        let space = &context.common.space;
        let handle = code.modules.draw();
        let mut globals = BTreeMap::new();
        for (name, global) in &ptx.globals {
            let bytes = global.size.max(1) as u64;
            let at = match global.managed {
                true => space.change().add_host(context.id, global.size.max(1), ALWAYS_MAPPED, true)?,
                false => space.allocate(context.device.gpu, bytes, context.id, false)?,
            };
            context.view().fill(at, &[0], global.size)?;
            context.view().write(at, &global.initial)?;
            globals.insert(name.clone(), (at, global.size));
        }
        let globals = Arc::new(globals);
        let mut functions = BTreeMap::new();
        for (name, entry) in &ptx.entries {
            let function = code.functions.draw();
            let made = Function {
                module: handle,
                context_id: context.id,
                ordinal: context.device.ordinal(),
                name: CString::new(name.as_str()).map_err(|_| Status::INVALID_PTX)?,
                entry: entry.clone(),
                ptx_version: ptx.version,
                body: kernels::find(name),
                globals: Arc::downgrade(&globals),
                settings: Mutex::default(),
            };
            code.functions.put(function, Arc::new(made));
            functions.insert(name.clone(), function);
        }
        let module = Module { context_id: context.id, functions, globals };
        code.modules.put(handle, Arc::new(module));
        Ok(handle)
    }

    /// Unloads it: its functions and variables go.
    pub(crate) fn unload(code: &Code, space: &Space, handle: usize) -> Outcome {
        let module = code.modules.remove(handle)?;
        code.functions.remove_if(|function| function.module == handle);
        for (at, _) in module.globals.values() {
            if space.change().hosts.remove(at).is_none() {
                space.free(*at)?;
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
    /// The program's settings.
    pub(crate) fn settings(&self) -> MutexGuard<'_, FunctionSettings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The function behind a handle that may be a kernel's.
    pub(crate) fn find(code: &Code, context: &Context, handle: usize) -> Outcome<Arc<Function>> {
        if let Ok(function) = code.functions.get(handle) {
            return Ok(function);
        }
        let kernel = code.kernels.get(handle)?;
        code.functions.get(kernel.function(code, context)?)
    }

    /// The address of a variable of its module.
    pub(crate) fn variable(&self, name: &str) -> Outcome<u64> {
        let globals = self.globals.upgrade().ok_or(Status::INVALID_HANDLE)?;
        globals.get(name).map(|(at, _)| *at).ok_or(Status::NOT_FOUND)
    }
}

impl Library {
    /// Loads a text; the handle.
    pub(crate) fn load(code: &Code, ptx: Ptx) -> Outcome<usize> {
        let handle = code.libraries.draw();
        let mut kernels = BTreeMap::new();
        for (name, entry) in &ptx.entries {
            let kernel = Kernel {
                library: handle,
                name: CString::new(name.as_str()).map_err(|_| Status::INVALID_PTX)?,
                entry: entry.clone(),
            };
            kernels.insert(name.clone(), code.kernels.add(Arc::new(kernel)));
        }
        let library = Library { ptx: Arc::new(ptx), kernels, modules: Mutex::default() };
        code.libraries.put(handle, Arc::new(library));
        Ok(handle)
    }

    /// Unloads it, and its modules in all contexts.
    pub(crate) fn unload(code: &Code, space: &Space, handle: usize) -> Outcome {
        let library = code.libraries.remove(handle)?;
        code.kernels.remove_if(|kernel| kernel.library == handle);
        for module in library.modules().values() {
            // A module may have gone with its context.
            let _ = Module::unload(code, space, *module);
        }
        Ok(())
    }

    /// Its module in a context, made on first use.
    pub(crate) fn module(&self, code: &Code, context: &Context) -> Outcome<usize> {
        let mut modules = self.modules();
        if let Some(module) = modules.get(&context.id) {
            return Ok(*module);
        }
        let module = Module::load(code, context, &self.ptx)?;
        modules.insert(context.id, module);
        Ok(module)
    }

    fn modules(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.modules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kernel {
    /// Its function in a context.
    pub(crate) fn function(&self, code: &Code, context: &Context) -> Outcome<usize> {
        let library = code.libraries.get(self.library)?;
        let module = code.modules.get(library.module(code, context)?)?;
        let name = self.name.to_str().map_err(|_| Status::NOT_FOUND)?;
        module.function(name)
    }
}
