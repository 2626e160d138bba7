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

import argparse
import gc
import json
import os
import sys
import time

from common.programs import ABSENT, mapped_libraries
from loads import SERVED, SETTINGS, found


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
    """Command line, and the loop over commands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=SERVED)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--size", default="full", choices=["full", "small"])
    parser.add_argument("--warm", type=int, default=0, help="requests before it says it is ready")
    parser.add_argument("--answers", type=int, required=True, help="descriptor for the answers")
    parser.add_argument("--watch", nargs="*", default=[], help="libraries to report if loaded")
    arguments = parser.parse_args()
    answers = os.fdopen(arguments.answers, "w", buffering=1)
    os.environ.update(SETTINGS)
    try:
        build = found(SERVED[arguments.model])
    except ModuleNotFoundError as error:
        print(f"not installed: {error.name}", file=sys.stderr)
        sys.exit(ABSENT)
    service = build(arguments.device, arguments.size)
    for number in range(arguments.warm):
        service.request(number)
    # As servers do: what lives for ever is not looked at by the collector.
    gc.collect()
    gc.freeze()
    ready = {"ready": True, "libraries": sorted(mapped_libraries(os.getpid(), arguments.watch))}
    print(json.dumps({**ready, "stateful": service.stateful, **memory(service)}), file=answers)
    for line in sys.stdin:
        command, *rest = line.split()
        if command == "quit":
            break
        answer = timed(service, int(rest[0])) if command == "request" else memory(service)
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
