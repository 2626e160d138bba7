#!/usr/bin/env python3
"""Plays generated programs on this machine's GPU, bare and under Baton, and compares what they say.

    GENERATE_WITH=pools GENERATE_EXCHANGES=100 tests/generate write FOLDER 500
    python3 bench/generated.py --scripts FOLDER --programs FOLDER --baton FOLDER --out generated.json

Each script is played three times: bare twice, and under Baton. Whenever a program rests there, its
memory is moved to the host. A script counts if it said the same bare both times; one that says
something else under Baton is played bare ten times more, because some hang there now and then.
`--programs` has `generated_program` and `generated_exchange`, which `cargo build --release -p
baton-tests` makes.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

from common import machine
from common.coordinator import Coordinator, Driver, Install

# A kernel that is loaded at its first launch waits for the GPU to be idle, and so for ever behind
# one that waits for that launch: programs like these load everything first (CUDA C++ Programming
# Guide, "Lazy Loading").
EAGER = {"CUDA_MODULE_LOADING": "EAGER"}
# How long a program may take, in seconds.
LIMIT = 60
# How often one is played bare again that does something else under Baton.
AGAIN = 10
# How long an eviction may take: a program that waits for itself is never idle.
EVICTION = 0.4


def evicted(coordinator, name):
    """Moves a program's memory to the host, if it becomes idle soon."""
    argv = [str(coordinator.install.command), "evict", "--socket", str(coordinator.socket), name]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        return subprocess.run(argv, timeout=EVICTION, **quiet).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def played(programs, script, patience, coordinator=None, settings=None):
    """(A script's output, its end, the number of times that its memory was moved)."""
    executor = "generated_exchange" if script.name.startswith("exchange") else "generated_program"
    argv = [str(programs / executor), str(script), "--rests", "--patience", str(patience)]
    environment = {**os.environ, **EAGER, **(settings or {})}
    name = script.stem
    if coordinator:
        argv = coordinator.run(name, argv)
        environment |= coordinator.settings
    said, evictions = [], 0
    with tempfile.TemporaryFile("w+") as errors:
        program = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
        )
        watch = threading.Timer(LIMIT, program.kill)
        watch.start()
        with program:
            for line in program.stdout:
                if line != "rest\n":
                    said.append(line)
                    continue
                if coordinator:
                    evictions += evicted(coordinator, name)
                with contextlib.suppress(OSError):
                    program.stdin.write("\n")
                    program.stdin.flush()
        watch.cancel()
        errors.seek(0)
        return "".join(said), f"{program.returncode} {errors.read().strip()}".strip(), evictions


def main():
    """Plays all, and says which differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scripts", type=pathlib.Path, required=True, help="what tests/generate wrote")
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="folder of the executors")
    parser.add_argument("--baton", type=pathlib.Path, required=True, help="folder of the build")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("generated.json"))
    parser.add_argument(
        "--patience", type=int, default=30, help="seconds a program may make no progress"
    )
    parser.add_argument("--workers", type=int, default=8, help="programs that are played at once")
    parser.add_argument("--arena", default="224MiB", help="less than they need together")
    parser.add_argument("--driver", help="`sim`, or a file; the system's if not given")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds, after which none begins")
    arguments = parser.parse_args()
    Install.check(arguments.baton, parser)
    scripts = sorted(arguments.scripts.glob("*.json"))
    end = time.monotonic() + arguments.budget
    driver = Driver(Install.of(arguments.baton), arguments.driver, memory="1GiB")
    counts = collections.Counter()
    failed = {}

    def play(script, *under, **settings):
        return played(arguments.programs, script, arguments.patience, *under, **settings)

    def play_bare(script):
        with tempfile.TemporaryDirectory(prefix="baton-") as folder:
            return play(script, settings=driver.bare(folder))

    def judge(script):
        if time.monotonic() > end:
            return script, "not played", "", 0
        bare = play_bare(script)
        if not bare[1].startswith("0") or bare != play_bare(script):
            return script, "differs bare", bare[1], 0
        said, ended, evictions = play(script, coordinator)
        if (said, ended) == bare[:2]:
            return script, "equal", "", evictions
        # A rare outcome of bare runs may just not have happened yet.
        again = [play_bare(script) for _ in range(AGAIN)]
        if other := next((one for one in again if one != bare), None):
            return script, "differs bare", f"{other[1]}, but not at first", evictions
        pairs = zip(bare[0].splitlines(), said.splitlines(), strict=False)
        differs = next((pair for pair in pairs if pair[0] != pair[1]), "")
        return script, "fails", f"{ended} {differs}", evictions

    more = ["--quantum", "3ms", "--max-wait", "1s"]
    with (
        Coordinator(driver, arguments.arena, "4GiB", more=more) as coordinator,
        concurrent.futures.ThreadPoolExecutor(arguments.workers) as pool,
    ):
        judged = [pool.submit(judge, script) for script in scripts]
        for future in concurrent.futures.as_completed(judged):
            script, verdict, why, evictions = future.result()
            kind = script.name.split("-")[0]
            counts[f"{kind}s {verdict}"] += 1
            counts["evictions"] += evictions
            if why:
                failed[script.name] = f"{verdict}: {why}"[:500]
                print(f"{script.name}: {failed[script.name]}", flush=True)
    print(dict(sorted(counts.items())))
    result = {"kind": "generated", "machine": machine.describe(), "counts": counts, "failed": failed}
    machine.write_json(arguments.out, result)
    return 1 if any("fails" in key for key in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
