# shellcheck shell=bash
# For scripts to source: a kubelet with containerd and runc, in namespaces of its own. The rest runs there, as `$0 --inside`, with
# the script's own arguments; $work is a folder that goes with it.
#
# The kubelet is Kubernetes 1.20 without an API server: it runs the pods that lie in $work/pods. It takes 6 minutes to build, the first
# time, and is kept in target/kubelet. Its Allocate has no CDI devices yet; containers.sh tries the effect of a CDI file
# with podman.
# shellcheck source=packaging/tools.sh
. packaging/tools.sh
say() { printf '\n== %s\n' "$*"; }
fail() { echo "${0##*/}: $*" >&2; exit 1; }
forget_groups() { # GROUP: removes control groups in which nothing runs any more
    find /sys/fs/cgroup -depth -type d \( -path "*/$1" -o -path "*/$1/*" \) -exec rmdir {} + 2>/dev/null || true
}
# Without the shell's word about it.
killed() { { kill -9 "$1" && wait "$1"; } 2>/dev/null || true; }

if [[ ${1:-} != --inside ]]; then
    need go:golang-go containerd:containerd runc:runc dpkg-source:dpkg-dev ip:iproute2 gcc:gcc
    work=$(mktemp -d)
    machine=
    end() {
        # With it, all that it has started.
        [[ -z $machine ]] || killed "$machine"
        forget_groups "baton-test-$$"
        rm -rf --one-file-system "$work"
    }
    trap end EXIT
    kubelet=$PWD/target/kubelet/kubelet
    if [[ ! -x $kubelet ]]; then
        say "a kubelet, from the sources of Debian 12"
        mkdir -p "$work/source/lists/partial" "$work/go/src/k8s.io"
        list="deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian"
        security=${list/%debian/debian-security}
        printf '%s main\n' "$list bookworm" "$security bookworm-security" >"$work/source/sources.list"
        sources() {
            apt-get -qq -o APT::Sandbox::User=root -o Dir::Etc::SourceList="$work/source/sources.list" -o Dir::Etc::SourceParts=- \
                -o Dir::State::Lists="$work/source/lists" "$@"
        }
        (cd "$work/source" && sources update && sources source --download-only kubernetes >/dev/null)
        dpkg-source --no-check -x "$work"/source/kubernetes_*.dsc "$work/go/src/k8s.io/kubernetes" >/dev/null
        # Plugins that are not written in Go refuse a socket's path as the name of a server. Mended in Kubernetes in 2022.
        dial=$work/go/src/k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/endpoint.go
        sed -i 's/grpc.WithBlock(),$/& grpc.WithAuthority("localhost"),/' "$dial"
        grep -q WithAuthority "$dial" || fail "the kubelet's sources are not as expected"
        env GOPATH="$work/go" GOCACHE="$work/go/cache" GOFLAGS=-modcacherw GO111MODULE=off CGO_ENABLED=0 \
            nice -n 10 go build -ldflags="-s -w" -o "$work/kubelet" k8s.io/kubernetes/cmd/kubelet
        install -D "$work/kubelet" "$kubelet"
        rm -rf "$work/go" "$work/source"
    fi
    # A script uses the network before this.
    if declare -F before >/dev/null; then before "$@"; fi
    # Mounts, processes and ports of its own: a kubelet's part of /var and /run is not the machine's, and ends with it.
    unshare --mount --pid --fork --kill-child --mount-proc --net \
        bash "$0" --inside "$work" "$kubelet" "baton-test-$$" "$@" </dev/null &
    machine=$!
    wait "$machine"
    exit
fi

work=$2 kubelet=$3 group=$4
shift 4
ip link set lo up
unset http_proxy HTTP_PROXY
for folder in /run /var/lib /var/log; do
    mkdir -p "$work$folder"
    mount --bind "$work$folder" "$folder"
done
# A kubelet sets these, for the whole machine: here it finds them set.
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 \
    kernel/keys/root_maxbytes=25000000; do
    mkdir -p "$work/set/${setting%/*}"
    echo "${setting#*=}" >"$work/set/${setting%=*}"
    mount --bind "$work/set/${setting%=*}" "/proc/sys/${setting%=*}"
done
[[ -e /dev/kmsg ]] || ln -s null /dev/kmsg
if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
    mkdir "/sys/fs/cgroup/$group"
    for controller in cpuset cpu io memory pids; do
        echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
        echo "+$controller" >"/sys/fs/cgroup/$group/cgroup.subtree_control"
    done
