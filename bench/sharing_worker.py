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

import sys
import time

from loads import SHARED
from loads.digest import Digest
from loads.worker import Worker


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
    """The loop over commands."""
    worker = Worker(__doc__, "workload", SHARED)
    arguments = worker.arguments
    digest, numbers = Digest(), {}
    step, finish, peak_bytes = worker.build(arguments.device, digest, numbers, arguments.size)
    worker.ready()
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "quit":
            break
        how = {"steps": int(rest[0])} if command == "steps" else {"seconds": float(rest[0])}
        worker.answer(run(step, finish, digest, numbers, peak_bytes, **how))


if __name__ == "__main__":
    main()
