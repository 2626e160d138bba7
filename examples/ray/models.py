#!/usr/bin/env python3
"""Serves 20 models from one GPU that has room for a few of them, each behind its own Ray actor.

    baton serve --arena 32GiB --host-pool 96GiB &
    ray start --head --resources='{"baton": 20}'
    python3 models.py --models torch --megabytes 4096

Each model first answers alone, without Baton. Then all are actors under Baton and are asked in
random order: every answer has to be the one that the model gave alone, bit for bit. With --kill N,
model N's process is killed halfway; Ray starts it again, and the others go on. See docs/ray.md.
"""

import argparse
import array
import ctypes
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from typing import Any

import ray

PTX = pathlib.Path(__file__).resolve().parent.parent / "kernels" / "kernels.ptx"
WIDTH = 1024
ROWS = 4
REQUESTS = 8  # different ones for each model
MIB = 1 << 20


def random_floats(seed: str, count: int, limit: float) -> array.array:
    values = [(2 * byte / 255 - 1) * limit for byte in range(256)]
    return array.array("f", map(values.__getitem__, random.Random(seed).randbytes(count)))


class DriverModel:
    """A perceptron of many layers, by the driver API alone: the simulated driver runs it too."""

    def __init__(self, number: int, megabytes: int) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        device, context, module = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", ctypes.byref(module), PTX.read_bytes() + b"\0")
        self.kernels = {name: ctypes.c_void_p() for name in ("matmul", "relu")}
        for name, kernel in self.kernels.items():
            self.call("cuModuleGetFunction", ctypes.byref(kernel), module, name.encode())
        # With this limit, the values in the layers neither grow nor vanish.
        limit = (6 / WIDTH) ** 0.5
        self.layers = [
            self.upload(random_floats(f"layer {layer} of model {number}", WIDTH * WIDTH, limit))
            for layer in range(max(1, megabytes * MIB // (4 * WIDTH * WIDTH)))
        ]
        self.rows = self.upload(array.array("f", bytes(4 * ROWS * WIDTH)))
        self.product = self.upload(array.array("f", bytes(4 * ROWS * WIDTH)))

    def call(self, function: str, *arguments: Any) -> None:
        if result := getattr(self.library, function)(*arguments):
            raise RuntimeError(f"{function} answered {result}")

    def upload(self, values: array.array) -> ctypes.c_uint64:
        address, size = ctypes.c_uint64(), ctypes.c_size_t(4 * len(values))
        self.call("cuMemAlloc_v2", ctypes.byref(address), size)
        self.call("cuMemcpyHtoD_v2", address, ctypes.c_void_p(values.buffer_info()[0]), size)
        return address

    def launch(self, name: str, *arguments: Any) -> None:
        pointers = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        kernel, shape = self.kernels[name], (16, 1, 1, 256, 1, 1)
        self.call("cuLaunchKernel", kernel, *shape, 0, None, pointers, None)

    def answer(self, request: int) -> bytes:
        values = random_floats(f"request {request}", ROWS * WIDTH, 1.0)
        place, size = ctypes.c_void_p(values.buffer_info()[0]), ctypes.c_size_t(4 * len(values))
        self.call("cuMemcpyHtoD_v2", self.rows, place, size)
        rows, width, count, flags = map(ctypes.c_uint32, (ROWS, WIDTH, ROWS * WIDTH, 0))
        for layer in self.layers:
            self.launch("matmul", self.product, self.rows, layer, rows, width, width, flags)
            self.launch("relu", self.rows, self.product, count)
        self.call("cuMemcpyDtoH_v2", place, self.rows, size)
        return values.tobytes()

    def free(self) -> None:
        for address in (*self.layers, self.rows, self.product):
            self.call("cuMemFree_v2", address)


class TorchModel:
    """A transformer of many layers with random weights, by PyTorch."""

    def __init__(self, number: int, megabytes: int) -> None:
        import torch

        self.torch = torch
        torch.use_deterministic_algorithms(True)
        torch.manual_seed(number)
        layer, count = torch.nn.TransformerEncoderLayer, max(1, megabytes // 48)  # 48 MiB each
        layers = [layer(WIDTH, 16, 4 * WIDTH, device="cuda") for _ in range(count)]
        self.model = torch.nn.Sequential(*layers).eval()

    def answer(self, request: int) -> bytes:
        dice = self.torch.Generator().manual_seed(request)
        tokens = self.torch.randn(128, WIDTH, generator=dice)
        with self.torch.inference_mode():
            return array.array("f", self.model(tokens.cuda())[-1].tolist()).tobytes()

    def free(self) -> None:
        del self.model  # PyTorch keeps the memory, for the next model.


KINDS = {"driver": DriverModel, "torch": TorchModel}


@ray.remote(num_cpus=0)
def answers_alone(kind: Any, models: range, megabytes: int) -> list[list[bytes]]:
    """The answers of each model alone."""
    answers = []
    for model in (kind(number, megabytes) for number in models):
        answers.append([model.answer(request) for request in range(REQUESTS)])
        model.free()
    return answers


def shared(name: str, library: str) -> dict[str, dict[str, str]]:
    """The runtime_env of an actor that shares its GPU."""
    variables = {"LD_PRELOAD": library, "BATON_REQUIRE": "1"}
    return {"env_vars": variables | {"BATON_NAME": name, "BATON_CLASS": "latency"}}


def status() -> dict[str, Any]:
    command = ["baton", "status", "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def summary(now: dict[str, Any]) -> str:
    total = sum(tenant["bytes"] for tenant in now["tenants"])
    return f"{len(now['tenants'])} models with {total // MIB} MiB"


def kill(name: str) -> None:
    """Kills a model's process, and waits until its memory is back."""
    before = status()
    pid = next(tenant["pid"] for tenant in before["tenants"] if tenant["name"] == name)
    os.kill(pid, signal.SIGKILL)
    after, deadline = status(), time.monotonic() + 60
    while pid in [tenant["pid"] for tenant in after["tenants"]]:
        if time.monotonic() > deadline:
            sys.exit(f"models: {name} was killed, and has its memory still")
        after = status()
    print(f"{name} killed: {summary(before)} before, {summary(after)} after", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", choices=KINDS, default="driver")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--megabytes", type=int, default=12, help="how large each model is")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--gpu", type=float, default=0.05, help="num_gpus of each actor")
    parser.add_argument("--kill", type=int, metavar="N", help="kill model N's process halfway")
    parser.add_argument("--library", default="/usr/lib/baton/libbaton.so")
    options = parser.parse_args()
    # cuBLAS is deterministic only with a workspace of fixed size.
    ray.init(address="auto", runtime_env={"env_vars": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}})
    kind, names = KINDS[options.models], [f"model-{model:02}" for model in range(options.count)]

    print("each model alone", flush=True)
    alone = answers_alone.options(num_gpus=options.gpu)
    expected = ray.get(alone.remote(kind, range(options.count), options.megabytes))

    print("each model as an actor", flush=True)
    place = {"num_cpus": 0, "num_gpus": options.gpu, "resources": {"baton": 1}}
    actor: Any = ray.remote(max_restarts=1, max_task_retries=-1, **place)(kind)
    actors = []
    for model, name in enumerate(names):
        under_baton = actor.options(runtime_env=shared(name, options.library))
        actors.append(under_baton.remote(model, options.megabytes))

    def check(model: int, request: int, answer: bytes) -> None:
        if answer != expected[model][request]:
            sys.exit(f"models: {names[model]} does not answer request {request} as it did alone")

    def ask_all(request: int) -> None:
        for model, answer in enumerate(ray.get([each.answer.remote(request) for each in actors])):
            check(model, request, answer)

    ask_all(0)
    begun = status()
    if missing := set(names) - {tenant["name"] for tenant in begun["tenants"]}:
        sys.exit(f"models: not under Baton: {', '.join(sorted(missing))}")
    print(f"{summary(begun)} share {begun['arena']['bytes'] // MIB} MiB of the GPU", flush=True)

    took: dict[str, list[float]] = {"evicted": [], "warm": []}
    dice, asked, killed = random.Random(1), list(range(options.count)), None
    for number in range(options.requests):
        if number == options.requests // 2 and options.kill is not None:
            kill(names[options.kill])
            asked.remove(options.kill)
            killed = actors[options.kill].answer.remote(0)
        model, request = dice.choice(asked), dice.randrange(REQUESTS)
        tenant = next(each for each in status()["tenants"] if each["name"] == names[model])
        started = time.perf_counter()
        answer = ray.get(actors[model].answer.remote(request))
        milliseconds = (time.perf_counter() - started) * 1e3
        took["evicted" if tenant["evicted_bytes"] else "warm"].append(milliseconds)
        check(model, request, answer)
    switches = status()["switches"] - begun["switches"]
    if killed:
        check(options.kill, 0, ray.get(killed))
        print(f"{names[options.kill]} runs again, and answers as before")
    ask_all(1)

    for state, times in took.items():
        if times:
            p50, p99 = (sorted(times)[round((len(times) - 1) * share)] for share in (0.5, 0.99))
            print(f"{len(times)} requests to {state} models: P50 {p50:.1f} ms, P99 {p99:.1f} ms")
    print(f"{switches} switches; all answers are as alone")


if __name__ == "__main__":
    main()
