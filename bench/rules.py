#!/usr/bin/env python3
"""Records what the driver of this machine answers to the lists of rules of `tests/c/rules`.

    tests/c/build.sh FOLDER
    python3 bench/rules.py --programs FOLDER --out bench/results/rules.json

Every rule is played twice, each time in a process of its own, without Baton. What it said is kept
if it was the same both times; a rule that ended its process is named with its signal. The end-to-end
tests compare the simulated driver with it, and Baton with that.
"""

import argparse
import concurrent.futures
import pathlib
import subprocess
import sys

from common import machine

FAMILIES = ["vmm", "pools", "ipc"]


def played(program, rule):
    """What a rule says, line by line, and how its process ended."""
    try:
        ran = subprocess.run([program, rule], capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return [], "hangs"
    lines = [line for line in ran.stdout.splitlines() if line != "the end"]
    said = [line.removeprefix(f"{rule} ") for line in lines if line.startswith(f"{rule} ")]
    return said, ran.returncode


def family(program, workers):
    """({rule: lines}, [complaints]) of a program."""
    listed = subprocess.run([program, "--list"], capture_output=True, text=True, timeout=60)
    rules = listed.stdout.split()
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        first, second = (list(pool.map(lambda rule: played(program, rule), rules)) for _ in (1, 2))
    found, wrong = {}, []
    for rule, (said, end), again in zip(rules, first, second, strict=True):
        if end != 0:
            wrong.append(f"{rule} ended with {end}")
        elif (said, end) != again:
            wrong.append(f"{rule} says something else each time")
        else:
            found[rule] = said
    return found, wrong


def main():
    """Records and says how many."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="what build.sh made")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("rules.json"))
    parser.add_argument("--workers", type=int, default=8, help="rules that are played at once")
    arguments = parser.parse_args()
    result = {"kind": "rules", "machine": machine.describe(), "families": {}, "left_out": {}}
    for name in FAMILIES:
        found, wrong = family(arguments.programs / "rules" / name, arguments.workers)
        result["families"][name], result["left_out"][name] = found, wrong
        print(f"{name}: {len(found)} rules", *wrong, sep="\n  ")
    machine.write_json(arguments.out, result)
    return 0 if all(result["families"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
