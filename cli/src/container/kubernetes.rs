//! `baton k8s`: shared GPUs as resources of a Kubernetes node.

use std::path::{Path, PathBuf};

use baton_client::install::Install;
use baton_contract::socket_path;
use baton_kubernetes::api::{CdiDevice, ContainerAllocateResponse, DeviceSpec, Mount as PodMount};
use baton_kubernetes::{Gpu, Options};
use clap::{Args, Subcommand, ValueEnum};

use super::{Mount, Needs, gpu};
use crate::{CliError, DriverChoice, gpu_uuids, usual_socket};

/// `baton k8s`.
#[derive(Clone, Debug, Subcommand)]
pub enum Kubernetes {
    /// Offer this node's GPUs to kubelet: `baton.dev/latency`, `baton.dev/normal` and `baton.dev/batch`.
    ///
    /// Each GPU needs a coordinator (`baton serve --gpu N`), which finds it where `BATON_FOLDER` says. While none answers, the GPU's
    /// devices are unhealthy. Runs until it is ended; pods go on without it.
    DevicePlugin(DevicePlugin),
}

/// The way in which a pod gets the GPU itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HandOver {
    /// By NVIDIA's name of it, `nvidia.com/gpu=UUID` (kubelet 1.28 or later, and NVIDIA's CDI file on the node).
    Cdi,
    /// By its device files and the driver's libraries.
    Nodes,
}

/// `baton k8s device-plugin`.
#[derive(Clone, Debug, Args)]
pub struct DevicePlugin {
    /// Maximum number of containers with a share of each GPU, in each class.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    replicas: u32,
    /// The way in which a pod gets the GPU itself.
    #[arg(long, value_enum, default_value_t = HandOver::Cdi)]
    hand_over: HandOver,
    /// With `--hand-over nodes`: the folder of the GPUs' device files.
    #[arg(long, value_name = "FOLDER", default_value = "/dev")]
    dev: PathBuf,
    /// The start of the resources' names.
    #[arg(long, value_name = "NAME", default_value = "baton.dev")]
    domain: String,
    /// The folder of the sockets of kubelet and of device plugins.
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/kubelet/device-plugins")]
    plugin_folder: PathBuf,
    /// The driver: `gpu` (the system's), `sim` (simulated), or a file.
    #[arg(long, value_name = "gpu|sim|PATH", env = "BATON_SERVE_DRIVER", default_value = "gpu")]
    driver: DriverChoice,
}

/// Runs one of these commands.
///
/// # Errors
///
/// When there is no GPU, or kubelet refuses the resources.
pub fn run(kubernetes: Kubernetes) -> Result<(), CliError> {
    let Kubernetes::DevicePlugin(plugin) = kubernetes;
    env_logger::Builder::new()
        .filter_level(log::LevelFilter::Info)
        .format_target(false)
        .format_timestamp_millis()
        .init();
    let options = plugin.options()?;
    baton_messages::info!(offers(options.gpus.len(), options.replicas));
    Ok(baton_kubernetes::run(options)?)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn pod_mount(mount: &Mount) -> PodMount {
    PodMount { container_path: text(&mount.container), host_path: text(&mount.host), read_only: mount.is_read_only }
}

impl DevicePlugin {
    fn options(self) -> Result<Options, CliError> {
        let install = Install::of_this_program()?;
        let library = self.driver.library(&install)?;
        self.driver.set()?;
        let uuids = gpu_uuids(library.as_deref())?;
        let driver = match self.hand_over {
            // The container finds the driver as any program does.
            HandOver::Nodes => DriverChoice::System,
            HandOver::Cdi => self.driver.clone(),
        };
        let mut needs = Needs::of(&install, &driver)?;
        if self.hand_over == HandOver::Nodes {
            needs.mounts.extend(gpu::libraries(&self.driver, &install)?);
        }
        let (name, value) = Needs::preload();
        needs.environment.push((name, value));
        let of_gpu = |(number, uuid): (usize, &[u8; 16])| {
            let own = Needs::of_gpu(&self.driver, number)?;
            let mut grant = ContainerAllocateResponse {
                envs: needs.environment.iter().chain(&own.environment).cloned().collect(),
                mounts: needs.mounts.iter().chain(&own.mounts).map(pod_mount).collect(),
                ..Default::default()
            };
            let name = socket_path::gpu_name(*uuid);
            match self.hand_over {
                HandOver::Nodes => {
                    let node = |(host, inside): &(PathBuf, PathBuf)| DeviceSpec {
                        container_path: text(inside),
                        host_path: text(host),
                        permissions: "rw".to_owned(),
                    };
                    grant.devices = gpu::nodes(&self.driver, &self.dev, number, *uuid)?.iter().map(node).collect();
                }
                HandOver::Cdi if self.driver == DriverChoice::System => {
                    grant.cdi_devices = vec![CdiDevice { name: format!("nvidia.com/gpu={name}") }];
                }
                HandOver::Cdi => {}
            }
            Ok(Gpu { name, socket: std::path::absolute(usual_socket(*uuid))?, grant })
        };
        let gpus = uuids.iter().enumerate().map(of_gpu).collect::<Result<Vec<_>, CliError>>()?;
        Ok(Options { gpus, replicas: self.replicas, domain: self.domain, folder: self.plugin_folder })
    }
}
