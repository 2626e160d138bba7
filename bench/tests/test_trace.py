"""Counting: the shim's files, the profiler's events, and the comparison of both."""

import json
import pathlib
import tempfile
import unittest

import trace_check
from common import kineto, shimtrace


def event(category, name, ts, dur, tid=1):
    """One complete event as the profiler writes it."""
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": tid}


class ShimCounts(unittest.TestCase):
    def test_suffixes_do_not_hide_a_kind(self):
        calls = {
            "cuLaunchKernel": 3,
            "cuLaunchKernel_ptsz": 2,
            "cuLaunchKernelEx": 1,
            "cuGraphLaunch": 9,
            "cuMemcpyHtoDAsync_v2": 4,
            "cuMemcpyDtoH_v2_ptds": 1,
            "cuMemsetD8Async": 5,
            "cuMemsetD2D32_v2": 1,
            "cuMemAlloc_v2": 7,
            "cuMemAllocHost_v2": 100,
            "cuMemAllocAsync_ptsz": 6,
            "cuMemFree_v2": 8,
            "cuMemFreeHost": 100,
        }
        sums = shimtrace.by_kind(calls)
        self.assertEqual(
            sums,
            {
                "launches": 6,
                "graph launches": 9,
                "copies": 5,
                "fills": 6,
                "allocations": 7,
                "frees": 8,
                "pool allocations": 6,
            },
        )

    def test_files_of_several_processes_are_read_largest_first(self):
        with tempfile.TemporaryDirectory() as folder:
            for pid, count in ((1, 5), (2, 50)):
                calls = [{"symbol": "cuInit", "calls": count}]
                trace = {"program": "x", "pid": pid, "calls": calls}
                pathlib.Path(folder, f"calls-{pid}.json").write_text(json.dumps(trace))
            found = shimtrace.read_folder(folder)
        self.assertEqual(found, [{"cuInit": 50}, {"cuInit": 5}])
        self.assertEqual(shimtrace.add(found), {"cuInit": 55})

    def test_a_difference_leaves_out_what_did_not_change(self):
        self.assertEqual(
            shimtrace.difference({"a": 3, "b": 1}, {"b": 1, "c": 2}), {"a": 3, "c": -2}
        )


class ProfilerCounts(unittest.TestCase):
    def test_a_driver_call_inside_a_runtime_call_is_the_same_work(self):
        events = [
            event("cuda_runtime", "cudaLaunchKernel", 10, 5),
            event("cuda_driver", "cuLaunchKernel", 11, 2),
            event("cuda_driver", "cuLaunchKernelEx", 20, 2),
            event("cuda_driver", "cuLaunchKernel", 11, 2, tid=2),
            event("cuda_runtime", "cudaStreamSynchronize", 30, 2),
            event("kernel", "some_kernel", 40, 3),
            event("kernel", "some_kernel", 45, 3),
            event("kernel", "some_kernel", 50, 3),
            event("gpu_memset", "Memset (Device)", 60, 1),
            event("cpu_op", "aten::add", 0, 100),
        ]
        counts = kineto.counts(events)
        self.assertEqual(counts["asked"]["launches"], 3)
        self.assertEqual(counts["done"], {"launches": 3, "copies": 0, "fills": 1})

    def test_names_of_all_versions_are_known(self):
        names = ("cudaLaunchKernelExC_v11060", "cudaLaunchKernel_ptsz_v7000", "cuLaunchKernel")
        counts = kineto.counts([event("cuda_runtime", n, i, 0.5) for i, n in enumerate(names)])
        self.assertEqual(counts["asked"]["launches"], 3)
        names = ("cudaMalloc", "cudaMallocHost", "cudaFree", "cudaFreeHost", "cudaMemcpyAsync")
        counts = kineto.counts([event("cuda_runtime", n, i, 0.5) for i, n in enumerate(names)])
        self.assertEqual(
            counts["asked"],
            {"launches": 0, "copies": 1, "fills": 0, "allocations": 1, "frees": 1},
        )


def run(steps, unaccounted=0):
    """The result of one run: 10 calls of set-up, then a fixed number per step."""
    work = {"launches": 100, "copies": 3, "fills": 2}
    symbols = {
        "cuLaunchKernel": 100,
        "cuMemcpyHtoDAsync_v2": 3,
        "cuMemsetD8Async": 2,
        "cuMemAlloc_v2": 4,
        "cuMemFree_v2": 4,
    }
    calls = {**work, "allocations": 4, "frees": 4}
    return {
        "shim": {symbol: 10 + n * steps + unaccounted for symbol, n in symbols.items()},
        "profiler": {
            "done": {kind: n * steps for kind, n in work.items()},
            "asked": {kind: n * steps for kind, n in calls.items()},
        },
        "allocator": {"allocations": 4 * steps, "frees": 4 * steps},
    }


class Comparison(unittest.TestCase):
    def test_set_up_cancels_and_equal_counts_agree(self):
        rows = trace_check.compare(run(4), run(2), run(4), run(2))
        self.assertEqual([row["kind"] for row in rows], list(trace_check.KINDS))
        self.assertTrue(all(row["agrees"] for row in rows))
        self.assertEqual(rows[0]["shim"], 200)
        for row in rows:
            self.assertEqual(len(trace_check.shown(row)), len(trace_check.HEADER))

    def test_one_call_too_many_does_not_agree(self):
        rows = trace_check.compare(run(4, unaccounted=1), run(2), run(4), run(2))
        self.assertFalse(any(row["agrees"] for row in rows))

    def test_a_kind_that_never_happened_proves_nothing(self):
        rows = trace_check.compare(run(2), run(2), run(2), run(2))
        self.assertFalse(any(row["agrees"] for row in rows))


if __name__ == "__main__":
    unittest.main()
