"""What the co-running measurement makes of its samples."""

import unittest

import corun_server
import report
from common import corunning
from tests.test_report import MACHINE


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
    def test_a_quantile_is_a_value_that_so_many_do_not_exceed(self):
        self.assertEqual(corunning.quantile(range(1, 101), 0.99), 99)
        self.assertEqual(corunning.quantile(range(1, 101), 1), 100)
        self.assertEqual(corunning.quantile([3, 1, 2], 0.5), 2)
        self.assertEqual(corunning.quantile([7], 0.01), 7)

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

    def test_the_document_has_its_table(self):
        text = report.document([corun_result()])
        row = "| bert | gpt | baton | 100 | 4.40 | 13.20 | 1.10 | 1.20 | 0.40 | 0.40 |"
        self.assertIn(row, text)


class Pausing(unittest.TestCase):
    def test_the_document_has_its_table(self):
        figures = {"n": 3, "p50_ms": 0.8, "p99_ms": 0.9, "max_ms": 1.0}
        names = ("pause", "granted", "first_kernel", "small_kernel", "small_kernel_alone")
        result = {
            "kind": "pausing",
            "machine": MACHINE,
            "products": {"products": 9, "wrong": 0},
            "pauses": 3,
            "bytes_in": 10**9,
            **dict.fromkeys(names, figures),
        }
        text = report.document([result])
        self.assertIn("| the driver's call | 3 | 0.800 | 0.900 | 1.000 |", text)


if __name__ == "__main__":
    unittest.main()
