#!/usr/bin/env python3
"""The coordinator is killed again and again: do programs go on, right, and how long do they pause?

    python3 bench/takeover.py --baton target/release --out takeover.json

Trainings and servers share a GPU on which half of their memory fits, so that there are turns,
evictions and preemptions all the time. Meanwhile the coordinator is killed (SIGKILL) at random
moments; its keeper starts the next one. Everything that any program computes is compared with bare
programs that make as many steps: each step's outputs, and all weights at the end (of the longest
run, if there are several). Besides, the memory that is left at the end, and the keeper's
descriptors.

With `--upgrades`, `baton upgrade` has the same version follow instead: a coordinator that has its
context and pinned pool before the other one leaves. With `--before DIR`, each upgrade is from the
version in that folder to this one, with new programs every time.

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
import typing

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


def gpu_memory(serving, patience=10):
    """Bytes of the GPU that are lent, and of the host pool that are used, when programs have ended: the system takes a process
    down in steps, and memory comes back with the last of them.
    """
    end = time.monotonic() + patience
    while True:
        status = serving.status()
        left = {
            "lent_bytes": status["arena"]["lent_bytes"],
            "host_pool_used_bytes": status["host_pool"]["used_bytes"],
        }
        if not any(left.values()) or time.monotonic() > end:
            return left
        time.sleep(0.1)


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


class Run(typing.NamedTuple):
    """Programs under one coordinator, which was followed once or more."""

    # By the program's name: what it told at the end, and its last state.
    told: dict
    ends: dict
    # (begin, end) of each time that it was followed, and of a time without.
    spans: list
    calm: tuple

    def agrees(self, name, want):
        """True if each step of a program computed what a bare one does."""
        digests = self.told[name]["digests"]
        return digests == want["digests"][: len(digests)]

    def steps(self, name):
        """Number of a program's steps."""
        return len(self.told[name]["ms"])


def one_run(work, plan, folder, dice, found, kills):
    """Programs under one coordinator, which is followed so often."""
    arguments = work.arguments
    sizes = found["arena_bytes"], found["host_pool_bytes"]
    with work.serving(plan, folder, *sizes) as (serving, tenants):
        keeper = serving.status()["keeper"]
        found["keeper"] = {"descriptors": descriptors(keeper), "resident_kib": resident_kib(keeper)}
        for name in plan:
            tenants.ask(name, "go")
        began = time.perf_counter()
        time.sleep(arguments.settle)
        calm = began, time.perf_counter()
        spans, killed = [], []
        for _ in range(kills):
            time.sleep(dice.uniform(*arguments.between))
            add_counters(serving, found["counters"])
            if arguments.upgrades:
                *when, answered = upgrade_once(serving, arguments, killed)
                spans.append(tuple(when))
                found["answers_ms"].append(answered)
            else:
                spans.append(kill_once(serving, arguments.timeout, killed))
        if arguments.before:
            # They go on with it for a while, not only until their next turn.
            time.sleep(arguments.settle)
        tenants.all("end")
        told, ends = tenants.all("told"), tenants.all("finish")
        found["keeper_after"] = {
            "descriptors": descriptors(keeper),
            "resident_kib": resident_kib(keeper),
        }
        log = serving.log.read_text(errors="replace")
        if not arguments.upgrades:
            found["phases"] = phases(log, killed)
        found["came_back"] += log.count("goes on with this coordinator")
        add_counters(serving, found["counters"])
        for worker in tenants.workers.values():
            worker.send("quit")
            worker.process.wait(arguments.timeout)
        left = gpu_memory(serving)
        found["left"] = {key: found["left"].get(key, 0) + left[key] for key in left}
    return Run(told, ends, spans, calm)


def measure(work, folder, dice, found):
    """Runs all of it."""
    arguments = work.arguments
    plan = planned(work)
    found |= {"counters": {"switches": 0, "preemptions": 0, "bytes_in": 0}, "came_back": 0, "left": {}}
    found["answers_ms"] = []
    with work.bare({name: argv for name, (argv, _) in plan.items()}, folder) as bare:
        sizes = bare.bytes
        arena = int(max(sum(sizes.values()) // 2, 1.1 * max(sizes.values()) + ROOM))
        found["memory_bytes"], found["arena_bytes"] = sum(sizes.values()), arena
        pool = parse_bytes(arguments.host_pool) if arguments.host_pool else sum(sizes.values()) + 2 * ROOM
        found["host_pool_bytes"] = pool
        if arguments.before:
            # Each of its programs can come from the version before only once.
            before = Work(arguments, Driver(Install.of(arguments.before), arguments.driver))
            runs = [one_run(before, plan, folder, dice, found, 1) for _ in range(arguments.kills)]
        else:
            runs = [one_run(work, plan, folder, dice, found, arguments.kills)]
        longest_run = {name: max(runs, key=lambda run: run.steps(name)) for name in plan}  # noqa: B023
        for name, run in longest_run.items():
            bare.workers[name].send(f"steps {run.steps(name) - WARM_UP}")
        for name in plan:
            bare.workers[name].answer(10 * arguments.timeout)
        want, want_ends = bare.all("told"), bare.all("finish")
    kills = [span for run in runs for span in run.spans]
    found["kills"] = len(kills)
    found["served_again_ms"] = figures([(until - when) * 1e3 for when, until in kills])
    if answers := found.pop("answers_ms"):
        found["after_hand_over_ms"] = figures(answers)
    for name, (_, urgency) in plan.items():
        all_steps = {
            key: [one for run in runs for one in run.told[name][key]] for key in ("ms", "began")
        }
        # Of all runs, the first one that differs, if any does.
        shown_run = min(runs, key=lambda run: (run.agrees(name, want[name]), -run.steps(name)))  # noqa: B023
        told = all_steps | {"digests": shown_run.told[name]["digests"]}
        calms, times = [run.calm for run in runs], beside(all_steps, kills)
        row = compared(name, urgency, told, want[name], calms, times)
        equal = shown_run.agrees(name, want[name]) and longest_run[name].ends[name] == want_ends[name]
        found["rows"].append(row | {"bytes": sizes[name], "equal": equal})


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
    parser.add_argument(
        "--before",
        type=pathlib.Path,
        help="the folder of another version: each upgrade, one for each kill, is from its coordinator, with its programs",
    )
    parser.add_argument("--between", type=float, nargs=2, default=(0.2, 1.2), help="seconds")
    parser.add_argument("--loads", nargs="+", default=LOADED, help="LOAD:CLASS:GAP")
    parser.add_argument("--megabytes", type=int, default=1024, help="of the load `pieces`")
    parser.add_argument("--host-pool", help="if it is to be another size than programs need")
    parser.add_argument("--settle", type=float, default=5, help="seconds before the first kill")
    parser.add_argument("--seed", type=int, default=1, help="of all that is by chance")
    worker_options(parser)
    arguments = parser.parse_args()
    Install.check(arguments.baton, parser)
    if arguments.before:
        Install.check(arguments.before, parser)
        arguments.upgrades = True
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
    found["from_the_version_before"] = bool(arguments.before)
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
