#!/usr/bin/env python3
"""A model server of the switching measurement: gets ready, and answers requests when told.

    baton run --class latency -- python3 bench/switch_server.py resnet152 --answers 3

Reads commands from stdin, one per line, and answers each with one JSON line on the descriptor that
--answers names:

    request I    the I-th input, from the host to the outputs on the host: {"ms", "digest"}
    memory       {"parameter_bytes", "reserved_bytes"}
    quit         ends

The time is measured here, around all that a client would wait for; the digest is made afterwards.
The first answer, unasked: {"ready": true, "libraries", "stateful", and what `memory` says}. The
program knows nothing of Baton.
"""

import gc
import sys
import time

from loads import SERVED
from loads.worker import Worker


def timed(service, number):
    """The answer to one request."""
    started = time.perf_counter()
    outputs = service.request(number)
    ms = (time.perf_counter() - started) * 1e3
    return {"ms": ms, "digest": service.digest(outputs)}


def memory(service):
    """How much it has, as far as its library knows."""
    return {"parameter_bytes": service.parameter_bytes, "reserved_bytes": service.memory()}


def main():
    """The loop over commands."""
    warm = {"type": int, "default": 0, "help": "requests before it says it is ready"}
    worker = Worker(__doc__, "model", SERVED, warm=warm)
    service = worker.build(worker.arguments.device, worker.arguments.size)
    for number in range(worker.arguments.warm):
        service.request(number)
    # As servers do: what lives for ever is not looked at by the collector.
    gc.collect()
    gc.freeze()
    worker.ready(stateful=service.stateful, **memory(service))
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "quit":
            break
        worker.answer(timed(service, int(rest[0])) if command == "request" else memory(service))


if __name__ == "__main__":
    main()
