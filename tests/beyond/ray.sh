#!/usr/bin/env bash
# Checks that Baton works under Ray as docs/ray.md says: examples/ray/models.py with a real Ray and the simulated driver. 20 models in 20
# actors share a GPU that has room for four; one of them is killed, and Ray starts it again. Then fewer, placed by the custom resource alone.
#
#     tests/beyond/ray.sh [FOLDER]        with the build in this folder (target/release), or the package unpacked there (/usr)
#
# Installs Ray into a folder of its own if python3 has none. Needs 3 GB of memory. About 1 minute.
set -euo pipefail
cd "$(dirname "$0")/../.."
built=$(realpath "${1:-target/release}")
commands=$built libraries=$built
[[ -x $built/baton ]] || { commands=$built/bin; libraries=$built/lib/baton; }
say() { printf '\n== %s\n' "$*"; }
fail() { echo "ray.sh: $*" >&2; exit 1; }

work=$(mktemp -d)
coordinator='' ray=''
end() {
    local status=$?
    ((status == 0)) || tail -n 30 "$work"/*.log || true
    # Ray's processes are all of one session, which setsid began.
    if [[ -n $ray ]]; then
        kill "$ray" 2>/dev/null || true
        for ((i = 0; i < 100; i++)); do pgrep -s "$ray" >/dev/null || break; sleep 0.2; done
        pkill -KILL -s "$ray" || true
    fi
    [[ -z $coordinator ]] || kill "$coordinator" 2>/dev/null || true
    wait
    rm -rf "$work"
}
trap end EXIT
trap 'exit 1' INT TERM
# Until a command succeeds.
until_true() {
    for ((i = 0; i < 600; i++)); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done
    fail "never: $*"
}

say "Ray"
python=$(python3 -c 'import sys; print(sys.executable)')
if ! "$python" -c 'import ray' 2>/dev/null; then
    "$python" -m venv "$work/venv"
    python=$work/venv/bin/python3
    "$python" -m pip install -q ray
fi
"$python" -c 'import ray; print(ray.__version__)'

say "a coordinator and a node"
mkdir "$work/driver"
ln -s "$libraries/libsimcuda.so" "$work/driver/libcuda.so.1"
export PATH=$commands:$PATH LD_LIBRARY_PATH=$work/driver SIMCUDA_MEMORY=128MiB SIMCUDA_GPU_FILE=$work/gpu
export XDG_RUNTIME_DIR=$work RAY_TMPDIR=$work RAY_USAGE_STATS_ENABLED=0 RAY_COLOR_PREFIX=0
unset BATON_SOCKET BATON_FOLDER RAY_ADDRESS
setsid baton serve --driver sim --arena 64MiB --host-pool 320MiB </dev/null >"$work/coordinator.log" 2>&1 & coordinator=$!
until_true baton status
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
setsid "$python" -m ray.scripts.scripts start --head --block --port "$port" --num-cpus 2 --num-gpus 1 --resources '{"baton": 20}' \
    --include-dashboard false --object-store-memory 100000000 </dev/null >"$work/ray.log" 2>&1 & ray=$!
until_true grep 'Ray runtime started' "$work/ray.log"
grep serving "$work/coordinator.log"

models() {
    timeout 800 "$python" examples/ray/models.py --library "$libraries/libbaton.so" "$@" 2>>"$work/models.log" |
        grep --line-buffered -v '^(raylet)' | tee "$work/models"
}
said() { grep -Eq "$1" "$work/models" || fail "the example does not say: $1"; }
nobody() { [[ $(baton status) == *'no programs'* ]]; }

say "20 models of 14 MiB on 64 MiB, and one is killed"
models --kill 7
said '^20 models with 280 MiB share 64 MiB'
said '^model-07 killed: 20 models with 280 MiB before'
said '^model-07 runs again'
said 'all answers are as alone$'
until_true nobody
grep 'model-07' "$work/coordinator.log"

say "8 models that Ray gives no GPU"
models --gpu 0 --count 8 --requests 80
said '^8 models with 112 MiB share 64 MiB'
said 'all answers are as alone$'

say "afterwards"
until_true nobody
left=$(baton status)
echo "$left"
[[ $left == *'lent 0 B'* && $left == *'used 0 B'* ]] || fail "there is memory left"
say "all is well"
