//! `baton k8s device-plugin`, as kubelet sees it. (`tests/beyond/kubernetes.sh` has a real one.)

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use baton_kubernetes::api::device_plugin_client::DevicePluginClient;
use baton_kubernetes::api::registration_server::{Registration, RegistrationServer};
use baton_kubernetes::api::{
    AllocateRequest, ContainerAllocateRequest, ContainerPreferredAllocationRequest, Empty, ListAndWatchResponse,
    PreferredAllocationRequest, RegisterRequest,
};
use baton_kubernetes::pod_resources::pod_resources_lister_server::{PodResourcesLister, PodResourcesListerServer};
use baton_kubernetes::pod_resources::{
    ContainerDevices, ContainerResources, ListPodResourcesRequest, ListPodResourcesResponse, PodResources,
};
use baton_tests::coordinator::{Coordinator, Serving};
use baton_tests::running::Running;
use baton_tests::{LIMIT, hold, http};
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};

/// Hears who registers, and answers only if it is to.
struct Hears {
    tell: Sender<RegisterRequest>,
    answers: bool,
}

#[tonic::async_trait]
impl Registration for Hears {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let request = request.into_inner();
        if request.resource_name.starts_with("taken.dev/") {
            return Err(Status::already_exists("somebody else has it"));
        }
        let _ = self.tell.send(request);
        if !self.answers {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(Empty {}))
    }
}

/// A kubelet that starts, as far as a plugin sees it; it ends when dropped.
struct Kubelet {
    runtime: Runtime,
    folder: PathBuf,
    registered: Receiver<RegisterRequest>,
}

impl Kubelet {
    fn start(folder: &Path) -> Self {
        Self::that_answers(folder, true)
    }

    fn that_answers(folder: &Path, answers: bool) -> Self {
        // kubelet removes what it finds there.
        for entry in std::fs::read_dir(folder).expect("ours") {
            std::fs::remove_file(entry.expect("readable").path()).expect("ours");
        }
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let (tell, registered) = channel();
        let listener = {
            let _inside = runtime.enter();
            UnixListener::bind(folder.join("kubelet.sock")).expect("ours")
        };
        let server = Server::builder().add_service(RegistrationServer::new(Hears { tell, answers }));
        runtime.spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
        Self { runtime, folder: folder.to_path_buf(), registered }
    }

    /// The three resources that are registered next, in the order of their names.
    fn registered(&self) -> Vec<RegisterRequest> {
        let mut all: Vec<_> =
            (0..3).map(|_| self.registered.recv_timeout(LIMIT).expect("a resource is registered")).collect();
        all.sort_by(|a, b| a.resource_name.cmp(&b.resource_name));
        all
    }

    fn client(&self, resource: &RegisterRequest) -> DevicePluginClient<Channel> {
        let channel = self.runtime.block_on(baton_kubernetes::channel(&self.folder.join(&resource.endpoint)));
        DevicePluginClient::new(channel.expect("it listens"))
    }
}

/// Says that one container has each device of a class that it is asked about.
struct Gave(String);

#[tonic::async_trait]
impl PodResourcesLister for Gave {
    async fn list(&self, _: Request<ListPodResourcesRequest>) -> Result<Response<ListPodResourcesResponse>, Status> {
        let given = |class: &str| ContainerDevices {
            resource_name: format!("example.org/{class}"),
            device_ids: vec![self.0.clone()],
            topology: None,
        };
        let container = |class: &str| ContainerResources {
            name: format!("{class}-container"),
            devices: vec![given(class)],
            cpu_ids: Vec::new(),
        };
        let containers = ["latency", "batch"].map(container).into();
        let pod = PodResources { name: "chat-0".to_owned(), namespace: "prod".to_owned(), containers };
        Ok(Response::new(ListPodResourcesResponse { pod_resources: vec![pod] }))
    }
}

/// The state of each device, one letter each.
fn health(list: &ListAndWatchResponse) -> String {
    list.devices.iter().map(|device| &device.health[..1]).collect()
}

