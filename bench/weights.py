#!/usr/bin/env python3
"""Shows that weights which a daemon keeps are there once, and that their readers take turns.

    python3 bench/weights.py --baton target/release --out weights.json

A daemon makes memory by `cuMemCreate`, fills it and passes descriptors of it on; readers import it beside memory of their own, and check all
of it again and again (`weights_work.py`). Weights and two readers have more than the GPU: bare, the second reader finds no memory. Then two
processes of PyTorch pass tensors to each other, in expandable segments, bare and under Baton, where each is evicted again and again.

The exit status is 0 if every check under Baton was right.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from common import machine, table
from common.coordinator import Coordinator, Driver, Install

HERE = pathlib.Path(__file__).resolve().parent
GIB = 1 << 30


class Failed(RuntimeError):
    """A program has not ended well."""


class Program:
    """One of the programs, which begins when it is told to."""

    def __init__(self, argv, settings):
        self.errors = tempfile.TemporaryFile()
        pipe = subprocess.PIPE
        environment = {**os.environ, **settings}
        self.process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=self.errors, env=environment, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.errors.close()

    def line(self):
        """Its next line."""
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise Failed(machine.scrub(self.errors.read().decode(errors="replace")[-600:]))
        return line.strip()

    def ready(self):
        """Waits until it is."""
        if self.line() != "ready":
            raise Failed("it is not ready")
        return self

    def begin(self):
        """Lets it begin."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def result(self):
        """What it has measured."""
        return json.loads(self.line())


def work(*words):
    """The command line of one of the programs."""
    return [sys.executable, "-W", "ignore", str(HERE / "weights_work.py"), *map(str, words)]


def readers(count, arguments, start):
    """Results of so many readers at once, which `start` starts, as it does the daemon."""
    with tempfile.TemporaryDirectory(prefix="weights-") as folder:
        place = f"{folder}/socket"
        with start("daemon", work("keep", place, arguments.weights)) as daemon:
            daemon.ready()
            argv = work("read", place, arguments.own, arguments.seconds)
            running = [start(f"reader-{number}", argv) for number in range(count)]
            try:
                for reader in running:
                    reader.ready()
                for reader in running:
                    reader.begin()
                return [reader.result() for reader in running]
            finally:
                for reader in running:
                    reader.__exit__()


def bare(name, argv):
    """Starts a program bare."""
    return Program(argv, {})


def under(serving):
    """Starts programs under Baton."""
    return lambda name, argv: Program(serving.run(name, argv), serving.settings)


def keep(arguments, driver):
    """The daemon and its readers."""
    found = {"weights_gib": arguments.weights, "own_gib": arguments.own, "seconds": arguments.seconds}
    found["one_bare"] = readers(1, arguments, bare)[0]
    try:
        found["two_bare"] = readers(2, arguments, bare)
    except Failed as failure:
        found["two_bare"] = str(failure).strip().splitlines()[-1]
    with Coordinator(driver, "97%", arguments.host_pool, arguments.quantum) as serving:
        try:
            found["one"] = readers(1, arguments, under(serving))[0]
        except Failed as failure:
            raise Failed(f"{failure}\nThe coordinator said: {serving.said()}") from None
        before = serving.status()
        found["two"] = readers(2, arguments, under(serving))
        after, records, _ = serving.since(before)
        moved = [record["bytes_in"] for record in records if record.get("bytes_in", 0) > GIB]
        found["status"] = {
            "arena_bytes": after["arena"]["configured_bytes"],
            "switches": after["switches"] - before["switches"],
            "bytes_in": after["bytes_in"] - before["bytes_in"],
            "bytes_out": after["bytes_out"] - before["bytes_out"],
            "switch_ms_p50": after["times"]["switch"]["p50"],
            "bytes_in_p50": statistics.median(moved) if moved else 0,
        }
        if "share memory" in serving.log.read_text(errors="replace"):
            found["united"] = True
    return found


def trade(arguments, driver):
    """Two processes of PyTorch."""
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    argv = work("trade", arguments.seconds)
    with Program(argv, settings) as program:
        program.ready().begin()
        found = {"bare": program.result()}
    with Coordinator(driver, "40GiB", "40GiB", arguments.quantum) as serving:
        with Program(serving.run("trade", argv), {**serving.settings, **settings}) as program:
            program.ready().begin()
            evictions, end = 0, time.monotonic() + float(arguments.seconds)
            while time.monotonic() < end:
                for row in serving.status()["tenants"]:
                    command = [str(serving.install.command), "evict", "--socket", str(serving.socket), row["name"]]
                    environment = {**os.environ, **serving.settings}
                    evictions += subprocess.run(command, capture_output=True, env=environment).returncode == 0
                time.sleep(0.2)
            found["baton"] = program.result()
        after = serving.status()
        peak = [row["unmanaged_bytes"] for row in after["departed"] if "unmanaged_bytes" in row]
        found["status"] = {"evictions": evictions, "bytes_out": after["bytes_out"], "unmanaged_bytes": peak}
    return found


def is_right(results):
    """True if all checks were right, and there were some."""
    return all(one["rounds"] > 0 and one["wrong"] == 0 for one in results)


def main():
    """Runs, writes, prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", required=True, type=pathlib.Path, help="the folder of `baton`")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("weights.json"))
    parser.add_argument("--weights", type=int, default=60, help="GiB that the daemon keeps")
    parser.add_argument("--own", type=int, default=50, help="GiB of each reader's own")
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--quantum", default="500ms")
    parser.add_argument("--host-pool", default="80GiB")
    arguments = parser.parse_args()
    Install.check(arguments.baton, parser)
    driver = Driver(Install.of(arguments.baton))
    result = {"kind": "weights", "machine": machine.describe(), "quantum": arguments.quantum}
    result["keep"] = keep(arguments, driver)
    print(json.dumps(result["keep"]), flush=True)
    result["trade"] = trade(arguments, driver)
    print(json.dumps(result["trade"]), flush=True)
    good = is_right([result["keep"]["one"], *result["keep"]["two"], result["trade"]["baton"]])
    result["right"] = good
    machine.write_json(arguments.out, result)
    rows = [
        ["one reader, bare", result["keep"]["one_bare"]],
        ["one reader", result["keep"]["one"]],
        *[[f"reader {number} of two", one] for number, one in enumerate(result["keep"]["two"])],
        ["passed tensors, bare", result["trade"]["bare"]],
        ["passed tensors, evicted", result["trade"]["baton"]],
    ]
    shown = [[name, one["rounds"], one["wrong"], f"{one.get('import_seconds', 0):.2f}"] for name, one in rows]
    print(table.text(["program", "rounds", "wrong", "import s"], shown))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
