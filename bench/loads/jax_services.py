"""A server in JAX: a Llama-shaped model in bf16, compiled to one program, in memory that JAX takes at once."""

import os

# As JAX does unless told otherwise: three quarters of the GPU.
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true"

import jax
import jax.numpy as jnp
import numpy

from loads.service import INPUTS, Service

WORDS = 32_000


def parameters(layers, width, inner, key):
    """Random weights, layer by layer."""

    @jax.jit
    def layer(key):
        keys = jax.random.split(key, 7)
        square, wide, back = (width, width), (width, inner), (inner, width)
        names = ("query", "key", "value", "out", "gate", "up", "down")
        shapes = (square, square, square, square, wide, wide, back)
        return {
            name: jax.random.normal(key, shape, jnp.bfloat16) * 0.02
            for name, key, shape in zip(names, keys, shapes, strict=True)
        }

    first, last, *rest = jax.random.split(key, layers + 2)
    words = (WORDS, width)
    return {
        "words": jax.random.normal(first, words, jnp.bfloat16) * 0.02,
        "head": jax.random.normal(last, words, jnp.bfloat16) * 0.02,
        "layers": [layer(key) for key in rest],
    }


def normal(x):
    """RMS norm, without weights of its own."""
    wide = x.astype(jnp.float32)
    scale = jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + 1e-6)
    return (wide * scale).astype(x.dtype)


def block(x, weights, heads):
    """One layer: attention to what came before, and the gated perceptron."""
    split = (x.shape[0], heads, x.shape[1] // heads)
    seen = normal(x)
    query, key, value = ((seen @ weights[name]).reshape(split) for name in ("query", "key", "value"))
    attended = jax.nn.dot_product_attention(query[None], key[None], value[None], is_causal=True)
    x = x + attended.reshape(x.shape) @ weights["out"]
    seen = normal(x)
    return x + (jax.nn.silu(seen @ weights["gate"]) * (seen @ weights["up"])) @ weights["down"]


def feed(digest, name, array):
    """One output into a digest."""
    digest.array(name, array)


def jax_7b(device, size):
    """Llama-shaped, 6.7 B parameters: reads a prompt of 512 tokens and says what comes next."""
    layers, width, inner, heads = (32, 4096, 11008, 32) if size == "full" else (2, 64, 128, 4)
    on = jax.devices("gpu" if device == "cuda" else device)[0]
    with jax.default_device(on):
        weights = jax.block_until_ready(parameters(layers, width, inner, jax.random.key(0)))
    prompts = numpy.random.default_rng(12).integers(0, WORDS, (INPUTS, 512), dtype=numpy.int32)

    @jax.jit
    def answer(weights, tokens):
        x = weights["words"][tokens]
        for layer in weights["layers"]:
            x = block(x, layer, heads)
        return (normal(x[-1]) @ weights["head"].T).astype(jnp.float32)

    def request(i):
        tokens = jax.device_put(prompts[i % INPUTS], on)
        return [numpy.asarray(answer(weights, tokens))]

    def memory():
        return (on.memory_stats() or {}).get("pool_bytes", 0)

    held = sum(array.nbytes for array in jax.tree.leaves(weights))
    return Service(request, feed, held, memory=memory)
