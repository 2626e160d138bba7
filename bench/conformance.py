#!/usr/bin/env python3
"""Shows that programs compute the same under libbaton.so as without it, bit for bit.

    python3 bench/conformance.py --baton target/release/libbaton.so

Every program runs bare twice, to show that it repeats itself; then preloaded; then preloaded with
the shim counting calls, which shows that its driver calls did go through the shim. Programs are the
workloads of workloads.py and the builds of nvcc/runtime_api.cu. Several run at once. A failure is a
row of the table and never ends the series; the exit status is 1 if any row is not as it should be.
"""

import argparse
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
import sys
import tempfile
import time

from common import machine, programs, shimtrace, table
from loads import WORKLOADS
from nvcc.build import VARIANTS, build_all

HERE = pathlib.Path(__file__).resolve().parent
DRIVER = "libcuda.so"

# Those that take longest first, so that they do not end up alone at the end.
ORDER = ["torch_compile", "multiprocess", "jax_jit", "resnet152_train", *WORKLOADS]


@dataclasses.dataclass(frozen=True)
class Program:
    """A program to run, and how to find the digest of its outputs in what it prints."""

    name: str
    argv: tuple
    prints_json: bool = True

    def digest(self, stdout):
        """The digest of the program's outputs; ValueError if it printed none."""
        if not self.prints_json:
            if "result " not in stdout:
                raise ValueError("the program printed no result line")
            return hashlib.sha256(stdout.encode()).hexdigest()
        return self.details(stdout)["digest"]

    def details(self, stdout):
        """The JSON object that a workload prints as its last line; empty for other programs."""
        lines = stdout.strip().splitlines()
        if not self.prints_json:
            return {}
        if not lines:
            raise ValueError("the workload printed nothing")
        return json.loads(lines[-1])


def workload_programs(names, device):
    """One program per workload name."""
    script = str(HERE / "workloads.py")
    ordered = [name for name in dict.fromkeys(ORDER) if name in names]
    argv = [sys.executable, script]
    return [Program(name, (*argv, name, "--device", device)) for name in ordered]


def preloaded_settings(baton):
    """Settings that the environment of a preloaded run holds and that of a bare one does not."""
    return programs.preload_environment(baton)


def one_run(program, settings, timeout, baton):
    """(outcome, digest or None): a run that prints no digest counts as failed."""
    watch = (pathlib.Path(baton).name, DRIVER)
    outcome = programs.run(program.argv, settings, timeout, watch)
    if outcome.status != "ok":
        return outcome, None
    try:
        return outcome, program.digest(outcome.stdout)
    except (ValueError, KeyError) as error:
        outcome.status, outcome.reason = "failed", f"no digest: {error}"
        return outcome, None


def compare(program, baton, timeout, with_trace):
    """All runs of one program, and what they come to."""
    row = {"name": program.name, "runs": {}}
    digests = {}
    plan = [("bare", {}), ("bare again", {}), ("preloaded", preloaded_settings(baton))]
    for label, settings in plan:
        outcome, digests[label] = one_run(program, settings, timeout, baton)
        row["runs"][label] = run_record(outcome, digests[label])
        if label == "bare" and outcome.status != "ok":
            break
        if label == "preloaded" and outcome.status == "ok" and program.prints_json:
            details = program.details(outcome.stdout)
            row["numbers"], row["outputs"] = details["numbers"], details["outputs"]
            row["output_bytes"] = details["bytes"]
    if with_trace and digests.get("preloaded"):
        row["runs"]["counted"], row["calls"] = counted_run(program, baton, timeout)
        digests["counted"] = row["runs"]["counted"]["digest"]
    row["verdict"] = verdict(row, digests, pathlib.Path(baton).name)
    row["equal"] = row["verdict"] == "equal"
    return row


def run_record(outcome, digest):
    """The result file's record of one run."""
    record = {"status": outcome.status, "seconds": round(outcome.seconds, 2), "digest": digest}
    if outcome.reason:
        record["reason"] = machine.scrub(outcome.reason)
    record["libraries"] = list(outcome.libraries)
    return record


def counted_run(program, baton, timeout):
    """A preloaded run whose driver calls the shim counts: (record, sums by kind)."""
    with tempfile.TemporaryDirectory(prefix="calls-") as folder:
        settings = {**preloaded_settings(baton), **shimtrace.environment(folder)}
        outcome, digest = one_run(program, settings, timeout, baton)
        try:
            traces = shimtrace.read_folder(folder)
        except (ValueError, KeyError, TypeError) as error:
            outcome.status, outcome.reason = (
                "failed",
                f"the shim's counts are unreadable: {error!r}",
            )
            traces = []
    calls = shimtrace.add(traces)
    sums = {"all": sum(calls.values()), **shimtrace.by_kind(calls)}
    sums["processes"] = sum(1 for trace in traces if trace)
    return run_record(outcome, digest), sums


