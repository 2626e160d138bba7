#!/usr/bin/env python3
"""Checks that programs with different allocators share a GPU that they do not fit together.

    python3 bench/allocators.py --baton target/release --out allocators.json

Each group of programs runs at once under a `baton serve` with its defaults. Every program gets its
memory by the allocator that it is named after, writes all of it, and then checks every word and
writes it anew, round after round. For each group: whether all was right, what moved each way
meanwhile, how much stayed on the GPU as unmanaged, at most, as `baton status` says, and which part
of what the driver says is used no line of the ledger has (*hidden*), at the worst of five moments.

The exit status is 0 if all was right.
"""

import argparse
import contextlib
import pathlib
import sys
import tempfile
import threading
import time

from common import machine, programs, table
from common.coordinator import Coordinator, Driver, Install, NoCoordinator, parse_bytes
from common.ledger import hidden
from common.workers import WorkerFailed, together
from loads.filled import ALLOCATORS

HERE = pathlib.Path(__file__).resolve().parent
GIB = 1 << 30
GROUPS = ["torch:70+torch:70", "jax:60+jax:60", "torch segments:70+torch segments:70"]
GROUPS += ["torch async:70+torch async:70", "cupy async:70+cupy async:70", "jax:1+jax:1"]
GROUPS += ["torch async:50+jax:50+torch segments:50"]
HEADER = ["programs", "right", "rounds", "switches", "GB in", "GB out", "unmanaged GB", "hidden", "seconds"]


def programs_of(group):
    """[(name, allocator, GiB)] of a group, which is written `torch:70+jax:60`."""
    found = []
    for n, program in enumerate(group.split("+")):
        allocator, gib = program.rsplit(":", 1)
        if allocator not in ALLOCATORS:
            raise ValueError(f"`{allocator}` is none of {', '.join(ALLOCATORS)}")
        found.append((f"{allocator.replace(' ', '-')}-{n}", allocator, float(gib)))
    return found


# At how many moments the ledger is compared with what the driver says is used.
MOMENTS = 5


class Watch:
    """Looks at `baton status` now and then: how much is unmanaged at most, and the ledger."""

    def __init__(self, coordinator):
        self.coordinator, self.most, self.over = coordinator, 0, threading.Event()
        self.ledgers = []
        self.thread = threading.Thread(target=self.run)

    def run(self):
        """Until it is over."""
        while not self.over.wait(0.5):
            status = self.coordinator.try_status()
            if not status:
                continue
            sums = [tenant["unmanaged_bytes"] for tenant in status["tenants"]]
            self.most = max([self.most, sum(sums)])
            if status["tenants"]:
                self.ledgers.append(status["ledger"])

    def moments(self):
        """Ledgers of moments as far apart as possible."""
        last = len(self.ledgers) - 1
        if last < MOMENTS:
            return self.ledgers
        return [self.ledgers[last * n // (MOMENTS - 1)] for n in range(MOMENTS)]

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def all_at_once(workers, command, timeout):
    """Tells all programs the same, and gives their answers."""
    for worker in workers.values():
        worker.send(command)
    return {name: worker.answer(timeout) for name, worker in workers.items()}


def measure(group, arguments, coordinator, folder):
    """One group's row."""
    plan = {}
    for name, allocator, gib in programs_of(group):
        script = [str(HERE / "allocators_worker.py"), allocator, "--bytes", str(int(gib * GIB))]
        block = ["--block", str(arguments.block)] if arguments.block else []
        argv = coordinator.run(name, [sys.executable, *script, *block])
        plan[name] = (argv, coordinator.settings)
    before, started = coordinator.status(), time.monotonic()
    row = {"programs": group, "right": False, "rounds": 0, "why": None}
    with Watch(coordinator) as watch, together(plan, folder) as workers:
        try:
            for worker in workers.values():
                worker.answer(arguments.timeout)
            all_at_once(workers, "fill", arguments.timeout)
            said = all_at_once(workers, f"rounds {arguments.rounds}", arguments.timeout)
            row["right"] = not any(answer["wrong"] for answer in said.values())
            row["rounds"] = sum(answer["rounds"] for answer in said.values())
            row["wrong_blocks"] = sum(answer["wrong"] for answer in said.values())
        except WorkerFailed as error:
            row["why"] = str(error)[-600:]
        after = coordinator.status()
    row["seconds"] = time.monotonic() - started
    for figure in ("switches", "bytes_in", "bytes_out"):
        row[figure] = after[figure] - before[figure]
    row["unmanaged_bytes"] = watch.most
    row["ledgers"] = watch.moments()
    return row


def rows(results):
    """The table."""
    for row in results:
        moved = [f"{row[figure] / 1e9:.1f}" for figure in ("bytes_in", "bytes_out")]
        yield [
            row["programs"],
            "yes" if row["right"] else "NO",
            str(row["rounds"]),
            str(row["switches"]),
            *moved,
            f"{row['unmanaged_bytes'] / 1e9:.2f}",
            "" if hidden(row) is None else f"{hidden(row):.2%}",
            f"{row['seconds']:.1f}",
        ]


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", type=pathlib.Path, required=True, help="the folder of `baton`")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("allocators.json"))
    parser.add_argument("--groups", nargs="+", default=GROUPS, help="ALLOCATOR:GIB+ALLOCATOR:GIB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--block", type=parse_bytes, help="instead of what is usual")
    parser.add_argument("--arena", default="90%")
    # JAX takes three quarters of the arena, however much it is to hold: with two others of 50 GiB
    # that is 68 GiB more than the arena of an H200.
    parser.add_argument("--host-pool", default="72GiB")
    parser.add_argument("--serve", default="", help="more options for `baton serve`, in one word")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for any one answer")
    parser.add_argument("--driver", help="if it is to be another: sim, or a file")
    parser.add_argument("--sim-memory", default="512MiB", help="the simulated GPU's size")
    arguments = parser.parse_args()
    Install.check(arguments.baton, parser)
    for group in arguments.groups:
        try:
            programs_of(group)
        except ValueError as error:
            parser.error(str(error))
    return arguments


def main():
    """Measures, saves and says."""
    arguments = parse()
    driver = Driver(Install.of(arguments.baton), arguments.driver, arguments.sim_memory)
    programs.end_tidily()
    result = {"kind": "allocators", "machine": machine.describe(), "groups": []}
    for group in arguments.groups:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="baton-"))
            more = arguments.serve.split()
            try:
                serving = Coordinator(driver, arguments.arena, arguments.host_pool, more=more)
                coordinator = stack.enter_context(serving)
                row = measure(group, arguments, coordinator, folder)
            except NoCoordinator as error:
                sys.exit(f"allocators.py: {error}")
        result["groups"].append(row)
        print(*next(rows([row])), row["why"] or "", sep="  ", flush=True)
        machine.write_json(arguments.out, result)
    print(table.text(HEADER, rows(result["groups"])))
    return 0 if all(row["right"] for row in result["groups"]) else 1


if __name__ == "__main__":
    sys.exit(main())
