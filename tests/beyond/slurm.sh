#!/usr/bin/env bash
# Checks that Slurm's jobs share a GPU through Baton: under a real slurmctld, slurmd and slurmdbd, with packaging/slurm's files and the
# simulated driver. Jobs with shards, and jobs with `gpu`, take turns and compute what they compute alone; QOS and partition choose
# their classes; one is cancelled, one suspended, one put back into the queue.
#
#     tests/beyond/slurm.sh [FOLDER]        with the build in this folder (target/release)
#
# Needs root, and installs Slurm, munge and MariaDB if they are not there. They run in namespaces of their own, on a layer above this
# machine's files that is gone afterwards. About 2 minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
built=$(realpath "${1:-target/release}")
say() { printf '\n== %s\n' "$*"; }
fail() { echo "slurm.sh: $*" >&2; exit 1; }

# shellcheck source=packaging/tools.sh
. packaging/tools.sh
PATH=$PATH:/usr/sbin
export DEBIAN_FRONTEND=noninteractive
need slurmctld:slurmctld slurmd:slurmd sbatch:slurm-client slurmdbd:slurmdbd munged:munge ip:iproute2 \
    mariadbd:mariadb-server-core my_print_defaults:mariadb-client-core

work=$(mktemp -d)
root=$work/root
machine=
first=
end() {
    local status=$?
    if ((status != 0)); then
        cat "$work/boot.log" || true
        inside sh -c 'tail -n 15 /var/log/slurm/*.log; squeue; tail -n 5 /srv/ada/*.out' 2>&1 || true
        baton status 2>&1 || true
        tail -n 15 "$work/coordinator" || true
    fi
    [[ -z $machine ]] || kill -9 "$machine" 2>/dev/null || true
    sleep 1
    rm -rf --one-file-system "$work"
}
trap end EXIT

say "a machine of its own"
cat >"$work/boot" <<END
set -e
mount --make-rprivate /
mkdir "$work/layer" "$root"
mount -t tmpfs -o mode=755 tmpfs "$work/layer"
mkdir "$work/layer/above" "$work/layer/work"
mount -t overlay -o "lowerdir=/,upperdir=$work/layer/above,workdir=$work/layer/work" overlay "$root"
install -D "$built/baton" "$root/usr/bin/baton"
mkdir -p "$root/usr/lib/baton/bare" "$root/etc/baton/slurm"
install -m 644 "$built"/{libbaton.so,libsimcuda.so} "$root/usr/lib/baton/"
install "$built/large_table" "$root/usr/lib/baton/"
ln -s ../libsimcuda.so "$root/usr/lib/baton/bare/libcuda.so.1"
install packaging/slurm/task-prolog "$root/etc/baton/slurm/"
cp packaging/slurm/slurm.conf.part packaging/slurm/gres.conf "$root/etc/slurm/"
cd "$root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs dev
# slurmd wants a character device as the GPU. Nobody opens it.
for node in null zero full random urandom tty; do touch dev/\$node; mount --bind /dev/\$node dev/\$node; done
touch dev/nvidia0
mount --bind /dev/null dev/nvidia0
mkdir -m 1777 dev/shm
ln -s /proc/self/fd dev/fd
hostname node
# The resolver finds no names on a machine that has only a loopback address.
ip link set lo up
ip address add 10.0.0.1/32 dev lo
printf '127.0.0.1 localhost\n10.0.0.1 node\n' >etc/hosts
chroot . useradd --create-home --home-dir /srv/ada --uid 1999 ada
touch run/ready
sleep infinity & wait
END
setsid unshare --fork --kill-child --pid --mount --net --uts --ipc bash "$work/boot" >"$work/boot.log" 2>&1 </dev/null &
machine=$!
disown
inside() { nsenter -t "$first" -m -p -u -i -n chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
# Until a command succeeds.
until_true() {
    local limit=$((SECONDS + 120))
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < limit)) || fail "never: $*"
        sleep 0.2
    done
}
until first=$(pgrep -P "$machine" | head -1) && inside test -e /run/ready 2>/dev/null; do
    kill -0 "$machine" 2>/dev/null || fail "it does not come up"
    sleep 0.1
done

say "munge, slurmdbd, slurmctld, slurmd"
cat >"$work/settings" <<'END'
cat >>/etc/slurm/slurm.conf.part <<'PART'
ClusterName=test
SlurmctldHost=node
SlurmUser=slurm
StateSaveLocation=/run/slurm/state
SlurmdSpoolDir=/run/slurm/spool
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStorageEnforce=qos
SelectTypeParameters=CR_CPU
# Without control groups, and with more processors than there are.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
PART
mv /etc/slurm/slurm.conf.part /etc/slurm/slurm.conf
echo CgroupPlugin=cgroup/v1 >/etc/slurm/cgroup.conf
cat >/etc/slurm/slurmdbd.conf <<'PART'
AuthType=auth/munge
DbdHost=localhost
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurm/slurmdbd.pid
PART
chown slurm: /etc/slurm/slurmdbd.conf
chmod 600 /etc/slurm/slurmdbd.conf
install -d -o slurm /run/slurm /run/slurm/state /var/log/slurm
install -d /run/slurm/spool /run/mysqld /run/baton
install -d -o munge /run/munge /var/log/munge /var/lib/munge
install -d -o munge -m 700 /etc/munge
head -c 1024 /dev/urandom >/etc/munge/munge.key
chown munge: /etc/munge/munge.key
chmod 400 /etc/munge/munge.key
END
inside bash -ec "$(cat "$work/settings")"
inside runuser -u munge munged
until_true inside sh -c 'munge -n | unmunge'
inside mariadb-install-db --no-defaults --user=root --datadir=/run/db --auth-root-authentication-method=normal >"$work/db" 2>&1 ||
    { cat "$work/db"; fail "no database"; }
