"""CuPy: its memory pool, runtime-compiled kernels, cuBLAS, cuFFT, sorting and streams."""

import cupy as cp

WAVE = cp.RawKernel(
    r"""
extern "C" __global__
void wave(const float* x, float* y, float k, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaf(k, x[i], sinf(x[i]));
}
""",
    "wave",
)
MIX = cp.ElementwiseKernel("uint32 x", "uint32 y", "y = (x ^ (x >> 15)) * 2246822519u", "mix")


def mixed(device, steps, digest, numbers):
    """Every result counts. Sums and scans are over integers, so that their order is no matter."""
    if device != "cuda":
        raise SystemExit("CuPy has no device but the GPU")
    size = 1 << 18
    numbers["total"] = []
    for i in range(steps):
        x = cp.arange(size, dtype=cp.float32) / size + i
        y = cp.empty_like(x)
        WAVE(((size + 255) // 256,), (256,), (x, y, cp.float32(0.5), cp.uint32(size)))
        digest.array(f"wave{i}", y.get())

        square = y.reshape(512, 512)
        with cp.cuda.Stream(non_blocking=True) as side:
            hashed = MIX(cp.arange(size, dtype=cp.uint32) + cp.uint32(i))
            side.synchronize()
        digest.array(f"product{i}", (square @ square.T).get())
        digest.array(f"transform{i}", cp.fft.rfft(y).get())
        digest.array(f"sorted{i}", cp.sort(hashed).get())
        digest.array(f"scan{i}", cp.cumsum(hashed, dtype=cp.uint64).get())
        numbers["total"].append(int(hashed.sum(dtype=cp.uint64)))
    cp.get_default_memory_pool().free_all_blocks()
