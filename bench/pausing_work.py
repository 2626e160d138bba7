#!/usr/bin/env python3
"""The two programs of the pausing measurement; they know nothing of Baton.

    pausing_work.py multiply SIDE         until a line comes on stdin: how many products were wrong
    pausing_work.py queue MEGABYTES       until then: additions to all of it, as many queued as fit
    pausing_work.py ask N GAP MEGABYTES   N requests: times of the first kernel, and of small ones

On the first GPU. With `--gpu N` at the end on that one, and then `multiply` has products on all
other GPUs too, in turn with these: no program waits for that work or takes it off them.
"""

import json
import select
import sys
import time

import torch

from loads.torch_kernel import products


def multiply(side, gpus):
    """Products of the same matrices, each compared with the GPU's first by a sum over its bits."""
    each = [products(f"cuda:{gpu}", side) for gpu in gpus]
    firsts, count, wrong = None, 0, 0
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        bits = [product() for product in each]
        firsts = bits if firsts is None else firsts
        count += len(bits)
        wrong += sum(one != first for one, first in zip(bits, firsts))
    return {"products": count, "wrong": wrong}


def queue(megabytes):
    """Additions without a wait: mostly this thread is inside the driver, at a full queue."""
    memory, count = torch.zeros(megabytes << 18, device="cuda"), 0
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        memory.add_(1)
        count += 1
    assert count < 1 << 24, "more than its numbers can count"
    pieces = memory.split(1 << 24)
    return {"products": count, "wrong": sum(int((one != count).sum().item()) for one in pieces)}


def ask(count, gap, megabytes):
    """Requests with gaps between."""
    memory = torch.ones(megabytes << 18, device="cuda")
    one = torch.zeros(1024, device="cuda")
    first, small = [], []

    def kernel():
        start = time.perf_counter()
        one.add_(1)
        torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e3

    for _ in range(20):
        kernel()
    for _ in range(count):
        time.sleep(gap)
        first.append(kernel())
        assert memory.sum().item() == memory.numel()
        small += [kernel() for _ in range(3)]
    return {"first_ms": first, "small_ms": small}


if __name__ == "__main__":
    role, *words = sys.argv[1:]
    gpus = [0]
    if words[-2:-1] == ["--gpu"]:
        own = int(words[-1])
        gpus = [own, *(gpu for gpu in range(torch.cuda.device_count()) if gpu != own)]
    torch.cuda.set_device(gpus[0])
    if role == "multiply":
        found = multiply(int(words[0]), gpus)
    elif role == "queue":
        found = queue(int(words[0]))
    else:
        found = ask(int(words[0]), float(words[1]), int(words[2]))
    print(json.dumps(found), flush=True)
