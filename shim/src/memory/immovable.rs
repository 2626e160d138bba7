//! Memory that cannot move any more, because others can reach it: another GPU, or another device on the bus.
//!
//! The coordinator is told first, and leaves it where it is. Only then does the driver hear of it.

use core::sync::atomic::Ordering;
use core::time::Duration;

use baton_contract::cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUdevice, CUdeviceptr, CUresult};
use baton_contract::messages::ExtentId;

use super::space::Space;
use crate::driver::api::bit;
use crate::gate::MappingGuard;
use crate::link::requests::Requests;
use crate::sys::thread;

/// How often it is tried again when some memory was freed meanwhile.
const MOST_TRIES: u32 = 100;
const SOON: Duration = Duration::from_micros(100);

impl Space {
    /// Whether another GPU can reach all memory.
    pub(crate) fn is_exposed_to(&self, device: CUdevice) -> bool {
        self.exposed.load(Ordering::Acquire) & bit(device) != 0
    }

    /// Lets another GPU reach all memory, now and in future. All of it is there.
    pub(crate) fn expose(&self, requests: &Requests, device: CUdevice, _: &MappingGuard) -> Result<(), CUresult> {
        // From here on whoever gets new memory does the same for that; what came before is seen below.
        self.exposing.fetch_or(bit(device), Ordering::SeqCst);
        for _ in 0..MOST_TRIES {
            let hidden = self.extents.hidden_from(device);
            if hidden.is_empty() {
                self.exposed.fetch_or(bit(device), Ordering::Release);
                return Ok(());
            }
            if self.extents.are_to_stay(&hidden, requests)? {
                match self.extents.expose(&hidden, device) {
                    // Another thread may have freed some of it.
                    Err(CUDA_ERROR_OUT_OF_MEMORY) => return Err(CUDA_ERROR_OUT_OF_MEMORY),
                    _ => continue,
                }
            }
            thread::sleep(SOON);
        }
        Err(CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// Has the host wait for copies and fills of what an address lies in, or not. False if that is nothing.
    pub(crate) fn set_synchronous(&self, at: CUdeviceptr, is_synchronous: bool) -> bool {
        self.lock().table.set_synchronous(at, is_synchronous)
            || self.extents.lock().mappings.set_synchronous(at, is_synchronous)
    }

    /// Whether the host waits for copies and fills of what an address lies in: of the program's own mappings it never does, whatever
    /// they say of themselves (measured: `tokens-of-mapping` in `bench/results/rules.json`).
    pub(crate) fn is_synchronous(&self, at: CUdeviceptr) -> bool {
        self.find(at).is_some_and(|(_, found)| found.is_synchronous)
    }

    /// The allocation that an address lies in is to be reached past its addresses. False if there is none. It is there.
    pub(crate) fn let_escape(&self, requests: &Requests, at: CUdeviceptr, _: &MappingGuard) -> Result<bool, CUresult> {
        let Some((at, bytes)) = self.lock().table.let_escape(at) else { return Ok(false) };
        let extents: Vec<ExtentId> = self.extents.within(at, bytes).into_iter().map(|extent| extent.id).collect();
        if self.extents.are_to_stay(&extents, requests)? { Ok(true) } else { Err(CUDA_ERROR_OUT_OF_MEMORY) }
    }
}
