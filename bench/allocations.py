#!/usr/bin/env python3
"""Measures what many allocations cost a program under Baton, as a ratio to running bare.

    python3 bench/allocations.py --baton target/release --program PATH --driver sim

`PATH` is `allocations`, made by `tests/c/build.sh`. Bare and under Baton it runs in turn, each time
a process of its own; the ratio is taken within a pair. The coordinator has no other tenant.
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from common import machine, table
from common.coordinator import Coordinator, Driver, Install

# How many, how large, and whether each is a handle that is mapped behind the one before.
CASES = ((1_000_000, 512, False), (100_000, 8 << 10, False))
GROWTH = (512, 20 << 20, True)
HEADER = ["allocations", "bytes", "", "bare s", "Baton s", "ratio", "quartiles"]


def times(argv, environment):
    """(seconds for allocating, for freeing) as the program says."""
    ran = subprocess.run(
        argv, capture_output=True, text=True, timeout=600, env={**os.environ, **environment}
    )
    found = re.search(r"allocated ([\d.]+) s, freed ([\d.]+) s", ran.stdout)
    if ran.returncode != 0 or not found:
        sys.exit(f"{machine.scrub(' '.join(argv))}: {ran.stdout[-500:]}{ran.stderr[-500:]}")
    return [float(figure) for figure in found.groups()]


def measure(arguments, coordinator, count, size, handles):
    """The pairs of one case."""
    program = [str(arguments.program), str(count), str(size), *(["handles"] if handles else [])]
    pairs = []
    with tempfile.TemporaryDirectory(prefix="baton-") as folder:
        for _ in range(arguments.pairs):
            bare = times(program, coordinator.driver.bare(folder))
            baton = times(coordinator.run("allocations", program), coordinator.settings)
            pairs.append({"bare": bare, "baton": baton})
    return {"count": count, "bytes": size, "handles": handles, "pairs": pairs}


def rows(results):
    """The table."""
    for result in results:
        for at, what in enumerate(("allocate", "free")):
            ratios = [pair["baton"][at] / pair["bare"][at] for pair in result["pairs"]]
            low, middle, high = statistics.quantiles(ratios, n=4)
            pairs, ways = result["pairs"], ("bare", "baton")
            seconds = [statistics.median(pair[way][at] for pair in pairs) for way in ways]
            yield [
                f"{result['count']:,}" + (" handles" if result["handles"] else ""),
                f"{result['bytes']:,}",
                what,
                *(f"{figure:.3f}" for figure in seconds),
                f"{middle:.2f}",
                f"{low:.2f} to {high:.2f}",
            ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", type=pathlib.Path, required=True, help="folder of the build")
    parser.add_argument("--program", type=pathlib.Path, required=True, help="`allocations`")
    parser.add_argument("--driver", help="`sim`, or a file; the system's if not given")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of a case (5)")
    parser.add_argument("--arena", default="2GiB", help="of the coordinator (2GiB)")
    parser.add_argument("--growth", action="store_true", help="10 GiB in handles of 20 MiB instead")
    parser.add_argument("--out", type=pathlib.Path, help="where the result goes, as JSON")
    arguments = parser.parse_args()
    arguments.program = arguments.program.resolve()
    Install.check(arguments.baton, parser)
    driver = Driver(Install.of(arguments.baton), arguments.driver, memory="24GiB")
    cases = [GROWTH] if arguments.growth else CASES
    with Coordinator(driver, arguments.arena, "256MiB") as coordinator:
        results = [measure(arguments, coordinator, *case) for case in cases]
    print(table.text(HEADER, list(rows(results))))
    if arguments.out:
        machine.write_json(arguments.out, {**machine.describe(), "allocations": results})


if __name__ == "__main__":
    main()
