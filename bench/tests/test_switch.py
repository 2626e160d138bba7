"""Tests of the switching measurement's samples, and of its workers with made loads."""

import json
import unittest

import switch_checkpoint
import switch_server
import switch_train
from common import switching
from common.scene import TRAINER, Scene
from loads.service import Service, Training

GB = 10**9
MACHINE = {"date": "2030-01-01T00:00:00Z", "command": "python3 bench/switch.py"}


def sample(number, ms=100.0, digest=None, had_left=0, out=0, record=True, away=True):
    """One evicted request."""
    switch = {"n": number + 1, "to": "bert", "bytes_out": out, "bytes_in": GB, "groups": 3}
    switch["phases"] = {"granted_ms": 2.0, "first_launch_ms": None}
    return {
        "input": number % 2,
        "ms": ms,
        "digest": digest or f"answer{number % 2}",
        "evict_ms": 10.0,
        "was_away": away,
        "had_left": had_left,
        "record": switch if record else None,
        "rested": {"input": number % 2, "ms": 19.0, "digest": f"answer{number % 2}"},
    }


def row(model="bert", variant="baton", p50=20.0, **more):
    """A row as a result has it."""
    memory = {"parameter_bytes": GB, "tenant_bytes": 11 * GB // 10}
    ready = switching.times([{"ms": 19.0}])
    made = switching.evicted_row([sample(i, p50) for i in range(4)], ready, memory, 55.0)
    more = {"digests": {"0": ["x"], "1": ["y"]}, "equal": True, **more}
    return {"model": model, "variant": variant, **made, **more}


def launches(*times):
    """Figures of first launches, the other program's work taken off each time."""
    phases = [{"first_launch_ms": ms} for ms in times]
    records = [{"record": {"pause_ms": 0.9, "phases": one}} for one in phases]
    return {**switching.first_launches(records), "paused": 4}


def switch_result(**more):
    """A good result of all three parts."""
    ready = {"model": "bert", "variant": switching.READY, "scene": "baton"}
    ready |= {"equal": True, "digests": {"0": ["x"]}, **switching.times([{"ms": 19.0}])}
    other = {"model": "bert", "variant": "checkpoint", "equal": True, "digests": {"0": ["x"]}}
    other |= {**switching.times([{"ms": 400.0}]), "suspend_ms": 700.0, "resume_ms": 380.0}
    window = {"steps": 90, "seconds": 10.0, "trainer_seconds": 9.5, "server_seconds": 0.5}
    alone = {"steps": 100, "seconds": 10.0, "trainer_seconds": 10.0, "server_seconds": 0.0}
    load = {"load": "graph", "requests": 6, "verdict": "equal", "equal": True}
    return {
        "kind": "switch",
        "machine": MACHINE,
        "rows": [ready, row(), other],
        "training": [
            switching.training_row("none", None, alone, alone),
            switching.training_row("every 1 s", 1.0, window, alone),
        ],
        "equality": [{**load, "tenant_bytes": GB, "options": []}],
        "failures": [],
        **more,
    }


class Figures(unittest.TestCase):
    def test_the_ratio_is_to_the_larger_of_ready_and_transfer(self):
        self.assertAlmostEqual(switching.floor_ms(55 * GB, 55), 1000)
        self.assertEqual(switching.ratio(30, 10, 20), 1.5)
        self.assertEqual(switching.ratio(30, 15, 5), 2)
        self.assertEqual(switching.ratio(30, 15, None), 2)
        self.assertIsNone(switching.ratio(None, 15, 5))

    def test_each_evicted_request_is_compared_with_the_rested_one_before(self):
        samples = [sample(number, ms) for number, ms in enumerate((10.0, 20.0, 30.0, 40.0))]
        for one, ms in zip(samples, (10.0, 10.0, 20.0, 10.0)):
            one["rested"]["ms"] = ms
        memory = {"parameter_bytes": GB, "tenant_bytes": GB}
        row = switching.evicted_row(samples, switching.times([{"ms": 10.0}]), memory, 1000.0)
        self.assertEqual(row["rested_ms"], 10.0)
        self.assertEqual(row["rested_ratios"], [1.0, 1.5, 2.0])
        self.assertEqual(switching.spread(row["rested_ratios"]), "1.50 (1.00 to 2.00)")

    def test_what_a_server_leaves_behind_is_what_its_own_switch_did_not_copy_out(self):
        samples = [
            sample(0, had_left=100, out=30),
            sample(1, had_left=135),
            sample(2, had_left=140),
        ]
        self.assertEqual(switching.left_bytes(samples), [5, 5])
        samples[1]["record"] = None
        self.assertEqual(switching.left_bytes(samples), [5, None])

    def test_records_may_lack_any_field(self):
        found = switching.record_medians([sample(0), sample(1, record=False), sample(2)])
        self.assertEqual((found["records"], found["groups"], found["granted_ms"]), (2, 3, 2.0))
        self.assertNotIn("first_launch_ms", found)
        self.assertNotIn("waits", found)
        self.assertEqual(switching.record_medians([{"record": {}}])["records"], 0)

    def test_first_launches_are_of_the_records_that_tell(self):
        records = [
            {"pause_ms": 0.9, "phases": {"first_launch_ms": 1.5}},
            {"pause_ms": 0.0, "phases": {"first_launch_ms": 2.5}},
            {"phases": {"first_launch_ms": None}},
            None,
        ]
        found = switching.first_launches([{"record": record} for record in records])
        self.assertEqual((found["n"], found["paused"]), (2, 1))
        self.assertEqual((found["p50_ms"], found["p99_ms"], found["max_ms"]), (2.0, 2.5, 2.5))
        self.assertIsNone(switching.first_launches([])["p99_ms"])

    def test_no_samples_are_a_row_of_dashes(self):
        empty = {"model": "bert", "variant": "checkpoint", "equal": False, **switching.times([])}
        self.assertEqual(len(switching.shown(empty)), len(switching.HEADER))

    def test_a_training_is_judged_by_its_speed_while_it_had_the_gpu(self):
        one = switch_result()["training"][1]
        self.assertAlmostEqual(one["throughput"], 0.9)
        self.assertAlmostEqual(one["share"], 0.95)
        self.assertAlmostEqual(one["kept"], 0.9 / 0.95)
        self.assertEqual(len(switching.training_shown(one)), len(switching.TRAINING_HEADER))


class Outputs(unittest.TestCase):
    def test_one_digest_for_each_input_and_the_references(self):
        seen = switching.digests([sample(i) for i in range(4)])
        self.assertEqual(seen, {"0": ["answer0"], "1": ["answer1"]})
        self.assertTrue(switching.agrees(seen, {"0": ["answer0"]}))
        self.assertFalse(switching.agrees(seen, {"0": ["other"]}))
        self.assertFalse(switching.agrees({}, {}))
        seen = switching.digests([sample(0), sample(2, digest="other")])
        self.assertFalse(switching.agrees(seen, {}))

    def test_loads_are_compared_request_by_request(self):
        bare = ["a", "b", "c"]
        self.assertEqual(switching.compared(bare, bare, bare), ("equal", True))
        self.assertEqual(switching.compared(bare, ["a", "b", "x"], bare)[1], False)
        verdict = switching.compared(bare, bare, ["a", "x", "c"])
        self.assertEqual(verdict, ("DIFFERS at request 1", False))
        self.assertEqual(switching.compared(bare, bare, bare[:2])[1], False)
        self.assertEqual(switching.compared(["a"] * 3, ["a"] * 3, ["a"] * 3)[1], False)


class Result(unittest.TestCase):
    def wrong(self, **more):
        return switching.shortcomings(switching.merge([switch_result(**more)]))

    def test_a_good_result_has_no_shortcomings(self):
        self.assertEqual(self.wrong(), [])

    def test_every_shortcoming_is_named(self):
        good = switch_result()
        ready, baton, other = good["rows"]
        for rows, word in (
            ([{**baton, "equal": False}], "outputs differ"),
            ([{**baton, "rested_ratios": [1.1, 1.3, 1.4]}], "1.30 times as long, limit 1.25"),
            ([{**baton, "rested_ratios": None, "ratio": 1.4}], "1.40 times as long, limit 1.25"),
            ([{**baton, "always_away": False}], "on the GPU before"),
            ([{**baton, "left_bytes_max": GB}], "weights too"),
            ([baton, {**other, "suspend_ms": 10.0, "resume_ms": 1.0}], "only 0.6 times as fast"),
            ([baton, {**other, "digests": {"0": ["z"]}}], "between variants"),
        ):
            found = self.wrong(rows=[ready, *rows])
            self.assertEqual(len(found), 1, found)
            self.assertIn(word, found[0])
        self.assertEqual(self.wrong(failures=["it ended"]), ["it ended"])
        load = {**good["equality"][0], "equal": False, "verdict": "DIFFERS at request 1"}
        self.assertEqual(self.wrong(equality=[load]), ["graph: DIFFERS at request 1"])

    def test_beside_a_kernel_it_is_the_first_launch_that_is_judged(self):
        def wrong(*times):
            return self.wrong(rows=[row(beside="kernel", ratio=9.0, first_launch=launches(*times))])

        self.assertEqual(wrong(1.0, 2.9), [])
        late = "bert, baton, beside a kernel: first launch P99 3.10 ms, limit 3 ms"
        self.assertEqual(wrong(1.0, 3.1), [late])
        self.assertEqual(len(wrong(None)), 1)

    def test_rows_beside_a_kernel_are_rows_of_their_own(self):
        beside = row(beside="kernel", p50=30.0, first_launch=launches(1.0))
        newer = {**MACHINE, "date": "2031-01-01T00:00:00Z"}
        failures = ["bert, baton, beside a kernel: it ended"]
        merged = switching.merge(
            [switch_result(rows=[beside], failures=failures), switch_result(machine=newer)]
        )
        self.assertEqual(switching.of(merged["rows"], "bert", "baton")["p50_ms"], 20.0)
        self.assertEqual(merged["failures"], failures)
        self.assertEqual(len(switching.listed(merged["rows"])), 3)
        (shown,) = switching.kernel_shown(merged["rows"])
        self.assertEqual(len(shown), len(switching.KERNEL_HEADER))

    def test_of_several_runs_the_newest_row_counts(self):
        newer = {**MACHINE, "date": "2031-01-01T00:00:00Z"}
        first = switch_result(rows=[row(p50=30.0), row("llama_1b", p50=30.0)])
        second = switch_result(rows=[row()], training=[], equality=[], machine=newer)
        merged = switching.merge([second, first])
        self.assertEqual(len(merged["rows"]), 2)
        self.assertEqual(switching.of(merged["rows"], "bert", "baton")["p50_ms"], 20.0)
        self.assertEqual([one["cycle"] for one in merged["training"]], [None, 1.0])
        self.assertEqual(merged["origins"], [MACHINE, newer])

    def test_a_failure_counts_until_a_newer_run_has_the_row(self):
        newer = {**MACHINE, "date": "2031-01-01T00:00:00Z"}
        first = switch_result(rows=[], failures=["bert, baton: it ended", "equality: it ended"])
        merged = switching.merge([first, switch_result(machine=newer)])
        self.assertEqual(merged["failures"], ["equality: it ended"])

    def test_all_tables_have_a_cell_for_each_heading(self):
        result = switching.merge([switch_result()])
        self.assertEqual(len(switching.listed(result["rows"])), 3)
        for one in switching.listed(result["rows"]):
            self.assertEqual(len(switching.shown(one)), len(switching.HEADER))
        cost = switching.cost_shown(result["rows"])
        self.assertEqual(cost, [["bert", "20.0", "700", "380", "54.0", "-"]])
        self.assertEqual(len(cost[0]), len(switching.COST_HEADER))
        shown = switching.equality_shown(result["equality"][0])
        self.assertEqual(len(shown), len(switching.EQUALITY_HEADER))


class FakeServing:
    """A coordinator that gives the GPU back to the training at the second look."""

    def __init__(self, row=None):
        self.looks, self.log = 0, []
        self.recent = [{"n": 1, "to": "bert"}]

    def said(self):
        return "nothing"

    def evict(self, name):
        self.log.append(f"evict {name}")
        self.looks = 0
        return 0.01

    def status(self):
        self.looks += 1
        waits = self.looks == 1
        tenants = [
            {"name": TRAINER, "bytes": 60, "evicted_bytes": 10 if waits else 0},
            {"name": "bert", "bytes": 10, "resident_bytes": 0},
        ]
        return {
            "arena": {"bytes": 100, "headroom_bytes": 3},
            "holder": None if waits else TRAINER,
            "tenants": tenants,
            "bytes_in": min(self.looks, 3),
            "bytes_out": 7,
            "recent": self.recent,
        }


class FakeWorker:
    """A server whose request is a switch."""

    def __init__(self, serving):
        self.serving = serving

    def ask(self, line, timeout):
        self.serving.log.append(line)
        self.serving.recent = [*self.serving.recent, {"n": 2, "to": "bert", "bytes_out": 5}]
        return {"ms": 1.0, "digest": "x"}


class Scenes(unittest.TestCase):
    def setUp(self):
        self.serving = FakeServing()
        worker = FakeWorker(self.serving)
        self.scene = Scene(self.serving, {"bert": worker, TRAINER: worker}, 5)

    def test_a_request_comes_after_the_eviction_and_when_nothing_moves_any_more(self):
        found = self.scene.evicted_request("bert", 3)
        self.assertEqual(self.serving.log, ["evict bert", "request 3"])
        self.assertEqual((found["input"], found["was_away"], found["had_left"]), (3, True, 7))
        self.assertEqual(found["record"]["n"], 2)
        self.assertGreaterEqual(self.serving.looks, 4)

    def test_a_switch_that_nobody_wrote_down_is_none(self):
        self.assertIsNone(self.scene.record(self.serving.status(), "other", patience=0.05))

    def test_the_training_gets_what_is_left_of_the_arena(self):
        self.scene.fill()
        self.assertEqual(self.serving.log, ["fill 34"])


class Workers(unittest.TestCase):
    def test_a_server_answers_with_a_time_and_a_digest(self):
        service = Service(lambda i: [bytes([i])], lambda d, name, v: d.raw(name, v), 7)
        first, again, other = (switch_server.timed(service, i) for i in (1, 1, 2))
        json.dumps(first)
        self.assertEqual(first["digest"], again["digest"])
        self.assertNotEqual(first["digest"], other["digest"])
        memory = {"parameter_bytes": 7, "reserved_bytes": 0}
        self.assertEqual(switch_server.memory(service), memory)

    def test_a_training_runs_from_go_to_hold(self):
        done, filled = [], []
        trainer = switch_train.Trainer(
            Training(done.append, lambda: None, lambda n: filled.append(n) or n)
        )
        self.assertFalse(trainer.runs)
        self.assertEqual(trainer.obey("go")["steps"], 0)
        trainer.step()
        self.assertTrue(trainer.runs)
        self.assertEqual(trainer.obey("mark")["steps"], 1)
        self.assertTrue(trainer.runs)
        trainer.obey("hold")
        self.assertFalse(trainer.runs)
        trainer.obey("fill 5")
        self.assertEqual(trainer.obey("fill 6")["filled"], 11)
        self.assertEqual((done, filled), ([0], [5, 6]))

    def test_a_checkpoint_ends_at_the_first_call_that_fails(self):
        class Cuda:
            cuCheckpointProcessLock = staticmethod(lambda pid, arguments: 0)
            cuCheckpointProcessCheckpoint = staticmethod(lambda pid, arguments: 801)

        answer = switch_checkpoint.carry_out(Cuda, 1, "suspend")
        self.assertEqual((answer["error"], answer["call"]), (801, "checkpoint"))
        self.assertEqual(list(answer["ms"]), ["lock", "checkpoint"])


if __name__ == "__main__":
    unittest.main()