/// A coordinator in a folder where it is found by its GPU, and what a plugin for it is started with.
fn placed(coordinator: &Coordinator) -> (PathBuf, impl Fn(&[&str]) -> Running) {
    let place = coordinator.place.clone();
    let [plugins, dev] = ["plugins", "dev"].map(|name| place.folder().join(name));
    for folder in [&plugins, &dev] {
        std::fs::create_dir(folder).expect("a new folder");
    }
    for node in ["nvidia0", "nvidiactl"] {
        std::fs::write(dev.join(node), "").expect("a new file");
    }
    let status = coordinator.status();
    let name = status["gpu"]["uuid"].as_str().expect("a UUID");
    std::os::unix::fs::symlink(place.socket(), place.folder().join(format!("{name}.sock"))).expect("a link");
    let folder = plugins.clone();
    let start = move |words: &[&str]| {
        let mut command = place.baton(&["k8s", "device-plugin", "--driver", "sim", "--replicas", "2"]);
        command.args(["--hand-over", "nodes", "--dev"]).arg(&dev).arg("--plugin-folder").arg(&folder).args(words);
        Running::start(command.env("BATON_FOLDER", place.folder()), false, None)
    };
    (plugins, start)
}

#[test]
fn kubelet_is_offered_a_resource_for_each_class_and_hands_on_all_that_a_container_needs() {
    let coordinator = Serving::small("64MiB").start();
    let (folder, start) = placed(&coordinator);
    let kubelet = Kubelet::start(&folder);
    let mut plugin = start(&[]);
    let resources = kubelet.registered();
    let names: Vec<_> = resources.iter().map(|resource| resource.resource_name.as_str()).collect();
    assert_eq!(names, ["baton.dev/batch", "baton.dev/latency", "baton.dev/normal"]);
    assert!(resources.iter().all(|resource| resource.version == "v1beta1"));

    let mut client = kubelet.client(&resources[1]);
    let listed = kubelet.runtime.block_on(async {
        let mut stream = client.list_and_watch(Empty {}).await.expect("an answer").into_inner();
        stream.message().await.expect("a list").expect("a list")
    });
    assert_eq!(health(&listed), "HH");
    let ids: Vec<String> = listed.devices.into_iter().map(|device| device.id).collect();

    let asked = ContainerPreferredAllocationRequest {
        available_device_i_ds: ids.clone(),
        must_include_device_i_ds: vec![ids[1].clone()],
        allocation_size: 1,
    };
    let request = PreferredAllocationRequest { container_requests: vec![asked] };
    let preferred = kubelet.runtime.block_on(client.get_preferred_allocation(request)).expect("an answer").into_inner();
    assert_eq!(preferred.container_responses[0].device_i_ds, [ids[1].clone()]);

    let asked = ContainerAllocateRequest { devices_i_ds: vec![ids[0].clone()] };
    let request = AllocateRequest { container_requests: vec![asked.clone(), asked] };
    let granted = kubelet.runtime.block_on(client.allocate(request)).expect("an answer").into_inner();
    assert_eq!(granted.container_responses.len(), 2);
    let granted = &granted.container_responses[0];
    for (name, value) in [("BATON_CLASS", "latency"), ("BATON_REQUIRE", "1"), ("BATON_FOLDER", "/run/baton")] {
        assert_eq!(granted.envs[name], value);
    }
    assert!(granted.envs["LD_PRELOAD"].ends_with("/libbaton.so"));
    let nodes: Vec<_> = granted.devices.iter().map(|node| node.container_path.as_str()).collect();
    assert_eq!(nodes, ["/dev/nvidia0", "/dev/nvidiactl"]);
    assert!(granted.devices.iter().all(|node| Path::new(&node.host_path).exists()), "{granted:#?}");
    assert!(granted.mounts.iter().all(|mount| Path::new(&mount.host_path).exists()), "{granted:#?}");
    let driver = granted.mounts.iter().find(|mount| mount.container_path == "/usr/lib/x86_64-linux-gnu/libcuda.so.1");
    assert!(driver.is_some_and(|mount| mount.read_only && mount.host_path.ends_with("libsimcuda.so")), "{granted:#?}");

    let asked = ContainerAllocateRequest { devices_i_ds: vec!["GPU-nobodys::0".to_owned()] };
    let refused = kubelet.runtime.block_on(client.allocate(AllocateRequest { container_requests: vec![asked] }));
    assert!(refused.is_err_and(|status| status.message().contains("GPU-nobodys::0")));

    plugin.signal(libc::SIGTERM);
    assert!(plugin.end(LIMIT).success(), "{}", plugin.err());
    let left: Vec<_> = std::fs::read_dir(&folder).expect("ours").filter_map(Result::ok).collect();
    assert_eq!(left.len(), 1, "only kubelet's own: {left:?}");
}

