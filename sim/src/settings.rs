//! The user's settings: environment variables `SIMCUDA_*`, read once, at `cuInit`.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

/// The settings of one process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// `SIMCUDA_MEMORY`: the GPU's memory in bytes (`512MiB`, `1GiB`, or plain bytes). A GPU file that
    /// exists already keeps the size that it was made with.
    pub(crate) memory: u64,
    /// `SIMCUDA_GPUS`: how many GPUs there are.
    pub(crate) gpus: usize,
    /// `CUDA_VISIBLE_DEVICES`: the GPUs that the program sees, in its order; all if nothing is said.
    pub(crate) visible: Option<String>,
    /// `SIMCUDA_GPU_FILE`: the file that several processes share as one GPU; the further GPUs' files are named like it, with
    /// a dot and the GPU's ordinal behind. Without it the process has GPUs of its own.
    pub(crate) gpu_file: Option<PathBuf>,
    /// `SIMCUDA_H2D_GBPS`: modelled speed of copies to the device, in 10^9 bytes a second.
    pub(crate) to_device: Option<f64>,
    /// `SIMCUDA_D2H_GBPS`: modelled speed of copies to the host.
    pub(crate) to_host: Option<f64>,
    /// `SIMCUDA_KERNEL_GFLOPS`: modelled speed of kernels, in 10^9 operations a second.
    pub(crate) kernels: Option<f64>,
    /// `SIMCUDA_TIMESLICE_MS`: how long this process's kernels have the GPU in a row while other processes' wait for
    /// it. Without it, they take no time from each other.
    pub(crate) slice: Option<Duration>,
    /// `SIMCUDA_PAUSING`: `on` if processes can be taken off the GPU, `off` if not; `stuck` if they can, but then this process can unmap
    /// nothing before its work has ended.
    pub(crate) pausing: Pausing,
    /// `SIMCUDA_WAITING`: `on` if calls that make or end objects wait for all work of their context, and not only for threads that are
    /// stuck in the driver.
    pub(crate) waiting: bool,
    /// `SIMCUDA_PAGEABLE`: `on` if kernels reach all pages of the program, as with Linux's heterogeneous memory management.
    pub(crate) pageable: bool,
    /// `SIMCUDA_NEW_MEMORY`: the word that new memory is full of, as if another program had written it there.
    /// In hexadecimal; 0 if nothing is said.
    pub(crate) new_memory: u64,
    /// `SIMCUDA_VERSION`: the CUDA version, as `cuDriverGetVersion` tells it. `cuGetProcAddress` knows no newer functions.
    pub(crate) version: u32,
    /// `SIMCUDA_INIT_ERROR`: the answer of `cuInit`, as a driver does that cannot work on its machine.
    pub(crate) init_error: Option<u32>,
    /// `SIMCUDA_PIN_MS_PER_GIB`: how long `cuMemHostRegister` takes for a GiB.
    pub(crate) pinning: Option<Duration>,
    /// `SIMCUDA_COPIES_OUTLIVE_MS`: if the process is killed, its copies go on for so long, and it does not end before.
    pub(crate) copies_outlive: Option<Duration>,
    /// `SIMCUDA_COPY_LOG`: a file that gets a line for every copy to or from the device.
    pub(crate) copy_log: Option<PathBuf>,
}

impl Settings {
    /// The file of a GPU that several processes share.
    pub(crate) fn file_of(&self, ordinal: usize) -> Option<PathBuf> {
        let mut file = self.gpu_file.clone()?.into_os_string();
        if ordinal > 0 {
            file.push(format!(".{ordinal}"));
        }
        Some(file.into())
    }
}

/// The response of a process to being taken off the GPU (`SIMCUDA_PAUSING`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pausing {
    Off,
    On,
    Stuck,
}

/// A setting that could not be read: the user's fault.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("simcuda: {name}={value} is not {wanted}")]
pub(crate) struct BadSetting {
    name: &'static str,
    value: String,
    wanted: &'static str,
}

const DEFAULT_MEMORY: u64 = 1 << 30;
/// The versions that can be simulated. Before the oldest there were other functions.
const VERSIONS: std::ops::RangeInclusive<u32> = 11080..=13050;
/// The most GPUs that can be simulated.
pub(crate) const MOST_GPUS: usize = 8;
/// Of a time in milliseconds.
const LONGEST_MS: f64 = 1e6;

