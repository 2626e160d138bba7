"""The document made from result files."""

import json
import unittest
import xml.etree.ElementTree

import chart
import cost
import report
import trace_check
from tests.test_sharing import sharing_result
from tests.test_switch import launches, row, switch_result
from tests.test_transfer import transfer_result

MACHINE = {
    "date": "2030-01-01T00:00:00Z",
    "command": "python3 bench/some.py",
    "gpus": [{"name": "Some GPU", "driver_version": "1.2", "memory.total": "80 GiB"}],
    "cpu": "Some CPU",
    "cores": 4,
    "python": "3.12.0",
    "packages": {"torch": "2.0"},
}


def words_of(svg):
    """What is written in a picture, which has to be well-formed."""
    nodes = xml.etree.ElementTree.fromstring(svg).iter()
    return [node.text for node in nodes if node.tag.endswith("text")]


class Document(unittest.TestCase):
    def test_every_kind_of_result_has_its_section_in_a_fixed_order(self):
        row = dict.fromkeys(trace_check.HEADER, 1)
        rounds = [dict.fromkeys(cost.ROLES, 10.0)]
        run = {"status": "ok", "seconds": 1.0, "digest": "x", "libraries": []}
        results = [
            {
                "kind": "cost",
                "machine": MACHINE,
                "block_seconds": 2,
                "workloads": {"one": cost.evaluate(rounds)},
                "failures": {},
            },
            {"kind": "trace", "machine": MACHINE, "steps": 2, "rows": [row]},
            {
                "kind": "conformance",
                "machine": MACHINE,
                "rows": [{"name": "x", "runs": {"bare": run}, "verdict": "equal", "equal": True}],
            },
        ]
        text = report.document(results)
        places = [text.index(title) for title in ("## Programs", "## The shim's", "## What")]
        self.assertEqual(places, sorted(places))
        self.assertIn("Some GPU, 80 GiB, driver 1.2", text)
        self.assertIn("| one | bare B / bare A | 1.0000 |", text)

    def test_programs_that_take_turns_have_a_section(self):
        result = {"kind": "sharing", "machine": MACHINE, **sharing_result()}
        text = report.document([result])
        self.assertIn("| 2 at once | all, arena 6.00 GiB | equal |", text)
        self.assertIn("2 of the last 2 switches moved at least half the arena", text)
        self.assertIn("left over at the end: nothing", text)
        self.assertIn("did NOT recover", text)

    def test_moved_memory_has_a_section_with_and_without_a_yardstick(self):
        result = {"kind": "transfer", "machine": MACHINE, **transfer_result()}
        text = report.document([result])
        self.assertIn("| one tenant of 10 GiB by 512 MiB | out | 10.7 | 2 of 2 | 50.0 |", text)
        self.assertIn("No copies by torch: no GPU", text)
        result["torch"] = {"gbps": {"in": 55.0, "out": 55.0}}
        self.assertIn("| 55.0 | 0.91 |", report.document([result]))

    def test_switching_has_a_section_and_a_chart_of_all_its_files(self):
        parts = [switch_result(machine=MACHINE), switch_result(machine=MACHINE, rows=[])]
        results = report.merged(parts)
        self.assertEqual(len(results), 1)
        text = report.document(results)
        self.assertIn("| bert | baton | 20.00 | 20.00 | 4 | equal | 19.00 | 18.18 | 1.05 |", text)
        self.assertIn("| every 1 s | 9.00 | 0.900 | 0.950 | 0.947 | 10 |", text)
        self.assertIn("(switch.svg)", text)
        self.assertNotIn("Not as it should be", text)
        said = words_of(report.drawn(results[0])["switch.svg"][1])
        self.assertIn("20 ms", said)
        self.assertIn("1.1 s", said)
        self.assertEqual(report.drawn(report.merged([parts[1]])[0]), {})

    def test_requests_beside_a_kernel_have_a_table_of_their_own(self):
        beside = row(beside="kernel", first_launch=launches(1.0, 2.0))
        results = report.merged([switch_result(machine=MACHINE, rows=[beside])])
        text = report.document(results)
        self.assertIn("| bert | baton | 4 | 4 | equal | 2.00 | 2 | 1.50 | 2.00 | 2.00 | 3 |", text)
        self.assertNotIn("| bert | baton | 20.00 |", text)
        self.assertNotIn("switch.svg", text)

    def test_a_tenant_is_told_from_a_process_that_is_only_preloaded(self):
        rounds = [dict.fromkeys(cost.ROLES, 10.0)]
        result = {"kind": "cost", "machine": MACHINE, "block_seconds": 2, "failures": {}}
        result |= {"workloads": {"one": cost.evaluate(rounds)}, "serve": True}
        self.assertIn("## What a tenant pays", report.document([result]))


