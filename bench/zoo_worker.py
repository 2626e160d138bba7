#!/usr/bin/env python3
"""Runs one program of the zoo and prints what it computed as a JSON object.

    python3 bench/zoo_worker.py mlp_sgd --seconds 3
    python3 bench/zoo_worker.py mlp_sgd --steps 40

The object holds {name, steps, seconds, digest, step_digests, figures, first_seconds}. A step's
digest is a SHA-256 over all bytes of all its outputs, cut to 12 digits; `digest` is over all steps.
A step's figure is one number made of its outputs, for programs that do not repeat themselves
bit for bit. `--seconds` counts from the end of the first step, which compiles.

The program knows nothing of Baton.
"""

import argparse
import hashlib
import json
import math
import os
import sys
import time

from common.programs import ABSENT
from loads.zoo import SETTINGS, ZOO

LEAST_STEPS = 4


def host_array(output):
    """An output of any of the frameworks as a NumPy array."""
    import numpy

    if hasattr(output, "detach"):
        import torch

        tensor = output.detach().contiguous().cpu()
        if tensor.dtype in (torch.bfloat16, torch.float8_e4m3fn):
            # NumPy has no such type; the next larger one holds each value as it is.
            tensor = tensor.float()
        return tensor.numpy()
    if hasattr(output, "get") and hasattr(output, "data"):
        output = output.get()
    return numpy.asarray(output)


class Record:
    """The results, step by step."""

    def __init__(self):
        self.whole, self.steps, self.figures = hashlib.sha256(), [], []

    def add(self, outputs):
        """Takes in one step's outputs."""
        import numpy

        one, figure = hashlib.sha256(), 0.0
        for output in outputs if isinstance(outputs, (tuple, list)) else [outputs]:
            array = numpy.ascontiguousarray(host_array(output))
            one.update(f"{array.dtype}{array.shape}".encode())
            one.update(array.tobytes())
            real = numpy.abs(array) if array.dtype.kind == "c" else array
            figure += float(numpy.abs(real.astype(numpy.float64)).mean())
        if not math.isfinite(figure):
            raise ValueError(f"step {len(self.steps)} computed something that is not finite")
        self.whole.update(one.digest())
        self.steps.append(one.hexdigest()[:12])
        self.figures.append(figure)


def play(program, steps, seconds):
    """Takes steps of a program, so many or for so long, and gives the object without its name."""
    record, started, first = Record(), time.perf_counter(), None
    for outputs in program:
        record.add(outputs)
        now = time.perf_counter()
        first = now if first is None else first
        done = len(record.steps)
        if done >= steps if steps else done >= LEAST_STEPS and now - first >= seconds:
            break
    program.close()
    return {
        "steps": len(record.steps),
        "seconds": round(now - first, 3),
        "first_seconds": round(first - started, 3),
        "digest": record.whole.hexdigest(),
        "step_digests": record.steps,
        "figures": record.figures,
    }


def main():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=sorted(ZOO), metavar="NAME")
    parser.add_argument("--steps", type=int, help="so many steps instead of so many seconds")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    arguments = parser.parse_args()
    entry = ZOO[arguments.name]
    os.environ.update({**SETTINGS, **dict(entry.settings)})
    try:
        function = entry.load()
    except ModuleNotFoundError as error:
        print(f"not installed: {error.name}", file=sys.stderr)
        sys.exit(ABSENT)
    result = play(function(arguments.device), arguments.steps, arguments.seconds)
    print(json.dumps({"name": arguments.name, **result}), flush=True)


if __name__ == "__main__":
    main()
