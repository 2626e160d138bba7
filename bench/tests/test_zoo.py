"""The zoo: its registry, its programs' runs and verdicts, gathering and the table."""

import ast
import collections
import contextlib
import io
import json
import pathlib
import stat
import sys
import tempfile
import types
import unittest
import unittest.mock

import report
import zoo
import zoo_worker
from common import current, programs, zooing
from common.coordinator import NoCoordinator
from common.evictor import Evictor, refusal
from loads.zoo import SETTINGS, ZOO, registry

FOLDER = pathlib.Path(zoo_worker.__file__).parent / "loads" / "zoo"


def run(*digests, status="ok", figures=None, why=""):
    """A run whose steps gave these digests."""
    if status != "ok":
        return {"status": status, "wall_seconds": 1.0, "why": why}
    figures = figures or [1.0] * len(digests)
    said = {"steps": len(digests), "digest": " ".join(digests), "seconds": 0.5}
    said |= {"step_digests": list(digests), "figures": figures}
    return {"status": status, "wall_seconds": 1.0, "why": why, **said}


def row(name="mlp_sgd", verdict="equal", why="", **more):
    """A row of the result file."""
    found = {"name": name, "framework": ZOO[name].framework, "verdict": verdict, "why": why}
    found |= {"limit": ZOO[name].limit}
    if verdict not in ("not installed", "broken bare"):
        found |= {"bare_equal": verdict != "close", "bare_distance": 1e-6, "steps": 4}
        found |= {"bare_seconds": [3.0, 2.9]}
        found |= {"baton_seconds": 6.25, "evictions": 40, "switches": 39, "refused": {}}
        found |= {"bytes_in": 3_000_000_000, "peak_bytes": 2 << 30, "unmanaged_bytes": 1 << 20}
    return found | more


def result(*rows, date="2030-01-01"):
    """A result file."""
    machine = {"date": date, "gpus": [], "cpu": "c", "python": "3", "packages": {}}
    return {"kind": "zoo", "machine": machine, "every_ms": 50, "at_once": 4, "rows": list(rows)}


class Registry(unittest.TestCase):
    def test_there_are_at_least_sixty_programs_of_six_frameworks(self):
        self.assertGreaterEqual(len(ZOO), 60)
        frameworks = collections.Counter(entry.framework for entry in ZOO.values())
        expected = {"PyTorch", "transformers", "JAX", "CuPy", "Triton", "Numba"}
        self.assertEqual(set(frameworks), expected)

    def test_no_program_is_in_it_twice(self):
        places = collections.Counter(
            (entry.module, entry.function, entry.settings) for entry in ZOO.values()
        )
        self.assertEqual([place for place, count in places.items() if count > 1], [])
        with self.assertRaisesRegex(ValueError, "two programs are called a"):
            registry({"a": 1}, {"b": 2}, {"a": 3})

    def test_every_program_is_a_documented_function_of_the_device(self):
        functions = {}
        for path in FOLDER.glob("*.py"):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.FunctionDef):
                    functions[path.stem, node.name] = node
        for name, entry in ZOO.items():
            with self.subTest(name):
                node = functions[entry.module, entry.function]
                self.assertEqual([argument.arg for argument in node.args.args], ["device"])
                self.assertTrue(ast.get_docstring(node))

    def test_no_program_of_a_file_is_forgotten(self):
        known = {(entry.module, entry.function) for entry in ZOO.values()}
        for path in FOLDER.glob("*.py"):
            for node in ast.parse(path.read_text()).body:
                if not isinstance(node, ast.FunctionDef) or node.name.startswith("needs"):
                    continue
                takes = [argument.arg for argument in node.args.args]
                if takes == ["device"] and not node.args.kwarg:
                    used = (path.stem, node.name) in known or path.stem == "cupy_programs"
                    self.assertTrue(used, f"{path.stem}.{node.name}")

    def test_no_program_knows_of_baton_or_takes_managed_memory(self):
        for path in FOLDER.glob("*.py"):
            if path.name != "__init__.py":
                text = path.read_text().lower()
                for word in ("baton", "ld_preload", "malloc_managed", "mallocmanaged"):
                    self.assertNotIn(word, text, path.name)

    def test_multicast_is_off_for_all(self):
        self.assertEqual(SETTINGS["NCCL_NVLS_ENABLE"], "0")
        self.assertEqual(SETTINGS["TORCH_SYMM_MEM_DISABLE_MULTICAST"], "1")
        self.assertEqual(SETTINGS["NVSHMEM_DISABLE_NVLS"], "1")


