"""The comparison of bare and preloaded runs, with programs that behave and programs that do not."""

import json
import os
import sys
import unittest
import unittest.mock

import conformance
from common import programs
from tests.support import fake_shim

PRELOADED = "'libbaton' in open('/proc/self/maps').read()"


def program(code, prints_json=True):
    """A Python program that runs `code`."""
    return conformance.Program("made", (sys.executable, "-c", code), prints_json)


def printing(digest):
    """Code that prints a workload's object with the digest that the expression `digest` gives."""
    fields = "'outputs': 1, 'bytes': 4, 'numbers': {}"
    return f"import json, os; print(json.dumps({{'digest': {digest}, {fields}}}))"


@unittest.skipUnless(fake_shim(), "needs a C compiler")
class Comparison(unittest.TestCase):
    def compare(self, code, timeout=20, with_trace=True, prints_json=True):
        row = conformance.compare(program(code, prints_json), fake_shim(), timeout, with_trace)
        json.dumps(row)
        self.assertEqual(len(conformance.shown(row)), len(conformance.HEADER))
        return row

    def test_equal_outputs_are_equal_and_the_calls_are_counted(self):
        row = self.compare(printing("'same'"))
        self.assertEqual(row["verdict"], "equal")
        self.assertEqual(row["calls"]["launches"], 1)
        self.assertIn("libbaton.so", row["runs"]["preloaded"]["libraries"])
        self.assertNotIn("libbaton.so", row["runs"]["bare"]["libraries"])

    def test_counts_that_cannot_be_read_are_a_failure_of_that_run(self):
        with unittest.mock.patch.dict(os.environ, {"FAKE_CALLS": "garbage"}):
            row = self.compare(printing("'same'"))
        self.assertEqual(row["verdict"], "counted: failed")

    def test_another_output_under_the_shim_is_found(self):
        row = self.compare(printing(f"str({PRELOADED})"))
        self.assertEqual(row["verdict"], "DIFFERS under the shim")
        self.assertFalse(row["equal"])

    def test_a_program_that_does_not_repeat_itself_is_not_blamed_on_the_shim(self):
        self.assertEqual(self.compare(printing("os.getpid()"))["verdict"], "two bare runs differ")

    def test_a_crash_under_the_shim_is_a_row_with_a_reason(self):
        row = self.compare(
            f"import os, signal; {PRELOADED} and os.kill(os.getpid(), 11); " + printing("1")
        )
        self.assertEqual(row["verdict"], "preloaded: failed")
        self.assertIn("signal 11", row["runs"]["preloaded"]["reason"])

    def test_a_program_that_fails_bare_is_not_run_on(self):
        row = self.compare("raise SystemExit('no such thing')")
        self.assertEqual(list(row["runs"]), ["bare"])
        self.assertIn("no such thing", row["runs"]["bare"]["reason"])

    def test_a_program_that_hangs_is_ended(self):
        row = self.compare("import time; time.sleep(60)", timeout=0.5)
        self.assertEqual(row["verdict"], "bare: timeout")

    def test_a_missing_library_is_told_apart_from_a_failure(self):
        code = (
            f"import sys; print('not installed: x', file=sys.stderr); sys.exit({programs.ABSENT})"
        )
        self.assertEqual(self.compare(code)["verdict"], "not installed")

    def test_a_program_without_json_is_compared_by_its_output(self):
        code = f"print('result x', {PRELOADED})"
        self.assertEqual(self.compare(code, prints_json=False)["verdict"], "DIFFERS under the shim")
        self.assertEqual(self.compare("print('result x')", prints_json=False)["verdict"], "equal")

    def test_a_program_that_prints_no_result_has_failed(self):
        row = self.compare("print('nothing')", prints_json=False)
        self.assertEqual(row["verdict"], "bare: failed")

    def test_a_bare_run_that_had_the_shim_proves_nothing(self):
        settings = programs.preload_environment(fake_shim())
        with unittest.mock.patch.dict(os.environ, settings):
            row = self.compare("import time; time.sleep(0.3); " + printing("1"))
        self.assertEqual(row["verdict"], "the bare run had the shim")

    def test_rows_come_in_the_order_of_the_programs(self):
        made = [program(f"import time; time.sleep({t}); " + printing("1")) for t in (0.3, 0)]
        renamed = [conformance.Program(n, p.argv) for n, p in zip(("slow", "quick"), made)]
        rows = conformance.run_all(renamed, fake_shim(), 20, 2, False)
        self.assertEqual([row["name"] for row in rows], ["slow", "quick"])


class Preloading(unittest.TestCase):
    def test_a_library_that_cannot_be_preloaded_is_a_failure(self):
        settings = programs.preload_environment(__file__)
        outcome = programs.run([sys.executable, "-c", "print('result')"], settings, 20)
        self.assertEqual(outcome.status, "failed")
        self.assertIn("ran bare", outcome.reason)

    def test_a_program_that_is_not_there_is_a_failure(self):
        self.assertEqual(programs.run(["/nonexistent/program"]).status, "failed")


if __name__ == "__main__":
    unittest.main()
