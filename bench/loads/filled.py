"""Programs that hold much memory by one allocator each, and know what is in all of it.

Memory is held in blocks of words. In block n word i is (i * factor + n) modulo 2^32; a round checks
every word of every block and writes them anew, with another factor. What holds each block is the
library's own way of getting memory.
"""

import array
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_ulonglong

from loads.driver_ctypes import Session

BLOCK = 256 << 20
FIRST = 2654435761
MASK = 0xFFFFFFFF


def factor(turn):
    """The odd number that words are multiples of, more or less, in a round."""
    return (FIRST + 2 * turn) & MASK


def signed(value):
    """A word as the signed number with the same bits."""
    return value - (1 << 32) if value >= 1 << 31 else value


class Torch:
    """PyTorch; which of its allocators, the environment says."""

    def __init__(self, bytes, block=BLOCK):
        import torch

        self.torch = torch
        self.words = block // 4
        self.count = bytes // block
        self.blocks = []

    def fill(self):
        """Gets all memory and writes it."""
        for n in range(self.count):
            self.blocks.append(self.pattern(n, 0))

    def pattern(self, n, turn):
        """The contents of a block."""
        words = self.torch.arange(self.words, dtype=self.torch.int32, device="cuda")
        return words.mul_(signed(factor(turn))).add_(n)

    def round(self, turn):
        """Checks all and writes it anew; gives how many blocks were wrong."""
        wrong = 0
        for n, block in enumerate(self.blocks):
            wrong += not self.torch.equal(block, self.pattern(n, turn))
            block.copy_(self.pattern(n, turn + 1))
        self.torch.cuda.synchronize()
        return wrong


class Cupy:
    """CuPy with its pool over `cuMemAllocAsync`."""

    def __init__(self, bytes, block=BLOCK):
        import cupy

        self.cupy = cupy
        cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
        self.words = block // 4
        self.count = bytes // block
        self.blocks = []

    def fill(self):
        """Gets all memory and writes it."""
        for n in range(self.count):
            self.blocks.append(self.pattern(n, 0))

    def pattern(self, n, turn):
        """The contents of a block."""
        words = self.cupy.arange(self.words, dtype=self.cupy.uint32)
        words *= self.cupy.uint32(factor(turn))
        words += self.cupy.uint32(n)
        return words

    def round(self, turn):
        """Checks all and writes it anew; gives how many blocks were wrong."""
        wrong = 0
        for n, block in enumerate(self.blocks):
            wrong += not bool((block == self.pattern(n, turn)).all())
            block[...] = self.pattern(n, turn + 1)
        self.cupy.cuda.Device().synchronize()
        return wrong


class Jax:
    """JAX, which gets most of the memory that it is told is free at once."""

    def __init__(self, bytes, block=BLOCK):
        import jax
        import jax.numpy as jnp

        self.words = block // 4
        self.count = bytes // block
        self.blocks = []

        def pattern(n, by):
            return jax.lax.iota(jnp.uint32, self.words) * by + n

        def equal(words, n, by):
            return jnp.all(words == pattern(n, by))

        self.make = jax.jit(pattern)
        self.equal = jax.jit(equal)
        self.anew = jax.jit(lambda words, n, by: words * 0 + pattern(n, by), donate_argnums=0)
        self.number = jnp.uint32

    def fill(self):
        """Gets all memory and writes it."""
        for n in range(self.count):
            self.blocks.append(self.make(self.number(n), self.number(factor(0))))
        for block in self.blocks:
            block.block_until_ready()

    def round(self, turn):
        """Checks all and writes it anew; gives how many blocks were wrong."""
        wrong = 0
        for n, block in enumerate(self.blocks):
            wrong += not bool(self.equal(block, self.number(n), self.number(factor(turn))))
            self.blocks[n] = self.anew(block, self.number(n), self.number(factor(turn + 1)))
        for block in self.blocks:
            block.block_until_ready()
        return wrong


class Handles:
    """The driver API: one handle that is mapped once, as JAX has it. The words are of `fill_hash`."""

    PINNED, DEVICE, READ_WRITE = 1, 1, 3

    def __init__(self, bytes, block=8 << 20):
        self.session = Session()
        self.bytes, self.block = bytes, block
        self.count = bytes // block
        self.at = c_uint64()

    def fill(self):
        """Gets all memory and writes it."""
        cuda, size, handle = self.session.cuda, c_size_t(self.bytes), c_ulonglong()
        properties = (c_int * 8)(self.PINNED, 0, self.DEVICE, 0)
        access = (c_int * 3)(self.DEVICE, 0, self.READ_WRITE)
        none, whole = c_ulonglong(0), c_size_t(0)
        cuda.by_name("cuMemAddressReserve", byref(self.at), size, whole, c_uint64(0), none)
        cuda.by_name("cuMemCreate", byref(handle), size, properties, none)
        cuda.by_name("cuMemMap", self.at, size, whole, handle, none)
        cuda.by_name("cuMemSetAccess", self.at, size, access, c_size_t(1))
        cuda.by_name("cuMemRelease", handle)
        for n in range(self.count):
            self.write(n, 0)
        self.session.wait()

    def write(self, n, turn):
        """Writes a block."""
        at = c_uint64(self.at.value + n * self.block)
        seed = c_uint(n * 7919 + turn)
        self.session.launch("fill_hash", self.block // 4, at, seed, c_uint(self.block // 4))

    def round(self, turn):
        """Checks the first word of each block and a sum of all of it, and writes it anew."""
        wrong = 0
        for n in range(self.count):
            before = self.sum(n)
            self.write(n, turn)
            wrong += before != self.sum(n)
            self.write(n, turn + 1)
        self.session.wait()
        return wrong

    def sum(self, n):
        """The sum of a block's words."""
        at = c_uint64(self.at.value + n * self.block)
        total = self.session.upload(array.array("Q", [0]))
        self.session.launch("sum_u32", self.block // 4, total, at, c_uint(self.block // 4))
        found = self.session.download(total, "Q", 1)[0]
        self.session.free(total)
        return found


SEGMENTS = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
POOL = {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}

# By name: what holds the memory, and what has to be in the environment before it is imported.
ALLOCATORS = {
    "torch": (Torch, {}),
    "torch segments": (Torch, SEGMENTS),
    "torch async": (Torch, POOL),
    "jax": (Jax, {"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}),
    "cupy async": (Cupy, {}),
    "handles": (Handles, {}),
}
