//! Fused multiply-add at the CPU's own speed.
//!
//! The results need one rounding per step, as on the device. Without the CPU's instruction each step is a
//! call into the C library: right, and many times slower.
#![allow(unsafe_code)]

/// Runs arithmetic, compiled for a CPU that has the instruction if this one does.
pub(super) fn fused<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the CPU has both features, as was just asked.
        return unsafe { with_instruction(work) };
    }
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn with_instruction<R>(work: impl FnOnce() -> R) -> R {
    work()
}
