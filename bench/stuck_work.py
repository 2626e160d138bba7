#!/usr/bin/env python3
"""The programs of the measurement with tenants that are stuck; they know nothing of Baton.

    baton run --class batch -- python3 bench/stuck_work.py cupy --role endless --answers 3

Reads commands from stdin, one per line, and answers each with one JSON line on the descriptor that
--answers names:

    go                begins: `endless` a kernel that fills the GPU until it is ended, `steady` one
                      of a few milliseconds after the other
    mark              {"done": rounds of the endless kernel, or how many of the others have ended,
                      "at": when, in seconds}
    end               ends the endless kernel, or begins no other; {"right": what was computed}
    requests N GAP    `small`: N small kernels, each of them waited for, and GAP seconds after each:
                      {"ms": of each, "right": what was computed}
    quit              ends

The first answer comes unasked, when the program is ready: {"pid", "kernel_ms": the least of one}.
"""

import os
import sys
import time

from loads import SPINNING
from loads.worker import Worker, serve

WARM_UP = 20
# Of a kernel that takes a few milliseconds, and how many of them are queued at once.
ROUNDS, QUEUED = 8, 4


class Endless:
    """One kernel that does not end."""

    runs = False
    rounds = ROUNDS

    def __init__(self, spin):
        self.spin = spin

    def go(self):
        """Begins it."""
        self.spin.begin()
        return {}

    def mark(self):
        """How far it is."""
        return {"done": self.spin.done(), "at": time.perf_counter()}

    def end(self):
        """Ends it."""
        self.spin.release()
        self.spin.wait()
        return {"right": self.spin.is_right()}


class Steady:
    """Kernels, a few of them queued, again and again."""

    rounds = ROUNDS

    def __init__(self, spin):
        self.spin, self.runs, self.steps = spin, False, 0

    def step(self):
        """The next few."""
        for _ in range(QUEUED):
            self.spin.launch(ROUNDS)
        self.spin.wait()
        self.steps += QUEUED

    def go(self):
        """Begins."""
        self.runs = True
        return {}

    def mark(self):
        """How many have ended."""
        return {"done": self.steps, "at": time.perf_counter()}

    def end(self):
        """Begins no other."""
        self.runs = False
        return {"right": self.spin.is_right()}


class Small:
    """Requests of one small kernel each."""

    runs = False
    rounds = 1

    def __init__(self, spin):
        self.spin = spin

    def requests(self, count, gap):
        """So many."""
        found = []
        for _ in range(int(count)):
            found.append(timed(self.spin, 1))
            time.sleep(float(gap))
        return {"ms": found, "right": self.spin.is_right()}


ROLES = {"endless": Endless, "steady": Steady, "small": Small}


def timed(spin, rounds):
    """Milliseconds of one kernel."""
    start = time.perf_counter()
    spin.launch(rounds)
    spin.wait()
    return (time.perf_counter() - start) * 1e3


def main():
    """Gets ready, serves, and leaves no kernel behind."""
    worker = Worker(__doc__, "kernels", SPINNING, role={"choices": ROLES, "required": True})
    role = worker.arguments.role
    spin = worker.build(role != "small")
    program = ROLES[role](spin)
    least = min(timed(spin, program.rounds) for _ in range(WARM_UP))
    worker.ready(pid=os.getpid(), kernel_ms=least, right=spin.is_right())
    try:
        serve(program, worker.answer, sys.stdin)
    finally:
        spin.release()


if __name__ == "__main__":
    main()
