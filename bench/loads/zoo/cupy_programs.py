"""CuPy: its pools, libraries, and kernels that are compiled at run time."""

import cupy as cp

WAVE = r"""
extern "C" __global__ void wave(const float* x, float* y, float k, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaf(k, x[i], sinf(x[i]));
}
"""
MODULE = r"""
__constant__ float factors[16];
__device__ unsigned long long rounds;

extern "C" __global__ void scale(float* x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) rounds += 1;
    if (i < n) x[i] = x[i] * factors[i % 16] + 0.01f;
}

template <typename T> __global__ void tiles(const T* x, T* y) {
    extern __shared__ unsigned char space[];
    T* tile = reinterpret_cast<T*>(space);
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = x[i];
    __syncthreads();
    y[i] = tile[blockDim.x - 1 - threadIdx.x] + tile[0] * T(0.25);
}
"""


def needs_gpu(device):
    """CuPy knows no other device."""
    if device != "cuda":
        raise SystemExit("CuPy needs the GPU")


def elementwise(device):
    """Arithmetic, reductions and broadcasts over arrays that come and go."""
    needs_gpu(device)
    x = cp.linspace(0, 1, 1 << 21, dtype=cp.float32)
    while True:
        for n in range(20):
            y = cp.sin(x) * cp.roll(x, n) + x[::-1]
            grid = y.reshape(1024, -1)
            x = ((grid - grid.min(axis=1, keepdims=True)) * 0.3).reshape(-1)
            x /= x.max()
        yield x[:4096], x.astype(cp.float64).sum()


def default_pool(device):
    """The usual pool, emptied now and then."""
    for n, outputs in enumerate(elementwise(device)):
        if n % 8 == 7:
            cp.get_default_memory_pool().free_all_blocks()
        yield outputs


def async_pool(device):
    """The driver's stream-ordered pool."""
    needs_gpu(device)
    cp.cuda.set_allocator(cp.cuda.MemoryAsyncPool().malloc)
    yield from elementwise(device)


def no_pool(device):
    """Every array is an allocation of the driver's."""
    needs_gpu(device)
    cp.cuda.set_allocator(None)
    yield from elementwise(device)


