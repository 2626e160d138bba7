"""Tests of the allocators measurement's arguments and results, and of the rules' recorder."""

import pathlib
import stat
import tempfile
import unittest

import allocators
import report
import rules
from common import current


def row(programs, right=True, date="2026-01-01"):
    """A run of one group."""
    group = {
        "programs": programs,
        "right": right,
        "rounds": 4,
        "switches": 12,
        "bytes_in": 2_000_000_000,
        "bytes_out": 3_500_000_000,
        "unmanaged_bytes": 0,
        "seconds": 9.5,
        "why": None,
    }
    return {"kind": "allocators", "machine": {"date": date}, "groups": [group]}


class Groups(unittest.TestCase):
    """The command line."""

    def test_a_group_names_programs_and_how_much_each_has(self):
        found = allocators.programs_of("torch segments:70+jax:0.5")
        self.assertEqual(
            found, [("torch-segments-0", "torch segments", 70.0), ("jax-1", "jax", 0.5)]
        )

    def test_an_allocator_that_there_is_not_is_named(self):
        with self.assertRaisesRegex(ValueError, "`tensorflow` is none of"):
            allocators.programs_of("tensorflow:1")

    def test_all_usual_groups_can_be_read(self):
        for group in allocators.GROUPS:
            self.assertIn(len(allocators.programs_of(group)), (2, 3))


class Results(unittest.TestCase):
    """The table and the document."""

    def test_a_wrong_group_stands_out(self):
        (line,) = allocators.rows(row("jax:1+jax:1", right=False)["groups"])
        self.assertEqual(line[:6], ["jax:1+jax:1", "NO", "4", "12", "2.0", "3.5"])

    def test_of_several_runs_of_a_group_the_newest_counts(self):
        runs = [row("a", date="1"), row("b", date="1"), row("a", right=False, date="2")]
        kept = current.pruned("allocators", runs)
        self.assertEqual(
            [(group["programs"], group["right"]) for run in kept for group in run["groups"]],
            [("b", True), ("a", False)],
        )

    def test_the_document_says_how_much_moved(self):
        said = report.allocators_section([row("jax:60+jax:60")])
        self.assertIn("| jax:60, jax:60 | right | 12 | 2.0 | 3.5 | 0.00 | – |", said)

    def test_what_no_line_has_is_a_part_of_what_is_used_at_the_worst_moment(self):
        lines = {"lent_bytes": 500}
        moments = [
            {"driver_used_bytes": 1000, "known_bytes": known, "lines": lines}
            for known in (1000, 985, 1010)
        ]
        # No program has any memory as yet.
        moments.append({"driver_used_bytes": 90, "known_bytes": 9, "lines": {"lent_bytes": 0}})
        one = row("jax:1+jax:1")
        one["groups"][0]["ledgers"] = moments
        self.assertIn("| 1.5% |", report.allocators_section([one]))


class Rules(unittest.TestCase):
    """Recording what a program of rules says."""

    def program(self, folder, text):
        """A program that plays rules by a shell's means."""
        path = pathlib.Path(folder, "family")
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def test_what_is_said_twice_alike_is_kept_and_the_rest_is_named(self):
        text = (
            'case $1 in --list) echo "good crash odd";;\n'
            'good) echo "good answers: 1"; echo "the end";;\n'
            "crash) kill -SEGV $$;;\n"
            'odd) echo "odd says: $$";; esac\n'
        )
        with tempfile.TemporaryDirectory() as folder:
            found, wrong, differ = rules.family(self.program(folder, text), 2, None)
        self.assertIsNone(differ)
        self.assertEqual(found, {"good": ["answers: 1"]})
        self.assertEqual(wrong, ["crash ended with -11", "odd says something else each time"])


if __name__ == "__main__":
    unittest.main()
