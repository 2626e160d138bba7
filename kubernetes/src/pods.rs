//! The pods of programs, as kubelet knows them: a container was given a device, and its program is named after that.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use baton_contract::class::Class;
use baton_report::pod::Pod;
use tonic::Status;

use crate::devices;
use crate::endpoint::channel;
use crate::pod_resources::ListPodResourcesRequest;
use crate::pod_resources::pod_resources_lister_client::PodResourcesListerClient;

/// kubelet has not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", .socket.display())]
pub struct Unanswered {
    /// The socket at which it was asked.
    pub socket: PathBuf,
    /// The reason, in its words or the connection's.
    pub why: String,
}

/// The pods by class and device.
#[derive(Debug, Default)]
pub struct Pods {
    all: HashMap<(Class, String), Pod>,
}

impl Pods {
    /// Asks kubelet, at its socket (`pod-resources/kubelet.sock`).
    ///
    /// # Errors
    ///
    /// When kubelet has not answered.
    pub async fn ask(socket: &Path) -> Result<Self, Unanswered> {
        let told = |status: Status| Unanswered { socket: socket.to_path_buf(), why: status.message().to_owned() };
        let channel = channel(socket).await.map_err(told)?;
        let answer = PodResourcesListerClient::new(channel).list(ListPodResourcesRequest {}).await.map_err(told)?;
        let mut all = HashMap::new();
        for pod in answer.into_inner().pod_resources {
            for container in pod.containers {
                let own = Pod { namespace: pod.namespace.clone(), name: pod.name.clone(), container: container.name };
                for given in container.devices {
                    // The part before is the node's own choice (`--domain`).
                    let class = given.resource_name.rsplit('/').next().and_then(|word| word.parse::<Class>().ok());
                    let Some(class) = class else { continue };
                    all.extend(given.device_ids.into_iter().map(|id| ((class, id), own.clone())));
                }
            }
        }
        Ok(Self { all })
    }

    /// Returns the pod of the program with this name, on this GPU.
    pub fn of(&self, gpu: &str, name: &str) -> Option<&Pod> {
        let (class, replica) = devices::named(name)?;
        self.all.get(&(class, devices::id(gpu, replica)))
    }
}
