#!/usr/bin/env python3
"""Measures others' losses to programs that are stopped (SIGSTOP) or killed while memory is short.

    python3 bench/stopped.py --baton target/release --out stopped.json

Parts, each by itself with `--parts`:

    stops             trainings and servers of PyTorch whose memory together is twice the arena. One
                      of them is stopped, at random times, for a random while (0 to 2 s), again and
                      again (`--stops`). How long did a step of the others take at most?
    in_place          a program with a kernel that waits for it, whose driver does not let Baton's
                      thread unmap memory (it is held there by ptrace): it goes on in the very
                      frames that it has mapped, which others had meanwhile (`--in-place` times)
    kill              SIGKILL of a program that is stopped, and whose memory others have (`--kill`)
    coordinator_dies  SIGKILL of the coordinator while it is so (`--coordinator-dies`)
    programs          C programs of `tests/c/sharing`, stopped at random (`--program-stops`; without
                      the folder `c-programs` beside `baton`, or `--programs`, this is left out)

Everything that any program computes is compared with bare programs that make as many steps: each
step's outputs, and all weights or bytes at the end. When the coordinator has died, a program may
end and say why, or go on; nothing that it computes may differ. The exit status is 0 if all is
equal, nothing hung, and others had memory of those who were stopped wherever that is the point.
"""

import argparse
import contextlib
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from common import machine, programs, table
from common.coordinator import Coordinator, Driver, Install, NoCoordinator, parse_bytes
from common.holding import Holding
from common.stats import figures
from common.workers import WorkerFailed, together
from stopped_work import LOADS, PIECES, WARM_UP
from stuck import wait_until_stopped

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
# Beside what a library counts: others allocate a little themselves, and extents are round.
ROOM = 256 * MIB
PARTS = ["stops", "in_place", "kill", "coordinator_dies", "programs"]
# Loads, their classes and the gaps after their steps, in seconds.
LOADED = [
    "resnet152_train:batch:0",
    "adamw:normal:0",
    "bert_infer:normal:0.02",
    "llama_1b:latency:0.05",
]
CLASSES = ["latency", "normal", "batch"]
# Programs of the other parts: one that is stopped, and others with the seeds of what they hold.
VICTIM, OTHERS = "victim", {"other": 2, "third": 3}
# Programs of tests/c/sharing whose last line is what they computed.
STEADY = {
    "fill_and_check": ["--rounds", "150", "--check", "10"],
    "hidden": ["--rounds", "60", "--gap-ms", "2"],
    "streams": ["--rounds", "60", "--gap-ms", "2"],
    "capture": ["--rounds", "80"],
}
# The log's words for an unresponsive program, and for one that is inside the driver.
LEFT_OUT, INSIDE = "does not answer: others go on", "cannot unmap memory before its work goes on"

HEADER = [
    "program",
    "class",
    "steps",
    "stops",
    "P50 ms",
    "most ms",
    "beside stopped: n",
    "P99 ms",
    "most ms",
    "result",
]
PART_HEADER = [
    "part",
    "times",
    "memory was gone",
    "longest step of others, ms",
    "went on",
    "ended",
    "result",
]


def longest(values):
    """The largest; None of none."""
    return max(values, default=None)


def shown(value):
    """A figure for a table."""
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)


def meets(step, spans):
    """True if a step, (seconds, milliseconds), was under way in one of these (begin, end)."""
    began, ms = step
    return any(began < end and began + ms / 1e3 > begin for begin, end in spans)


def beside(told, spans, own=()):
    """Milliseconds of the steps that were under way in these spans; not of those in its `own`."""
    steps = zip(told["began"], told["ms"])
    return [step[1] for step in steps if meets(step, spans) and not meets(step, own)]


def first_difference(one, other):
    """Number of the first step after which two differ; None if none does."""
    pairs = enumerate(zip(one, other))
    return next((i for i, (a, b) in pairs if a != b), None)


