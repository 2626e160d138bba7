#!/usr/bin/env python3
"""How soon LLM servers answer that share a GPU, and whether they answer as alone.

    python3 bench/llm.py --baton target/release --models 7b 1b --out llm.json

The servers are vLLM's (`--engine vllm`, `--site FOLDER` if it is installed apart), or llama.cpp's
(`--engine llama --llama-server FILE --gguf FOLDER`), with made weights. `--models` are the servers;
one that is named twice is two. Parts, each by itself with `--parts`:

    alone       each model bare, by itself, at `--share` of the GPU: its tokens, its first token and
                its time per token are what the others are compared with
    together    all of them bare at `--share` each: which start?
    baton       all of them at `--share` each as programs of one coordinator. They are asked in turn,
                `--rounds` times, a prompt that no other round has: first after a switch, and once
                more while resident. Between two servers is a rest (`--rest`).
    beside      the first of them as a latency program, beside the training `--trained` as a batch
                one: at each of `--beside` of the GPU in turn. It is asked all prompts `--repeat`
                times with short rests, and the training's steps are counted meanwhile.

The limit of a first token after a switch is that of a resident model, and its weights over the bus
at the rate that a copy from pinned memory has, which is measured here too. The exit status is 0 if
all tokens are those of the bare server.
"""

import argparse
import contextlib
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

from common import machine, programs, switches, table
from common.coordinator import Coordinator, Driver, Install
from common.serving_llms import BESIDE_HEADER, HEADER, beside_rows, differs, judge, names_of, rows
from common.workers import Worker, WorkerFailed
from loads import TRAINED
from loads.llm_servers import CONTEXT, SHAPES, VOCABULARY, LlamaCpp, ServerFailed, Vllm, is_ready

PARTS = ["alone", "together", "baton", "beside"]
# Seconds in which the training runs alone, before a request beside it, and for any one step of it.
TRAINING_ALONE, BESIDE_REST, STEP_LIMIT = 4, 0.3, 240
# Measures the bus in a process of its own: this one must not be a client of the GPU.
BUS = """
import time, torch
host, gpu = torch.empty(1 << 30, dtype=torch.uint8).pin_memory(), torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
best = 0
for _ in range(6):
    torch.cuda.synchronize(); start = time.perf_counter()
    gpu.copy_(host, non_blocking=True); torch.cuda.synchronize()
    best = max(best, (1 << 30) / (time.perf_counter() - start) / 1e9)
print(best)
"""


