"""PyTorch eager: operators outside of layers, each feeding on its own results."""

import torch
from torch.nn import functional

from loads.zoo.torch_common import needs_gpu, seeded


def matrix_products(device):
    """cuBLAS in fp32, tf32, fp16 and bf16, single and batched."""
    seeded()
    a = torch.randn(2048, 2048).to(device)
    while True:
        for _ in range(3):
            for precise in ("highest", "high"):
                torch.set_float32_matmul_precision(precise)
                a = functional.normalize(a @ a.T)
            for dtype in (torch.float16, torch.bfloat16):
                b = a.to(dtype).reshape(16, 256, 1024)
                a = a + 0.1 * torch.bmm(b, b.mT).float().mean()
        yield a[:256]


def integer_products(device):
    """Products of int8 matrices, summed in int32."""
    seeded()
    a = torch.randint(-128, 128, (1024, 1024), dtype=torch.int8).to(device)
    while True:
        for _ in range(20):
            product = torch._int_mm(a, a.T.contiguous())
            a = (product >> 7).to(torch.int8)
        yield product[:256]


def fp8_products(device):
    """Products of 8-bit floats with scales."""
    needs_gpu(device)
    seeded()
    a = torch.randn(1024, 1024, device=device)
    one = torch.ones((), device=device)
    while True:
        for _ in range(20):
            left = a.to(torch.float8_e4m3fn)
            product = torch._scaled_mm(
                left, left.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16
            )
            a = functional.normalize(product.float()) * 8
        yield product[:256]


def einsum(device):
    """Contractions of several operands."""
    seeded()
    a, b = torch.randn(32, 64, 128).to(device), torch.randn(128, 64, 16).to(device)
    while True:
        for _ in range(20):
            c = torch.einsum("bij,jkd->bikd", a, b)
            d = torch.einsum("bikd,bikd->bi", c, c)
            a = functional.normalize(torch.einsum("bi,bij,bkj->bij", d, a, a), dim=-1)
        yield a, d


def index_and_scatter(device):
    """gather, index_put, index_add, masked fills."""
    seeded()
    x = torch.randn(1 << 20).to(device)
    at = torch.randint(0, 1 << 20, (1 << 18,)).to(device)
    while True:
        for _ in range(10):
            values = x.gather(0, at)
            x = x.index_add(0, at.flip(0), values, alpha=0.1)
            x.index_put_((at[: 1 << 12],), values[: 1 << 12] * 0.5, accumulate=True)
            x = x.masked_fill(x.abs() > 8, 0.25).masked_fill_(x.isnan(), 1)
            at = (at * 1103515245 + 12345) % (1 << 20)
        yield x[: 1 << 16], at[:1024]


def sorting(device):
    """sort, topk, unique, searchsorted, bincount, histogram."""
    seeded()
    x = torch.randint(0, 1 << 30, (1 << 21,)).to(device)
    while True:
        for _ in range(4):
            ordered, order = torch.sort(x, stable=True)
            top = torch.topk(x, 1000).values
            values, counts = torch.unique(ordered >> 20, return_counts=True)
            places = torch.searchsorted(ordered, x[:4096])
            x = (x * 69069 + order + counts.max()) % (1 << 30)
        yield top, values, counts, places


def fourier(device):
    """cuFFT in one and two dimensions."""
    seeded()
    x = torch.randn(64, 512, 512).to(device)
    while True:
        for _ in range(5):
            spectrum = torch.fft.rfft2(x, norm="ortho")
            x = torch.fft.irfft2(spectrum * torch.exp(-spectrum.abs()), norm="ortho") + 0.1 * x
            y = torch.fft.fft(x.reshape(64, -1)[:, : 3 * 5 * 7 * 1024], norm="ortho")
            x = x / x.abs().amax()
        yield x[0], y[0, :4096]


def decompositions(device):
    """Cholesky, QR, SVD and eigenvalues by cuSOLVER."""
    seeded()
    a = torch.randn(192, 192).to(device)
    while True:
        s = a @ a.T / 192 + torch.eye(192, device=device)
        lower = torch.linalg.cholesky(s)
        q, r = torch.linalg.qr(s)
        values = torch.linalg.svdvals(s)
        numbers = torch.linalg.eigvalsh(s)
        a = torch.linalg.solve_triangular(lower, r, upper=False).clamp(-3, 3) + 0.1 * q
        yield a, values, numbers


def batched_solving(device):
    """Batches of small systems; cuBLAS gets arrays of pointers."""
    seeded()
    a = torch.randn(512, 48, 48).to(device) + 8 * torch.eye(48).to(device)
    b = torch.randn(512, 48, 8).to(device)
    while True:
        for _ in range(5):
            x = torch.linalg.solve(a, b)
            factors, pivots = torch.linalg.lu_factor(a)
            y = torch.linalg.lu_solve(factors, pivots, x)
            b = (b + x + y).clamp(-2, 2)
        yield x, pivots[:8]


