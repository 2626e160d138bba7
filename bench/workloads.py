#!/usr/bin/env python3
"""Runs one GPU workload and prints what it computed as a JSON object.

    python3 bench/workloads.py resnet152_train --steps 3 --json out.json

The object holds {workload, device, steps, digest, outputs, bytes, numbers, seconds, total_seconds,
versions}. The digest is a SHA-256 over every byte of every output. `seconds` is the workload alone,
`total_seconds` counts from the start of this program, imports included.

Workloads are ordinary CUDA programs: they know nothing of Baton.
"""

import argparse
import json
import os
import pathlib
import sys
import time

from common.machine import package_versions
from common.programs import ABSENT
from loads import SETTINGS, WORKLOADS
from loads.digest import Digest


def main():
    """Command line."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=[*WORKLOADS, "list"], help="'list' prints the names")
    parser.add_argument("--steps", type=int, help="steps, for another number than the default")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--json", type=pathlib.Path, help="write the object here too")
    arguments = parser.parse_args()
    if arguments.name == "list":
        print("\n".join(WORKLOADS))
        return
    print(json.dumps(result := measure(arguments, started)))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


def measure(arguments, started):
    """Runs the workload and gives its JSON object."""
    workload = WORKLOADS[arguments.name]
    steps = workload.steps if arguments.steps is None else arguments.steps
    os.environ.update(SETTINGS)
    os.environ.update(workload.settings)
    try:
        function = workload.load()
    except ModuleNotFoundError as error:
        print(f"not installed: {error.name}", file=sys.stderr)
        sys.exit(ABSENT)
    digest, numbers = Digest(), {}
    begun = time.monotonic()
    function(arguments.device, steps, digest, numbers)
    ended = time.monotonic()
    return {
        "workload": arguments.name,
        "device": arguments.device,
        "steps": steps,
        "digest": digest.hex(),
        "outputs": digest.outputs,
        "bytes": digest.bytes,
        "numbers": numbers,
        "seconds": round(ended - begun, 3),
        "total_seconds": round(ended - started, 3),
        "versions": package_versions(),
    }


if __name__ == "__main__":
    main()
