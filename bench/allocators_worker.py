#!/usr/bin/env python3
"""One program of the allocators measurement: holds memory by one allocator, and checks it when told.

Reads commands from stdin, one per line, and answers each with one JSON line on the descriptor that
--answers names:

    fill         gets its memory and writes it
    rounds N     checks all of it and writes it anew, N times
    quit         ends

The program knows nothing of Baton.
"""

import argparse
import json
import os
import sys
import time

from loads.filled import ALLOCATORS


def main():
    """The loop over commands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("allocator", choices=ALLOCATORS)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--block", type=int)
    parser.add_argument("--answers", type=int, required=True, help="descriptor for the answers")
    arguments = parser.parse_args()
    answers = os.fdopen(arguments.answers, "w", buffering=1)
    holder, settings = ALLOCATORS[arguments.allocator]
    os.environ.update(settings)
    memory = holder(arguments.bytes, **({"block": arguments.block} if arguments.block else {}))
    print(json.dumps({"ready": True}), file=answers)
    turn = 0
    for line in sys.stdin:
        command, *rest = line.split()
        started, wrong = time.perf_counter(), 0
        if command == "quit":
            break
        if command == "fill":
            memory.fill()
        else:
            for _ in range(int(rest[0])):
                wrong += memory.round(turn)
                turn += 1
        seconds = time.perf_counter() - started
        print(json.dumps({"wrong": wrong, "rounds": turn, "seconds": seconds}), file=answers)


if __name__ == "__main__":
    main()