def free_port():
    """A port that nothing listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """One server: a process group, and where it listens."""

    def __init__(self, engine, model, share, log, wrap=lambda argv: argv, settings=None):
        self.engine, self.model, self.log, self.port = engine, model, log, free_port()
        started = time.monotonic()
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                wrap(engine.command(model, self.port, share)),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, **engine.settings, **(settings or {})},
                start_new_session=True,
            )
        self.started, self.ready_seconds = started, None

    def wait(self, limit):
        """Until it answers."""
        while not is_ready(self.port):
            if self.process.poll() is not None:
                raise ServerFailed(f"{self.model} ended: {self.said()}")
            if time.monotonic() - self.started > limit:
                raise ServerFailed(f"{self.model} is not ready after {limit:.0f} s: {self.said()}")
            time.sleep(0.2)
        self.ready_seconds = time.monotonic() - self.started

    def said(self):
        """The end of what it printed, in which its error stands."""
        return machine.scrub(self.log.read_text(errors="replace")[-programs.TAIL :])

    def why(self):
        """The line of what it printed that names its error."""
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines()]
        errors = [line for line in lines if "Error:" in line or "error:" in line]
        # The first: others follow from it.
        return machine.scrub(errors[0][-300:]) if errors else self.said()[-300:]

    def ask(self, prompt, count):
        """Sends a prompt."""
        return self.engine.ask(self.model, self.port, prompt, count)

    def end(self):
        """Ends it and what it has started."""
        for sign, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 20)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
                break
        # A process of its group that is left would hold GPU memory.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


class Scene:
    """The common ground of all parts."""

    def __init__(self, arguments, engine, folder):
        self.arguments, self.engine, self.folder = arguments, engine, pathlib.Path(folder)
        chance = random.Random(3)
        self.prompts = [
            [chance.randrange(3, VOCABULARY) for _ in range(chance.randrange(16, CONTEXT // 8))]
            for _ in range(arguments.rounds)
        ]

    def server(self, name, model, share=None, **more):
        """Starts one."""
        log = self.folder / f"{name}-{len(list(self.folder.iterdir()))}.log"
        return Server(self.engine, model, share or self.arguments.share, log, **more)

    def ask(self, server, prompt):
        """Sends a prompt; gives what is kept of the answer."""
        answer = server.ask(prompt, self.arguments.tokens)
        return {
            "first_ms": 1e3 * answer.first,
            "per_token_ms": 1e3 * answer.per_token,
            "tokens": list(answer.tokens),
        }

    def alone(self):
        """Each model bare, by itself; each prompt once, after one that is not counted."""
        found = {}
        for model in dict.fromkeys(self.arguments.models):
            server = self.server(f"alone-{model}", model)
            try:
                server.wait(self.arguments.start_limit)
                self.ask(server, self.prompts[0])
                answers = [self.ask(server, prompt) for prompt in self.prompts]
            finally:
                server.end()
            found[model] = {"ready_s": server.ready_seconds, "answers": answers}
            print(f"alone: {model} ready after {server.ready_seconds:.0f} s", flush=True)
        return found

    def together(self):
        """All of them bare: which start, and why others do not."""
        found, running = {}, []
        try:
            for name, model in names_of(self.arguments.models):
                running.append(self.server(f"together-{name}", model))
                try:
                    running[-1].wait(self.arguments.start_limit)
                    found[name] = "starts"
                except ServerFailed:
                    found[name] = f"does not start: {running[-1].why()}"
                print(f"together: {name} {found[name]}", flush=True)
        finally:
            for server in running:
                server.end()
        return found

    def baton(self):
        """All of them under one coordinator, asked in turn."""
        arguments = self.arguments
        driver = Driver(Install.of(arguments.baton), arguments.driver)
        with contextlib.ExitStack() as stack:
            coordinator = stack.enter_context(
                Coordinator(driver, arguments.arena, arguments.host_pool, more=arguments.serve)
            )
            servers = {}
            for name, model in names_of(arguments.models):
                wrap = lambda argv, name=name: coordinator.run(name, argv)  # noqa: E731
                servers[name] = self.server(f"baton-{name}", model, wrap=wrap)
                stack.callback(servers[name].end)
                servers[name].wait(arguments.start_limit)
                print(f"baton: {name} ready after {servers[name].ready_seconds:.0f} s", flush=True)
            found = {name: [] for name in servers}
            for prompt in self.prompts:
                for name, server in servers.items():
                    time.sleep(arguments.rest)
                    before = coordinator.status()
                    after_switch = self.ask(server, prompt)
                    _, records, complete = coordinator.since(before)
                    moved = switches.total(records) if records and complete else None
                    resident = self.ask(server, prompt)
                    mine = [record for record in records if record.get("to") == name]
                    found[name].append(
                        {
                            "switch": after_switch,
                            "resident": resident,
                            "moved": moved,
                            "phases": mine[-1] if mine else None,
                        }
                    )
            status = coordinator.status()
        return {
            "servers": found,
            "ready_s": {name: server.ready_seconds for name, server in servers.items()},
            "arena": status["arena"],
            "host_pool": status["host_pool"],
            "programs": [
                {key: one for key, one in row.items() if key == "name" or key.endswith("_bytes")}
                for row in status["tenants"]
            ],
        }


    def beside(self):
        """The first server beside a training, at each of several shares of the GPU."""
        return [self.beside_at(share) for share in self.arguments.beside]

    def beside_at(self, share):
        """The same at one."""
        arguments, model = self.arguments, self.arguments.models[0]
        driver = Driver(Install.of(arguments.baton), arguments.driver)
        argv = [sys.executable, str(pathlib.Path(__file__).parent / "switch_train.py"), arguments.trained]
        argv += ["--device", arguments.device, "--size", arguments.size]
        with contextlib.ExitStack() as stack:
            coordinator = stack.enter_context(
                Coordinator(driver, arguments.arena, arguments.host_pool, more=arguments.serve)
            )
            log = (self.folder / f"training-{share}.log").open("w+")
            training = Worker("training", coordinator.run("training", argv, "batch"), {}, log)
            stack.callback(training.end)
            training.answer(arguments.start_limit)
            wrap = lambda argv: coordinator.run(model, argv, "latency")  # noqa: E731
            server = self.server(f"beside-{share}", model, share=share, wrap=wrap)
            stack.callback(server.end)
            server.wait(arguments.start_limit)
            self.ask(server, self.prompts[0])
            _, alone = steps_during(training, lambda: time.sleep(TRAINING_ALONE))
            prompts = self.prompts * arguments.repeat
            before = coordinator.status()
            answers, rate = steps_during(training, lambda: [self.ask_soon(server, one) for one in prompts])
            _, records, complete = coordinator.since(before)
        print(f"beside, {share:g}: {alone:.2f} steps/s alone, {rate:.2f} beside requests", flush=True)
        return {
            "share": share,
            "trained": arguments.trained,
            "ready_s": server.ready_seconds,
            "answers": answers,
            "moved": switches.total(records) if complete else None,
            "steps_per_second": {"alone": alone, "beside": rate},
        }

    def ask_soon(self, server, prompt):
        """Sends a prompt after a short rest."""
        time.sleep(BESIDE_REST)
        return self.ask(server, prompt)


def steps_during(training, during):
    """(what `during()` gives, the training's steps a second meanwhile)."""
    before = training.ask("go", STEP_LIMIT)
    gave = during()
    after = training.ask("hold", STEP_LIMIT)
    return gave, (after["steps"] - before["steps"]) / (after["at"] - before["at"])


def bus_rate():
    """GB/s of a copy from pinned memory to the GPU."""
    ran = subprocess.run([sys.executable, "-c", BUS], capture_output=True, text=True, timeout=120)
    if ran.returncode != 0:
        raise ServerFailed(f"the bus cannot be measured: {machine.scrub(ran.stderr[-400:])}")
    return float(ran.stdout)


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baton", type=pathlib.Path, required=True, help="the folder of `baton`")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("llm.json"))
    parser.add_argument("--engine", choices=["vllm", "llama"], default="vllm")
    parser.add_argument("--site", type=pathlib.Path, help="where vLLM is installed, if apart")
    parser.add_argument("--graphs", action="store_true", help="vLLM with CUDA graphs, not eager")
    parser.add_argument("--llama-server", type=pathlib.Path, help="llama.cpp's server")
    parser.add_argument("--gguf", type=pathlib.Path, help="the folder of 7b.gguf and 1b.gguf")
    parser.add_argument("--models", nargs="+", default=["7b", "1b"], choices=SHAPES)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--share", type=float, default=0.9, help="of the GPU's memory, each")
    parser.add_argument("--beside", nargs="+", type=float, default=[0.5, 0.9], help="shares there")
    parser.add_argument("--trained", default="corun_bert", choices=TRAINED, help="what trains there")
    parser.add_argument("--repeat", type=int, default=3, help="of all prompts, there")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="of the training")
    parser.add_argument("--size", default="full", choices=["full", "small"], help="of the training")
    parser.add_argument("--rounds", type=int, default=20, help="prompts; switches of each server")
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    parser.add_argument("--rest", type=float, default=1, help="seconds between two servers")
    parser.add_argument("--start-limit", type=float, default=240, help="seconds for a server")
    parser.add_argument("--arena", default="90%", help="of the coordinator")
    parser.add_argument("--host-pool", default="90GiB", help="of the coordinator")
    parser.add_argument("--driver", help="of the coordinator; `sim` for a dry run")
    parser.add_argument("--bus", type=float, help="GB/s of the bus, if it is not to be measured")
    parser.add_argument("--serve", nargs="*", default=[], help="more options of `baton serve`")
    arguments = parser.parse_args()
    Install.check(arguments.baton, parser)
    if arguments.engine == "llama" and not (arguments.llama_server and arguments.gguf):
        parser.error("llama.cpp needs --llama-server and --gguf")
    return arguments


