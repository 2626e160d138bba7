//! The needs of a container whose programs share a GPU of the machine: Baton's files, the coordinators' sockets, and variables. They
//! are the same for CDI and Kubernetes.
//!
//! | file | what it does |
//! |---|---|
//! | `mod` | lists a container's needs, and their places in it |
//! | `cdi` | writes them to a file for container engines: `baton cdi` |
//! | `kubernetes` | tells kubelet: `baton k8s` |
//! | `gpu` | hands over the GPU itself, where NVIDIA's own files do not |
//! | `hook` | refuses a new container whose program could not start with Baton's library |

pub mod cdi;
mod gpu;
pub mod hook;
pub mod kubernetes;

use std::path::{Path, PathBuf};

use baton_client::driver::name;
use baton_client::install::Install;
use baton_contract::settings as variables;

use super::{CliError, DriverChoice, folder};

/// The folder of Baton in a container, with a package's layout.
pub const PREFIX: &str = "/opt/baton";
/// The folder of the coordinators' sockets in a container.
const SOCKETS: &str = "/run/baton";
/// The file of a simulated GPU in a container.
const SIMULATED_GPU: &str = "/run/baton-simulated/gpu";

/// The library, for `LD_PRELOAD`: glibc's loader replaces `$LIB` with the name of the system's folder of libraries (`ld.so(8)`). musl's
/// loader does not, finds no library, and goes on. So a musl program starts, which it would not with a library for glibc.
const PRELOADED: &str = "/opt/baton/$LIB/libbaton.so";
/// The values of `$LIB`: on Debian and its derivatives; on Fedora, SUSE and theirs; and on others.
const SYSTEMS_FOLDERS: [&str; 3] = ["lib/x86_64-linux-gnu", "lib64", "lib"];

/// A file or folder of the machine in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The path on the machine.
    pub host: PathBuf,
    /// The path in the container.
    pub container: PathBuf,
    /// True if the container's programs cannot write to it.
    pub is_read_only: bool,
}

/// A container's needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Files and folders.
    pub mounts: Vec<Mount>,
    /// Variables.
    pub environment: Vec<(String, String)>,
}

impl Needs {
    /// Returns the needs of every container.
    ///
    /// # Errors
    ///
    /// When a file of Baton's is not there.
    pub fn of(install: &Install, choice: &DriverChoice) -> Result<Self, CliError> {
        let mut needs = Self::default();
        let prefix = Path::new(PREFIX);
        let shim = install.shim()?;
        needs.mount(&install.command(), prefix.join("bin/baton"))?;
        for folder in SYSTEMS_FOLDERS.iter().chain(&["lib/baton"]) {
            needs.mount(&shim, prefix.join(folder).join("libbaton.so"))?;
        }
        // Read-only, so that no program in a container can replace a socket: its listener can be trusted.
        needs.mounts.push(Mount {
            host: std::path::absolute(folder())?,
            container: SOCKETS.into(),
            is_read_only: true,
        });
        needs.set(name(variables::FOLDER), SOCKETS);
        needs.set(name(variables::REQUIRE), "1");
        if let Some(driver) = choice.library(install)? {
            needs.use_driver(&driver)?;
        }
        if *choice == DriverChoice::Simulated {
            // `baton run` in the container reads this.
            needs.set("BATON_SERVE_DRIVER", "sim");
        }
        Ok(needs)
    }

    /// The variable with which programs load the library.
    pub fn preload() -> (String, String) {
        ("LD_PRELOAD".to_owned(), PRELOADED.to_owned())
    }

    fn mount(&mut self, host: &Path, container: PathBuf) -> Result<(), CliError> {
        let told = |error| baton_messages::of_path(host.display(), error);
        self.mounts.push(Mount { host: host.canonicalize().map_err(told)?, container, is_read_only: true });
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    fn use_driver(&mut self, driver: &Path) -> Result<(), CliError> {
        let place = Path::new(PREFIX).join("lib/baton").join(driver.file_name().unwrap_or_default());
        self.set(name(variables::DRIVER), &place.display().to_string());
        self.mount(driver, place)
    }

    /// Returns the needs of a container for this GPU of a driver. A simulated GPU is a file; a container sees one of them.
    ///
    /// # Errors
    ///
    /// When the user's folder cannot be made.
    pub fn of_gpu(choice: &DriverChoice, number: usize) -> Result<Self, CliError> {
        const FILE: &str = "SIMCUDA_GPU_FILE";
        let mut needs = Self::default();
        if *choice != DriverChoice::Simulated {
            return Ok(needs);
        }
        let usual = choice.settings()?.into_iter().find(|(name, _)| *name == FILE).map(|(_, file)| file);
        let Some(file) = usual.or_else(|| std::env::var_os(FILE)) else { return Ok(needs) };
        let mut host = std::path::absolute(file)?.into_os_string();
        if number > 0 {
            host.push(format!(".{number}"));
        }
        needs.set(FILE, SIMULATED_GPU);
        needs.mounts.push(Mount { host: host.into(), container: SIMULATED_GPU.into(), is_read_only: false });
        Ok(needs)
    }
}
