"""Tests of the co-running measurement's use of its samples."""

import os
import pathlib
import tempfile
import types
import unittest
from unittest import mock

import corun
import corun_server
import report
from common import corunning, current, mps
from tests.test_report import MACHINE, words_of


def cell(way, served, trained, p50=None, p99=None, rate=None, **more):
    """A cell as a result has it."""
    figures = {"n": 100, "p50_ms": p50, "p95_ms": p99, "p99_ms": p99} if p50 else {}
    return {
        "way": way,
        "served": served,
        "trained": trained,
        "steps_per_second": rate,
        **figures,
        **more,
    }


def corun_result():
    """A result with everything alone twice."""
    return {
        "kind": "corun",
        "machine": MACHINE,
        "load": 0.5,
        "eager": False,
        "graphs": {"bert": True},
        "cells": [
            cell("alone", "bert", None, 4.0, 10.0),
            cell("alone", None, "gpt", rate=9.0),
            cell("alone", "bert", None, 4.0, 12.0),
            cell("alone", None, "gpt", rate=11.0),
            cell("baton", "bert", "gpt", 4.4, 13.2, 4.0),
        ],
        "failures": [],
    }


class Corunning(unittest.TestCase):
    def test_ratios_are_to_the_same_alone_in_the_same_run(self):
        result = corun_result()
        found = corunning.ratios(result, result["cells"][-1])
        self.assertAlmostEqual(found["p50_ms"], 1.1)
        self.assertAlmostEqual(found["p99_ms"], 1.2)
        self.assertAlmostEqual(found["added_ms"], 0.4)
        self.assertAlmostEqual(found["training"], 0.4)
        self.assertAlmostEqual(corunning.noise(result, "bert"), 1.2)

    def test_what_was_not_measured_gives_no_ratio(self):
        result = corun_result()
        other = cell("baton", "llama", "gpt", 4.4, 13.2)
        self.assertEqual(set(corunning.ratios(result, other).values()), {None})
        self.assertIsNone(corunning.noise(result, "llama"))

    def test_loads_are_compared_with_the_same_load_alone(self):
        result = corun_result()
        result["cells"].append(cell("alone", "bert", None, 3.0, 5.0, load=0.1))
        swept = cell("baton", "bert", "gpt", 6.0, 10.0, 5.0, load=0.1)
        self.assertAlmostEqual(corunning.ratios(result, swept)["p50_ms"], 2.0)

    def test_requests_come_at_random_but_the_same_for_every_way(self):
        times = list(corun_server.arrivals(2000, 0.5, 4.0, 1))
        self.assertEqual(times, list(corun_server.arrivals(2000, 0.5, 4.0, 1)))
        self.assertEqual(times, sorted(times))
        self.assertAlmostEqual(times[-1], 2000 * 0.004 / 0.5, delta=1.5)

    def test_a_request_counts_from_its_arrival(self):
        answer = corun_server.serve(lambda: None, lambda: None, [0.0, 0.001, 0.002], 10)
        self.assertEqual(len(answer["ms"]), 3)
        self.assertTrue(all(ms >= 0 for ms in answer["ms"]))

    def test_the_document_has_its_tables(self):
        text = report.document(report.collected([corun_result()]))
        self.assertIn("| Baton | 1 | 1.20 to 1.20 | 1.20 | 0.40 |", text)
        self.assertIn("| BERT-base | 1.20, 0.40 |", text)
        self.assertNotIn(".svg", text)


def run_of(year, *cells, **more):
    """A run of that year: everything alone as in `corun_result`, and other cells."""
    result = corun_result()
    machine = {**MACHINE, "date": f"{year}-01-01T00:00:00Z"}
    return {**result, "machine": machine, "cells": [*result["cells"][:4], *cells], **more}


def pair(way, p99=13.2, n=100, trained="gpt", **more):
    """A cell of requests to bert."""
    return {**cell(way, "bert", trained, 4.4, p99, 4.0), "n": n, **more}


