//! Looking for addresses of ours in memory.

use baton_contract::cuda::CUdeviceptr;

use crate::memory::space::Space;
use crate::sys::own_memory;

/// The size of a `CUtensorMap`.
pub(crate) const TENSOR_MAP: usize = 128;

/// Adds every aligned word of host memory that is an address of ours. The memory may be gone, or may never have been: then
/// false.
pub(crate) fn add_from_host(at: usize, bytes: usize, found: &mut Vec<CUdeviceptr>) -> bool {
    own_memory::read(at, bytes, |piece| add_window_words(piece, found))
}

/// Adds every aligned word that is an address of ours. Millions of them: so the window is looked up once, and a run of words is
/// first asked whether any of it is one.
pub(crate) fn add_window_words(bytes: &[u8], found: &mut Vec<CUdeviceptr>) {
    let (low, high) = Space::window();
    let size = high.saturating_sub(low);
    let is_ours = |word: u64| word.wrapping_sub(low) < size;
    // Pointers are aligned on the device, but a copy may begin in the middle of one.
    for skipped in [0, 4] {
        let Some(bytes) = bytes.get(skipped..) else { break };
        for run in bytes.as_chunks::<8>().0.chunks(256) {
            let words = run.iter().map(|word| u64::from_ne_bytes(*word));
            if words.clone().fold(false, |any, word| any | is_ours(word)) {
                found.extend(words.filter(|word| is_ours(*word)));
            }
        }
    }
}
