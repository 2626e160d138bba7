#!/usr/bin/env python3
"""Tally's experiment: requests to a model while another model trains on the same GPU.

    python3 bench/corun.py --baton target/release --out corun.json

Requests arrive at random (Poisson), half as many as the model could answer alone. For each pair:
how long requests take, from arrival to end, and how fast the training is, each against itself alone
in the same run:

    alone         nothing else on the GPU, at the start and at the end: the difference is noise
    baton         both under one `baton serve`
    exclusive     the same with `--mode exclusive`
    no preemption the same with `--no-preempt`: launches are held, and nothing more; what has been
                  launched is waited for, and no program co-runs
    default       bare: the driver's own time slicing
    mps           bare, as clients of a daemon of NVIDIA's MPS, which this script starts and ends
    mps priority  the same, and the training with less priority (CUDA_MPS_CLIENT_PRIORITY)

Nothing is compared with another run. The exit status is 0 if all was measured.
"""

import argparse
import json
import pathlib
import sys
import tempfile
import time

from common import corunning, machine, mps, programs, table
from common.coordinator import Coordinator, Driver, Install, NoCoordinator
from common.corunning import ALONE, BARE, LOAD, MPS, SCENES, WAYS
from common.workers import WorkerFailed, together
from loads import CORUN_SERVED, CORUN_SERVED_MATRIX, CORUN_TRAINED, CORUN_TRAINED_MATRIX

HERE = pathlib.Path(__file__).resolve().parent
# Ways in which requests may be so slow that there is no time for all.
SLOW = {BARE, "exclusive", "no preemption"}
FEW = 300
FAILURES = (WorkerFailed, NoCoordinator, mps.NoMps)