class Verdicts(unittest.TestCase):
    same = [run("a", "b"), run("a", "b")]
    other = [run("a", "b", figures=[1.0, 2.0]), run("a", "c", figures=[1.0, 2.02])]

    def test_equal_outputs_of_an_evicted_program_are_equal(self):
        self.assertEqual(zooing.verdict(self.same, run("a", "b"), 9), ("equal", ""))

    def test_another_output_is_named_with_its_step(self):
        found = zooing.verdict(self.same, run("a", "x"), 9)
        self.assertEqual(found, ("DIFFERS", "first at step 1 of 2"))

    def test_a_program_that_differs_from_itself_may_differ_as_much_under_baton(self):
        near, far = run("a", "y", figures=[1.0, 2.1]), run("a", "z", figures=[1.0, 3.0])
        self.assertEqual(zooing.verdict(self.other, near, 9), ("close", ""))
        self.assertEqual(zooing.verdict(self.other, far, 9)[0], "DIFFERS")

    def test_where_kernels_are_chosen_by_time_a_tolerance_counts(self):
        near = run("a", "x", figures=[1.0, 1.01])
        self.assertEqual(zooing.verdict(self.same, near, 9)[0], "DIFFERS")
        self.assertEqual(zooing.verdict(self.same, near, 9, tolerance=0.02)[0], "close")

    def test_a_crash_and_a_hang_under_baton_are_told_apart(self):
        for status, word in (("failed", "crash"), ("timeout", "timeout"), ("absent", "crash")):
            found = zooing.verdict(self.same, run(status=status, why="so"), 9)
            self.assertEqual(found, (word, "so"))

    def test_what_does_not_work_bare_is_nobody_elses_fault(self):
        for runs in ([run(status="failed", why="so")], [run("a"), run(status="timeout", why="so")]):
            self.assertEqual(zooing.verdict(runs, None, 0), ("broken bare", "so"))

    def test_what_is_not_installed_has_not_passed(self):
        found = zooing.verdict([run(status="absent", why="not installed: numba")], None, 0)
        self.assertEqual(found, ("not installed", "not installed: numba"))
        self.assertNotIn(found[0], zooing.GOOD)

    def test_who_was_never_evicted_has_not_passed(self):
        self.assertEqual(zooing.verdict(self.same, run("a", "b"), 0)[0], "not evicted")

    def test_every_verdict_is_counted_once(self):
        words = [*zooing.GOOD, *zooing.SILENT, *zooing.BAD]
        self.assertEqual(len(words), len(set(words)))
        rows = [row(verdict="equal"), row(verdict="equal"), row(verdict="crash")]
        self.assertEqual(zooing.summary(rows), {"equal": 2, "crash": 1})


def steps():
    """A program that works for ever."""
    import itertools

    for n in itertools.count():
        yield [n, 2.0], [[n]]


try:
    import numpy
except ImportError:
    numpy = None


@unittest.skipUnless(numpy, "needs NumPy")
class Worker(unittest.TestCase):
    def test_a_program_takes_so_many_steps_and_repeats_itself(self):
        one, two = (zoo_worker.play(steps(), 6, None) for _ in range(2))
        self.assertEqual(one["steps"], 6)
        self.assertEqual(one["digest"], two["digest"])
        self.assertEqual(len(set(one["step_digests"])), 6)

    def test_a_program_for_so_long_takes_a_few_steps_at_least(self):
        found = zoo_worker.play(steps(), None, 0)
        self.assertEqual(found["steps"], zoo_worker.LEAST_STEPS)

    def test_what_is_not_finite_is_no_result(self):
        with self.assertRaisesRegex(ValueError, "step 0 .* not finite"):
            zoo_worker.play((one for one in [numpy.array([numpy.nan])]), 1, None)