inside setsid mariadbd --no-defaults --user=root --datadir=/run/db --socket=/run/mysqld/mysqld.sock >>"$work/db" 2>&1 </dev/null &
until_true inside test -S /run/mysqld/mysqld.sock
inside slurmdbd
until_true inside timeout 20 sacctmgr -i add cluster test
# Before slurmctld: 22.05's may crash when it learns of a new QOS.
inside sacctmgr -i add qos latency,batch >/dev/null
inside sacctmgr -i add account science >/dev/null
inside sacctmgr -i add user ada account=science qos=normal,latency,batch defaultqos=normal >/dev/null
idle() { [[ $(inside sinfo -h -p gpu -o %T) == idle ]]; }
slurm_up() {
    inside slurmctld
    until_true inside timeout 20 scontrol -Q ping
    until_true inside timeout 20 sinfo
    inside slurmd
    until_true idle
}
slurm_up
inside slurmd -V
inside sinfo -o '%N %T %G'

say "a coordinator of root's"
gpu=(BATON_FOLDER=/run/baton SIMCUDA_GPU_FILE=/run/baton/simulated-gpu)
inside env "${gpu[@]}" setsid baton serve --driver sim --arena 64MiB --host-pool 256MiB --allow-uid 1000-1999 --guest-class latency \
    </dev/null \
    >"$work/coordinator" 2>&1 &
baton() { inside env "${gpu[@]}" baton "$@"; }
until_true baton status
inside chmod 666 /run/baton/simulated-gpu
cat "$work/coordinator"

