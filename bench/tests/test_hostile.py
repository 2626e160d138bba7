"""Tests of the measurement beside hostile guests: its times, and its programs."""

import sys
import tempfile
import unittest

import hostile
import report
from common import current, hostility
from tests.test_report import MACHINE


def cell(name, ms, steps, number=1, **more):
    """A measurement in which all requests took as long."""
    times = [ms] * 100
    one = {"name": name, "round": number, **hostility.figures(times), "steps_per_second": steps}
    return {**one, "did": {}, "came": 0, "ms": times, **more}


def without(ms=2.0, steps=100.0, number=1):
    """One with no guest beside it."""
    return cell(hostility.WITHOUT, ms, steps, number)


def result_of(*cells, **more):
    """A result of these."""
    return {
        "kind": "hostile",
        "machine": MACHINE,
        "driver": None,
        "rate": 100,
        "seconds": 4,
        "limit_ms": 5,
        "limit_share": 0.9,
        "rows": hostility.rows_of(cells),
        "failures": [],
        **more,
    }


class Figures(unittest.TestCase):
    def test_a_guest_counts_against_what_was_just_before_and_after_it(self):
        cells = [
            without(2),
            cell("connects", 10, 95),
            without(4, 90),
            cell("hoards", 4, 90),
            without(4, 90),
        ]
        rows = {row["name"]: row for row in hostility.rows_of(cells)}
        self.assertEqual(rows["connects"]["added_ms"]["median"], 7)
        self.assertEqual(rows["connects"]["of_without"]["median"], 1)
        self.assertEqual(rows["hoards"]["added_ms"]["median"], 0)
        self.assertIsNone(rows["without"]["added_ms"])

    def test_another_round_is_no_neighbour(self):
        cells = [without(2), cell("mute", 3, 50), without(100, 1, 2), cell("mute", 101, 1, 2)]
        row = hostility.rows_of(cells)[1]
        self.assertEqual([row["added_ms"][end] for end in ("min", "max")], [1, 1])

    def test_who_takes_turns_counts_against_the_fair_share_and_others_against_all(self):
        cells = [without(), cell("fair", 2, 50), without(), cell("stops", 2, 46), without()]
        cells += [cell("connects", 2, 46), without()]
        rows = {row["name"]: row for row in hostility.rows_of(cells)}
        self.assertEqual(rows["stops"]["of_fair"]["median"], 0.92)
        self.assertEqual(hostility.faults(rows["stops"], 5, 0.9), [])
        self.assertIsNone(rows["connects"]["of_fair"])
        self.assertEqual(hostility.faults(rows["connects"], 5, 0.9), ["steps × 0.46"])
        self.assertEqual(hostility.faults(rows["fair"], 5, 0.9), [], "it does no harm")

    def test_late_requests_are_a_fault(self):
        row = hostility.rows_of([without(), cell("floods", 7.5, 100), without()])[1]
        self.assertEqual(hostility.faults(row, 5, 0.9), ["P99 + 5.5 ms"])
        self.assertEqual(hostility.faults(row, 6, 0.9), [])

    def test_what_fails_is_a_shortcoming_too(self):
        result = result_of(without(), failures=["mute, round 1: it hangs"])
        self.assertEqual(hostility.shortcomings(result), ["mute, round 1: it hangs"])


class Programs(unittest.TestCase):
    def test_lines_are_waited_for_and_a_program_that_ends_says_why(self):
        with tempfile.TemporaryDirectory() as folder:
            text = "print('one'); print('two'); import sys; sys.exit('because')"
            program = hostile.Program([sys.executable, "-u", "-c", text], {}, folder)
            self.assertEqual([line for _, line in program.wait("t")], ["two"])
            with self.assertRaisesRegex(hostile.Failed, "1 of 2 `one`.*because"):
                program.wait("one", 2)
            program.end(5)


class Document(unittest.TestCase):
    def test_guests_have_a_section_with_a_row_each(self):
        result = result_of(without(), cell("connects", 9, 80), without())
        text = report.document(report.collected([result]))
        self.assertIn("## Beside another user's program that does harm?", text)
        self.assertIn("| nobody (GPU) | 200 | 2.00 |", text)
        self.assertIn("| connects for ever | 100 | 9.00 |", text)
        self.assertIn("| P99 + 7.0 ms, steps × 0.80 |", text)

    def test_every_part_has_words_in_the_document(self):
        self.assertEqual(set(report.GUESTS), {hostility.WITHOUT, *hostile.PARTS})

    def test_of_a_guest_that_was_measured_again_the_newest_counts_beside_what_it_was_measured_with(
        self,
    ):
        later = {"machine": MACHINE | {"date": "2031-01-01T00:00:00Z"}}
        old = result_of(
            without(2), cell("mute", 9, 80), without(2), cell("hoards", 3, 99), without(2)
        )
        new = result_of(without(1), cell("mute", 1, 80), without(1), **later)
        names = [
            [row["name"] for row in run["rows"]] for run in current.pruned("hostile", [new, old])
        ]
        self.assertEqual(names, [["without", "hoards"], ["without", "mute"]])
        sim = result_of(without(1), cell("hoards", 1, 80), without(1), driver="sim", **later)
        self.assertEqual(len(current.pruned("hostile", [new, old, sim])), 3, "another driver")


if __name__ == "__main__":
    unittest.main()