def verdict(row, digests, shim):
    """One word or sentence for the row: `equal` is the only good one."""
    runs = row["runs"]
    for label, run in runs.items():
        if run["status"] == "absent":
            return "not installed"
        if run["status"] != "ok":
            return f"{label}: {run['status']}"
        if label.startswith("bare") and shim in run["libraries"]:
            return "the bare run had the shim"
    if digests["bare"] != digests["bare again"]:
        return "two bare runs differ"
    if len(set(digests.values())) != 1:
        return "DIFFERS under the shim"
    if "calls" in row and row["calls"]["all"] == 0:
        return "the shim saw no call"
    return "equal"


def shown(row):
    """The row as the table shows it."""

    def seconds(label):
        run = row["runs"].get(label)
        return f"{run['seconds']:.1f}" if run else "-"

    calls = row.get("calls", {})
    kinds = ("all", "launches", "copies", "allocations")
    counts = [str(calls[kind]) if calls else "-" for kind in kinds]
    return [row["name"], row["verdict"], seconds("bare"), seconds("preloaded"), *counts]


HEADER = ["program", "outputs", "bare s", "preloaded s", "calls", "launches", "copies", "allocs"]


def run_all(list_of_programs, baton, timeout, jobs, with_trace):
    """Rows for all programs, in their order, several at a time."""
    rows = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = [
            pool.submit(compare, program, baton, timeout, with_trace)
            for program in list_of_programs
        ]
        for future in concurrent.futures.as_completed(futures):
            row = future.result()
            print(f"{row['name']}: {row['verdict']}", flush=True)
            rows.append(row)
    order = [program.name for program in list_of_programs]
    return sorted(rows, key=lambda row: order.index(row["name"]))


def parse():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", required=True, type=pathlib.Path, help="libbaton.so")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these programs")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("conformance.json"))
    jobs = max(1, min(8, (os.cpu_count() or 1) // 2))
    parser.add_argument("--jobs", type=int, default=jobs, help="programs that run at once")
    parser.add_argument("--timeout", type=float, default=200, help="seconds for one run")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--no-trace", action="store_true", help="leave out the counting run")
    arguments = parser.parse_args()
    if not arguments.baton.is_file():
        parser.error(f"{arguments.baton} does not exist")
    unknown = set(arguments.only or ()) - {*WORKLOADS, *VARIANTS}
    if unknown:
        parser.error(f"no such program: {', '.join(sorted(unknown))}")
    return arguments


def main():
    """Builds, runs, writes, prints."""
    arguments = parse()
    # Programs that run side by side share the cores instead of each taking all of them.
    threads = max(1, (os.cpu_count() or 1) // arguments.jobs)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    chosen = set(arguments.only or [*WORKLOADS, *VARIANTS])
    started = time.monotonic()
    rows = []
    with tempfile.TemporaryDirectory(prefix="nvcc-") as folder:
        built, unbuilt = build_all(folder) if chosen & set(VARIANTS) else ({}, {})
        todo = workload_programs(chosen, arguments.device)
        todo += [Program(n, (str(p),), False) for n, p in built.items() if n in chosen]
        rows += run_all(
            todo, arguments.baton, arguments.timeout, arguments.jobs, not arguments.no_trace
        )
    for name, reason in unbuilt.items():
        if name in chosen:
            failed = {"status": "failed", "seconds": 0.0, "reason": machine.scrub(reason)}
            rows.append({"name": name, "runs": {"build": failed}, "verdict": "not built"})
            rows[-1]["equal"] = False
    result = {
        "kind": "conformance",
        "machine": machine.describe(),
        "seconds": round(time.monotonic() - started, 1),
        "rows": rows,
    }
    machine.write_json(arguments.out, result)
    for row in rows:
        for label, run in row["runs"].items():
            if run.get("reason"):
                print(f"\n{row['name']}, {label}: {run['reason']}", file=sys.stderr)
    sys.stderr.flush()
    print()
    print(table.text(HEADER, [shown(row) for row in rows]))
    equal = sum(row["equal"] for row in rows)
    absent = sum(row["verdict"] == "not installed" for row in rows)
    print(f"{equal} of {len(rows)} equal, {absent} not installed; {result['seconds']} s")
    sys.exit(0 if equal + absent == len(rows) and equal else 1)


if __name__ == "__main__":
    main()
