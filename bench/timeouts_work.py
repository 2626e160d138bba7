#!/usr/bin/env python3
"""One program of the time-outs measurement: it computes, and a watchdog of its framework counts the time.

    timeouts_work.py torch STEPS SECONDS     PyTorch with NCCL, a single rank, whose collectives time out after SECONDS
    timeouts_work.py jax STEPS SECONDS       JAX, whose rendezvous time out after SECONDS

It prints a line for each step, and `result CHECKSUM`. It knows nothing of Baton.
"""

import datetime
import os
import sys
import tempfile

SIDE = 8192
PRODUCTS = 40


def step_of_torch(seconds):
    """A step with a collective behind work of a second or so."""
    import torch
    import torch.distributed as dist

    folder = tempfile.mkdtemp(prefix="timeouts-")
    limit = datetime.timedelta(seconds=seconds)
    dist.init_process_group("nccl", f"file://{folder}/store", world_size=1, rank=0, timeout=limit)
    torch.manual_seed(1)
    factor = torch.randn(SIDE, SIDE, device="cuda") / SIDE**0.5

    def step(values):
        values = torch.ones(SIDE, SIDE, device="cuda") if values is None else values
        for _ in range(PRODUCTS):
            values = values @ factor
        dist.all_reduce(values)
        return values, float(values.double().sum())

    return step


def step_of_jax(seconds):
    """The same without a collective: this has one GPU."""
    flags = ("executable_terminate_timeout", "first_collective_call_terminate_timeout_seconds")
    words = [f"--xla_gpu_{flag}={seconds}" for flag in flags]
    os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *words])
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax
    import jax.numpy as jnp

    factor = jax.random.normal(jax.random.PRNGKey(1), (SIDE, SIDE)) / SIDE**0.5

    @jax.jit
    def products(values):
        for _ in range(PRODUCTS):
            values = values @ factor
        return values

    def step(values):
        values = products(jnp.ones((SIDE, SIDE)) if values is None else values)
        return values, float(values.sum())

    return step


def main():
    """Computes."""
    kind, steps, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    step = {"torch": step_of_torch, "jax": step_of_jax}[kind](seconds)
    values, last = step(None)
    for number in range(steps):
        values, last = step(values)
        print(f"step {number}", flush=True)
    print(f"result {last!r}", flush=True)


if __name__ == "__main__":
    main()
