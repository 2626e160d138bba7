#!/usr/bin/env python3
"""The program whose calls trace_check.py counts: ResNet-152 and BERT in one process, N steps.

Each step classifies pictures, trains on them, encodes sentences, copies in all three directions,
fills memory, and gives all cached memory back so that the next step must allocate again. Two steps
of warm-up come before the counted region. With --profile, PyTorch's profiler watches the region.
"""

import argparse
import json
import pathlib
import sys

import torch

from loads import torch_models

WARM_UP = 2


def make_step(device):
    """One step, as described above; gives the loss."""
    torch_models.make_deterministic()
    batch = 4 if device == "cuda" else 2
    _, train = torch_models.resnet152_training_step(device, batch)
    _, classify = torch_models.resnet152_inference_step(device, batch)
    _, encode = torch_models.bert_inference_step(device, batch, length=64)
    host = torch.rand(1 << 22)
    if device == "cuda":
        host = host.pin_memory()

    def step():
        values = host.to(device, non_blocking=True)
        scores = classify()
        hidden, _ = encode()
        # A reduction over many blocks zeroes its semaphores by a fill of memory.
        total = values.sum() + scores.sum() + hidden.clone().sum()
        loss = train() + 0 * total
        answer = loss.item()
        del values, scores, hidden, total, loss
        if device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        return answer

    return step


def allocator_counts(device):
    """How often PyTorch's allocator has called cudaMalloc and cudaFree, by its own count."""
    stats = torch.cuda.memory_stats() if device == "cuda" else {}
    return {
        "allocations": stats.get("num_device_alloc", 0),
        "frees": stats.get("num_device_free", 0),
    }


def main():
    """Command line, warm-up, region."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, required=True, help="steps in the region")
    parser.add_argument("--profile", type=pathlib.Path, help="write the profiler's trace here")
    parser.add_argument("--json", type=pathlib.Path, required=True, help="write the counts here")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    arguments = parser.parse_args()

    step = make_step(arguments.device)
    for _ in range(WARM_UP):
        step()
    before = allocator_counts(arguments.device)
    if arguments.profile:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if arguments.device == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities) as profiler:
            losses = [step() for _ in range(arguments.steps)]
        profiler.export_chrome_trace(str(arguments.profile))
    else:
        losses = [step() for _ in range(arguments.steps)]
    after = allocator_counts(arguments.device)
    report = {
        "steps": arguments.steps,
        "losses": losses,
        "allocator": {kind: after[kind] - before[kind] for kind in after},
    }
    arguments.json.write_text(json.dumps(report) + "\n")


if __name__ == "__main__":
    sys.exit(main())