class FakeCoordinator:
    """Evicts what it is told to, or says why not."""

    def __init__(self, answers=()):
        self.answers, self.asked, self.settings = list(answers), [], {}

    def evict(self, name, timeout):
        """Refuses first, as it was told."""
        self.asked.append(name)
        if self.answers:
            raise NoCoordinator(self.answers.pop(0))
        return 0.25

    def steer(self, verb, name, timeout):
        """Does as it is told."""
        self.asked.append(f"{verb} {name}")

    def run(self, name, argv):
        """As bare."""
        return argv


class Evicting(unittest.TestCase):
    def test_a_tenant_is_evicted_again_and_again_and_refusals_are_counted(self):
        coordinator = FakeCoordinator(["a: there is no program called a", "a is in use again"])
        with Evictor(coordinator, "a", 0.001, seed=1) as evictor:
            while evictor.done < 5:
                pass
        self.assertEqual(coordinator.asked[:6], ["suspend a", "a", "resume a"] * 2)
        self.assertEqual(coordinator.asked.count("suspend a"), coordinator.asked.count("resume a"))
        self.assertEqual(evictor.refused, {"absent": 1, "in use": 1})
        self.assertGreater(evictor.longest, 0)

    def test_pauses_are_random_and_the_same_for_the_same_seed(self):
        one, two, other = (
            [Evictor(None, name, 0.05, 1).random.expovariate(20) for _ in range(3)]
            for name in ("a", "a", "b")
        )
        self.assertEqual(one, two)
        self.assertNotEqual(one, other)

    def test_a_refusal_of_another_kind_has_a_word_too(self):
        self.assertEqual(refusal("something else"), "other")


