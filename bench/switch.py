#!/usr/bin/env python3
"""Measures how soon a model answers whose memory was taken away while another one trains.

    python3 bench/switch.py --baton target/release --out switch.json

Three parts, each selectable, each with a coordinator of its own:

  latency    A training has the GPU and fills the arena; a model server is evicted by `baton evict`
             and gets a request. Time from the input on the host to the outputs on the host, against
             the same server when it is resident and the GPU idle, and against copying the model's
             bytes. Variants are the coordinator's ways to bring memory in, and what users have
             today: the driver's checkpoint API, and a new process for every request.
  training   What of the training's speed is left when requests come every so many seconds.
  equality   Loads that reach memory in different ways, evicted before every request: outputs
             against two bare runs, bit for bit. Freed and evicted memory is filled with a pattern.

With `--beside kernel`, a program that runs kernels of about 100 ms is in the training's place, for
`latency` only; the question is then how soon after the request the server's first launch comes.

Results are written after every row, so that a run cut short is not lost; `report.py` makes one
table of several files. The exit status is 0 if all outputs are equal and the limits hold.
"""

import argparse
import contextlib
import json
import pathlib
import shlex
import sys
import tempfile
import time

from common import machine, programs, stats, switching, table
from common.coordinator import Coordinator, Driver, Install, NoCoordinator, parse_bytes
from common.scene import TRAINER, Scene, started
from common.switching import BESIDE, KERNEL, READY, SCENES, TRAINING, USUAL, VARIANTS, WATCHED
from common.watching import Viewers
from common.workers import Worker, WorkerFailed
from loads import ENVIRONMENT, SERVED, TRAINED
from loads.service import INPUTS

HERE = pathlib.Path(__file__).resolve().parent
GIB = 1 << 30
PARTS = ["latency", "training", "equality"]
MODELS = ["resnet152", "inception_v3", "bert", "llama_1b", "llama_7b"]
LOADS = [*MODELS, "adamw", "graph", "compiled", "linalg", "attention"]
# About what each has on the GPU, for the size of the host pool.
EXPECTED = {"llama_1b": 3 * GIB, "llama_7b": 15 * GIB, "llama_7b_segments": 15 * GIB}
EXPECTED |= {"llama_7b_segments_masked": 15 * GIB, "jax_7b": 20 * GIB, "adamw": 4 * GIB}
OTHERS = GIB
FAILURES = (WorkerFailed, NoCoordinator)


class OutOfTime(RuntimeError):
    """The run's time is over; what is missing belongs to another run."""


class Run:
    """One run: the arguments, the result so far, and the time."""

    def __init__(self, arguments):
        self.arguments = arguments
        self.driver = Driver(Install.of(arguments.baton), arguments.driver, arguments.sim_memory)
        self.shim = self.driver.install.shim.name
        self.deadline = time.monotonic() + arguments.limit_seconds
        # The first answer of each model, for all variants.
        self.references = {}
        self.trainer = arguments.trainer or switching.BESIDE[arguments.beside]
        self.gbps = None
        self.result = {
            "kind": "switch",
            "machine": machine.describe(),
            "repeat": arguments.repeat,
            "arena": arguments.arena,
            "beside": arguments.beside,
            "torch": None,
            "rows": [],
            "training": [],
            "equality": [],
            "failures": [],
            "unfinished": None,
        }

    def save(self):
        """Writes what there is."""
        machine.write_json(self.arguments.out, self.result)

    def add(self, kind, row):
        """Another row."""
        self.result[kind].append(row)
        self.save()

    def failed(self, what, failure):
        """Something that gives no row."""
        told(f"{what} failed: {failure}")
        self.result["failures"].append(f"{what}: {machine.scrub(str(failure))}")
        self.save()

    @contextlib.contextmanager
    def kept_going(self, what):
        """A failure within is noted, and the run goes on."""
        try:
            yield
        except FAILURES as failure:
            self.failed(what, failure)

    def need(self, seconds, what):
        """OutOfTime if less is left."""
        if time.monotonic() + seconds > self.deadline:
            raise OutOfTime(f"{what} does not fit into {self.arguments.limit_seconds:g} s")

    def in_time(self, numbers):
        """Those of the numbers that come up while there is time."""
        for number in numbers:
            if time.monotonic() > self.deadline:
                return
            yield number

    def label(self, model, variant):
        """The name of a row of the coordinator's variants."""
        return switching.label(model, variant, self.arguments.beside)

    def command(self, script, name, *more):
        """The command line of a worker."""
        argv = [sys.executable, str(HERE / script), name, "--watch", self.shim]
        return [*argv, "--device", self.arguments.device, "--size", self.arguments.size, *more]

    def server(self, model, warm=2 * INPUTS):
        """The command line of a model's server."""
        return self.command("switch_server.py", model, "--warm", str(warm))

    def row(self, model, variant, samples, more):
        """A row, with the outputs compared to the model's first ones."""
        seen = switching.digests(samples)
        reference = self.references.setdefault(model, {})
        for number, ways in seen.items():
            reference.setdefault(number, ways[:1])
        equal = switching.agrees(seen, reference)
        row = {"model": model, "variant": variant, "equal": equal, "digests": seen, **more}
        told(
            f"{model}, {variant}: {switching.figure(row['p50_ms'], 2)} ms, "
            f"at most {switching.figure(row['max_ms'], 2)}, {'equal' if equal else 'DIFFERENT'}"
        )
        self.add("rows", row)
        return row


