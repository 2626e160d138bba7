"""The driver API through ctypes, with no library of NVIDIA's between: dlopen, dlsym, call.

Finds some functions by name and the rest through cuGetProcAddress_v2, launches the project's own
example kernels, and checks what they compute with integers against Python.
"""

import array
import ctypes
import pathlib
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p

KERNELS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "kernels" / "kernels.ptx"
THREADS = 128


class DriverError(RuntimeError):
    """A driver call that did not answer CUDA_SUCCESS."""

    def __init__(self, message, code=None):
        super().__init__(message)
        self.code = code


class Driver:
    """Functions of libcuda.so.1, each called with checked result."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")
        self.addresses = {}

    def by_name(self, symbol, *arguments):
        """Calls the function that dlsym finds under `symbol`."""
        self.check(symbol, getattr(self.library, symbol)(*arguments))

    def by_version(self, base, version, *arguments):
        """Calls the function that cuGetProcAddress_v2 gives for `base` as of `version`."""
        if base not in self.addresses:
            address, found = c_void_p(), c_int()
            request = (base.encode(), byref(address), c_int(version), c_uint64(0), byref(found))
            self.by_name("cuGetProcAddress_v2", *request)
            if not address.value:
                raise DriverError(f"{base}: no such function (status {found.value})")
            self.addresses[base] = ctypes.CFUNCTYPE(c_int)(address.value)
        self.check(base, self.addresses[base](*arguments))

    @staticmethod
    def check(what, result):
        """Raises for every result but CUDA_SUCCESS."""
        if result != 0:
            raise DriverError(f"{what} answered {result}", result)


def murmur_finalizer(x):
    """The result of the kernel fill_hash for one 32-bit value."""
    x &= 0xFFFFFFFF
    x = (x ^ (x >> 16)) * 0x85EBCA6B & 0xFFFFFFFF
    x = (x ^ (x >> 13)) * 0xC2B2AE35 & 0xFFFFFFFF
    return x ^ (x >> 16)


class Session:
    """One context, one module, one stream, and the few calls that the workload needs."""

    def __init__(self):
        self.cuda = Driver()
        device, self.context, module = c_int(), c_void_p(), c_void_p()
        self.cuda.by_name("cuInit", c_uint(0))
        self.cuda.by_name("cuDeviceGet", byref(device), c_int(0))
        self.device = device
        self.cuda.by_name("cuDevicePrimaryCtxRetain", byref(self.context), device)
        self.cuda.by_name("cuCtxSetCurrent", self.context)
        text = c_char_p(KERNELS.read_bytes() + b"\0")
        self.cuda.by_name("cuModuleLoadData", byref(module), text)
        self.module = module
        self.stream = c_void_p()
        self.cuda.by_name("cuStreamCreate", byref(self.stream), c_uint(1))
        self.owned = []
        self.functions = {}

    def function(self, name):
        """A kernel of the module."""
        if name not in self.functions:
            found = self.functions[name] = c_void_p()
            self.cuda.by_name("cuModuleGetFunction", byref(found), self.module, name.encode())
        return self.functions[name]

    def allocate(self, size):
        """Device memory, freed when the session closes."""
        address = c_uint64()
        self.cuda.by_name("cuMemAlloc_v2", byref(address), c_size_t(size))
        self.owned.append(address)
        return address

    def upload(self, values):
        """Device memory with the contents of an `array.array`, copied on the session's stream."""
        size = len(values) * values.itemsize
        address = self.allocate(size)
        source = c_void_p(values.buffer_info()[0])
        arguments = (address, source, c_size_t(size), self.stream)
        self.cuda.by_version("cuMemcpyHtoDAsync", 3020, *arguments)
        self.wait()
        return address

    def download(self, address, code, count):
        """`count` values of type `code` from device memory."""
        values = array.array(code, bytes(count * array.array(code).itemsize))
        size = c_size_t(len(values) * values.itemsize)
        target = c_void_p(values.buffer_info()[0])
        self.cuda.by_version("cuMemcpyDtoHAsync", 3020, target, address, size, self.stream)
        self.wait()
        return values

    def fill(self, address, value, words):
        """Sets 32-bit words."""
        arguments = (address, c_uint(value), c_size_t(words), self.stream)
        self.cuda.by_name("cuMemsetD32Async", *arguments)

    def free(self, address):
        """Gives one allocation back."""
        self.cuda.by_name("cuMemFree_v2", address)
        self.owned.remove(address)

    def launch(self, name, work, *parameters, most_blocks=64):
        """A kernel over `work` elements; parameters are ctypes values."""
        pointers = (c_void_p * len(parameters))(*(ctypes.addressof(p) for p in parameters))
        blocks = min(most_blocks, (work + THREADS - 1) // THREADS)
        shape = [c_uint(v) for v in (blocks, 1, 1, THREADS, 1, 1, 0)]
        arguments = (self.function(name), *shape, self.stream, pointers, None)
        self.cuda.by_version("cuLaunchKernel", 4000, *arguments)

    def wait(self):
        """Waits for the session's stream."""
        self.cuda.by_name("cuStreamSynchronize", self.stream)

    def close(self):
        """Gives everything back, as a tidy program does."""
        for address in self.owned:
            self.cuda.by_name("cuMemFree_v2", address)
        self.cuda.by_name("cuStreamDestroy_v2", self.stream)
        self.cuda.by_name("cuModuleUnload", self.module)
        self.cuda.by_name("cuDevicePrimaryCtxRelease_v2", self.device)


def mixed(device, steps, digest, numbers):
    """Every buffer that comes back counts."""
    if device != "cuda":
        raise SystemExit("this workload calls the CUDA driver")
    session = Session()
    side, count = 64, 64 * 64
    a = array.array("f", (((7 * i) % 101) / 101 - 0.5 for i in range(count)))
    b = array.array("f", (((5 * i) % 89) / 89 - 0.5 for i in range(count)))
    at_a, at_b, out = session.upload(a), session.upload(b), session.allocate(4 * count)
    hashes, total = session.allocate(4 * count), session.allocate(8)
    n, edge = c_uint(count), c_uint(side)
    numbers["sums"] = []
    for i in range(steps):
        session.launch("add", count, out, at_a, at_b, n)
        digest.raw(f"add{i}", session.download(out, "f", count))
        session.launch("matmul", count, out, at_a, at_b, edge, edge, edge, c_uint(0))
        digest.raw(f"matmul{i}", session.download(out, "f", count))
        session.launch("axpy", count, at_a, out, c_float(0.125), n)
        digest.raw(f"axpy{i}", session.download(at_a, "f", count))

        session.launch("fill_hash", count, hashes, c_uint(i), n)
        session.fill(total, 0, 2)
        session.launch("sum_u32", count, total, hashes, n)
        found = session.download(total, "Q", 1)
        if found[0] != sum(murmur_finalizer(j + i) for j in range(count)):
            raise DriverError(f"step {i}: the sum of hashes is wrong")
        digest.raw(f"sum{i}", found)
        numbers["sums"].append(found[0])
    session.close()
