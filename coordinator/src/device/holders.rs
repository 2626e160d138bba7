//! Which processes hold a GPU's memory: asked when a coordinator cannot have what it was to lend out.

use std::ffi::c_uint;
use std::fmt;

use baton_contract::cuda::CUresult;
use baton_contract::memory::size;
use baton_contract::socket_path::gpu_name;
use libloading::Library;
use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;

/// More processes than these are not listed.
const ROOM: usize = 4096;

/// A process that holds memory of the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number; 0 if it cannot be seen from here.
    pub pid: u32,
    /// How much it holds, if that is known.
    pub bytes: Option<u64>,
}

impl Holder {
    /// What its program is called, if it can be seen from here.
    fn name(&self) -> Option<String> {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", self.pid)).ok()?;
        Some(name.trim_end().to_owned())
    }

    /// Whether it is another coordinator.
    pub fn is_coordinator(&self) -> bool {
        let line = std::fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        let is_baton = words.next().is_some_and(|program| program.ends_with(b"/baton") || program == b"baton");
        is_baton && words.any(|word| word == b"serve")
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            _ if self.is_coordinator() => write!(f, "another coordinator (process {})", self.pid)?,
            Some(name) => write!(f, "{name} (process {})", self.pid)?,
            None => f.write_str("a process that cannot be seen from here")?,
        }
        match self.bytes {
            Some(bytes) => write!(f, " {}", size(bytes)),
            None => Ok(()),
        }
    }
}

/// Asks who holds memory of a GPU.
#[derive(Clone, Copy, Debug)]
pub enum Census {
    /// The simulated driver, which has a function for it.
    Simulated(Count),
    /// NVIDIA's management library.
    Nvml,
}

type Count = unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut u64) -> CUresult;

impl Census {
    /// How to ask a driver.
    pub fn of(driver: &Library) -> Self {
        // SAFETY: the simulated driver gives this name this signature, and no other driver has it.
        match unsafe { driver.get::<Count>(b"simcudaGetComputeProcesses") } {
            Ok(count) => Self::Simulated(*count),
            Err(_) => Self::Nvml,
        }
    }

    /// All but this process, those with the most memory first; none if nobody can be asked.
    pub fn others(self, uuid: [u8; 16]) -> Vec<Holder> {
        let mut all = match self {
            Self::Simulated(count) => simulated(count),
            Self::Nvml => nvidias(uuid).unwrap_or_default(),
        };
        all.retain(|holder| holder.pid != std::process::id());
        all.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        all
    }
}

fn simulated(count: Count) -> Vec<Holder> {
    let (mut pids, mut bytes) = (vec![0; ROOM], vec![0; ROOM]);
    let mut there = ROOM as c_uint;
    // SAFETY: two lists with room for as many items as is said.
    if unsafe { count(&mut there, pids.as_mut_ptr(), bytes.as_mut_ptr()) } != 0 {
        return Vec::new();
    }
    let holder = |(pid, bytes)| Holder { pid, bytes: Some(bytes) };
    pids.into_iter().zip(bytes).take(there as usize).map(holder).collect()
}

fn nvidias(uuid: [u8; 16]) -> Option<Vec<Holder>> {
    let nvml = Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init().ok()?;
    let device = nvml.device_by_uuid(gpu_name(uuid)).ok()?;
    let holder = |process: nvml_wrapper::struct_wrappers::device::ProcessInfo| Holder {
        pid: process.pid,
        bytes: match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        },
    };
    Some(device.running_compute_processes().ok()?.into_iter().map(holder).collect())
}
