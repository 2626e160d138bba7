"""Kernels in Triton, from a sum to a product with tensor descriptors."""

import torch
import triton
import triton.language as tl
from torch.nn import functional

from loads.kernels_triton import matmul as product_kernel
from loads.zoo.torch_common import needs_gpu, seeded


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, inside) * 0.5 + tl.load(y + at, inside), inside)


def add(device):
    """Element-wise."""
    needs_gpu(device)
    seeded()
    n = (1 << 22) + 77
    x, y = torch.randn(n, device=device), torch.randn(n, device=device)
    out = torch.empty_like(x)
    while True:
        for _ in range(100):
            add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
            x, out = out, x
        yield x[:4096]


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * columns
    at = tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row + at, inside, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row + at, powers / tl.sum(powers, axis=0), inside)


def softmax(device):
    """A reduction for each row."""
    needs_gpu(device)
    seeded()
    rows, columns = 4096, 1000
    x = torch.randn(rows, columns, device=device)
    out = torch.empty_like(x)
    while True:
        for _ in range(60):
            softmax_kernel[(rows,)](x, out, columns, BLOCK=1024)
            x.mul_(0.5).add_(out.roll(1, 1), alpha=3)
        yield x[:8]


@triton.jit
def norm_kernel(x, weight, out, means, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * columns + at, inside, other=0.0)
    mean = tl.sum(values, axis=0) / columns
    centred = tl.where(inside, values - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + 1e-5)
    tl.store(means + row, mean)
    tl.store(out + row * columns + at, centred * scale * tl.load(weight + at, inside), inside)


def layer_norm(device):
    """Two results for each row."""
    needs_gpu(device)
    seeded()
    rows, columns = 4096, 1024
    x = torch.randn(rows, columns, device=device)
    weight = torch.rand(columns, device=device) + 0.5
    out, means = torch.empty_like(x), torch.empty(rows, device=device)
    while True:
        for _ in range(60):
            norm_kernel[(rows,)](x, weight, out, means, columns, BLOCK=1024)
            x = out.sin() + means[:, None]
        yield x[:8], means


def matmul(device):
    """A product on the tensor cores."""
    needs_gpu(device)
    seeded()
    n = 1024
    a, c = torch.randn(n, n, device=device), torch.empty(n, n, device=device)
    while True:
        for _ in range(20):
            half = a.half()
            product_kernel[(n // 64, n // 64)](half, half, c, n, BLOCK=64)
            a = functional.normalize(c) * 16
        yield a[:64]


@triton.jit
def descriptor_kernel(a, b, c, n, BLOCK: tl.constexpr):
    left = tl.make_tensor_descriptor(a, [n, n], [n, 1], [BLOCK, BLOCK])
    right = tl.make_tensor_descriptor(b, [n, n], [n, 1], [BLOCK, BLOCK])
    result = tl.make_tensor_descriptor(c, [n, n], [n, 1], [BLOCK, BLOCK])
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.dot(left.load([row, start]), right.load([start, column]))
    result.store([row, column], total.to(tl.float16))


def matmul_device_descriptors(device):
    """TMA descriptors that the kernel makes in device memory."""
    needs_gpu(device)
    seeded()
    triton.set_allocator(
        lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda")
    )
    n = 1024
    a, c = torch.randn(n, n, device=device).half(), torch.empty(n, n, device=device).half()
    while True:
        for _ in range(20):
            descriptor_kernel[(n // 64, n // 64)](a, a, c, n, BLOCK=64)
            a = (functional.normalize(c.float()) * 16).half()
        yield a[:64]


@triton.jit
def host_descriptor_kernel(left, right, result, n, BLOCK: tl.constexpr):
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.dot(left.load([row, start]), right.load([start, column]))
    result.store([row, column], total.to(tl.float16))


def matmul_host_descriptors(device):
    """TMA descriptors that the host makes and passes by value."""
    needs_gpu(device)
    from triton.tools.tensor_descriptor import TensorDescriptor

    seeded()
    n, block = 1024, 64
    a, c = torch.randn(n, n, device=device).half(), torch.empty(n, n, device=device).half()
    while True:
        for _ in range(20):
            told = [TensorDescriptor.from_tensor(x, [block, block]) for x in (a, a, c)]
            host_descriptor_kernel[(n // block, n // block)](*told, n, BLOCK=block)
            a = (functional.normalize(c.float()) * 16).half()
        yield a[:64]


@triton.jit
def count_kernel(x, counts, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.atomic_add(counts + tl.load(x + at, inside, other=0) % 1024, 1, mask=inside)


def atomics(device):
    """Counts by atomic additions of integers."""
    needs_gpu(device)
    seeded()
    n = 1 << 21
    x = torch.randint(0, 1 << 30, (n,), device=device)
    counts = torch.zeros(1024, dtype=torch.int32, device=device)
    while True:
        for _ in range(40):
            count_kernel[(n // 1024,)](x, counts, n, BLOCK=1024)
            x = (x * 1103515245 + counts[x % 1024]) % (1 << 30)
        yield counts, x[:4096]


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=4) for block in (256, 512, 1024, 2048)],
    key=["n"],
)
@triton.jit
def tuned_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    values = tl.load(x + at, inside)
    tl.store(out + at, tl.sin(values) + 0.5 * values, inside)


def autotuned(device):
    """Triton times several block sizes and takes the fastest; all compute the same."""
    needs_gpu(device)
    seeded()
    n = 1 << 22
    x = torch.randn(n, device=device)
    out = torch.empty_like(x)
    while True:
        for _ in range(80):
            tuned_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
            x, out = out, x
        yield x[:4096]
