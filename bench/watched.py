#!/usr/bin/env python3
"""Measures the cost of viewers to programs: of `baton top`, the page, and the metrics.

    python3 bench/watched.py --baton target/release --out watched.json
    python3 bench/watched.py --baton target/release --driver sim --hooks BINARY --out watched.json

Three parts:

  demo   The programs of `baton demo`, which do not fit the arena together: how long until the last
         has ended. Rounds of three runs in changing order: unwatched, watched, unwatched again.
  hooks  The hook benchmark, whose program `cargo bench -p baton-tests --bench hook_cost --no-run`
         names, beside a coordinator at which all viewers look: nanoseconds added to a call.
  switch The small switching measurement (`switch.py --size small`), on the simulated driver: how
         long an evicted model takes to answer, at the median.

Every figure is a ratio within a round: watched against unwatched, and again against unwatched, by
which one sees what a difference means. The exit status is 0 if all results are right.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from common import machine, programs, table
from common.coordinator import Coordinator, Driver, Install
from common.stats import summary
from common.watching import OPTIONS, Viewers

MIB = 1 << 20
PLAIN, WATCHED, AGAIN = "unwatched", "watched", "unwatched again"
WAYS = [PLAIN, WATCHED, AGAIN]
# Those of `baton demo`: name, class, sixteenths of the arena, rounds on the simulated driver and on
# a GPU, rest in ms.
DEMO = [
    ("serve", "latency", 10, (16, 48), 150),
    ("train", "normal", 12, (24, 600), 20),
    ("sweep", "batch", 12, (24, 2400), 0),
]
ARENAS = {"sim": 96 * MIB, None: 2048 * MIB}
QUANTUM = "20ms"
HERE = pathlib.Path(__file__).resolve().parent
SWITCH = ["--driver", "sim", "--size", "small", "--models", "driver", "--trainer", "driver"]
SWITCH += ["--parts", "latency", "--arena", "96MiB", "--host-pool", "256MiB", "--no-reference"]
PARTS = ["demo", "hooks", "switch"]
HEADER = ["what", "unwatched", "watched / unwatched", "unwatched again / unwatched", "rounds"]


@contextlib.contextmanager
def served(driver, way, seen, *sizes):
    """A coordinator; what each viewer saw of it goes to `seen`, if that is the way.

    Without viewers not even a page is there.
    """
    more = OPTIONS if way == WATCHED else []
    with Coordinator(driver, *sizes, more=more) as coordinator:
        if way != WATCHED:
            yield coordinator
            return
        with Viewers(coordinator) as viewers:
            yield coordinator
            seen.append(dict(viewers.seen))


def demo(driver, way, seen, timeout):
    """(seconds until the last program has ended, their results)."""
    arena = ARENAS[driver.name]
    on_gpu = driver.name is None
    with contextlib.ExitStack() as stack:
        coordinator = stack.enter_context(served(driver, way, seen, arena, 2 * arena, QUANTUM))
        example = coordinator.install.folder / "large_table"
        started = time.monotonic()
        running = []
        for name, urgency, sixteenths, rounds, rest in DEMO:
            argv = [example, "--megabytes", arena // MIB * sixteenths // 16, "--seed", len(name)]
            argv += ["--rounds", rounds[on_gpu], "--rest-ms", rest]
            running.append(
                subprocess.Popen(
                    coordinator.run(name, argv, urgency),
                    stdout=subprocess.PIPE,
                    text=True,
                    env={**os.environ, **coordinator.settings},
                )
            )
            stack.callback(running[-1].kill)
        results = [program.communicate(timeout=timeout)[0].splitlines()[-1] for program in running]
        return time.monotonic() - started, results


def hooks(driver, way, seen, binary):
    """{call: nanoseconds added}."""
    arena = ARENAS[driver.name]
    with tempfile.TemporaryDirectory() as folder, served(driver, way, seen, arena, arena):
        out = pathlib.Path(folder, "hooks.json")
        subprocess.run([binary, "--bench", "--json", out], check=True, stdout=subprocess.DEVNULL)
        figures = json.loads(out.read_text())["figures"]
    return {figure["call"]: figure["added_ns"] for figure in figures}


def switch(driver, way):
    """(milliseconds until an evicted model has answered, the median; whether all is right)."""
    variant = WATCHED if way == WATCHED else "baton"
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "switch.json")
        argv = [sys.executable, HERE / "switch.py", "--baton", driver.install.folder, "--out", out]
        # Its exit status tells of limits that are not asked about here.
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([*argv, *SWITCH, "--variants", variant], check=False, **quiet)
        rows = json.loads(out.read_text())["rows"]
    row = next(row for row in rows if row["variant"] == variant)
    return row["p50_ms"], row["equal"]


def in_turn(rounds, take):
    """Rounds of {way: take(way)}; each round begins with another way."""
    for number in range(rounds):
        turn = number % len(WAYS)
        yield {way: take(way) for way in WAYS[turn:] + WAYS[:turn]}


def compared(rounds, unit):
    """The figures of rounds of {way: number}."""
    return {
        "unit": unit,
        "rounds": rounds,
        PLAIN: summary([one[PLAIN] for one in rounds]),
        "ratios": {
            way: summary([one[way] / one[PLAIN] for one in rounds]) for way in (WATCHED, AGAIN)
        },
    }


def row(what, one):
    """A row of the table."""

    def ratio(way):
        found = one["ratios"][way]
        spread = f"{found['first_quartile']:.3f} to {found['third_quartile']:.3f}"
        return f"{found['median']:.3f} ({spread})"

    plain = f"{one[PLAIN]['median']:.2f} {one['unit']}"
    return [what, plain, ratio(WATCHED), ratio(AGAIN), str(len(one["rounds"]))]


def main():
    """Measures, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--baton", default="target/release", help="the folder with `baton`")
    parser.add_argument("--driver", choices=["sim"], help="`sim` instead of the system's")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--hooks", help="the program of the hook benchmark; without it, no hooks")
    parser.add_argument("--timeout", type=float, default=300, help="for a program, in seconds")
    parser.add_argument("--out", default="watched.json")
    arguments = parser.parse_args()
    Install.check(arguments.baton, parser)
    programs.end_tidily()
    driver = Driver(Install.of(arguments.baton), arguments.driver)
    result = {"kind": "watched", "machine": machine.describe(), "parts": {}, "right": True}
    seen = []

    def take_demo(way):
        seconds, results = demo(driver, way, seen, arguments.timeout)
        right.update(results)
        print(f"demo, {way}: {seconds:.2f} s", flush=True)
        return seconds

    def take_hooks(way):
        added = hooks(driver, way, seen, arguments.hooks)
        print(f"hooks, {way}: {added}", flush=True)
        return added

    def take_switch(way):
        ms, equal = switch(driver, way)
        result["right"] &= equal
        print(f"switch, {way}: {ms:.2f} ms", flush=True)
        return ms

    right = set()
    if "demo" in arguments.parts:
        result["parts"]["demo"] = compared(list(in_turn(arguments.rounds, take_demo)), "s")
        # Each program says the same every time, and that it is right.
        result["right"] = len(right) == len(DEMO) and all(said.endswith(" ok") for said in right)
    if arguments.hooks and "hooks" in arguments.parts:
        rounds = list(in_turn(arguments.rounds, take_hooks))
        for call in rounds[0][PLAIN]:
            each = [{way: added[call] for way, added in one.items()} for one in rounds]
            result["parts"][call] = compared(each, "ns")
    if "switch" in arguments.parts:
        result["parts"]["switch"] = compared(list(in_turn(arguments.rounds, take_switch)), "ms")
    if seen:
        result["seen_bytes"] = {viewer: min(saw[viewer] for saw in seen) for viewer in seen[0]}
    machine.write_json(arguments.out, result)
    rows = [row(what, one) for what, one in result["parts"].items()]
    print(table.text(HEADER, rows))
    sys.exit(0 if result["right"] else 1)


if __name__ == "__main__":
    main()
