#!/usr/bin/env python3
"""A tenant of the transfer measurement: device memory by the driver API, moved about on command.

Reads commands from stdin, one per line, and answers each with one JSON line on the descriptor that
--answers names, {"seconds": how long it took, ...}:

    alloc COUNT BYTES   so many pieces more; {"error": CODE} if there is no room
    write SEED          a pattern into every piece, and its sums kept
    touch               the least work that needs the memory; after a write
    check               adds everything up: {"equal": as it was written, "granules": N}
    free                gives all pieces back
    quit                ends

The first answer, unasked: {"ready": true}. It knows nothing of Baton.
"""

import argparse
import json
import os
import sys
import time

from loads.driver_ctypes import DriverError
from loads.driver_pieces import Pieces


class Tenant:
    """The commands' actions."""

    def __init__(self):
        self.pieces, self.written = Pieces(), None

    def alloc(self, count, size):
        """New pieces; their contents are of no interest until written."""
        self.pieces.allocate(int(count), int(size))

    def write(self, seed):
        """Patterns, and what they add up to while they have not been anywhere else."""
        self.pieces.write_all(int(seed))
        self.written = self.pieces.add_up()

    def touch(self):
        """Demands the memory, and changes nothing of what was written."""
        self.pieces.touch()

    def check(self):
        """Every granule against what was written."""
        sums = self.pieces.add_up()
        return {"equal": sums == self.written, "granules": len(sums)}

    def free(self):
        """All pieces."""
        self.pieces.free()

    def obey(self, line):
        """The answer to one command."""
        command, *rest = line.split()
        started = time.perf_counter()
        try:
            answer = getattr(self, command)(*rest) or {}
        except DriverError as error:
            answer = {"error": error.code, "said": str(error)}
        return {"seconds": time.perf_counter() - started, **answer}


def main():
    """Command line, and the loop over commands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answers", type=int, required=True, help="descriptor for the answers")
    answers = os.fdopen(parser.parse_args().answers, "w", buffering=1)
    tenant = Tenant()
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        if line.strip() == "quit":
            break
        print(json.dumps(tenant.obey(line)), file=answers)


if __name__ == "__main__":
    main()
