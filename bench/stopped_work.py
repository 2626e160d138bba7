#!/usr/bin/env python3
"""One program of the measurement with programs that are stopped; it knows nothing of Baton.

    baton run -- python3 bench/stopped_work.py adamw --answers 3

runs a server or a training of `loads`, or `pieces`: memory of the driver API, of which each step
writes one piece and adds up all. It reads commands from stdin, one per line, and answers each with
one JSON line on the descriptor that --answers names:

    go        begins a step as soon as the last is done, and after a gap, until `end`: {}
    end       {"steps": how many since `go`}
    steps N   so many steps: {"steps"}
    told      of all steps so far, in order: {"began": seconds, "ms", "digests"}
    finish    a digest of what is left at the end: {"digest"}
    stick     `pieces` only: begins a kernel that waits for the program, and has a thread fill the
              queue behind it and wait for a copy; answers when that has had the time to get there:
              {"inside": whether that thread is not back}
    inside    the same, without beginning anything
    unstick   ends the kernel and waits for that thread: {"right": what the kernel saw}
    quit      ends

The first answer comes unasked, when a few steps are done: {"pid", "bytes": of device memory}.
"""

import os
import select
import sys
import threading
import time
from ctypes import c_uint

from loads import SERVED, SHARED, found
from loads.digest import Digest
from loads.worker import Worker

WARM_UP = 3
PIECES = "pieces"
LOADS = {**SHARED, **SERVED, PIECES: ("driver_pieces", "Pieces")}
# More small kernels than any queue takes.
MANY = 4096
MIB = 1 << 20


class Served:
    """A server; the digest of a step is that of its outputs."""

    def __init__(self, build, arguments):
        self.service = build(arguments.device, arguments.size)
        self.outputs = None

    def step(self, number):
        """One request."""
        self.outputs = self.service.request(number)

    def digest(self):
        """What the last step gave."""
        return self.service.digest(self.outputs)

    def finish(self):
        """Nothing is left but what the outputs say."""

    def bytes(self):
        """Its device memory."""
        return self.service.memory()


class Shared:
    """A load whose steps feed one digest."""

    def __init__(self, build, arguments):
        self.sum = Digest()
        parts = build(arguments.device, self.sum, {}, arguments.size)
        self.step, self.finish, self.bytes = parts

    def digest(self):
        """What all steps gave so far."""
        return self.sum.hex()


class Memory:
    """Pieces of device memory, and a way to be stuck in the driver."""

    def __init__(self, build, arguments):
        self.pieces, self.sum, self.seed = build(), Digest(), arguments.seed
        size = arguments.piece * MIB
        self.pieces.allocate(arguments.megabytes * MIB // size, size)
        self.pieces.write_all(self.seed)
        self.spin, self.thread = None, None

    def step(self, number):
        """Writes one piece, adds up all."""
        self.pieces.write(number % len(self.pieces.at), self.seed + 31 * number)
        self.sum.raw(f"sums{number}", self.pieces.add_up())

    def digest(self):
        """What all steps gave so far."""
        return self.sum.hex()

    def finish(self):
        """Every piece as it is at the end."""
        self.sum.raw("end", self.pieces.add_up())

    def bytes(self):
        """Its device memory."""
        return self.pieces.bytes

    def stick(self):
        """A thread that waits in the driver for a kernel that waits for us."""
        if self.spin is None:
            self.spin = found(("driver_spinning", "Spin"))(False)
        spin = self.spin
        spin.begin()

        def wait():
            for _ in range(MANY):
                spin.session.launch("fill_hash", 1, spin.work, c_uint(0), c_uint(1))
            spin.session.download(spin.work, "I", 1)

        def bound():
            spin.session.cuda.by_name("cuCtxSetCurrent", spin.session.context)
            wait()

        self.thread = threading.Thread(target=bound, daemon=True)
        self.thread.start()
        self.thread.join(0.25)
        return self.inside()

    def inside(self):
        """Whether that thread is not back."""
        return {"inside": self.thread is not None and self.thread.is_alive()}

    def unstick(self):
        """Ends it."""
        self.spin.release()
        self.thread.join()
        self.spin.wait()
        return {"right": self.spin.is_right()}


def kind(name):
    """The class above for a load."""
    return Memory if name == PIECES else Served if name in SERVED else Shared


class Program:
    """The commands."""

    def __init__(self, load, gap):
        self.load, self.gap = load, gap
        self.runs, self.began, self.ms, self.digests, self.since = False, [], [], [], 0

    def step(self):
        """The next one."""
        number = len(self.ms)
        start = time.perf_counter()
        self.load.step(number)
        self.began.append(round(start, 6))
        self.ms.append(round((time.perf_counter() - start) * 1e3, 3))
        self.digests.append(self.load.digest()[:16])

    def go(self):
        """Begins."""
        self.runs, self.since = True, len(self.ms)
        return {}

    def end(self):
        """Begins no other."""
        self.runs = False
        return {"steps": len(self.ms) - self.since}

    def steps(self, count):
        """So many."""
        for _ in range(int(count)):
            self.step()
        return {"steps": int(count)}

    def told(self):
        """All so far."""
        return {"began": self.began, "ms": self.ms, "digests": self.digests}

    def finish(self):
        """What is left."""
        self.load.finish()
        return {"digest": self.load.digest()}

    def stick(self):
        """See above."""
        return self.load.stick()

    def inside(self):
        """See above."""
        return self.load.inside()

    def unstick(self):
        """See above."""
        return self.load.unstick()


def serve(program, answer, lines):
    """The loop over steps and commands."""
    while True:
        # One command at a time is sent, so that none waits in a buffer where `select` sees it not.
        if program.runs and not select.select([lines], [], [], program.gap)[0]:
            program.step()
            continue
        command, *words = lines.readline().split() or ["quit"]
        if command == "quit":
            break
        answer(getattr(program, command)(*words))


def main():
    """Gets ready and serves."""
    number = {"type": int, "default": 0}
    worker = Worker(
        __doc__,
        "load",
        LOADS,
        gap={"type": float, "default": 0, "help": "seconds after each step of `go`"},
        megabytes={**number, "help": "of `pieces`"},
        piece={**number, "default": 16, "help": "MiB of each"},
        seed={**number, "default": 1, "help": "of what they hold"},
    )
    arguments = worker.arguments
    load = kind(arguments.load)(worker.build, arguments)
    program = Program(load, arguments.gap)
    program.steps(WARM_UP)
    worker.ready(pid=os.getpid(), bytes=load.bytes())
    serve(program, worker.answer, sys.stdin)


if __name__ == "__main__":
    main()
