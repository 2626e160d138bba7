#!/usr/bin/env python3
"""Checks that programs of many kinds compute the same while they are evicted again and again.

    python3 bench/zoo.py --bare --budget 400
    python3 bench/zoo.py --baton target/release --bare-from zoo_bare.json --budget 500

Each program of the zoo (`loads/zoo`) runs bare twice: the first time for `--seconds`, which fixes
the number of steps, the second time for as many steps. Then it runs as a tenant of a coordinator,
with others beside it, and is evicted at random times, about every 50 ms. Its outputs have to
be those of the bare runs bit for bit if these are equal; otherwise they have to be as close as
these are.

The bare runs go to a file too (`--bare-out`). `--bare` stops there, and `--bare-from` takes them
from there. All ends at `--budget` seconds; what is under way then is not counted. `--missing-in
FILE` leaves out what FILE has a row of, and `python3 bench/report.py --add zoo.json` takes rows
into bench/results/zoo.json, where the newest of each program counts.

The exit status is 0 if nothing crashed, hung or differed.
"""

import argparse
import concurrent.futures
import contextlib
import fnmatch
import json
import os
import pathlib
import sys
import tempfile
import threading
import time

from common import current, machine, programs, table, zooing
from common.coordinator import Coordinator, Driver, Install, NoCoordinator
from common.evictor import Evictor
from loads.zoo import ZOO

WORKER = pathlib.Path(__file__).resolve().parent / "zoo_worker.py"
WATCHED = ("unmanaged_bytes", "peak_bytes", "switches")
HEADER = ["program", "framework", "verdict", "bare s", "Baton s", "evicted", "switches", "MB in"]


class Budget:
    """How much time is left."""

    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        """Seconds, none if it is over."""
        return max(0.0, self.end - time.monotonic())


class Watch:
    """Looks at `baton status` now and then, for what it says of a tenant only while it is there."""

    def __init__(self, coordinator, every=0.3):
        self.coordinator, self.every, self.over = coordinator, every, threading.Event()
        self.most, self.bytes_in, self.last = {}, {}, 0
        self.thread = threading.Thread(target=self.run)

    def run(self):
        """Until it is over."""
        while not self.over.wait(self.every):
            self.look()

    def look(self):
        """Takes in one status."""
        status = self.coordinator.try_status()
        if status is None:
            return
        for tenant in status["tenants"]:
            most = self.most.setdefault(tenant["name"], dict.fromkeys(WATCHED, 0))
            for figure in WATCHED:
                most[figure] = max(most[figure], tenant[figure])
        for record in status["recent"]:
            if record["n"] > self.last:
                self.last = record["n"]
                name = record["to"]
                self.bytes_in[name] = self.bytes_in.get(name, 0) + record["bytes_in"]

    def of(self, name):
        """The observations of a tenant."""
        most = self.most.get(name) or dict.fromkeys(WATCHED, 0)
        return {**most, "bytes_in": self.bytes_in.get(name, 0)}

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def one_run(argv, settings, timeout, budget):
    """A run as `common/zooing.py` has it; None if the budget ended it."""
    if budget.left() < 1:
        return None
    outcome = programs.run(argv, settings, min(timeout, budget.left()))
    if outcome.status == "timeout" and not budget.left():
        return None
    run = {"status": outcome.status, "wall_seconds": round(outcome.seconds, 2), "why": ""}
    if outcome.status != "ok":
        return run | {"why": machine.scrub(outcome.reason)[-programs.TAIL :]}
    try:
        said = json.loads(outcome.stdout.strip().splitlines()[-1])
        return run | {"digest": said["digest"], **said}
    except (IndexError, ValueError, KeyError, TypeError) as error:
        return run | {"status": "failed", "why": f"it printed no result: {error!r}"}


def worker(name, device, *amount):
    """The command line of a program."""
    return [sys.executable, str(WORKER), name, "--device", device, *map(str, amount)]


def bare_runs(name, arguments, settings, budget):
    """Two bare runs, the second as long as the first; one if that fails, None if time is up."""
    argv = worker(name, arguments.device, "--seconds", arguments.seconds)
    first = one_run(argv, settings, arguments.timeout, budget)
    if first is None or first["status"] != "ok":
        return first and [first]
    argv = worker(name, arguments.device, "--steps", first["steps"])
    second = one_run(argv, settings, arguments.timeout, budget)
    return second and [first, second]


