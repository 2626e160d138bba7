#!/usr/bin/env python3
"""Measures an owner's programs' losses to a guest that does the coordinator harm.

    sudo python3 bench/hostile.py --baton target/release --out hostile.json

A server of class latency (requests at random, 100 a second; their times include the wait) and a
training of class normal are the coordinator's user's. Beside them is one guest after the other, a
program of another user (`--allow-uid`), and before and after each of them no guest:

    fair        a training of class normal, which behaves: its fair share is what others leave it
    burns       threads that use the CPU alone, to tell what that does by itself
    floods      messages of every kind over its own tenants' sockets, as fast as they go
    connects    connections that are opened and closed, some with a first message
    uninvited   the same of a user who is not on the list
    crowds      10,000 connections at once, half of them silent, which stay open
    hoards      all tenants, memory, leases and connections that it gets; answers stay unread
    scribbles   random words on every page that it was sent
    apart       2 MiB of memory, and does nothing; as it says, its work cannot be paused
    stops       as fair, but stopped (SIGSTOP) and continued at random
    held        as fair, but the thread that obeys the coordinator is held at random (ptrace)
    mute        takes the GPU, reads nothing and says nothing more; comes again if it is ended

Each is one of `--parts`, and `--repeat` says how often all of this is done. A guest's P99 is
compared with the mean of those just before and after it. The training's speed is compared with
that alone where the guest only attacks, and with that beside `fair` where it has the GPU in turns;
the table has both. All memory that guests may have (`--guest-arena` each, and two of them:
`--guest-programs 2`) fits the arena beside the others': else all take turns, and wait for copies.

Only root can be two users. `--baton` is a folder with `baton`, `libbaton.so`, `serve_mlp`,
`train_mlp` (of `examples/`) and `hostile` (`cargo build --release -p baton-tests --bin hostile`).
The exit status is 0 if each P99 is within `--limit-ms` and each speed at least `--limit-share`.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from common import machine, programs, table
from common.coordinator import Coordinator, Driver, Install, NoCoordinator
from common.holding import halted
from common.hostility import FAIR, HEADER, WITHOUT, figures, rows_of, rows_shown, shortcomings

OWN, GUEST, UNINVITED = None, 65534, 65533
# Each may have a part of the arena. All of them fit it beside the owner's.
GUEST_TENANTS = 2
# Guests that are the program `hostile`: its argument, and its user.
ATTACKS = {
    "burns": ("burns", GUEST),
    "floods": ("floods", GUEST),
    "connects": ("connects", GUEST),
    "uninvited": ("connects", UNINVITED),
    "crowds": ("crowds", GUEST),
    "hoards": ("hoards", GUEST),
    "scribbles": ("scribbles", GUEST),
    "apart": ("apart", GUEST),
    "mute": ("mute", GUEST),
}
PARTS = [FAIR, "burns", "floods", "connects", "uninvited", "crowds", "hoards", "scribbles"]
PARTS += ["stops", "held", "apart", "mute"]
FILES = ["baton", "libbaton.so", "serve_mlp", "train_mlp", "hostile"]
# As in `baton bench corun`: slow enough for the CPU to compute everything within these times.
MODEL = {
    "SIMCUDA_H2D_GBPS": "0.8",
    "SIMCUDA_D2H_GBPS": "0.8",
    "SIMCUDA_KERNEL_GFLOPS": "1",
    "SIMCUDA_TIMESLICE_MS": "2",
}
SIZES = {
    "sim": {
        "arena": "128MiB",
        "guest_arena": "32MiB",
        "host_pool": "128MiB",
        "serve": "--width 128 --layers 4 --batch 8 --check 0",
        "train": "--batch 32 --inputs 64 --hidden 128 --steps 100000000 --every 1 --verify 0",
    },
    "gpu": {
        "arena": "4GiB",
        "guest_arena": "1GiB",
        "host_pool": "2GiB",
        "serve": "--width 2048 --layers 8 --batch 4 --check 0",
        "train": "--batch 2048 --inputs 1024 --hidden 4096 --steps 100000000 --every 1 --verify 0",
    },
}


class Failed(RuntimeError):
    """A program has ended, or does not get on."""


class Program:
    """A program and the lines that it prints, each with when it came."""

    def __init__(self, argv, settings, folder, user=OWN):
        as_user = {} if user is OWN else {"user": user, "group": user, "extra_groups": []}
        self.errors = tempfile.TemporaryFile("w+", dir=folder)
        self.process = subprocess.Popen(
            list(map(str, argv)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            cwd="/",
            env={**os.environ, **settings},
            **as_user,
        )
        self.lines = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._changed:
                self.lines.append((time.perf_counter(), line.rstrip()))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def said(self, start, after=0):
        """The lines that begin so, of those after the first few."""
        return [one for one in self.lines[after:] if one[1].startswith(start)]

    def wait(self, start, count=1, after=0, timeout=60):
        """So many lines that begin so, of those after the first few."""
        end = time.monotonic() + timeout
        with self._changed:
            while len(found := self.said(start, after)) < count:
                left = end - time.monotonic()
                if left <= 0 or not self._reader.is_alive():
                    raise Failed(f"{len(found)} of {count} `{start}`: {self.last_words()}")
                self._changed.wait(min(left, 1))
        return found

    def say(self, line):
        """One line to it."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def last_words(self):
        """The end of what it has printed."""
        self.errors.seek(0)
        said = [line for _, line in self.lines[-3:]]
        return machine.scrub(f"{said} {self.errors.read()[-programs.TAIL :]}")

    def end(self, patience=0):
        """Ends it; its input ends first, and it has so long to end with that."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        self.process.stdout.close()
        self.errors.close()


class Guest:
    """A guest, which comes again when it is ended, and the attacks on it meanwhile."""

    def __init__(self, scene, name):
        self.scene, self.name = scene, name
        self.did, self.came = {}, 0
        self._over = threading.Event()
        self._work = threading.Thread(target=self._come_again)
        self._ready = threading.Event()
        self.failure = None

    def __enter__(self):
        self._work.start()
        while not self._ready.wait(0.1):
            if not self._work.is_alive():
                break
        if self.failure:
            raise self.failure
        return self

    def __exit__(self, *_):
        self._over.set()
        self._work.join()

    def _start(self):
        if self.name in ATTACKS:
            what, user = ATTACKS[self.name]
            return self.scene.hostile(what, user), "ready"
        return self.scene.training("guest", GUEST), "step"

    def _come_again(self):
        try:
            while not self._over.is_set():
                program, begun = self._start()
                try:
                    program.wait(begun)
                    self.came += 1
                    self._ready.set()
                    self._disturb(program)
                finally:
                    program.end(5 if self.name in ATTACKS else 0)
                with contextlib.suppress(ValueError, IndexError):
                    for what, count in json.loads(program.lines[-1][1]).items():
                        self.did[what] = self.did.get(what, 0) + count
        except (Failed, OSError) as failure:
            # One that does not get in any more is what should be.
            if not self._over.is_set() and not self.came:
                self.failure = failure

    def _disturb(self, program):
        """Until it is over, or the program has ended."""
        pid, dice = program.process.pid, random.Random(self.name)
        while not self._over.is_set() and program.process.poll() is None:
            if self.name == "stops":
                program.process.send_signal(signal.SIGSTOP)
                self._over.wait(2 * dice.random() ** 2)
                program.process.send_signal(signal.SIGCONT)
                self.did["stops"] = self.did.get("stops", 0) + 1
            elif self.name == "held":
                with halted(pid, "baton"):
                    self._over.wait(2 * dice.random() ** 2)
                self.did["times held"] = self.did.get("times held", 0) + 1
            self._over.wait(dice.uniform(0, 0.3))


class Scene:
    """A coordinator with the owner's two programs, and who comes beside them."""

    def __init__(self, arguments, driver, sizes, folder):
        self.arguments, self.driver, self.sizes, self.folder = arguments, driver, sizes, folder
        more = ["--allow-uid", str(GUEST), "--guest-programs", str(GUEST_TENANTS)]
        more += ["--guest-arena", sizes["guest_arena"]]
        more += arguments.serve.split()
        self.serving = Coordinator(driver, sizes["arena"], sizes["host_pool"], more=more)
        # Guests come here.
        self.serving.folder.chmod(0o711)
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.serving)
            gpu = self.serving.folder / "gpu"
            if gpu.exists():
                gpu.chmod(0o666)
            self.server = self.program("server", "serve_mlp", self.sizes["serve"], "latency", OWN)
            stack.callback(self.server.end)
            self.trainer = self.training("trainer", OWN)
            stack.callback(self.trainer.end)
            self.server.wait("serving")
            self.trainer.wait("step", 5)
            self.requests(20, 1)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *exception):
        self.stack.__exit__(*exception)

    def program(self, name, file, options, urgency, user):
        """A program of the examples, as a tenant."""
        argv = [self.driver.install.folder / file, *options.split()]
        settings = {**self.serving.settings, "CUDA_CACHE_DISABLE": "1"}
        return Program(self.serving.run(name, argv, urgency), settings, self.folder, user)

    def training(self, name, user):
        """One of class normal."""
        return self.program(name, "train_mlp", self.sizes["train"], "normal", user)

    def hostile(self, what, user):
        """The program that does harm."""
        argv = [self.driver.install.folder / "hostile", what, self.serving.socket]
        # Processors are the system's to share out; with few of them, that would be all one sees.
        argv = ["nice", "-n", self.arguments.nice, *argv]
        return Program(argv, {}, self.folder, user)

    def requests(self, count, seed):
        """The milliseconds of so many requests."""
        before, mean = len(self.server.lines), int(1e6 / self.arguments.rate)
        self.server.say(f"requests {count} {mean} {seed}")
        timeout = count / self.arguments.rate + self.arguments.patience
        said = self.server.wait("answer", count, before, timeout)
        return [int(line.split()[1]) / 1e3 for _, line in said]

    def measure(self, seed):
        """Requests for a while, and the training's steps meanwhile: (milliseconds, steps/s)."""
        before, began = len(self.trainer.lines), time.perf_counter()
        ms = self.requests(int(self.arguments.rate * self.arguments.seconds), seed)
        left = self.arguments.seconds - (time.perf_counter() - began)
        time.sleep(max(0, left))
        ended = time.perf_counter()
        steps = [at for at, _ in self.trainer.said("step", before) if began <= at < ended]
        return ms, len(steps) / (ended - began)

    def until_alone(self, timeout=30):
        """Waits until the owner's programs are the only ones."""
        end = time.monotonic() + timeout
        while (status := self.serving.status()) and len(status["tenants"]) > 2:
            if time.monotonic() > end:
                names = [row["name"] for row in status["tenants"]]
                raise Failed(f"tenants are left: {names[:6]}")
            time.sleep(0.05)


