"""Counts GPU work in a trace of PyTorch's profiler (Chrome format), in two independent ways.

`asked`: API calls that ask for work, as CUPTI saw them: events of the categories cuda_runtime and
cuda_driver. A driver call inside a runtime call on the same thread is that same work and is left
out. `done`: what the GPU did, by CUPTI's device records: categories kernel, gpu_memcpy, gpu_memset.
"""

import json
import re

# API calls by kind, runtime and driver names alike; suffixes are versions and default streams.
SUFFIX = r"(_v\d+)?(_pt[ds][sz])?(_v\d+)?"
ASKED = {
    "launches": re.compile(r"cu(da)?Launch(Cooperative)?Kernel(Ex|ExC)?" + SUFFIX),
    "copies": re.compile(r"cu(da)?Memcpy.*"),
    "fills": re.compile(r"cu(da)?Memset.*"),
    "allocations": re.compile(r"(cudaMalloc|cudaMallocPitch|cuMemAlloc(Pitch)?)" + SUFFIX),
    "frees": re.compile(r"(cudaFree|cuMemFree)" + SUFFIX),
}
DONE = {"launches": "kernel", "copies": "gpu_memcpy", "fills": "gpu_memset"}


def load(path):
    """The complete events ("ph": "X") of a trace file."""
    with open(path) as file:
        trace = json.load(file)
    return [event for event in trace["traceEvents"] if event.get("ph") == "X"]


def outermost_calls(events):
    """API events, less the driver calls that lie inside a runtime call on their thread."""
    threads = {}
    for event in events:
        if event.get("cat") in ("cuda_runtime", "cuda_driver"):
            threads.setdefault((event["pid"], event["tid"]), []).append(event)
    kept = []
    for calls in threads.values():
        # The outer call first where two start together.
        calls.sort(key=lambda e: (e["ts"], -e["dur"]))
        runtime_end = float("-inf")
        for event in calls:
            end = event["ts"] + event["dur"]
            if event["cat"] == "cuda_driver" and end <= runtime_end:
                continue
            kept.append(event)
            if event["cat"] == "cuda_runtime":
                runtime_end = max(runtime_end, end)
    return kept


def counts(events):
    """{"asked": {kind: n}, "done": {kind: n}, "names": {API name: n}}"""
    names = {}
    for event in outermost_calls(events):
        names[event["name"]] = names.get(event["name"], 0) + 1
    asked = {
        kind: sum(n for name, n in names.items() if pattern.fullmatch(name))
        for kind, pattern in ASKED.items()
    }
    done = {
        kind: sum(event.get("cat") == category for event in events)
        for kind, category in DONE.items()
    }
    return {"asked": asked, "done": done, "names": dict(sorted(names.items()))}
