//! Errors of the driver.

use std::path::PathBuf;

use baton_contract::cuda::{CUDA_ERROR_NO_DEVICE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS, CUresult};

/// The reason why a call of the driver failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GpuError {
    /// The library cannot be used at all.
    #[error("{}", baton_messages::library_does_not_open(.library.display(), why))]
    Library {
        /// The library.
        library: PathBuf,
        /// The loader's message.
        why: String,
    },
    /// A call failed.
    #[error("{}", baton_messages::driver_answered(call, code, explain(*.code)))]
    Call {
        /// The function.
        call: &'static str,
        /// Its answer.
        code: CUresult,
    },
    /// There is no such GPU.
    #[error("{}", baton_messages::no_such_gpu(asked, count))]
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
        2 => baton_messages::OUT_OF_DEVICE_MEMORY,
        100 => baton_messages::NO_GPU_HERE,
        801 => baton_messages::NOT_SUPPORTED,
        802 => baton_messages::SYSTEM_NOT_READY,
        803 => baton_messages::VERSIONS_DIFFER,
        804 => baton_messages::NO_COMPATIBILITY,
        999 => baton_messages::UNKNOWN_ERROR,
        _ => "",
    }
}

/// An error if a call was not answered with success.
pub(crate) fn check(call: &'static str, code: CUresult) -> Result<(), GpuError> {
    if code == CUDA_SUCCESS { Ok(()) } else { Err(GpuError::Call { call, code }) }
}
