"""PyTorch's memory: other allocators, copies from and to the host, much and little at once."""

import torch
from torch.nn import functional

from loads.zoo.torch_common import convnet, mlp, needs_gpu, pictures, regression, seeded, trained


def training(device):
    """Convolutions trained with the allocator that the environment chose, emptied midway."""
    seeded()
    model = convnet(device)
    x, y = pictures(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    steps = trained(model, lambda: functional.cross_entropy(model(x), y), optimizer, 10)
    for n, outputs in enumerate(steps):
        if n % 8 == 7 and device == "cuda":
            torch.cuda.empty_cache()
        yield outputs


def growing(device):
    """Tensors that grow by pieces, as a cache does, and then go."""
    seeded()
    rounds = 0
    while True:
        rounds += 1
        kept = torch.zeros(0, 1024, device=device)
        for n in range(24):
            piece = torch.full((512, 1024), float(n + rounds % 7), device=device)
            kept = torch.cat([kept, piece.cumsum(0, dtype=torch.float64).float() * 1e-3])
        yield kept[::512], kept.double().sum()


def churn(device):
    """Allocations of all sizes that live shortly, some longer; one too large is refused."""
    seeded()
    sizes = torch.randint(1, 1 << 22, (4096,)).tolist()
    kept, n = {}, 0
    while True:
        total = torch.zeros((), dtype=torch.int64, device=device)
        for _ in range(200):
            n += 1
            size = sizes[n % len(sizes)]
            kept[n % 37] = torch.full((size,), n % 251, dtype=torch.uint8, device=device)
            total += kept[(n * 7) % 37 if (n * 7) % 37 in kept else n % 37].sum()
        if device == "cuda":
            try:
                torch.empty(1 << 50, dtype=torch.uint8, device=device)
            except torch.OutOfMemoryError:
                total += 1
        yield total


def pinned_copies(device):
    """Copies from and to pinned memory without a wait, on a stream of their own."""
    needs_gpu(device)
    seeded()
    stream = torch.cuda.Stream()
    host = [torch.randn(1 << 22).pin_memory() for _ in range(4)]
    back = [torch.empty(1 << 22).pin_memory() for _ in range(4)]
    while True:
        for _ in range(3):
            with torch.cuda.stream(stream):
                for there, here in zip(host, back):
                    tensor = there.to(device, non_blocking=True)
                    tensor = torch.tanh(tensor * 1.01) + tensor.roll(1) * 0.5
                    here.copy_(tensor, non_blocking=True)
            stream.synchronize()
            host, back = back, host
        yield tuple(tensor[:65536] for tensor in host)


def pageable_copies(device):
    """Copies from and to ordinary memory, small and large, and single values."""
    seeded()
    x = torch.randn(1 << 22)
    while True:
        for _ in range(3):
            y = x.to(device)
            for n in range(40):
                y[n] = y[n * 1000 : n * 1000 + 100].mean().item() + n
            x = (y * 0.9 + 0.01).cpu()
        yield x[:65536]


def offloaded_layers(device):
    """Weights wait on the host and come for each layer, one ahead of its use."""
    needs_gpu(device)
    seeded()
    weights = [(torch.randn(2048, 2048) / 45).pin_memory() for _ in range(8)]
    x = torch.randn(512, 2048, device=device)
    side = torch.cuda.Stream()
    while True:
        with torch.cuda.stream(side):
            coming = weights[0].to(device, non_blocking=True)
        for n in range(len(weights)):
            torch.cuda.current_stream().wait_stream(side)
            here = coming
            here.record_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                coming = weights[(n + 1) % 8].to(device, non_blocking=True)
            x = functional.normalize(x @ here) + 0.1 * x
        yield x[:64]


def memory_pools(device):
    """Two pools of one allocator, chosen by the thread."""
    needs_gpu(device)
    seeded()
    pools = [torch.cuda.MemPool() for _ in range(2)]
    x = torch.randn(1 << 20, device=device)
    while True:
        for n in range(40):
            with torch.cuda.use_mem_pool(pools[n % 2]):
                x = torch.sin(x) + x.flip(0) * 0.25
        yield x[:4096]


def large_and_small(device):
    """Two gigabytes, of which each step changes a little, here and there."""
    needs_gpu(device)
    seeded()
    large = torch.arange(1 << 28, dtype=torch.int64, device=device)
    place = torch.arange(1 << 12, device=device) * 65521
    n = 0
    while True:
        for _ in range(20):
            n += 1
            at = (place + n * 7919) % (1 << 28)
            large[at] = large[at] * 3 + n
        yield large[at], large[:: 1 << 12].sum()


def exchanged_with_cupy(device):
    """DLPack: CuPy computes on PyTorch's memory, and the other way round."""
    needs_gpu(device)
    import cupy

    seeded()
    x = torch.randn(1 << 20, device=device)
    while True:
        for _ in range(20):
            theirs = cupy.from_dlpack(x)
            y = cupy.sqrt(cupy.abs(theirs)) + theirs[::-1] * cupy.float32(0.5)
            # Each library has its own current stream.
            cupy.cuda.get_current_stream().synchronize()
            x = torch.from_dlpack(y) - 0.5
            torch.cuda.current_stream().synchronize()
        yield x[:4096]


def saved_and_loaded(device):
    """Checkpoints: a model's state goes to a file and comes back, each step."""
    import io

    seeded()
    model = mlp(device, width=1024)
    x, y = regression(device, width=1024)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for outputs in trained(model, lambda: functional.mse_loss(model(x), y), optimizer, 10):
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.seek(0)
        state = torch.load(file, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        yield outputs
