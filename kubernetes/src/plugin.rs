//! The answers to kubelet about one resource.

use std::pin::Pin;
use std::sync::Arc;

use baton_contract::class::Class;
use baton_contract::settings;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

use crate::api::device_plugin_server::DevicePlugin;
use crate::api::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, ContainerPreferredAllocationResponse, Device,
    DevicePluginOptions, Empty, ListAndWatchResponse, PreStartContainerRequest, PreStartContainerResponse,
    PreferredAllocationRequest, PreferredAllocationResponse,
};
use crate::devices;
use crate::health::{Health, State};
use crate::{Gpu, Options};

/// kubelet's words for the two states of a device (`constants.go` of the API).
const HEALTHY: &str = "Healthy";
const UNHEALTHY: &str = "Unhealthy";

/// The plugin's abilities.
pub(crate) const OPTIONS: DevicePluginOptions =
    DevicePluginOptions { pre_start_required: false, get_preferred_allocation_available: true };

/// One resource: shares of the GPUs for programs of one class.
#[derive(Clone, Debug)]
pub(crate) struct Plugin {
    pub(crate) class: Class,
    pub(crate) options: Arc<Options>,
    pub(crate) health: Arc<Health>,
}

/// Lists each GPU's replicas.
fn list(options: &Options, states: &[State]) -> Vec<Device> {
    let of_gpu = |(gpu, state): (&Gpu, &State)| {
        let health = if state.is_healthy { HEALTHY } else { UNHEALTHY };
        let device = |id| Device { id, health: health.to_owned(), topology: None };
        (0..options.replicas).map(|replica| device(devices::id(&gpu.name, replica))).collect::<Vec<_>>()
    };
    options.gpus.iter().zip(states).flat_map(of_gpu).collect()
}

/// Returns the grant to a container for these devices. GPUs differ only in the parts that are a GPU's own.
fn grant(options: &Options, class: Class, ids: &[String]) -> Result<ContainerAllocateResponse, Status> {
    let mut all = ContainerAllocateResponse::default();
    for gpu in &options.gpus {
        if !ids.iter().any(|id| devices::gpu_of(id) == gpu.name) {
            continue;
        }
        let ContainerAllocateResponse { envs, mounts, devices, annotations, cdi_devices } = gpu.grant.clone();
        all.envs.extend(envs);
        all.annotations.extend(annotations);
        let is_free = |path: &str| all.mounts.iter().all(|mount| mount.container_path != path);
        let mounts: Vec<_> = mounts.into_iter().filter(|mount| is_free(&mount.container_path)).collect();
        all.mounts.extend(mounts);
        all.devices.extend(devices.into_iter().filter(|node| !all.devices.contains(node)).collect::<Vec<_>>());
        all.cdi_devices.extend(cdi_devices);
    }
    let is_ours = |id: &String| options.gpus.iter().any(|gpu| gpu.name == devices::gpu_of(id));
    if let Some(id) = ids.iter().find(|id| !is_ours(id)) {
        return Err(Status::not_found(baton_messages::no_such_device(id)));
    }
    if let Some(id) = ids.first() {
        all.envs.insert(settings::NAME.to_string_lossy().into_owned(), devices::name(class, id));
    }
    all.envs.insert(settings::CLASS.to_string_lossy().into_owned(), class.word().to_owned());
    Ok(all)
}

#[tonic::async_trait]
impl DevicePlugin for Plugin {
    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn get_device_plugin_options(&self, _: Request<Empty>) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(OPTIONS))
    }

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let options = Arc::clone(&self.options);
        let mut last = None;
        // Changes in used memory alone are not sent.
        let devices = WatchStream::new(self.health.states()).filter_map(move |states| {
            let devices = list(&options, &states);
            let is_new = last.as_ref() != Some(&devices);
            last = Some(devices.clone());
            is_new.then_some(Ok(ListAndWatchResponse { devices }))
        });
        Ok(Response::new(Box::pin(devices)))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let states = self.health.states().borrow().clone();
        let used = |name: &str| {
            let found = self.options.gpus.iter().zip(&states).find(|(gpu, _)| gpu.name == name);
            found.map_or(u64::MAX, |(_, state)| state.used_bytes)
        };
        let mut response = PreferredAllocationResponse::default();
        for asked in request.into_inner().container_requests {
            let size = usize::try_from(asked.allocation_size).unwrap_or_default();
            let ids = devices::preferred(&asked.available_device_i_ds, &asked.must_include_device_i_ds, size, used);
            response.container_responses.push(ContainerPreferredAllocationResponse { device_i_ds: ids });
        }
        Ok(Response::new(response))
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        let asked = request.into_inner().container_requests;
        let grants = asked.iter().map(|asked| grant(&self.options, self.class, &asked.devices_i_ds));
        let container_responses = grants.collect::<Result<Vec<_>, _>>()?;
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Ok(Response::new(PreStartContainerResponse {}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Mount;

    fn options() -> Options {
        let gpu = |name: &str| {
            let shared = Mount { container_path: "/x".to_owned(), host_path: "/y".to_owned(), read_only: true };
            let own = Mount { container_path: format!("/{name}"), ..shared.clone() };
            let envs = [("A".to_owned(), "b".to_owned())].into();
            let grant = ContainerAllocateResponse { envs, mounts: vec![shared, own], ..Default::default() };
            Gpu { name: name.to_owned(), socket: "/nowhere".into(), grant }
        };
        Options { gpus: vec![gpu("one"), gpu("two")], replicas: 2, domain: "d".to_owned(), folder: "/".into() }
    }

    #[test]
    fn each_gpu_is_there_as_often_as_it_has_replicas_and_as_healthy_as_its_coordinator() {
        let states = [State { is_healthy: true, used_bytes: 7 }, State::default()];
        let listed: Vec<_> = list(&options(), &states).into_iter().map(|device| (device.id, device.health)).collect();
        let want = [("one::0", HEALTHY), ("one::1", HEALTHY), ("two::0", UNHEALTHY), ("two::1", UNHEALTHY)];
        assert_eq!(listed, want.map(|(id, health)| (id.to_owned(), health.to_owned())));
    }

    #[test]
    fn a_container_gets_each_thing_once_and_its_class() {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let one = grant(&options(), Class::Batch, &ids(&["one::0", "one::1"])).expect("ours");
        assert_eq!(one.mounts.len(), 2);
        assert_eq!(one.envs["A"], "b");
        assert_eq!([&one.envs["BATON_CLASS"], &one.envs["BATON_NAME"]], ["batch", "batch.0"]);
        let both = grant(&options(), Class::Latency, &ids(&["two::1", "one::1"])).expect("ours");
        let paths: Vec<_> = both.mounts.iter().map(|mount| mount.container_path.as_str()).collect();
        assert_eq!(paths, ["/x", "/one", "/two"]);
        assert!(grant(&options(), Class::Latency, &ids(&["three::0"])).is_err());
    }
}
