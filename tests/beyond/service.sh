#!/usr/bin/env bash
# Checks that Baton's units work as they should under systemd: in a new Debian that boots in namespaces of its own, with the simulated
# driver. A coordinator is ready, reads its settings again with a program running, is stopped, killed, upgraded by the package's script and
# started again; of the system, and of a user's own manager. Its keeper is killed too. Its sandbox has a score.
#
#     tests/beyond/service.sh [FOLDER]        with the build in this folder (target/release)
#
# Needs root, and installs debootstrap if it is not there. About 3 minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
built=$(realpath "${1:-target/release}")
say() { printf '\n== %s\n' "$*"; }
fail() { echo "service.sh: $*" >&2; exit 1; }

# shellcheck source=packaging/tools.sh
. packaging/tools.sh
need debootstrap:debootstrap
work=$(mktemp -d)
root=$work/root
machine=
end() {
    local status=$?
    ((status == 0)) || inside journalctl --no-pager -n 40 2>/dev/null || true
    [[ -z $machine ]] || kill -9 "$machine" 2>/dev/null || true
    sleep 1
    rm -rf --one-file-system "$work"
}
trap end EXIT

say "a new Debian"
debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,dbus-user-session,libpam-systemd bookworm "$root" >/dev/null
install -D "$built/baton" "$root/usr/bin/baton"
mkdir -p "$root/usr/lib/baton"
cp "$built"/{libbaton.so,libsimcuda.so,large_table} "$root/usr/lib/baton/"
for unit in baton@.service baton-node@.service; do
    install -D -m 644 "packaging/systemd/$unit" "$root/lib/systemd/system/$unit"
done
install -D -m 644 packaging/systemd/baton.sysusers.conf "$root/usr/lib/sysusers.d/baton.conf"
for unit in baton.service baton-on-demand@.service; do
    install -D -m 644 packaging/systemd/baton.service "$root/usr/lib/systemd/user/$unit"
done
install -m 644 packaging/systemd/baton-on-demand@.socket "$root/usr/lib/systemd/user/"
mkdir "$root/lib/systemd/system/baton@.service.d"
# It dies more than three times a minute here.
printf '[Service]\nExecStart=\nExecStart=/usr/bin/baton serve --restarts 1000\n' >"$root/lib/systemd/system/baton@.service.d/restarts.conf"
settings() { printf 'driver = "sim"\narena = "64MiB"\nhost-pool = "128MiB"\n%s\n' "$1" >"$root/etc/baton/serve.toml"; }
mkdir "$root/etc/baton"
settings 'max-programs = 1'
sed '0,/^# arena.*/s//arena = "64MiB"\nhost-pool = "128MiB"\ndriver = "sim"/' packaging/systemd/node.toml >"$root/etc/baton/node.toml"
chroot "$root" useradd --create-home --home-dir /srv/worker worker
install -D -o 1000 -g 1000 -m 644 "$root/etc/baton/serve.toml" "$root/srv/worker/.config/baton/serve.toml"
chown -R 1000:1000 "$root/srv/worker"

