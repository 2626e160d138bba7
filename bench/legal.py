#!/usr/bin/env python3
"""Checks that legal programs of unusual kinds do the same under Baton as bare.

    python3 bench/legal.py --baton target/release --programs FOLDER --out legal.json

`FOLDER` is `legal` in what `tests/c/build.sh` makes. Each case is played bare and as a tenant.
Where a program waits for a line, something is done to it meanwhile: it is evicted, perhaps in favour
of another program that takes most of the arena, it is suspended and resumed, or another program wants
the GPU. With `--gpus 2` programs on two GPUs are played.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

from common import machine, table
from common.coordinator import Coordinator, Driver, Install, NoCoordinator

CASES = (
    ("aliases", "retain", "evicted"),
    ("aliases", "owner", "evicted"),
    ("freeing", "beside-questions", None),
    ("freeing", "in-order-beside-destroy", None),
    ("freeing", "in-order", None),
    ("freeing", "in-order-contents", "suspended"),
    ("freeing", "captured", None),
    ("freeing", "captured-elsewhere", None),
    ("ordering", "capture", None),
    ("ordering", "capture-kernel", None),
    ("per_thread", "launches", "wanted"),
    ("sources", "child", "evicted"),
    ("sources", "disabled", "evicted"),
    ("sources", "device-address", "evicted"),
    ("sources", "pinned-freed", "evicted"),
    ("descriptors", "at-the-limit", "evicted"),
    ("exported", "export", None),
    ("exported", "two", "evicted"),
    ("exported", "bus", None),
)
# However addresses come to kernels whose memory arrives.
WAYS = (
    "late-copy late-behind-event late-behind-kernel late-2d "
    "late-by-host-function late-synchronous late-registered late-graph graph-rows graph-direct direct "
    "direct-deep chain variable managed write-words write-halves write-lower-halves fill-halves "
    "fill-quarters fill-bytes fill-2d copy-parts copy-odd move-halves move-rows-of-halves packed before"
)
CASES += tuple(("reach", way, "replaced") for way in WAYS.split())
ON_TWO = tuple(
    ("several", case, "evicted")
    for case in (
        "second-alone",
        "second-beside",
        "copies",
        "copies-second-first",
        "peers",
        "questions",
        "taken-later",
        "taken-across",
    )
)
HEADER = ["program", "case", "meanwhile", "done", "result"]


class Meanwhile:
    """The disturbances of a tenant that waits for a line."""

    def __init__(self, coordinator, name, what, programs, megabytes):
        self.coordinator, self.name, self.what, self.programs = coordinator, name, what, programs
        self.megabytes = megabytes
        self.done, self.other = 0, None

    def steer(self, verb):
        """Has a user's command act on it."""
        command = [str(self.coordinator.install.command), verb]
        ran = subprocess.run(
            [*command, "--socket", str(self.coordinator.socket), self.name],
            capture_output=True,
            timeout=60,
        )
        self.done += ran.returncode == 0

    def __call__(self):
        if self.what == "evicted":
            try:
                self.coordinator.evict(self.name, timeout=5)
                self.done += 1
            except NoCoordinator:
                # It is at work, or its memory has to stay: then it goes on as it is.
                pass
        elif self.what == "replaced":
            self.coordinator.evict(self.name, timeout=20)
            fill = [self.programs.parent / "sharing/fill_and_check", "--rounds", "1"]
            ran = subprocess.run(
                self.coordinator.run("other", [*fill, "--megabytes", str(self.megabytes)]),
                capture_output=True,
                timeout=60,
                env={**os.environ, **self.coordinator.settings},
            )
            self.done += ran.returncode == 0
        elif self.what == "suspended":
            self.steer("suspend")
            self.steer("resume")
        elif self.what == "wanted" and self.other is None:
            hold = [self.programs.parent / "sharing/hold", "--megabytes", "8"]
            self.other = subprocess.Popen(
                self.coordinator.run("other", hold),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env={**os.environ, **self.coordinator.settings},
            )
            self.done += 1

    def end(self):
        """No other program wants the GPU any more."""
        if self.other is not None:
            self.other.stdin.close()
            self.other.wait(60)


def play(argv, environment, meanwhile):
    """(exit status, lines) of a program; `meanwhile` is called wherever it waits."""
    process = subprocess.Popen(
        list(map(str, argv)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    lines = []
    for line in process.stdout:
        lines.append(line.strip())
        if lines[-1] == "waits":
            meanwhile()
            try:
                process.stdin.write("\n")
                process.stdin.flush()
            except BrokenPipeError:
                pass
    errors = process.stderr.read()
    return process.wait(), lines, machine.scrub(errors[-400:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", type=pathlib.Path, required=True, help="folder of the build")
    parser.add_argument("--programs", type=pathlib.Path, required=True, help="their folder")
    parser.add_argument("--driver", help="`sim`, or a file; the system's if not given")
    parser.add_argument("--gpus", type=int, default=1, choices=(1, 2))
    parser.add_argument("--arena", default="40%", help="of the coordinator (40%%)")
    parser.add_argument("--host-pool", default="4GiB")
    parser.add_argument("--only", help="cases of this program")
    parser.add_argument("--other", type=int, default=1024, help="MiB that another program fills (1024)")
    parser.add_argument("--out", type=pathlib.Path, help="where the result goes, as JSON")
    arguments = parser.parse_args()
    Install.check(arguments.baton, parser)
    programs = arguments.programs.resolve()
    driver = Driver(Install.of(arguments.baton), arguments.driver)
    if driver.name == "sim":
        os.environ["SIMCUDA_GPUS"] = str(arguments.gpus)
    found = []
    with (
        Coordinator(driver, arguments.arena, arguments.host_pool) as coordinator,
        tempfile.TemporaryDirectory(prefix="baton-") as folder,
    ):
        for program, case, what in ON_TWO if arguments.gpus == 2 else CASES:
            if arguments.only not in (None, program):
                continue
            argv = [programs / program, case]
            bare = play(argv, driver.bare(folder), lambda: None)
            meanwhile = Meanwhile(coordinator, case, what, programs, arguments.other)
            baton = play(coordinator.run(case, argv), coordinator.settings, meanwhile)
            meanwhile.end()
            same = bare[:2] == baton[:2] and bare[0] == 0
            row = {"program": program, "case": case, "meanwhile": what, "done": meanwhile.done}
            found.append({**row, "equal": same})
            if not same:
                print(f"{program} {case}: bare {bare}\n    under Baton {baton}", file=sys.stderr)
    results = {True: "equal", False: "DIFFERENT"}
    rows = [[*map(str, list(row.values())[:4]), results[row["equal"]]] for row in found]
    print(table.text(HEADER, rows))
    equal = sum(row["equal"] for row in found)
    print(f"{equal} of {len(found)} as bare")
    if arguments.out:
        machine.write_json(arguments.out, {"kind": "legal", **machine.describe(), "legal": found})
    sys.exit(equal < len(found))


if __name__ == "__main__":
    main()