class Tenants:
    """Workers and what is known of them."""

    def __init__(self, workers, timeout):
        self.workers, self.timeout = dict(workers), timeout
        self.pids, self.bytes = {}, {}
        for name, worker in workers.items():
            self.join(name, worker)

    def join(self, name, worker):
        """One more, with its first answer."""
        self.workers[name] = worker
        answer = worker.answer(self.timeout)
        self.pids[name], self.bytes[name] = answer["pid"], answer["bytes"]

    def ask(self, name, line):
        """One answer."""
        return self.workers[name].ask(line, self.timeout)

    def all(self, line):
        """The answers of all, at once."""
        for worker in self.workers.values():
            worker.send(line)
        return {name: worker.answer(self.timeout) for name, worker in self.workers.items()}

    @contextlib.contextmanager
    def stopped(self, name):
        """It is stopped meanwhile, if it lives."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pids[name], signal.SIGSTOP)
            wait_until_stopped(self.pids[name])
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pids[name], signal.SIGCONT)


class Work:
    """Command lines of workers, bare and as tenants."""

    def __init__(self, arguments, driver):
        self.arguments, self.driver = arguments, driver

    def argv(self, load, *words):
        """One worker."""
        arguments = self.arguments
        argv = [sys.executable, str(HERE / "stopped_work.py"), load, "--device", arguments.device]
        return [*argv, "--size", arguments.size, *map(str, words)]

    def pieces(self, seed, megabytes=None):
        """One with pieces of memory; of so much, if another size is meant."""
        arguments = self.arguments
        sizes = ["--megabytes", megabytes or arguments.megabytes, "--piece", arguments.piece]
        return self.argv(PIECES, *sizes, "--seed", seed)

    @contextlib.contextmanager
    def bare(self, plan, folder):
        """Workers of a plan {name: argv} without Baton."""
        place = pathlib.Path(tempfile.mkdtemp(dir=folder))
        settings = {**programs.private_caches(place), **self.driver.bare(place)}
        with together({name: (argv, settings) for name, argv in plan.items()}, place) as workers:
            yield Tenants(workers, self.arguments.timeout)

    @contextlib.contextmanager
    def serving(self, plan, folder, arena, pool, options=()):
        """A coordinator, and workers of a plan {name: (argv, class)} as its tenants."""
        place = pathlib.Path(tempfile.mkdtemp(dir=folder))
        more = [*self.arguments.serve.split(), *options]
        with Coordinator(self.driver, arena, pool, more=more) as serving:
            settings = {**programs.private_caches(place), **serving.settings}
            commands = {
                name: (serving.run(name, argv, urgency), settings)
                for name, (argv, urgency) in plan.items()
            }
            with together(commands, place) as workers:
                try:
                    yield serving, Tenants(workers, self.arguments.timeout)
                except WorkerFailed as failure:
                    said = serving.said()
                    raise WorkerFailed(f"{failure}\nThe coordinator said: {said}") from None


def counts(serving):
    """The figures of its log and its counters."""
    log = serving.log.read_text(errors="replace")
    status = serving.try_status() or {}
    counters = {
        name: status.get(name) for name in ("switches", "preemptions", "bytes_in", "bytes_out")
    }
    return {"left_out": log.count(LEFT_OUT), "inside": log.count(INSIDE), **counters}


def bare_digests(work, seed, steps, folder, megabytes=None):
    """The results of so many steps of `pieces` without Baton."""
    with work.bare({PIECES: work.pieces(seed, megabytes)}, folder) as tenants:
        tenants.ask(PIECES, f"steps {steps}")
        return tenants.ask(PIECES, "told")["digests"]


def compared(name, urgency, told, want, calms, times):
    """What a program's row has in any measurement: its steps, of which some took `times` and others
    were in these (begin, end), beside those of a bare program.
    """
    return {
        "name": name,
        "class": urgency,
        "steps": len(told["ms"]),
        "p50_ms": statistics.median(told["ms"]),
        "calm_max_ms": longest(beside(told, calms)),
        "beside": figures(times) if times else None,
        "differs_at_step": first_difference(told["digests"], want["digests"]),
    }


def cells(row):
    """The last cells of a program's row."""
    times = row["beside"] or {}
    return [
        shown(row["p50_ms"]),
        shown(row["calm_max_ms"]),
        *(shown(times.get(name)) for name in ("n", "p99_ms", "max_ms")),
        "equal" if row["equal"] else f"DIFFERS at step {row['differs_at_step']}",
    ]