def cell(scene, name, number):
    """One measurement, beside that guest."""
    did, came = {}, 0
    if name == WITHOUT:
        scene.until_alone()
        time.sleep(scene.arguments.settle)
        ms, steps = scene.measure(number)
    else:
        with Guest(scene, name) as guest:
            time.sleep(scene.arguments.settle)
            ms, steps = scene.measure(number)
        did, came = guest.did, guest.came
    return {
        "name": name,
        "round": number,
        **figures(ms),
        "steps_per_second": steps,
        "did": did,
        "came": came,
        "ms": ms,
    }


def rounds(arguments, driver, sizes, folder, result):
    """All cells of all rounds, each written down as it comes."""
    cells = []
    for number in range(1, arguments.repeat + 1):
        names = [WITHOUT]
        for name in arguments.parts:
            names += [name, WITHOUT]
        try:
            with Scene(arguments, driver, sizes, folder) as scene:
                for name in names:
                    try:
                        cells.append(cell(scene, name, number))
                    except Failed as failure:
                        result["failures"].append(f"{name}, round {number}: {failure}")
                        raise
                    one = cells[-1]
                    steps = f"{one['steps_per_second']:.1f} steps/s"
                    print(
                        f"{name}: P99 {one['p99_ms']:.2f} ms, {steps}",
                        *(f"{count} {what}" for what, count in one["did"].items()),
                        file=sys.stderr,
                        flush=True,
                    )
                    result["rows"] = rows_of(cells)
                    # The times themselves would be most of the file.
                    told = [{k: v for k, v in c.items() if k != "ms"} for c in cells]
                    machine.write_json(arguments.out, result | {"cells": told})
        except (Failed, NoCoordinator, OSError) as failure:
            if not isinstance(failure, Failed):
                result["failures"].append(f"round {number}: {machine.scrub(str(failure))}")


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", type=pathlib.Path, required=True, help="the folder of `baton`")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("hostile.json"))
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4, help="of each measurement")
    parser.add_argument("--settle", type=float, default=0.5, help="seconds before each of them")
    parser.add_argument("--rate", type=float, default=100, help="requests a second")
    parser.add_argument(
        "--patience", type=float, default=60, help="seconds that requests may last longer"
    )
    parser.add_argument("--limit-ms", type=float, default=5, help="what P99 may grow by")
    parser.add_argument("--limit-share", type=float, default=0.9, help="of the training's speed")
    parser.add_argument("--arena", help="if it is to be another, as in `baton serve`")
    parser.add_argument("--guest-arena", help="what each of the guest's may have of it")
    parser.add_argument("--server", help="options of `serve_mlp`, in one word")
    parser.add_argument("--training", help="options of `train_mlp`, in one word")
    parser.add_argument("--nice", type=int, help="of guests that attack (0; on `sim` 19)")
    parser.add_argument("--serve", default="", help="more options for `baton serve`, in one word")
    parser.add_argument("--driver", help="if it is to be another: `sim`, or a file")
    arguments = parser.parse_args()
    missing = [file for file in FILES if not (arguments.baton / file).is_file()]
    if missing:
        parser.error(f"not in {arguments.baton}: {', '.join(missing)}")
    if arguments.nice is None:
        arguments.nice = 19 if arguments.driver == "sim" else 0
    if os.geteuid() != 0:
        parser.error("only root can be two users")
    return arguments