def raw_kernel(device):
    """One kernel in CUDA C."""
    needs_gpu(device)
    kernel = cp.RawKernel(WAVE, "wave")
    size = 1 << 22
    x = cp.arange(size, dtype=cp.float32) / size
    y = cp.empty_like(x)
    while True:
        for _ in range(100):
            kernel((size // 256,), (256,), (x, y, cp.float32(0.5), cp.uint32(size)))
            x, y = y, x
        yield x[:: size // 4096]


def raw_module(device):
    """A module with constants, a variable that only its kernel changes, and templates."""
    needs_gpu(device)
    names = ["tiles<float>", "tiles<double>"]
    module = cp.RawModule(code=MODULE, options=("-std=c++17",), name_expressions=names)
    # The names of templates are known once the module has been compiled.
    scale = module.get_function("scale")
    tiles = [module.get_function(name) for name in names]
    factors = cp.linspace(0.9, 0.98, 16, dtype=cp.float32)
    module.get_global("factors").copy_from_device(factors.data, factors.nbytes)
    rounds = cp.ndarray(1, cp.uint64, module.get_global("rounds"))
    size = 1 << 21
    x = [cp.linspace(0, 1, size, dtype=kind) for kind in (cp.float32, cp.float64)]
    while True:
        for _ in range(40):
            scale((size // 256,), (256,), (x[0], cp.uint32(size)))
            for n, kernel in enumerate(tiles):
                y = cp.empty_like(x[n])
                kernel((size // 256,), (256,), (x[n], y), shared_mem=256 * x[n].itemsize)
                x[n] = y * 0.8
        yield rounds, *(array[:4096] for array in x)


def made_kernels(device):
    """ElementwiseKernel, ReductionKernel, and a fused function."""
    needs_gpu(device)
    mix = cp.ElementwiseKernel("uint32 x", "uint32 y", "y = (x ^ (x >> 15)) * 2246822519u", "mix")
    xor = cp.ReductionKernel("uint32 x", "uint32 y", "x", "a ^ b", "y = a", "0", "xor_all")

    @cp.fuse()
    def fused(x, y):
        return (x + y) * cp.uint32(3) ^ x

    x = cp.arange(1 << 21, dtype=cp.uint32)
    while True:
        for _ in range(40):
            x = fused(mix(x), xor(x))
        yield x[:4096], xor(x)


def matrix_products(device):
    """cuBLAS in several types."""
    needs_gpu(device)
    random = cp.random.RandomState(0)
    x = random.standard_normal((1024, 1024)).astype(cp.float32)
    while True:
        for _ in range(20):
            x = x @ x.T
            x /= cp.abs(x).max()
            half = x.astype(cp.float16)
            x += (half @ half).astype(cp.float32) * cp.float32(1e-3)
            batch = cp.matmul(x.reshape(16, 64, 1024), x[:, :64])
        yield x[:64], batch[0]


def solving(device):
    """cuSOLVER: solutions, SVD, eigenvalues, Cholesky, QR."""
    needs_gpu(device)
    x = cp.random.RandomState(0).standard_normal((192, 192))
    while True:
        s = x @ x.T / 192 + cp.eye(192)
        y = cp.linalg.solve(s, x)
        values = cp.linalg.svd(y, compute_uv=False)
        lower = cp.linalg.cholesky(s)
        q, _ = cp.linalg.qr(y + lower)
        x = cp.clip(q * 5 + 0.1 * x, -3, 3)
        yield values, cp.linalg.eigvalsh(s), x[:32]


def fourier(device):
    """cuFFT with plans that are kept."""
    needs_gpu(device)
    x = cp.random.RandomState(0).random_sample((32, 512, 512)).astype(cp.float32)
    while True:
        for _ in range(10):
            spectrum = cp.fft.rfft2(x)
            spectrum *= cp.exp(-cp.abs(spectrum) / 4096)
            x = cp.fft.irfft2(spectrum)
            x /= cp.abs(x).max()
            line = cp.fft.fft(x[0, 0, :375])
        yield x[0], line


def sorting(device):
    """sort, argsort, unique, searchsorted, cumsum over integers."""
    needs_gpu(device)
    x = cp.random.RandomState(0).randint(0, 1 << 30, 1 << 21).astype(cp.int64)
    while True:
        for _ in range(8):
            order = cp.argsort(x)
            ordered = cp.sort(x)
            values, counts = cp.unique(ordered >> 22, return_counts=True)
            places = cp.searchsorted(ordered, x[:4096])
            x = (x * 69069 + order + cp.cumsum(x) + counts.max()) % (1 << 30)
        yield ordered[:4096], values, places


def random_numbers(device):
    """Generators of both kinds."""
    needs_gpu(device)
    old, new = cp.random.RandomState(0), cp.random.default_rng(0)
    while True:
        for _ in range(20):
            normal = old.standard_normal(1 << 20)
            chosen = old.permutation(1 << 14)
            real = new.random(1 << 20)
            whole = new.integers(0, 1000, 1 << 18)
        yield normal[:4096], chosen[:4096], real[:4096], whole[:4096]


def sparse_matrices(device):
    """cuSPARSE: products, transposes, sums."""
    needs_gpu(device)
    from cupyx.scipy import sparse

    random = cp.random.RandomState(0)
    size, entries = 8192, 200_000
    places = [random.randint(0, size, entries) for _ in range(2)]
    values = random.standard_normal(entries)
    matrix = sparse.coo_matrix((values, tuple(places)), shape=(size, size)).tocsr()
    x = random.standard_normal((size, 16))
    while True:
        for _ in range(20):
            x = matrix @ x
            x /= cp.abs(x).max()
        square = (matrix.T @ x)[:64]
        yield x[:64], square


def streams(device):
    """Streams, events, pinned memory and copies without a wait."""
    needs_gpu(device)
    import cupyx

    flow = [cp.cuda.Stream(non_blocking=True) for _ in range(3)]
    parts = [cp.full(1 << 20, n, dtype=cp.float32) for n in range(3)]
    host = cupyx.zeros_pinned(1 << 20, dtype=cp.float32)
    cp.cuda.get_current_stream().synchronize()
    while True:
        for _ in range(15):
            for n, stream in enumerate(flow):
                with stream:
                    stream.wait_event(flow[n - 1].record())
                    parts[n] = cp.cos(parts[n - 1]) + parts[n] * cp.float32(0.5)
        parts[2].get(stream=flow[2], out=host)
        flow[2].synchronize()
        with flow[0]:
            parts[0].set(host[::-1].copy())
            parts[0] += cp.float32(0.01)
        for stream in flow:
            stream.synchronize()
        yield host.copy(), parts[1][:4096]


def graphs(device):
    """A captured stream, launched again and again."""
    needs_gpu(device)
    mix = cp.ElementwiseKernel("uint32 x", "uint32 y", "y = (x ^ (x >> 13)) * 2654435761u", "mix")
    x = cp.arange(1 << 21, dtype=cp.uint32)
    y = cp.empty_like(x)
    mix(x, y)
    stream = cp.cuda.Stream(non_blocking=True)
    cp.cuda.get_current_stream().synchronize()
    with stream:
        stream.begin_capture()
        for _ in range(10):
            mix(x, y)
            mix(y, x)
        graph = stream.end_capture()
        while True:
            for _ in range(40):
                graph.launch(stream)
            stream.synchronize()
            yield x[:4096]
