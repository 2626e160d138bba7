//! The driver's functions for programs that call it themselves, found by their names, and what several of them are given.

use std::ffi::c_int;

pub use libloading::{Error, Library};

/// A context, stream, event, function, pool, graph …
pub type Handle = usize;

/// Makes a `Driver` of these functions. Each gives the driver's answer; of those that have two forms, the form is the first argument.
#[macro_export]
macro_rules! entry_points {
    (
        plain { $($name:ident($($argument:ident: $type:ty),*);)* }
        twins { $($suffix:literal { $($twin:ident($($twin_argument:ident: $twin_type:ty),*);)* })* }
    ) => {
        /// The driver's entry points.
        #[allow(non_snake_case)]
        pub(crate) struct Driver {
            $($name: extern "C" fn($($type),*) -> u32,)*
            $($($twin: [extern "C" fn($($twin_type),*) -> u32; 2],)*)*
            _library: $crate::entry_points::Library,
        }

        #[allow(non_snake_case, clippy::too_many_arguments)]
        impl Driver {
            /// Opens `libcuda.so.1` and finds them all.
            pub(crate) fn open() -> Result<Self, $crate::entry_points::Error> {
                // SAFETY: a CUDA driver library runs nothing of ours when it is loaded.
                let library = unsafe { $crate::entry_points::Library::new("libcuda.so.1") }?;
                Ok(Self {
                    $(
                        // SAFETY: the signature that cuda.h gives this symbol; the library stays open.
                        $name: *unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }?,
                    )*
                    $($(
                        // SAFETY: as above; both forms have one signature.
                        $twin: unsafe { [
                            *library.get(concat!(stringify!($twin), "\0").as_bytes())?,
                            *library.get(concat!(stringify!($twin), $suffix, "\0").as_bytes())?,
                        ] },
                    )*)*
                    _library: library,
                })
            }

            $(pub(crate) fn $name(&self, $($argument: $type),*) -> u32 {
                (self.$name)($($argument),*)
            })*

            $($(pub(crate) fn $twin(&self, twin: bool, $($twin_argument: $twin_type),*) -> u32 {
                self.$twin[usize::from(twin)]($($twin_argument),*)
            })*)*
        }
    };
}

/// `CUmemLocation`: the first GPU.
const FIRST_GPU: [c_int; 2] = [1, 0];

/// `CUmemAllocationProp`: of the first GPU.
#[derive(Debug)]
#[repr(C)]
pub struct Properties {
    kind: u32,
    handle_types: u32,
    location: [c_int; 2],
    more: [u64; 2],
}

impl Properties {
    /// Memory that can be exported as a descriptor, or that cannot.
    pub const fn exportable(exportable: bool) -> Self {
        Self { kind: 1, handle_types: exportable as u32, location: FIRST_GPU, more: [0; 2] }
    }
}

/// `CUmemPoolProps`: of the first GPU.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PoolProperties {
    kind: u32,
    handle_types: u32,
    location: [c_int; 2],
    more: [u64; 9],
}

impl PoolProperties {
    /// A pool of this process's alone, or one that can be exported as a descriptor.
    pub const fn exportable(exportable: bool) -> Self {
        Self { kind: 1, handle_types: exportable as u32, location: FIRST_GPU, more: [0; 9] }
    }
}

/// `CUmemAccessDesc`: of the first GPU.
#[derive(Debug)]
#[repr(C)]
pub struct Access {
    location: [c_int; 2],
    flags: u32,
}

impl Access {
    /// None.
    pub const NONE: Self = Self { location: FIRST_GPU, flags: 0 };
    /// To read and write.
    pub const FULL: Self = Self { location: FIRST_GPU, flags: 3 };
}

const _: () = {
    assert!(size_of::<Properties>() == 32);
    assert!(size_of::<PoolProperties>() == 88);
    assert!(size_of::<Access>() == 12);
};

/// The kernels' text, with the zero byte that ends it.
pub const KERNELS: &str = concat!(include_str!("../../examples/kernels/kernels.ptx"), "\0");