def pool_for(names, arena):
    """A host pool that keeps a copy of all servers, and of what they push out of the arena."""
    return int(1.2 * sum(EXPECTED.get(name, OTHERS) for name in names)) + arena + GIB


@contextlib.contextmanager
def scene(run, names, options, warm=2 * INPUTS, watched=False):
    """(scene, first answers): servers under one coordinator; a training fills the arena."""
    arguments = run.arguments
    pool = arguments.host_pool or pool_for(names, parse_bytes(arguments.arena))
    # As if others had needed the frames meanwhile.
    options = [*options, "--no-keep", *arguments.serve]
    serving = Coordinator(run.driver, arguments.arena, pool, more=options)
    with serving, tempfile.TemporaryDirectory(prefix="switch-") as folder:
        settings = {**programs.private_caches(folder), **serving.settings}
        argv = run.command("switch_train.py", run.trainer)
        plan = {TRAINER: (serving.run(TRAINER, argv, "batch"), settings)}
        for name in names:
            own = {**settings, **ENVIRONMENT.get(name, {})}
            plan[name] = (serving.run(name, run.server(name, warm), "latency"), own)
        with started(plan, folder, arguments.timeout, run.shim) as (workers, answers, failures):
            for name, failure in failures.items():
                run.failed(name, failure)
            if TRAINER not in workers:
                raise WorkerFailed("without a training there is nothing to interrupt")
            one = Scene(serving, workers, arguments.timeout)
            told(f"the training has {one.fill() / GIB:.2f} GiB")
            try:
                with Viewers(serving) if watched else contextlib.nullcontext():
                    yield one, answers
            except WorkerFailed as failure:
                raise WorkerFailed(f"{failure}\nThe coordinator said: {serving.said()}") from None


def numbers_of(run):
    """Numbers of requests: warm-ups, and those that count."""
    return range(run.arguments.warmup), range(run.arguments.repeat)


def sampled(run, take):
    """The samples that `take(input)` gives, after warm-ups, as many as there is time for."""
    warmup, repeat = numbers_of(run)
    for number in run.in_time(warmup):
        take(number % INPUTS)
    return [take(number % INPUTS) for number in run.in_time(repeat)]


def rested_and_evicted(one, model, number):
    """A request while the training rests, and one to the evicted server while it runs.

    Both come after a rest: a processor that has done something else meanwhile is slower at first,
    wherever memory is.
    """
    rested = one.rested_request(model, number)
    one.ask(TRAINER, "go")
    sample = one.evicted_request(model, number)
    one.ask(TRAINER, "hold")
    return {**sample, "rested": rested}


def latency_of(run, variant, one, model, answer):
    """The rows of one model in one scene: ready, and evicted."""
    run.need(15, f"{model}, {variant}")
    one.ask(TRAINER, "hold")
    samples = sampled(run, lambda number: one.request(model, number))
    memory = {
        "parameter_bytes": answer["parameter_bytes"],
        "reserved_bytes": one.ask(model, "memory")["reserved_bytes"],
        "tenant_bytes": one.tenant(one.serving.status(), model)["bytes"],
    }
    neighbour = {"beside": run.arguments.beside}
    more = {"scene": variant, **neighbour, **memory, **switching.times(samples)}
    ready = run.row(model, READY, samples, more)
    samples = sampled(run, lambda number: rested_and_evicted(one, model, number))
    row = switching.evicted_row(samples, ready, memory, run.gbps)
    options = [*SCENES[variant], *run.arguments.serve]
    answers = [*samples, *(sample["rested"] for sample in samples)]
    run.row(model, variant, answers, {"options": options, **neighbour, **row})


