#!/usr/bin/env python3
"""The coordinator is killed again and again: do programs go on, right, and how long do they pause?

    python3 bench/takeover.py --baton target/release --out takeover.json

Trainings and servers share a GPU on which half of their memory fits, so that there are turns,
evictions and preemptions all the time. Meanwhile the coordinator is killed (SIGKILL) at random
moments; its keeper starts the next one. Everything that any program computes is compared with bare
programs that make as many steps: each step's outputs, and all weights at the end. From the start to
the end, the memory of the GPU and of the host, and the keeper's descriptors.

With `--upgrades`, `baton upgrade` has the same version follow instead: a coordinator that has its
context and pinned pool before the other one leaves.

A pause is the time that a step takes longer than the longest without a kill; steps count which a
kill or the wait for the next coordinator fell into. The host pool's size matters, because the next
coordinator pins it.

The exit status is 0 if all programs went on and computed what they do alone.
"""

import argparse
import datetime
import itertools
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from common import machine, programs, table
from common.coordinator import Driver, Install, NoCoordinator, parse_bytes
from common.stats import figures
from common.workers import WorkerFailed
from stopped import (
    LOADED,
    ROOM,
    WARM_UP,
    Work,
    beside,
    cells,
    compared,
    shown,
    worker_options,
)
from stopped_work import LOADS, PIECES

HEADER = ["program", "class", "steps", "P50 ms", "most ms", "with a kill: n", "P99 ms", "most ms", "result"]


def planned(work):
    """{name: (argv, class)} of the loads."""
    plan = {}
    for text in work.arguments.loads:
        load, urgency, gap = text.split(":")
        name, number = load, 1
        while name in plan:
            number += 1
            name = f"{load}-{number}"
        words = ["--megabytes", work.arguments.megabytes, "--piece", 16, "--seed", number]
        more = words if load == PIECES else []
        plan[name] = work.argv(load, "--gap", gap, *more), urgency
    return plan


def gpu_memory(serving):
    """Bytes of the GPU that are lent, and of the host pool that are used."""
    status = serving.status()
    return {
        "lent_bytes": status["arena"]["lent_bytes"],
        "host_pool_used_bytes": status["host_pool"]["used_bytes"],
    }


def descriptors(pid):
    """The number of a process's open descriptors."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_kib(pid):
    """The memory that a process has for itself and others, in KiB."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0])


def add_counters(serving, counters):
    """Adds what a coordinator has counted: the next one begins anew."""
    status = serving.status()
    for key in counters:
        counters[key] += status[key]


def phases(log, killed):
    """For each kill at these times: milliseconds until the process was gone, until the next one
    served, and until all programs were back. Of those kills for which the log has it all.
    """
    found = {"gone_ms": [], "serves_ms": [], "back_ms": []}
    lines = re.findall(r"^\[(\S+) .*\[(B0613|B0601|B0615)\]$", log, re.MULTILINE)
    told = [(datetime.datetime.fromisoformat(when).timestamp(), what) for when, what in lines]
    for start, end in itertools.pairwise([*killed, time.time()]):
        its = {what: when for when, what in told if start <= when < end}
        steps = [start, *(its.get(what) for what in ("B0613", "B0601", "B0615"))]
        if None not in steps:
            for name, (before, after) in zip(found, itertools.pairwise(steps)):
                found[name].append((after - before) * 1e3)
    return {name: figures(times) for name, times in found.items() if times}


def upgrade_once(serving, arguments, killed):
    """Has the same version follow. (when, until when it answered), as `kill_once`"""
    words = [arguments.baton / "baton", "upgrade", "--socket", serving.socket]
    start = time.perf_counter()
    said = subprocess.run([*words, "--timeout", f"{arguments.timeout}s"], capture_output=True, text=True)
    if said.returncode != 0:
        raise NoCoordinator(f"no upgrade: {said.stderr} {serving.said()}")
    killed.append(time.time())
    return start, time.perf_counter(), int(re.search(r"answered (\d+) ms", said.stdout)[1])


def kill_once(serving, timeout, killed):
    """Kills the coordinator, and adds when. (when, until when the next one answered)"""
    pid = serving.status()["pid"]
    start = time.perf_counter()
    killed.append(time.time())
    os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + timeout
    while True:
        status = serving.try_status()
        if status and status["pid"] != pid:
            return start, time.perf_counter()
        if time.monotonic() > end:
            raise NoCoordinator(f"none follows: {serving.said()}")
        time.sleep(0.005)


