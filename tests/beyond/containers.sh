#!/usr/bin/env bash
# Checks that containers share a GPU as programs do: with podman and runc, by the Container Device Interface, on the simulated driver.
# Two take turns and one is killed; their coordinator dies again and again, also one that is in a container itself; in user namespaces, as
# other users, with an image's own preloads; and images in which Baton's library cannot be loaded get a sentence.
#
#     tests/beyond/containers.sh [FOLDER]        with the build in this folder (target/release)
#
# Needs root, and installs what it needs if it is not there. About 3 minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
built=$(realpath "${1:-target/release}")
say() { printf '\n== %s\n' "$*"; }
fail() { echo "containers.sh: $*" >&2; exit 1; }

# shellcheck source=packaging/tools.sh
. packaging/tools.sh
need podman:podman runc:runc debootstrap:debootstrap musl-gcc:musl-tools

work=$(mktemp -d)
chmod 711 "$work"
# The file that engines read for this machine, before /etc/cdi.
cdi=/run/cdi/baton-test-$$.json
export BATON_FOLDER=$work/sockets SIMCUDA_GPU_FILE=$work/gpu
end() {
    local status=$?
    ((status == 0)) || tail -n 40 "$work"/*.log || true
    podman_ rm --all --force >/dev/null 2>&1 || true
    [[ -z ${coordinator:-} ]] || kill "$coordinator" 2>/dev/null || true
    wait
    rm -f "$cdi"
    rm -rf "$work"
}
trap end EXIT
podman_() {
    podman --storage-driver vfs --root "$work/storage" --runroot "$work/run" --runtime runc --cgroup-manager cgroupfs "$@"
}
# A machine that is a container itself cannot raise limits.
container() { podman_ run --rm --network none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 "$@"; }

say "Baton as a package lays it out, and a coordinator for users of containers"
mkdir -p "$work"/inst/{bin,lib/baton}
cp "$built/baton" "$work/inst/bin/"
cp "$built"/{libbaton.so,libsimcuda.so,large_table} "$work/inst/lib/baton/"
PATH=$work/inst/bin:$PATH
serve() {
    baton serve --driver sim --arena 64MiB --host-pool 256MiB --quantum 20ms --restarts 1000 --allow-uid 1000,100000-165535 >>"$work/serve.log" 2>&1 </dev/null &
    coordinator=$!
    until baton status >/dev/null 2>&1; do
        kill -0 "$coordinator" || fail "the coordinator does not start"
        sleep 0.1
    done
}
serve
# All users may open a GPU's device file too.
chmod 666 "$SIMCUDA_GPU_FILE"
baton cdi generate --driver sim --output "$cdi"
tenants() { baton status --json | python3 -c 'import json, sys; print(*(t["name"] for t in json.load(sys.stdin)["tenants"]))'; }
lent() { baton status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["arena"]["lent_bytes"])'; }
until_() { # WHAT COMMAND...: waits until it succeeds
    for ((i = 0; i < 1200; i++)); do
        if "${@:2}"; then return; fi
        sleep 0.1
    done
    fail "never: $1"
}

say "a new Debian, and what two programs compute alone"
root=$work/root
debootstrap --variant=minbase bookworm "$root" >/dev/null
install -D "$built/large_table" "$root/srv/large_table"
mkdir "$work/driver"
ln -s "$built/libsimcuda.so" "$work/driver/libcuda.so.1"
alone() { SIMCUDA_GPU_FILE=$work/other LD_LIBRARY_PATH=$work/driver "$built/large_table" --megabytes 40 --rounds "$1" | tail -1; }
short=$(alone 60) long=$(alone 90)
echo "$short, $long"
# The arguments that a container's user writes; they have nothing of Baton's.
debian=(--device baton.dev/gpu=0 --rootfs "$root")
table=(/srv/large_table --megabytes 40 --rounds)

say "two containers that do not fit the GPU together"
container --name one -e BATON_NAME=one "${debian[@]}" "${table[@]}" 60 >"$work/one.log" &
one=$!
container --name two -e BATON_NAME=two "${debian[@]}" "${table[@]}" 90 >"$work/two.log" &
two=$!
both() { [[ $(tenants) == *one*two* || $(tenants) == *two*one* ]]; }
until_ "both are there" both
baton ps
wait "$one" "$two"
tail -qn 1 "$work/one.log" "$work/two.log"
[[ $(tail -1 "$work/one.log") == "$short" && $(tail -1 "$work/two.log") == "$long" ]] || fail "the results differ"
baton status --json | python3 -c '
import json, sys
switches = json.load(sys.stdin)["switches"]
assert switches >= 4, switches
print(switches, "switches")'

say "one of two is killed"
container --name victim -e BATON_NAME=victim "${debian[@]}" "${table[@]}" 100000 >"$work/victim.log" 2>&1 &
victim=$!
container --name two -e BATON_NAME=two "${debian[@]}" "${table[@]}" 90 >"$work/two.log" &
two=$!
both() { [[ $(tenants) == *victim* && $(tenants) == *two* ]]; }
until_ "both are there" both
podman_ kill victim >/dev/null
wait "$victim" && fail "the victim has ended by itself"
without() { [[ $(tenants) != *victim* ]]; }
until_ "it has gone" without
wait "$two"
[[ $(tail -1 "$work/two.log") == "$long" ]] || fail "the other one's result differs"
nothing() { [[ -z $(tenants) && $(lent) == 0 ]]; }
until_ "all memory is back" nothing
echo "the other one computes what it computes alone, and all memory is back"

# Kills the coordinator 20 times. The words before a command run it where the coordinator is.
dies_often() { # WORDS...
    serves() { "$@" baton status --json 2>/dev/null | python3 -c 'import json, sys; print(json.load(sys.stdin)["pid"])' 2>/dev/null; }
    local before
    for ((n = 0; n < 20; n++)); do
        before=$(serves "$@")
        "$@" sh -c "kill -KILL $before"
        is_followed() { local now; now=$(serves "$@") && [[ -n $now && $now != "$before" ]]; }
        until_ "another one follows" is_followed "$@"
        sleep 0.2
    done
}

say "the coordinator of two containers is killed 20 times"
rounds=400
long=$(alone "$rounds")
pids=()
for name in one two; do
    container --name "$name" -e BATON_NAME="$name" "${debian[@]}" "${table[@]}" "$rounds" >"$work/$name.log" &
    pids+=($!)
done
both() { [[ $(tenants) == *one*two* || $(tenants) == *two*one* ]]; }
until_ "both are there" both
dies_often env
both || fail "a program has ended before the last death"
wait "${pids[@]}"
[[ $(tail -qn 1 "$work/one.log" "$work/two.log" | sort -u) == "$long" ]] || fail "the results differ"
until_ "all memory is back" nothing
echo "both compute what they compute alone"

say "a container's coordinator, kept by its first process, is killed 20 times"
rounds=2000
long=$(alone "$rounds")
mkdir -p "$root/usr/lib/baton"
cp "$built/baton" "$root/usr/bin/"
cp "$built"/{libbaton.so,libsimcuda.so} "$root/usr/lib/baton/"
container --name whole --rootfs "$root" env SIMCUDA_GPU_FILE=/run/gpu BATON_FOLDER=/run/baton \
    baton serve --driver sim --arena 64MiB --host-pool 256MiB --quantum 20ms --restarts 1000 >"$work/whole.log" 2>&1 &
in_whole() { podman_ exec whole env SIMCUDA_GPU_FILE=/run/gpu BATON_FOLDER=/run/baton "$@"; }
answers() { in_whole baton status >/dev/null 2>&1; }
until_ "it serves" answers
pids=()
for name in one two; do
    in_whole baton run --driver sim --name "$name" -- "${table[@]}" "$rounds" >"$work/$name.log" 2>&1 &
    pids+=($!)
done
both() { [[ $(in_whole baton status --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["tenants"]))') == 2 ]]; }
until_ "both are there" both
dies_often in_whole
both || fail "a program has ended before the last death"
wait "${pids[@]}"
[[ $(tail -qn 1 "$work/one.log" "$work/two.log" | sort -u) == "$long" ]] || fail "the results differ"
podman_ stop whole >/dev/null
rm -r "$root/usr/bin/baton" "$root/usr/lib/baton"
echo "both compute what they compute alone"

say "users and namespaces of their own"
as() { # WHAT OPTIONS...
    container -e BATON_NAME="$1" "${@:2}" "${debian[@]}" "${table[@]}" 3 | tail -1 | grep -q " ok$" || fail "not $1"
    baton status --json | grep -q "\"$1\"" || fail "$1 has not shared the GPU"
    echo "$1: well"
}
as user-1000 --user 1000:1000
as user-namespace --uidmap 0:100000:65536
as users-in-a-user-namespace --uidmap 0:100000:65536 --user 1000:1000
as read-only-image --read-only
as no-capabilities --cap-drop all --security-opt no-new-privileges
said=$(container --user 1001:1001 "${debian[@]}" "${table[@]}" 3 2>&1) && fail "user 1001 is not allowed"
echo "$said" | grep -- --allow-uid

say "an image that preloads something itself"
cat >"$work/mark.c" <<'END'
#include <unistd.h>
__attribute__((constructor)) static void mark(void) { (void)!write(2, "marked\n", 7); }
END
gcc -shared -fPIC -o "$root/srv/mark.so" "$work/mark.c"
tar -C "$root" -c . | podman_ import -c 'ENV LD_PRELOAD=/srv/mark.so' -c 'ENV BATON_NAME=marked' - marked >/dev/null 2>&1
said=$(container --device baton.dev/gpu=0-run --entrypoint /opt/baton/bin/baton marked run "${table[@]}" 3 2>&1)
grep -q marked <<<"$said" || fail "what the image preloads is lost"
tail -1 <<<"$said" | grep " ok$"
baton status --json | grep -q '"marked"' || fail "it has not shared the GPU"

say "images without glibc get a sentence"
mkdir -p "$work"/{musl/lib,musl/bin,still/bin,bare/srv,bare/lib64,bare/lib/x86_64-linux-gnu}
echo 'int puts(const char *); int main(void) { return puts("hello") < 0; }' >"$work/hello.c"
musl-gcc -o "$work/musl/bin/hello" "$work/hello.c"
cp -L /lib/ld-musl-x86_64.so.1 "$work/musl/lib/"
musl-gcc -static -o "$work/still/bin/hello" "$work/hello.c"
refused() { # FOLDER WORDS DEVICE COMMAND...
    said=$(container --device "$3" --rootfs "$work/$1" "${@:4}" 2>&1) && fail "it has started: $said"
    grep -oE "baton cdi: .*" <<<"$said" || fail "$said"
    grep -q "$2" <<<"$said" || fail "$said"
}
refused musl "uses musl" baton.dev/gpu=0 /bin/hello
refused still "statically linked" baton.dev/gpu=0 /bin/hello
refused musl "has no /lib64" baton.dev/gpu=0-run /opt/baton/bin/baton run /bin/hello
# Where no hook is run, as in Kubernetes without CDI: it starts, without Baton.
# shellcheck disable=SC2016
said=$(container -v "$work/inst/lib/baton/libbaton.so:/opt/baton/lib/libbaton.so:ro" -e 'LD_PRELOAD=/opt/baton/$LIB/libbaton.so' \
    --rootfs "$work/musl" /bin/hello)
[[ $said == hello ]] || fail "$said"

say "an image with nothing but a program and its libraries"
cp "$root/srv/large_table" "$work/bare/srv/"
cp -L "$root/lib64/ld-linux-x86-64.so.2" "$work/bare/lib64/"
cp -L "$root"/lib/x86_64-linux-gnu/{libc,libm,libdl,libpthread,libgcc_s}.so.? "$work/bare/lib/x86_64-linux-gnu/"
container -e BATON_NAME=bare --device baton.dev/gpu=0 --rootfs "$work/bare" "${table[@]}" 3 | tail -1 | grep " ok$"
baton status --json | grep -q '"bare"' || fail "it has not shared the GPU"

say "no coordinator"
baton stop --now
wait "$coordinator" || true
said=$(container "${debian[@]}" "${table[@]}" 3 2>&1) && fail "it has gone without"
tail -1 <<<"$said" | grep "no coordinator answers"
# Containers have the folder, not the socket: they find the next one.
container --name late -e BATON_NAME=late "${debian[@]}" sh -c 'until /srv/large_table --megabytes 40 --rounds 3 2>/dev/null; do sleep 0.1; done' \
    >"$work/late.log" &
late=$!
serve
wait "$late"
tail -1 "$work/late.log" | grep " ok$"

say "all is well"
