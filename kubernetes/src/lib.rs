//! A device plugin: it offers a node's shared GPUs to Kubernetes, as resources that pods ask for. Each class of programs is a resource
//! of its own (`baton.dev/latency`), because a plugin that is asked for a device never learns the pod. Each class has a number of
//! devices for each GPU, its *replicas*.
//!
//! | file | what it does |
//! |---|---|
//! | `devices` | names devices, and chooses those that are given first |
//! | `health` | asks the GPUs' coordinators for their state |
//! | `plugin` | answers kubelet |
//! | `endpoint` | a resource's socket: registered, and again after kubelet has started anew |
//! | `pods` | asks kubelet for a program's pod |
//! | `api`, `pod_resources` | the protocols, made from Kubernetes' own files (`api/`) by `generate` |

/// The protocol of device plugins and kubelet, version `v1beta1`.
#[allow(missing_docs, unreachable_pub, clippy::all)]
#[rustfmt::skip]
pub mod api {
    include!("api/v1beta1.rs");
}

/// kubelet's lists of the containers and their devices, version `v1` of the pod-resources API.
#[allow(missing_docs, unreachable_pub, clippy::all)]
#[rustfmt::skip]
pub mod pod_resources {
    include!("api/v1.rs");
}

mod devices;
mod endpoint;
mod health;
mod plugin;
pub mod pods;

use std::path::PathBuf;
use std::sync::Arc;

use baton_contract::class::Class;
use tokio::sync::watch;

use api::ContainerAllocateResponse;
use endpoint::Resource;
pub use endpoint::channel;
use health::Health;

/// A GPU of this node.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// Its UUID, as the driver spells it.
    pub name: String,
    /// Its coordinator's socket.
    pub socket: PathBuf,
    /// The files and variables that a container gets with a share of the GPU, apart from its class.
    pub grant: ContainerAllocateResponse,
}

/// The plugin's options.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node's GPUs.
    pub gpus: Vec<Gpu>,
    /// Containers that can have a share of each GPU, in each class.
    pub replicas: u32,
    /// The start of the resources' names: `baton.dev`.
    pub domain: String,
    /// The folder of the sockets of kubelet and of device plugins.
    pub folder: PathBuf,
}

/// The reason why nothing is offered.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// A resource failed.
    #[error("{}", baton_messages::of_path(resource, why))]
    Resource {
        /// The resource.
        resource: String,
        /// The reason.
        why: String,
    },
    /// The system refused an ordinary operation.
    #[error("{}", baton_messages::of_system(.0))]
    Io(#[from] std::io::Error),
}

/// Offers the GPUs until the process is told to end (SIGTERM, SIGINT).
///
/// # Errors
///
/// When kubelet refuses a resource, or a socket cannot be made.
pub fn run(options: Options) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let (end, ended) = watch::channel(false);
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT])?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if signals.forever().next().is_some() {
            let _ = end.send(true);
        }
    })?;
    let health = Arc::new(Health::new(options.gpus.iter().map(|gpu| gpu.socket.clone()).collect()));
    let options = Arc::new(options);
    runtime.block_on(async {
        health.look().await;
        let looking = tokio::spawn(Arc::clone(&health).watch());
        let mut resources = tokio::task::JoinSet::new();
        for class in [Class::Latency, Class::Normal, Class::Batch] {
            let resource = Resource::new(class, Arc::clone(&options), Arc::clone(&health), ended.clone());
            resources.spawn(resource.offer());
        }
        // A failed resource ends the process: its supervisor notices, and restarts it.
        let first = resources.join_next().await;
        looking.abort();
        match first {
            Some(Ok(Err(failed))) => Err(failed),
            _ => {
                // All resources end, and remove their sockets.
                while resources.join_next().await.is_some() {}
                Ok(())
            }
        }
    })
}
