#!/usr/bin/env bash
# Checks that a release runs on a node of Kubernetes as docs/kubernetes.md says: its image is pushed to a registry and pulled from there by
# containerd, a kubelet (kubelet.sh) runs the chart's own pod, which registers its places, the pod of baton-try.yaml gets one, and when
# they have gone nothing is left but what the document names. On the simulated driver.
#
#     tests/beyond/chart_pods.sh [RELEASE]        of what packaging/release made (target/release-VERSION)
#
# Needs root, and installs what it needs. About 1 minute; the first time 6 more.
#
# In place of the missing parts: podman is docker, Helm's library renders what `helm install` would send, a file is the ConfigMap that an
# API server would keep, the node's network is the pods', and the chart's settings say `driver = "sim"`, with a script for nvidia-smi,
# where NVIDIA's runtime would put the driver in.
set -euo pipefail
cd "$(dirname "$0")/../.."
before() {
    need podman:podman docker-registry:docker-registry python3:python3
    python3 -c 'import ensurepip' 2>/dev/null || need ensurepip:python3-venv
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install -q helm-python-sdk pyyaml
}
# shellcheck source=tests/beyond/kubelet.sh
. tests/beyond/kubelet.sh
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
release=$(realpath "${1:-target/release-$version}")

say "the image, to a registry"
mkdir -p "$work"/{registry,chart,settings}
cat >"$work/registry.yml" <<END
version: 0.1
storage: {filesystem: {rootdirectory: $work/registry}}
http: {addr: 127.0.0.1:5000}
END
docker-registry serve "$work/registry.yml" >"$work/registry.out" 2>&1 </dev/null &
docker() { podman --storage-driver vfs --root "$work/storage" --runroot "$work/podman" --cgroup-manager cgroupfs "$@"; }
image=127.0.0.1:5000/you/baton
docker load --quiet --input "$release/baton-$version-image.tar"
docker tag "baton.invalid/baton:$version" "$image:$version"
listens() { get 5000/v2/ >/dev/null; }
until_ "the registry answers" listens
docker push --quiet --tls-verify=false "$image:$version"

say "and to a node without one"
containerd_
k8s images import --snapshotter native "$release/baton-$version-image.tar" >/dev/null
until_ "containerd knows the image as the chart does" is_known "baton.invalid/baton:$version"
k8s images rm "baton.invalid/baton:$version"

say "the chart's pod"
tar -xzf "$release/baton-chart-$version.tgz" -C "$work/chart"
printf '#!/bin/sh\necho 0\n' >"$work/nvidia-smi"
chmod 755 "$work/nvidia-smi"
cat >"$work/render.py" <<'END'
import pathlib
import sys

import yaml
from helm_python import Chart

work, image = pathlib.Path(sys.argv[1]), sys.argv[2]
values = {
    "image": {"repository": image},
    "runtimeClassName": "",
    "settings": {"driver": "sim", "arena": "64MiB", "host-pool": "128MiB"},
}
rendered = Chart.load(work / "chart/baton").render(values, name="baton", namespace="gpu")
found = {one["kind"]: one for text in rendered.values() for one in yaml.safe_load_all(text) if one}
for name, text in found["ConfigMap"]["data"].items():
    (work / "settings" / name).write_text(text)
spec = found["DaemonSet"]["spec"]["template"]["spec"]
spec["hostNetwork"] = True
for volume in spec["volumes"]:
    if volume.pop("configMap", None):
        volume["hostPath"] = {"path": str(work / "settings"), "type": "Directory"}
spec["volumes"].append({"name": "smi", "hostPath": {"path": str(work / "nvidia-smi"), "type": "File"}})
for container in spec["containers"]:
    container["env"] += [
        {"name": "BATON_SERVE_DRIVER", "value": "sim"},
        {"name": "SIMCUDA_GPU_FILE", "value": "/run/baton/gpu"},
    ]
    container["volumeMounts"].append({"name": "smi", "mountPath": "/usr/bin/nvidia-smi"})
pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "baton", "namespace": "gpu"}, "spec": spec}
(work / "pods/baton.yaml").write_text(yaml.safe_dump(pod))
END
"$work/venv/bin/python" "$work/render.py" "$work" "$image"
kubelet_ --node-labels nvidia.com/gpu.present=true
offers() { has 16 16 16; }
until_ "kubelet has sixteen places of each class" offers
healthy
pods baton
k8s images ls -q | grep baton

say "baton-try.yaml"
sed "s|image: .*|image: $image:$version|; s|^spec:|&\n  hostNetwork: true|" "$release/baton-try.yaml" >"$work/pods/try.yaml"
ends() { pods baton-try | grep -q Succeeded; }
until_ "the pod ends well" ends
pods baton-try
tail -n 3 /var/log/pods/default_baton-try-*/train/*.log
tail -qn 1 /var/log/pods/default_baton-try-*/train/*.log | grep -q ' result train_mlp .* ok$' || fail "it has not computed what it should"
logs() { k8s tasks exec --exec-id look "$1" baton logs; }
container() { # NAME: of the chart's pod
    get 10255/pods | python3 -c '
import json, sys
for pod in json.load(sys.stdin)["items"]:
    for container in pod["status"].get("containerStatuses", []):
        if container["name"] == sys.argv[1]:
            print(container["containerID"].removeprefix("containerd://"))' "$1"
}
logs "$(container coordinators)" | tee "$work/events"
grep -q "normal.0.*joined" "$work/events" || fail "it has not shared the GPU"

say "uninstall"
rm "$work"/pods/*.yaml
gone() { [[ -z $(pods) && -z $(k8s tasks ls -q) ]]; }
until_ "all pods have gone" gone
find /var/lib/baton /run/baton -maxdepth 2
marked() { [[ $(grep -c 'Mark all resources Unhealthy for resource baton.dev/' "$work/kubelet.log") == 3 ]]; }
until_ "kubelet takes no place for healthy" marked
say "all is well"
