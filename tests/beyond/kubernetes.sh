#!/usr/bin/env bash
# Checks that pods of Kubernetes share a GPU as programs do: `baton k8s device-plugin` under a kubelet of its own (kubelet.sh), on the
# simulated driver. Pods of two classes take turns while the kubelet and the plugin are killed and started again, and metrics name them;
# a pod too many, and one without a coordinator, are refused.
#
#     tests/beyond/kubernetes.sh [FOLDER]        with the build in this folder (target/release)
#
# Needs root, and installs what it needs if it is not there. About 2 minutes; the first time 6 more.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/beyond/kubelet.sh
. tests/beyond/kubelet.sh
built=$(realpath "${1:-target/release}")

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
    # All users may open a GPU's device file too.
    chmod 666 "$SIMCUDA_GPU_FILE"
}
serve
shares() { # the programs that share the GPU: classes, pods and containers
    baton status --json | python3 -c '
import json, sys
print(*sorted("{class} {pod} {container} {name}".format(**tenant) for tenant in json.load(sys.stdin)["tenants"]), sep="\n")'
}

say "containerd, and images: one has nothing but a program and its libraries"
containerd_
mkdir -p "$work"/{table/srv,table/lib64,table/lib/x86_64-linux-gnu,driver}
cp "$built/large_table" "$work/table/srv/"
cp -L /lib64/ld-linux-x86-64.so.2 "$work/table/lib64/"
cp -L /lib/x86_64-linux-gnu/{libc,libm,libdl,libpthread,libgcc_s}.so.? "$work/table/lib/x86_64-linux-gnu/"
image baton.test/table:1 "$work/table" /srv/large_table
k8s images ls -q

say "a kubelet, and the plugin"
plugin() { # OPTION...
    touch "$work/began"
    baton k8s device-plugin --driver sim --replicas 4 --plugin-folder "$plugins" "$@" >>"$work/plugin.log" 2>&1 </dev/null &
    plugin_pid=$!
}
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
    # A failed pod does not end well later.
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
# They rest after each round, so that they run as long as the steps below take.
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