def measure(work, folder, dice, found):
    """Runs all of it."""
    arguments = work.arguments
    plan = planned(work)
    with work.bare({name: argv for name, (argv, _) in plan.items()}, folder) as bare:
        sizes = list(bare.bytes.values())
        arena = int(max(sum(sizes) // 2, 1.1 * max(sizes) + ROOM))
        found["memory_bytes"], found["arena_bytes"] = sum(sizes), arena
        pool = parse_bytes(arguments.host_pool) if arguments.host_pool else sum(sizes) + 2 * ROOM
        found["host_pool_bytes"] = pool
        with work.serving(plan, folder, arena, pool) as (serving, tenants):
            keeper = serving.status()["keeper"]
            found["keeper"] = {"descriptors": descriptors(keeper), "resident_kib": resident_kib(keeper)}
            for name in plan:
                tenants.ask(name, "go")
            began = time.perf_counter()
            time.sleep(arguments.settle)
            calm = began, time.perf_counter()
            kills, killed, answers = [], [], []
            found["counters"] = counters = {"switches": 0, "preemptions": 0, "bytes_in": 0}
            for _ in range(arguments.kills):
                time.sleep(dice.uniform(*arguments.between))
                add_counters(serving, counters)
                if arguments.upgrades:
                    *when, answered = upgrade_once(serving, arguments, killed)
                    kills.append(tuple(when))
                    answers.append(answered)
                else:
                    kills.append(kill_once(serving, arguments.timeout, killed))
            tenants.all("end")
            told, ends = tenants.all("told"), tenants.all("finish")
            found["keeper_after"] = {
                "descriptors": descriptors(keeper),
                "resident_kib": resident_kib(keeper),
            }
            log = serving.log.read_text(errors="replace")
            if arguments.upgrades:
                found["after_hand_over_ms"] = figures(answers)
            else:
                found["phases"] = phases(log, killed)
            found["came_back"] = log.count("goes on with this coordinator")
            add_counters(serving, counters)
            for worker in tenants.workers.values():
                worker.send("quit")
                worker.process.wait(arguments.timeout)
            found["left"] = gpu_memory(serving)
        found["kills"] = len(kills)
        found["served_again_ms"] = figures([(until - when) * 1e3 for when, until in kills])
        for name in plan:
            bare.workers[name].send(f"steps {len(told[name]['ms']) - WARM_UP}")
        for name in plan:
            bare.workers[name].answer(10 * arguments.timeout)
        want, want_ends = bare.all("told"), bare.all("finish")
    for name, (_, urgency) in plan.items():
        times = beside(told[name], kills)
        row = compared(name, urgency, told[name], want[name], calm, times)
        equal = told[name]["digests"] == want[name]["digests"] and ends[name] == want_ends[name]
        found["rows"].append(row | {"bytes": tenants.bytes[name], "equal": equal})


def rows_of(found):
    """A row for each program."""
    return [
        [*(row[name] for name in ("name", "class", "steps")), *cells(row)] for row in found["rows"]
    ]


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", type=pathlib.Path, required=True, help="the folder of `baton`")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("takeover.json"))
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--upgrades", action="store_true", help="instead of kills")
    parser.add_argument("--between", type=float, nargs=2, default=(0.2, 1.2), help="seconds")
    parser.add_argument("--loads", nargs="+", default=LOADED, help="LOAD:CLASS:GAP")
    parser.add_argument("--megabytes", type=int, default=1024, help="of the load `pieces`")
    parser.add_argument("--host-pool", help="if it is to be another size than programs need")
    parser.add_argument("--settle", type=float, default=5, help="seconds before the first kill")
    parser.add_argument("--seed", type=int, default=1, help="of all that is by chance")
    worker_options(parser)
    arguments = parser.parse_args()
    Install.check(arguments.baton, parser)
    unknown = [one for one in arguments.loads if one.split(":")[0] not in LOADS]
    if unknown:
        parser.error(f"no such loads: {' '.join(unknown)}")
    # More often than it would be started again for a user.
    arguments.serve += " --restarts 100000"
    return arguments


def main():
    """Runs, writes, prints."""
    arguments = parse()
    programs.end_tidily()
    work = Work(arguments, Driver(Install.of(arguments.baton), arguments.driver))
    kind = "upgrades" if arguments.upgrades else "takeover"
    found = {"kind": kind, "machine": machine.describe(), "seed": arguments.seed, "rows": []}
    failure = None
    with tempfile.TemporaryDirectory(prefix="takeover-", ignore_cleanup_errors=True) as folder:
        try:
            measure(work, folder, random.Random(arguments.seed), found)
        except (WorkerFailed, NoCoordinator, OSError) as error:
            failure = found["failure"] = machine.scrub(str(error))
    machine.write_json(arguments.out, found)
    if failure:
        sys.exit(f"takeover.py: {failure}")
    print(table.text(HEADER, rows_of(found)))
    what = "upgrades" if arguments.upgrades else "kills"
    print(f"\n{found['kills']} {what}, {found['came_back']} returns; the next one answered after")
    print(", ".join(f"{key} {shown(value)}" for key, value in found["served_again_ms"].items()))
    of_each = {"after the hand-over, ms": found.get("after_hand_over_ms")} | found.get("phases", {})
    for name, of in ((name, of) for name, of in of_each.items() if of):
        print(name, ", ".join(f"{key} {shown(value)}" for key, value in of.items()))
    print(f"all coordinators: {found['counters']}")
    print(f"keeper {found['keeper']} -> {found['keeper_after']}; left {found['left']}")
    sys.exit(0 if all(row["equal"] for row in found["rows"]) else 1)


if __name__ == "__main__":
    main()