cat >"$work/boot" <<END
set -e
mount --make-rprivate /
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs tmpfs run
mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
mkdir sys/fs/cgroup/systemd
mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
mkdir sys/fs/cgroup/memory
mount -t cgroup -o memory cgroup sys/fs/cgroup/memory || rmdir sys/fs/cgroup/memory
mount -t tmpfs -o mode=755 tmpfs dev
for node in null zero full random urandom tty; do touch dev/\$node; mount --bind /dev/\$node dev/\$node; done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs tmpfs dev/shm
exec chroot . /usr/bin/env -i container=baton PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system
END
setsid unshare --fork --kill-child --pid --mount --uts --ipc --cgroup bash "$work/boot" >/dev/null 2>&1 </dev/null &
machine=$!
disown
first=
until first=$(pgrep -P "$machine" | head -1) && [[ -n $first ]]; do sleep 0.1; done
inside() { nsenter -t "$first" -m -p -u -i -C chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
for ((i = 0; i < 300; i++)); do
    state=$(inside systemctl is-system-running 2>/dev/null || true)
    [[ $state == running || $state == degraded ]] && break
    sleep 0.2
done
[[ $state == running || $state == degraded ]] || fail "systemd does not come up: $state"
inside systemctl --version | head -1

as_worker() { inside runuser -u worker -- env XDG_RUNTIME_DIR=/run/user/1000 HOME=/srv/worker "$@"; }
table() { as_worker baton run --driver sim --name "$1" -- /usr/lib/baton/large_table --megabytes 40 --rounds "$2"; }
main_pid() { inside systemctl show --value -p MainPID baton@worker; }
# Until a command succeeds.
until_true() {
    for ((i = 0; i < 300; i++)); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done
    fail "never: $*"
}
has_tenants() {
    [[ $(as_worker baton status --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["tenants"]))') -ge $1 ]]
}

say "the units"
inside systemd-analyze verify /lib/systemd/system/baton@.service /lib/systemd/system/baton-node@.service 2>&1 | grep -v 'man baton' || true
inside systemd-analyze security --no-pager baton@worker.service | tail -1

say "readiness"
inside systemctl start baton@worker
inside systemctl show -p ActiveState -p SubState -p StatusText baton@worker
inside systemctl is-active --quiet baton@worker || fail "it is not active"

say "SIGHUP with a program running"
table one 300 >"$work/one" & one=$!
until_true has_tenants 1
before=$(main_pid)
settings $'max-programs = 3\nheadroom = "2MiB"'
inside systemctl reload baton@worker
[[ $(main_pid) == "$before" ]] || fail "it was started anew"
table two 3 >"$work/two"
inside journalctl --no-pager -o cat -u baton@worker | grep -E 'from now on|after a restart'
kill -0 "$one" 2>/dev/null || fail "the first program has ended"
cat "$work/two"
wait "$one" || fail "the first program has failed"
cat "$work/one"

serving_pid() { as_worker baton status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["pid"])'; }
table kept 600 >"$work/kept" & kept=$!
until_true has_tenants 1

say "the coordinator is killed 20 times, and started again by its keeper"
for ((n = 0; n < 20; n++)); do
    serving=$(serving_pid)
    inside sh -c "kill -KILL $serving"
    is_another_one() { local now; now=$(serving_pid) && [[ $now != "$serving" ]]; }
    until_true is_another_one
done
[[ $(main_pid) == "$before" ]] || fail "the keeper was started anew"
inside systemctl is-active --quiet baton@worker || fail "it is not active"

say "the keeper is killed, and another one keeps the coordinator"
serving=$(serving_pid)
inside systemctl kill --signal=KILL --kill-whom=main baton@worker
is_another() { [[ $(main_pid) != "$before" && $(main_pid) != 0 ]]; }
until_true is_another
until_true inside systemctl is-active baton@worker
[[ $(serving_pid) == "$serving" ]] || fail "another coordinator serves"
inside systemctl show -p MainPID -p StatusText baton@worker
inside sh -c "kill -KILL $serving"
is_another_one() { local now; now=$(serving_pid) && [[ $now != "$serving" ]]; }
until_true is_another_one
wait "$kept" || fail "the program has failed"
cat "$work/kept"
table three 3

say "stop"
inside systemctl stop baton@worker
inside systemctl show -p ActiveState -p Result baton@worker
! as_worker baton status 2>/dev/null || fail "somebody answers still"

say "a limit on its memory"
if inside mountpoint -q /sys/fs/cgroup/memory; then
    printf 'driver = "sim"\narena = "64MiB"\n' >"$root/etc/baton/serve.toml"
    inside systemctl set-property --runtime baton@worker MemoryMax=120M
    inside systemctl restart baton@worker
    inside systemctl show -p MemoryMax baton@worker
    pool=$(as_worker baton status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["host_pool"]["bytes"] >> 20)')
    # Without a limit it would be twice the arena.
    ((pool > 20 && pool <= 60)) || fail "a host pool of $pool MiB"
    echo "the host pool has $pool MiB"
    table limited 3
    inside systemctl stop baton@worker
    inside systemctl set-property --runtime baton@worker MemoryMax=infinity
else
    echo "not tried: there is no memory controller here"
fi
settings 'max-programs = 1'

say "the package is upgraded, and its coordinator is followed"
cp packaging/debian/postinst "$root/srv/postinst"
inside systemctl start baton@worker
table upgraded 300 >"$work/upgraded" & upgraded=$!
until_true has_tenants 1
before=$(main_pid)
for _ in 1 2 3; do
    serving=$(serving_pid)
    inside /srv/postinst configure 0.0.1
    [[ $(serving_pid) != "$serving" && $(main_pid) == "$before" ]] || fail "none has followed, or not under the same keeper"
done
wait "$upgraded" || fail "the program has failed"
cat "$work/upgraded"
inside systemctl stop baton@worker

say "a user's own manager"
user() { inside systemctl --user -M worker@ "$@"; }
user start baton
user show -p ActiveState -p SubState -p StatusText baton
table four 3
user reload baton
user stop baton

say "when a program comes"
gpu=$(inside journalctl --no-pager -o cat -u baton@worker | grep -o 'GPU-[0-9a-f-]*' | sort -u)
user start "baton-on-demand@$gpu.socket"
for name in five six; do
    ! user is-active --quiet "baton-on-demand@$gpu.service" || fail "it runs before anybody has come"
    table "$name" 3
    user is-active "baton-on-demand@$gpu.service"
    user stop "baton-on-demand@$gpu.service"
done
say "a coordinator for all users"
mkdir "$root/lib/systemd/system/baton-node@.service.d"
# A simulated GPU is a file; all users may open a GPU's device files.
printf '[Service]\nEnvironment=SIMCUDA_GPU_FILE=/run/baton/gpu\nExecStartPost=/bin/chmod 666 /run/baton/gpu\n' \
    >"$root/lib/systemd/system/baton-node@.service.d/simulated.conf"
inside systemctl start baton-node@0
inside systemctl show -p ActiveState -p StatusText baton-node@0
inside systemd-analyze security --no-pager baton-node@0.service | tail -1
shared() { as_worker env BATON_FOLDER=/run/baton SIMCUDA_GPU_FILE=/run/baton/gpu "$@"; }
shared baton run --driver sim --name seven -- /usr/lib/baton/large_table --megabytes 40 --rounds 3
! shared baton status 2>/dev/null || fail "a guest may not ask"
inside env BATON_FOLDER=/run/baton baton status --json | grep -q '"seven"' || fail "it has not shared the GPU"
inside /srv/postinst configure 0.0.1 | grep -E 'version .* goes on' || fail "none has followed"
inside systemctl stop baton-node@0
inside test -d /run/baton || fail "the folder has gone"

say "a coordinator for a group"
inside getent group baton || fail "systemd-sysusers has made no group when the machine started"
sed -i 's/^allow-uid/# &/; s/^# allow-group/allow-group/' "$root/etc/baton/node.toml"
inside systemctl start baton-node@0
inside sh -c "stat -c '%A %G' /run/baton/*.sock" | grep -x 'srw-rw---- baton' || fail "the socket is not the group's"
! shared baton run --driver sim --name eight -- /usr/lib/baton/large_table --megabytes 40 --rounds 3 2>/dev/null ||
    fail "one who is no member is let in"
inside usermod -aG baton worker
inside setpriv --reuid=worker --regid=worker --init-groups env BATON_FOLDER=/run/baton SIMCUDA_GPU_FILE=/run/baton/gpu \
    baton run --driver sim --name nine -- /usr/lib/baton/large_table --megabytes 40 --rounds 3
inside systemctl stop baton-node@0
say "all is well"