def latency(run):
    """The coordinator's variants, then what users have today."""
    for variant in run.arguments.variants:
        if variant in SCENES:
            run.need(60 if run.arguments.device == "cuda" else 0, variant)
            with run.kept_going(variant):
                watched = variant == WATCHED
                made = scene(run, run.arguments.models, SCENES[variant], watched=watched)
                with made as (one, answers):
                    for model in run.arguments.models:
                        if model in one.workers:
                            with run.kept_going(run.label(model, variant)):
                                latency_of(run, variant, one, model, answers[model])
    for model in run.arguments.models:
        for variant, measure in (("checkpoint", checkpoint), ("new process", new_process)):
            if variant in run.arguments.variants:
                run.need(30 if run.arguments.device == "cuda" else 0, f"{model}, {variant}")
                with run.kept_going(f"{model}, {variant}"):
                    measure(run, model)


@contextlib.contextmanager
def bare(run, names, warm):
    """(workers, first answers) of servers without Baton."""
    with tempfile.TemporaryDirectory(prefix="bare-") as folder:
        settings = {**programs.private_caches(folder), **run.driver.bare(folder)}
        own = {name: {**settings, **ENVIRONMENT.get(name, {})} for name in names}
        plan = {name: (run.server(name, warm), own[name]) for name in names}
        limits = (run.arguments.timeout, run.shim, False)
        with started(plan, folder, *limits) as (workers, answers, failures):
            for name, failure in failures.items():
                run.failed(f"{name}, bare", failure)
            yield workers, answers


def checkpoint(run, model):
    """Suspending and resuming a bare server with the GPU to itself, and the request after that."""
    timeout = run.arguments.timeout
    with bare(run, [model], 2 * INPUTS) as (workers, _), tempfile.TemporaryDirectory() as folder:
        if not workers:
            return
        script = [sys.executable, str(HERE / "switch_checkpoint.py")]
        pid = str(workers[model].process.pid)
        plan = {"checkpoint": ([*script, pid], run.driver.bare(folder))}
        with started(plan, folder, timeout) as (others, _, failures):
            if failures:
                raise WorkerFailed(failures["checkpoint"])

            def move(command):
                answer = others["checkpoint"].ask(command, timeout)
                if "error" in answer:
                    raise WorkerFailed(f"{answer['call']} answered {answer['error']}")
                return answer["ms"]

            def suspended_request(number):
                suspend = move("suspend")
                resume = move("resume")
                answer = workers[model].ask(f"request {number}", timeout)
                ms = sum(resume.values()) + answer["ms"]
                return {**answer, "input": number, "ms": ms, "suspend": suspend, "resume": resume}

            samples = []
            for number in run.in_time(range(run.arguments.checkpoint_repeat + 1)):
                samples.append(suspended_request(number % INPUTS))
    # The first one is a warm-up.
    samples = samples[1:]
    more = {
        f"{way}_ms": stats.median([sum(sample[way].values()) for sample in samples])
        for way in ("suspend", "resume")
    }
    calls = {
        name: stats.median([{**s["suspend"], **s["resume"]}[name] for s in samples])
        for name in ("lock", "checkpoint", "restore", "unlock")
    }
    run.row(model, "checkpoint", samples, {**switching.times(samples), **more, "calls_ms": calls})


def new_process(run, model):
    """A new process for every request, with the GPU to itself."""
    samples = []
    with tempfile.TemporaryDirectory(prefix="new-") as folder:
        settings = {**programs.private_caches(folder), **run.driver.bare(folder)}
        for number in run.in_time(range(run.arguments.starts)):
            begun = time.perf_counter()
            with open(pathlib.Path(folder, "new.log"), "w+") as log:
                own = {**settings, **ENVIRONMENT.get(model, {})}
                worker = Worker(model, run.server(model, 0), own, log)
                try:
                    worker.answer(run.arguments.timeout)
                    answer = worker.ask(f"request {number % INPUTS}", run.arguments.timeout)
                    ms = (time.perf_counter() - begun) * 1e3
                finally:
                    worker.end()
            samples.append({**answer, "input": number % INPUTS, "ms": ms})
    run.row(model, "new process", samples, switching.times(samples))


