//! Errors of the driver.

use std::path::PathBuf;

use baton_contract::cuda::{CUDA_ERROR_NO_DEVICE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUresult};

/// The reason why a call of the driver failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GpuError {
    /// The library cannot be used at all.
    #[error("{}: {why}", .library.display())]
    Library {
        /// The library.
        library: PathBuf,
        /// The loader's message.
        why: String,
    },
    /// A call failed.
    #[error("the driver answered {call} with CUDA error {code}{}", explain(*.code))]
    Call {
        /// The function.
        call: &'static str,
        /// Its answer.
        code: CUresult,
    },
    /// There is no such GPU.
    #[error("there is no GPU {asked}: this machine has {count}, counted from 0")]
    NoSuchGpu {
        /// The number that the user asked for.
        asked: usize,
        /// The number of GPUs.
        count: usize,
    },
}

impl GpuError {
    /// True if the device's memory is full.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Call { code: CUDA_ERROR_OUT_OF_MEMORY, .. })
    }

    /// True if the driver has no GPU at all.
    pub fn is_no_gpu(&self) -> bool {
        matches!(self, Self::Call { code: CUDA_ERROR_NO_DEVICE, .. })
    }
}

fn explain(code: CUresult) -> &'static str {
    match code {
        2 => " (out of device memory)",
        100 => " (no GPU)",
        801 => " (not supported)",
        802 => " (the system is not ready)",
        803 => " (the driver's library and its kernel module are of different versions)",
        804 => " (this GPU does not take the compatibility library)",
        999 => " (unknown; is the driver loaded and the GPU healthy?)",
        _ => "",
    }
}

/// An error if a call was not answered with success.
pub(crate) fn check(call: &'static str, code: CUresult) -> Result<(), GpuError> {
    if code == CUDA_SUCCESS { Ok(()) } else { Err(GpuError::Call { call, code }) }
}
