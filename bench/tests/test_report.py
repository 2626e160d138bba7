"""The document made from result files."""

import json
import pathlib
import tempfile
import unittest
import xml.etree.ElementTree

import chart
import cost
import report
import trace_check
from common import current
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
    """The words in a picture, which has to be well-formed."""
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
        text = report.document(report.collected(results))
        places = [text.index(title) for title in ("## What does it cost", "## Do unmodified")]
        self.assertEqual(places, sorted(places))
        self.assertIn("Some GPU, 80 GiB, driver 1.2", text)
        self.assertIn("| one | preloaded | 1.0000 | 1.0000 | 1.0000 |", text)
        self.assertIn("| time per step, alone on the GPU | 1.000 × without Baton |", text)

    def test_programs_by_chance_are_counted_whether_they_are_one_process_or_two(self):
        counts = {"programs equal": 5, "exchanges equal": 2, "programs fails": 1, "evictions": 9}
        said = report.document({"generated": [{"machine": MACHINE, "counts": counts}]})
        self.assertIn("7 compute under Baton what they compute bare, evicted 9 times", said)
        self.assertIn("and 1 do not. 0 more do not count", said)

    def test_programs_that_take_turns_have_a_section(self):
        result = {"kind": "sharing", "machine": MACHINE, **sharing_result()}
        text = report.document(report.collected([result]))
        self.assertIn("| x, y | 10.0 in 6.0 | equal | 2.0 | 2.6 | 50 | 100 |", text)

    def test_moved_memory_has_a_section_with_and_without_a_yardstick(self):
        result = {"kind": "transfer", "machine": MACHINE, **transfer_result()}
        text = report.document(report.collected([result]))
        self.assertIn("| one tenant of 10 GiB by 512 MiB | 50.0 (–) | 54.5 (–) |", text)
        result["torch"] = {"gbps": {"in": 55.0, "out": 55.0}}
        text = report.document(report.collected([result]))
        self.assertIn("| 50.0 (0.91) | 54.5 (0.99) |", text)

    def test_switching_has_a_section_and_a_chart_of_all_its_files(self):
        parts = [switch_result(machine=MACHINE), switch_result(machine=MACHINE, rows=[])]
        results = report.collected(parts)
        text = report.document(results)
        row = "| BERT-base | 1.10 | 19.0 | 19.0 | 18.2 | 20.0 | 1.05 | – | 1080 | – |"
        self.assertIn(row, text)
        self.assertIn("every 1 to 1 s keeps 0.900 of its speed", text)
        self.assertIn("1 of 1 loads", text)
        self.assertIn("(switch.svg)", text)
        self.assertNotIn("Beyond the limit", text)
        said = words_of(report.drawn("switch", results["switch"])["switch.svg"][1])
        self.assertIn("20 ms", said)
        self.assertIn("1.1 s", said)
        self.assertEqual(report.drawn("switch", [parts[1]]), {})

    def test_requests_beside_a_kernel_have_a_table_of_their_own(self):
        beside = row(beside="kernel", first_launch=launches(1.0, 2.0))
        text = report.document(report.collected([switch_result(machine=MACHINE, rows=[beside])]))
        self.assertIn("| BERT-base | 4 of 4 | 1.50 | 2.00 | 2.00 | 20.0 (19.0) |", text)
        self.assertNotIn("| BERT-base | 1.10 |", text)
        self.assertNotIn("switch.svg", text)

    def test_a_tenant_is_told_from_a_process_that_is_only_preloaded(self):
        rounds = [dict.fromkeys(cost.ROLES, 10.0)]
        result = {"kind": "cost", "machine": MACHINE, "block_seconds": 2, "failures": {}}
        result |= {"workloads": {"one": cost.evaluate(rounds)}, "serve": True}
        text = report.document(report.collected([result]))
        self.assertIn("| one | only tenant | 1.0000 |", text)

    def test_the_document_in_the_repository_is_that_of_the_results(self):
        results = report.read(report.HERE / "results")
        self.assertEqual(report.DOCUMENT.read_text(), report.document(results))
        for kind, runs in results.items():
            for file, (_, svg) in report.drawn(kind, runs).items():
                self.assertEqual(report.DOCUMENT.with_name(file).read_text(), svg)

    def test_the_readme_has_the_same_figures(self):
        table = report.in_short(report.read(report.HERE / "results"))
        self.assertIn(f"\n{table}\n", (report.HERE.parent / "README.md").read_text())

    def test_other_pages_have_the_same_figures(self):
        runs = report.read(report.HERE / "results")["corun"]
        (_, beside), (_, kept) = report.corun_short(runs)
        # "0.18 to 0.47 of its speed alone", "… (time slices 15 to 127 ×, MPS 14 to 522 ×)"
        ranges = [kept.split(" of ")[0], *(word.split(" ×")[0] for word in beside.split("slices ")[1:])]
        pages = {"comparison.md": ranges, "limits.md": ranges[:1]}
        for page, wanted in pages.items():
            text = " ".join((report.HERE.parent / "docs" / page).read_text().split())
            for one in wanted:
                self.assertTrue(one in text, f"{page} does not have {one}, as bench/results has")

    def test_there_is_one_file_a_kind(self):
        for path in (report.HERE / "results").glob("*.json"):
            result = json.loads(path.read_text())
            self.assertEqual(path.stem, result["kind"])
            runs = current.runs_of(result)
            self.assertEqual(current.pruned(path.stem, runs), runs, "no run is superseded")