def readable(folder, place, driver):
    """A copy of all that a guest runs, where it can be read."""
    place.chmod(0o711)
    copied = place / "programs"
    copied.mkdir(mode=0o755)
    copied.chmod(0o755)
    for file in FILES + (["libsimcuda.so"] if driver == "sim" else []):
        shutil.copy(folder / file, copied / file)
        (copied / file).chmod(0o755)
    return copied


def main():
    """Runs, writes, prints."""
    arguments = parse()
    programs.end_tidily()
    sizes = dict(SIZES["sim" if arguments.driver == "sim" else "gpu"])
    given = ("arena", arguments.arena), ("guest_arena", arguments.guest_arena)
    given += ("serve", arguments.server), ("train", arguments.training)
    sizes |= {name: value for name, value in given if value}
    if arguments.driver == "sim":
        os.environ.update({name: os.environ.get(name, value) for name, value in MODEL.items()})
    result = {
        "kind": "hostile",
        "machine": machine.describe(),
        "driver": arguments.driver,
        "rate": arguments.rate,
        "seconds": arguments.seconds,
        "sizes": sizes,
        "limit_ms": arguments.limit_ms,
        "limit_share": arguments.limit_share,
        "rows": [],
        "failures": [],
    }
    with tempfile.TemporaryDirectory(prefix="hostile-", ignore_cleanup_errors=True) as folder:
        copied = readable(arguments.baton, pathlib.Path(folder), arguments.driver)
        driver = Driver(Install.of(copied), arguments.driver)
        rounds(arguments, driver, sizes, folder, result)
    print(table.text(HEADER, rows_shown(result)))
    wrong = shortcomings(result)
    print("\n".join(["", *(wrong or ["all within their limits"])]))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
