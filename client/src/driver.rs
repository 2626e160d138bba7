//! The CUDA driver that programs run on: the GPU's, or the simulated one.

use std::convert::Infallible;
use std::ffi::{OsString, c_char, c_int, c_uint};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use baton_contract::settings;
use libloading::Library;

use crate::install::{Install, Missing};

/// The user's choice of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The GPU if there is one, otherwise the simulated driver.
    Auto,
    /// The GPU.
    System,
    /// The simulated driver.
    Simulated,
    /// This file.
    File(PathBuf),
}

impl FromStr for Choice {
    type Err = Infallible;

    fn from_str(word: &str) -> Result<Self, Infallible> {
        Ok(match word {
            "auto" => Self::Auto,
            "gpu" => Self::System,
            "sim" => Self::Simulated,
            path => Self::File(path.into()),
        })
    }
}

/// A driver to run programs on.
#[derive(Clone, Debug)]
pub struct Driver {
    /// Its library, or `None` for the one that programs find by themselves.
    library: Option<PathBuf>,
    /// The name of its first device, as the driver gives it.
    pub device: String,
}

/// The reason why there is no driver to run on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A part of Baton is missing.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// The file does not open as a driver, or has no device.
    #[error("{}", baton_messages::driver_is_unusable(.file.display(), why))]
    Unusable {
        /// The file that the user named, the system's `libcuda.so.1`, or the simulated driver.
        file: PathBuf,
        /// The error, in the driver's or the loader's words.
        why: String,
    },
    /// The system refused an ordinary operation.
    #[error("{}", baton_messages::of_system(.0))]
    Io(#[from] std::io::Error),
}

impl Driver {
    /// Finds the driver of the user's choice and tries it.
    ///
    /// # Errors
    ///
    /// When the chosen driver cannot be used.
    pub fn choose(choice: &Choice, install: &Install) -> Result<Self, Error> {
        let systems = Path::new("libcuda.so.1");
        let library = match choice {
            Choice::Auto | Choice::System => match first_device(systems) {
                Ok(device) => return Ok(Self { library: None, device }),
                Err(why) if *choice == Choice::System => return Err(unusable(systems, why)),
                Err(_) => install.simulated_driver()?,
            },
            Choice::Simulated => install.simulated_driver()?,
            Choice::File(path) => path.canonicalize().map_err(|error| unusable(path, error))?,
        };
        let device = first_device(&library).map_err(|why| unusable(&library, why))?;
        Ok(Self { library: Some(library), device })
    }

    /// Returns a command that reaches this driver as any program does: by the name `libcuda.so.1`, for which `links` is a folder that
    /// may be used.
    ///
    /// # Errors
    ///
    /// When the link cannot be made.
    pub fn bare(&self, program: &Path, links: &Path) -> std::io::Result<Command> {
        let mut command = quiet(program);
        if let Some(library) = &self.library {
            link(library, links)?;
            command.env("LD_LIBRARY_PATH", links);
        }
        Ok(command)
    }

    /// True if this driver is that library.
    pub fn is(&self, library: &Option<PathBuf>) -> bool {
        self.library.is_some() && self.library == *library
    }

    /// Returns a command of Baton's own, without settings for other programs.
    pub fn quiet(&self, program: &Path) -> Command {
        quiet(program)
    }

    /// This driver as an option of `baton serve`.
    pub fn option(&self) -> Vec<OsString> {
        self.library.iter().flat_map(|library| [OsString::from("--driver"), library.into()]).collect()
    }
}

/// Gives a driver in a folder the names by which programs search for it. Several callers may do so at once, so an existing name is
/// replaced in one step.
///
/// # Errors
///
/// When the folder cannot be written.
pub fn link(library: &Path, folder: &Path) -> std::io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    for name in ["libcuda.so.1", "libcuda.so"] {
        let link = folder.join(name);
        if std::fs::read_link(&link).ok().as_deref() != Some(library) {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let fresh = folder.join(format!(".{}-{count}", std::process::id()));
            let _ = std::fs::remove_file(&fresh);
            std::os::unix::fs::symlink(library, &fresh)?;
            std::fs::rename(&fresh, &link)?;
        }
    }
    Ok(())
}