def marked(one, server):
    """Steps done, and GPU seconds of training and server, now."""
    mark, status = one.ask(TRAINER, "mark"), one.serving.status()
    has = {name: one.tenant(status, name)["gpu_seconds"] for name in one.workers}
    return {**mark, "trainer_seconds": has[TRAINER], "server_seconds": has.get(server, 0)}


def window(one, server, work):
    """The steps, the GPU seconds and the time while `work()` ran."""
    before = marked(one, server)
    more = work()
    after = marked(one, server)
    fields = ("steps", "trainer_seconds", "server_seconds")
    found = {field: after[field] - before[field] for field in fields}
    return {**found, "seconds": after["at"] - before["at"], **(more or {})}


def sleep_until(moment):
    """By the monotonic clock."""
    time.sleep(max(0, moment - time.monotonic()))


def requests_every(one, server, cycle, seconds):
    """A request to an evicted server in the middle of every cycle; it is evicted again at once."""
    one.serving.evict(server)
    one.settle()

    def work():
        samples, begun, count = [], time.monotonic(), round(seconds / cycle)
        for number in range(count):
            sleep_until(begun + (number + 0.5) * cycle)
            samples.append(one.request(server, number % INPUTS))
            one.serving.evict(server)
        sleep_until(begun + count * cycle)
        return {"requests": len(samples), "p50_ms": switching.times(samples)["p50_ms"]}

    return window(one, server, work)


def training(run):
    """The training alone, beside an idle server, and with a request every so many seconds."""
    arguments = run.arguments
    server = arguments.models[0]
    alone_seconds = arguments.window
    run.need(60 + 2 * alone_seconds if arguments.device == "cuda" else 0, "training")

    def idle():
        time.sleep(alone_seconds)

    def add(label, cycle, found, alone):
        row = switching.training_row(label, cycle, found, alone)
        told(f"training, {label}: {row['steps_per_second']:.2f} steps/s, {row['throughput']:.3f}")
        run.add("training", row)

    with run.kept_going("training"), scene(run, [server], []) as (one, _):
        if server not in one.workers:
            return
        one.serving.evict(server)
        one.ask(TRAINER, "go")
        one.settle()
        alone = window(one, server, idle)
        add(switching.ALONE, None, alone, alone)
        for cycle in arguments.cycles:
            seconds = max(arguments.window, arguments.window_cycles * cycle)
            run.need(seconds, f"cycles of {cycle:g} s")
            add(f"every {cycle:g} s", cycle, requests_every(one, server, cycle, seconds), alone)
        run.need(alone_seconds, "the training alone once more")
        add(switching.AGAIN, None, window(one, server, idle), alone)


def bare_digests(run, loads):
    """{load: the digests of its requests}, without Baton, all at once."""
    found = {}
    with bare(run, loads, 0) as (workers, _):
        for load, worker in workers.items():
            with run.kept_going(f"{load}, bare"):
                asked = range(run.arguments.requests)
                answers = [worker.ask(f"request {i}", run.arguments.timeout) for i in asked]
                found[load] = [answer["digest"] for answer in answers]
    return found


def equality(run):
    """Loads evicted before every request, against two bare runs."""
    arguments = run.arguments
    run.need(120 if arguments.device == "cuda" else 0, "equality")
    first = bare_digests(run, arguments.loads)
    again = bare_digests(run, arguments.loads)
    loads = [load for load in arguments.loads if load in first and load in again]
    told(f"bare, twice: {', '.join(load for load in loads if first[load] == again[load])}")
    with run.kept_going("equality"), scene(run, loads, ["--poison"], warm=0) as (one, _):
        one.ask(TRAINER, "go")
        for load in loads:
            if load not in one.workers:
                continue
            with run.kept_going(f"{load}, evicted"):
                digests, left = [], 0
                for number in run.in_time(range(arguments.requests)):
                    sample = one.evicted_request(load, number)
                    digests.append(sample["digest"])
                    left += sample["was_away"]
                verdict, equal = switching.compared(first[load], again[load], digests)
                row = {
                    "load": load,
                    "requests": len(digests),
                    "evicted": left,
                    "verdict": verdict if left == len(digests) else f"{verdict}; not always away",
                    "equal": equal and left == len(digests),
                    "tenant_bytes": one.tenant(one.serving.status(), load)["bytes"],
                    "options": arguments.serve,
                }
                told(f"{load}: {row['verdict']}")
                run.add("equality", row)