class Pictures(unittest.TestCase):
    def test_a_cell_keeps_its_times_as_percentiles(self):
        found = corunning.times([0.0001 * i for i in range(1, 1001)])["quantiles_ms"]
        self.assertEqual(len(found), 101)
        self.assertEqual((found[0], found[50], found[100]), (0.0, 0.05, 0.1))
        self.assertEqual(corunning.times([]), {"n": 0})

    def test_of_several_runs_of_a_cell_the_one_with_most_requests_counts_then_the_newest(self):
        runs = [
            run_of(2033, pair("baton", 22.0, n=50), pair("mps", 33.0)),
            run_of(2032, pair("baton", 44.0)),
            run_of(2031, pair("baton", 55.0), pair("baton", trained="other")),
        ]
        found = corunning.matrix(runs)
        self.assertEqual(list(found), ["baton", "mps"])
        self.assertEqual(
            found["baton"], {("bert", "gpt"): (4.0, 0.4), ("bert", "other"): (1.2, None)}
        )
        self.assertEqual(found["mps"], {("bert", "gpt"): (3.0, 0.4)})

    def test_what_was_unusual_about_a_run_is_said_with_the_way(self):
        found = corunning.matrix([run_of(2031, pair("baton"), eager=True, load=0.9)])
        self.assertEqual(list(found), ["baton, no graphs, load 0.9"])

    def test_of_a_coordinator_with_other_options_nothing_is_in_the_matrix(self):
        run = run_of(2031, pair("default"), pair("baton"), serve=["--burst", "1ms"])
        self.assertEqual(list(corunning.matrix([run])), ["default"])

    def test_times_are_of_the_pair_that_one_run_measured_in_the_most_ways(self):
        times = {"quantiles_ms": list(range(1, 102))}
        alone = cell("alone", "bert", None, 4.0, 10.0, **times)
        runs = [
            run_of(2031, alone, pair("default", **times), pair("baton", **times)),
            run_of(2032, alone, pair("baton", trained="other", **times)),
            run_of(2033, pair("baton"), pair("mps")),
        ]
        served, trained, ways = corunning.spread(runs)
        self.assertEqual((served, trained), ("bert", "gpt"))
        self.assertEqual(list(ways), ["alone", "baton", "default"])
        self.assertIsNone(corunning.spread(runs[2:]))

    def test_a_sweep_is_compared_load_by_load(self):
        loads = [
            one
            for load in (0.1, 0.9)
            for one in (
                cell("alone", "bert", None, 3.0, 5.0, load=load),
                pair("baton", 100 * load, load=load),
            )
        ]
        found = corunning.swept([run_of(2031, *loads), run_of(2030, pair("baton"))])
        self.assertEqual(found, {"bert beside gpt": [(0.1, 2.0, 0.4), (0.9, 18.0, 0.4)]})

    def test_the_document_has_the_picture_of_what_was_measured(self):
        times = {"quantiles_ms": [1 + i / 10 for i in range(101)]}
        alone = cell("alone", "bert", None, 3.0, 5.0, load=0.1)
        cells = [
            pair("baton", **times),
            alone,
            pair("baton", load=0.1),
            pair("default", 99, **times),
        ]
        results = report.collected([run_of(2031, *cells), run_of(2032, pair("mps"))])
        text = report.document(results)
        self.assertIn("(corun_times.svg)", text)
        self.assertIn("BERT-base beside gpt: 0.1: 2.64, 0.40.", text)
        self.assertEqual(text.count("## How long do requests"), 1)
        drawn = words_of(report.drawn("corun", results["corun"])["corun_times.svg"][1])
        self.assertLessEqual({"Baton", "time slices", "milliseconds"}, set(drawn))

    def test_runs_with_nothing_current_are_not_kept(self):
        times = {"quantiles_ms": list(range(1, 102))}
        runs = [
            run_of(2031, pair("baton")),
            run_of(2032, pair("baton"), pair("mps", **times)),
            run_of(2033, pair("mps", n=50)),
            run_of(2034, pair("default"), serve=["--burst", "1ms"]),
        ]
        kept = current.pruned("corun", runs)
        self.assertEqual([current.date_of(run)[:4] for run in kept], ["2032", "2034"])


