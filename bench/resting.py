#!/usr/bin/env python3
"""How soon a program that has the GPU and nothing to do gives way, and what watching it costs.

    python3 bench/resting.py --baton target/release --out resting.json

Two programs, which do not fit the arena together, take turns; each has been idle for `--rest`
seconds when the other asks for the GPU. By class of both: from the other's demand until the gate of
the one that rests is closed, with all its work ended (`decided_ms` and `drain_ms` of the switch). With
`--holder-megabytes` one of the two is so large, and only the times count in which that one rests.

And how often a second the control thread of a program wakes that is alone: at rest, in a loop
without gaps, and in one with a gap of 1 ms after each step.

The exit status is 0 if all programs computed what they do alone.
"""

import argparse
import pathlib
import sys
import tempfile
import time

from common import machine, programs, table
from common.coordinator import Driver, Install
from common.holding import thread_of
from common.stats import figures
from common.workers import WorkerFailed
from stopped import MIB, WARM_UP, Work, bare_digests, first_difference, worker_options

CLASSES = ["latency", "normal", "batch"]
ONE, OTHER = "one", "other"
SEEDS = {ONE: 1, OTHER: 2}
HEADER = ["class", "tries", "P50 ms", "P99 ms", "most ms", "result"]
WAKES_HEADER = ["program", "wakes a second"]


def switches_of(pid, thread):
    """How often a thread has been put on a processor after it had slept."""
    text = pathlib.Path(f"/proc/{pid}/task/{thread}/status").read_text()
    return int(text.split("voluntary_ctxt_switches:")[1].split()[0])


def sizes_of(arguments):
    """The MiB of each program."""
    return {ONE: arguments.holder_megabytes or arguments.megabytes, OTHER: arguments.megabytes}


def arena_of(sizes):
    """The MiB of the arena."""
    # The larger one fits beside the usual headroom of 3%, with what its program has beside its
    # pieces.
    return (max(sizes.values()) + sizes[OTHER] * 3 // 4) * 100 // 97


def yields(work, folder, urgency):
    """One class."""
    arguments = work.arguments
    sizes = sizes_of(arguments)
    rests = [ONE] if arguments.holder_megabytes else list(SEEDS)
    plan = {name: (work.pieces(seed, sizes[name]), urgency) for name, seed in SEEDS.items()}
    found = []
    arena, pool = MIB * arena_of(sizes), MIB * (max(sizes.values()) + 3 * sizes[OTHER])
    with work.serving(plan, folder, arena, pool) as (serving, tenants):
        seen = max((one["n"] for one in serving.try_status()["recent"]), default=0)
        for _ in range(arguments.tries):
            for name in SEEDS:
                # One whose rest does not count may ask at once.
                if name == OTHER or OTHER in rests:
                    time.sleep(arguments.rest)
                tenants.ask(name, "steps 1")
                # A switch may be written down only when its program has answered.
                for one in serving.try_status()["recent"]:
                    if one["n"] > seen and one["from"] in rests:
                        found.append(one["phases"]["decided_ms"] + one["drain_ms"])
                    seen = max(seen, one["n"])
        told = tenants.all("told")
    wrong = [
        name
        for name, seed in SEEDS.items()
        if first_difference(
            told[name]["digests"],
            bare_digests(work, seed, len(told[name]["ms"]) - WARM_UP, folder, sizes[name]),
        )
        is not None
    ]
    return {"holder_megabytes": sizes[ONE], "ms": figures(found) if found else None, "wrong": wrong}


def wakes(work, folder):
    """Of the control thread, a second, by what the program does."""
    arguments = work.arguments
    found = {}
    for name, gap in (("at rest", None), ("busy", 0), ("a gap of 1 ms", 0.001)):
        argv = work.argv("pieces", "--megabytes", arguments.megabytes, "--piece", arguments.piece)
        plan = {ONE: ([*argv, "--gap", str(gap or 0)], "normal")}
        size = arguments.megabytes * MIB
        with work.serving(plan, folder, int(1.25 * size), 2 * size) as (_, tenants):
            if gap is not None:
                tenants.ask(ONE, "go")
            time.sleep(0.5)
            pid = tenants.pids[ONE]
            thread = thread_of(pid, "baton")
            before = switches_of(pid, thread)
            time.sleep(arguments.seconds)
            found[name] = (switches_of(pid, thread) - before) / arguments.seconds
            if gap is not None:
                tenants.ask(ONE, "end")
    return found


def tables(result):
    """Both, as text."""
    rows = [
        [name, *(round(one["ms"][key], 3) for key in ("n", "p50_ms", "p99_ms", "max_ms"))]
        + ["DIFFERS: " + ", ".join(one["wrong"]) if one["wrong"] else "equal"]
        for name, one in result["classes"].items()
        if one["ms"]
    ]
    woken = [[name, f"{count:.1f}"] for name, count in result["wakes"].items()]
    return [table.text(HEADER, rows), table.text(WAKES_HEADER, woken)]


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", type=pathlib.Path, required=True, help="the folder of `baton`")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("resting.json"))
    parser.add_argument("--tries", type=int, default=100, help="of each of the two, a class")
    parser.add_argument("--rest", type=float, default=1, help="seconds before each try")
    parser.add_argument("--seconds", type=float, default=5, help="for which wakes are counted")
    parser.add_argument("--megabytes", type=int, default=1024, help="of each program")
    parser.add_argument("--holder-megabytes", type=int, help="of one of them, if it is to be another size")
    parser.add_argument("--piece", type=int, default=16, help="MiB of a piece of these")
    parser.add_argument("--classes", nargs="+", default=CLASSES, choices=CLASSES)
    worker_options(parser)
    arguments = parser.parse_args()
    Install.check(arguments.baton, parser)
    sizes = sizes_of(arguments)
    if "latency" in arguments.classes and sum(sizes.values()) <= arena_of(sizes):
        # The headroom of a large arena has room for a small program.
        parser.error(
            "these programs fit the arena, and those of class latency then take no turns: "
            "more --megabytes"
        )
    return arguments


def main():
    """Runs, writes, prints."""
    arguments = parse()
    programs.end_tidily()
    work = Work(arguments, Driver(Install.of(arguments.baton), arguments.driver))
    result = {"kind": "resting", "machine": machine.describe(), "classes": {}, "wakes": {}}
    with tempfile.TemporaryDirectory(prefix="resting-", ignore_cleanup_errors=True) as folder:
        try:
            for urgency in arguments.classes:
                result["classes"][urgency] = yields(work, folder, urgency)
            result["wakes"] = wakes(work, folder)
        except WorkerFailed as failure:
            sys.exit(f"resting.py: {machine.scrub(str(failure))}")
    machine.write_json(arguments.out, result)
    print("\n\n".join(tables(result)))
    sys.exit(1 if any(one["wrong"] for one in result["classes"].values()) else 0)


if __name__ == "__main__":
    main()
