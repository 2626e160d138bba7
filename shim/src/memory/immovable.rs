//! Memory that others can access: another GPU, which has access wherever the memory is, or another device on the bus, for which it can no
//! longer move.
//!
//! Of the latter the coordinator is told first, and leaves the memory where it is. Only then is the driver told.

use core::sync::atomic::Ordering;
use core::time::Duration;

use baton_contract::cuda::{CUDA_ERROR_OUT_OF_MEMORY, CUdevice, CUdeviceptr, CUresult};
use baton_contract::messages::ExtentId;

use super::space::Space;
use crate::driver::api::bit;
use crate::gate::MappingGuard;
use crate::link::requests::Requests;
use crate::sys::thread;

/// The number of tries if some memory was freed meanwhile, and the pause between two of them.
const MOST_TRIES: u32 = 100;
const SOON: Duration = Duration::from_micros(100);

impl Space {
    /// True if another GPU can access all memory.
    pub(crate) fn is_exposed_to(&self, device: CUdevice) -> bool {
        self.exposed.load(Ordering::Acquire) & bit(device) != 0
    }

    /// Gives another GPU access to all memory, now and in future. All of it is here.
    pub(crate) fn expose(&self, device: CUdevice, _: &MappingGuard) -> Result<(), CUresult> {
        // From here on, whatever is mapped is so for that GPU too; earlier memory is exposed below.
        self.exposing.fetch_or(bit(device), Ordering::SeqCst);
        for _ in 0..MOST_TRIES {
            let hidden = self.extents.hidden_from(device);
            if hidden.is_empty() {
                self.exposed.fetch_or(bit(device), Ordering::Release);
                return Ok(());
            }
            match self.extents.expose(&hidden, device) {
                Ok(()) => {}
                Err(CUDA_ERROR_OUT_OF_MEMORY) => return Err(CUDA_ERROR_OUT_OF_MEMORY),
                // Another thread may have freed some of it.
                Err(_) => thread::sleep(SOON),
            }
        }
        Err(CUDA_ERROR_OUT_OF_MEMORY)
    }

    /// Makes the host wait for copies and fills of the memory at an address, or stop doing so. False if there is none.
    pub(crate) fn set_synchronous(&self, at: CUdeviceptr, is_synchronous: bool) -> bool {
        self.lock().table.set_synchronous(at, is_synchronous)
            || self.extents.lock().mappings.set_synchronous(at, is_synchronous)
    }

    /// True if the host waits for copies and fills of the memory at an address. For the program's own mappings it never waits, even if
    /// their attribute says so (measured: `tokens-of-mapping` in `bench/results/rules.json`).
    pub(crate) fn is_synchronous(&self, at: CUdeviceptr) -> bool {
        self.find(at).is_some_and(|(_, found)| found.is_synchronous)
    }

    /// Lets others access the allocation at an address past its mappings. False if there is none. The memory is here.
    pub(crate) fn let_escape(&self, requests: &Requests, at: CUdeviceptr, _: &MappingGuard) -> Result<bool, CUresult> {
        let Some((at, bytes)) = self.lock().table.let_escape(at) else { return Ok(false) };
        let extents: Vec<ExtentId> = self.extents.within(at, bytes).into_iter().map(|extent| extent.id.1).collect();
        if self.extents.are_to_stay(&extents, requests)? { Ok(true) } else { Err(CUDA_ERROR_OUT_OF_MEMORY) }
    }
}
