"""Tests of the sharing measurement's answers and counts, and of its worker with a made workload."""

import json
import unittest

import sharing
import sharing_worker
from loads.digest import Digest

GIB = 1 << 30


def row(name, equal=True, step=None):
    """A program of a group."""
    numbers = {"steps": 9, "switches": 25, "solo_seconds": 1.0, "shared_seconds": 2.5}
    return {
        "name": name,
        "equal": equal,
        "differs_at_step": step,
        "peak_bytes": 5 * GIB,
        **numbers,
    }


def sharing_result():
    """A good result but for the program that was to recover."""
    group = {
        "names": ["x", "y"],
        "rows": [row("x"), row("y")],
        "arena_bytes": 6 * GIB,
        "sum_of_peaks": 10 * GIB,
        "wall_seconds": 2.6,
        "solo_seconds": 2.0,
        "switches": 50,
        "bytes_in": 10**9,
        "bytes_out": 10**9,
        "switch_ms_p50": 100.0,
        "switch_ms_max": None,
        "large_switches": 2,
        "listed_switches": 2,
        "left_over": {"tenants": 0, "extents": 0},
        "equal": True,
        "crowded": True,
    }
    alone = {name: {"steps": 9, "equal": True, "numbers": {}} for name in "xy"}
    return {
        "wanted_switches": 50,
        "alone": alone,
        "groups": [group],
        "recovery": {"way": "torch", "recovered": False, "reason": "signal 9"},
        "failures": [],
    }


class Arena(unittest.TestCase):
    def test_every_program_fits_the_arena_and_all_together_do_not(self):
        for peaks in ([5 * GIB, 6 * GIB], [GIB] * 3, [96 << 20, 80 << 20]):
            arena = sharing.arena_for(peaks)
            self.assertGreater(arena, max(peaks) * 1.05)
            self.assertLess(arena, sum(peaks))

    def test_programs_that_would_never_take_turns_are_refused(self):
        for peaks in ([10 * GIB, GIB], [GIB], [0, 0]):
            with self.assertRaises(ValueError):
                sharing.arena_for(peaks)


class Comparison(unittest.TestCase):
    def answer(self, *digests):
        return {
            "digest": digests[-1],
            "step_digests": list(digests[:-1]),
            "steps": len(digests) - 1,
            "outputs": 3,
            "numbers": {},
            "seconds": 1.0,
        }

    def compared(self, alone, shared):
        return sharing.compare(["x"], {"x": alone}, {"x": shared})[0]

    def test_equal_runs_are_equal(self):
        row = self.compared(self.answer("a", "b", "end"), self.answer("a", "b", "end"))
        self.assertEqual((row["equal"], sharing.verdict(row)), (True, "equal"))

    def test_the_first_step_that_differs_is_named(self):
        row = self.compared(self.answer("a", "b", "end"), self.answer("a", "c", "other"))
        self.assertEqual(sharing.verdict(row), "DIFFERS at step 1")
        row = self.compared(self.answer("a", "b", "end"), self.answer("a", "b", "other"))
        self.assertEqual(sharing.verdict(row), "DIFFERS at the end")


class Verdict(unittest.TestCase):
    def setUp(self):
        self.result = sharing_result()
        self.result["recovery"] = None
        self.assertTrue(sharing.is_good(self.result))

    def test_one_group_with_too_few_switches_spoils_it(self):
        self.result["groups"][0]["switches"] = 49
        self.assertFalse(sharing.is_good(self.result))

    def test_what_is_left_over_spoils_it(self):
        self.result["groups"][0]["left_over"]["extents"] = 1
        self.assertFalse(sharing.is_good(self.result))

    def test_bare_runs_that_differ_spoil_it(self):
        self.result["alone"]["x"]["equal"] = False
        self.assertFalse(sharing.is_good(self.result))

    def test_an_arena_that_holds_all_proves_nothing(self):
        self.result["groups"][0]["crowded"] = False
        self.assertFalse(sharing.is_good(self.result))

    def test_a_failure_spoils_it(self):
        self.result["failures"].append("it ended")
        self.assertFalse(sharing.is_good(self.result))

    def test_the_table_has_a_line_for_each_program_and_one_for_all(self):
        rows = sharing.shown(self.result["groups"][0])
        self.assertEqual(len(rows), 3)
        self.assertTrue(all(len(row) == len(sharing.HEADER) for row in rows))


class Worker(unittest.TestCase):
    def run_worker(self, **how):
        digest, numbers = Digest(), {}

        def step(i):
            digest.raw(f"step{i}", bytes([i % 256]))

        def finish():
            digest.raw("end", b"weights")

        return sharing_worker.run(step, finish, digest, numbers, lambda: 7, **how)

    def test_as_many_steps_are_run_as_are_asked_for(self):
        answer = self.run_worker(steps=5)
        json.dumps(answer)
        self.assertEqual((answer["steps"], answer["outputs"], answer["peak_bytes"]), (5, 6, 7))
        self.assertEqual(len(set(answer["step_digests"])), 5)

    def test_the_steps_that_fit_into_a_time_are_the_same_steps(self):
        timed = self.run_worker(seconds=0.02)
        again = self.run_worker(steps=timed["steps"])
        self.assertEqual(timed["digest"], again["digest"])
        self.assertEqual(timed["step_digests"], again["step_digests"])


if __name__ == "__main__":
    unittest.main()
