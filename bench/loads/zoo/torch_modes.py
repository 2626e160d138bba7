"""PyTorch's other ways to run: autocast, compiled code, CUDA graphs, streams, threads."""

import threading

import torch
from torch import nn
from torch.nn import functional

from loads.zoo.torch_common import (
    convnet,
    mlp,
    needs_gpu,
    pictures,
    regression,
    seeded,
    trained,
)


def autocast_fp16(device):
    """fp16 with a gradient scaler, which looks for infinities in every step."""
    seeded()
    model = mlp(device)
    x, y = regression(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    scaler = torch.amp.GradScaler(device)
    while True:
        for _ in range(15):
            optimizer.zero_grad()
            with torch.autocast(device, torch.float16):
                loss = functional.mse_loss(model(x).float(), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        yield loss, model[0].weight, torch.tensor(scaler.get_scale())


def autocast_bf16(device):
    """bf16 convolutions and a fused optimizer."""
    seeded()
    model = convnet(device)
    x, y = pictures(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def loss():
        with torch.autocast(device, torch.bfloat16):
            return functional.cross_entropy(model(x), y)

    return trained(model, loss, optimizer, 10)


def compiled_training(device, **options):
    """Trains a network that Inductor has compiled."""
    seeded()
    model = mlp(device, width=1024)
    x, y = regression(device, width=1024)
    compiled = torch.compile(model, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return trained(model, lambda: functional.mse_loss(compiled(x), y), optimizer)


def compile_default(device):
    """Inductor's kernels, forward and backward."""
    return compiled_training(device)


def compile_reduce_overhead(device):
    """Inductor's kernels in CUDA graphs, inference."""
    seeded()
    model = mlp(device, width=1024).eval()
    x, _ = regression(device, width=1024)
    compiled = torch.compile(model[:-1], mode="reduce-overhead")
    with torch.no_grad():
        while True:
            for _ in range(40):
                x = 0.5 * x + compiled(x).clone()
            yield x[:64]


def compile_max_autotune(device):
    """Inductor times several kernels for each matrix product and takes the fastest."""
    seeded()
    model = mlp(device, width=1024, depth=2).eval().to(torch.bfloat16)
    x, _ = regression(device, width=1024)
    x = x.to(torch.bfloat16)
    compiled = torch.compile(model[:-1], mode="max-autotune-no-cudagraphs")
    with torch.no_grad():
        while True:
            # Each step begins anew: differences must not grow.
            y = x
            for _ in range(40):
                y = 0.5 * x + 0.5 * compiled(y)
            yield y[:64]


def compile_dynamic(device):
    """One compiled function for inputs of many sizes."""
    seeded()
    weight = torch.randn(512, 512).to(device)

    @torch.compile(dynamic=True)
    def function(x):
        return functional.normalize(torch.sin(x @ weight) + x.mean(0))

    x = torch.randn(2048, 512).to(device)
    with torch.no_grad():
        while True:
            for rows in range(200, 2048, 77):
                part = function(x[:rows])
                x = torch.cat([x[rows:], part])
            yield x[:64]


def compile_whole_step(device):
    """Loss, gradient and optimizer step, compiled."""
    seeded()
    model = mlp(device, width=512, depth=2)
    x, y = regression(device, width=512)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    @torch.compile
    def update():
        optimizer.step()

    while True:
        for _ in range(15):
            optimizer.zero_grad(set_to_none=True)
            loss = functional.mse_loss(model(x), y)
            loss.backward()
            update()
        yield loss, model[0].weight


def flex_attention(device):
    """A kernel made for one kind of attention: a sliding window."""
    needs_gpu(device)
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    seeded()
    shape = (2, 8, 1024, 64)
    q, k, v = (torch.randn(shape, device=device, dtype=torch.bfloat16) for _ in range(3))

    def window(batch, head, query, key):
        return (query >= key) & (query - key <= 256)

    mask = create_block_mask(window, None, None, 1024, 1024, device=device)
    attention = torch.compile(flex_attention)
    with torch.no_grad():
        while True:
            for _ in range(40):
                q = (0.5 * q + attention(q, k, v, block_mask=mask)).clamp(-4, 4)
            yield q[0, 0]


def scripted(device):
    """A function made by TorchScript, with a loop in it."""
    seeded()

    @torch.jit.script
    def function(x: torch.Tensor, weight: torch.Tensor, rounds: int):
        for n in range(rounds):
            x = torch.tanh(x @ weight) + x * (0.5 / (n + 1))
        return x

    x, weight = torch.randn(1024, 1024).to(device), torch.randn(1024, 1024).to(device) / 32
    while True:
        for _ in range(4):
            x = function(x, weight, 8)
        yield x[:64]


class Cube(torch.autograd.Function):
    """A function with a gradient of its own."""

    @staticmethod
    def forward(ctx, x):
        """The cube."""
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        """Its slope."""
        (x,) = ctx.saved_tensors
        return 3 * x * x * gradient


def custom_gradient(device):
    """autograd.Function, hooks on tensors, saved tensors that wait on the host."""
    seeded()
    weight = nn.Parameter(torch.randn(1024, 1024).to(device) / 32)
    x = torch.randn(512, 1024).to(device)
    weight.register_hook(lambda gradient: gradient.clamp(-1, 1))
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def loss():
        with torch.autograd.graph.save_on_cpu(pin_memory=device == "cuda"):
            return Cube.apply(torch.tanh(x @ weight)).square().mean()

    while True:
        for _ in range(10):
            optimizer.zero_grad()
            value = loss()
            value.backward()
            optimizer.step()
        yield value, weight[:64]


def graph_of_training(device):
    """A whole training step is captured once and replayed."""
    needs_gpu(device)
    seeded()
    model = mlp(device)
    x, y = regression(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, capturable=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    while True:
        for _ in range(30):
            x.mul_(0.999)
            graph.replay()
        yield loss, model[0].weight


def graphed_callables(device):
    """Forward and backward passes as graphs, by make_graphed_callables."""
    needs_gpu(device)
    seeded()
    model = mlp(device, width=1024)
    x, y = regression(device, width=1024)
    graphed = torch.cuda.make_graphed_callables(model, (torch.randn_like(x),))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    return trained(model, lambda: functional.mse_loss(graphed(x), y), optimizer, 30)


def graphs_of_one_pool(device):
    """Several graphs for several sizes share one pool of memory, in turns with eager work."""
    needs_gpu(device)
    seeded()
    model = mlp(device, width=1024).eval()
    inputs, outputs, graphs, pool = [], [], [], torch.cuda.graph_pool_handle()
    with torch.no_grad():
        model(torch.randn(512, 1024, device=device))
        for rows in (512, 256, 128):
            inputs.append(torch.randn(rows, 1024, device=device))
            graphs.append(torch.cuda.CUDAGraph())
            with torch.cuda.graph(graphs[-1], pool=pool):
                outputs.append(model(inputs[-1]))
        while True:
            for n in range(60):
                x, out = inputs[n % 3], outputs[n % 3]
                graphs[n % 3].replay()
                x.add_(out).div_(x.abs().amax())
            yield tuple(inputs[2:]) + tuple(out.clone() for out in outputs)


def streams_and_events(device):
    """Work on several streams, ordered by events alone."""
    needs_gpu(device)
    seeded()
    streams = [torch.cuda.Stream() for _ in range(4)]
    x = torch.randn(1024, 1024, device=device)
    parts = [x.clone() for _ in streams]
    while True:
        for _ in range(8):
            ready = torch.cuda.current_stream().record_event()
            done = []
            for n, stream in enumerate(streams):
                with torch.cuda.stream(stream):
                    stream.wait_event(ready)
                    for _ in range(4):
                        parts[n] = functional.normalize(parts[n] @ x + n)
                    parts[n].record_stream(torch.cuda.current_stream())
                    done.append(stream.record_event())
            for event in done:
                torch.cuda.current_stream().wait_event(event)
            x = functional.normalize(sum(parts))
            for stream in streams:
                x.record_stream(stream)
        torch.cuda.synchronize()
        yield x[:64]


def stream_priorities(device):
    """Short work of high priority beside long work, with events that take the time."""
    needs_gpu(device)
    seeded()
    low, high = torch.cuda.Stream(priority=0), torch.cuda.Stream(priority=-1)
    big, small = torch.randn(4096, 4096, device=device), torch.randn(256, 256, device=device)
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    while True:
        with torch.cuda.stream(low):
            for _ in range(6):
                big = functional.normalize(big @ big)
        with torch.cuda.stream(high):
            begin.record()
            for _ in range(60):
                small = functional.normalize(small @ small.T + small)
            end.record()
        end.synchronize()
        low.synchronize()
        if begin.elapsed_time(end) < 0:
            raise RuntimeError("events are out of order")
        yield big[:16], small


def threads(device):
    """Four threads train a network each, on a stream each."""
    seeded()
    models = [mlp(device, width=512, depth=2) for _ in range(4)]
    data = [regression(device, count=512, width=512) for _ in models]
    losses = [None] * len(models)

    def work(n):
        stream = torch.cuda.Stream() if device == "cuda" else None
        with torch.cuda.stream(stream):
            optimizer = torch.optim.SGD(models[n].parameters(), lr=1e-3)
            for _ in range(10):
                optimizer.zero_grad(set_to_none=True)
                losses[n] = functional.mse_loss(models[n](data[n][0]), data[n][1])
                losses[n].backward()
                optimizer.step()
            if stream:
                stream.synchronize()

    if device == "cuda":
        torch.cuda.synchronize()
    while True:
        workers = [threading.Thread(target=work, args=(n,)) for n in range(len(models))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        yield torch.stack([loss.detach() for loss in losses]), models[3][0].weight


def long_kernels(device):
    """Single kernels of tens of milliseconds: convolutions of large pictures."""
    needs_gpu(device)
    seeded()
    x = torch.randn(8, 64, 1024, 1024, device=device) / 8
    weight = torch.randn(64, 64, 7, 7, device=device) / 48
    with torch.no_grad():
        while True:
            x = torch.tanh(functional.conv2d(x, weight, padding=3))
            yield x[0, 0, :64]
