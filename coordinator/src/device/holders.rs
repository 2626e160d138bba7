//! The processes that hold a GPU's memory.

use std::ffi::c_uint;
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;

use baton_contract::cuda::CUresult;
use baton_contract::memory::size;
use baton_contract::socket_path::gpu_name;
use baton_contract::text::shown;
use libloading::Library;
use nvml_wrapper::Nvml;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;

/// Maximum number of processes that are listed.
const ROOM: usize = 4096;

/// A process that holds memory of the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// Its number; 0 if it cannot be seen from here.
    pub pid: u32,
    /// The bytes that it holds, if known.
    pub bytes: Option<u64>,
}

impl Holder {
    /// Returns its program's name, if it can be seen from here.
    pub fn name(&self) -> Option<String> {
        let name = std::fs::read_to_string(format!("/proc/{}/comm", self.pid)).ok()?;
        Some(shown(name.trim_end()))
    }

    /// True if it is another coordinator.
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
            _ if self.is_coordinator() => f.write_str(&baton_messages::another_coordinator(self.pid))?,
            Some(name) => write!(f, "{name} (process {})", self.pid)?,
            None => f.write_str(baton_messages::UNSEEN_PROCESS)?,
        }
        match self.bytes {
            Some(bytes) => write!(f, " {}", size(bytes)),
            None => Ok(()),
        }
    }
}

/// The source for the holders of a GPU's memory.
#[derive(Clone, Copy, Debug)]
pub enum Census {
    /// The simulated driver, which has a function for it.
    Simulated(Count),
    /// NVIDIA's management library.
    Nvml,
}

/// The reason why the processes on a GPU cannot be known here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CensusError {
    /// The simulated driver's answer.
    #[error("{}", baton_messages::simulated_driver_answers(.0))]
    Simulated(CUresult),
    /// The words of NVIDIA's management library.
    #[error("{}", baton_messages::library_says(.0))]
    Library(String),
    /// The driver shows no processes to a PID namespace of its own.
    #[error("{}", baton_messages::OWN_NAMESPACE)]
    OwnNamespace,
}

type Count = unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut u64) -> CUresult;

impl Census {
    /// Returns the source for a driver.
    pub fn of(driver: &Library) -> Self {
        // SAFETY: the simulated driver gives this name this signature, and no other driver has it.
        match unsafe { driver.get::<Count>(b"simcudaGetComputeProcesses") } {
            Ok(count) => Self::Simulated(*count),
            Err(_) => Self::Nvml,
        }
    }

    /// Returns all holders except this process, those with the most memory first.
    ///
    /// # Errors
    ///
    /// The reason why they cannot be known here.
    pub fn others(self, uuid: [u8; 16]) -> Result<Vec<Holder>, CensusError> {
        let mut all = match self {
            Self::Simulated(count) => simulated(count)?,
            Self::Nvml => nvidias(uuid)?,
        };
        all.retain(|holder| holder.pid != std::process::id());
        all.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        Ok(all)
    }
}

fn simulated(count: Count) -> Result<Vec<Holder>, CensusError> {
    let (mut pids, mut bytes) = (vec![0; ROOM], vec![0; ROOM]);
    let mut there = ROOM as c_uint;
    // SAFETY: two lists with room for `there` items each.
    let answer = unsafe { count(&mut there, pids.as_mut_ptr(), bytes.as_mut_ptr()) };
    if answer != 0 {
        return Err(CensusError::Simulated(answer));
    }
    let holder = |(pid, bytes)| Holder { pid, bytes: Some(bytes) };
    // A process that has only started the driver is listed there too.
    let all = pids.into_iter().zip(bytes).take(there as usize).filter(|(_, bytes)| *bytes > 0);
    Ok(all.map(holder).collect())
}

/// The number of the system's first PID namespace (`PROC_PID_INIT_INO`).
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFC;

/// True if all processes of this machine can be seen from here.
fn sees_all_processes() -> bool {
    std::fs::metadata("/proc/self/ns/pid").is_ok_and(|namespace| namespace.ino() == FIRST_NAMESPACE)
}

fn nvidias(uuid: [u8; 16]) -> Result<Vec<Holder>, CensusError> {
    /// Kept open, because opening it takes a while.
    static NVML: OnceLock<Nvml> = OnceLock::new();
    let failed = |error: NvmlError| CensusError::Library(error.to_string());
    if !sees_all_processes() {
        return Err(CensusError::OwnNamespace);
    }
    let nvml = match NVML.get() {
        Some(nvml) => nvml,
        None => {
            let opened = Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init().map_err(failed)?;
            NVML.get_or_init(|| opened)
        }
    };
    let device = nvml.device_by_uuid(gpu_name(uuid)).map_err(failed)?;
    let holder = |process: nvml_wrapper::struct_wrappers::device::ProcessInfo| Holder {
        pid: process.pid,
        bytes: match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        },
    };
    Ok(device.running_compute_processes().map_err(failed)?.into_iter().map(holder).collect())
}
