#!/usr/bin/env python3
"""Measures what the keeper costs: coordinators with one and without, in turn.

    python3 bench/keeper.py --baton target/release --programs target/release/c-programs --out keeper.json

`--programs` is the folder that `tests/c/build.sh` fills. Each pair starts a coordinator with a
keeper and one without, in random order, and has a program allocate 10 GiB in handles of 20 MiB, and
20 GiB in 10,000 handles of 2 MiB, each of which is at least one frame; and a small program run from
its start to its end. Then `baton bench switch` measures switches: from the request to the first
launch, and to the answer. The keeper's memory and descriptors are read while the frames are there.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

from common import machine, stats, table
from common.coordinator import Coordinator, Driver, Install
from takeover import descriptors, resident_kib

WAYS = ("keeper", "none")
HANDLES = {"10 GiB in 512 handles": (512, 20 << 20), "20 GiB in 10,000 handles": (10_000, 2 << 20)}
SMALL = "a program from start to end"
SMALL_OPTIONS = ("--megabytes", 8, "--small", 2, "--rounds", 1)
SWITCHES = {
    "request to first launch": lambda found: found["switches"]["phases"]["first_launch_ms"],
    "request to answer": lambda found: found["p50_ms"],
}
HEADER = ["what", "with keeper, ms", "without, ms", "ratio", "quartiles"]
DEFAULT = "default"
NO_KEEPER = "BATON_SERVE_NO_KEEPER"


def ran(argv, settings):
    """What a program prints."""
    argv = [str(word) for word in argv]
    environment = {**os.environ, **settings}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, env=environment)
    if done.returncode != 0:
        command = machine.scrub(" ".join(argv))
        sys.exit(f"{command}: {done.stdout[-500:]}{done.stderr[-500:]}")
    return done.stdout


def watched(coordinator, process):
    """The most that the keeper has while a process runs."""
    most = {"descriptors": 0, "resident_kib": 0}
    while process.poll() is None:
        keeper = coordinator.status()["keeper"]
        if keeper:
            now = {"descriptors": descriptors(keeper), "resident_kib": resident_kib(keeper)}
            most = {name: max(most[name], now[name]) for name in most}
        time.sleep(0.02)
    return most


def served(arguments, driver, way):
    """Milliseconds of each case with one coordinator."""
    more = ["--no-keeper"] if way == "none" else []
    found = {}
    with Coordinator(driver, arguments.arena, "256MiB", more=more) as coordinator:
        program = arguments.programs / "allocations"
        for name, (count, size) in arguments.handles.items():
            argv = coordinator.run("handles", [program, count, size, "handles"])
            said = ran(argv, coordinator.settings)
            found[name] = 1000 * float(said.split("allocated ")[1].split()[0])
        began = time.monotonic()
        small = [arguments.programs / "sharing" / "fill_and_check", *SMALL_OPTIONS]
        ran(coordinator.run("small", small), coordinator.settings)
        found[SMALL] = 1000 * (time.monotonic() - began)
        if way == "keeper":
            count, size = list(arguments.handles.values())[-1]
            argv = coordinator.run("watched", [program, count, size, "handles"])
            environment = {**os.environ, **coordinator.settings}
            with subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL) as process:
                found["held"] = watched(coordinator, process)
    return found


def switched(arguments, way):
    """Milliseconds of a switch's parts."""
    settings = {NO_KEEPER: "true"} if way == "none" else {}
    argv = [arguments.baton / "baton", "bench", "switch", "--json", "--repeat", arguments.repeat]
    argv += ["--driver", arguments.driver] if arguments.driver else []
    with tempfile.TemporaryDirectory(prefix="baton-") as folder:
        found = json.loads(ran(argv, {**settings, "XDG_RUNTIME_DIR": folder}))
    default = next(one for one in found["variants"] if one["name"] == DEFAULT)
    return {name: of(default) for name, of in SWITCHES.items()}


def rows(run):
    """The table."""
    for name in [*run["pairs"][0][WAYS[0]]]:
        if name == "held":
            continue
        both = [[pair[way][name] for pair in run["pairs"]] for way in WAYS]
        ratios = [one / other for one, other in zip(*both)]
        low, middle, high = (stats.quantile(ratios, share) for share in (0.25, 0.5, 0.75))
        medians = (f"{stats.median(times):.1f}" for times in both)
        yield [name, *medians, f"{middle:.2f}", f"{low:.2f} to {high:.2f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--baton", type=pathlib.Path, required=True, help="folder of the build")
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="of `tests/c/build.sh`")
    parser.add_argument("--driver", help="`sim`, or a file; the system's if not given")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=8, help="switches of each coordinator")
    parser.add_argument("--arena", default="24GiB")
    parser.add_argument("--frames", type=int, default=10_000, help="2 MiB each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("keeper.json"))
    arguments = parser.parse_args()
    arguments.programs = arguments.programs.resolve()
    arguments.handles = dict(HANDLES)
    if arguments.frames != 10_000:
        name = f"{arguments.frames:,} handles of 2 MiB"
        arguments.handles = {name: (arguments.frames, 2 << 20)}
    Install.check(arguments.baton, parser)
    arguments.baton = arguments.baton.resolve()
    driver = Driver(Install.of(arguments.baton), arguments.driver, memory="32GiB")
    dice, pairs = random.Random(arguments.seed), []
    for _ in range(arguments.pairs):
        pair = {}
        for way in dice.sample(WAYS, len(WAYS)):
            pair[way] = {**served(arguments, driver, way), **switched(arguments, way)}
        pairs.append({way: pair[way] for way in WAYS})
    run = {"kind": "keeper", "machine": machine.describe(), "pairs": pairs}
    machine.write_json(arguments.out, run)
    print(table.text(HEADER, list(rows(run))))
    print("the keeper has at most:", pairs[-1][WAYS[0]]["held"])


if __name__ == "__main__":
    main()