# One of ada's commands. Its settings for the simulated driver come from where she submits; a real one needs neither.
as_ada() { inside runuser -u ada -- env -C /srv/ada BATON_DRIVER=/usr/lib/baton/libsimcuda.so "${gpu[1]}" "$@"; }
table=/usr/lib/baton/large_table
# A job that works when there is a file `go`; so that several of them run at the same time.
as_ada sh -c 'cat >job' <<END
#!/bin/sh
touch "here.\$SLURM_JOB_ID"
until [ -e go ]; do sleep 0.1; done
exec $table --megabytes 40 "\$@"
END
# submit NAME OPTIONS… -- WORDS…: prints the job's number.
submit() {
    local name=$1 options=()
    shift
    while [[ $1 != -- ]]; do options+=("$1"); shift; done
    shift
    as_ada sbatch --parsable -J "$name" -o "$name.out" "${options[@]}" job "$@"
}
# Lets jobs begin to work, together.
go() {
    for job; do until_true inside test -e "/srv/ada/here.$job"; done
    inside squeue -o '%.5i %.9P %.9q %.8j %.5u %.2t %b'
    inside touch /srv/ada/go
}
alone() { inside runuser -u ada -- env LD_LIBRARY_PATH=/usr/lib/baton/bare $table --megabytes 40 "$@" | grep ^result; }
declare -A known
state() { inside squeue -h -o %T -j "$1" 2>/dev/null || true; }
ended() { [[ -z $(state "$1") ]]; }
# Checks that a job ends with the result that it has alone.
same() {
    local job=$1 name=$2 result
    shift 2
    until_true ended "$job"
    result=$(inside cat "/srv/ada/$name.out" | grep ^result) || fail "no result of $name"
    [[ ${known[$*]:=$(alone "$@")} == "$result" ]] || fail "$name: $result, and alone ${known[$*]}"
    echo "$name: $result"
}
count() { baton status --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["tenants"]))'; }
tenants() { [[ $(count) == "$1" ]]; }
# True if the programs of these jobs have each been on the GPU several times.
taking_turns() {
    baton status --json | python3 -c '
import json, sys
switches = {tenant["name"]: tenant["switches"] for tenant in json.load(sys.stdin)["tenants"]}
sys.exit(not all(switches.get(name, 0) >= 4 for name in sys.argv[1:]))' "$@"
}
class_of() {
    baton status --json | python3 -c '
import json, sys
print(*(tenant["class"] for tenant in json.load(sys.stdin)["tenants"] if tenant["name"] == sys.argv[1]))' "$1"
}
are_classes() { while (($#)); do [[ $(class_of "$1") == "$2" ]] || fail "$1 is $(class_of "$1")"; shift 2; done; }

say "two jobs with shards, classes by partition and QOS"
train=$(submit train --gres=shard -p batch -- --rounds 250)
serve=$(submit serve --gres=shard:1 -q latency -- --rounds 50 --rest-ms 150)
go "$train" "$serve"
until_true taking_turns "$train.batch.0-train" "$serve.batch.0-serve"
baton status
are_classes "$train.batch.0-train" batch "$serve.batch.0-serve" latency
same "$train" train --rounds 250
same "$serve" serve --rounds 50

say "one of two is cancelled"
inside rm /srv/ada/go
stays=$(submit stays --gres=shard -- --rounds 300)
goes=$(submit goes --gres=shard -- --rounds 1000000)
go "$stays" "$goes"
until_true taking_turns "$stays.batch.0-stays" "$goes.batch.0-goes"
baton status
as_ada scancel "$goes"
until_true tenants 1
has_come_back() { baton status | grep 'lent 42 MiB, free 22 MiB'; }
until_true has_come_back
baton status
are_classes "$stays.batch.0-stays" normal
same "$stays" stays --rounds 300
until_true tenants 0

say "one is put back into the queue"
again=$(submit again --gres=shard --requeue -- --rounds 250)
until_true tenants 1
inside scontrol requeue "$again"
until_true tenants 0
inside scontrol update "job=$again" StartTime=now
until_true tenants 1
same "$again" again --rounds 250

say "one is suspended"
inside rm /srv/ada/go
stops=$(submit stops --gres=shard -- --rounds 250)
works=$(submit works --gres=shard -- --rounds 250)
go "$stops" "$works"
until_true taking_turns "$stops.batch.0-stops" "$works.batch.0-works"
baton suspend "$stops.batch.0-stops"
inside scontrol suspend "$stops"
same "$works" works --rounds 250
[[ $(state "$stops") == SUSPENDED ]] || fail "stops is $(state "$stops")"
inside scontrol resume "$stops"
baton resume "$stops.batch.0-stops"
same "$stops" stops --rounds 250

say "what tasks get"
seen() { inside grep -E '^(LD_PRELOAD|BATON_(NAME|CLASS|FOLDER|REQUIRE))=' "/srv/ada/$1" | sort || true; }
inside runuser -u ada -- env -C /srv/ada sbatch -W -Q -o none.out --wrap 'env; srun env'
[[ -z $(seen none.out) ]] || fail "a job without a GPU: $(seen none.out)"
echo "without a GPU: nothing"
inside runuser -u ada -- env -C /srv/ada LD_PRELOAD=libm.so.6 BATON_CLASS=latency \
    sbatch -W -Q -J 'a \name' -o both.out --gres=shard -q batch --wrap 'srun env'
seen both.out
inside grep -qx 'LD_PRELOAD=/usr/lib/baton/libbaton.so:libm.so.6' /srv/ada/both.out || fail "LD_PRELOAD"
inside grep -qx 'BATON_NAME=[0-9]*\.0\.0-a \\name' /srv/ada/both.out || fail "BATON_NAME"
inside grep -qx 'BATON_CLASS=batch' /srv/ada/both.out || fail "the QOS does not go first"

say "--gres=gpu: the whole GPU"
inside rm /srv/ada/go
has=$(submit has --gres=gpu -- --rounds 20)
waits=$(submit waits --gres=shard -- --rounds 20)
until_true inside test -e "/srv/ada/here.$has"
is_short_of() { [[ $(inside squeue -h -o %r -j "$1") == Resources ]]; }
until_true is_short_of "$waits"
inside squeue -o '%.5i %.8j %.2t %.10r %b'
inside touch /srv/ada/go
same "$has" has --rounds 20
same "$waits" waits --rounds 20
as_ada srun --gres=gpu $table --megabytes 40 --rounds 20

say "--gres=gpu: in turns"
inside pkill -x slurmd
inside pkill -x slurmctld
until_true inside sh -c '! pgrep -x "slurmd|slurmctld"'
for i in 0 1 2 3; do inside ln -s /dev/nvidia0 "/etc/baton/slurm/gpu$i"; done
inside sed -i -e '/^Name=/d' -e 's/^#Name=/Name=/' /etc/slurm/gres.conf
inside sed -i 's/Gres=gpu:1,/Gres=gpu:4,/' /etc/slurm/slurm.conf
slurm_up
inside grep ^Name= /etc/slurm/gres.conf
inside rm /srv/ada/go
one=$(submit one --gres=gpu -- --rounds 150)
two=$(submit two --gpus=1 -- --rounds 150)
three=$(submit three --gres=shard -- --rounds 150)
go "$one" "$two" "$three"
until_true taking_turns "$one.batch.0-one" "$two.batch.0-two" "$three.batch.0-three"
baton status
for name in one two three; do same "${!name}" "$name" --rounds 150; done
as_ada srun --gpus=1 $table --megabytes 40 --rounds 20

say "without a coordinator"
baton stop --now
status=0
as_ada sbatch -W -Q -o lost.out --gres=gpu job --rounds 1 || status=$?
inside cat /srv/ada/lost.out
((status == 125)) || fail "exit code $status"
say "all is well"
