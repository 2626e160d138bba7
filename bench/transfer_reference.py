#!/usr/bin/env python3
"""How fast PyTorch copies between the GPU and the host, through one pinned buffer each way.

    python3 bench/transfer_reference.py --bytes 10737418240

Prints a JSON object of GB/s, a list per way: `in` and `out` alone, `both_in` and `both_out` at once
on two streams. This is what the transfers of transfer.py are held against. No Baton here.
"""

import argparse
import json
import sys
import time

from common.programs import ABSENT


def copies(device_memory, pinned, into_device):
    """Copies that take the buffer over all of the device memory, not waited for, one at a time."""
    step = pinned.numel()
    for start in range(0, device_memory.numel(), step):
        piece = device_memory[start : start + step]
        host = pinned[: piece.numel()]
        if into_device:
            piece.copy_(host, non_blocking=True)
        else:
            host.copy_(piece, non_blocking=True)
        yield piece.numel()


def one_way(torch, device_memory, pinned, into_device):
    """GB/s from the first copy's submission to the last one's end."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    count = sum(copies(device_memory, pinned, into_device))
    torch.cuda.synchronize()
    return count / (time.perf_counter() - started) / 1e9


def both_ways(torch, memories, buffers):
    """GB/s in and out, at once; each by events on its own stream."""
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in streams]
    torch.cuda.synchronize()
    for stream, (begin, _) in zip(streams, events):
        begin.record(stream)
    ways = [copies(memories[0], buffers[0], True), copies(memories[1], buffers[1], False)]
    counts, more = [0, 0], True
    while more:
        more = False
        for i, (stream, way) in enumerate(zip(streams, ways)):
            with torch.cuda.stream(stream):
                if count := next(way, 0):
                    counts[i], more = counts[i] + count, True
    for stream, (_, end) in zip(streams, events):
        end.record(stream)
    torch.cuda.synchronize()
    return [
        count / (begin.elapsed_time(end) / 1e3) / 1e9 for count, (begin, end) in zip(counts, events)
    ]


def main():
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=10 << 30)
    parser.add_argument("--buffer", type=int, default=1 << 30, help="bytes of each pinned buffer")
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    try:
        import torch
    except ModuleNotFoundError as error:
        print(f"not installed: {error.name}", file=sys.stderr)
        sys.exit(ABSENT)
    if not torch.cuda.is_available():
        print("not installed: a CUDA GPU", file=sys.stderr)
        sys.exit(ABSENT)
    memories = [torch.empty(arguments.bytes, dtype=torch.uint8, device="cuda") for _ in range(2)]
    buffers = [torch.zeros(arguments.buffer, dtype=torch.uint8).pin_memory() for _ in range(2)]
    found = {"in": [], "out": [], "both_in": [], "both_out": []}
    # The first time is a warm-up.
    for number in range(arguments.repeat + 1):
        once = {
            "in": one_way(torch, memories[0], buffers[0], True),
            "out": one_way(torch, memories[0], buffers[0], False),
        }
        once["both_in"], once["both_out"] = both_ways(torch, memories, buffers)
        if number:
            for way, gbps in once.items():
                found[way].append(gbps)
    print(json.dumps({"bytes": arguments.bytes, "buffer": arguments.buffer, **found}))


if __name__ == "__main__":
    main()
