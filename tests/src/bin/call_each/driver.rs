//! Finds the driver's functions, by name or through `cuGetProcAddress_v2`, as programs do.
//!
//! A function that the driver does not have is one that answers [`NOT_FOUND`] whatever it is given:
//! that is what Baton's own export of the name answers over the same driver.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::transmute_copy;
use std::ptr::null_mut;

use libloading::Library;

/// `CUDA_ERROR_NOT_FOUND`.
const NOT_FOUND: u32 = 500;

/// The driver's entry points: `[base, twin, version, symbol]`.
const SYMBOLS: &str = include_str!("../../../../include/symbols/cuda.json");

/// `cuGetProcAddress_v2`: name, function, version, flags, status.
pub(crate) type GetProcAddress = extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> u32;

/// A C function pointer of some signature.
pub(crate) trait Signature: Copy {
    /// A function of this signature that answers [`NOT_FOUND`].
    const ABSENT: Self;
}

macro_rules! signatures {
    ($($name:ident)*) => {
        impl<$($name),*> Signature for extern "C" fn($($name),*) -> u32 {
            const ABSENT: Self = {
                extern "C" fn absent<$($name),*>($(_: $name),*) -> u32 {
                    NOT_FOUND
                }
                absent::<$($name),*>
            };
        }
    };
}
signatures!();
signatures!(A);
signatures!(A B);
signatures!(A B C);
signatures!(A B C D);
signatures!(A B C D E);
signatures!(A B C D E F);
signatures!(A B C D E F G);
signatures!(A B C D E F G H);
signatures!(A B C D E F G H I);
signatures!(A B C D E F G H I J);
signatures!(A B C D E F G H I J K);
signatures!(A B C D E F G H I J K L);
signatures!(A B C D E F G H I J K L M);
signatures!(A B C D E F G H I J K L M N);
signatures!(A B C D E F G H I J K L M N O);
signatures!(A B C D E F G H I J K L M N O P);

/// The question to `cuGetProcAddress_v2` that gets a symbol.
pub(crate) struct Request {
    pub(crate) base: CString,
    pub(crate) version: c_int,
    /// 1: the symbol itself; 2: its twin for per-thread default streams.
    pub(crate) flags: u64,
}

/// The driver, opened by the name that every program uses.
pub(crate) struct Driver {
    library: Library,
    /// Set if functions come through `cuGetProcAddress_v2`.
    through: Option<GetProcAddress>,
    requests: HashMap<String, Request>,
}

impl Driver {
    /// Opens `libcuda.so.1`.
    pub(crate) fn open(through_procaddress: bool) -> Self {
        // SAFETY: a CUDA driver library runs nothing of ours when it is loaded.
        let library = unsafe { Library::new("libcuda.so.1") }.unwrap_or_else(|error| panic!("{error}"));
        let mut driver = Self { library, through: None, requests: requests() };
        if through_procaddress {
            // SAFETY: the signature that cuda.h gives this symbol.
            driver.through = Some(unsafe { driver.find("cuGetProcAddress_v2") });
        }
        driver
    }

    /// The function behind a symbol.
    ///
    /// # Safety
    /// `F` is the signature that `cuda.h` gives the symbol. The caller answers for all calls of the
    /// function: pointers are null or to memory that the driver may use for as long as it will.
    pub(crate) unsafe fn find<F: Signature>(&self, symbol: &str) -> F {
        let address = match self.through {
            Some(through) => self.by_procaddress(through, symbol),
            None => self.by_name(symbol),
        };
        if address.is_null() {
            return F::ABSENT;
        }
        assert_eq!(size_of::<F>(), size_of_val(&address));
        // SAFETY: F is a function pointer, as only those have a `Signature`; not null; the caller
        // promises that it fits the function.
        unsafe { transmute_copy(&address) }
    }

    /// The address that the loader knows for a symbol, or null.
    pub(crate) fn by_name(&self, symbol: &str) -> *mut c_void {
        // SAFETY: the pointer is only taken as an address here.
        unsafe { self.library.get::<*mut c_void>(symbol) }.map_or(null_mut(), |address| *address)
    }

    fn by_procaddress(&self, through: GetProcAddress, symbol: &str) -> *mut c_void {
        let request = self.request(symbol);
        let (mut function, mut status) = (null_mut(), 0);
        match through(request.base.as_ptr(), &mut function, request.version, request.flags, &mut status) {
            0 => function,
            _ => null_mut(),
        }
    }

    /// How `cuGetProcAddress_v2` is asked for a symbol.
    pub(crate) fn request(&self, symbol: &str) -> &Request {
        self.requests.get(symbol).unwrap_or_else(|| panic!("{symbol} is not in the list of symbols"))
    }
}

fn requests() -> HashMap<String, Request> {
    let rows: Vec<(String, String, c_int, String)> = serde_json::from_str(SYMBOLS).expect("the list is well formed");
    let request = |base: String, twin: &str, version| Request {
        base: CString::new(base).expect("a name without nulls"),
        version,
        flags: if twin.is_empty() { 1 } else { 2 },
    };
    rows.into_iter().map(|(base, twin, version, symbol)| (symbol, request(base, &twin, version))).collect()
}
