"""The common part of the zoo's PyTorch programs: seeds, and small models to train."""

import torch
from torch import nn


def seeded(seed=0):
    """Results repeat from run to run, bit for bit, as far as PyTorch can promise that."""
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def needs_gpu(device):
    """Ends a program that makes no sense elsewhere."""
    if device != "cuda":
        raise SystemExit("this program needs the GPU")


def mlp(device, width=2048, depth=4):
    """Linear layers with GELU and LayerNorm between them, and one output."""
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)]
    return nn.Sequential(*layers, nn.Linear(width, 1)).to(device)


def regression(device, count=1024, width=2048):
    """Inputs and targets for `mlp`."""
    x = torch.randn(count, width)
    return x.to(device), x.mean(dim=1, keepdim=True).to(device)


def convnet(device, channels=64):
    """A small residual network for pictures of 3 channels, 10 classes."""
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1),
        Residual(channels),
        nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1),
        Residual(2 * channels),
        nn.Flatten(2),
        Mean(),
        nn.Linear(2 * channels, 10),
    ).to(device)


class Residual(nn.Module):
    """Two convolutions with batch norm, and a way around them."""

    def __init__(self, channels):
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.two = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x):
        """The maps, of the same shape."""
        inner = torch.relu(self.norms[0](self.one(x)))
        return torch.relu(x + self.norms[1](self.two(inner)))


class Mean(nn.Module):
    """The mean over the last dimension; its gradient is deterministic."""

    def forward(self, x):
        """One dimension less."""
        return x.mean(-1)


def pictures(device, count=64, size=32):
    """Pictures and their classes."""
    return (
        torch.randn(count, 3, size, size).to(device),
        torch.randint(0, 10, (count,)).to(device),
    )


def trained(model, loss_of, optimizer, steps=20):
    """Trains for ever; after every so many steps gives the last loss and the first weights."""
    first = next(model.parameters())
    while True:
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of()
            loss.backward()
            optimizer.step()
        yield loss, first
