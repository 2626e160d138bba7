"""Tests of the report on programs that are stopped, part by part."""

import unittest

import report
import stopped
from common import current
from tests.test_report import MACHINE


def run_of(date, **parts):
    """A run of these parts, {name: findings that are not usual}."""
    found = {name: stopped.part_result() | more for name, more in parts.items()}
    return {
        "kind": "stopped",
        "machine": MACHINE | {"date": date},
        "seed": 1,
        "parts": found,
        "failures": [],
    }


def row_of(name, **more):
    """A program that was stopped three times."""
    beside = {"n": 8, "p50_ms": 20.0, "p99_ms": 80.0, "max_ms": 90.0}
    row = {"name": name, "class": "normal", "bytes": 1, "steps": 10, "stops": 3, "p50_ms": 20.0}
    return (
        row | {"calm_max_ms": 30.0, "beside": beside, "equal": True, "differs_at_step": None} | more
    )


class Document(unittest.TestCase):
    def test_each_part_is_of_its_newest_run(self):
        old = run_of("2030", stops={"rows": [row_of("adamw")]}, programs={"wrong": ["a: b"]})
        new = run_of(
            "2031", kill={"times": 20, "gone": 19, "step_ms": [40.0, 87.0]}, programs={"times": 7}
        )
        text = report.document(report.collected([current.joined("stopped", [new, old])]))
        self.assertIn("stopped (SIGSTOP) 3 times", text)
        self.assertIn("| adamw | normal | 10 | 3 | 20.0 | 30.0 | 8 | 80.0 | 90.0 | equal |", text)
        self.assertIn("| killed meanwhile | 20 | 19 | 87.0 | 0 | 0 | equal |", text)
        self.assertIn("| C programs, stopped at random | 7 | 0 | - | 0 | 0 | equal |", text)
        self.assertNotIn("WRONG", text)

    def test_what_differs_is_said(self):
        rows = [row_of("adamw", equal=False, differs_at_step=4, beside=None)]
        run = run_of("2030", stops={"rows": rows}, kill={"wrong": ["other: differs"]})
        text = report.document(report.collected([run]))
        self.assertIn("| - | - | - | DIFFERS at step 4 |", text)
        self.assertIn("| 1 WRONG |", text)


if __name__ == "__main__":
    unittest.main()
