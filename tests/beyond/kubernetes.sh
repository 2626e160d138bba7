#!/usr/bin/env bash
# Whether pods of Kubernetes share a GPU as programs do: `baton k8s device-plugin` under a kubelet of its own, with containerd and
# runc, on the simulated driver. Pods of two classes take turns while the kubelet and the plugin are killed and started again, and
# metrics name them; a pod too many, and one without a coordinator, are refused.
#
#     tests/beyond/kubernetes.sh [FOLDER]        with the build in this folder (target/release)
#
# Needs root, and installs what it needs if it is not there. About 2 minutes; the first time 6 more, to build a kubelet that it keeps
# in target/kubelet.
#
# The kubelet is Kubernetes 1.20 without an API server: it runs the pods that lie in a folder. Its Allocate has no CDI devices yet;
# that a CDI file does what it says is what containers.sh tries, with podman.
set -euo pipefail
cd "$(dirname "$0")/../.."
say() { printf '\n== %s\n' "$*"; }
fail() { echo "kubernetes.sh: $*" >&2; exit 1; }
forget_groups() { # GROUP: removes control groups in which nothing runs any more
    find /sys/fs/cgroup -depth -type d \( -path "*/$1" -o -path "*/$1/*" \) -exec rmdir {} + 2>/dev/null || true
}
# Without the shell's word about it.
killed() { { kill -9 "$1" && wait "$1"; } 2>/dev/null || true; }

