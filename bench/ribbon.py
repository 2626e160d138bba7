#!/usr/bin/env python3
"""Makes a picture of programs that share a GPU: two trainings and a server that do not fit.

    python3 bench/ribbon.py --baton target/release --out docs/ribbon --kinds svg
    python3 bench/ribbon.py --baton target/release --driver sim --size small --out ribbon

The programs are Baton's own examples, and measure nothing: they run for a while, and then `baton
trace` writes what the coordinator has seen, as OUT.svg (the picture for documents), OUT.html (the
page) and OUT.json (the trace for Perfetto). With `--kinds look`, it writes pictures of `baton top`
and of the live page into the folder OUT instead, for screens of several sizes (`tests/look`).
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time

from common import coordinator, programs

# The programs' options, and an arena that is too small for all of them.
SIZES = {
    "small": {
        "train": ["--batch", "64", "--inputs", "256", "--hidden", "1024"],
        "tune": ["--batch", "64", "--inputs", "256", "--hidden", "1024"],
        "serve": ["--width", "1024", "--layers", "8"],
        "arena": "64MiB",
        "pool": "256MiB",
    },
    "large": {
        "train": ["--batch", "256", "--inputs", "8192", "--hidden", "16384"],
        "tune": ["--batch", "256", "--inputs", "8192", "--hidden", "16384"],
        "serve": ["--width", "8192", "--layers", "8"],
        "arena": "3GiB",
        "pool": "8GiB",
    },
}
# Options of `baton trace` for each kind of file.
KINDS = {"svg": ["--svg"], "html": ["--html"], "json": []}
LOOK = "look"
ROOT = pathlib.Path(__file__).resolve().parent.parent
ENDLESS = ["--steps", "1000000000", "--verify", "0", "--every", "1"]
# A program whose first step or answer takes longer than this hangs.
LONGEST = 300


def parsed():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--baton", default="target/release", help="the folder with `baton`")
    parser.add_argument("--driver", help="`sim`, or a driver's file, instead of the system's")
    parser.add_argument("--size", choices=SIZES, default="large")
    parser.add_argument("--arena", help="instead of the size's usual one")
    parser.add_argument("--seconds", type=float, default=8, help="how much of it is shown")
    parser.add_argument("--quantum", default="150ms", help="how long a turn of a training is")
    parser.add_argument("--gap", type=float, default=0.9, help="seconds between two requests")
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS, LOOK], default=list(KINDS))
    parser.add_argument("--out", default="ribbon", help="name of the files, without an ending")
    arguments = parser.parse_args()
    coordinator.Install.check(arguments.baton, parser)
    return arguments


def started(stack, served, name, urgency, argv):
    """A tenant, from when on its first line is there; it ends with the stack."""
    program = subprocess.Popen(
        served.run(name, argv, urgency),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **served.settings},
    )
    stack.callback(program.wait)
    stack.callback(program.kill)
    return program


def until_tenants(served, count):
    """Waits until so many have joined."""
    deadline = time.monotonic() + LONGEST
    while len(served.status()["tenants"]) < count:
        if time.monotonic() > deadline:
            sys.exit(f"only {len(served.status()['tenants'])} of {count} programs have joined")
        time.sleep(0.1)


def looked_at(served, folder):
    """Takes pictures of `baton top` and of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    example = ["cargo", "run", "-q", "-p", "baton-cli", "--example", "top", "--"]
    subprocess.run([*example, str(served.socket), str(folder.resolve())], cwd=ROOT, check=True)
    said = served.log.read_text(encoding="utf-8", errors="replace")
    page = said.split("the page is at ", 1)[1].split()[0]
    token = served.socket.with_suffix(".token").read_text(encoding="utf-8").strip()
    url = f"{page}#token={token}"
    subprocess.run([ROOT / "tests/look", folder, "--page", url], check=True)


def main():
    """Runs the programs, and writes the files."""
    arguments = parsed()
    programs.end_tidily()
    install = coordinator.Install.of(arguments.baton)
    driver = coordinator.Driver(install, arguments.driver)
    size = SIZES[arguments.size]
    arena = arguments.arena or size["arena"]
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(
            coordinator.Coordinator(
                driver, arena, size["pool"], arguments.quantum, more=["--http", "127.0.0.1:0"]
            )
        )
        serve = [install.folder / "serve_mlp", *size["serve"], "--check", "0"]
        train = [install.folder / "train_mlp", *ENDLESS]
        server = started(stack, served, "serve", "latency", serve)
        trainings = [
            started(stack, served, "train", "batch", train + size["train"]),
            started(stack, served, "tune", "batch", train + size["tune"]),
        ]
        until_tenants(served, 3)
        # Until each has had the GPU, its memory is still being made.
        for training in trainings:
            for line in training.stdout:
                if line.startswith("step 1:"):
                    break
        # The pipes of programs that go on talking must not fill up.
        for program in [server, *trainings]:
            stack.enter_context(draining(program))
        before, end = served.status(), time.monotonic() + arguments.seconds
        while time.monotonic() < end:
            server.stdin.write("request\n")
            server.stdin.flush()
            time.sleep(arguments.gap)
        if LOOK in arguments.kinds:
            looked_at(served, pathlib.Path(arguments.out))
        for kind in [kind for kind in arguments.kinds if kind != LOOK]:
            words = ["trace", "--socket", str(served.socket), "--last", f"{arguments.seconds}s"]
            file = pathlib.Path(f"{arguments.out}.{kind}")
            subprocess.run([install.command, *words, *KINDS[kind], "-o", file], check=True)
            print(file)
        after = served.status()
        print(
            json.dumps({name: after[name] - before[name] for name in ("switches", "preemptions")})
        )
    return 0 if after["switches"] > before["switches"] else 1


@contextlib.contextmanager
def draining(program):
    """Reads what a program prints, and forgets it."""
    reader = subprocess.Popen(["cat"], stdin=program.stdout, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        program.kill()
        reader.kill()
        reader.wait()


if __name__ == "__main__":
    sys.exit(main())
