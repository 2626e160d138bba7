#!/usr/bin/env python3
"""Measures others' losses to a tenant whose kernel does not end, and to a stopped one (SIGSTOP).

    python3 bench/stuck.py --baton target/release --out stuck.json

A tenant of class latency makes small requests, each one small kernel that it waits for, with gaps
between:

    alone    the others rest
    endless  beside a tenant with a kernel that fills the GPU and does not end
    stopped  beside one that was stopped while several kernels of a few milliseconds were queued; it
             is stopped and continued a few times

Those two are of class batch, or of another one with `--class`.

What requests take longer than alone is their delay; the limit is for its P99. Then a third tenant,
as steady as the second and of the same class, runs alone, beside the second, beside the endless
one, and beside the stopped one: kernels a second. All of that when programs that fit together run
together (`default`), and when they take turns (`exclusive`). All memory fits the arena.

The results of all kernels are checked: the endless one's when it has been ended, the stopped one's
each time it has gone on. The exit status is 0 if they are right and all was measured; a delay above
the limit is only told.
"""

import argparse
import contextlib
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

from common import machine, programs, table
from common.coordinator import Coordinator, Driver, Install, NoCoordinator
from common.stats import figures
from common.workers import WorkerFailed, together
from loads import SPINNING

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
# Options of `baton serve`.
MODES = {"default": [], "exclusive": ["--mode", "exclusive"]}
# The most that the P99 of requests may lose.
LIMIT_MS = 5
ENDLESS, STEADY, SMALL, THIRD = "endless", "steady", "small", "third"
# Tenants and their roles. Those that make requests are of class latency, the others are all of one.
TENANTS = {ENDLESS: "endless", STEADY: "steady", SMALL: "small", THIRD: "steady"}
CLASSES = ["batch", "normal", "latency"]
# The neighbours of those that are measured; `stopped` is the steady tenant.
ALONE, STOPPED = "alone", "stopped"
BESIDE = [ALONE, STEADY, ENDLESS, STOPPED]
PARTS = ["delay", "turns"]

FIGURES = ("p50_ms", "p99_ms", "max_ms")
HEADER = ["mode", "requests", "n", "P50 ms", "P99 ms", "most ms"]
HEADER += ["+ P50 ms", "+ P99 ms", "+ most ms", f"limit {LIMIT_MS} ms", "its speed"]
TURNS_HEADER = ["mode", "alone", "beside steady", "beside endless", "beside stopped"]
TURNS_HEADER += ["endless / steady"]


def delay(requests, scene):
    """The delay of requests against those alone, figure by figure; None if it was not measured."""
    if scene == ALONE or scene not in requests:
        return None
    return {name: requests[scene][name] - requests[ALONE][name] for name in FIGURES}


def verdict(requests, scene):
    """Judges the delay by the limit, in a word; that is not possible if alone is above it."""
    lost = delay(requests, scene)
    if lost is None:
        return ""
    if requests[ALONE]["p99_ms"] > LIMIT_MS:
        return "unclear"
    return "met" if lost["p99_ms"] <= LIMIT_MS else "missed"


def share(part, whole):
    """A ratio; None where one of the two is not known."""
    return part / whole if part is not None and whole else None


def rows(result):
    """The table of requests."""
    found = []
    for mode, one in result["modes"].items():
        for scene, times in one["requests"].items():
            lost = delay(one["requests"], scene)
            speed = one["rounds_per_second"] if scene == ENDLESS else {}
            found.append(
                [
                    mode,
                    scene if scene == ALONE else f"beside {scene}",
                    times["n"],
                    *(table.figure(times[name], 3) for name in FIGURES),
                    *(table.figure(lost and lost[name], 3) for name in FIGURES),
                    verdict(one["requests"], scene),
                    table.figure(share(speed.get("beside"), speed.get(ALONE))),
                ]
            )
    return found


def turns_rows(result):
    """The table of the third tenant's kernels a second."""
    found = []
    for mode, one in result["modes"].items():
        rates = one["kernels_per_second"]
        if rates:
            fair = share(rates.get(ENDLESS), rates.get(STEADY))
            figures_of = [table.figure(rates.get(scene), 1) for scene in BESIDE]
            found.append([mode, *figures_of, table.figure(fair)])
    return found