class Charts(unittest.TestCase):
    def test_axes_have_a_few_round_numbers(self):
        self.assertEqual(chart.steps(0, 100), [0, 20, 40, 60, 80, 100])
        self.assertEqual(chart.steps(0.1, 0.9), [0.2, 0.4, 0.6, 0.8])
        self.assertEqual(chart.steps(3, 3), [3])
        self.assertEqual(chart.decimal_steps(0.8, 21), [1, 2, 5, 10, 20])
        self.assertEqual(chart.decimal_steps(0.5, 20_000), [1, 10, 100, 1000, 10_000])

    def test_a_larger_ratio_has_another_colour_up_to_a_limit(self):
        shades = [chart.colour_of(ratio) for ratio in (1, 1.2, 2, 5, 50, 100)]
        self.assertEqual(len(set(shades)), len(shades))
        self.assertEqual(chart.colour_of(0.5), shades[0])
        self.assertEqual(chart.colour_of(1000), shades[-1])

    def test_ratios_are_written_short(self):
        self.assertEqual(
            [chart.short(one) for one in (1, 9.996, 81, 99.96)], ["1.00", "10.0", "81.0", "100"]
        )

    def test_a_matrix_shows_what_is_missing(self):
        panels = {
            "one": {("a", "x"): (1.5, 0.25), ("b", "y"): (2.0, 0.5)},
            "two": {("b", "x"): (None, None)},
        }
        said = words_of(chart.matrix("Some", panels, "note"))
        self.assertEqual(said.count("–"), 3)
        self.assertEqual([said.count(word) for word in ("1.50", "25%")], [1, 1])
        # Of the second one only the row and the column that it has something of.
        self.assertEqual([said.count(word) for word in ("x", "y", "a", "b")], [2, 1, 1, 2])

    def test_lines_of_one_point_and_of_zeros_can_be_drawn(self):
        plots = [
            chart.Plot("x", "y", {"one": [(2.0, 0.0)]}),
            chart.Plot("x", "y", {"one": [(1, 1)]}, True),
        ]
        self.assertIn("one", words_of(chart.lines("Some", plots)))


class Scrubbing(unittest.TestCase):
    def test_results_hold_no_absolute_path(self):
        scrub = report.conformance.machine.scrub
        repository = report.conformance.machine.REPOSITORY
        self.assertEqual(scrub(f"--baton {repository}/target/x.so"), "--baton target/x.so")
        self.assertEqual(scrub("File /home/someone/lib/x.py"), "File x.py")
        self.assertEqual(scrub("2 / 3 and a/b/c"), "2 / 3 and a/b/c")

    def test_a_list_of_numbers_is_one_line(self):
        value = {"numbers": [1, -2.5, 1e-9], "words": ["1,\n2"], "none": [], "some": [{"a": None}]}
        text = report.conformance.machine.indented(value)
        self.assertEqual(json.loads(text), value)
        self.assertIn('"numbers": [1, -2.5, 1e-09],\n', text)


if __name__ == "__main__":
    unittest.main()