if [[ ${1:-} != --inside ]]; then
    built=$(realpath "${1:-target/release}")
    missing=()
    for tool in go:golang-go containerd:containerd runc:runc dpkg-source:dpkg-dev ip:iproute2 gcc:gcc; do
        command -v "${tool%%:*}" >/dev/null || missing+=("${tool##*:}")
    done
    if ((${#missing[@]})); then
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    fi
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
    # Mounts, processes and ports of its own: what a kubelet has in /var and /run is not the machine's, and ends with it.
    unshare --mount --pid --fork --kill-child --mount-proc --net \
        bash "$0" --inside "$built" "$work" "$kubelet" "baton-test-$$" </dev/null &
    machine=$!
    wait "$machine"
    exit
fi

built=$2 work=$3 kubelet=$4 group=$5
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

say "Baton as a package lays it out, and a coordinator for users of containers"
mkdir -p "$work"/inst/{bin,lib/baton}
cp "$built/baton" "$work/inst/bin/"
cp "$built"/{libbaton.so,libsimcuda.so,large_table} "$work/inst/lib/baton/"
PATH=$work/inst/bin:$PATH
export BATON_FOLDER=/run/baton SIMCUDA_GPU_FILE=/run/gpu
serve() {
    baton serve --driver sim --arena 64MiB --host-pool 128MiB --quantum 20ms --allow-uid 0-65535 --metrics 127.0.0.1:9400 \
        --pod-resources /var/lib/kubelet/pod-resources/kubelet.sock >>"$work/serve.log" 2>&1 </dev/null &
    coordinator=$!
    serves() { baton status >/dev/null 2>&1; }
    until_ "the coordinator answers" serves
    # A GPU's device file is everybody's too.
    chmod 666 "$SIMCUDA_GPU_FILE"
}
serve
shares() { # who shares the GPU: classes, pods and containers
    baton status --json | python3 -c '
import json, sys
print(*sorted("{class} {pod} {container} {name}".format(**tenant) for tenant in json.load(sys.stdin)["tenants"]), sep="\n")'
}

say "containerd, and images: one has nothing but a program and its libraries"
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
containerd --config "$work/containerd.toml" >"$work/containerd.log" 2>&1 </dev/null &
k8s() { ctr -n k8s.io "$@"; }
answers() { k8s version >/dev/null 2>&1; }
until_ "containerd answers" answers
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
    is_known() { k8s images ls | grep "^$1 " | grep -q io.cri-containerd.image=managed; }
    until_ "containerd knows $1" is_known "$1"
}
mkdir -p "$work"/{pause,table/srv,table/lib64,table/lib/x86_64-linux-gnu,driver,pods}
echo '#include <unistd.h>
int main(void) { for (;;) pause(); }' | gcc -static -o "$work/pause/pause" -x c -
image baton.test/pause:1 "$work/pause" /pause
cp "$built/large_table" "$work/table/srv/"
cp -L /lib64/ld-linux-x86-64.so.2 "$work/table/lib64/"
cp -L /lib/x86_64-linux-gnu/{libc,libm,libdl,libpthread,libgcc_s}.so.? "$work/table/lib/x86_64-linux-gnu/"
image baton.test/table:1 "$work/table" /srv/large_table
k8s images ls -q

say "a kubelet, and the plugin"
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
kubelet_() {
    touch "$work/began"
    "$kubelet" --config "$work/kubelet.yaml" --hostname-override node --v 2 --container-runtime remote \
        --container-runtime-endpoint unix:///run/containerd/containerd.sock >>"$work/kubelet.log" 2>&1 </dev/null &
    kubelet_pid=$!
    began() {
        kill -0 "$kubelet_pid" || fail "the kubelet does not start"
        pods >/dev/null
    }
    until_ "the kubelet answers" began
}
plugin() { # OPTION...
    touch "$work/began"
    baton k8s device-plugin --driver sim --replicas 4 --plugin-folder "$plugins" "$@" >>"$work/plugin.log" 2>&1 </dev/null &
    plugin_pid=$!
}
get() { # PORT/PATH
    python3 -c '
import sys, urllib.request
print(urllib.request.urlopen("http://127.0.0.1:" + sys.argv[1]).read().decode())' "$1" 2>/dev/null
}
pods() { # [NAME]: what the kubelet says of its pods or of one: its phase, its container's number and starts, and why it was refused
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
pod() { # NAME CLASS ARGUMENT...: a pod as users write it; it has nothing of Baton's but the name of a resource
    local name=$1 class=$2
    shift 2
    # As an API server would give it one.
    uid[$name]=$(cat /proc/sys/kernel/random/uuid)
    cat >"$work/pod" <<END
apiVersion: v1
kind: Pod
metadata: {name: $name, uid: ${uid[$name]}}
spec:
  hostNetwork: true
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: table
    image: baton.test/table:1
    imagePullPolicy: Never
    args: [$(printf '"%s",' "$@")]
    resources: {limits: {baton.dev/$class: 1}}
END
    mv "$work/pod" "$work/pods/$name.yaml"
}
declare -A uid
log() { cat /var/log/pods/*_"${uid[$1]}"/table/*.log 2>/dev/null | cut -d ' ' -f 4-; }
phase() { pods "$1" | cut -d ' ' -f 2; }
container() { pods "$1" | cut -d ' ' -f 3,4; }
is() { [[ $(phase "$1") == "$2" ]]; }
ends_well() { # NAME RESULT
    # What has failed does not end well later.
    is "$1" Failed && fail "$(pods "$1") $(log "$1" | tail -3)"
    is "$1" Succeeded && [[ $(log "$1" | tail -1) == "$2" ]]
}
kubelet_
plugin
until_ "the kubelet has four devices of each class" has 4 4 4
healthy
grep -o 'Got registration request.*' "$work/kubelet.log"

say "what programs compute alone"
ln -s "$built/libsimcuda.so" "$work/driver/libcuda.so.1"
table=(--megabytes 40 --tell 1 --rounds)
alone() { SIMCUDA_GPU_FILE=$work/other LD_LIBRARY_PATH=$work/driver "$built/large_table" "${table[@]}" "$@" | tail -1; }
few=$(alone 3) short=$(alone 120) long=$(alone 150 --seed 2)
echo "$few, $short, $long"

say "two pods that do not fit the GPU together"
# They rest after each round, so that they run for as long as what follows takes.
pod one latency "${table[@]}" 120 --rest-ms 500
pod two batch "${table[@]}" 150 --rest-ms 500 --seed 2
both() { [[ $(shares) == "batch ${uid[two]} "*$'\n'"latency ${uid[one]} "* ]]; }
until_ "both share the GPU, in their classes" both
sharers=$(shares)
echo "$sharers"
run() { [[ $(phase one) == Running && $(phase two) == Running ]]; }
until_ "the kubelet knows that both run" run
containers=$(container one; container two)
named() {
    local metrics
    metrics=$(get 9400/metrics | grep ^baton_tenant_gpu_seconds_total)
    for name in one two; do
        grep "pod_uid=\"${uid[$name]}\",namespace=\"default\",pod=\"$name-node\",container=\"table\"" <<<"$metrics" || return
    done
}
until_ "metrics name the pods" named
rounds() { log "$1" | wc -l; }
go_on() { # WHAT: both are the same containers as before, and have gone on
    local one two
    one=$(rounds one) two=$(rounds two)
    further() { (($(rounds one) > one && $(rounds two) > two)); }
    until_ "both go on: $1" further
    [[ $(shares) == "$sharers" ]] || fail "others share the GPU: $1: $(shares)"
    echo "both go on, after $(rounds one) and $(rounds two) rounds"
}
are_the_same() { [[ $(container one; container two) == "$containers" ]] || fail "they are others: $(pods)"; }

say "the kubelet is killed, and started again"
killed "$kubelet_pid"
go_on "without the kubelet"
kubelet_
until_ "the plugin registers again" has 4 4 4
grep -c 'Got registration request' "$work/kubelet.log" | sed 's/$/ registrations/'
go_on "after the kubelet's start"
run || fail "the kubelet does not know that they run: $(pods)"
are_the_same
pod three normal "${table[@]}" 3
until_ "a new pod ends well" ends_well three "$few"
pods three

say "the plugin is killed, and started again"
killed "$plugin_pid"
marked() { [[ $(grep -c 'Mark all resources Unhealthy for resource baton.dev/' "$work/kubelet.log") == 3 ]]; }
until_ "the kubelet takes no device for healthy" marked
go_on "without the plugin"
# Now with the GPU's device files, which a kubelet before CDI needs; here they are others by these names.
mkdir "$work/dev"
for node in nvidia0 nvidiactl; do mknod "$work/dev/$node" c 1 3; done
plugin --hand-over nodes --dev "$work/dev"
until_ "the plugin registers again" has 4 4 4
go_on "after the plugin's start"
pod four normal "${table[@]}" 3
until_ "a new pod ends well" ends_well four "$few"
pods four

say "what the two pods compute"
go_on "through it all"
patience=600
until_ "the first ends well" ends_well one "$short"
until_ "the second ends well" ends_well two "$long"
patience=120
log one | tail -1
log two | tail -1
are_the_same
baton status --json | python3 -c '
import json, sys
switches = json.load(sys.stdin)["switches"]
assert switches >= 20, switches
print(switches, "switches")'

say "no coordinator"
baton stop --now
wait "$coordinator" || true
until_ "the kubelet has no healthy devices" has 0 0 0
pod five latency "${table[@]}" 3
until_ "a pod is refused" is five Failed
pods five
serve
until_ "the devices are healthy again" has 4 4 4
pod six latency "${table[@]}" 3
until_ "a new pod ends well" ends_well six "$few"
pods six

say "a fifth pod of a class; and what a container has"
for name in a b c d; do
    pod "$name" batch --megabytes 8 --rounds 1000000 --rest-ms 500
    until_ "$name runs" is "$name" Running
done
pod e batch --megabytes 8 --rounds 1000000 --rest-ms 500
until_ "it is refused" is e Failed
pods e
pod f normal "${table[@]}" 3
until_ "one of another class ends well" ends_well f "$few"
shares | grep "${uid[a]}"
pid=$(k8s tasks ls | grep "^$(container a | cut -d ' ' -f 1)" | awk '{ print $2 }')
(cd "/proc/$pid/root" && stat -c '%A %t:%T %n' dev/nvidia* && find opt run -type f -o -type s)
[[ $(cd "/proc/$pid/root" && stat -c %t:%T dev/nvidia0) == 1:3 ]] || fail "it has not the GPU's device file"
rm "$work/pods/a.yaml"
gone() { [[ -z $(pods a) && $(shares) != *${uid[a]}* ]]; }
until_ "the first one ends" gone
pod g batch "${table[@]}" 3
until_ "another has its place" ends_well g "$few"
pods g

say "all is well"
