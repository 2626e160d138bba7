"""Programs that use two GPUs, and one that works beside them. Each prints a digest of its results.

    python3 bench/several_gpus_work.py ddp | tensor | pipeline | pmap | sharding | beside GPU

`ddp` and `tensor` are two processes, a GPU each, that talk through NCCL. `pipeline` is one process
with half of a model on each GPU. `pmap` and `sharding` are JAX's ways for one process. `beside` says when it is ready, and then trains the same steps
again and again until its input ends; it fails if they ever give something else.
"""

import hashlib
import os
import socket
import subprocess
import sys
import threading

import torch
import torch.distributed as dist
from torch import nn

WIDTH, DEPTH, BATCH, STEPS = 2048, 8, 256, 30


def digest(tensors):
    """Of all their bytes."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def layers(count):
    """So many layers of a model."""
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(count)]
    return nn.Sequential(*blocks)


def inputs(step, rank=0):
    """The inputs of a step."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(BATCH, WIDTH, generator=generator)


def train(model, place, rank=0):
    """Some steps; the last loss and all parameters."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss = model(inputs(step, rank).to(place)).square().mean()
        loss.backward()
        optimizer.step()
    return [loss, *model.parameters()]


def ddp(rank):
    """Data parallel: gradients are averaged."""
    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(layers(DEPTH).cuda(), device_ids=[rank])
    trained = train(model, f"cuda:{rank}", rank)
    return digest(trained[1:])


def tensor(rank):
    """Tensor parallel: each has half of the columns, and partial results are added up."""
    torch.manual_seed(2)
    whole = torch.randn(WIDTH, WIDTH) / WIDTH**0.5
    half = WIDTH // 2
    mine = whole[rank * half : (rank + 1) * half].cuda()
    x = inputs(0).cuda()
    for _ in range(20 * STEPS):
        y = x[:, rank * half : (rank + 1) * half] @ mine
        dist.all_reduce(y)
        x = torch.tanh(y)
    return digest([x])


class Halves(nn.Module):
    """Half of the layers on each GPU."""

    def __init__(self):
        super().__init__()
        self.first = layers(DEPTH // 2).to("cuda:0")
        self.second = layers(DEPTH // 2).to("cuda:1")

    def forward(self, x):
        """From one GPU to the other."""
        return self.second(self.first(x).to("cuda:1"))


def pipeline():
    """Trains a model on two GPUs, and runs it both ways."""
    torch.manual_seed(3)
    model = Halves()
    results = train(model, "cuda:0")
    # And without autograd, both ways.
    x = inputs(99).to("cuda:1")
    for _ in range(STEPS):
        x = model.second(model.first(x.to("cuda:0")).to("cuda:1")).detach()
    return digest([*results, x])


def jax_devices():
    """JAX, and the two GPUs."""
    # By nature it takes three quarters of both.
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.1")
    os.environ["XLA_FLAGS"] = "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"
    import jax

    return jax, jax.devices()[:2]


def numpy_digest(arrays):
    """Of all their bytes."""
    import numpy

    found = hashlib.sha256()
    for array in arrays:
        found.update(numpy.ascontiguousarray(numpy.asarray(array)).tobytes())
    return found.hexdigest()[:16]


def pmap():
    """Data parallel by `jax.pmap`: gradients are averaged."""
    jax, devices = jax_devices()
    import jax.numpy as jnp

    def loss(weights, x):
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return jnp.mean(x**2)

    def step(weights, x):
        gradients = jax.lax.pmean(jax.grad(loss)(weights, x), axis_name="gpus")
        return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]

    keys = jax.random.split(jax.random.key(5), 4)
    weights = [jax.random.normal(key, (WIDTH, WIDTH)) / WIDTH**0.5 for key in keys]
    weights = [jnp.stack([weight, weight]) for weight in weights]
    stepped = jax.pmap(step, axis_name="gpus", devices=devices)
    for number in range(STEPS):
        x = jax.random.normal(jax.random.key(number), (2, BATCH, WIDTH))
        weights = stepped(weights, x)
    return numpy_digest([w[0] for w in weights])


def sharding():
    """One array over both GPUs, and products of it."""
    jax, devices = jax_devices()
    import jax.numpy as jnp
    import numpy

    mesh = jax.sharding.Mesh(numpy.array(devices), ("gpus",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("gpus", None))
    columns = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "gpus"))
    a = jax.device_put(jax.random.normal(jax.random.key(6), (2 * WIDTH, 2 * WIDTH)), rows)

    @jax.jit
    def step(a):
        b = jax.lax.with_sharding_constraint(jnp.tanh(a @ a.T / WIDTH), columns)
        return jax.lax.with_sharding_constraint(b @ a / WIDTH**0.5, rows)

    for _ in range(STEPS):
        a = step(a)
    return numpy_digest([a])


def beside(gpu):
    """Trains again and again."""
    torch.cuda.set_device(gpu)

    def once():
        torch.manual_seed(4)
        return digest(train(layers(DEPTH).cuda(), f"cuda:{gpu}"))

    want, count = once(), 0
    print("ready", flush=True)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.is_set():
        count += 1
        if once() != want:
            sys.exit(f"something else in round {count}")
    print(f"rounds {count}", flush=True)
    return want


RANKED = {"ddp": ddp, "tensor": tensor}
ALONE = {"pipeline": pipeline, "pmap": pmap, "sharding": sharding}


def ranks(job):
    """Two processes, and the digest that both have to come to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    argv = [sys.executable, "-W", "ignore", __file__, job]
    running = [
        subprocess.Popen(argv, env={**common, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    said = [process.communicate(timeout=240)[0].split() for process in running]
    if any(process.returncode for process in running) or said[0] != said[1]:
        sys.exit(f"{job}: {[process.returncode for process in running]}, {said}")
    return said[0][-1]


def main():
    job, *rest = sys.argv[1:]
    # Without it products of matrices need not come to the same each time.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    if job in RANKED and "RANK" not in os.environ:
        print("digest", ranks(job))
        return
    if job in RANKED:
        rank = int(os.environ["RANK"])
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
        print("digest", RANKED[job](rank), flush=True)
        dist.destroy_process_group()
        return
    print("digest", beside(int(rest[0])) if job == "beside" else ALONE[job]())


if __name__ == "__main__":
    main()
