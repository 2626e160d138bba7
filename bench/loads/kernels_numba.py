"""Numba: a kernel with shared memory and an element-wise one, compiled at run time."""

import numpy
from numba import cuda, float32

THREADS = 256


@cuda.jit
def scale(x, k, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = k * x[i] + x[i] * x[i]


@cuda.jit
def block_sums(x, out):
    tile = cuda.shared.array(THREADS, float32)
    i = cuda.grid(1)
    here = cuda.threadIdx.x
    tile[here] = x[i] if i < x.size else 0.0
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if here < half:
            tile[here] += tile[here + half]
        cuda.syncthreads()
        half //= 2
    if here == 0:
        out[cuda.blockIdx.x] = tile[0]


def mixed(device, steps, digest, numbers):
    """Both kernels' outputs count."""
    if device != "cuda":
        raise SystemExit("Numba's CUDA kernels need the GPU")
    size = 1 << 18
    blocks = size // THREADS
    for i in range(steps):
        x = numpy.linspace(0, 1 + i, size, dtype=numpy.float32)
        stream = cuda.stream()
        on_device = cuda.to_device(x, stream=stream)
        out = cuda.device_array_like(on_device, stream=stream)
        scale[blocks, THREADS, stream](on_device, numpy.float32(0.25), out)
        sums = cuda.device_array(blocks, dtype=numpy.float32, stream=stream)
        block_sums[blocks, THREADS, stream](out, sums)
        host = sums.copy_to_host(stream=stream)
        stream.synchronize()
        digest.array(f"scaled{i}", out.copy_to_host())
        digest.array(f"sums{i}", host)
    numbers["last_sum"] = float(host[-1])