def evicted_run(name, bare, arguments, serving, budget):
    """The row of a program that runs as a tenant and is evicted meanwhile; None if time is up."""
    coordinator, watch = serving
    argv = worker(name, arguments.device, "--steps", bare[0]["steps"])
    argv = coordinator.run(name, argv)
    with Evictor(coordinator, name, arguments.every / 1e3, arguments.seed) as evictor:
        baton = one_run(argv, coordinator.settings, arguments.timeout, budget)
    return baton and row_of(name, bare, baton, evictor, watch.of(name))


def row_of(name, bare, baton=None, evictor=None, seen=None):
    """The result file's record of a program."""
    entry = ZOO[name]
    tolerance = entry.tolerance[0] if entry.tolerance else None
    evictions = evictor.done if evictor else 0
    verdict, why = zooing.verdict(bare, baton, evictions, tolerance)
    row = {"name": name, "framework": entry.framework, "verdict": verdict, "why": why}
    row["limit"] = entry.limit
    if zooing.trouble(bare):
        return row
    row |= {"bare_equal": zooing.repeats(bare), "steps": bare[0]["steps"]}
    row["bare_distance"] = zooing.distance(*bare)
    row["bare_seconds"] = [run["seconds"] for run in bare]
    row["baton_seconds"] = baton.get("seconds")
    row["wall_seconds"] = [run["wall_seconds"] for run in (*bare, baton)]
    row |= {"evictions": evictions, "refused": dict(evictor.refused), **seen}
    row["longest_eviction_seconds"] = round(evictor.longest, 3)
    return row


def chosen(arguments):
    """Names of the programs to run, in the zoo's order."""
    patterns = arguments.only or ["*"]
    names = [
        name
        for name, entry in ZOO.items()
        if any(fnmatch.fnmatch(name, p) or entry.framework == p for p in patterns)
    ]
    if arguments.start:
        names = names[names.index(arguments.start) :]
    have = {row["name"] for run in arguments.missing_in for row in run["rows"]}
    return [name for name in names if name not in have]


def all_of(work, names, at_once):
    """{name: work(name)} of those that came to something, as they end."""
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        futures = {pool.submit(work, name): name for name in names}
        for future in concurrent.futures.as_completed(futures):
            if (found := future.result()) is not None:
                yield futures[future], found


def run_bare(names, arguments, driver, budget):
    """{name: bare runs}: those of the file, and new ones, which go there."""
    kept = arguments.bare_from or {}
    bare = {name: kept[name] for name in names if name in kept}
    with tempfile.TemporaryDirectory(prefix="baton-") as folder:
        settings = driver.bare(folder) if driver else {}

        def work(name):
            return bare_runs(name, arguments, settings, budget)

        todo = [name for name in names if name not in bare]
        for name, runs in all_of(work, todo, arguments.jobs):
            bare[name] = runs
            said = zooing.trouble(runs)
            if said is None:
                said = ("repeats itself" if zooing.repeats(runs) else "differs from itself",)
            print(
                f"{name}: {said[0]}", *(f"{run['wall_seconds']:.1f} s" for run in runs), flush=True
            )
            everything = {"kind": "zoo_bare", "programs": kept | bare}
            machine.write_json(arguments.bare_out, everything)
    return bare


def run_evicted(names, bare, arguments, driver, budget, save):
    """Rows of all programs, several at a time; `save` gets them and what moved, again and again."""
    broken = [name for name in names if name in bare and zooing.trouble(bare[name])]
    rows = [row_of(name, bare[name]) for name in broken]
    todo = [name for name in names if name in bare and name not in broken]
    with contextlib.ExitStack() as stack:
        serving = Coordinator(
            driver, arguments.arena, arguments.host_pool, more=arguments.serve.split()
        )
        coordinator = stack.enter_context(serving)
        watch = stack.enter_context(Watch(coordinator))

        def work(name):
            return evicted_run(name, bare[name], arguments, (coordinator, watch), budget)

        for name, row in all_of(work, todo, arguments.at_once):
            rows.append(row)
            print(f"{name}: {row['verdict']} {row['evictions']} evictions", flush=True)
            rows.sort(key=lambda row: list(ZOO).index(row["name"]))
            status = coordinator.try_status() or {}
            save(rows, {field: status.get(field) for field in TOTALS})
    if not todo:
        save(rows, {})
    return rows