class Run:
    """One run: the arguments and the result so far."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.install = Install.of(arguments.baton)
        self.deadline = time.monotonic() + arguments.limit_seconds
        # How long a request lasts alone, by model: the pace of all its requests.
        self.pace = {}
        self.result = {
            "kind": "corun",
            "machine": machine.describe(),
            "load": arguments.load,
            "eager": arguments.eager,
            "serve": arguments.serve,
            "cells": [],
            "failures": [],
        }

    def save(self):
        """Writes what there is."""
        machine.write_json(self.arguments.out, self.result)

    def command(self, script, name, *more):
        """The command line of a worker."""
        argv = [sys.executable, str(HERE / script), name, "--device", self.arguments.device]
        return [*argv, "--size", self.arguments.size, *more]

    def plan(self, dressed=lambda name, argv, urgency: (argv, {})):
        """Workers by name. `dressed` gives the command line and the settings of each."""
        eager = ["--eager"] if self.arguments.eager else []
        found = {}
        for name in self.arguments.served:
            found[name] = dressed(name, self.command("corun_server.py", name, *eager), "latency")
        for name in self.arguments.trained:
            argv = self.command("switch_train.py", f"corun_{name}")
            found[f"train {name}"] = dressed(f"train {name}", argv, "batch")
        return found

    def requests(self, workers, model, count, seed=1, load=None):
        """Requests to a model; gives their times."""
        pace = self.pace[model]
        load = load or self.arguments.load
        most = min(self.arguments.longest, 3 * count * pace / 1e3 / load)
        line = f"requests {count} {load} {most} {seed} {pace}"
        return workers[model].ask(line, self.arguments.timeout)

    def steps(self, workers, trainer, during, *of, **more):
        """(what `during(*of, **more)` gives, steps a second meanwhile) of a training."""
        worker = workers[trainer]
        worker.ask("go", self.arguments.timeout)
        time.sleep(self.arguments.settle)
        before = worker.ask("mark", self.arguments.timeout)
        gave = during(*of, **more)
        after = worker.ask("mark", self.arguments.timeout)
        worker.ask("hold", self.arguments.timeout)
        return gave, (after["steps"] - before["steps"]) / (after["at"] - before["at"])

    def add(self, way, model, trainer, answer=None, rate=None, **more):
        """Another cell."""
        cell = {"way": way, "served": model, "trained": trainer, "steps_per_second": rate, **more}
        if answer:
            cell |= corunning.times(answer["ms"]) | {"seconds": answer["seconds"]}
        self.result["cells"].append(cell)
        print(corunning.told(cell), file=sys.stderr, flush=True)
        self.save()

    def alone(self, workers, count):
        """Every worker alone; the others rest."""
        for model in self.arguments.served:
            self.add(ALONE, model, None, self.requests(workers, model, count))
        for name in self.arguments.trained:
            _, rate = self.steps(workers, f"train {name}", time.sleep, self.arguments.window)
            self.add(ALONE, None, name, rate=rate)

    def pairs(self, way, workers, count):
        """Every pair."""
        for model in self.arguments.served:
            for name in self.arguments.trained:
                if time.monotonic() > self.deadline:
                    self.result["failures"].append(f"{way}, {model}, {name}: no time left")
                    continue
                answer, rate = self.steps(
                    workers, f"train {name}", self.requests, workers, model, count
                )
                self.add(way, model, name, answer, rate)

    def sweep(self, workers, count):
        """One pair at several loads."""
        model, name = self.arguments.sweep
        for load in self.arguments.loads:
            answer = self.requests(workers, model, count, load=load)
            self.add(ALONE, model, None, answer, load=load)
            answer, rate = self.steps(
                workers, f"train {name}", self.requests, workers, model, count, load=load
            )
            self.add("baton", model, name, answer, rate, load=load)

    def ready(self, workers):
        """Waits for all of them; the first group says how long requests take alone."""
        for name, worker in workers.items():
            answer = worker.answer(self.arguments.timeout)
            if name in self.arguments.served:
                self.result.setdefault("graphs", {})[name] = answer["graph"]

    def measure(self, way, folder):
        """All that is measured in one way."""
        few = min(FEW, self.arguments.requests)
        count = few if way in SLOW else self.arguments.requests
        if way == BARE:
            self.measure_bare(folder, count)
        elif way in MPS:
            self.measure_mps(way, folder, count)
        else:
            self.measure_baton(way, folder, count, few)

    def measure_bare(self, folder, few):
        """Everything alone, and, if that is asked for, together."""
        with together(self.plan(), folder) as workers:
            self.ready(workers)
            self.paces(workers)
            self.alone(workers, self.arguments.requests)
            if BARE in self.arguments.ways:
                self.pairs(BARE, workers, few)
            self.alone(workers, self.arguments.requests)

    def measure_mps(self, way, folder, count):
        """Every pair as clients of MPS."""
        with mps.Daemon(folder) as daemon:

            def client(name, argv, urgency):
                return argv, {**daemon.settings, mps.PRIORITY: str(MPS[way][urgency])}

            with together(self.plan(client), folder) as workers:
                self.ready(workers)
                daemon.must_serve()
                self.pairs(way, workers, count)

    def measure_baton(self, way, folder, count, few):
        """Every pair as tenants of a coordinator."""
        options = [*SCENES[way], *self.arguments.serve]
        driver = Driver(self.install, self.arguments.driver)
        sizes = (self.arguments.arena, self.arguments.host_pool)
        with Coordinator(driver, *sizes, more=options) as one:

            def tenant(name, argv, urgency):
                return one.run(name, argv, urgency), {}

            with together(self.plan(tenant), folder) as workers:
                self.ready(workers)
                self.pairs(way, workers, count)
                if way == "baton" and self.arguments.sweep:
                    self.sweep(workers, few)
                status = one.status()
        kept = {"pauses": "preemptions", "set_aside": "deschedules"}
        kept |= {name: name for name in ("switches", "bytes_in", "bytes_out")}
        found = {name: status[field] for name, field in kept.items()}
        found["gap_ms"] = status["times"]["gap"]
        self.result.setdefault("coordinator", {})[way] = found

    def paces(self, workers):
        """How long a request lasts, one after the other, with nothing else on the GPU."""
        for model in self.arguments.served:
            self.pace[model] = workers[model].ask("pace", self.arguments.timeout)["alone_ms"]
        self.result["pace_ms"] = self.pace


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", type=pathlib.Path, required=True, help="the folder of `baton`")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("corun.json"))
    served, trained = list(CORUN_SERVED_MATRIX), list(CORUN_TRAINED_MATRIX)
    parser.add_argument("--served", nargs="+", default=served, choices=CORUN_SERVED)
    parser.add_argument("--trained", nargs="+", default=trained, choices=CORUN_TRAINED)
    parser.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS)
    parser.add_argument("--requests", type=int, default=1000, help="fewer where they are slow")
    parser.add_argument("--load", type=float, default=LOAD)
    parser.add_argument("--sweep", nargs=2, metavar=("SERVED", "TRAINED"), help="at several loads")
    parser.add_argument("--loads", nargs="+", type=float, default=[0.1, 0.3, 0.5, 0.7, 0.9])
    parser.add_argument("--eager", action="store_true", help="no CUDA graphs")
    parser.add_argument("--window", type=float, default=4, help="seconds of training alone")
    parser.add_argument("--settle", type=float, default=0.5, help="seconds before anything counts")
    parser.add_argument("--longest", type=float, default=40, help="seconds of one cell, at most")
    parser.add_argument("--arena", default="90%")
    parser.add_argument("--host-pool", default="8GiB")
    parser.add_argument("--serve", default="", help="more options for `baton serve`, in one word")
    parser.add_argument("--limit-seconds", type=float, default=1e9, help="begin nothing after it")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for any one answer")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--size", default="full", choices=["full", "small"])
    parser.add_argument("--driver", help="if it is to be another: a file")
    arguments = parser.parse_args()
    Install.check(arguments.baton, parser)
    arguments.serve = arguments.serve.split()
    return arguments


def main():
    """Runs, writes, prints."""
    arguments = parse()
    programs.end_tidily()
    run = Run(arguments)
    for way in [BARE, *(way for way in arguments.ways if way != BARE)]:
        with tempfile.TemporaryDirectory() as folder:
            try:
                run.measure(way, folder)
            except FAILURES as failure:
                run.result["failures"].append(f"{way}: {machine.scrub(str(failure))}")
    run.save()
    print(table.text(corunning.HEADER, corunning.rows(run.result)))
    for failure in run.result["failures"]:
        print(f"not measured: {failure}")
    print(json.dumps(run.result.get("coordinator", {})))
    sys.exit(1 if run.result["failures"] else 0)


if __name__ == "__main__":
    main()
