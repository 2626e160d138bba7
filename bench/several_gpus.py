#!/usr/bin/env python3
"""Checks that programs that use two GPUs compute the same under Baton as bare.

    python3 bench/several_gpus.py --baton target/release --out several_gpus.json

Data parallel, tensor parallel and a pipeline over two GPUs, and JAX's `pmap` and sharding
(`several_gpus_work.py`), each bare, and under `baton run` with the first GPU shared, the second, and both. Another program trains on each of
the shared GPUs meanwhile, with its memory in the same arena. With `--evict` the programs' memory is sent to the host again and again; with
`--gang` those that have a process for each GPU run as gangs.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from common import machine, table
from common.coordinator import Install

HERE = pathlib.Path(__file__).resolve().parent
JOBS = ("ddp", "tensor", "pipeline", "pmap", "sharding")
# Those with a process for each GPU.
RANKS = ("ddp", "tensor")
# NVLink multicast is no business of this measurement.
QUIET = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
HEADER = [
    "program",
    "coordinators for",
    "result",
    "seconds",
    "beside it",
    "immovable MiB",
    "switches",
    "MiB out",
]


class Failed(RuntimeError):
    """A program has not ended well."""


def work(*words):
    """The command line of one of the programs."""
    return [sys.executable, "-W", "ignore", str(HERE / "several_gpus_work.py"), *map(str, words)]


def said(process, what, timeout=300):
    """The words that a program has printed; it has ended well."""
    try:
        out, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, errors = process.communicate()
        raise Failed(f"{what} hangs: {machine.scrub(out + errors[-1500:])}") from None
    if process.returncode != 0:
        text = machine.scrub(out + errors[-1500:])
        raise Failed(f"{what} ended with {process.returncode}: {text}")
    return out.split()


class Scene:
    """A coordinator of some GPUs, and a program at work on each of them."""

    def __init__(self, install, gpus, arguments):
        self.install, self.gpus, self.arguments = install, gpus, arguments
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="baton-"))
        self.environment = {**os.environ, **QUIET, "XDG_RUNTIME_DIR": folder}
        argv = [str(self.install.command), "serve", "--force", "--arena", self.arguments.arena]
        argv += ["--host-pool", "8GiB", "--mode", self.arguments.mode, "--gpu", ",".join(map(str, self.gpus))]
        self.log = pathlib.Path(folder, "serve.log")
        process = subprocess.Popen(argv, env=self.environment, stderr=self.log.open("wb"))
        self.stack.callback(lambda: (process.terminate(), process.wait(60)))
        self.sockets = self.find_sockets(pathlib.Path(folder, "baton"))
        self.others = [
            subprocess.Popen(
                self.run(("--gpu", gpu, "--name", f"beside-{gpu}"), work("beside", gpu)),
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for gpu in self.gpus
        ]
        for other in self.others:
            if other.stdout.readline().split() != ["ready"]:
                raise Failed(f"the program beside it: {machine.scrub(other.stderr.read()[-1500:])}")
        return self

    def __exit__(self, *exception):
        for other in self.others:
            if other.poll() is None:
                other.kill()
        self.stack.close()

    def run(self, options, argv):
        """The command line of a program under Baton."""
        return [str(self.install.command), "run", *map(str, options), "--", *argv]

    def find_sockets(self, folder, timeout=120):
        """The socket of each GPU, once all are served."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            sockets = sorted(folder.glob("*.sock"))
            try:
                found = {self.status_at(socket)["gpu"]["number"]: socket for socket in sockets}
            except Failed:
                found = {}
            if len(found) == len(self.gpus):
                return found
            time.sleep(0.2)
        raise Failed(self.log.read_text(errors="replace")[-800:])

    def status_at(self, socket):
        """The status of the GPU with this socket."""
        argv = [str(self.install.command), "status", "--json", "--socket", str(socket)]
        ran = subprocess.run(argv, env=self.environment, capture_output=True, text=True)
        if ran.returncode != 0:
            raise Failed(f"{socket}: {ran.stderr} {self.log.read_text(errors='replace')[-800:]}")
        return json.loads(ran.stdout)

    def status(self, gpu):
        """The status of a GPU."""
        return self.status_at(self.sockets[gpu])

    def evict(self, gpu, name):
        """Has a program's memory on a GPU go to the host, if it can at the moment."""
        argv = [str(self.install.command), "evict", "--socket", str(self.sockets[gpu]), name]
        subprocess.run(argv, env=self.environment, capture_output=True)

    def play(self, job):
        """Runs a program; its digest, and what the coordinators have seen of it."""
        # Where the first GPU has no coordinator, the second one is named.
        options = () if 0 in self.gpus else ("--gpu", self.gpus[0])
        if self.arguments.gang and job in RANKS:
            options = (*options, "--gang")
        argv = self.run(("--name", job, *options), work(job))
        started = time.monotonic()
        before = {gpu: self.status(gpu) for gpu in self.gpus}
        process = subprocess.Popen(
            argv, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        immovable, joined = {gpu: 0 for gpu in self.gpus}, {gpu: 0 for gpu in self.gpus}
        while process.poll() is None and time.monotonic() < started + 240:
            for gpu in self.gpus:
                tenants = self.status(gpu)["tenants"]
                rows = [row for row in tenants if not row["name"].startswith("beside")]
                joined[gpu] = max(joined[gpu], len(rows))
                immovable[gpu] = max([immovable[gpu], *(row["immovable_bytes"] for row in rows)])
                if self.arguments.evict:
                    for row in rows:
                        self.evict(gpu, row["name"])
            time.sleep(0.2)
        digest = said(process, job, timeout=60)[-1]
        seconds = time.monotonic() - started
        after = {gpu: self.status(gpu) for gpu in self.gpus}
        switches, bytes_out = (
            {gpu: after[gpu][what] - before[gpu][what] for gpu in self.gpus} for what in ("switches", "bytes_out")
        )
        return {
            "digest": digest,
            "seconds": seconds,
            "joined": joined,
            "immovable_bytes": immovable,
            "switches": switches,
            "bytes_out": bytes_out,
        }

    def end_others(self):
        """How often those beside it have come to the same."""
        return [int(said(other, "the program beside it")[1]) for other in self.others]


def bare(job):
    """A program's result without Baton."""
    started = time.monotonic()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(work(job), env={**os.environ, **QUIET}, **pipes)
    return {"digest": said(process, f"{job} bare")[-1], "seconds": time.monotonic() - started}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", type=pathlib.Path, required=True, help="folder of the build")
    parser.add_argument("--arena", default="40%", help="of each coordinator (40%%)")
    parser.add_argument("--shared", nargs="+", default=["0", "1", "0,1"], help="coordinators for")
    parser.add_argument("--jobs", nargs="+", default=JOBS, choices=JOBS)
    parser.add_argument("--evict", action="store_true", help="send the programs' memory to the host again and again")
    parser.add_argument("--gang", action="store_true", help="run those with a process for each GPU as gangs")
    parser.add_argument("--mode", default="corun", help="of the coordinator (corun)")
    parser.add_argument("--out", type=pathlib.Path, help="where the result goes, as JSON")
    arguments = parser.parse_args()
    Install.check(arguments.baton, parser)
    install = Install.of(arguments.baton)
    results, failed = {job: {"bare": bare(job)} for job in arguments.jobs}, 0
    rows = []
    for job, found in results.items():
        rows.append([job, "none", "", f"{found['bare']['seconds']:.1f}", "", "", "", ""])
    for gpus in [tuple(map(int, gpus.split(","))) for gpus in arguments.shared]:
        name = " and ".join(map(str, gpus)) + (", gangs" if arguments.gang else "")
        with Scene(install, gpus, arguments) as scene:
            for job in arguments.jobs:
                try:
                    found = scene.play(job)
                except Failed as why:
                    found = {"failed": str(why)}
                    print(f"{job}, coordinators for {name}: {why}", file=sys.stderr)
                same = found.get("digest") == results[job]["bare"]["digest"]
                failed += not same
                results[job][name] = found
                mib, out = (
                    [f"{count >> 20}" for count in found.get(what, {}).values()]
                    for what in ("immovable_bytes", "bytes_out")
                )
                switches = [str(count) for count in found.get("switches", {}).values()]
                result, seconds = "equal" if same else "DIFFERENT", found.get("seconds", 0)
                row = [job, name, result, f"{seconds:.1f}", "", ", ".join(mib), ", ".join(switches), ", ".join(out)]
                rows.append(row)
            rounds = scene.end_others()
            rows[-1][4] = f"{', '.join(map(str, rounds))} rounds, all equal"
            results[f"beside, {name}"] = rounds
    print(table.text(HEADER, rows))
    if arguments.out:
        result = {"kind": "several_gpus", "machine": machine.describe(), "several_gpus": results}
        machine.write_json(arguments.out, result)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
