//! Looking for addresses of ours in memory.

use baton_contract::cuda::CUdeviceptr;

use crate::memory::space::Space;

/// The size of a `CUtensorMap`.
pub(crate) const TENSOR_MAP: usize = 128;

/// Adds every aligned word of host memory that is an address of ours. Millions of them: so the window is looked up
/// once, and a run of words is first asked whether any of it is one.
///
/// # Safety
///
/// So many bytes can be read.
pub(crate) unsafe fn add_window_words(start: *const u8, bytes: usize, found: &mut Vec<CUdeviceptr>) {
    let (low, high) = Space::window();
    let size = high.saturating_sub(low);
    let is_ours = |word: u64| word.wrapping_sub(low) < size;
    // Pointers are aligned on the device, but a copy may begin in the middle of one.
    for skipped in [0, 4] {
        if skipped >= bytes {
            break;
        }
        // SAFETY: within the range.
        let bytes = unsafe { core::slice::from_raw_parts(start.add(skipped), bytes - skipped) };
        for run in bytes.as_chunks::<8>().0.chunks(256) {
            let words = run.iter().map(|word| u64::from_ne_bytes(*word));
            if words.clone().fold(false, |any, word| any | is_ours(word)) {
                found.extend(words.filter(|word| is_ours(*word)));
            }
        }
    }
}
