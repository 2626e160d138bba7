"""Processes around a CUDA program: forked and spawned data workers, and a spawned GPU client.

The forked workers start after the parent has initialised CUDA, as in any training script. They do
not touch the GPU themselves, which CUDA does not allow after a fork.
"""

import torch
from torch.utils.data import DataLoader, Dataset

from loads.digest import Digest
from loads.torch_models import make_deterministic
from loads.torch_modes import perceptron, samples


class Waves(Dataset):
    """Items that depend on their index alone, whichever process makes them."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.sin(torch.arange(4096, dtype=torch.float32) * (index + 1) / 100)


def loaded_sums(device, steps, context, workers, digest):
    """Every batch that the workers made, from pinned memory to the device and transformed."""
    loader = DataLoader(
        Waves(),
        batch_size=16,
        num_workers=workers,
        multiprocessing_context=context,
        pin_memory=device == "cuda",
    )
    for epoch in range(steps if context == "fork" else 1):
        for i, batch in enumerate(loader):
            on_device = batch.to(device, non_blocking=True)
            digest.tensor(f"{context}{epoch}.{i}", on_device * 2 + epoch)


def child(device, queue):
    """A GPU client in a process of its own; answers with the digest of what it computed."""
    make_deterministic(seed=7)
    model = perceptron(device)
    x, _ = samples(device)
    digest = Digest()
    digest.tensor("answer", model(x))
    queue.put(digest.hex())


def multiprocess(device, steps, digest, numbers):
    """Forked workers, a spawned worker and a spawned GPU client, in this order."""
    make_deterministic()
    torch.zeros(1, device=device)
    loaded_sums(device, steps, "fork", 2, digest)
    loaded_sums(device, steps, "spawn", 1, digest)
    context = torch.multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=child, args=(device, queue))
    process.start()
    process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"the spawned GPU client ended with status {process.exitcode}")
    answer = queue.get()
    digest.raw("child", answer.encode())
    numbers["child"] = answer