CONTROL = """#!/bin/sh
if [ "$1" = -d ]; then echo started; else read said; fi >> "$CUDA_MPS_LOG_DIRECTORY/../said"
case "$1$said" in
    -d) exit {start};;
    get_server_list) echo {servers};;
esac
echo "$said" >> "$CUDA_MPS_PIPE_DIRECTORY/../said"
"""


class Mps(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)

    def control(self, start=0, servers=""):
        """A program in the daemon's place, which writes down what it is told."""
        path = self.folder / mps.CONTROL
        path.write_text(CONTROL.format(start=start, servers=servers))
        path.chmod(0o755)
        where = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        return mock.patch.dict(os.environ, where)

    def said(self):
        return (self.folder / "said").read_text().split()

    def test_the_daemon_is_ended_whatever_happens(self):
        with self.control(servers="1234"):
            with self.assertRaises(KeyError), mps.Daemon(self.folder) as daemon:
                daemon.must_serve()
                raise KeyError
        self.assertEqual(self.said(), ["started", "get_server_list", "quit"])

    def test_a_daemon_that_serves_nobody_is_a_failure(self):
        with self.control(), mps.Daemon(self.folder) as daemon:
            with self.assertRaisesRegex(mps.NoMps, "no program"):
                daemon.must_serve()

    def test_a_daemon_that_does_not_start_is_a_failure(self):
        with self.control(start=1), self.assertRaisesRegex(mps.NoMps, "ended with 1"):
            mps.Daemon(self.folder).__enter__()

    def test_without_the_program_there_is_no_daemon(self):
        with mock.patch.object(mps, "CONTROL", "no-such-program"):
            with self.assertRaisesRegex(mps.NoMps, "no-such-program"):
                mps.Daemon(self.folder).__enter__()


class Ways(unittest.TestCase):
    def test_trainings_have_less_priority_where_the_way_says_so(self):
        self.assertEqual(corunning.MPS["mps"], {"latency": 0, "batch": 0})
        one = corunning.MPS["mps priority"]
        self.assertLess(one["latency"], one["batch"])

    def test_every_worker_is_dressed_for_its_way(self):
        wanted = {"served": ["bert"], "trained": ["gpt2_large"], "eager": True}
        arguments = types.SimpleNamespace(**wanted, device="cpu", size="small")
        run = types.SimpleNamespace(arguments=arguments)
        run.command = lambda *words: corun.Run.command(run, *words)
        plan = corun.Run.plan(run, lambda name, argv, urgency: (argv[2:], {"class": urgency}))
        self.assertEqual(list(plan), ["bert", "train gpt2_large"])
        self.assertIn("--eager", plan["bert"][0])
        self.assertEqual(plan["bert"][1], {"class": "latency"})
        self.assertEqual(plan["train gpt2_large"][0][0], "corun_gpt2_large")
        self.assertEqual(plan["train gpt2_large"][1], {"class": "batch"})


class Pausing(unittest.TestCase):
    def test_the_document_has_its_table(self):
        figures = {"n": 3, "p50_ms": 0.8, "p99_ms": 0.9, "max_ms": 1.0}
        names = ("pause", "granted", "first_kernel", "small_kernel", "small_kernel_alone")
        result = {
            "kind": "pausing",
            "machine": MACHINE,
            "queue": False,
            "products": {"products": 9, "wrong": 0},
            "pauses": 3,
            "bytes_in": 10**9,
            **dict.fromkeys(names, figures),
        }
        text = report.document(report.collected([result]))
        self.assertIn("takes a kernel off the GPU | 0.80 / 0.90 / 1.00 |", text)
        self.assertIn("| P50 0.80 ms, P99 0.90 ms |", text)


if __name__ == "__main__":
    unittest.main()
