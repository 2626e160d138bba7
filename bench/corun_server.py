#!/usr/bin/env python3
"""A server of the co-running measurement: requests come at random times, as from many users.

    baton run --class latency -- python3 bench/corun_server.py bert_large --answers 3

Reads commands from stdin, one per line, and answers each with one JSON line on the descriptor that
--answers names:

    requests N LOAD SECONDS SEED MS   N requests, each of which is taken to last MS alone, at LOAD
                                      (0.5: half of the time), for SECONDS at most: {"ms": from each
                                      one's arrival to its end, "seconds": all}
    pace                              {"alone_ms": of one request, now}
    quit                              ends

The first answer comes unasked, when the server is ready: {"graph": whether requests are CUDA
graphs}. The program knows nothing of Baton.
"""

import random
import statistics
import sys
import time

from loads import CORUN_SERVED
from loads.worker import Worker

WARM_UP, MEASURED = 20, 60


def prepared(forward, inputs, graph):
    """(a request that leaves its work behind, how to wait for it, whether it is a CUDA graph)."""
    import torch

    def plain():
        with torch.inference_mode():
            return forward(*inputs)

    if not torch.cuda.is_available():
        return plain, lambda: None, False
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            plain()
    torch.cuda.synchronize()
    if not graph:
        return plain, torch.cuda.synchronize, False
    captured = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(captured):
            plain()
    except RuntimeError:
        # A model that asks the GPU something on its way cannot be one.
        return plain, torch.cuda.synchronize, False
    return captured.replay, torch.cuda.synchronize, True


def timed(request, wait):
    """Milliseconds of one request."""
    start = time.perf_counter()
    request()
    wait()
    return (time.perf_counter() - start) * 1e3


def arrivals(count, load, alone_ms, seed):
    """Seconds from the start at which requests arrive: a Poisson process."""
    draw, at = random.Random(seed), 0.0
    for _ in range(count):
        at += draw.expovariate(load / (alone_ms / 1e3))
        yield at


def serve(request, wait, times, seconds):
    """Milliseconds from each arrival to its request's end; ends early after so many seconds."""
    start, found = time.perf_counter(), []
    for at in times:
        if time.perf_counter() - start > seconds:
            break
        while time.perf_counter() - start < at:
            pass
        request()
        wait()
        found.append((time.perf_counter() - start - at) * 1e3)
    return {"ms": found, "seconds": time.perf_counter() - start}


def main():
    """The loop over commands."""
    worker = Worker(__doc__, "model", CORUN_SERVED, eager={"action": "store_true"})
    load = worker.build(worker.arguments.device, worker.arguments.size)
    request, wait, graph = prepared(*load, not worker.arguments.eager)
    for _ in range(WARM_UP):
        timed(request, wait)
    worker.ready(graph=graph)
    for line in sys.stdin:
        command, *rest = line.split() or ["quit"]
        if command == "quit":
            break
        if command == "pace":
            alone = statistics.median(timed(request, wait) for _ in range(MEASURED))
            worker.answer({"alone_ms": alone})
            continue
        count, load, seconds, seed, pace = (float(word) for word in rest)
        worker.answer(serve(request, wait, arrivals(int(count), load, pace, int(seed)), seconds))


if __name__ == "__main__":
    main()
