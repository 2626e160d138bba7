//! The GPU itself, for a container whose engine does not hand it over by NVIDIA's own files: device nodes, and the driver's libraries.

use std::path::{Path, PathBuf};

use baton_client::install::Install;
use baton_contract::socket_path;

use super::Mount;
use crate::{CliError, DriverChoice};

/// The nodes in `/dev` that all GPUs share.
const SHARED_NODES: [&str; 4] = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"];
/// The folder in which the driver tells each GPU's node.
const GPUS: &str = "/proc/driver/nvidia/gpus";
/// The driver's libraries that a CUDA program needs, without version.
const LIBRARIES: [&str; 6] = [
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm.so.4",
    "libnvidia-gpucomp.so",
    "libcudadebugger.so.1",
];
/// The folders of these libraries in distributions. Loaders search them for any content of `ld.so.cache`.
const FOLDERS: [&str; 3] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];

/// Returns a GPU's nodes by their names in this folder (`/dev`), on the machine and in the container.
///
/// # Errors
///
/// When the GPU's own node is not there.
pub(super) fn nodes(
    choice: &DriverChoice,
    dev: &Path,
    number: usize,
    uuid: [u8; 16],
) -> Result<Vec<(PathBuf, PathBuf)>, CliError> {
    let minor = match choice {
        DriverChoice::Simulated => number,
        DriverChoice::System | DriverChoice::File(_) => minor(Path::new(GPUS), uuid).unwrap_or(number),
    };
    let own = format!("nvidia{minor}");
    if !dev.join(&own).exists() {
        return Err(baton_messages::no_device_file(dev.join(&own).display()).into());
    }
    let shared = SHARED_NODES.into_iter().filter(|name| dev.join(name).exists());
    Ok(std::iter::once(own.as_str()).chain(shared).map(|name| (dev.join(name), Path::new("/dev").join(name))).collect())
}

/// Returns the number of a GPU's device file, as the driver tells it.
fn minor(gpus: &Path, uuid: [u8; 16]) -> Option<usize> {
    let name = socket_path::gpu_name(uuid);
    let of_gpu = |text: &str| {
        let field = |wanted: &str| {
            text.lines()
                .find_map(|line| line.split_once(':').filter(|(name, _)| name.trim() == wanted))
                .map(|(_, value)| value.trim())
        };
        (field("GPU UUID") == Some(name.as_str())).then(|| field("Device Minor")?.parse().ok()).flatten()
    };
    let entries = std::fs::read_dir(gpus).ok()?.filter_map(Result::ok);
    entries
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("information")).ok())
        .find_map(|text| of_gpu(&text))
}

/// Returns the driver's libraries at places where a container's loader searches: those of Debian and its derivatives, and those of
/// others.
///
/// # Errors
///
/// When there is no driver.
pub(super) fn libraries(choice: &DriverChoice, install: &Install) -> Result<Vec<Mount>, CliError> {
    let found: Vec<(PathBuf, &str)> = match choice.library(install)? {
        Some(path) => vec![(path, "libcuda.so.1")],
        None => {
            let at = |name: &&'static str| {
                let paths = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
                paths.filter_map(|path| path.canonicalize().ok()).next().map(|path| (path, *name))
            };
            LIBRARIES.iter().filter_map(at).collect()
        }
    };
    if !found.iter().any(|(_, name)| *name == "libcuda.so.1") {
        return Err(baton_messages::no_driver_library(FOLDERS.join(", ")).into());
    }
    let in_container = |(host, name): (PathBuf, &str)| {
        let mount =
            |folder: &&str| Mount { host: host.clone(), container: Path::new(folder).join(name), is_read_only: true };
        FOLDERS[..2].iter().map(mount).collect::<Vec<_>>()
    };
    Ok(found.into_iter().flat_map(in_container).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpus_node_is_the_one_that_the_driver_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let gpu = folder.path().join("0000:4d:00.0");
        std::fs::create_dir(&gpu).expect("a folder");
        let text =
            "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-abababab-abab-abab-abab-abababababab\nDevice Minor: \t 5\n";
        std::fs::write(gpu.join("information"), text).expect("a file");
        assert_eq!(minor(folder.path(), [0xab; 16]), Some(5));
        assert_eq!(minor(folder.path(), [0xcd; 16]), None);
    }

    #[test]
    fn a_container_gets_the_gpus_own_node_and_those_of_all_gpus_that_there_are() {
        let dev = tempfile::tempdir().expect("a folder");
        let of =
            |number| nodes(&DriverChoice::Simulated, dev.path(), number, [0; 16]).map_err(|error| error.to_string());
        assert!(of(1).is_err_and(|why| why.contains("nvidia1") && why.contains("--dev")));
        for name in ["nvidia0", "nvidia1", "nvidiactl"] {
            std::fs::write(dev.path().join(name), "").expect("a file");
        }
        let inside: Vec<_> = of(1).expect("there").into_iter().map(|(_, inside)| inside).collect();
        assert_eq!(inside, [Path::new("/dev/nvidia1"), Path::new("/dev/nvidiactl")]);
    }
}
