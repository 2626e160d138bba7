"""PyTorch's other ways to the GPU: CUDA graphs, compiled code, other allocators."""

import torch
from torch import nn

from loads.torch_models import images, make_deterministic, synchronize


def perceptron(device, width=512):
    """A small network with every common layer, so that its kernels are many and short."""
    layers = [nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)]
    return nn.Sequential(*layers, nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)).to(
        device
    )


def samples(device, count=256, width=512, seed=3):
    """Inputs and targets of a regression."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, width, generator=generator)
    return x.to(device), x.sum(dim=1, keepdim=True).to(device)


def cuda_graph(device, steps, digest, numbers):
    """A training step is captured once and replayed, then an inference with its own graph."""
    make_deterministic()
    model = perceptron(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = samples(device)

    def train():
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    replay_train, loss = captured(train, device)
    losses = []
    for i in range(steps):
        x.mul_(1.01)
        replay_train()
        losses.append(loss.detach().clone())
        digest.tensor(f"loss{i}", losses[-1])

    @torch.no_grad()
    def infer():
        return model(x)

    replay_infer, answer = captured(infer, device)
    for i in range(steps):
        x.mul_(0.99)
        replay_infer()
        digest.tensor(f"answer{i}", answer)
    digest.parameters(model)
    numbers["losses"] = [loss.item() for loss in losses]


def captured(function, device):
    """(replay, result) of `function` as a CUDA graph; without a GPU, of the function itself."""
    if device != "cuda":
        result = function().detach().clone()

        def call():
            result.copy_(function().detach())

        return call, result
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function()
    return graph.replay, result


def torch_compile(device, steps, digest, numbers):
    """Inductor's Triton kernels for training, and its CUDA graph trees for inference."""
    make_deterministic()
    model = perceptron(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = samples(device)
    compiled = torch.compile(model)
    losses = []
    for i in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(compiled(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        digest.tensor(f"loss{i}", losses[-1])
    digest.parameters(model)

    quick = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        for i in range(steps + 2):
            digest.tensor(f"answer{i}", quick(x).clone())
    synchronize(device)
    numbers["losses"] = [loss.item() for loss in losses]


def small_train(device, steps, digest, numbers):
    """Convolutions trained under the allocator that the environment chose."""
    make_deterministic()
    convolutions = [nn.Conv2d(3, 16, 3, stride=4), nn.BatchNorm2d(16), nn.ReLU()]
    convolutions += [nn.Conv2d(16, 32, 3, stride=4), nn.Flatten(), nn.LazyLinear(1000)]
    model = nn.Sequential(*convolutions).to(device)
    pictures, labels = images(8, device)
    model(pictures)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    losses = []
    for i in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(pictures), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        digest.tensor(f"loss{i}", losses[-1])
        if device == "cuda" and i == steps // 2:
            torch.cuda.empty_cache()
    digest.parameters(model)
    numbers["losses"] = [loss.item() for loss in losses]
    if device == "cuda":
        numbers["allocator"] = torch.cuda.get_allocator_backend()
