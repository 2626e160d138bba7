"""Kernels that last as long as they are told to, by CuPy; some until the program ends them."""

import time

import cupy
import numpy

from loads.spinning import FACTOR, TERM, is_right

# Enough work to fill any GPU: so many blocks of so many threads for each of its processors.
BLOCKS, THREADS = 2, 1024
# A round of so many steps takes an H200 about half a millisecond when all of it is full.
STEPS = 1 << 14
# And for a kernel that takes a few microseconds.
FEW_BLOCKS, FEW_THREADS, FEW_STEPS = 8, 128, 64

# host[0] ends a kernel without a limit; host[1] is how many rounds the first block has made.
# Not unrolled: the compiler would make one step of several.
SPIN = cupy.RawKernel(
    f"""
extern "C" __global__ void spin(unsigned* state, unsigned* rounds, volatile unsigned* host,
                                unsigned steps, unsigned limit) {{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = state[i], before = rounds[blockIdx.x], now = before;
    bool enough;
    do {{
        #pragma unroll 1
        for (unsigned step = 0; step < steps; step++) x = x * {FACTOR}u + {TERM}u;
        state[i] = x;
        now++;
        if (i == 0) host[1] = now;
        enough = limit ? now - before == limit : threadIdx.x == 0 && host[0];
    }} while (!__syncthreads_or(enough));
    if (threadIdx.x == 0) rounds[blockIdx.x] = now;
}}
""",
    "spin",
)


class Spin:
    """Kernels that go on where the last one ended; `large` ones fill the GPU."""

    def __init__(self, large):
        runtime = cupy.cuda.runtime
        self.blocks, self.threads, self.steps = FEW_BLOCKS, FEW_THREADS, FEW_STEPS
        if large:
            count = runtime.deviceGetAttribute(runtime.cudaDevAttrMultiProcessorCount, 0)
            self.blocks, self.threads, self.steps = BLOCKS * count, THREADS, STEPS
        self.state = cupy.asarray(numpy.arange(self.blocks * self.threads, dtype=numpy.uint32))
        self.rounds = cupy.zeros(self.blocks, dtype=numpy.uint32)
        memory = cupy.cuda.PinnedMemory(8, runtime.hostAllocMapped)
        # The GPU knows it by the same address.
        self.pinned = cupy.cuda.PinnedMemoryPointer(memory, 0)
        self.host = numpy.frombuffer(self.pinned, numpy.uint32, 2)
        self.host[:] = 0

    def launch(self, rounds):
        """A kernel of so many rounds."""
        numbers = numpy.uint64(self.pinned.ptr), numpy.uint32(self.steps), numpy.uint32(rounds)
        SPIN((self.blocks,), (self.threads,), (self.state, self.rounds, *numbers))

    def begin(self):
        """A kernel without end; returns when it runs."""
        before, self.host[0] = self.done(), 0
        self.launch(0)
        while self.done() == before:
            time.sleep(0.001)

    def release(self):
        """Ends it, when it runs again."""
        self.host[0] = 1

    def done(self):
        """How many rounds there have been."""
        return int(self.host[1])

    def wait(self):
        """Waits for all that was launched."""
        cupy.cuda.Stream.null.synchronize()

    def is_right(self):
        """True if all that was launched has computed the right results."""
        return is_right(self.state.get().tolist(), self.rounds.get().tolist(), self.steps)
