#!/usr/bin/env python3
"""Shows which time-outs of a program end it when it is kept off the GPU.

    python3 bench/timeouts.py --baton target/release --out timeouts.json

Watchdogs of frameworks count the time of the clock, which goes on while a program is suspended or waits for its turn. A program computes with
time-outs of so many seconds, and is suspended for less and for more than that (`baton suspend`), or stopped (SIGSTOP) bare, in the middle of a
step (`timeouts_work.py`).

The exit status is 0 if every program that survived computed the same as alone.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from common import machine, table
from common.coordinator import Coordinator, Driver, Install

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 6
# NVLink multicast is no business of this measurement.
QUIET = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
# A program, the seconds of its time-outs, settings more, and for how many seconds it is kept off the GPU.
CASES = [
    ("torch", 10, {}, 5),
    ("torch", 10, {}, 25),
    ("torch", 600, {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "10"}, 30),
    ("jax", 5, {}, 25),
]


class Program:
    """A program at work."""

    def __init__(self, argv, settings):
        self.errors = tempfile.TemporaryFile()
        environment = {**os.environ, **QUIET, **settings}
        self.process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=self.errors, env=environment, text=True, start_new_session=True
        )

    def until(self, word):
        """Waits for a line with this word; its rest, or none if the program has ended."""
        for line in self.process.stdout:
            if line.startswith(word):
                return line[len(word) :].strip()
        return None

    def end(self, timeout=180):
        """Its result; or the signal or status with which it has ended, and what it has said of that."""
        try:
            result = self.until("result ")
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None, "hangs", ""
        self.errors.seek(0)
        lines = self.errors.read().decode(errors="replace").splitlines()
        told = [line for line in lines if "timeout" in line.lower() or "heartbeat" in line.lower()]
        said = machine.scrub(told[0][-300:]) if told and result is None else ""
        return result, "" if status == 0 else f"ended with {status}", said


def work(kind, seconds):
    """The command line of one of the programs."""
    return [sys.executable, "-W", "ignore", str(HERE / "timeouts_work.py"), kind, str(STEPS), str(seconds)]


def kept_off(program, begin, end, seconds):
    """What becomes of a program that is kept off the GPU for so long in the middle of a step."""
    if program.until("step 0") is None:
        return program.end()
    begin()
    time.sleep(seconds)
    end()
    return program.end()


def main():
    """Runs, writes, prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", required=True, type=pathlib.Path, help="the folder of `baton`")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("timeouts.json"))
    parser.add_argument("--programs", nargs="+", default=["torch", "jax"], choices=["torch", "jax"])
    arguments = parser.parse_args()
    Install.check(arguments.baton, parser)
    driver = Driver(Install.of(arguments.baton))
    result = {"kind": "timeouts", "machine": machine.describe(), "command": machine.command_line(), "cases": []}
    alone = {}
    for kind, limit, settings, seconds in [case for case in CASES if case[0] in arguments.programs]:
        if kind not in alone:
            alone[kind], ended, said = Program(work(kind, 600), {}).end()
            print(kind, "alone:", alone[kind], ended, said, flush=True)
        bare = Program(work(kind, limit), settings)

        def stops(number, bare=bare):
            os.killpg(bare.process.pid, number)

        rows = {"stopped, bare": kept_off(bare, lambda: stops(signal.SIGSTOP), lambda: stops(signal.SIGCONT), seconds)}
        with Coordinator(driver, "40GiB", "40GiB") as serving:
            program = Program(serving.run("job", work(kind, limit)), {**serving.settings, **settings})

            def steer(verb, serving=serving):
                if serving.tenant("job"):
                    serving.steer(verb, "job")

            rows["suspended"] = kept_off(program, lambda: steer("suspend"), lambda: steer("resume"), seconds)
        for how, (found, ended, said) in rows.items():
            case = {"program": kind, "limit_seconds": limit, "settings": settings, "seconds": seconds, "how": how}
            result["cases"].append({**case, "survives": found is not None, "equal": found == alone[kind], "ended": ended, "said": said})
            print(result["cases"][-1], flush=True)
    machine.write_json(arguments.out, result)
    shown = [
        [one["program"], one["limit_seconds"], " ".join(one["settings"].values()), one["how"], one["seconds"]]
        + [("right" if one["equal"] else "DIFFERS") if one["survives"] else one["ended"]]
        for one in result["cases"]
    ]
    print(table.text(["program", "time-out s", "heartbeat s", "kept off", "for s", "result"], shown))
    return 0 if all(one["equal"] for one in result["cases"] if one["survives"]) else 1


if __name__ == "__main__":
    sys.exit(main())