else
    mountpoint -q /sys/fs/cgroup || mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
    for controller in cpuset cpu cpuacct memory devices freezer blkio pids; do
        at=/sys/fs/cgroup/$controller
        mkdir -p "$at"
        mountpoint -q "$at" || mount -t cgroup -o "$controller" cgroup "$at"
    done
    # There may be others, as systemd's own.
    for at in /sys/fs/cgroup/*/; do mkdir -p "$at/$group"; done
    for setting in cpuset.cpus cpuset.mems; do
        cat "/sys/fs/cgroup/cpuset/$setting" >"/sys/fs/cgroup/cpuset/$group/$setting"
    done
fi
end() {
    local status=$?
    ((status == 0)) || find "$work"/*.log /var/log/pods -name '*.log' -exec tail -n 40 {} + || true
    # All but this, which is the first process here; the shell would tell of each.
    exec 2>/dev/null
    kill -9 -1 2>/dev/null || true
    wait
    forget_groups "$group"
}
trap end EXIT
patience=120
until_() { # WHAT COMMAND...: waits until it succeeds
    local until=$((SECONDS + patience))
    while ((SECONDS < until)); do
        if "${@:2}"; then return; fi
        sleep 0.3
    done
    fail "never: $1"
}

mkdir -p "$work"/{pause,pods}
cat >"$work/containerd.toml" <<END
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
disable_apparmor = true
restrict_oom_score_adj = true
sandbox_image = "baton.test/pause:1"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
END
k8s() { ctr -n k8s.io "$@"; }
is_known() { k8s images ls | grep "^$1 " | grep -q io.cri-containerd.image=managed; }
image() { # NAME FOLDER PROGRAM: as `docker save` writes them
    local image=$work/image
    mkdir "$image"
    tar -C "$2" -cf "$image/layer.tar" .
    local sum
    sum=$(sha256sum <"$image/layer.tar" | cut -d ' ' -f 1)
    cat >"$image/config.json" <<END
{"architecture": "amd64", "os": "linux", "config": {"Entrypoint": ["$3"]},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$sum"]}}
END
    echo '[{"Config": "config.json", "RepoTags": ["'"$1"'"], "Layers": ["layer.tar"]}]' >"$image/manifest.json"
    tar -C "$image" -c manifest.json config.json layer.tar | k8s images import --snapshotter native - >/dev/null
    rm -r "$image"
    until_ "containerd knows $1" is_known "$1"
}
containerd_() {
    containerd --config "$work/containerd.toml" >"$work/containerd.log" 2>&1 </dev/null &
    answers() { k8s version >/dev/null 2>&1; }
    until_ "containerd answers" answers
    echo '#include <unistd.h>
int main(void) { for (;;) pause(); }' | gcc -static -o "$work/pause/pause" -x c -
    image baton.test/pause:1 "$work/pause" /pause
}

: >"$work/resolv.conf"
cat >"$work/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: $work/pods
fileCheckFrequency: 1s
resolvConf: $work/resolv.conf
address: 127.0.0.1
readOnlyPort: 10255
healthzPort: 0
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: /$group
enforceNodeAllocatable: []
evictionHard: {memory.available: 0%, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%}
failSwapOn: false
makeIPTablesUtilChains: false
END
plugins=/var/lib/kubelet/device-plugins
kubelet_() { # OPTION...
    touch "$work/began"
    "$kubelet" --config "$work/kubelet.yaml" --hostname-override node --v 2 --container-runtime remote \
        --container-runtime-endpoint unix:///run/containerd/containerd.sock "$@" >>"$work/kubelet.log" 2>&1 </dev/null &
    kubelet_pid=$!
    began() {
        kill -0 "$kubelet_pid" || fail "the kubelet does not start"
        pods >/dev/null
    }
    until_ "the kubelet answers" began
}
get() { # PORT/PATH
    python3 -c '
import sys, urllib.request
print(urllib.request.urlopen("http://127.0.0.1:" + sys.argv[1]).read().decode())' "$1" 2>/dev/null
}
pods() { # [NAME]: the kubelet's report on its pods or on one: its phase, its container's number and starts, and the reason of a refusal
    get 10255/pods | python3 -c '
import json, sys
for pod in json.load(sys.stdin)["items"] or []:
    name, status = pod["metadata"]["name"].removesuffix("-node"), pod["status"]
    if name in sys.argv[1:] or len(sys.argv) == 1:
        containers = [(it.get("containerID", "")[13:25], it["restartCount"]) for it in status.get("containerStatuses", [])]
        words = (name, status.get("phase"), *sum(containers, ()), status.get("reason"), status.get("message"))
        print(*(word for word in words if word is not None))' "$@" 2>/dev/null
}
healthy() { # how many healthy devices of each class the kubelet knows of
    python3 -c '
import json, sys
known = json.load(sys.stdin)["Data"]["RegisteredDevices"]
print(*(len(known.get("baton.dev/" + name) or []) for name in ("latency", "normal", "batch")))' \
        2>/dev/null <"$plugins/kubelet_internal_checkpoint"
}
# Since it and the plugin were started, that is.
has() { [[ $plugins/kubelet_internal_checkpoint -nt $work/began && $(healthy) == "$*" ]]; }
