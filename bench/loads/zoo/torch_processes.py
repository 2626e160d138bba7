"""PyTorch programs of several processes: data workers, shared tensors, spawned clients, DDP."""

import os
import tempfile

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from loads.zoo.torch_common import convnet, mlp, needs_gpu, regression, seeded


class Pictures(Dataset):
    """Pictures that depend on their index alone, whichever process makes them."""

    def __len__(self):
        return 512

    def __getitem__(self, index):
        at = torch.arange(3 * 32 * 32, dtype=torch.float32)
        return torch.sin(at * (index + 1) / 1000).reshape(3, 32, 32), index % 10


def data_workers(device):
    """Forked workers make the batches, which are pinned and copied without waiting."""
    seeded()
    model = convnet(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(
        Pictures(),
        batch_size=64,
        num_workers=2,
        persistent_workers=True,
        pin_memory=device == "cuda",
        multiprocessing_context="fork",
    )
    while True:
        for x, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            for _ in range(3):
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
        yield loss, model[0].weight


def serve_squares(device, requests, answers):
    """A process that computes on tensors which another one has allocated."""
    while (tensor := requests.get()) is not None:
        for _ in range(20):
            tensor.copy_(torch.tanh(tensor * 1.1) + tensor.flip(0) * 0.1)
        if device == "cuda":
            torch.cuda.synchronize()
        del tensor
        answers.put(True)


def shared_tensors(device):
    """Two processes work on one tensor, which torch.multiprocessing hands over."""
    seeded()
    context = torch.multiprocessing.get_context("spawn")
    requests, answers = context.SimpleQueue(), context.SimpleQueue()
    arguments = (device, requests, answers)
    process = context.Process(target=serve_squares, args=arguments, daemon=True)
    process.start()
    x = torch.randn(1 << 20).to(device)
    if device == "cpu":
        x.share_memory_()
    try:
        while True:
            for _ in range(4):
                requests.put(x)
                answered(process, answers)
                x.mul_(0.99)
            yield x[:4096]
    finally:
        requests.put(None)
        process.join(10)


def answered(process, answers):
    """The next answer; RuntimeError if its process has ended."""
    while answers.empty():
        process.join(0.001)
        if process.exitcode is not None:
            raise RuntimeError(f"the other process ended with status {process.exitcode}")
    return answers.get()


def compute(device, seed, rounds, answers):
    """A client of the GPU in a process of its own."""
    seeded(seed)
    model = mlp(device, width=512, depth=2)
    x, y = regression(device, width=512)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(rounds):
        optimizer.zero_grad()
        loss = functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    answers.put((loss.item(), model[0].weight.detach().double().sum().item()))


def spawned_clients(device):
    """Two processes at a time train for themselves and report."""
    seeded()
    context = torch.multiprocessing.get_context("spawn")
    seed = 0
    while True:
        said = []
        work = []
        for _ in range(2):
            seed += 1
            answers = context.SimpleQueue()
            process = context.Process(target=compute, args=(device, seed, 200, answers))
            process.start()
            work.append((process, answers))
        for process, answers in work:
            said.append(answered(process, answers))
            process.join()
        yield torch.tensor(said, dtype=torch.float64)


def data_parallel_alone(device):
    """DistributedDataParallel with one process: buckets and hooks, sums by Gloo."""
    seeded()
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{os.path.join(folder, 'meeting')}", rank=0, world_size=1
        )
        try:
            model = nn.parallel.DistributedDataParallel(mlp(device, width=1024))
            x, y = regression(device, width=1024)
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
            while True:
                for _ in range(5):
                    optimizer.zero_grad()
                    loss = functional.mse_loss(model(x), y)
                    loss.backward()
                    optimizer.step()
                yield loss, next(model.parameters())
        finally:
            torch.distributed.destroy_process_group()


def nccl_alone(device):
    """NCCL with one process: reductions and gathers of its own data."""
    needs_gpu(device)
    seeded()
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group(
            "nccl", init_method=f"file://{os.path.join(folder, 'meeting')}", rank=0, world_size=1
        )
        try:
            x = torch.randn(1 << 20, device=device)
            gathered = [torch.empty_like(x)]
            while True:
                for _ in range(20):
                    torch.distributed.all_reduce(x)
                    torch.distributed.all_gather(gathered, x)
                    x = gathered[0].roll(1) * 0.5 + torch.sin(x)
                yield x[:4096]
        finally:
            torch.distributed.destroy_process_group()
