"""Reads the counts that libbaton.so writes at exit (BATON_TRACE=counts), and sums them by kind.

One file per process: {"program", "pid", "calls": [{"symbol", "calls", "nanoseconds",
"max_nanoseconds", "errors"}, ...]}. Symbols are the driver's own, so a function may appear under
several names: a version suffix (_v2) and the per-thread default stream's suffix (_ptsz, _ptds).
"""

import json
import pathlib
import re

# Kinds of work, by the driver function's name without the suffixes. `launches` leaves out
# cuGraphLaunch, since one such call stands for many kernels.
KINDS = {
    "launches": re.compile(r"cuLaunchKernel(Ex)?|cuLaunchCooperativeKernel"),
    "graph launches": re.compile(r"cuGraphLaunch"),
    "copies": re.compile(r"cuMemcpy(?!.*Batch).*"),
    "fills": re.compile(r"cuMemsetD(2D)?\d+(Async)?"),
    "allocations": re.compile(r"cuMemAlloc"),
    "frees": re.compile(r"cuMemFree"),
    "pool allocations": re.compile(r"cuMemAlloc(FromPool)?Async"),
}

SUFFIXES = re.compile(r"(_v\d+)?(_pt[ds][sz])?$")


def environment(folder):
    """The settings that make a program write its counts into `folder`, one file per process."""
    return {
        "BATON_TRACE": "counts",
        "BATON_TRACE_FILE": str(pathlib.Path(folder) / "calls-%p.json"),
    }


def base_name(symbol):
    """The driver function's name without version and default-stream suffixes."""
    return SUFFIXES.sub("", symbol)


def read_folder(folder):
    """Calls by symbol of every process that left a file in `folder`, largest process first."""
    found = []
    for path in sorted(pathlib.Path(folder).glob("calls-*.json")):
        trace = json.loads(path.read_text())
        found.append({row["symbol"]: row["calls"] for row in trace["calls"]})
    return sorted(found, key=lambda calls: -sum(calls.values()))


def add(traces):
    """One count per symbol over several processes."""
    total = {}
    for calls in traces:
        for symbol, count in calls.items():
            total[symbol] = total.get(symbol, 0) + count
    return total


def by_kind(calls):
    """Sums of `calls` for every kind in KINDS."""
    return {
        kind: sum(n for symbol, n in calls.items() if pattern.fullmatch(base_name(symbol)))
        for kind, pattern in KINDS.items()
    }


def difference(more, fewer):
    """`more` minus `fewer`, symbol by symbol, leaving out what did not change."""
    symbols = sorted(set(more) | set(fewer))
    changes = {s: more.get(s, 0) - fewer.get(s, 0) for s in symbols}
    return {s: n for s, n in changes.items() if n}
