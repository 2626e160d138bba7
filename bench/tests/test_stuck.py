"""Tests of the measurement with stuck tenants: its answers, and its workers' loop."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import types
import unittest
from unittest import mock

import report
import stuck
import stuck_work
from common.workers import WorkerFailed
from loads import spinning
from tests.test_report import MACHINE


def times(p50, p99, most):
    """Figures of requests."""
    return {"n": 200, "p50_ms": p50, "p99_ms": p99, "max_ms": most}


def mode_of(**more):
    """One mode's findings."""
    return {
        "kernel_ms": {},
        "requests": {
            "alone": times(0.02, 0.05, 0.06),
            "endless": times(1.02, 2.05, 9.0),
            "stopped": times(0.02, 6.05, 7.0),
        },
        "rounds_per_second": {"alone": 2000.0, "beside": 1500.0},
        "kernels_per_second": {"alone": 200.0, "steady": 100.0, "endless": 95.0, "stopped": 190.0},
        "wrong": [],
        "coordinator": {"pauses": 3, "switches": 4, "bytes_in": 0, "bytes_out": 0},
        **more,
    }


def stuck_result(**modes):
    """A result with these modes."""
    return {
        "kind": "stuck",
        "machine": MACHINE,
        "gap_ms": 20.0,
        "limit_ms": 5,
        "stops": 10,
        "modes": modes,
        "failures": [],
    }


class Figures(unittest.TestCase):
    def test_a_delay_is_what_requests_take_longer_than_alone(self):
        requests = mode_of()["requests"]
        lost = stuck.delay(requests, "endless")
        self.assertAlmostEqual(lost["p99_ms"], 2.0)
        self.assertAlmostEqual(lost["max_ms"], 8.94)
        verdicts = {scene: stuck.verdict(requests, scene) for scene in requests}
        self.assertEqual(verdicts, {"alone": "", "endless": "met", "stopped": "missed"})
        noisy = {**requests, "alone": times(0.02, 5.05, 90.0)}
        self.assertEqual(stuck.verdict(noisy, "stopped"), "unclear")
        self.assertIsNone(stuck.delay({"alone": requests["alone"]}, "endless"))

    def test_a_missed_limit_is_no_shortcoming_and_a_wrong_result_is(self):
        result = stuck_result(default=mode_of())
        self.assertEqual(stuck.shortcomings(result), [])
        result = stuck_result(default=mode_of(wrong=["small"]))
        result["failures"] = ["exclusive: small died"]
        self.assertEqual(
            stuck.shortcomings(result),
            ["default: wrong result of small", "exclusive: small died"],
        )

    def test_a_mode_that_ended_early_shows_what_it_has(self):
        early = mode_of(requests={}, rounds_per_second={}, kernels_per_second={})
        del early["coordinator"]
        result = stuck_result(default=early)
        self.assertEqual(stuck.rows(result), [])
        self.assertEqual(stuck.turns_rows(result), [])
        self.assertEqual(stuck.notes(result), [])
        early["requests"]["alone"] = times(1, 2, 3)
        self.assertEqual(
            stuck.rows(result)[0][:6], ["default", "alone", 200, "1.000", "2.000", "3.000"]
        )

    def test_the_document_has_its_tables(self):
        result = stuck_result(default=mode_of(), exclusive=mode_of())
        text = report.document(report.collected([result]))
        self.assertIn("| batch | default | 1.00 | 2.00 |", text)
        self.assertIn("| batch | exclusive | 1.00 | 2.00 |", text)