class Current(unittest.TestCase):
    def test_of_a_row_that_was_measured_again_the_newest_counts(self):
        def run(year, **workloads):
            machine = {**MACHINE, "date": f"{year}-01-01T00:00:00Z"}
            return {"kind": "cost", "machine": machine, "workloads": workloads}

        old, new = run(2030, one=1, two=1), run(2031, one=2)
        joined = current.joined("cost", [new, old])
        self.assertEqual([one["workloads"] for one in joined["runs"]], [{"two": 1}, {"one": 2}])
        newest = current.joined("cost", [joined, run(2032, one=3, two=3)])
        self.assertEqual(newest["workloads"], {"one": 3, "two": 3})

    def test_some_programs_of_those_on_two_gpus_can_be_measured_by_themselves(self):
        def run(year, seconds, *jobs):
            found = {job: {"bare": {"digest": "x", "seconds": seconds}} for job in jobs}
            for job in jobs:
                shared = {"digest": "x", "seconds": seconds, "switches": {"0": 3, "1": 4}}
                found[job]["0 and 1"] = shared
            found["beside, 0 and 1"] = [5, 6]
            date = {**MACHINE, "date": f"{year}-01-01T00:00:00Z"}
            return {"kind": "several_gpus", "machine": date, "several_gpus": found}

        old, new = run(2030, 9.0, "ddp", "pmap"), run(2031, 8.0, "pmap", "sharding")
        with tempfile.TemporaryDirectory() as folder:
            kept, added = pathlib.Path(folder, "several_gpus.json"), pathlib.Path(folder, "new")
            kept.write_text(json.dumps(old))
            added.write_text(json.dumps(new))
            report.add(pathlib.Path(folder), [added])
            results = report.read(pathlib.Path(folder))
        runs = [list(run["several_gpus"]) for run in results["several_gpus"]]
        beside = "beside, 0 and 1"
        self.assertEqual(runs, [["ddp", beside], ["pmap", "sharding", beside]])
        text = report.document(results)
        self.assertIn("| ddp | 0 and 1 | equal | 9.0 |  | 3, 4 |", text)
        self.assertIn("| pmap | 0 and 1 | equal | 8.0 |  | 3, 4 |", text)
        self.assertNotIn("| pmap | 0 and 1 | equal | 9.0", text)

    def test_of_a_kind_without_rows_the_newest_run_counts(self):
        dated = [{**MACHINE, "date": date} for date in ("2031", "2030")]
        runs = [{"kind": "trace", "machine": one} for one in dated]
        self.assertEqual(current.joined("trace", runs), runs[0])


class Charts(unittest.TestCase):
    def test_axes_have_a_few_round_numbers(self):
        self.assertEqual(chart.steps(0, 100), [0, 20, 40, 60, 80, 100])
        self.assertEqual(chart.steps(0.1, 0.9), [0.2, 0.4, 0.6, 0.8])
        self.assertEqual(chart.steps(3, 3), [3])
        self.assertEqual(chart.decimal_steps(0.8, 21), [1, 2, 5, 10, 20])
        self.assertEqual(chart.decimal_steps(0.5, 20_000), [1, 10, 100, 1000, 10_000])

    def test_lines_of_one_point_and_of_zeros_can_be_drawn(self):
        plots = [
            chart.Plot("x", "y", {"one": [(2.0, 0.0)]}),
            chart.Plot("x", "y", {"one": [(1, 1)]}, True),
        ]
        self.assertIn("one", words_of(chart.lines("Some", plots)))


class Scrubbing(unittest.TestCase):
    def test_results_hold_no_absolute_path(self):
        scrub = report.machine.scrub
        repository = report.machine.REPOSITORY
        self.assertEqual(scrub(f"--baton {repository}/target/x.so"), "--baton target/x.so")
        self.assertEqual(scrub("File /home/someone/lib/x.py"), "File x.py")
        self.assertEqual(scrub("2 / 3 and a/b/c"), "2 / 3 and a/b/c")

    def test_what_fits_a_line_is_one(self):
        line = report.machine.LINE
        short = {"numbers": [1, -2.5, 1e-9], "words": ["1,\n2"], "none": [], "some": [{"a": None}]}
        self.assertNotIn("\n", report.machine.indented(short))
        long = {"runs": [short] * line, "numbers": list(range(line)), "empty": {}}
        text = report.machine.indented(long)
        self.assertEqual(json.loads(text), long)
        self.assertEqual(text.count(json.dumps(short)), line)
        self.assertIn(f' "numbers": {json.dumps(long["numbers"])},\n "empty": {{}}', text)


if __name__ == "__main__":
    unittest.main()
