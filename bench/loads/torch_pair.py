"""A process and its child that share memory: a tensor of the one, which the other opens by an IPC
handle. A step is one update by each of them, in turn."""

import torch
import torch.multiprocessing as processes

from loads.torch_models import make_deterministic


def update(shared, number):
    """Changes all of it, from what it was."""
    shared.mul_(3).add_(number)


def child(shared, orders, answers):
    """Updates the tensor of the other process whenever it is told to."""
    while (number := orders.get()) is not None:
        update(shared, number)
        torch.cuda.synchronize()
        answers.put(number)


def pair(device, digest, numbers, size):
    """Both of them; what is computed of the tensor after each step feeds the digest."""
    words = 64 << 20 if size == "full" else 1 << 10
    numbers["words"] = words
    make_deterministic()
    shared = torch.randint(1 << 30, (words,), dtype=torch.int32).to(device)
    spawning = processes.get_context("spawn")
    orders, answers = spawning.Queue(), spawning.Queue()
    other = spawning.Process(target=child, args=(shared, orders, answers), daemon=True)
    other.start()

    def step(number):
        update(shared, 2 * number)
        torch.cuda.synchronize()
        orders.put(2 * number + 1)
        answers.get()
        digest.tensor(f"sum{number}", shared.sum(dtype=torch.int64))
        digest.tensor(f"some{number}", shared[:: words // 64])

    def finish():
        orders.put(None)
        other.join()

    return step, finish, lambda: shared.nbytes
