"""The workloads, by name: which module holds each, and what must be set before it is imported.

A workload is a function `run(device, steps, digest, numbers)`. It feeds every output it has to
`digest` and puts a few readable figures into `numbers`. It is deterministic: two bare runs on one
GPU give the same digest, bit for bit.
"""

import dataclasses
import importlib


@dataclasses.dataclass(frozen=True)
class Workload:
    """Where a workload lives, its default steps and the settings it needs in the environment."""

    module: str
    function: str
    steps: int
    settings: tuple = ()

    def load(self):
        """The function itself; imports the libraries it needs."""
        return getattr(importlib.import_module(f"loads.{self.module}"), self.function)


# Set for every workload before anything else is imported.
SETTINGS = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "XLA_FLAGS": "--xla_gpu_deterministic_ops=true",
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TORCHINDUCTOR_DETERMINISTIC": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

WORKLOADS = {
    "resnet152_train": Workload("torch_models", "resnet152_train", 3),
    "resnet152_infer": Workload("torch_models", "resnet152_infer", 3),
    "bert_infer": Workload("torch_models", "bert_infer", 3),
    "cuda_graph": Workload("torch_modes", "cuda_graph", 10),
    "torch_compile": Workload("torch_modes", "torch_compile", 3),
    "torch_pool": Workload(
        "torch_modes",
        "small_train",
        5,
        (("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync"),),
    ),
    "torch_segments": Workload(
        "torch_modes",
        "small_train",
        5,
        (("PYTORCH_ALLOC_CONF", "expandable_segments:True"),),
    ),
    "multiprocess": Workload("torch_processes", "multiprocess", 3),
    "jax_jit": Workload("arrays_jax", "train", 5),
    "cupy": Workload("arrays_cupy", "mixed", 3),
    "triton": Workload("kernels_triton", "mixed", 3),
    "numba": Workload("kernels_numba", "mixed", 3),
    "ctypes": Workload("driver_ctypes", "mixed", 3),
}


# Programs that share a GPU, by name: (module, function). `build(device, digest, numbers, size)` of
# loads/torch_sharing.py says what such a function gives.
SHARED = {
    "resnet152_train": ("torch_sharing", "resnet152_train"),
    "bert_infer": ("torch_sharing", "bert_infer"),
    "llama_1b": ("torch_sharing", "llama_1b"),
    "driver_one": ("driver_pieces", "one"),
    "driver_two": ("driver_pieces", "two"),
    "driver_three": ("driver_pieces", "three"),
}


# Servers that have the GPU taken from them between requests, by name: (module, function).
# `build(device, size)` gives a `Service` of loads/service.py.
SERVED = {
    **{
        name: ("torch_services", name)
        for name in ("resnet152", "inception_v3", "bert", "llama_1b", "llama_7b")
    },
    **{
        name: ("torch_services", name)
        for name in ("adamw", "graph", "compiled", "linalg", "attention")
    },
    "llama_7b_segments": ("torch_services", "llama_7b"),
    "llama_7b_segments_masked": ("torch_services", "llama_7b_masked"),
    "jax_7b": ("jax_services", "jax_7b"),
    "driver": ("driver_service", "driver"),
}

# More settings of some loads' environments: how they get their memory. JAX is given half of the
# GPU that it sees, because a training has to fit beside it.
SEGMENTS = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
POOLS = {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}
ENVIRONMENT = {
    "llama_7b_segments": SEGMENTS,
    "llama_7b_segments_masked": SEGMENTS,
    "jax_7b": {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".5"},
    "resnet152_train_64_segments": SEGMENTS,
    "resnet152_train_64_async": POOLS,
}

# Trainings that they interrupt. `build(device, size)` gives a `Training` of loads/service.py.
TRAINED = {
    "resnet152": ("torch_services", "resnet152_training"),
    "kernel": ("torch_kernel", "kernel"),
    "driver": ("driver_service", "driver_training"),
}

# Servers and trainings that run at the same time: loads/torch_corun.py says what they give. The
# matrix is of Tally's models; the others are measured when they are asked for.
CORUN_SERVED_MATRIX = ("resnet50", "bert", "bert_large", "llama_1b", "gpt_neo")
CORUN_TRAINED_MATRIX = ("resnet50", "bert", "gpt2_large", "whisper_small", "pegasus")
CORUN_SERVED = {
    name: ("torch_corun", name) for name in (*CORUN_SERVED_MATRIX, "resnet152", "llama_1b_long")
}
CORUN_TRAINED = {
    name: ("torch_corun", f"{name}_training") for name in (*CORUN_TRAINED_MATRIX, "launch_bound")
}
TRAINED |= {f"corun_{name}": place for name, place in CORUN_TRAINED.items()}

# Kernels that last as long as they are told to, by library: `Spin(large)`.
SPINNING = {name: (f"{name}_spinning", "Spin") for name in ("cupy", "driver")}


def found(place):
    """The function at (module, function); imports the libraries it needs."""
    module, function = place
    return getattr(importlib.import_module(f"loads.{module}"), function)
