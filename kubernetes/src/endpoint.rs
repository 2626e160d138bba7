//! A resource's socket in kubelet's folder. It is registered with kubelet, and again after each restart of kubelet, which removes it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use baton_contract::class::Class;
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{oneshot, watch};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server, Uri};
use tonic::{Code, Status};

use crate::api::RegisterRequest;
use crate::api::device_plugin_server::DevicePluginServer;
use crate::api::registration_client::RegistrationClient;
use crate::health::Health;
use crate::plugin::{OPTIONS, Plugin};
use crate::{Failed, Options};

/// The version of the API.
const VERSION: &str = "v1beta1";
/// kubelet's socket in the folder.
const KUBELET: &str = "kubelet.sock";
/// Delay between two checks whether the sockets are still the same.
const LOOK: Duration = Duration::from_secs(1);
/// Longest time for an answer of kubelet.
const PATIENCE: Duration = Duration::from_secs(10);

/// A resource, and its endpoint for kubelet.
#[derive(Debug)]
pub(crate) struct Resource {
    name: String,
    /// The file's name in the folder.
    endpoint: String,
    plugin: Plugin,
    ended: watch::Receiver<bool>,
}

/// Returns the identity of the file at a path, if there is one: a new file of the same name has another.
fn identity(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.ctime(), found.ctime_nsec()))
}

/// True if kubelet itself has answered so. A kubelet that ends during a call leaves a connection error instead.
fn is_an_answer(status: &Status) -> bool {
    let is_out_of_time = matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled);
    !is_out_of_time && std::error::Error::source(status).is_none()
}

impl Resource {
    pub(crate) fn new(class: Class, options: Arc<Options>, health: Arc<Health>, ended: watch::Receiver<bool>) -> Self {
        let name = format!("{}/{}", options.domain, class.word());
        let endpoint = format!("baton-{}.sock", class.word());
        Self { name, endpoint, plugin: Plugin { class, options, health }, ended }
    }

    fn in_folder(&self, name: &str) -> PathBuf {
        self.plugin.options.folder.join(name)
    }

    fn failed(&self, why: impl std::fmt::Display) -> Failed {
        Failed::Resource { resource: self.name.clone(), why: why.to_string() }
    }

    /// Offers the resource until the process is to end.
    pub(crate) async fn offer(mut self) -> Result<(), Failed> {
        let path = self.in_folder(&self.endpoint);
        while !*self.ended.borrow() {
            // The file may be left from a plugin that was killed, or from before kubelet started.
            let _ = std::fs::remove_file(&path);
            let listener =
                UnixListener::bind(&path).map_err(|error| self.failed(format!("{}: {error}", path.display())))?;
            let own = identity(&path);
            let (stop, stopped) = oneshot::channel::<()>();
            let server = Server::builder()
                .add_service(DevicePluginServer::new(self.plugin.clone()))
                .serve_with_incoming_shutdown(UnixListenerStream::new(listener), async {
                    let _ = stopped.await;
                });
            let serving = tokio::spawn(server);
            let done = self.stay_registered(&path, own).await;
            let _ = stop.send(());
            // kubelet's call that watches the devices would keep it alive.
            serving.abort();
            done?;
        }
        let _ = std::fs::remove_file(&path);
        Ok(())
    }

    /// Registers the resource, and again with each new kubelet, until the socket has gone or the process is to end.
    async fn stay_registered(&mut self, path: &Path, own: Option<(u64, u64, i64, i64)>) -> Result<(), Failed> {
        let kubelet = self.in_folder(KUBELET);
        let mut registered = None;
        let mut is_said = false;
        while !*self.ended.borrow() && own.is_some() && identity(path) == own {
            let there = identity(&kubelet);
            if there.is_some() && there != registered {
                match self.register(&kubelet).await {
                    Ok(()) => {
                        baton_messages::info!(is_registered(&self.name));
                        (registered, is_said) = (there, false);
                    }
                    Err(status) if !is_an_answer(&status) => {
                        if !std::mem::replace(&mut is_said, true) {
                            baton_messages::info!(waits_for_kubelet(&self.name, kubelet.display()));
                        }
                    }
                    Err(status) => return Err(self.failed(baton_messages::kubelet_refuses(status.message()))),
                }
            } else if there.is_none() && !std::mem::replace(&mut is_said, true) {
                baton_messages::info!(waits_for_kubelet(&self.name, kubelet.display()));
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                _ = self.ended.changed() => {}
            }
        }
        Ok(())
    }

    async fn register(&self, kubelet: &Path) -> Result<(), Status> {
        let channel = channel(kubelet).await?;
        let request = RegisterRequest {
            version: VERSION.to_owned(),
            endpoint: self.endpoint.clone(),
            resource_name: self.name.clone(),
            options: Some(OPTIONS),
        };
        RegistrationClient::new(channel).register(request).await.map(|_| ())
    }
}

/// Connects to a socket of kubelet's, or of a plugin's.
///
/// # Errors
///
/// When no process listens.
pub async fn channel(socket: &Path) -> Result<Channel, Status> {
    let socket = socket.to_path_buf();
    let connect = move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    };
    // The socket is the address; HTTP needs a name all the same.
    let endpoint = Endpoint::from_static("http://localhost").connect_timeout(PATIENCE).timeout(PATIENCE);
    let connected = endpoint.connect_with_connector(tower::service_fn(connect)).await;
    connected.map_err(|error| Status::unavailable(error.to_string()))
}