TOTALS = ("bytes_in", "bytes_out", "switches", "preemptions", "preempt_seconds", "unmap_timeouts")


def shown(row):
    """The row as the table shows it."""
    line = [row["name"], row["framework"], row["verdict"]]
    if "steps" not in row:
        return [*line, *["-"] * 5]
    baton = row["baton_seconds"]
    line += [f"{row['bare_seconds'][1]:.1f}", "-" if baton is None else f"{baton:.1f}"]
    return [*line, row["evictions"], row["switches"], f"{row['bytes_in'] / 1e6:.0f}"]


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", type=pathlib.Path, help="the folder of `baton`")
    parser.add_argument("--bare", action="store_true", help="only the bare runs")
    parser.add_argument("--bare-from", type=pathlib.Path, metavar="FILE", help="bare runs to use")
    parser.add_argument("--bare-out", type=pathlib.Path, default=pathlib.Path("zoo_bare.json"))
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("zoo.json"))
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="only these programs; patterns, or a framework"
    )
    parser.add_argument("--from", dest="start", choices=ZOO, metavar="NAME", help="begin there")
    parser.add_argument(
        "--missing-in", type=pathlib.Path, metavar="FILE", help="only programs without a row in it"
    )
    parser.add_argument("--list", action="store_true", help="print the programs' names and end")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds for all of it")
    parser.add_argument("--seconds", type=float, default=3, help="of a program's first bare run")
    parser.add_argument("--timeout", type=float, default=150, help="seconds for one run")
    cores = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=max(1, cores * 3 // 4), help="bare at once")
    parser.add_argument("--at-once", type=int, default=4, help="tenants at once")
    parser.add_argument("--every", type=float, default=50, help="ms between evictions on average")
    parser.add_argument("--seed", type=int, default=1, help="of the evictions' times")
    parser.add_argument("--arena", default="90%")
    parser.add_argument("--host-pool", default="24GiB")
    parser.add_argument("--serve", default="", help="more options for `baton serve`, in one word")
    parser.add_argument("--driver", help="if it is to be another: sim, or a file")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    arguments = parser.parse_args()
    if arguments.baton:
        Install.check(arguments.baton, parser)
    elif not arguments.bare and not arguments.list:
        parser.error("--baton says what to run the programs under; --bare runs them without")
    if arguments.bare_from:
        arguments.bare_from = json.loads(arguments.bare_from.read_text())["programs"]
    have = arguments.missing_in
    arguments.missing_in = current.runs_of(json.loads(have.read_text())) if have else []
    return arguments


def main():
    """Runs, saves and says."""
    arguments = parse()
    names = chosen(arguments)
    if arguments.list:
        print("\n".join(names))
        return 0
    programs.end_tidily()
    # Programs that run side by side share the cores instead of each taking all of them.
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    budget = Budget(arguments.budget)
    driver = Driver(Install.of(arguments.baton), arguments.driver) if arguments.baton else None
    bare = run_bare(names, arguments, driver, budget)
    if arguments.bare:
        broken = [name for name in bare if zooing.trouble(bare[name])]
        for name in broken:
            print(f"\n{name}: {bare[name][-1]['why']}", file=sys.stderr)
        print(f"{len(bare)} of {len(names)} programs run bare, {len(broken)} do not work")
        return 1 if broken else 0
    result = {"kind": "zoo", "machine": machine.describe()}
    result |= {"every_ms": arguments.every, "at_once": arguments.at_once}

    def save(rows, totals):
        machine.write_json(arguments.out, {**result, "totals": totals, "rows": rows})

    try:
        rows = run_evicted(names, bare, arguments, driver, budget, save)
    except NoCoordinator as error:
        sys.exit(f"zoo.py: {error}")
    for row in rows:
        if row["why"]:
            print(f"\n{row['name']}: {row['verdict']}: {row['why']}", file=sys.stderr)
    sys.stderr.flush()
    print(table.text(HEADER, [shown(row) for row in rows]))
    said = ", ".join(f"{count} {word}" for word, count in zooing.summary(rows).items())
    print(f"{len(rows)} of {len(names)} programs judged: {said}")
    return 1 if any(row["verdict"] in zooing.BAD for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
