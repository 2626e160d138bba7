#!/usr/bin/env python3
"""Measures what libbaton.so costs a program: its time per step, as a ratio to running bare.

    python3 bench/cost.py --baton target/release/libbaton.so --out bench/results/cost.json

Three processes of one workload live side by side: bare A, bare B and preloaded P. A token goes
round, in a new random order every round, and who holds it runs steps for two seconds while the
others sleep. Ratios are taken within a round, so that slow drifts of the machine cancel: P/A is the
cost, B/A is what the measurement itself is worth. With --sets the rounds are shared out among fresh
sets of three processes, since two processes of one program can differ for as long as they live.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import select
import subprocess
import sys
import tempfile
import time

from common import machine, programs, stats, table

HERE = pathlib.Path(__file__).resolve().parent
ROLES = ("bare A", "bare B", "preloaded")
PAIRS = {
    "preloaded / bare A": ("preloaded", "bare A"),
    "preloaded / bare B": ("preloaded", "bare B"),
    "bare B / bare A": ("bare B", "bare A"),
}


class WorkerFailed(RuntimeError):
    """A worker died, answered nothing in time, or was not preloaded as it should be."""


class Worker:
    """A cost_worker.py and the two pipes to it."""

    def __init__(self, role, workload, device, settings, watch, log):
        self.role, self.log = role, log
        self.received = b""
        self.answers, theirs = os.pipe()
        script = str(HERE / "cost_worker.py")
        self.process = subprocess.Popen(
            [sys.executable, script, workload, "--device", device]
            + ["--answers", str(theirs), "--watch", watch],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**os.environ, **settings},
            pass_fds=[theirs],
            start_new_session=True,
        )
        os.close(theirs)

    def send(self, line):
        """Sends one command."""
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise WorkerFailed(f"{self.role} died: {self.last_words()}") from None

    def answer(self, timeout):
        """The next answer of the worker, as an object."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self.received:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.answers], [], [], left)[0]:
                raise WorkerFailed(f"{self.role} did not answer in {timeout:.0f} s")
            chunk = os.read(self.answers, 4096)
            if not chunk:
                raise WorkerFailed(f"{self.role} died: {self.last_words()}")
            self.received += chunk
        line, self.received = self.received.split(b"\n", 1)
        return json.loads(line)

    def last_words(self):
        """The end of what the worker printed."""
        self.log.flush()
        text = pathlib.Path(self.log.name).read_text(errors="replace")
        return machine.scrub(text[-programs.TAIL :])

    def end(self):
        """Asks the worker to end; kills it if it will not."""
        try:
            self.send("quit")
            self.process.wait(20)
        except (WorkerFailed, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        os.close(self.answers)
        self.log.close()


def start_workers(workload, device, baton, folder, timeout):
    """The three workers, warmed up, each proven to be what its role says."""
    watch = pathlib.Path(baton).name
    workers = {}
    try:
        for role in ROLES:
            settings = programs.preload_environment(baton) if role == "preloaded" else {}
            log = open(pathlib.Path(folder, role.replace(" ", "-")), "w+")
            workers[role] = Worker(role, workload, device, settings, watch, log)
        for role, worker in workers.items():
            loaded = watch in worker.answer(timeout)["libraries"]
            if loaded != (role == "preloaded"):
                state = "has loaded" if loaded else "has not loaded"
                raise WorkerFailed(f"{role} {state} {watch}: {worker.last_words()}")
    except BaseException:
        for worker in workers.values():
            worker.end()
        raise
    return workers


def measure(workload, device, baton, rounds, block_seconds, timeout, seed=5):
    """Milliseconds per step for every round of one set: a list of {role: milliseconds}."""
    rng = random.Random(seed)
    measured = []
    with tempfile.TemporaryDirectory(prefix="cost-") as folder:
        workers = start_workers(workload, device, baton, folder, timeout)
        try:
            for _ in range(rounds):
                one = {}
                for role in rng.sample(ROLES, len(ROLES)):
                    workers[role].send(f"go {block_seconds}")
                    block = workers[role].answer(timeout)
                    one[role] = 1000 * block["seconds"] / block["steps"]
                measured.append(one)
        finally:
            for worker in workers.values():
                worker.end()
    return measured


def evaluate(measured):
    """Times per role, and the paired ratios with their intervals."""
    times = {role: stats.summary([one[role] for one in measured]) for role in ROLES}
    ratios = {
        name: stats.summary([one[above] / one[below] for one in measured])
        for name, (above, below) in PAIRS.items()
    }
    return {"milliseconds_per_step": times, "ratios": ratios}


HEADER = ["workload", "ratio", "median", "95 % interval", "min", "max", "rounds"]


def shown(workload, evaluated):
    """Rows of the table for one workload."""
    return [
        [
            workload,
            name,
            f"{ratio['median']:.4f}",
            f"{ratio['low']:.4f} to {ratio['high']:.4f}",
            f"{ratio['min']:.4f}",
            f"{ratio['max']:.4f}",
            ratio["count"],
        ]
        for name, ratio in evaluated["ratios"].items()
    ]


def parse():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", required=True, type=pathlib.Path, help="libbaton.so")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results" / "cost.json")
    parser.add_argument("--workloads", nargs="+", default=["resnet152_train", "bert_infer"])
    parser.add_argument("--blocks", type=int, default=60, help="blocks of all three together")
    parser.add_argument("--sets", type=int, default=1, help="sets of processes to share them")
    parser.add_argument("--block-seconds", type=float, default=2)
    parser.add_argument("--timeout", type=float, default=120, help="seconds for any one answer")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--limit", type=float, default=1.01, help="the median P/A that is allowed")
    arguments = parser.parse_args()
    if not arguments.baton.is_file():
        parser.error(f"{arguments.baton} does not exist")
    if arguments.sets < 1 or arguments.blocks < arguments.sets * len(ROLES):
        parser.error("every set needs one round of 3 blocks at least")
    return arguments


def main():
    """Measures every workload, writes the results, prints a table."""
    arguments = parse()
    rounds = arguments.blocks // len(ROLES) // arguments.sets
    results, failures = {}, {}
    for workload in arguments.workloads:
        measured = []
        try:
            for number in range(arguments.sets):
                print(f"{workload}: set {number + 1}, {rounds} rounds", flush=True)
                measured += measure(
                    workload,
                    arguments.device,
                    arguments.baton,
                    rounds,
                    arguments.block_seconds,
                    arguments.timeout,
                    seed=number,
                )
        except WorkerFailed as failure:
            failures[workload] = str(failure)
        if measured:
            results[workload] = {"rounds": measured, **evaluate(measured)}
    result = {
        "kind": "cost",
        "machine": machine.describe(),
        "block_seconds": arguments.block_seconds,
        "sets": arguments.sets,
        "limit": arguments.limit,
        "workloads": results,
        "failures": failures,
    }
    machine.write_json(arguments.out, result)
    for workload, failure in failures.items():
        print(f"{workload} failed: {failure}", file=sys.stderr)
    rows = [row for name, evaluated in results.items() for row in shown(name, evaluated)]
    print(table.text(HEADER, rows))
    for name, evaluated in results.items():
        times = evaluated["milliseconds_per_step"]
        print(f"{name}: " + ", ".join(f"{r} {times[r]['median']:.3f} ms" for r in ROLES))
    held = all(
        evaluated["ratios"]["preloaded / bare A"]["median"] <= arguments.limit
        for evaluated in results.values()
    )
    print(f"limit of {arguments.limit}: {'held' if held and not failures else 'NOT held'}")
    sys.exit(0 if held and results and not failures else 1)


if __name__ == "__main__":
    main()
