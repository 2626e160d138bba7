"""The beginning of all workers that run a load: command line, libraries, the way to answer."""

import argparse
import json
import os
import select
import sys

from common.programs import ABSENT, mapped_libraries
from loads import SETTINGS, found


def serve(program, answer, lines, gap=0):
    """The loop over commands, and over the program's steps while it `runs`, with so many seconds after each."""
    while True:
        # One command at a time is sent, so that none waits in a buffer where `select` sees it not.
        if program.runs and not select.select([lines], [], [], gap)[0]:
            program.step()
            continue
        command, *words = lines.readline().split() or ["quit"]
        if command == "quit":
            break
        answer(getattr(program, command)(*words))


class Worker:
    """A worker's command line and answers; `build` makes its load."""

    def __init__(self, description, argument, loads, **options):
        """Reads the command line; `options` are more of it. Ends if a library is not there."""
        parser = argparse.ArgumentParser(description=description.splitlines()[0])
        parser.add_argument(argument, choices=loads)
        parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
        parser.add_argument("--size", default="full", choices=["full", "small"])
        for name, settings in options.items():
            parser.add_argument(f"--{name}", **settings)
        parser.add_argument("--answers", type=int, required=True, help="descriptor for the answers")
        parser.add_argument("--watch", nargs="*", default=[], help="libraries to report if loaded")
        self.arguments = parser.parse_args()
        self.answers = os.fdopen(self.arguments.answers, "w", buffering=1)
        os.environ.update(SETTINGS)
        try:
            self.build = found(loads[getattr(self.arguments, argument)])
        except ModuleNotFoundError as error:
            print(f"not installed: {error.name}", file=sys.stderr)
            sys.exit(ABSENT)

    def answer(self, answer):
        """One answer."""
        print(json.dumps(answer), file=self.answers)

    def ready(self, **more):
        """The first answer, which comes unasked."""
        libraries = sorted(mapped_libraries(os.getpid(), self.arguments.watch))
        self.answer({"ready": True, "libraries": libraries, **more})
