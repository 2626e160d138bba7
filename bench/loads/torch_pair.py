"""A process and its child that share memory: a tensor of the one, which the other opens by an IPC
handle. A step is one update by each of them, in turn."""

import hashlib

import torch
import torch.multiprocessing as processes

WORDS = 64 << 20
SEED = 11


def update(shared, number):
    """Changes all of it, from what it was."""
    shared.mul_(3).add_(number)


def child(shared, orders, answers):
    """Updates the tensor of the other process whenever it is told to."""
    while (number := orders.get()) is not None:
        update(shared, number)
        torch.cuda.synchronize()
        answers.put(number)


class Pair:
    """The steps."""

    def __init__(self, device):
        torch.manual_seed(SEED)
        self.shared = torch.randint(1 << 30, (WORDS,), dtype=torch.int32).to(device)
        spawning = processes.get_context("spawn")
        self.orders, self.answers = spawning.Queue(), spawning.Queue()
        with_shared = (self.shared, self.orders, self.answers)
        self.child = spawning.Process(target=child, args=with_shared, daemon=True)
        self.child.start()

    def step(self, number):
        """One update by each."""
        update(self.shared, 2 * number)
        torch.cuda.synchronize()
        self.orders.put(2 * number + 1)
        self.answers.get()

    def digest(self):
        """The digest of the sum of all words, and of some of them."""
        parts = self.shared.sum(dtype=torch.int64).item(), self.shared[:: WORDS // 64].tolist()
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def finish(self):
        """Ends the other process."""
        self.orders.put(None)
        self.child.join()

    def bytes(self):
        """Its device memory."""
        return self.shared.nbytes
