"""Triton: an element-wise kernel, a reduction and a matrix product, all compiled at run time."""

import torch
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * columns
    at = tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row + at, inside, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row + at, powers / tl.sum(powers, axis=0), inside)


@triton.jit
def matmul(a, b, c, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        left = tl.load(a + rows[:, None] * n + inner[None, :])
        right = tl.load(b + inner[:, None] * n + columns[None, :])
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * n + columns[None, :], total)


def mixed(device, steps, digest, numbers):
    """Every kernel's output counts."""
    if device != "cuda":
        raise SystemExit("Triton's kernels here need the GPU")
    torch.manual_seed(0)
    n = 512
    for i in range(steps):
        x = torch.randn(n, n, device=device)
        y = torch.randn(n, n, device=device)
        out = torch.empty_like(x)
        add[(triton.cdiv(n * n, 1024),)](x, y, out, n * n, BLOCK=1024)
        digest.tensor(f"sum{i}", out)
        softmax[(n,)](x, out, n, BLOCK=n)
        digest.tensor(f"softmax{i}", out)
        half = (x.half(), y.half())
        matmul[(n // 64, n // 64)](*half, out, n, BLOCK=64)
        digest.tensor(f"product{i}", out)
    numbers["mean"] = out.mean().item()