/// A setting's name as the standard library takes it.
pub fn name(setting: &'static std::ffi::CStr) -> &'static str {
    setting.to_str().unwrap_or_default()
}

/// Returns a command whose environment has no settings of Baton's.
fn quiet(program: &Path) -> Command {
    let mut command = Command::new(program);
    let ours = [
        settings::DRIVER,
        settings::TRACE,
        settings::TRACE_FILE,
        settings::SOCKET,
        settings::FOLDER,
        settings::NAME,
        settings::CLASS,
        settings::WEIGHT,
        settings::SLO_MICROS,
        settings::NEEDS,
        settings::RUN,
        settings::REQUIRE,
        settings::GPU,
    ];
    for setting in ours {
        command.env_remove(name(setting));
    }
    command.env_remove("LD_PRELOAD").stdin(Stdio::null());
    command
}

fn unusable(file: &Path, why: impl ToString) -> Error {
    let why = why.to_string();
    // The loader's words start with the file too.
    let why = why.strip_prefix(&format!("{}: ", file.display())).unwrap_or(&why).to_owned();
    Error::Unusable { file: file.to_path_buf(), why }
}

/// The reason why a library has no device.
#[derive(Debug, thiserror::Error)]
enum NoDevice {
    /// The loader does not open it.
    #[error("{}", loaders_words(.0))]
    Unopened(libloading::Error),
    /// It lacks a function of drivers.
    #[error(transparent)]
    Incomplete(libloading::Error),
    /// A function of it has failed.
    #[error("{}", baton_messages::driver_answers(.0))]
    Answered(c_uint),
}

/// Returns the loader's own words, without those of the crate around them.
fn loaders_words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// Opens a driver and returns the name of its first device, or the reason why it has none.
fn first_device(library: &Path) -> Result<String, NoDevice> {
    type Init = unsafe extern "C" fn(c_uint) -> c_uint;
    type Name = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_uint;
    // SAFETY: opening a driver runs its own start-up code, as it does in every CUDA program.
    let driver = unsafe { Library::new(library) }.map_err(NoDevice::Unopened)?;
    // Programs never close a driver that they have opened, and neither does this.
    let driver = std::mem::ManuallyDrop::new(driver);
    // SAFETY: the signatures that cuda.h gives these names.
    let (init, device_name) = unsafe {
        let init = driver.get::<Init>(b"cuInit").map_err(NoDevice::Incomplete)?;
        (init, driver.get::<Name>(b"cuDeviceGetName").map_err(NoDevice::Incomplete)?)
    };
    let mut name = [0u8; 256];
    // SAFETY: no pointers.
    let mut answer = unsafe { init(0) };
    if answer == 0 {
        // SAFETY: a buffer of the length that is said.
        answer = unsafe { device_name(name.as_mut_ptr().cast(), name.len() as c_int, 0) };
    }
    match answer {
        0 => Ok(String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()),
        error => Err(NoDevice::Answered(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_a_word_or_a_file() {
        assert_eq!("auto".parse(), Ok(Choice::Auto));
        assert_eq!("sim".parse(), Ok(Choice::Simulated));
        assert_eq!("/opt/libcuda.so.1".parse(), Ok(Choice::File("/opt/libcuda.so.1".into())));
    }

    #[test]
    fn a_file_that_is_no_driver_is_refused_with_its_name() {
        let install = Install::of_this_program().expect("a running test has a file");
        let error = Driver::choose(&Choice::File("/etc/passwd".into()), &install).expect_err("not a driver");
        assert!(error.to_string().starts_with("/etc/passwd: "), "{error}");
    }
}