def sparse_matrices(device):
    """Sparse times dense, in CSR and COO, and a sparse gradient."""
    seeded()
    entries, n = 200_000, 8192
    places = torch.randint(0, n, (2, entries))
    coo = torch.sparse_coo_tensor(places, torch.randn(entries), (n, n)).coalesce().to(device)
    csr = coo.to_sparse_csr()
    x = torch.randn(n, 64).to(device)
    while True:
        for _ in range(20):
            x = functional.normalize(csr @ x + torch.sparse.mm(coo, x))
        yield x[:512]


def scans_and_reductions(device):
    """cumsum over integers, cummax, logsumexp, var, median, any, count_nonzero."""
    seeded()
    x = torch.randint(0, 1000, (64, 1 << 15)).to(device)
    while True:
        for _ in range(8):
            sums = x.cumsum(1)
            most, _ = x.cummax(1)
            real = x.double()
            figures = torch.stack([real.logsumexp(1), real.var(1), real.mean(1), real.norm(dim=1)])
            x = (sums + most + x.flip(0) + x.count_nonzero()) % 1000
        yield figures, sums[:, -16:], x[0]


def random_numbers(device):
    """Generators on the device: normal, uniform, bernoulli, multinomial, permutations, dropout."""
    seeded()
    generator = torch.Generator(device).manual_seed(1)
    while True:
        for _ in range(10):
            normal = torch.randn(1 << 20, device=device)
            own = torch.rand(1 << 18, device=device, generator=generator)
            order = torch.randperm(1 << 16, device=device)
            drawn = torch.multinomial(own[:4096], 256, replacement=True)
            kept = functional.dropout(normal, 0.3)
        yield normal[:4096], own[:4096], order[:4096], drawn, kept[:4096]


def complex_numbers(device):
    """Arithmetic and products of complex matrices."""
    seeded()
    z = torch.randn(512, 512, dtype=torch.complex64).to(device)
    while True:
        for _ in range(20):
            z = torch.exp(1j * z.angle()) @ z.conj().T
            z = z / z.abs().amax() + 0.01j * torch.view_as_complex(torch.view_as_real(z).roll(1, 0))
        yield torch.view_as_real(z)


def views(device):
    """Strided, flipped, rolled and padded views, where, tril, cat."""
    seeded()
    x = torch.randn(1024, 1024).to(device)
    while True:
        for _ in range(20):
            y = torch.cat([x[::2, 1::2].t(), x[1::2, ::2].flip(0)], 1)
            y = functional.pad(y, (0, 0, 256, 256), value=0.5)
            x = torch.where(x > 0, x.roll((3, -5), (0, 1)), y.tril(2) - x) * 0.99
            x.as_strided((1024,), (1025,)).add_(0.01)
        yield x[:256]


def multi_tensor(device):
    """The foreach operators over hundreds of small tensors."""
    seeded()
    tensors = [torch.randn(64 + n, 33).to(device) for n in range(300)]
    while True:
        for _ in range(10):
            norms = torch._foreach_norm(tensors)
            torch._foreach_mul_(tensors, 0.97)
            torch._foreach_addcmul_(tensors, tensors, tensors, value=-0.01)
            torch._foreach_clamp_min_(tensors, -3.0)
            torch._foreach_clamp_max_(tensors, 3.0)
        yield torch.stack(norms), tensors[0], tensors[-1]


def function_transforms(device):
    """torch.func: gradients for each sample, Jacobians."""
    seeded()
    weights = {"w": torch.randn(128, 64).to(device), "v": torch.randn(64).to(device)}
    x = torch.randn(256, 128).to(device)

    def loss(parameters, sample):
        return (torch.tanh(sample @ parameters["w"]) @ parameters["v"]).square()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))
    jacobian = torch.func.jacrev(lambda w: torch.tanh(x[0] @ w))
    while True:
        for _ in range(10):
            gradients = each(weights, x)
            weights = {name: w - 0.01 * gradients[name].mean(0) for name, w in weights.items()}
            slopes = jacobian(weights["w"])
        yield weights["w"], weights["v"], slopes[0]


def pictures(device):
    """Resampling, pooling, unfolding, connected by clamps."""
    seeded()
    x = torch.rand(16, 8, 128, 128).to(device)
    turn = torch.tensor([[[0.9, 0.2, 0.0], [-0.2, 0.9, 0.0]]]).to(device).repeat(16, 1, 1)
    with torch.no_grad():
        while True:
            for _ in range(10):
                grid = functional.affine_grid(turn, x.shape, align_corners=False)
                turned = functional.grid_sample(x, grid, align_corners=False)
                small = functional.max_pool2d(turned, 2)
                large = functional.interpolate(small, scale_factor=2, mode="bilinear")
                patches = functional.unfold(large, 3, padding=1).reshape(16, 8, 9, 128, 128)
                x = (0.7 * x + 0.3 * patches.mean(2) + 0.001).clamp(0, 1)
            yield x[0], small[0, 0]


def tall_reduction(device):
    """A few GB of traffic for each step: long kernels that are taken off in the middle."""
    seeded()
    x = torch.randn(1 << 26).to(device)
    while True:
        for _ in range(10):
            total = x.double().square().sum()
            x.mul_(0.999).add_(total / (1 << 26) * 1e-3)
        yield total, x[:4096]
