#!/usr/bin/env python3
"""Records what the driver of this machine answers to the lists of rules of `tests/c/rules`.

    tests/c/build.sh FOLDER
    python3 bench/rules.py --programs FOLDER --out bench/results/rules.json

Every rule is played twice, each time in a process of its own, without Baton. What it said is kept
if it was the same both times; a rule that ended its process is named with its signal. The end-to-end
tests compare the simulated driver with it, and Baton with that. With `--baton FOLDER` every rule is
played under Baton too, and those are named that say something else there.
"""

import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import subprocess
import sys

from common import machine
from common.coordinator import Coordinator, Driver, Install

FAMILIES = ["vmm", "pools", "ipc", "devices"]


def played(program, rule, coordinator=None):
    """The lines of a rule, and the end of its process."""
    argv, environment = [str(program), rule], None
    if coordinator:
        argv = coordinator.run(rule, argv)
        environment = {**os.environ, **coordinator.settings}
    try:
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=environment)
    except subprocess.TimeoutExpired:
        return [], "hangs"
    lines = [line for line in ran.stdout.splitlines() if line != "the end"]
    said = [line.removeprefix(f"{rule} ") for line in lines if line.startswith(f"{rule} ")]
    return said, ran.returncode


def family(program, workers, coordinator):
    """({rule: lines}, [complaints], [rules that say something else under Baton]) of a program."""
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
    if not coordinator:
        return found, wrong, None
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        shared = pool.map(lambda rule: played(program, rule, coordinator), found)
        differ = [(rule, *play) for rule, play in zip(found, shared, strict=True)]
    differ = [(rule, said, end) for rule, said, end in differ if end != 0 or said != found[rule]]
    for rule, said, end in differ:
        pairs = zip([*found[rule], "nothing"], [*said, f"ended with {end}"], strict=False)
        bare, baton = next(pair for pair in pairs if pair[0] != pair[1])
        print(f"  {rule}\n    bare:  {bare}\n    Baton: {baton}")
    return found, wrong, [rule for rule, _, _ in differ]


def main():
    """Records and says how many."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="what build.sh made")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("rules.json"))
    parser.add_argument("--workers", type=int, default=8, help="rules that are played at once")
    parser.add_argument("--baton", type=pathlib.Path, help="folder of the build")
    parser.add_argument("--driver", help="`sim`, or a file; the system's if not given")
    arguments = parser.parse_args()
    result = {"kind": "rules", "machine": machine.describe(), "families": {}, "left_out": {}}
    with contextlib.ExitStack() as stack:
        coordinator = None
        if arguments.baton:
            Install.check(arguments.baton, parser)
            driver = Driver(Install.of(arguments.baton), arguments.driver, memory="2GiB")
            coordinator = stack.enter_context(Coordinator(driver, "1GiB", "1GiB"))
            result["differ_under_baton"] = {}
        for name in FAMILIES:
            program = arguments.programs / "rules" / name
            found, wrong, differ = family(program, arguments.workers, coordinator)
            result["families"][name], result["left_out"][name] = found, wrong
            print(f"{name}: {len(found)} rules", *wrong, sep="\n  ")
            if differ is not None:
                result["differ_under_baton"][name] = differ
                print(f"{name}: {len(found) - len(differ)} as bare under Baton")
    machine.write_json(arguments.out, result)
    return 0 if all(result["families"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