class Runs(unittest.TestCase):
    """The runner, with a script that stands in for the programs."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.arguments = types.SimpleNamespace(
            device="cpu", seconds=1, timeout=20, every=5, seed=1, jobs=2, only=None, start=None
        )
        self.arguments.missing_in = []
        self.arguments.bare_from, self.arguments.bare_out = None, self.folder / "bare.json"

    def play(self, code):
        """Has all programs be this code."""
        path = self.folder / "program.py"
        path.write_text(f"#!{sys.executable}\n{code}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        self.enterContext(unittest.mock.patch.object(zoo, "WORKER", path))

    def test_the_first_bare_run_fixes_the_number_of_steps(self):
        said = (
            "'steps': 7 if '--seconds' in sys.argv else int(sys.argv[-1]), 'digest': 'x', "
            "'step_digests': ['x'], 'figures': [1.0], 'seconds': 1"
        )
        self.play("import json, sys\nprint('chatter')\nprint(json.dumps({" + said + "}))\n")
        runs = zoo.bare_runs("mlp_sgd", self.arguments, {}, zoo.Budget(60))
        self.assertEqual([one["steps"] for one in runs], [7, 7])
        serving = FakeCoordinator(), zoo.Watch(None)
        found = zoo.evicted_run("mlp_sgd", runs, self.arguments, serving, zoo.Budget(60))
        self.assertIn(found["verdict"], ("equal", "not evicted"))
        self.assertEqual(found["steps"], 7)
        self.assertEqual(len(zoo.shown(found)), len(zoo.HEADER))
        json.dumps(found)

    def test_a_program_that_fails_bare_is_not_run_on(self):
        self.play("raise SystemExit('no such thing')")
        runs = zoo.bare_runs("mlp_sgd", self.arguments, {}, zoo.Budget(60))
        self.assertEqual([one["status"] for one in runs], ["failed"])
        found = zoo.row_of("mlp_sgd", runs)
        self.assertEqual(found["verdict"], "broken bare")
        self.assertIn("no such thing", found["why"])
        self.assertEqual(len(zoo.shown(found)), len(zoo.HEADER))

    def test_a_missing_framework_is_not_installed(self):
        self.play(f"import sys\nsys.exit({programs.ABSENT})")
        runs = zoo.bare_runs("numba_atomics", self.arguments, {}, zoo.Budget(60))
        self.assertEqual(zoo.row_of("numba_atomics", runs)["verdict"], "not installed")

    def test_what_the_budget_ends_is_not_counted(self):
        self.play("import time\ntime.sleep(60)")
        self.assertIsNone(zoo.bare_runs("mlp_sgd", self.arguments, {}, zoo.Budget(1.5)))
        self.assertIsNone(zoo.bare_runs("mlp_sgd", self.arguments, {}, zoo.Budget(0)))

    def test_a_program_that_says_nothing_has_failed(self):
        self.play("pass")
        (one,) = zoo.bare_runs("mlp_sgd", self.arguments, {}, zoo.Budget(60))
        self.assertIn("printed no result", one["why"])

    def test_bare_runs_are_kept_and_used_again(self):
        self.arguments.bare_from = {"mlp_sgd": [run("a"), run("a")]}
        self.play("raise SystemExit('ran again')")
        with contextlib.redirect_stdout(io.StringIO()):
            found = zoo.run_bare(["mlp_sgd", "lbfgs"], self.arguments, None, zoo.Budget(60))
        self.assertEqual([len(found[name]) for name in ("mlp_sgd", "lbfgs")], [2, 1])
        kept = json.loads(self.arguments.bare_out.read_text())["programs"]
        self.assertEqual(kept, found)

    def test_programs_are_chosen_by_name_pattern_framework_and_what_is_missing(self):
        self.arguments.only = ["jax_s*", "Numba"]
        chosen = zoo.chosen(self.arguments)
        self.assertIn("jax_scan", chosen)
        self.assertTrue(all(name.startswith("jax_s") for name in chosen[:-3]))
        self.assertEqual({ZOO[name].framework for name in chosen[-3:]}, {"Numba"})
        self.arguments.missing_in = [result(row(chosen[0]))]
        self.assertEqual(zoo.chosen(self.arguments), chosen[1:])
        self.arguments.only, self.arguments.start = None, "numba_atomics"
        self.assertEqual(zoo.chosen(self.arguments), ["numba_atomics"])


class Watching(unittest.TestCase):
    def test_the_most_of_a_tenant_and_all_that_came_in_are_kept(self):
        tenant = {"name": "a", "unmanaged_bytes": 5, "peak_bytes": 9, "switches": 1}
        records = [{"n": n, "to": "a", "bytes_in": 10} for n in (1, 2)]
        statuses = [
            {"tenants": [tenant], "recent": records[:1]},
            {"tenants": [tenant | {"unmanaged_bytes": 3, "switches": 2}], "recent": records},
            None,
        ]
        watch = zoo.Watch(types.SimpleNamespace(try_status=lambda: statuses.pop(0)))
        for _ in range(3):
            watch.look()
        expected = {"unmanaged_bytes": 5, "peak_bytes": 9, "switches": 2, "bytes_in": 20}
        self.assertEqual(watch.of("a"), expected)
        self.assertEqual(watch.of("b"), dict.fromkeys(expected, 0))


class Results(unittest.TestCase):
    def test_of_a_row_that_ran_again_the_newest_counts_and_keeps_its_machine(self):
        old = result(row("mlp_sgd"), row("lbfgs"), date="2030-01-01")
        new = result(row("lbfgs", "crash"), date="2031-01-01")
        joined = current.joined("zoo", [new, old])
        found = [
            (one["machine"]["date"], each["name"], each["verdict"])
            for one in joined["runs"]
            for each in one["rows"]
        ]
        self.assertEqual(
            found, [("2030-01-01", "mlp_sgd", "equal"), ("2031-01-01", "lbfgs", "crash")]
        )

    def test_the_document_has_a_row_for_every_program_and_the_totals(self):
        runs = [
            result(
                row("mlp_sgd"),
                row("lbfgs", "close"),
                row("shared_tensors", "crash", "exit status 1: no | such\nthing"),
                row("numba_atomics", "not installed", "not installed: numba"),
            )
        ]
        said = report.document({"zoo": runs})
        self.assertIn("4 programs", said)
        self.assertIn("1 equal, 1 close, 1 crash, 1 not installed", said)
        self.assertIn("| mlp_sgd | PyTorch | equal | 40 | 39 | 3.0 | 2.00 | 0.00 |", said)
        self.assertIn("| numba_atomics | Numba | not installed | – |", said)
        self.assertIn("`shared_tensors`: memory is not shared", said)


if __name__ == "__main__":
    unittest.main()
