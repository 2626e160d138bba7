"""Cases, medians and limits of the transfer measurement."""

import argparse
import unittest

import transfer
from common import switches

GIB = 1 << 30


def step(direction, out_gbps=None, in_gbps=None, complete=True, size=10 * GIB):
    """A step that moved `size` bytes at that rate."""
    one = {
        "direction": direction,
        "complete": complete,
        "waited_seconds": 0.3,
        "scrubbed_bytes": 0,
        "scrub_seconds": 0.0,
        **switches.total([]),
    }
    for way, gbps in (("out", out_gbps), ("in", in_gbps)):
        one[f"{way}_gbps"] = gbps
        one[f"bytes_{way}"] = size if gbps else 0
    return one


def transfer_result():
    """One case without a yardstick."""
    case = transfer.Case.of("one:10GiB:512MiB")
    steps = [step("out", 49.0), step("in", None, 55.0), step("out", 51.0), step("in", None, 54.0)]
    one = {
        "case": {"kind": "one"},
        "name": case.name,
        "extents": 21,
        "equal": True,
        "scrub_gbps": 4000.0,
        "ways": [transfer.way(steps, way, case.size) for way in transfer.ways_of(case)],
    }
    return {"torch": {"reason": "no GPU"}, "cases": [one], "failures": {}}


class Cases(unittest.TestCase):
    def test_a_case_says_what_it_is(self):
        case = transfer.Case.of("exchange:10GiB:20MiB")
        self.assertEqual((case.count, case.name), (512, "two tenants of 10 GiB by 20 MiB"))

    def test_the_arena_has_room_for_one_and_not_for_two(self):
        for text in ("one:40GiB:512MiB", "exchange:10GiB:20MiB", "exchange:64MiB:3MiB"):
            case = transfer.Case.of(text)
            pieces = case.count * -(-case.piece // (2 << 20)) * (2 << 20)
            self.assertGreater(case.arena(), pieces)
            self.assertLess(case.arena(), 2 * pieces)
            self.assertGreater(case.arena() + case.host_pool(), 2 * pieces)

    def test_what_is_no_case_is_refused(self):
        for text in ("three:1GiB:1MiB", "one:1MiB:2MiB", "one:1GiB", "one:x:1MiB"):
            with self.assertRaises(ValueError):
                transfer.Case.of(text)


class Figures(unittest.TestCase):
    def test_steps_that_moved_little_or_are_not_all_known_do_not_count(self):
        steps = [
            step("out", 50.0),
            step("out", 1.0, size=GIB),
            step("out", 1.0, complete=False),
            step("in", None, 2.0),
        ]
        way = transfer.way(steps, ("out", "out"), 10 * GIB)
        self.assertEqual((way["count"], way["steps"], way["gbps_min"]), (1, 3, 50.0))

    def test_an_exchange_has_a_figure_for_each_way(self):
        case = transfer.Case.of("exchange:10GiB:512MiB")
        steps = [step("both", 46.0, 47.0), step("both", 48.0, 45.0)]
        out, back = (transfer.way(steps, way, case.size) for way in transfer.ways_of(case))
        self.assertEqual((out["gbps"], out["gbps_min"]), (47.0, 46.0))
        self.assertEqual((back["gbps"], back["gbps_min"]), (46.0, 45.0))

    def test_limits_hold_only_with_right_contents_and_enough_steps(self):
        arguments = argparse.Namespace(limit_one=48, limit_exchange=45, repeat=2)
        result = transfer_result()["cases"][0]
        self.assertTrue(transfer.holds(result, arguments))
        self.assertFalse(transfer.holds({**result, "equal": False}, arguments))
        arguments.limit_one = 53
        self.assertFalse(transfer.holds(result, arguments))
        arguments.limit_one, arguments.repeat = 48, 3
        self.assertFalse(transfer.holds(result, arguments))

    def test_nothing_moved_is_a_row_of_dashes(self):
        case = transfer.Case.of("one:1GiB:2MiB")
        empty = {"case": {"kind": "one"}, "name": case.name, "equal": True}
        empty["ways"] = [transfer.way([], way, case.size) for way in transfer.ways_of(case)]
        rows = transfer.shown(empty, {})
        self.assertTrue(all(len(row) == len(transfer.HEADER) for row in rows))
        self.assertEqual(rows[0][4], "-")
        arguments = argparse.Namespace(limit_one=48, limit_exchange=45, repeat=1)
        self.assertFalse(transfer.holds(empty, arguments))


if __name__ == "__main__":
    unittest.main()
