#!/usr/bin/env python3
"""Suspends and resumes another process's CUDA work by the driver's checkpoint API: the yardstick.

    python3 bench/switch_checkpoint.py PID --answers 3

Reads commands from stdin, one per line, and answers each with one JSON line on the descriptor that
--answers names, {"ms": {call: how long it took}} or {"error": CODE, "call": NAME}:

    suspend    lock and checkpoint: all device memory goes to the host, the GPU is given up
    resume     restore and unlock
    quit       ends

Unlike the controller of a benchmark, this is a process that the driver knows.
"""

import argparse
import ctypes
import json
import os
import sys
import time

CALLS = {"suspend": ("Lock", "Checkpoint"), "resume": ("Restore", "Unlock")}


class Arguments(ctypes.Structure):
    """CUcheckpoint*Args, all of them 64 bytes; zero: no time limit, the same GPU."""

    _fields_ = [("words", ctypes.c_uint64 * 8)]


def carry_out(cuda, pid, command):
    """The answer to one command."""
    took = {}
    for name in CALLS[command]:
        arguments = Arguments()
        started = time.perf_counter()
        code = getattr(cuda, f"cuCheckpointProcess{name}")(pid, ctypes.byref(arguments))
        took[name.lower()] = (time.perf_counter() - started) * 1e3
        if code != 0:
            return {"error": code, "call": name.lower(), "ms": took}
    return {"ms": took}


def main():
    """Command line, and the loop over commands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pid", type=int)
    parser.add_argument("--answers", type=int, required=True, help="descriptor for the answers")
    arguments = parser.parse_args()
    answers = os.fdopen(arguments.answers, "w", buffering=1)
    cuda = ctypes.CDLL("libcuda.so.1")
    if code := cuda.cuInit(0):
        sys.exit(f"cuInit answered {code}")
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        if line.strip() == "quit":
            break
        print(json.dumps(carry_out(cuda, arguments.pid, line.strip())), file=answers)


if __name__ == "__main__":
    main()