def shortcomings(result):
    """The faults and the missing measurements, in words."""
    wrong = [
        f"{mode}: wrong result of {name}"
        for mode, one in result["modes"].items()
        for name in one["wrong"]
    ]
    return wrong + result["failures"]


def notes(result):
    """The coordinator's counts, mode by mode."""
    return [
        f"{mode}: {counted['pauses']} pauses, {counted['switches']} switches, "
        f"{(counted['bytes_in'] + counted['bytes_out']) // MIB} MiB moved"
        for mode, one in result["modes"].items()
        if (counted := one.get("coordinator"))
    ]


def state_of(text):
    """A process's state, of the text of /proc/PID/stat; its name may have blanks and brackets."""
    return text.rsplit(")", 1)[1].split()[0]


def wait_until_stopped(pid, patience=5):
    """Until a signal has stopped the process."""
    deadline = time.monotonic() + patience
    while state_of(pathlib.Path(f"/proc/{pid}/stat").read_text()) != "T":
        if time.monotonic() > deadline:
            raise WorkerFailed(f"process {pid} does not stop in {patience} s")
        time.sleep(0.0005)


class Scene:
    """The tenants under one coordinator, and what is made of them."""

    def __init__(self, workers, arguments, found):
        self.workers, self.arguments, self.found = workers, arguments, found
        self.pids = {}
        # Where in its work a tenant is when it is stopped shall be by chance.
        self.chance = random.Random(1)

    def checked(self, name, answer):
        """An answer; a wrong result in it is written down."""
        if not answer.get("right", True):
            self.found["wrong"].append(name)
        return answer

    def ask(self, name, line):
        """A worker's answer."""
        return self.checked(name, self.workers[name].ask(line, self.arguments.timeout))

    def ready(self, serving):
        """Waits for all of them, which have to be tenants."""
        for name, worker in self.workers.items():
            answer = self.checked(name, worker.answer(self.arguments.timeout))
            self.pids[name] = answer["pid"]
            self.found["kernel_ms"][name] = round(answer["kernel_ms"], 3)
        tenants = {row["name"] for row in serving.status()["tenants"]}
        if missing := sorted(self.workers.keys() - tenants):
            raise WorkerFailed(f"no tenants: {', '.join(missing)}; {serving.said()}")

    @contextlib.contextmanager
    def busy(self, name):
        """A tenant at work; its result is checked at the end."""
        self.ask(name, "go")
        time.sleep(self.arguments.settle)
        yield
        self.ask(name, "end")

    @contextlib.contextmanager
    def stopped(self, name):
        """A tenant that was stopped at work, and goes on at the end."""
        with self.busy(name):
            time.sleep(self.chance.uniform(0, 0.1))
            os.kill(self.pids[name], signal.SIGSTOP)
            try:
                wait_until_stopped(self.pids[name])
                yield
            finally:
                os.kill(self.pids[name], signal.SIGCONT)

    @contextlib.contextmanager
    def measured(self, name, rates, scene):
        """How much a tenant gets done a second meanwhile."""
        before = self.ask(name, "mark")
        yield
        after = self.ask(name, "mark")
        rates[scene] = (after["done"] - before["done"]) / (after["at"] - before["at"])

    def requests(self, count):
        """So many requests: their times."""
        return self.ask(SMALL, f"requests {count} {self.arguments.gap}")["ms"]

    def add(self, scene, ms):
        """Figures of requests, and each of their times."""
        times = [round(one, 3) for one in ms]
        self.found["requests"][scene] = figures(times) | {"ms": times}

    def delay(self):
        """The requests."""
        arguments, rates = self.arguments, self.found["rounds_per_second"]
        time.sleep(arguments.settle)
        self.add(ALONE, self.requests(arguments.requests))
        with self.busy(ENDLESS):
            with self.measured(ENDLESS, rates, ALONE):
                time.sleep(arguments.window)
            with self.measured(ENDLESS, rates, "beside"):
                ms = self.requests(arguments.requests)
        self.add(ENDLESS, ms)
        ms = []
        for _ in range(arguments.stops):
            with self.stopped(STEADY):
                ms += self.requests(arguments.requests // arguments.stops)
        self.add(STOPPED, ms)

    def beside(self, scene):
        """The neighbour of the third tenant."""
        if scene == ALONE:
            return contextlib.nullcontext()
        return self.stopped(STEADY) if scene == STOPPED else self.busy(scene)

    def turns(self):
        """The third tenant."""
        for scene in BESIDE:
            with self.beside(scene), self.busy(THIRD):
                with self.measured(THIRD, self.found["kernels_per_second"], scene):
                    time.sleep(self.arguments.window)


def plan(serving, arguments):
    """The workers, each a tenant."""
    program = [sys.executable, str(HERE / "stuck_work.py"), arguments.kernels, "--role"]
    return {
        name: (
            serving.run(name, [*program, role], "latency" if name == SMALL else arguments.urgency),
            serving.settings,
        )
        for name, role in TENANTS.items()
        if name != THIRD or "turns" in arguments.parts
    }


def measure(mode, arguments, found, folder):
    """All of one mode; `found` gets each part at once, even if a later one fails."""
    driver = Driver(Install.of(arguments.baton), arguments.driver)
    options = [*MODES[mode], *arguments.serve.split()]
    sizes = arguments.arena, arguments.host_pool
    with Coordinator(driver, *sizes, more=options) as serving:
        with together(plan(serving, arguments), folder) as workers:
            scene = Scene(workers, arguments, found)
            scene.ready(serving)
            for part in arguments.parts:
                getattr(scene, part)()
            status = serving.status()
    counted = ("switches", "bytes_in", "bytes_out")
    found["coordinator"] = {"pauses": status["preemptions"], **{name: status[name] for name in counted}}


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", type=pathlib.Path, required=True, help="the folder of `baton`")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("stuck.json"))
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--class", dest="urgency", default=CLASSES[0], choices=CLASSES)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--gap", type=float, default=0.02, help="seconds after each request")
    parser.add_argument("--stops", type=int, default=10, help="how often one is stopped")
    parser.add_argument("--window", type=float, default=2, help="seconds of one speed")
    parser.add_argument("--settle", type=float, default=0.3, help="seconds before anything counts")
    parser.add_argument("--arena", default="4GiB")
    parser.add_argument("--host-pool", default="1GiB")
    parser.add_argument("--serve", default="", help="more options for `baton serve`, in one word")
    parser.add_argument("--timeout", type=float, default=90, help="seconds for any one answer")
    parser.add_argument("--kernels", default="cupy", choices=SPINNING)
    parser.add_argument("--driver", help="if it is to be another: `sim`, or a file")
    arguments = parser.parse_args()
    Install.check(arguments.baton, parser)
    if not 1 <= arguments.stops <= arguments.requests:
        parser.error("at least one stop, and no more than requests")
    return arguments


def new_result(arguments):
    """A result with nothing in it."""
    return {
        "kind": "stuck",
        "machine": machine.describe(),
        "gap_ms": arguments.gap * 1e3,
        "limit_ms": LIMIT_MS,
        "stops": arguments.stops,
        "class": arguments.urgency,
        "modes": {},
        "failures": [],
    }


def main():
    """Runs, writes, prints."""
    arguments = parse()
    programs.end_tidily()
    result = new_result(arguments)
    for mode in arguments.modes:
        fields = ("kernel_ms", "requests", "rounds_per_second", "kernels_per_second")
        found = result["modes"][mode] = {**{name: {} for name in fields}, "wrong": []}
        with tempfile.TemporaryDirectory() as folder:
            try:
                measure(mode, arguments, found, folder)
            except (WorkerFailed, NoCoordinator, OSError) as failure:
                result["failures"].append(f"{mode}: {machine.scrub(str(failure))}")
        machine.write_json(arguments.out, result)
    print(table.text(HEADER, rows(result)))
    if turns := turns_rows(result):
        print("\n" + table.text(TURNS_HEADER, turns))
    wrong = shortcomings(result)
    print("\n".join(["", *notes(result), *(wrong or ["all results right"])]))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
