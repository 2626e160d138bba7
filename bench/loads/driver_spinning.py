"""The same by calls of the driver and with the examples' kernels: on the simulated driver too.

Only one thread of the endless kernel waits: it does not fill the GPU.
"""

import time
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p

from loads.driver_ctypes import Session, murmur_finalizer

DEVICEMAP = 2
WORDS = 64
# A kernel of this many takes a simulated GPU about a millisecond.
A_ROUND = 10_000


class Spin:
    """Kernels that last as long as they are told to; a hash of how many there were is kept."""

    def __init__(self, large):
        self.session, self.large, self.made = Session(), large, 0
        host, self.flag = c_void_p(), c_uint64()
        call = self.session.cuda.by_name
        call("cuMemHostAlloc", byref(host), c_size_t(4), c_uint(DEVICEMAP))
        call("cuMemHostGetDevicePointer_v2", byref(self.flag), host, c_uint(0))
        self.word = c_uint.from_address(host.value)
        self.word.value = 0
        self.work, self.hashes = (self.session.allocate(4 * WORDS) for _ in range(2))
        self.seen = self.session.allocate(4)
        self.session.fill(self.work, 0, WORDS)
        self.session.fill(self.seen, 0, 1)

    def hash(self):
        """Launches the hashes that are to be found after all that was launched so far."""
        self.made += 1
        self.session.launch("fill_hash", WORDS, self.hashes, c_uint(self.made), c_uint(WORDS))

    def launch(self, rounds):
        """A kernel of so many rounds."""
        if self.large:
            length = c_uint(rounds * A_ROUND)
            self.session.launch("busy", WORDS, self.work, c_uint(WORDS), length)
        self.hash()

    def begin(self):
        """A kernel without end; returns when it has had the time to begin."""
        self.word.value = 0
        self.session.launch("spin_on_flag", 1, self.seen, self.flag, c_uint(1))
        self.hash()
        time.sleep(0.05)

    def release(self):
        """Ends it, when it runs again."""
        self.word.value = 1

    def done(self):
        """Nothing is known of it meanwhile."""
        return 0

    def wait(self):
        """Waits for all that was launched."""
        self.session.wait()

    def is_right(self):
        """True if all that was launched has computed the right results."""
        hashes = self.session.download(self.hashes, "I", WORDS).tolist()
        seen = self.session.download(self.seen, "I", 1)[0]
        wanted = [murmur_finalizer(i + self.made) for i in range(WORDS)]
        return hashes == wanted and seen == self.word.value
