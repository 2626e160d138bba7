//! The layouts of functions' parameters: asked once per handle.
//!
//! A launch's function may be a `CUfunction` or a `CUkernel`, each with its own question. The wrong one is refused
//! or, with some drivers, answers for the first parameter only: so a list counts only if it ends as a list does.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use baton_contract::cuda::{CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, CUfunction, CUresult};

use crate::driver::api;

/// The parameters' sizes in bytes, in order.
pub(crate) type Layout = Arc<[usize]>;

/// `None` for functions that this version of the driver does not describe.
static LAYOUTS: RwLock<Option<HashMap<usize, Option<Layout>>>> = RwLock::new(None);

/// More parameters than any kernel can have.
const MOST: usize = 8192;

/// A function's layout, if it can be known.
pub(crate) fn of(function: CUfunction) -> Option<Layout> {
    let key = function.addr();
    if let Some(known) = LAYOUTS.read().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(|all| all.get(&key)) {
        return known.clone();
    }
    // The driver is asked, so the lock is not held.
    // SAFETY: the function that the program is about to launch; out-parameters.
    let layout = list(|at, offset, size| unsafe { api::function_parameter(function, at, offset, size) })
        // SAFETY: as above.
        .or_else(|| list(|at, offset, size| unsafe { api::kernel_parameter(function, at, offset, size) }));
    let mut all = LAYOUTS.write().unwrap_or_else(PoisonError::into_inner);
    all.get_or_insert_default().insert(key, layout.clone());
    layout
}

fn list(mut ask: impl FnMut(usize, *mut usize, *mut usize) -> CUresult) -> Option<Layout> {
    let mut sizes = Vec::new();
    while sizes.len() < MOST {
        let (mut offset, mut size) = (0, 0);
        match ask(sizes.len(), &mut offset, &mut size) {
            CUDA_SUCCESS => sizes.push(size),
            // Past the last one.
            CUDA_ERROR_INVALID_VALUE => return Some(sizes.into()),
            _ => return None,
        }
    }
    None
}

/// Forgets all layouts after code was unloaded: its handles may be reused.
pub(crate) fn forget_all() {
    *LAYOUTS.write().unwrap_or_else(PoisonError::into_inner) = None;
}
