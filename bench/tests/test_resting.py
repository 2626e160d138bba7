"""Tests of the resting measurement's sizes, and of its table in the report."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import report
import resting


class Sizes(unittest.TestCase):
    """The programs and the arena."""

    def parsed(self, *words):
        """The arguments, with an installation that has its files."""
        with tempfile.TemporaryDirectory() as folder:
            for name in ("baton", "libbaton.so"):
                pathlib.Path(folder, name).touch()
            with mock.patch.object(sys, "argv", ["resting.py", "--baton", folder, *words]):
                return resting.parse()

    def test_the_larger_program_fits_beside_the_headroom(self):
        for one, other in ((1024, 1024), (61440, 1024), (61440, 12288)):
            arena = resting.arena_of({resting.ONE: one, resting.OTHER: other})
            self.assertGreaterEqual(arena * 97 // 100, one)

    def test_latency_programs_that_fit_together_are_refused(self):
        words = ["--holder-megabytes", "61440", "--classes", "latency"]
        said = io.StringIO()
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(said):
            self.parsed(*words)
        self.assertIn("more --megabytes", said.getvalue())
        self.assertEqual(self.parsed(*words, "--megabytes", "12288").megabytes, 12288)
        self.assertEqual(self.parsed(*words[:2], "--classes", "batch").megabytes, 1024)


class Table(unittest.TestCase):
    """The report's."""

    def test_a_row_says_how_large_the_idle_program_is(self):
        ms = {"n": 100, "p50_ms": 0.2, "p99_ms": 0.4, "max_ms": 0.5}
        older, newer = {"ms": ms}, {"ms": ms, "holder_megabytes": 61440}
        runs = [{"classes": {"batch": one}, "wakes": {"at rest": 0}} for one in (older, newer)]
        with mock.patch.object(report, "section", lambda *words: words[-1]):
            said = report.resting_section(runs)
        self.assertIn("| batch | 1 | 100 |", said)
        self.assertIn("| batch | 60 | 100 |", said)


if __name__ == "__main__":
    unittest.main()
