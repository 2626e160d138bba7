#!/usr/bin/env python3
"""Checks the shim's counts of driver calls against PyTorch's profiler and its allocator.

    python3 bench/trace_check.py --baton target/release/libbaton.so --out trace.json

trace_region.py runs ResNet-152 (training and inference) and BERT in one process, under the shim.
The shim counts over a process's whole life and the profiler over a region, so the program runs with
N and with 2 N steps, and differences are compared: set-up and warm-up cancel, N steps remain.

  kind         the shim's sum                     against
  launches     cuLaunchKernel, cuLaunchKernelEx,  the profiler's kernel records; its launch calls
               cuLaunchCooperativeKernel
  copies       cuMemcpy*                          its gpu_memcpy records; its cudaMemcpy* calls
  fills        cuMemsetD*                         its gpu_memset records; its cudaMemset* calls
  allocations  cuMemAlloc                         its cudaMalloc calls; the allocator's own count
  frees        cuMemFree                          its cudaFree calls; the allocator's own count

Names are meant with every version and default-stream suffix. The same two runs without the profiler
show whether the profiler itself made driver calls. The exit status is 0 if every kind agrees with
what its row names first, and with the allocator.
"""

import argparse
import concurrent.futures
import json
import pathlib
import sys
import tempfile

from common import kineto, machine, programs, shimtrace, table

HERE = pathlib.Path(__file__).resolve().parent
KINDS = ("launches", "copies", "fills", "allocations", "frees")


class RunFailed(RuntimeError):
    """A run of the counted program did not end well, or left no counts."""


def one_run(folder, steps, profiled, baton, device, timeout):
    """Runs the program once; gives the counts of the shim, the profiler and the allocator."""
    folder.mkdir()
    report, profile = folder / "report.json", folder / "profile.json"
    argv = [sys.executable, str(HERE / "trace_region.py"), "--steps", str(steps)]
    argv += ["--json", str(report), "--device", device]
    if profiled:
        argv += ["--profile", str(profile)]
    settings = {
        **programs.preload_environment(baton),
        **shimtrace.environment(folder),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
    outcome = programs.run(argv, settings, timeout)
    if outcome.status != "ok":
        raise RunFailed(f"{steps} steps: {outcome.status}: {outcome.reason}")
    try:
        traces = shimtrace.read_folder(folder)
    except (ValueError, KeyError, TypeError) as error:
        raise RunFailed(f"{steps} steps: the shim's counts are unreadable: {error!r}") from error
    if not traces:
        raise RunFailed(f"{steps} steps: the shim left no counts; is {baton.name} the right file?")
    result = {"shim": traces[0], **json.loads(report.read_text())}
    if profiled:
        result["profiler"] = kineto.counts(kineto.load(profile))
    return result


def all_runs(steps, baton, device, timeout, jobs):
    """The four runs, by (steps, profiled)."""
    plan = [(n, profiled) for profiled in (True, False) for n in (2 * steps, steps)]
    with tempfile.TemporaryDirectory(prefix="trace-") as folder:
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            futures = {
                (n, profiled): pool.submit(
                    one_run,
                    pathlib.Path(folder, f"{n}-{profiled}"),
                    n,
                    profiled,
                    baton,
                    device,
                    timeout,
                )
                for n, profiled in plan
            }
            return {key: future.result() for key, future in futures.items()}


def compare(more, fewer, plain_more, plain_fewer):
    """Rows by kind: how the counts of 2 N steps exceed those of N, by every way of counting.

    The first two runs were profiled, the last two were not.
    """
    shim = shimtrace.by_kind(shimtrace.difference(more["shim"], fewer["shim"]))
    plain = shimtrace.by_kind(shimtrace.difference(plain_more["shim"], plain_fewer["shim"]))

    def profiled(way, kind):
        counts = more["profiler"][way], fewer["profiler"][way]
        return counts[0][kind] - counts[1][kind] if kind in counts[0] else None

    rows = []
    for kind in KINDS:
        allocator = None
        if kind in more["allocator"]:
            allocator = more["allocator"][kind] - fewer["allocator"][kind]
        row = {
            "kind": kind,
            "shim": shim[kind],
            "shim without profiler": plain[kind],
            "profiler's records": profiled("done", kind),
            "profiler's calls": profiled("asked", kind),
            "allocator": allocator,
        }
        first = row["profiler's records"]
        wanted = [row["profiler's calls"] if first is None else first]
        wanted += [] if allocator is None else [allocator]
        row["agrees"] = row["shim"] > 0 and all(row["shim"] == count for count in wanted)
        rows.append(row)
    return rows


HEADER = [
    "kind",
    "shim",
    "shim without profiler",
    "profiler's records",
    "profiler's calls",
    "allocator",
    "agrees",
]


def shown(row):
    """The row as the table shows it."""
    words = {None: "-", True: "yes", False: "NO"}
    values = [row[column] for column in HEADER]
    return [words[v] if v is None or isinstance(v, bool) else v for v in values]


def parse():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", required=True, type=pathlib.Path, help="libbaton.so")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("trace.json"))
    parser.add_argument("--steps", type=int, default=2, help="N")
    parser.add_argument("--jobs", type=int, default=4, help="runs at once, of four")
    parser.add_argument("--timeout", type=float, default=240, help="seconds for one run")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    arguments = parser.parse_args()
    if not arguments.baton.is_file():
        parser.error(f"{arguments.baton} does not exist")
    return arguments


def main():
    """Runs, compares, writes, prints."""
    arguments = parse()
    n = arguments.steps
    try:
        runs = all_runs(n, arguments.baton, arguments.device, arguments.timeout, arguments.jobs)
    except RunFailed as failure:
        sys.exit(f"trace_check: {failure}")
    more, fewer = runs[2 * n, True], runs[n, True]
    rows = compare(more, fewer, runs[2 * n, False], runs[n, False])
    result = {
        "kind": "trace",
        "machine": machine.describe(),
        "steps": n,
        "rows": rows,
        "shim_difference": shimtrace.difference(more["shim"], fewer["shim"]),
        "profiler_difference": shimtrace.difference(
            more["profiler"]["names"], fewer["profiler"]["names"]
        ),
        "shim_total": more["shim"],
    }
    machine.write_json(arguments.out, result)
    print(f"\n{n} steps of ResNet-152 training and inference and BERT inference:")
    print(table.text(HEADER, [shown(row) for row in rows]))
    agreed = all(row["agrees"] for row in rows)
    print("the counts agree" if agreed else "the counts DO NOT agree")
    sys.exit(0 if agreed else 1)


if __name__ == "__main__":
    main()