def stops(work, found, folder, dice):
    """Stops at random, and a row for each program."""
    arguments = work.arguments
    loads = {}
    for text in arguments.loads:
        name, urgency, gap = text.split(":")
        loads[name] = urgency, float(gap)
    plan = {name: work.argv(name, "--gap", gap) for name, (_, gap) in loads.items()}
    with work.bare(plan, folder) as bare:
        sizes = list(bare.bytes.values())
        arena = (
            parse_bytes(arguments.arena)
            if arguments.arena
            else max(sum(sizes) // 2, int(1.1 * max(sizes)) + ROOM)
        )
        found["memory_bytes"], found["arena_bytes"] = sum(sizes), arena
        pool = int(1.3 * sum(sizes)) + 2 * ROOM
        shared = {name: (plan[name], urgency) for name, (urgency, _) in loads.items()}
        with work.serving(shared, folder, arena, pool) as (serving, tenants):
            spans = {name: [] for name in loads}
            for name in loads:
                tenants.ask(name, "go")
            began = time.perf_counter()
            time.sleep(arguments.settle)
            calm = began, time.perf_counter()
            for _ in range(arguments.stops):
                time.sleep(dice.uniform(0, 0.3))
                name = dice.choice(list(loads))
                start = time.perf_counter()
                with tenants.stopped(name):
                    # Most are short, some are 2 s long.
                    time.sleep(2 * dice.random() ** 2)
                spans[name].append((start, time.perf_counter()))
            tenants.all("end")
            found["coordinator"] = counts(serving)
            told, ends = tenants.all("told"), tenants.all("finish")
        for name in loads:
            bare.workers[name].send(f"steps {len(told[name]['ms']) - WARM_UP}")
        for name in loads:
            bare.workers[name].answer(10 * arguments.timeout)
        want, want_ends = bare.all("told"), bare.all("finish")
    for name, (urgency, _) in loads.items():
        others = [span for other, its in spans.items() if other != name for span in its]
        equal = told[name]["digests"] == want[name]["digests"] and ends[name] == want_ends[name]
        # A step in which it was stopped itself says nothing about waiting for others.
        times = beside(told[name], others, spans[name])
        row = compared(name, urgency, told[name], want[name], [calm], times)
        more = {"bytes": tenants.bytes[name], "stops": len(spans[name]), "equal": equal}
        found["rows"].append(row | more)


def go_on(tenants, steps, *names):
    """So many steps of each of these, one after the other."""
    for name in names:
        tenants.ask(name, f"steps {steps}")


def is_gone(serving):
    """True if some of the victim's memory is not on the GPU."""
    row = serving.tenant(VICTIM)
    return bool(row and row["evicted_bytes"] > 0)


def check(work, found, folder, told, seeds):
    """Compares what the programs in `seeds` computed; notes how long the steps of others took."""
    for name, seed in seeds.items():
        want = bare_digests(work, seed, len(told[name]["ms"]) - WARM_UP, folder)
        at = first_difference(told[name]["digests"], want)
        if at is not None:
            found["wrong"].append(f"{name}: differs at step {at}")
        if name != VICTIM:
            found["step_ms"] += told[name]["ms"][WARM_UP:]


def small_arena(arguments):
    """Room for one and a bit of programs with pieces."""
    size = arguments.megabytes * MIB
    return int(1.25 * size) + arguments.piece * MIB


def in_place(work, found, folder, dice):
    """The thread that unmaps is inside the driver, whenever memory is to go."""
    arguments = work.arguments
    seeds = {VICTIM: 1, "other": 2}
    plan = {name: (work.pieces(seed), "normal") for name, seed in seeds.items()}
    pool = 4 * arguments.megabytes * MIB
    with work.serving(plan, folder, small_arena(arguments), pool) as (serving, tenants):
        # From the first time on that it is paused there is such a thread.
        tenants.ask(VICTIM, "stick")
        go_on(tenants, 1, "other")
        tenants.ask(VICTIM, "unstick")
        for _ in range(arguments.in_place):
            go_on(tenants, 1, VICTIM)
            tenants.ask(VICTIM, "stick")
            before = counts(serving)["inside"]
            with Holding(tenants.pids[VICTIM], "baton-probe") as holding:
                time.sleep(dice.uniform(0, 0.1))
                go_on(tenants, 2, "other")
                lent = counts(serving)["inside"] > before
                is_held = holding.inside
                # Its kernel goes on while that thread does not.
                right = tenants.ask(VICTIM, "release")["right"]
            # It never unmapped anything: all that it had was lent, and returned behind its back.
            found["gone"] += lent and is_held
            if not (right and tenants.ask(VICTIM, "unstick")["right"]):
                found["wrong"].append("victim: its kernel does not end")
                found["said"].append(f"{serving.tenant(VICTIM)}\n{serving.said()}")
            found["times"] += 1
        go_on(tenants, 2, VICTIM)
        found["coordinator"] = counts(serving)
        told = tenants.all("told")
    check(work, found, folder, told, seeds)


def at_work(tenants, dice):
    """Brings the victim to where it is to be met; the command that ends that."""
    if dice.random() < 0.5:
        tenants.ask(VICTIM, "stick")
        return "unstick"
    tenants.ask(VICTIM, "go")
    time.sleep(dice.uniform(0, 0.1))
    return "end"


def others_take_it(serving, tenants, found, dice):
    """The victim was stopped at work. The others go on, with memory of its."""
    time.sleep(dice.uniform(0, 0.2))
    go_on(tenants, 1, *OTHERS)
    found["gone"] += is_gone(serving)


def kill(work, found, folder, dice):
    """Killed while others have its memory."""
    arguments = work.arguments
    plan = {name: (work.pieces(seed), "normal") for name, seed in OTHERS.items()}
    pool = 8 * arguments.megabytes * MIB
    with work.serving(plan, folder, small_arena(arguments), pool) as (serving, tenants):
        for _ in range(arguments.kill):
            argv = serving.run(VICTIM, work.pieces(1), dice.choice(CLASSES))
            with together({VICTIM: (argv, serving.settings)}, folder) as more:
                tenants.join(VICTIM, more[VICTIM])
                at_work(tenants, dice)
                os.kill(tenants.pids[VICTIM], signal.SIGSTOP)
                others_take_it(serving, tenants, found, dice)
                os.kill(tenants.pids[VICTIM], signal.SIGKILL)
                del tenants.workers[VICTIM]
                go_on(tenants, 1, *OTHERS)
            found["times"] += 1
        found["coordinator"] = counts(serving)
        told = tenants.all("told")
    check(work, found, folder, told, OTHERS)


def went_on(tenants, found, name, *lines):
    """It goes on, and what it computed; or ends and says why: then None."""
    worker = tenants.workers[name]
    try:
        for line in lines:
            tenants.ask(name, line)
        told = tenants.ask(name, "told")
    except WorkerFailed:
        if worker.process.poll() is None:
            # One that only closes its pipe may take a moment; any other silent one hangs.
            worker.process.wait(10)
        found["ended"] += 1
        words = worker.last_words().strip().splitlines()
        found["said"].append(f"{name}: {words[-1] if words else 'nothing'}")
        return None
    found["went_on"] += 1
    return told


def coordinator_dies(work, found, folder, dice):
    """The coordinator is killed while others have memory of one that is stopped; none follows."""
    arguments = work.arguments
    seeds = {VICTIM: 1, **OTHERS}
    plan = {name: (work.pieces(seed), "normal") for name, seed in seeds.items()}
    pool = 4 * arguments.megabytes * MIB
    all_told = {name: [] for name in plan}
    for _ in range(arguments.coordinator_dies):
        with work.serving(plan, folder, small_arena(arguments), pool, ["--no-keeper"]) as (
            serving,
            tenants,
        ):
            end = at_work(tenants, dice)
            with tenants.stopped(VICTIM):
                others_take_it(serving, tenants, found, dice)
                serving.process.kill()
                serving.process.wait()
                for name in OTHERS:
                    all_told[name].append(went_on(tenants, found, name, "steps 2"))
            all_told[VICTIM].append(went_on(tenants, found, VICTIM, end, "steps 1"))
        found["times"] += 1
    for name, told in all_told.items():
        # The longest of them holds what each of them has to say.
        told = [one for one in told if one]
        for one in [max(told, key=lambda one: len(one["ms"]))] if told else []:
            check(work, found, folder, {name: one}, {name: seeds[name]})
            wrong = [
                at
                for at, other in enumerate(told)
                if first_difference(other["digests"], one["digests"]) is not None
            ]
            found["wrong"] += [f"{name}: differs, time {at}" for at in wrong]


def c_programs(work, found, folder, dice):
    """C programs that are stopped at random."""
    arguments = work.arguments
    size = arguments.program_megabytes
    words = {name: [*more, "--megabytes", str(size)] for name, more in STEADY.items()}
    argv = {name: [str(arguments.programs / name), *more] for name, more in words.items()}
    settings = work.driver.bare(folder)
    bare = {
        name: programs.run(one, settings, arguments.timeout).stdout for name, one in argv.items()
    }
    arena = (size * len(STEADY) // 2 + 16) * MIB
    with Coordinator(work.driver, arena, 8 * size * MIB) as serving:
        while found["times"] < arguments.program_stops:
            running = {}
            for name in STEADY:
                log = pathlib.Path(folder, name).open("w+")
                line = serving.run(name, argv[name], dice.choice(CLASSES))
                environment = {**os.environ, **serving.settings}
                process = subprocess.Popen(
                    line, stdout=log, stderr=subprocess.STDOUT, env=environment
                )
                running[name] = process, log
            ends = time.monotonic() + arguments.timeout
            while alive := [one for one, _ in running.values() if one.poll() is None]:
                if time.monotonic() > ends:
                    found["wrong"].append(f"{len(alive)} programs hang")
                    for one in alive:
                        one.kill()
                        one.wait()
                    break
                time.sleep(dice.uniform(0, 0.2))
                if found["times"] < arguments.program_stops:
                    process = dice.choice(alive)
                    process.send_signal(signal.SIGSTOP)
                    time.sleep(2 * dice.random() ** 2)
                    process.send_signal(signal.SIGCONT)
                    found["times"] += 1
            for name, (_, log) in running.items():
                log.seek(0)
                said, want = log.read().splitlines()[-1:], bare[name].splitlines()[-1:]
                log.close()
                if said != want or not want:
                    found["wrong"].append(f"{name}: {said} instead of {want}")
        found["coordinator"] = counts(serving)


RUN = {
    "stops": stops,
    "in_place": in_place,
    "kill": kill,
    "coordinator_dies": coordinator_dies,
    "programs": c_programs,
}


def part_result():
    """A part's findings, with nothing in them."""
    return {
        "times": 0,
        "gone": 0,
        "went_on": 0,
        "ended": 0,
        "said": [],
        "step_ms": [],
        "rows": [],
        "wrong": [],
        "coordinator": None,
        "seconds": 0,
    }


def shortcomings(result):
    """The faults and the missing parts of a result, in words."""
    wrong = list(result["failures"])
    for part, one in result["parts"].items():
        wrong += [f"{part}: {what}" for what in one["wrong"]]
        wrong += [f"{part}: {row['name']} differs" for row in one["rows"] if not row["equal"]]
        if part in ("in_place", "kill", "coordinator_dies") and not one["gone"]:
            wrong.append(f"{part}: nobody ever had memory of the one that was stopped")
    return wrong


def program_rows(one):
    """A row for each program of a part that has them."""
    return [
        [*(row[name] for name in ("name", "class", "steps", "stops")), *cells(row)]
        for row in one["rows"]
    ]


def part_row(part, one):
    """The row of a part without."""
    wrong = f"{len(one['wrong'])} WRONG" if one["wrong"] else "equal"
    figures_of = [one["times"], one["gone"], shown(longest(one["step_ms"])), one["went_on"]]
    return [part, *figures_of, one["ended"], wrong]


def tables(parts):
    """The rows of both, of {part: findings}."""
    rows = [row for one in parts.values() for row in program_rows(one)]
    return rows, [part_row(part, one) for part, one in parts.items() if not one["rows"]]


def worker_options(parser):
    """Options that `Work` needs beside the sizes of programs."""
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--size", default="full", choices=["full", "small"])
    parser.add_argument("--serve", default="", help="more options for `baton serve`, in one word")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for any one answer")
    parser.add_argument("--driver", help="if it is to be another: `sim`, or a file")


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", type=pathlib.Path, required=True, help="the folder of `baton`")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("stopped.json"))
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--stops", type=int, default=100)
    parser.add_argument("--in-place", type=int, default=20)
    parser.add_argument("--kill", type=int, default=20)
    parser.add_argument("--coordinator-dies", type=int, default=20)
    parser.add_argument("--program-stops", type=int, default=20)
    parser.add_argument(
        "--loads", nargs="+", default=LOADED, help="LOAD:CLASS:GAP of those in `stops`"
    )
    parser.add_argument("--arena", help="in `stops`; else half of what the programs have")
    parser.add_argument("--settle", type=float, default=5, help="seconds before the first stop")
    parser.add_argument(
        "--megabytes", type=int, default=1024, help="of each program in other parts"
    )
    parser.add_argument("--piece", type=int, default=16, help="MiB of a piece of these")
    parser.add_argument("--programs", type=pathlib.Path, help="the folder of the C programs")
    parser.add_argument("--program-megabytes", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1, help="of all that is by chance")
    worker_options(parser)
    arguments = parser.parse_args()
    Install.check(arguments.baton, parser)
    unknown = [one for one in arguments.loads if one.split(":")[0] not in LOADS]
    if unknown:
        parser.error(f"no such loads: {' '.join(unknown)}")
    if arguments.programs is None:
        arguments.programs = arguments.baton / "c-programs" / "sharing"
    if not arguments.programs.is_dir():
        arguments.parts = [part for part in arguments.parts if part != "programs"]
    return arguments


def main():
    """Runs, writes, prints."""
    arguments = parse()
    programs.end_tidily()
    driver = Driver(Install.of(arguments.baton), arguments.driver)
    result = {
        "kind": "stopped",
        "machine": machine.describe(),
        "seed": arguments.seed,
        "parts": {},
        "failures": [],
    }
    work = Work(arguments, driver)
    for part in arguments.parts:
        found = result["parts"][part] = part_result()
        started = time.monotonic()
        # Each part by itself is what it is beside the others.
        dice = random.Random(f"{arguments.seed} {part}")
        with tempfile.TemporaryDirectory(prefix="stopped-", ignore_cleanup_errors=True) as folder:
            try:
                RUN[part](work, found, folder, dice)
            except (WorkerFailed, NoCoordinator, OSError) as failure:
                result["failures"].append(f"{part}: {machine.scrub(str(failure))}")
        found["seconds"] = round(time.monotonic() - started, 1)
        print(f"{part}: {found['seconds']} s", file=sys.stderr, flush=True)
        machine.write_json(arguments.out, result)
    shown_tables = zip((HEADER, PART_HEADER), tables(result["parts"]))
    print("\n\n".join(table.text(header, rows) for header, rows in shown_tables if rows))
    wrong = shortcomings(result)
    print("\n".join(["", *(wrong or ["all equal, nothing hung"])]))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
