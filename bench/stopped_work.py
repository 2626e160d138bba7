#!/usr/bin/env python3
"""One program of the measurement with programs that are stopped; it knows nothing of Baton.

    baton run -- python3 bench/stopped_work.py adamw --answers 3

runs a server or a training of `loads`, or `pieces`: memory of the driver API, of which each step
writes one piece and adds up all; or `pair`, which shares memory with a child. It reads commands
from stdin, one per line, and answers each with one JSON line on the descriptor that --answers
names:

    go        begins a step as soon as the last is done, and after a gap, until `end`: {}
    end       {"steps": how many since `go`}
    steps N   so many steps: {"steps"}
    told      of all steps so far, in order: {"began": seconds, "ms", "digests"}
    finish    a digest of what is left at the end: {"digest"}
    stick     `pieces` only: begins a kernel that waits for the program, and has a thread free
              memory, which waits for that: {}
    release   tells the kernel to end: {"right": whether it did, after a while}
    unstick   the same, and waits for the thread: {"right"}
    quit      ends

The first answer comes unasked, when a few steps are done: {"pid", "bytes": of device memory}.
"""

import os
import sys
import threading
import time
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p

from loads import SERVED, SHARED
from loads.digest import Digest
from loads.driver_spinning import DEVICEMAP
from loads.worker import Worker, serve

WARM_UP = 3
PIECES, PAIR = "pieces", "pair"
LOADS = {**SHARED, **SERVED, PIECES: ("driver_pieces", "Pieces"), PAIR: ("torch_pair", "pair")}
MIB = 1 << 20
# Seconds in which a kernel ends that may, once its program has the GPU.
PATIENCE = 20


class Served:
    """A server; the digest of a step is that of its outputs."""

    def __init__(self, build, arguments):
        self.service = build(arguments.device, arguments.size)
        self.outputs = None

    def step(self, number):
        """One request."""
        self.outputs = self.service.request(number)

    def digest(self):
        """The digest of the last step's outputs."""
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
        """The digest of all steps so far."""
        return self.sum.hex()


class Memory:
    """Pieces of device memory, and a way to be stuck in the driver."""

    def __init__(self, build, arguments):
        self.pieces, self.sum, self.seed = build(), Digest(), arguments.seed
        size = arguments.piece * MIB
        self.pieces.allocate(arguments.megabytes * MIB // size, size)
        self.pieces.write_all(self.seed)
        self.words, self.mapped, self.thread = None, None, None

    def step(self, number):
        """Writes one piece, adds up all."""
        self.pieces.write(number % len(self.pieces.at), self.seed + 31 * number)
        self.sum.raw(f"sums{number}", self.pieces.add_up())

    def digest(self):
        """The digest of all steps so far."""
        return self.sum.hex()

    def finish(self):
        """Every piece as it is at the end."""
        self.sum.raw("end", self.pieces.add_up())

    def bytes(self):
        """Its device memory."""
        return self.pieces.bytes

    def stick(self):
        """A thread that waits for a kernel that waits for us."""
        session = self.pieces.session
        call = session.cuda.by_name
        if self.words is None:
            host, self.mapped = c_void_p(), c_uint64()
            call("cuMemHostAlloc", byref(host), c_size_t(8), c_uint(DEVICEMAP))
            call("cuMemHostGetDevicePointer_v2", byref(self.mapped), host, c_uint(0))
            self.words = (c_uint * 2).from_address(host.value)
        self.words[:] = 0, 0
        piece = session.allocate(self.pieces.piece_bytes)
        seen = c_uint64(self.mapped.value + 4)
        session.launch("spin_on_flag", 1, seen, self.mapped, c_uint(1))

        def free():
            call("cuCtxSetCurrent", session.context)
            session.free(piece)

        self.thread = threading.Thread(target=free, daemon=True)
        self.thread.start()
        # It shall have had the time to get there.
        self.thread.join(0.05)
        return {}

    def release(self):
        """Lets the kernel end, which says so where we see it without a call."""
        self.words[0] = 1
        end = time.monotonic() + PATIENCE
        while not self.words[1] and time.monotonic() < end:
            time.sleep(0.001)
        return {"right": self.words[1] == 1}

    def unstick(self):
        """Ends it all."""
        right = self.release()
        self.thread.join()
        return right


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
        """The digest of all steps, once they have ended."""
        self.load.finish()
        return {"digest": self.load.digest()}

    def stick(self):
        """See above."""
        return self.load.stick()

    def release(self):
        """See above."""
        return self.load.release()

    def unstick(self):
        """See above."""
        return self.load.unstick()


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
    serve(program, worker.answer, sys.stdin, program.gap)


if __name__ == "__main__":
    main()
