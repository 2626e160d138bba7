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

import select
import sys
import time

from loads import TRAINED
from loads.worker import Worker

WARM_UP = 5


class Trainer:
    """The commands' actions."""

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
    """The loop over steps and commands."""
    worker = Worker(__doc__, "model", TRAINED)
    trainer = Trainer(worker.build(worker.arguments.device, worker.arguments.size))
    for _ in range(WARM_UP):
        trainer.step()
    worker.ready(**trainer.obey("hold"))
    while True:
        # One command at a time is sent, so that none waits in a buffer where `select` sees it not.
        if trainer.runs and not select.select([sys.stdin], [], [], 0)[0]:
            trainer.step()
            continue
        line = sys.stdin.readline()
        if line.strip() in ("", "quit"):
            break
        worker.answer(trainer.obey(line))


if __name__ == "__main__":
    main()
