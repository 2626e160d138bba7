"""The zoo: many small GPU programs as people write them, by framework.

Each is a generator function `program(device)` that works for ever and gives, at the end of every
step, what it has computed: an array, or several. Seeds are fixed. A step takes some tens of
milliseconds and many launches, so that whatever happens to the program happens in the middle of it.
No program knows anything of Baton.
"""

import dataclasses
import importlib

from loads import SETTINGS as COMMON

# For every program, before anything else is imported. NVLink multicast can put a host's GPUs out of
# service, so no library may try it.
SETTINGS = {
    **COMMON,
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}


@dataclasses.dataclass(frozen=True)
class Entry:
    """Where a program is, and what is known of it."""

    framework: str
    module: str
    function: str
    settings: tuple = ()
    # Why two runs may differ by so much though both are right: None, or (relative, reason).
    tolerance: tuple | None = None
    # Which documented limit of Baton the program meets, if any.
    limit: str | None = None

    def load(self):
        """The function; imports its framework."""
        return getattr(importlib.import_module(f"loads.zoo.{self.module}"), self.function)


def family(framework, module, functions, prefix=""):
    """Entries of functions that need no settings, by name."""
    return {prefix + name: Entry(framework, module, name) for name in functions.split()}


def named(framework, module, **functions):
    """Entries of one function each with something to know about it."""
    return {name: Entry(framework, module, **more) for name, more in functions.items()}


TORCH, JAX, CUPY, TRITON = "PyTorch", "JAX", "CuPy", "Triton"
NUMBA, TRANSFORMERS = "Numba", "transformers"

# Memory that other processes can reach by legacy means cannot be moved: docs/limits.md, "Memory".
SHARED = "memory is not shared with other processes by legacy means"
TUNED = (2e-2, "kernels are chosen by how long they take")


def registry(*parts):
    """All of them, by name; two programs of one name are a mistake."""
    found = {}
    for part in parts:
        if twice := found.keys() & part.keys():
            raise ValueError(f"two programs are called {', '.join(sorted(twice))}")
        found |= part
    return found


def allocator(settings):
    """The variable that chooses PyTorch's allocator."""
    return (("PYTORCH_ALLOC_CONF", settings),)


def jax_memory(**settings):
    """JAX's settings for its memory."""
    return tuple((f"XLA_PYTHON_CLIENT_{name}", value) for name, value in settings.items())


ZOO = registry(
    family(
        TORCH,
        "torch_layers",
        "mlp_sgd mlp_adam_for_loop mlp_adam_foreach mlp_adamw_fused mlp_clipped_and_scheduled "
        "lbfgs accumulated_gradients residual_network channels_last autoencoder "
        "convolutions_1d_and_3d attention_math attention_flash attention_efficient "
        "attention_cudnn transformer_encoder lstm gru embeddings mixture_of_experts "
        "activation_checkpoints gradient_penalty",
    ),
    family(
        TORCH,
        "torch_ops",
        "matrix_products integer_products fp8_products einsum index_and_scatter sorting fourier "
        "decompositions batched_solving sparse_matrices scans_and_reductions random_numbers "
        "complex_numbers views multi_tensor function_transforms pictures tall_reduction",
    ),
    family(
        TORCH,
        "torch_modes",
        "autocast_fp16 autocast_bf16 compile_default compile_reduce_overhead compile_dynamic "
        "compile_whole_step flex_attention scripted custom_gradient graph_of_training "
        "graphed_callables graphs_of_one_pool streams_and_events stream_priorities threads "
        "long_kernels",
    ),
    named(
        TORCH,
        "torch_modes",
        compile_max_autotune={"function": "compile_max_autotune", "tolerance": TUNED},
    ),
    family(
        TORCH,
        "torch_memory",
        "growing churn pinned_copies pageable_copies offloaded_layers memory_pools "
        "large_and_small exchanged_with_cupy saved_and_loaded",
    ),
    named(
        TORCH,
        "torch_memory",
        expandable_segments={
            "function": "training",
            "settings": allocator("expandable_segments:True"),
        },
        segments_that_grow={
            "function": "growing",
            "settings": allocator("expandable_segments:True"),
        },
        cuda_malloc_async={
            "function": "training",
            "settings": allocator("backend:cudaMallocAsync"),
        },
        split_blocks={
            "function": "churn",
            "settings": allocator("max_split_size_mb:32,garbage_collection_threshold:0.6"),
        },
        no_caching={
            "function": "training",
            "settings": (("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),),
        },
    ),
    family(TORCH, "engines", "jpeg nvdec cufile"),
    family(TORCH, "torch_processes", "data_workers spawned_clients data_parallel_alone nccl_alone"),
    named(
        TORCH,
        "torch_processes",
        shared_tensors={"function": "shared_tensors", "limit": SHARED},
        shared_segments={
            "function": "shared_tensors",
            "settings": allocator("expandable_segments:True"),
        },
    ),
    family(
        TRANSFORMERS,
        "transformers_models",
        "bert_training gpt2_training llama_training t5_training mixtral_training vit_training "
        "whisper_inference gpt2_generation llama_generation llama_static_cache llama_sampling",
    ),
    family(
        JAX,
        "jax_programs",
        "training donated_buffers convolutions scan loops_and_branches vmap_of_gradients "
        "fourier_and_algebra sorting_and_scatter attention random_numbers without_jit "
        "sharded_over_one",
        "jax_",
    ),
    named(
        JAX,
        "jax_programs",
        jax_preallocating={
            "function": "training",
            # A quarter of the GPU, so that it finds room beside other bare programs.
            "settings": jax_memory(PREALLOCATE="true", MEM_FRACTION=".25"),
        },
        jax_cuda_async={
            "function": "donated_buffers",
            "settings": jax_memory(ALLOCATOR="cuda_async"),
        },
        jax_no_pool={"function": "training", "settings": jax_memory(ALLOCATOR="platform")},
    ),
    family(
        CUPY,
        "cupy_programs",
        "default_pool async_pool no_pool raw_kernel raw_module made_kernels matrix_products "
        "solving fourier sorting random_numbers sparse_matrices streams graphs",
        "cupy_",
    ),
    family(
        TRITON,
        "triton_kernels",
        "add softmax layer_norm matmul matmul_device_descriptors matmul_host_descriptors atomics "
        "autotuned",
        "triton_",
    ),
    family(NUMBA, "numba_kernels", "elementwise shared_memory atomics", "numba_"),
)
