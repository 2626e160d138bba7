"""Device memory in many pieces through the driver API: written, added up, given back.

For tenants of the transfer measurement, and as a workload that shares a GPU without PyTorch. Every
piece holds a pattern of its own. It is added up by the granule of 2 MiB, the smallest thing that a
mover could lose, leave out or take for another.
"""

from ctypes import c_uint, c_uint64

from loads.driver_ctypes import DriverError, Session

GRANULE = 2 << 20
# Enough to fill a large GPU; the simulated one does not care.
MOST_BLOCKS = 2048
OUT_OF_MEMORY = 2


class Pieces:
    """The pieces of one program."""

    def __init__(self):
        self.session = Session()
        self.at, self.bytes = [], 0
        self.piece_bytes = 0
        self.sums, self.sums_count = None, 0

    def allocate(self, count, piece_bytes):
        """`count` pieces more; all or none, and then DriverError with code OUT_OF_MEMORY."""
        self.piece_bytes = piece_bytes
        new = []
        try:
            for _ in range(count):
                new.append(self.session.allocate(piece_bytes))
        except DriverError:
            for address in new:
                self.session.free(address)
            raise
        self.at += new
        self.bytes += count * piece_bytes

    def free(self):
        """All pieces."""
        for address in self.at:
            self.session.free(address)
        self.at, self.bytes = [], 0

    def write(self, which, seed):
        """A pattern into one piece, by a kernel."""
        words = self.piece_bytes // 4
        arguments = (self.at[which], c_uint(seed & 0xFFFFFFFF), c_uint(words))
        self.session.launch("fill_hash", words, *arguments, most_blocks=MOST_BLOCKS)

    def write_all(self, seed):
        """A pattern into every piece, no two alike."""
        for which in range(len(self.at)):
            self.write(which, seed * 1_000_003 + which * 7919)
        self.session.wait()

    def granules(self):
        """(address, bytes) of every granule of every piece."""
        for address in self.at:
            for start in range(0, self.piece_bytes, GRANULE):
                size = min(GRANULE, self.piece_bytes - start)
                yield c_uint64(address.value + start), size

    def make_room(self, count):
        """Device memory for the sums of so many granules."""
        if count > self.sums_count:
            if self.sums is not None:
                self.session.free(self.sums)
            self.sums_count = count
            self.sums = self.session.allocate(8 * count)

    def add_up(self):
        """The sums of the words of every granule: an array, filled by a kernel each."""
        granules = list(self.granules())
        self.make_room(len(granules))
        self.session.fill(self.sums, 0, 2 * self.sums_count)
        for i, (address, size) in enumerate(granules):
            slot = c_uint64(self.sums.value + 8 * i)
            self.session.launch("sum_u32", size // 4, slot, address, c_uint(size // 4))
        return self.session.download(self.sums, "Q", len(granules))

    def touch(self):
        """The least work that needs the program's memory; changes none of the pieces."""
        self.session.fill(self.sums, 0, 1)
        self.session.wait()

    def close(self):
        """Gives everything back."""
        self.session.close()


def workload(megabytes, seed):
    """A workload for sharing: `build(device, digest, size)` of so many MiB at full size."""

    def build(device, digest, numbers, size):
        if device != "cuda":
            raise SystemExit("this workload calls the CUDA driver")
        pieces = Pieces()
        piece = (2 << 20) if size == "small" else (64 << 20)
        total = (megabytes << 20) // (64 if size == "small" else 1)
        pieces.allocate(total // piece, piece)
        pieces.write_all(seed)
        numbers["megabytes"] = pieces.bytes >> 20

        def step(i):
            pieces.write(i % len(pieces.at), seed + 31 * i)
            sums = pieces.add_up()
            digest.raw(f"sums{i}", sums)

        def finish():
            start = pieces.session.download(pieces.at[0], "I", 1 << 14)
            digest.raw("start of the first piece", start)

        return step, finish, lambda: pieces.bytes

    return build


one = workload(6144, 1)
two = workload(5120, 2)
three = workload(4096, 3)
