//! `baton cdi`: GPUs that are shared, as devices of the Container Device Interface (CDI), which podman, docker and containerd read.

use std::path::{Path, PathBuf};

use baton_client::install::Install;
use baton_contract::socket_path;
use baton_workbench::output::{print, say, write_file};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::{Mount, Needs, hook};
use crate::{CliError, DriverChoice, folder, gpu_uuids};

/// The lowest version with all that is needed here: names of devices that begin with a digit (CDI's SPEC.md, "Released versions").
const VERSION: &str = "0.5.0";
/// The kind of these devices: engines know them as `baton.dev/gpu=0`.
const KIND: &str = "baton.dev/gpu";
/// The end of a device's name for `baton run` in the container, without `LD_PRELOAD`.
const FOR_RUN: &str = "-run";

/// `baton cdi`.
#[derive(Clone, Debug, Subcommand)]
pub enum Cdi {
    /// Print a CDI file with this machine's GPUs, or write it where container engines look: `--output /etc/cdi/baton.json`.
    ///
    /// Each GPU is there by its number and by its UUID. `--device baton.dev/gpu=0` has all programs of a container share GPU 0.
    /// The device is not the GPU itself: name that too, as NVIDIA's files do (`--device nvidia.com/gpu=0`). With `0-run` instead
    /// of `0`, the container has all but `LD_PRELOAD`: put `/opt/baton/bin/baton run` in front of its program, which keeps what
    /// the image preloads.
    Generate(Generate),
    /// Check a container at its creation; engines run this.
    #[command(hide = true)]
    Hook,
}

/// `baton cdi generate`.
#[derive(Clone, Debug, Args)]
pub struct Generate {
    /// The driver: `gpu` (the system's), `sim` (simulated), or a file.
    #[arg(long, value_name = "gpu|sim|PATH", env = "BATON_SERVE_DRIVER", default_value = "gpu")]
    driver: DriverChoice,
    /// Write it to this file.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs one of these commands.
///
/// # Errors
///
/// When there is no GPU or the file cannot be written; when the container cannot share the GPU.
pub fn run(cdi: &Cdi) -> Result<(), CliError> {
    match cdi {
        Cdi::Generate(generate) => generate.write(),
        Cdi::Hook => hook::run(std::io::stdin().lock()),
    }
}

/// A CDI file.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    cdi_version: &'static str,
    kind: &'static str,
    devices: Vec<Device>,
    container_edits: Edits,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    container_edits: Edits,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Edits {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mounts: Vec<EditMount>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hooks: Vec<Hook>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EditMount {
    host_path: PathBuf,
    container_path: PathBuf,
    options: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Hook {
    hook_name: &'static str,
    path: PathBuf,
    args: Vec<&'static str>,
}

impl From<&Mount> for EditMount {
    fn from(mount: &Mount) -> Self {
        let access = if mount.is_read_only { "ro" } else { "rw" };
        let options = vec!["bind", access, "nosuid", "nodev"];
        Self { host_path: mount.host.clone(), container_path: mount.container.clone(), options }
    }
}

fn words(environment: &[(String, String)]) -> Vec<String> {
    environment.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

impl Spec {
    /// Describes these GPUs by their UUIDs, in order, each with its own needs.
    fn of(gpus: &[([u8; 16], Needs)], needs: &Needs, command: &Path) -> Self {
        let device = |name: String, own: &Needs, preloads: bool| {
            let environment = needs.environment.iter().chain(&own.environment).cloned();
            let env = words(&environment.chain(preloads.then(Needs::preload)).collect::<Vec<_>>());
            let mounts = own.mounts.iter().map(EditMount::from).collect();
            Device { name, container_edits: Edits { env, mounts, ..Edits::default() } }
        };
        let devices = gpus.iter().enumerate().flat_map(|(number, (uuid, own))| {
            [number.to_string(), socket_path::gpu_name(*uuid)].into_iter().flat_map(move |name| {
                let for_run = format!("{name}{FOR_RUN}");
                [device(name, own, true), device(for_run, own, false)]
            })
        });
        let check =
            Hook { hook_name: "createRuntime", path: command.to_path_buf(), args: vec!["baton", "cdi", "hook"] };
        let container_edits = Edits {
            mounts: needs.mounts.iter().map(EditMount::from).collect(),
            hooks: vec![check],
            ..Edits::default()
        };
        Self { cdi_version: VERSION, kind: KIND, devices: devices.collect(), container_edits }
    }
}

impl Generate {
    fn write(&self) -> Result<(), CliError> {
        let install = Install::of_this_program()?;
        let library = self.driver.library(&install)?;
        self.driver.set()?;
        let gpus = gpu_uuids(library.as_deref())?;
        let needs = Needs::of(&install, &self.driver)?;
        let own = (0..gpus.len()).map(|number| Needs::of_gpu(&self.driver, number)).collect::<Result<Vec<_>, _>>()?;
        let gpus: Vec<_> = gpus.into_iter().zip(own).collect();
        let text = serde_json::to_string_pretty(&Spec::of(&gpus, &needs, &install.command()))
            .map_err(baton_messages::of_system)?;
        let sockets = folder();
        if !sockets.is_dir() {
            let none = baton_messages::no_folder_of_sockets(sockets.display());
            say("cdi", none);
        }
        match &self.output {
            None => print(&(text + "\n"))?,
            Some(path) => {
                let told = |error| baton_messages::of_path(path.display(), error);
                path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(told)?;
                write_file(path, |out| writeln!(out, "{text}"))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gpu_is_a_device_by_number_and_uuid_with_and_without_the_library_preloaded() {
        let mount =
            Mount { host: "/usr/bin/baton".into(), container: "/opt/baton/bin/baton".into(), is_read_only: true };
        let needs = Needs { mounts: vec![mount], environment: vec![("BATON_REQUIRE".to_owned(), "1".to_owned())] };
        let own = Mount { host: "/gpu".into(), container: "/own".into(), is_read_only: false };
        let own = Needs { mounts: vec![own], environment: vec![("A".to_owned(), "b".to_owned())] };
        let spec = Spec::of(&[([0xab; 16], own)], &needs, Path::new("/usr/bin/baton"));
        let names: Vec<_> = spec.devices.iter().map(|device| device.name.as_str()).collect();
        let uuid = "GPU-abababab-abab-abab-abab-abababababab";
        assert_eq!(names, ["0", "0-run", uuid, "GPU-abababab-abab-abab-abab-abababababab-run"]);
        let preloads = |device: &Device| device.container_edits.env.iter().any(|word| word.starts_with("LD_PRELOAD="));
        assert_eq!(spec.devices.iter().map(preloads).collect::<Vec<_>>(), [true, false, true, false]);
        let json = serde_json::to_value(&spec).expect("JSON");
        assert_eq!(json["cdiVersion"], "0.5.0");
        let of_gpu = serde_json::json!({
            "env": ["BATON_REQUIRE=1", "A=b"],
            "mounts": [{"hostPath": "/gpu", "containerPath": "/own", "options": ["bind", "rw", "nosuid", "nodev"]}],
        });
        assert_eq!(json["devices"][1]["containerEdits"], of_gpu);
        let edits = serde_json::json!({
            "mounts": [{
                "hostPath": "/usr/bin/baton",
                "containerPath": "/opt/baton/bin/baton",
                "options": ["bind", "ro", "nosuid", "nodev"],
            }],
            "hooks": [{"hookName": "createRuntime", "path": "/usr/bin/baton", "args": ["baton", "cdi", "hook"]}],
        });
        assert_eq!(json["containerEdits"], edits);
    }
}