#[test]
fn a_container_gets_the_file_of_the_simulated_gpu_that_it_was_given() {
    let coordinator = Serving::small("64MiB").setting("SIMCUDA_GPUS", "2").start();
    let (folder, start) = placed(&coordinator);
    std::fs::write(coordinator.place.folder().join("dev/nvidia1"), "").expect("a new file");
    let kubelet = Kubelet::start(&folder);
    let _plugin = start(&[]);
    let mut client = kubelet.client(&kubelet.registered()[0]);
    let listed = kubelet.runtime.block_on(async {
        let mut stream = client.list_and_watch(Empty {}).await.expect("an answer").into_inner();
        stream.message().await.expect("a list").expect("a list")
    });
    assert_eq!(health(&listed), "HHUU", "the second GPU has no coordinator");
    let second = listed.devices[2].id.clone();
    let asked = ContainerAllocateRequest { devices_i_ds: vec![second.clone()] };
    let request = AllocateRequest { container_requests: vec![asked] };
    let granted = kubelet.runtime.block_on(client.allocate(request)).expect("an answer").into_inner();
    let granted = &granted.container_responses[0];
    assert!(granted.devices.iter().any(|node| node.container_path == "/dev/nvidia1"), "{granted:#?}");
    let file = granted.mounts.iter().find(|mount| mount.container_path == granted.envs["SIMCUDA_GPU_FILE"]);
    let file = &file.expect("it is mounted").host_path;
    // The container's only GPU is the node's second one.
    let mut asked = coordinator.place.baton(&["cdi", "generate", "--driver", "sim"]);
    let text = asked.env("SIMCUDA_GPU_FILE", file).env("SIMCUDA_GPUS", "1").output().expect("baton").stdout;
    let gpu = second.split("::").next().expect("a GPU's name");
    assert!(String::from_utf8_lossy(&text).contains(gpu), "{gpu} is not in {}", String::from_utf8_lossy(&text));
}

#[test]
fn a_plugin_registers_again_when_kubelet_or_it_itself_was_killed() {
    let coordinator = Serving::small("64MiB").start();
    let (folder, start) = placed(&coordinator);
    // Also if it is there before kubelet.
    let mut plugin = start(&[]);
    while !plugin.err().contains("waiting for kubelet") {
        std::thread::sleep(Duration::from_millis(5));
    }
    let kubelet = Kubelet::start(&folder);
    kubelet.registered();
    drop(kubelet);
    let kubelet = Kubelet::start(&folder);
    let resources = kubelet.registered();
    kubelet.client(&resources[0]);
    plugin.signal(libc::SIGKILL);
    plugin.end(LIMIT);
    let _plugin = start(&[]);
    let resources = kubelet.registered();
    kubelet.client(&resources[0]);
}

#[test]
fn a_plugin_outlives_a_kubelet_that_is_killed_before_it_answers() {
    let coordinator = Serving::small("64MiB").start();
    let (folder, start) = placed(&coordinator);
    let kubelet = Kubelet::that_answers(&folder, false);
    let plugin = start(&[]);
    kubelet.registered();
    drop(kubelet);
    let kubelet = Kubelet::start(&folder);
    let resources = kubelet.registered();
    kubelet.client(&resources[0]);
    assert!(!plugin.err().contains("refuses"), "{}", plugin.err());
}

#[test]
fn devices_are_as_healthy_as_their_coordinator() {
    let coordinator = Serving::small("64MiB").start();
    let (folder, start) = placed(&coordinator);
    let kubelet = Kubelet::start(&folder);
    let _plugin = start(&[]);
    let resources = kubelet.registered();
    let mut client = kubelet.client(&resources[0]);
    let mut stream = kubelet.runtime.block_on(client.list_and_watch(Empty {})).expect("an answer").into_inner();
    let mut next = || kubelet.runtime.block_on(stream.message()).expect("a list").expect("a list");
    assert_eq!(health(&next()), "HH");
    let mut stop = coordinator.place.baton(&["stop", "--now", "--socket"]);
    assert!(stop.arg(coordinator.place.socket()).status().expect("baton").success());
    assert_eq!(health(&next()), "UU");
    let _again = coordinator.again();
    assert_eq!(health(&next()), "HH");
}

