"""Which records are new, and what they add up to."""

import unittest

from common import switches


def record(n, out=0, back=0, seconds=1.0, to="a"):
    """A switch, or with n = 0 an allocation that evicted."""
    zero = dict.fromkeys(switches.FIELDS, 0.0)
    moved = {"bytes_out": out, "bytes_in": back}
    times = {"out_seconds": seconds if out else 0.0, "in_seconds": seconds if back else 0.0}
    return {"n": n, "to": to, **zero, **moved, **times, "switch_ms": 2.0}


def status(recent, allocations, out=0, back=0):
    """The part of a status that concerns the records."""
    return {"recent": recent, "allocations": allocations, "bytes_out": out, "bytes_in": back}


class Records(unittest.TestCase):
    def test_new_switches_are_those_with_later_numbers(self):
        before = status([record(1), record(2)], [])
        after = status([record(2), record(3), record(4)], [])
        self.assertEqual([r["n"] for r in switches.fresh(before, after)], [3, 4])

    def test_new_allocations_are_found_though_old_ones_were_dropped(self):
        old = [record(0, out=i) for i in range(4)]
        new = [record(0, out=10), record(0, out=11)]
        found = switches.fresh(status([], old), status([], old[2:] + new))
        self.assertEqual(found, new)
        self.assertEqual(switches.later(old, old), [])
        self.assertEqual(switches.later([], new), new)
        self.assertEqual(switches.later(old, new), new)

    def test_a_coordinator_may_list_switches_only(self):
        before, after = status([], []), status([record(1)], [])
        del before["allocations"], after["allocations"]
        self.assertEqual(len(switches.fresh(before, after)), 1)

    def test_every_byte_must_be_in_a_record(self):
        records = [record(1, out=5), record(0, out=6, back=7)]
        before, after = status([], [], 100, 200), status([], [], 111, 207)
        self.assertTrue(switches.accounted(before, after, records))
        self.assertFalse(switches.accounted(before, after, records[:1]))

    def test_sums_have_rates_only_where_bytes_were_moved(self):
        total = switches.total([record(1, out=3 * 10**9), record(0, out=10**9)])
        self.assertAlmostEqual(total["out_gbps"], 2)
        self.assertIsNone(total["in_gbps"])
        self.assertEqual((total["records"], total["switch_ms"]), (2, 4.0))
        self.assertIsNone(switches.total([])["out_gbps"])

    def test_switches_that_move_much_are_counted_by_both_directions(self):
        records = [record(1, out=30, back=20), record(2, out=49), record(3, back=50)]
        self.assertEqual(switches.moving(records, 0.5, 100), 2)


if __name__ == "__main__":
    unittest.main()