class Numbers(unittest.TestCase):
    def test_a_leap_is_as_many_steps(self):
        x = 12345
        for steps in range(70):
            factor, term = spinning.leap(steps)
            self.assertEqual((factor * 12345 + term) & spinning.MASK, x)
            x = (x * spinning.FACTOR + spinning.TERM) & spinning.MASK

    def test_a_number_that_made_another_step_is_found(self):
        rounds, steps = [3, 5], 7
        state = []
        for i in range(8):
            factor, term = spinning.leap(rounds[i // 4] * steps)
            state.append((factor * i + term) & spinning.MASK)
        self.assertTrue(spinning.is_right(state, rounds, steps))
        self.assertFalse(spinning.is_right(state, [3, 6], steps))
        for i in range(8):
            wrong = [*state[:i], state[i] ^ 1, *state[i + 1 :]]
            self.assertFalse(spinning.is_right(wrong, rounds, steps))


class FakeSpin:
    """Kernels that only say that they were launched."""

    def __init__(self):
        self.said, self.right = [], True

    def __getattr__(self, name):
        return lambda *words: self.said.append((name, *words))

    def done(self):
        return len(self.said)

    def is_right(self):
        return self.right


class Programs(unittest.TestCase):
    def served(self, program, *lines):
        """The answers to these commands; steps are only made where no command waits."""
        answers, read, write = [], *os.pipe()
        os.write(write, "".join(f"{line}\n" for line in lines).encode())
        os.close(write)
        with open(read) as commands:
            stuck_work.serve(program, answers.append, commands)
        return answers

    def test_requests_are_timed_and_checked(self):
        spin = FakeSpin()
        (answer,) = self.served(stuck_work.Small(spin), "requests 3 0", "quit")
        self.assertEqual(len(answer["ms"]), 3)
        self.assertTrue(answer["right"])
        self.assertEqual(spin.said, 3 * [("launch", 1), ("wait",)])
        spin.right = False
        self.assertFalse(self.served(stuck_work.Small(spin), "requests 1 0")[0]["right"])

    def test_an_endless_kernel_is_ended_before_it_is_waited_for(self):
        spin = FakeSpin()
        answers = self.served(stuck_work.Endless(spin), "go", "mark", "end")
        self.assertEqual(spin.said, [("begin",), ("release",), ("wait",)])
        self.assertEqual((answers[1]["done"], answers[2]["right"]), (1, True))

    def test_steady_kernels_are_waited_for_a_few_at_a_time(self):
        spin = FakeSpin()
        program = stuck_work.Steady(spin)
        program.go()
        self.assertTrue(program.runs)
        program.step()
        kernel = ("launch", stuck_work.ROUNDS)
        self.assertEqual(spin.said, [kernel] * stuck_work.QUEUED + [("wait",)])
        self.assertEqual(program.mark()["done"], stuck_work.QUEUED)
        self.assertEqual(program.end(), {"right": True})
        self.assertFalse(program.runs)

    def test_no_kernel_is_left_behind_whatever_happens(self):
        spin, worker = FakeSpin(), mock.Mock()
        worker.arguments.role, worker.build = "endless", lambda large: spin
        with mock.patch.object(stuck_work, "Worker", lambda *_, **__: worker):
            with mock.patch.object(sys, "stdin", io.StringIO("nothing\n")):
                with self.assertRaises(AttributeError):
                    stuck_work.main()
        self.assertEqual(spin.said[-1], ("release",))
        self.assertTrue(worker.ready.call_args.kwargs["right"])


class FakeWorker:
    """Answers at once; `marks` are what it has done, one after the other."""

    def __init__(self, right=True, marks=()):
        self.right, self.marks, self.lines = right, iter(marks), []

    def ask(self, line, timeout):
        self.lines.append(line)
        command, *words = line.split()
        if command == "mark":
            return next(self.marks)
        if command == "requests":
            return {"ms": [0.5] * int(words[0]), "right": self.right}
        return {"right": self.right} if command == "end" else {}

    def answer(self, timeout):
        return {"pid": 1, "kernel_ms": 5.0, "right": self.right}


ARGUMENTS = types.SimpleNamespace(
    timeout=1,
    gap=0,
    settle=0,
    window=0,
    requests=10,
    stops=2,
    parts=["delay"],
    kernels="driver",
    urgency="batch",
)


class Scenes(unittest.TestCase):
    def scene(self, **workers):
        found = {**mode_of(), "requests": {}, "rounds_per_second": {}, "kernels_per_second": {}}
        return stuck.Scene(workers, ARGUMENTS, found)

    def test_one_that_is_stopped_stands_still_and_goes_on(self):
        process = subprocess.Popen(["sleep", "60"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        state = pathlib.Path(f"/proc/{process.pid}/stat")
        scene = self.scene(steady=FakeWorker())
        scene.pids = {"steady": process.pid}
        with self.assertRaises(KeyError), scene.stopped("steady"):
            self.assertEqual(stuck.state_of(state.read_text()), "T")
            raise KeyError
        self.assertNotEqual(stuck.state_of(state.read_text()), "T")

    def test_a_name_does_not_hide_a_state(self):
        self.assertEqual(stuck.state_of("12 (a) T b) S 1 2"), "S")

    def test_the_delay_is_measured_alone_and_beside_both(self):
        marks = [{"done": done, "at": at} for done, at in ((0, 1), (20, 2), (20, 2), (30, 4))]
        workers = {
            "endless": FakeWorker(marks=marks),
            "steady": FakeWorker(),
            "small": FakeWorker(right=False),
        }
        scene = self.scene(**workers)
        with mock.patch.object(stuck.Scene, "stopped", lambda *_: contextlib.nullcontext()):
            scene.delay()
        self.assertEqual(list(scene.found["requests"]), ["alone", "endless", "stopped"])
        self.assertEqual(scene.found["requests"]["stopped"]["ms"], [0.5] * 10)
        self.assertEqual(scene.found["rounds_per_second"], {"alone": 20.0, "beside": 5.0})
        self.assertEqual(set(scene.found["wrong"]), {"small"})
        self.assertEqual(workers["endless"].lines, ["go", *["mark"] * 4, "end"])

    def test_programs_that_are_no_tenants_are_not_measured(self):
        serving = mock.Mock()
        serving.status.return_value = {"tenants": [{"name": "small"}]}
        self.scene(small=FakeWorker()).ready(serving)
        with self.assertRaisesRegex(WorkerFailed, "no tenants: steady"):
            self.scene(small=FakeWorker(), steady=FakeWorker()).ready(serving)

    def test_every_tenant_has_its_class_and_the_third_comes_only_for_the_turns(self):
        serving = mock.Mock(settings={})
        serving.run = lambda name, argv, urgency: [name, urgency, *argv[2:]]
        plan = stuck.plan(serving, ARGUMENTS)
        self.assertEqual(list(plan), ["endless", "steady", "small"])
        self.assertEqual(plan["small"][0], ["small", "latency", "driver", "--role", "small"])
        more = types.SimpleNamespace(kernels="cupy", parts=["turns"], urgency="normal")
        plan = stuck.plan(serving, more)
        self.assertEqual(plan["third"][0], ["third", "normal", "cupy", "--role", "steady"])
        self.assertEqual(plan["small"][0][1], "latency")


if __name__ == "__main__":
    unittest.main()