#[test]
fn a_plugin_that_kubelet_refuses_ends_and_says_why() {
    let coordinator = Serving::small("64MiB").start();
    let (folder, start) = placed(&coordinator);
    let _kubelet = Kubelet::start(&folder);
    let mut plugin = start(&["--domain", "taken.dev"]);
    assert_eq!(plugin.end(LIMIT).code(), Some(1));
    assert!(plugin.err().contains("kubelet refuses it: somebody else has it"), "{}", plugin.err());
}

#[test]
fn metrics_name_the_pods_of_programs_that_go_by_their_devices_names() {
    // A socket's path has to be short.
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("pods.sock");
    let coordinator = Serving::small("64MiB").option("--pod-resources", &socket.display().to_string()).start();
    let _own = hold::joined(&coordinator, "latency.1", "latency", "8", None);
    let _other = hold::joined(&coordinator, "latency.2", "latency", "8", None);
    let _shell = hold::joined(&coordinator, "by-hand", "batch", "8", None);
    let metrics = || http::get_unix(&coordinator.place.socket().with_extension("metrics"), "/metrics").body;
    assert!(!metrics().contains("namespace="), "kubelet does not answer yet");
    assert!(coordinator.log().contains("metrics do not name pods"), "{}", coordinator.log());

    let status = coordinator.status();
    let device = format!("{}::1", status["gpu"]["uuid"].as_str().expect("a UUID"));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let listener = {
        let _inside = runtime.enter();
        UnixListener::bind(&socket).expect("ours")
    };
    let server = Server::builder().add_service(PodResourcesListerServer::new(Gave(device)));
    runtime.spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
    // The metrics may still show the state of a moment ago.
    let text = loop {
        let text = metrics();
        if text.contains("namespace=") {
            break text;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let named: Vec<_> = text.lines().filter(|line| line.contains("namespace=")).collect();
    let is_so = |line: &&str| {
        line.contains("tenant=\"latency.1\"")
            && line.contains("namespace=\"prod\",pod=\"chat-0\",container=\"latency-container\"")
    };
    assert!(named.iter().all(is_so), "{named:#?}");
}

#[test]
fn the_document_says_what_the_chart_asks_of_a_cluster_and_how_to_see_whether_it_works() {
    let read = |path: &str| std::fs::read_to_string(baton_tests::root().join(path)).expect("the repository's own file");
    let (document, values) = (read("docs/kubernetes.md"), read("packaging/helm/values.yaml"));
    let chart = read("packaging/helm/templates/daemonset.yaml");
    // The chart's parts, in its own words.
    for wanted in ["hostPID", "hostPath", "IPC_LOCK", "KILL", "runtimeClassName", "system-node-critical"] {
        assert!(chart.contains(wanted) || values.contains(wanted), "the chart no longer has {wanted}");
        assert!(document.contains(wanted), "docs/kubernetes.md does not tell of {wanted}");
    }
    let value = |name: &str| {
        let line = values.lines().find(|line| line.trim_start().starts_with(&format!("{name}: ")));
        line.and_then(|line| line.split_once(": "))
            .map(|(_, value)| value.trim_matches('"').to_owned())
            .expect("there is one")
    };
    let names = ["files", "sockets", "kubelet", "host-pool", "domain"].map(value);
    for name in names.iter().map(String::as_str).chain(["nvidia.com/gpu.present=true", "baton.dev/normal"]) {
        assert!(document.contains(name), "docs/kubernetes.md does not name {name}");
    }
    // A reader goes from an image to a pod, and back to where it began.
    for step in [
        "docker load --input baton-",
        "docker push ",
        "kubectl create namespace",
        "kubectl create -f -",
        "rollout status",
        "baton-try.yaml | kubectl apply",
        "kubectl logs baton-try",
        "helm uninstall",
    ] {
        assert!(document.contains(step), "docs/kubernetes.md does not say `{step}`");
    }
    let pod = read("examples/kubernetes/try.yaml");
    assert!(pod.contains("image: IMAGE\n") && read("packaging/release").contains("s,IMAGE$,$image:$version,"), "{pod}");
    let packaged = read("packaging/build");
    assert!(pod.contains("/usr/lib/baton/train_mlp") && packaged.contains("large_table serve_mlp train_mlp"), "{pod}");
}