def main():
    """Runs, writes, prints."""
    arguments = parse()
    programs.end_tidily()
    with tempfile.TemporaryDirectory(prefix="llm-", ignore_cleanup_errors=True) as folder:
        if arguments.engine == "vllm":
            engine = Vllm(pathlib.Path(folder) / "models", arguments.site, arguments.graphs)
        else:
            engine = LlamaCpp(arguments.llama_server, arguments.gguf)
        logs = pathlib.Path(folder) / "logs"
        logs.mkdir()
        scene = Scene(arguments, engine, logs)
        result = {
            "kind": "llm",
            "machine": machine.describe(),
            "engine": engine.name,
            "graphs": arguments.graphs,
            "models": arguments.models,
            "share": arguments.share,
            "rest_s": arguments.rest,
            "tokens": arguments.tokens,
            "weights": {model: engine.weights(model) for model in dict.fromkeys(arguments.models)},
        }
        try:
            result["bus_gbps"] = arguments.bus or bus_rate()
            for part in arguments.parts:
                result[part] = getattr(scene, part)()
        except (ServerFailed, WorkerFailed) as failure:
            sys.exit(f"llm.py: {machine.scrub(str(failure))}")
        finally:
            # Also what there is when it has to end.
            judge(result)
            machine.write_json(arguments.out, result)
    print(table.text(HEADER, rows(result)))
    if "beside" in result:
        print(table.text(BESIDE_HEADER, beside_rows(result)))
    sys.exit(1 if differs(result) else 0)


if __name__ == "__main__":
    main()
