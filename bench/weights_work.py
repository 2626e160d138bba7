#!/usr/bin/env python3
"""One program of the weights measurement.

    weights_work.py keep SOCKET GIB             keeps weights, and passes descriptors of them on
    weights_work.py read SOCKET GIB SECONDS     imports them beside GIB of its own, and checks all of it for so long
    weights_work.py trade SECONDS               two processes of PyTorch pass tensors to each other by torch.multiprocessing

The first prints `ready` and ends with its standard input; the others print `ready`, begin at the first line, and print JSON. They know nothing
of Baton.
"""

import ctypes
import json
import os
import socket
import sys
import threading
import time

import torch

GIB = 1 << 30
PIECE = 512 << 20
DESCRIPTOR, PINNED, ON_DEVICE, READ_WRITE = 1, 1, 1, 3
# A checked word of memory is one of so many: sums of all stay exact.
WORDS = 1 << 20


class Location(ctypes.Structure):
    """CUmemLocation (cuda.h)."""

    _fields_ = [("kind", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    """CUmemAllocationProp (cuda.h)."""

    _fields_ = [
        ("kind", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class Access(ctypes.Structure):
    """CUmemAccessDesc (cuda.h)."""

    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


class Words:
    """Memory at an address, as PyTorch takes it."""

    def __init__(self, at, count):
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<i4", "data": (at, False), "version": 2}


class Driver:
    """The driver's functions for memory."""

    def __init__(self):
        torch.cuda.init()
        torch.zeros(1, device="cuda")
        self.library = ctypes.CDLL("libcuda.so.1")

    def call(self, name, *arguments):
        """Calls a function, and raises its error."""
        answer = getattr(self.library, name)(*arguments)
        if answer != 0:
            raise RuntimeError(f"{name}: error {answer}")

    def create(self):
        """A new handle, which can be exported."""
        properties = Properties(PINNED, DESCRIPTOR, Location(ON_DEVICE, 0))
        handle = ctypes.c_uint64()
        self.call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(PIECE), ctypes.byref(properties), ctypes.c_uint64(0))
        return handle

    def export(self, handle):
        """A descriptor of a handle."""
        descriptor = ctypes.c_int(-1)
        self.call("cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, DESCRIPTOR, ctypes.c_uint64(0))
        return descriptor.value

    def import_(self, descriptor):
        """The handle of a descriptor."""
        handle = ctypes.c_uint64()
        self.call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(descriptor), DESCRIPTOR)
        return handle

    def words(self, handle):
        """The words of a handle's memory, mapped somewhere."""
        at, access = ctypes.c_uint64(), Access(Location(ON_DEVICE, 0), READ_WRITE)
        size = ctypes.c_size_t(PIECE)
        self.call("cuMemAddressReserve", ctypes.byref(at), size, ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
        self.call("cuMemMap", at, size, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
        self.call("cuMemSetAccess", at, size, ctypes.byref(access), ctypes.c_size_t(1))
        return torch.as_tensor(Words(at.value, PIECE // 4), device="cuda")


def filled(words, seed):
    """Fills words, and returns their sum."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    words.random_(0, WORDS, generator=generator)
    return int(words.sum(dtype=torch.int64))


def keep(place, gib):
    """Keeps weights until its standard input ends."""
    driver, pieces = Driver(), []
    for number in range(int(float(gib) * GIB) // PIECE):
        handle = driver.create()
        pieces.append((driver.export(handle), filled(driver.words(handle), number)))
    torch.cuda.synchronize()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(place)
    listener.listen()

    def pass_on():
        while True:
            to, _ = listener.accept()
            for descriptor, total in pieces:
                socket.send_fds(to, [str(total).encode()], [descriptor])
            to.close()

    threading.Thread(target=pass_on, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


def received(place):
    """Descriptors and sums of all pieces."""
    source = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    source.connect(place)
    while True:
        data, descriptors, _, _ = socket.recv_fds(source, 64, 1)
        if not data:
            return
        yield descriptors[0], int(data)


def read(place, gib, seconds):
    """Imports weights and checks them, and memory of its own, again and again."""
    driver = Driver()
    started = time.perf_counter()
    memory = []
    for descriptor, total in received(place):
        memory.append((driver.words(driver.import_(descriptor)), total))
        os.close(descriptor)
    imported = time.perf_counter() - started
    own = [torch.empty(GIB // 4, dtype=torch.int32, device="cuda") for _ in range(int(gib))]
    memory += [(words, filled(words, 1000 + number)) for number, words in enumerate(own)]
    print("ready", flush=True)
    sys.stdin.readline()
    rounds, wrong, end = 0, 0, time.monotonic() + float(seconds)
    while time.monotonic() < end:
        wrong += sum(int(words.sum(dtype=torch.int64)) != total for words, total in memory)
        rounds += 1
    print(json.dumps({"rounds": rounds, "wrong": wrong, "import_seconds": imported}), flush=True)


def doubled(tensors, answers):
    """The other process of `trade`: it gives each tensor's sum, and doubles the tensor."""
    own = torch.arange(256 << 20, dtype=torch.int32, device="cuda")
    total = int(own.sum(dtype=torch.int64))
    while (tensor := tensors.get()) is not None:
        answers.put((int(tensor.sum(dtype=torch.int64)), int(own.sum(dtype=torch.int64)) == total))
        tensor.mul_(2)
        torch.cuda.synchronize()
        answers.put("doubled")
        del tensor


def trade(seconds):
    """Two processes pass tensors to each other."""
    import torch.multiprocessing as processes

    context = processes.get_context("spawn")
    tensors, answers = context.Queue(), context.Queue()
    other = context.Process(target=doubled, args=(tensors, answers))
    other.start()
    own = torch.arange(256 << 20, dtype=torch.int32, device="cuda")
    total = int(own.sum(dtype=torch.int64))
    print("ready", flush=True)
    sys.stdin.readline()
    rounds, wrong, end = 0, 0, time.monotonic() + float(seconds)
    while time.monotonic() < end:
        tensor = torch.full((64 << 20,), rounds % 1000, dtype=torch.int32, device="cuda")
        tensors.put(tensor)
        seen, others = answers.get()
        assert answers.get() == "doubled"
        good = seen == (rounds % 1000) * tensor.numel() and others
        good &= int(tensor.sum(dtype=torch.int64)) == 2 * seen and int(own.sum(dtype=torch.int64)) == total
        wrong += not good
        rounds += 1
        del tensor
    tensors.put(None)
    other.join()
    print(json.dumps({"rounds": rounds, "wrong": wrong}), flush=True)


if __name__ == "__main__":
    {"keep": keep, "read": read, "trade": trade}[sys.argv[1]](*sys.argv[2:])
