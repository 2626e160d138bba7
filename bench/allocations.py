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

# How many, how large, and how: each by itself, as a handle that is mapped behind the one before, or
# allocated and freed in turn in a stream's order.
CASES = ((1_000_000, 512, "each"), (100_000, 8 << 10, "each"))
GROWTH = ((512, 20 << 20, "handles"),)
STREAMS = tuple(
    (200_000, size, how) for how in ("stream", "default-stream") for size in (512, 4 << 20)
)
HEADER = ["allocations", "bytes", "", "bare s", "Baton s", "ratio", "quartiles", "bare again"]
WHAT = {"pairs": ("allocate and free",), "each": ("allocate", "free")}


def times(argv, environment):
    """Seconds, as the program says: for allocating and for freeing, or for both in turn."""
    ran = subprocess.run(
        argv, capture_output=True, text=True, timeout=600, env={**os.environ, **environment}
    )
    found = re.search(r"(?:allocated ([\d.]+) s, freed|pairs) ([\d.]+) s", ran.stdout)
    if ran.returncode != 0 or not found:
        sys.exit(f"{machine.scrub(' '.join(argv))}: {ran.stdout[-500:]}{ran.stderr[-500:]}")
    return [float(figure) for figure in found.groups() if figure]


def measure(arguments, coordinator, count, size, how):
    """The pairs of one case, each with a second run bare."""
    program = [str(arguments.program), str(count), str(size), *([how] if how != "each" else [])]
    pairs = []
    with tempfile.TemporaryDirectory(prefix="baton-") as folder:
        for _ in range(arguments.pairs):
            bare = times(program, coordinator.driver.bare(folder))
            baton = times(coordinator.run("allocations", program), coordinator.settings)
            again = times(program, coordinator.driver.bare(folder))
            pairs.append({"bare": bare, "baton": baton, "again": again})
    return {"count": count, "bytes": size, "how": how, "pairs": pairs}


def quartiles(result, way, at):
    """Of how much longer one way took than bare."""
    ratios = [pair[way][at] / pair["bare"][at] for pair in result["pairs"]]
    return statistics.quantiles(ratios, n=4)


def rows(results):
    """The table."""
    for result in results:
        for at, what in enumerate(WHAT["pairs" if "stream" in result["how"] else "each"]):
            low, middle, high = quartiles(result, "baton", at)
            pairs, ways = result["pairs"], ("bare", "baton")
            seconds = [statistics.median(pair[way][at] for pair in pairs) for way in ways]
            how = "" if result["how"] == "each" else f" ({result['how']})"
            yield [
                f"{result['count']:,}{how}",
                f"{result['bytes']:,}",
                what,
                *(f"{figure:.3f}" for figure in seconds),
                f"{middle:.2f}",
                f"{low:.2f} to {high:.2f}",
                f"{quartiles(result, 'again', at)[1]:.2f}",
            ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", type=pathlib.Path, required=True, help="folder of the build")
    parser.add_argument("--program", type=pathlib.Path, required=True, help="`allocations`")
    parser.add_argument("--driver", help="`sim`, or a file; the system's if not given")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of a case (5)")
    parser.add_argument("--arena", default="2GiB", help="of the coordinator (2GiB)")
    parser.add_argument("--no-keeper", action="store_true", help="what the keeper costs")
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--growth", action="store_true", help="10 GiB in handles of 20 MiB instead")
    other.add_argument("--streams", action="store_true", help="in streams' order instead")
    parser.add_argument("--out", type=pathlib.Path, help="where the result goes, as JSON")
    arguments = parser.parse_args()
    arguments.program = arguments.program.resolve()
    Install.check(arguments.baton, parser)
    driver = Driver(Install.of(arguments.baton), arguments.driver, memory="24GiB")
    cases = GROWTH if arguments.growth else STREAMS if arguments.streams else CASES
    more = ["--no-keeper"] if arguments.no_keeper else []
    with Coordinator(driver, arguments.arena, "256MiB", more=more) as coordinator:
        results = [measure(arguments, coordinator, *case) for case in cases]
    print(table.text(HEADER, list(rows(results))))
    if arguments.out:
        machine.write_json(arguments.out, {**machine.describe(), "allocations": results})


if __name__ == "__main__":
    main()
