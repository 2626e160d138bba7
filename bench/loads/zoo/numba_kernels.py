"""Kernels in Python, compiled by Numba."""

import numpy
from numba import cuda, float32

from loads.kernels_numba import THREADS, scale

SIZE = 1 << 20


@cuda.jit
def reversed_tiles(x, out):
    tile = cuda.shared.array(THREADS, float32)
    i = cuda.grid(1)
    here = cuda.threadIdx.x
    tile[here] = x[i]
    cuda.syncthreads()
    out[i] = tile[THREADS - 1 - here] * float32(0.5) + tile[0] * float32(0.25)


@cuda.jit
def count_kernel(x, counts):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(counts, int(x[i] * 1000) % counts.size, 1)


def needs_gpu(device):
    """These kernels run nowhere else."""
    if device != "cuda":
        raise SystemExit("Numba's kernels need the GPU")


def elementwise(device):
    """Element-wise."""
    needs_gpu(device)
    x = cuda.to_device(numpy.linspace(0, 0.4, SIZE, dtype=numpy.float32))
    out = cuda.device_array_like(x)
    while True:
        for _ in range(100):
            scale[SIZE // THREADS, THREADS](x, numpy.float32(0.6), out)
            x, out = out, x
        yield x.copy_to_host()[:4096]


def shared_memory(device):
    """Tiles in shared memory, on a stream."""
    needs_gpu(device)
    stream = cuda.stream()
    x = cuda.to_device(numpy.linspace(0, 1, SIZE, dtype=numpy.float32), stream=stream)
    out = cuda.device_array_like(x, stream=stream)
    while True:
        for _ in range(100):
            reversed_tiles[SIZE // THREADS, THREADS, stream](x, out)
            x, out = out, x
        host = x.copy_to_host(stream=stream)
        stream.synchronize()
        yield host[:4096]


def atomics(device):
    """Counts by atomic additions of integers."""
    needs_gpu(device)
    x = cuda.to_device(numpy.linspace(0, 9, SIZE, dtype=numpy.float32))
    counts = cuda.to_device(numpy.zeros(64, dtype=numpy.int64))
    while True:
        for _ in range(100):
            count_kernel[SIZE // THREADS, THREADS](x, counts)
        yield counts.copy_to_host()