impl Settings {
    /// From the process's environment.
    pub(crate) fn from_environment() -> Result<Settings, BadSetting> {
        Settings::from_lookup(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Settings, BadSetting> {
        let positive = |name: &'static str| {
            let Some(value) = lookup(name) else { return Ok(None) };
            match value.trim().parse::<f64>() {
                Ok(number) if number > 0.0 && number.is_finite() => Ok(Some(number)),
                _ => Err(BadSetting { name, value, wanted: "a positive number" }),
            }
        };
        let is_on = |name: &'static str| match lookup(name).as_deref() {
            None | Some("off") => Ok(false),
            Some("on") => Ok(true),
            Some(value) => Err(BadSetting { name, value: value.to_owned(), wanted: "on or off" }),
        };
        let time = |name| -> Result<_, BadSetting> {
            Ok(positive(name)?.map(|ms| Duration::from_secs_f64(ms.min(LONGEST_MS) / 1e3)))
        };
        let pausing = match lookup("SIMCUDA_PAUSING").as_deref() {
            None | Some("on") => Pausing::On,
            Some("off") => Pausing::Off,
            Some("stuck") => Pausing::Stuck,
            Some(value) => {
                return Err(BadSetting {
                    name: "SIMCUDA_PAUSING",
                    value: value.to_owned(),
                    wanted: "on, off or stuck",
                });
            }
        };
        let gpus = match lookup("SIMCUDA_GPUS") {
            None => 1,
            Some(value) => match value.trim().parse() {
                Ok(gpus @ 1..=MOST_GPUS) => gpus,
                _ => return Err(BadSetting { name: "SIMCUDA_GPUS", value, wanted: "a number from 1 to 8" }),
            },
        };
        let init_error = match lookup("SIMCUDA_INIT_ERROR") {
            None => None,
            Some(value) => match value.trim().parse() {
                Ok(code @ 1..) => Some(code),
                _ => return Err(BadSetting { name: "SIMCUDA_INIT_ERROR", value, wanted: "the number of an error" }),
            },
        };
        let new_memory = match lookup("SIMCUDA_NEW_MEMORY") {
            None => 0,
            Some(value) => u64::from_str_radix(value.trim(), 16).map_err(|_| BadSetting {
                name: "SIMCUDA_NEW_MEMORY",
                value,
                wanted: "a word in hexadecimal",
            })?,
        };
        let memory = match lookup("SIMCUDA_MEMORY") {
            None => DEFAULT_MEMORY,
            Some(value) => parse_bytes(&value).filter(|bytes| *bytes >= 2 << 20).ok_or(BadSetting {
                name: "SIMCUDA_MEMORY",
                value,
                wanted: "a size of at least 2MiB",
            })?,
        };
        Ok(Settings {
            version: version(lookup("SIMCUDA_VERSION"))?,
            memory,
            gpus,
            visible: lookup("CUDA_VISIBLE_DEVICES"),
            gpu_file: lookup("SIMCUDA_GPU_FILE").map(PathBuf::from),
            to_device: positive("SIMCUDA_H2D_GBPS")?,
            to_host: positive("SIMCUDA_D2H_GBPS")?,
            kernels: positive("SIMCUDA_KERNEL_GFLOPS")?,
            slice: time("SIMCUDA_TIMESLICE_MS")?,
            pinning: time("SIMCUDA_PIN_MS_PER_GIB")?,
            copies_outlive: time("SIMCUDA_COPIES_OUTLIVE_MS")?,
            pausing,
            waiting: is_on("SIMCUDA_WAITING")?,
            pageable: is_on("SIMCUDA_PAGEABLE")?,
            new_memory,
            init_error,
            copy_log: lookup("SIMCUDA_COPY_LOG").map(PathBuf::from),
        })
    }
}

fn version(set: Option<String>) -> Result<u32, BadSetting> {
    let Some(value) = set else { return Ok(*VERSIONS.end()) };
    match value.trim().parse() {
        Ok(version) if VERSIONS.contains(&version) => Ok(version),
        _ => Err(BadSetting { name: "SIMCUDA_VERSION", value, wanted: "a version from 11080 to 13050" }),
    }
}

/// The version, for what is asked before `cuInit`; one that cannot be read is complained about there.
pub(crate) fn version_before_init() -> u32 {
    static VERSION: OnceLock<u32> = OnceLock::new();
    *VERSION.get_or_init(|| Settings::from_environment().map_or(*VERSIONS.end(), |settings| settings.version))
}

/// `1GiB`, `512MiB`, `4G`, `1048576`: a number and a binary unit.
fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = text[..digits].parse().ok()?;
    let unit = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_binary_units() {
        assert_eq!(parse_bytes("1GiB"), Some(1 << 30));
        assert_eq!(parse_bytes("512 MiB"), Some(512 << 20));
        assert_eq!(parse_bytes("4096"), Some(4096));
        assert_eq!(parse_bytes("1.5GiB"), None);
        assert_eq!(parse_bytes("99999999TiB"), None);
    }

    #[test]
    fn a_wrong_setting_is_told_and_a_missing_one_has_a_default() {
        let none = Settings::from_lookup(|_| None).unwrap();
        assert_eq!(none.memory, DEFAULT_MEMORY);
        assert_eq!((none.to_device, none.gpus, none.version), (None, 1, 13050));
        let wrong = Settings::from_lookup(|name| (name == "SIMCUDA_H2D_GBPS").then(|| "fast".into()));
        assert_eq!(wrong.unwrap_err().to_string(), "simcuda: SIMCUDA_H2D_GBPS=fast is not a positive number");
        for (value, pinning) in [("34", Some(Duration::from_millis(34))), ("0", None), ("-1", None), ("soon", None)] {
            let read = Settings::from_lookup(|name| (name == "SIMCUDA_PIN_MS_PER_GIB").then(|| value.into()));
            assert_eq!(read.ok().and_then(|settings| settings.pinning), pinning, "{value}");
        }
        for (value, gpus) in [("2", Some(2)), ("8", Some(8)), ("0", None), ("9", None), ("two", None)] {
            let read = Settings::from_lookup(|name| (name == "SIMCUDA_GPUS").then(|| value.into()));
            assert_eq!(read.ok().map(|settings| settings.gpus), gpus, "{value}");
        }
        for (value, word) in [("0", Some(0)), ("5eaf00d1", Some(0x5eaf_00d1)), ("dirt", None)] {
            let read = Settings::from_lookup(|name| (name == "SIMCUDA_NEW_MEMORY").then(|| value.into()));
            assert_eq!(read.ok().map(|settings| settings.new_memory), word, "{value}");
        }
        for (value, version) in [("13000", Some(13000)), ("13050", Some(13050)), ("13060", None), ("13.0", None)] {
            let read = Settings::from_lookup(|name| (name == "SIMCUDA_VERSION").then(|| value.into()));
            assert_eq!(read.ok().map(|settings| settings.version), version, "{value}");
        }
    }
}