def reference(run):
    """GB/s of PyTorch's own copies to the GPU through one pinned buffer, samples and median."""
    argv = [sys.executable, str(HERE / "transfer_reference.py"), "--repeat", "3"]
    argv += ["--bytes", str(parse_bytes(run.arguments.reference_bytes))]
    outcome = programs.run(argv, timeout=run.arguments.timeout)
    if outcome.status != "ok":
        run.result["torch"] = {"reason": machine.scrub(outcome.reason.strip())}
        return
    found = json.loads(outcome.stdout.strip().splitlines()[-1])
    run.result["torch"] = found
    run.gbps = stats.median(found["in"])
    told(f"PyTorch copies at {run.gbps:.1f} GB/s")


def told(line):
    """Progress."""
    print(line, flush=True)


def parse():
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", required=True, type=pathlib.Path, help="the folder of `baton`")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("switch.json"))
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=SERVED)
    parser.add_argument("--variants", nargs="+", default=USUAL, choices=VARIANTS)
    parser.add_argument("--repeat", type=int, default=20, help="requests that count")
    parser.add_argument("--warmup", type=int, default=5, help="requests before them")
    parser.add_argument("--checkpoint-repeat", type=int, default=10)
    parser.add_argument("--starts", type=int, default=3, help="new processes of each model")
    parser.add_argument("--cycles", nargs="+", type=float, default=[1, 2, 5, 10, 30])
    parser.add_argument("--window", type=float, default=20, help="seconds of training, at least")
    parser.add_argument("--window-cycles", type=int, default=3, help="requests in it, at least")
    parser.add_argument("--loads", nargs="+", default=LOADS, choices=SERVED)
    parser.add_argument("--requests", type=int, default=6, help="to each load, for equality")
    parser.add_argument(
        "--beside", default=TRAINING, choices=BESIDE, help="what has the GPU meanwhile"
    )
    trainers = [name for name in TRAINED if name != KERNEL]
    parser.add_argument("--trainer", choices=trainers, help="instead of what is usual there")
    parser.add_argument("--arena", default="24GiB", help="each model and the training fit")
    parser.add_argument("--host-pool", help="instead of one that all models fit")
    parser.add_argument("--serve", default="", help="more options for `baton serve`, in one word")
    parser.add_argument("--reference-bytes", default="2GiB", help="what PyTorch copies")
    parser.add_argument("--no-reference", dest="reference", action="store_false")
    parser.add_argument("--limit-seconds", type=float, default=1e9, help="begin nothing after it")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for any one answer")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--size", default="full", choices=["full", "small"])
    parser.add_argument("--driver", help="if it is to be another: sim, or a file")
    parser.add_argument("--sim-memory", default="512MiB", help="the simulated GPU's size")
    arguments = parser.parse_args()
    Install.check(arguments.baton, parser)
    if arguments.beside == KERNEL and arguments.parts != ["latency"]:
        parser.error("beside a kernel only --parts latency is measured")
    arguments.serve = shlex.split(arguments.serve)
    return arguments


def main():
    """Runs, writes, prints."""
    arguments = parse()
    programs.end_tidily()
    run = Run(arguments)
    parts = {"latency": latency, "training": training, "equality": equality}
    try:
        if arguments.reference and "latency" in arguments.parts:
            reference(run)
        for part in arguments.parts:
            parts[part](run)
    except OutOfTime as late:
        run.result["unfinished"] = str(late)
    run.save()
    print_tables(switching.merge([run.result]), run.result["unfinished"])


def print_tables(result, unfinished):
    """The tables, what is wrong, and the exit status."""
    tables = [
        (switching.HEADER, [switching.shown(row) for row in switching.listed(result["rows"])]),
        (switching.KERNEL_HEADER, switching.kernel_shown(result["rows"])),
        (switching.COST_HEADER, switching.cost_shown(result["rows"])),
        (switching.TRAINING_HEADER, [switching.training_shown(r) for r in result["training"]]),
        (switching.EQUALITY_HEADER, [switching.equality_shown(r) for r in result["equality"]]),
    ]
    for header, rows in tables:
        if rows:
            print(table.text(header, rows), end="\n\n")
    wrong = switching.shortcomings(result)
    for one in wrong:
        print(f"not as it should be: {one}")
    if unfinished:
        print(f"not all was measured: {unfinished}")
    print(f"outputs equal, limits held: {'NO' if wrong else 'yes'}")
    sys.exit(1 if wrong or unfinished else 0)


if __name__ == "__main__":
    main()
