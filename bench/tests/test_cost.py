"""The token, the workers and the ratios of the cost measurement."""

import unittest

import cost
from tests.support import fake_shim


class Ratios(unittest.TestCase):
    def test_ratios_are_taken_within_a_round(self):
        slowing_down = [
            {"bare A": t, "bare B": t, "preloaded": t * 1.005} for t in (10, 20, 40, 80)
        ]
        ratios = cost.evaluate(slowing_down)["ratios"]
        self.assertAlmostEqual(ratios["preloaded / bare A"]["median"], 1.005)
        self.assertAlmostEqual(ratios["preloaded / bare A"]["low"], 1.005)
        self.assertEqual(ratios["bare B / bare A"]["max"], 1)
        self.assertEqual(ratios["bare B / bare A"]["count"], 4)

    def test_the_interval_holds_the_median(self):
        measured = [{"bare A": 10, "bare B": 10, "preloaded": 10 + i / 10} for i in range(20)]
        ratio = cost.evaluate(measured)["ratios"]["preloaded / bare A"]
        self.assertLessEqual(ratio["low"], ratio["median"])
        self.assertLessEqual(ratio["median"], ratio["high"])


class Tenants(unittest.TestCase):
    ROW = {"pid": 7, "bytes": 100, "resident_bytes": 100}

    def test_a_tenant_with_all_its_memory_is_one(self):
        cost.check_tenant(self.ROW, 7, 100)

    def test_anything_less_is_no_measurement(self):
        wrong = {
            "does not know": (None, 7, 0),
            "does not know.*": (self.ROW, 8, 0),
            "the coordinator lent 100": (self.ROW, 7, 101),
            "lent 0": ({**self.ROW, "bytes": 0}, 7, 0),
            "not all": ({**self.ROW, "resident_bytes": 98}, 7, 100),
        }
        for message, arguments in wrong.items():
            with self.assertRaisesRegex(cost.WorkerFailed, message):
                cost.check_tenant(*arguments)


@unittest.skipUnless(fake_shim(), "needs a C compiler")
class Workers(unittest.TestCase):
    def test_every_role_runs_once_in_every_round(self):
        measured, rows = cost.measure(
            "spin", "cpu", fake_shim(), rounds=3, block_seconds=0.05, timeout=30
        )
        self.assertEqual((len(measured), rows), (3, []))
        for one in measured:
            self.assertEqual(set(one), set(cost.ROLES))
            self.assertTrue(all(milliseconds > 0 for milliseconds in one.values()))

    def test_a_shim_that_is_not_loaded_is_no_measurement(self):
        with self.assertRaisesRegex(cost.WorkerFailed, "preloaded has not loaded"):
            cost.measure("spin", "cpu", __file__, rounds=1, block_seconds=0.05, timeout=30)

    def test_a_worker_that_dies_says_why(self):
        with self.assertRaisesRegex(cost.WorkerFailed, "usage"):
            cost.measure("no_such_workload", "cpu", fake_shim(), 1, 0.05, timeout=30)


if __name__ == "__main__":
    unittest.main()
