#!/usr/bin/env python3
"""One process of the cost measurement: a workload that runs only while its controller lets it.

Reads commands from stdin, one per line, and answers each with one JSON line on the descriptor that
--answers names:

    go SECONDS   runs whole steps for that long, waits for the GPU: {"steps": N, "seconds": S}
    quit         ends

The first answer, unasked, comes after the warm-up: {"ready": true, "libraries": [...],
"reserved_bytes": the GPU memory that the program itself knows of}. PyTorch's
settings are its defaults, and so are the models': this is what a user's program would do. While it
holds no token the process sleeps in a read.
"""

import argparse
import json
import os
import sys
import time

from common.programs import mapped_libraries

WARM_UP = 10


def resnet152_train(device, batch=32):
    """ResNet-152, training; at batch 32 a step is bound by the CPU's launches."""
    from loads import torch_models

    _, step = torch_models.resnet152_training_step(device, batch=batch)
    return step, lambda: torch_models.synchronize(device)


def resnet152_train_64(device):
    """The same at batch 64, which keeps the GPU busy."""
    return resnet152_train(device, batch=64)


def bert_infer(device):
    """BERT-base, inference, batch 8, 128 tokens."""
    from loads import torch_models

    _, step = torch_models.bert_inference_step(device, batch=8, length=128)
    return step, lambda: torch_models.synchronize(device)


def spin(_device):
    """A loop on the CPU, to try the measurement itself on a machine without a GPU."""

    def step():
        return sum(i * i for i in range(20_000))

    return step, lambda: None


def driver(_device):
    """Short kernels through the driver API, for the simulated driver."""
    from ctypes import c_uint

    from loads.driver_ctypes import Session

    session, count = Session(), 1 << 12
    at = session.allocate(4 * count)

    def step():
        session.launch("fill_hash", count, at, c_uint(1), c_uint(count))

    return step, session.wait


WORKLOADS = {
    "resnet152_train": resnet152_train,
    "resnet152_train_64": resnet152_train_64,
    "resnet152_train_64_segments": resnet152_train_64,
    "resnet152_train_64_async": resnet152_train_64,
    "bert_infer": bert_infer,
    "driver": driver,
    "spin": spin,
}


def reserved_bytes():
    """Bytes that PyTorch has allocated from the driver; 0 where it is not used."""
    torch = sys.modules.get("torch")
    return torch.cuda.memory_reserved() if torch and torch.cuda.is_initialized() else 0


def block(step, finish, seconds):
    """Whole steps for `seconds`, and the wait for the last of them."""
    steps = 0
    started = time.perf_counter()
    while time.perf_counter() - started < seconds:
        step()
        steps += 1
    finish()
    return {"steps": steps, "seconds": time.perf_counter() - started}


def main():
    """Command line, warm-up, and the loop over commands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--answers", type=int, required=True, help="descriptor for the answers")
    parser.add_argument("--watch", nargs="*", default=[], help="libraries to report if loaded")
    arguments = parser.parse_args()
    # Not stdout: libraries print there as they like.
    answers = os.fdopen(arguments.answers, "w", buffering=1)
    step, finish = WORKLOADS[arguments.workload](arguments.device)
    for _ in range(WARM_UP):
        step()
    finish()
    libraries = sorted(mapped_libraries(os.getpid(), arguments.watch))
    ready = {"ready": True, "libraries": libraries, "reserved_bytes": reserved_bytes()}
    print(json.dumps(ready), file=answers)
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "quit":
            break
        print(json.dumps(block(step, finish, float(rest[0]))), file=answers)


if __name__ == "__main__":
    main()
