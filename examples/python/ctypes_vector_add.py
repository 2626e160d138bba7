#!/usr/bin/env python3
"""Adds two vectors with the CUDA driver API through ctypes: no package is needed, only a driver.

The library is opened by name and its functions by theirs, as Triton, CuPy and JAX do. The last line
is `result ctypes_vector_add CHECKSUM ok`, as in the other examples.
"""

import argparse
import array
import ctypes
import pathlib
import sys

PTX = pathlib.Path(__file__).resolve().parent.parent / "kernels" / "kernels.ptx"


class Driver:
    """The driver's functions; a call that does not answer 0 ends the program."""

    def __init__(self, name):
        self.library = ctypes.CDLL(name)

    def __getattr__(self, symbol):
        function = getattr(self.library, symbol)

        def call(*arguments):
            result = function(*arguments)
            if result:
                text = ctypes.c_char_p()
                self.library.cuGetErrorName(result, ctypes.byref(text))
                name = text.value.decode() if text.value else "(no name)"
                sys.exit(f"{symbol} answered {result} {name}")

        return call


def fnv_1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=10000)
    n = parser.parse_args().elements
    if n < 1:
        parser.error("--elements must be at least 1")
    print(f"adding two vectors of {n} floats through ctypes")

    # Halves and quarters: their sums are exact, so Python's own numbers give the right results.
    a = array.array("f", (i % 1000 * 0.5 for i in range(n)))
    b = array.array("f", (250.0 - i % 777 * 0.25 for i in range(n)))
    got = array.array("f", bytes(4 * n))
    size = ctypes.c_size_t(4 * n)

    cuda = Driver("libcuda.so.1")
    device = ctypes.c_int()
    context, module, add = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    cuda.cuInit(0)
    cuda.cuDeviceGet(ctypes.byref(device), 0)
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    cuda.cuCtxSetCurrent(context)
    cuda.cuModuleLoadData(ctypes.byref(module), PTX.read_bytes() + b"\0")
    cuda.cuModuleGetFunction(ctypes.byref(add), module, b"add")

    d_out, d_a, d_b = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_uint64()
    for address in (d_out, d_a, d_b):
        cuda.cuMemAlloc_v2(ctypes.byref(address), size)
    for address, values in ((d_a, a), (d_b, b)):
        cuda.cuMemcpyHtoD_v2(address, ctypes.c_void_p(values.buffer_info()[0]), size)

    count = ctypes.c_uint(n)
    pointers = [ctypes.addressof(value) for value in (d_out, d_a, d_b, count)]
    parameters = (ctypes.c_void_p * 4)(*pointers)
    blocks = min((n + 255) // 256, 1024)
    cuda.cuLaunchKernel(add, blocks, 1, 1, 256, 1, 1, 0, None, parameters, None)
    cuda.cuMemcpyDtoH_v2(ctypes.c_void_p(got.buffer_info()[0]), d_out, size)
    for address in (d_out, d_a, d_b):
        cuda.cuMemFree_v2(address)

    for i in range(n):
        if got[i] != a[i] + b[i]:
            sys.exit(f"element {i} is {got[i]}, not {a[i] + b[i]}")
    print(f"result ctypes_vector_add {fnv_1a(got.tobytes()):016x} ok")


if __name__ == "__main__":
    main()
