"""Figures of samples."""

import unittest

from common import stats


class Figures(unittest.TestCase):
    def test_a_quantile_is_a_value_that_so_many_do_not_exceed(self):
        self.assertEqual(stats.quantile(range(1, 101), 0.99), 99)
        self.assertEqual(stats.quantile(range(1, 101), 1), 100)
        self.assertEqual(stats.quantile([3, 1, 2], 0.5), 2)
        self.assertEqual(stats.quantile([7], 0.01), 7)

    def test_figures_are_named_by_their_shares(self):
        found = stats.figures(range(1, 1001), (0.5, 0.99, 0.999))
        self.assertEqual(
            found, {"n": 1000, "p50_ms": 500, "p99_ms": 990, "p999_ms": 999, "max_ms": 1000}
        )

    def test_a_median_of_nothing_is_nothing(self):
        self.assertIsNone(stats.median([None]))
        self.assertEqual(stats.median([None, 1, 3]), 2)
        self.assertEqual(stats.least([None, 3, 1]), 1)


if __name__ == "__main__":
    unittest.main()
