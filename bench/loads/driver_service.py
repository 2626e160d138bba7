"""A server and a training that call the CUDA driver: they run on the simulated one too."""

from ctypes import c_uint

from loads.driver_ctypes import DriverError
from loads.driver_pieces import OUT_OF_MEMORY, Pieces
from loads.service import INPUTS, Service, Training

PIECE = 4 << 20
PIECES = 8


def memory_for(device, count):
    """So many pieces with patterns."""
    if device != "cuda":
        raise SystemExit("this workload calls the CUDA driver")
    pieces = Pieces()
    pieces.allocate(count, PIECE)
    pieces.write_all(1)
    return pieces


def driver(device, size):
    """Adds up all its memory, of which each request writes one piece anew."""
    pieces = memory_for(device, PIECES if size == "small" else 16 * PIECES)

    def request(i):
        pieces.write(0, 1 + i % INPUTS)
        return [pieces.add_up()]

    def feed(digest, name, value):
        digest.raw(name, value)

    return Service(request, feed, pieces.bytes - PIECE, memory=lambda: pieces.bytes)


def driver_training(device, size):
    """Writes one piece after the other."""
    pieces = memory_for(device, PIECES if size == "small" else 16 * PIECES)
    pieces.make_room(1)

    def step(i):
        pieces.write(i % len(pieces.at), i)
        pieces.session.launch("sum_u32", 1024, pieces.sums, pieces.at[0], c_uint(1024))
        pieces.session.wait()

    def fill(count):
        taken = 0
        try:
            while taken + PIECE <= count:
                pieces.allocate(1, PIECE)
                pieces.write(len(pieces.at) - 1, taken)
                taken += PIECE
        except DriverError as error:
            if error.code != OUT_OF_MEMORY:
                raise
        pieces.session.wait()
        return taken

    return Training(step, pieces.session.wait, fill)
