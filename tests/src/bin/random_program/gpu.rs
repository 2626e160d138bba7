//! The GPU that all lanes use: its context, and kernels as a library.

use std::ffi::{CStr, c_int};

use baton_tests::driver::{Checked, Handle, KERNELS, Outcome};

/// The driver, a context, and the kernels as a library, which all lanes share.
pub(crate) struct Gpu {
    pub(crate) driver: Checked,
    pub(crate) context: Handle,
    device: c_int,
    pub(crate) library: Handle,
    /// Another library, of which a global is used.
    globals: Handle,
}

/// Code with nothing but a global.
pub(crate) const GLOBALS: &CStr = c"
.version 7.0
.target sm_75
.address_size 64
.visible .global .align 8 .b8 table[4096];
";

impl Gpu {
    /// Opens the first device.
    pub(crate) fn open() -> Outcome<Self> {
        let driver = Checked::open()?;
        driver.cuInit(0)?;
        let (mut device, mut context, mut library, mut globals) = (0, 0, 0, 0);
        driver.cuDeviceGet(&mut device, 0)?;
        driver.cuDevicePrimaryCtxRetain(&mut context, device)?;
        driver.cuCtxSetCurrent(context)?;
        driver.cuLibraryLoadData(&mut library, KERNELS.as_ptr(), 0, 0, 0, 0, 0, 0)?;
        driver.cuLibraryLoadData(&mut globals, GLOBALS.as_ptr().cast(), 0, 0, 0, 0, 0, 0)?;
        Ok(Self { driver, context, device, library, globals })
    }

    /// Address and size of the library's global.
    pub(crate) fn library_global(&self) -> Outcome<(u64, usize)> {
        let (mut at, mut bytes) = (0, 0);
        self.driver.cuLibraryGetGlobal(&mut at, &mut bytes, self.globals, c"table".as_ptr())?;
        Ok((at, bytes))
    }

    /// Ends it in order.
    pub(crate) fn close(self) -> Outcome {
        self.driver.cuLibraryUnload(self.globals)?;
        self.driver.cuLibraryUnload(self.library)?;
        self.driver.cuDevicePrimaryCtxRelease_v2(self.device)
    }
}
