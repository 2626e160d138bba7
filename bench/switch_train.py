#!/usr/bin/env python3
"""The training that a switching measurement interrupts: runs until told otherwise.

    baton run --class batch -- python3 bench/switch_train.py resnet152 --answers 3

Reads commands from stdin, one per line, and answers each with one JSON line on the descriptor that
--answers names, {"steps": done so far, "at": when, in seconds, "filled": bytes of filler}:

    go        trains, until the next `hold`
    hold      stops, and waits for all that was begun
    mark      waits for all that was begun
    fill N    takes N bytes more device memory, or as much as there is
    quit      ends

The first answer comes unasked, when a few steps are done; it has the `libraries` too. The program
knows nothing of Baton.
"""

import argparse
import json
import os
import select
import sys
import time

from common.programs import ABSENT, mapped_libraries
from loads import SETTINGS, TRAINED, found

WARM_UP = 5


class Trainer:
    """What the commands do."""

    def __init__(self, training):
        self.training, self.runs, self.steps, self.filled = training, False, 0, 0

    def step(self):
        """One step."""
        self.training.step(self.steps)
        self.steps += 1

    def obey(self, line):
        """The answer to one command."""
        command, *rest = line.split()
        if command == "fill":
            self.filled += self.training.fill(int(rest[0]))
        elif command in ("go", "hold"):
            self.runs = command == "go"
        self.training.wait()
        return {"steps": self.steps, "at": time.perf_counter(), "filled": self.filled}


def main():
    """Command line, and the loop over steps and commands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=TRAINED)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--size", default="full", choices=["full", "small"])
    parser.add_argument("--answers", type=int, required=True, help="descriptor for the answers")
    parser.add_argument("--watch", nargs="*", default=[], help="libraries to report if loaded")
    arguments = parser.parse_args()
    answers = os.fdopen(arguments.answers, "w", buffering=1)
    os.environ.update(SETTINGS)
    try:
        build = found(TRAINED[arguments.model])
    except ModuleNotFoundError as error:
        print(f"not installed: {error.name}", file=sys.stderr)
        sys.exit(ABSENT)
    trainer = Trainer(build(arguments.device, arguments.size))
    for _ in range(WARM_UP):
        trainer.step()
    ready = {"ready": True, "libraries": sorted(mapped_libraries(os.getpid(), arguments.watch))}
    print(json.dumps({**ready, **trainer.obey("hold")}), file=answers)
    while True:
        # One command at a time is sent, so that none waits in a buffer where `select` sees it not.
        if trainer.runs and not select.select([sys.stdin], [], [], 0)[0]:
            trainer.step()
            continue
        line = sys.stdin.readline()
        if line.strip() in ("", "quit"):
            break
        print(json.dumps(trainer.obey(line)), file=answers)


if __name__ == "__main__":
    main()
