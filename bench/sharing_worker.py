#!/usr/bin/env python3
"""One program of the sharing measurement: gets ready, and runs when told.

Reads commands from stdin, one per line, and answers each with one JSON line on the descriptor that
--answers names:

    steps N      runs N steps: what they computed and how long they took
    seconds S    the same, as many steps as fit into so many seconds
    quit         ends

The answer holds {steps, seconds, digest, step_digests, outputs, bytes, numbers, peak_bytes}.
`digest` is over every output of every step and what is left at the end (weights), `step_digests`
over what there was after each step. One such command per life. The first answer, unasked:
{"ready": true, "libraries": [...]}. The program knows nothing of Baton.
"""

import argparse
import json
import os
import sys
import time

from common.programs import ABSENT, mapped_libraries
from loads import SETTINGS, SHARED, load_shared
from loads.digest import Digest


def run(step, finish, digest, numbers, peak_bytes, steps=None, seconds=None):
    """Runs the steps and gives the answer's object."""
    step_digests = []
    started = time.perf_counter()
    while (
        len(step_digests) < steps if steps is not None else time.perf_counter() - started < seconds
    ):
        step(len(step_digests))
        step_digests.append(digest.hex()[:16])
    finish()
    return {
        "steps": len(step_digests),
        "seconds": time.perf_counter() - started,
        "digest": digest.hex(),
        "step_digests": step_digests,
        "outputs": digest.outputs,
        "bytes": digest.bytes,
        "numbers": numbers,
        "peak_bytes": peak_bytes(),
    }


def main():
    """Command line, and the loop over commands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", choices=SHARED)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--size", default="full", choices=["full", "small"])
    parser.add_argument("--answers", type=int, required=True, help="descriptor for the answers")
    parser.add_argument("--watch", nargs="*", default=[], help="libraries to report if loaded")
    arguments = parser.parse_args()
    answers = os.fdopen(arguments.answers, "w", buffering=1)
    os.environ.update(SETTINGS)
    try:
        build = load_shared(arguments.workload)
    except ModuleNotFoundError as error:
        print(f"not installed: {error.name}", file=sys.stderr)
        sys.exit(ABSENT)
    digest, numbers = Digest(), {}
    step, finish, peak_bytes = build(arguments.device, digest, numbers, arguments.size)
    libraries = sorted(mapped_libraries(os.getpid(), arguments.watch))
    print(json.dumps({"ready": True, "libraries": libraries}), file=answers)
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "quit":
            break
        how = {"steps": int(rest[0])} if command == "steps" else {"seconds": float(rest[0])}
        print(json.dumps(run(step, finish, digest, numbers, peak_bytes, **how)), file=answers)


if __name__ == "__main__":
    main()
